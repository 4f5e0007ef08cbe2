/* Draft passes of the model over the partial cache (TokenSwift; kvmgr/partial.h), and the heads after them.
 * Start reading at partial_forward(), one draft pass. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/fixed_tree.h"

static struct partial *cache_of(const struct drafting *g) { return g->own[DRAFTER_PARTIAL]; }

/* ---- draft passes ---- */

/* Switches to the cache of the plan and brings it up to the text. A cache that selects waits for the
 * selection of the next verification pass. */
static bool partial_prepare(struct drafting *g)
{
    struct partial *p = cache_of(g);
    const size_t i = g->planner.plan.way - 1;
    if (i != g->current_cache) {
        g->current_cache = i;
        partial_change(p, g->cache[i].policy, g->cache[i].budget);
    }
    partial_follow(p);
    return g->set.n_width || !p->work || p->filled || p->full->n_past <= p->budget;
}

static bool partial_choose(struct drafting *g, struct pass_part *p)
{
    const struct kv *kv = partial_kv(cache_of(g));
    if (!draft_chain(g, p) || kv->n_past + g->passes >= kv->n_max)
        return false;
    /* passes below the last width of a fixed tree continue with one candidate */
    const bool below = g->set.n_width && g->tree->node[p->node[0]].depth >= g->set.n_width;
    p->width = below ? 1 : draft_width(g, p->node[0]);
    return true;
}

static int partial_forward(struct drafting *const *g, size_t n, struct pass_part *const *part, double *end)
{
    struct round_buffers *b = g[0]->buffers;
    struct pass_seq seq[BATCH_MAX];
    size_t n_past[BATCH_MAX];
    struct err ignored;
    for (size_t i = 0; i < n; i++) {
        struct kv *kv = partial_kv(cache_of(g[i]));
        n_past[i] = kv->n_past;
        seq[i] = (struct pass_seq){ .kv = kv, .n = 1, .token = &g[i]->tree->node[part[i]->node[0]].token,
                                    .shift = g[i]->kv->n_past - n_past[i], .logits = part[i]->logits };
        part[i]->hidden = workspace_residual(b->work) + i * g[i]->model->config.hidden;
        kv->n_past += g[i]->passes;
    }
    int rc = model_forward_begin(g[0]->draft_model, b->work, seq, n, &ignored);
    *end = g[0]->clock();
    for (size_t i = 0; i < n && rc == 0; i++)
        draft_rank(g[i], part[i]->node, 1, seq[i].logits, part[i]->width, &g[i]->ranking);
    if (rc == 0)
        rc = model_forward_end(g[0]->draft_model, b->work, seq, n, &ignored);
    if (!g[0]->model->dev->host_memory)
        *end = g[0]->clock();        /* a device has finished when its ranking is there */
    for (size_t i = 0; i < n; i++) {
        seq[i].kv->n_past = n_past[i];
        if (rc)                      /* no NaN may stay in a slot */
            kv_truncate(seq[i].kv, n_past[i]);
    }
    return rc;
}

/* In a fixed tree the heads continue every pass. With the planner they are asked once, after the last one. */
static void partial_keep(struct drafting *g, const struct pass_part *p)
{
    const struct tree *t = g->tree;
    struct device *dev = g->model->dev;
    if (g->pass_hidden)
        dev->copy(dev, g->pass_hidden, p->hidden, g->model->config.hidden * sizeof *g->pass_hidden);
    if (g->set.n_width && !(g->pass_hidden && drafter_heads.ahead(g)))
        for (uint32_t c = t->node[g->pass_node].first; c; c = t->node[c].next)
            tree_chain(g->tree, c);
}

static const struct drafter_passes passes = { .most = DRAFT_PASSES_MAX, .rows = BATCH_MAX, .chain = true,
                                              .ranks = true, .choose = partial_choose,
                                              .forward = partial_forward, .keep = partial_keep };

/* The partial cache follows in rounds with draft passes alone: following takes 13 us of a round of 450 us. A
 * cut of the text has to be seen before the text grows again. */
static void partial_observe(struct drafting *g, const struct observed *o)
{
    (void)o;
    if (g->kv->n_past < cache_of(g)->n_seen)
        partial_follow(cache_of(g));
}

/* The policy without selection. Whether selected rows are worth more than the most recent rows depends on
 * model and text (models/demo: they are not). Means are worth more than both (docs/tried.md), but a layer
 * with a window would see rows through them that its window hides. */
static enum kv_policy unselected(const struct drafting *g)
{
    const struct config *c = &g->model->config;
    bool mean = g->model->dev->host_memory;
    for (size_t l = 0; l < c->n_layers; l++)
        mean &= !c->windowed[l];
    return mean ? KV_MEAN : KV_WINDOW;
}

static void add_caches(struct drafting *g, size_t budget)
{
    const enum kv_policy p = g->set.kv_policy;
    if (p == KV_AUTO && !g->set.kv_fixed)
        draft_add_cache(g, &drafter_partial, unselected(g), budget);
    draft_add_cache(g, &drafter_partial, p == KV_AUTO ? KV_DYNAMIC : p, budget);
}

static size_t partial_size(const struct draft_settings *s, const void *weights, const struct model *m,
                           size_t n_max)
{
    (void)weights;
    const struct kv full = { .dev = m->dev, .type = m->dev->kv_type, .n_layers = m->config.n_layers,
                             .n_kv_heads = m->config.n_kv_heads, .head_dim = m->head_dim,
                             .n_max = n_max };
    return partial_bytes(&full, s->kv_policy, s->kv_budget, n_max);
}

static int partial_begin(struct drafting *g, const struct sampling *p, size_t n_max, struct err *e)
{
    const struct draft_settings *s = &g->set;
    const size_t first = g->n_caches;
    (void)p, (void)n_max;
    if (!(g->own[DRAFTER_PARTIAL] = calloc(1, sizeof(struct partial))))
        return err_set(e, ERR_FAILED, "drafting: out of memory");
    for (size_t budget = 256;
         budget <= 1024 && !s->kv_fixed && budget > 2 * s->kv_sinks && budget < s->kv_budget; budget *= 4)
        add_caches(g, budget);
    add_caches(g, s->kv_budget);
    g->current_cache = first;
    if (partial_open(cache_of(g), g->kv, g->model->pool, g->cache[first].policy, s->kv_sinks, s->kv_budget,
                     e))
        return -1;
    partial_change(cache_of(g), g->cache[first].policy, g->cache[first].budget);
    return 0;
}

static void partial_end(struct drafting *g)
{
    if (cache_of(g))
        partial_close(cache_of(g));
    free(cache_of(g));
    g->own[DRAFTER_PARTIAL] = NULL;
}

static size_t partial_refreshes(const struct drafting *g) { return cache_of(g)->refreshes; }

static struct pass_bytes partial_reads(const struct drafting *g, size_t i)
{
    return (struct pass_bytes){ planner_bytes(model_row_bytes(g->model), model_row_bytes(g->draft_model)),
                                model_kv_bytes(g->model), g->cache[i].budget, 0, 0.9 };
}

/* A cache that selects asks for the importance of all rows. */
static void partial_score(struct drafting *g, struct pass_seq *seq)
{
    if (!partial_needs_scores(cache_of(g)))
        return;
    seq->scored = partial_select;
    seq->scored_ctx = cache_of(g);
}

/* The state of the partial cache in a snapshot: this struct, then the selection (partial_save). */
struct saved_partial {
    struct saved_cache { struct cache_known known; enum kv_policy policy; size_t budget; } cache[CACHES_MAX];
    size_t n_caches, current_cache, weight_bytes;          /* current_cache: among these */
};

/* The first of its caches. */
static size_t partial_first(const struct drafting *g)
{
    size_t i = 0;
    while (i < g->n_caches && g->cache[i].ops != &drafter_partial)
        i++;
    return i;
}

static size_t saved_partial_bytes(const struct drafting *g)
{
    size_t n = partial_state_bytes(cache_of(g));
    return n ? sizeof(struct saved_partial) + n : 0;
}

static struct saved_partial saved_partial_now(const struct drafting *g)
{
    struct saved_partial k;
    const size_t first = partial_first(g);
    memset(&k, 0, sizeof k);
    for (size_t i = first; i < g->n_caches && g->cache[i].ops == &drafter_partial; i++) {
        struct saved_cache *c = &k.cache[k.n_caches++];
        c->known = g->planner.cache[i];
        c->policy = g->cache[i].policy;
        c->budget = g->cache[i].budget;
    }
    k.current_cache = g->current_cache - first;
    k.weight_bytes = g->draft_model->weight_bytes;
    return k;
}

static size_t saved_partial_save(const struct drafting *g, void *out)
{
    const struct saved_partial k = saved_partial_now(g);
    const size_t n = partial_save(cache_of(g), (char *)out + sizeof k);
    memcpy(out, &k, sizeof k);
    return n ? sizeof k + n : 0;
}

static bool saved_partial_load(struct drafting *g, const void *state, size_t n)
{
    const struct saved_partial mine = saved_partial_now(g);
    struct saved_partial k;
    if (n < sizeof k)
        return false;
    memcpy(&k, state, sizeof k);
    bool same = k.n_caches == mine.n_caches && k.current_cache < k.n_caches &&
                k.weight_bytes == mine.weight_bytes;
    for (size_t i = 0; i < mine.n_caches && same; i++)
        same = k.cache[i].budget == mine.cache[i].budget && k.cache[i].policy == mine.cache[i].policy;
    if (!same || !partial_load(cache_of(g), (const char *)state + sizeof k, n - sizeof k))
        return false;
    const size_t first = partial_first(g);
    for (size_t i = 0; i < k.n_caches; i++)
        g->planner.cache[first + i] = k.cache[i].known;
    g->current_cache = first + k.current_cache;
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

/* A pass of the model over one sink and an eighth of the keys. */
static void partial_work(struct draft_work *w, const struct config *c, const struct config *small,
                         const struct model_bytes *b, double keys)
{
    enum { WINDOW_PART = 8, SINK = 1 };
    (void)small;
    w->pass = work_of_layers(c, (double)c->n_layers, b->draft_weight, b->kv,
                             SINK + floor(keys / WINDOW_PART));
}

static const struct drafter_forecast forecast = {
    .tokens = 3.891, .passes = 4, .where = "SPIRe, MagicDec at 512 tokens",
    .tree = { .drafters = 1u << DRAFTER_PARTIAL, .draft_passes = 4, .n_width = 1,
              .width = { 1 } },
    .work = partial_work
};

/* No reset: partial_observe notices a cache that was cut. */
const struct drafter_ops drafter_partial = { .id = DRAFTER_PARTIAL,
                                             .name = "partial",
                                             .turn = TURN_PASSES,
                                             .by_default = true,
                                             .tokenswift = true,
                                             .int8 = true,
                                             .every_layer = true,
                                             .whole_tree = true,
                                             .forecast = &forecast,
                                             .rows = partial_rows,
                                             .prior = partial_prior,
                                             .item = "partial cache",
                                             .on_device = true,
                                             .leaves_hidden = true,
                                             .bytes = partial_size,
                                             .open = partial_begin,
                                             .close = partial_end,
                                             .prepare = partial_prepare,
                                             .reads = partial_reads,
                                             .passes = &passes,
                                             .score = partial_score,
                                             .refreshes = partial_refreshes,
                                             .observe = partial_observe,
                                             .state_bytes = saved_partial_bytes,
                                             .save = saved_partial_save,
                                             .load = saved_partial_load };
