/* A round of one text: what was drafted, how far the tree has grown, what was accepted, and what it took. Its
 * tree stays as it is until the next round: it says which drafters each token came from. */
#pragma once
#include "src/decode/tree.h"
#include "src/sample/device_sampler.h"

enum { BEAM_ROWS_MAX = 65 };         /* of all draft passes of a round */

struct round {
    struct tree *tree;
    /* ---- while it drafts ---- */
    /* text drafters propose unlikely candidates too, so that their acceptance rates are learned */
    bool probe;
    float min_reach;                 /* candidates less likely than this would be trimmed anyway */
    size_t passes;                   /* draft passes so far */
    uint32_t pass_node;              /* that the last pass continued */
    float next_reach;                /* of the likeliest node that a further pass would continue; 0: none */
    /* the rows of a beam's passes so far, their nodes, and the rows of their parents (-1: the root is no
     * row); those of the last pass begin at `from` */
    struct { size_t n, from; uint32_t node[BEAM_ROWS_MAX]; int32_t parent[BEAM_ROWS_MAX]; } beam;
    /* candidates of the nodes that were ranked last, `each` of them a node */
    struct {
        struct candidate best[DEVICE_SAMPLER_RANKS * RANK_MAX];
        size_t found[DEVICE_SAMPLER_RANKS], each;
    } ranking;
    /* of the verification pass: the device's [kept nodes][vocab], in the buffers */
    float *logits;
    /* ---- what came of it ---- */
    size_t tokens;                   /* made by the round: the accepted candidates and the bonus */
    /* the nodes after which they stand, the root first: indices into tree->kept */
    uint32_t path[TREE_DEPTH_MAX + 1];
    int32_t bonus;                   /* the last of the tokens */
    bool failed; struct err why;     /* it failed for this text alone */
    bool selects;                    /* its pass selects keys for the cache of draft passes */
    /* bytes copied from the device to the host, for all texts of the round */
    size_t to_host;
    double expected;                 /* accepted candidates, as estimated before verification */
    /* seconds: of the round; in drafters; in the verification pass; in the planner, of which in passes that
     * it timed */
    double seconds, draft, verify, control, calibrating;
    /* seconds that the planner's costs foresaw for what the round did, without the passes that were only
     * timed; 0: not known */
    double predicted;
    /* estimate: seconds of one token without drafting */
    double plain;
};

/* Node i of the path; i < tokens. */
static inline const struct node *round_node(const struct round *r, size_t i)
{
    return &r->tree->node[r->tree->kept[r->path[i]]];
}
/* The drafters that guessed token i of the round, a bit each; 0 for the bonus. */
static inline unsigned round_sources(const struct round *r, size_t i)
{
    return i + 1 < r->tokens ? round_node(r, i + 1)->sources : 0;
}
