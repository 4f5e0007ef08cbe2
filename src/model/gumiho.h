/* Gumiho's drafter (arXiv:2503.10135): a serial transformer of two layers for the first two tokens of a
 * draft, and five heads for the next five. Its tensors, files that hold them, and its passes. The equations
 * are in src/lab/train/train_gumiho.c.
 *
 * A file is a safetensors file with the names of the published checkpoints; q = n_heads * head_dim and kv =
 * n_kv_heads * head_dim:
 *     fc.weight [hidden][2 hidden], fc.bias
 *     layers.{0,1}.self_attn.{q,k,v,o}_proj.weight, layers.{0,1}.mlp.{gate,up,down}_proj.weight
 *     layers.1.input_layernorm.weight, layers.{0,1}.post_attention_layernorm.weight
 *     mlp.{0..4}.{0..5}.linear.{weight,bias}      [hidden][2 hidden] for the first of a head, else
 *                                                 [hidden][hidden]
 * The published embed_tokens.weight is a copy of the model's embedding: longhand neither writes nor reads it.
 *
 * What differs from the published code (drafters.md, C3 and C5):
 *     - its second serial pass lets candidates of one depth see each other: here each sees the committed
 *       pairs and itself;
 *     - its heads read the embedding of the wrong first token for some candidates: here that of the parent;
 *     - its serial part sees all pairs of the text: here the last GUMIHO_WINDOW, more than it was trained on,
 *       so that memory, snapshots and passes of a long text have a bound;
 *     - its full-tree attention is left out: it is not exact, and its exact form gains nothing (C4). */
#pragma once
#include "src/model/drafter_block.h"

enum { GUMIHO_LAYERS = 2, GUMIHO_HEADS = 5, GUMIHO_LINEARS = 6, GUMIHO_WINDOW = 2048 };

/* Rows of a serial pass, or inputs of the LM head after the heads; branches of a pass of all heads. */
enum { GUMIHO_ROWS = 64, GUMIHO_BRANCHES = GUMIHO_ROWS / GUMIHO_HEADS };

struct gumiho {                          /* {0} is closed */
    struct drafter_file file;
    struct mat fc;
    float *fc_bias;
    struct drafter_block layer[GUMIHO_LAYERS];
    struct { struct mat w; float *bias; } head[GUMIHO_HEADS][GUMIHO_LINEARS];
    struct gumiho_buffers *buffers;      /* of a pass of GUMIHO_ROWS rows */
};
extern const struct drafter_kind gumiho_kind;

/* The rows of one text in a serial pass. Row i is the pair of a state, [hidden], and the token after it.
 * Pair p of a text has the model's hidden state after the final norm at position p, and token p + 1; slot s
 * of the drafter's own cache, of GUMIHO_LAYERS layers, holds pair first + s.
 *     candidates false   the rows continue the committed pairs, and are committed after the pass
 *     candidates true    each row is another pair after the committed ones; the states are drafted */
struct gumiho_seq {
    struct kv *own; size_t first, n;
    const int32_t *token;
    const float *state; size_t step;     /* floats from a row's state to the next row's; 0: one for all */
    bool candidates;
    /* the drafted states of all rows, [n][hidden] (candidates), or of the last row; NULL: none is wanted */
    float *out;
};
/* One pass of at most GUMIHO_ROWS rows. logits: [..][vocab] of the rows that `out` gets, by `head`, an LM
 * head of the model; NULL: none. -1: a logit is not finite. */
int gumiho_serial(struct gumiho *g, const struct mat *head, const struct gumiho_seq *seq, size_t n_seqs,
                  float *logits);
/* A path of two candidates: the states before them and their tokens. */
struct gumiho_branch { const float *state[2]; int32_t token[2]; };
/* Logits of the first n_heads heads for n <= GUMIHO_BRANCHES branches: [n][n_heads][vocab]. -1: one is not
 * finite. */
int gumiho_heads(struct gumiho *g, const struct mat *head, const struct gumiho_branch *branch, size_t n,
                 size_t n_heads, float *logits);
