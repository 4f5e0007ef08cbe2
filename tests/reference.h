/* References for the tests of kernels, written from kernels/ops.h alone: bit patterns, a generator of
 * difficult floats, the defined products (plain C, slow and literal), double-precision versions of the
 * operations with the same roundings, and a comparison of bytes in which NaN equals NaN. */
#pragma once
#include "kernels/ops.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
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
/* a*b + c rounded once; inputs and result flushed. Tiny means below FLT_MIN after rounding to 24 bits with an
 * unbounded exponent. fmaf rounds to the denormal grid, so a result of exactly FLT_MIN is rounded again 64
 * binades higher, where nothing is denormal. */
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
/* About normal with mean 0 and deviation 1: the sum of twelve uniform numbers. */
REF float rng_normal(struct rng *r)
{
    double s = -6;
    for (int i = 0; i < 12; i++)
        s += (double)(rng_next(r) >> 11) * 0x1p-53;
    return (float)s;
}
/* A float of any class: mostly normal numbers, some zeros of both signs, denormals, huge values, infinities,
 * NaN. */
REF float rng_awkward(struct rng *r)
{
    static const uint32_t special[] = { 0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00400000,
                                        0x80010000, 0x00800000, 0x80800001, 0x7f7fffff, 0xff7f0000,
                                        0x7f800000, 0xff800000, 0x7fc00000, 0xffc10000 };
    uint64_t u = rng_next(r);
    switch (u & 31) {
    case 0: return ref_float(special[(u >> 8) % (sizeof special / sizeof *special)]);
    case 1: return ref_float((uint32_t)(u >> 32) & 0x807fffff);                    /* denormal */
    case 2: return ref_float(((uint32_t)(u >> 32) & 0x83ffffff) | 0x00800000);     /* near FLT_MIN */
    case 3: return ref_float(((uint32_t)(u >> 32) & 0x9fffffff) | 0x20000000);     /* about 2^-63 */
    default: return rng_normal(r);
    }
}
/* As rng_awkward without infinities and NaN, and never so large that a product overflows. */
REF float rng_finite(struct rng *r)
{
    float x = rng_awkward(r);
    return isfinite(x) && fabsf(x) < 1e15f ? x : rng_normal(r);
}

/* ---- arrays of act: DT_BF16 or DT_F32 ---- */

REF float act_get(enum dtype t, const void *p, size_t i)
{
    if (t == DT_BF16) { uint16_t h; memcpy(&h, (const char *)p + 2 * i, 2); return ref_bf16(h); }
    float f; memcpy(&f, (const char *)p + 4 * i, 4); return f;
}
/* Stored rows of caches, K then V: whole number i of one of them, the unit of an element, and its value. */
REF int ref_whole_at(const char *p, enum dtype t, size_t i)
{
    int16_t x;
    if (t == DT_I8) return ((const int8_t *)p)[i];
    if (t == DT_I4) return (int8_t)(p[i / 16 * 8 + i % 8] << (i % 16 < 8 ? 4 : 0)) >> 4;
    memcpy(&x, p + 2 * i, 2);
    return x;
}
REF float ref_unit(const char *row, enum dtype t, size_t head_dim, size_t i)
{
    float u = 1;
    if (kv_form(t).q == DT_I16)
        memcpy(&u, row + kv_row_bytes(t, head_dim) - (i < head_dim ? 8 : 4), 4);
    return u;
}
REF double ref_row_at(const void *row, enum dtype t, size_t head_dim, size_t i)
{
    const struct kv_form f = kv_form(t);
    const char *part = (const char *)row + (i < head_dim ? 0 : kv_bytes_of(f.k, head_dim));
    if (f.q != DT_I16) return (double)act_get(t, row, i);
    return (double)ref_whole_at(part, i < head_dim ? f.k : f.v, i % head_dim) *
           (double)ref_unit(row, t, head_dim, i);
}
REF void act_put(enum dtype t, void *p, size_t i, float x)
{
    uint16_t h = ref_to_bf16(x);
    if (t == DT_BF16) memcpy((char *)p + 2 * i, &h, 2);
    else memcpy((char *)p + 4 * i, &x, 4);
}
REF float act_round(enum dtype t, float x) { return t == DT_BF16 ? ref_bf16(ref_to_bf16(x)) : x; }
/* First index where two arrays differ, n if none. NaN equals NaN. */
REF size_t act_differ(enum dtype t, const void *a, const void *b, size_t n)
{
    if (!memcmp(a, b, n * dtype_size(t)))
        return n;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = ref_bits(act_get(t, a, i)), y = ref_bits(act_get(t, b, i));
        if (x != y && !(ref_nan_bits(x) && ref_nan_bits(y)))
            return i;
    }
    return n;
}
/* got = act(v) for some real v with |v - want| <= tol. Rounding is monotone, so the ends decide. NaN and Inf
 * never pass. */
REF bool act_near(enum dtype t, float got, double want, double tol)
{
    return isfinite(got) && isfinite(want) && act_round(t, (float)(want - tol)) <= got &&
           got <= act_round(t, (float)(want + tol));
}

/* ---- dots by their definition ---- */

REF float ref_dot_bf16(const uint16_t *a, const uint16_t *b, size_t k)
{
    float acc = 0;
    for (size_t j = 0; j < k; j += 2) {
        uint32_t x = a[j], y = b[j];
        if (j + 1 < k)
            x |= (uint32_t)a[j + 1] << 16, y |= (uint32_t)b[j + 1] << 16;
        acc = ref_dot_pair(acc, x, y);
    }
    return acc;
}
REF float ref_dot_f32(const float *a, const float *b, size_t k)
{
    float acc = 0;
    for (size_t j = 0; j < k; j++)
        acc = fmaf(a[j], b[j], acc);
    return acc;
}

/* ---- memory with guards: a pattern of 64 bytes on both sides of the memory that an operation writes ---- */

enum { GUARD = 64 };
REF void *guard_alloc(size_t bytes)
{
    char *p = malloc(bytes + 2 * GUARD);
    if (!p) abort();
    memset(p, 0xa5, bytes + 2 * GUARD);
    return p + GUARD;
}
REF bool guard_intact(const void *p, size_t bytes)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < GUARD; i++)
        if (b[-1 - (ptrdiff_t)i] != 0xa5 || b[bytes + i] != 0xa5)
            return false;
    return true;
}
REF void guard_free(void *p) { if (p) free((char *)p - GUARD); }
REF void *must_alloc(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) abort();
    return p;
}

/* Twins this CPU can run, plain C first. */
REF size_t twins_here(const struct ops **t, size_t max)
{
    size_t n = 0;
    for (const struct ops *const *o = ops_all; *o && n < max; o++)
        if ((*o)->supported())
            t[n++] = *o;
    return n;
}
/* The programs in_c_* (Makefile) test the last twin, and those of the same sources as test_* the others. */
REF bool in_c(void) { return strncmp(program_invocation_short_name, "in_c_", 5) == 0; }
#define FOR_TWINS(o) for (const struct ops *const *o##_ = ops_all, *o; (o = *o##_); o##_++) \
                          if (o->supported() && (!in_c() || o##_ == ops_all || !o##_[1]))
