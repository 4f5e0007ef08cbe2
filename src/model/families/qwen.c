/* Qwen2 and Qwen3, dense and with experts. */
#include <string.h>

#include "src/model/families/family.h"

#define QWEN_MISSING(...)                                                                                   \
    MISSING({ "vocab_size", 151936 }, { "max_position_embeddings", 32768 }, __VA_ARGS__)

/* Windows are in the layers from max_window_layers on; of Qwen2-MoE in every other layer before it. */
static int first_rule(const struct reading *r, bool windowed[])
{
    struct json v;
    size_t first = 28;
    const int found = js_get(r->root, "max_window_layers", &v, r->e);
    if (found < 0 || (found && js_size(&v, 0, INT32_MAX, &first, r->e)))
        return -1;
    for (size_t l = 0; l < r->c->n_layers; l++)
        windowed[l] = r->f == &family_qwen2_moe ? l < first && l % 2 == 0 : l >= first;
    return 0;
}

#define QWEN_WINDOWS .windows = { WINDOW_SWITCHED, 4096, .rule = first_rule }

const struct family family_qwen2 = {
    .type = "qwen2", .names = LIST("Qwen2ForCausalLM"), .gguf = "qwen2",
    .missing = QWEN_MISSING({ "intermediate_size", 22016 }, { "num_key_value_heads", 32 }),
    .qkv_bias = true, QWEN_WINDOWS,
}, family_qwen3 = {
    .type = "qwen3", .names = LIST("Qwen3ForCausalLM"), .gguf = "qwen3",
    .missing = QWEN_MISSING({ "intermediate_size", 22016 }, { "num_key_value_heads", 32 },
                            { "head_dim", 128 }),
    .layer = { .qk_norm = QK_NORM }, .attention_bias = true, QWEN_WINDOWS,
};

/* ---- experts ---- */

static const struct key qwen2_moe_keys[] = { QWEN_EXPERTS(0), SHARED_EXPERT, { 0 } },
                        qwen3_moe_keys[] = { QWEN_EXPERTS(0), { 0 } };

/* Reads the layers without experts: those of mlp_only_layers, and all but every decoder_sparse_step-th. */
static int read_some_experts(const struct reading *r)
{
    struct config *c = r->c;
    struct json list, x;
    size_t step, l;
    if (read_experts(r) ||
        get_size(r->root, "decoder_sparse_step", 1, NULL_MISSING, CONFIG_LAYERS_MAX, &step, r->e))
        return -1;
    for (l = 0; l < c->n_layers; l++)
        c->layer[l].experts = (l + 1) % step == 0;
    const int found = get_value(r->root, "mlp_only_layers", &list, r->e);
    if (found <= 0)
        return found;
    if (js_kind(&list) != JS_ARRAY)
        return js_bad(&list, r->e, "allowed is a list of layers");
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &x);) {
        if (js_size(&x, 0, INT32_MAX, &l, r->e))
            return -1;
        if (l < c->n_layers)
            c->layer[l].experts = false;
    }
    return 0;
}

/* A file has no key for norm_topk_prob: Qwen2 does not normalise, Qwen3 does. */
static bool normalises(const struct family *f) { return f != &family_qwen2_moe; }

static int get_qwen_experts(struct getting *m)
{
    struct config *c = m->c;
    c->experts_normalised = normalises(m->f);
    if (get_experts(m) || (!c->expert_ffn && need_uint(m, "feed_forward_length", 0, 1 << 24, &c->ffn)))
        return -1;
    c->expert_ffn = c->expert_ffn ? c->expert_ffn : MAX(c->ffn / c->experts_used, (size_t)1);
    return 0;
}

static int put_qwen_experts(const struct putting *p)
{
    if (p->c->experts_normalised != normalises(p->f))
        return put_lacks(p, normalises(p->f) ? "norm_topk_prob false" : "norm_topk_prob true of qwen2_moe");
    return some_are_dense(p->c) ? put_lacks(p, "a layer without experts") : 0;
}

const struct family family_qwen2_moe = {
    .type = "qwen2_moe", .names = LIST("Qwen2MoeForCausalLM"), .gguf = "qwen2moe",
    .section = { [OF_EXPERTS] = SECTION(qwen2_moe_keys, read_some_experts, get_qwen_experts, NULL,
                                        put_qwen_experts) },
    .missing = QWEN_MISSING({ "hidden_size", 2048 }, { "intermediate_size", 5632 },
                            { "num_hidden_layers", 24 }, { "num_attention_heads", 16 },
                            { "num_key_value_heads", 16 }, { "num_local_experts", 60 },
                            { "num_experts_per_tok", 4 }, { "moe_intermediate_size", 1408 }),
    .qkv_bias = true, .qkv_bias_key = true, .experts = true, QWEN_WINDOWS,
}, family_qwen3_moe = {
    .type = "qwen3_moe", .names = LIST("Qwen3MoeForCausalLM"), .gguf = "qwen3moe",
    .section = { [OF_EXPERTS] = SECTION(qwen3_moe_keys, read_some_experts, get_qwen_experts, NULL,
                                        put_qwen_experts) },
    .missing = QWEN_MISSING({ "hidden_size", 2048 }, { "intermediate_size", 6144 },
                            { "num_hidden_layers", 24 }, { "num_key_value_heads", 4 }),
    .layer = { .qk_norm = QK_NORM }, .attention_bias = true, .experts = true,
    .windows = { WINDOW_SWITCHED, 4096 },
};
