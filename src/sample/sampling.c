/* Sampling parameters: defaults and checks. Start at sampling_check. */
#include "src/sample/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/ops.h"

void sampling_defaults(struct sampling *s)
{
    *s = (struct sampling){ .temperature = 1, .top_p = 1, .typical = 1, .xtc_threshold = 0.1, .min_keep = 1,
                            .thought_budget = -1,
                            .penalty = 1, .penalty_window = 1024,
                            .dry_base = 1.75, .dry_allowed = 2, .dry_last_n = -1 };
}

/* Checks that every id is in range and that at least one id is not banned. */
static int check_ids(const struct sampling *s, size_t vocab, struct err *e)
{
    unsigned char *banned = calloc(vocab, 1);
    size_t n_banned = 0;
    const size_t ends = s->min_tokens ? s->n_eos + s->n_stop : s->ignore_eos ? s->n_eos : 0;
    if (!banned)
        return err_set(e, ERR_FAILED, "no memory for %zu token ids", vocab);
    for (size_t i = 0; i < s->n_bias + ends; i++) {
        bool is_bias = i < s->n_bias;
        int32_t id = is_bias ? s->bias[i].id : s->eos[i - s->n_bias];
        if (id < 0 || (size_t)id >= vocab) {
            free(banned);
            return err_set(e, ERR_INPUT, "%s: token id %d is not in the vocabulary, allowed are 0 to %zu",
                           is_bias ? "--logit-bias" : "ids that end a text", (int)id, vocab - 1);
        }
        double bias = is_bias ? s->bias[i].bias : -INFINITY;
        if (isnan(bias) || bias > FLT_MAX) {
            free(banned);
            return err_set(e, ERR_INPUT,
                           "--logit-bias: %g for token id %d, allowed are finite numbers and -inf",
                           (double)bias, (int)id);
        }
        n_banned += isinf(bias) && !banned[id];
        banned[id] |= isinf(bias);
    }
    free(banned);
    if (n_banned == vocab)
        return err_set(e, ERR_INPUT, "--logit-bias: all %zu token ids are banned, at least one must be left",
                       vocab);
    return 0;
}

static int check_breakers(const struct sampling *s, size_t vocab, struct err *e)
{
    for (size_t i = 0; i < s->n_dry_breakers; i++) {
        const struct dry_breaker *b = &s->dry_breakers[i];
        if (b->n < 1 || b->n > DRY_BREAKER_MAX)
            return err_set(e, ERR_INPUT,
                           "--dry-sequence-breaker: a breaker of %u tokens, allowed are 1 to %d",
                           (unsigned)b->n, DRY_BREAKER_MAX);
        for (uint32_t j = 0; j < b->n; j++)
            if (b->ids[j] < 0 || (size_t)b->ids[j] >= vocab)
                return err_set(e, ERR_INPUT,
                    "--dry-sequence-breaker: token id %d is not in the vocabulary, allowed are 0 to %zu",
                    (int)b->ids[j], vocab - 1);
        if (i && b[-1].ids[0] > b->ids[0])
            return err_set(e, ERR_INPUT,
                           "--dry-sequence-breaker: breaker %zu begins with token %d and follows one with "
                           "%d; they must ascend", i, (int)b->ids[0], (int)b[-1].ids[0]);
    }
    return 0;
}

int sampling_check(const struct sampling *s, size_t vocab, struct err *e)
{
    if (vocab < 1 || vocab > SELECT_MAX)
        return err_set(e, ERR_INPUT, "vocabulary of %zu tokens, allowed are 1 to %d", vocab, SELECT_MAX);
    return check_breakers(s, vocab, e) || check_ids(s, vocab, e) ? -1 : 0;
}

bool sampling_has_penalty(const struct sampling *s) { return s->penalty != 1 && s->penalty_window != 0; }

bool sampling_has_text_penalty(const struct sampling *s) { return s->presence != 0 || s->frequency != 0; }
