/* Emission: one function called once per token in order decides where the text ends and which bytes may
 * be shown (DESIGN R3): given tokens, EOS, stop string, loop rule, length. It has no state but what the
 * token list determines. Bytes that may begin a stop string, or an unfinished code point, are held back.
 *
 * The end, in this order for each token:
 *   EOS          the text ends before it; it is in neither text nor ids. finish STOP, stop_token
 *   stop string  compared with the bytes of the text (special tokens have none), wherever tokens begin and end. The
 *                first one to be complete ends the text; of several complete with the same byte the longest, so that as
 *                little as possible is left of them. The text ends before it; the tokens it is made of, up to
 *                the one that completes it, are in the ids and counted, as vLLM counts completion tokens;
 *                what that last token says behind it is dropped. finish STOP, stop_string
 *   loop rule    with ON_LOOP_STOP: the text ends with the token at which the rule of src/text/loop.h speaks. finish REPETITION
 *   length       finish LENGTH
 * At an end the bytes of an unfinished code point or byte run come out as decoding the whole list has them; a stop
 * string that only they complete still ends the text. */
#pragma once
#include "src/text/loop.h"
#include "src/text/tokenizer.h"

enum finish { FINISH_NONE, FINISH_LENGTH, FINISH_STOP, FINISH_REPETITION };
const char *finish_name(enum finish f);      /* as INTERFACES has it; NULL for FINISH_NONE */
enum { STOP_STRINGS_MAX = 64, STOP_STRING_BYTES_MAX = 1024 };

struct emit_rules {                         /* borrowed by an open emit */
    size_t tokens;                          /* length: tokens to generate; 0 is an end at once */
    const int32_t *eos; size_t n_eos; bool ignore_eos;   /* ignored, an EOS is a token like others */
    const char *const *stop; size_t n_stop; /* stop strings: UTF-8, none empty */
    enum on_loop on_loop;
};

struct emit {
    const struct emit_rules *rules;
    struct decode_stream stream;
    size_t n;                               /* tokens emitted (kept in ids), EOS not among them */
    enum finish finish;
    int32_t stop_token; const char *stop_string;   /* which one ended it, or -1 / NULL */
    char *held; size_t n_held, held_max;    /* bytes not shown yet, behind the n_shown that the last call showed */
    size_t n_shown;
    struct stop_match *match;               /* how much of each stop string the text ends with */
    struct loop *loop;                      /* NULL with ON_LOOP_OFF; loop_current says where a repetition is */
    size_t repetitions;                     /* how often the loop rule has spoken: it rises with the token at which it does */
};

/* Too many, too long, empty or not UTF-8 stop strings are ERR_INPUT. */
int emit_open(struct emit *m, const struct emit_rules *rules, const struct tokenizer *t, bool at_start,
              struct err *e);
void emit_close(struct emit *m);
/* One more token. Bytes that may be shown now go to *out, *n (valid until the next call). After an end nothing more
 * is accepted (asserted). At an end all that belongs to the text is released. */
void emit_token(struct emit *m, int32_t id, const char **out, size_t *n);
/* One more token that was not sampled but given: it is text and counts for the length, and ends nothing; a stop string behind it begins
 * anew, so that none lies across the border. */
void emit_given(struct emit *m, int32_t id, const char **out, size_t *n);
/* Release what is held although the text has not ended (an interrupted run); nothing may follow. */
void emit_flush(struct emit *m, const char **out, size_t *n);
