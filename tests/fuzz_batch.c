/* Fuzz target: a line of a batch file, up to what a worker would refuse. What is accepted keeps the promises of src/request/batch_line.h, its chat is
 * rendered by every template, and its parameters are read back. */
#include <jansson.h>
#include "src/request/model_options.h"
#include "src/request/batch_line.h"
#include "src/request/request.h"

static const char BATCH_WHERE[] = "in.jsonl: line 7";
static struct options batch_options;
static struct engine batch_engine;
/* chats that a template took, requests that may be stored: a test looks */
static size_t batch_rendered, batch_ready;

static void batch_start(void)
{
    static char *argv[] = { (char *)"longhand", (char *)"submit", (char *)"-m",
                            (char *)"tests/data/models/llama2-bf16", (char *)"--batch", (char *)"in.jsonl",
                            (char *)"--threads", (char *)"1", (char *)"--device", (char *)"cpu" };
    struct err e;
    if (options_parse(&batch_options, sizeof argv / sizeof *argv, argv, &e) ||
        engine_open(&batch_engine, &batch_options, &e)) {
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

/* Every template takes the messages or refuses them. */
static void batch_chat(struct batch_line *l)
{
    char names[] = CHAT_NAMES, *save;
    struct chat_message *m;
    struct err e;
    size_t n, size;
    if (batch_line_messages(l, &m, &n, &e)) {
        batch_refused(&e);
        return;
    }
    for (size_t i = 0; i < n; i++)
        batch_text(m[i].role, strlen(m[i].role)), batch_text(m[i].content, m[i].n_content);
    for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        struct chat c;
        char *text;
        if (chat_open(&c, batch_engine.dir, name, &e))
            abort();
        if (chat_render(&c, m, n, &l->how, &text, &size, &e)) {
            batch_refused(&e);
        } else {
            batch_text(text, size);
            free(text);
            batch_rendered++;
        }
        chat_close(&c);
    }
    free(m);
}

/* As src/request/batch.c does it for a text; tokens of a chat do not matter here. */
static void batch_request(struct batch_line *l)
{
    struct request r = { .o = &l->o };
    struct err e;
    const char *text = "a";
    size_t n = 1;
    const size_t vocab = batch_engine.config.vocab;
    int rc = l->chat ? 0 : batch_line_prompt(l, vocab, &r.ids, &r.n_ids, &text, &n, &e);
    if (rc < 0) {
        batch_refused(&e);
        return;
    }
    if (rc == 0) {
        batch_text(text, n);
        rc = tokenizer_encode(batch_engine.tokenizer, &r.ids, &r.n_ids, text, n, true, &e);
    }
    for (size_t i = 0; i < r.n_ids; i++)
        if (r.ids[i] < 0 || (size_t)r.ids[i] >= vocab)
            abort();
    if (rc < 0 || (l->seeded ? 0 : options_assign(&l->o, "seed", "seed", "5", &e)) ||
        request_check_stop("body.stop", &l->o.stop, &e) || request_describe(&r, &batch_engine, &e) ||
        request_check(&r, &batch_engine, &e))
        batch_refused(&e);
    else
        batch_ready++;
    request_close(&r);
}

/* What tells the request apart, in a text of the same values. NULL: it is refused. */
static char *batch_identity(const json_t *v, size_t flags, size_t *n)
{
    struct batch_notes notes = {0};
    struct batch_line l;
    struct err e;
    char *id = NULL, *text = json_dumps(v, flags);
    if (text && batch_line_read(&l, &batch_options, BATCH_WHERE, text, strlen(text), &notes, &e) == 0 &&
        batch_line_identity(&l, &id, n, &e))
        abort();
    if (text)
        batch_line_close(&l);
    free(text);
    return id;
}

/* White space, order and escapes tell no request from another. */
static void batch_spelling(const char *s, size_t n)
{
    size_t na, nb;
    json_t *v = json_loadb(s, n, 0, NULL);
    char *a = v ? batch_identity(v, JSON_COMPACT | JSON_SORT_KEYS, &na) : NULL,
         *b = v ? batch_identity(v, JSON_INDENT(2) | JSON_ENSURE_ASCII, &nb) : NULL;
    if (!a != !b || (a && (na != nb || memcmp(a, b, na))))
        abort();
    free(a);
    free(b);
    json_decref(v);
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
        batch_text(l.custom_id, strlen(l.custom_id));
        if (!*l.custom_id || strlen(l.custom_id) > BATCH_CUSTOM_ID_BYTES_MAX || l.used > l.size)
            abort();
        if (l.metadata &&
            (l.metadata < (const char *)data || l.metadata + l.n_metadata > (const char *)data + n))
            abort();
        batch_spelling((const char *)data, n);
        batch_notes_text(names, sizeof names, &notes);
        if (l.chat)
            batch_chat(&l);
        batch_request(&l);
    }
    batch_line_close(&l);
    return 0;
}
