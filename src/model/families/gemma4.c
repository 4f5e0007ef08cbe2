/* Gemma 4 and its drafter: layers with a window and global ones have heads of two sizes and numbers, and
 * frequencies of their own. The last layers may read the cache of others, a table may hold an embedding for
 * each token and layer, and experts may stand beside the dense network. */
#include <math.h>
#include <stdio.h>

#include "src/model/families/family.h"
#include "src/model/tensors.h"

/* Whether model_type is one of these names. */
static bool has_type(const struct json *in, const char *const *types)
{
    struct json v;
    struct err ignored;
    return js_get(in, "model_type", &v, &ignored) == 1 && is_one_of(&v, types);
}

/* Writes a list of the numbers that layers have at an offset of their specs. */
static void put_each(const struct putting *p, const char *name, size_t at)
{
    gguf_put_array(p->o, KEY(p, name), GGUF_U32, p->c->n_layers);
    for (size_t l = 0; l < p->c->n_layers; l++)
        gguf_add_u32(p->o, *(const uint32_t *)((const char *)&p->c->layer[l] + at));
}

/* ---- sizes: the dense networks of the last layers may have twice the width of the others ---- */

/* Drafters, and models of 12B, have other defaults, which stay where later sections find no key. */
static int read_sizes(const struct reading *r)
{
    struct config *c = r->c;
    const bool unified = has_type(r->root, LIST("gemma4_unified", "gemma4_unified_text",
                                                "gemma4_unified_assistant"));
    if (has_type(r->outer, LIST("gemma4_assistant", "gemma4_unified_assistant")) &&
        get_size(r->outer, "backbone_hidden_size", 1536, NULL_REFUSED, 1 << 20, &c->backbone, r->e))
        return -1;
    c->window = unified ? 1024 : 512;
    c->per_layer = unified || c->backbone ? 0 : 256;
    return unified ? get_size(r->root, "max_position_embeddings", 262144, NULL_REFUSED, CONTEXT_MAX,
                              &c->max_position, r->e)
                   : 0;
}

static int get_sizes(struct getting *m)
{
    static const char name[] = "feed_forward_length";
    struct config *c = m->c;
    const size_t blocks = m->blocks;
    const char *key = KEY(m, name);
    const struct gguf_value *list = gguf_find(m->g, key);
    if (read_uint(m, "attention.shared_kv_layers", 0, 0, m->f->drafter ? blocks : blocks - 1,
                  &c->kv_shared) < 0)
        return -1;
    if (!list || !list->is_array)
        return need_uint(m, name, blocks, 1 << 24, &c->ffn);
    if (gguf_integers(m->g, key, blocks, 1, 1 << 24, &list, m->e))
        return -1;
    const int64_t first = gguf_int_at(list, 0);
    const size_t own = blocks - c->kv_shared;
    c->ffn = (size_t)first;
    c->ffn_doubled = c->kv_shared && (!own || gguf_int_at(list, own) != first);
    for (size_t l = 0; l < blocks; l++) {
        const int64_t n = gguf_int_at(list, l);
        if (n != (c->ffn_doubled && l >= own ? 2 * first : first))
            return get_bad(m, name, "%lld in layer %zu and %lld in layer 0: allowed is twice as much in the "
                           "last %zu layers, which attention.shared_kv_layers counts", (long long)n, l,
                           (long long)first, c->kv_shared);
    }
    return 0;
}

static int put_sizes(const struct putting *p)
{
    if (p->c->ffn_doubled)
        put_each(p, "feed_forward_length", offsetof(struct layer_spec, ffn));
    else
        put_uint(p, "feed_forward_length", p->c->ffn);
    return 0;
}

/* ---- experts ---- */

static const struct key expert_keys[] = {
    { "num_experts", "expert_count", SIZE(n_experts), 1, EXPERTS_MAX, 0, NONZERO | UNREAD },
    { "top_k_experts", "expert_used_count", SIZE(experts_used), 1, HI_EXPERTS, 0, NONZERO | UNREAD },
    { "moe_intermediate_size", "expert_feed_forward_length", SIZE(expert_ffn), 1, EXPERT_FFN_MAX, 0,
      NONZERO | UNREAD },
    { "enable_moe_block", NULL, BOOL(experts_beside), 0, 1, 0, NONZERO }, { 0 }
};

static int need_size(const struct reading *r, const char *key, size_t hi, size_t *x)
{
    struct json v;
    const int found = get_value(r->root, key, &v, r->e);
    if (found == 0)
        return read_bad(r, "%s is missing, enable_moe_block needs it", key);
    return found < 0 ? -1 : js_size(&v, 1, hi, x, r->e);
}

static int read_beside(const struct reading *r)
{
    struct config *c = r->c;
    c->experts_normalised = c->experts_beside;
    return c->experts_beside && (need_size(r, "num_experts", EXPERTS_MAX, &c->n_experts) ||
                                 need_size(r, "top_k_experts", c->n_experts, &c->experts_used) ||
                                 need_size(r, "moe_intermediate_size", EXPERT_FFN_MAX, &c->expert_ffn) ||
                                 read_experts(r)) ? -1 : 0;
}

static int get_beside(struct getting *m)
{
    struct config *c = m->c;
    c->experts_beside = c->n_experts;
    return c->n_experts && (get_experts(m) || need_uint(m, "expert_feed_forward_length", 0, EXPERT_FFN_MAX,
                                                        &c->expert_ffn)) ? -1 : 0;
}

/* ---- heads, and what else no other family has ---- */

static const struct key own_keys[] = {
    { "num_kv_shared_layers", "attention.shared_kv_layers", SIZE(kv_shared), 0, CONFIG_LAYERS_MAX, 0 },
    { "hidden_size_per_layer_input", "embedding_length_per_layer_input", SIZE(per_layer), 0, 1 << 16, 0 },
    { "vocab_size_per_layer_input", NULL, SIZE(per_layer_vocab), 0, 1 << 24, 0 }, { 0 }
}, cap_keys[] = {
    { "final_logit_softcapping", NULL, REAL(softcap), 0, 1e6, 0, UNWRITTEN }, { 0 }
};
static const char kv_heads[] = "attention.head_count_kv";
/* One number: of the heads of layers with a window. Those of global ones have key_length dimensions. */
static const char *const local_dims[] = { "attention.key_length_swa", "attention.value_length_swa",
                                          "rope.dimension_count_swa" };

static int get_gemma_heads(struct getting *m)
{
    struct config *c = m->c;
    size_t same;
    const struct gguf_value *v = gguf_find(m->g, KEY(m, kv_heads)), *list = NULL;
    c->n_kv_heads = c->n_heads;
    if (read_uint(m, "attention.key_length", 0, 2, HEAD_DIM_MAX, &c->head_dim) < 0)
        return -1;
    if (v && v->is_array ? gguf_integers(m->g, KEY(m, kv_heads), c->n_layers, 1, c->n_heads, &list, m->e)
                         : read_uint(m, kv_heads, m->blocks, 1, c->n_heads, &c->n_kv_heads) < 0)
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].n_kv_heads = list ? (size_t)gguf_int_at(list, l) : c->n_kv_heads;
    if (get_heads(m) || need_uint(m, local_dims[0], 0, HEAD_DIM_MAX, &c->local_rotary) ||
        read_uint(m, local_dims[1], 0, c->local_rotary, c->local_rotary, &same) < 0 ||
        read_uint(m, local_dims[2], 0, c->local_rotary, c->local_rotary, &same) < 0 ||
        keys_get(m, own_keys) || read_real(m, "final_logit_softcapping", 0, 1e6, &c->softcap) < 0)
        return -1;
    return m->f->drafter ? need_uint(m, "embedding_length_out", 0, 1 << 20, &c->backbone) : 0;
}

static int put_gemma_heads(const struct putting *p)
{
    const struct config *c = p->c;
    const size_t dim = c->layer[c->n_layers - 1].head_dim;
    if (c->per_layer && c->per_layer_vocab != c->vocab)
        return put_lacks(p, "vocab_size_per_layer_input other than vocab_size");
    for (size_t i = 0; i < 3; i++)
        put_uint(p, local_dims[i], c->local_rotary);
    keys_put(p, own_keys);
    if (c->softcap != 0)
        put_real(p, "final_logit_softcapping", c->softcap);
    put_each(p, kv_heads, offsetof(struct layer_spec, n_kv_heads));
    put_uint(p, "attention.key_length", dim);
    put_uint(p, "attention.value_length", dim);
    return 0;
}

/* What lies between the window and the sizes. */
static void write_own(const struct writing *w)
{
    struct config c = *w->c;
    const struct gguf_value *widths = gguf_find(w->g, KEY(w, "feed_forward_length"));
    if (widths->is_array)
        jw_bool(w->w, "use_double_wide_mlp", c.ffn_doubled);
    jw_open(w->w, "per_layer_config", '{');
    for (size_t l = 0; l < c.n_layers; l++) {
        char layer[24];
        snprintf(layer, sizeof layer, "%zu", l);
        jw_open(w->w, layer, '{');
        jw_uint(w->w, "head_dim", c.layer[l].window && l + 1 < c.n_layers ? c.local_rotary : c.head_dim);
        jw_uint(w->w, "num_key_value_heads", c.layer[l].n_kv_heads);
        jw_close(w->w, '}');
    }
    jw_close(w->w, '}');
    jw_bool(w->w, "attention_k_eq_v", true);     /* unless there is a v_proj: use_tensors in gguf_model.c */
    if (w->f->drafter)
        jw_uint(w->w, "backbone_hidden_size", c.backbone);
    c.per_layer_vocab = c.vocab;
    keys_write(&(struct writing){ w->f, &c, w->g, w->w }, own_keys);
    write_float(w->w, "final_logit_softcapping", c.softcap);
}

/* ---- layers of config.json ---- */

/* A whole number from 0; null is 0. A missing key leaves it as it is. */
static int get_count(const struct reading *r, const char *key, size_t hi, size_t *x)
{
    struct json v;
    const int found = js_get(r->root, key, &v, r->e);
    if (found == 1)
        *x = 0;
    return found == 1 && !is_null(&v) ? js_size(&v, 0, hi, x, r->e) : MIN(found, 0);
}

/* Reads per_layer_config, an object of layers whose heads are not those of the others. */
static int read_each(struct config *c, const struct json *all, struct err *e)
{
    struct json key, v, name, x;
    if (need_object(all, e))
        return -1;
    for (struct js_walk w = js_walk(all); js_next(&w, &key, &v);) {
        char number[24] = "0";
        size_t l = 0;
        while (l < c->n_layers && !js_is(&key, number))
            snprintf(number, sizeof number, "%zu", ++l);
        if (l == c->n_layers)
            return js_bad(&key, e, "allowed are the numbers of layers, 0 to %zu", c->n_layers - 1);
        if (need_object(&v, e))
            return -1;
        for (struct js_walk in = js_walk(&v); js_next(&in, &name, &x);)
            if (!js_is(&name, "head_dim") && !js_is(&name, "num_key_value_heads"))
                return js_bad(&name, e, "allowed in per_layer_config are head_dim and num_key_value_heads");
        size_t dim, n;
        if (get_size(&v, "head_dim", c->head_dim, NULL_REFUSED, HEAD_DIM_MAX, &dim, e) ||
            get_size(&v, "num_key_value_heads", c->n_kv_heads, NULL_REFUSED, c->n_heads, &n, e))
            return -1;
        c->layer[l].head_dim = (uint16_t)dim, c->layer[l].n_kv_heads = (uint32_t)n;
    }
    return 0;
}

static int read_layer_heads(const struct reading *r)
{
    struct config *c = r->c;
    struct json all;
    size_t dim, n, first = 0;
    bool v_is_k;
    if (get_bool(r->root, "attention_k_eq_v", false, &v_is_k, r->e) ||
        get_size(r->root, "global_head_dim", 512, NULL_REFUSED, HEAD_DIM_MAX, &dim, r->e) ||
        get_size(r->root, "num_global_key_value_heads", c->n_kv_heads, NULL_MISSING, c->n_heads, &n, r->e))
        return -1;
    const int found = get_value(r->root, "per_layer_config", &all, r->e);
    for (size_t l = 0; l < c->n_layers; l++) {
        struct layer_spec *s = &c->layer[l];
        const bool global = !s->window && !found;
        s->v_is_k = v_is_k && !s->window;
        s->n_kv_heads = global && v_is_k ? n : c->n_kv_heads;
        s->head_dim = global ? dim : c->head_dim;
    }
    if (found < 0 || (found && read_each(c, &all, r->e)))
        return -1;
    while (first < c->n_layers - 1 && !c->layer[first].window)
        first++;
    c->heads_differ = true;
    c->local_rotary = c->layer[first].head_dim;
    c->rotary = c->layer[c->n_layers - 1].head_dim;
    c->n_kv_heads = c->head_dim = 0;
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer_spec *s = &c->layer[l];
        if (c->n_heads % s->n_kv_heads || s->head_dim % 16 ||
            s->head_dim != (s->window ? c->local_rotary : c->rotary))
            return read_bad(r, "layer %zu has %u key/value heads of %d dimensions: allowed are numbers that "
                            "divide num_attention_heads %zu, and in all %s layers the same multiple of 16", l,
                            s->n_kv_heads, s->head_dim, c->n_heads, s->window ? "windowed" : "global");
        c->n_kv_heads = MAX(c->n_kv_heads, s->n_kv_heads), c->head_dim = MAX(c->head_dim, s->head_dim);
    }
    return 0;
}

/* Reads which layers have no keys and values of their own: of a drafter none has. */
static int read_shared(const struct reading *r)
{
    struct config *c = r->c;
    if (c->backbone) {
        c->kv_shared = c->n_layers;
        return 0;
    }
    if (get_count(r, "num_kv_shared_layers", c->n_layers - 1, &c->kv_shared) ||
        get_bool(r->root, "use_double_wide_mlp", false, &c->ffn_doubled, r->e))
        return -1;
    c->ffn_doubled = c->ffn_doubled && c->kv_shared;
    config_layers(c);
    for (size_t l = c->n_layers - c->kv_shared; l < c->n_layers; l++) {
        struct layer_spec *s = &c->layer[l];
        s->v_is_k = false;
        if (s->kv_layer == NO_LAYER)
            return read_bad(r, "num_kv_shared_layers is %zu, but no layer before layer %zu has keys and "
                            "values for the %s layers after it", c->kv_shared, c->n_layers - c->kv_shared,
                            s->window ? "windowed" : "global");
        if (s->n_kv_heads != c->layer[s->kv_layer].n_kv_heads)
            return read_bad(r, "layer %zu has %u key/value heads, but reads those of layer %d, which has %u",
                            l, s->n_kv_heads, s->kv_layer, c->layer[s->kv_layer].n_kv_heads);
    }
    return 0;
}

/* Reads the embeddings of each layer, which models of 12B and drafters do not have. */
static int read_per_layer(const struct reading *r)
{
    struct config *c = r->c;
    c->per_layer_vocab = 262144;
    if (get_count(r, "hidden_size_per_layer_input", c->backbone ? 0 : 1 << 16, &c->per_layer) ||
        get_count(r, "vocab_size_per_layer_input", 1 << 24, &c->per_layer_vocab))
        return -1;
    return !c->per_layer || c->per_layer_vocab >= c->vocab
               ? 0 : read_bad(r, "vocab_size_per_layer_input is %zu, but vocab_size is %zu: allowed are as "
                              "many or more", c->per_layer_vocab, c->vocab);
}

static int read_layers(const struct reading *r)
{
    struct config *c = r->c;
    struct layer_spec *last = &c->layer[c->n_layers - 1];
    c->query_scalar = 1;
    last->window = 0;                    /* whatever layer_types says, as in transformers */
    last->local = false;
    return read_word(r->root, "use_bidirectional_attention", "vision", r->e) < 0 || read_gemma(r) ||
                   read_layer_heads(r) || read_shared(r) || read_per_layer(r) ? -1 : 0;
}

/* A file names the layers one by one. */
static int get_layers(struct getting *m)
{
    const struct gguf_value *list;
    const char *key = KEY(m, "attention.sliding_window_pattern");
    return gguf_need(m->g, key, gguf_array(m->g, key, GGUF_BOOL, &list, m->e), m->e) ? -1 : get_windows(m);
}

/* ---- RoPE: of the global layers the first pairs of dimensions turn ---- */

static int read_proportional(const struct reading *r, const struct json *dict)
{
    struct config *c = r->c;
    double part = 0.25, factor = 1;
    c->rotary = c->layer[c->n_layers - 1].head_dim;     /* the last layer is global */
    if (dict && (get_real(dict, "partial_rotary_factor", 1, 0, 1, &part, r->e) ||
                 get_real(dict, "factor", 1, 1e-6, 1e6, &factor, r->e)))
        return -1;
    const size_t turns = (size_t)(part * (double)c->rotary) / 2;
    for (size_t i = 0; i < c->rotary / 2; i++)
        c->rope.divisor[i] = i < turns ? (float)factor : INFINITY;
    c->rope.type = ROPE_DIVIDED;
    return 0;
}

/* 1e30 stands for a pair that does not turn. */
static int put_proportional(const struct putting *p)
{
    put_uint(p, "rope.dimension_count", p->c->rotary);
    put_real(p, "rope.freq_base", p->c->rope.theta);
    for (size_t i = 0; i < p->c->rotary / 2; i++)
        p->divisor[i] = MIN(p->c->rope.divisor[i], 1e30f);
    *p->has_divisor = true;
    return 0;
}

static const struct tensor_name names[] = {
    { "nextn.pre_projection.weight", "pre_projection.weight", OUTSIDE },
    { "nextn.post_projection.weight", "post_projection.weight", OUTSIDE },
    { "per_layer_token_embd.weight", PER_LAYER_TABLE, OUTSIDE },
    { "per_layer_model_proj.weight", "model.per_layer_model_projection.weight", OUTSIDE },
    { "per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", OUTSIDE },
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_norm.weight", "pre_feedforward_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
    { "layer_output_scale.weight", "layer_scalar" },     { "ffn_gate_inp.scale", "router.scale" },
    { "ffn_down_exps.scale", "router.per_expert_scale" },
    { "post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight" },
    { "pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight" },
    { "post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight" },
    { "inp_gate.weight", "per_layer_input_gate.weight" }, { "proj.weight", "per_layer_projection.weight" },
    { "post_norm.weight", "post_per_layer_input_norm.weight" }, { 0 }
};

static const struct section sizes = { size_keys, read_sizes, get_sizes, NULL, put_sizes },
    experts = { expert_keys, read_beside, get_beside, NULL, put_experts },
    heads = { head_keys, read_heads, get_gemma_heads, NULL, put_gemma_heads },
    cap = { cap_keys, NULL, NULL, NULL, NULL },
    window = { window_keys, read_window, NULL, write_own, NULL },
    layers = { NULL, read_layers, get_layers, write_windows, put_windows },
    rope = { NULL, read_rope, get_rope, write_rope, put_proportional };

#define GEMMA4                                                                                               \
    .text_type = "gemma4_text", .tensors = names,                                                            \
    .section = { [OF_SIZES] = &sizes, [OF_EXPERTS] = &experts, [OF_HEADS] = &heads, [OF_FACTORS] = &cap,     \
                 [OF_WINDOW] = &window, [OF_LAYERS] = &layers, [OF_ROPE] = &rope },                          \
    .missing = GEMMA_MISSING(262144, 30),                                                                    \
    .reads = LIST("use_bidirectional_attention", "per_layer_config", "final_logit_softcapping",              \
                  "feed_forward_length", "attention.head_count_kv", "attention.key_length"),                 \
    .ropes = (const struct rope_name[]){ { "proportional", ROPE_DIVIDED }, { 0 } },                          \
    .layer = { .qk_norm = QK_NORM, .v_norm = true, .norms = NORM_BOTH, .gelu = true, .scaled = true },       \
    .windows = { WINDOW_NEEDED, .pattern = 6, .files = FILES_LAYERS }, .experts = true, .local = true,       \
    .freqs = true, .rope = read_proportional

const struct family family_gemma4 = {
    .type = "gemma4", .gguf = "gemma4",
    .types = LIST("gemma4_unified", "gemma4_unified_text", "gemma4_assistant", "gemma4_unified_assistant"),
    .names = LIST("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4AssistantForCausalLM",
                  "Gemma4UnifiedForCausalLM", "Gemma4UnifiedAssistantForCausalLM",
                  "Gemma4UnifiedForConditionalGeneration"),
    GEMMA4,
};
/* The drafter of a GGUF file. config.json of one is read as Gemma 4. */
const struct family family_gemma4_assistant = { .type = "gemma4_assistant", .gguf = "gemma4-assistant",
                                                .drafter = true, GEMMA4 };
