/* The full key/value cache of one decoder.
 *
 * For each layer and KV head the cache is a list of blocks of 64 keys (layout: kernels/ops.h). Rows 0 ..
 * n_past-1 are committed. A pass over a chain writes its rows directly to n_past and after; kv_advance
 * commits them. A pass over a tree writes to the node scratch; kv_commit_path then copies the bytes of one
 * path into the cache. Nothing is ever recomputed. A slot at or after n_past holds +0 or bytes of the pass in
 * flight.
 *
 * Shared beginnings. The first n_shared blocks belong to other caches whose texts begin alike. Nobody writes
 * them. A table has their addresses. The other blocks are the cache's own: consecutive, in one piece of
 * memory (struct kv_run). A run lives until the last cache that holds it is closed.
 *
 * Rings. A layer whose rows see a window of keys has `ring` blocks of its own, and block b of the text is its
 * block b % ring. They hold a window, the largest pass, and the rows that a cut takes back. A slot whose row
 * is not written yet holds +0 or an older row, finite like all rows. A ring shares no blocks: a text that
 * begins alike gets a copy of the window before the split, if the ring still holds it, or of the mark. The
 * mark is a copy of the window before one row. A cut to a row whose window has left the ring goes back to the
 * mark, or forgets all rows. In the host's memory only.
 *
 * The cache lies in the memory of a device; dev NULL stands for the host. kv_block and kv_node serve the
 * host's memory only, where the layout is the one of kernels/ops.h. One thread opens and closes all caches
 * that share blocks. */
#pragma once
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvmgr/state.h"
#include "src/base/base.h"

enum {
    RING_PASS = 256,                   /* the most rows that a pass writes to the cache itself */
    RING_BACK = 2048,                  /* rows that a cut takes back */
};

/* The runs that are alive, and their bytes. */
struct kv_total { size_t runs, bytes; };

/* Memory of blocks first .. first + n_blocks - 1 of a text: [n_layers][heads of the layer][n_blocks], where
 * n_blocks is `ring` in rings. */
struct kv_run {
    char *base;
    size_t bytes, first, n_blocks, ring;
    size_t refs;                   /* caches that hold the run */
    struct kv_total *total;        /* or NULL; borrowed */
    size_t counted;                /* bytes in *total */
};

struct kv {                        /* {0} is closed */
    struct device *dev;            /* borrowed; NULL: the host's memory */
    enum dtype type;               /* kv_form */
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: padded to a multiple of 16 */
    const struct kv_heads *heads;  /* as in kv_size; owned */
    size_t n_max, n_past;          /* positions */
    size_t n_written;  /* slots from here on were never written; a pass raises it before it writes */
    size_t node_max;               /* rows of the node scratch; 0: none */
    size_t block_bytes, head_bytes, layer_bytes;
    size_t window, ring;           /* of layers with heads[l].ring: keys, blocks; ring 0: no layer is one */
    size_t ring_from;              /* rows before it left the rings for another reason than n_written */
    struct kv_mark mark;           /* of rings: the window before its rows (kv_window) */
    char *base;                    /* [n_layers][heads of the layer][own blocks], of the last run */
    char *scratch;                 /* [n_layers][node_max][heads of the layer] rows */
    /* NULL, or a number added to the scores of each slot (struct attn): whole blocks, owned by the caller */
    const float *bias;
    size_t n_shared;               /* blocks of other caches */
    char **shared;                 /* [all heads][n_shared], in the device's memory; NULL: none */
    struct states *state;           /* recurrent states beside the cache; NULL: none */
    struct kv_run **run; size_t n_runs;      /* held, by ascending `first`; the last is the cache's own */
};

struct kv_size {
    enum dtype type;
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: padded to a multiple of 16 */
    size_t n_max, node_max;                  /* positions; rows of the node scratch, 0: none */
    size_t n_shared;                         /* blocks of other caches */
    struct delta_shape state;                /* recurrent states */
    /* where a copy of them, in whole blocks, or of the windows is kept; 0: nowhere */
    size_t mark;
    bool cuts;                               /* the text may be cut back: more copies (state.h) */
    /* NULL, or the heads of each layer, [n_layers + 1] (kv_heads_of); n_kv_heads and head_dim are then the
     * largest ones. Only in the host's memory; kv_open copies the list */
    const struct kv_heads *heads;
    /* The keys that layers with heads[l].ring see, and rows that cuts take back; window 0: they are no
     * rings */
    size_t window, back;
};
/* Bytes of the cache's own blocks, its scratch, its table, its states and its mark; SIZE_MAX when they do not
 * fit size_t. And those of its own blocks and its mark, which the run counts. */
size_t kv_bytes(const struct kv_size *);
size_t kv_run_bytes(const struct kv_size *);
size_t kv_mark_bytes(const struct kv_size *);
int kv_open(struct kv *kv, struct device *dev, const struct kv_size *, struct err *e);
/* Opens a cache of size->n_max positions that shares the first size->n_shared blocks of `from`, a committed
 * part of a cache of the same shape; NULL: none, and n_shared is 0. Rows after these blocks that `from` has
 * committed, up to position n_rows, are copied. Then n_rows rows are committed. With states n_rows is 0 or
 * the mark of `from`; with rings it is whole blocks, the mark or a row whose window `from` holds. total:
 * NULL, or where the run is counted until it is freed. */
int kv_open_from(struct kv *kv, struct device *dev, const struct kv_size *, const struct kv *from,
                 size_t n_rows, struct kv_total *total, struct err *e);
void kv_close(struct kv *kv);
/* Frees the scratch of a cache that is only read from now on, and of its states all but the mark. In the
 * host's memory, slots that were never written count no longer. */
void kv_retire(struct kv *kv);

/* Whether the cache lies in the host's memory; and memory in the same place, zeroed. p may be NULL. */
static inline bool kv_on_host(const struct kv *kv) { return !kv->dev || kv->dev->host_memory; }
void *kv_alloc(const struct kv *kv, size_t bytes);
void kv_free(const struct kv *kv, void *p, size_t bytes);

/* The cache in the form that passes on its device use. */
struct device_kv kv_view(const struct kv *kv);

/* The heads of layer l; of n_layers: the sums over all layers. */
static inline struct kv_heads kv_layer(const struct kv *kv, size_t l)
{
    return kv_heads_of(kv->heads, kv->n_kv_heads, kv->head_dim, l);
}
static inline size_t kv_n_heads(const struct kv *kv) { return kv_layer(kv, kv->n_layers).first; }
/* The layer of the i-th of all heads; within it the head is i - kv_layer(kv, layer).first. */
size_t kv_layer_of(const struct kv *kv, size_t i);
/* The size of a cache of n_max positions with the same layers and heads. */
struct kv_size kv_like(const struct kv *kv, size_t n_max);
static inline bool kv_is_ring(const struct kv *kv, size_t l) { return kv->ring && kv->heads[l].ring; }
/* The first row that rings hold, in whole blocks. Whether they hold the window before row n. */
size_t kv_first(const struct kv *kv);
bool kv_holds(const struct kv *kv, size_t n);
/* The row itself, or if layer l is a ring that has lost it, one that it holds in the same slot of a block. */
static inline size_t kv_nearest(const struct kv *kv, size_t l, size_t pos)
{
    return kv_is_ring(kv, l) && pos < kv_first(kv) ? kv_first(kv) + pos % KV_BLOCK : pos;
}
/* Copies the blocks with the windows before row n from the rings to `copy`, or (load) the other way. Bytes of
 * the largest copy. */
void kv_window(struct kv *kv, size_t n, char *copy, bool load);
size_t kv_window_bytes(const struct kv *kv);
static inline size_t kv_head_block(const struct kv *kv, size_t l)      /* bytes of a block of a head */
{
    return kv_block_bytes(kv->type, kv_layer(kv, l).dim);
}

/* The block that holds row `pos` of layer l, head h. The row has slot pos % KV_BLOCK. */
void *kv_block(const struct kv *kv, size_t l, size_t h, size_t pos);
/* The address of block b of layer l, head h, in the memory of the device; *n: number of blocks from there on
 * that follow each other. */
char *kv_address(const struct kv *kv, size_t l, size_t h, size_t b, size_t *n);
/* Rows of the layer's heads, as kv_store writes them. */
void *kv_node(const struct kv *kv, size_t l, size_t node);
void kv_advance(struct kv *kv, size_t n);                        /* commits rows n_past .. n_past+n-1 */
/* Says that n rows, in whole blocks, and the states or windows after them have been restored. */
void kv_place(struct kv *kv, size_t n);
void kv_commit_path(struct kv *kv, const uint32_t *node, size_t n);   /* copies the path, then commits it */
/* Forgets rows from n_past on and zeroes them; shared blocks must stay (asserted). A cache with states
 * or rings may have to forget more rows: up to a copy of them, or all. Where rings go back further than the
 * cut, other layers zero the rows from the cut on alone: other caches may share the rows before it, and
 * reading them again writes the same bytes. */
void kv_truncate(struct kv *kv, size_t n_past);

/* For caches of drafters in the host's memory without shared blocks: of the committed rows the first and the
 * last ones remain; keys keep the rotation of their positions. */
void kv_keep_ends(struct kv *kv, size_t first, size_t last);
static inline void kv_keep_last(struct kv *kv, size_t n) { kv_keep_ends(kv, 0, n); }
static inline size_t kv_rows_bytes(const struct kv *kv, size_t n)
{
    const struct kv_heads all = kv_layer(kv, kv->n_layers);
    return n * kv_rows_of(kv->type, all.first, all.dims);
}
