/* Reading of GGUF headers: a cursor over the bytes, values, tensors, and typed look-ups. Start at
 * gguf_parse. */
#include "src/model/gguf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT_MAX = 65536, KEY_MAX = 65535, SHOWN_MAX = 100 };

const struct gguf_type gguf_types[] = {
    { 0, "F32", 1, 4, DT_F32 },
    { 1, "F16", 1, 2, DT_F16 },
    { 30, "BF16", 1, 2, DT_BF16 },
    { 2, "Q4_0", 32, 18, DT_Q4_0 },
    { 3, "Q4_1", 32, 20, DT_Q4_1 },
    { 6, "Q5_0", 32, 22, DT_Q5_0 },
    { 7, "Q5_1", 32, 24, DT_Q5_1 },
    { 8, "Q8_0", 32, 34, DT_Q8_0 },
    { 10, "Q2_K", 256, 84, DT_Q2_K },
    { 11, "Q3_K", 256, 110, DT_Q3_K },
    { 12, "Q4_K", 256, 144, DT_Q4_K },
    { 13, "Q5_K", 256, 176, DT_Q5_K },
    { 14, "Q6_K", 256, 210, DT_Q6_K },
    { 20, "IQ4_NL", 32, 18, DT_IQ4_NL },
    { 23, "IQ4_XS", 256, 136, DT_IQ4_XS },
    { 39, "MXFP4", 32, 17, DT_MXFP4 },
    { 34, "TQ1_0", 256, 54, DT_TQ1_0 },
    { 35, "TQ2_0", 256, 66, DT_TQ2_0 },
    { 16, "IQ2_XXS", 256, 66, DT_IQ2_XXS },
    { 17, "IQ2_XS", 256, 74, DT_IQ2_XS },
    { 22, "IQ2_S", 256, 82, DT_IQ2_S },
    { 18, "IQ3_XXS", 256, 98, DT_IQ3_XXS },
    { 21, "IQ3_S", 256, 110, DT_IQ3_S },
    { 19, "IQ1_S", 256, 50, DT_IQ1_S },
    { 29, "IQ1_M", 256, 56, DT_IQ1_M },
    { 41, "Q1_0", 128, 18, DT_Q1_0 },
    { 42, "Q2_0", 64, 18, DT_Q2_0 },
    { 40, "NVFP4", 64, 36, DT_NVFP4 },
    { 0, NULL },
};

/* Types that the format has or had and that longhand does not read. NULL: removed from the format. */
static const struct { uint32_t id; const char *name;
} refused[] = {
    { 9, "Q8_1" }, { 15, "Q8_K" }, { 24, "I8" },   { 25, "I16" }, { 26, "I32" }, { 27, "I64" }, { 28, "F64" },
    { 4, NULL },   { 5, NULL },    { 31, NULL },   { 32, NULL },  { 33, NULL },  { 36, NULL },  { 37, NULL },
    { 38, NULL },
};

/* Bytes of a value of each kind; a string has at least its length. */
static const uint8_t kind_bytes[GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8 };

/* ---- the cursor ---- */

struct cursor {
    struct gguf *g;
    const uint8_t *p;
    size_t at, have, size;
    bool more;                           /* the bytes end before the file does */
    struct err *e;
};

/* Sets "file: offset N: ..."; returns -1. */
static int bad(struct cursor *c, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int bad(struct cursor *c, size_t at, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(c->e, ERR_INPUT, "%s: offset %zu: %s", c->g->file, at, text);
}

/* The next n bytes, or NULL: the file ends, or more bytes are needed (c->more). */
static const uint8_t *take(struct cursor *c, size_t n, const char *what)
{
    if (n > c->size - c->at) {
        bad(c, c->at, "%s: %zu bytes are needed, the file has %zu more", what, n, c->size - c->at);
        return NULL;
    }
    if (n > c->have - c->at) {
        c->more = true;
        return NULL;
    }
    c->at += n;
    return c->p + c->at - n;
}

static uint64_t little(const uint8_t *p, size_t n)
{
    uint64_t x = 0;
    for (size_t i = n; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

static int take_number(struct cursor *c, size_t bytes, const char *what, uint64_t *x)
{
    const uint8_t *p = take(c, bytes, what);
    *x = p ? little(p, bytes) : 0;
    return p ? 0 : -1;
}

static int take_string(struct cursor *c, const char *what, size_t max, struct slice *s)
{
    const size_t at = c->at;
    uint64_t n;
    if (take_number(c, 8, what, &n))
        return -1;
    if (n > c->size - c->at)
        return bad(c, at, "%s: a string of %zu bytes, the file has %zu more", what, (size_t)n,
                   c->size - c->at);
    if (n > max)
        return bad(c, at, "%s: a string of %zu bytes, at most %zu are allowed", what, (size_t)n, max);
    const uint8_t *p = take(c, n, what);
    *s = (struct slice){ p, n };
    return p ? 0 : -1;
}

/* Whether s is printable: no control byte, no NUL, valid UTF-8. */
static bool is_name(struct slice s)
{
    const char *p = s.p;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
            return false;
    return s.n > 0 && utf8_valid_prefix(p, s.n) == s.n;
}

/* ---- values ---- */

static int take_strings(struct cursor *c, size_t n)
{
    struct slice s;
    for (size_t i = 0; i < n; i++)
        if (take_string(c, "an element of an array", SIZE_MAX, &s))
            return -1;
    return 0;
}

static int take_array(struct cursor *c, struct gguf_value *v, struct slice key)
{
    const size_t at = c->at;
    const int shown = (int)MIN(key.n, (size_t)SHOWN_MAX);
    uint64_t kind, n;
    if (take_number(c, 4, "type of an array", &kind) || take_number(c, 8, "length of an array", &n))
        return -1;
    if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
        return bad(c, at, "%.*s: an array of type %zu, allowed are 0 to 8 and 10 to 12", shown,
                   (const char *)key.p, (size_t)kind);
    v->kind = (enum gguf_kind)kind;
    v->n = n;
    if (n > (c->size - c->at) / kind_bytes[kind])
        return bad(c, at + 4, "%.*s: an array of %zu elements, the file has %zu more bytes", shown,
                   (const char *)key.p, (size_t)n, c->size - c->at);
    v->data = c->p + c->at;
    if (kind == GGUF_STRING)
        return take_strings(c, n);
    return take(c, n * kind_bytes[kind], "an array") ? 0 : -1;
}

static int check_bools(struct cursor *c, const struct gguf_value *v)
{
    for (size_t i = 0; v->kind == GGUF_BOOL && i < v->n; i++)
        if (v->data[i] > 1)
            return bad(c, (size_t)(v->data - c->p) + i, "%.*s: a bool of %u, allowed are 0 and 1",
                       (int)MIN(v->n_key, (size_t)SHOWN_MAX), v->key, v->data[i]);
    return 0;
}

static int take_value(struct cursor *c, struct gguf_value *v)
{
    const size_t at = c->at;
    struct slice key, s;
    uint64_t kind;
    *v = (struct gguf_value){ 0 };
    if (take_string(c, "a key", KEY_MAX, &key))
        return -1;
    if (!is_name(key))
        return bad(c, at, "a key that is empty or holds control characters");
    v->key = key.p;
    v->n_key = key.n;
    if (take_number(c, 4, "type of a value", &kind))
        return -1;
    if (kind >= GGUF_KINDS)
        return bad(c, c->at - 4, "%.*s: a value of type %zu, allowed are 0 to 12",
                   (int)MIN(key.n, (size_t)SHOWN_MAX), v->key, (size_t)kind);
    v->is_array = kind == GGUF_ARRAY;
    v->kind = (enum gguf_kind)kind;
    v->n = 1;
    v->data = c->p + c->at;
    const size_t from = c->at;
    if (v->is_array ? take_array(c, v, key)
        : kind == GGUF_STRING ? take_string(c, "a string", SIZE_MAX, &s)
                              : !take(c, kind_bytes[kind], "a value"))
        return -1;
    v->bytes = c->at - (v->is_array ? (size_t)(v->data - c->p) : from);
    return check_bools(c, v);
}

static int by_key(const void *a, const void *b)
{
    const struct gguf_value *x = a, *y = b;
    const int r = memcmp(x->key, y->key, MIN(x->n_key, y->n_key));
    return r ? r : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

static int take_values(struct cursor *c)
{
    struct gguf *g = c->g;
    for (size_t i = 0; i < g->n_values; i++)
        if (take_value(c, &g->value[i]))
            return -1;
    qsort(g->value, g->n_values, sizeof *g->value, by_key);
    for (size_t i = 1; i < g->n_values; i++)
        if (by_key(&g->value[i - 1], &g->value[i]) == 0)
            return bad(c, (size_t)((const uint8_t *)g->value[i].key - c->p), "%.*s: the key is given twice",
                       (int)MIN(g->value[i].n_key, (size_t)SHOWN_MAX), g->value[i].key);
    return 0;
}

/* ---- tensors ---- */

static int take_type(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t id;
    if (take_number(c, 4, "type of a tensor", &id))
        return -1;
    for (t->type = gguf_types; t->type->name; t->type++)
        if (t->type->id == id)
            return 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].id == id && !refused[i].name)
            return bad(c, c->at - 4,
                       "tensor \"%s\": type %zu was removed from the format; convert the model again",
                       t->name, (size_t)id);
        else if (refused[i].id == id)
            return bad(c, c->at - 4,
                       "tensor \"%s\": type %s is not supported; supported are F32, F16, BF16, Q1_0, "
                       "Q2_0, Q4_0 to Q8_0, Q2_K to Q6_K, IQ1_S to IQ4_XS, MXFP4, NVFP4, TQ1_0 and TQ2_0",
                       t->name, refused[i].name);
    return bad(c, c->at - 4, "tensor \"%s\": type %zu is unknown", t->name, (size_t)id);
}

static int take_dims(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t n, d;
    if (take_number(c, 4, "dimensions of a tensor", &n))
        return -1;
    if (n < 1 || n > GGUF_DIMS_MAX)
        return bad(c, c->at - 4, "tensor \"%s\": %zu dimensions, allowed are 1 to %d", t->name, (size_t)n,
                   GGUF_DIMS_MAX);
    t->n_dims = n;
    t->n_elements = 1;
    for (size_t i = 0; i < GGUF_DIMS_MAX; i++)
        t->dim[i] = 1;
    for (size_t i = 0; i < n; i++) {
        if (take_number(c, 8, "a dimension", &d))
            return -1;
        if (d < 1 || d > (size_t)INT64_MAX / t->n_elements)
            return bad(c, c->at - 8,
                       "tensor \"%s\": dimension %zu is %zu; allowed are 1 and more, with a product "
                       "below 2^63",
                       t->name, i, (size_t)d);
        t->dim[i] = d;
        t->n_elements *= d;
    }
    return 0;
}

/* Reads one description. `end` is where the data of the tensors before end, padded. */
static int take_tensor(struct cursor *c, struct gguf_tensor *t, size_t *end)
{
    const size_t at = c->at;
    struct slice name;
    uint64_t offset;
    if (take_string(c, "name of a tensor", GGUF_NAME_MAX, &name))
        return -1;
    if (!is_name(name))
        return bad(c, at, "a tensor's name that is empty or holds control characters");
    memcpy(t->name, name.p, name.n);
    t->name[name.n] = 0;
    if (take_dims(c, t) || take_type(c, t))
        return -1;
    if (t->dim[0] % t->type->block)
        return bad(c, c->at - 4, "tensor \"%s\": rows of %zu elements, %s needs a multiple of %zu", t->name,
                   t->dim[0], t->type->name, t->type->block);
    if (!mul_size(t->n_elements / t->type->block, t->type->bytes, &t->bytes))
        return bad(c, at, "tensor \"%s\": its size must be below 2^64 bytes", t->name);
    if (take_number(c, 8, "offset of a tensor", &offset))
        return -1;
    if (offset != *end)
        return bad(c, c->at - 8, "tensor \"%s\": offset %zu, the data before it end at %zu", t->name,
                   (size_t)offset, *end);
    t->offset = offset;
    size_t next;
    if (!add_size(*end, t->bytes, &next) || !add_size(next, c->g->alignment - 1, &next))
        return bad(c, at, "tensor \"%s\": its data end beyond 2^64 bytes", t->name);
    *end = next / c->g->alignment * c->g->alignment;
    return 0;
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const struct gguf_tensor *const *)a)->name,
                  (*(const struct gguf_tensor *const *)b)->name);
}

static int check_names(struct cursor *c)
{
    const struct gguf *g = c->g;
    const struct gguf_tensor **p = malloc((g->n_tensors + 1) * sizeof *p);
    int rc = p ? 0 : err_set(c->e, ERR_FAILED, "%s: out of memory for %zu tensors", g->file, g->n_tensors);
    for (size_t i = 0; p && i < g->n_tensors; i++)
        p[i] = &g->tensor[i];
    if (p)
        qsort(p, g->n_tensors, sizeof *p, by_tensor_name);
    for (size_t i = 1; p && rc == 0 && i < g->n_tensors; i++)
        if (strcmp(p[i - 1]->name, p[i]->name) == 0)
            rc = err_set(c->e, ERR_INPUT, "%s: tensor \"%s\" is given twice", g->file, p[i]->name);
    free(p);
    return rc;
}

/* Reads all descriptions, and checks that the data lie in the file. Bytes after the last tensor are ignored.
 */
static int take_tensors(struct cursor *c)
{
    struct gguf *g = c->g;
    size_t end = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        if (take_tensor(c, &g->tensor[i], &end))
            return -1;
    g->data_start = (c->at + g->alignment - 1) / g->alignment * g->alignment;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        size_t last;
        if (!add_size(g->data_start, t->offset, &t->offset) || !add_size(t->offset, t->bytes, &last) ||
            last > c->size)
            return bad(c, c->at, "tensor \"%s\": its data end at byte %zu, the file has %zu: it is cut short",
                       t->name, t->offset + t->bytes, c->size);
    }
    return check_names(c);
}

/* ---- a header ---- */

static int check_magic(struct cursor *c, const uint8_t *b)
{
    const uint64_t version = little(b + 4, 4);
    if (memcmp(b, "version ", 8) == 0)
        return err_set(c->e, ERR_INPUT,
                       "%s: a Git LFS pointer, not the model itself; fetch the file (git lfs pull)",
                       c->g->file);
    if (memcmp(b, "GGUF", 4))
        return bad(c, 0, "not a GGUF file: it does not begin with GGUF");
    if (version % 65536 == 0)
        return bad(c, 4, "a GGUF file for big-endian machines (version %zu), allowed are little-endian files",
                   (size_t)(version >> 24));
    if (version != 2 && version != 3)
        return bad(c, 4, "version %zu of GGUF, allowed are 2 and 3%s", (size_t)version,
                   version == 1 ? "; convert the model again" : "");
    return 0;
}

static int read_alignment(struct gguf *g, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, "general.alignment");
    g->alignment = 32;
    if (!v)
        return 0;
    g->alignment = v->kind == GGUF_U32 && !v->is_array ? (size_t)little(v->data, 4) : 0;
    if (g->alignment < 8 || g->alignment > ALIGNMENT_MAX || (g->alignment & (g->alignment - 1)))
        return gguf_bad(g, "general.alignment", e, "allowed is a u32, a power of two from 8 to %d",
                        ALIGNMENT_MAX);
    return 0;
}

static int parse(struct cursor *c)
{
    struct gguf *g = c->g;
    const uint8_t *b = take(c, 8, "the file's head");
    uint64_t n_tensors, n_values;
    if (!b || check_magic(c, b) || take_number(c, 8, "number of tensors", &n_tensors) ||
        take_number(c, 8, "number of values", &n_values))
        return -1;
    if (n_tensors > GGUF_TENSORS_MAX || n_tensors > (c->size - 24) / 24 + 1)
        return bad(c, 8, "%zu tensors in a file of %zu bytes, at most %d are allowed", (size_t)n_tensors,
                   c->size, GGUF_TENSORS_MAX);
    if (n_values > GGUF_VALUES_MAX || n_values > (c->size - 24) / 13 + 1)
        return bad(c, 16, "%zu values in a file of %zu bytes, at most %d are allowed", (size_t)n_values,
                   c->size, GGUF_VALUES_MAX);
    g->n_values = n_values;
    g->n_tensors = n_tensors;
    g->value = calloc(n_values + 1, sizeof *g->value);
    g->tensor = calloc(n_tensors + 1, sizeof *g->tensor);
    if (!g->value || !g->tensor)
        return err_set(c->e, ERR_FAILED, "%s: out of memory for %zu values and %zu tensors", g->file,
                       (size_t)n_values, (size_t)n_tensors);
    return take_values(c) || read_alignment(g, c->e) || take_tensors(c) ? -1 : 0;
}

int gguf_parse(struct gguf *g, const char *file, const uint8_t *bytes, size_t have, size_t size,
               struct err *e)
{
    struct cursor c = { g, bytes, 0, have, size, false, e };
    assert(have <= size);
    *g = (struct gguf){ .file = file, .size = size };
    const int rc = parse(&c);
    if (rc == 0)
        return 0;
    gguf_close(g);
    return c.more ? 1 : -1;
}

int gguf_read(struct gguf *g, const char *file, int fd, size_t size, struct err *e)
{
    int rc = 1;
    *g = (struct gguf){ 0 };
    for (size_t have = MIN(size, (size_t)1 << 20); rc == 1; have = MIN(size, 4 * have)) {
        if (have > GGUF_HEADER_MAX)
            return err_set(e, ERR_INPUT, "%s: the header has more than %d bytes", file, GGUF_HEADER_MAX / 4);
        char *header = malloc(have + 1);
        if (!header)
            return err_set(e, ERR_FAILED, "%s: out of memory for a header of %zu bytes", file, have);
        for (size_t at = 0; at < have;) {
            const ssize_t r = pread(fd, header + at, have - at, (off_t)at);
            if (r < 0 && errno == EINTR)
                continue;
            if (r <= 0) {
                free(header);
                return err_set(e, r ? ERR_FAILED : ERR_INPUT, "%s: cannot read at offset %zu: %s", file, at,
                               r ? strerror(errno) : "the file became shorter");
            }
            at += (size_t)r;
        }
        rc = gguf_parse(g, file, (const uint8_t *)header, have, size, e);
        if (rc == 0) {
            g->header = header;
            g->header_bytes = have;
        } else {
            free(header);
        }
    }
    return rc;
}

void gguf_close(struct gguf *g)
{
    free(g->header);
    free(g->value);
    free(g->tensor);
    *g = (struct gguf){ 0 };
}

/* ---- look-ups ---- */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_value wanted = { .key = key, .n_key = strlen(key) };
    return g->n_values ? bsearch(&wanted, g->value, g->n_values, sizeof *g->value, by_key) : NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensor[i].name, name) == 0)
            return &g->tensor[i];
    return NULL;
}

int gguf_bad(const struct gguf *g, const char *key, struct err *e, const char *what, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return err_set(e, ERR_INPUT, "%s: %s: %s", g->file, key, text);
}

static bool is_integer(enum gguf_kind k)
{
    return k <= GGUF_I32 || k == GGUF_U64 || k == GGUF_I64;
}

int64_t gguf_int_at(const struct gguf_value *v, size_t i)
{
    const size_t n = kind_bytes[v->kind];
    const uint64_t x = little(v->data + i * n, n);
    switch (v->kind) {
    case GGUF_I8:  return (int8_t)x;
    case GGUF_I16: return (int16_t)x;
    case GGUF_I32: return (int32_t)x;
    case GGUF_U64: return x > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)x;
    default:       return (int64_t)x;
    }
}

double gguf_real_at(const struct gguf_value *v, size_t i)
{
    union { uint32_t u; float f; } x;
    union { uint64_t u; double d; } y;
    if (v->kind == GGUF_F32) {
        x.u = (uint32_t)little(v->data + 4 * i, 4);
        return (double)x.f;
    }
    if (v->kind == GGUF_F64) {
        y.u = little(v->data + 8 * i, 8);
        return y.d;
    }
    return (double)gguf_int_at(v, i);
}

int gguf_uint(const struct gguf *g, const char *key, size_t per_layer, size_t lo, size_t hi, size_t *x,
              struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v)
        return 0;
    if (!is_integer(v->kind) || (v->is_array && !per_layer))
        return gguf_bad(g, key, e, "a whole number is needed");
    if (v->is_array && v->n != per_layer)
        return gguf_bad(g, key, e, "an array of %zu elements, one for each of %zu layers is needed", v->n,
                        per_layer);
    for (size_t i = 0; i < v->n; i++) {
        const int64_t n = gguf_int_at(v, i);
        if (n < 0 || (uint64_t)n < lo || (uint64_t)n > hi)
            return gguf_bad(g, key, e, "found %lld, allowed are %zu to %zu", (long long)n, lo, hi);
        if (n != gguf_int_at(v, 0))
            return gguf_bad(g, key, e,
                            "layers with %lld and %lld: layers of different sizes are not supported",
                            (long long)gguf_int_at(v, 0), (long long)n);
        *x = (size_t)n;
    }
    return 1;
}

int gguf_integers(const struct gguf *g, const char *key, size_t n, size_t lo, size_t hi,
                  const struct gguf_value **list, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || !v->is_array || !is_integer(v->kind) || v->n != n)
        return gguf_bad(g, key, e, "an array of %zu whole numbers is needed", n);
    for (size_t i = 0; i < n; i++) {
        const int64_t x = gguf_int_at(v, i);
        if (x < 0 || (uint64_t)x < lo || (uint64_t)x > hi)
            return gguf_bad(g, key, e, "found %lld, allowed are %zu to %zu", (long long)x, lo, hi);
    }
    *list = v;
    return 0;
}

int gguf_token_id(const struct gguf *g, const char *key, size_t n, size_t *id, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (v && !v->is_array && is_integer(v->kind) && (uint64_t)gguf_int_at(v, 0) >= n)
        return 0;
    return gguf_uint(g, key, 0, 0, n - 1, id, e);
}

int gguf_real(const struct gguf *g, const char *key, double lo, double hi, double *x, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v)
        return 0;
    if (v->is_array || v->kind == GGUF_STRING || v->kind == GGUF_BOOL)
        return gguf_bad(g, key, e, "a number is needed");
    const double y = gguf_real_at(v, 0);
    if (!isfinite(y) || y < lo || y > hi)
        return gguf_bad(g, key, e, "found %g, allowed are %g to %g", y, lo, hi);
    *x = y;
    return 1;
}

int gguf_bool(const struct gguf *g, const char *key, bool *x, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v)
        return 0;
    if (v->is_array || v->kind != GGUF_BOOL)
        return gguf_bad(g, key, e, "a bool is needed");
    *x = v->data[0];
    return 1;
}

static struct slice string_at(const uint8_t *p)
{
    return (struct slice){ p + 8, (size_t)little(p, 8) };
}

int gguf_string(const struct gguf *g, const char *key, struct slice *s, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v)
        return 0;
    if (v->is_array || v->kind != GGUF_STRING)
        return gguf_bad(g, key, e, "a string is needed");
    *s = string_at(v->data);
    if (utf8_valid_prefix(s->p, s->n) < s->n || memchr(s->p, 0, s->n))
        return gguf_bad(g, key, e, "a string that is not UTF-8 or holds a NUL");
    return 1;
}

int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind, const struct gguf_value **v,
               struct err *e)
{
    static const char *const wanted[] = { [GGUF_I32] = "whole numbers", [GGUF_F32] = "numbers",
                                          [GGUF_STRING] = "strings", [GGUF_BOOL] = "booleans" };
    *v = gguf_find(g, key);
    if (!*v)
        return 0;
    const enum gguf_kind k = (*v)->kind;
    const bool fits = kind == GGUF_STRING || kind == GGUF_BOOL ? k == kind : is_integer(k) ||
                      (kind == GGUF_F32 && (k == GGUF_F32 || k == GGUF_F64));
    return (*v)->is_array && fits ? 1 : gguf_bad(g, key, e, "an array of %s is needed", wanted[kind]);
}

bool gguf_next_string(const struct gguf_value *v, size_t *at, struct slice *s)
{
    if (*at >= v->bytes)
        return false;
    *s = string_at(v->data + *at);
    *at += 8 + s->n;
    return true;
}
