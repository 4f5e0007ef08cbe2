/* Exponential and logarithm in double, by longhand's own series with errors of about 1e-15: the same bits on
 * every CPU, whatever the C library has. */
#pragma once
#include <stdint.h>

static const double ln2_hi = 6.93147180369123816490e-01,
                    ln2_lo = 1.90821492927058770002e-10; /* hi has 33 bits: k*hi is exact */

static inline double double_of_bits(uint64_t u)
{
    union { uint64_t u; double d; } x = { u };
    return x.d;
}

/* Natural logarithm of a positive normal number: x = 2^k m with m in [sqrt(1/2), sqrt(2)),
 * log m = 2 atanh((m-1)/(m+1)). */
static inline double log_d(double x)
{
    union { double d; uint64_t u; } bits = { x };
    int k = (int)(bits.u >> 52) - 1023;
    double m = double_of_bits((bits.u & 0xfffffffffffffu) | (uint64_t)1023 << 52);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        k++;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int i = 25; i >= 3; i -= 2)
        sum = z * (1.0 / i + sum);
    return k * ln2_hi + (2 * s + (2 * s * sum + k * ln2_lo));
}

/* e^x for |x| < 700: x = k ln 2 + r, |r| <= ln(2)/2, Taylor series of r. */
static inline double exp_d(double x)
{
    int k = (int)(x / (ln2_hi + ln2_lo) + (x < 0 ? -0.5 : 0.5));
    double r = (x - k * ln2_hi) - k * ln2_lo, sum = 0;
    for (int i = 17; i >= 1; i--)
        sum = r / i * (1 + sum);
    return (1 + sum) * double_of_bits((uint64_t)(k + 1023) << 52);
}
