/* Operations on single rows: packing of weights, embedding, norms, RoPE and the stored form of K and V,
 * swiglu, copies. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

/* Index of element (row, k) of a packed matrix. */
FN size_t pack_at(size_t row, size_t k, size_t tiles_k)
{
    const size_t tile = row / CU_TILE_N * tiles_k + k / CU_TILE_K,
                 frag = row % CU_TILE_N / 16 * 4 + k % CU_TILE_K / 16;
    const size_t r = row % 16, c = k % 16, in = (r % 8 * 4 + c % 8 / 2) * 8 + (r / 8 + c / 8 * 2) * 2 + c % 2;
    return tile * CU_TILE + frag * 256 + in;
}

FN float load_as(const void *p, unsigned type, size_t i)       /* type: enum dtype */
{
    if (type == 3)
        return ((const float *)p)[i];
    return type == 2 ? half_to_float(((const uint16_t *)p)[i]) : bf16_float(((const uint16_t *)p)[i]);
}

KERNEL(pack, pack, 256, 1)
{
    const size_t i = (size_t)block_x() * threads() + tid(), tiles_k = (a.k + CU_TILE_K - 1) / CU_TILE_K;
    depend_wait();
    if (i < (size_t)a.n * a.k)
        a.w[pack_at(a.r0 + i / a.k, i % a.k, tiles_k)] =
            a.from == 1 ? ((const uint16_t *)a.src)[i] : to_bf16(load_as(a.src, a.from, i));
}

KERNEL(embed, embed, 256, 1)
{
    depend_launch();
    depend_wait();
    const size_t r = block_x(), token = (size_t)a.rows.token[r], tiles_k = (a.k + CU_TILE_K - 1) / CU_TILE_K;
    for (size_t i = tid(); i < a.k; i += threads())
        a.x[r * a.k + i] = a.packed ? bf16_float(((const uint16_t *)a.w)[pack_at(token, i, tiles_k)])
                                    : load_as(a.w, a.type, token * a.k + i);
}

/* Weights are loaded before the preceding kernel has ended, x at once and into registers: the latency of two
 * loads, for rows of up to 4,096 numbers. */
enum { NORM_AT_ONCE = 8 };
KERNEL(rmsnorm, rmsnorm, CU_NORM_THREADS, 1)
{
    const size_t r = block_x();
    const float *x = a.x + r * a.dim;
    float sum = 0, v[NORM_AT_ONCE], w[NORM_AT_ONCE];
    bool bad = false;
    depend_launch();
    UNROLL_ALL
    for (unsigned i = 0; i < NORM_AT_ONCE; i++)
        w[i] = i * threads() + tid() < a.dim ? a.w[i * threads() + tid()] : 0.0f;
    depend_wait();
    UNROLL_ALL
    for (unsigned i = 0; i < NORM_AT_ONCE; i++)
        v[i] = i * threads() + tid() < a.dim ? x[i * threads() + tid()] : 0.0f;
    UNROLL_ALL
    for (unsigned i = 0; i < NORM_AT_ONCE; i++)
        if (i * threads() + tid() < a.dim) {
            sum = fmaf(v[i], v[i], sum);
            bad = bad || !is_finite(v[i]);
        }
    for (unsigned i = NORM_AT_ONCE * threads() + tid(); i < a.dim; i += threads()) {
        sum = fmaf(x[i], x[i], sum);
        bad = bad || !is_finite(x[i]);
    }
    if (bad && a.place != UINT64_MAX)
        atomic_min64(a.bad, a.place << 32 | r);
    sum = block_sum(sum, (float *)shared());
    const float scale = 1.0f / sqrtf(sum / (float)a.dim + a.eps);
    UNROLL_ALL
    for (unsigned i = 0; i < NORM_AT_ONCE; i++)
        if (i * threads() + tid() < a.dim)
            a.y[r * a.dim + i * threads() + tid()] = to_bf16(v[i] * scale * w[i]);
    for (unsigned i = NORM_AT_ONCE * threads() + tid(); i < a.dim; i += threads())
        a.y[r * a.dim + i] = to_bf16(x[i] * scale * a.w[i]);
}

/* One warp for each row and head of q, k and v. */
KERNEL(rope, rope, 128, 1)
{
    const unsigned heads = a.n_heads + 2 * a.n_kv_heads, half = a.d / 2;
    const size_t item = (size_t)block_x() * (threads() / WARP) + warp(), r = item / heads;
    const unsigned h = (unsigned)(item % heads);
    depend_launch();
    depend_wait();
    if (r >= a.n)
        return;
    float *x = a.qkv + item * a.dp;
    const struct cu_seq *s = &a.rows.seq[a.rows.seq_of[r]];
    const bool value = h >= a.n_heads + a.n_kv_heads;
    const float *norm = h < a.n_heads ? a.q_norm : value ? NULL : a.k_norm;
    if (norm) {
        float sum = 0;
        for (unsigned i = lane(); i < a.d; i += WARP)
            sum = fmaf(x[i], x[i], sum);
        const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)a.d + a.eps);
        for (unsigned i = lane(); i < a.d; i += WARP)
            x[i] = x[i] * scale * norm[i];
        warp_sync();
    }
    if (!value) {
        for (unsigned i = lane(); i < half; i += WARP) {
            const float c = a.rows.cos[r * half + i], t = a.rows.sin[r * half + i], x0 = x[i],
                        x1 = x[i + half];
            x[i] = x0 * c - x1 * t;
            x[i + half] = x1 * c + x0 * t;
        }
        warp_sync();
    }
    if (h < a.n_heads) {
        uint16_t *q = a.q + (r * a.n_heads + h) * a.dp;
        for (unsigned i = lane(); i < a.dp; i += WARP)
            q[i] = to_bf16(x[i] * a.scale);
        for (unsigned i = lane(); a.q_tap && i < a.d; i += WARP)
            a.q_tap[(r * a.n_heads + h) * a.d + i] = x[i];
        return;
    }
    const unsigned kv = (h - a.n_heads) % a.n_kv_heads;
    const size_t pos = a.rows.pos[r];
    uint16_t *to;
    if (s->tree)
        to = (uint16_t *)(s->scratch + a.layer * s->node_layer_bytes) +
             ((r - s->row0) * a.n_kv_heads + kv) * 2 * a.dp + (value ? a.dp : 0);
    else {
        char *const head = s->base + a.layer * s->layer_bytes + kv * s->head_bytes;
        to = (uint16_t *)cache_block(head, NULL, s->n_shared, pos / CU_BLOCK, a.dp) +
             (value ? CU_BLOCK * a.dp : 0) + pos % CU_BLOCK * a.dp;
    }
    for (unsigned i = lane(); i < a.dp; i += WARP)
        to[i] = to_bf16(x[i]);
}

KERNEL(swiglu, swiglu, 256, 1)
{
    const size_t i = (size_t)block_x() * threads() + tid(), r = i / a.ffn, c = i % a.ffn;
    depend_launch();
    depend_wait();
    if (i >= a.n)
        return;
    const float g = a.gate_up[r * 2 * a.ffn + c], u = a.gate_up[r * 2 * a.ffn + a.ffn + c];
    a.h[i] = to_bf16(g / (1.0f + exp2_fast(-g * 0x1.715476p0f)) * u);
}

KERNEL(gather, gather, 256, 1)
{
    depend_launch();
    depend_wait();
    const uint32_t *src = a.src + (size_t)a.index[block_x()] * a.words;
    for (unsigned i = tid(); i < a.words; i += threads())
        a.dst[(size_t)block_x() * a.words + i] = src[i];
}

KERNEL(widen, widen, 256, 1)
{
    const size_t i = (size_t)block_x() * threads() + tid();
    depend_wait();
    if (i < a.n)
        a.y[i] = bf16_float(a.x[i]);
}

KERNEL(narrow, narrow, 256, 1)
{
    const size_t i = (size_t)block_x() * threads() + tid();
    depend_wait();
    if (i < a.n)
        a.y[i] = to_bf16(a.x[i]);
}

FN uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* About normal: the sum of twelve uniform whole numbers less its mean, exact in any order. */
KERNEL(noise, noise, 256, 1)
{
    depend_wait();
    for (uint64_t i = (uint64_t)block_x() * threads() + tid(); i < a.n; i += (uint64_t)a.blocks * threads()) {
        int32_t sum = 0;
        for (uint64_t j = 0; j < 3; j++)
            for (uint64_t r = mix(a.seed + 3 * i + j + 1), k = 0; k < 4; k++, r >>= 16)
                sum += (int32_t)(r & 0xffff);
        a.y[i] = to_bf16((float)(sum - 6 * 65535) * (1.0f / 65536.0f) * a.scale);
    }
}
