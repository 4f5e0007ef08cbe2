/* The tensors of a model: the list, and look-up with checks. Start at tensors_need. */
#include "src/model/families/family.h"
#include "src/model/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(size_t) == 8, "sizes of model files need 64 bits");

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
    /* names alone leave the list where it is: a view reads it */
    struct tensor *t = ts->t && !count ? ts->t : realloc(ts->t, (all ? all : 1) * sizeof *t);
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
    ts->t[t - ts->t].needed = true;
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

const struct tensor *tensors_find_scale(const struct tensors *ts, const struct tensor *t)
{
    char name[TENSOR_NAME_MAX];
    const size_t n = strlen(t->name), n_end = strlen(".weight");
    snprintf(name, sizeof name, "%.*s.scale", (int)(n - MIN(n, n_end)), t->name);
    return dtype_is_quantised(t->dtype) && !t->encoded ? tensors_find(ts, name) : NULL;
}

uint64_t tensor_stamp(const struct tensors *ts, const struct tensor *t)
{
    struct stat st;
    if (fstat(ts->fd[t->shard], &st))
        return 0;
    const int64_t at[] = { st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    return hash64(HASH64_INIT, at, sizeof at);
}
