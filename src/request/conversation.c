/* Stored chats (conversation.h). Start at conversation_put and conversation_render. */
#include "src/request/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for a chat"); }

static void put_if(struct json_writer *w, const char *key, const struct json *v)
{
    if (v->s)
        jw_value(w, key, v);
}

/* Whether a word of --chat-template is a file. */
static bool is_file(const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = CHAT_NAMES; *p; p += strspn(p, ", ")) {
        if (strcspn(p, ",") == n && memcmp(p, word, n) == 0)
            return false;
        p += strcspn(p, ",");
    }
    return !strchr(word, '{');
}

int conversation_put(char **json, const struct chat_input *in, const char *template, enum chat_source source,
                     struct err *e)
{
    char *file = NULL;
    size_t n;
    /* the file may have changed when a chapter goes on */
    if (template && source == CHAT_FILE && is_file(template) && text_read_utf8(&file, &n, template, e))
        return -1;
    FILE *f = memory_file(json, &n);
    if (f) {
        struct json_writer w = { .f = f };
        jw_open(&w, NULL, '{');
        jw_value(&w, "messages", &in->messages);
        put_if(&w, "tools", &in->tools);
        put_if(&w, "documents", &in->documents);
        put_if(&w, "kwargs", &in->kwargs[0]);
        put_if(&w, "own_kwargs", &in->kwargs[1]);
        jw_text(&w, "template", file ? file : template);
        jw_bool(&w, "add_generation_prompt", in->add_generation_prompt);
        jw_bool(&w, "continue_final_message", in->continue_final_message);
        jw_int(&w, "thinking", in->thinking);
        jw_text(&w, "date", in->date);
        jw_int(&w, "day", (int64_t)in->day);
        jw_close(&w, '}');
    }
    free(file);
    return !f || stream_end(f) ? no_memory(e) : 0;
}

int conversation_of_user(char **json, const char *text, size_t n, struct err *e)
{
    size_t size;
    FILE *f = memory_file(json, &size);
    if (!f)
        return no_memory(e);
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '{');
    jw_open(&w, "messages", '[');
    jw_open(&w, NULL, '{');
    jw_text(&w, "role", "user");
    jw_bytes(&w, "content", text, n);
    jw_close(&w, '}');
    jw_close(&w, ']');
    jw_close(&w, '}');
    return stream_end(f) ? no_memory(e) : 0;
}

/* Whether the value is a message of the system. */
static bool is_system(const struct json *v)
{
    struct json role;
    struct err ignored;
    return js_kind(v) == JS_OBJECT && js_get(v, "role", &role, &ignored) == 1 &&
           (js_is(&role, "system") || js_is(&role, "developer"));
}

static bool get(const struct json *root, const char *key, struct json *v)
{
    struct err ignored;
    return js_get(root, key, v, &ignored) == 1 && js_kind(v) != JS_NULL;
}

/* The elements of an array of messages from number `from` on. */
static void put_messages(struct json_writer *w, const struct json *list, size_t from)
{
    struct json one;
    size_t i = 0;
    for (struct js_walk walk = js_walk(list); js_next(&walk, NULL, &one); i++)
        if (i >= from)
            jw_value(w, NULL, &one);
}

/* All messages of a chat, in order. */
static void put_all(struct json_writer *w, const struct json *root)
{
    struct json before, own, first;
    const bool has_own = get(root, "messages", &own);
    struct js_walk walk = js_walk(&own);
    size_t from = 0;
    if (get(root, "before", &before) && js_count(&before)) {
        if (has_own && js_next(&walk, NULL, &first) && is_system(&first)) {
            walk = js_walk(&before);
            struct json earlier;
            if (js_next(&walk, NULL, &earlier) && !is_system(&earlier)) {
                jw_value(w, NULL, &first);
                from = 1;
            }
        }
        put_messages(w, &before, 0);
    }
    if (has_own)
        put_messages(w, &own, from);
}

int conversation_continue(char **json, const char *own, const char *before, const char *answer, size_t n,
                          struct err *e)
{
    struct json root, earlier, key, v;
    char name[40];
    bool control;
    size_t size;
    if (js_check(&root, "a stored chat", own, strlen(own), e) ||
        (before && js_check(&earlier, "a stored chat", before, strlen(before), e)))
        return -1;
    FILE *f = memory_file(json, &size);
    if (!f)
        return no_memory(e);
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '{');
    jw_open(&w, "before", '[');
    if (before)
        put_all(&w, &earlier);
    if (answer) {
        jw_open(&w, NULL, '{');
        jw_text(&w, "role", "assistant");
        jw_bytes(&w, "content", answer, n);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    for (struct js_walk walk = js_walk(&root); js_next(&walk, &key, &v);) {
        if (js_is(&key, "before") || js_length(&key, &control) >= sizeof name)
            continue;
        name[js_unescape(&key, name)] = 0;
        jw_value(&w, name, &v);
    }
    jw_close(&w, '}');
    return stream_end(f) ? no_memory(e) : 0;
}

/* The input of a stored chat. *messages: for free; *texts: template and date, for free. */
static int read_input(struct chat_input *in, char **messages, char *texts[2], const struct json *root,
                      struct err *e)
{
    struct json v;
    size_t n, thinking = 0;
    int64_t day = 0;
    FILE *f = memory_file(messages, &n);
    if (!f)
        return no_memory(e);
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '[');
    put_all(&w, root);
    jw_close(&w, ']');
    if (stream_end(f))
        return no_memory(e);
    if (js_check(&in->messages, "the messages", *messages, n, e))
        return -1;
    get(root, "tools", &in->tools);
    get(root, "documents", &in->documents);
    get(root, "kwargs", &in->kwargs[0]);
    get(root, "own_kwargs", &in->kwargs[1]);
    texts[0] = get(root, "template", &v) ? js_strdup(&v) : NULL;
    texts[1] = get(root, "date", &v) ? js_strdup(&v) : NULL;
    in->date = texts[1];
    in->add_generation_prompt = get(root, "add_generation_prompt", &v) && js_kind(&v) == JS_TRUE;
    in->continue_final_message = get(root, "continue_final_message", &v) && js_kind(&v) == JS_TRUE;
    if (get(root, "thinking", &v) && js_size(&v, 0, CHAT_EFFORT_HIGH, &thinking, e))
        return -1;
    in->thinking = (int)thinking;
    in->day = get(root, "day", &v) && js_i64(&v, &day) ? (time_t)day : 0;
    return 0;
}

int conversation_render(struct chat_prompt *p, const char *json, const char *dir, const struct tokenizer *t,
                        struct err *e)
{
    struct json root;
    struct chat c = {0};
    struct chat_input in = {0};
    struct chat_notes notes = {0};
    char *messages = NULL, *texts[2] = {0};
    *p = (struct chat_prompt){0};
    int rc = js_check(&root, "a stored chat", json, strlen(json), e) ||
                     read_input(&in, &messages, texts, &root, e) ||
                     chat_open(&c, dir, texts[0], CHAT_TEXT, e) || chat_prompt_make(p, &c, t, &in, &notes, e)
                 ? -1
                 : 0;
    chat_close(&c);
    free(messages);
    free(texts[0]);
    free(texts[1]);
    return rc;
}

int conversation_open(struct chat_prompt *p, const char *dir, const struct tokenizer *t,
                      const struct options *o, const char *text, size_t n, struct err *e)
{
    struct chat c = {0};
    struct chat_input in;
    char *file = NULL, *messages = NULL;
    size_t n_file;
    const char *where = !o->messages ? NULL : strcmp(o->messages, "-") ? o->messages : "standard input";
    struct chat_notes notes = {0};
    *p = (struct chat_prompt){0};
    int rc = chat_input_of(&in, o, e);
    if (rc == 0 && o->messages) {
        rc = text_read_utf8(&file, &n_file, o->messages, e) || js_check(&in.messages, where, file, n_file, e)
                 ? -1
                 : 0;
        if (rc == 0 && js_kind(&in.messages) != JS_ARRAY)
            rc = js_bad(&in.messages, e, "allowed is an array of messages");
    } else if (rc == 0) {
        rc = chat_messages(&messages, &in.messages, o->system, text, n, e);
    }
    if (rc == 0)
        rc = chat_open(&c, dir, o->chat_template, CHAT_FILE, e) || chat_prompt_make(p, &c, t, &in, &notes, e)
                 ? -1
                 : 0;
    if (rc == 0)
        rc = conversation_put(&p->json, &in, o->chat_template, CHAT_FILE, e);
    if (rc == 0)
        chat_notes_print(&notes, o);
    chat_close(&c);
    free(file);
    free(messages);
    return rc;
}
