/* Attention: every twin equals plain C bit for bit, a row is a row (any company, any split of the work), a tree
 * equals the chain it stands for, junk in invisible slots cannot be seen, and plain C is near a double-precision
 * reference with the same roundings.
 *
 * Bound of the reference. It keeps the roundings of p to act (where p weighs V; the sum of weights takes p as it is) and
 * of the result to act, everything else is exact.
 * A score is d fused steps: |ds| <= d * 2^-24 * sum|q k|, and half an ulp more for s - m'. So a weight moves by
 * dp <= p * (ln2 * 2 ds + 2^-21) before it is rounded; where that can move it over a rounding border of bf16 (both
 * neighbours are tried) it moves by the whole step. Sums over n keys add n * 2^-24 of sum p|v| and of sum p, and
 * each chunk 4 * 2^-24. The quotient moves by (d_num + |out| d_den) / den. In int16 q, K and V are what their whole numbers stand for,
 * a score moves by four roundings, and a weight by half a unit of its block besides. */
#include "tests/reference.h"
#include "tests/test.h"

/* One attention problem with everything it points to. Positions 0..n_pos-1 hold keys; n_blocks cover them. */
struct problem {
    struct attn a;
    size_t group, n_pos, n_blocks, n_nodes;
    char *kv, *scratch, *stored;             /* stored: [n_kv][n_pos] rows, the truth behind kv */
    void *q;
    float *q_scale;
    size_t *lo, *hi;
    uint32_t *n_node, *node;
};

enum { DIM_MAX = 512 };
static enum dtype kind(size_t i) { return (enum dtype[]){ DT_I16, DT_BF16, DT_I16, DT_F32 }[i % 4]; }
static size_t elt(const struct problem *p) { return dtype_size(p->a.type); }
static enum dtype out_type(const struct problem *p) { return p->a.type == DT_I16 ? DT_BF16 : p->a.type; }
static size_t row_bytes(const struct problem *p) { return kv_row_bytes(p->a.type, p->a.head_dim); }
static char *stored_row(const struct problem *p, size_t h, size_t pos) { return p->stored + (h * p->n_pos + pos) * row_bytes(p); }
static char *node_row(const struct problem *p, size_t h, size_t s) { return p->scratch + (s * p->a.n_kv_heads + h) * row_bytes(p); }
/* Element i of a stored row, K then V; its unit where it is a whole number. */
static float unit_of(const struct problem *p, const char *row, size_t i)
{
    float u = 1;
    if (p->a.type == DT_I16) memcpy(&u, row + 4 * p->a.head_dim + (i < p->a.head_dim ? 0 : 4), 4);
    return u;
}
static double stored_at(const struct problem *p, const char *row, size_t i)
{
    int16_t n;
    if (p->a.type != DT_I16) return (double)act_get(p->a.type, row, i);
    memcpy(&n, row + 2 * i, 2);
    return (double)n * (double)unit_of(p, row, i);
}
static double query_at(const struct problem *p, size_t row, size_t i)
{
    if (p->a.type != DT_I16) return (double)act_get(p->a.type, p->q, row * p->a.head_dim + i);
    return (double)((const int16_t *)p->q)[row * p->a.head_dim + i] * (double)p->q_scale[row];
}
static void put_query(struct problem *p, size_t row, const float *x)
{
    const size_t d = p->a.head_dim;
    if (p->a.type == DT_I16)
        kv_query((int16_t *)p->q + row * d, &p->q_scale[row], x, 1, d);
    for (size_t i = 0; p->a.type != DT_I16 && i < d; i++)
        act_put(p->a.type, p->q, row * d + i, x[i]);
}
static void make_row(const struct problem *p, char *row, const float *x)
{
    kv_store(row, p->a.type, x, x + p->a.head_dim, p->a.head_dim);
}
static void put(struct problem *p, size_t h, size_t pos, const void *row)
{
    kv_put(p->kv + h * p->a.head_bytes + pos / KV_BLOCK * p->a.block_bytes, p->a.type, p->a.head_dim, pos % KV_BLOCK, row);
}
static void random_row(const struct problem *p, char *row, struct rng *rng)
{
    float x[2 * DIM_MAX];
    for (size_t i = 0; i < 2 * p->a.head_dim; i++) {
        x[i] = rng_next(rng) % 50 ? rng_normal(rng) : rng_finite(rng);
        x[i] = fabsf(x[i]) < 100 ? x[i] : 1;
    }
    make_row(p, row, x);
}
/* A key that query row `q` looks at above all. */
static void looked_at_row(const struct problem *p, char *row, size_t q, struct rng *rng)
{
    float x[2 * DIM_MAX];
    for (size_t i = 0; i < p->a.head_dim; i++)
        x[i] = 2 * (float)query_at(p, q, i), x[p->a.head_dim + i] = rng_normal(rng);
    make_row(p, row, x);
}
/* Any finite bits: huge, tiny, denormal, both zeros. */
static void junk_row(const struct problem *p, char *row, struct rng *rng)
{
    for (size_t i = 0; i < 2 * p->a.head_dim; i++) {
        uint32_t u = (uint32_t)rng_next(rng);
        if ((u & 0x7f800000) == 0x7f800000)
            u &= 0xff7fffff;
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(row + i * elt(p), p->a.type != DT_F32 ? (void *)&h : (void *)&u, elt(p));
    }
    for (size_t i = 0; i < 2 && p->a.type == DT_I16; i++) {
        const float u = ref_float((uint32_t)rng_next(rng) & 0x7effffff);
        memcpy(row + 4 * p->a.head_dim + 4 * i, &u, 4);
    }
}
static void junk_slots(struct problem *p, size_t h, size_t from, size_t to, struct rng *rng)
{
    char *row = must_alloc(2 * p->a.head_dim * 4);
    for (size_t pos = from; pos < to; pos++) {
        junk_row(p, row, rng);
        put(p, h, pos, row);
    }
    free(row);
}

static void problem_open(struct problem *p, enum dtype t, size_t m, size_t n_kv, size_t group, size_t d, size_t n_pos, size_t n_nodes,
                         struct rng *rng)
{
    *p = (struct problem){ .group = group, .n_pos = n_pos, .n_nodes = n_nodes, .n_blocks = (n_pos + n_nodes) / KV_BLOCK + 2 };
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
    for (size_t row = 0; row < n_kv * m * group; row++) {      /* already times log2(e)/sqrt(d): scores of a few units */
        float x[DIM_MAX];
        for (size_t i = 0; i < d; i++)
            x[i] = rng_normal(rng) * 3 / sqrtf((float)d);
        put_query(p, row, x);
    }
    p->a.q = p->q, p->a.q_scale = p->q_scale, p->a.kv = p->kv, p->a.lo = p->lo, p->a.hi = p->hi, p->a.scratch = p->scratch;
}
static void problem_close(struct problem *p)
{
    free(p->kv), free(p->stored), free(p->scratch), free(p->q), free(p->q_scale), free(p->lo), free(p->hi), free(p->n_node), free(p->node);
}
static void use_tree(struct problem *p) { p->a.n_node = p->n_node, p->a.node = p->node, p->a.node_max = p->n_nodes + 1; }

/* Run it; rows are worked on `step` at a time. Result act [m][n_heads*d], free with guard_free. */
static void *attend(const struct ops *o, const struct problem *p, size_t step)
{
    struct attn a = p->a;
    size_t first = (size_t)-1, last = 0, st = ATTN_STATE(a.head_dim), out_bytes = a.m * a.n_heads * a.head_dim * elt(p);
    for (size_t r = 0; r < a.m; r++) {
        size_t end = a.hi[r] + (a.n_node ? a.n_node[r] : 0);
        first = a.lo[r] / KV_CHUNK < first ? a.lo[r] / KV_CHUNK : first;
        last = (end - 1) / KV_CHUNK > last ? (end - 1) / KV_CHUNK : last;
    }
    a.chunk0 = first, a.n_chunks = last - first + 1;
    size_t part_bytes = a.n_chunks * a.n_heads * a.m * st * sizeof(float), work_bytes = attn_work_bytes(a.type, a.head_dim);
    a.part = guard_alloc(part_bytes);
    void *work = guard_alloc(work_bytes), *out = guard_alloc(out_bytes);
    for (size_t h = a.n_kv_heads; h-- > 0;)                /* any order */
        for (size_t c = last + 1; c-- > first;)
            for (size_t r = 0; r < a.m; r += step)
                o->attend(&a, h, c, r, r + step < a.m ? r + step : a.m, work);
    for (size_t r = 0; r < a.m; r += step)
        o->attend_merge(&a, out, r, r + step < a.m ? r + step : a.m);
    CHECK(guard_intact(a.part, part_bytes) && guard_intact(work, work_bytes) && guard_intact(out, out_bytes), "%s: bytes around a buffer written", o->name);
    guard_free(a.part), guard_free(work);
    return out;
}
/* The same problem with only row r in it; q is gathered. */
static void *attend_alone(const struct ops *o, const struct problem *p, size_t r)
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
static bool same_row(const struct problem *p, const void *all, size_t r, const void *alone)
{
    size_t bytes = p->a.n_heads * p->a.head_dim * elt(p);
    return !memcmp((const char *)all + r * bytes, alone, bytes);
}

/* ---- twins, rows, splits ---- */

static void describe(const struct problem *p, const struct ops *o, const char *what)
{
    printf("    %s: %s: type %d m %zu kv heads %zu group %zu head_dim %zu positions %zu nodes %zu\n", o->name, what, p->a.type, p->a.m,
           p->a.n_kv_heads, p->group, p->a.head_dim, p->n_pos, p->n_nodes);
}
/* Everything about one problem that must not change a bit. `rows`: how many rows are also computed alone. */
static void invariants(struct problem *p, size_t rows, struct rng *rng)
{
    size_t n = p->a.m * p->a.n_heads * p->a.head_dim;
    void *want = attend(ops_all[0], p, p->a.m);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(act_get(out_type(p), want, i))) {
            CHECK(false, "output %zu is not finite", i);
            describe(p, ops_all[0], "not finite");
            break;
        }
    FOR_TWINS(o) {
        static const size_t steps[] = { 0, 1, 3, 8, 17 };
        for (size_t s = 0; s < 5; s++) {
            if (s && steps[s] >= p->a.m)
                break;
            void *got = attend(o, p, s ? steps[s] : p->a.m);
            bool equal = act_differ(out_type(p), want, got, n) == n;
            CHECK(equal, "step %zu", s ? steps[s] : p->a.m);
            if (!equal)
                describe(p, o, "differs from plain C");
            guard_free(got);
        }
        for (size_t i = 0; i < rows; i++) {
            size_t r = i < p->a.m ? (i == 1 ? p->a.m - 1 : i == 0 ? 0 : rng_below(rng, p->a.m)) : 0;
            void *alone = attend_alone(o, p, r);
            CHECK(same_row(p, want, r, alone), "row %zu", r);
            if (!same_row(p, want, r, alone))
                describe(p, o, "row alone differs");
            guard_free(alone);
        }
    }
    guard_free(want);
}

static const size_t dims[] = { 16, 64, 80, 96, 128 }, groups[] = { 1, 2, 4, 7, 8 };

static void rows_twins_and_splits_agree(void)
{
    static const size_t ms[] = { 1, 2, 3, 7, 16, 31, 64 };
    struct rng rng = { 21 };
    for (size_t i = 0; i < 35; i++) {
        struct problem p;
        size_t m = ms[i % 7], d = dims[i % 5], g = groups[(i / 2) % 5], n = m + rng_below(&rng, 400 / (1 + g * d / 256));
        problem_open(&p, kind(i), m, 1 + i % 3, g, d, n, 0, &rng);
        size_t window = i % 3 == 1 ? 1 + rng_below(&rng, 100) : (size_t)-1;
        for (size_t r = 0; r < m; r++) {                   /* as a pass over m new rows at the end */
            p.hi[r] = n - m + r + 1;
            p.lo[r] = p.hi[r] > window ? p.hi[r] - window : 0;
        }
        invariants(&p, 3, &rng);
        problem_close(&p);
    }
}
static void a_pass_of_256_rows(void)
{
    struct rng rng = { 22 };
    for (size_t t = 0; t < 4; t++) {
        struct problem p;
        problem_open(&p, kind(t), 256, 2, 2, 16, 300, 0, &rng);
        for (size_t r = 0; r < 256; r++)
            p.hi[r] = 45 + r, p.lo[r] = t && r > 30 ? r - 30 : 0;
        invariants(&p, 6, &rng);
        problem_close(&p);
    }
}
/* Rows that see quite different parts, in no order. */
static void ranges_of_any_kind(void)
{
    struct rng rng = { 23 };
    for (size_t k = 0; k < 12; k++) {
        struct problem p;
        problem_open(&p, kind(k), 9, 2, 1 + k % 3, 32, 700, 0, &rng);
        for (size_t r = 0; r < 9; r++) {
            p.hi[r] = r % 4 == 0 ? KV_BLOCK * (1 + rng_below(&rng, 10)) : 1 + rng_below(&rng, 700);
            p.lo[r] = rng_below(&rng, p.hi[r]);
            if (r % 3 == 0) p.lo[r] = p.lo[r] / KV_BLOCK * KV_BLOCK;
        }
        invariants(&p, 9, &rng);
        problem_close(&p);
    }
}
static void chunk_borders(void)
{
    static const size_t his[] = { 2047, 2048, 2049, 4095, 4096, 4097, 2111, 2112 };
    struct rng rng = { 24 };
    for (size_t k = 0; k < 8; k++) {
        struct problem p;
        problem_open(&p, kind(k), 8, 1, 2, 16, 4200, 0, &rng);
        for (size_t r = 0; r < 8; r++) {
            p.hi[r] = his[r];
            p.lo[r] = k < 4 ? 0 : r % 2 ? his[r] - 1 - rng_below(&rng, 60) : his[r] > 2100 ? 2047 + r % 3 : 2046;
        }
        invariants(&p, 8, &rng);
        problem_close(&p);
    }
}

/* ---- junk ---- */

static void junk_cannot_be_seen(void)
{
    struct rng rng = { 25 };
    for (size_t k = 0; k < 8; k++) {
        struct problem p;
        problem_open(&p, kind(k), 5, 2, 2, 48, 500, 0, &rng);
        size_t lo = 70 + rng_below(&rng, 200), hi = lo + 1 + rng_below(&rng, 220);
        for (size_t r = 0; r < 5; r++)
            p.lo[r] = lo + (r == 3), p.hi[r] = hi + r;
        size_t n = 5 * p.a.n_heads * p.a.head_dim;
        FOR_TWINS(o) {
            void *before = attend(o, &p, 5);
            for (int again = 0; again < 3; again++) {
                for (size_t h = 0; h < 2; h++) {
                    junk_slots(&p, h, 0, lo, &rng);
                    junk_slots(&p, h, hi + 4, p.n_blocks * KV_BLOCK, &rng);
                }
                void *after = attend(o, &p, 5);
                CHECK(act_differ(out_type(&p), before, after, n) == n, "%s", o->name);
                guard_free(after);
            }
            junk_slots(&p, 1, hi - 1, hi, &rng);           /* control: a visible slot */
            void *after = attend(o, &p, 5);
            CHECK(act_differ(out_type(&p), before, after, n) < n, "%s: a visible key does not matter", o->name);
            guard_free(before), guard_free(after);
            put(&p, 1, hi - 1, stored_row(&p, 1, hi - 1));
        }
        problem_close(&p);
    }
}
/* A NaN or an infinity in a visible key must reach the output: the check of logits relies on it. */
static void not_finite_is_not_lost(void)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    struct rng rng = { 26 };
    for (size_t t = 1; t < 4; t++)
        for (size_t where = 0; where < 70; where += 23)
            for (int b = 0; b < 3; b++)
                for (size_t part = 0; part < 2; part++) {  /* in K, in V */
                    struct problem p;
                    problem_open(&p, kind(t), 2, 1, 2, 16, 70, 0, &rng);
                    p.hi[0] = p.hi[1] = 70;
                    float x[32], half[16];
                    for (size_t i = 0; i < 32; i++)
                        x[i] = i == part * 16 + 5 ? bad[b] : (float)stored_at(&p, stored_row(&p, 0, where), i);
                    make_row(&p, stored_row(&p, 0, where), x);
                    put(&p, 0, where, stored_row(&p, 0, where));
                    for (size_t i = 0; i < 16; i++)        /* every score gets its share */
                        half[i] = 0.5f;
                    for (size_t i = 0; i < 4; i++)
                        put_query(&p, i, half);
                    FOR_TWINS(o) {
                        void *out = attend(o, &p, 2);
                        size_t finite = 0;
                        for (size_t i = 5; i < 4 * 16; i += 16)
                            finite += isfinite(act_get(out_type(&p), out, i)) != 0;
                        /* a score of -inf is a weight of +0: only that may pass, from K */
                        CHECK(finite == 0 || (part == 0 && b == 2 && p.a.type != DT_I16), "%s: %g in %s %zu: %zu outputs finite", o->name, (double)bad[b], part ? "V" : "K", where, finite);
                        guard_free(out);
                    }
                    problem_close(&p);
                }
}

/* A weighted value that rounds up to FLT_MIN when it may be denormal, and stays below it otherwise: it is tiny. Two keys
 * of score 0 whose values sum to 2^-100 (1 - 2^-24), then in the next block one of score 26 and value 0. */
static void tiny_values_are_flushed(void)
{
    struct rng rng = { 33 };
    struct problem p;
    problem_open(&p, DT_BF16, 1, 1, 1, 16, 65, 0, &rng);
    for (size_t i = 0; i < 16; i++)
        act_put(DT_BF16, p.q, i, i == 0);
    for (size_t pos = 62; pos < 65; pos++) {
        char *row = stored_row(&p, 0, pos);
        for (size_t i = 0; i < 32; i++)
            act_put(DT_BF16, row, i, i == 0 && pos == 64 ? 26 : i < 16 || pos == 64 ? 0 : pos == 62 ? 0x1p-100f : -0x1p-124f);
        put(&p, 0, pos, row);
    }
    p.lo[0] = 62, p.hi[0] = 65;
    FOR_TWINS(o) {
        void *out = attend(o, &p, 1);
        for (size_t i = 0; i < 16; i++)
            CHECK(ref_bits(act_get(DT_BF16, out, i)) == 0, "%s: %a", o->name, (double)act_get(DT_BF16, out, i));
        guard_free(out);
    }
    problem_close(&p);
}

/* Sums as large as they become in int16, of either sign, and rows of nothing, of very little and of as much as is finite. */
static void int16_at_its_bounds(void)
{
    enum { D = 512, KEYS = 70 };
    static const float sizes[] = { 1, -1, 0, 0x1p-140f, 1e34f };
    struct rng rng = { 45 };
    for (size_t i = 0; i < 5; i++) {
        struct problem p;
        float x[2 * D];
        problem_open(&p, DT_I16, 1, 1, 1, D, KEYS, 0, &rng);
        for (size_t pos = 0; pos < KEYS; pos++) {
            for (size_t k = 0; k < D; k++)
                x[k] = k % 2 ? -1 : 1, x[D + k] = sizes[i];
            make_row(&p, stored_row(&p, 0, pos), x);
            put(&p, 0, pos, stored_row(&p, 0, pos));
        }
        put_query(&p, 0, x);
        int64_t sum = 0;
        for (size_t k = 0; k < D; k++)
            sum += (int64_t)((const int16_t *)p.q)[k] * ((const int16_t *)(const void *)stored_row(&p, 0, 0))[k];
        CHECK(sum > INT64_C(2140000000) && sum <= INT32_MAX, "a sum of %lld", (long long)sum);
        p.hi[0] = KEYS;
        FOR_TWINS(o) {
            void *out = attend(o, &p, 1);
            for (size_t k = 0; k < D; k++) {
                const float got = act_get(DT_BF16, out, k), want = fabsf(sizes[i]) < 0x1p-126f ? 0 : sizes[i];
                CHECK(fabsf(got - want) <= fabsf(want) / 128, "%s: values of %g: [%zu] is %g", o->name, (double)sizes[i], k, (double)got);
                if (test_failed_) break;
            }
            guard_free(out);
        }
        problem_close(&p);
    }
}

/* ---- trees ---- */

/* Rows of a tree: row r is node r, ancestors by parent[]; base: committed length; window as in the model. */
static void tree_rows(struct problem *p, const int *parent, size_t base, size_t window)
{
    use_tree(p);
    for (size_t r = 0; r < p->a.m; r++) {
        size_t depth = 0, list[512];
        for (int i = (int)r; i >= 0; i = parent[i])
            list[depth++] = (size_t)i;
        for (size_t i = 0; i < depth; i++)
            p->node[r * p->a.node_max + i] = (uint32_t)list[depth - 1 - i];
        p->n_node[r] = (uint32_t)depth;
        p->hi[r] = base;
        p->lo[r] = base + depth > window ? base + depth - window : 0;
    }
}
/* Each tree row equals the row of a plain cache in which its ancestors were committed. */
static void tree_equals_chains(struct problem *p, size_t base, size_t rows, struct rng *rng)
{
    size_t d2 = row_bytes(p), st = p->a.m;
    for (size_t i = 0; i < rows; i++) {
        size_t r = i == 0 ? st - 1 : rng_below(rng, st), depth = p->n_node[r];
        struct problem chain = *p;
        size_t hi = base + depth, lo = p->lo[r];
        chain.kv = must_alloc(p->a.n_kv_heads * p->a.head_bytes);
        memcpy(chain.kv, p->kv, p->a.n_kv_heads * p->a.head_bytes);
        chain.a.kv = chain.kv, chain.a.n_node = NULL;
        for (size_t h = 0; h < p->a.n_kv_heads; h++) {
            for (size_t k = 0; k < depth; k++)
                put(&chain, h, base + k, node_row(p, h, p->node[r * p->a.node_max + k]));
            junk_slots(&chain, h, hi, p->n_blocks * KV_BLOCK, rng);
        }
        chain.lo = must_alloc(st * sizeof lo), chain.hi = must_alloc(st * sizeof hi);
        for (size_t k = 0; k < st; k++)
            chain.lo[k] = lo, chain.hi[k] = hi;
        chain.a.lo = chain.lo, chain.a.hi = chain.hi;
        void *want = attend_alone(ops_all[0], &chain, r);
        FOR_TWINS(o) {
            void *got = attend_alone(o, p, r);
            bool equal = !memcmp(want, got, p->a.n_heads * p->a.head_dim * elt(p));
            CHECK(equal, "%s: base %zu depth %zu lo %zu row %zu", o->name, base, depth, lo, r);
            guard_free(got);
        }
        /* control: another ancestor at the far end must be noticed (if the window shows it) */
        size_t far = lo > base ? lo - base : 0;
        char *row = node_row(p, 0, p->node[r * p->a.node_max + far]), *kept = must_alloc(d2);
        memcpy(kept, row, d2);
        looked_at_row(p, row, r * p->group, rng);
        void *other = attend_alone(ops_all[0], p, r);
        CHECK(memcmp(want, other, p->a.n_heads * p->a.head_dim * elt(p)), "base %zu depth %zu: an ancestor does not matter", base, depth);
        memcpy(row, kept, d2);
        free(kept);
        guard_free(other), guard_free(want);
        free(chain.kv), free(chain.lo), free(chain.hi);
    }
}
static void tree_at(enum dtype t, size_t base, size_t m, int shape, size_t window, size_t group, size_t d, struct rng *rng)
{
    struct problem p;
    int parent[512];
    problem_open(&p, t, m, 2, group, d, base + 1, m, rng);
    for (size_t i = 0; i < m; i++)
        parent[i] = shape == 0 ? (int)i - 1 : shape == 1 ? (int)i - 1 - (int)rng_below(rng, i < 4 ? 1 + i : 4) : i ? (int)rng_below(rng, i) : -1;
    for (size_t i = 0; i < m; i++)
        if (parent[i] < -1) parent[i] = -1;
    tree_rows(&p, parent, base, window);
    for (size_t h = 0; h < 2; h++)
        junk_slots(&p, h, base, p.n_blocks * KV_BLOCK, rng);
    invariants(&p, 4, rng);
    tree_equals_chains(&p, base, 4, rng);
    problem_close(&p);
}
static void trees_cross_blocks(void)
{
    static const size_t bases[] = { 0, 1, 30, 62, 63, 64, 65, 127, 128 };
    struct rng rng = { 27 };
    for (size_t i = 0; i < 9; i++) {
        tree_at(DT_I16, bases[i], 5, 0, (size_t)-1, 2, 32, &rng);
        tree_at(kind(i), bases[i], 70, 1, (size_t)-1, 1, 16, &rng);     /* one and two boundaries */
        tree_at(i & 1 ? DT_I16 : DT_BF16, bases[i], 40, 2, (size_t)-1, 4, 64, &rng);
    }
    tree_at(DT_I16, 63, 140, 0, (size_t)-1, 1, 16, &rng);      /* three blocks, the first slot of the last one and beyond */
    tree_at(DT_F32, 10, 200, 0, (size_t)-1, 1, 16, &rng);
}
static void trees_cross_chunks(void)
{
    struct rng rng = { 28 };
    static const size_t bases[] = { 2046, 2047, 2048, 1990, 4095 };
    for (size_t i = 0; i < 5; i++)
        tree_at(kind(i), bases[i], i == 3 ? 80 : 6, i & 1, (size_t)-1, 2, 16, &rng);
}
static void trees_under_a_window(void)
{
    struct rng rng = { 29 };
    static const size_t windows[] = { 1, 3, 20, 64, 65, 100 }, bases[] = { 0, 5, 64, 100, 2047, 2050 };
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 6; k++)
            tree_at(kind(i + k), bases[k], 12, k & 1, windows[i], 2, 16, &rng);
    tree_at(DT_I16, 50, 90, 0, 30, 1, 16, &rng);
}
/* Rows with and without nodes in one pass. */
static void trees_and_plain_rows_mix(void)
{
    struct rng rng = { 30 };
    struct problem p;
    int parent[9] = { -1, 0, 1, -1, 3, 2, 5, 6, 7 };
    problem_open(&p, DT_I16, 9, 2, 2, 32, 130, 9, &rng);
    tree_rows(&p, parent, 125, (size_t)-1);
    for (size_t r = 0; r < 9; r += 2)
        p.n_node[r] = 0, p.hi[r] = 100 + r;
    invariants(&p, 9, &rng);
    problem_close(&p);
}

/* ---- importance ---- */

/* q.k of query head j of KV head h of row 0, as the scores are defined. */
static float defined_score(const struct problem *p, size_t h, size_t j, size_t pos)
{
    const size_t d = p->a.head_dim;
    const char *q = (const char *)p->q + (h * p->a.m * p->group + j) * d * elt(p), *k = stored_row(p, h, pos);
    float acc = 0;
    int64_t sum = 0;
    for (size_t i = 0; p->a.type == DT_I16 && i < d; i++)
        sum += (int64_t)((const int16_t *)(const void *)q)[i] * ((const int16_t *)(const void *)k)[i];
    if (p->a.type == DT_I16)
        return (float)sum * unit_of(p, k, 0) * p->q_scale[h * p->a.m * p->group + j];
    for (size_t i = 0; i < d; i += 2) {
        uint32_t x, y;
        memcpy(&x, q + i * 2, 4), memcpy(&y, k + i * 2, 4);
        if (p->a.type == DT_BF16)
            acc = ref_dot_pair(acc, x, y);
        else
            acc = fmaf(act_get(DT_F32, q, i + 1), act_get(DT_F32, k, i + 1), fmaf(act_get(DT_F32, q, i), act_get(DT_F32, k, i), acc));
    }
    return acc;
}
/* Of row 0 alone, bit for bit, whatever the company and the cut of the work; nothing else is written, the output stays. */
static void check_importance(struct problem *p, struct rng *rng)
{
    const size_t step = p->n_blocks * KV_BLOCK + 5, bytes = p->a.n_kv_heads * step * sizeof(float);
    const size_t from = p->lo[0] / KV_BLOCK * KV_BLOCK, to = p->hi[0];
    float *want = must_alloc(bytes);
    memset(want, 0x7f, bytes);
    for (size_t h = 0; h < p->a.n_kv_heads; h++)
        for (size_t pos = from; pos < to; pos++) {
            float sum = defined_score(p, h, 0, pos);
            for (size_t j = 1; j < p->group; j++)
                sum += defined_score(p, h, j, pos);
            want[h * step + pos] = sum;
        }
    FOR_TWINS(o) {
        const size_t steps[] = { p->a.m, 1, 1 + rng_below(rng, p->a.m) };
        void *plain = attend(o, p, p->a.m);
        for (size_t i = 0; i < 3; i++) {
            float *got = guard_alloc(bytes);
            memset(got, 0x7f, bytes);
            p->a.importance = got, p->a.importance_step = step;
            void *out = attend(o, p, steps[i]);
            p->a.importance = NULL;
            CHECK(!memcmp(got, want, bytes) && guard_intact(got, bytes), "%s: rows by %zu", o->name, steps[i]);
            if (memcmp(got, want, bytes))
                describe(p, o, "importance");
            CHECK(!memcmp(out, plain, p->a.m * p->a.n_heads * p->a.head_dim * elt(p)), "%s: the output changed", o->name);
            guard_free(out), guard_free(got);
        }
        guard_free(plain);
    }
    free(want);
}
static void importance_is_that_of_the_first_row(void)
{
    struct rng rng = { 41 };
    for (size_t i = 0; i < 36; i++) {
        static const size_t ms[] = { 1, 2, 5, 12, 33, 64 }, his[] = { 1, 63, 64, 65, 128, 200, 333, 2048, 2100 };
        struct problem p;
        int parent[64];
        const size_t m = i % 9 > 6 ? 3 : ms[i % 6], hi = his[i % 9], window = i % 4 == 1 ? 1 + rng_below(&rng, 150) : (size_t)-1;
        problem_open(&p, kind(i / 2), m, 1 + i % 3, groups[i / 2 % 5], dims[i / 3 % 3], hi + m, m, &rng);
        if (i % 2) {                                       /* a tree: the last block is built for its row */
            for (size_t r = 0; r < m; r++) parent[r] = r ? (int)rng_below(&rng, r) : -1;
            tree_rows(&p, parent, hi, window);
        } else {
            for (size_t r = 0; r < m; r++) p.hi[r] = hi + r, p.lo[r] = p.hi[r] > window ? p.hi[r] - window : 0;
        }
        check_importance(&p, &rng);
        problem_close(&p);
    }
}

/* ---- bias ---- */

/* Twins, rows and splits agree with a bias on every slot, trees equal their chains, and what `importance` takes is without it. */
static void twins_agree_on_a_bias(void)
{
    struct rng rng = { 43 };
    for (size_t i = 0; i < 24; i++) {
        static const size_t ms[] = { 1, 2, 5, 12, 33 }, his[] = { 1, 63, 64, 65, 200, 2048, 2100 };
        struct problem p;
        int parent[64];
        const size_t m = i % 7 > 4 ? 3 : ms[i % 5], hi = his[i % 7];
        problem_open(&p, kind(i / 2), m, 1 + i % 3, groups[i / 2 % 5], dims[i / 3 % 3], hi + m, m, &rng);
        float *bias = must_alloc(p.n_blocks * KV_BLOCK * sizeof *bias);
        for (size_t s = 0; s < p.n_blocks * KV_BLOCK; s++) bias[s] = s % 3 ? (float)(rng_next(&rng) % 500) / 64 - (s < hi ? 6 : 0) : 0;
        for (size_t r = 0; r < m; r++) parent[r] = r ? (int)rng_below(&rng, r) : -1, p.hi[r] = hi + r, p.lo[r] = i % 4 == 1 ? hi / 2 : 0;
        if (i % 2) tree_rows(&p, parent, hi, (size_t)-1);
        void *without = attend(ops_all[0], &p, m);
        p.a.bias = bias;
        void *with = attend(ops_all[0], &p, m);
        CHECK(hi < 63 || memcmp(with, without, m * p.a.n_heads * p.a.head_dim * elt(&p)), "the bias does nothing");
        invariants(&p, 3, &rng);
        if (i % 2) tree_equals_chains(&p, hi, 2, &rng);
        check_importance(&p, &rng);
        guard_free(with), guard_free(without), free(bias), problem_close(&p);
    }
}

/* The largest difference of two outputs, in units of the largest value of the second. */
static double apart(const struct problem *p, const void *a, const void *b)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < p->a.m * p->a.n_heads * p->a.head_dim; i++) {
        most = fmax(most, fabs((double)act_get(out_type(p), a, i) - (double)act_get(out_type(p), b, i)));
        size = fmax(size, fabs((double)act_get(out_type(p), b, i)));
    }
    return most / size;
}
/* A key with a bias of log2 n is n keys; n of 1 to 8, over several blocks and a chunk. */
static void a_bias_of_log2_n_is_n_keys(void)
{
    enum { KEYS = 700, TIMES = 8 };
    struct rng rng = { 44 };
    for (size_t t = 1; t < 4; t++) {
        struct problem few, many;
        float bias[KEYS + 3 * KV_BLOCK] = { 0 };
        size_t times[KEYS], n = 0;
        for (size_t pos = 0; pos < KEYS; pos++) times[pos] = 1 + rng_below(&rng, TIMES), n += times[pos], bias[pos] = log2f((float)times[pos]);
        problem_open(&few, kind(t), 2, 2, 2, 32, KEYS, 0, &rng);
        problem_open(&many, kind(t), 2, 2, 2, 32, n, 0, &rng);
        memcpy(many.q, few.q, 2 * 2 * 2 * 32 * elt(&few));
        memcpy(many.q_scale, few.q_scale, 2 * 2 * 2 * sizeof(float));
        for (size_t h = 0; h < 2; h++)
            for (size_t pos = 0, at = 0; pos < KEYS; pos++) {
                float x[64];
                for (size_t i = 0; i < 64; i++) x[i] = rng_normal(&rng) * 2;
                make_row(&few, stored_row(&few, h, pos), x);
                put(&few, h, pos, stored_row(&few, h, pos));
                for (size_t k = 0; k < times[pos]; k++) put(&many, h, at++, stored_row(&few, h, pos));
            }
        for (size_t r = 0; r < 2; r++) few.hi[r] = KEYS, many.hi[r] = n;
        FOR_TWINS(o) {
            const double bound = few.a.type == DT_F32 ? 1e-5 : 0x1p-6;
            void *want = attend(o, &many, 2), *plain = attend(o, &few, 2);
            few.a.bias = bias;
            void *got = attend(o, &few, 2);
            few.a.bias = NULL;
            CHECK(apart(&few, got, want) <= bound, "%s: %g", o->name, apart(&few, got, want));
            CHECK(apart(&few, plain, want) > 3 * bound, "%s: without a bias %g", o->name, apart(&few, plain, want));
            guard_free(want), guard_free(plain), guard_free(got);
        }
        problem_close(&few), problem_close(&many);
    }
}

/* ---- the double-precision reference ---- */

/* The largest error of row r, query head j of KV head h, as a share of its bound; infinite when an output is outside it. */
static double reference_row(const struct problem *p, const void *out, size_t h, size_t r, size_t j, bool quiet)
{
    const size_t d = p->a.head_dim, lo = p->lo[r], hi = p->hi[r];
    const size_t q = (h * p->a.m + r) * p->group + j;
    const enum dtype act = out_type(p);
    double *num = must_alloc(d * sizeof *num), *mass = must_alloc(d * sizeof *mass), *slip = must_alloc(d * sizeof *slip);
    double den = 0, den_slip = 0, top = -INFINITY, worst = 0;
    size_t blocks = 0, chunk = (size_t)-1;
    double s[KV_BLOCK], ds[KV_BLOCK], chunk_top = -INFINITY;
    for (size_t b = lo / KV_BLOCK; b * KV_BLOCK < hi; b++, blocks++) {
        size_t from = b * KV_BLOCK > lo ? b * KV_BLOCK : lo, to = (b + 1) * KV_BLOCK < hi ? (b + 1) * KV_BLOCK : hi;
        if (b * KV_BLOCK / KV_CHUNK != chunk)              /* a chunk begins with no maximum */
            chunk = b * KV_BLOCK / KV_CHUNK, chunk_top = -INFINITY;
        for (size_t pos = from; pos < to; pos++) {
            double sum = 0, absolute = 0;
            for (size_t i = 0; i < d; i++) {
                double x = query_at(p, q, i) * stored_at(p, stored_row(p, h, pos), i);
                sum += x, absolute += fabs(x);
            }
            s[pos - from] = sum, ds[pos - from] = p->a.type == DT_I16 ? 4 * 0x1p-24 * fabs(sum) : ((double)d + 1) * 0x1p-24 * absolute;
            chunk_top = fmax(chunk_top, sum);
        }
        double new_top = fmax(top, chunk_top), scale = isfinite(top) ? exp2(top - new_top) : 0;
        for (size_t i = 0; i < d; i++) num[i] *= scale, mass[i] *= scale, slip[i] *= scale;
        den *= scale, den_slip *= scale, top = new_top;
        double lift = exp2(chunk_top - top);               /* p is rounded against the maximum of its own chunk so far */
        double most = 0, all = 0;                          /* of weights times the units of values */
        for (size_t pos = from; pos < to; pos++) {
            double w = exp2(s[pos - from] - chunk_top) * (double)unit_of(p, stored_row(p, h, pos), d);
            most = fmax(most, w), all += w;
        }
        double half_unit = p->a.type == DT_I16 ? 0.501 * fmax(fmax(most / 32767, all / 261888), 0x1p-100) : 0;
        for (size_t pos = from; pos < to; pos++) {
            double x = exp2(s[pos - from] - chunk_top), rel = 0.7 * (2 * ds[pos - from] + 0x1p-23 * fabs(s[pos - from] - chunk_top)) + 0x1p-21;
            double w = p->a.type == DT_I16 ? x : act_round(p->a.type, (float)x), up = act_round(p->a.type, (float)(x * (1 + rel))), down = act_round(p->a.type, (float)(x * (1 - rel)));
            double step = (p->a.type == DT_BF16 ? fmax(up - w, w - down) : x * rel) * lift;
            w *= lift, den += x * lift, den_slip += x * rel * lift;
            for (size_t i = 0; i < d; i++) {
                double v = stored_at(p, stored_row(p, h, pos), d + i);
                num[i] += w * v, mass[i] += w * fabs(v), slip[i] += step * fabs(v) + half_unit * lift * fabs(v) / (double)unit_of(p, stored_row(p, h, pos), d);
            }
        }
    }
    double sums = ((double)(hi - lo) + 8 * (double)(blocks + 4)) * 0x1p-24;
    for (size_t i = 0; i < d; i++) {
        double want = num[i] / den, tol = (slip[i] + sums * mass[i] + fabs(want) * (den_slip + sums * den)) / den + 0x1p-22 * fabs(want) + 1e-30;
        float got = act_get(act, out, (r * p->a.n_heads + h * p->group + j) * d + i);
        bool good = act_near(act, got, want, tol);
        CHECK(good || quiet, "row %zu head %zu dim %zu: %g, reference %g, bound %g", r, h * p->group + j, i, (double)got, want, tol);
        if (!good)
            worst = INFINITY;
        double round = act == DT_BF16 ? 0x1p-8 * fabs(want) : 0;
        worst = fmax(worst, fabs((double)got - want) / (tol + round));
    }
    free(num), free(mass), free(slip);
    return worst;
}
static void plain_c_is_near_the_reference(void)
{
    struct rng rng = { 31 };
    for (size_t i = 0; i < 20; i++) {
        struct problem p;
        double worst = 0;
        size_t n = i < 10 ? 1 + rng_below(&rng, 300) : i < 16 ? 2040 + rng_below(&rng, 300) : 4300;
        problem_open(&p, kind(i), 3, 1, 2, dims[i % 5], n, 0, &rng);
        for (size_t r = 0; r < 3; r++)
            p.hi[r] = n - (r && n > 10 ? r * 3 : 0), p.lo[r] = r == 2 ? p.hi[r] / 3 : 0;
        void *out = attend(ops_all[0], &p, 3);
        for (size_t r = 0; r < 3; r++)
            for (size_t j = 0; j < 2; j++)
                worst = fmax(worst, reference_row(&p, out, 0, r, j, false));
        printf("    %s head_dim %zu keys %zu: worst error %.2f of the bound\n", (const char *[]){ "int16", "bf16", "int16", "f32" }[i % 4], dims[i % 5], n, worst);
        guard_free(out);
        problem_close(&p);
    }
}
/* The reference must object to a result that is off by one key, or it proves nothing. */
static void reference_notices_a_missing_key(void)
{
    struct rng rng = { 32 };
    for (size_t i = 0; i < 2; i++) {
        struct problem p;
        problem_open(&p, kind(i), 1, 1, 1, 64, 200, 0, &rng);
        p.hi[0] = 200;
        looked_at_row(&p, stored_row(&p, 0, 199), 0, &rng);
        put(&p, 0, 199, stored_row(&p, 0, 199));
        void *out = attend(ops_all[0], &p, 1);
        p.hi[0] = 199;
        CHECK(reference_row(&p, out, 0, 0, 0, true) > 1);
        guard_free(out);
        problem_close(&p);
    }
}

int main(void)
{
    RUN(rows_twins_and_splits_agree);
    RUN(a_pass_of_256_rows);
    RUN(ranges_of_any_kind);
    RUN(chunk_borders);
    RUN(junk_cannot_be_seen);
    RUN(not_finite_is_not_lost);
    RUN(tiny_values_are_flushed);
    RUN(int16_at_its_bounds);
    RUN(trees_cross_blocks);
    RUN(trees_cross_chunks);
    RUN(trees_under_a_window);
    RUN(trees_and_plain_rows_mix);
    RUN(importance_is_that_of_the_first_row);
    RUN(twins_agree_on_a_bias);
    RUN(a_bias_of_log2_n_is_n_keys);
    RUN(plain_c_is_near_the_reference);
    RUN(reference_notices_a_missing_key);
    return test_end();
}
