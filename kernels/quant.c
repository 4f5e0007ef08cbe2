/* Decoding of quantised weights. One function for each type decodes one block; start at quant_decode. In
 * comments h(o) is the 16-bit float at byte o. Nibbles of a byte: the low one is the first half of a block,
 * the high one the second. */
#include "kernels/grids.h"
#include "kernels/quant.h"
#include "kernels/quant_layout.h"

#include <assert.h>

typedef void decode_fn(float *y, const uint8_t *b);

/* A factor: the 16-bit float at p. */
static float half_at(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, 2);
    return f16_to_f32(x);
}

static bool is_finite(const uint8_t *p) { return (p[1] & 0x7c) != 0x7c; }

static uint32_t word_at(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

/* Weight e of 32 nibbles. */
static int nibble(const uint8_t *q, int e) { return q[e % 16] >> 4 * (e / 16) & 15; }

/* ---- blocks of 32 ---- */

/* Q4_0: (q - 8) h(0); Q5_0: (q - 16) h(0); Q4_1 and Q5_1: q h(0) + h(2). After these lie fifth bits, if there
 * are any, then the nibbles. */
static void q45(float *y, const uint8_t *b, bool minimum, bool five)
{
    const uint8_t *high = b + (minimum ? 4 : 2), *q = high + (five ? 4 : 0);
    const float d = half_at(b), m = minimum ? half_at(b + 2) : 0;
    const uint32_t fifth = five ? word_at(high) : 0;
    const int offset = minimum ? 0 : five ? 16 : 8;
    for (int e = 0; e < 32; e++) {
        const float x = (float)((nibble(q, e) | (int)(fifth >> e & 1) << 4) - offset) * d;
        y[e] = minimum ? x + m : x;
    }
}
static void q4_0(float *y, const uint8_t *b) { q45(y, b, false, false); }
static void q4_1(float *y, const uint8_t *b) { q45(y, b, true, false); }
static void q5_0(float *y, const uint8_t *b) { q45(y, b, false, true); }
static void q5_1(float *y, const uint8_t *b) { q45(y, b, true, true); }

static void q8_0(float *y, const uint8_t *b)             /* q h(0) */
{
    const float d = half_at(b);
    for (int e = 0; e < 32; e++)
        y[e] = (float)(int8_t)b[2 + e] * d;
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

static void iq4_nl(float *y, const uint8_t *b)           /* h(0) iq4[q] */
{
    const float d = half_at(b);
    for (int e = 0; e < 32; e++)
        y[e] = d * (float)iq4[nibble(b + 2, e)];
}

/* 2^(x - 128), of which the smallest are subnormal. */
static float power_of(uint8_t x)
{
    return from_bits(x < 2 ? UINT32_C(0x200000) << x : (uint32_t)(x - 1) << 23);
}

static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static void mxfp4(float *y, const uint8_t *b)            /* fp4[q] 2^(b(0) - 128) */
{
    const float d = power_of(b[0]);
    for (int e = 0; e < 32; e++)
        y[e] = (float)fp4[nibble(b + 1, e)] * d;
}

/* ---- blocks of 64 and of 128 ---- */

static void q1_0(float *y, const uint8_t *b)             /* (2 q - 1) h(0) */
{
    const float d = half_at(b);
    for (int e = 0; e < 128; e++)
        y[e] = b[2 + e / 8] >> e % 8 & 1 ? d : -d;
}

static void q2_0(float *y, const uint8_t *b)             /* (q - 1) h(0) */
{
    const float d = half_at(b);
    for (int e = 0; e < 64; e++)
        y[e] = (float)((b[2 + e / 4] >> 2 * (e % 4) & 3) - 1) * d;
}

static void nvfp4(float *y, const uint8_t *b)            /* fp4[q] e4m3(s), s < 4; 16 weights have a scale */
{
    for (int e = 0; e < 64; e++) {
        const int s = e / 16, q = b[4 + 8 * s + e % 8] >> 4 * (e % 16 / 8) & 15;
        y[e] = (float)fp4[q] * quant_e4m3(b[s]);
    }
}

/* ---- blocks of 256 ---- */

static void q2_k(float *y, const uint8_t *b)             /* (h(80) scale) q - h(82) minimum */
{
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (int e = 0; e < 256; e++) {
        const int s = e / 16, q = b[16 + 32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3;
        const float scale = d * (float)(b[s] & 15), x = scale * (float)q, minimum = m * (float)(b[s] >> 4);
        y[e] = x - minimum;
    }
}

/* (h(108) (scale - 32)) q; the third bits lie at byte 0 */
static void q3_k(float *y, const uint8_t *b)
{
    const float d = half_at(b + 108);
    const uint8_t *sc = b + 96;
    for (int e = 0; e < 256; e++) {
        const int half = e / 128, k = e % 128 / 32, l = e % 32, s = e / 16;
        const int q = (b[32 + 32 * half + l] >> 2 * k & 3) - (b[l] >> (4 * half + k) & 1 ? 0 : 4);
        const int low = s < 8 ? sc[s] & 15 : sc[s - 8] >> 4, high = sc[8 + s % 4] >> 2 * (s / 4) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        y[e] = scale * (float)q;
    }
}

/* Scale and minimum of sub-block s of Q4_K and Q5_K: 6 bits each, in 12 bytes. */
static void scale_and_minimum(const uint8_t *sc, int s, int *scale, int *minimum)
{
    *scale = s < 4 ? sc[s] & 63 : (sc[s + 4] & 15) | sc[s - 4] >> 6 << 4;
    *minimum = s < 4 ? sc[s + 4] & 63 : sc[s + 4] >> 4 | sc[s] >> 6 << 4;
}

/* (h(0) scale) q - h(2) minimum, for Q4_K and Q5_K. high: the fifth bits, or NULL. */
static void q45_k(float *y, const uint8_t *b, const uint8_t *qs, const uint8_t *high)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int e = 0; e < 256; e++) {
        const int s = e / 32, l = e % 32, fifth = high ? high[l] >> s & 1 : 0;
        const int q = (qs[32 * (e / 64) + l] >> 4 * (s % 2) & 15) + 16 * fifth;
        int scale, minimum;
        scale_and_minimum(b + 4, s, &scale, &minimum);
        const float a = d * (float)scale, x = a * (float)q, c = m * (float)minimum;
        y[e] = x - c;
    }
}

static void q4_k(float *y, const uint8_t *b) { q45_k(y, b, b + 16, NULL); }
static void q5_k(float *y, const uint8_t *b) { q45_k(y, b, b + 48, b + 16); }

static void q6_k(float *y, const uint8_t *b)             /* (h(208) scale) (q - 32) */
{
    const float d = half_at(b + 208);
    for (int e = 0; e < 256; e++) {
        const int half = e / 128, k = e % 128 / 32, l = e % 32;
        const int low = b[64 * half + 32 * (k % 2) + l] >> 4 * (k / 2) & 15;
        const int q = (low | (b[128 + 32 * half + l] >> 2 * k & 3) << 4) - 32;
        const float scale = d * (float)(int8_t)b[192 + e / 16];
        y[e] = scale * (float)q;
    }
}

static void iq4_xs(float *y, const uint8_t *b)           /* (h(0) (scale - 32)) iq4[q] */
{
    const float d = half_at(b);
    for (int e = 0; e < 256; e++) {
        const int s = e / 32, l = e % 32, high = (b[2] | b[3] << 8) >> 2 * s & 3;
        const int scale = (b[4 + s / 2] >> 4 * (s % 2) & 15) | high << 4;
        const float a = d * (float)(scale - 32);
        y[e] = a * (float)iq4[b[8 + 16 * s + l % 16] >> 4 * (l / 16) & 15];
    }
}

/* h(52) (q - 1); a byte has 5 digits of base 3, the last four have 4 */
static void tq1_0(float *y, const uint8_t *b)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    const float d = half_at(b + 52);
    for (int e = 0; e < 256; e++) {
        const int at = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4,
                  n = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        y[e] = d * (float)(((uint8_t)(b[at] * power[n]) * 3 >> 8) - 1);
    }
}

static void tq2_0(float *y, const uint8_t *b)            /* h(64) (q - 1) */
{
    const float d = half_at(b + 64);
    for (int e = 0; e < 256; e++)
        y[e] = d * (float)((b[32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3) - 1);
}

/* ---- the IQ types: eight weights that share an index, or four ---- */

static unsigned short_at(const uint8_t *p) { return p[0] | (unsigned)p[1] << 8; }
static unsigned nibble_at(const uint8_t *p, int i) { return p[i / 2] >> 4 * (i % 2) & 15; }
/* Seven signs; the eighth makes their number even. */
static unsigned eight_signs(unsigned x) { return x | (unsigned)__builtin_parity(x) << 7; }

/* The factor of IQ1_M is spread over the upper bits of four words. */
static unsigned iq1_m_factor(const uint8_t *b)
{
    unsigned d = 0;
    for (int i = 0; i < 4; i++)
        d |= (b[49 + 2 * i] >> 4u) << 4 * i;
    return d;
}

/* The eight weights 32 s + 8 j: their indices, their signs, and their scale; the factor is multiplied by
 * 2 scale + 1. */
struct eight { unsigned index[2], signs, scale; };
static struct eight eight_at(enum dtype t, const uint8_t *b, int s, int j)
{
    const uint8_t *two = b + 2 + 8 * s + 2 * j, *high = b + 66 + s;
    unsigned v;
    uint32_t w;
    switch (t) {
    case DT_IQ2_XXS:
        w = word_at(b + 6 + 8 * s);
        return (struct eight){ { b[2 + 8 * s + j] }, eight_signs(w >> 7 * j & 127), w >> 28 };
    case DT_IQ2_XS:
        v = short_at(two);
        return (struct eight){ { v & 511 }, eight_signs(v >> 9), nibble_at(b + 66, 2 * s + j / 2) };
    case DT_IQ2_S:
        v = *high >> 2 * j & 3;
        return (struct eight){ { b[2 + 4 * s + j] | v << 8 }, b[34 + 4 * s + j],
                               nibble_at(b + 74, 2 * s + j / 2) };
    case DT_IQ3_XXS:
        w = word_at(b + 66 + 4 * s);
        return (struct eight){ { two[0], two[1] }, eight_signs(w >> 7 * j & 127), w >> 28 };
    case DT_IQ3_S:
        v = *high >> 2 * j;
        return (struct eight){ { two[0] | (v & 1) << 8, two[1] | (v >> 1 & 1) << 8 }, b[74 + 4 * s + j],
                               nibble_at(b + 106, s) };
    case DT_IQ1_S:
        v = short_at(b + 34 + 2 * s);
        return (struct eight){ { b[2 + 4 * s + j] | (v >> 3 * j & 7) << 8 }, v >> 15 ? 255 : 0, v >> 12 & 7 };
    default:
        assert(t == DT_IQ1_M);
        v = nibble_at(b + 32, 4 * s + j);
        return (struct eight){ { b[4 * s + j] | (v & 7) << 8 }, v >> 3 ? 255 : 0,
                               short_at(b + 48 + s / 2 * 2) >> (6 * (s % 2) + 3 * (j / 2)) & 7 };
    }
}

/* (h(0) (2 scale + 1) / 8) q; IQ3_XXS: / 4, IQ3_S: / 1. All is exact but the last product. */
static void iq(float *y, const uint8_t *b, enum dtype t)
{
    const float d = (t == DT_IQ1_M ? f16_to_f32((uint16_t)iq1_m_factor(b)) : half_at(b)) * grid_unit(t);
    const uint32_t *grid = grid_words + grid_of(t);
    for (int i = 0; i < 32; i++, y += 8) {
        const struct eight x = eight_at(t, b, i / 4, i % 4);
        const bool four = t == DT_IQ3_XXS || t == DT_IQ3_S;
        const uint32_t word = grid[x.index[0]] | (four ? grid[x.index[1]] << 8 : 0);
        for (int e = 0; e < 8; e++) {
            const unsigned n = (word >> (16 * (e % 2) + 4 * (e / 2)) & 15) | (x.signs >> e & 1 ? 0 : 8);
            y[e] = d * (float)(2 * x.scale + 1) * (float)(grid_values(t)[n] - quant_offset(t));
        }
    }
}
#define IQ(name, T) static void name(float *y, const uint8_t *b) { iq(y, b, T); }
IQ(iq2_xxs, DT_IQ2_XXS) IQ(iq2_xs, DT_IQ2_XS) IQ(iq2_s, DT_IQ2_S) IQ(iq3_xxs, DT_IQ3_XXS)
IQ(iq3_s, DT_IQ3_S) IQ(iq1_s, DT_IQ1_S) IQ(iq1_m, DT_IQ1_M)

/* ---- the table ---- */

/* In the order of enum dtype. factor: where the 16-bit factors of a block lie; -1: there is none. */
static const struct { enum dtype t; decode_fn *decode; int factor[2]; } table[] = {
    { DT_Q4_0, q4_0, { 0, -1 } },
    { DT_Q4_1, q4_1, { 0, 2 } },
    { DT_Q5_0, q5_0, { 0, -1 } },
    { DT_Q5_1, q5_1, { 0, 2 } },
    { DT_Q8_0, q8_0, { 0, -1 } },
    { DT_Q2_K, q2_k, { 80, 82 } },
    { DT_Q3_K, q3_k, { 108, -1 } },
    { DT_Q4_K, q4_k, { 0, 2 } },
    { DT_Q5_K, q5_k, { 0, 2 } },
    { DT_Q6_K, q6_k, { 208, -1 } },
    { DT_IQ4_NL, iq4_nl, { 0, -1 } },
    { DT_IQ4_XS, iq4_xs, { 0, -1 } },
    { DT_MXFP4, mxfp4, { -1, -1 } },
    { DT_TQ1_0, tq1_0, { 52, -1 } },
    { DT_TQ2_0, tq2_0, { 64, -1 } },
    { DT_IQ2_XXS, iq2_xxs, { 0, -1 } },
    { DT_IQ2_XS, iq2_xs, { 0, -1 } },
    { DT_IQ2_S, iq2_s, { 0, -1 } },
    { DT_IQ3_XXS, iq3_xxs, { 0, -1 } },
    { DT_IQ3_S, iq3_s, { 0, -1 } },
    { DT_IQ1_S, iq1_s, { 0, -1 } },
    { DT_IQ1_M, iq1_m, { -1, -1 } },
    { DT_Q1_0, q1_0, { 0, -1 } },
    { DT_Q2_0, q2_0, { 0, -1 } },
    { DT_NVFP4, nvfp4, { -1, -1 } },
};

enum { MXFP4_MAX = 252 };                                /* 12 2^(252 - 128) is finite */
static bool block_is_finite(enum dtype t, const uint8_t *b)
{
    const int *factor = table[t - DT_Q4_0].factor;
    return t == DT_MXFP4   ? b[0] <= MXFP4_MAX
           : t == DT_NVFP4 ? true
           : t == DT_IQ1_M ? (iq1_m_factor(b) & 0x7c00) != 0x7c00
                           : is_finite(b + factor[0]) && (factor[1] < 0 || is_finite(b + factor[1]));
}

bool quant_is_finite(enum dtype t, const void *blocks, size_t n)
{
    const uint8_t *b = blocks;
    for (size_t i = 0; i < n; i += dtype_block(t), b += dtype_block_bytes(t))
        if (!block_is_finite(t, b))
            return false;
    return true;
}

bool quant_decode(float *y, enum dtype t, const void *blocks, size_t n)
{
    assert(table[t - DT_Q4_0].t == t && n % dtype_block(t) == 0);
    if (!quant_is_finite(t, blocks, n))
        return false;
    const uint8_t *b = blocks;
    for (size_t i = 0; i < n; i += dtype_block(t), b += dtype_block_bytes(t))
        table[t - DT_Q4_0].decode(y + i, b);
    return true;
}

void quant_table_row(const struct mat *m, size_t r, float *y)
{
    const size_t row = m->k / dtype_block(m->type) * dtype_block_bytes(m->type);
    const bool finite = quant_decode(y, m->type, (const char *)m->w + r * row, m->k);
    assert(finite);                          /* checked when the table was loaded */
    (void)finite;
}
