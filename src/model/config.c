/* config.json and generation_config.json -> struct config. The tables are archs (defaults of the
 * architectures), foreign_keys and generation_keys (keys that are refused). Start at config_parse. */
#include "src/model/config.h"
#include "src/model/config_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The defaults of transformers for missing keys, and the keys that it reads. n_kv_heads 0:
 * num_attention_heads; head_dim 0: hidden_size / num_attention_heads; id -1: none. */
static const struct delta_config qwen3_5 = { 16, 32, 128, 128, 4 };
static const struct arch {
    const char *model_type, *architecture;
    size_t vocab, hidden, ffn, n_layers, n_heads, n_kv_heads, head_dim, max_position;
    int32_t bos, eos;
    bool qkv_bias, qk_norm;                     /* has them without a key */
    bool attention_bias, mlp_bias;              /* reads the key */
    bool hidden_multiple;                       /* of the heads, even if head_dim is given */
    /* none; in every layer, of 4,096 keys, or only where a key gives one; with use_sliding_window in every
     * layer, or in the layers that a key names, else those from max_window_layers on, or every other one
     * before max_window_layers, or those without RoPE where a key gives one */
    enum { WINDOW_NONE, WINDOW_ALL, WINDOW_GIVEN, WINDOW_SWITCH, WINDOW_UNTURNED, WINDOW_QWEN,
           WINDOW_OTHER } window;
    /* n_experts 0: no experts. expert_ffn 0: intermediate_size. norm_topk_prob: reads the key */
    size_t n_experts, experts_used, expert_ffn;
    bool norm_topk_prob;
    size_t shared_ffn;                          /* of an expert that every token has; 0: none */
    double eps, theta;                          /* 0: 1e-6, 10000 */
    /* Gated DeltaNet beside gated attention with partial RoPE: norms hold w - 1; NULL: no such layers */
    const struct delta_config *delta;
    /* model_type of the settings of a wrapper's text model, and the wrapper's architecture; NULL: none */
    const char *text_type, *wrapper;
    bool growing;                               /* queries grow with the position: llama_4_scaling_beta */
    bool gemma;                                 /* config_gemma.c */
    bool unturned;                              /* some layers have no RoPE: read_unturned */
    bool phi;                                   /* longrope, and a part of a head may turn */
    bool oss;                                   /* config_oss.c; biases without a key */
    bool gemma4;                                /* config_gemma4.c */
    bool olmo;                                  /* config_gemma.c */
    bool granite;                               /* config_granite.c */
} archs[] = {
    { "llama", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1, 2, false, false, true, true,
      true, WINDOW_NONE },
    { "mistral", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1, 2, false, false, false,
      false, false, WINDOW_ALL },
    { "qwen2", "Qwen2ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 0, 32768, -1, -1, true, false, false,
      false, false, WINDOW_QWEN },
    { "qwen3", "Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 128, 32768, -1, -1, false, true, true,
      false, false, WINDOW_QWEN },
    { "mixtral", "MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1, 2, false, false, false,
      false, false, WINDOW_GIVEN, 8, 2, 0, false, 0, 1e-5, 1e6 },
    { "ministral3", "Ministral3ForCausalLM", 131072, 4096, 14336, 34, 32, 8, 128, 262144, 1, 2, false, false,
      false, false, false, WINDOW_GIVEN, .eps = 1e-5, .theta = 1e6, .growing = true },
    { "qwen3_moe", "Qwen3MoeForCausalLM", 151936, 2048, 6144, 24, 32, 4, 0, 32768, -1, -1, false, true, true,
      false, false, WINDOW_SWITCH, 128, 8, 768, true },
    { "qwen3_5", "Qwen3_5ForCausalLM", 248320, 4096, 12288, 32, 16, 4, 256, 32768, -1, -1, false, true, true,
      false, false, WINDOW_NONE, .delta = &qwen3_5, .text_type = "qwen3_5_text",
      .wrapper = "Qwen3_5ForConditionalGeneration" },
    { "qwen2_moe", "Qwen2MoeForCausalLM", 151936, 2048, 5632, 24, 16, 16, 0, 32768, -1, -1, true, false,
      false, false, false, WINDOW_OTHER, 60, 4, 1408, true, 5632 },
    { "qwen3_5_moe", "Qwen3_5MoeForCausalLM", 248320, 2048, 2048, 40, 16, 2, 256, 32768, -1, -1, false, true,
      true, false, false, WINDOW_NONE, 256, 8, 512, false, 512, .delta = &qwen3_5,
      .text_type = "qwen3_5_moe_text", .wrapper = "Qwen3_5MoeForConditionalGeneration" },
    { "gemma3", "Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 2, 1, false, true, true,
      false, true, WINDOW_NONE, .theta = 1e6, .text_type = "gemma3_text",
      .wrapper = "Gemma3ForConditionalGeneration", .gemma = true },
    { "smollm3", "SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, 0, 32768, 128000, 128001, false, false,
      true, true, true, WINDOW_UNTURNED, .theta = 2e6, .unturned = true },
    { "phi3", "Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 0, 0, 4096, 1, 32000, false, false, false, false,
      false, WINDOW_GIVEN, .eps = 1e-5, .phi = true },
    { "gpt_oss", "GptOssForCausalLM", 201088, 2880, 2880, 36, 64, 8, 64, 131072, -1, -1, false, false, true,
      false, false, WINDOW_NONE, 128, 4, .eps = 1e-5, .theta = 150000, .oss = true },
    { "gemma4", "Gemma4ForCausalLM", 262144, 2304, 9216, 30, 8, 4, 256, 131072, 2, 1, false, true, false,
      false, false, WINDOW_NONE, .theta = 1e6, .text_type = "gemma4_text",
      .wrapper = "Gemma4ForConditionalGeneration", .gemma = true, .gemma4 = true },
    { "olmo3", "Olmo3ForCausalLM", 50304, 4096, 11008, 32, 32, 0, 0, 2048, -1, 50279, false, true, false,
      false, true, WINDOW_NONE, .eps = 1e-5, .theta = 5e5, .olmo = true },
    { "granite", "GraniteForCausalLM", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1, 2, false, false, true, true,
      true, WINDOW_NONE, .granite = true },
};
enum { N_ARCHS = sizeof archs / sizeof *archs };

static const char partial[] = "partial_rotary_factor";

/* Keys of other architectures and of loaders that change the numbers of a model. */
static const struct foreign foreign_keys[] = {
    { "quantization_config", EMPTY, "gpt_oss" }, { "compression_config", EMPTY },
    { "partial_rotary_factor", ONE },
    { "rotary_pct", ONE }, { "rotary_emb_fraction", ONE }, { "rope_interleaved", NO },
    { "rope_interleave", NO }, { "rotary_emb_interleaved", NO },
    { "rope_local_base_freq", NULL_ONLY, "gemma3" },
    { "local_rope_theta", NULL_ONLY }, { "no_rope_layers", EMPTY, "smollm3" },
    { "no_rope_layer_interval", NULL_ONLY, "smollm3" },
    { "alibi", NO }, { "use_alibi", NO }, { "attn_logit_softcapping", ZERO }, { "attn_logit_softcap", ZERO },
    { "final_logit_softcapping", ZERO, "gemma4" }, { "logits_soft_cap", ZERO },
    { "query_pre_attn_scalar", NULL_ONLY, "gemma3" },
    { "attention_multiplier", NULL_ONLY, "granite" }, { "embedding_multiplier", ONE, "granite" },
    { "residual_multiplier", ONE, "granite" }, { "logits_scaling", ONE, "granite" }, { "logit_scale", ONE },
    { "scale_emb", ONE }, { "scale_depth", NULL_ONLY },
    { "dim_model_base", NULL_ONLY }, { "n_routed_experts", ZERO }, { "n_shared_experts", ZERO },
    { "kv_lora_rank", NULL_ONLY }, { "q_lora_rank", NULL_ONLY }, { "clip_qkv", NULL_ONLY },
    { "use_qk_norm", NO }, { "qk_layernorm", NO },
    { "attn_temperature_tuning", NO | ZERO }, { "attention_chunk_size", NULL_ONLY },
    { "use_attention_sinks", NO }, { "is_encoder_decoder", NO }, { "add_cross_attention", NO },
    { "cross_attention_layers", EMPTY }, { "is_causal", YES },
    { "use_bidirectional_attention", NO, "gemma4" }, { "per_layer_config", EMPTY, "gemma4" },
    { "block_configs", EMPTY }, { "bias", NO }, { "use_bias", NO },
    { "attention_out_bias", NO },
};

/* The same, of mixtures of experts: models of others must not have them. */
static const struct foreign expert_keys[] = {
    { "num_local_experts", ZERO }, { "num_experts", ZERO }, { "moe_intermediate_size", ZERO },
};

static int missing(const struct json *in, const char *key, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: %s%s%s is missing", in->file, in->key[0] ? in->key[0] : "",
                   in->key[0] ? "." : "", key);
}

/* Whether a model_type is that of a drafter of Gemma 4. */
static bool drafts(const struct json *v)
{
    return js_is(v, "gemma4_assistant") || js_is(v, "gemma4_unified_assistant");
}

static bool has_type_name(const struct arch *a, const struct json *v)
{
    return js_is(v, a->model_type) || (a->text_type && js_is(v, a->text_type)) ||
           (a->granite && js_is(v, "granitemoehybrid")) ||
           (a->gemma4 && (js_is(v, "gemma4_unified") || js_is(v, "gemma4_unified_text") || drafts(v)));
}

static bool has_name(const struct arch *a, const struct json *v)
{
    return js_is(v, a->architecture) || (a->wrapper && js_is(v, a->wrapper)) ||
           (a->granite && js_is(v, "GraniteMoeHybridForCausalLM")) ||
           (a->gemma4 && (js_is(v, "Gemma4AssistantForCausalLM") || js_is(v, "Gemma4UnifiedForCausalLM") ||
                          js_is(v, "Gemma4UnifiedAssistantForCausalLM") ||
                          js_is(v, "Gemma4UnifiedForConditionalGeneration")));
}

/* The architecture that model_type and architectures name. One of the two keys may be missing; they must
 * agree. */
static const struct arch *find_arch(const struct json *root, struct err *e)
{
    static const char allowed[] =
        "allowed are llama, mistral, mistral3, ministral3, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, "
        "qwen3_5, qwen3_5_moe, gemma3, gemma4, smollm3, phi3, olmo3, granite, "
        "granitemoehybrid and gpt_oss";
    static const char allowed_names[] =
        "allowed are LlamaForCausalLM, MistralForCausalLM, Mistral3ForConditionalGeneration, "
        "Ministral3ForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, "
        "Qwen3ForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM, SmolLM3ForCausalLM, "
        "Phi3ForCausalLM, Olmo3ForCausalLM, GraniteForCausalLM, GraniteMoeHybridForCausalLM, "
        "GptOssForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Gemma3ForCausalLM, "
        "Gemma4ForCausalLM, and ForConditionalGeneration for the last four";
    const struct arch *arch = NULL;
    struct json type, list, name;
    int has_type = get_value(root, "model_type", &type, e),
        has_list = get_value(root, "architectures", &list, e);
    if (has_type < 0 || has_list < 0)
        return NULL;
    for (size_t i = 0; has_type && i < N_ARCHS; i++)
        if (has_type_name(&archs[i], &type))
            arch = &archs[i];
    if (has_type && !arch)
        return js_bad(&type, e, allowed), NULL;
    if (has_list && js_kind(&list) != JS_ARRAY)
        return js_bad(&list, e, "allowed is a list of names"), NULL;
    if (has_list && !is_neutral(&list, EMPTY)) {
        for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &name);)
            for (size_t i = 0; i < N_ARCHS; i++)
                if (has_name(&archs[i], &name) && (!arch || arch == &archs[i]))
                    return &archs[i];
        if (has_type)
            return js_bad(&list, e, "model_type %s needs %s", arch->model_type, arch->architecture), NULL;
        return js_bad(&list, e, allowed_names), NULL;
    }
    if (!arch)
        err_set(e, ERR_INPUT, "%s: model_type and architectures are missing, %s", root->file, allowed);
    return arch;
}

/* The text model of a wrapper mistral3 is Mistral or Ministral 3. */
static const struct arch *find_mistral3(const struct json *root, struct json *text, struct err *e)
{
    struct json type;
    int found = get_value(root, "text_config", text, e);
    if (found <= 0)
        return found < 0 ? NULL : (missing(root, "text_config", e), NULL);
    if (js_kind(text) != JS_OBJECT)
        return js_bad(text, e, "allowed is an object"), NULL;
    found = get_value(text, "model_type", &type, e);
    for (size_t i = 0; found >= 0 && i < N_ARCHS; i++) {
        const bool mistral = strcmp(archs[i].model_type, "mistral") == 0;
        if ((mistral || archs[i].growing) && (found ? js_is(&type, archs[i].model_type) : mistral))
            return &archs[i];
    }
    if (found > 0)
        js_bad(&type, e, "allowed are mistral and ministral3");
    return NULL;
}

/* The settings of the text model, which a wrapper has in text_config, and its architecture. NULL: an
 * error. */
static const struct arch *find_text(const struct json *root, struct json *text, struct err *e)
{
    struct json type;
    int found = get_value(root, "model_type", &type, e);
    if (found < 0)
        return NULL;
    if (found && js_is(&type, "mistral3"))
        return find_mistral3(root, text, e);
    const struct arch *a = find_arch(root, e);
    *text = *root;
    if (!a || !a->wrapper)
        return a;
    found = get_value(root, "text_config", text, e);
    if (found <= 0) {
        *text = *root;
        return found < 0 ? NULL : a;
    }
    if (js_kind(text) != JS_OBJECT)
        return js_bad(text, e, "allowed is an object"), NULL;
    found = get_value(text, "model_type", &type, e);
    if (found < 0 || (found && !has_type_name(a, &type)))
        return found < 0 ? NULL : (js_bad(&type, e, "allowed is %s", a->text_type), NULL);
    return a;
}

static int read_shape(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    struct json v;
    size_t heads, dim;
    if (get_size(root, "vocab_size", a->vocab, NULL_REFUSED, 1 << 24, &c->vocab, e) ||
        get_size(root, "hidden_size", a->hidden, NULL_REFUSED, 1 << 20, &c->hidden, e) ||
        get_size(root, "intermediate_size", a->ffn, NULL_REFUSED, 1 << 24, &c->ffn, e) ||
        get_size(root, "num_hidden_layers", a->n_layers, NULL_REFUSED, CONFIG_LAYERS_MAX, &c->n_layers, e) ||
        get_size(root, "num_attention_heads", a->n_heads, NULL_REFUSED, 1 << 16, &heads, e) ||
        get_size(root, "max_position_embeddings", a->max_position, NULL_REFUSED, CONTEXT_MAX,
                 &c->max_position, e))
        return -1;
    c->n_heads = heads;
    int found = js_get(root, "num_key_value_heads", &v, e);
    c->n_kv_heads = found == 1 ? heads : a->n_kv_heads ? a->n_kv_heads : heads;
    if (found < 0 || (found && !is_null(&v) && js_size(&v, 1, heads, &c->n_kv_heads, e)))
        return -1;
    if (heads % c->n_kv_heads)
        return err_set(e, ERR_INPUT,
                       "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu", root->file,
                       heads, c->n_kv_heads);
    if (get_size(root, "head_dim", a->head_dim, a->head_dim ? NULL_REFUSED : NULL_MISSING, HEAD_DIM_MAX, &dim,
                 e))
        return -1;
    if (c->hidden % heads && (!dim || a->hidden_multiple))
        return err_set(e, ERR_INPUT, "%s: hidden_size %zu is not a multiple of num_attention_heads %zu",
                       root->file, c->hidden, heads);
    c->head_dim = dim ? dim : c->hidden / heads;
    if (c->head_dim % 2 || c->head_dim > HEAD_DIM_MAX)
        return err_set(e, ERR_INPUT, "%s: head_dim is %zu%s, allowed are even numbers up to %d", root->file,
                       c->head_dim, dim ? "" : " (hidden_size / num_attention_heads)", HEAD_DIM_MAX);
    return 0;
}

/* Refuses keys that would change the numbers. */
static int refuse_foreign(const struct arch *a, const struct json *root, struct err *e)
{
    struct json v;
    const size_t n = sizeof foreign_keys / sizeof *foreign_keys,
                 n_expert_keys = a->n_experts || a->gemma4 ? 0 : sizeof expert_keys / sizeof *expert_keys;
    for (size_t i = 0; i < n + n_expert_keys; i++) {
        const struct foreign *key = i < n ? &foreign_keys[i] : &expert_keys[i - n];
        const int found = js_get(root, key->key, &v, e);
        if (found < 0)
            return -1;
        if (found && !is_neutral(&v, key->neutral) && !(key->of && strcmp(a->model_type, key->of) == 0) &&
            !((a->delta || a->phi) && strcmp(key->key, partial) == 0))
            return js_bad(&v, e, "this is not implemented for %s models", a->model_type);
    }
    return 0;
}

static int read_flags(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    static const struct foreign biases[] = { { "attention_bias", NO }, { "mlp_bias", NO } };
    struct json v;
    int found = js_get(root, "hidden_act", &v, e);
    if (found < 0)
        return -1;
    if (found && !a->gemma && !js_is(&v, "silu") && !js_is(&v, "swish"))
        return js_bad(&v, e, "allowed are \"silu\" and \"swish\"");
    bool qkv_bias = a->qkv_bias;
    if (a->shared_ffn && qkv_bias && get_bool(root, "qkv_bias", true, &qkv_bias, e))
        return -1;
    if (get_real(root, "rms_norm_eps", a->eps != 0 ? a->eps : 1e-6, 1e-30, 1, &c->rms_eps, e) ||
        get_bool(root, "tie_word_embeddings", a->gemma || a->unturned, &c->tied, e))
        return -1;
    bool attention_bias = false;
    if ((a->attention_bias && get_bool(root, "attention_bias", a->oss, &attention_bias, e)) ||
        (a->mlp_bias && get_bool(root, "mlp_bias", false, &c->mlp_bias, e)))
        return -1;
    /* Qwen2 has its biases whatever attention_bias says. Elsewhere a bias that transformers would ignore
     * is refused. */
    for (size_t i = 0; i < 2; i++) {
        if (i == 0 ? a->attention_bias || a->qkv_bias : a->mlp_bias)
            continue;
        found = js_get(root, biases[i].key, &v, e);
        if (found < 0 || (found && !is_neutral(&v, biases[i].neutral)))
            return found < 0 ? -1 : js_bad(&v, e, "%s models have none: allowed is false", a->model_type);
    }
    c->qkv_bias = qkv_bias || attention_bias;
    c->o_bias = attention_bias;
    c->qk_norm = a->qk_norm;
    return refuse_foreign(a, root, e);
}

/* Reads the layers without experts: those of mlp_only_layers, and all but every decoder_sparse_step-th. */
static int read_kinds(struct config *c, const struct json *root, struct err *e)
{
    struct json list, x;
    size_t step, l;
    if (get_size(root, "decoder_sparse_step", 1, NULL_MISSING, CONFIG_LAYERS_MAX, &step, e))
        return -1;
    for (l = 0; l < c->n_layers; l++)
        c->kind[l] = (l + 1) % step == 0 ? LAYER_EXPERTS : LAYER_DENSE;
    const int found = get_value(root, "mlp_only_layers", &list, e);
    if (found <= 0)
        return found;
    if (js_kind(&list) != JS_ARRAY)
        return js_bad(&list, e, "allowed is a list of layers");
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &x);) {
        if (js_size(&x, 0, INT32_MAX, &l, e))
            return -1;
        if (l < c->n_layers)
            c->kind[l] = LAYER_DENSE;
    }
    return 0;
}

/* Reads the width of a shared expert. */
static int read_shared(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    static const char key[] = "shared_expert_intermediate_size";
    struct json v;
    if (a->shared_ffn)
        return get_size(root, key, a->shared_ffn, NULL_REFUSED, EXPERT_FFN_MAX, &c->shared_ffn, e);
    const int found = js_get(root, key, &v, e);
    return found > 0 && !is_neutral(&v, ZERO)
               ? js_bad(&v, e, "this is not implemented for %s models", a->model_type)
               : MIN(found, 0);
}

/* Reads a mixture of experts. transformers knows the number under two names. */
static int read_experts(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    struct json v;
    if (read_shared(c, a, root, e))
        return -1;
    if (!a->n_experts)
        return 0;
    c->expert_ffn = a->expert_ffn ? a->expert_ffn : c->ffn;
    c->experts_normalised = !a->norm_topk_prob;
    const char *number = js_get(root, "num_experts", &v, e) == 1 ? "num_experts" : "num_local_experts";
    if (get_size(root, number, a->n_experts, NULL_REFUSED, EXPERTS_MAX, &c->n_experts, e) ||
        get_size(root, "num_experts_per_tok", a->experts_used, NULL_REFUSED, EXPERTS_MAX, &c->experts_used,
                 e) ||
        (a->expert_ffn && get_size(root, "moe_intermediate_size", a->expert_ffn, NULL_REFUSED,
                                   EXPERT_FFN_MAX, &c->expert_ffn, e)) ||
        (a->norm_topk_prob && get_bool(root, "norm_topk_prob", false, &c->experts_normalised, e)))
        return -1;
    if (c->expert_ffn > EXPERT_FFN_MAX)
        return err_set(e, ERR_INPUT, "%s: intermediate_size is %zu, allowed for experts are 1 to %d",
                       root->file, c->expert_ffn, EXPERT_FFN_MAX);
    if (c->experts_used > c->n_experts)
        return err_set(e, ERR_INPUT, "%s: num_experts_per_tok is %zu, allowed are 1 to %s %zu", root->file,
                       c->experts_used, number, c->n_experts);
    if (a->norm_topk_prob)
        return read_kinds(c, root, e);
    memset(c->kind, LAYER_EXPERTS, c->n_layers);
    return 0;
}

/* Reads the layers without RoPE: zeros in no_rope_layers, else every no_rope_layer_interval-th. */
static int read_unturned(struct config *c, const struct json *root, struct err *e)
{
    struct json list, x;
    size_t n = 0, every, turns;
    if (get_size(root, "no_rope_layer_interval", 4, NULL_REFUSED, INT32_MAX, &every, e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->local[l] = (l + 1) % every == 0;
    const int found = get_value(root, "no_rope_layers", &list, e);
    if (found <= 0)
        return found;
    if (js_kind(&list) != JS_ARRAY)
        return js_bad(&list, e, "allowed is a list of 0 and 1");
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &x); n++) {
        if (js_size(&x, 0, 1, &turns, e))
            return -1;
        if (n < c->n_layers)
            c->local[n] = !turns;
    }
    if (n < c->n_layers)
        return err_set(e, ERR_INPUT,
                       "%s: no_rope_layers has %zu entries, num_hidden_layers is %zu: allowed are at least "
                       "as many", root->file, n, c->n_layers);
    return 0;
}

/* Reads the sliding window and the layers that have it (struct arch). */
static int read_window(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    struct json v;
    if (a->delta || a->gemma || a->oss || a->olmo || a->granite)
        return 0;
    bool use = a->window == WINDOW_ALL || a->window == WINDOW_GIVEN;
    const bool named = a->window >= WINDOW_QWEN;
    size_t first = named ? 28 : 0;
    if (a->window >= WINDOW_SWITCH && get_bool(root, "use_sliding_window", false, &use, e))
        return -1;
    int found = js_get(root, "sliding_window", &v, e);
    if (found < 0)
        return -1;
    if (a->window == WINDOW_NONE && found && !is_null(&v))
        return js_bad(&v, e, "llama models have no window: allowed is null");
    c->window = use && !found && a->window != WINDOW_GIVEN && a->window != WINDOW_UNTURNED ? 4096 : 0;
    if (use && found && !is_null(&v) && js_size(&v, 1, INT32_MAX, &c->window, e))
        return -1;
    if (named && use) {
        found = js_get(root, "max_window_layers", &v, e);
        if (found < 0 || (found && js_size(&v, 0, INT32_MAX, &first, e)))
            return -1;
    }
    uint8_t derived[CONFIG_LAYERS_MAX] = { 0 };
    for (size_t l = 0; l < c->n_layers; l++)
        derived[l] = c->window && (a->window == WINDOW_OTHER      ? l < first && l % 2 == 0
                                   : a->window == WINDOW_UNTURNED ? c->local[l]
                                                                  : l >= first);
    memcpy(c->windowed, derived, sizeof derived);
    found = get_value(root, "layer_types", &v, e);
    if (found <= 0)
        return found;
    if (config_read_layer_types(c, &v, e))
        return -1;
    if (!named && memcmp(c->windowed, derived, sizeof derived))
        return js_bad(&v, e, "%s models have %s layer%s", a->model_type,
                      c->window ? "the window of sliding_window in every" : "full attention in every",
                      c->window && a->unturned ? " without RoPE" : "");
    if (!c->window && memchr(c->windowed, 1, c->n_layers))
        return js_bad(&v, e, "sliding_attention needs use_sliding_window and sliding_window");
    return 0;
}

/* mrope_section, mrope_interleaved: the three positions of a token of text are equal, so the division of the
 * frequencies among them has no effect. */
static int read_rope_keys(const struct json *dict, const struct arch *a, struct err *e)
{
    static const char *const known[] = {
        "type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor",
        "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
        "truncate", "partial_rotary_factor", "finetuned", "mrope_section", "mrope_interleaved",
    };
    const size_t n_known = sizeof known / sizeof *known - (a->delta ? 0 : 2);
    struct json key, v;
    for (struct js_walk w = js_walk(dict); js_next(&w, &key, &v);) {
        size_t i = 0;
        while (i < n_known && !js_is(&key, known[i]))
            i++;
        const bool of_growing = js_is(&key, "llama_4_scaling_beta") || js_is(&key, "max_position_embeddings"),
                   of_phi = js_is(&key, "long_factor") || js_is(&key, "short_factor");
        if (i == n_known && !is_null(&v) && !(a->growing && of_growing) && !(a->phi && of_phi))
            return js_bad(&key, e, "this key of %s is not implemented", dict->key[0]);
    }
    return 0;
}

/* Older files of Phi-3 call longrope su or yarn. */
static int read_rope_type(struct config *c, const struct arch *a, const struct json *dict, struct err *e)
{
    static const struct { const char *name; enum rope_type type; } types[] = {
        { "default", ROPE_PLAIN }, { "linear", ROPE_LINEAR }, { "llama3", ROPE_LLAMA3 },
        { "yarn", ROPE_YARN }, { "dynamic", ROPE_DYNAMIC } };
    struct json v;
    int found = js_get(dict, "rope_type", &v, e);
    if (found == 0)
        found = js_get(dict, "type", &v, e);
    if (found <= 0)
        return found;
    if (a->phi && (js_is(&v, "longrope") || js_is(&v, "su") || js_is(&v, "yarn"))) {
        c->rope.type = ROPE_LONG;
        return 0;
    }
    if (a->gemma4) {
        c->rope.type = ROPE_DIVIDED;
        return js_is(&v, "proportional") ? 0 : js_bad(&v, e, "allowed is \"proportional\"");
    }
    if (a->phi && !js_is(&v, "default"))
        return js_bad(&v, e, "allowed are default and longrope");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (js_is(&v, types[i].name)) {
            c->rope.type = types[i].type;
            return 0;
        }
    return js_bad(&v, e, "allowed are default, linear, llama3, yarn and dynamic");
}

/* Reads a required number. */
static int need_real(const struct json *in, const char *key, double lo, double hi, double *x, struct err *e)
{
    struct json v;
    int found = js_get(in, key, &v, e);
    if (found <= 0)
        return found < 0 ? -1 : missing(in, key, e);
    return js_real(&v, lo, hi, x, e);
}

/* Reads original_max_position_embeddings: from the top level, else from the scaling, else
 * max_position_embeddings. Of Phi-3 from the top level, else 4,096. */
static int read_original(struct config *c, const struct arch *a, const struct json *root,
                         const struct json *dict, struct err *e)
{
    struct json v;
    int found = js_get(root, "original_max_position_embeddings", &v, e);
    if (found == 0 && !a->phi)
        found = js_get(dict, "original_max_position_embeddings", &v, e);
    c->rope.original = a->phi ? 4096 : c->max_position;
    return found == 1 ? js_size(&v, 1, CONTEXT_MAX, &c->rope.original, e) : found;
}

static int read_yarn(struct rope_config *r, const struct config *c, const struct json *dict, struct err *e)
{
    struct json v;
    int found = js_get(dict, "factor", &v, e);
    if (found <= 0)
        return found < 0 ? -1 : missing(dict, "factor", e);
    r->factor = (double)c->max_position / (double)r->original;
    if (is_null(&v) ? r->factor < 1 : js_real(&v, 1, 1e6, &r->factor, e))
        return is_null(&v) ? js_bad(&v, e, "max_position_embeddings is below the original length: allowed "
                                           "are numbers from 1") : -1;
    if (get_real(dict, "beta_fast", 0, 0, 1e6, &r->beta_fast, e) ||
        get_real(dict, "beta_slow", 0, 0, 1e6, &r->beta_slow, e) ||
        get_real(dict, "mscale", 0, 0, 1e6, &r->mscale, e) ||
        get_real(dict, "mscale_all_dim", 0, 0, 1e6, &r->mscale_all_dim, e) ||
        get_real(dict, "attention_factor", 0, 1e-6, 1e6, &r->attention_factor, e) ||
        get_bool(dict, "truncate", true, &r->truncate, e))
        return -1;
    r->beta_fast = r->beta_fast == 0 ? 32 : r->beta_fast;
    r->beta_slow = r->beta_slow == 0 ? 1 : r->beta_slow;
    return 0;
}

/* Reads how many dimensions of a head turn. The settings of RoPE win over the older key beside them. */
static int read_rotary(struct config *c, const struct arch *a, const struct json *root,
                       const struct json *dict, struct err *e)
{
    double older, factor;
    c->rotary = c->head_dim;
    if (!a->delta && !a->phi)
        return 0;
    if (get_real(root, partial, a->delta ? 0.25 : 1, 0, 1, &older, e) ||
        get_real(dict, partial, older, 0, 1, &factor, e))
        return -1;
    c->rotary = (size_t)((double)c->head_dim * factor);
    return c->rotary >= 2 && c->rotary % 2 == 0
               ? 0
               : err_set(e, ERR_INPUT, "%s: %s %g of head_dim %zu makes %zu dimensions, allowed are even "
                                       "numbers from 2", root->file, partial, factor, c->head_dim, c->rotary);
}

static int read_rope(struct config *c, const struct arch *a, const struct json *root, struct err *e)
{
    struct rope_config *r = &c->rope;
    struct json dict = *root, v;
    *r = (struct rope_config){ .factor = 1, .truncate = true };
    if (get_real(root, "rope_theta", a->theta != 0 ? a->theta : 10000, 1, 1e30, &r->theta, e))
        return -1;
    /* The old spelling wins if it is not empty, as in transformers. */
    int found = get_value(root, "rope_scaling", &dict, e);
    if (found == 1 && js_kind(&dict) == JS_OBJECT && is_neutral(&dict, EMPTY))
        found = 0;
    const bool old = found > 0;
    if (found == 0)
        found = get_value(root, "rope_parameters", &dict, e);
    if (found < 0 ||
        ((a->gemma || a->olmo) && config_read_local_rope(c, root, &dict, old ? NULL : &found, e)))
        return -1;
    if (found) {
        if (js_kind(&dict) != JS_OBJECT)
            return js_bad(&dict, e, "allowed is an object");
        if (read_rope_type(c, a, &dict, e) || read_rope_keys(&dict, a, e) ||
            get_real(&dict, "rope_theta", r->theta, 1, 1e30, &r->theta, e))
            return -1;
        const int has = js_get(&dict, partial, &v, e);
        if (has < 0 || (has && !a->delta && !a->phi && !a->gemma4 && !is_neutral(&v, ONE)))
            return has < 0 ? -1 : js_bad(&v, e, "allowed is 1");
        if ((r->type == ROPE_LLAMA3 || r->type == ROPE_YARN || r->type == ROPE_LONG) &&
            read_original(c, a, root, &dict, e))
            return -1;
        if ((r->type == ROPE_LINEAR || r->type == ROPE_DYNAMIC || r->type == ROPE_LLAMA3) &&
            need_real(&dict, "factor", 1, 1e6, &r->factor, e))
            return -1;
        if (r->type == ROPE_LLAMA3 &&
            (need_real(&dict, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, e) ||
             need_real(&dict, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, e)))
            return -1;
        if (r->type == ROPE_LLAMA3 && r->high_freq_factor <= r->low_freq_factor)
            return err_set(e, ERR_INPUT, "%s: %s.high_freq_factor is %g, it must be above low_freq_factor %g",
                           root->file, dict.key[0], r->high_freq_factor, r->low_freq_factor);
        if (r->type == ROPE_YARN && read_yarn(r, c, &dict, e))
            return -1;
    }
    if ((a->growing || (a->oss && !found)) && r->type != ROPE_YARN)
        return err_set(e, ERR_INPUT, "%s: rope_parameters of rope_type yarn are missing, %s needs them",
                       root->file, a->model_type);
    if (a->growing && need_real(&dict, "llama_4_scaling_beta", 0, 1e3, &r->growth, e))
        return -1;
    if (read_rotary(c, a, root, found ? &dict : root, e) ||
        (a->gemma4 && config_read_proportional(c, found ? &dict : NULL, e)) ||
        (r->type == ROPE_LONG && config_read_long(c, &dict, e)))
        return -1;
    if (r->type == ROPE_YARN && r->theta <= 1)
        return err_set(e, ERR_INPUT, "%s: rope_theta is 1, yarn needs more than 1", root->file);
    if (r->type == ROPE_DYNAMIC && c->rotary == 2)
        return err_set(e, ERR_INPUT, "%s: head_dim is 2, dynamic rope needs more", root->file);
    c->context = config_context(c);
    return c->context ? 0
                      : err_set(e, ERR_INPUT, "%s: %s.factor %g makes a context of more than %d positions",
                                root->file, dict.key[0], r->factor, CONTEXT_MAX);
}

/* Whether an id is a whole number that no token has: no text holds it, and transformers takes it. */
static bool is_no_token(struct config *c, const struct json *v, const char *key)
{
    int64_t id;
    if (js_kind(v) != JS_NUMBER || !js_i64(v, &id) || (id >= 0 && (uint64_t)id < c->vocab))
        return false;
    c->no_token_key = key;
    c->no_token = id;
    return true;
}

static int add_eos(struct config *c, const struct json *v, struct err *e)
{
    size_t id, i = 0;
    if (is_no_token(c, v, "eos_token_id"))
        return 0;
    if (js_size(v, 0, c->vocab - 1, &id, e))
        return -1;
    while (i < c->n_eos && c->eos[i] != (int32_t)id)
        i++;
    if (i < c->n_eos)
        return 0;
    if (c->n_eos == CONFIG_EOS_MAX)
        return js_bad(v, e, "at most %d different ids are allowed", CONFIG_EOS_MAX);
    c->eos[c->n_eos++] = (int32_t)id;
    return 0;
}

/* Reads bos_token_id and eos_token_id of either file. *has_eos: the file has an eos_token_id, which may be
 * null. */
static int read_ids(struct config *c, const struct json *root, bool *has_eos, struct err *e)
{
    struct json v, x;
    size_t id;
    int found = get_value(root, "bos_token_id", &v, e);
    if (found > 0 && is_no_token(c, &v, "bos_token_id"))
        found = 0;
    if (found < 0 || (found && js_size(&v, 0, c->vocab - 1, &id, e)))
        return -1;
    if (found && c->bos < 0)
        c->bos = (int32_t)id;
    found = js_get(root, "eos_token_id", &v, e);
    *has_eos = found == 1;
    if (found <= 0 || is_null(&v))
        return found < 0 ? -1 : 0;
    if (js_kind(&v) != JS_ARRAY)
        return add_eos(c, &v, e);
    size_t n = 0;
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x); n++)
        if (n == CONFIG_EOS_MAX || add_eos(c, &x, e))
            return n == CONFIG_EOS_MAX ? js_bad(&v, e, "allowed are 1 to %d ids", CONFIG_EOS_MAX) : -1;
    return n ? 0 : js_bad(&v, e, "allowed are 1 to %d ids", CONFIG_EOS_MAX);
}

/* Completes the list of heads: those of the cache where all layers have the same, which layers are rings, and
 * the sums, which have 32 bits. */
static int list_heads(struct config *c, const char *file, struct err *e)
{
    if (c->window || c->heads_differ) {
        const size_t most = c->n_layers * c->n_kv_heads * ((c->head_dim + 15) / 16 * 16);
        if (most > INT32_MAX)
            return err_set(e, ERR_INPUT, "%s: %zu layers x %zu key/value heads x head_dim %zu: allowed are "
                           "fewer than 2^31 dimensions in all layers of a model with windows", file,
                           c->n_layers, c->n_kv_heads, c->head_dim);
    }
    for (size_t l = 0; l < c->n_layers && (c->window || c->heads_differ); l++) {
        struct kv_heads *h = &c->heads[l];
        if (!c->heads_differ)
            h->n = (uint32_t)c->n_kv_heads, h->dim = (uint32_t)(c->head_dim + 15) / 16 * 16;
        h->ring = c->windowed[l];
        h[1].first = h->first + h->n, h[1].dims = h->dims + h->n * h->dim;
        h[1].ring_first = h->ring_first + h->ring * h->n;
        h[1].ring_dims = h->ring_dims + h->ring * h->n * h->dim;
    }
    return 0;
}

int config_parse(struct config *c, const char *file, const char *json, size_t n, const char *gen_file,
                 const char *generation, size_t gen_n, struct err *e)
{
    struct json root, text;
    bool has_eos = false, gen_has_eos = false, tied = false;
    *c = (struct config){ .bos = -1 };
    if (js_check(&root, file, json, n, e))
        return -1;
    if (js_kind(&root) != JS_OBJECT)
        return js_bad(&root, e, "allowed is an object");
    const struct arch *a = find_text(&root, &text, e);
    if (!a)
        return -1;
    struct json type;
    snprintf(c->model_type, sizeof c->model_type, "%s", a->model_type);
    if (a->gemma4 && js_get(&root, "model_type", &type, e) == 1 && drafts(&type) &&
        get_size(&root, "backbone_hidden_size", 1536, NULL_REFUSED, 1 << 20, &c->backbone, e))
        return -1;
    if (read_shape(c, a, &text, e) || read_flags(c, a, &text, e) || read_experts(c, a, &text, e) ||
        (a->delta && config_read_delta(c, a->delta, &text, e)) ||
        (a->gemma && (a->gemma4 ? config_read_gemma4 : config_read_gemma)(c, &text, e)) ||
        (a->oss && config_read_oss(c, &text, e)) || (a->olmo && config_read_olmo(c, &text, e)) ||
        (a->granite && config_read_granite(c, &text, e)) ||
        (a->unturned && read_unturned(c, &text, e)) ||
        read_window(c, a, &text, e) ||
        read_rope(c, a, &text, e) || read_ids(c, &text, &has_eos, e))
        return -1;
    if (text.s != root.s && (refuse_foreign(a, &root, e) || read_ids(c, &root, &gen_has_eos, e) ||
                             get_bool(&root, "tie_word_embeddings", false, &tied, e)))
        return -1;
    c->tied |= tied;
    has_eos |= gen_has_eos;
    bool has_bos = js_get(&root, "bos_token_id", &(struct json){ 0 }, e);
    if (generation) {
        struct json gen;
        c->has_generation_config = true;
        if (js_check(&gen, gen_file, generation, gen_n, e))
            return -1;
        if (js_kind(&gen) != JS_OBJECT)
            return js_bad(&gen, e, "allowed is an object");
        if (read_ids(c, &gen, &gen_has_eos, e) || config_read_generation(c, &gen, e))
            return -1;
        has_bos |= js_get(&gen, "bos_token_id", &(struct json){ 0 }, e);
    }
    /* The default ids of an architecture apply if no file mentions them. */
    if (!has_bos && a->bos >= 0 && (size_t)a->bos < c->vocab)
        c->bos = a->bos;
    if (!has_eos && !generation && a->eos >= 0 && (size_t)a->eos < c->vocab)
        c->eos[c->n_eos++] = a->eos;
    return list_heads(c, file, e);
}
