/* The recurrent states of one decoder, beside its KV cache (struct kv, member `state`), and which of its rows
 * they hold.
 *
 *     at          rows of the text that the states have taken
 *     pending     then so many committed rows, which a pass kept (kernels/delta.h)
 *
 * kv_advance, kv_commit_path and kv_truncate keep at + pending at n_past. The states cannot be cut back: a
 * cut below `at` goes back to the last copy of them before it, or forgets all rows. The mark is a copy at one
 * position, for texts that begin alike. A text that may be cut has STATE_COPIES more, taken in turns every
 * STATE_EVERY rows: the newer one replaces the older one only after its rows are final, so no cut is before
 * both. The host's memory only. */
#pragma once
#include "kernels/device.h"
#include "src/base/base.h"

struct pool;

enum { STATE_COPIES = 2, STATE_EVERY = 256 };

/* A copy of what a cache cannot go back to otherwise; NULL: none is kept. at: its rows, 0: not yet there;
 * want: where it is wanted. */
struct kv_mark { char *copy; size_t at, want; };

struct states {
    struct device_state d;           /* d.pending is `path` */
    size_t at;
    size_t ahead;                    /* rows that the states have taken and kv_advance has not committed */
    struct kv_mark mark;             /* state_fixed_bytes (kvmgr/prefix.h) */
    float *copy[STATE_COPIES];       /* likewise; NULL: the text is never cut */
    size_t copy_at[STATE_COPIES];    /* their rows, 0: not yet there */
    const size_t *final;             /* rows that no cut forgets; NULL: cuts are short */
    uint32_t *path;                  /* [kept_max] */
    char *mem; size_t bytes;
};

/* Bytes of the states, of the last inputs of the convolutions, and of n kept rows; 0 without states; SIZE_MAX
 * where they do not fit size_t. */
size_t state_bytes(const struct delta_shape *d, size_t n);
/* The part of them that is the states and the last inputs. */
size_t state_fixed_bytes(const struct delta_shape *d);
/* mark: where a copy of the states is kept; 0: nowhere. cuts: whether the text may be cut. */
int state_open(struct states **s, const struct delta_shape *d, size_t n, size_t mark, bool cuts,
               struct err *e);
/* Begins with the mark of `from`, and keeps it as its own if it has one. */
void state_begin(struct states *s, const struct states *from);
/* Frees all but the mark. */
void state_retire(struct states *s);
void state_close(struct states *s);
/* A pass has applied the pending rows. n: rows that the states have taken besides (struct device_seq,
 * certain). */
void state_passed(struct states *s, size_t n);
/* Commits n rows: those that were taken, else kept rows node[0..n), or 0..n-1 with node NULL. */
void state_commit(struct states *s, const uint32_t *node, size_t n);
/* Forgets committed rows from n on, and all rows that are not committed. Returns the number of rows that
 * remain: n, those of the mark or of a copy, or 0. */
size_t state_truncate(struct states *s, size_t n);
/* Says that the states are those after n rows, for whoever has written or restored them. */
void state_place(struct states *s, size_t n);
/* Applies the pending rows. */
void state_settle(struct states *s, const struct ops *ops, struct pool *pool);
