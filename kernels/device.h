/* A device: where the forward pass runs, and the one thing that the engine knows of it.
 *
 *   cpu        kernels/device_cpu.c: the operations of ops.h, shared out over a pool
 *   cuda       kernels/device_gpu.c over the driver (cuda.c): kernels of kernels/cu_*.cu on one stream
 *   emulated   kernels/device_gpu.c over emulate.c: the very same kernels compiled as C, threads and all. For tests: slow
 *
 * An operation here is a whole one (all rows, all heads, all columns) where ops.h has the piece that one thread works on. All
 * operations go to one queue in the order of the calls and return at once; `download`, `choose` and `end` wait for them. Buffers
 * between operations are the device's, named by pointers that the host must not follow (except on `cpu`, where it may). All
 * functions are called from one thread. Nothing but alloc, mat_put and the first pass of a key takes memory.
 *
 * A pass:
 *     begin(&rows)                        where each row stands: everything that may change from pass to pass
 *     if (!graph_begin(key)) {            CUDA: a graph of that key was recorded, and has been launched: nothing else to do
 *         embed, [rmsnorm, product, rope, attend, product, rmsnorm, product, swiglu, product] per layer, rmsnorm, gather, product
 *         if (!graph_end()) the same once more     nothing was launched: there was no memory for a graph
 *     }
 *     choose or download                  tokens or logits. choose is what decoding does (src/sample/device_sampler.h): logits stay where they are
 *     end(&bad)                           waits; a row that is not finite; an error of the device
 * A choose before `end` brings what `end` tells along, so that a pass and its tokens are one wait. Of logits that are not finite it chooses
 * something or nothing.
 * Between graph_begin and graph_end the calls and all their arguments must be a function of the key and of what was passed to
 * open and alloc: what differs from pass to pass is in `rows` alone. The key says module and number of rows (of each
 * sequence, of wanted logits); the device adds what its own grids need. `cpu` records nothing: graph_begin returns false.
 *
 * R1 holds on every device: the result for a row is a function of the tokens before it alone. The bits belong to the numerics id
 * (`numerics`): "cpu-1-int16", "cpu-1-bf16", "cpu-1-f32" (what the cache holds), and per architecture and kernel configuration "cuda-sm_90a-1",
 * "cuda-ptx_80-on-120-1", "emulated-1".
 *
 * Errors. What cannot go on (a CUDA error, a launch that fails) is kept in `error`, one line without the name, the first one; from then on
 * operations do nothing, and `end` and `download` return -1. The caches are then worth nothing. alloc returns NULL, no error.
 *
 * Beside the queue. A snapshot of a cache is fetched by another thread while the queue goes on: `fetch_mark` on the queue's thread, then `fetch`,
 * which sees what was called for before the mark. The bytes must not be written meanwhile: committed rows never are. It keeps out of `error`.
 *
 * Types. `act` is bf16, or float under --compute f32, which `cpu` alone has (`compute_f32`). Caches hold `kv_type`: on `cpu` int16 or bf16 (float
 * with f32), else bf16. x, qkv, gate_up and logits are float. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

struct pool;

/* A cache as the device sees it: geometry as kvmgr/kv.h has it, in device memory. What lies inside a block of block_bytes and in a
 * node of the scratch is the device's business. Row p of layer l and head h stands in block p / 64 at
 * base + l * layer_bytes + h * head_bytes + p / 64 * block_bytes. All of it is zeroed when it is made. */
struct device_kv {
    enum dtype type;
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: as device->head_dim pads it */
    char *base;    size_t block_bytes, head_bytes, layer_bytes;
    char *scratch; size_t node_max;          /* [n_layers][node_max][n_kv_heads] rows, NULL without */
    const float *bias;                       /* or NULL: struct attn's, for every layer. With host_memory alone */
};

/* Where the rows of a pass stand. Arrays are the host's, and are read before begin returns (by `cpu` until `end`). */
struct device_seq {                  /* the rows of one sequence, which follow each other */
    const struct device_kv *kv;
    size_t row0, n;
    size_t n_past;                   /* committed rows of the cache */
    bool tree;                       /* K and V go to scratch node (row - row0), else to slot pos[row] of the cache */
    bool shifted;                    /* windows do not apply: the cache holds what its owner chose (a partial cache) */
    float *importance;               /* or NULL: [n_layers][n_kv_heads][importance_step], of the first row, as struct attn defines it. With host_memory
                                      * [n_kv_heads][importance_step]: of the layer that `attend` was called for last */
    size_t importance_step;
};
struct device_rows {
    size_t n, n_seqs;
    const struct device_seq *seq;    /* [n_seqs] */
    const int32_t *token;            /* [n] */
    const uint32_t *pos, *hi;        /* [n] slot in the cache; committed slots below hi are visible: hi = pos + 1, or n_past in a tree */
    const uint32_t *angle;           /* [n] position that RoPE turns by: pos, or pos + shift */
    const uint32_t *n_node, *node;   /* [n], [n][node_step]: of tree rows the path in the scratch, root first, itself last; it stands at hi .. */
    size_t node_step;
    size_t n_want; const uint32_t *want;   /* rows whose logits are wanted, ascending: what gather takes */
    const float *inv_freq; size_t n_freq; float rope_factor;   /* see rope_angles; n_freq = half the true head_dim */
};
/* The first value, in order of (place, row), that was not finite; place as the operation was told. */
struct device_bad { bool any; size_t row, place; };

/* What partial caches take over of a text (kvmgr/partial.h), all layers and heads at once. */
struct device_selection {
    /* the device's [n_layers][n_kv_heads][importance_step] */
    const float *importance; size_t importance_step;
    const uint32_t *from;            /* the host's [n_layers]: `importance` is defined for from .. n_past-1 */
    size_t n_layers, n_kv_heads, n_past, sinks, budget;
    /* the device's [n_layers][n_kv_heads][row_step]: the result, row of the text for each slot below budget
     * */
    uint32_t *row; size_t row_step;
    void *work;                      /* the device's: select_bytes of at least as many */
};

/* true head_dim, and as device->head_dim pads it */
struct device_heads { size_t n_heads, n_kv_heads, head_dim, padded; };

/* n_max: slots of the longest cache; n_out_max, n_in_max: of products */
struct device_limits { size_t rows_max, n_max, node_max, n_out_max,
                       vocab; struct device_heads heads; size_t n_in_max; };

/* Sampling on the device. The chain is src/sample/sample.h's, step by step; rows of logits differ in what stands before them. */
enum device_step { DEVICE_TEMPERATURE, DEVICE_TOP_K, DEVICE_TOP_P, DEVICE_MIN_P, DEVICE_ETA, DEVICE_PENALTIES,
                   DEVICE_BIAS, DEVICE_DRY, DEVICE_STEPS };
struct device_edit { uint32_t id; double add; };         /* logit + add, within +-FLT_MAX; -inf bans */
struct device_count { uint32_t id; int32_t window, text; };   /* what a row's path adds to the counts of the text */
struct device_chain {
    double temperature;              /* 0: the largest logit, filters are skipped */
    size_t top_k, min_keep;          /* top_k 0: off */
    double top_p, min_p, eta;        /* 1, 0, 0: off */
    double penalty, presence, frequency;
    enum device_step order[DEVICE_STEPS]; size_t n_order;
    uint64_t seed; uint32_t sample;  /* of the coins */
    const uint32_t *counts;          /* or NULL: on the device, [2][vocab]: occurrences in the penalty window, in the generated text */
};
/* one choice: from which row of the logits, with which coin, and what of the lists is for it */
struct device_choice {
    uint64_t position;               /* of the coin */
    uint32_t row;
    uint32_t edit, n_edit;           /* biases and bans: edits edit .. edit + n_edit - 1, no id twice */
    uint32_t dry, n_dry;             /* of the same list; no id twice */
    uint32_t count, n_count;         /* no id twice; at most 128 */
    uint32_t spare;
};
struct device_choices {              /* arrays are the host's */
    const struct device_choice *choice; size_t n;
    const struct device_edit *edit; size_t n_edit;
    const struct device_count *count; size_t n_count;
    /* the device's: choose_bytes of at least as many choices, edits and counts */
    void *work;
};
struct device_candidate { int32_t id; float score; };      /* as struct candidate of src/sample/sample.h */

struct device {
    const char *kind;                /* "cpu", "cuda", "emulated" */
    char name[128];                  /* for people: "cuda:0 NVIDIA H200" */
    char numerics[32];
    char error[512];                 /* "": none */
    size_t graph_bytes;              /* of its memory, for recorded passes: besides what alloc gives */
    enum dtype kv_type;              /* what its caches hold */
    bool compute_f32, host_memory;   /* host_memory: pointers may be followed by the host */
    size_t downloaded, waits;        /* bytes that have crossed to the host, and how often it waited for some; 0 with host_memory */
    size_t played;                   /* passes that were launched as recorded ones */

    void (*close)(struct device *);

    /* ---- memory ---- */
    void *(*alloc)(struct device *, size_t bytes);                     /* zeroed, 256-byte aligned; NULL when there is none. free forgets recorded graphs */
    void  (*free)(struct device *, void *p, size_t bytes);
    size_t (*bytes_free)(struct device *);                             /* that alloc could give now, about */
    void  (*upload)(struct device *, void *dst, const void *src, size_t bytes);      /* src may be reused at once */
    int   (*download)(struct device *, void *dst, const void *src, size_t bytes);    /* waits for all before it; 0, or -1 with `error` */
    void  (*copy)(struct device *, void *dst, const void *src, size_t bytes);        /* device to device */
    void  (*zero)(struct device *, void *dst, size_t bytes);
    void  (*fetch_mark)(struct device *);                              /* these two: NULL with host_memory */
    int   (*fetch)(struct device *, void *dst, const void *src, size_t bytes, char *why, size_t why_size);   /* on any thread; 0, or -1 and why */

    /* n bf16 values, about normal with this deviation, a function of seed and index; NULL with host_memory. To measure with, not to sample. */
    void  (*noise)(struct device *, void *dst, size_t n, uint64_t seed, float deviation);

    /* padded as caches and attention want it; 0: not supported */
    size_t (*head_dim)(const struct device *, size_t head_dim);
    /* Matrices: struct mat with n, k and the type that mat_type gives for what a file holds; w is mat_bytes of the device's memory,
     * zeroed, inside is the device's order. Rows are put from the host, row-major, in any order. */
    enum dtype (*mat_type)(const struct device *, enum dtype stored, enum dtype compute);
    size_t (*mat_size)(const struct device *, enum dtype type, size_t n, size_t k);
    void (*mat_put)(struct device *, struct mat *m, size_t r0, size_t n, const void *src, enum dtype from);

    /* ---- a pass ---- */
    void (*begin)(struct device *, const struct device_rows *);
    bool (*graph_begin)(struct device *, uint64_t key);
    bool (*graph_end)(struct device *);
    int  (*end)(struct device *, struct device_bad *);

    /* x[r] = row token[r] of the table: packed: a matrix as above; else row-major [n][k] of table->type. */
    void (*embed)(struct device *, float *x, const struct mat *table, bool packed);
    /* y = act(x / sqrt(mean(x^2) + eps) * w), [n][dim]. Rows of x that are not finite are noted under `place` unless it is SIZE_MAX. */
    void (*rmsnorm)(struct device *, void *y, const float *x, const float *w, size_t n, size_t dim, float eps,
                    size_t place);
    /* y[r*ldy + i] = (add ? y : 0) + (x[r] . w[i] + bias[i]), x act [n][w->k]; bias may be NULL. Results that are not finite are noted
     * under `place` unless it is SIZE_MAX. */
    void (*product)(struct device *, float *y, size_t ldy, const void *x, size_t n, const struct mat *w,
                    const float *bias, bool add, size_t place);
    /* qkv [n][n_heads + 2 n_kv_heads][padded]: norms of q and k where given ([head_dim], else NULL), RoPE; K and V stored into the caches
     * or their scratch; q = act(q * log2(e)/sqrt(head_dim)) in the order that attend wants (n * n_heads * padded act). q_tap, or NULL:
     * the queries, rotated and unscaled, [n][n_heads][head_dim]. */
    void (*rope)(struct device *, void *q, float *qkv, const struct device_heads *, size_t layer,
                 const float *q_norm, const float *k_norm, float eps, float *q_tap);
    /* out = act [n][n_heads][padded]: attention of every row over its cache, window 0: all of it. */
    void (*attend)(struct device *, void *out, const void *q, const struct device_heads *, size_t layer,
                   size_t window);
    /* h = act(silu(g) * u), gate_up [n][2 ffn]: g, then u. */
    void (*swiglu)(struct device *, void *h, const float *gate_up, size_t n, size_t ffn);
    /* dst row i = src row want[i] of the pass, rows of row_bytes (a multiple of 4); dst is not src. */
    void (*gather)(struct device *, void *dst, const void *src, size_t row_bytes);
    /* y float = x act, n values: TAP_HIDDEN. And back, rounded. */
    void (*widen)(struct device *, float *y, const void *x, size_t n);
    void (*narrow)(struct device *, void *y, const float *x, size_t n);
    /* Working memory of the operations, which the device keeps: chunk states, tables of a pass, parts of products of up to n_out_max
     * columns. Told before any operation but those on memory and mat_put, again where a limit grows; 0, or -1 where there is no memory. reserve_bytes: what it takes. */
    size_t (*reserve_bytes)(const struct device *, const struct device_limits *);
    int    (*reserve)(struct device *, const struct device_limits *);

    /* ---- caches: all layers and heads; NULL with host_memory: kvmgr/ does it there ---- */
    /* Scratch node[i] to slot n_past + i: the bytes of a path. */
    void (*kv_commit)(struct device *, const struct device_kv *, size_t n_past, const uint32_t *node,
                      size_t n);
    /* Slot from[i] of src to slot to[i] of dst, which have the same layers, heads and head_dim. No slot is both, none twice in `to`. */
    void (*kv_copy)(struct device *, const struct device_kv *dst, const struct device_kv *src,
                    const uint32_t *from, const uint32_t *to, size_t n);
    /* Slots from .. to-1 to zero. */
    void (*kv_zero)(struct device *, const struct device_kv *, size_t from, size_t to);
    /* row[..][i] = i for i < sinks; the next budget - sinks are the rows of largest importance in from' = max(from, sinks) .. n_past-1 (the later one
     * first on ties), best first, per layer and head; where there are fewer, then the rows before from', from the nearest on. */
    void (*kv_select)(struct device *, const struct device_selection *);
    size_t (*select_bytes)(const struct device *, size_t n_layers, size_t n_kv_heads, size_t budget);
    /* Slot row[layer][head][i] of src to slot i of dst, i < n. */
    void (*kv_take)(struct device *, const struct device_kv *dst, const struct device_kv *src,
                    const uint32_t *row, size_t row_step, size_t n);

    /* ---- logits; NULL with host_memory: src/sample/sample.h does it there ---- */
    /* counts[0][id] += window, counts[1][id] += text: no id twice. The list is the host's. */
    void (*count)(struct device *, uint32_t *counts, size_t vocab, const struct device_count *, size_t n);
    /* best [n][k], k <= 32, of the host: what sampler_rank finds for each choice, the best first, then id -1; the first is that of sampler_sample.
     * logits [..][vocab] are kept. Waits; 0, or -1 with `error`. */
    int (*choose)(struct device *, struct device_candidate *best, size_t k, const float *logits, size_t vocab,
                  const struct device_chain *, const struct device_choices *);
    size_t (*choose_bytes)(const struct device *, size_t n, size_t n_edit, size_t n_count, size_t vocab);
};

/* y [rows][w->n] = (add ? y : 0) + x . w, x [rows][w->k] of act, shared out over a pool: what `cpu` does, for training. */
void pool_product(struct pool *, const struct ops *, float *y, enum dtype act, const void *x, size_t rows,
                  const struct mat *w, bool add);

/* 0, or -1 and why not (one line). The pool is borrowed. */
int device_cpu_open(struct device **, const struct ops *, struct pool *, enum dtype kv_type, char *why,
                    size_t why_size);
int device_cuda_open(struct device **, size_t ordinal, char *why, size_t why_size);

/* A further kind of device, which the words "NAME", "NAME:N" and "NAME:all" select. A program adds one by setting
 * device_added before main. The product adds none; test programs add the emulated GPU (tests/emulated). */
struct device_kind {
    const char *name;
    size_t count;                    /* devices of this kind */
    int (*open)(struct device **, char *why, size_t why_size);
};
extern const struct device_kind *device_added;      /* NULL: none */
/* Whether the word selects the added kind. */
bool device_is_added(const char *word);

/* Number of GPUs that could be opened; 0 and why. A build without CUDA, or a machine without a driver, has none. */
size_t device_cuda_count(char *why, size_t why_size);
/* The architectures that this binary holds kernels for, read from the images themselves: "sm_80 sm_89 sm_90a compute_80"; "" without. */
const char *device_cuda_images(char *text, size_t size);
