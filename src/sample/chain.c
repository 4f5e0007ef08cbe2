/* The steps of the sampling chain. Its data is struct chain. Steps that change logits come first, then the
 * selection of prefixes (end_at, keep), then the filters built from it, then the ranking by coins
 * (chain_rank). Start at keep and at chain_rank. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "src/sample/chain.h"
#include "src/sample/coin.h"

enum { RACE_PARTS_MAX = 64, SORT_MAX = 32 };

static size_t short_row_max(size_t vocab) { return vocab / 8 + 64; }
static size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t chain_bytes(size_t vocab)
{
    return SELECT_BUCKETS * sizeof(uint64_t) + 2 * round64(short_row_max(vocab) * sizeof(float)) +
           round64(vocab * sizeof(uint32_t));
}

void chain_open(struct chain *c, size_t vocab, const struct ops *ops, struct pool *pool, void *memory)
{
    char *m = memory;
    *c = (struct chain){ .ops = ops, .pool = pool, .vocab = vocab, .few_max = short_row_max(vocab),
                         .centre = NAN };
    c->hist = (uint64_t *)(void *)m;
    m += SELECT_BUCKETS * sizeof(uint64_t);
    c->few_x = (float *)(void *)m;
    m += round64(c->few_max * sizeof(float));
    c->few_ids = (uint32_t *)(void *)m;
    m += round64(c->few_max * sizeof(float));
    c->at = (uint32_t *)(void *)m;
}

/* The row is `all`, and nothing is filtered. */
static void whole_row(struct chain *c)
{
    c->x = c->all;
    c->ids = NULL;
    c->n = c->vocab;
    c->cut = -FLT_MAX;
    c->known = false;
}

void chain_start(struct chain *c, float *logits, const struct coin_key *key)
{
    c->all = logits;
    c->key = *key;
    whole_row(c);
}

/* ---- steps that change logits ---- */

/* Makes the row hold all ids again, with filtered candidates as -inf. */
static void widen(struct chain *c)
{
    if (c->ids) {
        for (size_t i = 0; i < c->vocab; i++)
            c->all[i] = -INFINITY;
        for (size_t i = 0; i < c->n; i++)
            c->all[c->ids[i]] = c->x[i];
        whole_row(c);
    } else if (c->cut > -FLT_MAX) {
        c->ops->cut_below(c->x, c->n, c->cut);
        c->cut = -FLT_MAX;
    }
    c->known = false;
}

/* Finds top and top_at. Returns whether any candidate is left. */
static bool find_top(struct chain *c)
{
    if (!c->known) {
        c->top_at = c->ops->argmax(c->x, c->n);
        c->top = c->x[c->top_at];
        c->known = true;
    }
    return c->top >= -FLT_MAX;
}

/* Rounds y, the new value of logit x, to float. A finite logit stays finite. */
static float round_logit(float x, double y)
{
    return x < -FLT_MAX ? x : y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : (float)y;
}

void chain_bias(struct chain *c, const struct sampling *p, size_t n_banned)
{
    if (!p->n_bias && !n_banned)
        return;
    widen(c);
    for (size_t i = 0; i < p->n_bias; i++) {
        float *x = &c->x[p->bias[i].id], bias = (float)p->bias[i].bias;
        *x = bias < -FLT_MAX ? bias : round_logit(*x, (double)*x + bias);
    }
    for (size_t i = 0; i < n_banned; i++)
        c->x[p->eos[i]] = -INFINITY;
}

void chain_penalties(struct chain *c, const struct sampling *p, const struct token_counts *counts)
{
    if (!counts->last.n && !counts->text.n)
        return;
    widen(c);
    for (size_t i = 0; i < counts->last.n; i++) {
        float *x = &c->x[counts->last.ids[i]];
        *x = round_logit(*x, *x < 0 ? *x * p->penalty : *x / p->penalty);
    }
    for (size_t i = 0; i < counts->text.n; i++) {
        int32_t id = counts->text.ids[i];
        c->x[id] = round_logit(c->x[id],
                               c->x[id] - (p->presence + p->frequency * counts->text.count[id]));
    }
}

void chain_dry(struct chain *c, const struct dry *dry)
{
    if (!dry->found.n)
        return;
    widen(c);
    for (size_t i = 0; i < dry->found.n; i++) {
        float *x = &c->x[dry->found.ids[i]];
        *x = round_logit(*x, *x - dry_penalty(dry, dry->found.ids[i]));
    }
}

static bool temperature_on(const struct sampling *p) { return p->temperature != 1; }
static void temperature(struct chain *c, const struct sampling *p)
{
    if (!c->ids)
        widen(c);                       /* distinct logits may become equal: apply the cut before that */
    c->ops->temper(c->x, c->n, (float)p->temperature);
    c->known = false;
}

/* ---- selection of a prefix ---- */

/* The end of a prefix of the candidates: the prefix holds every value > x, and those == x with index <= i.
 * The sum of what a selection counted in the prefix, or 0. */
struct end { float x; uint32_t i; uint64_t sum; };

/* What a selection orders candidate i by: its logit, or minus its distance from the centre. */
static float value(const struct chain *c, uint32_t i)
{
    return isnan(c->centre) ? c->x[i] : MAX(-fabsf(c->x[i] - c->centre), -FLT_MAX);
}

static bool before(const struct chain *c, uint32_t a, uint32_t b)
{
    float x = value(c, a), y = value(c, b);
    return x > y || (x == y && a < b);
}

/* The weights of candidates at[0..n): their probabilities, or 1 each. */
static void candidate_weights(const struct chain *c, uint64_t *w, const uint32_t *at, size_t n, bool weighted)
{
    float x[COIN_BLOCK];
    assert(n <= COIN_BLOCK);
    for (size_t i = 0; i < n; i++) {
        x[i] = c->x[at[i]];
        w[i] = 1;
    }
    if (weighted)
        c->ops->weigh(w, x, n, c->top);
}

/* One step of narrowing. c->at[0..*m) are candidates with values from lo to hi > lo, by ascending index.
 * Keeps the bucket that holds the target, and adds the weights before that bucket to *sum. */
static void narrow(struct chain *c, size_t *m, float lo, float hi, uint64_t *sum, uint64_t target,
                   bool weighted)
{
    const double per_unit = SELECT_BUCKETS / ((double)hi - lo);
    uint64_t w[COIN_BLOCK];
    size_t kept = 0, bucket = 0;
    memset(c->hist, 0, SELECT_BUCKETS * sizeof *c->hist);
    for (size_t i = 0; i < *m; i += COIN_BLOCK) {
        size_t k = MIN(*m - i, (size_t)COIN_BLOCK);
        candidate_weights(c, w, c->at + i, k, weighted);
        for (size_t j = 0; j < k; j++) {
            size_t b = (size_t)(((double)hi - value(c, c->at[i + j])) * per_unit);
            c->hist[MIN(b, (size_t)SELECT_BUCKETS - 1)] += w[j];
        }
    }
    while (*sum + c->hist[bucket] < target)
        *sum += c->hist[bucket++];
    for (size_t i = 0; i < *m; i++) {
        size_t b = (size_t)(((double)hi - value(c, c->at[i])) * per_unit);
        if (MIN(b, (size_t)SELECT_BUCKETS - 1) == bucket)
            c->at[kept++] = c->at[i];
    }
    *m = kept;
}

/* Finds the end among c->at[0..m), ascending indices. The weights before them sum up to `sum` < target. */
static struct end end_among(struct chain *c, size_t m, uint64_t sum, uint64_t target, bool weighted)
{
    for (;;) {
        float lo = value(c, c->at[0]), hi = lo;
        for (size_t i = 1; i < m; i++) {
            float x = value(c, c->at[i]);
            lo = MIN(lo, x);
            hi = MAX(hi, x);
        }
        if (lo == hi)
            break;
        if (m <= SORT_MAX) {
            for (size_t i = 1; i < m; i++) {
                uint32_t a = c->at[i];
                size_t j = i;
                for (; j > 0 && before(c, a, c->at[j - 1]); j--)
                    c->at[j] = c->at[j - 1];
                c->at[j] = a;
            }
            break;
        }
        narrow(c, &m, lo, hi, &sum, target, weighted);
    }
    for (size_t i = 0; i < m; i++) {
        uint64_t w;
        candidate_weights(c, &w, c->at + i, 1, weighted);
        sum += w;
        if (sum >= target)
            return (struct end){ value(c, c->at[i]), c->at[i], sum };
    }
    assert(!"the target lies in the bucket");
    return (struct end){ c->cut, UINT32_MAX, 0 };
}

/* Counts the candidates, or sums their weights, into the buckets of the first level. Returns the sum. */
enum { LEVEL_PER_UNIT = SELECT_BUCKETS / 32 };       /* weights are 0 beyond 30.5 */
static uint64_t tally(struct chain *c, bool weighted)
{
    uint64_t sum = 0;
    memset(c->hist, 0, SELECT_BUCKETS * sizeof *c->hist);
    c->ops->tally(c->hist, c->x, c->n, c->top, c->cut, LEVEL_PER_UNIT, weighted);
    for (size_t i = 0; i < SELECT_BUCKETS; i++)
        sum += c->hist[i];
    return sum;
}

/* The end of the shortest prefix whose tallied sum is at least target; 1 <= target <= the whole sum. */
static struct end end_at(struct chain *c, uint64_t target, bool weighted)
{
    uint64_t sum = 0;
    uint32_t bucket = 0;
    while (sum + c->hist[bucket] < target)
        sum += c->hist[bucket++];
    /* Selects one bucket more on both sides, because these bounds are rounded, then the bucket as tally
     * has it. */
    const float last = SELECT_BUCKETS - 1;
    float hi = bucket ? c->top - (float)(bucket - 1) / LEVEL_PER_UNIT : c->top;
    float lo = bucket == SELECT_BUCKETS - 1 ? -FLT_MAX : c->top - (float)(bucket + 2) / LEVEL_PER_UNIT;
    size_t n = c->ops->between(c->at, c->n, c->x, c->n, MAX(lo, c->cut), hi), m = 0;
    for (size_t i = 0; i < n; i++) {
        float b = (c->top - c->x[c->at[i]]) * LEVEL_PER_UNIT;
        if ((uint32_t)MIN(b, last) == bucket)
            c->at[m++] = c->at[i];
    }
    return end_among(c, m, sum, target, weighted);
}

/* The end of the first k candidates, or of all if there are fewer. */
static struct end end_of_first(struct chain *c, size_t k)
{
    if (k == 1)
        return (struct end){ c->top, (uint32_t)c->top_at, 0 };
    if (k >= c->n || tally(c, false) <= k)
        return (struct end){ c->cut, UINT32_MAX, 0 };
    return end_at(c, k, false);
}

/* Makes the row short: its n candidates few_ids. */
static void shorten(struct chain *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        c->few_x[i] = c->x[c->few_ids[i]];
    c->x = c->few_x;
    c->ids = c->few_ids;
    c->n = n;
}

/* Keeps the prefix up to `end`, at least the first min_keep candidates. The row becomes a short row if
 * they fit. */
static void keep(struct chain *c, struct end end, size_t min_keep)
{
    if (min_keep > 1) {
        struct end least = end_of_first(c, min_keep);
        if (least.x < end.x || (least.x == end.x && least.i > end.i))
            end = least;
    }
    if (end.i < c->n)
        c->ops->cut_equal(c->x + end.i + 1, c->n - end.i - 1, end.x);
    if (end.x > c->cut)
        c->cut = end.x;
    if (c->ids) {                       /* already short: close the gaps */
        size_t n = 0;
        for (size_t i = 0; i < c->n; i++)
            if (c->x[i] >= c->cut) {
                c->few_x[n] = c->x[i];
                c->few_ids[n++] = c->ids[i];
            }
        c->n = n;
    } else {
        size_t n = c->ops->between(c->few_ids, c->few_max, c->x, c->n, c->cut, FLT_MAX);
        if (n == SIZE_MAX)
            return;
        shorten(c, n);
    }
    c->cut = -FLT_MAX;
    c->known = false;
}

/* The float of a number in the order of floats: FLT_MAX is 0x7f7fffff, -FLT_MAX the negative of it. */
static float float_at(int32_t order)
{
    float x;
    memcpy(&x, &(uint32_t){ order < 0 ? 0x80000000u | (uint32_t)-order : (uint32_t)order }, sizeof x);
    return x;
}

/* The end of the candidates with x - top >= d, in double. The least such float is found by halves, because
 * the difference rounds: near 0 a billion floats have the same one. */
static struct end end_of_difference(const struct chain *c, double d)
{
    int32_t lo = -0x7f7fffff, hi = 0x7f7fffff;
    while (lo < hi) {
        const int32_t middle = (int32_t)(((int64_t)lo + hi) >> 1);
        if ((double)float_at(middle) - c->top >= d)
            hi = middle;
        else
            lo = middle + 1;
    }
    return (struct end){ float_at(hi), UINT32_MAX, 0 };
}

/* ---- filters ---- */

/* Keeps logits >= the largest - n * standard deviation of all logits that are left. The sums run in eight
 * lanes of doubles in a fixed order. */
static bool top_n_sigma_on(const struct sampling *p) { return p->top_n_sigma > 0; }
static void top_n_sigma(struct chain *c, const struct sampling *p)
{
    enum { LANES = 8 };
    double mean = 0, variance = 0, count = 0;
    if (!find_top(c))
        return;
    for (int square = 0; square < 2; square++) {
        double sum[LANES] = {0}, seen[LANES] = {0}, *total = square ? &variance : &mean;
        for (size_t i = 0; i < c->n; i++) {
            const bool left = c->x[i] >= c->cut;
            const double d = left ? c->x[i] - mean : 0;
            sum[i % LANES] += square ? d * d : d;
            seen[i % LANES] += left;
        }
        count = 0;
        for (size_t i = 0; i < LANES; i++)
            count += seen[i], *total += sum[i];
        *total /= count;
    }
    keep(c, end_of_difference(c, -p->top_n_sigma * sqrt(variance)), p->min_keep);
}

static bool top_k_on(const struct sampling *p) { return p->top_k > 0; }
static void top_k(struct chain *c, const struct sampling *p)
{
    const size_t k = MAX((size_t)p->top_k, p->min_keep);
    if (k < c->n && find_top(c))
        keep(c, end_of_first(c, k), 1);
}

/* The part p of a sum of weights, at least 1. */
static uint64_t part_of(uint64_t sum, double p)
{
    const double want = p * (double)sum;
    const uint64_t target = (uint64_t)want;
    return MAX(target + ((double)target < want), 1);
}

/* Keeps the shortest prefix of probability p, if the candidates near the top decide it: the sum of the others
 * is cheap within bounds, and both bounds must have the same end. */
static bool keep_near_top(struct chain *c, double p, size_t min_keep)
{
    enum { NEAR = 12 };
    const struct chain whole = *c;
    const float limit = MAX(c->top - NEAR, c->cut);
    const size_t n = c->ids ? SIZE_MAX : c->ops->between(c->few_ids, c->few_max, c->x, c->n, limit, FLT_MAX);
    if (n == SIZE_MAX || n < min_keep)
        return false;
    const double far = c->ops->tail(c->x, c->n, c->top, c->cut, limit) * (double)WEIGHT_ONE,
                 off = far * TAIL_ERROR + (double)c->n;      /* and the rounding of each weight */
    shorten(c, n);
    const uint64_t near = tally(c, true), least = part_of(near + (uint64_t)MAX(far - off, 0), p),
                   most = part_of(near + (uint64_t)(far + off), p);
    const struct end end = most <= near ? end_at(c, least, true) : (struct end){ 0 };
    if (end.sum < most) {
        *c = whole;
        return false;
    }
    keep(c, end, min_keep);
    return true;
}

static bool top_p_on(const struct sampling *p) { return p->top_p < 1; }
static void top_p(struct chain *c, const struct sampling *p)
{
    if (find_top(c) && !keep_near_top(c, p->top_p, p->min_keep))
        keep(c, end_at(c, part_of(tally(c, true), p->top_p), true), p->min_keep);
}

static bool min_p_on(const struct sampling *p) { return p->min_p > 0; }
static void min_p(struct chain *c, const struct sampling *p)
{
    if (find_top(c))
        keep(c, end_of_difference(c, log_own(p->min_p)), p->min_keep);
}

/* Keeps probability = weight / sum >= min(eps, sqrt(eps) exp(-entropy)), compared as logarithms. */
static bool eta_on(const struct sampling *p) { return p->eta > 0; }
static void eta(struct chain *c, const struct sampling *p)
{
    uint64_t sum[2] = {0};
    if (!find_top(c))
        return;
    c->ops->moments(sum, c->x, c->n, c->top, c->cut);
    double log_sum = log_own((double)sum[0] / WEIGHT_ONE),
           entropy = log_sum + (double)sum[1] / (double)sum[0];
    double log_eps = log_own(p->eta), least = MIN(log_eps, 0.5 * log_eps - entropy) + log_sum;
    keep(c, end_of_difference(c, MIN(least, 0)), p->min_keep);
}

/* Finds the end among all candidates, by their values. target is at most their number, or the sum of their
 * weights. */
static struct end end_of_values(struct chain *c, uint64_t target, bool weighted)
{
    size_t m = c->ops->between(c->at, c->n, c->x, c->n, c->cut, FLT_MAX);
    return end_among(c, m, 0, target, weighted);
}

/* A token's surprise -log p differs from the entropy, the mean surprise, as its logit differs from the mean
 * logit, weighted by probability. Keeps the fewest tokens nearest to that centre whose probabilities sum up
 * to p or more, lowest id first on ties. */
static bool typical_on(const struct sampling *p) { return p->typical < 1; }
static void typical(struct chain *c, const struct sampling *p)
{
    uint64_t sum[2] = {0};
    float least = FLT_MAX;
    if (!find_top(c))
        return;
    c->ops->moments(sum, c->x, c->n, c->top, c->cut);
    const uint64_t all = tally(c, true), left = tally(c, false);
    const double want = ceil(p->typical * (double)all);
    c->centre = (float)(c->top - (double)sum[1] / (double)sum[0]);
    struct end end = end_of_values(c, MIN(MAX((uint64_t)want, 1), all), true),
               other = end_of_values(c, MIN(p->min_keep, left), false);
    if (other.x < end.x || (other.x == end.x && other.i > end.i))
        end = other;
    for (uint32_t i = 0; i < c->n; i++) {
        const float v = value(c, i);
        if (!(v > end.x || (v == end.x && i <= end.i)))
            c->x[i] = -INFINITY;
        else if (c->x[i] >= c->cut)
            least = MIN(least, c->x[i]);
    }
    c->centre = NAN;
    c->known = false;
    keep(c, (struct end){ least, UINT32_MAX, 0 }, 1);
}

/* With the probability, which a coin of the position decides, removes every token of a probability >= the
 * threshold but the least probable of these tokens. Does nothing if fewer than min_keep tokens would be
 * left. */
static bool xtc_on(const struct sampling *p) { return p->xtc_probability > 0; }
static void xtc(struct chain *c, const struct sampling *p)
{
    uint64_t sum[2] = {0};
    const uint64_t word = coin_word(c->key.seed, c->key.sample, c->key.position, COIN_ID_XTC);
    if ((double)(word >> 11) * 0x1p-53 >= p->xtc_probability || !find_top(c))
        return;
    c->ops->moments(sum, c->x, c->n, c->top, c->cut);
    const double least = log_own(p->xtc_threshold) + log_own((double)sum[0] / WEIGHT_ONE);
    if (least > 0)
        return;
    const float limit = MAX(end_of_difference(c, least).x, c->cut);
    const size_t n = c->ops->between(c->at, c->n, c->x, c->n, limit, FLT_MAX);
    if (tally(c, false) < p->min_keep + n - 1)
        return;
    uint32_t last = c->at[0];
    for (size_t i = 1; i < n; i++)
        last = before(c, last, c->at[i]) ? c->at[i] : last;
    for (size_t i = 0; i < n; i++)
        if (c->at[i] != last)
            c->x[c->at[i]] = -INFINITY;
    c->known = false;
}

const struct chain_step chain_steps[] = {
    { "top-n-sigma", top_n_sigma_on, top_n_sigma, false },
    { "temperature", temperature_on, temperature, true }, { "top-k", top_k_on, top_k, true },
    { "typical", typical_on, typical, false },
    { "top-p", top_p_on, top_p, true }, { "min-p", min_p_on, min_p, true }, { "eta", eta_on, eta, true },
    { "xtc-probability", xtc_on, xtc, false },
    { NULL },
};

int32_t chain_best(struct chain *c)
{
    if (!find_top(c))
        return -1;
    return (int32_t)(c->ids ? c->ids[c->top_at] : c->top_at);
}

/* ---- ranking by coins ----
 *
 * Threads rank parts of the row. A cheap lower precision bound of each score (coin_bounds) shows which
 * candidates are worth the logarithms of the exact score. */

/* The best `max` candidates so far, best first: score descending, id ascending. The score is (x - top) +
 * noise in double, or x without coins. */
struct ranked { double score; uint32_t id; };
struct ranking { size_t n, max; struct ranked at[RANK_MAX]; };

static bool ahead(const struct ranked *a, const struct ranked *b)
{
    return a->score > b->score || (a->score == b->score && a->id < b->id);
}

static void enter(struct ranking *best, struct ranked new)
{
    size_t i = best->n;
    if (i < best->max)
        best->n++;
    else if (!ahead(&new, &best->at[--i]))
        return;
    for (; i > 0 && ahead(&new, &best->at[i - 1]); i--)
        best->at[i] = best->at[i - 1];
    best->at[i] = new;
}

/* best[i] ranks candidates [i * part, (i + 1) * part). Candidates that score less than `floor` may be left
 * out. */
struct race {
    const struct chain *c;
    const struct coin_key *key;
    double floor;
    size_t part;
    struct ranking best[RACE_PARTS_MAX];
};

static void enter_at(struct ranking *best, const struct race *r, size_t i)
{
    const struct chain *c = r->c;
    const struct coin_key *key = r->key;
    struct ranked new = { (double)c->x[i], c->ids ? c->ids[i] : (uint32_t)i };
    if (key)
        new.score =
            (new.score - c->top) + coin_gumbel(coin_word(key->seed, key->sample, key->position, new.id));
    enter(best, new);
}

/* A candidate whose bound (coin_bounds of kernels/ops.h) is below this number cannot be ranked. A bound is
 * at most 1e-3 too low, and is rounded twice. */
static double least_bound(const struct race *r, const struct ranking *best)
{
    double bar = best->n == best->max ? MAX(r->floor, best->at[best->max - 1].score) : r->floor;
    double least = bar - 2e-3 - 3e-7 * fabs(bar);
    return least < -FLT_MAX ? (double)-INFINITY : least;
}

/* Fills a ranking with the candidates of the largest bounds u[0..n), so that few others are worth a
 * logarithm. The bounds of those candidates become NaN. */
static void enter_likely(struct ranking *best, const struct race *r, float *u, size_t from, size_t n)
{
    uint32_t at[RANK_MAX];
    size_t m = 0, max = best->max - best->n;
    for (size_t j = 0; j < n; j++) {
        if ((m == max && u[j] <= u[at[m - 1]]) || !(r->c->x[from + j] >= r->c->cut))
            continue;
        size_t i = m < max ? m++ : m - 1;
        for (; i > 0 && u[j] > u[at[i - 1]]; i--)
            at[i] = at[i - 1];
        at[i] = (uint32_t)j;
    }
    for (size_t i = 0; i < m; i++) {
        enter_at(best, r, from + at[i]);
        u[at[i]] = NAN;
    }
}

static void race_block(struct ranking *best, const struct race *r, size_t from, size_t n)
{
    const struct chain *c = r->c;
    float u[COIN_BLOCK];
    float most =
        c->ops->coin_bounds(u, c->x + from, c->ids ? c->ids + from : NULL, (uint32_t)from, n, r->key, c->top);
    double least = least_bound(r, best);
    if ((double)most < least)
        return;
    if (best->n < best->max) {
        enter_likely(best, r, u, from, n);
        least = least_bound(r, best);
    }
    for (size_t j = 0; j < n; j++)
        if ((double)u[j] >= least && c->x[from + j] >= c->cut) {
            enter_at(best, r, from + j);
            least = least_bound(r, best);
        }
}

static void race_part(void *ctx, size_t i, size_t thread)
{
    struct race *r = ctx;
    const struct chain *c = r->c;
    struct ranking *best = &r->best[i];
    uint32_t at[COIN_BLOCK];
    size_t from = i * r->part, to = MIN(from + r->part, c->n);
    (void)thread;
    for (; from < to; from += COIN_BLOCK) {
        size_t n = MIN(to - from, (size_t)COIN_BLOCK);
        if (r->key) {
            race_block(best, r, from, n);
            continue;
        }
        float least = best->n == best->max ? (float)best->at[best->max - 1].score : c->cut;
        n = c->ops->between(at, COIN_BLOCK, c->x + from, n, MAX(least, c->cut), FLT_MAX);
        for (size_t j = 0; j < n; j++)
            enter_at(best, r, from + at[j]);
    }
}

size_t chain_rank(struct chain *c, bool coins, size_t k, struct candidate *out)
{
    assert(k >= 1 && k <= RANK_MAX);
    if (!find_top(c))
        return 0;
    struct race r;                      /* 33 KB: not cleared as a whole */
    r.c = c;
    r.key = coins ? &c->key : NULL;
    r.floor = -INFINITY;
    size_t threads = c->pool ? MIN(pool_threads(c->pool), RACE_PARTS_MAX) : 1;
    size_t parts = MIN(threads, c->n / 8192 + 1);
    r.part = (c->n + parts * COIN_BLOCK - 1) / (parts * COIN_BLOCK) * COIN_BLOCK;
    if (k == 1) {                       /* the score of the top logit is a floor for all parts */
        struct ranking top;
        top.n = 0;
        top.max = 1;
        enter_at(&top, &r, c->top_at);
        r.floor = top.at[0].score;
    }
    for (size_t i = 0; i < parts; i++)
        r.best[i].n = 0, r.best[i].max = k;
    if (parts == 1)
        race_part(&r, 0, 0);
    else
        pool_run(c->pool, parts, race_part, &r);
    struct ranking *best = &r.best[0];
    for (size_t i = 1; i < parts; i++)
        for (size_t j = 0; j < r.best[i].n; j++)
            enter(best, r.best[i].at[j]);
    for (size_t i = 0; i < best->n; i++) {
        double score = coins ? best->at[i].score : best->at[i].score - c->top;
        out[i] = (struct candidate){ (int32_t)best->at[i].id, (float)MAX(score, (double)-FLT_MAX) };
    }
    return best->n;
}
