/* The loop rule: decides whether a text has fallen into repetition. It reads the list of tokens and nothing
 * else, so it fires at the same token for any rounds, interruptions and machine (docs/architecture.md,
 * rule R3).
 *
 * A token repeats if the LOOP_GRAM tokens that end with it occurred in the LOOP_WINDOW tokens before. Its
 * distance is how far back the newest such place is. The score rises by 1 with a token that repeats, and
 * falls by LOOP_FALL, not below 0, with any other token. A run is the part of the text since the score last
 * was 0. Its period is the mean distance of its repeating tokens. The text has fallen into repetition at the
 * first token where
 *
 *     score >= LOOP_SCORE   and   score >= LOOP_COPIES * period
 *
 * That is the fifth copy of a passage, and at least 128 tokens of repetition. A quotation, a refrain or a
 * repeated stanza is not enough, nor is a list whose lines begin or end alike.
 *
 * What the rule catches (tests/text/test_loop.c): a loop of period p <= LOOP_WINDOW - 6, at token p + 5 +
 * max(128, 4 p) after its first one. If every d-th token of the loop varies (d > 18), the second part is
 * divided by 1
 * - 18 / d. A loop that counts is such a loop, so short lines that differ in a number are not caught.
 * Repetitions just before a loop are part of its run and may delay the rule a little.
 *
 * What the rule does not catch: none of 94 books and openings (11 million tokens) meets it. The highest
 * scores, as a fraction of the threshold, are 0.9 for thirty verses of green bottles, 0.8 for Numbers 7, and
 * 0.6 for the house that Jack built.
 *
 * A repetition ends when the score has fallen by LOOP_LEAVE from its highest value. The rule then begins
 * anew. Cost: one step of a hash table for each token, amortised, and about 130 KiB. */
#pragma once
#include "src/base/base.h"

enum { LOOP_GRAM = 6, LOOP_WINDOW = 4096, LOOP_SCORE = 128, LOOP_FALL = 2, LOOP_COPIES = 4, LOOP_LEAVE = 64 };
enum on_loop { ON_LOOP_WARN, ON_LOOP_STOP, ON_LOOP_OFF, ON_LOOP_RETAKE };    /* --on-loop */

struct repetition {                  /* positions count tokens from 0, after the prompt */
    size_t start;                    /* the first token that repeats */
    size_t found;                    /* the token at which the rule fired */
    size_t end;                      /* one after the last token that repeats, so far */
    size_t period;                   /* rounded mean distance */
};

struct loop;
int  loop_open(struct loop **l, struct err *e);
void loop_close(struct loop *l);     /* NULL is allowed */

/* Adds a token. Returns true if the rule fires at it, which happens once in a repetition. */
bool loop_token(struct loop *l, int32_t id);
/* Adds a token that was given, not sampled: it is remembered but does not count. */
void loop_given(struct loop *l, int32_t id);
/* Lets the score begin at 0, as if the rule began here with the tokens before it known. */
void loop_restart(struct loop *l);
/* Whether the last tokens are a run; *start is its first token. */
bool loop_run(const struct loop *l, size_t *start);
/* Whether the text is inside a repetition that was found; *r describes it. */
bool loop_current(const struct loop *l, struct repetition *r);
/* Whether the last token ended a repetition that had been found; *r describes it. */
bool loop_ended(const struct loop *l, struct repetition *r);
