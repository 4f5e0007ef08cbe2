/* cuBLAS, loaded at run time, for the products of head training. The build needs no part of it. The caller's
 * CUDA context is current. */
#pragma once
#include "kernels/cuda/gpu.h"

struct cublas;
/* Returns 0, or -1 with the reason in why (one line: not found, or it does not start). stream: a CUstream. */
int  cublas_open(struct cublas **b, void *stream, char *why, size_t why_size);
int  cublas_gemm(struct cublas *b, const struct gpu_gemm *g, char *why, size_t why_size);
void cublas_close(struct cublas *b);         /* NULL is allowed */
