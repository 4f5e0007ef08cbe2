/* The full key/value cache: sizes, memory, commit and truncation. Host memory is handled here; for a device's
 * memory the functions call the device's operations. Start reading at kv_open. */
#include "kvmgr/kv.h"

#include <string.h>

/* Bytes of the cache and of the node scratch; false when their sum does not fit size_t. */
static bool sizes(const struct kv_size *z, size_t *cache, size_t *scratch)
{
    const size_t row = kv_row_bytes(z->type, z->head_dim),
                 blocks = z->n_max / KV_BLOCK + (z->n_max % KV_BLOCK != 0);
    size_t heads, per_block, n;
    return mul_size(KV_BLOCK, row, &per_block) && mul_size(z->n_layers, z->n_kv_heads, &heads) &&
           mul_size(heads, per_block, &n) && mul_size(n, blocks, cache) && mul_size(heads, row, &n) &&
           mul_size(n, z->node_max, scratch) && add_size(*cache, *scratch, &n);
}

size_t kv_bytes(const struct kv_size *z)
{
    size_t cache, scratch;
    return sizes(z, &cache, &scratch) ? cache + scratch : SIZE_MAX;
}

static bool on_host(const struct kv *kv) { return !kv->dev || kv->dev->host_memory; }

int kv_open(struct kv *kv, struct device *dev, const struct kv_size *z, struct err *e)
{
    size_t cache, scratch;
    assert((z->type == DT_I16 || z->type == DT_BF16 || z->type == DT_F32) && z->head_dim % 16 == 0);
    *kv = (struct kv){ .dev = dev, .type = z->type, .n_layers = z->n_layers, .n_kv_heads = z->n_kv_heads,
                      .head_dim = z->head_dim, .n_max = z->n_max, .node_max = z->node_max };
    if (!sizes(z, &cache, &scratch))
        return err_set(e, ERR_INPUT, "KV cache of %zu positions: its size does not fit in memory addresses",
                       z->n_max);
    kv->block_bytes = kv_block_bytes(z->type, z->head_dim);
    kv->head_bytes = kv->block_bytes * ((z->n_max + KV_BLOCK - 1) / KV_BLOCK);
    kv->layer_bytes = kv->head_bytes * z->n_kv_heads;
    kv->base = on_host(kv) ? mem_alloc(cache) : dev->alloc(dev, cache);
    kv->scratch = on_host(kv) || !scratch ? mem_alloc(scratch) : dev->alloc(dev, scratch);
    if (!kv->base || !kv->scratch) {
        kv_close(kv);
        return err_set(e, ERR_FAILED, "KV cache of %zu positions: out of memory (%zu bytes%s%s)", z->n_max,
                       cache + scratch, dev ? " on " : "", dev ? dev->name : "");
    }
    return 0;
}

void kv_close(struct kv *kv)
{
    const size_t scratch =
        kv->n_layers * kv->node_max * kv->n_kv_heads * kv_row_bytes(kv->type, kv->head_dim);
    if (on_host(kv))
        mem_free(kv->base, kv->layer_bytes * kv->n_layers);
    else
        kv->dev->free(kv->dev, kv->base, kv->layer_bytes * kv->n_layers);
    if (on_host(kv) || !scratch)
        mem_free(kv->scratch, scratch);
    else
        kv->dev->free(kv->dev, kv->scratch, scratch);
    *kv = (struct kv){ 0 };
}

struct device_kv kv_view(const struct kv *kv)
{
    return (struct device_kv){ kv->type, kv->n_layers, kv->n_kv_heads, kv->head_dim, kv->base,
                               kv->block_bytes, kv->head_bytes, kv->layer_bytes,
                               kv->scratch, kv->node_max, kv->bias };
}

void *kv_block(const struct kv *kv, size_t l, size_t h, size_t pos)
{
    assert(l < kv->n_layers && h < kv->n_kv_heads && pos < kv->n_max && on_host(kv));
    return kv->base + l * kv->layer_bytes + h * kv->head_bytes + pos / KV_BLOCK * kv->block_bytes;
}

void *kv_node(const struct kv *kv, size_t l, size_t node)
{
    assert(l < kv->n_layers && node < kv->node_max && on_host(kv));
    return kv->scratch + (l * kv->node_max + node) * kv->n_kv_heads * kv_row_bytes(kv->type, kv->head_dim);
}

void kv_advance(struct kv *kv, size_t n)
{
    assert(n <= kv->n_max - kv->n_past);
    kv->n_past += n;
    kv->n_written = MAX(kv->n_written, kv->n_past);
}

void kv_commit_path(struct kv *kv, const uint32_t *node, size_t n)
{
    assert(n <= kv->n_max - kv->n_past);
    const size_t row = kv_row_bytes(kv->type, kv->head_dim);
    if (!on_host(kv)) {
        const struct device_kv view = kv_view(kv);
        kv->dev->kv_commit(kv->dev, &view, kv->n_past, node, n);
    }
    for (size_t l = 0; on_host(kv) && l < kv->n_layers; l++)
        for (size_t i = 0; i < n; i++) {
            const char *from = kv_node(kv, l, node[i]);
            for (size_t h = 0; h < kv->n_kv_heads; h++)
                kv_put(kv_block(kv, l, h, kv->n_past + i), kv->type, kv->head_dim,
                       (kv->n_past + i) % KV_BLOCK, from + h * row);
        }
    kv->n_past += n;
    kv->n_written = MAX(kv->n_written, kv->n_past);
}

void kv_truncate(struct kv *kv, size_t n_past)
{
    assert(n_past <= kv->n_past);
    static const float zero[2 * 1024];
    assert(kv->head_dim <= 1024);
    if (!on_host(kv)) {
        const struct device_kv view = kv_view(kv);
        kv->dev->kv_zero(kv->dev, &view, n_past, MAX(kv->n_written, n_past));
    }
    for (size_t l = 0; on_host(kv) && l < kv->n_layers; l++)
        for (size_t h = 0; h < kv->n_kv_heads; h++) {
            char *head = kv->base + l * kv->layer_bytes + h * kv->head_bytes;
            size_t pos = n_past;
            for (; pos % KV_BLOCK && pos < kv->n_written; pos++)
                kv_put(head + pos / KV_BLOCK * kv->block_bytes, kv->type, kv->head_dim, pos % KV_BLOCK, zero);
            size_t first = (pos + KV_BLOCK - 1) / KV_BLOCK, last = (kv->n_written + KV_BLOCK - 1) / KV_BLOCK;
            if (last > first)
                memset(head + first * kv->block_bytes, 0, (last - first) * kv->block_bytes);
        }
    kv->n_past = n_past;
    kv->n_written = n_past;
}
