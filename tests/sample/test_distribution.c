/* The distribution of sampled tokens: millions of draws compared with exact probabilities, neighbouring draws
 * with independence, and TokenSwift's published acceptance rule with longhand's.
 *
 * Every check is a chi-square with known cell probabilities. It passes if its p-value lies between ALARM and
 * 1 - ALARM. With random seeds a sound sampler would fail a check with probability 2 * ALARM, and any of the
 * about 30 checks with 6e-5. Planted defects, most of 0.3 %, must give a p-value below ALARM, or the test
 * fails. Draws are the same on every machine.
 *
 *     test_distribution [--long]     --long: ten times the draws, defects half or a third as large */
#include <float.h>
#include "kernels/pool.h"
#include "src/sample/coin.h"
#include "src/sample/sample.h"
#include "tests/test.h"

#define ALARM 1e-6
static bool long_test;
static struct pool *pool;
static const struct ops *ops;

static double unit(uint32_t stream, uint64_t i)
{
    return ((double)(coin_word(UINT64_C(0x7e57), stream, i, 0) >> 11) + 0.5) * 0x1p-53;
}
/* A nearly normal number of deviation 1. */
static double normal(uint32_t stream, uint64_t i)
{
    double s = -6;
    for (uint64_t k = 0; k < 12; k++)
        s += unit(stream, 12 * i + k);
    return s;
}

/* ---- chi-square ---- */

/* Q(a, x), the regularised upper incomplete gamma function: the series of 1 - Q for x below a + 1, else
 * Lentz's continued fraction. */
static double gamma_q(double a, double x)
{
    const double scale = exp(a * log(x) - x - lgamma(a));
    if (x <= 0)
        return 1;
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (double n = 1; term > sum * 1e-17; n++)
            sum += term *= x / (a + n);
        return 1 - sum * scale;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, f = d;
    for (double n = 1, step = 0; n < 100000 && fabs(step - 1) > 1e-16; n++) {
        double an = -n * (n - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        step = c * d;
        f *= step;
    }
    return f * scale;
}

static void gamma_q_has_known_values(void)
{
    for (int i = 1; i < 400; i++) {
        double x = i * 0.25;
        CHECK(near(gamma_q(1, x), exp(-x), 1e-15, 1e-12) &&
                  near(gamma_q(0.5, x), erfc(sqrt(x)), 1e-15, 1e-11),
              "x %g", x);
        /* whole a: the probability of less than a events if x are expected */
        for (int n = 2; n <= 200; n += 33) {
            double term = exp(-x), sum = term;
            for (int k = 1; k < n; k++)
                sum += term *= x / k;
            CHECK(near(gamma_q(n, x), sum, 1e-13, 1e-10), "a %d, x %g: %g, want %g", n, x, gamma_q(n, x),
                  sum);
        }
    }
    /* quantiles from printed tables */
    CHECK(near(gamma_q(5, 18.307038053275146 / 2), 0.05, 1e-12, 0) &&
          near(gamma_q(50, 124.34211340400407 / 2), 0.05, 1e-12, 0));
    CHECK(near(gamma_q(15, 59.703 / 2), 0.001, 1e-7, 0) && near(gamma_q(0.5, 23.928126 / 2), 1e-6, 1e-12, 0));
    CHECK(gamma_q(4, 0) == 1 && gamma_q(200, 1e5) < 1e-300);
}

/* The p-value of counts for given probabilities. Neighbouring cells of less than 20 expected are merged. */
struct fit { double chi2, df, p, draws; };
static struct fit fit_of(const uint64_t *count, const double *p, size_t n)
{
    struct fit f = { 0, -1, 1, 0 };
    double c = 0, q = 0;
    for (size_t i = 0; i < n; i++)
        f.draws += (double)count[i];
    for (size_t i = 0; i < n; i++) {
        c += (double)count[i];
        q += p[i] * f.draws;
        if (q >= 20) {
            f.chi2 += (c - q) * (c - q) / q;
            f.df++;
            c = q = 0;
        }
    }
    if (q > 0 || c > 0) {
        /* draws in impossible cells count in full */
        f.chi2 += (c - q) * (c - q) / fmax(q, 1e-3);
        f.df++;
    }
    f.p = gamma_q(f.df / 2, f.chi2 / 2);
    return f;
}

static void show(const char *what, struct fit f, const char *end)
{
    printf("    %s: %.0f draws, chi-square %.1f, %.0f degrees, p %.2g%s\n", what, f.draws, f.chi2, f.df, f.p,
           end);
}
static void must_fit(const char *what, struct fit f)
{
    show(what, f, "");
    CHECK(f.df >= 1 && f.p > ALARM && f.p < 1 - ALARM, "%s: p %g", what, f.p);
}
static void must_be_caught(const char *what, struct fit f)
{
    show(what, f, " (planted)");
    CHECK(f.p < ALARM, "%s: not caught, p %g", what, f.p);
}

/* ---- draws ---- */

enum { PARTS = 64, V_MAX = 150000 };
/* n draws at positions from `first` on. The logits are rotated by `turn`: id has logits[id + turn]. */
struct draws { struct sampling s; const float *logits; size_t vocab, n, first, turn; uint32_t *out; };

static void draw_part(void *ctx, size_t part, size_t thread)
{
    const struct draws *d = ctx;
    size_t from = d->n * part / PARTS, to = d->n * (part + 1) / PARTS;
    float *x = malloc(d->vocab * sizeof *x), *turned = malloc(d->vocab * sizeof *x);
    struct sampler *s;
    struct err e;
    (void)thread;
    if (!x || !turned || sampler_open(&s, &d->s, d->vocab, ops, NULL, &e))
        abort();
    for (size_t i = 0; i < d->vocab; i++)
        turned[i] = d->logits[(i + d->turn) % d->vocab];
    for (; from < to; from++) {
        memcpy(x, turned, d->vocab * sizeof *x);
        d->out[from] = (uint32_t)sampler_sample(s, x, &(struct history){ NULL, d->first + from, 0, NULL, 0 });
    }
    sampler_close(s);
    free(x);
    free(turned);
}

static uint32_t *draw(struct draws d)
{
    struct err e;
    d.out = malloc(d.n * sizeof *d.out);
    CHECK(d.out && !sampling_check(&d.s, d.vocab, &e));
    pool_run(pool, PARTS, draw_part, &d);
    return d.out;
}

/* Probabilities after temperature and min-p; other parameters are neutral. */
static void exact(double *p, const float *logits, size_t vocab, double temperature, double min_p)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < vocab; i++)
        top = fmax(top, (double)logits[i] / temperature);
    for (size_t i = 0; i < vocab; i++) {
        p[i] = exp((double)logits[i] / temperature - top);
        sum += p[i] = p[i] >= min_p ? p[i] : 0;
    }
    for (size_t i = 0; i < vocab; i++)
        p[i] /= sum;
}

/* The fit of counts by class of id to the sums of p. */
enum { CLASSES = 16 };
static struct fit fit_classes(const uint32_t *ids, size_t n, const double *p, const uint32_t *class,
                              size_t vocab)
{
    uint64_t count[CLASSES] = {0};
    double q[CLASSES] = {0};
    for (size_t i = 0; i < n; i++)
        count[class[ids[i]]]++;
    for (size_t i = 0; i < vocab; i++)
        q[class[i]] += p[i];
    return fit_of(count, q, CLASSES);
}
static struct fit fit_all(const uint32_t *ids, size_t n, const double *p, size_t vocab)
{
    uint64_t *count = calloc(vocab, sizeof *count);
    for (size_t i = 0; i < n; i++)
        count[ids[i]]++;
    struct fit f = fit_of(count, p, vocab);
    free(count);
    return f;
}
/* The fit of pairs (a[i], b[i]), by class id % SIDE, to independence. */
enum { SIDE = 8 };
static struct fit fit_pairs(const uint32_t *a, const uint32_t *b, size_t n, const double *p, size_t vocab)
{
    uint64_t count[SIDE * SIDE] = {0};
    double q[SIDE] = {0}, both[SIDE * SIDE];
    for (size_t i = 0; i < n; i++)
        count[a[i] % SIDE * SIDE + b[i] % SIDE]++;
    for (size_t i = 0; i < vocab; i++)
        q[i % SIDE] += p[i];
    for (size_t i = 0; i < SIDE * SIDE; i++)
        both[i] = q[i / SIDE] * q[i % SIDE];
    return fit_of(count, both, SIDE * SIDE);
}
/* Replaces each a[i] by b[i] with probability `part`. */
static uint32_t *mixed(const uint32_t *a, const uint32_t *b, size_t n, double part, uint32_t stream)
{
    uint32_t *m = malloc(n * sizeof *m);
    for (size_t i = 0; i < n; i++)
        m[i] = unit(stream, i) < part ? b[i] : a[i];
    return m;
}

/* ---- one stream of draws ---- */

enum { V = 240 };
static float logits_of_text[V];
static uint32_t by_remainder[V], by_place[V], by_chance[V];

static void make_classes(const double *p)
{
    for (uint32_t i = 0; i < V; i++) {
        double above = 0;
        for (uint32_t j = 0; j < V; j++)
            above += p[j] > p[i] || (p[j] == p[i] && j < i) ? p[j] : 0;
        by_remainder[i] = i % CLASSES;
        by_place[i] = i * CLASSES / V;
        by_chance[i] = (uint32_t)fmin(above * CLASSES, CLASSES - 1);
    }
}

static void draws_have_the_exact_probabilities(void)
{
    const size_t n = long_test ? 30000000 : 3000000;
    /* share of the draws of half of the ids that moves; every id is then off by it: 0.15 % or 0.3 % of all
     * mass */
    const double part = long_test ? 0.003 : 0.006;
    double p[V];
    struct draws d = { .logits = logits_of_text, .vocab = V, .n = n };
    sampling_defaults(&d.s);
    d.s.seed = 41;
    for (uint32_t i = 0; i < V; i++)
        logits_of_text[i] = (float)(2.5 * normal(1, i));
    exact(p, logits_of_text, V, 1, 0);
    make_classes(p);
    uint32_t *a = draw(d), *even = malloc(n * sizeof *a), *low = malloc(n * sizeof *a);
    must_fit("each id", fit_all(a, n, p, V));
    must_fit("ids by remainder", fit_classes(a, n, p, by_remainder, V));
    must_fit("ids by place", fit_classes(a, n, p, by_place, V));
    must_fit("ids by probability", fit_classes(a, n, p, by_chance, V));
    must_fit("(t, t+1)", fit_pairs(a, a + 1, n - 1, p, V));
    must_fit("(t, t+2)", fit_pairs(a, a + 2, n - 2, p, V));
    for (size_t i = 0; i < n; i++) {
        bool hit = unit(2, i) < part;
        even[i] = hit && a[i] % 2 ? a[i] - 1 : a[i];
        low[i] = hit && a[i] >= V / 2 ? a[i] - V / 2 : a[i];
    }
    must_be_caught("even ids too often", fit_classes(even, n, p, by_remainder, V));
    must_be_caught("low ids too often", fit_classes(low, n, p, by_place, V));
    uint32_t *copied = mixed(a + 1, a, n - 1, long_test ? 0.001 : 0.003, 3);
    must_be_caught("t+1 has the coins of t now and then", fit_pairs(a, copied, n - 1, p, V));
    free(a);
    free(even);
    free(low);
    free(copied);
    d.s.temperature = long_test ? 1.0015 : 1.005;
    a = draw(d);
    must_be_caught("temperature 0.5 % (long: 0.15 %) too high", fit_classes(a, n, p, by_chance, V));
    free(a);
}

static void draws_have_the_exact_probabilities_behind_filters(void)
{
    const size_t n = long_test ? 30000000 : 1000000;
    double p[V], least = 1, most = 0;
    uint32_t rarest = 0, kept = 0;
    struct draws d = { .logits = logits_of_text, .vocab = V, .n = n };
    sampling_defaults(&d.s);
    d.s.seed = 43;
    d.s.temperature = 0.9;
    d.s.min_p = 0.02;
    exact(p, logits_of_text, V, d.s.temperature, d.s.min_p);
    make_classes(p);
    for (uint32_t i = 0; i < V; i++) {
        kept += p[i] > 0;
        most = fmax(most, p[i]);
        if (p[i] > 0 && p[i] < least) {
            least = p[i];
            rarest = i;
        }
    }
    uint32_t *a = draw(d);
    must_fit("each id that is left", fit_all(a, n, p, V));
    must_fit("ids by remainder", fit_classes(a, n, p, by_remainder, V));
    must_fit("(t, t+1)", fit_pairs(a, a + 1, n - 1, p, V));
    free(a);
    d.n /= 4;
    d.s.min_p = least / most * 1.0001;                         /* removes the last candidate */
    a = draw(d);
    CHECK(kept > 30 && kept < 100 && least < 0.006, "%u kept, id %u with %g", kept, rarest, least);
    must_be_caught("a filter cuts one too many", fit_all(a, d.n, p, V));
    free(a);
}

/* ---- neighbouring coins ---- */

static void coins_of_neighbours_are_independent(void)
{
    enum { CELLS = 16 };
    const size_t n = long_test ? 20000000 : 2000000;
    static const int shifts[] = { 60, 31, 0 };
    double p[CELLS * CELLS];
    for (size_t i = 0; i < CELLS * CELLS; i++)
        p[i] = 1.0 / (CELLS * CELLS);
    for (size_t k = 0; k < 3; k++) {
        uint64_t fair[CELLS * CELLS] = {0}, planted[CELLS * CELLS] = {0};
        char what[80];
        for (size_t i = 0; i < n; i++) {
            uint32_t v = 1 + (uint32_t)(i % 1000);
            uint64_t a = coin_word(5, 0, i / 1000, v), b = coin_word(5, 0, i / 1000 + 1, v - 1);
            fair[(a >> shifts[k] & 15) * CELLS + (b >> shifts[k] & 15)]++;
            b = unit(4, i) < (long_test ? 0.001 : 0.003) ? a : b;
            planted[(a >> shifts[k] & 15) * CELLS + (b >> shifts[k] & 15)]++;
        }
        snprintf(what, sizeof what, "coins (p, v), (p+1, v-1), bits from %d", shifts[k]);
        must_fit(what, fit_of(fair, p, CELLS * CELLS));
        must_be_caught("0.3 % (long: 0.1 %) of the coins are the same", fit_of(planted, p, CELLS * CELLS));
    }
}

/* Two texts that differ in one part of the key are independent, draw by draw. */
static void neighbouring_texts_are_independent(void)
{
    enum { FEW = 8 };
    const size_t n = long_test ? 25000000 : 2500000;
    static const struct { const char *name; uint64_t seed; uint32_t sample; size_t first, turn; } others[] = {
        { "the next seed", 78, 3, 0, 0 }, { "the next sample number", 77, 4, 0, 0 },
        { "the next seed, the sample number before", 78, 2, 0, 0 },
        { "seed + 2^32", 77 + (UINT64_C(1) << 32), 3, 0, 0 }, { "(p+1, v-1)", 77, 3, 1, 1 },
    };
    float logits[FEW];
    double p[FEW];
    struct draws d = { .logits = logits, .vocab = FEW, .n = n };
    for (uint32_t i = 0; i < FEW; i++)
        logits[i] = (float)normal(5, i);
    exact(p, logits, FEW, 1, 0);
    sampling_defaults(&d.s);
    d.s.seed = 77;
    d.s.sample = 3;
    uint32_t *a = draw(d);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        d.s.seed = others[k].seed;
        d.s.sample = others[k].sample;
        d.first = others[k].first;
        d.turn = others[k].turn;
        uint32_t *b = draw(d);
        for (size_t i = 0; i < n; i++)
            b[i] = (uint32_t)((b[i] + d.turn) % FEW);          /* the id of that logit in the first text */
        must_fit(others[k].name, fit_pairs(a, b, n, p, FEW));
        uint32_t *m = mixed(b, a, n, long_test ? 0.001 : 0.003, 6 + (uint32_t)k);
        must_be_caught("0.3 % (long: 0.1 %) of its draws are the same", fit_pairs(a, m, n, p, FEW));
        free(b);
        free(m);
    }
    free(a);
}

/* The first tokens of many texts, along seeds and along sample numbers. */
static void first_tokens_of_many_texts(void)
{
    enum { FEW = 8, N = 500000 };
    float logits[FEW], x[FEW];
    double p[FEW];
    uint32_t *a = malloc(N * sizeof *a);
    for (uint32_t i = 0; i < FEW; i++)
        logits[i] = (float)normal(5, i);
    exact(p, logits, FEW, 1, 0);
    for (int axis = 0; axis < 2; axis++) {
        for (uint32_t i = 0; i < N; i++) {
            struct sampling s;
            struct sampler *sampler;
            struct err e;
            sampling_defaults(&s);
            s.seed = axis ? 5 : i;
            s.sample = axis ? i : 0;
            if (sampler_open(&sampler, &s, FEW, ops, NULL, &e))
                abort();
            memcpy(x, logits, sizeof x);
            a[i] = (uint32_t)sampler_sample(sampler, x, &(struct history){ NULL, 100, 100, NULL, 0 });
            sampler_close(sampler);
        }
        must_fit(axis ? "along sample numbers" : "along seeds", fit_all(a, N, p, FEW));
        must_fit("neighbours", fit_pairs(a, a + 1, N - 1, p, FEW));
        uint32_t *m = mixed(a + 1, a, N - 1, 0.01, 12);
        must_be_caught("1 % have the coins of their neighbour", fit_pairs(a, m, N - 1, p, FEW));
        free(m);
    }
    free(a);
}

/* ---- a flat row of a large vocabulary ---- */

static void flat_rows_of_150000_ids_are_even(void)
{
    const size_t n = long_test ? 200000 : 6000;
    const float more = long_test ? 0.05f : 0.3f;
    double p[CLASSES];
    float *logits = calloc(V_MAX, sizeof *logits);
    for (int i = 0; i < CLASSES; i++)
        p[i] = 1.0 / CLASSES;
    for (int planted = 0; planted < 2; planted++) {
        uint64_t by_block[CLASSES] = {0}, by_low_bits[CLASSES] = {0};
        struct draws d = { .logits = logits, .vocab = V_MAX, .n = n };
        sampling_defaults(&d.s);
        d.s.seed = 99;
        uint32_t *a = draw(d);
        for (size_t i = 0; i < n; i++) {
            by_block[a[i] / (V_MAX / CLASSES)]++;
            by_low_bits[a[i] % CLASSES]++;
        }
        (planted ? must_be_caught : must_fit)(planted ? "every other id 30 % (long: 5 %) likelier"
                                                      : "flat, ids by low bits",
                                              fit_of(by_low_bits, p, CLASSES));
        if (!planted)
            must_fit("flat, ids by place", fit_of(by_block, p, CLASSES));
        free(a);
        for (size_t i = 0; i < V_MAX; i += 2)
            logits[i] = more;
    }
    /* Noise of too few bits: with 16 bits 2.3 ids share the largest noise, and the lowest id wins. */
    uint64_t by_block[CLASSES] = {0};
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t best = 0;
        uint64_t least = UINT64_MAX;
        /* a quarter of the ids and 14 bits have the same effect, faster */
        for (uint32_t id = 0; id < V_MAX; id += 4) {
            uint64_t w = coin_word(99, 0, i, id) >> 50;
            if (w < least) {
                least = w;
                best = id;
            }
        }
        by_block[best / (V_MAX / CLASSES)]++;
    }
    must_be_caught("noise of few bits", fit_of(by_block, p, CLASSES));
    free(logits);
}

/* ---- acceptance of candidates ---- */

/* A toy model: the distributions of a token and of the token after it, and drafted rows {lead, leaf[r]}
 * that all begin with one token. */
enum { TOY = 8, ROWS = 47 };
struct toy { float logits[2][TOY]; uint32_t lead, leaf[ROWS]; size_t rows; struct sampler *s; };

static uint32_t toy_draw(const struct toy *t, size_t position, int depth, uint32_t row)
{
    float x[TOY];
    const int32_t path[1] = { (int32_t)t->lead };
    struct history h = { NULL, position, 0, path, (size_t)depth };
    memcpy(x, t->logits[depth], sizeof x);
    return (uint32_t)sampler_sample_row(t->s, x, &h, row);
}

/* Algorithm 1 of TokenSwift, lines 12 and 13: one draw for each row and depth; the longest match wins,
 * ties by lot. At most two tokens. */
static size_t published(const struct toy *t, size_t position, uint32_t out[2])
{
    size_t best = 0, ties = 0;
    for (uint32_t r = 0; r < t->rows; r++) {
        uint32_t mine[2] = { toy_draw(t, position, 0, r), 0 };
        size_t match = mine[0] == t->lead;
        if (match) {
            mine[1] = toy_draw(t, position, 1, r);
            match += mine[1] == t->leaf[r];
        }
        ties = match > best ? 0 : ties;
        if (match < best || unit(20, position * ROWS + r) * (double)++ties >= 1)
            continue;
        best = match;
        memcpy(out, mine, sizeof mine);
    }
    return out[0] == t->lead ? 2 : 1;
}

/* longhand's rule: one draw for each node; it descends to the child with that token. */
static size_t exact_walk(const struct toy *t, size_t position, uint32_t out[2])
{
    out[0] = toy_draw(t, position, 0, 0);
    if (out[0] != t->lead)
        return 1;
    out[1] = toy_draw(t, position, 1, 0);
    return 2;
}

/* Frequencies of the first token, and of the second token after `lead`; total variation of the first. */
struct outcome { struct fit first, second; double tv, lead; };
static struct outcome outcome_of(const struct toy *t, size_t (*walk)(const struct toy *, size_t, uint32_t *),
                                 size_t n)
{
    uint64_t count[2][TOY] = {{0}};
    double p[2][TOY], tv = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t out[2];
        size_t m = walk(t, 2 * i, out);
        for (size_t k = 0; k < m; k++)
            count[k][out[k]]++;
    }
    for (int k = 0; k < 2; k++)
        exact(p[k], t->logits[k], TOY, 1, 0);
    for (int i = 0; i < TOY; i++)
        tv += 0.5 * fabs((double)count[0][i] / (double)n - p[0][i]);
    return (struct outcome){ fit_of(count[0], p[0], TOY), fit_of(count[1], p[1], TOY), tv,
                             (double)count[0][t->lead] / (double)n };
}

/* q: the probability of the lead. */
static void toy_open(struct toy *t, double q, size_t rows)
{
    struct sampling p;
    struct err e;
    *t = (struct toy){ .lead = 5, .rows = rows };
    for (uint32_t i = 0; i < TOY; i++) {
        t->logits[0][i] = (float)log(i == t->lead ? q : (1 - q) / (TOY - 1));
        t->logits[1][i] = (float)normal(21, i);
    }
    for (uint32_t r = 0; r < rows; r++)
        t->leaf[r] = r % TOY;
    sampling_defaults(&p);
    p.seed = 123;
    if (sampler_open(&t->s, &p, TOY, ops, NULL, &e))
        abort();
}

static void published_acceptance_is_biased_and_ours_is_not(void)
{
    static const double chances[] = { 0.02, 0.05, 0.1, 0.3 };
    const size_t n = long_test ? 1000000 : 200000, n_wide = n / 20;
    struct toy t;
    toy_open(&t, 0.3, 3);
    struct outcome theirs = outcome_of(&t, published, n), ours = outcome_of(&t, exact_walk, n);
    sampler_close(t.s);
    must_be_caught("published rule, 3 rows, first token", theirs.first);
    must_be_caught("published rule, 3 rows, second token", theirs.second);
    must_fit("one draw per node, first token", ours.first);
    must_fit("one draw per node, second token", ours.second);
    printf("    total variation: published %.4f, one draw per node %.4f\n", theirs.tv, ours.tv);
    CHECK(theirs.tv > 0.3 && ours.tv < 0.005 && near(theirs.tv, 1 - pow(0.7, 3) - 0.3, 0.01, 0), "%g, %g",
          theirs.tv, ours.tv);
    for (size_t k = 0; k < sizeof chances / sizeof *chances; k++) {
        const double q = chances[k], want = 1 - pow(1 - q, ROWS);
        toy_open(&t, q, ROWS);
        theirs = outcome_of(&t, published, n_wide);
        ours = outcome_of(&t, exact_walk, n);
        sampler_close(t.s);
        printf("    drafted token of probability %.2f, %d rows: emitted %.4f by the published rule "
               "(1-(1-q)^%d = %.4f), %.4f with one draw per node\n",
               q, ROWS, theirs.lead, ROWS, want, ours.lead);
        CHECK(theirs.first.p < ALARM &&
                  near(theirs.lead, want, 5 * sqrt(want * (1 - want) / (double)n_wide) + 1e-3, 0),
              "q %g: %g", q, theirs.lead);
        CHECK(ours.first.p > ALARM && near(ours.lead, q, 5 * sqrt(q * (1 - q) / (double)n), 0), "q %g: %g", q,
              ours.lead);
    }
}

int main(int argc, char **argv)
{
    const char *why;
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    ops = ops_for_cpu(&why);
    pool = pool_open(pool_default_threads());
    RUN(gamma_q_has_known_values);
    RUN(draws_have_the_exact_probabilities);
    RUN(draws_have_the_exact_probabilities_behind_filters);
    RUN(coins_of_neighbours_are_independent);
    RUN(neighbouring_texts_are_independent);
    RUN(first_tokens_of_many_texts);
    RUN(flat_rows_of_150000_ids_are_even);
    RUN(published_acceptance_is_biased_and_ours_is_not);
    pool_close(pool);
    return test_end();
}
