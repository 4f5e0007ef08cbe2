/* Layers of trained drafters, forward and backward: linear maps, norms, the frozen LM head, losses,
 * rotations, attention of a window.
 *
 * Weights, activations and gradients are floats; operands of products have the type of --compute (`act`).
 * Every sum has a fixed order, so results do not depend on the number of threads. A gradient is added to its
 * array unless stated otherwise.
 *
 * On a GPU, real or emulated, all arrays but `target` and `loss` are in its memory, and operands are bf16.
 * Operations that are marked GPU have a second form for it; the others are the CPU's alone.
 * Gradients equal those of the CPU up to rounding. */
#pragma once
#include <string.h>
#include "src/model/draft_vocab.h"

/* Memory that a layout takes part by part; mem NULL: it only counts. slot: of a pointer, which gets the place
 * of `bytes` bytes. */
struct arena { char *mem; size_t at; };
struct buffer { void *slot; size_t bytes; };
static inline void arena_take(struct arena *a, const struct buffer *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *p = a->mem ? a->mem + a->at : NULL;
        memcpy(b[i].slot, &p, sizeof p);
        a->at += (b[i].bytes + 63) / 64 * 64 + 64;
    }
}
#define TAKE(arena, ...) \
    arena_take(arena, (const struct buffer[]){ __VA_ARGS__ }, \
               sizeof((const struct buffer[]){ __VA_ARGS__ }) / sizeof(struct buffer))

/* The LM head of training, shared by modules: `mat` for gradients, on the host packed transposed. On a GPU it
 * is row-major bf16 and serves both directions. With a short vocabulary it has the rows of these tokens. */
struct lm_back {
    struct mat mat; size_t bytes; struct device *dev;    /* dev NULL: host memory */
    struct draft_vocab *vocab;           /* borrowed; n 0: all tokens */
    int32_t *row;                        /* of a short vocabulary: of each token, or LM_OUTSIDE */
};
enum { LM_NONE = -1, LM_OUTSIDE = -2 };  /* in place of targets: none; one that is never guessed */
/* Gathers the vocabulary; NULL: all tokens. After a failure lm_back_close is allowed, and needed. */
int  lm_back_open(struct lm_back *b, const struct model *m, struct draft_vocab *vocab, struct err *e);
void lm_back_close(struct lm_back *b);
/* n rows of a matrix of `hidden` inputs, those of `row`, or NULL: the first ones: as floats in the host's
 * memory, and as act in the device's. rows or act may be NULL. */
int  layers_mat_read(const struct model *m, const struct mat *mat, const int32_t *row, size_t n, float *rows,
                     char *act, struct err *e);

/* y = x w + b with w [n][k] at params[at] and b [n] at params[bias]; bias LINEAR_NO_BIAS: none. */
#define LINEAR_NO_BIAS SIZE_MAX
struct linear {
    size_t n, k, at, bias;
    struct mat w, back;                  /* packed for the two directions */
};

/* What the layers of one module share. */
enum { LINEARS_MAX = 64 };
struct layers {
    const struct model *m;
    const struct lm_back *back;          /* borrowed */
    size_t d;                            /* m->config.hidden */
    size_t vocab;                        /* outputs of the LM head: all tokens, or a short vocabulary */
    struct layers_gpu *gpu;              /* layers_impl.h; on the CPU NULL */

    /* The module's layout sets these. */
    size_t n_params;
    struct linear *linear[LINEARS_MAX]; size_t n_linears;
    size_t rows_max;                     /* rows of a call */
    size_t lm_rows;                      /* rows of a call of the LM head */
    bool distributions;                  /* `p` and `mixed` are wanted */
    bool threads;                        /* norm_backward runs on the pool */
    size_t attention_bytes;

    /* The module sets these before a window. */
    const float *params; float *grad;    /* [n_params] */
    size_t rows;                         /* of the calls that follow */

    /* The LM head and its losses, [lm_rows] each. */
    float *logits, *p;                   /* [vocab]; the model's distribution */
    char *g;                             /* act [vocab]: the gradient of logits */
    int32_t *target;                     /* the host's: lm_target, or LM_NONE */
    struct xent *loss;                   /* the host's */
    struct mixed *mixed;

    /* scratch: act [rows][widest], act [widest][rows], a matrix of `rows` columns and `widest` outputs;
     * [rows][d]; partial sums of gains; of attention for all threads */
    char *dy, *dy_t, *x_back;
    float *dn, *part;
    char *attention;
};

/* ---- layouts ---- */

/* Takes n parameters and returns the first. */
size_t params_take(struct layers *l, size_t n);
/* Takes the parameters of a map of k inputs and n outputs, or of its bias. */
void linear_take(struct layers *l, struct linear *x, size_t n, size_t k);
void linear_take_bias(struct layers *l, struct linear *x);
/* Takes everything that the layers share, after the module's layout. */
void layers_take(struct layers *l, struct arena *a);

/* ---- operations ---- */

/* Packs all maps from the parameters, on the pool's threads. */
void layers_update(const struct layers *l, const float *params);
/* GPU. to = from, [rows][d]. */
void layers_copy(const struct layers *l, float *to, const float *from);
/* GPU. y [rows][n] = (add ? y : 0) + x w + b. x act [rows][k]. */
void linear_forward(const struct layers *l, const struct linear *w, float *y, const void *x, bool add);
/* GPU. From dy [rows][n] and x: the gradients of w and b, and dx [rows][k] = (add ? dx : 0) + dy w. dx may be
 * NULL. */
void linear_backward(const struct layers *l, const struct linear *w, const float *dy, const void *x,
                     float *dx, bool add);
/* GPU. y [rows][d] = act(RMSNorm(x; gain at params[at])). */
void norm_forward(const struct layers *l, void *y, const float *x, size_t at);
/* GPU. From weight * dy: dx = (add ? dx : 0) + its gradient, and the gain's gradient. dy may be
 * overwritten. */
void norm_backward(const struct layers *l, float *dx, float *dy, const float *x, size_t at, float weight,
                   bool add);

/* The output of the LM head that is a token, or LM_OUTSIDE. */
static inline int32_t lm_target(const struct layers *l, int32_t token)
{
    return l->back->row ? l->back->row[token] : token;
}
/* The frozen LM head over n rows. GPU. logits = LMHead x, x act [n][d]; and dx [n][d] from the gradient g. */
void lm_forward(const struct layers *l, const void *x, size_t n);
void lm_backward(const struct layers *l, float *dx, size_t n);
/* GPU. The cross-entropy of n rows of logits, which it overwrites, against target, and with `gradient` g. A
 * row without a target has neither. lm_losses waits for it and returns l->loss, or NULL after an error of the
 * device. */
void lm_xent(const struct layers *l, size_t n, bool gradient);
const struct xent *lm_losses(const struct layers *l, size_t n);
/* p = softmax(LMHead x): the model's distribution, of a short vocabulary the one among its tokens. */
void lm_distribution(const struct layers *l, const void *x, size_t n);
/* The mixed loss (ops.h) of n rows of logits against the rows of p and target, and with `gradient` g. A row
 * without a target has neither: its mixed is zero. */
void lm_mixed(const struct layers *l, const float *p, size_t n, float omega, bool gradient);

/* Rotates heads of x [rows][ldx] in place; cos, sin [rows][head_dim / 2]. back: by the negative angles. */
void rotate(const struct layers *l, float *x, size_t ldx, size_t heads, const float *cos, const float *sin,
            bool back);

/* Attention of a window: query r sees keys lo(r) .. hi(r)-1 with hi = r + 1 - min(offset, r + 1) and lo =
 * hi - window; window 0: 0. Without a visible key the output is 0. The scale is 1/sqrt(head_dim). */
struct attention {
    size_t heads, kv_heads, head_dim, offset, window;
    const float *q, *k, *v;              /* [rows][heads * head_dim], rotated; [kv_heads][rows][head_dim] */
    float *out;                          /* [rows][heads * head_dim] */
    /* of attention_backward: the gradients of `out`, and of q, k and v (written). dk NULL: neither dk nor
     * dv is wanted */
    const float *dout;
    float *dq, *dk, *dv;
};
/* In a layout: makes room in l->attention. */
void attention_take(struct layers *l, const struct attention *a);
void attention_forward(const struct layers *l, const struct attention *a);
void attention_backward(const struct layers *l, const struct attention *a);
