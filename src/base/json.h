/* The JSON reader (RFC 8259). A text is checked once and then walked in place.
 *
 * js_check validates a whole text without allocating. After it no walk can fail, and a value is a span of
 * the text, so a header of 100 MB needs no memory besides its own bytes. The reader is stricter than the
 * RFC where that reveals mistakes: it rejects NUL (raw or \u0000), lone surrogates, and more than
 * JS_DEPTH_MAX levels. It passes over a byte order mark before the text.
 *
 *     struct json root, v;
 *     if (js_check(&root, path, text, n, e)) return -1;
 *     int found = js_get(&root, "hidden_size", &v, e);        1, 0, or -1 (given twice)
 *     if (found < 0 || (found && js_size(&v, 1, 1000, &size, e))) return -1;
 *
 * Messages name the file, the key, the offset, the value that was found, and the values that are allowed.
 * The writer is src/base/json_write.h. */
#pragma once
#include "src/base/base.h"

enum { JS_DEPTH_MAX = 64, JS_NUMBER_MAX = 63 };
enum js_kind { JS_NULL, JS_FALSE, JS_TRUE, JS_NUMBER, JS_STRING, JS_ARRAY, JS_OBJECT };

struct json {                    /* one value; file and text are borrowed */
    const char *file, *text;
    const char *s, *end;         /* the span of the value, with its quotes or brackets */
    const char *key[2];          /* the keys that js_get followed, for messages: outer, inner */
};

/* Checks text[0..n) and sets *root to its value, which may have white space around it. */
int js_check(struct json *root, const char *file, const char *text, size_t n, struct err *e);
/* js_check that also accepts \u0000, for texts that are no C strings. */
int js_check_with_nul(struct json *root, const char *file, const char *text, size_t n, struct err *e);
enum js_kind js_kind(const struct json *v);
static inline size_t js_offset(const struct json *v) { return (size_t)(v->s - v->text); }

/* Members of an object or elements of an array, in order:
 *     for (struct js_walk w = js_walk(&object); js_next(&w, &key, &value);)
 * key may be NULL for an array. */
struct js_walk { struct json in; const char *p; };
struct js_walk js_walk(const struct json *v);
bool js_next(struct js_walk *w, struct json *key, struct json *value);
size_t js_count(const struct json *v);          /* members or elements; 0 for any other value */

/* Finds the member `key` of an object. 1: found; 0: not found; -1: the key is given more than once. */
int js_get(const struct json *object, const char *key, struct json *v, struct err *e);

/* The length of the decoded string, and whether it contains a control character (below 0x20, or 0x7f). */
size_t js_length(const struct json *v, bool *control);
/* Decodes the string to dst: js_length bytes, no NUL. Returns the length. */
size_t js_unescape(const struct json *v, char *dst);
/* The decoded string with a NUL; the caller frees it. NULL: out of memory. */
char *js_strdup(const struct json *v);
/* Whether v is the string `text`. */
bool js_is(const struct json *v, const char *text);

/* Sets an ERR_INPUT of the form "file: key (offset N): found VALUE, <allowed>"; returns -1. */
int js_bad(const struct json *v, struct err *e, const char *allowed, ...)
    __attribute__((format(printf, 3, 4)));

/* Typed values. Files of models have whole numbers of digits alone. Of users, whose numbers other programs
 * write as 4.0 and 4e0, a number is whole by its exact value; any text may be asked. */
bool js_u64(const struct json *v, uint64_t *x);        /* false unless v has digits alone and is below 2^64 */
bool js_whole(const struct json *v, uint64_t *x);      /* false unless v is a whole number below 2^64 */
bool js_i64(const struct json *v, int64_t *x);         /* the same with an optional minus sign */
bool js_digits(const struct json *v, char digits[24]); /* such a number without point and exponent */
bool js_double(const struct json *v, double *x);       /* false unless v is a finite number */
int  js_size(const struct json *v, size_t lo, size_t hi, size_t *x, struct err *e);        /* js_u64 */
int  js_whole_size(const struct json *v, size_t lo, size_t hi, size_t *x, struct err *e);  /* js_whole */
int  js_real(const struct json *v, double lo, double hi, double *x, struct err *e);
int  js_bool(const struct json *v, bool *x, struct err *e);
