/* A device: where the forward pass runs, and the only interface that the engine has to it.
 *
 *   cpu        kernels/device_cpu.c: the operations of ops.h, shared out over a pool
 *   cuda       kernels/cuda/device_gpu.c over the driver (cuda.c): the kernels cu_*.cu on one stream
 *   emulated   for tests: kernels/cuda/device_gpu.c over the same kernels compiled as C (tests/emulated)
 *
 * An operation here covers all rows, all heads and all columns; ops.h has the part that one thread computes.
 * All operations go to one queue in the order of the calls and return at once; `download`, `sample` and `end`
 * wait for them. Buffers between operations are the device's memory: the host must not follow their pointers,
 * except on `cpu`. All functions are called from one thread. Only alloc, mat_put and the first pass of a key
 * allocate memory.
 *
 * A pass:
 *     begin(&rows)               the place of each row: everything that may change from pass to pass
 *     if (!graph_begin(key)) {   true (CUDA): a graph of this key was recorded earlier and has been launched
 *         embed, [rmsnorm, product, rope, attend, product, and then rmsnorm, product, swiglu, product, or
 *         experts] per layer, rmsnorm, gather, product
 *         if (!graph_end()) the same operations again     no memory for a graph: nothing was launched
 *     }
 *     sample or download         tokens or logits. Decoding uses `sample` (src/sample/device_sampler.h):
 *                                logits stay on the device
 *     end(&bad)                  waits; reports a row that is not finite, or an error of the device
 * A `sample` before `end` also downloads the result of `end`, so a pass and its tokens take one wait. From
 * logits that are not finite it samples any token, or none.
 *
 * Between graph_begin and graph_end the calls and their arguments must be a function of the key and of the
 * arguments of open and alloc; everything else is in `rows`. The key identifies the module, the rows of each
 * sequence and the wanted logits; the device adds what its own grids need. `cpu` records nothing: graph_begin
 * returns false.
 *
 * R1 holds on every device: the result for a row is a function of the tokens before it alone. The numerics id
 * (`numerics`) names the bits: "cpu-1-int16", "cpu-1-bf16", "cpu-1-int8", "cpu-1-int4", "cpu-1-f32" (type of
 * the cache; with quantised weights "cpu-1-int16-q1" and so on), and per architecture and kernel
 * configuration "cuda-sm_90a-2" or "cuda-ptx_80-on-120-2".
 *
 * Errors. A failure after which the device cannot go on (a CUDA error, a failed launch) is kept in `error`:
 * one line without the device's name, the first failure. From then on operations do nothing, `end` and
 * `download` return -1, and the caches are invalid. alloc returns NULL without setting `error`.
 *
 * Beside the queue. Another thread fetches a snapshot of a cache while the queue goes on: `fetch_mark` on the
 * queue's thread, then `fetch`, which sees the effects of the calls before the mark. The bytes must not be
 * written meanwhile; committed rows never are. fetch does not set `error`.
 *
 * Types. `act` is bf16, or float under --compute f32, which only `cpu` supports (`compute_f32`), and float
 * for a model with quantised weights (`quantised`), also only on `cpu`. A product rounds such floats itself:
 * to bf16 where the matrix is bf16, to groups of int16 where it is quantised (ops.h, matmul_quantized).
 * Caches hold `kv_type`: on `cpu` int16, bf16, int8 or int4 (f32 under --compute f32), elsewhere bf16. All
 * caches of a pass have one type. x, qkv, gate_up and logits are float. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

struct pool;

/* Recurrent states (kernels/delta.h). Columns of a value head lie in blocks of DELTA_COLUMNS, of which the
 * last may be narrower; `wide` is value_dim rounded up to a multiple of 16. */
enum { DELTA_COLUMNS = 64 };
struct delta_shape {
    size_t n_layers;                 /* with a state; 0: none */
    size_t key_heads, value_heads, key_dim, value_dim, conv;
    bool dealt;                      /* value head h uses key head h % key_heads, else h / (values / keys) */
};
static inline size_t delta_wide(const struct delta_shape *d) { return (d->value_dim + 15) / 16 * 16; }
static inline size_t delta_channels(const struct delta_shape *d)
{
    return 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;
}
/* A row that a verification pass keeps: input of the convolution [channels], keys [key_heads][key_dim], delta
 * [value_heads][wide], decay [value_heads]. */
static inline size_t delta_kept_row(const struct delta_shape *d)
{
    return delta_channels(d) + d->key_heads * d->key_dim + d->value_heads * (delta_wide(d) + 1);
}
/* The states of a sequence. */
struct device_state {
    struct delta_shape shape;
    float *state;                    /* [n_layers][value_heads][blocks of [key_dim][columns]] */
    float *rows;                     /* [n_layers][conv - 1][channels]: the last inputs of the convolution */
    float *kept; size_t kept_max;    /* [n_layers][kept_max][delta_kept_row] */
    /* Kept rows that are committed. A pass applies them to `state` and `rows` before anything else. */
    const uint32_t *pending; size_t n_pending;
};

/* A cache as the device sees it: the geometry of kvmgr/kv.h, in device memory. The device decides the layout
 * inside a block of block_bytes and inside a node of the scratch. Row p of layer l and head h is in block b =
 * p / 64. The first n_shared blocks belong to several caches and are only read: block b is at shared[(l *
 * n_kv_heads + h) * n_shared + b]. The others are at base + l * layer_bytes + h * head_bytes + (b - n_shared)
 * * block_bytes. A new cache is zeroed. With `heads`, layers follow each other in the same way, each with
 * its own heads: l * n_kv_heads is heads[l].first, and the sizes are those of heads[l].dim. With `ring`,
 * layers with heads[l].ring have so many blocks and share none: block b is number b % ring. */
struct device_kv {
    enum dtype type;
    size_t n_layers, n_kv_heads, head_dim;   /* head_dim: as padded by device->head_dim */
    char *base;    size_t block_bytes, head_bytes, layer_bytes;
    char *scratch; size_t node_max;          /* [n_layers][node_max][n_kv_heads] rows; NULL: no scratch */
    const float *bias;  /* NULL, or the bias of struct attn for every layer; only with host_memory */
    char *const *shared; size_t n_shared;    /* a table in device memory; NULL: n_shared is 0 */
    const struct device_state *state;        /* NULL: none */
    /* NULL, or the heads of each layer (kv_heads_of): n_kv_heads and head_dim are then the largest ones, and
     * block_bytes and head_bytes are those of such a head. Only with host_memory */
    const struct kv_heads *heads;
    size_t ring;                             /* blocks of a ring; 0: no layer is one */
};
static inline struct kv_heads device_kv_heads(const struct device_kv *kv, size_t l)
{
    return kv_heads_of(kv->heads, kv->n_kv_heads, kv->head_dim, l);
}
/* The own blocks of a head. Where those of a layer begin, and its scratch. */
static inline size_t device_kv_own(const struct device_kv *kv) { return kv->head_bytes / kv->block_bytes; }
static inline char *device_kv_base(const struct device_kv *kv, size_t l)
{
    const struct kv_heads g = device_kv_heads(kv, l);
    return kv->base + kv_bytes_before(kv->type, &g, device_kv_own(kv), kv->ring);
}
/* The blocks of a ring; 0: the layer is none. */
static inline size_t device_kv_ring(const struct device_kv *kv, size_t l)
{
    return kv->ring && kv->heads[l].ring ? kv->ring : 0;
}
static inline char *device_kv_scratch(const struct device_kv *kv, size_t l)
{
    const struct kv_heads g = device_kv_heads(kv, l);
    return kv->scratch + kv->node_max * kv_rows_of(kv->type, g.first, g.dims);
}

/* The rows of a pass. The arrays are host memory; begin reads them before it returns, `cpu` until `end`. */
struct device_seq {                  /* consecutive rows of one sequence */
    const struct device_kv *kv;
    size_t row0, n;
    size_t n_past;                   /* committed rows of the cache */
    /* true: K and V go to scratch node node0 + row - row0; false: to slot pos[row] of the cache */
    bool tree;
    /* The rows are certain: states take them at once. Otherwise states keep them, and they are at most
     * kept_max. */
    bool certain;
    bool shifted;  /* windows do not apply: the owner of the cache selected its rows (a partial cache) */
    /* NULL, or [n_layers][n_kv_heads][importance_step]: importance to the first row, as defined at struct
     * attn. With host_memory [n_kv_heads][importance_step], of the layer of the latest `attend`. */
    float *importance;
    size_t importance_step;
    /* scratch nodes of earlier passes, which the paths of these rows may name; only with host_memory */
    size_t node0;
};
struct device_rows {
    size_t n, n_seqs;
    const struct device_seq *seq;    /* [n_seqs] */
    const int32_t *token;            /* [n] */
    /* [n] slot in the cache; committed slots below hi are visible: hi = pos + 1, or n_past in a tree */
    const uint32_t *pos, *hi;
    const uint32_t *angle;           /* [n] position for RoPE: pos, or pos + shift */
    /* [n], [n][node_step]: the path of a tree row in the scratch, root first, the row last; it has positions
     * hi .. */
    const uint32_t *n_node, *node;
    size_t node_step;
    size_t n_want; const uint32_t *want;   /* rows with wanted logits, ascending, for gather */
    /* see rope_angles; n_freq is half of the head_dim before padding */
    const float *inv_freq; size_t n_freq; float rope_factor;
    /* a query is multiplied by 1 + growth ln(1 + floor(angle / growth_length)); growth 0: by 1. Only with
     * host_memory */
    double growth; size_t growth_length;
    /* [n_local] frequencies of the layers whose device_rope says `local`, with a rope_factor of 1; NULL: no
     * such layers. Only with host_memory */
    const float *local_freq; size_t n_local;
};
/* The first value, in order of (place, row), that was not finite. `place` is the number given to the
 * operation. */
struct device_bad { bool any; size_t row, place; };

/* Selection of the rows of partial caches (kvmgr/partial.h), for all layers and heads at once. */
struct device_selection {
    /* device memory [n_layers][n_kv_heads][importance_step] */
    const float *importance; size_t importance_step;
    /* host memory [n_layers]: `importance` is defined for positions from .. n_past-1 */
    const uint32_t *from;
    size_t n_layers, n_kv_heads, n_past, sinks, budget;
    /* device memory [n_layers][n_kv_heads][row_step]: the result, the row of the text for each slot below
     * budget */
    uint32_t *row; size_t row_step;
    void *work;                      /* device memory: select_bytes of the same or larger sizes */
};

/* head_dim: of the model; padded: by device->head_dim */
struct device_heads {
    size_t n_heads, n_kv_heads, head_dim, padded;
    const float *logit;              /* of `attend`: see struct attn; or NULL */
};

/* Arguments of the operations `product` and `rope`, described there. */
struct device_product {
    float *y; size_t ldy;
    const void *x; size_t n;
    const struct mat *w;             /* [n_w] of the same k: their outputs follow each other */
    const float *bias;
    bool add;
    size_t place;
    size_t n_w;                      /* 0: one matrix; more than one only with host_memory */
};
struct device_rope {
    void *q; float *qkv;
    const struct device_heads *heads;
    size_t layer;
    const float *q_norm, *k_norm; float eps;
    /* they are norms of all heads at once, and padded is head_dim; only with host_memory */
    bool whole;
    float *q_tap;
    /* rows of qkv are q alone, and nothing is stored; only with host_memory */
    bool queries;
    /* rows of qkv have a gate after each head of q; only with host_memory */
    bool gated;
    bool local;                      /* the angles are those of local_freq */
    /* values are divided by their root mean square, too; rows of qkv have no values, which are the keys
     * before their norm (the place of values is there). Only with host_memory */
    bool v_norm, v_is_k;
    double scalar;                   /* head_dim in the factor on q; 0: head_dim. Only with host_memory */
};

/* A layer of Gated DeltaNet over the rows of the pass, between its two products: kernels/delta.h. */
struct device_delta {
    void *out;                       /* act [n][value_heads][value_dim] */
    const float *mixed;              /* [n][channels + value_heads * (value_dim + 2)]: q, k, v, z, b, a */
    const struct delta_shape *shape;
    const float *conv;               /* [conv][channels] */
    const float *decay, *dt_bias;    /* [value_heads] */
    const float *norm; float eps;    /* [value_dim] */
    size_t layer;                    /* among those with a state */
};

/* An expert: a feed-forward network of a few rows. gate_up: one or two matrices of `hidden` inputs, whose
 * outputs follow each other, gate [ffn], then up [ffn]. down: [hidden, ffn]. */
struct device_expert {
    struct mats gate_up; struct mat down;
    float *gate_up_bias, *down_bias;                 /* or NULL */
};
/* The feed-forward part of a layer with a mixture of experts. For each row x:
 *
 *     r      = router . norm(x), as "dot f32" over the floats of the norm (ops.h)
 *     chosen = the `used` largest of r, the lower id on ties
 *     w      = softmax(r) over all experts; with `normalise` then divided by the sum of the chosen, ascending
 *     x      = x + w[e] * down(silu(gate) * up), for the chosen experts e, ascending
 *
 * A shared expert, which every row has, is added last. Its w is sigmoid(s), the first of softmax(s, 0), with
 * s = shared_gate . norm(x), a product as r. A row whose s is not finite is reported, too.
 *
 * The products of an expert are those of `product` and `swiglu`; up to the rounding for the next product, the
 * norm and silu(gate) * up are floats. A row whose r is not finite is reported under `place`.
 *
 * With router_bias it is added to r, and biases of an expert to its products. With `limit` the gate is at
 * most limit, up is within -limit .. limit, and the hidden row is gate * sigmoid(alpha * gate) * (up + 1),
 * computed as silu(g) * u with g = alpha * gate and u = (up + 1) * (1 / alpha).
 *
 * The matrices of all experts but the shared one have the same types. */
struct device_experts {
    float *x; size_t n;              /* [n][router->k] */
    const float *norm; float eps;
    const struct mat *router;        /* [n_experts] outputs, of BF16, F16 or F32 */
    const struct device_expert *expert;      /* [n_experts] */
    size_t n_experts, used, ffn;
    bool normalise;
    size_t place;
    const struct device_expert *shared;      /* NULL: none */
    const struct mat *shared_gate;   /* one output, of BF16, F16 or F32 */
    size_t shared_ffn;
    const float *router_bias;        /* [n_experts], or NULL */
    float alpha, limit;              /* limit 0: silu(gate) * up */
    bool gelu;                       /* gelu(gate) * up */
    /* NULL, or other weights of the norm before the router; or factors on the weights w, [n_experts]; or what
     * the sum is added to in place of x */
    const float *router_norm, *expert_scale; float *to;
};

/* n_max: slots of the longest cache; n_out_max, n_in_max: largest sizes of products; experts: those of a
 * layer, zeros without any; ffn: of the widest, the shared one included; delta: zeros without states; local:
 * some passes have local_freq */
struct device_limits { size_t rows_max, n_max, node_max, n_out_max,
                       vocab; struct device_heads heads; size_t n_in_max;
                       struct { size_t n, used, hidden, ffn; } experts;
                       struct delta_shape delta;
                       bool local; };

/* Sampling on the device. The chain executes the steps of src/sample/sample.h; the rows of logits differ in
 * the tokens before them. */
enum device_step { DEVICE_TEMPERATURE, DEVICE_TOP_K, DEVICE_TOP_P, DEVICE_MIN_P, DEVICE_ETA, DEVICE_PENALTIES,
                   DEVICE_BIAS, DEVICE_DRY, DEVICE_STEPS };
struct device_edit { uint32_t id; double add; };  /* logit + add, within +-FLT_MAX; -inf bans the token */
/* changes of the text's counts by a row's path */
struct device_count { uint32_t id; int32_t window, text; };
struct device_chain {
    double temperature;              /* 0: take the largest logit and skip the filters */
    size_t top_k, min_keep;          /* top_k 0: off */
    double top_p, min_p, eta;        /* 1, 0, 0: off */
    double penalty, presence, frequency;
    enum device_step order[DEVICE_STEPS]; size_t n_order;
    uint64_t seed; uint32_t sample;  /* key of the coins */
    /* NULL, or device memory [2][vocab]: occurrences in the penalty window and in the generated text */
    const uint32_t *counts;
};
/* One token to sample: its row of logits, its coin, and its parts of the lists. */
struct device_pick {
    uint64_t position;               /* of the coin */
    uint32_t row;
    uint32_t edit, n_edit;           /* biases and bans: edits edit .. edit + n_edit - 1, no id twice */
    uint32_t dry, n_dry;             /* DRY penalties in the same list; no id twice */
    uint32_t count, n_count;         /* no id twice; at most 128 */
    uint32_t spare;
};
struct device_picks {              /* the arrays are host memory */
    const struct device_pick *pick; size_t n;
    const struct device_edit *edit; size_t n_edit;
    const struct device_count *count; size_t n_count;
    /* device memory: sample_bytes of at least as many picks, edits and counts */
    void *work;
};
struct device_candidate { int32_t id; float score; };      /* as struct candidate of src/sample/sample.h */

struct device {
    const char *kind;                /* "cpu", "cuda", "emulated" */
    char name[128];                  /* for people: "cuda:0 NVIDIA H200" */
    char numerics[32];
    char id[160];                    /* of the GPU and its driver, whatever its number; "": a CPU */
    char error[512];                 /* "": no error */
    size_t graph_bytes;              /* device memory for recorded passes, which alloc does not see */
    enum dtype kv_type;              /* type of its caches */
    bool compute_f32, host_memory;   /* host_memory: the host may follow the device's pointers */
    bool quantised;                  /* device_quantised: act is float */
    size_t downloaded, waits;  /* bytes downloaded to the host, and number of waits; 0 with host_memory */
    size_t played;                   /* passes launched from a recording */
    size_t experts_read;             /* since `begin`: experts whose weights were read, over all layers */

    void (*close)(struct device *);

    /* ---- memory ---- */
    /* zeroed, 256-byte aligned; NULL: out of memory. free destroys recorded graphs. */
    void *(*alloc)(struct device *, size_t bytes);
    void  (*free)(struct device *, void *p, size_t bytes);
    size_t (*bytes_free)(struct device *);  /* about the number of bytes that alloc can give now */
    /* src may be reused at once */
    void  (*upload)(struct device *, void *dst, const void *src, size_t bytes);
    /* waits for all calls before it; returns 0, or -1 with `error` */
    int   (*download)(struct device *, void *dst, const void *src, size_t bytes);
    void  (*copy)(struct device *, void *dst, const void *src, size_t bytes);        /* device to device */
    void  (*zero)(struct device *, void *dst, size_t bytes);
    void  (*fetch_mark)(struct device *);  /* fetch_mark and fetch: NULL with host_memory */
    /* Callable from any thread. Returns 0, or -1 with the reason in why. */
    int   (*fetch)(struct device *, void *dst, const void *src, size_t bytes, char *why, size_t why_size);

    /* Writes n bf16 values of about a normal distribution with this deviation, a function of seed and index.
     * For measurements, not for sampling. */
    void  (*noise)(struct device *, void *dst, size_t n, uint64_t seed, float deviation);

    /* head_dim padded as caches and attention need it; 0: not supported */
    size_t (*head_dim)(const struct device *, size_t head_dim);
    /* Matrices: struct mat with n, k and the type that mat_type gives for the stored type. w is mat_size
     * bytes of device memory, zeroed; the device decides the layout. mat_put takes rows from the host,
     * row-major, in any order; with host_memory several threads may put different rows at once. */
    enum dtype (*mat_type)(const struct device *, enum dtype stored, enum dtype compute);
    size_t (*mat_size)(const struct device *, enum dtype type, size_t n, size_t k);
    void (*mat_put)(struct device *, struct mat *m, size_t r0, size_t n, const void *src, enum dtype from);

    /* ---- a pass ---- */
    void (*begin)(struct device *, const struct device_rows *);
    bool (*graph_begin)(struct device *, uint64_t key);
    bool (*graph_end)(struct device *);
    int  (*end)(struct device *, struct device_bad *);

    /* x[r] = row token[r] of the table. packed: a matrix as above; otherwise row-major [n][k] of
     * table->type. */
    void (*embed)(struct device *, float *x, const struct mat *table, bool packed);
    /* y = act(x / sqrt(mean(x^2) + eps) * w), [n][dim]. A row of x that is not finite is reported under
     * `place` unless `place` is SIZE_MAX. w NULL: y = act(x); only with host_memory. */
    void (*rmsnorm)(struct device *, void *y, const float *x, const float *w, size_t n, size_t dim, float eps,
                    size_t place);
    /* x[r] += y[r] / sqrt(mean(y[r]^2) + eps) * w, [n][dim]; y is overwritten. NULL: not supported */
    void (*norm_add)(struct device *, float *x, float *y, const float *w, size_t n, size_t dim, float eps);
    /* x *= factor, n values. NULL: not supported */
    void (*scale)(struct device *, float *x, float factor, size_t n);
    /* x = cap * tanh(x / cap), [n][dim] (ops.h). NULL: not supported */
    void (*softcap)(struct device *, float *x, float cap, size_t n, size_t dim);
    /* y[r*ldy + i] = (add ? y : 0) + (x[r] . w[i] + bias[i]), x act [n][w->k]; bias may be NULL. A result
     * that is not finite is reported under `place` unless `place` is SIZE_MAX. */
    void (*product)(struct device *, const struct device_product *);
    /* qkv [n][n_heads + 2 n_kv_heads][padded]. Applies the norms of q and k if given ([head_dim], else NULL)
     * and RoPE, and stores K and V into the caches or their scratch. Writes q = act(q *
     * log2(e)/sqrt(head_dim)) in the order that attend needs (n * n_heads * padded act). q_tap: NULL, or
     * receives the queries, rotated and unscaled, [n][n_heads][head_dim]. */
    void (*rope)(struct device *, const struct device_rope *);
    /* out = act [n][n_heads][padded]: attention of every row over its cache. window 0: over the whole
     * cache. */
    void (*attend)(struct device *, void *out, const void *q, const struct device_heads *, size_t layer,
                   size_t window);
    /* h = act(silu(g) * u), gate_up [n][2 ffn]: g, then u. */
    void (*swiglu)(struct device *, void *h, const float *gate_up, size_t n, size_t ffn);
    /* The same with gelu (ops.h). NULL: not supported */
    void (*geglu)(struct device *, void *h, const float *gate_up, size_t n, size_t ffn);
    /* See struct device_experts. NULL: the device does not support experts. */
    void (*experts)(struct device *, const struct device_experts *);
    /* out = act(out * sigmoid(gate)), with the gates of `gated` rows of qkv. */
    void (*gate)(struct device *, void *out, const float *qkv, const struct device_heads *);
    /* See struct device_delta. NULL, as for gate: the device does not support hybrids. */
    void (*delta)(struct device *, const struct device_delta *);
    /* dst row i = src row want[i] of the pass, rows of row_bytes (a multiple of 4); dst differs from src. */
    void (*gather)(struct device *, void *dst, const void *src, size_t row_bytes);
    /* y float = x act, n values, for TAP_HIDDEN; narrow converts back with rounding. */
    void (*widen)(struct device *, float *y, const void *x, size_t n);
    void (*narrow)(struct device *, void *y, const float *x, size_t n);
    /* Working memory of the operations, owned by the device: chunk states, tables of a pass, parts of
     * products of up to n_out_max columns. Call reserve before any operation except those on memory and
     * mat_put, and again when a limit grows. Returns 0, or -1 when out of memory. reserve_bytes: the size. */
    size_t (*reserve_bytes)(const struct device *, const struct device_limits *);
    int    (*reserve)(struct device *, const struct device_limits *);

    /* ---- caches: all layers and heads; NULL with host_memory, where kvmgr/ does the work ---- */
    /* Copies scratch node[i] to slot n_past + i: commits a path. */
    void (*kv_commit)(struct device *, const struct device_kv *, size_t n_past, const uint32_t *node,
                      size_t n);
    /* Copies slot from[i] of src to slot to[i] of dst, which has the same layers, heads and head_dim. No slot
     * is both source and target, and no slot is twice in `to`. */
    void (*kv_copy)(struct device *, const struct device_kv *dst, const struct device_kv *src,
                    const uint32_t *from, const uint32_t *to, size_t n);
    /* Zeroes slots from .. to-1. */
    void (*kv_zero)(struct device *, const struct device_kv *, size_t from, size_t to);
    /* row[..][i] = i for i < sinks. The next budget - sinks slots get, per layer and head, the rows of
     * largest importance among from' = max(from, sinks) .. n_past-1, best first, the later row on ties; where
     * these are too few, the rows before from' follow, the nearest first. */
    void (*kv_select)(struct device *, const struct device_selection *);
    size_t (*select_bytes)(const struct device *, size_t n_layers, size_t n_kv_heads, size_t budget);
    /* Copies slot row[layer][head][i] of src to slot i of dst, i < n. */
    void (*kv_gather)(struct device *, const struct device_kv *dst, const struct device_kv *src,
                    const uint32_t *row, size_t row_step, size_t n);

    /* ---- logits; NULL with host_memory, where src/sample/sample.h does the work ---- */
    /* counts[0][id] += window, counts[1][id] += text. The list is host memory and has no id twice. */
    void (*count)(struct device *, uint32_t *counts, size_t vocab, const struct device_count *, size_t n);
    /* best: host memory [n][k], k <= 32. It receives the result of sampler_rank for each pick, best first,
     * then id -1; the first candidate is the token of sampler_sample. logits [..][vocab] do not change.
     * Waits; returns 0, or -1 with `error`. */
    int (*sample)(struct device *, struct device_candidate *best, size_t k, const float *logits, size_t vocab,
                  const struct device_chain *, const struct device_picks *);
    size_t (*sample_bytes)(const struct device *, size_t n, size_t n_edit, size_t n_count, size_t vocab);
};

/* Says whether the model of the next passes has quantised weights. Then the numerics id ends with "-q1":
 * "cpu-1-int16-q1". Only `cpu` can; call it while no pass is under way, before workspaces open. */
void device_quantised(struct device *, bool quantised);
/* Type of the caches that drafters fill from layers of their own. */
static inline enum dtype device_draft_kv(const struct device *d)
{
    return kv_form(d->kv_type).rotated ? DT_I16 : d->kv_type;
}
/* Type of act. */
static inline enum dtype device_act(const struct device *d)
{
    return d->compute_f32 || d->quantised ? DT_F32 : DT_BF16;
}

/* y [rows][w->n] = (add ? y : 0) + x . w, x [rows][w->k] of act, shared out over a pool: the product of
 * `cpu`, for training. */
void pool_product(struct pool *, const struct ops *, float *y, enum dtype act, const void *x, size_t rows,
                  const struct mat *w, bool add);

/* Return 0, or -1 with the reason in why (one line). The pool is borrowed. */
int device_cpu_open(struct device **, const struct ops *, struct pool *, enum dtype kv_type, char *why,
                    size_t why_size);
int device_cuda_open(struct device **, size_t ordinal, char *why, size_t why_size);

/* A further kind of device, which the words "NAME", "NAME:N" and "NAME:all" select. A program adds one by
 * setting device_added before main. The product adds none; test programs add the emulated GPU
 * (tests/emulated). */
struct device_kind {
    const char *name;
    size_t count;                    /* devices of this kind */
    bool automatic;                  /* --device auto takes it as the first GPU */
    int (*open)(struct device **, char *why, size_t why_size);
};
extern const struct device_kind *device_added;      /* NULL: none */
/* Whether the word selects the added kind. */
bool device_is_added(const char *word);

/* Number of GPUs that can be opened; 0 with the reason in why. A build without CUDA and a machine without a
 * driver have none. */
size_t device_cuda_count(char *why, size_t why_size);
/* Whether one of the two failed although this machine has a GPU or its driver: the driver is too old, or the
 * GPU did not open. */
bool device_cuda_is_refused(void);
/* The architectures for which this binary has kernels, read from the images: "sm_80 sm_89 .. compute_80"; ""
 * without CUDA. */
const char *device_cuda_images(char *text, size_t size);
