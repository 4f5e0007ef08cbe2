/* The budget of thought: after so many tokens of thought the text gets the mark that ends a thought, so that
 * a thinking model always answers.
 *
 * A thought begins after a start mark that the prompt opens and does not end, or after one that begins among
 * the first THOUGHT_REACH generated tokens. Without a start mark it begins with the text. The first thought
 * alone has a budget. Its end mark follows from the tokens of the text and nothing else, so it comes at the
 * same place for any drafting and any interruption (docs/architecture.md, rule R3). */
#pragma once
#include "src/sample/sampling.h"

enum { THOUGHT_REACH = 16 };

/* The token of the end mark that has to follow the history; -1: none, the model chooses. */
int32_t thought_token(const struct sampling *p, const struct history *h);
