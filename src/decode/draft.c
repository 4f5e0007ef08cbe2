/* Settings of drafting, and struct drafting, which the drafters share. Start reading at draft_open().
 * draft_round.c holds the drafting of a round, draft_model.c and draft_text.c the drafters. */
#include "src/decode/draft.h"
#include "src/decode/verify_published.h"
#include "src/model/config_tensors.h"

#include <string.h>

static const struct drafter_ops *const product_drafters[] = {
    &draft_suffix, &draft_partial, &draft_longspec, &draft_spire, &draft_gumiho, &draft_small,
    &draft_mtp,    &draft_heads,   &draft_ngram,    NULL
};
const struct drafter_ops *const *drafters_all = product_drafters;

void draft_defaults(struct draft_settings *s)
{
    *s = (struct draft_settings){
        .drafters = 1u << SOURCE_PARTIAL | 1u << SOURCE_NGRAM | 1u << SOURCE_SUFFIX, .ngram_k = 20,
        .ngram_delay = -1, .draft_passes = -1,
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
    for (size_t i = 0, nodes = 1; i < s->n_width; i++) {
        if (s->width[i] < 1 || s->width[i] > RANK_MAX - 1)
            return err_set(e, ERR_INPUT, "--tree: %zu candidates at depth %zu, allowed are 1 to %d",
                           s->width[i], i + 1, RANK_MAX - 1);
        /* other drafters continue a bounded number of nodes */
        if (s->drafters & (1u << SOURCE_HEADS | 1u << SOURCE_PARTIAL | 1u << SOURCE_GUMIHO) &&
            (!mul_size(nodes, s->width[i], &nodes) || nodes >= TREE_ROWS_MAX))
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
    return config_is_hybrid(c) ? ~(1u << SOURCE_HEADS | 1u << SOURCE_PARTIAL | 1u << SOURCE_LONGSPEC |
                                   1u << SOURCE_SPIRE | 1u << SOURCE_GUMIHO)
                               : ~0u;
}

int draft_check_model(const struct draft_settings *s, const struct device *dev, const struct config *c,
                      struct err *e)
{
    if (s->drafters >> SOURCE_PARTIAL & 1 && s->kv_policy == KV_MEAN && !dev->host_memory)
        return err_set(e, ERR_INPUT,
                       "%s: --kv-policy mean is not supported on this device; --device cpu supports it",
                       dev->name);
    for (size_t i = 0; i < N_SOURCES; i++)
        if (s->drafters >> i & 1 && !(draft_of_config(c) >> i & 1))
            return err_set(e, ERR_INPUT,
                           "--drafter %s: not for %s models, where few layers have a cache that grows, so "
                           "such drafts save little; auto, mtp, ngram, suffix, model:DIR and none are "
                           "available",
                           source_names[i], c->model_type);
    return 0;
}

bool draft_wants_int8(const struct draft_settings *s, const struct device *dev)
{
    return s->weights == WEIGHTS_INT8 && !verify_published(s) &&
           s->drafters & (1u << SOURCE_PARTIAL | 1u << SOURCE_HEADS | 1u << SOURCE_LONGSPEC |
                          1u << SOURCE_SPIRE | 1u << SOURCE_GUMIHO) &&
           dev->host_memory && !dev->quantised;
}

size_t draft_rows(const struct draft_settings *s)
{
    size_t rows = 1, level = 1, leads = 1;
    if (s->ngram_lead == LEAD_ALL && s->n_width)             /* children of the root, from every drafter */
        leads = s->width[0] + (s->drafters >> SOURCE_SUFFIX & 1) + (s->drafters >> SOURCE_ADDED & 1);
    if (!s->drafters)
        return 1;
    if (s->rows_max)
        return s->rows_max;
    if (!s->n_width)
        return s->drafters >> SOURCE_ADDED & 1 ? MAX((size_t)ROWS_AUTO, s->added_rows) : ROWS_AUTO;
    if (s->drafters & (1u << SOURCE_HEADS | 1u << SOURCE_PARTIAL))
        for (size_t i = 0; i < s->n_width; i++)
            rows += level *= s->width[i];
    /* further passes continue below the best path */
    if (s->drafters >> SOURCE_PARTIAL & 1 && s->draft_passes > 1)
        rows += (size_t)(s->draft_passes - 1) * (rows - 1);
    for (size_t i = 0, beam = 1; s->drafters >> SOURCE_LONGSPEC & 1 && i < s->n_width; i++)
        rows += beam = MIN(beam, (size_t)16) * s->width[i];
    const size_t deep = MIN((size_t)2 + GUMIHO_HEADS, MAX(s->n_width, (size_t)MAX(s->draft_passes, 0)));
    for (size_t i = 0, nodes = 1; s->drafters >> SOURCE_GUMIHO & 1 && i < deep; i++)
        rows += nodes *= i < s->n_width ? s->width[i] : 1;
    const size_t chain = MAX(s->n_width, (size_t)MAX(s->draft_passes, 0));
    for (size_t i = 0, beam = 1; s->drafters >> SOURCE_MTP & 1 && i < MIN(chain, (size_t)MTP_PASSES); i++)
        rows += beam = MIN(beam, (size_t)MTP_BEAM) * (i < s->n_width ? s->width[i] : 1);
    for (size_t i = 0; s->drafters >> SOURCE_MODEL & 1 && i < chain; i++)
        rows += i < s->n_width ? s->width[i] : 1;
    for (size_t i = 0; s->drafters >> SOURCE_SPIRE & 1 && i < MIN(s->n_width, (size_t)SPIRE_DEPTH); i++)
        rows += s->width[i];
    if (s->drafters >> SOURCE_NGRAM & 1)
        rows += leads * s->ngram_k * 4;
    if (s->drafters >> SOURCE_SUFFIX & 1)
        rows += 16;
    if (s->drafters >> SOURCE_ADDED & 1)
        rows += s->added_rows;
    return rows;
}

/* Rows of logits that the heads need. Draft passes use the logits of the round. */
static size_t n_logits(const struct heads *heads) { return heads ? heads->n : 0; }

size_t draft_bytes(const struct draft_settings *s, const struct model *m, const struct heads *heads)
{
    size_t n = sizeof(struct tree) + 2 * m->config.hidden * sizeof(float), logits;
    if (!s->drafters)
        return 0;
    if (!mul_size(n_logits(heads) * m->config.vocab, sizeof(float), &logits) || !add_size(n, logits, &n) ||
        !add_size(n, heads ? heads_scratch_bytes(heads, m, 1) : 0, &n))
        return SIZE_MAX;
    return n;
}

static void read_bytes(const struct drafting *g, struct pass_bytes reads[CACHES_MAX])
{
    for (size_t i = 0; i < g->n_caches; i++)
        reads[i] = g->cache[i].ops->reads(g, i), reads[i].maker = g->cache[i].ops->source;
}

/* The planner needs bytes: the heads read their own matrices and the LM head. */
static void start_planner(struct drafting *g)
{
    const struct config *c = &g->model->config;
    const double read = g->heads ? (double)(c->hidden * (c->vocab + g->heads->n * c->hidden)) : 0;
    struct planner_setup s = { .on = g->set.drafters && !g->set.n_width,
                               .rows_max = draft_rows(&g->set),
                               .n_caches = g->n_caches,
                               .weight_bytes = model_row_bytes(g->model),
                               .kv_bytes = model_kv_bytes(g->model),
                               .heads_share = read / (double)config_count_used(c) };
    if (c->n_experts > c->experts_used)
        s.experts = (struct planner_experts){ model_bytes_an_expert(g->model),
                                              (double)model_expert_layers(g->model), (double)c->n_experts,
                                              (double)c->experts_used };
    read_bytes(g, s.reads);
    planner_start(&g->planner, &g->buffers->costs, &s);
}

int draft_open(struct drafting *g, const struct sampling *p, size_t n_max, struct err *e)
{
    const struct model *m = g->model;
    const struct heads *heads = g->heads;
    const struct draft_settings *s = &g->set;
    const size_t vocab = m->config.vocab, hidden = m->config.hidden;
    g->draft_model = g->draft_model ? g->draft_model : m;
    g->set.drafters &= ~((unsigned)!g->longspec << SOURCE_LONGSPEC | (unsigned)!g->spire << SOURCE_SPIRE |
                         (unsigned)!g->gumiho << SOURCE_GUMIHO |
                         (unsigned)!g->small << SOURCE_MODEL | (unsigned)!g->mtp << SOURCE_MTP);
    g->logits_bytes = n_logits(heads) * vocab * sizeof(float);
    g->heads_bytes = heads ? heads_scratch_bytes(heads, m, 1) : 0;
    g->bytes = sizeof *g->tree;
    g->hidden_bytes = 2 * hidden * sizeof(float);
    if (draft_check_model(s, m->dev, &m->config, e))
        goto fail;
    g->hidden = m->dev->alloc(m->dev, g->hidden_bytes);
    if (heads) {
        g->heads_scratch = m->dev->alloc(m->dev, g->heads_bytes);
        g->logits = m->dev->alloc(m->dev, g->logits_bytes);
    }
    g->tree = mem_alloc(g->bytes);
    if (!g->hidden || !g->tree || (heads && (!g->heads_scratch || !g->logits))) {
        err_set(e, ERR_FAILED, "drafting: out of memory (%zu bytes)",
                g->bytes + g->hidden_bytes + g->logits_bytes + g->heads_bytes);
        goto fail;
    }
    g->pass_hidden = g->hidden + hidden;
    g->ngram_delay = s->ngram_delay >= 0                         ? (size_t)s->ngram_delay
                     : p->penalty == 1 || p->penalty_window == 0 ? 0
                     : p->penalty_window < 0                     ? SIZE_MAX
                                                                 : (size_t)p->penalty_window + 1;
    g->clock = clock_seconds;
    calibrate_start(&g->calibration);
    for (size_t i = 0; drafters_all[i]; i++)
        if (s->drafters >> drafters_all[i]->source & 1 && drafters_all[i]->open &&
            drafters_all[i]->open(g, n_max, e))
            goto fail;
    start_planner(g);
    return 0;
fail:
    draft_close(g);
    return -1;
}

void draft_with(struct drafting *g, const struct model *m)
{
    struct pass_bytes reads[CACHES_MAX];
    g->draft_model = m;
    read_bytes(g, reads);
    planner_draft_bytes(&g->planner, reads);
}

void draft_close(struct drafting *g)
{
    if (g->model) {
        g->model->dev->free(g->model->dev, g->logits, g->logits_bytes);
        g->model->dev->free(g->model->dev, g->hidden, g->hidden_bytes);
        g->model->dev->free(g->model->dev, g->heads_scratch, g->heads_bytes);
    }
    mem_free(g->tree, g->bytes);
    for (size_t i = 0; drafters_all[i]; i++)
        if (drafters_all[i]->close)
            drafters_all[i]->close(g);
    *g = (struct drafting){0};
}

void draft_reset(struct drafting *g, struct device_sampler *sampler)
{
    g->sampler = sampler;
    for (size_t i = 0; drafters_all[i]; i++)
        if (g->set.drafters >> drafters_all[i]->source & 1 && drafters_all[i]->reset)
            drafters_all[i]->reset(g);
}
