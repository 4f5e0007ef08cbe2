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
    return js_is(v, f->type) || (f->text_type && js_is(v, f->text_type)) || is_one_of(v, f->types);
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
                if (is_one_of(&name, f->names) && (!family || family == f))
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

/* The family of the text model of type `type` in text_config, where f is that of the wrapper, or the first of
 * those that share its wrapper. */
static const struct family *find_in_wrapper(const struct family *f, const struct json *type, struct err *e)
{
    const struct family *g;
    char allowed[128] = "";
    for (size_t i = 0; (g = family_at(i)); i++) {
        const size_t n = strlen(allowed);
        if (g != f && !(f->wrapper_type && g->wrapper_type && strcmp(f->wrapper_type, g->wrapper_type) == 0))
            continue;
        if (has_type_name(g, type))
            return g;
        snprintf(allowed + n, sizeof allowed - n, "%s%s", n ? " and " : "",
                 g->text_type ? g->text_type : g->type);
    }
    return js_bad(type, e, "allowed %s %s", f->wrapper_type ? "are" : "is", allowed), NULL;
}

/* The settings of the text model, which a wrapper has in text_config, and its family. NULL: an error. */
static const struct family *find_text(const struct json *root, struct json *text, struct err *e)
{
    struct json type;
    const struct family *f, *wrapped = NULL;
    int found = get_value(root, "model_type", &type, e);
    if (found < 0)
        return NULL;
    for (size_t i = 0; found && !wrapped && (f = family_at(i)); i++)
        if (f->wrapper_type && js_is(&type, f->wrapper_type))
            wrapped = f;
    f = wrapped ? wrapped : find_family(root, e);
    *text = *root;
    if (!f || !(wrapped || f->text_type))
        return f;
    found = get_value(root, "text_config", text, e);
    if (found == 0)
        *text = *root;
    if (found == 0 && wrapped)
        err_set(e, ERR_INPUT, "%s: text_config is missing", root->file);
    if (found <= 0)
        return found < 0 || wrapped ? NULL : f;
    if (need_object(text, e))
        return NULL;
    found = get_value(text, "model_type", &type, e);
    return found > 0 ? find_in_wrapper(f, &type, e) : found < 0 ? NULL : f;
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

/* Reads whether a model has biases. Elsewhere a bias that transformers would ignore is refused. */
static int read_bias(const struct reading *r, const char *key, bool reads, bool *x)
{
    struct json v;
    if (reads)
        return get_bool(r->root, key, family_missing(r->f, key, 0) != 0, x, r->e);
    const int found = js_get(r->root, key, &v, r->e);
    return found > 0 && !is_neutral(&v, NO) ? js_bad(&v, r->e, "%s models have none: allowed is false",
                                                     r->f->type) : MIN(found, 0);
}

static int read_flags(const struct reading *r)
{
    const struct family *f = r->f;
    struct config *c = r->c;
    struct json v;
    const int found = js_get(r->root, "hidden_act", &v, r->e);
    if (found < 0)
        return -1;
    if (found && !f->layer.gelu && !js_is(&v, "silu") && !js_is(&v, "swish"))
        return js_bad(&v, r->e, "allowed are \"silu\" and \"swish\"");
    c->qkv_bias = f->qkv_bias;
    /* Qwen2 has its biases whatever attention_bias says. */
    if ((f->qkv_bias_key && get_bool(r->root, "qkv_bias", true, &c->qkv_bias, r->e)) ||
        get_bool(r->root, "tie_word_embeddings", family_missing(f, "tie_word_embeddings", 0) != 0, &c->tied,
                 r->e) ||
        (!f->qkv_bias && read_bias(r, "attention_bias", f->attention_bias, &c->o_bias)) ||
        read_bias(r, "mlp_bias", f->mlp_bias, &c->mlp_bias))
        return -1;
    c->qkv_bias |= c->o_bias;
    return refuse_foreign(f, r->root, r->e);
}

static int read_sections(const struct reading *r)
{
    int rc = read_flags(r);
    for (enum section_of i = 0; rc == 0 && i < SECTIONS; i++) {
        const struct section *s = family_section(r->f, i);
        rc = keys_read(r, s->keys) || (s->read && s->read(r)) ? -1 : 0;
    }
    return rc;
}

/* Reads an id: 1; 0: a whole number that no token has, so that no text holds it, which transformers takes. */
static int read_id(struct config *c, const struct json *v, const char *key, int32_t *id, struct err *e)
{
    int64_t none;
    size_t x;
    if (js_kind(v) == JS_NUMBER && js_i64(v, &none) && (none < 0 || (uint64_t)none >= c->vocab)) {
        c->no_token_key = key;
        c->no_token = none;
        return 0;
    }
    if (js_size(v, 0, c->vocab - 1, &x, e))
        return -1;
    *id = (int32_t)x;
    return 1;
}

static int add_eos(struct config *c, const struct json *v, struct err *e)
{
    int32_t id;
    size_t i = 0;
    const int found = read_id(c, v, "eos_token_id", &id, e);
    if (found <= 0)
        return found;
    while (i < c->n_eos && c->eos[i] != id)
        i++;
    if (i == CONFIG_EOS_MAX)
        return js_bad(v, e, "at most %d different ids are allowed", CONFIG_EOS_MAX);
    c->eos[i] = id;
    c->n_eos = MAX(c->n_eos, i + 1);
    return 0;
}

/* Reads bos_token_id and eos_token_id of either file. *has_eos: the file has an eos_token_id, which may be
 * null. */
static int read_ids(struct config *c, const struct json *root, bool *has_eos, struct err *e)
{
    struct json v, x;
    int32_t bos;
    int found = get_value(root, "bos_token_id", &v, e);
    if (found > 0)
        found = read_id(c, &v, "bos_token_id", &bos, e);
    if (found < 0)
        return -1;
    if (found && c->bos < 0)
        c->bos = bos;
    found = js_get(root, "eos_token_id", &v, e);
    *has_eos |= found == 1;
    if (found <= 0 || is_null(&v))
        return MIN(found, 0);
    if (js_kind(&v) != JS_ARRAY)
        return add_eos(c, &v, e);
    const size_t n = js_count(&v);
    if (!n || n > CONFIG_EOS_MAX)
        return js_bad(&v, e, "allowed are 1 to %d ids", CONFIG_EOS_MAX);
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x);)
        if (add_eos(c, &x, e))
            return -1;
    return 0;
}

/* Settings of generation_config.json that change the sampled token. */
static const struct foreign generation_keys[] = {
    { "epsilon_cutoff", ZERO }, { "top_h", NULL_ONLY }, { "num_beams", ONE },
    { "penalty_alpha", ZERO }, { "no_repeat_ngram_size", ZERO }, { "encoder_no_repeat_ngram_size", ZERO },
    { "encoder_repetition_penalty", ONE }, { "bad_words_ids", EMPTY }, { "force_words_ids", EMPTY },
    { "constraints", EMPTY }, { "sequence_bias", EMPTY }, { "suppress_tokens", EMPTY },
    { "begin_suppress_tokens", EMPTY }, { "forced_bos_token_id", NULL_ONLY },
    { "forced_eos_token_id", NULL_ONLY }, { "guidance_scale", ONE }, { "min_length", ZERO },
    { "min_new_tokens", ZERO }, { "exponential_decay_length_penalty", NULL_ONLY },
    { "watermarking_config", NULL_ONLY }, { "dola_layers", NULL_ONLY }, { "stop_strings", EMPTY },
};

/* Reads the members for the table of options, and finds a setting that is not implemented. */
static int read_generation(struct config *c, const struct json *root, struct err *e)
{
    struct json key, v;
    int found;
    for (struct js_walk w = js_walk(root); js_next(&w, &key, &v);) {
        struct generation_member *m = &c->generation[c->n_generation];
        bool control;
        size_t n = (size_t)(v.end - v.s);
        if (js_length(&key, &control) >= sizeof m->key || js_kind(&v) == JS_NULL || js_kind(&v) == JS_ARRAY ||
            js_kind(&v) == JS_OBJECT)
            continue;
        m->key[js_unescape(&key, m->key)] = 0;
        if (js_get(root, m->key, &v, e) < 0)
            return -1;
        if (++c->n_generation == CONFIG_GENERATION_MAX)
            return js_bad(root, e, "allowed are fewer than %d settings", CONFIG_GENERATION_MAX);
        snprintf(m->value, sizeof m->value, "%.*s", (int)MIN(n, sizeof m->value - 1), v.s);
    }
    for (size_t i = 0; i < sizeof generation_keys / sizeof *generation_keys && !*c->generation_unknown; i++) {
        found = js_get(root, generation_keys[i].key, &v, e);
        if (found < 0)
            return -1;
        int n = (int)MIN(v.end - v.s, 40);
        if (found && !is_neutral(&v, generation_keys[i].neutral))
            snprintf(c->generation_unknown, sizeof c->generation_unknown, "%s %.*s", generation_keys[i].key,
                     n, v.s);
    }
    return 0;
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
    bool has_eos = false, tied = false;
    *c = (struct config){ .bos = -1 };
    if (js_check(&root, file, json, n, e) || need_object(&root, e))
        return -1;
    const struct family *f = find_text(&root, &text, e);
    if (!f)
        return -1;
    c->family = f;
    snprintf(c->model_type, sizeof c->model_type, "%s", f->type);
    for (size_t l = 0; l < CONFIG_LAYERS_MAX; l++)
        c->layer[l] = f->layer;
    if (read_sections(&(struct reading){ f, c, &text, &root, e }) || read_ids(c, &text, &has_eos, e))
        return -1;
    if (text.s != root.s && (refuse_foreign(f, &root, e) || read_ids(c, &root, &has_eos, e) ||
                             get_bool(&root, "tie_word_embeddings", false, &tied, e)))
        return -1;
    c->tied |= tied;
    bool has_bos = js_get(&root, "bos_token_id", &(struct json){ 0 }, e);
    if (generation) {
        struct json gen;
        c->has_generation_config = true;
        if (js_check(&gen, gen_file, generation, gen_n, e) || need_object(&gen, e) ||
            read_ids(c, &gen, &has_eos, e) || read_generation(c, &gen, e))
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

const char *config_generation(const struct config *c, const char *key)
{
    for (size_t i = 0; i < c->n_generation; i++)
        if (strcmp(c->generation[i].key, key) == 0)
            return c->generation[i].value;
    return NULL;
}
