/* Reads of parsed JSON by path, for tests: json_at(&root, "windows.0.distinct.1"). A segment is a member's
 * name, or the index of an array's element. A value that does not exist has s == NULL. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"

static inline struct json json_at(const struct json *v, const char *path)
{
    struct json at = *v, x = { .s = NULL };
    struct err ignored;
    for (; at.s && *path; at = x) {
        char name[64];
        const size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        path += n + (path[n] == '.');
        x.s = NULL;
        if (js_kind(&at) == JS_OBJECT) {
            if (js_get(&at, name, &x, &ignored) != 1)
                x.s = NULL;
        } else if (js_kind(&at) == JS_ARRAY) {
            size_t i = strtoul(name, NULL, 10);
            for (struct js_walk w = js_walk(&at); js_next(&w, NULL, &x) && i-- > 0;)
                x.s = NULL;
        }
    }
    return at;
}

/* NAN when the value is no number or does not exist */
static inline double number_at(const struct json *v, const char *path)
{
    struct json at = json_at(v, path);
    double x = NAN;
    return at.s && js_double(&at, &x) ? x : NAN;
}

static inline bool null_at(const struct json *v, const char *path)
{
    struct json at = json_at(v, path);
    return at.s && js_kind(&at) == JS_NULL;
}

static inline size_t count_at(const struct json *v, const char *path)
{
    struct json at = json_at(v, path);
    return at.s ? js_count(&at) : 0;
}

/* free it; NULL when the value is no string */
static inline char *text_at(const struct json *v, const char *path)
{
    struct json at = json_at(v, path);
    return at.s && js_kind(&at) == JS_STRING ? js_strdup(&at) : NULL;
}
