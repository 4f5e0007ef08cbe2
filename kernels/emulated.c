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
#include "kernels/cu_train.cu"

#define X(name, args) static void run_##name(const void *a) { struct cu_##args args_; memcpy(&args_, a, sizeof args_); kernel_##name(args_); }
CU_KERNELS(X)
#undef X
#define X(name, args) run_##name,
static void (*const run_[])(const void *) = { CU_KERNELS(X) };
#undef X

/* For tests of errors: LONGHAND_EMULATED_FAIL=N, the N-th call of a device (counted from 1; allocations are not counted) fails, and all behind it, as after an
 * error of CUDA; LONGHAND_EMULATED_MEMORY=BYTES is all that it has. */
struct emulated { struct gpu_driver d; size_t calls, fails_at, memory, used; };
enum { HEAD = 256 };                             /* before each allocation: its size */

static size_t number_from(const char *name, size_t otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 10) : otherwise;
}

static int call(struct gpu_driver *d, const char *what)
{
    struct emulated *m = (struct emulated *)d;
    if (++m->calls < m->fails_at)
        return 0;
    if (!*d->error)
        snprintf(d->error, sizeof d->error, "%s: LONGHAND_EMULATED_FAIL, call %zu", what, m->calls);
    return -1;
}

static void emulated_close(struct gpu_driver *d) { free(d); }
static void *emulated_alloc(struct gpu_driver *d, size_t bytes)
{
    struct emulated *m = (struct emulated *)d;
    const size_t all = (bytes + 255) / 256 * 256;
    if (all < bytes || all > m->memory - m->used)
        return NULL;
    char *p = aligned_alloc(256, all + HEAD);
    if (!p)
        return NULL;
    m->used += all;
    memcpy(p, &all, sizeof all);
    return memset(p + HEAD, 0, all);
}
static void emulated_free(struct gpu_driver *d, void *p)
{
    struct emulated *m = (struct emulated *)d;
    size_t all;
    memcpy(&all, (char *)p - HEAD, sizeof all);
    m->used -= all;
    free((char *)p - HEAD);
}
static size_t emulated_bytes_free(struct gpu_driver *d) { return ((struct emulated *)d)->memory - ((struct emulated *)d)->used; }
static int copy(void *dst, const void *src, size_t bytes)
{
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}
static int emulated_upload(struct gpu_driver *d, void *dst, const void *src, size_t bytes) { return call(d, "upload") || copy(dst, src, bytes); }
static int emulated_download(struct gpu_driver *d, const struct gpu_piece *p, size_t n)
{
    if (call(d, "download"))
        return -1;
    for (size_t i = 0; i < n; i++)
        copy(p[i].dst, p[i].src, p[i].bytes);
    return 0;
}
static int emulated_copy(struct gpu_driver *d, void *dst, const void *src, size_t bytes) { return call(d, "copy") || copy(dst, src, bytes); }
static int emulated_zero(struct gpu_driver *d, void *dst, size_t bytes)
{
    if (call(d, "zero"))
        return -1;
    memset(dst, 0, bytes);
    return 0;
}
static int emulated_fetch_mark(struct gpu_driver *d) { (void)d; return 0; }
static int emulated_fetch(struct gpu_driver *d, void *dst, const void *src, size_t bytes, char *why, size_t why_size)
{
    (void)d, (void)why, (void)why_size;
    return copy(dst, src, bytes);
}
#define X(name, args) #name,
static const char *const kernel_name[] = { CU_KERNELS(X) };
#undef X
static int emulated_launch(struct gpu_driver *d, const struct gpu_launch *l)
{
    if (call(d, kernel_name[l->kernel]))
        return -1;
    emulate_launch(run_[l->kernel], l->args, l->grid, l->block, l->shared_bytes);
    return 0;
}
static int emulated_gemm_open(struct gpu_driver *d, char *why, size_t why_size) { (void)d, (void)why, (void)why_size; return 0; }

/* In the place of cuBLAS: what column-major, transposed and leading dimensions mean, term by term. */
static int emulated_gemm(struct gpu_driver *d, const struct gpu_gemm *g)
{
    const uint16_t *a = g->a, *b = g->b;
    float *left = call(d, "gemm") ? NULL : malloc((g->m * g->k + 1) * sizeof *left);      /* op(a), column after column */
    if (!left) {
        if (!*d->error)
            snprintf(d->error, sizeof d->error, "out of memory for a product");
        return -1;
    }
    for (size_t p = 0; p < g->k; p++)
        for (size_t i = 0; i < g->m; i++)
            left[p * g->m + i] = bf16_to_f32(g->a_t ? a[p + i * g->lda] : a[i + p * g->lda]);
    for (size_t j = 0; j < g->n; j++) {
        float *c = g->c + j * g->ldc;
        for (size_t i = 0; i < g->m && !g->add; i++)
            c[i] = 0;
        for (size_t p = 0; p < g->k; p++) {
            const float x = bf16_to_f32(g->b_t ? b[j + p * g->ldb] : b[p + j * g->ldb]);
            for (size_t i = 0; i < g->m; i++)
                c[i] += left[p * g->m + i] * x;
        }
    }
    free(left);
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
    struct emulated *m = calloc(1, sizeof *m);
    if (!m) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    m->fails_at = number_from("LONGHAND_EMULATED_FAIL", SIZE_MAX);
    m->memory = number_from("LONGHAND_EMULATED_MEMORY", SIZE_MAX / 2);
    m->d = (struct gpu_driver){ .kind = "emulated", .name = "emulated GPU", .numerics = "emulated-1", .close = emulated_close,
        .alloc = emulated_alloc, .free = emulated_free, .bytes_free = emulated_bytes_free, .upload = emulated_upload, .download = emulated_download,
        .copy = emulated_copy, .zero = emulated_zero, .fetch_mark = emulated_fetch_mark, .fetch = emulated_fetch, .launch = emulated_launch,
        .gemm_open = emulated_gemm_open, .gemm = emulated_gemm, .graph_begin = emulated_graph_begin, .graph_end = emulated_graph_end };
    return gpu_open(out, &m->d, why, why_size);
#endif
}
