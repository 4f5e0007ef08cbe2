/* Products with quantised weights (matmul_quantized of ops.h), written once for all twins. twin_impl.h
 * includes this file; a twin defines, for registers of QL lanes:
 *
 *   qf                   QL floats, with qf_zero, qf_load, qf_store, qf_set1, qf_fma, qf_mul qf_half
 *                        (loads 16-bit floats), qf_power (2^(x - 128) of bytes x) and qf_e4m3 (quant_e4m3
 *                        of bytes)
 *   qi                   QL int32, with qi_set1, qi_load, qi_srl(a, n), qi_sra(a, n), qi_sll(a, n),
 *                        qi_and(a, mask), qi_or, qi_xor, qi_add, qi_sub(a, b), qi_i8, qi_u8, qi_u16 (load
 *                        bytes or 16-bit words), qi_gather(words, indices) and qi_float; where Q_SUMS is 1
 *                        qi_select(words, a) (of 16 words those that the low 4 bits of a name)
 *   qh                   2 QL int16, with qh_load, qh_store, qh_widen (loads int8), qh_srl(a, n),
 *                        qh_sll(a, n), qh_and(a, mask), qh_or_and(a, b, mask) (a | b & mask), qh_sub(a, n),
 *                        qh_mul(a, n), qh_mul_high(a, n) (low 16 bits; high ones of unsigned numbers),
 *                        qh_table(table, a) (the bytes a, below 16, of a table) and qh_of(qi)
 *   QI_DOT(a, w, x)      adds to a the products of the pairs of w with the pair of int16 at x
 *   Q_ROWS, Q_SHAPES     rows of the largest tile; the list of all numbers of rows up to it
 *   Q_FUSED_SHAPES       the numbers of rows for which weights are expanded into registers. Otherwise a group
 *                        is expanded to memory first, for all rows
 *   Q_FUSED_LIGHT        further such numbers, for the types of Q_LIGHT alone: the others would need more
 *                        registers than there are
 *   Q_PLACES             1: one row of weights of 2 bits is multiplied by q_dot_in_places
 *   Q_SUMS               1: one row of Q1_0 is multiplied by matmul_sums
 *   Q_HALVES             1: five to eight rows of these types are multiplied as two halves
 *
 * A panel has PARTS parts of QL outputs. Start reading at OP(matmul_quantized), then q_tile. */
#include "kernels/quant_layout.h"

enum { PARTS = PANEL / QL, Q_LOT = 256 };                /* rows that share an expanded group */
#define Q_EXPANDED DT_I16                                /* the form that q_expand writes */

/* ---- a group of the packed form, one part of its lanes ---- */

struct q_group {
    /* at the part's first lane; d and m are 2 bytes a lane */
    const char *d, *m, *scale, *more, *high, *low;
    size_t subs;
};

INLINE struct q_group q_group_at(const enum dtype t, const char *g, size_t k, size_t part)
{
    const size_t bytes = t == DT_Q2_K || t == DT_Q6_K ? 1 : t == DT_IQ1_M ? 2 : 4;   /* of scales of a lane */
    const struct quant_layout at = quant_layout(t, k / dtype_block(t));
    return (struct q_group){ g + (t == DT_MXFP4 || t == DT_NVFP4 ? 1 : 2) * QL * part,
                             g + at.m + 2 * QL * part,
                             g + at.scale + bytes * QL * part, g + at.more + 4 * QL * part,
                             g + at.high + 4 * QL * part,
                             g + at.low + (t == DT_Q8_0 ? 2 : 4) * QL * part,
                             k / (size_t)quant_sub_block(t) };
}

INLINE qh q_word(const char *p, size_t w) { return qh_load(p + 4 * PANEL * w); }

/* Bits of two inputs: n bits from bit `at` of each half of word w, moved up to bit `to`. */
INLINE qh q_bits(const char *p, size_t w, const int at, const int n, const int to)
{
    const qh x = q_word(p, w), y = at > to ? qh_srl(x, at - to) : at < to ? qh_sll(x, to - at) : x;
    return at + n == 16 && to == 0 ? y : qh_and(y, ((1 << n) - 1) << to);
}

/* The same, with the bits of `low` below them. */
INLINE qh q_over(qh low, const char *p, size_t w, const int at, const int n, const int to)
{
    const qh x = q_word(p, w);
    return qh_or_and(low,
                     at > to   ? qh_srl(x, at - to)
                     : at < to ? qh_sll(x, to - at)
                               : x,
                     ((1 << n) - 1) << to);
}

/* Digit n of base 3 of two bytes, which are at bit `at` of each half of word w. A byte is a fraction of 256,
 * and its first digit is the whole part of 3 times it. */
INLINE qh q_digit(const char *p, size_t w, const int at, const int n)
{
    static const int power[5] = { 1, 3, 9, 27, 81 };
    const qh x = q_word(p, w), high = at ? qh_and(x, 0xff00) : qh_sll(x, 8);
    return qh_mul_high(n ? qh_mul(high, power[n]) : high, 3);
}

/* ---- the types with grids: 32 weights are sub-block s ---- */

/* Bits of a word of the lanes, which begins at p. */
INLINE qi q_part(const char *p, const int word, const int at, const int n)
{
    const qi x = qi_srl(qi_load(p + 4 * PANEL * word), at);
    return at + n == 32 ? x : qi_and(x, (1 << n) - 1);
}

/* The numbers of the inputs 8 j .. 8 j + 7, as the words of grids have them; those of IQ1_S and IQ1_M with
 * bit 3. */
INLINE qi q_grid(const enum dtype t, const struct q_group *g, const int s, const int j)
{
    const uint32_t *grid = grid_words + grid_of(t);
    if (t == DT_IQ3_XXS || t == DT_IQ3_S) {
        qi a[2];
        for (int i = 0; i < 2; i++) {
            a[i] = q_part(g->low, 2 * s + j / 2, 16 * (j % 2) + 8 * i, 8);
            if (t == DT_IQ3_S)
                a[i] = qi_or(a[i], qi_sll(q_part(g->more, s / 4, 8 * (s % 4) + 2 * j + i, 1), 8));
        }
        return qi_or(qi_gather(grid, a[0]), qi_sll(qi_gather(grid, a[1]), 8));
    }
    const qi low = q_part(g->low, s, 8 * j, 8);
    if (t == DT_IQ2_XXS)
        return qi_gather(grid, low);
    if (t == DT_IQ2_XS || t == DT_IQ2_S) {
        const qi high = t == DT_IQ2_XS ? q_part(g->high, s, 19 + 4 * j, 1)
                                       : q_part(g->more, s / 4, 8 * (s % 4) + 2 * j, 2);
        return qi_gather(grid, qi_or(low, qi_sll(high, 8)));
    }
    const int at = 16 * (s % 2) + (t == DT_IQ1_S ? 3 : 4) * j;
    const qi high = q_part(g->more, s / 2, at, 3),
             minus = q_part(g->more, s / 2, t == DT_IQ1_S ? 16 * (s % 2) + 15 : at + 3, 1);
    return qi_or(qi_gather(grid, qi_or(low, qi_sll(high, 8))),
                 qi_and(qi_sub(minus, qi_set1(1)), (int32_t)0x88888888));
}

/* A bit for each weight. Where there are seven signs for eight weights, the eighth is their parity. */
INLINE qh q_signs(const enum dtype t, const struct q_group *g, const int s)
{
    const qi x = qi_load(g->high + 4 * PANEL * s);
    if (t == DT_IQ2_S || t == DT_IQ3_S)
        return qh_of(x);
    const qi own = qi_and(x, 0x7777ffff);
    qi y = qi_xor(own, qi_srl(own, 16));
    y = qi_xor(y, qi_srl(y, 2));
    y = qi_xor(y, qi_srl(y, 1));
    return qh_of(qi_or(own, qi_sll(qi_and(y, 0x1111), 19)));
}

INLINE qh q_grid_pair(const enum dtype t, const struct q_group *g, const int s, const int i)
{
    const qh word = qh_of(q_grid(t, g, s, i / 4));
    if (t == DT_IQ1_S || t == DT_IQ1_M) {
        const qh x = qh_srl(word, 4 * (i % 4));
        return qh_and(qh_table(grid_values(t), i % 4 == 3 ? x : qh_and(x, 15)), 255);
    }
    const qh x = i % 4 == 3 ? qh_srl(word, 12) : qh_and(qh_srl(word, 4 * (i % 4)), 7),
             sign = q_signs(t, g, s);
    return qh_table(grid_values(t), qh_or_and(x, i > 3 ? qh_srl(sign, i - 3) : qh_sll(sign, 3 - i), 8));
}

/* The scale of sub-block s, of 16 or 32 weights. */
INLINE qi q_grid_scale(const enum dtype t, const struct q_group *g, const int s)
{
    if (t == DT_IQ1_S)
        return q_part(g->more, s / 2, 16 * (s % 2) + 12, 3);
    if (t == DT_IQ1_M && s < 15)
        return qi_and(qi_srl(qi_u16(g->scale + 2 * PANEL * (s / 5)), 3 * (s % 5)), 7);
    if (t == DT_IQ1_M) {
        qi x = qi_srl(qi_u16(g->scale), 15);
        for (int w = 1; w < 3; w++)
            x = qi_or(x, qi_sll(qi_srl(qi_u16(g->scale + 2 * PANEL * w), 15), w));
        return x;
    }
    if (t != DT_IQ2_XXS && t != DT_IQ3_XXS)
        return q_part(g->scale, s / 8, 4 * (s % 8), 4);
    qi x = qi_and(qi_srl(qi_load(g->high + 4 * PANEL * s), 19), 0x1111);     /* four bits, four apart */
    x = qi_and(qi_or(x, qi_srl(x, 3)), 0x0303);
    return qi_and(qi_or(x, qi_srl(x, 6)), 15);
}

/* Pair i of sub-block s, before the offset is subtracted. */
INLINE qh q_pair(const enum dtype t, const struct q_group *g, const int s, const int i)
{
    /* sub-blocks of 16 */
    const int half = s / 8, k = s % 8 / 2, word = 4 * (s % 2) + i / 2, odd = 8 * (i % 2);
    switch (t) {
    case DT_Q8_0:
        return qh_widen(g->low + 2 * PANEL * (size_t)(16 * s + i));
    case DT_Q4_0: case DT_Q4_1: case DT_Q5_0: case DT_Q5_1: case DT_IQ4_NL: case DT_IQ4_XS:
    case DT_MXFP4: case DT_NVFP4: {
        const int n = quant_sub_block(t) / 4;            /* pairs of low halves of bytes */
        const qh low = q_bits(g->low, (size_t)(n / 2 * s + i % n / 2), 4 * (i / n) + odd, 4, 0);
        if (t == DT_IQ4_NL || t == DT_IQ4_XS)
            return qh_table(quant_table, low);
        if (t == DT_MXFP4 || t == DT_NVFP4)
            return qh_and(qh_table(quant_fp4, low), 255);
        return t == DT_Q5_0 || t == DT_Q5_1 ? q_over(low, g->high, (size_t)s, i, 1, 4) : low;
    }
    case DT_Q4_K: case DT_Q5_K: {
        const qh low = q_bits(g->low, (size_t)(8 * (s / 2) + i / 2), 4 * (s % 2) + odd, 4, 0);
        return t == DT_Q5_K ? q_over(low, g->high, (size_t)(i / 2), s + odd, 1, 4) : low;
    }
    case DT_Q6_K:
        return q_over(q_bits(g->low, (size_t)(16 * half + 8 * (k % 2) + word), 4 * (k / 2) + odd, 4, 0),
                      g->high, (size_t)(8 * half + word), 2 * k + odd, 2, 4);
    case DT_Q2_K:
        return q_bits(g->low, (size_t)(8 * half + word), 2 * k + odd, 2, 0);
    case DT_Q1_0:
        return q_bits(g->low, (size_t)s, i, 1, 1);       /* twice the bit */
    case DT_Q2_0:
        return q_bits(g->low, (size_t)(2 * s + i / 8), 2 * (i % 8), 2, 0);
    case DT_TQ2_0:
        return q_bits(g->low, (size_t)(8 * (s / 4) + i / 2), 2 * (s % 4) + odd, 2, 0);
    case DT_TQ1_0:                       /* 5 digits of 32 bytes, 5 of 16, 4 of 4 */
        return s < 5            ? q_digit(g->low, (size_t)(i / 2), odd, s)
               : s < 7 || i < 8 ? q_digit(g->low, (size_t)(8 + i % 8 / 2), odd, 2 * (s - 5) + i / 8)
                                : q_digit(g->low, 12, odd, i / 2 - 4);
    case DT_Q3_K:
        return q_over(q_bits(g->low, (size_t)(8 * half + word), 2 * k + odd, 2, 0), g->high, (size_t)word,
                      4 * half + k + odd, 1, 2);
    default:
        if (dtype_has_grid(t))
            return quant_sub_block(t) == 16 ? q_grid_pair(t, g, s / 2, 8 * (s % 2) + i)
                                            : q_grid_pair(t, g, s, i);
        return qh_load(g->low + 4 * QL * (size_t)i);     /* Q_EXPANDED: low is at the sub-block */
    }
}

/* Field f of 16. */
INLINE qi q_field(const char *p, const int f)
{
    if (f < 15)
        return qi_and(qi_srl(qi_load(p + 4 * PANEL * (f / 5)), 6 * (f % 5)), 63);
    qi x = qi_srl(qi_load(p), 30);
    for (int w = 1; w < 3; w++)
        x = qi_or(x, qi_and(qi_srl(qi_load(p + 4 * PANEL * w), 30 - 2 * w), 3 << 2 * w));
    return x;
}

INLINE qf q_scale(const enum dtype t, const struct q_group *g, const int s, qf d)
{
    switch (t) {
    case DT_Q2_K: return qf_mul(d, qi_float(qi_and(qi_u8(g->scale + PANEL * s), 15)));
    case DT_Q6_K: return qf_mul(d, qi_float(qi_i8(g->scale + PANEL * s)));
    case DT_Q3_K: return qf_mul(d, qi_float(qi_sub(q_field(g->scale, s), qi_set1(32))));
    case DT_Q4_K: case DT_Q5_K: return qf_mul(d, qi_float(q_field(g->scale, s)));
    case DT_IQ4_XS: {
        /* the high bits are 2 bytes a lane, the low ones lie after them, 4 bytes a lane */
        const qi high = qi_and(qi_srl(qi_u16(g->d + 2 * PANEL), 2 * s), 3),
                 low = qi_and(qi_srl(qi_load(g->scale + 2 * PANEL), 4 * s), 15);
        return qf_mul(d, qi_float(qi_sub(qi_or(low, qi_sll(high, 4)), qi_set1(32))));
    }
    case DT_MXFP4: return qf_power(g->d + PANEL * s);
    case DT_NVFP4: return qf_e4m3(g->d + PANEL * s);
    case DT_TQ1_0: case DT_TQ2_0: return d;
    default:
        if (dtype_has_grid(t)) {
            const qi twice = qi_sll(q_grid_scale(t, g, s), 1);
            return qf_mul(qf_mul(d, qf_set1(grid_unit(t))), qi_float(qi_add(twice, qi_set1(1))));
        }
        return qf_half(g->d + 2 * PANEL * (s * quant_sub_block(t) / (int)dtype_block(t)));
    }
}

/* -min */
INLINE qf q_minimum(const enum dtype t, const struct q_group *g, const int s, qf m)
{
    if (t == DT_Q2_K)
        return qf_mul(m, qi_float(qi_srl(qi_u8(g->scale + PANEL * s), 4)));
    if (t == DT_Q4_K || t == DT_Q5_K)
        return qf_mul(m, qi_float(q_field(g->scale, 8 + s)));
    return qf_half(g->m + 2 * PANEL * s);
}

/* Scales, and -min where the type has minima, of all sub-blocks of a group. */
INLINE void q_scales(const enum dtype t, const struct q_group *g, float scale[16 * QL],
                     float minimum[16 * QL])
{
    const bool large = dtype_block(t) == 256;
    const qf d = large ? qf_half(g->d) : qf_zero(),
             m = large && quant_has_minima(t) ? qf_mul(qf_set1(-1), qf_half(g->m)) : qf_zero();
    UNROLL for (int s = 0; s < 256 / quant_sub_block(t); s++)
        if (large || (size_t)s < g->subs) {
            qf_store(scale + QL * s, q_scale(t, g, s, d));
            if (quant_has_minima(t))
                qf_store(minimum + QL * s, q_minimum(t, g, s, m));
        }
}

/* ---- tiles ---- */

/* Rows of x at a group, row_bytes apart: whole numbers, sums of the sub-blocks (as int32 and as floats),
 * scale. */
struct q_left { const char *x, *sum, *total, *scale; size_t row_bytes; };

/* Packed bytes that lie ahead, fetched into the second-level cache while sub-blocks are multiplied: `each`
 * for a sub-block. Without it a pass of few rows takes the sum of the times of memory and products. */
enum { Q_AHEAD = 8192 };
struct q_ahead { const char *at; size_t each; };

INLINE void q_fetch(struct q_ahead *a)
{
    for (size_t i = 0; i < a->each; i += 64)
        __builtin_prefetch(a->at + i, 0, 2);
    a->at += a->each;
}

INLINE float q_float_at(const char *p, size_t row) { float x; memcpy(&x, p + row, sizeof x); return x; }
INLINE int32_t q_int_at(const char *p, size_t row) { int32_t x; memcpy(&x, p + row, sizeof x); return x; }

/* Types whose pairs take a shift each, for which a CPU has fewer ports than for a mask. */
INLINE bool q_has_places(const enum dtype t) { return Q_PLACES && (t == DT_Q2_0 || t == DT_TQ2_0); }

/* Sub-block s times one row, before the offset. Numbers stay at their places in a byte, and their sums are
 * shifted. */
INLINE qi q_dot_in_places(const enum dtype t, const struct q_group *g, const int s, const char *left)
{
    qi sum[4], all = qi_set1(0);
    UNROLL for (int i = 0; i < 4; i++) sum[i] = qi_set1(0);
    UNROLL for (int i = 0; i < 16; i++) {
        const qh x = q_word(g->low, (size_t)(t == DT_Q2_0 ? 2 * s + i / 8 : 8 * (s / 4) + i / 2));
        const bool high = t == DT_Q2_0 ? i / 4 % 2 : i % 2;
        const int place = t == DT_Q2_0 ? i % 4 : s % 4;
        QI_DOT(sum[i % 4], qh_and(high ? qh_srl(x, 8) : x, 3 << 2 * place), left + 4 * i);
    }
    UNROLL for (int i = 0; i < 4; i++)
        all = qi_add(all, t == DT_Q2_0 ? qi_sra(sum[i], 2 * i) : sum[i]);
    return t == DT_Q2_0 ? all : qi_sra(all, 2 * (s % 4));
}

/* Sub-block s of the packed form g and sub-block `at` of the group: c = fma(float(dot), scale, c) and so on.
 * A single row has two sums, so that fewer products wait for each other. */
INLINE void q_sub_block(qf *c, const enum dtype t, const int sub, const bool minima, const int offset,
                        const struct q_group *g, const int s, const struct q_left *x, size_t at,
                        const float *scale, const float *minimum, const int rows)
{
    qi a[Q_ROWS], b = qi_set1(0);
    const char *left = x->x + 2 * (size_t)sub * at;
    UNROLL for (int r = 0; r < rows; r++)
        a[r] = qi_set1(offset ? -offset * q_int_at(x->sum + 4 * at, (size_t)r * x->row_bytes) : 0);
    if (rows == 1 && q_has_places(t))
        b = q_dot_in_places(t, g, s, left);
    else UNROLL for (int i = 0; i < sub / 2; i++) {
        const qh w = q_pair(t, g, s, i);
        if (rows == 1 && i % 2)
            QI_DOT(b, w, left + 4 * i);
        else
            UNROLL for (int r = 0; r < rows; r++)
                QI_DOT(a[r], w, left + (size_t)r * x->row_bytes + 4 * i);
    }
    if (rows == 1)
        a[0] = qi_add(a[0], b);
    const qf sc = qf_load(scale), mn = minima ? qf_load(minimum) : qf_zero();
    UNROLL for (int r = 0; r < rows; r++) {
        c[r] = qf_fma(qi_float(a[r]), sc, c[r]);
        if (minima)
            c[r] = qf_fma(qf_set1(q_float_at(x->total + 4 * at, (size_t)r * x->row_bytes)), mn, c[r]);
    }
}

/* Adds a group, one part of its lanes, to acc [rows][PANEL]. The packed form repeats itself after `turn`
 * sub-blocks, and that many are unrolled. */
INLINE void q_tile(float *acc, const enum dtype t, const int sub, const bool minima, const int offset,
                   struct q_group g, const struct q_left *x, const float *scale, const float *minimum,
                   struct q_ahead ahead, const int rows)
{
    const int turn = t == DT_Q4_K                                   ? 2
                     : t == DT_Q5_K || t == DT_Q6_K || t == DT_Q2_K ? 8
                     : t == DT_Q3_K                                 ? 16
                     : t == DT_NVFP4                                ? 4
                     : t >= DT_TQ1_0 && t <= DT_IQ1_M               ? 256 / sub
                                                                    : 1;
    const size_t low = t == Q_EXPANDED   ? (size_t)sub / 2 * 4 * QL
                       : t == DT_Q6_K    ? 1024
                       : t == DT_Q4_K || t == DT_Q2_K || t == DT_Q8_0 || t == DT_NVFP4 ? 512
                       : t == DT_Q2_0    ? 128
                       : t == DT_Q1_0    ? 64
                                         : 256,
                 high = t == DT_Q6_K ? 512 : 64;
    qf c[Q_ROWS];
    UNROLL for (int r = 0; r < rows; r++) c[r] = qf_zero();
    for (size_t at = 0; at < g.subs; at += (size_t)turn, g.low += low, g.high += high)
        UNROLL for (int s = 0; s < turn; s++) {
            q_fetch(&ahead);
            q_sub_block(c, t, sub, minima, offset, &g, s, x, at + (size_t)s, scale + QL * (at + (size_t)s),
                        minimum + QL * (at + (size_t)s), rows);
        }
    UNROLL for (int r = 0; r < rows; r++)
        qf_store(acc + PANEL * r, qf_fma(c[r], qf_set1(q_float_at(x->scale, (size_t)r * x->row_bytes)),
                                         qf_load(acc + PANEL * r)));
}

/* Pairs of a group as int16, offset subtracted: [pairs][2 QL]. Four pairs share a look-up in a grid, which a
 * store between them would repeat. */
INLINE void q_expand(char *to, const enum dtype t, const struct q_group *g)
{
    const int sub = quant_sub_block(t), all = 256 / sub, offset = quant_offset(t);
    UNROLL for (int s = 0; s < all; s++)
        if (dtype_block(t) == 256 || (size_t)s < g->subs)
            UNROLL for (int i = 0; i < sub / 2; i += 4) {
                qh w[4];
                UNROLL for (int j = 0; j < 4; j++)
                    w[j] = qh_sub(q_pair(t, g, s, i + j), offset);
                UNROLL for (int j = 0; j < 4; j++, to += 4 * QL)
                    qh_store(to, w[j]);
            }
}

/* ---- one function for each type, and for each shape of tile ---- */

struct q_expanded {
    char pairs[128 * 4 * QL];
    float scale[16 * QL], minimum[16 * QL];
} __attribute__((aligned(64)));

#define Q_LIGHT(X, R) X(Q4_0, R) X(Q4_1, R) X(Q5_0, R) X(Q8_0, R) X(Q4_K, R)
#define Q_TYPES(X, R)                                                                                        \
    Q_LIGHT(X, R) X(Q5_1, R) X(Q2_K, R) X(Q3_K, R) X(Q5_K, R) X(Q6_K, R) X(IQ4_NL, R) X(IQ4_XS, R)           \
    X(MXFP4, R) X(NVFP4, R)
#define Q_ONE_ROW(X, R)                                  /* in registers for one row */                      \
    X(TQ1_0, R) X(TQ2_0, R) X(IQ2_XXS, R) X(IQ2_XS, R) X(IQ2_S, R) X(IQ3_XXS, R) X(IQ3_S, R) X(IQ1_S, R)     \
    X(IQ1_M, R) X(Q1_0, R) X(Q2_0, R)
#define Q_EXPAND_FN(T, _)                                                                                    \
    static __attribute__((noinline)) void expand_##T(struct q_expanded *e, const char *group, size_t k,      \
                                                     size_t part)                                            \
    {                                                                                                        \
        const struct q_group g = q_group_at(DT_##T, group, k, part);                                         \
        q_scales(DT_##T, &g, e->scale, e->minimum);                                                          \
        q_expand(e->pairs, DT_##T, &g);                                                                      \
    }
Q_TYPES(Q_EXPAND_FN, 0) Q_ONE_ROW(Q_EXPAND_FN, 0)
#define Q_EXPAND_AT(T, _) [DT_##T - DT_Q4_0] = expand_##T,
static void (*const expands[])(struct q_expanded *, const char *, size_t, size_t) = {
    Q_TYPES(Q_EXPAND_AT, 0) Q_ONE_ROW(Q_EXPAND_AT, 0)
};

#define Q_TILE_FN(R)                                                                                         \
    static __attribute__((noinline)) void q_tile_##R(                                                        \
        float *acc, const struct q_expanded *e, const struct q_left *x, int sub, bool minima, size_t subs)   \
    {                                                                                                        \
        const struct q_group g = { .low = e->pairs, .subs = subs };                                          \
        const struct q_ahead none = { 0 };                                                                   \
        if (sub == 32 && minima)                                                                             \
            q_tile(acc, Q_EXPANDED, 32, true, 0, g, x, e->scale, e->minimum, none, R);                       \
        else if (sub == 32)                                                                                  \
            q_tile(acc, Q_EXPANDED, 32, false, 0, g, x, e->scale, e->minimum, none, R);                      \
        else if (minima)                                                                                     \
            q_tile(acc, Q_EXPANDED, 16, true, 0, g, x, e->scale, e->minimum, none, R);                       \
        else                                                                                                 \
            q_tile(acc, Q_EXPANDED, 16, false, 0, g, x, e->scale, e->minimum, none, R);                      \
    }
Q_SHAPES(Q_TILE_FN)
#define Q_TILE_AT(R) [R] = q_tile_##R,
static void (*const q_tiles[Q_ROWS + 1])(float *, const struct q_expanded *, const struct q_left *, int, bool,
                                         size_t) = { Q_SHAPES(Q_TILE_AT) };

/* x at input k. */
INLINE struct q_left q_left_at(const char *row, size_t row_bytes, size_t k_all, size_t k, int sub)
{
    const struct quantized q = quantized_at(row, k_all);
    return (struct q_left){ (const char *)(q.x + k),
                            (const char *)(sub == 16 ? q.sum16 + k / 16 : q.sum32 + k / 32),
                            (const char *)(sub == 16 ? q.float16 + k / 16 : q.float32 + k / 32),
                            (const char *)(q.scale + k / QUANT_GROUP), row_bytes };
}

/* What a part of a group fetches. One and two rows of Q8_0 are read as fast as the machine can by itself. */
INLINE struct q_ahead q_ahead(const enum dtype t, const char *group, size_t part, const int rows)
{
    const size_t sub = (size_t)quant_sub_block(t),
                 bytes = dtype_block_bytes(t) * PANEL * sub / dtype_block(t) / PARTS,
                 each = t == DT_Q8_0 && rows <= 2 ? 0 : bytes;
    return (struct q_ahead){ group + Q_AHEAD + part * bytes * (QUANT_GROUP / sub), each };
}

/* A panel for a number of rows of Q_FUSED_SHAPES, or of Q_FUSED_LIGHT. */
#define Q_FUSED_FN(T, R)                                                                                     \
    static __attribute__((noinline)) void fused_##T##_##R(float *acc, const char *panel, size_t k_all,       \
                                                          const char *x, size_t row_bytes)                   \
    {                                                                                                        \
        const int sub = quant_sub_block(DT_##T);                                                             \
        float scale[16 * QL] __attribute__((aligned(64))), minimum[16 * QL] __attribute__((aligned(64)));    \
        for (size_t k = 0, n; k < k_all; k += n) {                                                           \
            const struct q_left left = q_left_at(x, row_bytes, k_all, k, sub);                               \
            n = MIN_(k_all - k, (size_t)QUANT_GROUP);                                                        \
            for (size_t part = 0; part < PARTS; part++) {                                                    \
                const struct q_group g = q_group_at(DT_##T, panel, n, part);                                 \
                q_scales(DT_##T, &g, scale, minimum);                                                        \
                q_tile(acc + part * QL, DT_##T, sub, quant_has_minima(DT_##T), quant_offset(DT_##T), g,      \
                       &left, scale, minimum, q_ahead(DT_##T, panel, part, R), R);                           \
            }                                                                                                \
            panel += n / dtype_block(DT_##T) * dtype_block_bytes(DT_##T) * PANEL;                            \
        }                                                                                                    \
    }
#define Q_FUSED_AT(T, R) [DT_##T - DT_Q4_0][R] = fused_##T##_##R,
#define Q_FUSED_ROW(R) Q_TYPES(Q_FUSED_FN, R)
#define Q_FUSED_ROW_AT(R) Q_TYPES(Q_FUSED_AT, R)
#define Q_LIGHT_ROW(R) Q_LIGHT(Q_FUSED_FN, R)
#define Q_LIGHT_ROW_AT(R) Q_LIGHT(Q_FUSED_AT, R)
Q_FUSED_SHAPES(Q_FUSED_ROW)
Q_FUSED_LIGHT(Q_LIGHT_ROW)
Q_ONE_ROW(Q_FUSED_FN, 1)
static void (*const fused[DT_END - DT_Q4_0][Q_ROWS + 1])(float *, const char *, size_t, const char *,
                                                         size_t) = {
    Q_FUSED_SHAPES(Q_FUSED_ROW_AT) Q_FUSED_LIGHT(Q_LIGHT_ROW_AT) Q_ONE_ROW(Q_FUSED_AT, 1)
};

#define Q_CASE(T, _) case DT_##T:
static bool q_light(enum dtype t)
{
    switch (t) {
    Q_LIGHT(Q_CASE, 0)
        return true;
    default:
        return false;
    }
}

/* The accumulators of one panel, [m][PANEL], for m <= Q_LOT rows. */
static void q_panel(float *acc, const char *x, size_t row_bytes, size_t m, const struct mat *w, size_t p)
{
    struct q_expanded e;
    const int sub = quant_sub_block(w->type);
    const bool minima = quant_has_minima(w->type);
    const size_t block = dtype_block(w->type), bytes = dtype_block_bytes(w->type);
    const char *g = (const char *)w->w + p * mat_panel_bytes(w);
    memset(acc, 0, m * PANEL * sizeof *acc);
    const size_t lot = Q_HALVES && m > 4 && m <= 8 && q_light(w->type) ? (m + 1) / 2 : m;
    if (lot <= Q_ROWS && fused[w->type - DT_Q4_0][lot]) {
        fused[w->type - DT_Q4_0][lot](acc, g, w->k, x, row_bytes);
        if (lot < m)
            fused[w->type - DT_Q4_0][m - lot](acc + lot * PANEL, g, w->k, x + lot * row_bytes, row_bytes);
        return;
    }
    for (size_t k = 0, n; k < w->k; k += n) {
        n = MIN_(w->k - k, (size_t)QUANT_GROUP);
        q_fetch(&(struct q_ahead){ g + Q_AHEAD, n / block * bytes * PANEL });
        for (size_t part = 0; part < PARTS; part++) {
            expands[w->type - DT_Q4_0](&e, g, n, part);
            for (size_t r = 0, some; r < m; r += some) {
                const struct q_left left = q_left_at(x + r * row_bytes, row_bytes, w->k, k, sub);
                some = MIN_(m - r, (size_t)Q_ROWS);
                q_tiles[some](acc + r * PANEL + part * QL, &e, &left, sub, minima, n / (size_t)sub);
            }
        }
        g += n / block * bytes * PANEL;
    }
}

static void q_scale_products(float *acc, size_t rows, const struct mat *w)
{
    for (size_t i = 0; i < rows * PANEL && w->scaled; i++)
        acc[i] *= w->scale;
}

#if Q_SUMS
/* ---- one row of Q1_0: four bits select one of 16 sums of four inputs with signs ---- */

enum { SUM_INPUTS = 8 * QUANT_GROUP, SUM_PANELS = 64 };

/* The sums of n inputs: of eight at a time those of the even ones, then those of the odd ones. sign: that of
 * each of the eight in each sum, in the half of a word that multiplies the input. */
static void q_make_sums(int32_t *sums, const int16_t sign[8][2 * PANEL], const int16_t *x, size_t n)
{
    for (size_t at = 0; at < n; at += 8, sums += 2 * PANEL)
        UNROLL for (int odd = 0; odd < 2; odd++) {
            qi a = qi_set1(0);
            UNROLL for (int i = odd; i < 8; i += 2)
                QI_DOT(a, qh_load((const char *)sign[i]), (const char *)(x + at + i - odd));
            memcpy(sums + PANEL * odd, &a, sizeof a);
        }
}

/* Adds n inputs of a panel to acc [PANEL]. ahead: where those of the next panel lie, which are fetched. */
static void q_add_sums(float *acc, const char *panel, const int32_t *sums, const float *scale, size_t n,
                       size_t ahead)
{
    qf all = qf_load(acc);
    for (size_t k = 0, some; k < n; k += some) {
        const char *d = panel;
        __builtin_prefetch(d + ahead, 0, 2);
        some = MIN_(n - k, (size_t)QUANT_GROUP);
        panel += quant_layout(DT_Q1_0, some / dtype_block(DT_Q1_0)).low;
        qf c = qf_zero();
        for (size_t s = 0; s < some / 32; s++, panel += 4 * PANEL, sums += 8 * PANEL) {
            const qi x = qi_load(panel);
            qi a = qi_select(sums, x);
            __builtin_prefetch(panel + ahead, 0, 2);
            UNROLL for (int i = 1; i < 8; i++)           /* the odd inputs are in the high half */
                a = qi_add(a, qi_select(sums + PANEL * (i % 4 * 2 + i / 4), qi_srl(x, 4 * i)));
            c = qf_fma(qi_float(a), qf_half(d + 2 * PANEL * (s / 4)), c);
        }
        all = qf_fma(c, qf_set1(scale[k / QUANT_GROUP]), all);
    }
    qf_store(acc, all);
}

static void matmul_sums(float *y, const void *x, const struct mat *w, const float *bias, bool add, size_t p0,
                        size_t p1)
{
    float acc[SUM_PANELS * PANEL] __attribute__((aligned(64)));
    int32_t sums[SUM_INPUTS / 4 * PANEL] __attribute__((aligned(64)));
    int16_t sign[8][2 * PANEL] = { 0 };
    const struct quantized q = quantized_at(x, w->k);
    const size_t group = dtype_block_bytes(DT_Q1_0) * PANEL * QUANT_GROUP / dtype_block(DT_Q1_0);
    for (int i = 0; i < 8 * PANEL; i++)
        sign[i % 8][i / 8 * 2 + i % 2] = i / 8 >> i % 8 / 2 & 1 ? 1 : -1;
    for (size_t p = p0, some; p < p1; p += some) {
        some = MIN_(p1 - p, (size_t)SUM_PANELS);
        memset(acc, 0, sizeof acc);
        for (size_t k = 0; k < w->k; k += SUM_INPUTS) {
            const size_t n = MIN_(w->k - k, (size_t)SUM_INPUTS), at = k / QUANT_GROUP;
            q_make_sums(sums, sign, q.x + k, n);
            for (size_t i = 0; i < some; i++)
                q_add_sums(acc + i * PANEL, (const char *)w->w + (p + i) * mat_panel_bytes(w) + at * group,
                           sums, q.scale + at, n, mat_panel_bytes(w));
        }
        q_scale_products(acc, some, w);
        put_columns(y + p * PANEL, acc, bias ? bias + p * PANEL : NULL, add,
                    MIN_(w->n - p * PANEL, some * PANEL));
    }
}
#endif

static void OP(matmul_quantized)(float *y, size_t ldy, const void *x, size_t row_bytes, size_t m,
                                 const struct mat *w, const float *bias, bool add, size_t p0, size_t p1)
{
    float acc[Q_LOT * PANEL] __attribute__((aligned(64)));
#if Q_SUMS
    if (m == 1 && w->type == DT_Q1_0) {
        matmul_sums(y, x, w, bias, add, p0, p1);
        return;
    }
#endif
    for (size_t p = p0; p < p1; p++)
        for (size_t r0 = 0; r0 < m; r0 += Q_LOT) {
            const size_t rows = MIN_(m - r0, (size_t)Q_LOT), cols = MIN_(w->n - p * PANEL, (size_t)PANEL);
            q_panel(acc, (const char *)x + r0 * row_bytes, row_bytes, rows, w, p);
            q_scale_products(acc, rows, w);
            for (size_t r = 0; r < rows; r++)
                put_columns(y + (r0 + r) * ldy + p * PANEL, acc + r * PANEL, bias ? bias + p * PANEL : NULL,
                            add, cols);
        }
}

/* OP(matmul) with floats: the weights as quant_decode gives them, accumulated as in dot_f32. */
static void matmul_decoded(float *y, size_t ldy, const float *x, size_t ldx, size_t m, const struct mat *w,
                           const float *bias, bool add, size_t p0, size_t p1)
{
    float acc[Q_LOT * PANEL], weight[QUANT_GROUP * QL] __attribute__((aligned(64)));
    struct q_expanded e;
    const size_t sub = (size_t)quant_sub_block(w->type), block = dtype_block(w->type),
                 bytes = dtype_block_bytes(w->type);
    const bool minima = quant_has_minima(w->type);
    for (size_t p = p0; p < p1; p++)
        for (size_t r0 = 0; r0 < m; r0 += Q_LOT) {
            const size_t rows = MIN_(m - r0, (size_t)Q_LOT), cols = MIN_(w->n - p * PANEL, (size_t)PANEL);
            const char *g = (const char *)w->w + p * mat_panel_bytes(w);
            memset(acc, 0, sizeof acc);
            for (size_t k = 0, n; k < w->k; k += n) {
                n = MIN_(w->k - k, (size_t)QUANT_GROUP);
                for (size_t part = 0; part < PARTS; part++) {
                    expands[w->type - DT_Q4_0](&e, g, n, part);
                    for (size_t i = 0; i < n; i++)
                        for (size_t j = 0; j < QL; j++) {
                            int16_t q;
                            memcpy(&q, e.pairs + 4 * QL * (i / 2) + 4 * j + 2 * (i % 2), sizeof q);
                            const float v = (float)q * e.scale[i / sub * QL + j];
                            weight[i * QL + j] = minima ? v + e.minimum[i / sub * QL + j] : v;
                        }
                    for (size_t r = 0; r < rows; r++) {
                        float *to = acc + r * PANEL + part * QL;
                        qf a = qf_load(to);
                        for (size_t i = 0; i < n; i++)
                            a = qf_fma(qf_load(weight + i * QL), qf_set1(x[(r0 + r) * ldx + k + i]), a);
                        qf_store(to, a);
                    }
                }
                g += n / block * bytes * PANEL;
            }
            q_scale_products(acc, rows, w);
            for (size_t r = 0; r < rows; r++)
                put_columns(y + (r0 + r) * ldy + p * PANEL, acc + r * PANEL, bias ? bias + p * PANEL : NULL,
                            add, cols);
        }
}

/* ---- rows ---- */

static void OP(quantize_groups)(void *row, const float *x, size_t k)
{
    const struct quantized q = quantized_at(row, k);
    for (size_t at = 0; at < k; at += QUANT_GROUP) {
        const size_t n = MIN_(k - at, (size_t)QUANT_GROUP);
        uint32_t top = 0;                                /* |x| in the order of its bits */
        for (size_t i = 0; i < n; i++) {
            const uint32_t a = to_bits(x[at + i]) & 0x7fffffff;
            top = a > top ? a : top;
        }
        float u = from_bits(top) / 32767;
        u = u < 0x1p-100f ? 0x1p-100f : u;
        u = top < 0x7f800000 ? u : NAN;
        const float inverse = 1.0f / u;
        for (size_t i = 0; i < n; i++)                   /* the low bits of the sum are the whole number */
            q.x[at + i] = (int16_t)(uint16_t)to_bits(x[at + i] * inverse + 0x1.8p23f);
        q.scale[at / QUANT_GROUP] = u;
    }
    for (size_t i = 0; i < k / 16; i++) {
        int32_t sum = 0;
        for (size_t j = 0; j < 16; j++)
            sum += q.x[16 * i + j];
        q.sum16[i] = sum;
        q.float16[i] = (float)sum;
    }
    for (size_t i = 0; i < k / 32; i++) {
        q.sum32[i] = q.sum16[2 * i] + q.sum16[2 * i + 1];
        q.float32[i] = (float)q.sum32[i];
    }
}
