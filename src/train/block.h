/* A decoder block in training, without its attention: norm, projections to queries, keys and values; then the
 * output projection and a gated feed-forward part, each added to the residual.
 *
 *     q, kv = projections of RMSNorm(x)           block_project; the caller rotates and attends
 *     mid = x + o att
 *     y = mid + down (silu(gate n) * up n),       n = RMSNorm(mid); block_finish
 *
 * The rows of a call are [r0, r0 + t->rows) of the block's activations; x, y and gradients point at the first
 * of them. The weights of a model's layer can be copied into the parameters (block_copy). */
#pragma once
#include "src/model/drafter_block.h"
#include "src/train/layers.h"

#define BLOCK_NO_NORM SIZE_MAX
struct block {
    size_t d, q_dim, kv_dim, ff;
    struct linear q, kv, o, gate_up, down;
    size_t norm_attn, norm_mlp;          /* parameters of the gains; norm_attn BLOCK_NO_NORM: none */
    char *xn, *att, *xn2, *h;            /* act [rows]: [d], [q_dim], [d], [ff] */
    float *mid, *gu;                     /* [rows]: [d], [2 ff] */
    /* scratch, which blocks may share */
    float *dn, *d_gu, *d_h;              /* [rows]: [d], [2 ff], [ff] */
};

/* Sets sizes; takes parameters of matrices, then of vectors, from *at on. bias: of q and kv. */
void block_matrices(struct block *b, const struct config *c, size_t *at);
void block_vectors(struct block *b, bool bias, bool norm_attn, size_t *at);
/* Assigns activations and packed matrices for `rows` rows at mem + at, returns the end. */
size_t block_assign(struct block *b, enum dtype act, size_t rows, char *mem, size_t at);
size_t block_scratch_assign(struct block *b, size_t rows, char *mem, size_t at);
enum { BLOCK_LINEARS = 5 };
void block_linears(struct block *b, struct linear **l);
/* Copies the weights of the model's layer. NULL, or what of the layer a block cannot hold. */
const char *block_misfit(const struct model *m, size_t layer);
void block_copy(const struct block *b, const struct model *m, size_t layer, float *params);
/* Matrices N(0, 0.02), those that write to the residual over sqrt(2 layers); gains 1. */
void block_random(const struct block *b, float *params, size_t layers, uint64_t seed);

/* q and kv may be NULL; kv [rows][2 kv_dim]: keys of all heads, then values. */
void block_project(const struct layers *t, const struct block *b, size_t r0, const float *x, float *q,
                   float *kv);
void block_finish(const struct layers *t, const struct block *b, size_t r0, float *y, const float *x,
                  const float *att);
/* dy: the gradient of y on entry, on return that of x without the part through q and kv. datt is written. */
void block_finish_back(const struct layers *t, const struct block *b, size_t r0, float *dy, float *datt);
/* dx += the gradient through q and kv. */
void block_project_back(const struct layers *t, const struct block *b, size_t r0, float *dx, const float *x,
                        const float *dq, const float *dkv);
/* The parameters w of a block, for the drafter's file. */
struct drafter_block_weights block_weights(const struct block *b, const float *w);
