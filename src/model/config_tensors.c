/* The tensors that a configuration needs: names, shapes, counts. Its table is layer_parts; start at
 * config_check_tensors. */
#include "src/model/config_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/views.h"

/* A tensor of a layer: its name after "model.layers.N.", whether the configuration has it, its shape. */
struct part { const char *name; bool used; size_t rows, cols; };
enum { PARTS = 45, EXPERT_PARTS = 6 };

static void layer_parts(struct part p[PARTS], const struct config *c, size_t layer)
{
    const struct layer_spec *y = &c->layer[layer];
    const size_t d = c->hidden, h = y->head_dim, q = c->n_heads * h, kv = y->n_kv_heads * h, f = y->ffn,
                 values = c->delta.value_heads, z = values * c->delta.value_dim,
                 mixed = config_delta_channels(c), conv = c->delta.conv, s = c->shared_ffn;
    const bool dense = f, experts = y->experts, bias = dense && c->mlp_bias,
               shared = experts && s, beside = y->beside,
               state = y->mixer == MIXER_DELTA, attn = !state, qkv_bias = attn && c->qkv_bias,
               norm = attn && y->qk_norm, whole = y->qk_norm == QK_NORM_WHOLE,
               own = attn && y->kv_layer == layer, each = c->per_layer, before = y->norms != NORM_AFTER,
               after = y->norms != NORM_BEFORE;
    const struct part parts[PARTS] = {
        { "input_layernorm.weight", before, d, 0 },
        { "post_attention_layernorm.weight", true, d, 0 },
        { "pre_feedforward_layernorm.weight", before && after, d, 0 },
        { "post_feedforward_layernorm.weight", after, d, 0 },
        { "self_attn.q_proj.weight", attn, y->gated ? 2 * q : q, d },
        { "self_attn.k_proj.weight", own, kv, d },
        { "self_attn.v_proj.weight", own && !y->v_is_k, kv, d },
        { "self_attn.o_proj.weight", attn, d, q },       { "self_attn.q_proj.bias", qkv_bias, q, 0 },
        { "self_attn.k_proj.bias", qkv_bias, kv, 0 },    { "self_attn.v_proj.bias", qkv_bias, kv, 0 },
        { "self_attn.o_proj.bias", attn && c->o_bias, d, 0 },
        { "self_attn.q_norm.weight", norm, whole ? q : h, 0 },
        { "self_attn.k_norm.weight", norm && own, whole ? kv : h, 0 },
        { "linear_attn.in_proj_qkv.weight", state, mixed, d },
        { "linear_attn.in_proj_z.weight", state, z, d }, { "linear_attn.in_proj_b.weight", state, values, d },
        { "linear_attn.in_proj_a.weight", state, values, d },
        { "linear_attn.conv1d.weight", state, mixed, conv },
        { "linear_attn.A_log", state, values, 0 },       { "linear_attn.dt_bias", state, values, 0 },
        { "linear_attn.norm.weight", state, c->delta.value_dim, 0 },
        { "linear_attn.out_proj.weight", state, d, z },
        { "mlp.gate_proj.weight", dense, f, d },         { "mlp.up_proj.weight", dense, f, d },
        { "mlp.down_proj.weight", dense, d, f },         { "mlp.gate_proj.bias", bias, f, 0 },
        { "mlp.up_proj.bias", bias, f, 0 },              { "mlp.down_proj.bias", bias, d, 0 },
        { "self_attn.sinks", attn && y->head_logits, c->n_heads, 0 },
        { "mlp.gate.weight", experts, c->n_experts, d },
        { "mlp.gate.bias", experts && c->experts_bias, c->n_experts, 0 },
        { "router.scale", beside, d, 0 },
        { "router.per_expert_scale", beside, c->n_experts, 0 },
        { "post_feedforward_layernorm_1.weight", beside, d, 0 },
        { "pre_feedforward_layernorm_2.weight", beside, d, 0 },
        { "post_feedforward_layernorm_2.weight", beside, d, 0 },
        { "layer_scalar", y->scaled, 1, 0 },
        { "per_layer_input_gate.weight", each, c->per_layer, d },
        { "per_layer_projection.weight", each, d, c->per_layer },
        { "post_per_layer_input_norm.weight", each, d, 0 },
        { "mlp.shared_expert.gate_proj.weight", shared, s, d },
        { "mlp.shared_expert.up_proj.weight", shared, s, d },
        { "mlp.shared_expert.down_proj.weight", shared, d, s },
        { "mlp.shared_expert_gate.weight", shared, 1, d },
    };
    memcpy(p, parts, sizeof parts);
}

/* The tensors of an expert: their names after "mlp.experts.E.". */
static void expert_parts(struct part p[EXPERT_PARTS], const struct config *c)
{
    const struct part parts[EXPERT_PARTS] = { { "gate_proj.weight", true, c->expert_ffn, c->hidden },
                                              { "up_proj.weight", true, c->expert_ffn, c->hidden },
                                              { "down_proj.weight", true, c->hidden, c->expert_ffn },
                                              { "gate_proj.bias", c->experts_bias, c->expert_ffn, 0 },
                                              { "up_proj.bias", c->experts_bias, c->expert_ffn, 0 },
                                              { "down_proj.bias", c->experts_bias, c->hidden, 0 } };
    memcpy(p, parts, sizeof parts);
}

typedef int tensor_fn(void *ctx, const char *name, size_t rows, size_t cols);

/* Calls fn for the tensors of the embeddings of each layer, and of a drafter, until it returns -1. */
static int each_outside(const struct config *c, tensor_fn *fn, void *ctx)
{
    const size_t all = c->n_layers * c->per_layer;
    if (c->backbone && (fn(ctx, "pre_projection.weight", c->hidden, 2 * c->backbone) ||
                        fn(ctx, "post_projection.weight", c->backbone, c->hidden)))
        return -1;
    return c->per_layer && (fn(ctx, PER_LAYER_TABLE, c->per_layer_vocab, all) ||
                            fn(ctx, "model.per_layer_model_projection.weight", all, c->hidden) ||
                            fn(ctx, "model.per_layer_projection_norm.weight", c->per_layer, 0)) ? -1 : 0;
}

/* Calls fn for every tensor of a layer until it returns -1. */
static int each_tensor(const struct config *c, size_t layer, tensor_fn *fn, void *ctx)
{
    struct part p[PARTS], x[EXPERT_PARTS];
    char name[96];
    layer_parts(p, c, layer);
    expert_parts(x, c);
    for (size_t i = 0; i < PARTS; i++) {
        snprintf(name, sizeof name, "model.layers.%zu.%s", layer, p[i].name);
        if (p[i].used && fn(ctx, name, p[i].rows, p[i].cols))
            return -1;
    }
    for (size_t k = 0; c->layer[layer].experts && k < c->n_experts; k++)
        for (size_t i = 0; i < EXPERT_PARTS; i++) {
            snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.%s", layer, k, x[i].name);
            if (x[i].used && fn(ctx, name, x[i].rows, x[i].cols))
                return -1;
        }
    return 0;
}

/* Parameters of the whole model, or (used) of those that a token uses. The limits of config_read keep the
 * number below 2^62. */
static size_t count_params(const struct config *c, bool used)
{
    struct part p[PARTS];
    const size_t rows = used ? 0 : c->per_layer_vocab;       /* a token uses one row */
    size_t n = c->hidden + (c->tied ? 1 : 2) * c->vocab * c->hidden;
    if (c->per_layer)
        n += c->n_layers * c->per_layer * (rows + c->hidden) + c->per_layer;
    n += 3 * c->backbone * c->hidden;
    for (size_t l = 0; l < c->n_layers; l++) {
        layer_parts(p, c, l);
        for (size_t i = 0; i < PARTS; i++)
            if (p[i].used)
                n += p[i].rows * (p[i].cols ? p[i].cols : 1);
        if (c->layer[l].experts)
            n += (used ? c->experts_used : c->n_experts) *
                 (3 * c->hidden * c->expert_ffn + (c->experts_bias ? 2 * c->expert_ffn + c->hidden : 0));
    }
    return n;
}

size_t config_count_params(const struct config *c) { return count_params(c, false); }
size_t config_count_used(const struct config *c) { return count_params(c, true); }

bool config_kv_bytes(const struct config *c, size_t n, size_t element, size_t *bytes)
{
    size_t b;
    if (c->heads_differ ? !mul_size(c->heads[config_caches(c)].dims, 2, &b)
                        : !mul_size(config_caches(c), 2 * c->n_kv_heads, &b) ||
                              !mul_size(b, c->head_dim, &b))
        return false;
    if (!mul_size(b, n, &b) || !mul_size(b, element, &b))
        return false;
    *bytes = b;
    return true;
}

/* The number of layers in the files, counted from 0 without a gap. */
static size_t count_layers(const struct tensors *ts)
{
    char name[64];
    size_t n = 0;
    for (;; n++) {
        snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", n);
        if (!tensors_find(ts, name))
            return n;
    }
}

/* Whether two tensors of one type and shape hold the same bytes: 1, 0, or -1 after an error. */
static int same_bytes(const struct tensors *ts, const struct tensor *a, const struct tensor *b, struct err *e)
{
    enum { STEP = 1 << 20 };
    char *x = malloc(2 * STEP), *y = x + STEP;
    int same = x ? 1 : err_set(e, ERR_FAILED, "out of memory");
    for (size_t at = 0; same == 1 && at < a->bytes; at += STEP) {
        size_t n = MIN((size_t)STEP, a->bytes - at);
        if (tensors_read(ts, a, x, at, n, e) || tensors_read(ts, b, y, at, n, e))
            same = -1;
        else
            same = memcmp(x, y, n) == 0;
    }
    free(x);
    return same;
}

/* A tied model may have lm_head.weight if it equals the embedding. Two different ones are an error:
 * versions of transformers differ in which they use. */
static int check_tied(const struct config *c, const struct tensors *ts, const struct tensor *embed,
                      struct err *e)
{
    const struct tensor *head = tensors_find(ts, "lm_head.weight");
    if (!head)
        return 0;
    bool same = head->dtype == embed->dtype && head->n_dims == 2 && head->dim[0] == c->vocab &&
                head->dim[1] == c->hidden;
    if (same && ts->fd[head->shard] >= 0 && ts->fd[embed->shard] >= 0) {
        int r = same_bytes(ts, embed, head, e);
        if (r < 0)
            return -1;
        same = r;
    }
    return same ? 0 : err_set(e, ERR_INPUT,
                              "%s: tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", but "
                              "tie_word_embeddings is true: set it to false, or leave the tensor out",
                              ts->path[head->shard]);
}

struct checking { const struct tensors *ts; struct err *e; };

static int check_tensor(void *ctx, const char *name, size_t rows, size_t cols)
{
    const struct checking *k = ctx;
    return tensors_need(k->ts, name, rows, cols, k->e) ? 0 : -1;
}

/* A router, and the gate of a shared expert, have floats. */
static int check_router(const struct tensors *ts, size_t layer, const char *part, struct err *e)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%zu.mlp.%s.weight", layer, part);
    const struct tensor *t = tensors_find(ts, name);
    return tensor_is_float(t->dtype)
               ? 0
               : err_set(e, ERR_INPUT,
                         "%s: tensor \"%s\": dtype %s, allowed for a router are BF16, F16 and F32",
                         ts->path[t->shard], t->stored_name, t->dtype_name);
}

/* Routers have floats, and the files have no more experts than the configuration. */
static int check_experts(const struct config *c, const struct tensors *ts, size_t layer, struct err *e)
{
    char name[96];
    if (check_router(ts, layer, "gate", e) ||
        (c->shared_ffn && check_router(ts, layer, "shared_expert_gate", e)))
        return -1;
    snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.gate_proj.weight", layer, c->n_experts);
    const struct tensor *more = tensors_find(ts, name);
    return more ? err_set(e, ERR_INPUT, "%s: tensor \"%s\" has expert %zu, the number of experts is %zu",
                          ts->path[more->shard], more->stored_name, c->n_experts, c->n_experts)
                : 0;
}

int config_check_tensors(const struct config *c, const struct tensors *ts, struct err *e)
{
    size_t kv, layers = count_layers(ts);
    if (!config_kv_bytes(c, c->context, 4, &kv) || kv > SIZE_MAX / 4)
        return err_set(e, ERR_INPUT,
                       "config.json: %zu layers x %zu key/value heads x head_dim %zu x %zu positions: the "
                       "size of the cache is beyond 2^62 bytes",
                       c->n_layers, c->n_kv_heads, c->head_dim, c->context);
    const struct tensor *embed = tensors_need(ts, "model.embed_tokens.weight", c->vocab, c->hidden, e);
    if (!embed || !tensors_need(ts, "model.norm.weight", c->hidden, 0, e))
        return -1;
    if (!c->tied && !tensors_find(ts, "lm_head.weight"))
        return err_set(e, ERR_INPUT, "%s: tensor \"lm_head.weight\" is missing, needed because "
                                     "tie_word_embeddings is false", ts->path[0]);
    if (c->tied ? check_tied(c, ts, embed, e) : !tensors_need(ts, "lm_head.weight", c->vocab, c->hidden, e))
        return -1;
    if (layers && layers < c->n_layers)
        return err_set(e, ERR_INPUT, "%s: num_hidden_layers is %zu, but the files have tensors of %zu layers",
                       ts->path[0], c->n_layers, layers);
    if (each_outside(c, check_tensor, &(struct checking){ ts, e }))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        if (each_tensor(c, l, check_tensor, &(struct checking){ ts, e }) ||
            (c->layer[l].experts && check_experts(c, ts, l, e)))
            return -1;
    return tensors_whole(ts, e);
}

struct looking { const struct tensors *ts; void (*missing)(void *ctx, const char *name); void *ctx; };

static int look_for(void *ctx, const char *name, size_t rows, size_t cols)
{
    const struct looking *k = ctx;
    (void)rows, (void)cols;
    if (!tensors_find(k->ts, name))
        k->missing(k->ctx, name);
    return 0;
}

/* Calls fn for every tensor that the configuration needs. */
static void each_needed(const struct config *c, tensor_fn *fn, void *ctx)
{
    static const char *const outside[] = { "model.embed_tokens.weight", "model.norm.weight",
                                           "lm_head.weight" };
    for (size_t i = 0; i < (c->tied ? 2 : 3); i++)
        fn(ctx, outside[i], 0, 0);
    each_outside(c, fn, ctx);
    for (size_t l = 0; l < c->n_layers; l++)
        each_tensor(c, l, fn, ctx);
}

void config_missing_tensors(const struct config *c, const struct tensors *ts,
                            void (*missing)(void *ctx, const char *name), void *ctx)
{
    each_needed(c, look_for, &(struct looking){ ts, missing, ctx });
}

struct marking { const struct tensors *ts; bool *needed; };

static int mark(void *ctx, const char *name, size_t rows, size_t cols)
{
    const struct marking *k = ctx;
    const struct tensor *t = tensors_find(k->ts, name);
    (void)rows, (void)cols;
    if (t)
        k->needed[t - k->ts->t] = true;
    return 0;
}

/* Tensors that a loader may pass over without a word: a copy of the embedding, frequencies of RoPE that older
 * files hold, the layer that drafts, scales that are read with their matrix (views.h), and keys and
 * values of layers that read those of another. */
static bool may_rest(const struct config *c, const struct tensor *t)
{
    const char *name = t->name;
    return strcmp(name, "lm_head.weight") == 0 || strstr(name, ".rotary_emb.inv_freq") ||
           (config_is_hybrid(c) && strncmp(name, "mtp.", 4) == 0) || tensor_is_dealt_scales(t) ||
           strncmp(name, "masked_embedding.", 17) == 0 ||
           (c->kv_shared && (strstr(name, ".self_attn.k_") || strstr(name, ".self_attn.v_")));
}

int config_unread_tensors(const struct config *c, const struct tensors *ts,
                          void (*unread)(void *ctx, const char *name), void *ctx)
{
    struct marking k = { ts, calloc(ts->n + 1, 1) };
    const char *last = "";
    if (!k.needed)
        return -1;
    each_needed(c, mark, &k);
    for (size_t i = 0; i < ts->n; i++) {
        if (k.needed[i] || may_rest(c, &ts->t[i]) || ts->t[i].stored_name == last)
            continue;
        last = ts->t[i].stored_name;
        unread(ctx, last);
    }
    free(k.needed);
    return 0;
}
