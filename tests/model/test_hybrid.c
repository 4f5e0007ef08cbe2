/* Hybrids: layers with recurrent states beside attention. The step of a state has the defined bits in each
 * twin; rule R1 holds for every cut of a text, for chains and trees, with any threads, and several texts in a
 * pass; speculation does not change the text; snapshots continue it. Every comparison has a control that must
 * differ.
 *
 *     test_hybrid [--long]   --long: 100,000 tokens cut at random against one by one */
#include "kernels/delta.h"
#include "kvmgr/prefix.h"
#include "src/decode/decode.h"
#include "src/decode/decoder_image.h"
#include "tests/oracle.h"
#include "tests/rig.h"
#include <unistd.h>

static bool long_test;

/* ---- the step of a state ---- */

/* struct delta_step as ops.h defines it, one operation after the other. */
static void step_reference(const struct delta_step *s)
{
    for (size_t j = 0; j < s->n; j++) {
        float r = 0, p = 0;
        for (size_t i = 0; i < s->dim; i++) {
            const size_t at = i * s->n + j;
            float x = s->from[at];
            if (s->before) {
                const float kept = s->before->decay * x;
                s->to[at] = x = fmaf(s->before->k[i], s->before->delta[j], kept);
            }
            if (s->now)
                r = fmaf(s->now->k[i], x, r), p = fmaf(s->now->q[i], x, p);
        }
        if (!s->now) continue;
        const float mine = s->now->decay * r, off = s->now->v[j] - mine, out = s->now->decay * p;
        s->now->delta[j] = s->now->beta * off;
        s->now->o[j] = fmaf(s->now->qk, s->now->delta[j], out);
    }
}

static void steps_have_the_defined_bits(void)
{
    enum { DIM = 37, WIDE = 64 };
    static float from[DIM * WIDE], k[2][DIM], q[DIM], v[WIDE], delta0[WIDE];
    struct rng rng = { 5 };
    for (size_t i = 0; i < DIM * WIDE; i++) from[i] = rng_normal(&rng);
    for (size_t i = 0; i < DIM; i++)
        k[0][i] = rng_normal(&rng) / 6, k[1][i] = rng_normal(&rng) / 6, q[i] = rng_normal(&rng) / 6;
    for (size_t i = 0; i < WIDE; i++) v[i] = rng_normal(&rng), delta0[i] = rng_normal(&rng);
    FOR_TWINS(o)
        for (size_t n = 16; n <= WIDE; n += 16)
            for (int parts = 1; parts < 4; parts++) {
                static float to[2][DIM * WIDE], delta[2][WIDE], out[2][WIDE];
                for (int way = 0; way < 2; way++) {
                    const struct delta_row before = { .k = k[0], .delta = delta0, .decay = 0.87f };
                    const struct delta_row now = { k[1], q, v, 0.31f, 0.62f, 0.93f, delta[way], out[way] };
                    const struct delta_step s = { from, to[way], DIM, n, parts & 1 ? &before : NULL,
                                                  parts & 2 ? &now : NULL };
                    memset(to[way], 0, sizeof to[way]), memset(delta[way], 0, sizeof delta[way]);
                    memset(out[way], 0, sizeof out[way]);
                    if (way) o->delta(&s);
                    else step_reference(&s);
                }
                CHECK(!memcmp(to[0], to[1], sizeof to[0]) && !memcmp(delta[0], delta[1], sizeof delta[0]) &&
                          !memcmp(out[0], out[1], sizeof out[0]),
                      "%s: %zu columns, parts %d", o->name, n, parts);
                CHECK(!(parts & 2) || (out[0][0] != 0 && out[0][n - 1] != 0), "nothing was computed");
            }
}

static void small_operations_agree(void)
{
    enum { N = 600 };
    static float x[4][N], w[4 * N], y[2][N], g[N];
    static uint16_t half[2][N];
    struct rng rng = { 6 };
    const float *rows[4] = { x[0], x[1], x[2], x[3] };
    for (size_t i = 0; i < N; i++) {
        for (size_t t = 0; t < 4; t++) x[t][i] = rng_normal(&rng), w[t * N + i] = rng_normal(&rng);
        g[i] = 20 * rng_normal(&rng);
    }
    ops_all[0]->convolve(y[0], rows, w, 4, N);
    for (size_t i = 0; i < N; i += 37) {
        double s = 0;
        for (size_t t = 0; t < 4; t++) s += (double)w[t * N + i] * (double)x[t][i];
        CHECK(fabs((double)y[0][i] - s / (1 + exp(-s))) < 1e-5, "channel %zu: %g", i, (double)y[0][i]);
    }
    FOR_TWINS(o) {
        o->convolve(y[1], rows, w, 4, N);
        CHECK(!memcmp(y[0], y[1], sizeof y[0]), "%s: convolution", o->name);
        for (int way = 0; way < 2; way++) {
            const struct ops *p = way ? o : ops_all[0];
            memcpy(y[way], x[0], sizeof x[0]);
            for (size_t i = 0; i < N; i++) half[way][i] = f32_to_bf16(x[0][i]);
            p->gate(y[way], DT_F32, g, N), p->gate(half[way], DT_BF16, g, N);
        }
        CHECK(!memcmp(y[0], y[1], sizeof y[0]) && !memcmp(half[0], half[1], sizeof half[0]), "%s: gate",
              o->name);
        for (size_t i = 0; i < N; i += 37)
            CHECK(fabs((double)y[1][i] - (double)x[0][i] / (1 + exp(-(double)g[i]))) < 1e-6, "%s: gate %zu",
                  o->name, i);
        ops_all[0]->convolve(y[0], rows, w, 4, N);
    }
}

/* ---- rule R1 ---- */

/* n tokens in passes of m rows, all logits. certain: states take the rows at once. */
static void run_rows(const struct rig *r, struct kv *kv, const int32_t *token, size_t n, size_t m,
                     bool certain, float *logits)
{
    static uint8_t all[4096];
    struct err e;
    memset(all, 1, sizeof all);
    for (size_t i = 0; i < n; i += m) {
        const size_t rows = MIN(m, n - i);
        struct pass_seq s = { .kv = kv, .n = rows, .token = token + i, .certain = certain, .want = all,
                              .logits = logits + i * r->c.vocab };
        if (model_forward(&r->m, r->w, &s, 1, NULL, 0, &e)) rig_die("pass", &e);
        kv_advance(kv, rows);
    }
}

/* Equal rows, states and inputs of the convolutions. */
static bool same_caches(const struct rig *r, struct kv *a, struct kv *b)
{
    state_settle(a->state, r->m.ops, r->pool), state_settle(b->state, r->m.ops, r->pool);
    return a->n_past == b->n_past && a->state->at == a->n_past && b->state->at == b->n_past &&
           rig_same_rows(a, b, 0, a->n_past) &&
           !memcmp(a->state->mem, b->state->mem, state_fixed_bytes(&a->state->d.shape));
}

static void cuts_of(const char *what, const char *dir, enum dtype compute)
{
    enum { N = 100, NODES = 16 };
    static const size_t sizes[] = { 1, 3, 64, 4, 2, 8, 15, 63, 65, 100 };
    static const size_t threads[] = { 1, 2, 5 };
    struct rig base;
    struct kv truth, kv;
    int32_t token[N];
    rig_open(&base, dir, compute, best_twin(), 1, N, N);
    const size_t bytes = N * base.c.vocab * sizeof(float);
    float *want = must_alloc(bytes), *got = must_alloc(bytes);
    rig_tokens(token, N, base.c.vocab, 3);
    rig_kv(&base, &truth, N, 0);
    run_rows(&base, &truth, token, N, 1, false, want);
    FOR_TWINS(o)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int certain = 0; certain < 2; certain++) {
                struct rig r;
                if ((!certain && sizes[i] > NODES) || (o == ops_all[0] && i > 2)) continue;
                rig_open(&r, dir, compute, o, threads[i % 3], N, N);
                rig_kv(&r, &kv, N, NODES);
                run_rows(&r, &kv, token, N, sizes[i], certain, got);
                CHECK(!memcmp(want, got, bytes) && same_caches(&r, &truth, &kv),
                      "%s, %s: passes of %zu rows, %s", what, o->name, sizes[i],
                      certain ? "certain" : "accepted");
                kv_close(&kv), rig_close(&r);
            }
    token[0] = (token[0] + 1) % (int32_t)base.c.vocab;       /* control: the first token shows at the end */
    rig_kv(&base, &kv, N, 0);
    run_rows(&base, &kv, token, N, N, true, got);
    CHECK(memcmp((char *)want + bytes - 64, (char *)got + bytes - 64, 64) && !same_caches(&base, &truth, &kv),
          "%s: the first token does not matter", what);
    kv_close(&kv), kv_close(&truth), rig_close(&base);
    free(want), free(got);
}

static void every_model(void (*fn)(const char *what, const char *dir, enum dtype compute))
{
    for (size_t t = 0; t < N_TINY_HYBRIDS; t++) {
        char dir[4096];
        tiny_write(&tiny_hybrids[t], dir);
        fn(tiny_hybrids[t].name, dir, DT_BF16);
        fn(tiny_hybrids[t].name, dir, DT_F32);
        tiny_remove(dir);
    }
    fn("grouped", "build/data/models/qwen35-wrapped-bf16", DT_BF16);
}

static void any_cut_gives_the_same_bits(void) { every_model(cuts_of); }

enum { TEXT = 220, TREE = 24, FIRST = 70 };

/* A random tree below the committed text: most rows continue the last one, some branch. The first row is the
 * only child of the text, as the root of a round is, unless `forest`. */
static void random_tree(struct rng *rng, int32_t *parent, int32_t *token, size_t n, size_t vocab, bool forest)
{
    for (size_t i = 0; i < n; i++) {
        parent[i] = i == 0                                ? -1
                    : forest && rng_below(rng, 8) == 0    ? -1
                    : rng_below(rng, 3)                   ? (int32_t)i - 1
                                                          : (int32_t)rng_below(rng, i);
        token[i] = (int32_t)rng_below(rng, vocab);
    }
}

/* The path of a row, root first. */
static size_t path_of(const int32_t *parent, size_t row, uint32_t *path)
{
    size_t n = 0;
    for (int32_t i = (int32_t)row; i >= 0; i = parent[i]) path[n++] = (uint32_t)i;
    for (size_t i = 0; i < n / 2; i++) {
        const uint32_t x = path[i];
        path[i] = path[n - 1 - i], path[n - 1 - i] = x;
    }
    return n;
}

/* Rounds of trees. After each, a path is committed, of no row to all rows; the same rows go one by one into
 * another cache, from which the logits of the path must come. */
static void trees_of(const char *what, const char *dir, enum dtype compute)
{
    static uint8_t all[TREE] = { [0 ... TREE - 1] = 1 };
    struct rng rng = { 77 };
    int32_t start[FIRST], parent[TREE], token[TREE], line[TREE];
    uint32_t path[TREE];
    size_t rounds = 0, rejected = 0;
    FOR_TWINS(o) {
        struct rig r;
        struct kv tree, plain;
        struct err e;
        rig_open(&r, dir, compute, o, 1 + rounds % 3, FIRST, TEXT + TREE);
        const size_t vocab = r.c.vocab;
        float *got = must_alloc(FIRST * vocab * sizeof *got), *want = must_alloc(FIRST * vocab * sizeof *got);
        rig_tokens(start, FIRST, vocab, 9);
        rig_kv(&r, &tree, TEXT + TREE, TREE), rig_kv(&r, &plain, TEXT + TREE, TREE);
        run_rows(&r, &tree, start, FIRST, FIRST, true, got);
        run_rows(&r, &plain, start, FIRST, FIRST, true, want);
        while (tree.n_past < (o == ops_all[0] ? FIRST + TREE : TEXT - TREE)) {
            const size_t n = 1 + rng_below(&rng, TREE), row = rng_below(&rng, n);
            random_tree(&rng, parent, token, n, vocab, rounds % 3 == 0);
            if (rounds % 4 == 1)                 /* a chain after the text that is never committed */
                rig_pass(&r, &tree, token, NULL, MIN(n, 5), got, true);
            struct pass_seq s = { .kv = &tree, .n = n, .token = token, .parent = parent, .want = all,
                                  .logits = got };
            if (model_forward(&r.m, r.w, &s, 1, NULL, 0, &e)) rig_die("tree", &e);
            const size_t depth = path_of(parent, row, path), kept = rng_below(&rng, depth + 1);
            for (size_t i = 0; i < depth; i++) line[i] = token[path[i]];
            rig_pass(&r, &plain, line, NULL, depth, want, true);       /* a chain, of which some rows stay */
            for (size_t i = 0; i < depth; i++)
                CHECK(!memcmp(got + path[i] * vocab, want + i * vocab, vocab * sizeof *got),
                      "%s, %s: round %zu, row %u at depth %zu of %zu rows", what, o->name, rounds, path[i], i,
                      n);
            kv_commit_path(&tree, path, kept);
            if (rounds % 2 || !kept) {
                kv_advance(&plain, kept);
            } else {                             /* row by row instead */
                kv_truncate(&plain, plain.n_past);
                run_rows(&r, &plain, line, kept, 1, false, want);
            }
            rounds++, rejected += n - kept;
        }
        CHECK(same_caches(&r, &tree, &plain), "%s, %s: caches differ", what, o->name);
        kv_close(&tree), kv_close(&plain), rig_close(&r);
        free(got), free(want);
    }
    CHECK(rounds > 20 && rejected > rounds, "%zu rounds, %zu rows rejected", rounds, rejected);
}

static void trees_leave_the_states_alone(void) { every_model(trees_of); }

/* Three texts of different lengths and pending rows in one pass: a chain, a tree and a prompt. */
static void several_of(const char *what, const char *dir, enum dtype compute)
{
    enum { SEQS = 3, N = 40, NODES = 8, ROWS = 5 };
    static const uint8_t all[ROWS] = { 1, 1, 1, 1, 1 };
    static const int32_t parent[ROWS] = { -1, 0, 0, 1, 1 };
    struct rig r;
    struct kv kv[2][SEQS];
    struct err e;
    int32_t token[N + ROWS];
    rig_open(&r, dir, compute, best_twin(), 2, N, N + 2 * ROWS);
    const size_t row = r.c.vocab;
    float *logits[2] = { must_alloc(SEQS * ROWS * row * 4), must_alloc(SEQS * ROWS * row * 4) },
          *last = must_alloc(N * row * 4);
    rig_tokens(token, N + ROWS, row, 8);
    for (size_t way = 0; way < 2; way++) {
        struct pass_seq s[SEQS];
        for (size_t i = 0; i < SEQS; i++) {
            rig_kv(&r, &kv[way][i], N + 2 * ROWS, NODES);
            run_rows(&r, &kv[way][i], token + i, 10 + 9 * i, 10, true, last);
            run_rows(&r, &kv[way][i], token, i, 4, false, last);       /* i pending rows */
            s[i] = (struct pass_seq){ .kv = &kv[way][i], .n = ROWS, .token = token + i, .want = all,
                                      .parent = i == 1 ? parent : NULL, .certain = i == 2,
                                      .logits = logits[way] + i * ROWS * row };
        }
        for (size_t i = 0; i < SEQS; i += way ? SEQS : 1)
            if (model_forward(&r.m, r.w, s + i, way ? SEQS : 1, NULL, 0, &e)) rig_die("pass", &e);
        kv_advance(&kv[way][0], 3);
        kv_commit_path(&kv[way][1], (const uint32_t[]){ 0, 1, 4 }, 3);
        kv_advance(&kv[way][2], ROWS);
    }
    CHECK(!memcmp(logits[0], logits[1], SEQS * ROWS * row * 4), "%s: logits differ", what);
    for (size_t i = 0; i < SEQS; i++)
        CHECK(same_caches(&r, &kv[0][i], &kv[1][i]), "%s: text %zu differs", what, i);
    CHECK(!same_caches(&r, &kv[0][0], &kv[0][1]), "%s: all texts are equal", what);
    for (size_t i = 0; i < 2 * SEQS; i++) kv_close(&kv[i / SEQS][i % SEQS]);
    free(logits[0]), free(logits[1]), free(last), rig_close(&r);
}

static void several_texts_in_a_pass(void) { every_model(several_of); }

/* A cut within the pending rows keeps the states; one below forgets all rows. */
static void cuts_forget_rows(void)
{
    enum { N = 40 };
    struct rig r;
    struct kv kv, other;
    int32_t token[N];
    char dir[4096];
    tiny_write(&tiny_hybrids[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, N, N);
    float *logits = must_alloc(N * r.c.vocab * 4);
    rig_tokens(token, N, r.c.vocab, 4);
    rig_kv(&r, &kv, N, 8), rig_kv(&r, &other, N, 8);
    run_rows(&r, &kv, token, 20, 20, true, logits);
    run_rows(&r, &kv, token + 20, 6, 6, false, logits);
    kv_truncate(&kv, 22);
    CHECK(kv.n_past == 22, "%zu rows", kv.n_past);
    run_rows(&r, &kv, token + 22, 8, 8, false, logits);
    run_rows(&r, &other, token, 30, 1, false, logits);
    CHECK(same_caches(&r, &kv, &other), "the cut changed the rest");
    kv_truncate(&kv, 29);
    CHECK(kv.n_past == 0 && kv.state->at == 0, "%zu rows after a cut below the states", kv.n_past);
    run_rows(&r, &kv, token, 30, 7, true, logits);
    CHECK(same_caches(&r, &kv, &other), "reading again differs");
    kv_close(&kv), kv_close(&other), rig_close(&r), free(logits);
    tiny_remove(dir);
}

/* Writes x over the first number of a tensor of an F32 model. */
/* A text that may be cut back to a row that moves on: one of the copies lies before it, wherever the cut. */
static void copies_lie_before_every_cut(void)
{
    const struct delta_shape shape = { 1, 1, 1, 16, 16, 4, false };
    struct states *s;
    struct err e;
    struct rng rng = { 9 };
    size_t final = 0, most = 0;
    if (state_open(&s, &shape, 4, 0, true, &e)) rig_die("states", &e);
    s->final = &final;
    for (size_t row = 0; row < 20000; row++) {
        state_passed(s, 1);
        state_commit(s, NULL, 1);
        s->d.state[0] = (float)s->at;
        if (rng_below(&rng, 3) == 0)
            final = MAX(final, s->at - MIN(s->at, rng_below(&rng, 4) ? 5 : rng_below(&rng, 900)));
        if (row % 331 || final < 600 || s->at < final)
            continue;
        const size_t at = state_truncate(s, final + rng_below(&rng, (uint32_t)(s->at - final + 1)));
        CHECK(at > 0 && s->at == at, "row %zu, final %zu", row, final);
        CHECK((size_t)s->d.state[0] + 1 == at || (size_t)s->d.state[0] == at, "%g at %zu",
              (double)s->d.state[0], at);
        most = MAX(most, final - MIN(at, final));
    }
    CHECK(most > 0 && most < 2000, "read again at most %zu rows", most);
    state_close(s);
}

static void overwrite(const char *dir, const char *name, float x)
{
    char path[4200], *at;
    uint8_t length[8];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "r+b");
    if (!f || fread(length, 1, 8, f) != 8) abort();
    for (size_t i = 0; i < 8; i++) n |= (size_t)length[i] << 8 * i;
    char *header = calloc(1, n + 1);
    if (!header || fread(header, 1, n, f) != n || !(at = strstr(header, name)) ||
        !(at = strstr(at, "data_offsets")))
        abort();
    const long offset = strtol(strchr(at, '[') + 1, NULL, 10);
    if (fseek(f, 8 + (long)n + offset, SEEK_SET) || fwrite(&x, sizeof x, 1, f) != 1 || fclose(f)) abort();
    free(header);
}

/* A gate that no input moves keeps a state forever, or forgets it at once; NaN ends a pass with one line. */
static void gates_at_their_ends(void)
{
    enum { N = 30 };
    static const struct { const char *name; float x, same; } of[] = {
        { "layers.0.linear_attn.dt_bias", -INFINITY, -500 }, { "layers.0.linear_attn.dt_bias", 1e30f, 1e20f },
        { "layers.0.linear_attn.A_log", INFINITY, 300 },
        { "layers.0.linear_attn.A_log", -INFINITY, -300 },
        { "layers.0.linear_attn.A_log", NAN, NAN },          { "layers.0.linear_attn.dt_bias", NAN, NAN },
        { "layers.1.linear_attn.conv1d", NAN, NAN },         { "layers.0.linear_attn.in_proj_b", NAN, NAN },
    };
    int32_t token[N];
    char dir[4096];
    float *logits[3] = { NULL };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const bool bad = isnan(of[i].x);
        tiny_write(&tiny_hybrids[1], dir);
        for (int way = 0; way < 3; way++) {      /* the model as it is, x, and a number like it */
            struct rig r;
            struct kv kv;
            struct err e = { 0 };
            if (way) overwrite(dir, of[i].name, way == 1 ? of[i].x : of[i].same);
            rig_open(&r, dir, DT_F32, best_twin(), 1, N, N);
            logits[way] = must_alloc(r.c.vocab * sizeof(float));
            rig_tokens(token, N, r.c.vocab, 4), rig_kv(&r, &kv, N, 0);
            struct pass_seq s = { .kv = &kv, .n = N, .token = token, .certain = true, .logits = logits[way] };
            const int rc = model_forward(&r.m, r.w, &s, 1, NULL, 0, &e);
            CHECK((rc != 0) == (way && bad), "%s = %g: %s", of[i].name, (double)of[i].x, e.msg);
            if (rc) CHECK(strstr(e.msg, "not a finite number") && !strchr(e.msg, '\n'), "%s", e.msg);
            if (way == 1 && !bad)
                CHECK(memcmp(logits[0], logits[1], r.c.vocab * 4), "%s = %g", of[i].name, (double)of[i].x);
            if (way == 2 && !bad)
                CHECK(!memcmp(logits[1], logits[2], r.c.vocab * 4), "%s = %g", of[i].name, (double)of[i].x);
            kv_close(&kv), rig_close(&r);
        }
        for (int way = 0; way < 3; way++) free(logits[way]);
        tiny_remove(dir);
    }
}

/* 100,000 tokens cut at random, in every twin, against one by one: the states and all rows. */
static void a_long_text(void)
{
    enum { N = 100000, ROWS = 256 };
    struct rig base, r;
    struct kv kv[2];
    struct rng rng = { 12 };
    char dir[4096];
    const size_t n = long_test ? N : 1500;
    tiny_write(&tiny_hybrids[1], dir);
    rig_open(&base, dir, DT_BF16, best_twin(), 1, ROWS, n);
    int32_t *token = must_alloc(n * sizeof *token);
    float *logits = must_alloc(ROWS * base.c.vocab * 4);
    rig_tokens(token, n, base.c.vocab, 4);
    rig_kv(&base, &kv[0], n, 16);
    for (size_t i = 0; i < n; i++)
        run_rows(&base, &kv[0], token + i, 1, 1, false, logits);
    FOR_TWINS(o) {
        if (!long_test && o != best_twin()) continue;
        rig_open(&r, dir, DT_BF16, o, 1, ROWS, n);
        rig_kv(&r, &kv[1], n, 16);
        for (size_t i = 0, m; i < n; i += m) {
            const bool certain = rng_below(&rng, 2);
            const size_t wanted = 1 + rng_below(&rng, certain ? ROWS : 16);
            m = MIN(n - i, wanted);
            run_rows(&r, &kv[1], token + i, m, m, certain, logits);
        }
        CHECK(same_caches(&base, &kv[0], &kv[1]), "%s: %zu tokens differ", o->name, n);
        if (long_test) printf("# %s: %zu tokens compared\n", o->name, kv[1].n_past);
        kv_close(&kv[1]), rig_close(&r);
    }
    kv_close(&kv[0]), rig_close(&base), free(logits), free(token);
    tiny_remove(dir);
}

/* ---- decoders ---- */

#define BIT(x) (1u << DRAFTER_##x)
enum { PROMPT = 90, END = 420 };

static void open_decoder(struct decoder *d, const struct rig *r, const struct sampling *p,
                         const struct decode_setup *s, const int32_t *prompt, size_t n_max)
{
    struct err e;
    if (decode_open(d, &r->m, p, s, prompt, PROMPT, n_max, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

static void finish_text(struct decoder *d, size_t n)
{
    struct err e;
    while (d->n_tokens < n)
        if (decode_step(d, &e)) rig_die("step", &e);
}

/* A prompt with repetitions, so that n-grams and suffixes find something. */
static void make_prompt(int32_t *prompt, size_t vocab)
{
    rig_tokens(prompt, PROMPT, vocab, 2);
    memcpy(prompt + PROMPT / 2, prompt, PROMPT / 3 * sizeof *prompt);
}

static void setting(struct decode_setup *s, struct oracle *o, size_t i, const int32_t *text)
{
    *s = (struct decode_setup){ 0 };
    draft_defaults(&s->draft);
    s->draft.drafters = BIT(NGRAM) | BIT(SUFFIX);
    if (i == 1)
        s->draft.width[0] = 2, s->draft.width[1] = 2, s->draft.n_width = 2;
    if (i < 2) return;
    *o = (struct oracle){ .depth = i - 2, .tokens = text, .n_tokens = END };
    s->draft.drafters |= BIT(ADDED);
    oracle_set(&s->draft, o);
    if (i % 2)
        s->draft.width[0] = 1, s->draft.n_width = 1;
}

static void text_is_that_of_plain_decoding(void)
{
    enum { SETTINGS = 9 };
    static const double temperature[] = { 0, 0.7, 1.2 };
    size_t deep = 0;
    for (size_t t = 0; t < N_TINY_HYBRIDS; t++) {
        struct rig r;
        char dir[4096];
        int32_t prompt[PROMPT];
        tiny_write(&tiny_hybrids[t], dir);
        rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
        make_prompt(prompt, r.c.vocab);
        for (size_t k = 0; k < 3; k++) {
            struct decoder plain, d;
            struct sampling p;
            sampling_defaults(&p);
            p.seed = k, p.temperature = temperature[k], p.text_max = END;
            if (k == 2) p.penalty = 1.2, p.penalty_window = 30, p.min_p = 0.05;
            open_decoder(&plain, &r, &p, NULL, prompt, END);
            finish_text(&plain, END);
            for (size_t i = 0; i < SETTINGS; i++) {
                struct decode_setup s;
                struct oracle o;
                setting(&s, &o, i, plain.tokens);
                open_decoder(&d, &r, &p, &s, prompt, END);
                size_t at = PROMPT;
                while (d.n_tokens < END) {
                    struct err e;
                    if (decode_step(&d, &e)) rig_die("step", &e);
                    deep += d.n_tokens - at > 4, at = d.n_tokens;
                }
                CHECK(!memcmp(d.tokens, plain.tokens, END * sizeof *d.tokens), "%s: setting %zu at %g",
                      tiny_hybrids[t].name, i, p.temperature);
                decode_close(&d);
            }
            decode_close(&plain);
        }
        rig_close(&r), tiny_remove(dir);
    }
    CHECK(deep > 100, "only %zu rounds accepted more candidates than the convolution has rows", deep);
}

/* Four decoders in one pass equal the same decoders alone. */
static void texts_together(void)
{
    enum { TEXTS = 4 };
    struct rig r;
    struct decoder d[2][TEXTS], *list[TEXTS];
    struct round_buffers buffers = { 0 };
    struct decode_setup s;
    struct oracle o[TEXTS];
    struct err e;
    int32_t prompt[PROMPT];
    char dir[4096];
    tiny_write(&tiny_hybrids[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
    make_prompt(prompt, r.c.vocab);
    for (size_t i = 0; i < TEXTS; i++) {
        struct sampling p;
        sampling_defaults(&p);
        p.seed = i, p.temperature = 0.8, p.text_max = END;
        open_decoder(&d[0][i], &r, &p, NULL, prompt, END);
        finish_text(&d[0][i], END);
        setting(&s, &o[i], 2 + 2 * i, d[0][i].tokens);
        s.buffers = &buffers;
        if (!buffers.model && round_buffers_open(&buffers, &r.m, 256, 64, END, &e)) rig_die("buffers", &e);
        open_decoder(&d[1][i], &r, &p, &s, prompt, END);
    }
    for (size_t n = TEXTS; n > 0;) {
        n = 0;
        for (size_t i = 0; i < TEXTS; i++)
            if (d[1][i].n_tokens < END) list[n++] = &d[1][i];
        if (n && decode_round(list, n, &e)) rig_die("round", &e);
    }
    for (size_t i = 0; i < TEXTS; i++)
        CHECK(!memcmp(d[0][i].tokens, d[1][i].tokens, END * sizeof(int32_t)), "text %zu differs", i);
    for (size_t i = 0; i < TEXTS; i++) decode_close(&d[0][i]), decode_close(&d[1][i]);
    round_buffers_close(&buffers);
    rig_close(&r), tiny_remove(dir);
}

/* A text that begins like another takes its blocks and the states that the other one kept at the end of its
 * prompt; so does one that begins like a text that has ended. */
static void texts_that_begin_alike(void)
{
    enum { MARK = (PROMPT - 1) / KV_BLOCK * KV_BLOCK };
    struct rig r;
    struct decoder plain, d[3];
    struct prefixes list = { 0 };
    struct sampling p;
    struct err e;
    struct kv kv;
    int32_t prompt[PROMPT], other[PROMPT], *tokens;
    char dir[4096];
    tiny_write(&tiny_hybrids[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
    make_prompt(prompt, r.c.vocab);
    memcpy(other, prompt, sizeof other);
    other[MARK - 1] = (prompt[MARK - 1] + 1) % (int32_t)r.c.vocab;
    sampling_defaults(&p);
    p.temperature = 0.9, p.text_max = END;
    open_decoder(&plain, &r, &p, NULL, prompt, END);
    finish_text(&plain, END);
    for (size_t i = 0; i < 3; i++) {
        struct prefix_match m = prefix_find(&list, prompt, PROMPT);
        CHECK(i ? m.kv && m.n_rows == MARK && !m.n_coming : !m.kv && !m.n_rows && !m.n_coming,
              "text %zu: %zu rows now, %zu later", i, m.n_rows, m.n_coming);
        CHECK(!prefix_find(&list, other, PROMPT).kv && !prefix_find(&list, other, PROMPT).n_coming);
        struct decode_setup s = { .start = { m.kv, m.n_rows, &list.total } };
        if (decode_open(&d[i], &r.m, &p, &s, prompt, PROMPT, END, &e)) rig_die("decoder", &e);
        prefix_join(&list, &d[i].kv, d[i].tokens, &d[i].n_tokens);
        CHECK(i || prefix_find(&list, prompt, PROMPT).n_coming == MARK);
        if (decode_prefill(&d[i], 0, NULL, NULL, &e)) rig_die("prefill", &e);
        CHECK(d[i].count.prefill_tokens == (i ? PROMPT - 1 - MARK : PROMPT - 1), "text %zu read %zu", i,
              d[i].count.prefill_tokens);
        finish_text(&d[i], END);
        CHECK(!memcmp(d[i].tokens, plain.tokens, END * sizeof *plain.tokens), "text %zu differs", i);
        if (i == 0) {                            /* a cut below the mark forgets it, until it is read again */
            kv_truncate(&d[i].kv, MARK - 1);
            m = prefix_find(&list, prompt, PROMPT);
            CHECK(!d[i].kv.n_past && !m.kv && m.n_coming == MARK, "%zu rows, of which others share %zu",
                  d[i].kv.n_past, m.n_rows);
            if (decode_prefill(&d[i], 0, NULL, NULL, &e)) rig_die("prefill", &e);
        }
        if (i == 1) {                            /* a cut below the states goes back to the mark */
            kv_truncate(&d[i].kv, END - 50);
            CHECK(d[i].kv.n_past == MARK, "%zu rows after a cut", d[i].kv.n_past);
            if (decode_prefill(&d[i], 0, NULL, NULL, &e)) rig_die("prefill", &e);
            CHECK(same_caches(&r, &d[0].kv, &d[1].kv), "reading again differs");
            for (size_t k = 0; k < 2; k++) {
                prefix_leave(&list, &d[k].kv);
                decode_close_but(&d[k], &kv, &tokens);
                prefix_keep(&list, &kv, tokens);
            }
        }
    }
    prefix_leave(&list, &d[2].kv);
    decode_close(&d[2]), decode_close(&plain);
    CHECK(list.n == 2 && prefix_kept_bytes(&list) > 0, "%zu kept", list.n);
    prefix_close(&list);
    rig_close(&r), tiny_remove(dir);
}

/* Texts of different prompts keep their states where they split: the first one, if it learns of the second
 * one in time, else the second one, for the third. Nobody moves a mark for less than half of a prompt. */
static void texts_split_at_a_block(void)
{
    enum { LONG = 300, COMMON = 200, SPLIT = 192, AIM = (LONG - 1) / KV_BLOCK * KV_BLOCK, ALL = LONG + 40 };
    struct rig r;
    struct decoder plain, d[3];
    struct sampling p;
    struct err e;
    int32_t prompt[4][LONG];
    char dir[4096];
    tiny_write(&tiny_hybrids[2], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
    for (size_t i = 0; i < 4; i++) {
        rig_tokens(prompt[i], LONG, r.c.vocab, 20 + i);
        memcpy(prompt[i], prompt[0], (i < 3 ? COMMON : 70) * sizeof *prompt[0]);
        prompt[i][COMMON] = (int32_t)i;
    }
    sampling_defaults(&p);
    p.temperature = 0.9, p.text_max = ALL;
    for (size_t late = 0; late < 2; late++) {
        struct prefixes list = { 0 };
        for (size_t i = 0; i < 3; i++) {
            const struct prefix_match m = prefix_find(&list, prompt[i], LONG);
            const size_t shared = i > late ? SPLIT : 0;
            CHECK(m.n_rows == shared && m.n_split == (i ? SPLIT : 0) && !m.n_coming,
                  "late %zu, text %zu: %zu", late, i, m.n_rows);
            const struct decode_setup s = { .start = { m.kv, m.n_rows, &list.total, m.n_split } };
            if (decode_open(&d[i], &r.m, &p, &s, prompt[i], LONG, ALL, &e)) rig_die("decoder", &e);
            prefix_join(&list, &d[i].kv, d[i].tokens, &d[i].n_tokens);
            const size_t aim = i == 1 && late ? SPLIT : AIM;
            CHECK(d[i].kv.state->mark.want == aim, "aimed at %zu", d[i].kv.state->mark.want);
            if (i == 0) {
                CHECK(!prefix_find(&list, prompt[3], LONG).n_coming && d[0].kv.state->mark.want == AIM);
                if (!late) CHECK(prefix_find(&list, prompt[1], LONG).n_coming == SPLIT);
            }
            if (decode_prefill(&d[i], 0, NULL, NULL, &e)) rig_die("prefill", &e);
            CHECK(d[i].count.prefill_tokens == LONG - 1 - shared, "late %zu, text %zu read %zu", late, i,
                  d[i].count.prefill_tokens);
            finish_text(&d[i], ALL);
            if (decode_open(&plain, &r.m, &p, NULL, prompt[i], LONG, ALL, &e) ||
                decode_prefill(&plain, 0, NULL, NULL, &e)) rig_die("plain", &e);
            finish_text(&plain, ALL);
            CHECK(!memcmp(d[i].tokens, plain.tokens, ALL * sizeof *plain.tokens), "text %zu differs", i);
            decode_close(&plain);
        }
        for (size_t i = 0; i < 3; i++) prefix_leave(&list, &d[i].kv), decode_close(&d[i]);
        prefix_close(&list);
    }
    rig_close(&r), tiny_remove(dir);
}

static void drafters_with_caches_are_refused(void)
{
    static const unsigned no[] = { BIT(PARTIAL), BIT(HEADS), BIT(LONGSPEC), BIT(SPIRE) };
    struct draft_settings s;
    struct config c;
    struct err e;
    struct device dev = { .host_memory = true };
    if (config_read(&c, "build/data/models/qwen35-equal-f32", &e)) rig_die("config", &e);
    draft_defaults(&s);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        s.drafters = no[i] | BIT(NGRAM);
        CHECK(draft_check_model(&s, &dev, &c, &e) && e.code == ERR_INPUT && strstr(e.msg, "ngram, suffix"),
              "%s", e.msg);
    }
    s.drafters = BIT(NGRAM) | BIT(SUFFIX) | BIT(MODEL);
    CHECK(!draft_check_model(&s, &dev, &c, &e), "%s", e.msg);
    CHECK(draft_of_config(&c) >> DRAFTER_SUFFIX & 1 && !(draft_of_config(&c) >> DRAFTER_PARTIAL & 1));
}

/* ---- snapshots ---- */

static const struct snapshot_owner file_owner = { .job = 7, .attempt = 1, .fingerprint = "f",
                                                  .numerics = "n" };

static void write_image(struct image *m, size_t from, size_t rows, const char *path)
{
    struct err e;
    FILE *f = fopen(path, "wb");
    CHECK(f && image_capture(m, from, rows) > 0 && image_write(m, fileno(f), NULL, &e) == 0, "%s", e.msg);
    if (f) fclose(f);
}

/* Images at any position, one after the other; the decoder that wrote them goes on with the same text, and so
 * does one that reads them. A file whose bytes changed is refused and leaves the decoder as it was. */
static void snapshots_continue_the_text(void)
{
    struct rig r;
    struct decoder plain, d[2];
    struct image m[2];
    struct decode_setup s;
    struct oracle o;
    struct sampling p;
    struct err e;
    int32_t prompt[PROMPT];
    char dir[4096], path[2][4200];
    tiny_write(&tiny_hybrids[1], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
    make_prompt(prompt, r.c.vocab);
    sampling_defaults(&p);
    p.temperature = 0.8, p.text_max = END;
    open_decoder(&plain, &r, &p, NULL, prompt, END);
    finish_text(&plain, END);
    setting(&s, &o, 5, plain.tokens);
    open_decoder(&d[0], &r, &p, &s, prompt, END);
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/image%d", dir, i);
    if (image_open(&m[0], &d[0], &file_owner, &e)) rig_die("image", &e);
    finish_text(&d[0], 150);
    const size_t first = image_rows(&m[0], d[0].n_tokens);
    CHECK(first == d[0].kv.n_past && first % KV_BLOCK != 0, "%zu rows", first);
    write_image(&m[0], 0, first, path[0]);
    finish_text(&d[0], 300);
    write_image(&m[0], first, image_rows(&m[0], d[0].n_tokens), path[1]);
    for (int damaged = 0; damaged < 2; damaged++) {
        if (decode_open(&d[1], &r.m, &p, &s, prompt, PROMPT, END, &e)) rig_die("decoder", &e);
        decode_append(&d[1], d[0].tokens + PROMPT, d[0].n_tokens - PROMPT);
        if (image_open(&m[1], &d[1], &file_owner, &e)) rig_die("image", &e);
        CHECK(image_restore(&m[1], path[0], &e) == 0 && d[1].kv.n_past == first, "%s", e.msg);
        if (damaged) {
            FILE *f = fopen(path[1], "r+b");
            CHECK(f && fseek(f, 4096 + 30000, SEEK_SET) == 0 && fputc(0x5a, f) == 0x5a && fclose(f) == 0);
            CHECK(image_restore(&m[1], path[1], &e) != 0 && d[1].kv.n_past == first, "damaged");
        } else {
            CHECK(image_restore(&m[1], path[1], &e) == 0 && d[1].kv.n_past == d[0].kv.n_past, "%s", e.msg);
            CHECK(same_caches(&r, &d[0].kv, &d[1].kv), "the restored states differ");
        }
        if (decode_prefill(&d[1], 0, NULL, NULL, &e)) rig_die("prefill", &e);
        finish_text(&d[1], END);
        CHECK(!memcmp(d[1].tokens, plain.tokens, END * sizeof *d[1].tokens), "the text differs");
        image_close(&m[1]), decode_close(&d[1]);
    }
    finish_text(&d[0], END);
    CHECK(!memcmp(d[0].tokens, plain.tokens, END * sizeof *d[0].tokens), "taking images changed the text");
    image_close(&m[0]), decode_close(&d[0]), decode_close(&plain);
    for (int i = 0; i < 2; i++) unlink(path[i]);
    rig_close(&r), tiny_remove(dir);
}

int main(int argc, char **argv)
{
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    RUN(steps_have_the_defined_bits);
    RUN(small_operations_agree);
    RUN(any_cut_gives_the_same_bits);
    RUN(trees_leave_the_states_alone);
    RUN(several_texts_in_a_pass);
    RUN(cuts_forget_rows);
    RUN(copies_lie_before_every_cut);
    RUN(gates_at_their_ends);
    RUN(a_long_text);
    RUN(text_is_that_of_plain_decoding);
    RUN(texts_together);
    RUN(texts_that_begin_alike);
    RUN(texts_split_at_a_block);
    RUN(drafters_with_caches_are_refused);
    RUN(snapshots_continue_the_text);
    return test_end();
}
