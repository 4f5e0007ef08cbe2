/* Owns the measurement of one point: samples of a pass between probes of the machine (struct sample), and
 * their medians under the roofline. Start at bench_measure. */
#include "src/bench/bench.h"
#include "src/sample/sample.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SAMPLES_MAX = 400 };
static const double SAMPLE_SECONDS = 0.004, PROBE_SECONDS = 0.002, CLOCK_SECONDS = 0.0006;
/* a multiply-add probe this far below its best marks a disturbed moment */
static const double CLOCK_TOLERANCE = 0.07;
/* so does a bandwidth that differs this much before and after the pass */
static const double READ_TOLERANCE = 0.15;

struct sample { double seconds, bandwidth, peak, share, disturbed; bool clean; };

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

static int run_once(struct bench_target *t, const struct bench_point *p, struct err *e)
{
    return p->kind == BENCH_PREFILLING ? bench_prefill(t, e) : bench_pass(t, p->rows, e);
}

/* Seconds of the products at the peak of p->mul. Products of int16 count as faster by the ratio that the
 * probe of the machine found. */
static double products(const struct bench *b, const struct bench_point *p, double peak)
{
    const double gain =
        b->int16_peak > 0 ? b->int16_peak / (p->mul == b->used ? b->used_peak : b->best_peak) : 1;
    return (p->work.flops - p->work.int16 + p->work.int16 / gain) / peak;
}

/* A sample's own share of the roofline. Machines move between fast and slow memory within minutes, so a
 * median of times and a median of bandwidths would not belong to the same moment. */
static double share_of(const struct bench *b, const struct bench_point *p, const struct sample *s)
{
    return MAX(p->work.bytes / s->bandwidth, products(b, p, s->peak)) / s->seconds;
}

/* The memory that a point reads, the passes of one sample, and the seconds of each probe of the bandwidth. */
struct schedule { struct probe_piece *piece; size_t n, runs; double sweep; };

/* One sample: clock, bandwidth, passes, bandwidth, clock. A sample is not clean when a thread was
 * preempted, the multiply-adds were slow before or after it, or the bandwidth changed. Long passes may have
 * a preemption or two, which cost microseconds. */
static int measure_sample(struct bench *b, struct bench_target *t, const struct bench_point *p,
                          const struct schedule *plan, struct sample *s, struct err *e)
{
    const struct probe_piece *piece = plan->piece;
    const size_t n = plan->n, runs = plan->runs;
    const double sweep = plan->sweep;
    double before = probe_mul_peak(p->mul, b->pool, CLOCK_SECONDS);
    long s0 = involuntary_switches();
    double read = probe_read_rate(piece, n, p->how, b->pool, sweep);
    if (sweep < 0.05 && run_once(t, p, e))   /* the probe has changed what the caches hold */
        return -1;
    double t0 = clock_seconds();
    for (size_t i = 0; i < runs; i++)
        if (run_once(t, p, e))
            return -1;
    double spent = clock_seconds() - t0;
    if (sweep < 0.05)
        probe_read_rate(piece, n, p->how, b->pool, 0);
    double read_after = probe_read_rate(piece, n, p->how, b->pool, sweep);
    long preempted = involuntary_switches() - s0;
    double after = probe_mul_peak(p->mul, b->pool, CLOCK_SECONDS);
    s->seconds = spent / (double)runs;
    s->bandwidth = (read + read_after) / 2;
    s->peak = MAX(before, after);
    s->share = share_of(b, p, s);
    s->disturbed = (double)preempted / (spent + 2 * sweep) +
                   100 * (1 - MIN(before, after) / MAX(before, after)) +
                   100 * (1 - MIN(read, read_after) / MAX(read, read_after));
    if (p->mul == b->used)
        b->reference = MAX(b->reference, MIN(before, after));
    double undisturbed = p->mul == b->used ? b->reference : s->peak;
    s->clean = preempted <= (long)(4 * (spent + 2 * sweep)) &&
               MIN(before, after) > (1 - CLOCK_TOLERANCE) * undisturbed &&
               MIN(read, read_after) > (1 - READ_TOLERANCE) * MAX(read, read_after);
    return 0;
}

static int by_disturbance(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    return (x->disturbed > y->disturbed) - (x->disturbed < y->disturbed);
}

/* Medians of the clean samples. With fewer than three of them: medians of the least disturbed third, and
 * the point is marked as noisy. */
static void summarise(struct bench *b, struct bench_point *p, struct sample *s, size_t n)
{
    double seconds[SAMPLES_MAX], bandwidth[SAMPLES_MAX], peak[SAMPLES_MAX], share[SAMPLES_MAX];
    size_t m = 0;
    p->clean = 0;
    for (size_t i = 0; i < n; i++)
        p->clean += s[i].clean;
    p->noisy = p->clean < 3;
    if (p->noisy)
        qsort(s, n, sizeof *s, by_disturbance);
    for (size_t i = 0; i < n; i++)
        if (p->noisy ? i < MAX(n / 3, MIN(n, (size_t)3)) : s[i].clean) {
            seconds[m] = s[i].seconds;
            bandwidth[m] = s[i].bandwidth;
            share[m] = s[i].share;
            peak[m++] = s[i].peak;
        }
    p->samples = n;
    p->seconds = bench_median(seconds, m);
    p->bandwidth = bench_median(bandwidth, m);
    p->peak = bench_median(peak, m);
    p->worst_bandwidth = bandwidth[0];
    p->best_bandwidth = bandwidth[m - 1];
    const double threads = (double)pool_threads(b->pool), memory = p->work.bytes / p->bandwidth,
                 compute = products(b, p, p->peak);
    p->memory_bound = memory >= compute;
    p->share = bench_median(share, m);
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
    size_t n_seg, n = 0, clean = 0;
    int rc = -1;
    const size_t threads = pool_threads(b->pool);
    p->work =
        p->kind == BENCH_PREFILLING ? bench_prefill_work(t) : bench_pass_work(t, p->depth, p->rows, p->rows);
    p->mul = p->kind == BENCH_PREFILLING ? b->best : b->used;
    struct schedule plan = { 0 };
    struct probe_piece *seg = bench_segments(t, p->depth, &n_seg);
    plan.n = seg ? probe_cut(NULL, seg, n_seg, threads) : 0;
    if (!seg || !(plan.piece = malloc(plan.n * sizeof *plan.piece))) {
        err_set(e, ERR_FAILED, "bench: out of memory for %zu pieces", plan.n);
        goto out;
    }
    probe_cut(plan.piece, seg, n_seg, threads);
    p->how = probe_read_best(plan.piece, plan.n, b->pool, PROBE_SECONDS);

    double t0 = clock_seconds();
    if (run_once(t, p, e))
        goto out;
    double once = clock_seconds() - t0;
    for (size_t warm = (size_t)(0.03 / MAX(once, 1e-6)); warm; warm--) {
        t0 = clock_seconds();
        if (run_once(t, p, e))
            goto out;
        once = MIN(once, clock_seconds() - t0);
    }
    plan.runs = (size_t)(SAMPLE_SECONDS / once) + 1;
    plan.sweep = MAX(PROBE_SECONDS, MIN(2 * once, 0.1));
    const double start = clock_seconds();
    while (n < SAMPLES_MAX && clean < b->repeat) {
        if (n >= MAX(b->repeat, (size_t)3) && clock_seconds() - start > b->patience)
            break;
        if (measure_sample(b, t, p, &plan, &s[n], e))
            goto out;
        clean += s[n++].clean;
    }
    summarise(b, p, s, n);
    double step[9];
    for (int i = 0; i < 9; i++)
        step[i] = probe_dispatch(b->pool, 0);
    p->step = bench_median(step, 9);
    rc = 0;
out:
    free(seg);
    free(plan.piece);
    return rc;
}

/* The history is as long as the penalty window, so that penalties do their full work. */
int bench_measure_sampler(struct bench *b, struct bench_target *t, struct bench_point *p,
                          const struct sampling *s, double pass, struct err *e)
{
    const size_t vocab = t->model.config.vocab, bytes = vocab * sizeof(float);
    struct sampler *sampler = NULL;
    double seconds[SAMPLES_MAX];
    size_t n = 0;
    struct history h = { t->token, BENCH_PREFILL, BENCH_PREFILL / 2, NULL, 0 };
    if (sampler_open(&sampler, s, vocab, b->ops, b->pool, e))
        return -1;
    float *row = t->logits, *copy = t->logits + vocab;
    for (size_t i = 0; i < vocab; i++)
        copy[i] = 3.0f * bf16_to_f32(t->noise[i * 31 % (t->noise_bytes / 2)]) + (float)(i % 1009) * 1e-4f;
    for (size_t i = 0; i < 3 * b->repeat + 2 && n < SAMPLES_MAX; i++) {
        memcpy(row, copy, bytes);
        double t0 = clock_seconds();
        sampler_sample(sampler, row, &h);
        double spent = clock_seconds() - t0;
        if (i >= 2)
            seconds[n++] = spent;
    }
    sampler_close(sampler);
    p->seconds = bench_median(seconds, n);
    p->samples = p->clean = n;
    p->of_pass = pass > 0 ? p->seconds / pass : 0;
    return 0;
}
