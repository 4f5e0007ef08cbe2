/* Layers of trained drafters, forward and backward (layers.h). Products go through the twins; attention
 * is products and softmax over blocks of queries. Start at linear_backward and attend_head. */
#include "src/train/layers.h"

#include <math.h>
#include <string.h>

enum { ROW_BLOCK = 16, QUERIES = 64 };

/* ---- memory ---- */

size_t buffers_assign(const struct buffer *b, size_t n, char *mem, size_t at)
{
    for (size_t i = 0; i < n; i++) {
        char *p = mem ? mem + at : NULL;
        memcpy(b[i].slot, &p, sizeof p);
        at += (b[i].bytes + 63) / 64 * 64 + 64;
    }
    return at;
}

struct linear linear_at(size_t n, size_t k, size_t *at)
{
    const struct linear l = { .n = n, .k = k, .at = *at, .bias = LINEAR_NO_BIAS };
    *at += n * k;
    return l;
}

size_t linear_assign(struct linear *l, enum dtype act, char *mem, size_t at)
{
    l->w = (struct mat){ act, l->n, l->k, NULL };
    l->back = (struct mat){ act, l->k, l->n, NULL };
    const struct buffer mats[] = { { &l->w.w, mat_bytes(&l->w) }, { &l->back.w, mat_bytes(&l->back) } };
    return buffers_assign(mats, 2, mem, at);
}

size_t layers_assign(struct layers *t, size_t rows, size_t widest, char *mem, size_t at)
{
    const enum dtype act = t->m->compute;
    const struct mat x_back = { act, widest, rows, NULL };
    t->x_back_bytes = mat_bytes(&x_back);
    const struct buffer b[] = { { &t->dy, rows * widest * dtype_size(act) },
                                { &t->dy_t, rows * widest * dtype_size(act) },
                                { &t->x_back, t->x_back_bytes } };
    return buffers_assign(b, 3, mem, at);
}

/* ---- linear maps ---- */

struct update { struct linear *const *l; const float *params; };

static void update_item(void *ctx, size_t i, size_t thread)
{
    const struct update *u = ctx;
    (void)thread;
    linear_update(u->l[i], u->params);
}

void linears_update(const struct layers *t, struct linear *const *l, size_t n, const float *params)
{
    pool_run(t->m->pool, n, update_item, &(struct update){ l, params });
}

void linear_update(const struct linear *l, const float *params)
{
    struct mat w = l->w, back = l->back;
    mat_pack(&w, 0, l->n, params + l->at, DT_F32);
    mat_pack_columns(&back, 0, l->n, params + l->at, DT_F32);
}

void linear_forward(const struct layers *t, const struct linear *l, float *y, const void *x, bool add)
{
    model_product(t->m, y, x, t->rows, &l->w, add);
    for (size_t r = 0; l->bias != LINEAR_NO_BIAS && r < t->rows; r++)
        for (size_t i = 0; i < l->n; i++)
            y[r * l->n + i] += t->params[l->bias + i];
}

/* to [n][rows] = from [rows][n], both of `act`. */
static void transpose(void *to, const void *from, enum dtype act, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            if (act == DT_BF16)
                ((uint16_t *)to)[i * rows + r] = ((const uint16_t *)from)[r * n + i];
            else
                ((float *)to)[i * rows + r] = ((const float *)from)[r * n + i];
}

void linear_backward(const struct layers *t, const struct linear *l, const float *dy, const void *x,
                     float *dx, bool add)
{
    const enum dtype act = t->m->compute;
    struct mat x_back = { act, l->k, t->rows, t->x_back };
    t->m->ops->round(t->dy, act, dy, 1, t->rows * l->n);
    transpose(t->dy_t, t->dy, act, t->rows, l->n);
    if (t->rows % 2)                     /* the padding column must be zero */
        memset(t->x_back, 0, mat_bytes(&x_back));
    mat_pack_columns(&x_back, 0, t->rows, x, act);
    model_product(t->m, t->grad + l->at, t->dy_t, l->n, &x_back, true);
    for (size_t r = 0; l->bias != LINEAR_NO_BIAS && r < t->rows; r++)
        for (size_t i = 0; i < l->n; i++)
            t->grad[l->bias + i] += dy[r * l->n + i];
    if (dx)
        model_product(t->m, dx, t->dy, t->rows, &l->back, add);
}

/* ---- norms and rotations ---- */

void norm_forward(const struct layers *t, void *y, const float *x, size_t dim, size_t at)
{
    t->m->ops->rmsnorm(y, dim, t->m->compute, x, dim, t->params + at, t->rows, dim,
                       (float)t->m->config.rms_eps);
}

void norm_backward(const struct layers *t, float *dx, const float *dy, const float *x, size_t dim, size_t at)
{
    t->m->ops->rmsnorm_back(dx, dim, true, t->grad + at, dy, dim, x, t->params + at, t->rows, dim,
                            (float)t->m->config.rms_eps);
}

void rotate(const struct layers *t, float *x, size_t ldx, size_t heads, const float *cos, const float *sin,
            bool back)
{
    const size_t dim = t->m->config.head_dim, half = dim / 2;
    float angle[HEAD_DIM_MAX / 2];
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t i = 0; i < half; i++)
            angle[i] = back ? -sin[r * half + i] : sin[r * half + i];
        for (size_t h = 0; h < heads; h++)
            t->m->ops->rope(x + r * ldx + h * dim, cos + r * half, angle, dim);
    }
}

/* ---- attention ---- */

/* The keys and values of a KV head, packed; and the scratch of a thread. */
struct head_mats { struct mat k, k_back, v, v_back; };
struct scratch { float *s, *dp, *out; char *q, *p, *ds, *t; struct mat rows; };

struct job { const struct layers *t; const struct attention *a; bool back; };

static size_t even(size_t n) { return n + n % 2; }
static size_t aligned(size_t n) { return (n + 63) / 64 * 64 + 64; }

/* Assigns the parts of a thread's scratch in mem and returns their bytes; mem NULL: counts them. */
static size_t assign(struct head_mats *h, struct scratch *s, enum dtype act, size_t rows, size_t dim,
                     char *mem)
{
    const size_t a = dtype_size(act), wide = even(rows);
    h->k = h->v = (struct mat){ act, rows, dim, NULL };
    h->k_back = h->v_back = (struct mat){ act, dim, rows, NULL };
    s->rows = (struct mat){ act, dim, QUERIES, NULL };
    const struct { void *slot; size_t bytes; } part[] = {
        { &h->k.w, mat_bytes(&h->k) }, { &h->k_back.w, mat_bytes(&h->k_back) },
        { &h->v.w, mat_bytes(&h->v) }, { &h->v_back.w, mat_bytes(&h->v_back) },
        { &s->rows.w, mat_bytes(&s->rows) },
        { &s->s, QUERIES * wide * sizeof(float) }, { &s->dp, QUERIES * wide * sizeof(float) },
        { &s->out, QUERIES * dim * sizeof(float) }, { &s->q, QUERIES * dim * a },
        { &s->p, QUERIES * wide * a }, { &s->ds, QUERIES * wide * a }, { &s->t, QUERIES * wide * a },
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        char *p = mem ? mem + at : NULL;
        memcpy(part[i].slot, &p, sizeof p);
        at += aligned(part[i].bytes);
    }
    return at;
}

size_t attention_bytes(const struct model *m, const struct attention *a, size_t rows)
{
    struct head_mats h;
    struct scratch s;
    return pool_threads(m->pool) * assign(&h, &s, m->compute, rows, a->head_dim, NULL) + 64;
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

/* The weights of n queries from r0 on, of one head: s->s as floats, s->p as operands. */
static void weights(const struct job *j, const struct head_mats *h, const struct scratch *s, const float *q,
                    size_t r0, size_t n)
{
    const struct attention *a = j->a;
    const struct model *m = j->t->m;
    const size_t rows = j->t->rows, wide = even(rows), size = dtype_size(m->compute);
    const float scale = 1.0f / sqrtf((float)a->head_dim);
    product(m, s->s, wide, operand(m, s, q + r0 * a->ldq, a->ldq, n, a->head_dim), a->head_dim, n, &h->k,
            false);
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        visible(a, r0 + r, &lo, &hi);
        m->ops->softmax(s->p + r * wide * size, m->compute, s->s + r * wide, lo, hi, wide, scale);
    }
}

/* acc [rows][dim] += x^T y for the operands x [n][wide] and y, n rows of a head in rows of ldy floats. */
static void add_outer(const struct job *j, const struct scratch *s, float *acc, const char *x, const float *y,
                      size_t ldy, size_t n)
{
    const struct model *m = j->t->m;
    const size_t dim = j->a->head_dim, rows = j->t->rows, wide = even(rows), size = dtype_size(m->compute);
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

static void attend_queries(const struct job *j, const struct head_mats *h, const struct scratch *s, size_t kv,
                           size_t head, size_t r0, size_t n)
{
    const struct attention *a = j->a;
    const struct model *m = j->t->m;
    const size_t dim = a->head_dim, rows = j->t->rows, wide = even(rows), ldo = a->heads * dim,
                 size = dtype_size(m->compute);
    const float *q = a->q + head * dim, scale = 1.0f / sqrtf((float)dim);
    weights(j, h, s, q, r0, n);
    if (!j->back) {
        product(m, a->out + r0 * ldo + head * dim, ldo, s->p, wide, n, &h->v_back, false);
        return;
    }
    const float *dout = a->dout + r0 * ldo + head * dim;
    if (a->dk)
        add_outer(j, s, a->dv + kv * rows * dim, s->p, dout, ldo, n);
    product(m, s->dp, wide, operand(m, s, dout, ldo, n, dim), dim, n, &h->v, false);
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        visible(a, r0 + r, &lo, &hi);
        m->ops->softmax_back(s->ds + r * wide * size, m->compute, s->s + r * wide, s->dp + r * wide, lo, hi,
                             wide, scale);
    }
    product(m, a->dq + r0 * a->ldq + head * dim, a->ldq, s->ds, wide, n, &h->k_back, false);
    if (a->dk)
        add_outer(j, s, a->dk + kv * rows * dim, s->ds, q + r0 * a->ldq, a->ldq, n);
}

/* One KV head with all query heads of its group. */
static void attend_head(void *ctx, size_t kv, size_t thread)
{
    const struct job *j = ctx;
    const struct attention *a = j->a;
    const size_t rows = j->t->rows, dim = a->head_dim, group = a->heads / a->kv_heads;
    const float *k = a->k + kv * rows * dim, *v = a->v + kv * rows * dim;
    struct head_mats h;
    struct scratch s;
    const size_t bytes = assign(&h, &s, j->t->m->compute, rows, dim, NULL);
    char *mem = a->scratch + thread * bytes;
    memset(mem, 0, bytes);               /* padding of packed matrices is zero */
    assign(&h, &s, j->t->m->compute, rows, dim, mem);
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

void attention_forward(const struct layers *t, const struct attention *a)
{
    pool_run(t->m->pool, a->kv_heads, attend_head, &(struct job){ t, a, false });
}

void attention_backward(const struct layers *t, const struct attention *a)
{
    pool_run(t->m->pool, a->kv_heads, attend_head, &(struct job){ t, a, true });
}
