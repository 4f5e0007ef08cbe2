/* Reads one line of a batch file, or the body of a request: the forms of a line, and what must be in it. Its
 * fields are rows of line_fields.c. Start at batch_line_read. */
#include "src/request/batch_line_impl.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"

static int read_body(struct batch_line *l, struct batch_notes *notes, struct err *e)
{
    const unsigned where = (l->chat ? FIELD_CHAT : FIELD_COMPLETIONS) | (l->plain ? FIELD_BESIDE : 0);
    l->in.add_generation_prompt = true;
    l->logprobs = -1;
    if (line_read_members(l, &l->body, where, e))
        return -1;
    if (l->top && l->logprobs != 1)
        return err_set(e, ERR_INPUT, "%s: body.top_logprobs needs \"logprobs\": true", l->body.file);
    if (l->logprobs >= 0)
        l->o.job.logprobs = l->logprobs ? (long)l->top : -1;
    if (l->in.continue_final_message && l->prompt_given && l->in.add_generation_prompt)
        return err_set(e, ERR_INPUT,
                       "%s: body: continue_final_message and add_generation_prompt exclude each other",
                       l->body.file);
    l->in.add_generation_prompt &= !l->in.continue_final_message;
    notes->ignored |= l->ignored;
    notes->lines += l->ignored != 0;
    return 0;
}

/* ---- the line ---- */

/* --chat: the messages of a prompt: one of the user, after --system. */
static void put_messages(struct json_writer *w, const struct batch_line *l, const struct json *prompt)
{
    jw_open(w, "messages", '[');
    if (l->o.system)
        chat_put(w, "system", l->o.system, strlen(l->o.system));
    jw_open(w, NULL, '{');
    jw_text(w, "role", "user");
    jw_value(w, "content", prompt);
    jw_close(w, '}');
    jw_close(w, ']');
}

/* The line of a chat of --chat, with messages in place of its prompt. */
static int put_chat_line(struct json_writer *w, struct batch_line *l, const struct json *line, struct err *e)
{
    struct json key, v;
    char name[80];
    bool control;
    jw_open(w, NULL, '{');
    for (struct js_walk at = js_walk(line); js_next(&at, &key, &v);) {
        if (js_is(&key, "prompt") && js_kind(&v) != JS_STRING)
            return js_bad(&v, e, "with --chat a text is needed");
        if (js_is(&key, "prompt")) {
            put_messages(w, l, &v);
            continue;
        }
        if (js_length(&key, &control) >= sizeof name)
            return line_unknown_field(l, &key, e);
        name[js_unescape(&key, name)] = 0;
        jw_value(w, name, &v);
    }
    jw_close(w, '}');
    return 0;
}

/* A line without url and body: the same request as /v1/completions with its fields, or with messages or
 * --chat as /v1/chat/completions. */
static int read_plain(struct batch_line *l, const struct json *line, struct err *e)
{
    struct json ignored;
    size_t n;
    char *body = NULL;
    l->chat = l->o.chat || js_get(line, "messages", &ignored, e) == 1;
    l->plain = true;
    l->body = *line;
    if (!l->o.chat)
        return 0;
    FILE *f = memory_file(&body, &n);
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory for a line");
    struct json_writer w = { .f = f };
    int rc = put_chat_line(&w, l, line, e);
    if (stream_end(f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "out of memory for a line");
    if (rc == 0) {
        char *room = line_room(l, n);
        memcpy(room, body, n);
        rc = js_check(&l->body, line->file, room, n, e);
    }
    free(body);
    l->o.system = NULL;                          /* a message now */
    return rc;
}

static int read_head(struct batch_line *l, const struct json *line, struct err *e)
{
    struct json key, v;
    int found = js_get(line, "method", &v, e);
    if (found < 0 || (found && !js_is(&v, "POST")))
        return found < 0 ? -1 : js_bad(&v, e, "only \"POST\" is allowed");
    const int url = js_get(line, "url", &v, e);
    l->chat = url == 1 && js_is(&v, "/v1/chat/completions");
    if (url < 0 || (url && !l->chat && !js_is(&v, "/v1/completions")))
        return url < 0 ? -1 : js_bad(&v, e, "/v1/completions and /v1/chat/completions are allowed");
    if (line_read_members(l, line, FIELD_BESIDE, e))
        return -1;
    found = js_get(line, "body", &l->body, e);
    for (struct js_walk w = js_walk(line); !found && js_next(&w, &key, &v);)
        if (!line_find_field(&key) && !js_is(&key, "method") && !js_is(&key, "url"))
            return line_unknown_field(l, &key, e);
    if (!l->job.custom_id)
        return err_set(e, ERR_INPUT, "%s: custom_id is missing, a text is needed", line->file);
    if (found != 1)
        return found ? -1 : err_set(e, ERR_INPUT, "%s: body is missing, an object is needed", line->file);
    if (js_kind(&l->body) != JS_OBJECT)
        return js_bad(&l->body, e, "allowed is an object");
    if (!url)
        l->chat = js_get(&l->body, "messages", &v, e) == 1;
    return 0;
}

/* What must not stand together in the line of a chapter. */
static int check_chapter(const struct batch_line *l, const char *where, struct err *e)
{
    const struct chapter_spec *c = &l->job.chapter;
    if (!c->after_id && (c->carry >= 0 || c->append))
        return err_set(e, ERR_INPUT, "%s: %s needs after", where, c->append ? "append" : "carry");
    if (!c->after_id)
        return 0;
    if (l->chat && c->append)
        return err_set(e, ERR_INPUT, "%s: append: a chat has no given text; its next message can say it",
                       where);
    if (l->o.samples != 1)
        return err_set(e, ERR_INPUT, "%s: %zu samples of a line with after, 1 is allowed (n, --samples)",
                       where, l->o.samples);
    return 0;
}

/* The fields of the body, and what must be there. */
static int read_rest(struct batch_line *l, const char *where, struct batch_notes *notes, struct err *e)
{
    if (read_body(l, notes, e) || check_chapter(l, where, e))
        return -1;
    const struct json *need = l->chat ? &l->in.messages : &l->prompt;
    if (!need->s && l->job.chapter.after_id && !l->chat)
        return 0;
    if (!need->s)
        return err_set(e, ERR_INPUT, "%s: body.%s is missing", where, l->chat ? "messages" : "prompt");
    if (l->chat && js_kind(need) != JS_ARRAY)
        return js_bad(need, e, "allowed is an array of messages");
    return 0;
}

/* Checks the JSON of a line or of a body of n bytes, and takes the room for its texts. */
static int open_line(struct batch_line *l, struct json *root, const char *where, const char *text, size_t n,
                     const char *allowed, struct err *e)
{
    l->job.chapter.carry = -1;
    l->size = 4 * n + 512;
    if (l->o.chat && l->o.system)
        l->size += 8 * strlen(l->o.system);      /* an escaped copy, and one that is not */
    if (js_check(root, where, text, n, e))
        return -1;
    if (js_kind(root) != JS_OBJECT)
        return js_bad(root, e, "%s", allowed);
    l->room = malloc(l->size);
    return l->room ? 0 : err_set(e, ERR_FAILED, "out of memory for %zu bytes of %s", n, where);
}

int batch_line_read(struct batch_line *l, const struct options *o, const char *where, const char *text,
                    size_t n, struct batch_notes *notes, struct err *e)
{
    struct json line, ignored;
    *l = (struct batch_line){ .o = *o };
    if (open_line(l, &line, where, text, n, "allowed is an object with custom_id, method, url and body", e))
        return -1;
    const bool prompt = js_get(&line, "prompt", &ignored, e) == 1,
               plain = (prompt || js_get(&line, "messages", &ignored, e) == 1 ||
                        js_get(&line, "after", &ignored, e) == 1) &&
                       !js_get(&line, "body", &ignored, e) && !js_get(&line, "url", &ignored, e) &&
                       !js_get(&line, "method", &ignored, e);
    if ((!plain || !prompt) && o->chat)
        return err_set(e, ERR_INPUT, "%s: --chat is for lines {\"prompt\": ..} and --lines; the url of this "
                       "line says whether it is a chat", where);
    if (plain ? read_plain(l, &line, e) : read_head(l, &line, e))
        return -1;
    return read_rest(l, where, notes, e);
}

int batch_line_read_body(struct batch_line *l, const struct options *o, bool chat, const char *where,
                         const char *text, size_t n, struct batch_notes *notes, struct err *e)
{
    *l = (struct batch_line){ .o = *o, .chat = chat, .served = true };
    return open_line(l, &l->body, where, text, n, "allowed is an object", e) || read_rest(l, where, notes, e)
               ? -1 : 0;
}

void batch_line_close(struct batch_line *l)
{
    for (size_t i = 0; i < l->n_lists; i++)
        free(l->list[i]);
    free(l->room);
    *l = (struct batch_line){0};
}

/* ---- prompts ---- */

int batch_line_ids(const struct json *v, size_t most, int32_t **ids, size_t *n_ids, struct err *e)
{
    struct json one;
    size_t n = js_count(v), id;
    *n_ids = 0;
    *ids = malloc((n + 1) * sizeof **ids);
    if (!*ids)
        return err_set(e, ERR_FAILED, "out of memory for a prompt of %zu tokens", n);
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one); (*ids)[(*n_ids)++] = (int32_t)id)
        if (js_whole_size(&one, 0, most, &id, e)) {
            free(*ids);
            *ids = NULL;
            return -1;
        }
    return 0;
}

int batch_line_prompt(struct batch_line *l, size_t vocab, int32_t **ids, size_t *n_ids, const char **text,
                      size_t *n_text, struct err *e)
{
    struct json v = l->prompt, one, more;
    *ids = NULL;
    if (js_kind(&v) == JS_ARRAY) {
        struct js_walk w = js_walk(&v);
        const bool any = js_next(&w, NULL, &one),
                   list = any && (js_kind(&one) == JS_STRING || js_kind(&one) == JS_ARRAY);
        size_t prompts = any;
        while (list && js_next(&w, NULL, &more))
            prompts++;
        if (prompts > 1)
            return js_bad(&v, e,
                          "it has %zu prompts and one is allowed: give each its own line and custom_id "
                          "(several texts of one prompt: n)",
                          prompts);
        if (list)
            v = one;
    }
    if (js_kind(&v) == JS_ARRAY)
        return batch_line_ids(&v, vocab - 1, ids, n_ids, e) ? -1 : 1;
    if (js_kind(&v) != JS_STRING)
        return js_bad(&v, e, "allowed are a text, or an array of token ids from 0 to %zu", vocab - 1);
    if (!(*text = line_string(l, &v, e)))
        return -1;
    *n_text = strlen(*text);
    return 0;
}
