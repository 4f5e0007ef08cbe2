/* What runs the kernels of cu_args.h: the CUDA driver (cuda.c) or the emulation (emulated.c), below kernels/device_gpu.c. One queue;
 * functions that return int return -1 with one line in `error`,
 * without the name, after which nothing more is launched. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cu_args.h"

struct device;

/* Raised when a kernel's definition of its result changes: tile sizes, orders of sums. */
#define GPU_NUMERICS_VERSION 1
struct gpu_piece { void *dst; const void *src; size_t bytes; };
struct gpu_launch { enum cu_kernel kernel; const void *args; unsigned grid[3], block; size_t shared_bytes; };
/* Products of training as BLAS has them: column-major, c float [m x n] = op(a) op(b) + (add ? c : 0), op(a) [m x k], op(b) [k x n], bf16; a_t: a is
 * [k x m]. Columns begin ld elements after each other. */
struct gpu_gemm { float *c; const void *a, *b; size_t m, n, k, lda, ldb, ldc; bool a_t, b_t, add; };
struct gpu_driver {
    const char *kind;
    char name[128], numerics[32], error[512];
    size_t graph_bytes;                                              /* as struct device has it */
    void  (*close)(struct gpu_driver *);
    void *(*alloc)(struct gpu_driver *, size_t bytes);               /* zeroed; NULL when there is none */
    void  (*free)(struct gpu_driver *, void *p);
    size_t (*bytes_free)(struct gpu_driver *);
    int   (*upload)(struct gpu_driver *, void *dst, const void *src, size_t bytes);
    /* waits, once for all */
    int   (*download)(struct gpu_driver *, const struct gpu_piece *, size_t n);
    int   (*copy)(struct gpu_driver *, void *dst, const void *src, size_t bytes);
    int   (*zero)(struct gpu_driver *, void *dst, size_t bytes);
    int   (*fetch_mark)(struct gpu_driver *);                        /* these two as struct device has them */
    int   (*fetch)(struct gpu_driver *, void *dst, const void *src, size_t bytes, char *why, size_t why_size);
    int   (*launch)(struct gpu_driver *, const struct gpu_launch *);
    /* before the first gemm; 0, or -1 and why, no `error` */
    int   (*gemm_open)(struct gpu_driver *, char *why, size_t why_size);
    int   (*gemm)(struct gpu_driver *, const struct gpu_gemm *);
    bool  (*graph_begin)(struct gpu_driver *, uint64_t key);         /* true: launched as recorded */
    int   (*graph_end)(struct gpu_driver *);                         /* 0: launched, 1: not, it is to be launched without a graph */
};
/* Takes the driver over. 0, or -1 and why (no memory). */
int gpu_open(struct device **, struct gpu_driver *, char *why, size_t why_size);

/* For device_train.c: the driver below a device of gpu_open; its error kept; a launch, unless there was an error. */
struct gpu_driver *gpu_driver_of(struct device *);
void gpu_check(struct device *, int rc);
void gpu_launch(struct device *, enum cu_kernel kernel, const void *args, size_t x, size_t y, size_t z,
                unsigned block, size_t shared);
