/* Measures what `longhand plan --hardware measured --model DIR` calculates with: the seconds of passes by
 * rows, and of rounds by drafter and draft passes, of this model on this machine (struct measured_rounds of
 * src/lab/throughput.h). Nothing is learned from the texts but seconds: how often guesses come true does
 * not matter.
 *
 * The measured texts continue made-up tokens, at two lengths around those of the plan. Decoders with fixed
 * trees, the same as --drafter and --tree make, take turns, because a shared machine is faster at one moment
 * than at the next. */
#pragma once
#include "src/lab/throughput.h"
#include "src/request/options.h"

/* Measures the drafters of `kinds`, a bit each, of a model without recurrent states. Drafters without weights
 * in the model, and those that the model does not support, are left out (most is 0). The lengths are half of
 * `shortest` and one and a half of `longest`, at least 256 tokens, and at most 12,288 or what the model's
 * context allows. Progress goes to standard error. */
int rounds_measure(struct measured_rounds *m, const struct options *o, unsigned kinds, size_t shortest,
                   size_t longest, struct err *e);
