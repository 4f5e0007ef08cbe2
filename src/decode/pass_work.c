/* The work of passes (pass_work.h), from the numbers of weights of a model's mean layer. Start reading at
 * work_of_layers(). */
#include "src/decode/pass_work.h"

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

double work_layer_kv(const struct config *c)
{
    return attention_part(c) * 2 * config_mean_keys(c);
}

/* Operations of attention over one key in the mean layer: products with the key and with the value. */
static double key_flops(const struct config *c)
{
    return attention_part(c) * 4 * config_mean_queries(c);
}

struct pass_work work_of_layers(const struct config *c, double layers, double byte, double kv_byte,
                                    double keys)
{
    const double w = layers * layer_weights(c), head = (double)c->vocab * (double)c->hidden,
                 experts = layers * layer_experts(c),
                 share = c->n_experts ? (double)c->experts_used / (double)c->n_experts : 0;
    return (struct pass_work){ .weight_bytes = byte * (w + head),
                               .kv_bytes = kv_byte * keys * layers * work_layer_kv(c),
                               .flops = 2 * (w + share * experts + head) + keys * layers * key_flops(c),
                               .expert_bytes = byte * experts, .expert_share = share };
}

struct pass_work throughput_model(const struct config *c, const struct model_bytes *b, double keys)
{
    const struct kv_heads all = c->heads[config_caches(c)];
    const double windowed = c->window ? (double)all.ring_dims / (double)all.dims : 0;
    keys -= windowed * MAX(keys - (double)c->window, 0);
    return work_of_layers(c, (double)c->n_layers, b->weight, b->kv, keys);
}

struct pass_work work_part(struct pass_work w, double part)
{
    w.weight_bytes *= part, w.kv_bytes *= part, w.flops *= part, w.expert_bytes *= part;
    return w;
}

void work_add_weights(struct pass_work *w, double n, double byte, double part)
{
    w->weight_bytes += part * byte * n;
    w->flops += part * 2 * n;
}
