/* Training of heads on the CPU: the module's functions, and train_heads_open, which chooses between this
 * file and train_heads_gpu.c. A window is processed in pieces of at most rows_max rows, so that the logits
 * of a piece stay small. For each piece: forward through all heads, one product with the LM head for all
 * of them, losses, one product back, then backward through the heads. Start at heads_window. */
#include "src/train/train_heads_impl.h"

#include <stdlib.h>
#include <string.h>

#include "src/model/heads.h"

/* Rows of a piece; rows that one work item of the pool processes. */
enum { ROWS_MAX = 256, ROWS_MIN = 8, ROW_BLOCK = 16 };
#define LOGITS_BYTES ((size_t)16 << 20)                  /* limit for the logits of a piece */

/* Rows [r0, r0 + rows) of a window. */
struct piece {
    struct trainer *t;
    const struct module *u;
    const struct train_window *win;
    size_t r0, rows, k;          /* k: the current head */
    const float *prev;           /* its input, [rows][d] */
    bool add;
};

static bool on_gpu(const struct model *m) { return m->dev && !m->dev->host_memory; }

/* ---- memory ---- */

int lm_back_open(struct lm_back *b, const struct model *m, struct err *e)
{
    enum { STEP = 64 };
    if (on_gpu(m))
        return gpu_lm_open(b, m, e);
    const size_t d = m->config.hidden, vocab = m->config.vocab;
    *b = (struct lm_back){ .mat = { m->compute, d, vocab, NULL } };
    b->bytes = mat_bytes(&b->mat);
    float *rows = malloc(STEP * d * sizeof *rows);
    b->mat.w = rows ? mem_alloc(b->bytes) : NULL;
    if (!b->mat.w) {
        free(rows);
        return err_set(e, ERR_FAILED, "out of memory for the LM head (%zu bytes)", b->bytes);
    }
    for (size_t v = 0; v < vocab; v += STEP) {
        const size_t n = MIN((size_t)STEP, vocab - v);
        for (size_t i = 0; i < n; i++)
            mat_row(&m->lm_head, v + i, rows + i * d);
        mat_pack_columns(&b->mat, v, n, rows, DT_F32);
    }
    free(rows);
    return 0;
}

void lm_back_close(struct lm_back *b)
{
    if (b->dev)
        b->dev->free(b->dev, b->mat.w, b->bytes);
    else
        mem_free(b->mat.w, b->bytes);
    *b = (struct lm_back){ 0 };
}

/* Assign the buffers in t->mem, and set t->bytes to their size; t->mem NULL: only set t->bytes. */
static void assign_buffers(struct trainer *t)
{
    const size_t n = t->n, d = t->d, rows = t->rows_max, vocab = t->m->config.vocab,
                 act = dtype_size(t->m->compute), f = sizeof(float);
    const size_t w = mat_bytes(&(struct mat){ t->m->compute, d, d, NULL });
    t->x_back = (struct mat){ t->m->compute, d, rows, NULL };
    const struct { void *slot; size_t bytes; } buffers[] = {
        { &t->h, n * rows * d * f }, { &t->dh, rows * d * f }, { &t->dx, rows * d * f },
        { &t->part, (rows + ROW_BLOCK) / ROW_BLOCK * d * f },
        { &t->logits, n * rows * vocab * f }, { &t->dy, n * rows * d * f },
        { &t->x, n * rows * d * act }, { &t->y, n * rows * d * act },
        { &t->g, n * rows * vocab * act }, { &t->du, rows * d * act }, { &t->du_t, rows * d * act },
        { &t->loss, n * rows * sizeof *t->loss }, { &t->x_back.w, mat_bytes(&t->x_back) },
    };
    t->bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *p = t->mem ? t->mem + t->bytes : NULL;
        memcpy(buffers[i].slot, &p, sizeof p);
        t->bytes += (buffers[i].bytes + 63) / 64 * 64 + 64;
    }
    for (size_t k = 0; k < 2 * n; k++) {
        struct mat *to = k < n ? &t->w[k] : &t->w_back[k - n];
        *to = (struct mat){ t->m->compute, d, d, t->mem ? t->mem + t->bytes : NULL };
        t->bytes += (w + 63) / 64 * 64;
    }
}

static size_t rows_of_piece(const struct model *m, size_t n)
{
    const size_t rows = LOGITS_BYTES / (n * m->config.vocab * sizeof(float)) / ROW_BLOCK * ROW_BLOCK;
    return rows < ROWS_MIN ? ROWS_MIN : MIN(rows, (size_t)ROWS_MAX);
}

size_t train_heads_bytes(const struct model *m, size_t n)
{
    struct trainer t = { .m = m, .n = n, .d = m->config.hidden, .rows_max = rows_of_piece(m, n) };
    if (on_gpu(m))
        return gpu_trainer_bytes(m, n);
    assign_buffers(&t);
    return t.bytes;
}

/* ---- weights ---- */

static void heads_init(struct module *u)
{
    struct trainer *t = u->self;
    train_heads_random(u);
    for (size_t k = 0; t->first && k < t->n; k++) {
        for (size_t r = 0; r < t->d; r++)
            mat_row(&t->first->head[k].w, r, matrix_of(t, u->w, k) + r * t->d);
        memcpy(gain_of(t, u->w, k, false), t->first->head[k].norm_in, t->d * sizeof *u->w);
        memcpy(gain_of(t, u->w, k, true), t->first->head[k].norm_out, t->d * sizeof *u->w);
    }
}

static void pack_item(void *ctx, size_t i, size_t thread)
{
    const struct module *u = ctx;
    struct trainer *t = u->self;
    (void)thread;
    if (i < t->n)
        mat_pack(&t->w[i], 0, t->d, matrix_of(t, u->w, i), DT_F32);
    else
        mat_pack_columns(&t->w_back[i - t->n], 0, t->d, matrix_of(t, u->w, i - t->n), DT_F32);
}

static void heads_update(struct module *u)
{
    const struct trainer *t = u->self;
    pool_run(t->m->pool, 2 * t->n, pack_item, u);
}

/* ---- steps over the rows of a piece ---- */

static void each_block(struct piece *p, size_t rows, void (*item)(void *ctx, size_t i, size_t thread))
{
    pool_run(p->t->m->pool, (rows + ROW_BLOCK - 1) / ROW_BLOCK, item, p);
}

static void norm_in_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const size_t a = i * ROW_BLOCK, n = MIN((size_t)ROW_BLOCK, p->rows - a), act = dtype_size(t->m->compute),
                 d = t->d;
    (void)thread;
    t->m->ops->rmsnorm(t->x + (p->k * p->rows + a) * d * act, d, t->m->compute, p->prev + a * d, d,
                       gain_of(t, p->u->w, p->k, false), n, d, (float)t->m->config.rms_eps);
    memcpy(t->h + (p->k * p->rows + a) * d, p->prev + a * d, n * d * sizeof *t->h);
}

static void norm_out_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const size_t a = i * ROW_BLOCK, n = MIN((size_t)ROW_BLOCK, p->rows - a), act = dtype_size(t->m->compute),
                 d = t->d, at = p->k * p->rows + a;
    (void)thread;
    t->m->ops->rmsnorm(t->y + at * d * act, d, t->m->compute, t->h + at * d, d,
                       gain_of(t, p->u->w, p->k, true), n, d, (float)t->m->config.rms_eps);
}

/* The losses of all heads. A row without a token to predict has no gradient. */
static void loss_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    const struct trainer *t = p->t;
    const size_t vocab = t->m->config.vocab, act = dtype_size(t->m->compute);
    (void)thread;
    for (size_t j = i * ROW_BLOCK; j < MIN((i + 1) * ROW_BLOCK, t->n * p->rows); j++) {
        const size_t k = j / p->rows, at = p->r0 + j % p->rows;
        char *g = p->add ? t->g + j * vocab * act : NULL;
        if (at < positions(p->win, k))
            t->m->ops->xent(g, t->m->compute, t->logits + j * vocab, vocab, (size_t)p->win->token[at + 2 + k],
                            &t->loss[j]);
        else if (g)
            memset(g, 0, vocab * act);
    }
}

/* dh (+)= the gradient through the output norm. Also round dh to the operand du of the products that
 * follow, and transpose du to du_t. */
static void back_out_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    struct trainer *t = p->t;
    const size_t a = i * ROW_BLOCK, n = MIN((size_t)ROW_BLOCK, p->rows - a), d = t->d,
                 at = p->k * p->rows + a, act = dtype_size(t->m->compute);
    (void)thread;
    memset(t->part + i * d, 0, d * sizeof(float));
    t->m->ops->rmsnorm_back(t->dh + a * d, d, p->add, t->part + i * d, t->dy + at * d, d, t->h + at * d,
                            gain_of(t, p->u->w, p->k, true), n, d, (float)t->m->config.rms_eps);
    t->m->ops->round(t->du + a * d * act, t->m->compute, t->dh + a * d, 1, n * d);
    for (size_t r = a; r < a + n; r++)
        for (size_t j = 0; j < d; j++)
            if (act == 2)
                ((uint16_t *)(void *)t->du_t)[j * p->rows + r] = ((uint16_t *)(void *)t->du)[r * d + j];
            else
                ((float *)(void *)t->du_t)[j * p->rows + r] = ((float *)(void *)t->du)[r * d + j];
}

static void back_in_item(void *ctx, size_t i, size_t thread)
{
    const struct piece *p = ctx;
    struct trainer *t = p->t;
    const size_t a = i * ROW_BLOCK, n = MIN((size_t)ROW_BLOCK, p->rows - a), d = t->d;
    (void)thread;
    memset(t->part + i * d, 0, d * sizeof(float));
    t->m->ops->rmsnorm_back(t->dh + a * d, d, true, t->part + i * d, t->dx + a * d, d, p->prev + a * d,
                            gain_of(t, p->u->w, p->k, false), n, d, (float)t->m->config.rms_eps);
}

/* Add the gradient of a gain, which each block summed over its rows. */
static void add_parts(const struct piece *p, float *gain)
{
    for (size_t b = 0; b < (p->rows + ROW_BLOCK - 1) / ROW_BLOCK; b++)
        for (size_t j = 0; j < p->t->d; j++)
            gain[j] += p->t->part[b * p->t->d + j];
}

/* ---- a window ---- */

/* The input of head k: the output of head k - 1 in a chain, otherwise the hidden states of the model. */
static const float *input_of(const struct piece *p, size_t k)
{
    return p->t->chained && k > 0 ? p->t->h + (k - 1) * p->rows * p->t->d : p->win->hidden + p->r0 * p->t->d;
}

static void forward(struct piece *p)
{
    struct trainer *t = p->t;
    const size_t d = t->d, act = dtype_size(t->m->compute);
    for (p->k = 0; p->k < t->n; p->k++) {
        p->prev = input_of(p, p->k);
        each_block(p, p->rows, norm_in_item);
        model_product(t->m, t->h + p->k * p->rows * d, t->x + p->k * p->rows * d * act, p->rows, &t->w[p->k],
                      true);
        each_block(p, p->rows, norm_out_item);
    }
}

static void backward(struct piece *p, float weight)
{
    struct trainer *t = p->t;
    const struct model *m = t->m;
    const size_t d = t->d, act = dtype_size(m->compute);
    t->x_back.k = p->rows;
    for (p->k = t->n; p->k-- > 0;) {
        const size_t count = positions(p->win, p->k);
        float *dy = t->dy + p->k * p->rows * d;
        p->prev = input_of(p, p->k);
        m->ops->round(dy, DT_F32, dy, count ? weight / (float)count : 0, p->rows * d);
        p->add = t->chained && p->k + 1 < t->n;
        each_block(p, p->rows, back_out_item);
        add_parts(p, gain_of(t, p->u->grad, p->k, true));
        if (p->rows % 2)
            memset(t->x_back.w, 0, mat_bytes(&t->x_back));
        mat_pack_columns(&t->x_back, 0, p->rows, t->x + p->k * p->rows * d * act, m->compute);
        model_product(m, matrix_of(t, p->u->grad, p->k), t->du_t, d, &t->x_back, true);
        model_product(m, t->dx, t->du, p->rows, &t->w_back[p->k], false);
        each_block(p, p->rows, back_in_item);
        add_parts(p, gain_of(t, p->u->grad, p->k, false));
    }
}

static void heads_window(struct module *u, const struct train_window *win, float weight,
                         struct train_score *score)
{
    struct trainer *t = u->self;
    const struct model *m = t->m;
    for (size_t r0 = 0; r0 < positions(win, 0); r0 += t->rows_max) {
        struct piece p = { .t = t, .u = u, .win = win, .r0 = r0,
                           .rows = MIN(t->rows_max, positions(win, 0) - r0) };
        const size_t n = t->n * p.rows;
        double at[HEADS_TIMES + 1] = { clock_seconds() };
        forward(&p);
        at[1] = clock_seconds();
        model_product(m, t->logits, t->y, n, &m->lm_head, false);
        at[2] = clock_seconds();
        p.add = weight != 0;                 /* loss_item also computes gradients */
        each_block(&p, n, loss_item);
        train_heads_score(t, win, r0, p.rows, t->loss, score);
        at[3] = at[4] = at[5] = clock_seconds();
        if (weight != 0) {
            model_product(m, t->dy, t->g, n, &t->back->mat, false);
            at[4] = clock_seconds();
            backward(&p, weight);
            at[5] = clock_seconds();
        }
        for (size_t i = 0; i < HEADS_TIMES; i++)
            t->seconds[i] += at[i + 1] - at[i];
    }
}

/* ---- the module ---- */

static const struct module_kind heads_kind = { .init = heads_init, .update = heads_update,
                                               .window = heads_window, .save = train_heads_save };

int train_heads_open(struct module *u, const struct model *m, const struct lm_back *back, size_t n,
                     bool chained, uint64_t seed, const struct heads *first, struct err *e)
{
    const size_t d = m->config.hidden;
    struct trainer *t = calloc(1, sizeof *t);
    assert(n >= 1 && n <= HEADS_MAX && n <= TRAIN_OUTPUTS_MAX &&
           (!first || (first->n == n && first->chained == chained)));
    if (!t)
        return err_set(e, ERR_FAILED, "out of memory for training %zu heads", n);
    *t = (struct trainer){ .m = m, .back = back, .n = n, .d = d, .rows_max = rows_of_piece(m, n),
                           .seed = seed, .chained = chained, .first = first };
    if (on_gpu(m)) {
        if (gpu_trainer_open(t, e)) {
            gpu_trainer_close(t);
            free(t);
            return -1;
        }
    } else {
        assign_buffers(t);
        t->mem = mem_alloc(t->bytes);
        if (!t->mem) {
            err_set(e, ERR_FAILED, "out of memory for training %zu heads (%zu bytes)", n, t->bytes);
            free(t);
            return -1;
        }
        assign_buffers(t);
    }
    u->kind = t->gpu ? &train_heads_gpu_kind : &heads_kind;
    u->self = t;
    u->n_outputs = n;
    u->n_matrix = n * d * d;
    u->n_params = u->n_matrix + 2 * n * d;
    return 0;
}

void train_heads_close(struct module *u)
{
    struct trainer *t = u->self;
    if (t) {
        mem_free(t->mem, t->bytes);
        gpu_trainer_close(t);
    }
    free(t);
    u->self = NULL;
}

const double *train_heads_seconds(const struct module *u)
{
    return ((const struct trainer *)u->self)->seconds;
}
