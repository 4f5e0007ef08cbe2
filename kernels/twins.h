/* Definitions that all twins share. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define MIN_(a, b) ((a) < (b) ? (a) : (b))

enum { TILE_ROWS_MAX = 8 };      /* rows of the largest tile of any twin */

extern const struct ops ops_generic, ops_avx2, ops_avx512;

/* The values of IQ4_NL and IQ4_XS, plus 127. */
static const uint8_t quant_table[16] = { 0,   23,  44,  62,  78,  92,  105, 117,
                                         128, 140, 152, 165, 180, 196, 216, 240 };
/* The values of MXFP4, plus 12. */
static const uint8_t quant_fp4[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

#if defined(__x86_64__)
#include <assert.h>
#include <cpuid.h>
#include <stdatomic.h>
/* Some compilers (clang 14) have no name for F16C in __builtin_cpu_supports. The answer is kept, because
 * virtual machines trap cpuid. */
static inline bool cpu_has_f16c(void)
{
    static atomic_int known;                     /* 1: no, 2: yes */
    unsigned a, b, c, d;
    if (!known)
        known = 1 + (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C));
    return known == 2;
}

/* MXCSR: nearest even, no FTZ, no DAZ, exceptions masked; MXCSR_FLAGS are the sticky flags. A library that
 * changed MXCSR in a thread would change the bits that the thread computes, so FTZ_BEGIN asserts the
 * default. */
enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLUSH = 0x9fc0, MXCSR_FLAGS = 0x3f };
/* Between FTZ_BEGIN and FTZ_END tiny values are zeros if `on`. The compiler cannot move the computation out,
 * because it begins with loads and ends with stores. */
#define FTZ_BEGIN(on) \
    unsigned off_ = _mm_getcsr(), on_ = (on) ? MXCSR_FLUSH : off_; \
    assert((off_ & ~(unsigned)MXCSR_FLAGS) == MXCSR_DEFAULT); \
    __asm__ volatile("ldmxcsr %0" :: "m"(on_) : "memory")
#define FTZ_END __asm__ volatile("ldmxcsr %0" :: "m"(off_) : "memory")
#endif

#if defined(__AVX2__)
#include <immintrin.h>
/* The largest and the sum of 8 floats, by halves. */
static inline float top_of_8(__m256 m)
{
    __m128 n = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    n = _mm_max_ps(n, _mm_movehl_ps(n, n));
    return _mm_cvtss_f32(_mm_max_ss(n, _mm_movehdup_ps(n)));
}
static inline float sum_of_8(__m256 m)
{
    __m128 n = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    n = _mm_add_ps(n, _mm_movehl_ps(n, n));
    return _mm_cvtss_f32(_mm_add_ss(n, _mm_movehdup_ps(n)));
}
#endif
