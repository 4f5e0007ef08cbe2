/* The planner (planner.h). plan_round() is the decision; costs, acceptance rates and exploration provide what
 * it decides with. Start reading at planner_begin(). */
#include "src/decode/planner.h"

#include <math.h>
#include <string.h>

static const double EXPLORE_SHARE = 0.005;   /* of the time: what exploration may lose */
static const double MARGIN = 1.05;   /* rate over rate of the best plan: to change it, to begin a run */
static const double UNKNOWN = 0.5;   /* before anything is known: acceptance rate, tokens that heads gain */
static const double TRIFLE = 0.01;   /* the least acceptance rate that is kept */
static const double CHEAPER = 0.5;   /* the part of its price by bytes that a draft pass may take */
enum {
    REPLAN = 2,                      /* rounds that a plan of plain decoding holds */
    BUDGET = 6,                      /* one-row passes that a run of exploration may lose */
    RUN = 3,                         /* rounds: the shortest run of exploration */
    PROBES = 17,                     /* rounds between probes: no divisor of the periods of texts */
    AFTER_PROMPT = 128,              /* rounds in which the CPU's caches still hold data of the prefill */
    RECENT = 200,                    /* rounds that means remember */
    LONG = 3000,                     /* rounds that the counts of an idle drafter remember */
    PRIOR = 4,                       /* observations that the prior of an acceptance rate is worth */
    CAREFUL = 32,                    /* tokens that the prior of a token count is worth */
    HEADS = 1 << DRAFTER_HEADS | 1 << HEADS_AHEAD,
};

/* ---- the plan of a round ---- */

bool plan_drafts(const struct plan *p) { return p->passes > 0 || p->drafters & HEADS; }

static void add_drafter(struct plan *p, size_t a, const struct plan_input *x)
{
    p->drafters |= 1u << a;
    p->tokens += MAX(x->gain[p->passes > 0][a], 0);
    p->seconds += x->propose[a];
}

/* The best number of draft passes over one cache, with heads or without. */
static struct plan best_draft_length(const struct plan_input *x, size_t cache, bool heads)
{
    const struct plan_limits *l = &x->limits;
    const size_t made = cache != NO_CACHE && x->most[cache - 1] ? x->most[cache - 1] : (size_t)PASSES_MAX,
                 most = cache == NO_CACHE ? 0 : MIN(l->depth, MIN(x->rows_max - 1, made)),
                 to = l->passes >= 0 ? MIN((size_t)l->passes, most) : most,
                 from = l->passes >= 0 ? to : MIN((size_t)(cache != NO_CACHE), to);
    struct plan best = { 0 };
    double tokens = 1, reach = 1;
    for (size_t k = 0; k <= to; k++) {
        tokens += k ? reach *= x->acceptance[cache - 1] : 0;
        struct plan p = { .cache = cache, .passes = k, .tokens = tokens,
                          .seconds = x->pass[k + 1] + (k ? (double)k * x->draft[cache - 1] : 0) };
        if (heads)
            add_drafter(&p, DRAFTER_HEADS, x);
        if (k >= from && p.tokens * best.seconds >= best.tokens * p.seconds)
            best = p;
    }
    return best;
}

/* Adds every other drafter that gains more than its time is worth. */
static struct plan with_drafters(struct plan p, const struct plan_input *x)
{
    const struct plan_limits *l = &x->limits;
    for (size_t a = 0; a < PROPOSERS; a++) {
        const size_t source = a == HEADS_AHEAD ? DRAFTER_HEADS : a;
        const bool may =
            l->drafters >> source & 1 && a != DRAFTER_HEADS && (a != HEADS_AHEAD || p.passes);
        if (may &&
            (l->required >> a & 1 || x->gain[p.passes > 0][a] * p.seconds > p.tokens * x->propose[a]))
            add_drafter(&p, a, x);
    }
    p.seconds *= plan_drafts(&p) ? x->drafted : 1;
    p.rate = x->made[plan_drafts(&p)] * p.tokens / p.seconds;
    return p;
}

struct plan plan_round(const struct plan_input *x)
{
    const struct plan_limits *l = &x->limits;
    const bool may = l->drafters >> DRAFTER_HEADS & 1, must = l->required >> DRAFTER_HEADS & 1;
    struct plan best = { 0 };
    double top = 0;
    for (size_t i = 0; i < 2 * (x->n_caches + 1); i++) {
        const size_t cache = i / 2;
        const bool heads = i % 2;
        if (!(l->caches >> cache & 1) || (heads ? !may : must))
            continue;
        const struct plan p = with_drafters(best_draft_length(x, cache, heads), x);
        const bool same = cache == l->last.cache && heads == (l->last.drafters >> DRAFTER_HEADS & 1);
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

void planner_draft_bytes(struct planner *p, const struct draft_cost *reads)
{
    cost_forget_drafts(p->model);
    for (size_t i = 0; i < p->in.n_caches; i++) {
        p->reads[i] = reads[i];
        p->cache[i].n = p->cache[i].seconds = 0;
    }
    for (size_t a = 0; a < PROPOSERS; a++)
        if (HEADS >> a & 1)
            p->propose[a].n = p->propose[a].seconds = 0;
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
    for (size_t i = 0; i < p->in.n_caches; i++) {
        const struct draft_cost *r = &p->reads[i];
        const size_t last = m->sharers[r->maker], all = sharers ? sharers : last ? last : p->n_texts,
                     n = MIN(all, p->n_texts);
        p->in.draft[i] *= cost_draft_share(m, &r->pass, p->length, n) /
                             cost_draft_share(m, &r->pass, p->length, MAX(p->in.sharers[i], (size_t)1));
        p->in.sharers[i] = n;
    }
}

static void set_costs(struct planner *p, size_t length)
{
    const struct cost_model *m = p->model;
    struct plan_input *c = &p->in;
    const double speed = exp(m->speed);
    memset(c->sharers, 0, sizeof c->sharers);
    for (size_t r = 1, n = p->n_texts; r <= c->rows_max; r++)
        c->pass[r] = speed * cost_pass(m, length, n, r, r * n);
    for (size_t i = 0; i < c->n_caches; i++) {
        struct cache_known *k = &p->cache[i];
        const struct draft_cost *r = &p->reads[i];
        const double bytes = r->pass.weights + cost_cache_bytes(&r->pass, length);
        /* seconds per byte at speed 1; before the first pass, those of a one-row pass */
        if (k->n == 0)
            k->seconds = m->size[0];
        c->most[i] = r->most;
        c->draft[i] = speed * k->seconds * bytes;
    }
    for (size_t a = 0; a < PROPOSERS; a++)
        c->propose[a] = speed * (p->propose[a].n > 0 ? p->propose[a].seconds
                                 : HEADS >> a & 1    ? p->heads_share * m->size[0] * m->weight_bytes
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
    return next < COST_SIZES && cost_rows(next) <= MIN(p->in.rows_max, left) ? next : COST_SIZES;
}

void planner_timed(struct planner *p, size_t i, size_t length, double seconds)
{
    cost_timed(p->model, i, length, seconds);
}

/* ---- acceptance rates ---- */

static void set_acceptance(struct planner *p)
{
    struct plan_input *x = &p->in;
    for (size_t i = 0; i < x->n_caches; i++)
        x->acceptance[i] = (p->cache[i].accepted + PRIOR * UNKNOWN) / (p->cache[i].guesses + PRIOR);
    for (size_t d = 0; d < 2; d++) {
        for (size_t a = 0; a < PROPOSERS; a++)
            x->gain[d][a] = p->gain[d][a].mean;
        x->made[d] = (p->tokens[d].made + CAREFUL) / (p->tokens[d].planned + CAREFUL);
    }
}

/* Raises the acceptance rates of what `limits` allow or require to the most that may be assumed. */
static struct plan_input optimistic(const struct planner *p, const struct plan_limits *limits)
{
    struct plan_input x = p->in;
    x.limits = *limits;
    if (limits->required & HEADS)
        for (size_t d = 0; d < 2; d++)
            for (size_t a = 0; a < PROPOSERS; a++)
                x.gain[d][a] += HEADS >> a & 1 ? UNKNOWN * PRIOR / (p->gain[d][a].n + PRIOR) : 0;
    else if (limits->caches == 1u << NO_CACHE)
        x.made[0] *= exp(2 * sqrt(p->model->var[0]));
    else {
        x.made[1] *= exp(sqrt(p->model->var[2]));
        for (size_t i = 0; i < x.n_caches; i++) {
            const double rate = x.acceptance[i], n = p->cache[i].guesses + PRIOR,
                         most = p->reads[i].acceptance_max > 0 ? p->reads[i].acceptance_max : 1 - TRIFLE;
            x.acceptance[i] = MIN(rate + 2 * sqrt(rate * (1 - rate) / n), MAX(rate, most));
        }
    }
    return x;
}

double planner_acceptance(const struct planner *p)
{
    return (p->exploring ? &p->trial : &p->in)->acceptance[p->plan.cache - 1];
}

/* ---- exploration ---- */

static double optimistic_rate(const struct planner *p, const struct plan_limits *limits)
{
    struct plan_input x = optimistic(p, limits);
    for (size_t i = 0; i < x.n_caches; i++)
        x.draft[i] *= p->cache[i].n > 0 ? 1 : CHEAPER;
    return plan_round(&x).rate;
}

/* Whether a trial is worth a run: another cache than the best plan's, or heads with that cache. Takes the one
 * with the highest optimistic rate into p->trial. */
static bool begins_run(struct planner *p)
{
    const struct plan_limits *l = &p->in.limits;
    const struct plan *best = &p->plan;
    double most = best->rate * MARGIN;
    p->run = 0;
    for (size_t i = 0; i <= p->in.n_caches + 1; i++) {
        struct plan_limits x = *l;
        const bool heads = i > p->in.n_caches;
        x.caches = 1u << (heads ? best->cache : i);
        x.required |= heads ? HEADS : 0;
        if (heads ? !(l->drafters >> DRAFTER_HEADS & 1) || best->drafters & HEADS
                  : !(l->caches & x.caches) || i == best->cache)
            continue;
        const double rate = optimistic_rate(p, &x);
        if (rate > most)
            p->trial.limits = x, most = rate;
    }
    return most > best->rate * MARGIN;
}

static bool goes_on(struct planner *p)
{
    struct plan_limits *l = &p->trial.limits;
    const struct plan *best = &p->plan;
    const bool adopted = l->caches >> best->cache & 1 &&
                         (best->drafters & l->required) == (l->required & p->in.limits.drafters);
    l->depth = p->in.limits.depth;
    return ++p->run < RUN || (p->model->budget > 0 && p->run < RECENT && !adopted &&
                              optimistic_rate(p, l) > best->rate * MARGIN);
}

void planner_begin(struct planner *p, size_t length, size_t n_texts, struct plan_limits limits)
{
    struct cost_model *m = p->model;
    /* planning takes a hundredth of a short pass */
    const bool holds = p->price > 0 && n_texts == p->n_texts && !p->exploring && !p->plan.probe &&
                       !p->plan.passes && !p->plan.drafters && p->rounds % REPLAN;
    p->n_texts = n_texts;
    p->length = length;
    p->predicted = p->prepared = 0;
    p->rows = p->made = 0;
    limits.last = p->plan;
    p->in.limits = limits;
    if (holds)
        return;
    if (!p->on || m->seen[0] == 0) {
        const size_t passes = MIN((size_t)MAX(limits.passes, 0), (size_t)PASSES_MAX);
        p->plan =
            (struct plan){ .cache = passes > 0, .passes = passes, .drafters = p->on ? 0 : limits.drafters };
        return;
    }
    set_costs(p, length);
    set_acceptance(p);
    p->plan = plan_round(&p->in);
    if (p->price == 0)
        m->budget = MIN(m->budget + (double)BUDGET / (double)n_texts, BUDGET);
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
                sharers[p[i]->reads[p[i]->plan.cache - 1].maker]++;
        again = false;
        for (size_t i = 0; i < n; i++) {
            const size_t cache = p[i]->plan.cache,
                         now = p[i]->plan.passes ? sharers[p[i]->reads[cache - 1].maker] : 0;
            if (now && now < p[i]->in.sharers[cache - 1]) {
                share_passes(p[i], now);
                p[i]->plan = plan_round(&p[i]->in);
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
        begins[i] = m->probe && !x->exploring;
        now += begins[i];
        if (x->exploring) {
            share_passes(x, drafting);
            x->exploring = goes_on(x);
        }
    }
    while (now != last) {
        last = now;
        now = 0;
        for (size_t i = 0; i < n; i++)
            if (begins[i]) {
                share_passes(p[i], MIN(drafting + last, n));
                now += begins[i] = begins_run(p[i]);
            }
    }
    for (size_t i = 0; i < n; i++) {
        p[i]->exploring |= begins[i];
        if (!p[i]->exploring && p[i]->plan.passes)
            share_passes(p[i], sharers[p[i]->reads[p[i]->plan.cache - 1].maker]);
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
    m->probe = m->rounds++ % PROBES == 0 && m->budget >= BUDGET / 2;
    if (n == 0)
        return;
    settle(p, n, sharers);
    if (m->rounds % PROBES == 0)          /* the next round assumes again that all texts draft */
        memset(m->sharers, 0, sizeof m->sharers);
    for (size_t i = 0; i < n; i++) {
        tokens += p[i]->plan.rate * p[i]->plan.seconds, seconds += p[i]->plan.seconds;
    }
    explore(p, n, sharers);
    for (size_t i = 0; i < n; i++) {
        struct planner *x = p[i];
        x->price = tokens / seconds;
        if (x->exploring) {
            /* the optimism may be wrong, so chains are short at first and grow with the run */
            x->trial.limits.depth = MIN(x->in.limits.depth, x->run + 1);
            x->trial = optimistic(x, &x->trial.limits);
            x->plan = plan_round(&x->trial);
        }
        x->plan.probe = m->probe;
        x->plan.drafters |= m->probe ? x->in.limits.drafters & ~(unsigned)HEADS : 0;
    }
}

/* ---- during and after a round ---- */

/* The factor of the costs of this round. */
static double factor(const struct planner *p) { return plan_drafts(&p->plan) ? p->in.drafted : 1; }

/* Tokens made for each token that the trees expected. */
static double tree_bias(const struct planner *p)
{
    return (p->candidates.made + CAREFUL) / (p->candidates.planned + CAREFUL);
}

static double best_value(const struct planner *p, const float *reach, size_t n, size_t *rows)
{
    const double each = p->price * factor(p), bias = tree_bias(p);
    double tokens = 1, best = 1 - each * p->in.pass[1];
    *rows = 1;
    for (size_t i = 0; i < n && i + 2 <= p->in.rows_max; i++) {
        tokens += bias * reach[i];
        if (tokens - each * p->in.pass[i + 2] > best)
            best = tokens - each * p->in.pass[i + 2], *rows = i + 2;
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
    const double cache = exp(m->speed) * cost_kv(m, p->length);
    return tree_bias(p) * p->reach[rows - 1] -
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
        most[i] = p[i]->on ? MIN(most[i], p[i]->in.rows_max) : 0;
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
    for (size_t r = 1; r < MIN(p->in.rows_max, (size_t)PASSES_MAX); r++)
        least = MIN(least, p->price * (p->in.pass[r + 1] - p->in.pass[r]));
    return MAX(least, TRIFLE);
}

bool planner_pass_pays(const struct planner *p, const struct tree *t, double reach)
{
    float all[TREE_POOL_MAX + PASSES_MAX];
    size_t rows, n = tree_reaches(t, all);
    const double now = best_value(p, all, n, &rows), rate = planner_acceptance(p),
                 each = p->price * factor(p) * p->in.draft[p->plan.cache - 1];
    bool pays = p->exploring && reach == 1;      /* a run of exploration has something to learn */
    for (size_t more = 1; more <= PASSES_MAX / 2 && !pays; more++) {
        size_t at = n++;
        for (reach *= rate; at > 0 && (double)all[at - 1] < reach; at--)
            all[at] = all[at - 1];
        all[at] = (float)reach;
        pays = best_value(p, all, n, &rows) - (double)more * each > now;
    }
    return pays;
}

bool planner_row_pays(const struct planner *p, double reach, double seconds)
{
    return reach * planner_acceptance(p) - planner_min_reach(p) > p->price * factor(p) * seconds;
}

void planner_proposed(struct planner *p, size_t a, double before, double after, double seconds)
{
    struct gain *g = &p->gain[p->plan.passes > 0][a];
    const double now = seconds / exp(p->model->speed), known = p->propose[a].seconds, n = p->propose[a].n;
    p->propose[a].seconds = n > 0 ? known * exp(cost_off(now, known) / (n + 1)) : now;
    p->propose[a].n = MIN(n + 1, RECENT);
    g->n = MIN(g->n + 1, RECENT);
    g->mean += (after - before - g->mean) / (g->n + PRIOR);
    p->predicted += p->in.propose[a];
    if (p->plan.probe && p->price > 0)
        p->model->budget -= seconds / (p->in.pass[1] * (double)p->n_texts);
}

void planner_passed(struct planner *p, size_t n, double seconds)
{
    struct cache_known *k = &p->cache[p->plan.cache - 1];
    const struct draft_cost *r = &p->reads[p->plan.cache - 1];
    const size_t sharers = p->in.sharers[p->plan.cache - 1];
    double expected = p->in.draft[p->plan.cache - 1];
    if (n != sharers && expected > 0)        /* more or fewer texts than planned asked for this pass */
        expected *= cost_draft_share(p->model, &r->pass, p->length, n) /
                    cost_draft_share(p->model, &r->pass, p->length, sharers);
    k->n = MIN(k->n + 1, RECENT);
    if (expected > 0)
        k->seconds *= exp(cost_off(seconds, expected) / (k->n + 1));
    p->predicted += expected;
}

void planner_guessed(struct planner *p, bool accepted)
{
    struct cache_known *k = &p->cache[p->plan.cache - 1];
    const double keep = 1 - 1.0 / (RECENT * PRIOR);
    k->accepted = keep * k->accepted + accepted;
    k->guesses = keep * k->guesses + 1;
}

void planner_verified(struct planner *p, size_t length, size_t rows, size_t all_rows, double seconds,
                      bool typical)
{
    struct cost_model *m = p->model;
    if (p->on && m->seen[0] == 0 && all_rows == 1 && typical)
        cost_first(m, length, seconds);
    if (p->on && p->price > 0)
        p->predicted += exp(m->speed) * cost_pass(m, length, p->n_texts, rows, all_rows);
    p->rows = typical ? rows : 0;
}

void planner_done(struct planner *p, size_t tokens, double expected)
{
    const bool drafts = plan_drafts(&p->plan);
    const double fade = 1 - 1.0 / RECENT, idle = 1 - 1.0 / LONG;
    if (++p->rounds == AFTER_PROMPT)
        cost_split_unknown(p->model, p->n_texts);
    p->candidates.planned = fade * p->candidates.planned + expected;
    p->candidates.made = fade * p->candidates.made + (double)(tokens - 1);
    p->made = tokens;
    if (!p->on || p->price == 0)
        return;
    if (p->rows) {
        double planned = 1, reach = 1;
        for (size_t k = 0; k < p->plan.passes; k++)
            planned += reach *= p->in.acceptance[p->plan.cache - 1];
        for (size_t a = 0; a < PROPOSERS; a++)
            planned += p->plan.drafters >> a & 1 ? MAX(p->in.gain[p->plan.passes > 0][a], 0) : 0;
        p->tokens[drafts].made = fade * p->tokens[drafts].made + (double)tokens;
        p->tokens[drafts].planned =
            fade * p->tokens[drafts].planned + planned * p->predicted * factor(p) / p->plan.seconds;
    }
    for (size_t a = 0; a < PROPOSERS; a++)
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
            unit += p[i]->in.pass[1];
            worth += (double)p[i]->made / p[i]->price;
        }
    if (exploring)
        m->budget -= (MIN(seconds - prepared, 2 * planned) + prepared - worth) / unit;
    else if (unit > 0)
        m->budget = MIN(m->budget + EXPLORE_SHARE * seconds / unit, BUDGET);
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
    if (m->weight_bytes == 0) {
        cost_start(m, s->weight_bytes, s->kv_bytes, &s->experts);
        m->windowed_bytes = s->windowed_bytes, m->window = s->window;
    }
    *p = (struct planner){ .on = s->on,
                           .model = m,
                           .heads_share = s->heads_share,
                           .n_texts = 1,
                           .in = { .rows_max = MIN(s->rows_max, (size_t)TREE_ROWS_MAX),
                                   .n_caches = s->n_caches } };
    memcpy(p->reads, s->reads, sizeof p->reads);
}
