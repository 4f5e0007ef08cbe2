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

size_t model_quantized_bytes(const struct config *c, const struct device *dev)
{
    size_t n = quantized_bytes(c->vocab, c->hidden) +
               (c->drafts ? quantized_bytes(c->hidden, 2 * c->hidden) : 0);
    if (c->backbone)
        n += quantized_bytes(c->hidden, 2 * c->backbone) + quantized_bytes(c->backbone, c->hidden);
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer_spec *s = &c->layer[l];
        const bool experts = s->experts;
        const size_t ffn = s->ffn, x = c->expert_ffn, d = dev->head_dim(dev, s->head_dim),
                     o = c->n_heads * d, q = s->gated ? 2 * o : o,
                     kv = s->kv_layer == l ? (s->v_is_k ? 1 : 2) * s->n_kv_heads * d : 0;
        n += quantized_bytes(q + kv, c->hidden) + quantized_bytes(c->hidden, o);
        if (c->per_layer)
            n += quantized_bytes(c->per_layer, c->hidden) + quantized_bytes(c->hidden, c->per_layer);
        if (ffn)
            n += quantized_bytes(2 * ffn, c->hidden) + quantized_bytes(c->hidden, ffn);
        if (experts)
            n += c->n_experts * (quantized_bytes(2 * x, c->hidden) + quantized_bytes(c->hidden, x));
        if (experts && c->shared_ffn)
            n += quantized_bytes(2 * c->shared_ffn, c->hidden) + quantized_bytes(c->hidden, c->shared_ffn);
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

/* Quantizes the n experts of a layer. The router keeps its floats. Returns their bytes. */
static size_t quantize_experts(struct device_expert *to, const struct device_expert *from, size_t n,
                               char **at, struct pool *pool)
{
    const char *start = *at;
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].n_gate_up = 1;
        quantize(&to[i].gate_up[0], &from[i].gate_up[0], at, pool);
        quantize(&to[i].down, &from[i].down, at, pool);
    }
    return (size_t)(*at - start);
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
    *z = *y;
    quantize(&z->qkv.m[0], &y->qkv.m[0], at, from->pool);
    quantize(&z->o, &y->o, at, from->pool);
    if (c->per_layer) {
        quantize(&z->per_layer_gate, &y->per_layer_gate, at, from->pool);
        quantize(&z->per_layer_out, &y->per_layer_out, at, from->pool);
    }
    if (c->layer[l].ffn) {
        quantize(&z->gate_up.m[0], &y->gate_up.m[0], at, from->pool);
        quantize(&z->down, &y->down, at, from->pool);
    }
    if (!c->layer[l].experts)
        return;
    z->expert = to->experts + (y->expert - from->experts);
    to->expert_bytes += quantize_experts(z->expert, y->expert, c->n_experts, at, from->pool);
    if (c->shared_ffn)
        quantize_experts(&z->shared, &y->shared, 1, at, from->pool);
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
