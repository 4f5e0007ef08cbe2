/* The tensors that a configuration needs: names, shapes, counts. Its table is layer_parts; start at
 * config_check_tensors. */
#include "src/model/config_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of a layer: its name after "model.layers.N.", whether the configuration has it, its shape. */
struct part { const char *name; bool used; size_t rows, cols; };
enum { PARTS = 18 };

static void layer_parts(struct part p[PARTS], const struct config *c)
{
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, f = c->ffn,
                 h = c->head_dim;
    const struct part parts[PARTS] = {
        { "input_layernorm.weight", true, d, 0 },        { "post_attention_layernorm.weight", true, d, 0 },
        { "self_attn.q_proj.weight", true, q, d },       { "self_attn.k_proj.weight", true, kv, d },
        { "self_attn.v_proj.weight", true, kv, d },      { "self_attn.o_proj.weight", true, d, q },
        { "self_attn.q_proj.bias", c->qkv_bias, q, 0 },  { "self_attn.k_proj.bias", c->qkv_bias, kv, 0 },
        { "self_attn.v_proj.bias", c->qkv_bias, kv, 0 }, { "self_attn.o_proj.bias", c->o_bias, d, 0 },
        { "self_attn.q_norm.weight", c->qk_norm, h, 0 }, { "self_attn.k_norm.weight", c->qk_norm, h, 0 },
        { "mlp.gate_proj.weight", true, f, d },          { "mlp.up_proj.weight", true, f, d },
        { "mlp.down_proj.weight", true, d, f },          { "mlp.gate_proj.bias", c->mlp_bias, f, 0 },
        { "mlp.up_proj.bias", c->mlp_bias, f, 0 },       { "mlp.down_proj.bias", c->mlp_bias, d, 0 },
    };
    memcpy(p, parts, sizeof parts);
}

size_t config_count_params(const struct config *c)
{
    struct part p[PARTS];
    size_t layer = 0;
    layer_parts(p, c);
    for (size_t i = 0; i < PARTS; i++)
        if (p[i].used)
            layer += p[i].rows * (p[i].cols ? p[i].cols : 1);
    /* The limits of config_read keep this below 2^57. */
    return c->n_layers * layer + c->hidden + (c->tied ? 1 : 2) * c->vocab * c->hidden;
}

bool config_kv_bytes(const struct config *c, size_t n, size_t element, size_t *bytes)
{
    size_t b;
    if (!mul_size(c->n_layers, 2 * c->n_kv_heads, &b) || !mul_size(b, c->head_dim, &b) ||
        !mul_size(b, n, &b) || !mul_size(b, element, &b))
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

int config_check_tensors(const struct config *c, const struct tensors *ts, struct err *e)
{
    struct part p[PARTS];
    char name[96];
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
    layer_parts(p, c);
    for (size_t l = 0; l < c->n_layers; l++)
        for (size_t i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "model.layers.%zu.%s", l, p[i].name);
            if (p[i].used && !tensors_need(ts, name, p[i].rows, p[i].cols, e))
                return -1;
        }
    return 0;
}

void config_missing_tensors(const struct config *c, const struct tensors *ts,
                            void (*missing)(void *ctx, const char *name), void *ctx)
{
    const char *const outside[] = { "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight" };
    struct part p[PARTS];
    char name[96];
    layer_parts(p, c);
    for (size_t i = 0; i < (c->tied ? 2 : 3); i++)
        if (!tensors_find(ts, outside[i]))
            missing(ctx, outside[i]);
    for (size_t l = 0; l < c->n_layers; l++)
        for (size_t i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "model.layers.%zu.%s", l, p[i].name);
            if (p[i].used && !tensors_find(ts, name))
                missing(ctx, name);
        }
}
