/* The planner: what a round drafts and how many rows it verifies, so that the text grows as fast as the
 * machine allows.
 *
 *     planner_start
 *     each round, for each text of the round:
 *         planner_size_due, planner_timed      now and then: time a pass
 *         planner_begin                        costs and chances of this round
 *     planner_agree                            planner.plan of each; what a second is worth to all of them
 *     for each text:
 *         planner_asked, planner_passed        what each drafter of the plan took and added
 *     planner_rows                             how many candidates of each text to verify
 *     for each text:
 *         planner_verified, planner_guessed    the verification pass; which first guesses came true
 *         planner_done                         what the round made of this text
 *     planner_round_done                       what the round took
 *
 * plan_round() chooses the plan of the highest expected rate. The rate is SPIRe's throughput formula with
 * measured terms:
 *
 *     rate = expected tokens / (draft passes * seconds of one + seconds of the verification pass)
 *
 * Costs come from the cost model (src/decode/cost_model.h), chances from what the rounds of a text show.
 *
 * Several texts. A worker writes n texts of one model in one round. They share one cost model, because a pass
 * reads the weights once for all of them. Each text plans with its share of a round in which all n texts do
 * the same: a pass of r rows costs it 1/n of the weights' part of a pass of n * r rows, and its own part of
 * the cache. With these shares the best plans of equal texts are the best plan of the round, as in SPIRe's
 * throughput formula for batches. With n = 1 the share is the whole.
 *
 * Texts differ in their length and in how often guesses come true. Three steps therefore look at all of them.
 * A draft pass reads its weights once for the texts that share it. planner_agree begins with all of them, and
 * counts again until the texts whose plans draft are as many as those plans assume. A second of the round is
 * worth the tokens of all texts together, so planner_agree gives all texts one price.
 * planner_rows then takes candidates of all trees, the one that gains most first: the next row costs its part
 * of a pass of all rows so far, and reads the cache of its own text.
 *
 * Exploration. What has not been run for a while may have changed. The planner earns credit, a fixed share of
 * the time, and spends it on the one way of drafting whose optimistic rate beats the best plan most. Optimism
 * has bounds: guesses come true as often as a drafter of that kind may hope (struct pass_bytes), and a draft
 * pass that was never made takes half of what its bytes say. So a way that is too dear even then is not
 * explored, and the first run goes to the way that promises most. A run of exploration makes at least three
 * rounds, because catching up with the text may cost more than they do. It ends when even the optimistic rate
 * is no better, or when its credit is spent. Text drafters that have not gained lately are asked now and then
 * from the same credit, and leave enough of it for a run. All texts have one credit, and begin their runs in
 * the same round: a draft pass costs the round about as much for one text as for all.
 *
 * Plans depend on time. The text does not depend on plans (docs/architecture.md, rules R1 and R2). */
#pragma once
#include "src/decode/cost_model.h"

enum {
    CACHES_MAX = 12,                 /* what draft passes may read: drafters, with budgets and policies */
    PASSES_MAX = 16,                 /* draft passes of a round */
    HEADS_AHEAD = N_DRAFTERS,         /* beside DRAFTER_HEADS: the heads after the last draft pass */
    /* drafters that make no pass of their own: enum drafter, and HEADS_AHEAD */
    ASKS = N_DRAFTERS + 1,
    BATCH_MAX = 64,                  /* texts of a round */
    /* a way of drafting: no draft passes; way w > 0: the passes of one drafter over cache w - 1 */
    NO_CACHE = 0,
};

struct costs {                       /* seconds, in this round: the share of one text */
    size_t rows_max, n_caches;
    double pass[TREE_ROWS_MAX + 1];  /* a verification pass of r rows; pass[0] is unused */
    double draft[CACHES_MAX];        /* a draft pass over each cache, */
    size_t sharers[CACHES_MAX];      /* if so many texts share it */
    size_t most[CACHES_MAX];         /* draft passes of a round, 0: PASSES_MAX */
    double ask[ASKS];                /* asking a drafter */
    double drafted;                  /* factor of all of them in a round with draft passes or heads */
};

/* in this round; of two values, the second is for rounds with draft passes (made: or heads) */
struct chances {
    double hit[CACHES_MAX];          /* the first guess of a draft pass comes true */
    double gain[2][ASKS];            /* tokens that a drafter adds, less what its rows cost */
    double made[2];                  /* tokens made for each token expected */
};

struct plan {
    size_t way, passes;              /* passes: at most; a chain stops where the next pass does not pay */
    unsigned ask;                    /* bit per drafter */
    /* text drafters propose unlikely candidates too, so that their chances are learned */
    bool look;
    double tokens, seconds, rate;    /* expected */
};

struct plan_state {
    unsigned ways;                   /* allowed: bit per way */
    unsigned asks, forced;           /* drafters that may be asked, and those that must be */
    long passes;                     /* the number of draft passes where it is fixed, else -1 */
    size_t deepest;                  /* draft passes beyond this depth are of no use */
    struct plan last;                /* another way has to be better by a margin: a change costs time */
};

/* The plan of the highest rate. A pure function. */
struct plan plan_round(const struct costs *c, const struct chances *h, const struct plan_state *s);
/* Whether a plan makes draft passes or asks heads. */
bool plan_drafts(const struct plan *p);

struct planner {
    bool on;
    struct cost_model *model;        /* borrowed, shared */
    struct plan plan;                /* of this round */
    double price;                    /* tokens per second of the best plans: what a second is worth */
    struct costs costs;
    /* as estimated; what this round plans with: optimistic while exploring */
    struct chances known, used;
    double heads_share;
    /* seconds at speed 1 */
    struct { double seconds, n; } ask[ASKS];
    /* Chances: fading counts. */
    struct cache_known { double seconds, n, hits, trials; } cache[CACHES_MAX];
    struct pass_bytes reads[CACHES_MAX];
    struct gain { double mean, n; } gain[2][ASKS];
    struct { double made, planned; } tokens[2], candidates;
    bool exploring;                  /* a run of exploration is under way */
    struct plan_state trial;
    size_t run;
    /* This round: its texts; tokens in the cache; what may be planned; seconds of the best plan; seconds
     * expected of what this text did; seconds in which drafters caught up with the text; rows of a pass that
     * was typical; tokens made. */
    size_t n_texts, length;
    struct plan_state state;
    double seconds, predicted, prepared;
    size_t rows, made, rounds;
    float reach[TREE_POOL_MAX];      /* of the candidates, largest first: scratch of planner_rows */
};

/* Bytes that a pass of one row reads of weights and of each cached position, and those of a pass over each
 * cache; heads_share: what asking the heads reads, as a share of a pass's weights. */
struct planner_setup {
    bool on;
    size_t rows_max, n_caches;
    struct pass_bytes reads[CACHES_MAX];
    double weight_bytes, kv_bytes, heads_share;
    struct planner_experts experts;
};
/* A text begins. `m` is borrowed; it keeps what earlier texts of the model have shown. */
void planner_start(struct planner *p, struct cost_model *m, const struct planner_setup *s);

/* Draft passes read another number of bytes from now on, [n_caches]: forgets what they and the heads have
 * taken. */
void planner_draft_bytes(struct planner *p, const struct pass_bytes *reads);

/* The size to time now, `left` tokens before the end of the text, or COST_SIZES; to be asked again after
 * planner_timed. */
size_t planner_size_due(const struct planner *p, size_t left);
void planner_timed(struct planner *p, size_t i, size_t length, double seconds);
/* A pass of so many rows read `experts` experts, over all layers. */
void planner_experts_read(struct planner *p, size_t rows, size_t experts);

/* A round of n_texts texts begins; this one has `length` tokens in its cache. `s->last` is set here. */
void planner_begin(struct planner *p, size_t length, size_t n_texts, struct plan_state s);
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
void planner_asked(struct planner *p, size_t ask, double value_before, double value_after, double seconds);
/* A draft pass for n texts, with this text's share of its seconds. */
void planner_passed(struct planner *p, size_t n, double seconds);
void planner_guessed(struct planner *p, bool hit);
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
/* Another decoder wrote a stretch of the text: p doubts its own chances. */
void planner_catch_up(struct planner *p);
