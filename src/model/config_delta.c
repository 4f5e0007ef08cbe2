/* Configurations of hybrids: the layers of Gated DeltaNet. */
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

/* Reads which layers have a state: those that layer_types calls linear_attention, else all but every
 * full_attention_interval-th. */
static int read_mixers(struct config *c, const struct json *root, struct err *e)
{
    struct json list, x;
    size_t interval, n = 0;
    if (get_size(root, "full_attention_interval", 4, NULL_MISSING, CONFIG_LAYERS_MAX, &interval, e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->mixer[l] = (l + 1) % interval ? MIXER_DELTA : MIXER_ATTENTION;
    const int found = get_value(root, "layer_types", &list, e);
    if (found < 0 || (found && js_kind(&list) != JS_ARRAY))
        return found < 0 ? -1 : js_bad(&list, e, "allowed is a list of names");
    if (!found)
        return 0;
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &x); n++) {
        const bool linear = js_is(&x, "linear_attention");
        if (!linear && !js_is(&x, "full_attention"))
            return js_bad(&x, e, "allowed are \"full_attention\" and \"linear_attention\"");
        if (n < c->n_layers)
            c->mixer[n] = linear ? MIXER_DELTA : MIXER_ATTENTION;
    }
    if (n != c->n_layers)
        return err_set(e, ERR_INPUT,
                       "%s: layer_types has %zu entries, num_hidden_layers is %zu: they must agree",
                       root->file, n, c->n_layers);
    return 0;
}

/* Reads the layers of Gated DeltaNet and the switches of the attention beside them. */
int config_read_delta(struct config *c, const struct delta_config *missing, const struct json *root,
                      struct err *e)
{
    static const char *const fixed[][2] = { { "output_gate_type", "swish" },
                                            { "mamba_ssm_dtype", "float32" } };
    struct delta_config *d = &c->delta;
    const struct { const char *key; size_t missing, hi, *to; } sizes[] = {
        { "linear_num_key_heads", missing->key_heads, 1 << 16, &d->key_heads },
        { "linear_num_value_heads", missing->value_heads, 1 << 16, &d->value_heads },
        { "linear_key_head_dim", missing->key_dim, HEAD_DIM_MAX, &d->key_dim },
        { "linear_value_head_dim", missing->value_dim, HEAD_DIM_MAX, &d->value_dim },
        { "linear_conv_kernel_dim", missing->conv, CONV_MAX, &d->conv },
    };
    struct json v;
    c->norm_plus_one = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (get_size(root, sizes[i].key, sizes[i].missing, NULL_REFUSED, sizes[i].hi, sizes[i].to, e))
            return -1;
    if (get_bool(root, "attn_output_gate", true, &c->gated, e))
        return -1;
    if (!c->gated)
        return err_set(e, ERR_INPUT, "%s: attn_output_gate is false, allowed is true", root->file);
    if (d->value_heads % d->key_heads)
        return err_set(e, ERR_INPUT,
                       "%s: linear_num_value_heads %zu is not a multiple of linear_num_key_heads %zu",
                       root->file, d->value_heads, d->key_heads);
    if (d->conv < 2)
        return err_set(e, ERR_INPUT, "%s: linear_conv_kernel_dim is 1, allowed are 2 to %d", root->file,
                       CONV_MAX);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const int found = get_value(root, fixed[i][0], &v, e);
        if (found < 0 || (found && !js_is(&v, fixed[i][1])))
            return found < 0 ? -1 : js_bad(&v, e, "allowed is \"%s\"", fixed[i][1]);
    }
    if (read_mixers(c, root, e))
        return -1;
    if (!config_mixers(c, MIXER_ATTENTION))
        return err_set(e, ERR_INPUT, "%s: no layer has full_attention, at least one is needed", root->file);
    return 0;
}

bool config_is_hybrid(const struct config *c) { return config_mixers(c, MIXER_DELTA) > 0; }

size_t config_mixers(const struct config *c, enum mixer_kind kind)
{
    size_t n = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        n += c->mixer[l] == kind;
    return n;
}

size_t config_caches(const struct config *c) { return config_mixers(c, MIXER_ATTENTION) - c->kv_shared; }
