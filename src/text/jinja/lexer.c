/* Tokens of a template, by the rules of jinja2's lexer with trim_blocks and lstrip_blocks: the newline after
 * a block or a comment goes, and the white space before one that begins a line. A minus strips all white
 * space on its side, a plus keeps it. */
#include "src/text/jinja/jinja_impl.h"

#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct jinja *j;
    const char *s; size_t n, p;          /* p: next byte */
    size_t cap;
    bool line_starting;                  /* the last match ended with a newline */
    char open[JJ_DEPTH + 1]; int n_open; /* brackets */
};

static void add(struct lexer *x, enum jj_token_kind kind, V v, int op)
{
    struct jinja *j = x->j;
    j->tokens = jj_grow(j, j->tokens, j->n_tokens, &x->cap, sizeof *j->tokens);
    const bool attribute = j->n_tokens && j->tokens[j->n_tokens - 1].op == '.';
    j->tokens[j->n_tokens++] = (struct jj_token){ kind, j->line, op, v };
    if (kind == T_NAME || kind == T_STRING)
        jj_set(j, j->words, v, jj_bool((kind == T_NAME && !attribute) || jj_get(j, j->words, v).b));
}

static void count_lines(struct lexer *x, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        x->j->line += x->s[i] == '\n';
}

static bool at(const struct lexer *x, size_t p, const char *word)
{
    const size_t n = strlen(word);
    return p <= x->n && x->n - p >= n && !memcmp(x->s + p, word, n);
}

static bool at_any(const struct lexer *x, size_t p, const char *chars)
{
    return p < x->n && x->s[p] && strchr(chars, x->s[p]);
}

static size_t skip_space(const struct lexer *x, size_t p) { return p + unicode_lstrip(x->s + p, x->n - p); }

/* Adds the text s[from..to) before a tag with the sign '-', '+' or 0. */
static void add_data(struct lexer *x, size_t from, size_t to, char sign, bool variable)
{
    size_t end = to;
    if (sign == '-') {
        end = from + unicode_rstrip(x->s + from, to - from);
    } else if (sign != '+' && !variable) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n')
            line--;
        if ((line > from || x->line_starting) && unicode_rstrip(x->s + line, to - line) == 0)
            end = line;
    }
    if (end > from)
        add(x, T_DATA, jj_str(x->j, x->s + from, end - from), 0);
    count_lines(x, from, to);
}

/* The end of a tag at p: "-%}" and white space, "+%}", or "%}" and one newline. 0: there is none. */
static size_t end_of_tag(const struct lexer *x, size_t p, const char *end)
{
    if (at(x, p, "-") && at(x, p + 1, end))
        return skip_space(x, p + 1 + strlen(end));
    const bool variable = end[0] == '}';
    if (!variable && at(x, p, "+") && at(x, p + 1, end))
        return p + 1 + strlen(end);
    if (!at(x, p, end))
        return 0;
    p += strlen(end);
    return p + (!variable && at(x, p, "\n"));
}

static void leave(struct lexer *x, size_t p)
{
    count_lines(x, x->p, p);
    x->line_starting = p > 0 && x->s[p - 1] == '\n';
    x->p = p;
}

static char sign_at(const struct lexer *x, size_t p) { return at(x, p, "-") ? '-' : at(x, p, "+") ? '+' : 0; }

static void skip_comment(struct lexer *x)
{
    size_t end = 0;
    for (size_t p = x->p; !end && p < x->n; p++)
        end = end_of_tag(x, p, "#}");
    if (!end)
        jj_fail(x->j, "the comment has no end");
    leave(x, end);
}

/* {% raw %} at p: the place after it; 0: another tag. */
static size_t raw_begin(const struct lexer *x, size_t p)
{
    p = skip_space(x, p + 2 + (sign_at(x, p + 2) != 0));
    if (!at(x, p, "raw"))
        return 0;
    p = skip_space(x, p + 3);
    return at(x, p, "-%}") ? skip_space(x, p + 3) : at(x, p, "%}") ? p + 2 : 0;
}

static void add_raw(struct lexer *x)
{
    for (size_t p = x->p; p < x->n; p++) {
        if (!at(x, p, "{%"))
            continue;
        const char sign = sign_at(x, p + 2);
        size_t q = skip_space(x, p + 2 + (sign != 0));
        q = at(x, q, "endraw") ? end_of_tag(x, skip_space(x, q + 6), "%}") : 0;
        if (!q)
            continue;
        add_data(x, x->p, p, sign, false);
        x->p = p;
        leave(x, q);
        return;
    }
    jj_fail(x->j, "the raw block has no end");
}

/* ---- tokens of a tag ---- */

/* The value of the hexadecimal digit at p; 16: there is none. */
static int digit(const struct lexer *x, size_t p)
{
    const int c = p < x->n ? x->s[p] : 0, letter = (c | 32) - 'a';
    return jj_is_digit((char)c) ? c - '0' : letter >= 0 && letter < 6 ? letter + 10 : 16;
}
static bool is_word(char c)
{
    return jj_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* The end of digits of the base with single underscores between them, from p on. */
static size_t digits(const struct lexer *x, size_t p, int base)
{
    while (digit(x, p) < base || (at(x, p, "_") && digit(x, p + 1) < base))
        p++;
    return p;
}

/* The end of a float at p: digits with a fraction, an exponent, or both; 0: it is whole. */
static size_t float_end(const struct lexer *x, size_t p)
{
    const size_t whole = digits(x, p, 10);
    size_t end = whole;
    if (p > 0 && x->s[p - 1] == '.')
        return 0;
    if (at(x, end, ".") && digit(x, end + 1) < 10)
        end = digits(x, end + 1, 10);
    const size_t exponent = end + 1 + at_any(x, end + 1, "+-");
    if (at_any(x, end, "eE") && digit(x, exponent) < 10)
        end = digits(x, exponent, 10);
    return end == whole ? 0 : end;
}

static void add_number(struct lexer *x)
{
    char text[64];
    const char letter = x->p + 1 < x->n ? (char)(x->s[x->p + 1] | 32) : 0;
    const bool zero = x->s[x->p] == '0';                /* 0x1f, 0o17, 0b1, or zeros alone */
    int base = !zero ? 10 : letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 1;
    size_t from = x->p, end = float_end(x, from), n = 0;
    const bool whole = end == 0;
    if (zero && base > 1 && digits(x, from + 2, base) > from + 2)
        from += 2;
    else if (zero)
        base = 1;
    end = whole ? digits(x, from, base) : end;
    for (size_t i = from; i < end; i++)
        if (x->s[i] != '_' && n < sizeof text - 1)
            text[n++] = x->s[i];
    text[n] = 0;
    errno = 0;
    if (whole) {
        const int64_t v = strtoll(text, NULL, base > 1 ? base : 10);
        if (errno || n == sizeof text - 1)
            jj_fail(x->j, "the number %s is beyond 64 bits", text);
        add(x, T_INT, jj_int(v), 0);
    } else {
        add(x, T_FLOAT, jj_float(strtod(text, NULL)), 0);
    }
    x->p = end;
}

/* The code point of an escape: n digits of the base from p on. */
static uint32_t code_at(struct lexer *x, size_t p, size_t n, int base)
{
    uint32_t c = 0;
    for (size_t i = 0; i < n; i++) {
        if (digit(x, p + i) >= base)
            jj_fail(x->j, "a text has an escape without its %zu digits", n);
        c = c * (uint32_t)base + (uint32_t)digit(x, p + i);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        jj_fail(x->j, "a text has an escape of U+%X, which is no character", c);
    return c;
}

static void add_string(struct lexer *x)
{
    static const char letters[] = "nrtabfv\\'\"", meaning[] = "\n\r\t\a\b\f\v\\'\"";
    const char quote = x->s[x->p];
    struct jj_text t = {0};
    size_t p = x->p + 1;
    for (; p < x->n && x->s[p] != quote; p++) {
        char utf8[4];
        if (x->s[p] != '\\') {
            jj_put(x->j, &t, &x->s[p], 1);
            continue;
        }
        if (++p == x->n)
            break;
        const char e = x->s[p], *known = e ? strchr(letters, e) : NULL;
        if (e == '\n')
            continue;
        const bool octal = e >= '0' && e <= '7';
        size_t n = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : octal;
        while (octal && n < 3 && digit(x, p + n) < 8)
            n++;
        if (e == 'N' || (unsigned char)e >= 0x80)
            jj_fail(x->j, "a text has an escape that is not supported");
        if (known)
            jj_put(x->j, &t, &meaning[known - letters], 1);
        else if (n == 0)
            jj_put(x->j, &t, &x->s[p - 1], 2);
        else
            jj_put(x->j, &t, utf8, utf8_put(utf8, code_at(x, p + !octal, n, octal ? 8 : 16)));
        p += n - octal;
    }
    if (p >= x->n)
        jj_fail(x->j, "a text has no end");
    add(x, T_STRING, jj_text(x->j, &t), 0);
    count_lines(x, x->p, p);
    x->p = p + 1;
}

static void add_operator(struct lexer *x)
{
    static const char brackets[] = "()[]{}", two[] = "//**==!=>=<=";
    const char c = x->s[x->p], *close = c ? strchr(brackets, c) : NULL;
    for (const char *t = two; *t; t += 2)
        if (at(x, x->p, (char[]){ t[0], t[1], 0 })) {
            add(x, T_OP, jj_none(), JJ_OP2(t[0], t[1]));
            x->p += 2;
            return;
        }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        jj_fail(x->j, "unexpected character 0x%02x", (unsigned char)c);
    if (close && (close - brackets) % 2 == 0) {
        if (x->n_open == JJ_DEPTH)
            jj_fail(x->j, "more than %d brackets", JJ_DEPTH);
        x->open[x->n_open++] = close[1];
    } else if (close && (x->n_open == 0 || x->open[--x->n_open] != c)) {
        jj_fail(x->j, "unexpected '%c'", c);
    }
    add(x, T_OP, jj_none(), c);
    x->p++;
}

static void lex_tag(struct lexer *x, const char *end, enum jj_token_kind end_kind)
{
    for (;;) {
        const size_t after = x->n_open ? 0 : end_of_tag(x, x->p, end);
        if (after) {
            add(x, end_kind, jj_none(), 0);
            leave(x, after);
            return;
        }
        if (x->p >= x->n)
            jj_fail(x->j, "the template ends inside a tag");
        const size_t white = skip_space(x, x->p);
        const char c = x->s[x->p];
        if (white > x->p) {
            leave(x, white);
        } else if (jj_is_digit(c)) {
            add_number(x);
        } else if (is_word(c)) {
            size_t p = x->p;
            while (p < x->n && is_word(x->s[p]))
                p++;
            add(x, T_NAME, jj_str(x->j, x->s + x->p, p - x->p), 0);
            x->p = p;
        } else if (c == '"' || c == '\'') {
            add_string(x);
        } else {
            add_operator(x);
        }
    }
}

/* Jinja normalises line ends and drops one newline at the end. */
static void normalise(struct lexer *x, const char *text, size_t n)
{
    char *s = jj_alloc(x->j, n + 1);
    size_t w = 0;
    for (size_t i = 0; i < n; i++) {
        s[w++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
    }
    x->s = s;
    x->n = w - (w > 0 && s[w - 1] == '\n');
}

void jj_lex(struct jinja *j, const char *text, size_t n)
{
    struct lexer x = { .j = j, .line_starting = true };
    j->line = 1;
    j->words = jj_dict(j, JJ_DICT).dict;
    normalise(&x, text, n);
    while (x.p < x.n) {
        size_t p = x.p;
        while (p < x.n && !(x.s[p] == '{' && at_any(&x, p + 1, "%{#")))
            p++;
        if (p == x.n) {
            add(&x, T_DATA, jj_str(j, x.s + x.p, p - x.p), 0);
            break;
        }
        const bool variable = x.s[p + 1] == '{';
        const char sign = sign_at(&x, p + 2);
        const size_t raw = x.s[p + 1] == '%' ? raw_begin(&x, p) : 0;
        add_data(&x, x.p, p, sign, variable);
        x.p = p;
        leave(&x, raw ? raw : p + 2 + (sign != 0));
        if (raw) {
            add_raw(&x);
        } else if (x.s[p + 1] == '#') {
            skip_comment(&x);
        } else {
            add(&x, variable ? T_VAR_BEGIN : T_BLOCK_BEGIN, jj_none(), 0);
            lex_tag(&x, variable ? "}}" : "%}", variable ? T_VAR_END : T_BLOCK_END);
        }
    }
    add(&x, T_EOF, jj_none(), 0);
}
