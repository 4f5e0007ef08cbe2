/* Whole models on the emulated GPU (or a GPU, see tests/device_open.h): the GPU's kernels under the engine's
 * own forward pass, caches and rounds. */
#include "src/model/heads.h"
#include "src/decode/decode.h"
#include "tests/oracle.h"
#include "tests/device_open.h"
#include "tests/rig.h"

enum { N = 75, ROWS = 40, VOCAB_MAX = 300 };

static void device_rig_open(struct rig *r, const char *dir, size_t rows_max, size_t n_max)
{
    struct err e = { 0 };
    memset(r, 0, sizeof *r);
    r->pool = pool_open(1), r->rows_max = rows_max, r->n_max = n_max;
    if (test_device_open(&r->dev, e.msg, sizeof e.msg)) rig_die("device", &e);
    if (config_read(&r->c, dir, &e) ||
        model_open(&r->m, dir, &(struct model_setup){ &r->c, DT_BF16, r->dev, best_twin(), r->pool }, &e))
        rig_die("model", &e);
    if (rows_max && workspace_open(&r->w, &r->m, rows_max, n_max, &e)) rig_die("workspace", &e);
}

/* Logits [n][vocab] of n rows after the cached rows; the rows of a chain are committed. */
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
    rig_open_kv(&cpu, dir, DT_BF16, DT_BF16, best_twin(), 1, ROWS, N), device_rig_open(&gpu, dir, ROWS, N);
    rig_kv(&cpu, &a, N, 0), rig_kv(&gpu, &b, N, 0);
    rig_tokens(token, N, t->vocab, 7);
    float *x = run_in(&cpu, &a, token, N, ROWS), *y = run_in(&gpu, &b, token, N, ROWS);
    double sum = 0, diff = 0, most = 0;
    for (size_t i = 0; i < N * t->vocab; i++) {
        const double d = (double)x[i] - y[i];
        sum += (double)x[i] * x[i], diff += d * d, most = MAX(most, fabs(d));
    }
    /* Both round operands to bf16 (2^-9) at the same places. Sums differ in order, so a rounding differs now
     * and then. */
    CHECK(sum > 0 && sqrt(diff / sum) < 0.01, "%s: root mean square of differences %.4f of the logits'",
          t->name, sqrt(diff / sum));
    CHECK(most < 0.15, "%s: largest difference %.4f", t->name, most);
    free(x), free(y), kv_close(&a), kv_close(&b), rig_close(&cpu), rig_close(&gpu), tiny_remove(dir);
}

static void the_forward_pass_of_every_kind_of_model(void)
{
    for (size_t i = 0; i < N_TINY; i++)
        if (!tiny_models[i].experts && !tiny_is_gemma(&tiny_models[i]))
            logits_are_near_the_cpus(&tiny_models[i]);
}

/* Rows alone, in passes of several sizes, and in a tree give the same bits. */
static void a_row_is_a_row_on_the_device(void)
{
    static const size_t sizes[] = { 1, 3, 16, 17 };
    static const int32_t parent[] = { -1, 0, 0, 1, 3, 2, -1, 4 };      /* rows 0 1 3 4 7 are the text */
    static const size_t chain[] = { 0, 1, 3, 4, 7 };
    char dir[4096];
    struct rig r;
    struct kv kv;
    int32_t token[N], node[8];
    const size_t from = 62;                      /* the tree crosses a block border */
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
        CHECK(memcmp(got + chain[i] * r.c.vocab, truth + (from + i) * r.c.vocab, row) == 0,
              "node %zu of a tree", chain[i]);
    kv_commit_path(&kv, (const uint32_t[]){ 0, 1, 3, 4, 7 }, 5);
    float *next = pass(&r, &kv, token + from + 5, NULL, 1);
    CHECK(memcmp(next, truth + (from + 5) * r.c.vocab, row) == 0, "after a committed path");
    free(next), free(got), free(truth), kv_close(&kv), rig_close(&r), tiny_remove(dir);
}

static void write_text(const struct rig *r, const struct sampling *p, const struct decode_setup *setup,
                       size_t n, int32_t *text, size_t *rounds, size_t *refreshes)
{
    struct err e = { 0 };
    struct decoder d;
    int32_t prompt[16];
    rig_tokens(prompt, 16, r->c.vocab, 3);
    if (decode_open(&d, &r->m, p, setup, prompt, 16, 16 + n, &e) || decode_prefill(&d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
    for (*rounds = *refreshes = 0; d.n_tokens < d.n_max; ++*rounds, *refreshes += d.round.selects)
        if (decode_step(&d, &e)) rig_die("round", &e);
    memcpy(text, d.tokens + 16, n * sizeof *text);
    decode_close(&d);
}

/* Drafting with a partial cache and the model's heads gives the bytes of plain decoding, at temperature 0 and
 * 1. */
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
    setup.weights[DRAFTER_HEADS] = &heads;
    setup.draft.drafters |= 1u << DRAFTER_HEADS;
    setup.draft.width[0] = 2, setup.draft.width[1] = 2, setup.draft.n_width = 2, setup.draft.ngram_k = 2;
    setup.draft.kv_sinks = 2, setup.draft.kv_budget = 20, setup.draft.kv_fixed = true,
    setup.draft.draft_passes = 1;
    for (int hot = 0; hot < 2; hot++) {
        struct sampling p;
        size_t rounds, refreshes;
        sampling_defaults(&p);
        p.seed = 5, p.temperature = hot, p.penalty = 1.2, p.text_max = 16 + TEXT;
        write_text(&r, &p, NULL, TEXT, plain, &rounds, &refreshes);
        CHECK(rounds == TEXT, "%zu rounds", rounds);
        write_text(&r, &p, &setup, TEXT, drafted, &rounds, &refreshes);
        CHECK(memcmp(plain, drafted, sizeof plain) == 0, "temperature %d", hot);
        CHECK(rounds < TEXT && refreshes > 0,
              "%zu rounds of drafting, %zu selections: it was to do something", rounds, refreshes);
    }
    heads_close(&heads), rig_close(&r), tiny_remove(dir);
}

/* ---- tokens are sampled on the device ---- */

enum { CHOSEN = 16, PROMPT = 16 };
static const int32_t eos[] = { 5, 17 };
struct sampling_case { const char *name; struct sampling p; };

/* Every filter, penalty and ban, at several temperatures. */
static size_t all_sampling_cases(struct sampling_case *a)
{
    static struct { int32_t id; double bias; } bias[] = { { 5, 3 }, { 9, -INFINITY }, { 40, 6 }, { 41, 6 } };
    static const struct dry_breaker breaker[] = { { 1, { 40 } } };
    static const struct { const char *name; double temperature; long top_k; double top_p, min_p, eta, penalty,
                          presence, frequency, dry; long window; size_t min_tokens; bool biased; } of[] = {
        { "greedy", 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, false },
        { "greedy, penalties, bans", 0, 0, 1, 0, 0, 1.3, 0.5, 0.1, 0.8, 12, 9, true },
        { "0.3, top-k", 0.3, 7, 1, 0, 0, 1.2, 0, 0, 0, 1024, 0, false },
        { "0.7, top-p, all that was", 0.7, 0, 0.8, 0, 0, 1.1, 0, 0, 0, -1, 0, true },
        { "1, min-p, a short window", 1, 0, 1, 0.05, 0, 1.4, 0, 0.3, 0, 3, CHOSEN + 9, true },
        { "1, eta, DRY", 1, 0, 1, 0, 0.01, 1, 0, 0, 1.5, 0, 11, false },
        { "1.5, all", 1.5, 60, 0.95, 0.001, 0.0005, 1.2, 0.4, 0.2, 0.7, 20, 5, true },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct sampling *p = &a[i].p;
        a[i].name = of[i].name;
        sampling_defaults(p);
        p->seed = 100 + i, p->sample = (uint32_t)i, p->temperature = of[i].temperature,
        p->top_k = of[i].top_k, p->top_p = of[i].top_p, p->min_p = of[i].min_p;
        p->eta = of[i].eta, p->penalty = of[i].penalty, p->presence = of[i].presence,
        p->frequency = of[i].frequency, p->penalty_window = of[i].window;
        p->dry_multiplier = of[i].dry, p->dry_allowed = 1, p->dry_breakers = breaker, p->n_dry_breakers = 1,
        p->min_keep = 1 + i % 3;
        p->min_tokens = of[i].min_tokens, p->eos = eos, p->n_eos = 2, p->text_max = PROMPT + CHOSEN;
        if (of[i].biased) p->bias = (void *)bias, p->n_bias = sizeof bias / sizeof *bias;
    }
    return sizeof of / sizeof *of;
}

/* Samples on the host from the device's logits, one row a pass. */
static void sampled_on_the_host(const struct rig *r, const struct sampling *p, int32_t *text)
{
    struct err e = { 0 };
    struct kv kv;
    struct sampler *s;
    rig_kv(r, &kv, PROMPT + CHOSEN, 0);
    if (sampler_open(&s, p, r->c.vocab, ops_all[0], NULL, &e)) rig_die("sampler", &e);
    for (size_t i = 0; i + 1 < PROMPT + CHOSEN; i++) {
        float *x = pass(r, &kv, text + i, NULL, 1);
        if (i + 1 >= PROMPT) text[i + 1] = sampler_sample(s, x, &(struct history){ text, i + 1, PROMPT, NULL,
            0, 0 });
        free(x);
    }
    sampler_close(s), kv_close(&kv);
}

/* Writes the known text again. A round downloads ids, scores and the word that all values are finite. */
static void sampled_on_the_device(const struct rig *r, const struct sampling_case *a,
                                  const struct decode_setup *setup,
                                 const char *how, const int32_t *text)
{
    struct err e = { 0 };
    struct decoder d;
    size_t rounds = 0;
    if (decode_open(&d, &r->m, &a->p, setup, text, PROMPT, PROMPT + CHOSEN, &e) ||
        decode_prefill(&d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
    for (; d.n_tokens < d.n_max; rounds++) {
        if (decode_step(&d, &e)) rig_die("round", &e);
        const size_t row = r->c.vocab * sizeof(float),
                     most = setup ? 8 * (2 + d.round.tree->n_kept) + 8 * 3 * (1 + 7) : 16;
        CHECK(d.planner.on || (d.round.to_host > 0 && d.round.to_host <= most && most < row),
              "%s, %s: %zu bytes crossed with %zu rows, at most %zu are ids and scores", a->name, how,
              d.round.to_host, d.round.tree->n_kept, most);
    }
    CHECK(memcmp(d.tokens, text, (PROMPT + CHOSEN) * sizeof *text) == 0,
          "%s, %s: another text than the host's sampler writes", a->name, how);
    CHECK(d.planner.on || (setup ? rounds < CHOSEN : rounds == CHOSEN),
          "%s, %s: %zu rounds", a->name, how, rounds);
    decode_close(&d);
}

static void tokens_are_sampled_on_the_device(void)
{
    char dir[4096];
    struct rig r;
    struct tiny t = tiny_models[0];
    struct decode_setup setup = { 0 };
    struct heads heads;
    struct err e = { 0 };
    static struct sampling_case cases[16];
    const size_t n = all_sampling_cases(cases);
    t.heads_inside = 2;
    tiny_write(&t, dir);
    device_rig_open(&r, dir, 2, PROMPT + CHOSEN);
    if (heads_open(&heads, NULL, &r.m, &e)) rig_die("heads", &e);
    draft_defaults(&setup.draft);
    setup.weights[DRAFTER_HEADS] = &heads;
    setup.draft.drafters = 1u << DRAFTER_HEADS | 1u << DRAFTER_PARTIAL | 1u << DRAFTER_NGRAM |
                           1u << DRAFTER_ADDED;
    setup.draft.width[0] = 2, setup.draft.width[1] = 2, setup.draft.n_width = 2, setup.draft.ngram_k = 2;
    setup.draft.kv_sinks = 2, setup.draft.kv_budget = 20, setup.draft.kv_fixed = true,
    setup.draft.draft_passes = 1;
    for (size_t i = 0; i < n; i++) {
        int32_t text[PROMPT + CHOSEN];
        rig_tokens(text, PROMPT, r.c.vocab, 3);
        sampled_on_the_host(&r, &cases[i].p, text);
        sampled_on_the_device(&r, &cases[i], NULL, "plain", text);
        oracle_set(&setup.draft, &(struct oracle){ 2, text, PROMPT + CHOSEN });
        sampled_on_the_device(&r, &cases[i], &setup, "a tree", text);
        if (i % 3)
            continue;
        struct decode_setup other = setup;       /* the published rule is exact for one row of candidates */
        other.draft.width[0] = other.draft.width[1] = 1, other.draft.drafters = 1u << DRAFTER_ADDED,
        other.draft.verifier = VERIFY_PAPER;
        sampled_on_the_device(&r, &cases[i], &other, "one row, the published rule", text);
        other = setup, other.draft.n_width = 0, other.draft.draft_passes = -1;
        sampled_on_the_device(&r, &cases[i], &other, "as the planner drafts", text);
    }
    heads_close(&heads), rig_close(&r), tiny_remove(dir);
}

/* ---- one wait a round ---- */

struct drawn { struct rig r; char dir[4096]; struct sampling p; struct decode_setup setup;
               struct oracle oracle;
               int32_t text[PROMPT + CHOSEN]; };

static void drawn_open(struct drawn *x, bool cpu, unsigned set, int draft_passes)
{
    struct err e = { 0 };
    struct decoder d;
    *x = (struct drawn){ 0 };
    tiny_write(&tiny_models[0], x->dir);
    if (cpu)
        rig_open(&x->r, x->dir, DT_BF16, best_twin(), 1, 2, PROMPT + CHOSEN);
    else
        device_rig_open(&x->r, x->dir, 2, PROMPT + CHOSEN);
    sampling_defaults(&x->p);
    x->p.seed = 3, x->p.text_max = PROMPT + CHOSEN;
    rig_tokens(x->text, PROMPT, x->r.c.vocab, 3);
    if (decode_open(&d, &x->r.m, &x->p, NULL, x->text, PROMPT, PROMPT + CHOSEN, &e) ||
        decode_prefill(&d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
    while (d.n_tokens < d.n_max)
        if (decode_step(&d, &e)) rig_die("round", &e);
    memcpy(x->text, d.tokens, sizeof x->text);
    decode_close(&d);
    draft_defaults(&x->setup.draft);
    x->setup.draft.drafters = set;
    x->setup.draft.width[0] = 2, x->setup.draft.width[1] = 2, x->setup.draft.n_width = 2;
    x->setup.draft.kv_sinks = 2, x->setup.draft.kv_budget = 12, x->setup.draft.kv_fixed = true,
    x->setup.draft.draft_passes = draft_passes;
    x->oracle = (struct oracle){ 2, x->text, PROMPT + CHOSEN };
    oracle_set(&x->setup.draft, &x->oracle);
}
static void drawn_close(struct drawn *x) { rig_close(&x->r), tiny_remove(x->dir); }
static void drawn_start(struct drawn *x, struct decoder *d)
{
    struct err e = { 0 };
    if (decode_open(d, &x->r.m, &x->p, &x->setup, x->text, PROMPT, PROMPT + CHOSEN, &e) ||
        decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

/* The result of the pass comes with the tokens; each draft pass comes with its ranking. */
static void a_round_waits_once(void)
{
    static const struct { const char *name; unsigned drafters; int passes;
    } of[] = {
        { "plain", 0, 0 },
        { "a tree", 1u << DRAFTER_ADDED | 1u << DRAFTER_NGRAM, 0 },
        { "draft passes", 1u << DRAFTER_PARTIAL | 1u << DRAFTER_ADDED, 2 },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct err e = { 0 };
        struct drawn x;
        struct decoder d;
        size_t trees = 0, passes = 0;
        drawn_open(&x, false, of[i].drafters, of[i].passes);
        drawn_start(&x, &d);
        while (d.n_tokens < d.n_max) {
            const size_t before = x.r.dev->waits;
            if (decode_step(&d, &e)) rig_die("round", &e);
            CHECK(x.r.dev->waits - before == 1 + d.round.passes,
                  "%s: %zu waits in a round of %zu rows and %zu draft passes", of[i].name,
                  x.r.dev->waits - before, d.round.tree->n_kept, d.round.passes);
            trees += d.round.tree->n_kept > 2, passes += d.round.passes;
        }
        CHECK(memcmp(d.tokens, x.text, sizeof x.text) == 0, "%s: another text", of[i].name);
        CHECK((trees > 0) == (i > 0) && (passes > 0) == (i == 2),
              "%s: %zu rounds of a tree, %zu draft passes", of[i].name, trees, passes);
        decode_close(&d), drawn_close(&x);
    }
}

/* NaN in a layer, infinite weights of the vocabulary: the round fails before it commits anything, with the
 * message of a single pass. */
static void a_round_that_is_not_finite_commits_nothing(void)
{
    const uint16_t infinite[] = { 0x7f80, 0x7f80, 0x7f80, 0x7f80 };
    const float nan[] = { NAN };
    for (int form = 0; form < 4; form++)         /* a row, a tree; on the CPU, too */
        for (int at_end = 0; at_end < 2; at_end++) {
            struct err e = { 0 }, alone = { 0 };
            struct drawn x;
            struct decoder d;
            drawn_open(&x, form & 2, form & 1 ? 1u << DRAFTER_ADDED : 0, 0);
            drawn_start(&x, &d);
            if (decode_step(&d, &e)) rig_die("round", &e);
            const size_t n = d.n_tokens, past = d.kv.n_past;
            if (at_end)
                x.r.dev->upload(x.r.dev, (void *)(uintptr_t)x.r.m.lm_head.w, infinite, sizeof infinite);
            else
                x.r.dev->upload(x.r.dev, (void *)(uintptr_t)x.r.m.layers[1].norm_mlp, nan, sizeof nan);
            struct pass_seq s = { .kv = &d.kv, .n = 1, .token = d.tokens + n - 1, .logits = d.round.logits };
            CHECK(model_forward(&x.r.m, d.set.buffers->work, &s, 1, NULL, 0, &alone) == -1 &&
                      strstr(alone.msg, at_end ? "a logit is not a finite number" : "layer 1"),
                  "%s", alone.msg);
            CHECK(decode_step(&d, &e) == -1 &&
                      strstr(e.msg, at_end ? "a logit is not a finite number" : alone.msg) &&
                      !strstr(e.msg, "GPU"),
                  "%s, not %s", e.msg, alone.msg);
            CHECK(d.n_tokens == n && d.kv.n_past == past &&
                      memcmp(d.tokens, x.text, n * sizeof *d.tokens) == 0,
                  "%zu tokens, %zu rows", d.n_tokens, d.kv.n_past);
            decode_close(&d), drawn_close(&x);
        }
}

/* A draft pass over a partial cache that is not finite loses its proposals and nothing else. */
static void a_draft_pass_that_is_not_finite_proposes_nothing(void)
{
    struct err e = { 0 };
    struct drawn x;
    struct decoder d;
    size_t before = 0, after = 0, lost = 0, refreshes = 0;
    drawn_open(&x, false, 1u << DRAFTER_PARTIAL, 1);
    drawn_start(&x, &d);
    while (d.n_tokens < d.n_max && !lost) {
        if (decode_step(&d, &e)) rig_die("round", &e);
        const struct kv *kv = &((struct partial *)d.own[DRAFTER_PARTIAL])->kv;
        before += d.round.passes;
        if (before && ((struct partial *)d.own[DRAFTER_PARTIAL])->filled) {
            const uint16_t none = 0x7fc0;
            x.r.dev->upload(x.r.dev, kv->base, &none, sizeof none);
            refreshes = ((struct partial *)d.own[DRAFTER_PARTIAL])->refreshes;
            if (decode_step(&d, &e)) rig_die("round", &e);
            lost++;
            CHECK(d.round.passes == 0 && d.round.tree->n_kept == 1, "%zu draft passes, %zu rows",
                  d.round.passes, d.round.tree->n_kept);
        }
    }
    while (d.n_tokens < d.n_max) {
        if (decode_step(&d, &e)) rig_die("round", &e);
        after += d.round.passes;
    }
    CHECK(lost && after > 0 && ((struct partial *)d.own[DRAFTER_PARTIAL])->refreshes > refreshes &&
              memcmp(d.tokens, x.text, sizeof x.text) == 0,
          "%zu lost", lost);
    decode_close(&d), drawn_close(&x);
}

int main(void)
{
    struct device *d;
    char why[256];
    if (test_device_open(&d, why, sizeof why)) {
        printf("skip test_device_models (%s)\n", why);
        return 0;
    }
    d->close(d);
    RUN(the_forward_pass_of_every_kind_of_model);
    RUN(a_row_is_a_row_on_the_device);
    RUN(speculation_never_changes_the_text);
    RUN(tokens_are_sampled_on_the_device);
    RUN(a_round_waits_once);
    RUN(a_round_that_is_not_finite_commits_nothing);
    RUN(a_draft_pass_that_is_not_finite_proposes_nothing);
    return test_end();
}
