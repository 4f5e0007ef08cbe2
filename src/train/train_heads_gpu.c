/* Training of heads on a GPU: the pieces and steps of train_heads.c, with all arrays in the memory of the
 * GPU. Master weights, gradients and moments are floats; operands of products are bf16. struct gpu_trainer
 * owns the buffers. The host's copy of weights and moments is updated for checkpoints and at the end.
 * Start at gpu_window. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device_train.h"
#include "src/train/train_heads_impl.h"

/* Rows of a piece; rows of a matrix that are read at a time. */
enum { ROWS_MAX = 2048, ROWS_MIN = 64, ROW_STEP = 64, READ_ROWS = 256 };
#define LOGITS_BYTES ((size_t)1 << 30)                   /* limit for the logits of a piece */

struct gpu_trainer {
    struct device *dev;
    float *first;                /* on the host: the first weights, or NULL */
    struct xent *loss_host; int32_t *target_host;        /* on the host: [n * rows] */
    char *mem; size_t bytes;
    /* On the device, with shapes as in struct trainer: */
    float *p[4];                 /* weights, gradient, moments: [n_params] each, contiguous */
    void *w16;                   /* bf16 [n][d][d] */
    float *h, *dh, *dx, *logits, *dy, *scale;
    char *x, *y, *g, *du;        /* bf16 */
    int32_t *target; struct xent *loss; double *part;
};
enum { W, GRAD, M, V };

static size_t params(const struct trainer *t) { return t->n * (t->d * t->d + 2 * t->d); }

/* ---- memory ---- */

/* Assign the buffers in o->mem, and set o->bytes to their size; o->mem NULL: only set o->bytes. */
static void assign_buffers(const struct trainer *t, struct gpu_trainer *o)
{
    const size_t d = t->d, rows = t->rows_max, all = t->n * rows, vocab = t->m->config.vocab,
                 f = sizeof(float), p = params(t);
    const struct { void *slot; size_t bytes; } buffers[] = {
        { &o->p[W], 4 * p * f }, { &o->w16, t->n * d * d * 2 }, { &o->h, all * d * f },
        { &o->dh, rows * d * f }, { &o->dx, rows * d * f },
        { &o->logits, all * vocab * f }, { &o->dy, all * d * f }, { &o->scale, rows * f },
        { &o->x, all * d * 2 }, { &o->y, all * d * 2 },
        { &o->g, all * vocab * 2 }, { &o->du, rows * d * 2 }, { &o->target, all * sizeof(int32_t) },
        { &o->loss, all * sizeof(struct xent) },
        { &o->part, device_squares_bytes(p) },
    };
    o->bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *at = o->mem ? o->mem + o->bytes : NULL;
        memcpy(buffers[i].slot, &at, sizeof at);
        o->bytes += (buffers[i].bytes + 255) / 256 * 256;
    }
    for (size_t i = 1; i < 4 && o->mem; i++)
        o->p[i] = o->p[i - 1] + p;
}

static size_t rows_of_piece(const struct model *m, size_t n)
{
    const size_t rows = LOGITS_BYTES / (n * m->config.vocab * sizeof(float)) / ROW_STEP * ROW_STEP;
    return rows < ROWS_MIN ? ROWS_MIN : MIN(rows, (size_t)ROWS_MAX);
}

size_t gpu_trainer_bytes(const struct model *m, size_t n)
{
    const struct trainer t = { .m = m, .n = n, .d = m->config.hidden, .rows_max = rows_of_piece(m, n) };
    struct gpu_trainer o = { 0 };
    assign_buffers(&t, &o);
    return o.bytes;
}

/* Read the existing heads that training starts from back from the device, where their matrices are rounded
 * to bf16. */
static int read_first(struct trainer *t, struct err *e)
{
    struct device *dev = t->gpu->dev;
    const struct heads *h = t->first;
    struct workspace *w;
    int32_t row[READ_ROWS];
    if (!(t->gpu->first = malloc(params(t) * sizeof(float))))
        return err_set(e, ERR_FAILED, "out of memory for %zu heads", t->n);
    if (workspace_open(&w, t->m, READ_ROWS, KV_BLOCK, e))
        return -1;
    for (size_t k = 0; k < t->n && !*dev->error; k++) {
        for (size_t r = 0, n; r < t->d && !*dev->error; r += n) {
            n = MIN((size_t)READ_ROWS, t->d - r);
            for (size_t i = 0; i < n; i++)
                row[i] = (int32_t)(r + i);
            model_mat_rows(t->m, w, &h->head[k].w, row, n, matrix_of(t, t->gpu->first, k) + r * t->d, NULL);
        }
        dev->download(dev, gain_of(t, t->gpu->first, k, false), h->head[k].norm_in, t->d * sizeof(float));
        dev->download(dev, gain_of(t, t->gpu->first, k, true), h->head[k].norm_out, t->d * sizeof(float));
    }
    workspace_close(w);
    return *dev->error ? err_set(e, ERR_FAILED, "%s: %s", dev->name, dev->error) : 0;
}

int gpu_trainer_open(struct trainer *t, struct err *e)
{
    struct gpu_trainer *o = calloc(1, sizeof *o);
    char why[512];
    if (!o)
        return err_set(e, ERR_FAILED, "out of memory");
    t->gpu = o;
    o->dev = t->m->dev;
    if (device_train_open(o->dev, why, sizeof why))
        return err_set(e, ERR_INPUT, "%s: %s", o->dev->name, why);
    t->rows_max = rows_of_piece(t->m, t->n);
    assign_buffers(t, o);
    o->mem = o->dev->alloc(o->dev, o->bytes);
    o->loss_host = malloc(t->n * t->rows_max * sizeof *o->loss_host);
    o->target_host = malloc(t->n * t->rows_max * sizeof *o->target_host);
    if (!o->mem || !o->loss_host || !o->target_host)
        return err_set(e, ERR_FAILED, "out of memory for training %zu heads (%zu bytes on %s)", t->n,
                       o->bytes, o->dev->name);
    assign_buffers(t, o);
    return t->first ? read_first(t, e) : 0;
}

void gpu_trainer_close(struct trainer *t)
{
    struct gpu_trainer *o = t->gpu;
    if (o) {
        o->dev->free(o->dev, o->mem, o->bytes);
        free(o->first);
        free(o->loss_host);
        free(o->target_host);
    }
    free(o);
    t->gpu = NULL;
}

int gpu_lm_open(struct lm_back *b, const struct model *m, struct err *e)
{
    const size_t d = m->config.hidden, vocab = m->config.vocab;
    struct device *dev = m->dev;
    struct workspace *w;
    int32_t row[READ_ROWS];
    *b = (struct lm_back){ .mat = { DT_BF16, vocab, d, NULL }, .bytes = vocab * d * 2, .dev = dev };
    if (!(b->mat.w = dev->alloc(dev, b->bytes)))
        return err_set(e, ERR_FAILED, "out of memory for the LM head (%zu bytes on %s)", b->bytes, dev->name);
    if (workspace_open(&w, m, READ_ROWS, KV_BLOCK, e))
        return -1;
    for (size_t v = 0, n; v < vocab && !*dev->error; v += n) {
        n = MIN((size_t)READ_ROWS, vocab - v);
        for (size_t i = 0; i < n; i++)
            row[i] = (int32_t)(v + i);
        model_mat_rows(m, w, &m->lm_head, row, n, NULL, (char *)b->mat.w + v * d * 2);
    }
    workspace_close(w);
    return *dev->error ? err_set(e, ERR_FAILED, "%s: %s", dev->name, dev->error) : 0;
}

/* ---- weights ---- */

static void gpu_init(struct module *u)
{
    const struct trainer *t = u->self;
    if (t->gpu->first)
        memcpy(u->w, t->gpu->first, u->n_params * sizeof *u->w);
    else
        train_heads_random(u);
}

static void gpu_update(struct module *u)
{
    const struct trainer *t = u->self;
    const struct gpu_trainer *o = t->gpu;
    memset(u->grad, 0, u->n_params * sizeof *u->grad);
    o->dev->upload(o->dev, o->p[W], u->w, 4 * u->n_params * sizeof *u->w);
    o->dev->narrow(o->dev, o->w16, o->p[W], u->n_matrix);
}

static int gpu_fetch(struct module *u, struct err *e)
{
    const struct gpu_trainer *o = ((const struct trainer *)u->self)->gpu;
    if (o->dev->download(o->dev, u->w, o->p[W], 4 * u->n_params * sizeof *u->w))
        return err_set(e, ERR_FAILED, "%s: %s", o->dev->name, o->dev->error);
    return 0;
}

static double gpu_squares(struct module *u)
{
    const struct gpu_trainer *o = ((const struct trainer *)u->self)->gpu;
    return device_squares(o->dev, o->p[GRAD], u->n_params, o->part);
}

static void gpu_adamw(struct module *u, const struct adamw *a)
{
    const struct gpu_trainer *o = ((const struct trainer *)u->self)->gpu;
    device_adamw(o->dev, &(struct device_weights){ o->p[W], o->p[M], o->p[V], o->p[GRAD], o->w16, u->n_params,
                                                   u->n_matrix }, a);
}

/* ---- a window ---- */

struct piece { const struct trainer *t; const struct train_window *win; size_t r0, rows; };

static const float *input_of(const struct piece *p, size_t k)
{
    const struct trainer *t = p->t;
    return t->chained && k > 0 ? t->gpu->h + (k - 1) * p->rows * t->d : p->win->hidden + p->r0 * t->d;
}

static const char *matrix16(const struct trainer *t, size_t k)
{
    return (const char *)t->gpu->w16 + k * t->d * t->d * 2;
}

static void forward(const struct piece *p)
{
    const struct trainer *t = p->t;
    const struct gpu_trainer *o = t->gpu;
    struct device *dev = o->dev;
    const size_t d = t->d, rows = p->rows;
    const float eps = (float)t->m->config.rms_eps;
    for (size_t k = 0; k < t->n; k++) {
        const float *prev = input_of(p, k);
        float *h = o->h + k * rows * d;
        char *x = o->x + k * rows * d * 2;
        dev->rmsnorm(dev, x, prev, gain_of(t, o->p[W], k, false), rows, d, eps, SIZE_MAX);
        dev->copy(dev, h, prev, rows * d * sizeof *h);
        device_gemm(dev, &(struct device_gemm){ .c = h, .a = x, .b = matrix16(t, k), .m = rows, .n = d,
                                                .k = d, .b_t = true, .add = true });
        dev->rmsnorm(dev, o->y + k * rows * d * 2, h, gain_of(t, o->p[W], k, true), rows, d, eps, SIZE_MAX);
    }
}

/* The losses, and with `gradient` the gradients of the logits. A row without a token to predict has
 * neither. */
static void losses(const struct piece *p, bool gradient)
{
    const struct trainer *t = p->t;
    const struct gpu_trainer *o = t->gpu;
    const size_t all = t->n * p->rows;
    for (size_t j = 0; j < all; j++) {
        const size_t k = j / p->rows, at = p->r0 + j % p->rows;
        o->target_host[j] = at < positions(p->win, k) ? p->win->token[at + 2 + k] : -1;
    }
    o->dev->upload(o->dev, o->target, o->target_host, all * sizeof *o->target);
    device_xent(o->dev, o->loss, gradient ? o->g : NULL, o->logits, o->target, all, t->m->config.vocab);
}

static void backward(const struct piece *p, float weight)
{
    const struct trainer *t = p->t;
    const struct gpu_trainer *o = t->gpu;
    struct device *dev = o->dev;
    const size_t d = t->d, rows = p->rows;
    const float eps = (float)t->m->config.rms_eps;
    for (size_t k = t->n; k-- > 0;) {
        const size_t count = positions(p->win, k);
        device_norm_back(dev, &(struct device_norm_back){
            .dx = o->dh, .dw = gain_of(t, o->p[GRAD], k, true), .dy = o->dy + k * rows * d,
            .x = o->h + k * rows * d, .w = gain_of(t, o->p[W], k, true), .scale = o->scale, .rows = rows,
            .dim = d, .eps = eps, .weight = count ? weight / (float)count : 0,
            .add = t->chained && k + 1 < t->n });
        dev->narrow(dev, o->du, o->dh, rows * d);
        device_gemm(dev, &(struct device_gemm){ .c = matrix_of(t, o->p[GRAD], k), .a = o->du,
                                                .b = o->x + k * rows * d * 2, .m = d, .n = d, .k = rows,
                                                .a_t = true, .add = true });
        device_gemm(dev, &(struct device_gemm){ .c = o->dx, .a = o->du, .b = matrix16(t, k), .m = rows,
                                                .n = d, .k = d });
        device_norm_back(dev, &(struct device_norm_back){
            .dx = o->dh, .dw = gain_of(t, o->p[GRAD], k, false), .dy = o->dx, .x = input_of(p, k),
            .w = gain_of(t, o->p[W], k, false), .scale = o->scale, .rows = rows, .dim = d, .eps = eps,
            .weight = 1, .add = true });
    }
}

/* train.c checks the device for errors. The times are those of the calls; only the download of the losses
 * waits for the work of the device. */
static void gpu_window(struct module *u, const struct train_window *win, float weight,
                       struct train_score *score)
{
    struct trainer *t = u->self;
    const struct gpu_trainer *o = t->gpu;
    struct device *dev = o->dev;
    const size_t d = t->d, vocab = t->m->config.vocab;
    for (size_t r0 = 0; r0 < positions(win, 0); r0 += t->rows_max) {
        const struct piece p = { t, win, r0, MIN(t->rows_max, positions(win, 0) - r0) };
        const size_t all = t->n * p.rows;
        double at[HEADS_TIMES + 1] = { clock_seconds() };
        forward(&p);
        at[1] = clock_seconds();
        device_gemm(dev, &(struct device_gemm){ .c = o->logits, .a = o->y, .b = t->back->mat.w, .m = all,
                                                .n = vocab, .k = d, .b_t = true });
        at[2] = clock_seconds();
        losses(&p, weight != 0);
        at[3] = clock_seconds();
        if (weight != 0)
            device_gemm(dev, &(struct device_gemm){ .c = o->dy, .a = o->g, .b = t->back->mat.w, .m = all,
                .n = d, .k = vocab });
        at[4] = clock_seconds();
        if (weight != 0)
            backward(&p, weight);
        if (dev->download(dev, o->loss_host, o->loss, all * sizeof *o->loss) == 0)
            train_heads_score(t, win, r0, p.rows, o->loss_host, score);
        at[5] = clock_seconds();
        for (size_t i = 0; i < HEADS_TIMES; i++)
            t->seconds[i] += at[i + 1] - at[i];
    }
}

const struct module_kind train_heads_gpu_kind = { false, gpu_init, gpu_update, gpu_window, train_heads_save,
    gpu_fetch, gpu_squares, gpu_adamw };
