/* Weights, gradient and moments of layers on a GPU (layers_impl.h), by calls of device_train.h. */
#include "src/lab/train/layers_impl.h"

#include <stdlib.h>

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
