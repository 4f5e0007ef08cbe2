/* The planner: what a round drafts and how many rows it verifies, so that the text grows as fast as this machine allows.
 *
 *     planner_start(&p, ...)
 *     each round:
 *         planner_begin(&p, state)              costs and chances of this round, then p.plan
 *         planner_asked, planner_passed         what each drafter of the plan took and added
 *         planner_rows                          how many of the candidates to verify
 *         planner_verified, planner_done        what the round took and made
 *
 * The value of a plan is its expected tokens per second. SPIRe (its throughput formula) and MagicDec predict it as
 *
 *     rate = expected tokens / (draft passes * seconds of one + seconds of the verification pass)
 *
 * Here every term is measured: `costs` holds seconds and `chances` holds how often guesses come true. plan_round() takes both
 * and returns the plan of the highest rate. It is a pure function: no clock, no state.
 *
 * Costs. Passes of a few sizes are timed at the start of drafting and again as the text grows. Between measurements a cost
 * scales with the bytes that a pass reads. A filter follows two corrections from what rounds took: the speed of the machine,
 * which other users change all the time, and how much longer a round takes after draft passes, because a verification pass finds
 * different cache contents after draft passes than after another verification pass.
 *
 * Exploration. Estimates of what has not been run for a while may be wrong. So the planner earns credit, EXPLORE_SHARE of the time, and
 * spends it on the way of drafting whose optimistic rate is highest, for a run of rounds. A run ends when even the optimistic
 * rate is below the best plan's, or when the credit is spent. Asking a text drafter that has not gained lately
 * (it takes microseconds) comes out of the same credit.
 *
 * A plan depends on time and chance. The text does not depend on the plan (DESIGN R1, R2). */
#pragma once
#include "src/decode/tree.h"

enum {
    COST_SIZES = 10, COST_ROWS_MAX = 128,    /* sizes of passes that have a cost of their own: cost_rows[] */
    CACHES_MAX = 6,                  /* budgets and policies of the partial cache */
    PASSES_MAX = 16,                 /* draft passes of a round */
    HEADS_AHEAD = N_SOURCES,         /* beside SOURCE_HEADS: the heads after the last draft pass */
    ASKS = N_SOURCES + 1,            /* drafters that a plan may ask: bits of enum source, and HEADS_AHEAD */
    ROWS_MAX = TREE_ROWS_MAX,
    NO_CACHE = 0,                    /* a way of drafting: without draft passes, or with cache `way` - 1 */
};
extern const size_t cost_rows[COST_SIZES];

struct costs {                       /* seconds, in this round */
    size_t rows_max, n_caches;
    double pass[ROWS_MAX + 1];       /* a verification pass of r rows; pass[0] is unused */
    double draft[CACHES_MAX];        /* a draft pass over each cache */
    double ask[ASKS];                /* asking a drafter that makes no pass */
    double drafted;                  /* factor of all costs in a round with draft passes or heads */
};

struct chances {                     /* in this round */
    double hit[CACHES_MAX];          /* that the first guess of a draft pass over each cache comes true */
    double gain[2][ASKS];            /* tokens a round that a drafter adds, less what its rows cost */
    double made[2];                  /* tokens made for each one expected: without draft passes and heads, with them */
};

struct plan_state {
    unsigned ways;                   /* allowed: bit `way`; NO_CACHE is bit 0 */
    unsigned asks, forced;           /* drafters that may be asked, and that must be */
    long passes;                     /* draft passes where they are fixed, else -1 */
    size_t deepest;                  /* tokens that the text still needs beyond the bonus token */
    size_t way;                      /* of the last round: a change has to be worth it */
};

struct plan {
    size_t way, passes;              /* passes: at most; drafting stops early where the next one does not pay */
    unsigned ask;                    /* bit per drafter */
    bool look;                       /* text drafters propose what is unlikely too: so their chances are learned */
    double tokens, seconds, rate;    /* expected */
};

/* The plan with the highest rate. */
struct plan plan_round(const struct costs *c, const struct chances *h, const struct plan_state *s);
/* Whether a plan makes draft passes or asks heads. */
bool plan_drafts(const struct plan *p);

struct planner {
    bool on;
    struct plan plan;                /* of this round */
    struct costs costs;
    struct chances chances, known;   /* of this round: optimistic while exploring; as estimated */
    double price;                    /* tokens that a second is worth: the rate of the best plan */

    /* What costs are made from, at speed 1: seconds of a pass for each byte that it reads; seconds of drafters. */
    double weight_bytes, draft_bytes, kv_bytes;
    double size[COST_SIZES], seen[COST_SIZES];
    size_t sized_at;                 /* length at which passes were timed last */
    struct cache_costs { size_t budget, n; double seconds; } draft[CACHES_MAX];
    struct { size_t n; double seconds; } ask[ASKS];
    double speed, drafted, var[3];   /* logarithms of the two corrections; their variances and covariance */

    /* What chances are made from: fading counts. */
    struct cache_hits { double hits, trials; } cache[CACHES_MAX];
    double usual;                    /* hit rate of the cache in use */
    struct gain { double gain, n; } gain[2][ASKS];
    struct { double made, planned; } tokens[2];
    double expected, accepted;       /* candidates of rounds */

    /* Exploration: whether this round is of a run, what it tries, and what is left to spend. */
    bool exploring;
    struct plan_state trial;
    double credit;
    size_t run;

    /* This round, as it goes: its length, predicted seconds, expected tokens. */
    size_t length;
    double predicted; bool alone; size_t rows;
    size_t rounds;
    double seconds, calibrating;     /* since the start; of it in timing passes, after the first time */
};

/* The bytes of the weights that a verification pass and a draft pass read, and of one position of the cache. heads_share: what
 * asking the heads reads, as a share of a pass's weights. */
struct planner_setup { bool on; size_t rows_max, n_caches, budget[CACHES_MAX]; double weight_bytes, draft_bytes, kv_bytes, heads_share; };
void planner_start(struct planner *p, const struct planner_setup *s);

/* How many of the sizes cost_rows[0..] to time now, `left` tokens before the end of the text; each planner_times() times; then planner_timed for each
 * with the shortest time. */
size_t planner_sizes_due(const struct planner *p, size_t length, size_t left);
size_t planner_times(const struct planner *p);
void planner_timed(struct planner *p, size_t i, size_t length, double seconds, size_t times);

/* A round begins at this length: sets p->plan. */
void planner_begin(struct planner *p, size_t length, const struct plan_state *s);
/* Value of the best choice of rows, in tokens, less what their seconds are worth; and that choice. */
double planner_value(const struct planner *p, const struct tree *t, size_t *rows);
/* A candidate less likely than this does not pay as a row. */
double planner_min_reach(const struct planner *p);
/* Whether a further draft pass pays below a node that is reached with this chance: alone, or as the first of several. */
bool planner_pass_pays(const struct planner *p, const struct tree *t, double reach);
/* What a drafter added to the value and took; what a draft pass took; whether its first guess came true. */
void planner_asked(struct planner *p, size_t ask, double value_before, double value_after, double seconds);
void planner_passed(struct planner *p, double seconds);
void planner_guessed(struct planner *p, bool hit);
/* The verification pass took so long. The round took so long and made so many tokens, of which `expected` were accepted candidates by the tree's estimates. */
void planner_verified(struct planner *p, size_t rows, double seconds, bool typical);
void planner_done(struct planner *p, size_t tokens, double expected, double seconds);
/* `writer` wrote a stretch of the text that p has not seen: p takes the costs from it and doubts its own chances. */
void planner_catch_up(struct planner *p, const struct planner *writer);
/* Seconds of a pass of one row. */
double planner_pass_seconds(const struct planner *p, size_t length);
