/* The oracle: a drafter for tests that knows the text. It proposes the true continuation down to a given
 * depth and then one wrong token. A program that links oracle.c has it as the drafter of DRAFTER_ADDED. */
#pragma once
#include "src/decode/draft.h"

struct oracle {
    size_t depth;                    /* 0: the first proposed token is already wrong */
    const int32_t *tokens;           /* borrowed: the whole text, prompt included */
    size_t n_tokens;                 /* 0: the oracle proposes nothing */
};

/* Gives the settings this oracle, which must outlive every decoder opened with them. The caller sets the bit
 * of DRAFTER_ADDED in s->drafters. */
static inline void oracle_set(struct draft_settings *s, const struct oracle *o)
{
    s->added = o;
    s->added_rows = o->depth + 2;
}
