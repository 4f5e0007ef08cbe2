/* Text <-> token ids, from tokenizer.json alone: byte-level BPE (GPT-2, Llama 3, Qwen2 patterns) and
 * SentencePiece-style BPE (Llama 2, Vicuna, Mistral). Equal to Hugging Face `tokenizers` id for id.
 * Never recursive on user text; encoding is O(n log n). Anything in the file that is not implemented
 * is refused by name. */
#pragma once
#include "src/base/base.h"

struct tokenizer;

/* vocab: the model's vocabulary size, which no id may reach (SIZE_MAX where there is no model). */
int  tokenizer_open(struct tokenizer **t, const char *dir, size_t vocab, struct err *e);
int tokenizer_parse(struct tokenizer **t, const char *file, const char *json, size_t n, size_t vocab,
                    struct err *e);
void tokenizer_close(struct tokenizer *t);           /* NULL is fine */
size_t tokenizer_bytes(const struct tokenizer *t);   /* memory it holds */
size_t tokenizer_size(const struct tokenizer *t);    /* tokens: ids from here to the model's vocabulary are empty text */

/* Encode text[0..n): special tokens inside the text are recognised, and with `specials` the template
 * (BOS, EOS) is applied, as Hugging Face's encode(). Invalid UTF-8 is ERR_INPUT with its offset.
 * *ids is malloc'ed, free() it. */
int tokenizer_encode(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                     bool specials, struct err *e);

/* Whole-list decoding as Hugging Face's decode(ids, skip_special_tokens): invalid sequences become
 * U+FFFD as there. *text malloc'ed, NUL-terminated. Ids outside the model's vocabulary are ERR_INPUT. */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *n, const int32_t *ids, size_t n_ids,
                     bool skip_special, struct err *e);

/* Streaming: the bytes that appending id adds to a text, appended to the stream's buffer. An incomplete
 * code point at the end is held back until it is completed, or becomes U+FFFD when it cannot be
 * completed any more or the stream is flushed. Concatenating all output equals tokenizer_decode of the ids
 * (a text that continues a prompt keeps its leading space: `at_start` false).
 *
 * Byte tokens of SentencePiece-style tokenizers (<0x0A>) are text only if the whole run of them is UTF-8, so a run
 * is held until it ends, up to DECODE_HELD_MAX bytes; beyond that what is complete goes out. */
enum { DECODE_HELD_MAX = 1024 };
struct decode_stream {
    const struct tokenizer *t;
    bool skip_special;
    /* private to tokenizer_decode.c */
    bool first; int run;
    size_t strip;
    size_t n_held; char held[DECODE_HELD_MAX];
};
void decode_stream_start(struct decode_stream *s, const struct tokenizer *t, bool at_start,
                         bool skip_special);
/* id is in the model's vocabulary (asserted). out must hold decode_stream_max(t) bytes; returns the number written. */
size_t decode_stream_push(struct decode_stream *s, int32_t id, char *out);
size_t decode_stream_flush(struct decode_stream *s, char *out);
size_t decode_stream_max(const struct tokenizer *t);
