/* The planner on simulated machines. A machine says how long passes take, with noise. A text says how often
 * guesses come true. Seconds are added up, none pass. The rounds are the product's own draft_round(), with
 * drafters that take simulated time. */
#include "src/decode/draft.h"
#include "tests/reference.h"
#include "tests/test.h"

struct machine {
    /* a pass of one row reads the weights and the cache */
    double weight_bytes, kv_bytes, bytes_per_second;
    double row, kv_row;                                    /* seconds of a further row; for a byte of cache */
    /* bytes that a draft pass reads, as a share of the weights and its budget */
    double share;
    /* of a pass; every so many passes takes 6 times as long */
    double noise; size_t hiccup;
    /* how much the speed differs from one third of a second to the next */
    double others;
    size_t tile; double border;                            /* rows of a tile; seconds of each further tile */
    /* one-row passes of the first rounds take so many times as long */
    size_t cold; double slower;
    double after;                                          /* and a verification pass after draft passes */
};
struct text {
    /* a guess of a draft pass comes true with this chance; of the misses that a four times larger cache
     * avoids */
    double pass, far;
    /* a match of the text's end exists; each of its 6 tokens comes true */
    double often, match;
    double heads, head_seconds;                            /* three chained guesses of heads; their price */
};

enum { SEEDS = 32, RIGHT = 1, MATCH = 6, HEADS = 3, WINDOW = 1000 };
static const size_t budgets[] = { 256, 1024, 4096 };

static struct rng rng;
static double uniform(void) { return (double)(rng_next(&rng) >> 11) * 0x1p-53; }

/* ---- a machine's time ---- */

static struct sim {
    const struct machine *m; const struct text *text;
    struct decoder g;
    struct cost_model costs;
    struct tree tree;
    double clock, others, others_until;
    size_t passes, length;
    bool found; double match_p[2], head_p[2];              /* fading hits and trials */
    double mean_rows, mean_passes, mean_cache, timing;
    double window_seconds[1024], window_plain[1024];
    size_t trials; bool was_exploring;
} sim;

static double exact_pass(const struct machine *m, size_t rows, size_t length)
{
    const double cache = m->kv_bytes * (double)length;
    return (m->weight_bytes + cache) / m->bytes_per_second +
           (double)(rows - 1) * (m->row + m->kv_row * cache) +
           (m->tile ? (double)((rows - 1) / m->tile) * m->border : 0);
}
static double exact_draft(const struct machine *m, size_t cache, size_t length)
{
    return m->share * (m->weight_bytes + (double)MIN(budgets[cache], length) * m->kv_bytes) /
           m->bytes_per_second;
}
static double true_hit(const struct text *t, size_t cache)
{
    return 1 - (1 - t->pass) * pow(1 - t->far, (double)cache);
}
/* The mean factor of noise() but for others. */
static double mean_noise(const struct machine *m)
{
    return exp(m->noise * m->noise / 2) * (m->hiccup ? 1 + 5.0 / (double)m->hiccup : 1);
}
static double spend(double seconds)
{
    const struct machine *m = sim.m;
    if (m->others > 0 && sim.clock >= sim.others_until)
        sim.others = exp(m->others * rng_normal(&rng)), sim.others_until = sim.clock + 0.33;
    seconds *=
        sim.others * exp(m->noise * rng_normal(&rng)) * (m->hiccup && ++sim.passes % m->hiccup == 0 ? 6 : 1);
    sim.clock += seconds;
    return seconds;
}
static double clock_of_sim(void) { return sim.clock; }
static double spend_pass(size_t rows, bool after_drafts)
{
    const bool cold = rows == 1 && sim.g.planner.rounds < sim.m->cold;
    return spend(exact_pass(sim.m, rows, sim.length) * (cold ? sim.m->slower : 1) *
                 (after_drafts && sim.m->after ? sim.m->after : 1));
}

/* ---- drafters ---- */

static double chance(const double p[2]) { return p[0] / p[1]; }
static void learn(double p[2], bool hit)
{
    p[0] += hit, p[1] += 1;
    if (p[1] > 200) p[0] /= 2, p[1] /= 2;
}
/* A guess after `node`: the text's token, as often as p says where the path to the node is the text; else one
 * of its source's own. */
static int32_t guess(const struct decoder *g, uint32_t node, enum drafter source, double p)
{
    const bool on_path = node == 0 || g->round.tree->node[node].token == RIGHT;
    return on_path && uniform() < p ? RIGHT : 2 + (int32_t)source;
}
static void propose_match(struct decoder *g)
{
    sim.clock += g->round.probe ? 20e-6 : 2e-6;   /* a probe takes in 17 tokens and proposes unlikely ones */
    for (uint32_t i = 0, at = 0; sim.found && i < MATCH && (i == 0 || at); i++)
        if (g->round.probe ||
            chance(sim.match_p) * g->round.tree->node[at].reach >= (double)g->round.min_reach)
            at = tree_add(g->round.tree, at, guess(g, at, DRAFTER_SUFFIX, sim.text->match), DRAFTER_SUFFIX,
                          (float)chance(sim.match_p), 0);
}
static void propose_heads(struct decoder *g)
{
    spend(sim.text->head_seconds);
    for (uint32_t i = 0, at = 0; i < HEADS && (i == 0 || at); i++)
        at = tree_add(g->round.tree, at, guess(g, at, DRAFTER_HEADS, sim.text->heads), DRAFTER_HEADS,
                      (float)chance(sim.head_p), 0);
}
static bool prepare(struct decoder *g)
{
    (void)g;
    return true;
}
/* A pass has no logits: `keep` adds its guess. */
static bool choose(struct decoder *g, struct pass_part *p)
{
    p->rows = 1;
    p->node[0] = g->round.passes ? tree_best_child(g->round.tree, g->round.pass_node) : 0;
    return true;
}
static int make_pass(struct decoder *const *all, size_t n, struct pass_part *const *part, double *end)
{
    (void)n, (void)part, (void)end;
    spend(exact_draft(sim.m, all[0]->planner.plan.cache - 1, sim.length));
    return 0;
}
static void keep(struct decoder *g, const struct pass_part *p)
{
    const size_t cache = g->planner.plan.cache - 1;
    const uint32_t node = p->node[0],
                   added = tree_add(g->round.tree, node,
                                    guess(g, node, DRAFTER_PARTIAL, true_hit(sim.text, cache)),
                                    DRAFTER_PARTIAL, (float)planner_acceptance(&g->planner), 0);
    g->round.next_reach = added ? g->round.tree->node[tree_best_child(g->round.tree, node)].reach : 0;
}
/* Heads know nothing more after a draft pass in these texts. */
static bool guess_nothing(struct decoder *g)
{
    (void)g;
    return false;
}
static struct pass_cost bytes_of_sim(const struct decoder *g, size_t i) { return g->planner.reads[i].pass; }
static const struct drafter_ops sim_suffix = { .id = DRAFTER_SUFFIX, .expand = propose_match },
    sim_heads = { .id = DRAFTER_HEADS, .turn = TURN_MODEL, .expand = propose_heads, .ahead = guess_nothing },
    sim_partial = { .id = DRAFTER_PARTIAL, .turn = TURN_PASSES,
                    .passes = &(const struct drafter_passes){
                        .most = PASSES_MAX, .rows = 1, .leaves_hidden = true, .reads = bytes_of_sim,
                        .prepare = prepare, .choose = choose, .forward = make_pass, .keep = keep } };

/* ---- rounds ---- */

static void start(const struct machine *m, const struct text *text, size_t length, size_t n_caches)
{
    struct planner_setup s = { .on = true,
                               .rows_max = 48,
                               .n_caches = n_caches,
                               .weight_bytes = m->weight_bytes,
                               .kv_bytes = m->kv_bytes,
                               .heads_share = 0.2 };
    for (size_t i = 0; i < n_caches; i++)
        s.reads[i].pass = (struct pass_cost){ m->weight_bytes, m->kv_bytes, (double)budgets[i] };
    sim = (struct sim){
        .m = m, .text = text, .length = length, .others = 1, .match_p = { 3, 6 }, .head_p = { 3, 6 }
    };
    sim.g.n_caches = n_caches;
    drafters[DRAFTER_SUFFIX] = &sim_suffix, drafters[DRAFTER_PARTIAL] = &sim_partial;
    drafters[DRAFTER_HEADS] = &sim_heads;
    for (size_t i = 0; i < n_caches; i++)
        sim.g.cache[i].ops = &sim_partial, sim.g.cache[i].budget = budgets[i];
    static struct round_buffers buffers = { .verify_rows = TREE_ROWS_MAX };
    static const struct model model;
    sim.g.model = &model;
    sim.g.round.tree = &sim.tree, sim.g.clock = clock_of_sim, sim.g.set.buffers = &buffers;
    sim.g.set.draft.drafters =
        1u << DRAFTER_SUFFIX | 1u << DRAFTER_PARTIAL | (text->head_seconds > 0) << DRAFTER_HEADS;
    sim.g.set.draft.draft_passes = -1;
    planner_start(&sim.g.planner, &sim.costs, &s);
}

static void time_passes(size_t left)
{
    struct planner *p = &sim.g.planner;
    for (size_t i; (i = planner_size_due(p, left)) < COST_SIZES;) {
        const double s = spend_pass(cost_rows(i), false);
        sim.timing += s;
        planner_timed(p, i, sim.length, s);
    }
}

/* Walks down the text's own tokens; drafters learn which of their guesses were right. */
static size_t accept(void)
{
    const struct tree *t = &sim.tree;
    for (uint32_t tokens = 1, at = 0;; tokens++) {
        uint32_t next = 0;
        for (uint32_t i = t->node[at].first; i; i = t->node[i].next) {
            const bool right = t->node[i].token == RIGHT;
            if (t->node[i].sources >> DRAFTER_SUFFIX & 1) learn(sim.match_p, right);
            if (t->node[i].sources >> DRAFTER_HEADS & 1) learn(sim.head_p, right);
            if (t->node[i].sources >> DRAFTER_PARTIAL & 1) planner_guessed(&sim.g.planner, right);
            if (right) next = i;
        }
        bool kept = false;
        for (size_t k = 1; next && k < t->n_kept; k++) kept |= t->kept[k] == next;
        if (!kept) return tokens;
        at = next;
    }
}

static size_t run_round(size_t left)
{
    struct planner *p = &sim.g.planner;
    const double begin = sim.clock;
    time_passes(left);
    const double from = sim.clock;
    sim.found = uniform() < sim.text->often;
    tree_start(&sim.tree, 0, left - 1);
    sim.g.n_tokens = sim.length + 1;
    draft_plan(&(struct decoder *){ &sim.g }, 1);
    draft_round(&(struct decoder *){ &sim.g }, 1);
    planner_verified(p, sim.length, sim.tree.n_kept, sim.tree.n_kept,
                     spend_pass(sim.tree.n_kept, sim.g.round.passes > 0), true);
    double expected = 0;
    for (size_t k = 1; k < sim.tree.n_kept; k++) expected += (double)sim.tree.node[sim.tree.kept[k]].reach;
    const size_t tokens = accept();
    planner_done(p, tokens, expected);
    planner_round_done(&p, 1, sim.clock - from);
    sim.trials += p->exploring && !sim.was_exploring, sim.was_exploring = p->exploring;
    sim.mean_rows += 0.003 * ((double)sim.tree.n_kept - sim.mean_rows);
    sim.mean_passes += 0.003 * ((double)sim.g.round.passes - sim.mean_passes);
    sim.mean_cache += 0.003 * ((double)p->plan.cache - sim.mean_cache);
    for (size_t i = 0; i < tokens; i++) {
        const size_t w = MIN((sim.length + i) / WINDOW, (size_t)1023);
        sim.window_seconds[w] += (sim.clock - begin) / (double)tokens;
        sim.window_plain[w] += sim.others * exact_pass(sim.m, 1, sim.length + i) * mean_noise(sim.m);
    }
    sim.length += tokens;
    return tokens;
}
/* Tokens per second over n tokens from here on. */
static double run_on(size_t n)
{
    const double from = sim.clock;
    size_t done = 0;
    while (done < n) done += run_round(n + 100000 - done);
    return (double)done / (sim.clock - from);
}
/* Over the windows of n tokens from here on: plain seconds by seconds; the worst one. */
static double run_windows(size_t n, double *worst)
{
    const size_t first = (sim.length + WINDOW - 1) / WINDOW;
    double all = 0, plain = 0;
    run_on(n);
    *worst = 10;
    for (size_t w = first; w < sim.length / WINDOW; w++) {
        all += sim.window_seconds[w], plain += sim.window_plain[w];
        *worst = MIN(*worst, sim.window_plain[w] / sim.window_seconds[w]);
    }
    return plain / all;
}

/* ---- the best fixed plan ---- */

struct fixed { size_t cache, passes, match; bool heads; };

/* Tokens a second. A chain of n guesses reaches depth d with chance p^d; the longest right chain is
 * accepted. */
static double fixed_rate(const struct machine *m, const struct text *t, size_t length, const struct fixed *f)
{
    double all_tokens = 0, seconds = 0;
    for (int found = 0; found < 2; found++) {
        const double share = found ? t->often : 1 - t->often,
                     p[3] = { t->match, true_hit(t, f->cache), t->heads };
        const size_t n[3] = { found ? f->match : 0, f->passes, f->heads ? HEADS : 0 };
        double tokens = 1;
        for (size_t d = 1; d <= PASSES_MAX; d++) {
            double none = 1;
            for (size_t s = 0; s < 3; s++) none *= d <= n[s] ? 1 - pow(p[s], (double)d) : 1;
            tokens += 1 - none;
        }
        all_tokens += share * tokens;
        seconds +=
            share * (exact_pass(m, 1 + n[0] + n[1] + n[2], length) * (f->passes && m->after ? m->after : 1) +
                     (double)f->passes * exact_draft(m, f->cache, length) + (f->heads ? t->head_seconds : 0));
    }
    return all_tokens / seconds;
}
static double best_fixed(const struct machine *m, const struct text *t, size_t length, size_t n_caches,
                         struct fixed *best)
{
    double most = 0;
    for (struct fixed f = { 0 }; f.cache < n_caches; f.cache++)
        for (f.passes = 0; f.passes <= PASSES_MAX; f.passes++)
            for (f.match = 0; f.match <= (t->often > 0 ? MATCH : 0); f.match++)
                for (int heads = 0; heads <= (t->head_seconds > 0); heads++) {
                    f.heads = heads;
                    const double rate = fixed_rate(m, t, length, &f);
                    if (rate > most) most = rate, *best = f;
                }
    return most;
}

/* ---- forty machines ---- */

static const struct { struct machine m; struct text t; size_t length, n_caches; } forty[] = {
#include "tests/decode/planner_machines.h"
};

static void forty_machines(void)
{
    double lowest = 10, sum = 0;
    for (size_t i = 0; i < sizeof forty / sizeof *forty; i++) {
        const struct machine *m = &forty[i].m;
        struct fixed best = { 0 };
        double share = 0, at_first = 0, worst = 10, mean_passes = 0, mean_rows = 0, mean_cache = 0,
               timing = 0, trials = 0;
        enum { RUNS = 8 };
        for (size_t s = 0; s < RUNS; s++) {
            double low;
            rng.s = 1000 * s + i;
            start(m, &forty[i].t, forty[i].length, forty[i].n_caches);
            const size_t l0 = sim.length;
            const double plain = run_windows(4000, &low);
            at_first += plain /
                        (best_fixed(m, &forty[i].t, (l0 + sim.length) / 2, forty[i].n_caches, &best) *
                         exact_pass(m, 1, (l0 + sim.length) / 2)) /
                        RUNS;
            const size_t l1 = sim.length;
            const double now = run_windows(10000, &low),
                         rate = best_fixed(m, &forty[i].t, (l1 + sim.length) / 2, forty[i].n_caches, &best) *
                                exact_pass(m, 1, (l1 + sim.length) / 2);
            share += now / rate / RUNS;
            worst = MIN(worst, low), mean_passes += sim.mean_passes / RUNS, mean_rows += sim.mean_rows / RUNS,
            mean_cache += sim.mean_cache / RUNS, timing += sim.timing / sim.clock / RUNS,
            trials += (double)sim.trials / RUNS;
        }
        const double plain = best_fixed(m, &forty[i].t, forty[i].length + 10000, forty[i].n_caches, &best) *
                             exact_pass(m, 1, forty[i].length + 10000);
        printf("    %2zu best: cache %zu, %2zu passes, match %zu, heads %d: %.2f of plain; found way %.1f, "
               "%.1f passes, %.1f rows: %.3f of it, first 4,000 %.3f; timing %.2f %%, %.1f trials\n",
               i, best.cache + 1, best.passes, best.match, best.heads, plain, mean_cache, mean_passes,
               mean_rows, share, at_first, 100 * timing, trials);
        lowest = MIN(lowest, share), sum += share / (sizeof forty / sizeof *forty);
        CHECK(share >= 0.95, "machine %zu: %.3f", i, share);
    }
    printf("    lowest %.3f, mean %.3f\n", lowest, sum);
}

/* ---- scenarios ---- */

/* Memory sets the pace of one row, arithmetic that of further ones; a draft pass reads the weights and little
 * cache. */
static const struct machine usual = { 10e6, 1536, 20e9, 40e-6, 2e-14, 1.1, 0.03, 400 };
static const struct machine dear_rows = { 10e6, 1536, 20e9, 700e-6, 3e-11, 1.1, 0.03, 0 },
    dear_drafts = { 10e6, 1536, 20e9, 40e-6, 2e-14, 1.6, 0.05, 300 };

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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n_caches = 1; n_caches <= 3; n_caches += 2) {
            double worst = 10, mean = 0, timing = 0, low;
            enum { RUNS = 8 };
            for (size_t s = 0; s < RUNS; s++) {
                rng.s = 200 + i + 100 * s;
                start(cases[i].m, &cases[i].text, 2000, n_caches);
                mean += run_windows(60000, &low) / RUNS;
                worst = MIN(worst, low), timing += sim.timing / sim.clock / RUNS;
            }
            printf("    %-18s %zu caches: %.3f of plain, the worst 1,000 tokens %.3f; timing %.2f %%\n",
                   cases[i].name, n_caches, mean, worst, 100 * timing);
            CHECK(mean > 0.98 && worst >= 0.98 && timing < 0.01, "%s", cases[i].name);
        }
}

static void a_machine_that_others_use_too(void)
{
    static const struct machine busy = { 10e6, 3072, 20e9, 0.1e-3, 1.7e-11, 0.3, 0.05, 400, 0.25 };
    static const struct text texts[] = { { .pass = 0.83 }, { .pass = 0.1 } };
    for (size_t k = 0; k < 2; k++) {
        double mean = 0, worst = 10, low;
        for (size_t i = 0; i < SEEDS; i++) {
            struct fixed best;
            rng.s = 500 + i;
            start(&busy, &texts[k], 20000, 1);
            const double found = run_windows(40000, &low) / (best_fixed(&busy, &texts[k], 40000, 1, &best) *
                                                             exact_pass(&busy, 1, 40000));
            mean += found / SEEDS, worst = MIN(worst, found);
        }
        printf("    guesses come true %.2f times: %.3f of the best, the worst of %d %.3f\n", texts[k].pass,
               mean, SEEDS, worst);
        CHECK(mean > (k ? 0.97 : 0.94) && worst > (k ? 0.96 : 0.88), "%g, %g", mean, worst);
    }
}

static void a_machine_that_is_slow_after_its_prompt(void)
{
    static const struct machine cold = { 10e6, 3072, 20e9, 0.75e-3,     1.7e-11,
                                         0.3,  0.03, 0,    .cold = 110, .slower = 1.3 };
    static const struct text text = { .pass = 0.55 };
    double mean = 0;
    for (size_t i = 0; i < SEEDS; i++) {
        rng.s = 600 + i;
        start(&cold, &text, 8900, 1);
        run_on(1200);
        mean += sim.window_plain[9] / sim.window_seconds[9] / SEEDS;
    }
    struct fixed best = { 0 }, two = { .passes = 1 };
    best_fixed(&cold, &text, 10000, 1, &best);
    printf("    best %zu passes (one would give %.3f of plain); tokens 100 to 1,100: %.3f of plain\n",
           best.passes, fixed_rate(&cold, &text, 10000, &two) * exact_pass(&cold, 1, 10000), mean);
    CHECK(mean > 0.97, "%g", mean);
}

static void learns_again(void)
{
    struct machine m = usual;
    static const struct text easy = { .pass = 0.85 }, hard = { .pass = 0.1 };
    static const char *const what[] = { "as it was", "half as fast",
                                        "as before", "further rows four times as dear",
                                        "hard text", "easy text" };
    rng.s = 300;
    start(&m, &easy, 20000, 1);
    for (size_t k = 0; k < 6; k++) {
        struct fixed best = { 0 };
        sim.text = k == 4 ? &hard : &easy;
        m.bytes_per_second = k == 1 ? 10e9 : 20e9, m.row = k == 1 ? 80e-6 : k == 3 ? 320e-6 : 40e-6;
        run_on(6000);
        const double rate = run_on(6000) * mean_noise(&m),
                     most = best_fixed(&m, sim.text, sim.length - 3000, 1, &best);
        printf("    %-34s best %2zu passes; found %.1f, %.3f of the best\n", what[k], best.passes,
               sim.mean_passes, rate / most);
        CHECK(rate > 0.93 * most, "%s", what[k]);
    }
}

/* Draft passes of exploration over n tokens. They seem to read so many times the model's bytes, and their
 * acceptance rate is assumed to be at most so high. */
static size_t explored_with(const struct machine *m, double bytes, double most, size_t n)
{
    static const struct text text = { .pass = 0.3 };
    rng.s = 700;
    start(m, &text, 2000, 3);
    for (size_t i = 0; i < 3; i++)
        sim.g.planner.reads[i].pass.weights *= bytes, sim.g.planner.reads[i].acceptance_max = most;
    size_t passes = 0;
    for (size_t done = 0; done < n; passes += sim.g.planner.exploring ? sim.g.round.passes : 0)
        done += run_round(n + 100000 - done);
    return passes;
}
static void explores_by_price(void)
{
    static const struct machine dear = { 10e6, 1536, 20e9, 40e-6, 2e-14, 0.9, 0.03, 0 };
    const size_t free = explored_with(&dear, 2, 0, 5000), bound = explored_with(&dear, 2, 0.6, 5000);
    CHECK(free > 0 && bound == 0, "%zu, %zu: even the highest acceptance rate pays for no draft pass", free,
          bound);
}

/* ---- the plan of a round, from tables ---- */

/* One row takes 1, each further one 0.1; a draft pass 0.2 or 0.3; heads 0.1. */
static struct plan_input table_of_costs(void)
{
    struct plan_input c = { .rows_max = 20, .n_caches = 2, .draft = { 0.2, 0.3 }, .drafted = 1,
                            .made = { 1, 1 } };
    for (size_t r = 1; r <= c.rows_max; r++) c.pass[r] = 0.9 + 0.1 * (double)r;
    for (size_t a = 0; a < PROPOSERS; a++) c.propose[a] = 0.1;
    return c;
}
static void the_plan_of_the_highest_rate(void)
{
    const struct plan_input c = table_of_costs();
    const unsigned heads = 1u << DRAFTER_HEADS, match = 1u << DRAFTER_SUFFIX;
    const struct plan_limits all = { .caches = 7, .drafters = heads | match, .passes = -1, .depth = 30 };
    static const struct {
        double acceptance[2], heads[2], match;
        size_t cache, passes;
        bool with_heads, with_match;
    } table[] = {
        { { 0, 0 }, { 0, 0 }, 0, 0, 0, false, false },
        { { 0.2, 0.2 }, { 0, 0 }, 0, 0, 0, false, false }, /* 1.2 tokens in 1.3 */
        { { 0.5, 0.5 }, { 0, 0 }, 0, 1, 1, false, false }, /* 1.5 in 1.3; 1.75 in 1.6 */
        /* 2.44 in 1.6 is 1.525, 2.952 in 1.9 is 1.554, 3.36 in 2.2 1.528 */
        { { 0.8, 0.8 }, { 0, 0 }, 0, 1, 3, false, false },
        { { 0.5, 0.9 }, { 0, 0 }, 0, 2, 4, false, false },
        { { 0.2, 0.2 }, { 0.3, 0 }, 0, 0, 0, true, false }, /* 1.3 in 1.1 */
        { { 0.2, 0.2 }, { 0.05, 0 }, 0, 0, 0, false, false }, /* 1.05 in 1.1 */
        { { 0.5, 0.5 }, { 0, 0.4 }, 0, 1, 1, true, false }, /* 1.9 in 1.4 */
        { { 0, 0 }, { 0, 0 }, 0.15, 0, 0, false, true },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct plan_input x = c;
        x.limits = all;
        for (size_t k = 0; k < 2; k++) x.acceptance[k] = table[i].acceptance[k];
        for (size_t d = 0; d < 2; d++)
            x.gain[d][DRAFTER_HEADS] = table[i].heads[d], x.gain[d][DRAFTER_SUFFIX] = table[i].match;
        const struct plan p = plan_round(&x), again = plan_round(&x);
        CHECK(p.cache == table[i].cache && p.passes == table[i].passes &&
                  p.drafters == (table[i].with_heads ? heads : 0) + (table[i].with_match ? match : 0),
              "case %zu: cache %zu, %zu passes, drafters %x", i, p.cache, p.passes, p.drafters);
        CHECK(near(p.rate, p.tokens / p.seconds, 0, 1e-12) && p.rate == again.rate &&
              p.passes == again.passes);
        /* by hand, over all numbers of passes */
        for (size_t cache = 0; cache <= 2 && !table[i].with_heads && !table[i].with_match; cache++)
            for (size_t k = cache ? 1 : 0; k <= (cache ? PASSES_MAX : 0); k++) {
                double tokens = 1;
                for (size_t j = 1; j <= k; j++) tokens += pow(table[i].acceptance[cache - 1], (double)j);
                CHECK(tokens / (c.pass[k + 1] + (double)k * (cache ? c.draft[cache - 1] : 0)) <=
                          p.rate * 1.05 + 1e-12,
                      "case %zu cache %zu passes %zu", i, cache, k);
            }
    }
}

static void what_a_plan_may_do(void)
{
    struct plan_input c = table_of_costs();
    struct plan_limits *s = &c.limits;
    c.acceptance[0] = c.acceptance[1] = 0.9;
    *s = (struct plan_limits){ .caches = 7, .passes = -1, .depth = 30 };
    struct plan p = plan_round(&c);
    CHECK(p.cache == 1 && p.passes > 3);
    s->depth = 2;
    CHECK(plan_round(&c).passes == 2, "the text ends");
    s->depth = 0;
    CHECK(plan_round(&c).passes == 0);
    s->depth = 30, s->caches = 1;
    CHECK(plan_round(&c).cache == 0, "no cache is allowed");
    s->caches = 4;
    CHECK(plan_round(&c).cache == 2, "one cache is allowed");
    s->caches = 2, s->passes = 5, c.acceptance[0] = 0;
    CHECK(plan_round(&c).passes == 5, "a fixed number of passes, useful or not");
    s->caches = 7, s->passes = -1, c.acceptance[0] = c.acceptance[1] = 0.5;
    c.drafted = 1.3;
    CHECK(plan_round(&c).cache == 0, "rounds with draft passes take longer than their parts");
    c.made[1] = 1.3;
    CHECK(plan_round(&c).cache == 1, "and make more than was expected");
    c.drafted = 1, c.made[1] = 0.88;                        /* 1.5 in 1.3 is 1.154 */
    CHECK(plan_round(&c).cache == 0, "a change has to be worth it");
    s->last = (struct plan){ .cache = 1, .passes = 1 };
    CHECK(plan_round(&c).cache == 1, "where it drafts already, drafting goes on");
    s->drafters = s->required = 1u << DRAFTER_HEADS, c.made[1] = 1;
    CHECK(plan_round(&c).drafters == 1u << DRAFTER_HEADS, "heads that must be asked");
}

static void sizes_of_passes(void)
{
    static const size_t want[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 };
    _Static_assert(sizeof want / sizeof *want == COST_SIZES, "sizes");
    for (size_t i = 0; i < COST_SIZES; i++) CHECK(cost_rows(i) == want[i] && want[i] <= COST_ROWS_MAX);
}

/* ---- several texts ---- */

enum { TEXTS = 3, MOST = 9 };
struct choice { size_t rows[TEXTS]; double value; };

/* A pass of so many rows, as a multiple of a pass of one: a few further rows are cheap. */
static double size_of(size_t rows)
{
    size_t i = 0;
    while (rows >= cost_rows(i + 1)) i++;
    const double a = (double)cost_rows(i), b = (double)cost_rows(i + 1);
    const double lo = 1 + 0.01 * (a - 1) + MAX(0, 0.15 * (a - 8)),
                 hi = 1 + 0.01 * (b - 1) + MAX(0, 0.15 * (b - 8));
    return lo + (hi - lo) * ((double)rows - a) / (b - a);
}

/* What a choice of rows is worth: tokens, less the seconds of one pass over all of them. */
static double worth(struct planner *p, double (*reach)[MOST], const size_t *rows)
{
    const struct cost_model *m = p->model;
    const size_t all = rows[0] + rows[1] + rows[2];
    double tokens = 0, seconds = m->weight_bytes * m->size[0] * size_of(all);
    for (size_t i = 0; i < TEXTS; i++) {
        seconds += m->kv_bytes * (double)p[i].length * m->size[0] * size_of(rows[i]);
        for (size_t k = 0; k + 1 < rows[i]; k++) tokens += reach[i][k];
    }
    return tokens - p->price * seconds;
}

/* Three texts of different lengths, whose guesses come true often, sometimes and rarely. */
static void rows_of_several_texts(void)
{
    static const double chance[TEXTS] = { 0.9, 0.6, 0.2 };
    static const struct planner_setup s = { .on = true, .rows_max = 48, .weight_bytes = 1e9,
                                            .kv_bytes = 1e4 };
    static struct tree tree[TEXTS];
    size_t different = 0;
    for (size_t trial = 0; trial < 200; trial++) {
        struct cost_model costs = { 0 };
        struct planner p[TEXTS];
        struct planner *list[TEXTS];
        const struct tree *trees[TEXTS];
        double reach[TEXTS][MOST];
        struct choice best = { .value = -1e9 }, alone = { 0 };
        size_t rows[TEXTS];
        rng.s = trial;
        for (size_t i = 0; i < TEXTS; i++) {
            planner_start(&p[i], &costs, &s);
            for (size_t k = 0; k < COST_SIZES; k++)
                costs.size[k] = 1e-10 * size_of(cost_rows(k)), costs.seen[k] = 1;
            planner_begin(&p[i], (size_t)(uniform() * 1e5), TEXTS,
                          (struct plan_limits){ .caches = 1, .depth = MOST });
        }
        struct planner *const agreed[TEXTS] = { p, p + 1, p + 2 };
        planner_agree(agreed, TEXTS);
        CHECK(p[0].price == p[1].price && p[1].price == p[2].price);
        p[0].price = p[1].price = p[2].price = 2 + 18 * uniform();
        for (size_t i = 0; i < TEXTS; i++) {
            tree_start(&tree[i], 0, MOST);
            for (uint32_t k = 0, at = 0; k + 1 < MOST; k++) {
                at = tree_add(&tree[i], at, 1, DRAFTER_SUFFIX, (float)chance[i], 0);
                reach[i][k] = (double)tree[i].node[at].reach;
            }
            planner_value(&p[i], &tree[i], &alone.rows[i]);
            list[i] = &p[i], trees[i] = &tree[i];
        }
        for (size_t k = 0; k < MOST * MOST * MOST; k++) {
            struct choice c = { .rows = { 1 + k % MOST, 1 + k / MOST % MOST, 1 + k / MOST / MOST } };
            c.value = worth(p, reach, c.rows);
            if (c.value > best.value) best = c;
        }
        planner_rows(list, trees, TEXTS, 1000, rows);
        CHECK(worth(p, reach, rows) > best.value - 1e-6, "%zu %zu %zu instead of %zu %zu %zu", rows[0],
              rows[1], rows[2], best.rows[0], best.rows[1], best.rows[2]);
        different += memcmp(alone.rows, best.rows, sizeof rows) != 0;
        planner_rows(list, trees, TEXTS, 5, rows);
        CHECK(rows[0] + rows[1] + rows[2] <= 5 && rows[2] >= 1);
        p[2].on = false;                                 /* a fixed tree keeps its nodes */
        planner_rows(list, trees, TEXTS, 5, rows);
        CHECK(rows[0] == 1 && rows[1] == 1 && rows[2] == MOST);
    }
    printf("    in %zu of 200 rounds the texts one by one would choose other rows\n", different);
    CHECK(different >= 20);
}

/* ---- experts ---- */

/* Experts that r rows read of a layer of 64, of which a row uses 8: a further row brings `fresh` of what an
 * independent row would. */
static double experts_of(double fresh, size_t rows)
{
    return 64 * (1 - pow(1 - 8.0 / 64, 1 + fresh * ((double)rows - 1)));
}

/* On a machine that only reads, the planner learns how many experts further rows add, and chooses about the
 * rows that pay; a planner that takes the model for a dense one is further off. */
static void a_second_row_has_the_price_of_its_experts(void)
{
    enum { LAYERS = 10 };
    static const double dense = 1e8, expert = 1e6, speed = 1e10, freshness[] = { 0.05, 0.3, 0.6, 1 };
    static struct tree tree;
    size_t all[2] = { 0 };
    for (int f = 0; f < 4; f++) {
        size_t off[2] = { 0 };
        for (int knows = 1; knows >= 0; knows--)
            for (size_t trial = 0; trial < 100; trial++) {
                struct planner_setup s = { .on = true, .rows_max = 32,
                                           .weight_bytes = dense + LAYERS * 8 * expert };
                if (knows) s.experts = (struct planner_experts){ expert, LAYERS, 64, 8 };
                struct cost_model costs = { 0 };
                static struct planner p;
                const struct tree *trees[] = { &tree };
                struct planner *list[] = { &p };
                size_t rows, best = 1;
                double reach = 1, most = -INFINITY, tokens = 1;
                rng.s = trial;
                planner_start(&p, &costs, &s);
                planner_verified(&p, 0, 1, 1, s.weight_bytes / speed, true);
                for (size_t i = 1; i <= 3; i++) {            /* the passes that drafting begins with */
                    const double read = LAYERS * experts_of(freshness[f], cost_rows(i));
                    planner_experts_read(&p, cost_rows(i), (size_t)(read + 0.5));
                    planner_timed(&p, i, 0, (dense + expert * read) / speed);
                }
                planner_begin(&p, 0, 1, (struct plan_limits){ .caches = 1, .depth = 31 });
                p.price = (0.5 + uniform()) * 0.6 * speed / s.weight_bytes;
                tree_start(&tree, 0, 31);
                const double chance = 0.3 + 0.65 * uniform();
                for (uint32_t k = 0, at = 0; k < 31; k++)
                    at = tree_add(&tree, at, 1, DRAFTER_SUFFIX, (float)chance, 0);
                for (size_t r = 1; r <= 32; r++) {
                    const double seconds = (dense + LAYERS * expert * experts_of(freshness[f], r)) / speed;
                    if (tokens - p.price * seconds > most) most = tokens - p.price * seconds, best = r;
                    tokens += reach *= chance;
                }
                planner_rows(list, trees, 1, 1000, &rows);
                off[knows] += rows > best ? rows - best : best - rows;
            }
        CHECK(off[1] <= 200, "fresh %g: %zu", freshness[f], off[1]);
        printf("    fresh %.2f: %.2f rows off on average; one that takes the model for dense %.2f\n",
               freshness[f], (double)off[1] / 100, (double)off[0] / 100);
        all[0] += off[0], all[1] += off[1];
    }
    CHECK(3 * all[1] < 2 * all[0], "%zu, %zu", all[1], all[0]);
}

/* The price of a pass grows with the experts, and what was learned stays with the model. */
static void experts_are_learned(void)
{
    struct planner_setup s = { .on = true, .rows_max = 32, .weight_bytes = 100, .kv_bytes = 1,
                               .experts = { 2, 5, 16, 4 } };
    static struct planner p;
    static struct cost_model costs;
    costs = (struct cost_model){ 0 };
    planner_start(&p, &costs, &s);
    CHECK(costs.fresh == 1, "%g", costs.fresh);
    planner_experts_read(&p, 1, 5 * 4);
    CHECK(costs.fresh == 1 && costs.fresh_seen == 0, "one row says nothing of further rows");
    planner_experts_read(&p, 2, 5 * 4);
    CHECK(costs.fresh == 0, "%g", costs.fresh);
    for (int i = 0; i < 1000; i++) planner_experts_read(&p, 2, 5 * 7);         /* 7 = 16 (1 - 0.75^2) */
    CHECK(near(costs.fresh, 1, 0.01, 0), "%g", costs.fresh);
    planner_experts_read(&p, 30, 5 * 16);
    CHECK(isfinite(costs.fresh) && costs.fresh < 1.1, "%g", costs.fresh);
    planner_start(&p, &costs, &s);
    CHECK(costs.fresh_seen > 100);
}

/* Off, the planner measures nothing and asks what it is told. On, it begins with a pass of one row. */
static void off_and_short_texts(void)
{
    static struct planner p;
    static struct cost_model costs;
    struct planner_setup setup = { .rows_max = 48,
                                   .n_caches = 1,
                                   .reads = { { { 1e7, 1000, 256 } } },
                                   .weight_bytes = 1e7,
                                   .kv_bytes = 1000 };
    struct plan_limits s = {
        .caches = 3, .drafters = 1u << DRAFTER_HEADS | 1u << DRAFTER_NGRAM, .passes = 4, .depth = 9
    };
    costs = (struct cost_model){ 0 };
    planner_start(&p, &costs, &setup);
    CHECK(planner_size_due(&p, 100000) == COST_SIZES);
    planner_begin(&p, 100, 1, s);
    CHECK(p.plan.passes == 4 && p.plan.drafters == s.drafters);
    planner_done(&p, 1, 0);
    setup.on = true, s.passes = -1;
    costs = (struct cost_model){ 0 };
    planner_start(&p, &costs, &setup);
    CHECK(planner_size_due(&p, 100000) == COST_SIZES, "the first round says what one row costs");
    planner_begin(&p, 100, 1, s);
    CHECK(p.plan.drafters == 0, "the first round is a pass of one row");
    planner_done(&p, 1, 0);
    CHECK(planner_size_due(&p, 100000) == 0, "it did not, beside other texts");
    planner_timed(&p, 0, 100, 0.01);
    CHECK(near(planner_pass_seconds(&p, 100), 0.01, 0, 1e-9) && planner_size_due(&p, 100000) == COST_SIZES);
    planner_begin(&p, 100, 1, s);
    CHECK(!plan_drafts(&p.plan) && planner_size_due(&p, 100000) == COST_SIZES,
          "nothing is known of draft passes yet");
    p.plan.passes = 1;                                      /* as exploration has it */
    CHECK(planner_size_due(&p, 999) == COST_SIZES, "a short text does not pay for timing");
    for (size_t i = 1; i <= 3; i++) {
        CHECK(planner_size_due(&p, 1000) == i, "then what drafting needs");
        planner_timed(&p, i, 100, 0.01 + 0.001 * (double)i);
    }
    CHECK(planner_size_due(&p, 1000) == COST_SIZES, "and no more for a while");
}

int main(void)
{
    RUN(the_plan_of_the_highest_rate);
    RUN(what_a_plan_may_do);
    RUN(sizes_of_passes);
    RUN(rows_of_several_texts);
    RUN(a_second_row_has_the_price_of_its_experts);
    RUN(experts_are_learned);
    RUN(off_and_short_texts);
    RUN(forty_machines);
    RUN(costs_nothing_where_drafting_is_useless);
    RUN(a_machine_that_others_use_too);
    RUN(a_machine_that_is_slow_after_its_prompt);
    RUN(learns_again);
    RUN(explores_by_price);
    return test_end();
}
