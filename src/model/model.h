/* A model: weights, immutable and shared by all decoders of the process. And the forward pass, written once
 * for a list of (cache, rows). No other file knows the parts of a layer.
 *
 * Weights, caches and logits lie in the memory of the model's device (kernels/device.h). The host reads
 * them through such a pointer only if device->host_memory is set. */
#pragma once
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "kvmgr/kv.h"
#include "src/model/layer.h"
#include "src/model/model_files.h"

struct model {                           /* {0} is closed */
    struct config config;
    enum dtype compute;                  /* DT_BF16 or DT_F32. Caches hold dev->kv_type */
    bool quantised;                      /* some matrix has quantised weights */
    struct device *dev;                  /* runs the passes; borrowed */
    const struct ops *ops;               /* the host's, for sampling and training */
    struct pool *pool;
    size_t head_dim;                     /* config.head_dim as the device pads it: geometry of the cache */
    struct layer *layers;
    struct device_expert *experts;       /* of all layers, or NULL */
    struct mat embed;                    /* row-major [vocab][hidden] as stored; w NULL: use lm_head */
    bool embed_packed;                   /* of a draft layer: embed is a matrix, such as lm_head */
    struct mat lm_head;
    float *norm_final;
    /* Of a draft layer (mtp.h), else empty. Its rows are fuse [token; state], [hidden, 2 hidden]: the
     * embedding of the row's token and the hidden state before the row, each with its norm. */
    struct mat fuse;
    float *norm_token, *norm_state;
    struct mat project;                  /* of a drafter (assistant.h): [backbone, hidden]; no norms */
    /* With embeddings of each layer (per_layer.h): [n_layers * per_layer, hidden], [per_layer]. The table in
     * `files`, which stay open; NULL: random weights. A copy borrows the files. */
    struct mat per_layer_in; float *norm_per_layer;
    struct tensors *files; const struct tensor *table; bool borrows_files;
    uint64_t table_stamp;                /* of the file when it was opened: tensor_stamp */
    float *inv_freq, rope_factor;        /* the host's */
    float *local_freq;                   /* of the local layers; or NULL */
    float embed_scale;                   /* factor on the embeddings */
    size_t weight_bytes;
    size_t expert_bytes;                 /* of weight_bytes: of all experts */
    char path[4096];
    void *mem; size_t mem_bytes;         /* one allocation of the device holds all weights */
};

/* Lists the tensors outside of the layers, in the order of loading, and returns their number. The layers are
 * loaded before the final norm. ts: the files, or NULL. A draft layer has an embedding and an LM head of its
 * own only if the files have them. */
enum { MODEL_PARTS_MAX = 14 };
size_t model_parts(struct layer_part p[MODEL_PARTS_MAX], const struct config *c, const struct tensors *ts);

/* The heads of a layer with attention, as the device pads them. */
static inline struct device_heads model_heads(const struct model *m, size_t layer)
{
    const struct layer_spec *s = &m->config.layer[layer];
    return (struct device_heads){ m->config.n_heads, s->n_kv_heads, s->head_dim,
                                  m->config.heads_differ ? s->head_dim : m->head_dim, NULL };
}

/* Progress of loading: `done` of `total` bytes. false stops the load with ERR_AGAIN. */
typedef bool model_progress(void *ctx, size_t done, size_t total);
struct fingerprint;

/* The parameters of model_open. Everything is borrowed; config may end with the call. */
struct model_setup {
    const struct config *config;         /* read from the model's directory */
    enum dtype compute;
    struct device *dev;
    const struct ops *ops;
    struct pool *pool;
    model_progress *progress; void *ctx; /* progress may be NULL */
    enum weights weights;                /* of model_open */
    struct fingerprint *fingerprint;     /* NULL, or begun: model_open fills its digests */
    /* Of model_random. DT_OTHER: bf16 weights; else this quantised type for every matrix. random_mix: types
     * as in the files that people have: the LM head is Q6_K (Q8_0 in Q8_0), with Q4_K a part of the others is
     * Q6_K (Q4_K_M), and rows that are no multiple of 256 get Q5_0 for Q4_K and Q8_0 for Q6_K. */
    enum dtype random; bool random_mix;
    /* Of model_random: NULL, or the device, with host_memory, that makes the values of a small model. Then
     * they are the same on every device, and those of vectors are random, too. */
    struct device *maker;
};

/* The bytes that model_open will hold, from the configuration alone. */
int model_plan_bytes(const struct config *c, const struct tensors *ts, enum dtype compute,
                     const struct device *dev, size_t *bytes, struct err *e);
/* Reads the weights of `dir` into the device's form. */
int model_open(struct model *m, const char *dir, const struct model_setup *s, struct err *e);
/* Makes a model with random weights on the device, for measuring: normal values with deviation 1/sqrt(k),
 * norms 1, biases 0. */
int model_random(struct model *m, const struct model_setup *s, uint64_t seed, struct err *e);
void model_close(struct model *m);
/* Layers with experts. Bytes of the mean expert, and the bytes of weights that a pass of one row reads. */
size_t model_expert_layers(const struct model *m);
double model_bytes_an_expert(const struct model *m);
double model_row_bytes(const struct model *m);
/* The first tensor with quantised weights; NULL: none. */
const struct tensor *model_quantised(const struct tensors *ts);
static inline bool model_is_quantised(const struct tensors *ts) { return model_quantised(ts); }
/* The cache of a text of n_max positions, with node_max nodes. Layers with a recurrent state have no keys. */
struct kv_size model_cache(const struct model *m, size_t n_max, size_t node_max);
/* The same where layers with a window are rings, for passes of at most RING_PASS rows. */
struct kv_size model_text_cache(const struct model *m, size_t n_max, size_t node_max);
/* Bytes of one position in a cache of the model, and in one that a drafter fills from its own layers. */
double model_kv_bytes(const struct model *m);
double model_windowed_bytes(const struct model *m);
double model_draft_kv_bytes(const struct model *m);
/* Type of activations (act). */
static inline enum dtype model_act(const struct model *m) { return m->quantised ? DT_F32 : m->compute; }

/* A copy of a model for draft passes, which need not be exact: its matrices have 8 bits (mat_quantize),
 * half of the bytes that a pass reads. Norms, biases and configuration belong to `from`, which must
 * outlive the copy. Passes of either model share workspaces and caches. Only for a device with
 * host_memory. */
size_t model_quantized_bytes(const struct config *c, const struct device *dev);
/* Makes the copy. 0; 1: `progress` stopped it after a layer, and a further call with the same `to` and *done
 * goes on; -1: `to` is closed. *done is {0} before the first call, and may be NULL without `progress`. */
struct model_quantized { size_t layers, bytes; bool whole; };
int model_quantize(struct model *to, const struct model *from, struct model_quantized *done,
                   model_progress *progress, void *ctx, struct err *e);

/* Quantises one matrix of 16 bits or floats into `to`, a DT_I8 matrix of the same size. */
void model_quantize_mat(struct mat *to, const struct mat *from, struct pool *pool);

/* A tap copies an intermediate result of a pass to the host's `out`. The draft layer reads its
 * hidden states through one, and tests read all of them. */
enum tap_kind {
    TAP_RESIDUAL,                        /* [rows][hidden], entering layer `layer`; layer == n_layers:
                                          * entering the final norm */
    TAP_HIDDEN,                          /* [rows][hidden], after the final norm (act, widened to float);
                                          * of a drafter (assistant.h) [rows][backbone], after `project` */
    TAP_QUERY,                           /* [rows][n_heads][head_dim], rotated, unscaled, of layer `layer` */
};
struct tap { enum tap_kind kind; size_t layer; float *out; };

/* The rows of one decoder in a pass. */
struct pass_seq {
    struct kv *kv;
    size_t n;                            /* rows */
    const int32_t *token;                /* [n] */
    const int32_t *parent;               /* NULL: the rows continue the text at n_past, n_past + 1, .. and
                                          * go to the cache; kv_advance keeps them. Else [n], a tree:
                                          * parent[i] < i, or -1 for a child of the committed text; K and V
                                          * go to node scratch i */
    const uint8_t *want;                 /* [n] rows whose logits are wanted; NULL: the last row */
    float *logits;                       /* the device's [wanted rows][vocab]; NULL if none is wanted */
    size_t shift;                        /* position of a row = its slot in the cache + shift. With a shift
                                          * windows do not apply: the owner of a partial cache chose its
                                          * rows */
    /* The rows continue the text for certain, and recurrent states take them at once. Otherwise they are at
     * most as many as the cache has nodes (one without any). Chains only. */
    bool certain;
    /* Importance of the committed keys to the query of the sequence's first row (struct attn, importance),
     * or NULL. Called for every layer: score[h * step + position], the device's, for positions `from` ..
     * kv->n_past - 1. Positions outside the layer's window have no score. */
    void (*scored)(void *ctx, size_t layer, const float *score, size_t step, size_t from);
    void *scored_ctx;
    /* With a parent: rows of earlier passes over this tree, whose K and V are in the scratch. parent then has
     * node0 + n entries, and row j is node node0 + j. Only with host_memory, and without states. */
    size_t node0;
    /* The caller reads nothing but the cache. Then layers run only as far as it needs, if no row of the pass
     * has wanted logits. */
    bool cache_only;
    /* of a draft layer: the host's [n][hidden] (struct model, fuse); of a drafter its inputs (assistant.h) */
    const float *state;
    /* The rows are written nowhere. All stand at the position after the committed rows and see these. Only
     * for a model whose layers have no keys and values. */
    bool reads;
};

/* The arrays of struct device_rows, in the host's memory: rows of a pass, each with at most `step` nodes of a
 * tree. */
struct pass_rows {
    int32_t *token;
    uint32_t *pos, *hi, *n_node, *angle, *node;          /* node: [rows][step] */
    struct device_kv *kv;
    struct device_seq *seq;
    size_t step;
};
/* The first n rows, of n_seqs texts. */
struct device_rows pass_rows_of(const struct model *m, const struct pass_rows *r, size_t n, size_t n_seqs);
/* Fills in row r, which sees the slots below hi, and n_node nodes. */
static inline void pass_row(struct pass_rows *p, size_t r, int32_t token, size_t pos, size_t hi, size_t angle,
                            size_t n_node)
{
    p->token[r] = token;
    p->pos[r] = (uint32_t)pos, p->hi[r] = (uint32_t)hi;
    p->angle[r] = (uint32_t)angle, p->n_node[r] = (uint32_t)n_node;
}

/* The buffers of a pass, sized once for rows_max rows and context n_max. Products of up to MODEL_ROWS_MIN
 * rows are always possible. */
enum { MODEL_ROWS_MIN = 32 };
struct workspace;
size_t workspace_bytes(const struct model *m, size_t rows_max, size_t n_max);
int workspace_open(struct workspace **w, const struct model *m, size_t rows_max, size_t n_max, struct err *e);
void workspace_close(struct workspace *w);

/* One pass over all rows of all sequences. It writes the caches but does not advance them. ERR_FAILED if a
 * residual or a logit is not finite, with position and layer; the caller must then truncate or close the
 * caches. A draft layer of whose rows none has logits writes its cache alone. */
int model_forward(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                  const struct tap *taps, size_t n_taps, struct err *e);

/* A pass in two halves. Between them the caller may ask the device for results made from the logits
 * (src/sample/device_sampler.h), so that both need a single wait. No result is valid before the second
 * half returns 0. With host_memory the first half does all the work, and a result that is not finite fails
 * there. */
int model_forward_begin(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                        struct err *e);
int model_forward_end(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                      struct err *e);

/* [rows][hidden], the device's: the residual that entered the final norm in the last pass. Valid until the
 * next pass. */
const float *workspace_residual(const struct workspace *w);
/* From now on passes keep the residuals that enter the last KEPT_LAYERS layers. May be called again. Only
 * with host_memory. */
enum { KEPT_LAYERS = 2 };
int workspace_keep(struct workspace *w, const struct model *m, struct err *e);
size_t workspace_keep_bytes(const struct model *m, size_t rows_max);
/* [rows][hidden]: the residual that entered layer n_layers - KEPT_LAYERS + k in the last pass. NULL:
 * passes do not keep it. */
const float *workspace_entering(const struct workspace *w, const struct model *m, size_t k);

/* Reads rows of a matrix of `hidden` columns that the device packed: as the host's floats [n][hidden] into
 * `rows`, and as the device's act into `act`; either may be NULL. n <= rows_max. Returns 0, or -1 with the
 * device's error. */
int model_mat_rows(const struct model *m, struct workspace *w, const struct mat *mat, const int32_t *row,
                   size_t n, float *rows, void *act);
/* Writes the embedding of a token as floats, [hidden]. Only with host_memory. */
void model_embedding(const struct model *m, int32_t token, float *x);
/* For training: y [rows][w->n] = (add ? y : 0) + x w. x is [rows][w->k] (act). All lie in the host's
 * memory; the pool shares the work. */
void model_product(const struct model *m, float *y, const void *x, size_t rows, const struct mat *w,
                   bool add);
