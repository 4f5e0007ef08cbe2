/* Distinct-n, n = 1..4: the number of different n-grams divided by the number of n-grams. The count is exact:
 * it does not depend on hash values. Time and memory grow with the length of the text (about 60 bytes for
 * each word or token).
 *
 *     distinct_open(&d)
 *     distinct_symbol(&d, id, &e) for each number of a sequence; or distinct_text(&d, bytes, n, &e) for
 *         pieces of UTF-8 cut anywhere, then distinct_end(&d, &e)
 *     distinct_ratio(&d, n)
 *     distinct_close(&d)
 *
 * Words are maximal runs of letters, marks, decimal digits and apostrophes (' and U+2019), case-folded. */
#pragma once
#include "src/base/base.h"

enum { DISTINCT_MAX = 4 };

struct distinct {                    /* {0} is closed */
    size_t total[DISTINCT_MAX], different[DISTINCT_MAX];   /* n-grams of n = index + 1 symbols */
    uint32_t suffix[DISTINCT_MAX];   /* numbers of the last 1, 2, .. symbols as one n-gram */
    size_t n_suffix;
    struct tables *tables;           /* n-gram -> number, word -> number, and the word in progress */
};

int  distinct_open(struct distinct *d, struct err *e);
void distinct_close(struct distinct *d);
int  distinct_symbol(struct distinct *d, uint32_t symbol, struct err *e);
/* Invalid UTF-8 is ERR_INPUT, with its offset. */
int  distinct_text(struct distinct *d, const char *s, size_t n, struct err *e);
int  distinct_end(struct distinct *d, struct err *e);
/* NAN if the text has fewer than n symbols. */
double distinct_ratio(const struct distinct *d, size_t n);
/* The words of the text so far, as numbers from 1 in the order of their first appearance, and the case-folded
 * bytes of one, without a NUL. They stay valid until d changes. */
const uint32_t *distinct_words(const struct distinct *d, size_t *n);
const char *distinct_word(const struct distinct *d, uint32_t number, size_t *n_bytes);
