/* Texts of jobs, read back from the store.
 *
 *     replay_open ... replay_token ... replay_close      one token at a time
 *     grown_begin ... grown_more ... grown_close          a text that is written out while it grows
 *     job_read_text                                      a whole text, and where its tokens and answer are
 *     job_parts_read                                     the parameters of each part of a text
 *
 * The emission (src/text/emit.h) that wrote a text also reads it back, so stop strings and code points
 * that span an interruption come out right. */
#pragma once
#include <stdio.h>

#include "runs/store/store.h"
#include "src/model/config.h"
#include "src/request/job_params.h"
#include "src/text/emit.h"
#include "src/text/thoughts.h"

/* The parameters of a job, of its first tokens and of each part that extend or fork began with others. New
 * tokens belong to the last part. {0} is closed. */
struct job_part { size_t start; struct job_params params; };
struct job_parts {
    struct job_part *v; size_t n;        /* v[0].start is 0 */
    struct part_list stored;             /* those of the store, of which some begin another model alone */
};
/* `first`: the parameters of struct job_input. */
int  job_parts_read(struct job_parts *p, struct store *s, int64_t job, const char *first, struct err *e);
void job_parts_close(struct job_parts *p);
static inline struct job_params *job_parts_last(const struct job_parts *p) { return &p->v[p->n - 1].params; }

/* The emission of a stored token list, under the rules in the job's parameters. {0} is closed. */
struct replay {
    struct emit_rules *rules;            /* of each part */
    struct emit emit;
    struct span_list spans;
    size_t at;                           /* number of tokens replayed */
    struct sha256 sha;                   /* over the text so far */
};
/* Borrows job, p and t. `in`: whether the text begins without a prompt; `c`: the model's EOS ids. */
int  replay_open(struct replay *y, struct store *s, const struct job *job, const struct job_input *in,
                 const struct job_parts *p, const struct config *c, const struct tokenizer *t, struct err *e);
void replay_close(struct replay *y);
/* Replay `id`, token number y->at. *bytes [*n] is the text that the token adds. Returns whether `extend` or
 * `fork` gave the token. The text must not have ended (asserted). */
bool replay_token(struct replay *y, int32_t id, const char **bytes, size_t *n);
/* The text ends after the tokens that were replayed: the rest of it. f: FINISH_NONE for a job that is done,
 * whose end-of-text token is not stored. */
void replay_end(struct replay *y, enum finish f, const char **bytes, size_t *n);
/* SHA-256 of the text that was replayed. */
void replay_sha(const struct replay *y, uint8_t out[SHA256_BYTES]);
/* After the whole text of a job that is done: ERR_FAILED unless it has the SHA-256 that the store got with
 * its last token. Jobs of an older longhand may have none. */
int  replay_check(const struct replay *y, const struct job *job, struct err *e);

/* The configuration and tokenizer that a job's text needs. They come from the store. For a job of an older
 * longhand whose model the store does not have yet, they come from the model's folder. Nothing tells whether
 * its files have changed, which the reader says once, in a line to standard error. The next job of the same
 * model reuses them. {0} is closed. */
struct text_reader {
    char model[PATH_BYTES], scaling[64]; /* what is open: a fingerprint, or a folder */
    bool told;                           /* that a text is read with the tokenizer of a folder */
    struct config config;                /* eos, n_eos and vocab are always those of the model */
    struct tokenizer *tokenizer;
};
int  text_reader_open(struct text_reader *r, struct store *s, const struct job *job,
                      const struct job_params *p, struct err *e);
void text_reader_close(struct text_reader *r);

/* A whole text with the places of its tokens. */
struct placed_text {                     /* {0} is closed */
    char *text; size_t n;                /* followed by a NUL */
    size_t *ends, n_ends;                /* ends[i]: number of bytes of the tokens 0 to i */
    size_t kept;                         /* the tokens before the stop string that ended the text, else all */
    /* the tokens up to the last one, before the end, after which no byte was held back; their bytes */
    size_t clear, clear_bytes;
    /* bytes of the thoughts that the text of a chat begins with; n: the answer has not begun */
    size_t answer;
};

/* A text that is written out while it grows: grown_begin, then a reader that fits g->parts.v->params, then
 * grown_open. {0} is closed. */
struct grown_text {
    struct job_input in;                 /* until grown_open */
    struct job_parts parts;
    struct replay replay;
    struct thoughts thoughts;            /* of a chat */
    size_t bytes;                        /* of the text that were replayed */
    bool answered;                       /* a byte of the answer after thoughts was written */
    char *early; size_t n_early;         /* the last bytes, while it is not known what they are */
    struct placed_text whole;            /* of job_read_text; without `ends` none is wanted */
};
int  grown_begin(struct grown_text *g, struct store *s, const struct job *job, struct err *e);
int  grown_open(struct grown_text *g, struct store *s, const struct job *job, const struct text_reader *r,
                struct err *e);
/* Write what the tokens [replay.at, upto) add to the text, of which those before `from` are left out.
 * Thoughts before an answer, with their marks, go to `thought`; NULL: nowhere. */
struct grown_part { size_t from, upto; FILE *to, *thought; };
int  grown_more(struct grown_text *g, struct store *s, const struct job *job, const struct text_reader *r,
                const struct grown_part *part, struct err *e);
/* The same for the end of a text whose job is done, after all tokens; then replay_check. */
int  grown_end(struct grown_text *g, const struct job *job, const struct grown_part *part, struct err *e);
void grown_close(struct grown_text *g);

/* The text of the first job->tokens tokens. Tokens that the store received after *job was read are left out,
 * so the text agrees with the other fields of *job. A tail that may still become a stop string or a complete
 * code point is left out, unless the job is done. Then replay_check compares the text. After a failure *t is
 * closed. */
int  job_read_text(struct text_reader *r, struct store *s, const struct job *job, struct placed_text *t,
                   struct err *e);
void placed_text_free(struct placed_text *t);
/* Moves *at to the next place of the phrase, which is not empty: at first to the first one. `token` is the
 * token with the phrase's first byte. {0} is before the text, and { .byte = N } before its byte N. */
struct text_place { size_t token, byte, n; };            /* n: how many places were found */
bool placed_text_find(const struct placed_text *t, const char *phrase, struct text_place *at);
