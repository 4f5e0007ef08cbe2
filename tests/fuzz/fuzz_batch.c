/* Fuzz target: a line of a batch file, up to the checks of a worker. An accepted line keeps the promises
 * of src/request/batch_line.h: every template renders or refuses its chat, its parameters can be read
 * back, and its identity does not depend on the spelling of the JSON. */
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/request/batch_line.h"
#include "src/request/model_options.h"
#include "src/request/request.h"
#include "src/text/emit.h"

static const char BATCH_WHERE[] = "in.jsonl: line 7";
static struct options batch_options;
static struct engine batch_engine;
/* chats that a template rendered, requests that may be stored; test_fuzz_jobs.c checks them */
static size_t batch_rendered, batch_ready;

static void batch_start(void)
{
    static char *argv[] = { (char *)"longhand", (char *)"submit", (char *)"-m",
                            (char *)"build/data/models/llama2-bf16", (char *)"--batch", (char *)"in.jsonl",
                            (char *)"--threads", (char *)"1", (char *)"--device", (char *)"cpu" };
    struct err e;
    if (options_parse(&batch_options, sizeof argv / sizeof *argv, argv, &e) ||
        options_open_engine(&batch_engine, &batch_options, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
}

static void batch_refused(const struct err *e)
{
    if (e->code != ERR_INPUT || !*e->msg || strchr(e->msg, '\n') || strchr(e->msg, '\r') ||
        strchr(e->msg, '\033'))
        abort();
}

static void batch_text(const char *s, size_t n)
{
    if (strlen(s) != n || utf8_valid_prefix(s, n) != n)
        abort();
}

/* Every built-in template, and the line's own, renders the messages or refuses them. */
static void batch_chat(struct batch_line *l)
{
    char names[] = CHAT_NAMES ", ", *save;
    for (char *name = strtok_r(names, ", ", &save); name || l->template; name = strtok_r(NULL, ", ", &save)) {
        struct chat c;
        struct err e;
        char *text;
        size_t size;
        if (chat_open(&c, batch_engine.dir, name ? name : l->template, CHAT_TEXT, &e)) {
            batch_refused(&e);
        } else if (chat_render(&c, &l->in, &text, &size, &e)) {
            batch_refused(&e);
        } else {
            batch_text(text, size);
            free(text);
            batch_rendered++;
        }
        chat_close(&c);
        if (!name)
            break;
    }
}

/* Does what src/request/batch.c does for a text; the tokens of a chat do not matter here. */
static void batch_request(struct batch_line *l)
{
    struct request r = { .o = &l->o };
    struct err e;
    const char *text = "a";
    size_t n = 1;
    const size_t vocab = batch_engine.config.vocab;
    struct job_spec *j = &r.job;
    int rc = l->chat ? 0 : batch_line_prompt(l, vocab, &j->prompt_ids, &j->prompt_tokens, &text, &n, &e);
    if (rc < 0) {
        batch_refused(&e);
        return;
    }
    if (rc == 0) {
        batch_text(text, n);
        rc = tokenizer_encode(batch_engine.tokenizer, &j->prompt_ids, &j->prompt_tokens, text, n, true, &e);
    }
    for (size_t i = 0; i < j->prompt_tokens; i++)
        if (j->prompt_ids[i] < 0 || (size_t)j->prompt_ids[i] >= vocab)
            abort();
    if (rc < 0 || (l->seeded ? 0 : options_assign(&l->o, "seed", "seed", "5", &e)) ||
        stop_check("body.stop", l->o.job.stop.v, l->o.job.stop.n, &e) ||
        banned_check("body.banned_strings", l->o.job.banned.v, l->o.job.banned.n, &e) ||
        request_describe(&r, &batch_engine, &e) || request_check(&r, &batch_engine, &e))
        batch_refused(&e);
    else
        batch_ready++;
    request_close(&r);
}

/* ---- spelling ---- */

static bool batch_has_duplicates(const struct json *v)
{
    const bool object = js_kind(v) == JS_OBJECT;
    struct json key, x, found;
    struct err ignored;
    bool any = false;
    if (!object && js_kind(v) != JS_ARRAY)
        return false;
    for (struct js_walk w = js_walk(v); !any && js_next(&w, &key, &x);) {
        char *name = object ? js_strdup(&key) : NULL;
        any = batch_has_duplicates(&x) || (object && js_get(v, name, &found, &ignored) != 1);
        free(name);
    }
    return any;
}

/* Writes the value with the members of objects in reverse order and all strings escaped anew. */
static void batch_respell(struct json_writer *w, const char *key, const struct json *v)
{
    const enum js_kind kind = js_kind(v);
    const size_t n = js_count(v);
    if (kind == JS_STRING) {
        char *s = js_strdup(v);
        jw_text(w, key, s);
        free(s);
    } else if (kind == JS_ARRAY) {
        struct json x;
        jw_open(w, key, '[');
        for (struct js_walk walk = js_walk(v); js_next(&walk, NULL, &x);)
            batch_respell(w, NULL, &x);
        jw_close(w, ']');
    } else if (kind == JS_OBJECT) {
        struct { struct json key, value; } *m = calloc(n + 1, sizeof *m);
        size_t i = 0;
        for (struct js_walk walk = js_walk(v); js_next(&walk, &m[i].key, &m[i].value); i++)
            ;
        jw_open(w, key, '{');
        while (i-- > 0) {
            char *name = js_strdup(&m[i].key);
            batch_respell(w, name, &m[i].value);
            free(name);
        }
        jw_close(w, '}');
        free(m);
    } else {
        jw_raw(w, key, v->s, (size_t)(v->end - v->s));
    }
}

/* The identity of the request in another spelling. */
static char *batch_identity(const struct json *line, enum jw_style style, size_t *n)
{
    struct batch_notes notes = {0};
    struct batch_line l;
    struct err e;
    char *id = NULL, *text;
    size_t bytes;
    FILE *f = memory_file(&text, &bytes);
    if (!f)
        abort();
    batch_respell(&(struct json_writer){ .f = f, .digits = 17, .style = style }, NULL, line);
    if (stream_end(f) || batch_line_read(&l, &batch_options, BATCH_WHERE, text, bytes, &notes, &e) ||
        batch_line_identity(&l, &id, n, &e))
        abort();
    batch_line_close(&l);
    free(text);
    return id;
}

/* White space, the order of members and escapes do not change the identity of a request. */
static void batch_spelling(const struct batch_line *l, const char *s, size_t n)
{
    size_t n_id, na, nb;
    struct json line;
    struct err e;
    char *id;
    if (js_check(&line, BATCH_WHERE, s, n, &e) || batch_line_identity(l, &id, &n_id, &e))
        abort();
    if (!batch_has_duplicates(&line)) {
        char *a = batch_identity(&line, JW_COMPACT, &na), *b = batch_identity(&line, JW_INDENTED, &nb);
        if (na != n_id || nb != n_id || memcmp(a, id, n_id) || memcmp(b, id, n_id))
            abort();
        free(a);
        free(b);
    }
    free(id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct batch_notes notes = {0};
    struct batch_line l;
    struct err e;
    char names[800];
    if (!batch_engine.tokenizer)
        batch_start();
    if (batch_line_read(&l, &batch_options, BATCH_WHERE, (const char *)data, n, &notes, &e)) {
        batch_refused(&e);
        if (strncmp(e.msg, BATCH_WHERE, strlen(BATCH_WHERE)))
            abort();
    } else {
        batch_text(l.job.custom_id, strlen(l.job.custom_id));
        if (!*l.job.custom_id || strlen(l.job.custom_id) > BATCH_CUSTOM_ID_BYTES_MAX || l.used > l.size)
            abort();
        if (l.job.metadata && (l.job.metadata < l.room || l.job.metadata >= l.room + l.size))
            abort();
        batch_spelling(&l, (const char *)data, n);
        batch_notes_text(names, sizeof names, &notes);
        if (l.chat)
            batch_chat(&l);
        batch_request(&l);
    }
    batch_line_close(&l);
    return 0;
}
