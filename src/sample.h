/* Logits -> one token: the chain of logit bias and bans, penalties, temperature and filters, then the
 * coin of R2. A pure function of (parameters, logits, tokens before): no generator state exists.
 *
 * The token at a position is the argmax over the kept candidates of adjusted logit + Gumbel noise, the
 * noise keyed by (seed, sample number, absolute position, token id). Temperature 0: argmax, lowest id on ties.
 *
 * Filters run in the recorded order; each sees the renormalised survivors of the one before, ordered by
 * (logit descending, id ascending) with sequential prefix sums; at least min_keep tokens survive each. */
#pragma once
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "src/base.h"

enum chain_step { STEP_BIAS, STEP_PENALTIES, STEP_DRY, STEP_TEMPERATURE, STEP_TOP_K, STEP_TOP_P, STEP_MIN_P, STEP_ETA, CHAIN_STEPS };

struct sampling {                    /* every parameter; recorded with a job */
    uint64_t seed; uint32_t sample;
    double temperature;              /* 0: greedy */
    long top_k;                      /* <= 0: off */
    double top_p, min_p, eta;        /* 1, 0, 0: off */
    size_t min_keep;                 /* >= 1 */
    double penalty; long penalty_window;     /* contextual penalty theta (1: off) over the last W tokens of prompt and text; 0 none, -1 all */
    double presence, frequency;              /* over the generated text */
    struct { int32_t id; float bias; } *bias; size_t n_bias;   /* -inf bans */
    size_t min_tokens; bool ignore_eos;      /* EOS ids banned until then; always */
    const int32_t *eos; size_t n_eos;
    enum chain_step order[CHAIN_STEPS]; size_t n_order;
};

void sampling_defaults(struct sampling *s);                  /* neutral: temperature 1, filters off, default order */
int  sampling_check(const struct sampling *s, size_t vocab, struct err *e);   /* ranges, as flags name them */

/* The tokens before the position that is sampled: tokens[0..n), then path[0..n_path) (a tree node's own
 * ancestors, itself included). The first n_prompt of tokens are the prompt. Position = n + n_path. */
struct history { const int32_t *tokens; size_t n, n_prompt; const int32_t *path; size_t n_path; };

struct sampler;                      /* of one decoder: tables derived from the tokens, work space for one row */
size_t sampler_bytes(size_t vocab);
int  sampler_open(struct sampler **s, const struct sampling *p, size_t vocab, const struct ops *ops, struct pool *pool, struct err *e);
void sampler_close(struct sampler *s);

/* The token at the position behind `h`. logits[vocab] are overwritten. Tables follow the history by themselves
 * (cheap when it grows; any other history is taken from scratch). */
int32_t sampler_choose(struct sampler *s, float *logits, const struct history *h);

/* The coin: 64 random bits for (seed, sample, position, id), and the Gumbel noise -log(-log(u)) made of them. */
uint64_t coin_word(uint64_t seed, uint32_t sample, uint64_t position, uint32_t id);
double   coin_gumbel(uint64_t word);
