/* SHA-256 as FIPS 180-4 describes it. sha256_plain() is the compression function, sha_blocks() the same with
 * the SHA instructions of x86; start reading at sha256_add. */
#include "src/base/sha256.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

static const uint32_t START[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                   0x1f83d9ab, 0x5be0cd19 };

/* first 32 bits of the fractional parts of the cube roots of the first 64 primes */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void block(uint32_t s[8], const uint8_t p[64])
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
               p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, s, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t S1 = ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + S1 + ch + K[i] + w[i];
        uint32_t S0 = ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22),
                 maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + S0 + maj;
    }
    for (int i = 0; i < 8; i++)
        s[i] += v[i];
}

void sha256_plain(uint32_t s[8], const uint8_t *p, size_t blocks)
{
    for (; blocks; blocks--, p += 64)
        block(s, p);
}

/* ---- the SHA instructions ---- */

#if defined(__x86_64__)
#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

/* Whether the CPU has them. CPUID is slow in virtual machines, so the answer is kept. */
static bool has_sha(void)
{
    static atomic_int known;
    unsigned a, b, c, d, b7 = 0;
    int x = atomic_load_explicit(&known, memory_order_relaxed);
    if (x == 0) {
        const bool has = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1) &&
                         __get_cpuid_count(7, 0, &a, &b7, &c, &d) && (b7 >> 29 & 1);
        x = has ? 2 : 1;
        atomic_store_explicit(&known, x, memory_order_relaxed);
    }
    return x == 2;
}

/* The blocks of one or two inputs. An instruction makes two rounds and has a latency of 4 cycles, so the
 * rounds of two inputs take hardly longer than those of one. a holds the state's words f, e, b, a; c holds h,
 * g, d, c. */
#define FOR_LANES _Pragma("GCC unroll 2") for (size_t l = 0; l < lanes; l++)
static inline __attribute__((always_inline)) WITH_SHA
void sha_blocks(const size_t lanes, uint32_t (*s)[8], const uint8_t *const *p, size_t blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i a[2], c[2], w[2][4], a_before[2], c_before[2];
    FOR_LANES {
        const __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)s[l]), 0xb1),
                      high =
                          _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s[l] + 4)), 0x1b);
        a[l] = _mm_alignr_epi8(low, high, 8);
        c[l] = _mm_blend_epi16(high, low, 0xf0);
    }
    for (size_t b = 0; b < blocks; b++) {
        FOR_LANES {
            a_before[l] = a[l];
            c_before[l] = c[l];
            _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++) w[l][i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(p[l] + 64 * b + 16 * i)), big_endian);
        }
        _Pragma("GCC unroll 16") for (size_t i = 0; i < 16; i++)
            FOR_LANES {
                const __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(K + 4 * i)),
                              m = _mm_add_epi32(w[l][i % 4], k), last = w[l][(i + 3) % 4];
                c[l] = _mm_sha256rnds2_epu32(c[l], a[l], m);
                a[l] = _mm_sha256rnds2_epu32(a[l], c[l], _mm_shuffle_epi32(m, 0x0e));
                const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[l][i % 4], w[l][(i + 1) % 4]),
                                                  _mm_alignr_epi8(last, w[l][(i + 2) % 4], 4));
                /* words i + 4; the last four are not used */
                w[l][i % 4] = _mm_sha256msg2_epu32(sum, last);
            }
        FOR_LANES {
            a[l] = _mm_add_epi32(a[l], a_before[l]);
            c[l] = _mm_add_epi32(c[l], c_before[l]);
        }
    }
    FOR_LANES {
        const __m128i low = _mm_shuffle_epi32(a[l], 0x1b), high = _mm_shuffle_epi32(c[l], 0xb1);
        _mm_storeu_si128((__m128i *)(void *)s[l], _mm_blend_epi16(low, high, 0xf0));
        _mm_storeu_si128((__m128i *)(void *)(s[l] + 4), _mm_alignr_epi8(high, low, 8));
    }
}

static WITH_SHA void sha_one(uint32_t (*s)[8], const uint8_t *const *p, size_t blocks)
{
    sha_blocks(1, s, p, blocks);
}

static WITH_SHA void sha_two(uint32_t (*s)[8], const uint8_t *const *p, size_t blocks)
{
    sha_blocks(2, s, p, blocks);
}
#else
static bool has_sha(void) { return false; }
static void sha_one(uint32_t (*s)[8], const uint8_t *const *p, size_t blocks)
{
    sha256_plain(*s, *p, blocks);
}
static void sha_two(uint32_t (*s)[8], const uint8_t *const *p, size_t blocks) { sha_one(s, p, blocks); }
#endif

static void add_blocks(uint32_t s[8], const uint8_t *p, size_t blocks)
{
    if (has_sha())
        sha_one((uint32_t (*)[8])s, &p, blocks);
    else
        sha256_plain(s, p, blocks);
}

/* ---- inputs of any length ---- */

void sha256_start(struct sha256 *h)
{
    memcpy(h->state, START, sizeof START);
    h->n = 0;
}

void sha256_add(struct sha256 *h, const void *p, size_t n)
{
    const uint8_t *s = p;
    size_t have = h->n % 64;
    h->n += n;
    if (have && have + n >= 64) {
        memcpy(h->part + have, s, 64 - have);
        add_blocks(h->state, h->part, 1);
        s += 64 - have;
        n -= 64 - have;
        have = 0;
    }
    if (n >= 64)
        add_blocks(h->state, s, n / 64);
    if (n % 64)
        memcpy(h->part + have, s + n / 64 * 64, n % 64);
}

void sha256_end(struct sha256 *h, uint8_t out[SHA256_BYTES])
{
    uint64_t bits = h->n * 8;
    size_t have = h->n % 64;
    h->part[have++] = 0x80;
    if (have > 56) {
        memset(h->part + have, 0, 64 - have);
        add_blocks(h->state, h->part, 1);
        have = 0;
    }
    memset(h->part + have, 0, 56 - have);
    for (int i = 0; i < 8; i++)
        h->part[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
    add_blocks(h->state, h->part, 1);
    for (int i = 0; i < 8; i++) {
        out[4 * i] = (uint8_t)(h->state[i] >> 24);
        out[4 * i + 1] = (uint8_t)(h->state[i] >> 16);
        out[4 * i + 2] = (uint8_t)(h->state[i] >> 8);
        out[4 * i + 3] = (uint8_t)h->state[i];
    }
}

void sha256_hex(char out[SHA256_HEX], const uint8_t digest[SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * SHA256_BYTES] = 0;
}

void sha256_of(uint8_t out[SHA256_BYTES], const void *p, size_t n)
{
    struct sha256 h;
    sha256_start(&h);
    sha256_add(&h, p, n);
    sha256_end(&h, out);
}

void sha256_text(char out[SHA256_HEX], const void *p, size_t n)
{
    uint8_t digest[SHA256_BYTES];
    sha256_of(digest, p, n);
    sha256_hex(out, digest);
}

void sha256_pair(uint8_t out[2][SHA256_BYTES], const void *x, const void *y, size_t n)
{
    const uint8_t *const p[2] = { x, y };
    struct sha256 h;
    uint32_t s[2][8];
    memcpy(s[0], START, sizeof START);
    memcpy(s[1], START, sizeof START);
    if (has_sha())
        sha_two(s, p, n / 64);
    for (size_t i = 0; i < 2; i++) {
        if (!has_sha())
            sha256_plain(s[i], p[i], n / 64);
        memcpy(h.state, s[i], sizeof h.state);
        h.n = n / 64 * 64;
        sha256_add(&h, p[i] + h.n, n % 64);
        sha256_end(&h, out[i]);
    }
}
