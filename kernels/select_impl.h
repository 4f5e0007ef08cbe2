/* The body of the operations of selection and logits processing (ops.h), compiled into every twin. The loops
 * are plain C that the compiler vectorises. They use whole numbers and single IEEE operations only, so every
 * instruction set gives the same bits. SELECT_OPS at the end lists the entries of the table.
 *
 * Random words (Philox4x32-10, see src/sample/coin.h) are whole numbers too. They are written with intrinsics
 * for AVX2 and AVX-512 because compilers do not find the 32 x 32 -> 64 bit product. */
#pragma once
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include "kernels/ops.h"
#include "kernels/weigh.h"
#if defined __AVX2__
#include <immintrin.h>
#endif

enum { SELECT_LANES = 64, SELECT_BLOCK = 512 };

static float select_max(const float *x, size_t n)
{
    float m[SELECT_LANES], best = -INFINITY;
    size_t i = 0;
    for (int j = 0; j < SELECT_LANES; j++)
        m[j] = -INFINITY;
    for (; i + SELECT_LANES <= n; i += SELECT_LANES)
        for (int j = 0; j < SELECT_LANES; j++)
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    for (int j = 0; j < SELECT_LANES; j++)
        best = m[j] > best ? m[j] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static size_t select_argmax(const float *x, size_t n)
{
    const float best = select_max(x, n);
    size_t i = 0;
    for (; i + SELECT_LANES <= n; i += SELECT_LANES) {
        int any = 0;
        for (int j = 0; j < SELECT_LANES; j++)
            any |= x[i + j] == best;
        if (any)
            break;
    }
    while (x[i] != best)
        i++;
    return i;
}

static void select_temper(float *x, size_t n, float t)
{
    for (size_t i = 0; i < n; i++) {
        float y = x[i] / t;
        y = y > FLT_MAX ? FLT_MAX : y;
        y = y < -FLT_MAX ? -FLT_MAX : y;
        x[i] = x[i] < -FLT_MAX ? x[i] : y;
    }
}

static void select_cut_below(float *x, size_t n, float cut)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] >= cut ? x[i] : -INFINITY;
}

static void select_cut_equal(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] == value ? -INFINITY : x[i];
}

/* Bit j: lo <= x[j] <= hi. */
static inline uint64_t select_mask(const float x[SELECT_LANES], float lo, float hi)
{
    uint64_t mask = 0;
#if defined __AVX512F__
    for (int j = 0; j < SELECT_LANES; j += 16) {
        const __m512 v = _mm512_loadu_ps(x + j);
        const __mmask16 above = _mm512_cmp_ps_mask(v, _mm512_set1_ps(lo), _CMP_GE_OQ);
        mask |= (uint64_t)_mm512_mask_cmp_ps_mask(above, v, _mm512_set1_ps(hi), _CMP_LE_OQ) << j;
    }
#elif defined __AVX2__
    for (int j = 0; j < SELECT_LANES; j += 8) {
        const __m256 v = _mm256_loadu_ps(x + j), above = _mm256_cmp_ps(v, _mm256_set1_ps(lo), _CMP_GE_OQ),
                     below = _mm256_cmp_ps(v, _mm256_set1_ps(hi), _CMP_LE_OQ);
        mask |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_and_ps(above, below)) << j;
    }
#else
    int any = 0;
    for (int j = 0; j < SELECT_LANES; j++)
        any |= (x[j] >= lo) & (x[j] <= hi);
    for (int j = 0; any && j < SELECT_LANES; j++)
        mask |= (uint64_t)((x[j] >= lo) & (x[j] <= hi)) << j;
#endif
    return mask;
}

static size_t select_between(uint32_t *at, size_t max, const float *x, size_t n, float lo, float hi)
{
    size_t found = 0, i = 0;
    for (; i + SELECT_LANES <= n; i += SELECT_LANES)
        for (uint64_t mask = select_mask(x + i, lo, hi); mask; mask &= mask - 1) {
            if (found == max)
                return SIZE_MAX;
            at[found++] = (uint32_t)i + (uint32_t)__builtin_ctzll(mask);
        }
    for (; i < n; i++)
        if (x[i] >= lo && x[i] <= hi) {
            if (found == max)
                return SIZE_MAX;
            at[found++] = (uint32_t)i;
        }
    return found;
}

static void select_weigh(uint64_t *w, const float *x, size_t n, float top)
{
    for (size_t i = 0; i < n; i++) {
        double d;
        w[i] = weigh_whole(weigh_exp(x[i], top, &d));
    }
}

static void select_tally(uint64_t hist[SELECT_BUCKETS], const float *x, size_t n, float top, float cut,
                         float per_unit, bool weighted)
{
    const float last = SELECT_BUCKETS - 1;
    uint64_t w[SELECT_BLOCK];
    int32_t at[SELECT_BLOCK];
    for (size_t i0 = 0; i0 < n; i0 += SELECT_BLOCK) {
        size_t m = n - i0 < SELECT_BLOCK ? n - i0 : SELECT_BLOCK;
        const float *y = x + i0;
        for (size_t i = 0; i < m; i++) {
            float b = (top - y[i]) * per_unit;
            at[i] = (int32_t)(b < last ? b : last);
        }
        if (weighted)
            select_weigh(w, y, m, top);
        for (size_t i = 0; i < m; i++)
            w[i] = y[i] >= cut ? weighted ? w[i] : 1 : 0;
        for (size_t i = 0; i < m; i++)
            hist[at[i]] += w[i];
    }
}

static void select_moments(uint64_t sum[2], const float *x, size_t n, float top, float cut)
{
    uint64_t s0 = 0, s1 = 0;
    for (size_t i = 0; i < n; i++) {
        double d, e = weigh_exp(x[i], top, &d);
        uint64_t v = weigh_whole(e), vd = weigh_whole(e * -d);
        s0 += x[i] >= cut ? v : 0;
        s1 += x[i] >= cut ? vd : 0;
    }
    sum[0] += s0;
    sum[1] += s1;
}

/* exp(d) = 2^k 2^f, |f| <= 1/2, in floats: the series of 2^f to the 5th power is within 3e-6 of it. */
static inline __attribute__((always_inline)) float select_exp(float d)
{
    const float magic = 12582912;                         /* 1.5 * 2^23: adding it rounds to a whole number */
    const float t = (d > -40 ? d : -40) * 1.44269504f, k = t + magic, f = t - (k - magic);
    float p = 0.00133335581f;
    p = p * f + 0.00961812911f;
    p = p * f + 0.0555041087f;
    p = p * f + 0.240226507f;
    p = p * f + 0.693147181f;
    p = p * f + 1;
    return from_bits(to_bits(p) + (to_bits(k) << 23));
}

static double select_tail(const float *x, size_t n, float top, float cut, float limit)
{
    double sum = 0;
    for (size_t i0 = 0; i0 < n; i0 += SELECT_BLOCK) {
        const size_t m = n - i0 < SELECT_BLOCK ? n - i0 : SELECT_BLOCK;
        const float *y = x + i0;
        float s[SELECT_LANES] = {0};
        size_t i = 0;
        for (; i + SELECT_LANES <= m; i += SELECT_LANES)
            for (int j = 0; j < SELECT_LANES; j++) {
                const float e = select_exp(y[i + j] - top);
                s[j] += (y[i + j] >= cut) & (y[i + j] < limit) ? e : 0;
            }
        for (; i < m; i++)
            s[0] += (y[i] >= cut) & (y[i] < limit) ? select_exp(y[i] - top) : 0;
        for (int j = 0; j < SELECT_LANES; j++)
            sum += (double)s[j];
    }
    return sum;
}

/* Philox on 64-bit lanes whose upper halves are ignored: counter {c0, sample, position}, key seed. */
struct select_philox { uint64_t c1, c2, c3, k0[10], k1[10]; };

static struct select_philox select_philox_start(const struct coin_key *key)
{
    struct select_philox p = { key->sample, key->position & UINT32_MAX, key->position >> 32, {0}, {0} };
    uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        p.k0[i] = k0;
        p.k1[i] = k1;
    }
    return p;
}

#if defined __AVX512F__
enum { SELECT_WIDE = 8 };
typedef __m512i select_v;
#define V_SET(a)     _mm512_set1_epi64((long long)(a))
#define V_LOAD(p)    _mm512_loadu_si512(p)
#define V_STORE(p,a) _mm512_storeu_si512(p, a)
#define V_MUL(a, b)  _mm512_mul_epu32(a, b)
#define V_XOR(a, b)  _mm512_xor_si512(a, b)
#define V_HIGH(a)    _mm512_srli_epi64(a, 32)
#elif defined __AVX2__
enum { SELECT_WIDE = 4 };
typedef __m256i select_v;
#define V_SET(a)     _mm256_set1_epi64x((long long)(a))
#define V_LOAD(p)    _mm256_loadu_si256((const __m256i *)(p))
#define V_STORE(p,a) _mm256_storeu_si256((__m256i *)(p), a)
#define V_MUL(a, b)  _mm256_mul_epu32(a, b)
#define V_XOR(a, b)  _mm256_xor_si256(a, b)
#define V_HIGH(a)    _mm256_srli_epi64(a, 32)
#else
enum { SELECT_WIDE = 1 };
typedef uint64_t select_v;
#define V_SET(a)     (a)
#define V_LOAD(p)    (*(p))
#define V_STORE(p,a) (*(p) = (a))
#define V_MUL(a, b)  (((a) & UINT32_MAX) * (b))
#define V_XOR(a, b)  ((a) ^ (b))
#define V_HIGH(a)    ((a) >> 32)
#endif

/* x1[j], x3[j]: the second and fourth output of the block with first counter word c0[j], in the lower halves.
 * n is a multiple of 8. */
static void select_philox_odd(uint64_t *x1_out, uint64_t *x3_out, const uint64_t *c0, size_t n,
                              const struct select_philox *p)
{
    const select_v m0 = V_SET(UINT64_C(0xD2511F53)), m1 = V_SET(UINT64_C(0xCD9E8D57));
    for (size_t j = 0; j < n; j += SELECT_WIDE) {
        select_v x0 = V_LOAD(c0 + j), x1 = V_SET(p->c1), x2 = V_SET(p->c2), x3 = V_SET(p->c3);
        for (int i = 0; i < 10; i++) {
            select_v a = V_MUL(x0, m0), b = V_MUL(x2, m1);
            x0 = V_XOR(V_XOR(V_HIGH(b), x1), V_SET(p->k0[i]));
            x1 = b;
            x2 = V_XOR(V_XOR(V_HIGH(a), x3), V_SET(p->k1[i]));
            x3 = a;
        }
        V_STORE(x1_out + j, x1);
        V_STORE(x3_out + j, x3);
    }
}

/* Upper halves of the random words of n <= COIN_BLOCK ids; writes a multiple of 16 words. An even id has the
 * first two outputs of its block, the odd id after it the last two. */
static void select_words(uint32_t *high, const uint32_t *ids, uint32_t first, size_t n,
                         const struct coin_key *key)
{
    const struct select_philox p = select_philox_start(key);
    uint64_t c0[COIN_BLOCK], x1[COIN_BLOCK], x3[COIN_BLOCK];
    const size_t all = (n + 15) / 16 * 16;
    if (ids) {
        for (size_t i = 0; i < all; i++)
            c0[i] = i < n ? ids[i] >> 1 : 0;
        select_philox_odd(x1, x3, c0, all, &p);
        for (size_t i = 0; i < n; i++)
            high[i] = (uint32_t)(ids[i] & 1 ? x3[i] : x1[i]);
    } else {
        for (size_t i = 0; i < all / 2; i++)
            c0[i] = first / 2 + i;
        select_philox_odd(x1, x3, c0, all / 2, &p);
        for (size_t i = 0; i < all / 2; i++) {
            high[2 * i] = (uint32_t)x1[i];
            high[2 * i + 1] = (uint32_t)x3[i];
        }
    }
}

/* With v = (word + 1/2) / 2^64 the noise is -log(-log(1 - v)) <= -log(v) < -log(h / 2^31), where h is the
 * upper 31 bits. The bits of a float, read as a whole number, are its log2 interpolated by straight lines,
 * which lie below the curve. */
static float select_coin_bounds(float *u, const float *x, const uint32_t *ids, uint32_t first, size_t n,
                                const struct coin_key *key, float top)
{
    uint32_t high[COIN_BLOCK];
    assert(n <= COIN_BLOCK && first % 2 == 0);
    select_words(high, ids, first, n, key);
    for (size_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)to_bits((float)(int32_t)(high[i] >> 1));
        u[i] = (x[i] - top) + (109.51725f - (float)bits * 8.2629582e-8f);
    }
    return select_max(u, n);
}

#define SELECT_OPS \
    .argmax = select_argmax, .temper = select_temper, .cut_below = select_cut_below, \
    .cut_equal = select_cut_equal, .between = select_between, .weigh = select_weigh, \
    .tally = select_tally, .moments = select_moments, .tail = select_tail, \
    .coin_bounds = select_coin_bounds
