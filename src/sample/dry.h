/* DRY ("don't repeat yourself") repetition control, as llama.cpp has it: a token that would continue an
 * earlier passage becomes less likely, the more the longer the repetition already is.
 *
 * The text is tokens and path of a history, of which the last N count (last_n). For every token v, L is the
 * length of the longest end of the text that occurred before, followed by v, all within the last N. It
 * reaches back at most to the last sequence breaker, that is, over the tokens after the breaker nearest to
 * the end. If L >= allowed and v is not itself a breaker of one token,
 *
 *     logit(v) -= multiplier * base^min(L - allowed, limit)
 *
 * where limit is the largest k <= DRY_LIMIT_MAX with base^k <= FLT_MAX, or 0 for base 1.
 *
 * The penalty is a function of parameters and text alone, so the tokens of a tree node are those of plain
 * decoding.
 *
 * Differences to llama.cpp:
 *   - All parameters are double. The power is made of multiplications, not of pow().
 *   - llama.cpp's limit has no maximum of 4096, so for a base below 1.022 the texts differ.
 *   - allowed 0 and a base below 1 are errors. In llama.cpp allowed 0 penalises every token of the last N,
 *     and a base below 1 turns DRY off.
 *   - A finite logit stays finite.
 *   - last_n -1 means the whole text. In llama.cpp it means the model's context.
 *
 * Match lengths come from an index of the tokens (ngram/suffix.h); the text is not read again. A token
 * costs one step for each different context of its last min(allowed, 8) tokens. A text that repeats itself
 * has few such contexts. */
#pragma once
#include "ngram/suffix.h"
#include "src/sample/sampling.h"

struct dry {
    bool on;
    const struct sampling *p;
    size_t limit;                        /* of the exponent */
    struct suffix *index;
    struct followers found;              /* the tokens to penalise; length [vocab]: L of each, else 0 */
    unsigned char *breaks;               /* [vocab] 1: is a breaker; 2: begins longer ones; 3: both */
    void *memory; size_t bytes;
};

/* The memory of DRY with these parameters; 0 if it is off, SIZE_MAX if the sum exceeds size_t. */
size_t dry_bytes(const struct sampling *p, size_t vocab);
/* p is borrowed. If DRY is on, p->text_max is the largest number of tokens of a history. */
int  dry_open(struct dry *d, const struct sampling *p, size_t vocab, struct err *e);
void dry_close(struct dry *d);

/* Finds the tokens that would continue a repetition at the end of h. extends: h begins with the tokens of the
 * history of the last call. */
void dry_enter(struct dry *d, const struct history *h, bool extends);
/* The number to subtract from the logit of a token of d->found. */
double dry_penalty(const struct dry *d, int32_t id);
void dry_leave(struct dry *d);           /* empties d->found */
