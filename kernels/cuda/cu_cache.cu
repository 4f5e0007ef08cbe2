/* Caches: copies of rows, and selection of the most important rows. */
#include <assert.h>
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

/* Address of a row of K; the row of V is 64 rows further on. `at`: layer * heads + head. */
FN char *cache_row(const struct cu_cache *c, size_t at, size_t heads, size_t slot, size_t dp)
{
    return cache_block(c->base + at / heads * c->layer_bytes + at % heads * c->head_bytes,
                       c->shared + at * c->n_shared, c->n_shared, slot / CU_BLOCK, dp) +
           slot % CU_BLOCK * dp * 2;
}

/* One warp for each row, layer and head: block (row, layer * heads + head). */
KERNEL(kv_copy, kv_copy, WARP, 1)
{
    const size_t i = block_x(), layer = block_y() / a.n_kv_heads, head = block_y() % a.n_kv_heads,
                 v = CU_BLOCK * (size_t)a.dp * 2;
    const unsigned chunks = a.dp / 8;            /* 16-byte pieces in a row of K */
    depend_wait();
    const size_t from = a.from[(size_t)block_y() * a.from_step + i], to = a.to ? a.to[i] : a.to0 + i;
    char *dst = cache_row(&a.dst, block_y(), a.n_kv_heads, to, a.dp);
    const char *k =
        a.nodes ? a.src.scratch + layer * a.src.node_layer_bytes + (from * a.n_kv_heads + head) * 4 * a.dp
                : cache_row(&a.src, block_y(), a.n_kv_heads, from, a.dp);
    for (unsigned c = lane(); c < 2 * chunks; c += WARP) {
        uint32_t w[4];
        const unsigned in = c % chunks * 16;
        load16(w, k + in + (c < chunks ? 0 : a.nodes ? (size_t)a.dp * 2 : v));
        store16(dst + in + (c < chunks ? 0 : v), w);
    }
}

KERNEL(kv_zero, kv_zero, WARP, 1)
{
    const size_t v = CU_BLOCK * (size_t)a.dp * 2;
    const unsigned chunks = a.dp / 8;
    const uint32_t zero[4] = { 0, 0, 0, 0 };
    depend_wait();
    char *dst = cache_row(&a.dst, block_y(), a.n_kv_heads, (size_t)a.from + block_x(), a.dp);
    for (unsigned c = lane(); c < 2 * chunks; c += WARP)
        store16(dst + c % chunks * 16 + (c < chunks ? 0 : v), zero);
}

enum { SELECT_AT_ONCE = 8 };
struct selecting { uint32_t hist[256]; uint64_t cut; uint32_t left, taken, found; };     /* shared memory */

/* Loads a thread's keys i, i + threads(), .. of n, after `first`: they order candidates by score, the later
 * position first on ties. It issues several loads before it uses one,
 * as sample_load does. Key 0 stands for none, because positions are above the sinks. */
FN void select_keys(uint64_t key[SELECT_AT_ONCE], const float *score, uint32_t first, uint32_t i, uint32_t n)
{
    float x[SELECT_AT_ONCE];
    UNROLL_ALL
    for (unsigned j = 0; j < SELECT_AT_ONCE; j++)
        x[j] = i + j * threads() < n ? score[first + i + j * threads()] : 0;
    UNROLL_ALL
    for (unsigned j = 0; j < SELECT_AT_ONCE; j++)
        key[j] = i + j * threads() < n ? ordered_key(x[j], first + i + j * threads()) : 0;
}
#define SELECT_EACH(i, n) for (uint32_t i = tid(); i < (n); i += SELECT_AT_ONCE * threads())

/* One block for each head and layer: (head, layer). Finds the want-th largest key by 8-bit digits from the
 * top, while more keys than wanted begin with the digits found so far. Then sorts the keys that are not below
 * it. */
KERNEL(kv_select, kv_select, CU_SELECT_THREADS, 2)
{
    const size_t at = block_y() * (size_t)a.n_kv_heads + block_x();
    struct selecting *s = (struct selecting *)shared();
    static_assert(sizeof *s <= CU_SELECT_SHARED, "cu_args.h");
    depend_wait();
    const uint32_t from = a.from[block_y()], want = a.budget - a.sinks,
                   first = from > a.sinks ? from : a.sinks, n = a.n_past > first ? a.n_past - first : 0;
    const uint32_t take = n < want ? n : want;
    const float *score = a.importance + at * a.importance_step;
    uint32_t *row = a.row + at * a.row_step;
    uint64_t *keys = a.keys + at * a.keys_step, key[SELECT_AT_ONCE];
    size_t padded = 1;
    while (padded < take)
        padded *= 2;
    if (tid() == 0) {
        s->cut = 0;
        s->left = want;
        s->taken = 0;
        s->found = n <= want;
    }
    barrier();
    for (int shift = 56; shift >= 0 && !s->found; shift -= 8) {
        for (unsigned i = tid(); i < 256; i += threads())
            s->hist[i] = 0;
        barrier();
        SELECT_EACH(i, n) {
            select_keys(key, score, first, i, n);
            UNROLL_ALL
            for (unsigned j = 0; j < SELECT_AT_ONCE; j++)
                if (key[j] && (shift == 56 || key[j] >> (shift + 8) == s->cut >> (shift + 8)))
                    atomic_add(&s->hist[key[j] >> shift & 255], 1);
        }
        barrier();
        if (tid() == 0) {
            unsigned digit = 255;
            for (; s->left > s->hist[digit]; digit--)
                s->left -= s->hist[digit];
            s->cut |= (uint64_t)digit << shift;
            s->found = s->left == s->hist[digit];
        }
        barrier();
    }
    SELECT_EACH(i, n) {
        select_keys(key, score, first, i, n);
        UNROLL_ALL
        for (unsigned j = 0; j < SELECT_AT_ONCE; j++)
            if (key[j] && key[j] >= s->cut)
                keys[atomic_add(&s->taken, 1)] = key[j];   /* in any order: they are sorted next */
    }
    for (size_t i = take + tid(); i < padded; i += threads())
        keys[i] = 0;
    sort_keys(keys, padded);
    for (unsigned i = tid(); i < a.sinks; i += threads())
        row[i] = i;
    /* a layer's window ends: the nearest rows before it */
    for (unsigned i = tid(); i < want; i += threads())
        row[a.sinks + i] = i < take ? (uint32_t)keys[i] : first - 1 - (i - take);
}
