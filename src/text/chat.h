/* Chat messages -> the prompt that a model's own chat template makes of them, as text or token ids.
 *
 *     struct chat c;
 *     if (chat_open(&c, dir, NULL, e)) ...                        recognises the model's template
 *     struct chat_message m[] = { { "user", text, n } };
 *     struct chat_options o = { .add_generation_prompt = true };
 *     if (chat_encode(&c, tokenizer, m, 1, &o, &ids, &n_ids, e)) ...
 *     chat_close(&c);
 *
 * A chat template is a Jinja program, and src/text/jinja runs it. A table (src/text/chat.c) describes the
 * well-known templates, which --chat-template names; a model's template that is one of them byte for byte is
 * recognised by the SHA-256 of its text, and the table stands for it. The text of a job must not change, and
 * the date of such a template is fixed.
 *
 * Each template of the table equals transformers' apply_chat_template (text, ids, refusals) on the cases of
 * tests/data/chat. tests/make/make_chat_fixtures.py renders those cases with the real templates.
 *
 * Equality with transformers has these consequences:
 *   - The template writes BOS or does not. The tokenizer adds no special token (add_special_tokens=False), so
 *     BOS never occurs twice, and ChatML and Zephyr prompts have none.
 *   - Special tokens in the content of a message ("<|im_end|>") become those tokens (transformers' default,
 *     sanitize_control_tokens=False). A caller that passes on texts of strangers must remove them.
 *   - Refusals of a template have its own words ("Conversation roles must alternate user/assistant/...").
 *
 * Roles of the table are system, user and assistant. Tool calls and their results are refused.
 *
 * The date line of Llama 3.1 is the template's 26 Jul 2024 unless the caller gives another. Llama 3.2's
 * template takes the day of the call if it can. longhand uses the same fixed date for it, because a text
 * must not depend on the day it is made. */
#pragma once
#include "src/text/tokenizer.h"

/* All names. */
#define CHAT_NAMES \
    "chatml, chatml-bos, llama2, llama3, llama3-first, llama3.1, mistral-v0.1, mistral-v0.2, mistral-v1, " \
    "mistral-v3, mistral-v3-tekken, mistral-v7, qwen1.5, qwen2, qwen2.5, qwen3, qwen3.5, " \
    "qwen3.5-small, qwen3.8, vicuna, vicuna-lines, zephyr"

struct chat_message { const char *role, *content; size_t n_content; };      /* content: UTF-8 */

/* enable_thinking: the template's own value, true, or false. */
enum chat_thinking { CHAT_THINKING_OWN, CHAT_THINKING_ON, CHAT_THINKING_OFF };

struct chat_options {
    bool add_generation_prompt;      /* end with the opening of the assistant's turn */
    bool continue_final_message;     /* leave the last message open; excludes the option above */
    int thinking;                    /* enum chat_thinking, for Qwen3 and later */
    const char *date;                /* llama3.1; NULL: "26 Jul 2024" */
};

enum { CHAT_NAME_BYTES = 65 };

/* {0} is closed. bos, eos: NULL if the model has none. t: of the table; NULL: `own`, a program. */
struct chat {
    const struct chat_template *t;
    struct jinja *own; char *file;
    char *bos, *eos;
    char sha256[CHAT_NAME_BYTES];    /* of the text of `own` */
};

/* Opens the template `name`. With NULL it opens the template of the model directory: chat_template.jinja,
 * else chat_template in tokenizer_config.json (of several, the one called "default"), else
 * chat_template.json. ERR_INPUT with one line if the name is unknown, the template has a fault, or there is
 * none. */
int  chat_open(struct chat *c, const char *dir, const char *name, struct err *e);
/* The text of the model's own template; NULL if it has none. The caller frees it. */
int  chat_template_text(char **text, const char *place, struct err *e);
void chat_close(struct chat *c);
/* The name of a template of the table; else the SHA-256 of its text. */
const char *chat_name(const struct chat *c);
/* Whether the template uses thinking and date. Other templates ignore these options. */
bool chat_has_thinking(const struct chat *c);
bool chat_has_date(const struct chat *c);
/* Whether the template `name` has enable_thinking true, unless the caller says otherwise. */
bool chat_thinks(const char *name);

/* The name of the template with this text, or with this SHA-256 (hexadecimal) of its normalised text; NULL
 * if it is unknown. */
const char *chat_template_name(const char *text, size_t n);
const char *chat_template_name_of_hash(const char *sha256);

/* Renders the prompt as text, NUL-terminated; the caller frees *text. A refusal is ERR_INPUT. */
int chat_render(const struct chat *c, const struct chat_message *m, size_t n, const struct chat_options *o,
                char **text, size_t *size, struct err *e);
/* Renders the prompt as token ids; the caller frees *ids. An empty prompt is ERR_INPUT. */
int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, size_t n,
                const struct chat_options *o, int32_t **ids, size_t *n_ids, struct err *e);
