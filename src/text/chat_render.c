/* Renders the messages of a chat: writes the variables of a template as JSON and runs it. Start at
 * chat_render. */
#include "src/text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/unicode.h"

static const char open_mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";      /* of transformers */

const char *const chat_efforts[3] = { "low", "medium", "high" };

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "no memory for a chat"); }

static struct jinja *template_of(const struct chat *c, const struct chat_input *in)
{
    return c->tool_use && in->tools.s ? c->tool_use : c->t;
}

static void copy(struct json_writer *w, const char *key, const struct json *v)
{
    jw_raw(w, key, v->s, (size_t)(v->end - v->s));
}

/* ---- messages ---- */

/* What is written of one message. */
struct message {
    const struct jinja *t;
    bool list;                       /* the template loops over content */
    bool open;                       /* the message stays open: its content ends with the mark */
    char **final;                    /* of an open one: receives the text that the mark follows */
    size_t number;
};

static int refuse(const struct message *m, struct err *e, const struct json *v, const char *words)
{
    struct json named = *v;
    char number[40];
    snprintf(number, sizeof number, "message %zu", m->number);
    named.key[1] = v->key[0];
    named.key[0] = number;
    return js_bad(&named, e, "%s", words);
}

/* Checks a part of content and finds its text. */
static int part_text(const struct message *m, const struct json *part, struct json *text, struct err *e)
{
    struct json type;
    const int found = js_kind(part) == JS_OBJECT ? js_get(part, "type", &type, e) : 0;
    if (found < 0)
        return -1;
    if (!found || !js_is(&type, "text") || js_get(part, "text", text, e) != 1 || js_kind(text) != JS_STRING)
        return refuse(m, e, part, "only parts {\"type\": \"text\", \"text\": ..} are supported");
    return 0;
}

/* Writes a text and the mark after it. Takes over the text. */
static int write_marked(struct json_writer *w, const char *key, const struct message *m, char *text,
                        struct err *e)
{
    char *marked = NULL;
    const int n = text ? asprintf(&marked, "%s%s", text, open_mark) : -1;
    free(*m->final);
    *m->final = text;
    if (n < 0)
        return no_memory(e);
    jw_bytes(w, key, marked, (size_t)n);
    free(marked);
    return 0;
}

/* Writes a list of parts as it is. */
static int write_list(struct json_writer *w, const struct message *m, const struct json *parts, struct err *e)
{
    struct json part, text = { .s = NULL }, key, v;
    size_t n = js_count(parts);
    jw_open(w, "content", '[');
    for (struct js_walk walk = js_walk(parts); js_next(&walk, NULL, &part); n--) {
        if (part_text(m, &part, &text, e))
            return -1;
        jw_open(w, NULL, '{');
        for (struct js_walk inner = js_walk(&part); js_next(&inner, &key, &v);)
            if (!m->open || n > 1 || v.s != text.s)
                jw_member(w, &key, &v);
            else if (write_marked(w, "text", m, js_strdup(&v), e))
                return -1;
        jw_close(w, '}');
    }
    jw_close(w, ']');
    return 0;
}

static int put_string(FILE *f, const struct json *text, struct err *e)
{
    char *s = js_strdup(text);
    if (!s)
        return no_memory(e);
    fputs(s, f);
    free(s);
    return 0;
}

/* Puts the texts of parts, with newlines between them. */
static int put_parts(FILE *f, const struct message *m, const struct json *parts, struct err *e)
{
    struct json part, text;
    bool more = false;
    for (struct js_walk walk = js_walk(parts); js_next(&walk, NULL, &part); more = true) {
        if (part_text(m, &part, &text, e))
            return -1;
        if (more)
            fputc('\n', f);
        if (put_string(f, &text, e))
            return -1;
    }
    return 0;
}

/* Writes the texts of parts as one text. */
static int write_joined(struct json_writer *w, const struct message *m, const struct json *parts,
                        struct err *e)
{
    char *all = NULL;
    size_t n;
    FILE *f = memory_file(&all, &n);
    int rc = f ? put_parts(f, m, parts, e) : no_memory(e);
    if (f && stream_end(f) && rc == 0)
        rc = no_memory(e);
    if (rc == 0 && m->open)
        return write_marked(w, "content", m, all, e);
    if (rc == 0)
        jw_bytes(w, "content", all, n);
    free(all);
    return rc;
}

static int write_content(struct json_writer *w, const struct message *m, const struct json *v, struct err *e)
{
    switch (js_kind(v)) {
    case JS_STRING:
        if (m->open)
            return write_marked(w, "content", m, js_strdup(v), e);
        copy(w, "content", v);
        return 0;
    case JS_ARRAY:  return m->list ? write_list(w, m, v, e) : write_joined(w, m, v, e);
    case JS_NULL:   jw_null(w, "content"); return 0;
    default:        return refuse(m, e, v, "the content of a message is a text or an array of text parts");
    }
}

static bool is_empty(const struct json *v)
{
    const enum js_kind kind = js_kind(v);
    return kind == JS_NULL || ((kind == JS_ARRAY || kind == JS_OBJECT) && js_count(v) == 0);
}

/* Copies a thought without the marks around it: the answers of a server have them, and a template adds its
 * own. */
static void copy_thought(struct json_writer *w, const char *name, const struct json *v)
{
    static const char space[] = " \t\r\n";
    char *text = js_kind(v) == JS_STRING ? js_strdup(v) : NULL;
    const char *const *pair, *from = text ? text + strspn(text, space) : "";
    size_t n = strlen(from);
    bool marked = false;
    while (n && strchr(space, from[n - 1]))
        n--;
    for (size_t i = 0; (pair = chat_thought_pair(i)) && !marked; i++) {
        const size_t start = strlen(pair[0]), end = strlen(pair[1]);
        if ((marked = n >= start && memcmp(from, pair[0], start) == 0))
            from += start, n -= start;
        if (n >= end && memcmp(from + n - end, pair[1], end) == 0)
            n -= end, marked = true;
    }
    if (marked)
        jw_bytes(w, name, from, n);
    else
        copy(w, name, v);
    free(text);
}

/* Writes a member that is not role and content. */
static int write_member(struct json_writer *w, const struct message *m, const char *name,
                        const struct json *v, struct err *e)
{
    static const char *const known[] = { "name",      "tool_calls", "tool_call_id", "reasoning_content",
                                         "reasoning", "thinking" };
    bool some = jinja_mentions(m->t, name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        some |= strcmp(known[i], name) == 0;
    if (is_empty(v) || (!some && js_is(v, "")))
        return 0;
    if (!some)
        return refuse(m, e, v,
                      "a message has role, content, name, tool_calls, tool_call_id, reasoning_content, and "
                      "what the chat template names");
    copy(w, name, v);
    return 0;
}

/* The first member of a message that is not null among those that hold thoughts. */
static bool thoughts_of(const struct json *v, struct json *thoughts)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    struct err ignored;
    for (size_t i = 0; i < 3; i++)
        if (js_get(v, names[i], thoughts, &ignored) > 0 && !is_empty(thoughts))
            return true;
    return false;
}

/* Writes a message. Thoughts go by all names that templates have for them, as in transformers. */
static int write_message(struct json_writer *w, const struct message *m, struct json *v, struct err *e)
{
    struct json key, one, role = { .s = NULL }, content = { .s = NULL }, thoughts;
    bool calls = false;
    int rc = 0;
    v->key[0] = v->key[1] = NULL;                /* of the list; messages name the member of the message */
    if (js_kind(v) != JS_OBJECT)
        return refuse(m, e, v, "a message is an object with role and content");
    const bool thinks = thoughts_of(v, &thoughts);
    jw_open(w, NULL, '{');
    if (thinks)
        copy_thought(w, "thinking", &thoughts);
    for (struct js_walk walk = js_walk(v); rc == 0 && js_next(&walk, &key, &one);) {
        char *name = js_strdup(&key);
        if (!name)
            return no_memory(e);
        struct json *place = strcmp(name, "role") == 0      ? &role
                             : strcmp(name, "content") == 0 ? &content
                                                            : NULL;
        one.key[0] = name;
        if (place && place->s)
            rc = refuse(m, e, v, "a message has one role and one content");
        else if (place == &role)
            rc = js_kind(&one) != JS_STRING ? refuse(m, e, &one, "a role is a text")
                 : js_is(&one, "developer") && !jinja_mentions(m->t, "developer")
                     ? (jw_text(w, name, "system"), 0)
                     : (copy(w, name, &one), 0);
        else
            rc = place ? write_content(w, m, &one, e) : write_member(w, m, name, &one, e);
        calls |= strcmp(name, "tool_calls") == 0 && !is_empty(&one);
        if (place)
            *place = one;
        free(name);
    }
    if (rc == 0 && (!role.s || ((!content.s || js_kind(&content) == JS_NULL) && !calls)))
        rc = refuse(m, e, v, "a message is an object with role and content");
    if (thinks)
        copy_thought(w, "reasoning_content", &thoughts);
    jw_close(w, '}');
    return rc;
}

/* ---- variables ---- */

static void write_object(struct json_writer *w, const struct json *v)
{
    struct json key, one;
    for (struct js_walk walk = js_walk(v); js_next(&walk, &key, &one);)
        jw_member(w, &key, &one);
}

/* Variables of --thinking, --chat-date and chat_template_kwargs. */
static void write_choices(struct json_writer *w, const struct jinja *t, const struct chat_input *in)
{
    if (in->thinking >= CHAT_EFFORT_LOW) {
        jw_text(w, "reasoning_effort", chat_efforts[in->thinking - CHAT_EFFORT_LOW]);
    } else if (in->thinking != CHAT_THINKING_OWN) {
        jw_bool(w, "enable_thinking", in->thinking == CHAT_THINKING_ON);
        jw_bool(w, "thinking", in->thinking == CHAT_THINKING_ON);
    }
    if (in->date && jinja_names(t, "date_string")) {
        char date[32];
        struct tm day;
        gmtime_r(&in->day, &day);
        strftime(date, sizeof date, "%d %b %Y", &day);
        jw_text(w, "date_string", strchr(in->date, ' ') ? in->date : date);
    }
    for (size_t i = 0; i < 2; i++)
        if (in->kwargs[i].s)
            write_object(w, &in->kwargs[i]);
}

static void write_array(struct json_writer *w, const char *name, const struct json *v)
{
    if (v->s)
        copy(w, name, v);
    else
        jw_null(w, name);
}

/* Writes all variables; later members override earlier ones. */
static int write_variables(FILE *f, const struct chat *c, struct jinja *t, const struct chat_input *in,
                           char **final, struct err *e)
{
    struct json_writer w = { .f = f };
    struct json root, one;
    struct message m = { .t = t, .list = jinja_loops_over_content(t), .final = final };
    const size_t n = js_count(&in->messages);
    if (js_check(&root, "tokens", c->tokens, strlen(c->tokens), e))
        return -1;
    jw_open(&w, NULL, '{');
    write_object(&w, &root);
    write_choices(&w, t, in);
    jw_bool(&w, "add_generation_prompt", in->add_generation_prompt);
    write_array(&w, "tools", &in->tools);
    write_array(&w, "documents", &in->documents);
    jw_open(&w, "messages", '[');
    for (struct js_walk walk = js_walk(&in->messages); js_next(&walk, NULL, &one);) {
        m.open = ++m.number == n && in->continue_final_message;
        if (write_message(&w, &m, &one, e))
            return -1;
    }
    jw_close(&w, ']');
    jw_close(&w, '}');
    return 0;
}

int chat_check_places(const struct chat *c, const struct chat_input *in, struct err *e)
{
    const struct jinja *t = template_of(c, in);
    const char *lost = in->tools.s && !jinja_names(t, "tools")           ? "tools"
                       : in->documents.s && !jinja_names(t, "documents") ? "documents"
                                                                         : NULL;
    struct json one, calls;
    for (struct js_walk w = js_walk(&in->messages); !lost && js_next(&w, NULL, &one);)
        if (js_get(&one, "tool_calls", &calls, e) > 0 && !is_empty(&calls) &&
            !jinja_mentions(t, "tool_calls"))
            lost = "tool_calls";
    return lost ? err_set(e, ERR_INPUT, "the chat template has no place for %s: the model would not see them",
                          lost) : 0;
}

/* ---- the prompt ---- */

/* Cuts the prompt at the mark, as transformers does. `final` is the text before the mark. */
static int cut_at_mark(const struct chat *c, const char *final, char *text, size_t *size, struct err *e)
{
    const size_t n_mark = sizeof open_mark - 1;
    char *at = NULL, *p = text;
    while ((p = memmem(p, *size - (size_t)(p - text), open_mark, n_mark - 1)) != NULL)
        at = p++;
    const size_t from = unicode_lstrip(final, strlen(final)),
                 n = unicode_rstrip(final + from, strlen(final + from));
    if (!at || (n && !memmem(text, *size, final + from, n)))
        return err_set(e, ERR_INPUT,
                       ERR_FILE " leaves out or changes the final message (continue_final_message)",
                       c->label);
    *size = (size_t)(at - text);
    if (at[n_mark - 1] != ' ')                   /* the mark's space was stripped: strip the message's, too */
        *size = unicode_rstrip(text, *size);
    text[*size] = 0;
    return 0;
}

int chat_render(const struct chat *c, const struct chat_input *in, char **text, size_t *size, struct err *e)
{
    struct jinja *t = template_of(c, in);
    struct json variables;
    char *json = NULL, *final = NULL;
    size_t n;
    *text = NULL;
    if (js_count(&in->messages) == 0)
        return err_set(e, ERR_INPUT, "a chat needs at least one message");
    if (in->continue_final_message && in->add_generation_prompt)
        return err_set(e, ERR_INPUT, "continue_final_message and add_generation_prompt exclude each other");
    FILE *f = memory_file(&json, &n);
    if (!f)
        return no_memory(e);
    int rc = write_variables(f, c, t, in, &final, e);
    if (stream_end(f) && rc == 0)
        rc = no_memory(e);
    if (rc == 0 && in->continue_final_message && !final)
        rc = err_set(e, ERR_INPUT, "continue_final_message: the final message has no text");
    if (rc == 0)
        rc = js_check(&variables, "chat", json, n, e);
    if (rc == 0)
        rc = jinja_render(t, &variables, &(struct jinja_run){ .now = in->day }, text, size, e);
    if (rc == 0 && final && (rc = cut_at_mark(c, final, *text, size, e))) {
        free(*text);
        *text = NULL;
    }
    free(final);
    free(json);
    return rc;
}

int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_input *in, char **text,
                size_t *size, int32_t **ids, size_t *n_ids, struct err *e)
{
    *ids = NULL;
    *n_ids = 0;
    if (chat_render(c, in, text, size, e))
        return -1;
    int rc = tokenizer_encode(t, ids, n_ids, *text, *size, false, e);
    if (rc == 0 && *n_ids == 0)
        rc = err_set(e, ERR_INPUT, ERR_FILE ": the messages make an empty prompt", c->label);
    if (rc == 0)
        return 0;
    free(*text);
    free(*ids);
    *text = NULL;
    *ids = NULL;
    return -1;
}

void chat_put(struct json_writer *w, const char *role, const char *text, size_t n)
{
    jw_open(w, NULL, '{');
    jw_text(w, "role", role);
    jw_bytes(w, "content", text, n);
    jw_close(w, '}');
}

int chat_messages(char **json, struct json *messages, const char *system, const char *prompt, size_t n,
                  struct err *e)
{
    size_t n_json;
    FILE *f = memory_file(json, &n_json);
    if (!f)
        return no_memory(e);
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '[');
    if (system)
        chat_put(&w, "system", system, strlen(system));
    chat_put(&w, "user", prompt, n);
    jw_close(&w, ']');
    return stream_end(f) ? no_memory(e) : js_check(messages, "messages", *json, n_json, e);
}

int chat_user_text(const struct json *messages, char **text, size_t *n, struct err *e)
{
    struct json one, role, content;
    struct message m = {0};
    bool more = false;
    FILE *f = memory_file(text, n);
    int rc = f ? 0 : no_memory(e);
    for (struct js_walk w = js_walk(messages); rc == 0 && js_next(&w, NULL, &one);) {
        m.number++;
        if (js_get(&one, "role", &role, e) <= 0 || !js_is(&role, "user") ||
            js_get(&one, "content", &content, e) <= 0)
            continue;
        fputs(more ? "\n\n" : "", f);
        rc = js_kind(&content) == JS_STRING ? put_string(f, &content, e) : put_parts(f, &m, &content, e);
        more = true;
    }
    if (f && stream_end(f) && rc == 0)
        rc = no_memory(e);
    if (rc && f) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

/* ---- days ---- */

int chat_day(time_t *day, const char *name, const char *text, struct err *e)
{
    static const char *const forms[] = { "%Y-%m-%d", "%d %b %Y" };
    struct tm d = {0};
    const time_t now = time(NULL);
    if (!text) {
        localtime_r(&now, &d);
        d.tm_hour = d.tm_min = d.tm_sec = 0;
        *day = timegm(&d);
        return 0;
    }
    for (size_t i = 0; i < 2; i++) {
        d = (struct tm){0};
        const char *end = strptime(text, forms[i], &d);
        const int mday = d.tm_mday;
        if (end && !*end && (*day = timegm(&d), d.tm_mday == mday))
            return 0;
    }
    return err_set(e, ERR_INPUT, "%s: '%s' is no day, allowed are days like 2024-07-26 and 26 Jul 2024", name,
                   text);
}

bool chat_has_day(const struct chat *c)
{
    return jinja_names(c->t, "strftime_now") || (c->tool_use && jinja_names(c->tool_use, "strftime_now"));
}

/* ---- notices ---- */

struct names { const struct jinja *t; char text[400]; size_t n; };

/* Adds a variable that the template does not name, nor `other`. */
static void add_unnamed(struct names *l, const char *name, const char *other)
{
    if (jinja_names(l->t, name) || (other && jinja_names(l->t, other)) || strstr(l->text, name) ||
        l->n + strlen(name) + 3 > sizeof l->text)
        return;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s", l->n ? ", " : "", name);
}

void chat_notice(char *out, size_t size, const struct chat *c, const struct chat_input *in)
{
    struct names l = { .t = template_of(c, in) };
    struct json key, v;
    if (in->thinking >= CHAT_EFFORT_LOW)
        add_unnamed(&l, "reasoning_effort", NULL);
    else if (in->thinking != CHAT_THINKING_OWN)
        add_unnamed(&l, "enable_thinking", "thinking");
    if (in->date)
        add_unnamed(&l, "strftime_now", "date_string");
    for (size_t i = 0; i < 2; i++) {
        if (!in->kwargs[i].s)
            continue;
        for (struct js_walk w = js_walk(&in->kwargs[i]); js_next(&w, &key, &v);) {
            char *name = js_strdup(&key);
            if (name)
                add_unnamed(&l, name, NULL);
            free(name);
        }
    }
    *out = 0;
    if (l.n)
        snprintf(out, size, "%s never names %s", c->label, l.text);
}

/* ---- marks ---- */

/* What opens and ends a thought in the templates of Qwen, DeepSeek, SmolLM and GLM; Mistral; gpt-oss;
 * Gemma 4; Command A; Seed. */
static const char *const thoughts[][2] = {
    { "<think>", "</think>" }, { "[THINK]", "[/THINK]" },
    { "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>" },
    { "<|channel>thought\n", "<channel|>" }, { "<|START_THINKING|>", "<|END_THINKING|>" },
    { "<seed:think>", "</seed:think>" },
};
enum { THOUGHTS = sizeof thoughts / sizeof *thoughts };

const char *const *chat_thought_pair(size_t i) { return i < THOUGHTS ? thoughts[i] : NULL; }

static void take_thoughts(void *ctx, const char *text, size_t n)
{
    unsigned *found = ctx;
    for (size_t i = 0; i < THOUGHTS; i++)
        if (memmem(text, n, thoughts[i][0], strcspn(thoughts[i][0], "\n")) ||
            memmem(text, n, thoughts[i][1], strlen(thoughts[i][1])))
            *found |= 1u << i;
}

void chat_thought_marks(const struct chat *c, const char **start, const char **end)
{
    unsigned found = 0;
    *start = *end = NULL;
    jinja_texts(c->t, take_thoughts, &found);
    for (size_t i = THOUGHTS; i-- > 0;)
        if (found >> i & 1)
            *start = thoughts[i][0], *end = thoughts[i][1];
}

struct marks { const struct tokenizer *t; char *out; size_t size, at; };

/* Adds the marks <|..|> of a text that are no tokens. */
static void take_marks(void *ctx, const char *text, size_t n)
{
    struct marks *m = ctx;
    for (const char *p = text, *end = text + n; (p = memmem(p, (size_t)(end - p), "<|", 2)) != NULL; p++) {
        size_t k = 2, n_ids;
        int32_t *ids;
        struct err ignored;
        char mark[64];
        while (p + k < end && k < sizeof mark - 2 && p[k] != '|' && p[k] > ' ')
            k++;
        if (k == 2 || p + k + 1 >= end || p[k] != '|' || p[k + 1] != '>')
            continue;
        snprintf(mark, sizeof mark, "%.*s", (int)k + 2, p);
        if (strstr(m->out, mark) || tokenizer_encode(m->t, &ids, &n_ids, mark, k + 2, false, &ignored))
            continue;
        free(ids);
        if (n_ids > 1 && m->at + k + 6 < m->size)
            m->at += (size_t)snprintf(m->out + m->at, m->size - m->at, "%s%s", m->at ? ", " : "", mark);
    }
}

void chat_marks_notice(char *out, size_t size, const struct chat *c, const struct tokenizer *t)
{
    char names[400] = "";
    struct marks m = { t, names, sizeof names, 0 };
    jinja_texts(c->t, take_marks, &m);
    *out = 0;
    if (*names)
        snprintf(out, size, "%s writes marks that are no tokens of this model: %s", c->label, names);
}
