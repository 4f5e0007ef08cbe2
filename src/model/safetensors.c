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
                                     "file has %zu bytes of data: it is cut short",
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

/* Reads all entries, and counts them and the bytes of their names. They go to t and `names`; t NULL: they are
 * only checked. */
static int header_entries(const struct json *root, size_t data_bytes, struct tensor *t, char *names,
                          size_t *n, size_t *name_bytes, struct err *e)
{
    struct json key, v;
    struct tensor checked;
    bool metadata = false;
    *n = *name_bytes = 0;
    for (struct js_walk w = js_walk(root); js_next(&w, &key, &v);) {
        struct tensor *to = t ? &t[*n] : &checked;
        size_t len = 0;
        if (js_is(&key, "__metadata__")) {
            if (metadata || check_metadata(&v, e))
                return metadata ? js_bad(&key, e, "allowed once") : -1;
            metadata = true;
            continue;
        }
        if (*n == TENSORS_MAX)
            return err_set(e, ERR_INPUT,
                           "%s: offset %zu: more than %d tensors, at most that many are allowed", key.file,
                           js_offset(&key), TENSORS_MAX);
        if (entry_name(&key, &len, e) || entry_parse(&key, &v, data_bytes, to, e))
            return -1;
        if (t) {
            to->name = to->stored_name = names + *name_bytes;
            names[*name_bytes + js_unescape(&key, names + *name_bytes)] = 0;
        }
        ++*n;
        *name_bytes += len + 1;
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    size_t xe = x->offset + x->bytes, ye = y->offset + y->bytes;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : (xe > ye) - (xe < ye);
}

/* Sorts the tensors of a file by offset, and checks that they cover [0, data_bytes) exactly. Offsets count
 * from the start of its data. Notes a hole, or data after the last tensor, and goes on. */
static int check_tiling(struct tensor *t, size_t n, const char *file, size_t data_bytes, struct err *hole,
                        struct err *e)
{
    size_t end = 0;
    if (n)
        qsort(t, n, sizeof *t, by_offset);
    for (size_t i = 0; i < n; end = t[i].offset + t[i].bytes, i++) {
        if (t[i].offset > end && !hole->code)
            err_set(hole, ERR_INPUT,
                    "%s: tensor \"%.*s\": data begin at %zu, a hole where the header lacks a tensor: the "
                    "data before end at %zu", file, NAME_SHOWN, t[i].name, t[i].offset, end);
        if (t[i].offset < end)
            return err_set(e, ERR_INPUT,
                           "%s: tensor \"%.*s\": data begin at %zu, an overlap: the data before end at %zu",
                           file, NAME_SHOWN, t[i].name, t[i].offset, end);
    }
    if (end != data_bytes && !hole->code)
        err_set(hole, ERR_INPUT, "%s: the tensors end at byte %zu of %zu bytes of data, nothing may follow",
                file, end, data_bytes);
    return 0;
}

/* Appends the tensors of one header, as shard `shard`. Nothing is allocated before the whole header is
 * valid. */
static int header_append(struct tensors *ts, int shard, const char *file, const char *json, size_t n,
                         size_t data_bytes, struct err *e)
{
    struct json root;
    size_t count, name_bytes;
    if (js_check(&root, file, json, n, e))
        return -1;
    if (js_kind(&root) != JS_OBJECT)
        return js_bad(&root, e, "allowed for a header is an object");
    if (header_entries(&root, data_bytes, NULL, NULL, &count, &name_bytes, e))
        return -1;
    char *names = tensors_extend(ts, file, count, name_bytes, e);
    if (!names)
        return -1;
    struct tensor *t = &ts->t[ts->n];
    if (header_entries(&root, data_bytes, t, names, &count, &name_bytes, e) ||
        check_tiling(t, count, file, data_bytes, &ts->hole, e))
        return -1;
    for (size_t i = 0; i < count; i++) {
        t[i].shard = shard;
        t[i].offset += 8 + n;
    }
    ts->n += count;
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

/* Reads the header of a file of `size` bytes: its length in the first 8, which may be the start of some other
 * kind of file, then its text. The caller frees *json. */
static int header_read(int fd, const char *path, size_t size, char **json, size_t *n, struct err *e)
{
    unsigned char b[sizeof *n];
    if (read_at(fd, path, b, 0, sizeof b, e))
        return -1;
    memcpy(n, b, sizeof b);
    if (memcmp(b, "version ", 8) == 0)
        return err_set(e, ERR_INPUT,
                       "%s: a Git LFS pointer, not the model itself; fetch the file (git lfs pull)", path);
    if (memcmp(b, "GGUF", 4) == 0 || memcmp(b, "PK\x03\x04", 4) == 0)
        return err_set(e, ERR_INPUT, "%s: a %s file, allowed is safetensors", path,
                       *b == 'G' ? "GGUF" : "zip (PyTorch)");
    if (*n < 2 || *n > HEADER_BYTES_MAX)
        return err_set(e, ERR_INPUT, "%s: header length (offset 0): found %zu, allowed are 2 to %d", path, *n,
                       HEADER_BYTES_MAX);
    if (*n > size - 8)
        return err_set(e, ERR_INPUT, "%s: header length (offset 0): found %zu, but only %zu bytes follow: "
                       "the file is cut short", path, *n, size - 8);
    *json = malloc(*n);
    if (!*json)
        return err_set(e, ERR_FAILED, "%s: out of memory for a header of %zu bytes", path, *n);
    if (read_at(fd, path, *json, 8, *n, e) == 0)
        return 0;
    free(*json);
    return -1;
}

static int shard_read(struct tensors *ts, int i, const char *path, struct err *e)
{
    char *json;
    size_t n, size;
    if (tensors_open_shard(ts, (size_t)i, path, &size, e))
        return -1;
    if (size < 8)
        return err_set(e, ERR_INPUT, "%s: %zu bytes, a safetensors file has at least 8: it is cut short",
                       path, size);
    if (header_read(ts->fd[i], path, size, &json, &n, e))
        return -1;
    const int r = header_append(ts, i, path, json, n, size - 8 - n, e);
    free(json);
    return r;
}

/* ---- an index and its shards ---- */

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

/* Lists the shards of a weight_map as the paths of ts, sorted: their names, which shard_read completes. */
static int index_shards(struct tensors *ts, const struct json *map, struct err *e)
{
    struct json v;
    char name[256], *key = name;
    if (tensors_alloc_shards(ts, SHARDS_MAX, map->file, e))
        return -1;
    ts->n_shards = 0;
    for (struct js_walk w = js_walk(map); js_next(&w, NULL, &v);) {
        if (shard_name(&v, name, e))
            return -1;
        if (bsearch(&key, ts->path, ts->n_shards, sizeof *ts->path, by_text))
            continue;
        if (ts->n_shards == SHARDS_MAX)
            return err_set(e, ERR_INPUT,
                           "%s: weight_map names more than %d shards, at most that many are allowed",
                           map->file, SHARDS_MAX);
        if (tensors_set_path(ts, ts->n_shards, name, e))
            return -1;
        qsort(ts->path, ++ts->n_shards, sizeof *ts->path, by_text);
    }
    return ts->n_shards ? 0 : err_set(e, ERR_INPUT, "%s: weight_map is empty, at least one tensor is needed",
                                      map->file);
}

/* Reads the shards that an index names. The shards decide which tensors the model has, as in transformers:
 * the names of the weight_map and metadata.total_size are not compared with them. */
static int index_read(struct tensors *ts, const char *dir, const struct json *root, struct err *e)
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
    if (index_shards(ts, &map, e))
        return -1;
    for (size_t i = 0; i < ts->n_shards; i++) {
        char path[DIR_PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, ts->path[i]);
        free(ts->path[i]);
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
    const int r = js_check(&root, path, json, n, e) || index_read(ts, dir, &root, e) ? -1 : 0;
    free(json);
    return r;
}

/* ---- the interface ---- */

static int open_file(struct tensors *ts, const char *path, struct err *e)
{
    return tensors_alloc_shards(ts, 1, path, e) || shard_read(ts, 0, path, e) || tensors_sort(ts, e) ? -1 : 0;
}

int tensors_open_file(struct tensors *ts, const char *path, struct err *e)
{
    *ts = (struct tensors){ 0 };
    if (open_file(ts, path, e) == 0 && tensors_whole(ts, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

int safetensors_open(struct tensors *ts, const char *dir, struct err *e)
{
    char path[DIR_PATH_MAX];
    struct stat st;
    int r;
    *ts = (struct tensors){ 0 };
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (lstat(path, &st) == 0) {
        r = open_file(ts, path, e);
    } else {
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
        r = lstat(path, &st) == 0
                ? open_index(ts, dir, path, e)
                : err_set(e, ERR_INPUT, "%s: neither model.safetensors nor model.safetensors.index.json "
                                        "exists, one of them is needed", dir);
    }
    if (r == 0 && tensors_take_text(ts, e) == 0 && tensors_split_experts(ts, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

int tensors_metadata(const struct tensors *ts, const char *key, char *value, size_t room, struct err *e)
{
    const char *path = ts->path[0];
    char *json, *text;
    size_t n;
    struct json root, metadata, v;
    assert(room > 0 && ts->fd[0] >= 0);
    if (header_read(ts->fd[0], path, SIZE_MAX, &json, &n, e))
        return -1;
    int found = js_check(&root, path, json, n, e);
    if (found == 0 && js_kind(&root) == JS_OBJECT)
        found = js_get(&root, "__metadata__", &metadata, e);
    if (found > 0)
        found = js_kind(&metadata) == JS_OBJECT ? js_get(&metadata, key, &v, e) : 0;
    if (found > 0 && js_kind(&v) != JS_STRING)
        found = 0;
    if (found > 0 && !(text = js_strdup(&v)))
        found = err_set(e, ERR_FAILED, "%s: out of memory", path);
    if (found > 0) {
        snprintf(value, room, "%.*s", (int)utf8_valid_prefix(text, MIN(strlen(text), room - 1)), text);
        free(text);
    }
    free(json);
    return found;
}
