#include "src/decode/draft.h"

#include <string.h>

static const struct drafter_ops *const product_drafters[] = { &draft_suffix, &draft_partial, &draft_heads,
                                                              &draft_ngram, NULL };
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
        if (!mul_size(nodes, s->width[i], &nodes) || nodes >= TREE_ROWS_MAX)
            return err_set(e, ERR_INPUT, "--tree: more than %d candidates at depth %zu", TREE_ROWS_MAX - 1,
                           i + 1);
    }
    if (draft_rows(s) > TREE_ROWS_MAX)
        return err_set(e, ERR_INPUT,
                       "--tree with --ngram-k %zu: %zu candidates in a pass, at most %d are allowed",
                       s->ngram_k, draft_rows(s), TREE_ROWS_MAX);
    if (s->verifier == VERIFY_PAPER && !s->n_width)
        return err_set(e, ERR_INPUT, "--verifier paper: needs a fixed --tree (or --preset tokenswift)");
    if (s->verifier == VERIFY_PAPER && s->rows_max)
        return err_set(
            e, ERR_INPUT,
            "--verifier paper: checks every candidate, a pass of at most %zu rows (rows_max) would not",
            s->rows_max);
    return 0;
}

int draft_check_device(const struct draft_settings *s, const struct device *dev, struct err *e)
{
    if (s->drafters >> SOURCE_PARTIAL & 1 && s->kv_policy == KV_MEAN && !dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --kv-policy mean is not supported on this device; --device cpu supports it",
                       dev->name);
    return 0;
}

bool draft_wants_int8(const struct draft_settings *s, const struct device *dev)
{
    return s->weights == WEIGHTS_INT8 && s->verifier == VERIFY_EXACT &&
           s->drafters & (1u << SOURCE_PARTIAL | 1u << SOURCE_HEADS) && dev->host_memory;
}

size_t draft_rows(const struct draft_settings *s)
{
    size_t rows = 1, level = 1, leads = 1;
    if (s->ngram_lead == LEAD_ALL && s->n_width)             /* children of the root, whoever proposed them */
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
    /* further passes go on below the best path */
    if (s->drafters >> SOURCE_PARTIAL & 1 && s->draft_passes > 1)
        rows += (size_t)(s->draft_passes - 1) * (rows - 1);
    if (s->drafters >> SOURCE_NGRAM & 1)
        rows += leads * s->ngram_k * 4;
    if (s->drafters >> SOURCE_SUFFIX & 1)
        rows += 16;
    if (s->drafters >> SOURCE_ADDED & 1)
        rows += s->added_rows;
    return rows;
}

/* The table of 4-grams and the matches are of all tokens; logits of a draft: the model's own and each head's. */
static size_t n_logits(const struct heads *heads) { return 1 + (heads ? heads->n : 0); }

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

int draft_open(struct drafting *g, const struct draft_settings *s, const struct model *m,
               const struct model *small, const struct heads *heads, struct kv *kv, struct workspace *work,
               struct device_sampler *sampler, double penalty, long penalty_window, size_t n_max, struct err *e)
{
    const size_t vocab = m->config.vocab, hidden = m->config.hidden;
    *g = (struct drafting){ .set = *s, .model = m, .small = small ? small : m, .heads = heads, .kv = kv, .work = work, .sampler = sampler };
    g->logits_bytes = n_logits(heads) * vocab * sizeof(float);
    g->heads_bytes = heads ? heads_scratch_bytes(heads, m, 1) : 0;
    g->bytes = sizeof *g->tree;
    g->hidden_bytes = 2 * hidden * sizeof(float);
    if (draft_check_device(s, m->dev, e))
        goto fail;
    g->logits = m->dev->alloc(m->dev, g->logits_bytes);
    g->hidden = m->dev->alloc(m->dev, g->hidden_bytes);
    if (heads)
        g->heads_scratch = m->dev->alloc(m->dev, g->heads_bytes);
    g->tree = mem_alloc(g->bytes);
    if (!g->logits || !g->hidden || !g->tree || (heads && !g->heads_scratch)) {
        err_set(e, ERR_FAILED, "drafting: out of memory (%zu bytes)",
                g->bytes + g->hidden_bytes + g->logits_bytes + g->heads_bytes);
        goto fail;
    }
    g->pass_hidden = g->hidden + hidden;
    g->ngram_delay = s->ngram_delay >= 0                   ? (size_t)s->ngram_delay
                     : penalty == 1 || penalty_window == 0 ? 0
                     : penalty_window < 0                  ? SIZE_MAX
                                                           : (size_t)penalty_window + 1;
    calibrate_start(&g->calibration);
    for (size_t i = 0; drafters_all[i]; i++)
        if (s->drafters >> drafters_all[i]->source & 1 && drafters_all[i]->open &&
            drafters_all[i]->open(g, n_max, e))
            goto fail;
    return 0;
fail:
    draft_close(g);
    return -1;
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

size_t draft_width(const struct drafting *g, uint32_t node)
{
    size_t depth = g->tree->node[node].depth;
    if (g->set.n_width)
        return depth < g->set.n_width ? g->set.width[depth] : g->passes > 1 ? 1 : 0;
    return g->tree->node[node].reach > g->min_reach ? 4 : 0;
}

/* Candidates of one node, ranked, into the tree. */
static size_t add_ranked(struct drafting *g, uint32_t node, const struct candidate *best, size_t n, size_t k,
                         enum source source, enum guess kind, size_t ahead)
{
    const float reach = g->tree->node[node].reach;
    size_t added = 0;
    for (size_t i = 0; i < MIN(n, k); i++) {
        double lead = i > 0   ? (double)best[i].score - best[0].score
                      : n > 1 ? (double)best[0].score - best[1].score
                              : 1e9;
        uint16_t cell = cell_ranked(kind, ahead, i > 0 ? MIN(lead, -1e-6) : lead);
        float p = calibrate_p(&g->calibration, cell);
        if (i > 0 && !g->set.n_width && p * reach < g->min_reach)
            break;
        added += tree_add(g->tree, node, best[i].id, source, p, cell) != 0;
    }
    return added;
}

void draft_rank(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                struct ranking *r)
{
    int32_t path[DEVICE_SAMPLER_RANKS][TREE_DEPTH_MAX];
    struct history h[DEVICE_SAMPLER_RANKS];
    assert(n <= DEVICE_SAMPLER_RANKS);
    r->each = MIN(k + 1, (size_t)RANK_MAX);
    memset(r->found, 0, sizeof r->found);
    if (k == 0 || n == 0 || g->tree->node[node[0]].depth >= g->tree->max_depth)
        return;
    for (size_t i = 0; i < n; i++) {
        tree_path(g->tree, node[i], path[i]);
        h[i] = (struct history){ g->tokens, g->n_tokens, g->n_prompt, path[i], g->tree->node[node[i]].depth,
                                 .known = g->n_tokens };
    }
    device_sampler_rank(g->sampler, logits, h, n, r->each, r->best, r->found);
}

size_t draft_add(struct drafting *g, const uint32_t *node, size_t n, const struct ranking *r, size_t k,
                 enum source source, enum guess kind, size_t ahead)
{
    size_t added = 0;
    for (size_t i = 0; i < n; i++)
        added += add_ranked(g, node[i], r->best + i * r->each, r->found[i], k, source, kind, ahead);
    return added;
}

size_t draft_propose(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                     enum source source, enum guess kind, size_t ahead)
{
    struct ranking r;
    size_t added = 0;
    for (size_t i = 0, some; i < n; i += some) {
        some = MIN(n - i, (size_t)DEVICE_SAMPLER_RANKS);
        draft_rank(g, node + i, some, logits, k, &r);
        added += draft_add(g, node + i, some, &r, k, source, kind, ahead);
    }
    return added;
}

/* Level by level, so that the pool is in the order of depth; in a tree with a controller only nodes that may be kept get children. */
void draft_propose_heads(struct drafting *g, uint32_t node, const float *logits, size_t n, enum guess kind)
{
    const struct tree *t = g->tree;
    const size_t vocab = g->model->config.vocab, base = t->node[node].depth;
    uint32_t level[TREE_POOL_MAX];
    size_t n_level = 1, rankings = g->set.n_width ? SIZE_MAX : 8;
    level[0] = node;
    for (size_t k = 0; k < n && n_level; k++) {
        /* of one depth, so of one width where they have any */
        uint32_t below[TREE_POOL_MAX], wide[TREE_POOL_MAX];
        size_t n_below = 0, n_wide = 0;
        for (size_t i = 0; i < n_level && rankings; i++) {
            if (!draft_width(g, level[i]))
                continue;
            wide[n_wide++] = level[i];
            rankings--;
        }
        draft_propose(g, wide, n_wide, logits + k * vocab, n_wide ? draft_width(g, wide[0]) : 0, SOURCE_HEADS,
                      kind, k);
        for (size_t i = 0, j = 0; i < n_level; i++) {
            const bool width = j < n_wide && wide[j] == level[i];
            size_t before = n_below;
            j += width;
            for (uint32_t c = width ? t->node[level[i]].first : 0; c; c = t->node[c].next)
                if (t->node[c].sources >> SOURCE_HEADS & 1 && n_below < TREE_POOL_MAX)
                    below[n_below++] = c;
            /* nothing is kept behind it, or the text ends: so does the row */
            if (g->set.n_width && n_below == before && level[i])
                tree_chain(g->tree, level[i]);
        }
        memcpy(level, below, n_below * sizeof *below);
        n_level = n_below;
        if (g->set.n_width && k + 1 + base >= g->set.n_width)
            break;
    }
    if (g->set.n_width)
        for (size_t i = 0; i < n_level; i++)
            tree_chain(g->tree, level[i]);
}
