/* LongSpec's drafter in training (train_longspec.h). A window goes through the layer as a whole; the LM head
 * runs over pieces of it, so that logits stay small. Start at longspec_window. */
#include "src/train/train_longspec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/longspec.h"
#include "src/train/layers.h"

enum { PIECE_MAX = 256 };

struct trainer {
    const struct model *m;
    const struct lm_back *back;
    size_t d, q, kv, ff, rows_max, n_params, n_matrix;
    uint64_t seed;
    struct linear qkv, o, cross_q, cross_o, gate_up, down;
    size_t norm[3];                      /* parameters of the norms' gains */
    struct layers layers;
    struct attention self, cross;
    float *cos, *sin;                    /* [rows][head_dim / 2] */
    float *e, *x1, *x2, *x3;             /* [rows][d]: inputs of the parts, and the output */
    float *dx, *dn;                      /* [rows][d]: the gradient of the residual; of a norm's output */
    float *qkv_y, *k, *v, *self_out, *cross_y, *keys, *values, *cross_out, *gu;
    float *d_qkv, *dk, *dv, *d_out, *d_cross, *d_gu;
    char *xn1, *xn2, *xn3, *self_a, *cross_a, *h, *x3_a; /* act */
    float *logits; char *g;              /* [PIECE_MAX][vocab] */
    struct xent loss;
    char *mem; size_t bytes;
};

/* ---- memory and parameters ---- */

/* Matrices first, because only they decay. */
static size_t assign_params(struct trainer *t)
{
    size_t at = 0;
    t->qkv = linear_at(t->q + 2 * t->kv, t->d, &at);
    t->o = linear_at(t->d, t->q, &at);
    t->cross_q = linear_at(t->q, t->d, &at);
    t->cross_o = linear_at(t->d, t->q, &at);
    t->gate_up = linear_at(2 * t->ff, t->d, &at);
    t->down = linear_at(t->d, t->ff, &at);
    t->n_matrix = at;
    t->qkv.bias = at, at += t->qkv.n;
    t->cross_q.bias = at, at += t->cross_q.n;
    for (size_t i = 0; i < 3; i++, at += t->d)
        t->norm[i] = at;
    return at;
}

/* Assigns all buffers in t->mem and sets t->bytes; t->mem NULL: only sets t->bytes. */
static void assign_buffers(struct trainer *t)
{
    const struct model *m = t->m;
    const size_t n = t->rows_max, d = t->d, qkv = t->q + 2 * t->kv, f = sizeof(float),
                 vocab = m->config.vocab, a = dtype_size(m->compute), wide = MAX(MAX(qkv, 2 * t->ff), d),
                 inputs = MAX(MAX(t->q, t->ff), d);
    t->self.scratch_bytes = attention_bytes(m, &t->self, n);
    const struct buffer floats[] = {
        { &t->cos, n * m->config.head_dim / 2 * f }, { &t->sin, n * m->config.head_dim / 2 * f },
        { &t->e, n * d * f }, { &t->x1, n * d * f }, { &t->x2, n * d * f }, { &t->x3, n * d * f },
        { &t->dx, n * d * f }, { &t->dn, n * d * f }, { &t->qkv_y, n * qkv * f }, { &t->k, n * t->kv * f },
        { &t->v, n * t->kv * f }, { &t->self_out, n * t->q * f }, { &t->cross_y, n * t->q * f },
        { &t->keys, n * t->kv * f }, { &t->values, n * t->kv * f }, { &t->cross_out, n * t->q * f },
        { &t->gu, n * 2 * t->ff * f }, { &t->d_qkv, n * qkv * f }, { &t->dk, n * t->kv * f },
        { &t->dv, n * t->kv * f }, { &t->d_out, n * MAX(t->q, t->ff) * f }, { &t->d_cross, n * t->q * f },
        { &t->d_gu, n * 2 * t->ff * f }, { &t->logits, PIECE_MAX * vocab * f },
    };
    const struct buffer operands[] = {
        { &t->xn1, n * d * a }, { &t->xn2, n * d * a }, { &t->xn3, n * d * a }, { &t->self_a, n * t->q * a },
        { &t->cross_a, n * t->q * a }, { &t->h, n * t->ff * a }, { &t->x3_a, n * d * a },
        { &t->g, PIECE_MAX * vocab * a }, { &t->self.scratch, t->self.scratch_bytes },
    };
    struct linear *const linears[] = { &t->qkv, &t->o, &t->cross_q, &t->cross_o, &t->gate_up, &t->down };
    size_t at = buffers_assign(floats, sizeof floats / sizeof *floats, t->mem, 0);
    at = buffers_assign(operands, sizeof operands / sizeof *operands, t->mem, at);
    at = layers_assign(&t->layers, n, MAX(wide, inputs), t->mem, at);
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        at = linear_assign(linears[i], m->compute, t->mem, at);
    t->bytes = at;
}

static struct trainer trainer_of(const struct model *m, size_t window)
{
    const struct config *c = &m->config;
    struct trainer t = { .m = m, .d = c->hidden, .q = c->n_heads * c->head_dim,
                         .kv = c->n_kv_heads * c->head_dim, .ff = c->ffn, .rows_max = window };
    t.n_params = assign_params(&t);
    t.layers.m = m;
    t.self = (struct attention){ .heads = c->n_heads, .kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                                 .window = LONGSPEC_WINDOW };
    t.cross = t.self;
    t.cross.window = 0;
    return t;
}

size_t train_longspec_bytes(const struct model *m, size_t window)
{
    struct trainer t = trainer_of(m, window);
    assign_buffers(&t);
    return t.bytes;
}

size_t train_longspec_params(const struct model *m)
{
    return trainer_of(m, 1).n_params;
}

/* ---- weights ---- */

static void longspec_init(struct module *u)
{
    const struct trainer *t = u->self;
    train_normal(u->w, u->n_matrix, 0.02f, t->seed);
    for (size_t i = 0; i < t->o.n * t->o.k; i++)
        u->w[t->o.at + i] *= 0.408248290f, u->w[t->cross_o.at + i] *= 0.408248290f;
    for (size_t i = 0; i < t->down.n * t->down.k; i++)
        u->w[t->down.at + i] *= 0.408248290f;
    for (size_t i = 0; i < 3 * t->d; i++)
        u->w[t->norm[0] + i] = 1;        /* biases are 0 already */
}

static void longspec_update(struct module *u)
{
    struct trainer *t = u->self;
    struct linear *const l[] = { &t->qkv, &t->o, &t->cross_q, &t->cross_o, &t->gate_up, &t->down };
    linears_update(&t->layers, l, sizeof l / sizeof *l, u->w);
}

/* ---- a window ---- */

/* The model's embeddings, angles, and the keys and values of its last layer. */
static void read_model(struct trainer *t, const struct train_window *win)
{
    const struct model *m = t->m;
    const struct config *c = &m->config;
    const size_t dim = c->head_dim, half = dim / 2;
    float k[HEAD_DIM_MAX + 16], v[HEAD_DIM_MAX + 16];
    for (size_t r = 0; r < win->n; r++) {
        const size_t pos = r + (r >= win->skip_at ? win->skip : 0);
        model_embedding(m, win->token[r], t->e + r * t->d);
        rope_angles(t->cos + r * half, t->sin + r * half, pos, m->inv_freq, half, m->rope_factor);
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            memset(k, 0, sizeof k);
            memset(v, 0, sizeof v);
            kv_sum(k, v, win->kv->type, win->kv->head_dim, kv_block(win->kv, c->n_layers - 1, h, r),
                   r % KV_BLOCK, r % KV_BLOCK + 1);
            memcpy(t->keys + (h * win->n + r) * dim, k, dim * sizeof *k);
            memcpy(t->values + (h * win->n + r) * dim, v, dim * sizeof *v);
        }
    }
}

/* Splits the keys and values of qkv [rows][q + 2 kv] into heads, or joins their gradients. */
static void heads_of(const struct trainer *t, float *qkv, float *k, float *v, bool join)
{
    const size_t dim = t->self.head_dim, ld = t->q + 2 * t->kv, n = t->layers.rows;
    for (size_t h = 0; h < t->self.kv_heads; h++)
        for (size_t r = 0; r < n; r++) {
            float *row = qkv + r * ld + t->q + h * dim, *kr = k + (h * n + r) * dim,
                  *vr = v + (h * n + r) * dim;
            memcpy(join ? row : kr, join ? kr : row, dim * sizeof *row);
            memcpy(join ? row + t->kv : vr, join ? vr : row + t->kv, dim * sizeof *row);
        }
}

/* The part before the cross-attention, which no offset changes. */
static void forward_self(struct trainer *t)
{
    struct layers *l = &t->layers;
    const size_t n = l->rows, ld = t->qkv.n;
    norm_forward(l, t->xn1, t->e, t->d, t->norm[0]);
    linear_forward(l, &t->qkv, t->qkv_y, t->xn1, false);
    rotate(l, t->qkv_y, ld, t->self.heads + t->self.kv_heads, t->cos, t->sin, false);
    heads_of(t, t->qkv_y, t->k, t->v, false);
    t->self.q = t->qkv_y, t->self.ldq = ld, t->self.k = t->k, t->self.v = t->v, t->self.out = t->self_out;
    attention_forward(l, &t->self);
    t->m->ops->round(t->self_a, t->m->compute, t->self_out, 1, n * t->q);
    memcpy(t->x1, t->e, n * t->d * sizeof *t->x1);
    linear_forward(l, &t->o, t->x1, t->self_a, true);
    norm_forward(l, t->xn2, t->x1, t->d, t->norm[1]);
    linear_forward(l, &t->cross_q, t->cross_y, t->xn2, false);
    rotate(l, t->cross_y, t->q, t->cross.heads, t->cos, t->sin, false);
}

static void forward_cross(struct trainer *t, size_t offset)
{
    struct layers *l = &t->layers;
    const size_t n = l->rows, a = dtype_size(t->m->compute);
    t->cross.offset = offset;
    t->cross.q = t->cross_y, t->cross.ldq = t->q, t->cross.k = t->keys, t->cross.v = t->values;
    t->cross.out = t->cross_out, t->cross.scratch = t->self.scratch;
    attention_forward(l, &t->cross);
    t->m->ops->round(t->cross_a, t->m->compute, t->cross_out, 1, n * t->q);
    memcpy(t->x2, t->x1, n * t->d * sizeof *t->x2);
    linear_forward(l, &t->cross_o, t->x2, t->cross_a, true);
    norm_forward(l, t->xn3, t->x2, t->d, t->norm[2]);
    linear_forward(l, &t->gate_up, t->gu, t->xn3, false);
    for (size_t r = 0; r < n; r++)
        t->m->ops->swiglu(t->h + r * t->ff * a, t->m->compute, t->gu + r * 2 * t->ff,
                          t->gu + r * 2 * t->ff + t->ff, t->ff);
    memcpy(t->x3, t->x2, n * t->d * sizeof *t->x3);
    linear_forward(l, &t->down, t->x3, t->h, true);
    t->m->ops->round(t->x3_a, t->m->compute, t->x3, 1, n * t->d);
}

/* Losses of the tokens after each row; with weight != 0 also their gradient in t->dx. */
static void losses(struct trainer *t, const struct train_window *win, float weight, struct train_score *score)
{
    const struct model *m = t->m;
    const size_t vocab = m->config.vocab, a = dtype_size(m->compute), last = win->n - 1;
    for (size_t r0 = 0; r0 < win->n; r0 += PIECE_MAX) {
        const size_t n = MIN(win->n - r0, (size_t)PIECE_MAX);
        model_product(m, t->logits, t->x3_a + r0 * t->d * a, n, &m->lm_head, false);
        for (size_t r = 0; r < n; r++) {
            char *g = weight != 0 ? t->g + r * vocab * a : NULL;
            if (r0 + r == last) {
                if (g)
                    memset(g, 0, vocab * a);
                continue;
            }
            m->ops->xent(g, m->compute, t->logits + r * vocab, vocab, (size_t)win->token[r0 + r + 1],
                         &t->loss);
            train_score_add(score, &t->loss, train_xent(&t->loss));
        }
        if (weight != 0) {
            float *dx = t->dx + r0 * t->d;
            model_product(m, dx, t->g, n, &t->back->mat, false);
            m->ops->round(dx, DT_F32, dx, weight / (float)last, n * t->d);
        }
    }
}

static void backward(struct trainer *t)
{
    struct layers *l = &t->layers;
    const size_t n = l->rows, bytes = n * t->d * sizeof *t->dx;
    linear_backward(l, &t->down, t->dx, t->h, t->d_out, false);
    for (size_t r = 0; r < n; r++) {
        const float *gu = t->gu + r * 2 * t->ff;
        float *d = t->d_gu + r * 2 * t->ff;
        t->m->ops->swiglu_back(d, d + t->ff, gu, gu + t->ff, t->d_out + r * t->ff, t->ff);
    }
    linear_backward(l, &t->gate_up, t->d_gu, t->xn3, t->dn, false);
    norm_backward(l, t->dx, t->dn, t->x2, t->d, t->norm[2]);

    linear_backward(l, &t->cross_o, t->dx, t->cross_a, t->d_out, false);
    t->cross.dout = t->d_out, t->cross.dq = t->d_cross, t->cross.dk = t->cross.dv = NULL;
    attention_backward(l, &t->cross);
    rotate(l, t->d_cross, t->q, t->cross.heads, t->cos, t->sin, true);
    linear_backward(l, &t->cross_q, t->d_cross, t->xn2, t->dn, false);
    norm_backward(l, t->dx, t->dn, t->x1, t->d, t->norm[1]);

    linear_backward(l, &t->o, t->dx, t->self_a, t->d_out, false);
    t->self.dout = t->d_out, t->self.dq = t->d_qkv, t->self.dk = t->dk, t->self.dv = t->dv;
    attention_backward(l, &t->self);
    heads_of(t, t->d_qkv, t->dk, t->dv, true);
    rotate(l, t->d_qkv, t->qkv.n, t->self.heads + t->self.kv_heads, t->cos, t->sin, true);
    linear_backward(l, &t->qkv, t->d_qkv, t->xn1, t->dn, false);
    memset(t->dx, 0, bytes);             /* the embeddings are frozen */
    norm_backward(l, t->dx, t->dn, t->e, t->d, t->norm[0]);
}

/* A window that trains draws its offset; held-out text is scored with all offsets. */
static void longspec_window(struct module *u, const struct train_window *win, float weight,
                            struct train_score *score)
{
    struct trainer *t = u->self;
    const size_t drawn = 1 + win->key % LONGSPEC_OFFSETS;
    t->layers.params = u->w;
    t->layers.grad = u->grad;
    t->layers.rows = win->n;
    assert(win->n >= 2 && win->n <= t->rows_max);
    read_model(t, win);
    forward_self(t);
    for (size_t j = weight != 0 ? drawn : 1; j <= (weight != 0 ? drawn : (size_t)LONGSPEC_OFFSETS); j++) {
        forward_cross(t, j);
        losses(t, win, weight, &score[j - 1]);
    }
    if (weight != 0)
        backward(t);
}

/* ---- the module ---- */

static int longspec_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    const size_t q = t->q;
    const struct longspec_weights w = {
        .block = { .q = u->w + t->qkv.at, .kv = u->w + t->qkv.at + q * t->d, .q_bias = u->w + t->qkv.bias,
                   .kv_bias = u->w + t->qkv.bias + q, .o = u->w + t->o.at,
                   .gate_up = u->w + t->gate_up.at, .down = u->w + t->down.at,
                   .norm_attn = u->w + t->norm[0], .norm_mlp = u->w + t->norm[2] },
        .cross_q = u->w + t->cross_q.at, .cross_q_bias = u->w + t->cross_q.bias,
        .cross_o = u->w + t->cross_o.at, .norm_cross = u->w + t->norm[1],
    };
    return longspec_save_file(path, t->m, &w, note, e);
}

static const struct module_kind longspec_module = { .init = longspec_init, .update = longspec_update,
                                                  .window = longspec_window, .save = longspec_save };

int train_longspec_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                        uint64_t seed, struct err *e)
{
    struct trainer *t = calloc(1, sizeof *t);
    assert(m->dev->host_memory);
    if (!t)
        return err_set(e, ERR_FAILED, "out of memory for training a LongSpec drafter");
    *t = trainer_of(m, window);
    t->back = back;
    t->seed = seed;
    assign_buffers(t);
    t->mem = mem_alloc(t->bytes);
    if (!t->mem) {
        err_set(e, ERR_FAILED, "out of memory for training a LongSpec drafter (%zu bytes)", t->bytes);
        free(t);
        return -1;
    }
    assign_buffers(t);
    u->kind = &longspec_module;
    u->self = t;
    u->n_outputs = LONGSPEC_OFFSETS;
    u->n_params = t->n_params;
    u->n_matrix = t->n_matrix;
    return 0;
}

void train_longspec_close(struct module *u)
{
    struct trainer *t = u->self;
    if (t)
        mem_free(t->mem, t->bytes);
    free(t);
    u->self = NULL;
}
