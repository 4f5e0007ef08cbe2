/* The 4-gram table against brute force over random texts; its cost; and that it allocates nothing. */
#include "tests/test.h"
#include "tests/allocations.h"
#include "ngram/ngram.c"                      /* its struct has the number of entries */
#include "tests/zipf.h"

static struct err e;

static double cost_of_clock(void) { double t = clock_seconds(); return clock_seconds() - t; }

/* ---- brute force: all 4-grams of tokens[0, n) that continue `lead` ---- */

struct found { int32_t next[3]; uint32_t frequency; size_t newest; };

static int by_rank(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->frequency != y->frequency)
        return x->frequency > y->frequency ? -1 : 1;
    if (x->newest != y->newest)
        return x->newest > y->newest ? -1 : 1;
    return memcmp(x->next, y->next, sizeof x->next);
}

static int by_ids(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int c = memcmp(x->next, y->next, sizeof x->next);
    return c ? c : x->newest < y->newest ? -1 : x->newest > y->newest;
}

/* All occurrences, sorted by ids, counted, and sorted by rank. */
static size_t brute_top(struct found *f, const int32_t *tokens, size_t n, int32_t lead)
{
    size_t m = 0, d = 0;
    for (size_t i = 0; i + 4 <= n; i++)
        if (tokens[i] == lead) {
            f[m] = (struct found){ .frequency = 1, .newest = i };
            memcpy(f[m++].next, tokens + i + 1, sizeof f->next);
        }
    qsort(f, m, sizeof *f, by_ids);
    for (size_t i = 0; i < m; i++)
        if (d && !memcmp(f[d - 1].next, f[i].next, sizeof f->next)) {
            f[d - 1].frequency++;
            f[d - 1].newest = f[i].newest;
        } else {
            f[d++] = f[i];
        }
    qsort(f, d, sizeof *f, by_rank);
    return d;
}

/* *all: the number of continuations. */
static bool top_is_right(const struct ngram *t, const int32_t *tokens, size_t n, int32_t lead, size_t k,
                         struct found *f, size_t *all)
{
    int32_t next[64][3];
    uint32_t frequency[64];
    *all = brute_top(f, tokens, n, lead);
    size_t want = MIN(*all, k), got = ngram_top(t, lead, k, next, frequency);
    bool same = got == want;
    for (size_t i = 0; same && i < got; i++)
        same = frequency[i] == f[i].frequency && !memcmp(next[i], f[i].next, sizeof f->next);
    return same;
}

/* ---- tests ---- */

enum { LEN = 4000 };

static void equals_brute_force(void)
{
    static int32_t text[LEN];
    static struct found f[LEN];
    struct ngram *t;
    size_t operations = 0, right = 0, queries = 0, ranked = 0;
    const size_t kinds[] = { 1, 2, 3, 5, 8, 30, 300 };
    CHECK(!ngram_open(&t, LEN, &e));
    for (size_t round = 0; operations < 1000000; round++) {
        size_t len = 1 + below(round % 16 == 15 ? LEN : 500), n = 0, k = kinds[round % 7];
        for (size_t i = 0; i < len; i++)
            text[i] = round & 1 ? zipf(k) : (int32_t)below(k);
        if (round % 3 == 0)                                  /* a text that repeats itself */
            for (size_t i = 20; i < len; i++)
                if (below(10))
                    text[i] = text[i - 17];
        while (n < len) {
            size_t step = below(4) ? 1 + below(12) : below(150), was = n;
            n = MIN(n + step, len);
            ngram_follow(t, text, below(5) ? n : n - MIN(n, 3));       /* fewer tokens first, then all */
            ngram_follow(t, text, n);
            operations += n - was;
            for (size_t q = 0; q < 2; q++, operations++, queries++) {
                int32_t lead = below(20) ? text[below(n + (n == 0))] : 1000;
                size_t most = below(3) ? 1 + below(20) : below(64);
                size_t all;
                right += top_is_right(t, text, n, lead, most, f, &all);
                ranked += all > 20;
            }
        }
        ngram_reset(t);
        CHECK(t->n_entries == 0);
    }
    ngram_close(t);
    CHECK(right == queries, "%zu of %zu answers", right, queries);
    CHECK(ranked > queries / 100, "only %zu of %zu had more continuations than are proposed", ranked,
          queries);
    printf("    %zu operations, %zu of them look-ups\n", operations, queries);
}

/* A, B, C once each, then C again. The official code then counts C twice and loses A. */
static void an_increment_keeps_the_others(void)
{
    const int32_t text[] = { 9, 1, 1, 1, 9, 2, 2, 2, 9, 3, 3, 3, 9, 3, 3, 3 };
    int32_t next[8][3];
    uint32_t frequency[8];
    struct ngram *t;
    CHECK(!ngram_open(&t, 16, &e));
    ngram_follow(t, text, 16);
    CHECK(ngram_top(t, 9, 8, next, frequency) == 3);
    CHECK(next[0][0] == 3 && next[1][0] == 2 && next[2][0] == 1);
    CHECK(frequency[0] == 2 && frequency[1] == 1 && frequency[2] == 1);
    CHECK(ngram_top(t, 9, 0, next, frequency) == 0 && ngram_top(t, 4, 8, next, frequency) == 0);
    ngram_close(t);
}

static void lengths_at_the_edges(void)
{
    const int32_t text[] = { 0, 0, 0, 0, 0 };
    int32_t next[1][3];
    uint32_t frequency[1];
    for (size_t n_max = 0; n_max <= 5; n_max++) {
        struct ngram *t;
        CHECK(!ngram_open(&t, n_max, &e));
        for (size_t n = 0; n <= n_max; n++) {
            ngram_follow(t, text, n);
            CHECK(t->n_entries == (n >= 4) && ngram_top(t, 0, 1, next, frequency) == (n >= 4));
            CHECK(n < 4 || frequency[0] == n - 3);
        }
        ngram_close(t);
    }
    CHECK(ngram_bytes(SIZE_MAX) == SIZE_MAX && ngram_bytes((size_t)UINT32_MAX + 1) == SIZE_MAX);
    struct ngram *t;
    CHECK(ngram_open(&t, SIZE_MAX, &e) == -1 && strstr(e.msg, "no memory"), "%s", e.msg);
}

/* Few tokens occur twice, so both tables are as full as possible, and some bucket chains are long. */
static void tables_of_every_size_have_room(void)
{
    int32_t x[400];
    for (size_t n_max = 1; n_max <= 400; n_max++)
        for (size_t turn = 0; turn < 40; turn++) {
            struct ngram *t;
            CHECK(!ngram_open(&t, n_max, &e));
            for (size_t i = 0; i < n_max; i++) x[i] = (int32_t)below(100000);
            ngram_follow(t, x, n_max);
            ngram_close(t);
        }
}

/* Texts of up to 10^6 tokens, of three kinds: all 4-grams different with different leads, with few leads, and
 * Zipf. The arena must suffice for each. */
static void cost_and_allocations(void)
{
    const size_t sizes[] = { 1000, 100000, 1000000 };
    static int32_t text[1000003 + 100];
    int32_t next[20][3];
    uint32_t frequency[20];
    for (int kind = 0; kind < 3; kind++)
        for (size_t s = 0; s < 3; s++) {
            size_t n = sizes[s] + 3, found = 0, before;
            struct ngram *t;
            for (size_t i = 0; i < n; i++)
                text[i] = kind == 0 ? (int32_t)i : kind == 1 ? (int32_t)below(1000) : zipf(50000);
            CHECK(!ngram_open(&t, n, &e));
            double insert = 0, lookup = 0, start;
            before = allocations();
            for (int again = 0; again < (s ? 1 : 100); again++) {
                ngram_reset(t);
                for (size_t i = 0; i < n; i += 100) {
                    start = clock_seconds();
                    ngram_follow(t, text, MIN(i + 100, n));
                    insert += clock_seconds() - start - cost_of_clock();
                    start = clock_seconds();
                    for (size_t j = i; j < MIN(i + 100, n); j++)
                        found += ngram_top(t, text[j], 20, next, frequency);
                    lookup += clock_seconds() - start - cost_of_clock();
                }
            }
            CHECK(!ALLOCATIONS_COUNTED || allocations() == before, "%zu allocations", allocations() - before);
            double each = 1e9 / (double)(n * (s ? 1 : 100));
            CHECK(found > n / 2 && (kind != 0 || t->n_entries == n - 3));
            printf("    %-9s %7zu tokens, %7zu entries: insert %4.0f ns, top 20 %4.0f ns, %zu bytes per "
                   "token reserved\n",
                   kind == 0   ? "different"
                   : kind == 1 ? "1000 ids"
                               : "zipf",
                   n, t->n_entries, insert * each, lookup * each, ngram_bytes(n) / n);
            ngram_close(t);
        }
    if (!ALLOCATIONS_COUNTED)
        SKIP("costs printed; a sanitizer owns malloc, so allocations are not counted");
}

/* The hook itself counts allocations. */
static void allocations_are_counted(void)
{
    if (!ALLOCATIONS_COUNTED)
        SKIP("a sanitizer owns malloc");
    size_t before = allocations();
    void *volatile p = malloc(100);
    free(p);
    CHECK(allocations() == before + 1);
    struct ngram *t;
    CHECK(!ngram_open(&t, 1000, &e) && allocations() > before + 1);
    ngram_close(t);
}

int main(void)
{
    RUN(equals_brute_force);
    RUN(an_increment_keeps_the_others);
    RUN(lengths_at_the_edges);
    RUN(tables_of_every_size_have_room);
    RUN(allocations_are_counted);
    RUN(cost_and_allocations);
    return test_end();
}
