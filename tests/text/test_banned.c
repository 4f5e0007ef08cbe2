/* Banned phrases compared with a search of the whole text for every phrase. Texts are cut into tokens
 * anywhere, also inside code points, and have bytes that are no text. */
#include "src/base/unicode.h"
#include "src/text/banned.h"
#include "tests/test.h"

static struct err e;
static uint64_t seed = 1;
static size_t below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}

/* Few letters, so that phrases overlap: both cases, letters of two to four bytes, a Kelvin sign, an emoji. */
static const char *const letters[] = { "a", "A", "b", "k", "K", "\u212a", "\u00e9", "\u00c9", "\u03c3",
                                         "\u03c2", "\u4e2d", "\U0001f600", "\U00010400", "\U00010428" };
enum { N_LETTERS = sizeof letters / sizeof *letters, LEN = 400, PHRASES = 40, POINT_MAX = 4 };

static size_t put_letters(char *s, size_t n, size_t kinds)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(s + at, "%s", letters[below(kinds)]);
    return at;
}

/* The folded code points of s[0..n), and where each begins and ends; UINT32_MAX: a byte that is no text. A
 * beginning of a code point at the end is left out. */
struct points { uint32_t c[LEN * POINT_MAX]; size_t from[LEN * POINT_MAX], to[LEN * POINT_MAX], n; };
static void read_points(struct points *p, const char *s, size_t n)
{
    p->n = 0;
    for (size_t i = 0, len; i < n; i += len) {
        for (len = 1; utf8_incomplete(s + i, len) && i + len < n; len++)
            ;
        if (utf8_incomplete(s + i, len))
            break;
        uint32_t c = UINT32_MAX;
        if (utf8_valid_prefix(s + i, len) == len) {
            utf8_get(s + i, &c);
            c = unicode_fold(c);
        } else if (len > 1) {
            len--;                               /* the byte that shows the mistake may begin a code point */
        }
        p->c[p->n] = c;
        p->from[p->n] = i;
        p->to[p->n++] = i + len;
    }
}

/* Whether text->c[0..end) ends with the first n code points of the phrase. */
static bool ends_with(const struct points *text, size_t end, const struct points *phrase, size_t n)
{
    return n <= end && memcmp(text->c + end - n, phrase->c, n * sizeof *phrase->c) == 0;
}

static void one_text(size_t kinds, bool damaged)
{
    static struct points text, phrase[PHRASES], now;
    char s[LEN * POINT_MAX + 1], names[PHRASES][64];
    const char *list[PHRASES], *found = NULL, *want = NULL;
    const size_t n = put_letters(s, LEN, kinds), n_phrases = 1 + below(PHRASES);
    size_t token = 0, begin = 0, want_begin = 0, start[LEN * POINT_MAX] = { 0 };
    struct banned *b;
    for (size_t i = 0; damaged && i < 20; i++)
        s[below(n)] = (char)(below(2) ? 0x80 + below(128) : 'a');
    read_points(&text, s, n);
    for (size_t i = 0; i < n_phrases; i++) {
        put_letters(names[i], 3 + below(10), kinds);
        list[i] = names[i];
        read_points(&phrase[i], names[i], strlen(names[i]));
    }
    size_t first = SIZE_MAX;
    for (size_t end = 1; end <= text.n && !want; end++)
        for (size_t i = 0, shortest = SIZE_MAX; i < n_phrases; i++)
            if (ends_with(&text, end, &phrase[i], phrase[i].n) && phrase[i].n < shortest) {
                shortest = phrase[i].n;
                want = list[i];
                want_begin = text.from[end - shortest];
                first = text.to[end - 1];
            }
    CHECK(banned_check("test", list, n_phrases, &e) == 0, "%s", e.msg);
    CHECK(banned_open(&b, list, n_phrases, &e) == 0);
    struct banned_match m = { .phrases = b };
    for (size_t at = 0, len; at < n && !found; at += len, token++) {
        len = MIN(below(7), n - at);             /* a token may have no bytes */
        for (size_t i = 0; i < len; i++)
            start[at + i] = token;
        found = banned_add(&m, token, s + at, len, &begin);
        if (found) {
            CHECK(want && first > at && first <= at + len, "found at %zu, wanted at %zu", at + len, first);
            CHECK(begin == start[want_begin], "begins in token %zu, not %zu", begin, start[want_begin]);
            break;
        }
        CHECK(first > at + len);
        read_points(&now, s, at + len);
        size_t may = now.n && now.to[now.n - 1] < at + len ? start[now.to[now.n - 1]]
                     : !now.n && at + len ? start[0] : token + 1;
        for (size_t i = 0; i < n_phrases; i++)
            for (size_t k = 1; k < phrase[i].n; k++)
                if (ends_with(&now, now.n, &phrase[i], k))
                    may = MIN(may, start[now.from[now.n - k]]);
        CHECK(banned_may_begin(&m, token + 1) == may, "a phrase may begin in %zu, not %zu of %zu",
              banned_may_begin(&m, token + 1), may, token + 1);
    }
    CHECK(!found == !want, "%s", want ? want : "none");
    if (found && want) {                         /* or one that folds alike */
        read_points(&text, found, strlen(found));
        read_points(&now, want, strlen(want));
        CHECK(text.n == now.n && ends_with(&text, text.n, &now, now.n), "%s, not %s", found, want);
    }
    banned_close(b);
}

static void equals_a_plain_search(void)
{
    for (size_t i = 0; i < 6000; i++)
        one_text(2 + i % (N_LETTERS - 1), i % 3 == 2);
}

static void folds_as_unicode(void)
{
    static const uint32_t pairs[][2] = {
        { 'A', 'a' }, { '[', '[' }, { 0x130, 0x130 }, { 0x131, 0x131 }, { 0x17f, 's' }, { 0x212a, 'k' },
        { 0x1e9e, 0xdf }, { 0xdf, 0xdf }, { 0x3a3, 0x3c3 }, { 0x3c2, 0x3c3 }, { 0x1c5, 0x1c6 },
        { 0x1c4, 0x1c6 }, { 0x13a0, 0x13a0 }, { 0xab70, 0x13a0 }, { 0x10400, 0x10428 }, { 0x1e921, 0x1e943 },
        { 0x1f88, 0x1f80 },
        { 0x4e2d, 0x4e2d }, { 0x1f600, 0x1f600 }, { 0x10ffff, 0x10ffff }, { 0, 0 }, { 0x101, 0x101 },
        { 0x100, 0x101 } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        CHECK(unicode_fold(pairs[i][0]) == pairs[i][1], "U+%04x becomes U+%04x", pairs[i][0],
              unicode_fold(pairs[i][0]));
    size_t changed = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        CHECK(unicode_fold(unicode_fold(c)) == unicode_fold(c), "U+%04x", c);
        changed += unicode_fold(c) != c;
    }
    CHECK(changed == 1454, "%zu code points fold", changed);  /* Unicode 14, CaseFolding.txt, C and S */
}

static void refused(const char *phrase, const char *why)
{
    CHECK(banned_check("--ban-phrase", &phrase, 1, &e) == -1 && strstr(e.msg, why), "%s", e.msg);
}

static void bad_phrases_are_refused(void)
{
    char longest[BANNED_BYTES_MAX + 2] = "";
    const char *many[BANNED_MAX + 1];
    memset(longest, 'a', BANNED_BYTES_MAX);
    many[0] = longest;
    CHECK(banned_check("x", many, 1, &e) == 0, "%s", e.msg);
    longest[BANNED_BYTES_MAX] = 'a';
    refused(longest, "--ban-phrase: a phrase of 257 bytes, 1 to 256 are allowed");
    refused("", "a phrase of 0 bytes");
    refused("\xff", "--ban-phrase: ");
    refused("a \xef\xbf\xbd", "--ban-phrase: 'a \xef\xbf\xbd' has U+FFFD");
    for (size_t i = 0; i <= BANNED_MAX; i++)
        many[i] = "a";
    CHECK(banned_check("x", many, BANNED_MAX, &e) == 0);
    CHECK(banned_check("x", many, BANNED_MAX + 1, &e) == -1 &&
          strcmp(e.msg, "x: 1001 phrases, at most 1000 are allowed") == 0, "%s", e.msg);
}

/* The most and longest phrases, of which every byte of a text ends many. */
static void worst_case_is_linear(void)
{
    static char text[BANNED_MAX][BANNED_BYTES_MAX + 1];
    const char *list[BANNED_MAX];
    struct banned *b;
    size_t begin;
    for (size_t i = 0; i < BANNED_MAX; i++) {
        memset(text[i], 'a', BANNED_BYTES_MAX);
        sprintf(text[i] + BANNED_BYTES_MAX - 10, "%010zu", i);
        list[i] = text[i];
    }
    CHECK(banned_open(&b, list, BANNED_MAX, &e) == 0);
    struct banned_match m = { .phrases = b };
    for (size_t i = 0; i < 2000000; i++)
        CHECK(!banned_add(&m, i, "a", 1, &begin) &&
              banned_may_begin(&m, i + 1) == i + 1 - MIN(i + 1, (size_t)246));
    const char *found = banned_add(&m, 2000000, "0000000999", 10, &begin);
    CHECK(found == list[999] && begin == 2000000 - 246, "%s from %zu", found ? found : "none", begin);
    banned_close(b);
}

int main(void)
{
    RUN(equals_a_plain_search);
    RUN(folds_as_unicode);
    RUN(bad_phrases_are_refused);
    RUN(worst_case_is_linear);
    return test_end();
}
