/* Writing of GGUF files, version 3: metadata and descriptions of tensors first, then the data.
 *
 *     gguf_out_open(&o)
 *     gguf_put_uint(&o, "llama.block_count", 6) ...        the metadata, in any order
 *     gguf_put_tensor(&o, "output_norm.weight", ...) ...   all tensors; offsets follow each other
 *     gguf_out_header(&o, &header, &n, e)                  then write it, and each tensor padded to GGUF_PAD
 *     gguf_out_close(&o)
 *
 * The writer keeps failures of memory until gguf_out_header. */
#pragma once
#include "src/model/gguf.h"

enum { GGUF_PAD = 32 };

struct gguf_out {
    FILE *values, *tensors;              /* into memory */
    char *text[2]; size_t bytes[2];
    size_t n_values, n_tensors, data_bytes;
};

int  gguf_out_open(struct gguf_out *o, struct err *e);
void gguf_out_close(struct gguf_out *o);
void gguf_put_uint(struct gguf_out *o, const char *key, size_t x);           /* u32 */
void gguf_put_real(struct gguf_out *o, const char *key, double x);           /* f32 */
void gguf_put_bool(struct gguf_out *o, const char *key, bool x);
void gguf_put_text(struct gguf_out *o, const char *key, const char *s, size_t n);
/* An array of n elements; the caller adds them with gguf_add_*. */
void gguf_put_array(struct gguf_out *o, const char *key, enum gguf_kind kind, size_t n);
void gguf_add_text(struct gguf_out *o, const char *s, size_t n);
void gguf_add_u32(struct gguf_out *o, uint32_t x);
void gguf_add_f32(struct gguf_out *o, float x);
void gguf_add_bool(struct gguf_out *o, bool x);
/* dim[0] is contiguous. */
void gguf_put_tensor(struct gguf_out *o, const char *name, const size_t *dim, size_t n_dims,
                     const struct gguf_type *type);
/* The bytes before the data; the caller frees them. */
int  gguf_out_header(struct gguf_out *o, char **header, size_t *n, struct err *e);
static inline size_t gguf_padded(size_t n) { return (n + GGUF_PAD - 1) / GGUF_PAD * GGUF_PAD; }
