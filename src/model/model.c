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
    const struct model_setup *s;
    const struct tensors *ts;        /* NULL: weights are random */
    uint64_t seed;                   /* of the next random matrix */
    size_t layer;                    /* that is being loaded */
    const struct device *dev;
    char *mem;                       /* the device's; NULL: the loader only measures */
    size_t used;
    struct goal *goal;               /* [ts->n] */
    /* for each thread: a group of rows after a step of its preparation (encoded, in order, decoded, with
     * padded columns) */
    char *room; size_t room_bytes, group_bytes;
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
        tensor_bad(l->ts, t, e, ": the factor of a block is infinite or NaN");
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

/* The type of a random tensor. Files of Q4_K_M have Q6_K in the value and down projections of the first and
 * last eighth of the layers and of every third layer between. */
static enum dtype random_type(const struct loader *l, const char *name, size_t cols)
{
    const size_t n = l->model->config.n_layers, i = l->layer, eighth = n / 8;
    const bool head = strstr(name, "lm_head") || strstr(name, "embed_tokens"),
               more = i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
    enum dtype t = l->s->random;
    if (!dtype_is_quantised(t) || !l->s->random_mix)
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
        l->s->maker->noise(l->s->maker, x, m->k, l->seed++, deviation);
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
    if (l->s->maker) {
        fill_made(l, m, true, 1 / sqrtf((float)m->k));
        return;
    }
    assert(bytes == m->n * m->k * 2);
    l->model->dev->noise(l->model->dev, m->w, bytes / 2, l->seed++, 1 / sqrtf((float)m->k));
}

/* Loads the matrices m of a product, n_m of at most n, from one to MATS_MAX tensors stacked by rows. */
static int load_mats(struct loader *l, struct mat *m, size_t *n_m, const char *at,
                     const struct layer_part *p, size_t n, const struct padding *pad)
{
    const struct tensor *t[MATS_MAX] = { NULL }, *scale[MATS_MAX];
    const size_t cols = p->cols;
    enum dtype type[MATS_MAX];
    size_t n_in[MATS_MAX];
    for (size_t i = 0; i < n; i++) {
        t[i] = l->ts ? part_need(l->ts, at, &p[i], l->e) : NULL;
        if (l->ts && !t[i])
            return -1;
        type[i] = l->ts ? plain_type(t[i], pad) : random_type(l, p[i].name, cols);
        scale[i] = t[i] ? tensors_find_scale(l->ts, t[i]) : NULL;
    }
    choose_types(l, m, n_m, n_in, type, scale, n);
    if (p->form == PART_ROUTER)          /* floats as the file stores them */
        m->type = t[0] ? t[0]->dtype : DT_BF16;
    for (size_t i = 0, s = 0; i < *n_m; s += n_in[i++], m++) {
        size_t rows = 0;
        for (size_t j = s; j < s + n_in[i]; j++)
            rows += p[j].rows;
        m->n = rows / pad->seg * pad->seg_pad;
        m->k = cols / pad->col_seg * pad->col_pad;
        m->w = assign(l, l->dev->mat_size(l->dev, m->type, m->n, m->k));
        if (l->mem && !l->ts)
            fill_random(l, m);
        m->scaled = scale[s];
        if (l->mem && scale[s] && tensors_read_number(l->ts, scale[s], &m->scale, l->e))
            return -1;
        for (size_t j = s, r0 = 0; l->mem && l->ts && j < s + n_in[i]; j++) {
            if (aim(l, t[j], (struct goal){ .kind = GOAL_MAT, .mat = m, .r0 = r0, .pad = *pad }))
                return -1;
            r0 += p[j].rows / pad->seg * pad->seg_pad;
        }
    }
    return 0;
}

static void fill_vec(struct loader *l, float *to, size_t n, float value)
{
    float x[MADE];
    uint16_t more[MADE] = { 0 };
    for (size_t i = 0; i < n; i += MADE) {
        if (l->s->maker)
            l->s->maker->noise(l->s->maker, more, MADE, l->seed++, 0.2f);
        for (size_t j = 0; j < MADE; j++)
            x[j] = value + bf16_to_f32(more[j]);
        l->model->dev->upload(l->model->dev, to + i, x, MIN(n - i, (size_t)MADE) * sizeof *x);
    }
}

/* The mean of the random values of a vector: 1 of norms and factors, 0 of biases. */
static float random_mean(const struct layer_part *p)
{
    return p->cols ? 0.5f : name_ends_in(p->name, "weight") || strstr(p->name, "scal");
}

/* Loads n tensors as floats in padded segments, one after the other. */
static int load_vec(struct loader *l, float **v, const char *at, const struct layer_part *p, size_t n,
                    const struct padding *pad)
{
    const struct config *c = &l->model->config;
    const enum change change = p->form == PART_NORM && c->norm_plus_one  ? PLUS_ONE
                               : p->form == PART_DECAY && !c->decay_ready ? MINUS_EXP
                                                                          : AS_IS;
    size_t all = 0, from = 0;
    for (size_t i = 0; i < n; i++)
        all += p[i].rows / pad->seg * pad->seg_pad * MAX(p[i].cols, (size_t)1);
    *v = assign(l, all * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = l->ts ? part_need(l->ts, at, &p[i], l->e) : NULL;
        const size_t values = p[i].rows / pad->seg * pad->seg_pad * MAX(p[i].cols, (size_t)1);
        if (l->ts && !t)
            return -1;
        if (MAX(values * sizeof(float), t ? t->bytes : 0) > VECTOR_BYTES)
            return err_set(l->e, ERR_INPUT, "tensor %s: %zu elements, at most %zu are allowed for a vector",
                           t ? t->stored_name : p[i].name, values, VECTOR_BYTES / sizeof(float));
        if (l->mem && !t)
            fill_vec(l, *v + from, values, random_mean(&p[i]));
        else if (l->mem && aim(l, t, (struct goal){ .kind = GOAL_VECTOR, .vector = *v + from, .pad = *pad,
                                                    .change = change }))
            return -1;
        from += values;
    }
    return 0;
}

static int load_parts(struct loader *l, const char *at, const struct layer_part *p, size_t n, void *to);

/* Loads an expert: `at` is what its names begin with. */
static int load_expert(struct loader *l, const char *at, bool shared, struct device_expert *x)
{
    struct layer_part p[EXPERT_PARTS];
    const size_t n = expert_parts(p, &l->model->config, shared);
    return load_parts(l, at, p, n, x);
}

/* Loads the n experts of a layer. */
static int load_experts(struct loader *l, const char *at, size_t n, struct device_expert *to)
{
    const size_t before = l->used;
    struct device_expert measured = { 0 };
    for (size_t i = 0; i < n; i++) {
        struct device_expert *x = l->mem ? &to[i] : &measured;
        char prefix[128];
        snprintf(prefix, sizeof prefix, "%s%zu.", at, i);
        if (load_expert(l, prefix, false, x))
            return -1;
        const struct device_expert *first = l->mem ? to : x;
        if (x->gate_up.n != first->gate_up.n || x->gate_up.m->type != first->gate_up.m->type ||
            x->down.type != first->down.type)
            return err_set(l->e, ERR_INPUT, "%s: experts of layer %zu have weights of different types",
                           l->ts->path[0], l->layer);
    }
    l->model->expert_bytes += l->mem ? 0 : l->used - before;
    return 0;
}

/* Loads an embedding, rows as they are stored. */
static int load_embed(struct loader *l, struct mat *m, const struct layer_part *p)
{
    struct device *dev = l->model->dev;
    const struct tensor *t = l->ts ? part_need(l->ts, "", p, l->e) : NULL;
    if (l->ts && !t)
        return -1;
    *m = (struct mat){ t ? t->dtype : DT_BF16, p->rows, p->cols, NULL };
    m->w = assign(l, t ? t->bytes : p->rows * p->cols * 2);
    if (!l->mem)
        return 0;
    if (t)
        return aim(l, t, (struct goal){ .kind = GOAL_EMBED, .pad = unpadded });
    if (l->s->maker)
        fill_made(l, m, false, 1);
    else
        dev->noise(dev, m->w, p->rows * p->cols, l->seed++, 1);
    return 0;
}

/* Loads the parts of a place. */
static int load_place(struct loader *l, const char *at, const struct layer_part *p, size_t n, void *to)
{
    const struct device_heads h = model_heads(l->model, l->layer);
    const bool by_head = p->form == PART_HEADS || p->form == PART_HEAD_VECTOR;
    const struct padding pad = by_head ? (struct padding){ h.head_dim, h.padded, 1, 1 }
                               : p->form == PART_HEAD_COLUMNS ? (struct padding){ 1, 1, h.head_dim, h.padded }
                                                              : unpadded;
    struct mats *stack = to;
    char name[96];
    size_t one;
    snprintf(name, sizeof name, "%s%s", at, p->name);
    switch (p->form) {
    case PART_STACK: case PART_HEADS: return load_mats(l, stack->m, &stack->n, at, p, n, &pad);
    case PART_MATRIX: case PART_HEAD_COLUMNS: case PART_ROUTER:
        return load_mats(l, to, &one, at, p, 1, &pad);
    case PART_EMBED: return load_embed(l, to, p);
    case PART_TABLE: return l->ts && !part_need(l->ts, "", p, l->e) ? -1 : 0;
    case PART_SHARED: return load_expert(l, name, true, to);
    case PART_EXPERTS: return load_experts(l, name, p->rows, *(struct device_expert **)to);
    default: return load_vec(l, to, at, p, n, &pad);
    }
}

static int load_parts(struct loader *l, const char *at, const struct layer_part *p, size_t n, void *to)
{
    int rc = 0;
    for (size_t i = 0, same; rc == 0 && i < n; i += same) {
        same = parts_of_place(p + i, n - i);
        rc = load_place(l, at, p + i, same, (char *)to + p[i].place);
    }
    return rc;
}

static int load_all(struct loader *l)
{
    static const char second[] = "mtp.layers.1.input_layernorm.weight";
    struct model *m = l->model;
    const struct config *c = &m->config;
    struct layer_part outside[MODEL_PARTS_MAX], p[PARTS_MAX];
    size_t before = 0;
    if (c->drafts && l->ts && tensors_find(l->ts, second))
        return err_set(l->e, ERR_INPUT, "%s: tensor \"%s\": one draft layer is supported, not several",
                       l->ts->path[0], second);
    const size_t n = model_parts(outside, c, l->ts);
    while (outside[before].place != offsetof(struct model, norm_final))
        before++;
    if (load_parts(l, "", outside, before, m))
        return -1;
    for (size_t i = 0, experts = 0; i < c->n_layers; i++) {
        struct layer measured = { 0 };
        char at[64];
        snprintf(at, sizeof at, "%s.layers.%zu.", c->drafts ? "mtp" : "model", i);
        if (l->mem && c->layer[i].experts)
            m->layers[i].expert = m->experts + c->n_experts * experts++;
        l->layer = i;
        if (load_parts(l, at, p, layer_parts(p, c, i), l->mem ? &m->layers[i] : &measured))
            return -1;
    }
    return load_parts(l, "", outside + before, n - before, m);
}

int model_plan_bytes(const struct config *c, const struct tensors *ts, enum dtype compute,
                     const struct device *dev, size_t *bytes, struct err *e)
{
    struct model m = { .config = *c, .compute = compute, .head_dim = dev->head_dim(dev, c->head_dim) };
    struct loader l = { .model = &m, .s = &(struct model_setup){ 0 }, .ts = ts, .dev = dev, .e = e };
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
    const struct fingerprint *f = l->s->fingerprint;
    l->group_bytes = (l->group_bytes + 63) / 64 * 64;
    l->room_bytes = 4 * l->group_bytes;
    l->room = mem_alloc(threads * l->room_bytes);
    const struct reading r = { .ts = l->ts, .pool = m->pool, .digest = f ? f->digest : NULL,
                               .n_digests = f ? f->n_digests : 0, .group = group_of, .take = take, .ctx = l,
                               .take_alone = !l->dev->host_memory, .progress = l->s->progress,
                               .progress_ctx = l->s->ctx };
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
    m->quantised = l->ts ? model_is_quantised(l->ts) : dtype_is_quantised(l->s->random);
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

static void begin(struct model *m, const struct model_setup *s)
{
    *m = (struct model){ .config = *s->config, .compute = s->compute, .dev = s->dev, .ops = s->ops,
                         .pool = s->pool, .head_dim = s->dev->head_dim(s->dev, s->config->head_dim) };
}

int model_open(struct model *m, const char *dir, const struct model_setup *s, struct err *e)
{
    struct loader l = { .model = m, .s = s, .dev = s->dev, .e = e };
    assert(s->compute == DT_BF16 || s->compute == DT_F32);
    assert(!s->dev->host_memory || s->dev->compute_f32 == (s->compute == DT_F32));
    begin(m, s);
    if ((size_t)snprintf(m->path, sizeof m->path, "%s", dir) >= sizeof m->path)
        return err_set(e, ERR_INPUT, "model directory: name of more than %zu bytes", sizeof m->path - 1);
    struct tensors *ts = m->files = calloc(1, sizeof *ts);
    if (!ts)
        return err_set(e, ERR_FAILED, "%s: out of memory", dir);
    l.ts = ts;
    int rc = tensors_open_as(ts, dir, s->weights, s->config->tied, e);
    m->table = rc || !s->config->per_layer ? NULL : tensors_find(ts, PER_LAYER_TABLE);
    m->table_stamp = m->table ? tensor_stamp(ts, m->table) : 0;
    rc = rc || build(&l, dir) ? -1 : 0;
    if (!m->table)
        close_files(m);
    if (rc)
        model_close(m);
    return rc;
}

int model_random(struct model *m, const struct model_setup *s, uint64_t seed, struct err *e)
{
    struct loader l = { .model = m, .s = s, .seed = seed, .dev = s->dev, .e = e };
    begin(m, s);
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
