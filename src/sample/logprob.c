/* Log-probabilities of a row of logits. Start at logprobs_of_row. */
#include "src/sample/logprob.h"

#include <math.h>

double log_sum_exp(const float *x, size_t vocab)
{
    float max = x[0];
    double sum = 0;
    for (size_t k = 1; k < vocab; k++)
        max = x[k] > max ? x[k] : max;
    for (size_t k = 0; k < vocab; k++)
        sum += exp((double)x[k] - max);
    return log(sum) + max;
}

void logprobs_of_row(struct logprob *out, size_t n, const float *logits, size_t vocab, int32_t token)
{
    struct logprob *best = out + 1;      /* values are logits at first */
    size_t have = 0;
    assert(n <= LOGPROBS_BEST_MAX && n <= vocab);
    const double sum = log_sum_exp(logits, vocab);
    for (size_t k = 0; k < vocab && n; k++) {
        if (have == n && logits[k] <= best[n - 1].value)
            continue;
        size_t i = have < n ? have++ : n - 1;
        for (; i && best[i - 1].value < logits[k]; i--)
            best[i] = best[i - 1];
        best[i] = (struct logprob){ (int32_t)k, logits[k] };
    }
    for (size_t i = 0; i < n; i++)
        best[i].value = (float)(best[i].value - sum);
    out[0] = (struct logprob){ token, (float)(logits[token] - sum) };
}
