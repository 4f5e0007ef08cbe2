/* Owns the loops that measure this machine: multiply-adds, reading, element-wise work. There is one table
 * entry for each instruction (mul_table) and one function for each vector width. Start at probe_mul_peak
 * and probe_read_rate. */
#include "src/bench/probe.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl")))
#define AVX512BF16 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")))
#define AVX512VNNI __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#endif

/* ---- multiply-adds ----
 * CHAINS independent accumulators hide the latency of the slowest unit in use (6 cycles, 2 a cycle). The
 * factors keep every value finite and normal. KEEP tells the compiler that a value is changed and used;
 * otherwise it would merge the chains, which are equal. */

enum { CHAINS = 12 };
#define KEEP(reg, v) __asm__ volatile("" : "+" reg(v))

static void mul_plain(size_t n)
{
    float a = 0.5f, b = 0.25f, acc[CHAINS];
    __asm__ volatile("" : "+m"(a), "+m"(b));
    for (int j = 0; j < CHAINS; j++)
        acc[j] = (float)j;
    for (size_t i = 0; i < n; i++)
        for (int j = 0; j < CHAINS; j++)
            acc[j] = acc[j] * a + b;
    __asm__ volatile("" : : "r"(acc) : "memory");
}

#if defined(__x86_64__)
#define MUL_LOOP(T, REG, ACC0, STEP)                                                           \
    T c0 = ACC0, c1 = ACC0, c2 = ACC0, c3 = ACC0, c4 = ACC0, c5 = ACC0;                        \
    T c6 = ACC0, c7 = ACC0, c8 = ACC0, c9 = ACC0, c10 = ACC0, c11 = ACC0;                      \
    KEEP(REG, c0); KEEP(REG, c1); KEEP(REG, c2); KEEP(REG, c3); KEEP(REG, c4); KEEP(REG, c5);  \
    KEEP(REG, c6); KEEP(REG, c7); KEEP(REG, c8); KEEP(REG, c9); KEEP(REG, c10); KEEP(REG, c11); \
    for (size_t i = 0; i < n; i++) {                                                           \
        STEP(c0); STEP(c1); STEP(c2); STEP(c3); STEP(c4); STEP(c5);                            \
        STEP(c6); STEP(c7); STEP(c8); STEP(c9); STEP(c10); STEP(c11);                          \
    }                                                                                          \
    KEEP(REG, c0); KEEP(REG, c1); KEEP(REG, c2); KEEP(REG, c3); KEEP(REG, c4); KEEP(REG, c5);  \
    KEEP(REG, c6); KEEP(REG, c7); KEEP(REG, c8); KEEP(REG, c9); KEEP(REG, c10); KEEP(REG, c11)

AVX2 static void mul_fma_ymm(size_t n)
{
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    KEEP("x", a); KEEP("x", b);
#define STEP(c) c = _mm256_fmadd_ps(c, a, b)
    MUL_LOOP(__m256, "x", b, STEP);
#undef STEP
}
AVX512 static void mul_fma_zmm(size_t n)
{
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    KEEP("v", a); KEEP("v", b);
#define STEP(c) c = _mm512_fmadd_ps(c, a, b)
    MUL_LOOP(__m512, "v", b, STEP);
#undef STEP
}
/* The accumulator grows by 2 x 2^-40 each time and stays small: no denormals, no infinities. */
AVX512BF16 static void mul_bf16_ymm(size_t n)
{
    __m256i x = _mm256_set1_epi16(0x3580);              /* bf16 2^-20 */
    __m256 zero = _mm256_set1_ps(1.0f);
    KEEP("v", x); KEEP("v", zero);
#define STEP(c) c = _mm256_dpbf16_ps(c, (__m256bh)x, (__m256bh)x)
    MUL_LOOP(__m256, "v", zero, STEP);
#undef STEP
}
AVX512BF16 static void mul_bf16_zmm(size_t n)
{
    __m512i x = _mm512_set1_epi16(0x3580);
    __m512 zero = _mm512_set1_ps(1.0f);
    KEEP("v", x); KEEP("v", zero);
#define STEP(c) c = _mm512_dpbf16_ps(c, (__m512bh)x, (__m512bh)x)
    MUL_LOOP(__m512, "v", zero, STEP);
#undef STEP
}
AVX2 static void mul_i16_ymm(size_t n)
{
    __m256i x = _mm256_set1_epi16(3);
    KEEP("x", x);
    /* KEEP hides the value of x, so the compiler moves no product out of the loop. */
#define STEP(c) do { KEEP("x", x); c = _mm256_add_epi32(c, _mm256_madd_epi16(x, x)); } while (0)
    MUL_LOOP(__m256i, "x", x, STEP);
#undef STEP
}
AVX512VNNI static void mul_i16_zmm(size_t n)
{
    __m512i x = _mm512_set1_epi16(3);
    KEEP("v", x);
#define STEP(c) c = _mm512_dpwssd_epi32(c, x, x)
    MUL_LOOP(__m512i, "v", x, STEP);
#undef STEP
}
#endif

static const struct { const char *name; size_t flops; void (*run)(size_t n); } mul_table[PROBE_MULS] = {
    [PROBE_MUL_PLAIN] = { "mul+add, plain C", 2, mul_plain },
#if defined(__x86_64__)
    [PROBE_FMA_YMM]   = { "fp32 FMA, ymm", 16, mul_fma_ymm },
    [PROBE_FMA_ZMM]   = { "fp32 FMA, zmm", 32, mul_fma_zmm },
    [PROBE_BF16_YMM]  = { "vdpbf16ps, ymm", 32, mul_bf16_ymm },
    [PROBE_BF16_ZMM]  = { "vdpbf16ps, zmm", 64, mul_bf16_zmm },
    [PROBE_I16_YMM]   = { "vpmaddwd + vpaddd, ymm", 32, mul_i16_ymm },
    [PROBE_I16_ZMM]   = { "vpdpwssd, zmm", 64, mul_i16_zmm },
#endif
};

const char *probe_mul_name(enum probe_mul k)
{
    return mul_table[k].name ? mul_table[k].name : "unsupported";
}

bool probe_mul_supported(enum probe_mul k)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl");
    bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16"),
         vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    switch (k) {
    case PROBE_FMA_YMM: return avx2;
    case PROBE_FMA_ZMM: return avx512;
    case PROBE_BF16_YMM: case PROBE_BF16_ZMM: return bf16;
    case PROBE_I16_YMM: return avx2;
    case PROBE_I16_ZMM: return vnni;
    default: break;
    }
#endif
    return k == PROBE_MUL_PLAIN;
}

struct mul_job { void (*run)(size_t n); size_t n; };

static void mul_item(void *ctx, size_t i, size_t thread)
{
    const struct mul_job *j = ctx;
    (void)i; (void)thread;
    j->run(j->n);
}

double probe_mul_peak(enum probe_mul k, struct pool *p, double seconds)
{
    assert(probe_mul_supported(k));
    struct mul_job j = { mul_table[k].run, 2000 };
    double t0 = clock_seconds();
    j.run(j.n);                          /* a warm-up, which also tells how many steps fill the time */
    double once = clock_seconds() - t0;
    j.n = MAX((size_t)2000, (size_t)(2000 * seconds / MAX(once, 1e-7)));
    size_t threads = p ? pool_threads(p) : 1;
    t0 = clock_seconds();
    if (p)
        pool_run(p, threads, mul_item, &j);
    else
        j.run(j.n);
    double t = clock_seconds() - t0;
    return (double)threads * (double)j.n * CHAINS * (double)mul_table[k].flops / t;
}

/* ---- reading ---- */

static void read_plain(const char *p, size_t bytes, enum probe_read how)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    (void)how;
    for (size_t i = 0; i < bytes; i += 64) {
        const uint64_t *q = (const uint64_t *)(const void *)(p + i);
        a |= q[0] | q[4]; b |= q[1] | q[5]; c |= q[2] | q[6]; d |= q[3] | q[7];
    }
    a |= b | c | d;
    __asm__ volatile("" : : "r"(a));
}

#if defined(__x86_64__)
/* One body for both vector widths: LINE reads 64 bytes into the accumulators. */
#define READ_BODY                                                                              \
    size_t i = 0;                                                                              \
    if (how == PROBE_READ_4_STREAMS) {                                                         \
        size_t q = bytes / 4 / 128 * 128;                                                      \
        for (; i < q; i += 128) {                                                              \
            LINE(p + i, 0); LINE(p + q + i, 1); LINE(p + 2 * q + i, 2); LINE(p + 3 * q + i, 3);  \
            LINE(p + i + 64, 0); LINE(p + q + i + 64, 1);                                      \
            LINE(p + 2 * q + i + 64, 2); LINE(p + 3 * q + i + 64, 3);                          \
        }                                                                                      \
        i = 4 * q;                                                                             \
    } else if (how == PROBE_READ_PREFETCH) {                                                   \
        for (; i + 256 <= bytes; i += 256) {                                                   \
            for (int j = 0; j < 4; j++)                                                        \
                _mm_prefetch(p + i + 2048 + 64 * j, _MM_HINT_T0);                              \
            LINE(p + i, 0); LINE(p + i + 64, 1); LINE(p + i + 128, 2); LINE(p + i + 192, 3);   \
        }                                                                                      \
    } else {                                                                                   \
        for (; i + 512 <= bytes; i += 512) {                                                   \
            LINE(p + i, 0); LINE(p + i + 64, 1); LINE(p + i + 128, 2); LINE(p + i + 192, 3);   \
            LINE(p + i + 256, 0); LINE(p + i + 320, 1); LINE(p + i + 384, 2); LINE(p + i + 448, 3);  \
        }                                                                                      \
    }                                                                                          \
    for (; i < bytes; i += 64)                                                                 \
        LINE(p + i, 0)

AVX2 static void read_avx2(const char *p, size_t bytes, enum probe_read how)
{
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
#define LOAD(ptr) _mm256_load_si256((const __m256i *)(const void *)(ptr))
#define LINE(ptr, k) (a##k = _mm256_or_si256(_mm256_or_si256(a##k, LOAD(ptr)), LOAD((ptr) + 32)))
    READ_BODY;
#undef LINE
    KEEP("x", a0); KEEP("x", a1); KEEP("x", a2); KEEP("x", a3);
}
AVX512 static void read_avx512(const char *p, size_t bytes, enum probe_read how)
{
    __m512i a0 = _mm512_setzero_si512(), a1 = a0, a2 = a0, a3 = a0;
#define LINE(ptr, k) (a##k = _mm512_or_si512(a##k, _mm512_load_si512(ptr)))
    READ_BODY;
#undef LINE
    KEEP("v", a0); KEEP("v", a1); KEEP("v", a2); KEEP("v", a3);
}
#endif

static void (*widest_read(void))(const char *, size_t, enum probe_read)
{
#if defined(__x86_64__)
    if (probe_mul_supported(PROBE_FMA_ZMM))
        return read_avx512;
    if (probe_mul_supported(PROBE_FMA_YMM))
        return read_avx2;
#endif
    return read_plain;
}

struct read_job {
    const struct probe_piece *piece;
    enum probe_read how;
    void (*run)(const char *, size_t, enum probe_read);
};

static void read_item(void *ctx, size_t i, size_t thread)
{
    const struct read_job *j = ctx;
    (void)thread;
    j->run(j->piece[i].p, j->piece[i].bytes, j->how);
}

const char *probe_read_name(enum probe_read how)
{
    static const char *const name[PROBE_READS] = { "plain", "prefetch", "4 streams" };
    return name[how];
}

double probe_read_rate(const struct probe_piece *piece, size_t n, enum probe_read how, struct pool *p,
                       double seconds)
{
    struct read_job j = { piece, how, widest_read() };
    double bytes = 0, t0 = clock_seconds(), t;
    size_t sweeps = 0;
    for (size_t i = 0; i < n; i++)
        bytes += (double)piece[i].bytes;
    do {
        if (p)
            pool_run(p, n, read_item, &j);
        else
            for (size_t i = 0; i < n; i++)
                read_item(&j, i, 0);
        sweeps++;
        t = clock_seconds() - t0;
    } while (t < seconds);
    return bytes * (double)sweeps / t;
}

enum probe_read probe_read_best(const struct probe_piece *piece, size_t n, struct pool *p, double seconds)
{
    double best = 0;
    enum probe_read which = PROBE_READ_PLAIN;
    for (int round = 0; round < 2; round++)             /* the first round warms up */
        for (int how = 0; how < PROBE_READS; how++) {
            double rate = probe_read_rate(piece, n, (enum probe_read)how, p, seconds);
            if (rate > best) {
                best = rate;
                which = (enum probe_read)how;
            }
        }
    return which;
}

size_t probe_cut(struct probe_piece *out, const struct probe_piece *seg, size_t n_seg, size_t n_threads)
{
    size_t n = 0;
    for (size_t t = 0; t < n_threads; t++)
        for (size_t s = 0; s < n_seg; s++) {
            size_t lines = seg[s].bytes / 64;
            size_t from = lines * t / n_threads * 64, to = lines * (t + 1) / n_threads * 64;
            for (; from < to; n++) {
                size_t bytes = MIN(to - from, (size_t)PROBE_PIECE_MAX);
                if (out)
                    out[n] = (struct probe_piece){ seg[s].p + from, bytes };
                from += bytes;
            }
        }
    return n;
}

/* ---- element-wise work ----
 * On N floats that stay in the first cache level: exp2 with the steps of the kernels (round by a magic
 * number, polynomial of degree 6, exponent added, zero below -126), the maximum, and the conversion to
 * bf16. */

enum { N = 2048 };
static const float POLY[7] = { 1.0f, 0.693147182f, 0.240226504f, 0.0555041087f, 0.00961812911f,
                               0.00133335581f, 0.000154353139f };
enum elementwise { DO_EXP2, DO_MAX, DO_CONVERT };

static void elementwise_plain(enum elementwise op, float *x, uint16_t *y)
{
    float m = x[0];
    for (size_t i = 0; i < N; i++)
        if (op == DO_EXP2) {
            float n = (x[i] + 12582912.0f) - 12582912.0f, f = x[i] - n, p = POLY[6];
            for (int k = 5; k >= 0; k--)
                p = p * f + POLY[k];
            int32_t bits;
            memcpy(&bits, &p, 4);
            bits = x[i] < -126.0f ? 0 : bits + (int32_t)((uint32_t)(int32_t)n << 23);
            y[i] = (uint16_t)(bits >> 16);
        } else if (op == DO_MAX) {
            m = x[i] > m ? x[i] : m;
        } else {
            uint32_t bits;
            memcpy(&bits, &x[i], 4);
            y[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
    __asm__ volatile("" : : "r"(y), "m"(m) : "memory");
}

#if defined(__x86_64__)
AVX2 static void elementwise_avx2(enum elementwise op, float *x, uint16_t *y)
{
    const __m256 magic = _mm256_set1_ps(12582912.0f), low = _mm256_set1_ps(-126.0f);
    float *out = (float *)(void *)y;
    __m256 m[4];
    for (int j = 0; j < 4; j++)
        m[j] = _mm256_load_ps(x + 8 * j);
    for (size_t i = 0; i < N && op == DO_EXP2; i += 8) {
        __m256 v = _mm256_load_ps(x + i), t = _mm256_add_ps(v, magic), n = _mm256_sub_ps(t, magic);
        __m256 f = _mm256_sub_ps(v, n), p = _mm256_set1_ps(POLY[6]);
        for (int k = 5; k >= 0; k--)
            p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(POLY[k]));
        __m256i bits =
            _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
        _mm256_store_ps(out + i, _mm256_and_ps(_mm256_castsi256_ps(bits), _mm256_cmp_ps(v, low, _CMP_GE_OQ)));
    }
    for (size_t i = 0; i < N && op == DO_MAX; i += 32)
        for (int j = 0; j < 4; j++)
            m[j] = _mm256_max_ps(m[j], _mm256_load_ps(x + i + 8 * (size_t)j));
    for (size_t i = 0; i < N && op == DO_CONVERT; i += 16) {
        __m256i h[2];
        for (int j = 0; j < 2; j++) {
            __m256i b = _mm256_load_si256((const __m256i *)(const void *)(x + i + 8 * (size_t)j));
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
            h[j] =
                _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(b, odd), _mm256_set1_epi32(0x7fff)), 16);
        }
        __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(h[0], h[1]), 0xd8);
        _mm256_store_si256((__m256i *)(void *)(y + i), both);
    }
    for (int j = 0; j < 4; j++)
        KEEP("x", m[j]);
    __asm__ volatile("" : : "r"(y) : "memory");
}

AVX512BF16 static void elementwise_avx512(enum elementwise op, float *x, uint16_t *y)
{
    const __m512 magic = _mm512_set1_ps(12582912.0f), low = _mm512_set1_ps(-126.0f);
    float *out = (float *)(void *)y;
    __m512 m[4];
    for (int j = 0; j < 4; j++)
        m[j] = _mm512_load_ps(x + 16 * j);
    for (size_t i = 0; i < N && op == DO_EXP2; i += 16) {
        __m512 v = _mm512_load_ps(x + i), t = _mm512_add_ps(v, magic), n = _mm512_sub_ps(t, magic);
        __m512 f = _mm512_sub_ps(v, n), p = _mm512_set1_ps(POLY[6]);
        for (int k = 5; k >= 0; k--)
            p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POLY[k]));
        __m512i bits =
            _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23));
        _mm512_store_ps(
            out + i, _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, low, _CMP_GE_OQ), _mm512_castsi512_ps(bits)));
    }
    for (size_t i = 0; i < N && op == DO_MAX; i += 64)
        for (int j = 0; j < 4; j++)
            m[j] = _mm512_max_ps(m[j], _mm512_load_ps(x + i + 16 * (size_t)j));
    for (size_t i = 0; i < N && op == DO_CONVERT; i += 16)
        _mm256_store_si256((__m256i *)(void *)(y + i), (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x + i)));
    for (int j = 0; j < 4; j++)
        KEEP("v", m[j]);
    __asm__ volatile("" : : "r"(y) : "memory");
}
#endif

static double elementwise_seconds(enum elementwise op, enum probe_isa isa, double seconds)
{
    _Alignas(64) static float x[N], y[N];
    void (*run)(enum elementwise, float *, uint16_t *) = elementwise_plain;
#if defined(__x86_64__)
    if (isa == PROBE_ISA_AVX512 && probe_mul_supported(PROBE_BF16_ZMM))
        run = elementwise_avx512;
    else if (isa != PROBE_ISA_PLAIN && probe_mul_supported(PROBE_FMA_YMM))
        run = elementwise_avx2;
#endif
    for (size_t i = 0; i < N; i++)
        x[i] = -(float)(i % 97) / 7.0f;
    double best = 1, t_end = clock_seconds() + seconds;
    do {
        double t0 = clock_seconds();
        for (int r = 0; r < 50; r++)
            run(op, x, (uint16_t *)(void *)y);
        double t = (clock_seconds() - t0) / (50.0 * N);
        best = MIN(best, t);
    } while (clock_seconds() < t_end);
    (void)isa;
    return best;
}

struct probe_costs probe_costs(enum probe_isa isa, double seconds)
{
    return (struct probe_costs){
        elementwise_seconds(DO_EXP2, isa, seconds / 3),
        elementwise_seconds(DO_MAX, isa, seconds / 3),
        elementwise_seconds(DO_CONVERT, isa, seconds / 3),
    };
}

static void nothing(void *ctx, size_t i, size_t thread) { (void)ctx; (void)i; (void)thread; }

double probe_dispatch(struct pool *p, double seconds)
{
    double t0 = clock_seconds(), t;
    size_t n = 0;
    do {
        for (int i = 0; i < 100; i++)
            pool_run(p, pool_threads(p), nothing, NULL);
        n += 100;
        t = clock_seconds() - t0;
    } while (t < seconds);
    return t / (double)n;
}
