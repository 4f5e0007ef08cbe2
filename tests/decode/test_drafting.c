/* Everything around drafting: a round allocates nothing, the table of 4-grams follows the text with the right
 * delay, statistics equal a log of the rounds, and the edges: ends of texts, tiny caches and vocabularies,
 * restarts, several decoders. */
#include "ngram/ngram.h"
#include "src/model/heads.h"
#include "tests/allocations.h"
#include "runs/report/report.h"
#include "src/decode/decode.h"
#include "tests/json_at.h"
#include "tests/rig.h"


static const char demo[] = "models/demo";
enum { PROMPT = 120 };

struct setting { const char *name; unsigned drafters; size_t width[8],
                 n_width; long passes; enum kv_policy policy; size_t sinks, budget; enum ngram_lead lead; };
#define BIT(x) (1u << DRAFTER_##x)
static const struct setting settings[] = {
    { "plain", 0, { 0 }, 0, -1, KV_DYNAMIC, 16, 4096, LEAD_FIRST },
    { "auto", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX) | BIT(HEADS), { 0 }, 0, -1, KV_AUTO, 16, 4096,
      LEAD_FIRST },
    { "tokenswift", BIT(PARTIAL) | BIT(NGRAM) | BIT(HEADS), { 1, 3, 3, 3 }, 4, 1, KV_DYNAMIC, 16, 128,
      LEAD_FIRST },
    { "heads", BIT(HEADS), { 3, 2, 2 }, 3, -1, KV_DYNAMIC, 16, 4096, LEAD_FIRST },
    { "window", BIT(PARTIAL) | BIT(SUFFIX), { 2, 2 }, 2, 4, KV_WINDOW, 4, 64, LEAD_FIRST },
    { "all leads", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 2, 2 }, 2, 2, KV_STATIC, 1, 90, LEAD_ALL },
    { "mean", BIT(PARTIAL) | BIT(SUFFIX), { 2, 2 }, 2, 4, KV_MEAN, 4, 9, LEAD_FIRST },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static struct rig rig;
static struct heads heads;
/* What a decoder keeps for draft passes is their cache (src/decode/drafters/partial.c). */
static struct partial *cache_of(const struct decoder *g) { return g->own[DRAFTER_PARTIAL]; }

static void setup_of(struct decode_setup *s, const struct setting *x, const struct heads *h)
{
    *s = (struct decode_setup){ 0 };
    draft_defaults(&s->draft);
    s->draft.drafters = h ? x->drafters : x->drafters & ~BIT(HEADS);
    memcpy(s->draft.width, x->width, sizeof x->width);
    s->draft.n_width = x->n_width, s->draft.draft_passes = x->passes;
    s->draft.kv_policy = x->policy, s->draft.kv_sinks = x->sinks, s->draft.kv_budget = x->budget,
    s->draft.ngram_lead = x->lead;
    s->draft.kv_fixed = x->n_width > 0;
    s->weights[DRAFTER_HEADS] = s->draft.drafters & BIT(HEADS) ? (void *)h : NULL;
}
static void sampling_of(struct sampling *p, uint64_t seed)
{
    sampling_defaults(p);
    p->seed = seed, p->min_p = 0.1, p->penalty = 1.2, p->penalty_window = 30, p->text_max = 4096;
}
/* A text that repeats itself: words of 3 to 8 tokens out of 12, so that every drafter has something to
 * say. */
static void prompt_of(int32_t *token, size_t n, size_t vocab, uint64_t seed)
{
    struct rng rng = { seed };
    int32_t word[12][8];
    for (size_t i = 0; i < 12; i++) rig_tokens(word[i], 8, vocab, seed * 100 + i);
    for (size_t i = 0; i < n;) {
        size_t w = rng_below(&rng, 12);
        for (size_t k = 0; k < 3 + w % 6 && i < n; k++) token[i++] = word[w][k];
    }
}
static void open_decoder(struct decoder *d, const struct rig *r, const struct sampling *p,
                         const struct decode_setup *s, const int32_t *prompt, size_t n_prompt, size_t n_max)
{
    struct err e = { 0 };
    if (s && draft_check(&s->draft, &e)) rig_die("settings", &e);
    if (decode_open(d, &r->m, p, s, prompt, n_prompt, n_max, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}
static void step(struct decoder *d)
{
    struct err e = { 0 };
    if (decode_step(d, &e)) rig_die("step", &e);
}
static void plain_text(int32_t *text, const struct rig *r, const struct sampling *p, const int32_t *prompt,
                       size_t n_prompt, size_t n_max)
{
    struct decoder d;
    open_decoder(&d, r, p, NULL, prompt, n_prompt, n_max);
    while (d.n_tokens < n_max) step(&d);
    memcpy(text, d.tokens, n_max * sizeof *text);
    decode_close(&d);
}

/* ---- allocations ---- */

static void nothing_is_allocated_in_a_round(void)
{
    struct rig two;
    if (!ALLOCATIONS_COUNTED) SKIP("a sanitizer owns malloc");
    rig_open(&two, demo, DT_BF16, best_twin(), 2, 8, 64);
    for (size_t i = 0; i < N_SETTINGS; i++)
        for (int dry = 0; dry < 2; dry++) {
            struct decoder d;
            struct decode_setup s;
            struct sampling p;
            int32_t prompt[PROMPT];
            setup_of(&s, &settings[i], &heads);
            sampling_of(&p, 3);
            p.dry_multiplier = dry ? 0.2 : 0, p.text_max = PROMPT + 100;
            prompt_of(prompt, PROMPT, two.c.vocab, 5);
            open_decoder(&d, &two, &p, &s, prompt, PROMPT, PROMPT + 100);
            size_t before = allocations(), rounds = 0;
            for (; d.n_tokens < d.n_max; rounds++) {
                size_t from = d.n_tokens;
                step(&d);
                decode_add_stats(&d, d.n_tokens - from);
            }
            CHECK(allocations() == before, "%s: %zu in %zu rounds", settings[i].name, allocations() - before,
                  rounds);
            decode_close(&d);
        }
    rig_close(&two);
}

/* ---- what the planner may choose of the partial cache ---- */

static bool cache_is(const struct decoder *g, size_t i, enum kv_policy policy, size_t budget)
{
    return g->cache[i].policy == policy && g->cache[i].budget == budget &&
           g->planner.reads[i].pass.keys == (double)budget;
}
static void caches_of(struct decoder *d, enum kv_policy policy, bool fixed, size_t budget)
{
    struct decode_setup s = { 0 };
    struct sampling p;
    int32_t prompt[700];
    draft_defaults(&s.draft);
    s.draft.drafters = BIT(PARTIAL), s.draft.kv_policy = policy, s.draft.kv_fixed = fixed,
    s.draft.kv_budget = budget;
    sampling_of(&p, 3);
    prompt_of(prompt, 700, rig.c.vocab, 6);
    open_decoder(d, &rig, &p, &s, prompt, 700, 900);
}
/* Cache `better` is known to guess well and the others badly, at one price; further rows cost a tenth.
 * Whatever this machine's passes cost. */
static void know_caches(struct decoder *d, size_t better)
{
    struct planner *p = &d->planner;
    p->price = 1, p->model->budget = 0, p->exploring = false, p->model->speed = p->model->drafted = 0;
    for (size_t i = 0; i < COST_SIZES; i++) {
        const double bytes = p->model->weight_bytes + 700 * p->model->kv_bytes;
        p->model->size[i] = 1e-3 * (0.9 + 0.1 * (double)cost_rows(i)) / bytes;
        p->model->seen[i] = 100;
    }
    for (size_t i = 0; i < d->n_caches; i++) {
        const struct pass_cost *r = &p->reads[i].pass;
        p->cache[i].n = 40;
        p->cache[i].seconds = 1e-4 / (r->weights + r->key * (double)MIN(r->keys, d->kv.n_past));
        p->cache[i].guesses = 400, p->cache[i].accepted = i == better ? 360 : 160;
    }
}
static void the_cache_that_guesses_best_is_taken(void)
{
    struct decoder d;
    struct decoder *g = &d;
    caches_of(&d, KV_AUTO, true, 300);
    CHECK(g->n_caches == 1 && cache_is(g, 0, KV_DYNAMIC, 300));
    decode_close(&d);
    caches_of(&d, KV_STATIC, false, 4096);
    CHECK(g->n_caches == 3 && cache_is(g, 0, KV_STATIC, 256) && cache_is(g, 1, KV_STATIC, 1024) &&
          cache_is(g, 2, KV_STATIC, 4096));
    decode_close(&d);

    caches_of(&d, KV_AUTO, false, 600);
    CHECK(g->n_caches == 4 && cache_is(g, 0, KV_MEAN, 256) && cache_is(g, 1, KV_DYNAMIC, 256) &&
          cache_is(g, 2, KV_MEAN, 600) && cache_is(g, 3, KV_DYNAMIC, 600));
    CHECK(g->current_cache == 0 && cache_of(g)->policy == KV_MEAN && cache_of(g)->budget == 256);
    step(&d);
    for (size_t better = 0; better < 4; better++) {
        for (size_t round = 0; (round == 0 || partial_kv(cache_of(g)) == &g->kv) && d.n_tokens < d.n_max;
             round++) {
            know_caches(&d, better);
            step(&d);
            CHECK(g->current_cache == better && cache_of(g)->policy == g->cache[better].policy &&
                      cache_of(g)->budget == g->cache[better].budget,
                  "cache %zu instead of %zu", g->current_cache, better);
        }
        CHECK(cache_of(g)->filled && (better != 1 || cache_of(g)->refreshes > 0),
              "%zu: %zu selections", better,
              cache_of(g)->refreshes);
    }
    CHECK(d.n_tokens < d.n_max);
    decode_close(&d);
}

/* What drafts are made with may be broken: they guess nothing then, and the text is the same. */
static void drafts_that_are_not_finite_guess_nothing(void)
{
    enum { N = 60 };
    struct model broken;
    struct sampling p;
    struct decode_setup s;
    struct decoder plain, d;
    struct err e = { 0 };
    int32_t prompt[PROMPT];
    if (model_quantize(&broken, &rig.m, NULL, NULL, NULL, &e)) rig_die("8 bits", &e);
    sampling_of(&p, 4), prompt_of(prompt, PROMPT, rig.c.vocab, 9);
    open_decoder(&plain, &rig, &p, NULL, prompt, PROMPT, PROMPT + N);
    while (plain.n_tokens < plain.n_max)
        if (decode_step(&plain, &e)) rig_die("step", &e);
    for (int finite = 0; finite < 2; finite++) {
        size_t guessed = 0;
        setup_of(&s, &(struct setting){ "", BIT(PARTIAL), { 2, 2 }, 2, 2, KV_WINDOW, 4, 64, LEAD_FIRST },
                 NULL);
        s.draft_model = &broken;
        mat_scales(&broken.layers[1].down)[3] = finite ? 1e-3f : INFINITY;
        open_decoder(&d, &rig, &p, &s, prompt, PROMPT, PROMPT + N);
        while (d.n_tokens < d.n_max) {
            if (decode_step(&d, &e)) rig_die("step", &e);
            guessed += d.round.passes + d.round.tree->n_kept - 1;
        }
        CHECK((guessed > 0) == finite, "%zu passes and guesses with %s weights", guessed,
              finite ? "finite" : "infinite");
        CHECK(memcmp(d.tokens, plain.tokens, (PROMPT + N) * sizeof *d.tokens) == 0, "another text");
        decode_close(&d);
    }
    decode_close(&plain);
    model_close(&broken);
}

/* ---- the table of 4-grams in a running decoder ---- */

struct gram { int32_t next[3]; size_t count, newest; };
static int by_count(const void *a, const void *b)
{
    const struct gram *x = a, *y = b;
    return x->count != y->count ? (x->count > y->count ? -1 : 1) : x->newest > y->newest ? -1 : 1;
}
/* All 4-grams of tokens[0, n) that begin with `lead`, counted one by one. */
static size_t brute_grams(struct gram *g, const int32_t *token, size_t n, int32_t lead)
{
    size_t m = 0;
    for (size_t i = 0; i + 4 <= n; i++)
        if (token[i] == lead) {
            size_t k = 0;
            while (k < m && memcmp(g[k].next, token + i + 1, sizeof g->next)) k++;
            if (k == m) memcpy(g[m++].next, token + i + 1, sizeof g->next), g[k].count = 0;
            g[k].count++, g[k].newest = i;
        }
    qsort(g, m, sizeof *g, by_count);
    return m;
}

static void ngrams_lag_behind_the_penalty_window(void)
{
    static const struct { double penalty; long window, delay; size_t lag;
    } cases[] = {
        { 1, 1024, -1, 0 }, { 1.2, 0, -1, 0 }, { 1.2, 30, -1, 31 },  { 1.2, -1, -1, SIZE_MAX },
        { 1.2, 30, 0, 0 },  { 1, 0, 50, 50 },  { 1.3, 7, 200, 200 },
    };
    static struct gram want[4096];
    size_t compared = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct decoder d;
        struct decode_setup s;
        struct sampling p;
        int32_t prompt[PROMPT], next[NGRAM_K_MAX][3];
        uint32_t frequency[NGRAM_K_MAX];
        setup_of(&s, &settings[2], &heads);
        s.draft.ngram_delay = cases[i].delay;
        sampling_of(&p, 7);
        p.penalty = cases[i].penalty, p.penalty_window = cases[i].window, p.top_k = 8;
        prompt_of(prompt, PROMPT, rig.c.vocab, 5);
        open_decoder(&d, &rig, &p, &s, prompt, PROMPT, PROMPT + 60);
        for (size_t shown = d.n_tokens;;) {      /* the text as it was when the table was asked last */
            size_t seen = cases[i].lag < shown ? shown - cases[i].lag : 0;
            for (size_t k = 0; k < d.n_tokens; k += 1 + k % 3) {
                size_t n = brute_grams(want, d.tokens, seen, d.tokens[k]),
                       got = ngram_top(d.own[DRAFTER_NGRAM], d.tokens[k], NGRAM_K_MAX,
                                       next, frequency);
                bool same = got == MIN(n, (size_t)NGRAM_K_MAX);
                for (size_t j = 0; same && j < got; j++)
                    same = frequency[j] == want[j].count && !memcmp(next[j], want[j].next, sizeof next[j]);
                CHECK(same, "case %zu: %zu tokens, lead %d", i, d.n_tokens, d.tokens[k]);
                compared += got;
            }
            if (d.n_tokens == d.n_max) break;
            /* before the last token there is nothing to draft */
            shown = d.n_tokens + 1 < d.n_max ? d.n_tokens : shown;
            step(&d);
        }
        decode_close(&d);
    }
    CHECK(compared > 1000, "%zu", compared);
}

/* What the text proposes is probed now and then, however dear rows are and however unlikely it seemed
 * at first: 4-grams of a text that repeats itself are found to come true. */
static void unlikely_proposals_are_probed(void)
{
    enum { CYCLE = 24, TOKENS = 600 };
    struct decoder d;
    struct decode_setup s;
    struct sampling p;
    struct setting x = settings[1];
    int32_t prompt[PROMPT], cycle[CYCLE];
    x.drafters = BIT(NGRAM);
    setup_of(&s, &x, NULL);
    sampling_of(&p, 3);
    p.temperature = 0, p.penalty = 1;
    rig_tokens(cycle, CYCLE, rig.c.vocab, 8);
    for (size_t i = 0; i < PROMPT; i++) prompt[i] = cycle[i % CYCLE];
    open_decoder(&d, &rig, &p, &s, prompt, PROMPT, PROMPT + TOKENS);
    const float before = calibrate_most(&d.calibration, cell_ngram(0, 0, 0), NGRAM_CELLS);
    size_t kept = 0;
    while (d.n_tokens < d.n_max) {
        struct planner *c = &d.planner;
        for (size_t i = 1; i < COST_SIZES; i++)
            c->model->size[i] = (double)cost_rows(i) * c->model->size[0];
        /* a probe is a small part of a round, as it is of a real model's */
        c->model->budget = 4;
        step(&d);
        kept += d.round.tree->n_kept > 1;
    }
    const float after = calibrate_most(&d.calibration, cell_ngram(0, 0, 0), NGRAM_CELLS);
    printf("    4-grams: %.2f believed at first, %.2f after %d tokens; %zu rounds of more than one row\n",
           (double)before, (double)after, TOKENS, kept);
    CHECK(before < 0.1f && after > 0.5f, "%g, then %g", (double)before, (double)after);
    decode_close(&d);
}

/* ---- statistics against a log ---- */

struct round_log { size_t tokens, rows, pool, depth, reached[TREE_DEPTH_MAX + 2],
                   ngram; unsigned path[TREE_DEPTH_MAX]; size_t drafted[N_DRAFTERS], passes; };

/* What the tree of the last round and the tokens that came of it say. */
static void log_round(struct round_log *x, const struct decoder *d, size_t from)
{
    const struct tree *t = d->round.tree;
    uint32_t at = 0;
    *x = (struct round_log){ .tokens = d->n_tokens - from, .rows = t->n_kept, .passes = d->round.passes };
    bool kept[TREE_POOL_MAX] = { false };
    for (size_t i = 0; i < t->n_kept; i++) kept[t->kept[i]] = true;
    for (size_t i = 1; i < t->n; i++) {
        const bool meant = kept[i] || !d->round.probe || t->node[i].reach >= d->round.min_reach;
        x->pool += meant;
        for (size_t s = 0; s < N_DRAFTERS; s++) x->drafted[s] += meant && t->node[i].sources >> s & 1;
        if (kept[i]) x->depth = MAX(x->depth, (size_t)t->node[i].depth);
    }
    for (size_t k = 0; k < x->tokens; k++) {                /* the node at depth k was accepted */
        uint32_t next = 0;
        for (size_t i = 1; i < t->n; i++)
            if (kept[i] && t->node[i].parent == at) {
                x->reached[k + 1] = 1;
                if (t->node[i].token == d->tokens[from + k]) next = (uint32_t)i;
            }
        CHECK((next != 0) == (k + 1 < x->tokens), "depth %zu of a round of %zu", k, x->tokens);
        if (next) x->path[k] = t->node[next].sources;
        for (size_t c = 0; next && c < t->n_chains; c++) {  /* a row of a 4-gram that goes through it */
            uint32_t i = t->chain[c];
            bool ngram = t->node[i].sources >> DRAFTER_NGRAM & 1;
            while (i && i != next) i = t->node[i].parent;
            if (ngram && i) x->ngram = k + 1;
        }
        at = next;
    }
}
static size_t at(const struct json *j, const char *name, size_t i)
{
    char path[64];
    snprintf(path, sizeof path, "%s.%zu", name, i);
    double x = number_at(j, path);
    return isnan(x) ? 0 : (size_t)x;
}
static double number(const struct json *j, const char *name)
{
    double x = number_at(j, name);
    CHECK(!isnan(x), "%s", name);
    return x;
}

static void statistics_equal_a_log(void)
{
    enum { TOKENS = 100 };
    for (size_t i = 0; i < N_SETTINGS; i++)
        for (size_t cut = 0; cut < (SLOW_BUILD ? 1 : 3); cut++) {
            static struct round_log x[TOKENS];
            struct decoder d;
            struct decode_setup s;
            struct sampling p;
            int32_t prompt[PROMPT];
            double foreseen = 0, lasted = 0;
            size_t known = 0, rounds = 0, tokens = 0, end = cut ? TOKENS - 11 * cut : TOKENS, refreshes = 0;
            setup_of(&s, &settings[i], &heads);
            sampling_of(&p, 11);
            p.temperature = 0.5, p.penalty = 1;
            prompt_of(prompt, PROMPT, rig.c.vocab, 9);
            open_decoder(&d, &rig, &p, &s, prompt, PROMPT, PROMPT + TOKENS);
            /* the text ends after `end` tokens, wherever that is in its round */
            for (; tokens < end; rounds++) {
                size_t from = d.n_tokens;
                step(&d);
                log_round(&x[rounds], &d, from);
                x[rounds].tokens = MIN(x[rounds].tokens, end - tokens);
                tokens += x[rounds].tokens;
                refreshes += d.round.selects;
                known += d.round.predicted > 0;
                foreseen += d.round.predicted;
                lasted += d.round.predicted > 0 ? d.round.seconds - d.round.calibrating : 0;
                decode_add_stats(&d, x[rounds].tokens);
            }
            char *text;
            size_t bytes;
            FILE *f = open_memstream(&text, &bytes);
            struct json_writer w = jw_begin(f, JW_LINE, 0);
            report_put_stats(&w, &d.stats, (size_t)d.stats.tokens, 0, s.draft.n_width > 0);
            jw_end(&w);
            fclose(f);
            struct json root, *j = &root;
            struct err e;
            CHECK(js_check(j, "statistics", text, bytes, &e) == 0, "%s: %s", e.msg, text);
            size_t accepted = 0, depth = 0, rows = 0, pool = 0, beta = 0, passes = 0,
                hist[TREE_DEPTH_MAX + 2] = { 0 };
            size_t reached[TREE_DEPTH_MAX + 2] = { 0 }, taken[TREE_DEPTH_MAX + 2] = { 0 },
                drafted[N_DRAFTERS] = { 0 }, good[N_DRAFTERS] = { 0 };
            for (size_t k = 0; k < rounds; k++) {
                const size_t n = x[k].tokens, full = n < TOKENS && k + 1 == rounds ? d.round.tokens : n,
                             a = n < full ? n : n - 1;
                accepted += a, depth += x[k].depth, rows += x[k].rows, pool += x[k].pool,
                    passes += x[k].passes, hist[n]++;
                beta += a && x[k].ngram >= a ? a : 0;
                for (size_t q = 1; q <= n; q++) reached[q] += x[k].reached[q], taken[q] += q <= a;
                for (size_t q = 0; q < N_DRAFTERS; q++) {
                    drafted[q] += x[k].drafted[q];
                    for (size_t v = 0; v < a; v++) good[q] += x[k].path[v] >> q & 1;
                }
            }
            const char *name = settings[i].name;
            CHECK(number(j, "rounds") == (double)rounds && number(j, "accepted") == (double)accepted,
                  "%s: %s", name, text);
            CHECK(number(j, "drafted") == (double)pool && number(j, "verified_rows") == (double)rows,
                  "%s: %s", name, text);
            CHECK(near(number(j, "mean_acceptance_length"), (double)tokens / (double)rounds, 1e-4, 0),
                  "%s: %s", name, text);
            if (depth)
                CHECK(near(number(j, "alpha"), (double)accepted / (double)depth, 1e-4, 0),
                      "%s: %zu of %zu: %s", name, accepted, depth, text);
            else CHECK(null_at(j, "alpha"));
            if (s.draft.n_width && depth)
                CHECK(near(number(j, "beta"), (double)beta / (double)depth, 1e-4, 0), "%s: %zu of %zu: %s",
                      name, beta, depth, text);
            else CHECK(null_at(j, "beta"));
            CHECK(number(j, "refreshes") == (double)refreshes && number(j, "draft_passes") == (double)passes);
            size_t sum = 0;
            for (size_t q = 1; q <= TREE_DEPTH_MAX; q++) {
                CHECK(at(j, "reached_per_depth", q - 1) == reached[q] &&
                          at(j, "accepted_per_depth", q - 1) == taken[q],
                      "%s depth %zu: %zu %zu: %s", name, q, reached[q], taken[q], text);
                CHECK(at(j, "acceptance_histogram", q - 1) == hist[q]);
                CHECK(taken[q] <= reached[q]);
                sum += q * at(j, "acceptance_histogram", q - 1);
            }
            CHECK(sum == tokens, "%zu tokens in the histogram", sum);
            for (size_t q = 0; q < N_DRAFTERS; q++) {
                char path[64];
                snprintf(path, sizeof path, "sources.%s", drafter_name(q));
                const struct json one = json_at(j, path);
                CHECK(!one.s == !drafted[q]);
                if (one.s)
                    CHECK(number(&one, "drafted") == (double)drafted[q] &&
                              number(&one, "accepted") == (double)good[q],
                          "%s %s", name, drafter_name(q));
            }
            double parts = number(j, "time.draft") + number(j, "time.verify") + number(j, "time.controller") +
                           number(j, "time.other") + number(j, "time.checkpoint");
            CHECK(near(parts, d.stats.seconds, 1e-5, 0) && number(j, "time.other") >= 0, "%s", text);
            CHECK(number(j, "seconds_per_round.rounds") == (double)known &&
                      near(number(j, "seconds_per_round.predicted") * (double)known, foreseen, 1e-6, 0) &&
                      near(number(j, "seconds_per_round.measured") * (double)known, lasted, 1e-6, 0),
                  "%s: %s", name, text);
            CHECK(d.planner.on ? known > rounds / 2 : !known, "%s: %zu of %zu rounds foreseen", name,
                  known, rounds);
            CHECK(number(j, "windows.0.start") == 0 && number(j, "windows.0.tokens") == (double)tokens &&
                  near(number(j, "windows.0.seconds"), d.stats.seconds, 1e-5, 0) &&
                  near(number(j, "windows.0.mean_acceptance_length"), (double)tokens / (double)rounds, 1e-4,
                       0));
            if (i == 0) CHECK(rounds == tokens && !depth && number(j, "mean_acceptance_length") == 1);
            free(text);
            decode_close(&d);
        }
}

/* Windows share out the rounds that cross their borders; an empty round counts nowhere. */
static void windows_of_a_long_text(void)
{
    struct draft_stats s;
    struct err e = { 0 };
    struct rng rng = { 4 };
    double seconds = 0, rounds = 0, sum = 0, turns = 0;
    size_t tokens = 0;
    static struct tree tree;
    if (stats_open(&s, 5000, &e)) rig_die("statistics", &e);
    tree_start(&tree, 0, 0);
    tree_keep(&tree, 1);
    while (tokens < 4990) {
        struct round r = { .tree = &tree, .tokens = 1 + rng_below(&rng, 7), .seconds = 0.01 };
        size_t n = rng_below(&rng, 8) ? r.tokens : rng_below(&rng, r.tokens + 1);
        stats_add(&s, &r, n);
        tokens += n, seconds += n ? 0.01 : 0, rounds += n > 0;
    }
    for (size_t i = 0; i < s.n_windows; i++) {
        CHECK(s.window[i].tokens == (i < tokens / STATS_WINDOW    ? STATS_WINDOW
                                     : i == tokens / STATS_WINDOW ? tokens % STATS_WINDOW
                                                                  : 0),
              "window %zu: %zu", i, s.window[i].tokens);
        sum += s.window[i].seconds, turns += s.window[i].rounds;
    }
    CHECK(near(sum, seconds, 1e-9, 0) && near(turns, rounds, 1e-9, 0) && s.rounds == (size_t)rounds &&
          s.tokens == tokens);
    stats_clear(&s);
    CHECK(s.tokens == 0 && s.window[0].tokens == 0 && s.n_windows == 6);
    stats_close(&s);
}

/* ---- edges ---- */

/* The text of a setting equals plain decoding's, for every length from one token on. */
static void same_as_plain(const struct rig *r, const struct sampling *p, const struct decode_setup *s,
                          const int32_t *text, size_t n_prompt, size_t n_max, const char *what)
{
    struct decoder d;
    open_decoder(&d, r, p, s, text, n_prompt, n_max);
    while (d.n_tokens < n_max) {
        step(&d);
        if (s->draft.n_width && d.round.tree->n_kept > 1)
            CHECK(fabs(d.round.plain * (double)d.round.tokens - d.round.seconds) <= 1e-9,
                  "%s: without a planner a round counts as fast as plain decoding", what);
    }
    CHECK(d.n_tokens == n_max && !memcmp(d.tokens, text, n_max * sizeof *text), "%s: %zu + %zu tokens", what,
          n_prompt, n_max - n_prompt);
    decode_close(&d);
}

static void ends_tiny_caches_and_tiny_vocabularies(void)
{
    static const struct tiny small = { "eight", "llama", 32, 48, 2, 1, 16, 8, 2, 0, DT_BF16, true, 0 };
    static const struct setting tight[] = {
        { "budget 2", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 0 }, 0, -1, KV_DYNAMIC, 1, 2, LEAD_FIRST },
        { "wide", BIT(PARTIAL) | BIT(NGRAM), { 31, 12 }, 2, 1, KV_DYNAMIC, 1, 2, LEAD_FIRST },
        { "deep", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 1, 1, 1, 1, 1, 1, 1, 1 }, 8, 16, KV_WINDOW, 30,
          31, LEAD_ALL },
        { "sinks beyond the prompt", BIT(PARTIAL), { 2 }, 1, 3, KV_STATIC, 60, 61, LEAD_FIRST },
    };
    struct rig r;
    char dir[4096];
    tiny_write(&small, dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, 8, 64);
    for (size_t i = 0; i < sizeof tight / sizeof *tight; i++)
        for (size_t n_prompt = 1; n_prompt <= 50; n_prompt = n_prompt * 3 + 1)
            for (int banned = 0; banned < 2; banned++) {
                struct sampling p;
                struct decode_setup s;
                int32_t text[160];
                struct { int32_t id; double bias; } ban[7];
                sampling_of(&p, i);
                p.temperature = i % 2 ? 1 : 0, p.penalty = 1, p.min_p = 0;
                /* one token is left */
                for (int32_t k = 0; k < 7; k++) ban[k].id = k, ban[k].bias = -INFINITY;
                if (banned) p.bias = (void *)ban, p.n_bias = 7;
                rig_tokens(text, n_prompt, 8, 3 + i);
                plain_text(text, &r, &p, text, n_prompt, n_prompt + 90);
                setup_of(&s, &tight[i], NULL);
                static const size_t lengths[] = { 1, 2, 3, 5, 90 };
                for (size_t k = 0; k < 5; k++)
                    same_as_plain(&r, &p, &s, text, n_prompt, n_prompt + lengths[k], tight[i].name);
            }
    rig_close(&r), tiny_remove(dir);
}

/* Written on with another sample number, from the prompt and from the middle. */
static void restarts(void)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        struct decoder d;
        struct decode_setup s;
        struct sampling p, q;
        struct err e = { 0 };
        int32_t want[2][PROMPT + 90], prompt[PROMPT];
        setup_of(&s, &settings[i], &heads);
        sampling_of(&p, 21);
        p.temperature = 0.7;
        q = p, q.sample = 1;
        prompt_of(prompt, PROMPT, rig.c.vocab, 2);
        plain_text(want[0], &rig, &p, prompt, PROMPT, PROMPT + 90);
        plain_text(want[1], &rig, &q, prompt, PROMPT, PROMPT + 90);
        CHECK(memcmp(want[0], want[1], sizeof want[0]));
        open_decoder(&d, &rig, &p, &s, prompt, PROMPT, PROMPT + 90);
        /* 0, 1, back to 0, and 0 again from the middle */
        for (size_t turn = 0; turn < (SLOW_BUILD ? 2 : 4); turn++) {
            size_t n = turn == 3 ? PROMPT + 40 : PROMPT;
            if (turn &&
                (decode_restart(&d, n, turn == 1 ? &q : &p, &e) || decode_prefill(&d, 0, NULL, NULL, &e)))
                rig_die("restart", &e);
            CHECK(d.n_tokens == n && d.kv.n_past == n - 1 && d.stats.tokens == 0);
            while (d.n_tokens < d.n_max) {
                size_t from = d.n_tokens;
                step(&d);
                decode_add_stats(&d, d.n_tokens - from);
            }
            CHECK(!memcmp(d.tokens, want[turn == 1], sizeof want[0]), "%s, turn %zu", settings[i].name, turn);
            CHECK(d.stats.tokens == d.n_max - n);
        }
        decode_close(&d);
    }
}

/* A prefill with a limit of time makes passes as large as fit, and at least one. Any cut gives the same
 * text. */
static bool note_pass(void *ctx, size_t done, size_t of)
{
    (void)of;
    *(size_t *)ctx = *(size_t *)ctx ? *(size_t *)ctx : done;         /* the first of a call */
    return true;
}
static void a_prefill_in_slices(void)
{
    struct decoder d;
    struct sampling p;
    struct err e = { 0 };
    int32_t want[PROMPT + 20], prompt[PROMPT];
    const size_t of = PROMPT - 1;
    sampling_of(&p, 5);
    prompt_of(prompt, PROMPT, rig.c.vocab, 2);
    plain_text(want, &rig, &p, prompt, PROMPT, PROMPT + 20);
    for (size_t k = 0; k < 2; k++) {
        size_t first = 0;
        if (decode_open(&d, &rig.m, &p, NULL, prompt, PROMPT, PROMPT + 20, &e)) rig_die("decoder", &e);
        d.set.buffers->row_seconds = k ? 1 : 0;  /* a slow machine, for the first pass of a call */
        CHECK(decode_prefill(&d, k ? 100 : 1e-9, note_pass, &first, &e) == !k);
        CHECK(first == (k ? 96 : SLICE_ROWS) && d.kv.n_past == (k ? of : SLICE_ROWS), "%zu, %zu", first,
              d.kv.n_past);
        for (size_t n = 2; d.kv.n_past < of; n++) {
            const int rc = decode_prefill(&d, 1e-9, NULL, NULL, &e);
            CHECK(d.kv.n_past == MIN(n * SLICE_ROWS, of) && rc == (d.kv.n_past < of), "%zu", d.kv.n_past);
        }
        while (d.n_tokens < d.n_max) step(&d);
        CHECK(memcmp(d.tokens, want, sizeof want) == 0);
        decode_close(&d);
    }
}

/* Rows of several decoders in one pass, most of them of the later ones; heads read the hidden state of
 * their own rows. */
static void heads_of_several_decoders(void)
{
    enum { N = 3, MAX = PROMPT + (SLOW_BUILD ? 8 : 40) };
    static const size_t which[2][N] = { { 3, 3, 2 }, { 0, 3, 2 } };
    for (size_t k = 0; k < (SLOW_BUILD ? 1 : 2); k++) {
        struct decoder d[N];
        struct err e = { 0 };
        int32_t want[N][MAX];
        size_t rounds = 0, alone = 0;
        struct round_buffers shared;
        if (round_buffers_open(&shared, &rig.m, PREFILL_ROWS, 512, MAX, &e)) rig_die("buffers", &e);
        for (size_t i = 0; i < N; i++) {
            struct sampling p;
            struct decode_setup s;
            sampling_of(&p, 30 + i);
            p.temperature = 0;
            prompt_of(want[i], PROMPT, rig.c.vocab, i);
            plain_text(want[i], &rig, &p, want[i], PROMPT, MAX);
            setup_of(&s, &settings[which[k][i]], &heads);
            s.draft.ngram_k = 5;
            s.buffers = &shared;
            open_decoder(&d[i], &rig, &p, &s, want[i], PROMPT, MAX);
            for (; d[i].n_tokens < MAX && which[k][i] == 3; alone++) step(&d[i]);
            decode_close(&d[i]);
            open_decoder(&d[i], &rig, &p, &s, want[i], PROMPT, MAX);
        }
        for (;;) {
            struct decoder *live[N];
            size_t n = 0;
            for (size_t i = 0; i < N; i++)
                if (d[i].n_tokens < MAX) live[n++] = &d[i], rounds += which[k][i] == 3;
            if (!n) break;
            if (decode_round(live, n, &e)) rig_die("round", &e);
        }
        for (size_t i = 0; i < N; i++) {
            CHECK(!memcmp(d[i].tokens, want[i], sizeof want[i]), "decoder %zu", i);
            decode_close(&d[i]);
        }
        round_buffers_close(&shared);
        if (k == 0) CHECK(rounds == alone, "heads beside others: %zu rounds, alone %zu", rounds, alone);
    }
}

/* The published rule at temperature 0 takes the longest row, as the exact one does: as many rounds, with
 * every setting and at every end. */
static void published_rule_without_coins(void)
{
    static const struct setting rows[] = {
        { "tokenswift", BIT(PARTIAL) | BIT(NGRAM) | BIT(HEADS), { 1, 3, 3, 3 }, 4, 1, KV_DYNAMIC, 16, 128,
          LEAD_FIRST },
        { "heads", BIT(HEADS), { 3, 2, 2 }, 3, -1, KV_DYNAMIC, 16, 4096, LEAD_FIRST },
        { "all leads and matches", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 1 }, 1, 1, KV_DYNAMIC, 16, 4096,
          LEAD_ALL },
    };
    for (size_t i = 0; i < 3; i++)
        for (size_t tokens = 1; tokens <= (SLOW_BUILD ? 3 : 30); tokens += tokens < 6 ? 1 : 12) {
            size_t rounds[2] = { 0 };
            struct sampling p;
            int32_t text[PROMPT + 30];
            sampling_of(&p, 1);
            p.temperature = 0, p.penalty = 1;
            /* few different tokens: each is continued by many 4-grams */
            prompt_of(text, PROMPT, i == 2 ? 40 : rig.c.vocab, 4);
            plain_text(text, &rig, &p, text, PROMPT, PROMPT + tokens);
            for (int paper = 0; paper < 2; paper++) {
                struct decoder d;
                struct decode_setup s;
                setup_of(&s, &rows[i], &heads);
                s.draft.verifier = paper ? VERIFY_PAPER : VERIFY_EXACT;
                if (i == 2)
                    CHECK(draft_rows(&s.draft) >= 1 + 1 + 16 + 2 * 20 * 3,
                          "the root, a guess, a match, 20 4-grams after each of the two: %zu",
                          draft_rows(&s.draft));
                if (i < 2) s.draft.ngram_k = 3;
                open_decoder(&d, &rig, &p, &s, text, PROMPT, PROMPT + tokens);
                for (; d.n_tokens < d.n_max; rounds[paper]++) step(&d);
                CHECK(!memcmp(d.tokens, text, d.n_max * sizeof *text), "%s, %zu tokens", rows[i].name,
                      tokens);
                decode_close(&d);
            }
            CHECK(rounds[0] == rounds[1], "%s, %zu tokens: %zu and %zu rounds", rows[i].name, tokens,
                  rounds[0], rounds[1]);
        }
}

int main(void)
{
    struct err e = { 0 };
    rig_open(&rig, demo, DT_BF16, best_twin(), 1, 8, 64);
    if (heads_open(&heads, NULL, &rig.m, &e)) rig_die("heads", &e);
    RUN(nothing_is_allocated_in_a_round);
    RUN(the_cache_that_guesses_best_is_taken);
    RUN(drafts_that_are_not_finite_guess_nothing);
    RUN(ngrams_lag_behind_the_penalty_window);
    RUN(unlikely_proposals_are_probed);
    RUN(statistics_equal_a_log);
    RUN(windows_of_a_long_text);
    RUN(ends_tiny_caches_and_tiny_vocabularies);
    RUN(restarts);
    RUN(heads_of_several_decoders);
    RUN(a_prefill_in_slices);
    RUN(published_rule_without_coins);
    heads_close(&heads), rig_close(&rig);
    return test_end();
}
