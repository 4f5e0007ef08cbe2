/* tokenizer.json -> struct tokenizer. Every key is either understood or refused by name. A missing key has
 * Hugging Face's default. Each component of the file has a section; start at read_file. */
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_tables.h"

#include <stdlib.h>
#include <string.h>

/* Reads a short string. */
static int read_text(const struct json *v, struct text *x, struct err *e)
{
    char s[6 * TOK_STRING_MAX + 3];
    if (js_kind(v) != JS_STRING)
        return js_bad(v, e, "a string is needed");
    if ((size_t)(v->end - v->s) > sizeof s || (x->n = js_unescape(v, s)) > TOK_STRING_MAX)
        return js_bad(v, e, "at most %d bytes are allowed", TOK_STRING_MAX);
    memcpy(x->s, s, x->n);
    return 0;
}

static int read_char(const struct json *v, struct text *x, struct err *e)
{
    if (read_text(v, x, e))
        return -1;
    if (x->n == 0 || x->n != utf8_length((unsigned char)x->s[0]))
        return js_bad(v, e, "one character is needed");
    return 0;
}

/* Reads {"String": "x"}. Any other kind of pattern is refused. */
static int read_string_pattern(const struct json *v, struct text *x, struct err *e)
{
    struct field f[] = { { "String" }, { "Regex" }, { 0 } };
    if (tok_fields(v, f, e))
        return -1;
    if (!f[0].given || f[1].given)
        return js_bad(v, e, "only a pattern of the form {\"String\": ..} is implemented here");
    if (read_text(&f[0].v, x, e))
        return -1;
    return x->n ? 0 : js_bad(v, e, "an empty pattern matches nothing");
}

typedef int step_fn(struct tokenizer *t, const struct json *v, const struct json *type, struct err *e);

/* Calls `step` for a component, or for each component that a Sequence holds under `list`, at any depth.
 * The check of the file bounds the depth of the recursion. */
static int each_step(struct tokenizer *t, const struct json *v, const char *list, step_fn *step,
                     struct err *e)
{
    struct json type;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "an object or null is needed");
    int found = js_get(v, "type", &type, e);
    if (found <= 0 || js_kind(&type) != JS_STRING)
        return found < 0 ? -1 : js_bad(v, e, "the key \"type\" is missing");
    if (!js_is(&type, "Sequence"))
        return step(t, v, &type, e);
    struct field f[] = { { "type" }, { list, true }, { 0 } };
    if (tok_fields(v, f, e))
        return -1;
    if (js_kind(&f[1].v) != JS_ARRAY)
        return js_bad(&f[1].v, e, "a list is needed");
    struct json item;
    for (struct js_walk w = js_walk(&f[1].v); js_next(&w, NULL, &item);) {
        item.key[0] = v->key[0];
        item.key[1] = list;
        if (each_step(t, &item, list, step, e))
            return -1;
    }
    return 0;
}

/* Reads a Replace component, of normalizers and decoders. */
static int read_replace(const struct json *v, struct norm_step *s, struct err *e)
{
    struct field f[] = { { "type" }, { "pattern", true }, { "content", true }, { 0 } };
    return tok_fields(v, f, e) || read_string_pattern(&f[1].v, &s->from, e) || read_text(&f[2].v, &s->to, e)
               ? -1 : 0;
}

/* ---- normalizers ---- */

static int normalizer_step(struct tokenizer *t, const struct json *v, const struct json *type, struct err *e)
{
    if (t->n_norm == TOK_STEPS_MAX)
        return js_bad(v, e, "at most %d normalizers are allowed", TOK_STEPS_MAX);
    struct norm_step *s = &t->norm[t->n_norm++];
    if (js_is(type, "NFC")) {
        struct field f[] = { { "type" }, { 0 } };
        s->kind = NORM_NFC;
        return tok_fields(v, f, e);
    }
    if (js_is(type, "Prepend")) {
        struct field f[] = { { "type" }, { "prepend", true }, { 0 } };
        s->kind = NORM_PREPEND;
        return tok_fields(v, f, e) || read_text(&f[1].v, &s->to, e) ? -1 : 0;
    }
    if (js_is(type, "Replace")) {
        s->kind = NORM_REPLACE;
        return read_replace(v, s, e);
    }
    return js_bad(type, e, "normalizers implemented: NFC, Prepend, Replace, Sequence");
}

/* ---- pre-tokenizers ---- */

static int add_split(struct tokenizer *t, enum split s, const struct json *v, struct err *e)
{
    if (t->n_split == TOK_STEPS_MAX)
        return js_bad(v, e, "at most %d pre-tokenizers are allowed", TOK_STEPS_MAX);
    t->split[t->n_split++] = s;
    return 0;
}

/* Whether the last normalizer leaves no space. Gemma has a split at spaces after it, which cuts nothing. */
static bool has_no_spaces(const struct tokenizer *t)
{
    const struct norm_step *s = &t->norm[t->n_norm ? t->n_norm - 1 : 0];
    return t->n_norm && s->kind == NORM_REPLACE && s->from.n == 1 && s->from.s[0] == ' ' &&
           !memchr(s->to.s, ' ', s->to.n);
}

static int read_split(struct tokenizer *t, const struct json *v, struct err *e)
{
    struct field f[] = { { "type" }, { "pattern", true }, { "behavior", true }, { "invert", true }, { 0 } };
    struct field p[] = { { "Regex" }, { "String" }, { 0 } };
    bool invert;
    if (tok_fields(v, f, e) || tok_fields(&f[1].v, p, e) || js_bool(&f[3].v, &invert, e))
        return -1;
    if (p[1].given && !p[0].given && js_is(&p[1].v, " ") && !invert && has_no_spaces(t))
        return 0;
    /* The patterns match everything, so isolating the matches equals removing all that is not a match. */
    if (!js_is(&f[2].v, "Isolated") && !(js_is(&f[2].v, "Removed") && invert))
        return js_bad(&f[2].v, e, "implemented are \"Isolated\", and \"Removed\" with invert");
    if (!p[0].given || p[1].given)
        return js_bad(&f[1].v, e, "only a pattern of the form {\"Regex\": ..} is implemented here");
    for (size_t i = 0; i < SPLIT_PREFIX_SPACE; i++)
        if (js_is(&p[0].v, split_regex[i]))
            return add_split(t, (enum split)i, v, e);
    return js_bad(&p[0].v, e, "implemented are the patterns of GPT-2, GPT-4o, Llama 3, Qwen2, Qwen3.5 "
                             "and tekken");
}

static int read_metaspace(struct tokenizer *t, const struct json *v, bool decoder, struct err *e)
{
    struct field f[] = { { "type" }, { "replacement", true }, { "add_prefix_space" }, { "prepend_scheme" },
                         { "split" }, { "str_rep" }, { 0 } };
    bool prefix, split;
    enum prepend prepend = PREPEND_ALWAYS;
    struct text c;
    if (tok_fields(v, f, e) || read_char(&f[1].v, &c, e) || tok_flag(&f[2], &prefix, true, e) ||
        tok_flag(&f[4], &split, true, e))
        return -1;
    if (f[3].given) {
        prepend = js_is(&f[3].v, "never")   ? PREPEND_NEVER : js_is(&f[3].v, "first")
                                            ? PREPEND_FIRST
                                            : PREPEND_ALWAYS;
        if (prepend == PREPEND_ALWAYS && !js_is(&f[3].v, "always"))
            return js_bad(&f[3].v, e, "allowed are \"always\", \"first\" and \"never\"");
    }
    if (!prefix && prepend != PREPEND_NEVER)
        return js_bad(&f[2].v, e, "prepend_scheme must be \"never\" with it");
    if (decoder) {
        t->decoder = DECODE_METASPACE;
        t->meta_decode = c;
        t->meta_drop = prepend != PREPEND_NEVER;
    } else {
        t->metaspace = true;
        t->meta = c;
        t->meta_prepend = prepend;
        t->meta_split = split;
    }
    return 0;
}

static int read_byte_level(const struct json *v, bool *prefix, bool *regex, struct err *e)
{
    struct field f[] = { { "type" }, { "add_prefix_space", true }, { "trim_offsets", true }, { "use_regex" },
                         { 0 } };
    bool trim;
    *regex = true;
    return tok_fields(v, f, e) || js_bool(&f[1].v, prefix, e) || js_bool(&f[2].v, &trim, e) ||
           (f[3].given && js_bool(&f[3].v, regex, e)) ? -1 : 0;
}

static int pre_tokenizer_step(struct tokenizer *t, const struct json *v, const struct json *type,
                              struct err *e)
{
    if (t->byte_level || t->metaspace)
        return js_bad(type, e, "ByteLevel and Metaspace must be the last pre-tokenizer");
    if (js_is(type, "Split"))
        return read_split(t, v, e);
    if (js_is(type, "Digits")) {
        struct field f[] = { { "type" }, { "individual_digits", true }, { 0 } };
        bool each;
        if (tok_fields(v, f, e) || js_bool(&f[1].v, &each, e))
            return -1;
        return each ? add_split(t, SPLIT_DIGITS, v, e) : js_bad(&f[1].v, e, "only true is implemented");
    }
    if (js_is(type, "ByteLevel")) {
        bool prefix, regex;
        t->byte_level = true;
        if (read_byte_level(v, &prefix, &regex, e) || (prefix && add_split(t, SPLIT_PREFIX_SPACE, v, e)))
            return -1;
        return regex ? add_split(t, SPLIT_GPT2, v, e) : 0;
    }
    if (js_is(type, "Metaspace"))
        return t->n_split ? js_bad(type, e, "Metaspace must be the only pre-tokenizer")
                          : read_metaspace(t, v, false, e);
    return js_bad(type, e, "pre-tokenizers implemented: ByteLevel, Digits, Metaspace, Split, Sequence");
}

/* ---- post-processors ---- */

/* Reads the ids of the special token that a piece of a template names. after_text: the piece follows the
 * text. */
static int template_token(struct tokenizer *t, const struct json *piece, const struct json *tokens,
                          bool after_text, struct err *e)
{
    struct field f[] = { { "id", true }, { "type_id", true }, { 0 } };
    struct field tok[] = { { "id", true }, { "ids", true }, { "tokens", true }, { 0 } };
    struct json k, v, id, found = { 0 };
    int32_t *to = after_text ? t->suffix : t->prefix;
    size_t *n = after_text ? &t->n_suffix : &t->n_prefix, x;
    struct text name, other;
    if (tok_fields(piece, f, e) || js_size(&f[1].v, 0, UINT32_MAX, &x, e) || read_text(&f[0].v, &name, e))
        return -1;
    for (struct js_walk w = js_walk(tokens); js_next(&w, &k, &v);) {
        if (read_text(&k, &other, e))
            return -1;
        if (other.n == name.n && !memcmp(other.s, name.s, name.n)) {
            if (found.s)
                return js_bad(&k, e, "the key is given twice");
            found = v;
        }
    }
    if (!found.s)
        return js_bad(&f[0].v, e, "a token that special_tokens does not define");
    found.key[1] = "special_tokens";
    if (tok_fields(&found, tok, e))
        return -1;
    if (js_kind(&tok[1].v) != JS_ARRAY)
        return js_bad(&tok[1].v, e, "a list is needed");
    for (struct js_walk w = js_walk(&tok[1].v); js_next(&w, NULL, &id);) {
        id.key[1] = "special_tokens";
        if (js_size(&id, 0, t->n - 1, &x, e))
            return -1;
        if (*n == TOK_TEMPLATE_MAX)
            return js_bad(&id, e, "at most %d special tokens are allowed on each side", TOK_TEMPLATE_MAX);
        to[(*n)++] = (int32_t)x;
    }
    return 0;
}

static int read_template(struct tokenizer *t, const struct json *v, struct err *e)
{
    struct field f[] = { { "type" }, { "single", true }, { "pair", true }, { "special_tokens", true },
                         { 0 } };
    struct json piece;
    bool text = false;
    if (tok_fields(v, f, e))
        return -1;
    if (js_kind(&f[1].v) != JS_ARRAY || js_kind(&f[3].v) != JS_OBJECT)
        return js_bad(v, e, "\"single\" must be a list and \"special_tokens\" an object");
    for (struct js_walk w = js_walk(&f[1].v); js_next(&w, NULL, &piece);) {
        struct field p[] = { { "SpecialToken" }, { "Sequence" }, { 0 } };
        struct field s[] = { { "id", true }, { "type_id", true }, { 0 } };
        piece.key[1] = "single";
        if (tok_fields(&piece, p, e))
            return -1;
        if (p[0].given == p[1].given)
            return js_bad(&piece, e, "one of SpecialToken and Sequence is needed");
        if (p[0].given) {
            if (template_token(t, &p[0].v, &f[3].v, text, e))
                return -1;
            continue;
        }
        if (tok_fields(&p[1].v, s, e))
            return -1;
        if (!js_is(&s[0].v, "A") || text)
            return js_bad(&piece, e, "the template of a single text holds the sequence A once");
        text = true;
    }
    return text ? 0 : js_bad(&f[1].v, e, "the template of a single text holds the sequence A once");
}

static int post_processor_step(struct tokenizer *t, const struct json *v, const struct json *type,
                               struct err *e)
{
    bool prefix, regex;
    if (js_is(type, "ByteLevel"))              /* changes offsets only */
        return read_byte_level(v, &prefix, &regex, e);
    if (js_is(type, "TemplateProcessing")) {
        if (t->has_template)
            return js_bad(type, e, "only one TemplateProcessing is implemented");
        t->has_template = true;
        return read_template(t, v, e);
    }
    return js_bad(type, e, "post-processors implemented: ByteLevel, TemplateProcessing, Sequence");
}

/* ---- decoders ---- */

enum { STAGE_REPLACE, STAGE_BYTES, STAGE_FUSE, STAGE_STRIP, STAGE_LAST };

static int decoder_step(struct tokenizer *t, const struct json *v, const struct json *type, struct err *e)
{
    static const char *const names[] = { "Replace", "ByteFallback", "Fuse", "Strip" };
    bool prefix, regex;
    if (js_is(type, "ByteLevel") || js_is(type, "Metaspace")) {
        if (t->decoder_stage >= 0)
            return js_bad(type, e, "it must be the only decoder");
        t->decoder_stage = STAGE_LAST;
        if (js_is(type, "Metaspace"))
            return read_metaspace(t, v, true, e);
        t->decoder = DECODE_BYTES;
        return read_byte_level(v, &prefix, &regex, e);
    }
    int stage = 0;
    while (stage < STAGE_LAST && !js_is(type, names[stage]))
        stage++;
    if (stage == STAGE_LAST)
        return js_bad(type, e, "decoders implemented: ByteLevel, Metaspace, Replace, ByteFallback, Fuse, "
                               "Strip, Sequence");
    if (stage < t->decoder_stage || (stage == STAGE_STRIP && t->decoder_stage != STAGE_FUSE))
        return js_bad(type, e,
                      "implemented is the order Replace, ByteFallback, Fuse, Strip (which needs Fuse)");
    t->decoder = DECODE_SENTENCE;
    t->decoder_stage = stage;
    if (stage == STAGE_REPLACE) {
        if (t->n_replace == TOK_STEPS_MAX)
            return js_bad(v, e, "at most %d replacements are allowed", TOK_STEPS_MAX);
        return read_replace(v, &t->replace[t->n_replace++], e);
    }
    if (stage == STAGE_STRIP) {
        struct field f[] = { { "type" }, { "content", true }, { "start", true }, { "stop", true }, { 0 } };
        size_t stop;
        return tok_fields(v, f, e) || read_char(&f[1].v, &t->strip, e) ||
                       js_size(&f[2].v, 0, 1024, &t->strip_n, e) || js_size(&f[3].v, 0, 0, &stop, e) ? -1 : 0;
    }
    struct field f[] = { { "type" }, { 0 } };
    t->byte_tokens |= stage == STAGE_BYTES;
    return tok_fields(v, f, e);
}

/* ---- the whole file ---- */

/* truncation and padding are settings for batches of inputs of a fixed length. A text has neither. */
static int read_file(struct tokenizer *t, const struct json *root, struct err *e)
{
    struct field f[] = { { "version" }, { "truncation" }, { "padding" }, { "added_tokens" }, { "normalizer" },
                         { "pre_tokenizer" }, { "post_processor" }, { "decoder", true }, { "model", true },
                         { 0 } };
    size_t n_added;
    if (tok_fields(root, f, e))
        return -1;
    if (f[0].given && !js_is(&f[0].v, "1.0"))
        return js_bad(&f[0].v, e, "only version \"1.0\" is known");
    if (!f[3].given)
        f[3].v = *root;
    if (tok_count_added(&f[3], &n_added, e) || tok_read_model(t, &f[8].v, n_added, e) ||
        (!field_null(&f[4]) && each_step(t, &f[4].v, "normalizers", normalizer_step, e)) ||
        tok_read_added(t, &f[3], n_added, e) ||
        (!field_null(&f[5]) && each_step(t, &f[5].v, "pretokenizers", pre_tokenizer_step, e)) ||
        (!field_null(&f[6]) && each_step(t, &f[6].v, "processors", post_processor_step, e)) ||
        each_step(t, &f[7].v, "decoders", decoder_step, e))
        return -1;
    if (t->n_split && !t->byte_level)
        return js_bad(&f[5].v, e, "Split is implemented with ByteLevel after it");
    if (t->metaspace && t->meta_prepend == PREPEND_FIRST && t->n_norm && t->normalized.n)
        return js_bad(&f[5].v, e, "prepend_scheme \"first\" is not implemented with a normalizer and "
                                  "normalized added tokens");
    if (t->decoder_stage < 0)
        return js_bad(&f[7].v, e, "a decoder is needed");
    return tok_prepare(t, root, e) || tok_build_shown(t, root->file, e) ? -1 : 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->pool.s);
    free(t->content);
    free(t->slot);
    free(t->merge);
    free(t->merge_to);
    free(t->bigram);
    free(t->added);
    free(t->raw.sorted);
    free(t->normalized.sorted);
    free(t->shown_pool.s);
    free(t->shown);
    free(t->shown_flags);
    free(t);
}

int tokenizer_parse(struct tokenizer **out, const char *file, const char *json, size_t n, size_t vocab,
                    struct err *e)
{
    struct json root;
    struct tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return err_set(e, ERR_FAILED, "%s: no memory for the tokenizer", file);
    sha256_text(t->sha, json, n);
    t->vocab = MIN(vocab, TOK_IDS_MAX);
    t->decoder_stage = -1;
    if (n > TOK_FILE_MAX)
        err_set(e, ERR_INPUT, "%s: %zu bytes, at most %d are allowed", file, n, TOK_FILE_MAX);
    else if (!js_check_with_nul(&root, file, json, n, e) && !read_file(t, &root, e)) {
        *out = t;
        return 0;
    }
    tokenizer_close(t);
    return -1;
}
