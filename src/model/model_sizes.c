/* What a model has and takes: its tensors outside of the layers, bytes of experts, of the weights that a row
 * reads, and of cached rows. */
#include "src/model/model.h"

#define AT(name) offsetof(struct model, name)

size_t model_parts(struct layer_part to[MODEL_PARTS_MAX], const struct config *c, const struct tensors *ts)
{
    static const char own_embed[] = "mtp.embed_tokens.weight", own_head[] = "mtp.lm_head.weight";
    const size_t d = c->hidden, states = c->backbone, each = c->per_layer, all = c->n_layers * each;
    const bool drafts = c->drafts, tied = c->tied, has_embed = drafts && ts && tensors_find(ts, own_embed),
               has_head = drafts && ts && tensors_find(ts, own_head);
    const struct layer_part p[MODEL_PARTS_MAX] = {
        { "model.embed_tokens.weight", !drafts && !tied, c->vocab, d, PART_EMBED, AT(embed) },
        { "pre_projection.weight", states, d, 2 * states, PART_MATRIX, AT(fuse) },
        { "post_projection.weight", states, states, d, PART_MATRIX, AT(project) },
        { PER_LAYER_TABLE, each, c->per_layer_vocab, all, PART_TABLE, 0 },
        { "model.per_layer_model_projection.weight", each, all, d, PART_MATRIX, AT(per_layer_in) },
        { "model.per_layer_projection_norm.weight", each, each, 0, PART_NORM, AT(norm_per_layer) },
        { own_embed, has_embed, c->vocab, d, PART_EMBED, AT(embed) },
        { "mtp.fc.weight", drafts, d, 2 * d, PART_MATRIX, AT(fuse) },
        { "mtp.pre_fc_norm_embedding.weight", drafts, d, 0, PART_NORM, AT(norm_token) },
        { "mtp.pre_fc_norm_hidden.weight", drafts, d, 0, PART_NORM, AT(norm_state) },
        { drafts ? "mtp.norm.weight" : "model.norm.weight", true, d, 0, PART_NORM, AT(norm_final) },
        { "model.embed_tokens.weight", !drafts && tied, c->vocab, d, PART_MATRIX, AT(lm_head) },
        { "lm_head.weight", !drafts && !tied, c->vocab, d, PART_MATRIX, AT(lm_head) },
        { own_head, has_head, c->vocab, d, PART_MATRIX, AT(lm_head) },
    };
    return used_parts(to, p, MODEL_PARTS_MAX);
}

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

const struct tensor *model_quantised(const struct tensors *ts)
{
    for (size_t i = 0; i < ts->n; i++)
        if (dtype_is_quantised(ts->t[i].dtype))
            return &ts->t[i];
    return NULL;
}
