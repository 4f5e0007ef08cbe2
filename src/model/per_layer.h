/* Embeddings of each layer (Gemma 4 E2B and E4B). Layer N has for a row with token t, whose scaled embedding
 * is x0,
 *
 *     e = (norm(W x0 / sqrt(hidden))[N] + sqrt(width) P[t][N]) / sqrt(2)          [width]
 *
 * and adds norm(W_out (gelu(W_gate x) * e)) to its residual x, after its feed-forward part. W has [n_layers *
 * width, hidden], its norm [width] is that of each layer's part. The table P [per_layer_vocab, n_layers *
 * width] has more bytes than all other weights, and a row of the pass reads one row of it: P stays in its
 * file, which is read in every pass and stays open. A file that shrinks or is written to fails the pass. */
#pragma once
#include "src/model/model.h"

/* Bytes of `work`, from the configuration alone; 0: the model has no such embeddings. */
size_t per_layer_bytes(const struct config *c);
/* e [n][n_layers * width]: on entry the products W x0 of n rows, then the embeddings. work: per_layer_bytes.
 * The host's memory. */
int per_layer_embed(const struct model *m, const int32_t *token, size_t n, float *e, char *work,
                    struct err *err);
