/* The fingerprint of a model: SHA-256 over all that decides what it writes, so that a job never goes on with another model.
 *
 *     "longhand model 1", then for config.json, generation_config.json and tokenizer.json: name, size and SHA-256 (size 0 and
 *     zeros where a file is missing), then for every tensor by name: name, type, shape and the SHA-256 of each MiB of its data
 *
 * Each item ends with a NUL or has a fixed size (64 bit, little-endian), so no two models share a sequence. Threads of the pool hash
 * the pieces; the value does not depend on their number. */
#pragma once
#include "kernels/pool.h"
#include "src/base/base.h"

enum { FINGERPRINT_BYTES = 65 };         /* 64 hexadecimal digits and a NUL */

/* Called with the bytes done; false stops. */
typedef bool fingerprint_progress(void *ctx, size_t done, size_t of);
/* Whether a file of this name in a model's folder is read with the model: shards by the names that transformers gives them. */
bool model_uses_file(const char *name);
/* Of names, sizes, times and places on the disk of those files in a folder, or of one file: another number when one of them was written anew or the folder is
 * another one. For who holds a model, or heads, and wants to know whether they are still the ones that are there. */
uint64_t model_stamp(const char *place);

/* Of the model in `dir`. 1 when `progress` (may be NULL) stopped it. */
int model_fingerprint(char out[FINGERPRINT_BYTES], const char *dir, struct pool *pool,
                      fingerprint_progress *progress, void *ctx, struct err *e);
