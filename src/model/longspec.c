/* LongSpec's drafter (longspec.h): its files, and its pass. Start reading at longspec_open() and
 * longspec_forward(). */
#include "src/model/longspec.h"

#include <stdio.h>
#include <string.h>

#include "src/model/drafter_file.h"
#include "src/model/heads.h"

static const char KIND[] = "longspec";

int longspec_save_file(const char *path, const struct model *m, const struct longspec_weights *w,
                       const char *note, struct err *e)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const struct tensor_out t[] = {
        { "self_attn.q_proj.weight", DT_BF16, q, d, w->qkv },
        { "self_attn.k_proj.weight", DT_BF16, kv, d, w->qkv + q * d },
        { "self_attn.v_proj.weight", DT_BF16, kv, d, w->qkv + (q + kv) * d },
        { "self_attn.o_proj.weight", DT_BF16, d, q, w->o },
        { "cross_attn.q_proj.weight", DT_BF16, q, d, w->cross_q },
        { "cross_attn.o_proj.weight", DT_BF16, d, q, w->cross_o },
        { "mlp.gate_proj.weight", DT_BF16, ff, d, w->gate_up },
        { "mlp.up_proj.weight", DT_BF16, ff, d, w->gate_up + ff * d },
        { "mlp.down_proj.weight", DT_BF16, d, ff, w->down },
        { "self_attn.q_proj.bias", DT_F32, q, 0, w->qkv_bias },
        { "self_attn.k_proj.bias", DT_F32, kv, 0, w->qkv_bias + q },
        { "self_attn.v_proj.bias", DT_F32, kv, 0, w->qkv_bias + q + kv },
        { "cross_attn.q_proj.bias", DT_F32, q, 0, w->cross_q_bias },
        { "input_layernorm.weight", DT_F32, d, 0, w->norm[0] },
        { "post_self_attention_layernorm.weight", DT_F32, d, 0, w->norm[1] },
        { "post_cross_attention_layernorm.weight", DT_F32, d, 0, w->norm[2] },
    };
    return drafter_save(path, m, KIND, note, t, sizeof t / sizeof *t, e);
}

/* ---- memory ---- */

struct longspec_buffers {
    /* the device's: LONGSPEC_ROWS rows */
    float *x, *qkv, *gate_up;
    void *xn, *q, *attn, *h;             /* act */
    /* arrays of struct device_rows; those of the cross-attention after those of the self-attention */
    int32_t token[LONGSPEC_ROWS];
    uint32_t pos[2][LONGSPEC_ROWS], hi[2][LONGSPEC_ROWS], n_node[2][LONGSPEC_ROWS], angle[LONGSPEC_ROWS],
        node[LONGSPEC_ROWS * LONGSPEC_DEPTH_MAX];
    struct device_kv kv[2][LONGSPEC_ROWS];
    struct device_seq seq[2][LONGSPEC_ROWS];
};

static size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

/* Sets the sizes of the matrices, and assigns all parts addresses in l->mem. With l->mem NULL it only counts
 * the bytes. */
static size_t layout(struct longspec *l, const struct model *m, bool int8)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, dp = m->head_dim, q = c->n_heads * dp, kv = c->n_kv_heads * dp, ff = c->ffn,
                 n = LONGSPEC_ROWS, f = sizeof(float), act = dtype_size(model_act(m));
    const struct { struct mat *m; size_t n, k; } mats[] = {
        { &l->qkv, q + 2 * kv, d }, { &l->o, d, q },          { &l->cross_q, q, d },
        { &l->cross_o, d, q },      { &l->gate_up, 2 * ff, d }, { &l->down, d, ff },
    };
    struct longspec_buffers none, *b = l->mem ? l->mem : &none;
    size_t used = padded_bytes(sizeof *b);
    l->buffers = b;
    l->weight_bytes = l->plain_bytes = 0;
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        struct mat *w = mats[i].m;
        *w = (struct mat){ drafter_mat_type(m, int8), mats[i].n, mats[i].k,
                           l->mem ? (char *)l->mem + used : NULL };
        used += padded_bytes(mat_bytes(w));
        l->weight_bytes += mat_bytes(w);
        l->plain_bytes += mats[i].n * mats[i].k * 2;
    }
    const struct { void *slot; size_t bytes; } parts[] = {
        { &l->qkv_bias, (q + 2 * kv) * f }, { &l->cross_q_bias, q * f }, { &l->norm[0], d * f },
        { &l->norm[1], d * f }, { &l->norm[2], d * f },
        { &b->x, n * d * f }, { &b->qkv, n * (q + 2 * kv) * f }, { &b->gate_up, n * 2 * ff * f },
        /* with an odd k a product reads one element after its rows */
        { &b->xn, n * d * act }, { &b->q, n * q * act }, { &b->attn, n * q * act }, { &b->h, n * ff * act },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *p = l->mem ? (char *)l->mem + used : NULL;
        memcpy(parts[i].slot, &p, sizeof p);
        used += padded_bytes(parts[i].bytes);
    }
    return used;
}

size_t longspec_bytes(const struct model *m, bool int8)
{
    struct longspec l = { 0 };
    return layout(&l, m, int8);
}

/* ---- reading ---- */

/* read: with l->mem NULL it only checks names and shapes. */
static int read_tensors(struct longspec *l, const struct tensors *ts, const struct model *m, struct err *e)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd, ff = c->ffn,
                 dp = m->head_dim;
    const struct drafter_mat qkv[] = { { "self_attn.q_proj.weight", q, d, hd, 0 },
                                       { "self_attn.k_proj.weight", kv, d, hd, 0 },
                                       { "self_attn.v_proj.weight", kv, d, hd, 0 } },
        o = { "self_attn.o_proj.weight", d, q, 0, hd }, cross_q = { "cross_attn.q_proj.weight", q, d, hd, 0 },
        cross_o = { "cross_attn.o_proj.weight", d, q, 0, hd },
        gate_up[] = { { "mlp.gate_proj.weight", ff, d, 0, 0 }, { "mlp.up_proj.weight", ff, d, 0, 0 } },
        down = { "mlp.down_proj.weight", d, ff, 0, 0 };
    const struct { struct mat *m; const struct drafter_mat *t; size_t n; } mats[] = {
        { &l->qkv, qkv, 3 },         { &l->o, &o, 1 },         { &l->cross_q, &cross_q, 1 },
        { &l->cross_o, &cross_o, 1 }, { &l->gate_up, gate_up, 2 }, { &l->down, &down, 1 },
    };
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
        if (drafter_read_product(l->mem ? mats[i].m : NULL, ts, mats[i].t, mats[i].n, m, e))
            return -1;
    float *k_bias = l->mem ? l->qkv_bias + c->n_heads * dp : NULL,
          *v_bias = l->mem ? k_bias + c->n_kv_heads * dp : NULL;
    return drafter_read_vector(ts, "self_attn.q_proj.bias", q, hd, dp, l->qkv_bias, e) ||
                   drafter_read_vector(ts, "self_attn.k_proj.bias", kv, hd, dp, k_bias, e) ||
                   drafter_read_vector(ts, "self_attn.v_proj.bias", kv, hd, dp, v_bias, e) ||
                   drafter_read_vector(ts, "cross_attn.q_proj.bias", q, hd, dp, l->cross_q_bias, e) ||
                   drafter_read_vector(ts, "input_layernorm.weight", d, 0, 0, l->norm[0], e) ||
                   drafter_read_vector(ts, "post_self_attention_layernorm.weight", d, 0, 0, l->norm[1], e) ||
                   drafter_read_vector(ts, "post_cross_attention_layernorm.weight", d, 0, 0, l->norm[2], e)
               ? -1
               : 0;
}

/* Opens the file, and reads it unless `check`. */
static int open_file(struct longspec *l, const char *path, const struct model *m, bool int8, bool check,
                     struct err *e)
{
    struct tensors ts;
    *l = (struct longspec){ .model = m };
    if (!path && drafter_find(l->path, m->path, KIND, e))
        return -1;
    if (path && snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return err_set(e, ERR_INPUT, "longspec: a path of %zu bytes, at most %zu are allowed", strlen(path),
                       sizeof l->path - 1);
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter longspec is not supported on this device; --device cpu "
                                     "supports it", m->dev->name);
    if (drafter_open(&ts, l->path, KIND, m, &l->foreign, e))
        return -1;
    int rc = read_tensors(l, &ts, m, e);           /* only checks */
    if (rc == 0 && !check) {
        l->mem_bytes = layout(l, m, int8);
        l->mem = mem_alloc(l->mem_bytes);
        if (!l->mem)
            rc = err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", l->path, l->mem_bytes);
        layout(l, m, int8);
        rc = rc ? rc : read_tensors(l, &ts, m, e);
    }
    tensors_close(&ts);
    if (rc)
        longspec_close(l);
    return rc;
}

int longspec_open(struct longspec *l, const char *path, const struct model *m, bool int8, struct err *e)
{
    return open_file(l, path, m, int8, false, e);
}

int longspec_check(const char *path, const struct model *m, struct err *e)
{
    struct longspec l;
    assert(!m->mem);
    return open_file(&l, path, m, false, true, e);
}

void longspec_close(struct longspec *l)
{
    if (l->mem)
        mem_free(l->mem, l->mem_bytes);
    *l = (struct longspec){ 0 };
}

/* ---- the pass ---- */

/* Which rows a pass has: in its own cache for the self-attention, in the model's for the cross-attention. */
enum part { SELF, CROSS };

static struct device_heads heads_of(const struct model *m)
{
    return (struct device_heads){ m->config.n_heads, m->config.n_kv_heads, m->config.head_dim, m->head_dim };
}

static struct device_rows rows_of(const struct longspec *l, enum part part, size_t n, size_t n_seqs)
{
    struct longspec_buffers *b = l->buffers;
    const struct model *m = l->model;
    return (struct device_rows){ .n = n, .n_seqs = n_seqs, .seq = b->seq[part], .token = b->token,
                                 .pos = b->pos[part], .hi = b->hi[part], .angle = b->angle,
                                 .n_node = b->n_node[part], .node = b->node, .node_step = LONGSPEC_DEPTH_MAX,
                                 .inv_freq = m->inv_freq, .n_freq = m->config.head_dim / 2,
                                 .rope_factor = m->rope_factor };
}

/* Fills in rows r .. of text i: all of them see the committed rows of the model, and of their own cache the
 * window before them and their path. */
static void place(struct longspec_buffers *b, const struct longspec_seq *s, size_t i, size_t r)
{
    const size_t n_past = s->own->n_past, seen = s->target->n_past;
    assert(seen >= 1 && s->node0 + s->n <= s->own->node_max);
    b->kv[SELF][i] = kv_view(s->own);
    b->kv[CROSS][i] = kv_view(s->target);
    b->seq[SELF][i] = (struct device_seq){ .kv = &b->kv[SELF][i], .row0 = r, .n = s->n, .n_past = n_past,
                                           .tree = true, .node0 = s->node0 };
    b->seq[CROSS][i] = (struct device_seq){ .kv = &b->kv[CROSS][i], .row0 = r, .n = s->n, .n_past = seen };
    for (size_t j = 0; j < s->n; j++, r++) {
        uint32_t *path = b->node + r * LONGSPEC_DEPTH_MAX, n = 0;
        for (int32_t at = (int32_t)(s->node0 + j); at >= 0; at = s->parent[at])
            n++;
        assert(n <= LONGSPEC_DEPTH_MAX);
        b->n_node[SELF][r] = n;
        for (int32_t at = (int32_t)(s->node0 + j); at >= 0; at = s->parent[at])
            path[--n] = (uint32_t)at;
        b->token[r] = s->token[j];
        b->pos[SELF][r] = (uint32_t)n_past + b->n_node[SELF][r] - 1;
        b->hi[SELF][r] = (uint32_t)n_past;
        b->angle[r] = (uint32_t)s->first + b->pos[SELF][r];
        b->n_node[CROSS][r] = 0;
        b->pos[CROSS][r] = (uint32_t)seen - 1;
        b->hi[CROSS][r] = (uint32_t)seen;
    }
}

/* x += the output of an attention's projection o. */
static void add_product(const struct longspec *l, const struct mat *w, const void *x, size_t n)
{
    struct device *d = l->model->dev;
    d->product(d, &(struct device_product){ l->buffers->x, w->n, x, n, w, NULL, true, SIZE_MAX });
}

static void project(const struct longspec *l, float *y, const struct mat *w, const float *bias, size_t n)
{
    struct device *d = l->model->dev;
    d->product(d, &(struct device_product){ y, w->n, l->buffers->xn, n, w, bias, false, SIZE_MAX });
}

/* The embeddings, and q, k and v of the self-attention; k and v go to the drafter's cache. */
static void run_qkv(const struct longspec *l, const struct device_rows *rows)
{
    const struct model *m = l->model;
    const struct device_heads heads = heads_of(m);
    struct longspec_buffers *b = l->buffers;
    struct device *d = m->dev;
    d->begin(d, rows);
    d->embed(d, b->x, m->embed.w ? &m->embed : &m->lm_head, !m->embed.w);
    d->rmsnorm(d, b->xn, b->x, l->norm[0], rows->n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
    project(l, b->qkv, &l->qkv, l->qkv_bias, rows->n);
    d->rope(d, &(struct device_rope){ .q = b->q, .qkv = b->qkv, .heads = &heads });
}

static void run_cross(const struct longspec *l, const struct device_rows *rows)
{
    const struct model *m = l->model;
    const struct device_heads heads = heads_of(m);
    struct longspec_buffers *b = l->buffers;
    struct device *d = m->dev;
    d->begin(d, rows);
    d->rmsnorm(d, b->xn, b->x, l->norm[1], rows->n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
    project(l, b->qkv, &l->cross_q, l->cross_q_bias, rows->n);
    d->rope(d, &(struct device_rope){ .q = b->q, .qkv = b->qkv, .heads = &heads, .queries = true });
    d->attend(d, b->attn, b->q, &heads, m->config.n_layers - 1, 0);
    add_product(l, &l->cross_o, b->attn, rows->n);
}

int longspec_forward(struct longspec *l, const struct mat *head, const struct longspec_seq *seqs,
                     size_t n_seqs, float *logits)
{
    const struct model *m = l->model;
    const struct device_heads heads = heads_of(m);
    const size_t hidden = m->config.hidden, ffn = m->config.ffn;
    struct longspec_buffers *b = l->buffers;
    struct device *d = m->dev;
    struct device_bad bad;
    size_t n = 0;
    for (size_t i = 0; i < n_seqs; n += seqs[i++].n) {
        assert(n + seqs[i].n <= LONGSPEC_ROWS);
        place(b, &seqs[i], i, n);
    }
    const struct device_rows self = rows_of(l, SELF, n, n_seqs), cross = rows_of(l, CROSS, n, n_seqs);
    run_qkv(l, &self);
    d->attend(d, b->attn, b->q, &heads, 0, LONGSPEC_WINDOW);
    add_product(l, &l->o, b->attn, n);
    run_cross(l, &cross);
    d->rmsnorm(d, b->xn, b->x, l->norm[2], n, hidden, (float)m->config.rms_eps, SIZE_MAX);
    project(l, b->gate_up, &l->gate_up, NULL, n);
    d->swiglu(d, b->h, b->gate_up, n, ffn);
    add_product(l, &l->down, b->h, n);
    d->narrow(d, b->xn, b->x, n * hidden);         /* without a final norm */
    d->product(d, &(struct device_product){ logits, m->config.vocab, b->xn, n, head, NULL, false, 0 });
    return d->end(d, &bad) || bad.any ? -1 : 0;
}

void longspec_read(struct longspec *l, struct kv *own, size_t first, const int32_t *token, size_t n)
{
    struct longspec_buffers *b = l->buffers;
    struct device_bad ignored;
    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, (size_t)LONGSPEC_ROWS);
        assert(own->n_past + some <= own->n_max);
        b->kv[SELF][0] = kv_view(own);
        b->seq[SELF][0] = (struct device_seq){ .kv = &b->kv[SELF][0], .n = some, .n_past = own->n_past };
        for (size_t j = 0; j < some; j++) {
            b->token[j] = token[done + j];
            b->pos[SELF][j] = (uint32_t)(own->n_past + j);
            b->hi[SELF][j] = b->pos[SELF][j] + 1;
            b->angle[j] = (uint32_t)(first + own->n_past + j);
            b->n_node[SELF][j] = 0;
        }
        const struct device_rows rows = rows_of(l, SELF, some, 1);
        run_qkv(l, &rows);
        l->model->dev->end(l->model->dev, &ignored);
        kv_advance(own, some);
    }
}
