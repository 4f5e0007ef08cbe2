/* The split patterns of byte-level tokenizers, written by hand. They match as Oniguruma does at the start of
 * a text. split_regex has the patterns.
 *
 * The pieces cover every text without gaps. No pattern looks at text before it, so a piece depends only on
 * the text that follows. Each function returns the length of its alternative, 0 if it does not match.
 * Start at split_next. */
#include "src/base/split_regex.h"
#include "src/text/tokenizer_tables.h"

const char *const split_regex[SPLIT_PREFIX_SPACE] = {
    [SPLIT_GPT2] = SPLIT_REGEX_GPT2,
    [SPLIT_LLAMA3] = SPLIT_REGEX_LLAMA3,
    [SPLIT_QWEN2] = SPLIT_REGEX_QWEN2,
    [SPLIT_QWEN35] = SPLIT_REGEX_QWEN35,
    [SPLIT_TEKKEN] = SPLIT_REGEX_TEKKEN,
    [SPLIT_GPT4O] = SPLIT_REGEX_GPT4O,
};

/* The kind of a code point: UNI_LETTER, UNI_NUMBER or UNI_SPACE; 0: any other. A pattern that has \p{M}
 * beside \p{L} takes marks for letters. */
static unsigned kind_of(uint32_t c, bool marks)
{
    const unsigned class = unicode_class(c);
    return marks && (class & UNI_MARK) ? UNI_LETTER : class & (UNI_LETTER | UNI_NUMBER | UNI_SPACE);
}

/* The length of the run of at most `max` code points of kind `kind` at s. */
static size_t run(const char *s, size_t n, unsigned kind, size_t max, bool marks)
{
    size_t i = 0;
    uint32_t c;
    while (i < n && max-- > 0) {
        size_t len = utf8_get(s + i, &c);
        if (kind_of(c, marks) != kind)
            break;
        i += len;
    }
    return i;
}

/* 's 't 'm 'd 're 've 'll. With any_case the long s (U+017F) is an s, too; no other code point folds to
 * one of these letters. */
static size_t contraction(const char *s, size_t n, bool any_case)
{
    if (n < 2 || s[0] != '\'')
        return 0;
    if (any_case && n >= 3 && s[1] == '\xc5' && s[2] == '\xbf')
        return 3;
    char fold = any_case ? 32 : 0;
    char a = (char)(s[1] | fold), b = (char)(n > 2 ? s[2] | fold : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s*[\r\n]+ (with `newlines`), then \s+(?!\S), then \s+. */
static size_t spaces(const char *s, size_t n, bool newlines)
{
    size_t i = 0, last = 0, after_newline = 0;
    uint32_t c;
    while (i < n) {
        size_t len = utf8_get(s + i, &c);
        if (!(unicode_class(c) & UNI_SPACE))
            break;
        last = i;
        i += len;
        if (c == '\r' || c == '\n')
            after_newline = i;
    }
    if (newlines && after_newline)
        return after_newline;
    /* the last space belongs to the next piece, unless it is the only space */
    return i == n || last == 0 ? i : last;
}

static size_t gpt2_next(const char *s, size_t n)
{
    size_t len = contraction(s, n, false);
    if (len)
        return len;
    size_t space = s[0] == ' ' && n > 1;
    uint32_t c;
    utf8_get(s + space, &c);
    unsigned kind = kind_of(c, false);
    if (kind != UNI_SPACE)
        return space + run(s + space, n - space, kind, SIZE_MAX, false);
    return spaces(s, n, false);
}

/* The pattern of Llama 3 and those like it. A mark before letters is itself a letter or goes before them as
 * any other code point: the piece is the same. */
static size_t llama3_next(const char *s, size_t n, size_t digits, bool marks)
{
    size_t len = contraction(s, n, true);
    if (len)
        return len;
    uint32_t c;
    size_t one = utf8_get(s, &c);
    unsigned kind = kind_of(c, marks);
    if (kind == UNI_LETTER)
        return run(s, n, UNI_LETTER, SIZE_MAX, marks);
    if (kind == UNI_NUMBER)
        return run(s, n, UNI_NUMBER, digits, marks);
    if (c != '\r' && c != '\n' && (len = run(s + one, n - one, UNI_LETTER, SIZE_MAX, marks)) > 0)
        return one + len;
    size_t space = c == ' ' ? 1 : 0;
    len = run(s + space, n - space, 0, SIZE_MAX, marks);
    if (len == 0)
        return spaces(s, n, true);
    for (len += space; len < n && (s[len] == '\r' || s[len] == '\n');)
        len++;
    return len;
}

/* Whether a code point may be in the first or the second part of a word: letters that are not of the `other`
 * case, and marks. */
static bool in_part(unsigned class, unsigned other)
{
    return (class & UNI_MARK) || ((class & UNI_LETTER) && !(class & other));
}

/* A word: [upper, no case]* [lower, no case]+. The first part takes all that it can, and gives back what the
 * second part needs: the word then ends with the last code point that both may hold. *upper: the length of
 * the first part alone. */
static size_t cased_word(const char *s, size_t n, size_t *upper)
{
    size_t i = 0, end = 0;
    uint32_t c;
    for (size_t len; i < n; i += len) {
        len = utf8_get(s + i, &c);
        if (!in_part(unicode_class(c), UNI_LOWER))
            break;
        end = in_part(unicode_class(c), UNI_UPPER) ? i + len : end;
    }
    *upper = i;
    for (size_t len; i < n; i += len) {
        len = utf8_get(s + i, &c);
        if (!in_part(unicode_class(c), UNI_UPPER))
            break;
        end = i + len;
    }
    return end;
}

/* The patterns of tekken and gpt-4o. One code point that is neither letter nor number nor line end may go
 * before a word. A word without lower case is the second alternative. */
static size_t cases_next(const char *s, size_t n, size_t digits, bool contractions)
{
    uint32_t c;
    size_t one = utf8_get(s, &c), upper[2] = { 0, 0 }, len = 0;
    const unsigned class = unicode_class(c);
    const bool before = c != '\r' && c != '\n' && !(class & (UNI_LETTER | UNI_NUMBER));
    if (before && (len = cased_word(s + one, n - one, &upper[0])) > 0)
        len += one;
    if (len == 0)
        len = cased_word(s, n, &upper[1]);
    if (len == 0)
        len = upper[0] ? one + upper[0] : upper[1];
    if (len)
        return len + (contractions ? contraction(s + len, n - len, true) : 0);
    if (class & UNI_NUMBER)
        return run(s, n, UNI_NUMBER, digits, false);
    const size_t space = c == ' ' ? 1 : 0;
    len = run(s + space, n - space, 0, SIZE_MAX, false);
    if (len == 0)
        return spaces(s, n, true);
    for (len += space; len < n && (s[len] == '\r' || s[len] == '\n' || s[len] == '/');)
        len++;
    return len;
}

/* Each number alone, and everything between numbers. */
static size_t digits_next(const char *s, size_t n)
{
    uint32_t c;
    size_t i = utf8_get(s, &c);
    if (unicode_class(c) & UNI_NUMBER)
        return i;
    for (size_t len; i < n; i += len) {
        len = utf8_get(s + i, &c);
        if (unicode_class(c) & UNI_NUMBER)
            break;
    }
    return i;
}

size_t split_next(enum split p, const char *s, size_t n)
{
    assert(n > 0 && p != SPLIT_PREFIX_SPACE);
    if (p == SPLIT_DIGITS)
        return digits_next(s, n);
    if (p == SPLIT_TEKKEN || p == SPLIT_GPT4O)
        return cases_next(s, n, p == SPLIT_TEKKEN ? 1 : 3, p == SPLIT_GPT4O);
    return p == SPLIT_GPT2 ? gpt2_next(s, n)
                           : llama3_next(s, n, p == SPLIT_LLAMA3 ? 3 : 1, p == SPLIT_QWEN35);
}
