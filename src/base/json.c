/* The JSON reader. js_check and its helpers check_* validate a text once; js_walk, js_get and the typed
 * readers then walk it without errors. Start at check_value. */
#include "src/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/unicode.h"

/* ---- the check ---- */

struct scan { const char *file, *text, *p, *end; bool nul_allowed; struct err *e; };

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static int bad(const struct scan *c, const char *expected)
{
    size_t at = (size_t)(c->p - c->text);
    if (c->p == c->end)
        return err_set(c->e, ERR_INPUT, "%s: offset %zu: the JSON text ends, expected %s", c->file, at,
                       expected);
    unsigned char ch = (unsigned char)*c->p;
    if (ch < 0x20 || ch >= 0x7f)
        return err_set(c->e, ERR_INPUT, "%s: offset %zu: found byte 0x%02x, expected %s", c->file, at, ch,
                       expected);
    int n = 1;       /* a whole word such as NaN or True */
    while (is_letter(c->p[n - 1]) && n < c->end - c->p && n < 20 && is_letter(c->p[n]))
        n++;
    return err_set(c->e, ERR_INPUT, "%s: offset %zu: found '%.*s', expected %s", c->file, at, n, c->p,
                   expected);
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && is_space(*p))
        p++;
    return p;
}

/* Four hexadecimal digits at p; -1 when they are not. */
static int hex4(const char *p, const char *end)
{
    int x = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F'
            ? c - 'A' + 10 : -1;
        if (d < 0)
            return -1;
        x = x << 4 | d;
    }
    return x;
}

/* p is at the 'u'; afterwards p is at the last digit. */
static int check_unicode(struct scan *c)
{
    int x = hex4(c->p + 1, c->end);
    if (x < 0)
        return bad(c, "four hex digits after \\u");
    if (x == 0 && !c->nul_allowed)
        return bad(c, "no \\u0000");
    if (x >= 0xdc00 && x <= 0xdfff)
        return bad(c, "no lone surrogate");
    c->p += 4;
    if (x < 0xd800 || x > 0xdbff)
        return 0;
    int low = c->end - c->p > 6 && c->p[1] == '\\' && c->p[2] == 'u' ? hex4(c->p + 3, c->end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return bad(c, "a low surrogate after a high one");
    c->p += 6;
    return 0;
}

/* p is at the opening quote; afterwards p is after the closing quote. The text is valid UTF-8. */
static int check_string(struct scan *c)
{
    for (c->p++; c->p < c->end; c->p++) {
        if (*c->p == '"') {
            c->p++;
            return 0;
        }
        if ((unsigned char)*c->p < 0x20)
            return bad(c, "no control character in a string");
        if (*c->p != '\\')
            continue;
        c->p++;
        if (c->p == c->end)
            break;
        if (*c->p == 'u') {
            if (check_unicode(c))
                return -1;
        } else if (!*c->p || !strchr("\"\\/bfnrt", *c->p)) {
            return bad(c, "an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\u");
        }
    }
    return bad(c, "a closing quote");
}

static int check_digits(struct scan *c)
{
    if (c->p == c->end || !is_digit(*c->p))
        return bad(c, "a digit");
    while (c->p < c->end && is_digit(*c->p))
        c->p++;
    return 0;
}

static int check_number(struct scan *c)
{
    if (*c->p == '-')
        c->p++;
    if (c->p < c->end && *c->p == '0') {
        c->p++;
        if (c->p < c->end && is_digit(*c->p))
            return bad(c, "no digit after a leading 0");
    } else if (check_digits(c)) {
        return -1;
    }
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (check_digits(c))
            return -1;
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
            c->p++;
        if (check_digits(c))
            return -1;
    }
    return 0;
}

/* A value that contains no other values. */
static int check_scalar(struct scan *c)
{
    static const char *const words[] = { "null", "true", "false" };
    if (c->p < c->end && *c->p == '"')
        return check_string(c);
    if (c->p < c->end && (*c->p == '-' || is_digit(*c->p)))
        return check_number(c);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(c->end - c->p) >= n && memcmp(c->p, words[i], n) == 0) {
            c->p += n;
            return 0;
        }
    }
    return bad(c, "a value");
}

/* p is at the quote of a key; afterwards p is after the colon. */
static int check_key(struct scan *c)
{
    if (c->p == c->end || *c->p != '"')
        return bad(c, "a key in quotes");
    if (check_string(c))
        return -1;
    c->p = skip_space(c->p, c->end);
    if (c->p == c->end || *c->p != ':')
        return bad(c, "':'");
    c->p++;
    return 0;
}

/* Checks one value with everything in it. Not recursive: bit d of `objects` says whether level d is an
 * object. */
static int check_value(struct scan *c)
{
    uint64_t objects = 0;
    unsigned depth = 0;
    for (;;) {
        c->p = skip_space(c->p, c->end);
        if (c->p < c->end && (*c->p == '{' || *c->p == '[')) {
            bool object = *c->p == '{';
            if (depth == JS_DEPTH_MAX)
                return bad(c, "at most 64 nested levels");
            c->p = skip_space(c->p + 1, c->end);
            if (c->p < c->end && *c->p == (object ? '}' : ']')) {
                c->p++;
            } else {
                objects = (objects & ~((uint64_t)1 << depth)) | (uint64_t)object << depth;
                depth++;
                if (object && check_key(c))
                    return -1;
                continue;
            }
        } else if (check_scalar(c)) {
            return -1;
        }
        /* A value is complete: its array or object continues or ends. */
        for (;;) {
            if (depth == 0)
                return 0;
            bool object = objects >> (depth - 1) & 1;
            c->p = skip_space(c->p, c->end);
            if (c->p < c->end && *c->p == ',') {
                c->p = skip_space(c->p + 1, c->end);
                if (object && check_key(c))
                    return -1;
                break;
            }
            if (c->p == c->end || *c->p != (object ? '}' : ']'))
                return bad(c, object ? "',' or '}'" : "',' or ']'");
            c->p++;
            depth--;
        }
    }
}

static int check_text(struct json *root, const char *file, const char *text, size_t n, bool nul_allowed,
                      struct err *e)
{
    struct scan c = { file, text, text, text + n, nul_allowed, e };
    _Static_assert(JS_DEPTH_MAX <= 64, "one bit per level");
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)    /* editors of Windows write it before the text */
        c.p += 3;
    size_t valid = utf8_valid_prefix(text, n);
    if (valid < n)
        return err_set(e, ERR_INPUT, "%s: offset %zu: byte 0x%02x is not UTF-8", file, valid,
                       (unsigned char)text[valid]);
    c.p = skip_space(c.p, c.end);
    *root = (struct json){ .file = file, .text = text, .s = c.p };
    if (check_value(&c))
        return -1;
    root->end = c.p;
    c.p = skip_space(c.p, c.end);
    return c.p == c.end ? 0 : bad(&c, "nothing after the JSON value");
}

int js_check(struct json *root, const char *file, const char *text, size_t n, struct err *e)
{
    return check_text(root, file, text, n, false, e);
}

int js_check_with_nul(struct json *root, const char *file, const char *text, size_t n, struct err *e)
{
    return check_text(root, file, text, n, true, e);
}

/* ---- the walk ---- */

enum js_kind js_kind(const struct json *v)
{
    switch (*v->s) {
    case '{': return JS_OBJECT;
    case '[': return JS_ARRAY;
    case '"': return JS_STRING;
    case 't': return JS_TRUE;
    case 'f': return JS_FALSE;
    case 'n': return JS_NULL;
    default:  return JS_NUMBER;
    }
}

/* The end of the value at p in a checked text. */
static const char *value_end(const char *p)
{
    size_t depth = 0;
    do {
        switch (*p) {
        case '"':
            for (p++; *p != '"'; p++)
                p += *p == '\\';
            p++;
            break;
        case '{': case '[':
            depth++;
            p++;
            break;
        case '}': case ']':
            depth--;
            p++;
            break;
        default:      /* number, word, comma, colon, space; a bare value never ends the text (js_next) */
            if (depth) {
                p++;
                break;
            }
            while (is_digit(*p) || (*p >= 'a' && *p <= 'z') || *p == '-' || *p == '+' || *p == '.' ||
                   *p == 'E')
                p++;
        }
    } while (depth);
    return p;
}

struct js_walk js_walk(const struct json *v)
{
    enum js_kind kind = js_kind(v);
    assert(kind == JS_OBJECT || kind == JS_ARRAY);
    return (struct js_walk){ *v, v->s + 1 };
}

bool js_next(struct js_walk *w, struct json *key, struct json *value)
{
    const char *p = skip_space(w->p, w->in.end);
    bool object = *w->in.s == '{';
    if (*p == ',')
        p = skip_space(p + 1, w->in.end);
    if (*p == '}' || *p == ']')
        return false;
    struct json v = { .file = w->in.file, .text = w->in.text, .key = { w->in.key[0], w->in.key[1] } };
    if (object) {
        const char *end = value_end(p);
        if (key) {
            *key = v;
            key->s = p;
            key->end = end;
        }
        p = skip_space(skip_space(end, w->in.end) + 1, w->in.end);     /* after the colon */
    }
    v.s = p;
    v.end = w->p = value_end(p);      /* A bracket always follows, so value_end stays inside the text. */
    *value = v;
    return true;
}

size_t js_count(const struct json *v)
{
    struct json x;
    size_t n = 0;
    if (js_kind(v) == JS_OBJECT || js_kind(v) == JS_ARRAY)
        for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x);)
            n++;
    return n;
}

int js_get(const struct json *object, const char *key, struct json *v, struct err *e)
{
    struct json k, x;
    int found = 0;
    for (struct js_walk w = js_walk(object); js_next(&w, &k, &x);) {
        if (!js_is(&k, key))
            continue;
        if (found++)
            return err_set(e, ERR_INPUT, "%s: offset %zu: the key \"%s\" is given twice", k.file,
                           js_offset(&k), key);
        *v = x;
        v->key[object->key[0] != NULL] = key;
    }
    return found;
}

/* Decodes the character at *p to UTF-8; returns its length. */
static size_t unescape_step(const char **p, char out[4])
{
    const char *s = *p;
    if (*s != '\\') {
        out[0] = *s;
        *p = s + 1;
        return 1;
    }
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s[1] != 'u') {
        out[0] = to[strchr(from, s[1]) - from];
        *p = s + 2;
        return 1;
    }
    uint32_t x = (uint32_t)hex4(s + 2, s + 6);
    s += 6;
    if (x >= 0xd800 && x <= 0xdbff) {
        x = 0x10000 + ((x - 0xd800) << 10) + ((uint32_t)hex4(s + 2, s + 6) - 0xdc00);
        s += 6;
    }
    *p = s;
    return utf8_put(out, x);
}

/* dst NULL: only measures. */
static size_t decode(const struct json *v, char *dst, bool *control)
{
    size_t n = 0;
    *control = false;
    assert(*v->s == '"');
    for (const char *p = v->s + 1; p < v->end - 1;) {
        char c[4];
        const size_t len = unescape_step(&p, c);
        *control |= (unsigned char)*c < 0x20 || *c == 0x7f;
        if (dst)
            memcpy(dst + n, c, len);
        n += len;
    }
    return n;
}

size_t js_length(const struct json *v, bool *control) { return decode(v, NULL, control); }
size_t js_unescape(const struct json *v, char *dst) { return decode(v, dst, &(bool){ false }); }

char *js_strdup(const struct json *v)
{
    char *s = malloc((size_t)(v->end - v->s));       /* no longer than with its quotes */
    if (s)
        s[js_unescape(v, s)] = 0;
    return s;
}

bool js_is(const struct json *v, const char *text)
{
    size_t n = strlen(text), raw = (size_t)(v->end - v->s), i = 0;
    if (*v->s != '"' || raw < n + 2)
        return false;
    if (!memchr(v->s, '\\', raw))
        return raw == n + 2 && memcmp(v->s + 1, text, n) == 0;
    for (const char *p = v->s + 1; p < v->end - 1;) {
        char c[4];
        size_t len = unescape_step(&p, c);
        if (len > n - i || memcmp(text + i, c, len))
            return false;
        i += len;
    }
    return i == n;
}

int js_bad(const struct json *v, struct err *e, const char *allowed, ...)
{
    enum { SHOWN = 40 };
    char text[400];
    va_list ap;
    va_start(ap, allowed);
    vsnprintf(text, sizeof text, allowed, ap);
    va_end(ap);
    size_t n = (size_t)(v->end - v->s), shown = n > SHOWN ? utf8_valid_prefix(v->s, SHOWN) : n;
    return err_set(e, ERR_INPUT, "%s: %s%s%s (offset %zu): found %.*s%s, %s", v->file,
                   v->key[0] ? v->key[0] : "value", v->key[1] ? "." : "", v->key[1] ? v->key[1] : "",
                   js_offset(v), (int)shown, v->s, shown < n ? ".." : "", text);
}

/* Multiplies x by 10, n times. False: the product is not below 2^64. */
static bool shift(uint64_t *x, int64_t n)
{
    for (; n > 0 && *x; n--)
        if (__builtin_mul_overflow(*x, 10, x))
            return false;
    return true;
}

bool js_whole(const struct json *v, uint64_t *x)
{
    const char *p = v->s;
    uint64_t r = 0;                      /* times ten to the power `zeros + power` */
    int64_t zeros = 0, power = 0, e = 0;
    bool point = false, minus = false;
    for (; p < v->end && (is_digit(*p) || (*p == '.' && !point && p > v->s)); p++) {
        power -= point;
        point |= *p == '.';
        if (*p > '0' && (!shift(&r, zeros + 1) || __builtin_add_overflow(r, (uint64_t)(*p - '0'), &r)))
            return false;
        zeros = *p > '0' ? 0 : zeros + (*p == '0');
    }
    bool good = p > v->s && p[-1] != '.';
    if (good && p < v->end && (*p | 0x20) == 'e') {
        minus = ++p < v->end && *p == '-';
        p += p < v->end && (minus || *p == '+');
        good = p < v->end;
        for (; p < v->end && is_digit(*p); p++)
            e = MIN(e, (int64_t)1 << 40) * 10 + *p - '0';        /* beyond the length of any text */
    }
    *x = r;
    power += zeros + (minus ? -e : e);
    return good && p == v->end && (r == 0 || power >= 0) && shift(x, power);
}

bool js_u64(const struct json *v, uint64_t *x)
{
    const char *p = v->s;
    while (p < v->end && is_digit(*p))
        p++;
    return p == v->end && js_whole(v, x);
}

bool js_i64(const struct json *v, int64_t *x)
{
    struct json digits = *v;
    uint64_t u;
    const bool minus = *v->s == '-';
    digits.s += minus;
    if (!js_whole(&digits, &u) || u > (uint64_t)INT64_MAX + minus)
        return false;
    *x = minus ? (int64_t)(0 - u) : (int64_t)u;
    return true;
}

bool js_digits(const struct json *v, char digits[24])
{
    struct json number = *v;
    uint64_t u;
    const bool minus = *v->s == '-';
    number.s += minus;
    return js_whole(&number, &u) && snprintf(digits, 24, "%s%" PRIu64, minus && u ? "-" : "", u) > 0;
}

bool js_double(const struct json *v, double *x)
{
    char text[JS_NUMBER_MAX + 1];
    size_t n = (size_t)(v->end - v->s);
    if (js_kind(v) != JS_NUMBER || n > JS_NUMBER_MAX)
        return false;
    memcpy(text, v->s, n);
    text[n] = 0;
    double r = strtod(text, NULL);
    if (!(r >= -1.7976931348623157e308 && r <= 1.7976931348623157e308))
        return false;
    *x = r;
    return true;
}

int js_size(const struct json *v, size_t lo, size_t hi, size_t *x, struct err *e)
{
    uint64_t r;
    if (!js_u64(v, &r) || r < lo || r > hi)
        return js_bad(v, e, "allowed are whole numbers from %zu to %zu", lo, hi);
    *x = (size_t)r;
    return 0;
}

int js_whole_size(const struct json *v, size_t lo, size_t hi, size_t *x, struct err *e)
{
    char text[24];
    const struct json digits = { .s = text, .end = text + (js_digits(v, text) ? strlen(text) : 0) };
    return js_size(&digits, lo, hi, x, e) ? js_size(v, lo, hi, x, e) : 0;
}

int js_real(const struct json *v, double lo, double hi, double *x, struct err *e)
{
    double r;
    if (!js_double(v, &r) || !(r >= lo && r <= hi))
        return js_bad(v, e, "allowed are numbers from %g to %g", lo, hi);
    *x = r;
    return 0;
}

int js_bool(const struct json *v, bool *x, struct err *e)
{
    enum js_kind kind = js_kind(v);
    if (kind != JS_TRUE && kind != JS_FALSE)
        return js_bad(v, e, "allowed are true and false");
    *x = kind == JS_TRUE;
    return 0;
}
