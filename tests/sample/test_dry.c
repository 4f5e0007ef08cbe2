/* DRY compared with its definition, which reads the whole text again; its parameters; its cost. */
#include "tests/test.h"
#include "tests/allocations.h"
#include "src/sample/dry.h"
#include "src/sample/token_counts.h"
#include "src/request/sampling_options.h"
#include <float.h>
#include "tests/suffix_places.h"
#include "tests/zipf.h"

static struct err e;

/* ---- the definition, of text[0, n) ---- */

/* Computes penalty[vocab] from the definition in src/sample/dry.h alone. */
static void brute_penalties(double *penalty, size_t vocab, const struct sampling *p, const int32_t *text,
                            size_t n)
{
    const size_t last = p->dry_last_n < 0 || (size_t)p->dry_last_n > n ? n : (size_t)p->dry_last_n;
    const int32_t *x = text + n - last;
    size_t reach = last;                                     /* tokens after the nearest breaker */
    for (size_t d = 0; d < last && reach == last; d++) {
        size_t longest = 0;
        for (size_t b = 0; b < p->n_dry_breakers; b++) {
            const struct dry_breaker *k = &p->dry_breakers[b];
            if (k->n <= d + 1 && !memcmp(k->ids, x + last - 1 - d, k->n * sizeof *x) && k->n > longest)
                longest = k->n;
        }
        if (longest)
            reach = d + 1 - longest;
    }
    size_t limit = 0;
    if (p->dry_base > 1)
        while (limit < 4096 && pow(p->dry_base, (double)limit + 1) <= FLT_MAX)
            limit++;
    for (size_t v = 0; v < vocab; v++)
        penalty[v] = 0;
    for (size_t i = 1; i < last; i++) {                      /* x[i] followed a match that ends at i - 1 */
        size_t length = 0;
        while (length < i && length < reach && x[i - 1 - length] == x[last - 1 - length])
            length++;
        bool alone = false;
        for (size_t b = 0; b < p->n_dry_breakers; b++)
            alone |= p->dry_breakers[b].n == 1 && p->dry_breakers[b].ids[0] == x[i];
        if (length < p->dry_allowed || alone)
            continue;
        penalty[x[i]] = MAX(penalty[x[i]], p->dry_multiplier *
                                               pow(p->dry_base, (double)MIN(length - p->dry_allowed, limit)));
    }
}

enum { LEN = 600, PATH = 24, VOCAB = 120, BREAKERS = 6 };
static int32_t text[2][LEN + PATH];

static void make_text(int32_t *x, size_t len, size_t kinds, unsigned style)
{
    for (size_t i = 0; i < len; i++)
        x[i] = style & 1 ? zipf(kinds) : (int32_t)below(kinds);
    if (style & 2)
        for (size_t i = 30, period = 1 + below(29); i < len; i++)
            if (below(60))
                x[i] = x[i - period];
}

static int by_first(const void *a, const void *b)
{
    const struct dry_breaker *x = a, *y = b;
    return x->ids[0] - y->ids[0];
}

/* Random parameters. Breakers begin with tokens of the text; longer breakers are pieces of it. */
static void make_sampling(struct sampling *p, struct dry_breaker *breakers, const int32_t *x, size_t len,
                          size_t kinds)
{
    static const double bases[] = { 1.75, 1, 1.1, 3, 99 };
    static const size_t allowed[] = { 2, 1, 3, 5, 12 };
    sampling_defaults(p);
    p->dry_multiplier = 0.1 + (double)below(20) / 10;
    p->dry_base = bases[below(5)];
    p->dry_allowed = allowed[below(5)];
    p->dry_last_n = below(2) ? -1 : (long)(1 + below(200));
    p->text_max = LEN;
    p->n_dry_breakers = below(3) ? below(BREAKERS) : 0;
    p->dry_breakers = breakers;
    for (size_t i = 0; i < p->n_dry_breakers; i++) {
        size_t n = below(3) ? 1 : 2 + below(4), at = below(len > n ? len - n : 1);
        breakers[i] = (struct dry_breaker){ .n = (uint32_t)n };
        for (size_t j = 0; j < n; j++)
            breakers[i].ids[j] = at + j < len ? x[at + j] : (int32_t)below(kinds);
        if (n == 1 && below(2))
            breakers[i].ids[0] = VOCAB - 1 - (int32_t)below(kinds);
    }
    qsort(breakers, p->n_dry_breakers, sizeof *breakers, by_first);
    CHECK(!sampling_check(p, VOCAB, &e), "%s", e.msg);
}

static void equals_its_definition(void)
{
    static const size_t kinds[] = { 1, 2, 3, 8, 40, VOCAB };
    struct dry_breaker breakers[BREAKERS];
    double want[VOCAB];
    int32_t whole[LEN + PATH];
    size_t asked = 0, penalised = 0, several = 0, broken = 0, limited = 0, jumps = 0;
    for (unsigned round = 0; round < 400; round++) {
        struct sampling p;
        struct dry d;
        struct history_digest past = {0};
        size_t k = kinds[round % 6], len = 2 + below(round % 9 ? 250 : LEN - 1), n = 0, t = 0;
        make_text(text[0], len, k, round / 6 % 4);
        memcpy(text[1], text[0], sizeof text[0]);
        text[1][below(len)] = (int32_t)below(k);             /* a near copy */
        make_sampling(&p, breakers, text[0], len, k);
        CHECK(!dry_open(&d, &p, VOCAB, &e), "%s", e.msg);
        for (size_t step = 0; step < 60; step++) {
            size_t grow = below(4) ? below(4) : below(60);
            n = below(15) ? MIN(n + grow, len) : below(len + 1);
            t = below(20) == 0 ? 1 - t : t;
            struct history h = { .tokens = text[t], .n = n, .path = whole + n, .n_path = below(3)
                                 ? below(PATH) : 0 };
            size_t like = below(n + (n == 0)), end = n + h.n_path;
            memcpy(whole, text[t], n * sizeof *whole);
            for (size_t i = n; i < end; i++)
                whole[i] = round & 1 && like + i - n < n ? whole[like + i - n] : (int32_t)below(k);
            bool extends = history_digest_extend(&past, &h);
            jumps += !extends;
            dry_enter(&d, &h, extends);
            brute_penalties(want, VOCAB, &p, whole, end);
            size_t found = 0;
            for (size_t v = 0; v < VOCAB; v++) {
                found += want[v] > 0;
                double got = d.found.length[v] ? dry_penalty(&d, (int32_t)v) : 0;
                CHECK(want[v] == 0 ? got == 0 : near(got, want[v], 0, 1e-12),
                      "round %u, n %zu, path %zu, token %zu: %g, want %g", round, n, h.n_path, v, got,
                      want[v]);
                limited += want[v] > 1e30;
            }
            CHECK(found == d.found.n);
            asked++;
            penalised += found > 0;
            several += found > 1;
            broken += p.n_dry_breakers && found;
            dry_leave(&d);
            if (test_failed_)
                return;
        }
        for (size_t v = 0; v < VOCAB; v++)
            CHECK(d.found.length[v] == 0);
        dry_close(&d);
    }
    printf("    %zu questions, %zu with penalties, %zu with several, %zu with breakers, %zu penalties beyond "
           "1e30, %zu other histories\n",
           asked, penalised, several, broken, limited, jumps);
    CHECK(penalised > asked / 4 && several > 1000 && broken > 1000 && limited > 100 && jumps > 500);
}

/* A sampler at random places, with paths, returns the best of the logits minus the definition's penalties. */
static void sampler_subtracts_it(void)
{
    struct dry_breaker breakers[BREAKERS];
    double want[VOCAB];
    float logits[VOCAB], x[VOCAB];
    size_t moved = 0;
    for (unsigned round = 0; round < 60; round++) {
        struct sampling p;
        struct sampler *s;
        size_t len = 300, n = 0;
        make_text(text[0], len, 6, round % 4);
        make_sampling(&p, breakers, text[0], len, 6);
        p.temperature = 0;
        CHECK(!sampler_open(&s, &p, VOCAB, ops_all[0], NULL, &e), "%s", e.msg);
        for (size_t step = 0; step < 60; step++) {
            n = below(20) ? MIN(n + below(4), len) : below(len);
            size_t n_path = below(MIN(len - n, (size_t)PATH) + 1), best = 0, plain = 0;
            for (size_t v = 0; v < VOCAB; v++)
                logits[v] = (float)below(1000) / 500 + (v < 6 ? 1 : 0);
            brute_penalties(want, VOCAB, &p, text[0], n + n_path);
            for (size_t v = 0; v < VOCAB; v++) {
                double y = logits[v] - want[v];
                x[v] = y < -FLT_MAX ? -FLT_MAX : (float)y;
                best = x[v] > x[best] ? v : best;
                plain = logits[v] > logits[plain] ? v : plain;
            }
            struct history h = { .tokens = text[0], .n = n, .path = text[0] + n, .n_path = n_path };
            int32_t got = sampler_sample(s, logits, &h);
            CHECK(got == (int32_t)best, "round %u, n %zu + %zu: %d, want %zu", round, n, n_path, got, best);
            moved += plain != best;
        }
        sampler_close(s);
    }
    CHECK(moved > 500, "%zu", moved);
}

/* The number that DRY subtracts from the logit of token v. */
static double penalty_of(const struct sampling *p, const int32_t *tokens, size_t n, int32_t v)
{
    struct dry d;
    struct history h = { .tokens = tokens, .n = n };
    CHECK(!sampling_check(p, 10, &e) && !dry_open(&d, p, 10, &e), "%s", e.msg);
    if (!d.on)
        return 0;
    dry_enter(&d, &h, false);
    double got = d.found.length[v] ? dry_penalty(&d, v) : 0;
    dry_leave(&d);
    dry_close(&d);
    return got;
}

/* Values computed by hand. The first two are from llama.cpp's own test: ratios e^-1 and e^-2 of
 * probabilities. */
static void every_parameter_counts(void)
{
    const int32_t x[] = { 0, 1, 2, 0, 1 }, y[] = { 4, 0, 1, 2, 9, 5, 4, 0, 1 };
    struct sampling p;
    sampling_defaults(&p);
    p.text_max = 200;
    CHECK(penalty_of(&p, x, 5, 2) == 0);
    p.dry_multiplier = 1;
    CHECK(penalty_of(&p, x, 5, 2) == 1 && penalty_of(&p, x, 5, 0) == 0 && penalty_of(&p, x, 5, 1) == 0);
    p.dry_multiplier = 2;
    CHECK(penalty_of(&p, x, 5, 2) == 2);
    CHECK(penalty_of(&p, y, 9, 2) == 2 * 1.75);
    p.dry_base = 3;
    CHECK(penalty_of(&p, y, 9, 2) == 2 * 3);
    p.dry_allowed = 1;
    CHECK(penalty_of(&p, y, 9, 2) == 2 * 9);
    p.dry_allowed = 4;
    CHECK(penalty_of(&p, y, 9, 2) == 0);
    p.dry_allowed = 2;
    p.dry_last_n = 8;                                         /* the window excludes the first 4: only 0 1
                                                               * repeats */
    CHECK(penalty_of(&p, y, 9, 2) == 2);
    p.dry_last_n = 7;
    CHECK(penalty_of(&p, y, 9, 2) == 0);
    p.dry_last_n = 0;
    CHECK(penalty_of(&p, y, 9, 2) == 0);
    p.dry_last_n = -1;
    struct dry_breaker at_4 = { 1, { 4 } }, at_0 = { 1, { 0 } }, at_2 = { 1, { 2 } }, at_54 = { 2, { 5, 4 } },
        at_24 = { 2, { 2, 4 } };
    p.n_dry_breakers = 1;
    p.dry_breakers = &at_4;  CHECK(penalty_of(&p, y, 9, 2) == 2);       /* 0 1 after the 4 */
    p.dry_breakers = &at_0;  CHECK(penalty_of(&p, y, 9, 2) == 0);
    p.dry_breakers = &at_2;  CHECK(penalty_of(&p, y, 9, 2) == 0);       /* 2 is itself a breaker */
    p.dry_breakers = &at_54; CHECK(penalty_of(&p, y, 9, 2) == 2);
    /* a longer breaker gets a penalty, and this one does not occur */
    p.dry_breakers = &at_24; CHECK(penalty_of(&p, y, 9, 2) == 2 * 3);
    int32_t same[200] = {0};
    p.n_dry_breakers = 0;
    p.dry_base = 1.75;
    p.dry_multiplier = 1;
    CHECK(near(penalty_of(&p, same, 200, 0), pow(1.75, 158), 0, 1e-12));
    CHECK(penalty_of(&p, same, 3, 0) == 1 && penalty_of(&p, same, 4, 0) == 1.75);
}

/* Breakers of one token and of several are found in the tokens of texts that contain them, and in no other
 * text. */
static void breakers_are_tokens_of_texts(void)
{
    static const char *const files[] = { "models/demo/tokenizer.json", "build/data/tokenizers/llama2.json",
                                         "build/data/tokenizers/llama3.json",
                                         "build/data/tokenizers/gpt2.json",
                                         "build/data/tokenizers/qwen2.json" };
    static const struct { const char *breaker, *with, *without; } cases[] = {
        { "\n", "one.\n\nTwo", "one. Two" }, { "the", "and the man", "and thy man" }, { "is not",
            "that is not it", "that was not it" },
        { "s not", "that is not it", "this is it" }, { ": \"", "he said: \"Yes", "he said, \"Yes" },
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct tokenizer *t;
        char *json;
        size_t n_json;
        if (file_read(&json, &n_json, files[f], 1 << 28, &e) ||
            tokenizer_parse(&t, files[f], json, n_json, SIZE_MAX, &e)) {
            CHECK(false, "%s", e.msg);
            continue;
        }
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (int with = 0; with < 2; with++) {
                const char *breaker = cases[c].breaker, *x = with ? cases[c].with : cases[c].without;
                struct sampling p;
                int32_t *ids;
                size_t n, found = 0;
                sampling_defaults(&p);
                CHECK(!sampling_breakers(&p, &(struct text_list){ &breaker, 1 }, t, &e), "%s", e.msg);
                CHECK(!tokenizer_encode(t, &ids, &n, x, strlen(x), false, &e), "%s", e.msg);
                for (size_t b = 0; b < p.n_dry_breakers; b++)
                    for (size_t i = 0; i + p.dry_breakers[b].n <= n; i++)
                        found += !memcmp(ids + i, p.dry_breakers[b].ids, p.dry_breakers[b].n * sizeof *ids);
                CHECK((found > 0) == with, "%s: '%s' in '%s': %zu", files[f], breaker, x, found);
                free(ids);
                sampling_free(&p);
            }
        tokenizer_close(t);
        free(json);
    }
}

static void bad_breakers_are_named(void)
{
    struct sampling p;
    struct dry_breaker two[] = { { 1, { 3 } }, { 1, { 2 } } }, none = { 0, { 0 } }, beyond = { 2, { 3, 10 } };
#define BAD(field, value, part) sampling_defaults(&p); p.field = value; \
    CHECK(sampling_check(&p, 10, &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, part), "%s", e.msg)
    BAD(n_dry_breakers, (p.dry_breakers = two, 2), "breaker 1 begins with token 2 and follows one with 3");
    BAD(n_dry_breakers, (p.dry_breakers = &none, 1), "a breaker of 0 tokens");
    BAD(n_dry_breakers, (p.dry_breakers = &beyond, 1), "token id 10 is not in the vocabulary");
    sampling_defaults(&p);
    CHECK(dry_bytes(&p, 10) == 0);
    p.dry_multiplier = 1;
    p.text_max = SIZE_MAX;
    CHECK(dry_bytes(&p, 10) == SIZE_MAX);
}

/* Cost for each token of a text that grows to 100,000, with a path of 4. Nothing is allocated after
 * opening. */
static void cost_and_allocations(void)
{
    enum { N = 100000, V = 50000, LAST = 2000 };
    int32_t *x = malloc((N + 4) * sizeof *x);
    static const char *const names[] = { "one token", "period 7", "zipf", "two tokens", "zipf, loop of 50" };
    for (size_t kind = 0; kind < 5; kind++) {
        struct sampling p;
        struct history_digest past = {0};
        struct dry d;
        double seconds = 0, most = 0, known = 0;
        size_t found = 0, places = 0, before;
        for (size_t i = 0; i < N + 4; i++)
            x[i] = kind == 0 ? 5 : kind == 1 ? (int32_t)(i % 7) : kind == 3 ? (int32_t)below(2) : kind == 4 &&
                i > 90000 ? x[i - 50] : zipf(30000);
        sampling_defaults(&p);
        p.dry_multiplier = 0.8;
        p.text_max = N;
        CHECK(!dry_open(&d, &p, V, &e), "%s", e.msg);
        struct history h = { .tokens = x, .n = N - LAST, .path = x + N - LAST, .n_path = 4 };
        double start = clock_seconds();
        dry_enter(&d, &h, history_digest_extend(&past, &h));
        dry_leave(&d);
        double first = clock_seconds() - start;
        before = allocations();
        for (size_t n = N - LAST; n < N; n++) {
            h.n = n;
            h.path = x + n;
            start = clock_seconds();
            h.known = n - 1;
            bool extends = history_digest_extend(&past, &h);
            dry_enter(&d, &h, extends);
            double spent = clock_seconds() - start;
            found += d.found.n;
            dry_leave(&d);
            CHECK(extends || n == N - LAST);
            seconds += spent;
            most = MAX(most, spent);
            places = MAX(places, suffix_places(d.index, x, n, h.path, 4));
            h.known = 0;
            start = clock_seconds();
            history_digest_extend(&past, &h);
            known += clock_seconds() - start;
        }
        CHECK(!ALLOCATIONS_COUNTED || allocations() == before);
        CHECK(found > 0);
        CHECK(kind > 1 || places <= 7 + 160 + 4 + 1, "%zu places", places);
        printf("    %-16s at 100000 tokens: %.2f us per token, the slowest %.1f us, at most %zu places, %.1f "
               "followers; all of the text from scratch %.1f ms, "
               "its hash %.1f us\n",
               names[kind], seconds * 1e6 / LAST, most * 1e6, places, (double)found / LAST, first * 1e3,
               known * 1e6 / LAST);
        dry_close(&d);
    }
    free(x);
    if (!ALLOCATIONS_COUNTED)
        SKIP("costs printed; a sanitizer owns malloc, so allocations are not counted");
}

int main(void)
{
    RUN(equals_its_definition);
    RUN(sampler_subtracts_it);
    RUN(every_parameter_counts);
    RUN(breakers_are_tokens_of_texts);
    RUN(bad_breakers_are_named);
    RUN(cost_and_allocations);
    return test_end();
}
