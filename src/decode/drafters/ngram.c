/* The table of 4-grams of prompt and text (ngram/ngram.h; TokenSwift's token reutilization). Start reading at
 * ngram_expand(). */
#include "ngram/ngram.h"

#include "src/decode/draft.h"

static struct ngram *table_of(const struct decoder *d) { return d->own[DRAFTER_NGRAM]; }

/* The tokens that a 4-gram waits: until it has left the penalty window, unless --ngram-delay fixes them. */
static size_t delay_of(const struct decoder *d)
{
    const struct sampling *p = sampler_settings(device_sampler_host(d->sampler));
    return d->set.draft.ngram_delay >= 0               ? (size_t)d->set.draft.ngram_delay
           : p->penalty == 1 || p->penalty_window == 0 ? 0
           : p->penalty_window < 0                     ? SIZE_MAX
                                                       : (size_t)p->penalty_window + 1;
}

static void ngram_take_in(struct decoder *d, bool together)
{
    const size_t n = d->n_tokens - MIN(delay_of(d), d->n_tokens);
    ngram_follow(table_of(d), d->tokens, n - (together ? n % DRAFT_TOGETHER : 0));
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
    size_t n = ngram_top(table_of(d), d->round.tree->node[lead].token, d->set.draft.ngram_k, next,
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

static void ngram_expand(struct decoder *d)
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

static void ngram_observe(struct decoder *d)
{
    if (d->committed.n_rows == 0)                          /* a prompt, or a resumed text */
        ngram_take_in(d, false);
}

/* ---- memory ---- */

static void ngram_plan(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                       size_t n_max)
{
    (void)set, (void)m;
    memory_plan_add(plan, "4-gram table", ngram_bytes(n_max));
}

static int ngram_begin(struct decoder *d, struct err *e)
{
    struct ngram *t = NULL;
    const int rc = ngram_open(&t, d->n_max, e);
    d->own[DRAFTER_NGRAM] = t;
    return rc;
}

static void ngram_end(struct decoder *d) { ngram_close(table_of(d)); }

/* The table keeps what it learned. */
static void ngram_cut(struct decoder *d) { (void)d; }

static void ngram_empty(struct decoder *d) { ngram_reset(table_of(d)); }

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
    .id = DRAFTER_NGRAM, .name = "ngram", .turn = TURN_LAST, .by_default = true, .rows = ngram_rows,
    .prior = ngram_prior, .plan = ngram_plan, .open = ngram_begin, .close = ngram_end, .reset = ngram_empty,
    .cut = ngram_cut, .expand = ngram_expand, .observe = ngram_observe,
};
