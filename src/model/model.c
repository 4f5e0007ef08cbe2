/* Loading of weights: from files into the device's packed form, held once. Also random weights for measuring,
 * and the 8-bit copy for drafts.
 *
 * load_all goes through all tensors in a fixed order and runs twice: first to measure (loader.mem ==
 * NULL), then to load. Start at load_layer, then load_mat. */
#include "src/model/model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant.h"

enum { SLAB_BYTES = 4 << 20 };       /* bytes of a tensor that are read and packed at once */

/* Padding of rows and columns: row r of a tensor goes to row r/seg*seg_pad + r%seg of the matrix (the
 * device pads the dimensions of a head), and columns likewise by col_seg. */
struct padding { size_t seg, seg_pad, col_seg, col_pad; };
static const struct padding unpadded = { 1, 1, 1, 1 };

struct loader {
    struct model *model;
    const struct tensors *ts;        /* NULL: weights are random */
    uint64_t seed;                   /* of the next random matrix */
    const struct device *dev;
    char *mem;                       /* the device's; NULL: the loader only measures */
    size_t used, done, total;
    char *slab, *spread;             /* [SLAB_BYTES]; the slab with columns padded */
    float *plain;                    /* [SLAB_BYTES]: the slab decoded, if weights are quantised */
    model_progress *progress; void *ctx;
    struct err *e;
};

/* Assigns the next bytes of the device's allocation; NULL while measuring. */
static void *assign(struct loader *l, size_t bytes)
{
    const size_t align = l->dev->host_memory ? 64 : 256;
    void *p = l->mem ? l->mem + l->used : NULL;
    size_t padded = bytes;
    if (!add_size(l->used, (bytes + align - 1) / align * align, &padded))
        padded = SIZE_MAX / 2;
    l->used = padded;
    return p;
}

static int report(struct loader *l, size_t bytes)
{
    l->done += bytes;
    return !l->progress || l->progress(l->ctx, l->done, l->total)
               ? 0
               : err_set(l->e, ERR_AGAIN, "stopped after %zu of %zu bytes", l->done, l->total);
}

/* Rows of blocks that the pool decodes. */
struct decoding { const char *src; float *to; size_t row_bytes, cols; enum dtype type; atomic_bool failed; };

static void decode_row(void *ctx, size_t i, size_t thread)
{
    struct decoding *d = ctx;
    (void)thread;
    if (!quant_decode(d->to + i * d->cols, d->type, d->src + i * d->row_bytes, d->cols))
        d->failed = true;
}

/* Decodes n rows of t into l->plain. */
static int decode_rows(struct loader *l, const struct tensor *t, const char *src, size_t n, size_t row_bytes)
{
    struct decoding d = { src, l->plain, row_bytes, t->dim[1], t->dtype, false };
    if (l->model->pool)
        pool_run(l->model->pool, n, decode_row, &d);
    else
        for (size_t i = 0; i < n; i++)
            decode_row(&d, i, 0);
    return d.failed ? err_set(l->e, ERR_INPUT, "%s: tensor \"%s\": the factor of a block is infinite or NaN",
                              l->ts->path[t->shard], t->stored_name) : 0;
}

/* The type of a tensor's weights once they are decoded. */
static enum dtype plain_type(const struct tensor *t) { return dtype_is_quantised(t->dtype) ? DT_F32 : t->dtype; }

/* Packs one tensor into the rows of m from r0 on. */
static int load_rows(struct loader *l, struct mat *m, size_t r0, const struct tensor *t,
                     const struct padding *p)
{
    const size_t rows = t->dim[0], cols = t->dim[1];
    const enum dtype from = plain_type(t);
    const size_t elt = dtype_size(from), stored = t->bytes / rows, row_bytes = cols * elt, wide = m->k * elt;
    size_t slab_rows = SLAB_BYTES / MAX(row_bytes, wide);
    if (t->head_rows)
        slab_rows -= slab_rows % t->head_rows;
    if (slab_rows == 0)
        return err_set(l->e, ERR_INPUT, "tensor %s: rows of %zu bytes, at most %d are allowed", t->stored_name,
                       row_bytes, SLAB_BYTES / (int)MAX(1, t->head_rows));
    for (size_t r = 0; r < rows; r += slab_rows) {
        size_t n = MIN(slab_rows, rows - r);
        if (tensors_read(l->ts, t, l->slab, r * stored, n * stored, l->e))
            return -1;
        const char *src = l->slab;
        if (t->head_rows) {
            assert(p->col_seg == p->col_pad);
            for (size_t i = 0; i < n; i++)
                memcpy(l->spread + i * stored, l->slab + tensor_row(t, i) * stored, stored);
            src = l->spread;
        }
        if (from != t->dtype) {
            if (decode_rows(l, t, src, n, stored))
                return -1;
            src = (const char *)l->plain;
        }
        if (p->col_seg != p->col_pad) {
            memset(l->spread, 0, n * wide);
            for (size_t i = 0; i < n; i++)
                for (size_t c = 0; c < cols; c += p->col_seg)
                    memcpy(l->spread + i * wide + c / p->col_seg * p->col_pad * elt,
                           src + i * row_bytes + c * elt, p->col_seg * elt);
            src = l->spread;
        }
        for (size_t i = 0, some; i < n; i += some) {             /* rows of one segment stay together */
            const size_t row = r + i, in_seg = row % p->seg;
            some = p->seg == p->seg_pad ? n : MIN(p->seg - in_seg, n - i);
            l->model->dev->mat_put(l->model->dev, m, r0 + row / p->seg * p->seg_pad + in_seg, some,
                                   src + i * wide, from);
        }
        if (*l->dev->error)
            return err_set(l->e, ERR_FAILED, "%s: %s", l->dev->name, l->dev->error);
        if (report(l, n * stored))
            return -1;
    }
    return 0;
}

/* A tensor of the files: its name after the prefix of its layer. */
struct source { const char *name; size_t rows; };

/* Loads a matrix from one to three tensors stacked by rows. Under f32 arithmetic it has the tensors' type
 * (F32 if they differ), else bf16. */
static int load_mat(struct loader *l, struct mat *m, const char *prefix, const struct source *src,
                    size_t n_src, size_t cols, const struct padding *p)
{
    const struct tensor *t[3];
    size_t rows = 0, params = 0;
    m->type = DT_OTHER;
    for (size_t i = 0; i < n_src; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s.weight", prefix, src[i].name);
        t[i] = l->ts ? tensors_need(l->ts, name, src[i].rows, cols, l->e) : NULL;
        if (l->ts && !t[i])
            return -1;
        const enum dtype type = l->ts ? plain_type(t[i]) : DT_BF16;
        m->type = m->type == DT_OTHER || m->type == type ? type : DT_F32;
        rows += src[i].rows;
        params += src[i].rows * cols;
    }
    m->type = l->dev->mat_type(l->dev, m->type, l->model->compute);
    m->n = rows / p->seg * p->seg_pad;
    m->k = cols / p->col_seg * p->col_pad;
    m->w = assign(l, l->dev->mat_size(l->dev, m->type, m->n, m->k));
    if (!l->mem) {
        l->model->n_params += params;
        for (size_t i = 0; i < n_src && l->ts; i++)
            l->total += t[i]->bytes;
        return 0;
    }
    /* Packing would only permute random values. The packed form has no padding, which would have to stay
     * 0. */
    if (!l->ts) {
        const size_t bytes = l->dev->mat_size(l->dev, m->type, m->n, m->k);
        assert(bytes == m->n * m->k * 2);
        l->model->dev->noise(l->model->dev, m->w, bytes / 2, l->seed++, 1 / sqrtf((float)m->k));
        return 0;
    }
    for (size_t i = 0, r0 = 0; i < n_src; i++) {
        if (load_rows(l, m, r0, t[i], p))
            return -1;
        r0 += src[i].rows / p->seg * p->seg_pad;
    }
    return 0;
}

/* Loads tensors of one dimension, one after the other, as floats in padded segments. */
static int load_vec(struct loader *l, float **v, const char *prefix, const struct source *src, size_t n_src,
                    const char *kind, size_t seg, size_t seg_pad)
{
    size_t n = 0;
    for (size_t i = 0; i < n_src; i++)
        n += src[i].rows / seg * seg_pad;
    *v = assign(l, n * sizeof(float));
    size_t at = 0;
    for (size_t i = 0; i < n_src; i++) {
        char name[256];
        float *to = (float *)(void *)l->spread;
        snprintf(name, sizeof name, "%s%s.%s", prefix, src[i].name, kind);
        const struct tensor *t = l->ts ? tensors_need(l->ts, name, src[i].rows, 0, l->e) : NULL;
        if (l->ts && !t)
            return -1;
        if (!l->mem) {
            l->total += t ? t->bytes : 0;
            l->model->n_params += src[i].rows;
            continue;
        }
        const size_t rows = src[i].rows / seg * seg_pad;
        if (!t) {
            assert(rows <= SLAB_BYTES / sizeof *to);
            for (size_t j = 0; j < rows; j++)
                to[j] = strcmp(kind, "weight") == 0;
            l->model->dev->upload(l->model->dev, *v + at, to, rows * sizeof *to);
            at += rows;
            continue;
        }
        if (t->bytes > SLAB_BYTES || rows > SLAB_BYTES / sizeof *to)
            return err_set(l->e, ERR_INPUT, "tensor %s: %zu bytes, at most %d are allowed for a vector",
                           t->stored_name, t->bytes, SLAB_BYTES);
        if (tensors_read(l->ts, t, l->slab, 0, t->bytes, l->e))
            return -1;
        memset(to, 0, rows * sizeof *to);
        for (size_t j = 0; j < src[i].rows; j++)
            to[j / seg * seg_pad + j % seg] = tensor_value(l->slab, t->dtype, tensor_row(t, j));
        l->model->dev->upload(l->model->dev, *v + at, to, rows * sizeof *to);
        at += rows;
        if (report(l, t->bytes))
            return -1;
    }
    return 0;
}

static int load_layer(struct loader *l, size_t index, struct layer *y)
{
    const struct config *c = &l->model->config;
    const size_t d = c->head_dim, dp = l->model->head_dim, q = c->n_heads * d, kv = c->n_kv_heads * d;
    const struct source qkv[] = { { "self_attn.q_proj", q }, { "self_attn.k_proj", kv },
                                  { "self_attn.v_proj", kv } };
    const struct source gate_up[] = { { "mlp.gate_proj", c->ffn }, { "mlp.up_proj", c->ffn } };
    const struct source o = { "self_attn.o_proj", c->hidden }, down = { "mlp.down_proj", c->hidden };
    const struct source in = { "input_layernorm", c->hidden };
    const struct source post = { "post_attention_layernorm", c->hidden };
    const struct source q_norm = { "self_attn.q_norm", d }, k_norm = { "self_attn.k_norm", d };
    const struct padding by_head = { d, dp, 1, 1 }, by_head_column = { 1, 1, d, dp };
    char at[64];
    snprintf(at, sizeof at, "model.layers.%zu.", index);
    return load_vec(l, &y->norm_attn, at, &in, 1, "weight", 1, 1) ||
           load_mat(l, &y->qkv, at, qkv, 3, c->hidden, &by_head) ||
           (c->qkv_bias && load_vec(l, &y->qkv_bias, at, qkv, 3, "bias", d, dp)) ||
           (c->qk_norm && (load_vec(l, &y->q_norm, at, &q_norm, 1, "weight", 1, 1) ||
                           load_vec(l, &y->k_norm, at, &k_norm, 1, "weight", 1, 1))) ||
           load_mat(l, &y->o, at, &o, 1, q, &by_head_column) ||
           (c->o_bias && load_vec(l, &y->o_bias, at, &o, 1, "bias", 1, 1)) ||
           load_vec(l, &y->norm_mlp, at, &post, 1, "weight", 1, 1) ||
           load_mat(l, &y->gate_up, at, gate_up, 2, c->hidden, &unpadded) ||
           (c->mlp_bias && load_vec(l, &y->gate_up_bias, at, gate_up, 2, "bias", 1, 1)) ||
           load_mat(l, &y->down, at, &down, 1, c->ffn, &unpadded) ||
           (c->mlp_bias && load_vec(l, &y->down_bias, at, &down, 1, "bias", 1, 1)) ? -1 : 0;
}

/* Decodes the embedding of an untied model, to the type of the computation. */
static int decode_embed(struct loader *l, const struct tensor *t)
{
    struct model *m = l->model;
    const size_t stored = t->bytes / t->dim[0], cols = t->dim[1], elt = dtype_size(m->embed.type),
                 some = SLAB_BYTES / (cols * sizeof *l->plain);
    if (some == 0)
        return err_set(l->e, ERR_INPUT, "tensor %s: rows of %zu weights, at most %zu are allowed", t->stored_name, cols,
                       SLAB_BYTES / sizeof *l->plain);
    for (size_t r = 0; r < t->dim[0]; r += some) {
        const size_t n = MIN(some, t->dim[0] - r);
        uint16_t *half = (uint16_t *)(void *)l->spread;
        if (tensors_read(l->ts, t, l->slab, r * stored, n * stored, l->e) || decode_rows(l, t, l->slab, n, stored))
            return -1;
        for (size_t i = 0; elt == 2 && i < n * cols; i++)
            half[i] = f32_to_bf16(l->plain[i]);
        m->dev->upload(m->dev, (char *)m->embed.w + r * cols * elt, elt == 2 ? (void *)half : l->plain, n * cols * elt);
        if (report(l, n * stored))
            return -1;
    }
    return 0;
}

/* Loads the embedding of an untied model, rows as they are stored. */
static int load_embed(struct loader *l)
{
    struct model *m = l->model;
    if (!l->ts) {
        const size_t n = m->config.vocab * m->config.hidden;
        m->embed = (struct mat){ DT_BF16, m->config.vocab, m->config.hidden, assign(l, n * 2) };
        m->n_params += l->mem ? 0 : n;
        if (l->mem)
            m->dev->noise(m->dev, m->embed.w, n, l->seed++, 1);
        return 0;
    }
    const struct tensor *t =
        tensors_need(l->ts, "model.embed_tokens.weight", m->config.vocab, m->config.hidden, l->e);
    if (!t)
        return -1;
    const enum dtype type = dtype_is_quantised(t->dtype) ? l->model->compute : t->dtype;
    m->embed = (struct mat){ type, m->config.vocab, m->config.hidden, assign(l, t->n_elements * dtype_size(type)) };
    if (!l->mem) {
        l->total += t->bytes;
        m->n_params += t->n_elements;
        return 0;
    }
    if (type != t->dtype)
        return decode_embed(l, t);
    for (size_t at = 0; at < t->bytes; at += SLAB_BYTES) {
        size_t n = MIN((size_t)SLAB_BYTES, t->bytes - at);
        char *to = l->dev->host_memory ? (char *)m->embed.w + at : l->slab;
        if (tensors_read(l->ts, t, to, at, n, l->e))
            return -1;
        if (to == l->slab)
            m->dev->upload(m->dev, (char *)m->embed.w + at, to, n);
        if (report(l, n))
            return -1;
    }
    return 0;
}

static int load_all(struct loader *l)
{
    struct model *m = l->model;
    const struct config *c = &m->config;
    const struct source head = { c->tied ? "model.embed_tokens" : "lm_head", c->vocab },
        norm = { "model.norm", c->hidden };
    if (!c->tied && load_embed(l))
        return -1;
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer measured = { 0 };
        if (load_layer(l, i, l->mem ? &m->layers[i] : &measured))
            return -1;
    }
    return load_vec(l, &m->norm_final, "", &norm, 1, "weight", 1, 1) ||
           load_mat(l, &m->lm_head, "", &head, 1, c->hidden, &unpadded) ? -1 : 0;
}

int model_plan_bytes(const struct config *c, const struct tensors *ts, enum dtype compute,
                     const struct device *dev, size_t *bytes, struct err *e)
{
    struct model m = { .config = *c, .compute = compute, .head_dim = dev->head_dim(dev, c->head_dim) };
    struct loader l = { .model = &m, .ts = ts, .dev = dev, .e = e };
    if (load_all(&l))
        return -1;
    *bytes = l.used;
    return 0;
}

/* Measures, allocates and loads. After a failure the caller must call model_close. name: for messages. */
static int build(struct loader *l, const char *name)
{
    struct model *m = l->model;
    struct device *dev = m->dev;
    assert(m->head_dim && dev->mat_type(dev, DT_BF16, m->compute) != DT_OTHER);      /* device_choice_open */
    if (load_all(l))
        return -1;
    m->mem_bytes = m->weight_bytes = l->used;
    l->mem = m->mem = dev->alloc(dev, m->mem_bytes);
    l->slab = mem_alloc(SLAB_BYTES);
    l->spread = mem_alloc(SLAB_BYTES);
    l->plain = mem_alloc(SLAB_BYTES);
    m->layers = calloc(m->config.n_layers, sizeof *m->layers);
    m->inv_freq = calloc(m->config.head_dim / 2, sizeof *m->inv_freq);
    int rc = l->mem && l->slab && l->spread && l->plain && m->layers && m->inv_freq
                 ? 0
                 : err_set(l->e, ERR_FAILED, "%s: out of memory for the weights (%zu bytes, on %s)", name,
                           m->mem_bytes, dev->name);
    l->used = 0;
    rc = rc || load_all(l) ? -1 : 0;
    if (rc == 0 && *dev->error)
        rc = err_set(l->e, ERR_FAILED, "%s: %s", dev->name, dev->error);
    if (rc == 0)
        config_rope(&m->config, m->inv_freq, &m->rope_factor);
    mem_free(l->slab, SLAB_BYTES);
    mem_free(l->spread, SLAB_BYTES);
    mem_free(l->plain, SLAB_BYTES);
    return rc;
}

int model_open(struct model *m, const char *dir, const struct model_setup *s, struct err *e)
{
    struct tensors ts = { 0 };
    struct device *dev = s->dev;
    struct loader l = { .model = m, .ts = &ts, .dev = dev, .progress = s->progress, .ctx = s->ctx, .e = e };
    assert(s->compute == DT_BF16 || s->compute == DT_F32);
    assert(!dev->host_memory || dev->compute_f32 == (s->compute == DT_F32));
    *m = (struct model){ .config = *s->config, .compute = s->compute, .dev = dev, .ops = s->ops,
                         .pool = s->pool, .head_dim = dev->head_dim(dev, s->config->head_dim) };
    if ((size_t)snprintf(m->path, sizeof m->path, "%s", dir) >= sizeof m->path)
        return err_set(e, ERR_INPUT, "model directory: name of more than %zu bytes", sizeof m->path - 1);
    int rc = tensors_open_as(&ts, dir, s->weights, s->config->tied, e) || build(&l, dir) ? -1 : 0;
    tensors_close(&ts);
    if (rc)
        model_close(m);
    return rc;
}

int model_random(struct model *m, const struct model_setup *s, uint64_t seed, struct err *e)
{
    struct loader l = { .model = m, .seed = seed, .dev = s->dev, .e = e };
    *m = (struct model){ .config = *s->config, .compute = s->compute, .dev = s->dev, .ops = s->ops,
                         .pool = s->pool, .head_dim = s->dev->head_dim(s->dev, s->config->head_dim) };
    snprintf(m->path, sizeof m->path, "random weights");
    if (build(&l, m->path) == 0)
        return 0;
    model_close(m);
    return -1;
}

/* ---- the 8-bit copy ---- */

enum { QUANTIZE_PANELS = 32 };       /* panels of one work item */

static size_t quantized_bytes(size_t n, size_t k)
{
    return (mat_bytes(&(struct mat){ DT_I8, n, k, NULL }) + 63) / 64 * 64;
}

size_t model_quantized_bytes(const struct config *c, const struct device *dev)
{
    const size_t d = dev->head_dim(dev, c->head_dim), q = c->n_heads * d, kv = c->n_kv_heads * d;
    return c->n_layers * (quantized_bytes(q + 2 * kv, c->hidden) + quantized_bytes(c->hidden, q) +
                          quantized_bytes(2 * c->ffn, c->hidden) + quantized_bytes(c->hidden, c->ffn)) +
           quantized_bytes(c->vocab, c->hidden);
}

struct quantizing { struct mat *to; const struct mat *from; };

static void quantize_item(void *ctx, size_t i, size_t thread)
{
    const struct quantizing *q = ctx;
    (void)thread;
    mat_quantize(q->to, q->from, i * QUANTIZE_PANELS, MIN((i + 1) * QUANTIZE_PANELS, mat_panels(q->from)));
}

/* Quantizes `from` into memory at *at and advances *at. */
static void quantize(struct mat *to, const struct mat *from, char **at, struct pool *pool)
{
    *to = (struct mat){ DT_I8, from->n, from->k, *at };
    *at += quantized_bytes(from->n, from->k);
    pool_run(pool, (mat_panels(from) + QUANTIZE_PANELS - 1) / QUANTIZE_PANELS, quantize_item,
             &(struct quantizing){ to, from });
}

int model_quantize(struct model *to, const struct model *from, model_progress *progress, void *ctx,
                   struct err *e)
{
    const struct config *c = &from->config;
    assert(from->dev->host_memory);
    *to = *from;
    to->mem_bytes = to->weight_bytes = model_quantized_bytes(c, from->dev);
    to->mem = from->dev->alloc(from->dev, to->mem_bytes);
    to->layers = calloc(c->n_layers, sizeof *to->layers);
    to->inv_freq = calloc(c->head_dim / 2, sizeof *to->inv_freq);
    if (!to->mem || !to->layers || !to->inv_freq) {
        err_set(e, ERR_FAILED, "%s: out of memory for the draft weights (%zu bytes)", from->path,
                to->mem_bytes);
        model_close(to);
        return -1;
    }
    char *at = to->mem;
    memcpy(to->inv_freq, from->inv_freq, c->head_dim / 2 * sizeof *to->inv_freq);
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer *y = &from->layers[l];
        struct layer *z = &to->layers[l];
        *z = *y;
        quantize(&z->qkv, &y->qkv, &at, from->pool);
        quantize(&z->o, &y->o, &at, from->pool);
        quantize(&z->gate_up, &y->gate_up, &at, from->pool);
        quantize(&z->down, &y->down, &at, from->pool);
        const size_t done = (size_t)(at - (char *)to->mem);
        if (progress && !progress(ctx, done, to->mem_bytes)) {
            err_set(e, ERR_AGAIN, "stopped after %zu of %zu bytes", done, to->mem_bytes);
            model_close(to);
            return -1;
        }
    }
    quantize(&to->lm_head, &from->lm_head, &at, from->pool);
    return 0;
}

void model_close(struct model *m)
{
    if (m->dev)
        m->dev->free(m->dev, m->mem, m->mem_bytes);
    free(m->layers);
    free(m->inv_freq);
    *m = (struct model){ 0 };
}
