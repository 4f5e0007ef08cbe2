/* The configuration of a GGUF model. The metadata become the config.json that a Hugging Face model of the
 * same kind has, so one reader (config_parse) checks both. Start at gguf_config. */
#include "src/model/gguf_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"

enum { LAYERS_MAX = 512, KEY_BYTES = 128, EOS_NAMES = 14 };

/* GGUF's names, and model_type where Hugging Face has another. */
static const struct arch { const char *name, *type; bool experts, states; } archs[] = {
    { "llama", NULL, false, false },          { "qwen2", "qwen2", false, false },
    { "qwen3", "qwen3", false, false },       { "qwen2moe", "qwen2_moe", true, false },
    { "qwen3moe", "qwen3_moe", true, false }, { "qwen35", "qwen3_5", false, true },
    { "qwen35moe", "qwen3_5_moe", true, true }, { "mistral3", NULL, false, false },
    { "gemma3", "gemma3", false, false },     { "smollm3", "smollm3", false, false },
    { "phi3", "phi3", false, false },         { "gpt-oss", "gpt_oss", false, false },
    { "gemma4", "gemma4", false, false },     { "gemma4-assistant", "gemma4_assistant", false, false },
    { "olmo2", "olmo3", false, false },       { "granite", "granite", false, false },
};

struct meta {                            /* what is being read */
    const struct gguf *g;
    const struct arch *a;
    char arch[24];
    size_t n_experts;                    /* 0: none */
    struct json_writer *w;
    struct err *e;
};

/* The key ARCH.NAME. */
static const char *key_of(char key[KEY_BYTES], const struct meta *m, const char *name)
{
    snprintf(key, KEY_BYTES, "%s.%s", m->arch, name);
    return key;
}

static int read_uint(const struct meta *m, const char *name, size_t layers, size_t lo, size_t hi, size_t *x)
{
    char key[KEY_BYTES];
    return gguf_uint(m->g, key_of(key, m, name), layers, lo, hi, x, m->e);
}

static int need_uint(const struct meta *m, const char *name, size_t layers, size_t hi, size_t *x)
{
    char key[KEY_BYTES];
    const int found = gguf_uint(m->g, key_of(key, m, name), layers, 1, hi, x, m->e);
    return found ? (found < 0 ? -1 : 0) : gguf_bad(m->g, key, m->e, "the key is missing");
}

static int read_real(const struct meta *m, const char *name, double lo, double hi, double *x)
{
    char key[KEY_BYTES];
    return gguf_real(m->g, key_of(key, m, name), lo, hi, x, m->e);
}

/* Writes a number with the fewest digits that give the same float: 1e-05 is what config.json says, too. */
static void write_float(struct json_writer *w, const char *key, double x)
{
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x)
            break;
    }
    jw_raw(w, key, text, strlen(text));
}

static int read_arch(struct meta *m)
{
    struct slice s;
    int found = gguf_string(m->g, "general.type", &s, m->e);
    if (found < 0)
        return -1;
    if (found && (s.n != 5 || memcmp(s.p, "model", 5)))
        return gguf_bad(m->g, "general.type", m->e, "found %.*s, allowed is model", (int)MIN(s.n, (size_t)60),
                        (const char *)s.p);
    found = gguf_string(m->g, "general.architecture", &s, m->e);
    if (found <= 0)
        return found ? -1 : gguf_bad(m->g, "general.architecture", m->e, "the key is missing");
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (s.n == strlen(archs[i].name) && memcmp(s.p, archs[i].name, s.n) == 0) {
            m->a = &archs[i];
            snprintf(m->arch, sizeof m->arch, "%s", archs[i].name);
            return 0;
        }
    return gguf_bad(m->g, "general.architecture", m->e,
                    "found %.*s, allowed are llama (with Mistral and Mixtral), mistral3, qwen2, qwen3, "
                    "qwen2moe, qwen3moe, qwen35, qwen35moe, gemma3, gemma4, smollm3, phi3, olmo2, "
                    "granite and gpt-oss",
                    (int)MIN(s.n, (size_t)60), (const char *)s.p);
}

static bool is_mistral3(const struct meta *m) { return strcmp(m->arch, "mistral3") == 0; }
static bool is_assistant(const struct meta *m) { return strcmp(m->arch, "gemma4-assistant") == 0; }
static bool is_gemma4(const struct meta *m) { return strcmp(m->arch, "gemma4") == 0 || is_assistant(m); }
static bool is_gemma(const struct meta *m) { return strcmp(m->arch, "gemma3") == 0 || is_gemma4(m); }
static bool is_granite(const struct meta *m) { return strcmp(m->arch, "granite") == 0; }
static bool is_olmo(const struct meta *m) { return strcmp(m->arch, "olmo2") == 0; }
/* Layers with a window and others have frequencies of their own. */
static bool has_local(const struct meta *m) { return is_gemma(m) || is_olmo(m); }
static bool is_phi(const struct meta *m) { return strcmp(m->arch, "phi3") == 0; }
static bool is_oss(const struct meta *m) { return strcmp(m->arch, "gpt-oss") == 0; }

/* How the queries of mistral3 grow with the position (struct rope_config), and the ratio of YaRN's factors;
 * zeros of other models. */
static int read_growth(const struct meta *m, size_t original, double *growth, double *mscale)
{
    size_t length = original;
    char key[KEY_BYTES];
    *growth = *mscale = 0;
    if (!is_mistral3(m))
        return 0;
    if (read_real(m, "attention.temperature_scale", 0, 1e3, growth) < 0 ||
        read_real(m, "rope.scaling.yarn_log_multiplier", 0, 1e6, mscale) < 0 ||
        read_uint(m, "attention.temperature_length", 0, 1, CONTEXT_MAX, &length) < 0)
        return -1;
    if (length != original)
        return gguf_bad(m->g, key_of(key, m, "attention.temperature_length"), m->e,
                        "found %zu, allowed is rope.scaling.original_context_length %zu", length, original);
    return 0;
}

/* Keys of other models that change the numbers: refused unless they have the value that changes nothing. */
static int check_foreign(const struct meta *m)
{
    static const struct { const char *name; double neutral; } foreign[] = {
        { "expert_shared_count", 0 }, { "expert_gating_func", 1 }, { "expert_weights_scale", 1 },
        { "leading_dense_block_count", 0 },
        { "attn_logit_softcapping", 0 }, { "final_logit_softcapping", 0 }, { "logit_scale", 1 },
        { "embedding_scale", 1 }, { "residual_scale", 1 }, { "attention.scale", 0 },
        { "attention.clamp_kqv", 0 }, { "attention.max_alibi_bias", 0 },
        { "rope.scaling.yarn_ext_factor", 1 }, { "rope.scaling.yarn_attn_factor", 1 },
        /* of phi3: gguf_rope.c; of mistral3: read_growth */
        { "rope.scaling.attn_factor", 1 },
        { "attention.temperature_scale", 0 }, { "rope.scaling.yarn_log_multiplier", 0 },
    };
    const size_t n = sizeof foreign / sizeof *foreign - (is_mistral3(m) ? 2 : 0);
    bool causal = true, normalised = true;
    for (size_t i = 0; i < n; i++) {
        double x = foreign[i].neutral;
        char key[KEY_BYTES];
        if (gguf_real(m->g, key_of(key, m, foreign[i].name), -1e30, 1e30, &x, m->e) < 0)
            return -1;
        if (x != foreign[i].neutral &&
            !(is_granite(m) && strstr(foreign[i].name, "scale")) &&
            !(is_gemma4(m) && strcmp(foreign[i].name, "final_logit_softcapping") == 0) &&
            !(is_olmo(m) && strcmp(foreign[i].name, "rope.scaling.yarn_attn_factor") == 0) &&
            !(is_phi(m) && strcmp(foreign[i].name, "rope.scaling.attn_factor") == 0))
            return gguf_bad(m->g, key, m->e, "found %g, this is not implemented; allowed is %g", x,
                            foreign[i].neutral);
    }
    char key[KEY_BYTES];
    if (gguf_bool(m->g, key_of(key, m, "attention.causal"), &causal, m->e) < 0)
        return -1;
    if (!causal)
        return gguf_bad(m->g, key, m->e, "found false, allowed is true");
    if (gguf_bool(m->g, key_of(key, m, "expert_weights_norm"), &normalised, m->e) < 0)
        return -1;
    return normalised ? 0 : gguf_bad(m->g, key, m->e, "found false, allowed is true");
}

/* Writes which layers have a state, and the shapes of Gated DeltaNet. */
static int write_states(const struct meta *m, size_t layers)
{
    const struct gguf_value *list = NULL;
    size_t conv, width, keys, values, inner, interval = 4;
    char key[KEY_BYTES];
    if (need_uint(m, "ssm.conv_kernel", 0, CONV_MAX, &conv) ||
        need_uint(m, "ssm.state_size", 0, HEAD_DIM_MAX, &width) ||
        need_uint(m, "ssm.group_count", 0, 1 << 16, &keys) ||
        need_uint(m, "ssm.time_step_rank", 0, 1 << 16, &values) ||
        need_uint(m, "ssm.inner_size", 0, 1 << 24, &inner) ||
        read_uint(m, "full_attention_interval", 0, 1, LAYERS_MAX, &interval) < 0 ||
        gguf_array(m->g, key_of(key, m, "attention.recurrent_layers"), GGUF_BOOL, &list, m->e) < 0)
        return -1;
    if (inner % values)
        return gguf_bad(m->g, key_of(key, m, "ssm.inner_size"), m->e, "%zu is not a multiple of %zu heads",
                        inner, values);
    if (list && list->n < layers)
        return gguf_bad(m->g, key, m->e, "%zu layers, needed are %zu", list->n, layers);
    jw_uint(m->w, "linear_conv_kernel_dim", conv);
    jw_uint(m->w, "linear_key_head_dim", width);
    jw_uint(m->w, "linear_value_head_dim", inner / values);
    jw_uint(m->w, "linear_num_key_heads", keys);
    jw_uint(m->w, "linear_num_value_heads", values);
    jw_open(m->w, "layer_types", '[');
    for (size_t l = 0; l < layers; l++)
        jw_text(m->w, NULL, (list ? gguf_int_at(list, l) != 0 : (l + 1) % interval != 0) ? "linear_attention"
                                                                                  : "full_attention");
    jw_close(m->w, ']');
    return 0;
}

/* Writes which layers of Gemma 3 and OLMo have a window: a key names them, or says that every n-th has
 * none. */
static int write_pattern(const struct meta *m, size_t layers)
{
    static const char name[] = "attention.sliding_window_pattern";
    size_t every = is_olmo(m) ? 4 : 6;
    char key[KEY_BYTES];
    const struct gguf_value *v = gguf_find(m->g, key_of(key, m, name)), *list = NULL;
    if (v && v->is_array ? gguf_array(m->g, key, GGUF_BOOL, &list, m->e) < 0
                         : read_uint(m, name, 0, 1, INT32_MAX, &every) < 0)
        return -1;
    if (list && list->n != layers)
        return gguf_bad(m->g, key, m->e, "%zu layers, needed are %zu", list->n, layers);
    jw_open(m->w, "layer_types", '[');
    for (size_t l = 0; l < layers; l++)
        jw_text(m->w, NULL, (list ? gguf_int_at(list, l) != 0 : (l + 1) % every != 0) ? "sliding_attention"
                                                                               : "full_attention");
    jw_close(m->w, ']');
    return 0;
}

/* Reads the width of the dense networks. Of Gemma 4 the layers without keys and values of their own may have
 * twice that of the others. */
static int read_ffn(const struct meta *m, size_t blocks, size_t *ffn)
{
    static const char name[] = "feed_forward_length";
    const struct gguf_value *list;
    size_t shared = 0;
    char key[KEY_BYTES];
    const struct gguf_value *v = gguf_find(m->g, key_of(key, m, name));
    if (!is_gemma4(m) || !v || !v->is_array)
        return need_uint(m, name, blocks, 1 << 24, ffn);
    if (gguf_integers(m->g, key, blocks, 1, 1 << 24, &list, m->e) ||
        read_uint(m, "attention.shared_kv_layers", 0, 0, is_assistant(m) ? blocks : blocks - 1, &shared) < 0)
        return -1;
    const int64_t first = gguf_int_at(list, 0);
    bool wide = shared > 0;              /* as the first layer that may be */
    if (shared && shared < blocks)
        wide = gguf_int_at(list, blocks - shared) != first;
    for (size_t l = 0; l < blocks; l++) {
        const int64_t n = gguf_int_at(list, l);
        if (n != (wide && l >= blocks - shared ? 2 * first : first))
            return gguf_bad(m->g, key_of(key, m, name), m->e,
                            "%lld in layer %zu and %lld in layer 0: allowed is twice as much in the last %zu "
                            "layers, which attention.shared_kv_layers counts", (long long)n, l,
                            (long long)first, shared);
    }
    jw_bool(m->w, "use_double_wide_mlp", wide);
    *ffn = (size_t)first;
    return 0;
}

/* Writes what Gemma 4 adds to the shape. dim: the size of the heads in global layers. kv_heads: their number
 * in all layers, unless a list has it. */
static int write_gemma4(const struct meta *m, size_t layers, size_t heads, size_t kv_heads, size_t dim,
                        size_t vocab)
{
    const struct gguf_value *list = NULL, *windows = NULL;
    size_t local_dim, value, shared = 0, width = 0, backbone;
    double cap = 0;
    char key[KEY_BYTES];
    if (need_uint(m, "attention.key_length_swa", 0, HEAD_DIM_MAX, &local_dim) ||
        read_uint(m, "attention.value_length_swa", 0, local_dim, local_dim, &value) < 0 ||
        read_uint(m, "rope.dimension_count_swa", 0, local_dim, local_dim, &value) < 0 ||
        read_uint(m, "attention.shared_kv_layers", 0, 0, is_assistant(m) ? layers : layers - 1,
                  &shared) < 0 ||
        read_uint(m, "embedding_length_per_layer_input", 0, 0, 1 << 16, &width) < 0 ||
        read_real(m, "final_logit_softcapping", 0, 1e6, &cap) < 0 ||
        gguf_array(m->g, key_of(key, m, "attention.sliding_window_pattern"), GGUF_BOOL, &windows, m->e) < 0)
        return -1;
    if (!windows)
        return gguf_bad(m->g, key, m->e, "the key is missing");
    const struct gguf_value *v = gguf_find(m->g, key_of(key, m, "attention.head_count_kv"));
    if (v && v->is_array && gguf_integers(m->g, key, layers, 1, heads, &list, m->e))
        return -1;
    jw_open(m->w, "per_layer_config", '{');
    for (size_t l = 0; l < layers; l++) {
        const bool in = l < windows->n && gguf_int_at(windows, l) != 0;
        char layer[24];
        snprintf(layer, sizeof layer, "%zu", l);
        jw_open(m->w, layer, '{');
        jw_uint(m->w, "head_dim", in && l + 1 < layers ? local_dim : dim);
        jw_uint(m->w, "num_key_value_heads", list ? (size_t)gguf_int_at(list, l) : kv_heads);
        jw_close(m->w, '}');
    }
    jw_close(m->w, '}');
    jw_bool(m->w, "attention_k_eq_v", true);     /* unless there is a v_proj: use_tensors in gguf_model.c */
    if (is_assistant(m) && need_uint(m, "embedding_length_out", 0, 1 << 20, &backbone))
        return -1;
    if (is_assistant(m))
        jw_uint(m->w, "backbone_hidden_size", backbone);
    jw_uint(m->w, "num_kv_shared_layers", shared);
    jw_uint(m->w, "hidden_size_per_layer_input", width);
    jw_uint(m->w, "vocab_size_per_layer_input", vocab);
    write_float(m->w, "final_logit_softcapping", cap);
    return 0;
}

/* The layers of the model: those of the file less those that only draft. */
static int read_layers(const struct meta *m, size_t *blocks, size_t *layers)
{
    size_t drafting = 0;
    char key[KEY_BYTES];
    if (need_uint(m, "block_count", 0, LAYERS_MAX, blocks) ||
        read_uint(m, "nextn_predict_layers", 0, 0, is_assistant(m) ? *blocks : m->a->states ? 1 : 0,
                  &drafting) < 0)
        return -1;
    *layers = *blocks - (is_assistant(m) ? 0 : drafting);
    return *layers ? 0 : gguf_bad(m->g, key_of(key, m, "block_count"), m->e, "1, and that layer only drafts");
}

static int read_vocab(const struct meta *m, size_t *vocab)
{
    const struct gguf_value *tokens;
    const int found = gguf_array(m->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, m->e);
    if (found <= 0)
        return found ? -1 : gguf_bad(m->g, "tokenizer.ggml.tokens", m->e, "the key is missing");
    if (tokens->n < 1 || tokens->n > 1 << 24)
        return gguf_bad(m->g, "tokenizer.ggml.tokens", m->e, "%zu tokens, allowed are 1 to %d", tokens->n,
                        1 << 24);
    *vocab = tokens->n;                  /* a key vocab_size may say something else: the tokens decide */
    return 0;
}

/* Writes the factors of Granite. A file without attention.scale has that of other models. */
static int write_factors(const struct meta *m, size_t head_dim)
{
    static const char *const names[][2] = {
        { "embedding_scale", "embedding_multiplier" }, { "residual_scale", "residual_multiplier" },
        { "logit_scale", "logits_scaling" }, { "attention.scale", "attention_multiplier" } };
    for (size_t i = 0; i < 4; i++) {
        double x = i < 3 ? 1 : 1 / sqrt((double)head_dim);
        if (read_real(m, names[i][0], 1e-6, 1e6, &x) < 0)
            return -1;
        write_float(m->w, names[i][1], x);
    }
    return 0;
}

static int write_shape(const struct meta *m, size_t *head_dim, size_t *rope_dim, size_t *context)
{
    size_t hidden, blocks, layers, ffn = 0, heads, kv_heads, vocab = 0, value_dim;
    double eps;
    char key[KEY_BYTES];
    if (need_uint(m, "context_length", 0, CONTEXT_MAX, context) ||
        need_uint(m, "embedding_length", 0, 1 << 20, &hidden) ||
        read_layers(m, &blocks, &layers) ||
        (m->a->states && m->a->experts
             ? read_uint(m, "feed_forward_length", blocks, 0, 1 << 24, &ffn) < 0
             : read_ffn(m, blocks, &ffn)) ||
        need_uint(m, "attention.head_count", blocks, 1 << 16, &heads))
        return -1;
    kv_heads = heads;
    const struct gguf_value *each = gguf_find(m->g, key_of(key, m, "attention.head_count_kv"));
    if (!(is_gemma4(m) && each && each->is_array) &&
        read_uint(m, "attention.head_count_kv", blocks, 1, heads, &kv_heads) < 0)
        return -1;
    if (heads % kv_heads)
        return gguf_bad(m->g, key_of(key, m, "attention.head_count_kv"), m->e,
                        "%zu, head_count %zu is not a multiple", kv_heads, heads);
    int found = read_uint(m, "attention.key_length", 0, 2, HEAD_DIM_MAX, head_dim);
    if (found < 0)
        return -1;
    if (!found && hidden % heads)
        return gguf_bad(m->g, key_of(key, m, "embedding_length"), m->e, "%zu is not a multiple of %zu heads",
                        hidden, heads);
    if (!found)
        *head_dim = hidden / heads;
    if (*head_dim % 2 || *head_dim > HEAD_DIM_MAX)
        return gguf_bad(m->g, key_of(key, m, "attention.key_length"), m->e,
                        "heads of %zu dimensions, allowed are even numbers up to %d", *head_dim,
                        HEAD_DIM_MAX);
    value_dim = *rope_dim = *head_dim;
    if (read_uint(m, "attention.value_length", 0, *head_dim, *head_dim, &value_dim) < 0 ||
        read_uint(m, "rope.dimension_count", 0, m->a->states || is_phi(m) ? 2 : *head_dim, *head_dim,
                  rope_dim) < 0)
        return -1;
    if (*rope_dim % 2)
        return gguf_bad(m->g, key_of(key, m, "rope.dimension_count"), m->e, "%zu, allowed are even numbers",
                        *rope_dim);
    if ((found = read_real(m, "attention.layer_norm_rms_epsilon", 1e-30, 1, &eps)) <= 0)
        return found ? -1 : gguf_bad(m->g, key_of(key, m, "attention.layer_norm_rms_epsilon"), m->e,
                                     "the key is missing");
    if (read_vocab(m, &vocab))
        return -1;
    if (is_gemma4(m) && write_gemma4(m, layers, heads, kv_heads, *head_dim, vocab))
        return -1;
    jw_uint(m->w, "max_position_embeddings", *context);
    jw_uint(m->w, "hidden_size", hidden);
    jw_uint(m->w, "num_hidden_layers", layers);
    if (ffn)
        jw_uint(m->w, "intermediate_size", ffn);
    jw_uint(m->w, "num_attention_heads", heads);
    jw_uint(m->w, "num_key_value_heads", kv_heads);
    jw_uint(m->w, "head_dim", *head_dim);
    jw_uint(m->w, "vocab_size", vocab);
    write_float(m->w, "rms_norm_eps", eps);
    if (is_granite(m) && write_factors(m, *head_dim))
        return -1;
    if (is_gemma(m) && !is_gemma4(m))    /* the largest model has the other scale, and no key says so */
        jw_number(m->w, "query_pre_attn_scalar",
                  layers == 62 ? (double)hidden / (double)heads : (double)*head_dim);
    return m->a->states ? write_states(m, layers) : has_local(m) ? write_pattern(m, layers) : 0;
}

static int write_rope(const struct meta *m, size_t head_dim, size_t rope_dim, size_t context)
{
    double base = 10000, local = 10000, factor = 1, beta_fast = 32, beta_slow = 1, attention = 0,
           growth, mscale;
    size_t original = context;
    struct slice type = { "linear", 6 };
    char key[KEY_BYTES];
    if (read_real(m, "rope.freq_base", 1, 1e30, &base) < 0 ||
        gguf_string(m->g, key_of(key, m, "rope.scaling.type"), &type, m->e) < 0 ||
        (is_olmo(m) && read_real(m, "rope.scaling.yarn_attn_factor", 1e-6, 1e6, &attention) < 0) ||
        read_real(m, "rope.scale_linear", 1e-6, 1e6, &factor) < 0 ||
        read_real(m, "rope.scaling.factor", 0, 1e6, &factor) < 0 ||
        read_uint(m, "rope.scaling.original_context_length", 0, 1, CONTEXT_MAX, &original) < 0 ||
        read_real(m, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &beta_fast) < 0 ||
        read_real(m, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &beta_slow) < 0)
        return -1;
    if (is_olmo(m))
        local = base;
    if (has_local(m) && read_real(m, "rope.freq_base_swa", 1, 1e30, &local) < 0)
        return -1;
    key_of(key, m, "rope.scaling.type");
    const bool linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0,
               yarn = type.n == 4 && memcmp(type.p, "yarn", 4) == 0,
               by_tensors = is_phi(m) && type.n == 8 && memcmp(type.p, "longrope", 8) == 0;
    if (!linear && !yarn && !by_tensors && (type.n != 4 || memcmp(type.p, "none", 4)))
        return gguf_bad(m->g, key, m->e, "found %.*s, allowed are none, linear and yarn",
                        (int)MIN(type.n, (size_t)60), (const char *)type.p);
    if (read_growth(m, original, &growth, &mscale))
        return -1;
    jw_open(m->w, "rope_parameters", '{');
    if (has_local(m)) {
        jw_open(m->w, "sliding_attention", '{');
        write_float(m->w, "rope_theta", local);
        jw_close(m->w, '}');
        jw_open(m->w, "full_attention", '{');
    }
    write_float(m->w, "rope_theta", base);
    if (m->a->states || is_phi(m))       /* config.c rounds the product down */
        write_float(m->w, "partial_rotary_factor",
                    rope_dim < head_dim ? ((double)rope_dim + 0.5) / (double)head_dim : 1);
    const bool scaled = factor != 0 && factor != 1 && (linear || yarn);
    jw_text(m->w, "rope_type", scaled        ? (yarn ? "yarn" : "linear")
                               : is_gemma4(m) ? "proportional" : "default");
    if (scaled)
        write_float(m->w, "factor", factor);
    if (scaled && yarn) {
        jw_uint(m->w, "original_max_position_embeddings", original);
        write_float(m->w, "beta_fast", beta_fast);
        write_float(m->w, "beta_slow", beta_slow);
        if (is_oss(m))                   /* llama.cpp rounds, the published model does not */
            jw_bool(m->w, "truncate", false);
        if (attention != 0)
            write_float(m->w, "attention_factor", attention);
        if (mscale != 0) {
            write_float(m->w, "mscale", 1);
            write_float(m->w, "mscale_all_dim", mscale);
        }
        if (growth != 0)
            write_float(m->w, "llama_4_scaling_beta", growth);
    }
    if (has_local(m))
        jw_close(m->w, '}');
    jw_close(m->w, '}');
    return 0;
}

/* Experts, whose weights are divided by their sum. A llama model with experts is a Mixtral model. */
static int write_experts(struct meta *m)
{
    const bool qwen = m->a->experts, may = qwen || is_oss(m) || is_gemma4(m) || strcmp(m->arch, "llama") == 0,
               shared = qwen && strcmp(m->arch, "qwen3moe");
    size_t used = 0, ffn = 0, width = 0;
    char key[KEY_BYTES];
    if (read_uint(m, "expert_count", 0, 0, may ? EXPERTS_MAX : 0, &m->n_experts) < 0 ||
        read_uint(m, "expert_used_count", 0, 0, m->n_experts, &used) < 0)
        return -1;
    if ((qwen || is_oss(m)) && !m->n_experts)
        return gguf_bad(m->g, key_of(key, m, "expert_count"), m->e, "the key is missing, or 0");
    if (!m->n_experts)
        return 0;
    if (!used)
        return gguf_bad(m->g, key_of(key, m, "expert_used_count"), m->e, "the key is missing, or 0");
    jw_uint(m->w, qwen || is_gemma4(m) ? "num_experts" : "num_local_experts", m->n_experts);
    jw_uint(m->w, is_gemma4(m) ? "top_k_experts" : "num_experts_per_tok", used);
    if (is_gemma4(m) && need_uint(m, "expert_feed_forward_length", 0, EXPERT_FFN_MAX, &width))
        return -1;
    if (is_gemma4(m)) {
        jw_uint(m->w, "moe_intermediate_size", width);
        jw_bool(m->w, "enable_moe_block", true);
    }
    if (is_oss(m) && (need_uint(m, "feed_forward_length", 0, EXPERT_FFN_MAX, &ffn) ||
                      read_uint(m, "expert_feed_forward_length", 0, ffn, ffn, &width) < 0))
        return -1;
    if (!qwen)
        return 0;
    if (m->a->states ? need_uint(m, "expert_feed_forward_length", 0, EXPERT_FFN_MAX, &width)
                     : need_uint(m, "feed_forward_length", 0, 1 << 24, &ffn))
        return -1;
    width = MAX(width ? width : ffn / used, (size_t)1);
    if (read_uint(m, "expert_feed_forward_length", 0, 1, EXPERT_FFN_MAX, &width) < 0)
        return -1;
    jw_uint(m->w, "moe_intermediate_size", width);
    jw_bool(m->w, "norm_topk_prob", strcmp(m->arch, "qwen2moe") != 0);
    if (!shared)
        return 0;
    if (need_uint(m, "expert_shared_feed_forward_length", 0, EXPERT_FFN_MAX, &width))
        return -1;
    jw_uint(m->w, "shared_expert_intermediate_size", width);
    return 0;
}

/* A llama model with a window is a Mistral model. */
static int write_window(const struct meta *m)
{
    size_t window = 0;
    char key[KEY_BYTES];
    if (has_local(m) || is_oss(m) ? need_uint(m, "attention.sliding_window", 0, INT32_MAX, &window)
                    : read_uint(m, "attention.sliding_window", 0, 0, INT32_MAX, &window) < 0)
        return -1;
    if (window && strcmp(m->arch, "llama") && !has_local(m) && !is_phi(m) && !is_oss(m))
        return gguf_bad(m->g, key_of(key, m, "attention.sliding_window"), m->e,
                        "found %zu, for %s this is not implemented; allowed is 0", window, m->arch);
    if (window && !has_local(m) && gguf_find(m->g, key_of(key, m, "attention.sliding_window_pattern")))
        return gguf_bad(m->g, key, m->e, "windows in some of the layers are not implemented");
    double growth = 0;
    if (is_mistral3(m) && read_real(m, "attention.temperature_scale", 0, 1e3, &growth) < 0)
        return -1;
    jw_text(m->w, "model_type", m->a->type               ? m->a->type
                                : m->n_experts           ? "mixtral"
                                : growth != 0            ? "ministral3"
                                : window || is_mistral3(m) ? "mistral"
                                                         : "llama");
    if (is_mistral3(m))
        jw_null(m->w, "sliding_window");
    if (window)
        jw_uint(m->w, "sliding_window", window);
    return 0;
}

/* The ids of tokens whose name says that a text ends there, into end[EOS_NAMES]; returns their number. */
static size_t named_ends(const struct gguf_value *tokens, size_t *end)
{
    static const char *const names[EOS_NAMES] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>",
        "<|end_of_text|>", "<EOT>", "<eos>", "<|return|>", "<|call|>", "<turn|>",
        "<|tool_response>",
    };
    struct slice s;
    bool has[EOS_NAMES] = { false };
    size_t id[EOS_NAMES], at = 0, n = 0;
    for (size_t i = 0; gguf_next_string(tokens, &at, &s); i++)
        for (size_t k = 0; s.n >= 4 && ((const char *)s.p)[0] == '<' && k < EOS_NAMES; k++)
            if (s.n == strlen(names[k]) && memcmp(s.p, names[k], s.n) == 0) {
                has[k] = true;
                id[k] = i;
            }
    if (has[10] && has[11])              /* with <|return|> and <|call|>, <|end|> ends a message only */
        has[2] = false;
    if (has[13])                         /* with <|tool_response>, </s> is an ordinary token */
        has[5] = false;
    for (size_t k = 0; k < EOS_NAMES; k++)
        if (has[k])
            end[n++] = id[k];
    return n;
}

/* The ids at which a text ends, by their keys; then other ids. */
static const char *const id_keys[] = { "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep",
                                       "bos", "unknown" };
enum { END_KEYS = 6, ID_KEYS = sizeof id_keys / sizeof *id_keys };

static char *id_key(char key[KEY_BYTES], size_t i)
{
    snprintf(key, KEY_BYTES, "tokenizer.ggml.%s_token_id", id_keys[i]);
    return key;
}

/* Writes the ids at which a text ends: those with a key, and tokens whose name says so, as in llama.cpp. */
static int write_ends(const struct meta *m)
{
    const struct gguf_value *tokens = gguf_find(m->g, "tokenizer.ggml.tokens"), *own;
    const size_t vocab = tokens->n;
    struct slice model = { 0 };
    size_t bos = SIZE_MAX, x;
    int found = gguf_token_id(m->g, "tokenizer.ggml.bos_token_id", vocab, &bos, m->e);
    if (found < 0 || gguf_string(m->g, "tokenizer.ggml.model", &model, m->e) < 0)
        return -1;
    const bool sentence = model.n == 5 && memcmp(model.p, "llama", 5) == 0;
    if (!found && sentence && vocab > 2)
        bos = 1;
    if (bos == SIZE_MAX)
        jw_null(m->w, "bos_token_id");
    else
        jw_uint(m->w, "bos_token_id", bos);
    size_t n = 0, end[END_KEYS + EOS_NAMES + CONFIG_EOS_MAX];
    found = gguf_array(m->g, "longhand.eos_token_ids", GGUF_I32, &own, m->e);
    if (found < 0)
        return -1;
    for (size_t i = 0; found && i < own->n; i++) {
        const int64_t y = gguf_int_at(own, i);
        if (y < 0 || (size_t)y >= vocab || i == CONFIG_EOS_MAX)
            return gguf_bad(m->g, "longhand.eos_token_ids", m->e, "allowed are up to %d ids below %zu",
                            CONFIG_EOS_MAX, vocab);
        end[n++] = (size_t)y;
    }
    for (size_t i = 0; !found && i < END_KEYS; i++) {
        char key[KEY_BYTES];
        const int has_key = gguf_token_id(m->g, id_key(key, i), vocab, &x, m->e);
        if (has_key < 0)
            return -1;
        if (has_key || (i == 0 && sentence && vocab > 2))
            end[n++] = has_key ? x : 2;
    }
    if (!found)
        n += named_ends(tokens, end + n);
    if (n == 0)
        jw_null(m->w, "eos_token_id");
    else
        jw_open(m->w, "eos_token_id", '[');
    for (size_t i = 0; i < n; i++)
        jw_uint(m->w, NULL, end[i]);
    if (n)
        jw_close(m->w, ']');
    return 0;
}

/* A writer of JSON into memory. */
struct text_file { char **data; FILE *f; struct json_writer w; };

static int begin(struct text_file *t, char **data, size_t *n, const struct gguf *g, struct err *e)
{
    *data = NULL;
    t->f = memory_file(data, n);
    if (!t->f)
        return err_set(e, ERR_FAILED, "%s: out of memory", g->file);
    t->w = (struct json_writer){ .f = t->f, .digits = 10 };
    t->data = data;
    jw_open(&t->w, NULL, '{');
    return 0;
}

static int end(struct text_file *t, int rc, const struct gguf *g, struct err *e)
{
    jw_close(&t->w, '}');
    if (stream_end(t->f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "%s: out of memory", g->file);
    if (rc == 0)
        return 0;
    free(*t->data);
    *t->data = NULL;
    return -1;
}

static int write_config(char **json, size_t *n, const struct gguf *g, struct err *e)
{
    struct text_file t;
    size_t head_dim, rope_dim, context;
    struct meta m = { .g = g, .w = &t.w, .e = e };
    if (begin(&t, json, n, g, e))
        return -1;
    return end(&t,
               read_arch(&m) || check_foreign(&m) || write_experts(&m) || write_window(&m) ||
                       write_shape(&m, &head_dim, &rope_dim, &context) ||
                       write_rope(&m, head_dim, rope_dim, context) || write_ends(&m)
                   ? -1
                   : 0,
               g, e);
}

/* Writes the text of a token that a key names. */
static int write_token(const struct meta *m, const char *name, const char *key)
{
    const struct gguf_value *tokens;
    struct slice s;
    size_t id, at = 0;
    if (gguf_array(m->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, m->e) <= 0)
        return 0;
    const int found = gguf_token_id(m->g, key, tokens->n, &id, m->e);
    for (size_t i = 0; found > 0 && gguf_next_string(tokens, &at, &s); i++)
        if (i == id)
            jw_bytes(m->w, name, s.p, s.n);
    return found < 0 ? -1 : 0;
}

static int write_tokenizer_config(char **json, size_t *n, const struct gguf *g, struct err *e)
{
    struct text_file t;
    struct meta m = { .g = g, .w = &t.w, .e = e };
    struct slice s;
    if (begin(&t, json, n, g, e))
        return -1;
    int rc = write_token(&m, "bos_token", "tokenizer.ggml.bos_token_id") ||
             write_token(&m, "eos_token", "tokenizer.ggml.eos_token_id") ? -1 : 0;
    const int found = rc ? rc : gguf_string(g, "tokenizer.chat_template", &s, e);
    if (found > 0)
        jw_bytes(&t.w, "chat_template", s.p, s.n);
    return end(&t, MIN(found, 0), g, e);
}

static int copy_generation(char **json, size_t *n, const struct gguf *g, struct err *e)
{
    struct slice s;
    const int found = gguf_string(g, "longhand.generation_config", &s, e);
    *json = found > 0 ? strndup(s.p, s.n) : NULL;
    *n = *json ? s.n : 0;
    return found > 0 && !*json ? err_set(e, ERR_FAILED, "%s: out of memory", g->file) : MIN(found, 0);
}

int gguf_small_file(char **data, size_t *n, const struct gguf *g, const char *name, struct err *e)
{
    static const struct {
        const char *name;
        int (*write)(char **, size_t *, const struct gguf *, struct err *);
    } files[] = { { "config.json", write_config }, { "generation_config.json", copy_generation },
                  { "tokenizer.json", gguf_tokenizer }, { "tokenizer_config.json", write_tokenizer_config } };
    *data = NULL;
    *n = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(name, files[i].name) == 0)
            return files[i].write(data, n, g, e);
    return 0;
}

int gguf_config(struct config *c, const struct gguf *g, struct err *e)
{
    char *json = NULL, *generation = NULL, name[PATH_BYTES + 40];
    size_t n = 0, n_generation = 0;
    snprintf(name, sizeof name, "%s: longhand.generation_config", g->file);
    int rc = write_config(&json, &n, g, e) || copy_generation(&generation, &n_generation, g, e) ? -1 : 0;
    if (rc == 0)
        rc = config_parse(c, g->file, json, n, name, generation, n_generation, e);
    if (rc == 0 && config_is_hybrid(c)) {    /* files hold -exp(A_log), and heads in another order */
        c->decay_ready = true;
        c->delta.dealt = true;
    }
    if (rc == 0 && c->embed == EMBED_SCALED_ROUNDED)
        c->embed = EMBED_SCALED;
    c->norm_plus_one = false;                /* they hold 1 + w */
    free(generation);
    free(json);
    return rc;
}

/* ---- notices ---- */

struct line { char *out; size_t size, n; };

static void __attribute__((format(printf, 2, 3))) add_words(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->out + l->n, l->size - l->n, format, args);
    va_end(args);
    l->n = MIN(l->n + (size_t)MAX(n, 0), l->size - 1);
}

/* The text of a token for a message. */
static void token_text(char text[40], const struct gguf_value *tokens, size_t id)
{
    struct slice s = { 0 };
    size_t at = 0;
    for (size_t i = 0; i <= id && gguf_next_string(tokens, &at, &s); i++)
        ;
    snprintf(text, 40, "%.*s", (int)MIN(s.n, (size_t)39), (const char *)s.p);
}

void gguf_notice(char *out, size_t size, const struct gguf *g, const struct config *c)
{
    struct line line = { out, size, 0 }, *l = &line;
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens"), *v;
    struct err ignored;
    char key[KEY_BYTES], text[40];
    bool has_key[CONFIG_EOS_MAX] = { false };
    *out = 0;
    for (size_t i = 0; i < ID_KEYS; i++) {
        size_t id;
        if ((v = gguf_find(g, id_key(key, i))) && gguf_token_id(g, key, c->vocab, &id, &ignored) == 0)
            add_words(l, "%s%s is %lld, which is no token and counts for nothing", l->n ? "; " : "", key,
                      (long long)gguf_int_at(v, 0));
        else if (v && i < END_KEYS)
            for (size_t k = 0; k < c->n_eos; k++)
                has_key[k] |= c->eos[k] == (int32_t)id;
    }
    if (gguf_find(g, "longhand.eos_token_ids") || !gguf_find(g, id_key(key, 0)))
        return;
    for (size_t k = 0, n = 0; k < c->n_eos; k++)
        if (!has_key[k]) {
            token_text(text, tokens, (size_t)c->eos[k]);
            add_words(l, "%s%s (%d)", n++ ? ", " : l->n ? "; by their names end a text, too: "
                                                         : "by their names end a text, too: ",
                      text, (int)c->eos[k]);
        }
}
