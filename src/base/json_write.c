/* The JSON writer: separators, indentation, escapes and the form of numbers. Start at `begin`, which puts
 * whatever precedes a value. Single characters are written with putc: after a failed write the next one
 * fails too and sets errno again, so that the end of the stream can name the cause. */
#include "src/base/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void jw_string(FILE *f, const char *s, size_t n)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    size_t valid = utf8_valid_prefix(s, n);
    putc_unlocked('"', f);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        const char *e = c ? strchr(escaped, c) : NULL;
        if (i == valid) {
            fprintf(f, "\\\\x%02x", c);
            valid = i + 1 + utf8_valid_prefix(s + i + 1, n - i - 1);
        } else if (e) {
            putc_unlocked('\\', f);
            putc_unlocked(names[e - escaped], f);
        } else if (c < 0x20) {
            fprintf(f, "\\u%04X", c);
        } else {
            putc_unlocked(c, f);
        }
    }
    putc_unlocked('"', f);
}

static void new_line(struct json_writer *w)
{
    if (w->style == JW_INDENTED) {
        putc_unlocked('\n', w->f);
        for (unsigned i = 0; i < w->depth; i++)
            putc_unlocked(' ', w->f);
    }
}

static void separate(struct json_writer *w)
{
    if (w->more)
        putc_unlocked(',', w->f);
    if (w->more && w->style == JW_LIST && w->depth == 1)
        putc_unlocked('\n', w->f);
    if (w->more && (w->style == JW_LINE || w->style == JW_LIST))
        putc_unlocked(' ', w->f);
    if (w->depth)
        new_line(w);
    w->more = true;
}

static void end_key(struct json_writer *w)
{
    putc_unlocked(':', w->f);
    if (w->style != JW_COMPACT)
        putc_unlocked(' ', w->f);
}

/* Whatever precedes a value, unless jw_value has written it. */
static void begin(struct json_writer *w, const char *key)
{
    if (!w->has_key)
        separate(w);
    if (key) {
        jw_string(w->f, key, strlen(key));
        end_key(w);
    }
    w->has_key = false;
}

void jw_raw(struct json_writer *w, const char *key, const char *s, size_t n)
{
    begin(w, key);
    for (size_t i = 0; i < n; i++)
        putc_unlocked(s[i], w->f);
}

void jw_open(struct json_writer *w, const char *key, char bracket)
{
    jw_raw(w, key, &bracket, 1);
    w->depth++;
    w->more = false;
}

void jw_close(struct json_writer *w, char bracket)
{
    w->depth--;
    if (w->more)
        new_line(w);
    putc_unlocked(bracket, w->f);
    w->more = true;
}

struct json_writer jw_begin(FILE *f, enum jw_style style, int digits)
{
    struct json_writer w = { .f = f, .digits = digits, .style = style };
    flockfile(f);
    jw_open(&w, NULL, '{');
    return w;
}

void jw_end(struct json_writer *w)
{
    jw_close(w, '}');
    putc_unlocked('\n', w->f);
    funlockfile(w->f);
}

void jw_null(struct json_writer *w, const char *key) { jw_raw(w, key, "null", 4); }
void jw_bool(struct json_writer *w, const char *key, bool x)
{
    jw_raw(w, key, x ? "true" : "false", x ? 4 : 5);
}

void jw_format(struct json_writer *w, const char *key, const char *format, ...)
{
    char text[400];              /* the largest double has 309 digits before its point */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (strchr(text, 'n'))       /* nan, inf */
        jw_null(w, key);
    else
        jw_raw(w, key, text, strlen(text));
}

void jw_int(struct json_writer *w, const char *key, int64_t x) { jw_format(w, key, "%" PRId64, x); }
void jw_uint(struct json_writer *w, const char *key, uint64_t x) { jw_format(w, key, "%" PRIu64, x); }
void jw_wide(struct json_writer *w, const char *key, uint64_t x)
{
    char name[40];
    snprintf(name, sizeof name, "%s_text", key);
    jw_uint(w, key, x);
    jw_format(w, name, "\"%" PRIu64 "\"", x);
}

static void put_real(struct json_writer *w, const char *key, double x, bool point)
{
    char text[40], *e;
    int n = MIN(w->digits, 15);          /* with more, 0.8 could be 0.80000000000000004 */
    assert(w->digits > 0);
    if (!isfinite(x)) {
        jw_null(w, key);
        return;
    }
    do
        snprintf(text, sizeof text, "%.*g", n, x);
    while (strtod(text, NULL) != x && n++ < w->digits);
    if (!(e = strchr(text, 'e'))) {
        if (point && !strchr(text, '.'))
            strcat(text, ".0");
    } else {                     /* 1e+05 -> 1e5, 1e-05 -> 1e-5 */
        char *digits = e + 1 + (e[1] == '-'), *p = e + 2 + strspn(e + 2, "0");
        memmove(digits, p, strlen(p) + 1);
    }
    jw_raw(w, key, text, strlen(text));
}

void jw_real(struct json_writer *w, const char *key, double x) { put_real(w, key, x, true); }

void jw_number(struct json_writer *w, const char *key, double x)
{
    assert(w->digits > 0);
    if (x == floor(x) && fabs(x) < 1e15)
        jw_int(w, key, (int64_t)x);
    else
        put_real(w, key, x, false);
}

void jw_reals(struct json_writer *w, const char *key, const double *x, size_t n)
{
    jw_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        jw_real(w, NULL, x[i]);
    jw_close(w, ']');
}

void jw_bytes(struct json_writer *w, const char *key, const char *s, size_t n)
{
    begin(w, key);
    jw_string(w->f, s, n);
}

void jw_text(struct json_writer *w, const char *key, const char *s)
{
    if (s)
        jw_bytes(w, key, s, strlen(s));
    else
        jw_null(w, key);
}

void jw_member(struct json_writer *w, const struct json *key, const struct json *v)
{
    separate(w);
    w->has_key = true;
    jw_raw(w, NULL, key->s, (size_t)(key->end - key->s));
    end_key(w);
    w->has_key = true;
    jw_value(w, NULL, v);
}

void jw_value(struct json_writer *w, const char *key, const struct json *v)
{
    const enum js_kind kind = js_kind(v);
    struct json name, x;
    if (kind == JS_OBJECT || kind == JS_ARRAY) {
        jw_open(w, key, *v->s);
        for (struct js_walk i = js_walk(v); js_next(&i, &name, &x);)
            if (kind == JS_OBJECT)
                jw_member(w, &name, &x);
            else
                jw_value(w, NULL, &x);
        jw_close(w, v->end[-1]);
    } else {
        jw_raw(w, key, v->s, (size_t)(v->end - v->s));
    }
}

void jw_parsed(struct json_writer *w, const char *key, const char *text)
{
    struct json v;
    struct err ignored;
    if (text && js_check(&v, "", text, strlen(text), &ignored) == 0)
        jw_value(w, key, &v);
    else
        jw_text(w, key, text);
}
