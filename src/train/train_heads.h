/* Drafting heads (src/model/heads.h) as a module of the trainer. Output k predicts the token at t + 2 + k; the model and its LM head
 * are frozen. W ~ N(0, 0.02), gains 1, or those of heads that are there already. Products have operands as --compute says and are accumulated in float; weights,
 * gradients and moments are floats; matrices are saved as BF16, gains as F32.
 *
 * Where the model is on a GPU (or the emulated one) so are weights, gradients, moments and activations; products have bf16 operands there. Opening
 * fails (ERR_INPUT) where there is no cuBLAS. Gradients equal those of the CPU up to rounding, texts are not touched by that. */
#pragma once
#include "src/model/heads.h"
#include "src/train/train.h"

/* The LM head for gradients, shared by modules: packed the other way round; on a GPU row-major bf16, for both ways. */
struct lm_back { struct mat mat; size_t bytes; struct device *dev; };      /* dev: whose memory; NULL: the host's */
int  lm_back_open(struct lm_back *b, const struct model *m, struct err *e);
void lm_back_close(struct lm_back *b);

/* Where the time of all windows went, in seconds. */
enum { HEADS_FORWARD, HEADS_LM, HEADS_LOSS, HEADS_LM_BACK, HEADS_BACK, HEADS_TIMES };

/* u->name and u->out are set by the caller. The LM head is borrowed, and so is `first`: heads of this kind and number to begin with, or
 * NULL. u->self is closed by train_heads_close. */
int train_heads_open(struct module *u, const struct model *m, const struct lm_back *back, size_t n,
                     bool chained, uint64_t seed, const struct heads *first, struct err *e);
void train_heads_close(struct module *u);
const double *train_heads_seconds(const struct module *u);      /* [HEADS_TIMES] */
/* Memory of a module besides the host's weights and moments, and of the LM head: the device's, where the model is on one. */
size_t train_heads_bytes(const struct model *m, size_t n);
