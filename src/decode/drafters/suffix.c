/* The continuation of the longest earlier match of the end of the text (ngram/suffix.h). Start reading at
 * suffix_expand(). */
#include "ngram/suffix.h"

#include "src/decode/draft.h"

enum { MATCH_TOKENS = 16 };          /* that a match proposes */

static struct suffix *suffix_of(const struct drafting *g) { return g->own[DRAFTER_SUFFIX]; }

static void propose_match(struct drafting *g)
{
    int32_t next[MATCH_TOKENS];
    uint16_t cell[MATCH_TOKENS];
    suffix_follow(suffix_of(g), g->tokens, g->n_tokens - (g->set.n_width ? 0 : g->n_tokens % DRAFT_TOGETHER));
    size_t n, match = suffix_longest(suffix_of(g), g->tokens, g->n_tokens, NULL, 0, next, MATCH_TOKENS, &n);
    if (!match)
        return;
    for (size_t i = 0; i < n; i++)
        cell[i] = cell_suffix(match, i);
    uint32_t end = draft_propose_chain(g, 0, next, n, DRAFTER_SUFFIX, cell);
    if (g->set.n_width && end)
        tree_chain(g->tree, end);
}

static int suffix_expand(struct drafting *const *g, size_t n, bool *more, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        more[i] = false;
        propose_match(g[i]);
    }
    return 0;
}

static void suffix_observe(struct drafting *g, const struct observed *o)
{
    if (!o->n_path)
        suffix_follow(suffix_of(g), g->tokens, o->n_tokens);
}

/* ---- memory ---- */

static size_t suffix_size(const struct draft_settings *s, const void *weights, const struct model *m,
                          size_t n_max)
{
    (void)s, (void)weights, (void)m;
    return suffix_bytes(n_max);
}

static int suffix_begin(struct drafting *g, const struct sampling *p, size_t n_max, struct err *e)
{
    struct suffix *s = NULL;
    (void)p;
    const int rc = suffix_open(&s, n_max, e);
    g->own[DRAFTER_SUFFIX] = s;
    return rc;
}

static void suffix_end(struct drafting *g)
{
    suffix_close(suffix_of(g));
    g->own[DRAFTER_SUFFIX] = NULL;
}

static void suffix_empty(struct drafting *g) { suffix_reset(suffix_of(g)); }

/* ---- the table ---- */

static size_t suffix_rows(const struct draft_settings *s, size_t n_text)
{
    (void)s, (void)n_text;
    return MATCH_TOKENS;
}

static double suffix_prior(size_t i) { return 0.1 + 0.1 * (double)(i / 8); }

static const struct drafter_forecast forecast = { .passes = PASSES_MAX,
                                                  .where = "none: it depends on the text" };

const struct drafter_ops drafter_suffix = { .id = DRAFTER_SUFFIX,
                                            .name = "suffix",
                                            .turn = TURN_TEXT,
                                            .by_default = true,
                                            .tokenswift = true,
                                            .forecast = &forecast,
                                            .rows = suffix_rows,
                                            .prior = suffix_prior,
                                            .item = "suffix index",
                                            .bytes = suffix_size,
                                            .open = suffix_begin,
                                            .close = suffix_end,
                                            .reset = suffix_empty,
                                            .expand = suffix_expand,
                                            .observe = suffix_observe };
