/* The planner with several texts at once, on a simulated machine: texts of a fixed length join and leave, as
 * in a queue. The rounds are the product's own draft_round(); seconds are added up, none pass. */
#include "src/decode/draft.h"
#include "tests/reference.h"
#include "tests/test.h"

enum { MOST = 16, RIGHT = 1, BUDGET = 1024, PROMPT = 500 };
/* A pass of one row reads the weights; a further row takes `row` of that time; a draft pass `draft`. */
struct machine { double weight_bytes, kv_bytes, bytes_per_second, row, draft, noise; };
/* Guesses of draft passes come true with chance hit[text % 2]; each text has so many tokens. */
struct queue { size_t n_texts, tokens; double hit[2]; };

static struct rng rng;
static double now;
static const struct machine *m;
static const struct queue *q;
static struct text { struct decoder g; struct tree tree; size_t length, left; double hit; } text[MOST];
static struct cost_model costs;

static double uniform(void) { return (double)(rng_next(&rng) >> 11) * 0x1p-53; }
static double clock_of_sim(void) { return now; }

/* Seconds of a pass of `rows` rows in all, over `keys` positions in all. */
static double exact(double share, size_t rows, double keys)
{
    return (share * m->weight_bytes * (1 + m->row * (double)(rows - 1)) + keys * m->kv_bytes) /
           m->bytes_per_second;
}
static double spend(double seconds)
{
    seconds *= exp(m->noise * rng_normal(&rng));
    now += seconds;
    return seconds;
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
static int make_passes(struct decoder *const *all, size_t n, struct pass_part *const *part, double *end)
{
    double keys = 0;
    (void)part, (void)end;
    for (size_t i = 0; i < n; i++) keys += (double)MIN(all[i]->n_tokens - 1, (size_t)BUDGET);
    spend(exact(m->draft, n, keys));
    return 0;
}
static void keep(struct decoder *g, const struct pass_part *p)
{
    const struct text *t = (const struct text *)(const void *)g;         /* g is its first member */
    const uint32_t node = p->node[0];
    const bool on_path = node == 0 || g->round.tree->node[node].token == RIGHT;
    const uint32_t added = tree_add(g->round.tree, node, on_path && uniform() < t->hit ? RIGHT : 2,
                                    DRAFTER_PARTIAL, (float)planner_acceptance(&g->planner), 0);
    g->round.next_reach = added ? g->round.tree->node[tree_best_child(g->round.tree, node)].reach : 0;
}
static struct pass_cost bytes_of_sim(const struct decoder *g, size_t i) { return g->planner.reads[i].pass; }
static const struct drafter_passes sim_passes = {
    .most = PASSES_MAX, .rows = BATCH_MAX, .reads = bytes_of_sim, .prepare = prepare, .choose = choose,
    .forward = make_passes, .keep = keep };
static const struct drafter_ops partial = { .id = DRAFTER_PARTIAL, .turn = TURN_PASSES,
                                            .passes = &sim_passes };

static void join(size_t i)
{
    static struct round_buffers buffers = { .verify_rows = TREE_ROWS_MAX };
    const struct planner_setup s = { .on = true, .rows_max = 48, .n_caches = 1,
                                     .weight_bytes = m->weight_bytes, .kv_bytes = m->kv_bytes,
                                     .reads = { { { m->draft * m->weight_bytes, m->kv_bytes, BUDGET } } } };
    struct text *t = &text[i];
    *t = (struct text){ .length = PROMPT, .left = q->tokens, .hit = q->hit[i % 2] };
    static const struct model no_model;
    t->g.model = &no_model;
    t->g.round.tree = &t->tree, t->g.clock = clock_of_sim, t->g.set.buffers = &buffers;
    t->g.n_caches = 1, t->g.cache[0].ops = &partial, t->g.cache[0].budget = BUDGET;
    drafters[DRAFTER_PARTIAL] = &partial;
    t->g.set.draft.drafters = 1u << DRAFTER_PARTIAL, t->g.set.draft.draft_passes = -1;
    planner_start(&t->g.planner, &costs, &s);
}

static size_t accept(struct text *t)
{
    for (uint32_t tokens = 1, at = 0;; tokens++) {
        uint32_t next = 0;
        for (uint32_t i = t->tree.node[at].first; i; i = t->tree.node[i].next) {
            planner_guessed(&t->g.planner, t->tree.node[i].token == RIGHT);
            if (t->tree.node[i].token == RIGHT) next = i;
        }
        bool kept = false;
        for (size_t k = 1; next && k < t->tree.n_kept; k++) kept |= t->tree.kept[k] == next;
        if (!kept) return tokens;
        at = next;
    }
}

/* Returns the tokens of one round of all texts. */
static size_t run_round(void)
{
    struct decoder *g[MOST] = { NULL };
    struct planner *p[MOST];
    const size_t n = q->n_texts;
    size_t rows = 0, all = 0;
    double keys = 0;
    for (size_t i = 0; i < n; i++) {
        struct text *t = &text[i];
        g[i] = &t->g, p[i] = &t->g.planner;
        for (size_t k; (k = planner_size_due(p[i], t->left)) < COST_SIZES;)
            planner_timed(p[i], k, t->length, spend(exact(1, cost_rows(k), (double)t->length)));
        tree_start(&t->tree, 0, t->left - 1);
        g[i]->n_tokens = t->length + 1;
        keys += (double)t->length;
    }
    const double from = now;
    draft_plan(g, n);
    draft_round(g, n);
    for (size_t i = 0; i < n; i++) rows += text[i].tree.n_kept;
    const double seconds = spend(exact(1, rows, keys));
    for (size_t i = 0; i < n; i++)
        planner_verified(p[i], text[i].length, text[i].tree.n_kept, rows, seconds, true);
    for (size_t i = 0; i < n; i++) {
        struct text *t = &text[i];
        double expected = 0;
        for (size_t k = 1; k < t->tree.n_kept; k++) expected += (double)t->tree.node[t->tree.kept[k]].reach;
        const size_t tokens = accept(t);
        planner_done(p[i], tokens, expected);
        t->length += tokens, t->left -= MIN(tokens, t->left), all += tokens;
    }
    planner_round_done(p, n, now - from);
    for (size_t i = 0; i < n; i++)
        if (text[i].left == 0) join(i);
    return all;
}

/* Tokens per second where every text makes so many draft passes; with 0, plain decoding. */
static double fixed_rate(const size_t passes[2])
{
    const double n = (double)q->n_texts, keys = n * (PROMPT + (double)q->tokens / 2);
    const size_t half[2] = { (q->n_texts + 1) / 2, q->n_texts / 2 };
    double tokens = 0, seconds = 0;
    size_t rows = 0;
    for (size_t k = 0; k < 2; k++) {
        double reach = 1;
        for (size_t d = 0; d <= passes[k]; d++, reach *= q->hit[k]) tokens += (double)half[k] * reach;
        rows += half[k] * (1 + passes[k]);
    }
    for (size_t d = 0; d < MAX(passes[0], passes[1]); d++) {
        const size_t live = (d < passes[0]) * half[0] + (d < passes[1]) * half[1];
        seconds += exact(m->draft, live, (double)live * MIN(keys / n, (double)BUDGET));
    }
    return tokens / (seconds + exact(1, rows, keys));
}
static double best_fixed(void)
{
    double best = 0;
    for (size_t k = 0; k < PASSES_MAX * PASSES_MAX; k++)
        best = MAX(best, fixed_rate((const size_t[]){ k % PASSES_MAX, k / PASSES_MAX }));
    return best;
}

/* Mean over seeds: the rate of a queue as a part of the best fixed one, and of plain decoding. */
static void measure(const struct machine *machine, const struct queue *queue, double *of_best,
                    double *of_plain)
{
    enum { RUNS = 4 };
    m = machine, q = queue;
    *of_best = *of_plain = 0;
    for (size_t s = 0; s < RUNS; s++) {
        const size_t wanted = MAX((size_t)3000, 2 * q->tokens) * q->n_texts;
        size_t done = 0;
        rng.s = 100 + s;
        costs = (struct cost_model){ 0 };
        now = 0;
        for (size_t i = 0; i < q->n_texts; i++) {
            join(i);
            text[i].left -= i * q->tokens / q->n_texts / 2;  /* they do not all end together */
        }
        while (done < wanted) done += run_round();
        const double rate = (double)done / now;
        *of_best += rate / best_fixed() / RUNS;
        *of_plain += rate / fixed_rate((const size_t[]){ 0, 0 }) / RUNS;
    }
}

static const struct machine body = { 1e9, 12288, 37e9, 0.085, 0.7, 0.03 },
                            cheap = { 1e9, 12288, 37e9, 0.01, 0.35, 0.03 };

/* Texts that are short, or whose guesses never come true, lose little by drafting. Where guesses come true,
 * and a draft pass is dear for one text and cheap for all, the texts draft together. */
static void queues(void)
{
    static const struct {
        const char *name;
        const struct machine *m;
        struct queue q;
        double of_best, of_plain;    /* at least */
    } cases[] = {
        { "wrong guesses, short", &cheap, { 8, 100, { 0.05, 0.05 } }, 0.95, 0.95 },
        { "wrong guesses, short", &cheap, { 16, 100, { 0.05, 0.05 } }, 0.95, 0.95 },
        { "wrong guesses", &cheap, { 16, 2000, { 0.05, 0.05 } }, 0.98, 0.98 },
        { "wrong guesses, dear rows", &body, { 8, 500, { 0.3, 0.3 } }, 0.98, 0.98 },
        { "right guesses, dear rows", &body, { 8, 2000, { 0.9, 0.9 } }, 0.98, 0.98 },
        { "right guesses", &cheap, { 4, 2000, { 0.85, 0.85 } }, 0.84, 1.15 },
        { "right guesses", &cheap, { 8, 2000, { 0.85, 0.85 } }, 0.82, 1.08 },
        { "both", &cheap, { 8, 2000, { 0.9, 0.05 } }, 0.9, 0.98 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double best, plain;
        measure(cases[i].m, &cases[i].q, &best, &plain);
        printf("    %2zu texts of %4zu tokens, %-24s: %.3f of the best, %.3f of plain\n", cases[i].q.n_texts,
               cases[i].q.tokens, cases[i].name, best, plain);
        CHECK(best >= cases[i].of_best && plain >= cases[i].of_plain, "case %zu: %.3f, %.3f", i, best, plain);
    }
}

int main(void)
{
    RUN(queues);
    return test_end();
}
