/* The forward pass, written once against struct device, for a list of (cache, rows). Its data: struct
 * workspace (the buffers) and struct pass (one pass in progress). Start at run, then run_layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant.h"
#include "src/model/per_layer.h"

struct workspace {
    struct device *dev;
    size_t rows_max, n_max, bytes, host_bytes, score_bytes;
    char *mem, *host;
    /* the device's */
    /* qkv: also the products of a layer with a state, and outputs before their norm (add_output) */
    float *x, *qkv, *gate_up;
    float *side;                         /* [rows_max][hidden], with experts_beside */
    float *per_layer;                    /* [rows_max][n_layers * per_layer]: embeddings of each layer */
    void *xn, *q, *attn, *h, *picked;    /* act; picked: rows of xn whose logits are wanted */
    void *pair;                          /* act [rows_max][2][hidden]: inputs of `fuse`, of a draft layer */
    float *score; size_t score_step;     /* [n_layers, or 1 in the host's memory][n_kv_heads][score_step] */
    float *entering; size_t entering_bytes;  /* workspace_keep: [KEPT_LAYERS][rows_max][hidden] */
    float *tap; size_t tap_bytes;        /* holds a tap until it is downloaded; the first tap allocates it */
    struct pass_rows rows; uint32_t *want;               /* the host's: [rows_max] */
    char *per_layer_work;
    struct err read;                     /* of the files that the latest pass read */
};

/* ---- buffers ---- */

struct buffer { void *slot; size_t bytes; };

/* Assigns the buffers addresses in mem. With mem NULL it only counts their bytes. */
static size_t assign(const struct buffer *b, size_t n, char *mem, size_t align)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char *p = mem ? mem + used : NULL;
        memcpy(b[i].slot, &p, sizeof p);
        /* with an odd k a product reads one element after its rows */
        used += (b[i].bytes + align - 1) / align * align + align;
    }
    return used;
}

/* The width of the dense layers, and of their embeddings; 0: every layer has experts alone, whose buffers the
 * device owns. */
static size_t dense_ffn(const struct config *c)
{
    size_t n = c->per_layer;
    for (size_t l = 0; l < c->n_layers; l++)
        n = MAX(n, c->layer[l].ffn);
    return n;
}

/* Outputs of the first product of a mixer, and inputs of its last one. With norms after it, the outputs of
 * the last one have the place of those of the first. */
static size_t mixer_outputs(const struct model *m)
{
    const struct config *c = &m->config;
    size_t attention = 0, normed = 0;
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer_spec *s = &c->layer[l];
        const struct device_heads h = model_heads(m, l);
        attention = MAX(attention, ((s->gated ? 2 : 1) * h.n_heads + 2 * h.n_kv_heads) * h.padded);
        normed = s->norms == NORM_BEFORE ? normed : c->hidden;
    }
    const size_t state = config_delta_channels(c) + c->delta.value_heads * (c->delta.value_dim + 2);
    return MAX(MAX(attention, state), normed);
}

static size_t mixer_inputs(const struct model *m)
{
    return MAX(m->config.n_heads * m->head_dim, m->config.delta.value_heads * m->config.delta.value_dim);
}

static void layout(struct workspace *w, const struct model *m)
{
    const struct config *c = &m->config;
    struct pass_rows *r = &w->rows;
    const size_t n = w->rows_max, act = dtype_size(model_act(m)), dp = m->head_dim, ffn = dense_ffn(c);
    w->score_step = (w->n_max + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    w->score_bytes = (m->dev->host_memory ? 1 : c->n_layers) * c->n_kv_heads * w->score_step * sizeof(float);
    const struct buffer device[] = {
        { &w->x, n * c->hidden * sizeof(float) },
        { &w->qkv, n * mixer_outputs(m) * sizeof(float) },
        { &w->gate_up, n * 2 * ffn * sizeof(float) },
        { &w->side, c->experts_beside ? n * c->hidden * sizeof(float) : 0 },
        { &w->per_layer, n * c->n_layers * c->per_layer * sizeof(float) },
        { &w->xn, n * c->hidden * act },
        { &w->q, n * c->n_heads * dp * act },
        { &w->attn, n * mixer_inputs(m) * act },
        { &w->h, n * ffn * act },
        { &w->picked, n * c->hidden * act },
        { &w->pair, n * (c->drafts ? 2 * c->hidden : 2 * c->backbone) * act },
        { &w->score, w->score_bytes },
    };
    const struct buffer host[] = {
        { &r->seq, n * sizeof *r->seq },      { &r->kv, n * sizeof *r->kv },
        { &r->token, n * sizeof *r->token },  { &r->pos, n * sizeof(uint32_t) },
        { &r->hi, n * sizeof(uint32_t) },     { &r->angle, n * sizeof(uint32_t) },
        { &r->n_node, n * sizeof(uint32_t) }, { &r->node, n * n * sizeof(uint32_t) },
        { &w->want, n * sizeof(uint32_t) },   { &w->per_layer_work, per_layer_bytes(c) },
    };
    w->bytes = assign(device, sizeof device / sizeof *device, w->mem, m->dev->host_memory ? 64 : 256);
    w->host_bytes = assign(host, sizeof host / sizeof *host, w->host, 64);
}

/* At least MODEL_ROWS_MIN rows, which the products of drafting heads need. */
static struct device_limits limits(const struct model *m, size_t rows_max, size_t n_max)
{
    const struct config *c = &m->config;
    const size_t rows = MAX(rows_max, (size_t)MODEL_ROWS_MIN),
                 widest = MAX(2 * dense_ffn(c), c->n_layers * c->per_layer),
                 outputs = MAX(MAX(mixer_outputs(m), widest), MAX(c->vocab, MAX(c->hidden, c->backbone))),
                 fused = MAX((c->drafts ? 2 : 1) * c->hidden, 2 * c->backbone),
                 inputs = MAX(MAX(mixer_inputs(m), dense_ffn(c)), fused);
    struct device_limits l = { rows, n_max, rows, outputs, c->vocab,
                               { c->n_heads, c->n_kv_heads, c->head_dim, m->head_dim }, inputs };
    if (model_expert_layers(m)) {
        l.experts.n = c->n_experts, l.experts.used = c->experts_used;
        l.experts.hidden = c->hidden, l.experts.ffn = MAX(c->expert_ffn, c->shared_ffn);
    }
    l.delta = model_cache(m, 1, 0).state;
    l.local = config_has_local(c);
    return l;
}

size_t workspace_bytes(const struct model *m, size_t rows_max, size_t n_max)
{
    struct workspace w = { .rows_max = rows_max, .n_max = n_max };
    const struct device_limits l = limits(m, rows_max, n_max);
    layout(&w, m);
    return w.bytes + w.host_bytes + m->dev->reserve_bytes(m->dev, &l);
}

int workspace_open(struct workspace **out, const struct model *m, size_t rows_max, size_t n_max,
                   struct err *e)
{
    struct workspace *w = calloc(1, sizeof *w);
    const struct device_limits l = limits(m, rows_max, n_max);
    assert(rows_max >= 1);
    if (w) {
        w->dev = m->dev;
        w->rows_max = w->rows.step = rows_max;
        w->n_max = n_max;
        layout(w, m);
        w->mem = m->dev->alloc(m->dev, w->bytes);
        w->host = mem_alloc(w->host_bytes);
    }
    if (!w || !w->mem || !w->host || m->dev->reserve(m->dev, &l)) {
        workspace_close(w);
        if (*m->dev->error)
            return err_set(e, ERR_FAILED, "%s: %s", m->dev->name, m->dev->error);
        return err_set(e, ERR_FAILED, "%s: buffers for passes of %zu rows: out of memory (%zu bytes)",
                       m->dev->name, rows_max, workspace_bytes(m, rows_max, n_max));
    }
    layout(w, m);
    *out = w;
    return 0;
}

void workspace_close(struct workspace *w)
{
    if (w) {
        w->dev->free(w->dev, w->mem, w->bytes);
        w->dev->free(w->dev, w->tap, w->tap_bytes);
        w->dev->free(w->dev, w->entering, w->entering_bytes);
        mem_free(w->host, w->host_bytes);
    }
    free(w);
}

size_t workspace_keep_bytes(const struct model *m, size_t rows_max)
{
    return KEPT_LAYERS * rows_max * m->config.hidden * sizeof(float);
}

int workspace_keep(struct workspace *w, const struct model *m, struct err *e)
{
    assert(m->dev->host_memory && m->config.n_layers >= KEPT_LAYERS);
    w->entering_bytes = workspace_keep_bytes(m, w->rows_max);
    w->entering = w->entering ? w->entering : w->dev->alloc(w->dev, w->entering_bytes);
    return w->entering ? 0 : err_set(e, ERR_FAILED, "residuals of %d layers: out of memory (%zu bytes)",
                                     KEPT_LAYERS, w->entering_bytes);
}

/* ---- the pass ---- */

struct pass {
    const struct model *m;
    struct workspace *w;
    struct pass_seq *seqs;
    size_t n_seqs;
    const struct tap *taps; size_t n_taps;
    struct device_rows rows;
    bool recorded;                       /* the device may record the pass, for passes of its shape */
};

static bool wanted(const struct pass_seq *s, size_t j)
{
    return s->want ? s->want[j] : s->logits && j == s->n - 1;
}

/* Writes the path of a node, root first. Returns its length. */
static uint32_t put_path(const int32_t *parent, size_t node, uint32_t *path)
{
    uint32_t n = 0;
    for (int32_t i = (int32_t)node; i >= 0; i = parent[i], n++)
        assert(parent[i] < i);
    for (int32_t i = (int32_t)node, k = (int32_t)n; i >= 0; i = parent[i])
        path[--k] = (uint32_t)i;
    return n;
}

/* Fills in rows r .. of sequence i: slots, visible ranges, ancestors. */
static void place_seq(struct pass *p, size_t i, size_t r)
{
    struct workspace *w = p->w;
    struct pass_rows *rows = &w->rows;
    const struct pass_seq *s = &p->seqs[i];
    assert((s->kv->type == w->dev->kv_type || s->kv->type == device_draft_kv(w->dev)) &&
           s->kv->head_dim == p->m->head_dim && s->kv->n_max <= w->n_max &&
           r + s->n <= w->rows_max);
    rows->kv[i] = kv_view(s->kv);
    rows->seq[i] = (struct device_seq){ &rows->kv[i], r, s->n, s->kv->n_past, s->parent, s->certain, s->shift,
                                        s->scored ? w->score : NULL, w->score_step, s->node0 };
    assert(!s->certain || !s->parent);
    for (size_t j = 0; j < s->n; j++, r++) {
        const uint32_t n = s->parent ? put_path(s->parent, s->node0 + j, rows->node + r * rows->step) : 0;
        const size_t past = s->kv->n_past, at = past + (s->parent ? n - 1 : s->reads ? 0 : j),
                     last = at - s->reads;           /* the last row that it sees */
        pass_row(rows, r, s->token[j], last, s->parent ? past : last + 1, at + s->shift, n);
        if (wanted(s, j))
            w->want[p->rows.n_want++] = (uint32_t)r;
        assert(s->token[j] >= 0 && (size_t)s->token[j] < p->m->config.vocab && rows->pos[r] < s->kv->n_max &&
               (!s->parent || s->node0 + j < s->kv->node_max));
    }
    assert(s->parent || !s->kv->ring || s->n <= RING_PASS);
    if (!s->parent && !s->reads)
        s->kv->n_written = MAX(s->kv->n_written, s->kv->n_past + s->n);
}

struct device_rows pass_rows_of(const struct model *m, const struct pass_rows *r, size_t n, size_t n_seqs)
{
    return (struct device_rows){ .n = n, .n_seqs = n_seqs, .seq = r->seq, .token = r->token, .pos = r->pos,
                                 .hi = r->hi, .angle = r->angle, .n_node = r->n_node, .node = r->node,
                                 .node_step = r->step, .inv_freq = m->inv_freq,
                                 .n_freq = m->config.rotary / 2, .rope_factor = m->rope_factor };
}

static void place(struct pass *p)
{
    const struct model *m = p->m;
    struct workspace *w = p->w;
    p->rows = pass_rows_of(m, &w->rows, 0, p->n_seqs);
    p->rows.want = w->want;
    p->rows.growth = m->config.rope.growth, p->rows.growth_length = m->config.rope.original;
    p->rows.local_freq = m->local_freq, p->rows.n_local = config_local_rotary(&m->config) / 2;
    for (size_t i = 0; i < p->n_seqs; p->rows.n += p->seqs[i++].n)
        place_seq(p, i, p->rows.n);
    p->recorded = true;
    for (size_t t = 0; t < p->n_taps; t++)
        p->recorded &= p->taps[t].kind == TAP_RESIDUAL && p->taps[t].layer == m->config.n_layers;
}

/* Whether the caller wants the rows in the caches and nothing else. */
static bool fills_caches(const struct pass *p)
{
    bool all = !p->rows.n_want && (!p->n_taps || p->m->config.drafts);
    for (size_t i = 0; i < p->n_seqs; i++)
        all = all && (p->m->config.drafts || p->seqs[i].cache_only);
    return all;
}

/* The key of a recorded pass: everything it depends on besides the device's own grids. */
static uint64_t graph_key(const struct pass *p)
{
    uint64_t h = hash64(HASH64_INIT, &p->w, sizeof p->w);
    h = hash64(h, &(char){ fills_caches(p) }, 1);
    for (size_t i = 0; i < p->n_seqs; i++) {
        h = hash64(h, &p->seqs[i].n, sizeof p->seqs[i].n);
        h = hash64(h, &p->seqs[i].logits, sizeof p->seqs[i].logits);
        for (size_t j = 0; p->n_seqs > 1 && j < p->seqs[i].n; j++)
            h = hash64(h, &(char){ wanted(&p->seqs[i], j) }, 1);
    }
    return h;
}

/* ---- taps ---- */

static const struct tap *tap_of(const struct pass *p, enum tap_kind kind, size_t layer, size_t from)
{
    for (size_t t = from; t < p->n_taps; t++)
        if (p->taps[t].kind == kind && (kind == TAP_HIDDEN || p->taps[t].layer == layer))
            return &p->taps[t];
    return NULL;
}

/* The buffer that the device writes a tap to. NULL without memory: then the pass fails. */
static float *tap_buffer(const struct pass *p, const struct tap *t)
{
    struct workspace *w = p->w;
    const struct config *c = &p->m->config;
    if (w->dev->host_memory)
        return t->out;
    if (!w->tap) {
        w->tap_bytes = w->rows_max * MAX(c->hidden, c->n_heads * c->head_dim) * sizeof *w->tap;
        w->tap = w->dev->alloc(w->dev, w->tap_bytes);
        if (!w->tap && !*w->dev->error)
            snprintf(w->dev->error, sizeof w->dev->error, "out of memory: %zu bytes for taps", w->tap_bytes);
    }
    return w->tap;
}

/* Downloads all taps of one kind and layer. */
static void tap_fetch(const struct pass *p, enum tap_kind kind, size_t layer, const float *from, size_t row)
{
    const struct tap *t = tap_of(p, kind, layer, 0);
    for (; t; t = tap_of(p, kind, layer, (size_t)(t - p->taps) + 1))
        p->w->dev->download(p->w->dev, t->out, from, p->rows.n * row * sizeof *from);
}

/* ---- layers ---- */

/* Reports a layer's importance scores to the sequences that want them. In the host's memory this happens
 * right after the layer, because the next layer overwrites the scores. */
static void report_scores(const struct pass *p, size_t layer)
{
    const struct model *m = p->m;
    const struct workspace *w = p->w;
    const size_t window = m->config.layer[layer].window;
    const float *score = w->score + (w->dev->host_memory ? 0 : layer * m->config.n_kv_heads * w->score_step);
    for (size_t i = 0; i < p->n_seqs; i++) {
        const struct pass_seq *s = &p->seqs[i];
        const size_t pos = w->rows.pos[w->rows.seq[i].row0];
        if (s->scored)
            s->scored(s->scored_ctx, layer, score, w->score_step,
                      window && !s->shift && pos + 1 > window ? pos + 1 - window : 0);
    }
}

/* x += the product of a matrix with h, or its norm. */
static void add_output(const struct pass *p, float *x, const void *h, const struct mat *w, const float *bias,
                       const float *norm)
{
    const struct config *c = &p->m->config;
    struct device *d = p->w->dev;
    float *y = norm ? p->w->qkv : x;
    d->product(d, &(struct device_product){ y, c->hidden, h, p->rows.n, w, bias, !norm, SIZE_MAX });
    if (norm)
        d->norm_add(d, x, y, norm, p->rows.n, c->hidden, (float)c->rms_eps);
}

/* `to` += the outputs of the dense network, or their norm. */
static void add_dense(const struct pass *p, const struct layer *y, size_t l, float *to, const float *norm)
{
    const struct config *c = &p->m->config;
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const size_t n = p->rows.n, none = SIZE_MAX;
    d->rmsnorm(d, w->xn, w->x, y->norm_mlp, n, c->hidden, (float)c->rms_eps, none);
    d->product(d, &(struct device_product){ w->gate_up, mats_n(&y->gate_up), w->xn, n, y->gate_up.m,
                                            y->gate_up_bias, false, none, y->gate_up.n });
    (c->layer[l].gelu ? d->geglu : d->swiglu)(d, w->h, w->gate_up, n, c->layer[l].ffn);
    add_output(p, to, w->h, &y->down, y->down_bias, norm);
}

/* `to` += the outputs of the experts. */
static void add_experts(const struct pass *p, const struct layer *y, size_t l, float *to, const float *norm)
{
    const struct config *c = &p->m->config;
    struct device *d = p->w->dev;
    d->experts(d, &(struct device_experts){ p->w->x, p->rows.n, norm, (float)c->rms_eps, &y->router,
                                            y->expert, c->n_experts, c->experts_used, c->expert_ffn,
                                            c->experts_normalised, l, c->shared_ffn ? &y->shared : NULL,
                                            &y->shared_gate, c->shared_ffn, y->router_bias,
                                            (float)c->swiglu_alpha, (float)c->swiglu_limit, c->layer[l].gelu,
                                            y->norm_router, y->expert_scale, to });
}

/* x += norm(norm(dense network) + norm(experts)). */
static void both(const struct pass *p, const struct layer *y, size_t l)
{
    const struct config *c = &p->m->config;
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const size_t n = p->rows.n, dim = c->hidden, bytes = n * dim * sizeof(float);
    const float eps = (float)c->rms_eps;
    d->zero(d, w->side, bytes);
    add_dense(p, y, l, w->side, y->norm_dense_after);
    d->zero(d, w->qkv, bytes);
    add_experts(p, y, l, w->qkv, y->norm_experts);
    d->norm_add(d, w->side, w->qkv, y->norm_experts_after, n, dim, eps);
    d->norm_add(d, w->x, w->side, y->norm_mlp_after, n, dim, eps);
}

static void feed_forward(const struct pass *p, const struct layer *y, size_t l)
{
    const struct layer_spec *s = &p->m->config.layer[l];
    if (s->beside)
        both(p, y, l);
    else if (s->experts)
        add_experts(p, y, l, p->w->x, y->norm_mlp);
    else
        add_dense(p, y, l, p->w->x, y->norm_mlp_after);
}

/* Queries, keys and values of a layer. Keys and values go to its cache. */
static void project(const struct pass *p, const struct layer *y, size_t l)
{
    const struct device_heads heads = model_heads(p->m, l);
    const struct config *c = &p->m->config;
    const struct layer_spec *s = &c->layer[l];
    const size_t wide = mats_n(&y->qkv) + (s->v_is_k ? heads.n_kv_heads * heads.padded : 0);
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const size_t n = p->rows.n, none = SIZE_MAX;
    const struct tap *queries = tap_of(p, TAP_QUERY, l, 0);
    float *q_tap = queries ? tap_buffer(p, queries) : NULL;
    d->product(d, &(struct device_product){ w->qkv, wide, w->xn, n, y->qkv.m, y->qkv_bias, false,
                                            none, y->qkv.n });
    d->rope(d, &(struct device_rope){ .q = w->q, .qkv = w->qkv, .heads = &heads, .layer = y->slot,
                                      .q_norm = s->qk_norm ? y->q_norm : NULL,
                                      .k_norm = s->qk_norm ? y->k_norm : NULL, .eps = (float)c->rms_eps,
                                      .queries = s->kv_layer != l, .q_tap = q_tap, .gated = s->gated,
                                      .local = s->local, .whole = s->qk_norm == QK_NORM_WHOLE,
                                      .scalar = c->query_scalar, .v_norm = s->v_norm,
                                      .v_is_k = s->v_is_k });
    if (queries)
        tap_fetch(p, TAP_QUERY, l, q_tap, c->n_heads * heads.head_dim);
}

static void attention(const struct pass *p, const struct layer *y, size_t l)
{
    const struct layer_spec *s = &p->m->config.layer[l];
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    struct device_heads heads = model_heads(p->m, l);
    project(p, y, l);
    heads.logit = y->head_logit;
    d->attend(d, w->attn, w->q, &heads, y->slot, s->window);
    if (d->host_memory && s->kv_layer == l)
        report_scores(p, l);
    if (s->gated)
        d->gate(d, w->attn, w->qkv, &heads);
    add_output(p, w->x, w->attn, &y->o, y->o_bias, y->norm_attn_after);
}

static void delta(const struct pass *p, const struct layer *y, size_t l)
{
    const struct config *c = &p->m->config;
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const size_t n = p->rows.n, none = SIZE_MAX;
    const struct delta_shape *shape = &p->seqs[0].kv->state->d.shape;
    (void)l;
    d->product(d, &(struct device_product){ w->qkv, mats_n(&y->mix), w->xn, n, y->mix.m, NULL, false, none,
                                            y->mix.n });
    d->delta(d, &(struct device_delta){ w->attn, w->qkv, shape, y->conv, y->decay, y->dt_bias, y->norm_state,
                                        (float)c->rms_eps, y->slot });
    add_output(p, w->x, w->attn, &y->out, NULL, NULL);
}

static void (*const mixer[])(const struct pass *, const struct layer *, size_t) = {
    [MIXER_ATTENTION] = attention, [MIXER_DELTA] = delta,
};

/* x += norm(out (gelu(gate x) * the layer's embedding)) (per_layer.h). */
static void add_per_layer(const struct pass *p, const struct layer *y, size_t l)
{
    const struct config *c = &p->m->config;
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const size_t n = p->rows.n, width = c->per_layer;
    d->narrow(d, w->xn, w->x, n * c->hidden);
    d->product(d, &(struct device_product){ w->gate_up, 2 * width, w->xn, n, &y->per_layer_gate, NULL, false,
                                            SIZE_MAX });
    for (size_t r = 0; r < n; r++)
        d->copy(d, w->gate_up + (2 * r + 1) * width, w->per_layer + (r * c->n_layers + l) * width,
                width * sizeof *w->per_layer);
    d->geglu(d, w->h, w->gate_up, n, width);
    add_output(p, w->x, w->h, &y->per_layer_out, NULL, y->norm_per_layer);
}

/* Runs a layer. keys: only as far as its cache needs. */
static void run_layer(const struct pass *p, size_t l, bool keys)
{
    const struct model *m = p->m;
    const struct config *c = &m->config;
    const struct workspace *w = p->w;
    const struct layer *y = &m->layers[l];
    struct device *d = w->dev;
    const size_t n = p->rows.n, none = SIZE_MAX;
    tap_fetch(p, TAP_RESIDUAL, l, w->x, c->hidden);
    if (w->entering && l + KEPT_LAYERS >= c->n_layers)
        d->copy(d, w->entering + (l + KEPT_LAYERS - c->n_layers) * w->rows_max * c->hidden, w->x,
                n * c->hidden * sizeof *w->x);
    /* also checks that the residual of the layer before is finite */
    d->rmsnorm(d, w->xn, w->x, y->norm_attn, n, c->hidden, (float)c->rms_eps, l ? l - 1 : none);
    if (keys) {
        project(p, y, l);
        return;
    }
    mixer[c->layer[l].mixer](p, y, l);
    feed_forward(p, y, l);
    if (c->per_layer)
        add_per_layer(p, y, l);
    if (c->layer[l].scaled)
        d->scale(d, w->x, *y->scale, n * c->hidden);
}

static void put_logits(const struct pass *p, float *to, const void *x, size_t n)
{
    const struct config *c = &p->m->config;
    struct device *d = p->w->dev;
    d->product(d, &(struct device_product){ to, c->vocab, x, n, &p->m->lm_head, NULL, false, c->n_layers });
    if (c->softcap != 0)
        d->softcap(d, to, (float)c->softcap, n, c->vocab);
}

/* Computes the wanted logits. Their rows are gathered, so one product reads the LM head once for all
 * sequences whose logits follow each other in memory. */
static void logits(const struct pass *p)
{
    const struct model *m = p->m;
    const size_t row = m->config.hidden * dtype_size(model_act(m)), vocab = m->config.vocab;
    struct device *d = p->w->dev;
    const char *x = p->w->xn;
    float *to = NULL;                        /* destination of the gathered rows' logits */
    size_t from = 0, n = 0;
    if (p->rows.n_want && p->rows.n_want < p->rows.n) {
        d->gather(d, p->w->picked, p->w->xn, row);
        x = p->w->picked;
    }
    for (size_t i = 0; i < p->n_seqs; i++) {
        const struct pass_seq *s = &p->seqs[i];
        size_t more = 0;
        for (size_t j = 0; j < s->n; j++)
            more += wanted(s, j);
        if (n && more && s->logits != to + n * vocab) {
            put_logits(p, to, x + from * row, n);
            from += n;
            n = 0;
        }
        if (!n)
            to = s->logits;
        n += more;
    }
    if (n)
        put_logits(p, to, x + from * row, n);
}

/* Writes the rows of the pass after `norm` into half of the inputs of `fuse`. */
static void put_half(const struct pass *p, size_t half, const float *norm)
{
    const struct config *c = &p->m->config;
    const struct workspace *w = p->w;
    const size_t row = c->hidden * dtype_size(model_act(p->m));
    w->dev->rmsnorm(w->dev, w->xn, w->x, norm, p->rows.n, c->hidden, (float)c->rms_eps, SIZE_MAX);
    for (size_t r = 0; r < p->rows.n; r++)
        w->dev->copy(w->dev, (char *)w->pair + (2 * r + half) * row, (char *)w->xn + r * row, row);
}

/* The rows of a draft layer, in place of the embeddings of their tokens. */
static void fuse(const struct pass *p)
{
    const struct model *m = p->m;
    const struct workspace *w = p->w;
    const size_t d = m->config.hidden;
    put_half(p, 0, m->norm_token);
    for (size_t i = 0; i < p->n_seqs; i++)
        w->dev->copy(w->dev, w->x + w->rows.seq[i].row0 * d, p->seqs[i].state,
                     p->seqs[i].n * d * sizeof *w->x);
    put_half(p, 1, m->norm_state);
    w->dev->product(w->dev, &(struct device_product){ w->x, d, w->pair, p->rows.n, &m->fuse, NULL, false,
                                                      SIZE_MAX });
}

/* The rows of a drafter (assistant.h). */
static void fuse_given(const struct pass *p)
{
    const struct model *m = p->m;
    const struct workspace *w = p->w;
    const size_t wide = 2 * m->config.backbone, row = wide * dtype_size(model_act(m));
    for (size_t i = 0; i < p->n_seqs; i++)
        w->dev->narrow(w->dev, (char *)w->pair + w->rows.seq[i].row0 * row, p->seqs[i].state,
                       p->seqs[i].n * wide);
    w->dev->product(w->dev, &(struct device_product){ w->x, m->config.hidden, w->pair, p->rows.n, &m->fuse,
                                                      NULL, false, SIZE_MAX });
}

static void run(const struct pass *p)
{
    const struct model *m = p->m;
    const struct config *c = &m->config;
    const struct workspace *w = p->w;
    struct device *d = w->dev;
    const struct tap *hidden = tap_of(p, TAP_HIDDEN, 0, 0);
    if (c->backbone)
        fuse_given(p);
    else
        d->embed(d, w->x, m->embed.w ? &m->embed : &m->lm_head, !m->embed.w || m->embed_packed);
    if (c->embed != EMBED_AS_IS && !c->backbone)
        d->scale(d, w->x, m->embed_scale, p->rows.n * c->hidden);
    if (c->drafts)
        fuse(p);
    if (c->per_layer) {
        d->narrow(d, w->xn, w->x, p->rows.n * c->hidden);
        d->product(d, &(struct device_product){ w->per_layer, c->n_layers * c->per_layer, w->xn, p->rows.n,
                                                &m->per_layer_in, NULL, false, SIZE_MAX });
        per_layer_embed(m, w->rows.token, p->rows.n, w->per_layer, w->per_layer_work, &p->w->read);
    }
    const size_t last = c->n_layers - c->kv_shared - 1;
    const bool keys = fills_caches(p) && c->layer[last].mixer == MIXER_ATTENTION;
    for (size_t l = 0; l < (keys ? last + 1 : c->n_layers); l++)
        run_layer(p, l, keys && l == last);
    if (keys)
        return;
    d->rmsnorm(d, w->xn, w->x, m->norm_final, p->rows.n, c->hidden, (float)c->rms_eps, c->n_layers - 1);
    if (hidden && c->backbone)
        d->product(d, &(struct device_product){ hidden->out, c->backbone, w->xn, p->rows.n, &m->project, NULL,
                                                false, SIZE_MAX });
    else if (hidden) {
        float *at = tap_buffer(p, hidden);
        d->widen(d, at, w->xn, p->rows.n * c->hidden);
        tap_fetch(p, TAP_HIDDEN, 0, at, c->hidden);
    }
    logits(p);
}

/* The error for NaN and Inf, which stop the job before anything is committed. */
static int not_finite(const struct pass *p, const struct device_bad *bad, struct err *e)
{
    const struct workspace *w = p->w;
    if (bad->place < p->m->config.n_layers)
        return err_set(e, ERR_FAILED, ERR_PATH "not a finite number at position %u, layer %zu", p->m->path,
                       (unsigned)w->rows.angle[bad->row], bad->place);
    return err_set(e, ERR_FAILED,
                   ERR_PATH "a logit is not a finite number, in the pass over positions %u to %u", p->m->path,
                   (unsigned)w->rows.pos[0], (unsigned)w->rows.pos[p->rows.n - 1]);
}

static void enqueue(struct pass *p)
{
    struct device *d = p->w->dev;
    place(p);
    p->w->read.code = 0;
    d->begin(d, &p->rows);
    if (!p->recorded || d->host_memory) {
        run(p);
    } else if (!d->graph_begin(d, graph_key(p))) {
        run(p);
        if (!d->graph_end(d))
            run(p);
    }
}

static int finish(const struct pass *p, struct err *e)
{
    const struct workspace *w = p->w;
    const size_t n_layers = p->m->config.n_layers;
    struct device *d = w->dev;
    struct device_bad bad;
    const int failed = d->end(d, &bad);
    if (w->read.code) {
        *e = w->read;
        return -1;
    }
    for (size_t i = 0; i < p->n_seqs; i++)
        if (p->seqs[i].kv->state)
            state_passed(p->seqs[i].kv->state, p->seqs[i].certain ? p->seqs[i].n : 0);
    if (failed)
        return err_set(e, ERR_FAILED, "%s: %s", d->name, d->error);
    if (bad.any)
        return not_finite(p, &bad, e);
    tap_fetch(p, TAP_RESIDUAL, n_layers, w->x, p->m->config.hidden);
    for (size_t l = 0; l < n_layers && !d->host_memory; l++)
        report_scores(p, l);
    return *d->error ? err_set(e, ERR_FAILED, "%s: %s", d->name, d->error) : 0;
}

int model_forward(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                  const struct tap *taps, size_t n_taps, struct err *e)
{
    struct pass p = { .m = m, .w = w, .seqs = seqs, .n_seqs = n_seqs, .taps = taps, .n_taps = n_taps };
    enqueue(&p);
    return finish(&p, e);
}

int model_forward_begin(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                        struct err *e)
{
    struct pass p = { .m = m, .w = w, .seqs = seqs, .n_seqs = n_seqs };
    enqueue(&p);
    return w->dev->host_memory ? finish(&p, e) : 0;
}

int model_forward_end(const struct model *m, struct workspace *w, struct pass_seq *seqs, size_t n_seqs,
                      struct err *e)
{
    struct pass p = { .m = m, .w = w, .seqs = seqs, .n_seqs = n_seqs };
    for (size_t i = 0; i < n_seqs; i++)
        p.rows.n += seqs[i].n;
    return w->dev->host_memory ? 0 : finish(&p, e);
}

const float *workspace_entering(const struct workspace *w, const struct model *m, size_t k)
{
    assert(k < KEPT_LAYERS);
    return w->entering ? w->entering + k * w->rows_max * m->config.hidden : NULL;
}

const float *workspace_residual(const struct workspace *w) { return w->x; }

int model_mat_rows(const struct model *m, struct workspace *w, const struct mat *mat, const int32_t *row,
                   size_t n, float *rows, void *act)
{
    struct device *d = w->dev;
    struct device_rows r = pass_rows_of(m, &w->rows, n, 0);
    struct device_bad bad;
    assert(n <= w->rows_max);
    r.token = row, r.n_freq = 0;
    d->begin(d, &r);
    d->embed(d, w->x, mat, true);
    if (act)
        d->narrow(d, act, w->x, n * m->config.hidden);
    if (!rows)
        return d->end(d, &bad);
    return d->end(d, &bad) || d->download(d, rows, w->x, n * m->config.hidden * sizeof *rows) ? -1 : 0;
}

void model_embedding(const struct model *m, int32_t token, float *x)
{
    const size_t d = m->config.hidden, at = (size_t)token;
    if (!m->embed.w)
        mat_row(&m->lm_head, at, x);
    else if (dtype_is_quantised(m->embed.type))
        quant_table_row(&m->embed, at, x);
    else
        for (size_t i = 0; i < d; i++)
            x[i] = tensor_value((const char *)m->embed.w + at * d * dtype_size(m->embed.type),
                                m->embed.type, i);
}

void model_product(const struct model *m, float *y, const void *x, size_t rows, const struct mat *w, bool add)
{
    pool_product(m->pool, m->ops, y, m->compute, x, rows, w, add);
}
