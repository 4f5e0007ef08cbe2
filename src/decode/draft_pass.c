/* Draft passes: one loop for all drafters that make passes, for chains and beams, for one text or several.
 * Start reading at draft_pass(). */
#include "src/decode/draft.h"

/* The texts of one pass. */
struct lot {
    struct decoder *d[BATCH_MAX];
    struct pass_part *part[BATCH_MAX];
    bool *more[BATCH_MAX];
    size_t n, rows, logits;
};

bool draft_chain(const struct decoder *d, struct pass_part *part)
{
    const struct tree *t = d->round.tree;
    part->rows = part->n = 1;
    part->node[0] = d->round.passes ? tree_best_child(t, d->round.pass_node) : 0;
    return (!d->round.passes || part->node[0]) && t->node[part->node[0]].depth < t->max_depth;
}

bool draft_beam(struct decoder *d, struct draft_beam *b, enum drafter source, size_t most,
                struct pass_part *part)
{
    const bool of_root = b->n == 0;
    const size_t last = b->from;
    b->from = b->n;
    part->n = draft_children(d, source, of_root ? &(uint32_t){ 0 } : b->node + last,
                             of_root ? 1 : b->n - last, MIN(most, d->set.buffers->verify_rows), b->rows.more,
                             part->node, b->parent + b->n);
    part->rows = part->n;
    assert(b->n + part->n <= BEAM_ROWS_MAX);
    for (size_t i = 0; i < part->n; i++) {
        int32_t *parent = &b->parent[b->n + i];
        *parent = of_root ? -1 : *parent + (int32_t)last;
        b->node[b->n + i] = part->node[i];
        part->token[i] = d->round.tree->node[part->node[i]].token;
    }
    return part->n > 0;
}

/* Rows of logits. */
static size_t logits_of(const struct pass_part *p) { return p->n * MAX(p->heads, (size_t)1); }

/* Whether a text has room in a pass. A text alone always has. */
static bool joins(const struct lot *l, const struct drafter_ops *ops, const struct decoder *d,
                  const struct pass_part *p)
{
    return l->n == 0 || (d->set.draft_model == l->d[0]->set.draft_model && p->heads == l->part[0]->heads &&
                         l->rows + p->rows <= ops->pass.rows &&
                         l->logits + logits_of(p) <= d->set.buffers->verify_rows);
}

/* Adds the guesses of a pass to the tree of a text. Returns their number. */
static size_t take(struct decoder *d, const struct drafter_ops *ops, const struct pass_part *p)
{
    const struct tree *t = d->round.tree;
    const size_t vocab = d->model->config.vocab, before = t->n;
    size_t added = 0;
    d->round.pass_node = p->node[0];
    d->round.next_reach = 0;
    for (size_t i = 0; i < p->n; i++) {
        const uint32_t node = p->node[i];
        const size_t ahead = ops->pass.by_depth ? t->node[node].depth : 0,
                     width = p->width ? p->width : draft_width(d, node);
        if (p->heads) {
            draft_propose_heads(d, node, p->logits + i * p->heads * vocab, p->heads, ops->id, ops->id, ahead);
            added = t->n - before;
            continue;
        }
        added += ops->pass.ranks
                     ? draft_add(d, &node, 1, width, ops->id, ops->id, ahead)
                     : draft_propose(d, &node, 1, p->logits + i * vocab, width, ops->id, ops->id, ahead);
        if (!ops->pass.chain)
            draft_reach(d, node);
    }
    const uint32_t next = ops->pass.chain ? tree_best_child(t, d->round.pass_node) : 0;
    if (next && t->node[next].depth < t->max_depth)
        d->round.next_reach = t->node[next].reach;
    return added;
}

/* One pass. The planners of its texts learn its seconds. */
static void run(struct lot *l, const struct drafter_ops *ops)
{
    const size_t vocab = l->d[0]->model->config.vocab;
    const double start = l->d[0]->clock();
    float *logits = l->d[0]->set.buffers->logits;
    double end = -1;
    for (size_t i = 0; i < l->n; i++) {
        l->part[i]->logits = logits;
        logits += logits_of(l->part[i]) * vocab;
    }
    const int rc = ops->pass.forward(l->d, l->n, l->part, &end);
    for (size_t i = 0; i < l->n; i++) {
        struct decoder *d = l->d[i];
        if (rc) {
            d->round.next_reach = 0;
            if (ops->reset)
                ops->reset(d);
            continue;
        }
        *l->more[i] = take(d, ops, l->part[i]) > 0;
        if (++d->round.passes == ops->pass.most)
            d->round.next_reach = 0;
        if (ops->pass.keep)
            ops->pass.keep(d, l->part[i]);
    }
    const double seconds = (end < 0 ? l->d[0]->clock() : end) - start;
    for (size_t i = 0; i < l->n; i++)
        planner_passed(&l->d[i]->planner, l->n, seconds / (double)l->n);
    if (l->n == 1 && ops->pass.learn)
        ops->pass.learn(l->d[0], l->part[0], seconds);
}

void draft_pass(struct decoder *const *d, size_t n, const struct drafter_ops *ops, bool *more)
{
    struct pass_part part[BATCH_MAX];
    bool waits[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        part[i] = (struct pass_part){ 0 };
        more[i] = false;
        waits[i] = d[i]->round.passes < ops->pass.most && ops->pass.choose(d[i], &part[i]);
        if (!waits[i])
            d[i]->round.next_reach = 0;
    }
    for (size_t first = 0; first < n; first++) {
        struct lot l;
        l.n = l.rows = l.logits = 0;
        for (size_t i = first; i < n && waits[first] + l.n > 0; i++) {
            if (!waits[i] || !joins(&l, ops, d[i], &part[i]))
                continue;
            waits[i] = false;
            l.rows += part[i].rows, l.logits += logits_of(&part[i]);
            l.d[l.n] = d[i], l.part[l.n] = &part[i], l.more[l.n++] = &more[i];
        }
        if (l.n)
            run(&l, ops);
    }
}
