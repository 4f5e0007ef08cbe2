/* Emission: one function, called once for each token in order, decides where the text ends and which bytes
 * may be shown (docs/architecture.md, rule R3). It considers given tokens, EOS, stop strings, the loop rule
 * and the length. Its state is a function of the token list. Bytes that may begin a stop string, or an
 * unfinished code point, are held back.
 *
 * The ends, in this order for each token:
 *
 *   EOS, stop id  The text ends before the token, which is in neither text nor ids. FINISH_STOP, stop_token.
 *   stop string  It is compared with the bytes of the text (special tokens have none), wherever tokens begin
 *                and end. The first string to be complete ends the text. Of several that complete with one
 *                byte the longest wins, so that as little as possible of them remains. The text ends before
 *                the string. Its tokens, up to the completing one, are in the ids and counted, as vLLM counts
 *                completion tokens. Bytes of the last token after the string are dropped. FINISH_STOP,
 *                stop_string.
 *   loop rule    With ON_LOOP_STOP the text ends with the token at which the rule of src/text/loop.h fires.
 *                FINISH_REPETITION. With ON_LOOP_RETAKE the caller decides (src/text/retake.h).
 *   length       FINISH_LENGTH.
 *
 * Before min_tokens tokens exist neither a stop string nor the loop rule ends the text. (The sampler bans EOS
 * and stop ids until then.) A stop string that is complete by then stays in the text.
 *
 * Rules may change within a text, where `extend` or `fork` began a part with other parameters. If stop
 * strings or the loop rule change there, both start anew: no stop string spans the border.
 *
 * At an end, the bytes of an unfinished code point or byte run come out as decoding the whole list gives
 * them. A stop string that only those bytes complete still ends the text. */
#pragma once
#include "src/text/loop.h"
#include "src/text/tokenizer.h"

enum finish { FINISH_NONE, FINISH_LENGTH, FINISH_STOP, FINISH_REPETITION };
const char *finish_name(enum finish f);      /* "length", "stop", "repetition"; NULL for FINISH_NONE */
enum { STOP_STRINGS_MAX = 64, STOP_STRING_BYTES_MAX = 1024 };

struct emit_rules {                         /* borrowed by an open emit */
    size_t tokens;                          /* length: tokens to generate; 0 ends at once */
    const int32_t *eos; size_t n_eos, n_stop_ids;   /* EOS ids, then stop ids */
    bool ignore_eos;                        /* an EOS is an ordinary token, a stop id is not */
    const char *const *stop; size_t n_stop; /* stop strings: UTF-8, none empty */
    enum on_loop on_loop;
    size_t min_tokens;                      /* no stop string and no loop ends the text before */
    const struct emit_rules *next; size_t until;    /* the rules of the tokens from `until` on; NULL: these */
};

struct emit {
    const struct emit_rules *rules;
    struct decode_stream stream;
    size_t n;                               /* tokens emitted and kept in the ids, without EOS */
    enum finish finish;
    int32_t stop_token; const char *stop_string;   /* the one that ended the text, or -1 / NULL */
    char *held; size_t n_held, held_max;    /* bytes not shown yet, after the n_shown of the last call */
    size_t n_shown;
    struct stop_match *match;               /* how much of each stop string the text ends with */
    uint16_t *fail;                         /* the tables of all matches */
    struct loop *loop;                      /* NULL if all rules have ON_LOOP_OFF; loop_current locates it */
    size_t repetitions;                     /* how often the loop rule has fired */
};

/* Too many, too long, empty or not UTF-8 stop strings are ERR_INPUT. `name` begins the message. */
int stop_check(const char *name, const char *const *stop, size_t n, struct err *e);
/* Checks the stop strings. */
int emit_open(struct emit *m, const struct emit_rules *rules, const struct tokenizer *t, bool at_start,
              struct err *e);
void emit_close(struct emit *m);
/* Emits a token. The bytes that may be shown now go to *out, *n; they are valid until the next call. At an
 * end all remaining bytes of the text are released. After an end no token is accepted (asserted). */
void emit_token(struct emit *m, int32_t id, const char **out, size_t *n);
/* Emits a token that was given, not sampled. It is text and counts for the length, but ends nothing. Stop
 * strings after it start anew: none spans the border. */
void emit_given(struct emit *m, int32_t id, const char **out, size_t *n);
/* Ends a text that has not ended: its remaining bytes are released. */
void emit_end(struct emit *m, enum finish f, const char **out, size_t *n);
/* Releases the held bytes although the text has not ended (an interrupted run). No call may follow. */
void emit_flush(struct emit *m, const char **out, size_t *n);
