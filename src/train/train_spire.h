/* SPIRe's drafter (arXiv:2504.06419) as a module of the trainer: the last two blocks of the model, which read
 * a few keys and values only.
 *
 *     x^0 = the model's embedding of the token
 *     x^i = block i of x^{i-1}, i = 1, 2; the query of position t sees its own key and those of the 64
 *           positions before it and of position 0; keys have the positions of the text
 *     logits of the next token = LMHead(RMSNorm(x^2))
 *
 * The key and value of an earlier position s in block i are projections of a memory vector m_s^i, through the
 * block's own norm, keys and values; those of t itself are projections of x^{i-1}:
 *     s committed: m_s^i = the residual that enters the model's layer n_layers - 3 + i
 *     s drafted:   m_s^i = sum over l = 0, 1, 2 of softmax(w_i)_l x_s^l            (w: 6 parameters)
 *
 * All prefixes in four passes: positions 4 g .. 4 g + 3 are the tokens of one round, whose first token is the
 * last verified one. Pass j runs position 4 g + j for all g at once. It sees committed memories before 4 g,
 * and drafted memories of passes before j. Output j of the module is pass j. A position has its text's tokens
 * before it. Gradients pass through drafted memories; the model's residuals are constants.
 *
 * Loss of a position, for the distributions p of the model and q of the drafter:
 *     omega (-sum p log q) - (1 - omega) sum min(p, q),   omega = 0.5
 *
 * First weights are the model's (pruning), w = 0. Embedding and LM head are the model's and stay frozen; the
 * paper trains copies of them, which are half of a small drafter's file. The paper leaves open how a query
 * sees its own position and whether memories pass the block's norm; the above is as the model itself does.
 * Positions move at random as for LongSpec (train_settings, skip_max), because position 0 is far from a query
 * of a long text. On the CPU only. */
#pragma once
#include "src/model/spire.h"
#include "src/train/train.h"
#include "src/train/train_heads.h"

/* The paper's ablations. SPIRE_NO_ACTIVATIONS is without feedback memories, too: keys and values of all
 * positions come from the drafter's own x^{i-1}, and a window is one pass. */
enum spire_ablation {
    SPIRE_WHOLE, SPIRE_RANDOM,           /* random first weights */
    SPIRE_DISTILL, SPIRE_HARD,           /* omega 1; cross-entropy of the text's token */
    SPIRE_NO_FEEDBACK, SPIRE_NO_ACTIVATIONS,
};

/* Open u->self for windows of at most `window` tokens; the caller has set u->name and u->out. `back` is
 * borrowed. ERR_INPUT: the model has less than two layers, or parts that the blocks do not have.
 * train_spire_close closes u->self. */
int  train_spire_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                      enum spire_ablation ablation, uint64_t seed, struct err *e);
void train_spire_close(struct module *u);
/* Memory of a module without the LM head and the host's weights and moments. */
size_t train_spire_bytes(const struct model *m, size_t window);
size_t train_spire_params(const struct model *m);
