/* Mixtures of experts on the CPU (experts.h). Start at experts_run, then run_lot. */
#include "kernels/experts.h"

#include <assert.h>
#include <math.h>

#include "kernels/quant.h"
#include "src/base/base.h"

enum {
    ALONE = 8,                           /* fewer rows do not wake threads */
    PIECE = 4,                           /* rows of an item */
    COLUMNS = 256,                       /* columns of an item of the sum */
    SUM_ALONE = 1 << 16,                 /* values of a sum that does not wake threads */
};

size_t experts_left_bytes(size_t k)
{
    return MAX((k * sizeof(float) + 63) / 64 * 64, quantized_groups_bytes((k + 31) / 32 * 32));
}

/* ---- steps over rows ---- */

struct call { const struct experts_run *r; const struct device_experts *a; };
typedef void step_fn(const void *args, size_t i);
struct steps { step_fn *fn; const void *args; size_t n; };

static void step_item(void *ctx, size_t i, size_t thread)
{
    const struct steps *s = ctx;
    (void)thread;
    for (size_t k = i * PIECE; k < MIN((i + 1) * PIECE, s->n); k++)
        s->fn(s->args, k);
}

static void each(struct pool *pool, step_fn *fn, const void *args, size_t n)
{
    struct steps s = { fn, args, n };
    if (n < ALONE)
        for (size_t i = 0; i < n; i++)
            fn(args, i);
    else
        pool_run(pool, (n + PIECE - 1) / PIECE, step_item, &s);
}

/* ---- the router ---- */

static void norm_with(const struct call *c, size_t i, const float *norm)
{
    const size_t dim = c->a->router->k;
    c->r->ops->rmsnorm(c->r->room->norm + i * dim, dim, DT_F32, c->a->x + i * dim, dim, norm, 1, dim,
                       c->a->eps);
}

static void norm_row(const void *args, size_t i)
{
    const struct call *c = args;
    norm_with(c, i, c->a->norm);
}

static void router_norm_row(const void *args, size_t i)
{
    const struct call *c = args;
    norm_with(c, i, c->a->router_norm);
}

/* The experts of a row, ascending, and their weights. */
static void choose(const void *args, size_t i)
{
    const struct call *c = args;
    const struct experts_room *room = c->r->room;
    const size_t n = c->a->n_experts, used = c->a->used;
    float *x = room->product + i * n, *p = room->chance + i * n, *share = room->share + i * used, sum = 0;
    uint32_t *chosen = room->chosen + i * used;
    if (!c->r->ops->finite(x, n)) {
        c->r->bad(c->r->ctx, i);
        memset(x, 0, n * sizeof *x);
    }
    memcpy(p, x, n * sizeof *p);
    c->r->ops->softmax(p, DT_F32, p, 0, n, n, 1.0f);
    for (size_t k = 0; k < used; k++) {
        const uint32_t best = (uint32_t)c->r->ops->argmax(x, n);
        size_t at = k;
        x[best] = -INFINITY;
        for (; at > 0 && chosen[at - 1] > best; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = best;
    }
    for (size_t k = 0; k < used; k++)
        sum += share[k] = p[chosen[k]];
    for (size_t k = 0; k < used && c->a->normalise; k++)
        share[k] /= sum;
    for (size_t k = 0; k < used && c->a->expert_scale; k++)
        share[k] *= c->a->expert_scale[chosen[k]];
}

/* Lists the rows of each expert. Returns the number of experts that have any. */
static size_t list_rows(const struct call *c)
{
    const struct experts_room *room = c->r->room;
    const size_t n = c->a->n * c->a->used;
    size_t *start = room->start, some = 0;
    memset(start, 0, (c->a->n_experts + 1) * sizeof *start);
    for (size_t i = 0; i < n; i++)
        start[room->chosen[i] + 1]++;
    for (size_t e = 0; e < c->a->n_experts; e++) {
        some += start[e + 1] > 0;
        start[e + 1] += start[e];
    }
    /* start[e] walks over the entries of e; then it is where those of e + 1 begin */
    for (size_t i = 0; i < n; i++) {
        const size_t at = start[room->chosen[i]]++;
        room->row[at] = (uint32_t)(i / c->a->used);
        room->weight[at] = room->share[i];
    }
    memmove(start + 1, start, c->a->n_experts * sizeof *start);
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
static enum dtype form_of(const struct experts_run *r, const struct mat *w)
{
    if (w->type == DT_I8)
        return DT_I16;
    return r->compute_f32 ? DT_F32 : dtype_is_quantised(w->type) ? DT_I16 : DT_BF16;
}

static void prepare(const struct experts_run *r, const struct mat *w, void *to, const float *x)
{
    const size_t k = w->k;
    switch (form_of(r, w)) {
    case DT_F32:
        memcpy(to, x, k * sizeof *x);
        break;
    case DT_BF16:
        r->ops->round(to, DT_BF16, x, 1.0f, k);
        if (k % 2)                           /* multiplied by +0 */
            ((uint16_t *)to)[k] = 0;
        break;
    default:
        if (w->type == DT_I8)
            r->ops->quantize(to, DT_F32, x, k);
        else
            r->ops->quantize_groups(to, x, k);
    }
}

/* ---- a lot ---- */

struct lot {
    const struct call *c;
    size_t ffn;                          /* of its experts */
    size_t first, n, n_parts;            /* entries first .. first + n - 1 */
    size_t step;                         /* bytes of a left operand */
    const struct mat *w;                 /* of the present product: the shape and form of all its matrices */
};

static void prepare_input(const void *args, size_t i)
{
    const struct lot *l = args;
    const struct experts_room *room = l->c->r->room;
    const size_t row = room->row[l->first + i];
    prepare(l->c->r, l->w, room->left + i * l->step, room->norm + row * l->w->k);
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

static void prepare_hidden(const void *args, size_t i)
{
    const struct lot *l = args;
    const struct experts_room *room = l->c->r->room;
    const struct device_experts *a = l->c->a;
    const size_t f = l->ffn;
    float *y = room->y + i * 2 * f;
    if (a->limit != 0)
        cut(y, y + f, f, a->alpha, a->limit);
    (a->gelu ? l->c->r->ops->geglu : l->c->r->ops->swiglu)(room->h + i * f, DT_F32, y, y + f, f);
    prepare(l->c->r, l->w, room->left + i * l->step, room->h + i * f);
}

/* Columns of a piece: x[row] = x[row] + weight * y, entries in order. */
static void add_columns(void *ctx, size_t i, size_t thread)
{
    const struct lot *l = ctx;
    const struct experts_room *room = l->c->r->room;
    const size_t dim = l->w->n, c0 = i * COLUMNS, c1 = MIN(c0 + COLUMNS, dim);
    (void)thread;
    for (size_t s = 0; s < l->n; s++) {
        float *x = (l->c->a->to ? l->c->a->to : l->c->a->x) + room->row[l->first + s] * dim;
        const float *y = room->y + s * dim, weight = room->weight[l->first + s];
        for (size_t k = c0; k < c1; k++)
            x[k] = x[k] + weight * y[k];
    }
}

static void multiply_parts(struct lot *l, float *y, size_t ldy, bool one_row)
{
    const struct experts_run *r = l->c->r;
    struct product p = { .ops = r->ops, .part = r->room->part, .n_parts = l->n_parts,
                         .act = form_of(r, l->w), .left = r->room->left, .left_step = one_row ? 0 : l->step,
                         .y = y, .ldy = ldy };
    run_product(r->pool, &p, l->c->a->n == 1);
}

static void set_part(struct expert_part *p, const struct mat *w, const float *bias, size_t column)
{
    p->w = w;
    p->bias = bias ? bias + column : NULL;
}

static void run_lot(const struct call *c, struct lot *l)
{
    const struct experts_room *room = c->r->room;
    const struct device_expert *first = room->part[0].expert;
    const bool one_row = c->a->n == 1;
    const size_t dim = c->a->router->k;
    for (size_t j = 0, column = 0; j < first->gate_up.n; column += first->gate_up.m[j++].n) {
        l->w = &first->gate_up.m[j];
        for (size_t i = 0; i < l->n_parts; i++)
            set_part(&room->part[i], &room->part[i].expert->gate_up.m[j], room->part[i].expert->gate_up_bias,
                     column);
        l->step = experts_left_bytes(dim);
        each(c->r->pool, prepare_input, l, one_row ? 1 : l->n);
        multiply_parts(l, room->y + column, 2 * l->ffn, one_row);
    }
    l->w = &first->down;
    for (size_t i = 0; i < l->n_parts; i++)
        set_part(&room->part[i], &room->part[i].expert->down, room->part[i].expert->down_bias, 0);
    l->step = experts_left_bytes(l->ffn);
    each(c->r->pool, prepare_hidden, l, l->n);
    multiply_parts(l, room->y, dim, false);
    const size_t pieces = (dim + COLUMNS - 1) / COLUMNS;
    if (l->n * dim >= SUM_ALONE)
        pool_run(c->r->pool, pieces, add_columns, l);
    else
        for (size_t i = 0; i < pieces; i++)
            add_columns(l, i, 0);
}

/* The products of the router, or of the gate of the shared expert, with the normalised rows. */
static void route(const struct call *c, const struct mat *w, const float *bias)
{
    const struct experts_run *r = c->r;
    const struct expert_part part = { NULL, w, 0, c->a->n, bias };
    struct product p = { .ops = r->ops, .part = &part, .n_parts = 1, .act = DT_F32,
                         .left = (const char *)r->room->norm, .left_step = w->k * sizeof(float),
                         .y = r->room->product, .ldy = w->n };
    run_product(r->pool, &p, c->a->n == 1);
}

/* Adds the shared expert: every row is one of its entries. sigmoid(s) is the first of softmax(s, 0). */
static void run_shared(const struct call *c)
{
    const struct experts_room *room = c->r->room;
    const size_t n = c->a->n;
    route(c, c->a->shared_gate, NULL);
    for (size_t i = 0; i < n; i++) {
        float s[2] = { room->product[i], 0 };
        if (!c->r->ops->finite(s, 1)) {
            c->r->bad(c->r->ctx, i);
            s[0] = 0;
        }
        c->r->ops->softmax(s, DT_F32, s, 0, 2, 2, 1.0f);
        room->weight[i] = s[0];
        room->row[i] = (uint32_t)i;
    }
    for (size_t at = 0; at < n; at += EXPERT_LOT) {
        struct lot l = { .c = c, .ffn = c->a->shared_ffn, .first = at, .n = MIN(n - at, (size_t)EXPERT_LOT),
                         .n_parts = 1 };
        room->part[0] = (struct expert_part){ c->a->shared, NULL, 0, l.n, NULL };
        run_lot(c, &l);
    }
}

size_t experts_run(const struct experts_run *r, const struct device_experts *a)
{
    const struct experts_room *room = r->room;
    const struct call c = { r, a };
    each(r->pool, a->router_norm ? router_norm_row : norm_row, &c, a->n);
    route(&c, a->router, a->router_bias);
    each(r->pool, choose, &c, a->n);
    if (a->router_norm)
        each(r->pool, norm_row, &c, a->n);
    const size_t read = list_rows(&c);
    struct lot l = { .c = &c, .ffn = a->ffn };
    for (size_t e = 0; e < a->n_experts; e++) {
        for (size_t at = room->start[e], some; at < room->start[e + 1]; at += some) {
            some = MIN(room->start[e + 1] - at, (size_t)EXPERT_LOT);
            if (l.n + some > EXPERT_LOT) {
                run_lot(&c, &l);
                l = (struct lot){ .c = &c, .ffn = a->ffn, .first = at };
            }
            room->part[l.n_parts++] = (struct expert_part){ &a->expert[e], NULL, l.n, some, NULL };
            l.n += some;
        }
    }
    run_lot(&c, &l);
    if (a->shared)
        run_shared(&c);
    return read;
}
