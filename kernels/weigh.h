/* Weights of candidates: exp(x - top) in units of 2^-43, rounded to whole numbers, so that sums of weights
 * are equal in any order. The CPU's loops (select.h) and the GPU's kernels (cu_sample.cu) compile this code.
 * Both execute the same IEEE operations in the same order, without contraction, so both get the same bits. */
#pragma once
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define WEIGH static __device__ __forceinline__
WEIGH uint64_t weigh_bits(double x) { return (uint64_t)__double_as_longlong(x); }
WEIGH double weigh_double(uint64_t u) { return __longlong_as_double((long long)u); }
#else
#define WEIGH static inline __attribute__((always_inline, unused))
WEIGH uint64_t weigh_bits(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
WEIGH double weigh_double(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }
#endif

/* exp(x - top) * 2^43 before rounding to a whole number, and d = x - top, at least -40 (where the weight is
 * 0). exp(d) = 2^k exp(r), |r| <= log(2)/2, by its series to the 12th power, within 1e-15 of the exact
 * value. */
WEIGH double weigh_exp(float x, float top, double *d_out)
{
    const double magic = 6755399441055744.0;              /* 1.5 * 2^52: adding it rounds to a whole number */
    double d = (double)x - (double)top;
    d = d > -40 ? d : -40;
    double k = d * 1.4426950408889634 + magic, kd = k - magic;
    double r = (d - kd * 0x1.62e42fefap-1) - kd * 0x1.cf79abc9e3b3ap-40;
    double p = 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    *d_out = d;
    return p * weigh_double((weigh_bits(k) + 1023 + 43) << 52);
}

/* Nearest whole number of 0 <= x < 2^51. */
WEIGH uint64_t weigh_whole(double x) { return weigh_bits(x + 0x1p52) & (((uint64_t)1 << 52) - 1); }
