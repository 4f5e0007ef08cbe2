/* Writing of GGUF headers. Numbers are little-endian, as on every machine that longhand runs on. */
#include "src/model/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"

enum { VERSION = 3 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

int gguf_out_open(struct gguf_out *o, struct err *e)
{
    *o = (struct gguf_out){ 0 };
    o->values = memory_file(&o->text[0], &o->bytes[0]);
    o->tensors = memory_file(&o->text[1], &o->bytes[1]);
    if (o->values && o->tensors)
        return 0;
    gguf_out_close(o);
    return err_set(e, ERR_FAILED, "out of memory for a GGUF header");
}

void gguf_out_close(struct gguf_out *o)
{
    if (o->values)
        fclose(o->values);
    if (o->tensors)
        fclose(o->tensors);
    free(o->text[0]);
    free(o->text[1]);
    *o = (struct gguf_out){ 0 };
}

static void put(FILE *f, const void *p, size_t n) { fwrite(p, 1, n, f); }
static void put_u64(FILE *f, uint64_t x) { put(f, &x, 8); }
static void put_u32(FILE *f, uint32_t x) { put(f, &x, 4); }

static void put_string(FILE *f, const char *s, size_t n)
{
    put_u64(f, n);
    put(f, s, n);
}

static void put_key(struct gguf_out *o, const char *key, enum gguf_kind kind)
{
    put_string(o->values, key, strlen(key));
    put_u32(o->values, kind);
    o->n_values++;
}

void gguf_add_u32(struct gguf_out *o, uint32_t x) { put_u32(o->values, x); }
void gguf_add_f32(struct gguf_out *o, float x) { put(o->values, &x, 4); }
void gguf_add_text(struct gguf_out *o, const char *s, size_t n) { put_string(o->values, s, n); }

void gguf_put_uint(struct gguf_out *o, const char *key, size_t x)
{
    assert(x <= UINT32_MAX);
    put_key(o, key, GGUF_U32);
    put_u32(o->values, (uint32_t)x);
}

void gguf_put_real(struct gguf_out *o, const char *key, double x)
{
    put_key(o, key, GGUF_F32);
    gguf_add_f32(o, (float)x);
}

void gguf_add_bool(struct gguf_out *o, bool x)
{
    const uint8_t b = x;
    put(o->values, &b, 1);
}

void gguf_put_bool(struct gguf_out *o, const char *key, bool x)
{
    put_key(o, key, GGUF_BOOL);
    gguf_add_bool(o, x);
}

void gguf_put_text(struct gguf_out *o, const char *key, const char *s, size_t n)
{
    put_key(o, key, GGUF_STRING);
    put_string(o->values, s, n);
}

void gguf_put_array(struct gguf_out *o, const char *key, enum gguf_kind kind, size_t n)
{
    put_key(o, key, GGUF_ARRAY);
    put_u32(o->values, kind);
    put_u64(o->values, n);
}

void gguf_put_tensor(struct gguf_out *o, const char *name, const size_t *dim, size_t n_dims,
                     const struct gguf_type *type)
{
    size_t elements = 1;
    assert(strlen(name) <= GGUF_NAME_MAX && n_dims >= 1 && n_dims <= GGUF_DIMS_MAX);
    put_string(o->tensors, name, strlen(name));
    put_u32(o->tensors, (uint32_t)n_dims);
    for (size_t i = 0; i < n_dims; i++) {
        put_u64(o->tensors, dim[i]);
        elements *= dim[i];
    }
    put_u32(o->tensors, type->id);
    put_u64(o->tensors, o->data_bytes);
    o->data_bytes += gguf_padded(elements / type->block * type->bytes);
    o->n_tensors++;
}

int gguf_out_header(struct gguf_out *o, char **header, size_t *n, struct err *e)
{
    const bool failed =
        (fflush(o->values) | fflush(o->tensors) | ferror(o->values) | ferror(o->tensors)) != 0;
    const uint32_t version = VERSION;
    const uint64_t count[] = { o->n_tensors, o->n_values };
    *n = gguf_padded(8 + sizeof count + o->bytes[0] + o->bytes[1]);
    *header = failed ? NULL : calloc(1, *n);
    if (!*header)
        return err_set(e, ERR_FAILED, "out of memory for a GGUF header");
    char *p = *header;
    memcpy(p, "GGUF", 4);
    memcpy(p + 4, &version, 4);
    memcpy(p + 8, count, sizeof count);
    memcpy(p + 8 + sizeof count, o->text[0], o->bytes[0]);
    memcpy(p + 8 + sizeof count + o->bytes[0], o->text[1], o->bytes[1]);
    return 0;
}
