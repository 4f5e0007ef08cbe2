/* Chat templates. A template is a struct chat_template with its writer function, which reads a struct
 * scene. The table `templates` lists all; src/text/chat_known.h maps hashes of real templates to their
 * names. Start at chat_open and chat_render. */
#include "src/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/sha256.h"
#include "src/base/json.h"
#include "src/base/memory_file.h"
#include "src/base/unicode.h"
#include "src/text/chat_known.h"

enum role { SYSTEM, USER, ASSISTANT };
static const char *const role_names[] = { "system", "user", "assistant" };

struct span { const char *s; size_t n; };
struct turn { enum role role; struct span text; };

/* The input of a template, and its output file. */
struct scene {
    const struct chat *c;
    const struct chat_options *o;
    const struct turn *m; size_t n;
    FILE *out;
};
typedef int write_fn(const struct scene *x, struct err *e);

struct chat_template {
    const char *name;
    write_fn *write;
    const char *system;              /* written if the chat has no system message */
    bool bos, eos;                   /* the template writes them */
    bool always;                     /* llama3: always opens the assistant's turn */
    const char *open, *close;        /* mistral: written around a user message */
    const char *before, *after;      /* mistral: written around an assistant message; `after` follows EOS */
    bool system_first;               /* mistral: the system message is in the first user turn */
    bool strips;                     /* mistral: answers are stripped */
};

/* ---- Python's strings ---- */

/* str.isspace */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static struct span strip_right(struct span t)
{
    while (t.n > 0) {
        uint32_t c;
        size_t p = t.n - 1;
        while (p > 0 && ((unsigned char)t.s[p] & 0xc0) == 0x80)
            p--;
        utf8_get(t.s + p, &c);
        if (!is_space(c))
            break;
        t.n = p;
    }
    return t;
}

static struct span strip(struct span t)
{
    while (t.n > 0) {
        uint32_t c;
        size_t n = utf8_get(t.s, &c);
        if (!is_space(c))
            break;
        t.s += n, t.n -= n;
    }
    return strip_right(t);
}

static struct span strip_newlines(struct span t, bool left, bool right)
{
    while (left && t.n > 0 && t.s[0] == '\n')
        t.s++, t.n--;
    while (right && t.n > 0 && t.s[t.n - 1] == '\n')
        t.n--;
    return t;
}

static const char *find(struct span t, const char *mark)
{
    return t.n ? memmem(t.s, t.n, mark, strlen(mark)) : NULL;
}

static const char *find_last(struct span t, const char *mark)
{
    const char *at = NULL;
    for (const char *p; (p = find(t, mark)) != NULL;) {
        at = p;
        t.n -= (size_t)(p + 1 - t.s);
        t.s = p + 1;
    }
    return at;
}

/* The text before the first `mark`, and the text after the last one. Without a mark: the whole text. */
static struct span before_first(struct span t, const char *mark)
{
    const char *p = find(t, mark);
    return p ? (struct span){ t.s, (size_t)(p - t.s) } : t;
}
static struct span after_last(struct span t, const char *mark)
{
    const char *p = find_last(t, mark);
    return p ? (struct span){ p + strlen(mark), (size_t)(t.s + t.n - p) - strlen(mark) } : t;
}

/* ---- writing ---- */

static void put(const struct scene *x, const char *s) { fputs(s, x->out); }
static void put_text(const struct scene *x, struct span t) { fwrite(t.s, 1, t.n, x->out); }
static void put_bos(const struct scene *x) { put(x, x->c->bos); }
static void put_eos(const struct scene *x) { put(x, x->c->eos); }

static int refuse(const struct scene *x, const char *words, struct err *e)
{
    return err_set(e, ERR_INPUT, "chat template %s: %s", x->c->t->name, words);
}

/* The system message at the front, or NULL. *from: the index of the next message. */
static const struct span *front_system(const struct scene *x, size_t *from)
{
    *from = x->m[0].role == SYSTEM;
    return *from ? &x->m[0].text : NULL;
}

/* Whether message i keeps the order user, assistant, user, .. counted from message `from`. */
static bool in_turns(const struct scene *x, size_t i, size_t from)
{
    return (x->m[i].role == USER) == ((i - from) % 2 == 0);
}

static void put_chatml_turn(const struct scene *x, const char *role, struct span text)
{
    put(x, "<|im_start|>");
    put(x, role);
    put(x, "\n");
    put_text(x, text);
    put(x, "<|im_end|>\n");
}

/* ---- the templates ---- */

/* ChatML; Qwen2 and Qwen2.5 add a default system message. */
static int write_chatml(const struct scene *x, struct err *e)
{
    (void)e;
    const char *system = x->c->t->system;
    if (x->c->t->bos && x->m[0].role != ASSISTANT)
        put_bos(x);
    if (system && x->m[0].role != SYSTEM)
        put_chatml_turn(x, "system", (struct span){ system, strlen(system) });
    for (size_t i = 0; i < x->n; i++)
        put_chatml_turn(x, role_names[x->m[i].role], x->m[i].text);
    if (x->o->add_generation_prompt)
        put(x, "<|im_start|>assistant\n");
    else if (x->c->t->bos && x->m[x->n - 1].role == ASSISTANT)
        put_eos(x);
    return 0;
}

/* Qwen3 keeps the assistant's thoughts only after the last question. There it writes the thought block
 * even if it is empty. */
static void put_qwen3_answer(const struct scene *x, size_t i, bool after_question)
{
    struct span text = x->m[i].text, thoughts = { "", 0 };
    if (find(text, "</think>")) {
        thoughts = strip_newlines(before_first(text, "</think>"), false, true);
        thoughts = strip_newlines(after_last(thoughts, "<think>"), true, false);
        text = strip_newlines(after_last(text, "</think>"), true, false);
    }
    put(x, "<|im_start|>assistant\n");
    if (after_question && (i + 1 == x->n || thoughts.n > 0)) {
        put(x, "<think>\n");
        put_text(x, strip_newlines(thoughts, true, true));
        put(x, "\n</think>\n\n");
        text = strip_newlines(text, true, false);
    }
    put_text(x, text);
    put(x, "<|im_end|>\n");
}

static bool is_tool_response(struct span t)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    return t.n >= n_open && t.n >= n_close && !memcmp(t.s, open, n_open) &&
           !memcmp(t.s + t.n - n_close, close, n_close);
}

static int write_qwen3(const struct scene *x, struct err *e)
{
    (void)e;
    size_t question = x->n - 1;
    for (size_t i = x->n; i-- > 0;)
        if (x->m[i].role == USER && !is_tool_response(x->m[i].text)) {
            question = i;
            break;
        }
    for (size_t i = 0; i < x->n; i++)
        if (x->m[i].role == ASSISTANT)
            put_qwen3_answer(x, i, i > question);
        else
            put_chatml_turn(x, role_names[x->m[i].role], x->m[i].text);
    if (x->o->add_generation_prompt)
        put(x,
            x->o->no_thinking ? "<|im_start|>assistant\n<think>\n\n</think>\n\n" : "<|im_start|>assistant\n");
    return 0;
}

/* Llama 2 writes the system message inside the first user turn. Later ones write nothing, as in the
 * original. */
static int write_llama2(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    for (size_t i = from; i < x->n; i++) {
        struct span text = x->m[i].text;
        if (!in_turns(x, i, from))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == USER) {
            put_bos(x);
            put(x, "[INST] ");
            /* the original strips system and user text together, so the user text only on the right */
            if (i == from && system) {
                text = strip_right(text);
                put(x, "<<SYS>>\n");
                put_text(x, *system);
                put(x, text.n > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
            } else {
                text = strip(text);
            }
            put_text(x, text);
            put(x, " [/INST]");
        } else if (x->m[i].role == ASSISTANT) {
            put(x, " ");
            put_text(x, strip(text));
            put(x, " ");
            put_eos(x);
        }
    }
    return 0;
}

static void put_llama3_turn(const struct scene *x, const struct turn *t)
{
    put(x, "<|start_header_id|>");
    put(x, role_names[t->role]);
    put(x, "<|end_header_id|>\n\n");
    put_text(x, strip(t->text));
    put(x, "<|eot_id|>");
}

static void open_llama3_answer(const struct scene *x)
{
    if (x->o->add_generation_prompt || x->c->t->always)
        put(x, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static int write_llama3(const struct scene *x, struct err *e)
{
    (void)e;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++)
        put_llama3_turn(x, &x->m[i]);
    open_llama3_answer(x);
    return 0;
}

static int write_llama31(const struct scene *x, struct err *e)
{
    (void)e;
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    put(x,
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ");
    put(x, x->o->date ? x->o->date : "26 Jul 2024");
    put(x, "\n\n");
    if (system)
        put_text(x, strip(*system));
    put(x, "<|eot_id|>");
    for (size_t i = from; i < x->n; i++)
        put_llama3_turn(x, &x->m[i]);
    open_llama3_answer(x);
    return 0;
}

/* Mistral without system messages (v0.1 and v0.2 of the 7B, Mixtral). */
static int write_mistral_plain(const struct scene *x, struct err *e)
{
    const struct chat_template *t = x->c->t;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++) {
        if (!in_turns(x, i, 0))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == SYSTEM)
            return refuse(x, "Only user and assistant roles are supported!", e);
        put(x, x->m[i].role == USER ? t->open : t->before);
        put_text(x, x->m[i].text);
        if (x->m[i].role == ASSISTANT)
            put_eos(x);
        put(x, x->m[i].role == USER ? t->close : t->after);
    }
    return 0;
}

/* Mistral v1 writes the system message into the first user turn. v3 and v3-tekken write it into the last
 * message if that is the user's, and else drop it. v1 checks one message after the other; the others check
 * the order first. */
static int write_mistral(const struct scene *x, struct err *e)
{
    static const char order[] = "After the optional system message, conversation roles must alternate "
                                "user/assistant/user/assistant/...";
    const struct chat_template *t = x->c->t;
    size_t from;
    const struct span *system = front_system(x, &from);
    for (size_t i = from; i < x->n && !t->system_first; i++)
        if (!in_turns(x, i, from))
            return refuse(x, order, e);
    put_bos(x);
    for (size_t i = from; i < x->n; i++) {
        const bool user = x->m[i].role == USER;
        if (!in_turns(x, i, from))
            return refuse(x, order, e);
        if (x->m[i].role == SYSTEM)
            return refuse(x,
                          "Only user and assistant roles are supported, with the exception of an initial "
                          "optional system message!",
                          e);
        put(x, user ? t->open : t->before);
        if (user && system && i == (t->system_first ? from : x->n - 1)) {
            put_text(x, *system);
            put(x, "\n\n");
        }
        put_text(x, !user && t->strips ? strip(x->m[i].text) : x->m[i].text);
        if (user)
            put(x, t->close);
        else
            put_eos(x);
    }
    return 0;
}

/* Mistral v7 has a turn for system messages, which may stand anywhere, and checks no order. */
static int write_mistral_v7(const struct scene *x, struct err *e)
{
    (void)e;
    const struct chat_template *t = x->c->t;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++) {
        const enum role r = x->m[i].role;
        put(x, r == USER ? t->open : r == SYSTEM ? "[SYSTEM_PROMPT] " : t->before);
        put_text(x, x->m[i].text);
        if (r == ASSISTANT)
            put_eos(x);
        else
            put(x, r == USER ? t->close : "[/SYSTEM_PROMPT]");
    }
    return 0;
}

/* Vicuna v1.1 and later, as FastChat writes it (the models ship no template): one line, turns separated by
 * spaces. */
static int write_vicuna(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    put_text(x, system ? *system : (struct span){ x->c->t->system, strlen(x->c->t->system) });
    put(x, " ");
    for (size_t i = from; i < x->n; i++) {
        if (!in_turns(x, i, from) || x->m[i].role == SYSTEM)
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        put(x, x->m[i].role == USER ? "USER: " : "ASSISTANT: ");
        put_text(x, x->m[i].text);
        if (x->m[i].role == USER)
            put(x, " ");
        else
            put_eos(x);
    }
    if (x->o->add_generation_prompt)
        put(x, "ASSISTANT:");
    return 0;
}

/* Another template in use for Vicuna: one line for each turn. A system message in the middle writes
 * nothing. */
static int write_vicuna_lines(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    if (system) {
        put_text(x, strip(*system));
        put(x, "\n\n");
    }
    for (size_t i = from; i < x->n; i++) {
        if (!in_turns(x, i, from))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == SYSTEM)
            continue;
        put(x, x->m[i].role == USER ? "USER: " : "ASSISTANT: ");
        put_text(x, strip(x->m[i].text));
        if (x->m[i].role == ASSISTANT)
            put_eos(x);
        put(x, "\n");
    }
    if (x->o->add_generation_prompt)
        put(x, "ASSISTANT:");
    return 0;
}

static int write_zephyr(const struct scene *x, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < x->n; i++) {
        put(x, x->m[i].role == SYSTEM ? "<|system|>\n"
               : x->m[i].role == USER ? "<|user|>\n"
                                      : "<|assistant|>\n");
        put_text(x, x->m[i].text);
        put_eos(x);
        put(x, "\n");
    }
    if (x->o->add_generation_prompt)
        put(x, "<|assistant|>\n");
    return 0;
}

static const struct chat_template templates[] = {
    { .name = "chatml", .write = write_chatml },
    { .name = "chatml-bos", .write = write_chatml, .bos = true, .eos = true },
    { .name = "llama2", .write = write_llama2, .bos = true, .eos = true },
    { .name = "llama3", .write = write_llama3, .bos = true },
    { .name = "llama3-first", .write = write_llama3, .bos = true, .always = true },
    { .name = "llama3.1", .write = write_llama31, .bos = true },
    { .name = "mistral-v0.1", .write = write_mistral_plain, .bos = true, .eos = true, .open = "[INST] ",
      .close = " [/INST]", .before = "", .after = " " },
    { .name = "mistral-v0.2", .write = write_mistral_plain, .bos = true, .eos = true, .open = "[INST] ",
      .close = " [/INST]", .before = "", .after = "" },
    { .name = "mistral-v1", .write = write_mistral, .bos = true, .eos = true, .open = " [INST] ",
      .close = " [/INST]", .before = " ", .system_first = true },
    { .name = "mistral-v3", .write = write_mistral, .bos = true, .eos = true, .open = "[INST] ",
      .close = "[/INST]", .before = " ", .strips = true },
    { .name = "mistral-v3-tekken", .write = write_mistral, .bos = true, .eos = true, .open = "[INST]",
      .close = "[/INST]", .before = "" },
    { .name = "mistral-v7", .write = write_mistral_v7, .bos = true, .eos = true, .open = "[INST] ",
      .close = "[/INST]", .before = " " },
    { .name = "qwen1.5", .write = write_chatml, .system = "You are a helpful assistant" },
    { .name = "qwen2", .write = write_chatml, .system = "You are a helpful assistant." },
    { .name = "qwen2.5", .write = write_chatml,
      .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant." },
    { .name = "qwen3", .write = write_qwen3 },
    { .name = "vicuna", .write = write_vicuna, .bos = true, .eos = true,
      .system = "A chat between a curious user and an artificial intelligence assistant. "
      "The assistant gives helpful, detailed, and polite answers to the user's questions." },
    { .name = "vicuna-lines", .write = write_vicuna_lines, .bos = true, .eos = true },
    { .name = "zephyr", .write = write_zephyr, .eos = true },
};

/* ---- recognising a template ---- */

static const struct chat_template *by_name(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

const char *chat_name(const struct chat *c) { return c->t->name; }
bool chat_has_thinking(const struct chat *c) { return c->t->write == write_qwen3; }
bool chat_has_date(const struct chat *c) { return c->t->write == write_llama31; }

const char *chat_template_name_of_hash(const char *sha256)
{
    for (size_t i = 0; i < sizeof chat_known / sizeof *chat_known; i++)
        if (strcmp(chat_known[i].sha256, sha256) == 0)
            return chat_known[i].name;
    return NULL;
}

const char *chat_template_name(const char *text, size_t n)
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    if (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n -= 1 + (n > 1 && text[n - 1] == '\n' && text[n - 2] == '\r');
    sha256_start(&h);
    for (size_t i = 0; i < n;) {                 /* hashes lines with \n between them */
        size_t end = i;
        while (end < n && text[end] != '\r')
            end++;
        sha256_add(&h, text + i, end - i);
        if (end < n)
            sha256_add(&h, "\n", 1);
        i = end + 1 + (end + 1 < n && text[end] == '\r' && text[end + 1] == '\n');
    }
    sha256_end(&h, digest);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return chat_template_name_of_hash(hex);
}

enum { FILE_BYTES_MAX = 1 << 26 };

/* Reads a JSON file of the directory; *data is NULL if it does not exist. */
static int read_json(char **data, struct json *root, char *path, size_t size, const char *dir,
                     const char *name, struct err *e)
{
    size_t n;
    *data = NULL;
    snprintf(path, size, "%s/%s", dir, name);
    if (access(path, F_OK))
        return 0;
    if (file_read(data, &n, path, FILE_BYTES_MAX, e))
        return -1;
    if (js_check(root, path, *data, n, e) == 0 &&
        (js_kind(root) == JS_OBJECT || js_bad(root, e, "an object is needed")))
        return 0;
    free(*data);
    *data = NULL;
    return -1;
}

static int copy_string(char **out, const struct json *v, struct err *e)
{
    bool control;
    free(*out);
    *out = calloc(js_length(v, &control) + 1, 1);
    if (!*out)
        return err_set(e, ERR_FAILED, "%s: no memory for a string", v->file);
    js_unescape(v, *out);
    return 0;
}

/* Reads bos_token or eos_token: a string, an added token with its content, or null. */
static int read_token(char **out, const struct json *root, const char *key, struct err *e)
{
    struct json v, content;
    int found = js_get(root, key, &v, e);
    if (found > 0 && js_kind(&v) == JS_OBJECT) {
        found = js_get(&v, "content", &content, e);
        v = content;
    }
    if (found <= 0 || js_kind(&v) == JS_NULL)
        return found < 0 ? -1 : 0;
    if (js_kind(&v) != JS_STRING)
        return js_bad(&v, e, "a token's text is needed");
    return copy_string(out, &v, e);
}

/* Reads both tokens from tokenizer_config.json, or from special_tokens_map.json, which older tools wrote. */
static int read_tokens(struct chat *c, const char *dir, struct err *e)
{
    static const char *const files[] = { "special_tokens_map.json", "tokenizer_config.json" };
    for (size_t i = 0; i < 2; i++) {
        char path[4096], *data;
        struct json root;
        if (read_json(&data, &root, path, sizeof path, dir, files[i], e))
            return -1;
        int rc = data && (read_token(&c->bos, &root, "bos_token", e) ||
                          read_token(&c->eos, &root, "eos_token", e));
        free(data);
        if (rc)
            return -1;
    }
    return 0;
}

/* Reads chat_template of a JSON file: a string, or the entry of a list that is called "default". *text
 * stays NULL if there is none. */
static int template_of_json(char **text, const struct json *root, struct err *e)
{
    struct json v, one, name;
    int found = js_get(root, "chat_template", &v, e);
    if (found <= 0)
        return found;
    if (js_kind(&v) == JS_STRING)
        return copy_string(text, &v, e);
    if (js_kind(&v) != JS_ARRAY)
        return js_kind(&v) == JS_NULL
                   ? 0
                   : js_bad(&v, e, "a text is needed, or a list of objects with name and template");
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one);) {
        if (js_kind(&one) != JS_OBJECT)
            return js_bad(&one, e, "an object with name and template is needed");
        if ((found = js_get(&one, "name", &name, e)) < 0)
            return -1;
        if (!found || js_kind(&name) != JS_STRING || !js_is(&name, "default"))
            continue;
        if ((found = js_get(&one, "template", &v, e)) <= 0 || js_kind(&v) != JS_STRING)
            return found < 0 ? -1 : js_bad(&one, e, "template is missing or no text");
        return copy_string(text, &v, e);
    }
    return 0;
}

/* Reads the model's template, and the path of its file. *text is NULL if there is none. */
static int read_template(char **text, char *path, size_t size, const char *dir, struct err *e)
{
    static const char *const files[] = { "tokenizer_config.json", "chat_template.json" };
    size_t n;
    *text = NULL;
    snprintf(path, size, "%s/chat_template.jinja", dir);
    if (access(path, F_OK) == 0)
        return file_read(text, &n, path, FILE_BYTES_MAX, e);
    for (size_t i = 0; i < 2 && !*text; i++) {
        char *data;
        struct json root;
        if (read_json(&data, &root, path, size, dir, files[i], e))
            return -1;
        int rc = data ? template_of_json(text, &root, e) : 0;
        free(data);
        if (rc)
            return -1;
    }
    return 0;
}

static int recognise(struct chat *c, const char *dir, struct err *e)
{
    char path[4096], *text;
    if (read_template(&text, path, sizeof path, dir, e))
        return -1;
    if (!text)
        return err_set(e, ERR_INPUT,
                       "%s: the model has no chat template; --chat-template NAME selects one of %s", dir,
                       CHAT_NAMES);
    const char *name = chat_template_name(text, strlen(text));
    free(text);
    if (!name)
        return err_set(e, ERR_INPUT,
                       "%s: this version does not know the model's chat template; --chat-template NAME "
                       "selects one of %s",
                       path, CHAT_NAMES);
    c->t = by_name(name);
    assert(c->t);
    return 0;
}

int chat_open(struct chat *c, const char *dir, const char *name, struct err *e)
{
    *c = (struct chat){ .t = name ? by_name(name) : NULL };
    if (name && !c->t)
        return err_set(e, ERR_INPUT, "--chat-template '%s': unknown, allowed are %s", name, CHAT_NAMES);
    if (!name && recognise(c, dir, e))
        return -1;
    if (read_tokens(c, dir, e) == 0)
        return 0;
    chat_close(c);
    return -1;
}

void chat_close(struct chat *c)
{
    free(c->bos);
    free(c->eos);
    *c = (struct chat){0};
}

/* ---- messages ---- */

static int read_turns(struct turn *t, const struct chat_message *m, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t r = 0, valid = utf8_valid_prefix(m[i].content, m[i].n_content);
        while (r < 3 && strcmp(m[i].role, role_names[r]) != 0)
            r++;
        if (r == 3)
            return err_set(e, ERR_INPUT,
                           "message %zu: role '%s', allowed are system, user and assistant (no tools)", i + 1,
                           m[i].role);
        if (valid < m[i].n_content)
            return err_set(e, ERR_INPUT, "message %zu: byte 0x%02x at offset %zu is not UTF-8", i + 1,
                           (unsigned char)m[i].content[valid], valid);
        t[i] = (struct turn){ (enum role)r, { m[i].content, m[i].n_content } };
    }
    return 0;
}

static int check(const struct chat *c, size_t n, const struct chat_options *o, struct err *e)
{
    if (n == 0)
        return err_set(e, ERR_INPUT, "a chat needs at least one message");
    if (o->continue_final_message && o->add_generation_prompt)
        return err_set(e, ERR_INPUT, "continue_final_message and add_generation_prompt exclude each other");
    if (c->t->bos && !c->bos)
        return err_set(
            e, ERR_INPUT,
            "chat template %s: it begins with a BOS token, and the model's tokenizer_config.json names none",
            c->t->name);
    if (c->t->eos && !c->eos)
        return err_set(e, ERR_INPUT,
                       "chat template %s: it ends answers with an EOS token, and the model's "
                       "tokenizer_config.json names none",
                       c->t->name);
    return 0;
}

static int render(const struct scene *in, char **text, size_t *size, struct err *e)
{
    struct scene x = *in;
    *text = NULL;
    x.out = memory_file(text, size);
    if (!x.out)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    int rc = x.c->t->write(&x, e);
    if (ferror(x.out) | fclose(x.out))
        rc = err_set(e, ERR_FAILED, "no memory for a chat");
    if (rc == 0)
        return 0;
    free(*text);
    *text = NULL;
    return -1;
}

/* Renders a prompt whose last message stays open, as transformers does: a mark follows the last message,
 * and the prompt is cut at the mark. */
static int render_open(struct scene *x, struct turn *last, char **text, size_t *size, struct err *e)
{
    static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
    const size_t n_mark = sizeof mark - 1;
    const struct span message = last->text, words = strip(message);
    char *marked = malloc(message.n + n_mark);
    if (!marked)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    memcpy(marked, message.s, message.n);
    memcpy(marked + message.n, mark, n_mark);
    last->text = (struct span){ marked, message.n + n_mark };
    int rc = render(x, text, size, e);
    last->text = message;
    free(marked);
    if (rc)
        return -1;
    struct span all = { *text, *size };
    const char *at = find_last(all, "CONTINUE_FINAL_MESSAGE_TAG");
    if (!at || (words.n && !memmem(all.s, all.n, words.s, words.n))) {
        free(*text);
        *text = NULL;
        return err_set(e, ERR_INPUT,
                       "continue_final_message: chat template %s leaves out or changes the final message",
                       x->c->t->name);
    }
    struct span head = { all.s, (size_t)(at - all.s) };
    if (at[n_mark - 1] != ' ')                   /* the mark's space was stripped: strip the message's, too */
        head = strip_right(head);
    *size = head.n;
    (*text)[head.n] = 0;
    return 0;
}

int chat_render(const struct chat *c, const struct chat_message *m, size_t n, const struct chat_options *o,
                char **text, size_t *size, struct err *e)
{
    *text = NULL;
    if (check(c, n, o, e))
        return -1;
    struct turn *t = calloc(n, sizeof *t);
    if (!t)
        return err_set(e, ERR_FAILED, "no memory for %zu messages", n);
    struct scene x = { .c = c, .o = o, .m = t, .n = n };
    int rc = read_turns(t, m, n, e);
    if (rc == 0)
        rc = o->continue_final_message ? render_open(&x, &t[n - 1], text, size, e)
                                       : render(&x, text, size, e);
    free(t);
    return rc;
}

int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, size_t n,
                const struct chat_options *o, int32_t **ids, size_t *n_ids, struct err *e)
{
    char *text;
    size_t size;
    if (chat_render(c, m, n, o, &text, &size, e))
        return -1;
    int rc = tokenizer_encode(t, ids, n_ids, text, size, false, e);
    free(text);
    if (rc == 0 && *n_ids == 0) {
        free(*ids);
        *ids = NULL;
        rc = err_set(e, ERR_INPUT, "chat template %s: the messages make an empty prompt", c->t->name);
    }
    return rc;
}
