/* Settings of drafting, and opening the drafters of a decoder. Start reading at draft_open(). draft_round.c
 * holds the drafting of a round, drafters/ the drafters. */
#include "src/decode/draft.h"
#include "src/decode/verify_published.h"
#include "src/model/config_tensors.h"

#include <stdlib.h>
#include <string.h>

static unsigned draft_default_set(void)
{
    unsigned set = 0;
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        set |= (unsigned)(drafters[d] && drafters[d]->by_default) << d;
    return set;
}
void draft_defaults(struct draft_settings *s)
{
    *s = (struct draft_settings){
        .drafters = draft_default_set(), .ngram_k = 20, .ngram_delay = -1, .draft_passes = -1,
        .kv_policy = KV_AUTO, .kv_sinks = 16, .kv_budget = 4096,
    };
}

int draft_check(const struct draft_settings *s, struct err *e)
{
    if (s->kv_sinks < 1 || s->kv_sinks >= s->kv_budget)
        return err_set(e, ERR_INPUT, "--kv-sinks %zu: must be 1 to %zu, below --kv-budget %zu", s->kv_sinks,
                       s->kv_budget - 1, s->kv_budget);
    if (s->ngram_k > NGRAM_K_MAX)
        return err_set(e, ERR_INPUT, "--ngram-k %zu: must be 0 to %d", s->ngram_k, NGRAM_K_MAX);
    if (s->draft_passes > DRAFT_PASSES_MAX)
        return err_set(e, ERR_INPUT, "--draft-passes %ld: must be 0 to %d", s->draft_passes,
                       DRAFT_PASSES_MAX);
    bool whole = false;
    for (const struct drafter_ops *o = NULL; (o = drafter_next(s->drafters, o));)
        whole |= o->whole_tree;
    for (size_t i = 0, nodes = 1; i < s->n_width; i++) {
        if (s->width[i] < 1 || s->width[i] > RANK_MAX - 1)
            return err_set(e, ERR_INPUT, "--tree: %zu candidates at depth %zu, allowed are 1 to %d",
                           s->width[i], i + 1, RANK_MAX - 1);
        /* other drafters continue a bounded number of nodes */
        if (whole && (!mul_size(nodes, s->width[i], &nodes) || nodes >= TREE_ROWS_MAX))
            return err_set(e, ERR_INPUT, "--tree: more than %d candidates at depth %zu", TREE_ROWS_MAX - 1,
                           i + 1);
    }
    if (draft_rows(s) > TREE_ROWS_MAX)
        return err_set(e, ERR_INPUT,
                       "--tree with --ngram-k %zu: %zu candidates in a pass, at most %d are allowed",
                       s->ngram_k, draft_rows(s), TREE_ROWS_MAX);
    return verify_published_check(s, e);
}

unsigned draft_of_config(const struct config *c)
{
    unsigned set = ~0u;
    for (enum drafter d = 0; d < N_DRAFTERS && config_is_hybrid(c); d++)
        if (drafters[d] && drafters[d]->every_layer)
            set &= ~(1u << d);
    /* drafters with layers of their own, which have one kind of heads */
    if (c->heads_differ)
        set &= ~(1u << DRAFTER_LONGSPEC | 1u << DRAFTER_SPIRE | 1u << DRAFTER_GUMIHO);
    return set;
}

int draft_check_model(const struct draft_settings *s, const struct device *dev, const struct config *c,
                      struct err *e)
{
    if (s->drafters >> DRAFTER_PARTIAL & 1 && s->kv_policy == KV_MEAN && !dev->host_memory)
        return err_set(e, ERR_INPUT,
                       "%s: --kv-policy mean is not supported on this device; --device cpu supports it",
                       dev->name);
    char list[256];
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        if (s->drafters >> d & 1 && !(draft_of_config(c) >> d & 1))
            return err_set(e, ERR_INPUT,
                           "--drafter %s: not for %s models, %s; auto, %s and none are available",
                           drafter_name(d), c->model_type,
                           c->heads_differ ? "whose layers have different heads"
                                           : "where few layers have a cache that grows, so such drafts save "
                                             "little", drafter_list(list, draft_of_config(c)));
    return 0;
}

bool draft_wants_int8(const struct draft_settings *s, const struct device *dev)
{
    bool any = false;
    for (const struct drafter_ops *o = NULL; (o = drafter_next(s->drafters, o));)
        any |= o->int8;
    return any && s->weights == WEIGHTS_INT8 && !verify_published(s) && dev->host_memory && !dev->quantised;
}

/* Whether guesses of a drafter come from a model, and not from the text alone. */
static bool asks_model(const struct drafter_ops *o) { return o->passes || o->weights; }

size_t draft_rows(const struct draft_settings *s)
{
    size_t rows = 1, n_text = 0;
    if (!s->drafters)
        return 1;
    if (s->rows_max)
        return s->rows_max;
    for (const struct drafter_ops *o = NULL; (o = drafter_next(s->drafters, o));)
        n_text += !asks_model(o);
    if (!s->n_width) {
        const struct drafter_ops *added = drafters[DRAFTER_ADDED];
        return s->drafters >> DRAFTER_ADDED & 1 && added ? MAX((size_t)ROWS_AUTO, added->rows(s, 0))
                                                         : (size_t)ROWS_AUTO;
    }
    for (const struct drafter_ops *o = NULL; (o = drafter_next(s->drafters, o));)
        if (o->rows)
            rows += o->rows(s, n_text - !asks_model(o));
    return rows;
}

size_t draft_bytes(const struct draft_settings *s) { return s->drafters ? sizeof(struct tree) : 0; }

/* ---- the states of drafters ---- */

void draft_plan_states(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                       size_t n_max)
{
    for (const struct drafter_ops *o = NULL; (o = drafter_next(set->draft.drafters, o));) {
        if (o->plan)
            o->plan(plan, set, m, n_max);
        if (!o->memory)
            continue;
        const struct drafter_memory x = o->memory(set, m, n_max);
        if (x.name)
            memory_plan_add(plan, x.name, o->state + (x.kv.n_layers ? kv_bytes(&x.kv) : 0) +
                                              x.floats * sizeof(float) + x.others);
    }
}

static int open_state(struct decoder *d, const struct drafter_ops *o, struct err *e)
{
    const size_t caches = d->n_caches;
    const struct drafter_memory x =
        o->memory ? o->memory(&d->set, d->model, d->n_max) : (struct drafter_memory){ 0 };
    d->own[o->id] = o->state ? calloc(1, o->state) : NULL;
    d->floats[o->id] = x.floats ? mem_alloc(x.floats * sizeof(float)) : NULL;
    if ((o->state && !d->own[o->id]) || (x.floats && !d->floats[o->id]))
        return err_set(e, ERR_FAILED, "drafting: out of memory");
    if ((x.kv.n_layers && kv_open(d->own[o->id], d->model->dev, &x.kv, e)) || (o->open && o->open(d, e)))
        return -1;
    if (o->passes && d->n_caches == caches)
        draft_add_cache(d, o, KV_FULL, SIZE_MAX);
    return 0;
}

static void close_state(struct decoder *d, const struct drafter_ops *o)
{
    if (d->own[o->id] && o->close)
        o->close(d);
    if (o->memory && (d->own[o->id] || d->floats[o->id])) {
        const struct drafter_memory x = o->memory(&d->set, d->model, d->n_max);
        if (d->own[o->id] && x.kv.n_layers)
            kv_close(d->own[o->id]);
        mem_free(d->floats[o->id], x.floats * sizeof(float));
    }
    if (o->state)
        free(d->own[o->id]);
    d->own[o->id] = d->floats[o->id] = NULL;
}

/* ---- opening ---- */

static void read_bytes(const struct decoder *d, struct draft_cost reads[CACHES_MAX])
{
    for (size_t i = 0; i < d->n_caches; i++) {
        const struct drafter_ops *o = d->cache[i].ops;
        reads[i] = (struct draft_cost){ o->passes->reads(d, i), o->passes->most, o->passes->acceptance_max,
                                        o->id };
    }
}

/* The planner needs bytes. */
static void start_planner(struct decoder *d)
{
    const struct config *c = &d->model->config;
    double read = 0;
    for (const struct drafter_ops *o = NULL; (o = drafter_next(d->set.draft.drafters, o));)
        read += o->weights_read ? o->weights_read(d) : 0;
    struct planner_setup s = { .on = d->set.draft.drafters && !d->set.draft.n_width,
                               .rows_max = draft_rows(&d->set.draft),
                               .n_caches = d->n_caches,
                               .weight_bytes = model_row_bytes(d->model),
                               .kv_bytes = model_kv_bytes(d->model),
                               .windowed_bytes = model_windowed_bytes(d->model),
                               .window = c->window,
                               .heads_share = read / (double)config_count_used(c) };
    if (c->n_experts > c->experts_used)
        s.experts = (struct planner_experts){ model_bytes_an_expert(d->model),
                                              (double)model_expert_layers(d->model), (double)c->n_experts,
                                              (double)c->experts_used };
    read_bytes(d, s.reads);
    planner_start(&d->planner, &d->set.buffers->costs, &s);
}

int draft_open(struct decoder *d, struct err *e)
{
    const struct model *m = d->model;
    d->set.draft_model = d->set.draft_model ? d->set.draft_model : m;
    for (const struct drafter_ops *o = NULL; (o = drafter_next(d->set.draft.drafters, o));)
        if (o->weights && !d->set.weights[o->id])
            d->set.draft.drafters &= ~(1u << o->id);
    if (draft_check_model(&d->set.draft, m->dev, &m->config, e))
        return -1;
    if (!(d->round.tree = mem_alloc(sizeof *d->round.tree)))
        return err_set(e, ERR_FAILED, "drafting: out of memory (%zu bytes)", sizeof *d->round.tree);
    for (size_t kind = 0; kind < N_GUESSES; kind++) {
        const struct drafter_ops *o = drafters[kind == GUESS_AHEAD ? DRAFTER_HEADS : kind];
        calibrate_start(&d->calibration, kind, o ? o->prior : NULL);
    }
    for (const struct drafter_ops *o = NULL; (o = drafter_next(d->set.draft.drafters, o));) {
        d->ask_model |= (unsigned)asks_model(o) << o->id;
        if (open_state(d, o, e))
            return -1;
    }
    start_planner(d);
    return 0;
}

void draft_with(struct decoder *d, const struct model *m)
{
    struct draft_cost reads[CACHES_MAX];
    d->set.draft_model = m;
    read_bytes(d, reads);
    planner_draft_bytes(&d->planner, reads);
}

void draft_close(struct decoder *d)
{
    for (const struct drafter_ops *o = NULL; (o = drafter_next(ALL_DRAFTERS, o));)
        close_state(d, o);
    mem_free(d->round.tree, sizeof *d->round.tree);
}

void draft_reset(struct decoder *d)
{
    for (const struct drafter_ops *o = NULL; (o = drafter_next(d->set.draft.drafters, o));)
        if (o->reset)
            o->reset(d);
}

void draft_cut(struct decoder *d)
{
    for (const struct drafter_ops *o = NULL; (o = drafter_next(d->set.draft.drafters, o));)
        if (o->cut)
            o->cut(d);
        else if (o->reset)
            o->reset(d);
}
