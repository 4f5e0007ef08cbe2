/* The operations of layers.h on a GPU, for layers.c and module.c. Weights, gradient and moments are in the
 * GPU's memory; the host's copy of them is updated for checkpoints and at the end. Errors of the device are
 * kept in device->error, and train.c looks there after each window. */
#pragma once
#include "src/lab/train/layers.h"

/* For l->gpu; layers_gpu_close frees it. NULL: out of memory. */
struct layers_gpu *layers_gpu_new(const struct model *m);
void   layers_gpu_close(struct layers *l);
/* ERR_INPUT without cuBLAS. */
int    layers_gpu_open(struct layers *l, struct err *e);
void   layers_gpu_take(struct layers *l, struct arena *a);
/* w: the host's weights, gradient and moments, [4][n_params]. Update sets the GPU's gradient to 0. */
void   layers_gpu_update(const struct layers *l, const float *w);
int    layers_gpu_fetch(const struct layers *l, float *w, struct err *e);
/* The sum of squares of the gradient. */
double layers_gpu_squares(const struct layers *l);
/* A step of the optimiser, in which the first n_matrix weights decay by a->keep. It also sets the gradient to
 * 0. */
void   layers_gpu_adamw(const struct layers *l, size_t n_matrix, const struct adamw *a);

void   gpu_linear_forward(const struct layers *l, const struct linear *w, float *y, const void *x, bool add);
void   gpu_linear_backward(const struct layers *l, const struct linear *w, const float *dy, const void *x,
                           float *dx, bool add);
void   gpu_norm_forward(const struct layers *l, void *y, const float *x, size_t at);
void   gpu_norm_backward(const struct layers *l, float *dx, const float *dy, const float *x, size_t at,
                         float weight, bool add);
void   gpu_lm_forward(const struct layers *l, const void *x, size_t n);
void   gpu_lm_backward(const struct layers *l, float *dx, size_t n);
void   gpu_lm_xent(const struct layers *l, size_t n, bool gradient);
const struct xent *gpu_lm_losses(const struct layers *l, size_t n);
