/* Modules of the trainer (train.h): their memory, the optimiser, and what several kinds use. A module's
 * layout says its sizes; start at lay_out and train_step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/lab/train/layers_impl.h"
#include "src/lab/train/train.h"

/* Parameters that one work item of the pool processes. */
enum { BLOCK = 1 << 14 };

/* ---- memory ---- */

/* Makes the layout in mem and sets the module's sizes; mem NULL: only sets the sizes. */
static void lay_out(struct module *u, char *mem)
{
    struct layers *l = &u->layers;
    struct arena a = { mem, 0 };
    l->n_params = l->n_linears = 0;
    u->kind->layout(u, &a);
    layers_take(l, &a);
    u->n_params = l->n_params;
    u->bytes = a.at;
}

static size_t blocks_of(const struct module *u) { return (u->n_params + BLOCK - 1) / BLOCK; }
static size_t host_bytes(const struct module *u)
{
    return 4 * u->n_params * sizeof(float) + blocks_of(u) * sizeof(double);
}

int module_plan(struct module *u, const struct model *m, struct err *e)
{
    const bool gpu = m->dev && !m->dev->host_memory;
    u->layers = (struct layers){ .m = m, .d = m->config.hidden, .gpu = u->layers.gpu,
                                 .vocab = u->draft_vocab ? u->draft_vocab : m->config.vocab };
    if ((!u->self && !(u->self = calloc(1, u->kind->self_bytes))) ||
        (gpu && !u->layers.gpu && !(u->layers.gpu = layers_gpu_new(m))))
        return err_set(e, ERR_FAILED, "out of memory for training %s", u->name);
    lay_out(u, NULL);
    return 0;
}

/* The device's memory, the host's arrays, and the host's rows of the LM head. */
static int allocate(struct module *u, struct err *e)
{
    struct layers *l = &u->layers;
    struct device *dev = l->m->dev;
    char *host = mem_alloc(host_bytes(u));
    u->sum = (double *)(void *)host;
    u->mem = l->gpu ? dev->alloc(dev, u->bytes) : mem_alloc(u->bytes);
    l->target = malloc(l->lm_rows * sizeof *l->target);
    l->loss = malloc(l->lm_rows * sizeof *l->loss);
    if (!host || !u->mem || !l->target || !l->loss)
        return err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes for weights and moments, %zu for "
                       "the rest)", u->name, host_bytes(u), u->bytes);
    u->w = (float *)(void *)(u->sum + blocks_of(u));
    u->grad = u->w + u->n_params;
    u->m = u->grad + u->n_params;
    u->v = u->m + u->n_params;
    return 0;
}

int module_open(struct module *u, const struct model *m, const struct lm_back *back, struct err *e)
{
    struct layers *l = &u->layers;
    if ((u->kind->check && u->kind->check(u, m, e)) || module_plan(u, m, e) ||
        (l->gpu && layers_gpu_open(l, e)) || allocate(u, e))
        return -1;
    l->back = back;
    assert((back->vocab ? back->vocab->n : m->config.vocab) == l->vocab);
    l->params = u->w, l->grad = u->grad;
    lay_out(u, u->mem);
    if (u->kind->init(u, e))
        return -1;
    module_update(u);
    return 0;
}

void module_close(struct module *u)
{
    struct layers *l = &u->layers;
    if (l->gpu)
        l->m->dev->free(l->m->dev, u->mem, u->bytes);
    else
        mem_free(u->mem, u->bytes);
    mem_free(u->sum, host_bytes(u));
    layers_gpu_close(l);
    free(l->target), free(l->loss), free(u->self);
    u->self = u->mem = NULL, u->sum = NULL;
    u->w = u->grad = u->m = u->v = NULL, l->target = NULL, l->loss = NULL;
}

void module_update(struct module *u) { layers_update(&u->layers, u->w); }

int module_fetch(struct module *u, struct err *e)
{
    return u->layers.gpu ? layers_gpu_fetch(&u->layers, u->w, e) : 0;
}

/* ---- the optimiser ---- */

double train_rate(const struct train_settings *s, size_t step)
{
    if (step < s->warmup)
        return s->rate * (double)(step + 1) / (double)s->warmup;
    return s->rate * 0.5 *
           (1 + cos(3.14159265358979323846 * (double)(step - s->warmup) / (double)(s->steps - s->warmup)));
}

struct update { const struct module *u; struct adamw decayed, plain; };

static void square_item(void *ctx, size_t i, size_t thread)
{
    const struct module *u = ctx;
    const size_t to = MIN((i + 1) * BLOCK, u->n_params);
    double s = 0;
    (void)thread;
    for (size_t j = i * BLOCK; j < to; j++)
        s += (double)u->grad[j] * (double)u->grad[j];
    u->sum[i] = s;
}

double module_squares(const struct module *u)
{
    double sum = 0;
    if (u->layers.gpu)
        return layers_gpu_squares(&u->layers);
    pool_run(u->layers.m->pool, blocks_of(u), square_item, (void *)u);
    for (size_t i = 0; i < blocks_of(u); i++)
        sum += u->sum[i];
    return sum;
}

static void adamw_item(void *ctx, size_t i, size_t thread)
{
    const struct update *x = ctx;
    const struct module *u = x->u;
    const struct ops *o = u->layers.m->ops;
    const size_t from = i * BLOCK, to = MIN(from + BLOCK, u->n_params), mid = MAX(from, MIN(to, u->n_matrix));
    (void)thread;
    o->adamw(u->w + from, u->m + from, u->v + from, u->grad + from, mid - from, &x->decayed);
    o->adamw(u->w + mid, u->m + mid, u->v + mid, u->grad + mid, to - mid, &x->plain);
    memset(u->grad + from, 0, (to - from) * sizeof *u->grad);
}

/* pow() by multiplication: the bits do not depend on the C library. */
static double power(double b, size_t n)
{
    double p = 1;
    for (; n; n >>= 1, b *= b)
        if (n & 1)
            p *= b;
    return p;
}

double train_step(struct module *u, const struct train_settings *s, size_t step)
{
    const double beta1 = 0.9, beta2 = 0.999, rate = train_rate(s, step), norm = sqrt(module_squares(u));
    struct update x = { .u = u };
    x.plain = (struct adamw){ .beta1 = (float)beta1, .beta2 = (float)beta2, .eps = 1e-8f, .keep = 1,
                              .scale = s->clip > 0 && norm > s->clip ? (float)(s->clip / norm) : 1,
                              .rate = (float)(rate / (1 - power(beta1, step + 1))),
                              .root = (float)(1 / sqrt(1 - power(beta2, step + 1))) };
    x.decayed = x.plain;
    x.decayed.keep = (float)(1 - rate * s->decay);
    if (u->layers.gpu) {
        layers_gpu_adamw(&u->layers, u->n_matrix, &x.decayed);
    } else {
        pool_run(u->layers.m->pool, blocks_of(u), adamw_item, &x);
        module_update(u);
    }
    return norm;
}

/* ---- for kinds ---- */

/* By splitmix64. */
double train_uniform(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

void train_normal(float *w, size_t n, float deviation, uint64_t seed)
{
    uint64_t s = seed;
    for (size_t i = 0; i < n; i++)
        w[i] = (float)((double)deviation * sqrt(-2 * log(train_uniform(&s))) *
                       cos(6.283185307179586 * train_uniform(&s)));
}

double train_xent(const struct xent *x) { return log((double)x->sum) + ((double)x->top - (double)x->at); }

double train_loss(const struct train_score *s)
{
    return s->n > s->outside ? s->loss / (double)(s->n - s->outside) : NAN;
}

void train_score_add(struct train_score *s, const struct xent *x, double loss)
{
    s->n++;
    s->loss += loss;
    s->top1 += x->above < 1;
    s->top3 += x->above < 3;
}

void train_score_rows(struct train_score *s, const struct xent *loss, const int32_t *target, size_t n)
{
    for (size_t r = 0; r < n; r++)
        if (target[r] >= 0)
            train_score_add(s, &loss[r], train_xent(&loss[r]));
        else if (target[r] == LM_OUTSIDE)
            s->n++, s->outside++;
}

void train_angles(const struct model *m, const struct train_window *win, size_t n, float *cos, float *sin)
{
    const size_t half = m->config.rotary / 2;
    for (size_t i = 0; i < n; i++)
        rope_angles(cos + i * half, sin + i * half, i + (i >= win->skip_at ? win->skip : 0), m->inv_freq,
                    half, m->rope_factor);
}
