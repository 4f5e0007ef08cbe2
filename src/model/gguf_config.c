/* The configuration of a GGUF model. The metadata become the config.json that a Hugging Face model of the
 * same kind has, so one reader (config_parse) checks both. The keys are those of families
 * (families/family.h). Start at gguf_config, and at gguf_put_config, its inverse. */
#include "src/model/gguf_model.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/model/families/family.h"

enum { EOS_NAMES = 14 };
#define NO_ID SIZE_MAX

/* The family that reads a file. */
static const struct family *find_family(const struct gguf *g, struct err *e)
{
    static const char type[] = "general.type", architecture[] = "general.architecture";
    struct slice s = { "model", 5 };
    char allowed[512];
    const struct family *f;
    if (gguf_string(g, type, &s, e) < 0)
        return NULL;
    if (!slice_is(s, "model"))
        return gguf_bad(g, type, e, "found %.*s, allowed is model", SHOWN(s)), NULL;
    if (gguf_need(g, architecture, gguf_string(g, architecture, &s, e), e))
        return NULL;
    for (size_t i = 0; (f = family_at(i)); i++)
        if (slice_is(s, f->gguf))
            return f;
    return gguf_bad(g, architecture, e, "found %.*s, allowed are %s", SHOWN(s),
                    family_list(allowed, sizeof allowed, GGUF_NAMES)), NULL;
}

/* Keys of other models that change the numbers: refused unless they have the value that changes nothing, or
 * the family reads them. */
static int check_foreign(const struct getting *m)
{
    static const struct { const char *name; double neutral; } foreign[] = {
        { "expert_shared_count", 0 }, { "expert_gating_func", 1 }, { "expert_weights_scale", 1 },
        { "leading_dense_block_count", 0 },
        { "attn_logit_softcapping", 0 }, { "final_logit_softcapping", 0 }, { "logit_scale", 1 },
        { "embedding_scale", 1 }, { "residual_scale", 1 }, { "attention.scale", 0 },
        { "attention.clamp_kqv", 0 }, { "attention.max_alibi_bias", 0 },
        { "rope.scaling.yarn_ext_factor", 1 }, { "rope.scaling.yarn_attn_factor", 1 },
        { "rope.scaling.attn_factor", 1 },       /* of phi3: read_long in gguf_model.c */
        { "attention.temperature_scale", 0 }, { "rope.scaling.yarn_log_multiplier", 0 },
    };
    static const char *const flags[] = { "attention.causal", "expert_weights_norm" };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        double x = foreign[i].neutral;
        if (read_real(m, foreign[i].name, -1e30, 1e30, &x) < 0)
            return -1;
        if (x != foreign[i].neutral && !family_reads(m->f, foreign[i].name))
            return get_bad(m, foreign[i].name, "found %g, this is not implemented; allowed is %g", x,
                           foreign[i].neutral);
    }
    for (size_t i = 0; i < 2; i++) {
        bool yes = true;
        if (gguf_bool(m->g, KEY(m, flags[i]), &yes, m->e) < 0)
            return -1;
        if (!yes)
            return get_bad(m, flags[i], "found false, allowed is true");
    }
    return 0;
}

/* Reads the layers of the file, and of the model: those without the ones that only draft. */
static int get_layers(struct getting *m, size_t *layers)
{
    size_t drafting = 0;
    if (need_uint(m, "block_count", 0, CONFIG_LAYERS_MAX, &m->blocks) ||
        read_uint(m, "nextn_predict_layers", 0, 0, m->f->drafter ? m->blocks : m->f->draft_layer,
                  &drafting) < 0)
        return -1;
    *layers = m->blocks - (m->f->drafter ? 0 : drafting);
    return *layers ? 0 : get_bad(m, "block_count", "1, and that layer only drafts");
}

/* The order of sections in config.json. model_type stands before the window. */
static const enum section_of json_order[] = { OF_EXPERTS, OF_WINDOW, OF_SIZES, OF_HEADS, OF_VOCAB, OF_NORMS,
                                              OF_FACTORS, OF_STATES, OF_LAYERS, OF_ROPE };
_Static_assert(sizeof json_order / sizeof *json_order == SECTIONS, "every section has its place");

static int get_sections(struct getting *m)
{
    size_t layers = 0;
    if (check_foreign(m))
        return -1;
    for (size_t i = 0; i < SECTIONS; i++) {
        const struct section *s = family_section(m->f, json_order[i]);
        if ((json_order[i] == OF_SIZES && get_layers(m, &layers)) || keys_get(m, s->keys))
            return -1;
        m->c->n_layers = layers;
        if (s->get && s->get(m))
            return -1;
    }
    return 0;
}

/* The ids of tokens whose name says that a text ends there, into end[EOS_NAMES]; returns their number. */
static size_t named_ends(const struct gguf_value *tokens, size_t *end)
{
    static const char *const names[EOS_NAMES] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>",
        "<|end_of_text|>", "<EOT>", "<eos>", "<|return|>", "<|call|>", "<turn|>",
        "<|tool_response>",
    };
    struct slice s;
    size_t id[EOS_NAMES], at = 0, n = 0;
    memset(id, 0xff, sizeof id);
    for (size_t i = 0; gguf_next_string(tokens, &at, &s); i++)
        for (size_t k = 0; s.n >= 4 && *(const char *)s.p == '<' && k < EOS_NAMES; k++)
            if (slice_is(s, names[k]))
                id[k] = i;
    if (id[10] != NO_ID && id[11] != NO_ID)      /* with <|return|> and <|call|>, <|end|> ends a message */
        id[2] = NO_ID;
    if (id[13] != NO_ID)                 /* with <|tool_response>, </s> is an ordinary token */
        id[5] = NO_ID;
    for (size_t k = 0; k < EOS_NAMES; k++)
        if (id[k] != NO_ID)
            end[n++] = id[k];
    return n;
}

/* The ids at which a text ends, by their keys; then other ids. */
static const char *const id_keys[] = { "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep",
                                       "bos", "unknown" };
enum { END_KEYS = 6, ID_KEYS = sizeof id_keys / sizeof *id_keys };

static char *id_key(char key[KEY_BYTES], size_t i)
{
    snprintf(key, KEY_BYTES, "tokenizer.ggml.%s_token_id", id_keys[i]);
    return key;
}

/* Writes the ids at which a text ends: those with a key, and tokens whose name says so, as in llama.cpp. */
static int write_ends(const struct writing *m, struct err *e)
{
    static const char own_key[] = "longhand.eos_token_ids";
    const struct gguf_value *tokens = gguf_find(m->g, "tokenizer.ggml.tokens"), *own;
    const size_t vocab = tokens->n;
    struct slice model = { "", 0 };
    if (gguf_string(m->g, "tokenizer.ggml.model", &model, e) < 0)
        return -1;
    const bool sentence = slice_is(model, "llama") && vocab > 2;
    size_t bos = sentence ? 1 : NO_ID, n = 0, end[END_KEYS + EOS_NAMES + CONFIG_EOS_MAX];
    const int found = gguf_array(m->g, own_key, GGUF_I32, &own, e);
    if (found < 0 || gguf_token_id(m->g, "tokenizer.ggml.bos_token_id", vocab, &bos, e) < 0)
        return -1;
    for (size_t i = 0; found && i < own->n; i++) {
        end[n] = (size_t)gguf_int_at(own, i);
        if (end[n++] >= vocab || n > CONFIG_EOS_MAX)
            return gguf_bad(m->g, own_key, e, "allowed are up to %d ids below %zu", CONFIG_EOS_MAX, vocab);
    }
    for (size_t i = 0; !found && i < END_KEYS; i++) {
        char key[KEY_BYTES];
        end[n] = i == 0 && sentence ? 2 : NO_ID;
        if (gguf_token_id(m->g, id_key(key, i), vocab, &end[n], e) < 0)
            return -1;
        n += end[n] != NO_ID;
    }
    if (!found)
        n += named_ends(tokens, end + n);
    if (bos == NO_ID)
        jw_null(m->w, "bos_token_id");
    else
        jw_uint(m->w, "bos_token_id", bos);
    if (!n) {
        jw_null(m->w, "eos_token_id");
        return 0;
    }
    jw_open(m->w, "eos_token_id", '[');
    for (size_t i = 0; i < n; i++)
        jw_uint(m->w, NULL, end[i]);
    jw_close(m->w, ']');
    return 0;
}

/* ---- the small files: 1, 0 where there is none, or -1 ---- */

static int write_config(struct json_writer *json, const struct gguf *g, struct err *e)
{
    struct config c = { 0 };
    struct getting m = { find_family(g, e), &c, g, 0, e };
    if (!m.f || get_sections(&m))
        return -1;
    const struct writing w = { m.f, &c, g, json };
    jw_open(json, NULL, '{');
    for (size_t i = 0; i < SECTIONS; i++) {
        const struct section *s = family_section(m.f, json_order[i]);
        if (json_order[i] == OF_WINDOW)
            jw_text(json, "model_type", m.f->file_type ? m.f->file_type(&c) : m.f->type);
        keys_write(&w, s->keys);
        if (s->write)
            s->write(&w);
    }
    if (write_ends(&w, e))
        return -1;
    jw_close(json, '}');
    return 1;
}

static int write_tokenizer_config(struct json_writer *w, const struct gguf *g, struct err *e)
{
    static const char *const ids[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
                                          { "eos_token", "tokenizer.ggml.eos_token_id" } };
    const struct gguf_value *tokens;
    struct err ignored;
    struct slice s;
    size_t id;
    const bool has = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, &ignored) > 0;
    jw_open(w, NULL, '{');
    for (size_t i = 0; has && i < 2; i++) {
        const int found = gguf_token_id(g, ids[i][1], tokens->n, &id, e);
        if (found < 0)
            return -1;
        if (found && gguf_string_at(tokens, id, &s))
            jw_bytes(w, ids[i][0], s.p, s.n);
    }
    const int found = gguf_string(g, "tokenizer.chat_template", &s, e);
    if (found > 0)
        jw_bytes(w, "chat_template", s.p, s.n);
    jw_close(w, '}');
    return found < 0 ? -1 : 1;
}

static int copy_generation(struct json_writer *w, const struct gguf *g, struct err *e)
{
    struct slice s;
    const int found = gguf_string(g, "longhand.generation_config", &s, e);
    if (found > 0)
        fwrite(s.p, 1, s.n, w->f);
    return found;
}

int gguf_small_file(char **data, size_t *n, const struct gguf *g, const char *name, struct err *e)
{
    static const struct {
        const char *name;
        int (*write)(struct json_writer *, const struct gguf *, struct err *);
    } files[] = { { "config.json", write_config }, { "generation_config.json", copy_generation },
                  { "tokenizer.json", gguf_tokenizer }, { "tokenizer_config.json", write_tokenizer_config } };
    int rc = 0;
    FILE *f = memory_file(data, n);
    if (!f)
        return err_set(e, ERR_FAILED, "%s: out of memory for %s", g->file, name);
    struct json_writer w = { .f = f, .digits = 10 };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(name, files[i].name) == 0)
            rc = files[i].write(&w, g, e);
    if (stream_end(f) && rc > 0)
        rc = err_set(e, ERR_FAILED, "%s: out of memory for %s", g->file, name);
    if (rc > 0)
        return 0;
    free(*data);
    *data = NULL;
    *n = 0;
    return rc;
}

int gguf_config(struct config *c, const struct gguf *g, struct err *e)
{
    char *json = NULL, *generation = NULL, name[PATH_BYTES + 40];
    size_t n = 0, n_generation = 0;
    snprintf(name, sizeof name, "%s: longhand.generation_config", g->file);
    int rc = gguf_small_file(&json, &n, g, "config.json", e) ||
             gguf_small_file(&generation, &n_generation, g, "generation_config.json", e) ||
             config_parse(c, g->file, json, n, name, generation, n_generation, e) ? -1 : 0;
    if (rc == 0 && config_is_hybrid(c)) {    /* files hold -exp(A_log), and heads in another order */
        c->decay_ready = true;
        c->delta.dealt = true;
    }
    if (rc == 0 && c->embed == EMBED_SCALED_ROUNDED)
        c->embed = EMBED_SCALED;
    c->norm_plus_one = false;                /* they hold 1 + w */
    free(generation);
    free(json);
    return rc;
}

/* ---- convert ---- */

/* The ids that begin and end a text, which stand before the section of RoPE. */
static void put_ids(struct gguf_out *o, const struct config *c)
{
    if (c->bos >= 0)
        gguf_put_uint(o, "tokenizer.ggml.bos_token_id", (size_t)c->bos);
    if (!c->n_eos)
        return;
    gguf_put_uint(o, "tokenizer.ggml.eos_token_id", (size_t)c->eos[0]);
    gguf_put_array(o, "longhand.eos_token_ids", GGUF_U32, c->n_eos);
    for (size_t i = 0; i < c->n_eos; i++)
        gguf_add_u32(o, (uint32_t)c->eos[i]);
}

int gguf_put_config(struct gguf_out *o, const struct config *c, bool drafts, float *divisor,
                    bool *has_divisor, struct err *e)
{
    const struct putting p = { c->family, c, o, drafts, divisor, has_divisor, e };
    gguf_put_text(o, "general.architecture", p.f->gguf, strlen(p.f->gguf));
    gguf_put_text(o, "general.type", "model", 5);
    gguf_put_uint(o, "general.quantization_version", 2);
    for (enum section_of i = 0; i < SECTIONS; i++) {
        const struct section *s = family_section(p.f, i);
        if (i == OF_ROPE)
            put_ids(o, c);
        keys_put(&p, s->keys);
        if (s->put && s->put(&p))
            return -1;
    }
    return 0;
}

/* ---- notices ---- */

/* Appends to a text. */
static void __attribute__((format(printf, 3, 4))) add_words(char *out, size_t size, const char *format, ...)
{
    const size_t n = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + n, size - n, format, args);
    va_end(args);
}

void gguf_notice(char *out, size_t size, const struct gguf *g, const struct config *c)
{
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens"), *v;
    struct err ignored;
    struct slice text;
    char key[KEY_BYTES];
    bool has_key[CONFIG_EOS_MAX] = { false };
    *out = 0;
    for (size_t i = 0; i < ID_KEYS; i++) {
        size_t id;
        if ((v = gguf_find(g, id_key(key, i))) && gguf_token_id(g, key, c->vocab, &id, &ignored) == 0)
            add_words(out, size, "%s%s is %lld, which is no token and counts for nothing", *out ? "; " : "",
                      key, (long long)gguf_int_at(v, 0));
        else if (v && i < END_KEYS)
            for (size_t k = 0; k < c->n_eos; k++)
                has_key[k] |= c->eos[k] == (int32_t)id;
    }
    if (gguf_find(g, "longhand.eos_token_ids") || !gguf_find(g, id_key(key, 0)))
        return;
    for (size_t k = 0, n = 0; k < c->n_eos; k++)
        if (!has_key[k] && gguf_string_at(tokens, (size_t)c->eos[k], &text))
            add_words(out, size, "%s%.*s (%d)", n++ ? ", " : *out ? "; by their names end a text, too: "
                                                        : "by their names end a text, too: ",
                      (int)MIN(text.n, (size_t)39), (const char *)text.p, (int)c->eos[k]);
}
