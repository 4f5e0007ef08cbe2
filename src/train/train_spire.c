/* SPIRe's drafter in training (train_spire.h). Rows of a window are ordered by pass: row j * groups + g is
 * position 4 g + j, so that the rows of a pass follow each other. Start at spire_window. */
#include "src/train/train_spire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/block.h"

enum { PIECE_MAX = 256, LOSS_ROWS = 16, KEYS_MAX = SPIRE_WINDOW + 2 };

/* A block with its keys and values of three sources, [rows][2 kv_dim], and their gradients. */
struct side {
    struct block b;
    char *yn, *mn;                       /* act [rows][d]: the model's residuals, by position, and memory
                                          * vectors, both after the norm */
    float *q, *m;                        /* [rows][q_dim]; memory vectors, [rows][d] */
    float *own, *committed, *drafted;    /* of x^{i-1}, by row; of the model's residual, by position; of m */
    float *d_own, *d_committed, *d_drafted;
};

struct trainer {
    const struct model *m;
    const struct lm_back *back;
    enum spire_ablation ablation;
    size_t d, rows_max, n_params, n_matrix;
    uint64_t seed;
    size_t norm, memory;                 /* parameters */
    struct layers layers;
    struct side side[SPIRE_LAYERS];
    float share[SPIRE_LAYERS][SPIRE_MIX];                /* softmax of w */
    double d_share[SPIRE_LAYERS][SPIRE_MIX];
    float *cos[2], *sin[2];              /* [rows][head_dim / 2], by row and by position */
    float *x[SPIRE_MIX], *dx[SPIRE_MIX]; /* [rows][d] */
    float *att, *d_att, *dq;             /* [rows][q_dim] */
    float *dn, *dm;                      /* [rows][d] */
    char *xf, *hidden;                   /* act [rows][d]: inputs of the LM head, the drafter's and the
                                          * model's */
    float *logits, *p;                   /* [PIECE_MAX][vocab] */
    char *g;                             /* act [PIECE_MAX][vocab] */
    struct mixed *loss;                  /* [PIECE_MAX] */
    float *overlap;                      /* [rows] */
    size_t groups, rows;                 /* of this window */
    char *mem; size_t bytes;
};

/* ---- memory and parameters ---- */

static size_t assign_params(struct trainer *t)
{
    const struct model *m = t->m;
    const bool bias = m->config.qkv_bias;
    size_t at = 0;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        block_matrices(&t->side[i].b, &m->config, &at);
    t->n_matrix = at;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        block_vectors(&t->side[i].b, bias, true, &at);
    t->norm = at, at += t->d;
    t->memory = at, at += SPIRE_LAYERS * SPIRE_MIX;
    return at;
}

static size_t assign_side(struct side *s, enum dtype act, size_t n, char *mem, size_t at)
{
    const size_t d = s->b.d, a = dtype_size(act), f = sizeof(float), kv = n * 2 * s->b.kv_dim * f;
    const struct buffer part[] = {
        { &s->yn, n * d * a }, { &s->mn, n * d * a }, { &s->q, n * s->b.q_dim * f }, { &s->m, n * d * f },
        { &s->own, kv }, { &s->committed, kv }, { &s->drafted, kv },
        { &s->d_own, kv }, { &s->d_committed, kv }, { &s->d_drafted, kv },
    };
    return block_assign(&s->b, act, n, mem, buffers_assign(part, sizeof part / sizeof *part, mem, at));
}

/* Assigns all buffers in t->mem and sets t->bytes; t->mem NULL: only sets t->bytes. */
static void assign_buffers(struct trainer *t)
{
    const struct model *m = t->m;
    const struct block *b = &t->side[0].b;
    const size_t n = t->rows_max, d = t->d, f = sizeof(float), a = dtype_size(m->compute),
                 vocab = m->config.vocab, half = m->config.head_dim / 2 * f,
                 widest = MAX(MAX(2 * b->ff, b->q_dim), MAX(2 * b->kv_dim, d));
    const struct buffer part[] = {
        { &t->cos[0], n * half }, { &t->cos[1], n * half }, { &t->sin[0], n * half },
        { &t->sin[1], n * half }, { &t->att, n * b->q_dim * f }, { &t->d_att, n * b->q_dim * f },
        { &t->dq, n * b->q_dim * f }, { &t->dn, n * d * f }, { &t->dm, n * d * f },
        { &t->xf, n * d * a }, { &t->hidden, n * d * a },
        { &t->logits, PIECE_MAX * vocab * f }, { &t->p, PIECE_MAX * vocab * f },
        { &t->g, PIECE_MAX * vocab * a }, { &t->loss, PIECE_MAX * sizeof *t->loss }, { &t->overlap, n * f },
    };
    size_t at = buffers_assign(part, sizeof part / sizeof *part, t->mem, 0);
    for (size_t l = 0; l < SPIRE_MIX; l++)
        at = buffers_assign((struct buffer[]){ { &t->x[l], n * d * f }, { &t->dx[l], n * d * f } }, 2, t->mem,
                            at);
    at = layers_assign(&t->layers, n, widest, t->mem, at);
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        at = assign_side(&t->side[i], m->compute, n, t->mem, at);
    at = block_scratch_assign(&t->side[0].b, n, t->mem, at);
    for (size_t i = 1; i < SPIRE_LAYERS; i++)
        t->side[i].b.dn = b->dn, t->side[i].b.d_gu = b->d_gu, t->side[i].b.d_h = b->d_h;
    t->bytes = at;
}

static struct trainer trainer_of(const struct model *m, size_t window)
{
    struct trainer t = { .m = m, .d = m->config.hidden, .rows_max = window };
    t.n_params = assign_params(&t);
    t.layers.m = m;
    return t;
}

size_t train_spire_bytes(const struct model *m, size_t window)
{
    struct trainer t = trainer_of(m, window);
    assign_buffers(&t);
    return t.bytes;
}

size_t train_spire_params(const struct model *m) { return trainer_of(m, 1).n_params; }

static void spire_init(struct module *u)
{
    const struct trainer *t = u->self;
    const size_t first = t->m->config.n_layers - SPIRE_LAYERS;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        if (t->ablation == SPIRE_RANDOM)
            block_random(&t->side[i].b, u->w, SPIRE_LAYERS, t->seed + i);
        else
            block_copy(&t->side[i].b, t->m, first + i, u->w);
    for (size_t i = 0; i < t->d; i++)
        u->w[t->norm + i] = t->ablation == SPIRE_RANDOM ? 1 : t->m->norm_final[i];
}

static void spire_update(struct module *u)
{
    struct trainer *t = u->self;
    struct linear *l[SPIRE_LAYERS * BLOCK_LINEARS];
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        const float *w = u->w + t->memory + i * SPIRE_MIX;
        double sum = 0;
        block_linears(&t->side[i].b, l + i * BLOCK_LINEARS);
        for (size_t k = 0; k < SPIRE_MIX; k++)
            sum += exp((double)w[k]);
        for (size_t k = 0; k < SPIRE_MIX; k++)
            t->share[i][k] = (float)(exp((double)w[k]) / sum);
    }
    linears_update(&t->layers, l, SPIRE_LAYERS * BLOCK_LINEARS, u->w);
}

/* ---- attention ---- */

static size_t row_of(const struct trainer *t, size_t pos)
{
    return pos % SPIRE_DEPTH * t->groups + pos / SPIRE_DEPTH;
}

/* The keys of KV head `head` that the query of `pos` sees, and their gradients; values lie kv_dim floats
 * after. */
static size_t keys_of(const struct trainer *t, const struct side *s, size_t pos, size_t head, const float **k,
                      float **dk)
{
    const size_t ld = 2 * s->b.kv_dim, lo = pos > SPIRE_WINDOW ? pos - SPIRE_WINDOW : 0,
                 at = head * t->m->config.head_dim;
    size_t n = 0;
    for (size_t p = 0; p <= pos; p = p < lo ? lo : p + 1, n++) {
        const bool round = p / SPIRE_DEPTH == pos / SPIRE_DEPTH;
        const float *from = s->own;
        float *to = s->d_own;
        size_t row = row_of(t, p);
        if (t->ablation == SPIRE_NO_ACTIVATIONS || p == pos) {
            /* the drafter's own */
        } else if (!round) {
            from = s->committed, to = s->d_committed, row = p;
        } else if (t->ablation != SPIRE_NO_FEEDBACK) {
            from = s->drafted, to = s->d_drafted;
        }
        k[n] = from + row * ld + at;
        dk[n] = to + row * ld + at;
    }
    return n;
}

struct job { struct trainer *t; struct side *s; size_t r0; bool back; };

/* One query head of one row. */
static void attend(const struct job *j, size_t n, const float **k, float **dk, size_t at)
{
    const struct trainer *t = j->t;
    const struct ops *o = t->m->ops;
    const size_t dim = t->m->config.head_dim, kv = j->s->b.kv_dim;
    const float *q = j->s->q + at, *v[KEYS_MAX], scale = 1.0f / sqrtf((float)dim);
    float *dv[KEYS_MAX], p[KEYS_MAX], dp[KEYS_MAX], copy[KEYS_MAX];
    for (size_t i = 0; i < n; i++)
        v[i] = k[i] + kv, dv[i] = dk[i] + kv;
    o->rows_dot(p, q, k, n, dim);
    o->softmax(copy, DT_F32, p, 0, n, n, scale);
    if (!j->back) {
        memset(t->att + at, 0, dim * sizeof *t->att);
        o->rows_sum(t->att + at, p, v, n, dim);
        return;
    }
    o->rows_add(dv, p, t->d_att + at, n, dim);
    o->rows_dot(dp, t->d_att + at, v, n, dim);
    o->softmax_back(copy, DT_F32, p, dp, 0, n, n, scale);
    memset(t->dq + at, 0, dim * sizeof *t->dq);
    o->rows_sum(t->dq + at, dp, k, n, dim);
    o->rows_add(dk, dp, q, n, dim);
}

/* All rows of a pass for one KV head. */
static void attend_item(void *ctx, size_t head, size_t thread)
{
    const struct job *j = ctx;
    const struct trainer *t = j->t;
    const struct config *c = &t->m->config;
    const size_t group = c->n_heads / c->n_kv_heads;
    const float *k[KEYS_MAX];
    float *dk[KEYS_MAX];
    (void)thread;
    for (size_t r = j->r0; r < j->r0 + t->layers.rows; r++) {
        const size_t pos = r % t->groups * SPIRE_DEPTH + r / t->groups,
                     n = keys_of(t, j->s, pos, head, k, dk);
        for (size_t h = head * group; h < (head + 1) * group; h++)
            attend(j, n, k, dk, r * j->s->b.q_dim + h * c->head_dim);
    }
}

/* Rotates the keys of rows [r0, r0 + layers.rows). by: 0 rows, 1 positions. */
static void rotate_keys(const struct trainer *t, float *kv, size_t r0, int by, bool back)
{
    const struct config *c = &t->m->config;
    const size_t ld = 2 * c->n_kv_heads * c->head_dim, half = c->head_dim / 2;
    rotate(&t->layers, kv + r0 * ld, ld, c->n_kv_heads, t->cos[by] + r0 * half, t->sin[by] + r0 * half, back);
}

static void rotate_queries(const struct trainer *t, float *q, size_t r0, bool back)
{
    const struct config *c = &t->m->config;
    const size_t ld = c->n_heads * c->head_dim, half = c->head_dim / 2;
    rotate(&t->layers, q + r0 * ld, ld, c->n_heads, t->cos[0] + r0 * half, t->sin[0] + r0 * half, back);
}

/* ---- forward ---- */

/* Embeddings, angles, the model's hidden states, and keys and values of its residuals. */
static void read_model(struct trainer *t, const struct train_window *win)
{
    const struct model *m = t->m;
    const size_t half = m->config.head_dim / 2, d = t->d, act = dtype_size(m->compute);
    for (size_t pos = 0; pos < t->rows; pos++) {
        const size_t r = row_of(t, pos), at = pos + (pos >= win->skip_at ? win->skip : 0);
        model_embedding(m, win->token[pos], t->x[0] + r * d);
        rope_angles(t->cos[1] + pos * half, t->sin[1] + pos * half, at, m->inv_freq, half, m->rope_factor);
        memcpy(t->cos[0] + r * half, t->cos[1] + pos * half, half * sizeof(float));
        memcpy(t->sin[0] + r * half, t->sin[1] + pos * half, half * sizeof(float));
        m->ops->rmsnorm(t->hidden + r * d * act, d, m->compute, win->hidden + pos * d, d, m->norm_final, 1, d,
                        (float)m->config.rms_eps);
    }
    t->layers.rows = t->rows;
    for (size_t i = 0; i < SPIRE_LAYERS && t->ablation != SPIRE_NO_ACTIVATIONS; i++) {
        struct side *s = &t->side[i];
        norm_forward(&t->layers, s->yn, win->entering[i], d, s->b.norm_attn);
        linear_forward(&t->layers, &s->b.kv, s->committed, s->yn, false);
        rotate_keys(t, s->committed, 0, 1, false);
    }
}

/* Keys and values of the memory vectors of rows [r0, r0 + layers.rows). */
static void remember(struct trainer *t, size_t r0)
{
    const size_t n = t->layers.rows * t->d, act = dtype_size(t->m->compute);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        float *m = s->m + r0 * t->d;
        memset(m, 0, n * sizeof *m);
        for (size_t l = 0; l < SPIRE_MIX; l++)
            for (size_t k = 0; k < n; k++)
                m[k] += t->share[i][l] * t->x[l][r0 * t->d + k];
        char *mn = s->mn + r0 * t->d * act;
        norm_forward(&t->layers, mn, m, t->d, s->b.norm_attn);
        linear_forward(&t->layers, &s->b.kv, s->drafted + r0 * 2 * s->b.kv_dim, mn, false);
        rotate_keys(t, s->drafted, r0, 0, false);
    }
}

static void forward_pass(struct trainer *t, size_t r0)
{
    const size_t at = r0 * t->d;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        block_project(&t->layers, &s->b, r0, t->x[i] + at, s->q + r0 * s->b.q_dim,
                      s->own + r0 * 2 * s->b.kv_dim);
        rotate_queries(t, s->q, r0, false);
        rotate_keys(t, s->own, r0, 0, false);
        pool_run(t->m->pool, t->m->config.n_kv_heads, attend_item, &(struct job){ t, s, r0, false });
        block_finish(&t->layers, &s->b, r0, t->x[i + 1] + at, t->x[i] + at, t->att + r0 * s->b.q_dim);
    }
}

/* ---- losses ---- */

struct piece { struct trainer *t; const struct train_window *win; size_t r0, n; bool gradient; };

static void loss_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const struct ops *o = t->m->ops;
    const enum dtype act = t->m->compute;
    const size_t vocab = t->m->config.vocab;
    const float omega = t->ablation == SPIRE_DISTILL ? 1 : 0.5f;
    (void)thread;
    for (size_t r = i * LOSS_ROWS; r < MIN((i + 1) * LOSS_ROWS, p->n); r++) {
        const size_t row = p->r0 + r, pos = row % t->groups * SPIRE_DEPTH + row / t->groups,
                     next = (size_t)p->win->token[pos + 1];
        char *g = t->g + r * vocab * dtype_size(act);
        float *x = t->logits + r * vocab, *model = t->p + r * vocab;
        const bool hard = t->ablation == SPIRE_HARD;
        o->softmax(g, act, model, 0, vocab, vocab, 1);
        o->mixed(p->gradient && !hard ? g : NULL, act, x, model, vocab, next, omega, &t->loss[r]);
        if (p->gradient && hard) {
            x[next] -= 1;
            o->round(g, act, x, 1, vocab);
        }
    }
}

static double loss_of(const struct trainer *t, const struct mixed *x)
{
    const double omega = t->ablation == SPIRE_DISTILL ? 1 : 0.5;
    if (t->ablation == SPIRE_HARD)
        return train_xent(&x->xent);
    return omega * (log((double)x->xent.sum) * (double)x->mass + (double)x->cross) -
           (1 - omega) * (double)x->overlap;
}

/* Losses of all rows; with weight != 0 also the gradient of x^2 in dx[2]. */
static void losses(struct trainer *t, const struct train_window *win, float weight, struct train_score *score)
{
    const struct model *m = t->m;
    const size_t d = t->d, act = dtype_size(m->compute), top = SPIRE_LAYERS;
    t->layers.rows = t->rows;
    norm_forward(&t->layers, t->xf, t->x[top], d, t->norm);
    for (size_t r0 = 0; r0 < t->rows; r0 += PIECE_MAX) {
        struct piece p = { t, win, r0, MIN(t->rows - r0, (size_t)PIECE_MAX), weight != 0 };
        model_product(m, t->logits, t->xf + r0 * d * act, p.n, &m->lm_head, false);
        model_product(m, t->p, t->hidden + r0 * d * act, p.n, &m->lm_head, false);
        pool_run(m->pool, (p.n + LOSS_ROWS - 1) / LOSS_ROWS, loss_item, &p);
        for (size_t r = 0; r < p.n; r++) {
            t->overlap[r0 + r] = t->loss[r].overlap;
            train_score_add(&score[(r0 + r) / t->groups], &t->loss[r].xent, loss_of(t, &t->loss[r]));
        }
        if (weight != 0) {
            model_product(m, t->dn + r0 * d, t->g, p.n, &t->back->mat, false);
            m->ops->round(t->dn + r0 * d, DT_F32, t->dn + r0 * d, weight / (float)t->groups, p.n * d);
        }
    }
    for (size_t g = 0; g < t->groups; g++) {
        double all = 1;
        for (size_t j = 0; j < SPIRE_DEPTH; j++)
            score[j].accepted += all *= (double)t->overlap[j * t->groups + g];
    }
    memset(t->dx[top], 0, t->rows * d * sizeof(float));
    if (weight != 0)
        norm_backward(&t->layers, t->dx[top], t->dn, t->x[top], d, t->norm);
}

/* ---- backward ---- */

/* From the gradients of the memories' keys and values. */
static void remember_back(struct trainer *t, size_t r0)
{
    const size_t d = t->d, n = t->layers.rows * d, act = dtype_size(t->m->compute);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        float *dm = t->dm;
        rotate_keys(t, s->d_drafted, r0, 0, true);
        linear_backward(&t->layers, &s->b.kv, s->d_drafted + r0 * 2 * s->b.kv_dim, s->mn + r0 * d * act,
                        t->dn, false);
        memset(dm, 0, n * sizeof *dm);
        norm_backward(&t->layers, dm, t->dn, s->m + r0 * d, d, s->b.norm_attn);
        for (size_t l = 0; l < SPIRE_MIX; l++) {
            double dot = 0;
            for (size_t k = 0; k < n; k++) {
                dot += (double)dm[k] * (double)t->x[l][r0 * d + k];
                t->dx[l][r0 * d + k] += t->share[i][l] * dm[k];
            }
            t->d_share[i][l] += dot;
        }
    }
}

static void backward_pass(struct trainer *t, size_t r0)
{
    const size_t n = t->layers.rows * t->d, at = r0 * t->d;
    for (size_t i = SPIRE_LAYERS; i-- > 0;) {
        struct side *s = &t->side[i];
        float *dy = t->dx[i + 1] + at, *dx = t->dx[i] + at;
        block_finish_back(&t->layers, &s->b, r0, dy, t->d_att + r0 * s->b.q_dim);
        pool_run(t->m->pool, t->m->config.n_kv_heads, attend_item, &(struct job){ t, s, r0, true });
        rotate_queries(t, t->dq, r0, true);
        rotate_keys(t, s->d_own, r0, 0, true);
        for (size_t k = 0; k < n; k++)
            dx[k] += dy[k];
        block_project_back(&t->layers, &s->b, r0, dx, t->x[i] + at, t->dq + r0 * s->b.q_dim,
                           s->d_own + r0 * 2 * s->b.kv_dim);
    }
}

/* The model's residuals are constants: only the norm and the projections have gradients. */
static void committed_back(struct trainer *t, const struct train_window *win)
{
    t->layers.rows = t->rows;
    for (size_t i = 0; i < SPIRE_LAYERS && t->ablation != SPIRE_NO_ACTIVATIONS; i++) {
        struct side *s = &t->side[i];
        rotate_keys(t, s->d_committed, 0, 1, true);
        linear_backward(&t->layers, &s->b.kv, s->d_committed, s->yn, t->dn, false);
        norm_backward(&t->layers, t->dx[0], t->dn, win->entering[i], t->d, s->b.norm_attn);
    }
}

static void share_back(const struct trainer *t, float *grad)
{
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        double mean = 0;
        for (size_t l = 0; l < SPIRE_MIX; l++)
            mean += (double)t->share[i][l] * t->d_share[i][l];
        for (size_t l = 0; l < SPIRE_MIX; l++)
            grad[i * SPIRE_MIX + l] += (float)((double)t->share[i][l] * (t->d_share[i][l] - mean));
    }
}

static void spire_window(struct module *u, const struct train_window *win, float weight,
                         struct train_score *score)
{
    struct trainer *t = u->self;
    const bool feedback = t->ablation != SPIRE_NO_FEEDBACK && t->ablation != SPIRE_NO_ACTIVATIONS;
    const size_t passes = t->ablation == SPIRE_NO_ACTIVATIONS ? 1 : SPIRE_DEPTH;
    assert(win->n > SPIRE_DEPTH && win->n <= t->rows_max);
    t->groups = (win->n - 1) / SPIRE_DEPTH;
    t->rows = t->groups * SPIRE_DEPTH;
    t->layers.params = u->w;
    t->layers.grad = u->grad;
    read_model(t, win);
    t->layers.rows = t->rows / passes;
    for (size_t r0 = 0; r0 < t->rows; r0 += t->layers.rows) {
        forward_pass(t, r0);
        if (feedback)
            remember(t, r0);
    }
    losses(t, win, weight, score);
    if (weight == 0)
        return;
    memset(t->dx[0], 0, t->rows * t->d * sizeof(float));
    memset(t->dx[1], 0, t->rows * t->d * sizeof(float));
    memset(t->d_share, 0, sizeof t->d_share);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        const size_t bytes = t->rows * 2 * t->side[i].b.kv_dim * sizeof(float);
        memset(t->side[i].d_own, 0, bytes);
        memset(t->side[i].d_committed, 0, bytes);
        memset(t->side[i].d_drafted, 0, bytes);
    }
    t->layers.rows = t->rows / passes;
    for (size_t r0 = t->rows; r0 > 0;) {
        r0 -= t->layers.rows;
        if (feedback)
            remember_back(t, r0);
        backward_pass(t, r0);
    }
    committed_back(t, win);
    share_back(t, u->grad + t->memory);
}

/* ---- the module ---- */

static int spire_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    struct spire_weights w = { .norm = u->w + t->norm, .memory = u->w + t->memory };
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        w.layer[i] = block_weights(&t->side[i].b, u->w);
    return spire_save_file(path, t->m, &w, note, e);
}

static const struct module_kind spire_module = { .entering = true, .init = spire_init, .update = spire_update,
                                               .window = spire_window, .save = spire_save };

int train_spire_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                     enum spire_ablation ablation, uint64_t seed, struct err *e)
{
    struct trainer *t;
    const size_t layers = m->config.n_layers;
    assert(m->dev->host_memory);
    if (layers < SPIRE_LAYERS)
        return err_set(e, ERR_INPUT, "train spire: a model of %zu layers, at least %d are needed", layers,
                       SPIRE_LAYERS);
    for (size_t i = layers - SPIRE_LAYERS; i < layers; i++)
        if (block_misfit(m, i))
            return err_set(e, ERR_INPUT, "train spire: layer %zu of the model has %s, which the drafter's "
                           "blocks do not have", i, block_misfit(m, i));
    t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_FAILED, "out of memory for training a SPIRe drafter");
    *t = trainer_of(m, window);
    t->back = back;
    t->ablation = ablation;
    t->seed = seed;
    assign_buffers(t);
    t->mem = mem_alloc(t->bytes);
    if (!t->mem) {
        err_set(e, ERR_FAILED, "out of memory for training a SPIRe drafter (%zu bytes)", t->bytes);
        free(t);
        return -1;
    }
    assign_buffers(t);
    u->kind = &spire_module;
    u->self = t;
    u->n_outputs = SPIRE_DEPTH;
    u->n_params = t->n_params;
    u->n_matrix = t->n_matrix;
    return 0;
}

void train_spire_close(struct module *u)
{
    struct trainer *t = u->self;
    if (t)
        mem_free(t->mem, t->bytes);
    free(t);
    u->self = NULL;
}
