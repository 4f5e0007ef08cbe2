/* A model: weights, immutable, shared by all decoders of the process. And the forward pass, written once
 * for a list of (cache, rows). No other file knows what a layer is made of.
 *
 * Weights, caches and logits lie in the memory of the model's device (kernels/device.h); the host follows such a pointer only
 * where device->host_memory is set. */
#pragma once
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "kvmgr/kv.h"
#include "src/model/config.h"
#include "src/model/safetensors.h"

struct layer {                           /* all of it the device's */
    float *norm_attn, *norm_mlp;         /* [hidden] */
    struct mat qkv;                      /* [(n_heads + 2 n_kv_heads) * head_dim_padded, hidden] */
    float *qkv_bias;                     /* or NULL */
    float *q_norm, *k_norm;              /* [head_dim] or NULL */
    struct mat o;  float *o_bias;        /* [hidden, n_heads * head_dim_padded] */
    struct mat gate_up; float *gate_up_bias;   /* [2 * ffn, hidden]: gate rows, then up rows */
    struct mat down; float *down_bias;   /* [hidden, ffn] */
};

struct model {                           /* {0} is closed */
    struct config config;
    enum dtype compute;                  /* DT_BF16 or DT_F32: activations. Caches hold dev->kv_type */
    struct device *dev;                  /* where passes run; borrowed */
    const struct ops *ops;               /* the host's, for sampling and training */
    struct pool *pool;
    size_t head_dim;                     /* config.head_dim as the device pads it: geometry of the cache */
    struct layer *layers;
    /* row-major [vocab][hidden] (type as stored), or w == NULL: tied, use lm_head */
    struct mat embed;
    struct mat lm_head;
    float *norm_final;
    float *inv_freq, rope_factor;        /* the host's */
    size_t weight_bytes, n_params;
    char path[4096];
    void *mem; size_t mem_bytes;         /* one allocation of the device holds all weights */
};

/* Report of loading: done of total bytes. false: stop, with ERR_AGAIN. */
typedef bool model_progress(void *ctx, size_t done, size_t total);

/* Bytes that model_open will hold, from the configuration alone. */
int model_plan_bytes(const struct config *c, const struct tensors *ts, enum dtype compute,
                     const struct device *dev, size_t *bytes, struct err *e);
/* Read `dir` into the device's form. `config` was read from the same directory. Device, ops and pool are borrowed. */
int model_open(struct model *m, const char *dir, const struct config *config, enum dtype compute,
               struct device *dev, const struct ops *ops, struct pool *pool, model_progress *progress,
               void *ctx, struct err *e);
/* The same, with random weights that are made on the device (normal, deviation 1/sqrt(k); norms are 1; no biases): for measuring. Not with host_memory. */
int model_random(struct model *m, const struct config *config, struct device *dev, const struct ops *ops,
                 struct pool *pool, uint64_t seed, struct err *e);
void model_close(struct model *m);

/* The same model for drafts, which need not be exact: its matrices in 8 bits (mat_quantize), half of what a pass reads and less to multiply. Norms, biases and
 * configuration are `from`'s, which outlives it. Passes of either share workspaces and caches. Only with host_memory. */
size_t model_quantized_bytes(const struct config *c, const struct device *dev);
int model_quantize(struct model *to, const struct model *from, model_progress *progress, void *ctx,
                   struct err *e);

/* What a pass leaves behind for drafters and importance scoring, besides the logits; `out` is the host's. */
enum tap_kind { TAP_RESIDUAL,            /* [rows][hidden]: entering layer `layer`; layer == n_layers: before the final norm */
                TAP_HIDDEN,              /* [rows][hidden]: after the final norm (as act, widened to float) */
                TAP_QUERY };             /* [rows][n_heads][head_dim]: rotated, unscaled, of layer `layer` */
struct tap { enum tap_kind kind; size_t layer; float *out; };

/* The rows of one decoder in a pass. */
struct pass_seq {
    struct kv *kv;
    size_t n;                            /* rows */
    const int32_t *token;                /* [n] */
    const int32_t *parent;               /* NULL: rows stand at n_past, n_past+1, .. and go to the cache, to be kept by kv_advance.
                                          * else a tree: parent[i] < i, or -1: child of the committed text; K,V go to node scratch i */
    const uint8_t *want;                 /* [n] rows whose logits are wanted; NULL: the last row only */
    float *logits;                       /* the device's [wanted rows][vocab], in order of rows; may be NULL when none is wanted */
    size_t shift;                        /* position of a row = its slot in the cache + shift. With a shift windows do not apply: a partial cache
                                          * holds what its owner chose */
    /* Or NULL: called for every layer with what its first row's query thinks of the committed keys (struct attn, importance):
     * score[h * step + position] (the device's), defined where the layer's window reaches, that is from `from` to kv->n_past - 1. */
    void (*scored)(void *ctx, size_t layer, const float *score, size_t step, size_t from);
    void *scored_ctx;
};

/* Buffers of a pass: sized once for at most rows_max rows and context n_max. Products of up to MODEL_ROWS_MIN rows are always possible. */
enum { MODEL_ROWS_MIN = 32 };
struct workspace;
size_t workspace_bytes(const struct model *m, size_t rows_max, size_t n_max);
int workspace_open(struct workspace **w, const struct model *m, size_t rows_max, size_t n_max, struct err *e);
void workspace_close(struct workspace *w);

/* One pass over all rows of all sequences. Caches are written but not advanced. Fails (ERR_FAILED) when a residual
 * or logit is not finite, naming position and layer; the caches are then to be truncated or closed. */
int model_forward(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                  const struct tap *taps, size_t n_taps, struct err *e);

/* The same in two halves: between them the device may be asked for what it makes of the pass, where that waits for it anyhow (src/sample/device_sampler.h), so that there is one
 * wait and not two. Nothing of the pass may be believed before the second half. In the host's memory the first does all: what is not finite never gets there. */
int model_forward_begin(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                struct err *e);
int model_forward_end(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
              struct err *e);

/* [rows][hidden], the device's: what entered the final norm in the last pass. Until the next one. */
const float *workspace_residual(const struct workspace *w);

/* Rows of a matrix of `hidden` columns, as the device packed it: as floats [n][hidden] of the host, and as act of the device; either may be NULL. n <= rows_max.
 * 0, or -1 with the device's error. */
int model_mat_rows(const struct model *m, struct workspace *w, const struct mat *mat, const int32_t *row,
                   size_t n, float *rows, void *act);
/* y [rows][w->n] = (add ? y : 0) + the product of x [rows][w->k] (act) and w, all the host's, shared out over the pool: for training. */
void model_product(const struct model *m, float *y, const void *x, size_t rows, const struct mat *w,
                   bool add);
