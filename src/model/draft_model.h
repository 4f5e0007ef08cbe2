/* A model that drafts for another one, on its device and with its arithmetic: the draft layer of its files
 * (mtp.h), a drafter of its states (assistant.h), or a smaller model. */
#pragma once
#include "src/model/model.h"

struct draft_model {                     /* {0} is closed */
    struct model own, int8;              /* int8: for drafts, or closed */
    struct workspace *work; size_t n_max;    /* for caches of n_max positions; NULL: 0 */
    float *rows; size_t row_bytes;       /* the host's, for results of passes */
};

/* Reads weights from `dir` and makes `rows`. m: the model that it drafts for. After a failure t is closed. */
int  draft_model_open(struct draft_model *t, const char *dir, const struct config *c, enum weights weights,
                      size_t row_bytes, const struct model *m, struct err *e);
/* int8: the matrices get an 8-bit copy, if they are not quantised. */
int  draft_model_quantize(struct draft_model *t, bool int8, struct err *e);
/* A workspace for n_max positions, unless there is one. */
int  draft_model_reserve(struct draft_model *t, size_t rows_max, size_t n_max, struct err *e);
void draft_model_close(struct draft_model *t);
/* What these take for weights of weight_bytes; n_max 0: without a workspace. */
size_t draft_model_bytes(const struct config *c, size_t weight_bytes, size_t row_bytes, const struct model *m,
                         bool int8, size_t rows_max, size_t n_max);
/* The model that draft passes ask. */
static inline const struct model *draft_model_of(const struct draft_model *t)
{
    return t->int8.mem ? &t->int8 : &t->own;
}
/* The hidden state of a row of m, [hidden], from its residual before the final norm. */
void draft_model_state(const struct model *m, float *state, const float *residual);
