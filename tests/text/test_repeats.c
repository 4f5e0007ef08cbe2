/* Repeats and phrases against a naive count, and by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/repeats.h"
#include "tests/test.h"

static uint64_t state = 5;
static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

static void read_text(struct distinct *d, struct repeats *r, const char *text)
{
    struct err e;
    CHECK(!distinct_open(d, &e) && !distinct_text(d, text, strlen(text), &e) && !distinct_end(d, &e) &&
          !repeats_find(r, d, &e), "%s", e.msg);
}

/* Whether the gram that ends with word i also ended at one of the words before it within reach. */
static bool repeats_naively(const uint32_t *w, size_t i)
{
    for (size_t back = 1; i + 1 >= REPEAT_GRAM && back <= REPEAT_REACH && back + REPEAT_GRAM <= i + 1; back++)
        if (!memcmp(w + i + 1 - REPEAT_GRAM, w + i + 1 - REPEAT_GRAM - back, REPEAT_GRAM * sizeof *w))
            return true;
    return false;
}

static void marks_equal_a_naive_count(void)
{
    size_t marked = 0, all = 0;
    for (int c = 0; c < 40 && !test_failed_; c++) {
        struct distinct d;
        struct repeats r;
        size_t n = c % 4 ? below(400) : 6000, words = 2 + below(40), n_text = 0;
        char *text = calloc(n + 1, 8);
        for (size_t i = 0; i < n; i++) {
            size_t back = 0;
            const size_t far = below(2) ? 50 : 2500;
            if (i > 50 && below(12) == 0)            /* copies a passage from far or near */
                back = 1 + below(MIN(i, far));
            const size_t from = back ? (i - back) * 5 : 0,
                         copy = back ? MIN(back, MIN((size_t)30, n - i)) : 0;
            if (copy) {
                memcpy(text + n_text, text + from, copy * 5);
                n_text += copy * 5;
                i += copy - 1;
            } else {
                n_text += (size_t)sprintf(text + n_text, "w%03zu ", below(words));
            }
        }
        read_text(&d, &r, text);
        size_t n_words;
        const uint32_t *w = distinct_words(&d, &n_words);
        CHECK(n_words == n && r.n == n, "%zu words of %zu", n_words, n);
        for (size_t i = 0; i < n_words && !test_failed_; i++) {
            CHECK(r.repeats[i] == repeats_naively(w, i), "case %d, word %zu", c, i);
            marked += r.repeats[i];
        }
        all += n_words;
        repeats_close(&r);
        distinct_close(&d);
        free(text);
    }
    CHECK(marked > all / 20 && marked < all - all / 20, "%zu of %zu", marked, all);
}

static void reach_and_length_are_exact(void)
{
    struct distinct d;
    struct repeats r;
    static char text[40000];
    for (int far = 0; far < 2; far++) {
        size_t n = (size_t)sprintf(text, "a b c d e f g h ");
        for (int i = 0; i < REPEAT_REACH - 8 + far; i++)
            n += (size_t)sprintf(text + n, "x%d ", i);
        sprintf(text + n, "A, B c d; e f g h.");
        read_text(&d, &r, text);
        CHECK(r.repeats[r.n - 1] == !far && !r.repeats[r.n - 2], "%d", far);
        CHECK(near(repeats_share(&r, r.n - 4, r.n), far ? 0 : 0.25, 1e-12, 0) &&
              isnan(repeats_share(&r, 3, 3)));
        repeats_close(&r);
        distinct_close(&d);
    }
}

static void phrases_are_those_that_hold_most_words(void)
{
    struct distinct d;
    struct repeats r;
    read_text(&d, &r, "The king of the hill sat down. One. The king of the hill sat up. Two, the King of the "
                      "hill ran. I am here now? Three: I am here now! Four I am here now. I am here Now. "
                      "x y x y x y");
    CHECK(r.n_phrases == 2, "%zu", r.n_phrases);
    CHECK(r.n_phrases == 2 && !strcmp(r.phrase[0].text, "i am here now") && r.phrase[0].count == 4 &&
          !strcmp(r.phrase[1].text, "the king of the hill") && r.phrase[1].count == 3,
          "%s: %zu, %s: %zu", r.phrase[0].text, r.phrase[0].count, r.phrase[1].text, r.phrase[1].count);
    repeats_close(&r);
    distinct_close(&d);
    read_text(&d, &r, "again again again again again again again again again again again again again");
    CHECK(r.n_phrases == 1 && r.phrase[0].count == 3 && r.phrase[0].words == 4, "%zu", r.n_phrases);
    repeats_close(&r);
    distinct_close(&d);
    read_text(&d, &r, "");
    CHECK(r.n == 0 && r.n_phrases == 0 && isnan(repeats_share(&r, 0, 0)));
    repeats_close(&r);
    distinct_close(&d);
}

int main(void)
{
    RUN(marks_equal_a_naive_count);
    RUN(reach_and_length_are_exact);
    RUN(phrases_are_those_that_hold_most_words);
    return test_end();
}
