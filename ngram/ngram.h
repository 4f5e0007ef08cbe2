/* How often each 4-gram of one text occurred, as continuations of a leading token: drafters propose the most frequent
 * ones (TokenSwift, arXiv:2502.18890, section 3.2, "token reutilization").
 *
 * An entry is one 4-gram, identified by (leading token, its 3 followers), with its frequency and the index of its
 * newest occurrence. Continuations of a leading token are ordered by (frequency descending, newest occurrence first);
 * ids ascending would come third and never decide, as no two 4-grams begin at one index.
 *
 * Visibility. The table takes what it is shown: tokens[0, n_visible). With a penalty over the last W tokens, proposals made
 * of tokens inside the window are mostly refused; so a caller lets a 4-gram enter when all its tokens have left the
 * window: of a list of L tokens it shows the first max(0, L - W - 1), and the newest token inside any entry has index
 * <= L - W - 2. Without a penalty it shows all L.
 *
 * Cost: entering is O(1) amortised (two hash look-ups; neighbours in a list of frequencies), asking is O(k). uthash tables on one
 * arena, sized when opened for the worst text (no two 4-grams equal): pages that a text does not need are never
 * touched, and nothing is allocated after ngram_open. */
#pragma once
#include "src/base/base.h"

struct ngram;                                        /* of one text */

/* n_max: tokens that the text can have; SIZE_MAX when it does not fit, or n_max > UINT32_MAX */
size_t ngram_bytes(size_t n_max);
int    ngram_open(struct ngram **t, size_t n_max, struct err *e);
void   ngram_close(struct ngram *t);                 /* NULL is allowed */

/* Enter every 4-gram that lies wholly in tokens[0, n_visible) and has not been entered. tokens is the one growing list;
 * n_visible <= n_max. Fewer than before: nothing happens. */
void   ngram_follow(struct ngram *t, const int32_t *tokens, size_t n_visible);
void   ngram_reset(struct ngram *t);                 /* to empty, for another text */

/* The at most k continuations of `lead` that come first: next[k][3], frequency[k]. Returns their number. */
size_t ngram_top(const struct ngram *t, int32_t lead, size_t k, int32_t (*next)[3], uint32_t *frequency);
size_t ngram_entries(const struct ngram *t);         /* different 4-grams */
