/* Gumiho's drafter in training (train_gumiho.h). Row p of the serial part is the pair of h_p and token p + 1;
 * row p of a head reads z_p and z_{p+1}. Losses run over pieces of positions q, whose model distribution
 * serves all outputs. Start at gumiho_window. */
#include "src/train/train_gumiho.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/block.h"

enum { PIECE_MAX = 256, LOSS_ROWS = 16 };
static const double GUMIHO_STAGE = 0.1;                  /* the share of steps with lambda 0 */

struct head {
    struct linear l[GUMIHO_LINEARS];
    float *pre[GUMIHO_LINEARS], *x[GUMIHO_LINEARS];      /* [rows][d]: before SiLU; outputs */
    char *in[GUMIHO_LINEARS + 1];                        /* act: inputs; in[0] is the trainer's */
};

struct row_loss { struct mixed mixed; double distance; };

struct trainer {
    const struct model *m;
    const struct lm_back *back;
    size_t d, rows_max, n_params, n_matrix;
    uint64_t seed;
    struct linear fc;
    struct block block[GUMIHO_LAYERS];
    struct head head[GUMIHO_HEADS];
    struct layers layers;
    struct attention attention;
    float *cos, *sin;                    /* [rows][head_dim / 2] */
    float *h; char *h_act;               /* [rows][d]: the model's hidden states */
    char *fc_in[2];                      /* act [rows][2 d]: for o, for z */
    float *x[GUMIHO_LAYERS + 1], *z;     /* [rows][d]: o, after layer 0, ĥ */
    float *q[GUMIHO_LAYERS], *k[GUMIHO_LAYERS], *v[GUMIHO_LAYERS];       /* rotated; k, v by head */
    float *kv, *att, *d_att, *dq, *dk, *dv;
    char *z_act, *hat_act, *pairs;       /* act [rows][d], [rows][d], [rows][2 d]: inputs of the heads */
    float *d_out[GUMIHO_OUTPUTS];        /* [rows][d]: gradients of the outputs */
    float *d_pairs, *d_pre, *dn, *silu, *ones, *junk;    /* [rows][2 d], [rows][d] ..; [d], [d] */
    float *logits, *p; char *g;          /* [PIECE_MAX][vocab] */
    float *dy;                           /* [PIECE_MAX][d] */
    struct row_loss *loss;               /* [PIECE_MAX] */
    char *mem; size_t bytes;
};

/* ---- memory and parameters ---- */

static size_t assign_params(struct trainer *t)
{
    size_t at = 0;
    t->fc = linear_at(t->d, 2 * t->d, &at);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        block_matrices(&t->block[i], &t->m->config, &at);
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            t->head[i].l[k] = linear_at(t->d, k ? t->d : 2 * t->d, &at);
    t->n_matrix = at;
    t->fc.bias = at, at += t->d;
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        block_vectors(&t->block[i], false, i > 0, &at);
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            t->head[i].l[k].bias = at, at += t->d;
    return at;
}

static size_t assign_head(struct head *h, enum dtype act, size_t n, size_t d, char *mem, size_t at)
{
    for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
        const struct buffer part[] = { { &h->pre[k], n * d * sizeof(float) },
                                       { &h->x[k], n * d * sizeof(float) },
                                       { &h->in[k + 1], n * d * dtype_size(act) } };
        at = buffers_assign(part, 3, mem, at);
        at = linear_assign(&h->l[k], act, mem, at);
    }
    return at;
}

/* Assigns all buffers in t->mem and sets t->bytes; t->mem NULL: only sets t->bytes. */
static void assign_buffers(struct trainer *t)
{
    const struct model *m = t->m;
    const struct block *b = &t->block[0];
    const enum dtype act = m->compute;
    const size_t n = t->rows_max, d = t->d, f = sizeof(float), a = dtype_size(act), vocab = m->config.vocab,
                 half = m->config.head_dim / 2 * f, kv = n * b->kv_dim * f, q = n * b->q_dim * f,
                 widest = MAX(MAX(2 * b->ff, b->q_dim), MAX(2 * b->kv_dim, 2 * d));
    t->attention.scratch_bytes = attention_bytes(m, &t->attention, n);
    const struct buffer part[] = {
        { &t->cos, n * half }, { &t->sin, n * half }, { &t->h, n * d * f }, { &t->h_act, n * d * a },
        { &t->fc_in[0], n * 2 * d * a }, { &t->fc_in[1], n * 2 * d * a }, { &t->x[0], n * d * f },
        { &t->x[1], n * d * f }, { &t->x[2], n * d * f }, { &t->z, n * d * f }, { &t->q[0], q },
        { &t->q[1], q }, { &t->k[0], kv }, { &t->k[1], kv }, { &t->v[0], kv }, { &t->v[1], kv },
        { &t->kv, 2 * kv }, { &t->att, q }, { &t->d_att, q }, { &t->dq, q }, { &t->dk, kv }, { &t->dv, kv },
        { &t->z_act, n * d * a }, { &t->hat_act, n * d * a }, { &t->pairs, n * 2 * d * a },
        { &t->d_pairs, n * 2 * d * f }, { &t->d_pre, n * d * f }, { &t->dn, n * 2 * d * f },
        { &t->silu, n * d * f }, { &t->ones, d * f }, { &t->junk, d * f },
        { &t->logits, PIECE_MAX * vocab * f }, { &t->p, PIECE_MAX * vocab * f },
        { &t->g, PIECE_MAX * vocab * a }, { &t->dy, PIECE_MAX * d * f },
        { &t->loss, PIECE_MAX * sizeof *t->loss }, { &t->attention.scratch, t->attention.scratch_bytes },
    };
    size_t at = buffers_assign(part, sizeof part / sizeof *part, t->mem, 0);
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++)
        at = buffers_assign(&(struct buffer){ &t->d_out[k], n * d * f }, 1, t->mem, at);
    at = layers_assign(&t->layers, n, widest, t->mem, at);
    at = linear_assign(&t->fc, act, t->mem, at);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        at = block_assign(&t->block[i], act, n, t->mem, at);
    at = block_scratch_assign(&t->block[0], n, t->mem, at);
    t->block[1].dn = b->dn, t->block[1].d_gu = b->d_gu, t->block[1].d_h = b->d_h;
    for (size_t i = 0; i < GUMIHO_HEADS; i++) {
        at = assign_head(&t->head[i], act, n, d, t->mem, at);
        t->head[i].in[0] = t->pairs;
    }
    t->bytes = at;
}

static struct trainer trainer_of(const struct model *m, size_t window)
{
    const struct config *c = &m->config;
    struct trainer t = { .m = m, .d = c->hidden, .rows_max = window };
    t.n_params = assign_params(&t);
    t.layers.m = m;
    t.attention = (struct attention){ .heads = c->n_heads, .kv_heads = c->n_kv_heads,
                                      .head_dim = c->head_dim };
    return t;
}

size_t train_gumiho_bytes(const struct model *m, size_t window)
{
    struct trainer t = trainer_of(m, window);
    assign_buffers(&t);
    return t.bytes;
}

size_t train_gumiho_params(const struct model *m) { return trainer_of(m, 1).n_params; }

/* The published first weights of the heads: 0, and biases uniform in +-1/sqrt(inputs). */
static void gumiho_init(struct module *u)
{
    const struct trainer *t = u->self;
    train_normal(u->w + t->fc.at, t->fc.n * t->fc.k, 0.02f, t->seed);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        block_random(&t->block[i], u->w, GUMIHO_LAYERS, t->seed + 1 + i);
    uint64_t s = t->seed;
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            for (size_t j = 0; j < t->d; j++)
                u->w[t->head[i].l[k].bias + j] = (float)((2 * train_uniform(&s) - 1) /
                                                         sqrt((double)t->head[i].l[k].k));
}

static void gumiho_update(struct module *u)
{
    struct trainer *t = u->self;
    struct linear *l[1 + GUMIHO_LAYERS * BLOCK_LINEARS + GUMIHO_HEADS * GUMIHO_LINEARS];
    size_t n = 0;
    l[n++] = &t->fc;
    for (size_t i = 0; i < GUMIHO_LAYERS; i++, n += BLOCK_LINEARS)
        block_linears(&t->block[i], l + n);
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            l[n++] = &t->head[i].l[k];
    linears_update(&t->layers, l, n, u->w);
}

/* ---- forward ---- */

/* Writes a half of row r of an input of FC. */
static void put_half(const struct trainer *t, char *in, size_t r, bool second, const float *x)
{
    const size_t act = dtype_size(t->m->compute);
    t->m->ops->round(in + (2 * r + second) * t->d * act, t->m->compute, x, 1, t->d);
}

/* Embeddings, angles, hidden states, and the inputs of the serial part. */
static void read_model(struct trainer *t, const struct train_window *win, bool noise)
{
    const struct model *m = t->m;
    const size_t half = m->config.head_dim / 2, d = t->d;
    uint64_t s = win->key;
    m->ops->rmsnorm(t->h, d, DT_F32, win->hidden, d, m->norm_final, win->n, d, (float)m->config.rms_eps);
    m->ops->round(t->h_act, m->compute, t->h, 1, win->n * d);
    for (size_t p = 0; p + 1 < win->n; p++) {
        float *x = t->dn;
        rope_angles(t->cos + p * half, t->sin + p * half, p + (p >= win->skip_at ? win->skip : 0),
                    m->inv_freq, half, m->rope_factor);
        model_embedding(m, win->token[p + 1], x);
        put_half(t, t->fc_in[0], p, false, x);
        if (p > 0)
            put_half(t, t->fc_in[1], p - 1, false, x);
        for (size_t i = 0; i < d; i++)
            x[i] = t->h[p * d + i] +
                   (noise ? (float)((train_uniform(&s) - 0.5) * 0.2 * 512 / (double)win->n) : 0);
        put_half(t, t->fc_in[0], p, true, x);
    }
}

/* Splits rows of keys and values into heads, or joins them. */
static void heads_of(const struct trainer *t, float *kv, float *k, float *v, bool join)
{
    const size_t dim = t->attention.head_dim, heads = t->attention.kv_heads, ld = 2 * heads * dim,
                 n = t->layers.rows;
    for (size_t h = 0; h < heads; h++)
        for (size_t r = 0; r < n; r++) {
            float *row = kv + r * ld + h * dim, *kr = k + (h * n + r) * dim, *vr = v + (h * n + r) * dim;
            memcpy(join ? row : kr, join ? kr : row, dim * sizeof *row);
            memcpy(join ? row + heads * dim : vr, join ? vr : row + heads * dim, dim * sizeof *row);
        }
}

static void attend(struct trainer *t, size_t i, bool back)
{
    struct attention *a = &t->attention;
    a->q = t->q[i], a->ldq = t->block[i].q_dim, a->k = t->k[i], a->v = t->v[i], a->out = t->att;
    a->dout = t->d_att, a->dq = t->dq, a->dk = t->dk, a->dv = t->dv;
    (back ? attention_backward : attention_forward)(&t->layers, a);
}

static void rotate_all(const struct trainer *t, float *q, float *kv, bool back)
{
    const struct attention *a = &t->attention;
    rotate(&t->layers, q, a->heads * a->head_dim, a->heads, t->cos, t->sin, back);
    rotate(&t->layers, kv, 2 * a->kv_heads * a->head_dim, a->kv_heads, t->cos, t->sin, back);
}

static void forward_serial(struct trainer *t, size_t pairs)
{
    struct layers *l = &t->layers;
    l->rows = pairs;
    linear_forward(l, &t->fc, t->x[0], t->fc_in[0], false);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        block_project(l, &t->block[i], 0, t->x[i], t->q[i], t->kv);
        rotate_all(t, t->q[i], t->kv, false);
        heads_of(t, t->kv, t->k[i], t->v[i], false);
        attend(t, i, false);
        block_finish(l, &t->block[i], 0, t->x[i + 1], t->x[i], t->att);
    }
    t->m->ops->round(t->hat_act, t->m->compute, t->x[GUMIHO_LAYERS], 1, pairs * t->d);
}

static void forward_heads(struct trainer *t, size_t pairs)
{
    struct layers *l = &t->layers;
    const struct ops *o = t->m->ops;
    const enum dtype type = t->m->compute;
    const size_t d = t->d, bytes = d * dtype_size(type);
    l->rows = pairs - 1;
    for (size_t p = 0; p < l->rows; p++)
        put_half(t, t->fc_in[1], p, true, t->x[GUMIHO_LAYERS] + p * d);
    linear_forward(l, &t->fc, t->z, t->fc_in[1], false);
    o->round(t->z_act, type, t->z, 1, l->rows * d);
    l->rows = pairs - 2;
    for (size_t p = 0; p < l->rows; p++)
        memcpy(t->pairs + 2 * p * bytes, t->z_act + p * bytes, 2 * bytes);
    for (size_t i = 0; i < GUMIHO_HEADS; i++) {
        struct head *h = &t->head[i];
        for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
            linear_forward(l, &h->l[k], h->pre[k], h->in[k], false);
            for (size_t r = 0; r < l->rows; r++)
                o->swiglu(h->x[k] + r * d, DT_F32, h->pre[k] + r * d, t->ones, d);
            for (size_t j = 0; k && j < l->rows * d; j++)
                h->x[k][j] += h->x[k - 1][j];
            o->round(h->in[k + 1], type, h->x[k], 1, l->rows * d);
        }
    }
}

/* ---- losses ---- */

/* Rows of output k that predict the hidden states of positions q0 + r, r < n. The model's distribution of q0
 * is row p0 of t->p. */
struct piece {
    struct trainer *t; const struct train_window *win;
    const float *hat; float *dhat;
    size_t q0, p0, n;
    float reg, cls;                      /* scales of the gradients of R_q and C_q; 0: not wanted */
};

/* Row p of an output predicts position p + shift. */
static size_t shift_of(size_t output) { return output ? 2 + output : 1; }
static double weight_of(size_t output) { return output ? pow(0.8, (double)output) / 9 : 1; }

static void model_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const size_t vocab = t->m->config.vocab, act = dtype_size(t->m->compute);
    (void)thread;
    for (size_t r = i * LOSS_ROWS; r < MIN((i + 1) * LOSS_ROWS, p->n); r++)
        t->m->ops->softmax(t->g + r * vocab * act, t->m->compute, t->p + r * vocab, 0, vocab, vocab, 1);
}

static void loss_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const size_t vocab = t->m->config.vocab, d = t->d, act = dtype_size(t->m->compute);
    (void)thread;
    for (size_t r = i * LOSS_ROWS; r < MIN((i + 1) * LOSS_ROWS, p->n); r++) {
        const float *hat = p->hat + r * d, *h = t->h + (p->q0 + r) * d;
        double sum = 0;
        t->m->ops->mixed(p->cls != 0 ? t->g + r * vocab * act : NULL, t->m->compute, t->logits + r * vocab,
                         t->p + (p->p0 + r) * vocab, vocab, (size_t)p->win->token[p->q0 + r + 1], 1,
                         &t->loss[r].mixed);
        for (size_t j = 0; j < d; j++) {
            const float x = hat[j] - h[j];
            sum += fabsf(x) < 1 ? 0.5 * (double)x * (double)x : fabs((double)x) - 0.5;
            if (p->reg != 0)
                p->dhat[r * d + j] = p->reg * MAX(-1.0f, MIN(1.0f, x));
        }
        t->loss[r].distance = sum / (double)d;
    }
}

/* Losses of one output in a piece, and with gradients the rows of t->d_out[k]. */
static void output_losses(struct trainer *t, struct piece *p, size_t k, double lambda,
                          struct train_score *score)
{
    const struct model *m = t->m;
    const size_t d = t->d, row = p->q0 - shift_of(k);
    const char *x = k ? t->head[k - 1].in[GUMIHO_LINEARS] : t->hat_act;
    p->hat = (k ? t->head[k - 1].x[GUMIHO_LINEARS - 1] : t->x[GUMIHO_LAYERS]) + row * d;
    p->dhat = t->d_out[k] + row * d;
    model_product(m, t->logits, x + row * d * dtype_size(m->compute), p->n, &m->lm_head, false);
    pool_run(m->pool, (p->n + LOSS_ROWS - 1) / LOSS_ROWS, loss_item, p);
    for (size_t r = 0; r < p->n; r++) {
        const struct mixed *x0 = &t->loss[r].mixed;
        const double c = log((double)x0->xent.sum) * (double)x0->mass + (double)x0->cross;
        train_score_add(&score[k], &x0->xent, t->loss[r].distance + lambda * c);
    }
    if (p->cls == 0)
        return;
    model_product(m, t->dy, t->g, p->n, &t->back->mat, false);
    for (size_t i = 0; i < p->n * d; i++)
        p->dhat[i] += p->cls * t->dy[i];
}

/* Positions 1 .. n - 2 are predicted; the token after each is known. */
static void losses(struct trainer *t, const struct train_window *win, float weight, struct train_score *score)
{
    const struct model *m = t->m;
    const size_t end = win->n - 1;
    for (size_t q0 = 1; q0 < end; q0 += PIECE_MAX) {
        struct piece all = { .t = t, .win = win, .n = MIN(end - q0, (size_t)PIECE_MAX) };
        model_product(m, t->p, t->h_act + q0 * t->d * dtype_size(m->compute), all.n, &m->lm_head, false);
        pool_run(m->pool, (all.n + LOSS_ROWS - 1) / LOSS_ROWS, model_item, &all);
        for (size_t k = 0; k < GUMIHO_OUTPUTS; k++) {
            const size_t shift = shift_of(k), from = MAX(q0, shift);
            const double lambda = k && weight != 0 && win->done < GUMIHO_STAGE ? 0 : 0.1,
                         share = (double)weight * weight_of(k) / (double)(end - shift);
            struct piece p = { .t = t, .win = win, .q0 = from, .p0 = from - q0, .n = q0 + all.n - from,
                               .reg = (float)(share / (double)t->d), .cls = (float)(share * lambda) };
            if (from < q0 + all.n)
                output_losses(t, &p, k, lambda, score);
        }
    }
}

/* ---- backward ---- */

/* From t->d_out of the heads to t->d_pairs. */
static void heads_back(struct trainer *t)
{
    const struct layers *l = &t->layers;
    const size_t n = l->rows, d = t->d;
    for (size_t i = 0; i < GUMIHO_HEADS; i++) {
        struct head *h = &t->head[i];
        float *dx = t->d_out[1 + i];
        for (size_t k = GUMIHO_LINEARS; k-- > 0;) {
            for (size_t r = 0; r < n; r++)
                t->m->ops->swiglu_back(t->d_pre + r * d, t->junk, h->pre[k] + r * d, t->ones, dx + r * d, d);
            linear_backward(l, &h->l[k], t->d_pre, h->in[k], k ? t->dn : t->d_pairs, !k && i);
            for (size_t j = 0; k && j < n * d; j++)
                dx[j] += t->dn[j];
        }
    }
}

static void backward(struct trainer *t, size_t pairs)
{
    struct layers *l = &t->layers;
    const size_t d = t->d;
    float *dx = t->d_out[0], *dz = t->z;                  /* z is read no more */
    l->rows = pairs - 2;
    heads_back(t);
    memset(dz, 0, (pairs - 1) * d * sizeof *dz);
    for (size_t p = 0; p < pairs - 2; p++)
        for (size_t j = 0; j < d; j++) {
            dz[p * d + j] += t->d_pairs[2 * p * d + j];
            dz[(p + 1) * d + j] += t->d_pairs[(2 * p + 1) * d + j];
        }
    l->rows = pairs - 1;
    linear_backward(l, &t->fc, dz, t->fc_in[1], t->dn, false);
    for (size_t p = 0; p < pairs - 1; p++)
        for (size_t j = 0; j < d; j++)
            dx[p * d + j] += t->dn[(2 * p + 1) * d + j];
    l->rows = pairs;
    for (size_t i = GUMIHO_LAYERS; i-- > 0;) {
        block_finish_back(l, &t->block[i], 0, dx, t->d_att);
        attend(t, i, true);
        heads_of(t, t->kv, t->dk, t->dv, true);
        rotate_all(t, t->dq, t->kv, true);
        block_project_back(l, &t->block[i], 0, dx, t->x[i], t->dq, t->kv);
    }
    linear_backward(l, &t->fc, dx, t->fc_in[0], NULL, false);
}

static void gumiho_window(struct module *u, const struct train_window *win, float weight,
                          struct train_score *score)
{
    struct trainer *t = u->self;
    const size_t pairs = win->n - 1;
    assert(win->n > 2 + GUMIHO_OUTPUTS && win->n <= t->rows_max);
    t->layers.params = u->w;
    t->layers.grad = u->grad;
    read_model(t, win, weight != 0 && win->key != 0);
    forward_serial(t, pairs);
    forward_heads(t, pairs);
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++)
        memset(t->d_out[k], 0, win->n * t->d * sizeof(float));
    losses(t, win, weight, score);
    if (weight != 0)
        backward(t, pairs);
}

/* ---- the module ---- */

static int gumiho_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    struct gumiho_weights w = { .fc = u->w + t->fc.at, .fc_bias = u->w + t->fc.bias };
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        w.layer[i] = block_weights(&t->block[i], u->w);
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
            w.head[i][k] = u->w + t->head[i].l[k].at;
            w.head_bias[i][k] = u->w + t->head[i].l[k].bias;
        }
    return gumiho_save_file(path, t->m, &w, note, e);
}

static const struct module_kind gumiho_module = { .init = gumiho_init, .update = gumiho_update,
                                                .window = gumiho_window, .save = gumiho_save };

int train_gumiho_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                      uint64_t seed, struct err *e)
{
    struct trainer *t = calloc(1, sizeof *t);
    assert(m->dev->host_memory);
    if (!t)
        return err_set(e, ERR_FAILED, "out of memory for training a Gumiho drafter");
    *t = trainer_of(m, window);
    t->back = back;
    t->seed = seed;
    assign_buffers(t);
    t->mem = mem_alloc(t->bytes);
    if (!t->mem) {
        err_set(e, ERR_FAILED, "out of memory for training a Gumiho drafter (%zu bytes)", t->bytes);
        free(t);
        return -1;
    }
    assign_buffers(t);
    for (size_t j = 0; j < t->d; j++)
        t->ones[j] = 1;
    u->kind = &gumiho_module;
    u->self = t;
    u->n_outputs = GUMIHO_OUTPUTS;
    u->n_params = t->n_params;
    u->n_matrix = t->n_matrix;
    return 0;
}

void train_gumiho_close(struct module *u)
{
    struct trainer *t = u->self;
    if (t)
        mem_free(t->mem, t->bytes);
    free(t);
    u->self = NULL;
}
