/* What passes of one model cost on this machine: seconds for rows, cached positions and texts.
 *
 * Costs. Passes of a few sizes are timed when drafting begins, and one at a time later. Between measurements
 * a cost scales with the bytes that a pass reads. A Kalman filter over the rounds' times follows two
 * corrections: the speed of the machine, which other programs change all the time, and how much longer a
 * round takes after draft passes, because a verification pass finds different cache contents after draft
 * passes than after another verification pass.
 *
 * The planner (src/decode/planner.h) owns the rounds. This model knows neither plans nor texts; it keeps for
 * the planner what all texts decide together. A cost "at
 * speed 1" is to be multiplied by exp(speed). */
#pragma once
#include "src/decode/tree.h"

enum {
    /* sizes of passes with a cost of their own: cost_rows(0..) = 1 2 3 4 6 8 12 .. */
    COST_SIZES = 12,
    COST_ROWS_MAX = 1 << COST_SIZES / 2,
};
static inline size_t cost_rows(size_t i) { return i == 0 ? 1 : (size_t)(i % 2 ? 2 : 3) << (i - 1) / 2; }

/* The experts of a model: bytes of one, layers that have any, experts of a layer, and those of a row. Zeros:
 * it has none.
 *
 * Rows share experts. r rows read on average n (1 - (1 - used/n)^(1 + fresh (r - 1))) experts of a layer:
 * with fresh 1 as many as independent rows do, with 0 no more than one row. `fresh` is learned from what
 * passes have read. So the price of a further row is that of the experts which it adds, and the seconds for
 * each byte stay comparable. */
struct planner_experts { double bytes, layers, n, used; };

/* What passes of one model cost on this machine. All texts that are written together share it. {0} knows
 * nothing. */
struct cost_model {
    double weight_bytes, kv_bytes;       /* that a pass of one row reads: weights; of a position */
    double windowed_bytes; size_t window;    /* the part of kv_bytes that is read of so many positions */
    struct planner_experts experts;
    double fresh, fresh_seen;
    /* at speed 1: seconds per byte of a pass of cost_rows(i) rows; how often it was seen */
    double size[COST_SIZES], seen[COST_SIZES];
    /* logarithms of the two corrections; variances of both, between them the covariance */
    double speed, drafted, var[3];
    size_t timed;                    /* passes that were only timed */
    double seconds, next_timing;     /* since the start; when a pass may be timed again */
    /* What all texts decide together: rounds so far; whether this round is a probe of all text drafters; the
     * budget of exploration, in one-row passes of the round; the texts that shared the draft passes of each
     * drafter in the last round that had any, 0: as many as there are. */
    size_t rounds;
    bool probe;
    double budget;
    size_t sharers[N_DRAFTERS];
};

/* What a pass costs: the bytes that it reads of weights, once for all its texts, and of the caches of a
 * text, `key` for each of at most `keys` positions. Weights of fewer bits than the model's count as so many
 * bytes of the model's as take as long (planner_bytes).
 *
 * Forecasts (src/lab/forecast.h) add flops, the operations of one row, and the bytes of all experts, of which
 * a row reads the part `share`. Rows choose experts independently. */
struct pass_cost { double weights, key, keys, flops, experts, share; };
/* The draft passes over a cache. A round makes at most `most` of them, 0: PASSES_MAX. acceptance_max: the
 * highest acceptance rate of its first guess that exploration assumes, 0: no bound. Texts share the draft
 * passes of one drafter, the maker. */
struct draft_cost { struct pass_cost pass; size_t most; double acceptance_max; enum drafter maker; };
/* Weights of `bytes` bytes in the model's own form, stored in `stored`: fewer bytes save half of their share
 * of the time. */
static inline double planner_bytes(double bytes, double stored) { return (bytes + stored) / 2; }

static inline double cost_kv(const struct cost_model *m, size_t length)
{
    return m->kv_bytes * (double)length - m->windowed_bytes * (double)(length - MIN(length, m->window));
}

/* Seconds at speed 1: for each byte of a pass of so many rows; of the weights' part of such a pass; of the
 * share of one of n texts in a pass of all_rows rows, `rows` of its own. */
double cost_size(const struct cost_model *m, size_t rows);
double cost_weights(const struct cost_model *m, size_t rows);
double cost_pass(const struct cost_model *m, size_t length, size_t n, size_t rows, size_t all_rows);
/* Bytes of caches that a draft pass reads; the share of one of n texts in such a pass, as a share of a draft
 * pass for one text. */
double cost_cache_bytes(const struct pass_cost *r, size_t length);
double cost_draft_share(const struct cost_model *m, const struct pass_cost *r, size_t length, size_t n);
/* The logarithm of measured by expected seconds, limited to what a pass or round that other programs
 * interrupted may change. */
double cost_off(double seconds, double expected);

/* Nothing is known but the bytes that a pass reads. Without windows, which the caller may add. */
void cost_start(struct cost_model *m, double weight_bytes, double kv_bytes,
                const struct planner_experts *experts);
/* The first pass of one row took `seconds`. */
void cost_first(struct cost_model *m, size_t length, double seconds);
/* The size to time now for n texts, `left` tokens before the end of one of them; COST_SIZES: none. */
size_t cost_size_due(const struct cost_model *m, size_t n, size_t left);
/* Passes of cost_rows(i) rows took `seconds`, the median of many: what was known of this size is forgotten.
 * Sizes are given in ascending order, from one row on. */
void cost_measured(struct cost_model *m, size_t i, size_t length, double seconds);
/* A pass of cost_rows(i) rows that was only timed took `seconds`. */
void cost_timed(struct cost_model *m, size_t i, size_t length, double seconds);
/* A pass of so many rows read `experts` experts, over all layers. */
void cost_experts_read(struct cost_model *m, size_t rows, size_t experts);
/* A round with `rows` rows took `seconds` where the costs foresaw `predicted`. drafts: the part of it that
 * texts with drafts take. */
void cost_learn(struct cost_model *m, double rows, double drafts, double seconds, double predicted);
/* Draft passes read other weights from now on. */
void cost_forget_drafts(struct cost_model *m);
/* The prefill's data have left the CPU's caches: only the sum of the two corrections is still known. One of
 * n texts says so. */
void cost_split_unknown(struct cost_model *m, size_t n);
