/* Gumiho's drafter (arXiv:2503.10135) in training: a serial transformer of two layers for the first two
 * tokens of a draft, and five heads that guess the next five at once.
 *
 * h_p: the hidden state of the model at position p, after the final norm. Token p + 1 follows from it.
 *     o_p = FC [e(token p + 1); h_p]              e: the model's embedding; row p of the serial part
 *     ĥ_{p+1} = Transformer(o_0 .. o_p)           causal; layer 0 has no norm before its attention, and no
 *                                                 norm follows layer 1
 *     z_p = FC [e(token p + 2); ĥ_{p+1}]
 *     ĥ_{p+3+i} = MLP_i [z_p; z_{p+1}], i = 0..4  one linear map with SiLU, then five that add
 *                                                 SiLU(linear(x)) to x
 *     logits of token q + 1 = LMHead(ĥ_q)
 * Embedding, LM head and model are frozen. In a draft, the second token comes from a second serial pass over
 * z_p; in training its hidden state is the first pass of position p + 1, as in the published code.
 *
 * Loss: R_q = mean over hidden of SmoothL1(ĥ_q - h_q), and C_q = cross-entropy of softmax(LMHead(ĥ_q))
 * against softmax(LMHead(h_q)). Each is the mean over positions:
 *     R + 0.1 C of the serial part + sum over i of 0.8^{i+1} / 9 (R_i + lambda C_i)
 * Two stages: lambda is 0 in the first tenth of the steps (2 epochs of 20), then 0.1. The inputs h_p get
 * uniform noise of (U(0, 1) - 0.5) 0.2 * 512 / n.
 *
 * With a short vocabulary both distributions are those among its tokens, and C_q counts where the text's
 * token is one of them (train_heads.c). R_q counts everywhere.
 *
 * Output 0 of the module is the serial part, output 1 + i is MLP_i, with its R + lambda C as loss; that of
 * held-out text has lambda 0.1 in both stages.
 *
 * The published training script also has weight decay 0, betas 0.9 and 0.95 and a linear schedule; here the
 * trainer's optimiser decides. Positions move at random as for LongSpec (train_settings, skip_max). The
 * rate is the published one. On the CPU only.
 *
 * Row p of the serial part is the pair of h_p and token p + 1; row p of a head reads z_p and z_{p+1}. Losses
 * run over pieces of positions q, whose model distribution serves all outputs. Start at gumiho_window. */
#include <math.h>
#include <string.h>

#include "src/model/gumiho.h"
#include "src/lab/train/block.h"
#include "src/lab/train/train.h"

enum { PIECE_MAX = 256, GUMIHO_OUTPUTS = 1 + GUMIHO_HEADS };
static const double GUMIHO_STAGE = 0.1;                  /* the share of steps with lambda 0 */

struct head {
    struct linear l[GUMIHO_LINEARS];
    float *pre[GUMIHO_LINEARS], *x[GUMIHO_LINEARS];      /* [rows][d]: before SiLU; outputs */
    char *in[GUMIHO_LINEARS + 1];                        /* act: inputs; in[0] is the trainer's */
};

struct trainer {
    struct linear fc;
    struct { struct attend a; struct mlp f; float *mid; } block[GUMIHO_LAYERS];      /* mid: [rows][d] */
    struct head head[GUMIHO_HEADS];
    float *cos, *sin;                    /* [rows][head_dim / 2] */
    float *h; char *h_act;               /* [rows][d]: the model's hidden states */
    char *fc_in[2];                      /* act [rows][2 d]: for o, for z */
    float *x[GUMIHO_LAYERS + 1], *z;     /* [rows][d]: o, after layer 0, ĥ */
    char *z_act, *hat_act, *pairs;       /* act [rows][d], [rows][d], [rows][2 d]: inputs of the heads */
    float *d_out[GUMIHO_OUTPUTS];        /* [rows][d]: gradients of the outputs */
    float *d_pairs, *d_pre, *dn, *ones, *junk;           /* [rows][2 d], [rows][d], [rows][2 d]; [d], [d] */
    float *dy;                           /* [PIECE_MAX][d] */
    double *distance;                    /* [PIECE_MAX] */
};

static void layout_head(struct layers *l, struct head *h, struct arena *a)
{
    const size_t n = l->rows_max * l->d;
    for (size_t k = 0; k < GUMIHO_LINEARS; k++)
        TAKE(a, { &h->pre[k], n * sizeof(float) }, { &h->x[k], n * sizeof(float) },
             { &h->in[k + 1], n * dtype_size(l->m->compute) });
}

static void layout_params(struct layers *l, struct trainer *t, size_t *n_matrix)
{
    const size_t d = l->d;
    linear_take(l, &t->fc, d, 2 * d);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        projections_take_matrices(l, &t->block[i].a.p, true);
        mlp_take_matrices(l, &t->block[i].f);
    }
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            linear_take(l, &t->head[i].l[k], d, k ? d : 2 * d);
    *n_matrix = l->n_params;
    linear_take_bias(l, &t->fc);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        if (i > 0)
            t->block[i].a.p.norm = params_take(l, d);
        t->block[i].f.norm = params_take(l, d);
    }
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            linear_take_bias(l, &t->head[i].l[k]);
}

static void gumiho_layout(struct module *u, struct arena *a)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const size_t n = u->window, d = l->d, f = sizeof(float), act = n * d * dtype_size(l->m->compute),
                 x = n * d * f, half = n * l->m->config.head_dim / 2 * f;
    layout_params(l, t, &u->n_matrix);
    u->n_outputs = GUMIHO_OUTPUTS;
    l->rows_max = n;
    l->lm_rows = PIECE_MAX;
    l->distributions = true;
    TAKE(a, { &t->cos, half }, { &t->sin, half }, { &t->h, x }, { &t->h_act, act }, { &t->fc_in[0], 2 * act },
         { &t->fc_in[1], 2 * act }, { &t->x[0], x }, { &t->z, x }, { &t->z_act, act }, { &t->hat_act, act },
         { &t->pairs, 2 * act }, { &t->d_pairs, 2 * x }, { &t->d_pre, x }, { &t->dn, 2 * x },
         { &t->ones, d * f }, { &t->junk, d * f }, { &t->dy, PIECE_MAX * d * f },
         { &t->distance, PIECE_MAX * sizeof *t->distance });
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        TAKE(a, { &t->x[i + 1], x }, { &t->block[i].mid, x });
        attend_take(l, &t->block[i].a, a);
        mlp_take(l, &t->block[i].f, a);
    }
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++)
        TAKE(a, { &t->d_out[k], x });
    for (size_t i = 0; i < GUMIHO_HEADS; i++) {
        layout_head(l, &t->head[i], a);
        t->head[i].in[0] = t->pairs;
    }
}

/* The published first weights of the heads: 0, and biases uniform in +-1/sqrt(inputs). */
static int gumiho_init(struct module *u, struct err *e)
{
    const struct trainer *t = u->self;
    (void)e;
    train_normal(u->w + t->fc.at, t->fc.n * t->fc.k, 0.02f, u->seed);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        block_random(&t->block[i].a.p, &t->block[i].f, u->w, GUMIHO_LAYERS, u->seed + 1 + i);
    uint64_t s = u->seed;
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++)
            for (size_t j = 0; j < u->layers.d; j++)
                u->w[t->head[i].l[k].bias + j] = (float)((2 * train_uniform(&s) - 1) /
                                                         sqrt((double)t->head[i].l[k].k));
    for (size_t j = 0; j < u->layers.d; j++)
        t->ones[j] = 1;
    return 0;
}

/* ---- forward ---- */

/* Writes a half of row r of an input of FC. */
static void put_half(const struct layers *l, char *in, size_t r, bool second, const float *x)
{
    const size_t act = dtype_size(l->m->compute);
    l->m->ops->round(in + (2 * r + second) * l->d * act, l->m->compute, x, 1, l->d);
}

/* Embeddings, angles, hidden states, and the inputs of the serial part. */
static void read_model(const struct layers *l, const struct trainer *t, const struct train_window *win,
                       bool noise)
{
    const struct model *m = l->m;
    const size_t d = l->d;
    uint64_t s = win->key;
    m->ops->rmsnorm(t->h, d, DT_F32, win->hidden, d, m->norm_final, win->n, d, (float)m->config.rms_eps);
    m->ops->round(t->h_act, m->compute, t->h, 1, win->n * d);
    train_angles(m, win, win->n - 1, t->cos, t->sin);
    for (size_t p = 0; p + 1 < win->n; p++) {
        float *x = t->dn;
        model_embedding(m, win->token[p + 1], x);
        put_half(l, t->fc_in[0], p, false, x);
        if (p > 0)
            put_half(l, t->fc_in[1], p - 1, false, x);
        for (size_t i = 0; i < d; i++)
            x[i] = t->h[p * d + i] +
                   (noise ? (float)((train_uniform(&s) - 0.5) * 0.2 * 512 / (double)win->n) : 0);
        put_half(l, t->fc_in[0], p, true, x);
    }
}

static void forward_serial(struct layers *l, struct trainer *t, size_t pairs)
{
    l->rows = pairs;
    linear_forward(l, &t->fc, t->x[0], t->fc_in[0], false);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        attend_forward(l, &t->block[i].a, t->block[i].mid, t->x[i], t->cos, t->sin);
        mlp_forward(l, &t->block[i].f, 0, t->x[i + 1], t->block[i].mid);
    }
    l->m->ops->round(t->hat_act, l->m->compute, t->x[GUMIHO_LAYERS], 1, pairs * l->d);
}

static void forward_heads(struct layers *l, struct trainer *t, size_t pairs)
{
    const struct ops *o = l->m->ops;
    const enum dtype type = l->m->compute;
    const size_t d = l->d, bytes = d * dtype_size(type);
    l->rows = pairs - 1;
    for (size_t p = 0; p < l->rows; p++)
        put_half(l, t->fc_in[1], p, true, t->x[GUMIHO_LAYERS] + p * d);
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

/* Rows of output k that predict the hidden states of positions q0 + r, r < n. */
struct piece {
    const struct layers *l; struct trainer *t;
    const float *hat; float *dhat;
    size_t q0, n;
    float reg, cls;                      /* scales of the gradients of R_q and C_q; 0: not wanted */
};

/* Row p of an output predicts position p + shift. */
static size_t shift_of(size_t output) { return output ? 2 + output : 1; }
static double weight_of(size_t output) { return output ? pow(0.8, (double)output) / 9 : 1; }

/* SmoothL1 of row r, and its gradient. */
static void distance_item(void *ctx, size_t r, size_t thread)
{
    const struct piece *p = ctx;
    const size_t d = p->l->d;
    const float *hat = p->hat + r * d, *h = p->t->h + (p->q0 + r) * d;
    double sum = 0;
    (void)thread;
    for (size_t j = 0; j < d; j++) {
        const float x = hat[j] - h[j];
        sum += fabsf(x) < 1 ? 0.5 * (double)x * (double)x : fabs((double)x) - 0.5;
        if (p->reg != 0)
            p->dhat[r * d + j] = p->reg * MAX(-1.0f, MIN(1.0f, x));
    }
    p->t->distance[r] = sum / (double)d;
}

/* Losses of one output in a piece, and with gradients the rows of t->d_out[k]. model: the model's
 * distribution of q0. */
static void output_losses(struct piece *p, const struct train_window *win, const float *model, size_t k,
                          double lambda, struct train_score *score)
{
    const struct layers *l = p->l;
    struct trainer *t = p->t;
    const size_t d = l->d, row = p->q0 - shift_of(k);
    const char *x = k ? t->head[k - 1].in[GUMIHO_LINEARS] : t->hat_act;
    p->hat = (k ? t->head[k - 1].x[GUMIHO_LINEARS - 1] : t->x[GUMIHO_LAYERS]) + row * d;
    p->dhat = t->d_out[k] + row * d;
    for (size_t r = 0; r < p->n; r++)
        l->target[r] = lm_target(l, win->token[p->q0 + r + 1]);
    lm_forward(l, x + row * d * dtype_size(l->m->compute), p->n);
    lm_mixed(l, model, p->n, 1, p->cls != 0);
    pool_run(l->m->pool, p->n, distance_item, p);
    for (size_t r = 0; r < p->n; r++) {
        const struct mixed *x0 = &l->mixed[r];
        const double c = log((double)x0->xent.sum) * (double)x0->mass + (double)x0->cross;
        if (l->target[r] >= 0)
            train_score_add(&score[k], &x0->xent, t->distance[r] + lambda * c);
        else
            score[k].n++, score[k].loss += t->distance[r];
    }
    if (p->cls == 0)
        return;
    lm_backward(l, t->dy, p->n);
    for (size_t i = 0; i < p->n * d; i++)
        p->dhat[i] += p->cls * t->dy[i];
}

/* Positions 1 .. n - 2 are predicted; the token after each is known. */
static void losses(const struct layers *l, struct trainer *t, const struct train_window *win, float weight,
                   struct train_score *score)
{
    const size_t end = win->n - 1, vocab = l->vocab;
    for (size_t q0 = 1; q0 < end; q0 += PIECE_MAX) {
        const size_t n = MIN(end - q0, (size_t)PIECE_MAX);
        lm_distribution(l, t->h_act + q0 * l->d * dtype_size(l->m->compute), n);
        for (size_t k = 0; k < GUMIHO_OUTPUTS; k++) {
            const size_t shift = shift_of(k), from = MAX(q0, shift);
            const double lambda = k && weight != 0 && win->done < GUMIHO_STAGE ? 0 : 0.1,
                         share = (double)weight * weight_of(k) / (double)(end - shift);
            struct piece p = { .l = l, .t = t, .q0 = from, .n = q0 + n - from,
                               .reg = (float)(share / (double)l->d), .cls = (float)(share * lambda) };
            if (from < q0 + n)
                output_losses(&p, win, l->p + (from - q0) * vocab, k, lambda, score);
        }
    }
}

/* ---- backward ---- */

/* From t->d_out of the heads to t->d_pairs. */
static void heads_back(const struct layers *l, struct trainer *t)
{
    const size_t n = l->rows, d = l->d;
    for (size_t i = 0; i < GUMIHO_HEADS; i++) {
        struct head *h = &t->head[i];
        float *dx = t->d_out[1 + i];
        for (size_t k = GUMIHO_LINEARS; k-- > 0;) {
            for (size_t r = 0; r < n; r++)
                l->m->ops->swiglu_back(t->d_pre + r * d, t->junk, h->pre[k] + r * d, t->ones, dx + r * d, d);
            linear_backward(l, &h->l[k], t->d_pre, h->in[k], k ? t->dn : t->d_pairs, !k && i);
            for (size_t j = 0; k && j < n * d; j++)
                dx[j] += t->dn[j];
        }
    }
}

static void backward(struct layers *l, struct trainer *t, size_t pairs)
{
    const size_t d = l->d;
    float *dx = t->d_out[0], *dz = t->z;                  /* z is read no more */
    l->rows = pairs - 2;
    heads_back(l, t);
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
        mlp_backward(l, &t->block[i].f, 0, dx, t->block[i].mid);
        attend_backward(l, &t->block[i].a, dx, t->x[i], t->cos, t->sin);
    }
    linear_backward(l, &t->fc, dx, t->fc_in[0], NULL, false);
}

static void gumiho_window(struct module *u, const struct train_window *win, float weight,
                          struct train_score *score)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const size_t pairs = win->n - 1;
    assert(win->n > 2 + GUMIHO_OUTPUTS && win->n <= l->rows_max);
    read_model(l, t, win, weight != 0 && win->key != 0);
    forward_serial(l, t, pairs);
    forward_heads(l, t, pairs);
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++)
        memset(t->d_out[k], 0, win->n * l->d * sizeof(float));
    losses(l, t, win, weight, score);
    if (weight != 0)
        backward(l, t, pairs);
}

static int gumiho_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    struct gumiho g = { .fc.w = u->w + t->fc.at, .fc_bias = u->w + t->fc.bias };
    for (size_t i = 0; i < GUMIHO_LAYERS; i++)
        g.layer[i] = block_weights(&t->block[i].a.p, &t->block[i].f, u->w);
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
            g.head[i][k].w.w = u->w + t->head[i].l[k].at;
            g.head[i][k].bias = u->w + t->head[i].l[k].bias;
        }
    return drafter_write(&g.file, &gumiho_kind, path, u->layers.m, u->layers.back->vocab, note, e);
}

const struct module_kind train_gumiho = {
    .name = "gumiho", .rate = 2e-4, .window = 1024, .skip_max = 30000, .self_bytes = sizeof(struct trainer),
    .layout = gumiho_layout, .init = gumiho_init, .train = gumiho_window, .save = gumiho_save,
};
