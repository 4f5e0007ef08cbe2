/* Layers on a GPU, for layers.c and module.c. Products are by cuBLAS, with bf16 operands. Weights, gradient
 * and moments are in the GPU's memory; the host's copy of them is updated for checkpoints and at the end.
 * Errors of the device are kept in device->error, and train.c looks there after each window. */
#pragma once
#include "kernels/cuda/device_train.h"
#include "src/lab/train/layers.h"

/* The arrays that only a GPU needs. */
struct layers_gpu {
    struct device *dev;
    float *p;                            /* weights, gradient, moments: [4][n_params] */
    void *w16;                           /* bf16 [n_params]: the products' copy of the matrices */
    float *scale;                        /* [rows], scratch */
    int32_t *target; struct xent *loss;  /* [lm_rows] */
    double *part;
};

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
