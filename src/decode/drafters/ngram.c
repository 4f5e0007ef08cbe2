/* The table of 4-grams of prompt and text (ngram/ngram.h; TokenSwift's token reutilization). Start reading at
 * ngram_expand(). */
#include "ngram/ngram.h"

#include <stdlib.h>

#include "src/decode/draft.h"

struct grams {                       /* of one text */
    struct ngram *table;
    size_t delay;                    /* tokens until a 4-gram enters */
};

static struct grams *grams_of(const struct decoder *d) { return d->own[DRAFTER_NGRAM]; }

static void ngram_take_in(struct decoder *d, bool together)
{
    const struct grams *x = grams_of(d);
    const size_t n = d->n_tokens - MIN(x->delay, d->n_tokens);
    ngram_follow(x->table, d->tokens, n - (together ? n % DRAFT_TOGETHER : 0));
}

static void ngrams_of(struct decoder *d, uint32_t lead)
{
    int32_t next[NGRAM_K_MAX][3];
    uint32_t frequency[NGRAM_K_MAX];
    /* No 4-gram can be likely enough: a search of the table, which the last pass drove from the caches, would
     * be wasted. */
    if (draft_trims(d, calibrate_most(&d->calibration, cell_ngram(0, 0, 0), NGRAM_CELLS) *
                       d->round.tree->node[lead].reach))
        return;
    ngram_take_in(d, !d->set.draft.n_width && d->set.draft.ngram_delay < 0);
    size_t n = ngram_top(grams_of(d)->table, d->round.tree->node[lead].token, d->set.draft.ngram_k, next,
                         frequency);
    for (size_t r = 0; r < n; r++) {
        const uint16_t cell[3] = { cell_ngram(r, frequency[r], 0), cell_ngram(r, frequency[r], 1),
                                   cell_ngram(r, frequency[r], 2) };
        uint32_t end = draft_propose_chain(d, lead, next[r], 3, DRAFTER_NGRAM, cell);
        if (d->set.draft.n_width && end != lead)
            tree_chain(d->round.tree, end);
    }
}

/* The first choice of a drafter that asks a model at depth 1, else of another drafter. */
static uint32_t first_choice(const struct decoder *d)
{
    const struct tree *t = d->round.tree;
    for (uint32_t c = t->node[0].first; c; c = t->node[c].next)
        if (t->node[c].sources & d->ask_model)
            return c;
    return t->node[0].first;
}

static void propose_ngrams(struct decoder *d)
{
    const struct tree *t = d->round.tree;
    uint32_t first = d->set.draft.ngram_lead == LEAD_ROOT ? 0 : first_choice(d);
    if (!d->set.draft.n_width || !first)           /* with the planner both leads are asked */
        ngrams_of(d, 0);
    if (d->set.draft.ngram_lead == LEAD_ALL && d->set.draft.n_width && !first)
        return;                              /* the root's children are 4-grams' own: draft_rows */
    if (d->set.draft.ngram_lead == LEAD_ALL)
        for (uint32_t c = t->node[0].first; c; c = t->node[c].next)
            ngrams_of(d, c);
    else if (first && (d->set.draft.n_width || t->node[first].reach > d->round.min_reach))
        ngrams_of(d, first);
}

static int ngram_expand(struct decoder *const *d, size_t n, bool *more, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        more[i] = false;
        propose_ngrams(d[i]);
    }
    return 0;
}

static void ngram_observe(struct decoder *d)
{
    if (d->committed.n_rows == 0)                          /* a prompt, or a resumed text */
        ngram_take_in(d, false);
}

/* ---- memory ---- */

static size_t ngram_size(const struct draft_settings *s, const void *weights, const struct model *m,
                         size_t n_max)
{
    (void)s, (void)weights, (void)m;
    return ngram_bytes(n_max);
}

/* A 4-gram waits until it has left the penalty window, unless --ngram-delay fixes the delay. */
static int ngram_begin(struct decoder *d, const struct sampling *p, struct err *e)
{
    struct grams *x = calloc(1, sizeof *x);
    d->own[DRAFTER_NGRAM] = x;
    if (!x)
        return err_set(e, ERR_FAILED, "drafting: out of memory");
    x->delay = d->set.draft.ngram_delay >= 0                    ? (size_t)d->set.draft.ngram_delay
               : p->penalty == 1 || p->penalty_window == 0 ? 0
               : p->penalty_window < 0                     ? SIZE_MAX
                                                           : (size_t)p->penalty_window + 1;
    return ngram_open(&x->table, d->n_max, e);
}

static void ngram_end(struct decoder *d)
{
    if (grams_of(d))
        ngram_close(grams_of(d)->table);
    free(grams_of(d));
    d->own[DRAFTER_NGRAM] = NULL;
}

static void ngram_empty(struct decoder *d) { ngram_reset(grams_of(d)->table); }

/* ---- the table of drafters ---- */

/* The nodes that 4-grams continue: the root, the first choice and two more; or all children of the root, of
 * which each text drafter proposes one. */
static size_t ngram_rows(const struct draft_settings *s, size_t n_text)
{
    const size_t leads = s->ngram_lead == LEAD_ALL && s->n_width ? s->width[0] + n_text : 1;
    return leads * s->ngram_k * 4;
}

static double ngram_prior(size_t i) { return i / NGRAM_CELLS ? 0.5 : 0.05; }

const struct drafter_ops drafter_ngram = {
    .id = DRAFTER_NGRAM, .name = "ngram", .turn = TURN_LAST, .by_default = true, .tokenswift = true,
    .rows = ngram_rows, .prior = ngram_prior,
    .item = "4-gram table", .bytes = ngram_size, .open = ngram_begin, .close = ngram_end,
    .reset = ngram_empty,
    .expand = ngram_expand, .observe = ngram_observe,
};
