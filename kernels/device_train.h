/* What training needs of a GPU besides a pass: products of any shape, and the steps between them. On the queue of the device, its memory, errors as
 * device.h has them. cu_train.cu has the steps, products are cuBLAS's (libcublas.so.13 or .12, looked for when running); on the emulated device
 * a plain product in its place. Only for devices without host_memory.
 *
 * Operands of products are bf16, sums and results float. Sums over rows are in an order that the sizes fix; cuBLAS promises the same bits again
 * for the same version, GPU and sizes. */
#pragma once
#include "kernels/device.h"

/* 0, or -1 and why: there is no cuBLAS. Before the first product; again is fine. */
int device_train_open(struct device *, char *why, size_t why_size);

/* Row-major: c float [m][n] = (add ? c : 0) + op(a) op(b). a is [m][k], or with a_t [k][m]; b is [k][n], or with b_t [n][k]. */
struct device_gemm { float *c; const void *a, *b; size_t m, n, k; bool a_t, b_t, add; };
void device_gemm(struct device *, const struct device_gemm *);

/* dx = (add ? dx : 0) + the gradient of rmsnorm(x) w with respect to x, for dy * weight; dw += that with respect to w. All [rows][dim] float;
 * scale: [rows] of work space. */
struct device_norm_back { float *dx, *dw; const float *dy, *x, *w; float *scale; size_t rows, dim; float eps,
                          weight; bool add; };
void device_norm_back(struct device *, const struct device_norm_back *);

/* loss[r] of logits [rows][vocab] against target[r] (the device's; -1: none, and no gradient), g bf16 [rows][vocab] its gradient, or NULL. */
void device_xent(struct device *, struct xent *loss, void *g, const float *logits, const int32_t *target,
                 size_t rows, size_t vocab);

/* The sum of squares of n numbers. Waits. part: device_squares_bytes of the device. NAN with an error of the device. */
size_t device_squares_bytes(size_t n);
double device_squares(struct device *, const float *g, size_t n, double *part);
/* One step; the first n_matrix decay by a->keep and are rounded to w16; g becomes 0. */
void device_adamw(struct device *, float *w, float *m, float *v, float *g, void *w16, size_t n,
                  size_t n_matrix, const struct adamw *a);
