/* Gumiho's drafter (arXiv:2503.10135) as a module of the trainer: a serial transformer of two layers for the
 * first two tokens of a draft, and five heads that guess the next five at once.
 *
 * h_p: the hidden state of the model at position p, after the final norm. Token p + 1 follows from it.
 *     o_p = FC [e(token p + 1); h_p]              e: the model's embedding; row p of the serial part
 *     ĥ_{p+1} = Transformer(o_0 .. o_p)           causal; layer 0 has no norm before its attention, and no
 *                                                 norm follows layer 1
 *     z_p = FC [e(token p + 2); ĥ_{p+1}]
 *     ĥ_{p+3+i} = MLP_i [z_p; z_{p+1}], i = 0..4  one linear map with SiLU, then five that add
 *                                                 SiLU(linear(x)) to x
 *     logits of token q + 1 = LMHead(ĥ_q)
 * Embedding, LM head and model are frozen. In a draft, the second token comes from a second serial pass over
 * z_p; in training its hidden state is the first pass of position p + 1, as in the published code.
 *
 * Loss: R_q = mean over hidden of SmoothL1(ĥ_q - h_q) and C_q = cross-entropy of softmax(LMHead(ĥ_q)) against
 * softmax(LMHead(h_q)), each the mean over positions:
 *     R + 0.1 C of the serial part + sum over i of 0.8^{i+1} / 9 (R_i + lambda C_i)
 * Two stages: lambda is 0 in the first tenth of the steps (2 epochs of 20), then 0.1. The inputs h_p get
 * uniform noise of (U(0, 1) - 0.5) 0.2 * 512 / n.
 *
 * Output 0 of the module is the serial part, output 1 + i is MLP_i, with its R + lambda C as loss; that of
 * held-out text has lambda 0.1 in both stages.
 *
 * The published training script also has weight decay 0, betas 0.9 and 0.95 and a linear schedule; here the
 * trainer's optimiser decides. Positions move at random as for LongSpec (train_settings, skip_max). On the
 * CPU only. */
#pragma once
#include "src/model/gumiho.h"
#include "src/train/train.h"
#include "src/train/train_heads.h"

enum { GUMIHO_OUTPUTS = 1 + GUMIHO_HEADS };

/* Open u->self for windows of at most `window` tokens; the caller has set u->name and u->out. `back` is
 * borrowed. train_gumiho_close closes u->self. */
int  train_gumiho_open(struct module *u, const struct model *m, const struct lm_back *back, size_t window,
                       uint64_t seed, struct err *e);
void train_gumiho_close(struct module *u);
/* Memory of a module without the LM head and the host's weights and moments. */
size_t train_gumiho_bytes(const struct model *m, size_t window);
size_t train_gumiho_params(const struct model *m);
