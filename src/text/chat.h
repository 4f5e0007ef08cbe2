/* Chat messages -> the prompt that a chat template makes of them, as text and token ids.
 *
 *     struct chat c;
 *     if (chat_open(&c, dir, NULL, CHAT_FILE, e)) ...             the model's own template
 *     struct chat_input in = { .messages = array, .add_generation_prompt = true };
 *     if (chat_render(&c, &in, &text, &n, e)) ...
 *     chat_close(&c);
 *
 * A chat template is a Jinja program, and src/text/jinja runs it. The prompt equals that of transformers'
 * apply_chat_template (scripts/check_templates.py, tests/make/make_chat_fixtures.py), and so do the
 * variables: messages, tools, documents, add_generation_prompt, the special tokens of the tokenizer by name,
 * and those of chat_template_kwargs. With equality come these consequences:
 *   - The template writes BOS or does not. The tokenizer adds no special token (add_special_tokens=False).
 *   - Special tokens in the content of a message ("<|im_end|>") become those tokens (transformers' default,
 *     sanitize_control_tokens=False). A caller that passes on texts of strangers must remove them.
 *   - Roles, and tools and their results, are what the template makes of them. Refusals of a template have
 * its own words ("Conversation roles must alternate user/assistant/...").
 *
 * Three things are more than transformers does, because clients of OpenAI's API need them:
 *   - The role `developer` is `system` for a template that does not name it.
 *   - A member of a message that is null or empty is dropped. Another member that neither OpenAI's API has
 * nor the template names is refused, because it would be lost.
 *   - Content is a text, or a list of parts {"type": "text", "text": ..}. The list stays a list if the
 * template loops over content; else newlines join its parts. */
#pragma once
#include "src/base/json.h"
#include "src/text/jinja/jinja.h"
#include "src/text/tokenizer.h"

/* The templates of src/text/chat_builtin.h, for models without one. */
#define CHAT_NAMES "chatml, llama2, llama3, mistral, gemma, vicuna, zephyr"

enum { CHAT_NAME_BYTES = 65 };

/* {0} is closed. */
struct chat {
    struct jinja *t, *tool_use;      /* tool_use: NULL unless the model has another template for tools */
    char *label;                     /* of messages: a file, or "chat template chatml" */
    char *tokens;                    /* JSON: the special tokens by name */
    char name[CHAT_NAME_BYTES];      /* of a built-in template; of others the SHA-256 of the text */
};

enum chat_thinking { CHAT_THINKING_OWN, CHAT_THINKING_ON, CHAT_THINKING_OFF, CHAT_EFFORT_LOW,
                     CHAT_EFFORT_MEDIUM, CHAT_EFFORT_HIGH };

extern const char *const chat_efforts[3];            /* "low", "medium", "high" */

/* What a template is given. A json with s == NULL is not given. */
struct chat_input {
    struct json messages;            /* an array of objects */
    struct json tools, documents;    /* arrays */
    struct json kwargs[2];           /* objects: more variables; those of the second override the first's */
    bool add_generation_prompt;      /* end with the opening of the assistant's turn */
    bool continue_final_message;     /* leave the last message open; excludes the option above */
    int thinking;                    /* on, off: enable_thinking and thinking; efforts: reasoning_effort */
    time_t day;                      /* of strftime_now, 00:00 in UTC */
    const char *date; /* the day as the user wrote it, for a template that names date_string; or NULL */
};

/* What chat_open accepts besides a name: a text, or a text and a file. */
enum chat_source { CHAT_TEXT, CHAT_FILE };

/* Opens a template: the name of a built-in one, a text (it contains a brace), or a file. With NULL it opens
 * the template of the model at `dir`: chat_template.jinja, else chat_template.json, else chat_template in
 * tokenizer_config.json. Of several in a file the one called "default" is used, and "tool_use" with tools.
 * ERR_INPUT with one line if there is none, or it has a fault. */
int  chat_open(struct chat *c, const char *dir, const char *template, enum chat_source source, struct err *e);
void chat_close(struct chat *c);
/* Whether `name` was the name of a built-in template of an older version, and is none now. */
bool chat_name_is_gone(const char *name);
/* The text of the model's own template; NULL if it has none. The caller frees it. */
int  chat_template_text(char **text, const char *place, struct err *e);

/* ERR_INPUT for tools, documents and calls of messages that a template which rendered them never names. */
int chat_check_places(const struct chat *c, const struct chat_input *in, struct err *e);
/* Renders the prompt, NUL-terminated; the caller frees *text. A refusal is ERR_INPUT. */
int chat_render(const struct chat *c, const struct chat_input *in, char **text, size_t *size, struct err *e);
/* Renders the prompt, and its token ids; the caller frees both. An empty prompt is ERR_INPUT. */
int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_input *in, char **text,
                size_t *size, int32_t **ids, size_t *n_ids, struct err *e);
/* Writes a message. */
struct json_writer;
void chat_put(struct json_writer *w, const char *role, const char *text, size_t n);
/* The messages of --system and --prompt: JSON that the caller frees. system: NULL for none. */
int chat_messages(char **json, struct json *messages, const char *system, const char *prompt, size_t n,
                  struct err *e);

/* What the user wrote: the messages of the role user, with a blank line between them; free(*text). */
int chat_user_text(const struct json *messages, char **text, size_t *n, struct err *e);

/* The day of a text like 2024-07-26 or 26 Jul 2024; with NULL today, in local time. `name` begins the
 * message. */
int chat_day(time_t *day, const char *name, const char *text, struct err *e);
/* Whether the prompt depends on the day. */
bool chat_has_day(const struct chat *c);
/* What begins and ends a thought in pair i of those that are known; NULL after the last. */
const char *const *chat_thought_pair(size_t i);
/* The texts that begin and end a thought, if the template has a pair that is known; else NULL. */
void chat_thought_marks(const struct chat *c, const char **start, const char **end);
/* A notice for the user of what the template never names: "chat template chatml never names enable_thinking".
 * Empty if there is nothing to say. */
void chat_notice(char *out, size_t size, const struct chat *c, const struct chat_input *in);
/* A notice of marks like <|im_end|> in the template that are no tokens of the model. */
void chat_marks_notice(char *out, size_t size, const struct chat *c, const struct tokenizer *t);
