/* The coin: published vectors, the logarithm, and the distribution of the noise. All seeds are fixed, so
 * every run gives the same figures. Limits are extreme quantiles, which a sound generator keeps for nearly
 * every seed. */
#include <math.h>
#include "src/sample/coin.h"
#include "src/sample/sample.h"
#include "tests/test.h"

/* kat_vectors of the Random123 distribution, philox4x32 10. */
static void philox_gives_the_published_vectors(void)
{
    static const struct { uint32_t counter[4], key[2], want[4]; } kat[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t x[4];
        philox4x32(x, kat[i].counter, kat[i].key);
        CHECK(!memcmp(x, kat[i].want, sizeof x), "vector %zu: %08x %08x %08x %08x", i, x[0], x[1], x[2],
              x[3]);
    }
}

/* The third vector through the layout of counter and key, which the bits of every text depend on. */
static void coin_word_places_seed_sample_position_and_id(void)
{
    const uint64_t seed = UINT64_C(0x299f31d0a4093822), position = UINT64_C(0x0370734413198a2e);
    CHECK(coin_word(0, 0, 0, 0) == UINT64_C(0xe169c58d6627e8d5));
    CHECK(coin_word(0, 0, 0, 1) == UINT64_C(0x9b00dbd8bc57ac4c));
    /* the counter word of id is id / 2: 243f6a88 belongs to id 487ed510 */
    CHECK(coin_word(seed, 0x85a308d3, position, 0x487ed510) == UINT64_C(0x94fdccebd16cfe09));
    CHECK(coin_word(seed, 0x85a308d3, position, 0x487ed511) == UINT64_C(0x24126ea15001e420));
}

static double ulps(double got, long double want)
{
    double w = (double)want, step = nextafter(fabs(w), INFINITY) - fabs(w);
    return (double)fabsl((long double)got - want) / step;
}

static void logarithms_are_within_a_few_ulp(void)
{
    double worst = 0, worst1p = 0;
    for (uint32_t i = 0; i < 400000; i++) {
        uint64_t w = coin_word(1, 0, 0, i);
        double x = ldexp(1 + (double)(w >> 12) * 0x1p-52, i % 4 ? (int)(w % 140) - 70 : (int)(i % 3) - 2);
        double d = ulps(log_own(x), logl((long double)x));
        worst = d > worst ? d : worst;
        double v = -0.5 * ldexp((double)(w >> 11) * 0x1p-53, -(int)(i % 66));
        d = ulps(log1p_own(v), log1pl((long double)v));
        worst1p = d > worst1p ? d : worst1p;
    }
    CHECK(worst <= 1.5, "log: %g ulp", worst);
    CHECK(worst1p <= 3, "log1p: %g ulp", worst1p);
    CHECK(log_own(1) == 0 && log1p_own(0) == 0);
    CHECK(near(log_own(0x1p-1074), -1074 * 0.69314718055994530942, 0, 1e-15));
    CHECK(near(log_own(0x1.fffffffffffffp1023), 1024 * 0.69314718055994530942, 0, 1e-15));
    CHECK(near(log_own(10), 2.302585092994045684, 0, 3e-16));
}

/* The definition in long double, where 1 - v is exact. */
static long double gumbel_of(uint64_t word)
{
    long double v = ((long double)word + 0.5L) * 0x1p-64L;
    return word >> 63 ? -logl(-logl(((long double)~word + 0.5L) * 0x1p-64L)) : -logl(-log1pl(-v));
}

static void noise_is_exact_in_both_tails(void)
{
    double worst = 0, last = INFINITY;
    for (uint32_t i = 0; i < 300000; i++) {
        uint64_t w = coin_word(2, 0, 0, i);
        w = i & 1 ? w >> (i / 2 % 64) : ~(w >> (i / 2 % 64));
        double d = (double)fabsl(coin_gumbel(w) - gumbel_of(w));        /* absolute, because it is added to
                                                                         * logits */
        worst = d > worst ? d : worst;
    }
    CHECK(worst < 1e-14, "%g", worst);
    CHECK(near(coin_gumbel(0), 65 * 0.69314718055994530942, 1e-12, 0), "largest noise");
    CHECK(near(coin_gumbel(UINT64_MAX), -log(65 * 0.69314718055994530942), 1e-12, 0), "smallest noise");
    /* strictly decreasing over the whole range */
    for (int bit = 0; bit < 64; bit++) {
        double g = coin_gumbel(UINT64_C(1) << bit);
        CHECK(g < last && isfinite(g), "bit %d", bit);
        last = g;
    }
    CHECK(coin_gumbel(UINT64_C(1) << 63) > coin_gumbel((UINT64_C(1) << 63) + 4096));
    CHECK(coin_gumbel(5) > coin_gumbel(6) && coin_gumbel(UINT64_MAX - 5) > coin_gumbel(UINT64_MAX - 4));
}

/* One hash over many noise values: the same bits on every CPU and with every compiler. */
static void noise_has_the_golden_bits(void)
{
    uint64_t h = HASH64_INIT;
    for (uint32_t i = 0; i < 100000; i++) {
        double g =
            coin_gumbel(coin_word(i * UINT64_C(0x123456789abcdef), i % 7, i * UINT64_C(0x9876543210f), i));
        h = hash64(h, &g, sizeof g);
    }
    CHECK(h == UINT64_C(0xc82289e30452f2a6), "%016llx", (unsigned long long)h);
}

/* The upper limit of chi-square with n degrees of freedom, kept with probability about 1 - 1e-5 (Wilson,
 * Hilferty). */
static double chi2_limit(double n) { return n * pow(1 - 2 / (9 * n) + 4.265 * sqrt(2 / (9 * n)), 3); }

/* Words of neighbours along `axis` fall evenly on 16 x 16 cells, by top bits and by low bits. */
static void check_pairs(int axis, int shift)
{
    enum { N = 400000 };
    static const char *const names[] = { "id", "position", "sample", "seed", "id + 2" };
    unsigned cell[256] = {0};
    double chi2 = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t a, b;
        switch (axis) {
        case 0: a = coin_word(5, 0, i / 1000, i % 1000); b = coin_word(5, 0, i / 1000, i % 1000 + 1); break;
        case 1: a = coin_word(5, 0, i, 7); b = coin_word(5, 0, i + 1, 7); break;
        case 2: a = coin_word(5, i, 9, 7); b = coin_word(5, i + 1, 9, 7); break;
        case 3: a = coin_word(i, 0, 9, 7); b = coin_word(i + 1, 0, 9, 7); break;
        default: a = coin_word(6, 0, i / 1000, i % 1000); b = coin_word(6, 0, i / 1000, i % 1000 + 2); break;
        }
        cell[(a >> shift & 15) * 16 + (b >> shift & 15)]++;
    }
    for (int i = 0; i < 256; i++)
        chi2 += pow(cell[i] - N / 256.0, 2) / (N / 256.0);
    CHECK(chi2 < chi2_limit(255) && chi2 > 170, "neighbours by %s, shift %d: chi-square %g", names[axis],
          shift, chi2);
}

static void neighbouring_words_are_independent(void)
{
    for (int axis = 0; axis < 5; axis++)
        for (int shift = 0; shift < 3; shift++)
            check_pairs(axis, shift == 0 ? 60 : shift == 1 ? 31 : 0);
    CHECK(coin_word(1, 0, 0, 0) != coin_word(UINT64_C(1) << 32, 0, 0, 0) &&
          coin_word(0, 0, UINT64_C(1) << 32, 0) != coin_word(0, 1, 0, 0));
}

/* The quantiles of a Gumbel variable shifted by log(n). */
static double gumbel_cdf(double x, double shift) { return exp(-exp(-(x - shift))); }

static void noise_has_the_gumbel_law(void)
{
    enum { N = 500000, BINS = 100 };
    unsigned bin[BINS] = {0};
    double chi2 = 0, sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        double g = coin_gumbel(coin_word(11, 3, i / 50000, i % 50000));
        sum += g;
        bin[(int)(gumbel_cdf(g, 0) * BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        chi2 += pow(bin[i] - (double)N / BINS, 2) / ((double)N / BINS);
    CHECK(chi2 < chi2_limit(BINS - 1), "chi-square %g", chi2);
    CHECK(fabs(sum / N - 0.57721566490153286) < 5 * 1.2825 / sqrt(N), "mean %g", sum / N);
}

/* The largest of 150,000 noise values, which decides in a large vocabulary, is Gumbel shifted by
 * log(150,000). */
static void largest_of_a_vocabulary_has_the_gumbel_law(void)
{
    enum { V = 150000, N = 400, BINS = 20 };
    unsigned bin[BINS] = {0};
    double chi2 = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t id = 0; id < V; id++) {
            uint64_t w = coin_word(12, 0, i, id);
            least = w < least ? w : least;
        }
        bin[(int)(gumbel_cdf(coin_gumbel(least), log(V)) * BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        chi2 += pow(bin[i] - (double)N / BINS, 2) / ((double)N / BINS);
    CHECK(chi2 < chi2_limit(BINS - 1), "chi-square %g", chi2);
}

int main(void)
{
    RUN(philox_gives_the_published_vectors);
    RUN(coin_word_places_seed_sample_position_and_id);
    RUN(logarithms_are_within_a_few_ulp);
    RUN(noise_is_exact_in_both_tails);
    RUN(noise_has_the_golden_bits);
    RUN(neighbouring_words_are_independent);
    RUN(noise_has_the_gumbel_law);
    RUN(largest_of_a_vocabulary_has_the_gumbel_law);
    return test_end();
}
