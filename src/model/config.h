/* What config.json and generation_config.json say, checked. Llama, Mistral, Qwen2 and Qwen3 causal
 * models; anything else, and every key that would change the numbers and is not implemented, is
 * refused with one line naming file, key and value.
 *
 * A key that may be missing has the default of its architecture in transformers; null counts as
 * missing where transformers allows null. A key that transformers does not read for the architecture
 * is ignored, unless it is known to change what other architectures compute. */
#pragma once
#include "src/base/base.h"

enum { CONFIG_LAYERS_MAX = 1024, CONFIG_EOS_MAX = 64, HEAD_DIM_MAX = 512, CONFIG_BYTES_MAX = 1 << 20,
       CONTEXT_MAX = 1 << 30 };

enum rope_type { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC };

struct rope_config {             /* both spellings: rope_scaling/type and rope_parameters/rope_type */
    enum rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor;      /* llama3 */
    double beta_fast, beta_slow, attention_factor; /* yarn; attention_factor 0: derived from mscale or factor */
    double mscale, mscale_all_dim;                 /* yarn; 0: not given */
    bool truncate;                                 /* yarn: floor/ceil of the correction range (default true) */
    size_t original;                               /* original_max_position_embeddings (llama3, yarn), 0: not given */
};

struct config {
    char model_type[32];
    size_t n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab;
    double rms_eps;
    bool tied;                   /* tie_word_embeddings: no lm_head.weight is expected */
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    size_t window;               /* sliding window in keys, own position included; 0: none */
    uint8_t windowed[CONFIG_LAYERS_MAX];   /* 1: this layer uses the window */
    struct rope_config rope;
    size_t max_position;         /* max_position_embeddings */
    size_t context;              /* usable length: see config_read */
    int32_t bos;                 /* -1: none */
    int32_t eos[CONFIG_EOS_MAX]; size_t n_eos;   /* union of config.json and generation_config.json: any ends a text */
    /* generation_config.json; NAN / -1 where it does not say. top_k 0: off */
    bool do_sample_known, do_sample;
    double temperature, top_p, min_p, eta, repetition_penalty;
    long top_k;
    bool has_generation_config;
    /* A setting of generation_config.json that changes sampling and is not implemented, as "typical_p 0.9", or "".
     * It stands in the way of taking the model's own sampling settings, not of the model. */
    char generation_unknown[96];
};

/* Read `dir`/config.json and, if it is there, generation_config.json. context = max_position; times
 * the factor for linear; for yarn the larger of max_position and original x factor; no factor for dynamic and llama3. */
int config_read(struct config *c, const char *dir, struct err *e);
/* The same from memory (generation = NULL: none), for fuzzing and tests. */
int config_parse(struct config *c, const char *file, const char *json, size_t n,
                 const char *gen_file, const char *generation, size_t gen_n, struct err *e);
/* Override the scaling by --context-scaling "yarn:F[:ORIG]" or "linear:F"; recomputes context. ORIG defaults to
 * the original length of a yarn model, else max_position_embeddings. */
int config_scale_context(struct config *c, const char *spec, struct err *e);

/* inverse frequencies [head_dim/2] as Hugging Face's modeling_rope_utils has them (float32 steps), and
 * the factor on cos and sin. Powers and logs are our own (same bits on every CPU). */
void config_rope(const struct config *c, float *inv_freq, float *attention_factor);
