/* Owns the loops that measure this machine: multiply-adds, reading, element-wise work. There is one table
 * entry for each instruction (mul_table) and one function for each vector width. Start at probe_mul_peak
 * and probe_read_rate. */
#include "src/lab/probe.h"

#include <stdlib.h>

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
#define KEEP(x) __asm__ volatile("" : "+v"(x))
#define EACH(DO) \
    DO(c0); DO(c1); DO(c2); DO(c3); DO(c4); DO(c5); DO(c6); DO(c7); DO(c8); DO(c9); DO(c10); DO(c11)
#define MUL(NAME, TARGET, T, START, U, FACTOR, STEP)                        \
    TARGET static void NAME(size_t n)                                       \
    {                                                                       \
        U x = FACTOR;                                                       \
        T y = START, c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11;      \
        KEEP(x);                                                            \
        KEEP(y);                                                            \
        c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = c8 = c9 = c10 = c11 = y;    \
        EACH(KEEP);                                                         \
        for (size_t i = 0; i < n; i++) {                                    \
            EACH(STEP);                                                     \
        }                                                                   \
        EACH(KEEP);                                                         \
    }
#define FMA_YMM(c) c = _mm256_fmadd_ps(c, x, y)
#define FMA_ZMM(c) c = _mm512_fmadd_ps(c, x, y)
#define BF16_ZMM(c) c = _mm512_dpbf16_ps(c, (__m512bh)x, (__m512bh)x)
/* KEEP hides the value of x, so the compiler moves no product out of the loop. */
#define I16_YMM(c) KEEP(x); c = _mm256_add_epi32(c, _mm256_madd_epi16(x, x))
#define I16_ZMM(c) c = _mm512_dpwssd_epi32(c, x, x)
MUL(mul_fma_ymm, AVX2, __m256, _mm256_set1_ps(0.25f), __m256, _mm256_set1_ps(0.5f), FMA_YMM)
MUL(mul_fma_zmm, AVX512, __m512, _mm512_set1_ps(0.25f), __m512, _mm512_set1_ps(0.5f), FMA_ZMM)
/* The factor is bf16 2^-20: an accumulator grows by 2 x 2^-40 each time. */
MUL(mul_bf16_zmm, AVX512BF16, __m512, _mm512_set1_ps(1), __m512i, _mm512_set1_epi16(0x3580), BF16_ZMM)
MUL(mul_i16_ymm, AVX2, __m256i, _mm256_set1_epi16(3), __m256i, _mm256_set1_epi16(3), I16_YMM)
MUL(mul_i16_zmm, AVX512VNNI, __m512i, _mm512_set1_epi16(3), __m512i, _mm512_set1_epi16(3), I16_ZMM)
#endif

static const struct { const char *name; size_t flops; void (*run)(size_t n); } mul_table[PROBE_MULS] = {
    [PROBE_MUL_PLAIN] = { "mul+add, plain C", 2, mul_plain },
#if defined(__x86_64__)
    [PROBE_FMA_YMM]   = { "fp32 FMA, ymm", 16, mul_fma_ymm },
    [PROBE_FMA_ZMM]   = { "fp32 FMA, zmm", 32, mul_fma_zmm },
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
    bool has[PROBE_MULS] = { [PROBE_MUL_PLAIN] = true };
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
               avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl");
    has[PROBE_FMA_YMM] = has[PROBE_I16_YMM] = avx2;
    has[PROBE_FMA_ZMM] = avx512;
    has[PROBE_BF16_ZMM] = avx512 && __builtin_cpu_supports("avx512bf16");
    has[PROBE_I16_ZMM] = avx512 && __builtin_cpu_supports("avx512vnni");
#endif
    return has[k];
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

/* ---- reading ----
 * LINE(p, k) reads the 64 bytes at p into accumulator k. */

#define READ(NAME, TARGET)                                                                                  \
    TARGET static void NAME(const char *p, size_t bytes, enum probe_read how)                              \
    {                                                                                                      \
        typedef uint64_t v __attribute__((vector_size(64), may_alias));                                 \
        v a0 = { 0 }, a1 = a0, a2 = a0, a3 = a0;                                                           \
        const size_t q = how == PROBE_READ_4_STREAMS ? bytes / 4 / 128 * 128 : 0;                          \
        size_t i = 0;                                                                                      \
        for (; i < q; i += 128) {                                                                          \
            LINE(p + i, 0); LINE(p + q + i, 1); LINE(p + 2 * q + i, 2); LINE(p + 3 * q + i, 3);            \
            LINE(p + i + 64, 0); LINE(p + q + i + 64, 1);                                                  \
            LINE(p + 2 * q + i + 64, 2); LINE(p + 3 * q + i + 64, 3);                                      \
        }                                                                                                  \
        for (i = 4 * q; i + 256 <= bytes; i += 256) {                                                      \
            for (size_t j = 0; j < 256 && how == PROBE_READ_PREFETCH; j += 64)                             \
                __builtin_prefetch(p + i + 2048 + j);                                                      \
            LINE(p + i, 0); LINE(p + i + 64, 1); LINE(p + i + 128, 2); LINE(p + i + 192, 3);               \
        }                                                                                                  \
        for (; i < bytes; i += 64) {                                                                       \
            LINE(p + i, 0);                                                                                \
        }                                                                                                  \
        a0 |= a1 | a2 | a3;                                                                                \
        __asm__ volatile("" : : "m"(a0));                                                                  \
    }
#define LINE(p, k) a##k |= *(const v *)(const void *)(p)
READ(read_plain, )
#if defined(__x86_64__)
READ(read_avx2, AVX2)
READ(read_avx512, AVX512)
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

double probe_read_rate(const struct probe_pieces *m, enum probe_read how, struct pool *p, double seconds)
{
    struct read_job j = { m->v, how, widest_read() };
    double bytes = 0, t0 = clock_seconds(), t;
    size_t sweeps = 0;
    for (size_t i = 0; i < m->n; i++)
        bytes += (double)m->v[i].bytes;
    do {
        if (p)
            pool_run(p, m->n, read_item, &j);
        else
            for (size_t i = 0; i < m->n; i++)
                read_item(&j, i, 0);
        sweeps++;
        t = clock_seconds() - t0;
    } while (t < seconds);
    return bytes * (double)sweeps / t;
}

enum probe_read probe_read_best(const struct probe_pieces *m, struct pool *p, double seconds)
{
    double best = 0;
    enum probe_read which = PROBE_READ_PLAIN;
    for (int round = 0; round < 2; round++)             /* the first round warms up */
        for (int how = 0; how < PROBE_READS; how++) {
            double rate = probe_read_rate(m, (enum probe_read)how, p, seconds);
            if (rate > best) {
                best = rate;
                which = (enum probe_read)how;
            }
        }
    return which;
}

enum { PIECE_BYTES_MAX = 512 << 10 };

static size_t cut(struct probe_piece *out, const struct probe_pieces *segments, size_t n_threads)
{
    size_t n = 0;
    for (size_t t = 0; t < n_threads; t++)
        for (size_t s = 0; s < segments->n; s++) {
            const size_t lines = segments->v[s].bytes / 64, end = lines * (t + 1) / n_threads * 64;
            for (size_t from = lines * t / n_threads * 64, bytes; from < end; from += bytes, n++) {
                bytes = MIN(end - from, (size_t)PIECE_BYTES_MAX);
                if (out)
                    out[n] = (struct probe_piece){ segments->v[s].p + from, bytes };
            }
        }
    return n;
}

int probe_cut(struct probe_pieces *m, const struct probe_pieces *segments, size_t n_threads, struct err *e)
{
    m->n = cut(NULL, segments, n_threads);
    m->v = malloc(m->n * sizeof *m->v);
    if (!m->v)
        return err_set(e, ERR_FAILED, "bench: out of memory for %zu pieces", m->n);
    cut(m->v, segments, n_threads);
    return 0;
}

/* ---- element-wise work ---- */

enum { N = 2048 };

struct probe_costs probe_costs(const struct ops *o, double seconds)
{
    enum { MAXIMUM, ROUND, SOFTMAX, KINDS, RUNS = 50 };
    _Alignas(64) static float x[N], y[N];
    double best[KINDS] = { 1, 1, 1 };
    for (const double end = clock_seconds() + seconds; clock_seconds() < end; )
        for (int kind = 0; kind < KINDS; kind++) {
            double spent = 0;
            for (int r = 0; r < RUNS; r++) {
                for (size_t i = 0; i < N; i++)
                    x[i] = -(float)(i % 97) / 7.0f;
                const double t0 = clock_seconds();
                if (kind == MAXIMUM)
                    o->argmax(x, N);
                else if (kind == ROUND)
                    o->round(y, DT_BF16, x, 1, N);
                else
                    o->softmax(y, DT_BF16, x, 0, N, N, 1);
                spent += clock_seconds() - t0;
            }
            best[kind] = MIN(best[kind], spent / ((double)RUNS * N));
        }
    return (struct probe_costs){ MAX(0, best[SOFTMAX] - best[MAXIMUM] - best[ROUND]), best[MAXIMUM],
                                 best[ROUND] };
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
