/* Drafters that read the text alone: the table of 4-grams, and the longest earlier match. Start reading at
 * ngram_expand() and suffix_expand(). */
#include "src/decode/draft.h"

static bool trimmed(const struct drafting *g, float reach)
{
    return !g->set.n_width && !g->look && reach < g->min_reach;
}

/* Proposes a chain of tokens up to the first one that the sampler can never give. */
static uint32_t propose_chain(struct drafting *g, uint32_t node, const int32_t *token, size_t n,
                              enum source source, const uint16_t *cell)
{
    for (size_t i = 0; i < n; i++) {
        int32_t path[TREE_DEPTH_MAX];
        tree_path(g->tree, node, path);
        const struct history h = { g->tokens, g->n_tokens, g->n_prompt, path, g->tree->node[node].depth,
                                   .known = g->n_tokens };
        float p = calibrate_p(&g->calibration, cell[i]);
        if (sampler_bans(device_sampler_host(g->sampler), token[i], &h) ||
            trimmed(g, p * g->tree->node[node].reach))
            break;
        uint32_t child = tree_add(g->tree, node, token[i], source, p, cell[i]);
        if (!child)
            break;
        node = child;
    }
    return node;
}

/* Tables take in the text when they are asked, with the planner so many tokens at once: their memory has left
 * the caches since the last time, and one visit is faster than many. The longest match is found all the same
 * (suffix.h). 4-grams enter that much later, unless --ngram-delay fixes the delay. */
enum { TOGETHER = 16 };

/* ---- the table of 4-grams ---- */

static void ngram_take_in(struct drafting *g, bool together)
{
    const size_t n = g->n_tokens - MIN(g->ngram_delay, g->n_tokens);
    ngram_follow(g->ngram, g->tokens, n - (together ? n % TOGETHER : 0));
}

static void ngrams_of(struct drafting *g, uint32_t lead)
{
    int32_t next[NGRAM_K_MAX][3];
    uint32_t frequency[NGRAM_K_MAX];
    /* No 4-gram can be likely enough: a look into the table, which the last pass drove from the caches, would
     * be wasted. */
    if (trimmed(g, calibrate_most(&g->calibration, cell_ngram(0, 0, 0), NGRAM_CELLS) *
                       g->tree->node[lead].reach))
        return;
    ngram_take_in(g, !g->set.n_width && g->set.ngram_delay < 0);
    size_t n = ngram_top(g->ngram, g->tree->node[lead].token, g->set.ngram_k, next, frequency);
    for (size_t r = 0; r < n; r++) {
        const uint16_t cell[3] = { cell_ngram(r, frequency[r], 0), cell_ngram(r, frequency[r], 1),
                                   cell_ngram(r, frequency[r], 2) };
        uint32_t end = propose_chain(g, lead, next[r], 3, SOURCE_NGRAM, cell);
        if (g->set.n_width && end != lead)
            tree_chain(g->tree, end);
    }
}

/* The first choice of draft passes or heads at depth 1, else of another drafter. */
static uint32_t first_choice(const struct tree *t)
{
    for (uint32_t c = t->node[0].first; c; c = t->node[c].next)
        if (t->node[c].sources & ~(1u << SOURCE_NGRAM | 1u << SOURCE_SUFFIX | 1u << SOURCE_ADDED))
            return c;
    return t->node[0].first;
}

static void propose_ngrams(struct drafting *g)
{
    const struct tree *t = g->tree;
    uint32_t first = g->set.ngram_lead == LEAD_ROOT ? 0 : first_choice(t);
    if (!g->set.n_width || !first)           /* with the planner both leads are asked */
        ngrams_of(g, 0);
    if (g->set.ngram_lead == LEAD_ALL && g->set.n_width && !first)
        return;                              /* the root's children are 4-grams' own: draft_rows */
    if (g->set.ngram_lead == LEAD_ALL)
        for (uint32_t c = t->node[0].first; c; c = t->node[c].next)
            ngrams_of(g, c);
    else if (first && (g->set.n_width || t->node[first].reach > g->min_reach))
        ngrams_of(g, first);
}

static int ngram_expand(struct drafting *const *g, size_t n, bool *more, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        more[i] = false;
        propose_ngrams(g[i]);
    }
    return 0;
}

static void ngram_observe(struct drafting *g, const struct observed *o)
{
    if (!o->n_path)                          /* a prompt, or a resumed text */
        ngram_take_in(g, false);
}

static size_t ngram_size(const struct draft_settings *s, const struct model *m, size_t n_max) { (void)s,
    (void)m; return ngram_bytes(n_max); }
static int ngram_begin(struct drafting *g, size_t n_max, struct err *e)
{
    return ngram_open(&g->ngram, n_max, e);
}
static void ngram_end(struct drafting *g) { ngram_close(g->ngram); }
static void ngram_empty(struct drafting *g) { ngram_reset(g->ngram); }

const struct drafter_ops draft_ngram = { .source = SOURCE_NGRAM, .item = "4-gram table", .bytes = ngram_size,
                                         .open = ngram_begin, .close = ngram_end, .reset = ngram_empty,
                                         .expand = ngram_expand, .observe = ngram_observe };

/* ---- the longest earlier match ---- */

static void propose_match(struct drafting *g)
{
    int32_t next[16];
    uint16_t cell[16];
    suffix_follow(g->suffix, g->tokens, g->n_tokens - (g->set.n_width ? 0 : g->n_tokens % TOGETHER));
    size_t n, match = suffix_longest(g->suffix, g->tokens, g->n_tokens, NULL, 0, next, 16, &n);
    if (!match)
        return;
    for (size_t i = 0; i < n; i++)
        cell[i] = cell_suffix(match, i);
    uint32_t end = propose_chain(g, 0, next, n, SOURCE_SUFFIX, cell);
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
        suffix_follow(g->suffix, g->tokens, o->n_tokens);
}

static size_t suffix_size(const struct draft_settings *s, const struct model *m, size_t n_max) { (void)s,
    (void)m; return suffix_bytes(n_max); }
static int suffix_begin(struct drafting *g, size_t n_max, struct err *e)
{
    return suffix_open(&g->suffix, n_max, e);
}
static void suffix_end(struct drafting *g) { suffix_close(g->suffix); }
static void suffix_empty(struct drafting *g) { suffix_reset(g->suffix); }

const struct drafter_ops draft_suffix = { .source = SOURCE_SUFFIX, .item = "suffix index",
                                          .bytes = suffix_size, .open = suffix_begin, .close = suffix_end,
                                          .reset = suffix_empty,
                                          .expand = suffix_expand, .observe = suffix_observe };
