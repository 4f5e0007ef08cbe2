/* Layers on a GPU (layers_impl.h): calls of device_train.h. Products are by cuBLAS, with bf16 operands.
 * struct layers_gpu has the arrays that only a GPU needs. */
#include "src/lab/train/layers_impl.h"

#include <stdlib.h>

#include "kernels/cuda/device_train.h"

struct layers_gpu {
    struct device *dev;
    float *p;                            /* weights, gradient, moments: [4][n_params] */
    void *w16;                           /* bf16 [n_params]: the products' copy of the matrices */
    float *scale;                        /* [rows], scratch */
    int32_t *target; struct xent *loss;  /* [lm_rows] */
    double *part;
};

struct layers_gpu *layers_gpu_new(const struct model *m)
{
    struct layers_gpu *o = calloc(1, sizeof *o);
    if (o)
        o->dev = m->dev;
    return o;
}

int layers_gpu_open(struct layers *l, struct err *e)
{
    char why[512];
    return device_train_open(l->gpu->dev, why, sizeof why)
               ? err_set(e, ERR_INPUT, "%s: %s", l->gpu->dev->name, why) : 0;
}

void layers_gpu_close(struct layers *l)
{
    free(l->gpu);
    l->gpu = NULL;
}

void layers_gpu_take(struct layers *l, struct arena *a)
{
    struct layers_gpu *o = l->gpu;
    TAKE(a, { &o->p, 4 * l->n_params * sizeof(float) }, { &o->w16, l->n_params * 2 },
         { &o->scale, l->rows_max * sizeof(float) }, { &o->target, l->lm_rows * sizeof *o->target },
         { &o->loss, l->lm_rows * sizeof *o->loss }, { &o->part, device_squares_bytes(l->n_params) });
    l->params = o->p;
    l->grad = o->p + (a->mem ? l->n_params : 0);
}

/* ---- the optimiser ---- */

void layers_gpu_update(const struct layers *l, const float *w)
{
    const struct layers_gpu *o = l->gpu;
    const size_t n = l->n_params;
    o->dev->upload(o->dev, o->p, w, 4 * n * sizeof *w);
    o->dev->zero(o->dev, l->grad, n * sizeof *w);
    o->dev->narrow(o->dev, o->w16, o->p, n);
}

int layers_gpu_fetch(const struct layers *l, float *w, struct err *e)
{
    const struct layers_gpu *o = l->gpu;
    if (o->dev->download(o->dev, w, o->p, 4 * l->n_params * sizeof *w))
        return err_set(e, ERR_FAILED, "%s: %s", o->dev->name, o->dev->error);
    return 0;
}

double layers_gpu_squares(const struct layers *l)
{
    return device_squares(l->gpu->dev, l->grad, l->n_params, l->gpu->part);
}

void layers_gpu_adamw(const struct layers *l, size_t n_matrix, const struct adamw *a)
{
    const struct layers_gpu *o = l->gpu;
    const size_t n = l->n_params;
    device_adamw(o->dev, &(struct device_weights){ o->p, o->p + 2 * n, o->p + 3 * n, l->grad, o->w16, n,
                                                   n_matrix }, a);
}

/* ---- operations ---- */

static const void *matrix(const struct layers *l, const struct linear *w)
{
    return (const char *)l->gpu->w16 + w->at * 2;
}

void gpu_linear_forward(const struct layers *l, const struct linear *w, float *y, const void *x, bool add)
{
    assert(w->bias == LINEAR_NO_BIAS);
    device_gemm(l->gpu->dev, &(struct device_gemm){ .c = y, .a = x, .b = matrix(l, w), .m = l->rows,
                                                    .n = w->n, .k = w->k, .b_t = true, .add = add });
}

void gpu_linear_backward(const struct layers *l, const struct linear *w, const float *dy, const void *x,
                         float *dx, bool add)
{
    struct device *dev = l->gpu->dev;
    dev->narrow(dev, l->dy, dy, l->rows * w->n);
    device_gemm(dev, &(struct device_gemm){ .c = l->grad + w->at, .a = l->dy, .b = x, .m = w->n, .n = w->k,
                                            .k = l->rows, .a_t = true, .add = true });
    if (dx)
        device_gemm(dev, &(struct device_gemm){ .c = dx, .a = l->dy, .b = matrix(l, w), .m = l->rows,
                                                .n = w->k, .k = w->n, .add = add });
}

void gpu_norm_forward(const struct layers *l, void *y, const float *x, size_t at)
{
    struct device *dev = l->gpu->dev;
    dev->rmsnorm(dev, y, x, l->params + at, l->rows, l->d, (float)l->m->config.rms_eps, SIZE_MAX);
}

void gpu_norm_backward(const struct layers *l, float *dx, const float *dy, const float *x, size_t at,
                       float weight, bool add)
{
    device_norm_back(l->gpu->dev, &(struct device_norm_back){
        .dx = dx, .dw = l->grad + at, .dy = dy, .x = x, .w = l->params + at, .scale = l->gpu->scale,
        .rows = l->rows, .dim = l->d, .eps = (float)l->m->config.rms_eps, .weight = weight, .add = add });
}

/* ---- the LM head and losses ---- */

void gpu_lm_forward(const struct layers *l, const void *x, size_t n)
{
    device_gemm(l->gpu->dev, &(struct device_gemm){ .c = l->logits, .a = x, .b = l->back->mat.w, .m = n,
                                                    .n = l->vocab, .k = l->d, .b_t = true });
}

void gpu_lm_backward(const struct layers *l, float *dx, size_t n)
{
    device_gemm(l->gpu->dev, &(struct device_gemm){ .c = dx, .a = l->g, .b = l->back->mat.w, .m = n,
                                                    .n = l->d, .k = l->vocab });
}

void gpu_lm_xent(const struct layers *l, size_t n, bool gradient)
{
    const struct layers_gpu *o = l->gpu;
    o->dev->upload(o->dev, o->target, l->target, n * sizeof *o->target);
    device_xent(o->dev, o->loss, gradient ? l->g : NULL, l->logits, o->target, n, l->vocab);
}

const struct xent *gpu_lm_losses(const struct layers *l, size_t n)
{
    const struct layers_gpu *o = l->gpu;
    return o->dev->download(o->dev, l->loss, o->loss, n * sizeof *o->loss) ? NULL : l->loss;
}
