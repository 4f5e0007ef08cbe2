/* Configurations of Gemma 4: layers with a window and global ones have heads of two sizes and numbers, and
 * frequencies of their own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

/* A whole number from 0; null is 0. */
static int get_count(const struct json *root, const char *key, size_t missing, size_t hi, size_t *x,
                     struct err *e)
{
    struct json v;
    const int found = js_get(root, key, &v, e);
    *x = found == 1 ? 0 : missing;
    return found == 1 && !is_null(&v) ? js_size(&v, 0, hi, x, e) : MIN(found, 0);
}

static int need_size(const struct json *root, const char *key, size_t hi, size_t *x, struct err *e)
{
    struct json v;
    const int found = get_value(root, key, &v, e);
    if (found == 0)
        return err_set(e, ERR_INPUT, "%s: %s is missing, enable_moe_block needs it", root->file, key);
    return found < 0 ? -1 : js_size(&v, 1, hi, x, e);
}

/* unified: a model of 12B, whose defaults differ. */
static int read_windows(struct config *c, const struct json *root, bool unified, struct err *e)
{
    struct json v;
    if (get_size(root, "sliding_window", unified ? 1024 : 512, NULL_REFUSED, INT32_MAX, &c->window, e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->windowed[l] = (l + 1) % 6 != 0;
    const int found = get_value(root, "layer_types", &v, e);
    if (found < 0 || (found && config_read_layer_types(c, &v, e)))
        return -1;
    c->windowed[c->n_layers - 1] = 0;        /* whatever the key says, as in transformers */
    memcpy(c->local, c->windowed, sizeof c->local);
    return 0;
}

/* Reads per_layer_config, an object of layers whose heads are not those of the others. */
static int read_each(struct config *c, const struct json *all, struct err *e)
{
    struct json key, v, name, x;
    if (js_kind(all) != JS_OBJECT)
        return js_bad(all, e, "allowed is an object");
    for (struct js_walk w = js_walk(all); js_next(&w, &key, &v);) {
        bool control;
        char text[8] = "";
        size_t n, dim;
        if (js_length(&key, &control) < sizeof text)
            text[js_unescape(&key, text)] = 0;
        const size_t l = strtoul(text, NULL, 10);
        if (!*text || strspn(text, "0123456789") != strlen(text) || l >= c->n_layers)
            return js_bad(&key, e, "allowed are the numbers of layers, 0 to %zu", c->n_layers - 1);
        if (js_kind(&v) != JS_OBJECT)
            return js_bad(&v, e, "allowed is an object");
        for (struct js_walk in = js_walk(&v); js_next(&in, &name, &x);)
            if (!js_is(&name, "head_dim") && !js_is(&name, "num_key_value_heads"))
                return js_bad(&name, e, "allowed in per_layer_config are head_dim and num_key_value_heads");
        if (get_size(&v, "head_dim", c->head_dim, NULL_REFUSED, HEAD_DIM_MAX, &dim, e) ||
            get_size(&v, "num_key_value_heads", c->n_kv_heads, NULL_REFUSED, c->n_heads, &n, e))
            return -1;
        c->heads[l].n = (uint32_t)n, c->heads[l].dim = (uint32_t)dim;
    }
    return 0;
}

/* Checks the heads of all layers. */
static int add_heads(struct config *c, const struct json *root, struct err *e)
{
    const struct kv_heads last = c->heads[c->n_layers - 1];
    c->heads_differ = true;
    c->rotary = c->local_rotary = last.dim;
    c->n_kv_heads = c->head_dim = 0;
    for (size_t l = c->n_layers; l--;)
        if (c->windowed[l])
            c->local_rotary = c->heads[l].dim;
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct kv_heads *h = &c->heads[l];
        if (c->n_heads % h->n || h->dim % 16 || h->dim != (c->windowed[l] ? c->local_rotary : c->rotary))
            return err_set(e, ERR_INPUT,
                           "%s: layer %zu has %u key/value heads of %u dimensions: allowed are numbers that "
                           "divide num_attention_heads %zu, and in all %s layers the same multiple of 16",
                           root->file, l, (unsigned)h->n, (unsigned)h->dim, c->n_heads,
                           c->windowed[l] ? "windowed" : "global");
        c->n_kv_heads = MAX(c->n_kv_heads, h->n), c->head_dim = MAX(c->head_dim, h->dim);
    }
    return 0;
}

static int read_heads(struct config *c, const struct json *root, struct err *e)
{
    struct json all;
    size_t dim, n;
    if (get_bool(root, "attention_k_eq_v", false, &c->v_is_k, e) ||
        get_size(root, "global_head_dim", 512, NULL_REFUSED, HEAD_DIM_MAX, &dim, e) ||
        get_size(root, "num_global_key_value_heads", c->n_kv_heads, NULL_MISSING, c->n_heads, &n, e))
        return -1;
    const int found = get_value(root, "per_layer_config", &all, e);
    if (found < 0)
        return -1;
    for (size_t l = 0; l < c->n_layers; l++) {
        const bool global = !c->windowed[l] && !found;
        c->heads[l].n = (uint32_t)(global && c->v_is_k ? n : c->n_kv_heads);
        c->heads[l].dim = (uint32_t)(global ? dim : c->head_dim);
    }
    return (found && read_each(c, &all, e)) || add_heads(c, root, e) ? -1 : 0;
}

size_t config_kv_layer(const struct config *c, size_t layer)
{
    size_t l = layer;
    while (!config_owns_kv(c, l) || c->windowed[l] != c->windowed[layer])
        if (l-- == 0)
            return SIZE_MAX;
    return l;
}

/* Reads which layers have no keys and values of their own: of a drafter none has. */
static int read_shared(struct config *c, const struct json *root, struct err *e)
{
    if (c->backbone) {
        c->kv_shared = c->n_layers;
        return 0;
    }
    if (get_count(root, "num_kv_shared_layers", 0, c->n_layers - 1, &c->kv_shared, e) ||
        get_bool(root, "use_double_wide_mlp", false, &c->ffn_doubled, e))
        return -1;
    c->ffn_doubled = c->ffn_doubled && c->kv_shared;
    for (size_t l = c->n_layers - c->kv_shared; l < c->n_layers; l++) {
        const size_t from = config_kv_layer(c, l);
        if (from == SIZE_MAX)
            return err_set(e, ERR_INPUT, "%s: num_kv_shared_layers is %zu, but no layer before layer %zu has "
                           "keys and values for the %s layers after it", root->file, c->kv_shared,
                           c->n_layers - c->kv_shared, c->windowed[l] ? "windowed" : "global");
        if (c->heads[l].n != c->heads[from].n)
            return err_set(e, ERR_INPUT, "%s: layer %zu has %u key/value heads, but reads those of layer "
                           "%zu, which has %u", root->file, l, (unsigned)c->heads[l].n, from,
                           (unsigned)c->heads[from].n);
    }
    return 0;
}

/* Reads the embeddings of each layer, which models of 12B and drafters do not have. */
static int read_per_layer(struct config *c, const struct json *root, bool unified, struct err *e)
{
    const size_t missing = unified || c->backbone ? 0 : 256, most = c->backbone ? 0 : 1 << 16;
    if (get_count(root, "hidden_size_per_layer_input", missing, most, &c->per_layer, e) ||
        get_count(root, "vocab_size_per_layer_input", 262144, 1 << 24, &c->per_layer_vocab, e))
        return -1;
    if (c->per_layer && c->per_layer_vocab < c->vocab)
        return err_set(e, ERR_INPUT, "%s: vocab_size_per_layer_input is %zu, but vocab_size is %zu: allowed "
                       "are as many or more", root->file, c->per_layer_vocab, c->vocab);
    return 0;
}

static int read_experts(struct config *c, const struct json *root, struct err *e)
{
    if (get_bool(root, "enable_moe_block", false, &c->experts_beside, e))
        return -1;
    if (!c->experts_beside)
        return 0;
    if (need_size(root, "num_experts", EXPERTS_MAX, &c->n_experts, e) ||
        need_size(root, "top_k_experts", c->n_experts, &c->experts_used, e) ||
        need_size(root, "moe_intermediate_size", EXPERT_FFN_MAX, &c->expert_ffn, e))
        return -1;
    c->experts_normalised = true;
    memset(c->kind, LAYER_EXPERTS, c->n_layers);
    return 0;
}

int config_read_gemma4(struct config *c, const struct json *root, struct err *e)
{
    static const char gelu[] = "gelu_pytorch_tanh", both_ways[] = "use_bidirectional_attention";
    struct json v;
    int found = js_get(root, "hidden_activation", &v, e);
    if (found < 0 || (found && !js_is(&v, gelu)))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"%s\"", gelu);
    found = get_value(root, both_ways, &v, e);
    if (found < 0 || (found && !js_is(&v, "vision")))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"vision\"");
    found = js_get(root, "model_type", &v, e);
    if (found < 0)
        return -1;
    const bool unified = found && strncmp(v.s, "\"gemma4_unified", 15) == 0;
    c->gelu = c->norms_after = c->v_norm = c->layer_scale = true;
    c->embed = EMBED_SCALED_ROUNDED;
    c->query_scalar = 1;
    if (unified && get_size(root, "max_position_embeddings", 262144, NULL_REFUSED, CONTEXT_MAX,
                            &c->max_position, e))
        return -1;
    return get_real(root, "final_logit_softcapping", 0, 0, 1e6, &c->softcap, e) ||
                   read_windows(c, root, unified, e) || read_heads(c, root, e) || read_shared(c, root, e) ||
                   read_per_layer(c, root, unified, e) || read_experts(c, root, e)
               ? -1
               : 0;
}

/* Of the global layers the first pairs of dimensions turn. */
int config_read_proportional(struct config *c, const struct json *dict, struct err *e)
{
    double part = 0.25, factor = 1;
    c->rotary = c->heads[c->n_layers - 1].dim;       /* the last layer is global */
    if (dict && (get_real(dict, "partial_rotary_factor", 1, 0, 1, &part, e) ||
                 get_real(dict, "factor", 1, 1e-6, 1e6, &factor, e)))
        return -1;
    const size_t turns = (size_t)(part * (double)c->rotary) / 2;
    for (size_t i = 0; i < c->rotary / 2; i++)
        c->rope.divisor[i] = i < turns ? (float)factor : INFINITY;
    c->rope.type = ROPE_DIVIDED;
    return 0;
}
