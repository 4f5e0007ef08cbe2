/* LongSpec's drafter (Yang et al., arXiv:2502.17421) in training: one decoder layer that reads the model's
 * own cache.
 *
 *     x1 = e + SelfAttention(RMSNorm(e))          e: the model's embedding of the token; keys: its own and
 *                                                 the 512 before it
 *     x2 = x1 + CrossAttention(RMSNorm(x1))       keys and values: the model's last layer, from its cache
 *     x3 = x2 + SwiGLU(RMSNorm(x2))
 *     logits of the next token = LMHead(x3)       without a final norm
 *
 * Embedding, LM head and model are frozen. q, k and v have biases. A short vocabulary has the rule of
 * train_heads.c.
 *
 * Flash noisy training: the drafter of a round sees the model's cache up to the last committed token, 1 to 5
 * tokens before its own (the offset). A window draws its offset j from 1..5; the query of token t sees keys 0
 * .. t - j. Output k of the module is the drafter with offset k + 1. The paper draws from 1..4 although its
 * tree has five draft passes.
 *
 * Anchor-offset positions: of a window of at most 1,200 tokens, the first 0 to 4 tokens keep their positions
 * and the others are moved by a random distance, so that short texts train all positions. The trainer moves
 * the model's own pass, too (struct train_settings, skip_max). The rate and the longest distance are those of
 * the first published stage.
 *
 * Matrices begin as N(0, 0.02), except those that write to the residual, which begin as N(0, 0.02/sqrt(6)).
 * On the CPU only. A window goes through the layer as a whole; the LM head runs over pieces of it, so that
 * logits stay small. Start at longspec_window. */
#include <string.h>

#include "src/model/longspec.h"
#include "src/lab/train/block.h"
#include "src/lab/train/train.h"

enum { PIECE_MAX = 256, LONGSPEC_OFFSETS = 5 };

struct trainer {
    struct attend self, cross;
    struct mlp mlp;
    float *cos, *sin;                    /* [rows][head_dim / 2] */
    float *e, *x1, *x2, *x3, *dx;        /* [rows][d]: inputs of the parts, the output, a gradient */
    float *keys, *values;                /* [kv_heads][rows][head_dim]: the model's */
    char *out;                           /* act [rows][d]: x3 for the LM head */
};

static void longspec_layout(struct module *u, struct arena *a)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const struct config *c = &l->m->config;
    const size_t n = u->window, x = n * l->d * sizeof(float), half = n * c->head_dim / 2 * sizeof(float),
                 kv = n * c->n_kv_heads * c->head_dim * sizeof(float);
    projections_take_matrices(l, &t->self.p, true);
    projections_take_matrices(l, &t->cross.p, false);
    mlp_take_matrices(l, &t->mlp);
    u->n_matrix = l->n_params;
    linear_take_bias(l, &t->self.p.q);
    linear_take_bias(l, &t->self.p.kv);
    linear_take_bias(l, &t->cross.p.q);
    t->self.p.norm = params_take(l, l->d);
    t->cross.p.norm = params_take(l, l->d);
    t->mlp.norm = params_take(l, l->d);
    u->n_outputs = LONGSPEC_OFFSETS;
    l->rows_max = n;
    l->lm_rows = PIECE_MAX;
    attend_take(l, &t->self, a);
    attend_take(l, &t->cross, a);
    mlp_take(l, &t->mlp, a);
    TAKE(a, { &t->cos, half }, { &t->sin, half }, { &t->e, x }, { &t->x1, x }, { &t->x2, x }, { &t->x3, x },
         { &t->dx, x }, { &t->keys, kv }, { &t->values, kv },
         { &t->out, n * l->d * dtype_size(l->m->compute) });
    t->self.a.window = LONGSPEC_WINDOW;
    t->cross.a.window = c->layer[config_last_global(c)].window;
    t->cross.a.k = t->keys, t->cross.a.v = t->values;
}

static int longspec_init(struct module *u, struct err *e)
{
    const struct trainer *t = u->self;
    (void)e;
    train_normal(u->w, u->n_matrix, 0.02f, u->seed);
    linear_scale(&t->self.p.o, u->w, 0.408248290f);
    linear_scale(&t->cross.p.o, u->w, 0.408248290f);
    linear_scale(&t->mlp.down, u->w, 0.408248290f);
    for (size_t i = t->self.p.norm; i < u->n_params; i++)
        u->w[i] = 1;                     /* biases stay 0 */
    return 0;
}

/* The model's embeddings, angles, and the keys and values of the layer that the drafter reads. */
static void read_model(const struct module *u, const struct train_window *win)
{
    const struct trainer *t = u->self;
    const struct model *m = u->layers.m;
    const struct config *c = &m->config;
    const size_t dim = c->head_dim;
    float k[HEAD_DIM_MAX + 16], v[HEAD_DIM_MAX + 16];
    train_angles(m, win, win->n, t->cos, t->sin);
    for (size_t r = 0; r < win->n; r++) {
        model_embedding(m, win->token[r], t->e + r * u->layers.d);
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            memset(k, 0, sizeof k);
            memset(v, 0, sizeof v);
            kv_sum(k, v, win->kv->type, win->kv->head_dim, kv_block(win->kv, config_last_global(c), h, r),
                   r % KV_BLOCK, r % KV_BLOCK + 1);
            if (kv_form(win->kv->type).rotated) {
                m->ops->rotate(k, win->kv->head_dim, 1);
                m->ops->rotate(v, win->kv->head_dim, 1);
            }
            memcpy(t->keys + (h * win->n + r) * dim, k, dim * sizeof *k);
            memcpy(t->values + (h * win->n + r) * dim, v, dim * sizeof *v);
        }
    }
}

/* Losses of the tokens after each row; with weight != 0 also their gradient in t->dx. */
static void losses(const struct module *u, const struct train_window *win, float weight,
                   struct train_score *score)
{
    const struct trainer *t = u->self;
    const struct layers *l = &u->layers;
    const struct ops *o = l->m->ops;
    const size_t last = win->n - 1, act = dtype_size(l->m->compute);
    o->round(t->out, l->m->compute, t->x3, 1, win->n * l->d);
    for (size_t r0 = 0; r0 < win->n; r0 += PIECE_MAX) {
        const size_t n = MIN(win->n - r0, (size_t)PIECE_MAX);
        float *dx = t->dx + r0 * l->d;
        for (size_t r = 0; r < n; r++)
            l->target[r] = r0 + r == last ? LM_NONE : lm_target(l, win->token[r0 + r + 1]);
        lm_forward(l, t->out + r0 * l->d * act, n);
        lm_xent(l, n, weight != 0);
        train_score_rows(score, l->loss, l->target, n);
        if (weight != 0) {
            lm_backward(l, dx, n);
            o->round(dx, DT_F32, dx, weight / (float)last, n * l->d);
        }
    }
}

/* A window that trains draws its offset; held-out text is scored with all offsets. */
static void longspec_window(struct module *u, const struct train_window *win, float weight,
                            struct train_score *score)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const size_t drawn = 1 + win->key % LONGSPEC_OFFSETS, from = weight != 0 ? drawn : 1,
                 to = weight != 0 ? drawn : LONGSPEC_OFFSETS;
    assert(win->n >= 2 && win->n <= l->rows_max);
    l->rows = win->n;
    read_model(u, win);
    attend_forward(l, &t->self, t->x1, t->e, t->cos, t->sin);
    for (size_t j = from; j <= to; j++) {
        t->cross.a.offset = j;
        attend_forward(l, &t->cross, t->x2, t->x1, t->cos, t->sin);
        mlp_forward(l, &t->mlp, 0, t->x3, t->x2);
        losses(u, win, weight, &score[j - 1]);
    }
    if (weight == 0)
        return;
    mlp_backward(l, &t->mlp, 0, t->dx, t->x2);
    attend_backward(l, &t->cross, t->dx, t->x1, t->cos, t->sin);
    attend_backward(l, &t->self, t->dx, t->e, t->cos, t->sin);
}

static int longspec_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    struct longspec l = {
        .block = block_weights(&t->self.p, &t->mlp, u->w), .cross_q.w = u->w + t->cross.p.q.at,
        .cross_q_bias = u->w + t->cross.p.q.bias, .cross_o.w = u->w + t->cross.p.o.at,
        .norm_cross = u->w + t->cross.p.norm,
    };
    return drafter_write(&l.file, &longspec_kind, path, u->layers.m, u->layers.back->vocab, note, e);
}

const struct module_kind train_longspec = {
    .name = "longspec", .rate = 5e-4, .window = 1024, .skip_max = 30000, .self_bytes = sizeof(struct trainer),
    .layout = longspec_layout, .init = longspec_init, .train = longspec_window, .save = longspec_save,
};
