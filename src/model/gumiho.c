/* Files of Gumiho drafters (gumiho.h). */
#include "src/model/gumiho.h"

#include <stdio.h>

#include "src/model/heads.h"

enum { PARTS = 9, TENSORS = 2 + GUMIHO_LAYERS * PARTS + 2 * GUMIHO_HEADS * GUMIHO_LINEARS };

static void layer_tensors(const struct model *m, const struct gumiho_weights *w, size_t i,
                          struct tensor_out *t, size_t *n)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const struct { const char *name; size_t rows, cols; const float *data; } part[PARTS] = {
        { "self_attn.q_proj", q, d, w->layer[i].q },
        { "self_attn.k_proj", kv, d, w->layer[i].kv },
        { "self_attn.v_proj", kv, d, w->layer[i].kv + kv * d },
        { "self_attn.o_proj", d, q, w->layer[i].o },
        { "mlp.gate_proj", ff, d, w->layer[i].gate_up },
        { "mlp.up_proj", ff, d, w->layer[i].gate_up + ff * d },
        { "mlp.down_proj", d, ff, w->layer[i].down },
        { "input_layernorm", d, 0, w->layer[i].norm_attn },
        { "post_attention_layernorm", d, 0, w->layer[i].norm_mlp },
    };
    for (size_t k = 0; k < PARTS; k++) {
        struct tensor_out *to = &t[*n];
        if (!part[k].data)
            continue;
        *to = (struct tensor_out){ .dtype = part[k].cols ? DT_BF16 : DT_F32, .rows = part[k].rows,
                                   .cols = part[k].cols, .data = part[k].data };
        snprintf(to->name, sizeof to->name, "layers.%zu.%s.weight", i, part[k].name);
        ++*n;
    }
}

int gumiho_save_file(const char *path, const struct model *m, const struct gumiho_weights *w,
                     const char *note, struct err *e)
{
    const size_t d = m->config.hidden;
    struct tensor_out t[TENSORS];
    size_t n = 0;
    t[n++] = (struct tensor_out){ "fc.weight", DT_BF16, d, 2 * d, w->fc };
    t[n++] = (struct tensor_out){ "fc.bias", DT_F32, d, 0, w->fc_bias };
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        layer_tensors(m, w, i, t, &n);
    for (size_t i = 0; i < GUMIHO_HEADS * GUMIHO_LINEARS; i++) {
        const size_t head = i / GUMIHO_LINEARS, k = i % GUMIHO_LINEARS;
        t[n] = (struct tensor_out){ "", DT_BF16, d, k ? d : 2 * d, w->head[head][k] };
        snprintf(t[n++].name, sizeof t->name, "mlp.%zu.%zu.linear.weight", head, k);
        t[n] = (struct tensor_out){ "", DT_F32, d, 0, w->head_bias[head][k] };
        snprintf(t[n++].name, sizeof t->name, "mlp.%zu.%zu.linear.bias", head, k);
    }
    return drafter_save(path, m, "gumiho", note, t, n, e);
}
