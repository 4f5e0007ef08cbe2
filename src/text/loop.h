/* The rule for "the text has fallen into repetition". It sees the list of tokens and nothing else, so that it speaks at the same token whatever
 * the rounds, the interruptions and the machine were (DESIGN R3).
 *
 * A token repeats when the LOOP_GRAM tokens that end with it stood already in the LOOP_WINDOW tokens before; its distance is how far back the
 * newest of these places is. The score rises by 1 with a token that repeats, and falls by LOOP_FALL, not below 0, with one that does not. A run is
 * what came since the score last was 0, and its period the mean distance of the tokens that repeat in it. The text has fallen into
 * repetition at the first token where
 *
 *     score >= LOOP_SCORE   and   score >= LOOP_COPIES * period
 *
 * that is, when it says for the fifth time what it said a short while ago, and at least 128 tokens of it. A quotation, a refrain or a stanza that
 * is said again is not enough, nor is a list whose lines begin or end alike.
 *
 * What is caught, and when (tests/test_loop.c). A loop of period p, from its first token: after p + 5 + max(128, 4 p) tokens, p <= LOOP_WINDOW - 6. One in which
 * every d-th token is another one, d > 18: the second part divided by 1 - 18 / d. A loop that counts is one of these, so short lines
 * that differ in a number are not caught. Repetitions just before a loop are part of its run and may make it a little later.
 * What is not: of 94 books and openings (11 million tokens) none meets the rule. The worst of what
 * people sing: thirty verses of green bottles get to 0.9, Numbers 7 to 0.8, the house that Jack built to 0.6.
 *
 * A repetition that was found lasts until the score has fallen by LOOP_LEAVE from its highest; there it ended, and the rule begins anew.
 * Cost: a step of a hash table per token, amortised; about 130 KiB. */
#pragma once
#include "src/base/base.h"

enum { LOOP_GRAM = 6, LOOP_WINDOW = 4096, LOOP_SCORE = 128, LOOP_FALL = 2, LOOP_COPIES = 4, LOOP_LEAVE = 64 };
enum on_loop { ON_LOOP_WARN, ON_LOOP_STOP, ON_LOOP_OFF };    /* --on-loop */
extern const char *const on_loop_names[3];

struct repetition {                  /* positions: tokens from 0, behind the prompt */
    size_t start;                    /* the first token that says something again */
    size_t found;                    /* the token at which the rule spoke */
    size_t end;                      /* behind the last token that repeats, so far */
    size_t period;                   /* rounded mean distance */
};

struct loop;
int  loop_open(struct loop **l, struct err *e);
void loop_close(struct loop *l);     /* NULL is fine */

/* The next token. True when the text has fallen into repetition with it: once in a repetition. */
bool loop_token(struct loop *l, int32_t id);
/* The next token, which was not sampled but given: it is remembered and does not count. */
void loop_given(struct loop *l, int32_t id);
/* Whether the text is in a repetition that was found; *r tells which. */
bool loop_current(const struct loop *l, struct repetition *r);
/* Whether the last token ended a repetition that had been found; *r tells which. */
bool loop_ended(const struct loop *l, struct repetition *r);
