/* Configurations of gpt-oss: windows in every second layer, clamped experts with biases, and a further logit
 * of each head. */
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

int config_read_oss(struct config *c, const struct json *root, struct err *e)
{
    struct json v, method;
    int found = get_value(root, "quantization_config", &v, e);
    if (found > 0 && js_kind(&v) != JS_OBJECT)
        return js_bad(&v, e, "allowed is an object");
    if (found > 0 && (found = get_value(&v, "quant_method", &method, e)) > 0 && !js_is(&method, "mxfp4"))
        return js_bad(&method, e, "allowed is \"mxfp4\"");
    if (found < 0)
        return -1;
    if (get_size(root, "sliding_window", 128, NULL_REFUSED, INT32_MAX, &c->window, e) ||
        get_real(root, "swiglu_alpha", 1.702, 1e-3, 1e3, &c->swiglu_alpha, e) ||
        get_real(root, "swiglu_limit", 7, 1e-3, 1e6, &c->swiglu_limit, e))
        return -1;
    c->experts_bias = c->head_logits = true;
    for (size_t l = 0; l < c->n_layers; l++)
        c->windowed[l] = l % 2 == 0;
    found = get_value(root, "layer_types", &v, e);
    return found > 0 ? config_read_layer_types(c, &v, e) : found;
}
