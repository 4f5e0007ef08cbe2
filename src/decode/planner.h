/* The controller (DESIGN section 6): what to draft and what to verify, so that tokens per second are the most this machine gives.
 *
 * A round of r rows costs t(r) for verification and what its drafters take, and yields 1 + (accepted candidates) tokens. With
 * the rate lambda that decoding has been running at, a round is worth
 *
 *     value = 1 + sum of reach over the kept candidates - lambda * seconds          (the best plan has the largest value)
 *
 * so: keep the r - 1 likeliest candidates for the r of the largest value, and ask a drafter when the value that its proposals have
 * lately added is more than lambda times its time. t(r) is measured on this machine: a pass of one row at the start, a few of
 * several before drafting is tried for the first time, and again where it is tried or used and the text has grown a lot (0.2 % of
 * the time), corrected by every round; between measurements it scales with the bytes that a pass reads.
 *
 * Such estimates cannot know everything: a pass after draft passes finds other things in the caches than a pass after a pass. So rounds
 * are run in two modes, lean (only the text's own repetitions are verified, where they are likely; and where they have not gained lately, they are
 * looked for in 0.1 % of the time) and full; the rate of each is measured as it comes out, the better one is used, and the other one is
 * tried again now and then for a few rounds, drafting only where it could pay by what is known of it. That is what keeps speculation from
 * costing time. Choices depend on time and cannot change the text (R1, R2). */
#pragma once
#include "src/decode/tree.h"

enum { CONTROL_GRID = 10, CONTROL_PASSES = 16, CONTROL_ROWS_MAX = TREE_ROWS_MAX };

enum control_mode { MODE_LEAN, MODE_FULL };

struct control {
    bool on;
    enum control_mode mode, better;
    /* rounds since it was entered; until it ends; trials that the other mode has won */
    size_t in_mode, to_go, won;
    size_t postponed; bool doubted;              /* trials of full rounds put off or given up; so many that passes are to be measured again */
    bool stale;                                  /* of the last such trial: what draft passes took is not to be believed either */
    struct { double tokens, seconds; } ran[2];   /* in each mode, fading; seconds per byte that a one-row pass reads */
    struct { double tokens, seconds; } spent;    /* the same since the mode was entered and settled, not fading */
    double weight_bytes, kv_bytes;               /* of a pass; of a position */
    double cost[CONTROL_GRID]; bool measured[CONTROL_GRID];   /* seconds of a pass of control_grid[i] rows at length `at` */
    size_t at;
    /* since the start; of it in calibration; measured / expected, lately */
    double seconds, calibrating, drift;
    size_t rounds, rows_max;
    /* fading means; seconds of looks in vain; times and rounds not asked */
    struct { double gain, seconds, looking; size_t n, idle; } drafter[N_SOURCES + 1];
    double expected, accepted;                   /* candidates of rounds, fading: guesses that are the likeliest of many come true less often */
    double exploring;                            /* seconds spent in passes that did not look worth it */
    double lambda, t[CONTROL_ROWS_MAX + 1];      /* of this round; t[0] unused */
};
extern const size_t control_grid[CONTROL_GRID];

void control_start(struct control *c, bool on, size_t rows_max, double weight_bytes, double kv_bytes);

/* Whether to measure passes now, `left` tokens before the end; then control_measured for each of the sizes control_grid[0..n). */
size_t control_wants_calibration(const struct control *c, size_t length, size_t left);
void   control_measured(struct control *c, size_t i, size_t length, double seconds);

/* A round begins at this length: costs and rate. Then its mode. */
void control_round(struct control *c, size_t length);
void control_choose_mode(struct control *c);
/* Between the two: whether this round begins a trial of drafting, or is of one; and whether it may, where by what is known drafting could gain so many tokens a round. If not,
 * the trial is put off, or given up unless it is ahead; behind every sixth one passes may be measured again, and heads and the rate of full rounds count as
 * unknown, as what is known may be wrong. */
bool control_trial_is_due(const struct control *c);
bool control_is_trial(const struct control *c);
bool control_may_try(struct control *c, double could_gain);
/* Value of the best choice of rows, and that choice. */
double control_value(const struct control *c, const struct tree *t, size_t *rows);
/* Whether to ask a drafter whose worth is learned from what its proposals added to the value. */
enum { HEADS_AHEAD = N_SOURCES };                 /* beside SOURCE_HEADS: the heads behind the last draft pass */
bool control_asks(struct control *c, size_t drafter);
/* Whether this round looks at what the text itself proposes, likely or not (in lean rounds: of drafters that are asked): so one learns how likely it is. */
bool control_looks(const struct control *c);
bool control_knows(const struct control *c, size_t drafter);      /* it has been asked often enough */
double control_gain(const struct control *c, size_t drafter);     /* by what is known, in tokens a round, less what it takes */
void control_drafted(struct control *c, size_t drafter, double value_before, double value_after,
                     double seconds);
/* Whether a further draft pass pays that takes `seconds`, below a node that is reached with this chance, when guesses come true with
 * chance p: alone, or as the first of several. */
bool control_pass_pays(const struct control *c, const struct tree *t, double reach, double p, double seconds);
/* Seconds of a pass of one row over a cache of this length, from the bytes that it reads. */
double control_pass_seconds(const struct control *c, double weight_bytes, size_t length);
/* Value of the best chain of draft passes whose guesses come true with chance p and take this long each. */
double control_chain_value(const struct control *c, double p, double seconds);
/* A candidate less likely than this does not pay as a row. */
double control_min_reach(const struct control *c);
/* What the round took. */
void control_verified(struct control *c, size_t length, size_t rows, double seconds);
void control_done(struct control *c, size_t length, size_t tokens, double expected, double seconds);
