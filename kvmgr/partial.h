/* The partial cache of one decoder (TokenSwift 3.3): a small copy of the full cache that draft passes read.
 *
 *     slots 0 .. sinks-1            the first tokens, never replaced
 *     slots sinks .. budget-1       selected rows, the most important first; new rows replace them from the end
 *     slots budget ..               rows of a draft pass in flight
 *
 * Selection, per layer and KV head independently: the largest sums over the query heads of the group of q.k (eq. 2), q being
 * the root row of the next verification pass, whose scores the pass hands over by the way (struct pass_seq, `scored`). Keys
 * keep the rotation of their own position, so that slots may stand in any order.
 *
 * When all selected rows are replaced, the next verification pass selects again (dynamic). `static` selects once and keeps the better
 * half of it: new rows take turns in the other half. `window` never selects (sinks and the most recent rows, MagicDec): new rows
 * replace the oldest.
 *
 * `mean` never selects either, and forgets nothing (host memory alone): behind the recent rows it has means of those before.
 *
 *     slots 0 .. sinks-1            the first tokens
 *     the next R                    the R most recent rows, row p at sinks + (p - sinks) % R
 *     the next, at most M           mean keys and values of `group` rows each, of the last one as many as have come
 *     slots kv.n_past ..            rows of a draft pass in flight
 *
 * M is half of what the sinks leave of the budget, rounded down, R the rest. A row that leaves the recent ones enters the last mean; when M means
 * do not hold the next, neighbours are merged and the group is twice as large. So n rows are read as R + n / group, and a mean of n counts as what
 * n rows like it would: its score is raised by ln n (kv.bias), and by 0.3 ln n - 0.4 (1 - 1/n), because the mean of exp(q.k) is larger than exp of
 * the mean (found by trial on models/demo for n of 64 to 1,024).
 *
 * As long as the text fits the budget, and always under the policy `full`, there is nothing to copy: draft passes read the full
 * cache itself, their rows standing behind the committed ones. */
#pragma once
#include "kernels/pool.h"
#include "kvmgr/kv.h"

/* auto: in settings only, for whoever chooses */
enum kv_policy { KV_DYNAMIC, KV_STATIC, KV_WINDOW, KV_MEAN, KV_FULL, KV_AUTO };
static inline bool kv_selects(enum kv_policy p) { return p == KV_DYNAMIC || p == KV_STATIC; }
enum { PARTIAL_ROWS_MAX = 16 };          /* rows in flight: draft passes of a round */
enum { MEAN_ROWS = 64 };                 /* of a mean at first */

struct partial {                         /* {0} is closed */
    struct kv kv;                        /* n_max = budget + PARTIAL_ROWS_MAX */
    struct kv *full;                     /* borrowed */
    struct pool *pool;                   /* borrowed; NULL: one thread */
    enum kv_policy policy;
    size_t sinks, budget, budget_max;
    bool filled;                         /* holds a selection (or a window, or means) */
    size_t n_recent;                     /* rows taken over since the last selection */
    size_t n_seen;                       /* rows of the full cache that it has seen committed */
    size_t refreshes;
    /* of a selection: uint32_t [n_kv_heads][full n_max], or what the device wants. NULL: there is no copy */
    void *work;
    size_t work_bytes;
    /* [n_layers][n_kv_heads][budget_max]: which row of the full cache stands in a slot (not under mean). On a
     * device: was selected for it */
    uint32_t *row;
    size_t row_bytes;
    uint32_t *from;                      /* [n_layers]: a device selects in all layers at once */
    size_t group, n_far;                 /* rows of a mean; rows that stand in means: those behind the sinks */
    float *sum, *bias;                   /* [n_layers][n_kv_heads][2][head_dim] of the last mean; of slots, in whole blocks. NULL on a device */
    size_t mean_bytes;                   /* of both */
};

size_t partial_bytes(const struct kv *full, enum kv_policy policy, size_t budget, size_t n_max);
/* 1 <= sinks < budget, and means in the host's memory alone (asserted). Nothing is taken where the budget covers full->n_max, or under KV_FULL. */
int partial_open(struct partial *p, struct kv *full, struct pool *pool, enum kv_policy policy, size_t sinks,
                 size_t budget, struct err *e);
void partial_close(struct partial *p);

/* Another policy (not full) and budget from here on, at most the one it was opened with: the next verification pass selects anew, or the
 * window or the means are taken now. */
void partial_change(struct partial *p, enum kv_policy policy, size_t budget);

/* The cache that a draft pass reads now; row i of the pass stands at slot kv->n_past + i, at the position full->n_past + i. */
struct kv *partial_kv(struct partial *p);

/* Whether the next verification pass has to hand its scores to partial_select, layer by layer. */
bool partial_wants_scores(const struct partial *p);
/* The device's score[h * step + position] for positions from .. full->n_past-1 (struct pass_seq, `scored`). */
void partial_select(void *partial, size_t layer, const float *score, size_t step, size_t from);

/* Rows were committed to the full cache (or rebuilt): follow it, behind the pass that gave the scores, and before partial_kv and partial_wants_scores are asked again. Rows
 * that were taken away have to be followed before others come in their places. {0} follows nothing. */
void partial_follow(struct partial *p);

/* What is selected, for a snapshot: at most partial_state_bytes are written to `out`, and how many is returned; 0: nothing is selected. */
size_t partial_state_bytes(const struct partial *p);
size_t partial_save(const struct partial *p, void *out);
/* Take it over again, of the same text; the full cache has at least the rows that it names, and what came behind them is followed. False, and
 * nothing is changed, where the bytes do not fit this cache. */
bool   partial_load(struct partial *p, const void *state, size_t n);
