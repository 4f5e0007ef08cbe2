/* What a model and its caches take: bytes of experts, of the weights that a row reads, and of cached rows. */
#include "src/model/model.h"

size_t model_expert_layers(const struct model *m)
{
    size_t n = 0;
    for (size_t l = 0; l < m->config.n_layers; l++)
        n += m->config.layer[l].experts;
    return n;
}

double model_bytes_an_expert(const struct model *m)
{
    const size_t n = model_expert_layers(m) * m->config.n_experts;
    return n ? (double)m->expert_bytes / (double)n : 0;
}

double model_row_bytes(const struct model *m)
{
    const size_t used = model_expert_layers(m) * m->config.experts_used;
    return (double)(m->weight_bytes - m->expert_bytes) + (double)used * model_bytes_an_expert(m);
}

struct kv_size model_cache(const struct model *m, size_t n_max, size_t node_max)
{
    const struct config *c = &m->config;
    const struct delta_config *d = &c->delta;
    struct kv_size z = { m->dev->kv_type, config_caches(c), c->n_kv_heads, m->head_dim,
                         n_max, node_max, 0, { 0 }, .heads = c->heads_differ ? c->heads : NULL };
    if (config_is_hybrid(c))
        z.state = (struct delta_shape){ config_mixers(c, MIXER_DELTA), d->key_heads, d->value_heads,
                                        d->key_dim, d->value_dim, d->conv, d->dealt };
    return z;
}

struct kv_size model_text_cache(const struct model *m, size_t n_max, size_t node_max)
{
    struct kv_size z = model_cache(m, n_max, node_max);
    if (!m->config.window || !m->dev->host_memory)
        return z;
    z.heads = m->config.heads;
    z.window = MAX(m->config.window, (size_t)2);     /* so that a block before the next row is held */
    z.back = RING_BACK;
    return z;
}

static double kv_bytes_of_type(const struct model *m, enum dtype type)
{
    struct kv_size block = model_cache(m, KV_BLOCK, 0);
    block.type = type;
    block.state.n_layers = 0;
    return (double)kv_bytes(&block) / KV_BLOCK;
}

double model_windowed_bytes(const struct model *m)
{
    const struct config *c = &m->config;
    const struct kv_heads all = c->heads[config_caches(c)];
    return c->window ? (double)kv_rows_of(m->dev->kv_type, all.ring_first, all.ring_dims) : 0;
}

double model_kv_bytes(const struct model *m) { return kv_bytes_of_type(m, m->dev->kv_type); }
double model_draft_kv_bytes(const struct model *m) { return kv_bytes_of_type(m, device_draft_kv(m->dev)); }

bool model_is_quantised(const struct tensors *ts)
{
    for (size_t i = 0; i < ts->n; i++)
        if (dtype_is_quantised(ts->t[i].dtype))
            return true;
    return false;
}
