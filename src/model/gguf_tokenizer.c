/* The tokenizer of a GGUF model. The metadata become the tokenizer.json that a Hugging Face model of the same
 * kind has, so one reader (tokenizer_parse) checks both. Start at gguf_tokenizer.
 *
 * Two kinds exist. "gpt2" is byte-level BPE with merges and a named split pattern. "llama" is SentencePiece
 * BPE: its merges follow from the scores of the tokens, as transformers derives them. */
#include "src/model/gguf_model.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/split_regex.h"
#include "src/base/unicode.h"

enum {
    TOKENS_MAX = 1 << 24,
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};
static const char space_mark[] = "\xe2\x96\x81";                     /* U+2581 */

/* Names of split patterns. */
static const struct pre { const char *name, *regex; bool ignore_merges, bos, nfc, digits; } pres[] = {
    { "qwen2", SPLIT_REGEX_QWEN2, .nfc = true },
    { "qwen35", SPLIT_REGEX_QWEN35, .nfc = true },
    { "deepseek-r1-qwen", SPLIT_REGEX_QWEN2 },
    { "megrez", SPLIT_REGEX_QWEN2 },
    { "stablelm2", SPLIT_REGEX_QWEN2 },
    { "hunyuan", SPLIT_REGEX_QWEN2 },
    { "grok-2", SPLIT_REGEX_QWEN2 },
    { "solar-open", SPLIT_REGEX_QWEN2 },
    { "kormo", SPLIT_REGEX_QWEN2 },
    { "llama-bpe", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "llama3", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "llama-v3", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "falcon3", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "falcon-h1", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "pixtral", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "midm-2.0", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "lfm2", SPLIT_REGEX_LLAMA3, .ignore_merges = true, .bos = true },
    { "glm4", SPLIT_REGEX_LLAMA3, .ignore_merges = true },
    { "dbrx", SPLIT_REGEX_LLAMA3 },
    { "smaug-bpe", SPLIT_REGEX_LLAMA3 },
    { "chatglm-bpe", SPLIT_REGEX_LLAMA3 },
    { "tekken", SPLIT_REGEX_TEKKEN, .ignore_merges = true, .bos = true },
    { "gpt-4o", SPLIT_REGEX_GPT4O },
    { "llama4", SPLIT_REGEX_GPT4O },
    { "kanana2", SPLIT_REGEX_GPT4O },
    { "gpt-2", SPLIT_REGEX_GPT2 },
    { "phi-2", SPLIT_REGEX_GPT2 },
    { "mpt", SPLIT_REGEX_GPT2 },
    { "olmo", SPLIT_REGEX_GPT2 },
    { "jais", SPLIT_REGEX_GPT2 },
    { "exaone4", SPLIT_REGEX_GPT2 },
    { "mellum", SPLIT_REGEX_GPT2 },
    { "modern-bert", SPLIT_REGEX_GPT2 },
    { "gigachat", SPLIT_REGEX_GPT2 },
    { "trillion", SPLIT_REGEX_GPT2 },
    { "a.x-4.0", SPLIT_REGEX_GPT2 },
    { "smollm", SPLIT_REGEX_GPT2, .digits = true },
    { "starcoder", SPLIT_REGEX_GPT2, .digits = true },
    { "refact", SPLIT_REGEX_GPT2, .digits = true },
    { "command-r", SPLIT_REGEX_GPT2, .digits = true },
    { "codeshell", SPLIT_REGEX_GPT2, .digits = true },
    { "exaone", SPLIT_REGEX_GPT2, .digits = true },
    { "minerva-7b", SPLIT_REGEX_GPT2, .digits = true },
};

struct vocabulary {
    const struct gguf *g;
    struct slice *text; uint8_t *type;   /* [n] */
    const struct gguf_value *scores;     /* NULL: none */
    size_t n;                            /* tokens, without the padding at the end */
    size_t n_model;                      /* those below belong to the BPE model */
    /* tokens of Gemma 4: merges decide, not scores; there is always a BOS, since some files say false; and a
     * space before the text only where the file says so. As in llama.cpp */
    bool gemma4;
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
    static const char key[] = "tokenizer.ggml.tokens";
    const struct gguf_value *tokens, *types;
    size_t at = 0, i = 0;
    const int found = gguf_array(v->g, key, GGUF_STRING, &tokens, v->e),
              typed = gguf_array(v->g, "tokenizer.ggml.token_type", GGUF_I32, &types, v->e),
              scored = gguf_array(v->g, "tokenizer.ggml.scores", GGUF_F32, &v->scores, v->e);
    if (found <= 0 || typed < 0 || scored < 0)
        return found ? -1 : gguf_bad(v->g, key, v->e, "the key is missing");
    if (tokens->n < 1 || tokens->n > TOKENS_MAX)
        return gguf_bad(v->g, key, v->e, "%zu tokens, allowed are 1 to %d", tokens->n, TOKENS_MAX);
    if ((typed && types->n != tokens->n) || (scored && v->scores->n != tokens->n))
        return gguf_bad(
            v->g, typed && types->n != tokens->n ? "tokenizer.ggml.token_type" : "tokenizer.ggml.scores",
            v->e, "%zu elements for %zu tokens", typed && types->n != tokens->n ? types->n : v->scores->n,
            tokens->n);
    v->n = tokens->n;
    v->text = calloc(v->n, sizeof *v->text);
    v->type = calloc(v->n, 1);
    if (!v->text || !v->type)
        return err_set(v->e, ERR_FAILED, "%s: out of memory for %zu tokens", v->g->file, v->n);
    for (struct slice s; gguf_next_string(tokens, &at, &s); i++) {
        /* llama.cpp treats a token of an unknown type (0, 7) as a normal one */
        const int64_t type = typed ? gguf_int_at(types, i) : TYPE_NORMAL;
        if (utf8_valid_prefix(s.p, s.n) < s.n)
            return gguf_bad(v->g, key, v->e, "token %zu is not UTF-8", i);
        v->text[i] = s;
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

/* The slot of a text, or the free slot for it. */
static uint32_t *text_slot(const struct vocabulary *v, struct slice s)
{
    const unsigned char *p = s.p;
    uint64_t h = 14695981039346656037u;                  /* FNV-1a */
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    for (size_t k = (h ^ h >> 32) & v->slot_mask;; k = (k + 1) & v->slot_mask) {
        const uint32_t id = v->slot[k];
        if (id == NO_SLOT || (v->text[id].n == s.n && memcmp(v->text[id].p, s.p, s.n) == 0))
            return &v->slot[k];
    }
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
        uint32_t *slot = text_slot(v, v->text[i]);
        *slot = *slot == NO_SLOT ? (uint32_t)i : *slot;
    }
    return 0;
}

/* The id of a text, NO_TOKEN if it is no token of the model. */
static size_t find_text(const struct vocabulary *v, struct slice s)
{
    const uint32_t id = s.n ? *text_slot(v, s) : NO_SLOT;
    return id == NO_SLOT ? NO_TOKEN : id;
}

/* Reads the id of a token; `otherwise` where the file has no such key. An id that is no token's is ignored,
 * as in llama.cpp. NO_TOKEN: none. */
static int read_id(const struct vocabulary *v, const char *key, size_t otherwise, size_t *id)
{
    *id = otherwise < v->n ? otherwise : NO_TOKEN;
    return gguf_token_id(v->g, key, v->n, id, v->e) < 0 ? -1 : 0;
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
        if (!is_added(v, i))
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
    fprintf(v->w->f, ", \"vocab\": {");
    for (size_t i = 0; i < v->n_model; i++) {
        if (i)
            putc(',', v->w->f);
        jw_string(v->w->f, v->text[i].p, v->text[i].n);
        fprintf(v->w->f, ": %zu", i);
    }
    fprintf(v->w->f, "}, \"merges\": [");
}

static void write_merge(const struct vocabulary *v, bool first, const char *a, size_t n_a, const char *b,
                        size_t n_b)
{
    fprintf(v->w->f, first ? "[" : ",\n[");
    jw_string(v->w->f, a, n_a);
    putc(',', v->w->f);
    jw_string(v->w->f, b, n_b);
    putc(']', v->w->f);
}

/* Whether the text of a and b is a token of the model. */
static bool makes_token(const struct vocabulary *v, struct slice a, struct slice b)
{
    char text[256], *s = a.n + b.n <= sizeof text ? text : malloc(a.n + b.n);
    if (!s)
        return true;                     /* the reader of the merge looks it up, too */
    memcpy(s, a.p, a.n);
    memcpy(s + a.n, b.p, b.n);
    const bool found = find_text(v, (struct slice){ s, a.n + b.n }) != NO_TOKEN;
    if (s != text)
        free(s);
    return found;
}

/* Writes the merges of the file: two parts with a space between; a part may begin with a space. A merge of
 * texts that are no tokens makes none, and stays out. */
static int write_merges(const struct vocabulary *v, const struct gguf_value *merges)
{
    static const char key[] = "tokenizer.ggml.merges";
    size_t at = 0, i = 0;
    bool first = true;
    for (struct slice s; gguf_next_string(merges, &at, &s); i++) {
        const char *p = s.p, *space = s.n > 2 ? memchr(p + 1, ' ', s.n - 1) : NULL;
        if (!space || space + 1 == p + s.n || utf8_valid_prefix(p, s.n) < s.n)
            return gguf_bad(v->g, key, v->e, "merge %zu is not two texts in UTF-8 with a space between", i);
        const struct slice a = { p, (size_t)(space - p) }, b = { space + 1, s.n - a.n - 1 };
        if (find_text(v, a) == NO_TOKEN || find_text(v, b) == NO_TOKEN || !makes_token(v, a, b))
            continue;
        write_merge(v, first, a.p, a.n, b.p, b.n);
        first = false;
    }
    return 0;
}

/* The template that puts BOS before a text, and EOS after it. */
static int write_template(const struct vocabulary *v, bool add_bos, bool add_eos, size_t bos, size_t eos)
{
    const struct { size_t id; const char *name; } of[] = { { bos, "BOS" }, { eos, "EOS" } };
    bool add[] = { add_bos, add_eos };
    if (gguf_bool(v->g, "tokenizer.ggml.add_bos_token", &add[0], v->e) < 0 ||
        gguf_bool(v->g, "tokenizer.ggml.add_eos_token", &add[1], v->e) < 0)
        return -1;
    add[0] = (add[0] || v->gemma4) && bos != NO_TOKEN;
    add[1] &= eos != NO_TOKEN;
    jw_open(v->w, "post_processor", '{');
    jw_text(v->w, "type", "TemplateProcessing");
    jw_open(v->w, "single", '[');
    for (size_t i = 0; i < 3; i++) {
        if (i != 1 && !add[i / 2])
            continue;
        jw_open(v->w, NULL, '{');
        jw_open(v->w, i == 1 ? "Sequence" : "SpecialToken", '{');
        jw_text(v->w, "id", i == 1 ? "A" : of[i / 2].name);
        jw_uint(v->w, "type_id", 0);
        jw_close(v->w, '}');
        jw_close(v->w, '}');
    }
    jw_close(v->w, ']');
    jw_open(v->w, "pair", '[');
    jw_close(v->w, ']');
    jw_open(v->w, "special_tokens", '{');
    for (size_t i = 0; i < 2; i++) {
        if (!add[i])
            continue;
        jw_open(v->w, of[i].name, '{');
        jw_text(v->w, "id", of[i].name);
        jw_open(v->w, "ids", '[');
        jw_uint(v->w, NULL, of[i].id);
        jw_close(v->w, ']');
        jw_open(v->w, "tokens", '[');
        jw_text(v->w, NULL, of[i].name);
        jw_close(v->w, ']');
        jw_close(v->w, '}');
    }
    jw_close(v->w, '}');
    jw_close(v->w, '}');
    return 0;
}

/* ---- byte-level BPE ---- */

static int find_pre(const struct vocabulary *v, const struct pre **pre)
{
    static const char key[] = "tokenizer.ggml.pre";
    struct slice s;
    const int found = gguf_string(v->g, key, &s, v->e);
    if (found <= 0)
        return found ? -1 : gguf_bad(v->g, key, v->e, "the key is missing; convert the model again");
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (s.n == strlen(pres[i].name) && memcmp(s.p, pres[i].name, s.n) == 0) {
            *pre = &pres[i];
            return 0;
        }
    return gguf_bad(v->g, key, v->e,
                    "found %.*s, this pattern is not implemented; implemented are qwen2, llama-bpe, "
                    "tekken, gpt-4o, gpt-2, smollm and those equal to them",
                    (int)MIN(s.n, (size_t)60), (const char *)s.p);
}

static void write_byte_level(const struct vocabulary *v, const char *key)
{
    jw_open(v->w, key, '{');
    jw_text(v->w, "type", "ByteLevel");
    jw_bool(v->w, "add_prefix_space", false);
    jw_bool(v->w, "trim_offsets", false);
    jw_bool(v->w, "use_regex", false);
    jw_close(v->w, '}');
}

static void write_split(const struct vocabulary *v, const struct pre *pre)
{
    if (pre->nfc) {
        jw_open(v->w, "normalizer", '{');
        jw_text(v->w, "type", "NFC");
        jw_close(v->w, '}');
    }
    jw_open(v->w, "pre_tokenizer", '{');
    jw_text(v->w, "type", "Sequence");
    jw_open(v->w, "pretokenizers", '[');
    if (pre->digits) {
        jw_open(v->w, NULL, '{');
        jw_text(v->w, "type", "Digits");
        jw_bool(v->w, "individual_digits", true);
        jw_close(v->w, '}');
    }
    jw_open(v->w, NULL, '{');
    jw_text(v->w, "type", "Split");
    jw_open(v->w, "pattern", '{');
    jw_text(v->w, "Regex", pre->regex);
    jw_close(v->w, '}');
    jw_text(v->w, "behavior", "Isolated");
    jw_bool(v->w, "invert", false);
    jw_close(v->w, '}');
    write_byte_level(v, NULL);
    jw_close(v->w, ']');
    jw_close(v->w, '}');
    write_byte_level(v, "decoder");
}

static int write_bytes_tokenizer(const struct vocabulary *v)
{
    static const char key[] = "tokenizer.ggml.merges";
    const struct pre *pre = NULL;
    const struct gguf_value *merges;
    size_t bos, eos;
    if (find_pre(v, &pre) || read_id(v, "tokenizer.ggml.bos_token_id", NO_TOKEN, &bos) ||
        read_id(v, "tokenizer.ggml.eos_token_id", NO_TOKEN, &eos))
        return -1;
    const int found = gguf_array(v->g, key, GGUF_STRING, &merges, v->e);
    if (found <= 0)
        return found ? -1 : gguf_bad(v->g, key, v->e, "the key is missing");
    write_split(v, pre);
    if (write_template(v, pre->bos, false, bos, eos))
        return -1;
    jw_open(v->w, "model", '{');
    jw_text(v->w, "type", "BPE");
    jw_bool(v->w, "ignore_merges", pre->ignore_merges);
    write_vocab(v);
    const int rc = write_merges(v, merges);
    fprintf(v->w->f, "]");
    jw_close(v->w, '}');
    return rc;
}

/* ---- SentencePiece ---- */

struct score_merge { double score; uint32_t id, n_left, chars_left, chars_right, left, right; };

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
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : (x->right > y->right) - (x->right < y->right);
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
    size_t max = 0;
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
            if (*n == max) {
                struct score_merge *more = realloc(*out, (2 * max + 1024) * sizeof *more);
                if (!more)
                    return err_set(v->e, ERR_FAILED, "%s: out of memory for %zu merges", v->g->file, max);
                *out = more;
                max = 2 * max + 1024;
            }
            (*out)[(*n)++] =
                (struct score_merge){ gguf_real_at(v->scores, id), (uint32_t)id, (uint32_t)cut, (uint32_t)k,
                                      (uint32_t)(chars - k),       (uint32_t)a,  (uint32_t)b };
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

static int write_score_merges(struct vocabulary *v)
{
    struct score_merge *m;
    size_t n;
    for (size_t i = 0; i < v->n_model; i++)
        if (gguf_real_at(v->scores, i) != gguf_real_at(v->scores, i))
            return gguf_bad(v->g, "tokenizer.ggml.scores", v->e, "token %zu has the score NaN", i);
    const int rc = find_merges(v, &m, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct slice s = v->text[m[i].id];
        write_merge(v, i == 0, s.p, m[i].n_left, (const char *)s.p + m[i].n_left, s.n - m[i].n_left);
    }
    free(m);
    return rc;
}

static void write_replace(const struct vocabulary *v, const char *from, const char *to)
{
    jw_open(v->w, NULL, '{');
    jw_text(v->w, "type", "Replace");
    jw_open(v->w, "pattern", '{');
    jw_text(v->w, "String", from);
    jw_close(v->w, '}');
    jw_text(v->w, "content", to);
    jw_close(v->w, '}');
}

static void write_sentence_steps(const struct vocabulary *v, bool prefix)
{
    static const char *const plain[] = { "ByteFallback", "Fuse" };
    jw_open(v->w, "normalizer", '{');
    jw_text(v->w, "type", "Sequence");
    jw_open(v->w, "normalizers", '[');
    if (prefix) {
        jw_open(v->w, NULL, '{');
        jw_text(v->w, "type", "Prepend");
        jw_text(v->w, "prepend", space_mark);
        jw_close(v->w, '}');
    }
    write_replace(v, " ", space_mark);
    jw_close(v->w, ']');
    jw_close(v->w, '}');
    jw_open(v->w, "decoder", '{');
    jw_text(v->w, "type", "Sequence");
    jw_open(v->w, "decoders", '[');
    write_replace(v, space_mark, " ");
    for (size_t i = 0; i < 2; i++) {
        jw_open(v->w, NULL, '{');
        jw_text(v->w, "type", plain[i]);
        jw_close(v->w, '}');
    }
    if (prefix) {
        jw_open(v->w, NULL, '{');
        jw_text(v->w, "type", "Strip");
        jw_text(v->w, "content", " ");
        jw_uint(v->w, "start", 1);
        jw_uint(v->w, "stop", 0);
        jw_close(v->w, '}');
    }
    jw_close(v->w, ']');
    jw_close(v->w, '}');
}

static int write_sentence_tokenizer(struct vocabulary *v)
{
    const struct gguf_value *merges = NULL;
    bool prefix = !v->gemma4;
    size_t bos, eos, unk;
    if (gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &prefix, v->e) < 0 ||
        read_id(v, "tokenizer.ggml.bos_token_id", 1, &bos) ||
        read_id(v, "tokenizer.ggml.eos_token_id", 2, &eos) ||
        read_id(v, "tokenizer.ggml.unknown_token_id", 0, &unk) ||
        gguf_array(v->g, "tokenizer.ggml.merges", GGUF_STRING, &merges, v->e) < 0)
        return -1;
    const bool scored = !v->gemma4 && has_scores(v);
    if (!scored && !merges)
        return gguf_bad(v->g, "tokenizer.ggml.scores", v->e,
                        "all tokens have one score and the file has no merges; "
                        "convert the model again, with its tokenizer.model");
    write_sentence_steps(v, prefix);
    if (write_template(v, true, false, bos, eos))
        return -1;
    jw_open(v->w, "model", '{');
    jw_text(v->w, "type", "BPE");
    if (unk != NO_TOKEN && unk < v->n_model)
        write_token(v, "unk_token", unk);
    jw_bool(v->w, "fuse_unk", true);
    jw_bool(v->w, "byte_fallback", true);
    write_vocab(v);
    const int rc = scored ? write_score_merges(v) : write_merges(v, merges);
    fprintf(v->w->f, "]");
    jw_close(v->w, '}');
    return rc;
}

/* ---- the whole ---- */

static int write_tokenizer(struct vocabulary *v)
{
    static const char key[] = "tokenizer.ggml.model";
    struct slice kind;
    const int found = gguf_string(v->g, key, &kind, v->e);
    if (found <= 0)
        return found ? -1 : gguf_bad(v->g, key, v->e, "the key is missing");
    const bool bytes = kind.n == 4 && memcmp(kind.p, "gpt2", 4) == 0;
    v->gemma4 = kind.n == 6 && memcmp(kind.p, "gemma4", 6) == 0;
    if (!bytes && !v->gemma4 && (kind.n != 5 || memcmp(kind.p, "llama", 5)))
        return gguf_bad(v->g, key, v->e, "found %.*s, allowed are gpt2, llama and gemma4",
                        (int)MIN(kind.n, (size_t)60), (const char *)kind.p);
    if (read_tokens(v) || enter_texts(v))
        return -1;
    write_added(v);
    return bytes ? write_bytes_tokenizer(v) : write_sentence_tokenizer(v);
}

int gguf_tokenizer(char **json, size_t *n, const struct gguf *g, struct err *e)
{
    struct slice whole;
    struct vocabulary v = { .g = g, .e = e };
    *json = NULL;
    const int found = gguf_string(g, "tokenizer.huggingface.json", &whole, e);
    if (found < 0)
        return -1;
    FILE *f = memory_file(json, n);
    if (!f)
        return err_set(e, ERR_FAILED, "%s: out of memory for the tokenizer", g->file);
    struct json_writer w = { .f = f, .digits = 10 };
    int rc = 0;
    v.w = &w;
    if (found) {
        fwrite(whole.p, 1, whole.n, f);
    } else {
        jw_open(&w, NULL, '{');
        rc = write_tokenizer(&v);
        jw_close(&w, '}');
    }
    if (stream_end(f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "%s: out of memory for the tokenizer", g->file);
    free(v.text);
    free(v.type);
    free(v.slot);
    if (rc == 0)
        return 0;
    free(*json);
    *json = NULL;
    return -1;
}
