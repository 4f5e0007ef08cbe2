/* Settings of drafting: what a user may choose of how tokens are found. They decide how many tokens a pass
 * yields and never which tokens (docs/architecture.md, rules R1 and R2), but for the published verifier. */
#pragma once
#include "kvmgr/partial.h"
#include "src/decode/drafters.h"
#include "src/model/model.h"

enum { TREE_WIDTHS_MAX = 16, NGRAM_K_MAX = 32, DRAFT_PASSES_MAX = PARTIAL_ROWS_MAX };
enum ngram_lead {                    /* the nodes that 4-grams continue */
    LEAD_FIRST,                      /* the first choice at depth 1; without candidates, the root */
    LEAD_ALL,                        /* every candidate at depth 1 */
    LEAD_ROOT,
};
enum verifier { VERIFY_EXACT, VERIFY_PAPER };
/* the weights of drafts: 8-bit weights where draft_wants_int8 says so; those of the model */
enum draft_weights { WEIGHTS_INT8, WEIGHTS_MODEL };

struct draft_settings {              /* recorded with a job; all zero: plain decoding */
    unsigned drafters;               /* bit per enum drafter (drafters.h) */
    /* --tree: candidates at each depth; n_width > 0 turns the planner off, and every candidate is verified */
    size_t width[TREE_WIDTHS_MAX], n_width;
    size_t ngram_k;                  /* continuations of a leading token */
    enum ngram_lead ngram_lead;
    /* tokens that a 4-gram waits before it enters the table; -1: until it has left the penalty window */
    long ngram_delay;
    long draft_passes;               /* of a round; -1: as planned (1 without the planner) */
    enum kv_policy kv_policy;
    /* not fixed: the planner may use smaller budgets, and under KV_AUTO the policies dynamic and mean (where
     * means are not possible: window) */
    size_t kv_sinks, kv_budget; bool kv_fixed;
    enum draft_weights weights;      /* of draft passes, and of heads' LM head */
    /* the most nodes of a verification pass; 0: what the tree needs, or ROWS_AUTO */
    size_t rows_max;
    enum verifier verifier;
    const void *added; size_t added_rows;    /* of DRAFTER_ADDED: its settings; the most rows it proposes */
};
enum { ROWS_AUTO = 48 };

/* Every drafter that needs no weights of its own, with the planner. */
void draft_defaults(struct draft_settings *s);
/* Checks the ranges of the settings; messages name the flags. */
int  draft_check(const struct draft_settings *s, struct err *e);
/* Whether the device and the model support the drafters. A hybrid, whose cache grows in few layers, supports
 * those that need no cache of the model's: draft_of_config. */
int  draft_check_model(const struct draft_settings *s, const struct device *dev, const struct config *c,
                       struct err *e);
/* The drafters, by bits, that a model supports. */
unsigned draft_of_config(const struct config *c);
/* Whether an 8-bit copy of the model is of use: drafts ask it, and the device multiplies 8-bit weights. Never
 * with the published verifier, whose text depends on the candidates and must not depend on free memory. */
bool draft_wants_int8(const struct draft_settings *s, const struct device *dev);
/* Rows of the largest verification pass. */
size_t draft_rows(const struct draft_settings *s);

/* ---- a fixed --tree ---- */

/* The candidates of a tree in which every node has its depth's width: the sum of the products of widths. */
static inline size_t fixed_tree_rows(const struct draft_settings *s)
{
    size_t rows = 0, level = 1;
    for (size_t i = 0; i < s->n_width; i++)
        rows += level *= s->width[i];
    return rows;
}
/* The width at a depth; below the last one passes continue with one candidate. */
static inline size_t fixed_tree_width(const struct draft_settings *s, size_t depth)
{
    return depth < s->n_width ? s->width[depth] : 1;
}
/* The depth that passes of one depth each reach. */
static inline size_t fixed_tree_depth(const struct draft_settings *s)
{
    return MAX(s->n_width, (size_t)MAX(s->draft_passes, 0));
}
/* The candidates of so many passes that each continue at most `beam` nodes. */
static inline size_t fixed_tree_beam(const struct draft_settings *s, size_t passes, size_t beam)
{
    size_t rows = 0, nodes = 1;
    for (size_t i = 0; i < passes; i++)
        rows += nodes = MIN(nodes, beam) * fixed_tree_width(s, i);
    return rows;
}
