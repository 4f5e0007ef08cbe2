/* The device `cpu`: struct device over the table of operations, with rows, heads and columns shared out over
 * the pool. Every call completes before it returns, and all memory is the process's own. Attention is in
 * device_cpu_attend.c, experts in device_cpu_experts.c. Start reading at device_cpu_open and run_product. */
#include "kernels/device_cpu.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/pool.h"
#include "kernels/quant.h"
#include "kernels/twins.h"
#include "src/base/base.h"

enum {
    SLAB_ROWS = 64,                  /* rows of a sequence whose attention is computed together */
    SMALL_BYTES = 2 << 20,  /* size up to which the product of a matrix with one row takes microseconds */
    QUANTIZED_ROWS = 16,             /* rows that a product with 8-bit weights quantises at once */
    LEFT_ROWS = 256,                 /* rows that are converted at once for a product in a quantised model */
};
#define PART_BYTES ((size_t)48 << 20)    /* bound on the chunk states of a slab */

/* ---- memory ---- */

static void *cpu_alloc(struct device *d, size_t bytes) { (void)d; return mem_alloc(bytes); }
static void cpu_free(struct device *d, void *p, size_t bytes) { (void)d; mem_free(p, bytes); }
/* src/model/memory_plan.h checks the host's memory */
static size_t cpu_bytes_free(struct device *d) { (void)d; return SIZE_MAX; }
static void cpu_zero(struct device *d, void *dst, size_t bytes) { (void)d; memset(dst, 0, bytes); }

static void cpu_copy(struct device *d, void *dst, const void *src, size_t bytes)
{
    (void)d;
    if (bytes && dst != src)
        memcpy(dst, src, bytes);
}

static int cpu_download(struct device *d, void *dst, const void *src, size_t bytes)
{
    cpu_copy(d, dst, src, bytes);
    return 0;
}

struct noise { uint16_t *y; size_t n; uint64_t seed; float scale; };
enum { NOISE_PIECE = 1 << 16 };

/* The sum of four uniform numbers less its mean. It is never 0, so a pair of bf16 values is also a normal
 * float. */
static void noise_item(void *ctx, size_t i, size_t thread)
{
    const struct noise *a = ctx;
    (void)thread;
    for (size_t j = i * NOISE_PIECE; j < MIN(a->n, (i + 1) * NOISE_PIECE); j++) {
        uint64_t h = (a->seed + j) * UINT64_C(0xbf58476d1ce4e5b9);
        h = (h ^ h >> 31) * UINT64_C(0x94d049bb133111eb);
        h ^= h >> 29;
        const uint32_t sum = (uint32_t)((h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48));
        a->y[j] = f32_to_bf16(((float)sum - 131069.5f) / 65536 * a->scale);
    }
}

static void cpu_noise(struct device *d, void *dst, size_t n, uint64_t seed, float deviation)
{
    struct noise a = { dst, n, seed * UINT64_C(0x9e3779b97f4a7c15), deviation * sqrtf(3) };
    pool_run(((struct cpu *)d)->pool, (n + NOISE_PIECE - 1) / NOISE_PIECE, noise_item, &a);
}

static size_t cpu_head_dim(const struct device *d,
                           size_t head_dim) { (void)d; return (head_dim + 15) / 16 * 16; }

static enum dtype cpu_mat_type(const struct device *d, enum dtype stored, enum dtype compute)
{
    (void)d;
    return compute == DT_BF16 && !dtype_is_quantised(stored) ? DT_BF16 : stored;
}

static size_t cpu_mat_size(const struct device *d, enum dtype type, size_t n, size_t k)
{
    (void)d;
    return mat_bytes(&(struct mat){ type, n, k, NULL });
}

static void cpu_mat_put(struct device *d, struct mat *m, size_t r0, size_t n, const void *src,
                        enum dtype from)
{
    (void)d;
    mat_pack(m, r0, n, src, from);
}

/* ---- working memory ---- */

/* A row of x as int16 in groups or as bf16. */
static size_t left_bytes(size_t k)
{
    return quantized_groups_bytes((k + 31) / 32 * 32);
}

/* Places the buffers in c->mem, or only adds up their sizes when it is NULL. */
static void layout(struct cpu *c, const struct device_limits *l)
{
    const size_t n = l->rows_max, dp = l->heads.padded, half = dp / 2;
    const size_t experts = l->experts.n, used = n * l->experts.used, hidden = l->experts.hidden,
                 ffn = l->experts.ffn, lot = MIN(used, (size_t)EXPERT_LOT);
    char *delta;
    const size_t per_row = (l->n_max / KV_CHUNK + 2) * l->heads.n_heads * ATTN_STATE(dp) * sizeof(float);
    c->slab = MAX(1, MIN(MIN((size_t)SLAB_ROWS, n), PART_BYTES / per_row));
    c->part_bytes = c->slab * per_row;
    c->work_bytes = attn_work_bytes(device_draft_kv(&c->d), dp);
    c->left_size =
        c->d.quantised && !c->d.compute_f32 ? MIN(n, (size_t)LEFT_ROWS) * left_bytes(l->n_in_max) : 0;
    const struct { void *slot; size_t bytes; } buffers[] = {
        { &c->cos, n * half * sizeof(float) }, { &c->sin, n * half * sizeof(float) },
        { &c->local_cos, l->local * n * half * sizeof(float) },
        { &c->local_sin, l->local * n * half * sizeof(float) },
        { &c->part, c->part_bytes }, { &c->q_scale, n * l->heads.n_heads * sizeof(float) },
        { &c->lo, n * sizeof(size_t) }, { &c->hi, n * sizeof(size_t) }, { &c->seq_of, n * sizeof(uint32_t) },
        { &c->quantized, QUANTIZED_ROWS * quantized_row(l->n_in_max) * sizeof *c->quantized },
        { &c->left, c->left_size }, { &c->work, pool_threads(c->pool) * c->work_bytes },
        { &c->experts.norm, (experts > 0) * n * hidden * sizeof(float) },
        { &c->experts.product, n * experts * sizeof(float) },
        { &c->experts.chance, n * experts * sizeof(float) },
        { &c->experts.chosen, used * sizeof(uint32_t) }, { &c->experts.share, used * sizeof(float) },
        { &c->experts.start, (experts + 1) * sizeof(size_t) },
        { &c->experts.row, used * sizeof(uint32_t) }, { &c->experts.weight, used * sizeof(float) },
        { &c->experts.left, lot * experts_left_bytes(MAX(hidden, ffn)) },
        { &c->experts.y, lot * MAX(2 * ffn, hidden) * sizeof(float) },
        { &c->experts.h, lot * ffn * sizeof(float) },
        { &c->experts.part, lot * sizeof(struct expert_part) },
        { &delta, delta_place(NULL, NULL, l, pool_threads(c->pool)) },
    };
    c->bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *p = c->mem ? c->mem + c->bytes : NULL;
        memcpy(buffers[i].slot, &p, sizeof p);
        c->bytes += (buffers[i].bytes + 63) / 64 * 64 + 64;
    }
    delta_place(&c->delta, delta, l, pool_threads(c->pool));
}

static size_t cpu_reserve_bytes(const struct device *d, const struct device_limits *l)
{
    struct cpu c = { .d = *d, .pool = ((const struct cpu *)d)->pool };
    layout(&c, l);
    return c.bytes;
}

/* The limits that the buffers depend on. */
#define LIMIT(member) offsetof(struct device_limits, member)
static const size_t limits[] = {
    LIMIT(rows_max), LIMIT(n_max), LIMIT(n_in_max), LIMIT(heads.n_heads), LIMIT(heads.padded),
    LIMIT(experts.n), LIMIT(experts.used), LIMIT(experts.hidden), LIMIT(experts.ffn),
    LIMIT(delta.n_layers), LIMIT(delta.key_heads), LIMIT(delta.value_heads), LIMIT(delta.key_dim),
    LIMIT(delta.value_dim),
};

/* Raises limits to those that are wanted. False: they are as high already. */
static bool raise_limits(struct device_limits *l, const struct device_limits *want)
{
    bool more = want->local > l->local;
    l->local |= want->local;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        size_t *have = (size_t *)(void *)((char *)l + limits[i]);
        const size_t need = *(const size_t *)(const void *)((const char *)want + limits[i]);
        more |= need > *have;
        *have = MAX(*have, need);
    }
    return more;
}

/* A device serves several models in turn, so the limits only grow. Without memory for the larger buffers the
 * present ones stay, because other models use them. */
static int cpu_reserve(struct device *d, const struct device_limits *want)
{
    struct cpu *c = (struct cpu *)d, present = *c;
    struct device_limits l = c->limits;
    if (!raise_limits(&l, want) && (c->left_size || !d->quantised || d->compute_f32))
        return 0;
    c->mem = NULL;
    layout(c, &l);
    c->mem = mem_alloc(c->bytes);
    if (!c->mem) {
        *c = present;
        return -1;
    }
    mem_free(present.mem, present.bytes);
    c->limits = l;
    layout(c, &l);
    return 0;
}

/* ---- rows ---- */

static void angle_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct device_rows *p = args;
    for (size_t r = r0; r < r1; r++) {
        const size_t at = r * p->n_freq;
        rope_angles(c->cos + at, c->sin + at, p->angle[r], p->inv_freq, p->n_freq, p->rope_factor);
        if (p->local_freq)
            rope_angles(c->local_cos + r * p->n_local, c->local_sin + r * p->n_local, p->angle[r],
                        p->local_freq, p->n_local, 1);
    }
}

static void cpu_begin(struct device *d, const struct device_rows *p)
{
    struct cpu *c = (struct cpu *)d;
    assert(p->n >= 1 && p->n <= c->limits.rows_max && (!p->local_freq || c->limits.local));
    c->rows = p;
    d->experts_read = 0;
    atomic_store_explicit(&c->bad, UINT64_MAX, memory_order_relaxed);
    for (size_t i = 0; i < p->n_seqs; i++)
        for (size_t r = p->seq[i].row0; r < p->seq[i].row0 + p->seq[i].n; r++) {
            c->seq_of[r] = (uint32_t)i;
            c->hi[r] = p->hi[r];
        }
    if (p->n_seqs && p->seq[0].kv->state)
        delta_plan(&c->delta, p);
    cpu_each_row(c, angle_rows, p, p->n);
}

static bool cpu_graph_begin(struct device *d, uint64_t key) { (void)d, (void)key; return false; }
static bool cpu_graph_end(struct device *d) { (void)d; return true; }

static int cpu_end(struct device *d, struct device_bad *bad)
{
    const uint64_t word = atomic_load_explicit(&((struct cpu *)d)->bad, memory_order_relaxed);
    *bad = (struct device_bad){ word != UINT64_MAX, (size_t)(word & UINT32_MAX), (size_t)(word >> 32) };
    return 0;
}

static void cpu_embed(struct device *d, float *x, const struct mat *table, bool packed)
{
    const struct device_rows *p = ((struct cpu *)d)->rows;
    const size_t k = table->k;
    for (size_t r = 0; r < p->n; r++, x += k) {
        const size_t id = (size_t)p->token[r];
        assert(p->token[r] >= 0 && id < table->n);
        if (packed)
            mat_row(table, id, x);
        else if (dtype_is_quantised(table->type))
            quant_table_row(table, id, x);
        else if (table->type == DT_F32)
            memcpy(x, (const float *)table->w + id * k, k * sizeof *x);
        else
            for (size_t i = 0; i < k; i++) {
                const uint16_t v = ((const uint16_t *)table->w)[id * k + i];
                x[i] = table->type == DT_F16 ? f16_to_f32(v) : bf16_to_f32(v);
            }
    }
}

struct norm { void *y; const float *x, *w; size_t dim, place; float eps; };

static void norm_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct norm *p = args;
    const enum dtype act = device_act(&c->d);
    for (size_t r = r0; p->place != SIZE_MAX && r < r1; r++)
        if (!c->ops->finite(p->x + r * p->dim, p->dim))
            cpu_note(c, p->place, r);
    if (!p->w) {
        c->ops->round((char *)p->y + r0 * p->dim * dtype_size(act), act, p->x + r0 * p->dim, 1,
                      (r1 - r0) * p->dim);
        return;
    }
    c->ops->rmsnorm((char *)p->y + r0 * p->dim * dtype_size(act), p->dim, act, p->x + r0 * p->dim, p->dim,
                    p->w, r1 - r0, p->dim, p->eps);
}

static void cpu_rmsnorm(struct device *d, void *y, const float *x, const float *w, size_t n, size_t dim,
                        float eps, size_t place)
{
    cpu_each_row((struct cpu *)d, norm_rows, &(struct norm){ y, x, w, dim, place, eps }, n);
}

struct norm_add { float *x, *y; const float *w; size_t dim; float eps; };

static void norm_add_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct norm_add *p = args;
    float *x = p->x + r0 * p->dim, *y = p->y + r0 * p->dim;
    c->ops->rmsnorm(y, p->dim, DT_F32, y, p->dim, p->w, r1 - r0, p->dim, p->eps);
    for (size_t i = 0; i < (r1 - r0) * p->dim; i++)
        x[i] += y[i];
}

static void cpu_norm_add(struct device *d, float *x, float *y, const float *w, size_t n, size_t dim,
                         float eps)
{
    cpu_each_row((struct cpu *)d, norm_add_rows, &(struct norm_add){ x, y, w, dim, eps }, n);
}

static void cpu_scale(struct device *d, float *x, float factor, size_t n)
{
    ((struct cpu *)d)->ops->round(x, DT_F32, x, factor, n);
}

struct softcap { float *x, cap; size_t dim; };

static void softcap_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct softcap *p = args;
    c->ops->softcap(p->x + r0 * p->dim, p->cap, (r1 - r0) * p->dim);
}

static void cpu_softcap(struct device *d, float *x, float cap, size_t n, size_t dim)
{
    cpu_each_row((struct cpu *)d, softcap_rows, &(struct softcap){ x, cap, dim }, n);
}

struct swiglu { char *h; const float *gate_up; size_t ffn; bool gelu; };

static void swiglu_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct swiglu *p = args;
    const enum dtype act = device_act(&c->d);
    const size_t f = p->ffn;
    for (size_t r = r0; r < r1; r++)
        (p->gelu ? c->ops->geglu : c->ops->swiglu)(p->h + r * f * dtype_size(act), act,
                                                   p->gate_up + r * 2 * f, p->gate_up + r * 2 * f + f, f);
}

static void cpu_swiglu(struct device *d, void *h, const float *gate_up, size_t n, size_t ffn)
{
    cpu_each_row((struct cpu *)d, swiglu_rows, &(struct swiglu){ h, gate_up, ffn, false }, n);
}

static void cpu_geglu(struct device *d, void *h, const float *gate_up, size_t n, size_t ffn)
{
    cpu_each_row((struct cpu *)d, swiglu_rows, &(struct swiglu){ h, gate_up, ffn, true }, n);
}

static void cpu_gather(struct device *d, void *dst, const void *src, size_t row_bytes)
{
    const struct device_rows *p = ((struct cpu *)d)->rows;
    for (size_t i = 0; i < p->n_want; i++)
        memcpy((char *)dst + i * row_bytes, (const char *)src + p->want[i] * row_bytes, row_bytes);
}

static void cpu_widen(struct device *d, float *y, const void *x, size_t n)
{
    if (device_act(d) == DT_F32)
        memcpy(y, x, n * sizeof *y);
    else
        for (size_t i = 0; i < n; i++)
            y[i] = bf16_to_f32(((const uint16_t *)x)[i]);
}

static void cpu_narrow(struct device *d, void *y, const float *x, size_t n)
{
    ((struct cpu *)d)->ops->round(y, device_act(d), x, 1.0f, n);
}

/* ---- products ---- */

struct product {
    const struct ops *ops;
    float *y; size_t ldy;
    enum dtype act; const void *x; size_t ldx, rows;     /* act I16: as quantize writes it */
    /* as quantize_groups writes it, for quantised matrices */
    const void *groups; size_t group_bytes;
    const struct mat *w; size_t n_w; const float *bias; bool add;
    size_t items, place;
    const struct cpu *c;             /* NULL: results are not checked */
};

static size_t product_panels(const struct product *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_w; i++)
        n += mat_panels(&p->w[i]);
    return n;
}

/* Panels [p0, p1) of one matrix, whose outputs begin at column `first`. */
static void product_panels_of(const struct product *p, const struct mat *w, size_t first, size_t p0,
                              size_t p1)
{
    float *y = p->y + first;
    const float *bias = p->bias ? p->bias + first : NULL;
    if (dtype_is_quantised(w->type) && p->groups)
        p->ops->matmul_quantized(y, p->ldy, p->groups, p->group_bytes, p->rows, w, bias, p->add, p0, p1);
    else
        p->ops->matmul(y, p->ldy, p->act, p->x, p->ldx, p->rows, w, bias, p->add, p0, p1);
    for (size_t r = 0; p->c && r < p->rows; r++)
        if (!p->ops->finite(y + r * p->ldy + p0 * PANEL, MIN(p1 * PANEL, w->n) - p0 * PANEL))
            cpu_note(p->c, p->place, r);
}

/* Items are groups of four panels, which keeps tiles wide. Results do not depend on the split. */
static void product_item(void *ctx, size_t i, size_t thread)
{
    const struct product *p = ctx;
    const size_t panels = product_panels(p), fours = (panels + 3) / 4;
    const size_t p0 = i * fours / p->items * 4, p1 = MIN((i + 1) * fours / p->items * 4, panels);
    (void)thread;
    for (size_t m = 0, at = 0, column = 0; m < p->n_w; m++) {
        const size_t here = mat_panels(&p->w[m]), from = MAX(p0, at), to = MIN(p1, at + here);
        if (from < to)
            product_panels_of(p, &p->w[m], column, from - at, to - at);
        at += here;
        column += p->w[m].n;
    }
}

/* A small matrix takes a few microseconds for a single row and is cut once for each thread, because claiming
 * an item and passing on its result cost a cache line between cores. A larger matrix is cut in four for each
 * thread, so that a thread that loses its core delays the others little. */
static void run_product(struct pool *pool, struct product *p)
{
    size_t bytes = 0;
    for (size_t i = 0; i < p->n_w; i++)
        bytes += mat_bytes(&p->w[i]);
    const size_t threads = pool_threads(pool), each = p->rows == 1 && bytes <= SMALL_BYTES ? 1 : 4;
    p->items = threads > 1 ? MIN((product_panels(p) + 3) / 4, each * threads) : 1;
    pool_run(pool, p->items, product_item, p);
}

void pool_product(struct pool *pool, const struct ops *ops, float *y, enum dtype act, const void *x,
                  size_t rows, const struct mat *w, bool add)
{
    struct product p = { .ops = ops, .y = y, .ldy = w->n, .act = act, .x = x, .ldx = w->k, .rows = rows,
                         .w = w, .n_w = 1, .add = add };
    if (!dtype_is_quantised(w->type) || act != DT_BF16) {
        run_product(pool, &p);
        return;
    }
    const size_t k = w->k, row = quantized_groups_bytes(k);
    char *groups = malloc(rows * row);
    float *wide = malloc(k * sizeof *wide);
    assert(groups && wide);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < k; i++)
            wide[i] = bf16_to_f32(((const uint16_t *)x)[r * k + i]);
        ops->quantize_groups(groups + r * row, wide, k);
    }
    p.groups = groups, p.group_bytes = row;
    run_product(pool, &p);
    free(wide);
    free(groups);
}

/* With 8-bit weights. A value that is not finite is reported under some row of the lot: drafts are discarded
 * as a whole. */
static void product_8_bits(struct cpu *c, struct product p, const struct device_product *a)
{
    const enum dtype act = device_act(&c->d);
    const size_t k = a->w->k, row = quantized_row(k);
    assert(k <= c->limits.n_in_max);
    p.act = DT_I16, p.x = c->quantized, p.ldx = row;
    for (size_t r = 0; r < a->n; r += p.rows, p.y += p.rows * a->ldy) {
        p.rows = MIN(a->n - r, (size_t)QUANTIZED_ROWS);
        for (size_t i = 0; i < p.rows; i++)
            c->ops->quantize(c->quantized + i * row, act, (const char *)a->x + (r + i) * k * dtype_size(act),
                             k);
        run_product(c->pool, &p);
    }
}

struct left { const float *x; size_t k, row; bool groups; };

/* Rows of floats as the matrices want them. */
static void left_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct left *p = args;
    for (size_t r = r0; r < r1; r++) {
        char *to = c->left + r * p->row;
        if (p->groups) {
            c->ops->quantize_groups(to, p->x + r * p->k, p->k);
            continue;
        }
        c->ops->round(to, DT_BF16, p->x + r * p->k, 1.0f, p->k);
        if (p->k % 2)                        /* multiplied by +0 */
            ((uint16_t *)(void *)to)[p->k] = 0;
    }
}

/* In a model with quantised weights x is float. Matrices of one kind after the other, the rows in lots. */
static void product_of_floats(struct cpu *c, const struct product *all, const struct device_product *a)
{
    const size_t k = a->w->k, row = left_bytes(k);
    assert(k <= c->limits.n_in_max && c->left_size);
    for (size_t i = 0, column = 0, n; i < all->n_w; i += n) {
        const bool groups = dtype_is_quantised(a->w[i].type);
        struct product p = *all;
        size_t columns = 0;
        for (n = 0; i + n < all->n_w && dtype_is_quantised(a->w[i + n].type) == groups; n++)
            columns += a->w[i + n].n;
        p.w = &a->w[i], p.n_w = n;
        p.y += column, p.bias = p.bias ? p.bias + column : NULL;
        p.groups = groups ? c->left : NULL, p.group_bytes = row;
        p.act = DT_BF16, p.x = c->left, p.ldx = row / sizeof(uint16_t);
        for (size_t r = 0; r < a->n; r += p.rows, p.y += p.rows * a->ldy) {
            p.rows = MIN(a->n - r, c->left_size / left_bytes(c->limits.n_in_max));
            cpu_each_row(c, left_rows, &(struct left){ (const float *)a->x + r * k, k, row, groups }, p.rows);
            run_product(c->pool, &p);
        }
        column += columns;
    }
}

static void cpu_product(struct device *d, const struct device_product *a)
{
    struct cpu *c = (struct cpu *)d;
    struct product p = { .ops = c->ops,
                         .y = a->y,
                         .ldy = a->ldy,
                         .act = device_act(d),
                         .x = a->x,
                         .ldx = a->w->k,
                         .rows = a->n,
                         .w = a->w,
                         .n_w = MAX(a->n_w, (size_t)1),
                         .bias = a->bias,
                         .add = a->add,
                         .place = a->place,
                         .c = a->place == SIZE_MAX ? NULL : c };
    if (a->w->type == DT_I8)
        product_8_bits(c, p, a);
    else if (d->quantised && !d->compute_f32)
        product_of_floats(c, &p, a);
    else
        run_product(c->pool, &p);
}

/* ---- gates and states ---- */

struct gating { char *out; const float *qkv; const struct device_heads *heads; };

static void gate_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct gating *p = args;
    const enum dtype act = device_act(&c->d);
    const size_t n = p->heads->n_heads, dp = p->heads->padded;
    for (size_t r = r0; r < r1; r++)
        for (size_t h = 0; h < n; h++)
            c->ops->gate(p->out + (r * n + h) * dp * dtype_size(act), act,
                         p->qkv + (r * 2 * (n + p->heads->n_kv_heads) + 2 * h + 1) * dp, dp);
}

static void cpu_gate(struct device *d, void *out, const float *qkv, const struct device_heads *heads)
{
    struct cpu *c = (struct cpu *)d;
    cpu_each_row(c, gate_rows, &(struct gating){ out, qkv, heads }, c->rows->n);
}

static void cpu_delta(struct device *d, const struct device_delta *a)
{
    struct cpu *c = (struct cpu *)d;
    struct device_limits have = c->limits;
    assert(!raise_limits(&have, &(struct device_limits){ .delta = *a->shape }));
    delta_run(&(struct delta_run){ c->ops, c->pool, &c->delta, c->rows, device_act(d) }, a);
}

/* ---- open ---- */

static void cpu_close(struct device *d)
{
    struct cpu *c = (struct cpu *)d;
    mem_free(c->mem, c->bytes);
    free(c);
}

void device_quantised(struct device *d, bool quantised)
{
    if (d->host_memory) {
        d->quantised = quantised;
        snprintf(d->numerics, sizeof d->numerics, "cpu-%d-%s%s", NUMERICS_VERSION, kv_type_name(d->kv_type),
                 quantised ? "-q1" : "");
    }
}

int device_cpu_open(struct device **out, const struct ops *ops, struct pool *pool, enum dtype kv_type,
                    char *why, size_t why_size)
{
    struct cpu *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    c->ops = ops;
    c->pool = pool;
    c->d = (struct device){ .kind = "cpu", .kv_type = kv_type, .compute_f32 = kv_type == DT_F32,
                            .host_memory = true,
        .close = cpu_close, .alloc = cpu_alloc, .free = cpu_free, .bytes_free = cpu_bytes_free,
        .upload = cpu_copy, .download = cpu_download, .copy = cpu_copy, .zero = cpu_zero,
        .noise = cpu_noise, .head_dim = cpu_head_dim,
        .mat_type = cpu_mat_type, .mat_size = cpu_mat_size, .mat_put = cpu_mat_put, .begin = cpu_begin,
        .graph_begin = cpu_graph_begin,
        .graph_end = cpu_graph_end, .end = cpu_end, .embed = cpu_embed, .rmsnorm = cpu_rmsnorm,
        .product = cpu_product, .rope = cpu_rope,
        .attend = cpu_attend, .swiglu = cpu_swiglu, .geglu = cpu_geglu, .norm_add = cpu_norm_add,
        .scale = cpu_scale, .softcap = cpu_softcap,
        .experts = cpu_experts, .gate = cpu_gate, .delta = cpu_delta, .gather = cpu_gather,
        .widen = cpu_widen,
        .narrow = cpu_narrow,
        .reserve_bytes = cpu_reserve_bytes, .reserve = cpu_reserve };
    snprintf(c->d.name, sizeof c->d.name, "cpu (%s)", ops->name);
    device_quantised(&c->d, false);
    *out = &c->d;
    return 0;
}
