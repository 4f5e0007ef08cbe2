/* Caches: rows copied from here to there, and the selection of the most important ones. */
#include "kernels/cu.h"
#include "kernels/cu_args.h"

FN char *cache_row(const struct cu_cache *c, size_t layer, size_t head, size_t slot, size_t dp)    /* K; V stands 64 rows further on */
{
    return c->base + layer * c->layer_bytes + head * c->head_bytes + slot / CU_BLOCK * 2 * CU_BLOCK * dp * 2 + slot % CU_BLOCK * dp * 2;
}

/* A warp per row, layer and head: block (row, layer * heads + head). */
KERNEL(kv_copy, kv_copy, WARP, 1)
{
    const size_t i = block_x(), layer = a.layer0 + block_y() / a.n_kv_heads, head = block_y() % a.n_kv_heads, v = CU_BLOCK * (size_t)a.dp * 2;
    const unsigned chunks = a.dp / 8;            /* of 16 bytes in a row of K */
    depend_wait();
    const size_t from = a.from[head * a.from_step + i], to = a.to ? a.to[i] : a.to0 + i;
    char *dst = cache_row(&a.dst, layer, head, to, a.dp);
    const char *k = a.nodes ? a.src.scratch + layer * a.src.node_layer_bytes + (from * a.n_kv_heads + head) * 4 * a.dp
                            : cache_row(&a.src, layer, head, from, a.dp);
    for (unsigned c = lane(); c < 2 * chunks; c += WARP) {
        uint32_t w[4];
        const unsigned in = c % chunks * 16;
        load16(w, k + in + (c < chunks ? 0 : a.nodes ? (size_t)a.dp * 2 : v));
        store16(dst + in + (c < chunks ? 0 : v), w);
    }
}

KERNEL(kv_zero, kv_zero, WARP, 1)
{
    const size_t layer = block_y() / a.n_kv_heads, head = block_y() % a.n_kv_heads, v = CU_BLOCK * (size_t)a.dp * 2;
    const unsigned chunks = a.dp / 8;
    const uint32_t zero[4] = { 0, 0, 0, 0 };
    depend_wait();
    char *dst = cache_row(&a.dst, layer, head, (size_t)a.from + block_x(), a.dp);
    for (unsigned c = lane(); c < 2 * chunks; c += WARP)
        store16(dst + c % chunks * 16 + (c < chunks ? 0 : v), zero);
}

/* Larger score first, then the later position: one whole number that orders candidates; no two are equal. */
FN uint64_t select_key(float score, uint32_t position)
{
    const uint32_t u = as_bits(score + 0.0f);              /* -0 is 0 */
    return (uint64_t)(u >> 31 ? ~u : u | 0x80000000u) << 32 | position;
}

/* One block per head. The want-th largest key by digits of 8 bits, from the top; then those not below it, sorted. */
KERNEL(kv_select, kv_select, 1024, 1)
{
    const size_t head = block_x();
    const unsigned want = a.budget - a.sinks, first = a.from > a.sinks ? a.from : a.sinks, n = a.n_past > first ? a.n_past - first : 0;
    const float *score = a.importance + head * a.importance_step;
    uint32_t *list = a.list + head * a.step, *hist = (uint32_t *)shared();
    uint64_t *keys = a.keys + head * a.keys_step, *cut = (uint64_t *)(hist + 256);
    uint32_t *left = (uint32_t *)(cut + 1), *taken = left + 1;
    const unsigned take = n < want ? n : want;
    size_t padded = 1;
    depend_wait();
    while (padded < take)
        padded *= 2;
    if (tid() == 0)
        *cut = 0, *left = want, *taken = 0;
    for (int shift = 56; shift >= 0 && n > want; shift -= 8) {
        for (unsigned i = tid(); i < 256; i += threads())
            hist[i] = 0;
        barrier();
        for (unsigned i = tid(); i < n; i += threads()) {
            const uint64_t key = select_key(score[first + i], first + i);
            if (shift == 56 || key >> (shift + 8) == *cut >> (shift + 8))
                atomic_add(&hist[key >> shift & 255], 1);
        }
        barrier();
        if (tid() == 0) {
            unsigned digit = 255;
            for (; *left > hist[digit]; digit--)
                *left -= hist[digit];
            *cut |= (uint64_t)digit << shift;
        }
        barrier();
    }
    barrier();
    for (unsigned i = tid(); i < n; i += threads()) {
        const uint64_t key = select_key(score[first + i], first + i);
        if (key >= *cut)
            keys[atomic_add(taken, 1)] = key;              /* in any order: they are sorted next */
    }
    for (size_t i = take + tid(); i < padded; i += threads())
        keys[i] = 0;
    sort_keys(keys, padded);
    for (unsigned i = tid(); i < a.sinks; i += threads())
        list[i] = i;
    for (unsigned i = tid(); i < want; i += threads())      /* behind a layer's window: its nearest rows */
        list[a.sinks + i] = i < take ? (uint32_t)keys[i] : first - 1 - (i - take);
}
