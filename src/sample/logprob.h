/* Log-probabilities of tokens: the model's own, of raw logits, before penalties, temperature and filters.
 *
 * A row of logits gives the log-probability of its token and the n likeliest tokens. Rule R1 makes the logits
 * of a position equal however the text was written, so these values are equal with and without drafting. */
#pragma once
#include "src/base/base.h"

enum { LOGPROBS_BEST_MAX = 20 };
struct logprob { int32_t id; float value; };         /* natural logarithm; id -1: not known */

/* log(sum of exp(x)), in double, ids ascending. */
double log_sum_exp(const float *logits, size_t vocab);
/* out[0]: the token; out[1 .. n]: the n likeliest tokens, best first, the lowest id first of equal ones.
 * n <= LOGPROBS_BEST_MAX and n <= vocab (asserted). */
void logprobs_of_row(struct logprob *out, size_t n, const float *logits, size_t vocab, int32_t token);
