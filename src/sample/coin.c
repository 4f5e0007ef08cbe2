/* The coin of rule R2: Philox, a logarithm, and Gumbel noise made of both. Start at coin_gumbel. */
#include <math.h>
#include <string.h>
#include "src/sample/coin.h"

void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t x[4] = { counter[0], counter[1], counter[2], counter[3] }, k0 = key[0], k1 = key[1];
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        uint64_t a = (uint64_t)x[0] * 0xD2511F53, b = (uint64_t)x[2] * 0xCD9E8D57;
        uint32_t x1 = x[1], x3 = x[3];
        x[0] = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x[3] = (uint32_t)a;
    }
    memcpy(out, x, sizeof x);
}

uint64_t coin_word(uint64_t seed, uint32_t sample, uint64_t position, uint32_t id)
{
    const uint32_t counter[4] = { id >> 1, sample, (uint32_t)position, (uint32_t)(position >> 32) };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t x[4];
    philox4x32(x, counter, key);
    return id & 1 ? x[2] | (uint64_t)x[3] << 32 : x[0] | (uint64_t)x[1] << 32;
}

/* k log 2 + log(1 + f) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1. With s = f / (2 + f), log(1 + f) = 2 (s +
 * s^3/3 + ...) up to s^23. The arrangement f - (f^2/2 - s (f^2/2 + R)) keeps the leading term exact. The
 * low part of k log 2 is added first. */
static double log_sum(double k, double f)
{
    double s = f / (2 + f), z = s * s, half = 0.5 * f * f, r = 2.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        r = r * z + 2.0 / n;
    r = r * z;
    return k * 0x1.62e42fefap-1 - ((half - (s * (half + r) + k * 0x1.cf79abc9e3b3ap-40)) - f);
}

double log_own(double x)
{
    uint64_t u;
    double k = 0;
    if (x < 0x1p-1000) {                       /* a denormal number has no usable exponent */
        x *= 0x1p60;
        k = -60;
    }
    memcpy(&u, &x, 8);
    /* exponent counted from sqrt(1/2) */
    uint64_t e = (u + (UINT64_C(0x3ff) << 52) - UINT64_C(0x3fe6a09e00000000)) >> 52;
    k += (double)e - 1023;
    u -= (e - 1023) << 52;
    memcpy(&x, &u, 8);
    return log_sum(k, x - 1);
}

double log1p_own(double x)
{
    return x > -0.25 ? log_sum(0, x) : log_own(1 + x);
}

/* v = (word + 1/2) / 2^64, u = 1 - v, noise -log(-log(u)). A small word gives a large noise. Both v and 1
 * - v keep their full relative precision where they are small, and neither is ever 0. */
double coin_gumbel(uint64_t word)
{
    double e;
    if (word >> 63)
        e = -log_own(((double)~word + 0.5) * 0x1p-64);
    else
        e = -log1p_own(-(((double)word + 0.5) * 0x1p-64));
    return -log_own(e);
}
