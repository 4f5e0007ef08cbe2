/* Logits -> one token: the chain of logit bias and bans, penalties, temperature and filters, then the
 * coin of R2. A pure function of (parameters, logits, tokens before): no generator state exists.
 *
 * The token at a position is the argmax over the kept candidates of adjusted logit + Gumbel noise, the
 * noise keyed by (seed, sample number, absolute position, token id). Temperature 0: argmax, lowest id on ties.
 *
 * Filters run in the recorded order; each sees the renormalised survivors of the one before, ordered by
 * (logit descending, id ascending); at least min_keep tokens survive each. Probabilities are summed as whole
 * numbers of 2^-43 of the largest one, so that a prefix sum is the same in any order (kernels/ops.h).
 *   top-k   the first k
 *   top-p   the shortest prefix whose probabilities sum up to p or more
 *   min-p   p >= min_p * the largest p
 *   eta     p >= min(eta, sqrt(eta) * exp(-entropy)), as Hugging Face transformers
 * Logits that a step changes are rounded to float once and stay within +-FLT_MAX:
 *   bias         l + bias; -inf bans. EOS ids are banned as min_tokens and ignore_eos say
 *   penalties    once per distinct token of the window: l < 0 ? l * penalty : l / penalty; then
 *                l - (presence + frequency * count) for the tokens of the generated text
 *   dry          l - multiplier * base^(L - allowed) for every token that would continue a repetition of L >= allowed tokens (src/sample/dry.h)
 *   temperature  l / (float)temperature
 * A step that follows a filter changes the survivors only.
 * At temperature 0 filters are skipped, as they never remove the best; bias, penalties and DRY are not.
 *
 * Logits may be -inf (probability 0: never kept by a filter, never chosen), never NaN or +inf: the forward pass
 * checks that. When no candidate is left, the lowest id that no parameter bans is chosen. */
#pragma once
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "src/base/base.h"

enum chain_step { STEP_BIAS, STEP_PENALTIES, STEP_DRY, STEP_TEMPERATURE, STEP_TOP_K, STEP_TOP_P, STEP_MIN_P,
                  STEP_ETA, CHAIN_STEPS };

/* Tokens that end a repetition for DRY, one after the other: one, or the first and what must follow it. */
enum { DRY_BREAKER_MAX = 21 };
struct dry_breaker { uint32_t n; int32_t ids[DRY_BREAKER_MAX]; };

struct sampling {                    /* every parameter; recorded with a job */
    uint64_t seed; uint32_t sample;
    double temperature;              /* 0: greedy */
    long top_k;                      /* <= 0: off */
    double top_p, min_p, eta;        /* 1, 0, 0: off */
    size_t min_keep;                 /* >= 1 */
    double penalty; long penalty_window;     /* contextual penalty theta (1: off) over the last W tokens of prompt and text; 0 none, -1 all */
    double presence, frequency;              /* over the generated text */
    struct { int32_t id; float bias; } *bias; size_t n_bias;   /* -inf bans */
    double dry_multiplier, dry_base;         /* multiplier 0: DRY is off */
    size_t dry_allowed; long dry_last_n;     /* over the last N tokens of prompt and text; 0 none, -1 all */
    const struct dry_breaker *dry_breakers; size_t n_dry_breakers;      /* ascending by first token */
    size_t text_max;                 /* tokens of the longest text, prompt included: what DRY's index is made for; 0 will do without DRY */
    size_t min_tokens; bool ignore_eos;      /* EOS ids banned until then; always */
    const int32_t *eos; size_t n_eos;
    enum chain_step order[CHAIN_STEPS]; size_t n_order;
};

/* neutral: temperature 1, filters off, min_keep 1, window 1024, DRY off (base 1.75, allowed 2, all, no
 * breakers), default order */
void sampling_defaults(struct sampling *s);
int  sampling_check(const struct sampling *s, size_t vocab, struct err *e);   /* ranges, as flags name them */

/* The tokens before the position that is sampled: tokens[0..n), then path[0..n_path) (a tree node's own
 * ancestors, itself included). The first n_prompt of tokens are the prompt. Position = n + n_path. */
struct history {
    const int32_t *tokens; size_t n, n_prompt;
    const int32_t *path; size_t n_path;
    /* the caller promises that tokens[0..known) are those of the last call: then they are not read again */
    size_t known;
};

/* of one decoder: tables derived from the tokens, work space for one row */
struct sampler;
size_t sampler_bytes(size_t vocab);                  /* without what DRY needs: dry_bytes */
/* p is copied, its arrays are borrowed; it has passed sampling_check (asserted). pool may be NULL. */
int sampler_open(struct sampler **s, const struct sampling *p, size_t vocab, const struct ops *ops,
                 struct pool *pool, struct err *e);
void sampler_close(struct sampler *s);

/* The token at the position behind `h`, whose ids are below vocab. logits[vocab] are overwritten. Tables follow the history by themselves
 * (cheap when it grows; any other history is taken from scratch). */
int32_t sampler_choose(struct sampler *s, float *logits, const struct history *h);

/* A candidate of a draft distribution, ranked as the target will rank it: by adjusted logit + the coin's noise at this position
 * (temperature 0: by adjusted logit). score: that minus the top adjusted logit; differences between candidates are what counts. */
enum { RANK_MAX = 32 };
struct candidate { int32_t id; float score; };

/* The at most k (1..RANK_MAX) best at the position behind `h`, best first (lowest id on ties): only what penalties and filters keep.
 * Returns their number, 0 when nothing is left; the first is what sampler_choose returns for the same logits. Ranks follow
 * the scores in double (temperature 0: the logits), of which struct candidate has the rounded ones. logits[vocab] are overwritten. */
size_t sampler_rank(struct sampler *s, float *logits, const struct history *h, size_t k,
                    struct candidate *out);

/* Whether the chain never gives `id` at the position behind `h`, whatever the logits are: banned by a bias, or an EOS id that is banned there. */
bool sampler_bans(const struct sampler *s, int32_t id, const struct history *h);

/* For --verifier paper alone, which draws again for every candidate row: the coins of row r < ROWS_MAX are those of position
 * p + r * 2^40, where no text ever is, so rows are independent of each other; row 0 is sampler_choose. Temperature 0: no coins, all rows equal. */
enum { ROWS_MAX = 1 << 24 };
int32_t sampler_choose_row(struct sampler *s, float *logits, const struct history *h, uint32_t row);
/* And a number below n >= 1 for it, from a coin of that position and row that no token has. */
size_t sampler_pick(const struct sampler *s, const struct history *h, uint32_t row, size_t n);

/* The coin: 64 random bits for (seed, sample, position, id), and the Gumbel noise -log(-log(u)) made of them. */
uint64_t coin_word(uint64_t seed, uint32_t sample, uint64_t position, uint32_t id);
double   coin_gumbel(uint64_t word);
