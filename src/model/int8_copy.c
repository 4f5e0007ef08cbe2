/* Owns the 8-bit copy of a 16-bit model, which drafts read: its size, and its making on all threads. Start at
 * model_quantize. */
#include <stdlib.h>
#include <string.h>

#include "src/model/model.h"

enum { QUANTIZE_PANELS = 32 };       /* panels of one work item */

static size_t quantized_bytes(size_t n, size_t k)
{
    return (mat_bytes(&(struct mat){ DT_I8, n, k, NULL }) + 63) / 64 * 64;
}

/* Bytes of the matrices of a layer, or of an expert, whose heads are padded to `padded`. */
static size_t parts_bytes(const struct config *c, const struct layer_part *p, size_t n, size_t head,
                          size_t padded)
{
    size_t bytes = 0;
    for (size_t i = 0, same; i < n; i += same) {
        struct layer_part x[EXPERT_PARTS];
        size_t rows = 0, cols = p[i].form == PART_HEAD_COLUMNS ? p[i].cols / head * padded : p[i].cols;
        same = parts_of_place(p + i, n - i);
        for (size_t j = 0; j < same; j++)
            rows += p[i + j].rows;
        rows = p[i].form == PART_HEADS ? rows / head * padded : rows;
        if (part_is_matrix(&p[i]))
            bytes += quantized_bytes(rows, cols);
        else if (p[i].form >= PART_SHARED)
            bytes += rows * parts_bytes(c, x, expert_parts(x, c, p[i].form == PART_SHARED), 1, 1);
    }
    return bytes;
}

size_t model_quantized_bytes(const struct config *c, const struct device *dev)
{
    struct layer_part p[PARTS_MAX];
    size_t n = quantized_bytes(c->vocab, c->hidden) +
               (c->drafts ? quantized_bytes(c->hidden, 2 * c->hidden) : 0);
    if (c->backbone)
        n += quantized_bytes(c->hidden, 2 * c->backbone) + quantized_bytes(c->backbone, c->hidden);
    for (size_t l = 0; l < c->n_layers; l++) {
        const size_t head = c->layer[l].head_dim, parts = layer_parts(p, c, l);
        n += parts_bytes(c, p, parts, head, dev->head_dim(dev, head));
    }
    return n;
}

struct quantizing { struct mat *to; const struct mat *from; };

static void quantize_item(void *ctx, size_t i, size_t thread)
{
    const struct quantizing *q = ctx;
    (void)thread;
    mat_quantize(q->to, q->from, i * QUANTIZE_PANELS, MIN((i + 1) * QUANTIZE_PANELS, mat_panels(q->from)));
}

void model_quantize_mat(struct mat *to, const struct mat *from, struct pool *pool)
{
    pool_run(pool, (mat_panels(from) + QUANTIZE_PANELS - 1) / QUANTIZE_PANELS, quantize_item,
             &(struct quantizing){ to, from });
}

/* Quantises `from` into memory at *at and advances *at. */
static void quantize(struct mat *to, const struct mat *from, char **at, struct pool *pool)
{
    *to = (struct mat){ DT_I8, from->n, from->k, *at };
    *at += quantized_bytes(from->n, from->k);
    model_quantize_mat(to, from, pool);
}

/* Quantises the matrices of the parts in `from`. Routers keep their floats. */
static void quantize_parts(void *to, const void *from, const struct layer_part *p, size_t n, char **at,
                           struct pool *pool)
{
    for (size_t i = 0; i < n; i += parts_of_place(p + i, n - i)) {
        size_t one;
        if (part_is_matrix(&p[i]))
            quantize(part_matrices(&p[i], to, &one), part_matrices(&p[i], from, &one), at, pool);
    }
}

static void quantize_expert(struct device_expert *to, const struct device_expert *from,
                            const struct config *c, bool shared, char **at, struct pool *pool)
{
    struct layer_part p[EXPERT_PARTS];
    *to = *from;
    quantize_parts(to, from, p, expert_parts(p, c, shared), at, pool);
}

/* Takes the memory of the copy. */
static int begin(struct model *to, const struct model *from, struct err *e)
{
    const struct config *c = &from->config;
    assert(from->dev->host_memory && !from->quantised);
    *to = *from;
    to->mem_bytes = to->weight_bytes = model_quantized_bytes(c, from->dev);
    to->expert_bytes = 0;
    to->borrows_files = true;
    to->mem = from->dev->alloc(from->dev, to->mem_bytes);
    to->layers = calloc(c->n_layers, sizeof *to->layers);
    to->experts = calloc(model_expert_layers(from) * c->n_experts + 1, sizeof *to->experts);
    to->inv_freq = calloc(c->head_dim, sizeof *to->inv_freq);
    if (!to->mem || !to->layers || !to->experts || !to->inv_freq) {
        err_set(e, ERR_FAILED, "%s: out of memory for the draft weights (%zu bytes)", from->path,
                to->mem_bytes);
        model_close(to);
        return -1;
    }
    memcpy(to->inv_freq, from->inv_freq, c->head_dim * sizeof *to->inv_freq);
    to->local_freq = from->local_freq ? to->inv_freq + c->head_dim / 2 : NULL;
    return 0;
}

static void quantize_layer(struct model *to, const struct model *from, size_t l, char **at)
{
    const struct config *c = &from->config;
    const struct layer *y = &from->layers[l];
    struct layer *z = &to->layers[l];
    struct layer_part p[PARTS_MAX];
    *z = *y;
    quantize_parts(z, y, p, layer_parts(p, c, l), at, from->pool);
    if (!c->layer[l].experts)
        return;
    const char *start = *at;
    z->expert = to->experts + (y->expert - from->experts);
    for (size_t k = 0; k < c->n_experts; k++)
        quantize_expert(&z->expert[k], &y->expert[k], c, false, at, from->pool);
    to->expert_bytes += (size_t)(*at - start);
    if (c->shared_ffn)
        quantize_expert(&z->shared, &y->shared, c, true, at, from->pool);
}

int model_quantize(struct model *to, const struct model *from, struct model_quantized *done,
                   model_progress *progress, void *ctx, struct err *e)
{
    struct model_quantized once = {0}, *d = done ? done : &once;
    if (!d->bytes && begin(to, from, e))
        return -1;
    char *at = (char *)to->mem + d->bytes;
    while (d->layers < from->config.n_layers) {
        quantize_layer(to, from, d->layers++, &at);
        d->bytes = (size_t)(at - (char *)to->mem);
        if (progress && !progress(ctx, d->bytes, to->mem_bytes))
            return 1;
    }
    if (!d->whole && from->fuse.w)
        quantize(&to->fuse, &from->fuse, &at, from->pool);
    if (!d->whole && from->project.w)
        quantize(&to->project, &from->project, &at, from->pool);
    if (!d->whole)
        quantize(&to->lm_head, &from->lm_head, &at, from->pool);
    d->whole = true;
    return 0;
}
