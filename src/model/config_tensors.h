/* Whether the tensors of a model are those its configuration calls for, before any weight is read. */
#pragma once
#include "src/model/config.h"
#include "src/model/safetensors.h"

/* Every tensor is there with its shape and a weight type; there are as many layers as num_hidden_layers says (more
 * are ignored, as in transformers); tie_word_embeddings agrees with lm_head.weight (a copy of the embedding may be
 * there: bytes are compared where the files are open); and a cache of the whole context has a size at all. */
int config_check_tensors(const struct config *c, const struct tensors *ts, struct err *e);

/* Number of parameters, tied ones counted once. */
size_t config_count_params(const struct config *c);

/* Bytes of keys and values for n positions with elements of `element` bytes; false when they exceed size_t. */
bool config_kv_bytes(const struct config *c, size_t n, size_t element, size_t *bytes);

/* Every tensor that the configuration calls for and the files lack, by name (valid during the call). */
void config_missing_tensors(const struct config *c, const struct tensors *ts,
                            void (*missing)(void *ctx, const char *name), void *ctx);
