/* Text <-> token ids, from tokenizer.json alone. Supported are byte-level BPE (patterns of GPT-2, GPT-4o,
 * Llama 3, Qwen2, Qwen3.5, tekken) and SentencePiece-style BPE (Llama 2, Vicuna, Mistral, Gemma). Ids equal
 * those of Hugging Face `tokenizers`. The code never recurses on user text; encoding is O(n log n). Anything
 * in the file that is not implemented is refused by name. */
#pragma once
#include "src/base/base.h"

struct tokenizer;

/* place: of the model, a directory or a GGUF file. vocab: the model's vocabulary size; every id is below it.
 * SIZE_MAX without a model. */
int tokenizer_open(struct tokenizer **t, const char *place, size_t vocab, struct err *e);
int tokenizer_parse(struct tokenizer **t, const char *file, const char *json, size_t n, size_t vocab,
                    struct err *e);
/* Extends a tokenizer.json in memory, *json of *n bytes, by the added tokens that only the
 * tokenizer_config.json of `place` has. tokenizer_open does so itself. A token whose id is not free stays
 * out, with all the others. */
int tokenizer_add_config(char **json, size_t *n, const char *place, size_t vocab, struct err *e);
void tokenizer_close(struct tokenizer *t);           /* NULL is allowed */
size_t tokenizer_bytes(const struct tokenizer *t);   /* memory it holds */
/* SHA-256 of tokenizer.json, or of the one that a GGUF file gives, in 64 hexadecimal digits. */
const char *tokenizer_sha(const struct tokenizer *t);
/* The number of tokens. Ids from here to the model's vocabulary are empty text. */
size_t tokenizer_size(const struct tokenizer *t);
/* The first id that encoding with specials puts before a text (BOS), -1 if there is none. */
int32_t tokenizer_bos(const struct tokenizer *t);

/* The special token with this text, -1 if there is none. */
int32_t tokenizer_special(const struct tokenizer *t, const char *text, size_t n);
/* The eos_token of the model's tokenizer_config.json; -1 if it names none, or no special token. */
int32_t tokenizer_eos(const struct tokenizer *t, const char *place);

/* Whether both have the same tokens. If not, *id is the first that differs. */
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, int32_t *id);

/* Encodes text[0..n). Special tokens inside the text are recognised. With `specials` the template (BOS,
 * EOS) is applied, as in Hugging Face's encode(). Invalid UTF-8 is ERR_INPUT with its offset. The caller
 * frees *ids. */
int tokenizer_encode(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                     bool specials, struct err *e);

/* Decodes a whole list, as Hugging Face's decode(ids, skip_special_tokens). Invalid sequences become
 * U+FFFD in the same places. *text is NUL-terminated; the caller frees it. Ids outside the model's
 * vocabulary are ERR_INPUT. */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *n, const int32_t *ids, size_t n_ids,
                     bool skip_special, struct err *e);

/* Streaming: the bytes that each id adds to a text. An incomplete code point at the end is held back until it
 * is complete. It becomes U+FFFD if it cannot be completed any more or the stream is flushed. All output
 * together equals tokenizer_decode of the ids. With `at_start` false the text continues a prompt and keeps
 * its leading space.
 *
 * Byte tokens of SentencePiece-style tokenizers (<0x0A>) are text only if the whole run of them is UTF-8.
 * A run is therefore held until it ends, up to DECODE_HELD_MAX bytes; of a longer run the complete part is
 * released. */
enum { DECODE_HELD_MAX = 1024 };
struct decode_stream {
    const struct tokenizer *t;
    bool skip_special;
    /* private to tokenizer_decode.c */
    bool first; int run;
    size_t strip, n_held, n_valid;
    char *room; size_t room_max;     /* room != NULL: instead of held */
    char held[DECODE_HELD_MAX];
};
void decode_stream_start(struct decode_stream *s, const struct tokenizer *t, bool at_start,
                         bool skip_special);
/* id is in the model's vocabulary (asserted). out holds decode_stream_max(t) bytes. Returns the number
 * written. */
size_t decode_stream_push(struct decode_stream *s, int32_t id, char *out);
size_t decode_stream_flush(struct decode_stream *s, char *out);
/* The bytes that a token has within a text, perhaps parts of code points; none of a special token. */
size_t token_bytes(const struct tokenizer *t, int32_t id, char *out);
size_t decode_stream_max(const struct tokenizer *t);
