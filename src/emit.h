/* Emission: one function called once per token in order decides where the text ends and which bytes may
 * be shown (DESIGN R3): given tokens, EOS, stop string, (loop rule,) length. It has no state but what the
 * token list determines. Bytes that may begin a stop string, or an unfinished code point, are held back. */
#pragma once
#include "src/tokenizer.h"

enum finish { FINISH_NONE, FINISH_LENGTH, FINISH_STOP, FINISH_REPETITION };
enum { STOP_STRINGS_MAX = 64, STOP_STRING_BYTES_MAX = 1024 };

struct emit_rules {
    size_t tokens;                          /* length: tokens to generate */
    const int32_t *eos; size_t n_eos; bool ignore_eos;   /* EOS ends the text and is in neither text nor ids */
    const char *const *stop; size_t n_stop; /* stop strings; the text ends before the first one */
};

struct emit {
    const struct emit_rules *rules;
    struct decode_stream stream;
    size_t n;                               /* tokens emitted (kept in ids), EOS not among them */
    enum finish finish;
    int32_t stop_token; const char *stop_string;   /* which one ended it, or -1 / NULL */
    char *held; size_t n_held, held_max;    /* bytes not shown yet */
};

int  emit_open(struct emit *m, const struct emit_rules *rules, const struct tokenizer *t, bool at_start, struct err *e);
void emit_close(struct emit *m);
/* One more token. Bytes that may be shown now go to *out, *n (valid until the next call). After an end nothing more
 * is accepted (asserted). At an end all that belongs to the text is released. */
void emit_token(struct emit *m, int32_t id, const char **out, size_t *n);
/* Release what is held although the text has not ended (an interrupted run). */
void emit_flush(struct emit *m, const char **out, size_t *n);
