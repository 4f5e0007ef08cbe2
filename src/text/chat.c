/* Chat templates. The table `templates` describes each one; write_chat writes the messages of a struct scene
 * with it. src/text/chat_known.h maps hashes of real templates to their names. Start at chat_open and
 * chat_render. */
#include "src/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/sha256.h"
#include "src/base/memory_file.h"
#include "src/base/unicode.h"
#include "src/model/model_files.h"
#include "src/text/chat_known.h"
#include "src/text/jinja/jinja.h"

enum role { SYSTEM, USER, ASSISTANT };
static const char *const role_names[] = { "system", "user", "assistant" };

struct span { const char *s; size_t n; };
struct turn { enum role role; struct span text; };

/* A template: the forms of its turns, and the chats that it accepts. put_form writes a form, in which these
 * letters stand for texts: %t the message, %s the message stripped, %y the system message, %b BOS, %e EOS, %d
 * the date; %r two newlines and the message stripped on the right, or nothing if no text remains. */
struct chat_template {
    const char *name;
    const char *turn[3];             /* by role */
    const char *front;               /* a system message at the front; NULL: as turn[SYSTEM] */
    const char *with_system;         /* the user turn that holds the system message of the front */
    bool system_last;                /* that is the last message, if it is the user's; else the first turn */
    const char *system;              /* written at the front if the chat has no system message */
    const char *opening;             /* of the assistant's turn to generate */
    const char *order;               /* the refusal unless user and assistant alternate; NULL: any order */
    const char *no_system;           /* the refusal of a system message after the front; NULL: none */
    bool order_first;                /* the order of all messages is checked before their roles */
    enum { BOS_NONE, BOS_FRONT, BOS_TURNS } bos;     /* written once, or by the forms of turns */
    bool eos;                        /* the template writes EOS */
    bool always;                     /* llama3-first: always opens the assistant's turn */
    bool around;                     /* chatml-bos: BOS before a first question, EOS after a last answer */
    enum { THINKS_NOT, THINKS_QWEN3, THINKS_QWEN35, THINKS_QWEN38 } thinks;      /* answers have thoughts */
    bool thinks_if_asked;            /* the template's own enable_thinking is false */
    const char *effort;              /* qwen3.8: the system message begins with it while the model thinks */
};

/* The input of a template, and its output file. */
struct scene {
    const struct chat *c;
    const struct chat_options *o;
    const struct turn *m; size_t n;
    const struct span *system;       /* the system message at the front, or NULL */
    FILE *out;
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

static struct span span_of(const char *s) { return (struct span){ s, strlen(s) }; }
static void put(const struct scene *x, const char *s) { fputs(s, x->out); }
static void put_text(const struct scene *x, struct span t) { fwrite(t.s, 1, t.n, x->out); }

static void put_form(const struct scene *x, const char *form, struct span text)
{
    for (const char *f = form; *f; f++) {
        if (*f != '%') {
            fputc(*f, x->out);
            continue;
        }
        switch (*++f) {
        case 't': put_text(x, text); break;
        case 's': put_text(x, strip(text)); break;
        case 'r':
            text = strip_right(text);
            put(x, text.n ? "\n\n" : "");
            put_text(x, text);
            break;
        case 'y': put_text(x, *x->system); break;
        case 'b': put(x, x->c->bos); break;
        case 'e': put(x, x->c->eos); break;
        case 'd': put(x, x->o->date ? x->o->date : "26 Jul 2024"); break;
        default: assert(!"a form has only these letters");
        }
    }
}

static int refuse(const struct scene *x, const char *words, struct err *e)
{
    return err_set(e, ERR_INPUT, "chat template %s: %s", x->c->t->name, words);
}

/* Checks the messages from `from` on, which is the user's. */
static int check_turns(const struct scene *x, size_t from, struct err *e)
{
    const struct chat_template *t = x->c->t;
    for (int roles = !t->order_first; roles < 2; roles++)
        for (size_t i = from; i < x->n; i++) {
            if (t->order && (x->m[i].role == USER) != ((i - from) % 2 == 0))
                return refuse(x, t->order, e);
            if (roles && t->no_system && x->m[i].role == SYSTEM)
                return refuse(x, t->no_system, e);
        }
    return 0;
}

static bool is_tool_response(struct span t)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    return t.n >= n_open && t.n >= n_close && !memcmp(t.s, open, n_open) &&
           !memcmp(t.s + t.n - n_close, close, n_close);
}

/* The last message that asks; n if there is none. */
static size_t last_question(const struct scene *x)
{
    const bool stripped = x->c->t->thinks >= THINKS_QWEN35;
    for (size_t i = x->n; i-- > 0;)
        if (x->m[i].role == USER && !is_tool_response(stripped ? strip(x->m[i].text) : x->m[i].text))
            return i;
    return x->n;
}

/* The thoughts of an answer; *text becomes the rest. */
static struct span take_thoughts(struct span *text)
{
    struct span thoughts = { "", 0 };
    if (find(*text, "</think>")) {
        thoughts = strip_newlines(before_first(*text, "</think>"), false, true);
        thoughts = strip_newlines(after_last(thoughts, "<think>"), true, false);
        *text = strip_newlines(after_last(*text, "</think>"), true, false);
    }
    return thoughts;
}

/* Qwen3 keeps the assistant's thoughts only after the last question. There it writes the thought block
 * even if it is empty. */
static void put_qwen3_answer(const struct scene *x, size_t i, bool after_question)
{
    struct span text = x->m[i].text;
    const struct span thoughts = take_thoughts(&text);
    put(x, "<|im_start|>assistant\n");
    if (after_question && (i + 1 == x->n || thoughts.n > 0)) {
        put_form(x, "<think>\n%t\n</think>\n\n", strip_newlines(thoughts, true, true));
        text = strip_newlines(text, true, false);
    }
    put_form(x, "%t<|im_end|>\n", text);
}

/* Qwen3.5 writes the thought block of every answer after the last question. Qwen3.8 writes an empty block in
 * every answer: a message has no thoughts of its own there, and those in its text stay. */
static void put_qwen35_answer(const struct scene *x, size_t i, bool after_question)
{
    const bool every = x->c->t->thinks == THINKS_QWEN38;
    struct span text = strip(x->m[i].text), thoughts = { "", 0 };
    if (!every)
        thoughts = strip(take_thoughts(&text));
    put(x, "<|im_start|>assistant\n");
    if (every || after_question)
        put_form(x, "<think>\n%t\n</think>\n\n", thoughts);
    put_form(x, "%t<|im_end|>\n", text);
}

static void put_answer(const struct scene *x, size_t i, bool after_question)
{
    if (x->c->t->thinks == THINKS_QWEN3)
        put_qwen3_answer(x, i, after_question);
    else
        put_qwen35_answer(x, i, after_question);
}

static bool thinks(const struct scene *x)
{
    const struct chat_template *t = x->c->t;
    return x->o->thinking == CHAT_THINKING_OWN ? !t->thinks_if_asked : x->o->thinking == CHAT_THINKING_ON;
}

/* The system message at the front, or the template's own. */
static void put_front(const struct scene *x)
{
    const struct chat_template *t = x->c->t;
    const struct span text = x->system ? *x->system : span_of(t->system ? t->system : "");
    if (!t->effort) {
        if (x->system || t->system)
            put_form(x, t->front, text);
        return;
    }
    const bool some = strip(text).n > 0;
    if (!thinks(x) && !some)
        return;
    put(x, "<|im_start|>system\n");
    if (thinks(x))
        put(x, t->effort);
    put_form(x, thinks(x) && some ? "\n\n%s<|im_end|>\n" : "%s<|im_end|>\n", text);
}

/* What follows the opening of the turn to generate. */
static void put_thought(const struct scene *x)
{
    const struct chat_template *t = x->c->t;
    if (t->thinks && !thinks(x))
        put(x, "<think>\n\n</think>\n\n");
    else if (t->thinks >= THINKS_QWEN35)
        put(x, "<think>\n");
}

static int write_chat(struct scene *x, struct err *e)
{
    const struct chat_template *t = x->c->t;
    const size_t from = (t->front || t->with_system) && x->m[0].role == SYSTEM, question = last_question(x);
    x->system = from ? &x->m[0].text : NULL;
    if (t->thinks >= THINKS_QWEN35 && question == x->n)
        return refuse(x, "No user query found in messages.", e);
    if (check_turns(x, from, e))
        return -1;
    if (t->bos == BOS_FRONT && !(t->around && x->m[0].role == ASSISTANT))
        put(x, x->c->bos);
    if (t->front)
        put_front(x);
    for (size_t i = from; i < x->n; i++) {
        const enum role r = x->m[i].role;
        if (t->thinks && r == ASSISTANT)
            put_answer(x, i, i > MIN(question, x->n - 1));
        else if (t->with_system && x->system && r == USER && i == (t->system_last ? x->n - 1 : from))
            put_form(x, t->with_system, x->m[i].text);
        else
            put_form(x, t->turn[r], x->m[i].text);
    }
    if (t->opening && (x->o->add_generation_prompt || t->always))
        put(x, t->opening);
    else if (t->around && x->m[x->n - 1].role == ASSISTANT)
        put(x, x->c->eos);
    if (x->o->add_generation_prompt)
        put_thought(x);
    return 0;
}

/* ---- the templates ---- */

#define ROLES_ALTERNATE "onversation roles must alternate user/assistant/user/assistant/..."
#define IM_TURN(role) "<|im_start|>" role "\n%t<|im_end|>\n"
#define CHATML \
    .turn = { IM_TURN("system"), IM_TURN("user"), IM_TURN("assistant") }, .opening = "<|im_start|>assistant\n"
#define IM_STRIPPED(role) "<|im_start|>" role "\n%s<|im_end|>\n"
#define QWEN35 \
    .turn = { "", IM_STRIPPED("user"), "" }, .opening = "<|im_start|>assistant\n", \
    .front = IM_STRIPPED("system"), .no_system = "System message must be at the beginning."
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define HEADER_TURN(role) HEADER(role) "%s<|eot_id|>"
#define LLAMA3 \
    .bos = BOS_FRONT, .opening = HEADER("assistant"), \
    .turn = { HEADER_TURN("system"), HEADER_TURN("user"), HEADER_TURN("assistant") }
/* Mistral without system messages: v0.1 and v0.2 of the 7B, Mixtral. */
#define MISTRAL_V0 \
    .bos = BOS_FRONT, .eos = true, .order = "C" ROLES_ALTERNATE, \
    .no_system = "Only user and assistant roles are supported!"
#define MISTRAL \
    .bos = BOS_FRONT, .eos = true, .order = "After the optional system message, c" ROLES_ALTERNATE, \
    .no_system = "Only user and assistant roles are supported, with the exception of an initial " \
                 "optional system message!"

static const struct chat_template templates[] = {
    { .name = "chatml", CHATML },
    { .name = "chatml-bos", CHATML, .bos = BOS_FRONT, .eos = true, .around = true },
    /* A system message after the front writes nothing, as in the original, which also strips system and
     * user text together: the user text of that turn only on the right. */
    { .name = "llama2", .bos = BOS_TURNS, .eos = true, .order = "C" ROLES_ALTERNATE,
      .turn = { "", "%b[INST] %s [/INST]", " %s %e" },
      .with_system = "%b[INST] <<SYS>>\n%y\n<</SYS>>%r [/INST]" },
    { .name = "llama3", LLAMA3 },
    { .name = "llama3-first", LLAMA3, .always = true },
    { .name = "llama3.1", LLAMA3, .system = "",
      .front = HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: %d\n\n%s<|eot_id|>" },
    { .name = "mistral-v0.1", MISTRAL_V0, .turn = { "", "[INST] %t [/INST]", "%t%e " } },
    { .name = "mistral-v0.2", MISTRAL_V0, .turn = { "", "[INST] %t [/INST]", "%t%e" } },
    { .name = "mistral-v1", MISTRAL, .turn = { "", " [INST] %t [/INST]", " %t%e" },
      .with_system = " [INST] %y\n\n%t [/INST]" },
    { .name = "mistral-v3", MISTRAL, .turn = { "", "[INST] %t[/INST]", " %s%e" }, .order_first = true,
      .with_system = "[INST] %y\n\n%t[/INST]", .system_last = true },
    { .name = "mistral-v3-tekken", MISTRAL, .turn = { "", "[INST]%t[/INST]", "%t%e" }, .order_first = true,
      .with_system = "[INST]%y\n\n%t[/INST]", .system_last = true },
    { .name = "mistral-v7", .bos = BOS_FRONT, .eos = true,
      .turn = { "[SYSTEM_PROMPT] %t[/SYSTEM_PROMPT]", "[INST] %t[/INST]", " %t%e" } },
    { .name = "qwen1.5", CHATML, .front = IM_TURN("system"), .system = "You are a helpful assistant" },
    { .name = "qwen2", CHATML, .front = IM_TURN("system"), .system = "You are a helpful assistant." },
    { .name = "qwen2.5", CHATML, .front = IM_TURN("system"),
      .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant." },
    { .name = "qwen3", CHATML, .thinks = THINKS_QWEN3 },
    /* of 4B parameters and more, and Qwen3.6; then of 2B and less */
    { .name = "qwen3.5", QWEN35, .thinks = THINKS_QWEN35 },
    { .name = "qwen3.5-small", QWEN35, .thinks = THINKS_QWEN35, .thinks_if_asked = true },
    { .name = "qwen3.8", QWEN35, .thinks = THINKS_QWEN38,
      .effort = "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
      "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in "
      "the final answer." },
    /* v1.1 and later, as FastChat writes it: the models ship no template */
    { .name = "vicuna", .bos = BOS_FRONT, .eos = true, .order = "C" ROLES_ALTERNATE,
      .no_system = "C" ROLES_ALTERNATE, .turn = { "", "USER: %t ", "ASSISTANT: %t%e" }, .front = "%t ",
      .opening = "ASSISTANT:",
      .system = "A chat between a curious user and an artificial intelligence assistant. "
      "The assistant gives helpful, detailed, and polite answers to the user's questions." },
    /* another template in use for Vicuna */
    { .name = "vicuna-lines", .bos = BOS_FRONT, .eos = true, .order = "C" ROLES_ALTERNATE,
      .turn = { "", "USER: %s\n", "ASSISTANT: %s%e\n" }, .front = "%s\n\n", .opening = "ASSISTANT:" },
    { .name = "zephyr", .eos = true, .opening = "<|assistant|>\n",
      .turn = { "<|system|>\n%t%e\n", "<|user|>\n%t%e\n", "<|assistant|>\n%t%e\n" } },
};

/* ---- recognising a template ---- */

static const struct chat_template *by_name(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

const char *chat_name(const struct chat *c) { return c->t ? c->t->name : c->sha256; }
bool chat_has_thinking(const struct chat *c)
{
    return c->t ? c->t->thinks != THINKS_NOT : jinja_names(c->own, "enable_thinking");
}
bool chat_thinks(const char *name)
{
    const struct chat_template *t = by_name(name);
    return t && !t->thinks_if_asked;
}
bool chat_has_date(const struct chat *c)
{
    return c->t ? c->t->front && strstr(c->t->front, "%d") : jinja_names(c->own, "date_string");
}

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
    sha256_hex(hex, digest);
    return chat_template_name_of_hash(hex);
}

enum { FILE_BYTES_MAX = 1 << 26, DAY = 1721952000 };         /* DAY: 26 Jul 2024, the clock of programs */

/* Reads a JSON file of the directory; *data is NULL if it does not exist. */
static int read_json(char **data, struct json *root, char *path, size_t size, const char *dir,
                     const char *name, struct err *e)
{
    size_t n;
    const int rc = model_file_read(data, &n, path, size, dir, name, FILE_BYTES_MAX, e);
    if (rc || !*data)
        return rc;
    if (js_check(root, path, *data, n, e) == 0 &&
        (js_kind(root) == JS_OBJECT || js_bad(root, e, "an object is needed")))
        return 0;
    free(*data);
    *data = NULL;
    return -1;
}

static int copy_string(char **out, const struct json *v, struct err *e)
{
    free(*out);
    *out = js_strdup(v);
    return *out ? 0 : err_set(e, ERR_FAILED, "%s: no memory for a string", v->file);
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

int chat_template_text(char **text, const char *place, struct err *e)
{
    char path[PATH_BYTES];
    return read_template(text, path, sizeof path, place, e);
}

/* The template of the model: one of the table, or a program. */
static int open_own(struct chat *c, const char *dir, struct err *e)
{
    char path[PATH_BYTES], *text;
    if (read_template(&text, path, sizeof path, dir, e))
        return -1;
    if (!text)
        return err_set(e, ERR_INPUT,
                       "%s: the model has no chat template; --chat-template NAME selects one of %s", dir,
                       CHAT_NAMES);
    const size_t n = strlen(text);
    const char *name = chat_template_name(text, n);
    int rc = 0;
    if (name) {
        c->t = by_name(name);
    } else {
        uint8_t digest[SHA256_BYTES];
        struct sha256 h;
        sha256_start(&h);
        sha256_add(&h, text, n);
        sha256_end(&h, digest);
        sha256_hex(c->sha256, digest);
        c->file = strdup(path);
        rc = c->file ? jinja_open(&c->own, c->file, text, n, e)
                     : err_set(e, ERR_FAILED, "%s: no memory for a template", path);
    }
    free(text);
    return rc;
}

int chat_open(struct chat *c, const char *dir, const char *name, struct err *e)
{
    *c = (struct chat){ .t = name ? by_name(name) : NULL };
    if (name && !c->t)
        return err_set(e, ERR_INPUT, "--chat-template '%s': unknown, allowed are %s", name, CHAT_NAMES);
    if ((name || open_own(c, dir, e) == 0) && read_tokens(c, dir, e) == 0)
        return 0;
    chat_close(c);
    return -1;
}

void chat_close(struct chat *c)
{
    jinja_close(c->own);
    free(c->file);
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
    if (c->t && c->t->bos && !c->bos)
        return err_set(e, ERR_INPUT,
            "chat template %s: it begins with a BOS token, and the model's tokenizer_config.json names none",
            c->t->name);
    if (c->t && c->t->eos && !c->eos)
        return err_set(e, ERR_INPUT, "chat template %s: it ends answers with an EOS token, and the model's "
                       "tokenizer_config.json names none", c->t->name);
    return 0;
}

/* The variables of a program, as transformers gives them. */
static void write_variables(FILE *f, const struct scene *x)
{
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '{');
    if (x->c->bos)
        jw_text(&w, "bos_token", x->c->bos);
    if (x->c->eos)
        jw_text(&w, "eos_token", x->c->eos);
    if (x->o->thinking != CHAT_THINKING_OWN)
        jw_bool(&w, "enable_thinking", x->o->thinking == CHAT_THINKING_ON);
    if (x->o->date)
        jw_text(&w, "date_string", x->o->date);
    jw_bool(&w, "add_generation_prompt", x->o->add_generation_prompt);
    jw_null(&w, "tools");
    jw_null(&w, "documents");
    jw_open(&w, "messages", '[');
    for (size_t i = 0; i < x->n; i++) {
        jw_open(&w, NULL, '{');
        jw_text(&w, "role", role_names[x->m[i].role]);
        jw_bytes(&w, "content", x->m[i].text.s, x->m[i].text.n);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_close(&w, '}');
}

static int render_own(const struct scene *x, char **text, size_t *size, struct err *e)
{
    char *variables;
    size_t n;
    struct json root;
    *text = NULL;
    FILE *f = memory_file(&variables, &n);
    if (!f)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    write_variables(f, x);
    int rc = stream_end(f) ? err_set(e, ERR_FAILED, "no memory for a chat")
                           : js_check_with_nul(&root, "chat", variables, n, e);
    if (rc == 0)
        rc = jinja_render(x->c->own, &root, &(struct jinja_run){ .now = DAY }, text, size, e);
    free(variables);
    return rc;
}

static int render(const struct scene *in, char **text, size_t *size, struct err *e)
{
    if (in->c->own)
        return render_own(in, text, size, e);
    struct scene x = *in;
    *text = NULL;
    x.out = memory_file(text, size);
    if (!x.out)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    int rc = write_chat(&x, e);
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
                       chat_name(x->c));
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
        rc = err_set(e, ERR_INPUT, "chat template %s: the messages make an empty prompt", chat_name(c));
    }
    return rc;
}
