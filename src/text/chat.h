/* Messages of a chat -> the prompt that a model's own chat template makes of them, as text or token ids.
 *
 *     struct chat c;
 *     if (chat_open(&c, dir, NULL, e)) ...                        recognises the model's template
 *     struct chat_message m[] = { { "user", text, n } };
 *     if (chat_encode(&c, tokenizer, m, 1, &(struct chat_options){ .add_generation_prompt = true }, &ids, &n_ids, e)) ...
 *     chat_close(&c);
 *
 * A chat template is a Jinja program. It is not interpreted here: the well-known ones are written in C (src/text/chat.c), one function
 * for each layout, and a model's template is recognised by the SHA-256 of its whole text, nothing less. A template that looks like a
 * known one but differs in a default system message, a space or a newline makes other prompts, which a model answers worse and nobody
 * notices; so what is not known byte for byte is refused with the list of names, and --chat-template NAME takes one of them. The only
 * freedom is what Jinja itself does to a source before it reads it: line ends become \n, one newline at the very end is dropped.
 * Each function equals transformers' apply_chat_template (text, ids, refusals) on the cases of tests/data/chat, which
 * scripts/make_chat_fixtures.py renders with the real templates.
 *
 * What follows from being equal to transformers:
 * - The template writes BOS or does not; the tokenizer adds nothing (add_special_tokens=False), so BOS never comes twice, and
 *   ChatML and Zephyr prompts have none.
 * - Special tokens that stand in the content of a message ("<|im_end|>") become those tokens (transformers' default,
 *   sanitize_control_tokens=False): whoever passes on texts of strangers must take them out, here as there.
 * - Refusals of a template carry its own words ("Conversation roles must alternate user/assistant/...").
 * Roles are system, user and assistant; tool calls and their results are refused.
 *
 * The date line of Llama 3.1 is that of the template, 26 Jul 2024, unless one is given. Llama 3.2's template takes the day of the
 * call where it can; here it is the same fixed date, because a text must not depend on the day it is made. */
#pragma once
#include "src/text/tokenizer.h"

/* All names. */
#define CHAT_NAMES "chatml, chatml-bos, llama2, llama3, llama3-first, llama3.1, mistral-v0.1, mistral-v0.2, mistral-v1, mistral-v3, " \
    "mistral-v3-tekken, mistral-v7, qwen1.5, qwen2, qwen2.5, qwen3, vicuna, vicuna-lines, zephyr"

struct chat_message { const char *role, *content; size_t n_content; };      /* content: UTF-8 */

struct chat_options {
    bool add_generation_prompt;      /* end with the opening of the assistant's turn */
    bool continue_final_message;     /* leave the last message open, to be gone on with; not both */
    bool no_thinking;                /* qwen3: enable_thinking=false */
    const char *date;                /* llama3.1: like "26 Jul 2024"; NULL: that */
};

/* {0} is closed; bos, eos: NULL where the model has none */
struct chat { const struct chat_template *t; char *bos, *eos; };

/* The template `name`, or with NULL that of the model directory: chat_template.jinja, else chat_template in tokenizer_config.json (of
 * several the one called "default"), else chat_template.json. ERR_INPUT with one line when it is unknown or there is none. */
int  chat_open(struct chat *c, const char *dir, const char *name, struct err *e);
void chat_close(struct chat *c);
const char *chat_name(const struct chat *c);
/* Whether no_thinking and date mean something to the template; the others pass over them. */
bool chat_has_thinking(const struct chat *c);
bool chat_has_date(const struct chat *c);

/* The name that a template's text has, or that of a normalised text's SHA-256 in hexadecimal; NULL: unknown. */
const char *chat_template_name(const char *text, size_t n);
const char *chat_template_name_of_hash(const char *sha256);

/* The prompt as text, NUL-terminated, free(*text). A refusal is ERR_INPUT. */
int chat_render(const struct chat *c, const struct chat_message *m, size_t n, const struct chat_options *o,
                char **text, size_t *size, struct err *e);
/* As token ids, free(*ids); none at all is ERR_INPUT. */
int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, size_t n,
                const struct chat_options *o, int32_t **ids, size_t *n_ids, struct err *e);
