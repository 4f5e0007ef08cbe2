/* Reading of safetensors files: the header of a file (header_append), a file (shard_read), an index with
 * its shards (index_read). Start at safetensors_open. */
#include "src/model/safetensors.h"
#include "src/model/views.h"
#include "src/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    NAME_SHOWN = TENSOR_NAME_SHOWN,
    DIR_PATH_MAX = PATH_BYTES + 256,     /* folder and file name; the kernel opens no longer path */
};

static const struct { char name[12]; uint8_t bits; enum dtype dtype;
} dtypes[] = {
    { "BF16", 16, DT_BF16 },        { "F16", 16, DT_F16 },      { "F32", 32, DT_F32 },
    { "BOOL", 8, DT_OTHER },        { "U8", 8, DT_OTHER },      { "I8", 8, DT_OTHER },
    { "U16", 16, DT_OTHER },        { "I16", 16, DT_OTHER },    { "U32", 32, DT_OTHER },
    { "I32", 32, DT_OTHER },        { "U64", 64, DT_OTHER },    { "I64", 64, DT_OTHER },
    { "F64", 64, DT_OTHER },        { "C64", 64, DT_OTHER },    { "F8_E4M3", 8, DT_OTHER },
    { "F8_E5M2", 8, DT_OTHER },     { "F8_E8M0", 8, DT_OTHER }, { "F8_E4M3FNUZ", 8, DT_OTHER },
    { "F8_E5M2FNUZ", 8, DT_OTHER }, { "F6_E2M3", 6, DT_OTHER }, { "F6_E3M2", 6, DT_OTHER },
    { "F4", 4, DT_OTHER },
};

/* ---- an entry of a header ---- */

/* The bytes of a key, without its quotes, that a message shows. */
static int shown(const struct json *key)
{
    size_t n = (size_t)(key->end - key->s) - 2;
    return (int)(n > NAME_SHOWN ? utf8_valid_prefix(key->s + 1, NAME_SHOWN) : n);
}

/* The error "file: tensor "name" (offset N): field VALUE, allowed values". */
static int entry_bad(const struct json *key, const char *field, const struct json *v, const char *allowed,
                     struct err *e)
{
    size_t n = v ? (size_t)(v->end - v->s) : 0, cut = n > 80 ? utf8_valid_prefix(v->s, 80) : n;
    return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" (offset %zu): %s%s%.*s%s, %s", key->file, shown(key),
                   key->s + 1, js_offset(v ? v : key), field, v ? " " : "", (int)cut, v ? v->s : "",
                   cut < n ? ".." : "", allowed);
}

/* Length of a tensor's name. */
static int entry_name(const struct json *key, size_t *len, struct err *e)
{
    bool control;
    size_t n = js_length(key, &control);
    if (n == 0 || n > TENSOR_NAME_MAX)
        return entry_bad(key, n ? "name too long" : "empty name", NULL, "allowed are 1 to 4096 bytes", e);
    if (control)
        return entry_bad(key, "control character in the name", NULL, "none is allowed", e);
    *len = n;
    return 0;
}

static int entry_dtype(const struct json *key, const struct json *v, size_t *i, struct err *e)
{
    for (*i = 0; *i < sizeof dtypes / sizeof *dtypes; ++*i)
        if (js_is(v, dtypes[*i].name))
            return 0;
    return entry_bad(key, "dtype", v, "allowed are the types of safetensors: BF16, F16, F32, I64, ..", e);
}

static int entry_shape(const struct json *key, const struct json *v, struct tensor *t, struct err *e)
{
    struct json x;
    if (js_kind(v) != JS_ARRAY)
        return entry_bad(key, "shape", v, "allowed is an array of whole numbers", e);
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x); t->n_dims++) {
        size_t d;
        if (t->n_dims == TENSOR_DIMS_MAX)
            return entry_bad(key, "shape", v, "allowed are at most 8 dimensions", e);
        if (!js_u64(&x, &d))
            return entry_bad(key, "dimension", &x, "allowed are whole numbers below 2^64", e);
        t->dim[t->n_dims] = d;
    }
    return 0;
}

static int entry_offsets(const struct json *key, const struct json *v, size_t at[2], struct err *e)
{
    struct json x;
    size_t n = 0;
    if (js_kind(v) != JS_ARRAY)
        return entry_bad(key, "data_offsets", v, "allowed is [begin, end]", e);
    for (struct js_walk w = js_walk(v); n < 3 && js_next(&w, NULL, &x);)
        n = n < 2 && js_u64(&x, &at[n]) ? n + 1 : 3;
    if (n != 2)
        return entry_bad(key, "data_offsets", v, "allowed are two whole numbers, [begin, end]", e);
    return at[0] <= at[1] ? 0 : entry_bad(key, "data_offsets", v, "begin may not be after end", e);
}

/* Computes elements and bytes from type and shape. A dimension of 0 makes the tensor empty; a product
 * could have wrapped to 0. */
static int entry_bytes(const struct json *key, const struct json *shape, size_t bits, struct tensor *t,
                       struct err *e)
{
    size_t n = bits;
    bool empty = false;
    for (size_t i = 0; i < t->n_dims; i++) {
        empty |= t->dim[i] == 0;
        if (t->dim[i] && __builtin_mul_overflow(n, t->dim[i], &n))
            return entry_bad(key, "shape", shape, "the size in bits must be below 2^64", e);
    }
    if (n % 8 && !empty)
        return entry_bad(key, "shape", shape, "the size must be a whole number of bytes", e);
    t->n_elements = empty ? 0 : n / bits;
    t->bytes = empty ? 0 : n / 8;
    return 0;
}

/* Parses an entry of the header into *t, except name and shard. Its offset counts from the start of the
 * data. */
static int entry_parse(const struct json *key, const struct json *value, size_t data_bytes,
                       struct tensor *t, struct err *e)
{
    struct json field, v, part[3] = { 0 };
    static const char *const names[] = { "dtype", "shape", "data_offsets" };
    size_t at[2] = { 0 };
    size_t type;
    *t = (struct tensor){ 0 };
    if (js_kind(value) != JS_OBJECT)
        return entry_bad(key, "entry", value, "allowed is an object with dtype, shape and data_offsets", e);
    for (struct js_walk w = js_walk(value); js_next(&w, &field, &v);) {
        size_t i = 0;
        while (i < 3 && !js_is(&field, names[i]))
            i++;
        if (i == 3)
            return entry_bad(key, "unknown key", &field, "allowed are dtype, shape and data_offsets", e);
        if (part[i].s)
            return entry_bad(key, "key", &field, "allowed once", e);
        part[i] = v;
    }
    for (size_t i = 0; i < 3; i++)
        if (!part[i].s)
            return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" (offset %zu): %s is missing", key->file,
                           shown(key), key->s + 1, js_offset(value), names[i]);
    if (entry_dtype(key, &part[0], &type, e) || entry_shape(key, &part[1], t, e) ||
        entry_bytes(key, &part[1], dtypes[type].bits, t, e) || entry_offsets(key, &part[2], at, e))
        return -1;
    if (at[1] - at[0] != t->bytes)
        return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" (offset %zu): data_offsets span %zu bytes, "
                                     "dtype and shape need %zu",
                       key->file, shown(key), key->s + 1, js_offset(&part[2]), at[1] - at[0], t->bytes);
    if (at[1] > data_bytes)
        return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" (offset %zu): data_offsets end at %zu, the "
                                     "file has %zu bytes of data",
                       key->file, shown(key), key->s + 1, js_offset(&part[2]), at[1], data_bytes);
    t->dtype = dtypes[type].dtype;
    t->dtype_name = dtypes[type].name;
    t->offset = at[0];
    return 0;
}

static int check_metadata(const struct json *v, struct err *e)
{
    struct json key, x;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "allowed for __metadata__ is an object of strings");
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &x);)
        if (js_kind(&x) != JS_STRING)
            return js_bad(&x, e, "allowed in __metadata__ are strings");
    return 0;
}

/* ---- a header ---- */

/* Checks every entry and measures. Nothing is allocated before the whole header is valid. */
static int header_measure(const struct json *root, size_t data_bytes, size_t *n, size_t *name_bytes,
                          struct err *e)
{
    struct json key, v;
    struct tensor t;
    bool metadata = false;
    *n = *name_bytes = 0;
    for (struct js_walk w = js_walk(root); js_next(&w, &key, &v);) {
        size_t len = 0;
        if (js_is(&key, "__metadata__")) {
            if (metadata)
                return js_bad(&key, e, "allowed once");
            metadata = true;
            if (check_metadata(&v, e))
                return -1;
            continue;
        }
        if (*n == TENSORS_MAX)
            return err_set(e, ERR_INPUT,
                           "%s: offset %zu: more than %d tensors, at most that many are allowed", key.file,
                           js_offset(&key), TENSORS_MAX);
        if (entry_name(&key, &len, e) || entry_parse(&key, &v, data_bytes, &t, e))
            return -1;
        ++*n;
        *name_bytes += len + 1;
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;
    size_t xe = x->offset + x->bytes, ye = y->offset + y->bytes;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : (xe > ye) - (xe < ye);
}

/* Checks that the tensors of a file cover [0, data_bytes) exactly. Offsets count from the start of its
 * data. Notes a hole, or data after the last tensor, and goes on. */
static int check_tiling(const struct tensor *t, size_t n, const char *file, size_t data_bytes,
                        struct err *hole, struct err *e)
{
    const struct tensor **p = malloc((n ? n : 1) * sizeof *p);
    size_t end = 0;
    int r = 0;
    if (!p)
        return err_set(e, ERR_FAILED, "%s: out of memory for %zu tensors", file, n);
    for (size_t i = 0; i < n; i++)
        p[i] = &t[i];
    qsort(p, n, sizeof *p, by_offset);
    for (size_t i = 0; i < n && !r; i++) {
        if (p[i]->offset > end && !hole->code)
            err_set(hole, ERR_INPUT,
                    "%s: tensor \"%.*s\": data begin at %zu, a hole where the header lacks a tensor: the "
                    "data before end at %zu", file, NAME_SHOWN, p[i]->name, p[i]->offset, end);
        if (p[i]->offset < end)
            r = err_set(e, ERR_INPUT,
                        "%s: tensor \"%.*s\": data begin at %zu, an overlap: the data before end at %zu",
                        file, NAME_SHOWN, p[i]->name, p[i]->offset, end);
        end = p[i]->offset + p[i]->bytes;
    }
    if (!r && end != data_bytes && !hole->code)
        err_set(hole, ERR_INPUT, "%s: the tensors end at byte %zu of %zu bytes of data, nothing may follow",
                file, end, data_bytes);
    free(p);
    return r;
}

/* Appends the tensors of one header, as shard `shard`. */
static int header_append(struct tensors *ts, int shard, const char *file, const char *json, size_t n,
                         size_t data_bytes, struct err *e)
{
    struct json root, key, v;
    size_t count, name_bytes, all;
    if (js_check(&root, file, json, n, e))
        return -1;
    if (js_kind(&root) != JS_OBJECT)
        return js_bad(&root, e, "allowed for a header is an object");
    if (header_measure(&root, data_bytes, &count, &name_bytes, e))
        return -1;
    char *to = tensors_extend(ts, file, count, name_bytes, e);
    if (!to)
        return -1;
    all = ts->n + count;
    struct tensor *t = &ts->t[ts->n];
    for (struct js_walk w = js_walk(&root); js_next(&w, &key, &v);) {
        if (js_is(&key, "__metadata__"))
            continue;
        if (entry_parse(&key, &v, data_bytes, t, e))
            return -1;
        t->name = t->stored_name = to;
        t->shard = shard;
        t++;
        to += js_unescape(&key, to);
        *to++ = 0;
    }
    if (check_tiling(&ts->t[ts->n], count, file, data_bytes, &ts->hole, e))
        return -1;
    for (size_t i = ts->n; i < all; i++)
        ts->t[i].offset += 8 + n;
    ts->n = all;
    ts->data_bytes += data_bytes;
    return 0;
}

int tensors_parse(struct tensors *ts, const char *file, const char *json, size_t n, size_t data_bytes,
                  struct err *e)
{
    *ts = (struct tensors){ 0 };
    if (tensors_alloc_shards(ts, 1, file, e) == 0 && tensors_set_path(ts, 0, file, e) == 0 &&
        header_append(ts, 0, file, json, n, data_bytes, e) == 0 && tensors_whole(ts, e) == 0 &&
        tensors_sort(ts, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

/* ---- files ---- */

/* Checks the first 8 bytes: the header length, or the start of some other kind of file. */
static int header_length(const char *path, const unsigned char b[8], size_t size, size_t *length,
                         struct err *e)
{
    size_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | b[i];
    if (memcmp(b, "version ", 8) == 0)
        return err_set(e, ERR_INPUT,
                       "%s: a Git LFS pointer, not the model itself; fetch the file (git lfs pull)", path);
    if (memcmp(b, "GGUF", 4) == 0 || memcmp(b, "PK\x03\x04", 4) == 0)
        return err_set(e, ERR_INPUT, "%s: a %s file, allowed is safetensors", path,
                       *b == 'G' ? "GGUF" : "zip (PyTorch)");
    if (n < 2 || n > HEADER_BYTES_MAX)
        return err_set(e, ERR_INPUT, "%s: header length (offset 0): found %zu, allowed are 2 to %d", path,
                       n, HEADER_BYTES_MAX);
    if (n > size - 8)
        return err_set(e, ERR_INPUT, "%s: header length (offset 0): found %zu, but only %zu bytes follow",
                       path, n, (size - 8));
    *length = n;
    return 0;
}

static int shard_read(struct tensors *ts, int i, const char *path, struct err *e)
{
    unsigned char b[8];
    size_t n = 0, size;
    if (tensors_open_shard(ts, (size_t)i, path, &size, e))
        return -1;
    const int fd = ts->fd[i];
    if (size < 8)
        return err_set(e, ERR_INPUT, "%s: %zu bytes, a safetensors file has at least 8", path, size);
    if (read_at(fd, path, b, 0, 8, e) || header_length(path, b, size, &n, e))
        return -1;
    char *json = malloc(n);
    if (!json)
        return err_set(e, ERR_FAILED, "%s: out of memory for a header of %zu bytes", path, n);
    int r = read_at(fd, path, json, 8, n, e);
    if (!r)
        r = header_append(ts, i, path, json, n, size - 8 - n, e);
    free(json);
    return r;
}

/* ---- an index and its shards ---- */

/* The shard names of a weight_map, sorted. */
struct shard_list { char *name[SHARDS_MAX]; size_t n; };

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Reads a shard name: a plain file name, so that an index cannot name files outside its folder. */
static int shard_name(const struct json *v, char name[256], struct err *e)
{
    static const char allowed[] = "allowed is the name of a .safetensors file in the same folder";
    static const char ext[] = ".safetensors";
    const size_t n_ext = sizeof ext - 1;
    bool control;
    size_t n = js_kind(v) == JS_STRING ? js_length(v, &control) : 0;
    if (n <= n_ext || n > 255 || control)
        return js_bad(v, e, allowed);
    name[js_unescape(v, name)] = 0;
    if (strcmp(name + n - n_ext, ext) || strchr(name, '/') || strstr(name, ".."))
        return js_bad(v, e, allowed);
    return 0;
}

static int index_shards(const struct json *map, struct shard_list *l, struct err *e)
{
    struct json v;
    char name[256], *key = name;
    for (struct js_walk w = js_walk(map); js_next(&w, NULL, &v);) {
        if (shard_name(&v, name, e))
            return -1;
        if (bsearch(&key, l->name, l->n, sizeof *l->name, by_text))
            continue;
        if (l->n == SHARDS_MAX)
            return err_set(e, ERR_INPUT,
                           "%s: weight_map names more than %d shards, at most that many are allowed",
                           map->file, SHARDS_MAX);
        if (!(l->name[l->n] = strdup(name)))
            return err_set(e, ERR_FAILED, "%s: out of memory", map->file);
        qsort(l->name, ++l->n, sizeof *l->name, by_text);
    }
    return l->n
                ? 0
                : err_set(e, ERR_INPUT, "%s: weight_map is empty, at least one tensor is needed", map->file);
}

/* Reads the shards that an index names. The shards decide which tensors the model has, as in transformers:
 * the names of the weight_map and metadata.total_size are not compared with them. */
static int index_read(struct tensors *ts, const char *dir, const struct json *root, struct shard_list *l,
                      struct err *e)
{
    struct json map;
    if (js_kind(root) != JS_OBJECT)
        return js_bad(root, e, "allowed for an index is an object");
    int found = js_get(root, "weight_map", &map, e);
    if (found < 0)
        return -1;
    if (!found)
        return err_set(e, ERR_INPUT, "%s: weight_map is missing", root->file);
    if (js_kind(&map) != JS_OBJECT)
        return js_bad(&map, e, "allowed is an object of shard names");
    if (index_shards(&map, l, e) || tensors_alloc_shards(ts, l->n, root->file, e))
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        char path[DIR_PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, l->name[i]);
        if (shard_read(ts, (int)i, path, e))
            return -1;
    }
    return tensors_sort(ts, e);
}

static int open_index(struct tensors *ts, const char *dir, const char *path, struct err *e)
{
    struct json root;
    char *json;
    size_t n;
    if (file_read(&json, &n, path, INDEX_BYTES_MAX, e))
        return -1;
    struct shard_list *l = calloc(1, sizeof *l);
    int r = l ? js_check(&root, path, json, n, e) : err_set(e, ERR_FAILED, "%s: out of memory", path);
    if (!r)
        r = index_read(ts, dir, &root, l, e);
    for (size_t i = 0; l && i < l->n; i++)
        free(l->name[i]);
    free(l);
    free(json);
    return r;
}

/* ---- the interface ---- */

static int open_file(struct tensors *ts, const char *path, struct err *e)
{
    *ts = (struct tensors){ 0 };
    if (tensors_alloc_shards(ts, 1, path, e) == 0 && shard_read(ts, 0, path, e) == 0 &&
        tensors_sort(ts, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

/* Closes what has a hole. */
static int whole(struct tensors *ts, struct err *e)
{
    const int r = tensors_whole(ts, e);
    if (r)
        tensors_close(ts);
    return r;
}

int tensors_open_file(struct tensors *ts, const char *path, struct err *e)
{
    return open_file(ts, path, e) ? -1 : whole(ts, e);
}

int safetensors_open_holed(struct tensors *ts, const char *dir, struct err *e)
{
    char path[DIR_PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    const bool one = lstat(path, &st) == 0;
    if (one && open_file(ts, path, e))
        return -1;
    int r = 0;
    if (!one) {
        *ts = (struct tensors){ 0 };
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
        r = lstat(path, &st) == 0
                ? open_index(ts, dir, path, e)
                : err_set(e, ERR_INPUT, "%s: neither model.safetensors nor model.safetensors.index.json "
                                        "exists, one of them is needed", dir);
    }
    r = r || tensors_take_text(ts, e) || tensors_deal_experts(ts, e) ? -1 : tensors_split_experts(ts, e);
    if (r)
        tensors_close(ts);
    return r;
}

int safetensors_open(struct tensors *ts, const char *dir, struct err *e)
{
    return safetensors_open_holed(ts, dir, e) ? -1 : whole(ts, e);
}

int tensors_metadata(const struct tensors *ts, const char *key, char *value, size_t room, struct err *e)
{
    const char *path = ts->path[0];
    unsigned char b[8];
    size_t n = 0;
    struct json root, metadata, v;
    assert(room > 0 && ts->fd[0] >= 0);
    if (read_at(ts->fd[0], path, b, 0, 8, e) || header_length(path, b, SIZE_MAX, &n, e))
        return -1;
    char *json = malloc(n);
    if (!json)
        return err_set(e, ERR_FAILED, "%s: out of memory for a header of %zu bytes", path, n);
    int found = read_at(ts->fd[0], path, json, 8, n, e) || js_check(&root, path, json, n, e) ? -1 : 0;
    if (found == 0 && js_kind(&root) == JS_OBJECT &&
        (found = js_get(&root, "__metadata__", &metadata, e)) > 0) {
        found = js_kind(&metadata) == JS_OBJECT ? js_get(&metadata, key, &v, e) : 0;
        found = found > 0 && js_kind(&v) != JS_STRING ? 0 : found;
    }
    if (found > 0) {
        char *text = js_strdup(&v);
        if (text)
            snprintf(value, room, "%.*s", (int)utf8_valid_prefix(text, MIN(strlen(text), room - 1)), text);
        else
            found = err_set(e, ERR_FAILED, "%s: out of memory", path);
        free(text);
    }
    free(json);
    return found;
}
