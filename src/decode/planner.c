/* The planner (planner.h). plan_round() is the decision; costs, chances and exploration provide what it
 * decides with. Start reading at planner_begin(). */
#include "src/decode/planner.h"

#include <math.h>
#include <string.h>

static const double EXPLORE_SHARE = 0.005;   /* of the time: what exploration may lose */
static const double TIMING_SHARE = 0.002;    /* of the time: passes that are only timed */
static const double MARGIN = 1.05;   /* rate over rate of the best plan: to change the way, to begin a run */
static const double UNKNOWN = 0.5;   /* before anything is known: hit rate, tokens that heads gain */
static const double OUTLIER = 0.5;   /* the most that a logarithm of seconds may be off */
static const double GUESS = 0.25;    /* one-row passes: cost of a further row before it was seen */
static const double TRIFLE = 0.01;   /* the least cost of a further row, the least chance that is kept */
/* The Kalman filter of (speed, drafted), both logarithms. */
static const double NOISE = 2.5e-3;  /* variance of the noise of a round */
static const double DRIFT = 1e-4;    /* variance of the change of speed from one round to the next */
static const double SPREAD = 0.01;   /* variance of `drafted` before anything is known */
static const double STEADY = 0.999;  /* the part of `drafted` that remains after a round */
static const double DOUBT = 0.1;     /* variance to add after AFTER_PROMPT rounds */
enum {
    REPLAN = 2,                      /* rounds that a plan of plain decoding holds */
    CREDIT = 6,                      /* one-row passes that a run of exploration may lose */
    RUN = 3,                         /* rounds: the shortest run of exploration */
    SETTLED = 24,                    /* rounds before the first run of exploration */
    LOOKS = 17,                      /* rounds between looks: no divisor of the periods of texts */
    AFTER_PROMPT = 128,              /* rounds in which the CPU's caches still hold data of the prefill */
    RECENT = 200,                    /* rounds that means remember */
    LONG = 3000,                     /* rounds that the counts of an idle drafter remember */
    PRIOR = 4,                       /* observations that the prior of a chance is worth */
    CAREFUL = 32,                    /* tokens that the prior of a token count is worth */
    TIMED_SIZES = 3,                 /* sizes that are timed before the first draft pass */
    SEEN = 16,                       /* rounds that the cost of a size remembers */
    WORTH_TIMING = 1000,             /* tokens: a shorter rest of the text does not pay for timing */
    HEADS = 1 << SOURCE_HEADS | 1 << HEADS_AHEAD,
};

/* ---- the plan of a round ---- */

bool plan_drafts(const struct plan *p) { return p->passes > 0 || p->ask & HEADS; }

static void add_ask(struct plan *p, size_t a, const struct costs *c, const struct chances *h)
{
    p->ask |= 1u << a;
    p->tokens += MAX(h->gain[p->passes > 0][a], 0);
    p->seconds += c->ask[a];
}

/* The best number of draft passes over one cache, with heads or without, and every other drafter that gains
 * more than its time is worth. */
static struct plan best_of_way(const struct costs *c, const struct chances *h, const struct plan_state *s,
                               size_t way, bool heads)
{
    const size_t made = way != NO_CACHE && c->most[way - 1] ? c->most[way - 1] : (size_t)PASSES_MAX,
                 most = way == NO_CACHE ? 0 : MIN(s->deepest, MIN(c->rows_max - 1, made)),
                 to = s->passes >= 0 ? MIN((size_t)s->passes, most) : most,
                 from = s->passes >= 0 ? to : MIN((size_t)(way != NO_CACHE), to);
    struct plan best = { 0 };
    double tokens = 1, reach = 1;
    for (size_t k = 0; k <= to; k++) {
        tokens += k ? reach *= h->hit[way - 1] : 0;
        struct plan p = { .way = way, .passes = k, .tokens = tokens,
                          .seconds = c->pass[k + 1] + (k ? (double)k * c->draft[way - 1] : 0) };
        if (heads)
            add_ask(&p, SOURCE_HEADS, c, h);
        if (k >= from && p.tokens * best.seconds >= best.tokens * p.seconds)
            best = p;
    }
    for (size_t a = 0; a < ASKS; a++) {
        const size_t source = a == HEADS_AHEAD ? SOURCE_HEADS : a;
        const bool may = s->asks >> source & 1 && a != SOURCE_HEADS && (a != HEADS_AHEAD || best.passes);
        if (may &&
            (s->forced >> a & 1 || h->gain[best.passes > 0][a] * best.seconds > best.tokens * c->ask[a]))
            add_ask(&best, a, c, h);
    }
    best.seconds *= plan_drafts(&best) ? c->drafted : 1;
    best.rate = h->made[plan_drafts(&best)] * best.tokens / best.seconds;
    return best;
}

struct plan plan_round(const struct costs *c, const struct chances *h, const struct plan_state *s)
{
    const bool may = s->asks >> SOURCE_HEADS & 1, must = s->forced >> SOURCE_HEADS & 1;
    struct plan best = { 0 };
    double top = 0;
    for (size_t i = 0; i < 2 * (c->n_caches + 1); i++) {
        const size_t way = i / 2;
        const bool heads = i % 2;
        if (!(s->ways >> way & 1) || (heads ? !may : must))
            continue;
        const struct plan p = best_of_way(c, h, s, way, heads);
        const bool same = way == s->last.way && heads == (s->last.ask >> SOURCE_HEADS & 1);
        const double value = p.rate * (same ? MARGIN : 1);
        if (value > top)
            best = p, top = value;
    }
    return best;
}

/* ---- costs ---- */

/* Seconds per byte of a pass of any number of rows, at speed 1. */
static double size_at(const struct cost_model *m, size_t rows)
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

/* Seconds of the weights' part of a pass, at speed 1. */
static double weights_at(const struct cost_model *m, size_t rows)
{
    return weights_read(m, rows) * size_at(m, rows);
}

void planner_experts_read(struct planner *p, size_t rows, size_t experts)
{
    struct cost_model *m = p->model;
    if (!p->on || m->experts.bytes == 0 || rows < 2)
        return;
    const struct planner_experts *x = &m->experts;
    /* all experts are read: as if half of one was not */
    const double read = MIN((double)experts / x->layers, x->n - 0.5),
                 fresh = (log(1 - read / x->n) / log(1 - x->used / x->n) - 1) / (double)(rows - 1);
    m->fresh += (MAX(fresh, 0) - m->fresh) / (m->fresh_seen + 1);
    m->fresh_seen = MIN(m->fresh_seen + 1, RECENT);
}

void planner_draft_bytes(struct planner *p, const struct pass_bytes *reads)
{
    struct cost_model *m = p->model;
    m->drafted = m->var[1] = 0;
    m->var[2] = SPREAD;
    for (size_t i = 0; i < p->costs.n_caches; i++) {
        p->reads[i] = reads[i];
        p->cache[i].n = p->cache[i].seconds = 0;
    }
    for (size_t a = 0; a < ASKS; a++)
        if (HEADS >> a & 1)
            p->ask[a].n = p->ask[a].seconds = 0;
}

/* The share of one of n texts in a pass of all_rows rows, `rows` of its own, at speed 1. */
static double pass_share(const struct cost_model *m, size_t length, size_t n, size_t rows, size_t all_rows)
{
    return weights_at(m, all_rows) / (double)n + m->kv_bytes * (double)length * size_at(m, rows);
}

static double cache_bytes(const struct pass_bytes *r, size_t length)
{
    return r->key * (double)MIN(r->keys, length);
}

/* The same share of a draft pass, as a share of a draft pass for one text. */
static double draft_share(const struct cost_model *m, const struct pass_bytes *r, size_t length, size_t n)
{
    const double cache = cache_bytes(r, length),
                 weights = r->weights * weights_at(m, n) / (weights_at(m, 1) * (double)n);
    return (weights + cache) / (r->weights + cache);
}

double planner_pass_seconds(const struct planner *p, size_t length)
{
    const size_t n = MAX(p->n_texts, (size_t)1);
    return exp(p->model->speed) * pass_share(p->model, length, n, 1, n);
}

/* Limits what a pass or round that other programs interrupted can change. */
static double clipped(double x) { return MAX(MIN(x, OUTLIER), -OUTLIER); }

/* From now on the draft passes of this text are shared by so many texts; 0: by those of the round before. */
static void share_passes(struct planner *p, size_t sharers)
{
    const struct cost_model *m = p->model;
    for (size_t i = 0; i < p->costs.n_caches; i++) {
        const struct pass_bytes *r = &p->reads[i];
        const size_t last = m->sharers[r->maker], all = sharers ? sharers : last ? last : p->n_texts,
                     n = MIN(all, p->n_texts);
        p->costs.draft[i] *= draft_share(m, r, p->length, n) /
                             draft_share(m, r, p->length, MAX(p->costs.sharers[i], (size_t)1));
        p->costs.sharers[i] = n;
    }
}

static void set_costs(struct planner *p, size_t length)
{
    const struct cost_model *m = p->model;
    struct costs *c = &p->costs;
    const double speed = exp(m->speed);
    memset(c->sharers, 0, sizeof c->sharers);
    for (size_t r = 1, n = p->n_texts; r <= c->rows_max; r++)
        c->pass[r] = speed * pass_share(m, length, n, r, r * n);
    for (size_t i = 0; i < c->n_caches; i++) {
        struct cache_known *k = &p->cache[i];
        const struct pass_bytes *r = &p->reads[i];
        const double bytes = r->weights + cache_bytes(r, length);
        /* seconds per byte at speed 1; before the first pass, those of a one-row pass */
        if (k->n == 0)
            k->seconds = m->size[0];
        c->most[i] = r->most;
        c->draft[i] = speed * k->seconds * bytes;
    }
    for (size_t a = 0; a < ASKS; a++)
        c->ask[a] = speed * (p->ask[a].n > 0  ? p->ask[a].seconds
                             : HEADS >> a & 1 ? p->heads_share * m->size[0] * m->weight_bytes
                                              : 0);
    c->drafted = exp(m->drafted);
    share_passes(p, 0);
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
    const double off = clipped(log(seconds / predicted)), a = v[0] + drafts * v[1], b = v[1] + drafts * v[2],
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

/* A pass of one row for each of n texts took `seconds`, and no pass of so many rows was seen before: its cost
 * and those of fewer rows lie between it and that of one row. */
static void first_of_size(struct cost_model *m, size_t n, size_t length, double seconds)
{
    const double kv = m->kv_bytes * (double)(n * length) * m->size[0],
                 weights = MAX(seconds / exp(m->speed) - kv, 0) / m->weight_bytes,
                 slope = MAX(weights - m->size[0], 0) / (double)(n - 1);
    for (size_t i = 1; i < COST_SIZES && cost_rows(i - 1) < n; i++) {
        if (m->seen[i] == 0)
            m->size[i] = m->size[0] + slope * (double)(cost_rows(i) - 1);
        m->seen[i] = MAX(m->seen[i], 1);
    }
    fill_sizes(m);
}

size_t planner_size_due(const struct planner *p, size_t left)
{
    const struct cost_model *m = p->model;
    const size_t n = m->timed, more = size_of(p->n_texts) + 1,   /* than one row for each text */
                 next = n < TIMED_SIZES ? more + n : n % 2 ? more + n / 2 % TIMED_SIZES : 0;
    /* no round of a text alone has shown a one-row pass: time one */
    if (p->on && m->seen[0] == 0)
        return p->rounds > 0 ? 0 : COST_SIZES;
    const bool due = n < TIMED_SIZES ? left >= WORTH_TIMING : m->seconds > m->next_timing;
    return p->on && due && plan_drafts(&p->plan) && next < COST_SIZES &&
                   cost_rows(next) <= MIN(p->costs.rows_max, left)
               ? next
               : COST_SIZES;
}

void planner_timed(struct planner *p, size_t i, size_t length, double seconds)
{
    struct cost_model *m = p->model;
    const double cache = m->kv_bytes * (double)length, one = m->weight_bytes + cache,
                 bytes = weights_read(m, cost_rows(i)) + cache, now = seconds / exp(m->speed) / bytes,
                 most = MIN(now, (double)cost_rows(i) * m->size[0] * one / bytes);
    m->seconds += seconds;
    m->next_timing = m->seconds + seconds / TIMING_SHARE;
    m->timed += m->seen[0] > 0;
    if (m->seen[0] == 0)
        m->size[0] = now;
    else if (i == 0)
        follow(m, 0, now, m->size[0]);
    else                             /* r rows never take longer than r passes: that was a disturbance */
        m->size[i] = m->timed <= TIMED_SIZES ? most : m->size[i] * exp(clipped(log(most / m->size[i])) / 2);
    m->seen[i] = SEEN / 2;
    fill_sizes(m);
}

/* ---- chances ---- */

static void set_chances(struct planner *p)
{
    struct chances *h = &p->known;
    for (size_t i = 0; i < p->costs.n_caches; i++)
        h->hit[i] = (p->cache[i].hits + PRIOR * UNKNOWN) / (p->cache[i].trials + PRIOR);
    for (size_t d = 0; d < 2; d++) {
        for (size_t a = 0; a < ASKS; a++)
            h->gain[d][a] = p->gain[d][a].mean;
        h->made[d] = (p->tokens[d].made + CAREFUL) / (p->tokens[d].planned + CAREFUL);
    }
}

/* The known chances, with the chances of what the trial `x` forces raised to the most that may be hoped. */
static struct chances optimistic(const struct planner *p, const struct plan_state *x)
{
    struct chances h = p->known;
    if (x->forced & HEADS)
        for (size_t d = 0; d < 2; d++)
            for (size_t a = 0; a < ASKS; a++)
                h.gain[d][a] += HEADS >> a & 1 ? UNKNOWN * PRIOR / (p->gain[d][a].n + PRIOR) : 0;
    else if (x->ways == 1u << NO_CACHE)
        h.made[0] *= exp(2 * sqrt(p->model->var[0]));
    else {
        h.made[1] *= exp(sqrt(p->model->var[2]));
        for (size_t i = 0; i < p->costs.n_caches; i++)
            h.hit[i] = MIN(h.hit[i] + 2 * sqrt(h.hit[i] * (1 - h.hit[i]) / (p->cache[i].trials + PRIOR)),
                           1 - TRIFLE);
    }
    return h;
}

/* ---- exploration ---- */

static double optimistic_rate(const struct planner *p, const struct plan_state *x)
{
    const struct chances h = optimistic(p, x);
    return plan_round(&p->costs, &h, x).rate;
}

/* Looks for a trial: another way than the best plan's, or heads on that way. Takes the trial with the highest
 * optimistic rate into p->trial; false: none is worth a run. */
static bool begins_run(struct planner *p, const struct plan_state *s, const struct plan *best)
{
    double most = best->rate * MARGIN;
    p->run = 0;
    for (size_t i = 0; i <= p->costs.n_caches + 1; i++) {
        struct plan_state x = *s;
        const bool heads = i > p->costs.n_caches;
        x.ways = 1u << (heads ? best->way : i);
        x.forced |= heads ? HEADS : 0;
        if (heads ? !(s->asks >> SOURCE_HEADS & 1) || best->ask & HEADS
                  : !(s->ways & x.ways) || i == best->way)
            continue;
        const double rate = optimistic_rate(p, &x);
        if (rate > most)
            p->trial = x, most = rate;
    }
    return most > best->rate * MARGIN;
}

static bool goes_on(struct planner *p, const struct plan_state *s, const struct plan *best)
{
    const bool adopted =
        p->trial.ways >> best->way & 1 && (best->ask & p->trial.forced) == (p->trial.forced & s->asks);
    p->trial.deepest = s->deepest;
    return p->model->credit > 0 && (++p->run < RUN || (p->run < RECENT && !adopted &&
                                                optimistic_rate(p, &p->trial) > best->rate * MARGIN));
}

void planner_begin(struct planner *p, size_t length, size_t n_texts, struct plan_state s)
{
    struct cost_model *m = p->model;
    /* planning takes a hundredth of a short pass */
    const bool holds = p->price > 0 && n_texts == p->n_texts && !p->exploring && !p->plan.look &&
                       !p->plan.passes && !p->plan.ask && p->rounds % REPLAN;
    p->n_texts = n_texts;
    p->length = length;
    p->predicted = p->prepared = 0;
    p->rows = p->made = 0;
    s.last = p->plan;
    p->state = s;
    if (holds)
        return;
    if (!p->on || m->seen[0] == 0) {
        const size_t passes = MIN((size_t)MAX(s.passes, 0), (size_t)PASSES_MAX);
        p->plan = (struct plan){ .way = passes > 0, .passes = passes, .ask = p->on ? 0 : s.asks };
        return;
    }
    set_costs(p, length);
    set_chances(p);
    p->used = p->known;
    p->plan = plan_round(&p->costs, &p->known, &s);
    if (p->price == 0)
        m->credit = MIN(m->credit + (double)CREDIT / (double)n_texts, CREDIT);
    p->price = p->plan.rate;
}

/* Counts the texts whose plans make draft passes, for each drafter. Texts plan again while they are fewer
 * than was assumed. */
static void settle(struct planner *const *p, size_t n, size_t *sharers)
{
    for (bool again = true; again;) {
        struct cost_model *m = p[0]->model;
        memset(sharers, 0, N_SOURCES * sizeof *sharers);
        for (size_t i = 0; i < n; i++)
            if (p[i]->plan.passes)
                sharers[p[i]->reads[p[i]->plan.way - 1].maker]++;
        again = false;
        for (size_t i = 0; i < n; i++) {
            const size_t way = p[i]->plan.way,
                         now = p[i]->plan.passes ? sharers[p[i]->reads[way - 1].maker] : 0;
            if (now && now < p[i]->costs.sharers[way - 1]) {
                share_passes(p[i], now);
                p[i]->plan = plan_round(&p[i]->costs, &p[i]->known, &p[i]->state);
                again = true;
            }
        }
        for (size_t k = 0; k < N_SOURCES; k++)
            m->sharers[k] = sharers[k] ? sharers[k] : m->sharers[k];
    }
}

/* Which texts explore in this round. Those that begin a run assume that they share its draft passes with the
 * others that begin, and with the texts that draft. */
static void explore(struct planner *const *p, size_t n, const size_t *sharers)
{
    const struct cost_model *m = p[0]->model;
    bool begins[BATCH_MAX];
    size_t drafting = 0, last = 0, now = 0;
    for (size_t k = 0; k < N_SOURCES; k++)
        drafting += sharers[k];
    for (size_t i = 0; i < n; i++)
        drafting += p[i]->exploring && !p[i]->plan.passes;
    for (size_t i = 0; i < n; i++) {
        struct planner *x = p[i];
        begins[i] = m->look && m->credit >= CREDIT / 2 && !x->exploring && x->rounds >= SETTLED;
        now += begins[i];
        if (x->exploring) {
            share_passes(x, drafting);
            x->exploring = goes_on(x, &x->state, &x->plan);
        }
    }
    while (now != last) {
        last = now;
        now = 0;
        for (size_t i = 0; i < n; i++)
            if (begins[i]) {
                share_passes(p[i], MIN(drafting + last, n));
                now += begins[i] = begins_run(p[i], &p[i]->state, &p[i]->plan);
            }
    }
    for (size_t i = 0; i < n; i++) {
        p[i]->exploring |= begins[i];
        if (!p[i]->exploring && p[i]->plan.passes)
            share_passes(p[i], sharers[p[i]->reads[p[i]->plan.way - 1].maker]);
    }
}

void planner_agree(struct planner *const *all, size_t n_all)
{
    struct planner *p[BATCH_MAX];
    struct cost_model *m = all[0]->model;
    double tokens = 0, seconds = 0;
    size_t sharers[N_SOURCES], n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (all[i]->on && all[i]->price > 0)
            p[n++] = all[i];
    m->look = m->rounds++ % LOOKS == 0 && m->credit > 0;
    if (n == 0)
        return;
    settle(p, n, sharers);
    if (m->rounds % LOOKS == 0)          /* the next round assumes again that all texts draft */
        memset(m->sharers, 0, sizeof m->sharers);
    for (size_t i = 0; i < n; i++) {
        p[i]->seconds = p[i]->plan.seconds;
        tokens += p[i]->plan.rate * p[i]->seconds, seconds += p[i]->seconds;
    }
    explore(p, n, sharers);
    for (size_t i = 0; i < n; i++) {
        struct planner *x = p[i];
        x->price = tokens / seconds;
        if (x->exploring) {
            /* the optimism may be wrong, so chains are short at first and grow with the run */
            x->trial.deepest = MIN(x->state.deepest, x->run + 1);
            x->used = optimistic(x, &x->trial);
            x->plan = plan_round(&x->costs, &x->used, &x->trial);
        }
        x->plan.look = m->look;
        x->plan.ask |= m->look ? x->state.asks & ~(unsigned)HEADS : 0;
    }
}

/* ---- during and after a round ---- */

/* The factor of this round's costs: p->costs.drafted with drafts. */
static double factor(const struct planner *p) { return plan_drafts(&p->plan) ? p->costs.drafted : 1; }

/* Tokens made for each token that the trees expected. */
static double honesty(const struct planner *p)
{
    return (p->candidates.made + CAREFUL) / (p->candidates.planned + CAREFUL);
}

static double best_value(const struct planner *p, const float *reach, size_t n, size_t *rows)
{
    const double each = p->price * factor(p), honest = honesty(p);
    double tokens = 1, best = 1 - each * p->costs.pass[1];
    *rows = 1;
    for (size_t i = 0; i < n && i + 2 <= p->costs.rows_max; i++) {
        tokens += honest * reach[i];
        if (tokens - each * p->costs.pass[i + 2] > best)
            best = tokens - each * p->costs.pass[i + 2], *rows = i + 2;
    }
    return best;
}

double planner_value(const struct planner *p, const struct tree *t, size_t *rows)
{
    float reach[TREE_POOL_MAX];
    return best_value(p, reach, tree_reaches(t, reach), rows);
}

/* What a text's next row gains: its expected tokens, less what its own cache costs. */
static double next_row(const struct planner *p, size_t rows)
{
    const struct cost_model *m = p->model;
    const double cache = exp(m->speed) * m->kv_bytes * (double)p->length;
    return honesty(p) * p->reach[rows - 1] -
           p->price * factor(p) * cache * (size_at(m, rows + 1) - size_at(m, rows));
}

void planner_rows(struct planner *const *p, const struct tree *const *t, size_t n, size_t rows_max,
                  size_t *rows)
{
    const struct cost_model *m = p[0]->model;
    size_t now[BATCH_MAX], most[BATCH_MAX], all = 0;
    double gain[BATCH_MAX], value = 0, best = 0, weights = 0;
    for (size_t i = 0; i < n; i++) {
        most[i] = tree_reaches(t[i], p[i]->reach) + 1;
        rows[i] = now[i] = p[i]->on ? 1 : MIN(most[i], (size_t)TREE_ROWS_MAX);
        most[i] = p[i]->on ? MIN(most[i], p[i]->costs.rows_max) : 0;
        gain[i] = now[i] < most[i] ? next_row(p[i], 1) : 0;
        weights += p[i]->price * factor(p[i]) * exp(m->speed) / (double)n;
        all += now[i];
    }
    for (; all < rows_max; all++) {
        size_t k = n;
        for (size_t i = 0; i < n; i++)
            if (now[i] < most[i] && (k == n || gain[i] > gain[k]))
                k = i;
        if (k == n)
            break;
        value += gain[k] - weights * (weights_at(m, all + 1) - weights_at(m, all));
        if (++now[k] < most[k])
            gain[k] = next_row(p[k], now[k]);
        if (value > best) {
            best = value;
            memcpy(rows, now, n * sizeof *rows);
        }
    }
}

double planner_min_reach(const struct planner *p)
{
    double least = 1;
    for (size_t r = 1; r < MIN(p->costs.rows_max, (size_t)PASSES_MAX); r++)
        least = MIN(least, p->price * (p->costs.pass[r + 1] - p->costs.pass[r]));
    return MAX(least, TRIFLE);
}

bool planner_pass_pays(const struct planner *p, const struct tree *t, double reach)
{
    float all[TREE_POOL_MAX + PASSES_MAX];
    size_t rows, n = tree_reaches(t, all);
    const size_t i = p->plan.way - 1;
    const double now = best_value(p, all, n, &rows), each = p->price * factor(p) * p->costs.draft[i];
    bool pays = p->exploring && reach == 1;      /* a run of exploration has something to learn */
    for (size_t more = 1; more <= PASSES_MAX / 2 && !pays; more++) {
        size_t at = n++;
        for (reach *= p->used.hit[i]; at > 0 && (double)all[at - 1] < reach; at--)
            all[at] = all[at - 1];
        all[at] = (float)reach;
        pays = best_value(p, all, n, &rows) - (double)more * each > now;
    }
    return pays;
}

bool planner_row_pays(const struct planner *p, double reach, double seconds)
{
    return reach * p->used.hit[p->plan.way - 1] - planner_min_reach(p) > p->price * factor(p) * seconds;
}

void planner_asked(struct planner *p, size_t a, double before, double after, double seconds)
{
    struct gain *g = &p->gain[p->plan.passes > 0][a];
    const double now = seconds / exp(p->model->speed);
    p->ask[a].seconds =
        p->ask[a].n > 0 ? p->ask[a].seconds * exp(clipped(log(now / p->ask[a].seconds)) / (p->ask[a].n + 1))
                        : now;
    p->ask[a].n = MIN(p->ask[a].n + 1, RECENT);
    g->n = MIN(g->n + 1, RECENT);
    g->mean += (after - before - g->mean) / (g->n + PRIOR);
    p->predicted += p->costs.ask[a];
    if (p->plan.look && p->price > 0)
        p->model->credit -= seconds / (p->costs.pass[1] * (double)p->n_texts);
}

void planner_passed(struct planner *p, size_t n, double seconds)
{
    struct cache_known *k = &p->cache[p->plan.way - 1];
    const struct pass_bytes *r = &p->reads[p->plan.way - 1];
    const size_t sharers = p->costs.sharers[p->plan.way - 1];
    double expected = p->costs.draft[p->plan.way - 1];
    if (n != sharers && expected > 0)        /* more or fewer texts than planned asked for this pass */
        expected *= draft_share(p->model, r, p->length, n) / draft_share(p->model, r, p->length, sharers);
    k->n = MIN(k->n + 1, RECENT);
    if (expected > 0)
        k->seconds *= exp(clipped(log(seconds / expected)) / (k->n + 1));
    p->predicted += expected;
}

void planner_guessed(struct planner *p, bool hit)
{
    struct cache_known *k = &p->cache[p->plan.way - 1];
    const double keep = 1 - 1.0 / (RECENT * PRIOR);
    k->hits = keep * k->hits + hit;
    k->trials = keep * k->trials + 1;
}

void planner_verified(struct planner *p, size_t length, size_t rows, size_t all_rows, double seconds,
                      bool typical)
{
    struct cost_model *m = p->model;
    if (p->on && m->seen[0] == 0 && all_rows == 1 && typical) {
        m->size[0] = seconds / (m->weight_bytes + m->kv_bytes * (double)length);
        m->seen[0] = 1;
        fill_sizes(m);
    }
    if (p->on && p->price > 0 && typical && rows == 1 && all_rows == p->n_texts && all_rows > 1 &&
        !plan_drafts(&p->plan) && m->seen[size_of(all_rows)] == 0)
        first_of_size(m, all_rows, length, seconds);
    if (p->on && p->price > 0)
        p->predicted += exp(m->speed) * pass_share(m, length, p->n_texts, rows, all_rows);
    p->rows = typical ? rows : 0;
}

void planner_done(struct planner *p, size_t tokens, double expected)
{
    const bool drafts = plan_drafts(&p->plan);
    const double fade = 1 - 1.0 / RECENT, idle = 1 - 1.0 / LONG, doubt = DOUBT / (double)p->n_texts;
    double *v = p->model->var;
    /* the prefill's data have left the CPU's caches: only the sum of the two corrections is still known */
    if (++p->rounds == AFTER_PROMPT)
        v[0] += doubt, v[1] -= doubt, v[2] += doubt;
    p->candidates.planned = fade * p->candidates.planned + expected;
    p->candidates.made = fade * p->candidates.made + (double)(tokens - 1);
    p->made = tokens;
    if (!p->on || p->price == 0)
        return;
    if (p->rows) {
        double planned = 1, reach = 1;
        for (size_t k = 0; k < p->plan.passes; k++)
            planned += reach *= p->known.hit[p->plan.way - 1];
        for (size_t a = 0; a < ASKS; a++)
            planned += p->plan.ask >> a & 1 ? MAX(p->known.gain[p->plan.passes > 0][a], 0) : 0;
        p->tokens[drafts].made = fade * p->tokens[drafts].made + (double)tokens;
        p->tokens[drafts].planned =
            fade * p->tokens[drafts].planned + planned * p->predicted * factor(p) / p->plan.seconds;
    }
    for (size_t a = 0; a < ASKS; a++)
        p->gain[0][a].n *= idle, p->gain[1][a].n *= idle;
}

/* What the round lost or earned for exploration. The tokens of a round that explores pay for a part of it. */
static void account(struct cost_model *m, struct planner *const *p, size_t n, double seconds)
{
    double planned = 0, unit = 0, worth = 0, prepared = 0;
    bool exploring = false;
    for (size_t i = 0; i < n; i++)
        if (p[i]->on && p[i]->price > 0) {
            prepared += p[i]->prepared;
            exploring |= p[i]->exploring;
            planned += p[i]->plan.seconds;
            unit += p[i]->costs.pass[1];
            worth += (double)p[i]->made / p[i]->price;
        }
    if (exploring)
        m->credit -= (MIN(seconds - prepared, 2 * planned) + prepared - worth) / unit;
    else if (unit > 0)
        m->credit = MIN(m->credit + EXPLORE_SHARE * seconds / unit, CREDIT);
}

double planner_round_done(struct planner *const *p, size_t n, double seconds)
{
    struct cost_model *m = p[0]->model;
    double predicted = 0, drafts = 0;
    size_t rows = 0;
    bool known = true;               /* every text planned by known costs, and its pass was typical */
    m->seconds += seconds;
    account(m, p, n, seconds);
    for (size_t i = 0; i < n; i++) {
        const double share = p[i]->predicted * factor(p[i]);
        known &= p[i]->on && p[i]->price > 0 && p[i]->rows > 0;
        predicted += share;
        drafts += plan_drafts(&p[i]->plan) ? share : 0;
        rows += p[i]->rows;
    }
    if (!known)
        return 0;
    correct_sizes(m, (double)rows, follow(m, drafts / predicted, seconds, predicted));
    return predicted;
}

void planner_start(struct planner *p, struct cost_model *m, const struct planner_setup *s)
{
    if (m->weight_bytes == 0)
        *m = (struct cost_model){ .weight_bytes = s->weight_bytes,
                                  .experts = s->experts, .fresh = 1,
                                  .kv_bytes = s->kv_bytes,
                                  .var = { 1, 0, SPREAD } };
    *p = (struct planner){ .on = s->on,
                           .model = m,
                           .heads_share = s->heads_share,
                           .n_texts = 1,
                           .costs = { .rows_max = MIN(s->rows_max, (size_t)TREE_ROWS_MAX),
                                      .n_caches = s->n_caches } };
    memcpy(p->reads, s->reads, sizeof p->reads);
}

void planner_catch_up(struct planner *p)
{
    if (!p->on || p->model->seen[0] == 0)
        return;
    p->price = 0;                    /* the credit grows */
    for (size_t i = 0; i < p->costs.n_caches; i++)
        p->cache[i].hits = p->cache[i].trials = 0;
    memset(p->gain, 0, sizeof p->gain);
}
