/* Training on a GPU: products of any shape and the steps between them. They share the device's queue, memory
 * and errors (device.h). cu_train.cu has the steps. cuBLAS computes the products; libcublas.so.13 or .12 is
 * loaded at run time, and the emulated GPU uses a plain product instead. Only for devices without
 * host_memory.
 *
 * Operands of products are bf16; sums and results are float. The sizes alone fix the order of sums over rows.
 * cuBLAS promises equal bits for the same version, GPU and sizes. */
#pragma once
#include "kernels/device.h"

/* Returns 0, or -1 with the reason in why: cuBLAS is missing. Call it before the first product; further calls
 * do nothing. */
int device_train_open(struct device *, char *why, size_t why_size);

/* Row-major: c float [m][n] = (add ? c : 0) + op(a) op(b). a is [m][k], or [k][m] with a_t; b is [k][n], or
 * [n][k] with b_t. */
struct device_gemm { float *c; const void *a, *b; size_t m, n, k; bool a_t, b_t, add; };
void device_gemm(struct device *, const struct device_gemm *);

/* dx = (add ? dx : 0) + gradient of rmsnorm(x) w with respect to x, for dy * weight; dw += gradient with
 * respect to w. All [rows][dim] float; scale: [rows] of scratch. */
struct device_norm_back { float *dx, *dw; const float *dy, *x, *w; float *scale; size_t rows, dim; float eps,
                          weight; bool add; };
void device_norm_back(struct device *, const struct device_norm_back *);

/* loss[r] of logits [rows][vocab] against target[r] (in the device's memory; -1: no target, no gradient). g:
 * the gradient, bf16 [rows][vocab], or NULL. */
void device_xent(struct device *, struct xent *loss, void *g, const float *logits, const int32_t *target,
                 size_t rows, size_t vocab);

/* Sum of squares of n numbers. Waits. part: device_squares_bytes of the device's memory. NAN after an error
 * of the device. */
size_t device_squares_bytes(size_t n);
double device_squares(struct device *, const float *g, size_t n, double *part);
/* One step of AdamW. The first n_matrix weights decay by a->keep and are rounded to w16. g becomes 0. */
struct device_weights { float *w, *m, *v, *g; void *w16; size_t n, n_matrix; };
void device_adamw(struct device *, const struct device_weights *, const struct adamw *a);
