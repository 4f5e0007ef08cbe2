/* What drafting did: counted per round, added up when it is known how many of the round's tokens count (the
 * last round is cut at the end of the text). Fields and definitions are those of `report --json`
 * (INTERFACES). */
#pragma once
#include <stdio.h>
#include "src/decode/tree.h"

enum { STATS_WINDOW = 1000 };        /* tokens */

struct round_stats {                 /* of one round */
    size_t tokens;                   /* it made: accepted + 1 */
    /* verified nodes, the root included; candidates in the pool that could have been */
    size_t rows, drafted;
    size_t drafted_depth;            /* of the deepest verified candidate */
    /* per depth d >= 1: 1 when a node of depth d-1 was accepted and had verified candidates behind it */
    size_t n_reached[TREE_DEPTH_MAX + 1];
    size_t source_drafted[N_SOURCES];        /* these candidates by source (a shared one counts for each) */
    unsigned path_sources[TREE_DEPTH_MAX];   /* of each accepted candidate, in order */
    /* accepted candidates, from the first one on, that one 4-gram chain covers (eq. 6) */
    size_t ngram_covers;
    size_t draft_passes, refreshes;
    /* bytes that crossed from a device to the host, for all texts of the round */
    size_t to_host;
    double expected;                 /* accepted candidates, by the estimates */
    double seconds, draft, verify, control, calibrating;     /* calibrating is part of control */
    /* an estimate: seconds of a token here if they were written one at a time */
    double plain;
};

struct window_stats { double seconds, rounds; size_t tokens; };

struct draft_stats {
    size_t tokens, rounds, drafted, verified_rows, accepted, drafted_depth, beta_accepted, draft_passes,
        refreshes, to_host;
    size_t reached[TREE_DEPTH_MAX + 1], accepted_at[TREE_DEPTH_MAX + 1], histogram[TREE_DEPTH_MAX + 2];
    size_t source_drafted[N_SOURCES], source_accepted[N_SOURCES];
    double seconds, draft, verify, control, plain;       /* plain: of all its tokens */
    /* seconds that checkpoints took behind the rounds: set by who makes them */
    double put;
    /* tokens that the text had before: windows are the text's */
    size_t from;
    struct window_stats *window; size_t n_windows;       /* [n_windows]: enough for n_max tokens */
};

size_t stats_bytes(size_t n_max);
int  stats_open(struct draft_stats *s, size_t n_max, struct err *e);
void stats_close(struct draft_stats *s);
void stats_clear(struct draft_stats *s);
/* A round of which the first `tokens` count. */
void stats_add(struct draft_stats *s, const struct round_stats *r, size_t tokens);
/* The members of the JSON object from "rounds" to "windows" (without braces): what INTERFACES names and is
 * known here. */
void stats_json(FILE *f, const struct draft_stats *s, bool tree_fixed);
