/* Where the end of a growing text stood before: an index of earlier places by their last tokens. Two questions use it: the
 * longest earlier match and what followed it (a drafter), and for every token the longest match that it followed (DRY
 * repetition control, src/sample/dry.h).
 *
 * The text of a question is tokens[0, n) and then path[0, n_path) (a tree node's ancestors, itself included). A match of length L at a place p: the L
 * tokens up to and with p equal the last L of the text, and p is not the end itself, so a token followed it. A match may overlap the end.
 *
 * The index keeps one place per different (most + 1)-gram of the text, the newest: an older one has the same match lengths up
 * to `most` and the same follower, so no answer changes. Places are chained by their last min(least, 8) tokens, newest first.
 *
 * Cost. Following: O(most) per token, once. A question: a step for each kept place of one chain (suffix_places tells how many), plus the
 * comparisons of those that improve an answer: a place is first compared where it must be longer than the best so far. On a text of
 * period q at most q + most places are kept (one token repeated 100,000 times, most = 16: 17). On any other text the places are at
 * most the occurrences of the last tokens. */
#pragma once
#include "src/base/base.h"

struct suffix;                       /* of one text; nothing is allocated after it is opened */
enum { SUFFIX_LEAST = 2, SUFFIX_MOST = 16, SUFFIX_NEXT_MAX = 16 };

/* n_max: tokens that the text can have. SIZE_MAX when it does not fit, or n_max >= UINT32_MAX. */
size_t suffix_bytes(size_t n_max);
/* For matches of SUFFIX_LEAST to SUFFIX_MOST tokens, or of `least` to `most` (1 <= least <= most). */
int    suffix_open(struct suffix **s, size_t n_max, struct err *e);
int    suffix_open_lengths(struct suffix **s, size_t n_max, size_t least, size_t most, struct err *e);
void   suffix_close(struct suffix *s);               /* NULL is allowed */
void   suffix_reset(struct suffix *s);               /* to empty, for another text */
void   suffix_follow(struct suffix *s, const int32_t *tokens, size_t n);      /* index tokens[0,n), n <= n_max; tokens is the one growing list */

/* The longest match, the newest of equal length. Its continuation goes to next[0, *n_next), *n_next = max <= SUFFIX_NEXT_MAX: the tokens after the place,
 * and when they reach the end of the text, those of the continuation itself (a period goes on). Returns the length, 0 with *n_next = 0 when there
 * is none. n >= the tokens followed. */
size_t suffix_longest(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, int32_t *next, size_t max, size_t *n_next);

/* For every token that followed a match of `least` tokens or more: the length of the longest one, at most `limit` <= most, within the part of
 * the text from index `from` on. length[] has a place per token id and is 0 where no id is; ids are in the order they were found. */
struct followers { uint32_t *length; int32_t *ids; size_t n; };
void suffix_followers(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, size_t from, size_t limit, struct followers *f);

/* Places that a question about this text looks at. */
size_t suffix_places(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                     size_t n_path);
