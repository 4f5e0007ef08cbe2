/* The forward pass, written once against the table of operations, for a list of (cache, rows). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/model.h"

enum {
    SLAB_ROWS = 64,                  /* rows of a sequence whose attention is worked on together */
    ROWS_ALONE = 8,                  /* fewer rows than this are not worth waking threads for in the small steps */
    ROWS_PIECE = 4,
};
#define PART_BYTES ((size_t)48 << 20)    /* bound on the chunk states of a slab */

struct workspace {
    size_t rows_max, n_max, slab, bytes, work_bytes;
    char *mem;
    float *x, *qkv, *gate_up, *cos, *sin, *part;
    void *xn, *q, *attn, *h;         /* act */
    size_t *pos, *lo, *hi;           /* position; visible committed positions [lo, hi) of the layer at hand */
    size_t *seq_of, *index;          /* sequence of a row, and its index in it */
    uint32_t *n_node, *node;         /* [rows_max], [rows_max][rows_max] */
    char *work;                      /* [threads][work_bytes] */
    float *score; size_t score_step; /* [n_kv_heads][score_step] of one layer */
};

/* ---- buffers ---------------------------------------------------------------------------------------------- */

/* Deal out the buffers from w->mem, or only count them when it is NULL. */
static void layout(struct workspace *w, const struct model *m)
{
    const struct config *c = &m->config;
    const size_t n = w->rows_max, act = dtype_size(m->compute), dp = m->head_dim, heads = c->n_heads + 2 * c->n_kv_heads;
    const size_t per_row = (w->n_max / KV_CHUNK + 2) * c->n_heads * ATTN_STATE(dp) * sizeof(float);
    w->slab = MAX(1, MIN(MIN((size_t)SLAB_ROWS, n), PART_BYTES / per_row));
    w->work_bytes = attn_work_bytes(m->compute, dp);
    w->score_step = (w->n_max + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    const struct { void *slot; size_t bytes; } buffers[] = {
        { &w->x, n * c->hidden * sizeof(float) },
        { &w->qkv, n * heads * dp * sizeof(float) },
        { &w->gate_up, n * 2 * c->ffn * sizeof(float) },
        { &w->cos, n * c->head_dim / 2 * sizeof(float) },
        { &w->sin, n * c->head_dim / 2 * sizeof(float) },
        { &w->part, w->slab * per_row },
        { &w->xn, n * c->hidden * act },
        { &w->q, n * c->n_heads * dp * act },
        { &w->attn, n * c->n_heads * dp * act },
        { &w->h, n * c->ffn * act },
        { &w->pos, n * sizeof(size_t) }, { &w->lo, n * sizeof(size_t) }, { &w->hi, n * sizeof(size_t) },
        { &w->seq_of, n * sizeof(size_t) }, { &w->index, n * sizeof(size_t) },
        { &w->n_node, n * sizeof(uint32_t) }, { &w->node, n * n * sizeof(uint32_t) },
        { &w->work, pool_threads(m->pool) * w->work_bytes },
        { &w->score, c->n_kv_heads * w->score_step * sizeof(float) },
    };
    w->bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *p = w->mem ? w->mem + w->bytes : NULL;
        memcpy(buffers[i].slot, &p, sizeof p);
        w->bytes += (buffers[i].bytes + 63) / 64 * 64 + 64;
    }
}

size_t workspace_bytes(const struct model *m, size_t rows_max, size_t n_max)
{
    struct workspace w = { .rows_max = rows_max, .n_max = n_max };
    layout(&w, m);
    return w.bytes;
}

int workspace_open(struct workspace **out, const struct model *m, size_t rows_max, size_t n_max, struct err *e)
{
    struct workspace *w = calloc(1, sizeof *w);
    assert(rows_max >= 1);
    if (w) {
        w->rows_max = rows_max;
        w->n_max = n_max;
        layout(w, m);
        w->mem = mem_alloc(w->bytes);
    }
    if (!w || !w->mem) {
        size_t bytes = w ? w->bytes : sizeof *w;
        free(w);
        return err_set(e, ERR_FAILED, "buffers for passes of %zu rows: out of memory (%zu bytes)", rows_max, bytes);
    }
    layout(w, m);
    *out = w;
    return 0;
}

void workspace_close(struct workspace *w)
{
    if (w)
        mem_free(w->mem, w->bytes);
    free(w);
}

/* ---- the parallel steps ----------------------------------------------------------------------------------- */

struct product {
    const struct model *m;
    float *y; size_t ldy;
    const void *x; size_t ldx, rows;
    const struct mat *w; const float *bias; bool add;
    size_t items;
    atomic_bool *bad;                /* or NULL; set when a result is not finite */
};

/* Panels are shared in fours, which keeps tiles wide; results do not depend on the cut. */
static void product_item(void *ctx, size_t i, size_t thread)
{
    const struct product *p = ctx;
    const size_t panels = mat_panels(p->w), fours = (panels + 3) / 4;
    const size_t p0 = i * fours / p->items * 4, p1 = MIN((i + 1) * fours / p->items * 4, panels);
    (void)thread;
    p->m->ops->matmul(p->y, p->ldy, p->m->compute, p->x, p->ldx, p->rows, p->w, p->bias, p->add, p0, p1);
    if (p->bad && p0 < p1)
        for (size_t r = 0; r < p->rows; r++)
            if (!p->m->ops->finite(p->y + r * p->ldy + p0 * PANEL, MIN(p1 * PANEL, p->w->n) - p0 * PANEL))
                atomic_store(p->bad, true);
}

static void product(const struct model *m, float *y, const void *x, size_t rows, const struct mat *w, const float *bias, bool add,
                    atomic_bool *bad)
{
    struct product p = { m, y, w->n, x, w->k, rows, w, bias, add, 1, bad };
    if (pool_threads(m->pool) > 1)
        p.items = MIN((mat_panels(w) + 3) / 4, 4 * pool_threads(m->pool));
    pool_run(m->pool, p.items, product_item, &p);
}

void model_product(const struct model *m, float *y, const void *x, size_t rows, const struct mat *w, bool add)
{
    product(m, y, x, rows, w, NULL, add, NULL);
}

/* One pass under way: what the row steps need. */
struct pass {
    const struct model *m;
    struct workspace *w;
    struct pass_seq *seqs;
    size_t n;                        /* rows of all sequences */
    size_t layer;
    const struct layer *y;
    const float *norm;               /* of norm_rows */
    struct attn a;                   /* attention of one slab of rows */
    size_t row0, pieces;             /* its first row among all; into how many items its rows are cut */
};

typedef void row_step(const struct pass *p, size_t r0, size_t r1);
struct row_job { const struct pass *p; row_step *step; size_t n; };

static void row_item(void *ctx, size_t i, size_t thread)
{
    const struct row_job *j = ctx;
    (void)thread;
    j->step(j->p, i * ROWS_PIECE, MIN((i + 1) * ROWS_PIECE, j->n));
}

static void each_row(const struct pass *p, row_step *step, size_t n)
{
    struct row_job j = { p, step, n };
    if (n < ROWS_ALONE)
        step(p, 0, n);
    else
        pool_run(p->m->pool, (n + ROWS_PIECE - 1) / ROWS_PIECE, row_item, &j);
}

static void norm_rows(const struct pass *p, size_t r0, size_t r1)
{
    const size_t d = p->m->config.hidden;
    p->m->ops->rmsnorm((char *)p->w->xn + r0 * d * dtype_size(p->m->compute), d, p->m->compute, p->w->x + r0 * d, d,
                       p->norm, r1 - r0, d, (float)p->m->config.rms_eps);
}

static void angle_rows(const struct pass *p, size_t r0, size_t r1)
{
    const size_t half = p->m->config.head_dim / 2;
    for (size_t r = r0; r < r1; r++)
        rope_angles(p->w->cos + r * half, p->w->sin + r * half, p->w->pos[r] + p->seqs[p->w->seq_of[r]].shift, p->m->inv_freq, half, p->m->rope_factor);
}

static void swiglu_rows(const struct pass *p, size_t r0, size_t r1)
{
    const size_t f = p->m->config.ffn, act = dtype_size(p->m->compute);
    for (size_t r = r0; r < r1; r++)
        p->m->ops->swiglu((char *)p->w->h + r * f * act, p->m->compute, p->w->gate_up + r * 2 * f, p->w->gate_up + r * 2 * f + f, f);
}

/* Store k and v of row r in the form the cache has, before any attention reads them. */
static void store_kv(const struct pass *p, size_t r, const float *k, const float *v)
{
    const struct pass_seq *s = &p->seqs[p->w->seq_of[r]];
    const size_t dp = p->m->head_dim, pos = p->w->pos[r], bytes = 2 * dp * dtype_size(s->kv->type);
    for (size_t h = 0; h < p->m->config.n_kv_heads; h++, k += dp, v += dp) {
        if (s->parent) {
            kv_store((char *)kv_node(s->kv, p->layer, p->w->index[r]) + h * bytes, s->kv->type, k, v, dp);
        } else {
            float stored[2 * HEAD_DIM_MAX];
            kv_store(stored, s->kv->type, k, v, dp);
            kv_put(kv_block(s->kv, p->layer, h, pos), s->kv->type, dp, pos % KV_BLOCK, stored);
        }
    }
}

/* Turn q and k, store k and v, and lay q out for attention: by slab, then [kv head][row][group][head_dim]. */
static void rope_rows(const struct pass *p, size_t r0, size_t r1)
{
    const struct config *c = &p->m->config;
    const struct ops *ops = p->m->ops;
    const struct workspace *w = p->w;
    const size_t d = c->head_dim, dp = p->m->head_dim, heads = c->n_heads + 2 * c->n_kv_heads, half = d / 2;
    const size_t group = c->n_heads / c->n_kv_heads, act = dtype_size(p->m->compute);
    /* log2(e)/sqrt(head_dim): scores come out ready for exp2 */
    const float scale = (float)(0x1.71547652b82fep0 / sqrt((double)d));
    for (size_t r = r0; r < r1; r++) {
        float *q = w->qkv + r * heads * dp, *k = q + c->n_heads * dp;
        for (size_t h = 0; h < c->n_heads + c->n_kv_heads; h++) {
            float *x = q + h * dp;
            if (c->qk_norm)
                ops->rmsnorm(x, dp, DT_F32, x, dp, h < c->n_heads ? p->y->q_norm : p->y->k_norm, 1, d, (float)c->rms_eps);
            ops->rope(x, w->cos + r * half, w->sin + r * half, d);
        }
        store_kv(p, r, k, k + c->n_kv_heads * dp);
        const size_t in_slab = w->index[r] % w->slab, first = r - in_slab;
        const size_t rows = MIN(w->slab, p->seqs[w->seq_of[r]].n - (w->index[r] - in_slab));
        for (size_t h = 0; h < c->n_heads; h++) {
            size_t at = first * c->n_heads + (h / group * rows + in_slab) * group + h % group;
            ops->round((char *)w->q + at * dp * act, p->m->compute, q + h * dp, scale, dp);
        }
    }
}

/* ---- attention -------------------------------------------------------------------------------------------- */

static void attend_item(void *ctx, size_t i, size_t thread)
{
    const struct pass *p = ctx;
    const size_t piece = i % p->pieces, c = i / p->pieces % p->a.n_chunks, h = i / p->pieces / p->a.n_chunks;
    p->m->ops->attend(&p->a, h, p->a.chunk0 + c, piece * p->a.m / p->pieces, (piece + 1) * p->a.m / p->pieces,
                      p->w->work + thread * p->w->work_bytes);
}

static void merge_rows(const struct pass *p, size_t r0, size_t r1)
{
    char *out = (char *)p->w->attn + p->row0 * p->a.n_heads * p->a.head_dim * dtype_size(p->m->compute);
    p->m->ops->attend_merge(&p->a, out, r0, r1);
}

/* Attention of all rows: sequence by sequence, in slabs that bound the chunk states. */
static void attention(struct pass *p)
{
    const struct model *m = p->m;
    const struct workspace *w = p->w;
    const size_t dp = m->head_dim, heads = m->config.n_heads;
    const size_t window = m->config.windowed[p->layer] ? m->config.window : 0;
    for (size_t r = 0; r < p->n; r++)
        w->lo[r] = window && !p->seqs[w->seq_of[r]].shift && w->pos[r] + 1 > window ? w->pos[r] + 1 - window : 0;
    for (size_t row0 = 0; row0 < p->n; row0 += p->a.m) {
        const struct pass_seq *s = &p->seqs[w->seq_of[row0]];
        const struct kv *kv = s->kv;
        const size_t rows = MIN(w->slab, s->n - w->index[row0]);
        size_t first = SIZE_MAX, last = 0;
        for (size_t r = row0; r < row0 + rows; r++) {
            first = MIN(first, w->lo[r]);
            last = MAX(last, w->pos[r]);
        }
        p->row0 = row0;
        p->a = (struct attn){
            .type = m->compute, .m = rows, .n_heads = heads, .n_kv_heads = m->config.n_kv_heads, .head_dim = dp,
            .q = (const char *)w->q + row0 * heads * dp * dtype_size(m->compute),
            .kv = kv->base + p->layer * kv->layer_bytes, .head_bytes = kv->head_bytes, .block_bytes = kv->block_bytes,
            .lo = w->lo + row0, .hi = w->hi + row0,
            .n_node = s->parent ? w->n_node + row0 : NULL, .node = w->node + row0 * w->rows_max, .node_max = w->rows_max,
            .scratch = s->parent ? kv_node(kv, p->layer, 0) : NULL, .part = w->part,
            .chunk0 = first / KV_CHUNK, .n_chunks = last / KV_CHUNK - first / KV_CHUNK + 1,
            .importance = s->scored && w->index[row0] == 0 ? w->score : NULL, .importance_step = w->score_step,
        };
        size_t items = p->a.n_chunks * p->a.n_kv_heads, threads = pool_threads(m->pool);
        p->pieces = threads == 1 ? 1 : MIN(rows, MAX(1, (4 * threads + items - 1) / items));
        pool_run(m->pool, items * p->pieces, attend_item, p);
        each_row(p, merge_rows, rows);
        if (p->a.importance)
            s->scored(s->scored_ctx, p->layer, w->score, w->score_step, w->lo[row0]);
    }
}

/* ---- the pass --------------------------------------------------------------------------------------------- */

/* Positions, visible ranges and ancestors of all rows. */
static void place(struct pass *p, size_t n_seqs)
{
    struct workspace *w = p->w;
    size_t r = 0;
    for (size_t i = 0; i < n_seqs; i++) {
        const struct pass_seq *s = &p->seqs[i];
        assert(s->kv->type == p->m->compute && s->kv->head_dim == p->m->head_dim && s->kv->n_max <= w->n_max);
        for (size_t j = 0; j < s->n; j++, r++) {
            uint32_t *path = w->node + r * w->rows_max, n = 0;
            assert(r < w->rows_max);
            if (s->parent && s->parent[j] >= 0) {
                size_t up = r - j + (size_t)s->parent[j];
                assert((size_t)s->parent[j] < j);
                n = w->n_node[up];
                memcpy(path, w->node + up * w->rows_max, n * sizeof *path);
            }
            if (s->parent)
                path[n++] = (uint32_t)j;
            w->n_node[r] = n;
            w->seq_of[r] = i;
            w->index[r] = j;
            w->pos[r] = s->kv->n_past + (s->parent ? n - 1 : j);
            w->hi[r] = s->parent ? s->kv->n_past : w->pos[r] + 1;
            assert(w->pos[r] < s->kv->n_max && (!s->parent || j < s->kv->node_max));
        }
        if (!s->parent)
            s->kv->n_written = MAX(s->kv->n_written, s->kv->n_past + s->n);
    }
    p->n = r;
}

static void tap_out(const struct pass *p, const struct tap *taps, size_t n_taps, enum tap_kind kind, size_t layer)
{
    const struct config *c = &p->m->config;
    const size_t dp = p->m->head_dim, heads = c->n_heads + 2 * c->n_kv_heads;
    for (size_t t = 0; t < n_taps; t++) {
        if (taps[t].kind != kind || (kind != TAP_HIDDEN && taps[t].layer != layer))
            continue;
        if (kind == TAP_RESIDUAL)
            memcpy(taps[t].out, p->w->x, p->n * c->hidden * sizeof(float));
        else if (kind == TAP_HIDDEN)
            model_final_norm(p->m, p->w->x, p->n, taps[t].out);
        else
            for (size_t r = 0; r < p->n; r++)
                for (size_t h = 0; h < c->n_heads; h++)
                    memcpy(taps[t].out + (r * c->n_heads + h) * c->head_dim, p->w->qkv + (r * heads + h) * dp, c->head_dim * sizeof(float));
    }
}

/* NaN and Inf stop the job before anything is committed. */
static int check_finite(const struct pass *p, const char *where, struct err *e)
{
    const size_t d = p->m->config.hidden;
    for (size_t r = 0; r < p->n; r++)
        if (!p->m->ops->finite(p->w->x + r * d, d))
            return err_set(e, ERR_FAILED, "%s: not a finite number at position %zu, %s %zu", p->m->path,
                           p->w->pos[r] + p->seqs[p->w->seq_of[r]].shift, where, p->layer);
    return 0;
}

static int run_layer(struct pass *p, const struct tap *taps, size_t n_taps, struct err *e)
{
    const struct model *m = p->m;
    struct workspace *w = p->w;
    const struct layer *y = p->y;
    tap_out(p, taps, n_taps, TAP_RESIDUAL, p->layer);
    p->norm = y->norm_attn;
    each_row(p, norm_rows, p->n);
    product(m, w->qkv, w->xn, p->n, &y->qkv, y->qkv_bias, false, NULL);
    each_row(p, rope_rows, p->n);
    tap_out(p, taps, n_taps, TAP_QUERY, p->layer);
    attention(p);
    product(m, w->x, w->attn, p->n, &y->o, y->o_bias, true, NULL);
    p->norm = y->norm_mlp;
    each_row(p, norm_rows, p->n);
    product(m, w->gate_up, w->xn, p->n, &y->gate_up, y->gate_up_bias, false, NULL);
    each_row(p, swiglu_rows, p->n);
    product(m, w->x, w->h, p->n, &y->down, y->down_bias, true, NULL);
    return check_finite(p, "layer", e);
}

/* Final norm, then the logits of the rows that want them, gathered so that the head is read once for all sequences
 * whose logits follow each other in memory. */
static int logits(struct pass *p, size_t n_seqs, struct err *e)
{
    const struct model *m = p->m;
    const size_t row = m->config.hidden * dtype_size(m->compute), vocab = m->config.vocab;
    char *xn = p->w->xn;
    float *to = NULL;                        /* where the gathered rows' logits go */
    size_t from = 0, n = 0;
    atomic_bool bad = false;
    p->norm = m->norm_final;
    each_row(p, norm_rows, p->n);
    for (size_t i = 0, r = 0; i < n_seqs; i++) {
        const struct pass_seq *s = &p->seqs[i];
        if (n && s->logits != to + n * vocab) {
            product(m, to, xn + from * row, n, &m->lm_head, NULL, false, &bad);
            from += n;
            n = 0;
        }
        if (!n)
            to = s->logits;
        for (size_t j = 0; j < s->n; j++, r++)
            if (s->want ? s->want[j] : s->logits && j == s->n - 1)
                memmove(xn + (from + n++) * row, xn + r * row, row);
    }
    if (n)
        product(m, to, xn + from * row, n, &m->lm_head, NULL, false, &bad);
    if (atomic_load(&bad))
        return err_set(e, ERR_FAILED, "%s: a logit is not a finite number, in the pass over positions %zu to %zu", m->path,
                       p->w->pos[0], p->w->pos[p->n - 1]);
    return 0;
}

int model_forward(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                  const struct tap *taps, size_t n_taps, struct err *e)
{
    struct pass p = { .m = m, .w = w, .seqs = seqs };
    place(&p, n_seqs);
    for (size_t i = 0, r = 0; i < n_seqs; r += seqs[i++].n)
        model_embed(m, seqs[i].token, seqs[i].n, w->x + r * m->config.hidden);
    each_row(&p, angle_rows, p.n);
    for (p.layer = 0; p.layer < m->config.n_layers; p.layer++) {
        p.y = &m->layers[p.layer];
        if (run_layer(&p, taps, n_taps, e))
            return -1;
    }
    tap_out(&p, taps, n_taps, TAP_RESIDUAL, p.layer);
    tap_out(&p, taps, n_taps, TAP_HIDDEN, 0);
    return logits(&p, n_seqs, e);
}

void model_final_norm(const struct model *m, const float *x, size_t n, float *y)
{
    const size_t d = m->config.hidden;
    if (m->compute == DT_F32) {
        m->ops->rmsnorm(y, d, DT_F32, x, d, m->norm_final, n, d, (float)m->config.rms_eps);
        return;
    }
    for (size_t r = 0; r < n; r++) {
        /* bf16 into the upper half of the row, then widened from the front: reading stays ahead of writing */
        uint16_t *narrow = (uint16_t *)(y + r * d) + d;
        m->ops->rmsnorm(narrow, d, DT_BF16, x + r * d, d, m->norm_final, 1, d, (float)m->config.rms_eps);
        for (size_t i = 0; i < d; i++) {
            float f = bf16_to_f32(narrow[i]);
            memcpy(y + r * d + i, &f, sizeof f);
        }
    }
}

void model_lm_head(const struct model *m, struct workspace *w, const float *y, size_t n, float *logits_out)
{
    const size_t d = m->config.hidden;
    for (size_t r = 0; r < n; r += w->rows_max) {
        size_t rows = MIN(w->rows_max, n - r);
        m->ops->round(w->xn, m->compute, y + r * d, 1.0f, rows * d);
        product(m, logits_out + r * m->config.vocab, w->xn, rows, &m->lm_head, NULL, false, NULL);
    }
}
