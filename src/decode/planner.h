/* The planner: what a round drafts and how many rows it verifies, so that the text grows as fast as the
 * machine allows.
 *
 *     planner_start
 *     each round, for each text of the round:
 *         planner_size_due, planner_timed      now and then: time a pass
 *         planner_begin                        costs, acceptance rates, and the plan that follows from them
 *     planner_agree                            the final plan of each, with exploration and probes; what a
 *                                              second is worth to all of them
 *     for each text:
 *         planner_proposed, planner_passed     what each drafter of the plan took and added
 *     planner_rows                             how many candidates of each text to verify
 *     for each text:
 *         planner_verified, planner_guessed    the verification pass; which first guesses were accepted
 *         planner_done                         what the round made of this text
 *     planner_round_done                       what the round took
 *
 * plan_round() chooses the plan of the highest expected rate. The rate is SPIRe's throughput formula with
 * measured terms:
 *
 *     rate = expected tokens / (draft passes * seconds of one + seconds of the verification pass)
 *
 * Costs come from the cost model (src/decode/cost_model.h), acceptance rates from the rounds of a text.
 *
 * Several texts. A worker writes n texts of one model in one round. They share one cost model, because a pass
 * reads the weights once for all of them. Each text plans with its share of a round in which all n texts do
 * the same: a pass of r rows costs it 1/n of the weights' part of a pass of n * r rows, and its own part of
 * the cache. With these shares the best plans of equal texts are the best plan of the round, as in SPIRe's
 * throughput formula for batches. With n = 1 the share is the whole.
 *
 * Texts differ in their length and in their acceptance rates. Three steps therefore see all of them.
 * A draft pass reads its weights once for the texts that share it. planner_agree begins with all of them, and
 * counts again until the texts whose plans draft are as many as those plans assume. A second of the round is
 * worth the tokens of all texts together, so planner_agree gives all texts one price.
 * planner_rows then takes candidates of all trees, the one that gains most first: the next row costs its part
 * of a pass of all rows so far, and reads the cache of its own text.
 *
 * Exploration. What has not been run for a while may have changed. Exploration has a budget, which grows by a
 * fixed share of the time. It goes to the one kind of drafting, a cache or the heads, whose optimistic rate
 * beats the best plan most. Optimism has bounds: the acceptance rate is at most the maximum of a drafter of
 * that kind (struct draft_cost), and a draft pass that was never made takes half of what its bytes say. So
 * what is too dear even then is not explored, and the first run goes to what promises most. A run of
 * exploration makes at least three rounds, because catching up with the text may cost more than they do. It
 * ends when even the optimistic rate is no better, or when the budget is spent. In a probe, from the same
 * budget, all text drafters propose, also those that have not gained lately; a probe leaves enough for a run.
 * All texts have one budget, and begin their runs in the same round: a draft pass costs the round about as
 * much for one text as for all.
 *
 * Plans depend on time. The text does not depend on plans (docs/architecture.md, rules R1 and R2). */
#pragma once
#include "src/decode/cost_model.h"

enum {
    CACHES_MAX = 12,                 /* what draft passes may read: drafters, with budgets and policies */
    PASSES_MAX = 16,                 /* draft passes of a round */
    BATCH_MAX = 64,                  /* texts of a round */
    HEADS_AHEAD = N_DRAFTERS,        /* beside DRAFTER_HEADS: the heads after the last draft pass */
    PROPOSERS,                       /* drafters that make no pass of their own, and HEADS_AHEAD */
    NO_CACHE = 0,                    /* the plan's cache where it makes no draft passes */
};

struct plan {
    /* cache: 1 + the index in decoder.cache of what draft passes read, a drafter and its setting. passes: the
     * draft length; a chain ends where no further pass pays. */
    size_t cache, passes;
    unsigned drafters;               /* the others that propose: a bit for each, and for HEADS_AHEAD */
    /* text drafters propose unlikely candidates too, so that their acceptance rates are learned */
    bool probe;
    double tokens, seconds, rate;    /* expected */
};

struct plan_limits {                 /* what a plan may do */
    unsigned caches;                 /* a bit for each value of plan.cache */
    unsigned drafters, required;     /* that may propose, and that must */
    long passes;                     /* the number of draft passes where it is fixed, else -1 */
    size_t depth;                    /* draft passes beyond it are of no use */
    struct plan last;                /* another plan has to be better by a margin: a change costs time */
};

/* What a plan follows from. Seconds are the share of one text. Of two values the second is for rounds with
 * draft passes (made: or heads). */
struct plan_input {
    size_t rows_max, n_caches;
    double pass[TREE_ROWS_MAX + 1];  /* seconds of a verification pass of r rows; pass[0] is unused */
    double draft[CACHES_MAX];        /* of a draft pass over each cache, */
    size_t sharers[CACHES_MAX];      /* if so many texts share it */
    size_t most[CACHES_MAX];         /* draft passes of a round, 0: PASSES_MAX */
    double propose[PROPOSERS];       /* seconds that a drafter takes to propose */
    double drafted;                  /* factor of all seconds of a round with draft passes or heads */
    double acceptance[CACHES_MAX];   /* rate at which the first guess of a draft pass is accepted */
    double gain[2][PROPOSERS];       /* tokens that a drafter adds, less what its rows cost */
    double made[2];                  /* tokens made for each token expected */
    struct plan_limits limits;
};

/* The plan of the highest rate. A pure function. */
struct plan plan_round(const struct plan_input *x);
/* Whether a plan makes draft passes or uses heads. */
bool plan_drafts(const struct plan *p);

struct planner {
    bool on;
    struct cost_model *model;        /* borrowed, shared */
    struct plan plan;                /* of this round */
    double price;                    /* tokens per second of the best plans: what a second is worth */
    struct plan_input in;            /* as estimated */
    bool exploring;                  /* a run of exploration is under way, for so many rounds: */
    size_t run;
    struct plan_input trial;         /* `in` with one kind of drafting and optimistic acceptance rates */
    double heads_share;
    /* Fading counts. Seconds are at speed 1. */
    struct { double seconds, n; } propose[PROPOSERS];
    struct cache_known { double seconds, n, accepted, guesses; } cache[CACHES_MAX];
    struct draft_cost reads[CACHES_MAX];
    struct gain { double mean, n; } gain[2][PROPOSERS];
    struct { double made, planned; } tokens[2], candidates;
    /* This round: its texts; tokens in the cache; seconds expected of what this text did; seconds in which
     * drafters caught up with the text; rows of a pass that was typical; tokens made. */
    size_t n_texts, length;
    double predicted, prepared;
    size_t rows, made, rounds;
    float reach[TREE_POOL_MAX];      /* of the candidates, largest first: scratch of planner_rows */
};

/* Bytes that a pass of one row reads of weights and of each cached position, and those of a pass over each
 * cache; heads_share: what the heads read, as a share of a pass's weights. */
struct planner_setup {
    bool on;
    size_t rows_max, n_caches;
    struct draft_cost reads[CACHES_MAX];
    double weight_bytes, kv_bytes, heads_share;
    double windowed_bytes; size_t window;    /* as in struct cost_model */
    struct planner_experts experts;
};
/* A text begins. `m` is borrowed; it keeps what earlier texts of the model have shown. */
void planner_start(struct planner *p, struct cost_model *m, const struct planner_setup *s);

/* Draft passes read another number of bytes from now on, [n_caches]: forgets what they and the heads have
 * taken. */
void planner_draft_bytes(struct planner *p, const struct draft_cost *reads);

/* The size to time now, `left` tokens before the end of the text, or COST_SIZES; to be called again
 * after planner_timed. */
size_t planner_size_due(const struct planner *p, size_t left);
void planner_timed(struct planner *p, size_t i, size_t length, double seconds);
/* A pass of so many rows read `experts` experts, over all layers. */
void planner_experts_read(struct planner *p, size_t rows, size_t experts);

/* A round of n_texts texts begins; this one has `length` tokens in its cache. limits.last is set here. */
void planner_begin(struct planner *p, size_t length, size_t n_texts, struct plan_limits limits);
/* The n texts of a round have begun. Decides which of them draft together and whether they explore; from now
 * on a second is worth the same to each of them. */
void planner_agree(struct planner *const *p, size_t n);
/* Expected tokens of the best choice of rows, less what its seconds are worth, if the other texts of the
 * round choose as many; and that choice. */
double planner_value(const struct planner *p, const struct tree *t, size_t *rows);
/* rows[i]: how many nodes of tree i to verify, together the choice that pays most, of at most rows_max rows
 * (n, if that is more). A tree without a planner keeps all its nodes. */
void planner_rows(struct planner *const *p, const struct tree *const *t, size_t n, size_t rows_max,
                  size_t *rows);
/* A candidate less likely than this does not pay as a row. */
double planner_min_reach(const struct planner *p);
/* Whether a further draft pass pays, below a node that is reached with this chance: alone, or as the first of
 * several. */
bool planner_pass_pays(const struct planner *p, const struct tree *t, double reach);
/* Whether it pays that a draft pass of several rows takes `seconds` longer for a row more: one below a node
 * that is reached with this chance. */
bool planner_row_pays(const struct planner *p, double reach, double seconds);
/* A drafter, or HEADS_AHEAD, has proposed; values are those of planner_value. */
void planner_proposed(struct planner *p, size_t drafter, double value_before, double value_after,
                      double seconds);
/* A draft pass for n texts, with this text's share of its seconds. */
void planner_passed(struct planner *p, size_t n, double seconds);
/* The first guess of a draft pass was verified. */
void planner_guessed(struct planner *p, bool accepted);
/* The rate at which first guesses of this round's draft passes are accepted, as the plan assumes. */
double planner_acceptance(const struct planner *p);
/* A verification pass took `seconds`: `rows` rows of this text among all_rows. typical: it did no other work,
 * such as selecting rows of the partial cache. */
void planner_verified(struct planner *p, size_t length, size_t rows, size_t all_rows, double seconds,
                      bool typical);
/* `expected`: accepted candidates by the estimates in the tree. */
void planner_done(struct planner *p, size_t tokens, double expected);
/* The cost model of p[0..n), the texts of a round, learns from the seconds of the whole round. Returns the
 * seconds that the costs foresaw for what the round did, 0: not known. */
double planner_round_done(struct planner *const *p, size_t n, double seconds);

/* Seconds of a pass of one row for each text of a round: the share of this text. */
double planner_pass_seconds(const struct planner *p, size_t length);
