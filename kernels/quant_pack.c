/* Rows of quantised weights in their packed form (quant_layout.h), and back. Start reading at move_group. */
#include <assert.h>
#include <math.h>

#include "kernels/quant.h"
#include "kernels/quant_layout.h"

/* Copies n bytes from the packed form to the block, or back where `put` is set. */
static inline void move(uint8_t *packed, uint8_t *block, size_t n, bool put)
{
    memcpy(put ? packed : block, put ? block : packed, n);
}

/* Exchanges the two middle bytes of four. */
static inline uint32_t swapped(uint32_t x)
{
    return (x & 0xff0000ff) | (x >> 8 & 0xff00) | (x & 0xff00) << 8;
}

/* n words of one lane; `packed` is the first one. */
static inline void move_words(uint8_t *packed, uint8_t *block, size_t n, bool put)
{
    for (size_t i = 0; i < n; i++, packed += 4 * PANEL, block += 4) {
        uint32_t x;
        memcpy(&x, put ? block : packed, 4);
        x = swapped(x);
        memcpy(put ? packed : block, &x, 4);
    }
}

/* Exchanges the bits of `mask` with those n places higher. */
static uint32_t exchanged(uint32_t x, uint32_t mask, int n)
{
    const uint32_t t = (x ^ x >> n) & mask;
    return x ^ t ^ t << n;
}

/* Even bits to the low half, odd bits to the high half; `back` undoes it. With first = 1 pairs of bits. */
static uint32_t parted_from(uint32_t x, bool back, int first)
{
    static const uint32_t mask[4] = { 0x22222222, 0x0c0c0c0c, 0x00f000f0, 0x0000ff00 };
    for (int i = first; i < 4; i++) {
        const int n = back ? 3 + first - i : i;
        x = exchanged(x, mask[n], 1 << n);
    }
    return x;
}
static uint32_t parted(uint32_t x, bool back) { return parted_from(x, back, 0); }

/* The signs of 32 weights, a bit each; `own` are those of the word that are signs. */
static void move_signs(uint8_t *packed, uint8_t *signs, uint32_t own, bool put)
{
    uint32_t x;
    memcpy(&x, put ? signs : packed, 4);
    x = put ? parted(x ^ own, false) : parted(x, true) ^ own;
    memcpy(put ? packed : signs, &x, 4);
}

static void move_parted(uint8_t *packed, uint8_t *block, int first, bool put)
{
    uint32_t x;
    memcpy(&x, put ? block : packed, 4);
    x = parted_from(x, !put, first);
    memcpy(put ? packed : block, &x, 4);
}

/* ---- 16 fields of 6 bits in three words: five in each, the last in the upper two bits of all ---- */

static void set_fields(uint8_t *packed, const int f[16])
{
    for (int i = 0; i < 3; i++, packed += 4 * PANEL) {
        uint32_t w = (uint32_t)(f[15] >> 2 * i & 3) << 30;
        for (int j = 0; j < 5; j++)
            w |= (uint32_t)f[5 * i + j] << 6 * j;
        memcpy(packed, &w, 4);
    }
}

static void get_fields(const uint8_t *packed, int f[16])
{
    f[15] = 0;
    for (int i = 0; i < 3; i++, packed += 4 * PANEL) {
        uint32_t w;
        memcpy(&w, packed, 4);
        for (int j = 0; j < 5; j++)
            f[5 * i + j] = (int)(w >> 6 * j & 63);
        f[15] |= (int)(w >> 30) << 2 * i;
    }
}

/* The 12 bytes of Q4_K and Q5_K: 8 scales, then 8 minima. */
static void move_scales_4(uint8_t *packed, uint8_t *sc, bool put)
{
    int f[16];
    if (put) {
        for (int s = 0; s < 4; s++) {
            f[s] = sc[s] & 63;
            f[8 + s] = sc[s + 4] & 63;
            f[4 + s] = (sc[s + 8] & 15) | sc[s] >> 6 << 4;
            f[12 + s] = sc[s + 8] >> 4 | sc[s + 4] >> 6 << 4;
        }
        set_fields(packed, f);
        return;
    }
    get_fields(packed, f);
    for (int s = 0; s < 4; s++) {
        sc[s] = (uint8_t)(f[s] | f[4 + s] >> 4 << 6);
        sc[s + 4] = (uint8_t)(f[8 + s] | f[12 + s] >> 4 << 6);
        sc[s + 8] = (uint8_t)((f[4 + s] & 15) | (f[12 + s] & 15) << 4);
    }
}

/* The 12 bytes of Q3_K: 16 scales. */
static void move_scales_3(uint8_t *packed, uint8_t *sc, bool put)
{
    int f[16];
    if (put) {
        for (int s = 0; s < 16; s++)
            f[s] = (s < 8 ? sc[s] & 15 : sc[s - 8] >> 4) | (sc[8 + s % 4] >> 2 * (s / 4) & 3) << 4;
        set_fields(packed, f);
        return;
    }
    get_fields(packed, f);
    memset(sc, 0, 12);
    for (int s = 0; s < 16; s++) {
        sc[s % 8] |= (uint8_t)((f[s] & 15) << 4 * (s / 8));
        sc[8 + s % 4] |= (uint8_t)(f[s] >> 4 << 2 * (s / 4));
    }
}

/* The 8 bytes of IQ1_M: four words of four scales of 3 bits and 4 bits of the factor. */
static void move_scales_1(uint8_t *d, uint8_t *packed, uint8_t *sc, bool put)
{
    uint16_t factor = 0, w[3] = { 0 }, x[4];
    if (put) {
        memcpy(x, sc, 8);
        for (int i = 0; i < 4; i++)
            factor |= (uint16_t)(x[i] >> 12 << 4 * i);
        for (int s = 0; s < 15; s++)
            w[s / 5] |= (uint16_t)((x[s / 4] >> 3 * (s % 4) & 7) << 3 * (s % 5));
        for (int i = 0; i < 3; i++) {
            w[i] |= (uint16_t)((x[3] >> (9 + i) & 1) << 15);
            memcpy(packed + 2 * PANEL * i, &w[i], 2);
        }
        memcpy(d, &factor, 2);
        return;
    }
    memcpy(&factor, d, 2);
    for (int i = 0; i < 3; i++)
        memcpy(&w[i], packed + 2 * PANEL * i, 2);
    for (int i = 0; i < 4; i++) {
        x[i] = (uint16_t)((factor >> 4 * i & 15) << 12);
        for (int s = 4 * i; s < 4 * i + 4 && s < 15; s++)
            x[i] |= (uint16_t)((w[s / 5] >> 3 * (s % 5) & 7) << 3 * (s % 4));
    }
    for (int i = 0; i < 3; i++)
        x[3] |= (uint16_t)(w[i] >> 15 << (9 + i));
    memcpy(sc, x, 8);
}

/* ---- groups ---- */

/* `blocks` blocks of one lane, of NVFP4, Q1_0 or Q2_0. */
static inline void move_few(uint8_t *g, enum dtype t, size_t blocks, size_t lane, uint8_t *b, bool put)
{
    const size_t low = quant_layout(t, blocks).low;
    for (size_t s = 0; s < blocks && t == DT_NVFP4; s++, b += 36) {
        for (size_t i = 0; i < 4; i++)
            move(g + PANEL * (4 * s + i) + lane, b + i, 1, put);
        move_words(g + low + 4 * PANEL * 8 * s + 4 * lane, b + 4, 8, put);
    }
    if (t == DT_NVFP4)
        return;
    for (size_t s = 0; s < blocks; s++, b += 18) {
        move(g + 2 * (PANEL * s + lane), b, 2, put);
        for (size_t i = 0; i < 4; i++)
            move_parted(g + low + 4 * PANEL * (4 * s + i) + 4 * lane, b + 2 + 4 * i, t == DT_Q2_0, put);
    }
}

/* `blocks` blocks of 32 of one lane. */
static inline void move_small(uint8_t *g, enum dtype t, size_t blocks, size_t lane, uint8_t *b, bool put)
{
    const struct quant_layout at = quant_layout(t, blocks);
    const size_t bytes = dtype_block_bytes(t), low = t == DT_Q8_0 ? 32 : 16, d = t == DT_MXFP4 ? 1 : 2;
    for (size_t s = 0; s < blocks; s++, b += bytes) {
        const size_t f = 2 * (PANEL * s + lane);
        uint8_t *to = g + at.low + low * PANEL * s, *from = b + bytes - low;
        move(g + d * (PANEL * s + lane), b, d, put);
        if (at.m)
            move(g + at.m + f, b + 2, 2, put);
        if (at.high)
            move_parted(g + at.high + 2 * f, b + (at.m ? 4 : 2), 0, put);
        if (t == DT_Q8_0)
            for (size_t i = 0; i < 16; i++)
                move(to + 2 * PANEL * i + 2 * lane, from + 2 * i, 2, put);
        else
            move_words(to + 4 * lane, from, 4, put);
    }
}

/* n words of one lane, as they are. */
static void move_plain(uint8_t *packed, uint8_t *block, size_t n, bool put)
{
    for (size_t i = 0; i < n; i++)
        move(packed + 4 * PANEL * i, block + 4 * i, 4, put);
}

/* Four times seven signs of a word, and its upper four bits, as the bytes of four times eight signs. */
static void move_sevens(uint8_t *packed, uint8_t *word, bool put)
{
    uint8_t signs[4] = { 0 };
    uint32_t w = 0;
    if (put)
        memcpy(&w, word, 4);
    for (int j = 0; j < 4; j++)
        signs[j] = (uint8_t)((w >> 7 * j & 127) | (w >> (28 + j) & 1) << 7);
    move_signs(packed, signs, 0x7f7f7f7f, put);
    if (put)
        return;
    for (int j = 0; j < 4; j++)
        w |= (signs[j] & 127u) << 7 * j | (uint32_t)(signs[j] >> 7) << (28 + j);
    memcpy(word, &w, 4);
}

/* IQ2_XS: a word of 16 bits is an index of 9 and seven signs. */
static void move_indices(uint8_t *low, uint8_t *high, uint8_t *b, bool put)
{
    uint8_t signs[4] = { 0 };
    for (size_t j = 0; j < 4; j++) {
        move(low + j, b + 2 * j, 1, put);
        if (put)
            signs[j] = (uint8_t)(b[2 * j + 1] >> 1 | b[2 * j + 1] << 7);
    }
    move_signs(high, signs, 0x7f7f7f7f, put);
    for (size_t j = 0; j < 4 && !put; j++)
        b[2 * j + 1] = (uint8_t)(signs[j] << 1 | signs[j] >> 7);
}

/* The parts of a block with grids that are whole words: how many and where; and where signs are. */
struct words { uint8_t n, at; };
static const struct { struct words low, more, scale; uint8_t signs; } grid_parts[] = {
    { { 0, 0 }, { 0, 0 }, { 0, 0 }, 6 },                         /* IQ2_XXS: a word of each, in turns */
    { { 0, 0 }, { 0, 0 }, { 2, 66 }, 0 },                        /* IQ2_XS */
    { { 8, 2 }, { 2, 66 }, { 2, 74 }, 34 },                      /* IQ2_S */
    { { 16, 2 }, { 0, 0 }, { 0, 0 }, 66 },                       /* IQ3_XXS */
    { { 16, 2 }, { 2, 66 }, { 1, 106 }, 74 },                    /* IQ3_S */
    { { 8, 2 }, { 4, 34 }, { 0, 0 }, 0 },                        /* IQ1_S */
    { { 8, 0 }, { 4, 32 }, { 0, 0 }, 0 },                        /* IQ1_M */
};

static void move_grid(uint8_t *g, enum dtype t, size_t lane, uint8_t *b, bool put)
{
    const struct quant_layout at = quant_layout(t, 1);
    const struct words low = grid_parts[t - DT_IQ2_XXS].low, more = grid_parts[t - DT_IQ2_XXS].more,
                       scale = grid_parts[t - DT_IQ2_XXS].scale;
    uint8_t *signs = b + grid_parts[t - DT_IQ2_XXS].signs, *to = g + 4 * lane;
    move_plain(to + at.low, b + low.at, low.n, put);
    move_plain(to + at.more, b + more.at, more.n, put);
    move_plain(to + at.scale, b + scale.at, scale.n, put);
    if (t == DT_IQ1_M)
        move_scales_1(g + 2 * lane, g + at.scale + 2 * lane, b + 48, put);
    else
        move(g + 2 * lane, b, 2, put);
    for (size_t s = 0; s < 8 && at.high; s++, to += 4 * PANEL)
        switch (t) {
        case DT_IQ2_XXS:
            move_plain(to + at.low, b + 2 + 8 * s, 1, put);
            move_sevens(to + at.high, signs + 8 * s, put);
            break;
        case DT_IQ2_XS:  move_indices(to + at.low, to + at.high, b + 2 + 8 * s, put); break;
        case DT_IQ3_XXS: move_sevens(to + at.high, signs + 4 * s, put); break;
        default:         move_signs(to + at.high, signs + 4 * s, UINT32_MAX, put);
        }
}

/* A block of 256 of one lane. */
static inline void move_large(uint8_t *g, enum dtype t, size_t lane, uint8_t *b, bool put)
{
    const struct quant_layout at = quant_layout(t, 1);
    uint8_t *d = g + 2 * lane, *scale = g + at.scale, *low = g + at.low + 4 * lane,
            *high = g + at.high + 4 * lane;
    switch (t) {
    case DT_Q2_K:
        for (size_t s = 0; s < 16; s++)
            move(scale + PANEL * s + lane, b + s, 1, put);
        move_words(low, b + 16, 16, put);
        move(d, b + 80, 2, put);
        move(d + at.m, b + 82, 2, put);
        return;
    case DT_Q3_K:
        move_words(high, b, 8, put);
        move_words(low, b + 32, 16, put);
        move_scales_3(scale + 4 * lane, b + 96, put);
        move(d, b + 108, 2, put);
        return;
    case DT_Q4_K: case DT_Q5_K:
        move(d, b, 2, put);
        move(d + at.m, b + 2, 2, put);
        move_scales_4(scale + 4 * lane, b + 4, put);
        if (t == DT_Q5_K)
            move_words(high, b + 16, 8, put);
        move_words(low, b + (t == DT_Q5_K ? 48 : 16), 32, put);
        return;
    case DT_Q6_K:
        move_words(low, b, 32, put);
        move_words(high, b + 128, 16, put);
        for (size_t s = 0; s < 16; s++)
            move(scale + PANEL * s + lane, b + 192 + s, 1, put);
        move(d, b + 208, 2, put);
        return;
    case DT_TQ1_0: case DT_TQ2_0: {
        const size_t words = t == DT_TQ1_0 ? 13 : 16;
        move_words(low, b, words, put);
        move(d, b + 4 * words, 2, put);
        return;
    }
    default:
        assert(t == DT_IQ4_XS);
        move(d, b, 2, put);
        move(scale + 2 * lane, b + 2, 2, put);
        move(scale + 2 * PANEL + 4 * lane, b + 4, 4, put);
        move_words(low, b + 8, 32, put);
    }
}

/* Constant types give the compiler straight code. */
#define SMALL(T) case T: move_small(g, T, blocks, lane, b, put); return;
#define LARGE(T) case T: move_large(g, T, lane, b, put); return;
static inline __attribute__((always_inline)) void move_group(uint8_t *g, enum dtype t, size_t blocks,
                                                             size_t lane, uint8_t *b, const bool put)
{
    switch (t) {
    SMALL(DT_Q4_0) SMALL(DT_Q4_1) SMALL(DT_Q5_0) SMALL(DT_Q5_1) SMALL(DT_Q8_0) SMALL(DT_IQ4_NL)
    SMALL(DT_MXFP4)
    case DT_Q1_0: case DT_Q2_0: case DT_NVFP4: move_few(g, t, blocks, lane, b, put); return;
    LARGE(DT_Q2_K) LARGE(DT_Q3_K) LARGE(DT_Q4_K) LARGE(DT_Q5_K) LARGE(DT_Q6_K) LARGE(DT_IQ4_XS)
    LARGE(DT_TQ1_0) LARGE(DT_TQ2_0)
    default:
        assert(dtype_has_grid(t));
        move_grid(g, t, lane, b, put);
    }
}

static size_t blocks_at(const struct mat *m, size_t k)   /* of the group that begins at input k */
{
    return (m->k - k < QUANT_GROUP ? m->k - k : QUANT_GROUP) / dtype_block(m->type);
}

void quant_pack(struct mat *m, size_t r0, size_t n, const void *rows)
{
    const size_t bytes = dtype_block_bytes(m->type);
    uint8_t *b = (uint8_t *)(uintptr_t)rows;
    for (size_t r = r0; r < r0 + n; r++) {
        uint8_t *g = (uint8_t *)m->w + r / PANEL * mat_panel_bytes(m);
        for (size_t k = 0; k < m->k; k += QUANT_GROUP) {
            const size_t blocks = blocks_at(m, k);
            move_group(g, m->type, blocks, r % PANEL, b, true);
            b += blocks * bytes;
            g += blocks * bytes * PANEL;
        }
    }
}

void quant_row(const struct mat *m, size_t r, float *y)
{
    const size_t bytes = dtype_block_bytes(m->type);
    uint8_t *g = (uint8_t *)m->w + r / PANEL * mat_panel_bytes(m), row[8 * 34];      /* a group of any type */
    for (size_t k = 0; k < m->k; k += QUANT_GROUP) {
        const size_t blocks = blocks_at(m, k);
        move_group(g, m->type, blocks, r % PANEL, row, false);
        const bool finite = quant_decode(y + k, m->type, row, blocks * dtype_block(m->type));
        assert(finite);                      /* quant_is_finite was true when the row was packed */
        (void)finite;
        for (size_t i = k; i < k + blocks * dtype_block(m->type) && m->scaled; i++)
            y[i] *= m->scale;
        g += blocks * bytes * PANEL;
    }
}

/* The power of two at or below x as a 16-bit float, smaller ones as a multiple of 2^-24; 0 <= x < 2^16. */
static uint16_t half_of(float x)
{
    return (uint16_t)(x < 0x1p-14f ? (uint32_t)(x * 0x1p24f) : ((to_bits(x) >> 23) - 112) << 10);
}

/* About the deviation of a weight whose factor is 1, and the second factor in units of the first: one that
 * makes the mean of the weights small. In the order of enum dtype. */
static const struct { float deviation, second; } shapes[] = {
    { 4.6f, 0 }, { 4.6f, 7 }, { 9.2f, 0 }, { 9.2f, 15 }, { 74, 0 },      /* Q4_0 .. Q8_0 */
    { 14, 1 }, { 42, 0 }, { 320, 7 }, { 650, 15 }, { 1360, 0 },          /* Q2_K .. Q6_K */
    { 70, 0 }, { 1300, 0 }, { 5.9f, 0 }, { 0.82f, 0 }, { 1.2f, 0 },      /* IQ4_NL .. TQ2_0 */
    { 53, 0 }, { 56, 0 }, { 56, 0 }, { 142, 0 }, { 140, 0 },             /* IQ2_XXS .. IQ3_S */
    { 7.2f, 0 }, { 7.2f, 0 }, { 1, 0 }, { 1.2f, 0 }, { 5.9f, 0 },        /* IQ1_S, IQ1_M, Q1_0, Q2_0, NVFP4 */
};

void quant_random(struct mat *m, size_t p0, size_t p1, uint64_t seed)
{
    const enum dtype t = m->type;
    const float factor = 1 / (shapes[t - DT_Q4_0].deviation * sqrtf((float)m->k));
    /* the minimum is added in Q4_1 and Q5_1, subtracted in the others */
    const uint16_t d = half_of(factor),
                   dm = half_of(factor * shapes[t - DT_Q4_0].second) |
                        (t == DT_Q4_1 || t == DT_Q5_1 ? 0x8000 : 0);
    const size_t block = dtype_block(t), bytes = dtype_block_bytes(t), words = mat_panel_bytes(m) / 8;
    for (size_t p = p0; p < p1; p++) {
        uint8_t *g = (uint8_t *)m->w + p * mat_panel_bytes(m);
        for (size_t i = 0; i < words; i++) {
            uint64_t h = (seed << 40) + p * words + i;
            h = (h ^ h >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
            h = (h ^ h >> 29) * UINT64_C(0x94d049bb133111eb);
            h ^= h >> 31;
            memcpy(g + 8 * i, &h, 8);
        }
        for (size_t k = 0, n; k < m->k; k += QUANT_GROUP, g += n * bytes * PANEL) {
            n = blocks_at(m, k);
            const struct quant_layout at = quant_layout(t, n);
            if (t == DT_MXFP4) {                         /* the power of two of d */
                memset(g, (d >> 10) + 113, PANEL * n);
                continue;
            }
            if (t == DT_NVFP4) {                         /* numbers below 16 are so many times 2^-10 */
                const int x = factor > 0x1p-6f ? 15 : (int)(factor * 0x1p10f);
                memset(g, x + !x, PANEL * 4 * n);
                continue;
            }
            for (size_t i = 0; i < PANEL * (block < 256 ? n : 1); i++) {
                memcpy(g + 2 * i, &d, 2);
                if (at.m)
                    memcpy(g + at.m + 2 * i, &dm, 2);
            }
        }
    }
}
