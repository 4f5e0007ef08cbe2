/* Reads the tokenizer of a GGUF model (src/text/tokenizer_gguf.c writes one). The metadata become the
 * tokenizer.json that a Hugging Face model of the same kind has, so one reader (tokenizer_parse)
 * checks both. Start at gguf_tokenizer.
 *
 * Two kinds exist. "gpt2" is byte-level BPE with merges and a named split pattern. "llama" is SentencePiece
 * BPE: its merges follow from the scores of the tokens, as transformers derives them. */
#include "src/model/gguf_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/split_regex.h"
#include "src/base/unicode.h"
#include "src/model/families/family.h"

enum { TOKENS_MAX = 1 << 24 };
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };     /* of tokens */
#define SPACE_MARK "\xe2\x96\x81"                                    /* U+2581 */

/* Split patterns, and the names that files have for them. */
static const struct pre { const char *regex, *const *names; bool ignore_merges, bos, nfc, digits; } pres[] = {
    { SPLIT_REGEX_QWEN2, LIST("qwen2"), .nfc = true },
    { SPLIT_REGEX_QWEN35, LIST("qwen35"), .nfc = true },
    { SPLIT_REGEX_QWEN2,
      LIST("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "grok-2", "solar-open", "kormo") },
    { SPLIT_REGEX_LLAMA3, LIST("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral",
                               "midm-2.0", "lfm2"), .ignore_merges = true, .bos = true },
    { SPLIT_REGEX_LLAMA3, LIST("glm4"), .ignore_merges = true },
    { SPLIT_REGEX_LLAMA3, LIST("dbrx", "smaug-bpe", "chatglm-bpe") },
    { SPLIT_REGEX_TEKKEN, LIST("tekken"), .ignore_merges = true, .bos = true },
    { SPLIT_REGEX_GPT4O, LIST("gpt-4o", "llama4", "kanana2") },
    { SPLIT_REGEX_GPT2, LIST("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "mellum", "modern-bert",
                             "gigachat", "trillion", "a.x-4.0") },
    { SPLIT_REGEX_GPT2, LIST("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                             "minerva-7b"), .digits = true },
};

struct vocabulary {
    const struct gguf *g;
    struct slice *text; uint8_t *type;   /* [n] */
    const struct gguf_value *scores, *merges;            /* NULL: none */
    size_t n;                            /* tokens, without the padding at the end */
    size_t n_model;                      /* those below belong to the BPE model */
    /* tokens of Gemma 4: merges decide, not scores; there is always a BOS, since some files say false; and a
     * space before the text only where the file says so. As in llama.cpp */
    bool gemma4;
    bool scored;                         /* the merges follow from the scores */
    bool repeats;                        /* several tokens have one text, which is the last one's id */
    uint32_t *slot; size_t slot_mask;    /* hash of the texts of the model's tokens: ids, NO_SLOT if empty */
    struct json_writer *w;
    struct err *e;
};

/* ---- tokens ---- */

static bool is_added(const struct vocabulary *v, size_t i)
{
    return v->type[i] == TYPE_UNKNOWN || v->type[i] == TYPE_CONTROL || v->type[i] == TYPE_USER;
}

/* Converters fill ids without a token with "[PAD<id>]". */
static bool is_padding(const struct vocabulary *v, size_t i)
{
    char name[32];
    const int n = snprintf(name, sizeof name, "[PAD%zu]", i);
    return v->type[i] == TYPE_UNUSED && v->text[i].n == (size_t)n &&
           memcmp(v->text[i].p, name, v->text[i].n) == 0;
}

static int read_tokens(struct vocabulary *v)
{
    static const char key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type",
                      scores_key[] = "tokenizer.ggml.scores";
    const struct gguf_value *tokens, *types;
    size_t at = 0, i = 0;
    if (gguf_need(v->g, key, gguf_array(v->g, key, GGUF_STRING, &tokens, v->e), v->e) ||
        gguf_array(v->g, types_key, GGUF_I32, &types, v->e) < 0 ||
        gguf_array(v->g, scores_key, GGUF_F32, &v->scores, v->e) < 0 ||
        gguf_array(v->g, "tokenizer.ggml.merges", GGUF_STRING, &v->merges, v->e) < 0)
        return -1;
    v->n = tokens->n;
    if (v->n < 1 || v->n > TOKENS_MAX)
        return gguf_bad(v->g, key, v->e, "%zu tokens, allowed are 1 to %d", v->n, TOKENS_MAX);
    if (types && types->n != v->n)
        return gguf_bad(v->g, types_key, v->e, "%zu elements for %zu tokens", types->n, v->n);
    if (v->scores && v->scores->n != v->n)
        return gguf_bad(v->g, scores_key, v->e, "%zu elements for %zu tokens", v->scores->n, v->n);
    v->text = calloc(v->n, sizeof *v->text);
    v->type = calloc(v->n, 1);
    if (!v->text || !v->type)
        return err_set(v->e, ERR_FAILED, "%s: out of memory for %zu tokens", v->g->file, v->n);
    for (struct slice s; gguf_next_string(tokens, &at, &s); i++) {
        /* llama.cpp treats a token of an unknown type (0, 7) as a normal one */
        const int64_t type = types ? gguf_int_at(types, i) : TYPE_NORMAL;
        if (utf8_valid_prefix(s.p, s.n) < s.n)
            return gguf_bad(v->g, key, v->e, "token %zu is not UTF-8", i);
        /* a token with a NUL is never made: it becomes empty, as in llama.cpp */
        v->text[i] = (struct slice){ s.p, memchr(s.p, 0, s.n) ? 0 : s.n };
        v->type[i] = type < TYPE_NORMAL || type > TYPE_BYTE ? TYPE_NORMAL : (uint8_t)type;
    }
    while (v->n > 1 && is_padding(v, v->n - 1))
        v->n--;
    for (v->n_model = v->n; v->n_model > 1 && is_added(v, v->n_model - 1);)
        v->n_model--;
    return 0;
}

#define NO_TOKEN SIZE_MAX
#define NO_SLOT UINT32_MAX

static bool has_text(const struct vocabulary *v, size_t id, struct slice a, struct slice b)
{
    const struct slice s = v->text[id];
    return s.n == a.n + b.n && memcmp(s.p, a.p, a.n) == 0 && memcmp((const char *)s.p + a.n, b.p, b.n) == 0;
}

/* The slot of the text of a and b, or the free slot for it. */
static uint32_t *text_slot(const struct vocabulary *v, struct slice a, struct slice b)
{
    const uint64_t h = hash64(hash64(HASH64_INIT, a.p, a.n), b.p, b.n);
    size_t k = (h ^ h >> 32) & v->slot_mask;
    while (v->slot[k] != NO_SLOT && !has_text(v, v->slot[k], a, b))
        k = (k + 1) & v->slot_mask;
    return &v->slot[k];
}

/* Enters the tokens of the model by text. */
static int enter_texts(struct vocabulary *v)
{
    size_t size = 4;
    while (size < 2 * v->n_model)
        size *= 2;
    v->slot = malloc(size * sizeof *v->slot);
    if (!v->slot)
        return err_set(v->e, ERR_FAILED, "%s: out of memory for %zu tokens", v->g->file, v->n_model);
    memset(v->slot, 0xff, size * sizeof *v->slot);
    v->slot_mask = size - 1;
    for (size_t i = 0; i < v->n_model; i++) {
        uint32_t *slot = text_slot(v, v->text[i], (struct slice){ "", 0 });
        v->repeats |= *slot != NO_SLOT && v->text[i].n;
        *slot = (uint32_t)i;             /* as in llama.cpp */
    }
    return 0;
}

/* The id of a text, NO_TOKEN if it is no token of the model. */
static size_t find_text(const struct vocabulary *v, struct slice s)
{
    const uint32_t id = s.n ? *text_slot(v, s, (struct slice){ "", 0 }) : NO_SLOT;
    return id == NO_SLOT ? NO_TOKEN : id;
}

/* Reads the id of a token; `otherwise` where the file has no such key. An id that is no token's is ignored,
 * as in llama.cpp. NO_TOKEN: none. */
static int read_id(const struct vocabulary *v, const char *key, size_t otherwise, size_t *id)
{
    *id = otherwise < v->n ? otherwise : NO_TOKEN;
    return gguf_token_id(v->g, key, v->n, id, v->e) < 0 ? -1 : 0;
}

/* Writes a part of the file: JSON in which ' stands for ". */
static void __attribute__((format(printf, 3, 4)))
    write_json(const struct vocabulary *v, const char *key, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && n < (int)sizeof text);
    for (char *s = text; (s = strchr(s, '\''));)
        *s = '"';
    jw_raw(v->w, key, text, (size_t)n);
}

static void write_token(const struct vocabulary *v, const char *key, size_t id)
{
    jw_bytes(v->w, key, v->text[id].p, v->text[id].n);
}

static void write_added(const struct vocabulary *v)
{
    static const char *const off[] = { "single_word", "lstrip", "rstrip", "normalized" };
    jw_open(v->w, "added_tokens", '[');
    for (size_t i = 0; i < v->n; i++) {
        const bool repeated = v->repeats && i < v->n_model && find_text(v, v->text[i]) != i;
        if (!is_added(v, i) || repeated)
            continue;
        jw_open(v->w, NULL, '{');
        jw_uint(v->w, "id", i);
        write_token(v, "content", i);
        for (size_t k = 0; k < 4; k++)
            jw_bool(v->w, off[k], false);
        jw_bool(v->w, "special", v->type[i] != TYPE_USER);
        jw_close(v->w, '}');
    }
    jw_close(v->w, ']');
}

static void write_vocab(const struct vocabulary *v)
{
    if (v->repeats)
        jw_bool(v->w, "repeats", true);
    fprintf(v->w->f, ", \"vocab\": {");
    for (size_t i = 0; i < v->n_model; i++) {
        if (i)
            putc(',', v->w->f);
        jw_string(v->w->f, v->text[i].p, v->text[i].n);
        fprintf(v->w->f, ": %zu", i);
    }
    fprintf(v->w->f, "}, \"merges\": [");
}

static void write_merge(const struct vocabulary *v, bool first, struct slice a, struct slice b)
{
    fprintf(v->w->f, first ? "[" : ",\n[");
    jw_string(v->w->f, a.p, a.n);
    putc(',', v->w->f);
    jw_string(v->w->f, b.p, b.n);
    putc(']', v->w->f);
}

/* Writes the merges of the file: two parts with a space between; a part may begin with a space. A merge of
 * texts that are no tokens makes none, and stays out. */
static int write_merges(const struct vocabulary *v)
{
    size_t at = 0, i = 0;
    bool first = true;
    for (struct slice s; gguf_next_string(v->merges, &at, &s); i++) {
        const char *p = s.p, *space = s.n > 2 ? memchr(p + 1, ' ', s.n - 1) : NULL;
        if (!space || space + 1 == p + s.n || utf8_valid_prefix(p, s.n) < s.n)
            return gguf_bad(v->g, "tokenizer.ggml.merges", v->e,
                            "merge %zu is not two texts in UTF-8 with a space between", i);
        const struct slice a = { p, (size_t)(space - p) }, b = { space + 1, s.n - a.n - 1 };
        if (find_text(v, a) == NO_TOKEN || find_text(v, b) == NO_TOKEN || *text_slot(v, a, b) == NO_SLOT)
            continue;
        write_merge(v, first, a, b);
        first = false;
    }
    return 0;
}

/* The template that puts BOS before a text, and EOS after it. */
static int write_template(const struct vocabulary *v, bool add_bos, bool add_eos, size_t bos, size_t eos)
{
    if (gguf_bool(v->g, "tokenizer.ggml.add_bos_token", &add_bos, v->e) < 0 ||
        gguf_bool(v->g, "tokenizer.ggml.add_eos_token", &add_eos, v->e) < 0)
        return -1;
    const struct { const char *name; bool add; size_t id; } of[] = {
        { "BOS", (add_bos || v->gemma4) && bos != NO_TOKEN, bos }, { "EOS", add_eos && eos != NO_TOKEN, eos }
    };
    jw_open(v->w, "post_processor", '{');
    jw_text(v->w, "type", "TemplateProcessing");
    jw_open(v->w, "single", '[');
    if (of[0].add)
        write_json(v, NULL, "{'SpecialToken': {'id': 'BOS', 'type_id': 0}}");
    write_json(v, NULL, "{'Sequence': {'id': 'A', 'type_id': 0}}");
    if (of[1].add)
        write_json(v, NULL, "{'SpecialToken': {'id': 'EOS', 'type_id': 0}}");
    jw_close(v->w, ']');
    write_json(v, "pair", "[]");
    jw_open(v->w, "special_tokens", '{');
    for (size_t i = 0; i < 2; i++)
        if (of[i].add)
            write_json(v, of[i].name, "{'id': '%s', 'ids': [%zu], 'tokens': ['%s']}", of[i].name, of[i].id,
                       of[i].name);
    jw_close(v->w, '}');
    jw_close(v->w, '}');
    return 0;
}

/* ---- byte-level BPE ---- */

static const struct pre *find_pre(const struct vocabulary *v)
{
    static const char key[] = "tokenizer.ggml.pre";
    struct slice s;
    const int found = gguf_string(v->g, key, &s, v->e);
    if (found <= 0)
        return found ? NULL
                     : (gguf_bad(v->g, key, v->e, "the key is missing; convert the model again"), NULL);
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        for (const char *const *name = pres[i].names; *name; name++)
            if (slice_is(s, *name))
                return &pres[i];
    return gguf_bad(v->g, key, v->e,
                    "found %.*s, this pattern is not implemented; implemented are qwen2, llama-bpe, "
                    "tekken, gpt-4o, gpt-2, smollm and those equal to them", SHOWN(s)), NULL;
}

#define BYTE_LEVEL "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': false, " \
                   "'use_regex': false}"

/* Writes all but the vocabulary and the merges, which end the object "model". */
static int write_byte_steps(struct vocabulary *v)
{
    const struct pre *pre = find_pre(v);
    size_t bos, eos;
    if (!pre || read_id(v, "tokenizer.ggml.bos_token_id", NO_TOKEN, &bos) ||
        read_id(v, "tokenizer.ggml.eos_token_id", NO_TOKEN, &eos) ||
        gguf_need(v->g, "tokenizer.ggml.merges", v->merges != NULL, v->e))
        return -1;
    if (pre->nfc)
        write_json(v, "normalizer", "{'type': 'NFC'}");
    jw_open(v->w, "pre_tokenizer", '{');
    jw_text(v->w, "type", "Sequence");
    jw_open(v->w, "pretokenizers", '[');
    if (pre->digits)
        write_json(v, NULL, "{'type': 'Digits', 'individual_digits': true}");
    jw_open(v->w, NULL, '{');
    jw_text(v->w, "type", "Split");
    jw_open(v->w, "pattern", '{');
    jw_text(v->w, "Regex", pre->regex);
    jw_close(v->w, '}');
    jw_text(v->w, "behavior", "Isolated");
    jw_bool(v->w, "invert", false);
    jw_close(v->w, '}');
    write_json(v, NULL, BYTE_LEVEL);
    jw_close(v->w, ']');
    jw_close(v->w, '}');
    write_json(v, "decoder", BYTE_LEVEL);
    if (write_template(v, pre->bos, false, bos, eos))
        return -1;
    jw_open(v->w, "model", '{');
    jw_text(v->w, "type", "BPE");
    jw_bool(v->w, "ignore_merges", pre->ignore_merges);
    return 0;
}

/* ---- SentencePiece ---- */

struct score_merge { double score; uint32_t id, n_left, chars_left, chars_right; };

/* Highest score first; of equal ones the longest left part, then the longest right part, then the order of
 * ids. */
static int by_score(const void *a, const void *b)
{
    const struct score_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->chars_left != y->chars_left)
        return x->chars_left > y->chars_left ? -1 : 1;
    if (x->chars_right != y->chars_right)
        return x->chars_right > y->chars_right ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_piece(const struct vocabulary *v, size_t id)
{
    return id != NO_TOKEN && (v->type[id] == TYPE_NORMAL || v->type[id] == TYPE_USER);
}

static size_t count_chars(struct slice s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += (((const unsigned char *)s.p)[i] & 0xc0) != 0x80;
    return n;
}

/* Finds every pair of tokens that makes a token. */
static int find_merges(const struct vocabulary *v, struct score_merge **out, size_t *n)
{
    *out = NULL;
    *n = 0;
    for (size_t id = 0; id < v->n_model; id++) {
        const struct slice s = v->text[id];
        const char *p = s.p;
        const size_t chars = is_piece(v, id) ? count_chars(s) : 0;
        size_t cut = 0;
        for (size_t k = 1; k < chars; k++) {
            cut += utf8_length((unsigned char)p[cut]);
            const size_t a = find_text(v, (struct slice){ p, cut }),
                         b = is_piece(v, a) ? find_text(v, (struct slice){ p + cut, s.n - cut }) : NO_TOKEN;
            if (!is_piece(v, b))
                continue;
            if (!array_grow(out, *n, sizeof **out))
                return err_set(v->e, ERR_FAILED, "%s: out of memory for %zu merges", v->g->file, *n);
            (*out)[(*n)++] = (struct score_merge){ gguf_real_at(v->scores, id), (uint32_t)id, (uint32_t)cut,
                                                   (uint32_t)k, (uint32_t)(chars - k) };
        }
    }
    if (*n)
        qsort(*out, *n, sizeof **out, by_score);
    return 0;
}

/* Whether scores tell tokens apart. A converter without the SentencePiece file gives all the same. */
static bool has_scores(const struct vocabulary *v)
{
    size_t first = NO_TOKEN;
    for (size_t i = 0; v->scores && i < v->n_model; i++) {
        if (v->type[i] != TYPE_NORMAL)
            continue;
        if (first == NO_TOKEN)
            first = i;
        if (gguf_real_at(v->scores, i) != gguf_real_at(v->scores, first))
            return true;
    }
    return false;
}

static int write_score_merges(const struct vocabulary *v)
{
    struct score_merge *m;
    size_t n;
    for (size_t i = 0; i < v->n_model; i++)
        if (isnan(gguf_real_at(v->scores, i)))
            return gguf_bad(v->g, "tokenizer.ggml.scores", v->e, "token %zu has the score NaN", i);
    const int rc = find_merges(v, &m, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct slice s = v->text[m[i].id], a = { s.p, m[i].n_left };
        write_merge(v, i == 0, a, (struct slice){ (const char *)s.p + a.n, s.n - a.n });
    }
    free(m);
    return rc;
}

#define TO_MARK "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '" SPACE_MARK "'}"
#define FROM_MARK "{'type': 'Replace', 'pattern': {'String': '" SPACE_MARK "'}, 'content': ' '}"

/* As write_byte_steps. */
static int write_sentence_steps(struct vocabulary *v)
{
    bool prefix = !v->gemma4;
    size_t bos, eos, unk;
    if (gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &prefix, v->e) < 0 ||
        read_id(v, "tokenizer.ggml.bos_token_id", 1, &bos) ||
        read_id(v, "tokenizer.ggml.eos_token_id", 2, &eos) ||
        read_id(v, "tokenizer.ggml.unknown_token_id", 0, &unk))
        return -1;
    v->scored = !v->gemma4 && has_scores(v);
    if (!v->scored && !v->merges)
        return gguf_bad(v->g, "tokenizer.ggml.scores", v->e,
                        "all tokens have one score and the file has no merges; "
                        "convert the model again, with its tokenizer.model");
    write_json(v, "normalizer", "{'type': 'Sequence', 'normalizers': [%s" TO_MARK "]}",
               prefix ? "{'type': 'Prepend', 'prepend': '" SPACE_MARK "'}, " : "");
    write_json(v, "decoder", "{'type': 'Sequence', 'decoders': [" FROM_MARK ", {'type': 'ByteFallback'}, "
               "{'type': 'Fuse'}%s]}",
               prefix ? ", {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}" : "");
    if (write_template(v, true, false, bos, eos))
        return -1;
    jw_open(v->w, "model", '{');
    jw_text(v->w, "type", "BPE");
    if (unk != NO_TOKEN && unk < v->n_model)
        write_token(v, "unk_token", unk);
    jw_bool(v->w, "fuse_unk", true);
    jw_bool(v->w, "byte_fallback", true);
    return 0;
}

/* ---- the whole ---- */

static int write_tokenizer(struct vocabulary *v)
{
    static const char key[] = "tokenizer.ggml.model";
    struct slice kind;
    if (gguf_need(v->g, key, gguf_string(v->g, key, &kind, v->e), v->e))
        return -1;
    const bool bytes = slice_is(kind, "gpt2");
    v->gemma4 = slice_is(kind, "gemma4");
    if (!bytes && !v->gemma4 && !slice_is(kind, "llama"))
        return gguf_bad(v->g, key, v->e, "found %.*s, allowed are gpt2, llama and gemma4", SHOWN(kind));
    if (read_tokens(v) || enter_texts(v))
        return -1;
    jw_open(v->w, NULL, '{');
    write_added(v);
    if (bytes ? write_byte_steps(v) : write_sentence_steps(v))
        return -1;
    write_vocab(v);
    if (v->scored ? write_score_merges(v) : write_merges(v))
        return -1;
    fprintf(v->w->f, "]");
    jw_close(v->w, '}');
    jw_close(v->w, '}');
    return 1;
}

int gguf_tokenizer(struct json_writer *w, const struct gguf *g, struct err *e)
{
    struct slice whole;
    struct vocabulary v = { .g = g, .w = w, .e = e };
    int rc = gguf_string(g, "tokenizer.huggingface.json", &whole, e);
    if (rc > 0)
        fwrite(whole.p, 1, whole.n, w->f);
    else if (rc == 0)
        rc = write_tokenizer(&v);
    free(v.text);
    free(v.type);
    free(v.slot);
    return rc;
}
