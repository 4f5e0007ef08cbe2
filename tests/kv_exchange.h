/* For tests: rows of a cache in the host's memory. */
#pragma once
#include <string.h>

#include "kvmgr/kv.h"
#include "tests/kv_get.h"

/* Copies committed rows from .. from+n-1 to `rows`, or (load) the other way; kv_rows_bytes is their size. */
static inline void kv_exchange(struct kv *kv, size_t from, size_t n, char *p, bool load)
{
    assert(from + n <= kv->n_max && !kv->n_shared && kv->head_dim <= 1024);
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n; h++)
            for (size_t s = from; s < from + n; s++) {
                const size_t d = kv_layer(kv, l).dim, bytes = kv_row_bytes(kv->type, d);
                char *block = kv_block(kv, l, h, s);
                float row[2 * 1024 + 2];
                if (load) {
                    memcpy(row, p, bytes);
                    kv_put(block, kv->type, d, s % KV_BLOCK, row);
                } else {
                    kv_get(row, kv->type, d, s % KV_BLOCK, block);
                    memcpy(p, row, bytes);
                }
                p += bytes;
            }
}
