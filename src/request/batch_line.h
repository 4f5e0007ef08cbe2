/* One line of a batch file -> a request: the body's fields in the places of the command line's options, and the prompt.
 *
 *     {"custom_id": "a", "method": "POST", "url": "/v1/completions" | "/v1/chat/completions", "body": {..}, "metadata": ..}
 *
 * Fields have the names of OpenAI's and vLLM's APIs and the ranges of the options they stand for; null is as good as none. What a field that is
 * not implemented would do to the text decides: if it may change it, any value but the neutral one is an error; if it cannot (`user`,
 * `stream`, `logprobs`, ..) it is noted and passed over. An unknown field may change anything, so it is an error.
 *
 *     prompt                    text or token ids (no BOS is added to these); an array of one prompt is that prompt. Several are an
 *                               error: a custom_id names one request, whose choices are the samples of one text
 *     messages                  chat: role and content, a text or an array of text parts, which are joined by newlines as vLLM does
 *     max_tokens, max_completion_tokens (wins)    --tokens            n     --samples          seed   --seed, for this line alone
 *     temperature top_p top_k min_p eta min_keep presence_penalty frequency_penalty min_tokens ignore_eos on_loop
 *     dry_multiplier dry_base dry_allowed_length dry_penalty_last_n   as the options
 *     repetition_penalty, repeat_penalty   --penalty                  repeat_last_n, penalty_window    --penalty-window
 *     stop, logit_bias, dry_sequence_breakers     instead of the command line's; [] is none
 *     add_special_tokens        completions: false leaves BOS away
 *     add_generation_prompt, continue_final_message (then the former is false by itself), chat_template (a name of src/text/chat.h, or the text of a
 *     known one), chat_template_kwargs {enable_thinking, date_string}
 *     metadata                  here or beside custom_id; comes back in exports
 *
 * Errors name the file, the line, the field, the offset in the line and what is allowed. */
#pragma once
#include "src/base/json.h"
#include "src/request/options.h"
#include "src/text/chat.h"
#include "src/text/emit.h"

enum { BATCH_TEXTS_MAX = STOP_STRINGS_MAX, BATCH_CUSTOM_ID_BYTES_MAX = 512 };

struct batch_line {
    /* the command line's, with the body's fields in their places; lists point into this struct */
    struct options o;
    bool chat;
    char *custom_id;                 /* strings lie in `room` */
    char *model;                     /* of the body; NULL: none */
    struct json prompt;              /* completions: a string or an array; s == NULL: there is none. Borrows the line */
    struct json messages;            /* chat: an array; likewise */
    bool no_specials;                /* add_special_tokens is false */
    struct chat_options how;
    bool seeded, thinks;             /* `seed` is there; enable_thinking is */
    char *template;                  /* name; NULL: the model's own */
    const char *metadata; size_t n_metadata;     /* JSON as it stands in the line; NULL: none */
    struct json body;                /* what tells requests apart */
    const char *stop[BATCH_TEXTS_MAX], *breaker[BATCH_TEXTS_MAX], *bias[1];
    char *room; size_t used, size;
};

/* fields that were passed over, by number; lines with any */
struct batch_notes { uint64_t ignored; size_t lines; };

/* text[0..n) is borrowed; `where` ("in.jsonl: line 7") begins messages and must live as long as l. batch_line_close also after a failure. */
int batch_line_read(struct batch_line *l, const struct options *o, const char *where, const char *text,
                    size_t n, struct batch_notes *notes, struct err *e);
void batch_line_close(struct batch_line *l);
/* The names of passed-over fields: "user, stream". */
void batch_notes_text(char *out, size_t size, const struct batch_notes *n);

/* The messages of a chat; free(*m). Strings lie in the line. */
int  batch_line_messages(struct batch_line *l, struct chat_message **m, size_t *n, struct err *e);
/* A prompt of token ids, below vocab: 1, *ids to be freed; a text: 0, NUL-terminated in the line; -1. */
int batch_line_prompt(struct batch_line *l, size_t vocab, int32_t **ids, size_t *n_ids, const char **text,
                      size_t *n_text, struct err *e);
/* What makes a second request of the same custom_id the same: url and body without null fields, whatever the order of members and the
 * white space. free(*bytes). */
int  batch_line_identity(const struct batch_line *l, char **bytes, size_t *n, struct err *e);
