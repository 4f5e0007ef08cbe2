/* The one source of tensors: a directory with model.safetensors, or with model.safetensors.index.json
 * and its shards. Headers are validated whole before anything is allocated from them; data are read
 * with pread, never mapped (a file that shrinks is an error, not a signal).
 *
 * Rules (reliability.md 2.3, 2.6 A and S): header 8..100,000,000 bytes, an object, no duplicate keys,
 * at most 1,000,000 tensors, 8 dimensions, products checked, tensors tile the data exactly: no hole,
 * no overlap, no tail. Leading white space before the object is accepted (writers pad to align). */
#pragma once
#include "kernels/ops.h"
#include "src/base.h"

struct tensor {
    const char *name;            /* valid until tensors_close */
    const char *dtype_name;      /* as the file spells it: "BF16", "I64", ... */
    enum dtype dtype;            /* DT_BF16, DT_F16, DT_F32, or DT_OTHER for what is no weight */
    size_t n_dims, dim[8];
    size_t n_elements, bytes;
    int shard;                   /* index of the file */
    uint64_t offset;             /* of its first byte in that file */
};

struct tensors {                 /* {0} is closed */
    size_t n, n_shards, data_bytes;
    struct tensor *t;            /* sorted by name */
    char **path; int *fd;        /* [n_shards] */
    void *names;
};

/* Open everything in `dir`. ERR_INPUT names the file, the tensor and the value. */
int  tensors_open(struct tensors *ts, const char *dir, struct err *e);
/* Parse one header already in memory (`n` bytes of JSON, `data_bytes` behind it); the fuzz entry and
 * the body of tensors_open. */
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
