/* The fingerprint of a model: SHA-256 over everything that decides its text. A job never continues with
 * another model.
 *
 * The hash covers, in this order:
 *   - the string "longhand model 1";
 *   - for config.json, generation_config.json and tokenizer.json: name, size and SHA-256 (size 0 and zeros if
 *     the file is missing);
 *     For a GGUF model: "longhand gguf 1", and size and SHA-256 of each file's header instead;
 *   - for every tensor by name: name, type, shape, and the SHA-256 of each MiB of its data;
 *   - for weights that are encoded while they are read (--weights): "weights q8_0" or "weights q4_0".
 *
 * Each item ends with a NUL or has a fixed size (64 bit, little-endian), so no two models give one
 * sequence of bytes. The threads of the pool hash the pieces; the value does not depend on their number. */
#pragma once
#include "src/base/base.h"
#include "src/model/reading.h"

enum { FINGERPRINT_BYTES = 65 };         /* 64 hexadecimal digits and a NUL */

/* Whether a file of this name in a model's folder is read with the model. Shards have the names that
 * transformers gives them. */
bool model_uses_file(const char *name);
/* A number made from names, sizes, times and disk places of the model's files in a folder, or of a single
 * file with its parts. It changes if a file is written anew or the folder is another one. A holder of a model
 * or of heads compares it with the number it took before. */
uint64_t model_stamp(const char *place);

/* The small files of a model, as they were hashed, or as the hashed header of a GGUF file describes them;
 * NULL: a missing file. {0} is closed. */
enum { MODEL_CONFIG, MODEL_GENERATION, MODEL_TOKENIZER, MODEL_FILES };
struct model_files { char *data[MODEL_FILES]; size_t n[MODEL_FILES]; };
void model_files_free(struct model_files *f);

/* A fingerprint in three steps, so that the pass which loads the weights makes it, too:
 *
 *     fingerprint_begin(&f, &files, place, &e)     everything but the data of the tensors
 *     model_open, or read_tensors                  fills f.digest (reading.h)
 *     fingerprint_end(&f, weights, out)            puts the parts together
 *     fingerprint_close(&f)                        after begin has succeeded
 *
 * *files (may be NULL) receives the small files; model_files_free. */
struct fingerprint {
    struct sha256 h;
    struct tensors ts;
    uint8_t (*digest)[SHA256_BYTES]; size_t n_digests;
};
int  fingerprint_begin(struct fingerprint *f, struct model_files *files, const char *place, struct err *e);
void fingerprint_end(const struct fingerprint *f, enum weights weights, char out[FINGERPRINT_BYTES]);
void fingerprint_close(struct fingerprint *f);

/* All of it. Returns 1 if `progress` (may be NULL) stopped it; *files is closed then, and after a failure. */
int model_fingerprint(char out[FINGERPRINT_BYTES], struct model_files *files, const char *place,
                      enum weights weights, struct pool *pool, reading_progress *progress, void *ctx,
                      struct err *e);
