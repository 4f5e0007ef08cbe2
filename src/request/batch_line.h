/* One line of a batch file -> a request: the body's fields take the places of the command line's options,
 * plus the prompt.
 *
 *     {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {..}, "metadata": ..}
 *     {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": {..}}
 *     {"prompt": .., "custom_id": "c", "metadata": ..}           only the prompt, or
 *     {"messages": [..], "max_tokens": 90}                       only the messages are needed
 *
 * The short lines have the fields of a body beside custom_id and metadata. With --chat the prompt of such a
 * line is the message of a user, after --system. method and url may be missing: with messages the line is a
 * chat.
 *
 * A chapter has, beside custom_id, "after": the custom_id of another line or @NAME/custom_id, "carry": N and
 * "append": TEXT (struct chapter_spec). Its prompt may be missing.
 *
 * Fields have the names of OpenAI's and vLLM's APIs and the ranges of the options they stand for. null is
 * as good as a missing field. A field that longhand does not implement is an error if it may change the
 * answer (`echo`, ..), unless its value is neutral; a field that cannot change the answer
 * (`user`, `stream`, ..) is noted and ignored. An unknown field may change anything, so it is an error.
 *
 * Fields are rows of three tables: those with a column in job_fields.h, those that stand for an option in
 * options_table.c (BODY, SAMPLED or `fields`), the rest in line_fields.c. `longhand help batch` prints them.
 * Several prompts in `prompt`
 * are an error: a custom_id names one request with samples of one text. max_completion_tokens overrides
 * max_tokens. Lists (`stop`, ..) replace those of the command line; [] means none.
 *
 * Errors name the file, the line, the field, the offset in the line, and what is allowed. */
#pragma once
#include "runs/store/job_fields.h"
#include "runs/store/store.h"
#include "src/base/json.h"
#include "src/request/options.h"
#include "src/text/chat.h"

enum { LINE_LISTS_MAX = 8, BATCH_CUSTOM_ID_BYTES_MAX = 512 };

struct batch_line {
    struct options o;                /* the command line's, overridden by the body's fields */
    struct job_spec job;             /* what the line says of the job itself: custom_id (NULL: a line without
                                      * one), model, metadata, chapter. Texts are in `room` */
    bool chat;
    struct json prompt; /* completions: a string or an array; s == NULL: none. Borrows the line */
    bool no_specials;                /* add_special_tokens is false */
    struct chat_input in;            /* chat: what the body says; borrows the line */
    bool prompt_given;               /* add_generation_prompt is */
    int thinking;                    /* enum chat_thinking of the body; CHAT_THINKING_OWN: as --thinking */
    bool seeded;                     /* the body has `seed` */
    int logprobs; int64_t top;       /* logprobs: 1 and 0 as in a chat; -1: not given. top_logprobs */
    const char *template;            /* the name or the text of a template; NULL: as --chat-template */
    char *kwargs;                    /* chat_template_kwargs as JSON; NULL: none */
    struct json body; bool plain;    /* plain: the line itself, with custom_id and metadata */
    bool served;                     /* a body alone */
    const struct line_field *field;  /* that is read now */
    uint64_t ignored;                /* as in batch_notes */
    const char **list[LINE_LISTS_MAX]; size_t n_lists;   /* of the options that are lists; malloc'ed */
    char *room; size_t used, size;
};

/* the fields that were ignored, one bit each, and the number of lines with any; the lines without a length,
 * and those of them that have less than the context because of the memory */
struct batch_notes { uint64_t ignored; size_t lines, no_length, less; };

/* Reads text[0..n), which is borrowed. `where` ("in.jsonl: line 7") begins messages and must live as long
 * as l. Call batch_line_close after a failure, too. */
int batch_line_read(struct batch_line *l, const struct options *o, const char *where, const char *text,
                    size_t n, struct batch_notes *notes, struct err *e);
/* The same of a body alone, as a server gets it: of /v1/chat/completions or /v1/completions. */
int batch_line_read_body(struct batch_line *l, const struct options *o, bool chat, const char *where,
                         const char *text, size_t n, struct batch_notes *notes, struct err *e);
void batch_line_close(struct batch_line *l);
/* Where a field of this name may stand and what it is: FIELD_* of job_fields.h; 0: there is none. */
unsigned batch_line_field(const char *name);
/* Prints the fields of a line and what they stand for: longhand help batch. */
void batch_line_help(FILE *f);
/* The names of the ignored fields: "user, stream". */
void batch_notes_text(char *out, size_t size, const struct batch_notes *n);

/* The prompt. 1: token ids below vocab, free(*ids); 0: a text with a NUL, which the line owns; -1. */
int batch_line_prompt(struct batch_line *l, size_t vocab, int32_t **ids, size_t *n_ids, const char **text,
                      size_t *n_text, struct err *e);
/* Token ids from 0 to `most`, of a JSON array; free(*ids). */
int batch_line_ids(const struct json *v, size_t most, int32_t **ids, size_t *n_ids, struct err *e);
/* The identity of a request: two requests of one custom_id are equal if their bytes are. It consists of
 * the url and of the body's fields that are not null, and of those of a chapter, and does not depend on the
 * order of members, on white space, or on the form of a whole number (4.0 is 4). That of a body alone is
 * without `stream` and `stream_options`. free(*bytes). */
int  batch_line_identity(const struct batch_line *l, char **bytes, size_t *n, struct err *e);
