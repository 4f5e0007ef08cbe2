/* The model's drafting heads (src/model/heads.h) on the hidden state of the last verified row: they need no
 * pass. After draft passes over the partial cache they continue the last one, as TokenSwift does. Start
 * reading at heads_expand() and heads_ahead(). */
#include <stdio.h>
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/weights.h"
#include "src/model/heads.h"

struct heads_text {                  /* of one text */
    bool have_hidden;
    /* the device's [hidden]: residual of the last committed row, before the final norm; then that of the last
     * draft pass */
    float *hidden;
    float *logits;                   /* the device's [heads->n][vocab] */
    void *scratch;                   /* the device's */
    size_t hidden_bytes, logits_bytes, scratch_bytes;
};

static struct heads_text *text_of(const struct decoder *d) { return d->own[DRAFTER_HEADS]; }
static const struct heads *heads_of(const struct decoder *d) { return d->set.weights[DRAFTER_HEADS]; }

/* ---- memory ---- */

static struct heads_text sizes_of(const struct heads *h, const struct model *m)
{
    return (struct heads_text){ .hidden_bytes = 2 * m->config.hidden * sizeof(float),
                                .logits_bytes = h->n * m->config.vocab * sizeof(float),
                                .scratch_bytes = heads_scratch_bytes(h, m, 1) };
}

static void heads_plan(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                       size_t n_max)
{
    (void)n_max;
    static const struct heads usual = { .n = USUAL_HEADS };
    const struct heads *h = set->weights[DRAFTER_HEADS];
    const struct heads_text x = sizes_of(h ? h : &usual, m);
    memory_plan_add_on(plan, m->dev, "drafting heads", x.hidden_bytes + x.logits_bytes + x.scratch_bytes);
}

static int heads_begin(struct decoder *d, struct err *e)
{
    struct device *dev = d->model->dev;
    struct heads_text *x = text_of(d);
    *x = sizes_of(heads_of(d), d->model);
    x->hidden = dev->alloc(dev, x->hidden_bytes);
    x->scratch = dev->alloc(dev, x->scratch_bytes);
    x->logits = dev->alloc(dev, x->logits_bytes);
    if (!x->hidden || !x->scratch || !x->logits)
        return err_set(e, ERR_FAILED, "drafting: out of memory (%zu bytes)",
                       x->hidden_bytes + x->logits_bytes + x->scratch_bytes);
    d->pass_hidden = x->hidden + d->model->config.hidden;
    return 0;
}

static void heads_end(struct decoder *d)
{
    const struct heads_text *x = text_of(d);
    struct device *dev = d->model->dev;
    dev->free(dev, x->logits, x->logits_bytes);
    dev->free(dev, x->hidden, x->hidden_bytes);
    dev->free(dev, x->scratch, x->scratch_bytes);
    d->pass_hidden = NULL;
}

static void heads_reset(struct decoder *d) { text_of(d)->have_hidden = false; }

/* ---- a round ---- */

/* The hidden state stands at the position before the root, so head 0 guesses the token after the root. */
static void heads_expand(struct decoder *d)
{
    const struct heads_text *x = text_of(d);
    const struct heads *h = heads_of(d);
    const size_t n = d->set.draft.n_width ? MIN(h->n, d->set.draft.n_width) : h->n;
    if (!x->have_hidden)
        return;
    heads_forward(h, d->set.draft_model, x->hidden, 1, n, x->logits, x->scratch);
    draft_propose_heads(d, 0, x->logits, n, DRAFTER_HEADS, DRAFTER_HEADS, 0);
}

static bool heads_ahead(struct decoder *d)
{
    const struct heads_text *x = text_of(d);
    const struct tree *t = d->round.tree;
    const size_t depth = t->node[d->round.pass_node].depth;
    size_t n = heads_of(d)->n;
    if (d->set.draft.n_width)
        n = MIN(n, d->set.draft.n_width - MIN(d->set.draft.n_width, depth + 1));
    uint32_t next = d->round.passes ? tree_best_child(t, d->round.pass_node) : 0;
    if (!n || !next)
        return false;
    heads_forward(heads_of(d), d->set.draft_model, d->pass_hidden, 1, n, x->logits, x->scratch);
    if (!d->set.draft.n_width)
        draft_propose_heads(d, next, x->logits, n, DRAFTER_HEADS, GUESS_AHEAD, 0);
    for (uint32_t c = t->node[d->round.pass_node].first; c && d->set.draft.n_width; c = t->node[c].next)
        if (t->node[c].sources >> DRAFTER_PARTIAL & 1)
            draft_propose_heads(d, c, x->logits, n, DRAFTER_HEADS, GUESS_AHEAD, 0);
    return true;
}

/* Their own matrices, and the LM head. */
static double heads_weights_read(const struct decoder *d)
{
    const struct heads *h = heads_of(d);
    const size_t hidden = d->model->config.hidden,
                 tokens = draft_vocab_head(&h->vocab, &d->model->lm_head)->n;
    return (double)(hidden * (tokens + h->n * hidden));
}

static void heads_observe(struct decoder *d)
{
    struct heads_text *x = text_of(d);
    const size_t hidden = d->model->config.hidden;
    x->have_hidden = d->committed.n_rows > 0;
    if (d->committed.n_rows)
        d->model->dev->copy(d->model->dev, x->hidden, committed_hidden(d, d->committed.n_rows - 1),
                            hidden * sizeof *x->hidden);
}

/* ---- weights ---- */

static int check(const struct weights_at *at, struct err *e)
{
    return heads_check(at->path ? at->path : at->g->dir, &at->g->model, e);
}

static size_t bytes(const struct weights_at *at)
{
    char own[PATH_BYTES];
    snprintf(own, sizeof own, "%.*s/" HEADS_FILE, PATH_BYTES - 32, at->g->dir);
    return heads_bytes(&at->g->model, USUAL_HEADS) +
           draft_vocab_bytes(at->path ? at->path : own, &at->g->model, at->int8);
}

static int open_weights(void *weights, const struct weights_at *at, struct err *e)
{
    struct heads *h = weights;
    if (heads_open(h, at->path, &at->g->model, e))
        return -1;
    if (draft_vocab_gather(&h->vocab, &at->g->model, at->int8, e) == 0)
        return 0;
    heads_close(h);
    return -1;
}

static void close_weights(void *weights) { heads_close(weights); }

static bool is_foreign(const void *weights) { return ((const struct heads *)weights)->foreign; }

static const struct drafter_weights weights = {
    .on_devices = true,
    .size = sizeof(struct heads),
    .missing = "has no drafting heads, neither in its checkpoint nor as heads.safetensors; --drafter "
               "heads:FILE names some",
    .foreign = "these heads were trained for another model: few of their guesses will come true, and the "
               "text is the same",
    .present = heads_present,
    .check = check,
    .bytes = bytes,
    .open = open_weights,
    .close = close_weights,
    .is_foreign = is_foreign,
};

/* ---- the table ---- */

/* With passes of the model the levels hold the candidates of both. */
static size_t heads_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return s->drafters >> DRAFTER_PARTIAL & 1 ? 0 : fixed_tree_rows(s);
}

static double heads_prior(size_t i) { return calibrate_ranked(i, 0.75); }

const struct drafter_ops drafter_heads = {
    .id = DRAFTER_HEADS, .name = "heads", .turn = TURN_MODEL, .option = OPTION_FILE, .int8 = true,
    .every_layer = true, .whole_tree = true, .weights = &weights, .rows = heads_rows, .prior = heads_prior,
    .state = sizeof(struct heads_text), .plan = heads_plan, .open = heads_begin, .close = heads_end,
    .reset = heads_reset, .expand = heads_expand, .weights_read = heads_weights_read, .ahead = heads_ahead,
    .observe = heads_observe,
};
