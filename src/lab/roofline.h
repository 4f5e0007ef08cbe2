/* The bytes that a pass reads and the operations that it computes, for the rooflines of bench. */
#pragma once
#include "src/model/model.h"

/* bytes: packed weights once, visible keys and values once. flops: 2 per multiply-add of products and
 * attention; int16: the part of flops that is done in int16. exps, maxes: elements of softmax and
 * activations, in whole blocks of 64. converts: elements that become bf16. */
struct work { double bytes, flops, int16, exps, maxes, converts; };

/* A matrix that a row multiplies with. */
struct work_matrix { const struct mat *m; bool expert; };
struct work_read { struct work_matrix *v; size_t n; };

/* Lists the matrices of all layers, and the LM head last; free(r->v). Of a mixture: as many experts as a row
 * has, far from each other. */
int work_matrices(struct work_read *r, const struct model *m, struct err *e);
/* The first position that a row at `pos` sees in this layer. */
size_t work_first_seen(const struct config *c, size_t layer, size_t pos);
/* Adds a product of `rows` rows. The bytes of experts, which rows may share, are not added. */
void work_add_product(struct work *w, const struct work_matrix *x, size_t rows);
/* Adds all layers of a pass of `rows` rows: rows / texts rows of each text, after `depth` cached ones. */
void work_add_layers(struct work *w, const struct model *m, const struct work_read *read, size_t depth,
                     size_t rows, size_t texts);
