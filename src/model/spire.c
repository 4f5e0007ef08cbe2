/* SPIRe's drafter (spire.h): its files, and its pass. Start reading at spire_open(), spire_forward() and
 * spire_commit(). */
#include "src/model/spire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/model/drafter_file.h"
#include "src/model/heads.h"

static const char KIND[] = "spire";

enum { PARTS = 12 };                     /* tensors of a layer, with biases */

/* Adds the tensors of layer i to t[n]; returns their number. */
static size_t layer_tensors(const struct model *m, const struct spire_weights *w, size_t i,
                            struct tensor_out *t)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const float *kb = w->layer[i].kv_bias;
    const struct { const char *name; size_t rows, cols; const float *data; } part[PARTS] = {
        { "self_attn.q_proj.weight", q, d, w->layer[i].q },
        { "self_attn.k_proj.weight", kv, d, w->layer[i].kv },
        { "self_attn.v_proj.weight", kv, d, w->layer[i].kv + kv * d },
        { "self_attn.o_proj.weight", d, q, w->layer[i].o },
        { "mlp.gate_proj.weight", ff, d, w->layer[i].gate_up },
        { "mlp.up_proj.weight", ff, d, w->layer[i].gate_up + ff * d },
        { "mlp.down_proj.weight", d, ff, w->layer[i].down },
        { "input_layernorm.weight", d, 0, w->layer[i].norm_attn },
        { "post_attention_layernorm.weight", d, 0, w->layer[i].norm_mlp },
        { "self_attn.q_proj.bias", q, 0, w->layer[i].q_bias },
        { "self_attn.k_proj.bias", kv, 0, kb },
        { "self_attn.v_proj.bias", kv, 0, kb ? kb + kv : NULL },
    };
    size_t n = 0;
    for (size_t k = 0; k < PARTS; k++) {
        if (!part[k].data)
            continue;
        t[n] = (struct tensor_out){ .dtype = part[k].cols ? DT_BF16 : DT_F32, .rows = part[k].rows,
                                    .cols = part[k].cols, .data = part[k].data };
        snprintf(t[n].name, sizeof t[n].name, "layers.%zu.%s", i, part[k].name);
        n++;
    }
    return n;
}

int spire_save_file(const char *path, const struct model *m, const struct spire_weights *w, const char *note,
                    struct err *e)
{
    struct tensor_out t[SPIRE_LAYERS * PARTS + 2];
    size_t n = 0;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        n += layer_tensors(m, w, i, t + n);
    t[n++] = (struct tensor_out){ "norm.weight", DT_F32, m->config.hidden, 0, w->norm };
    t[n++] = (struct tensor_out){ "memory.weight", DT_F32, SPIRE_LAYERS, SPIRE_MIX, w->memory };
    return drafter_save(path, m, KIND, note, t, n, e);
}

/* ---- memory ---- */

struct spire_buffers {
    /* the device's: SPIRE_ROWS rows */
    float *x, *qkv, *gate_up, *memory[SPIRE_LAYERS];
    void *xn, *q, *attn, *h;             /* act */
    /* arrays of struct device_rows */
    int32_t token[SPIRE_ROWS];
    uint32_t pos[SPIRE_ROWS], hi[SPIRE_ROWS], n_node[SPIRE_ROWS], angle[SPIRE_ROWS],
        node[SPIRE_ROWS * SPIRE_DEPTH];
    struct device_kv kv[SPIRE_ROWS];
    struct device_seq seq[SPIRE_ROWS];
};

static size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

static void assign(struct spire *s, size_t *used, void *slot, size_t bytes)
{
    char *p = s->mem ? (char *)s->mem + *used : NULL;
    memcpy(slot, &p, sizeof p);
    *used += padded_bytes(bytes);
}

static void assign_mat(struct spire *s, size_t *used, struct mat *w, enum dtype type, size_t n, size_t k)
{
    *w = (struct mat){ type, n, k, NULL };
    assign(s, used, &w->w, mat_bytes(w));
    s->weight_bytes += mat_bytes(w);
    s->plain_bytes += n * k * 2;
}

/* Sets the sizes of the matrices, and assigns all parts addresses in s->mem. With s->mem NULL it only counts
 * the bytes. */
static size_t layout(struct spire *s, const struct model *m, bool int8)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, dp = m->head_dim, q = c->n_heads * dp, kv = c->n_kv_heads * dp, ff = c->ffn,
                 n = SPIRE_ROWS, f = sizeof(float), act = dtype_size(model_act(m));
    const enum dtype type = drafter_mat_type(m, int8);
    struct spire_buffers none, *b = s->mem ? s->mem : &none;
    size_t used = padded_bytes(sizeof *b);
    s->buffers = b;
    s->weight_bytes = s->plain_bytes = 0;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        assign_mat(s, &used, &s->layer[i].qkv, type, q + 2 * kv, d);
        assign_mat(s, &used, &s->layer[i].o, type, d, q);
        assign_mat(s, &used, &s->layer[i].gate_up, type, 2 * ff, d);
        assign_mat(s, &used, &s->layer[i].down, type, d, ff);
        if (c->qkv_bias)
            assign(s, &used, &s->layer[i].qkv_bias, (q + 2 * kv) * f);
        assign(s, &used, &s->layer[i].norm_attn, d * f);
        assign(s, &used, &s->layer[i].norm_mlp, d * f);
        assign(s, &used, &b->memory[i], n * d * f);
    }
    assign(s, &used, &s->norm, d * f);
    assign(s, &used, &b->x, n * d * f);
    assign(s, &used, &b->qkv, n * (q + 2 * kv) * f);
    assign(s, &used, &b->gate_up, n * 2 * ff * f);
    assign(s, &used, &b->xn, n * d * act);
    assign(s, &used, &b->q, n * q * act);
    assign(s, &used, &b->attn, n * q * act);
    assign(s, &used, &b->h, n * ff * act);
    return used;
}

size_t spire_bytes(const struct model *m, bool int8)
{
    struct spire s = { 0 };
    return layout(&s, m, int8);
}

/* ---- reading ---- */

/* The name of a tensor of layer i, in one of the buffers of `room`. */
static const char *name_of(char (*room)[96], size_t k, size_t i, const char *part)
{
    snprintf(room[k], sizeof room[k], "layers.%zu.%s", i, part);
    return room[k];
}

static int read_layer(struct spire *s, const struct tensors *ts, const struct model *m, size_t i,
                      struct err *e)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd, ff = c->ffn,
                 dp = m->head_dim;
    const bool in = s->mem;
    char n[12][96];
    const struct drafter_mat
        qkv[] = { { name_of(n, 0, i, "self_attn.q_proj.weight"), q, d, hd, 0 },
                  { name_of(n, 1, i, "self_attn.k_proj.weight"), kv, d, hd, 0 },
                  { name_of(n, 2, i, "self_attn.v_proj.weight"), kv, d, hd, 0 } },
        o = { name_of(n, 3, i, "self_attn.o_proj.weight"), d, q, 0, hd },
        gate_up[] = { { name_of(n, 4, i, "mlp.gate_proj.weight"), ff, d, 0, 0 },
                      { name_of(n, 5, i, "mlp.up_proj.weight"), ff, d, 0, 0 } },
        down = { name_of(n, 6, i, "mlp.down_proj.weight"), d, ff, 0, 0 };
    float *bias = in ? s->layer[i].qkv_bias : NULL, *k_bias = bias ? bias + c->n_heads * dp : NULL,
          *v_bias = bias ? k_bias + c->n_kv_heads * dp : NULL;
    if (c->qkv_bias &&
        (drafter_read_vector(ts, name_of(n, 7, i, "self_attn.q_proj.bias"), q, hd, dp, bias, e) ||
         drafter_read_vector(ts, name_of(n, 8, i, "self_attn.k_proj.bias"), kv, hd, dp, k_bias, e) ||
         drafter_read_vector(ts, name_of(n, 9, i, "self_attn.v_proj.bias"), kv, hd, dp, v_bias, e)))
        return -1;
    return drafter_read_product(in ? &s->layer[i].qkv : NULL, ts, qkv, 3, m, e) ||
                   drafter_read_product(in ? &s->layer[i].o : NULL, ts, &o, 1, m, e) ||
                   drafter_read_product(in ? &s->layer[i].gate_up : NULL, ts, gate_up, 2, m, e) ||
                   drafter_read_product(in ? &s->layer[i].down : NULL, ts, &down, 1, m, e) ||
                   drafter_read_vector(ts, name_of(n, 10, i, "input_layernorm.weight"), d, 0, 0,
                                       s->layer[i].norm_attn, e) ||
                   drafter_read_vector(ts, name_of(n, 11, i, "post_attention_layernorm.weight"), d, 0, 0,
                                       s->layer[i].norm_mlp, e)
               ? -1
               : 0;
}

/* With s->mem NULL it only checks names and shapes. */
static int read_tensors(struct spire *s, const struct tensors *ts, const struct model *m, struct err *e)
{
    const struct tensor *t = tensors_need(ts, "memory.weight", SPIRE_LAYERS, SPIRE_MIX, e);
    float w[SPIRE_LAYERS][SPIRE_MIX];
    if (!t || t->dtype != DT_F32)
        return t ? err_set(e, ERR_INPUT, "%s: tensor \"memory.weight\": dtype %s, allowed is F32",
                           ts->path[0], t->dtype_name)
                 : -1;
    if (tensors_read(ts, t, w, 0, sizeof w, e))
        return -1;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        double sum = 0;
        for (size_t l = 0; l < SPIRE_MIX; l++)
            sum += exp((double)w[i][l]);
        if (!isfinite(sum))
            return err_set(e, ERR_INPUT, "%s: tensor \"memory.weight\": not a finite number, or one beyond "
                           "709", ts->path[0]);
        for (size_t l = 0; l < SPIRE_MIX; l++)
            s->share[i][l] = (float)(exp((double)w[i][l]) / sum);
        if (read_layer(s, ts, m, i, e))
            return -1;
    }
    return drafter_read_vector(ts, "norm.weight", m->config.hidden, 0, 0, s->norm, e);
}

/* Opens the file, and reads it unless `check`. */
static int open_file(struct spire *s, const char *path, const struct model *m, bool int8, bool check,
                     struct err *e)
{
    struct tensors ts;
    *s = (struct spire){ .model = m };
    if (!path && drafter_find(s->path, m->path, KIND, e))
        return -1;
    if (path && snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path)
        return err_set(e, ERR_INPUT, "spire: a path of %zu bytes, at most %zu are allowed", strlen(path),
                       sizeof s->path - 1);
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter spire is not supported on this device; --device cpu "
                                     "supports it", m->dev->name);
    if (m->config.n_layers < SPIRE_LAYERS)
        return err_set(e, ERR_INPUT, "--drafter spire: a model of %zu layers, at least %d are needed",
                       m->config.n_layers, SPIRE_LAYERS);
    if (drafter_open(&ts, s->path, KIND, m, &s->foreign, e))
        return -1;
    int rc = read_tensors(s, &ts, m, e);           /* only checks */
    if (rc == 0 && !check) {
        s->mem_bytes = layout(s, m, int8);
        s->mem = mem_alloc(s->mem_bytes);
        if (!s->mem)
            rc = err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", s->path, s->mem_bytes);
        layout(s, m, int8);
        rc = rc ? rc : read_tensors(s, &ts, m, e);
    }
    tensors_close(&ts);
    if (rc)
        spire_close(s);
    return rc;
}

int spire_open(struct spire *s, const char *path, const struct model *m, bool int8, struct err *e)
{
    return open_file(s, path, m, int8, false, e);
}

int spire_check(const char *path, const struct model *m, struct err *e)
{
    struct spire s;
    assert(!m->mem);
    return open_file(&s, path, m, false, true, e);
}

void spire_close(struct spire *s)
{
    if (s->mem)
        mem_free(s->mem, s->mem_bytes);
    *s = (struct spire){ 0 };
}

/* ---- the pass ---- */

static struct device_heads heads_of(const struct model *m)
{
    return (struct device_heads){ m->config.n_heads, m->config.n_kv_heads, m->config.head_dim, m->head_dim };
}

static struct device_rows rows_of(const struct spire *s, size_t n, size_t n_seqs)
{
    struct spire_buffers *b = s->buffers;
    const struct model *m = s->model;
    return (struct device_rows){ .n = n, .n_seqs = n_seqs, .seq = b->seq, .token = b->token, .pos = b->pos,
                                 .hi = b->hi, .angle = b->angle, .n_node = b->n_node, .node = b->node,
                                 .node_step = SPIRE_DEPTH, .inv_freq = m->inv_freq,
                                 .n_freq = m->config.head_dim / 2, .rope_factor = m->rope_factor };
}

static void product(const struct spire *s, float *y, const struct mat *w, const void *x, const float *bias,
                    size_t n, bool add)
{
    struct device *d = s->model->dev;
    d->product(d, &(struct device_product){ y, w->n, x, n, w, bias, add, SIZE_MAX });
}

/* Queries, keys and values of layer i from x; keys and values go to the cache. */
static void project(const struct spire *s, size_t i, const float *x, size_t n)
{
    const struct model *m = s->model;
    const struct device_heads heads = heads_of(m);
    struct spire_buffers *b = s->buffers;
    struct device *d = m->dev;
    d->rmsnorm(d, b->xn, x, s->layer[i].norm_attn, n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
    product(s, b->qkv, &s->layer[i].qkv, b->xn, s->layer[i].qkv_bias, n, false);
    d->rope(d, &(struct device_rope){ .q = b->q, .qkv = b->qkv, .heads = &heads, .layer = i });
}

/* memory += share x of depth l */
static void remember(const struct spire *s, size_t l, size_t n)
{
    const struct spire_buffers *b = s->buffers;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        for (size_t k = 0; k < n * s->model->config.hidden; k++)
            b->memory[i][k] = (l ? b->memory[i][k] : 0) + s->share[i][l] * b->x[k];
}

static void run_layer(const struct spire *s, size_t i, size_t n)
{
    const struct model *m = s->model;
    const struct device_heads heads = heads_of(m);
    struct spire_buffers *b = s->buffers;
    struct device *d = m->dev;
    project(s, i, b->x, n);
    d->attend(d, b->attn, b->q, &heads, i, 0);
    product(s, b->x, &s->layer[i].o, b->attn, NULL, n, true);
    d->rmsnorm(d, b->xn, b->x, s->layer[i].norm_mlp, n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
    product(s, b->gate_up, &s->layer[i].gate_up, b->xn, NULL, n, false);
    d->swiglu(d, b->h, b->gate_up, n, m->config.ffn);
    product(s, b->x, &s->layer[i].down, b->h, NULL, n, true);
}

int spire_forward(struct spire *s, const struct mat *head, const struct spire_row *row, size_t n,
                  bool memories, float *logits)
{
    const struct model *m = s->model;
    struct spire_buffers *b = s->buffers;
    struct device *d = m->dev;
    struct device_bad bad;
    assert(n <= SPIRE_ROWS);
    for (size_t r = 0; r < n; r++) {
        assert(row[r].node < SPIRE_DEPTH && row[r].node < row[r].own->node_max);
        b->kv[r] = kv_view(row[r].own);
        b->seq[r] = (struct device_seq){ .kv = &b->kv[r], .row0 = r, .n = 1, .n_past = row[r].own->n_past,
                                         .tree = true, .node0 = row[r].node };
        b->token[r] = row[r].token;
        b->hi[r] = (uint32_t)row[r].own->n_past;
        b->pos[r] = b->hi[r] + (uint32_t)row[r].node;
        b->angle[r] = (uint32_t)row[r].position;
        b->n_node[r] = (uint32_t)row[r].node + 1;
        for (uint32_t i = 0; i < b->n_node[r]; i++)
            b->node[r * SPIRE_DEPTH + i] = i;
    }
    const struct device_rows rows = rows_of(s, n, n);
    d->begin(d, &rows);
    d->embed(d, b->x, m->embed.w ? &m->embed : &m->lm_head, !m->embed.w);
    remember(s, 0, n);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        run_layer(s, i, n);
        remember(s, i + 1, n);
    }
    d->rmsnorm(d, b->xn, b->x, s->norm, n, m->config.hidden, (float)m->config.rms_eps, 0);
    d->product(d, &(struct device_product){ logits, m->config.vocab, b->xn, n, head, NULL, false, 0 });
    for (size_t i = 0; i < SPIRE_LAYERS && memories; i++)
        project(s, i, b->memory[i], n);
    return d->end(d, &bad) || bad.any ? -1 : 0;
}

void spire_commit(struct spire *s, struct kv *own, const struct spire_memory *row, size_t n)
{
    const size_t hidden = s->model->config.hidden;
    struct spire_buffers *b = s->buffers;
    struct device *d = s->model->dev;
    struct device_bad ignored;
    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, (size_t)SPIRE_ROWS);
        b->kv[0] = kv_view(own);
        b->seq[0] = (struct device_seq){ .kv = &b->kv[0], .n = some };
        for (size_t r = 0; r < some; r++) {
            const struct spire_memory *x = &row[done + r];
            assert(x->slot < own->n_max);
            b->token[r] = 0;
            b->pos[r] = (uint32_t)x->slot;
            b->hi[r] = b->pos[r] + 1;
            b->angle[r] = (uint32_t)x->position;
            b->n_node[r] = 0;
            for (size_t i = 0; i < SPIRE_LAYERS; i++)
                memcpy(b->memory[i] + r * hidden, x->entering[i], hidden * sizeof(float));
        }
        const struct device_rows rows = rows_of(s, some, 1);
        d->begin(d, &rows);
        for (size_t i = 0; i < SPIRE_LAYERS; i++)
            project(s, i, b->memory[i], some);
        d->end(d, &ignored);
    }
}
