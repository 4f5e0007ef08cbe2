/* Small random models as directories that model_open reads: config.json and model.safetensors, the same bytes
 * on every machine. Weights are near normal and scaled by 1/sqrt(inputs), so that logits spread by about
 * one. */
#pragma once
#include "src/model/model.h"
#include "tests/reference.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct tiny {
    /* "llama", "mistral", "qwen*", "mixtral", "gemma3_text", "gemma4_text", "smollm3", "phi3", "gpt_oss",
     * "olmo3", "exaone4" */
    const char *name, *type;
    size_t hidden, ffn, heads, kv_heads, head_dim, vocab, layers;
    size_t window;  /* mistral, mixtral: every layer; qwen, gemma3, olmo3, exaone4: every other; 0: none */
    enum dtype dtype;
    bool tied;
    size_t heads_inside;                 /* drafting heads as TokenSwift publishes them */
    size_t experts, used, expert_ffn;    /* qwen2_moe, qwen3_moe: in all layers but the second */
    size_t shared;                       /* the width of the shared expert */
    size_t key_heads, value_heads, key_dim, value_dim;   /* qwen3_5: in all layers but every third */
    /* qwen3_5: a draft layer. Logits depend most on the last token, so that many of its guesses come true. */
    bool mtp;
    /* gemma4: the width of embeddings of each layer, and the last layers without keys of their own */
    size_t per_layer, kv_shared;
};

/* Hybrids. States of one block of columns and of three; experts and a shared one. */
static const struct tiny tiny_hybrids[] __attribute__((unused)) = {
    { "qwen35-bf16", "qwen3_5", 64, 80, 4, 2, 16, 200, 4, 0, DT_BF16, true,
      .key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 20 },
    { "qwen35-f32-wide", "qwen3_5", 52, 51, 3, 1, 24, 131, 3, 0, DT_F32, false,
      .key_heads = 1, .value_heads = 3, .key_dim = 30, .value_dim = 140 },
    { "qwen35moe-bf16", "qwen3_5_moe", 48, 64, 4, 2, 16, 90, 3, 0, DT_BF16, false, 0, 7, 3, 24, 40,
      .key_heads = 2, .value_heads = 2, .key_dim = 16, .value_dim = 24 },
};
enum { N_TINY_HYBRIDS = sizeof tiny_hybrids / sizeof *tiny_hybrids };
/* With a draft layer. */
static const struct tiny tiny_drafting[] __attribute__((unused)) = {
    { "qwen35-mtp", "qwen3_5", 64, 80, 4, 2, 16, 150, 4, 0, DT_BF16, false,
      .key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 20, .mtp = true },
    { "qwen35moe-mtp", "qwen3_5_moe", 52, 51, 3, 1, 24, 131, 3, 0, DT_F32, false, 0, 6, 2, 27, 33,
      .key_heads = 1, .value_heads = 3, .key_dim = 12, .value_dim = 14, .mtp = true },
};
enum { N_TINY_DRAFTING = sizeof tiny_drafting / sizeof *tiny_drafting, TINY_MTP = 1 << 20 };

static const struct tiny tiny_models[] __attribute__((unused)) = {
    { "llama-bf16", "llama", 64, 112, 4, 2, 16, 300, 3, 0, DT_BF16, true, 0 },
    { "qwen3-f16-window", "qwen3", 96, 80, 6, 2, 80, 211, 4, 100, DT_F16, false, 0 },
    /* head_dim padded to 32, odd inputs of down_proj */
    { "mistral-f32-odd", "mistral", 48, 51, 7, 1, 20, 130, 2, 70, DT_F32, false, 0 },
    /* biases, as many KV heads as heads */
    { "qwen2-bf16", "qwen2", 64, 96, 8, 8, 24, 97, 2, 0, DT_BF16, true, 0 },
    { "qwen3moe-bf16", "qwen3_moe", 64, 80, 4, 2, 16, 150, 3, 0, DT_BF16, false, 0, 9, 3, 40 },
    { "mixtral-f32-odd", "mixtral", 52, 51, 6, 3, 20, 90, 2, 70, DT_F32, true, 0, 5, 2, 51 },
    { "qwen2moe-bf16-odd", "qwen2_moe", 56, 80, 4, 2, 12, 90, 2, 0, DT_BF16, false, 0, 6, 3, 33, 47 },
    /* rows of q, k and v are shorter than those of the residual */
    { "gemma3-bf16", "gemma3_text", 72, 81, 2, 1, 12, 120, 4, 70, DT_BF16, true },
    /* every other layer has one KV head of 32 dimensions */
    { "gemma4-bf16", "gemma4_text", 56, 81, 4, 2, 16, 110, 4, 70, DT_BF16, true, 0, 5, 2, 24 },
};
enum { N_TINY = sizeof tiny_models / sizeof *tiny_models };

static inline uint16_t tiny_f16(float x)     /* for |x| < 1024, rounded towards zero */
{
    uint32_t u = ref_bits(x), e = u >> 23 & 255;
    if (e < 113) return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u >> 16 & 0x8000) | (e - 112) << 10 | (u >> 13 & 0x3ff));
}
struct tiny_writer {
    FILE *header, *data;
    size_t at;
    struct rng rng;
    enum dtype dtype;
    bool first, minus_one;
    float diagonal;                      /* added to each element [i][i] */
};

static inline void tiny_tensor(struct tiny_writer *w, const char *name, size_t rows, size_t cols, float mean,
                               float scale)
{
    static const char *const names[] = { "", "BF16", "F16", "F32" };
    size_t n = rows * (cols ? cols : 1), bytes = n * dtype_size(w->dtype);
    fprintf(w->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", w->first ? "" : ",", name,
            names[w->dtype], rows);
    if (cols) fprintf(w->header, ",%zu", cols);
    fprintf(w->header, "],\"data_offsets\":[%zu,%zu]}", w->at, w->at + bytes);
    w->first = false, w->at += bytes;
    for (size_t i = 0; i < n; i++) {
        float x = mean + scale * rng_normal(&w->rng);
        x += cols && i / cols == i % cols ? w->diagonal : 0;
        uint16_t h = w->dtype == DT_F16 ? tiny_f16(x) : ref_to_bf16(x);
        fwrite(w->dtype == DT_F32 ? (void *)&x : (void *)&h, 1, dtype_size(w->dtype), w->data);
    }
}
/* The name of a tensor of a layer, or (TINY_MTP) of the draft layer. */
static inline void tiny_name(char to[200], size_t layer, const char *name, const char *kind)
{
    char at[40] = "mtp.layers.0";
    if (layer != TINY_MTP)
        snprintf(at, sizeof at, "model.layers.%zu", layer);
    snprintf(to, 200, "%s.%s%s", at, name, kind);
}
static inline void tiny_linear(struct tiny_writer *w, size_t layer, const char *name, size_t out, size_t in,
                               bool bias)
{
    char full[200];
    tiny_name(full, layer, name, ".weight");
    tiny_tensor(w, full, out, in, 0, 1.2f / sqrtf((float)in));
    tiny_name(full, layer, name, ".bias");
    if (bias) tiny_tensor(w, full, out, 0, 0, 0.5f);
}
static inline void tiny_vector(struct tiny_writer *w, size_t layer, const char *name, size_t n, float mean,
                               float scale)
{
    char full[200];
    tiny_name(full, layer, name, "");
    tiny_tensor(w, full, n, 0, mean, scale);
}
static inline void tiny_norm(struct tiny_writer *w, size_t layer, const char *name, size_t n)
{
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    tiny_vector(w, layer, full, n, w->minus_one ? 0 : 1, 0.3f);
}
/* A layer of Gated DeltaNet. */
static inline void tiny_delta(struct tiny_writer *w, const struct tiny *t, size_t l)
{
    const size_t values = t->value_heads * t->value_dim, channels = 2 * t->key_heads * t->key_dim + values;
    char name[128];
    tiny_linear(w, l, "linear_attn.in_proj_qkv", channels, t->hidden, false);
    tiny_linear(w, l, "linear_attn.in_proj_z", values, t->hidden, false);
    tiny_linear(w, l, "linear_attn.in_proj_b", t->value_heads, t->hidden, false);
    tiny_linear(w, l, "linear_attn.in_proj_a", t->value_heads, t->hidden, false);
    snprintf(name, sizeof name, "model.layers.%zu.linear_attn.conv1d.weight", l);
    tiny_tensor(w, name, channels, 4, 0, 0.5f);
    tiny_vector(w, l, "linear_attn.A_log", t->value_heads, 0, 1);
    tiny_vector(w, l, "linear_attn.dt_bias", t->value_heads, -2, 1);
    tiny_vector(w, l, "linear_attn.norm.weight", t->value_dim, 1, 0.3f);
    tiny_linear(w, l, "linear_attn.out_proj", t->hidden, values, false);
}
static inline bool tiny_is_delta(const struct tiny *t, size_t l)
{
    return t->value_heads && l % 3 != 2 && l != TINY_MTP;
}
static inline bool tiny_is_gemma(const struct tiny *t) { return !strncmp(t->type, "gemma", 5); }
static inline bool tiny_is_gemma4(const struct tiny *t) { return !strcmp(t->type, "gemma4_text"); }
static inline bool tiny_is_olmo(const struct tiny *t) { return !strcmp(t->type, "olmo3"); }
static inline bool tiny_has_no_norm_before(const struct tiny *t)
{
    return tiny_is_olmo(t) || !strcmp(t->type, "exaone4");
}
/* The norm of queries, whose products with keys are not divided by anything in Gemma 4. */
static inline void tiny_q_norm(struct tiny_writer *w, const struct tiny *t, size_t l, size_t dim)
{
    if (tiny_is_gemma4(t))
        tiny_vector(w, l, "self_attn.q_norm.weight", dim, 0.25f, 0.07f);
    else
        tiny_norm(w, l, "self_attn.q_norm", dim);
}
/* A global layer of Gemma 4: one KV head, twice as wide, whose values are its keys. */
static inline void tiny_global(struct tiny_writer *w, const struct tiny *t, size_t l)
{
    const size_t wide = 2 * t->head_dim;
    tiny_linear(w, l, "self_attn.q_proj", t->heads * wide, t->hidden, false);
    tiny_linear(w, l, "self_attn.k_proj", wide, t->hidden, false);
    tiny_q_norm(w, t, l, wide), tiny_norm(w, l, "self_attn.k_norm", wide);
    tiny_linear(w, l, "self_attn.o_proj", t->hidden, t->heads * wide, false);
}
static inline void tiny_attention(struct tiny_writer *w, const struct tiny *t, size_t l, bool bias, bool qk)
{
    if (!strcmp(t->type, "phi3")) {
        tiny_linear(w, l, "self_attn.qkv_proj", (t->heads + 2 * t->kv_heads) * t->head_dim, t->hidden, false);
    } else {
        tiny_linear(w, l, "self_attn.q_proj", (t->value_heads ? 2 : 1) * t->heads * t->head_dim, t->hidden,
                    bias);
        tiny_linear(w, l, "self_attn.k_proj", t->kv_heads * t->head_dim, t->hidden, bias);
        tiny_linear(w, l, "self_attn.v_proj", t->kv_heads * t->head_dim, t->hidden, bias);
    }
    const bool whole = tiny_is_olmo(t);          /* a norm of all heads */
    if (qk) {
        tiny_q_norm(w, t, l, whole ? t->heads * t->head_dim : t->head_dim);
        tiny_norm(w, l, "self_attn.k_norm", whole ? t->kv_heads * t->head_dim : t->head_dim);
    }
    const bool oss = !strcmp(t->type, "gpt_oss");
    tiny_linear(w, l, "self_attn.o_proj", t->hidden, t->heads * t->head_dim, oss);
    if (oss) tiny_vector(w, l, "self_attn.sinks", t->heads, 0, 2);
}
static inline bool tiny_has_a_dense_layer(const struct tiny *t)
{
    return strcmp(t->type, "mixtral") && strcmp(t->type, "qwen3_5_moe") && strcmp(t->type, "gpt_oss") &&
           strcmp(t->type, "gemma4_text");
}
/* A router and experts, each under names of its own; false: the layer has none. */
static inline bool tiny_experts(struct tiny_writer *w, const struct tiny *t, size_t l)
{
    const bool mixtral = !strcmp(t->type, "mixtral"), bias = !strcmp(t->type, "gpt_oss");
    char name[64];
    if (!t->experts || (l == 1 && tiny_has_a_dense_layer(t))) return false;
    if (t->shared) {
        tiny_linear(w, l, "mlp.shared_expert_gate", 1, t->hidden, false);
        tiny_linear(w, l, "mlp.shared_expert.gate_proj", t->shared, t->hidden, false);
        tiny_linear(w, l, "mlp.shared_expert.up_proj", t->shared, t->hidden, false);
        tiny_linear(w, l, "mlp.shared_expert.down_proj", t->hidden, t->shared, false);
    }
    tiny_linear(w, l, mixtral ? "block_sparse_moe.gate" : bias ? "mlp.router" : "mlp.gate", t->experts,
                t->hidden, bias);
    for (size_t e = 0; e < t->experts; e++) {
        const char *of = mixtral ? "block_sparse_moe.experts.%zu.%s" : "mlp.experts.%zu.%s";
        snprintf(name, sizeof name, of, e, mixtral ? "w1" : "gate_proj");
        tiny_linear(w, l, name, t->expert_ffn, t->hidden, bias);
        snprintf(name, sizeof name, of, e, mixtral ? "w3" : "up_proj");
        tiny_linear(w, l, name, t->expert_ffn, t->hidden, bias);
        snprintf(name, sizeof name, of, e, mixtral ? "w2" : "down_proj");
        tiny_linear(w, l, name, t->hidden, t->expert_ffn, bias);
    }
    return true;
}
/* What a draft layer has beside the layer: its rows are near those of the model's first layer. */
#define TINY_EMBED 4.0f
static inline void tiny_fuse(struct tiny_writer *w, size_t hidden)
{
    static const char *const norms[] = { "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm" };
    char name[64];
    w->diagonal = TINY_EMBED;
    tiny_tensor(w, "mtp.fc.weight", hidden, 2 * hidden, 0, 0.3f / sqrtf((float)hidden));
    w->diagonal = 0;
    for (size_t i = 0; i < 3; i++)
        snprintf(name, sizeof name, "mtp.%s.weight", norms[i]),
            tiny_tensor(w, name, hidden, 0, 0, 0.1f);
}
static inline void tiny_beside(struct tiny_writer *w, const struct tiny *t, size_t l)
{
    tiny_vector(w, l, "router.scale", t->hidden, 2, 0.3f);
    tiny_vector(w, l, "router.per_expert_scale", t->experts, 1, 0.3f);
    tiny_norm(w, l, "post_feedforward_layernorm_1", t->hidden);
    tiny_norm(w, l, "pre_feedforward_layernorm_2", t->hidden);
    /* other experts after a rounding do not change much */
    tiny_vector(w, l, "post_feedforward_layernorm_2.weight", t->hidden, 0.1f, 0.03f);
}
static inline void tiny_tensors(struct tiny_writer *w, const struct tiny *t)
{
    const bool bias = !strncmp(t->type, "qwen2", 5) || !strcmp(t->type, "gpt_oss"), gemma = tiny_is_gemma(t),
               after = tiny_has_no_norm_before(t), qk = gemma || after || !strncmp(t->type, "qwen3", 5);
    tiny_tensor(w, "model.embed_tokens.weight", t->vocab, t->hidden, 0,
                t->tied ? 1.5f / sqrtf((float)t->hidden) : t->mtp ? TINY_EMBED : 1);
    for (size_t i = 0; i < t->layers + t->mtp; i++) {
        const size_t l = i < t->layers ? i : TINY_MTP;
        if (!after) tiny_norm(w, l, "input_layernorm", t->hidden);
        if (tiny_is_delta(t, l))
            tiny_delta(w, t, l);
        else if (tiny_is_gemma4(t) && l % 2)
            tiny_global(w, t, l);
        else
            tiny_attention(w, t, l, bias, qk);
        tiny_norm(w, l, "post_attention_layernorm", t->hidden);
        if (gemma) tiny_norm(w, l, "pre_feedforward_layernorm", t->hidden);
        if (gemma || after) tiny_norm(w, l, "post_feedforward_layernorm", t->hidden);
        if (tiny_is_gemma4(t)) tiny_vector(w, l, "layer_scalar", 1, 1, 0.1f);
        if (t->per_layer) {
            tiny_linear(w, l, "per_layer_input_gate", t->per_layer, t->hidden, false);
            tiny_linear(w, l, "per_layer_projection", t->hidden, t->per_layer, false);
            tiny_norm(w, l, "post_per_layer_input_norm", t->hidden);
        }
        const size_t ffn = t->kv_shared && l >= t->layers - t->kv_shared ? 2 * t->ffn : t->ffn;
        if (tiny_is_gemma4(t) && t->experts) tiny_beside(w, t, l);
        if (tiny_experts(w, t, l) && !tiny_is_gemma4(t))
            continue;
        if (!strcmp(t->type, "phi3"))
            tiny_linear(w, l, "mlp.gate_up_proj", 2 * t->ffn, t->hidden, false);
        else
            tiny_linear(w, l, "mlp.gate_proj", ffn, t->hidden, false),
                tiny_linear(w, l, "mlp.up_proj", ffn, t->hidden, false);
        tiny_linear(w, l, "mlp.down_proj", t->hidden, ffn, false);
    }
    if (t->per_layer) {
        const size_t all = t->layers * t->per_layer;
        tiny_tensor(w, "model.embed_tokens_per_layer.weight", t->vocab, all, 0, 1);
        tiny_tensor(w, "model.per_layer_model_projection.weight", all, t->hidden, 0, 1);
        tiny_tensor(w, "model.per_layer_projection_norm.weight", t->per_layer, 0, 1, 0.3f);
    }
    tiny_tensor(w, "model.norm.weight", t->hidden, 0, w->minus_one ? 0 : 1, t->mtp ? 0 : 0.3f);
    if (t->mtp)
        tiny_fuse(w, t->hidden);
    if (!t->tied)
        tiny_tensor(w, "lm_head.weight", t->vocab, t->hidden, 0, 1.5f / sqrtf((float)t->hidden));
}
/* n drafting heads; the gains of the norms around 1. */
static inline void tiny_heads(struct tiny_writer *w, const char *prefix, size_t n, size_t hidden)
{
    char name[128];
    for (size_t k = 0; k < n; k++) {
        snprintf(name, sizeof name, "%s%zu.linear.weight", prefix, k),
            tiny_tensor(w, name, hidden, hidden, 0, 1 / sqrtf((float)hidden));
        snprintf(name, sizeof name, "%s%zu.input_layernorm.weight", prefix, k),
            tiny_tensor(w, name, hidden, 0, 1, 0.3f);
        snprintf(name, sizeof name, "%s%zu.post_layernorm.weight", prefix, k),
            tiny_tensor(w, name, hidden, 0, 1, 0.3f);
    }
}
static inline void tiny_config(const struct tiny *t, const char *dir)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f) abort();
    fprintf(f,
            "{\"model_type\":\"%s\",\"hidden_size\":%zu,\"intermediate_size\":%zu,\"num_hidden_layers\":%zu,"
            "\"num_attention_heads\":%zu,"
            "\"num_key_value_heads\":%zu,\"head_dim\":%zu,\"vocab_size\":%zu,\"max_position_embeddings\":"
            "131072,\"rms_norm_eps\":1e-6,"
            "\"rope_theta\":100000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":%s",
            t->type, t->hidden, t->ffn, t->layers, t->heads, t->kv_heads, t->head_dim, t->vocab,
            t->tied ? "true" : "false");
    if (!strcmp(t->type, "ministral3"))  /* steps of 16 positions, so that a text passes many */
        fprintf(f, ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1e5,\"factor\":16,"
                   "\"original_max_position_embeddings\":16,\"mscale\":1,\"mscale_all_dim\":1,"
                   "\"llama_4_scaling_beta\":0.1}");
    if (!strcmp(t->type, "phi3"))        /* 12 of 16 dimensions */
        fprintf(f, ",\"partial_rotary_factor\":0.75,\"original_max_position_embeddings\":64,"
                   "\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1,1.5,2,4,8,16],"
                   "\"short_factor\":[1,1,1,1,1,2]}");
    if (!strcmp(t->type, "granite"))
        fprintf(f, ",\"embedding_multiplier\":3,\"attention_multiplier\":0.4,\"residual_multiplier\":0.5,"
                   "\"logits_scaling\":0.7");
    if (tiny_is_olmo(t))
        fprintf(f, ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
                   "\"original_max_position_embeddings\":64}");
    if (!strcmp(t->type, "smollm3"))
        fprintf(f, ",\"no_rope_layer_interval\":2");
    if (tiny_is_gemma4(t))
        fprintf(f, ",\"global_head_dim\":%zu,\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true,"
                   "\"hidden_size_per_layer_input\":%zu,\"vocab_size_per_layer_input\":%zu,"
                   "\"num_kv_shared_layers\":%zu,\"use_double_wide_mlp\":true,"
                   "\"final_logit_softcapping\":5%s", 2 * t->head_dim, t->per_layer, t->vocab, t->kv_shared,
                t->experts ? ",\"enable_moe_block\":true,\"top_k_experts\":2" : "");
    else if (tiny_is_gemma(t))
        fprintf(f, ",\"query_pre_attn_scalar\":9,\"rope_local_base_freq\":500.0");
    const bool oss = !strcmp(t->type, "gpt_oss"), mixtral = !strcmp(t->type, "mixtral") || oss;
    if (oss)
        fprintf(f, ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,\"truncate\":false,"
                   "\"original_max_position_embeddings\":64}");
    if (mixtral)
        fprintf(f, ",\"num_local_experts\":%zu,\"num_experts_per_tok\":%zu", t->experts, t->used);
    else if (t->experts)
        fprintf(f, ",\"num_experts\":%zu,\"num_experts_per_tok\":%zu,\"moe_intermediate_size\":%zu%s",
                t->experts, t->used, t->expert_ffn,
                tiny_has_a_dense_layer(t) ? ",\"norm_topk_prob\":true,\"mlp_only_layers\":[1]" : "");
    if (t->shared)
        fprintf(f, ",\"shared_expert_intermediate_size\":%zu", t->shared);
    if (t->value_heads) {
        fprintf(f, ",\"linear_num_key_heads\":%zu,\"linear_num_value_heads\":%zu,\"linear_key_head_dim\":%zu,"
                   "\"linear_value_head_dim\":%zu,\"partial_rotary_factor\":0.5,\"layer_types\":[",
                t->key_heads, t->value_heads, t->key_dim, t->value_dim);
        for (size_t l = 0; l < t->layers; l++)
            fprintf(f, "%s\"%s_attention\"", l ? "," : "", tiny_is_delta(t, l) ? "linear" : "full");
        fprintf(f, "]");
    }
    if (t->window && (mixtral || !strcmp(t->type, "mistral") || !strcmp(t->type, "phi3")))
        fprintf(f, ",\"sliding_window\":%zu", t->window);
    else if (t->window) {
        fprintf(f, ",\"use_sliding_window\":true,\"sliding_window\":%zu,\"layer_types\":[", t->window);
        for (size_t l = 0; l < t->layers; l++)
            fprintf(f, "%s\"%s\"", l ? "," : "", l % 2 ? "full_attention" : "sliding_attention");
        fprintf(f, "]");
    } else if (!strcmp(t->type, "mistral"))
        fprintf(f, ",\"sliding_window\":null");
    if (t->heads_inside)
        fprintf(f, ",\"medusa_heads\":%zu", t->heads_inside);
    fprintf(f, "}\n");
    if (fclose(f)) abort();
}
/* A safetensors file: begin, tiny_tensor.., end. `metadata` is the object's text, or NULL. */
static inline void tiny_begin(struct tiny_writer *w, enum dtype dtype, uint64_t seed, const char *metadata,
                              char **header, size_t *n)
{
    *w = (struct tiny_writer){ .header = open_memstream(header, n), .data = tmpfile(), .rng = { seed },
                               .dtype = dtype, .first = !metadata };
    if (!w->header || !w->data) abort();
    fprintf(w->header, metadata ? "{\"__metadata__\":%s" : "{", metadata);
}
static inline void tiny_end(struct tiny_writer *w, const char *path, char **header, size_t *n)
{
    fprintf(w->header, "}");
    while (fflush(w->header), *n % 8) fprintf(w->header, " ");
    fclose(w->header);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    for (int i = 0; i < 8; i++) fputc((int)(*n >> 8 * i & 255), f);
    fwrite(*header, 1, *n, f);
    rewind(w->data);
    for (int c; (c = getc(w->data)) != EOF;) putc(c, f);
    fclose(w->data);
    if (fclose(f)) abort();
    free(*header);
}
/* Write the model into a new directory below $TMPDIR or /tmp; its name is left in dir. */
static inline void tiny_write(const struct tiny *t, char dir[4096])
{
    char path[4200], *header = NULL;
    size_t n = 0;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, 4096, "%s/longhand-tiny-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) abort();
    tiny_config(t, dir);
    struct tiny_writer w;
    tiny_begin(&w, t->dtype, 1000 + t->hidden, NULL, &header, &n);
    w.minus_one = t->value_heads > 0 || (tiny_is_gemma(t) && !tiny_is_gemma4(t));
    tiny_tensors(&w, t);
    tiny_heads(&w, "model.medusa_layers.", t->heads_inside, t->hidden);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    tiny_end(&w, path, &header, &n);
}
static inline void tiny_remove(const char *dir)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", dir), unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir), unlink(path);
    rmdir(dir);
}
