/* The GGUF container, versions 2 and 3: metadata (typed values by key) and descriptions of tensors. What keys
 * and tensors mean for a model is the business of src/model/gguf_model.h.
 *
 * A header is read through one bounded cursor and checked as a whole: counts and lengths against the bytes
 * that are left before anything is allocated, every product and sum for overflow, no key and no tensor twice,
 * dimensions and types, offsets that follow each other without gap or overlap, and data that end with the
 * file. Every failure is one line with file, offset, and what is allowed. */
#pragma once
#include <string.h>

#include "kernels/ops.h"
#include "src/base/base.h"

enum { GGUF_TENSORS_MAX = 65536, GGUF_VALUES_MAX = 65536, GGUF_DIMS_MAX = 4, GGUF_NAME_MAX = 63,
       GGUF_HEADER_MAX = 512 << 20 };

enum gguf_kind { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
                 GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_KINDS };

/* A value, or an array of n elements of one kind. The bytes lie in the header, little-endian and
 * unaligned. */
struct gguf_value {
    const char *key; size_t n_key;       /* no NUL follows */
    enum gguf_kind kind;                 /* of the value, or of the elements */
    bool is_array; size_t n;             /* elements; 1 for a value */
    const uint8_t *data; size_t bytes;
};

/* The types of tensors that can be read. */
struct gguf_type { uint32_t id; const char *name; size_t block, bytes; enum dtype dtype; };
extern const struct gguf_type gguf_types[];          /* name NULL ends the list */

struct gguf_tensor {
    char name[GGUF_NAME_MAX + 1];
    const struct gguf_type *type;
    size_t n_dims, dim[GGUF_DIMS_MAX];   /* dim[0] is contiguous; the missing ones are 1 */
    size_t n_elements, bytes;
    size_t offset;                       /* from the start of the file */
};

struct gguf {                            /* {0} is closed */
    const char *file;                    /* borrowed, for messages */
    char *header;                        /* the bytes that values point into; NULL: borrowed (gguf_parse) */
    size_t size, n_values, n_tensors, alignment, data_start;
    struct gguf_value *value;            /* sorted by key */
    struct gguf_tensor *tensor;          /* in the order of the file */
};

/* Reads the header of the open file of `size` bytes. `file` must outlive g. */
int  gguf_read(struct gguf *g, const char *file, int fd, size_t size, struct err *e);
/* Parses the first `have` bytes of a file of `size` bytes, which must outlive g. Returns 1 if more bytes are
 * needed: never if have == size. */
int  gguf_parse(struct gguf *g, const char *file, const uint8_t *bytes, size_t have, size_t size,
                struct err *e);
void gguf_close(struct gguf *g);

/* NULL if there is no such key. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);

/* The typed getters return 1 if the key exists, 0 if not (*x stays), -1 if its value has another type or lies
 * outside of lo .. hi. Any integer type serves for a whole number. An array whose elements are all equal
 * serves for its element where `per_layer` is not 0: then it has so many elements. */
int gguf_uint(const struct gguf *g, const char *key, size_t per_layer, size_t lo, size_t hi, size_t *x,
              struct err *e);
/* A key that must be an array of n whole numbers from lo to hi. 0, or -1. */
int gguf_integers(const struct gguf *g, const char *key, size_t n, size_t lo, size_t hi,
                  const struct gguf_value **list, struct err *e);
/* The id of one of n tokens. Ids from n on count as missing: converters write them for tokens that a model
 * does not have. */
int gguf_token_id(const struct gguf *g, const char *key, size_t n, size_t *id, struct err *e);
int gguf_real(const struct gguf *g, const char *key, double lo, double hi, double *x, struct err *e);
int gguf_bool(const struct gguf *g, const char *key, bool *x, struct err *e);
/* A string of valid UTF-8 without NUL. *s is followed by no NUL. */
int gguf_string(const struct gguf *g, const char *key, struct slice *s, struct err *e);
/* An array of that kind: 1, 0 or -1. Integers of any type serve for GGUF_I32, any real for GGUF_F32. */
int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind, const struct gguf_value **v,
               struct err *e);
/* What a getter returned, of a key that must exist: 0, or -1 and an error. */
int gguf_need(const struct gguf *g, const char *key, int found, struct err *e);
/* Elements in order: of an array of strings the next one and the i-th (false after the end), of an array of
 * numbers the i-th. */
bool gguf_next_string(const struct gguf_value *v, size_t *at, struct slice *s);
bool gguf_string_at(const struct gguf_value *v, size_t i, struct slice *s);
int64_t gguf_int_at(const struct gguf_value *v, size_t i);
double gguf_real_at(const struct gguf_value *v, size_t i);
/* An error about a key: "FILE: KEY: <what>". what: a format and its values. */
#define gguf_bad(g, key, e, ...) (err_set(e, ERR_INPUT, __VA_ARGS__), err_while(e, "%s: %s", (g)->file, key))
static inline bool slice_is(struct slice s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}
/* The beginning of a slice in a message: two arguments of "%.*s". */
#define SHOWN(s) (int)MIN((s).n, (size_t)100), (const char *)(s).p
