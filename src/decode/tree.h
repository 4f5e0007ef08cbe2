/* The candidates of one round: a token tree. Node 0 is the root, the last token of the text. Every other node
 * is a candidate for the token after its parent. Equal prefixes share nodes, whichever drafter proposed them.
 * The pool holds all proposed nodes. The verification pass checks the kept nodes, a set closed under
 * ancestors. */
#pragma once
#include "src/base/base.h"
#include "src/decode/drafters.h"

enum {
    TREE_POOL_MAX = 2048,            /* candidates of a round, the root among them */
    TREE_ROWS_MAX = 1024,            /* kept nodes: the paper's widest, [1,9,9,9] and 20 chains, has 900 */
    TREE_DEPTH_MAX = 32,
    TREE_CHAINS_MAX = 1024,          /* candidate rows of the published verifier */
};

struct node {
    int32_t token;
    uint32_t parent, depth;          /* the root has 0 and 0 */
    uint32_t first, next;            /* first child, next sibling; 0: none */
    uint32_t sources;                /* bit per enum drafter */
    int32_t row;                     /* after tree_keep: its index in kept[]; -1: not kept */
    /* estimated chance that the target samples this token after the parent */
    float p;
    /* product of p down from the root: the chance that the node is accepted */
    float reach;
    /* per source, valid where its bit is set: the calibration cell of its estimate (calibrate.h) */
    uint16_t cell[N_DRAFTERS];
};

struct tree {
    size_t n;                        /* nodes of the pool */
    size_t max_depth;                /* the text ends there: deeper candidates are rejected */
    struct node node[TREE_POOL_MAX];
    /* kept[i] ascends, kept[0] == 0; kept_parent[i] is an index into kept[], -1 for the root */
    size_t n_kept;
    uint32_t kept[TREE_ROWS_MAX];
    int32_t kept_parent[TREE_ROWS_MAX], kept_token[TREE_ROWS_MAX];
    /* for the published verifier: candidate rows as proposed, each named by its last node */
    size_t n_chains;
    uint32_t chain[TREE_CHAINS_MAX];
};

void tree_start(struct tree *t, int32_t root, size_t max_depth);

/* The child of `parent` that carries `token`, 0: none. */
uint32_t tree_child(const struct tree *t, uint32_t parent, int32_t token);
/* The likeliest child, 0: none. */
uint32_t tree_best_child(const struct tree *t, uint32_t parent);

/* Proposes `token` after `parent` with chance p, clamped to [0, 1]; of several proposals the largest chance
 * counts. Returns the node, or 0 when the pool is full or the node would be too deep. */
uint32_t tree_add(struct tree *t, uint32_t parent, int32_t token, enum drafter source, float p,
                  uint16_t cell);

/* A candidate row ends at `node`. */
void tree_chain(struct tree *t, uint32_t node);

/* Keeps the root and the `rows` - 1 nodes of the largest reach; of equal nodes the one proposed first. The
 * set is closed under ancestors because reach never grows downwards. */
void tree_keep(struct tree *t, size_t rows);

/* Writes the reach of all candidates into `reach`, largest first, and returns their number, n - 1. */
size_t tree_reaches(const struct tree *t, float *reach);

/* Writes the tokens from below the root down to `node` into path[0..depth). */
void tree_path(const struct tree *t, uint32_t node, int32_t *path);

/* Whether every kept node's parent is the kept node before it. */
bool tree_is_chain(const struct tree *t);
