/* Rule R1 on whole models: a row is a row. Logits and cache bytes are compared by memcmp. No bit may depend
 * on the number of rows in a pass, the split of the context into passes, the shape of the tree, the other
 * sequences in the pass, the number of threads, or the twin. Every comparison has a control that must differ.
 *
 *     test_r1 [--long | --time]   --long takes every size of pass for every model and length, not a sample
 *                                 of them, and adds 100,000 tokens of prefill in chunks against token by
 *                                 token; --time only measures */
#include "tests/rig.h"
#include <time.h>

static bool long_test;
static const char demo[] = "models/demo";

/* ---- one row alone = the same row in passes of any size ---- */

struct plan { const struct ops *o; size_t threads; };

/* Rows [len, len + n) in passes of the given sizes under one rig equal `want` and the cache `truth`. */
static void passes_equal(const struct rig *r, const char *what, struct kv *kv, const struct kv *truth,
                         const int32_t *token, size_t len, size_t n, const size_t *sizes, size_t n_sizes,
                         const float *want, float *got)
{
    for (size_t i = 0; i < n_sizes; i++) {
        size_t m = sizes[i];
        if (i && m > n)
            continue;
        memset(got, 0, n * r->c.vocab * sizeof *got);
        kv_truncate(kv, len);
        rig_run(r, kv, token, n, m, got, NULL);
        bool same = !memcmp(want, got, n * r->c.vocab * sizeof *got),
             bytes = rig_same_rows(truth, kv, len, len + n);
        CHECK(same && bytes, "%s %s threads %zu: length %zu, passes of %zu rows: logits %s, cache %s", what,
              r->m.ops->name, pool_threads(r->pool), len, m, same ? "equal" : "differ",
              bytes ? "equal" : "differs");
    }
}
/* One model, one length: the best twin with one thread and one row at a time is the reference. */
static void length(const char *what, const char *dir, enum dtype compute, size_t len, size_t n,
                   const struct plan *plan, size_t n_plans, const size_t *sizes, size_t n_sizes)
{
    struct rig base;
    struct kv truth, kv;
    rig_open(&base, dir, compute, best_twin(), 1, 256, len + n);
    rig_kv(&base, &truth, len + n, 0), rig_kv(&base, &kv, len + n, 0);
    size_t bytes = n * base.c.vocab * sizeof(float);
    float *want = must_alloc(bytes), *got = must_alloc(bytes);
    int32_t *token = must_alloc(n * sizeof *token);
    rig_tokens(token, n, base.c.vocab, len + 5);
    rig_inject(&truth, len, len + 1), rig_inject(&kv, len, len + 1);
    rig_run(&base, &truth, token, n, 1, want, NULL);
    passes_equal(&base, what, &kv, &truth, token, len, n, sizes, n_sizes, want, got);

    /* control: one token of the pass changed */
    if (n > 1) {
        kv_truncate(&kv, len);
        token[0] = (token[0] + 1) % (int32_t)base.c.vocab;
        rig_run(&base, &kv, token, n, n, got, NULL);
        token[0] = (token[0] + (int32_t)base.c.vocab - 1) % (int32_t)base.c.vocab;
        CHECK(memcmp(want + (n - 1) * base.c.vocab, got + (n - 1) * base.c.vocab, base.c.vocab * sizeof *got),
              "%s length %zu: a token does not matter", what, len);
    }
    rig_close(&base);
    for (size_t i = 0; i < n_plans; i++) {
        struct rig r;
        if (!plan[i].o)
            continue;
        rig_open(&r, dir, compute, plan[i].o, plan[i].threads, 256, len + n);
        passes_equal(&r, what, &kv, &truth, token, len, n, sizes, n_sizes, want, got);
        rig_close(&r);
    }
    free(want), free(got), free(token);
    kv_close(&truth), kv_close(&kv);
}

static const size_t all_sizes[] = { 1, 2, 3, 7, 16, 31, 64, 256 }, some_sizes[] = { 2, 31, 64 };
/* The short test takes these, in turn. */
static const size_t sample_sizes[2][4] = { { 2, 7, 64, 256 }, { 1, 3, 16, 31 } };
static const size_t lengths[] = { 0, 1, 63, 64, 65, 2047, 2048, 2049, 4097 };

static void demo_rows_at_every_length(void)
{
    const struct ops *best = best_twin();
    for (size_t i = 0; i < 9; i++) {
        size_t n = lengths[i] == 0 || lengths[i] == 65 || lengths[i] == 2047 ? 256 : 66;
        if (SLOW_BUILD && (n > 66 || lengths[i] > 2049))
            n = 33;
        length("demo", demo, DT_BF16, lengths[i], n, (struct plan[]){ { best, 2 } }, 1,
               long_test ? all_sizes : sample_sizes[i % 2], long_test ? 8 : 4);
        FOR_TWINS(o)
            if (o != ops_all[0] && o != best)
                length("demo", demo, DT_BF16, lengths[i], MIN(n, 66), (struct plan[]){ { o, 1 }, { o, 2 } },
                       2, some_sizes, 3);
    }
    /* more threads than KV heads */
    length("demo", demo, DT_BF16, 2047, 64, (struct plan[]){ { best, 5 } }, 1,
           long_test ? all_sizes : some_sizes, long_test ? 7 : 3);
    length("demo f32", demo, DT_F32, 2047, 33, (struct plan[]){ { best, 2 } }, 1,
           long_test ? all_sizes : sample_sizes[1], long_test ? 6 : 4);
}
static void demo_rows_in_plain_c(void)
{
    static const size_t at[] = { 0, 63, 2048 };
    for (size_t i = 0; i < 3; i++)
        length("demo", demo, DT_BF16, at[i], 7, (struct plan[]){ { ops_all[0], 1 } }, 1, (size_t[]){ 1, 3,
            7 }, 3);
}
static void tiny_models_in_every_twin(void)
{
    for (size_t t = 0; t < N_TINY; t++) {
        char dir[4096];
        tiny_write(&tiny_models[t], dir);
        for (int f32 = 0; f32 < 2; f32++)
            for (size_t i = 0; i < 9; i++) {
                size_t n = i == 3 || i == 6 ? 70 : 33;
                /* A sample is every third length: one of them has 2,047 tokens or more. */
                if ((SLOW_BUILD && i % 2) || (!long_test && (i + t + (size_t)f32) % 3))
                    continue;
                static const size_t threads[] = { 1, 2, 5, 9 };
                FOR_TWINS(o) {
                    struct plan p[2] = { { o, threads[(i + t) % 4] }, { NULL, 0 } };
                    bool plain = o == ops_all[0];
                    length(tiny_models[t].name, dir, f32 ? DT_F32 : DT_BF16, lengths[i], plain ? 20 : n, p, 1,
                           plain ? (size_t[]){ 3, 20 } : all_sizes, plain ? 2 : 7);
                }
            }
        tiny_remove(dir);
    }
}

/* ---- 100,000 positions of injected bytes ---- */

static void demo_at_100000(void)
{
    enum { LEN = 100000 };
    const struct ops *best = best_twin();
    if (SLOW_BUILD) SKIP("a sanitizer build; the other builds run it");
    FOR_TWINS(o) {
        struct plan p[2] = { { o, 1 }, { o == ops_all[0] ? NULL : o, 5 } };
        if (o == ops_all[0])
            length("demo", demo, DT_BF16, LEN, 2, p, 1, (size_t[]){ 2 }, 1);
        else
            length("demo", demo, DT_BF16, LEN, o != best ? 16 : long_test ? 66 : 33, p, 2,
                   o != best ? (size_t[]){ 3, 16 } : long_test ? (size_t[]){ 2, 3, 7, 16, 31, 64 }
                                                               : (size_t[]){ 3, 31 },
                   o == best && long_test ? 6 : 2);
    }
}
/* Control: one byte of a distant V, and one of a distant K, show at position 100,000. */
static void one_byte_far_back_is_seen(void)
{
    struct rig r;
    struct kv kv;
    size_t len = SLOW_BUILD ? 5000 : 100000;
    int32_t token[1] = { 7 };
    rig_open(&r, demo, DT_BF16, best_twin(), 2, 1, len + 1);
    rig_kv(&r, &kv, len + 1, 0);
    rig_inject(&kv, len, 3);
    float *want = must_alloc(r.c.vocab * 4), *got = must_alloc(r.c.vocab * 4);
    rig_run(&r, &kv, token, 1, 1, want, NULL);
    for (int part = 0; part < 2; part++) {
        kv_truncate(&kv, len);
        char *block = kv_block(&kv, 0, 0, 1234);
        /* of the row's unit */
        char *byte =
            block + KV_BLOCK * kv.head_dim * 2 + (part ? KV_BLOCK * 4 : 0) + 4 * (1234 % KV_BLOCK) + 3;
        char kept = *byte;
        /* 2^9: 1/100,000 of the weight shows */
        *byte = 0x44;
        rig_run(&r, &kv, token, 1, 1, got, NULL);
        CHECK(memcmp(want, got, r.c.vocab * 4), "part %d", part);
        *byte = kept;
    }
    kv_truncate(&kv, len);
    rig_run(&r, &kv, token, 1, 1, got, NULL);
    CHECK(!memcmp(want, got, r.c.vocab * 4), "put back, it is as before");
    free(want), free(got);
    kv_close(&kv), rig_close(&r);
}

/* ---- trees ---- */

/* Makes a tree over `depth` tokens of a chain with side branches. chain[i]: node of the i-th token. Returns
 * the number of nodes. */
static size_t grow(int32_t *node_token, int32_t *parent, uint32_t *chain, const int32_t *token, size_t depth,
                   size_t nodes_max, size_t vocab, struct rng *rng)
{
    size_t n = 0;
    for (size_t i = 0; i < depth; i++) {
        /* a side node: a sibling, or further from the path */
        if (i && nodes_max - n > depth - i && rng_next(rng) % 2) {
            node_token[n] = (int32_t)rng_below(rng, vocab);
            parent[n] = rng_next(rng) % 3 ? (int32_t)rng_below(rng, n) : -1;
            n++;
        }
        chain[i] = (uint32_t)n;
        node_token[n] = token[i];
        parent[n++] = i ? (int32_t)chain[i - 1] : -1;
    }
    return n;
}
/* The tree at length len: nodes of the chain equal plain rows, side nodes equal their own chains, and
 * decoding after a commit equals plain decoding. */
static void tree_at(const char *what, const char *dir, enum dtype compute, const struct ops *o,
                    size_t threads, size_t len, size_t depth, struct rng *rng)
{
    enum { AFTER = 5 };
    struct rig base, r;
    struct kv truth, kv;
    size_t nodes_max = MIN(depth + depth / 2 + 4, 256), n = depth + AFTER;
    rig_open(&base, dir, compute, best_twin(), 1, 64, len + n),
        rig_open(&r, dir, compute, o, threads, 256, len + n);
    rig_kv(&base, &truth, len + n, 0), rig_kv(&r, &kv, len + n, 256);
    size_t vocab = base.c.vocab, row = vocab * sizeof(float);
    float *want = must_alloc(n * row), *got = must_alloc(nodes_max * row), *one = must_alloc(row);
    int32_t token[300], node_token[256], parent[256], path_token[256];
    uint32_t chain[256];
    rig_tokens(token, n, vocab, len * 7 + depth);
    rig_inject(&truth, len, len + 2), rig_inject(&kv, len, len + 2);
    rig_run(&base, &truth, token, n, 1, want, NULL);
    size_t nodes = grow(node_token, parent, chain, token, depth, nodes_max, vocab, rng);
    rig_pass(&r, &kv, node_token, parent, nodes, got, true);
    CHECK(kv.n_past == len);
    for (size_t i = 0; i < depth; i++)
        CHECK(!memcmp(want + i * vocab, got + chain[i] * vocab, row),
              "%s %s length %zu: node %u, depth %zu of a chain of %zu", what, o->name, len, chain[i], i,
              depth);

    for (int k = 0; k < 3; k++) {                              /* any node, by the chain to it */
        size_t at = rng_below(rng, nodes), d = 0, path[256];
        for (int32_t i = (int32_t)at; i >= 0; i = parent[i]) path[d++] = (size_t)i;
        for (size_t i = 0; i < d; i++) path_token[i] = node_token[path[d - 1 - i]];
        kv_truncate(&truth, len);
        rig_run(&base, &truth, path_token, d, 64, NULL, one);
        CHECK(!memcmp(one, got + at * vocab, row), "%s %s length %zu: node %zu of %zu, depth %zu", what,
              o->name, len, at, nodes, d);
        if (d > 1) {                                           /* control: a sibling would be another node */
            path_token[0] = (path_token[0] + 1) % (int32_t)vocab;
            kv_truncate(&truth, len);
            rig_run(&base, &truth, path_token, d, 64, NULL, one);
            CHECK(memcmp(one, got + at * vocab, row), "%s length %zu: an ancestor does not matter", what,
                  len);
        }
    }
    kv_truncate(&truth, len);
    rig_run(&base, &truth, token, n, 1, want, NULL);
    size_t keep = 1 + rng_below(rng, depth);
    kv_commit_path(&kv, chain, keep);
    CHECK(rig_same_rows(&truth, &kv, len, len + keep), "%s %s length %zu: committed %zu rows", what, o->name,
          len, keep);
    rig_run(&r, &kv, token + keep, n - keep, 1 + rng_below(rng, 4), got, NULL);
    CHECK(!memcmp(want + keep * vocab, got, (n - keep < nodes_max ? n - keep : nodes_max) * row),
          "%s %s length %zu: going on after %zu", what, o->name, len, keep);
    CHECK(rig_same_rows(&truth, &kv, len, len + n), "%s %s length %zu: cache at the end", what, o->name, len);
    free(want), free(got), free(one);
    kv_close(&truth), kv_close(&kv), rig_close(&base), rig_close(&r);
}
static void demo_trees(void)
{
    static const size_t at[] = { 0, 1, 62, 63, 64, 2040, 2047, 2048, 4090 };
    struct rng rng = { 81 };
    for (size_t i = 0; i < 9; i++) {
        if (SLOW_BUILD && i % 3)
            continue;
        FOR_TWINS(o)
            tree_at("demo", demo, DT_BF16, o, 1 + 4 * (i & 1), at[i],
                    o == ops_all[0] ? 4 : i % 2 ? 12 : 130, &rng);    /* 130: two boundaries */
    }
}
static void tiny_trees(void)
{
    static const size_t at[] = { 0, 30, 63, 64, 100, 2047 };
    struct rng rng = { 82 };
    for (size_t t = 0; t < N_TINY; t++) {
        char dir[4096];
        tiny_write(&tiny_models[t], dir);
        for (size_t i = 0; i < 6; i++)
            FOR_TWINS(o) {
                if ((SLOW_BUILD && (i + t) % 2) || (!long_test && i % 3 != t % 3))
                    continue;
                size_t depth = i % 3 == 0 ? 70 : i % 3 == 1 ? 10 : 130;
                tree_at(tiny_models[t].name, dir, i & 1 ? DT_F32 : DT_BF16, o, i == 4 ? 5 : 1, at[i],
                        o == ops_all[0] ? MIN(depth, 40) : depth, &rng);
            }
        tiny_remove(dir);
    }
}

/* ---- prefill ---- */

static void prefill(const char *what, const char *dir, enum dtype compute, const struct ops *o,
                    size_t threads, size_t n, const size_t *chunks, size_t n_chunks, bool control)
{
    struct rig base, r;
    struct kv truth, kv;
    rig_open(&base, dir, compute, best_twin(), 2, 1, n), rig_open(&r, dir, compute, o, threads, 2048, n);
    rig_kv(&base, &truth, n, 0), rig_kv(&r, &kv, n, 0);
    size_t row = base.c.vocab * sizeof(float);
    float *want = must_alloc(row), *got = must_alloc(row);
    int32_t *token = must_alloc(n * sizeof *token);
    rig_tokens(token, n, base.c.vocab, n);
    rig_run(&base, &truth, token, n, 1, NULL, want);
    for (size_t i = 0; i < n_chunks; i++) {
        kv_truncate(&kv, 0);
        rig_run(&r, &kv, token, n, chunks[i], NULL, got);
        CHECK(!memcmp(want, got, row), "%s %s: logits after %zu tokens in chunks of %zu", what, o->name, n,
              chunks[i]);
        CHECK(rig_same_rows(&truth, &kv, 0, n), "%s %s: cache after chunks of %zu", what, o->name, chunks[i]);
    }
    if (control) {                                             /* one distant token */
        kv_truncate(&kv, 0);
        token[n / 50] = (token[n / 50] + 1) % (int32_t)base.c.vocab;
        rig_run(&r, &kv, token, n, chunks[n_chunks - 1], NULL, got);
        CHECK(memcmp(want, got, row), "%s: token %zu of %zu does not matter", what, n / 50, n);
    }
    free(want), free(got), free(token);
    kv_close(&truth), kv_close(&kv), rig_close(&base), rig_close(&r);
}
static void demo_prefill_in_chunks(void)
{
    size_t n = SLOW_BUILD ? 300 : 4097;
    if (long_test)
        prefill("demo", demo, DT_BF16, best_twin(), 2, n, (size_t[]){ 7, 64, 256, 1000 }, 4, false);
    prefill("demo", demo, DT_BF16, best_twin(), 2, n, (size_t[]){ 100, 2048 }, 2, true);
    FOR_TWINS(o)
        if (o != ops_all[0] && o != best_twin())
            prefill("demo", demo, DT_BF16, o, 2, n, (size_t[]){ 512 }, 1, false);
    prefill("demo", demo, DT_BF16, ops_all[0], 2, 150, (size_t[]){ 100 }, 1, false);
    if (long_test)
        prefill("demo", demo, DT_BF16, best_twin(), 2, 100000, (size_t[]){ 512, 2048 }, 2, true);
}
static void tiny_prefill_in_chunks(void)
{
    for (size_t t = 0; t < N_TINY; t++) {
        char dir[4096];
        tiny_write(&tiny_models[t], dir);
        FOR_TWINS(o)
        prefill(tiny_models[t].name, dir, t & 1 ? DT_F32 : DT_BF16, o, 3,
                o == ops_all[0] || SLOW_BUILD ? 140 : 2200,
                t & 1 ? (size_t[]){ 64, 2048, 5, 300 } : (size_t[]){ 5, 300, 64, 2048 }, long_test ? 4 : 2,
                o == best_twin() && !tiny_models[t].window);
        tiny_remove(dir);
    }
}

/* ---- several sequences in one pass ---- */

static void sequences_in_one_pass(void)
{
    struct rng rng = { 83 };
    static const char *const named[] = { demo, "q4_k_m", "q8_0" };
    enum { NAMED = 3 };
    for (int k = 0; k < NAMED + 3; k++) {
        char dir[4096];
        const bool is_tiny = k >= NAMED;
        if (is_tiny) tiny_write(&tiny_models[k - NAMED], dir);
        FOR_TWINS(o) {
            struct rig r;
            struct kv kv[3], alone[3];
            static const size_t len[3] = { 100, 2047, 0 }, n[3] = { 5, 9, 1 };
            int32_t token[3][9], parent[9] = { -1, 0, 0, 1, 2, 4, -1, 6, 3 };
            float *got[3], *want[3];
            uint8_t want_rows[9] = { 1, 0, 1, 1, 0, 1, 1, 0, 1 };
            static uint8_t all[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
            struct err e = { 0 };
            rig_open(&r, is_tiny ? dir : named[k], DT_BF16, o, 2, 32, 2100);
            size_t vocab = r.c.vocab;
            struct pass_seq s[3];
            for (int i = 0; i < 3; i++) {
                rig_kv(&r, &kv[i], len[i] + 20, 16), rig_kv(&r, &alone[i], len[i] + 20, 16);
                rig_inject(&kv[i], len[i], 9 + (uint64_t)i), rig_inject(&alone[i], len[i], 9 + (uint64_t)i);
                rig_tokens(token[i], n[i], vocab, rng_next(&rng));
                got[i] = must_alloc(n[i] * vocab * 4), want[i] = must_alloc(n[i] * vocab * 4);
                s[i] = (struct pass_seq){ &kv[i], n[i], token[i], i == 1 ? parent : NULL, i == 1 ? want_rows
                                          : i == 0 ? all : NULL, got[i] };
                rig_pass(&r, &alone[i], token[i], i == 1 ? parent : NULL, n[i], want[i], true);
            }
            CHECK(!model_forward(&r.m, r.w, s, 3, NULL, 0, &e), "%s", e.msg);
            size_t at = 0;
            CHECK(!memcmp(got[0], want[0], n[0] * vocab * 4) && !memcmp(got[2], want[2], vocab * 4),
                  "%s model %d", o->name, k);
            for (size_t i = 0; i < 9; i++)
                if (want_rows[i])
                    CHECK(!memcmp(got[1] + at++ * vocab, want[1] + i * vocab, vocab * 4),
                          "%s model %d: tree row %zu", o->name, k, i);
            CHECK(memcmp(want[0], want[1], vocab * 4), "two sequences are the same");
            for (int i = 0; i < 3; i++) {
                if (i != 1)
                    CHECK(rig_same_rows(&kv[i], &alone[i], len[i], len[i] + n[i]),
                          "%s model %d sequence %d: cache", o->name, k, i);
                free(got[i]), free(want[i]), kv_close(&kv[i]), kv_close(&alone[i]);
            }
            rig_close(&r);
        }
        if (is_tiny) tiny_remove(dir);
    }
}

/* ---- quantised weights ---- */

/* Side branches, more rows than a tile has, texts beyond a chunk of keys. */
static void quantised_trees(void)
{
    static const size_t at[] = { 0, 63, 2040 };
    struct rng rng = { 84 };
    for (size_t i = 0; i < 3; i++)
        FOR_TWINS(o) {
            const size_t depth = o == ops_all[0] || SLOW_BUILD ? 12 : i == 1 ? 10 : 130;
            tree_at("q4_k_m", "q4_k_m", DT_BF16, o, 1 + 4 * (i & 1), at[i], depth, &rng);
            tree_at("q8_0", "q8_0", i & 1 ? DT_F32 : DT_BF16, o, 2, at[i], MIN(depth, (size_t)40), &rng);
        }
}

static void quantised_prefill_in_chunks(void)
{
    static const char *const names[] = { "q4_k_m", "q8_0" };
    for (size_t i = 0; i < 2; i++)
        FOR_TWINS(o)
            prefill(names[i], names[i], DT_BF16, o, 3, o == ops_all[0] || SLOW_BUILD ? 140 : 2200,
                    i ? (size_t[]){ 64, 2048, 5, 300 } : (size_t[]){ 5, 300, 64, 2048 }, long_test ? 4 : 2,
                    o == best_twin());
}

/* ---- several rows cost less than as many passes ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* CPU time of one thread, which other programs affect little; the benchmark measures the machine's speed. */
static void eight_rows_cost_less_than_eight_passes(void)
{
    enum { LEN = 16384, TIMES = 25 };
    if (SLOW_BUILD) SKIP("a sanitizer build; times mean nothing");
    struct rig r;
    struct kv kv;
    int32_t token[8];
    double t[2][TIMES];
    rig_open(&r, demo, DT_BF16, best_twin(), 1, 8, LEN + 8);
    rig_kv(&r, &kv, LEN + 8, 0);
    rig_inject(&kv, LEN, 4);
    rig_tokens(token, 8, r.c.vocab, 4);
    float *logits = must_alloc(8 * r.c.vocab * 4);
    for (int i = -2; i < 2 * TIMES; i++) {
        size_t m = i & 1 ? 8 : 1;
        double start = cpu_seconds();
        rig_pass(&r, &kv, token, NULL, m, logits, true);
        if (i >= 0) t[i & 1][i / 2] = cpu_seconds() - start;
    }
    for (int k = 0; k < 2; k++) qsort(t[k], TIMES, sizeof(double), by_size);
    double ratio = t[1][TIMES / 2] / t[0][TIMES / 2];
    printf("    %s, depth %d, CPU time of one thread, medians: t(1 row) %.2f ms, t(8 rows) %.2f ms, ratio "
           "%.2f (the limit is 3)\n",
           r.m.ops->name, LEN, t[0][TIMES / 2] * 1e3, t[1][TIMES / 2] * 1e3, ratio);
    CHECK(ratio < 6, "%.2f: rows are not served together", ratio);
    free(logits);
    kv_close(&kv), rig_close(&r);
}

int main(int argc, char **argv)
{
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    if (argc > 1 && !strcmp(argv[1], "--time")) {
        RUN(eight_rows_cost_less_than_eight_passes);
        return test_end();
    }
    RUN(tiny_models_in_every_twin);
    RUN(tiny_trees);
    RUN(tiny_prefill_in_chunks);
    RUN(sequences_in_one_pass);
    RUN(quantised_trees);
    RUN(quantised_prefill_in_chunks);
    RUN(demo_rows_in_plain_c);
    RUN(demo_rows_at_every_length);
    RUN(demo_trees);
    RUN(demo_prefill_in_chunks);
    RUN(demo_at_100000);
    RUN(one_byte_far_back_is_seen);
    RUN(eight_rows_cost_less_than_eight_passes);
    return test_end();
}
