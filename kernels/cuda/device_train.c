/* Training on a GPU (device_train.h): launches of the kernels of cu_train.cu, and products by the driver's
 * BLAS. It owns no data; start reading at device_train_open. */
#include "kernels/cuda/device_train.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/gpu.h"

_Static_assert(sizeof(struct xent) == sizeof(struct cu_loss) &&
                   offsetof(struct xent, above) == offsetof(struct cu_loss, above),
               "one form of a loss");

#define LAUNCH(d, kernel, args, x, block, shared) gpu_launch(d, kernel, &(args), x, 1, 1, block, shared)

int device_train_open(struct device *d, char *why, size_t why_size)
{
    struct gpu_driver *driver = gpu_driver_of(d);
    return driver->gemm_open(driver, why, why_size);
}

/* BLAS is column-major and sees every matrix as its transpose: c' = op(b)' op(a)'. So b comes first, n comes
 * before m, the leading dimension is the length of a row, and the transpose flags stay as they are. */
void device_gemm(struct device *d, const struct device_gemm *g)
{
    struct gpu_driver *driver = gpu_driver_of(d);
    const struct gpu_gemm t = { g->c, g->b, g->a, g->n, g->m, g->k, g->b_t ? g->k : g->n, g->a_t ? g->m
                                : g->k, g->n, g->b_t, g->a_t, g->add };
    if (g->m && g->n && !*d->error)
        gpu_check(d, driver->gemm(driver, &t));
}

void device_norm_back(struct device *d, const struct device_norm_back *p)
{
    const struct cu_norm_back a = { p->dx, p->dy, p->x, p->w, p->scale, p->eps, p->weight, (uint32_t)p->dim,
                                    p->add };
    const struct cu_gain_back b = { p->dw, p->dy, p->x, p->scale, (uint32_t)p->rows, (uint32_t)p->dim,
                                    p->weight, 0 };
    LAUNCH(d, CU_norm_back, a, p->rows, CU_NORM_THREADS, CU_NORM_THREADS / 32 * sizeof(float));
    LAUNCH(d, CU_gain_back, b, (p->dim + 31) / 32, 256, 256 * sizeof(float));
}

void device_xent(struct device *d, struct xent *loss, void *g, const float *logits, const int32_t *target,
                 size_t rows, size_t vocab)
{
    const struct cu_xent a = { logits, g, target, (struct cu_loss *)(void *)loss, (uint32_t)vocab, 0 };
    assert(vocab <= (size_t)1 << 24);
    LAUNCH(d, CU_xent, a, rows, CU_NORM_THREADS, CU_NORM_THREADS / 32 * sizeof(float));
}

size_t device_squares_bytes(size_t n) { return (n + CU_SQUARES - 1) / CU_SQUARES * sizeof(double); }

double device_squares(struct device *d, const float *g, size_t n, double *part)
{
    const size_t bytes = device_squares_bytes(n), blocks = bytes / sizeof(double);
    const struct cu_squares a = { g, part, n };
    double sum = 0, *host = malloc(bytes + 1);
    LAUNCH(d, CU_squares, a, blocks, 256, 256 * sizeof(double));
    if (!host || d->download(d, host, part, bytes)) {
        free(host);
        return NAN;
    }
    for (size_t i = 0; i < blocks; i++)
        sum += host[i];
    free(host);
    return sum;
}

void device_adamw(struct device *d, const struct device_weights *w, const struct adamw *p)
{
    const struct cu_adamw a = { w->w, w->m, w->v, w->g, w->w16, w->n, w->n_matrix, p->beta1, p->beta2, p->eps,
                                p->scale, p->keep, p->rate, p->root, 0 };
    LAUNCH(d, CU_adamw, a, (w->n + 255) / 256, 256, 0);
}
