/* The continuation of the longest earlier match of the end of the text (ngram/suffix.h). Start reading at
 * suffix_expand(). */
#include "ngram/suffix.h"

#include "src/decode/draft.h"

enum { MATCH_TOKENS = 16 };          /* that a match proposes */

static struct suffix *suffix_of(const struct decoder *d) { return d->own[DRAFTER_SUFFIX]; }

static void suffix_expand(struct decoder *d)
{
    int32_t next[MATCH_TOKENS];
    uint16_t cell[MATCH_TOKENS];
    const size_t later = d->set.draft.n_width ? 0 : d->n_tokens % DRAFT_TOGETHER;
    suffix_follow(suffix_of(d), d->tokens, d->n_tokens - later);
    size_t n, match = suffix_longest(suffix_of(d), d->tokens, d->n_tokens, NULL, 0, next, MATCH_TOKENS, &n);
    if (!match)
        return;
    for (size_t i = 0; i < n; i++)
        cell[i] = cell_suffix(match, i);
    uint32_t end = draft_propose_chain(d, 0, next, n, DRAFTER_SUFFIX, cell);
    if (d->set.draft.n_width && end)
        tree_chain(d->round.tree, end);
}

static void suffix_observe(struct decoder *d)
{
    if (d->committed.n_rows == 0)
        suffix_follow(suffix_of(d), d->tokens, d->n_tokens);
}

/* ---- memory ---- */

static void suffix_plan(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                        size_t n_max)
{
    (void)set, (void)m;
    memory_plan_add(plan, "suffix index", suffix_bytes(n_max));
}

static int suffix_begin(struct decoder *d, struct err *e)
{
    struct suffix *s = NULL;
    const int rc = suffix_open(&s, d->n_max, e);
    d->own[DRAFTER_SUFFIX] = s;
    return rc;
}

static void suffix_end(struct decoder *d) { suffix_close(suffix_of(d)); }

static void suffix_empty(struct decoder *d) { suffix_reset(suffix_of(d)); }

/* ---- the table ---- */

static size_t suffix_rows(const struct draft_settings *s, size_t n_text)
{
    (void)s, (void)n_text;
    return MATCH_TOKENS;
}

static double suffix_prior(size_t i) { return 0.1 + 0.1 * (double)(i / 8); }

const struct drafter_ops drafter_suffix = {
    .id = DRAFTER_SUFFIX, .name = "suffix", .turn = TURN_TEXT, .by_default = true, .rows = suffix_rows,
    .prior = suffix_prior, .plan = suffix_plan, .open = suffix_begin, .close = suffix_end,
    .reset = suffix_empty, .expand = suffix_expand, .observe = suffix_observe,
};
