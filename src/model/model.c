/* Loading of weights: from files into the device's packed form, held once. Also random weights for measuring.
 *
 * load_all goes through all tensors in a fixed order and runs twice: first to measure (loader.mem == NULL),
 * then to write down where each tensor goes. Then one pass over the files (reading.h) hands rows to take.
 * Start at load_layer, then load_mat. */
#include "src/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant.h"
#include "src/model/encode.h"
#include "src/model/fingerprint.h"
#include "src/model/gguf_form.h"
#include "src/model/per_layer.h"

enum { VECTOR_BYTES = 4 << 20, ROW_BYTES_MAX = 4 << 20,
       RANDOM_PANELS = 32,           /* panels of a work item that fills a matrix */
       MADE = 1024 };                /* values that a `maker` makes at once */

/* Padding of rows and columns: row r of a tensor goes to row r/seg*seg_pad + r%seg of the matrix (the
 * device pads the dimensions of a head), and columns likewise by col_seg. */
struct padding { size_t seg, seg_pad, col_seg, col_pad; };
static const struct padding unpadded = { 1, 1, 1, 1 };

/* Where a tensor of the files goes: rows r0 .. of mat, a vector of padded segments, or the rows of the
 * embedding. */
struct goal {
    enum { GOAL_NONE, GOAL_MAT, GOAL_VECTOR, GOAL_EMBED } kind;
    struct mat *mat; size_t r0;
    float *vector;
    struct padding pad;
    enum change change;                  /* of the values of a vector */
    size_t group;                        /* rows that stay together: whole panels and whole heads */
};

struct loader {
    struct model *model;
    const struct tensors *ts;        /* NULL: weights are random */
    uint64_t seed;                   /* of the next random matrix */
    enum dtype random; bool random_mix; struct device *maker;    /* of struct model_setup */
    size_t layer;                    /* that is being loaded */
    enum change change;              /* of the vectors that are being loaded */
    const struct device *dev;
    char *mem;                       /* the device's; NULL: the loader only measures */
    size_t used;
    struct goal *goal;               /* [ts->n] */
    /* for each thread: a group of rows after a step of its preparation (encoded, in order, decoded, with
     * padded columns) */
    char *room; size_t room_bytes, group_bytes;
    struct fingerprint *fingerprint;
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

/* The type that a tensor's weights are packed from. Columns are padded only after decoding, because the
 * blocks of a quantised type would not fit the padding. */
static enum dtype plain_type(const struct tensor *t, const struct padding *p)
{
    return dtype_is_quantised(t->dtype) && p->col_seg != p->col_pad ? DT_F32 : t->dtype;
}

/* ---- taking rows ---- */

/* n rows of a group as mat_put takes them: encoded, in order, decoded, with padded columns. room: the
 * thread's. NULL and an error: a block cannot be encoded or decoded. */
static const char *prepare(const struct loader *l, const struct tensor *t, const struct goal *to, size_t row,
                           size_t n, const char *src, char *room, struct err *e)
{
    const enum dtype plain = plain_type(t, &to->pad);
    const size_t cols = t->dim[1], elt = dtype_size(plain), row_bytes = t->bytes / t->dim[0],
                 wide = cols / to->pad.col_seg * to->pad.col_pad * elt;
    if (t->encoded || t->turns) {
        if (tensors_make_rows(l->ts, t, room, src, row, n, e))
            return NULL;
        src = room;
        room += l->group_bytes;
    }
    if (t->head_rows) {
        for (size_t i = 0; i < n; i++)
            memcpy(room + i * row_bytes, src + tensor_row(t, i) * row_bytes, row_bytes);
        src = room;
        room += l->group_bytes;
    }
    if (dtype_is_quantised(t->dtype) && !quant_is_finite(t->dtype, src, n * cols)) {
        err_set(e, ERR_INPUT, "%s: tensor \"%s\": the factor of a block is infinite or NaN",
                l->ts->path[t->shard], t->stored_name);
        return NULL;
    }
    if (plain != t->dtype) {
        float *x = (float *)(void *)room;
        quant_decode(x, t->dtype, src, n * cols);
        for (size_t i = 0; i < n * cols && to->mat->scaled; i++)
            x[i] *= to->mat->scale;
        src = room;
        room += l->group_bytes;
    }
    if (to->pad.col_seg != to->pad.col_pad) {
        memset(room, 0, n * wide);
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < cols; c += to->pad.col_seg)
                memcpy(room + i * wide + c / to->pad.col_seg * to->pad.col_pad * elt,
                       src + (i * cols + c) * elt, to->pad.col_seg * elt);
        src = room;
    }
    return src;
}

static void put(const struct loader *l, const struct tensor *t, const struct goal *to, size_t row, size_t n,
                const char *src)
{
    struct device *dev = l->model->dev;
    const struct padding *p = &to->pad;
    const enum dtype plain = plain_type(t, p);
    const size_t wide = plain == t->dtype && p->col_seg == p->col_pad ? t->bytes / t->dim[0]
                                                                      : to->mat->k * dtype_size(plain);
    for (size_t i = 0, some; i < n; i += some) {                 /* rows of one segment stay together */
        const size_t r = row + i, in_seg = r % p->seg;
        some = p->seg == p->seg_pad ? n : MIN(p->seg - in_seg, n - i);
        dev->mat_put(dev, to->mat, to->r0 + r / p->seg * p->seg_pad + in_seg, some, src + i * wide, plain);
    }
}

/* A vector, or the columns of a small matrix one after the other. */
static void put_vector(const struct loader *l, const struct tensor *t, const struct goal *to, const void *src,
                       char *room)
{
    const size_t rows = t->dim[0] / to->pad.seg * to->pad.seg_pad, cols = t->n_dims > 1 ? t->dim[1] : 1;
    const enum dtype type = t->encoded ? t->stored_dtype : t->dtype;
    float *x = (float *)(void *)room;
    memset(x, 0, rows * cols * sizeof *x);
    for (size_t j = 0; j < t->dim[0] * cols; j++) {
        const size_t row = j / cols;
        const size_t stored = t->turns ? row * t->turns + t->turn : tensor_row(t, row);
        const float value = tensor_value(src, type, stored * cols + j % cols);
        x[j % cols * rows + row / to->pad.seg * to->pad.seg_pad + row % to->pad.seg] =
            changed(value, to->change);
    }
    l->model->dev->upload(l->model->dev, to->vector, x, rows * cols * sizeof *x);
}

static int take(void *ctx, size_t index, size_t row, size_t n, const char *src, size_t thread, struct err *e)
{
    const struct loader *l = ctx;
    const struct tensor *t = &l->ts->t[index];
    const struct goal *to = &l->goal[index];
    char *room = l->room + thread * l->room_bytes;
    const size_t stored = tensor_stored_bytes(t) / t->dim[0];
    if (to->kind == GOAL_VECTOR)
        put_vector(l, t, to, src, room);
    for (size_t i = 0, some; i < n && to->kind != GOAL_VECTOR; i += some) {
        some = MIN(to->group, n - i);
        const char *x = prepare(l, t, to, row + i, some, src + i * stored, room, e);
        if (!x)
            return -1;
        if (to->kind == GOAL_MAT)
            put(l, t, to, row + i, some, x);
        else                         /* rows of the embedding of an untied model, as they are stored */
            l->model->dev->upload(l->model->dev,
                                  (char *)l->model->embed.w + (row + i) * (t->bytes / t->dim[0]), x,
                                  some * (t->bytes / t->dim[0]));
    }
    return *l->dev->error ? err_set(e, ERR_FAILED, "%s: %s", l->dev->name, l->dev->error) : 0;
}

static size_t group_of(void *ctx, size_t index)
{
    const struct loader *l = ctx;
    return l->goal[index].kind == GOAL_NONE ? 0 : l->goal[index].group;
}

/* ---- the list of tensors ---- */

/* Writes down where tensor t goes. */
static int aim(struct loader *l, const struct tensor *t, struct goal goal)
{
    const size_t cols = t->n_dims > 1 ? t->dim[1] / goal.pad.col_seg * goal.pad.col_pad : 1,
                 widest = cols * MAX(sizeof(float), dtype_size(t->encoded ? t->stored_dtype : t->dtype));
    goal.group = goal.kind == GOAL_VECTOR ? t->dim[0] : PANEL;
    for (size_t heads = t->head_rows; goal.kind == GOAL_MAT && heads && goal.group % heads;)
        goal.group += PANEL;
    if (goal.kind != GOAL_VECTOR && widest > ROW_BYTES_MAX / MAX((size_t)1, t->head_rows))
        return err_set(l->e, ERR_INPUT, "tensor %s: rows of %zu bytes, at most %zu are allowed",
                       t->stored_name, widest, ROW_BYTES_MAX / MAX((size_t)1, t->head_rows));
    const size_t rows = goal.kind == GOAL_VECTOR ? t->dim[0] / goal.pad.seg * goal.pad.seg_pad : goal.group;
    l->group_bytes = MAX(l->group_bytes, rows * widest);
    l->goal[t - l->ts->t] = goal;
    return 0;
}

/* A tensor of the files: its name after the prefix of its layer. */
struct source { const char *name; size_t rows; };

/* The type of a random tensor. Files of Q4_K_M have Q6_K in the value and down projections of the first and
 * last eighth of the layers and of every third layer between. */
static enum dtype random_type(const struct loader *l, const char *name, size_t cols)
{
    const size_t n = l->model->config.n_layers, i = l->layer, eighth = n / 8;
    const bool head = strcmp(name, "lm_head") == 0 || strcmp(name, "model.embed_tokens") == 0,
               more = i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
    enum dtype t = l->random;
    if (!dtype_is_quantised(t) || !l->random_mix)
        return t == DT_OTHER ? DT_BF16 : t;
    if (t != DT_Q8_0 &&
        (head || (t == DT_Q4_K && more && (strstr(name, "v_proj") || strstr(name, "down_proj")))))
        t = DT_Q6_K;
    if (cols % dtype_block(t))
        t = t == DT_Q6_K ? DT_Q8_0 : DT_Q5_0;
    return t;
}

/* Types of the matrices of a product and the number of tensors in each: tensors next to each other with equal
 * types form one, unless they have scales. Without quantised weights there is one matrix: under f32
 * arithmetic it has the tensors' type (F32 if they differ), else bf16. */
static void choose_types(const struct loader *l, struct mat *m, size_t *n_m, size_t n_in[MATS_MAX],
                         enum dtype type[MATS_MAX], const struct tensor *scale[MATS_MAX], size_t n)
{
    bool quantised = false, equal = true;
    for (size_t i = 0; i < n; i++) {
        type[i] = l->dev->mat_type(l->dev, type[i], l->model->compute);
        quantised |= dtype_is_quantised(type[i]);
        equal &= type[i] == type[0];
    }
    for (size_t i = 0; i < n && !quantised && !equal; i++)
        type[i] = l->dev->mat_type(l->dev, DT_F32, l->model->compute);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || type[i] != type[i - 1] || scale[i] || scale[i - 1]) {
            m[count].type = type[i];
            n_in[count++] = 0;
        }
        n_in[count - 1]++;
    }
    *n_m = count;
}

struct randomising { struct mat *m; uint64_t seed; };

static void randomise_item(void *ctx, size_t i, size_t thread)
{
    const struct randomising *r = ctx;
    (void)thread;
    quant_random(r->m, i * RANDOM_PANELS, MIN((i + 1) * RANDOM_PANELS, mat_panels(r->m)), r->seed);
}

/* Fills a matrix, packed or as rows, with the values of the maker. */
static void fill_made(struct loader *l, struct mat *m, bool packed, float deviation)
{
    uint16_t x[MADE];
    assert(m->k <= MADE && m->type == DT_BF16);
    for (size_t r = 0; r < m->n; r++) {
        l->maker->noise(l->maker, x, m->k, l->seed++, deviation);
        if (packed)
            l->dev->mat_put(l->model->dev, m, r, 1, x, DT_BF16);
        else
            l->dev->upload(l->model->dev, (uint16_t *)m->w + r * m->k, x, m->k * sizeof *x);
    }
}

/* Packing would only permute random values. The packed form has no padding, which would have to stay 0; the
 * only padded matrix, the gate of a shared expert, stays 0, so that its share is a half. */
static void fill_random(struct loader *l, struct mat *m)
{
    const size_t bytes = l->dev->mat_size(l->dev, m->type, m->n, m->k);
    if (dtype_is_quantised(m->type)) {
        pool_run(l->model->pool, (mat_panels(m) + RANDOM_PANELS - 1) / RANDOM_PANELS, randomise_item,
                 &(struct randomising){ m, l->seed++ });
        return;
    }
    if (m->n == 1)
        return;
    if (l->maker) {
        fill_made(l, m, true, 1 / sqrtf((float)m->k));
        return;
    }
    assert(bytes == m->n * m->k * 2);
    l->model->dev->noise(l->model->dev, m->w, bytes / 2, l->seed++, 1 / sqrtf((float)m->k));
}

/* Loads the matrices m of a product, n_m of at most n_src, from one to MATS_MAX tensors stacked by
 * rows. */
static int load_mats(struct loader *l, struct mat *m, size_t *n_m, const char *prefix,
                     const struct source *src, size_t n_src, size_t cols, const struct padding *p)
{
    const struct tensor *t[MATS_MAX], *scale[MATS_MAX];
    enum dtype type[MATS_MAX];
    size_t n_in[MATS_MAX];
    for (size_t i = 0; i < n_src; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s.weight", prefix, src[i].name);
        t[i] = l->ts ? tensors_need(l->ts, name, src[i].rows, cols, l->e) : NULL;
        if (l->ts && !t[i])
            return -1;
        l->model->n_params += l->mem ? 0 : src[i].rows * cols;
        type[i] = l->ts ? plain_type(t[i], p) : random_type(l, src[i].name, cols);
        scale[i] = t[i] ? tensors_find_scale(l->ts, t[i]) : NULL;
    }
    choose_types(l, m, n_m, n_in, type, scale, n_src);
    for (size_t i = 0, s = 0; i < *n_m; s += n_in[i++], m++) {
        size_t rows = 0;
        for (size_t j = s; j < s + n_in[i]; j++)
            rows += src[j].rows;
        m->n = rows / p->seg * p->seg_pad;
        m->k = cols / p->col_seg * p->col_pad;
        m->w = assign(l, l->dev->mat_size(l->dev, m->type, m->n, m->k));
        if (l->mem && !l->ts)
            fill_random(l, m);
        m->scaled = scale[s];
        if (l->mem && scale[s] && tensors_read_number(l->ts, scale[s], &m->scale, l->e))
            return -1;
        for (size_t j = s, r0 = 0; l->mem && l->ts && j < s + n_in[i]; j++) {
            if (aim(l, t[j], (struct goal){ .kind = GOAL_MAT, .mat = m, .r0 = r0, .pad = *p }))
                return -1;
            r0 += src[j].rows / p->seg * p->seg_pad;
        }
    }
    return 0;
}

static int load_mat(struct loader *l, struct mat *m, const char *prefix, const struct source *src,
                    size_t cols, const struct padding *p)
{
    size_t one;
    return load_mats(l, m, &one, prefix, src, 1, cols, p);
}

static void fill_vec(struct loader *l, float *to, size_t n, float value)
{
    float x[MADE];
    uint16_t more[MADE] = { 0 };
    for (size_t i = 0; i < n; i += MADE) {
        if (l->maker)
            l->maker->noise(l->maker, more, MADE, l->seed++, 0.2f);
        for (size_t j = 0; j < MADE; j++)
            x[j] = value + bf16_to_f32(more[j]);
        l->model->dev->upload(l->model->dev, to + i, x, MIN(n - i, (size_t)MADE) * sizeof *x);
    }
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
        snprintf(name, sizeof name, "%s%s.%s", prefix, src[i].name, kind);
        const struct tensor *t = l->ts ? tensors_need(l->ts, name, src[i].rows, 0, l->e) : NULL;
        const size_t rows = src[i].rows / seg * seg_pad;
        if (l->ts && !t)
            return -1;
        if (MAX(rows * sizeof(float), t ? t->bytes : 0) > VECTOR_BYTES)
            return err_set(l->e, ERR_INPUT, "tensor %s: %zu elements, at most %zu are allowed for a vector",
                           t ? t->stored_name : name, src[i].rows, VECTOR_BYTES / sizeof(float));
        if (!l->mem)
            l->model->n_params += src[i].rows;
        else if (!t)
            fill_vec(l, *v + at, rows, strcmp(kind, "weight") == 0 || strstr(kind, "scal"));
        else if (aim(l, t,
                     (struct goal){ .kind = GOAL_VECTOR, .vector = *v + at, .pad = { seg, seg_pad, 1, 1 },
                                    .change = l->change }))
            return -1;
        at += rows;
    }
    return 0;
}

static int load_dense(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const size_t ffn = c->layer[l->layer].ffn;
    const struct source gate_up[] = { { "mlp.gate_proj", ffn }, { "mlp.up_proj", ffn } };
    const struct source down = { "mlp.down_proj", c->hidden };
    return load_mats(l, y->gate_up.m, &y->gate_up.n, at, gate_up, 2, c->hidden, &unpadded) ||
           (c->mlp_bias && load_vec(l, &y->gate_up_bias, at, gate_up, 2, "bias", 1, 1)) ||
           load_mat(l, &y->down, at, &down, ffn, &unpadded) ||
           (c->mlp_bias && load_vec(l, &y->down_bias, at, &down, 1, "bias", 1, 1)) ? -1 : 0;
}

/* Loads a router, or the gate of a shared expert: floats as the file stores them, because its products are
 * those of float rows. */
static int load_router(struct loader *l, const char *at, const char *part, size_t rows, struct mat *m)
{
    const struct config *c = &l->model->config;
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", at, part);
    const struct tensor *t = l->ts ? tensors_need(l->ts, name, rows, c->hidden, l->e) : NULL;
    if (l->ts && !t)
        return -1;
    if (t && !tensor_is_float(t->dtype))
        return err_set(l->e, ERR_INPUT,
                       "tensor %s: dtype %s, allowed for a router are BF16, F16 and F32", t->stored_name,
                       t->dtype_name);
    *m = (struct mat){ t ? t->dtype : DT_BF16, rows, c->hidden, NULL };
    m->w = assign(l, l->dev->mat_size(l->dev, m->type, m->n, m->k));
    l->model->n_params += l->mem ? 0 : m->n * m->k;
    if (l->mem && !t)
        fill_random(l, m);
    return l->mem && t ? aim(l, t, (struct goal){ .kind = GOAL_MAT, .mat = m, .pad = unpadded }) : 0;
}

static int load_expert(struct loader *l, const char *prefix, size_t ffn, bool bias, struct device_expert *x)
{
    const size_t d = l->model->config.hidden;
    const struct source gate_up[] = { { "gate_proj", ffn }, { "up_proj", ffn } }, down = { "down_proj", d };
    float *gate_up_bias = NULL, *down_bias = NULL;
    const int rc = load_mats(l, x->gate_up, &x->n_gate_up, prefix, gate_up, 2, d, &unpadded) ||
                           load_mat(l, &x->down, prefix, &down, ffn, &unpadded) ||
                           (bias && (load_vec(l, &gate_up_bias, prefix, gate_up, 2, "bias", 1, 1) ||
                                     load_vec(l, &down_bias, prefix, &down, 1, "bias", 1, 1)))
                       ? -1
                       : 0;
    x->gate_up_bias = gate_up_bias;
    x->down_bias = down_bias;
    return rc;
}

static int load_shared(struct loader *l, const char *at, struct layer *y)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%smlp.shared_expert.", at);
    return load_router(l, at, "mlp.shared_expert_gate", 1, &y->shared_gate) ||
           load_expert(l, prefix, l->model->config.shared_ffn, false, &y->shared) ? -1 : 0;
}

static int load_experts(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const struct source gate = { "mlp.gate", c->n_experts };
    struct device_expert measured;
    if (load_router(l, at, "mlp.gate", c->n_experts, &y->router) ||
        (c->experts_bias && load_vec(l, &y->router_bias, at, &gate, 1, "bias", 1, 1)) ||
        (c->shared_ffn && load_shared(l, at, y)))
        return -1;
    const size_t before = l->used;
    for (size_t i = 0; i < c->n_experts; i++) {
        struct device_expert *x = l->mem ? &y->expert[i] : &measured;
        char prefix[96];
        snprintf(prefix, sizeof prefix, "%smlp.experts.%zu.", at, i);
        if (load_expert(l, prefix, c->expert_ffn, c->experts_bias, x))
            return -1;
        const struct device_expert *first = l->mem ? y->expert : x;
        if (x->n_gate_up != first->n_gate_up || x->gate_up->type != first->gate_up->type ||
            x->down.type != first->down.type)
            return err_set(l->e, ERR_INPUT, "%s: experts of layer %zu have weights of different types",
                           l->ts->path[0], l->layer);
    }
    l->model->expert_bytes += l->mem ? 0 : l->used - before;
    return 0;
}

/* Loads the weights of one norm. */
static int load_norm(struct loader *l, float **v, const char *at, const char *name, size_t dim)
{
    const struct source src = { name, dim };
    l->change = l->model->config.norm_plus_one ? PLUS_ONE : AS_IS;
    const int rc = load_vec(l, v, at, &src, 1, "weight", 1, 1);
    l->change = AS_IS;
    return rc;
}

static int load_attention(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const struct layer_spec *s = &c->layer[l->layer];
    const struct device_heads heads = model_heads(l->model, l->layer);
    const size_t d = heads.head_dim, dp = heads.padded, q = c->n_heads * d, kv = heads.n_kv_heads * d;
    const struct source qkv[] = { { "self_attn.q_proj", s->gated ? 2 * q : q }, { "self_attn.k_proj", kv },
                                  { "self_attn.v_proj", kv } };
    const struct source o = { "self_attn.o_proj", c->hidden }, attn = { "self_attn", c->n_heads };
    const struct padding by_head = { d, dp, 1, 1 }, by_head_column = { 1, 1, d, dp };
    const bool own = s->kv_layer == l->layer, whole = s->qk_norm == QK_NORM_WHOLE;
    return load_mats(l, y->qkv.m, &y->qkv.n, at, qkv, !own ? 1 : s->v_is_k ? 2 : 3,
                     c->hidden, &by_head) ||
           (c->qkv_bias && load_vec(l, &y->qkv_bias, at, qkv, 3, "bias", d, dp)) ||
           (s->qk_norm && load_norm(l, &y->q_norm, at, "self_attn.q_norm", whole ? q : d)) ||
           (s->qk_norm && own && load_norm(l, &y->k_norm, at, "self_attn.k_norm", whole ? kv : d)) ||
           load_mat(l, &y->o, at, &o, q, &by_head_column) ||
           (c->o_bias && load_vec(l, &y->o_bias, at, &o, 1, "bias", 1, 1)) ||
           (s->head_logits && load_vec(l, &y->head_logit, at, &attn, 1, "sinks", 1, 1)) ? -1 : 0;
}

/* Loads what experts beside a dense network have: a norm of the router's inputs, factors of the experts, and
 * three norms. */
static int load_beside(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const struct source router = { "router", c->hidden }, experts = { "router", c->n_experts };
    return load_vec(l, &y->norm_router, at, &router, 1, "scale", 1, 1) ||
           load_vec(l, &y->expert_scale, at, &experts, 1, "per_expert_scale", 1, 1) ||
           load_norm(l, &y->norm_dense_after, at, "post_feedforward_layernorm_1", c->hidden) ||
           load_norm(l, &y->norm_experts, at, "pre_feedforward_layernorm_2", c->hidden) ||
           load_norm(l, &y->norm_experts_after, at, "post_feedforward_layernorm_2", c->hidden) ? -1 : 0;
}

/* Loads the factor of a layer, whose name has no dot after the layer's. */
static int load_scale(struct loader *l, const char *at, struct layer *y)
{
    const struct source one = { "", 1 };
    char layer[64];
    snprintf(layer, sizeof layer, "%.*s", (int)strlen(at) - 1, at);
    return load_vec(l, &y->scale, layer, &one, 1, "layer_scalar", 1, 1);
}

/* Loads what a layer needs for its embeddings. */
static int load_per_layer(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const struct source gate = { "per_layer_input_gate", c->per_layer },
                        out = { "per_layer_projection", c->hidden };
    return load_mat(l, &y->per_layer_gate, at, &gate, c->hidden, &unpadded) ||
           load_mat(l, &y->per_layer_out, at, &out, c->per_layer, &unpadded) ||
           load_norm(l, &y->norm_per_layer, at, "post_per_layer_input_norm", c->hidden) ? -1 : 0;
}

/* Loads what all layers have in common for their embeddings. The table stays in its file. */
static int load_per_layer_in(struct loader *l)
{
    struct model *m = l->model;
    const struct config *c = &m->config;
    const struct source in = { "model.per_layer_model_projection", c->n_layers * c->per_layer };
    if (l->ts && !tensors_need(l->ts, PER_LAYER_TABLE, c->per_layer_vocab, in.rows, l->e))
        return -1;
    m->n_params += l->mem ? 0 : c->per_layer_vocab * in.rows;
    return load_mat(l, &m->per_layer_in, "", &in, c->hidden, &unpadded) ||
           load_norm(l, &m->norm_per_layer, "", "model.per_layer_projection_norm", c->per_layer) ? -1 : 0;
}

/* Loads the weights of the convolution, [channels, conv], column by column. */
static int load_convolution(struct loader *l, const char *at, float **v)
{
    const struct config *c = &l->model->config;
    const size_t channels = config_delta_channels(c), n = channels * c->delta.conv;
    char name[96];
    snprintf(name, sizeof name, "%slinear_attn.conv1d.weight", at);
    const struct tensor *t = l->ts ? tensors_need(l->ts, name, channels, c->delta.conv, l->e) : NULL;
    if (l->ts && !t)
        return -1;
    if (t && (!tensor_is_float(t->dtype) || n * sizeof(float) > VECTOR_BYTES))
        return err_set(l->e, ERR_INPUT,
                       "tensor %s: dtype %s and %zu elements, allowed are BF16, F16, F32 and %zu elements",
                       t->stored_name, t->dtype_name, n, VECTOR_BYTES / sizeof(float));
    *v = assign(l, n * sizeof(float));
    l->model->n_params += l->mem ? 0 : n;
    if (l->mem && !t)
        fill_vec(l, *v, n, 0.5f);
    return l->mem && t ? aim(l, t, (struct goal){ .kind = GOAL_VECTOR, .vector = *v, .pad = unpadded }) : 0;
}

static int load_delta(struct loader *l, const char *at, struct layer *y)
{
    const struct config *c = &l->model->config;
    const size_t heads = c->delta.value_heads, z = heads * c->delta.value_dim;
    const struct source mix[] = { { "linear_attn.in_proj_qkv", config_delta_channels(c) },
                                  { "linear_attn.in_proj_z", z }, { "linear_attn.in_proj_b", heads },
                                  { "linear_attn.in_proj_a", heads } };
    const struct source per_head = { "linear_attn", heads },
                        norm = { "linear_attn.norm", c->delta.value_dim },
                        out = { "linear_attn.out_proj", c->hidden };
    l->change = c->decay_ready ? AS_IS : MINUS_EXP;
    int rc = load_vec(l, &y->decay, at, &per_head, 1, "A_log", 1, 1);
    l->change = AS_IS;
    return rc || load_mats(l, y->mix.m, &y->mix.n, at, mix, 4, c->hidden, &unpadded) ||
           load_convolution(l, at, &y->conv) ||
           load_vec(l, &y->dt_bias, at, &per_head, 1, "dt_bias", 1, 1) ||
           load_vec(l, &y->norm_state, at, &norm, 1, "weight", 1, 1) ||
           load_mat(l, &y->out, at, &out, z, &unpadded) ? -1 : 0;
}

static int (*const load_mixer[])(struct loader *, const char *at, struct layer *) = {
    [MIXER_ATTENTION] = load_attention, [MIXER_DELTA] = load_delta,
};

static int load_layer(struct loader *l, const char *at, size_t index, struct layer *y)
{
    const struct config *c = &l->model->config;
    static const char after[] = "post_attention_layernorm";
    const struct layer_spec *s = &c->layer[index];
    const bool both = s->norms != NORM_BEFORE, before = s->norms != NORM_AFTER;
    return (before && load_norm(l, &y->norm_attn, at, "input_layernorm", c->hidden)) ||
           load_mixer[s->mixer](l, at, y) ||
           (both && load_norm(l, &y->norm_attn_after, at, after, c->hidden)) ||
           (before &&
            load_norm(l, &y->norm_mlp, at, both ? "pre_feedforward_layernorm" : after, c->hidden)) ||
           (s->experts && load_experts(l, at, y)) || (s->ffn && load_dense(l, at, y)) ||
           (s->beside && load_beside(l, at, y)) ||
           (s->scaled && load_scale(l, at, y)) || (c->per_layer && load_per_layer(l, at, y)) ||
           (both && load_norm(l, &y->norm_mlp_after, at, "post_feedforward_layernorm", c->hidden)) ? -1 : 0;
}

/* Loads the embedding of an untied model, rows as they are stored. */
static int load_embed(struct loader *l, const char *name)
{
    struct model *m = l->model;
    if (!l->ts) {
        const size_t n = m->config.vocab * m->config.hidden;
        m->embed = (struct mat){ DT_BF16, m->config.vocab, m->config.hidden, assign(l, n * 2) };
        m->n_params += l->mem ? 0 : n;
        if (l->mem && l->maker)
            fill_made(l, &m->embed, false, 1);
        else if (l->mem)
            m->dev->noise(m->dev, m->embed.w, n, l->seed++, 1);
        return 0;
    }
    const struct tensor *t = tensors_need(l->ts, name, m->config.vocab, m->config.hidden, l->e);
    if (!t)
        return -1;
    m->embed = (struct mat){ t->dtype, m->config.vocab, m->config.hidden, assign(l, t->bytes) };
    if (!l->mem) {
        m->n_params += t->n_elements;
        return 0;
    }
    return aim(l, t, (struct goal){ .kind = GOAL_EMBED, .pad = unpadded });
}

/* Loads the matrices before and after the layers of a drafter (assistant.h). */
static int load_projections(struct loader *l)
{
    struct model *m = l->model;
    const struct config *c = &m->config;
    const struct source before = { "pre_projection", c->hidden }, after = { "post_projection", c->backbone };
    return load_mat(l, &m->fuse, "", &before, 2 * c->backbone, &unpadded) ||
           load_mat(l, &m->project, "", &after, c->hidden, &unpadded) ? -1 : 0;
}

/* Loads a draft layer (mtp.h). Without an embedding or an LM head of its own, it has those of its model. */
static int load_drafting(struct loader *l)
{
    static const char embed[] = "mtp.embed_tokens.weight", head[] = "mtp.lm_head.weight";
    struct model *m = l->model;
    const size_t d = m->config.hidden;
    const struct source fc = { "fc", d }, lm_head = { "lm_head", m->config.vocab };
    struct layer measured = { 0 }, *y = l->mem ? m->layers : &measured;
    y->expert = m->experts;
    if (l->ts && tensors_find(l->ts, "mtp.layers.1.input_layernorm.weight"))
        return err_set(l->e, ERR_INPUT, "%s: tensor \"mtp.layers.1.input_layernorm.weight\": one draft layer "
                                        "is supported, not several", l->ts->path[0]);
    return (l->ts && tensors_find(l->ts, embed) && load_embed(l, embed)) ||
           load_mat(l, &m->fuse, "mtp.", &fc, 2 * d, &unpadded) ||
           load_norm(l, &m->norm_token, "mtp.", "pre_fc_norm_embedding", d) ||
           load_norm(l, &m->norm_state, "mtp.", "pre_fc_norm_hidden", d) ||
           load_layer(l, "mtp.layers.0.", 0, y) || load_norm(l, &m->norm_final, "mtp.", "norm", d) ||
           (l->ts && tensors_find(l->ts, head) && load_mat(l, &m->lm_head, "mtp.", &lm_head, d, &unpadded))
               ? -1 : 0;
}

static int load_all(struct loader *l)
{
    struct model *m = l->model;
    const struct config *c = &m->config;
    const struct source head = { c->tied ? "model.embed_tokens" : "lm_head", c->vocab };
    if (c->drafts)
        return load_drafting(l);
    if ((!c->tied && load_embed(l, "model.embed_tokens.weight")) ||
        (c->per_layer && load_per_layer_in(l)) || (c->backbone && load_projections(l)))
        return -1;
    for (size_t i = 0, experts = 0; i < c->n_layers; i++) {
        struct layer measured = { 0 };
        char at[64];
        snprintf(at, sizeof at, "model.layers.%zu.", i);
        l->layer = i;
        if (l->mem && c->layer[i].experts)
            m->layers[i].expert = m->experts + c->n_experts * experts++;
        if (load_layer(l, at, i, l->mem ? &m->layers[i] : &measured))
            return -1;
    }
    return load_norm(l, &m->norm_final, "", "model.norm", c->hidden) ||
           load_mat(l, &m->lm_head, "", &head, c->hidden, &unpadded) ? -1 : 0;
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

/* Reads all tensors that have a goal, and all others where a fingerprint is wanted. */
static int read_all(struct loader *l)
{
    const struct model *m = l->model;
    const size_t threads = m->pool ? pool_threads(m->pool) : 1;
    struct fingerprint *f = l->fingerprint;
    l->group_bytes = (l->group_bytes + 63) / 64 * 64;
    l->room_bytes = 4 * l->group_bytes;
    l->room = mem_alloc(threads * l->room_bytes);
    const struct reading r = { .ts = l->ts,
                               .pool = m->pool,
                               .digest = f ? f->digest : NULL,
                               .n_digests = f ? f->n_digests : 0,
                               .group = group_of,
                               .take = take,
                               .ctx = l,
                               .take_alone = !l->dev->host_memory,
                               .progress = l->progress,
                               .progress_ctx = l->ctx };
    const int rc = l->room ? read_tensors(&r, l->e) : err_set(l->e, ERR_FAILED, "out of memory for reading");
    mem_free(l->room, threads * l->room_bytes);
    return rc;
}

/* The factor on the embeddings, for EMBED_SCALED_ROUNDED in the type that they are stored in. With --weights
 * the factor is that of a GGUF file. */
static float embed_scale(const struct loader *l)
{
    const struct config *c = &l->model->config;
    const struct tensor *t = l->ts ? tensors_find(l->ts, "model.embed_tokens.weight") : NULL;
    const float scale = c->embed_factor != 0 ? (float)c->embed_factor : sqrtf((float)c->hidden);
    if (c->embed == EMBED_AS_IS)
        return 1;
    if (c->embed == EMBED_SCALED || !t || t->encoded || (t->dtype != DT_BF16 && t->dtype != DT_F16))
        return scale;
    return t->dtype == DT_BF16 ? bf16_to_f32(f32_to_bf16(scale)) : f16_to_f32(f32_to_f16(scale));
}

/* Measures, allocates and loads. After a failure the caller must call model_close. name: for messages. */
static int build(struct loader *l, const char *name)
{
    struct model *m = l->model;
    struct device *dev = m->dev;
    m->quantised = l->ts ? model_is_quantised(l->ts) : dtype_is_quantised(l->random);
    device_quantised(dev, m->quantised);
    assert(m->head_dim && dev->mat_type(dev, DT_BF16, m->compute) != DT_OTHER);      /* device_choice_open */
    if (load_all(l))
        return -1;
    m->mem_bytes = m->weight_bytes = l->used;
    l->mem = m->mem = dev->alloc(dev, m->mem_bytes);
    l->goal = calloc(l->ts ? l->ts->n : 1, sizeof *l->goal);
    m->layers = calloc(m->config.n_layers, sizeof *m->layers);
    m->experts = calloc(model_expert_layers(m) * m->config.n_experts + 1, sizeof *m->experts);
    m->inv_freq = calloc(m->config.head_dim, sizeof *m->inv_freq);
    int rc = l->mem && l->goal && m->layers && m->experts && m->inv_freq
                 ? 0
                 : err_set(l->e, ERR_FAILED, "%s: out of memory for the weights (%zu bytes, on %s)", name,
                           m->mem_bytes, dev->name);
    l->used = 0;
    rc = rc || load_all(l) || (l->ts && read_all(l)) ? -1 : 0;
    if (rc == 0 && *dev->error)
        rc = err_set(l->e, ERR_FAILED, "%s: %s", dev->name, dev->error);
    for (size_t i = 0, slot[2] = { 0 }; rc == 0 && i < m->config.n_layers; i++)
        m->layers[i].slot = config_owns_kv(&m->config, i) ? slot[m->config.layer[i].mixer]++
                                                          : m->config.layer[i].kv_layer;
    for (size_t i = 0; rc == 0 && m->config.experts_beside && i < m->config.n_layers * m->config.hidden; i++)
        m->layers[i / m->config.hidden].norm_router[i % m->config.hidden] /= sqrtf((float)m->config.hidden);
    for (size_t i = 0; rc == 0 && m->config.logit_divisor != 0 && i < m->config.hidden; i++)
        m->norm_final[i] /= (float)m->config.logit_divisor;
    if (rc == 0) {
        float *local = m->inv_freq + m->config.head_dim / 2;
        config_rope(&m->config, m->inv_freq, &m->rope_factor);
        m->local_freq = config_rope_local(&m->config, local) ? local : NULL;
        m->embed_scale = embed_scale(l);
    }
    free(l->goal);
    return rc;
}

static void close_files(struct model *m)
{
    if (m->files && !m->borrows_files) {
        tensors_close(m->files);
        free(m->files);
    }
    m->files = NULL;
}

int model_open(struct model *m, const char *dir, const struct model_setup *s, struct err *e)
{
    struct device *dev = s->dev;
    struct loader l = { .model = m, .dev = dev, .fingerprint = s->fingerprint,
                        .progress = s->progress, .ctx = s->ctx, .e = e };
    assert(s->compute == DT_BF16 || s->compute == DT_F32);
    assert(!dev->host_memory || dev->compute_f32 == (s->compute == DT_F32));
    *m = (struct model){ .config = *s->config, .compute = s->compute, .dev = dev, .ops = s->ops,
                         .pool = s->pool, .head_dim = dev->head_dim(dev, s->config->head_dim) };
    if ((size_t)snprintf(m->path, sizeof m->path, "%s", dir) >= sizeof m->path)
        return err_set(e, ERR_INPUT, "model directory: name of more than %zu bytes", sizeof m->path - 1);
    struct tensors *ts = m->files = calloc(1, sizeof *ts);
    if (!ts)
        return err_set(e, ERR_FAILED, "%s: out of memory", dir);
    l.ts = ts;
    int rc = tensors_open_as(ts, dir, s->weights, s->config->tied, e);
    m->table = rc || !s->config->per_layer ? NULL : tensors_find(ts, PER_LAYER_TABLE);
    m->table_stamp = m->table ? per_layer_stamp(ts, m->table) : 0;
    rc = rc || build(&l, dir) ? -1 : 0;
    if (!m->table)
        close_files(m);
    if (rc)
        model_close(m);
    return rc;
}

int model_random(struct model *m, const struct model_setup *s, uint64_t seed, struct err *e)
{
    struct loader l = {
        .model = m, .seed = seed, .random = s->random, .random_mix = s->random_mix, .maker = s->maker,
        .dev = s->dev, .e = e
    };
    *m = (struct model){ .config = *s->config, .compute = s->compute, .dev = s->dev, .ops = s->ops,
                         .pool = s->pool, .head_dim = s->dev->head_dim(s->dev, s->config->head_dim) };
    snprintf(m->path, sizeof m->path, "random weights");
    if (build(&l, m->path) == 0)
        return 0;
    model_close(m);
    return -1;
}

void model_close(struct model *m)
{
    if (m->dev)
        m->dev->free(m->dev, m->mem, m->mem_bytes);
    free(m->layers);
    free(m->experts);
    free(m->inv_freq);
    close_files(m);
    *m = (struct model){ 0 };
}
