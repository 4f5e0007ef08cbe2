/* Statistics of drafting: sums over rounds, windows of 1,000 tokens, and their JSON. Start reading at
 * stats_add(). */
#include "src/decode/stats.h"

#include <math.h>
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
static void add_windows(struct draft_stats *s, const struct round_stats *r, size_t tokens)
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

void stats_add(struct draft_stats *s, const struct round_stats *r, size_t tokens)
{
    assert(tokens <= r->tokens);
    if (tokens == 0)
        return;
    const size_t accepted = MIN(tokens, r->tokens - 1);
    add_windows(s, r, tokens);
    s->tokens += tokens;
    s->rounds++;
    s->drafted += r->drafted;
    s->verified_rows += r->rows;
    s->accepted += accepted;
    s->drafted_depth += r->drafted_depth;
    s->beta_accepted += r->ngram_covers >= accepted ? accepted : 0;
    s->draft_passes += r->draft_passes;
    s->refreshes += r->refreshes;
    s->to_host += r->to_host;
    /* nothing was reached after the last token of the text */
    for (size_t d = 1; d <= TREE_DEPTH_MAX && d <= tokens; d++) {
        s->reached[d] += r->n_reached[d];
        s->accepted_at[d] += d <= accepted;
    }
    s->histogram[MIN(tokens, (size_t)TREE_DEPTH_MAX + 1)]++;
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        s->source_drafted[i] += r->source_drafted[i];
        for (size_t d = 0; d < accepted; d++)
            s->source_accepted[i] += r->path_sources[d] >> i & 1;
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

static void put_list(struct json_writer *w, const char *name, const size_t *v, size_t n)
{
    while (n > 1 && !v[n - 1])
        n--;
    jw_open(w, name, '[');
    for (size_t i = 1; i < n; i++)
        jw_uint(w, NULL, v[i]);
    jw_close(w, ']');
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }
static double share(size_t n, size_t of) { return of ? (double)n / (double)of : NAN; }

void stats_json(struct json_writer *w, const struct draft_stats *s, bool tree_fixed)
{
    jw_uint(w, "rounds", s->rounds);
    jw_format(w, "mean_acceptance_length", "%.4f", ratio((double)s->tokens, (double)s->rounds));
    jw_format(w, "alpha", "%.4f", share(s->accepted, s->drafted_depth));
    jw_format(w, "beta", "%.4f", share(s->beta_accepted, tree_fixed ? s->drafted_depth : 0));
    jw_uint(w, "drafted", s->drafted);
    jw_uint(w, "verified_rows", s->verified_rows);
    jw_uint(w, "accepted", s->accepted);
    jw_uint(w, "draft_passes", s->draft_passes);
    put_list(w, "reached_per_depth", s->reached, TREE_DEPTH_MAX + 1);
    put_list(w, "accepted_per_depth", s->accepted_at, TREE_DEPTH_MAX + 1);
    put_list(w, "acceptance_histogram", s->histogram, TREE_DEPTH_MAX + 2);
    jw_open(w, "sources", '{');
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (s->source_drafted[i]) {
            jw_open(w, drafter_name(i), '{');
            jw_uint(w, "drafted", s->source_drafted[i]);
            jw_uint(w, "accepted", s->source_accepted[i]);
            jw_close(w, '}');
        }
    jw_close(w, '}');
    jw_open(w, "time", '{');
    jw_format(w, "draft", "%.6f", s->draft);
    jw_format(w, "verify", "%.6f", s->verify);
    jw_format(w, "checkpoint", "%.6f", s->put);
    jw_format(w, "controller", "%.6f", s->control);
    jw_format(w, "other", "%.6f", s->seconds - s->draft - s->verify - s->control);
    jw_close(w, '}');
    jw_open(w, "seconds_per_round", '{');
    jw_format(w, "predicted", "%.9f", ratio(s->predicted, (double)s->predicted_rounds));
    jw_format(w, "measured", "%.9f", ratio(s->measured, (double)s->predicted_rounds));
    jw_uint(w, "rounds", s->predicted_rounds);
    jw_close(w, '}');
    jw_uint(w, "refreshes", s->refreshes);
    jw_open(w, "windows", '[');
    for (size_t i = s->from / STATS_WINDOW; i < s->n_windows && s->window[i].tokens; i++) {
        const struct window_stats *x = &s->window[i];
        jw_open(w, NULL, '{');
        jw_uint(w, "start", MAX(i * STATS_WINDOW, s->from));
        jw_uint(w, "tokens", x->tokens);
        jw_format(w, "seconds", "%.6f", x->seconds);
        jw_format(w, "mean_acceptance_length", "%.4f", ratio((double)x->tokens, x->rounds));
        jw_close(w, '}');
    }
    jw_close(w, ']');
}
