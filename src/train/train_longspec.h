/* LongSpec's drafter (Yang et al., arXiv:2502.17421) as a module of the trainer: one decoder layer that reads
 * the model's own cache.
 *
 *     x1 = e + SelfAttention(RMSNorm(e))          e: the model's embedding of the token; keys: its own and
 *                                                 the 512 before it
 *     x2 = x1 + CrossAttention(RMSNorm(x1))       keys and values: the model's last layer, from its cache
 *     x3 = x2 + SwiGLU(RMSNorm(x2))
 *     logits of the next token = LMHead(x3)       without a final norm
 *
 * Embedding, LM head and model are frozen. q, k and v have biases.
 *
 * Flash noisy training: the drafter of a round sees the model's cache up to the last committed token, 1 to 5
 * tokens before its own (the offset). A window draws its offset j from 1..5; the query of token t sees keys 0
 * .. t - j. Output k of the module is the drafter with offset k + 1. The paper draws from 1..4 although its
 * tree has five draft passes.
 *
 * Anchor-offset positions: of a window of at most 1,200 tokens, the first 0 to 4 tokens keep their positions
 * and the others are moved by a random distance, so that short texts train all positions. The trainer moves
 * the model's own pass, too (struct train_settings, skip_max).
 *
 * Matrices begin as N(0, 0.02), except those that write to the residual, which begin as N(0, 0.02/sqrt(6)).
 * On the CPU only. */
#pragma once
#include "src/model/longspec.h"
#include "src/train/train.h"
#include "src/train/train_heads.h"

enum { LONGSPEC_OFFSETS = 5 };
_Static_assert((int)LONGSPEC_OFFSETS <= (int)TRAIN_OUTPUTS_MAX, "one output for each offset");

/* Open u->self for windows of at most `window` tokens; the caller has set u->name and u->out. `back` is
 * borrowed. train_longspec_close closes u->self. */
int  train_longspec_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                         uint64_t seed, struct err *e);
void train_longspec_close(struct module *u);
/* Memory of a module without the LM head and the host's weights and moments. */
size_t train_longspec_bytes(const struct model *m, size_t window);
size_t train_longspec_params(const struct model *m);
