/* The controller on simulated machines: a pass of r rows at a length takes what a formula says, with noise; candidates come true with known
 * chances; seconds are added up, none pass. The loop is that of a decoder's round (src/decode/decode.c), the estimate of a draft pass's chance
 * that of src/decode/draft_model.c in short. It has to find the best number of draft passes and rows, to cost nothing where drafting is
 * useless, and to learn again when the machine or the text changes. */
#include "src/decode/planner.h"
#include "tests/reference.h"
#include "tests/test.h"

struct machine {
    /* a pass of one row reads the weights and the cache */
    double weight_bytes, kv_bytes, bytes_per_second;
    double row, kv_row;                                    /* seconds of a further row; a byte of cache of it */
    double share;                                          /* bytes of a draft pass, of those of the weights and of 256 positions */
    double noise; size_t hiccup;                           /* of a pass; every so many passes takes 6 times as long */
    double others;                                         /* how much the speed differs from one third of a second to the next */
    size_t tile; double border;                            /* rows of a tile; seconds of each further tile */
    size_t cold; double slower;                            /* so many rounds behind the prompt passes of one row take so many times as long */
};
struct text {
    /* a draft pass's guess comes true with this chance */
    double pass;
    double often, match;                                   /* a match of the text's end is found; each of its 6 tokens comes true with this chance */
    double heads, head_seconds;                            /* three chained guesses of heads; their price */
};

enum { SEEDS = 32 };
static struct rng rng;
static double uniform(void) { return (double)(rng_next(&rng) >> 11) * 0x1p-53; }

static double exact_pass(const struct machine *m, size_t rows, size_t length)
{
    double cache = m->kv_bytes * (double)length;
    return (m->weight_bytes + cache) / m->bytes_per_second +
           (double)(rows - 1) * (m->row + m->kv_row * cache) +
           (m->tile ? (double)((rows - 1) / m->tile) * m->border : 0);
}
static double draft_pass(const struct machine *m)
{
    return m->share * (m->weight_bytes + 256 * m->kv_bytes) / m->bytes_per_second;
}
/* what others take just now: a factor of the time */
static double others = 1, others_until;
static double noisy(const struct machine *m, double seconds)
{
    static size_t n;
    return others * seconds * exp(m->noise * rng_normal(&rng)) * (m->hiccup && ++n % m->hiccup == 0 ? 6 : 1);
}

struct run {
    struct control c;
    double hit, pass_seconds; size_t trials;               /* what is known of draft passes */
    double match_p[2];                                     /* of matches: hits, trials, fading */
    double head_p[2];
    size_t length; double seconds, calibrating, mean_rows, mean_passes;
    /* of 1,000 tokens: as it ran, and plain with the same noise on average */
    double window_seconds[512], window_plain[512]; size_t n_windows;
};

static void run_start(struct run *x, const struct machine *m, size_t length)
{
    others = 1, others_until = 0;
    *x = (struct run){ .hit = 0.9, .match_p = { 3, 6 }, .head_p = { 3, 6 }, .length = length };
    control_start(&x->c, true, 48, m->weight_bytes, m->kv_bytes);
    x->pass_seconds = 0;
}
static double slower(const struct machine *m, const struct run *x, size_t rows)
{
    return rows == 1 && x->c.rounds < m->cold ? m->slower : 1;
}
static double chance(const double p[2]) { return p[0] / p[1]; }
static void learn(double p[2], bool hit)
{
    p[0] += hit, p[1] += 1;
    if (p[1] > 200) p[0] /= 2, p[1] /= 2;
}

/* draft_could_gain in short */
static double could_gain(const struct run *x, const struct text *text)
{
    const struct control *c = &x->c;
    const double without = control_chain_value(c, 0, 0),
                 pass = x->pass_seconds > 0 ? x->pass_seconds : control_pass_seconds(c, c->weight_bytes, 256);
    const double by_heads = text->head_seconds <= 0 ? -INFINITY
                            : control_knows(c, SOURCE_HEADS)
                                ? control_gain(c, SOURCE_HEADS)
                                : control_chain_value(c, 0.6, 0) - c->lambda * text->head_seconds - without;
    return MAX(by_heads, control_chain_value(c, x->hit, pass) - without);
}

/* One round; returns the tokens. */
static size_t round_of(struct run *x, const struct machine *m, const struct text *text, size_t left)
{
    static struct tree t;
    struct control *c = &x->c;
    double seconds = 0;
    size_t n = control_wants_calibration(c, x->length, left), rows, passes = 0;
    if (m->others > 0 && x->seconds >= others_until)
        others = exp(m->others * rng_normal(&rng)), others_until = x->seconds + 0.33;
    const bool twice = c->measured[1];
    for (size_t i = 0; i < n; i++) {
        const double pass = exact_pass(m, control_grid[i], x->length) * slower(m, x, control_grid[i]);
        double a = noisy(m, pass), b = twice ? noisy(m, pass) : 0;
        control_measured(c, i, x->length, twice ? MIN(a, b) : a);
        c->calibrating += MAX(a, b) * twice;
        seconds += a + b, x->calibrating += a + b;
    }
    control_round(c, x->length);
    if ((control_trial_is_due(c) || control_is_trial(c)) && !control_may_try(c, could_gain(x, text)))
        x->hit += 0.14 * MAX(0.9 - x->hit, 0);
    control_choose_mode(c);
    tree_start(&t, 0, left - 1);
    /* the truth of this round: token 0 is right at every depth, until the first guess of whatever source that is wrong */
    const bool found = uniform() < text->often, asked = control_asks(c, SOURCE_SUFFIX);
    const double without = control_value(c, &t, &rows);
    if (found && asked)
        for (uint32_t i = 0, at = 0; i < 6 && (i == 0 || at); i++)
            if (chance(x->match_p) * t.node[at].reach >= control_min_reach(c))
                at = tree_add(&t, at, 100, SOURCE_SUFFIX, (float)chance(x->match_p), 0);
    if (asked && c->mode == MODE_LEAN)
        control_drafted(c, SOURCE_SUFFIX, without, control_value(c, &t, &rows), 2e-6);
    if (control_asks(c, SOURCE_HEADS) && text->head_seconds > 0) {
        double before = control_value(c, &t, &rows), s = noisy(m, text->head_seconds);
        for (uint32_t i = 0, at = 0; i < 3 && (i == 0 || at); i++)
            at = tree_add(&t, at, 200, SOURCE_HEADS, (float)chance(x->head_p), 0);
        control_drafted(c, SOURCE_HEADS, before, control_value(c, &t, &rows), s);
        seconds += s;
    }
    for (uint32_t at = 0; control_asks(c, SOURCE_PARTIAL);) {
        double s = x->pass_seconds > 0 ? x->pass_seconds : control_pass_seconds(c, c->weight_bytes, 256);
        if (passes == CONTROL_PASSES || t.node[at].depth >= t.max_depth ||
            !control_pass_pays(c, &t, t.node[at].reach, x->hit, s))
            break;
        s = noisy(m, draft_pass(m));
        x->pass_seconds += (s - x->pass_seconds) / (double)(passes || x->trials ? 20 : 1);
        seconds += s, passes++;
        at = tree_add(&t, at, 300, SOURCE_PARTIAL, (float)x->hit, 0);
        if (!at) break;
    }
    /* hope, as src/decode/draft_model.c has it */
    if (!passes && c->mode == MODE_FULL) x->hit += 0.0005 * (0.9 - x->hit);
    control_value(c, &t, &rows);
    tree_keep(&t, rows);
    double verify = noisy(m, exact_pass(m, t.n_kept, x->length)) * slower(m, x, t.n_kept);
    control_verified(c, x->length, t.n_kept, verify);
    /* walk: of the children of a node one at most is right */
    size_t tokens = 1;
    for (uint32_t at = 0;; tokens++) {
        double u = uniform();
        uint32_t next = 0;
        for (uint32_t i = t.node[at].first; i; i = t.node[i].next) {
            double p = t.node[i].token == 100   ? text->match
                       : t.node[i].token == 200 ? text->heads
                                                : text->pass;
            bool right = u >= 0 && u < p;
            /* sources guess apart: their chances share the whole */
            u = right ? -1 : u - p;
            if (t.node[i].token == 100) learn(x->match_p, right);
            if (t.node[i].token == 200) learn(x->head_p, right);
            if (t.node[i].token == 300) x->hit += (right - x->hit) / (double)MIN(++x->trials + 8, (size_t)60);
            if (right) next = i;
        }
        bool kept = false;
        for (size_t k = 1; next && k < t.n_kept; k++) kept |= t.kept[k] == next;
        if (!kept) break;
        at = next;
    }
    seconds += verify;
    double expected = 0;
    for (size_t k = 1; k < t.n_kept; k++) expected += t.node[t.kept[k]].reach;
    control_done(c, x->length, tokens, expected, seconds);
    x->mean_rows += 0.01 * ((double)t.n_kept - x->mean_rows),
        x->mean_passes += 0.01 * ((double)passes - x->mean_passes);
    for (size_t i = 0; i < tokens; i++) {
        size_t w = MIN((x->length + i) / 1000, (size_t)511);
        x->window_seconds[w] += seconds / (double)tokens,
            x->window_plain[w] += others * exact_pass(m, 1, x->length + i) * exp(m->noise * m->noise / 2) *
                                  (m->hiccup ? 1 + 5.0 / (double)m->hiccup : 1);
        x->n_windows = MAX(x->n_windows, w);                /* whole ones */
    }
    x->length += tokens, x->seconds += seconds;
    return tokens;
}
/* Tokens per second over n tokens from here on. */
static double run_on(struct run *x, const struct machine *m, const struct text *text, size_t n)
{
    double from = x->seconds;
    size_t done = 0;
    while (done < n) done += round_of(x, m, text, n + 100000 - done);
    return (double)done / (x->seconds - from);
}

/* The best that a fixed number of draft passes gives at this length, of texts without matches and heads. */
static double best_rate(const struct machine *m, const struct text *text, size_t length, size_t *passes)
{
    double best = 0;
    for (size_t k = 0; k <= CONTROL_PASSES; k++) {
        double tokens = 1, reach = 1;
        for (size_t i = 0; i < k; i++) tokens += reach *= text->pass;
        double rate = tokens / (exact_pass(m, k + 1, length) + (double)k * draft_pass(m));
        if (rate > best) best = rate, *passes = k;
    }
    return best;
}

/* Memory sets the pace of one row, arithmetic of further ones; a draft pass reads the weights and little cache. */
static const struct machine usual = { 10e6, 1536, 20e9, 40e-6, 2e-14, 1.1, 0.03, 400 };
static const struct machine dear_rows = { 10e6, 1536, 20e9, 700e-6, 3e-11, 1.1, 0.03, 0 },
    dear_drafts = { 10e6, 1536, 20e9, 40e-6, 2e-14, 1.6, 0.05, 300 };
static const struct machine free_rows = { 40e6, 3000, 20e9, 3e-6, 0, 0.2, 0.03, 0 };
static const struct machine tiles = { 10e6, 1536, 20e9, 80e-6, 0, 0.2, 0.03, 0, .tile = 3, .border = 1e-3 };

static void finds_the_best_number_of_passes(void)
{
    static const struct { const char *name; const struct machine *m; double pass; size_t length;
    } cases[] = {
        { "usual, 0.9", &usual, 0.9, 20000 },         { "usual, 0.7", &usual, 0.7, 20000 },
        { "usual, 0.7, long", &usual, 0.7, 90000 },   { "usual, 0.4, long", &usual, 0.4, 90000 },
        { "dear rows", &dear_rows, 0.8, 30000 },      { "free rows, 0.9", &free_rows, 0.9, 20000 },
        { "free rows, 0.5", &free_rows, 0.5, 20000 }, { "short", &usual, 0.8, 2000 },
        { "tiles of three", &tiles, 0.82, 20000 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text text = { .pass = cases[i].pass };
        struct run x;
        size_t passes = 0;
        rng.s = 100 + i;
        run_start(&x, cases[i].m, cases[i].length);
        run_on(&x, cases[i].m, &text, 6000);
        double noise = cases[i].m->hiccup ? 1 + 5.0 / (double)cases[i].m->hiccup : 1;
        double rate = run_on(&x, cases[i].m, &text, 8000) * noise,
               best = best_rate(cases[i].m, &text, x.length - 4000, &passes);
        double plain = 1 / exact_pass(cases[i].m, 1, x.length - 4000);
        printf("    %-18s best %2zu passes, %.2fx plain; found %.1f passes, %.1f rows, %.3f of the best\n",
               cases[i].name, passes, best / plain, x.mean_passes, x.mean_rows, rate / best);
        CHECK(rate > 0.95 * best, "%s", cases[i].name);
    }
}

static void costs_nothing_where_drafting_is_useless(void)
{
    static const struct { const char *name; const struct machine *m; struct text text;
    } cases[] = {
        { "wrong guesses", &usual, { .pass = 0.02 } },
        { "dear draft passes", &dear_drafts, { .pass = 0.3 } },
        { "dear rows", &dear_rows, { .pass = 0.3, .often = 0.5, .match = 0.2 } },
        { "wrong matches", &usual, { .pass = 0.05, .often = 0.7, .match = 0.03 } },
        { "useless heads", &usual, { .pass = 0.05, .heads = 0.02, .head_seconds = 200e-6 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run x;
        double worst = 10;
        rng.s = 200 + i;
        run_start(&x, cases[i].m, 2000);
        run_on(&x, cases[i].m, &cases[i].text, 60000);
        double all = 0, plain = 0;
        for (size_t w = 2; w < x.n_windows; w++) {
            all += x.window_seconds[w], plain += x.window_plain[w];
            worst = MIN(worst, x.window_plain[w] / x.window_seconds[w]);
        }
        printf("    %-18s %.3f of plain, the worst 1,000 tokens %.3f; calibration and exploring %.2f %% of "
               "the time\n",
               cases[i].name, plain / all, worst, 100 * (x.calibrating + x.c.exploring) / x.seconds);
        CHECK(plain / all > 0.98, "%s", cases[i].name);
        CHECK(worst > 0.94, "%s: a window of %.3f", cases[i].name, worst);
        CHECK(x.calibrating + x.c.exploring < 0.01 * x.seconds, "%s", cases[i].name);
        CHECK(near(x.c.calibrating, x.calibrating, 0, 1e-9));
    }
}

/* The speed wanders by a quarter from one third of a second to the next, as where a host has other guests: most of what drafting gains is still gained,
 * and drafting that is useless costs as little. */
static void a_machine_that_others_use_too(void)
{
    static const struct machine busy = { 10e6, 3072, 20e9, 0.1e-3, 1.7e-11, 0.3, 0.05, 400, 0.25 };
    static const struct text texts[] = { { .pass = 0.83 }, { .pass = 0.1 } };
    for (size_t k = 0; k < 2; k++) {
        double mean = 0, worst = 10;
        for (size_t i = 0; i < SEEDS; i++) {
            struct run x;
            size_t passes = 0;
            double all = 0, plain = 0;
            rng.s = 500 + i;
            run_start(&x, &busy, 20000);
            run_on(&x, &busy, &texts[k], 40000);
            for (size_t w = 21; w < x.n_windows; w++)
                all += x.window_seconds[w], plain += x.window_plain[w];
            const double found =
                plain / all / (best_rate(&busy, &texts[k], 40000, &passes) * exact_pass(&busy, 1, 40000));
            mean += found / SEEDS;
            worst = MIN(worst, found);
        }
        printf("    guesses come true %.2f times: %.3f of the best, the worst of %d %.3f\n", texts[k].pass,
               mean, SEEDS, worst);
        CHECK(mean > (k ? 0.97 : 0.94) && worst > (k ? 0.96 : 0.88), "%g, %g", mean, worst);
    }
}

/* What lean rounds took just behind the prompt, when the caches were still full of it, is not held against them for long. */
static void a_machine_that_is_slow_behind_its_prompt(void)
{
    static const struct machine cold = { 10e6, 3072, 20e9, 0.75e-3, 1.7e-11, 0.3, 0.03, 0, .cold = 110,
                                         .slower = 1.3 };
    static const struct text text = { .pass = 0.55 };
    double mean = 0;
    size_t passes = 0;
    for (size_t i = 0; i < SEEDS; i++) {
        struct run x;
        rng.s = 600 + i;
        run_start(&x, &cold, 8900);
        run_on(&x, &cold, &text, 1200);
        mean += x.window_plain[9] / x.window_seconds[9] / SEEDS;
    }
    const double best = best_rate(&cold, &text, 10000, &passes),
                 two = (1 + text.pass) / (exact_pass(&cold, 2, 10000) + draft_pass(&cold)) *
                       exact_pass(&cold, 1, 10000);
    printf("    best %zu passes (one would give %.3f of plain); tokens 100 to 1,100: %.3f of plain\n", passes,
           two, mean);
    CHECK(best > 0 && passes == 0);
    CHECK(mean > 0.97, "%g", mean);
}

/* Another process takes half of the machine, and gives it back; rows become dear; the text becomes easy, and hard again. */
static void learns_again(void)
{
    struct machine m = usual;
    struct text easy = { .pass = 0.85 }, hard = { .pass = 0.1 };
    static const char *const what[] = { "as it was", "half as fast", "as before",
                                        "further rows four times as dear", "hard text", "easy text" };
    struct run x;
    rng.s = 300;
    run_start(&x, &m, 20000);
    for (size_t k = 0; k < 6; k++) {
        const struct text *text = k == 4 ? &hard : &easy;
        size_t passes = 0;
        m.bytes_per_second = k == 1 ? 10e9 : 20e9, m.row = k == 1 ? 80e-6 : k == 3 ? 320e-6 : 40e-6;
        run_on(&x, &m, text, 6000);
        double rate = run_on(&x, &m, text, 6000) * (1 + 5.0 / (double)m.hiccup),
               best = best_rate(&m, text, x.length - 3000, &passes);
        printf("    %-34s best %2zu passes; found %.1f, %.3f of the best\n", what[k], passes, x.mean_passes,
               rate / best);
        CHECK(rate > 0.93 * best, "%s", what[k]);
    }
    CHECK(x.calibrating + x.c.exploring < 0.01 * x.seconds, "%g",
          (x.calibrating + x.c.exploring) / x.seconds);
}

/* Matches alone pay where rows are cheap: their rows are kept without a draft pass. */
static void takes_matches_where_passes_do_not_pay(void)
{
    struct text text = { .pass = 0.02, .often = 0.6, .match = 0.8 };
    struct run x;
    rng.s = 400;
    run_start(&x, &usual, 20000);
    run_on(&x, &usual, &text, 4000);
    double rate = run_on(&x, &usual, &text, 8000) * (1 + 5.0 / (double)usual.hiccup), tokens = 1, reach = 1,
           best = 0;
    for (size_t k = 0; k <= 6; k++) {
        double mean = text.often * tokens + (1 - text.often),
               seconds = text.often * exact_pass(&usual, k + 1, x.length - 4000) +
                         (1 - text.often) * exact_pass(&usual, 1, x.length - 4000);
        best = MAX(best, mean / seconds);
        tokens += reach *= text.match;
    }
    printf("    %.3f of the best, %.1f rows, %.2f passes\n", rate / best, x.mean_rows, x.mean_passes);
    CHECK(rate > 0.95 * best && x.mean_passes < 0.5);
}

/* Lean rounds ask what looks at the text alone: always where it gains, else in a small share of the time; and never what asks the model. */
static void lean_rounds_ask_what_gains(void)
{
    enum { ROUNDS = 3000 };
    struct control c;
    size_t asked = 0, of = 0, of_model = 0;
    control_start(&c, true, 48, 1e7, 1000);
    control_measured(&c, 0, 100, 0.01);
    for (size_t round = 0; round < ROUNDS; round++) {
        control_round(&c, 100);
        if (control_trial_is_due(&c)) control_may_try(&c, 0);
        control_choose_mode(&c);
        of_model +=
            control_asks(&c, SOURCE_PARTIAL) + control_asks(&c, SOURCE_HEADS) + control_asks(&c, HEADS_AHEAD);
        const bool known = control_knows(&c, SOURCE_SUFFIX), asks = control_asks(&c, SOURCE_SUFFIX);
        CHECK(known || asks, "what is not known is asked");
        CHECK(!known || !asks || control_looks(&c), "what gains nothing is asked in looks alone");
        if (asks) control_drafted(&c, SOURCE_SUFFIX, 0, 0, 1e-3);
        asked += asks && known, of += control_looks(&c);
        control_done(&c, 100, 1, 0, 0.01);
    }
    printf("    asked in %zu of %zu looks, %.2f %% of the time\n", asked, of,
           100 * (double)asked * 1e-3 / c.seconds);
    CHECK(c.mode == MODE_LEAN && of_model == 0, "%zu", of_model);
    CHECK(asked > 15 && asked < of / 2, "a look takes a tenth of a round here: %zu of %zu", asked, of);
    for (size_t i = 0; i < 5; i++) control_drafted(&c, SOURCE_SUFFIX, 0, 5, 1e-3);
    for (size_t round = 0; round < 20; round++) {
        control_round(&c, 100);
        CHECK(control_asks(&c, SOURCE_SUFFIX), "what gains is always asked");
        control_done(&c, 100, 1, 0, 0.01);
    }
}

/* Off, it is not there: nothing is measured, nothing is kept for it. */
static void off_and_short_texts(void)
{
    struct control c;
    control_start(&c, false, 48, 1e7, 1000);
    CHECK(control_wants_calibration(&c, 100, 10000) == 0);
    control_round(&c, 100);
    control_verified(&c, 100, 5, 0.1);
    control_done(&c, 100, 1, 0, 0.1);
    CHECK(c.rounds == 1 && !c.measured[0]);
    control_start(&c, true, 48, 1e7, 1000);
    CHECK(control_wants_calibration(&c, 100, 100000) == 1);
    control_measured(&c, 0, 100, 0.01);
    CHECK(control_wants_calibration(&c, 100, 100000) == 0);
    control_round(&c, 100);
    control_choose_mode(&c);
    struct tree t;
    size_t rows;
    tree_start(&t, 1, 0);
    control_value(&c, &t, &rows);
    CHECK(rows == 1, "nothing to keep");
    size_t postponed = 0, again = 0;
    while (postponed < 7 && c.mode == MODE_LEAN) {
        const bool due = control_trial_is_due(&c);
        const size_t n = control_wants_calibration(&c, 100, 100000);
        CHECK(due || n == 0, "lean rounds need no other sizes");
        if (due && postponed == 0) {
            CHECK(n > 1, "before drafting is judged by them");
            CHECK(control_wants_calibration(&c, 100, 1000) == n);
            CHECK(control_wants_calibration(&c, 100, 999) == 0, "a short text has no time for them");
        }
        for (size_t i = 0; i < n; i++)
            control_measured(&c, i, 100, 0.01 + 0.001 * (double)i);
        if (due) {
            again += n && postponed;
            CHECK(!n == (postponed % 6 > 0),
                  "at first and behind every sixth trial that was put off: %zu after %zu", n, postponed);
            c.ran[MODE_FULL].tokens = 100, c.ran[MODE_FULL].seconds = 1e-9;
            CHECK(!control_may_try(&c, 0.1), "too little for a trial");
            postponed++;
            CHECK((c.ran[MODE_FULL].tokens > 0) == (postponed % 6 > 0),
                  "what drafting once gained is doubted too");
            CHECK(c.stale == (postponed % 6 == 0), "and what its passes took, by this trial alone: %zu",
                  postponed);
            c.ran[MODE_FULL].tokens = c.ran[MODE_FULL].seconds = 0;
        }
        control_choose_mode(&c);
        control_done(&c, 100, 1, 0, 0.05);
    }
    CHECK(postponed == 7 && again == 1, "%zu, %zu", postponed, again);
    for (size_t round = 0; !control_trial_is_due(&c) && round < 1000; round++) {
        control_choose_mode(&c);
        control_done(&c, 100, 1, 0, 0.01);
    }
    CHECK(control_may_try(&c, 0.2) && !control_is_trial(&c));
    /* a trial goes on in its first rounds and while it is ahead, whatever could be gained; else it is given up, and what it measured forgotten */
    for (size_t ahead = 2; ahead-- > 0;) {
        struct control x = c;
        for (size_t round = 0; round < 9; round++) {
            control_choose_mode(&x);
            CHECK(x.mode == MODE_FULL && control_is_trial(&x), "ahead %zu round %zu", ahead, round);
            control_done(&x, 100, 1, 0, ahead ? 0.005 : 0.012);
            CHECK(control_may_try(&x, 0.01) && (round >= 5 || control_may_try(&x, 0)), "ahead %zu round %zu",
                  ahead, round);
        }
        x.postponed = 5;
        CHECK(control_may_try(&x, 0) == ahead, "ahead %zu", ahead);
        if (!ahead)
            CHECK(x.mode == MODE_LEAN && x.to_go == 301 && x.ran[MODE_FULL].seconds == 0 && x.doubted &&
                      !x.stale,
                  "the sixth, but its passes have just been timed");
    }
}

int main(void)
{
    RUN(finds_the_best_number_of_passes);
    RUN(costs_nothing_where_drafting_is_useless);
    RUN(a_machine_that_others_use_too);
    RUN(a_machine_that_is_slow_behind_its_prompt);
    RUN(learns_again);
    RUN(takes_matches_where_passes_do_not_pay);
    RUN(lean_rounds_ask_what_gains);
    RUN(off_and_short_texts);
    return test_end();
}
