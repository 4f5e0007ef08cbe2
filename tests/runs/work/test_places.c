/* How many texts run at once, by a simulated machine: seconds of a round by the number of its texts. */
#include "runs/work/places.h"
#include "tests/test.h"

/* Seconds of a round of n texts, each of which gains one token. */
typedef double machine(double n);
static double reads_memory(double n) { return 0.025 + 0.0012 * n; }          /* gains up to 64 texts */
static double computes(double n) { return 0.0001 * n; }                      /* gains nothing */
static double loses(double n) { return 0.0001 * (n < 8 ? 4 + n / 2 : n + n * n / 40); }     /* best: 8 */
static double loses_soon(double n) { return 0.0001 * n * (1 + n / 3); }     /* best: 1 */

static uint32_t noise_state;
static double noise(void)                /* -1 to 1 */
{
    noise_state = noise_state * 1664525 + 1013904223;
    return (double)(noise_state >> 8) / (1 << 23) - 1;
}

/* Let rounds pass until `end`. A text leaves each `life` rounds, and another one joins if there is a place.
 * The machine is slower or faster by `slow` for half a second at a time, and each round by 30 %. */
static void simulate(struct places *p, machine *m, double *now, double end, size_t *texts, size_t life,
                     double slow)
{
    double level = 1, until = *now;
    for (size_t i = 1; *now < end; i++) {
        if (*now >= until) {
            until = *now + 0.5;
            level = 1 + slow * noise();
        }
        *texts -= i % life == 0 && *texts;
        *texts += *texts < p->n;
        const size_t n = MIN(*texts, p->n);
        const double s = m((double)n) * level * (1 + 0.3 * noise());
        *now += s;
        places_round(p, n, n, s, *now);
    }
}

/* Without noise, the number ends where doubling it gains too little. */
static void the_number_grows_while_it_gains(void)
{
    static const struct { machine *m; size_t most, want; } v[] = {
        { reads_memory, 64, 64 }, { reads_memory, 16, 16 }, { reads_memory, 10, 10 }, { reads_memory, 2, 2 },
        { computes, 64, PLACES_FIRST }, { loses, 64, 8 }, { loses_soon, 64, 1 }, { loses_soon, 5, 1 },
    };
    for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
        struct places p;
        double now = 100;
        size_t texts = 0;
        places_open(&p, v[k].most);
        noise_state = (uint32_t)k;
        simulate(&p, v[k].m, &now, 115, &texts, 7, 0);
        CHECK(p.n == v[k].want, "%zu: %zu places", k, p.n);
    }
}

/* On a machine whose speed varies by a tenth, nineteen of twenty workers run a number of texts whose rate is
 * within a tenth of the best one's. */
static void noise_decides_little(void)
{
    static machine *const v[] = { reads_memory, computes, loses, loses_soon };
    enum { RUNS = 400 };
    for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
        size_t good = 0;
        for (uint32_t run = 0; run < RUNS; run++) {
            struct places p;
            double now = 100, best = 0;
            size_t texts = 0;
            places_open(&p, 16);
            noise_state = run * 977;
            simulate(&p, v[k], &now, 110, &texts, 50, 0.1);
            for (double n = 1; n <= 16; n *= 2)
                best = MAX(best, n / v[k](n));
            good += (double)p.n / v[k]((double)p.n) > 0.9 * best;
        }
        CHECK(good >= RUNS * 19 / 20, "machine %zu: %zu of %d", k, good, RUNS);
    }
}

/* A number that did not pay is tried again, because texts change, but not for long: the second trial fails as
 * soon as it is measured, and the third comes later. */
static void a_failed_trial_is_repeated(void)
{
    struct places p;
    double now = 100;
    size_t texts = 0, trials = 0, at[8] = {0};
    places_open(&p, 64);
    noise_state = 1;
    bool was = false;
    for (double end = 100; end < 260; end += 0.05) {
        simulate(&p, computes, &now, end, &texts, 1000, 0);
        if (p.before && !was && trials < 8)
            at[trials++] = (size_t)now;
        was = p.before != 0;
    }
    CHECK(trials == 4 && at[0] == 100 && at[1] - at[0] - 20 < 3 && at[2] - at[1] - 40 < 3 &&
          at[3] - at[2] - 80 < 3, "%zu trials: %zu, %zu, %zu, %zu", trials, at[0], at[1], at[2], at[3]);
    simulate(&p, reads_memory, &now, 600, &texts, 7, 0);
    CHECK(p.n == 64, "%zu places when more texts gain", p.n);
}

/* Rounds with free places say nothing: a short queue, or memory for few texts. */
static void free_places_are_not_judged(void)
{
    struct places p;
    places_open(&p, 64);
    for (int i = 0; i < 1000; i++)
        places_round(&p, 3, 3, 0.1, i);
    CHECK(p.n == 4 && p.rounds == 0, "%zu places", p.n);
    for (int i = 0; i < 1000; i++)
        places_round(&p, i < 100 ? 4 : 6, 4, 0.1, i);
    CHECK(p.n == 8 && p.before == 4 && p.rounds == 0, "%zu places", p.n);
    places_idle(&p);                     /* later texts have rates of their own */
    CHECK(p.n == 4 && p.before == 0, "%zu places", p.n);
}

/* A window of ten rounds of `texts` texts with `rate` tokens a second. */
static void window(struct places *p, size_t texts, size_t rate, double now)
{
    for (int i = 0; i < PLACES_ROUNDS; i++)
        places_round(p, texts, rate, 1, now);
}

/* A trial that lowers the rate is followed by one of half as many texts. Its first window does not count. */
static void fewer_texts_are_tried_after_a_loss(void)
{
    static const struct { size_t texts, rate, want; } v[] = {
        { 4, 100, 8 }, { 8, 80, 2 }, { 2, 10, 2 }, { 2, 130, 1 }, { 1, 300, 1 }, { 1, 135, 2 }, { 2, 130, 2 },
    };
    struct places p;
    places_open(&p, 64);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        window(&p, v[i].texts, v[i].rate, 7);
        CHECK(p.n == v[i].want, "window %zu: %zu places", i, p.n);
    }
    CHECK(p.before == 0 && p.retry_at == 7 + PLACES_RETRY, "retry at %g", p.retry_at);
}

int main(void)
{
    RUN(fewer_texts_are_tried_after_a_loss);
    RUN(the_number_grows_while_it_gains);
    RUN(noise_decides_little);
    RUN(a_failed_trial_is_repeated);
    RUN(free_places_are_not_judged);
    return test_end();
}
