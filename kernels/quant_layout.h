/* The packed form of quantised weights: the bits of the file, in an order in which a vector register holds
 * the same inputs of 16 outputs. Nothing is added, so a matrix takes the bytes that the file has.
 *
 * A panel is 16 outputs ("lanes"). It is a sequence of groups of 256 inputs; with smaller blocks the
 * last group may be shorter. A group holds, each part with its lanes side by side:
 *
 *   d, m     16-bit floats: the factors of the block (m: of minima). Smaller blocks: for each. MXFP4: d
 *            is a byte. NVFP4: a byte for each sub-block
 *   scales   Q2_K, Q6_K: 16 bytes for each sub-block. Q3_K, Q4_K, Q5_K: three 32-bit words for each lane,
 *            which hold 16 fields of 6 bits (q_field): 16 scales, or 8 scales and 8 minima. IQ4_XS: a 16-bit
 *            word with the high bits, then a 32-bit word with the low bits, as the file has them
 *   high     the bits above the low ones
 *   low      the low 4 bits, of Q2_K and Q3_K the low 2 bits, of Q8_0 all 8 bits; of TQ2_0 the 2 bits, of
 *            TQ1_0 bytes of five digits of base 3, the last four of four
 *
 * The IQ types with grids: low has bytes of indices; high has the signs of 32 weights in a word, set where a
 * weight is not negative, as the high bits of Q5_0 have them. Where seven signs give the eighth (IQ2_XXS,
 * IQ2_XS, IQ3_XXS), its place holds a bit of the scale of the 32 weights, or of the index (IQ2_XS). `more`
 * has the bits 8 and up of indices, in IQ1_S and IQ1_M whether an eighth is subtracted, and in IQ1_S scales,
 * all as the file has them. Other scales are 4 bits each, in IQ1_M 16 fields of 3 bits in three 16-bit words:
 * five in each, the last in the upper bits of all.
 *
 * high and low are 32-bit words: four bytes b0 .. b3 of the file become (b0, b2, b1, b3), so the two halves
 * of a word hold an even and an odd input at the same bit. Word w of all lanes precedes word w + 1.
 * Exceptions: low and more of the IQ types with grids keep their bytes; Q8_0 has 16-bit words, an even and
 * the next odd input; the high bits of Q5_0 and Q5_1, and the words of Q1_0 and Q2_0, have the even
 * inputs in the low half. */
#pragma once
#include "kernels/grids.h"

struct quant_layout { size_t m, scale, more, high, low; };    /* offsets in a group; d is at 0 */

/* blocks: in this group. */
static inline __attribute__((always_inline)) struct quant_layout quant_layout(enum dtype t, size_t blocks)
{
    const size_t f = 2 * PANEL * blocks;                 /* bytes of one factor, in types of small blocks */
    switch (t) {
    case DT_Q4_1:   return (struct quant_layout){ .m = f, .low = 2 * f };
    case DT_Q5_0:   return (struct quant_layout){ .high = f, .low = 3 * f };
    case DT_Q5_1:   return (struct quant_layout){ .m = f, .high = 2 * f, .low = 4 * f };
    case DT_Q2_K:   return (struct quant_layout){ .m = 32, .scale = 64, .low = 320 };
    case DT_Q3_K:   return (struct quant_layout){ .scale = 32, .high = 224, .low = 736 };
    case DT_Q4_K:   return (struct quant_layout){ .m = 32, .scale = 64, .low = 256 };
    case DT_Q5_K:   return (struct quant_layout){ .m = 32, .scale = 64, .high = 256, .low = 768 };
    case DT_Q6_K:   return (struct quant_layout){ .scale = 32, .high = 288, .low = 1312 };
    case DT_IQ4_XS: return (struct quant_layout){ .scale = 32, .low = 128 };
    case DT_MXFP4:  return (struct quant_layout){ .low = f / 2 };
    case DT_NVFP4:  return (struct quant_layout){ .low = 2 * f };
    case DT_TQ1_0: case DT_TQ2_0: return (struct quant_layout){ .low = 32 };
    case DT_IQ2_XXS: return (struct quant_layout){ .low = 32, .high = 544 };
    case DT_IQ2_XS: return (struct quant_layout){ .scale = 32, .low = 160, .high = 672 };
    case DT_IQ2_S:  return (struct quant_layout){ .scale = 32, .more = 160, .low = 288, .high = 800 };
    case DT_IQ3_XXS: return (struct quant_layout){ .low = 32, .high = 1056 };
    case DT_IQ3_S:  return (struct quant_layout){ .scale = 32, .more = 96, .low = 224, .high = 1248 };
    case DT_IQ1_S:  return (struct quant_layout){ .more = 32, .low = 288 };
    case DT_IQ1_M:  return (struct quant_layout){ .scale = 32, .more = 128, .low = 384 };
    default:        return (struct quant_layout){ .low = f };        /* Q4_0, Q8_0, IQ4_NL, Q1_0, Q2_0 */
    }
}

/* Half of an unsigned float of 8 bits: 4 bits of exponent, 3 after them; the highest bit does not count. 0x7f
 * is 0, where others have NaN. */
static inline float quant_e4m3(uint8_t x)
{
    return x == 0x7f ? 0 : 128 * f16_to_f32((uint16_t)((x & 127) << 7));
}

/* Properties of a type. offset: what is subtracted from the unsigned numbers of the packed form. */
static inline bool quant_has_minima(enum dtype t)
{
    return t == DT_Q4_1 || t == DT_Q5_1 || t == DT_Q2_K || t == DT_Q4_K || t == DT_Q5_K;
}
static inline int quant_sub_block(enum dtype t)
{
    switch (t) {
    case DT_Q2_K: case DT_Q3_K: case DT_Q6_K: case DT_IQ2_XS: case DT_IQ2_S: case DT_IQ1_M:
    case DT_NVFP4:
        return 16;
    default: return 32;
    }
}
static inline int quant_offset(enum dtype t)
{
    return t == DT_Q4_0 ? 8 : t == DT_Q5_0 ? 16 : t == DT_Q6_K ? 32 : t == DT_Q3_K ? 4
         : t == DT_IQ4_NL || t == DT_IQ4_XS ? 127 : t == DT_MXFP4 || t == DT_NVFP4 ? 12
         : t == DT_TQ1_0 || t == DT_TQ2_0 || t == DT_Q1_0 || t == DT_Q2_0 ? 1
         : t == DT_IQ3_XXS ? 62 : t == DT_IQ3_S ? 15
         : t == DT_IQ1_S || t == DT_IQ1_M ? 9 : dtype_has_grid(t) ? 43 : 0;
}
