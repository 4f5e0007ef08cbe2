/* For tests: kv_put (kernels/ops.h) the other way, from the slot of a block to the stored row. */
#pragma once
#include <string.h>

#include "kernels/ops.h"

static inline void kv_get(void *stored, enum dtype t, size_t head_dim, size_t slot, const void *block)
{
    const struct kv_form f = kv_form(t);
    const size_t word = f.k == DT_I8 ? 2 : 4, words = kv_bytes_of(f.k, head_dim) / word,
                 scales = f.q == DT_I16 ? 2 : 0, n_v = f.v == DT_I4 ? head_dim / 2 : head_dim,
                 element = kv_bytes_of(f.v, head_dim) / n_v, side = f.v == DT_F32 ? 1 : 2;
    const char *k = block, *scale = k + words * word * KV_BLOCK, *v = scale + scales * 4 * KV_BLOCK;
    char *row = stored;
    for (size_t i = 0; i < words; i++, row += word)
        memcpy(row, k + (i * KV_BLOCK + slot) * word, word);
    for (size_t i = 0; i < n_v; i++, row += element)
        memcpy(row, v + ((slot / side * n_v + i) * side + slot % side) * element, element);
    for (size_t i = 0; i < scales; i++, row += 4)
        memcpy(row, scale + (i * KV_BLOCK + slot) * 4, 4);
}
