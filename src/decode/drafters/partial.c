/* Draft passes of the model over the partial cache (TokenSwift; kvmgr/partial.h), and the heads after them.
 * Start reading at partial_forward(), one draft pass. */
#include <math.h>
#include <string.h>

#include "src/decode/draft.h"

static struct partial *cache_of(const struct decoder *d) { return d->own[DRAFTER_PARTIAL]; }

/* ---- draft passes ---- */

/* Switches to the cache of the plan and brings it up to the text. A cache that selects waits for the
 * selection of the next verification pass. */
static bool partial_prepare(struct decoder *d)
{
    struct partial *p = cache_of(d);
    const size_t i = d->planner.plan.cache - 1;
    if (i != d->current_cache) {
        d->current_cache = i;
        partial_change(p, d->cache[i].policy, d->cache[i].budget);
    }
    partial_follow(p);
    return d->set.draft.n_width || !p->work || p->filled || p->full->n_past <= p->budget;
}

static bool partial_choose(struct decoder *d, struct pass_part *p)
{
    const struct kv *kv = partial_kv(cache_of(d));
    if (!draft_chain(d, p) || kv->n_past + d->round.passes >= kv->n_max)
        return false;
    /* passes below the last width of a fixed tree continue with one candidate */
    const bool below = d->set.draft.n_width && d->round.tree->node[p->node[0]].depth >= d->set.draft.n_width;
    p->width = below ? 1 : draft_width(d, p->node[0]);
    return true;
}

static int partial_forward(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    struct round_buffers *b = d[0]->set.buffers;
    struct pass_seq seq[BATCH_MAX];
    size_t n_past[BATCH_MAX];
    struct err ignored;
    for (size_t i = 0; i < n; i++) {
        struct kv *kv = partial_kv(cache_of(d[i]));
        const int32_t *token = &d[i]->round.tree->node[part[i]->node[0]].token;
        n_past[i] = kv->n_past;
        seq[i] = (struct pass_seq){ .kv = kv, .n = 1, .token = token, .logits = part[i]->logits,
                                    .shift = d[i]->kv.n_past - n_past[i] };
        part[i]->hidden = workspace_residual(b->work) + i * d[i]->model->config.hidden;
        kv->n_past += d[i]->round.passes;
    }
    int rc = model_forward_begin(d[0]->set.draft_model, b->work, seq, n, &ignored);
    *end = d[0]->clock();
    for (size_t i = 0; i < n && rc == 0; i++)
        draft_rank(d[i], part[i]->node, 1, seq[i].logits, part[i]->width);
    if (rc == 0)
        rc = model_forward_end(d[0]->set.draft_model, b->work, seq, n, &ignored);
    if (!d[0]->model->dev->host_memory)
        *end = d[0]->clock();        /* a device has finished when its ranking is there */
    for (size_t i = 0; i < n; i++) {
        seq[i].kv->n_past = n_past[i];
        if (rc)                      /* no NaN may stay in a slot */
            kv_truncate(seq[i].kv, n_past[i]);
    }
    return rc;
}

/* In a fixed tree the heads continue every pass. With the planner they are asked once, after the last one. */
static void partial_keep(struct decoder *d, const struct pass_part *p)
{
    const struct tree *t = d->round.tree;
    struct device *dev = d->model->dev;
    if (d->pass_hidden)
        dev->copy(dev, d->pass_hidden, p->hidden, d->model->config.hidden * sizeof *d->pass_hidden);
    if (d->set.draft.n_width && !(d->pass_hidden && drafter_heads.ahead(d)))
        for (uint32_t c = t->node[d->round.pass_node].first; c; c = t->node[c].next)
            tree_chain(d->round.tree, c);
}

/* The partial cache follows in rounds with draft passes alone: following takes 13 us of a round of 450 us. A
 * cut of the text has to be seen before the text grows again. */
static void partial_observe(struct decoder *d)
{
    if (d->kv.n_past < cache_of(d)->n_seen)
        partial_follow(cache_of(d));
}

/* The policy without selection. Whether selected rows are worth more than the most recent rows depends on
 * model and text (models/demo: they are not). Means are worth more than both (docs/tried.md), but a layer
 * with a window would see rows through them that its window hides. */
static enum kv_policy unselected(const struct decoder *d)
{
    const struct config *c = &d->model->config;
    bool mean = d->model->dev->host_memory;
    for (size_t l = 0; l < c->n_layers; l++)
        mean &= !c->layer[l].window;
    return mean ? KV_MEAN : KV_WINDOW;
}

static void add_caches(struct decoder *d, size_t budget)
{
    const enum kv_policy p = d->set.draft.kv_policy;
    if (p == KV_AUTO && !d->set.draft.kv_fixed)
        draft_add_cache(d, &drafter_partial, unselected(d), budget);
    draft_add_cache(d, &drafter_partial, p == KV_AUTO ? KV_DYNAMIC : p, budget);
}

static void partial_plan(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                         size_t n_max)
{
    const struct kv full = { .dev = m->dev, .type = m->dev->kv_type, .n_layers = config_caches(&m->config),
                             .n_kv_heads = m->config.n_kv_heads, .head_dim = m->head_dim,
                             .n_max = n_max, .heads = model_cache(m, n_max, 0).heads };
    memory_plan_add_on(plan, m->dev, "partial cache",
                       partial_bytes(&full, set->draft.kv_policy, set->draft.kv_budget, n_max));
}

static int partial_begin(struct decoder *d, struct err *e)
{
    const struct draft_settings *s = &d->set.draft;
    const size_t first = d->n_caches;
    for (size_t budget = 256;
         budget <= 1024 && !s->kv_fixed && budget > 2 * s->kv_sinks && budget < s->kv_budget; budget *= 4)
        add_caches(d, budget);
    add_caches(d, s->kv_budget);
    d->current_cache = first;
    if (partial_open(cache_of(d), &d->kv, d->model->pool, d->cache[first].policy, s->kv_sinks, s->kv_budget,
                     e))
        return -1;
    partial_change(cache_of(d), d->cache[first].policy, d->cache[first].budget);
    return 0;
}

static void partial_end(struct decoder *d) { partial_close(cache_of(d)); }

static struct pass_cost partial_reads(const struct decoder *d, size_t i)
{
    return (struct pass_cost){ planner_bytes(model_row_bytes(d->model), model_row_bytes(d->set.draft_model)),
                               model_kv_bytes(d->model), (double)d->cache[i].budget };
}

/* A cache that selects asks for the importance of all rows. */
static void partial_score(struct decoder *d, struct pass_seq *seq)
{
    if (!partial_needs_scores(cache_of(d)))
        return;
    seq->scored = partial_select;
    seq->scored_ctx = cache_of(d);
}

/* The state of the partial cache in a snapshot: this struct, then the selection (partial_save). */
struct saved_partial {
    struct saved_cache { struct cache_known known; enum kv_policy policy; size_t budget; } cache[CACHES_MAX];
    size_t n_caches, current_cache, weight_bytes;          /* current_cache: among these */
};

/* The first of its caches. */
static size_t partial_first(const struct decoder *d)
{
    size_t i = 0;
    while (i < d->n_caches && d->cache[i].ops != &drafter_partial)
        i++;
    return i;
}

static size_t saved_partial_bytes(const struct decoder *d)
{
    size_t n = partial_state_bytes(cache_of(d));
    return n ? sizeof(struct saved_partial) + n : 0;
}

static struct saved_partial saved_partial_now(const struct decoder *d)
{
    struct saved_partial k;
    const size_t first = partial_first(d);
    memset(&k, 0, sizeof k);
    for (size_t i = first; i < d->n_caches && d->cache[i].ops == &drafter_partial; i++) {
        struct saved_cache *c = &k.cache[k.n_caches++];
        c->known = d->planner.cache[i];
        c->policy = d->cache[i].policy;
        c->budget = d->cache[i].budget;
    }
    k.current_cache = d->current_cache - first;
    k.weight_bytes = d->set.draft_model->weight_bytes;
    return k;
}

static size_t saved_partial_save(const struct decoder *d, void *out)
{
    const struct saved_partial k = saved_partial_now(d);
    const size_t n = partial_save(cache_of(d), (char *)out + sizeof k);
    memcpy(out, &k, sizeof k);
    return n ? sizeof k + n : 0;
}

static bool saved_partial_load(struct decoder *d, const void *state, size_t n)
{
    const struct saved_partial mine = saved_partial_now(d);
    struct saved_partial k;
    if (n < sizeof k)
        return false;
    memcpy(&k, state, sizeof k);
    bool same = k.n_caches == mine.n_caches && k.current_cache < k.n_caches &&
                k.weight_bytes == mine.weight_bytes;
    for (size_t i = 0; i < mine.n_caches && same; i++)
        same = k.cache[i].budget == mine.cache[i].budget && k.cache[i].policy == mine.cache[i].policy;
    if (!same || !partial_load(cache_of(d), (const char *)state + sizeof k, n - sizeof k))
        return false;
    const size_t first = partial_first(d);
    for (size_t i = 0; i < k.n_caches; i++)
        d->planner.cache[first + i] = k.cache[i].known;
    d->current_cache = first + k.current_cache;
    return true;
}

/* ---- the table ---- */

/* Further passes continue below the best path. */
static size_t partial_rows(const struct draft_settings *s, size_t n_text)
{
    const size_t tree = fixed_tree_rows(s), more = s->draft_passes > 1 ? (size_t)(s->draft_passes - 1) : 0;
    (void)n_text;
    return tree + more * tree;
}

static double partial_prior(size_t i) { return calibrate_ranked(i, 1); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.9, .most = DRAFT_PASSES_MAX, .rows = BATCH_MAX, .chain = true, .ranks = true,
    .leaves_hidden = true, .prepare = partial_prepare, .reads = partial_reads, .choose = partial_choose,
    .forward = partial_forward, .keep = partial_keep, .score = partial_score
};

/* No reset: partial_observe notices a cache that was cut. */
const struct drafter_ops drafter_partial = {
    .id = DRAFTER_PARTIAL, .name = "partial", .turn = TURN_PASSES, .by_default = true, .int8 = true,
    .every_layer = true, .whole_tree = true, .rows = partial_rows, .prior = partial_prior, .passes = &passes,
    .state = sizeof(struct partial), .plan = partial_plan, .open = partial_begin, .close = partial_end,
    .observe = partial_observe,
    .snapshot = { .bytes = saved_partial_bytes, .save = saved_partial_save, .load = saved_partial_load },
};
