/* Counts the bytes and operations of passes. Start at work_add_layers. */
#include "src/lab/roofline.h"

#include <stdlib.h>

/* ---- the matrices ---- */

static void add_matrix(struct work_read *r, const struct mat *m, bool expert)
{
    r->v[r->n++] = (struct work_matrix){ m, expert };
}

/* Adds the matrices of a layer, or of an expert. */
static void add_parts(struct work_read *r, void *of, const struct layer_part *p, size_t n, bool expert)
{
    for (size_t i = 0, count; i < n; i += parts_of_place(p + i, n - i)) {
        const struct mat *m = part_matrices(&p[i], of, &count);
        for (size_t k = 0; k < count && p[i].form <= PART_ROUTER; k++)
            add_matrix(r, &m[k], expert);
    }
}

int work_matrices(struct work_read *r, const struct model *m, struct err *e)
{
    const struct config *c = &m->config;
    const size_t most = PARTS_MAX + EXPERT_PARTS * (c->experts_used + 1);
    struct layer_part p[PARTS_MAX], x[EXPERT_PARTS];
    *r = (struct work_read){ calloc(c->n_layers * most + 2, sizeof *r->v), 0 };
    if (!r->v)
        return err_set(e, ERR_FAILED, "out of memory for a list of matrices");
    for (size_t l = 0; l < c->n_layers; l++) {
        struct layer *y = &m->layers[l];
        const size_t used = c->layer[l].experts ? c->experts_used : 0;
        add_parts(r, y, p, layer_parts(p, c, l), false);
        for (size_t k = 0; k < used; k++)
            add_parts(r, &y->expert[k * c->n_experts / used], x, expert_parts(x, c, false), true);
        if (used && c->shared_ffn)
            add_parts(r, &y->shared, x, expert_parts(x, c, true), false);
    }
    if (c->per_layer)
        add_matrix(r, &m->per_layer_in, false);
    add_matrix(r, &m->lm_head, false);
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
