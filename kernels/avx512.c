/* The AVX-512 + BF16 twin (Zen 4 and 5, Cooper Lake, Sapphire Rapids and later). VDPBF16PS is "dot bf16" in
 * one instruction, flush included, whatever MXCSR says (tests/kernels/test_dpbf16.c). The sums of attention
 * weights are flushed by MXCSR. Start reading at twin_impl.h, which the file includes. */
#include "kernels/twins.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

typedef __m512 v16;

static inline v16 v16_zero(void) { return _mm512_setzero_ps(); }
static inline v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline float v16_top(v16 a)
{
    return top_of_8(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}
static inline float v16_sum(v16 a)
{
    return sum_of_8(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}
static inline v16 v16_pow2(v16 t)
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_set1_epi32(0x3f800000)));
}
static inline v16 v16_zero_below(v16 y, v16 x, float c)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(c), _CMP_NLT_UQ), y);
}
static inline void v16_store_bf16(uint16_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(v));
}
static inline void v16_store_i16(int16_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}
static inline v16 v16_weights(enum dtype type, const char *p)
{
    return type == DT_F32 ? _mm512_loadu_ps((const float *)(const void *)p)
                          : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline v16 v16_pair(const char *p, bool odd)
{
    __m512i w = _mm512_loadu_si512(p);
    return _mm512_castsi512_ps(odd ? _mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000))
                                   : _mm512_slli_epi32(w, 16));
}

#define U_ _Pragma("GCC unroll 16")
static inline __attribute__((always_inline)) void dot_bf16(float *c, size_t ldc, const float *alpha,
                                                           const void *left, size_t lda, const char *b,
                                                           size_t ldb, size_t step, size_t pairs,
                                                           size_t ahead, const int lines, const bool wide,
                                                           const int rows, const int panels)
{
    const uint16_t *a = left;
    (void)wide;
    v16 acc[8][8];
    U_ for (int r = 0; r < rows; r++) U_ for (int p = 0; p < panels; p++) acc[r][p] =
        alpha ? v16_fma(v16_load(c + (size_t)r * ldc + 16 * (size_t)p), v16_set1(alpha[r]), v16_zero())
              : v16_zero();
    for (size_t j = 0; j < pairs; j++) {
        __m512bh w[8];
        U_ for (int p = 0; p < lines; p++)
            _mm_prefetch(b + (size_t)p * ldb + step * j + ahead, _MM_HINT_T1);
        U_ for (int p = 0; p < panels; p++)
            w[p] = (__m512bh)_mm512_loadu_si512(b + (size_t)p * ldb + step * j);
        U_ for (int r = 0; r < rows; r++) {
            int pair;
            memcpy(&pair, a + (size_t)r * lda + 2 * j, 4);
            __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            U_ for (int p = 0; p < panels; p++)
                acc[r][p] = _mm512_dpbf16_ps(acc[r][p], x, w[p]);
        }
    }
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < panels; p++)
            v16_store(c + (size_t)r * ldc + 16 * (size_t)p, acc[r][p]);
}

/* The asm keeps the sum in its register. With the intrinsic, gcc 12 copies the sum twice for each product and
 * spills the copies of large tiles (with 24 sums: 36 spills in each step). */
#ifndef DOT_INTO
#define DOT_INTO(c, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#endif

/* 16 pairs of whole numbers as int16. */
static inline __m512i pairs_at(const enum dtype type, const char *p)
{
    if (type == DT_I16)
        return _mm512_loadu_si512(p);
    if (type == DT_I8)
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    const __m512i x = _mm512_cvtepi8_epi16(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p)));
    const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(8), _mm256_set1_epi16(12), 0);
    return _mm512_srai_epi16(_mm512_sllv_epi16(x, left), 12);
}

static inline __attribute__((always_inline)) void dot_i16(float *c, size_t ldc, const float *alpha,
    const enum dtype type, const float *scale, const float *col, const int16_t *a,
    size_t lda, const char *b, size_t ldb, size_t step, size_t pairs, size_t ahead, const int lines,
        const int rows, const int panels)
{
    /* panels that are narrower than a line */
    const int narrow = ldb < 64 ? 64 / (int)ldb : 1, fetched = (lines + narrow - 1) / narrow;
    __m512i acc[8][8];
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < panels; p++)
            acc[r][p] = _mm512_setzero_si512();
    for (size_t j = 0; j < pairs; j++) {
        __m512i w[8];
        U_ for (int p = 0; p < fetched; p++)
            _mm_prefetch(b + (size_t)(p * narrow) * ldb + step * j + ahead, _MM_HINT_T1);
        U_ for (int p = 0; p < panels; p++)
            w[p] = pairs_at(type, b + (size_t)p * ldb + step * j);
        U_ for (int r = 0; r < rows; r++) {
            int pair;
            memcpy(&pair, a + (size_t)r * lda + 2 * j, 4);
            const __m512i x = _mm512_set1_epi32(pair);
            U_ for (int p = 0; p < panels; p++)
                DOT_INTO(acc[r][p], x, w[p]);
        }
    }
    U_ for (int r = 0; r < rows; r++)
        U_ for (int p = 0; p < panels; p++) {
            float *to = c + (size_t)r * ldc + 16 * (size_t)p;
            const v16 sum = _mm512_cvtepi32_ps(acc[r][p]), s = v16_set1(scale[r]);
            v16_store(to, col ? v16_mul(v16_mul(sum, v16_load(col + 16 * (size_t)p)), s)
                              : v16_fma(sum, s, v16_mul(v16_load(to), v16_set1(alpha[r]))));
        }
}

/* ---- quantised weights ---- */

#define QL 16
typedef __m512 qf;
typedef __m512i qi, qh;
#define MM(name) _mm512_##name
#define MM_ALL(name) _mm512_##name##_si512
#define as_floats _mm512_castsi512_ps
static inline __m256i load_half(const char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline __m128i load_quarter(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
#include "kernels/quant_x86.h"
static inline qf qf_e4m3(const char *p)      /* by way of 16-bit floats, which are 128 times too small */
{
    const __m128i a = load_quarter(p), x = _mm_andnot_si128(_mm_cmpeq_epi8(a, _mm_set1_epi8(0x7f)), a);
    const __m256i h = _mm256_srli_epi16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(x), 9), 2);
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(128));
}
static inline qh qh_or_and(qh a, qh b, int mask)
{
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi16((int16_t)mask), 0xf8);
}
static inline qi qi_gather(const uint32_t *p, qi i) { return _mm512_i32gather_epi32(i, p, 4); }
static inline qi qi_select(const int32_t *p, qi a)
{
    return _mm512_permutexvar_epi32(a, _mm512_load_si512(p));
}
static inline qh qh_table(const uint8_t table[16], qh a)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_quarter((const char *)table)), a);
}
/* The pair of int16 at p goes to all lanes. */
#ifdef DOT_PAIR_INTO
#define QI_DOT DOT_PAIR_INTO
#else
typedef int pair_word __attribute__((may_alias, aligned(2)));
#define QI_DOT(a, w, pair) \
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(a) : "v"(w), "m"(*(const pair_word *)(const void *)(pair)))
#endif
#define Q_ROWS 8
#define Q_SHAPES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define Q_FUSED_SHAPES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define Q_FUSED_LIGHT(X) X(8)
#define Q_PLACES 1
#define Q_SUMS 1
#define Q_HALVES 0

/* AVX-512 has 32 registers: a tile uses at most 24 accumulators. */
#define ROWS_MAX 8
#define MUL_ROWS_MAX 8
#define ATTN_ROWS_MAX 8
#define DELTA_PANELS 4
#define FEW_ROWS 4
#define AHEAD_IN_LINE 0
#define SCORES_FIRST 1
#define WIDE 0
#define TILES(X) \
    X(1, 8) X(1, 4) X(1, 1) X(2, 8) X(2, 4) X(2, 1) X(3, 4) X(3, 1) X(4, 4) X(4, 1) X(5, 4) X(5, 1) \
    X(6, 4) X(6, 1) X(7, 3) X(7, 1) X(8, 3) X(8, 1)
static inline size_t tile_panels(int rows, bool ready)
{
    (void)ready;
    return rows <= 2 ? 8 : rows <= 6 ? 4 : 3;
}
#define v16_flush(v) (v)
static bool supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}
#define TWIN "avx512"
#define OP(name) avx512_##name
#define OPS_TABLE ops_avx512
#include "kernels/twin_impl.h"
#endif
