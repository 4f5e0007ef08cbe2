/* The planner (planner.h). plan_round() is the decision; costs, chances and exploration provide what it
 * decides with. Start reading at planner_begin(). */
#include "src/decode/planner.h"

#include <math.h>
#include <string.h>

static const double EXPLORE_SHARE = 0.005;   /* of the time: what exploration may lose */
static const double MARGIN = 1.05;   /* rate over rate of the best plan: to change the way, to begin a run */
static const double UNKNOWN = 0.5;   /* before anything is known: hit rate, tokens that heads gain */
static const double TRIFLE = 0.01;   /* the least chance that is kept */
static const double CHEAPER = 0.5;   /* the part of its price by bytes that a draft pass may take */
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
    HEADS = 1 << DRAFTER_HEADS | 1 << HEADS_AHEAD,
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
            add_ask(&p, DRAFTER_HEADS, c, h);
        if (k >= from && p.tokens * best.seconds >= best.tokens * p.seconds)
            best = p;
    }
    for (size_t a = 0; a < ASKS; a++) {
        const size_t source = a == HEADS_AHEAD ? DRAFTER_HEADS : a;
        const bool may = s->asks >> source & 1 && a != DRAFTER_HEADS && (a != HEADS_AHEAD || best.passes);
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
    const bool may = s->asks >> DRAFTER_HEADS & 1, must = s->forced >> DRAFTER_HEADS & 1;
    struct plan best = { 0 };
    double top = 0;
    for (size_t i = 0; i < 2 * (c->n_caches + 1); i++) {
        const size_t way = i / 2;
        const bool heads = i % 2;
        if (!(s->ways >> way & 1) || (heads ? !may : must))
            continue;
        const struct plan p = best_of_way(c, h, s, way, heads);
        const bool same = way == s->last.way && heads == (s->last.ask >> DRAFTER_HEADS & 1);
        const double value = p.rate * (same ? MARGIN : 1);
        if (value > top)
            best = p, top = value;
    }
    return best;
}

/* ---- costs ---- */

void planner_experts_read(struct planner *p, size_t rows, size_t experts)
{
    if (p->on)
        cost_experts_read(p->model, rows, experts);
}

void planner_draft_bytes(struct planner *p, const struct pass_bytes *reads)
{
    cost_forget_drafts(p->model);
    for (size_t i = 0; i < p->costs.n_caches; i++) {
        p->reads[i] = reads[i];
        p->cache[i].n = p->cache[i].seconds = 0;
    }
    for (size_t a = 0; a < ASKS; a++)
        if (HEADS >> a & 1)
            p->ask[a].n = p->ask[a].seconds = 0;
}

double planner_pass_seconds(const struct planner *p, size_t length)
{
    const size_t n = MAX(p->n_texts, (size_t)1);
    return exp(p->model->speed) * cost_pass(p->model, length, n, 1, n);
}

/* From now on the draft passes of this text are shared by so many texts; 0: by those of the round before. */
static void share_passes(struct planner *p, size_t sharers)
{
    const struct cost_model *m = p->model;
    for (size_t i = 0; i < p->costs.n_caches; i++) {
        const struct pass_bytes *r = &p->reads[i];
        const size_t last = m->sharers[r->maker], all = sharers ? sharers : last ? last : p->n_texts,
                     n = MIN(all, p->n_texts);
        p->costs.draft[i] *= cost_draft_share(m, r, p->length, n) /
                             cost_draft_share(m, r, p->length, MAX(p->costs.sharers[i], (size_t)1));
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
        c->pass[r] = speed * cost_pass(m, length, n, r, r * n);
    for (size_t i = 0; i < c->n_caches; i++) {
        struct cache_known *k = &p->cache[i];
        const struct pass_bytes *r = &p->reads[i];
        const double bytes = r->weights + cost_cache_bytes(r, length);
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

size_t planner_size_due(const struct planner *p, size_t left)
{
    const struct cost_model *m = p->model;
    /* no round of a text alone has shown a one-row pass: time one */
    if (p->on && m->seen[0] == 0)
        return p->rounds > 0 ? 0 : COST_SIZES;
    const size_t next = p->on && plan_drafts(&p->plan) ? cost_size_due(m, p->n_texts, left) : COST_SIZES;
    return next < COST_SIZES && cost_rows(next) <= MIN(p->costs.rows_max, left) ? next : COST_SIZES;
}

void planner_timed(struct planner *p, size_t i, size_t length, double seconds)
{
    cost_timed(p->model, i, length, seconds);
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
        for (size_t i = 0; i < p->costs.n_caches; i++) {
            const double hit = h.hit[i], n = p->cache[i].trials + PRIOR,
                         most = p->reads[i].hope > 0 ? p->reads[i].hope : 1 - TRIFLE;
            h.hit[i] = MIN(hit + 2 * sqrt(hit * (1 - hit) / n), MAX(hit, most));
        }
    }
    return h;
}

/* ---- exploration ---- */

static double optimistic_rate(const struct planner *p, const struct plan_state *x)
{
    const struct chances h = optimistic(p, x);
    struct costs c = p->costs;
    for (size_t i = 0; i < c.n_caches; i++)
        c.draft[i] *= p->cache[i].n > 0 ? 1 : CHEAPER;
    return plan_round(&c, &h, x).rate;
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
        if (heads ? !(s->asks >> DRAFTER_HEADS & 1) || best->ask & HEADS
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
    return ++p->run < RUN || (p->model->credit > 0 && p->run < RECENT && !adopted &&
                              optimistic_rate(p, &p->trial) > best->rate * MARGIN);
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
        memset(sharers, 0, N_DRAFTERS * sizeof *sharers);
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
        for (size_t k = 0; k < N_DRAFTERS; k++)
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
    for (size_t k = 0; k < N_DRAFTERS; k++)
        drafting += sharers[k];
    for (size_t i = 0; i < n; i++)
        drafting += p[i]->exploring && !p[i]->plan.passes;
    for (size_t i = 0; i < n; i++) {
        struct planner *x = p[i];
        begins[i] = m->look && !x->exploring && x->rounds >= SETTLED;
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
    size_t sharers[N_DRAFTERS], n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (all[i]->on && all[i]->price > 0)
            p[n++] = all[i];
    m->look = m->rounds++ % LOOKS == 0 && m->credit >= CREDIT / 2;
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
           p->price * factor(p) * cache * (cost_size(m, rows + 1) - cost_size(m, rows));
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
        value += gain[k] - weights * (cost_weights(m, all + 1) - cost_weights(m, all));
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
        p->ask[a].n > 0 ? p->ask[a].seconds * exp(cost_off(now, p->ask[a].seconds) / (p->ask[a].n + 1))
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
        expected *= cost_draft_share(p->model, r, p->length, n) /
                    cost_draft_share(p->model, r, p->length, sharers);
    k->n = MIN(k->n + 1, RECENT);
    if (expected > 0)
        k->seconds *= exp(cost_off(seconds, expected) / (k->n + 1));
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
    if (p->on && m->seen[0] == 0 && all_rows == 1 && typical)
        cost_first(m, length, seconds);
    if (p->on && p->price > 0 && typical && rows == 1 && all_rows == p->n_texts && all_rows > 1 &&
        !plan_drafts(&p->plan) && m->seen[cost_size_of(all_rows)] == 0)
        cost_first_of_size(m, all_rows, length, seconds);
    if (p->on && p->price > 0)
        p->predicted += exp(m->speed) * cost_pass(m, length, p->n_texts, rows, all_rows);
    p->rows = typical ? rows : 0;
}

void planner_done(struct planner *p, size_t tokens, double expected)
{
    const bool drafts = plan_drafts(&p->plan);
    const double fade = 1 - 1.0 / RECENT, idle = 1 - 1.0 / LONG;
    if (++p->rounds == AFTER_PROMPT)
        cost_doubt(p->model, p->n_texts);
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
    cost_learn(m, (double)rows, drafts / predicted, seconds, predicted);
    return predicted;
}

void planner_start(struct planner *p, struct cost_model *m, const struct planner_setup *s)
{
    if (m->weight_bytes == 0)
        cost_start(m, s->weight_bytes, s->kv_bytes, &s->experts);
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
