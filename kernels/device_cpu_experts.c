/* The feed-forward part of a layer with a mixture of experts on the device `cpu`. Every row goes through a
 * few of the experts, which the router chooses.
 *
 * A pass reads the weights of an expert once: the rows that it has are grouped, experts ascending, rows
 * ascending, and go through its matrices together, in lots of whole experts. The result of a row depends on
 * that row alone (R1): products do not depend on the number of their rows, and a row receives its experts in
 * ascending order. Start at cpu_experts, then run_lot. */
#include "kernels/device_cpu.h"

#include <assert.h>
#include <math.h>

#include "kernels/pool.h"
#include "src/base/base.h"

enum {
    COLUMNS = 256,                       /* columns of an item of the sum */
    SUM_ALONE = 1 << 16,                 /* values of a sum that does not wake threads */
};

size_t experts_left_bytes(size_t k)
{
    return MAX((k * sizeof(float) + 63) / 64 * 64, quantized_groups_bytes((k + 31) / 32 * 32));
}

/* ---- the router ---- */

struct norming { const struct device_experts *a; const float *norm; };

static void norm_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct norming *x = args;
    const size_t dim = x->a->router->k;
    c->ops->rmsnorm(c->experts.norm + r0 * dim, dim, DT_F32, x->a->x + r0 * dim, dim, x->norm, r1 - r0, dim,
                    x->a->eps);
}

/* The experts of a row, ascending, and their weights. */
static void choose(const struct cpu *c, const struct device_experts *a, size_t i)
{
    const struct experts_room *room = &c->experts;
    const size_t n = a->n_experts, used = a->used;
    float *x = room->product + i * n, *p = room->chance + i * n, *share = room->share + i * used, sum = 0;
    uint32_t *chosen = room->chosen + i * used;
    if (!c->ops->finite(x, n)) {
        cpu_note(c, a->place, i);
        memset(x, 0, n * sizeof *x);
    }
    memcpy(p, x, n * sizeof *p);
    c->ops->softmax(p, DT_F32, p, 0, n, n, 1.0f);
    for (size_t k = 0; k < used; k++) {
        const uint32_t best = (uint32_t)c->ops->argmax(x, n);
        size_t at = k;
        x[best] = -INFINITY;
        for (; at > 0 && chosen[at - 1] > best; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = best;
    }
    for (size_t k = 0; k < used; k++)
        sum += share[k] = p[chosen[k]];
    for (size_t k = 0; k < used && a->normalise; k++)
        share[k] /= sum;
    for (size_t k = 0; k < used && a->expert_scale; k++)
        share[k] *= a->expert_scale[chosen[k]];
}

static void choose_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    for (size_t r = r0; r < r1; r++)
        choose(c, args, r);
}

/* Lists the rows of each expert. Returns the number of experts that have any. */
static size_t list_rows(const struct experts_room *room, const struct device_experts *a)
{
    const size_t n = a->n * a->used;
    size_t *start = room->start, some = 0;
    memset(start, 0, (a->n_experts + 1) * sizeof *start);
    for (size_t i = 0; i < n; i++)
        start[room->chosen[i] + 1]++;
    for (size_t e = 0; e < a->n_experts; e++) {
        some += start[e + 1] > 0;
        start[e + 1] += start[e];
    }
    /* start[e] walks over the entries of e; then it is where those of e + 1 begin */
    for (size_t i = 0; i < n; i++) {
        const size_t at = start[room->chosen[i]]++;
        room->row[at] = (uint32_t)(i / a->used);
        room->weight[at] = room->share[i];
    }
    memmove(start + 1, start, a->n_experts * sizeof *start);
    start[0] = 0;
    return some;
}

/* ---- products ---- */

/* One product of the parts of a lot. All their matrices have the same shape and form. */
struct product {
    const struct ops *ops;
    const struct expert_part *part; size_t n_parts;
    enum dtype act; const char *left; size_t left_step;      /* bytes from row to row; 0: one row */
    float *y; size_t ldy;
    size_t fours, items;                 /* groups of four panels in a matrix */
};

static void multiply(const struct product *p, const struct expert_part *part, size_t p0, size_t p1)
{
    const struct mat *w = part->w;
    const char *x = p->left + part->slot * p->left_step;
    float *y = p->y + part->slot * p->ldy;
    if (dtype_is_quantised(w->type) && p->act != DT_F32)
        p->ops->matmul_quantized(y, p->ldy, x, p->left_step, part->n, w, part->bias, false, p0, p1);
    else
        p->ops->matmul(y, p->ldy, p->act, x, p->left_step / dtype_size(p->act), part->n, w, part->bias,
                       false, p0, p1);
}

static void product_item(void *ctx, size_t i, size_t thread)
{
    const struct product *p = ctx;
    const size_t all = p->n_parts * p->fours, end = (i + 1) * all / p->items;
    (void)thread;
    for (size_t at = i * all / p->items, to; at < end; at = to) {
        const struct expert_part *part = &p->part[at / p->fours];
        const size_t first = at / p->fours * p->fours;
        to = MIN(end, first + p->fours);
        multiply(p, part, 4 * (at - first), MIN(4 * (to - first), mat_panels(part->w)));
    }
}

/* Items are as many as keep the threads busy, although experts have different numbers of rows. */
static void run_product(struct pool *pool, struct product *p, bool one_row)
{
    const size_t threads = pool_threads(pool);
    p->fours = (mat_panels(p->part->w) + 3) / 4;
    p->items = threads > 1 ? MIN(p->n_parts * p->fours, (one_row ? 4 : 16) * threads) : 1;
    pool_run(pool, p->items, product_item, p);
}

/* The form of a left operand for a matrix: floats, bf16; int16 for 8-bit (DT_I8) and quantised weights. */
static enum dtype form_of(const struct cpu *c, const struct mat *w)
{
    if (w->type == DT_I8)
        return DT_I16;
    return c->d.compute_f32 ? DT_F32 : dtype_is_quantised(w->type) ? DT_I16 : DT_BF16;
}

static void prepare(const struct cpu *c, const struct mat *w, void *to, const float *x)
{
    const size_t k = w->k;
    switch (form_of(c, w)) {
    case DT_F32:
        memcpy(to, x, k * sizeof *x);
        break;
    case DT_BF16:
        c->ops->round(to, DT_BF16, x, 1.0f, k);
        if (k % 2)                           /* multiplied by +0 */
            ((uint16_t *)to)[k] = 0;
        break;
    default:
        if (w->type == DT_I8)
            c->ops->quantize(to, DT_F32, x, k);
        else
            c->ops->quantize_groups(to, x, k);
    }
}

/* ---- a lot ---- */

struct lot {
    const struct device_experts *a;
    size_t ffn;                          /* of its experts */
    size_t first, n, n_parts;            /* entries first .. first + n - 1 */
    size_t step;                         /* bytes of a left operand */
    const struct mat *w;                 /* of the present product: the shape and form of all its matrices */
};

static void prepare_inputs(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct lot *l = args;
    const struct experts_room *room = &c->experts;
    for (size_t i = r0; i < r1; i++)
        prepare(c, l->w, room->left + i * l->step, room->norm + room->row[l->first + i] * l->w->k);
}

/* gate and up as silu(gate) * up takes them (struct device_experts). */
static void cut(float *gate, float *up, size_t n, float alpha, float limit)
{
    const float inverse = 1 / alpha;
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i],
                    u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = alpha * g;
        up[i] = (u + 1) * inverse;
    }
}

static void prepare_hidden(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct lot *l = args;
    const struct experts_room *room = &c->experts;
    const size_t f = l->ffn;
    for (size_t i = r0; i < r1; i++) {
        float *y = room->y + i * 2 * f;
        if (l->a->limit != 0)
            cut(y, y + f, f, l->a->alpha, l->a->limit);
        (l->a->gelu ? c->ops->geglu : c->ops->swiglu)(room->h + i * f, DT_F32, y, y + f, f);
        prepare(c, l->w, room->left + i * l->step, room->h + i * f);
    }
}

/* Columns of a piece: x[row] = x[row] + weight * y, entries in order. */
struct adding { const struct experts_room *room; const struct lot *l; };

static void add_columns(void *ctx, size_t i, size_t thread)
{
    const struct adding *x = ctx;
    const struct lot *l = x->l;
    const size_t dim = l->w->n, c0 = i * COLUMNS, c1 = MIN(c0 + COLUMNS, dim);
    (void)thread;
    for (size_t s = 0; s < l->n; s++) {
        float *to = (l->a->to ? l->a->to : l->a->x) + x->room->row[l->first + s] * dim;
        const float *y = x->room->y + s * dim, weight = x->room->weight[l->first + s];
        for (size_t k = c0; k < c1; k++)
            to[k] = to[k] + weight * y[k];
    }
}

static void multiply_parts(const struct cpu *c, const struct lot *l, float *y, size_t ldy, bool one_row)
{
    struct product p = { .ops = c->ops, .part = c->experts.part, .n_parts = l->n_parts,
                         .act = form_of(c, l->w), .left = c->experts.left, .left_step = one_row ? 0 : l->step,
                         .y = y, .ldy = ldy };
    run_product(c->pool, &p, l->a->n == 1);
}

static void set_part(struct expert_part *p, const struct mat *w, const float *bias, size_t column)
{
    p->w = w;
    p->bias = bias ? bias + column : NULL;
}

static void run_lot(const struct cpu *c, struct lot *l)
{
    struct expert_part *part = c->experts.part;
    const struct device_expert *first = part->expert;
    const bool one_row = l->a->n == 1;
    const size_t dim = l->a->router->k;
    float *y = c->experts.y;
    for (size_t j = 0, column = 0; j < first->gate_up.n; column += first->gate_up.m[j++].n) {
        l->w = &first->gate_up.m[j];
        for (size_t i = 0; i < l->n_parts; i++)
            set_part(&part[i], &part[i].expert->gate_up.m[j], part[i].expert->gate_up_bias, column);
        l->step = experts_left_bytes(dim);
        cpu_each_row(c, prepare_inputs, l, one_row ? 1 : l->n);
        multiply_parts(c, l, y + column, 2 * l->ffn, one_row);
    }
    l->w = &first->down;
    for (size_t i = 0; i < l->n_parts; i++)
        set_part(&part[i], &part[i].expert->down, part[i].expert->down_bias, 0);
    l->step = experts_left_bytes(l->ffn);
    cpu_each_row(c, prepare_hidden, l, l->n);
    multiply_parts(c, l, y, dim, false);
    const size_t pieces = (dim + COLUMNS - 1) / COLUMNS;
    struct adding x = { &c->experts, l };
    if (l->n * dim >= SUM_ALONE)
        pool_run(c->pool, pieces, add_columns, &x);
    else
        for (size_t i = 0; i < pieces; i++)
            add_columns(&x, i, 0);
}

/* The products of the router, or of the gate of the shared expert, with the n normalised rows. */
static void route(const struct cpu *c, size_t n, const struct mat *w, const float *bias)
{
    const struct expert_part part = { NULL, w, 0, n, bias };
    struct product p = { .ops = c->ops, .part = &part, .n_parts = 1, .act = DT_F32,
                         .left = (const char *)c->experts.norm, .left_step = w->k * sizeof(float),
                         .y = c->experts.product, .ldy = w->n };
    run_product(c->pool, &p, n == 1);
}

/* Adds the shared expert: every row is one of its entries. sigmoid(s) is the first of softmax(s, 0). */
static void run_shared(const struct cpu *c, const struct device_experts *a)
{
    const struct experts_room *room = &c->experts;
    route(c, a->n, a->shared_gate, NULL);
    for (size_t i = 0; i < a->n; i++) {
        float s[2] = { room->product[i], 0 };
        if (!c->ops->finite(s, 1)) {
            cpu_note(c, a->place, i);
            s[0] = 0;
        }
        c->ops->softmax(s, DT_F32, s, 0, 2, 2, 1.0f);
        room->weight[i] = s[0];
        room->row[i] = (uint32_t)i;
    }
    for (size_t at = 0; at < a->n; at += EXPERT_LOT) {
        struct lot l = { .a = a, .ffn = a->shared_ffn, .first = at, .n = MIN(a->n - at, (size_t)EXPERT_LOT),
                         .n_parts = 1 };
        room->part[0] = (struct expert_part){ a->shared, NULL, 0, l.n, NULL };
        run_lot(c, &l);
    }
}

void cpu_experts(struct device *d, const struct device_experts *a)
{
    struct cpu *c = (struct cpu *)d;
    const struct experts_room *room = &c->experts;
    assert(a->n * a->used <= c->limits.rows_max * c->limits.experts.used &&
           a->n_experts <= c->limits.experts.n && MAX(a->ffn, a->shared_ffn) <= c->limits.experts.ffn &&
           a->router->k <= c->limits.experts.hidden);
    cpu_each_row(c, norm_rows, &(struct norming){ a, a->router_norm ? a->router_norm : a->norm }, a->n);
    route(c, a->n, a->router, a->router_bias);
    cpu_each_row(c, choose_rows, a, a->n);
    if (a->router_norm)
        cpu_each_row(c, norm_rows, &(struct norming){ a, a->norm }, a->n);
    d->experts_read += list_rows(room, a);
    struct lot l = { .a = a, .ffn = a->ffn };
    for (size_t e = 0; e < a->n_experts; e++) {
        for (size_t at = room->start[e], some; at < room->start[e + 1]; at += some) {
            some = MIN(room->start[e + 1] - at, (size_t)EXPERT_LOT);
            if (l.n + some > EXPERT_LOT) {
                run_lot(c, &l);
                l = (struct lot){ .a = a, .ffn = a->ffn, .first = at };
            }
            room->part[l.n_parts++] = (struct expert_part){ &a->expert[e], NULL, l.n, some, NULL };
            l.n += some;
        }
    }
    run_lot(c, &l);
    if (a->shared)
        run_shared(c, a);
}
