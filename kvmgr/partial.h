/* The partial cache of one decoder (TokenSwift, section 3.3): a small copy of the full cache that draft
 * passes read.
 *
 *     slots 0 .. sinks-1            the first tokens, never replaced
 *     slots sinks .. budget-1       selected rows, most important first; new rows replace them from the end
 *     slots budget ..               rows of a draft pass in flight
 *
 * Selection works per layer and KV head. It takes the rows with the largest sums of q.k over the query heads
 * of the group (eq. 2), where q is the root row of the next verification pass. The pass hands over these
 * scores as it computes them (struct pass_seq, `scored`). Keys keep the rotation of their own position, so
 * slots may hold rows in any order.
 *
 * `dynamic`: when new rows have replaced all selected rows, the next verification pass selects again.
 * `static` selects once and keeps the better half; new rows replace each other in the other half. `window`
 * never selects: it holds the sinks and the most recent rows (MagicDec), and a new row replaces the oldest.
 *
 * `mean` never selects and forgets nothing (host memory only). It holds means of the rows before the recent
 * ones:
 *
 *     slots 0 .. sinks-1            the first tokens
 *     the next R slots              the R most recent rows, row p at slot sinks + (p - sinks) % R
 *     the next slots, at most M     mean keys and values of `group` rows each; the last mean may have fewer
 *     slots kv.n_past ..            rows of a draft pass in flight
 *
 * M is half of the budget without the sinks, rounded down; R is the rest. A row that leaves the recent rows
 * enters the last mean. When all M means are full, neighbouring means are merged and `group` doubles. A pass
 * over n rows thus reads R + n / group rows. A mean of n rows must weigh as much as n similar rows, so
 * kv.bias raises its score by ln n, and by 0.3 ln n - 0.4 (1 - 1/n) because the mean of exp(q.k) is larger
 * than exp of the mean. The second term was fitted on models/demo for n from 64 to 1,024.
 *
 * In place of a row that a ring of the full cache has lost (kv.h) stands the nearest block's row in the same
 * slot.
 *
 * While the text fits the budget, and always under the policy `full`, no copy exists: draft passes read the
 * full cache and put their rows after the committed rows. */
#pragma once
#include "kernels/pool.h"
#include "kvmgr/kv.h"

/* KV_AUTO occurs in settings only; the planner replaces it by a policy. */
enum kv_policy { KV_DYNAMIC, KV_STATIC, KV_WINDOW, KV_MEAN, KV_FULL, KV_AUTO };
static inline bool kv_selects(enum kv_policy p) { return p == KV_DYNAMIC || p == KV_STATIC; }
enum { PARTIAL_ROWS_MAX = 16 };          /* most rows in flight: the draft passes of one round */
enum { MEAN_ROWS = 64 };                 /* rows of a mean at first */

struct partial {                         /* {0} is closed */
    struct kv kv;                        /* n_max = budget + PARTIAL_ROWS_MAX */
    struct kv *full;                     /* borrowed */
    struct pool *pool;                   /* borrowed; NULL: one thread */
    enum kv_policy policy;
    size_t sinks, budget, budget_max;
    bool filled;                         /* the cache holds a selection, a window or means */
    size_t n_recent;                     /* rows copied since the last selection */
    size_t n_seen;                       /* committed rows of the full cache that this cache has followed */
    size_t refreshes;
    /* Scratch of a selection: uint32_t [n_kv_heads][full n_max], or as the device needs it. NULL: no copy
     * exists. */
    void *work;
    size_t work_bytes;
    /* [all heads][budget_max]: the row of the full cache that each slot holds; unused under
     * `mean`. On a device: the row that was selected for the slot. */
    uint32_t *row;
    size_t row_bytes;
    uint32_t *from;                      /* [n_layers]: a device selects in all layers at once */
    size_t group, n_far;  /* rows of a full mean; number of rows in means, which follow the sinks */
    /* Sums of the last mean [all heads][2][head_dim]; bias of the slots, in whole blocks. NULL on
     * a device. */
    float *sum, *bias;
    size_t mean_bytes;                   /* bytes of both */
};

size_t partial_bytes(const struct kv *full, enum kv_policy policy, size_t budget, size_t n_max);
/* Asserts 1 <= sinks < budget, and host memory under `mean`. Allocates nothing when the budget covers
 * full->n_max or the policy is KV_FULL. */
int partial_open(struct partial *p, struct kv *full, struct pool *pool, enum kv_policy policy, size_t sinks,
                 size_t budget, struct err *e);
void partial_close(struct partial *p);

/* Changes to another policy (not full) and to a budget of at most the one it was opened with. The next
 * verification pass selects anew; a window or means are filled at once. */
void partial_change(struct partial *p, enum kv_policy policy, size_t budget);

/* The cache that a draft pass reads now. Row i of the pass has slot kv->n_past + i and position full->n_past
 * + i. */
struct kv *partial_kv(struct partial *p);

/* Whether the next verification pass has to hand its scores to partial_select, layer by layer. */
bool partial_needs_scores(const struct partial *p);
/* Takes the device's score[h * step + position] of positions from .. full->n_past-1 (struct pass_seq,
 * `scored`). */
void partial_select(void *partial, size_t layer, const float *score, size_t step, size_t from);

/* Follows the full cache after rows were committed to it or rebuilt: call it after the pass that gave the
 * scores, and before partial_kv and partial_needs_scores. Follow a truncation before new rows take the place
 * of the old ones. {0} follows nothing. */
void partial_follow(struct partial *p);

/* Writes the selection for a snapshot to `out`, at most partial_state_bytes. Returns the number of bytes; 0:
 * nothing is selected. */
size_t partial_state_bytes(const struct partial *p);
size_t partial_save(const struct partial *p, void *out);
/* Restores a selection of the same text. The full cache must hold at least the rows that the selection names;
 * rows after these are followed. Returns false and changes nothing when the bytes do not fit this cache. */
bool   partial_load(struct partial *p, const void *state, size_t n);
