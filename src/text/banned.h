/* Banned phrases: finds the first of many phrases in a text that grows token by token.
 *
 * Complete code points are compared after simple case folding, wherever tokens begin and end. The phrase that
 * is complete first counts, of several that end with one code point the shortest, so that as little as
 * possible of the text is taken back. Time is linear in the text for any phrases (Aho and Corasick). */
#pragma once
#include "src/base/base.h"

enum { BANNED_MAX = 1000, BANNED_BYTES_MAX = 256 };

/* The phrases, prepared; texts may share them. */
struct banned;
/* Too many, too long, empty or not UTF-8 phrases are ERR_INPUT, and those with U+FFFD, which stands for bytes
 * that are no text. `name` begins the message. */
int  banned_check(const char *name, const char *const *phrase, size_t n, struct err *e);
/* Borrows the phrases, which have passed banned_check. n is not 0. */
int  banned_open(struct banned **out, const char *const *phrase, size_t n, struct err *e);
void banned_close(struct banned *b);     /* NULL is allowed */

/* A text and the phrases. It begins as { .phrases = b }, and again so after tokens that were given. */
struct banned_match {
    const struct banned *phrases;
    uint32_t state;                          /* how much of which phrase the text ends with */
    size_t token[BANNED_BYTES_MAX], n;       /* the tokens in which the last of its n code points begin */
    char held[4]; size_t n_held, held_token; /* the beginning of a code point, and where it begins */
};
/* Adds the bytes of token number `token`. Returns the first phrase that is complete, and *begin: the token in
 * which it begins; NULL: none. After a phrase nothing may be added. */
const char *banned_add(struct banned_match *m, size_t token, const char *bytes, size_t n, size_t *begin);
/* The token in which a phrase begins that the next tokens may complete; `tokens`, the length of the text:
 * none has begun. */
size_t banned_may_begin(const struct banned_match *m, size_t tokens);
