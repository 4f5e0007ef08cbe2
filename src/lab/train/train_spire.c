/* SPIRe's drafter (arXiv:2504.06419) in training: the last two blocks of the model, which read a few keys
 * and values only.
 *
 *     x^0 = the model's embedding of the token
 *     x^i = block i of x^{i-1}, i = 1, 2; the query of position t sees its own key and those of the 64
 *           positions before it and of position 0; keys have the positions of the text
 *     logits of the next token = LMHead(RMSNorm(x^2))
 *
 * The key and value of an earlier position s in block i are projections of a memory vector m_s^i, through the
 * block's own norm, keys and values; those of t itself are projections of x^{i-1}:
 *     s committed: m_s^i = the residual that enters the model's layer n_layers - 3 + i
 *     s drafted:   m_s^i = sum over l = 0, 1, 2 of softmax(w_i)_l x_s^l            (w: 6 parameters)
 *
 * All prefixes in four passes: positions 4 g .. 4 g + 3 are the tokens of one round, whose first token is the
 * last verified one. Pass j runs position 4 g + j for all g at once. It sees committed memories before 4 g,
 * and drafted memories of passes before j. Output j of the module is pass j. A position has its text's tokens
 * before it. Gradients pass through drafted memories; the model's residuals are constants.
 *
 * Loss of a position, for the distributions p of the model and q of the drafter:
 *     omega (-sum p log q) - (1 - omega) sum min(p, q),   omega = 0.5
 *
 * With a short vocabulary p and q are those among its tokens. A position whose text has another token has no
 * loss (train_heads.c), and its draft counts as refused.
 *
 * First weights are the model's (pruning), w = 0. Embedding and LM head are the model's and stay frozen; the
 * paper trains copies of them, which are half of a small drafter's file. The paper leaves open how a query
 * sees its own position and whether memories pass the block's norm; the above is as the model itself does.
 * Positions move at random as for LongSpec (train_settings, skip_max), because position 0 is far from a query
 * of a long text. It
 * publishes no learning rate. On the CPU only.
 *
 * Rows of a window are ordered by pass: row j * groups + g is position 4 g + j, so that the rows of a pass
 * follow each other. Start at spire_window. */
#include <math.h>
#include <string.h>

#include "src/model/spire.h"
#include "src/lab/train/block.h"
#include "src/lab/train/train.h"

enum { PIECE_MAX = 256, KEYS_MAX = SPIRE_WINDOW + 2 };

/* A block with its keys and values of three sources, [rows][2 kv_dim], and their gradients. */
struct side {
    struct projections b; struct mlp f;
    char *yn, *mn;                       /* act [rows][d]: the model's residuals, by position, and memory
                                          * vectors, both after the norm */
    float *mid, *q, *m;                  /* [rows]: [d], [q_dim]; memory vectors, [d] */
    float *own, *committed, *drafted;    /* of x^{i-1}, by row; of the model's residual, by position; of m */
    float *d_own, *d_committed, *d_drafted;
};

struct trainer {
    const struct model *m;
    enum spire_ablation ablation;
    size_t d, norm, memory;              /* parameters */
    struct layers *l;
    struct side side[SPIRE_LAYERS];
    float share[SPIRE_LAYERS][SPIRE_MIX];                /* softmax of w */
    double d_share[SPIRE_LAYERS][SPIRE_MIX];
    float *cos[2], *sin[2];              /* [rows][head_dim / 2], by row and by position */
    float *x[SPIRE_MIX], *dx[SPIRE_MIX]; /* [rows][d] */
    float *att, *d_att, *dq;             /* [rows][q_dim] */
    float *dm;                           /* [rows][d] */
    char *xf, *hidden;                   /* act [rows][d]: inputs of the LM head, the drafter's and the
                                          * model's */
    float *overlap;                      /* [rows] */
    size_t groups, rows;                 /* of this window */
};

/* ---- parameters and memory ---- */

static void layout_side(struct layers *l, struct side *s, struct arena *a)
{
    const size_t n = l->rows_max * sizeof(float), act = l->rows_max * l->d * dtype_size(l->m->compute),
                 kv = n * s->b.kv.n;
    projections_take(l, &s->b, a);
    mlp_take(l, &s->f, a);
    TAKE(a, { &s->yn, act }, { &s->mn, act }, { &s->mid, n * l->d }, { &s->m, n * l->d },
         { &s->q, n * s->b.q.n }, { &s->own, kv }, { &s->committed, kv }, { &s->drafted, kv },
         { &s->d_own, kv }, { &s->d_committed, kv }, { &s->d_drafted, kv });
}

static void spire_layout(struct module *u, struct arena *a)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const size_t n = u->window * sizeof(float), act = u->window * l->d * dtype_size(l->m->compute),
                 half = n * l->m->config.head_dim / 2;
    t->m = l->m, t->l = l, t->d = l->d, t->ablation = u->ablation;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        projections_take_matrices(l, &t->side[i].b, true);
        mlp_take_matrices(l, &t->side[i].f);
    }
    u->n_matrix = l->n_params;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        if (l->m->config.qkv_bias) {
            linear_take_bias(l, &t->side[i].b.q);
            linear_take_bias(l, &t->side[i].b.kv);
        }
        t->side[i].b.norm = params_take(l, l->d);
        t->side[i].f.norm = params_take(l, l->d);
    }
    t->norm = params_take(l, l->d);
    t->memory = params_take(l, SPIRE_LAYERS * SPIRE_MIX);
    u->n_outputs = SPIRE_DEPTH;
    l->rows_max = u->window;
    l->lm_rows = PIECE_MAX;
    l->distributions = true;
    const size_t q = n * t->side[0].b.q.n, x = n * l->d;
    TAKE(a, { &t->cos[0], half }, { &t->cos[1], half }, { &t->sin[0], half }, { &t->sin[1], half },
         { &t->att, q }, { &t->d_att, q }, { &t->dq, q }, { &t->dm, x }, { &t->xf, act }, { &t->hidden, act },
         { &t->overlap, n });
    for (size_t i = 0; i < SPIRE_MIX; i++)
        TAKE(a, { &t->x[i], x }, { &t->dx[i], x });
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        layout_side(l, &t->side[i], a);
}

static int spire_init(struct module *u, struct err *e)
{
    const struct trainer *t = u->self;
    const size_t first = t->m->config.n_layers - SPIRE_LAYERS;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        const struct side *s = &t->side[i];
        if (t->ablation == SPIRE_RANDOM)
            block_random(&s->b, &s->f, u->w, SPIRE_LAYERS, u->seed + i);
        else if (block_copy(&s->b, &s->f, t->m, first + i, u->w, e))
            return -1;
    }
    for (size_t i = 0; i < t->d; i++)
        u->w[t->norm + i] = t->ablation == SPIRE_RANDOM ? 1 : t->m->norm_final[i];
    return 0;
}

/* share = softmax(w) */
static void mix(struct trainer *t, const float *params)
{
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        const float *w = params + t->memory + i * SPIRE_MIX;
        double sum = 0;
        for (size_t k = 0; k < SPIRE_MIX; k++)
            sum += exp((double)w[k]);
        for (size_t k = 0; k < SPIRE_MIX; k++)
            t->share[i][k] = (float)(exp((double)w[k]) / sum);
    }
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
    const size_t ld = s->b.kv.n, lo = pos > SPIRE_WINDOW ? pos - SPIRE_WINDOW : 0,
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
    const size_t dim = t->m->config.head_dim, kv = j->s->b.kv.n / 2;
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
    for (size_t r = j->r0; r < j->r0 + t->l->rows; r++) {
        const size_t pos = r % t->groups * SPIRE_DEPTH + r / t->groups,
                     n = keys_of(t, j->s, pos, head, k, dk);
        for (size_t h = head * group; h < (head + 1) * group; h++)
            attend(j, n, k, dk, r * j->s->b.q.n + h * c->head_dim);
    }
}

/* Rotates the keys of rows [r0, r0 + layers.rows). by: 0 rows, 1 positions. */
static void rotate_keys(const struct trainer *t, float *kv, size_t r0, int by, bool back)
{
    const struct config *c = &t->m->config;
    const size_t ld = 2 * c->n_kv_heads * c->head_dim, half = c->rotary / 2;
    rotate(t->l, kv + r0 * ld, ld, c->n_kv_heads, t->cos[by] + r0 * half, t->sin[by] + r0 * half, back);
}

static void rotate_queries(const struct trainer *t, float *q, size_t r0, bool back)
{
    const struct config *c = &t->m->config;
    const size_t ld = c->n_heads * c->head_dim, half = c->rotary / 2;
    rotate(t->l, q + r0 * ld, ld, c->n_heads, t->cos[0] + r0 * half, t->sin[0] + r0 * half, back);
}

/* ---- forward ---- */

/* Embeddings, angles, the model's hidden states, and keys and values of its residuals. */
static void read_model(struct trainer *t, const struct train_window *win)
{
    const struct model *m = t->m;
    const size_t half = m->config.rotary / 2, d = t->d, act = dtype_size(m->compute);
    train_angles(m, win, t->rows, t->cos[1], t->sin[1]);
    for (size_t pos = 0; pos < t->rows; pos++) {
        const size_t r = row_of(t, pos);
        model_embedding(m, win->token[pos], t->x[0] + r * d);
        memcpy(t->cos[0] + r * half, t->cos[1] + pos * half, half * sizeof(float));
        memcpy(t->sin[0] + r * half, t->sin[1] + pos * half, half * sizeof(float));
        m->ops->rmsnorm(t->hidden + r * d * act, d, m->compute, win->hidden + pos * d, d, m->norm_final, 1, d,
                        (float)m->config.rms_eps);
    }
    t->l->rows = t->rows;
    for (size_t i = 0; i < SPIRE_LAYERS && t->ablation != SPIRE_NO_ACTIVATIONS; i++) {
        struct side *s = &t->side[i];
        norm_forward(t->l, s->yn, win->entering[i], s->b.norm);
        linear_forward(t->l, &s->b.kv, s->committed, s->yn, false);
        rotate_keys(t, s->committed, 0, 1, false);
    }
}

/* Keys and values of the memory vectors of rows [r0, r0 + layers.rows). */
static void remember(struct trainer *t, size_t r0)
{
    const size_t n = t->l->rows * t->d, act = dtype_size(t->m->compute);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        float *m = s->m + r0 * t->d;
        memset(m, 0, n * sizeof *m);
        for (size_t l = 0; l < SPIRE_MIX; l++)
            for (size_t k = 0; k < n; k++)
                m[k] += t->share[i][l] * t->x[l][r0 * t->d + k];
        char *mn = s->mn + r0 * t->d * act;
        norm_forward(t->l, mn, m, s->b.norm);
        linear_forward(t->l, &s->b.kv, s->drafted + r0 * s->b.kv.n, mn, false);
        rotate_keys(t, s->drafted, r0, 0, false);
    }
}

static void forward_pass(struct trainer *t, size_t r0)
{
    const size_t at = r0 * t->d;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        project(t->l, &s->b, r0, t->x[i] + at, s->q + r0 * s->b.q.n, s->own + r0 * s->b.kv.n);
        rotate_queries(t, s->q, r0, false);
        rotate_keys(t, s->own, r0, 0, false);
        pool_run(t->m->pool, t->m->config.n_kv_heads, attend_item, &(struct job){ t, s, r0, false });
        project_out(t->l, &s->b, r0, s->mid + at, t->x[i] + at, t->att + r0 * s->b.q.n);
        mlp_forward(t->l, &s->f, r0, t->x[i + 1] + at, s->mid + at);
    }
}

/* ---- losses ---- */

static double loss_of(const struct trainer *t, const struct mixed *x, double omega)
{
    if (t->ablation == SPIRE_HARD)
        return train_xent(&x->xent);
    return omega * (log((double)x->xent.sum) * (double)x->mass + (double)x->cross) -
           (1 - omega) * (double)x->overlap;
}

/* Losses of rows r0 .. r0 + n, and with `gradient` that of the logits, l->g. */
static void piece_losses(const struct trainer *t, const struct train_window *win, size_t r0, size_t n,
                         bool gradient, struct train_score *score)
{
    const struct layers *l = t->l;
    const size_t vocab = l->vocab, at = r0 * t->d * dtype_size(t->m->compute);
    const bool hard = t->ablation == SPIRE_HARD;
    const double omega = t->ablation == SPIRE_DISTILL ? 1 : 0.5;
    for (size_t r = 0; r < n; r++) {
        const size_t pos = (r0 + r) % t->groups * SPIRE_DEPTH + (r0 + r) / t->groups;
        l->target[r] = lm_target(l, win->token[pos + 1]);
    }
    lm_forward(l, t->xf + at, n);
    lm_distribution(l, t->hidden + at, n);
    lm_mixed(l, l->p, n, (float)omega, gradient && !hard);
    for (size_t r = 0; r < n; r++) {
        t->overlap[r0 + r] = l->mixed[r].overlap;
        struct train_score *s = &score[(r0 + r) / t->groups];
        if (l->target[r] >= 0)
            train_score_add(s, &l->mixed[r].xent, loss_of(t, &l->mixed[r], omega));
        else
            s->n++, s->outside++;
        if (hard && l->target[r] >= 0)
            l->logits[r * vocab + (size_t)l->target[r]] -= 1;
        else if (hard)
            memset(l->logits + r * vocab, 0, vocab * sizeof *l->logits);
    }
    if (hard && gradient)
        t->m->ops->round(l->g, t->m->compute, l->logits, 1, n * vocab);
}

/* Losses of all rows; with weight != 0 also the gradient of x^2 in dx[2]. */
static void losses(struct trainer *t, const struct train_window *win, float weight, struct train_score *score)
{
    const size_t d = t->d, top = SPIRE_LAYERS;
    t->l->rows = t->rows;
    norm_forward(t->l, t->xf, t->x[top], t->norm);
    for (size_t r0 = 0; r0 < t->rows; r0 += PIECE_MAX) {
        const size_t n = MIN(t->rows - r0, (size_t)PIECE_MAX);
        piece_losses(t, win, r0, n, weight != 0, score);
        if (weight != 0)
            lm_backward(t->l, t->l->dn + r0 * d, n);
    }
    for (size_t g = 0; g < t->groups; g++) {
        double all = 1;
        for (size_t j = 0; j < SPIRE_DEPTH; j++)
            score[j].accepted += all *= (double)t->overlap[j * t->groups + g];
    }
    memset(t->dx[top], 0, t->rows * d * sizeof(float));
    if (weight != 0)
        norm_backward(t->l, t->dx[top], t->l->dn, t->x[top], t->norm, weight / (float)t->groups, true);
}

/* ---- backward ---- */

/* From the gradients of the memories' keys and values. */
static void remember_back(struct trainer *t, size_t r0)
{
    const size_t d = t->d, n = t->l->rows * d, act = dtype_size(t->m->compute);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        struct side *s = &t->side[i];
        float *dm = t->dm;
        rotate_keys(t, s->d_drafted, r0, 0, true);
        linear_backward(t->l, &s->b.kv, s->d_drafted + r0 * s->b.kv.n, s->mn + r0 * d * act,
                        t->l->dn, false);
        memset(dm, 0, n * sizeof *dm);
        norm_backward(t->l, dm, t->l->dn, s->m + r0 * d, s->b.norm, 1, true);
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
    const size_t n = t->l->rows * t->d, at = r0 * t->d;
    for (size_t i = SPIRE_LAYERS; i-- > 0;) {
        struct side *s = &t->side[i];
        float *dy = t->dx[i + 1] + at, *dx = t->dx[i] + at;
        mlp_backward(t->l, &s->f, r0, dy, s->mid + at);
        project_out_back(t->l, &s->b, r0, dy, t->d_att + r0 * s->b.q.n);
        pool_run(t->m->pool, t->m->config.n_kv_heads, attend_item, &(struct job){ t, s, r0, true });
        rotate_queries(t, t->dq, r0, true);
        rotate_keys(t, s->d_own, r0, 0, true);
        for (size_t k = 0; k < n; k++)
            dx[k] += dy[k];
        project_back(t->l, &s->b, r0, dx, t->x[i] + at, t->dq + r0 * s->b.q.n, s->d_own + r0 * s->b.kv.n);
    }
}

/* The model's residuals are constants: only the norm and the projections have gradients. */
static void committed_back(struct trainer *t, const struct train_window *win)
{
    t->l->rows = t->rows;
    for (size_t i = 0; i < SPIRE_LAYERS && t->ablation != SPIRE_NO_ACTIVATIONS; i++) {
        struct side *s = &t->side[i];
        rotate_keys(t, s->d_committed, 0, 1, true);
        linear_backward(t->l, &s->b.kv, s->d_committed, s->yn, t->l->dn, false);
        norm_backward(t->l, t->dx[0], t->l->dn, win->entering[i], s->b.norm, 1, true);
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
    assert(win->n > SPIRE_DEPTH && win->n <= t->l->rows_max);
    t->groups = (win->n - 1) / SPIRE_DEPTH;
    t->rows = t->groups * SPIRE_DEPTH;
    mix(t, u->w);
    read_model(t, win);
    t->l->rows = t->rows / passes;
    for (size_t r0 = 0; r0 < t->rows; r0 += t->l->rows) {
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
        const size_t bytes = t->rows * t->side[i].b.kv.n * sizeof(float);
        memset(t->side[i].d_own, 0, bytes);
        memset(t->side[i].d_committed, 0, bytes);
        memset(t->side[i].d_drafted, 0, bytes);
    }
    t->l->rows = t->rows / passes;
    for (size_t r0 = t->rows; r0 > 0;) {
        r0 -= t->l->rows;
        if (feedback)
            remember_back(t, r0);
        backward_pass(t, r0);
    }
    committed_back(t, win);
    share_back(t, u->grad + t->memory);
}

/* ---- the kind ---- */

static int spire_check(const struct module *u, const struct model *m, struct err *e)
{
    const size_t layers = m->config.n_layers;
    (void)u;
    if (layers < SPIRE_LAYERS)
        return err_set(e, ERR_INPUT, "train spire: a model of %zu layers, at least %d are needed", layers,
                       SPIRE_LAYERS);
    for (size_t i = layers - SPIRE_LAYERS; i < layers; i++)
        if (block_misfit(m, i))
            return err_set(e, ERR_INPUT, "train spire: layer %zu of the model has %s, which the drafter's "
                           "blocks do not have", i, block_misfit(m, i));
    return 0;
}

static int spire_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    struct spire s = { .norm = u->w + t->norm, .memory = u->w + t->memory };
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        s.layer[i] = block_weights(&t->side[i].b, &t->side[i].f, u->w);
    return drafter_write(&s.file, &spire_kind, path, t->m, u->layers.back->vocab, note, e);
}

const struct module_kind train_spire = {
    .name = "spire", .rate = 1e-3, .window = 1024, .skip_max = 30000, .entering = true,
    .self_bytes = sizeof(struct trainer), .check = spire_check, .layout = spire_layout, .init = spire_init,
    .train = spire_window, .save = spire_save,
};
