/* Configurations of Gemma 3 and OLMo 3: windows in most of the layers, which have frequencies of their own,
 * the activation and the scale of queries. */
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

int config_read_layer_types(struct config *c, const struct json *v, struct err *e)
{
    struct json x;
    size_t n = 0;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is a list of names");
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x); n++) {
        bool sliding = js_is(&x, "sliding_attention");
        if (!sliding && !js_is(&x, "full_attention"))
            return js_bad(&x, e, "allowed are \"full_attention\" and \"sliding_attention\"");
        if (n < c->n_layers)
            c->windowed[n] = sliding;
    }
    if (n != c->n_layers)
        return err_set(e, ERR_INPUT,
                       "%s: layer_types has %zu entries, num_hidden_layers is %zu: they must agree", v->file,
                       n, c->n_layers);
    return 0;
}

/* Reads the window and the layers that have it: those of layer_types, else all but every
 * sliding_window_pattern-th, or `every`-th. */
static int read_windows(struct config *c, const struct json *root, size_t every, struct err *e)
{
    static const char pattern[] = "sliding_window_pattern";
    struct json v;
    uint8_t derived[CONFIG_LAYERS_MAX] = { 0 };
    if (get_size(root, "sliding_window", 4096, NULL_REFUSED, INT32_MAX, &c->window, e) ||
        get_size(root, pattern, every, NULL_MISSING, INT32_MAX, &every, e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        derived[l] = (l + 1) % every != 0;
    memcpy(c->windowed, derived, sizeof derived);
    const int found = get_value(root, "layer_types", &v, e),
              has = get_value(root, pattern, &(struct json){ 0 }, e);
    if (found <= 0 || has < 0)
        return MIN(found, has) < 0 ? -1 : 0;
    if (config_read_layer_types(c, &v, e))
        return -1;
    return !has || memcmp(c->windowed, derived, sizeof derived) == 0
               ? 0
               : js_bad(&v, e, "%s %zu names other layers: they must agree", pattern, every);
}

int config_read_gemma(struct config *c, const struct json *root, struct err *e)
{
    static const char gelu[] = "gelu_pytorch_tanh";
    struct json v;
    const int found = js_get(root, "hidden_activation", &v, e);
    if (found < 0 || (found && !js_is(&v, gelu)))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"%s\"", gelu);
    c->gelu = c->norms_after = c->norm_plus_one = true;
    c->embed = EMBED_SCALED_ROUNDED;
    if (get_real(root, "query_pre_attn_scalar", 256, 1e-6, 1e6, &c->query_scalar, e) ||
        read_windows(c, root, 6, e))
        return -1;
    memcpy(c->local, c->windowed, sizeof c->local);
    return 0;
}

int config_read_olmo(struct config *c, const struct json *root, struct err *e)
{
    c->norms_after = c->only_after = c->qk_whole = true;
    if (c->head_dim % 16)
        return err_set(e, ERR_INPUT, "%s: heads of %zu dimensions: allowed for %s models are multiples of 16",
                       root->file, c->head_dim, c->model_type);
    const int rc = read_windows(c, root, 4, e);
    memcpy(c->local, c->windowed, sizeof c->local);
    return rc;
}

/* Reads the settings of the windowed layers, which are not scaled. */
static int read_sliding(struct config *c, const struct json *v, struct err *e)
{
    struct json key, x;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "allowed is an object");
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &x);) {
        if (js_is(&key, "rope_type") ? !js_is(&x, "default") : !js_is(&key, "rope_theta"))
            return js_bad(js_is(&key, "rope_type") ? &x : &key, e,
                          "allowed in sliding_attention are rope_theta, and rope_type \"default\"");
    }
    return get_real(v, "rope_theta", c->rope.local_theta, 1, 1e30, &c->rope.local_theta, e);
}

int config_read_local_rope(struct config *c, const struct json *root, struct json *dict, int *found,
                           struct err *e)
{
    struct json key, v, all = *dict;
    c->rope.within = true;
    if (get_real(root, "rope_local_base_freq", c->only_after ? c->rope.theta : 10000, 1, 1e30,
                 &c->rope.local_theta, e))
        return -1;
    if (!found || !*found)
        return 0;
    *found = 0;
    *dict = *root;
    if (js_kind(&all) != JS_OBJECT)
        return js_bad(&all, e, "allowed is an object");
    for (struct js_walk w = js_walk(&all); js_next(&w, &key, &v);) {
        const bool full = js_is(&key, "full_attention");
        if (!full && !js_is(&key, "sliding_attention"))
            return js_bad(&key, e, "allowed in rope_parameters are full_attention and sliding_attention");
        if (js_kind(&v) == JS_NULL)
            continue;
        if (!full && read_sliding(c, &v, e))
            return -1;
        if (full)
            *dict = v, *found = 1;
    }
    return 0;
}
