/* Gated DeltaNet (arXiv:2412.06464) on the CPU: device->delta of `cpu`. A layer mixes rows by a recurrent
 * state of fixed size, S [key_dim][value_dim] for each value head, instead of a cache. For each row, with the
 * products q, k, v, z, b, a of its normalised input:
 *
 *     q, k, v = silu(convolution of the last `conv` rows of q, k, v, each channel alone)
 *     q, k    = their heads divided by sqrt(sum of squares + 1e-6); q also by sqrt(key_dim)
 *     beta    = sigmoid(b);  g = exp(-exp(A_log) * log(1 + exp(a + dt_bias)))
 *     S       = g S;  S = S + k (x) (beta (v - k S));  o = q S          for each value head
 *     out     = norm(o) * w * silu(z)
 *
 * R1: rows of a text or of a path go through the same steps in the same order, whatever the pass looks like;
 * a state is float32, and each of its columns is computed alone (struct delta_step in ops.h).
 *
 * Rows of a verification pass may be rejected, so they change no state. The state before a row lies in the
 * scratch of a thread: a tree is walked depth first, the largest subtree of a node last and in place, which
 * needs at most DELTA_SLOTS copies. Each row leaves what it would add: its key, delta, decay and convolution
 * input (delta_kept_row). Once these rows are accepted, the next pass applies them as `pending` rows before
 * its own; delta_settle does so without a pass. */
#pragma once
#include "kernels/device.h"
#include "kernels/pool.h"

enum { DELTA_SLOTS = 16 };               /* enough for trees of 2^14 rows */

/* A step of a walk: the state in slot `from` takes row `before` and goes to slot `to`; row `now` reads it.
 * Slot -1 is the state itself, row -1 none; kept: `before` is a pending row. */
struct delta_walk { int32_t before, now; int16_t from, to; bool kept; };

/* Buffers for passes within the limits. The device places them. */
struct delta_room {
    float *y;                            /* [rows_max][channels]: convolved q, k, v */
    float *v, *delta, *o;                /* [rows_max][value_heads][wide] */
    float *qk;                           /* [rows_max][key_heads] */
    float *beta, *decay;                 /* [rows_max][value_heads] */
    float *unit;                         /* [2][key_dim]: weights of the norms of q and k */
    float *slot;                         /* [threads][DELTA_SLOTS][key_dim][DELTA_COLUMNS] */
    struct delta_walk *step;             /* [delta_steps_max] */
    size_t *first;                       /* [rows_max + 1]: where the steps of a sequence begin */
    int32_t *tree;                       /* [6][rows_max]: tables of delta_plan */
    size_t rows_max;
};
static inline size_t delta_steps_max(size_t rows_max) { return 2 * rows_max; }

/* Places the buffers in mem, zeroed, or with mem NULL only adds up their bytes; room may then be NULL. */
size_t delta_place(struct delta_room *room, char *mem, const struct device_limits *l, size_t threads);

struct delta_run {
    const struct ops *ops;
    struct pool *pool;
    const struct delta_room *room;
    const struct device_rows *rows;
    enum dtype act;
};
/* Plans the walks of a pass, before its first layer. */
void delta_plan(struct delta_room *room, const struct device_rows *rows);
void delta_run(const struct delta_run *r, const struct device_delta *a);
/* Applies pending rows to the states of all layers. */
void delta_settle(const struct device_state *s, const struct ops *ops, struct pool *pool);
