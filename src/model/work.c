/* Counts the bytes and operations of passes. Start at work_add_layers. */
#include "src/model/work.h"

#include <stdlib.h>

/* ---- the matrices ---- */

static void add_matrices(struct work_read *r, const struct mat *m, size_t n, bool expert)
{
    for (size_t i = 0; i < n; i++)
        r->v[r->n++] = (struct work_matrix){ &m[i], expert };
}

static void add_expert(struct work_read *r, const struct device_expert *x, bool expert)
{
    add_matrices(r, x->gate_up, x->n_gate_up, expert);
    add_matrices(r, &x->down, 1, expert);
}

int work_matrices(struct work_read *r, const struct model *m, struct err *e)
{
    const struct config *c = &m->config;
    const size_t most = 2 * MATS_MAX + 7 + 3 * (c->experts_used + 1);
    *r = (struct work_read){ calloc(c->n_layers * most + 2, sizeof *r->v), 0 };
    if (!r->v)
        return err_set(e, ERR_FAILED, "out of memory for a list of matrices");
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer *y = &m->layers[l];
        const bool experts = c->layer[l].experts, state = c->layer[l].mixer == MIXER_DELTA;
        add_matrices(r, state ? y->mix.m : y->qkv.m, state ? y->mix.n : y->qkv.n, false);
        add_matrices(r, state ? &y->out : &y->o, 1, false);
        if (c->layer[l].ffn) {
            add_matrices(r, y->gate_up.m, y->gate_up.n, false);
            add_matrices(r, &y->down, 1, false);
        }
        if (c->per_layer) {
            add_matrices(r, &y->per_layer_gate, 1, false);
            add_matrices(r, &y->per_layer_out, 1, false);
        }
        if (experts)
            add_matrices(r, &y->router, 1, false);
        for (size_t k = 0; experts && k < c->experts_used; k++)
            add_expert(r, &y->expert[k * c->n_experts / c->experts_used], true);
        if (experts && c->shared_ffn) {
            add_matrices(r, &y->shared_gate, 1, false);
            add_expert(r, &y->shared, false);
        }
    }
    if (c->per_layer)
        add_matrices(r, &m->per_layer_in, 1, false);
    add_matrices(r, &m->lm_head, 1, false);
    return 0;
}

/* ---- the work ---- */

size_t work_first_seen(const struct config *c, size_t layer, size_t pos)
{
    const size_t window = c->layer[layer].window;
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

void work_add_product(struct work *w, const struct work_matrix *x, size_t rows)
{
    const double flops = 2.0 * (double)x->m->n * (double)x->m->k * (double)rows;
    w->bytes += x->expert ? 0 : (double)mat_bytes(x->m);
    w->flops += flops;
    w->int16 += dtype_is_quantised(x->m->type) ? flops : 0;
}

/* Each of the texts has rows / texts rows. */
static void add_attention(struct work *w, const struct model *m, size_t l, size_t depth, size_t rows,
                          size_t texts)
{
    const struct config *c = &m->config;
    const struct device_heads heads = model_heads(m, l);
    const size_t width = c->n_heads * heads.padded, n = rows / texts;
    w->bytes += (double)(texts * (depth + n - work_first_seen(c, l, depth))) *
                (double)(heads.n_kv_heads * kv_row_bytes(m->dev->kv_type, heads.padded));
    for (size_t r = 0; r < rows; r++) {
        const size_t pos = depth + r % n, from = work_first_seen(c, l, pos), to = pos + 1,
                     slots = (to + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - from / KV_BLOCK * KV_BLOCK;
        const double flops = 4.0 * (double)width * (double)(to - from), exps = (double)(c->n_heads * slots);
        w->flops += flops;
        w->int16 += kv_form(m->dev->kv_type).q == DT_I16 ? flops : 0;
        w->exps += exps;
        w->maxes += exps;
        w->converts += exps;
    }
    w->exps += c->layer[l].gated ? (double)(rows * width) : 0;
    w->converts += (double)(rows * 2 * width);
}

/* A row multiplies an element of a state by its decay and adds three products. */
static void add_delta(struct work *w, const struct model *m, size_t rows, size_t texts)
{
    const struct delta_shape d = model_cache(m, 1, 0).state;
    const size_t outputs = d.value_heads * d.value_dim;
    w->bytes += (double)(texts * state_fixed_bytes(&d) / d.n_layers);
    w->flops += 7.0 * (double)(rows * d.value_heads * delta_wide(&d) * d.key_dim);
    w->exps += (double)(rows * (delta_channels(&d) + outputs + 2 * d.value_heads));
    w->converts += (double)(rows * outputs);
}

void work_add_layers(struct work *w, const struct model *m, const struct work_read *read, size_t depth,
                     size_t rows, size_t texts)
{
    const struct config *c = &m->config;
    for (size_t i = 0; i + 1 < read->n; i++)
        work_add_product(w, &read->v[i], rows);
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer_spec *s = &c->layer[l];
        const size_t ffn = s->ffn + (s->experts ? c->experts_used * c->expert_ffn + c->shared_ffn : 0);
        if (s->mixer == MIXER_DELTA)
            add_delta(w, m, rows, texts);
        else
            add_attention(w, m, l, depth, rows, texts);
        w->exps += (double)(rows * ffn);
        w->converts += (double)(rows * (2 * c->hidden + ffn));
    }
}
