/* Layers of trained drafters on the CPU, forward and backward: linear maps, rotations, attention of a window.
 *
 * Weights, activations and gradients are floats; operands of products have the type of --compute (`act`).
 * Every sum has a fixed order, so results do not depend on the number of threads. A gradient is added to its
 * array unless stated otherwise. Memory is the caller's. */
#pragma once
#include "src/model/model.h"

/* y = x w + b with w [n][k] at params[at] and b [n] at params[bias]; bias LINEAR_NO_BIAS: none. */
#define LINEAR_NO_BIAS SIZE_MAX
struct linear {
    size_t n, k, at, bias;
    struct mat w, back;                  /* packed for the two directions; the caller gives their memory */
};

/* Takes n * k parameters from *at on for a map without a bias. */
struct linear linear_at(size_t n, size_t k, size_t *at);
/* Assigns the memory of l->w and l->back at mem + at, and returns the end; mem NULL: only counts. */
size_t linear_assign(struct linear *l, enum dtype act, char *mem, size_t at);
/* Assigns n buffers at mem + at and returns the end; mem NULL: sets them to NULL and counts. slot: of a
 * pointer. */
struct buffer { void *slot; size_t bytes; };
size_t buffers_assign(const struct buffer *b, size_t n, char *mem, size_t at);

/* What the layers of one window share. */
struct layers {
    const struct model *m;
    const float *params; float *grad;    /* [n_params] */
    size_t rows;                         /* of the window */
    /* scratch: act [rows][widest], act [widest][rows], and a matrix of `rows` columns and `widest` outputs */
    void *dy, *dy_t, *x_back;
    size_t x_back_bytes;
};
/* Assigns the scratch for at most `rows` rows and maps of at most `widest` inputs and outputs. */
size_t layers_assign(struct layers *t, size_t rows, size_t widest, char *mem, size_t at);
/* linear_update of n maps, shared among the pool's threads. */
void linears_update(const struct layers *t, struct linear *const *l, size_t n, const float *params);

/* Packs l->w and l->back from the parameters. */
void linear_update(const struct linear *l, const float *params);
/* y [rows][n] = (add ? y : 0) + x w + b; x act [rows][k]. */
void linear_forward(const struct layers *t, const struct linear *l, float *y, const void *x, bool add);
/* From dy [rows][n] and x: the gradients of w and b, and dx [rows][k] = (add ? dx : 0) + dy w. dx may be
 * NULL. */
void linear_backward(const struct layers *t, const struct linear *l, const float *dy, const void *x,
                     float *dx, bool add);

/* y [rows][dim] = act(RMSNorm(x; gain at params[at])), and its gradient: dx += .., gain's gradient. */
void norm_forward(const struct layers *t, void *y, const float *x, size_t dim, size_t at);
void norm_backward(const struct layers *t, float *dx, const float *dy, const float *x, size_t dim, size_t at);

/* Rotates heads of x [rows][ldx] in place; cos, sin [rows][head_dim / 2]. back: by the negative angles. */
void rotate(const struct layers *t, float *x, size_t ldx, size_t heads, const float *cos, const float *sin,
            bool back);

/* Attention of a window: query r sees keys lo(r) .. hi(r)-1 with hi = r + 1 - min(offset, r + 1) and lo =
 * hi - window; window 0: 0. Without a visible key the output is 0. The scale is 1/sqrt(head_dim). */
struct attention {
    size_t heads, kv_heads, head_dim, offset, window;
    const float *q; size_t ldq;          /* [rows][ldq], heads * head_dim of it; rotated */
    const float *k, *v;                  /* [kv_heads][rows][head_dim] */
    float *out;                          /* [rows][heads * head_dim] */
    /* of attention_backward: the gradient of `out`; gradients of q (written, ldq), k and v (written). */
    const float *dout;
    float *dq, *dk, *dv;                 /* dk NULL: neither dk nor dv is wanted */
    char *scratch; size_t scratch_bytes; /* attention_bytes for the pool's threads */
};
size_t attention_bytes(const struct model *m, const struct attention *a, size_t rows);
void attention_forward(const struct layers *t, const struct attention *a);
void attention_backward(const struct layers *t, const struct attention *a);
