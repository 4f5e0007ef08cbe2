/* The AVX2 + FMA twin (Haswell, Zen 1 to 3 and later). A stored pair of bf16 becomes two floats by a mask and
 * a shift. MXCSR's FTZ and DAZ, switched on during a product, do the flush of "dot bf16". Start reading at
 * twin_impl.h, which the file includes. */
#include "kernels/twins.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

typedef struct { __m256 lo, hi; } v16;

static inline v16 v16_zero(void) { return (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() }; }
static inline v16 v16_set1(float x) { return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
static inline v16 v16_load(const float *p) { return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
static inline void v16_store(float *p, v16 v) { _mm256_storeu_ps(p, v.lo); _mm256_storeu_ps(p + 8, v.hi); }
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}
static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){ _mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi) };
}
static inline v16 v16_sub(v16 a, v16 b)
{
    return (v16){ _mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi) };
}
static inline v16 v16_mul(v16 a, v16 b)
{
    return (v16){ _mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi) };
}
static inline v16 v16_max(v16 a, v16 b)
{
    return (v16){ _mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi) };
}
static inline float v16_top(v16 a) { return top_of_8(_mm256_max_ps(a.lo, a.hi)); }
static inline float v16_sum(v16 a) { return sum_of_8(_mm256_add_ps(a.lo, a.hi)); }
static inline __m256 pow2(__m256 t)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(0x3f800000)));
}
static inline v16 v16_pow2(v16 t) { return (v16){ pow2(t.lo), pow2(t.hi) }; }
static inline v16 v16_zero_below(v16 y, v16 x, float c)
{
    const __m256 v = _mm256_set1_ps(c);
    return (v16){ _mm256_andnot_ps(_mm256_cmp_ps(x.lo, v, _CMP_LT_OQ), y.lo),
                  _mm256_andnot_ps(_mm256_cmp_ps(x.hi, v, _CMP_LT_OQ), y.hi) };
}
/* Attention weights are never denormal, and a NaN among them has no low bits set, so two additions round
 * them. */
static inline __m256 rounded(__m256 v)
{
    const __m256i u = _mm256_castps_si256(v),
                  even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even);
    return _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32((int)0xffff0000)));
}
static inline v16 v16_round_bf16(v16 v) { return (v16){ rounded(v.lo), rounded(v.hi) }; }
static inline void v16_store_i16(int16_t *p, v16 v)
{
    /* packs works on halves of 128 bits */
    const __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(w, 0xd8));
}
static inline v16 v16_weights(enum dtype type, const char *p)
{
    if (type == DT_F32)
        return v16_load((const float *)(const void *)p);
    const __m128i *h = (const __m128i *)(const void *)p;
    return (v16){ _mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1)) };
}
static inline __m256 half(__m256i pairs, bool odd)
{
    return _mm256_castsi256_ps(odd ? _mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000))
                                   : _mm256_slli_epi32(pairs, 16));
}
static inline v16 v16_pair(const char *p, bool odd)
{
    const __m256i *h = (const __m256i *)(const void *)p;
    return (v16){ half(_mm256_loadu_si256(h), odd), half(_mm256_loadu_si256(h + 1), odd) };
}

/* c += a * b, in place: given the choice, gcc 12 reverses sums and moves them between registers. */
#define FMA_INTO(c, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b))

#define U_ _Pragma("GCC unroll 16")
static inline __attribute__((always_inline)) void dot_bf16(float *c, size_t ldc, const float *alpha,
                                                           const void *left, size_t lda, const char *b,
                                                           size_t ldb, size_t step, size_t pairs,
                                                           size_t ahead, const int lines, const bool wide,
                                                           const int rows, const int panels)
{
    /* number of panels for which a value of the left operand is loaded */
    const int beside = wide && rows * panels > 4 ? 1 : panels;
    v16 acc[6][4];
    U_ for (int r = 0; r < rows; r++) U_ for (int p = 0; p < panels; p++) acc[r][p] =
        alpha ? v16_fma(v16_load(c + (size_t)r * ldc + 16 * (size_t)p), v16_set1(alpha[r]), v16_zero())
              : v16_zero();
    for (size_t j = 0; j < pairs; j++) {
        U_ for (int p = 0; p < lines; p++)
            _mm_prefetch(b + ((size_t)lines * j + (size_t)p) * 64 + ahead, _MM_HINT_T1);
        U_ for (int odd = 1; odd >= 0; odd--)
            U_ for (int p0 = 0; p0 < panels; p0 += beside) {
                v16 w[4];
                U_ for (int p = 0; p < beside; p++)
                    w[p] = v16_pair(b + (size_t)(p0 + p) * ldb + step * j, odd);
                U_ for (int r = 0; r < rows; r++) {
                    const char *at = (const char *)left +
                                     ((size_t)r * lda + 2 * j) * (wide ? sizeof(float) : sizeof(uint16_t));
                    int pair;
                    memcpy(&pair, at, sizeof pair);
                    __m256 x = wide ? _mm256_broadcast_ss((const float *)(const void *)at + odd)
                                    : half(_mm256_set1_epi32(pair), odd);
                    /* load it again for the next panel instead of keeping it in a register */
                    if (beside < panels)
                        __asm__ volatile("vbroadcastss %1, %0"
                                         : "=x"(x)
                                         : "m"(((const float *)(const void *)at)[odd]));
                    U_ for (int p = 0; p < beside; p++) {
                        FMA_INTO(acc[r][p0 + p].lo, x, w[p].lo);
                        FMA_INTO(acc[r][p0 + p].hi, x, w[p].hi);
                    }
                }
            }
    }
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < panels; p++)
            v16_store(c + (size_t)r * ldc + 16 * (size_t)p, acc[r][p]);
}

/* As FMA_INTO: the sum stays in its register. */
#define ADD_INTO(c, a) __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(a))

/* 8 pairs of whole numbers as int16: half 0 or 1 of the 16 pairs at p. */
static inline __m256i pairs_at(const enum dtype type, const char *p, const int half_of)
{
    const __m128i *x = (const __m128i *)(const void *)p;
    if (type == DT_I16)
        return _mm256_loadu_si256((const __m256i *)(const void *)p + half_of);
    if (type == DT_I8)
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(x + half_of));
    const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128(x));
    return _mm256_srai_epi16(half_of ? bytes : _mm256_slli_epi16(bytes, 12), half_of ? 4 : 12);
}

static inline __attribute__((always_inline)) void dot_i16(float *c, size_t ldc, const float *alpha,
    const enum dtype type, const float *scale, const float *col, const int16_t *a,
    size_t lda, const char *b, size_t ldb, size_t step, size_t pairs, size_t ahead, const int lines,
        const int rows, const int panels)
{
    /* bytes that a step prefetches; panels of a cache may be narrower than a line */
    const size_t fetched = (size_t)lines * (ldb < 64 ? ldb : 64);
    __m256i acc[6][8];
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < 2 * panels; p++)
            acc[r][p] = _mm256_setzero_si256();
    for (size_t j = 0; j < pairs; j++) {
        U_ for (size_t at = 0; at < fetched; at += 64)
            _mm_prefetch(b + fetched * j + at + ahead, _MM_HINT_T1);
        __m256i w[8];
        U_ for (int p = 0; p < 2 * panels; p++)
            w[p] = pairs_at(type, b + (size_t)(p / 2) * ldb + step * j, p % 2);
        U_ for (int r = 0; r < rows; r++) {
            int pair;
            memcpy(&pair, a + (size_t)r * lda + 2 * j, sizeof pair);
            const __m256i x = _mm256_set1_epi32(pair);
            U_ for (int p = 0; p < 2 * panels; p++)
                ADD_INTO(acc[r][p], _mm256_madd_epi16(x, w[p]));
        }
    }
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < 2 * panels; p++) {
            float *to = c + (size_t)r * ldc + 8 * (size_t)p;
            const __m256 sum = _mm256_cvtepi32_ps(acc[r][p]), s = _mm256_set1_ps(scale[r]);
            _mm256_storeu_ps(
                to,
                col ? _mm256_mul_ps(_mm256_mul_ps(sum, _mm256_loadu_ps(col + 8 * (size_t)p)), s)
                    : _mm256_fmadd_ps(sum, s, _mm256_mul_ps(_mm256_loadu_ps(to), _mm256_set1_ps(alpha[r]))));
        }
}

/* ---- quantised weights ---- */

#define QL 8
typedef __m256 qf;
typedef __m256i qi, qh;
#define MM(name) _mm256_##name
#define MM_ALL(name) _mm256_##name##_si256
#define as_floats _mm256_castsi256_ps
static inline __m128i load_half(const char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline __m128i load_quarter(const char *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
#include "kernels/quant_x86.h"
static inline qf qf_e4m3(const char *p)      /* by way of 16-bit floats, which are 128 times too small */
{
    const __m128i a = load_quarter(p), x = _mm_andnot_si128(_mm_cmpeq_epi8(a, _mm_set1_epi8(0x7f)), a);
    const __m128i h = _mm_srli_epi16(_mm_slli_epi16(_mm_cvtepu8_epi16(x), 9), 2);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(128));
}
static inline qh qh_or_and(qh a, qh b, int mask) { return _mm256_or_si256(a, qh_and(b, mask)); }
static inline qi qi_gather(const uint32_t *p, qi i) { return _mm256_i32gather_epi32((const int *)p, i, 4); }
static inline qh qh_table(const uint8_t table[16], qh a)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_half((const char *)table)), a);
}
/* The pair of int16 at p in all lanes. */
static inline __m256i pair_at(const char *p)
{
    int pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}
#define QI_DOT(a, w, pair) ADD_INTO(a, _mm256_madd_epi16(w, pair_at(pair)))
#define Q_ROWS 8
#define Q_SHAPES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define Q_FUSED_SHAPES(X) X(1) X(2) X(3) X(4)
#define Q_FUSED_LIGHT(X)
#define Q_PLACES 0
#define Q_SUMS 0
#define Q_HALVES 1

/* AVX2 has 16 registers. With more than 8 accumulators gcc 12 spills where it also has to widen the left
 * operand. Where the left operand is wide already, 12 accumulators are faster because 8 wait for each other:
 * three rows of a pass with a group of two take three quarters of the time. In products, three rows get two
 * panels, one after the other in each step to fit the registers: a pass of three rows takes 0.27 ms instead
 * of 0.33 ms. */
#define ROWS_MAX 6
#define MUL_ROWS_MAX 4
#define ATTN_ROWS_MAX 6
#define DELTA_PANELS 2
#define FEW_ROWS 0
#define AHEAD_IN_LINE 1
#define SCORES_FIRST 0
#define WIDE 1
#define TILES(X) X(1, 4) X(1, 2) X(1, 1) X(2, 2) X(2, 1) X(3, 2) X(3, 1) X(4, 1) X(5, 1) X(6, 1)
static inline size_t tile_panels(int rows, bool ready)
{
    return rows == 1 ? 4 : rows == 2 || (rows == 3 && ready) ? 2 : 1;
}
#define v16_flush(v) (v)
static bool supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}
#define TWIN "avx2"
#define OP(name) avx2_##name
#define OPS_TABLE ops_avx2
#include "kernels/twin_impl.h"
#endif
