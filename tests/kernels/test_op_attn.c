/* Attention: every twin equals plain C bit for bit. A row is a row, with any other rows and any split of the
 * work. A tree equals the chains of its nodes. Junk in invisible slots has no effect.
 * test_op_attn_reference.c shows that plain C is right. */
#include "tests/kernels/attn_problem.h"

static const size_t groups[] = { 1, 2, 4, 7, 8 };

/* ---- twins, rows, splits ---- */

static void describe(const struct problem *p, const struct ops *o, const char *what)
{
    printf("    %s: %s: type %d m %zu kv heads %zu group %zu head_dim %zu positions %zu nodes %zu\n", o->name,
           what, p->a.type, p->a.m, p->a.n_kv_heads, p->group, p->a.head_dim, p->n_pos, p->n_nodes);
}
/* Checks everything about one problem that must not change a bit. `rows`: number of rows that are also
 * computed alone. */
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

static void rows_twins_and_splits_agree(void)
{
    static const size_t ms[] = { 1, 2, 3, 7, 16, 31, 64 };
    struct rng rng = { 21 };
    for (size_t i = 0; i < 35; i++) {
        struct problem p;
        size_t m = ms[i % 7], d = dims[(i + i / 5) % 5], g = groups[(i / 2) % 5],
               n = m + rng_below(&rng, 400 / (1 + g * d / 256));
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
    for (size_t t = 0; t < 5; t++) {
        struct problem p;
        problem_open(&p, kind(t), 256, 2, 2, 16, 300, 0, &rng);
        for (size_t r = 0; r < 256; r++)
            p.hi[r] = 45 + r, p.lo[r] = t && r > 30 ? r - 30 : 0;
        invariants(&p, 6, &rng);
        problem_close(&p);
    }
}
/* Rows that see different ranges, in no order. */
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
            p.lo[r] = k < 4 ? 0 : r % 2 ? his[r] - 1 - rng_below(&rng, 60) : his[r] > 2100 ? 2047 + r % 3
                : 2046;
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
            CHECK(act_differ(out_type(&p), before, after, n) < n, "%s: a visible key does not matter",
                  o->name);
            guard_free(before), guard_free(after);
            put(&p, 1, hi - 1, stored_row(&p, 1, hi - 1));
        }
        problem_close(&p);
    }
}
/* A NaN or an infinity in a visible key must reach the output: the check of the logits relies on it. */
static void not_finite_is_not_lost(void)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    struct rng rng = { 26 };
    for (size_t t = 1; t < 5; t++)
        for (size_t where = 0; where < 70; where += 23)
            for (int b = 0; b < 3; b++)
                for (size_t part = 0; part < 2; part++) {  /* in K, in V */
                    struct problem p;
                    problem_open(&p, kind(t), 2, 1, 2, 16, 70, 0, &rng);
                    p.hi[0] = p.hi[1] = 70;
                    float x[32], half[16];
                    for (size_t i = 0; i < 32; i++)
                        x[i] =
                            i == part * 16 + 5 ? bad[b] : (float)stored_at(&p, stored_row(&p, 0, where), i);
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
                        /* a score of -inf has weight +0: only this case may hide it, and only in K */
                        CHECK(finite == 0 || (part == 0 && b == 2 && !whole(&p)),
                              "%s: %g in %s %zu: %zu outputs finite", o->name, (double)bad[b],
                              part ? "V" : "K", where, finite);
                        guard_free(out);
                    }
                    problem_close(&p);
                }
}

/* A weighted value that rounds up to FLT_MIN if denormals are kept, and is below FLT_MIN otherwise, is tiny.
 * Two keys of score 0 have values that sum to 2^-100 (1 - 2^-24); the next block has a key of score 26 and
 * value 0. */
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
            act_put(DT_BF16, row, i, i == 0 && pos == 64 ? 26 : i < 16 || pos == 64 ? 0 : pos == 62
                    ? 0x1p-100f : -0x1p-124f);
        put(&p, 0, pos, row);
    }
    p.lo[0] = 62, p.hi[0] = 65;
    FOR_TWINS(o) {
        void *out = attend(o, &p, 1);
        for (size_t i = 0; i < 16; i++)
            CHECK(ref_bits(act_get(DT_BF16, out, i)) == 0, "%s: %a", o->name,
                  (double)act_get(DT_BF16, out, i));
        guard_free(out);
    }
    problem_close(&p);
}

/* Sums in int16 at their largest, of either sign, and rows of zeros, of tiny values and of the largest finite
 * values. */
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
            sum +=
                (int64_t)((const int16_t *)p.q)[k] * ((const int16_t *)(const void *)stored_row(&p, 0, 0))[k];
        CHECK(sum > INT64_C(2140000000) && sum <= INT32_MAX, "a sum of %lld", (long long)sum);
        p.hi[0] = KEYS;
        FOR_TWINS(o) {
            void *out = attend(o, &p, 1);
            for (size_t k = 0; k < D; k++) {
                const float got = act_get(DT_BF16, out, k), want = fabsf(sizes[i]) < 0x1p-126f ? 0 : sizes[i];
                CHECK(fabsf(got - want) <= fabsf(want) / 128, "%s: values of %g: [%zu] is %g", o->name,
                      (double)sizes[i], k, (double)got);
                if (test_failed_) break;
            }
            guard_free(out);
        }
        problem_close(&p);
    }
}

/* ---- trees ---- */

/* Rows of a tree: row r is node r, with ancestors by parent[]. base: committed length; window as in the
 * model. */
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
/* Each tree row equals the row of a plain cache into which its ancestors were committed. */
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
        /* Control: another ancestor at the far end must change the row, if the window shows it. */
        size_t far = lo > base ? lo - base : 0;
        char *row = node_row(p, 0, p->node[r * p->a.node_max + far]), *kept = must_alloc(d2);
        memcpy(kept, row, d2);
        attractive_row(p, row, r * p->group, rng);
        void *other = attend_alone(ops_all[0], p, r);
        CHECK(memcmp(want, other, p->a.n_heads * p->a.head_dim * elt(p)),
              "base %zu depth %zu: an ancestor does not matter", base, depth);
        memcpy(row, kept, d2);
        free(kept);
        guard_free(other), guard_free(want);
        free(chain.kv), free(chain.lo), free(chain.hi);
    }
}
static void tree_at(enum dtype t, size_t base, size_t m, int shape, size_t window, size_t group, size_t d,
                    struct rng *rng)
{
    struct problem p;
    int parent[512];
    problem_open(&p, t, m, 2, group, d, base + 1, m, rng);
    for (size_t i = 0; i < m; i++)
        parent[i] = shape == 0 ? (int)i - 1 : shape == 1 ? (int)i - 1 - (int)rng_below(rng, i < 4 ? 1 + i : 4)
            : i ? (int)rng_below(rng, i) : -1;
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
        tree_at(kind(i + 2), bases[i], 40, 2, (size_t)-1, 4, 64, &rng);
    }
    /* three blocks; the first slot of the last block, and more */
    tree_at(DT_I16, 63, 140, 0, (size_t)-1, 1, 16, &rng);
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
    tree_at(DT_I4, 50, 90, 0, 30, 1, 16, &rng);
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
    for (size_t i = 0; whole(p) && i < d; i++)
        sum += (int64_t)((const int16_t *)(const void *)q)[i] * ref_whole_at(k, kv_form(p->a.type).k, i);
    if (whole(p))
        return (float)sum * unit_of(p, k, 0) * p->q_scale[h * p->a.m * p->group + j];
    for (size_t i = 0; i < d; i += 2) {
        uint32_t x, y;
        memcpy(&x, q + i * 2, 4), memcpy(&y, k + i * 2, 4);
        if (p->a.type == DT_BF16)
            acc = ref_dot_pair(acc, x, y);
        else
            acc = fmaf(act_get(DT_F32, q, i + 1), act_get(DT_F32, k, i + 1),
                       fmaf(act_get(DT_F32, q, i), act_get(DT_F32, k, i), acc));
    }
    return acc;
}
/* Importance depends on row 0 alone, bit for bit, with any other rows and any split of the work. Nothing else
 * is written, and the output does not change. */
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
            CHECK(!memcmp(got, want, bytes) && guard_intact(got, bytes), "%s: rows by %zu", o->name,
                  steps[i]);
            if (memcmp(got, want, bytes))
                describe(p, o, "importance");
            CHECK(!memcmp(out, plain, p->a.m * p->a.n_heads * p->a.head_dim * elt(p)),
                  "%s: the output changed", o->name);
            guard_free(out), guard_free(got);
        }
        guard_free(plain);
    }
    free(want);
}
static void importance_belongs_to_the_first_row(void)
{
    struct rng rng = { 41 };
    for (size_t i = 0; i < 36; i++) {
        static const size_t ms[] = { 1, 2, 5, 12, 33, 64 }, his[] = { 1, 63, 64, 65, 128, 200, 333, 2048,
            2100 };
        struct problem p;
        int parent[64];
        const size_t m = i % 9 > 6 ? 3 : ms[i % 6], hi = his[i % 9],
                     window = i % 4 == 1 ? 1 + rng_below(&rng, 150) : (size_t)-1;
        problem_open(&p, kind(i / 2), m, 1 + i % 3, groups[i / 2 % 5], dims[i / 3 % 3], hi + m, m, &rng);
        if (i % 2) {                                       /* a tree: the last block is built for its row */
            for (size_t r = 0; r < m; r++) parent[r] = r ? (int)rng_below(&rng, r) : -1;
            tree_rows(&p, parent, hi, window);
        } else {
            for (size_t r = 0; r < m; r++)
                p.hi[r] = hi + r, p.lo[r] = p.hi[r] > window ? p.hi[r] - window : 0;
        }
        check_importance(&p, &rng);
        problem_close(&p);
    }
}

/* ---- bias ---- */

/* Twins, rows and splits agree with a bias on every slot; trees equal their chains; `importance` excludes the
 * bias. */
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
        for (size_t s = 0; s < p.n_blocks * KV_BLOCK; s++)
            bias[s] = s % 3 ? (float)(rng_next(&rng) % 500) / 64 - (s < hi ? 6 : 0) : 0;
        for (size_t r = 0; r < m; r++)
            parent[r] = r ? (int)rng_below(&rng, r) : -1, p.hi[r] = hi + r, p.lo[r] = i % 4 == 1 ? hi / 2 : 0;
        if (i % 2) tree_rows(&p, parent, hi, (size_t)-1);
        void *without = attend(ops_all[0], &p, m);
        p.a.bias = bias;
        void *with = attend(ops_all[0], &p, m);
        CHECK(hi < 63 || memcmp(with, without, m * p.a.n_heads * p.a.head_dim * elt(&p)),
              "the bias does nothing");
        invariants(&p, 3, &rng);
        if (i % 2) tree_equals_chains(&p, hi, 2, &rng);
        check_importance(&p, &rng);
        guard_free(with), guard_free(without), free(bias), problem_close(&p);
    }
}

/* The same with a further logit of each head, over several chunks. It takes weight from the keys: a very
 * large one leaves nothing, a very small one changes nothing. */
static void twins_agree_on_a_further_logit(void)
{
    struct rng rng = { 44 };
    for (size_t i = 0; i < 16; i++) {
        static const size_t his[] = { 1, 64, 200, 2100, 4200 };
        struct problem p;
        int parent[64];
        const size_t m = 1 + i % 9, hi = his[i % 5];
        problem_open(&p, kind(i / 2), m, 1 + i % 3, groups[i / 2 % 5], dims[i / 3 % 3], hi + m, m, &rng);
        const size_t bytes = m * p.a.n_heads * p.a.head_dim * elt(&p);
        float *logit = must_alloc(p.a.n_heads * sizeof *logit);
        for (size_t r = 0; r < m; r++)
            parent[r] = r ? (int)rng_below(&rng, r) : -1, p.hi[r] = hi + r, p.lo[r] = i % 4 == 1 ? hi / 2 : 0;
        if (i % 2) tree_rows(&p, parent, hi, (size_t)-1);
        void *without = attend(ops_all[0], &p, m);
        p.a.logit = logit;
        for (size_t h = 0; h < p.a.n_heads; h++) logit[h] = -1e4f;
        void *small = attend(ops_all[0], &p, m);
        CHECK(!memcmp(small, without, bytes), "a logit of -10000 changes the output");
        for (size_t h = 0; h < p.a.n_heads; h++) logit[h] = 1e4f;
        void *large = attend(ops_all[0], &p, m);
        for (size_t k = 0; k < m * p.a.n_heads * p.a.head_dim; k++)
            CHECK(act_get(out_type(&p), large, k) == 0, "a logit of 10000 leaves %g",
                  (double)act_get(out_type(&p), large, k));
        for (size_t h = 0; h < p.a.n_heads; h++) logit[h] = rng_normal(&rng) * 3;
        void *with = attend(ops_all[0], &p, m);
        CHECK(memcmp(with, without, bytes), "the logit does nothing");
        invariants(&p, 3, &rng);
        if (i % 2) tree_equals_chains(&p, hi, 2, &rng);
        guard_free(with), guard_free(without), guard_free(small), guard_free(large);
        free(logit), problem_close(&p);
    }
}

/* The largest difference of two outputs, in units of the largest value of the second output. */
static double apart(const struct problem *p, const void *a, const void *b)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < p->a.m * p->a.n_heads * p->a.head_dim; i++) {
        most = fmax(most, fabs((double)act_get(out_type(p), a, i) - (double)act_get(out_type(p), b, i)));
        size = fmax(size, fabs((double)act_get(out_type(p), b, i)));
    }
    return most / size;
}
/* A key with bias log2 n equals n keys, for n of 1 to 8, over several blocks and a chunk. */
static void a_bias_of_log2_n_is_n_keys(void)
{
    enum { KEYS = 700, TIMES = 8 };
    struct rng rng = { 44 };
    for (size_t t = 1; t < 4; t++) {
        struct problem few, many;
        float bias[KEYS + 3 * KV_BLOCK] = { 0 };
        size_t times[KEYS], n = 0;
        for (size_t pos = 0; pos < KEYS; pos++)
            times[pos] = 1 + rng_below(&rng, TIMES), n += times[pos], bias[pos] = log2f((float)times[pos]);
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
            CHECK(apart(&few, plain, want) > 3 * bound, "%s: without a bias %g", o->name,
                  apart(&few, plain, want));
            guard_free(want), guard_free(plain), guard_free(got);
        }
        problem_close(&few), problem_close(&many);
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
    RUN(importance_belongs_to_the_first_row);
    RUN(twins_agree_on_a_bias);
    RUN(twins_agree_on_a_further_logit);
    RUN(a_bias_of_log2_n_is_n_keys);
    return test_end();
}
