/* Gemma 3: windows in most of the layers, which have frequencies of their own, norms after each part, another
 * activation and scale of queries. */
#include "src/model/families/family.h"

int read_gemma(const struct reading *r)
{
    static const char gelu[] = "gelu_pytorch_tanh";
    struct json v;
    const int found = js_get(r->root, "hidden_activation", &v, r->e);
    r->c->embed = EMBED_SCALED_ROUNDED;
    return found <= 0 || js_is(&v, gelu) ? MIN(found, 0) : js_bad(&v, r->e, "allowed is \"%s\"", gelu);
}

static const struct key scalar_keys[] = {
    { "query_pre_attn_scalar", NULL, REAL(query_scalar), 1e-6, 1e6, 256, UNWRITTEN }, { 0 }
};

static int read_scalar(const struct reading *r)
{
    r->c->norm_plus_one = true;
    return read_gemma(r);
}

/* The largest model has another scale of queries than the others, and no key says so. */
static double scalar_of(const struct config *c)
{
    return c->n_layers == 62 ? (double)c->hidden / (double)c->n_heads : (double)c->head_dim;
}

static void write_scalar(const struct writing *w)
{
    jw_number(w->w, "query_pre_attn_scalar", scalar_of(w->c));
}

static int put_scalar(const struct putting *p)
{
    return p->c->query_scalar == scalar_of(p->c) ? 0 : put_lacks(p, "this query_pre_attn_scalar");
}

const struct tensor_name norms_after[] = {
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_norm.weight", "pre_feedforward_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" }, { 0 }
};

const struct family family_gemma3 = {
    .type = "gemma3", .text_type = "gemma3_text", .gguf = "gemma3", .tensors = norms_after,
    .names = LIST("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    .reads = LIST("rope_local_base_freq"),
    .section = { [OF_FACTORS] = SECTION(scalar_keys, read_scalar, NULL, write_scalar, put_scalar) },
    .missing = GEMMA_MISSING(262208, 26),
    .layer = { .qk_norm = QK_NORM, .norms = NORM_BOTH, .gelu = true },
    .attention_bias = true, .hidden_multiple = true, .local = true,
    .windows = { WINDOW_NEEDED, 4096, 6, pattern_rule, .files = FILES_LAYERS },
};
