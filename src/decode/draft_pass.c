/* Draft passes: one loop for all drafters that make passes, for chains and beams, for one text or several.
 * Start reading at draft_pass(). */
#include "src/decode/draft.h"

bool draft_chain(const struct decoder *d, struct pass_part *part)
{
    const struct tree *t = d->round.tree;
    part->rows = part->n = 1;
    part->node[0] = d->round.passes ? tree_best_child(t, d->round.pass_node) : 0;
    return (!d->round.passes || part->node[0]) && t->node[part->node[0]].depth < t->max_depth;
}

bool draft_beam(struct decoder *d, enum drafter source, size_t most, double seconds, struct pass_part *part)
{
    struct round *r = &d->round;
    const struct tree *t = r->tree;
    const size_t last = r->beam.from, to = r->beam.n;
    int32_t *row = r->beam.parent + to;
    size_t n = 0;
    most = MIN(most, MIN(d->set.buffers->verify_rows, BEAM_ROWS_MAX - to));
    for (size_t i = last; i < MAX(to, (size_t)1); i++)
        for (uint32_t c = t->node[to ? r->beam.node[i] : 0].first; c; c = t->node[c].next) {
            const float reach = t->node[c].reach;
            const bool own = !d->set.draft.n_width || t->node[c].sources >> source & 1;
            if (!own || t->node[c].depth >= t->max_depth || !draft_width(d, c))
                continue;
            size_t at = n < most ? n++ : most;
            for (; at > 0 && t->node[part->node[at - 1]].reach < reach; at--)
                if (at < most)
                    part->node[at] = part->node[at - 1], row[at] = row[at - 1];
            if (at < most)
                part->node[at] = c, row[at] = to ? (int32_t)i : -1;
        }
    while (d->planner.on && n > 1 &&
           !planner_row_pays(&d->planner, (double)t->node[part->node[n - 1]].reach, seconds))
        n--;
    for (size_t i = 0; i < n; i++) {
        r->beam.node[to + i] = part->node[i];
        part->token[i] = t->node[part->node[i]].token;
    }
    r->beam.from = to;
    r->beam.n = to + n;
    part->rows = part->n = n;
    return n > 0;
}

/* Rows of logits. */
static size_t logits_of(const struct pass_part *p) { return p->n * MAX(p->heads, (size_t)1); }

/* Whether a text has room in a pass of n others. A text alone always has. */
static bool joins(const struct drafter_ops *ops, struct decoder *const *with, struct pass_part *const *part,
                  size_t n, const struct decoder *d, const struct pass_part *p)
{
    size_t rows = p->rows, logits = logits_of(p);
    for (size_t i = 0; i < n; i++)
        rows += part[i]->rows, logits += logits_of(part[i]);
    return n == 0 || (d->set.draft_model == with[0]->set.draft_model && p->heads == part[0]->heads &&
                      rows <= ops->passes->rows && logits <= d->set.buffers->verify_rows);
}

/* Adds the guesses of a pass to the tree of a text. */
static void take(struct decoder *d, const struct drafter_ops *ops, const struct pass_part *p)
{
    const struct tree *t = d->round.tree;
    const size_t vocab = d->model->config.vocab, before = t->n;
    size_t added = 0;
    d->round.pass_node = p->node[0];
    d->round.next_reach = 0;
    for (size_t i = 0; i < p->n; i++) {
        const uint32_t node = p->node[i];
        const size_t ahead = ops->passes->by_depth ? t->node[node].depth : 0,
                     width = p->width ? p->width : draft_width(d, node);
        if (p->heads) {
            draft_propose_heads(d, node, p->logits + i * p->heads * vocab, p->heads, ops->id, ops->id, ahead);
            added = t->n - before;
            continue;
        }
        added += ops->passes->ranks
                     ? draft_add(d, &node, 1, width, ops->id, ops->id, ahead)
                     : draft_propose(d, &node, 1, p->logits + i * vocab, width, ops->id, ops->id, ahead);
        if (!ops->passes->chain)
            draft_reach(d, node);
    }
    const uint32_t next = ops->passes->chain ? tree_best_child(t, d->round.pass_node) : 0;
    if (next && t->node[next].depth < t->max_depth)
        d->round.next_reach = t->node[next].reach;
    if (added == 0)                  /* a further pass would know no more */
        d->round.next_reach = 0;
}

/* One pass. The planners of its texts learn its seconds. */
static void run(const struct drafter_ops *ops, struct decoder *const *d, struct pass_part *const *part,
                size_t n)
{
    const size_t vocab = d[0]->model->config.vocab;
    const double start = d[0]->clock();
    float *logits = d[0]->set.buffers->logits;
    double end = -1;
    for (size_t i = 0; i < n; i++) {
        part[i]->logits = logits;
        logits += logits_of(part[i]) * vocab;
    }
    const int rc = ops->passes->forward(d, n, part, &end);
    for (size_t i = 0; i < n; i++) {
        if (rc) {
            d[i]->round.next_reach = 0;
            if (ops->reset)
                ops->reset(d[i]);
            continue;
        }
        take(d[i], ops, part[i]);
        if (++d[i]->round.passes == ops->passes->most)
            d[i]->round.next_reach = 0;
        if (ops->passes->keep)
            ops->passes->keep(d[i], part[i]);
    }
    const double seconds = (end < 0 ? d[0]->clock() : end) - start;
    for (size_t i = 0; i < n; i++)
        planner_passed(&d[i]->planner, n, seconds / (double)n);
    if (n == 1 && ops->passes->learn)
        ops->passes->learn(d[0], part[0], seconds);
}

void draft_pass(const struct drafter_ops *ops, struct decoder *const *d, size_t n)
{
    struct pass_part part[BATCH_MAX];
    bool waits[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        part[i] = (struct pass_part){ 0 };
        waits[i] = d[i]->round.passes < ops->passes->most && ops->passes->choose(d[i], &part[i]);
        if (!waits[i])
            d[i]->round.next_reach = 0;
    }
    for (size_t first = 0; first < n; first++) {
        struct decoder *with[BATCH_MAX];
        struct pass_part *of[BATCH_MAX];
        size_t texts = 0;
        for (size_t i = first; i < n && waits[first] + texts > 0; i++) {
            if (!waits[i] || !joins(ops, with, of, texts, d[i], &part[i]))
                continue;
            waits[i] = false;
            with[texts] = d[i], of[texts++] = &part[i];
        }
        if (texts)
            run(ops, with, of, texts);
    }
}
