/* Parts of decoder blocks in training (block.h). */
#include "src/lab/train/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/lab/train/train.h"

/* ---- layouts ---- */

void projections_take_matrices(struct layers *l, struct projections *p, bool kv)
{
    const struct config *c = &l->m->config;
    *p = (struct projections){ .norm = NO_NORM };
    linear_take(l, &p->q, c->n_heads * c->head_dim, l->d);
    if (kv)
        linear_take(l, &p->kv, 2 * c->n_kv_heads * c->head_dim, l->d);
    linear_take(l, &p->o, l->d, p->q.n);
}

void mlp_take_matrices(struct layers *l, struct mlp *f)
{
    linear_take(l, &f->gate_up, 2 * l->m->config.ffn, l->d);
    linear_take(l, &f->down, l->d, l->m->config.ffn);
}

void projections_take(const struct layers *l, struct projections *p, struct arena *a)
{
    const size_t n = l->rows_max * dtype_size(l->m->compute);
    TAKE(a, { &p->xn, n * l->d }, { &p->att, n * p->q.n });
}

void attend_take(struct layers *l, struct attend *t, struct arena *a)
{
    const struct config *c = &l->m->config;
    const size_t n = l->rows_max * sizeof(float), q = n * t->p.q.n, kv = n * t->p.kv.n;
    t->a = (struct attention){ .heads = c->n_heads, .kv_heads = c->n_kv_heads, .head_dim = c->head_dim };
    projections_take(l, &t->p, a);
    TAKE(a, { &t->q, q }, { &t->a.out, q }, { &t->dout, q }, { &t->a.dq, q });
    t->a.q = t->q, t->a.dout = t->dout;
    if (kv) {
        TAKE(a, { &t->kv, kv }, { &t->k, kv / 2 }, { &t->v, kv / 2 }, { &t->a.dk, kv / 2 },
             { &t->a.dv, kv / 2 });
        t->a.k = t->k, t->a.v = t->v;
    }
    attention_take(l, &t->a);
}

void mlp_take(const struct layers *l, struct mlp *f, struct arena *a)
{
    const size_t n = l->rows_max, act = dtype_size(l->m->compute), ff = f->down.k;
    TAKE(a, { &f->xn, n * l->d * act }, { &f->h, n * ff * act }, { &f->gu, n * 2 * ff * sizeof(float) },
         { &f->d_gu, n * 2 * ff * sizeof(float) }, { &f->d_h, n * ff * sizeof(float) });
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

/* The model pads heads to m->head_dim. */
int block_copy(const struct projections *p, const struct mlp *f, const struct model *m, size_t layer,
               float *w, struct err *e)
{
    const struct layer *l = &m->layers[layer];
    const size_t dim = m->config.head_dim, padded = m->head_dim, d = p->o.n;
    float *row = malloc(l->o.k * sizeof *row);
    if (!row)
        return err_set(e, ERR_FAILED, "out of memory for a row of %zu weights", l->o.k);
    for (size_t r = 0; r < p->q.n + p->kv.n; r++) {
        const size_t from = r / dim * padded + r % dim;
        const struct linear *to = r < p->q.n ? &p->q : &p->kv;
        const size_t at = r < p->q.n ? r : r - p->q.n;
        mats_row(&l->qkv, from, w + to->at + at * d);
        if (to->bias != LINEAR_NO_BIAS)
            w[to->bias + at] = l->qkv_bias[from];
    }
    for (size_t r = 0; r < d; r++) {
        mat_row(&l->o, r, row);
        for (size_t i = 0; i < p->q.n; i++)
            w[p->o.at + r * p->q.n + i] = row[i / dim * padded + i % dim];
        mat_row(&l->down, r, w + f->down.at + r * f->down.k);
    }
    free(row);
    for (size_t r = 0; r < f->gate_up.n; r++)
        mats_row(&l->gate_up, r, w + f->gate_up.at + r * d);
    memcpy(w + p->norm, l->norm_attn, d * sizeof *w);
    memcpy(w + f->norm, l->norm_mlp, d * sizeof *w);
    return 0;
}

void linear_scale(const struct linear *x, float *w, float by)
{
    for (size_t i = 0; i < x->n * x->k; i++)
        w[x->at + i] *= by;
}

void block_random(const struct projections *p, const struct mlp *f, float *w, size_t layers, uint64_t seed)
{
    const float less = 1 / sqrtf(2 * (float)layers);
    train_normal(w + p->q.at, f->down.at + f->down.n * f->down.k - p->q.at, 0.02f, seed);
    linear_scale(&p->o, w, less);
    linear_scale(&f->down, w, less);
    for (size_t i = 0; i < p->o.n; i++)
        w[f->norm + i] = 1;
    for (size_t i = 0; i < p->o.n && p->norm != NO_NORM; i++)
        w[p->norm + i] = 1;
}

static float *or_null(float *w, size_t at) { return at == SIZE_MAX ? NULL : w + at; }

/* The rows of q, k and v follow each other. */
struct drafter_block block_weights(const struct projections *p, const struct mlp *f, float *w)
{
    return (struct drafter_block){ .qkv.w = w + p->q.at, .o.w = w + p->o.at, .gate_up.w = w + f->gate_up.at,
                                   .down.w = w + f->down.at, .qkv_bias = or_null(w, p->q.bias),
                                   .norm_attn = or_null(w, p->norm), .norm_mlp = w + f->norm };
}

/* ---- projections ---- */

static char *act_row(const struct layers *l, char *x, size_t r, size_t n)
{
    return x + r * n * dtype_size(l->m->compute);
}

void project(const struct layers *l, const struct projections *p, size_t r0, const float *x, float *q,
             float *kv)
{
    char *xn = act_row(l, p->xn, r0, l->d);
    if (p->norm != NO_NORM)
        norm_forward(l, xn, x, p->norm);
    else
        l->m->ops->round(xn, l->m->compute, x, 1, l->rows * l->d);
    if (q)
        linear_forward(l, &p->q, q, xn, false);
    if (kv)
        linear_forward(l, &p->kv, kv, xn, false);
}

void project_out(const struct layers *l, const struct projections *p, size_t r0, float *y, const float *x,
                 const float *att)
{
    char *a = act_row(l, p->att, r0, p->q.n);
    l->m->ops->round(a, l->m->compute, att, 1, l->rows * p->q.n);
    layers_copy(l, y, x);
    linear_forward(l, &p->o, y, a, true);
}

void project_out_back(const struct layers *l, const struct projections *p, size_t r0, const float *dy,
                      float *datt)
{
    linear_backward(l, &p->o, dy, act_row(l, p->att, r0, p->q.n), datt, false);
}

void project_back(const struct layers *l, const struct projections *p, size_t r0, float *dx, const float *x,
                  const float *dq, const float *dkv)
{
    const char *xn = act_row(l, p->xn, r0, l->d);
    linear_backward(l, &p->q, dq, xn, l->dn, false);
    if (dkv)
        linear_backward(l, &p->kv, dkv, xn, l->dn, true);
    if (p->norm != NO_NORM)
        norm_backward(l, dx, l->dn, x, p->norm, 1, true);
    else
        for (size_t i = 0; i < l->rows * l->d; i++)
            dx[i] += l->dn[i];
}

/* ---- attention ---- */

/* Splits rows of keys and values into heads, or joins them. */
static void split_heads(const struct layers *l, const struct attention *a, float *kv, float *k, float *v,
                        bool join)
{
    const size_t dim = a->head_dim, heads = a->kv_heads, ld = 2 * heads * dim, n = l->rows;
    for (size_t h = 0; h < heads; h++)
        for (size_t r = 0; r < n; r++) {
            float *row = kv + r * ld + h * dim, *kr = k + (h * n + r) * dim, *vr = v + (h * n + r) * dim;
            memcpy(join ? row : kr, join ? kr : row, dim * sizeof *row);
            memcpy(join ? row + heads * dim : vr, join ? vr : row + heads * dim, dim * sizeof *row);
        }
}

static void rotate_all(const struct layers *l, const struct attend *t, float *q, const float *cos,
                       const float *sin, bool back)
{
    rotate(l, q, t->p.q.n, t->a.heads, cos, sin, back);
    if (t->kv)
        rotate(l, t->kv, t->p.kv.n, t->a.kv_heads, cos, sin, back);
}

void attend_forward(const struct layers *l, struct attend *t, float *y, const float *x, const float *cos,
                    const float *sin)
{
    project(l, &t->p, 0, x, t->q, t->kv);
    rotate_all(l, t, t->q, cos, sin, false);
    if (t->kv)
        split_heads(l, &t->a, t->kv, t->k, t->v, false);
    attention_forward(l, &t->a);
    project_out(l, &t->p, 0, y, x, t->a.out);
}

void attend_backward(const struct layers *l, struct attend *t, float *dx, const float *x, const float *cos,
                     const float *sin)
{
    project_out_back(l, &t->p, 0, dx, t->dout);
    attention_backward(l, &t->a);
    if (t->kv)
        split_heads(l, &t->a, t->kv, t->a.dk, t->a.dv, true);
    rotate_all(l, t, t->a.dq, cos, sin, true);
    project_back(l, &t->p, 0, dx, x, t->a.dq, t->kv);
}

/* ---- the feed-forward part ---- */

void mlp_forward(const struct layers *l, const struct mlp *f, size_t r0, float *y, const float *x)
{
    const size_t ff = f->down.k;
    char *xn = act_row(l, f->xn, r0, l->d), *h = act_row(l, f->h, r0, ff);
    float *gu = f->gu + r0 * 2 * ff;
    norm_forward(l, xn, x, f->norm);
    linear_forward(l, &f->gate_up, gu, xn, false);
    for (size_t r = 0; r < l->rows; r++)
        l->m->ops->swiglu(act_row(l, h, r, ff), l->m->compute, gu + r * 2 * ff, gu + r * 2 * ff + ff, ff);
    layers_copy(l, y, x);
    linear_forward(l, &f->down, y, h, true);
}

void mlp_backward(const struct layers *l, const struct mlp *f, size_t r0, float *dx, const float *x)
{
    const size_t ff = f->down.k;
    linear_backward(l, &f->down, dx, act_row(l, f->h, r0, ff), f->d_h, false);
    for (size_t r = 0; r < l->rows; r++) {
        const float *gu = f->gu + (r0 + r) * 2 * ff;
        float *g = f->d_gu + r * 2 * ff;
        l->m->ops->swiglu_back(g, g + ff, gu, gu + ff, f->d_h + r * ff, ff);
    }
    linear_backward(l, &f->gate_up, f->d_gu, act_row(l, f->xn, r0, l->d), l->dn, false);
    norm_backward(l, dx, l->dn, x, f->norm, 1, true);
}
