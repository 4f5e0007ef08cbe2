/* The tensors that a configuration needs: names, shapes, counts. Start at config_check_tensors. */
#include "src/model/config_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/model.h"
#include "src/model/views.h"

/* p: with the whole name. */
typedef int tensor_fn(void *ctx, const struct layer_part *p);

/* Calls fn for every tensor outside of the layers until it returns -1. */
static int each_outside(const struct config *c, const struct tensors *ts, tensor_fn *fn, void *ctx)
{
    struct layer_part p[MODEL_PARTS_MAX];
    const size_t n = model_parts(p, c, ts);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = fn(ctx, &p[i]);
    return rc;
}

/* Calls fn for every tensor of a layer until it returns -1. */
static int each_tensor(const struct config *c, size_t layer, tensor_fn *fn, void *ctx)
{
    struct layer_part p[PARTS_MAX], x[EXPERT_PARTS];
    const size_t n = layer_parts(p, c, layer);
    char name[96];
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const bool one = p[i].form == PART_SHARED;
        const size_t inner = p[i].form < PART_SHARED ? 0 : expert_parts(x, c, one);
        const int at = snprintf(name, sizeof name, "model.layers.%zu.%s", layer, p[i].name);
        p[i].name = name;
        rc = inner ? 0 : fn(ctx, &p[i]);
        for (size_t k = 0; k < p[i].rows * inner && rc == 0; k++) {
            struct layer_part of = x[k % inner];
            char number[24] = "";
            if (!one)
                snprintf(number, sizeof number, "%zu.", k / inner);
            snprintf(name + at, sizeof name - (size_t)at, "%s%s", number, of.name);
            of.name = name;
            rc = fn(ctx, &of);
        }
    }
    return rc;
}

static size_t count_parts(const struct layer_part *p, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i].form < PART_SHARED ? p[i].rows * MAX(p[i].cols, (size_t)1) : 0;
    return sum;
}

/* Parameters of the whole model, or (used) of those that a token uses. The limits of config_read keep the
 * number below 2^62. */
static size_t count_params(const struct config *c, bool used)
{
    struct layer_part p[PARTS_MAX], x[EXPERT_PARTS];
    size_t n = count_parts(p, model_parts(p, c, NULL));
    if (used)                            /* of the table a token uses one row, which does not count */
        n -= c->n_layers * c->per_layer * c->per_layer_vocab;
    for (size_t l = 0; l < c->n_layers; l++) {
        n += count_parts(p, layer_parts(p, c, l));
        if (c->layer[l].experts)
            n += (used ? c->experts_used : c->n_experts) * count_parts(x, expert_parts(x, c, false));
        if (c->layer[l].experts && c->shared_ffn)
            n += count_parts(x, expert_parts(x, c, true));
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
static int check_tied(const struct config *c, const struct tensors *ts, struct err *e)
{
    const struct tensor *head = tensors_find(ts, "lm_head.weight"),
                        *embed = tensors_find(ts, "model.embed_tokens.weight");
    if (!c->tied || !head)
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

static int check_tensor(void *ctx, const struct layer_part *p)
{
    const struct checking *k = ctx;
    if (strcmp(p->name, "lm_head.weight") == 0 && !tensors_find(k->ts, p->name))
        return err_set(k->e, ERR_INPUT, "%s: tensor \"lm_head.weight\" is missing, needed because "
                                        "tie_word_embeddings is false", k->ts->path[0]);
    return part_need(k->ts, "", p, k->e) ? 0 : -1;
}

/* The files have no more experts than the configuration. */
static int check_experts(const struct config *c, const struct tensors *ts, size_t layer, struct err *e)
{
    char name[96];
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
    if (each_outside(c, ts, check_tensor, &(struct checking){ ts, e }) || check_tied(c, ts, e))
        return -1;
    if (layers && layers < c->n_layers)
        return err_set(e, ERR_INPUT, "%s: num_hidden_layers is %zu, but the files have tensors of %zu layers",
                       ts->path[0], c->n_layers, layers);
    for (size_t l = 0; l < c->n_layers; l++)
        if (each_tensor(c, l, check_tensor, &(struct checking){ ts, e }) ||
            (c->layer[l].experts && check_experts(c, ts, l, e)))
            return -1;
    return tensors_whole(ts, e);
}

struct looking { const struct tensors *ts; void (*missing)(void *ctx, const char *name); void *ctx; };

static int look_for(void *ctx, const struct layer_part *p)
{
    const struct looking *k = ctx;
    if (!tensors_find(k->ts, p->name))
        k->missing(k->ctx, p->name);
    return 0;
}

void config_missing_tensors(const struct config *c, const struct tensors *ts,
                            void (*missing)(void *ctx, const char *name), void *ctx)
{
    struct looking k = { ts, missing, ctx };
    each_outside(c, ts, look_for, &k);
    for (size_t l = 0; l < c->n_layers; l++)
        each_tensor(c, l, look_for, &k);
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

void config_unread_tensors(const struct config *c, const struct tensors *ts,
                           void (*unread)(void *ctx, const char *name), void *ctx)
{
    const char *last = "";
    for (size_t i = 0; i < ts->n; i++) {
        if (ts->t[i].needed || may_rest(c, &ts->t[i]) || ts->t[i].stored_name == last)
            continue;
        last = ts->t[i].stored_name;
        unread(ctx, last);
    }
}
