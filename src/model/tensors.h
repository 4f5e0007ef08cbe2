/* The tensors of a model, wherever its weights lie: names, types, shapes, and the place of the data. The
 * names are those of Hugging Face checkpoints; a reader of another format translates. Data are read with
 * pread and never mapped: a file that shrinks is an error, not a signal.
 *
 *     safetensors.h   reads a safetensors file, or an index with its shards
 *     gguf_model.h    reads a GGUF file
 *     model_files.h   tensors_open: either, by what a path names */
#pragma once
#include <string.h>

#include "kernels/ops.h"
#include "src/base/base.h"

/* --weights: how matrices are encoded while they are read or converted (encode.h). */
enum weights { WEIGHTS_AS_IS, WEIGHTS_Q8_0, WEIGHTS_Q4_0, WEIGHTS_BF16 };
extern const char *const weights_names[4];

struct gguf_type;
struct family;

/* The table of per_layer.h. */
#define PER_LAYER_TABLE "model.embed_tokens_per_layer.weight"

enum { TENSORS_MAX = 1000000, TENSOR_NAME_MAX = 4096, TENSOR_DIMS_MAX = 8, TENSOR_NAME_SHOWN = 200,
       TENSOR_SCALES_READ = 1 << 15 };   /* bytes of scales apart that are read at once: a row of all turns */

struct tensor {
    const char *name;            /* valid until tensors_close */
    /* as the file spells it; the same pointer where the format has these names */
    const char *stored_name;
    const char *dtype_name;      /* as the file spells it: "BF16", "I64", ... */
    enum dtype dtype;            /* DT_OTHER: not a weight type */
    size_t n_dims, dim[TENSOR_DIMS_MAX];
    size_t n_elements, bytes;
    int shard;                   /* index of the file */
    size_t offset;               /* of its first byte in that file */
    /* Rows of a head whose order GGUF changes for the llama architecture; 0: rows lie in order. Row r of the
     * matrix is row tensor_row(t, r) of the file. */
    size_t head_rows;
    /* Set by tensors_encode (encode.h): the file has rows of `cols` weights of stored_dtype. */
    const struct gguf_type *encoded; enum dtype stored_dtype; size_t cols;
    /* Set by tensors_split_experts (views.h): row r is row r * turns + turn of the file. A matrix of MXFP4
     * has its scales apart, in another place of the files. One of floats is transposed: row r is a column of
     * the file. turns 0: an ordinary tensor */
    size_t turns, turn;
    int scales_shard; size_t scales_offset;
    bool needed;                 /* tensors_need has found it */
};

struct tensors {                 /* {0} is closed */
    size_t n, n_shards, data_bytes;
    struct tensor *t;            /* sorted by name */
    char **path; int *fd;        /* [n_shards]; fd -1: parsed from memory */
    void *names;                 /* private */
    const char *config_name;     /* what fixes the shapes, for messages; NULL: config.json */
    /* Of GGUF files: whose names they have, for messages about a tensor that is missing; or NULL. */
    const struct family *family; size_t n_layers;
    /* Where a header of safetensors lacks a tensor (code 0: nowhere). tensors_open leaves it to
     * config_check_tensors, which may know the tensor's name; all others fail with it. */
    struct err hole;
};

static inline int tensors_whole(const struct tensors *ts, struct err *e)
{
    if (ts->hole.code)
        *e = ts->hole;
    return ts->hole.code ? -1 : 0;
}

static inline bool name_ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}
/* An error about a tensor: FILE: tensor "NAME"<what>. */
int tensor_bad(const struct tensors *ts, const struct tensor *t, struct err *e, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

void tensors_close(struct tensors *ts);
/* Returns NULL if no tensor has that name. */
const struct tensor *tensors_find(const struct tensors *ts, const char *name);
/* Finds a tensor that must exist, be of a weight type, and have this shape (cols = 0: one dimension, of BF16,
 * F16 or F32). */
const struct tensor *tensors_need(const struct tensors *ts, const char *name, size_t rows, size_t cols,
                                  struct err *e);
/* Reads bytes [from, from + n) of the tensor's data into dst: whole rows if the tensor is encoded or
 * dealt. */
int tensors_read(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                 struct err *e);
/* The tensor of one number that scales the quantised matrix t; NULL: there is none. */
const struct tensor *tensors_find_scale(const struct tensors *ts, const struct tensor *t);
/* Reads a tensor of one fp32 number, which must be finite. */
int tensors_read_number(const struct tensors *ts, const struct tensor *t, float *x, struct err *e);
/* Reads elements [from, from + n) of a tensor of BF16, F16 or F32, which must be finite. raw has room for n
 * floats, and receives the elements as they are stored. */
int tensors_read_floats(const struct tensors *ts, const struct tensor *t, size_t from, size_t n, void *raw,
                        float *x, struct err *e);
/* Changes when the file of a tensor is written to. */
uint64_t tensor_stamp(const struct tensors *ts, const struct tensor *t);
/* Makes n rows of a tensor that is encoded or dealt from `src`, the rows of the file. row: the first. Of a
 * transposed tensor the whole data lie there, as if its rows were in order. */
int tensors_make_rows(const struct tensors *ts, const struct tensor *t, void *dst, const void *src,
                        size_t row, size_t n, struct err *e);
/* Element i of data of type t (BF16, F16 or F32). */
static inline float tensor_value(const void *data, enum dtype t, size_t i)
{
    if (t == DT_F32)
        return ((const float *)data)[i];
    const uint16_t x = ((const uint16_t *)data)[i];
    return t == DT_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}
/* The bytes of a tensor in its file: all rows of which it takes some, without scales that lie apart. */
static inline size_t tensor_stored_bytes(const struct tensor *t)
{
    const size_t bytes = t->encoded ? t->n_elements * dtype_size(t->stored_dtype)
                         : t->turns && t->dtype == DT_MXFP4 ? t->n_elements / 2 : t->bytes;
    return MAX(t->turns, (size_t)1) * bytes;
}
static inline bool tensor_is_transposed(const struct tensor *t)
{
    return t->turns && t->n_dims == 2 && t->dtype != DT_MXFP4;
}
static inline bool tensor_is_float(enum dtype t) { return t == DT_BF16 || t == DT_F16 || t == DT_F32; }
/* The file has rows 2b and 2b+1 of a head where the matrix has rows b and b + head_rows/2. */
static inline size_t tensor_row(const struct tensor *t, size_t r)
{
    const size_t d = t->head_rows, in = d ? r % d : 0;
    return d ? r - in + in % (d / 2) * 2 + in / (d / 2) : r;
}

/* ---- for readers of formats ---- */

/* Reserves n files, all closed. `what` names the model in messages. */
int tensors_alloc_shards(struct tensors *ts, size_t n, const char *what, struct err *e);
int tensors_set_path(struct tensors *ts, size_t i, const char *path, struct err *e);
/* Opens file i, which must be a regular file, and returns its size. */
int tensors_open_shard(struct tensors *ts, size_t i, const char *path, size_t *size, struct err *e);
/* Makes room for `count` more tensors after the first n, and returns name_bytes bytes for names; NULL without
 * memory. */
char *tensors_extend(struct tensors *ts, const char *file, size_t count, size_t name_bytes, struct err *e);
/* Sorts by name. A name may occur only once in all files. */
int tensors_sort(struct tensors *ts, struct err *e);
