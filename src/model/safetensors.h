/* The one source of tensors: a directory with model.safetensors, or with model.safetensors.index.json
 * and its shards. Headers are validated whole before anything is allocated from them; data are read
 * with pread, never mapped (a file that shrinks is an error, not a signal).
 *
 * Rules: header of 2..100,000,000 bytes of JSON, an object; no tensor, and no key of its entry, twice;
 * at most 1,000,000 tensors, 8 dimensions, names of 1..4,096 bytes without control characters; products
 * checked; tensors tile the data exactly: no hole, no overlap, no tail. White space around the object is
 * accepted (writers pad to align), so are data at any alignment, and tensors in any order of offsets.
 * An index must agree with its shards: every tensor of either in the other, once, and total_size (where
 * given) their sum. Shard names are plain file names; the files may be links (the Hugging Face cache).
 * model.safetensors wins over an index, as in transformers.
 * "(offset N)" in messages about a header counts from its first byte, which is byte 8 of the file. */
#pragma once
#include "kernels/ops.h"
#include "src/base/base.h"

enum { TENSORS_MAX = 1000000, TENSOR_NAME_MAX = 4096, TENSOR_DIMS_MAX = 8, SHARDS_MAX = 1000,
       HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = 100000000 };

struct tensor {
    const char *name;            /* valid until tensors_close */
    const char *dtype_name;      /* as the file spells it: "BF16", "I64", ... */
    enum dtype dtype;            /* DT_BF16, DT_F16, DT_F32, or DT_OTHER for what is no weight */
    size_t n_dims, dim[TENSOR_DIMS_MAX];
    size_t n_elements, bytes;
    int shard;                   /* index of the file */
    uint64_t offset;             /* of its first byte in that file */
};

struct tensors {                 /* {0} is closed */
    size_t n, n_shards, data_bytes;
    struct tensor *t;            /* sorted by name */
    char **path; int *fd;        /* [n_shards]; fd -1: parsed from memory */
    void *names;                 /* private */
};

/* Open everything in `dir`. ERR_INPUT names the file, the tensor and the value. */
int  tensors_open(struct tensors *ts, const char *dir, struct err *e);
/* Open one file of any name. */
int  tensors_open_file(struct tensors *ts, const char *path, struct err *e);
/* One header already in memory (`n` bytes of JSON, `data_bytes` behind it), as tensors_open takes that of
 * each file: for tests and the fuzzer. Nothing can be read from the result. */
int  tensors_parse(struct tensors *ts, const char *file, const char *json, size_t n, uint64_t data_bytes,
                   struct err *e);
void tensors_close(struct tensors *ts);
/* NULL when there is no tensor of that name. */
const struct tensor *tensors_find(const struct tensors *ts, const char *name);
/* The same, but it must exist, be BF16, F16 or F32, and have this shape (cols = 0: one dimension). */
const struct tensor *tensors_need(const struct tensors *ts, const char *name, size_t rows, size_t cols,
                                  struct err *e);
/* Bytes [from, from + n) of the tensor's data into dst. */
int tensors_read(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                 struct err *e);
/* The string `key` of the first file's __metadata__ into value[room], cut where it is longer: 1, or 0 when there is none. The
 * header is read again. */
int tensors_metadata(const struct tensors *ts, const char *key, char *value, size_t room, struct err *e);
