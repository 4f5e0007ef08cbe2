/* The driver below device_gpu.c. It runs the kernels of cu_args.h: with CUDA (cuda.c), or compiled as
 * C (tests/emulated). It has one queue. Functions that return int return -1 and set `error` to one line
 * without the device's name; after an error nothing more is launched. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/cu_args.h"

struct device;

/* Raised when the definition of a kernel's result changes: tile sizes, orders of sums. */
#define GPU_NUMERICS_VERSION 2
struct gpu_piece { void *dst; const void *src; size_t bytes; };
struct gpu_launch { enum cu_kernel kernel; const void *args; unsigned grid[3], block; size_t shared_bytes; };
/* A product of training in the form of BLAS: column-major, c float [m x n] = op(a) op(b) + (add ? c : 0),
 * op(a) [m x k], op(b) [k x n], bf16; a_t: a is [k x m]. Columns begin ld elements apart. */
struct gpu_gemm { float *c; const void *a, *b; size_t m, n, k, lda, ldb, ldc; bool a_t, b_t, add; };
struct gpu_driver {
    const char *kind;
    char name[128], numerics[32], id[160], error[512];
    size_t graph_bytes;                                              /* as in struct device */
    void  (*close)(struct gpu_driver *);
    void *(*alloc)(struct gpu_driver *, size_t bytes, bool zeroed);  /* NULL: out of memory */
    void  (*free)(struct gpu_driver *, void *p);
    size_t (*bytes_free)(struct gpu_driver *);
    int   (*upload)(struct gpu_driver *, void *dst, const void *src, size_t bytes);
    /* waits once for all pieces */
    int   (*download)(struct gpu_driver *, const struct gpu_piece *, size_t n);
    int   (*copy)(struct gpu_driver *, void *dst, const void *src, size_t bytes);
    int   (*zero)(struct gpu_driver *, void *dst, size_t bytes);
    int   (*fetch_mark)(struct gpu_driver *);  /* fetch_mark and fetch: as in struct device */
    int   (*fetch)(struct gpu_driver *, void *dst, const void *src, size_t bytes, char *why, size_t why_size);
    int   (*launch)(struct gpu_driver *, const struct gpu_launch *);
    /* Call it before the first gemm. Returns 0, or -1 with the reason in why; does not set `error`. */
    int   (*gemm_open)(struct gpu_driver *, char *why, size_t why_size);
    int   (*gemm)(struct gpu_driver *, const struct gpu_gemm *);
    bool  (*graph_begin)(struct gpu_driver *, uint64_t key);         /* true: launched from a recording */
    /* 0: launched; 1: not launched, the caller launches without a graph */
    int   (*graph_end)(struct gpu_driver *);
};
/* Takes ownership of the driver. Returns 0, or -1 with the reason in why (out of memory). */
int gpu_open(struct device **, struct gpu_driver *, char *why, size_t why_size);

/* For device_train.c: the driver of a device of gpu_open; a check that keeps the driver's error; a launch
 * unless an error occurred. */
struct gpu_driver *gpu_driver_of(struct device *);
void gpu_check(struct device *, int rc);
void gpu_launch(struct device *, enum cu_kernel kernel, const void *args, size_t x, size_t y, size_t z,
                unsigned block, size_t shared);
