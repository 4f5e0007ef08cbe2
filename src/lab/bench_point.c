/* Owns the measurement of one point: samples of a pass between probes of the machine (struct sample), and
 * their medians under the roofline. Start at bench_measure. */
#include "src/lab/bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SAMPLES_MAX = 400 };
static const double SAMPLE_SECONDS = 0.004, PROBE_SECONDS = 0.002, CLOCK_SECONDS = 0.0006,
                    WARM_SECONDS = 0.03;
/* a multiply-add probe this far below its best marks a disturbed moment */
static const double CLOCK_TOLERANCE = 0.07;
/* so does a bandwidth that differs this much before and after the pass */
static const double READ_TOLERANCE = 0.15;

struct sample { double seconds, bandwidth, peak, share; bool clean; };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static long involuntary_switches(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nivcsw;
}

/* Seconds of the products at this peak. Products of int16 count as faster by the ratio that the
 * probe of the machine found. */
static double products(const struct bench *b, const struct bench_point *p, double peak)
{
    const double gain = b->int16 ? b->peak[b->int16][1] / b->peak[b->used][1] : 1;
    return (p->work.flops - p->work.int16 + p->work.int16 / gain) / peak;
}

/* A sample's own share of the roofline. Machines move between fast and slow memory within minutes, so a
 * median of times and a median of bandwidths would not belong to the same moment. */
static double share_of(const struct bench *b, const struct bench_point *p, const struct sample *s)
{
    return MAX(p->work.bytes / s->bandwidth, products(b, p, s->peak)) / s->seconds;
}

/* The memory that a point reads, the passes of one sample, and the seconds of each probe of the bandwidth. */
struct schedule { struct probe_pieces pieces; size_t runs; double sweep; };

/* One sample: clock, bandwidth, passes, bandwidth, clock. A sample is not clean when a thread was
 * preempted, the multiply-adds were slow before or after it, or the bandwidth changed. Long passes may have
 * a preemption or two, which cost microseconds. */
static int measure_sample(struct bench *b, struct bench_target *t, const struct bench_point *p,
                          const struct schedule *plan, struct sample *s, struct err *e)
{
    const double sweep = plan->sweep;
    double before = probe_mul_peak(b->used, b->g.pool, CLOCK_SECONDS);
    long s0 = involuntary_switches();
    double read = probe_read_rate(&plan->pieces, p->how, b->g.pool, sweep);
    if (sweep < 0.05 && bench_pass(t, p->rows, e))   /* the probe has changed what the caches hold */
        return -1;
    double t0 = clock_seconds();
    for (size_t i = 0; i < plan->runs; i++)
        if (bench_pass(t, p->rows, e))
            return -1;
    double spent = clock_seconds() - t0;
    if (sweep < 0.05)
        probe_read_rate(&plan->pieces, p->how, b->g.pool, 0);
    double read_after = probe_read_rate(&plan->pieces, p->how, b->g.pool, sweep);
    long preempted = involuntary_switches() - s0;
    double after = probe_mul_peak(b->used, b->g.pool, CLOCK_SECONDS);
    s->seconds = spent / (double)plan->runs;
    s->bandwidth = (read + read_after) / 2;
    s->peak = MAX(before, after);
    s->share = share_of(b, p, s);
    b->reference = MAX(b->reference, MIN(before, after));
    s->clean = preempted <= (long)(4 * (spent + 2 * sweep)) &&
               MIN(before, after) > (1 - CLOCK_TOLERANCE) * b->reference &&
               MIN(read, read_after) > (1 - READ_TOLERANCE) * MAX(read, read_after);
    return 0;
}

/* Medians of the clean samples; of all samples where fewer than three are clean. */
static void summarise(struct bench *b, struct bench_point *p, const struct sample *s, size_t n)
{
    double x[4][SAMPLES_MAX], *const median[4] = { &p->seconds, &p->peak, &p->share, &p->bandwidth };
    size_t m = 0;
    p->samples = n;
    p->noisy = p->clean < 3;
    for (size_t i = 0; i < n; i++)
        if (p->noisy || s[i].clean) {
            x[0][m] = s[i].seconds, x[1][m] = s[i].peak;
            x[2][m] = s[i].share, x[3][m++] = s[i].bandwidth;
        }
    for (size_t i = 0; i < 4; i++)
        *median[i] = bench_median(x[i], m);
    p->bandwidth_range[0] = x[3][0];                         /* sorted */
    p->bandwidth_range[1] = x[3][m - 1];
    const double threads = (double)pool_threads(b->g.pool), memory = p->work.bytes / p->bandwidth,
                 compute = products(b, p, p->peak);
    p->memory_bound = memory >= compute;
    p->roof = p->share * p->seconds;
    p->exp = p->work.exps * b->costs.exp2 / threads;
    p->max = p->work.maxes * b->costs.max / threads;
    p->convert = p->work.converts * b->costs.convert / threads;
    double rest = p->seconds - p->exp - p->max - p->convert;
    /* exp2, maximum and conversions cost nothing while a pass waits for memory */
    p->product_share = p->memory_bound || rest <= 0 ? 0 : p->roof / rest;
}

int bench_measure(struct bench *b, struct bench_target *t, struct bench_point *p, struct err *e)
{
    struct sample s[SAMPLES_MAX];
    struct schedule plan = { 0 };
    size_t n = 0;
    double once = 1e9, spent = 0, step[9];
    int rc = -1;
    if (bench_pieces(&plan.pieces, t, p->depth, e))
        return -1;
    p->how = probe_read_best(&plan.pieces, b->g.pool, PROBE_SECONDS);
    while (spent < WARM_SECONDS) {
        const double t0 = clock_seconds();
        if (bench_pass(t, p->rows, e))
            goto out;
        const double seconds = clock_seconds() - t0;
        once = MIN(once, seconds);
        spent += seconds;
    }
    p->work = bench_work(t, p->depth, p->rows);
    plan.runs = (size_t)(SAMPLE_SECONDS / once) + 1;
    plan.sweep = MAX(PROBE_SECONDS, MIN(2 * once, 0.1));
    const double start = clock_seconds();
    p->clean = 0;
    while (n < SAMPLES_MAX && p->clean < b->repeat &&
           (n < MAX(b->repeat, (size_t)3) || clock_seconds() - start <= b->patience)) {
        if (measure_sample(b, t, p, &plan, &s[n], e))
            goto out;
        p->clean += s[n++].clean;
    }
    summarise(b, p, s, n);
    for (int i = 0; i < 9; i++)
        step[i] = probe_dispatch(b->g.pool, 0);
    p->step = bench_median(step, 9);
    rc = 0;
out:
    free(plan.pieces.v);
    return rc;
}
