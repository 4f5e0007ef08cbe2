/* Weights from files into their packed form, held once. */
#include "src/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 4 << 20 };       /* read and packed at a time */

/* One tensor on its way into a matrix: row r goes to row r0 + r/seg*seg_pad + r%seg (heads padded to 16
 * dimensions), and columns likewise by col_seg. */
struct part { struct mat *m; size_t r0, rows, cols, seg, seg_pad, col_seg, col_pad; };

/* Everything model_open goes through in order, once to measure (mem == NULL) and once to load. */
struct loader {
    struct model *model;
    const struct tensors *ts;
    char *mem;                       /* NULL: only sizes are wanted */
    size_t used, done, total;
    char *slab, *spread;             /* [SLAB_BYTES]; the slab with columns padded */
    model_progress *progress; void *ctx;
    struct err *e;
};

static void *take(struct loader *l, size_t bytes)
{
    void *p = l->mem ? l->mem + l->used : NULL;
    size_t padded = bytes;
    if (!add_size(l->used, (bytes + 63) / 64 * 64, &padded))
        padded = SIZE_MAX / 2;
    l->used = padded;
    return p;
}

static void report(struct loader *l, size_t bytes)
{
    l->done += bytes;
    if (l->progress)
        l->progress(l->ctx, l->done, l->total);
}

struct pack_job { struct mat *m; const char *src; enum dtype from; size_t row0, rows, row_bytes; const struct part *p; };

/* Pack 16 source rows. */
static void pack_rows(void *ctx, size_t i, size_t thread)
{
    const struct pack_job *j = ctx;
    const struct part *p = j->p;
    (void)thread;
    for (size_t r = i * 16; r < MIN((i + 1) * 16, j->rows);) {
        size_t row = j->row0 + r, in_seg = row % p->seg, n = MIN(MIN(p->seg - in_seg, j->rows - r), (i + 1) * 16 - r);
        mat_pack(j->m, p->r0 + row / p->seg * p->seg_pad + in_seg, n, j->src + r * j->row_bytes, j->from);
        r += n;
    }
}

static int load_rows(struct loader *l, const struct tensor *t, const struct part *p)
{
    const size_t elt = dtype_size(t->dtype), row_bytes = p->cols * elt, wide = p->m->k * elt;
    const size_t slab_rows = SLAB_BYTES / MAX(row_bytes, wide);
    if (slab_rows == 0)
        return err_set(l->e, ERR_INPUT, "tensor %s: rows of %zu bytes, at most %d are allowed", t->name, row_bytes, SLAB_BYTES);
    for (size_t r = 0; r < p->rows; r += slab_rows) {
        size_t n = MIN(slab_rows, p->rows - r);
        if (tensors_read(l->ts, t, l->slab, r * row_bytes, n * row_bytes, l->e))
            return -1;
        const char *src = l->slab;
        if (p->col_seg != p->col_pad) {
            memset(l->spread, 0, n * wide);
            for (size_t i = 0; i < n; i++)
                for (size_t c = 0; c < p->cols; c += p->col_seg)
                    memcpy(l->spread + i * wide + c / p->col_seg * p->col_pad * elt, l->slab + i * row_bytes + c * elt, p->col_seg * elt);
            src = l->spread;
        }
        struct pack_job j = { p->m, src, t->dtype, r, n, wide, p };
        pool_run(l->model->pool, (n + 15) / 16, pack_rows, &j);
        report(l, n * row_bytes);
    }
    return 0;
}

/* A matrix of the table out of one to three tensors stacked by rows; the type is the tensors' own in f32 arithmetic (F32 when
 * they differ) and bf16 otherwise. */
struct source { const char *name; size_t rows; };

static int load_mat(struct loader *l, struct mat *m, const char *prefix, const struct source *src, size_t n_src, size_t cols,
                    size_t seg, size_t seg_pad, size_t col_seg, size_t col_pad)
{
    const struct tensor *t[3];
    size_t rows = 0, params = 0;
    m->type = DT_OTHER;
    for (size_t i = 0; i < n_src; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s.weight", prefix, src[i].name);
        t[i] = tensors_need(l->ts, name, src[i].rows, cols, l->e);
        if (!t[i])
            return -1;
        m->type = m->type == DT_OTHER || m->type == t[i]->dtype ? t[i]->dtype : DT_F32;
        rows += src[i].rows;
        params += src[i].rows * cols;
    }
    if (l->model->compute == DT_BF16)
        m->type = DT_BF16;
    m->n = rows / seg * seg_pad;
    m->k = cols / col_seg * col_pad;
    m->w = take(l, mat_bytes(m));
    if (!l->mem) {
        l->model->n_params += params;
        for (size_t i = 0; i < n_src; i++)
            l->total += t[i]->bytes;
        return 0;
    }
    for (size_t i = 0, r0 = 0; i < n_src; i++) {
        struct part p = { m, r0, src[i].rows, cols, seg, seg_pad, col_seg, col_pad };
        if (load_rows(l, t[i], &p))
            return -1;
        r0 += src[i].rows / seg * seg_pad;
    }
    return 0;
}

static float as_float(const void *p, enum dtype t, size_t i)
{
    if (t == DT_F32)
        return ((const float *)p)[i];
    uint16_t x = ((const uint16_t *)p)[i];
    return t == DT_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

/* Vectors of the given tensors one after the other, as floats, in padded segments. */
static int load_vec(struct loader *l, float **v, const char *prefix, const struct source *src, size_t n_src, const char *kind,
                    size_t seg, size_t seg_pad)
{
    size_t n = 0;
    for (size_t i = 0; i < n_src; i++)
        n += src[i].rows / seg * seg_pad;
    *v = take(l, n * sizeof(float));
    float *to = *v;
    for (size_t i = 0; i < n_src; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s.%s", prefix, src[i].name, kind);
        const struct tensor *t = tensors_need(l->ts, name, src[i].rows, 0, l->e);
        if (!t)
            return -1;
        if (!l->mem) {
            l->total += t->bytes;
            l->model->n_params += src[i].rows;
            continue;
        }
        if (t->bytes > SLAB_BYTES)
            return err_set(l->e, ERR_INPUT, "tensor %s: %zu bytes, at most %d are allowed for a vector", t->name, t->bytes, SLAB_BYTES);
        if (tensors_read(l->ts, t, l->slab, 0, t->bytes, l->e))
            return -1;
        for (size_t j = 0; j < src[i].rows; j++)
            to[j / seg * seg_pad + j % seg] = as_float(l->slab, t->dtype, j);
        to += src[i].rows / seg * seg_pad;
        report(l, t->bytes);
    }
    return 0;
}

static int load_layer(struct loader *l, size_t index, struct layer *y)
{
    const struct config *c = &l->model->config;
    const size_t d = c->head_dim, dp = l->model->head_dim, q = c->n_heads * d, kv = c->n_kv_heads * d;
    const struct source qkv[] = { { "self_attn.q_proj", q }, { "self_attn.k_proj", kv }, { "self_attn.v_proj", kv } };
    const struct source o = { "self_attn.o_proj", c->hidden }, down = { "mlp.down_proj", c->hidden };
    const struct source gate_up[] = { { "mlp.gate_proj", c->ffn }, { "mlp.up_proj", c->ffn } };
    const struct source in = { "input_layernorm", c->hidden }, post = { "post_attention_layernorm", c->hidden };
    const struct source q_norm = { "self_attn.q_norm", d }, k_norm = { "self_attn.k_norm", d };
    char at[64];
    snprintf(at, sizeof at, "model.layers.%zu.", index);
    return load_vec(l, &y->norm_attn, at, &in, 1, "weight", 1, 1) ||
           load_mat(l, &y->qkv, at, qkv, 3, c->hidden, d, dp, 1, 1) ||
           (c->qkv_bias && load_vec(l, &y->qkv_bias, at, qkv, 3, "bias", d, dp)) ||
           (c->qk_norm && (load_vec(l, &y->q_norm, at, &q_norm, 1, "weight", 1, 1) ||
                           load_vec(l, &y->k_norm, at, &k_norm, 1, "weight", 1, 1))) ||
           load_mat(l, &y->o, at, &o, 1, q, 1, 1, d, dp) ||
           (c->o_bias && load_vec(l, &y->o_bias, at, &o, 1, "bias", 1, 1)) ||
           load_vec(l, &y->norm_mlp, at, &post, 1, "weight", 1, 1) ||
           load_mat(l, &y->gate_up, at, gate_up, 2, c->hidden, 1, 1, 1, 1) ||
           (c->mlp_bias && load_vec(l, &y->gate_up_bias, at, gate_up, 2, "bias", 1, 1)) ||
           load_mat(l, &y->down, at, &down, 1, c->ffn, 1, 1, 1, 1) ||
           (c->mlp_bias && load_vec(l, &y->down_bias, at, &down, 1, "bias", 1, 1)) ? -1 : 0;
}

/* The embedding of an untied model: rows as they are. */
static int load_embed(struct loader *l)
{
    struct model *m = l->model;
    const struct tensor *t = tensors_need(l->ts, "model.embed_tokens.weight", m->config.vocab, m->config.hidden, l->e);
    if (!t)
        return -1;
    m->embed = (struct mat){ t->dtype, m->config.vocab, m->config.hidden, take(l, t->bytes) };
    if (!l->mem) {
        l->total += t->bytes;
        m->n_params += t->n_elements;
        return 0;
    }
    for (size_t at = 0; at < t->bytes; at += SLAB_BYTES) {
        size_t n = MIN((size_t)SLAB_BYTES, t->bytes - at);
        if (tensors_read(l->ts, t, (char *)m->embed.w + at, at, n, l->e))
            return -1;
        report(l, n);
    }
    return 0;
}

static int load_all(struct loader *l)
{
    struct model *m = l->model;
    const struct config *c = &m->config;
    const struct source head = { c->tied ? "model.embed_tokens" : "lm_head", c->vocab }, norm = { "model.norm", c->hidden };
    m->layers = take(l, c->n_layers * sizeof *m->layers);
    if (!c->tied && load_embed(l))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer measured;
        if (load_layer(l, i, l->mem ? &m->layers[i] : &measured))
            return -1;
    }
    m->inv_freq = take(l, c->head_dim / 2 * sizeof(float));
    return load_vec(l, &m->norm_final, "", &norm, 1, "weight", 1, 1) ||
           load_mat(l, &m->lm_head, "", &head, 1, c->hidden, 1, 1, 1, 1) ? -1 : 0;
}

int model_plan_bytes(const struct config *c, const struct tensors *ts, enum dtype compute, size_t *bytes, struct err *e)
{
    struct model m = { .config = *c, .compute = compute, .head_dim = (c->head_dim + 15) / 16 * 16 };
    struct loader l = { .model = &m, .ts = ts, .e = e };
    if (load_all(&l))
        return -1;
    *bytes = l.used;
    return 0;
}

int model_open(struct model *m, const char *dir, const struct config *config, enum dtype compute, const struct ops *ops, struct pool *pool,
               model_progress *progress, void *ctx, struct err *e)
{
    struct tensors ts = { 0 };
    struct loader l = { .model = m, .ts = &ts, .progress = progress, .ctx = ctx, .e = e };
    int rc = -1;
    assert(compute == DT_BF16 || compute == DT_F32);
    *m = (struct model){ .config = *config, .compute = compute, .ops = ops, .pool = pool, .head_dim = (config->head_dim + 15) / 16 * 16 };
    if ((size_t)snprintf(m->path, sizeof m->path, "%s", dir) >= sizeof m->path)
        return err_set(e, ERR_INPUT, "model directory: name of more than %zu bytes", sizeof m->path - 1);
    if (tensors_open(&ts, dir, e) || load_all(&l))
        goto out;
    m->mem_bytes = m->weight_bytes = l.used;
    l.mem = m->mem = mem_alloc(m->mem_bytes);
    l.slab = mem_alloc(SLAB_BYTES);
    l.spread = mem_alloc(SLAB_BYTES);
    if (!l.mem || !l.slab || !l.spread) {
        err_set(e, ERR_FAILED, "%s: out of memory for the weights (%zu bytes)", dir, m->mem_bytes);
        goto out;
    }
    l.used = 0;
    if (load_all(&l))
        goto out;
    config_rope(config, m->inv_freq, &m->rope_factor);
    rc = 0;
out:
    mem_free(l.slab, SLAB_BYTES);
    mem_free(l.spread, SLAB_BYTES);
    tensors_close(&ts);
    if (rc)
        model_close(m);
    return rc;
}

void model_close(struct model *m)
{
    mem_free(m->mem, m->mem_bytes);
    *m = (struct model){ 0 };
}

void model_embed(const struct model *m, const int32_t *token, size_t n, float *x)
{
    const size_t d = m->config.hidden;
    for (size_t r = 0; r < n; r++, x += d) {
        const size_t id = (size_t)token[r];
        assert(token[r] >= 0 && id < m->config.vocab);
        if (m->embed.w)
            for (size_t i = 0; i < d; i++)
                x[i] = as_float(m->embed.w, m->embed.type, id * d + i);
        else
            mat_row(&m->lm_head, id, x);
    }
}
