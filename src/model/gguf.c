/* Reading of GGUF headers: a cursor over the bytes, values, tensors, and typed look-ups. Start at
 * gguf_parse. */
#include "src/model/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT_MAX = 65536, KEY_MAX = 65535 };

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
    struct slice key;                    /* of the value that is read */
    const struct gguf_tensor *tensor;    /* that is read, once it has a name */
    struct err *e;
};

/* Sets "file: offset N: key or tensor: ..."; returns -1. */
static int bad(struct cursor *c, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int bad(struct cursor *c, size_t at, const char *fmt, ...)
{
    char text[600], about[GGUF_NAME_MAX + 60] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->tensor)
        snprintf(about, sizeof about, "tensor \"%s\": ", c->tensor->name);
    else if (c->key.n)
        snprintf(about, sizeof about, "%.*s: ", SHOWN(c->key));
    return err_set(c->e, ERR_INPUT, "%s: offset %zu: %s%s", c->g->file, at, about, text);
}

/* The next n bytes, or NULL: the file ends, or more bytes are needed (c->more). */
static const uint8_t *take(struct cursor *c, size_t n, const char *what)
{
    if (n > c->size - c->at) {
        bad(c, c->at, "%s: %zu bytes are needed, the file has %zu more: it is cut short", what, n,
            c->size - c->at);
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
        return bad(c, at, "%s: a string of %zu bytes, the file has %zu more: it is cut short or damaged",
                   what, (size_t)n, c->size - c->at);
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

static int take_array(struct cursor *c, struct gguf_value *v)
{
    const size_t at = c->at;
    uint64_t kind, n;
    if (take_number(c, 4, "type of an array", &kind) || take_number(c, 8, "length of an array", &n))
        return -1;
    if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
        return bad(c, at, "an array of type %zu, allowed are 0 to 8 and 10 to 12", (size_t)kind);
    v->kind = (enum gguf_kind)kind;
    v->n = n;
    if (n > (c->size - c->at) / kind_bytes[kind])
        return bad(c, at + 4, "an array of %zu elements, the file has %zu more bytes: it is cut short or "
                   "damaged", (size_t)n, c->size - c->at);
    v->data = c->p + c->at;
    if (kind == GGUF_STRING)
        return take_strings(c, n);
    return take(c, n * kind_bytes[kind], "an array") ? 0 : -1;
}

static int check_bools(struct cursor *c, const struct gguf_value *v)
{
    for (size_t i = 0; v->kind == GGUF_BOOL && i < v->n; i++)
        if (v->data[i] > 1)
            return bad(c, (size_t)(v->data - c->p) + i, "a bool of %u, allowed are 0 and 1", v->data[i]);
    return 0;
}

static int take_value(struct cursor *c, struct gguf_value *v)
{
    const size_t at = c->at;
    struct slice key, s;
    uint64_t kind;
    c->key = (struct slice){ 0 };
    if (take_string(c, "a key", KEY_MAX, &key))
        return -1;
    if (!is_name(key))
        return bad(c, at, "a key that is empty or holds control characters");
    c->key = key;
    if (take_number(c, 4, "type of a value", &kind))
        return -1;
    if (kind >= GGUF_KINDS)
        return bad(c, c->at - 4, "a value of type %zu, allowed are 0 to 12", (size_t)kind);
    *v = (struct gguf_value){ key.p, key.n, (enum gguf_kind)kind, kind == GGUF_ARRAY, 1, c->p + c->at, 0 };
    if (v->is_array            ? take_array(c, v)
        : kind == GGUF_STRING ? take_string(c, "a string", SIZE_MAX, &s)
                              : !take(c, kind_bytes[kind], "a value"))
        return -1;
    v->bytes = c->at - (size_t)(v->data - c->p);
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
    struct gguf_value *v = c->g->value;
    for (size_t i = 0; i < c->g->n_values; i++)
        if (take_value(c, &v[i]))
            return -1;
    qsort(v, c->g->n_values, sizeof *v, by_key);
    for (size_t i = 1; i < c->g->n_values; i++) {
        c->key = (struct slice){ v[i].key, v[i].n_key };
        if (by_key(&v[i - 1], &v[i]) == 0)
            return bad(c, (size_t)((const uint8_t *)v[i].key - c->p), "the key is given twice");
    }
    c->key = (struct slice){ 0 };
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
            return bad(c, c->at - 4, "type %zu was removed from the format; convert the model again",
                       (size_t)id);
        else if (refused[i].id == id)
            return bad(c, c->at - 4,
                       "type %s is not supported; supported are F32, F16, BF16, Q1_0, Q2_0, Q4_0 to Q8_0, "
                       "Q2_K to Q6_K, IQ1_S to IQ4_XS, MXFP4, NVFP4, TQ1_0 and TQ2_0", refused[i].name);
    return bad(c, c->at - 4, "type %zu is unknown", (size_t)id);
}

static int take_dims(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t n, d;
    if (take_number(c, 4, "dimensions of a tensor", &n))
        return -1;
    if (n < 1 || n > GGUF_DIMS_MAX)
        return bad(c, c->at - 4, "%zu dimensions, allowed are 1 to %d", (size_t)n, GGUF_DIMS_MAX);
    t->n_dims = n;
    t->n_elements = 1;
    for (size_t i = 0; i < GGUF_DIMS_MAX; i++)
        t->dim[i] = 1;
    for (size_t i = 0; i < n; i++) {
        if (take_number(c, 8, "a dimension", &d))
            return -1;
        if (d < 1 || d > (size_t)INT64_MAX / t->n_elements)
            return bad(c, c->at - 8,
                       "dimension %zu is %zu; allowed are 1 and more, with a product below 2^63", i,
                       (size_t)d);
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
    size_t next;
    c->tensor = NULL;
    if (take_string(c, "name of a tensor", GGUF_NAME_MAX, &name))
        return -1;
    if (!is_name(name))
        return bad(c, at, "a tensor's name that is empty or holds control characters");
    memcpy(t->name, name.p, name.n);
    c->tensor = t;
    if (take_dims(c, t) || take_type(c, t))
        return -1;
    if (t->dim[0] % t->type->block)
        return bad(c, c->at - 4, "rows of %zu elements, %s needs a multiple of %zu", t->dim[0],
                   t->type->name, t->type->block);
    if (!mul_size(t->n_elements / t->type->block, t->type->bytes, &t->bytes))
        return bad(c, at, "its size must be below 2^64 bytes");
    if (take_number(c, 8, "offset of a tensor", &offset))
        return -1;
    if (offset != *end)
        return bad(c, c->at - 8, "offset %zu, the data before it end at %zu", (size_t)offset, *end);
    t->offset = offset;
    if (!add_size(*end, t->bytes, &next) || !add_size(next, c->g->alignment - 1, &next))
        return bad(c, at, "its data end beyond 2^64 bytes");
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
    size_t end = 0, start, last;
    for (size_t i = 0; i < g->n_tensors; i++)
        if (take_tensor(c, &g->tensor[i], &end))
            return -1;
    g->data_start = (c->at + g->alignment - 1) / g->alignment * g->alignment;
    for (struct gguf_tensor *t = g->tensor; t < g->tensor + g->n_tensors; t++) {
        c->tensor = t;
        if (!add_size(g->data_start, t->offset, &start) || !add_size(start, t->bytes, &last))
            last = SIZE_MAX;
        if (last > c->size)
            return bad(c, c->at, "its data end at byte %zu, the file has %zu: it is cut short", last,
                       c->size);
        t->offset = start;
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
    const size_t n = !v ? 32 : v->kind == GGUF_U32 && !v->is_array ? (size_t)little(v->data, 4) : 0;
    g->alignment = n;
    return n >= 8 && n <= ALIGNMENT_MAX && !(n & (n - 1))
               ? 0
               : gguf_bad(g, "general.alignment", e, "allowed is a u32, a power of two from 8 to %d",
                          ALIGNMENT_MAX);
}

static int parse(struct cursor *c)
{
    struct gguf *g = c->g;
    const uint8_t *b = take(c, 8, "the file's head");
    uint64_t n_tensors, n_values;
    if (!b || check_magic(c, b) || take_number(c, 8, "number of tensors", &n_tensors) ||
        take_number(c, 8, "number of values", &n_values))
        return -1;
    if (n_tensors > GGUF_TENSORS_MAX)
        return bad(c, 8, "%zu tensors in a file of %zu bytes, at most %d are allowed", (size_t)n_tensors,
                   c->size, GGUF_TENSORS_MAX);
    if (n_values > GGUF_VALUES_MAX)
        return bad(c, 16, "%zu values in a file of %zu bytes, at most %d are allowed", (size_t)n_values,
                   c->size, GGUF_VALUES_MAX);
    if (n_tensors > (c->size - 24) / 24 + 1 || n_values > (c->size - 24) / 13 + 1)
        return bad(c, 8, "%zu tensors and %zu values in a file of %zu bytes: it is cut short",
                   (size_t)n_tensors, (size_t)n_values, c->size);
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
    struct cursor c = { .g = g, .p = bytes, .have = have, .size = size, .e = e };
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
        rc = read_at(fd, file, header, 0, have, e);
        if (rc == 0)
            rc = gguf_parse(g, file, (const uint8_t *)header, have, size, e);
        if (rc)
            free(header);
        else
            g->header = header;
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

/* Kinds of values, and of arrays, as bits. */
#define BIT(kind) (1u << (kind))
#define ARRAYS(kinds) ((kinds) << 16)
enum { INTEGERS = BIT(GGUF_U8) | BIT(GGUF_I8) | BIT(GGUF_U16) | BIT(GGUF_I16) | BIT(GGUF_U32) |
                  BIT(GGUF_I32) | BIT(GGUF_U64) | BIT(GGUF_I64),
       NUMBERS = INTEGERS | BIT(GGUF_F32) | BIT(GGUF_F64) };

static bool is_of(const struct gguf_value *v, unsigned kinds)
{
    return kinds & (v->is_array ? ARRAYS(BIT(v->kind)) : BIT(v->kind));
}

/* Finds a value that must be of one of the kinds: 1, 0 or -1. */
static int find_of(const struct gguf *g, const char *key, unsigned kinds, const char *needed,
                   const struct gguf_value **v, struct err *e)
{
    *v = gguf_find(g, key);
    return !*v ? 0 : is_of(*v, kinds) ? 1 : gguf_bad(g, key, e, "%s is needed", needed);
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
    float x;
    double y;
    if (v->kind == GGUF_F32)
        return (double)*(float *)memcpy(&x, v->data + 4 * i, sizeof x);
    if (v->kind == GGUF_F64)
        return *(double *)memcpy(&y, v->data + 8 * i, sizeof y);
    return (double)gguf_int_at(v, i);
}

/* Checks that all elements are from lo to hi. */
static int check_range(const struct gguf *g, const char *key, const struct gguf_value *v, size_t lo,
                       size_t hi, struct err *e)
{
    for (size_t i = 0; i < v->n; i++) {
        const int64_t x = gguf_int_at(v, i);
        if (x < 0 || (uint64_t)x < lo || (uint64_t)x > hi)
            return gguf_bad(g, key, e, "found %lld, allowed are %zu to %zu", (long long)x, lo, hi);
    }
    return 0;
}

int gguf_uint(const struct gguf *g, const char *key, size_t per_layer, size_t lo, size_t hi, size_t *x,
              struct err *e)
{
    const struct gguf_value *v;
    const int found = find_of(g, key, per_layer ? INTEGERS | ARRAYS(INTEGERS) : INTEGERS,
                              "a whole number", &v, e);
    if (found <= 0)
        return found;
    if (v->is_array && v->n != per_layer)
        return gguf_bad(g, key, e, "an array of %zu elements, one for each of %zu layers is needed", v->n,
                        per_layer);
    if (check_range(g, key, v, lo, hi, e))
        return -1;
    const int64_t first = gguf_int_at(v, 0);
    for (size_t i = 1; i < v->n; i++)
        if (gguf_int_at(v, i) != first)
            return gguf_bad(g, key, e,
                            "layers with %lld and %lld: layers of different sizes are not supported",
                            (long long)first, (long long)gguf_int_at(v, i));
    *x = (size_t)first;
    return 1;
}

int gguf_integers(const struct gguf *g, const char *key, size_t n, size_t lo, size_t hi,
                  const struct gguf_value **list, struct err *e)
{
    *list = gguf_find(g, key);
    return *list && is_of(*list, ARRAYS(INTEGERS)) && (*list)->n == n
               ? check_range(g, key, *list, lo, hi, e)
               : gguf_bad(g, key, e, "an array of %zu whole numbers is needed", n);
}

int gguf_token_id(const struct gguf *g, const char *key, size_t n, size_t *id, struct err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && is_of(v, INTEGERS) && (uint64_t)gguf_int_at(v, 0) >= n ? 0
                                                                     : gguf_uint(g, key, 0, 0, n - 1, id, e);
}

int gguf_real(const struct gguf *g, const char *key, double lo, double hi, double *x, struct err *e)
{
    const struct gguf_value *v;
    const int found = find_of(g, key, NUMBERS, "a number", &v, e);
    if (found <= 0)
        return found;
    const double y = gguf_real_at(v, 0);
    if (!isfinite(y) || y < lo || y > hi)
        return gguf_bad(g, key, e, "found %g, allowed are %g to %g", y, lo, hi);
    *x = y;
    return 1;
}

int gguf_bool(const struct gguf *g, const char *key, bool *x, struct err *e)
{
    const struct gguf_value *v;
    const int found = find_of(g, key, BIT(GGUF_BOOL), "a bool", &v, e);
    if (found > 0)
        *x = v->data[0];
    return found;
}

int gguf_string(const struct gguf *g, const char *key, struct slice *s, struct err *e)
{
    const struct gguf_value *v;
    const int found = find_of(g, key, BIT(GGUF_STRING), "a string", &v, e);
    if (found <= 0)
        return found;
    gguf_next_string(v, &(size_t){ 0 }, s);
    return utf8_valid_prefix(s->p, s->n) == s->n && !memchr(s->p, 0, s->n)
               ? 1
               : gguf_bad(g, key, e, "a string that is not UTF-8 or holds a NUL");
}

int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind, const struct gguf_value **v,
               struct err *e)
{
    static const struct { unsigned kinds; const char *needed; } of[] = {
        [GGUF_I32] = { ARRAYS(INTEGERS), "an array of whole numbers" },
        [GGUF_F32] = { ARRAYS(NUMBERS), "an array of numbers" },
        [GGUF_STRING] = { ARRAYS(BIT(GGUF_STRING)), "an array of strings" },
        [GGUF_BOOL] = { ARRAYS(BIT(GGUF_BOOL)), "an array of booleans" },
    };
    return find_of(g, key, of[kind].kinds, of[kind].needed, v, e);
}

int gguf_need(const struct gguf *g, const char *key, int found, struct err *e)
{
    return found ? MIN(found, 0) : gguf_bad(g, key, e, "the key is missing");
}

bool gguf_next_string(const struct gguf_value *v, size_t *at, struct slice *s)
{
    if (*at >= v->bytes)
        return false;
    *s = (struct slice){ v->data + *at + 8, (size_t)little(v->data + *at, 8) };
    *at += 8 + s->n;
    return true;
}

bool gguf_string_at(const struct gguf_value *v, size_t i, struct slice *s)
{
    size_t at = 0;
    while (gguf_next_string(v, &at, s))
        if (i-- == 0)
            return true;
    return false;
}
