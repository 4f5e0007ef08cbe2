/* Llama, Mistral and Mixtral, and the sections that most families share with them. GGUF calls all of them
 * llama; Ministral 3, and Mistral of that time, are its mistral3. */
#include <string.h>

#include "src/model/families/family.h"

/* ---- sizes ---- */

const struct key size_keys[] = {
    { "max_position_embeddings", "context_length", SIZE(max_position), 1, CONTEXT_MAX, 2048, NEEDED },
    { "hidden_size", "embedding_length", SIZE(hidden), 1, 1 << 20, 4096, NEEDED },
    { "num_hidden_layers", "block_count", SIZE(n_layers), 1, CONFIG_LAYERS_MAX, 32, NEEDED },
    { "intermediate_size", "feed_forward_length", SIZE(ffn), 1, 1 << 24, 11008, NEEDED | EACH | NONZERO },
    { 0 }
};

/* ---- experts ---- */

const struct key mixtral_keys[] = {
    { "num_local_experts", "expert_count", SIZE(n_experts), 1, EXPERTS_MAX, 8, NONZERO },
    { "num_experts", NULL, SIZE(n_experts), 1, EXPERTS_MAX, 0, KEEPS | UNWRITTEN },
    { "num_experts_per_tok", "expert_used_count", SIZE(experts_used), 1, HI_EXPERTS, 2, NONZERO },
    { NULL, "expert_feed_forward_length", SIZE(expert_ffn), 1, EXPERT_FFN_MAX, 0, NONZERO },
    { 0 }
};

int read_experts(const struct reading *r)
{
    struct config *c = r->c;
    struct json v;
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].experts = true;
    if (c->experts_used <= c->n_experts)
        return 0;
    return read_bad(r, "num_experts_per_tok is %zu, allowed are 1 to %s %zu", c->experts_used,
                    js_get(r->root, "num_experts", &v, r->e) == 1 ? "num_experts" : "num_local_experts",
                    c->n_experts);
}

bool some_are_dense(const struct config *c)
{
    bool some = false;
    for (size_t l = 0; l < c->n_layers; l++)
        some |= !c->layer[l].experts;
    return some;
}

int read_mixtral(const struct reading *r)
{
    struct config *c = r->c;
    c->expert_ffn = c->ffn;
    c->experts_normalised = true;
    return c->ffn <= EXPERT_FFN_MAX ? read_experts(r)
                                    : read_bad(r, "intermediate_size is %zu, allowed for experts are 1 to %d",
                                               c->ffn, EXPERT_FFN_MAX);
}

int get_experts(struct getting *m)
{
    const char *none = !m->c->n_experts ? "expert_count" : !m->c->experts_used ? "expert_used_count" : NULL;
    return none ? get_bad(m, none, "the key is missing, or 0") : 0;
}

/* A file of architecture llama may have experts; other families without a section have none. */
static int get_maybe_experts(struct getting *m)
{
    static const struct key none[] = {
        { NULL, "expert_count", SIZE(n_experts), 0, 0, 0 },
        { NULL, "expert_used_count", SIZE(experts_used), 0, 0, 0 }, { 0 }
    };
    return keys_get(m, m->f->experts ? mixtral_keys : none) || (m->c->n_experts && get_experts(m)) ? -1 : 0;
}

static void write_maybe_experts(const struct writing *w) { keys_write(w, mixtral_keys); }

/* Experts of all layers, or of none, whose weights are divided by their sum. */
int put_experts(const struct putting *p)
{
    const struct config *c = p->c;
    if (c->n_experts && !c->experts_normalised)
        return put_lacks(p, "norm_topk_prob false");
    return c->n_experts && some_are_dense(c) ? put_lacks(p, "a layer without experts") : 0;
}

/* ---- heads ---- */

const struct key head_keys[] = {
    { "num_attention_heads", "attention.head_count", SIZE(n_heads), 1, 1 << 16, 32, NEEDED | EACH },
    { "num_key_value_heads", "attention.head_count_kv", SIZE(n_kv_heads), 1, HI_HEADS, 0, EACH | NULL_ZERO },
    { "head_dim", "attention.key_length", SIZE(head_dim), 2, HEAD_DIM_MAX, 0, NULLS },
    { 0 }
};

/* Completes the heads, and checks them by the names of keys in config.json, or after `at` of a GGUF file.
 * multiple: hidden_size is one of the heads even if head_dim is given. */
static int check_heads(struct config *c, const char *file, const char *at, bool multiple, struct err *e)
{
    static const char *const names[][5] = {
        { "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
          " (hidden_size / num_attention_heads)" },
        { "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
          " (embedding_length / attention.head_count)" },
    };
    const char *const *name = names[*at != 0];
    const size_t given = c->head_dim;
    c->n_kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    c->head_dim = given ? given : c->hidden / c->n_heads;
    const size_t x[] = { c->hidden, c->n_heads, c->n_kv_heads };
    for (size_t i = 2; i-- > (given && !multiple);)
        if (x[i] % x[i + 1])
            return err_set(e, ERR_INPUT, "%s: %s%s %zu is not a multiple of %s%s %zu", file, at, name[i],
                           x[i], at, name[i + 1], x[i + 1]);
    return c->head_dim % 2 == 0 && c->head_dim <= HEAD_DIM_MAX
               ? 0
               : err_set(e, ERR_INPUT, "%s: %s%s is %zu%s, allowed are even numbers up to %d", file, at,
                         name[3], c->head_dim, given ? "" : name[4], HEAD_DIM_MAX);
}

int read_heads(const struct reading *r)
{
    return check_heads(r->c, r->root->file, "", r->f->hidden_multiple, r->e);
}

int get_heads(struct getting *m)
{
    struct config *c = m->c;
    size_t value_dim;
    if (check_heads(c, m->g->file, KEY(m, ""), false, m->e))
        return -1;
    c->rotary = c->head_dim;
    if (read_uint(m, "attention.value_length", 0, c->head_dim, c->head_dim, &value_dim) < 0 ||
        read_uint(m, "rope.dimension_count", 0, m->f->partial > 0 ? 2 : c->head_dim, c->head_dim,
                  &c->rotary) < 0)
        return -1;
    return c->rotary % 2 ? get_bad(m, "rope.dimension_count", "%zu, allowed are even numbers", c->rotary) : 0;
}

static int put_heads(const struct putting *p)
{
    put_uint(p, "attention.value_length", p->c->head_dim);
    return 0;
}

/* ---- norms and the vocabulary ---- */

static const struct key norm_keys[] = {
    { "rms_norm_eps", "attention.layer_norm_rms_epsilon", REAL(file_eps), 1e-30, 1, 1e-6, NEEDED },
    { 0 }
};

static int read_norms(const struct reading *r)
{
    r->c->rms_eps = r->c->file_eps;
    return 0;
}

static const struct key vocab_keys[] = {
    { "vocab_size", NULL, SIZE(vocab), 1, 1 << 24, 32000 }, { 0 }
};

/* A key vocab_size may say something else: the tokens decide. */
static int get_vocab(struct getting *m)
{
    static const char key[] = "tokenizer.ggml.tokens";
    const struct gguf_value *tokens;
    if (gguf_need(m->g, key, gguf_array(m->g, key, GGUF_STRING, &tokens, m->e), m->e))
        return -1;
    m->c->vocab = tokens->n;
    return tokens->n >= 1 && tokens->n <= 1 << 24
               ? 0 : gguf_bad(m->g, key, m->e, "%zu tokens, allowed are 1 to %d", tokens->n, 1 << 24);
}

static int put_vocab(const struct putting *p)
{
    put_uint(p, "vocab_size", p->c->vocab);
    return 0;
}

/* ---- all of them ---- */

const struct section llama_sections[SECTIONS] = {
    [OF_SIZES] = { size_keys, NULL, NULL, NULL, NULL },
    [OF_EXPERTS] = { NULL, NULL, get_maybe_experts, write_maybe_experts, put_experts },
    [OF_HEADS] = { head_keys, read_heads, get_heads, NULL, put_heads },
    [OF_NORMS] = { norm_keys, read_norms, NULL, NULL, NULL },
    [OF_VOCAB] = { vocab_keys, NULL, get_vocab, NULL, put_vocab },
    [OF_WINDOW] = { window_keys, read_window, NULL, write_no_window, NULL },
    [OF_LAYERS] = { NULL, NULL, get_windows, write_windows, put_windows },
    [OF_ROPE] = { NULL, read_rope, get_rope, write_rope, put_rope },
};

/* ---- the families ---- */

/* A file of llama is Mixtral's if it has experts, Mistral's if it has a window. */
static const char *type_of_llama(const struct config *c)
{
    return c->n_experts ? "mixtral" : c->window ? "mistral" : "llama";
}

const struct family family_llama = {
    .type = "llama", .names = LIST("LlamaForCausalLM"), .gguf = "llama", .file_type = type_of_llama,
    .windows = { WINDOW_NULL, .files = FILES_WINDOW }, .as_llama = true, .freqs = true, .writes_freqs = true,
    .experts = true, .attention_bias = true, .mlp_bias = true, .hidden_multiple = true,
    .missing = MISSING({ "bos_token_id", 1 }, { "eos_token_id", 2 }),
};

static const struct missing mistral_missing[] = {
    { "intermediate_size", 14336 }, { "num_key_value_heads", 8 }, { "max_position_embeddings", 131072 },
    { "bos_token_id", 1 }, { "eos_token_id", 2 }, { 0 }
};

const struct family family_mistral = {
    .type = "mistral", .names = LIST("MistralForCausalLM"), .gguf = "llama",
    .wrapper_type = "mistral3", .missing = mistral_missing, .as_llama = true, .freqs = true,
    .writes_freqs = true, .windows = { WINDOW_GIVEN, 4096, .files = FILES_WINDOW },
};

const struct family family_mixtral = {
    .type = "mixtral", .names = LIST("MixtralForCausalLM"), .gguf = "llama",
    .section = { [OF_EXPERTS] = SECTION(mixtral_keys, read_mixtral, NULL, NULL, put_experts) },
    .missing = MISSING({ "intermediate_size", 14336 }, { "num_key_value_heads", 8 },
                       { "max_position_embeddings", 131072 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 1e6 },
                       { "bos_token_id", 1 }, { "eos_token_id", 2 }),
    .as_llama = true, .freqs = true, .writes_freqs = true, .experts = true,
    .windows = { WINDOW_GIVEN, .files = FILES_WINDOW },
};

/* ---- Ministral 3: queries grow with the position ---- */

static const struct key growth_keys[] = {
    { "mscale", NULL, REAL(rope.mscale), 0, 1e6, 0, NONZERO },
    { "mscale_all_dim", "rope.scaling.yarn_log_multiplier", REAL(rope.mscale_all_dim), 0, 1e6, 0, NONZERO },
    { "llama_4_scaling_beta", "attention.temperature_scale", REAL(rope.growth), 0, 1e3, 0, NONZERO },
    { 0 }
};

static int read_growth(const struct reading *r, const struct json *settings)
{
    return need_yarn(r) || need_real(settings, "llama_4_scaling_beta", 0, 1e3, &r->c->rope.growth, r->e) ? -1
                                                                                                         : 0;
}

/* The ratio of YaRN's factors is that of mscale 1. */
static int get_growth(struct getting *m)
{
    struct rope_config *r = &m->c->rope;
    if (get_rope(m))
        return -1;
    size_t length = r->original;
    r->mscale = r->mscale_all_dim != 0;
    if (read_uint(m, "attention.temperature_length", 0, 1, CONTEXT_MAX, &length) < 0)
        return -1;
    return length == r->original ? 0
                                 : get_bad(m, "attention.temperature_length", "found %zu, allowed is "
                                           "rope.scaling.original_context_length %zu", length, r->original);
}

static const char *type_of_mistral3(const struct config *c)
{
    return c->rope.growth != 0 ? "ministral3" : "mistral";
}

const struct family family_ministral3 = {
    .type = "ministral3", .names = LIST("Ministral3ForCausalLM"), .gguf = "mistral3",
    .wrapper_type = "mistral3", .file_type = type_of_mistral3, .as_llama = true, .freqs = true,
    .windows = { WINDOW_GIVEN, .writes_null = true }, .rope = read_growth, .yarn_keys = growth_keys,
    .rope_keys = LIST("llama_4_scaling_beta", "max_position_embeddings"),
    .section = { [OF_ROPE] = SECTION(NULL, read_rope, get_growth, write_rope, put_rope) },
    .missing = MISSING({ "vocab_size", 131072 }, { "intermediate_size", 14336 }, { "num_hidden_layers", 34 },
                       { "num_key_value_heads", 8 }, { "head_dim", 128 },
                       { "max_position_embeddings", 262144 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 1e6 },
                       { "bos_token_id", 1 }, { "eos_token_id", 2 }),
};
