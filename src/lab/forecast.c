/* The drafters of `plan`, and the costs of passes from the numbers of weights of a model's mean layer
 * (forecast.h). Start reading at forecast_pass(). */
#include "src/lab/forecast.h"

#include <math.h>

#include "src/decode/drafters.h"
#include "src/model/gumiho.h"
#include "src/model/longspec.h"
#include "src/model/mtp.h"
#include "src/model/spire.h"

enum { GUMIHO_SERIAL = 2, GUMIHO_PASSES = GUMIHO_SERIAL + GUMIHO_HEADS, LONGSPEC_PASSES = 5 };

static const struct forecast forecasts[N_DRAFTERS] = {
    [DRAFTER_SUFFIX] = { "suffix", PASSES_MAX, .where = "none: it depends on the text" },
    [DRAFTER_PARTIAL] = { "partial", 4, false, 3.891, "SPIRe, MagicDec at 512 tokens",
                          .tree = { 1u << DRAFTER_PARTIAL, 4, 1, { 1 } } },
    [DRAFTER_HEADS] = { "tokenswift", 4, true, 4.36,
                        "TokenSwift, LLaMA3.1-8B at 100,000 tokens: alpha 0.84",
                        .rows = 1, .widths = 4, .width = { 1, 3, 9, 27 },
                        .tree = { 1u << DRAFTER_HEADS | 1u << DRAFTER_PARTIAL, -1, 4, { 1, 3, 3, 3 } } },
    [DRAFTER_MODEL] = { "model", 4, false, 2.647, "SPIRe, vanilla draft model at 512 tokens" },
    [DRAFTER_MTP] = { "mtp", 3, false, 2.89, "llama.cpp, Qwen3.6-27B, creative prompts" },
    [DRAFTER_LONGSPEC] = { "longspec", LONGSPEC_PASSES, false, 3.25,
                           "LongSpec, Llama-3-8B-262k, GovReport",
                           .widths = LONGSPEC_PASSES, .width = { 4, 16, 16, 16, 16 },
                           .tree = { 1u << DRAFTER_LONGSPEC, -1, 5, { 4, 4, 1, 1, 1 } } },
    [DRAFTER_GUMIHO] = { "gumiho", GUMIHO_PASSES, true, 4.46, "Gumiho, Llama-3-8B",
                         .rows = 8, .widths = GUMIHO_PASSES, .width = { 9, 9, 9, 9, 9, 9, 9 },
                         .tree = { 1u << DRAFTER_GUMIHO, -1, 7, { 9, 1, 1, 1, 1, 1, 1 } } },
    [DRAFTER_SPIRE] = { "spire", SPIRE_DEPTH, false, 3.401, "SPIRe at 512 tokens",
                        .tree = { 1u << DRAFTER_SPIRE, -1, 4, { 1, 1, 1, 1 } } },
};

const struct forecast *forecast_of(enum drafter d) { return forecasts[d].passes ? &forecasts[d] : NULL; }

/* ---- passes ---- */

/* The part of the layers that have attention; the others have a state of fixed size. */
static double attention_part(const struct config *c)
{
    return (double)config_mixers(c, MIXER_ATTENTION) / (double)c->n_layers;
}

static double expert_part(const struct config *c)
{
    size_t n = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        n += c->layer[l].experts;
    return (double)n / (double)c->n_layers;
}

/* The width of the dense network of the mean layer. */
static double mean_ffn(const struct config *c)
{
    double n = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        n += (double)c->layer[l].ffn;
    return n / (double)c->n_layers;
}

/* Weights of the mean decoder layer without norms and experts: of its mixer, its feed-forward part and its
 * embeddings. */
static double layer_weights(const struct config *c)
{
    const double d = (double)c->hidden, q = config_mean_queries(c),
                 owned = (double)config_caches(c) / (double)MAX(config_mixers(c, MIXER_ATTENTION), (size_t)1),
                 kv = owned * config_mean_keys(c),
                 values = (double)c->delta.value_heads,
                 state = d * ((double)config_delta_channels(c) + 2 * values * (double)c->delta.value_dim +
                              2 * values),
                 attention = d * ((c->layer[0].gated ? 2 : 1) * q + 2 * kv) + q * d, part = expert_part(c);
    return attention_part(c) * attention + (1 - attention_part(c)) * state +
           3 * d * mean_ffn(c) + 3 * d * (double)c->per_layer +
           part * d * ((double)c->n_experts + 3 * (double)c->shared_ffn);
}

/* Weights of all experts of the mean layer. */
static double layer_experts(const struct config *c)
{
    return expert_part(c) * (double)c->n_experts * 3 * (double)c->hidden * (double)c->expert_ffn;
}

/* Values of keys and values of a position in the mean layer. */
static double layer_kv(const struct config *c) { return attention_part(c) * 2 * config_mean_keys(c); }

/* Operations of attention over one key in the mean layer: products with the key and with the value. */
static double key_flops(const struct config *c)
{
    return attention_part(c) * 4 * config_mean_queries(c);
}

/* A pass of one row over `layers` mean layers and the LM head, with weights of `byte` bytes. */
static struct pass_cost layers_pass(const struct config *c, double layers, double byte, double kv_byte,
                                    double keys)
{
    const double w = layers * layer_weights(c), head = (double)c->vocab * (double)c->hidden,
                 experts = layers * layer_experts(c),
                 share = c->n_experts ? (double)c->experts_used / (double)c->n_experts : 0;
    return (struct pass_cost){ .weights = byte * (w + head), .key = kv_byte * layers * layer_kv(c),
                               .keys = keys, .experts = byte * experts, .share = share,
                               .flops = 2 * (w + share * experts + head) + keys * layers * key_flops(c) };
}

struct pass_cost forecast_pass(const struct config *c, const struct model_bytes *b, double keys)
{
    const struct kv_heads all = c->heads[config_caches(c)];
    const double windowed = c->window ? (double)all.ring_dims / (double)all.dims : 0;
    keys -= windowed * MAX(keys - (double)c->window, 0);
    return layers_pass(c, (double)c->n_layers, b->weight, b->kv, keys);
}

/* `part` of the pass p, and of n weights more. */
static struct pass_cost part_of(double part, struct pass_cost p, double n, double byte)
{
    p.weights = part * (p.weights + byte * n), p.flops = part * (p.flops + 2 * n);
    p.key *= part, p.experts *= part;
    return p;
}

/* A draft layer with attention, after a matrix that joins the state and the token. */
static struct pass_cost mtp_pass(const struct config *c, double byte, double kv_byte, double keys)
{
    struct config layer = *c;
    layer.n_layers = 1;
    layer.layer[0].mixer = MIXER_ATTENTION;
    layer.layer[0].experts = c->n_experts > 0;
    config_layers(&layer);
    return part_of(1, layers_pass(&layer, 1, byte, kv_byte, MIN(keys, (double)MTP_KEYS)),
                   2 * (double)c->hidden * (double)c->hidden, byte);
}

struct pass_cost forecast_draft(enum drafter d, const struct config *c, const struct config *small,
                                const struct model_bytes *b, double keys)
{
    const double n = (double)c->n_layers, width = (double)c->hidden, head = (double)c->vocab * width,
                 byte = b->draft_weight, part = 1 / (double)forecasts[d].passes;
    struct pass_cost p = { 0 };
    switch (d) {
    case DRAFTER_MODEL:
        return layers_pass(small, (double)small->n_layers, byte, b->kv, keys);
    case DRAFTER_PARTIAL:                /* one sink and an eighth of the keys */
        return layers_pass(c, n, byte, b->kv, 1 + floor(keys / 8));
    case DRAFTER_HEADS:                  /* a pass over 4,096 keys, three heads, the LM head for each */
        return part_of(part, layers_pass(c, n, byte, b->kv, MIN(keys, 4096.0)), 3 * (width * width + head),
                       byte);
    case DRAFTER_GUMIHO:                 /* two passes of two layers, then five heads of two matrices */
        p = part_of(GUMIHO_SERIAL, layers_pass(c, GUMIHO_SERIAL, byte, b->kv, keys), 0, 0);
        return part_of(part, p, GUMIHO_HEADS * 3 * width * width + head, byte);
    case DRAFTER_LONGSPEC:               /* cross-attention projects q and o alone, and reads all keys */
        return part_of(1, layers_pass(c, 1, byte, b->kv, MIN(keys, LONGSPEC_WINDOW - 1.0) + keys),
                       2 * width * (double)(c->n_heads * c->head_dim), byte);
    case DRAFTER_SPIRE:                  /* memories are projected to keys and values once more */
        p = layers_pass(c, SPIRE_LAYERS, byte, b->kv, MIN(keys, (double)SPIRE_SLOTS));
        p.flops += 2 * SPIRE_LAYERS * width * layer_kv(c);
        return p;
    case DRAFTER_MTP:
        return mtp_pass(c, byte, b->kv, keys);
    default:
        return p;
    }
}
