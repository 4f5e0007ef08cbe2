/* Statistics of drafting. A round is a record with the drafters of each token (struct round). It is added to
 * the statistics of the text (struct draft_stats) when it is known how many of the round's tokens belong to
 * the text, because the end of the text cuts the last round. runs/store/figures.h says what a report shows of
 * them. */
#pragma once
#include "src/decode/round.h"

enum { STATS_WINDOW = 1000 };        /* tokens */

struct window_stats { double seconds, rounds; size_t tokens; };

struct draft_stats {
    size_t tokens, rounds, drafted, verified_rows, accepted, drafted_depth, beta_accepted, draft_passes,
        refreshes, to_host;
    size_t reached[TREE_DEPTH_MAX + 1], accepted_at[TREE_DEPTH_MAX + 1], histogram[TREE_DEPTH_MAX + 2];
    size_t source_drafted[N_DRAFTERS], source_accepted[N_DRAFTERS];
    double seconds, draft, verify, control;  /* sums of the rounds' */
    double plain;                        /* estimate: seconds of all tokens without drafting */
    /* rounds whose seconds the planner foresaw; what it foresaw, and what they took */
    size_t predicted_rounds;
    double predicted, measured;
    /* seconds that checkpoints took after the rounds; the worker sets it */
    double put;
    /* tokens that the text had before this process: windows are stretches of the text */
    size_t from;
    struct window_stats *window; size_t n_windows;       /* [n_windows]: enough for n_max tokens */
};

/* The candidates of a round that was no probe of them; the depth of its deepest verified candidate. */
size_t round_drafted(const struct round *r);
size_t round_depth(const struct round *r);

size_t stats_bytes(size_t n_max);
int  stats_open(struct draft_stats *s, size_t n_max, struct err *e);
void stats_close(struct draft_stats *s);
void stats_clear(struct draft_stats *s);
/* Adds a round; its first `tokens` tokens count. */
void stats_add(struct draft_stats *s, const struct round *r, size_t tokens);
/* Calls `take` for each counter of the statistics, k = 0, 1, .., always in the same order. Their names are
 * those of the store. source: a drafter, "" for the whole. index: the depth, from 1; 0 where there is one
 * value. A new counter is a field of draft_stats and a row of `counters` in stats.c. */
typedef void stats_counter(void *ctx, size_t k, const char *source, const char *name, unsigned index,
                           double value);
void stats_each(const struct draft_stats *s, stats_counter *take, void *ctx);
