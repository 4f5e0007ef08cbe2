/* Statistics of drafting: sums over rounds, windows of 1,000 tokens, and the counters of the store that they
 * are. Start reading at stats_add(). */
#include "src/decode/stats.h"

#include <stdlib.h>
#include <string.h>

size_t stats_bytes(size_t n_max) { return (n_max / STATS_WINDOW + 1) * sizeof(struct window_stats); }

int stats_open(struct draft_stats *s, size_t n_max, struct err *e)
{
    *s = (struct draft_stats){ .n_windows = n_max / STATS_WINDOW + 1 };
    s->window = calloc(s->n_windows, sizeof *s->window);
    return s->window ? 0 : err_set(e, ERR_FAILED, "out of memory for the statistics of %zu tokens", n_max);
}

void stats_close(struct draft_stats *s)
{
    free(s->window);
    *s = (struct draft_stats){0};
}

void stats_clear(struct draft_stats *s)
{
    struct window_stats *w = s->window;
    size_t n = s->n_windows;
    memset(w, 0, n * sizeof *w);
    *s = (struct draft_stats){ .window = w, .n_windows = n };
}

/* A round that crosses the border of two windows counts in both, in proportion to its tokens. */
static void add_windows(struct draft_stats *s, const struct round *r, size_t tokens)
{
    for (size_t at = s->from + s->tokens, end = at + tokens; at < end;) {
        struct window_stats *w = &s->window[MIN(at / STATS_WINDOW, s->n_windows - 1)];
        size_t n = MIN(end, (at / STATS_WINDOW + 1) * STATS_WINDOW) - at;
        w->seconds += r->seconds * (double)n / (double)tokens;
        w->rounds += (double)n / (double)tokens;
        w->tokens += n;
        at += n;
    }
}

/* Whether a candidate was proposed for verification, and not only to learn its chance. */
static bool is_for_verification(const struct round *r, const struct node *k)
{
    return !r->probe || k->reach >= r->min_reach || k->row >= 0;
}

size_t round_drafted(const struct round *r)
{
    size_t n = 0;
    for (size_t i = 1; i < r->tree->n; i++)
        n += is_for_verification(r, &r->tree->node[i]);
    return n;
}

size_t round_depth(const struct round *r)
{
    size_t depth = 0;
    for (size_t i = 1; i < r->tree->n_kept; i++)
        depth = MAX(depth, (size_t)r->tree->node[r->tree->kept[i]].depth);
    return depth;
}

static bool has_verified_child(const struct tree *t, const struct node *k)
{
    uint32_t c = k->first;
    while (c && t->node[c].row < 0)
        c = t->node[c].next;
    return c;
}

/* Whether one chain of a 4-gram covers node n of the path and all candidates before it (TokenSwift eq. 6). A
 * chain that proposed a node proposed its ancestors, up to the leading token, which may be another's. */
static bool is_one_ngram(const struct round *r, size_t n)
{
    const struct node *k = round_node(r, n);
    unsigned sources = k->sources;
    for (uint32_t c = k->first; c && n == 1; c = r->tree->node[c].next)
        sources |= r->tree->node[c].sources;
    return sources >> DRAFTER_NGRAM & 1;
}

void stats_add(struct draft_stats *s, const struct round *r, size_t tokens)
{
    assert(tokens <= r->tokens);
    if (tokens == 0)
        return;
    const size_t accepted = MIN(tokens, r->tokens - 1);
    const struct tree *t = r->tree;
    add_windows(s, r, tokens);
    s->tokens += tokens;
    s->rounds++;
    s->drafted += round_drafted(r);
    s->verified_rows += t->n_kept;
    s->accepted += accepted;
    s->drafted_depth += round_depth(r);
    s->beta_accepted += accepted && is_one_ngram(r, accepted) ? accepted : 0;
    s->draft_passes += r->passes;
    s->refreshes += r->selects;
    s->to_host += r->to_host;
    /* nothing was reached after the last token of the text */
    for (size_t d = 1; d <= TREE_DEPTH_MAX && d <= tokens; d++) {
        s->reached[d] += has_verified_child(t, round_node(r, d - 1));
        s->accepted_at[d] += d <= accepted;
    }
    s->histogram[MIN(tokens, (size_t)TREE_DEPTH_MAX + 1)]++;
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        for (size_t k = 1; k < t->n; k++)
            s->source_drafted[i] += t->node[k].sources >> i & is_for_verification(r, &t->node[k]);
        for (size_t k = 0; k < accepted; k++)
            s->source_accepted[i] += round_sources(r, k) >> i & 1;
    }
    s->seconds += r->seconds;
    s->draft += r->draft;
    s->verify += r->verify;
    s->control += r->control;
    s->plain += r->plain * (double)tokens;
    if (r->predicted > 0) {
        s->predicted_rounds++;
        s->predicted += r->predicted;
        s->measured += r->seconds - r->calibrating;
    }
}

/* The counters: a number, seconds, numbers by depth from 1 on, or numbers by drafter. */
enum counter_kind { NUMBER, SECONDS, PER_DEPTH, PER_SOURCE };
#define COUNTER(name, field, kind, n) { name, offsetof(struct draft_stats, field), kind, n }
static const struct counter {
    const char *name;
    size_t offset;
    enum counter_kind kind;
    size_t n;
} counters[] = {
    COUNTER("tokens", tokens, NUMBER, 1),
    COUNTER("rounds", rounds, NUMBER, 1),
    COUNTER("drafted", drafted, NUMBER, 1),
    COUNTER("verified_rows", verified_rows, NUMBER, 1),
    COUNTER("accepted", accepted, NUMBER, 1),
    COUNTER("drafted_depth", drafted_depth, NUMBER, 1),
    COUNTER("beta_accepted", beta_accepted, NUMBER, 1),
    COUNTER("draft_passes", draft_passes, NUMBER, 1),
    COUNTER("refreshes", refreshes, NUMBER, 1),
    COUNTER("seconds", seconds, SECONDS, 1),
    COUNTER("draft_seconds", draft, SECONDS, 1),
    COUNTER("verify_seconds", verify, SECONDS, 1),
    COUNTER("control_seconds", control, SECONDS, 1),
    COUNTER("plain_seconds", plain, SECONDS, 1),
    COUNTER("predicted_rounds", predicted_rounds, NUMBER, 1),
    COUNTER("predicted_seconds", predicted, SECONDS, 1),
    COUNTER("measured_seconds", measured, SECONDS, 1),
    COUNTER("reached", reached, PER_DEPTH, TREE_DEPTH_MAX + 1),
    COUNTER("accepted_at", accepted_at, PER_DEPTH, TREE_DEPTH_MAX + 1),
    COUNTER("histogram", histogram, PER_DEPTH, TREE_DEPTH_MAX + 2),
    COUNTER("drafted", source_drafted, PER_SOURCE, N_DRAFTERS),
    COUNTER("accepted", source_accepted, PER_SOURCE, N_DRAFTERS),
    { NULL, 0, NUMBER, 0 },
};

void stats_each(const struct draft_stats *s, stats_counter *take, void *ctx)
{
    size_t k = 0;
    for (const struct counter *c = counters; c->name; c++)
        for (size_t i = c->kind == PER_DEPTH; i < c->n; i++) {
            const void *field = (const char *)s + c->offset;
            const double value = c->kind == SECONDS ? *(const double *)field
                                                    : (double)((const size_t *)field)[i];
            const bool by_source = c->kind == PER_SOURCE;
            take(ctx, k++, by_source ? drafter_name(i) : "", c->name, by_source ? 0 : (unsigned)i, value);
        }
}
