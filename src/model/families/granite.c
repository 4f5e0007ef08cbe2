/* Granite 3 and 4 (dense): Llama with four factors, on embeddings, on scores, on what a layer adds to the
 * residual, and on logits. The residual is kept divided by its factor r: then layers add what they compute,
 * the embeddings are divided by r, and a norm of the residual has its epsilon divided by r^2. */
#include <math.h>

#include "src/model/families/family.h"

static const struct key factor_keys[] = {
    { "embedding_multiplier", "embedding_scale", REAL(embed_multiplier), 1e-6, 1e6, 1 },
    { "residual_multiplier", "residual_scale", REAL(residual_factor), 1e-6, 1e6, 1 },
    { "logits_scaling", "logit_scale", REAL(logit_divisor), 1e-6, 1e6, 1 },
    { "attention_multiplier", "attention.scale", REAL(score_multiplier), 1e-6, 1e6, 1 },
    { 0 }
};

/* A granitemoehybrid is supported if it has neither recurrent layers nor experts (Granite 4 dense): its
 * network is then what others call the shared expert. */
static int read_dense(const struct reading *r)
{
    const struct json *root = r->root;
    struct err *e = r->e;
    struct json v;
    size_t none;
    bool same[CONFIG_LAYERS_MAX];        /* both names are those of attention */
    int found = get_value(root, "num_local_experts", &v, e);
    if (found == 0)
        return read_bad(r, "num_local_experts is missing, which stands for 8: allowed is 0");
    if (found < 0 || js_size(&v, 0, 0, &none, e) ||
        get_size(root, "shared_intermediate_size", 1024, NULL_REFUSED, 1 << 24, &r->c->ffn, e))
        return -1;
    found = read_word(root, "position_embedding_type", "rope", e);
    if (found <= 0)
        return found < 0 ? -1 : read_bad(r, "position_embedding_type is missing: allowed is \"rope\"");
    found = read_layer_types(r, "layer_types", &v, "attention", same);
    if (found == 0)
        found = read_layer_types(r, "layers_block_type", &v, "attention", same);
    return found ? MIN(found, 0)
                 : read_bad(r, "layer_types is missing, which stands for layers with states: allowed are "
                            "\"attention\" and \"full_attention\"");
}

static int read_factors(const struct reading *r)
{
    struct config *c = r->c;
    struct json type;
    const double factor = c->residual_factor;
    c->embed = EMBED_SCALED;
    c->embed_factor = c->embed_multiplier / factor;
    c->query_scalar = 1 / (c->score_multiplier * c->score_multiplier);
    c->rms_eps = c->file_eps / (factor * factor);
    const int found = js_get(r->root, "model_type", &type, r->e);
    return found < 0 || (found && js_is(&type, "granitemoehybrid") && read_dense(r)) ? -1 : 0;
}

/* A file without attention.scale has that of other models. */
static int get_factors(struct getting *m)
{
    if (!gguf_find(m->g, KEY(m, "attention.scale")))
        m->c->score_multiplier = 1 / sqrt((double)m->c->head_dim);
    return 0;
}

const struct family family_granite = {
    .type = "granite", .types = LIST("granitemoehybrid"), .gguf = "granite",
    .names = LIST("GraniteForCausalLM", "GraniteMoeHybridForCausalLM"),
    .section = { [OF_FACTORS] = SECTION(factor_keys, read_factors, get_factors) },
    .missing = MISSING({ "bos_token_id", 1 }, { "eos_token_id", 2 }),
    .as_llama = true, .freqs = true, .attention_bias = true, .mlp_bias = true, .hidden_multiple = true,
};
