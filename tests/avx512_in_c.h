/* The instructions of the AVX-512 twin (kernels/avx512.c), written in C for CPUs with AVX2. The twin's tiles,
 * its order of sums and its rounding are thus tested on CPUs without AVX-512. The instructions follow Intel's
 * manual; tests/kernels/test_dpbf16.c compares the most intricate instruction with the hardware, where
 * available. Included before the twin (Makefile, IN_C); it has only the instructions that the twin uses. */
#pragma once
#include <assert.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define __AVX512F__ 1
#define __AVX512BF16__ 1
#define __builtin_cpu_supports(f) (strncmp(f, "avx512", 6) == 0 || __builtin_cpu_supports(f))

#define IN_C static inline __attribute__((always_inline))
#define EACH(n) for (int i = 0; i < (n); i++)
typedef union { __m512 f; __m512i v; __m512bh h; float f32[16]; int32_t i32[16]; uint32_t u32[16];
                uint64_t u64[8]; int16_t i16[32]; __m256 half_f[2]; __m256i half[2]; } in_c;

IN_C __m512 in_c_set1_ps(float x) { in_c r; EACH(16) r.f32[i] = x; return r.f; }
IN_C __m512i in_c_set1_epi32(int x) { in_c r; EACH(16) r.i32[i] = x; return r.v; }
IN_C __m512i in_c_set1_epi64(long long x) { in_c r; EACH(8) r.u64[i] = (uint64_t)x; return r.v; }
IN_C __m512i in_c_load(const void *p) { in_c r; memcpy(&r, p, 64); return r.v; }
IN_C void in_c_store(void *p, __m512i v) { memcpy(p, &v, 64); }
IN_C __m512 in_c_add_ps(__m512 a, __m512 b) { return a + b; }
IN_C __m512 in_c_sub_ps(__m512 a, __m512 b) { return a - b; }
IN_C __m512 in_c_mul_ps(__m512 a, __m512 b) { return a * b; }
IN_C __m512 in_c_fmadd_ps(__m512 a, __m512 b, __m512 c)
{
    in_c r, x = { .f = a }, y = { .f = b }, z = { .f = c };
    EACH(2) r.half_f[i] = _mm256_fmadd_ps(x.half_f[i], y.half_f[i], z.half_f[i]);
    return r.f;
}
IN_C __m512 in_c_max_ps(__m512 a, __m512 b)
{
    in_c r, x = { .f = a }, y = { .f = b };
    EACH(2) r.half_f[i] = _mm256_max_ps(x.half_f[i], y.half_f[i]);
    return r.f;
}
IN_C __m256 in_c_extractf32x8_ps(__m512 a, int k) { in_c x = { .f = a }; return x.half_f[k]; }
IN_C __m512i in_c_add_epi32(__m512i a, __m512i b) { in_c r, x = { .v = a },
    y = { .v = b }; EACH(16) r.u32[i] = x.u32[i] + y.u32[i]; return r.v; }
IN_C __m512i in_c_slli_epi32(__m512i a, int n) { in_c r,
    x = { .v = a }; EACH(16) r.u32[i] = x.u32[i] << n; return r.v; }
IN_C __m512i in_c_srli_epi64(__m512i a, int n) { in_c r,
    x = { .v = a }; EACH(8) r.u64[i] = x.u64[i] >> n; return r.v; }
IN_C __m512i in_c_mul_epu32(__m512i a, __m512i b) { in_c r, x = { .v = a },
    y = { .v = b }; EACH(8) r.u64[i] = (uint64_t)(uint32_t)x.u64[i] * (uint32_t)y.u64[i]; return r.v; }
IN_C __m512i in_c_and(__m512i a, __m512i b) { return a & b; }
IN_C __m512i in_c_xor(__m512i a, __m512i b) { return a ^ b; }
/* The comparisons in use: not less, true for NaN; greater or equal, less or equal. */
IN_C uint16_t in_c_cmp_ps_mask(__m512 a, __m512 b, int what)
{
    in_c x = { .f = a }, y = { .f = b };
    uint16_t m = 0;
    assert(what == _CMP_NLT_UQ || what == _CMP_GE_OQ || what == _CMP_LE_OQ);
    EACH(16) m |= (uint16_t)((what == _CMP_NLT_UQ   ? !(x.f32[i] < y.f32[i])
                              : what == _CMP_GE_OQ ? x.f32[i] >= y.f32[i]
                                                   : x.f32[i] <= y.f32[i]) << i);
    return m;
}
IN_C __m512 in_c_maskz_mov_ps(uint16_t m, __m512 a) { in_c r, x = { .f = a }; EACH(16) r.u32[i] = m >> i & 1
    ? x.u32[i] : 0; return r.f; }
IN_C __m512i in_c_cvtps_epi32(__m512 a) { in_c r,
                                          x = { .f = a }; EACH(2) r.half[i] = _mm256_cvtps_epi32(x.half_f[i]);
                                              return r.v; }
IN_C __m512 in_c_cvtepi32_ps(__m512i a) { in_c r,
                                          x = { .v = a }; EACH(2) r.half_f[i] = _mm256_cvtepi32_ps(x.half[i]);
                                              return r.f; }
IN_C __m512 in_c_cvtph_ps(__m256i a)
{
    in_c r;
    r.half_f[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a)),
    r.half_f[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    return r.f;
}
IN_C __m256i in_c_cvtsepi32_epi16(__m512i a)
{
    in_c x = { .v = a };
    int16_t r[16];
    EACH(16) r[i] = (int16_t)(x.i32[i] > INT16_MAX ? INT16_MAX : x.i32[i] < INT16_MIN ? INT16_MIN : x.i32[i]);
    return _mm256_loadu_si256((const __m256i *)(const void *)r);
}
IN_C __m512i in_c_srai_epi16(__m512i a, unsigned n) { in_c r,
    x = { .v = a }; EACH(32) r.i16[i] = (int16_t)(x.i16[i] >> n); return r.v; }
IN_C __m512i in_c_sllv_epi16(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(32) r.i16[i] = (int16_t)(uint16_t)((uint32_t)(uint16_t)x.i16[i] << y.i16[i]);
    return r.v;
}
IN_C __m512i in_c_inserti64x4(__m512i a, __m256i b, int k) { in_c r = { .v = a }; r.half[k] = b; return r.v; }
IN_C __m512i in_c_cvtepi8_epi16(__m256i a)
{
    in_c r;
    int8_t x[32];
    memcpy(x, &a, 32);
    EACH(32) r.i16[i] = x[i];
    return r.v;
}
/* To nearest, ties to even; denormals become zeros, NaNs quiet. */
IN_C __m256i in_c_cvtneps_pbh(__m512 a)
{
    in_c x = { .f = a };
    uint16_t r[16];
    EACH(16) {
        const uint32_t u = x.u32[i], exponent = u & 0x7f800000, nan = exponent == 0x7f800000 && u & 0x7fffff;
        r[i] = (uint16_t)(exponent == 0 ? u >> 16 & 0x8000
                          : nan         ? u >> 16 | 0x40
                                        : (u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    return _mm256_loadu_si256((const __m256i *)(const void *)r);
}
/* Two FMAs, odd elements first; denormal inputs and results become zeros whatever MXCSR says. */
IN_C __m512 in_c_dpbf16_ps(__m512 c, __m512bh a, __m512bh b)
{
    in_c r = { .f = c }, x = { .h = a }, y = { .h = b };
    const unsigned was = _mm_getcsr();
    _mm_setcsr(0x9fc0);
    EACH(2) {
        const __m256i odd = _mm256_set1_epi32((int)0xffff0000);
        __asm__ volatile("vfmadd231ps %2, %1, %0"
                         : "+x"(r.half_f[i])
                         : "x"(_mm256_castsi256_ps(_mm256_and_si256(x.half[i], odd))),
                           "x"(_mm256_castsi256_ps(_mm256_and_si256(y.half[i], odd))));
        __asm__ volatile("vfmadd231ps %2, %1, %0"
                         : "+x"(r.half_f[i])
                         : "x"(_mm256_castsi256_ps(_mm256_slli_epi32(x.half[i], 16))),
                           "x"(_mm256_castsi256_ps(_mm256_slli_epi32(y.half[i], 16))));
    }
    _mm_setcsr(was);
    return r.f;
}
IN_C __m512i in_c_dpwssd(__m512i c, __m512i a, __m512i b)
{
    in_c r = { .v = c }, x = { .v = a }, y = { .v = b };
    EACH(2) r.half[i] = _mm256_add_epi32(r.half[i], _mm256_madd_epi16(x.half[i], y.half[i]));
    return r.v;
}
IN_C __m512i in_c_sub_epi32(__m512i a, __m512i b) { in_c r, x = { .v = a },
    y = { .v = b }; EACH(16) r.u32[i] = x.u32[i] - y.u32[i]; return r.v; }
/* a | b & c, the only table in use. */
IN_C __m512i in_c_ternarylogic(__m512i a, __m512i b, __m512i c, int table)
{
    assert(table == 0xf8);
    return a | (b & c);
}
IN_C __m512i in_c_or(__m512i a, __m512i b) { return a | b; }
IN_C __m512i in_c_srli_epi32(__m512i a, unsigned n) { in_c r,
    x = { .v = a }; EACH(16) r.u32[i] = x.u32[i] >> n; return r.v; }
IN_C __m512i in_c_srli_epi16(__m512i a, unsigned n)
{
    in_c r, x = { .v = a };
    EACH(32) r.i16[i] = (int16_t)((uint16_t)x.i16[i] >> n); 
    return r.v;
}
IN_C __m512i in_c_slli_epi16(__m512i a, unsigned n)
{
    in_c r, x = { .v = a };
    EACH(32) r.i16[i] = (int16_t)(uint16_t)((uint32_t)(uint16_t)x.i16[i] << n); 
    return r.v;
}
IN_C __m512i in_c_sub_epi16(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(32) r.i16[i] = (int16_t)(x.i16[i] - y.i16[i]); 
    return r.v;
}
IN_C int in_c_int_at(const char *p) { int x; memcpy(&x, p, sizeof x); return x; }
IN_C __m512i in_c_set1_epi16(int16_t x) { in_c r; EACH(32) r.i16[i] = x; return r.v; }
IN_C __m512i in_c_halves(__m256i a, __m256i b) { in_c r; r.half[0] = a, r.half[1] = b; return r.v; }
IN_C __m512i in_c_cvtepi8_epi32(__m128i a)
{
    return in_c_halves(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}
IN_C __m512i in_c_cvtepu8_epi32(__m128i a)
{
    return in_c_halves(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
IN_C __m512i in_c_cvtepu16_epi32(__m256i a)
{
    return in_c_halves(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                       _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
IN_C __m512i in_c_broadcast_i32x4(__m128i a)
{
    return in_c_halves(_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a));
}
IN_C __m512i in_c_shuffle_epi8(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(2) r.half[i] = _mm256_shuffle_epi8(x.half[i], y.half[i]);
    return r.v;
}
IN_C __m512i in_c_mullo_epi16(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(2) r.half[i] = _mm256_mullo_epi16(x.half[i], y.half[i]);
    return r.v;
}
IN_C __m512i in_c_mulhi_epu16(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(2) r.half[i] = _mm256_mulhi_epu16(x.half[i], y.half[i]);
    return r.v;
}
IN_C __m512i in_c_max_epu32(__m512i a, __m512i b)
{
    in_c r, x = { .v = a }, y = { .v = b };
    EACH(2) r.half[i] = _mm256_max_epu32(x.half[i], y.half[i]);
    return r.v;
}
IN_C __m512i in_c_srai_epi32(__m512i a, unsigned n)
{
    in_c r, x = { .v = a };
    EACH(16) r.i32[i] = x.i32[i] >> n;
    return r.v;
}
IN_C __m512i in_c_permutexvar_epi32(__m512i at, __m512i a)
{
    in_c r, x = { .v = at }, y = { .v = a };
    EACH(16) r.u32[i] = y.u32[x.u32[i] & 15];
    return r.v;
}
IN_C __m512i in_c_i32gather(__m512i at, const uint32_t *p)
{
    in_c r, x = { .v = at };
    EACH(16) r.u32[i] = p[x.i32[i]];
    return r.v;
}
#undef EACH
#undef IN_C

#define _mm512_mullo_epi16 in_c_mullo_epi16
#define _mm512_mulhi_epu16 in_c_mulhi_epu16
#define _mm512_max_epu32 in_c_max_epu32
#define _mm512_srai_epi32 in_c_srai_epi32
#define _mm512_permutexvar_epi32 in_c_permutexvar_epi32
#define _mm512_i32gather_epi32(at, p, scale) in_c_i32gather(at, p)       /* scale: 4 */
#define _mm512_load_si512 in_c_load

#define _mm512_sub_epi32 in_c_sub_epi32
#define _mm512_or_si512 in_c_or
#define _mm512_ternarylogic_epi32 in_c_ternarylogic
#define _mm512_srli_epi32 in_c_srli_epi32
#define _mm512_srli_epi16 in_c_srli_epi16
#define _mm512_slli_epi16 in_c_slli_epi16
#define _mm512_sub_epi16 in_c_sub_epi16
#define _mm512_set1_epi16 in_c_set1_epi16
#define _mm512_cvtepi8_epi32 in_c_cvtepi8_epi32
#define _mm512_cvtepu8_epi32 in_c_cvtepu8_epi32
#define _mm512_cvtepu16_epi32 in_c_cvtepu16_epi32
#define _mm512_broadcast_i32x4 in_c_broadcast_i32x4
#define _mm512_shuffle_epi8 in_c_shuffle_epi8

#define _mm512_setzero_ps() in_c_set1_ps(0)
#define _mm512_setzero_si512() in_c_set1_epi32(0)
#define _mm512_set1_ps in_c_set1_ps
#define _mm512_set1_epi32 in_c_set1_epi32
#define _mm512_set1_epi64 in_c_set1_epi64
#define _mm512_loadu_ps(p) ((__m512)in_c_load(p))
#define _mm512_loadu_si512 in_c_load
#define _mm512_storeu_ps(p, v) in_c_store(p, (__m512i)(v))
#define _mm512_storeu_si512 in_c_store
#define _mm512_add_ps in_c_add_ps
#define _mm512_sub_ps in_c_sub_ps
#define _mm512_mul_ps in_c_mul_ps
#define _mm512_fmadd_ps in_c_fmadd_ps
#define _mm512_max_ps in_c_max_ps
#define _mm512_extractf32x8_ps in_c_extractf32x8_ps
#define _mm512_castps512_ps256(a) in_c_extractf32x8_ps(a, 0)
#define _mm512_castps_si512(a) ((__m512i)(a))
#define _mm512_castsi512_ps(a) ((__m512)(a))
#define _mm512_add_epi32 in_c_add_epi32
#define _mm512_slli_epi32 in_c_slli_epi32
#define _mm512_srli_epi64 in_c_srli_epi64
#define _mm512_mul_epu32 in_c_mul_epu32
#define _mm512_and_si512 in_c_and
#define _mm512_xor_si512 in_c_xor
#define _mm512_cmp_ps_mask in_c_cmp_ps_mask
#define _mm512_mask_cmp_ps_mask(m, a, b, what) ((m) & in_c_cmp_ps_mask(a, b, what))
#define _mm512_maskz_mov_ps in_c_maskz_mov_ps
#define _mm512_cvtps_epi32 in_c_cvtps_epi32
#define _mm512_cvtepi32_ps in_c_cvtepi32_ps
#define _mm512_cvtph_ps in_c_cvtph_ps
#define _mm512_cvtsepi32_epi16 in_c_cvtsepi32_epi16
#define _mm512_srai_epi16 in_c_srai_epi16
#define _mm512_sllv_epi16 in_c_sllv_epi16
#define _mm512_inserti64x4 in_c_inserti64x4
#define _mm512_cvtepi8_epi16 in_c_cvtepi8_epi16
#define _mm512_cvtneps_pbh in_c_cvtneps_pbh
#define _mm512_dpbf16_ps in_c_dpbf16_ps
#define DOT_INTO(c, a, b) ((c) = in_c_dpwssd(c, a, b))
#define DOT_PAIR_INTO(c, a, pair) ((c) = in_c_dpwssd(c, a, in_c_set1_epi32(in_c_int_at(pair))))
