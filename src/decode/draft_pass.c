/* Draft passes: one loop for all drafters that make passes, for chains and beams, for one text or several.
 * Start reading at draft_pass(). */
#include "src/decode/draft.h"

/* The texts of one pass. */
struct lot {
    struct drafting *g[BATCH_MAX];
    struct pass_part *part[BATCH_MAX];
    bool *more[BATCH_MAX];
    size_t n, rows, logits;
};

bool draft_chain(const struct drafting *g, struct pass_part *part)
{
    const struct tree *t = g->tree;
    part->rows = part->n = 1;
    part->node[0] = g->passes ? tree_best_child(t, g->pass_node) : 0;
    return (!g->passes || part->node[0]) && t->node[part->node[0]].depth < t->max_depth;
}

bool draft_beam(struct drafting *g, struct draft_beam *b, enum drafter source, size_t most,
                struct pass_part *part)
{
    const bool of_root = b->n == 0;
    const size_t last = b->from;
    b->from = b->n;
    part->n = draft_children(g, source, of_root ? &(uint32_t){ 0 } : b->node + last,
                             of_root ? 1 : b->n - last, MIN(most, g->buffers->verify_rows), b->rows.more,
                             part->node, b->parent + b->n);
    part->rows = part->n;
    assert(b->n + part->n <= BEAM_ROWS_MAX);
    for (size_t i = 0; i < part->n; i++) {
        int32_t *parent = &b->parent[b->n + i];
        *parent = of_root ? -1 : *parent + (int32_t)last;
        b->node[b->n + i] = part->node[i];
        part->token[i] = g->tree->node[part->node[i]].token;
    }
    return part->n > 0;
}

/* Rows of logits. */
static size_t logits_of(const struct pass_part *p) { return p->n * MAX(p->heads, (size_t)1); }

/* Whether a text has room in a pass. A text alone always has. */
static bool joins(const struct lot *l, const struct drafter_ops *ops, const struct drafting *g,
                  const struct pass_part *p)
{
    return l->n == 0 || (g->draft_model == l->g[0]->draft_model && p->heads == l->part[0]->heads &&
                         l->rows + p->rows <= ops->passes->rows &&
                         l->logits + logits_of(p) <= g->buffers->verify_rows);
}

/* Adds the guesses of a pass to the tree of a text. Returns their number. */
static size_t take(struct drafting *g, const struct drafter_ops *ops, const struct pass_part *p)
{
    const struct tree *t = g->tree;
    const size_t vocab = g->model->config.vocab, before = t->n;
    size_t added = 0;
    g->pass_node = p->node[0];
    g->next_reach = 0;
    for (size_t i = 0; i < p->n; i++) {
        const uint32_t node = p->node[i];
        const size_t ahead = ops->passes->by_depth ? t->node[node].depth : 0,
                     width = p->width ? p->width : draft_width(g, node);
        if (p->heads) {
            draft_propose_heads(g, node, p->logits + i * p->heads * vocab, p->heads, ops->id, ops->id, ahead);
            added = t->n - before;
            continue;
        }
        added += ops->passes->ranks
                     ? draft_add(g, &node, 1, &g->ranking, width, ops->id, ops->id, ahead)
                     : draft_propose(g, &node, 1, p->logits + i * vocab, width, ops->id, ops->id, ahead);
        if (!ops->passes->chain)
            draft_reach(g, node);
    }
    const uint32_t next = ops->passes->chain ? tree_best_child(t, g->pass_node) : 0;
    if (next && t->node[next].depth < t->max_depth)
        g->next_reach = t->node[next].reach;
    return added;
}

/* One pass. The planners of its texts learn its seconds. */
static void run(struct lot *l, const struct drafter_ops *ops)
{
    const struct drafter_passes *passes = ops->passes;
    const size_t vocab = l->g[0]->model->config.vocab;
    const double start = l->g[0]->clock();
    float *logits = l->g[0]->buffers->logits;
    double end = -1;
    for (size_t i = 0; i < l->n; i++) {
        l->part[i]->logits = logits;
        logits += logits_of(l->part[i]) * vocab;
    }
    const int rc = passes->forward(l->g, l->n, l->part, &end);
    for (size_t i = 0; i < l->n; i++) {
        struct drafting *g = l->g[i];
        if (rc) {
            g->next_reach = 0;
            if (ops->reset)
                ops->reset(g);
            continue;
        }
        *l->more[i] = take(g, ops, l->part[i]) > 0;
        if (++g->passes == passes->most)
            g->next_reach = 0;
        if (passes->keep)
            passes->keep(g, l->part[i]);
    }
    const double seconds = (end < 0 ? l->g[0]->clock() : end) - start;
    for (size_t i = 0; i < l->n; i++)
        planner_passed(&l->g[i]->planner, l->n, seconds / (double)l->n);
    if (l->n == 1 && passes->learn)
        passes->learn(l->g[0], l->part[0], seconds);
}

void draft_pass(struct drafting *const *g, size_t n, const struct drafter_ops *ops, bool *more)
{
    struct pass_part part[BATCH_MAX];
    bool waits[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        part[i] = (struct pass_part){ 0 };
        more[i] = false;
        waits[i] = g[i]->passes < ops->passes->most && ops->passes->choose(g[i], &part[i]);
        if (!waits[i])
            g[i]->next_reach = 0;
    }
    for (size_t first = 0; first < n; first++) {
        struct lot l;
        l.n = l.rows = l.logits = 0;
        for (size_t i = first; i < n && waits[first] + l.n > 0; i++) {
            if (!waits[i] || !joins(&l, ops, g[i], &part[i]))
                continue;
            waits[i] = false;
            l.rows += part[i].rows, l.logits += logits_of(&part[i]);
            l.g[l.n] = g[i], l.part[l.n] = &part[i], l.more[l.n++] = &more[i];
        }
        if (l.n)
            run(&l, ops);
    }
}
