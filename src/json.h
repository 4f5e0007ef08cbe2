/* JSON as RFC 8259 has it, checked once and then walked in place.
 *
 * json_check validates a whole text without allocating; after it no walk can fail, and a value is no
 * more than its span of that text. So a header of 100 MB costs its own bytes and nothing else, whatever
 * it holds. Stricter than the RFC where laxness hides mistakes: no byte order mark, no NUL (raw or
 * \u0000), no lone surrogates, at most JSON_DEPTH_MAX levels.
 *
 *     struct json root, v;
 *     if (json_check(&root, path, text, n, e)) return -1;
 *     int found = json_get(&root, "hidden_size", &v, e);        1, 0, or -1 (given twice)
 *     if (found < 0 || (found && json_size(&v, 1, 1000, &size, e))) return -1;
 *
 * Messages name file, key and offset, what was found and what is allowed. */
#pragma once
#include "src/base.h"

enum { JSON_DEPTH_MAX = 64, JSON_NUMBER_MAX = 63 };
enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {                    /* one value; file and text are borrowed */
    const char *file, *text;
    const char *s, *end;         /* its span, quotes and brackets included */
    const char *key[2];          /* how json_get came to it, for messages: outer, inner */
};

/* Check text[0..n) and set *root to its value. White space around it is allowed. */
int json_check(struct json *root, const char *file, const char *text, size_t n, struct err *e);
enum json_kind json_kind(const struct json *v);
static inline size_t json_offset(const struct json *v) { return (size_t)(v->s - v->text); }

/* Members of an object or elements of an array, in order:
 *     for (struct json_walk w = json_walk(&object); json_next(&w, &key, &value);)
 * key may be NULL for an array. */
struct json_walk { struct json in; const char *p; };
struct json_walk json_walk(const struct json *v);
bool json_next(struct json_walk *w, struct json *key, struct json *value);

/* The member `key` of an object: 1, or 0 when there is none, or -1 when it is given more than once. */
int json_get(const struct json *object, const char *key, struct json *v, struct err *e);

/* The decoded string without a NUL; dst holds at least v->end - v->s bytes. Returns its length. */
size_t json_unescape(const struct json *v, char *dst);
/* Whether v is the string `text`. */
bool json_is(const struct json *v, const char *text);

/* An ERR_INPUT of the form "file: key (offset N): found VALUE, <allowed>"; always -1. */
int json_bad(const struct json *v, struct err *e, const char *allowed, ...) __attribute__((format(printf, 3, 4)));

/* Typed values. A whole number is digits only: no sign, fraction or exponent. */
bool json_u64(const struct json *v, uint64_t *x);        /* false when it is not one below 2^64 */
bool json_double(const struct json *v, double *x);       /* false when it is no number or not finite */
int  json_size(const struct json *v, size_t lo, size_t hi, size_t *x, struct err *e);
int  json_real(const struct json *v, double lo, double hi, double *x, struct err *e);
int  json_bool(const struct json *v, bool *x, struct err *e);
