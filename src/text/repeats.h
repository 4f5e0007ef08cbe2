/* Repeats of a text: how much of it says again what it said shortly before, and its most repeated phrases.
 * The loop rule (src/text/loop.h) sees exact copies of tokens one after the other. This measure sees passages
 * that return with other words between them.
 *
 * A word repeats if the REPEAT_GRAM words that end with it also ended at one of the REPEAT_REACH words before
 * it. Words are those of src/text/distinct.h: case and punctuation do not count.
 *
 *     repeats_find(&r, &distinct, &e)     after distinct_end
 *     repeats_share(&r, from, to)
 *     repeats_close(&r) */
#pragma once
#include "src/text/distinct.h"

enum {
    REPEAT_GRAM = 8, REPEAT_REACH = 2000,
    PHRASES_MAX = 5, PHRASE_SHORTEST = 4, PHRASE_LONGEST = 16,      /* words of a phrase */
    PHRASE_COUNT = 3,                                               /* the least number of its copies */
};

struct phrase { char *text; size_t words, count; };
struct repeats {                         /* {0} is closed */
    uint8_t *repeats; size_t n;          /* of each word; n words */
    /* The phrases that hold most words of the text: the first one has the largest count * words. No word of
     * the text is counted in two of them. */
    struct phrase phrase[PHRASES_MAX]; size_t n_phrases;
};

int    repeats_find(struct repeats *r, const struct distinct *d, struct err *e);
void   repeats_close(struct repeats *r);
/* The share of the words [from, to) that repeat; NAN for no words. */
double repeats_share(const struct repeats *r, size_t from, size_t to);
