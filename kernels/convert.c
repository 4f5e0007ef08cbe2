/* Conversions between types of numbers. */
#include "kernels/ops.h"

uint16_t f32_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t a = u & 0x7fffffff;
    if (a < 0x00800000)
        return (uint16_t)(u >> 16 & 0x8000);
    if (a > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, e = x >> 10 & 31, m = x & 0x3ff, u;
    if (e == 31)
        u = sign | 0x7f800000 | m << 13 | (m ? 0x400000 : 0);
    else if (e)
        u = sign | (e + 112) << 23 | m << 13;
    else {
        float f = (float)m * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}
