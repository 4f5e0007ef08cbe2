/* The tensors (src/model/tensors.h) of safetensors files: a directory with model.safetensors, or with
 * model.safetensors.index.json and its shards. A header is validated as a whole before anything is allocated
 * from it.
 *
 * Rules for a header:
 *   - It is a JSON object of 2..100,000,000 bytes. White space around it is accepted, because writers pad to
 *     align.
 *   - No tensor and no key of an entry occurs twice.
 *   - It has at most 1,000,000 tensors of at most 8 dimensions. A name has 1..4,096 bytes without control
 *     characters.
 *   - Products of dimensions are checked.
 *   - The tensors tile the data exactly: no hole, no overlap, no tail. Data may have any alignment, and
 *     tensors any order of offsets.
 *
 * An index must agree with its shards: each tensor of one is in the other, once, and total_size (if given) is
 * their sum. Shard names are plain file names; the files may be links, as in the Hugging Face cache.
 * model.safetensors wins over an index, as in transformers.
 *
 * "(offset N)" in messages about a header counts from the header's first byte, which is byte 8 of the
 * file. */
#pragma once
#include "src/model/tensors.h"

enum { SHARDS_MAX = 1000, HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = 100000000 };

/* Opens all files of a model in `dir`. ERR_INPUT names the file, the tensor and the value. A hole is left to
 * config_check_tensors. */
int  safetensors_open(struct tensors *ts, const char *dir, struct err *e);
/* Opens one file of any name. */
int  tensors_open_file(struct tensors *ts, const char *path, struct err *e);
/* Parses a header in memory (`n` bytes of JSON, followed by `data_bytes` of data in its file), for tests
 * and the fuzzer. No data can be read from the result. */
int tensors_parse(struct tensors *ts, const char *file, const char *json, size_t n, size_t data_bytes,
                  struct err *e);

/* Copies the string `key` of the first file's __metadata__ to value[room], cut to fit. Returns 1, or 0 if
 * the key is missing. Reads the header again. */
int tensors_metadata(const struct tensors *ts, const char *key, char *value, size_t room, struct err *e);
