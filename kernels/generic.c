/* The plain C twin. It defines the bits of every operation and runs on any CPU. It spells out every flush of
 * tiny values, so it needs no control register. Start reading at twin_impl.h, which the file includes. */
#include "kernels/quant_layout.h"
#include "kernels/twins.h"

typedef struct { float f[16]; } v16;
#define LANES for (int i = 0; i < 16; i++)

/* A tiny value becomes a zero of its sign. */
static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static inline v16 v16_zero(void) { v16 v; LANES v.f[i] = 0; return v; }
static inline v16 v16_set1(float x) { v16 v; LANES v.f[i] = x; return v; }
static inline v16 v16_load(const float *p) { v16 v; LANES v.f[i] = p[i]; return v; }
static inline void v16_store(float *p, v16 v) { LANES p[i] = v.f[i]; }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { LANES c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]); return c; }
static inline v16 v16_flush(v16 a) { LANES a.f[i] = flush(a.f[i]); return a; }
static inline v16 v16_add(v16 a, v16 b) { LANES a.f[i] += b.f[i]; return a; }
static inline v16 v16_sub(v16 a, v16 b) { LANES a.f[i] -= b.f[i]; return a; }
static inline v16 v16_mul(v16 a, v16 b) { LANES a.f[i] *= b.f[i]; return a; }
static inline v16 v16_max(v16 a, v16 b) { LANES a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i]; return a; }
static inline float v16_top(v16 a)
{
    for (int n = 8; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] = a.f[i] > a.f[i + n] ? a.f[i] : a.f[i + n];
    return a.f[0];
}
static inline float v16_sum(v16 a)
{
    for (int n = 8; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}
static inline v16 v16_pow2(v16 t)
{
    LANES t.f[i] = from_bits((to_bits(t.f[i]) << 23) + 0x3f800000);
    return t;
}
static inline v16 v16_zero_below(v16 y, v16 x, float c)
{
    LANES y.f[i] = x.f[i] < c ? 0.0f : y.f[i];
    return y;
}
static inline void v16_store_bf16(uint16_t *p, v16 v) { LANES p[i] = f32_to_bf16(v.f[i]); }
/* The low bits of v + 1.5 * 2^23 are a whole number up to 2^15. */
static inline void v16_store_i16(int16_t *p, v16 v)
{
    LANES p[i] = (int16_t)(uint16_t)to_bits(v.f[i] + 0x1.8p23f);
}
static inline v16 v16_weights(enum dtype type, const char *p)
{
    v16 v;
    if (type == DT_F32)
        memcpy(v.f, p, sizeof v.f);
    else
        LANES v.f[i] = f16_to_f32(((const uint16_t *)(const void *)p)[i]);
    return v;
}
static inline v16 v16_pair(const char *p, bool odd)
{
    v16 v;
    LANES v.f[i] = bf16_to_f32(((const uint16_t *)(const void *)p)[2 * i + odd]);
    return v;
}

/* One step of the bf16 product: a*b + c rounded once, then flushed if tiny. A result that fmaf rounded up to
 * 2^-126 is tiny if it is smaller with an unbounded exponent; a second fma, scaled by 2^64, decides that. */
static inline float fma_flush(float a, float b, float c)
{
    float r = fmaf(a, b, c), m = fabsf(r);
    if (m > 0x1p-126f || m != m)
        return r;
    if (m < 0x1p-126f || fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f)
        return copysignf(0.0f, r);
    return r;
}

static inline void dot_bf16(float *c, size_t ldc, const float *alpha, const void *left, size_t lda,
                            const char *b, size_t ldb, size_t step, size_t pairs, size_t ahead,
                            const int lines, const bool wide, const int rows, const int panels)
{
    const uint16_t *a = left;
    (void)wide;
    (void)ahead, (void)lines;
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels; p++) {
            float *to = c + (size_t)r * ldc + 16 * (size_t)p, acc[16];
            LANES acc[i] = alpha ? fma_flush(to[i], alpha[r], 0.0f) : 0.0f;
            for (size_t j = 0; j < pairs; j++) {
                const uint16_t *w = (const uint16_t *)(const void *)(b + (size_t)p * ldb + step * j);
                float even = flush(bf16_to_f32(a[(size_t)r * lda + 2 * j])),
                      odd = flush(bf16_to_f32(a[(size_t)r * lda + 2 * j + 1]));
                LANES {
                    acc[i] = fma_flush(odd, flush(bf16_to_f32(w[2 * i + 1])), acc[i]);
                    acc[i] = fma_flush(even, flush(bf16_to_f32(w[2 * i])), acc[i]);
                }
            }
            LANES to[i] = acc[i];
        }
}

/* Element i of 16 pairs (struct attn): the columns 0 .. 7 are the low halves of the bytes. */
static inline int16_t int4_at(const char *p, int i)
{
    const int byte = ((const int8_t *)p)[i % 16], low = byte & 15;
    return (int16_t)(i < 16 ? low - (low & 8) * 2 : (byte - low) / 16);
}

/* Sums wrap only where a scale is not finite, and there the result is not finite either. */
static inline void dot_i16(float *c, size_t ldc, const float *alpha, const enum dtype type,
                           const float *scale, const float *col, const int16_t *a, size_t lda, const char *b,
                           size_t ldb, size_t step, size_t pairs, size_t ahead, const int lines,
                           const int rows, const int panels)
{
    (void)ahead, (void)lines;
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < panels; p++) {
            float *to = c + (size_t)r * ldc + 16 * (size_t)p;
            uint32_t acc[16] = { 0 };
            for (size_t j = 0; j < pairs; j++) {
                const char *at = b + (size_t)p * ldb + step * j;
                const int16_t *x = a + (size_t)r * lda + 2 * j;
                int16_t w[32];
                for (int i = 0; i < 32; i++)
                    w[i] = type == DT_I4   ? int4_at(at, i)
                           : type == DT_I8 ? ((const int8_t *)at)[i]
                                           : ((const int16_t *)(const void *)at)[i];
                LANES acc[i] += (uint32_t)(x[0] * w[2 * i]) + (uint32_t)(x[1] * w[2 * i + 1]);
            }
            LANES to[i] = col ? (float)(int32_t)acc[i] * col[16 * p + i] * scale[r]
                              : fmaf((float)(int32_t)acc[i], scale[r], to[i] * alpha[r]);
        }
}

/* ---- quantised weights ---- */

#define QL 16
#define EACH(n) for (int i = 0; i < (n); i++)
typedef v16 qf;
typedef struct { int32_t i[16]; } qi;
typedef struct { int16_t h[32]; } qh;
static inline qf qf_zero(void) { return v16_zero(); }
static inline qf qf_load(const float *p) { return v16_load(p); }
static inline void qf_store(float *p, qf a) { v16_store(p, a); }
static inline qf qf_set1(float x) { return v16_set1(x); }
static inline qf qf_fma(qf a, qf b, qf c) { return v16_fma(a, b, c); }
static inline qf qf_mul(qf a, qf b) { return v16_mul(a, b); }
static inline qf qf_half(const char *p) { return v16_weights(DT_F16, p); }
static inline qf qf_power(const char *p)
{
    qf y;
    EACH(16) y.f[i] = from_bits(p[i] ? (uint32_t)(uint8_t)p[i] << 23 : UINT32_C(1) << 22) * 0.5f;
    return y;
}
static inline qf qf_e4m3(const char *p) { qf y; EACH(16) y.f[i] = quant_e4m3((uint8_t)p[i]); return y; }
static inline qi qi_set1(int32_t x) { qi a; EACH(16) a.i[i] = x; return a; }
static inline qi qi_load(const char *p) { qi a; memcpy(&a, p, sizeof a); return a; }
static inline qi qi_srl(qi a, int n) { EACH(16) a.i[i] = (int32_t)((uint32_t)a.i[i] >> n); return a; }
static inline qi qi_sra(qi a, int n) { EACH(16) a.i[i] >>= n; return a; }
static inline qi qi_sll(qi a, int n) { EACH(16) a.i[i] = (int32_t)((uint32_t)a.i[i] << n); return a; }
static inline qi qi_and(qi a, int32_t mask) { EACH(16) a.i[i] &= mask; return a; }
static inline qi qi_xor(qi a, qi b) { EACH(16) a.i[i] ^= b.i[i]; return a; }
static inline qi qi_or(qi a, qi b) { EACH(16) a.i[i] |= b.i[i]; return a; }
static inline qi qi_add(qi a, qi b)
{
    EACH(16) a.i[i] = (int32_t)((uint32_t)a.i[i] + (uint32_t)b.i[i]);
    return a;
}
static inline qi qi_sub(qi a, qi b) { EACH(16) a.i[i] -= b.i[i]; return a; }
static inline qi qi_i8(const char *p) { qi a; EACH(16) a.i[i] = ((const int8_t *)p)[i]; return a; }
static inline qi qi_u8(const char *p) { qi a; EACH(16) a.i[i] = ((const uint8_t *)p)[i]; return a; }
static inline qi qi_u16(const char *p)
{
    uint16_t x[16];
    qi a;
    memcpy(x, p, sizeof x);
    EACH(16) a.i[i] = x[i];
    return a;
}
static inline qf qi_float(qi a) { qf y; EACH(16) y.f[i] = (float)a.i[i]; return y; }
static inline qh qh_load(const char *p) { qh a; memcpy(&a, p, sizeof a); return a; }
static inline void qh_store(char *p, qh a) { memcpy(p, &a, sizeof a); }
static inline qh qh_widen(const char *p) { qh a; EACH(32) a.h[i] = ((const int8_t *)p)[i]; return a; }
static inline qh qh_srl(qh a, int n) { EACH(32) a.h[i] = (int16_t)((uint16_t)a.h[i] >> n); return a; }
static inline qh qh_sll(qh a, int n)
{
    EACH(32) a.h[i] = (int16_t)(uint16_t)((uint32_t)(uint16_t)a.h[i] << n);
    return a;
}
static inline qh qh_and(qh a, int mask) { EACH(32) a.h[i] = (int16_t)(a.h[i] & mask); return a; }
static inline qh qh_or_and(qh a, qh b, int mask)
{
    EACH(32) a.h[i] = (int16_t)(a.h[i] | (b.h[i] & mask));
    return a;
}
static inline qh qh_sub(qh a, int x) { EACH(32) a.h[i] = (int16_t)(a.h[i] - x); return a; }
static inline qh qh_mul(qh a, int n) { EACH(32) a.h[i] = (int16_t)(uint16_t)(a.h[i] * n); return a; }
static inline qh qh_mul_high(qh a, int n)
{
    EACH(32) a.h[i] = (int16_t)((uint32_t)(uint16_t)a.h[i] * (uint32_t)n >> 16);
    return a;
}
static inline qh qh_of(qi a) { qh x; memcpy(&x, &a, sizeof x); return x; }
static inline qi qi_gather(const uint32_t *p, qi a) { EACH(16) a.i[i] = (int32_t)p[a.i[i]]; return a; }
static inline qi qi_select(const int32_t *p, qi a) { EACH(16) a.i[i] = p[a.i[i] & 15]; return a; }
static inline qh qh_table(const uint8_t table[16], qh a) { EACH(32) a.h[i] = table[a.h[i]]; return a; }
/* Sums wrap only where a scale is not finite, and there the result is not finite either. */
static inline qi qi_dot(qi a, qh w, const char *pair)
{
    int16_t x[2];
    memcpy(x, pair, sizeof x);
    EACH(16)
    a.i[i] = (int32_t)((uint32_t)a.i[i] + (uint32_t)(w.h[2 * i] * x[0]) + (uint32_t)(w.h[2 * i + 1] * x[1]));
    return a;
}
#define QI_DOT(a, w, pair) ((a) = qi_dot(a, w, pair))
#define Q_ROWS 4
#define Q_SHAPES(X) X(1) X(2) X(3) X(4)
#define Q_FUSED_SHAPES(X) X(1)
#define Q_FUSED_LIGHT(X)
#define Q_PLACES 1
#define Q_SUMS 1
#define Q_HALVES 0

#define UNROLL
#define ROWS_MAX 4
#define MUL_ROWS_MAX 4
#define ATTN_ROWS_MAX 4
#define DELTA_PANELS 1
#define FEW_ROWS 0
#define AHEAD_IN_LINE 0
#define SCORES_FIRST 1           /* so that every machine tests this order */
#define WIDE 0
#define TILES(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)
static inline size_t tile_panels(int rows, bool ready) { (void)ready; (void)rows; return 1; }
#undef FTZ_BEGIN              /* every flush is spelled out */
#undef FTZ_END
#define FTZ_BEGIN(on) (void)(on)
#define FTZ_END (void)0
static bool supported(void) { return true; }
#define TWIN "generic"
#define OP(name) generic_##name
#define OPS_TABLE ops_generic
#include "kernels/twin_impl.h"
