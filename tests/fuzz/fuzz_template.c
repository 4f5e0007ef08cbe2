/* Fuzz target: a chat template, then perhaps a NUL byte and the variables in JSON. A template renders to
 * valid UTF-8, twice to the same, or is refused with one line that names it. */
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"
#include "src/text/jinja/jinja.h"

/* Variables of every kind, for a template that comes without. */
static const char template_vars[] =
    "{\"n\": 3, \"f\": 2.5, \"t\": true, \"no\": null, \"s\": \"Hello World\", \"u\": \"t\xc3\xa9 x\\t\","
    " \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"x\", \"k y\": null}, \"mix\": [1, \"1\", null, 2.0, [1]],"
    " \"bos_token\": \"<s>\", \"add_generation_prompt\": true, \"tools\": null, \"messages\": ["
    "{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi <there>\"},"
    "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"<think>a</think>b\"}],"
    " \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}]}";
static size_t template_rendered;             /* test_fuzz_corpus.c checks it */

static void template_refused(const struct err *e)
{
    if (e->code != ERR_INPUT || strncmp(e->msg, "fuzz", 4) || strpbrk(e->msg, "\n\r\033"))
        abort();
}

static void template_take(void *ctx, const char *text, size_t n)
{
    if (utf8_valid_prefix(text, n) != n)
        abort();
    *(size_t *)ctx += n;
}

/* The text; NULL: refused. */
static char *template_render(struct jinja *t, const struct json *vars, size_t *n)
{
    char *out;
    struct err e;
    if (jinja_render(t, vars, &(struct jinja_run){ .now = 1721952000 }, &out, n, &e)) {
        template_refused(&e);
        return NULL;
    }
    if (out[*n] || utf8_valid_prefix(out, *n) != *n)
        abort();
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    const size_t first = nul ? (size_t)(nul - data) : n;
    struct json vars;
    struct jinja *t;
    struct err e;
    if (!nul || js_check(&vars, "fuzz", (const char *)nul + 1, n - first - 1, &e) ||
        js_kind(&vars) != JS_OBJECT)
        js_check(&vars, "vars", template_vars, sizeof template_vars - 1, &e);
    if (jinja_open(&t, "fuzz", (const char *)data, first, &e)) {
        template_refused(&e);
        return 0;
    }
    size_t n_a, n_b, bytes = 0;
    jinja_texts(t, template_take, &bytes);
    char *a = template_render(t, &vars, &n_a);
    jinja_loops_over_content(t);
    char *b = template_render(t, &vars, &n_b);
    if (!a != !b || (a && (n_a != n_b || memcmp(a, b, n_a))))
        abort();
    template_rendered += a != NULL;
    free(a);
    free(b);
    jinja_close(t);
    return 0;
}
