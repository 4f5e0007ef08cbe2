/* Attention problems for the tests of kernels: random keys, queries and nodes of every type with junk around
 * them, and their outputs. */
#pragma once
#include "tests/reference.h"
#include "tests/test.h"

/* One attention problem with all its memory. Positions 0..n_pos-1 hold keys; n_blocks blocks cover them. */
struct problem {
    struct attn a;
    size_t group, n_pos, n_blocks, n_nodes;
    char *kv, *scratch, *stored;             /* stored: [n_kv][n_pos] rows, from which kv was made */
    void *q;
    float *q_scale;
    size_t *lo, *hi;
    uint32_t *n_node, *node;
};

enum { DIM_MAX = 512 };
static const size_t dims[] = { 16, 64, 80, 96, 128 };
REF enum dtype kind(size_t i) { return (enum dtype[]){ DT_I16, DT_BF16, DT_I8, DT_I4, DT_F32 }[i % 5]; }
REF bool whole(const struct problem *p) { return kv_form(p->a.type).q == DT_I16; }
REF size_t elt(const struct problem *p) { return dtype_size(kv_form(p->a.type).q); }
REF enum dtype out_type(const struct problem *p) { return whole(p) ? DT_BF16 : p->a.type; }
REF size_t row_bytes(const struct problem *p) { return kv_row_bytes(p->a.type, p->a.head_dim); }
REF char *stored_row(const struct problem *p, size_t h, size_t pos)
{
    return p->stored + (h * p->n_pos + pos) * row_bytes(p);
}
REF char *node_row(const struct problem *p, size_t h, size_t s)
{
    return p->scratch + (s * p->a.n_kv_heads + h) * row_bytes(p);
}
/* Element i of a stored row, K then V; the unit of a whole number. */
REF float unit_of(const struct problem *p, const char *row, size_t i)
{
    return ref_unit(row, p->a.type, p->a.head_dim, i);
}
REF double stored_at(const struct problem *p, const char *row, size_t i)
{
    return ref_row_at(row, p->a.type, p->a.head_dim, i);
}
REF double query_at(const struct problem *p, size_t row, size_t i)
{
    if (!whole(p)) return (double)act_get(p->a.type, p->q, row * p->a.head_dim + i);
    return (double)((const int16_t *)p->q)[row * p->a.head_dim + i] * (double)p->q_scale[row];
}
REF void put_query(struct problem *p, size_t row, const float *x)
{
    const size_t d = p->a.head_dim;
    if (whole(p))
        kv_query((int16_t *)p->q + row * d, &p->q_scale[row], x, 1, d);
    for (size_t i = 0; !whole(p) && i < d; i++)
        act_put(p->a.type, p->q, row * d + i, x[i]);
}
REF void make_row(const struct problem *p, char *row, const float *x)
{
    kv_store(row, p->a.type, x, x + p->a.head_dim, p->a.head_dim);
}
REF void put(struct problem *p, size_t h, size_t pos, const void *row)
{
    kv_put(p->kv + h * p->a.head_bytes + pos / KV_BLOCK * p->a.block_bytes, p->a.type, p->a.head_dim,
           pos % KV_BLOCK, row);
}
REF void random_row(const struct problem *p, char *row, struct rng *rng)
{
    float x[2 * DIM_MAX];
    for (size_t i = 0; i < 2 * p->a.head_dim; i++) {
        x[i] = rng_next(rng) % 50 ? rng_normal(rng) : rng_finite(rng);
        x[i] = fabsf(x[i]) < 100 ? x[i] : 1;
    }
    make_row(p, row, x);
}
/* A key that gets most of the weight of query row `q`. */
REF void attractive_row(const struct problem *p, char *row, size_t q, struct rng *rng)
{
    float x[2 * DIM_MAX];
    for (size_t i = 0; i < p->a.head_dim; i++)
        x[i] = 2 * (float)query_at(p, q, i), x[p->a.head_dim + i] = rng_normal(rng);
    make_row(p, row, x);
}
/* Any finite bits: huge, tiny, denormal, zeros of both signs. */
REF void junk_row(const struct problem *p, char *row, struct rng *rng)
{
    const size_t scales = whole(p) ? 8 : 0, bytes = row_bytes(p) - scales;
    for (size_t i = 0; i < bytes; i += elt(p)) {
        uint32_t u = (uint32_t)rng_next(rng);
        if ((u & 0x7f800000) == 0x7f800000)
            u &= 0xff7fffff;
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(row + i, p->a.type != DT_F32 ? (void *)&h : (void *)&u, elt(p));
    }
    for (size_t i = 0; i < scales; i += 4) {
        const float u = ref_float((uint32_t)rng_next(rng) & 0x7effffff);
        memcpy(row + bytes + i, &u, 4);
    }
}
REF void junk_slots(struct problem *p, size_t h, size_t from, size_t to, struct rng *rng)
{
    char *row = must_alloc(2 * p->a.head_dim * 4);
    for (size_t pos = from; pos < to; pos++) {
        junk_row(p, row, rng);
        put(p, h, pos, row);
    }
    free(row);
}

REF void problem_open(struct problem *p, enum dtype t, size_t m, size_t n_kv, size_t group, size_t d,
                      size_t n_pos, size_t n_nodes, struct rng *rng)
{
    *p = (struct problem){ .group = group, .n_pos = n_pos, .n_nodes = n_nodes,
                           .n_blocks = (n_pos + n_nodes) / KV_BLOCK + 2 };
    p->a = (struct attn){ .type = t, .m = m, .n_heads = n_kv * group, .n_kv_heads = n_kv, .head_dim = d };
    p->a.block_bytes = kv_block_bytes(t, d);
    p->a.head_bytes = p->a.block_bytes * p->n_blocks;
    p->kv = must_alloc(n_kv * p->a.head_bytes);
    p->stored = must_alloc(n_kv * n_pos * 2 * d * 4);
    p->scratch = must_alloc((n_nodes + 1) * n_kv * 2 * d * 4);
    p->q = must_alloc(n_kv * m * group * d * 4);
    p->q_scale = must_alloc(n_kv * m * group * sizeof(float));
    p->lo = must_alloc(m * sizeof *p->lo), p->hi = must_alloc(m * sizeof *p->hi);
    p->n_node = must_alloc(m * sizeof *p->n_node);
    p->node = must_alloc(m * (n_nodes + 1) * sizeof *p->node);
    for (size_t h = 0; h < n_kv; h++) {
        for (size_t pos = 0; pos < n_pos; pos++) {
            random_row(p, stored_row(p, h, pos), rng);
            put(p, h, pos, stored_row(p, h, pos));
        }
        junk_slots(p, h, n_pos, p->n_blocks * KV_BLOCK, rng);
        for (size_t s = 0; s < n_nodes; s++)
            random_row(p, node_row(p, h, s), rng);
    }
    /* already times log2(e)/sqrt(d): scores of a few units */
    for (size_t row = 0; row < n_kv * m * group; row++) {
        float x[DIM_MAX];
        for (size_t i = 0; i < d; i++)
            x[i] = rng_normal(rng) * 3 / sqrtf((float)d);
        put_query(p, row, x);
    }
    p->a.q = p->q, p->a.q_scale = p->q_scale, p->a.kv = p->kv, p->a.lo = p->lo, p->a.hi = p->hi,
    p->a.scratch = p->scratch;
}
REF void problem_close(struct problem *p)
{
    free(p->kv), free(p->stored), free(p->scratch), free(p->q), free(p->q_scale), free(p->lo), free(p->hi),
        free(p->n_node), free(p->node);
}
REF void use_tree(struct problem *p)
{
    p->a.n_node = p->n_node, p->a.node = p->node, p->a.node_max = p->n_nodes + 1;
}

/* Computes the problem in steps of `step` rows. Returns act [m][n_heads*d], to be freed with guard_free. */
REF void *attend(const struct ops *o, const struct problem *p, size_t step)
{
    struct attn a = p->a;
    size_t first = (size_t)-1, last = 0, st = ATTN_STATE(a.head_dim),
           out_bytes = a.m * a.n_heads * a.head_dim * elt(p);
    for (size_t r = 0; r < a.m; r++) {
        size_t end = a.hi[r] + (a.n_node ? a.n_node[r] : 0);
        first = a.lo[r] / KV_CHUNK < first ? a.lo[r] / KV_CHUNK : first;
        last = (end - 1) / KV_CHUNK > last ? (end - 1) / KV_CHUNK : last;
    }
    a.chunk0 = first, a.n_chunks = last - first + 1;
    size_t part_bytes = a.n_chunks * a.n_heads * a.m * st * sizeof(float),
           work_bytes = attn_work_bytes(a.type, a.head_dim);
    a.part = guard_alloc(part_bytes);
    void *work = guard_alloc(work_bytes), *out = guard_alloc(out_bytes);
    for (size_t h = a.n_kv_heads; h-- > 0;)                /* any order */
        for (size_t c = last + 1; c-- > first;)
            for (size_t r = 0; r < a.m; r += step)
                o->attend(&a, h, c, r, r + step < a.m ? r + step : a.m, work);
    for (size_t r = 0; r < a.m; r += step)
        o->attend_merge(&a, out, r, r + step < a.m ? r + step : a.m);
    CHECK(guard_intact(a.part, part_bytes) && guard_intact(work, work_bytes) && guard_intact(out, out_bytes),
          "%s: bytes around a buffer written", o->name);
    guard_free(a.part), guard_free(work);
    return out;
}
/* The same problem with row r alone; q is gathered. */
REF void *attend_alone(const struct ops *o, const struct problem *p, size_t r)
{
    struct problem one = *p;
    size_t row = p->group * p->a.head_dim * elt(p);
    char *q = must_alloc(p->a.n_kv_heads * row);
    float *scale = must_alloc(p->a.n_heads * sizeof *scale);
    for (size_t h = 0; h < p->a.n_kv_heads; h++) {
        memcpy(q + h * row, (const char *)p->q + (h * p->a.m + r) * row, row);
        memcpy(scale + h * p->group, p->q_scale + (h * p->a.m + r) * p->group, p->group * sizeof *scale);
    }
    one.a.m = 1, one.a.q = q, one.a.q_scale = scale, one.a.lo = p->lo + r, one.a.hi = p->hi + r;
    if (p->a.n_node)
        one.a.n_node = p->n_node + r, one.a.node = p->node + r * p->a.node_max;
    void *out = attend(o, &one, 1);
    free(q), free(scale);
    return out;
}
REF bool same_row(const struct problem *p, const void *all, size_t r, const void *alone)
{
    size_t bytes = p->a.n_heads * p->a.head_dim * elt(p);
    return !memcmp((const char *)all + r * bytes, alone, bytes);
}
