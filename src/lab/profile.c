/* Where the time of a pass goes, by operation of the device. Start at bench_profile. */
#include "src/lab/bench.h"

#include <stdio.h>

static const double PROFILE_SECONDS = 0.5;
static const char *const names[BENCH_OPS] = { "matrices", "head", "attention", "rope", "norms", "activation",
                                              "experts", "states", "other" };

/* The device while it is profiled. Its functions take no context, so there is one. */
static struct {
    struct device device;                /* with its own functions */
    struct pool *pool;
    const struct mat *head;
    struct bench_op *op;                 /* [BENCH_OPS] */
    struct pool_times pool_since;
} now;

static double begin(void)
{
    now.pool_since = pool_times(now.pool);
    return clock_seconds();
}

/* Outside of the pool's jobs the caller alone is busy. */
static void end(enum bench_op_kind k, double since)
{
    const double seconds = clock_seconds() - since;
    const struct pool_times t = pool_times(now.pool);
    now.op[k].seconds += seconds;
    now.op[k].busy += t.busy - now.pool_since.busy + seconds - (t.inside - now.pool_since.inside);
}

#define TIMED(kind, call) do { const double since = begin(); now.device.call; end(kind, since); } while (0)

static void product(struct device *d, const struct device_product *p)
{
    const enum bench_op_kind k = p->w == now.head ? OP_HEAD : OP_MATRICES;
    for (size_t i = 0; i < MAX(p->n_w, (size_t)1); i++)
        now.op[k].bytes += (double)mat_bytes(&p->w[i]);
    TIMED(k, product(d, p));
}

static void attend(struct device *d, void *out, const void *q, const struct device_heads *h, size_t layer,
                   size_t window)
{
    TIMED(OP_ATTENTION, attend(d, out, q, h, layer, window));
}

static void rope(struct device *d, const struct device_rope *a) { TIMED(OP_ROPE, rope(d, a)); }

static void rmsnorm(struct device *d, void *y, const float *x, const float *w, size_t n, size_t dim,
                    float eps, size_t place)
{
    TIMED(OP_NORMS, rmsnorm(d, y, x, w, n, dim, eps, place));
}

static void norm_add(struct device *d, float *x, float *y, const float *w, size_t n, size_t dim, float eps)
{
    TIMED(OP_NORMS, norm_add(d, x, y, w, n, dim, eps));
}

static void swiglu(struct device *d, void *h, const float *gate_up, size_t n, size_t ffn)
{
    TIMED(OP_ACTIVATION, swiglu(d, h, gate_up, n, ffn));
}

static void geglu(struct device *d, void *h, const float *gate_up, size_t n, size_t ffn)
{
    TIMED(OP_ACTIVATION, geglu(d, h, gate_up, n, ffn));
}

static void experts(struct device *d, const struct device_experts *a) { TIMED(OP_EXPERTS, experts(d, a)); }
static void delta(struct device *d, const struct device_delta *a) { TIMED(OP_STATES, delta(d, a)); }

const char *bench_op_name(enum bench_op_kind k) { return names[k]; }

/* The rest of a pass counts as "other". What a pass reads beside its matrices counts as attention: caches,
 * and the states of a hybrid. With experts it is not counted: the bytes of the chosen ones are part of it. */
static void finish(struct bench_point *p, const struct config *c, double seconds, size_t passes)
{
    struct bench_op *op = p->op, all = { 0 };
    for (size_t i = 0; i < OP_OTHER; i++)
        all.seconds += op[i].seconds;
    op[OP_OTHER].seconds = op[OP_OTHER].busy = seconds - all.seconds;
    for (size_t i = 0; i < BENCH_OPS; i++) {
        op[i].seconds /= (double)passes;
        op[i].busy /= (double)passes;
        op[i].bytes /= (double)passes;
    }
    if (!c->n_experts)
        op[OP_ATTENTION].bytes = MAX(0, p->work.bytes - op[OP_MATRICES].bytes - op[OP_HEAD].bytes);
}

int bench_profile(struct bench_target *t, struct bench_point *p, struct err *e)
{
    struct device *d = t->g->dev;
    const struct device own = *d;
    size_t passes = 0;
    int rc = 0;
    now.device = own, now.pool = t->g->pool, now.head = &t->g->model.lm_head, now.op = p->op;
    d->product = product, d->attend = attend, d->rope = rope, d->rmsnorm = rmsnorm, d->norm_add = norm_add;
    d->swiglu = swiglu, d->geglu = geglu, d->experts = experts, d->delta = delta;
    pool_timing(now.pool, true);
    const double since = clock_seconds();
    for (; rc == 0 && (passes < 3 || clock_seconds() - since < PROFILE_SECONDS); passes++)
        rc = bench_pass(t, p->rows, e);
    const double seconds = clock_seconds() - since;
    pool_timing(now.pool, false);
    d->product = own.product, d->attend = own.attend, d->rope = own.rope, d->rmsnorm = own.rmsnorm;
    d->norm_add = own.norm_add, d->swiglu = own.swiglu, d->geglu = own.geglu, d->experts = own.experts;
    d->delta = own.delta;
    finish(p, &t->g->config, seconds, passes);
    p->profiled = seconds / (double)passes;
    return rc;
}
