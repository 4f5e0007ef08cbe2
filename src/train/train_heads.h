/* Drafting heads (src/model/heads.h) as a module of the trainer. Output k predicts the token at t + 2 + k,
 * as the heads of TokenSwift do (arXiv:2502.18890). The model and its LM head are frozen. First weights
 * are W ~ N(0, 0.02) and gains 1, or existing heads.
 *
 * On the CPU, --compute sets the type of the operands of products. Sums, weights, gradients and moments
 * are floats. The file has matrices in BF16 and gains in F32.
 *
 * If the model is on a GPU, real or emulated, weights, gradients, moments and activations are there, too,
 * and products have bf16 operands. Opening fails with ERR_INPUT without cuBLAS. Gradients equal those of
 * the CPU up to rounding. Heads only propose drafts, so their rounding never changes a text. */
#pragma once
#include "src/model/heads.h"
#include "src/train/train.h"

/* The LM head for gradients, shared by modules. On the host it is packed transposed. On a GPU it is
 * row-major bf16 and serves both directions. */
struct lm_back { struct mat mat; size_t bytes; struct device *dev; };      /* dev NULL: host memory */
/* After a failure lm_back_close is allowed, and needed. */
int  lm_back_open(struct lm_back *b, const struct model *m, struct err *e);
void lm_back_close(struct lm_back *b);

/* Where the time of all windows went. */
enum { HEADS_FORWARD, HEADS_LM, HEADS_LOSS, HEADS_LM_BACK, HEADS_BACK, HEADS_TIMES };

/* Open u->self; the caller has set u->name and u->out. The LM head `back` is borrowed, and so is `first`:
 * heads of the same kind and number to start from, or NULL. train_heads_close closes u->self. */
int train_heads_open(struct module *u, const struct model *m, const struct lm_back *back, size_t n,
                     bool chained, uint64_t seed, const struct heads *first, struct err *e);
void train_heads_close(struct module *u);
const double *train_heads_seconds(const struct module *u);      /* [HEADS_TIMES], seconds */
/* Memory of a module without the LM head and the host's weights and moments. It is on the model's device. */
size_t train_heads_bytes(const struct model *m, size_t n);
