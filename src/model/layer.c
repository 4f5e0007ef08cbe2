/* The tensors of a layer. Start at layer_parts. */
#include "src/model/layer.h"

#include <stdio.h>
#include <string.h>

#define AT(name) offsetof(struct layer, name)

size_t used_parts(struct layer_part *to, const struct layer_part *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (p[i].used)
            to[count++] = p[i];
    return count;
}

size_t layer_parts(struct layer_part to[PARTS_MAX], const struct config *c, size_t layer)
{
    const struct layer_spec *s = &c->layer[layer];
    const size_t d = c->hidden, h = s->head_dim, q = c->n_heads * h, kv = s->n_kv_heads * h, f = s->ffn,
                 values = c->delta.value_heads, z = values * c->delta.value_dim,
                 mixed = config_delta_channels(c), n_experts = c->n_experts, each = c->per_layer;
    const bool dense = f, bias = dense && c->mlp_bias, experts = s->experts,
               shared = experts && c->shared_ffn, beside = s->beside,
               state = s->mixer == MIXER_DELTA, attn = !state,
               qkv_bias = attn && c->qkv_bias, own = attn && s->kv_layer == layer,
               norm = attn && s->qk_norm, whole = s->qk_norm == QK_NORM_WHOLE,
               before = s->norms != NORM_AFTER, after = s->norms != NORM_BEFORE;
    const struct layer_part p[PARTS_MAX] = {
        { "input_layernorm.weight", before, d, 0, PART_NORM, AT(norm_attn) },
        { "self_attn.q_proj.weight", attn, s->gated ? 2 * q : q, d, PART_HEADS, AT(qkv) },
        { "self_attn.k_proj.weight", own, kv, d, PART_HEADS, AT(qkv) },
        { "self_attn.v_proj.weight", own && !s->v_is_k, kv, d, PART_HEADS, AT(qkv) },
        { "self_attn.q_proj.bias", qkv_bias, q, 0, PART_HEAD_VECTOR, AT(qkv_bias) },
        { "self_attn.k_proj.bias", qkv_bias, kv, 0, PART_HEAD_VECTOR, AT(qkv_bias) },
        { "self_attn.v_proj.bias", qkv_bias, kv, 0, PART_HEAD_VECTOR, AT(qkv_bias) },
        { "self_attn.q_norm.weight", norm, whole ? q : h, 0, PART_NORM, AT(q_norm) },
        { "self_attn.k_norm.weight", norm && own, whole ? kv : h, 0, PART_NORM, AT(k_norm) },
        { "self_attn.o_proj.weight", attn, d, q, PART_HEAD_COLUMNS, AT(o) },
        { "self_attn.o_proj.bias", attn && c->o_bias, d, 0, PART_VECTOR, AT(o_bias) },
        { "self_attn.sinks", attn && s->head_logits, c->n_heads, 0, PART_VECTOR, AT(head_logit) },
        { "linear_attn.A_log", state, values, 0, PART_DECAY, AT(decay) },
        { "linear_attn.in_proj_qkv.weight", state, mixed, d, PART_STACK, AT(mix) },
        { "linear_attn.in_proj_z.weight", state, z, d, PART_STACK, AT(mix) },
        { "linear_attn.in_proj_b.weight", state, values, d, PART_STACK, AT(mix) },
        { "linear_attn.in_proj_a.weight", state, values, d, PART_STACK, AT(mix) },
        { "linear_attn.conv1d.weight", state, mixed, c->delta.conv, PART_VECTOR, AT(conv) },
        { "linear_attn.dt_bias", state, values, 0, PART_VECTOR, AT(dt_bias) },
        { "linear_attn.norm.weight", state, c->delta.value_dim, 0, PART_VECTOR, AT(norm_state) },
        { "linear_attn.out_proj.weight", state, d, z, PART_MATRIX, AT(out) },
        { "post_attention_layernorm.weight", after, d, 0, PART_NORM, AT(norm_attn_after) },
        { after ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight", before, d, 0,
          PART_NORM, AT(norm_mlp) },
        { "mlp.gate.weight", experts, n_experts, d, PART_ROUTER, AT(router) },
        { "mlp.gate.bias", experts && c->experts_bias, n_experts, 0, PART_VECTOR, AT(router_bias) },
        { "mlp.shared_expert_gate.weight", shared, 1, d, PART_ROUTER, AT(shared_gate) },
        { "mlp.shared_expert.", shared, 1, 0, PART_SHARED, AT(shared) },
        { "mlp.experts.", experts, n_experts, 0, PART_EXPERTS, AT(expert) },
        { "mlp.gate_proj.weight", dense, f, d, PART_STACK, AT(gate_up) },
        { "mlp.up_proj.weight", dense, f, d, PART_STACK, AT(gate_up) },
        { "mlp.gate_proj.bias", bias, f, 0, PART_VECTOR, AT(gate_up_bias) },
        { "mlp.up_proj.bias", bias, f, 0, PART_VECTOR, AT(gate_up_bias) },
        { "mlp.down_proj.weight", dense, d, f, PART_MATRIX, AT(down) },
        { "mlp.down_proj.bias", bias, d, 0, PART_VECTOR, AT(down_bias) },
        { "router.scale", beside, d, 0, PART_VECTOR, AT(norm_router) },
        { "router.per_expert_scale", beside, n_experts, 0, PART_VECTOR, AT(expert_scale) },
        { "post_feedforward_layernorm_1.weight", beside, d, 0, PART_NORM, AT(norm_dense_after) },
        { "pre_feedforward_layernorm_2.weight", beside, d, 0, PART_NORM, AT(norm_experts) },
        { "post_feedforward_layernorm_2.weight", beside, d, 0, PART_NORM, AT(norm_experts_after) },
        { "layer_scalar", s->scaled, 1, 0, PART_VECTOR, AT(scale) },
        { "per_layer_input_gate.weight", each, each, d, PART_MATRIX, AT(per_layer_gate) },
        { "per_layer_projection.weight", each, d, each, PART_MATRIX, AT(per_layer_out) },
        { "post_per_layer_input_norm.weight", each, d, 0, PART_NORM, AT(norm_per_layer) },
        { "post_feedforward_layernorm.weight", after, d, 0, PART_NORM, AT(norm_mlp_after) },
    };
    return used_parts(to, p, PARTS_MAX);
}

#undef AT
#define AT(name) offsetof(struct device_expert, name)

size_t expert_parts(struct layer_part to[EXPERT_PARTS], const struct config *c, bool shared)
{
    const size_t d = c->hidden, f = shared ? c->shared_ffn : c->expert_ffn;
    const bool bias = c->experts_bias && !shared;
    const struct layer_part p[EXPERT_PARTS] = {
        { "gate_proj.weight", true, f, d, PART_STACK, AT(gate_up) },
        { "up_proj.weight", true, f, d, PART_STACK, AT(gate_up) },
        { "down_proj.weight", true, d, f, PART_MATRIX, AT(down) },
        { "gate_proj.bias", bias, f, 0, PART_VECTOR, AT(gate_up_bias) },
        { "up_proj.bias", bias, f, 0, PART_VECTOR, AT(gate_up_bias) },
        { "down_proj.bias", bias, d, 0, PART_VECTOR, AT(down_bias) },
    };
    return used_parts(to, p, EXPERT_PARTS);
}

size_t parts_of_place(const struct layer_part *p, size_t n)
{
    size_t same = 1;
    while (same < n && p[same].place == p->place)
        same++;
    return same;
}

struct mat *part_matrices(const struct layer_part *p, const void *of, size_t *n)
{
    void *at = (char *)of + p->place;
    struct mats *stack = at;
    *n = p->form <= PART_HEADS ? stack->n : 1;
    return p->form <= PART_HEADS ? stack->m : at;
}

const struct tensor *part_need(const struct tensors *ts, const char *at, const struct layer_part *p,
                               struct err *e)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", at, p->name);
    const struct tensor *t = tensors_need(ts, name, p->rows, p->cols, e);
    if (!t || p->form < PART_ROUTER || tensor_is_float(t->dtype))
        return t;
    tensor_bad(ts, t, e, ": dtype %s, allowed for a %s are BF16, F16 and F32", t->dtype_name,
               p->form == PART_ROUTER ? "router" : "convolution");
    return NULL;
}
