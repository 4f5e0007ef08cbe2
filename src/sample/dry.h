/* DRY ("don't repeat yourself") repetition control, as llama.cpp has it: a token that would continue what stood before is made less
 * likely, the more the longer the repetition already is.
 *
 * With the text = tokens and path of a history, of which its last N count (last_n): for every token v the length L of the longest
 * end of the text that occurred before, followed by v, all within the last N. It reaches back to the last sequence breaker at
 * most: the tokens after the breaker that is nearest to the end. If L >= allowed and v is not itself a breaker of one token,
 *
 *     logit(v) -= multiplier * base^min(L - allowed, limit),      limit: the largest k <= 4096 with base^k <= FLT_MAX; base 1: 0
 *
 * It is a function of parameters and text alone, so the tokens of a tree node are those of plain decoding. Differences to llama.cpp:
 * all parameters are double, and the power is made of multiplications, not of pow(); there the limit has no 4096 (base below 1.022
 * is another text then); allowed 0 and a base below 1 are errors here, there the first penalises every token of the last N, the
 * second turns DRY off; here a finite logit stays finite; -1 is the whole text, there the model's context.
 *
 * Match lengths come from an index of the tokens (ngram/suffix.h), not from reading them again: a token costs one step per different
 * context in which its last min(allowed, 8) tokens stood, and a text that repeats itself has few of these. */
#pragma once
#include "ngram/suffix.h"
#include "src/sample/sampling.h"

struct dry {
    bool on;
    const struct sampling *p;
    size_t limit;                        /* of the exponent */
    struct suffix *index;
    /* after dry_enter: tokens to penalise, L of each; length[] [vocab] is 0 elsewhere */
    struct followers found;
    unsigned char *breaks;               /* [vocab] 1: a breaker of one token; 2: the first token of longer ones; 3: both */
    void *memory; size_t bytes;
};

/* Memory of DRY with these parameters; 0 when it is off, SIZE_MAX when it does not fit. */
size_t dry_bytes(const struct sampling *p, size_t vocab);
/* p is borrowed. If it is on, p->text_max is the tokens that a history may have. */
int  dry_open(struct dry *d, const struct sampling *p, size_t vocab, struct err *e);
void dry_close(struct dry *d);

/* Find what continues a repetition at the end of h. goes_on: h begins with the tokens of the h before. */
void dry_enter(struct dry *d, const struct history *h, bool goes_on);
/* What is to be subtracted from the logit of a token of d->found. */
double dry_penalty(const struct dry *d, int32_t id);
void dry_leave(struct dry *d);           /* empty d->found */
