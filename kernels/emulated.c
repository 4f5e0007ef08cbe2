/* The emulated driver: the kernels themselves, compiled as C. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/gpu.h"
#include "kernels/cu_attend.cu"
#include "kernels/cu_cache.cu"
#include "kernels/cu_choose.cu"
#include "kernels/cu_product.cu"
#include "kernels/cu_row.cu"

#define X(name, args) static void run_##name(const void *a) { struct cu_##args args_; memcpy(&args_, a, sizeof args_); kernel_##name(args_); }
CU_KERNELS(X)
#undef X
#define X(name, args) run_##name,
static void (*const run_[])(const void *) = { CU_KERNELS(X) };
#undef X

static void emulated_close(struct gpu_driver *d) { free(d); }
static void *emulated_alloc(struct gpu_driver *d, size_t bytes)
{
    (void)d;
    const size_t all = (bytes + 255) / 256 * 256;
    void *p = all >= bytes ? aligned_alloc(256, all ? all : 256) : NULL;
    return p ? memset(p, 0, all) : NULL;
}
static void emulated_free(struct gpu_driver *d, void *p) { (void)d; free(p); }
static size_t emulated_bytes_free(struct gpu_driver *d) { (void)d; return SIZE_MAX / 2; }
static int emulated_copy(struct gpu_driver *d, void *dst, const void *src, size_t bytes)
{
    (void)d;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}
static int emulated_zero(struct gpu_driver *d, void *dst, size_t bytes) { (void)d; memset(dst, 0, bytes); return 0; }
static int emulated_fetch_mark(struct gpu_driver *d) { (void)d; return 0; }
static int emulated_fetch(struct gpu_driver *d, void *dst, const void *src, size_t bytes, char *why, size_t why_size)
{
    (void)why, (void)why_size;
    return emulated_copy(d, dst, src, bytes);
}
static int emulated_launch(struct gpu_driver *d, const struct gpu_launch *l)
{
    (void)d;
    emulate_launch(run_[l->kernel], l->args, l->grid, l->block, l->shared_bytes);
    return 0;
}
static bool emulated_graph_begin(struct gpu_driver *d, uint64_t key) { (void)d, (void)key; return false; }
static int emulated_graph_end(struct gpu_driver *d) { (void)d; return 0; }

int device_emulated_open(struct device **out, char *why, size_t why_size)
{
#ifdef __SANITIZE_THREAD__
    (void)out;
    snprintf(why, why_size, "the thread sanitizer does not know the fibers of the emulation");
    return -1;
#else
    struct gpu_driver *d = malloc(sizeof *d);
    if (!d) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    *d = (struct gpu_driver){ .kind = "emulated", .name = "emulated GPU", .numerics = "emulated-1", .close = emulated_close,
        .alloc = emulated_alloc, .free = emulated_free, .bytes_free = emulated_bytes_free, .upload = emulated_copy, .download = emulated_copy,
        .copy = emulated_copy, .zero = emulated_zero, .fetch_mark = emulated_fetch_mark, .fetch = emulated_fetch, .launch = emulated_launch, .graph_begin = emulated_graph_begin, .graph_end = emulated_graph_end };
    return gpu_open(out, d, why, why_size);
#endif
}
