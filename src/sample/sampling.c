/* Sampling parameters: defaults and the check of their ranges. Start at sampling_check. */
#include "src/sample/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/ops.h"

void sampling_defaults(struct sampling *s)
{
    *s = (struct sampling){ .temperature = 1, .top_p = 1, .min_keep = 1, .penalty = 1, .penalty_window = 1024,
                            .dry_base = 1.75, .dry_allowed = 2, .dry_last_n = -1, .n_order = CHAIN_STEPS };
    for (size_t i = 0; i < CHAIN_STEPS; i++)
        s->order[i] = (enum chain_step)i;
}

static const char *const step_names[CHAIN_STEPS] = {
    "bias", "penalties", "dry", "temperature", "top-k", "top-p", "min-p", "eta",
};

static int check_order(const struct sampling *s, struct err *e)
{
    const bool needed[CHAIN_STEPS] = {
        [STEP_BIAS] = s->n_bias || (s->n_eos && (s->min_tokens || s->ignore_eos)),
        [STEP_PENALTIES] = (s->penalty != 1 && s->penalty_window) || s->presence != 0 || s->frequency != 0,
        [STEP_DRY] = s->dry_multiplier != 0 && s->dry_last_n != 0,
        [STEP_TEMPERATURE] = s->temperature != 1 && s->temperature != 0,
        [STEP_TOP_K] = s->top_k > 0,
        [STEP_TOP_P] = s->top_p < 1,
        [STEP_MIN_P] = s->min_p > 0,
        [STEP_ETA] = s->eta > 0,
    };
    bool seen[CHAIN_STEPS] = {0};
    if (s->n_order > CHAIN_STEPS)
        return err_set(e, ERR_INPUT, "order of the sampling chain: %zu steps, at most %d exist", s->n_order,
                       CHAIN_STEPS);
    for (size_t i = 0; i < s->n_order; i++) {
        unsigned step = s->order[i];
        if (step >= CHAIN_STEPS || seen[step])
            return err_set(e, ERR_INPUT,
                           "order of the sampling chain: step %zu is %s, every step may occur once",
                           i + 1, step >= CHAIN_STEPS ? "unknown" : step_names[step]);
        seen[step] = true;
    }
    for (size_t i = 0; i < CHAIN_STEPS; i++)
        if (needed[i] && !seen[i])
            return err_set(e, ERR_INPUT, "order of the sampling chain: %s is used but is not among the steps",
                           step_names[i]);
    return 0;
}

/* Checks that every id is in range and that at least one id is not banned. */
static int check_ids(const struct sampling *s, size_t vocab, struct err *e)
{
    unsigned char *banned = calloc(vocab, 1);
    size_t n_banned = 0;
    bool eos = s->min_tokens || s->ignore_eos;
    if (!banned)
        return err_set(e, ERR_FAILED, "no memory for %zu token ids", vocab);
    for (size_t i = 0; i < s->n_bias + (eos ? s->n_eos : 0); i++) {
        bool is_bias = i < s->n_bias;
        int32_t id = is_bias ? s->bias[i].id : s->eos[i - s->n_bias];
        if (id < 0 || (size_t)id >= vocab) {
            free(banned);
            return err_set(e, ERR_INPUT, "%s: token id %d is not in the vocabulary, allowed are 0 to %zu",
                           is_bias ? "--logit-bias" : "end-of-text ids", (int)id, vocab - 1);
        }
        float bias = is_bias ? s->bias[i].bias : -INFINITY;
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
    static_assert(DRY_ALLOWED_MAX == 65536, "a message says so");
    const double t = s->temperature;
    const struct { const char *flag; double x; bool ok; const char *allowed; } check[] = {
        { "temperature", t, t == 0 || (t >= 1e-4 && t <= 1e4), "0 (greedy) or 0.0001 to 10000" },
        { "top-p", s->top_p, s->top_p > 0 && s->top_p <= 1, "above 0 and at most 1 (off)" },
        { "min-p", s->min_p, s->min_p >= 0 && s->min_p <= 1, "0 (off) to 1" },
        { "eta", s->eta, s->eta >= 0 && s->eta < 1, "at least 0 (off) and below 1" },
        { "min-keep", (double)s->min_keep, s->min_keep >= 1, "at least 1" },
        { "penalty", s->penalty, s->penalty >= 0.01 && s->penalty <= 100, "0.01 to 100, 1 is off" },
        { "penalty-window", (double)s->penalty_window, s->penalty_window >= -1,
          "-1 (all), 0 (none) or a number of tokens" },
        { "presence-penalty", s->presence, fabs(s->presence) <= 100, "-100 to 100" },
        { "frequency-penalty", s->frequency, fabs(s->frequency) <= 100, "-100 to 100" },
        { "dry-multiplier", s->dry_multiplier, s->dry_multiplier >= 0 && s->dry_multiplier <= 1000,
          "0 (off) to 1000" },
        { "dry-base", s->dry_base, s->dry_base >= 1 && s->dry_base <= 100, "1 to 100" },
        { "dry-allowed-length", (double)s->dry_allowed,
          s->dry_allowed >= 1 && s->dry_allowed <= DRY_ALLOWED_MAX, "1 to 65536" },
        { "dry-penalty-last-n", (double)s->dry_last_n, s->dry_last_n >= -1,
          "-1 (all), 0 (none) or a number of tokens" },
    };
    for (size_t i = 0; i < sizeof check / sizeof *check; i++)
        if (!check[i].ok)
            return err_set(e, ERR_INPUT, "--%s %.15g: must be %s", check[i].flag, check[i].x,
                           check[i].allowed);
    return check_breakers(s, vocab, e) || check_order(s, e) || check_ids(s, vocab, e) ? -1 : 0;
}

bool sampling_has_penalty(const struct sampling *s) { return s->penalty != 1 && s->penalty_window != 0; }

bool sampling_has_text_penalty(const struct sampling *s) { return s->presence != 0 || s->frequency != 0; }
