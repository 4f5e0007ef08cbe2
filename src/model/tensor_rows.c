/* Reading of the data of tensors. Start at tensors_read. */
#include "src/model/encode.h"
#include "src/model/tensors.h"

#include <math.h>
#include <stdlib.h>

enum { READ_BYTES = 1 << 20 };         /* of rows that are read at once to make others */

/* A block of MXFP4 as GGUF has it: the scale, then byte j with weights j and j + 16. */
static void put_block(uint8_t *to, const uint8_t *pairs, uint8_t scale)
{
    to[0] = scale;
    for (size_t j = 0; j < 16; j++) {
        const uint8_t low = pairs[j / 2], high = pairs[j / 2 + 8];
        to[1 + j] = (uint8_t)(j % 2 ? low >> 4 | (high & 0xf0) : (low & 15) | high << 4);
    }
}

/* Makes n rows of a matrix of MXFP4 that is dealt. Reads their scales. */
static int take_blocks(const struct tensors *ts, const struct tensor *t, uint8_t *dst, const uint8_t *src,
                       size_t row, size_t n, struct err *e)
{
    uint8_t scale[TENSOR_SCALES_READ];
    const size_t blocks = t->dim[1] / 32, step = t->turns * blocks, some = sizeof scale / step;
    for (size_t r = 0; r < n; r++) {
        const size_t in = r % some;
        if (!in && read_at(ts->fd[t->scales_shard], ts->path[t->scales_shard], scale,
                           t->scales_offset + (row + r) * step, MIN(some, n - r) * step, e))
            return -1;
        for (size_t b = t->turn * blocks; b < (t->turn + 1) * blocks; b++, dst += 17)
            put_block(dst, src + (r * step + b) * 16, scale[in * step + b]);
    }
    return 0;
}

/* Takes n rows of `cols` floats of a dealt tensor: columns of the file, or elements of a vector. */
static void take_columns(const struct tensor *t, char *dst, const char *src, size_t row, size_t n,
                         size_t cols)
{
    const size_t size = dtype_size(t->encoded ? t->stored_dtype : t->dtype), step = t->turns * size;
    src = src - row * cols * step + t->turn * size;
    for (size_t c = 0; c < cols; c++, src += t->dim[0] * step)
        for (size_t r = 0; r < n; r++)
            memcpy(dst + (r * cols + c) * size, src + (row + r) * step, size);
}

int tensors_make_rows(const struct tensors *ts, const struct tensor *t, void *dst, const void *src,
                      size_t row, size_t n, struct err *e)
{
    const size_t cols = !t->turns ? t->cols : t->n_dims > 1 ? t->dim[1] : 1;
    if (t->turns && t->dtype == DT_MXFP4)
        return take_blocks(ts, t, dst, src, row, n, e);
    if (!t->encoded)
        return take_columns(t, dst, src, row, n, cols), 0;
    const size_t to = cols / t->encoded->block * t->encoded->bytes, from = cols * dtype_size(t->stored_dtype);
    char *taken = t->turns ? malloc(n * from + 1) : NULL;
    if (t->turns && !taken)
        return err_set(e, ERR_FAILED, "%s: out of memory for %zu rows", ts->path[t->shard], n);
    if (taken)
        take_columns(t, taken, src, row, n, cols);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!encode_row((char *)dst + i * to, t->encoded, (taken ? taken : (const char *)src) + i * from,
                        t->stored_dtype, cols))
            rc = tensor_bad(ts, t, e, ": row %zu: %s cannot hold its weights", row + i, t->encoded->name);
    free(taken);
    return rc;
}

/* Reads rows of the file and makes those of the tensor. */
static int read_made(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                     struct err *e)
{
    const size_t all = t->turns ? t->dim[0] : t->n_elements / t->cols, to = t->bytes / all,
                 row = tensor_stored_bytes(t) / all;
    assert(from % to == 0 && n % to == 0);
    const bool whole = tensor_is_transposed(t);
    const size_t rows = n / to, some = whole ? all : MAX((size_t)1, READ_BYTES / row);
    char *source = malloc(MIN(whole ? all : rows, some) * row + 1);
    int rc =
        source ? 0
               : err_set(e, ERR_FAILED, "%s: out of memory for a row of %zu bytes", ts->path[t->shard], row);
    for (size_t r = 0; rc == 0 && r < rows; r += some) {
        const size_t now = MIN(some, rows - r), first = from / to + r;
        rc = read_at(ts->fd[t->shard], ts->path[t->shard], source, t->offset + (whole ? 0 : first * row),
                     (whole ? all : now) * row, e);
        if (rc == 0)
            rc = tensors_make_rows(ts, t, (char *)dst + r * to, source + (whole ? first * row : 0), first,
                                   now, e);
    }
    free(source);
    return rc;
}

int tensors_read(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                 struct err *e)
{
    assert(from <= t->bytes && n <= t->bytes - from && ts->fd[t->shard] >= 0);
    if (t->encoded || t->turns)
        return read_made(ts, t, dst, from, n, e);
    return read_at(ts->fd[t->shard], ts->path[t->shard], dst, t->offset + from, n, e);
}

int tensors_read_number(const struct tensors *ts, const struct tensor *t, float *x, struct err *e)
{
    if (tensors_read(ts, t, x, 0, sizeof *x, e))
        return -1;
    return isfinite(*x) ? 0 : tensor_bad(ts, t, e, " is infinite or NaN");
}

int tensors_read_floats(const struct tensors *ts, const struct tensor *t, size_t from, size_t n, void *raw,
                        float *x, struct err *e)
{
    const size_t bytes = dtype_size(t->dtype);
    if (tensors_read(ts, t, raw, from * bytes, n * bytes, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        x[i] = tensor_value(raw, t->dtype, i);
        if (!isfinite(x[i]))
            return tensor_bad(ts, t, e, ": element %zu is not a finite number", from + i);
    }
    return 0;
}
