/* Whole models on the emulated device (or a GPU, see tests/device_open.h): the kernels of the GPU, compiled as C, under the engine's own forward pass, caches and rounds. */
#include "src/decode.h"
#include "tests/device_open.h"
#include "tests/rig.h"

enum { N = 75, ROWS = 40, VOCAB_MAX = 300 };

static void device_rig_open(struct rig *r, const char *dir, size_t rows_max, size_t n_max)
{
    struct err e = { 0 };
    memset(r, 0, sizeof *r);
    r->pool = pool_open(1), r->rows_max = rows_max, r->n_max = n_max;
    if (test_device_open(&r->dev, e.msg, sizeof e.msg)) rig_die("device", &e);
    if (config_read(&r->c, dir, &e) || model_open(&r->m, dir, &r->c, DT_BF16, r->dev, best_twin(), r->pool, NULL, NULL, &e)) rig_die("model", &e);
    if (rows_max && workspace_open(&r->w, &r->m, rows_max, n_max, &e)) rig_die("workspace", &e);
}

/* Logits [n][vocab] of n rows behind what the cache holds; a chain is kept. */
static float *pass(const struct rig *r, struct kv *kv, const int32_t *token, const int32_t *parent, size_t n)
{
    static uint8_t all[ROWS];
    struct err e = { 0 };
    const size_t bytes = n * r->c.vocab * sizeof(float);
    float *at = r->dev->alloc(r->dev, bytes), *got = malloc(bytes);
    memset(all, 1, sizeof all);
    struct pass_seq s = { .kv = kv, .n = n, .token = token, .parent = parent, .want = all, .logits = at };
    if (model_forward(&r->m, r->w, &s, 1, NULL, 0, &e)) rig_die("pass", &e);
    if (!parent) kv_advance(kv, n);
    CHECK(r->dev->download(r->dev, got, at, bytes) == 0);
    r->dev->free(r->dev, at, bytes);
    return got;
}

static float *run_in(const struct rig *r, struct kv *kv, const int32_t *token, size_t n, size_t m)
{
    float *all = malloc(n * r->c.vocab * sizeof *all);
    for (size_t i = 0; i < n; i += m) {
        const size_t rows = MIN(m, n - i);
        float *some = pass(r, kv, token + i, NULL, rows);
        memcpy(all + i * r->c.vocab, some, rows * r->c.vocab * sizeof *all);
        free(some);
    }
    return all;
}

static void logits_are_near_the_cpus(const struct tiny *t)
{
    char dir[4096];
    struct rig cpu, gpu;
    struct kv a, b;
    int32_t token[N];
    tiny_write(t, dir);
    rig_open(&cpu, dir, DT_BF16, best_twin(), 1, ROWS, N), device_rig_open(&gpu, dir, ROWS, N);
    rig_kv(&cpu, &a, N, 0), rig_kv(&gpu, &b, N, 0);
    rig_tokens(token, N, t->vocab, 7);
    float *x = run_in(&cpu, &a, token, N, ROWS), *y = run_in(&gpu, &b, token, N, ROWS);
    double sum = 0, diff = 0, most = 0;
    for (size_t i = 0; i < N * t->vocab; i++) {
        const double d = (double)x[i] - y[i];
        sum += (double)x[i] * x[i], diff += d * d, most = MAX(most, fabs(d));
    }
    /* Both round operands to bf16 (2^-9) at the same places; sums differ in order, so now and then a rounding does. */
    CHECK(sum > 0 && sqrt(diff / sum) < 0.01, "%s: root mean square of differences %.4f of the logits'", t->name, sqrt(diff / sum));
    CHECK(most < 0.15, "%s: largest difference %.4f", t->name, most);
    free(x), free(y), kv_close(&a), kv_close(&b), rig_close(&cpu), rig_close(&gpu), tiny_remove(dir);
}

static void the_forward_pass_of_every_kind_of_model(void)
{
    for (size_t i = 0; i < N_TINY; i++)
        logits_are_near_the_cpus(&tiny_models[i]);
}

/* Rows alone, in passes of several sizes, and in a tree: the same bits. */
static void a_row_is_a_row_on_the_device(void)
{
    static const size_t sizes[] = { 1, 3, 16, 17 };
    static const int32_t parent[] = { -1, 0, 0, 1, 3, 2, -1, 4 };      /* rows 0 1 3 4 7 are the text */
    static const size_t chain[] = { 0, 1, 3, 4, 7 };
    char dir[4096];
    struct rig r;
    struct kv kv;
    int32_t token[N], node[8];
    const size_t from = 62;                      /* the tree crosses a block */
    tiny_write(&tiny_models[0], dir);
    device_rig_open(&r, dir, ROWS, N);
    rig_kv(&r, &kv, N, 8);
    rig_tokens(token, N, r.c.vocab, 11);
    const size_t row = r.c.vocab * sizeof(float);
    float *truth = run_in(&r, &kv, token, N, ROWS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kv_truncate(&kv, 0);
        float *got = run_in(&r, &kv, token, N, sizes[i]);
        CHECK(memcmp(got, truth, N * row) == 0, "passes of %zu rows", sizes[i]);
        free(got);
    }
    kv_truncate(&kv, from);
    rig_tokens(node, 8, r.c.vocab, 13);
    for (size_t i = 0; i < 5; i++)
        node[chain[i]] = token[from + i];
    float *got = pass(&r, &kv, node, parent, 8);
    for (size_t i = 0; i < 5; i++)
        CHECK(memcmp(got + chain[i] * r.c.vocab, truth + (from + i) * r.c.vocab, row) == 0, "node %zu of a tree", chain[i]);
    kv_commit_path(&kv, (const uint32_t[]){ 0, 1, 3, 4, 7 }, 5);
    float *next = pass(&r, &kv, token + from + 5, NULL, 1);
    CHECK(memcmp(next, truth + (from + 5) * r.c.vocab, row) == 0, "behind a committed path");
    free(next), free(got), free(truth), kv_close(&kv), rig_close(&r), tiny_remove(dir);
}

static void write_text(const struct rig *r, const struct sampling *p, const struct decode_setup *setup, size_t n, int32_t *text, size_t *rounds, size_t *refreshes)
{
    struct err e = { 0 };
    struct decoder d;
    int32_t prompt[16];
    rig_tokens(prompt, 16, r->c.vocab, 3);
    if (decode_open(&d, &r->m, p, setup, prompt, 16, 16 + n, &e) || decode_prefill(&d, NULL, NULL, &e)) rig_die("decoder", &e);
    for (*rounds = *refreshes = 0; d.n_tokens < d.n_max; ++*rounds, *refreshes += d.round.refreshes)
        if (decode_step(&d, &e)) rig_die("round", &e);
    memcpy(text, d.tokens + 16, n * sizeof *text);
    decode_close(&d);
}

/* Drafting with a partial cache and the model's heads, at temperature 0 and 1: the bytes of plain decoding. */
static void speculation_never_changes_the_text(void)
{
    enum { TEXT = 40 };
    char dir[4096];
    struct rig r;
    struct tiny t = tiny_models[0];
    struct decode_setup setup = { 0 };
    int32_t plain[TEXT], drafted[TEXT];
    t.heads_inside = 2;
    tiny_write(&t, dir);
    device_rig_open(&r, dir, 0, 0);
    struct heads heads;
    struct err e = { 0 };
    if (heads_open(&heads, NULL, &r.m, &e)) rig_die("heads", &e);
    draft_defaults(&setup.draft);
    setup.heads = &heads;
    setup.draft.drafters |= 1u << SOURCE_HEADS;
    setup.draft.width[0] = 2, setup.draft.width[1] = 2, setup.draft.n_width = 2, setup.draft.ngram_k = 2;
    setup.draft.kv_sinks = 2, setup.draft.kv_budget = 20, setup.draft.kv_fixed = true, setup.draft.draft_passes = 1;
    for (int hot = 0; hot < 2; hot++) {
        struct sampling p;
        size_t rounds, refreshes;
        sampling_defaults(&p);
        p.seed = 5, p.temperature = hot, p.penalty = 1.2, p.text_max = 16 + TEXT;
        write_text(&r, &p, NULL, TEXT, plain, &rounds, &refreshes);
        CHECK(rounds == TEXT, "%zu rounds", rounds);
        write_text(&r, &p, &setup, TEXT, drafted, &rounds, &refreshes);
        CHECK(memcmp(plain, drafted, sizeof plain) == 0, "temperature %d", hot);
        CHECK(rounds < TEXT && refreshes > 0, "%zu rounds of drafting, %zu selections: it was to do something", rounds, refreshes);
    }
    heads_close(&heads), rig_close(&r), tiny_remove(dir);
}

int main(void)
{
    struct device *d;
    char why[256];
    if (test_device_open(&d, why, sizeof why)) {
        printf("skip test_forward (%s)\n", why);
        return 0;
    }
    d->close(d);
    RUN(the_forward_pass_of_every_kind_of_model);
    RUN(a_row_is_a_row_on_the_device);
    RUN(speculation_never_changes_the_text);
    return test_end();
}
