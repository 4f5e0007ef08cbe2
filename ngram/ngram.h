/* The frequency of every 4-gram of one text, ordered as continuations of its first token. A drafter proposes
 * the most frequent continuations (TokenSwift, arXiv:2502.18890, section 3.2, "token reutilization").
 *
 * An entry is one 4-gram: a leading token and its 3 followers, with a frequency and the index of the newest
 * occurrence. The continuations of a leading token are ordered by frequency, descending; the newest
 * occurrence decides between equal frequencies.
 *
 * Visibility. The table holds the 4-grams of tokens[0, n_visible). With a penalty over the last W tokens,
 * sampling mostly refuses proposals made of tokens inside the window. A caller therefore lets a 4-gram enter
 * only after all its tokens have left the window: of a text of L tokens it shows the first max(0, L - W - 1),
 * so that the newest token of any entry has index <= L - W - 2. Without a penalty it shows all L tokens.
 *
 * Cost. Entering a 4-gram is O(1) amortised: two hash look-ups and a move between neighbouring frequency
 * groups. A query is O(k). The uthash tables live in one arena, which is sized at opening for the worst text
 * (all 4-grams different). Pages that a text does not need are never touched, and nothing is allocated after
 * ngram_open. */
#pragma once
#include "src/base/base.h"

struct ngram;                                        /* the table of one text */

/* n_max: the most tokens that the text can have. SIZE_MAX: the size does not fit size_t, or n_max >
 * UINT32_MAX. */
size_t ngram_bytes(size_t n_max);
int    ngram_open(struct ngram **t, size_t n_max, struct err *e);
void   ngram_close(struct ngram *t);                 /* NULL is allowed */

/* Enters every 4-gram of tokens[0, n_visible) that has not been entered yet. `tokens` is always the same
 * growing text; n_visible <= n_max. A smaller n_visible than before changes nothing. */
void   ngram_follow(struct ngram *t, const int32_t *tokens, size_t n_visible);
void   ngram_reset(struct ngram *t);                 /* empties the table for another text */

/* Writes the first k continuations of `lead`, or fewer: tokens to next[k][3], frequencies to frequency[k].
 * Returns their number. */
size_t ngram_top(const struct ngram *t, int32_t lead, size_t k, int32_t (*next)[3], uint32_t *frequency);
