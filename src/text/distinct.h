/* Distinct-n, n = 1..4: different n-grams / n-grams. Exact: no two n-grams share a number, whatever their
 * hashes are. Time and memory grow with the length of the text (about 60 bytes per word or token).
 *
 *     distinct_open(&d)
 *     distinct_symbol(&d, id, &e) for each of a sequence of numbers, or distinct_text(&d, bytes, n, &e) for
 *         pieces of UTF-8 cut anywhere, then distinct_end(&d, &e)
 *     distinct_ratio(&d, n)
 *     distinct_close(&d)
 *
 * Words are maximal runs of letters, marks, decimal digits and apostrophes (' and U+2019), case-folded. */
#pragma once
#include "src/base/base.h"

enum { DISTINCT_MAX = 4 };

struct pair_set;                     /* (number, number) -> number: the order of first appearance */

struct distinct {                    /* {0} is closed */
    size_t total[DISTINCT_MAX], different[DISTINCT_MAX];   /* of n-grams of n = index + 1 symbols */
    struct pair_set *grams[DISTINCT_MAX];
    uint32_t suffix[DISTINCT_MAX];   /* numbers of the last 1, 2, .. symbols as one n-gram */
    size_t n_suffix;
    struct words *words;             /* texts: word -> number, and the word being read */
};

int  distinct_open(struct distinct *d, struct err *e);
void distinct_close(struct distinct *d);
int  distinct_symbol(struct distinct *d, uint32_t symbol, struct err *e);
/* ERR_INPUT: invalid UTF-8, with offset */
int  distinct_text(struct distinct *d, const char *s, size_t n, struct err *e);
int  distinct_end(struct distinct *d, struct err *e);
/* NAN when the text has fewer than n symbols. */
double distinct_ratio(const struct distinct *d, size_t n);
