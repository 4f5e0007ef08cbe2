/* An index of earlier places of a growing text by their last tokens. Two queries use it: the longest earlier
 * match of the text's end and its continuation (a drafter), and for every token the longest match that it
 * followed (DRY repetition control, src/sample/dry.h).
 *
 * The text of a query is tokens[0, n) followed by path[0, n_path): the path of a draft-tree node from the
 * root's child to the node. A match of length L at place p means: the L tokens that end at p equal the last L
 * tokens of the text, and p is not the end itself, so a token follows p. A match may overlap the end.
 *
 * The index keeps one place for each different (most + 1)-gram of the text, the newest. An older place with
 * this gram has the same match lengths up to `most` and the same follower, so no answer changes. Places are
 * chained by their last min(least, 8) tokens, newest first.
 *
 * Cost. Indexing a token is O(most), once. A query takes a step for each kept place of one chain
 * (tests/suffix_places.h counts them), and compares a place only where it can improve the answer. A text of
 * period q keeps at most q + most places (one token repeated 100,000 times with most = 16: 17 places). On any
 * other text a chain has at most one place for each occurrence of the last tokens. */
#pragma once
#include "src/base/base.h"

struct suffix;                       /* the index of one text; nothing is allocated after opening */
enum { SUFFIX_LEAST = 2, SUFFIX_MOST = 16, SUFFIX_NEXT_MAX = 16 };

/* n_max: the most tokens that the text can have. SIZE_MAX: the size does not fit size_t, or n_max >=
 * UINT32_MAX. */
size_t suffix_bytes(size_t n_max);
/* Opens an index for matches of SUFFIX_LEAST to SUFFIX_MOST tokens, or of `least` to `most` (1 <= least <=
 * most). */
int    suffix_open(struct suffix **s, size_t n_max, struct err *e);
int    suffix_open_lengths(struct suffix **s, size_t n_max, size_t least, size_t most, struct err *e);
void   suffix_close(struct suffix *s);               /* NULL is allowed */
void   suffix_reset(struct suffix *s);               /* empties the index for another text */
/* Indexes tokens[0, n), n <= n_max. `tokens` is always the same growing text. */
void   suffix_follow(struct suffix *s, const int32_t *tokens, size_t n);

/* Finds the longest match, the newest among equal lengths, and writes its continuation to next[0, max), max
 * <= SUFFIX_NEXT_MAX: the tokens after the place and, where they reach the end of the text, the continuation
 * again, as a period would go on. Returns the length and sets *n_next = max, or returns 0 with *n_next = 0
 * when no match exists. n must be at least the number of indexed tokens. */
size_t suffix_longest(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, int32_t *next, size_t max, size_t *n_next);

/* Finds, for every token that followed a match of `least` tokens or more, the length of the longest such
 * match. Matches are cut to `limit` <= most tokens and to the part of the text from index `from` on. length[]
 * has an entry for each token id and must be 0 on entry; ids lists the tokens found, in the order of
 * finding. */
struct followers { uint32_t *length; int32_t *ids; size_t n; };
void suffix_followers(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, size_t from, size_t limit, struct followers *f);
