/* The identity of a request of a batch (batch_line.h): the members of its body, sorted by name. */
#include "src/request/batch_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"

struct member { char *name; struct json value; };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* WHOLE: inside, of a field of whole numbers; LINE: a body with fields that are not its own; SERVED: of a
 * server */
enum top { INSIDE, WHOLE, BODY, LINE, SERVED };
static int put_value(FILE *f, const struct json *v, enum top top);

/* Frees the text. */
static int put_text(FILE *f, char *s)
{
    if (s)
        fprintf(f, "%zu:%s", strlen(s), s);
    free(s);
    return s ? 0 : -1;
}

/* Writes members sorted by name. At the top level null members are omitted. */
static int put_object(FILE *f, const struct json *v, enum top top)
{
    struct json key, one;
    size_t i = 0;
    int rc = 0;
    struct member *m = calloc(js_count(v) + 1, sizeof *m);
    if (!m)
        return -1;
    for (struct js_walk w = js_walk(v); rc == 0 && js_next(&w, &key, &one);) {
        if ((top >= BODY && js_kind(&one) == JS_NULL) ||
            (top == SERVED && (js_is(&key, "stream") || js_is(&key, "stream_options"))))
            continue;
        m[i] = (struct member){ js_strdup(&key), one };
        if (m[i].name && top == LINE && batch_line_field(m[i].name) & FIELD_BESIDE)
            free(m[i].name);
        else if (m[i].name)
            i++;
        else
            rc = -1;
    }
    if (rc == 0)
        qsort(m, i, sizeof *m, by_name);
    fputc('{', f);
    for (size_t k = 0; k < i; k++) {
        const enum top in = top >= BODY && batch_line_field(m[k].name) & FIELD_WHOLE ? WHOLE : INSIDE;
        rc = put_text(f, m[k].name) || rc || put_value(f, &m[k].value, in) ? -1 : 0;
    }
    fputc('}', f);
    free(m);
    return rc;
}

/* The recursion is at most JS_DEPTH_MAX deep. */
static int put_value(FILE *f, const struct json *v, enum top top)
{
    struct json one;
    char digits[24];
    int rc = 0;
    switch (js_kind(v)) {
    case JS_OBJECT: return put_object(f, v, top);
    case JS_STRING: return put_text(f, js_strdup(v));
    case JS_ARRAY:
        fputc('[', f);
        for (struct js_walk w = js_walk(v); rc == 0 && js_next(&w, NULL, &one);)
            rc = put_value(f, &one, top == WHOLE ? WHOLE : INSIDE);
        fputc(']', f);
        return rc;
    default:
        if (top == WHOLE && js_digits(v, digits))
            fputs(digits, f);
        else
            fwrite(v->s, 1, (size_t)(v->end - v->s), f);
        fputc(',', f);
        return 0;
    }
}

int batch_line_identity(const struct batch_line *l, char **bytes, size_t *n, struct err *e)
{
    FILE *f = memory_file(bytes, n);
    bool failed = true;
    if (f) {
        fputs(l->chat ? "chat" : "completions", f);
        const struct chapter_spec *c = &l->job.chapter;
        if (c->after_id)
            fprintf(f, "%s\n%" PRId64 "\n%s%c", c->after_id, c->carry, c->append ? c->append : "", 0);
        failed = put_value(f, &l->body, l->plain ? LINE : l->served ? SERVED : BODY);
        failed |= stream_end(f) != 0;
    }
    if (failed && f)
        free(*bytes);
    return failed ? err_set(e, ERR_FAILED, "out of memory for a request of %zu bytes",
                            (size_t)(l->body.end - l->body.s))
                  : 0;
}
