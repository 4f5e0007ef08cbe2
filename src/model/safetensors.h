/* The source of tensors: a directory with model.safetensors, or with model.safetensors.index.json and its
 * shards. A header is validated as a whole before anything is allocated from it. Data are read with pread and
 * never mapped: a file that shrinks is an error, not a signal.
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
#include "kernels/ops.h"
#include "src/base/base.h"

enum { TENSORS_MAX = 1000000, TENSOR_NAME_MAX = 4096, TENSOR_DIMS_MAX = 8, SHARDS_MAX = 1000,
       HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = 100000000 };

struct tensor {
    const char *name;            /* valid until tensors_close */
    const char *dtype_name;      /* as the file spells it: "BF16", "I64", ... */
    enum dtype dtype;            /* DT_BF16, DT_F16, DT_F32; DT_OTHER: not a weight type */
    size_t n_dims, dim[TENSOR_DIMS_MAX];
    size_t n_elements, bytes;
    int shard;                   /* index of the file */
    size_t offset;             /* of its first byte in that file */
};

struct tensors {                 /* {0} is closed */
    size_t n, n_shards, data_bytes;
    struct tensor *t;            /* sorted by name */
    char **path; int *fd;        /* [n_shards]; fd -1: parsed from memory */
    void *names;                 /* private */
};

/* Opens all files of a model in `dir`. ERR_INPUT names the file, the tensor and the value. */
int  tensors_open(struct tensors *ts, const char *dir, struct err *e);
/* Opens one file of any name. */
int  tensors_open_file(struct tensors *ts, const char *path, struct err *e);
/* Parses a header in memory (`n` bytes of JSON, followed by `data_bytes` of data in its file), for tests
 * and the fuzzer. No data can be read from the result. */
int tensors_parse(struct tensors *ts, const char *file, const char *json, size_t n, size_t data_bytes,
                  struct err *e);
void tensors_close(struct tensors *ts);
/* Returns NULL if no tensor has that name. */
const struct tensor *tensors_find(const struct tensors *ts, const char *name);
/* Finds a tensor that must exist, be BF16, F16 or F32, and have this shape (cols = 0: one dimension). */
const struct tensor *tensors_need(const struct tensors *ts, const char *name, size_t rows, size_t cols,
                                  struct err *e);
/* Reads bytes [from, from + n) of the tensor's data into dst. */
int tensors_read(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                 struct err *e);
/* Element i of data of type t (BF16, F16 or F32). */
static inline float tensor_value(const void *data, enum dtype t, size_t i)
{
    if (t == DT_F32)
        return ((const float *)data)[i];
    const uint16_t x = ((const uint16_t *)data)[i];
    return t == DT_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

/* Copies the string `key` of the first file's __metadata__ to value[room], cut to fit. Returns 1, or 0 if
 * the key is missing. Reads the header again. */
int tensors_metadata(const struct tensors *ts, const char *key, char *value, size_t room, struct err *e);
