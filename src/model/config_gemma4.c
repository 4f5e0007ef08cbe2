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

static int not_yet(const struct json *root, const char *key, struct err *e)
{
    struct json v;
    const int found = js_get(root, key, &v, e);
    return found > 0 ? js_bad(&v, e, "this is not implemented for gemma4 models: allowed is 0")
                     : err_set(e, ERR_INPUT, "%s: %s is missing, which stands for 256: allowed is 0",
                               root->file, key);
}

static int read_windows(struct config *c, const struct json *root, struct err *e)
{
    struct json v;
    if (get_size(root, "sliding_window", 512, NULL_REFUSED, INT32_MAX, &c->window, e))
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

/* KV heads and their dimensions, of layers with a window and of global ones. */
struct kinds { size_t n[2], dim[2]; };
enum { LOCAL, GLOBAL };

/* Reads per_layer_config, which names heads of single layers: all global ones, and alike. */
static int read_each(const struct config *c, const struct json *root, struct kinds *k, struct err *e)
{
    struct json all, key, v, name, x;
    size_t n = 0, globals = 0;
    const int found = get_value(root, "per_layer_config", &all, e);
    if (found <= 0)
        return found;
    if (js_kind(&all) != JS_OBJECT)
        return js_bad(&all, e, "allowed is an object");
    for (size_t l = 0; l < c->n_layers; l++)
        globals += !c->windowed[l];
    for (struct js_walk w = js_walk(&all); js_next(&w, &key, &v); n++) {
        struct kinds own = *k;
        bool control;
        char text[8] = "";
        if (js_length(&key, &control) < sizeof text)
            text[js_unescape(&key, text)] = 0;
        const size_t l = strtoul(text, NULL, 10);
        if (!*text || strspn(text, "0123456789") != strlen(text) || l >= c->n_layers || c->windowed[l])
            return js_bad(&key, e, "allowed are the numbers of global layers");
        if (js_kind(&v) != JS_OBJECT)
            return js_bad(&v, e, "allowed is an object");
        for (struct js_walk in = js_walk(&v); js_next(&in, &name, &x);)
            if (!js_is(&name, "head_dim") && !js_is(&name, "num_key_value_heads"))
                return js_bad(&name, e, "allowed in per_layer_config are head_dim and num_key_value_heads");
        if (get_size(&v, "head_dim", c->head_dim, NULL_REFUSED, HEAD_DIM_MAX, &own.dim[GLOBAL], e) ||
            get_size(&v, "num_key_value_heads", c->n_kv_heads, NULL_REFUSED, c->n_heads, &own.n[GLOBAL], e))
            return -1;
        if (n && (own.dim[GLOBAL] != k->dim[GLOBAL] || own.n[GLOBAL] != k->n[GLOBAL]))
            return js_bad(&v, e, "global layers with different heads are not implemented");
        *k = own;
    }
    if (n == 0)                          /* transformers leaves out heads that equal the others */
        k->dim[GLOBAL] = c->head_dim, k->n[GLOBAL] = c->n_kv_heads;
    return n == 0 || n == globals ? 0
                                  : js_bad(&all, e, "%zu of %zu global layers: allowed are all", n, globals);
}

static int read_heads(struct config *c, const struct json *root, struct err *e)
{
    struct kinds k = { { c->n_kv_heads, c->n_kv_heads }, { c->head_dim, 512 } };
    size_t n;
    if (get_bool(root, "attention_k_eq_v", false, &c->v_is_k, e) ||
        get_size(root, "global_head_dim", 512, NULL_REFUSED, HEAD_DIM_MAX, &k.dim[GLOBAL], e) ||
        get_size(root, "num_global_key_value_heads", c->n_kv_heads, NULL_MISSING, c->n_heads, &n, e))
        return -1;
    k.n[GLOBAL] = c->v_is_k && n ? n : c->n_kv_heads;
    if (read_each(c, root, &k, e))
        return -1;
    for (int i = LOCAL; i <= GLOBAL; i++)
        if (c->n_heads % k.n[i] || k.dim[i] % 16)
            return err_set(e, ERR_INPUT,
                           "%s: %zu key/value heads of %zu dimensions in %s layers: allowed are numbers that "
                           "divide num_attention_heads %zu, and multiples of 16", root->file, k.n[i],
                           k.dim[i], i == LOCAL ? "windowed" : "global", c->n_heads);
    c->heads_differ = true;
    for (size_t l = 0; l < c->n_layers; l++) {
        struct kv_heads *h = &c->heads[l];
        h->n = (uint32_t)k.n[!c->windowed[l]], h->dim = (uint32_t)k.dim[!c->windowed[l]];
        h[1].first = h->first + h->n, h[1].dims = h->dims + h->n * h->dim;
    }
    c->rotary = k.dim[GLOBAL], c->local_rotary = k.dim[LOCAL];
    c->n_kv_heads = MAX(k.n[LOCAL], k.n[GLOBAL]);
    c->head_dim = MAX(k.dim[LOCAL], k.dim[GLOBAL]);
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
    size_t shared, width, missing = 256;
    int found = js_get(root, "hidden_activation", &v, e);
    if (found < 0 || (found && !js_is(&v, gelu)))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"%s\"", gelu);
    found = get_value(root, both_ways, &v, e);
    if (found < 0 || (found && !js_is(&v, "vision")))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"vision\"");
    found = js_get(root, "model_type", &v, e);
    if (found < 0)
        return -1;
    if (found && strncmp(v.s, "\"gemma4_unified", 15) == 0)
        missing = 0;
    c->gelu = c->norms_after = c->v_norm = c->layer_scale = true;
    c->embed = EMBED_SCALED_ROUNDED;
    c->query_scalar = 1;
    if (get_count(root, "num_kv_shared_layers", 0, c->n_layers, &shared, e) ||
        get_count(root, "hidden_size_per_layer_input", missing, 1 << 20, &width, e) ||
        get_real(root, "final_logit_softcapping", 0, 0, 1e6, &c->softcap, e) || read_windows(c, root, e) ||
        read_heads(c, root, e) || read_experts(c, root, e))
        return -1;
    if (shared)
        return not_yet(root, "num_kv_shared_layers", e);
    return width ? not_yet(root, "hidden_size_per_layer_input", e) : 0;
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
