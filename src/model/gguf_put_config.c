/* The configuration of a model as GGUF metadata, the inverse of gguf_config.c. Start at gguf_put_config. */
#include <math.h>
#include <string.h>

#include "src/model/gguf_model.h"
#include "src/model/gguf_write.h"

enum { KEY_BYTES = 128, NEIGHBOURS = 64 };

struct putting { struct gguf_out *o; const struct config *c; const char *arch; bool drafts; struct err *e; };

static char *key_of(char key[KEY_BYTES], const struct putting *p, const char *name)
{
    snprintf(key, KEY_BYTES, "%s.%s", p->arch, name);
    return key;
}

static void put_uint(const struct putting *p, const char *name, size_t x)
{
    char key[KEY_BYTES];
    gguf_put_uint(p->o, key_of(key, p, name), x);
}

static void put_real(const struct putting *p, const char *name, double x)
{
    char key[KEY_BYTES];
    gguf_put_real(p->o, key_of(key, p, name), x);
}

static int lacks(const struct putting *p, const char *what)
{
    return err_set(p->e, ERR_INPUT, "config.json: %s cannot be written to a GGUF file", what);
}

/* The divisor r of a frequency f with f / r == wanted, in floats. */
static float divisor_of(float f, float wanted)
{
    const float r = f / wanted;
    float up = r, down = r;
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (f / up == wanted)
            return up;
        if (f / down == wanted)
            return down;
        up = nextafterf(up, INFINITY);
        down = nextafterf(down, 0);
    }
    return r;
}

static void find_divisors(const struct config *c, float *divisor)
{
    struct config plain = *c;
    float f[HEAD_DIM_MAX / 2], wanted[HEAD_DIM_MAX / 2], factor;
    plain.rope.type = ROPE_PLAIN;
    config_rope(&plain, f, &factor);
    config_rope(c, wanted, &factor);
    for (size_t i = 0; i < c->head_dim / 2; i++)
        divisor[i] = divisor_of(f[i], wanted[i]);
}

static int put_rope(const struct putting *p, float *divisor, bool *has_divisor)
{
    const struct rope_config *r = &p->c->rope;
    char key[KEY_BYTES];
    put_uint(p, "rope.dimension_count", p->c->rotary);
    put_real(p, "rope.freq_base", r->theta);
    *has_divisor = r->type == ROPE_LLAMA3;
    if (r->type == ROPE_PLAIN)
        return 0;
    if (p->c->layer_scale) {             /* 1e30 stands for a pair that does not turn */
        for (size_t i = 0; i < p->c->rotary / 2; i++)
            divisor[i] = MIN(r->divisor[i], 1e30f);
        *has_divisor = true;
        return 0;
    }
    if (r->type == ROPE_LLAMA3) {
        if (strcmp(p->arch, "llama"))
            return lacks(p, "rope_type llama3 of another model than llama");
        find_divisors(p->c, divisor);
        return 0;
    }
    if (r->type == ROPE_LONG) {          /* and the two lists, as tensors */
        float f[HEAD_DIM_MAX / 2], factor;
        config_rope(p->c, f, &factor);
        put_uint(p, "rope.scaling.original_context_length", r->original);
        put_real(p, "rope.scaling.attn_factor", (double)factor);
        return 0;
    }
    if (r->type != ROPE_LINEAR && r->type != ROPE_YARN)
        return lacks(p, "rope_type dynamic");
    const bool yarn = r->type == ROPE_YARN;
    const bool grows = r->growth != 0;
    if (yarn && ((r->attention_factor != 0 && !p->c->only_after) || r->mscale != grows ||
                 (!grows && r->mscale_all_dim != 0) ||
                 r->truncate == p->c->head_logits))
        return lacks(p, "yarn with attention_factor, mscale or truncate");
    gguf_put_text(p->o, key_of(key, p, "rope.scaling.type"), yarn ? "yarn" : "linear", yarn ? 4 : 6);
    put_real(p, "rope.scaling.factor", r->factor);
    if (yarn) {
        put_uint(p, "rope.scaling.original_context_length", r->original ? r->original : p->c->max_position);
        put_real(p, "rope.scaling.yarn_beta_fast", r->beta_fast);
        put_real(p, "rope.scaling.yarn_beta_slow", r->beta_slow);
        if (r->attention_factor != 0)
            put_real(p, "rope.scaling.yarn_attn_factor", r->attention_factor);
    }
    if (grows) {
        put_real(p, "rope.scaling.yarn_log_multiplier", r->mscale_all_dim);
        put_real(p, "attention.temperature_scale", r->growth);
    }
    return 0;
}

static void put_experts(const struct putting *p)
{
    const struct config *c = p->c;
    put_uint(p, "expert_count", c->n_experts);
    put_uint(p, "expert_used_count", c->experts_used);
    put_uint(p, "expert_feed_forward_length", c->expert_ffn);
    if (c->shared_ffn)
        put_uint(p, "expert_shared_feed_forward_length", c->shared_ffn);
}

/* The layers of a hybrid, and the shapes of Gated DeltaNet. Text does not tell the sections of the rotation
 * apart, but llama.cpp needs their key. */
static void put_states(const struct putting *p)
{
    const struct config *c = p->c;
    const struct delta_config *d = &c->delta;
    const size_t turns = c->rotary / 2, sections[] = { (turns + 2) / 3, (turns + 1) / 3, turns / 3, 0 };
    char key[KEY_BYTES];
    put_uint(p, "ssm.conv_kernel", d->conv);
    put_uint(p, "ssm.state_size", d->key_dim);
    put_uint(p, "ssm.group_count", d->key_heads);
    put_uint(p, "ssm.time_step_rank", d->value_heads);
    put_uint(p, "ssm.inner_size", d->value_heads * d->value_dim);
    gguf_put_array(p->o, key_of(key, p, "rope.dimension_sections"), GGUF_U32, 4);
    for (size_t i = 0; i < 4; i++)
        gguf_add_u32(p->o, (uint32_t)sections[i]);
    gguf_put_array(p->o, key_of(key, p, "attention.recurrent_layers"), GGUF_BOOL, c->n_layers + p->drafts);
    for (size_t l = 0; l < c->n_layers + p->drafts; l++)
        gguf_add_bool(p->o, l < c->n_layers && c->mixer[l] == MIXER_DELTA);
    if (p->drafts)
        put_uint(p, "nextn_predict_layers", 1);
}

/* The layers that have a window, and the theta of their frequencies. */
static void put_windows(const struct putting *p)
{
    const struct config *c = p->c;
    char key[KEY_BYTES];
    put_real(p, "rope.freq_base_swa", c->rope.local_theta);
    gguf_put_array(p->o, key_of(key, p, "attention.sliding_window_pattern"), GGUF_BOOL, c->n_layers);
    for (size_t l = 0; l < c->n_layers; l++)
        gguf_add_bool(p->o, c->windowed[l]);
}

/* The heads and the cap of Gemma 4. */
static void put_gemma4(const struct putting *p)
{
    const struct config *c = p->c;
    char key[KEY_BYTES];
    put_uint(p, "attention.key_length_swa", c->local_rotary);
    put_uint(p, "attention.value_length_swa", c->local_rotary);
    put_uint(p, "rope.dimension_count_swa", c->local_rotary);
    put_uint(p, "attention.shared_kv_layers", c->kv_shared);
    put_uint(p, "embedding_length_per_layer_input", c->per_layer);
    if (c->softcap != 0)
        put_real(p, "final_logit_softcapping", c->softcap);
    gguf_put_array(p->o, key_of(key, p, "attention.head_count_kv"), GGUF_U32, c->n_layers);
    for (size_t l = 0; l < c->n_layers; l++)
        gguf_add_u32(p->o, (uint32_t)c->heads[l].n);
}

/* The widths of the dense networks. */
static void put_widths(const struct putting *p)
{
    char key[KEY_BYTES];
    gguf_put_array(p->o, key_of(key, p, "feed_forward_length"), GGUF_U32, p->c->n_layers);
    for (size_t l = 0; l < p->c->n_layers; l++)
        gguf_add_u32(p->o, (uint32_t)config_ffn(p->c, l));
}

/* GGUF's name of the architecture. */
static const char *arch_of(const struct config *c)
{
    static const char *const others[][2] = { { "qwen2_moe", "qwen2moe" }, { "qwen3_moe", "qwen3moe" },
                                             { "qwen3_5", "qwen35" }, { "qwen3_5_moe", "qwen35moe" },
                                             { "ministral3", "mistral3" }, { "gemma3", "gemma3" },
                                             { "smollm3", "smollm3" }, { "phi3", "phi3" },
                                             { "gpt_oss", "gpt-oss" }, { "gemma4", "gemma4" },
                                             { "olmo3", "olmo2" }, { "granite", "granite" } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(c->model_type, others[i][0]) == 0)
            return others[i][1];
    return strncmp(c->model_type, "qwen", 4) ? "llama" : c->model_type;
}

int gguf_put_config(struct gguf_out *o, const struct config *c, bool drafts, float *divisor,
                    bool *has_divisor, struct err *e)
{
    const bool qwen = strncmp(c->model_type, "qwen", 4) == 0;
    struct putting p = { o, c, arch_of(c), drafts, e };
    const double scalar = c->n_layers == 62 ? (double)c->hidden / (double)c->n_heads : (double)c->head_dim;
    if (c->norms_after && !c->only_after && !c->layer_scale && c->query_scalar != scalar)     /* has no key */
        return lacks(&p, "this query_pre_attn_scalar");
    /* a file of these has no key for it */
    const bool normalised = strcmp(p.arch, "qwen2moe") != 0;
    if (c->swiglu_limit != 0 && (c->swiglu_limit != 7 || (float)c->swiglu_alpha != 1.702f))
        return lacks(&p, "swiglu_alpha and swiglu_limit of another model than gpt-oss");
    if (c->n_experts && c->experts_normalised != normalised)
        return lacks(&p, normalised ? "norm_topk_prob false" : "norm_topk_prob true of qwen2_moe");
    if (c->per_layer && c->per_layer_vocab != c->vocab)
        return lacks(&p, "vocab_size_per_layer_input other than vocab_size");
    const bool unturned = strcmp(p.arch, "smollm3") == 0;
    for (size_t l = 0; unturned && l < c->n_layers; l++)
        if (c->local[l] != ((l + 1) % 4 == 0))
            return lacks(&p, "no_rope_layers of other layers than each 4th");
    for (size_t i = 0; c->window && !c->norms_after && i < c->n_layers; i++)
        if (c->head_logits ? c->windowed[i] != (i % 2 == 0) : !c->windowed[i] || qwen || unturned)
            return lacks(&p, "a window in some of the layers");
    if (c->n_experts && memchr(c->kind, LAYER_DENSE, c->n_layers))
        return lacks(&p, "a layer without experts");
    gguf_put_text(o, "general.architecture", p.arch, strlen(p.arch));
    gguf_put_text(o, "general.type", "model", 5);
    gguf_put_uint(o, "general.quantization_version", 2);
    put_uint(&p, "context_length", c->max_position);
    put_uint(&p, "embedding_length", c->hidden);
    put_uint(&p, "block_count", c->n_layers + drafts);
    if (c->ffn_doubled)
        put_widths(&p);
    else if (!config_is_hybrid(c) || !c->n_experts)
        put_uint(&p, "feed_forward_length", c->ffn);
    if (c->n_experts)
        put_experts(&p);
    if (config_is_hybrid(c))
        put_states(&p);
    put_uint(&p, "attention.head_count", c->n_heads);
    const size_t dim = config_heads(c, c->n_layers - 1).dim;
    if (c->layer_scale)
        put_gemma4(&p);
    else
        put_uint(&p, "attention.head_count_kv", c->n_kv_heads);
    put_uint(&p, "attention.key_length", dim);
    put_uint(&p, "attention.value_length", dim);
    const double r = c->residual_factor != 0 ? c->residual_factor : 1;
    put_real(&p, "attention.layer_norm_rms_epsilon", c->rms_eps * r * r);
    if (c->residual_factor != 0) {
        put_real(&p, "embedding_scale", c->embed_factor * r);
        put_real(&p, "residual_scale", r);
        put_real(&p, "logit_scale", c->logit_divisor);
        put_real(&p, "attention.scale", 1 / sqrt(c->query_scalar));
    }
    put_uint(&p, "vocab_size", c->vocab);
    if (c->window)
        put_uint(&p, "attention.sliding_window", c->window);
    if (c->norms_after)
        put_windows(&p);
    if (c->bos >= 0)
        gguf_put_uint(o, "tokenizer.ggml.bos_token_id", (size_t)c->bos);
    if (c->n_eos) {
        gguf_put_uint(o, "tokenizer.ggml.eos_token_id", (size_t)c->eos[0]);
        gguf_put_array(o, "longhand.eos_token_ids", GGUF_U32, c->n_eos);
        for (size_t i = 0; i < c->n_eos; i++)
            gguf_add_u32(o, (uint32_t)c->eos[i]);
    }
    return put_rope(&p, divisor, has_divisor);
}
