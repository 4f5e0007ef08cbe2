/* The trainer of heads, shared by its two halves: train_heads.c, for the CPU, and train_heads_gpu.c. */
#pragma once
#include "src/train/train_heads.h"

struct on_gpu;                                           /* train_heads_gpu.c */

/* One module. Arrays over heads and rows of a piece have the heads outside: row k * rows + r. */
struct trainer {
    const struct model *m;
    const struct lm_back *back;
    const struct heads *first;                           /* or NULL */
    size_t n, d, rows_max, seed;
    bool chained;
    double seconds[HEADS_TIMES];
    struct on_gpu *gpu;                                  /* NULL: what follows is used */

    struct mat w[HEADS_MAX], w_back[HEADS_MAX];          /* as products need them */
    struct mat x_back;                                   /* [d, rows]: a piece's inputs, for gradients of matrices */
    float *h;                    /* [n][rows][d]: h_1 .. h_n */
    float *dh, *dx, *part;       /* [rows][d] each; [row blocks][d]: gradients of gains */
    float *logits, *dy;          /* [n * rows][vocab], [n * rows][d] */
    char *x, *y, *g, *du,
        *du_t; /* act: [n][rows][d], [n * rows][d], [n * rows][vocab], [rows][d], [d][rows] */
    struct xent *loss;           /* [n * rows] */
    char *mem; size_t bytes;
};

/* Where matrix k and its gains lie among the parameters (weights, gradient or moments). */
static inline float *matrix_of(const struct trainer *t, float *p, size_t k) { return p + k * t->d * t->d; }
static inline float *gain_of(const struct trainer *t, float *p, size_t k, bool out)
{
    return p + t->n * t->d * t->d + (2 * k + out) * t->d;
}
/* Positions of a window that output k is trained on. */
static inline size_t positions(const struct train_window *win, size_t k)
{
    return win->n > 2 + k ? win->n - 2 - k : 0;
}

/* What both halves do alike: random weights; scores of rows [r0, r0 + rows) of a window; the file. */
void train_heads_random(struct module *u);
void train_heads_tally(const struct trainer *t, const struct train_window *win, size_t r0, size_t rows,
                       const struct xent *loss, struct train_score *score);
int  train_heads_save(const struct module *u, const char *path, const char *note, struct err *e);

/* The GPU's half. */
extern const struct module_kind train_heads_gpu_kind;
int    gpu_trainer_open(struct trainer *t, struct err *e);
void   gpu_trainer_close(struct trainer *t);
size_t gpu_trainer_bytes(const struct model *m, size_t n);
int    gpu_lm_open(struct lm_back *b, const struct model *m, struct err *e);
