/* Drafting of one round: planning it, asking the drafters of the plan, trimming. Start reading at
 * draft_plan() and draft_round(). */
#include <string.h>

#include "src/decode/draft.h"

/* The caches that the plan may choose, as plan_limits has them. A cache with a budget beyond the text is the
 * full cache itself, so one of those is enough for each drafter. */
static unsigned caches_of(const struct decoder *d, size_t length)
{
    unsigned mask = d->set.draft.draft_passes > 0 ? 0 : 1u << NO_CACHE;
    for (size_t i = 0; i < d->n_caches && d->set.draft.draft_passes; i++)
        if (i == 0 || d->cache[i].ops != d->cache[i - 1].ops || d->cache[i].budget < length)
            mask |= 1u << (i + 1);
    return mask;
}

/* The draft passes of each round where their number is fixed, else -1. */
static long passes_of(const struct decoder *d)
{
    if (d->n_caches == 0 || d->planner.on || d->set.draft.draft_passes >= 0)
        return d->n_caches ? d->set.draft.draft_passes : 0;
    return d->cache[0].ops->passes->per_depth ? (long)d->set.draft.n_width : 1;
}

/* Plans for one of n texts. Its cache holds every token but the last. */
static void plan(struct decoder *d, size_t n)
{
    struct planner *p = &d->planner;
    /* A fixed tree with draft passes asks the heads after each pass, as TokenSwift does. */
    const bool fixed = !p->on && d->n_caches && d->cache[0].ops->passes->leaves_hidden;
    unsigned others = (unsigned)fixed << DRAFTER_HEADS;
    for (size_t i = 0; i < d->n_caches; i++)
        others |= 1u << d->cache[i].ops->id;
    const size_t length = d->n_tokens - 1;
    const double start = d->clock();
    const struct plan_limits limits = { .caches = caches_of(d, length),
                                        .drafters = d->set.draft.drafters & ~others,
                                        .passes = passes_of(d),
                                        .depth = d->round.tree->max_depth };
    d->round.passes = d->round.beam.n = d->round.beam.from = 0;
    d->round.next_reach = 1;
    planner_begin(p, length, n, limits);
    d->round.control += d->clock() - start;
}

void draft_plan(struct decoder *const *d, size_t n)
{
    assert(n >= 1 && n <= BATCH_MAX);
    struct planner *p[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        plan(d[i], n);
        p[i] = &d[i]->planner;
    }
    const double start = d[0]->clock();
    planner_agree(p, n);
    for (size_t i = 0; i < n; i++) {
        d[i]->round.min_reach = p[i]->on ? (float)planner_min_reach(p[i]) : 0;
        d[i]->round.probe = p[i]->on && p[i]->plan.probe;
    }
    const double each = (d[0]->clock() - start) / (double)n;
    for (size_t i = 0; i < n; i++)
        d[i]->round.control += each;
}

const struct drafter_ops *draft_pass_maker(const struct decoder *d)
{
    const struct plan *p = &d->planner.plan;
    return p->passes && p->cache ? d->cache[p->cache - 1].ops : NULL;
}

static bool is_wanted(struct decoder *d, const struct drafter_ops *ops)
{
    const bool wanted =
        ops->passes ? ops == draft_pass_maker(d) : d->planner.plan.drafters >> ops->id & 1;
    if (!wanted || d->round.tree->max_depth == 0 || !ops->passes)
        return wanted && d->round.tree->max_depth > 0;
    const double start = d->clock();
    const bool ready = ops->passes->prepare(d);
    d->planner.prepared += d->clock() - start;
    return ready;
}

/* What the best choice of rows is worth so far. */
static double value(const struct decoder *d)
{
    size_t rows;
    return d->planner.on ? planner_value(&d->planner, d->round.tree, &rows) : 0;
}

/* Asks a drafter that makes no passes, or the heads after the last pass. */
static void ask(struct decoder *d, size_t proposer)
{
    const double start = d->clock(), before = value(d);
    if (proposer == HEADS_AHEAD)
        drafters[DRAFTER_HEADS]->ahead(d);
    else
        drafters[proposer]->expand(d);
    const double after = value(d);
    if (d->planner.on)
        planner_proposed(&d->planner, proposer, before, after, d->clock() - start);
}

/* Whether a further draft pass for this text pays. */
static bool wants_pass(const struct decoder *d)
{
    const struct planner *p = &d->planner;
    return d->round.passes < p->plan.passes && d->round.next_reach > 0 &&
           (!p->on || d->set.draft.draft_passes >= 0 ||
            planner_pass_pays(p, d->round.tree, (double)d->round.next_reach));
}

/* Draft pass i is one pass for every text that still wants it. */
static void make_passes(struct decoder *const *d, size_t n, const struct drafter_ops *ops)
{
    struct decoder *live[BATCH_MAX];
    memcpy(live, d, n * sizeof *live);
    while (n > 0) {
        size_t left = 0;
        for (size_t i = 0; i < n; i++)
            if (wants_pass(live[i]))
                live[left++] = live[i];
        n = left;
        if (n > 0)
            draft_pass(ops, live, n);
    }
}

/* Keeps the candidates that pay, over all texts. */
static void trim(struct decoder *const *d, size_t n)
{
    struct planner *p[BATCH_MAX];
    const struct tree *t[BATCH_MAX];
    size_t rows[BATCH_MAX];
    const double start = d[0]->clock();
    for (size_t i = 0; i < n; i++)
        p[i] = &d[i]->planner, t[i] = d[i]->round.tree;
    planner_rows(p, t, n, d[0]->set.buffers->verify_rows, rows);
    for (size_t i = 0; i < n; i++) {
        tree_keep(d[i]->round.tree, rows[i]);
        d[i]->round.expected = 0;
        for (size_t k = 1; k < t[i]->n_kept; k++)
            d[i]->round.expected += t[i]->node[t[i]->kept[k]].reach;
    }
    const double each = (d[0]->clock() - start) / (double)n;
    for (size_t i = 0; i < n; i++)
        d[i]->round.control += each;
}

void draft_round(struct decoder *const *d, size_t n)
{
    const double start = d[0]->clock();
    for (const struct drafter_ops *ops = NULL; (ops = drafter_next(ALL_DRAFTERS, ops));) {
        struct decoder *asked[BATCH_MAX];
        size_t n_asked = 0;
        for (size_t i = 0; i < n; i++)
            if (is_wanted(d[i], ops))
                asked[n_asked++] = d[i];
        for (size_t i = 0; i < n_asked && !ops->passes; i++)
            ask(asked[i], ops->id);
        if (ops->passes)
            make_passes(asked, n_asked, ops);
        for (size_t i = 0; i < n_asked && ops->passes && ops->passes->leaves_hidden; i++)
            if (asked[i]->round.passes && asked[i]->planner.plan.drafters >> HEADS_AHEAD & 1)
                ask(asked[i], HEADS_AHEAD);
    }
    const double each = (d[0]->clock() - start) / (double)n;
    for (size_t i = 0; i < n; i++)
        d[i]->round.draft = each;
    trim(d, n);
}

void draft_learn(struct decoder *d, uint32_t node, int32_t sample)
{
    const struct tree *t = d->round.tree;
    const struct drafter_ops *maker = draft_pass_maker(d);
    calibrate_learn(&d->calibration, t, node, sample);
    for (uint32_t i = t->node[node].first; i && maker; i = t->node[i].next)
        /* the first choice of the pass */
        if (t->node[i].sources >> maker->id & 1 && cell_is_first(t->node[i].cell[maker->id])) {
            planner_guessed(&d->planner, t->node[i].token == sample);
            return;
        }
}
