/* A small valid GGUF model for tests, with one value changed on request. Two layers, hidden 32, vocabulary
 * 300. form: 0: a tokenizer of bytes; 1: of sentences; 2: the same, and experts; 3: as 1, but Gemma 3, whose
 * keys begin with gemma3; 4: Gemma 4 with experts, whose second layer is global; 5: gpt-oss; 6: OLMo 3;
 * 7: EXAONE 4. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/gguf_model.h"
#include "src/model/gguf_write.h"

enum { RIG_VOCAB = 300, RIG_HIDDEN = 32, RIG_HEADS = 2, RIG_FFN = 64, RIG_LAYERS = 2, RIG_EXPERTS = 5 };

/* What to change: the value of a key, or the description of a tensor. kind: of the new value; DROP: no such
 * key; ADD: a tensor more; MERGES: the text is a merge more; BOOLS: as many booleans; NUMBERS: as many
 * numbers, dim[0] and dim[1] in turn. */
enum { RIG_DROP = 100, RIG_ADD, RIG_MERGES, RIG_BOOLS, RIG_NUMBERS };
struct rig_change { const char *key; int kind; double x; const char *s; size_t dim[2]; };

/* part: 0: a whole file; 1, 2: the parts of a split one, with the even and the odd tensors. */
struct rig { struct gguf_out o; const struct rig_change *c; int form, part, index; };
static const char *const rig_archs[] = { "llama", "llama", "llama", "gemma3", "gemma4", "gpt-oss", "olmo2",
                                         "exaone4" };
enum { RIG_FORMS = sizeof rig_archs / sizeof *rig_archs };

/* The key in this form of file. */
static const char *rig_key(const struct rig *r, const char *key)
{
    static char own[64];
    if (r->form < 3 || strncmp(key, "llama.", 6))
        return key;
    snprintf(own, sizeof own, "%s.%s", rig_archs[r->form], key + 6);
    return own;
}

static bool rig_changed(struct rig *r, const char *key)
{
    const struct rig_change *c = r->c;
    key = rig_key(r, key);
    if (!c || strcmp(c->key, key))
        return false;
    if (c->kind == GGUF_U32)
        gguf_put_uint(&r->o, key, (size_t)c->x);
    else if (c->kind == GGUF_F32)
        gguf_put_real(&r->o, key, c->x);
    else if (c->kind == GGUF_BOOL)
        gguf_put_bool(&r->o, key, c->x != 0);
    else if (c->kind == GGUF_STRING)
        gguf_put_text(&r->o, key, c->s, strlen(c->s));
    else if (c->kind == GGUF_ARRAY) {            /* of one number */
        gguf_put_array(&r->o, key, GGUF_I32, 1);
        gguf_add_u32(&r->o, (uint32_t)(int32_t)c->x);
    } else if (c->kind == RIG_BOOLS) {           /* the first is true */
        gguf_put_array(&r->o, key, GGUF_BOOL, (size_t)c->x);
        for (size_t i = 0; i < (size_t)c->x; i++)
            gguf_add_bool(&r->o, i == 0);
    } else if (c->kind == RIG_NUMBERS) {
        gguf_put_array(&r->o, key, GGUF_I32, (size_t)c->x);
        for (size_t i = 0; i < (size_t)c->x; i++)
            gguf_add_u32(&r->o, (uint32_t)c->dim[i % 2]);
    } else if (c->kind == RIG_MERGES) {
        gguf_put_array(&r->o, key, GGUF_STRING, 2);
        gguf_add_text(&r->o, c->s, strlen(c->s));
        gguf_add_text(&r->o, "a b", 3);
    }
    return true;
}

static void rig_uint(struct rig *r, const char *key, size_t x)
{
    if (!rig_changed(r, key))
        gguf_put_uint(&r->o, rig_key(r, key), x);
}

static void rig_real(struct rig *r, const char *key, double x)
{
    if (!rig_changed(r, key))
        gguf_put_real(&r->o, rig_key(r, key), x);
}

static void rig_text(struct rig *r, const char *key, const char *s)
{
    if (!rig_changed(r, key))
        gguf_put_text(&r->o, rig_key(r, key), s, strlen(s));
}

/* Tokens 0 <unk>, 1 <s>, 2 </s>, then bytes, then letters. s of a change "token" replaces token 3 or 260. */
static void rig_tokens(struct rig *r)
{
    char s[32];
    const struct rig_change *c = r->c;
    const bool bad_type = c && strcmp(c->key, "token_type") == 0,
               bad_score = c && strcmp(c->key, "score") == 0;
    if (rig_changed(r, "tokenizer.ggml.tokens"))
        return;
    gguf_put_array(&r->o, "tokenizer.ggml.tokens", GGUF_STRING, RIG_VOCAB);
    for (int i = 0; i < RIG_VOCAB; i++) {
        const char *const special[] = { "<unk>", "<s>", "</s>" };
        if (i < 3)
            snprintf(s, sizeof s, "%s", special[i]);
        else if (r->form && i < 259)
            snprintf(s, sizeof s, "<0x%02X>", i - 3);
        else if (i < 259)
            snprintf(s, sizeof s, "t%d", i);
        else
            snprintf(s, sizeof s, i < 285 ? "%c" : "%c%c", 'a' + (i - 259) % 26, 'a' + (i - 259) % 25);
        const bool changed = c && strcmp(c->key, "token") == 0 && i == (int)c->x;
        gguf_add_text(&r->o, changed ? c->s : s, strlen(changed ? c->s : s));
    }
    if (!rig_changed(r, "tokenizer.ggml.token_type")) {
        gguf_put_array(&r->o, "tokenizer.ggml.token_type", GGUF_I32, RIG_VOCAB);
        for (int i = 0; i < RIG_VOCAB; i++)
            gguf_add_u32(&r->o, bad_type && i == 5 ? (uint32_t)(int32_t)c->x : i == 0 ? 2 : i < 3 ? 3
                                : r->form && i < 259 ? 6 : 1);
    }
    if (r->form && !rig_changed(r, "tokenizer.ggml.scores")) {
        gguf_put_array(&r->o, "tokenizer.ggml.scores", GGUF_F32, RIG_VOCAB);
        for (int i = 0; i < RIG_VOCAB; i++)
            gguf_add_f32(&r->o, bad_score && c->x == 1 ? -1000 : bad_score && i == 260 ? NAN : (float)-i);
    }
    if (!r->form && !rig_changed(r, "tokenizer.ggml.merges")) {
        gguf_put_array(&r->o, "tokenizer.ggml.merges", GGUF_STRING, 1);
        gguf_add_text(&r->o, "a b", 3);
    }
}

static void rig_tensor_of(struct rig *r, const char *name, size_t cols, size_t rows, size_t experts)
{
    const struct rig_change *c = r->c;
    size_t dim[] = { cols, rows, experts };
    if (r->part && r->index++ % 2 != r->part - 1)
        return;
    if (c && strcmp(c->key, name) == 0) {
        if (c->kind == RIG_DROP)
            return;
        memcpy(dim, c->dim, 2 * sizeof *dim);
        dim[2] = c->x > 0 ? (size_t)c->x : dim[2];
    }
    gguf_put_tensor(&r->o, name, dim, dim[2] ? 3 : dim[1] ? 2 : 1, gguf_types);
}

static void rig_tensor(struct rig *r, const char *name, size_t cols, size_t rows)
{
    rig_tensor_of(r, name, cols, rows, 0);
}

/* Two heads of 16 and, in the second layer, one of 32. */
static void rig_gemma4(struct rig *r)
{
    if (!rig_changed(r, "llama.attention.head_count_kv")) {
        gguf_put_array(&r->o, "gemma4.attention.head_count_kv", GGUF_I32, RIG_LAYERS);
        gguf_add_u32(&r->o, 2);
        gguf_add_u32(&r->o, 1);
    }
    if (!rig_changed(r, "llama.attention.sliding_window_pattern")) {
        gguf_put_array(&r->o, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, RIG_LAYERS);
        gguf_add_bool(&r->o, true);
        gguf_add_bool(&r->o, false);
    }
    rig_uint(r, "llama.attention.key_length", 32);
    rig_uint(r, "llama.attention.value_length", 32);
    rig_uint(r, "llama.attention.key_length_swa", 16);
    rig_uint(r, "llama.attention.value_length_swa", 16);
    rig_uint(r, "llama.rope.dimension_count", 32);
    rig_uint(r, "llama.rope.dimension_count_swa", 16);
    rig_uint(r, "llama.attention.shared_kv_layers", 0);
    rig_uint(r, "llama.embedding_length_per_layer_input", 0);
    rig_real(r, "llama.final_logit_softcapping", 30);
}

static void rig_metadata(struct rig *r)
{
    const int form = r->form;
    const bool sentence = form;
    rig_text(r, "general.architecture", rig_archs[form]);
    rig_text(r, "general.type", "model");
    rig_uint(r, "general.alignment", 32);
    rig_uint(r, "llama.context_length", 128);
    rig_uint(r, "llama.embedding_length", RIG_HIDDEN);
    rig_uint(r, "llama.block_count", RIG_LAYERS);
    rig_uint(r, "llama.feed_forward_length", RIG_FFN);
    rig_uint(r, "llama.attention.head_count", RIG_HEADS);
    if (form != 4)
        rig_uint(r, "llama.attention.head_count_kv", RIG_HEADS);
    rig_real(r, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    rig_real(r, "llama.rope.freq_base", 10000);
    if (form == 2 || form == 4 || form == 5) {
        rig_uint(r, "llama.expert_count", RIG_EXPERTS);
        rig_uint(r, "llama.expert_used_count", 2);
    } else {
        rig_changed(r, "llama.expert_count");
        rig_changed(r, "llama.expert_used_count");
    }
    if (form > 2)
        rig_uint(r, "llama.attention.sliding_window", 16);
    if (form == 4 || form == 5)
        rig_uint(r, "llama.expert_feed_forward_length", RIG_FFN);
    if (form == 4)
        rig_gemma4(r);
    if (form > 4) {
        rig_text(r, "llama.rope.scaling.type", "yarn");
        rig_real(r, "llama.rope.scaling.factor", 4);
        rig_uint(r, "llama.rope.scaling.original_context_length", 64);
    }
    rig_text(r, "tokenizer.ggml.model", sentence ? "llama" : "gpt2");
    rig_text(r, "tokenizer.ggml.pre", sentence ? "default" : "llama-bpe");
    rig_uint(r, "tokenizer.ggml.bos_token_id", 1);
    rig_uint(r, "tokenizer.ggml.eos_token_id", 2);
    static const char *const more[] = { "llama.vocab_size",
                                        "llama.expert_weights_norm",
                                        "llama.expert_gating_func",
                                        "llama.expert_shared_count",
                                        "llama.rope.scaling.yarn_beta_fast",
                                        "llama.rope.scaling.yarn_beta_slow",
                                        "llama.rope.scaling.yarn_attn_factor",
                                        "llama.rope.freq_base_swa",
                                        "split.count",
                                        "split.no",
                                        "split.tensors.count",
                                        "tokenizer.ggml.add_bos_token",
                                        "tokenizer.chat_template",
                                        "llama.attention.causal",
                                        "llama.attn_logit_softcapping",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.unknown_token_id",
                                        "longhand.eos_token_ids" };
    static const char *const others[] = { "llama.attention.key_length",  "llama.rope.dimension_count",
                                          "llama.attention.sliding_window_pattern" },
                      *const scalings[] = { "llama.rope.scaling.type", "llama.rope.scaling.factor" };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (!r->part || strncmp(more[i], "split.", 6))
            rig_changed(r, more[i]);
    for (size_t i = 0; form != 4 && i < sizeof others / sizeof *others; i++)
        rig_changed(r, others[i]);
    for (size_t i = 0; form < 5 && i < sizeof scalings / sizeof *scalings; i++)
        rig_changed(r, scalings[i]);
    rig_tokens(r);
}

/* Makes a file; the caller frees it. The data are zeros. */
static char *rig_make_part(const struct rig_change *c, int form, int part, size_t *n)
{
    struct rig r = { .c = c, .form = form, .part = part };
    struct err e;
    char *header, *file, name[64];
    size_t n_header;
    if (gguf_out_open(&r.o, &e))
        abort();
    if (part < 2)
        rig_metadata(&r);
    if (part) {
        rig_uint(&r, "split.no", (size_t)part - 1);
        rig_uint(&r, "split.count", 2);
        rig_uint(&r, "split.tensors.count", c && c->kind == RIG_ADD ? 21 : 20);
    }
    rig_tensor(&r, "token_embd.weight", RIG_HIDDEN, RIG_VOCAB);
    rig_tensor(&r, "output_norm.weight", RIG_HIDDEN, 0);
    for (int l = 0; l < RIG_LAYERS; l++) {
        static const struct { const char *name, *forms; size_t cols, rows, experts;
        } in[] = {
            { "attn_norm.weight", "012345", RIG_HIDDEN, 0 },
            { "attn_q.weight", "01234567", RIG_HIDDEN, RIG_HIDDEN },
            { "attn_k.weight", "01234567", RIG_HIDDEN, RIG_HIDDEN },
            { "attn_v.weight", "01234567", RIG_HIDDEN, RIG_HIDDEN },
            { "attn_output.weight", "01234567", RIG_HIDDEN, RIG_HIDDEN },
            { "ffn_norm.weight", "01234", RIG_HIDDEN, 0 },
            { "ffn_gate.weight", "013467", RIG_HIDDEN, RIG_FFN },
            { "ffn_up.weight", "013467", RIG_HIDDEN, RIG_FFN },
            { "ffn_down.weight", "013467", RIG_FFN, RIG_HIDDEN },
            { "ffn_gate_inp.weight", "245", RIG_HIDDEN, RIG_EXPERTS },
            { "ffn_gate_exps.weight", "245", RIG_HIDDEN, RIG_FFN, RIG_EXPERTS },
            { "ffn_up_exps.weight", "245", RIG_HIDDEN, RIG_FFN, RIG_EXPERTS },
            { "ffn_down_exps.weight", "245", RIG_FFN, RIG_HIDDEN, RIG_EXPERTS },
            { "attn_q_norm.weight", "347", RIG_HIDDEN / RIG_HEADS, 0 },
            { "attn_k_norm.weight", "347", RIG_HIDDEN / RIG_HEADS, 0 },
            { "post_attention_norm.weight", "34567", RIG_HIDDEN, 0 },
            { "post_ffw_norm.weight", "3467", RIG_HIDDEN, 0 },
            { "attn_q_norm.weight", "6", RIG_HIDDEN, 0 },
            { "attn_k_norm.weight", "6", RIG_HIDDEN, 0 },
            { "post_ffw_norm_1.weight", "4", RIG_HIDDEN, 0 },
            { "pre_ffw_norm_2.weight", "4", RIG_HIDDEN, 0 },
            { "post_ffw_norm_2.weight", "4", RIG_HIDDEN, 0 },
            { "layer_output_scale.weight", "4", 1, 0 },
            { "ffn_gate_inp.scale", "4", RIG_HIDDEN, 0 },
            { "ffn_down_exps.scale", "4", RIG_EXPERTS, 0 },
            { "attn_q.bias", "5", RIG_HIDDEN, 0 },
            { "attn_k.bias", "5", RIG_HIDDEN, 0 },
            { "attn_v.bias", "5", RIG_HIDDEN, 0 },
            { "attn_output.bias", "5", RIG_HIDDEN, 0 },
            { "attn_sinks.weight", "5", RIG_HEADS, 0 },
            { "ffn_gate_inp.bias", "5", RIG_EXPERTS, 0 },
            { "ffn_gate_exps.bias", "5", RIG_FFN, RIG_EXPERTS },
            { "ffn_up_exps.bias", "5", RIG_FFN, RIG_EXPERTS },
            { "ffn_down_exps.bias", "5", RIG_HIDDEN, RIG_EXPERTS },
        };
        for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
            /* a global layer of Gemma 4 has twice the queries, and no values */
            static const char wide[] = "attn_output.weight attn_q_norm.weight attn_k_norm.weight";
            const char *of = in[i].name;
            const bool global = form == 4 && l == 1;
            if (!strchr(in[i].forms, '0' + form) || (global && strcmp(of, "attn_v.weight") == 0))
                continue;
            snprintf(name, sizeof name, "blk.%d.%s", l, of);
            rig_tensor_of(&r, name, in[i].cols << (global && strstr(wide, of)),
                          in[i].rows << (global && strcmp(of, "attn_q.weight") == 0), in[i].experts);
        }
    }
    if (c && c->kind == RIG_ADD)
        rig_tensor(&r, c->key, c->dim[0], c->dim[1]);
    if (gguf_out_header(&r.o, &header, &n_header, &e))
        abort();
    *n = n_header + r.o.data_bytes;
    file = calloc(1, *n);
    memcpy(file, header, n_header);
    free(header);
    gguf_out_close(&r.o);
    return file;
}

static char *rig_make(const struct rig_change *c, int form, size_t *n)
{
    return rig_make_part(c, form, 0, n);
}
