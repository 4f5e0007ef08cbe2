/* Candidates of draft passes and heads: ranked by the sampler's chain, then added to the tree. Start reading
 * at draft_propose(). */
#include "src/decode/draft.h"

#include <string.h>

size_t draft_width(const struct decoder *d, uint32_t node)
{
    const struct draft_settings *s = &d->set.draft;
    size_t depth = d->round.tree->node[node].depth;
    if (s->n_width) return depth < s->n_width ? s->width[depth] : d->round.passes > 1 ? 1 : 0;
    return d->round.tree->node[node].reach > d->round.min_reach ? 4 : 0;
}

/* Adds the ranked candidates of one node. */
static size_t add_ranked(struct decoder *d, uint32_t node, const struct candidate *best, size_t n, size_t k,
                         enum drafter source, size_t kind, size_t ahead)
{
    const float reach = d->round.tree->node[node].reach;
    size_t added = 0;
    for (size_t i = 0; i < MIN(n, k); i++) {
        double lead = i > 0   ? (double)best[i].score - best[0].score
                      : n > 1 ? (double)best[0].score - best[1].score
                              : 1e9;
        uint16_t cell = cell_ranked(kind, ahead, i > 0 ? MIN(lead, -1e-6) : lead);
        float p = calibrate_p(&d->calibration, cell);
        if (i > 0 && !d->set.draft.n_width && p * reach < d->round.min_reach) break;
        added += tree_add(d->round.tree, node, best[i].id, source, p, cell) != 0;
    }
    return added;
}

void draft_rank(struct decoder *d, const uint32_t *node, size_t n, const float *logits, size_t k)
{
    struct round *r = &d->round;
    int32_t path[DEVICE_SAMPLER_RANKS][TREE_DEPTH_MAX];
    struct history h[DEVICE_SAMPLER_RANKS];
    assert(n <= DEVICE_SAMPLER_RANKS);
    r->ranking.each = MIN(k + 1, (size_t)RANK_MAX);
    memset(r->ranking.found, 0, sizeof r->ranking.found);
    if (k == 0 || n == 0 || r->tree->node[node[0]].depth >= r->tree->max_depth) return;
    for (size_t i = 0; i < n; i++) {
        tree_path(r->tree, node[i], path[i]);
        h[i] = decoder_history(d, path[i], r->tree->node[node[i]].depth);
    }
    device_sampler_rank(d->sampler, logits, h, n, r->ranking.each, r->ranking.best, r->ranking.found);
}

size_t draft_add(struct decoder *d, const uint32_t *node, size_t n, size_t k, enum drafter source,
                 size_t kind, size_t ahead)
{
    const struct round *r = &d->round;
    size_t added = 0;
    for (size_t i = 0; i < n; i++)
        added += add_ranked(d, node[i], r->ranking.best + i * r->ranking.each, r->ranking.found[i], k,
                            source, kind, ahead);
    return added;
}

size_t draft_propose(struct decoder *d, const uint32_t *node, size_t n, const float *logits, size_t k,
                     enum drafter source, size_t kind, size_t ahead)
{
    size_t added = 0;
    for (size_t i = 0, some; i < n; i += some) {
        some = MIN(n - i, (size_t)DEVICE_SAMPLER_RANKS);
        draft_rank(d, node + i, some, logits, k);
        added += draft_add(d, node + i, some, k, source, kind, ahead);
    }
    return added;
}

/* Works level by level, so that the pool is in order of depth. With the planner only nodes that may be kept
 * get children. */
void draft_propose_heads(struct decoder *d, uint32_t node, const float *logits, size_t n,
                         enum drafter source, size_t kind, size_t ahead)
{
    const struct tree *t = d->round.tree;
    const size_t vocab = d->model->config.vocab, base = t->node[node].depth;
    uint32_t level[TREE_POOL_MAX];
    size_t n_level = 1, rankings = d->set.draft.n_width ? SIZE_MAX : 8;
    level[0] = node;
    for (size_t k = 0; k < n && n_level; k++) {
        /* nodes of one depth have the same width, or none */
        uint32_t below[TREE_POOL_MAX], wide[TREE_POOL_MAX];
        size_t n_below = 0, n_wide = 0;
        for (size_t i = 0; i < n_level && rankings; i++) {
            if (!draft_width(d, level[i])) continue;
            wide[n_wide++] = level[i];
            rankings--;
        }
        draft_propose(d, wide, n_wide, logits + k * vocab, n_wide ? draft_width(d, wide[0]) : 0, source,
                      kind, ahead + k);
        for (size_t i = 0, j = 0; i < n_level; i++) {
            const bool width = j < n_wide && wide[j] == level[i];
            size_t before = n_below;
            j += width;
            for (uint32_t c = width ? t->node[level[i]].first : 0; c; c = t->node[c].next)
                if (t->node[c].sources >> source & 1 && n_below < TREE_POOL_MAX) below[n_below++] = c;
            /* a candidate row ends where a node has no children */
            if (d->set.draft.n_width && n_below == before && level[i]) tree_chain(d->round.tree, level[i]);
        }
        memcpy(level, below, n_below * sizeof *below);
        n_level = n_below;
        if (d->set.draft.n_width && k + 1 + base >= d->set.draft.n_width) break;
    }
    if (d->set.draft.n_width)
        for (size_t i = 0; i < n_level; i++) tree_chain(d->round.tree, level[i]);
}

bool draft_trims(const struct decoder *d, float reach)
{
    return !d->set.draft.n_width && !d->round.probe && reach < d->round.min_reach;
}

uint32_t draft_propose_chain(struct decoder *d, uint32_t node, const int32_t *token, size_t n,
                             enum drafter source, const uint16_t *cell)
{
    for (size_t i = 0; i < n; i++) {
        int32_t path[TREE_DEPTH_MAX];
        tree_path(d->round.tree, node, path);
        const struct history h = decoder_history(d, path, d->round.tree->node[node].depth);
        float p = calibrate_p(&d->calibration, cell[i]);
        if (sampler_bans(device_sampler_host(d->sampler), token[i], &h) ||
            draft_trims(d, p * d->round.tree->node[node].reach))
            break;
        uint32_t child = tree_add(d->round.tree, node, token[i], source, p, cell[i]);
        if (!child)
            break;
        node = child;
    }
    return node;
}

void draft_reach(struct decoder *d, uint32_t node)
{
    const struct tree *t = d->round.tree;
    for (uint32_t c = t->node[node].first; c; c = t->node[c].next)
        if (t->node[c].depth < t->max_depth && draft_width(d, c))
            d->round.next_reach = MAX(d->round.next_reach, t->node[c].reach);
}

void row_seconds_learn(struct row_seconds *s, size_t rows, double seconds)
{
    enum { SOME = 32 };
    const double old = rows == 1 ? s->one : s->more,
                 now = rows == 1 ? seconds : MAX(seconds - s->one, 0) / (double)(rows - 1);
    *(rows == 1 ? &s->one : &s->more) = old > 0 ? old + (MIN(now, 2 * old) - old) / SOME : now;
}
