/* Configurations of Granite: Llama with four factors, on embeddings, on scores, on what a layer adds to the
 * residual, and on logits. The residual is kept divided by its factor r: then layers add what they compute,
 * the embeddings are divided by r, and a norm of the residual has its epsilon divided by r^2. */
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

/* A granitemoehybrid is supported if it has neither recurrent layers nor experts (Granite 4 dense): its
 * network is then what others call the shared expert. */
static int read_dense(struct config *c, const struct json *root, struct err *e)
{
    struct json v, name;
    int found = get_value(root, "num_local_experts", &v, e);
    if (found == 0)
        return err_set(e, ERR_INPUT, "%s: num_local_experts is missing, which stands for 8: allowed is 0",
                       root->file);
    size_t none;
    if (found < 0 || js_size(&v, 0, 0, &none, e) ||
        get_size(root, "shared_intermediate_size", 1024, NULL_REFUSED, 1 << 24, &c->ffn, e))
        return -1;
    found = get_value(root, "position_embedding_type", &v, e);
    if (found == 0)
        return err_set(e, ERR_INPUT, "%s: position_embedding_type is missing: allowed is \"rope\"",
                       root->file);
    if (found < 0 || !js_is(&v, "rope"))
        return found < 0 ? -1 : js_bad(&v, e, "allowed is \"rope\"");
    found = get_value(root, "layer_types", &v, e);
    if (found == 0)
        found = get_value(root, "layers_block_type", &v, e);
    if (found == 0)
        return err_set(e, ERR_INPUT, "%s: layer_types is missing, which stands for layers with states: "
                       "allowed are \"attention\" and \"full_attention\"", root->file);
    if (found < 0 || js_kind(&v) != JS_ARRAY)
        return found < 0 ? -1 : js_bad(&v, e, "allowed is a list of names");
    size_t n = 0;
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &name); n++)
        if (!js_is(&name, "attention") && !js_is(&name, "full_attention"))
            return js_bad(&name, e, "allowed are \"attention\" and \"full_attention\"");
    return n == c->n_layers ? 0
                            : js_bad(&v, e, "%zu names: allowed are %zu, one for each layer", n, c->n_layers);
}

int config_read_granite(struct config *c, const struct json *root, struct err *e)
{
    struct json type;
    double embeddings, scores, r;
    if (get_real(root, "embedding_multiplier", 1, 1e-6, 1e6, &embeddings, e) ||
        get_real(root, "attention_multiplier", 1, 1e-6, 1e6, &scores, e) ||
        get_real(root, "residual_multiplier", 1, 1e-6, 1e6, &r, e) ||
        get_real(root, "logits_scaling", 1, 1e-6, 1e6, &c->logit_divisor, e))
        return -1;
    c->embed = EMBED_SCALED;
    c->embed_factor = embeddings / r;
    c->query_scalar = 1 / (scores * scores);
    c->residual_factor = r;
    c->rms_eps /= r * r;
    const int found = js_get(root, "model_type", &type, e);
    return found < 0 || (found && js_is(&type, "granitemoehybrid") && read_dense(c, root, e)) ? -1 : 0;
}
