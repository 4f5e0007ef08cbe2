/* A layer: its weights, and the tensors that they come from. One table (layer.c) lists the tensors of a
 * layer. By it files are checked and loaded, weights counted and quantised. */
#pragma once
#include "kernels/device.h"
#include "src/model/config.h"
#include "src/model/tensors.h"

struct layer {                           /* all in the device's memory */
    /* of its state or cache, among the layers that have one; of the cache that it reads without its own */
    size_t slot;
    float *norm_attn, *norm_mlp;         /* [hidden]; NULL with NORM_AFTER */
    float *norm_attn_after, *norm_mlp_after;     /* [hidden], of outputs; NULL with NORM_BEFORE */
    /* beside: of the dense part's outputs, of the experts' inputs and outputs, of the router's inputs;
     * factors on the weights of experts */
    float *norm_dense_after, *norm_experts, *norm_experts_after, *norm_router, *expert_scale;
    float *scale;                        /* [1], or NULL */
    /* with embeddings of each layer (per_layer.h): [per_layer, hidden], [hidden, per_layer], [hidden] */
    struct mat per_layer_gate, per_layer_out; float *norm_per_layer;
    /* [(n_heads + 2 n_kv_heads) * head_dim_padded, hidden]; a gated layer has after each head of q its gate:
     * [(2 n_heads + 2 n_kv_heads) * head_dim_padded, hidden]. A layer that reads the cache of another has q
     * alone, and no k_norm */
    struct mats qkv;
    float *qkv_bias;                     /* or NULL */
    float *q_norm, *k_norm;              /* [head_dim], or with QK_NORM_WHOLE of all heads, or NULL */
    struct mat o;  float *o_bias;        /* [hidden, n_heads * head_dim_padded] */
    float *head_logit;                   /* [n_heads] (kernels/ops.h, struct attn), or NULL */
    /* in place of these six, with a state (kernels/delta.h) */
    struct mats mix;                     /* [channels + z + 2 value_heads, hidden]: q, k, v, z, b, a */
    struct mat out;                      /* [hidden, value_heads * value_dim] */
    float *conv;                         /* [conv][channels] */
    float *decay, *dt_bias;              /* [value_heads]; decay: -exp(A_log) */
    float *norm_state;                   /* [value_dim] */
    struct mats gate_up; float *gate_up_bias;  /* [2 * ffn, hidden]: gate rows, then up rows */
    struct mat down; float *down_bias;   /* [hidden, ffn] */
    /* in place of these four, with experts: */
    struct mat router; float *router_bias;   /* [n_experts, hidden], floats; or NULL */
    struct device_expert *expert;        /* [n_experts], the host's: part of model.experts */
    struct device_expert shared; struct mat shared_gate;     /* with shared_ffn */
};

/* What a tensor becomes. Parts of one place follow each other in it: the rows of a product of several
 * matrices, and vectors. */
enum part_form {
    PART_STACK,                          /* a matrix of such a product: struct mats */
    PART_HEADS,                          /* the same; its rows are those of heads, which a device pads */
    PART_MATRIX,                         /* struct mat */
    PART_HEAD_COLUMNS,                   /* the same; its columns are those of heads */
    PART_EMBED,                          /* the same; rows as the files store them */
    PART_TABLE,                          /* a matrix that stays in its file; it has no place */
    PART_ROUTER,                         /* the same; floats, as the files have them */
    PART_VECTOR,                         /* float *: a vector, or a small matrix column by column */
    PART_HEAD_VECTOR,                    /* the same; its values are those of heads */
    PART_NORM, PART_DECAY,               /* the same; the files may hold w - 1, and the logarithm */
    PART_SHARED, PART_EXPERTS            /* one expert, or `rows` of them at a pointer: expert_parts */
};
struct layer_part {
    const char *name;                    /* after "model.layers.N."; of experts the begin of all names */
    bool used;                           /* the layer, or the model, has it */
    size_t rows, cols;                   /* cols 0: of one dimension */
    enum part_form form;
    size_t place;                        /* in struct layer, struct device_expert, or struct model */
};
enum { PARTS_MAX = 44, EXPERT_PARTS = 6 };

/* Lists the tensors that a layer has, in the order of loading, and returns their number. */
size_t layer_parts(struct layer_part p[PARTS_MAX], const struct config *c, size_t layer);
/* Those of an expert, or of the one that every row has. */
size_t expert_parts(struct layer_part p[EXPERT_PARTS], const struct config *c, bool shared);
/* Copies those of the n parts that are used, and returns their number. */
size_t used_parts(struct layer_part *to, const struct layer_part *p, size_t n);
/* The parts of p[0 .. n) that have the place of the first. */
size_t parts_of_place(const struct layer_part *p, size_t n);
/* Whether a part is one of the matrices whose products take most of the time: those that may be quantised. */
static inline bool part_is_matrix(const struct layer_part *p) { return p->form <= PART_HEAD_COLUMNS; }
/* The matrices of a place in a layer, or in an expert, and *n of them. */
struct mat *part_matrices(const struct layer_part *p, const void *of, size_t *n);
/* The tensor of a part, which must exist, after the prefix of its layer. */
const struct tensor *part_need(const struct tensors *ts, const char *at, const struct layer_part *p,
                               struct err *e);
