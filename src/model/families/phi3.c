/* Phi-3 and Phi-4: joined tensors, a part of a head may turn, and longrope: a divisor for each frequency, one
 * list for texts within the original length, one for longer ones. */
#include "src/model/families/family.h"

/* Reads a list of as many divisors as there are frequencies. */
static int read_list(const struct reading *r, const struct json *dict, const char *key, float *to)
{
    const size_t needed = r->c->rotary / 2;
    struct json v, x;
    double d;
    size_t n = 0;
    const int found = js_get(dict, key, &v, r->e);
    if (found <= 0)
        return found < 0 ? -1 : missing_key(dict, key, r->e);
    if (js_kind(&v) != JS_ARRAY)
        return js_bad(&v, r->e, "allowed is a list of numbers");
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x); n++) {
        if (js_real(&x, 1e-6, 1e6, &d, r->e))
            return -1;
        if (n < needed)
            to[n] = (float)d;
    }
    return n == needed
               ? 0 : read_bad(r, "%s.%s has %zu numbers, needed are %zu: half of the dimensions that turn",
                              dict->key[0], key, n, needed);
}

static int read_long(const struct reading *in, const struct json *dict)
{
    struct rope_config *r = &in->c->rope;
    if (r->type != ROPE_LONG)
        return 0;
    if (get_size(in->root, "original_max_position_embeddings", 4096, NULL_REFUSED, CONTEXT_MAX, &r->original,
                 in->e) ||
        read_list(in, dict, "long_factor", r->divisor) ||
        read_list(in, dict, "short_factor", r->short_divisor) ||
        get_real(dict, "factor", (double)in->c->max_position / (double)r->original, 1e-6, 1e6, &r->factor,
                 in->e) ||
        get_real(dict, "attention_factor", 0, 1e-6, 1e6, &r->attention_factor, in->e))
        return -1;
    r->shorter = in->c->max_position <= r->original;
    return r->original > 1 || r->factor <= 1 || r->attention_factor != 0
               ? 0 : read_bad(in, "original_max_position_embeddings is 1, longrope needs more than 1");
}

/* The two lists are tensors of the file. */
static int put_long(const struct putting *p)
{
    float f[HEAD_DIM_MAX / 2], factor;
    if (p->c->rope.type != ROPE_LONG)
        return put_rope(p);
    put_uint(p, "rope.dimension_count", p->c->rotary);
    put_real(p, "rope.freq_base", p->c->rope.theta);
    config_rope(p->c, f, &factor);
    put_uint(p, "rope.scaling.original_context_length", p->c->rope.original);
    put_real(p, "rope.scaling.attn_factor", (double)factor);
    return 0;
}

static const struct tensor_name names[] = {
    { "ffn_up.weight", "mlp.gate_up_proj.weight" }, { "attn_qkv.weight", "self_attn.qkv_proj.weight" },
    /* where the parts are */
    { "attn_qkv.weight", "self_attn.q_proj.weight" }, { "attn_qkv.weight", "self_attn.k_proj.weight" },
    { "attn_qkv.weight", "self_attn.v_proj.weight" }, { "ffn_up.weight", "mlp.gate_proj.weight" },
    { "ffn_up.weight", "mlp.up_proj.weight" }, { 0 }
};

const struct family family_phi3 = {
    .type = "phi3", .names = LIST("Phi3ForCausalLM"), .gguf = "phi3",
    .tensors = names, .reads = LIST("partial_rotary_factor", "rope.scaling.attn_factor"),
    .section = { [OF_ROPE] = SECTION(NULL, read_rope, get_rope, write_rope, put_long) },
    .missing = MISSING({ "vocab_size", 32064 }, { "hidden_size", 3072 }, { "intermediate_size", 8192 },
                       { "max_position_embeddings", 4096 }, { "rms_norm_eps", 1e-5 }, { "bos_token_id", 1 },
                       { "eos_token_id", 32000 }),
    .joined = true, .windows = { WINDOW_GIVEN, .files = FILES_WINDOW }, .partial = 1, .rope = read_long,
    .rope_keys = LIST("long_factor", "short_factor"),
    /* older files call longrope su or yarn */
    .ropes = (const struct rope_name[]){ { "default", ROPE_PLAIN }, { "longrope", ROPE_LONG },
                                         { "su", ROPE_LONG }, { "yarn", ROPE_LONG }, { 0 } },
};
