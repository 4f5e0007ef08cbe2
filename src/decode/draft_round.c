/* Drafting of one round: plan, ask the drafters of the plan, trim. Start reading at draft_round(). */
#include "src/decode/draft.h"

/* The ways that the plan may take. A cache with a budget beyond the text is the full cache itself, so one of
 * those is enough for each drafter. */
static unsigned ways(const struct drafting *g, size_t length)
{
    unsigned mask = g->set.draft_passes > 0 ? 0 : 1u << NO_CACHE;
    for (size_t i = 0; i < g->n_caches && g->set.draft_passes; i++)
        if (i == 0 || g->cache[i].ops != g->cache[i - 1].ops || g->cache[i].budget < length)
            mask |= 1u << (i + 1);
    return mask;
}

/* The draft passes of each round where their number is fixed, else -1. */
static long passes_of(const struct drafting *g)
{
    if (g->n_caches == 0 || g->planner.on || g->set.draft_passes >= 0)
        return g->n_caches ? g->set.draft_passes : 0;
    return g->cache[0].ops->pass_per_depth ? (long)g->set.n_width : 1;
}

/* Plans for one of n texts. Its cache holds every token but the last. */
static void plan(struct drafting *g, size_t n)
{
    struct planner *p = &g->planner;
    /* A fixed tree with draft passes asks the heads after each pass, as TokenSwift does. */
    const bool fixed = !p->on && g->n_caches && g->cache[0].ops->leaves_hidden;
    unsigned not_asked = (unsigned)fixed << DRAFTER_HEADS;
    for (size_t i = 0; i < g->n_caches; i++)
        not_asked |= 1u << g->cache[i].ops->id;
    const size_t length = g->n_tokens - 1;
    const double start = g->clock();
    const struct plan_state s = { .ways = ways(g, length),
                                  .asks = g->set.drafters & ~not_asked,
                                  .passes = passes_of(g),
                                  .deepest = g->tree->max_depth };
    g->passes = 0;
    g->next_reach = 1;
    planner_begin(p, length, n, s);
    g->planner_seconds = g->clock() - start;
}

/* Plans for n texts together. */
static void plan_all(struct drafting *const *g, size_t n)
{
    struct planner *p[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        plan(g[i], n);
        p[i] = &g[i]->planner;
    }
    const double start = g[0]->clock();
    planner_agree(p, n);
    for (size_t i = 0; i < n; i++) {
        g[i]->min_reach = p[i]->on ? (float)planner_min_reach(p[i]) : 0;
        g[i]->look = p[i]->on && p[i]->plan.look;
    }
    const double each = (g[0]->clock() - start) / (double)n;
    for (size_t i = 0; i < n; i++)
        g[i]->planner_seconds += each;
}

const struct drafter_ops *draft_pass_maker(const struct drafting *g)
{
    const struct plan *p = &g->planner.plan;
    return p->passes && p->way ? g->cache[p->way - 1].ops : NULL;
}

static bool is_wanted(struct drafting *g, const struct drafter_ops *ops)
{
    const bool wanted =
        ops->reads ? ops == draft_pass_maker(g) : g->planner.plan.ask >> ops->id & 1;
    if (!wanted || g->tree->max_depth == 0 || !ops->prepare)
        return wanted && g->tree->max_depth > 0;
    const double start = g->clock();
    const bool ready = ops->prepare(g);
    g->planner.prepared += g->clock() - start;
    return ready;
}

/* What the best choice of rows is worth so far. */
static double value(const struct drafting *g)
{
    size_t rows;
    return g->planner.on ? planner_value(&g->planner, g->tree, &rows) : 0;
}

static int ask(struct drafting *const *g, size_t n, const struct drafter_ops *ops, struct err *e)
{
    bool more[BATCH_MAX];
    double before[BATCH_MAX];
    const double start = g[0]->clock();
    for (size_t i = 0; i < n; i++)
        before[i] = value(g[i]);
    if (ops->expand(g, n, more, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const double after = value(g[i]);
        if (g[i]->planner.on)
            planner_asked(&g[i]->planner, ops->id, before[i], after,
                          (g[i]->clock() - start) / (double)n);
    }
    return 0;
}

static void ask_ahead(struct drafting *g)
{
    const double start = g->clock(), before = value(g);
    drafters[DRAFTER_HEADS]->ahead(g);
    planner_asked(&g->planner, HEADS_AHEAD, before, value(g), g->clock() - start);
}

/* Whether a further draft pass for this text pays. */
static bool wants_pass(const struct drafting *g)
{
    const struct planner *p = &g->planner;
    return g->passes < p->plan.passes && g->next_reach > 0 &&
           (!p->on || g->set.draft_passes >= 0 || planner_pass_pays(p, g->tree, (double)g->next_reach));
}

/* Draft pass i is one pass for every text that still wants it. */
static int ask_passes(struct drafting *const *g, size_t n, const struct drafter_ops *ops, struct err *e)
{
    struct drafting *live[BATCH_MAX];
    bool more[BATCH_MAX];
    size_t n_live = 0;
    for (size_t i = 0; i < n; i++)
        if (wants_pass(g[i]))
            live[n_live++] = g[i];
    while (n_live > 0) {
        if (ops->passes)
            draft_pass(live, n_live, ops, more);
        else if (ops->expand(live, n_live, more, e))
            return -1;
        size_t left = 0;
        for (size_t i = 0; i < n_live; i++)
            if (more[i] && wants_pass(live[i]))
                live[left++] = live[i];
        n_live = left;
    }
    return 0;
}

/* Keeps the candidates that pay, over all texts. */
static void trim(struct drafting *const *g, size_t n)
{
    struct planner *p[BATCH_MAX];
    const struct tree *t[BATCH_MAX];
    size_t rows[BATCH_MAX];
    const double start = g[0]->clock();
    for (size_t i = 0; i < n; i++)
        p[i] = &g[i]->planner, t[i] = g[i]->tree;
    planner_rows(p, t, n, g[0]->buffers->verify_rows, rows);
    for (size_t i = 0; i < n; i++)
        tree_keep(g[i]->tree, rows[i]);
    const double each = (g[0]->clock() - start) / (double)n;
    for (size_t i = 0; i < n; i++)
        g[i]->planner_seconds += each;
}

int draft_round(struct drafting *const *g, size_t n, struct err *e)
{
    assert(n >= 1 && n <= BATCH_MAX);
    plan_all(g, n);
    for (const struct drafter_ops *ops = NULL; (ops = drafter_next(ALL_DRAFTERS, ops));) {
        struct drafting *asked[BATCH_MAX];
        size_t n_asked = 0;
        for (size_t i = 0; i < n; i++)
            if (is_wanted(g[i], ops))
                asked[n_asked++] = g[i];
        if (n_asked && (ops->reads ? ask_passes : ask)(asked, n_asked, ops, e))
            return -1;
        for (size_t i = 0; i < n_asked && ops->leaves_hidden; i++)
            if (asked[i]->passes && asked[i]->planner.plan.ask >> HEADS_AHEAD & 1)
                ask_ahead(asked[i]);
    }
    trim(g, n);
    return 0;
}

void draft_learn(struct drafting *g, uint32_t node, int32_t sample)
{
    const struct tree *t = g->tree;
    const struct drafter_ops *maker = draft_pass_maker(g);
    calibrate_learn(&g->calibration, t, node, sample);
    for (uint32_t i = t->node[node].first; i && maker; i = t->node[i].next)
        /* the first choice of the pass */
        if (t->node[i].sources >> maker->id & 1 && cell_is_first(t->node[i].cell[maker->id])) {
            planner_guessed(&g->planner, t->node[i].token == sample);
            return;
        }
}
