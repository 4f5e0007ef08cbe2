/* The loop rule equals its definition, fires for loops in time and never for books. Emission ends texts
 * with it. */
#include "src/text/emit.h"
#include "src/text/loop.h"
#include "src/text/retake.h"
#include "tests/test.h"

static uint64_t state = 1;
static size_t random_below(size_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(state >> 33) % n;
}

static struct loop *l;

static void new_text(void)
{
    struct err e;
    loop_close(l);
    CHECK(loop_open(&l, &e) == 0, "%s", e.msg);
}

/* The first position at which the rule fires; SIZE_MAX if it does not. */
static size_t first_found(const int32_t *t, size_t n)
{
    new_text();
    for (size_t i = 0; i < n; i++)
        if (loop_token(l, t[i]))
            return i;
    return SIZE_MAX;
}

/* The rule's definition, computed from the list alone. */
static size_t brute(const int32_t *t, size_t n, size_t *start)
{
    size_t score = 0, repeats = 0, distance = 0;
    for (size_t i = 0; i < n; i++) {
        size_t d = 0;
        for (size_t k = 1; k <= LOOP_WINDOW && k + LOOP_GRAM - 1 <= i && !d; k++) {
            size_t same = 0;
            while (same < LOOP_GRAM && t[i - same] == t[i - k - same])
                same++;
            d = same == LOOP_GRAM ? k : 0;
        }
        if (!d) {
            score = score > LOOP_FALL ? score - LOOP_FALL : 0;
            if (!score)
                repeats = distance = 0;
            continue;
        }
        if (score++ == 0)
            *start = i + 1 - LOOP_GRAM;
        repeats++;
        distance += d;
        if (score >= LOOP_SCORE && (double)score >= LOOP_COPIES * (double)distance / (double)repeats)
            return i;
    }
    return SIZE_MAX;
}

static void equals_its_definition(void)
{
    enum { N = 20000 };
    static int32_t t[N];
    size_t fired = 0;
    for (size_t round = 0; round < 14; round++) {
        size_t alphabet = (size_t[]){ 4, 8, 20, 200 }[round % 4], period = 5 + random_below(1500),
            from = 3000 + random_below(9000), start = 0;
        for (size_t i = 0; i < N; i++)
            t[i] = i < from || i < period || random_below(60) == 0 ? (int32_t)random_below(alphabet)
                                                                   : t[i - period];
        size_t want = brute(t, N, &start), got = first_found(t, N);
        struct repetition r = {0};
        CHECK(got == want, "round %zu: %zu, by the definition %zu", round, got, want);
        if (got != SIZE_MAX) {
            fired++;
            CHECK(loop_current(l, &r) && r.start == start && r.found == got && r.end == got + 1,
                  "start %zu, %zu", r.start, start);
        }
    }
    CHECK(fired >= 7, "%zu of 14 lists have a loop that the rule finds", fired);
}

/* Builds a text without repetitions, then a loop of period p in which every d-th token varies (0: none).
 * Returns the tokens of the loop until the rule fires. */
static size_t caught_after(size_t before, size_t p, size_t d, size_t limit)
{
    size_t n = before + limit;
    int32_t *t = malloc(n * sizeof *t);
    for (size_t i = 0; i < n; i++)
        t[i] = i < before + p ? (int32_t)random_below(30000) : t[i - p];
    for (size_t i = before + d; d && i < n; i += d)
        t[i] = (int32_t)(40000 + random_below(100000));
    size_t at = first_found(t, n);
    free(t);
    return at == SIZE_MAX ? SIZE_MAX : at + 1 - before;
}

static void loops_are_caught_in_time(void)
{
    for (size_t p = 1; p <= LOOP_WINDOW; p += p < 200 ? 1 : 487) {
        size_t bound = p + LOOP_GRAM - 1 + MAX((size_t)LOOP_SCORE, LOOP_COPIES * p),
               got = caught_after(random_below(6000), p, 0, bound + 1);
        CHECK(got == bound, "period %zu: after %zu tokens, expected %zu", p, got, bound);
    }
    size_t missed = caught_after(100, LOOP_WINDOW + 1, 0, 30000);
    CHECK(missed == SIZE_MAX, "beyond the window: %zu", missed);
}

static void loops_that_change_are_caught(void)
{
    for (size_t p = 5; p < 400; p += 13)
        for (size_t d = 25; d <= 200; d *= 2) {
            double drift = 1 - (double)LOOP_GRAM * (1 + LOOP_FALL) / (double)d;
            size_t bound =
                       (size_t)(1.5 * (double)MAX((size_t)LOOP_SCORE, LOOP_COPIES * p) / drift) + 2 * p + 80,
                   got = caught_after(500, p, d, bound + 1);
            CHECK(got <= bound,
                  "period %zu, every %zu-th token varies: after %zu tokens, expected at most %zu", p, d,
                  got, bound);
        }
    /* Each copy has one token more or less than the last: there is no period. */
    int32_t t[6000], body[60];
    for (size_t i = 0; i < 60; i++)
        body[i] = (int32_t)random_below(30000);
    size_t n = 0;
    while (n < 5900)
        for (size_t i = 0; i < 60 && n < 5900; i++)
            if (random_below(40))
                t[n++] = body[i];
    size_t got = first_found(t, n);
    CHECK(got < 900, "after %zu tokens", got);
}

static void found_once_and_left(void)
{
    int32_t t[3000];
    for (size_t i = 0; i < 3000; i++)
        t[i] = (i >= 520 && i < 1000) || (i >= 2020 && i < 2500) ? t[i - 20] : (int32_t)random_below(30000);
    size_t found = 0, left = 0;
    struct repetition r;
    new_text();
    for (size_t i = 0; i < 3000; i++) {
        found += loop_token(l, t[i]);
        if (loop_ended(l, &r)) {
            size_t base = left++ ? 1500 : 0;
            CHECK(r.start == 520 + base && r.found == 652 + base && r.end == 1000 + base && r.period == 20,
                  "%zu: start %zu found %zu end %zu period %zu", i, r.start, r.found, r.end, r.period);
        }
    }
    CHECK(found == 2 && left == 2, "found %zu, left %zu", found, left);
    /* given tokens are remembered but do not count */
    new_text();
    found = 0;
    for (size_t i = 0; i < 1000; i++) {
        if (i >= 520 && i < 700)
            loop_given(l, t[i]);
        else
            found += loop_token(l, t[i]) ? 1 : 0;
        if (i == 826)
            CHECK(found == 0);
        if (i == 827)
            CHECK(found == 1, "128 sampled tokens after the given ones");
    }
}

/* ---- real texts ---- */

static struct tokenizer *demo;

static void text_is_quiet(const char *name, const char *s, size_t n)
{
    int32_t *ids;
    size_t n_ids;
    struct err e = {0};
    struct repetition r;
    if (tokenizer_encode(demo, &ids, &n_ids, s, n, false, &e)) {
        CHECK(false, "%s: %s", name, e.msg);
        return;
    }
    size_t at = first_found(ids, n_ids);
    if (at != SIZE_MAX && loop_current(l, &r))
        CHECK(false, "%s: tokens %zu to %zu, period %zu", name, r.start, at, r.period);
    free(ids);
}

static void books_are_quiet(void)
{
    static const char *const name[] = { "malay", "mcteague", "portrait", "udolpho", "vanity-fair" };
    for (size_t i = 0; i < 5; i++) {
        char path[64], *s = malloc(1 << 20);
        snprintf(path, sizeof path, "models/demo/openings/%s.txt", name[i]);
        FILE *f = fopen(path, "rb");
        CHECK(f != NULL, "%s", path);
        size_t n = f ? fread(s, 1, 1 << 20, f) : 0;
        CHECK(n > 500);
        text_is_quiet(path, s, n);
        if (f)
            fclose(f);
        free(s);
    }
}

/* Writes n words that never occurred together. */
static char *phrase(char *p, size_t n)
{
    static const char *const end[] = { "", "n", "r", "s", "t" };
    for (; n; n--) {
        for (size_t k = 1 + random_below(3); k; k--)
            p += sprintf(p, "%c%c%s", "bcdfghlmnprstvw"[random_below(15)], "aeiou"[random_below(5)],
                         end[random_below(5)]);
        *p++ = n > 1 ? ' ' : 0;
    }
    return p - 1;
}

/* Cumulative rhymes, the hardest refrains: every verse repeats all of the verse before. */
static void refrains_are_quiet(void)
{
    static const char *const who[] = { "the house that Jack built", "the malt", "the rat", "the cat",
                                       "the dog", "the cow with the crumpled horn", "the maiden all forlorn",
        "the man all tattered and torn", "the priest all shaven and shorn",
            "the cock that crowed in the morn", "the farmer sowing his corn" };
    static const char *const did[] = { "", "lay in", "ate", "killed", "worried", "tossed", "milked", "kissed",
                                       "married", "waked", "kept" };
    static const char *const day[] = { "first", "second", "third", "fourth", "fifth", "sixth", "seventh",
                                       "eighth", "ninth", "tenth", "eleventh", "twelfth" };
    static const char *const gift[] = { "a partridge in a pear tree", "two turtle doves", "three French hens",
                                        "four calling birds", "five gold rings", "six geese a-laying",
        "seven swans a-swimming", "eight maids a-milking", "nine ladies dancing", "ten lords a-leaping",
            "eleven pipers piping", "twelve drummers drumming" };
    char *s = malloc(1 << 16), *p = s;
    for (int i = 0; i < 11; i++) {
        p += sprintf(p, "This is %s", who[i]);
        for (int k = i; k > 0; k--)
            p += sprintf(p, "\nThat %s %s", did[k], who[k - 1]);
        p += sprintf(p, ".\n\n");
    }
    text_is_quiet("the house that Jack built", s, (size_t)(p - s));
    p = s;
    for (int i = 0; i < 12; i++) {
        p += sprintf(p, "On the %s day of Christmas my true love sent to me\n", day[i]);
        for (int k = i; k >= 0; k--)
            p += sprintf(p, "%s%s%s\n", k == 0 && i ? "and " : "", gift[k], k ? "," : ".");
        p += sprintf(p, "\n");
    }
    text_is_quiet("the twelve days of Christmas", s, (size_t)(p - s));
    p = s;
    for (int i = 0; i < 200; i++) {             /* a table of contents */
        p += sprintf(p, "Chapter %d. Of ", i + 1);
        p = phrase(p, 4);
        p += sprintf(p, "\n\n");
    }
    text_is_quiet("a list of chapters", s, (size_t)(p - s));
    p = s;
    for (int i = 0; i < 60; i++) {
        p += sprintf(p, "THE KING. ");
        p = phrase(p, 8);
        p += sprintf(p, "!\n\nCHORUS. Woe, woe, woe to the house of the king!\n\nTHE QUEEN. And ");
        p = phrase(p, 6);
        p += sprintf(p, "?\n\n");
    }
    text_is_quiet("a play with a chorus", s, (size_t)(p - s));
    p = s;
    for (int i = 0; i < 12; i++)
        p += sprintf(p, "%s", "bells, ");
    p += sprintf(p, "\n\n* * *\n\n%s\n\n",
                 "........................................................................");
    text_is_quiet("bells", s, (size_t)(p - s));
    free(s);
}

/* ---- emission ---- */

/* Emits a list until it ends, and collects the text. */
static void emit_list(const int32_t *t, size_t n, const struct emit_rules *r, struct emit *m, char *text,
                      size_t *n_text)
{
    struct err e = {0};
    const char *bytes;
    size_t k;
    *n_text = 0;
    CHECK(emit_open(m, r, demo, false, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < n && m->finish == FINISH_NONE; i++) {
        emit_token(m, t[i], &bytes, &k);
        memcpy(text + *n_text, bytes, k);
        *n_text += k;
    }
    emit_close(m);
}

static void emission_ends_with_the_rule(void)
{
    enum { N = 2000 };
    static char warn[1 << 16], stop[1 << 16];
    int32_t t[N];
    size_t n_warn, n_stop;
    struct emit m;
    for (size_t i = 0; i < N; i++)
        t[i] = i >= 510 ? t[i - 10] : (int32_t)(300 + random_below(2000));
    const size_t at = first_found(t, N);
    CHECK(at == 500 + 10 + 5 + 128 - 1, "%zu", at);
    struct emit_rules r = { .tokens = N, .on_loop = ON_LOOP_WARN };
    emit_list(t, N, &r, &m, warn, &n_warn);
    CHECK(m.finish == FINISH_LENGTH && m.n == N && m.repetitions == 1);
    r.on_loop = ON_LOOP_OFF;
    emit_list(t, N, &r, &m, stop, &n_stop);
    CHECK(m.finish == FINISH_LENGTH && m.repetitions == 0 && n_stop == n_warn &&
          memcmp(stop, warn, n_warn) == 0);
    r.on_loop = ON_LOOP_STOP;
    emit_list(t, N, &r, &m, stop, &n_stop);
    CHECK(m.finish == FINISH_REPETITION && m.n == at + 1 && n_stop < n_warn &&
              memcmp(stop, warn, n_stop) == 0,
          "%d after %zu tokens", (int)m.finish, m.n);
    r.tokens = at + 1;                           /* rule and length at one token: the rule wins */
    emit_list(t, N, &r, &m, stop, &n_stop);
    CHECK(m.finish == FINISH_REPETITION && m.n == at + 1);
    r.tokens = at;
    emit_list(t, N, &r, &m, stop, &n_stop);
    CHECK(m.finish == FINISH_LENGTH && m.n == at);
    r = (struct emit_rules){ .tokens = N, .on_loop = ON_LOOP_STOP, .eos = &t[505], .n_eos = 1 };
    emit_list(t, N, &r, &m, stop, &n_stop);        /* EOS before the rule */
    CHECK(m.finish == FINISH_STOP && m.n <= 505);
}

/* What becomes of a text whose loop began at `since`, when loops at from, from + step, .. were taken back. */
static enum retake_verdict after_retakes(size_t n, size_t from, size_t step, size_t cut, size_t since,
                                         const struct retake_limits *x)
{
    struct retakes list = {0};
    struct err e;
    size_t at;
    for (size_t i = 0; i < n; i++) {
        const size_t s = from + i * step;
        CHECK(retakes_add(&list, &(struct retake){ .at = s, .length = s + cut, .since = s }, &e) == 0);
    }
    const enum retake_verdict v = retake_of_loop(&list, since, since + 200, x, &at);
    CHECK(at == MAX(since, x->floor), "%zu", at);
    retakes_free(&list);
    return v;
}

static void a_series_of_retakes_ends(void)
{
    const struct retake_limits x = { .most = 8, .floor = 3, .min_tokens = 100 };
    CHECK(after_retakes(0, 0, 0, 0, 500, &x) == RETAKE_CUTS);
    CHECK(after_retakes(7, 500, 0, 150, 500, &x) == RETAKE_CUTS);
    CHECK(after_retakes(8, 500, 0, 150, 500, &x) == RETAKE_ENDS);
    CHECK(after_retakes(8, 500, 0, 150, 2, &x) == RETAKE_NOT);               /* before min_tokens */
    CHECK(after_retakes(8, 500, 0, 150, 499 + RETAKE_SERIES, &x) == RETAKE_ENDS);
    CHECK(after_retakes(8, 500, 0, 150, 500 + RETAKE_SERIES, &x) == RETAKE_CUTS);   /* the next series */
    CHECK(after_retakes(8, 500, RETAKE_SERIES - 1, 150, 500 + 7 * RETAKE_SERIES, &x) == RETAKE_ENDS);
    CHECK(after_retakes(8, 500, RETAKE_SERIES, 150, 500 + 7 * RETAKE_SERIES, &x) == RETAKE_CUTS);
    CHECK(after_retakes(2, 500, 0, RETAKE_CUT_MAX / 2 - 1, 500, &x) == RETAKE_CUTS);
    CHECK(after_retakes(2, 500, 0, RETAKE_CUT_MAX / 2, 500, &x) == RETAKE_ENDS);
}

int main(void)
{
    struct err e = {0};
    if (tokenizer_open(&demo, "models/demo", SIZE_MAX, &e)) {
        printf("FAIL test_loop (%s)\n", e.msg);
        return 1;
    }
    RUN(equals_its_definition);
    RUN(loops_are_caught_in_time);
    RUN(loops_that_change_are_caught);
    RUN(found_once_and_left);
    RUN(books_are_quiet);
    RUN(refrains_are_quiet);
    RUN(emission_ends_with_the_rule);
    RUN(a_series_of_retakes_ends);
    tokenizer_close(demo);
    loop_close(l);
    return test_end();
}
