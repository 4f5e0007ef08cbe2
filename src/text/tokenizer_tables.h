/* The parts of tokenizer.json as data, shared by the files of the tokenizer. From bottom to top:
 *
 *   tokenizer_tables.c   growing memory, hash tables, the byte alphabet, normalizers, JSON objects
 *   tokenizer_split.c    the split patterns
 *   tokenizer_bpe.c      merging
 *   tokenizer_decode.c   ids -> text
 *   tokenizer_model.c    vocabulary, merges and added tokens of tokenizer.json
 *   tokenizer_json.c     tokenizer.json -> struct tokenizer; refuses what is not implemented
 *   tokenizer.c          the public functions: added tokens, pre-tokenizers, the template */
#pragma once
#include "src/base/base.h"
#include "src/base/json.h"
#include "src/base/sha256.h"
#include "src/base/unicode.h"

enum {
    TOK_FILE_MAX = 128 << 20,      /* bytes of tokenizer.json */
    TOK_IDS_MAX = 1 << 24,         /* ids are below this */
    TOK_MERGES_MAX = 4 << 20,
    TOK_TOKEN_MAX = 64 << 10,      /* bytes of one token */
    TOK_ADDED_MAX = 1 << 10,       /* bytes of one added token; bounds the work for a byte of text */
    TOK_STEPS_MAX = 8,             /* normalizers, pre-tokenizers, replacements of the decoder */
    TOK_STRING_MAX = 256,          /* bytes of the string of a step, or of a name in a template */
    TOK_TEMPLATE_MAX = 64,         /* special tokens before the text, and after it */
    TOK_TEXT_MAX = 1 << 30,        /* bytes of text in one encode */
};
#define NO_ID UINT32_MAX

struct span { uint32_t at, n; };   /* bytes in one of the pools */
struct text { char s[TOK_STRING_MAX]; size_t n; };

/* Growing memory. After a failure `failed` stays set and appends do nothing. */
struct bytes { char *s; size_t n, max; bool failed; };
bool bytes_reserve(struct bytes *b, size_t more);
/* Makes room for `need` items at *p, of which *max fit. */
bool tok_grow(void **p, size_t *max, size_t need, size_t item, bool *failed);
void bytes_add(struct bytes *b, const char *s, size_t n);

enum normalizer { NORM_NFC, NORM_PREPEND, NORM_REPLACE };
struct norm_step { enum normalizer kind; struct text from, to; };     /* PREPEND: `to` */

/* Those before SPLIT_PREFIX_SPACE are patterns (split_regex). */
enum split { SPLIT_GPT2, SPLIT_LLAMA3, SPLIT_QWEN2, SPLIT_QWEN35, SPLIT_TEKKEN, SPLIT_GPT4O,
             SPLIT_PREFIX_SPACE, SPLIT_DIGITS };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

enum { ADDED_SINGLE_WORD = 1, ADDED_LSTRIP = 2, ADDED_RSTRIP = 4, ADDED_NORMALIZED = 8, ADDED_SPECIAL = 16 };
struct added {
    uint32_t id;
    unsigned flags;
    struct span content;           /* in pool */
    struct span pattern;           /* in pool: the content to match, normalised if the file says so */
};
/* Added tokens sorted by pattern. first[b] is the index of the first pattern that begins with byte b or
 * more. */
struct match_set { struct added **sorted; size_t n; uint32_t first[257]; };

struct merge { uint32_t a, b, rank, to; };   /* a == NO_ID: an empty slot */

enum decoder { DECODE_BYTES, DECODE_SENTENCE, DECODE_METASPACE };
enum {
    SHOWN_SPECIAL = 1,             /* omitted with skip_special */
    SHOWN_BYTE = 2,                /* a byte token of the byte fallback */
};

struct tokenizer {
    char sha[SHA256_HEX];          /* of tokenizer.json */
    size_t vocab;                  /* ids are below this; ids from n on are empty text */
    size_t n, n_model;             /* tokens; those below n_model belong to the BPE model */
    struct bytes pool;             /* contents and patterns */
    struct span *content; size_t n_room;          /* [n_room], of which n are used */
    uint32_t *slot; size_t slot_mask;             /* hash of contents: ids, NO_ID where empty */
    size_t token_max;              /* bytes of the longest token */

    /* the BPE model */
    struct merge *merge; size_t merge_mask;       /* hash of pairs */
    uint32_t *merge_to; size_t n_merges;          /* [rank]: result of that merge */
    uint32_t unk, byte_fallback[256];             /* NO_ID: none */
    uint32_t byte_id[256];         /* token of one byte (byte-level) or of one ASCII character */
    bool fuse_unk, has_fallback, ignore_merges, repeats;   /* repeats: tokens of a GGUF file may be equal */

    struct norm_step norm[TOK_STEPS_MAX]; size_t n_norm;
    /* the pre-tokenizer: splits with byte_level, or metaspace, or none */
    enum split split[TOK_STEPS_MAX]; size_t n_split;
    bool byte_level;
    bool metaspace, meta_split; enum prepend meta_prepend; struct text meta;
    /* not byte-level: hash of neighbouring characters inside results of merges */
    uint64_t *bigram; size_t bigram_mask;

    struct added *added; size_t n_added;          /* sorted by id */
    struct match_set raw, normalized;
    int32_t prefix[TOK_TEMPLATE_MAX], suffix[TOK_TEMPLATE_MAX]; size_t n_prefix, n_suffix;

    enum decoder decoder;
    struct norm_step replace[TOK_STEPS_MAX]; size_t n_replace;
    bool byte_tokens;              /* the decoder has ByteFallback */
    struct text strip; size_t strip_n;            /* at most strip_n copies at a text's start go */
    struct text meta_decode;       /* Metaspace: the character that becomes a space */
    bool meta_drop;                /* the first token loses that character */
    struct bytes shown_pool; struct span *shown;  /* [n]: the bytes of a token in a text */
    uint8_t *shown_flags;          /* [n] */
    size_t shown_max;              /* the longest of them */

    bool has_template; int decoder_stage;         /* used while the file is read */
};

/* The slot of a token's content, of a merge, of a bigram; or the free slot for it. */
uint32_t *tok_slot(const struct tokenizer *t, const char *s, size_t n);
struct merge *tok_merge_slot(const struct tokenizer *t, uint32_t a, uint32_t b);
uint64_t *tok_bigram_slot(uint64_t *table, size_t mask, uint64_t x);
/* The id of a token by content, NO_ID if there is none. */
static inline uint32_t tok_find(const struct tokenizer *t, const char *s, size_t n)
{
    return *tok_slot(t, s, n);
}
/* NULL: none */
static inline const struct merge *tok_merge(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    const struct merge *m = tok_merge_slot(t, a, b);
    return m->a == NO_ID ? NULL : m;
}
#define NO_BIGRAM UINT64_MAX
static inline uint64_t tok_bigram(uint32_t a, uint32_t b) { return (uint64_t)a << 32 | b; }
void tok_replace(struct bytes *out, const char *s, size_t n, const struct text *from, const struct text *to);
/* Normalizes s[0..n) to *r, *n_r, which lies in `out`, `work` or s; both buffers are emptied first. -1:
 * out of memory. */
int tok_normalize(const struct tokenizer *t, const char *s, size_t n, struct bytes *out, struct bytes *work,
                  const char **r, size_t *n_r);

/* The code point that GPT-2 writes for byte b. And back: -1 for a character that stands for no byte. */
uint32_t byte_to_char(unsigned b);
int char_to_byte(uint32_t c);

/* The pattern of a split, as tokenizer.json writes it. */
extern const char *const split_regex[SPLIT_PREFIX_SPACE];
/* The length of the first piece of s[0..n), n > 0. Not for SPLIT_PREFIX_SPACE. */
size_t split_next(enum split p, const char *s, size_t n);

/* Merging: words go in, ids come out in order. */
struct symbol { uint32_t id; int32_t prev, next; };
struct cached { uint64_t key[3]; uint32_t at; uint16_t n, len; };
struct bpe {
    const struct tokenizer *t;
    int32_t *ids; size_t n_ids, ids_max;
    struct symbol *sym; size_t n_sym, sym_max;
    uint64_t *heap; size_t n_heap, heap_max;
    struct cached *cache;          /* NULL: none */
    bool failed;                   /* out of memory */
};
void bpe_id(struct bpe *w, uint32_t id);
void bpe_word(struct bpe *w, const char *s, size_t n);
void bpe_use_cache(struct bpe *w);
void bpe_free(struct bpe *w);

/* Builds the tables for decoding, after the rest of t is read. */
int tok_build_shown(struct tokenizer *t, const char *file, struct err *e);

/* What tokenizer_model.c (vocabulary, merges, added tokens) does for tokenizer_json.c. */
struct field;
int tok_read_model(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e);
/* Counts the added tokens. tok_read_added reads them, after model and normalizer. */
int tok_count_added(const struct field *f, size_t *n, struct err *e);
int tok_read_added(struct tokenizer *t, const struct field *f, size_t n, struct err *e);
/* Builds the tables for encoding, after everything else is read. */
int tok_prepare(struct tokenizer *t, const struct json *root, struct err *e);

/* A member of an object of tokenizer.json. */
struct field { const char *name; bool required, given; struct json v; };

/* Reads the members of an object into the fields of their names; a NULL name ends the fields. An unknown
 * key, a repeated key and a missing required key are errors. */
int tok_fields(const struct json *object, struct field *f, struct err *e);
static inline bool field_null(const struct field *f) { return !f->given || js_kind(&f->v) == JS_NULL; }
/* Reads a flag. null and a missing key give the default. */
int tok_flag(const struct field *f, bool *x, bool otherwise, struct err *e);
int tok_no_memory(const struct json *v, struct err *e);
