/* Selection and logits processing: every twin equals plain C by memcmp, and plain C equals the definitions of
 * kernels/ops.h. */
#include <float.h>
#include "kernels/ops.h"
#include "src/sample/coin.h"
#include "src/sample/sample.h"
#include "tests/test.h"

enum { N_MAX = 3000 };
static const size_t sizes[] = { 1, 2, 7, 15, 16, 17, 31, 63, 64, 65, 100, 127, 129, 511, 512, 513, 1000, 1025,
                                2999 };
enum { N_SIZES = sizeof sizes / sizeof *sizes, KINDS = 8 };

/* Rows of every kind, at an address that is not aligned to a vector. */
static float room[N_MAX + 16];
static float *row(size_t n, int kind, uint64_t seed)
{
    static const double scales[] = { 2, 20, 1e-3, 1e5, 1e38, 1e-40, 8, 8 };
    float *x = room + seed % 16;
    for (size_t i = 0; i < n; i++) {
        double y = ((double)coin_word(seed, 0, i, 0) * 0x1p-63 - 1) * 2 * scales[kind];
        x[i] = (float)(y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : y);
        if (kind == 6)
            x[i] = roundf(x[i]);
        if (kind == 7 && coin_word(seed, 1, i, 0) % 3)
            x[i] = -INFINITY;
    }
    return x;
}

static uint32_t bits_of(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }

/* The results of an operation, as one hash. */
struct work { float x[N_MAX], u[COIN_BLOCK]; uint32_t at[N_MAX]; uint64_t w[N_MAX], hist[SELECT_BUCKETS]; };
static uint64_t run_all(const struct ops *o, const float *x, size_t n, uint64_t seed)
{
    static struct work k;
    size_t top_at = o->argmax(x, n), m;
    float top = x[top_at] >= -FLT_MAX ? x[top_at] : 0, cut = x[seed % n];
    uint64_t h = hash64(HASH64_INIT, &top_at, sizeof top_at), sum[2] = { 1, 2 };
    memcpy(k.x, x, n * sizeof *x);
    o->temper(k.x, n, seed % 2 ? 0.7f : 3e-4f);
    h = hash64(h, k.x, n * sizeof *x);
    memcpy(k.x, x, n * sizeof *x);
    o->cut_below(k.x, n, cut);
    h = hash64(h, k.x, n * sizeof *x);
    memcpy(k.x, x, n * sizeof *x);
    o->cut_equal(k.x, n, cut);
    h = hash64(h, k.x, n * sizeof *x);
    m = o->between(k.at, n, x, n, cut, top);
    h = hash64(hash64(h, &m, sizeof m), k.at, m * sizeof *k.at);
    m = o->between(k.at, n / 3, x, n, cut, FLT_MAX);
    h = hash64(h, &m, sizeof m);
    o->weigh(k.w, x, n, top);
    h = hash64(h, k.w, n * sizeof *k.w);
    for (int weighted = 0; weighted < 2; weighted++) {
        memset(k.hist, 0, sizeof k.hist);
        o->tally(k.hist, x, n, top, cut, seed % 3 ? 64 : 0.01f, weighted);
        h = hash64(h, k.hist, sizeof k.hist);
    }
    o->moments(sum, x, n, top, cut);
    h = hash64(h, sum, sizeof sum);
    const double tail = o->tail(x, n, top, cut, top - 1);
    h = hash64(h, &tail, sizeof tail);
    struct coin_key key = { seed * UINT64_C(0x123456789abcdef), seed * UINT64_C(0xfedcba987),
                            (uint32_t)seed };
    for (size_t i = 0; i < n; i++)
        k.at[i] = (uint32_t)coin_word(seed, 3, i, 1) % 200000;
    for (int list = 0; list < 2; list++)
        for (size_t i = 0; i < n; i += COIN_BLOCK) {
            m = MIN(n - i, (size_t)COIN_BLOCK);
            float most = o->coin_bounds(k.u, x + i, list ? k.at + i : NULL, (uint32_t)i + 1000, m, &key, top);
            h = hash64(hash64(h, k.u, m * sizeof *k.u), &most, sizeof most);
        }
    return h;
}

static void twins_equal_plain_c(void)
{
    int twins = 0;
    for (size_t t = 1; ops_all[t]; t++) {
        if (!ops_all[t]->supported())
            continue;
        twins++;
        for (size_t s = 0; s < N_SIZES; s++)
            for (int kind = 0; kind < KINDS; kind++)
                for (uint64_t seed = 1; seed < 12; seed++) {
                    const float *x = row(sizes[s], kind, seed);
                    uint64_t want = run_all(ops_all[0], x, sizes[s], seed),
                             got = run_all(ops_all[t], x, sizes[s], seed);
                    CHECK(got == want, "%s, n %zu, kind %d, seed %d", ops_all[t]->name, sizes[s], kind,
                          (int)seed);
                    if (test_failed_)
                        return;
                }
    }
    if (!twins)
        SKIP("this machine runs the plain C twin only");
    /* the hash notices a difference of one bit */
    float *x = row(100, 0, 5);
    uint64_t before = run_all(ops_all[0], x, 100, 5);
    x[99] = nextafterf(x[99], INFINITY);
    CHECK(run_all(ops_all[0], x, 100, 5) != before);
}

static void argmax_is_the_lowest_of_the_largest(void)
{
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < KINDS; kind++) {
            const size_t n = sizes[s];
            float *x = row(n, kind, s);
            if (kind == 5)
                for (size_t i = 0; i < n; i++)
                    x[i] = i % 3 ? -0.0f : 0.0f;           /* equal */
            size_t want = 0;
            for (size_t i = 1; i < n; i++)
                if (x[i] > x[want])
                    want = i;
            CHECK(ops_all[0]->argmax(x, n) == want, "n %zu, kind %d", n, kind);
        }
}

static void weights_are_exp_in_units(void)
{
    uint64_t w;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float top = i % 3 ? 3.25f : -1e4f,
              x = top - (float)((double)coin_word(1, 0, 0, (uint32_t)i) * 0x1p-64 * (i % 2 ? 32 : 1));
        ops_all[0]->weigh(&w, &x, 1, top);
        double d = fabs((double)w - exp((double)x - top) * 0x1p43);
        worst = d > worst ? d : worst;
    }
    CHECK(worst <= 0.5 + 0x1p43 * 1e-15, "%g units", worst);
    static const struct { float x, top; uint64_t w;
    } cases[] = {
        { 0, 0, WEIGHT_ONE }, { -INFINITY, 0, 0 }, { -FLT_MAX, FLT_MAX, 0 }, { FLT_MAX, FLT_MAX, WEIGHT_ONE },
        { -31, 0, 0 },        { -30, 0, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ops_all[0]->weigh(&w, &cases[i].x, 1, cases[i].top);
        CHECK(w == cases[i].w, "case %zu: %llu", i, (unsigned long long)w);
    }
}

static void tally_and_moments_add_the_weights_above_the_cut(void)
{
    static uint64_t hist[SELECT_BUCKETS], want[SELECT_BUCKETS], w[N_MAX];
    for (int kind = 0; kind < KINDS; kind++)
        for (int weighted = 0; weighted < 2; weighted++) {
            const size_t n = 2999;
            const float *x = row(n, kind, 3), top = x[ops_all[0]->argmax(x, n)], cut = x[17];
            uint64_t sum[2] = {0}, want_sum[2] = {0};
            memset(hist, 0, sizeof hist);
            memset(want, 0, sizeof want);
            ops_all[0]->weigh(w, x, n, top);
            for (size_t i = 0; i < n; i++) {
                double bucket = (double)((top - x[i]) * 64.0f);
                if (x[i] >= cut) {
                    want[bucket < SELECT_BUCKETS - 1 ? (int)bucket : SELECT_BUCKETS - 1] +=
                        weighted ? w[i] : 1;
                    want_sum[0] += w[i];
                    want_sum[1] +=
                        w[i] ? (uint64_t)llrint(exp((double)x[i] - top) * ((double)top - x[i]) * 0x1p43) : 0;
                }
            }
            ops_all[0]->tally(hist, x, n, top, cut, 64, weighted);
            CHECK(!memcmp(hist, want, sizeof hist), "kind %d", kind);
            ops_all[0]->moments(sum, x, n, top, cut);
            CHECK(sum[0] == want_sum[0] && near((double)sum[1], (double)want_sum[1], 20 * n, 1e-9),
                  "kind %d: %g, want %g", kind, (double)sum[1], (double)want_sum[1]);
        }
}

static void tails_are_within_their_bound(void)
{
    double worst = 0;
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int k = 0; k < 3; k++) {
                const size_t n = sizes[s];
                const float *x = row(n, kind, s), top = x[ops_all[0]->argmax(x, n)],
                            cut = k ? -FLT_MAX : top - 20, limit = k == 1 ? top - 3 : FLT_MAX;
                double want = 0;
                if (!(top >= -FLT_MAX))
                    continue;
                for (size_t i = 0; i < n; i++)
                    want += x[i] >= cut && x[i] < limit ? exp((double)x[i] - top) : 0;
                const double off = fabs(ops_all[0]->tail(x, n, top, cut, limit) - want);
                CHECK(off <= TAIL_ERROR * want + 1e-17 * (double)n, "n %zu, kind %d: %g of %g", n, kind, off,
                      want);
                worst = want > 0.01 && off / want > worst ? off / want : worst;
            }
    CHECK(worst > 1e-8 && worst < TAIL_ERROR / 2, "%g", worst);
}

static void temper_keeps_finite_numbers_finite(void)
{
    float x[] = { 1, -3, FLT_MAX, -FLT_MAX, -INFINITY, 0, -0.0f, 1e-45f };
    const float want[] = { 1 / 1e-4f, -3 / 1e-4f, FLT_MAX, -FLT_MAX, -INFINITY, 0, -0.0f, 1e-45f / 1e-4f };
    ops_all[0]->temper(x, 8, 1e-4f);
    for (int i = 0; i < 8; i++)
        CHECK(bits_of(x[i]) == bits_of(want[i]), "%d: %g", i, (double)x[i]);
}

static void between_lists_a_range_up_to_its_limit(void)
{
    static uint32_t at[N_MAX];
    for (int kind = 0; kind < KINDS; kind++) {
        const size_t n = 1025;
        const float *x = row(n, kind, 9), a = x[3], b = x[700], lo = a < b ? a : b, hi = a < b ? b : a;
        size_t got = ops_all[0]->between(at, n, x, n, lo, hi), want = 0;
        for (size_t i = 0; i < n; i++)
            if (x[i] >= lo && x[i] <= hi) {
                CHECK(want < got && at[want] == i);
                want++;
            }
        CHECK(got == want && ops_all[0]->between(at, want, x, n, lo, hi) == want);
        CHECK(ops_all[0]->between(at, want - 1, x, n, lo, hi) == SIZE_MAX);
    }
}

/* A bound is never below its value, and close to it where it matters; the words are those of coin_word. */
static void coin_bounds_hold_and_are_close(void)
{
    float u[COIN_BLOCK];
    uint32_t ids[COIN_BLOCK];
    double loosest = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        const float *x = row(COIN_BLOCK, (int)(seed % KINDS), seed);
        float top = x[ops_all[0]->argmax(x, COIN_BLOCK)];
        struct coin_key key = { seed << 20, seed * UINT64_C(0x100000001), (uint32_t)seed };
        for (size_t i = 0; i < COIN_BLOCK; i++)
            ids[i] = (uint32_t)coin_word(seed, 5, i, 0);
        for (int list = 0; list < 2; list++) {
            size_t n = COIN_BLOCK - seed % 3;
            float most = ops_all[0]->coin_bounds(u, x, list ? ids : NULL, 77000, n, &key, top),
                  want = -INFINITY;
            for (size_t i = 0; i < n; i++) {
                uint32_t id = list ? ids[i] : 77000 + (uint32_t)i;
                double noise = coin_gumbel(coin_word(key.seed, key.sample, key.position, id)),
                       score = ((double)x[i] - top) + noise;
                want = u[i] > want ? u[i] : want;
                if (score > -50 && (double)u[i] < score - 1e-3)
                    CHECK(false, "seed %d, id %u: bound %g, score %g", (int)seed, (unsigned)id, (double)u[i],
                          score);
                if (noise > 3 && noise < 20 && score > -50)
                    loosest = (double)u[i] - score > loosest ? (double)u[i] - score : loosest;
            }
            CHECK(most == want);
        }
    }
    CHECK(loosest < 0.1, "%g", loosest);
}

int main(void)
{
    RUN(twins_equal_plain_c);
    RUN(argmax_is_the_lowest_of_the_largest);
    RUN(weights_are_exp_in_units);
    RUN(tally_and_moments_add_the_weights_above_the_cut);
    RUN(tails_are_within_their_bound);
    RUN(temper_keeps_finite_numbers_finite);
    RUN(between_lists_a_range_up_to_its_limit);
    RUN(coin_bounds_hold_and_are_close);
    return test_end();
}
