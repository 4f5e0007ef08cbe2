/* The cost model (cost_model.h): sizes of passes, and a filter of two corrections. Start reading at
 * cost_learn(). */
#include "src/decode/cost_model.h"

#include <math.h>

static const double TIMING_SHARE = 0.002;    /* of the time: passes that are only timed */
static const double OUTLIER = 0.5;   /* the most that a logarithm of seconds may be off */
static const double GUESS = 0.25;    /* one-row passes: cost of a further row before it was seen */
static const double TRIFLE = 0.01;   /* one-row passes: the least cost of a further row */
/* The Kalman filter of (speed, drafted), both logarithms. */
static const double NOISE = 2.5e-3;  /* variance of the noise of a round */
static const double DRIFT = 1e-4;    /* variance of the change of speed from one round to the next */
static const double SPREAD = 0.01;   /* variance of `drafted` before anything is known */
static const double STEADY = 0.999;  /* the part of `drafted` that remains after a round */
static const double UNKNOWN = 0.1;   /* variance that cost_split_unknown adds */
enum {
    FRESH_SEEN = 200,                /* passes that `fresh` remembers */
    TIMED_SIZES = 3,                 /* sizes that are timed before the first draft pass */
    SEEN = 16,                       /* rounds that the cost of a size remembers */
    WORTH_TIMING = 1000,             /* tokens: a shorter rest of the text does not pay for timing */
};

double cost_size(const struct cost_model *m, size_t rows)
{
    size_t i = 0;
    while (i + 2 < COST_SIZES && rows > cost_rows(i + 1))
        i++;
    const double from = (double)cost_rows(i);
    return m->size[i] + (m->size[i + 1] - m->size[i]) / ((double)cost_rows(i + 1) - from) *
                            ((double)rows - from);
}

/* Bytes of weights that a pass of so many rows reads. */
static double weights_read(const struct cost_model *m, size_t rows)
{
    const struct planner_experts *x = &m->experts;
    if (x->bytes == 0)
        return m->weight_bytes;
    const double read = x->n * (1 - pow(1 - x->used / x->n, 1 + m->fresh * (double)(rows - 1)));
    return m->weight_bytes + x->bytes * x->layers * (read - x->used);
}

double cost_weights(const struct cost_model *m, size_t rows)
{
    return weights_read(m, rows) * cost_size(m, rows);
}

void cost_experts_read(struct cost_model *m, size_t rows, size_t experts)
{
    if (m->experts.bytes == 0 || rows < 2)
        return;
    const struct planner_experts *x = &m->experts;
    /* all experts are read: as if half of one was not */
    const double read = MIN((double)experts / x->layers, x->n - 0.5),
                 fresh = (log(1 - read / x->n) / log(1 - x->used / x->n) - 1) / (double)(rows - 1);
    m->fresh += (MAX(fresh, 0) - m->fresh) / (m->fresh_seen + 1);
    m->fresh_seen = MIN(m->fresh_seen + 1, FRESH_SEEN);
}

double cost_pass(const struct cost_model *m, size_t length, size_t n, size_t rows, size_t all_rows)
{
    return cost_weights(m, all_rows) / (double)n + cost_kv(m, length) * cost_size(m, rows);
}

double cost_cache_bytes(const struct pass_cost *r, size_t length)
{
    return r->key * MIN(r->keys, (double)length);
}

double cost_draft_share(const struct cost_model *m, const struct pass_cost *r, size_t length, size_t n)
{
    const double cache = cost_cache_bytes(r, length),
                 weights = r->weights * cost_weights(m, n) / (cost_weights(m, 1) * (double)n);
    return (weights + cache) / (r->weights + cache);
}

double cost_off(double seconds, double expected)
{
    return MAX(MIN(log(seconds / expected), OUTLIER), -OUTLIER);
}

/* Bytes of weights of a pass of cost_rows(i) rows, as a multiple of those of the size before. */
static double growth(const struct cost_model *m, size_t i)
{
    return m->experts.bytes == 0 ? 1 : weights_read(m, cost_rows(i)) / weights_read(m, cost_rows(i - 1));
}

/* Makes the costs of sizes ascend, and extrapolates sizes that were never seen from smaller sizes. */
static void fill_sizes(struct cost_model *m)
{
    double *s = m->size;
    for (size_t i = COST_SIZES - 1; i-- > 1;)
        if (m->seen[i] > 0 && m->seen[i + 1] > 0)
            s[i] = MIN(s[i], s[i + 1] * growth(m, i + 1));
    for (size_t i = 1; i < COST_SIZES; i++) {
        /* the slope of several steps: a single step may cross the border of a kernel's tile */
        const size_t j = i > TIMED_SIZES ? i - TIMED_SIZES : 0;
        const double slope =
            i > 1 ? (s[i - 1] - s[j]) / (double)(cost_rows(i - 1) - cost_rows(j)) : GUESS * s[0];
        if (m->seen[i] == 0)
            s[i] = s[i - 1] + (double)(cost_rows(i) - cost_rows(i - 1)) * MAX(slope, TRIFLE * s[0]);
        s[i] = MAX(s[i], s[i - 1] / growth(m, i));
    }
}

/* Updates the Kalman filter of (speed, drafted). `drafts` is the part of the round that texts with drafts
 * take: a round with drafts shows the sum of both corrections, another round shows speed alone. Returns the
 * logarithm of the time that the filter did not foresee, clipped. */
static double follow(struct cost_model *m, double drafts, double seconds, double predicted)
{
    double *v = m->var;
    const double off = cost_off(seconds, predicted), a = v[0] + drafts * v[1], b = v[1] + drafts * v[2],
                 all = a + drafts * b + NOISE;
    m->speed += a / all * off;
    m->drafted = STEADY * (m->drafted + b / all * off);
    v[0] += DRIFT - a * a / all;
    v[1] = STEADY * (v[1] - a * b / all);
    v[2] = STEADY * STEADY * (v[2] - b * b / all) + SPREAD * (1 - STEADY * STEADY);
    return off;
}

/* Changes the costs of the sizes around `rows` by what the filter did not foresee (off). The cost of one row
 * stays: it is the unit of speed. */
static void correct_sizes(struct cost_model *m, double rows, double off)
{
    for (size_t i = 1; i < COST_SIZES; i++) {
        const double lo = (double)cost_rows(i - 1), mid = (double)cost_rows(i), hi = (double)cost_rows(i + 1),
                     near = MAX(0, MIN((rows - lo) / (mid - lo), (hi - rows) / (hi - mid)));
        m->size[i] *= exp(near * off / (m->seen[i] + 2));
        m->seen[i] = MIN(m->seen[i] + near, SEEN);
    }
    fill_sizes(m);
}

/* The last size of at most so many rows. */
static size_t size_of(size_t rows)
{
    size_t i = 0;
    while (i + 1 < COST_SIZES && cost_rows(i + 1) <= rows)
        i++;
    return i;
}

void cost_start(struct cost_model *m, double weight_bytes, double kv_bytes,
                const struct planner_experts *experts)
{
    *m = (struct cost_model){ .weight_bytes = weight_bytes, .experts = *experts, .fresh = 1,
                              .kv_bytes = kv_bytes, .var = { 1, 0, SPREAD } };
}

void cost_first(struct cost_model *m, size_t length, double seconds)
{
    m->size[0] = seconds / (m->weight_bytes + cost_kv(m, length));
    m->seen[0] = 1;
    fill_sizes(m);
}

size_t cost_size_due(const struct cost_model *m, size_t n, size_t left)
{
    const size_t t = m->timed, more = size_of(n) + 1;       /* than one row for each text */
    const bool due = t < TIMED_SIZES ? left >= WORTH_TIMING : m->seconds > m->next_timing;
    return !due              ? COST_SIZES
           : t < TIMED_SIZES ? more + t
           : t % 2           ? more + t / 2 % TIMED_SIZES
                             : 0;
}

void cost_measured(struct cost_model *m, size_t i, size_t length, double seconds)
{
    m->size[i] = seconds / (weights_read(m, cost_rows(i)) + cost_kv(m, length));
    m->seen[i] = SEEN;
    fill_sizes(m);
}

void cost_timed(struct cost_model *m, size_t i, size_t length, double seconds)
{
    const double cache = cost_kv(m, length), one = m->weight_bytes + cache,
                 bytes = weights_read(m, cost_rows(i)) + cache,
                 now = seconds / exp(m->speed) / bytes,
                 most = MIN(now, (double)cost_rows(i) * m->size[0] * one / bytes);
    m->seconds += seconds;
    m->next_timing = m->seconds + seconds / TIMING_SHARE;
    m->timed += m->seen[0] > 0;
    if (m->seen[0] == 0)
        m->size[0] = now;
    else if (i == 0)
        follow(m, 0, now, m->size[0]);
    else                             /* r rows never take longer than r passes: that was a disturbance */
        m->size[i] = m->timed <= TIMED_SIZES ? most : m->size[i] * exp(cost_off(most, m->size[i]) / 2);
    m->seen[i] = SEEN / 2;
    fill_sizes(m);
}

void cost_learn(struct cost_model *m, double rows, double drafts, double seconds, double predicted)
{
    correct_sizes(m, rows, follow(m, drafts, seconds, predicted));
}

void cost_forget_drafts(struct cost_model *m)
{
    m->drafted = m->var[1] = 0;
    m->var[2] = SPREAD;
}

void cost_split_unknown(struct cost_model *m, size_t n)
{
    const double more = UNKNOWN / (double)n;
    m->var[0] += more, m->var[1] -= more, m->var[2] += more;
}
