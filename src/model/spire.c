/* Files of SPIRe drafters (spire.h). */
#include "src/model/spire.h"

#include <stdio.h>

#include "src/model/heads.h"

enum { PARTS = 12 };                     /* tensors of a layer, with biases */

/* Adds the tensors of layer i to t[n]; returns their number. */
static size_t layer_tensors(const struct model *m, const struct spire_weights *w, size_t i,
                            struct tensor_out *t)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const float *kb = w->layer[i].kv_bias;
    const struct { const char *name; size_t rows, cols; const float *data; } part[PARTS] = {
        { "self_attn.q_proj.weight", q, d, w->layer[i].q },
        { "self_attn.k_proj.weight", kv, d, w->layer[i].kv },
        { "self_attn.v_proj.weight", kv, d, w->layer[i].kv + kv * d },
        { "self_attn.o_proj.weight", d, q, w->layer[i].o },
        { "mlp.gate_proj.weight", ff, d, w->layer[i].gate_up },
        { "mlp.up_proj.weight", ff, d, w->layer[i].gate_up + ff * d },
        { "mlp.down_proj.weight", d, ff, w->layer[i].down },
        { "input_layernorm.weight", d, 0, w->layer[i].norm_attn },
        { "post_attention_layernorm.weight", d, 0, w->layer[i].norm_mlp },
        { "self_attn.q_proj.bias", q, 0, w->layer[i].q_bias },
        { "self_attn.k_proj.bias", kv, 0, kb },
        { "self_attn.v_proj.bias", kv, 0, kb ? kb + kv : NULL },
    };
    size_t n = 0;
    for (size_t k = 0; k < PARTS; k++) {
        if (!part[k].data)
            continue;
        t[n] = (struct tensor_out){ .dtype = part[k].cols ? DT_BF16 : DT_F32, .rows = part[k].rows,
                                    .cols = part[k].cols, .data = part[k].data };
        snprintf(t[n].name, sizeof t[n].name, "layers.%zu.%s", i, part[k].name);
        n++;
    }
    return n;
}

int spire_save_file(const char *path, const struct model *m, const struct spire_weights *w, const char *note,
                    struct err *e)
{
    struct tensor_out t[SPIRE_LAYERS * PARTS + 2];
    size_t n = 0;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        n += layer_tensors(m, w, i, t + n);
    t[n++] = (struct tensor_out){ "norm.weight", DT_F32, m->config.hidden, 0, w->norm };
    t[n++] = (struct tensor_out){ "memory.weight", DT_F32, SPIRE_LAYERS, SPIRE_MIX, w->memory };
    return drafter_save(path, m, "spire", note, t, n, e);
}
