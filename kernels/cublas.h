/* cuBLAS, looked for when running: products of head training. Nothing of it is needed to build. The caller's CUDA context is current. */
#pragma once
#include "kernels/gpu.h"

struct cublas;
/* 0, or -1 and why (one line: there is none, or it does not start). stream: a CUstream. */
int  cublas_open(struct cublas **b, void *stream, char *why, size_t why_size);
int  cublas_gemm(struct cublas *b, const struct gpu_gemm *g, char *why, size_t why_size);
void cublas_close(struct cublas *b);         /* NULL is fine */
