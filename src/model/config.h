/* config.json and generation_config.json of a model, checked. Supported are causal models of Llama, Mistral,
 * Mixtral, Qwen2, Qwen3, Qwen2-MoE, Qwen3-MoE, Qwen3.5, Qwen3.5-MoE, Gemma 3 and 4, SmolLM3, EXAONE 4,
 * gpt-oss, Phi-3 and 4, OLMo 3, Granite 3 and 4 (dense). Another one is refused, and so is every key that
 * would change the numbers and is not known here. The error is one line with file, key and value.
 *
 * A wrapper of a text model and other towers has the settings of the text model in text_config. Ids and
 * tie_word_embeddings may be in either place.
 *
 * A missing optional key has the default of its architecture in transformers. null counts as missing where
 * transformers allows null. A key that transformers does not read for the architecture is ignored, unless it
 * changes the numbers of other architectures. */
#pragma once
#include "kernels/ops.h"
#include "src/base/base.h"

enum { CONFIG_LAYERS_MAX = 512, CONFIG_EOS_MAX = 64, CONFIG_GENERATION_MAX = 128, HEAD_DIM_MAX = 512,
       CONFIG_BYTES_MAX = 1 << 20,
       CONTEXT_MAX = 1 << 30, EXPERTS_MAX = 1024, EXPERT_FFN_MAX = 1 << 20, CONV_MAX = 16 };

/* What gives a row of a layer the rows before it: attention over a cache of keys and values, or a recurrent
 * state of fixed size (Gated DeltaNet, kernels/delta.h). A model that has states is a hybrid. */
enum mixer_kind { MIXER_ATTENTION, MIXER_DELTA };

/* Gated DeltaNet: heads, their widths, and the rows that a convolution sees. A key head serves value_heads /
 * key_heads value heads that follow each other; dealt (GGUF): every key_heads-th one. */
struct delta_config { size_t key_heads, value_heads, key_dim, value_dim, conv; bool dealt; };

enum rope_type { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC, ROPE_DIVIDED, ROPE_LONG };

struct rope_config {             /* read from rope_scaling/type or rope_parameters/rope_type */
    enum rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor;   /* llama3 */
    double beta_fast, beta_slow;                /* yarn */
    double attention_factor;                    /* yarn, long; 0: derived from mscale or factor */
    double mscale, mscale_all_dim;              /* yarn; 0: not given */
    bool truncate;                              /* yarn: floor/ceil of the correction range (default true) */
    size_t original;                            /* original_max_position_embeddings; 0: not given */
    /* llama_4_scaling_beta: a query at position p is multiplied by 1 + growth ln(1 + floor(p / original)) */
    double growth;
    bool within;                                /* linear: max_position counts the scaled positions */
    double local_theta;      /* of the local layers, whose frequencies are not scaled; 0: they turn nothing */
    float divisor[HEAD_DIM_MAX / 2];            /* divided (GGUF), long: of each frequency */
    /* long (longrope of Phi-3): divisors for texts of up to `original` positions; `shorter`: they hold. The
     * choice is the model's, and no text changes it: transformers turns to the other divisors where a text
     * passes `original`, and leaves the keys before as they are. divisor[] holds if max_position is beyond
     * `original`; --context-scaling short chooses the others and makes `original` the context. */
    float short_divisor[HEAD_DIM_MAX / 2]; bool shorter;
};

/* Norms of queries and keys: of each head, or of all heads at once. Norms of the inputs of attention and of
 * the feed-forward part, of their outputs, too, or of these alone. */
enum qk_norm { QK_AS_IS, QK_NORM, QK_NORM_WHOLE };
enum norms { NORM_BEFORE, NORM_BOTH, NORM_AFTER };

/* What a layer is. A family says what all its layers share (struct family, layer), and its functions read
 * what differs from the file. Passes, caches, plans, costs and devices read specs and ask for no family. */
struct layer_spec {                  /* small, since configurations lie on stacks */
    uint32_t window;                     /* keys that a row sees, its own included; 0: all of them */
    uint32_t n_kv_heads;                 /* of its cache; each has the width of a query head, head_dim */
    uint32_t ffn;                        /* width of the network that all rows have; 0: experts alone */
    /* The layer whose cache it reads: itself, or an earlier one if it has no keys and values of its own.
     * NO_LAYER: a layer of another model. */
    uint16_t kv_layer, head_dim;
    uint8_t mixer, qk_norm, norms;       /* enum mixer_kind, qk_norm, norms */
    bool local : 1;              /* it has the local frequencies */
    /* q_proj has for each head the rows of its query, then as many rows of its gate; attention is multiplied
     * by sigmoid(gate) */
    bool gated : 1;
    bool v_is_k : 1;             /* no v_proj: values are the keys before norm and RoPE */
    bool v_norm : 1;             /* values are divided by their root mean square */
    bool head_logits : 1;        /* each head has one more logit, without a value: self_attn.sinks */
    bool scaled : 1;             /* the residual after it is multiplied by layer_scalar */
    bool gelu : 1;               /* gelu(gate) * up in place of silu (kernels/ops.h, geglu) */
    bool experts : 1;            /* a router sends each row to a few experts */
    bool beside : 1;             /* and all rows have the network, too; the router has a norm of its own */
};
enum { NO_LAYER = UINT16_MAX };

struct family;
struct config {
    const struct family *family; /* families/family.h */
    char model_type[32];
    bool drafts;                 /* not of files: the one layer of mtp_config (mtp.h) */
    size_t n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab;
    struct layer_spec layer[CONFIG_LAYERS_MAX];
    bool heads_differ;           /* layers have different KV heads; n_kv_heads and head_dim are the largest */
    /* Of a model whose layers differ in KV heads or have windows, their places in the cache: heads[l] of
     * layer l, heads[n_layers] the sums (kv_heads_of). Each dim is a multiple of 16. */
    struct kv_heads heads[CONFIG_LAYERS_MAX + 1];
    /* The last layers, this many, have no keys and values. Each reads the cache of the last layer before them
     * of the same kind, windowed or global. ffn_doubled: their dense networks have the width 2 ffn. */
    size_t kv_shared; bool ffn_doubled;
    /* Each layer adds an embedding of this width to its residual (src/model/per_layer.h), from a table with a
     * row for each of per_layer_vocab tokens; 0: none. */
    size_t per_layer, per_layer_vocab;
    /* Of a drafter of Gemma 4 (assistant.h) the width of the states of its model, and kv_shared is n_layers;
     * 0: an ordinary model. */
    size_t backbone;
    double rms_eps, file_eps;    /* file_eps: as the files say */
    bool tied;                   /* tie_word_embeddings: no lm_head.weight is expected */
    bool qkv_bias, o_bias, mlp_bias;
    size_t rotary;               /* dimensions of a head that RoPE turns: the first ones */
    size_t local_rotary;         /* in local layers; 0: the same */
    double query_scalar;         /* queries are divided by its square root; 0: by that of head_dim */
    double softcap;              /* a logit x becomes softcap * tanh(x / softcap); 0: none */
    /* Embeddings are multiplied by sqrt(hidden): as a float, or rounded to the type of the embedding. */
    enum { EMBED_AS_IS, EMBED_SCALED, EMBED_SCALED_ROUNDED } embed;
    /* Of Granite: its factors as the files say; that of EMBED_SCALED in place of sqrt(hidden). rms_eps and
     * embed_factor contain the factor that the residual is divided by. 0: none */
    double embed_multiplier, score_multiplier, residual_factor, logit_divisor, embed_factor;
    bool norm_plus_one;          /* the files hold w - 1 for all norms but that of Gated DeltaNet */
    struct delta_config delta;   /* zeros in a model without states */
    bool decay_ready;            /* A_log holds -exp(A_log) (GGUF) */
    /* Experts of a layer, those that a row uses, and their width; 0: every layer is dense. ffn is the width
     * of dense layers. */
    size_t n_experts, experts_used, expert_ffn;
    size_t shared_ffn;           /* width of the expert that every row has beside them; 0: none */
    bool experts_beside;         /* layers with experts have a dense network, too */
    bool experts_normalised;     /* the weights of the chosen experts are divided by their sum */
    bool experts_bias;           /* the router and the products of experts have biases */
    double swiglu_alpha, swiglu_limit;   /* of experts (kernels/device.h); limit 0: silu(gate) * up */
    size_t window;               /* of the layers that have one; 0: none has */
    struct rope_config rope;
    size_t max_position;         /* max_position_embeddings */
    size_t context;              /* usable length: see config_read */
    int32_t bos;                 /* -1: none */
    int32_t eos[CONFIG_EOS_MAX]; size_t n_eos;   /* of both files; each ends a text */
    /* the last id in a file that no token has, which counts for nothing, and its key; NULL: none */
    const char *no_token_key; int64_t no_token;
    bool has_generation_config;
    /* Its members that are numbers, strings or booleans, as JSON. The table of options reads them. */
    struct generation_member { char key[32], value[32]; } generation[CONFIG_GENERATION_MAX];
    size_t n_generation;
    /* A setting of generation_config.json that changes sampling and is not implemented, such as
     * "epsilon_cutoff 0.9", or "". The model loads, but its own sampling settings cannot be used. */
    char generation_unknown[96];
};

/* Completes the specs of layers from the other members: KV heads, caches, widths. */
void config_layers(struct config *c);
/* The last layer that sees all keys; if there is none, the last one. */
size_t config_last_global(const struct config *c);
bool config_has_local(const struct config *c);
static inline size_t config_local_rotary(const struct config *c)
{
    return c->local_rotary ? c->local_rotary : c->rotary;
}
/* Whether a layer has keys and values of its own. */
static inline bool config_owns_kv(const struct config *c, size_t layer)
{
    return layer < c->n_layers - c->kv_shared;
}
/* Dimensions of the queries, and of the keys, of the mean layer with attention. */
double config_mean_queries(const struct config *c);
double config_mean_keys(const struct config *c);

/* The usable length under the scaling; 0 if it exceeds CONTEXT_MAX. */
size_t config_context(const struct config *c);
/* Whether the model has recurrent states, the number of layers with a mixer of this kind, and of those that
 * have a cache. */
bool config_is_hybrid(const struct config *c);
size_t config_mixers(const struct config *c, enum mixer_kind kind);
size_t config_caches(const struct config *c);
/* Channels of the convolution: queries, keys and values of all heads. */
static inline size_t config_delta_channels(const struct config *c)
{
    return 2 * c->delta.key_heads * c->delta.key_dim + c->delta.value_heads * c->delta.value_dim;
}
/* The JSON of a member of generation_config.json; NULL: it is not given. */
const char *config_generation(const struct config *c, const char *key);
/* Reads config.json and generation_config.json (NULL: there is none) from memory. The context is
 * max_position; for linear, times the factor (not `within`); for yarn, the larger of max_position and
 * original x factor. */
int config_parse(struct config *c, const char *file, const char *json, size_t n, const char *gen_file,
                 const char *generation, size_t gen_n, struct err *e);
/* Overrides the scaling by --context-scaling "yarn:F[:ORIG]", "linear:F" or (longrope) "short", and computes
 * the context again. The default of ORIG is the original length of a yarn model, else
 * max_position_embeddings. */
int config_scale_context(struct config *c, const char *spec, struct err *e);

/* Computes the inverse frequencies [rotary/2] as Hugging Face's modeling_rope_utils does (float32
 * steps), and the factor on cos and sin. Powers and logarithms are longhand's own: the same bits on every
 * CPU. */
void config_rope(const struct config *c, float *inv_freq, float *attention_factor);
/* The frequencies of the local layers; false: there are none. */
bool config_rope_local(const struct config *c, float *inv_freq);
/* Its two steps, apart for its tests. rope_powers computes theta^(2i/rotary), which libraries round
 * differently. rope_frequencies computes everything after the powers and is exact. Arrays: [rotary/2]. */
void rope_powers(const struct config *c, float *power);
void rope_frequencies(const struct config *c, const float *power, float *inv_freq, float *attention_factor);
