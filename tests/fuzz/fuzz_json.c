/* Fuzz target: compares the JSON reader with a recursive reading of the grammar of RFC 8259. Both must
 * accept the same texts. An accepted text can be walked to its end, and the writer's copy of it is
 * accepted with as many values. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"

/* ---- the grammar ---- */

struct grammar { const unsigned char *p, *end; size_t values; bool bad; };

static void grammar_space(struct grammar *g)
{
    while (g->p < g->end && strchr(" \t\n\r", *g->p) && *g->p)
        g->p++;
}

static bool grammar_accept(struct grammar *g, const char *word)
{
    const size_t n = strlen(word);
    bool found = (size_t)(g->end - g->p) >= n && memcmp(g->p, word, n) == 0;
    g->p += found ? n : 0;
    return found;
}

static void grammar_require(struct grammar *g, bool right) { g->bad |= !right; }

static void grammar_digits(struct grammar *g)
{
    const unsigned char *from = g->p;
    while (g->p < g->end && *g->p >= '0' && *g->p <= '9')
        g->p++;
    grammar_require(g, g->p > from);
}

static void grammar_number(struct grammar *g)
{
    grammar_accept(g, "-");
    if (!grammar_accept(g, "0"))
        grammar_digits(g);
    if (grammar_accept(g, "."))
        grammar_digits(g);
    if (grammar_accept(g, "e") || grammar_accept(g, "E")) {
        if (!grammar_accept(g, "+"))
            grammar_accept(g, "-");
        grammar_digits(g);
    }
}

static unsigned grammar_hex(struct grammar *g)
{
    char digits[5] = "", *end = digits;
    for (int i = 0; i < 4 && g->p < g->end; i++)
        digits[i] = (char)*g->p++;
    unsigned x = (unsigned)strtoul(digits, &end, 16);
    grammar_require(g, end == digits + 4 && strspn(digits, "0123456789abcdefABCDEF") == 4);
    return x;
}

static void grammar_escape(struct grammar *g)
{
    if (!grammar_accept(g, "u")) {
        grammar_require(g, g->p < g->end && *g->p && strchr("\"\\/bfnrt", *g->p));
        g->p += g->p < g->end;
        return;
    }
    unsigned x = grammar_hex(g);
    grammar_require(g, x != 0 && !(x >= 0xdc00 && x <= 0xdfff));
    if (x >= 0xd800 && x <= 0xdbff) {
        grammar_require(g, grammar_accept(g, "\\u"));
        x = grammar_hex(g);
        grammar_require(g, x >= 0xdc00 && x <= 0xdfff);
    }
}

/* Reads one character of UTF-8 in its shortest form, which must not be a surrogate. */
static void grammar_character(struct grammar *g)
{
    static const unsigned least[] = { 0, 0x80, 0x800, 0x10000 };
    const unsigned lead = *g->p++;
    const unsigned more = lead < 0x80   ? 0
                          : lead < 0xc0 ? 9
                          : lead < 0xe0 ? 1
                          : lead < 0xf0 ? 2
                          : lead < 0xf8 ? 3
                                        : 9;
    grammar_require(g, more != 9 && (size_t)(g->end - g->p) >= more);
    if (g->bad)
        return;
    unsigned x = more ? lead & (0x3fu >> more) : lead;
    for (unsigned i = 0; i < more; i++, g->p++) {
        grammar_require(g, (*g->p & 0xc0) == 0x80);
        x = x << 6 | (*g->p & 0x3fu);
    }
    grammar_require(g, x >= least[more] && x <= 0x10ffff && !(x >= 0xd800 && x <= 0xdfff));
}

static void grammar_string(struct grammar *g)
{
    while (!g->bad && !grammar_accept(g, "\"")) {
        grammar_require(g, g->p < g->end && *g->p >= 0x20);
        if (g->bad)
            return;
        if (grammar_accept(g, "\\"))
            grammar_escape(g);
        else
            grammar_character(g);
    }
}

static void grammar_value(struct grammar *g, size_t depth)
{
    const bool object = grammar_accept(g, "{"), array = !object && grammar_accept(g, "[");
    g->values++;
    if (object || array) {
        const char *end = object ? "}" : "]";
        grammar_require(g, depth < JS_DEPTH_MAX);
        grammar_space(g);
        if (grammar_accept(g, end))
            return;
        do {
            grammar_space(g);
            if (object) {
                grammar_require(g, grammar_accept(g, "\""));
                grammar_string(g);
                grammar_space(g);
                grammar_require(g, grammar_accept(g, ":"));
                grammar_space(g);
            }
            if (!g->bad)
                grammar_value(g, depth + 1);
            grammar_space(g);
        } while (!g->bad && grammar_accept(g, ","));
        grammar_require(g, grammar_accept(g, end));
    } else if (grammar_accept(g, "\"")) {
        grammar_string(g);
    } else if (!grammar_accept(g, "null") && !grammar_accept(g, "true") && !grammar_accept(g, "false")) {
        grammar_number(g);
    }
}

/* The number of values; 0 for a text that is not JSON. */
static size_t grammar_check(const uint8_t *data, size_t n)
{
    struct grammar g = { .p = data, .end = data + n };
    grammar_space(&g);
    grammar_value(&g, 0);
    grammar_space(&g);
    return g.bad || g.p < g.end ? 0 : g.values;
}

/* ---- the target ---- */

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

static void fuzz_json_copy(const struct json *v, size_t values)
{
    struct json copy;
    struct err e;
    char *text;
    size_t n;
    FILE *f = memory_file(&text, &n);
    if (!f)
        abort();
    jw_value(&(struct json_writer){ .f = f, .digits = 17, .style = JW_INDENTED }, NULL, v);
    if (stream_end(f) || js_check(&copy, "copy", text, n, &e) || fuzz_json_walk(&copy) != values)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json root;
    struct err e;
    const bool accepted = js_check(&root, "fuzz", (const char *)data, n, &e) == 0;
    const size_t values = grammar_check(data, n);
    if (accepted != (values > 0) || (accepted && fuzz_json_walk(&root) != values))
        abort();
    if (accepted)
        fuzz_json_copy(&root, values);
    return 0;
}
