/* A round of one text: what was drafted, how far the tree has grown, what was accepted, and what it took. */
#pragma once
#include "src/decode/tree.h"
#include "src/sample/device_sampler.h"

struct round {
    struct tree *tree;
    /* ---- while it drafts ---- */
    /* text drafters propose unlikely candidates too, so that their acceptance rates are learned */
    bool probe;
    float min_reach;                 /* candidates less likely than this would be trimmed anyway */
    size_t passes;                   /* draft passes so far */
    uint32_t pass_node;              /* that the last pass continued */
    float next_reach;                /* of the likeliest node that a further pass would continue; 0: none */
    /* candidates of the nodes that were ranked last, `each` of them a node */
    struct {
        struct candidate best[DEVICE_SAMPLER_RANKS * RANK_MAX];
        size_t found[DEVICE_SAMPLER_RANKS], each;
    } ranking;
    /* of the verification pass: the device's [kept nodes][vocab], in the buffers */
    float *logits;
    /* what was accepted: indices into tree->kept, the root first, one for each new token; the last of them */
    uint32_t path[TREE_DEPTH_MAX + 1];
    int32_t bonus;
    bool failed; struct err why;     /* it failed for this text alone */
    /* ---- the record: decode_add_stats adds it to those of the text ---- */
    size_t tokens;                   /* made by the round: accepted + 1 */
    /* verified nodes with the root; candidates in the pool */
    size_t rows, drafted;
    size_t drafted_depth;            /* of the deepest verified candidate */
    /* depth d >= 1: 1 when a node of depth d-1 was accepted and had verified children */
    size_t n_reached[TREE_DEPTH_MAX + 1];
    /* by source; a shared candidate counts for each of its sources */
    size_t source_drafted[N_DRAFTERS];
    unsigned path_sources[TREE_DEPTH_MAX];   /* of each accepted candidate, in order */
    /* accepted candidates from the first on that one 4-gram chain covers (TokenSwift eq. 6) */
    size_t ngram_covers;
    size_t refreshes;                /* selections of keys for the caches of draft passes */
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
