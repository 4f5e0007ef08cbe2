/* The product that defines --compute bf16 (kernels/ops.h, "dot bf16") against the hardware. VDPBF16PS, and
 * two FMAs of AVX2 under MXCSR FTZ|DAZ, equal plain C bit for bit, NaN equal to NaN. The conversion
 * VCVTNEPS2BF16 equals f32_to_bf16.
 *
 *     test_dpbf16 [--long | PAIRS]     default 16 million pairs; --long: 1,000,000,000 and every float
 *
 * Positive controls: other plausible definitions (even element first, no flush, tininess judged by the
 * rounded result alone, products rounded separately) must disagree with the hardware on the same data. */
#include "tests/reference.h"
#include "tests/test.h"

static unsigned long long n_pairs = 16u << 20;

#if defined(__x86_64__)
#include <immintrin.h>

enum { LANES = 16, BATCH = 256 * LANES };
struct batch { uint32_t c[BATCH], x[BATCH], y[BATCH], want[BATCH], got[BATCH]; };
static struct batch data __attribute__((aligned(64)));

/* Exponents at borders: denormal, smallest, where products underflow or overflow, 1, NaN. */
REF_INLINE uint32_t edge_exponent(uint64_t r)
{
    static const uint8_t e[32] = { 0,   0,   1,   1,   2,   3,   24,  40,  60,  62,  63,
                                   64,  65,  66,  80,  100, 110, 120, 126, 127, 128, 130,
                                   150, 170, 189, 190, 191, 192, 220, 250, 254, 255 };
    return e[r & 31];
}
REF_INLINE uint32_t edge_bf16(uint64_t r)
{
    static const uint8_t mantissa[8] = { 0, 127, 1, 64 };
    uint32_t m = (r & 4) ? (uint32_t)(r >> 3 & 0x7f) : mantissa[r & 3];
    uint32_t e = (r >> 10 & 3) ? edge_exponent(r >> 12) : (uint32_t)(r >> 12 & 255);
    return (uint32_t)(r >> 20 & 1) << 15 | e << 7 | m;
}
REF_INLINE uint32_t edge_float(uint64_t r)
{
    uint32_t m = (uint32_t)(r & 0x7fffff), k = (uint32_t)(r >> 23 & 7);
    m = k == 0 ? 0 : k == 1 ? 1 : k == 2 ? 0x7fffff : k == 3 ? m & 7 : k == 4 ? m | 0x7ffff0 : m;
    uint32_t e = (r >> 26 & 3) ? edge_exponent(r >> 28) : (uint32_t)(r >> 28 & 255);
    return (uint32_t)(r >> 40 & 1) << 31 | e << 23 | m;
}
/* A pair of normal bf16 whose product has about the exponent e. */
REF_INLINE void factors(uint64_t r, int e, uint32_t *a, uint32_t *b)
{
    int ea = -(int)(r & 63) - 10, eb = e - ea;
    if (eb < -126)
        eb = -126, ea = e - eb;
    *a = (uint32_t)(ea + 127) << 7 | (uint32_t)(r >> 6 & 0x807f);
    *b = (uint32_t)(eb + 127) << 7 | (uint32_t)(r >> 22 & 0x807f);
}
static void fill(struct batch *d, struct rng *rng)
{
    for (size_t i = 0; i < BATCH; i++) {
        uint64_t r = rng_next(rng), r2 = rng_next(rng), r3 = rng_next(rng);
        d->x[i] = edge_bf16(r) | edge_bf16(r >> 24) << 16;
        d->y[i] = edge_bf16(r2) | edge_bf16(r2 >> 24) << 16;
        d->c[i] = edge_float(r3);
        switch (r3 >> 60) {
        case 0: case 1: case 2: {   /* c a few ulps from +-FLT_MIN, products of about that ulp */
            uint32_t a0 = (uint32_t)(r2 & 0x8000), b0 = 0, a1 = 0, b1 = 0;
            if (r3 >> 58 & 1) factors(r, -145 - (int)(r2 & 15), &a0, &b0);
            if (r3 >> 59 & 1 || !b0) factors(r2 >> 4, -145 - (int)(r & 15), &a1, &b1);
            d->x[i] = a0 | a1 << 16, d->y[i] = b0 | b1 << 16;
            d->c[i] = (uint32_t)(r3 & 1) << 31 |
                      (0x00800000 + (uint32_t)(r3 >> 1 & 7) - 4 * (uint32_t)(r3 >> 4 & 1));
            break;
        }
        case 3: case 4:             /* c = -(odd product) and a bit: cancellation */
            d->c[i] = ref_bits(-ref_float(d->x[i] & 0xffff0000) * ref_float(d->y[i] & 0xffff0000)) +
                      (uint32_t)(r3 & 3) - 1;
            break;
        case 5:                     /* the accumulator at the largest floats: overflow and back */
            d->c[i] = (uint32_t)(r3 & 1) << 31 | (0x7f7fffff - (uint32_t)(r3 >> 1 & 3));
            break;
        case 6: case 7:             /* ordinary numbers */
            d->x[i] = (d->x[i] & 0x807f807f) | ((0x78u + (uint32_t)(r & 7)) << 7) |
                      ((0x78u + (uint32_t)(r2 & 7)) << 23);
            d->y[i] = (d->y[i] & 0x807f807f) | ((0x7au + (uint32_t)(r & 7)) << 7) |
                      ((0x7au + (uint32_t)(r2 & 7)) << 23);
            d->c[i] = (d->c[i] & 0x807fffff) | ((0x78u + (uint32_t)(r3 & 15)) << 23);
        }
    }
}

/* Plain C with the fma instruction instead of a call of fmaf: the same value, several times faster. */
__attribute__((target("avx2,fma"))) static void plain(struct batch *d)
{
    for (size_t i = 0; i < BATCH; i++)
        d->want[i] = ref_bits(ref_dot_pair(ref_float(d->c[i]), d->x[i], d->y[i]));
}
__attribute__((target("avx512f,avx512bf16"))) static void by_dpbf16(struct batch *d)
{
    for (size_t i = 0; i < BATCH; i += 16)
        _mm512_storeu_ps(d->got + i,
                         _mm512_dpbf16_ps(_mm512_loadu_ps(d->c + i), (__m512bh)_mm512_loadu_si512(d->x + i),
                                          (__m512bh)_mm512_loadu_si512(d->y + i)));
}
__attribute__((target("avx2,fma"))) static void by_avx2(struct batch *d)
{
    unsigned old = _mm_getcsr();
    _mm_setcsr(0x1f80 | 0x8040);     /* nearest, all exceptions masked, FTZ, DAZ */
    const __m256i hi = _mm256_set1_epi32((int)0xffff0000);
    for (size_t i = 0; i < BATCH; i += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(d->x + i)),
                y = _mm256_loadu_si256((const __m256i *)(d->y + i));
        __m256 c = _mm256_loadu_ps((const float *)d->c + i);
        c = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(x, hi)),
                            _mm256_castsi256_ps(_mm256_and_si256(y, hi)), c);
        c = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                            _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), c);
        _mm256_storeu_ps((float *)d->got + i, c);
    }
    _mm_setcsr(old);
}

/* Counts the lanes in which got and want differ; prints the first few. */
static unsigned long long differ(const struct batch *d, unsigned long long seen)
{
    unsigned long long n = 0;
    for (size_t i = 0; i < BATCH; i++) {
        if (d->got[i] == d->want[i] || (ref_nan_bits(d->got[i]) && ref_nan_bits(d->want[i])))
            continue;
        if (n++ + seen < 5)
            printf("    c %08x x %08x y %08x: got %08x, defined %08x\n", d->c[i], d->x[i], d->y[i], d->got[i],
                   d->want[i]);
    }
    return n;
}
static bool has_bf16(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
}
static bool has_fma(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static void sweep(void (*hw)(struct batch *), uint64_t seed)
{
    struct rng rng = { seed };
    unsigned long long bad = 0, lifted = 0, done = 0;
    for (; done < n_pairs; done += BATCH) {
        fill(&data, &rng);
        plain(&data);
        hw(&data);
        bad += differ(&data, bad);
        for (size_t i = 0; i < BATCH; i++)  /* results on the border prove that the generator produces them */
            lifted += (data.want[i] & 0x7fffffff) <= 0x00800000;
    }
    printf("    %llu pairs, %llu results at or below FLT_MIN, %llu differ\n", done, lifted, bad);
    CHECK(bad == 0, "%llu of %llu", bad, done);
    CHECK(lifted > done / 100);
}
static void vdpbf16ps_equals_plain_c(void)
{
    if (!has_bf16() || !has_fma()) SKIP("this CPU has no AVX512_BF16");
    sweep(by_dpbf16, 1);
}
static void avx2_fma_pair_equals_plain_c(void)
{
    if (!has_fma()) SKIP("this CPU has no AVX2 and FMA");
    sweep(by_avx2, 2);
}

/* The state of the thread (rounding, FTZ, DAZ) does not affect VDPBF16PS. */
static void vdpbf16ps_ignores_mxcsr(void)
{
    if (!has_bf16() || !has_fma()) SKIP("this CPU has no AVX512_BF16");
    struct rng rng = { 3 };
    unsigned old = _mm_getcsr();
    unsigned long long bad = 0;
    for (unsigned state = 0; state < 16; state++)
        for (int k = 0; k < 16; k++) {
            fill(&data, &rng);
            plain(&data);
            _mm_setcsr(0x1f80 | (state & 3) << 13 | (state & 4) << 4 | (state & 8) << 12);
            by_dpbf16(&data);
            _mm_setcsr(old);
            bad += differ(&data, bad);
        }
    CHECK(bad == 0, "%llu", bad);
}

/* ---- controls: similar but wrong definitions ---- */

REF_INLINE float sloppy_flush(float a, float b, float c)   /* keeps a result that fmaf rounds up to FLT_MIN */
{
    float r = fmaf(ref_daz(a), ref_daz(b), ref_daz(c));
    return ref_daz(r);
}
static float wrong(int kind, float c, uint32_t x, uint32_t y)
{
    float x0 = ref_bf16(x & 0xffff), x1 = ref_float(x & 0xffff0000), y0 = ref_bf16(y & 0xffff),
          y1 = ref_float(y & 0xffff0000);
    switch (kind) {
    case 0: return ref_fma_flush(x1, y1, ref_fma_flush(x0, y0, c));                        /* even first */
    case 1: return fmaf(x0, y0, fmaf(x1, y1, c));                                          /* no flush */
    case 2: return sloppy_flush(x0, y0, sloppy_flush(x1, y1, c));
    /* not fused */
    case 3: return ref_fma_flush(1, ref_fma_flush(x0, y0, 0), ref_fma_flush(1, ref_fma_flush(x1, y1, 0), c));
    /* the pair first */
    default: return ref_fma_flush(1, ref_fma_flush(x0, y0, ref_fma_flush(x1, y1, 0)), c);
    }
}
static void wrong_definitions_are_noticed(void)
{
    if (!has_fma()) SKIP("this CPU has no AVX2 and FMA");
    struct rng rng = { 4 };
    unsigned long long bad[5] = { 0 };
    for (int k = 0; k < 16; k++) {
        fill(&data, &rng);
        (has_bf16() ? by_dpbf16 : by_avx2)(&data);
        for (size_t i = 0; i < BATCH; i++)
            for (int v = 0; v < 5; v++) {
                uint32_t w = ref_bits(wrong(v, ref_float(data.c[i]), data.x[i], data.y[i]));
                bad[v] += w != data.got[i] && !(ref_nan_bits(w) && ref_nan_bits(data.got[i]));
            }
    }
    for (int v = 0; v < 5; v++)
        CHECK(bad[v] > 10, "control %d: %llu differ", v, bad[v]);
}

__attribute__((target("avx512f,avx512bf16"))) static void convert16(const uint32_t *x, uint16_t *y)
{
    __m256bh b = _mm512_cvtneps_pbh(_mm512_loadu_ps(x));
    memcpy(y, &b, 32);
}
/* Every float, or in the short test every 251st. The step is prime, so all classes occur. */
static void vcvtneps2bf16_equals_f32_to_bf16(void)
{
    if (!has_bf16()) SKIP("this CPU has no AVX512_BF16");
    uint64_t step = n_pairs >= 1000000000u ? 1 : 251;
    unsigned long long bad = 0, payload = 0;
    for (uint64_t u = 0; u < 1ull << 32; u += 16 * step) {
        uint32_t x[16]; uint16_t y[16];
        for (uint64_t i = 0; i < 16; i++)
            x[i] = (uint32_t)(u + i * step);
        convert16(x, y);
        for (int i = 0; i < 16; i++) {
            uint16_t w = f32_to_bf16(ref_float(x[i]));
            bool nan = ref_nan_bits(x[i]);
            payload += nan && w != y[i];
            if (nan ? !ref_nan_bits((uint32_t)y[i] << 16) || !ref_nan_bits((uint32_t)w << 16) : w != y[i])
                if (bad++ < 5)
                    printf("    %08x: hardware %04x, f32_to_bf16 %04x\n", x[i], y[i], w);
        }
    }
    CHECK(bad == 0, "%llu", bad);
    printf("    NaN payloads that differ: %llu\n", payload);
}
#endif

int main(int argc, char **argv)
{
    if (argc > 1)
        n_pairs = !strcmp(argv[1], "--long") ? 1000000000 : strtoull(argv[1], NULL, 10);
#if defined(__x86_64__)
    RUN(vdpbf16ps_equals_plain_c);
    RUN(avx2_fma_pair_equals_plain_c);
    RUN(vdpbf16ps_ignores_mxcsr);
    RUN(wrong_definitions_are_noticed);
    RUN(vcvtneps2bf16_equals_f32_to_bf16);
    if (!has_bf16())
        printf("twin not run: VDPBF16PS\n");
    if (!has_fma())
        printf("twin not run: AVX2 FMA pair\n");
#else
    printf("skip vdpbf16ps_equals_plain_c (not an x86 machine)\ntwin not run: VDPBF16PS\n");
#endif
    return test_end();
}
