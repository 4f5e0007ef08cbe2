/* Fuzz target: our JSON checker against jansson. What one accepts the other does, but for what is ours (depth) and
 * theirs (numbers beyond 64 bits, at the time of parsing); and a checked text can be walked to its end. */
#include "src/base/json.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static size_t fuzz_json_walk(const struct json *v)
{
    char text[512];
    struct json key, x;
    double d;
    bool control;
    size_t n = 1, n_text;
    switch (js_kind(v)) {
    case JS_OBJECT: case JS_ARRAY:
        for (struct js_walk w = js_walk(v); js_next(&w, &key, &x);) {
            if (x.s < v->s || x.end > v->end || x.s >= x.end)
                abort();
            n += fuzz_json_walk(&x);
        }
        break;
    case JS_STRING:
        n_text = js_length(v, &control);
        if (n_text <= sizeof text && (js_unescape(v, text) != n_text ||
                                      utf8_valid_prefix(text, n_text) != n_text || memchr(text, 0, n_text)))
            abort();
        break;
    case JS_NUMBER:
        js_double(v, &d);
        break;
    default:
        break;
    }
    return n;
}

static size_t fuzz_json_count(const json_t *v)
{
    size_t n = 1, i;
    const char *key;
    json_t *x;
    if (json_is_object(v))
        json_object_foreach((json_t *)v, key, x)
            n += fuzz_json_count(x);
    else
        json_array_foreach(v, i, x)
            n += fuzz_json_count(x);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json root;
    struct err e;
    json_error_t je;
    bool ours = js_check(&root, "fuzz", (const char *)data, n, &e) == 0;
    if (n && memchr(data, 0, n)) {       /* jansson stops at a NUL; nothing of ours has one */
        if (ours)
            abort();
        return 0;
    }
    json_t *v = json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &je);
    size_t nodes = ours ? fuzz_json_walk(&root) : 0;
    if (v && !ours && !strstr(e.msg, "nested levels"))
        abort();
    if (!v && ours && json_error_code(&je) != json_error_numeric_overflow &&
        json_error_code(&je) != json_error_duplicate_key)
        abort();
    if (v && ours && nodes != fuzz_json_count(v))
        abort();
    json_decref(v);
    return 0;
}
