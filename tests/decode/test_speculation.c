/* Speculation never changes the text: tokens of every drafter, tree and cache policy equal those of plain
 * decoding, at every temperature, with every filter and penalty. A mismatch tells the position, the node of
 * the tree that stood there, and the first layer whose rows differ from plain decoding's.
 *
 * And that this can fail: the published acceptance rule (several candidates, temperature above 0) does. */
#include "src/model/heads.h"
#include "src/decode/decode.h"
#include "src/decode/drafters/small_model.h"
#include "src/text/tokenizer.h"
#include "tests/drafter_rig.h"
#include "tests/oracle.h"

static bool long_test;
static const char demo[] = "models/demo";

struct text { int32_t *tokens; size_t n_prompt, n; };

/* ---- what is tried ---- */

struct setting { const char *name; unsigned drafters; size_t width[8],
                 n_width; long passes; enum kv_policy policy; size_t budget; enum ngram_lead lead; };
#define BIT(x) (1u << DRAFTER_##x)
static const struct setting settings[] = {
    { "auto", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX) | BIT(HEADS), { 0 }, 0, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "auto, small cache", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 0 }, 0, -1, KV_AUTO, 100, LEAD_FIRST },
    { "tokenswift", BIT(PARTIAL) | BIT(NGRAM) | BIT(HEADS), { 1, 3, 3, 3 }, 4, 1, KV_DYNAMIC, 128,
      LEAD_FIRST },
    { "heads", BIT(HEADS), { 3, 2, 2 }, 3, -1, KV_DYNAMIC, 4096, LEAD_FIRST },
    { "text alone", BIT(NGRAM) | BIT(SUFFIX), { 1 }, 1, -1, KV_DYNAMIC, 4096, LEAD_ROOT },
    { "window, 5 passes", BIT(PARTIAL), { 2, 2 }, 2, 5, KV_WINDOW, 64, LEAD_FIRST },
    { "static, all leads", BIT(PARTIAL) | BIT(NGRAM), { 3, 2 }, 2, 2, KV_STATIC, 90, LEAD_ALL },
    { "full cache", BIT(PARTIAL), { 1 }, 1, 7, KV_FULL, 4096, LEAD_FIRST },
    { "mean, 3 passes", BIT(PARTIAL), { 2, 1 }, 2, 3, KV_MEAN, 40, LEAD_FIRST },
    { "longspec, a chain", BIT(LONGSPEC), { 1, 1, 1, 1, 1 }, 5, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "longspec, a beam", BIT(LONGSPEC) | BIT(NGRAM), { 4, 4, 2 }, 3, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "a smaller model", BIT(MODEL) | BIT(SUFFIX), { 2, 1 }, 2, 3, KV_WINDOW, 64, LEAD_FIRST },
    { "longspec as planned", BIT(LONGSPEC) | BIT(SUFFIX), { 0 }, 0, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "spire, a chain", BIT(SPIRE), { 1, 1, 1, 1, 1 }, 5, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "spire as planned", BIT(SPIRE) | BIT(SUFFIX), { 0 }, 0, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "gumiho, a chain", BIT(GUMIHO), { 1, 1, 1, 1, 1, 1, 1 }, 7, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "gumiho, a tree", BIT(GUMIHO) | BIT(NGRAM), { 3, 3, 2, 1 }, 4, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "gumiho as planned", BIT(GUMIHO) | BIT(SUFFIX), { 0 }, 0, -1, KV_AUTO, 4096, LEAD_FIRST },
    { "all at once",
      BIT(LONGSPEC) | BIT(SPIRE) | BIT(GUMIHO) | BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX) | BIT(HEADS), { 0 },
      0, 3, KV_AUTO, 100, LEAD_FIRST },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static struct heads demo_heads;
static struct longspec longspec;         /* of the model that is open */
static struct draft_model small;         /* the demonstration model drafts for itself */
static struct spire spire;
static struct gumiho gumiho;
static struct model demo_int8;           /* drafts of the demonstration model ask it */

static void setup_of(struct decode_setup *s, const struct setting *x, const struct heads *heads)
{
    *s = (struct decode_setup){ 0 };
    draft_defaults(&s->draft);
    s->draft.drafters = heads ? x->drafters : x->drafters & ~BIT(HEADS);
    memcpy(s->draft.width, x->width, sizeof x->width);
    s->draft.n_width = x->n_width, s->draft.draft_passes = x->passes;
    s->draft.kv_policy = x->policy, s->draft.kv_budget = x->budget, s->draft.kv_fixed = x->n_width > 0,
    s->draft.kv_sinks = 16, s->draft.ngram_lead = x->lead;
    s->weights[DRAFTER_HEADS] = s->draft.drafters & BIT(HEADS) ? (void *)heads : NULL;
    s->weights[DRAFTER_LONGSPEC] = longspec.file.mem ? &longspec : NULL;
    s->weights[DRAFTER_MODEL] = heads ? &small : NULL;
    s->weights[DRAFTER_SPIRE] = spire.file.mem ? &spire : NULL;
    s->weights[DRAFTER_GUMIHO] = gumiho.file.mem ? &gumiho : NULL;
    s->draft_model = heads ? &demo_int8 : NULL;
}

static void samplings(struct sampling *s, size_t n, size_t i)
{
    static const double temperatures[] = { 0, 0.3, 0.7, 1.0, 1.5 };
    sampling_defaults(s);
    s->seed = 1000 + i;
    s->temperature = temperatures[i % 5];
    s->text_max = 4096;
    if (i >= 5) s->temperature = 1;
    switch (i) {
    case 5: s->top_k = 40; break;
    case 6: s->top_p = 0.9; break;
    case 7: s->min_p = 0.1; break;
    case 8: s->eta = 0.0003; break;
    case 9: s->penalty = 1.2, s->penalty_window = 30, s->min_p = 0.1; break;
    case 10: s->penalty = 1.1, s->penalty_window = -1, s->presence = 0.3, s->temperature = 0; break;
    case 11: s->frequency = 0.2, s->top_p = 0.95, s->temperature = 0.8; break;
    case 12: s->penalty = 1.2, s->min_p = 0.1, s->min_keep = 20, s->sample = 3; break;
    case 13: s->top_k = 50, s->top_p = 0.9, s->min_p = 0.02, s->eta = 0.0001, s->penalty = 1.3,
        s->penalty_window = 7, s->presence = -0.2, s->temperature = 1.5; break;
    case 14: s->dry_multiplier = 0.3, s->dry_base = 1.2, s->min_p = 0.05; break;
    case 15: s->dry_multiplier = 0.2, s->dry_base = 1.1, s->dry_allowed = 3, s->dry_last_n = 40,
        s->temperature = 0; break;
    case 16: s->top_n_sigma = 1.5, s->typical = 0.9, s->temperature = 1.2; break;
    case 17: s->xtc_probability = 0.5, s->xtc_threshold = 0.05, s->min_p = 0.02; break;
    default: break;
    }
    (void)n;
}
enum { N_SAMPLINGS = 18 };

/* ---- a decoder and its plain twin ---- */

static const struct heads *heads_of(const struct rig *r)
{
    struct err e;
    if (!demo_int8.mem && model_quantize(&demo_int8, &r->m, NULL, NULL, NULL, &e)) rig_die("8 bits", &e);
    if (!longspec.file.mem && drafter_open(&longspec.file, &longspec_kind, NULL, &r->m, true, &e))
        longspec_rig_open(&longspec, r, true, 1, NULL);
    struct tokenizer *t = NULL;
    if (!small.rows && (tokenizer_open(&t, demo, r->c.vocab, &e) ||
                          small_model_open(&small, demo, &r->m, t, true, &e)))
        rig_die("small model", &e);
    if (t)
        tokenizer_close(t);
    if (!spire.file.mem && drafter_open(&spire.file, &spire_kind, NULL, &r->m, true, &e))
        spire_rig_open(&spire, r, true, 1);
    if (!gumiho.file.mem && drafter_open(&gumiho.file, &gumiho_kind, NULL, &r->m, true, &e))
        gumiho_rig_open(&gumiho, r, true, 1);
    if (!demo_heads.n && heads_present(demo) && heads_open(&demo_heads, NULL, &r->m, &e))
        rig_die("heads", &e);
    return demo_heads.n ? &demo_heads : NULL;
}
/* The heads lie in the memory of the rig's device: they go first. */
static void done_with(struct rig *r)
{
    heads_close(&demo_heads);
    drafter_close(&longspec.file, &longspec_kind);
    draft_model_close(&small);
    drafter_close(&spire.file, &spire_kind);
    drafter_close(&gumiho.file, &gumiho_kind);
    model_close(&demo_int8);
    rig_close(r);
}

static void open_at(struct decoder *d, const struct rig *r, const struct sampling *p,
                    const struct decode_setup *s, const struct text *t)
{
    struct err e = { 0 };
    if (decode_open(d, &r->m, p, s, t->tokens, t->n_prompt, t->n, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}
static void plain_text(struct text *t, const struct rig *r, const struct sampling *p)
{
    struct decoder d;
    struct err e = { 0 };
    open_at(&d, r, p, NULL, t);
    while (d.n_tokens < t->n)
        if (decode_step(&d, &e)) rig_die("plain step", &e);
    memcpy(t->tokens, d.tokens, t->n * sizeof *t->tokens);
    CHECK(d.round.tokens == 1);
    decode_close(&d);
}

/* Where a round went wrong: its tree over the true text against plain rows, layer by layer. */
static void explain(const struct rig *r, const struct decoder *d, const struct text *t, size_t from,
                    size_t bad)
{
    const struct tree *tree = d->round.tree;
    size_t hidden = r->c.hidden, rows = tree->n_kept, depth = bad - from, node = 0;
    uint32_t path[TREE_DEPTH_MAX + 1] = { 0 };
    /* the kept node of the true path, as deep as it goes */
    for (size_t k = 1; k <= depth; k++)
        for (size_t i = 1; i < rows; i++)
            if (tree->kept_parent[i] == (int32_t)path[k - 1] &&
                tree->kept_token[i] == t->tokens[from + k - 1])
                path[k] = (uint32_t)i, node = i;
    printf("    position %zu (round from %zu, %zu nodes), node %zu at depth %zu: got %d, plain has %d\n", bad,
           from, rows, node, depth, d->tokens[bad], t->tokens[bad]);
    struct rig x = *r;
    struct err e = { 0 };
    struct kv kv;
    float *a = must_alloc(rows * hidden * 4), *b = must_alloc((depth + 1) * hidden * 4),
          *last = must_alloc(x.c.vocab * 4);
    struct workspace *w;
    if (workspace_open(&w, &x.m, MAX(rows, (size_t)64), t->n + 64, &e)) rig_die("workspace", &e);
    x.w = w;
    for (size_t layer = 0; layer <= x.c.n_layers; layer++) {
        struct tap ta = { TAP_RESIDUAL, layer, a }, tb = { TAP_RESIDUAL, layer, b };
        rig_kv(&x, &kv, t->n + 64, rows);
        rig_run(&x, &kv, t->tokens, from - 1, 64, NULL, last);
        struct pass_seq s = { .kv = &kv, .n = rows, .token = tree->kept_token, .parent = tree_is_chain(tree)
                              ? NULL : tree->kept_parent };
        if (model_forward(&x.m, w, &s, 1, &ta, 1, &e)) rig_die("pass", &e);
        struct pass_seq p = { .kv = &kv, .n = depth + 1, .token = t->tokens + from - 1 };
        if (model_forward(&x.m, w, &p, 1, &tb, 1, &e)) rig_die("pass", &e);
        kv_close(&kv);
        if (memcmp(a + node * hidden, b + tree->node[tree->kept[node]].depth * hidden, hidden * 4)) {
            printf("    first differing layer: the residual entering layer %zu\n", layer);
            break;
        }
        if (layer == x.c.n_layers) printf("    no layer differs: the sampler or the walk down the tree\n");
    }
    workspace_close(w);
    free(a), free(b), free(last);
}

/* rounds that accepted 2 or more; those over a border of blocks */
struct seen { size_t deep, across; double per_round; size_t rows_max; };

/* Decode with a setup beside the known text; false at the first difference. */
static bool same_text(const struct rig *r, const struct sampling *p, const struct decode_setup *s,
                      const struct text *t, struct seen *seen)
{
    struct decoder d;
    struct err e = { 0 };
    bool same = true;
    open_at(&d, r, p, s, t);
    while (d.n_tokens < t->n && same) {
        size_t from = d.n_tokens;
        if (decode_step(&d, &e)) rig_die("step", &e);
        decode_add_stats(&d, d.n_tokens - from);
        for (size_t i = from; i < d.n_tokens && same; i++)
            if (d.tokens[i] != t->tokens[i]) {
                same = false;
                if (s->draft.verifier == VERIFY_EXACT) explain(r, &d, t, from, i);
            }
        size_t accepted = d.n_tokens - from - 1;
        seen->deep += accepted >= 2;
        seen->across += accepted >= 2 && (from - 1) / KV_BLOCK != (from - 1 + accepted) / KV_BLOCK;
        seen->rows_max = MAX(seen->rows_max, d.round.tree->n_kept);
    }
    seen->per_round = d.stats.rounds ? (double)d.stats.tokens / (double)d.stats.rounds : 0;
    decode_close(&d);
    return same;
}

/* A prompt: the opening of a book (its first tokens), or random ones. */
static void text_open(struct text *t, const struct rig *r, const char *opening, size_t n_prompt,
                      size_t tokens)
{
    struct tokenizer *k;
    struct err e = { 0 };
    char *bytes, path[256];
    size_t size, n;
    int32_t *ids;
    snprintf(path, sizeof path, "models/demo/openings/%s.txt", opening);
    if (tokenizer_open(&k, demo, r->c.vocab, &e) || file_read(&bytes, &size, path, 1 << 20, &e) ||
        tokenizer_encode(k, &ids, &n, bytes, size, true, &e))
        rig_die("prompt", &e);
    t->n_prompt = MIN(n, n_prompt), t->n = t->n_prompt + tokens;
    t->tokens = must_alloc(t->n * sizeof *t->tokens);
    memcpy(t->tokens, ids, t->n_prompt * sizeof *ids);
    free(ids), free(bytes), tokenizer_close(k);
}

static void open_demo(struct rig *r) { rig_open(r, demo, DT_BF16, best_twin(), 2, 8, 64); }
static const char *const openings[] = { "malay", "mcteague", "portrait", "udolpho", "vanity-fair" };

/* ---- the tests ---- */

static void every_drafter_with_samplings(size_t first, size_t end)
{
    struct rig r;
    open_demo(&r);
    const struct heads *heads = heads_of(&r);
    struct seen all = { 0 };
    for (size_t i = first; i < end; i++) {
        struct sampling p;
        struct text t;
        samplings(&p, N_SAMPLINGS, i);
        text_open(&t, &r, openings[i % 5], 60 + 7 * i, SLOW_BUILD ? 40 : long_test ? 150 : 90);
        plain_text(&t, &r, &p);
        for (size_t k = 0; k < N_SETTINGS; k++) {
            struct decode_setup s;
            struct seen seen = { 0 };
            setup_of(&s, &settings[k], heads);
            if (s.draft.drafters)
                CHECK(same_text(&r, &p, &s, &t, &seen), "sampling %zu, %s", i, settings[k].name);
            all.deep += seen.deep, all.across += seen.across;
        }
        free(t.tokens);
    }
    printf(
        "    %zu samplings x %d settings; rounds that accepted 2 or more: %zu, across blocks: %zu\n",
        end - first, N_SETTINGS, all.deep, all.across);
    CHECK(all.deep > 100 && all.across > 5);
    done_with(&r);
}
static void every_drafter_with_the_first_samplings(void)
{
    every_drafter_with_samplings(0, N_SAMPLINGS / 4);
}
static void every_drafter_with_the_second_samplings(void)
{
    every_drafter_with_samplings(N_SAMPLINGS / 4, N_SAMPLINGS / 2);
}
static void every_drafter_with_the_third_samplings(void)
{
    every_drafter_with_samplings(N_SAMPLINGS / 2, N_SAMPLINGS / 4 * 3);
}
static void every_drafter_with_the_fourth_samplings(void)
{
    every_drafter_with_samplings(N_SAMPLINGS / 4 * 3, N_SAMPLINGS);
}

/* A drafter that is always wrong: exactly one token a pass; one that knows the next d: exactly d + 1. */
static void knowing_and_garbage_drafters(void)
{
    struct rig r;
    open_demo(&r);
    for (size_t depth = 0; depth < 16; depth = depth ? depth * 2 + 1 : 1) {
        struct sampling p;
        struct text t;
        struct seen seen = { 0 };
        struct decode_setup s = { 0 };
        samplings(&p, N_SAMPLINGS, 3);
        text_open(&t, &r, "portrait", 50, 16 * (SLOW_BUILD ? 3 : 12));
        plain_text(&t, &r, &p);
        draft_defaults(&s.draft);
        s.draft.drafters = BIT(ADDED), s.draft.width[0] = 1, s.draft.n_width = 1;
        oracle_set(&s.draft, &(struct oracle){ depth, t.tokens, t.n });
        CHECK(same_text(&r, &p, &s, &t, &seen), "depth %zu", depth);
        CHECK(seen.per_round == (double)depth + 1, "depth %zu: %g tokens a pass", depth, seen.per_round);
        free(t.tokens);
    }
    done_with(&r);
}

/* [1,9,9,9] with 20 chains: the widest of the paper, 900 rows, two blocks of nodes. */
static void the_widest_tree(void)
{
    struct rig r;
    struct sampling p;
    struct text t;
    struct seen seen = { 0 };
    struct decode_setup s;
    open_demo(&r);
    const struct heads *heads = heads_of(&r);
    const struct setting wide = { "wide", BIT(PARTIAL) | BIT(HEADS) | BIT(NGRAM), { 1, 9, 9, 9 }, 4, 1,
                                  KV_DYNAMIC, 4096, LEAD_FIRST };
    const struct setting wide2 = { "wide", BIT(PARTIAL), { 9, 9, 9 }, 3, 1, KV_DYNAMIC, 4096, LEAD_FIRST };
    samplings(&p, N_SAMPLINGS, 3);
    text_open(&t, &r, "malay", 118, SLOW_BUILD ? 6 : 24);
    plain_text(&t, &r, &p);
    setup_of(&s, heads ? &wide : &wide2, heads);
    struct err e = { 0 };
    CHECK(draft_check(&s.draft, &e) == 0, "%s", e.msg);
    CHECK(!heads || draft_rows(&s.draft) >= 900, "%zu", draft_rows(&s.draft));
    CHECK(same_text(&r, &p, &s, &t, &seen));
    printf("    at most %zu rows in a pass, %.2f tokens a pass\n", seen.rows_max, seen.per_round);
    CHECK(!heads || seen.rows_max > 500);
    free(t.tokens);
    done_with(&r);
}

static void small_models(void)
{
    for (size_t m = 0; m < N_TINY; m++) {
        char dir[4096];
        tiny_write(&tiny_models[m], dir);
        for (int compute = 0; compute < 2; compute++) {
            struct rig r;
            rig_open(&r, dir, compute ? DT_F32 : DT_BF16, best_twin(), 2, 8, 64);
            longspec_rig_open(&longspec, &r, compute, m, NULL);
            if (!r.c.layer[0].qk_norm) spire_rig_open(&spire, &r, compute, m);
            gumiho_rig_open(&gumiho, &r, compute, m);
            struct sampling p;
            struct text t = { .n_prompt = 90, .n = 90 + (long_test ? 150 : 90) };
            t.tokens = must_alloc(t.n * sizeof *t.tokens);
            rig_tokens(t.tokens, t.n_prompt, r.c.vocab, m + 5);
            samplings(&p, N_SAMPLINGS, 3 + m);
            plain_text(&t, &r, &p);
            struct model int8;
            struct err e;
            if (model_quantize(&int8, &r.m, NULL, NULL, NULL, &e)) rig_die("8 bits", &e);
            for (size_t k = 0; k < 2 * N_SETTINGS; k++) {
                struct decode_setup s;
                struct seen seen = { 0 };
                if (!long_test && (k + k / 2 + m + (size_t)compute) % 2)       /* one of the two, in turn */
                    continue;
                setup_of(&s, &settings[k / 2], NULL);
                s.draft_model = k % 2 ? &int8 : NULL;
                s.draft.drafters &= draft_of_config(&r.c);
                if (s.draft.drafters)
                    CHECK(same_text(&r, &p, &s, &t, &seen), "%s, %s, drafts of %s", tiny_models[m].name,
                          settings[k / 2].name, k % 2 ? "8 bits" : "the model");
            }
            free(t.tokens);
            model_close(&int8);
            done_with(&r);
        }
        tiny_remove(dir);
    }
}

/* 306 texts of mixtures of experts: every setting with every sampling, and one more. */
static void mixtures_of_experts(void)
{
    enum { TEXTS = N_SAMPLINGS + 1 };
    size_t runs = 0, drafted = 0;
    if (!long_test) SKIP("long");
    for (size_t m = 0; m < N_TINY; m++) {
        char dir[4096];
        struct rig r;
        if (!tiny_models[m].experts)
            continue;
        tiny_write(&tiny_models[m], dir);
        rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
        for (size_t k = 0; k < TEXTS; k++) {
            struct sampling p;
            struct text t = { .n_prompt = 40, .n = 40 + 120 };
            t.tokens = must_alloc(t.n * sizeof *t.tokens);
            rig_tokens(t.tokens, t.n_prompt, r.c.vocab, k + 5);
            samplings(&p, N_SAMPLINGS, k % N_SAMPLINGS);
            p.seed = 77 + k;
            plain_text(&t, &r, &p);
            for (size_t i = 0; i < N_SETTINGS; i++, runs++) {
                struct decode_setup s;
                struct seen seen = { 0 };
                setup_of(&s, &settings[i], NULL);
                s.draft.drafters &= draft_of_config(&r.c);
                CHECK(same_text(&r, &p, &s, &t, &seen), "%s, text %zu, %s", tiny_models[m].name, k,
                      settings[i].name);
                drafted += seen.per_round > 1;
            }
            free(t.tokens);
        }
        done_with(&r), tiny_remove(dir);
    }
    printf("    %zu texts, in %zu of them drafts came true\n", runs, drafted);
    CHECK(runs >= 300 && drafted >= 50);
}

/* Models with quantised weights, which draft for themselves. */
static void quantised_models(void)
{
    static const char *const names[] = { "q4_k_m", "q8_0" };
    static const size_t temperatures[] = { 0, 2, 3 };        /* 0, 0.7 and 1 */
    struct seen all = { 0 };
    for (size_t m = 0; m < 2; m++)
        for (size_t i = 0; i < 3; i++) {
            struct rig r;
            rig_open(&r, names[m], DT_BF16, best_twin(), 2, 8, 64);
            struct sampling p;
            struct text t = { .n_prompt = 90, .n = 90 + (SLOW_BUILD ? 40 : 150) };
            t.tokens = must_alloc(t.n * sizeof *t.tokens);
            rig_tokens(t.tokens, t.n_prompt, r.c.vocab, i + 9);
            samplings(&p, N_SAMPLINGS, temperatures[i]);
            plain_text(&t, &r, &p);
            for (size_t k = 0; k < N_SETTINGS; k++) {
                struct decode_setup s;
                struct seen seen = { 0 };
                setup_of(&s, &settings[k], NULL);
                if (s.draft.drafters)
                    CHECK(same_text(&r, &p, &s, &t, &seen), "%s, temperature %g, %s", names[m], p.temperature,
                          settings[k].name);
                all.deep += seen.deep, all.across += seen.across;
            }
            free(t.tokens);
            done_with(&r);
        }
    printf("    rounds that accepted 2 or more: %zu, across blocks: %zu\n", all.deep, all.across);
    CHECK(all.deep > 100 && all.across > 5);
}

/* Jobs in one pass do not see each other. */
static void several_decoders_in_one_round(void)
{
    enum { N = 6 };
    struct rig r;
    struct decoder d[N];
    struct text t[N];
    struct err e = { 0 };
    struct round_buffers shared;
    open_demo(&r);
    if (round_buffers_open(&shared, &r.m, PREFILL_ROWS, 600, 256, &e)) rig_die("buffers", &e);
    for (size_t i = 0; i < N; i++) {
        struct sampling p;
        struct decode_setup s;
        samplings(&p, N_SAMPLINGS, 3 + i);
        text_open(&t[i], &r, openings[i % 5], 120 - 15 * i, 80);
        plain_text(&t[i], &r, &p);
        setup_of(&s, &settings[i == 0 ? 2 : i == 1 ? 4 : i == 2 ? 0 : 6 + i], heads_of(&r));
        s.buffers = &shared;
        open_at(&d[i], &r, &p, &s, &t[i]);
    }
    for (bool any = true; any;) {
        struct decoder *live[N];
        size_t n = 0;
        for (size_t i = 0; i < N; i++)
            if (d[i].n_tokens < t[i].n) live[n++] = &d[i];
        any = n > 0;
        if (any && decode_round(live, n, &e)) rig_die("round", &e);
    }
    for (size_t i = 0; i < N; i++) {
        CHECK(!memcmp(d[i].tokens, t[i].tokens, t[i].n * sizeof(int32_t)), "decoder %zu", i);
        decode_close(&d[i]), free(t[i].tokens);
    }
    round_buffers_close(&shared);
    done_with(&r);
}

/* The published rule: with several candidates and a temperature above 0 the text is pulled to the guesses. At
 * temperature 0 it is exact. */
static void the_published_rule_is_not_lossless(void)
{
    struct rig r;
    size_t different = 0;
    open_demo(&r);
    const struct setting x = { "paper", BIT(PARTIAL) | BIT(NGRAM), { 5, 2 }, 2, 1, KV_DYNAMIC, 4096,
                               LEAD_ALL };
    for (size_t i = 0; i < 4; i++) {
        struct sampling p;
        struct text t;
        struct seen seen = { 0 };
        struct decode_setup s;
        samplings(&p, N_SAMPLINGS, i ? 3 : 0);
        p.seed += i;
        text_open(&t, &r, openings[i], 50, 60);
        plain_text(&t, &r, &p);
        setup_of(&s, &x, NULL);
        s.draft.verifier = VERIFY_PAPER;
        bool same = same_text(&r, &p, &s, &t, &seen);
        if (i == 0) CHECK(same, "temperature 0");
        else different += !same;
        free(t.tokens);
    }
    CHECK(different == 3, "%zu of 3 texts differ", different);
    done_with(&r);
}

static void many_prompts_and_seeds(void)
{
    struct rig r;
    if (!long_test) SKIP("long");
    open_demo(&r);
    struct seen all = { 0 };
    size_t texts = 0;
    for (size_t o = 0; o < 5; o++)
        for (size_t seed = 0; seed < 4; seed++) {
            struct sampling p;
            struct text t;
            samplings(&p, N_SAMPLINGS, seed == 0 ? 3 : seed == 1 ? 12 : seed == 2 ? 0 : 13);
            p.seed = 7 * o + seed;
            text_open(&t, &r, openings[o], 200, 2000);
            plain_text(&t, &r, &p);
            for (size_t k = 0; k < N_SETTINGS; k++) {
                struct decode_setup s;
                struct seen seen = { 0 };
                setup_of(&s, &settings[k], heads_of(&r));
                if (s.draft.drafters)
                    CHECK(same_text(&r, &p, &s, &t, &seen), "%s, seed %zu, %s", openings[o], seed,
                          settings[k].name);
                all.deep += seen.deep, all.across += seen.across;
            }
            texts++;
            free(t.tokens);
        }
    printf("    %zu texts of 2,000 tokens x %d settings; rounds that accepted 2 or more: %zu, over a border "
           "of blocks: %zu\n",
           texts, N_SETTINGS, all.deep, all.across);
    done_with(&r);
}

static void one_hundred_thousand_tokens(void)
{
    struct rig r;
    struct sampling p;
    struct text t;
    struct decode_setup s;
    struct seen seen = { 0 };
    if (!long_test) SKIP("long");
    open_demo(&r);
    samplings(&p, N_SAMPLINGS, 12);
    p.min_keep = 1, p.sample = 0;
    text_open(&t, &r, "malay", 400, 100000);
    plain_text(&t, &r, &p);
    setup_of(&s, &settings[0], heads_of(&r));
    CHECK(same_text(&r, &p, &s, &t, &seen));
    printf("    %.3f tokens a pass; rounds that accepted 2 or more: %zu, over a border of blocks: %zu\n",
           seen.per_round, seen.deep, seen.across);
    free(t.tokens);
    done_with(&r);
}

/* Guesses for which something is not finite, and passes that the planner times: neither is part of the
 * text. As long as `failing`, every pass of several rows says that it is not finite. */
static struct { int (*end)(struct device *, struct device_bad *); void (*begin)(struct device *,
    const struct device_rows *); size_t rows, failed; bool failing; } device_true;
static void begin_counting(struct device *d, const struct device_rows *rows)
{
    device_true.rows = rows->n;
    device_true.begin(d, rows);
}
static int end_failing(struct device *d, struct device_bad *bad)
{
    int rc = device_true.end(d, bad);
    if (rc == 0 && device_true.failing && device_true.rows > 1) {
        device_true.failed++;
        *bad = (struct device_bad){ true, 0, 0 };
    }
    return rc;
}
static void guesses_that_are_not_finite(void)
{
    struct rig r;
    open_demo(&r);
    const struct heads *heads = heads_of(&r);
    struct sampling p;
    struct text t;
    samplings(&p, N_SAMPLINGS, 3);
    text_open(&t, &r, "portrait", 100, 1050);
    plain_text(&t, &r, &p);
    device_true.end = r.dev->end, device_true.begin = r.dev->begin;
    r.dev->end = end_failing, r.dev->begin = begin_counting;
    for (size_t k = 0; k < N_SETTINGS; k += 2) {
        struct decode_setup s;
        struct decoder d;
        struct err e = { 0 };
        setup_of(&s, &settings[k], heads);
        /* for shorter texts the planner times no passes */
        t.n = t.n_prompt + (s.draft.n_width ? 100 : 1050);
        device_true.failing = false, device_true.failed = 0;
        open_at(&d, &r, &p, &s, &t);
        for (size_t round = 0; d.n_tokens < t.n; round++) {
            device_true.failing = round % 3 == 0 || !d.planner.model->timed;
            if (decode_step(&d, &e)) rig_die(settings[k].name, &e);
        }
        CHECK(device_true.failed > 1, "%s: %zu passes failed", settings[k].name, device_true.failed);
        CHECK(!memcmp(d.tokens, t.tokens, t.n * sizeof *t.tokens), "%s: another text", settings[k].name);
        decode_close(&d);
    }
    free(t.tokens);
    done_with(&r);
}

int main(int argc, char **argv)
{
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    const char *only = argc > 2 ? argv[2] : NULL;        /* --long NAME: that test alone */
    bool any = false;
#define RUN_IF(f) do { if (!only || !strcmp(only, #f)) { any = true; RUN(f); } } while (0)
    RUN_IF(every_drafter_with_the_first_samplings);
    RUN_IF(every_drafter_with_the_second_samplings);
    RUN_IF(every_drafter_with_the_third_samplings);
    RUN_IF(every_drafter_with_the_fourth_samplings);
    RUN_IF(knowing_and_garbage_drafters);
    RUN_IF(the_widest_tree);
    RUN_IF(small_models);
    RUN_IF(mixtures_of_experts);
    RUN_IF(quantised_models);
    RUN_IF(several_decoders_in_one_round);
    RUN_IF(guesses_that_are_not_finite);
    RUN_IF(the_published_rule_is_not_lossless);
    RUN_IF(many_prompts_and_seeds);
    RUN_IF(one_hundred_thousand_tokens);
    if (!any) printf("FAIL no test is called %s\n", only);
    return any ? test_end() : 1;
}
