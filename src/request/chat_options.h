/* The options of --chat, and the prompt that they make. Command lines and batch lines share them. */
#pragma once
#include "src/request/options.h"
#include "src/text/chat.h"

/* The form of a prompt, as the job stores it. */
struct chat_facts {
    char template[CHAT_NAME_BYTES];  /* struct chat: name; "": no chat */
    char day[16];                    /* 2024-07-26; "": the prompt does not depend on the day */
    const char *thought_start, *thought_end;     /* the marks of a thought; NULL: the template has none */
};

/* The prompt of a chat: what the model reads as text and ids, and what the user wrote; the caller frees them.
 */
struct chat_prompt {
    char *text; size_t n;
    char *user; size_t n_user;
    int32_t *ids; size_t n_ids;
    struct chat_facts facts;
    char *json;                      /* as a job stores it (conversation.h); of conversation_open alone */
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
