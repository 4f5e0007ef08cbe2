/* config.json and generation_config.json -> struct config. The keys are those of families
 * (families/family.h). Start at config_parse. */
#include "src/model/config.h"
#include "src/model/config_keys.h"
#include "src/model/families/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of other architectures and of loaders that change the numbers of a model, unless its family reads
 * them. */
static const struct foreign foreign_keys[] = {
    { "quantization_config", EMPTY }, { "compression_config", EMPTY },
    { "partial_rotary_factor", ONE },
    { "rotary_pct", ONE }, { "rotary_emb_fraction", ONE }, { "rope_interleaved", NO },
    { "rope_interleave", NO }, { "rotary_emb_interleaved", NO },
    { "rope_local_base_freq", NULL_ONLY },
    { "local_rope_theta", NULL_ONLY }, { "no_rope_layers", EMPTY },
    { "no_rope_layer_interval", NULL_ONLY },
    { "alibi", NO }, { "use_alibi", NO }, { "attn_logit_softcapping", ZERO }, { "attn_logit_softcap", ZERO },
    { "final_logit_softcapping", ZERO }, { "logits_soft_cap", ZERO },
    { "query_pre_attn_scalar", NULL_ONLY },
    { "attention_multiplier", NULL_ONLY }, { "embedding_multiplier", ONE },
    { "residual_multiplier", ONE }, { "logits_scaling", ONE }, { "logit_scale", ONE },
    { "scale_emb", ONE }, { "scale_depth", NULL_ONLY },
    { "dim_model_base", NULL_ONLY }, { "n_routed_experts", ZERO }, { "n_shared_experts", ZERO },
    { "kv_lora_rank", NULL_ONLY }, { "q_lora_rank", NULL_ONLY }, { "clip_qkv", NULL_ONLY },
    { "use_qk_norm", NO }, { "qk_layernorm", NO },
    { "attn_temperature_tuning", NO | ZERO }, { "attention_chunk_size", NULL_ONLY },
    { "use_attention_sinks", NO }, { "is_encoder_decoder", NO }, { "add_cross_attention", NO },
    { "cross_attention_layers", EMPTY }, { "is_causal", YES },
    { "use_bidirectional_attention", NO }, { "per_layer_config", EMPTY },
    { "block_configs", EMPTY }, { "bias", NO }, { "use_bias", NO },
    { "attention_out_bias", NO }, { "shared_expert_intermediate_size", ZERO },
};

/* The same, of mixtures of experts: models of others must not have them. */
static const struct foreign expert_keys[] = {
    { "num_local_experts", ZERO }, { "num_experts", ZERO }, { "moe_intermediate_size", ZERO },
};

static bool has_type_name(const struct family *f, const struct json *v)
{
    bool has = js_is(v, f->type) || (f->text_type && js_is(v, f->text_type));
    for (const char *const *type = f->types; type && *type; type++)
        has |= js_is(v, *type);
    return has;
}

static bool has_name(const struct family *f, const struct json *v)
{
    bool has = false;
    for (const char *const *name = f->names; name && *name; name++)
        has |= js_is(v, *name);
    return has;
}

/* The family that model_type and architectures name. One of the two keys may be missing; they must agree. */
static const struct family *find_family(const struct json *root, struct err *e)
{
    const struct family *family = NULL, *f;
    struct json type, list, name;
    char allowed[1024];
    int has_type = get_value(root, "model_type", &type, e),
        has_list = get_value(root, "architectures", &list, e);
    if (has_type < 0 || has_list < 0)
        return NULL;
    for (size_t i = 0; has_type && !family && (f = family_at(i)); i++)
        if (has_type_name(f, &type))
            family = f;
    if (has_type && !family)
        return js_bad(&type, e, "allowed are %s", family_list(allowed, sizeof allowed, TYPE_NAMES)), NULL;
    if (has_list && js_kind(&list) != JS_ARRAY)
        return js_bad(&list, e, "allowed is a list of names"), NULL;
    if (has_list && !is_neutral(&list, EMPTY)) {
        for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &name);)
            for (size_t i = 0; (f = family_at(i)); i++)
                if (has_name(f, &name) && (!family || family == f))
                    return f;
        if (has_type)
            return js_bad(&list, e, "model_type %s needs %s", family->type, family->names[0]), NULL;
        return js_bad(&list, e, "allowed are %s", family_list(allowed, sizeof allowed, ARCHITECTURE_NAMES)),
               NULL;
    }
    if (!family)
        err_set(e, ERR_INPUT, "%s: model_type and architectures are missing, allowed are %s", root->file,
                family_list(allowed, sizeof allowed, TYPE_NAMES));
    return family;
}

/* The settings of the text model, which a wrapper has in text_config: 1, or 0: it has none. */
static int find_text_config(const struct json *root, struct json *text, struct err *e)
{
    const int found = get_value(root, "text_config", text, e);
    if (found > 0 && js_kind(text) != JS_OBJECT)
        return js_bad(text, e, "allowed is an object");
    return found;
}

/* The family of the text model of a wrapper of several families, which is called `wrapper`: the first of them
 * if the text model has no type. */
static const struct family *find_wrapped(const struct json *root, const char *wrapper, struct json *text,
                                         struct err *e)
{
    struct json type;
    const struct family *f;
    char allowed[128] = "";
    int found = find_text_config(root, text, e);
    if (found <= 0)
        return found < 0 ? NULL
                         : (err_set(e, ERR_INPUT, "%s: text_config is missing", root->file), NULL);
    found = get_value(text, "model_type", &type, e);
    for (size_t i = 0; found >= 0 && (f = family_at(i)); i++) {
        const size_t n = strlen(allowed);
        if (!f->wrapper_type || strcmp(f->wrapper_type, wrapper))
            continue;
        if (!found || js_is(&type, f->type))
            return f;
        snprintf(allowed + n, sizeof allowed - n, "%s%s", n ? " and " : "", f->type);
    }
    if (found > 0)
        js_bad(&type, e, "allowed are %s", allowed);
    return NULL;
}

/* The settings of the text model, and its family. NULL: an error. */
static const struct family *find_text(const struct json *root, struct json *text, struct err *e)
{
    struct json type;
    const struct family *f;
    int found = get_value(root, "model_type", &type, e);
    if (found < 0)
        return NULL;
    for (size_t i = 0; found && (f = family_at(i)); i++)
        if (f->wrapper_type && js_is(&type, f->wrapper_type))
            return find_wrapped(root, f->wrapper_type, text, e);
    f = find_family(root, e);
    *text = *root;
    if (!f || !f->text_type)
        return f;
    found = find_text_config(root, text, e);
    if (found <= 0) {
        *text = *root;
        return found < 0 ? NULL : f;
    }
    found = get_value(text, "model_type", &type, e);
    if (found < 0 || (found && !has_type_name(f, &type)))
        return found < 0 ? NULL : (js_bad(&type, e, "allowed is %s", f->text_type), NULL);
    return f;
}

/* Refuses keys that would change the numbers. */
static int refuse_foreign(const struct family *f, const struct json *root, struct err *e)
{
    struct json v;
    const size_t n = sizeof foreign_keys / sizeof *foreign_keys,
                 n_expert_keys = f->section[OF_EXPERTS] ? 0 : sizeof expert_keys / sizeof *expert_keys;
    for (size_t i = 0; i < n + n_expert_keys; i++) {
        const struct foreign *key = i < n ? &foreign_keys[i] : &expert_keys[i - n];
        const int found = js_get(root, key->key, &v, e);
        if (found < 0)
            return -1;
        if (found && !is_neutral(&v, key->neutral) && !family_reads(f, key->key))
            return js_bad(&v, e, "this is not implemented for %s models", f->type);
    }
    return 0;
}

static int read_flags(struct config *c, const struct family *f, const struct json *root, struct err *e)
{
    static const struct foreign biases[] = { { "attention_bias", NO }, { "mlp_bias", NO } };
    struct json v;
    bool qkv_bias = f->qkv_bias, attention_bias = false;
    int found = js_get(root, "hidden_act", &v, e);
    if (found < 0)
        return -1;
    if (found && !f->layer.gelu && !js_is(&v, "silu") && !js_is(&v, "swish"))
        return js_bad(&v, e, "allowed are \"silu\" and \"swish\"");
    if ((f->qkv_bias_key && get_bool(root, "qkv_bias", true, &qkv_bias, e)) ||
        get_bool(root, "tie_word_embeddings", family_missing(f, "tie_word_embeddings", 0) != 0, &c->tied,
                 e) ||
        (f->attention_bias && get_bool(root, "attention_bias", family_missing(f, "attention_bias", 0) != 0,
                                       &attention_bias, e)) ||
        (f->mlp_bias && get_bool(root, "mlp_bias", false, &c->mlp_bias, e)))
        return -1;
    /* Qwen2 has its biases whatever attention_bias says. Elsewhere a bias that transformers would ignore
     * is refused. */
    for (size_t i = 0; i < 2; i++) {
        if (i == 0 ? f->attention_bias || f->qkv_bias : f->mlp_bias)
            continue;
        found = js_get(root, biases[i].key, &v, e);
        if (found < 0 || (found && !is_neutral(&v, biases[i].neutral)))
            return found < 0 ? -1 : js_bad(&v, e, "%s models have none: allowed is false", f->type);
    }
    c->qkv_bias = qkv_bias || attention_bias;
    c->o_bias = attention_bias;
    return refuse_foreign(f, root, e);
}

static int read_sections(const struct reading *r)
{
    for (enum section_of i = 0; i < SECTIONS; i++) {
        const struct section *s = family_section(r->f, i);
        if (keys_read(r, s->keys) || (s->read && s->read(r)))
            return -1;
    }
    return 0;
}

/* Whether an id is a whole number that no token has: no text holds it, and transformers takes it. */
static bool is_no_token(struct config *c, const struct json *v, const char *key)
{
    int64_t id;
    if (js_kind(v) != JS_NUMBER || !js_i64(v, &id) || (id >= 0 && (uint64_t)id < c->vocab))
        return false;
    c->no_token_key = key;
    c->no_token = id;
    return true;
}

static int add_eos(struct config *c, const struct json *v, struct err *e)
{
    size_t id, i = 0;
    if (is_no_token(c, v, "eos_token_id"))
        return 0;
    if (js_size(v, 0, c->vocab - 1, &id, e))
        return -1;
    while (i < c->n_eos && c->eos[i] != (int32_t)id)
        i++;
    if (i < c->n_eos)
        return 0;
    if (c->n_eos == CONFIG_EOS_MAX)
        return js_bad(v, e, "at most %d different ids are allowed", CONFIG_EOS_MAX);
    c->eos[c->n_eos++] = (int32_t)id;
    return 0;
}

/* Reads bos_token_id and eos_token_id of either file. *has_eos: the file has an eos_token_id, which may be
 * null. */
static int read_ids(struct config *c, const struct json *root, bool *has_eos, struct err *e)
{
    struct json v, x;
    size_t id;
    int found = get_value(root, "bos_token_id", &v, e);
    if (found > 0 && is_no_token(c, &v, "bos_token_id"))
        found = 0;
    if (found < 0 || (found && js_size(&v, 0, c->vocab - 1, &id, e)))
        return -1;
    if (found && c->bos < 0)
        c->bos = (int32_t)id;
    found = js_get(root, "eos_token_id", &v, e);
    *has_eos = found == 1;
    if (found <= 0 || is_null(&v))
        return found < 0 ? -1 : 0;
    if (js_kind(&v) != JS_ARRAY)
        return add_eos(c, &v, e);
    size_t n = 0;
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x); n++)
        if (n == CONFIG_EOS_MAX || add_eos(c, &x, e))
            return n == CONFIG_EOS_MAX ? js_bad(&v, e, "allowed are 1 to %d ids", CONFIG_EOS_MAX) : -1;
    return n ? 0 : js_bad(&v, e, "allowed are 1 to %d ids", CONFIG_EOS_MAX);
}

/* Lists the heads of the cache, which layers are rings, and the sums, which have 32 bits. */
static int list_heads(struct config *c, const char *file, struct err *e)
{
    if (c->window || c->heads_differ) {
        const size_t most = c->n_layers * c->n_kv_heads * ((c->head_dim + 15) / 16 * 16);
        if (most > INT32_MAX)
            return err_set(e, ERR_INPUT, "%s: %zu layers x %zu key/value heads x head_dim %zu: allowed are "
                           "fewer than 2^31 dimensions in all layers of a model with windows", file,
                           c->n_layers, c->n_kv_heads, c->head_dim);
    }
    for (size_t l = 0; l < c->n_layers && (c->window || c->heads_differ); l++) {
        struct kv_heads *h = &c->heads[l];
        h->n = (uint32_t)c->layer[l].n_kv_heads, h->dim = (uint32_t)(c->layer[l].head_dim + 15) / 16 * 16;
        h->ring = c->layer[l].window > 0;
        h[1].first = h->first + h->n, h[1].dims = h->dims + h->n * h->dim;
        h[1].ring_first = h->ring_first + h->ring * h->n;
        h[1].ring_dims = h->ring_dims + h->ring * h->n * h->dim;
    }
    return 0;
}

int config_parse(struct config *c, const char *file, const char *json, size_t n, const char *gen_file,
                 const char *generation, size_t gen_n, struct err *e)
{
    struct json root, text;
    bool has_eos = false, gen_has_eos = false, tied = false;
    *c = (struct config){ .bos = -1 };
    if (js_check(&root, file, json, n, e))
        return -1;
    if (js_kind(&root) != JS_OBJECT)
        return js_bad(&root, e, "allowed is an object");
    const struct family *f = find_text(&root, &text, e);
    if (!f)
        return -1;
    c->family = f;
    snprintf(c->model_type, sizeof c->model_type, "%s", f->type);
    for (size_t l = 0; l < CONFIG_LAYERS_MAX; l++)
        c->layer[l] = f->layer;
    if (read_flags(c, f, &text, e) || read_sections(&(struct reading){ f, c, &text, &root, e }) ||
        read_ids(c, &text, &has_eos, e))
        return -1;
    if (text.s != root.s && (refuse_foreign(f, &root, e) || read_ids(c, &root, &gen_has_eos, e) ||
                             get_bool(&root, "tie_word_embeddings", false, &tied, e)))
        return -1;
    c->tied |= tied;
    has_eos |= gen_has_eos;
    bool has_bos = js_get(&root, "bos_token_id", &(struct json){ 0 }, e);
    if (generation) {
        struct json gen;
        c->has_generation_config = true;
        if (js_check(&gen, gen_file, generation, gen_n, e))
            return -1;
        if (js_kind(&gen) != JS_OBJECT)
            return js_bad(&gen, e, "allowed is an object");
        if (read_ids(c, &gen, &gen_has_eos, e) || config_read_generation(c, &gen, e))
            return -1;
        has_bos |= js_get(&gen, "bos_token_id", &(struct json){ 0 }, e);
    }
    /* The ids of a family apply if no file mentions them. */
    const double bos = family_missing(f, "bos_token_id", -1), eos = family_missing(f, "eos_token_id", -1);
    if (!has_bos && bos >= 0 && bos < (double)c->vocab)
        c->bos = (int32_t)bos;
    if (!has_eos && !generation && eos >= 0 && eos < (double)c->vocab)
        c->eos[c->n_eos++] = (int32_t)eos;
    config_layers(c);
    return list_heads(c, file, e);
}
