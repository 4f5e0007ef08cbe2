/* References for the tests of kernels, written from kernels/ops.h alone: bit patterns, a generator of
 * awkward floats, the defined products (plain C, slow and literal), double-precision versions of the
 * operations with the same roundings, and the comparison of bytes where NaN equals NaN. */
#pragma once
#include "kernels/ops.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define REF static inline __attribute__((unused))
#define REF_INLINE static inline __attribute__((always_inline, unused))

REF_INLINE uint32_t ref_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
REF_INLINE float ref_float(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
REF_INLINE bool ref_nan_bits(uint32_t u) { return (u & 0x7fffffff) > 0x7f800000; }

/* ---- the defined arithmetic, one step at a time ---- */

/* A denormal counts as the zero of its sign. */
REF_INLINE float ref_daz(float x)
{
    uint32_t u = ref_bits(x);
    return u & 0x7f800000 ? x : ref_float(u & 0x80000000);
}
/* a*b + c rounded once; inputs and result flushed; tiny is what is below FLT_MIN after rounding to 24
 * bits with an unbounded exponent. fmaf itself rounds to the denormal grid, so what it lifts to exactly
 * FLT_MIN is rounded again 64 binades higher, where nothing is denormal. */
REF_INLINE float ref_fma_flush(float a, float b, float c)
{
    a = ref_daz(a), b = ref_daz(b), c = ref_daz(c);
    float r = fmaf(a, b, c);
    uint32_t m = ref_bits(r) & 0x7fffffff;
    if (m < 0x00800000)
        return ref_float(ref_bits(r) & 0x80000000);
    if (m == 0x00800000 && fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f)
        return ref_float(ref_bits(r) & 0x80000000);
    return r;
}
REF_INLINE float ref_bf16(uint32_t half) { return ref_float(half << 16); }
/* One pair of k: low half word = even element, high half = odd. */
REF_INLINE float ref_dot_pair(float acc, uint32_t x, uint32_t y)
{
    acc = ref_fma_flush(ref_float(x & 0xffff0000), ref_float(y & 0xffff0000), acc);
    return ref_fma_flush(ref_bf16(x & 0xffff), ref_bf16(y & 0xffff), acc);
}
/* Round to nearest even, denormals to zero, NaN quiet. */
REF_INLINE uint16_t ref_to_bf16(float x)
{
    uint32_t u = ref_bits(x);
    if (ref_nan_bits(u))
        return (uint16_t)(u >> 16 | 0x40);
    if (!(u & 0x7f800000))
        return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
REF float ref_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(h & 0x8000 ? -v : v);
}

/* ---- random bits ---- */

struct rng { uint64_t s; };
REF_INLINE uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
REF size_t rng_below(struct rng *r, size_t n) { return (size_t)(rng_next(r) % n); }
/* Near normal, mean 0, deviation 1: twelve uniform numbers. */
REF float rng_normal(struct rng *r)
{
    double s = -6;
    for (int i = 0; i < 12; i++)
        s += (double)(rng_next(r) >> 11) * 0x1p-53;
    return (float)s;
}
