/* Qwen3.5, dense and with experts: Gated DeltaNet beside gated attention of which a part turns. */
#include <string.h>

#include "src/model/families/family.h"

static const struct key state_keys[] = {
    { "linear_conv_kernel_dim", "ssm.conv_kernel", SIZE(delta.conv), 1, CONV_MAX, 4, NEEDED },
    { "linear_key_head_dim", "ssm.state_size", SIZE(delta.key_dim), 1, HEAD_DIM_MAX, 128, NEEDED },
    { "linear_value_head_dim", NULL, SIZE(delta.value_dim), 1, HEAD_DIM_MAX, 128 },
    { "linear_num_key_heads", "ssm.group_count", SIZE(delta.key_heads), 1, 1 << 16, 16, NEEDED },
    { "linear_num_value_heads", "ssm.time_step_rank", SIZE(delta.value_heads), 1, 1 << 16, 32, NEEDED },
    { 0 }
};

/* Reads which layers have a state: those that layer_types calls linear_attention, else all but every
 * full_attention_interval-th. */
static int read_mixers(const struct reading *r)
{
    struct config *c = r->c;
    struct json list;
    size_t interval;
    bool state[CONFIG_LAYERS_MAX];
    if (get_size(r->root, "full_attention_interval", 4, NULL_MISSING, CONFIG_LAYERS_MAX, &interval, r->e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        state[l] = (l + 1) % interval != 0;
    if (read_layer_types(r, "layer_types", &list, "linear_attention", state) < 0)
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].mixer = state[l] ? MIXER_DELTA : MIXER_ATTENTION;
    return 0;
}

static int read_states(const struct reading *r)
{
    struct config *c = r->c;
    const struct delta_config *d = &c->delta;
    bool gated;
    c->norm_plus_one = true;
    if (get_bool(r->root, "attn_output_gate", true, &gated, r->e))
        return -1;
    if (!gated)
        return read_bad(r, "attn_output_gate is false, allowed is true");
    if (d->value_heads % d->key_heads)
        return read_bad(r, "linear_num_value_heads %zu is not a multiple of linear_num_key_heads %zu",
                        d->value_heads, d->key_heads);
    if (d->conv < 2)
        return read_bad(r, "linear_conv_kernel_dim is 1, allowed are 2 to %d", CONV_MAX);
    if (read_word(r->root, "output_gate_type", "swish", r->e) < 0 ||
        read_word(r->root, "mamba_ssm_dtype", "float32", r->e) < 0 || read_mixers(r))
        return -1;
    return config_mixers(c, MIXER_ATTENTION)
               ? 0 : read_bad(r, "no layer has full_attention, at least one is needed");
}

static int get_states(struct getting *m)
{
    struct config *c = m->c;
    const struct gguf_value *list = NULL;
    size_t inner, interval = 4;
    if (need_uint(m, "ssm.inner_size", 0, 1 << 24, &inner) ||
        read_uint(m, "full_attention_interval", 0, 1, CONFIG_LAYERS_MAX, &interval) < 0 ||
        gguf_array(m->g, KEY(m, "attention.recurrent_layers"), GGUF_BOOL, &list, m->e) < 0)
        return -1;
    if (list && list->n < c->n_layers)
        return get_bad(m, "attention.recurrent_layers", "%zu layers, needed are %zu", list->n, c->n_layers);
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].mixer = list ? gguf_int_at(list, l) != 0 : (l + 1) % interval != 0;
    c->delta.value_dim = inner / c->delta.value_heads;
    return inner % c->delta.value_heads == 0
               ? 0 : get_bad(m, "ssm.inner_size", "%zu is not a multiple of %zu heads", inner,
                             c->delta.value_heads);
}

static void write_states(const struct writing *w)
{
    write_layer_types(w, "linear_attention");
}

/* Text does not tell the sections of the rotation apart, but llama.cpp needs their key. */
static int put_states(const struct putting *p)
{
    const struct config *c = p->c;
    const size_t turns = c->rotary / 2, sections[] = { (turns + 2) / 3, (turns + 1) / 3, turns / 3, 0 };
    put_uint(p, "ssm.inner_size", c->delta.value_heads * c->delta.value_dim);
    gguf_put_array(p->o, KEY(p, "rope.dimension_sections"), GGUF_U32, 4);
    for (size_t i = 0; i < 4; i++)
        gguf_add_u32(p->o, (uint32_t)sections[i]);
    put_layers(p, "attention.recurrent_layers", c->n_layers + p->drafts);
    if (p->drafts)
        put_uint(p, "nextn_predict_layers", 1);
    return 0;
}

static const struct section states = { state_keys, read_states, get_states, write_states, put_states };

static const struct tensor_name names[] = {
    { "nextn.eh_proj.weight", "mtp.fc.weight", DRAFTS },
    { "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", DRAFTS },
    { "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", DRAFTS },
    { "nextn.shared_head_norm.weight", "mtp.norm.weight", DRAFTS },
    { "nextn.embed_tokens.weight", "mtp.embed_tokens.weight", DRAFTS },
    { "nextn.shared_head_head.weight", "mtp.lm_head.weight", DRAFTS },
    { "post_attention_norm.weight", "post_attention_layernorm.weight" }, { "ffn_norm.weight", NULL },
    { "attn_qkv.weight", "linear_attn.in_proj_qkv.weight" },
    { "attn_gate.weight", "linear_attn.in_proj_z.weight" },
    { "ssm_beta.weight", "linear_attn.in_proj_b.weight" },
    { "ssm_alpha.weight", "linear_attn.in_proj_a.weight" },
    { "ssm_conv1d.weight", "linear_attn.conv1d.weight" }, { "ssm_a", "linear_attn.A_log" },
    { "ssm_dt.bias", "linear_attn.dt_bias" },             { "ssm_norm.weight", "linear_attn.norm.weight" },
    { "ssm_out.weight", "linear_attn.out_proj.weight" },  { 0 }
};

static const char *const rope_keys[] = { "mrope_section", "mrope_interleaved", NULL };

const struct family family_qwen3_5 = {
    .type = "qwen3_5", .text_type = "qwen3_5_text", .gguf = "qwen35", .tensors = names,
    .reads = LIST("partial_rotary_factor"),
    .names = LIST("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
    .section = { [OF_STATES] = &states },
    .missing = MISSING({ "vocab_size", 248320 }, { "intermediate_size", 12288 },
                       { "num_attention_heads", 16 }, { "num_key_value_heads", 4 }, { "head_dim", 256 },
                       { "max_position_embeddings", 32768 }),
    .layer = { .qk_norm = QK_NORM, .gated = true }, .attention_bias = true, .partial = 0.25,
    .rope_keys = rope_keys, .draft_layer = true,
};

/* ---- with experts, whose weights are always normalised ---- */

static const struct key expert_keys[] = { QWEN_EXPERTS(UNREAD), SHARED_EXPERT, { 0 } };

static int read_all_experts(const struct reading *r)
{
    r->c->experts_normalised = true;
    return read_experts(r);
}

static int get_all_experts(struct getting *m)
{
    m->c->experts_normalised = true;
    return get_experts(m) ? -1 : need_uint(m, "expert_feed_forward_length", 0, EXPERT_FFN_MAX,
                                           &m->c->expert_ffn);
}

/* A file need not have feed_forward_length, and convert does not write it. */
static int get_sizes(struct getting *m)
{
    return read_uint(m, "feed_forward_length", m->blocks, 0, 1 << 24, &m->c->ffn) < 0 ? -1 : 0;
}

const struct family family_qwen3_5_moe = {
    .type = "qwen3_5_moe", .text_type = "qwen3_5_moe_text", .gguf = "qwen35moe", .tensors = names,
    .reads = LIST("partial_rotary_factor", "feed_forward_length"),
    .names = LIST("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
    .section = { [OF_SIZES] = SECTION(size_keys, NULL, get_sizes),
                 [OF_EXPERTS] = SECTION(expert_keys, read_all_experts, get_all_experts, NULL, put_experts),
                 [OF_STATES] = &states },
    .missing = MISSING({ "vocab_size", 248320 }, { "hidden_size", 2048 }, { "intermediate_size", 2048 },
                       { "num_hidden_layers", 40 }, { "num_attention_heads", 16 },
                       { "num_key_value_heads", 2 }, { "head_dim", 256 },
                       { "max_position_embeddings", 32768 }, { "num_local_experts", 256 },
                       { "moe_intermediate_size", 512 },
                       { "shared_expert_intermediate_size", 512 }),
    .layer = { .qk_norm = QK_NORM, .gated = true }, .attention_bias = true, .experts = true, .partial = 0.25,
    .rope_keys = rope_keys, .draft_layer = true,
};
