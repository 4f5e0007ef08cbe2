/* A chat as a job stores it, so that a chapter can go on with it: a JSON object with the messages, and with
 * everything else that decides the prompt (struct chat_input, the template).
 *
 *     {"before": [..], "messages": [..], "template": .., ..}
 *
 * "messages" are those of the request. "before" are the messages of the jobs before a chapter, with their
 * answers; its own messages follow them. If those begin with a system message and "before" does not, that
 * message stays the first one. */
#pragma once
#include "src/request/chat_options.h"

/* template: as in chat_open; NULL: the model's own. *json: for free. */
int conversation_put(char **json, const struct chat_input *in, const char *template, enum chat_source source,
                     struct err *e);
/* The chat `own` after an answer; NULL: there is none. before: the chat that was answered; NULL: its messages
 * are left out. */
int conversation_continue(char **json, const char *own, const char *before, const char *answer, size_t n,
                          struct err *e);
/* A chat of one message of a user. */
int conversation_of_user(char **json, const char *text, size_t n, struct err *e);
/* The prompt of a chat. dir: of the model. */
int conversation_render(struct chat_prompt *p, const char *json, const char *dir, const struct tokenizer *t,
                        struct err *e);
/* The prompt and the stored form, with notices on standard error, of a command line with --chat, whose prompt
 * is text[0..n), or with --messages. dir: of the model. */
int conversation_open(struct chat_prompt *p, const char *dir, const struct tokenizer *t,
                      const struct options *o, const char *text, size_t n, struct err *e);
