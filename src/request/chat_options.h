/* Chats: the options of --chat and the prompt that they make, which command lines and batch lines share, and
 * the form in which a job stores the chat. */
#pragma once
#include "src/request/options.h"
#include "src/text/chat.h"

/* The form of a prompt, as the job stores it. */
struct chat_facts {
    char template[CHAT_NAME_BYTES];  /* struct chat: name; "": no chat */
    char day[16];                    /* 2024-07-26; "": the prompt does not depend on the day */
    const char *thought_start, *thought_end;     /* the marks of a thought; NULL: the template has none */
};

/* The prompt of a chat: what the model reads as text and ids, and what the user wrote; chat_prompt_free. */
struct chat_prompt {
    char *text; size_t n;
    char *user; size_t n_user;
    int32_t *ids; size_t n_ids;
    struct chat_facts facts;
    char *json;                      /* as a job stores it; NULL after chat_prompt_make alone */
};
void chat_prompt_free(struct chat_prompt *p);

/* ERR_INPUT for an option of --chat without --chat and --messages, and for --messages beside a prompt. */
int chat_check_options(const struct options *o, struct err *e);
/* What --thinking, --chat-date and --chat-template-kwargs say. The input borrows from o. */
int chat_input_of(struct chat_input *in, const struct options *o, struct err *e);
/* Renders and encodes. What the template and the model do not know becomes notices, unless there are some
 * already. */
struct chat_notes { char variables[700], marks[700]; };
int chat_prompt_make(struct chat_prompt *p, const struct chat *c, const struct tokenizer *t,
                     const struct chat_input *in, struct chat_notes *notes, struct err *e);
void chat_notes_print(const struct chat_notes *notes, const struct options *o);

/* A chat as a job stores it, so that a chapter can go on with it: a JSON object with the messages, and with
 * everything else that decides the prompt (struct chat_input, the template).
 *
 *     {"before": [..], "messages": [..], "template": .., ..}
 *
 * "messages" are those of the request. "before" are the messages of the jobs before a chapter, with their
 * answers; its own messages follow them. If those begin with a system message and "before" does not, that
 * message stays the first one. */

/* template: as in chat_open; NULL: the model's own. *json: for free. */
int conversation_put(char **json, const struct chat_input *in, const char *template, enum chat_source source,
                     struct err *e);
/* The chat `own` after the chat `before`, or NULL for none, and the turns that follow it. */
struct chat_turn { const char *role, *text; size_t n; };
int conversation_continue(char **json, const char *own, const char *before, const struct chat_turn *turn,
                          size_t turns, struct err *e);
/* The prompt of a chat. dir: of the model. */
int conversation_render(struct chat_prompt *p, const char *json, const char *dir, const struct tokenizer *t,
                        struct err *e);
/* The prompt and the stored form, with notices on standard error, of a command line with --chat, whose prompt
 * is text[0..n), or with --messages. dir: of the model. */
int conversation_open(struct chat_prompt *p, const char *dir, const struct tokenizer *t,
                      const struct options *o, const char *text, size_t n, struct err *e);
