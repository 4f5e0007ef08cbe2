/* Drafting of one round: plan, ask the drafters of the plan, trim. Start reading at draft_round(). */
#include "src/decode/draft.h"

/* The ways that the plan may take. A cache with a budget beyond the text is the full cache itself, so one of
 * those is enough. */
static unsigned ways(const struct drafting *g, size_t length)
{
    unsigned mask = g->set.draft_passes > 0 ? 0 : 1u << NO_CACHE;
    for (size_t i = 0; i < g->n_caches && g->set.draft_passes; i++)
        if (i == 0 || g->cache[i].budget < length)
            mask |= 1u << (i + 1);
    return mask;
}

static int ask(struct drafting *g, const struct drafter_ops *ops, struct err *e)
{
    struct planner *p = &g->planner;
    bool more;
    size_t rows;
    if (!p->on)
        return ops->expand(g, &more, e);
    const double start = g->clock(), before = planner_value(p, g->tree, &rows);
    if (ops->expand(g, &more, e))
        return -1;
    planner_asked(p, ops->source, before, planner_value(p, g->tree, &rows), g->clock() - start);
    return 0;
}

static void ask_ahead(struct drafting *g, const struct drafter_ops *ops)
{
    struct planner *p = &g->planner;
    size_t rows;
    const double start = g->clock(), before = planner_value(p, g->tree, &rows);
    ops->ahead(g);
    planner_asked(p, HEADS_AHEAD, before, planner_value(p, g->tree, &rows), g->clock() - start);
}

/* Makes a chain of draft passes. Each starts at the likeliest guess of the one before. */
static int ask_passes(struct drafting *g, const struct drafter_ops *ops, struct err *e)
{
    struct planner *p = &g->planner;
    bool more = true;
    while (more && g->passes < p->plan.passes) {
        const uint32_t node = g->passes ? tree_best_child(g->tree, g->pass_node) : 0;
        if ((g->passes && !node) ||
            (p->on && g->set.draft_passes < 0 && !planner_pass_pays(p, g->tree, g->tree->node[node].reach)))
            break;
        if (ops->expand(g, &more, e))
            return -1;
    }
    return 0;
}

int draft_round(struct drafting *g, const struct drafter_ops *const *drafters, size_t length, struct err *e)
{
    struct planner *p = &g->planner;
    size_t rows = TREE_ROWS_MAX;
    /* A fixed tree with draft passes asks the heads after each pass, as TokenSwift does. */
    const bool fixed = !p->on && g->set.drafters >> SOURCE_PARTIAL & 1;
    const unsigned not_asked = 1u << SOURCE_PARTIAL | (fixed || !g->heads) << SOURCE_HEADS;
    const double start = g->clock();
    const struct plan_state s = { .ways = ways(g, length),
                                  .asks = g->set.drafters & ~not_asked,
                                  .passes = fixed && g->set.draft_passes < 0        ? 1
                                            : g->set.drafters >> SOURCE_PARTIAL & 1 ? g->set.draft_passes
                                                                                    : 0,
                                  .deepest = g->tree->max_depth };
    g->passes = 0;
    planner_begin(p, length, s);
    g->min_reach = p->on ? (float)planner_min_reach(p) : 0;
    g->look = p->on && p->plan.look;
    g->planner_seconds = g->clock() - start;
    for (size_t i = 0; drafters[i] && g->tree->max_depth > 0; i++) {
        const enum source source = drafters[i]->source;
        const bool wanted = source == SOURCE_PARTIAL ? p->plan.passes > 0 : p->plan.ask >> source & 1;
        if (!wanted || (drafters[i]->prepare && !drafters[i]->prepare(g)))
            continue;
        if (source == SOURCE_PARTIAL ? ask_passes(g, drafters[i], e) : ask(g, drafters[i], e))
            return -1;
        if (drafters[i]->ahead && g->passes && p->plan.ask >> HEADS_AHEAD & 1)
            ask_ahead(g, drafters[i]);
    }
    const double trim = g->clock();
    if (p->on)
        planner_value(p, g->tree, &rows);
    tree_keep(g->tree, rows);
    g->planner_seconds += g->clock() - trim;
    return 0;
}
