/* The full key/value cache of one decoder.
 *
 * Per layer and KV head, contiguous, in blocks of 64 keys (layout: kernels/ops.h). Rows 0 .. n_past-1 are
 * committed. A pass either writes rows that follow each other straight to n_past.. (kv_advance commits
 * them), or, for a tree, to the node scratch; kv_commit_path then copies the bytes of a path into the
 * cache. Nothing is ever recomputed. Slots at and after n_past are +0 or bytes of the pass in flight.
 *
 * It lies in the memory of a device; dev NULL is the host's. kv_block and kv_node are for the host's memory alone, where the layout is
 * that of kernels/ops.h. */
#pragma once
#include "kernels/device.h"
#include "kernels/ops.h"
#include "src/base/base.h"

struct kv {                        /* {0} is closed */
    struct device *dev;            /* borrowed; NULL: the host's memory */
    enum dtype type;               /* DT_I16, DT_BF16 or DT_F32; of the device (kv_type) */
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: padded to a multiple of 16 */
    size_t n_max, n_past;          /* positions */
    size_t n_written;              /* slots from here on were never written: a pass raises it before it writes */
    size_t node_max;               /* rows of the node scratch, 0: none */
    size_t block_bytes, head_bytes, layer_bytes;
    char *base;                    /* [n_layers][n_kv_heads][blocks] */
    char *scratch;                 /* [n_layers][node_max][n_kv_heads] rows */
    const float *bias;             /* or NULL: what is added to the scores of each slot (struct attn); its owner's, in whole blocks */
};

size_t kv_bytes(enum dtype t, size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t n_max,
                size_t node_max);
int kv_open(struct kv *kv, struct device *dev, enum dtype t, size_t n_layers, size_t n_kv_heads,
            size_t head_dim, size_t n_max, size_t node_max, struct err *e);
void kv_close(struct kv *kv);

/* The cache as passes on its device take it. */
struct device_kv kv_view(const struct kv *kv);

/* Where row `pos` of layer l, head h is written: the block and the slot in it. */
void *kv_block(const struct kv *kv, size_t l, size_t h, size_t pos);
/* [n_kv_heads] rows, as kv_store makes them */
void *kv_node(const struct kv *kv, size_t l, size_t node);
void kv_advance(struct kv *kv, size_t n);                        /* rows n_past .. n_past+n-1 are committed */
void kv_commit_path(struct kv *kv, const uint32_t *node, size_t n);   /* copies, then advances */
void kv_truncate(struct kv *kv, size_t n_past);                  /* forget rows from n_past on (zeroed) */
