/* Drafters that ask the model: its heads on what verification left behind, and draft passes over the partial cache. */
#include <math.h>
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/planner.h"

/* ---- heads on the hidden state of the last verified row ---- */

/* The state stands at the position before the root: head 0 guesses the token behind the root. */
static int heads_expand(struct drafting *g, bool *more, struct err *e)
{
    (void)e;
    *more = false;
    if (!g->have_hidden)
        return 0;
    size_t n = g->set.n_width ? MIN(g->heads->n, g->set.n_width) : g->heads->n;
    heads_forward(g->heads, g->small, g->hidden, 1, n, g->logits, g->heads_scratch);
    draft_propose_heads(g, 0, g->logits, n, GUESS_VERIFIED);
    return 0;
}

static void heads_observe(struct drafting *g, const struct observed *o)
{
    g->have_hidden = o->hidden != NULL;
    if (o->hidden)
        g->model->dev->copy(g->model->dev, g->hidden, o->hidden, g->model->config.hidden * sizeof *g->hidden);
}

static void heads_reset(struct drafting *g) { g->have_hidden = false; }

const struct drafter_ops draft_heads = { .source = SOURCE_HEADS, .expand = heads_expand,
                                         .observe = heads_observe, .reset = heads_reset };

/* ---- draft passes over the partial cache ---- */

/* The child that a further pass stands at: the likeliest one. */
static uint32_t best_child(const struct tree *t, uint32_t node)
{
    uint32_t best = 0;
    for (uint32_t c = t->node[node].first; c; c = t->node[c].next)
        if (!best || t->node[c].p > t->node[best].p)
            best = c;
    return best;
}

double draft_pass_reach(const struct drafting *g)
{
    uint32_t node = g->passes ? best_child(g->tree, g->pass_node) : 0;
    const struct partial *p = &g->partial;
    bool waits = p->work && !p->filled && p->full->n_past > p->budget && !g->set.n_width;
    return (g->passes && !node) || waits ? 0 : g->tree->node[node].reach;
}

static double bytes_seconds(const struct drafting *g, const struct control *c, const struct budget_arm *a)
{
    return control_pass_seconds(c, (double)g->small->weight_bytes, MIN(a->budget, g->kv->n_past));
}

static double pass_seconds(const struct drafting *g, const struct control *c, const struct budget_arm *a)
{
    return a->n ? a->seconds : bytes_seconds(g, c, a);
}

void draft_pass_expects(const struct drafting *g, const struct control *c, double *p, double *seconds)
{
    *p = g->arm[g->at_arm].hit;
    *seconds = pass_seconds(g, c, &g->arm[g->at_arm]);
}

static int partial_expand(struct drafting *g, bool *more, struct err *e)
{
    struct tree *t = g->tree;
    struct kv *kv = partial_kv(&g->partial);
    const size_t n_past = kv->n_past, at = n_past + g->passes;
    uint32_t node = g->passes ? best_child(t, g->pass_node) : 0;
    *more = false;
    if (g->passes == DRAFT_PASSES_MAX || (g->passes && !node) || t->node[node].depth >= t->max_depth ||
        at >= kv->n_max)
        return 0;
    struct pass_seq seq = { .kv = kv, .n = 1, .token = &t->node[node].token, .shift = g->kv->n_past - n_past,
                            .logits = g->logits };
    double start = clock_seconds();
    struct device *dev = g->model->dev;
    struct ranking r;
    kv->n_past = at;
    int rc = model_forward_begin(g->small, g->work, &seq, 1, e);
    double seconds = clock_seconds() - start;
    g->passes++;
    if (rc == 0) {
        draft_rank(g, &node, 1, g->logits, draft_width(g, node), &r);
        rc = model_forward_end(g->small, g->work, &seq, 1, e);
    }
    kv->n_past = n_past;
    if (!dev->host_memory)
        seconds = clock_seconds() - start;   /* the end of the pass is seen with the ranking */
    struct budget_arm *arm = &g->arm[g->at_arm];
    arm->seconds += (seconds - arm->seconds) / (double)MIN(++arm->n, (size_t)40);
    if (rc) {                                /* nothing but guesses is lost; no NaN may stay in a slot */
        g->passes--;
        kv_truncate(kv, n_past);
        return 0;
    }
    g->pass_node = node;
    if (g->heads)
        dev->copy(dev, g->pass_hidden, workspace_residual(g->work),
                  g->model->config.hidden * sizeof *g->pass_hidden);
    size_t added = draft_add(g, &node, 1, &r, draft_width(g, node), SOURCE_PARTIAL, GUESS_PASS, 0);
    /* with a controller the heads are asked once, behind the last pass */
    if (g->set.n_width && !draft_ahead(g))
        for (uint32_t c = t->node[node].first; c; c = t->node[c].next)
            tree_chain(t, c);
    *more = added > 0;
    return 0;
}

bool draft_ahead(struct drafting *g)
{
    const struct tree *t = g->tree;
    const size_t vocab = g->model->config.vocab, depth = t->node[g->pass_node].depth;
    size_t n = g->heads && g->set.drafters >> SOURCE_HEADS & 1 ? g->heads->n : 0;
    if (g->set.n_width)
        n = MIN(n, g->set.n_width - MIN(g->set.n_width, depth + 1));
    uint32_t next = g->passes ? best_child(t, g->pass_node) : 0;
    if (!n || !next)
        return false;
    heads_forward(g->heads, g->small, g->pass_hidden, 1, n, g->logits + vocab, g->heads_scratch);
    if (!g->set.n_width)
        draft_propose_heads(g, next, g->logits + vocab, n, GUESS_AHEAD);
    for (uint32_t c = t->node[g->pass_node].first; c && g->set.n_width; c = t->node[c].next)
        if (t->node[c].sources >> SOURCE_PARTIAL & 1)
            draft_propose_heads(g, c, g->logits + vocab, n, GUESS_AHEAD);
    return true;
}

/* share of what speaks against draft passes that is forgotten with each trial that it puts off or ends */
static const double HOPE_AGAIN = 0.14;
enum { ARM_TRIALS = 256, ARM_PASSES = 16, ARM_STALE = 10000 };    /* passes to know a budget by, and its price; rounds after which it may be looked at again */

/* Whether the budget at hand, which is not known yet, could still be the best: with as many more guesses that come true as chance may have hidden. Another
 * one that is better for certain ends the trial: what a poor budget costs would count against drafting at all. */
static bool may_be_best(const struct drafting *g, const struct control *c)
{
    const struct budget_arm *a = &g->arm[g->at_arm];
    const double p = MIN(a->hit, HOPE), hit = MIN(p + 2 * sqrt(p * (1 - p) / (double)(a->trials + 8)), 0.99);
    const double most = control_chain_value(c, hit, a->seconds);
    if (a->n < ARM_PASSES)
        return true;
    for (size_t i = 0; i < g->n_arms; i++)
        if (g->arm[i].n >= ARM_TRIALS && i != g->at_arm &&
            control_chain_value(c, g->arm[i].hit, g->arm[i].seconds) > most)
            return false;
    return true;
}

static bool is_known(const struct budget_arm *a) { return a->n >= ARM_TRIALS && a->idle <= ARM_STALE; }

/* A trial of drafting is no time to try another budget, if one is known to pay: drafting would be judged by what the other one costs. It pays if it is
 * better than plain decoding and than the rate that has been reached so far (a value of 0), perhaps without draft passes. */
static bool has_to_win(const struct drafting *g, const struct control *c)
{
    const double without = control_chain_value(c, 0, 0);
    if (c->mode == c->better)
        return false;
    for (size_t i = 0; i < g->n_arms && g->arm[i].budget < g->kv->n_past; i++)
        if (is_known(&g->arm[i]) &&
            control_chain_value(c, g->arm[i].hit, g->arm[i].seconds) > MAX(without, 0) + 0.05)
            return true;
    return false;
}

/* Seconds that the heads take before they were asked: their matrices and the LM head in a pass of as many rows. */
static double heads_seconds(const struct drafting *g, const struct control *c)
{
    const size_t n = g->heads->n, hidden = g->model->config.hidden;
    return (double)(hidden * (g->model->config.vocab + n * hidden)) / (double)g->model->n_params *
           c->t[MIN(n, c->rows_max)];
}

/* Chance of a guess of a pass over the partial cache with budget i: as known, or of one that is not at hand (or was long ago), what it could be at best. */
static double hoped(const struct drafting *g, size_t i)
{
    if (i == g->at_arm || is_known(&g->arm[i]))
        return g->arm[i].hit;
    return i == 0 ? HOPE : MAX(g->arm[i - 1].hit, 0.5 * (1 + g->arm[g->at_arm].hit));
}

double draft_could_gain(const struct drafting *g, const struct control *c)
{
    const bool partial = g->set.drafters >> SOURCE_PARTIAL & 1,
               heads = g->set.drafters >> SOURCE_HEADS & 1 && g->heads;
    const double without = control_chain_value(c, 0, 0);
    double most = -INFINITY;
    if (!(partial || heads) || g->set.draft_passes >= 0)
        return INFINITY;
    if (heads)
        most = control_knows(c, SOURCE_HEADS)
                   ? control_gain(c, SOURCE_HEADS)
                   : control_chain_value(c, HOPE_HEADS, 0) - c->lambda * heads_seconds(g, c) - without;
    for (size_t i = 0; i < g->n_arms; i++)
        most = MAX(most, control_chain_value(c, MIN(hoped(g, i), MAX(g->arm[i].hit, HOPE)),
                                             pass_seconds(g, c, &g->arm[i])) -
                             without);
    return most;
}

void draft_hope_again(struct drafting *g, const struct control *c)
{
    struct budget_arm *a = &g->arm[g->at_arm];
    if (c->stale && a->n)
        a->seconds = MIN(a->seconds, bytes_seconds(g, c, a));
    for (size_t i = 0; i < g->n_arms; i++)
        g->arm[i].hit += HOPE_AGAIN * MAX(HOPE - g->arm[i].hit, 0);
}

void draft_choose_budget(struct drafting *g, const struct control *c)
{
    double best = -1e9;
    size_t at = g->at_arm;
    /* of the last round. Not worth it lately: slowly believe again that it may be */
    if (!g->passes)
        g->arm[g->at_arm].hit += 0.0005 * (HOPE - g->arm[g->at_arm].hit);
    if (g->n_arms < 2 || g->kv->n_past <= g->arm[0].budget)
        return;
    for (size_t i = 0; i < g->n_arms; i++)
        g->arm[i].idle += i != g->at_arm;
    if (g->arm[g->at_arm].n < ARM_TRIALS && may_be_best(g, c))
        return;
    g->arm[g->at_arm].n = MAX(g->arm[g->at_arm].n, (size_t)ARM_TRIALS);
    const bool sure = has_to_win(g, c);
    for (size_t i = 0; i < g->n_arms && g->arm[i].budget < g->kv->n_past; i++) {
        const struct budget_arm *a = &g->arm[i];
        if (!is_known(a) && sure)
            continue;
        /* a change costs a selection */
        double value =
            control_chain_value(c, hoped(g, i), pass_seconds(g, c, a)) + (i == g->at_arm ? 0.05 : 0);
        if (value > best) {
            best = value;
            at = i;
        }
    }
    if (at != g->at_arm) {
        if (g->arm[at].idle > ARM_STALE)
            g->arm[at].n = MIN(g->arm[at].n, (size_t)ARM_TRIALS / 2);
        g->at_arm = at;
        g->arm[at].idle = 0;
        partial_change(&g->partial, g->arm[at].policy, g->arm[at].budget);
    }
}

void draft_learn(struct drafting *g, uint32_t node, int32_t sample)
{
    const struct tree *t = g->tree;
    calibrate_learn(&g->calibration, t, node, sample);
    for (uint32_t i = t->node[node].first; i; i = t->node[i].next)
        if (t->node[i].sources >> SOURCE_PARTIAL & 1 && cell_is_first(t->node[i].slot[SOURCE_PARTIAL])) {      /* the pass's first choice */
            struct budget_arm *a = &g->arm[g->at_arm];
            a->hit += ((t->node[i].token == sample) - a->hit) / (double)MIN(++a->trials + 8, (size_t)400);
            return;
        }
}

/* It follows in rounds that may have draft passes: 13 us beside a pass of 450, which rounds without them would pay for nothing. A cut has to be seen before the text has
 * grown again. */
static void partial_observe(struct drafting *g, const struct observed *o)
{
    (void)o;
    if (g->kv->n_past < g->partial.n_seen)
        partial_follow(&g->partial);
}

/* Whether a selection keeps more of what matters than the most recent rows do depends on the model and the text (models/demo: it does not). Means beside these are worth more
 * still (docs/bench.md), but are not for layers whose window hides what they stand for. */
static enum kv_policy unselected(const struct drafting *g)
{
    const struct config *c = &g->model->config;
    bool mean = g->model->dev->host_memory;
    for (size_t l = 0; l < c->n_layers; l++)
        mean &= !c->windowed[l];
    return mean ? KV_MEAN : KV_WINDOW;
}

static void add_arms(struct drafting *g, size_t budget)
{
    const enum kv_policy p = g->set.kv_policy;
    if (p == KV_AUTO && !g->set.kv_fixed)
        g->arm[g->n_arms++] = (struct budget_arm){ .policy = unselected(g), .budget = budget, .hit = HOPE };
    g->arm[g->n_arms++] = (struct budget_arm){ .policy = p == KV_AUTO ? KV_DYNAMIC : p, .budget = budget,
                                               .hit = HOPE };
}

static size_t partial_size(const struct draft_settings *s, const struct model *m, size_t n_max)
{
    const struct kv full = { .dev = m->dev, .type = m->dev->kv_type, .n_layers = m->config.n_layers,
                             .n_kv_heads = m->config.n_kv_heads, .head_dim = m->head_dim,
                             .n_max = n_max };
    return partial_bytes(&full, s->kv_policy, s->kv_budget, n_max);
}

static int partial_begin(struct drafting *g, size_t n_max, struct err *e)
{
    const struct draft_settings *s = &g->set;
    (void)n_max;
    for (size_t budget = 256;
         budget <= 1024 && !s->kv_fixed && budget > 2 * s->kv_sinks && budget < s->kv_budget; budget *= 4)
        add_arms(g, budget);
    add_arms(g, s->kv_budget);
    if (partial_open(&g->partial, g->kv, g->model->pool, g->arm[0].policy, s->kv_sinks, s->kv_budget, e))
        return -1;
    partial_change(&g->partial, g->arm[0].policy, g->arm[0].budget);
    return 0;
}

static void partial_end(struct drafting *g) { partial_close(&g->partial); }

/* The selection, and what is known of the budgets. */
struct known { struct budget_arm arm[BUDGET_ARMS]; size_t n_arms, at_arm, weight_bytes; };

static size_t known_bytes(const struct drafting *g)
{
    size_t n = partial_state_bytes(&g->partial);
    return n ? sizeof(struct known) + n : 0;
}

static size_t known_save(const struct drafting *g, void *out)
{
    struct known k;
    size_t n = partial_save(&g->partial, (char *)out + sizeof k);
    memset(&k, 0, sizeof k);
    memcpy(k.arm, g->arm, sizeof k.arm);
    k.n_arms = g->n_arms;
    k.at_arm = g->at_arm;
    k.weight_bytes = g->small->weight_bytes;
    memcpy(out, &k, sizeof k);
    return n ? sizeof k + n : 0;
}

static bool known_load(struct drafting *g, const void *state, size_t n)
{
    struct known k;
    if (n < sizeof k)
        return false;
    memcpy(&k, state, sizeof k);
    /* of what the times are */
    bool same = k.n_arms == g->n_arms && k.at_arm < k.n_arms && k.weight_bytes == g->small->weight_bytes;
    for (size_t i = 0; i < g->n_arms && same; i++)
        same = k.arm[i].policy == g->arm[i].policy && k.arm[i].budget == g->arm[i].budget;
    if (!same || !partial_load(&g->partial, (const char *)state + sizeof k, n - sizeof k))
        return false;
    memcpy(g->arm, k.arm, sizeof k.arm);
    g->at_arm = k.at_arm;
    return true;
}

/* Another text from the same token on: partial_observe notices a cache that was cut. */
const struct drafter_ops draft_partial = { .source = SOURCE_PARTIAL, .item = "partial cache",
                                           .bytes = partial_size, .open = partial_begin, .close = partial_end,
                                           .expand = partial_expand, .observe = partial_observe,
                                           .state_bytes = known_bytes, .save = known_save,
                                           .load = known_load };
