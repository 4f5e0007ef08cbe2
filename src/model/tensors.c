/* The tensors of a model: the list, look-up with checks, and reading of their data. Start at tensors_need. */
#include "src/model/encode.h"
#include "src/model/families/family.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(size_t) == 8, "sizes of model files need 64 bits");

enum { READ_BYTES = 1 << 20 };         /* of rows that are read at once to make others */

/* The names of one file, in a list that tensors_close frees. */
struct names { struct names *next; char text[]; };

int tensor_bad(const struct tensors *ts, const struct tensor *t, struct err *e, const char *what, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\"%s", ts->path[t->shard], TENSOR_NAME_SHOWN,
                   t->stored_name, text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

int tensors_sort(struct tensors *ts, struct err *e)
{
    qsort(ts->t, ts->n, sizeof *ts->t, by_name);
    for (size_t i = 1; i < ts->n; i++) {
        const struct tensor *a = &ts->t[i - 1], *b = &ts->t[i];
        if (strcmp(a->name, b->name))
            continue;
        if (a->shard == b->shard)
            return tensor_bad(ts, a, e, " is given twice");
        return tensor_bad(ts, a->shard > b->shard ? a : b, e, " is also in %s, allowed is one shard",
                          ts->path[MIN(a->shard, b->shard)]);
    }
    return 0;
}

int tensors_alloc_shards(struct tensors *ts, size_t n, const char *what, struct err *e)
{
    ts->path = calloc(n, sizeof *ts->path);
    ts->fd = malloc(n * sizeof *ts->fd);
    if (!ts->path || !ts->fd)
        return err_set(e, ERR_FAILED, "%s: out of memory for %zu shards", what, n);
    for (size_t i = 0; i < n; i++)
        ts->fd[i] = -1;
    ts->n_shards = n;
    return 0;
}

int tensors_set_path(struct tensors *ts, size_t i, const char *path, struct err *e)
{
    ts->path[i] = strdup(path);
    return ts->path[i] ? 0 : err_set(e, ERR_FAILED, "%s: out of memory", path);
}

int tensors_open_shard(struct tensors *ts, size_t i, const char *path, size_t *size, struct err *e)
{
    struct stat st;
    if (tensors_set_path(ts, i, path, e))
        return -1;
    int fd = ts->fd[i] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set_system(e, ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(e, ERR_INPUT, "%s: not a regular file", path);
    *size = (size_t)st.st_size;
    return 0;
}

char *tensors_extend(struct tensors *ts, const char *file, size_t count, size_t name_bytes, struct err *e)
{
    if (ts->n + count > TENSORS_MAX)
        return err_set(e, ERR_INPUT, "%s: %zu tensors make more than %d with those of the other shards", file,
                       count, TENSORS_MAX), NULL;
    const size_t all = ts->n + count;
    struct tensor *t = realloc(ts->t, (all ? all : 1) * sizeof *t);
    if (t)
        ts->t = t;
    struct names *names = t ? malloc(sizeof *names + name_bytes) : NULL;
    if (!names)
        return err_set(e, ERR_FAILED, "%s: out of memory for %zu tensors", file, all), NULL;
    names->next = ts->names;
    ts->names = names;
    return names->text;
}

void tensors_close(struct tensors *ts)
{
    for (size_t i = 0; i < ts->n_shards; i++) {
        free(ts->path[i]);
        if (ts->fd[i] >= 0)
            close(ts->fd[i]);
    }
    for (struct names *p = ts->names, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(ts->path);
    free(ts->fd);
    free(ts->t);
    *ts = (struct tensors){ 0 };
}

const struct tensor *tensors_find(const struct tensors *ts, const char *name)
{
    struct tensor key = { .name = name };
    return ts->n ? bsearch(&key, ts->t, ts->n, sizeof *ts->t, by_name) : NULL;
}

static const struct tensor *missing(const struct tensors *ts, const char *name, const char *need,
                                    struct err *e)
{
    char more[32] = "", stored[TENSOR_NAME_SHOWN];
    if (ts->n_shards > 1)
        snprintf(more, sizeof more, " and %zu more", ts->n_shards - 1);
    snprintf(stored, sizeof stored, "%s", name);
    if (ts->family)
        family_gguf_name(stored, sizeof stored, name, ts->family, ts->n_layers);
    err_set(e, ERR_INPUT, "%s%s: tensor \"%s\" is missing, needed with shape %s",
            ts->n_shards ? ts->path[0] : "no file", more, stored, need);
    return NULL;
}

const struct tensor *tensors_need(const struct tensors *ts, const char *name, size_t rows, size_t cols,
                                  struct err *e)
{
    const struct tensor *t = tensors_find(ts, name);
    char shape[TENSOR_DIMS_MAX * 22 + 3] = "[", need[48];
    if (cols)
        snprintf(need, sizeof need, "[%zu, %zu]", rows, cols);
    else
        snprintf(need, sizeof need, "[%zu]", rows);
    if (!t)
        return missing(ts, name, need, e);
    if (t->dtype == DT_OTHER || (!cols && !tensor_is_float(t->dtype)))
        return tensor_bad(ts, t, e, ": dtype %s, allowed are BF16, F16 and F32", t->dtype_name), NULL;
    if (t->n_dims == (cols ? 2 : 1) && t->dim[0] == rows && (!cols || t->dim[1] == cols))
        return t;
    for (size_t i = 0, n = 1; i <= t->n_dims; i++)
        n += i < t->n_dims ? (size_t)snprintf(shape + n, sizeof shape - n, "%s%zu", i ? ", " : "", t->dim[i])
                           : (size_t)snprintf(shape + n, sizeof shape - n, "]");
    return tensor_bad(ts, t, e, ": shape %s, %s needs %s", shape,
                      ts->config_name ? ts->config_name : "config.json", need), NULL;
}

/* A block of MXFP4 as GGUF has it: the scale, then byte j with weights j and j + 16. */
static void put_block(uint8_t *to, const uint8_t *pairs, uint8_t scale)
{
    to[0] = scale;
    for (size_t j = 0; j < 16; j++) {
        const uint8_t low = pairs[j / 2], high = pairs[j / 2 + 8];
        to[1 + j] = (uint8_t)(j % 2 ? low >> 4 | (high & 0xf0) : (low & 15) | high << 4);
    }
}

/* Makes n rows of a dealt tensor. Reads their scales. */
static int take_turns(const struct tensors *ts, const struct tensor *t, uint8_t *dst, const uint8_t *src,
                      size_t row, size_t n, struct err *e)
{
    uint8_t scale[TENSOR_SCALES_READ];
    const bool apart = t->dtype == DT_MXFP4;
    const size_t blocks = apart ? t->dim[1] / 32 : 1, step = t->turns * blocks, some = sizeof scale / step,
                 from = apart ? 16 : dtype_size(t->dtype), to = apart ? 17 : from;
    for (size_t r = 0; r < n; r++) {
        const size_t in = r % some;
        if (apart && !in &&
            read_at(ts->fd[t->scales_shard], ts->path[t->scales_shard], scale,
                    t->scales_offset + (row + r) * step, MIN(some, n - r) * step, e))
            return -1;
        for (size_t b = 0; b < blocks; b++, dst += to) {
            const uint8_t *x = src + (r * step + t->turn * blocks + b) * from;
            if (apart)
                put_block(dst, x, scale[in * step + t->turn * blocks + b]);
            else
                memcpy(dst, x, to);
        }
    }
    return 0;
}

int tensors_make_rows(const struct tensors *ts, const struct tensor *t, void *dst, const void *src,
                      size_t row, size_t n, struct err *e)
{
    if (t->turns)
        return take_turns(ts, t, dst, src, row, n, e);
    const size_t to = t->cols / t->encoded->block * t->encoded->bytes,
                 from = t->cols * dtype_size(t->stored_dtype);
    for (size_t i = 0; i < n; i++)
        if (!encode_row((char *)dst + i * to, t->encoded, (const char *)src + i * from, t->stored_dtype,
                        t->cols))
            return tensor_bad(ts, t, e, ": row %zu: %s cannot hold its weights", row + i, t->encoded->name);
    return 0;
}

/* Reads rows of the file and makes those of the tensor. */
static int read_made(const struct tensors *ts, const struct tensor *t, void *dst, size_t from, size_t n,
                     struct err *e)
{
    const size_t all = t->turns ? t->dim[0] : t->n_elements / t->cols, to = t->bytes / all,
                 row = tensor_stored_bytes(t) / all;
    assert(from % to == 0 && n % to == 0);
    const size_t rows = n / to, some = MAX((size_t)1, READ_BYTES / row);
    void *source = malloc(MIN(rows, some) * row + 1);
    int rc =
        source ? 0
               : err_set(e, ERR_FAILED, "%s: out of memory for a row of %zu bytes", ts->path[t->shard], row);
    for (size_t r = 0; rc == 0 && r < rows; r += some) {
        const size_t now = MIN(some, rows - r);
        rc = read_at(ts->fd[t->shard], ts->path[t->shard], source, t->offset + (from / to + r) * row,
                     now * row, e);
        if (rc == 0)
            rc = tensors_make_rows(ts, t, (char *)dst + r * to, source, from / to + r, now, e);
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

const struct tensor *tensors_find_scale(const struct tensors *ts, const struct tensor *t)
{
    char name[TENSOR_NAME_MAX];
    const size_t n = strlen(t->name), n_end = strlen(".weight");
    snprintf(name, sizeof name, "%.*s.scale", (int)(n - MIN(n, n_end)), t->name);
    return dtype_is_quantised(t->dtype) && !t->encoded ? tensors_find(ts, name) : NULL;
}

int tensors_read_number(const struct tensors *ts, const struct tensor *t, float *x, struct err *e)
{
    if (tensors_read(ts, t, x, 0, sizeof *x, e))
        return -1;
    return isfinite(*x) ? 0 : tensor_bad(ts, t, e, " is infinite or NaN");
}
