/* Parts of decoder blocks in training. Each adds to the residual:
 *
 *     q, kv = projections of RMSNorm(x);  y = x + o att        struct projections; the caller attends
 *     y = x + SelfAttention(RMSNorm(x)), or cross-attention    struct attend
 *     y = x + down (silu(gate n) * up n), n = RMSNorm(x)       struct mlp
 *
 * The rows of a call are [r0, r0 + l->rows) of a part's activations; x, y and gradients point at the first of
 * them. The weights of a model's layer can be copied into the parameters (block_copy). */
#pragma once
#include "src/model/drafter_block.h"
#include "src/lab/train/layers.h"

#define NO_NORM SIZE_MAX
struct projections {
    struct linear q, kv, o;              /* kv.n 0: keys and values come from elsewhere */
    size_t norm;                         /* parameters of the gain; NO_NORM: none */
    char *xn, *att;                      /* act [rows]: [d], [q_dim] */
};
struct mlp {
    size_t norm;
    struct linear gate_up, down;
    char *xn, *h;                        /* act [rows]: [d], [ff] */
    float *gu, *d_gu, *d_h;              /* [rows]: [2 ff], [2 ff], [ff] */
};
struct attend {
    struct projections p;
    struct attention a;                  /* its arrays but k and v of cross-attention are attend_take's */
    float *q, *kv, *k, *v, *dout;
};

/* ---- layouts: parameters, then memory for l->rows_max rows ---- */

void projections_take_matrices(struct layers *l, struct projections *p, bool kv);
void mlp_take_matrices(struct layers *l, struct mlp *f);
void projections_take(const struct layers *l, struct projections *p, struct arena *a);
void attend_take(struct layers *l, struct attend *t, struct arena *a);
void mlp_take(const struct layers *l, struct mlp *f, struct arena *a);

/* ---- weights of a block: projections with keys, and an MLP ---- */

/* NULL, or what of the layer a block cannot hold. */
const char *block_misfit(const struct model *m, size_t layer);
int  block_copy(const struct projections *p, const struct mlp *f, const struct model *m, size_t layer,
                float *w, struct err *e);
/* Matrices N(0, 0.02), those that write to the residual over sqrt(2 layers); gains 1. */
void block_random(const struct projections *p, const struct mlp *f, float *w, size_t layers, uint64_t seed);
void linear_scale(const struct linear *x, float *w, float by);
/* For drafter_write. */
struct drafter_block block_weights(const struct projections *p, const struct mlp *f, float *w);

/* ---- forward and backward ---- */

/* q and kv may be NULL; kv [rows][2 kv_dim]: keys of all heads, then values. */
void project(const struct layers *l, const struct projections *p, size_t r0, const float *x, float *q,
             float *kv);
void project_out(const struct layers *l, const struct projections *p, size_t r0, float *y, const float *x,
                 const float *att);
/* datt: the gradient of att, written, from that of y. That of x is dx += dy, and project_back. */
void project_out_back(const struct layers *l, const struct projections *p, size_t r0, const float *dy,
                      float *datt);
/* dx += the gradient through q and kv; dkv may be NULL. */
void project_back(const struct layers *l, const struct projections *p, size_t r0, float *dx, const float *x,
                  const float *dq, const float *dkv);

/* All rows of a window. dx: the gradient of y on entry, of x on return. */
void attend_forward(const struct layers *l, struct attend *t, float *y, const float *x, const float *cos,
                    const float *sin);
void attend_backward(const struct layers *l, struct attend *t, float *dx, const float *x, const float *cos,
                     const float *sin);
void mlp_forward(const struct layers *l, const struct mlp *f, size_t r0, float *y, const float *x);
void mlp_backward(const struct layers *l, const struct mlp *f, size_t r0, float *dx, const float *x);
