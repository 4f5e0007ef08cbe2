/* The body of a twin: all operations of ops.h, written once. A twin (generic.c, avx2.c, avx512.c) defines the
 * names below and includes this file, compiled with the twin's instructions:
 *
 *   TWIN                      name of the twin's table
 *   v16                       16 floats, with v16_zero, v16_load, v16_store, v16_set1, v16_fma, v16_add,
 *                             v16_sub, v16_mul, v16_max (a > b ? a : b) and v16_top (the largest, by halves)
 *   v16_pow2(t)               floats with the bits (bits of t << 23) + bits of 1.0
 *   v16_zero_below(y, x, c)   0 where x < c, else y
 *   v16_sum(v)                "sums" of 16
 *   v16_store_bf16(p, v)      rounds to bf16, for v in [0, 1] or NaN; under WIDE v16_round_bf16(v) rounds and
 *                             keeps floats
 *   v16_store_i16(p, v)       rounds to nearest even, for v in [0, 32767]; undefined for NaN
 *   v16_weights(type, p)      16 stored F16 or F32 weights as floats
 *   v16_pair(p, odd)          the odd or even bf16 of 16 stored pairs, as floats
 *   dot_bf16(...)             the tile product of "dot bf16" in ops.h
 *   dot_i16(...)              the product of int16 with int16, int8 or int4 (`type`), as floats:
 *                             c = col ? (sum * col) * scale[row] : fma(sum, scale[row], c * alpha[row])
 *   FTZ_BEGIN(on), FTZ_END    enclose bf16 products and weights in twins that flush by MXCSR
 *   v16_flush(v)              flushes tiny values to zeros of their sign, in other twins
 *   ROWS_MAX                  rows of the largest tile
 *   MUL_ROWS_MAX              rows of the largest tile of matrix products with a left operand that is not
 *                             wide
 *   ATTN_ROWS_MAX             rows of the largest tile of attention
 *   tile_panels(r, ready)     panels side by side in a tile of r rows; ready: the left operand needs no
 *                             registers for a conversion
 *   DELTA_PANELS              panels of a strip of a recurrent state (at most 4)
 *   FEW_ROWS                  with at most so many query rows attention does not prefetch: memory sets the
 *                             pace and is fastest when read from the first byte to the last (4 rows at depth
 *                             100K on Zen 4: 5.5 ms, with prefetching 8.3 ms)
 *   AHEAD_IN_LINE             1: dot_bf16 prefetches consecutive lines, `lines` in each step, instead of the
 *                             lines `ahead` of its panels. A tile narrower than a block gives the hardware no
 *                             stream to follow, so each first touch of a line waits (one row at depth 15K on
 *                             Zen 3: 2.9 ms without, 2.7 ms in the order of the panels, 2.3 ms in line)
 *   SCORES_FIRST              1: where one tile has all rows, the scores of the next block are computed
 *                             before the values of the present block, so that neither waits for the other.
 *                             Two blocks do not fit the first-level cache of Zen 3: one row at depth 28,672
 *                             is 9 % slower
 *   WIDE                      1: left operands of bf16 products (rows of x, queries, attention weights) are
 *                             floats with bf16 values, converted once instead of once for each panel; the
 *                             left operand of dot_bf16 is then float where `wide` is set
 *
 * Loops over arrays are plain C. The compiler may not contract or reorder, so IEEE arithmetic gives the same
 * bits at any vector width. Only the tile products need intrinsics. Start reading at OP(matmul).
 * Attention is in attend_impl.h. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/ops.h"
#include "kernels/select_impl.h"

#define INLINE static inline __attribute__((always_inline))
#ifndef UNROLL                   /* Accumulators stay in registers only in fully unrolled loops. */
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* 2^f on [-1/2, 1/2]: 1 + f*(EXP2_1 + f*(..)), minimax in relative error. */
#define EXP2_1 0x1.62e42ap-1f
#define EXP2_2 0x1.ebf9bcp-3f
#define EXP2_3 0x1.c6b752p-5f
#define EXP2_4 0x1.3cea88p-7f
#define EXP2_5 0x1.5bba14p-10f

/* 2^x: exact for whole x, relative error 1.6e-7 elsewhere; 0 below -126, inf from 127.5 on; NaN stays NaN. */
INLINE float exp2_f(float x)
{
    const float magic = 0x1.8p23f;
    float c = x > 128.0f ? 128.0f : x;
    float t = c + magic, f = c - (t - magic);
    float p = EXP2_5;
    p = fmaf(p, f, EXP2_4);
    p = fmaf(p, f, EXP2_3);
    p = fmaf(p, f, EXP2_2);
    p = fmaf(p, f, EXP2_1);
    p = fmaf(p, f, 1.0f);
    float y = p * from_bits((to_bits(t) << 23) + 0x3f800000);
    return x < -126.0f ? 0.0f : y;
}

/* The fixed order of "sums": 16 partial sums become one. */
INLINE float tree_sum(float *s)
{
    for (int i = 0; i < 8; i++) s[i] += s[i + 8];
    for (int i = 0; i < 4; i++) s[i] += s[i + 4];
    s[0] += s[2]; s[1] += s[3];
    return s[0] + s[1];
}

/* "sums" of a[i] b[i], by fma. */
INLINE float sum_products(const float *a, const float *b, size_t n)
{
    float s[16] = { 0 };
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++)
            s[j] = fmaf(a[i + j], b[i + j], s[j]);
    for (; i < n; i++)
        s[i % 16] = fmaf(a[i], b[i], s[i % 16]);
    return tree_sum(s);
}

/* ---- tile products: c[r][0..16*panels) = (alpha ? fma(c, alpha[r], +0) : +0) + dot(a row r, panel columns)
 * ---- */

INLINE void dot_f32(float *c, size_t ldc, const float *alpha, enum dtype type, const float *a, size_t lda,
                    const char *b, size_t ldb, size_t step, size_t n, const int rows, const int panels)
{
    v16 acc[ROWS_MAX][8];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++)
            acc[r][p] = alpha ? v16_fma(v16_load(c + (size_t)r * ldc + 16 * (size_t)p),
                                        v16_set1(alpha[r]), v16_zero())
                              : v16_zero();
    for (size_t k = 0; k < n; k++) {
        v16 w[8];
        UNROLL for (int p = 0; p < panels; p++)
            w[p] = type == DT_BF16 ? v16_pair(b + (size_t)p * ldb + k / 2 * step, k & 1)
                                   : v16_weights(type, b + (size_t)p * ldb + k * step);
        UNROLL for (int r = 0; r < rows; r++) {
            v16 x = v16_set1(a[(size_t)r * lda + k]);
            UNROLL for (int p = 0; p < panels; p++)
                acc[r][p] = v16_fma(w[p], x, acc[r][p]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int p = 0; p < panels; p++)
            v16_store(c + (size_t)r * ldc + 16 * (size_t)p, acc[r][p]);
}

/* One tile. n counts elements of k, rounded up to pairs for bf16. Strides in b are bytes: ldb from panel to
 * panel, step from one k (bf16: one pair) to the next. */
INLINE void tile(float *c, size_t ldc, const float *alpha, enum dtype act, enum dtype type, const char *a,
                 size_t lda, const float *scale, const float *col, const char *b, size_t ldb, size_t step,
                 size_t n, size_t ahead, const int lines, const bool wide, const int rows, const int panels)
{
    if (act == DT_BF16)
        dot_bf16(c, ldc, alpha, a, lda, b, ldb, step, (n + 1) / 2, ahead, lines, wide, rows, panels);
    else if (act == DT_I16)
        dot_i16(c, ldc, alpha, type, scale, col, (const int16_t *)(const void *)a, lda, b, ldb, step,
                (n + 1) / 2, ahead, lines, rows, panels);
    else
        dot_f32(c, ldc, alpha, type, (const float *)(const void *)a, lda, b, ldb, step, n, rows, panels);
}

struct tile_args {
    float *c; size_t ldc; const float *alpha; enum dtype act, type;
    const char *a; size_t lda; const char *b; size_t ldb, step, n;
    /* Prefetches this many panels, `ahead` bytes after the bytes in use. 0 leaves prefetching to the hardware
     * (8-bit weights: `ahead` alone decides). */
    size_t ahead; int lines;
    bool wide;                       /* a holds floats (WIDE) */
    const float *scale, *col;        /* DT_I16: scales of the rows of a, and of the columns of b or NULL */
};

/* Bytes of 16 columns of a cache block, in pairs of k. In bf16 a step of k takes as many bytes as in f32. */
INLINE size_t column_bytes(const enum dtype type)
{
    return type == DT_I4 ? PANEL : type == DT_I8 ? 2 * PANEL : 4 * PANEL;
}

/* Every (rows, panels) in use is compiled with constants. Attention with 64 dimensions also has constant
 * strides, for scores and values, which leaves the registers to the accumulators. The functions are not
 * inlined, so that a change of MXCSR stays outside of them. */
#define TILE_64(ACT, TYPE, LINES, R, P) \
    tile(t->c, t->ldc, t->alpha, ACT, TYPE, t->a, 64, t->scale, t->col, t->b, column_bytes(TYPE), \
         4 * column_bytes(TYPE), 64, t->ahead, LINES, TYPE == DT_BF16 && WIDE, R, P)
#define TILE_64_LINES(ACT, TYPE, R, P) \
    switch (t->lines) { \
    case 0:  TILE_64(ACT, TYPE, 0, R, P); break; \
    case 2:  TILE_64(ACT, TYPE, P < 2 ? P : 2, R, P); break; \
    default: TILE_64(ACT, TYPE, P, R, P); \
    }
#define TILE_ANY(ACT, TYPE, LDB, STEP, AHEAD, LINES, IS_WIDE, R, P) \
    tile(t->c, t->ldc, t->alpha, ACT, TYPE, t->a, t->lda, t->scale, t->col, t->b, LDB, STEP, t->n, AHEAD, \
         LINES, IS_WIDE, R, P)
/* Whole numbers of a cache. */
#define TILE_CACHE(TYPE, R, P) \
    if (t->lda == 64 && t->ldb == column_bytes(TYPE) && t->step == 4 * column_bytes(TYPE) && t->n == 64) \
        TILE_64_LINES(DT_I16, TYPE, R, P) \
    else if (t->lines) \
        TILE_ANY(DT_I16, TYPE, column_bytes(TYPE), t->step, t->ahead, P, false, R, P); \
    else \
        TILE_ANY(DT_I16, TYPE, column_bytes(TYPE), t->step, 0, 0, false, R, P);
#define TILE_FN(R, P) \
    static __attribute__((noinline)) void tile_##R##x##P(const struct tile_args *t) \
    { \
        const bool head_64 = t->lda == 64 && t->ldb == 4 * PANEL && t->step == 256 && t->n == 64; \
        if (t->type == DT_I8 && t->step == 2 * PANEL) \
            TILE_ANY(DT_I16, DT_I8, t->ldb, 2 * PANEL, t->ahead, AHEAD_IN_LINE ? (P + 1) / 2 : P, false, R, \
                     P); \
        else if (t->type == DT_I8) \
            TILE_CACHE(DT_I8, R, P) \
        else if (t->type == DT_I4) \
            TILE_CACHE(DT_I4, R, P) \
        else if (t->act == DT_I16) \
            TILE_CACHE(DT_I16, R, P) \
        else if (t->act == DT_BF16 && head_64) \
            TILE_64_LINES(DT_BF16, DT_BF16, R, P) \
        else if (t->act == DT_BF16 && t->lines) \
            TILE_ANY(DT_BF16, DT_BF16, t->ldb, t->step, t->ahead, P, WIDE, R, P); \
        else if (t->act == DT_BF16 && WIDE && t->wide && t->step == 4 * PANEL) \
            TILE_ANY(DT_BF16, DT_BF16, t->ldb, 4 * PANEL, 0, 0, true, R, P); \
        else if (t->act == DT_BF16 && WIDE && t->wide) \
            TILE_ANY(DT_BF16, DT_BF16, t->ldb, t->step, 0, 0, true, R, P); \
        else if (t->act == DT_BF16) \
            TILE_ANY(DT_BF16, DT_BF16, t->ldb, t->step, 0, 0, false, R, P); \
        else \
            TILE_ANY(DT_F32, t->type, t->ldb, t->step, 0, 0, false, R, P); \
    }
TILES(TILE_FN)
#define TILE_ROW(R, P) [R][P] = tile_##R##x##P,
static void (*const tiles[ROWS_MAX + 1][9])(const struct tile_args *) = { TILES(TILE_ROW) };

INLINE size_t panels_beside(int rows, enum dtype act, bool wide)
{
    return tile_panels(rows, act == DT_I16 || (act == DT_BF16 && wide));
}

/* Any number of panels for up to ROWS_MAX rows, the widest tiles first. */
static void tile_span(struct tile_args t, int rows, size_t panels)
{
    for (size_t p = 0; p < panels;) {
        /* the 8 and 4 bits of a cache need registers for a conversion; a matrix has a step of two panels */
        const bool narrow = (t.type == DT_I8 && t.step != 2 * PANEL) || t.type == DT_I4;
        size_t w = panels_beside(rows, narrow ? DT_F32 : t.act, t.wide);
        while (w > panels - p || !tiles[rows][w])
            w--;
        tiles[rows][w](&t);
        t.b += w * t.ldb;
        if (AHEAD_IN_LINE && t.lines)    /* after the lines of all steps, not after the columns of one step */
            t.ahead += w * t.ldb * ((t.n + 1) / 2 - 1);
        t.c += w * PANEL;
        t.col += t.col ? w * PANEL : 0;
        p += w;
    }
}

/* Writes one row of results: to = (add ? to : 0) + (from + bias). */
INLINE void put_columns(float *to, const float *from, const float *bs, bool add, size_t cols)
{
    if (bs && add) for (size_t j = 0; j < cols; j++) to[j] = to[j] + (from[j] + bs[j]);
    else if (bs)   for (size_t j = 0; j < cols; j++) to[j] = from[j] + bs[j];
    else if (add)  for (size_t j = 0; j < cols; j++) to[j] = to[j] + from[j];
    else           memcpy(to, from, cols * sizeof *to);
}

#include "kernels/quant_impl.h"

/* OP(matmul) for rows of x that are floats where `wide` is set. */
static void matmul_rows(float *y, size_t ldy, enum dtype act, const void *x, size_t ldx, bool wide, size_t m,
                        const struct mat *w,
                        const float *bias, bool add, size_t p0, size_t p1)
{
    const size_t elt = wide ? sizeof(float) : dtype_size(act), ldb = mat_panel_bytes(w);
    const size_t step = PANEL * dtype_size(w->type) * (w->type == DT_BF16 || w->type == DT_I8 ? 2 : 1);
    const size_t rows_max = wide ? ROWS_MAX : MUL_ROWS_MAX, n_tiles = (m + rows_max - 1) / rows_max;
    assert((act == DT_I16) == (w->type == DT_I8));
    const int rows_most = (int)((m + n_tiles - 1) / n_tiles);
    /* not a single bf16 row, for which prefetching is slower when the matrices fit the caches */
    const bool few = wide && n_tiles == 1;
    float c[ROWS_MAX * 8 * PANEL], scale[ROWS_MAX];
    for (size_t p = p0; p < p1;) {
        size_t group = MIN_(panels_beside(rows_most, act, wide), p1 - p);
        for (size_t i = 0; i < n_tiles; i++) {
            /* even shares: no tile is left with a single row */
            size_t r0 = i * m / n_tiles, rows = (i + 1) * m / n_tiles - r0, cols = group * PANEL;
            /* Few rows wait for memory. The next group of panels is prefetched while this group is multiplied
             * (2 rows at depth 8,192 on Zen 3: 0.95 ms instead of 1.03 ms); for 8-bit weights only within the
             * item of this thread. */
            const size_t ahead = few || (act == DT_I16 && p + group < p1) ? group * ldb : 0;
            struct tile_args t = {
                c, cols, NULL, act, w->type, (const char *)x + r0 * ldx * elt, ldx,
                (const char *)w->w + p * ldb, ldb, step, w->k, ahead, few, wide, scale,
                act == DT_I16 ? mat_scales(w) + p * PANEL : NULL };
            for (size_t r = 0; act == DT_I16 && r < rows; r++)
                memcpy(&scale[r], (const int16_t *)x + (r0 + r) * ldx + quantized_row(w->k) - 2,
                       sizeof *scale);
            FTZ_BEGIN(act == DT_BF16);
            tile_span(t, (int)rows, group);
            FTZ_END;
            if (cols > w->n - p * PANEL)
                cols = w->n - p * PANEL;
            for (size_t r = 0; r < rows; r++) {
                float *to = y + (r0 + r) * ldy + p * PANEL;
                put_columns(to, c + r * group * PANEL, bias ? bias + p * PANEL : NULL, add, cols);
            }
        }
        p += group;
    }
}

static void OP(matmul)(float *y, size_t ldy, enum dtype act, const void *x, size_t ldx, size_t m,
                       const struct mat *w,
                       const float *bias, bool add, size_t p0, size_t p1)
{
    if (dtype_is_quantised(w->type)) {
        assert(act == DT_F32);
        matmul_decoded(y, ldy, x, ldx, m, w, bias, add, p0, p1);
        return;
    }
#if WIDE
    /* A lot has as many rows as fit a second-level cache; the panels are read once for each lot. A single row
     * needs no conversion. */
    enum { FLOATS = 32 << 10 };
    float left[FLOATS];
    const size_t k = (w->k + 1) / 2 * 2, fit = act == DT_BF16 && m > 1 ? FLOATS / k : 0,
        lot = m <= fit ? m : fit / ROWS_MAX * ROWS_MAX;
    for (size_t r0 = 0, n; lot > 0 && r0 < m; r0 += n) {
        n = MIN_(lot, m - r0);
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < k; i++)
                left[r * k + i] = bf16_to_f32(((const uint16_t *)x)[(r0 + r) * ldx + i]);
        matmul_rows(y + r0 * ldy, ldy, act, left, k, true, n, w, bias, add, p0, p1);
    }
    if (lot > 0)
        return;
#endif
    matmul_rows(y, ldy, act, x, ldx, false, m, w, bias, add, p0, p1);
}

/* ---- rows ---- */

INLINE float act_at(const void *x, const enum dtype act, size_t i)
{
    return act == DT_BF16 ? bf16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* The rule of quantize() in pack.c, for rows of any length. This copy uses the twin's instructions because
 * every product of a draft pass begins with it. */
INLINE void quantize_row(int16_t *y, const enum dtype act, const void *x, size_t k)
{
    float s[16] = { 0 }, top[16] = { 0 };
    for (size_t i = 0; i < k; i += 16)
        for (size_t j = 0; j < MIN_(k - i, (size_t)16); j++) {
            const float a = fabsf(act_at(x, act, i + j));
            top[j] = a > top[j] ? a : top[j];
            s[j] += a;
        }
    for (size_t j = 1; j < 16; j++)
        top[0] = top[j] > top[0] ? top[j] : top[0];
    const float sum = tree_sum(s);
    float u = sum / 0x1p24f;
    u = top[0] / 32767 > u ? top[0] / 32767 : u;
    u = u < 0x1p-100f ? 0x1p-100f : u;
    u = sum < INFINITY ? u : NAN;
    const float inverse = 1.0f / u;
    for (size_t i = 0; i < k; i++)                   /* the low bits of the sum are the whole number */
        y[i] = (int16_t)(uint16_t)to_bits(act_at(x, act, i) * inverse + 0x1.8p23f);
    if (k % 2)
        y[k] = 0;
    memcpy(y + quantized_row(k) - 2, &u, sizeof u);
}

static void OP(quantize)(int16_t *y, enum dtype act, const void *x, size_t k)
{
    if (act == DT_BF16) quantize_row(y, DT_BF16, x, k);
    else                quantize_row(y, DT_F32, x, k);
}

static void OP(rmsnorm)(void *y, size_t ldy, enum dtype act, const float *x, size_t ldx, const float *w,
                        size_t m, size_t dim, float eps)
{
    for (size_t r = 0; r < m; r++, x += ldx) {
        const float scale = 1.0f / sqrtf(sum_products(x, x, dim) / (float)dim + eps);
        if (act == DT_BF16) {
            uint16_t *to = (uint16_t *)y + r * ldy;
            for (size_t i = 0; i < dim; i++)
                to[i] = f32_to_bf16(x[i] * scale * w[i]);
        } else {
            float *to = (float *)y + r * ldy;
            for (size_t i = 0; i < dim; i++)
                to[i] = x[i] * scale * w[i];
        }
    }
}

INLINE float swiglu1(float g, float u)
{
    return g / (1.0f + exp2_f(g * -0x1.715476p0f)) * u;
}

static void OP(swiglu)(void *y, enum dtype act, const float *g, const float *u, size_t n)
{
    if (act == DT_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)y)[i] = f32_to_bf16(swiglu1(g[i], u[i]));
    else
        for (size_t i = 0; i < n; i++) ((float *)y)[i] = swiglu1(g[i], u[i]);
}

INLINE float geglu1(float g, float u)
{
    /* a = 2 log2(e) sqrt(2/pi), b = 0.044715 a */
    const float z = g * fmaf(g * g, 0x1.a5a7dp-4f, 0x1.26aec2p+1f);
    return g / (1.0f + exp2_f(-z)) * u;
}

static void OP(geglu)(void *y, enum dtype act, const float *g, const float *u, size_t n)
{
    if (act == DT_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)y)[i] = f32_to_bf16(geglu1(g[i], u[i]));
    else
        for (size_t i = 0; i < n; i++) ((float *)y)[i] = geglu1(g[i], u[i]);
}

static void OP(softcap)(float *x, float cap, size_t n)
{
    const float k = 0x1.715476p1f / cap;
    for (size_t i = 0; i < n; i++)
        x[i] = cap * (1.0f - 2.0f / (1.0f + exp2_f(x[i] * k)));
}

static void OP(rope)(float *x, const float *c, const float *s, size_t dim)
{
    const size_t half = dim / 2;
    for (size_t i = 0; i < half; i++) {
        float x0 = x[i], x1 = x[i + half];
        float a = x0 * c[i], b = x1 * s[i], d = x1 * c[i], e = x0 * s[i];
        x[i] = a - b;
        x[i + half] = d + e;
    }
}

/* Each step puts the sums of neighbours into the first half and their differences into the second half, so
 * that all steps are the same loop; after the last step every element is in its place. */
static void OP(rotate)(float *x, size_t dim, float factor)
{
    const size_t n = kv_rotation(dim), half = n / 2;
    float room[2][512];
    assert(dim <= 512);
    for (; dim; dim -= n, x += n) {
        const float *from = x;
        int turn = 0;
        for (size_t step = 1; step < n; step *= 2, turn ^= 1) {
            float *to = room[turn];
            for (size_t i = 0; i < half; i++) {
                const float a = from[2 * i], b = from[2 * i + 1];
                to[i] = a + b;
                to[half + i] = a - b;
            }
            from = to;
        }
        for (size_t i = 0; i < n; i++)
            x[i] = from[i] * factor;
    }
}

static void OP(round)(void *y, enum dtype act, const float *x, float scale, size_t n)
{
    if (act == DT_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)y)[i] = f32_to_bf16(x[i] * scale);
    else
        for (size_t i = 0; i < n; i++) ((float *)y)[i] = x[i] * scale;
}

static bool OP(finite)(const float *x, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = to_bits(x[i]) & 0x7fffffff;
        worst = a > worst ? a : worst;
    }
    return worst < 0x7f800000;
}

#include "kernels/attend_impl.h"
#include "kernels/delta_impl.h"
#include "kernels/train_impl.h"

const struct ops OPS_TABLE = {
    .name = TWIN, .supported = supported,
    .matmul = OP(matmul), .quantize = OP(quantize), .matmul_quantized = OP(matmul_quantized),
    .quantize_groups = OP(quantize_groups), .rmsnorm = OP(rmsnorm), .swiglu = OP(swiglu), .geglu = OP(geglu),
    .softcap = OP(softcap),
    .rope = OP(rope), .rotate = OP(rotate), .round = OP(round),
    .attend = OP(attend), .attend_merge = OP(attend_merge), .finite = OP(finite),
    .delta = OP(delta), .convolve = OP(convolve), .gate = OP(gate),
    SELECT_OPS, TRAIN_OPS,
};
