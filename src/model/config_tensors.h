/* The tensors that a configuration needs, checked before any weight is read. */
#pragma once
#include "src/model/config.h"
#include "src/model/model_files.h"

/* Checks four things:
 *   - Every tensor exists, with its shape and a weight type.
 *   - There are num_hidden_layers layers. More layers are ignored, as in transformers.
 *   - tie_word_embeddings agrees with lm_head.weight. A copy of the embedding is accepted; its bytes are
 *     compared if the files are open.
 *   - The size of a cache for the whole context can be represented. */
int config_check_tensors(const struct config *c, const struct tensors *ts, struct err *e);

/* Number of parameters, and of those that one token uses: of the experts of a layer, experts_used. Tied ones
 * count once. */
size_t config_count_params(const struct config *c);
size_t config_count_used(const struct config *c);

/* Bytes of keys and values for n positions with elements of `element` bytes; false if they exceed size_t. */
bool config_kv_bytes(const struct config *c, size_t n, size_t element, size_t *bytes);

/* After that check: calls `unread` for every tensor of the files that the configuration does not need, with
 * its name in the files. Draft layers of a hybrid are needed. */
void config_unread_tensors(const struct config *c, const struct tensors *ts,
                           void (*unread)(void *ctx, const char *name), void *ctx);

/* Calls `missing` for every tensor that the configuration needs and the files lack. The name is valid
 * during the call. */
void config_missing_tensors(const struct config *c, const struct tensors *ts,
                            void (*missing)(void *ctx, const char *name), void *ctx);
