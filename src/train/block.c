/* Decoder blocks in training (block.h). */
#include "src/train/block.h"

#include <math.h>
#include <string.h>

#include "src/train/train.h"

void block_matrices(struct block *b, const struct config *c, size_t *at)
{
    *b = (struct block){ .d = c->hidden, .q_dim = c->n_heads * c->head_dim,
                         .kv_dim = c->n_kv_heads * c->head_dim, .ff = c->ffn };
    b->q = linear_at(b->q_dim, b->d, at);
    b->kv = linear_at(2 * b->kv_dim, b->d, at);
    b->o = linear_at(b->d, b->q_dim, at);
    b->gate_up = linear_at(2 * b->ff, b->d, at);
    b->down = linear_at(b->d, b->ff, at);
}

void block_vectors(struct block *b, bool bias, bool norm_attn, size_t *at)
{
    if (bias) {
        b->q.bias = *at, *at += b->q.n;
        b->kv.bias = *at, *at += b->kv.n;
    }
    b->norm_attn = norm_attn ? *at : BLOCK_NO_NORM;
    *at += norm_attn ? b->d : 0;
    b->norm_mlp = *at, *at += b->d;
}

void block_linears(struct block *b, struct linear **l)
{
    l[0] = &b->q, l[1] = &b->kv, l[2] = &b->o, l[3] = &b->gate_up, l[4] = &b->down;
}

size_t block_assign(struct block *b, enum dtype act, size_t rows, char *mem, size_t at)
{
    const size_t a = dtype_size(act), f = sizeof(float);
    struct linear *l[BLOCK_LINEARS];
    const struct buffer part[] = {
        { &b->xn, rows * b->d * a }, { &b->att, rows * b->q_dim * a }, { &b->xn2, rows * b->d * a },
        { &b->h, rows * b->ff * a }, { &b->mid, rows * b->d * f }, { &b->gu, rows * 2 * b->ff * f },
    };
    at = buffers_assign(part, sizeof part / sizeof *part, mem, at);
    block_linears(b, l);
    for (size_t i = 0; i < BLOCK_LINEARS; i++)
        at = linear_assign(l[i], act, mem, at);
    return at;
}

size_t block_scratch_assign(struct block *b, size_t rows, char *mem, size_t at)
{
    const struct buffer part[] = { { &b->dn, rows * b->d * sizeof(float) },
                                   { &b->d_gu, rows * 2 * b->ff * sizeof(float) },
                                   { &b->d_h, rows * b->ff * sizeof(float) } };
    return buffers_assign(part, 3, mem, at);
}

/* ---- weights ---- */

const char *block_misfit(const struct model *m, size_t layer)
{
    const struct layer *l = &m->layers[layer];
    if (l->expert)
        return "experts";
    if (l->q_norm || l->k_norm)
        return "norms of queries and keys";
    return l->o_bias || l->gate_up_bias || l->down_bias ? "biases outside the attention's projections" : NULL;
}

/* Row r of matrices whose outputs follow each other. */
static void mats_row(const struct mats *y, size_t r, float *to)
{
    size_t i = 0;
    while (r >= y->m[i].n)
        r -= y->m[i++].n;
    mat_row(&y->m[i], r, to);
}

/* The model pads heads to m->head_dim. No window has run yet, so that gu is free for a row. */
void block_copy(const struct block *b, const struct model *m, size_t layer, float *params)
{
    const struct layer *l = &m->layers[layer];
    const size_t dim = m->config.head_dim, padded = m->head_dim;
    float *row = b->gu;
    for (size_t r = 0; r < b->q_dim + 2 * b->kv_dim; r++) {
        const size_t from = r / dim * padded + r % dim;
        const struct linear *to = r < b->q_dim ? &b->q : &b->kv;
        const size_t at = r < b->q_dim ? r : r - b->q_dim;
        mats_row(&l->qkv, from, params + to->at + at * b->d);
        if (to->bias != LINEAR_NO_BIAS)
            params[to->bias + at] = l->qkv_bias[from];
    }
    for (size_t r = 0; r < b->d; r++) {
        mat_row(&l->o, r, row);
        for (size_t i = 0; i < b->q_dim; i++)
            params[b->o.at + r * b->q_dim + i] = row[i / dim * padded + i % dim];
        mat_row(&l->down, r, params + b->down.at + r * b->ff);
    }
    for (size_t r = 0; r < 2 * b->ff; r++)
        mats_row(&l->gate_up, r, params + b->gate_up.at + r * b->d);
    memcpy(params + b->norm_attn, l->norm_attn, b->d * sizeof *params);
    memcpy(params + b->norm_mlp, l->norm_mlp, b->d * sizeof *params);
}

void block_random(const struct block *b, float *params, size_t layers, uint64_t seed)
{
    const size_t end = b->down.at + b->down.n * b->down.k;
    train_normal(params + b->q.at, end - b->q.at, 0.02f, seed);
    const float less = 1 / sqrtf(2 * (float)layers);
    for (size_t i = 0; i < b->o.n * b->o.k; i++)
        params[b->o.at + i] *= less;
    for (size_t i = 0; i < b->down.n * b->down.k; i++)
        params[b->down.at + i] *= less;
    for (size_t i = 0; i < b->d; i++)
        params[b->norm_mlp + i] = 1;
    for (size_t i = 0; i < b->d && b->norm_attn != BLOCK_NO_NORM; i++)
        params[b->norm_attn + i] = 1;
}

/* ---- forward and backward ---- */

void block_project(const struct layers *t, const struct block *b, size_t r0, const float *x, float *q,
                   float *kv)
{
    const size_t act = dtype_size(t->m->compute);
    char *xn = b->xn + r0 * b->d * act;
    if (b->norm_attn != BLOCK_NO_NORM)
        norm_forward(t, xn, x, b->d, b->norm_attn);
    else
        t->m->ops->round(xn, t->m->compute, x, 1, t->rows * b->d);
    linear_forward(t, &b->q, q, xn, false);
    linear_forward(t, &b->kv, kv, xn, false);
}

void block_finish(const struct layers *t, const struct block *b, size_t r0, float *y, const float *x,
                  const float *att)
{
    const struct ops *o = t->m->ops;
    const enum dtype type = t->m->compute;
    const size_t n = t->rows, d = b->d, ff = b->ff, act = dtype_size(type);
    char *a = b->att + r0 * b->q_dim * act, *xn2 = b->xn2 + r0 * d * act, *h = b->h + r0 * ff * act;
    float *mid = b->mid + r0 * d, *gu = b->gu + r0 * 2 * ff;
    o->round(a, type, att, 1, n * b->q_dim);
    memcpy(mid, x, n * d * sizeof *mid);
    linear_forward(t, &b->o, mid, a, true);
    norm_forward(t, xn2, mid, d, b->norm_mlp);
    linear_forward(t, &b->gate_up, gu, xn2, false);
    for (size_t r = 0; r < n; r++)
        o->swiglu(h + r * ff * act, type, gu + r * 2 * ff, gu + r * 2 * ff + ff, ff);
    memcpy(y, mid, n * d * sizeof *y);
    linear_forward(t, &b->down, y, h, true);
}

void block_finish_back(const struct layers *t, const struct block *b, size_t r0, float *dy, float *datt)
{
    const size_t n = t->rows, d = b->d, ff = b->ff, act = dtype_size(t->m->compute);
    linear_backward(t, &b->down, dy, b->h + r0 * ff * act, b->d_h, false);
    for (size_t r = 0; r < n; r++) {
        const float *gu = b->gu + (r0 + r) * 2 * ff;
        float *g = b->d_gu + r * 2 * ff;
        t->m->ops->swiglu_back(g, g + ff, gu, gu + ff, b->d_h + r * ff, ff);
    }
    linear_backward(t, &b->gate_up, b->d_gu, b->xn2 + r0 * d * act, b->dn, false);
    norm_backward(t, dy, b->dn, b->mid + r0 * d, d, b->norm_mlp);
    linear_backward(t, &b->o, dy, b->att + r0 * b->q_dim * act, datt, false);
}

void block_project_back(const struct layers *t, const struct block *b, size_t r0, float *dx, const float *x,
                        const float *dq, const float *dkv)
{
    const char *xn = b->xn + r0 * b->d * dtype_size(t->m->compute);
    linear_backward(t, &b->q, dq, xn, b->dn, false);
    linear_backward(t, &b->kv, dkv, xn, b->dn, true);
    if (b->norm_attn != BLOCK_NO_NORM)
        norm_backward(t, dx, b->dn, x, b->d, b->norm_attn);
    else
        for (size_t i = 0; i < t->rows * b->d; i++)
            dx[i] += b->dn[i];
}

struct drafter_block_weights block_weights(const struct block *b, const float *w)
{
    const bool bias = b->q.bias != LINEAR_NO_BIAS;
    return (struct drafter_block_weights){
        .q = w + b->q.at, .kv = w + b->kv.at, .q_bias = bias ? w + b->q.bias : NULL,
        .kv_bias = bias ? w + b->kv.bias : NULL, .o = w + b->o.at, .gate_up = w + b->gate_up.at,
        .down = w + b->down.at, .norm_attn = b->norm_attn == BLOCK_NO_NORM ? NULL : w + b->norm_attn,
        .norm_mlp = w + b->norm_mlp,
    };
}
