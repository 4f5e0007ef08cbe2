/* The JSON writer. Every JSON output of longhand goes through it. The writer streams to a FILE and
 * allocates nothing. The caller checks for errors once, when it ends the stream (memory_file: stream_end;
 * standard output: stdout_finish).
 *
 *     struct json_writer w = jw_begin(f, JW_LINE, 10);
 *     jw_text(&w, "name", job->name);            "name": "a \"b\"", or null
 *     jw_format(&w, "seconds", "%.3f", s);       "seconds": 1.500
 *     jw_open(&w, "rounds", '[');
 *     jw_int(&w, NULL, 3);                       elements of an array have no key
 *     jw_close(&w, ']');
 *     jw_end(&w);
 *
 * A text that is no object or ends without a newline begins with { .f = f, .digits = 10 } instead.
 *
 * Reals have at most `digits` significant digits (17: the fewest that give the number back) and always a
 * point or an exponent. A real that is not finite becomes null. Numbers of input are copied and never printed
 * again. In text that is not UTF-8, such as a file name, each bad byte becomes the four characters \xNN. */
#pragma once
#include <stdio.h>

#include "src/base/json.h"

enum jw_style {
    JW_LINE,                     /* ", " and ": " */
    JW_COMPACT,                  /* "," and ":" */
    JW_INDENTED,                 /* one member per line */
    JW_LIST,                     /* one line for each element of the outer array */
};

struct json_writer {                /* the caller sets the first three members */
    FILE *f;
    int digits;                  /* of reals, 1 to 17 */
    enum jw_style style;
    unsigned depth;
    bool has_key;                /* the key of the next value is written already */
    bool more;                   /* the open object or array has a member already */
};

/* Opens an object that is a text of its own; jw_end closes the object and its line. The stream stays locked
 * in between, so lines of two threads do not mix. digits: 0 if the object has no jw_real and jw_number. */
struct json_writer jw_begin(FILE *f, enum jw_style style, int digits);
void jw_end(struct json_writer *w);
/* bracket: '{' or '[' */
void jw_open(struct json_writer *w, const char *key, char bracket);
void jw_close(struct json_writer *w, char bracket);
void jw_null(struct json_writer *w, const char *key);
void jw_bool(struct json_writer *w, const char *key, bool x);
void jw_int(struct json_writer *w, const char *key, int64_t x);
void jw_uint(struct json_writer *w, const char *key, uint64_t x);
/* A number that a user may give back, and its text as KEY_text, for readers whose numbers have 53 bits. */
void jw_wide(struct json_writer *w, const char *key, uint64_t x);
void jw_real(struct json_writer *w, const char *key, double x);
/* One number in a format of printf; null if it is not finite. */
void jw_format(struct json_writer *w, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As jw_real, but a whole number has no point. NAN serves for an unknown count. */
void jw_number(struct json_writer *w, const char *key, double x);
void jw_reals(struct json_writer *w, const char *key, const double *x, size_t n);      /* an array */
void jw_text(struct json_writer *w, const char *key, const char *s);          /* NULL: null */
void jw_bytes(struct json_writer *w, const char *key, const char *s, size_t n);
/* n bytes that are a JSON value already. */
void jw_raw(struct json_writer *w, const char *key, const char *s, size_t n);
/* A value that js_check accepted. Its strings and numbers are copied. */
void jw_value(struct json_writer *w, const char *key, const struct json *v);
void jw_member(struct json_writer *w, const struct json *key, const struct json *v);      /* of an object */
/* A text from outside that may hold JSON: its value, or the text itself as a string. NULL: null */
void jw_parsed(struct json_writer *w, const char *key, const char *text);

/* n bytes as a JSON string with its quotes: the part of the writer that other formats share. */
void jw_string(FILE *f, const char *s, size_t n);
