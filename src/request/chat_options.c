/* The options of --chat, the prompt that they make, and stored chats. Start at chat_prompt_make,
 * conversation_put and conversation_render. */
#include "src/request/chat_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/request/options_impl.h"

int chat_check_options(const struct options *o, struct err *e)
{
    static const char *const names[] = { "system", "chat-template", "chat-template-kwargs", "thinking",
                                         "chat-date" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !o->chat && !o->messages; i++)
        if (options_given(o, names[i]))
            return err_set(e, ERR_INPUT, "--%s needs --%s", names[i],
                           o->verb->bit & VERB_TOKENIZE ? "messages" : "chat");
    return o->system ? text_check_utf8("--system", o->system, strlen(o->system), e) : 0;
}

/* Variables that are members of struct chat_input. */
static int check_kwargs(const struct json *v, struct err *e)
{
    static const char *const own[] = { "messages", "tools", "documents", "add_generation_prompt" };
    struct json key, one;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "allowed is an object");
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &one);)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (js_is(&key, own[i]))
                return js_bad(v, e, "%s is no variable of this object", own[i]);
    return 0;
}

int chat_input_of(struct chat_input *in, const struct options *o, struct err *e)
{
    in->thinking = o->thinking;
    in->date = o->chat_date;
    if (chat_day(&in->day, "--chat-date", o->chat_date, e))
        return -1;
    if (!o->chat_kwargs)
        return 0;
    return js_check(&in->kwargs[0], "--chat-template-kwargs", o->chat_kwargs, strlen(o->chat_kwargs), e) ||
           check_kwargs(&in->kwargs[0], e) ? -1 : 0;
}

int chat_prompt_make(struct chat_prompt *p, const struct chat *c, const struct tokenizer *t,
                     const struct chat_input *in, struct chat_notes *notes, struct err *e)
{
    *p = (struct chat_prompt){0};
    if (in->kwargs[1].s && check_kwargs(&in->kwargs[1], e))
        return -1;
    if (chat_encode(c, t, in, &p->text, &p->n, &p->ids, &p->n_ids, e) ||
        chat_user_text(&in->messages, &p->user, &p->n_user, e)) {
        chat_prompt_free(p);
        return -1;
    }
    snprintf(p->facts.template, sizeof p->facts.template, "%s", c->name);
    chat_thought_marks(c, &p->facts.thought_start, &p->facts.thought_end);
    if (in->date || chat_has_day(c)) {
        struct tm day;
        gmtime_r(&in->day, &day);
        strftime(p->facts.day, sizeof p->facts.day, "%Y-%m-%d", &day);
    }
    if (notes && !*notes->variables)
        chat_notice(notes->variables, sizeof notes->variables, c, in);
    if (notes && !*notes->marks)
        chat_marks_notice(notes->marks, sizeof notes->marks, c, t);
    return 0;
}

void chat_prompt_free(struct chat_prompt *p)
{
    free(p->text);
    free(p->user);
    free(p->ids);
    free(p->json);
    *p = (struct chat_prompt){0};
}

void chat_notes_print(const struct chat_notes *notes, const struct options *o)
{
    if (*notes->variables)
        request_notice(o, "%s", notes->variables);
    if (*notes->marks)
        request_notice(o, "%s", notes->marks);
}

/* ---- stored chats ---- */

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for a chat"); }

static void put_if(struct json_writer *w, const char *key, const struct json *v)
{
    if (v->s)
        jw_value(w, key, v);
}

int conversation_put(char **json, const struct chat_input *in, const char *template, enum chat_source source,
                     struct err *e)
{
    char *file = NULL;
    size_t n;
    /* the file may have changed when a chapter goes on */
    if (template && source == CHAT_FILE && !strchr(template, '{') &&
        !option_is_listed(CHAT_NAMES, template) && text_read_utf8(&file, &n, template, e))
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

/* Whether the first of the messages is one of the system. */
static bool begins_with_system(const struct json *list)
{
    struct json first, role;
    struct err ignored;
    struct js_walk walk = js_walk(list);
    return js_next(&walk, NULL, &first) && js_kind(&first) == JS_OBJECT &&
           js_get(&first, "role", &role, &ignored) == 1 &&
           (js_is(&role, "system") || js_is(&role, "developer"));
}

static bool get(const struct json *root, const char *key, struct json *v)
{
    struct err ignored;
    return js_get(root, key, v, &ignored) == 1 && js_kind(v) != JS_NULL;
}

/* The elements of an array of messages from number `from` on, before number `end`. */
static void put_messages(struct json_writer *w, const struct json *list, size_t from, size_t end)
{
    struct json one;
    size_t i = 0;
    for (struct js_walk walk = js_walk(list); i < end && js_next(&walk, NULL, &one); i++)
        if (i >= from)
            jw_value(w, NULL, &one);
}

/* All messages of a chat, in order. */
static void put_all(struct json_writer *w, const struct json *root)
{
    struct json before, own;
    const bool has_before = get(root, "before", &before) && js_count(&before),
               has_own = get(root, "messages", &own),
               first = has_before && has_own && begins_with_system(&own) && !begins_with_system(&before);
    if (first)
        put_messages(w, &own, 0, 1);
    if (has_before)
        put_messages(w, &before, 0, SIZE_MAX);
    if (has_own)
        put_messages(w, &own, first, SIZE_MAX);
}

int conversation_continue(char **json, const char *own, const char *before, const struct chat_turn *turn,
                          size_t turns, struct err *e)
{
    struct json root, earlier, key, v;
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
    for (const struct chat_turn *t = turn; t < turn + turns; t++)
        chat_put(&w, t->role, t->text, t->n);
    jw_close(&w, ']');
    for (struct js_walk walk = js_walk(&root); js_next(&walk, &key, &v);)
        if (!js_is(&key, "before"))
            jw_member(&w, &key, &v);
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

/* chat_prompt_make with a template that is open for this prompt alone. */
static int make_once(struct chat_prompt *p, const char *dir, const char *template, enum chat_source source,
                     const struct tokenizer *t, const struct chat_input *in, struct chat_notes *notes,
                     struct err *e)
{
    struct chat c = {0};
    const int rc = chat_open(&c, dir, template, source, e) ||
                   chat_prompt_make(p, &c, t, in, notes, e) ||
                   (source == CHAT_FILE && chat_check_places(&c, in, e)) ? -1 : 0;
    if (rc)
        chat_prompt_free(p);
    chat_close(&c);
    return rc;
}

int conversation_render(struct chat_prompt *p, const char *json, const char *dir, const struct tokenizer *t,
                        struct err *e)
{
    struct json root;
    struct chat_input in = {0};
    char *messages = NULL, *texts[2] = {0};
    *p = (struct chat_prompt){0};
    int rc = js_check(&root, "a stored chat", json, strlen(json), e) ||
             read_input(&in, &messages, texts, &root, e) ||
             make_once(p, dir, texts[0], CHAT_TEXT, t, &in, NULL, e) ? -1 : 0;
    free(messages);
    free(texts[0]);
    free(texts[1]);
    return rc;
}

int conversation_open(struct chat_prompt *p, const char *dir, const struct tokenizer *t,
                      const struct options *o, const char *text, size_t n, struct err *e)
{
    struct chat_input in = { .add_generation_prompt = true };
    char *messages = NULL;
    size_t n_file;
    struct chat_notes notes = {0};
    int rc;
    *p = (struct chat_prompt){0};
    if (chat_input_of(&in, o, e))
        return -1;
    if (o->messages) {
        rc = text_read_utf8(&messages, &n_file, o->messages, e) ||
             js_check(&in.messages, input_name(o->messages), messages, n_file, e) ? -1 : 0;
        if (rc == 0 && js_kind(&in.messages) != JS_ARRAY)
            rc = js_bad(&in.messages, e, "allowed is an array of messages");
    } else {
        rc = chat_messages(&messages, &in.messages, o->system, text, n, e);
    }
    rc = rc || make_once(p, dir, o->chat_template, CHAT_FILE, t, &in, &notes, e) ||
         conversation_put(&p->json, &in, o->chat_template, CHAT_FILE, e) ? -1 : 0;
    if (rc == 0)
        chat_notes_print(&notes, o);
    free(messages);
    return rc;
}
