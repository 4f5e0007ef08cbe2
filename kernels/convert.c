/* Conversions between types of numbers. */
#include "kernels/ops.h"

float f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, e = x >> 10 & 31, m = x & 0x3ff;
    if (e == 31)
        return from_bits(sign | 0x7f800000 | m << 13 | (m ? 0x400000 : 0));
    return from_bits(sign | (e ? (e + 112) << 23 | m << 13 : to_bits((float)m * 0x1p-24f)));
}
