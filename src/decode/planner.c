#include "src/decode/planner.h"

#include <math.h>
#include <string.h>

/* Rounds are mostly of few rows, whose costs lie on no line: 3 and 6 fill a tile of some processors' products, 4 begin another one. */
const size_t control_grid[CONTROL_GRID] = { 1, 2, 3, 4, 6, 8, 16, 32, 64, 128 };

/* rounds between those that look at what the text proposes: no divisor of what texts repeat */
enum { LOOKS = 17 };
enum { LEAN_GRID = 4, FULL_GRID = 5, HOPEFUL = 32 };         /* sizes of a calibration in lean rounds, where time is dear, and in full ones; rounds between hopeful ones */
static const double SHARE = 0.006, CALIBRATING = 0.002, LOOKING = 0.001;      /* of the time: for exploring; for later calibrations; for looks of a drafter in lean rounds */
static const double GUESS = 0.25;                /* what a further row costs, in one-row passes, before it was measured */

void control_start(struct control *c, bool on, size_t rows_max, double weight_bytes, double kv_bytes)
{
    *c = (struct control){ .on = on, .rows_max = MIN(rows_max, (size_t)CONTROL_ROWS_MAX), .weight_bytes = weight_bytes, .kv_bytes = kv_bytes, .drift = 1 };
}

static double bytes(const struct control *c, size_t length)
{
    return c->weight_bytes + c->kv_bytes * (double)length;
}

static double scale(const struct control *c, size_t length) { return bytes(c, length) / bytes(c, c->at); }

/* Rounds of a trial, of which the first are not counted, as they still find the caches of the other mode. */
static const size_t trial[2] = { 24, 64 };
/* A machine that others use too is faster at one moment than at the next: a mode takes over when it has won so many trials, one behind the other. Lean
 * rounds have the shorter trials, and more to lose. */
static const size_t wins[2] = { 2, 1 };
enum { SETTLE = 6, ENOUGH = 16, AGAIN = 40, INTERVAL_MIN = 300, INTERVAL_MAX = 20000, BELIEVED = 6 };
/* Rounds behind the prompt in which passes are slow, as they still find its leavings in the caches, and how much at most (0.48, then 0.37 ms). */
enum { COLD = 128 };
static const double SLOWER = 1.3;
/* Tokens a round that drafting could gain by what is known, to be tried: such estimates miss what a draft pass does to the caches. A trial is given up when it is nothing. */
static const double TRIAL_GAIN = 0.12;
/* tokens that the better mode would have written beside those of a trial: it is given up */
static const double LOST = 8;

static double rate(const struct control *c, enum control_mode m)
{
    return c->ran[m].seconds > 0 ? c->ran[m].tokens / c->ran[m].seconds : 0;
}

static void enter(struct control *c, enum control_mode m, size_t rounds)
{
    if (c->mode != m) {
        c->in_mode = 0;
        c->ran[m].tokens *= 0.4;
        c->ran[m].seconds *= 0.4;
    }
    c->mode = m;
    c->to_go = rounds;
    c->spent.tokens = c->spent.seconds = 0;
}

bool control_trial_is_due(const struct control *c)
{
    return c->on && c->mode == MODE_LEAN && c->better == MODE_LEAN && c->rounds > 0 && c->to_go == 1;
}
bool control_is_trial(const struct control *c)
{
    return c->on && c->mode == MODE_FULL && c->better == MODE_LEAN;
}

bool control_may_try(struct control *c, double could_gain)
{
    if (could_gain > (c->mode == MODE_LEAN ? TRIAL_GAIN : 0))
        return true;
    if (c->mode == MODE_FULL && (c->in_mode <= SETTLE || rate(c, MODE_FULL) > rate(c, MODE_LEAN)))
        return true;                             /* its first rounds say little; and its own rate is what drafting is priced at while it is ahead */
    if (c->mode == MODE_FULL)
        c->ran[MODE_FULL].tokens = c->ran[MODE_FULL].seconds = 0;       /* of too few rounds, or of an older text */
    const bool sixth = ++c->postponed % BELIEVED == 0;
    c->stale = sixth && c->mode == MODE_LEAN;    /* one that is given up has just seen what they take */
    enter(c, MODE_LEAN, INTERVAL_MIN + 1);
    if (sixth) {
        c->doubted = true;
        c->drafter[SOURCE_HEADS].n = 0;          /* what they gain is learned in full rounds alone */
        c->ran[MODE_FULL].tokens = c->ran[MODE_FULL].seconds = 0;       /* learned there alone, too; it prices drafting, and may stem from a stretch that copied */
    }
    return false;
}

/* The mode of the next round: the better one, and after so many rounds that what trials lose is SHARE of the text the other one, which is left
 * early when it is plainly worse. */
void control_choose_mode(struct control *c)
{
    if (!c->on)
        return;
    const enum control_mode other = c->mode == MODE_LEAN ? MODE_FULL : MODE_LEAN;
    const double mine = rate(c, c->mode), its = rate(c, other),
                 lost = c->spent.seconds * its - c->spent.tokens;
    if (c->rounds == 0)
        enter(c, c->better = MODE_LEAN, trial[MODE_LEAN]);
    else if (c->mode == c->better && --c->to_go == 0)
        enter(c, other, trial[other]);
    else if (c->mode != c->better &&
             (--c->to_go == 0 || (c->in_mode >= ENOUGH && mine < its && lost > LOST))) {
        c->won = mine > its ? c->won + 1 : 0;
        if (c->won > 0 && c->won < wins[c->mode]) {
            enter(c, other, AGAIN);
            return;
        }
        c->won = 0;
        c->better = mine > its ? c->mode : other;
        /* of the next trial; the rounds that were not counted lost as much as the others */
        const double loss = c->better == other ? lost * (double)c->in_mode / (double)(c->in_mode - SETTLE)
                                               : (double)trial[other] * (mine / its - 1);
        const double interval = MIN(MAX(loss / SHARE, (double)INTERVAL_MIN), (double)INTERVAL_MAX);
        const bool cold =
            c->better == MODE_FULL && c->rounds < COLD && MAX(mine, its) < SLOWER * MIN(mine, its);
        if (cold)                                /* what lean rounds took is forgotten */
            c->ran[MODE_LEAN].tokens = c->ran[MODE_LEAN].seconds = 0;
        enter(c, c->better, cold ? AGAIN : (size_t)interval);
    }
}

size_t control_wants_calibration(const struct control *c, size_t length, size_t left)
{
    bool moved = c->doubted || length > c->at + c->at / 4 + 512 || c->drift > 1.2 || c->drift < 0.8;
    if (!c->on || c->rows_max < 2)
        return 0;
    if (!c->measured[0])
        return 1;
    if (c->mode == MODE_LEAN && !control_trial_is_due(c))
        return 0;
    if (!c->measured[1])                         /* by now passes find in the caches what they will find */
        return left >= 1000 ? LEAN_GRID : 0;
    return !moved || c->calibrating >= CALIBRATING * c->seconds || left < 500 ? 0
           : c->mode == MODE_LEAN                                             ? LEAN_GRID
                                                                              : FULL_GRID;
}

/* What disturbs a measurement makes it slower: fewer rows cost at most what more rows were seen to cost. Sizes never measured follow the
 * nearest smaller one, row by row. */
static void fill(struct control *c)
{
    for (size_t i = CONTROL_GRID - 1; i-- > 1;)
        if (c->measured[i] && c->measured[i + 1])
            c->cost[i] = MIN(c->cost[i], c->cost[i + 1]);
    for (size_t i = 1; i < CONTROL_GRID; i++)
        if (!c->measured[i]) {
            double more = (double)(control_grid[i] - control_grid[i - 1]);
            /* over two sizes: one step may be a tile's border, or one measurement's bad moment */
            const size_t j = i > 3 ? i - 3 : 0;
            double slope =
                i > 1 ? (c->cost[i - 1] - c->cost[j]) / (double)(control_grid[i - 1] - control_grid[j])
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
        c->doubted = false;
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
    /* A size that was measured in a bad moment is never used, and so never corrected: now and then further rows are believed to be cheaper. */
    const bool hopeful = c->mode == MODE_FULL && c->rounds % HOPEFUL == 0;
    double s = scale(c, length);
    for (size_t r = 1, i = 0; r <= c->rows_max; i++) {
        const double a = (double)control_grid[i],
                     more = (c->cost[i + 1] - c->cost[i]) / ((double)control_grid[i + 1] - a);
        for (; r <= c->rows_max && (r <= control_grid[i + 1] || i + 2 == CONTROL_GRID); r++) {
            const double cost = c->cost[i] + more * ((double)r - a);
            c->t[r] = s * (hopeful ? c->cost[0] + 0.75 * (cost - c->cost[0]) : cost);
        }
    }
    c->lambda = 1 / c->t[1];
    double best = MAX(rate(c, MODE_LEAN), rate(c, MODE_FULL)) / bytes(c, length);
    /* plain decoding is always to be had, also where rounds were slower (behind a prompt, say) */
    if (c->rounds >= trial[MODE_LEAN])
        c->lambda = MAX(best, 0.95 / c->t[1]);
}

/* Value of the best number of rows for candidates of these chances, largest first. */
static double best_value(const struct control *c, const float *reach, size_t n, size_t *rows)
{
    double tokens = 1, best = 1 - c->lambda * c->t[1],
           honest = MIN((c->accepted + 20) / (c->expected + 20), 1.1);
    /* in lean rounds further rows find colder caches than their price was learned from */
    double enough = c->mode == MODE_LEAN ? 0.15 : 0.002;
    *rows = 1;
    for (size_t i = 0; i < n && i + 2 <= c->rows_max; i++) {
        tokens += honest * reach[i];
        double value = tokens - c->lambda * c->t[i + 2];
        if (value > best + enough) {
            best = value;
            enough = 0.002;
            *rows = i + 2;
        }
    }
    return best;
}

double control_value(const struct control *c, const struct tree *t, size_t *rows)
{
    float reach[TREE_POOL_MAX];
    return best_value(c, reach, tree_reaches(t, reach), rows);
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

bool control_knows(const struct control *c, size_t s) { return c->drafter[s].n >= 4; }
double control_gain(const struct control *c, size_t s)
{
    return c->drafter[s].gain - c->lambda * c->drafter[s].seconds;
}

bool control_looks(const struct control *c) { return c->on && c->rounds % LOOKS == 0; }

bool control_asks(struct control *c, size_t s)
{
    const bool of_text = s != SOURCE_PARTIAL && s != SOURCE_HEADS && s != HEADS_AHEAD;
    if (c->mode == MODE_LEAN && !of_text)
        return false;
    if (c->mode == MODE_FULL && (of_text || s == SOURCE_PARTIAL))
        return true;                             /* microseconds beside draft passes; control_pass_pays knows */
    if (!control_knows(c, s) || control_gain(c, s) > 0) {
        c->drafter[s].idle = 0;
        return true;
    }
    /* what does not pay now may pay later in the text: look again now and then, for a small share of the time */
    if (of_text)
        return control_looks(c) && c->drafter[s].looking < LOOKING * c->seconds;
    if (++c->drafter[s].idle < 16 || c->exploring >= SHARE * c->seconds)
        return false;
    c->exploring += c->drafter[s].seconds;
    c->drafter[s].idle = 0;
    return true;
}

void control_drafted(struct control *c, size_t s, double before, double after, double seconds)
{
    double w = 1.0 / (double)MIN(++c->drafter[s].n, (size_t)50), usual = c->drafter[s].seconds;
    c->drafter[s].looking += c->mode == MODE_LEAN && control_gain(c, s) <= 0 ? seconds : 0;
    c->drafter[s].gain += w * (after - before - c->drafter[s].gain);
    c->drafter[s].seconds += w * (c->drafter[s].n > 4 ? MIN(seconds, 3 * usual) - usual : seconds - usual);
}

/* Half of what fewer bytes of weights save in reading: the rest of a pass takes as long as it does. */
double control_pass_seconds(const struct control *c, double weight_bytes, size_t length)
{
    const double all = bytes(c, length);
    return scale(c, length) * c->cost[0] * (1 - (c->weight_bytes - weight_bytes) / 2 / all);
}

/* Put x in its place. */
static void insert(float *reach, size_t n, float x)
{
    for (; n > 0 && reach[n - 1] < x; n--)
        reach[n] = reach[n - 1];
    reach[n] = x;
}

bool control_pass_pays(const struct control *c, const struct tree *t, double reach, double p, double seconds)
{
    float all[TREE_POOL_MAX + CONTROL_PASSES];
    size_t rows, n = tree_reaches(t, all);
    double now = best_value(c, all, n, &rows);
    for (size_t more = 1; more <= CONTROL_PASSES / 2; more++) {
        insert(all, n++, (float)(reach *= p));
        if (best_value(c, all, n, &rows) - c->lambda * (double)more * seconds > now + 0.002)
            return true;
    }
    return false;
}

void control_verified(struct control *c, size_t length, size_t rows, double seconds)
{
    if (!c->on)
        return;
    double expected = scale(c, length) * pass_cost(c, rows), ratio = seconds / expected;
    ratio = MIN(MAX(ratio, 0.5), 2);             /* a pass that was put aside says little */
    c->drift += 0.03 * (ratio - c->drift);
    /* all sizes, as what slows one pass (another guest of the host, say) mostly slows all, and those around this one a little more, by nearness */
    for (size_t i = 0; i < CONTROL_GRID; i++) {
        double lo = i ? (double)control_grid[i - 1] : 0, mid = (double)control_grid[i],
               hi = i + 1 < CONTROL_GRID ? (double)control_grid[i + 1] : 1e9;
        double r = (double)rows, near = r <= lo || r >= hi ? 0
                                        : r <= mid         ? (r - lo) / (mid - lo)
                                                           : (hi - r) / (hi - mid);
        c->cost[i] *= 1 + (0.08 + 0.04 * near) * (ratio - 1);
    }
    for (size_t i = 1; i < CONTROL_GRID; i++)
        c->cost[i] = MAX(c->cost[i], c->cost[i - 1]);
}

void control_done(struct control *c, size_t length, size_t tokens, double expected, double seconds)
{
    c->expected = 0.995 * c->expected + expected;
    c->accepted = 0.995 * c->accepted + (double)(tokens - 1);
    c->rounds++;
    c->seconds += seconds;
    if (!c->on || ++c->in_mode <= SETTLE)
        return;
    const double mean =
        c->ran[c->mode].tokens > 20 ? c->ran[c->mode].seconds / c->ran[c->mode].tokens * (double)tokens : 1e9;
    /* one that was put aside says little */
    const double spent = MIN(seconds / bytes(c, length), 5 * mean);
    c->spent.tokens += (double)tokens;
    c->spent.seconds += spent;
    c->ran[c->mode].tokens = 0.99 * c->ran[c->mode].tokens + (double)tokens;
    c->ran[c->mode].seconds = 0.99 * c->ran[c->mode].seconds + spent;
}
