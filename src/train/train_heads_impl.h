/* The trainer of heads, shared by train_heads.c for the CPU, train_heads_gpu.c, and train_heads_common.c
 * below both. */
#pragma once
#include "src/train/train_heads.h"

struct gpu_trainer;                                           /* train_heads_gpu.c */

/* One module. Arrays over heads and rows of a piece have one block of rows for each head: row k * rows +
 * r. */
struct trainer {
    const struct model *m;
    const struct lm_back *back;
    const struct heads *first;                           /* or NULL */
    size_t n, d, rows_max, seed;
    bool chained;
    double seconds[HEADS_TIMES];
    struct gpu_trainer *gpu;                             /* on the CPU NULL */

    /* The CPU's buffers; act is the type of operands, m->compute. */
    struct mat w[HEADS_MAX], w_back[HEADS_MAX];          /* packed for the products, w_back transposed */
    struct mat x_back;                   /* [d, rows]: the inputs of a piece, for gradients of matrices */
    float *h;                    /* [n][rows][d]: h_1 .. h_n */
    float *dh, *dx, *part;       /* [rows][d] each; [row blocks][d]: gradients of gains */
    float *logits, *dy;          /* [n * rows][vocab], [n * rows][d] */
    char *x, *y, *g;             /* act: [n][rows][d], [n * rows][d], [n * rows][vocab] */
    char *du, *du_t;             /* act: [rows][d], [d][rows] */
    struct xent *loss;           /* [n * rows] */
    char *mem; size_t bytes;
};

/* Matrix k and its gains in an array of parameters: weights, gradient or moments. */
static inline float *matrix_of(const struct trainer *t, float *p, size_t k) { return p + k * t->d * t->d; }
static inline float *gain_of(const struct trainer *t, float *p, size_t k, bool out)
{
    return p + t->n * t->d * t->d + (2 * k + out) * t->d;
}
/* Number of positions of a window that train output k. */
static inline size_t positions(const struct train_window *win, size_t k)
{
    return win->n > 2 + k ? win->n - 2 - k : 0;
}

/* train_heads_common.c */
void train_heads_random(struct module *u);               /* set random first weights */
/* Add the losses of rows [r0, r0 + rows) of a window, [n * rows], to score[n]. */
void train_heads_score(const struct trainer *t, const struct train_window *win, size_t r0, size_t rows,
                       const struct xent *loss, struct train_score *score);
int  train_heads_save(const struct module *u, const char *path, const char *note, struct err *e);

/* train_heads_gpu.c. After a failed gpu_trainer_open, gpu_trainer_close is needed. */
extern const struct module_kind train_heads_gpu_kind;
int    gpu_trainer_open(struct trainer *t, struct err *e);
void   gpu_trainer_close(struct trainer *t);
size_t gpu_trainer_bytes(const struct model *m, size_t n);
int    gpu_lm_open(struct lm_back *b, const struct model *m, struct err *e);
