/* gpt-oss: windows in every second layer, clamped experts with biases, and a further logit of each head. */
#include "src/model/families/family.h"

static int read_clamped(const struct reading *r)
{
    struct config *c = r->c;
    struct json v;
    int found = get_value(r->root, "quantization_config", &v, r->e);
    if (found > 0)
        found = need_object(&v, r->e) ? -1 : read_word(&v, "quant_method", "mxfp4", r->e);
    c->experts_bias = true;
    return found < 0 || get_real(r->root, "swiglu_alpha", 1.702, 1e-3, 1e3, &c->swiglu_alpha, r->e) ||
                   get_real(r->root, "swiglu_limit", 7, 1e-3, 1e6, &c->swiglu_limit, r->e)
               ? -1
               : read_mixtral(r);
}

static int get_oss_experts(struct getting *m)
{
    struct config *c = m->c;
    return get_experts(m) || need_uint(m, "feed_forward_length", 0, EXPERT_FFN_MAX, &c->ffn) ||
                   read_uint(m, "expert_feed_forward_length", 0, c->ffn, c->ffn, &c->expert_ffn) < 0
               ? -1
               : 0;
}

static int put_oss_experts(const struct putting *p)
{
    return p->c->swiglu_limit != 7 || (float)p->c->swiglu_alpha != 1.702f
               ? put_lacks(p, "swiglu_alpha and swiglu_limit of another model than gpt-oss")
               : put_experts(p);
}

static int read_oss_rope(const struct reading *r, const struct json *settings)
{
    return settings ? 0 : need_yarn(r);
}

/* llama.cpp rounds the range of the correction, the published model does not. */
static const struct key yarn_keys[] = {
    { "truncate", NULL, BOOL(rope.truncate), 0, 1, 1 }, { 0 }
};

static const struct tensor_name names[] = {
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "attn_sinks.weight", "self_attn.sinks" }, { "ffn_gate_inp.bias", "mlp.gate.bias" },
    { "ffn_gate_exps.bias", "mlp.experts.gate_proj.bias" },
    { "ffn_up_exps.bias", "mlp.experts.up_proj.bias" },
    { "ffn_down_exps.bias", "mlp.experts.down_proj.bias" }, { 0 }
};

const struct family family_gpt_oss = {
    .type = "gpt_oss", .names = LIST("GptOssForCausalLM"), .gguf = "gpt-oss",
    .tensors = names, .reads = LIST("quantization_config"),
    .section = { [OF_EXPERTS] = SECTION(mixtral_keys, read_clamped, get_oss_experts, NULL, put_oss_experts) },
    .missing = MISSING({ "vocab_size", 201088 }, { "hidden_size", 2880 }, { "intermediate_size", 2880 },
                       { "num_hidden_layers", 36 }, { "num_attention_heads", 64 },
                       { "num_key_value_heads", 8 }, { "head_dim", 64 },
                       { "max_position_embeddings", 131072 }, { "num_local_experts", 128 },
                       { "num_experts_per_tok", 4 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 150000 },
                       { "attention_bias", 1 }),
    .layer = { .head_logits = true }, .attention_bias = true, .experts = true,
    .windows = { WINDOW_NEEDED, 128, .pattern = 2, .files = FILES_WINDOW },
    .rope = read_oss_rope, .yarn_keys = yarn_keys,
};
