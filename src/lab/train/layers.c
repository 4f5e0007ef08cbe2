/* Layers of trained drafters (layers.h). On the CPU products go through the twins; attention is products and
 * softmax over blocks of queries. Start at linear_backward and attend_head. */
#include "src/lab/train/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/lab/train/layers_impl.h"

/* Rows of an item of the pool; queries of a block. */
enum { ROW_BLOCK = 16, QUERIES = 64 };

/* ---- memory ---- */

size_t params_take(struct layers *l, size_t n)
{
    l->n_params += n;
    return l->n_params - n;
}

void linear_take(struct layers *l, struct linear *x, size_t n, size_t k)
{
    assert(l->n_linears < LINEARS_MAX);
    *x = (struct linear){ .n = n, .k = k, .at = params_take(l, n * k), .bias = LINEAR_NO_BIAS };
    l->linear[l->n_linears++] = x;
}

void linear_take_bias(struct layers *l, struct linear *x) { x->bias = params_take(l, x->n); }

void layers_take(struct layers *l, struct arena *a)
{
    const enum dtype act = l->m->compute;
    const size_t rows = l->rows_max, vocab = l->vocab, size = dtype_size(act), f = sizeof(float);
    size_t widest = l->d;
    for (size_t i = 0; i < l->n_linears; i++)
        widest = MAX(widest, MAX(l->linear[i]->n, l->linear[i]->k));
    TAKE(a, { &l->dy, rows * widest * size }, { &l->dn, rows * l->d * f },
         { &l->logits, l->lm_rows * vocab * f }, { &l->g, l->lm_rows * vocab * size });
    if (l->gpu) {
        layers_gpu_take(l, a);
        return;
    }
    TAKE(a, { &l->dy_t, rows * widest * size }, { &l->attention, l->attention_bytes },
         { &l->x_back, mat_bytes(&(struct mat){ act, widest, rows, NULL }) });
    if (l->threads)
        TAKE(a, { &l->part, (rows + ROW_BLOCK) / ROW_BLOCK * l->d * f });
    if (l->distributions)
        TAKE(a, { &l->p, l->lm_rows * vocab * f }, { &l->mixed, l->lm_rows * sizeof *l->mixed });
    for (size_t i = 0; i < l->n_linears; i++) {
        struct linear *x = l->linear[i];
        x->w = (struct mat){ act, x->n, x->k, NULL };
        x->back = (struct mat){ act, x->k, x->n, NULL };
        TAKE(a, { &x->w.w, mat_bytes(&x->w) }, { &x->back.w, mat_bytes(&x->back) });
    }
}

/* ---- linear maps ---- */

/* The arguments of an item of the pool. */
struct item {
    const struct layers *l;
    const float *x, *p; float *y; void *to; float omega;
    size_t n, at;
    bool add;
};

/* The rows of item i. */
static size_t rows_of(const struct layers *l, size_t i)
{
    return MIN((size_t)ROW_BLOCK, l->rows - i * ROW_BLOCK);
}

static void each_block(struct item x, void (*f)(void *ctx, size_t i, size_t thread))
{
    pool_run(x.l->m->pool, (x.l->rows + ROW_BLOCK - 1) / ROW_BLOCK, f, &x);
}

static void update_item(void *ctx, size_t i, size_t thread)
{
    const struct item *x = ctx;
    const struct linear *w = x->l->linear[i / 2];
    struct mat mat = i % 2 ? w->back : w->w;
    (void)thread;
    (i % 2 ? mat_pack_columns : mat_pack)(&mat, 0, w->n, x->p + w->at, DT_F32);
}

void layers_update(const struct layers *l, const float *params)
{
    struct item x = { .l = l, .p = params };
    if (l->gpu)
        layers_gpu_update(l, params);
    else
        pool_run(l->m->pool, 2 * l->n_linears, update_item, &x);
}

void layers_copy(const struct layers *l, float *to, const float *from)
{
    const size_t bytes = l->rows * l->d * sizeof *to;
    if (l->gpu)
        l->m->dev->copy(l->m->dev, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static const void *gpu_matrix(const struct layers *l, const struct linear *w)
{
    return (const char *)l->gpu->w16 + w->at * 2;
}

void linear_forward(const struct layers *l, const struct linear *w, float *y, const void *x, bool add)
{
    if (l->gpu) {
        assert(w->bias == LINEAR_NO_BIAS);
        device_gemm(l->m->dev, &(struct device_gemm){ .c = y, .a = x, .b = gpu_matrix(l, w), .m = l->rows,
                                                      .n = w->n, .k = w->k, .b_t = true, .add = add });
        return;
    }
    model_product(l->m, y, x, l->rows, &w->w, add);
    for (size_t r = 0; w->bias != LINEAR_NO_BIAS && r < l->rows; r++)
        for (size_t i = 0; i < w->n; i++)
            y[r * w->n + i] += l->params[w->bias + i];
}

/* Rounds rows of dy to operands, and transposes them to dy_t [n][rows]. */
static void operand_item(void *ctx, size_t i, size_t thread)
{
    const struct item *x = ctx;
    const struct layers *l = x->l;
    const enum dtype act = l->m->compute;
    const size_t a = i * ROW_BLOCK, n = x->n, rows = l->rows;
    (void)thread;
    l->m->ops->round(l->dy + a * n * dtype_size(act), act, x->x + a * n, 1, rows_of(l, i) * n);
    for (size_t r = a; r < a + rows_of(l, i); r++)
        for (size_t j = 0; j < n; j++)
            if (act == DT_BF16)
                ((uint16_t *)(void *)l->dy_t)[j * rows + r] = ((uint16_t *)(void *)l->dy)[r * n + j];
            else
                ((float *)(void *)l->dy_t)[j * rows + r] = ((float *)(void *)l->dy)[r * n + j];
}

void linear_backward(const struct layers *l, const struct linear *w, const float *dy, const void *x,
                     float *dx, bool add)
{
    if (l->gpu) {
        struct device *dev = l->m->dev;
        dev->narrow(dev, l->dy, dy, l->rows * w->n);
        device_gemm(dev, &(struct device_gemm){ .c = l->grad + w->at, .a = l->dy, .b = x, .m = w->n,
                                                .n = w->k, .k = l->rows, .a_t = true, .add = true });
        if (dx)
            device_gemm(dev, &(struct device_gemm){ .c = dx, .a = l->dy, .b = gpu_matrix(l, w), .m = l->rows,
                                                    .n = w->k, .k = w->n, .add = add });
        return;
    }
    struct mat x_back = { l->m->compute, w->k, l->rows, l->x_back };
    each_block((struct item){ .l = l, .x = dy, .n = w->n }, operand_item);
    if (l->rows % 2)                     /* the padding column must be zero */
        memset(l->x_back, 0, mat_bytes(&x_back));
    mat_pack_columns(&x_back, 0, l->rows, x, l->m->compute);
    model_product(l->m, l->grad + w->at, l->dy_t, w->n, &x_back, true);
    for (size_t r = 0; w->bias != LINEAR_NO_BIAS && r < l->rows; r++)
        for (size_t i = 0; i < w->n; i++)
            l->grad[w->bias + i] += dy[r * w->n + i];
    if (dx)
        model_product(l->m, dx, l->dy, l->rows, &w->back, add);
}

/* ---- norms and rotations ---- */

static void norm_item(void *ctx, size_t i, size_t thread)
{
    const struct item *x = ctx;
    const struct layers *l = x->l;
    const size_t a = i * ROW_BLOCK * l->d;
    (void)thread;
    l->m->ops->rmsnorm((char *)x->to + a * dtype_size(l->m->compute), l->d, l->m->compute, x->x + a, l->d,
                       l->params + x->at, rows_of(l, i), l->d, (float)l->m->config.rms_eps);
}

void norm_forward(const struct layers *l, void *y, const float *x, size_t at)
{
    if (l->gpu)
        l->m->dev->rmsnorm(l->m->dev, y, x, l->params + at, l->rows, l->d, (float)l->m->config.rms_eps,
                           SIZE_MAX);
    else
        each_block((struct item){ .l = l, .x = x, .to = y, .at = at }, norm_item);
}

static void norm_back_item(void *ctx, size_t i, size_t thread)
{
    const struct item *x = ctx;
    const struct layers *l = x->l;
    const size_t d = l->d, a = i * ROW_BLOCK * d;
    (void)thread;
    memset(l->part + i * d, 0, d * sizeof(float));
    l->m->ops->rmsnorm_back(x->y + a, d, x->add, l->part + i * d, x->p + a, d, x->x + a, l->params + x->at,
                            rows_of(l, i), d, (float)l->m->config.rms_eps);
}

void norm_backward(const struct layers *l, float *dx, float *dy, const float *x, size_t at, float weight,
                   bool add)
{
    const size_t d = l->d, n = l->rows * d;
    if (l->gpu) {
        device_norm_back(l->m->dev, &(struct device_norm_back){
            .dx = dx, .dw = l->grad + at, .dy = dy, .x = x, .w = l->params + at, .scale = l->gpu->scale,
            .rows = l->rows, .dim = d, .eps = (float)l->m->config.rms_eps, .weight = weight, .add = add });
        return;
    }
    if (weight != 1)
        l->m->ops->round(dy, DT_F32, dy, weight, n);
    if (!l->threads) {
        l->m->ops->rmsnorm_back(dx, d, add, l->grad + at, dy, d, x, l->params + at, l->rows, d,
                                (float)l->m->config.rms_eps);
        return;
    }
    each_block((struct item){ .l = l, .x = x, .p = dy, .y = dx, .at = at, .add = add }, norm_back_item);
    for (size_t b = 0; b < (l->rows + ROW_BLOCK - 1) / ROW_BLOCK; b++)
        for (size_t j = 0; j < d; j++)
            l->grad[at + j] += l->part[b * d + j];
}

void rotate(const struct layers *l, float *x, size_t ldx, size_t heads, const float *cos, const float *sin,
            bool back)
{
    const size_t dim = l->m->config.head_dim, half = l->m->config.rotary / 2;
    float angle[HEAD_DIM_MAX / 2];
    for (size_t r = 0; r < l->rows; r++) {
        for (size_t i = 0; i < half; i++)
            angle[i] = back ? -sin[r * half + i] : sin[r * half + i];
        for (size_t h = 0; h < heads; h++)
            l->m->ops->rope(x + r * ldx + h * dim, cos + r * half, angle, 2 * half);
    }
}

/* ---- the LM head and losses ---- */

int layers_mat_read(const struct model *m, const struct mat *mat, const int32_t *row, size_t n, float *rows,
                    char *act, struct err *e)
{
    enum { STEP = 256 };
    const size_t d = m->config.hidden;
    struct workspace *w;
    int32_t some[STEP];
    if (workspace_open(&w, m, STEP, KV_BLOCK, e))
        return -1;
    for (size_t r = 0, k; r < n && !*m->dev->error; r += k) {
        k = MIN((size_t)STEP, n - r);
        for (size_t i = 0; i < k; i++)
            some[i] = row ? row[r + i] : (int32_t)(r + i);
        model_mat_rows(m, w, mat, some, k, rows ? rows + r * d : NULL,
                       act ? act + r * d * dtype_size(m->compute) : NULL);
    }
    workspace_close(w);
    return *m->dev->error ? err_set(e, ERR_FAILED, "%s: %s", m->dev->name, m->dev->error) : 0;
}

static int lm_back_open_gpu(struct lm_back *b, const struct model *m, size_t n, struct err *e)
{
    const size_t d = m->config.hidden;
    struct device *dev = m->dev;
    b->mat = (struct mat){ DT_BF16, n, d, NULL };
    b->bytes = n * d * 2;
    b->dev = dev;
    if (!(b->mat.w = dev->alloc(dev, b->bytes)))
        return err_set(e, ERR_FAILED, "out of memory for the LM head (%zu bytes on %s)", b->bytes, dev->name);
    return layers_mat_read(m, &m->lm_head, b->vocab ? b->vocab->id : NULL, n, NULL, b->mat.w, e);
}

/* Packs the n rows as columns. */
static int lm_back_open_host(struct lm_back *b, const struct model *m, size_t n, struct err *e)
{
    enum { STEP = 64 };
    const size_t d = m->config.hidden;
    const int32_t *id = b->vocab ? b->vocab->id : NULL;
    b->mat = (struct mat){ m->compute, d, n, NULL };
    b->bytes = mat_bytes(&b->mat);
    float *rows = malloc(STEP * d * sizeof *rows);
    b->mat.w = rows ? mem_alloc(b->bytes) : NULL;
    if (!b->mat.w) {
        free(rows);
        return err_set(e, ERR_FAILED, "out of memory for the LM head (%zu bytes)", b->bytes);
    }
    for (size_t v = 0, some; v < n; v += some) {
        some = MIN((size_t)STEP, n - v);
        for (size_t i = 0; i < some; i++)
            mat_row(&m->lm_head, id ? (size_t)id[v + i] : v + i, rows + i * d);
        mat_pack_columns(&b->mat, v, some, rows, DT_F32);
    }
    free(rows);
    return b->vocab ? draft_vocab_gather(b->vocab, m, false, e) : 0;
}

int lm_back_open(struct lm_back *b, const struct model *m, struct draft_vocab *vocab, struct err *e)
{
    const size_t all = m->config.vocab, n = vocab && vocab->n ? vocab->n : all;
    *b = (struct lm_back){ .vocab = n < all ? vocab : NULL };
    if (b->vocab) {
        if (!(b->row = malloc(all * sizeof *b->row)))
            return err_set(e, ERR_FAILED, "out of memory for a vocabulary of %zu tokens", all);
        for (size_t i = 0; i < all; i++)
            b->row[i] = LM_OUTSIDE;
        for (size_t i = 0; i < n; i++)
            b->row[vocab->id[i]] = (int32_t)i;
    }
    return m->dev && !m->dev->host_memory ? lm_back_open_gpu(b, m, n, e) : lm_back_open_host(b, m, n, e);
}

void lm_back_close(struct lm_back *b)
{
    if (b->dev)
        b->dev->free(b->dev, b->mat.w, b->bytes);
    else
        mem_free(b->mat.w, b->bytes);
    free(b->row);
    *b = (struct lm_back){ 0 };
}

/* y = LMHead x on the host. */
static void lm_product(const struct layers *l, float *y, const void *x, size_t n)
{
    model_product(l->m, y, x, n, l->back->vocab ? &l->back->vocab->head : &l->m->lm_head, false);
}

void lm_forward(const struct layers *l, const void *x, size_t n)
{
    if (l->gpu)
        device_gemm(l->m->dev, &(struct device_gemm){ .c = l->logits, .a = x, .b = l->back->mat.w, .m = n,
                                                      .n = l->vocab, .k = l->d, .b_t = true });
    else
        lm_product(l, l->logits, x, n);
}

void lm_backward(const struct layers *l, float *dx, size_t n)
{
    if (l->gpu)
        device_gemm(l->m->dev, &(struct device_gemm){ .c = dx, .a = l->g, .b = l->back->mat.w, .m = n,
                                                      .n = l->d, .k = l->vocab });
    else
        model_product(l->m, dx, l->g, n, &l->back->mat, false);
}

/* The cross-entropy of row r, or with p its mixed loss. Rows of the LM head are items of their own: they are
 * long. */
static void loss_item(void *ctx, size_t r, size_t thread)
{
    const struct item *x = ctx;
    const struct layers *l = x->l;
    const enum dtype act = l->m->compute;
    const size_t vocab = l->vocab, bytes = vocab * dtype_size(act), target = (size_t)l->target[r];
    char *g = x->add ? l->g + r * bytes : NULL;
    float *logits = l->logits + r * vocab;
    (void)thread;
    if (l->target[r] >= 0 && x->p)
        l->m->ops->mixed(g, act, logits, x->p + r * vocab, vocab, target, x->omega, &l->mixed[r]);
    else if (l->target[r] >= 0)
        l->m->ops->xent(g, act, logits, vocab, target, &l->loss[r]);
    else if (x->p)
        l->mixed[r] = (struct mixed){ 0 };
    if (l->target[r] < 0 && g)
        memset(g, 0, bytes);
}

void lm_xent(const struct layers *l, size_t n, bool gradient)
{
    const struct layers_gpu *o = l->gpu;
    if (!o) {
        pool_run(l->m->pool, n, loss_item, &(struct item){ .l = l, .add = gradient });
        return;
    }
    o->dev->upload(o->dev, o->target, l->target, n * sizeof *o->target);
    device_xent(o->dev, o->loss, gradient ? l->g : NULL, l->logits, o->target, n, l->vocab);
}

const struct xent *lm_losses(const struct layers *l, size_t n)
{
    const struct layers_gpu *o = l->gpu;
    return o && o->dev->download(o->dev, l->loss, o->loss, n * sizeof *o->loss) ? NULL : l->loss;
}

static void distribution_item(void *ctx, size_t r, size_t thread)
{
    const struct layers *l = ((const struct item *)ctx)->l;
    const size_t vocab = l->vocab;
    (void)thread;
    l->m->ops->softmax(l->g + r * vocab * dtype_size(l->m->compute), l->m->compute, l->p + r * vocab, 0,
                       vocab, vocab, 1);
}

void lm_distribution(const struct layers *l, const void *x, size_t n)
{
    lm_product(l, l->p, x, n);
    pool_run(l->m->pool, n, distribution_item, &(struct item){ .l = l });
}

void lm_mixed(const struct layers *l, const float *p, size_t n, float omega, bool gradient)
{
    pool_run(l->m->pool, n, loss_item, &(struct item){ .l = l, .p = p, .omega = omega, .add = gradient });
}

/* ---- attention ---- */

/* The keys and values of a KV head, packed; and the scratch of a thread. */
struct head_mats { struct mat k, k_back, v, v_back; };
struct scratch { float *s, *dp, *out; char *q, *p, *ds, *t; struct mat rows; };

struct job { const struct layers *l; const struct attention *a; bool back; };

static size_t even(size_t n) { return n + n % 2; }
/* Assigns the parts of a thread's scratch in mem and returns their bytes; mem NULL: counts them. */
static size_t assign(struct head_mats *h, struct scratch *s, enum dtype act, size_t rows, size_t dim,
                     char *mem)
{
    const size_t a = dtype_size(act), wide = even(rows);
    struct arena arena = { mem, 0 };
    h->k = h->v = (struct mat){ act, rows, dim, NULL };
    h->k_back = h->v_back = (struct mat){ act, dim, rows, NULL };
    s->rows = (struct mat){ act, dim, QUERIES, NULL };
    TAKE(&arena, { &h->k.w, mat_bytes(&h->k) }, { &h->k_back.w, mat_bytes(&h->k_back) },
         { &h->v.w, mat_bytes(&h->v) }, { &h->v_back.w, mat_bytes(&h->v_back) },
         { &s->rows.w, mat_bytes(&s->rows) },
         { &s->s, QUERIES * wide * sizeof(float) }, { &s->dp, QUERIES * wide * sizeof(float) },
         { &s->out, QUERIES * dim * sizeof(float) }, { &s->q, QUERIES * dim * a },
         { &s->p, QUERIES * wide * a }, { &s->ds, QUERIES * wide * a }, { &s->t, QUERIES * wide * a });
    return arena.at;
}

void attention_take(struct layers *l, const struct attention *a)
{
    struct head_mats h;
    struct scratch s;
    l->attention_bytes = MAX(l->attention_bytes, pool_threads(l->m->pool) *
                                 assign(&h, &s, l->m->compute, l->rows_max, a->head_dim, NULL));
}

/* y [n][w->n] = (add ? y : 0) + x w, on the calling thread. */
static void product(const struct model *m, float *y, size_t ldy, const void *x, size_t ldx, size_t n,
                    const struct mat *w, bool add)
{
    m->ops->matmul(y, ldy, m->compute, x, ldx, n, w, NULL, add, 0, mat_panels(w));
}

static void visible(const struct attention *a, size_t r, size_t *lo, size_t *hi)
{
    *hi = r + 1 - MIN(a->offset, r + 1);
    *lo = a->window && *hi > a->window ? *hi - a->window : 0;
}

/* Rounds one head of n rows of x, ldx floats apart, to the operand s->q. */
static const void *operand(const struct model *m, const struct scratch *s, const float *x, size_t ldx,
                           size_t n, size_t dim)
{
    for (size_t r = 0; r < n; r++)
        m->ops->round(s->q + r * dim * dtype_size(m->compute), m->compute, x + r * ldx, 1, dim);
    return s->q;
}

/* acc [rows][dim] += x^T y for the operands x [n][wide] and y, n rows of a head in rows of ldy floats. */
static void add_outer(const struct job *j, const struct scratch *s, float *acc, const char *x, const float *y,
                      size_t ldy, size_t n)
{
    const struct model *m = j->l->m;
    const size_t dim = j->a->head_dim, rows = j->l->rows, wide = even(rows), size = dtype_size(m->compute);
    struct mat w = s->rows;
    w.k = n;
    if (n % 2)
        memset(w.w, 0, mat_bytes(&w));
    for (size_t r = 0; r < n; r++)
        memcpy(s->out + r * dim, y + r * ldy, dim * sizeof *y);
    mat_pack_columns(&w, 0, n, s->out, DT_F32);
    for (size_t c = 0; c < rows; c++)    /* x^T, [rows][n], with an even row */
        for (size_t r = 0; r < even(n); r++) {
            char *to = s->t + (c * even(n) + r) * size;
            if (r < n)
                memcpy(to, x + (r * wide + c) * size, size);
            else
                memset(to, 0, size);
        }
    product(m, acc, dim, s->t, even(n), rows, &w, true);
}

/* n queries of one head, from r0 on. Their weights: s->s as floats, s->p as operands. */
static void attend_queries(const struct job *j, const struct head_mats *h, const struct scratch *s, size_t kv,
                           size_t head, size_t r0, size_t n)
{
    const struct attention *a = j->a;
    const struct model *m = j->l->m;
    const size_t dim = a->head_dim, rows = j->l->rows, wide = even(rows), ld = a->heads * dim,
                 size = dtype_size(m->compute);
    const float *q = a->q + head * dim, scale = 1.0f / sqrtf((float)dim);
    product(m, s->s, wide, operand(m, s, q + r0 * ld, ld, n, dim), dim, n, &h->k, false);
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        visible(a, r0 + r, &lo, &hi);
        m->ops->softmax(s->p + r * wide * size, m->compute, s->s + r * wide, lo, hi, wide, scale);
    }
    if (!j->back) {
        product(m, a->out + r0 * ld + head * dim, ld, s->p, wide, n, &h->v_back, false);
        return;
    }
    const float *dout = a->dout + r0 * ld + head * dim;
    if (a->dk)
        add_outer(j, s, a->dv + kv * rows * dim, s->p, dout, ld, n);
    product(m, s->dp, wide, operand(m, s, dout, ld, n, dim), dim, n, &h->v, false);
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        visible(a, r0 + r, &lo, &hi);
        m->ops->softmax_back(s->ds + r * wide * size, m->compute, s->s + r * wide, s->dp + r * wide, lo, hi,
                             wide, scale);
    }
    product(m, a->dq + r0 * ld + head * dim, ld, s->ds, wide, n, &h->k_back, false);
    if (a->dk)
        add_outer(j, s, a->dk + kv * rows * dim, s->ds, q + r0 * ld, ld, n);
}

/* One KV head with all query heads of its group. */
static void attend_head(void *ctx, size_t kv, size_t thread)
{
    const struct job *j = ctx;
    const struct attention *a = j->a;
    const size_t rows = j->l->rows, dim = a->head_dim, group = a->heads / a->kv_heads;
    const float *k = a->k + kv * rows * dim, *v = a->v + kv * rows * dim;
    struct head_mats h;
    struct scratch s;
    const size_t bytes = assign(&h, &s, j->l->m->compute, rows, dim, NULL);
    char *mem = j->l->attention + thread * bytes;
    memset(mem, 0, bytes);               /* padding of packed matrices is zero */
    assign(&h, &s, j->l->m->compute, rows, dim, mem);
    mat_pack(&h.k, 0, rows, k, DT_F32);
    mat_pack_columns(&h.k_back, 0, rows, k, DT_F32);
    mat_pack(&h.v, 0, rows, v, DT_F32);
    mat_pack_columns(&h.v_back, 0, rows, v, DT_F32);
    if (j->back && a->dk) {
        memset(a->dk + kv * rows * dim, 0, rows * dim * sizeof(float));
        memset(a->dv + kv * rows * dim, 0, rows * dim * sizeof(float));
    }
    for (size_t g = 0; g < group; g++)
        for (size_t r0 = 0; r0 < rows; r0 += QUERIES)
            attend_queries(j, &h, &s, kv, kv * group + g, r0, MIN((size_t)QUERIES, rows - r0));
}

void attention_forward(const struct layers *l, const struct attention *a)
{
    pool_run(l->m->pool, a->kv_heads, attend_head, &(struct job){ l, a, false });
}

void attention_backward(const struct layers *l, const struct attention *a)
{
    pool_run(l->m->pool, a->kv_heads, attend_head, &(struct job){ l, a, true });
}
