/* config.json and generation_config.json of a model, checked. Supported are causal models of Llama, Mistral,
 * Mixtral, Qwen2, Qwen3 and Qwen3-MoE. Another architecture is refused, and so is every key that would change
 * the numbers and is not implemented. The error is one line with file, key and value.
 *
 * A missing optional key has the default of its architecture in transformers. null counts as missing where
 * transformers allows null. A key that transformers does not read for the architecture is ignored, unless it
 * changes the numbers of other architectures. */
#pragma once
#include "src/base/base.h"

enum { CONFIG_LAYERS_MAX = 1024, CONFIG_EOS_MAX = 64, HEAD_DIM_MAX = 512, CONFIG_BYTES_MAX = 1 << 20,
       CONTEXT_MAX = 1 << 30, EXPERTS_MAX = 1024, EXPERT_FFN_MAX = 1 << 20 };

/* The feed-forward part of a layer: one network for all rows, or experts for the rows that a router sends to
 * them. */
enum layer_kind { LAYER_DENSE, LAYER_EXPERTS };

enum rope_type { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC, ROPE_DIVIDED };

struct rope_config {             /* read from rope_scaling/type or rope_parameters/rope_type */
    enum rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor;   /* llama3 */
    double beta_fast, beta_slow;                /* yarn */
    double attention_factor;                    /* yarn; 0: derived from mscale or factor */
    double mscale, mscale_all_dim;              /* yarn; 0: not given */
    bool truncate;                              /* yarn: floor/ceil of the correction range (default true) */
    size_t original;                            /* original_max_position_embeddings; 0: not given */
    float divisor[HEAD_DIM_MAX / 2];            /* divided (GGUF): of each frequency */
};

struct config {
    char model_type[32];
    size_t n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab;
    double rms_eps;
    bool tied;                   /* tie_word_embeddings: no lm_head.weight is expected */
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    uint8_t kind[CONFIG_LAYERS_MAX];   /* enum layer_kind */
    /* Experts of a layer, those that a row uses, and their width; 0: every layer is dense. ffn is the width
     * of dense layers. */
    size_t n_experts, experts_used, expert_ffn;
    bool experts_normalised;     /* the weights of the chosen experts are divided by their sum */
    size_t window;               /* sliding window in keys, own position included; 0: none */
    uint8_t windowed[CONFIG_LAYERS_MAX];   /* 1: this layer uses the window */
    struct rope_config rope;
    size_t max_position;         /* max_position_embeddings */
    size_t context;              /* usable length: see config_read */
    int32_t bos;                 /* -1: none */
    int32_t eos[CONFIG_EOS_MAX]; size_t n_eos;   /* of both files; each ends a text */
    /* generation_config.json; NAN or -1: not given. top_k 0: off */
    bool do_sample_known, do_sample;
    double temperature, top_p, min_p, eta, repetition_penalty;
    long top_k;
    bool has_generation_config;
    /* A setting of generation_config.json that changes sampling and is not implemented, such as
     * "typical_p 0.9", or "". The model loads, but its own sampling settings cannot be used. */
    char generation_unknown[96];
};

/* Reads `dir`/config.json and, if it exists, generation_config.json. The context is max_position; for linear,
 * times the factor; for yarn, the larger of max_position and original x factor. */
int config_read_directory(struct config *c, const char *dir, struct err *e);
/* Reads the two files from memory (generation = NULL: none), for fuzzing and tests. */
int config_parse(struct config *c, const char *file, const char *json, size_t n, const char *gen_file,
                 const char *generation, size_t gen_n, struct err *e);
/* Overrides the scaling by --context-scaling "yarn:F[:ORIG]" or "linear:F", and recomputes the context. The
 * default of ORIG is the original length of a yarn model, else max_position_embeddings. */
int config_scale_context(struct config *c, const char *spec, struct err *e);

/* Computes the inverse frequencies [head_dim/2] as Hugging Face's modeling_rope_utils does (float32
 * steps), and the factor on cos and sin. Powers and logarithms are longhand's own: the same bits on every
 * CPU. */
void config_rope(const struct config *c, float *inv_freq, float *attention_factor);
/* Its two steps, apart for its tests. rope_powers computes theta^(2i/head_dim), which libraries round
 * differently. rope_frequencies computes everything after the powers and is exact. Arrays: [head_dim/2]. */
void rope_powers(const struct config *c, float *power);
void rope_frequencies(const struct config *c, const float *power, float *inv_freq, float *attention_factor);
