/* Drafting heads (src/model/heads.h) in training. Output k predicts the token at t + 2 + k, as the heads of
 * TokenSwift do (arXiv:2502.18890):
 *
 *     h_k = x + W_k RMSNorm(x)             x: the model's hidden state, or in a chain h_{k-1}
 *     logits of output k = LMHead(RMSNorm(h_k))
 *
 * With a short vocabulary (draft_vocab.h) the LM head has the rows of its tokens. A position whose token is
 * not among them has no loss, as in EAGLE-3: every output is wrong there, and a gradient would only teach
 * which wrong one to prefer.
 *
 * The model and its LM head are frozen. First weights are W ~ N(0, 0.02) and gains 1, or existing heads. The
 * file has matrices in BF16 and gains in F32.
 *
 * A window is processed in pieces, so that the logits of a piece stay small: forward through all heads, one
 * product with the LM head for all of them, losses, one product back, then backward through the heads. All
 * of it runs on a GPU, too. Arrays over heads and rows of a piece have one block of rows for each head: row
 * k * rows + r. Start at heads_window. */
#include <stdio.h>
#include <string.h>

#include "src/model/heads.h"
#include "src/lab/train/train.h"

struct trainer {
    struct linear w[HEADS_MAX];
    size_t gain_in[HEADS_MAX], gain_out[HEADS_MAX];
    float *h;                            /* [n][rows][d]: h_1 .. h_n */
    float *dh, *dx, *dy;                 /* [rows][d], [rows][d], [n * rows][d] */
    char *x, *y;                         /* act [n][rows][d]: inputs of the products and of the LM head */
};

/* Rows of a piece whose logits have at most `bytes` bytes. */
static size_t rows_of_piece(const struct module *u, size_t bytes, size_t step, size_t least, size_t most)
{
    const size_t rows = bytes / (u->heads * u->layers.vocab * sizeof(float)) / step * step;
    return rows < least ? least : MIN(rows, most);
}

static void heads_layout(struct module *u, struct arena *a)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const size_t n = u->heads, d = l->d, f = sizeof(float), act = dtype_size(l->m->compute);
    assert(n >= 1 && n <= HEADS_MAX && n <= TRAIN_OUTPUTS_MAX);
    for (size_t k = 0; k < n; k++)
        linear_take(l, &t->w[k], d, d);
    u->n_matrix = l->n_params;
    for (size_t k = 0; k < n; k++)
        t->gain_in[k] = params_take(l, d), t->gain_out[k] = params_take(l, d);
    u->n_outputs = n;
    l->rows_max = l->gpu ? rows_of_piece(u, (size_t)1 << 30, 64, 64, 2048)
                         : rows_of_piece(u, (size_t)16 << 20, 16, 8, 256);
    l->lm_rows = n * l->rows_max;
    l->threads = true;
    TAKE(a, { &t->h, l->lm_rows * d * f }, { &t->dh, l->rows_max * d * f }, { &t->dx, l->rows_max * d * f },
         { &t->dy, l->lm_rows * d * f }, { &t->x, l->lm_rows * d * act }, { &t->y, l->lm_rows * d * act });
}

static int heads_init(struct module *u, struct err *e)
{
    const struct trainer *t = u->self;
    const struct model *m = u->layers.m;
    const struct heads *h = u->first;
    assert(!h || (h->n == u->heads && h->chained == u->chained));
    if (!h)
        train_normal(u->w, u->n_matrix, 0.02f, u->seed);
    for (size_t i = u->n_matrix; i < u->n_params; i++)
        u->w[i] = 1;
    for (size_t k = 0; h && k < h->n; k++) {
        const size_t bytes = u->layers.d * sizeof(float);
        if (layers_mat_read(m, &h->head[k].w, NULL, u->layers.d, u->w + t->w[k].at, NULL, e))
            return -1;
        if (m->dev->download(m->dev, u->w + t->gain_in[k], h->head[k].norm_in, bytes) ||
            m->dev->download(m->dev, u->w + t->gain_out[k], h->head[k].norm_out, bytes))
            return err_set(e, ERR_FAILED, "%s: %s", m->dev->name, m->dev->error);
    }
    return 0;
}

/* Number of positions of a window that train output k. */
static size_t positions(const struct train_window *win, size_t k)
{
    return win->n > 2 + k ? win->n - 2 - k : 0;
}

/* The input of head k: the output of head k - 1 in a chain, otherwise the hidden states of the model. */
static const float *input_of(const struct module *u, const float *hidden, size_t k)
{
    const struct trainer *t = u->self;
    return u->chained && k > 0 ? t->h + (k - 1) * u->layers.rows * u->layers.d : hidden;
}

static void forward(const struct module *u, const float *hidden)
{
    const struct trainer *t = u->self;
    const struct layers *l = &u->layers;
    const size_t n = l->rows * l->d, act = dtype_size(l->m->compute);
    for (size_t k = 0; k < u->heads; k++) {
        const float *prev = input_of(u, hidden, k);
        float *h = t->h + k * n;
        norm_forward(l, t->x + k * n * act, prev, t->gain_in[k]);
        layers_copy(l, h, prev);
        linear_forward(l, &t->w[k], h, t->x + k * n * act, true);
        norm_forward(l, t->y + k * n * act, h, t->gain_out[k]);
    }
}

static void backward(const struct module *u, const struct train_window *win, const float *hidden,
                     float weight)
{
    const struct trainer *t = u->self;
    const struct layers *l = &u->layers;
    const size_t n = l->rows * l->d, act = dtype_size(l->m->compute);
    for (size_t k = u->heads; k-- > 0;) {
        const size_t count = positions(win, k);
        norm_backward(l, t->dh, t->dy + k * n, t->h + k * n, t->gain_out[k],
                      count ? weight / (float)count : 0, u->chained && k + 1 < u->heads);
        linear_backward(l, &t->w[k], t->dh, t->x + k * n * act, t->dx, false);
        norm_backward(l, t->dh, t->dx, input_of(u, hidden, k), t->gain_in[k], 1, true);
    }
}

/* On a GPU the times are those of the calls; only lm_losses waits for the work of the device. */
static void heads_window(struct module *u, const struct train_window *win, float weight,
                         struct train_score *score)
{
    struct trainer *t = u->self;
    struct layers *l = &u->layers;
    const bool gradient = weight != 0;
    for (size_t r0 = 0; r0 < positions(win, 0); r0 += l->rows_max) {
        const float *hidden = win->hidden + r0 * l->d;
        double at[HEADS_TIMES + 1] = { clock_seconds() };
        l->rows = MIN(l->rows_max, positions(win, 0) - r0);
        const size_t all = u->heads * l->rows;
        for (size_t j = 0; j < all; j++) {
            const size_t k = j / l->rows, from = r0 + j % l->rows;
            l->target[j] = from < positions(win, k) ? lm_target(l, win->token[from + 2 + k]) : LM_NONE;
        }
        forward(u, hidden);
        at[1] = clock_seconds();
        lm_forward(l, t->y, all);
        at[2] = clock_seconds();
        lm_xent(l, all, gradient);
        at[3] = clock_seconds();
        if (gradient)
            lm_backward(l, t->dy, all);
        at[4] = clock_seconds();
        if (gradient)
            backward(u, win, hidden, weight);
        const struct xent *loss = lm_losses(l, all);
        for (size_t k = 0; loss && k < u->heads; k++)
            train_score_rows(&score[k], loss + k * l->rows, l->target + k * l->rows, l->rows);
        at[5] = clock_seconds();
        for (size_t i = 0; i < HEADS_TIMES; i++)
            u->seconds[i] += at[i + 1] - at[i];
    }
}

static int heads_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    const size_t n = u->heads, d = u->layers.d;
    struct tensor_out out[3 * HEADS_MAX + 1];
    for (size_t k = 0; k < n; k++) {
        struct tensor_out *norm = &out[n + 2 * k];
        out[k] = (struct tensor_out){ "", DT_BF16, d, d, u->w + t->w[k].at };
        norm[0] = (struct tensor_out){ "", DT_F32, d, 0, u->w + t->gain_in[k] };
        norm[1] = (struct tensor_out){ "", DT_F32, d, 0, u->w + t->gain_out[k] };
        snprintf(out[k].name, sizeof out[k].name, "heads.%zu.linear.weight", k);
        snprintf(norm[0].name, sizeof norm[0].name, "heads.%zu.input_layernorm.weight", k);
        snprintf(norm[1].name, sizeof norm[1].name, "heads.%zu.post_layernorm.weight", k);
    }
    return drafter_save(path, u->layers.m, u->layers.back->vocab, u->chained ? "chained" : "independent",
                        note, out, 3 * n, e);
}

const struct module_kind train_heads = {
    .name = "heads", .window = 8192, .gpu = true, .self_bytes = sizeof(struct trainer),
    .layout = heads_layout, .init = heads_init, .train = heads_window, .save = heads_save,
};
