/* The full key/value cache of one decoder.
 *
 * For each layer and KV head the cache is contiguous, in blocks of 64 keys (layout: kernels/ops.h). Rows 0 ..
 * n_past-1 are committed. A pass over a chain writes its rows directly to n_past and after; kv_advance
 * commits them. A pass over a tree writes to the node scratch; kv_commit_path then copies the bytes of one
 * path into the cache. Nothing is ever recomputed. A slot at or after n_past holds +0 or bytes of the pass in
 * flight.
 *
 * The cache lies in the memory of a device; dev NULL stands for the host. kv_block and kv_node serve the
 * host's memory only, where the layout is the one of kernels/ops.h. */
#pragma once
#include "kernels/device.h"
#include "kernels/ops.h"
#include "src/base/base.h"

struct kv {                        /* {0} is closed */
    struct device *dev;            /* borrowed; NULL: the host's memory */
    enum dtype type;               /* DT_I16, DT_BF16 or DT_F32: the device's kv_type */
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: padded to a multiple of 16 */
    size_t n_max, n_past;          /* positions */
    size_t n_written;  /* slots from here on were never written; a pass raises it before it writes */
    size_t node_max;               /* rows of the node scratch; 0: none */
    size_t block_bytes, head_bytes, layer_bytes;
    char *base;                    /* [n_layers][n_kv_heads][blocks] */
    char *scratch;                 /* [n_layers][node_max][n_kv_heads] rows */
    /* NULL, or a number added to the scores of each slot (struct attn): whole blocks, owned by the caller */
    const float *bias;
};

struct kv_size {
    enum dtype type;
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: padded to a multiple of 16 */
    size_t n_max, node_max;                  /* positions; rows of the node scratch, 0: none */
};
/* Bytes of the cache and its scratch; SIZE_MAX when they do not fit size_t. */
size_t kv_bytes(const struct kv_size *);
int kv_open(struct kv *kv, struct device *dev, const struct kv_size *, struct err *e);
void kv_close(struct kv *kv);

/* The cache in the form that passes on its device use. */
struct device_kv kv_view(const struct kv *kv);

/* The block that holds row `pos` of layer l, head h. The row has slot pos % KV_BLOCK. */
void *kv_block(const struct kv *kv, size_t l, size_t h, size_t pos);
/* [n_kv_heads] rows as kv_store writes them */
void *kv_node(const struct kv *kv, size_t l, size_t node);
void kv_advance(struct kv *kv, size_t n);                        /* commits rows n_past .. n_past+n-1 */
void kv_commit_path(struct kv *kv, const uint32_t *node, size_t n);   /* copies the path, then commits it */
void kv_truncate(struct kv *kv, size_t n_past);  /* forgets rows from n_past on and zeroes them */
