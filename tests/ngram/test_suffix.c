/* The index of matches against brute force; its number of places on degenerate texts; and its cost. */
#include "tests/test.h"
#include "tests/allocations.h"
#include "tests/suffix_places.h"
#include "tests/zipf.h"

static struct err e;

enum { LEN = 2000, KINDS = 400, PATH = 20 };
static int32_t text[LEN + PATH], whole[LEN + PATH];

/* The length of the match at p of whole[from, end). */
static size_t brute_length(size_t p, size_t end, size_t from)
{
    size_t n = 0;
    while (n + from <= p && whole[p - n] == whole[end - 1 - n])
        n++;
    return n;
}

static size_t brute_longest(size_t end, size_t least, size_t most, int32_t next[SUFFIX_NEXT_MAX])
{
    size_t best = 0, place = 0;
    for (size_t p = end - 1; end && p-- > 0; ) {
        size_t n = MIN(brute_length(p, end, 0), most);
        if (n >= least && n > best) {
            best = n;
            place = p;
        }
    }
    for (size_t i = 0; best && i < SUFFIX_NEXT_MAX; i++)
        next[i] = whole[place + 1 + i % (end - place - 1)];
    return best;
}

static void brute_followers(uint32_t length[KINDS], size_t end, size_t from, size_t least, size_t limit)
{
    memset(length, 0, KINDS * sizeof *length);
    for (size_t p = from; p + 1 < end; p++) {
        size_t n = MIN(brute_length(p, end, from), limit);
        if (n >= least && n > length[whole[p + 1]])
            length[whole[p + 1]] = (uint32_t)n;
    }
}

/* A text of random tokens, a period, and copies of earlier parts. */
static void make_text(size_t len, size_t kinds, unsigned style)
{
    for (size_t i = 0; i < len; i++)
        text[i] = style & 1 ? zipf(kinds) : (int32_t)below(kinds);
    if (style & 2)
        for (size_t i = 30, period = 1 + below(29); i < len; i++)
            if (below(40))
                text[i] = text[i - period];
    if (style & 4)
        for (size_t i = 60; i + 60 < len; i += 60) {
            size_t from = below(i - 50), n = below(50);
            for (size_t j = 0; j < n; j++)
                text[i + j] = text[from + j];
        }
}

static void equals_brute_force(void)
{
    const size_t kinds[] = { 1, 2, 3, 5, 20, KINDS };
    const struct { size_t least, most; } lengths[] = { { 2, 16 }, { 1, 1 }, { 1, 5 }, { 3, 40 }, { 12, 30 },
        { 2, 160 } };
    static uint32_t length[KINDS], want[KINDS];
    static int32_t ids[KINDS];
    struct followers f = { length, ids, 0 };
    size_t matched = 0, full = 0, in_path = 0, several = 0;
    for (size_t shape = 0; shape < sizeof lengths / sizeof *lengths; shape++) {
        const size_t least = lengths[shape].least, most = lengths[shape].most;
        struct suffix *s;
        CHECK(!(shape ? suffix_open_lengths(&s, LEN, least, most, &e) : suffix_open(&s, LEN, &e)));
        for (unsigned round = 0; round < 60; round++) {
            size_t k = kinds[round % 6], len = 1 + below(round % 7 ? 300 : LEN), n = 0;
            make_text(len, k, round / 6 % 8);
            while (n < len) {
                size_t step = below(3) ? 1 + below(5) : below(60), lag = below(4) ? 0 : below(4);
                n = MIN(n + step, len);
                suffix_follow(s, text, n - MIN(n, lag));                      /* the index may lag */
                /* the path: the continuation of an earlier place, or nothing, or random tokens */
                size_t n_path = below(3) ? below(PATH) : 0, like = below(n + (n == 0));
                memcpy(whole, text, n * sizeof *text);
                for (size_t i = 0; i < n_path; i++)
                    whole[n + i] = round & 1 && like + i < n ? whole[like + i] : (int32_t)below(k);
                const size_t end = n + n_path;
                int32_t next[SUFFIX_NEXT_MAX], want_next[SUFFIX_NEXT_MAX];
                size_t n_next, max = below(SUFFIX_NEXT_MAX + 1),
                               expected = brute_longest(end, least, most, want_next);
                size_t got = suffix_longest(s, text, n, whole + n, n_path, next, max, &n_next);
                CHECK(got == expected && n_next == (got ? max : 0), "length %zu, expected %zu", got,
                      expected);
                CHECK(!got || !memcmp(next, want_next, n_next * sizeof *next));
                matched += got > 0;
                full += got == most;
                size_t from = below(2) ? 0 : below(end + 1), limit = below(3) ? most : below(most + 1),
                       found = 0;
                suffix_followers(s, text, n, whole + n, n_path, from, limit, &f);
                brute_followers(want, end, from, least, limit);
                CHECK(!memcmp(length, want, sizeof want), "followers");
                for (size_t i = 0; i < KINDS; i++)
                    found += want[i] > 0;
                CHECK(found == f.n);
                several += found > 1;
                in_path += found && n_path;
                for (size_t i = 0; i < f.n; i++)
                    length[ids[i]] = 0;
            }
            suffix_reset(s);
        }
        suffix_close(s);
    }
    printf("    %zu matches, %zu of full length, %zu questions with several followers, %zu with a path\n",
           matched, full, several, in_path);
    CHECK(matched > 1000 && full > 1000 && several > 1000 && in_path > 1000);
}

/* The bound of the header: period + most places for any length of text. */
static void degenerate_texts_are_bounded(void)
{
    enum { N = 100000 };
    const size_t periods[] = { 1, 2, 7, 100 }, mosts[] = { 16, 160 };
    int32_t *x = malloc((N + 8) * sizeof *x), next[SUFFIX_NEXT_MAX];
    for (size_t i = 0; i < 8; i++) {
        const size_t period = periods[i % 4], most = mosts[i / 4];
        struct suffix *s;
        size_t n_next;
        for (size_t j = 0; j < N + 8; j++)
            x[j] = (int32_t)(j % period / 2);                 /* a token may occur twice in a period */
        CHECK(!suffix_open_lengths(&s, N, 2, most, &e));
        double start = clock_seconds();
        suffix_follow(s, x, N);
        double follow = clock_seconds() - start;
        size_t places = suffix_places(s, x, N, NULL, 0), on_path = suffix_places(s, x, N, x + N, 8);
        CHECK(places <= period + most + 1 && on_path <= period + most + 8 + 1,
              "period %zu, most %zu: %zu places", period, most, places);
        CHECK(suffix_longest(s, x, N, NULL, 0, next, 16, &n_next) == most &&
              !memcmp(next, x + N, 8 * sizeof *x));
        printf("    period %3zu, matches up to %3zu: %3zu places, following %.0f ns per token\n", period,
               most, places, follow * 1e9 / N);
        suffix_close(s);
    }
    free(x);
}

static void edges(void)
{
    struct suffix *s;
    size_t n_next;
    int32_t next[SUFFIX_NEXT_MAX], one[2] = { 5, 5 };
    for (size_t n_max = 0; n_max < 3; n_max++) {
        CHECK(!suffix_open(&s, n_max, &e));
        suffix_follow(s, one, MIN(n_max, 2));
        CHECK(suffix_longest(s, one, MIN(n_max, 2), NULL, 0, next, 4, &n_next) == 0 && n_next == 0);
        CHECK(suffix_longest(s, one, MIN(n_max, 2), one, 2, next, 4, &n_next) == (n_max ? n_max + 1 : 0));
        suffix_close(s);
    }
    CHECK(suffix_bytes(UINT32_MAX) == SIZE_MAX && suffix_bytes(SIZE_MAX) == SIZE_MAX);
    CHECK(suffix_open(&s, SIZE_MAX, &e) == -1 && strstr(e.msg, "no memory"), "%s", e.msg);
}

static void cost_and_allocations(void)
{
    enum { N = 100000 };
    int32_t *x = malloc(N * sizeof *x), next[SUFFIX_NEXT_MAX];
    for (int kind = 0; kind < 3; kind++) {
        struct suffix *s;
        size_t n_next, sum = 0, places = 0, before;
        double follow = 0, ask = 0, most = 0;
        for (size_t i = 0; i < N; i++)
            x[i] = kind == 0 ? 0 : kind == 1 ? zipf(30000) : (int32_t)below(2);
        CHECK(!suffix_open(&s, N, &e));
        before = allocations();
        for (size_t i = 0; i < N; i += 100) {
            double t = clock_seconds();
            suffix_follow(s, x, i + 100);
            follow += clock_seconds() - t;
            t = clock_seconds();
            for (size_t j = 0; j < 10; j++)
                sum += suffix_longest(s, x, i + 100, x + j, 1, next, 16, &n_next);
            double d = clock_seconds() - t;
            ask += d;
            most = MAX(most, d / 10);
            places = MAX(places, suffix_places(s, x, i + 100, NULL, 0));
        }
        CHECK(!ALLOCATIONS_COUNTED || allocations() == before);
        CHECK(sum > 1000);
        printf("    %-10s %d tokens: following %.0f ns per token, longest match %.0f ns, the slowest %.1f "
               "us, at most %zu places\n",
               kind == 0   ? "one token"
               : kind == 1 ? "zipf"
                           : "two tokens",
               N, follow * 1e9 / N, ask * 1e9 / (N / 10), most * 1e6, places);
        suffix_close(s);
    }
    free(x);
    if (!ALLOCATIONS_COUNTED)
        SKIP("costs printed; a sanitizer owns malloc, so allocations are not counted");
}

int main(void)
{
    RUN(equals_brute_force);
    RUN(degenerate_texts_are_bounded);
    RUN(edges);
    RUN(cost_and_allocations);
    return test_end();
}
