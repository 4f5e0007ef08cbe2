/* The sampler: logits -> one token. The sampling chain (src/sample/sampling.h) adjusts and filters the
 * logits, then the coin of rule R2 decides. The token is a pure function of parameters, logits and the
 * tokens before it; no generator state exists.
 *
 * The token at a position is the argmax over the kept candidates of adjusted logit + Gumbel noise. The noise
 * is keyed by (seed, sample number, absolute position, token id). Temperature 0: the argmax of the adjusted
 * logits, lowest id on ties.
 *
 * Probabilities are summed as whole numbers of 2^-43 of the largest one, so a prefix sum has the same value
 * in any order (kernels/ops.h).
 *
 * A logit may be -inf (probability 0: no filter keeps it and it is never sampled). A logit is never NaN or
 * +inf: the forward pass checks that. If no candidate is left, the sampler returns the lowest id that no
 * parameter bans. */
#pragma once
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "src/sample/sampling.h"

/* The state of one decoder: tables derived from the tokens, and work space for one row. */
struct sampler;
size_t sampler_bytes(size_t vocab);          /* without DRY's memory (dry_bytes) */
/* p is copied, its arrays are borrowed. p has passed sampling_check (asserted). pool may be NULL. */
int sampler_open(struct sampler **s, const struct sampling *p, size_t vocab, const struct ops *ops,
                 struct pool *pool, struct err *e);
void sampler_close(struct sampler *s);
const struct sampling *sampler_settings(const struct sampler *s);

/* Samples the token after `h`, whose ids are below vocab. Overwrites logits[vocab]. The tables follow the
 * history: a longer history costs its new tokens, any other history is read from its start. */
int32_t sampler_sample(struct sampler *s, float *logits, const struct history *h);

/* Ranks the candidates of a draft distribution as the target model will rank them. Writes the at most k
 * (1..RANK_MAX) best candidates after `h` that penalties and filters keep, best first, lowest id on ties.
 * Returns their number, 0 if no candidate is left. The first is the token that sampler_sample returns for
 * these logits. Ranks follow scores in double (temperature 0: the logits); struct candidate holds rounded
 * scores. Overwrites logits[vocab]. */
size_t sampler_rank(struct sampler *s, float *logits, const struct history *h, size_t k,
                    struct candidate *out);

/* Whether the chain can never return `id` after `h`: a bias bans it, or it is an EOS id that is banned
 * there. */
bool sampler_bans(const struct sampler *s, int32_t id, const struct history *h);

/* For --verifier paper alone, which samples again for every candidate row. Row r < CANDIDATE_ROWS_MAX uses
 * the coins of position p + r * 2^40, which no text reaches, so the rows are independent of each other.
 * Row 0 is sampler_sample. At temperature 0 all rows give the same token. */
int32_t sampler_sample_row(struct sampler *s, float *logits, const struct history *h, uint32_t row);
/* A random number below n >= 1, from a coin of that position and row that belongs to no token. */
size_t sampler_random_below(const struct sampler *s, const struct history *h, uint32_t row, size_t n);
