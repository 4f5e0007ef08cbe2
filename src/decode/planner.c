#include "src/decode/planner.h"

#include <math.h>
#include <string.h>

/* Rounds are mostly of few rows, whose costs lie on no line: 3 and 6 rows fill a tile of some processors' products, 4 begin another one. */
const size_t cost_rows[COST_SIZES] = { 1, 2, 3, 4, 6, 8, 16, 32, 64, COST_ROWS_MAX };

static const double EXPLORE_SHARE = 0.005, CALIBRATE_SHARE = 0.002;       /* of the time */
enum { CREDIT = 6 };                 /* one-row passes: what a run of exploration may lose, and the credit at the start */
enum { LOOKS = 17, FORGET = 3000, RUN = 3, RUN_MAX = 64, TIMED = 8, SEEN_MAX = 24, COLD = 128 };                 /* rounds between those that look whether to explore: no divisor of what texts repeat */
enum { FIRST_SIZES = 4, LATER_SIZES = 5, SETTLED = 24, WORTH_TIMING = 1000 };
static const double PRIOR_HIT = 0.5, HOPE_GAIN = 0.5; /* a hit rate and a gain before anything is known */
static const double GUESS = 0.25;    /* cost of a further row before it was timed, in one-row passes */
static const double PRIOR = 4, KEEP = 400;       /* of a hit rate: rounds that the prior is worth; that are remembered */
static const double WORTH = 1.05, STAY = 1.03;

#define HEADS_BITS (1u << SOURCE_HEADS | 1u << HEADS_AHEAD)

/* ---- one plan ---- */

bool plan_drafts(const struct plan *p)
{
    return p->passes > 0 || p->ask >> SOURCE_HEADS & 1;
}

/* Asks each drafter whose gain is worth its seconds. */
static void ask_what_gains(struct plan *p, const struct costs *c, const struct chances *h, const struct plan_state *s)
{
    for (size_t a = 0; a < ASKS; a++) {
        const bool heads = a == SOURCE_HEADS, ahead = a == HEADS_AHEAD;
        const bool may = ahead ? p->passes && s->asks >> SOURCE_HEADS & 1 : !heads && s->asks >> a & 1;
        if (may && (h->gain[p->passes > 0][a] * p->seconds > p->tokens * c->ask[a] || s->forced >> a & 1)) {
            p->ask |= 1u << a;
            p->tokens += MAX(h->gain[p->passes > 0][a], 0);
            p->seconds += c->ask[a];
        }
    }
}

struct plan plan_round(const struct costs *c, const struct chances *h, const struct plan_state *s)
{
    struct plan best = { 0 };
    const unsigned heads = s->asks >> SOURCE_HEADS & 1, first = s->forced >> SOURCE_HEADS & 1;
    for (unsigned with = first; with <= heads; with++)
        for (size_t way = NO_CACHE; way <= c->n_caches; way++) {
            if (!(s->ways >> way & 1))
                continue;
            struct plan top = { 0 };
            const size_t most = MIN(s->deepest, MIN(c->rows_max - 1, (size_t)PASSES_MAX)),
                         to = way == NO_CACHE ? 0 : s->passes >= 0 ? MIN((size_t)s->passes, most) : most,
                         from = way == NO_CACHE || s->passes < 0 ? MIN((size_t)(way != NO_CACHE), to) : to;
            double tokens = 1, reach = 1;
            for (size_t k = 0; k <= to; k++) {
                if (k) tokens += reach *= h->hit[way - 1];
                if (k < from) continue;
                const bool drafts = k || with;
                struct plan p = { .way = way, .passes = k, .ask = with << SOURCE_HEADS,
                                  .tokens = tokens + (with ? h->gain[k > 0][SOURCE_HEADS] : 0),
                                  .seconds = (c->pass[k + 1] + (k ? (double)k * c->draft[way - 1] : 0) + (with ? c->ask[SOURCE_HEADS] : 0)) * (drafts ? c->drafted : 1) };
                if (p.tokens * top.seconds >= top.tokens * p.seconds)
                    top = p;
            }
            if (!top.seconds) continue;
            ask_what_gains(&top, c, h, s);
            top.tokens *= h->made[plan_drafts(&top)];
            top.rate = top.tokens / top.seconds;
            if (top.rate * (way == s->way ? STAY : 1) > best.rate * (best.way == s->way ? STAY : 1))
                best = top;
        }
    return best;
}

static double expected_tokens(const struct plan *p, const struct chances *h)
{
    double tokens = 1, reach = 1;
    for (size_t k = 0; k < p->passes; k++)
        tokens += reach *= h->hit[p->way - 1];
    for (size_t a = 0; a < ASKS; a++)
        tokens += p->ask >> a & 1 ? MAX(h->gain[p->passes > 0][a], 0) : 0;
    return tokens;
}

/* ---- costs ---- */

static double bytes(const struct planner *p, size_t length)
{
    return p->weight_bytes + p->kv_bytes * (double)length;
}

double planner_pass_seconds(const struct planner *p, size_t length)
{
    return exp(p->speed) * p->size[0] * bytes(p, length);
}

static void price_costs(struct planner *p, size_t length)
{
    struct costs *c = &p->costs;
    const double all = bytes(p, length), now = exp(p->speed) * all;
    for (size_t r = 1, i = 0; r <= c->rows_max; i++) {
        const double a = (double)cost_rows[i], more = (p->size[i + 1] - p->size[i]) / ((double)cost_rows[i + 1] - a);
        for (; r <= c->rows_max && (r <= cost_rows[i + 1] || i + 2 == COST_SIZES); r++)
            c->pass[r] = now * (p->size[i] + more * ((double)r - a));
    }
    for (size_t i = 0; i < c->n_caches; i++) {
        /* Until a cache was used: half of what fewer bytes save in reading; the rest of a pass takes as long as before. */
        const double read = p->draft_bytes + p->kv_bytes * (double)MIN(p->draft[i].budget, length);
        if (!p->draft[i].n)
            p->draft[i].seconds = p->size[0] * (read + (p->weight_bytes - p->draft_bytes) / 2);
        c->draft[i] = exp(p->speed) * p->draft[i].seconds;
    }
    for (size_t a = 0; a < ASKS; a++)
        c->ask[a] = exp(p->speed) * (p->ask[a].n ? p->ask[a].seconds : a == SOURCE_HEADS || a == HEADS_AHEAD ? p->ask[a].seconds * p->size[0] * p->weight_bytes : 0);
    c->drafted = exp(p->drafted);
}

/* Fewer rows cost at most what more rows were seen to cost. Sizes never timed follow the nearest smaller ones. */
static void fill(struct planner *p)
{
    double *s = p->size;
    for (size_t i = COST_SIZES - 1; i-- > 1;)
        if (p->seen[i] > 0 && p->seen[i + 1] > 0)
            s[i] = MIN(s[i], s[i + 1]);
    for (size_t i = 1; i < COST_SIZES; i++) {
        const size_t j = i > 3 ? i - 3 : 0;      /* over several sizes: one step may be the border of a tile, or a bad moment */
        if (p->seen[i] == 0) {
            double slope = i > 1 ? (s[i - 1] - s[j]) / (double)(cost_rows[i - 1] - cost_rows[j]) : GUESS * s[0];
            s[i] = s[i - 1] + (double)(cost_rows[i] - cost_rows[i - 1]) * MAX(slope, 0.02 * s[0]);
        }
        s[i] = MAX(s[i], s[i - 1]);
    }
}

/* A pass or round that other programs interrupted says little. */
static double clipped(double off)
{
    const double CLIP = 0.5;
    return MAX(MIN(off, CLIP), -CLIP);
}

/* The filter's state is (speed, drafted); a round sees speed, or their sum. */
static double follow(struct planner *p, bool drafts, double seconds, double predicted)
{
    const double DRIFT = 1e-4, NOISE = 2.5e-3, AFTER = 2e-5, STEADY = 0.999;
    const double d = drafts, off = clipped(log(seconds / predicted));
    double *v = p->var;
    const double a = v[0] + d * v[1], b = v[1] + d * v[2], all = a + d * b + NOISE;
    p->speed += a / all * off;
    p->drafted = STEADY * (p->drafted + b / all * off);
    v[0] += DRIFT - a * a / all;
    v[1] = STEADY * (v[1] - a * b / all);
    v[2] = STEADY * STEADY * (v[2] - b * b / all) + AFTER;
    return off;
}

/* The sizes around `rows` follow what the filter did not foresee. The first one is the unit of speed. */
static void correct(struct planner *p, size_t rows, double off)
{
    const double r = (double)rows;
    for (size_t i = 1; i < COST_SIZES; i++) {
        const double lo = (double)cost_rows[i - 1], mid = (double)cost_rows[i],
                     hi = i + 1 < COST_SIZES ? (double)cost_rows[i + 1] : INFINITY,
                     near = r <= lo || r >= hi ? 0 : r <= mid ? (r - lo) / (mid - lo) : (hi - r) / (hi - mid);
        p->size[i] *= exp(near * off / (p->seen[i] + 2));
        p->seen[i] = MIN(p->seen[i] + near, SEEN_MAX);
    }
    fill(p);
}

size_t planner_sizes_due(const struct planner *p, size_t length, size_t left)
{
    const bool moved = length > p->sized_at + p->sized_at / 4 + 512;
    if (!p->on || p->costs.rows_max < 2)
        return 0;
    if (p->seen[0] == 0)
        return p->rounds > 0;                    /* the first round was not this text's alone */
    if (!plan_drafts(&p->plan))
        return 0;
    if (!p->sized_at)
        return left >= WORTH_TIMING ? FIRST_SIZES : 0;
    return p->calibrating >= CALIBRATE_SHARE * p->seconds ? 0 : moved ? LATER_SIZES : 1;
}

size_t planner_times(const struct planner *p) { return p->sized_at ? 2 : 1; }

void planner_timed(struct planner *p, size_t i, size_t length, double seconds, size_t times)
{
    const double all = bytes(p, length);
    p->calibrating += p->sized_at ? seconds * (double)times : 0;
    p->seconds += seconds * (double)times;
    if (i == 0 && p->seen[0] > 0) {
        follow(p, false, seconds, exp(p->speed) * p->size[0] * all);
        return;
    }
    p->sized_at = length;
    p->size[i] = seconds / exp(p->speed) / all;
    p->seen[i] = TIMED;
    fill(p);
}

/* ---- exploration ---- */

static void price_chances(struct planner *p)
{
    struct chances *h = &p->known;
    for (size_t i = 0; i < p->costs.n_caches; i++)
        h->hit[i] = (p->cache[i].hits + PRIOR * p->usual) / (p->cache[i].trials + PRIOR);
    for (size_t d = 0; d < 2; d++) {
        for (size_t a = 0; a < ASKS; a++)
            h->gain[d][a] = p->gain[d][a].gain;
        h->made[d] = (p->tokens[d].made + 32) / (p->tokens[d].planned + 32);
    }
    p->chances = *h;
}

/* The chances as they may be at best, of what `x` tries alone. */
static void hope(const struct planner *p, const struct plan_state *x, struct chances *h)
{
    *h = p->known;
    if (x->forced >> SOURCE_HEADS & 1)
        for (size_t d = 0; d < 2; d++)
            for (size_t a = 0; a < ASKS; a++)
                h->gain[d][a] += HEADS_BITS >> a & 1 ? HOPE_GAIN * 4 / (p->gain[d][a].n + 4) : 0;
    else if (x->ways == 1u << NO_CACHE)
        h->made[0] *= exp(2 * sqrt(p->var[0]));
    else {
        h->made[1] *= exp(sqrt(p->var[2]));
        for (size_t i = 0; i < p->costs.n_caches; i++)
            h->hit[i] = MIN(h->hit[i] + 2 * sqrt(h->hit[i] * (1 - h->hit[i]) / (p->cache[i].trials + PRIOR)), 0.99);
    }
}

static bool begins_run(struct planner *p, const struct plan_state *s, const struct plan *best)
{
    double most = best->rate * WORTH;
    bool found = false;
    for (size_t way = NO_CACHE; way <= p->costs.n_caches + 1; way++) {
        struct plan_state x = *s;
        const bool heads = way > p->costs.n_caches;
        if (heads ? !(s->asks >> SOURCE_HEADS & 1) || best->ask >> SOURCE_HEADS & 1 : !(s->ways >> way & 1) || way == best->way)
            continue;
        if (heads) { x.forced |= 1u << SOURCE_HEADS; x.ways = 1u << best->way; }
        else x.ways = 1u << way;
        struct chances hopeful;
        hope(p, &x, &hopeful);
        const struct plan q = plan_round(&p->costs, &hopeful, &x);
        if (q.rate > most) { most = q.rate; p->trial = x; found = true; }
    }
    return found;
}

void planner_begin(struct planner *p, size_t length, const struct plan_state *s)
{
    struct chances hopeful;
    p->predicted = 0;
    p->alone = false;
    p->length = length;
    if (p->seen[0] == 0 || !p->on) {
        const size_t passes = MIN((size_t)MAX(s->passes, 0), (size_t)PASSES_MAX);
        p->plan = (struct plan){ .way = passes > 0, .passes = passes, .ask = p->on ? s->asks & ~HEADS_BITS : s->asks };
        return;
    }
    price_costs(p, length);
    price_chances(p);
    const struct plan best = plan_round(&p->costs, &p->chances, s);
    p->plan = best;
    p->credit = p->price > 0 ? p->credit : CREDIT;
    p->price = MAX(best.rate, 0.95 / p->costs.pass[1]);
    const bool look = p->rounds % LOOKS == 0 && p->credit > 0;
    if (p->rounds >= SETTLED && (p->exploring || (look && p->credit >= CREDIT / 2))) {
        if (!p->exploring)
            p->run = 0, p->exploring = begins_run(p, s, &best);
        else {
            p->trial.deepest = s->deepest;
            hope(p, &p->trial, &hopeful);
            const bool adopted = p->trial.ways >> best.way & 1 && (best.ask & p->trial.forced) == p->trial.forced;
            p->exploring = p->credit > 0 && (++p->run < RUN || (p->run < RUN_MAX && !adopted && plan_round(&p->costs, &hopeful, &p->trial).rate > best.rate * WORTH));
        }
        if (p->exploring) {
            hope(p, &p->trial, &hopeful);
            p->trial.deepest = MIN(s->deepest, p->run + 1);        /* a hope may be wrong: chains grow with the run */
            p->plan = plan_round(&p->costs, &hopeful, &p->trial);
            p->chances = hopeful;
        }
    }
    p->plan.look = look;
    if (look)
        p->plan.ask |= s->asks & ~HEADS_BITS;
}

void planner_done(struct planner *p, size_t tokens, double expected, double seconds)
{
    const bool drafts = plan_drafts(&p->plan);
    p->expected = 0.995 * p->expected + expected;
    p->accepted = 0.995 * p->accepted + (double)(tokens - 1);
    p->seconds += seconds;
    if (++p->rounds == COLD)
        p->var[0] += 0.1;                        /* the caches have left the prompt behind: passes may take another time now */
    if (!p->on || !p->price)
        return;
    if (p->exploring)
        p->credit -= (MIN(seconds, 2 * p->plan.seconds) - (double)tokens / p->price) / p->costs.pass[1];
    else
        p->credit = MIN(p->credit + EXPLORE_SHARE * seconds / p->costs.pass[1], CREDIT);
    const size_t way = p->plan.way;
    if (p->alone) {
        const double predicted = p->predicted * (drafts ? p->costs.drafted : 1);
        correct(p, p->rows, follow(p, drafts, seconds, predicted));
        p->tokens[drafts].made = 0.99 * p->tokens[drafts].made + (double)tokens;
        p->tokens[drafts].planned = 0.99 * p->tokens[drafts].planned + expected_tokens(&p->plan, &p->known) * predicted / p->plan.seconds;
    }
    for (size_t i = 0; i < p->costs.n_caches; i++)
        if (!p->plan.passes || i + 1 != way) {
            p->cache[i].hits *= 1 - 1.0 / FORGET;
            p->cache[i].trials *= 1 - 1.0 / FORGET;
        }
    for (size_t a = 0; a < ASKS; a++)
        p->gain[0][a].n *= 1 - 1.0 / FORGET, p->gain[1][a].n *= 1 - 1.0 / FORGET;
}

/* ---- during a round ---- */

void planner_start(struct planner *p, const struct planner_setup *s)
{
    *p = (struct planner){ .on = s->on, .weight_bytes = s->weight_bytes, .draft_bytes = s->draft_bytes, .kv_bytes = s->kv_bytes,   .usual = PRIOR_HIT,
                           .var = { 1, 0, 0.01 } };
    p->costs.rows_max = MIN(s->rows_max, (size_t)ROWS_MAX);
    p->costs.n_caches = s->n_caches;
    for (size_t i = 0; i < s->n_caches; i++)
        p->draft[i].budget = s->budget[i];
    p->ask[SOURCE_HEADS].seconds = p->ask[HEADS_AHEAD].seconds = s->heads_share;
}

void planner_catch_up(struct planner *p, const struct planner *writer)
{
    if (!p->on || writer->seen[0] == 0)
        return;
    memcpy(p->size, writer->size, sizeof p->size);
    memcpy(p->seen, writer->seen, sizeof p->seen);
    memcpy(p->var, writer->var, sizeof p->var);
    p->sized_at = writer->sized_at;
    p->speed = writer->speed;
    p->drafted = writer->drafted;
    p->price = 0;                                /* the credit is full again */
    for (size_t i = 0; i < p->costs.n_caches; i++) {
        const double keep = PRIOR / (p->cache[i].trials + PRIOR);
        p->cache[i].hits *= keep, p->cache[i].trials *= keep;
    }
    for (size_t a = 0; a < ASKS; a++)
        p->gain[0][a].n = p->gain[1][a].n = 0;
}

static double best_value(const struct planner *p, const float *reach, size_t n, size_t *rows)
{
    const double honest = MIN((p->accepted + 20) / (p->expected + 20), 1.1), each = p->price * (plan_drafts(&p->plan) ? p->costs.drafted : 1);
    double tokens = 1, best = 1 - each * p->costs.pass[1];
    *rows = 1;
    for (size_t i = 0; i < n && i + 2 <= p->costs.rows_max; i++) {
        tokens += honest * reach[i];
        const double value = tokens - each * p->costs.pass[i + 2];
        if (value > best + 0.002) {
            best = value;
            *rows = i + 2;
        }
    }
    return best;
}

double planner_value(const struct planner *p, const struct tree *t, size_t *rows)
{
    float reach[TREE_POOL_MAX];
    return best_value(p, reach, tree_reaches(t, reach), rows);
}

double planner_min_reach(const struct planner *p)
{
    double least = 1;
    for (size_t r = 1; r < MIN(p->costs.rows_max, (size_t)16); r++)
        least = MIN(least, p->price * (p->costs.pass[r + 1] - p->costs.pass[r]));
    return MAX(least, 0.01);
}

static void insert(float *reach, size_t n, float x)
{
    for (; n > 0 && reach[n - 1] < x; n--)
        reach[n] = reach[n - 1];
    reach[n] = x;
}

bool planner_pass_pays(const struct planner *p, const struct tree *t, double reach)
{
    float all[TREE_POOL_MAX + PASSES_MAX];
    size_t rows, n = tree_reaches(t, all), way = p->plan.way;
    const double now = best_value(p, all, n, &rows), each = p->price * p->costs.drafted * p->costs.draft[way - 1];
    if (p->exploring && reach == 1)
        return true;                             /* a run of exploration is to learn something */
    for (size_t more = 1; more <= PASSES_MAX / 2; more++) {
        insert(all, n++, (float)(reach *= p->chances.hit[way - 1]));
        if (best_value(p, all, n, &rows) - (double)more * each > now + 0.002)
            return true;
    }
    return false;
}

void planner_asked(struct planner *p, size_t a, double before, double after, double seconds)
{
    const double now = seconds / exp(p->speed), usual = p->ask[a].seconds;
    p->ask[a].n = MIN(p->ask[a].n + 1, (size_t)50);
    p->ask[a].seconds += ((p->ask[a].n > 4 ? MIN(now, 3 * usual) : now) - usual) / (double)p->ask[a].n;
    struct gain *g = &p->gain[p->plan.passes > 0][a];
    g->n = MIN(g->n + 1, 50);
    g->gain += (after - before - g->gain) / (g->n + 3);
    p->credit -= p->plan.look ? seconds / p->costs.pass[1] : 0;
    p->predicted += p->costs.ask[a];
}

void planner_passed(struct planner *p, double seconds)
{
    const size_t i = p->plan.way - 1;
    p->draft[i].n = MIN(p->draft[i].n + 1, (size_t)40);
    if (p->on)
        p->draft[i].seconds *= exp(clipped(log(seconds / p->costs.draft[i])) / (double)(p->draft[i].n + 1));
    p->predicted += p->costs.draft[i];
}

void planner_guessed(struct planner *p, bool hit)
{
    const size_t i = p->plan.way - 1;
    p->cache[i].hits = p->cache[i].hits * (1 - 1 / KEEP) + hit;
    p->cache[i].trials = p->cache[i].trials * (1 - 1 / KEEP) + 1;
}

void planner_verified(struct planner *p, size_t rows, double seconds, bool typical)
{
    if (!p->on)
        return;
    if (p->seen[0] == 0 && rows == 1 && typical) {
        p->size[0] = seconds / bytes(p, p->length);
        p->seen[0] = 1;
        fill(p);
    }
    if (p->price == 0)
        return;
    p->predicted += p->costs.pass[rows];
    p->rows = typical ? rows : 0;
    p->alone = true;
}
