#include "src/control.h"

#include <math.h>
#include <string.h>

const size_t control_grid[CONTROL_GRID] = { 1, 2, 4, 8, 16, 32, 64, 128 };

enum { FIRST_GRID = 4 };                         /* sizes of the first calibration */
static const double SHARE = 0.006;               /* of the time for later calibrations, and the same for exploring */
static const double GUESS = 0.25;                /* what a further row costs, in one-row passes, before it was measured */

void control_start(struct control *c, bool on, size_t rows_max, double weight_bytes, double kv_bytes)
{
    *c = (struct control){ .on = on, .rows_max = MIN(rows_max, (size_t)CONTROL_ROWS_MAX), .weight_bytes = weight_bytes, .kv_bytes = kv_bytes, .drift = 1 };
}

static double scale(const struct control *c, size_t length)
{
    return (c->weight_bytes + c->kv_bytes * (double)length) / (c->weight_bytes + c->kv_bytes * (double)c->at);
}

size_t control_wants_calibration(const struct control *c, size_t length, size_t left)
{
    bool moved = length > c->at + c->at / 4 + 512 || c->drift > 1.2 || c->drift < 0.8;
    if (!c->on || c->rows_max < 2)
        return 0;
    if (!c->measured[0])
        return left >= 1000 ? FIRST_GRID : 1;
    return moved && c->calibrating < SHARE * c->seconds && left >= 500 ? FIRST_GRID : 0;
}

/* Sizes never measured follow the nearest smaller one, row by row. */
static void fill(struct control *c)
{
    for (size_t i = 1; i < CONTROL_GRID; i++)
        if (!c->measured[i]) {
            double more = (double)(control_grid[i] - control_grid[i - 1]);
            double slope = i > 1 && c->measured[i - 1] ? (c->cost[i - 1] - c->cost[i - 2]) / (double)(control_grid[i - 1] - control_grid[i - 2])
                                                       : GUESS * c->cost[0];
            c->cost[i] = c->cost[i - 1] + more * MAX(slope, 0.02 * c->cost[0]);
        }
    for (size_t i = 1; i < CONTROL_GRID; i++)
        c->cost[i] = MAX(c->cost[i], c->cost[i - 1]);
}

void control_measured(struct control *c, size_t i, size_t length, double seconds)
{
    if (i == 0) {                                /* a new reference for all */
        double s = c->measured[0] ? scale(c, length) * c->drift : 0;
        for (size_t j = 0; j < CONTROL_GRID; j++)
            c->cost[j] *= s;
        c->at = length;
        c->drift = 1;
    }
    c->cost[i] = seconds;
    c->measured[i] = true;
    c->calibrating += seconds;
    c->seconds += seconds;
    fill(c);
}

static double pass_cost(const struct control *c, size_t rows)
{
    size_t i = 0;
    while (i + 2 < CONTROL_GRID && control_grid[i + 1] < rows)
        i++;
    double a = (double)control_grid[i], b = (double)control_grid[i + 1];
    return c->cost[i] + (c->cost[i + 1] - c->cost[i]) * ((double)rows - a) / (b - a);
}

void control_round(struct control *c, size_t length)
{
    if (!c->on)
        return;
    double s = scale(c, length);
    for (size_t r = 1; r <= c->rows_max; r++)
        c->t[r] = s * pass_cost(c, r);
    c->lambda = 1 / c->t[1];
    if (c->rate_seconds > 0)
        c->lambda = MAX(c->lambda, c->rate_tokens / c->rate_seconds);
}

double control_value(const struct control *c, const struct tree *t, size_t *rows)
{
    float reach[TREE_POOL_MAX];
    size_t n = MIN(tree_reaches(t, reach), c->rows_max - 1);
    double tokens = 1, best = 1 - c->lambda * c->t[1];
    *rows = 1;
    for (size_t i = 0; i < n; i++) {
        tokens += reach[i];
        double value = tokens - c->lambda * c->t[i + 2];
        if (value > best + 0.002) {
            best = value;
            *rows = i + 2;
        }
    }
    return best;
}

double control_chain_value(const struct control *c, double p, double seconds)
{
    double tokens = 1, reach = 1, best = 1 - c->lambda * c->t[1];
    for (size_t k = 1; k < MIN(c->rows_max, (size_t)CONTROL_PASSES); k++) {
        tokens += reach *= p;
        best = MAX(best, tokens - c->lambda * (c->t[k + 1] + (double)k * seconds));
    }
    return best;
}

double control_min_reach(const struct control *c)
{
    double least = 1;
    for (size_t r = 1; r < MIN(c->rows_max, (size_t)16); r++)
        least = MIN(least, c->lambda * (c->t[r + 1] - c->t[r]));
    return MAX(least, 0.01);
}

bool control_asks(struct control *c, enum source s, size_t pass, double reach)
{
    pass = MIN(pass, (size_t)CONTROL_PASSES - 1);
    if (s == SOURCE_NGRAM || s == SOURCE_SUFFIX || s == SOURCE_TEST)
        return true;                             /* microseconds, and what they learn comes from being asked */
    double price = c->lambda * c->drafter[s][pass].seconds;
    size_t *idle = &c->drafter[s][pass].idle;
    if (c->drafter[s][pass].n == 0 && s == SOURCE_PARTIAL)
        price = c->lambda * (pass ? c->drafter[s][pass - 1].seconds : 0);
    if (price > 0.9 * reach)
        return false;                            /* not even a certain guess would pay */
    if (c->drafter[s][pass].n < 4 || reach * c->drafter[s][pass].gain > price) {
        *idle = 0;
        return true;
    }
    /* what does not pay now may pay later in the text: look again now and then, for a small share of the time */
    if (reach > 0.3 && ++*idle >= 16 && c->exploring < SHARE * c->seconds) {
        c->exploring += c->drafter[s][pass].seconds;
        *idle = 0;
        return true;
    }
    return false;
}

void control_drafted(struct control *c, enum source s, size_t pass, double reach, double before, double after, double seconds)
{
    pass = MIN(pass, (size_t)CONTROL_PASSES - 1);
    double w = 1.0 / (double)MIN(++c->drafter[s][pass].n, (size_t)50), gain = (after - before) / MAX(reach, 0.05);
    c->drafter[s][pass].gain += w * (gain - c->drafter[s][pass].gain);
    c->drafter[s][pass].seconds += w * (MIN(seconds, c->drafter[s][pass].n > 4 ? 3 * c->drafter[s][pass].seconds : seconds) - c->drafter[s][pass].seconds);
}

void control_verified(struct control *c, size_t length, size_t rows, double seconds)
{
    if (!c->on)
        return;
    double expected = scale(c, length) * pass_cost(c, rows), ratio = seconds / expected;
    ratio = MIN(MAX(ratio, 0.5), 2);             /* a pass that was put aside says little */
    c->drift += 0.03 * (ratio - c->drift);
    /* the sizes around this one, by nearness; the others a little, as what slows one pass often slows all */
    for (size_t i = 0; i < CONTROL_GRID; i++) {
        double lo = i ? (double)control_grid[i - 1] : 0, mid = (double)control_grid[i], hi = i + 1 < CONTROL_GRID ? (double)control_grid[i + 1] : 1e9;
        double r = (double)rows, near = r <= lo || r >= hi ? 0 : r <= mid ? (r - lo) / (mid - lo) : (hi - r) / (hi - mid);
        c->cost[i] *= 1 + (0.02 + 0.1 * near) * (ratio - 1);
    }
    for (size_t i = 1; i < CONTROL_GRID; i++)
        c->cost[i] = MAX(c->cost[i], c->cost[i - 1]);
}

void control_done(struct control *c, size_t tokens, double seconds)
{
    c->rounds++;
    c->seconds += seconds;
    double cap = c->rounds > 20 && c->rate_tokens > 0 ? 10 * c->rate_seconds / c->rate_tokens * (double)tokens : seconds;
    c->rate_tokens = 0.98 * c->rate_tokens + (double)tokens;
    c->rate_seconds = 0.98 * c->rate_seconds + MIN(seconds, cap);
}
