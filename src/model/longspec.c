/* Files of LongSpec drafters (longspec.h). */
#include "src/model/longspec.h"

#include "src/model/heads.h"

int longspec_save_file(const char *path, const struct model *m, const struct longspec_weights *w,
                       const char *note, struct err *e)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const struct tensor_out t[] = {
        { "self_attn.q_proj.weight", DT_BF16, q, d, w->qkv },
        { "self_attn.k_proj.weight", DT_BF16, kv, d, w->qkv + q * d },
        { "self_attn.v_proj.weight", DT_BF16, kv, d, w->qkv + (q + kv) * d },
        { "self_attn.o_proj.weight", DT_BF16, d, q, w->o },
        { "cross_attn.q_proj.weight", DT_BF16, q, d, w->cross_q },
        { "cross_attn.o_proj.weight", DT_BF16, d, q, w->cross_o },
        { "mlp.gate_proj.weight", DT_BF16, ff, d, w->gate_up },
        { "mlp.up_proj.weight", DT_BF16, ff, d, w->gate_up + ff * d },
        { "mlp.down_proj.weight", DT_BF16, d, ff, w->down },
        { "self_attn.q_proj.bias", DT_F32, q, 0, w->qkv_bias },
        { "self_attn.k_proj.bias", DT_F32, kv, 0, w->qkv_bias + q },
        { "self_attn.v_proj.bias", DT_F32, kv, 0, w->qkv_bias + q + kv },
        { "cross_attn.q_proj.bias", DT_F32, q, 0, w->cross_q_bias },
        { "input_layernorm.weight", DT_F32, d, 0, w->norm[0] },
        { "post_self_attention_layernorm.weight", DT_F32, d, 0, w->norm[1] },
        { "post_cross_attention_layernorm.weight", DT_F32, d, 0, w->norm[2] },
    };
    return drafter_save(path, m, "longspec", note, t, sizeof t / sizeof *t, e);
}
