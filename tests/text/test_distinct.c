/* Distinct-n compared with a count by sorting; words compared with a list; texts cut anywhere. */
#include "tests/test.h"
#include "src/text/distinct.h"

static struct err e;
static size_t gram;
static int compare(const void *a, const void *b) { return memcmp(a, b, gram * sizeof(uint32_t)); }

/* Counts the different n-grams of x[0..len) by sorting them. */
static size_t count_sorted(const uint32_t *x, size_t len, size_t n)
{
    if (len < n)
        return 0;
    size_t m = len - n + 1, different = 1;
    uint32_t *g = malloc(m * n * sizeof *g);
    for (size_t i = 0; i < m; i++)
        memcpy(g + i * n, x + i, n * sizeof *g);
    gram = n;
    qsort(g, m, n * sizeof *g, compare);
    for (size_t i = 1; i < m; i++)
        different += memcmp(g + i * n, g + (i - 1) * n, n * sizeof *g) != 0;
    free(g);
    return different;
}

static void distinct_equals_sorting(void)
{
    enum { LEN = 60000 };
    static uint32_t x[LEN];
    const uint32_t kinds[] = { 1, 2, 7, 300, 50000, UINT32_MAX };
    uint64_t r = 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t len = 0; len <= LEN; len = len < 6 ? len + 1 : len * 21) {
            struct distinct d;
            CHECK(distinct_open(&d, &e) == 0);
            for (size_t i = 0; i < len; i++) {
                r = r * 6364136223846793005u + 1442695040888963407u;
                x[i] = (uint32_t)(r >> 32) % kinds[k];
                CHECK(distinct_symbol(&d, x[i], &e) == 0);
            }
            for (size_t n = 1; n <= DISTINCT_MAX; n++) {
                CHECK(d.total[n - 1] == (len < n ? 0 : len - n + 1), "%zu-grams of %zu: %zu", n, len,
                      d.total[n - 1]);
                CHECK(d.different[n - 1] == count_sorted(x, len, n),
                      "%zu-grams of %zu, %u kinds: %zu, sorted %zu", n, len, kinds[k], d.different[n - 1],
                      count_sorted(x, len, n));
                CHECK(len < n ? isnan(distinct_ratio(&d, n)) : distinct_ratio(&d, n) > 0);
            }
            distinct_close(&d);
        }
}

static int text(struct distinct *d, const char *s, size_t n, size_t piece)
{
    int r = distinct_open(d, &e);
    for (size_t i = 0; i < n && r == 0; i += piece)
        r = distinct_text(d, s + i, MIN(piece, n - i), &e);
    return r ? r : distinct_end(d, &e);
}

static void words_are_runs_of_letters_marks_digits_and_apostrophes(void)
{
    const struct { const char *s; size_t total, different; } cases[] = {
        { "", 0, 0 }, { " .,-_\n", 0, 0 }, { "a", 1, 1 }, { "A a", 2, 1 }, { "it's IT'S its", 3, 2 },
        { "it\u2019s it's", 2, 2 },
        { "a-b_c", 3, 3 }, { "x2 X2 2x", 3, 2 }, { "e\u0301 \u00e9 E\u0301", 3, 2 }, { "stra\u00dfe STRASSE",
            2, 1 },
        { "\u0130 i\u0307", 2, 1 }, { "\u03a3 \u03c3 \u03c2", 3, 1 }, { "\u0665\u0666 \u0665\u0666", 2, 1 },
        { "\u2167\u00bd\u2460", 0, 0 },
        { "\u65e5\u672c \U0001F600 \u65e5\u672c", 2, 1 }, { "\u1e9e ss", 2, 1 }, { "\U00010400 \U00010428", 2,
            1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= 5; piece++) {
            struct distinct d;
            CHECK(text(&d, cases[i].s, strlen(cases[i].s), piece) == 0, "%s", e.msg);
            CHECK(d.total[0] == cases[i].total && d.different[0] == cases[i].different,
                  "case %zu in pieces of %zu: %zu of %zu", i, piece, d.different[0], d.total[0]);
            distinct_close(&d);
        }
}

static void words_refuse_invalid_utf8_with_its_offset(void)
{
    const struct { const char *s; size_t n; const char *at; } cases[] = {
        { "ab\xff", 3, "offset 2" }, { "\xc3\xa9\xc3", 3, "offset 2" }, { "a\xed\xa0\x80", 4, "offset 1" },
        { "\xc0\xaf", 2, "offset 0" },
        { "abc\xf0\x9f\x98", 6, "offset 3" }, { "\xf0\x9f\x98\x80\xf0\x9f" "a", 7, "offset 4" }, { "\x80", 1,
            "offset 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= 7; piece++) {
            struct distinct d;
            e = (struct err){0};
            CHECK(text(&d, cases[i].s, cases[i].n, piece) == -1 && e.code == ERR_INPUT &&
                      strstr(e.msg, cases[i].at),
                  "case %zu in pieces of %zu: %s", i, piece, e.msg);
            distinct_close(&d);
        }
}

int main(void)
{
    RUN(distinct_equals_sorting);
    RUN(words_are_runs_of_letters_marks_digits_and_apostrophes);
    RUN(words_refuse_invalid_utf8_with_its_offset);
    return test_end();
}
