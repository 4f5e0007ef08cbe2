/* Checkpoints of one job while it is being written: the decode loop hands over tokens and counters and goes on; the store's own
 * thread commits them, with its own connection.
 *
 *     checkpoint_open(&c, store, &claim, &options, &e)           behind store_begin
 *     int drafted = checkpoint_metric(c, "heads", "drafted", 0)  once per counter, before the loop
 *     loop:  checkpoint_add(c, drafted, 4);                      any number of them
 *            rc = checkpoint_put(c, ids, n, NULL, &e)            ends a round; never waits for the disk
 *            checkpoint_note(c, "notice", "..");                 an event of the job; never waits either
 *     checkpoint_end(c, &end, &e)                                the rest and the end of the job, in one transaction
 *     checkpoint_close(c)
 *
 * The first token is committed at once, later ones at the latest CHECKPOINT_SECONDS behind the start of the commit before, so that a kill
 * loses less than a second. A token counts as committed (checkpoint_committed) when every other process can read it. A commit that fails
 * is not tried again: the next put says why, and the worker stops. A job that was paused, cancelled, removed or taken over answers 1: the
 * worker drops it. What was put and not committed is then gone, and will be made again by whoever goes on, the same.
 *
 * Counters go to the window of 1,000 tokens in which the round begins (the next token, for a prefill). The cost of checkpoints is counted
 * among them, source "": checkpoint_commits, checkpoint_seconds (wall time of commits, beside the decode loop),
 * checkpoint_cpu_seconds (of the store's thread) and checkpoint_put_seconds (taken from the decode loop); those of a commit are
 * written by the next one. Nothing is allocated between open and close by the calling thread. */
#pragma once
#include "runs/store/store.h"

#define CHECKPOINT_SECONDS 0.8
enum { CHECKPOINT_METRICS_MAX = 256 };

/* Room for notes: so many bytes, and one more for each token that may be put; so many notes, and one more for each so many tokens. */
enum { CHECKPOINT_NOTE_BYTES = 16384, CHECKPOINT_NOTES = 64 };

struct checkpoint;

struct checkpoint_options {
    double seconds;                  /* between commits; 0: CHECKPOINT_SECONDS */
    bool rounds;                     /* keep the rounds that checkpoint_put brings */
};

/* A thread and a connection like s (which stays the caller's) for the job that *claim holds; the claim is copied. */
int checkpoint_open(struct checkpoint **c, const struct store *s, const struct claim *claim,
                    const struct checkpoint_options *o, struct err *e);
/* A counter; source and name must outlive c. At most CHECKPOINT_METRICS_MAX - 4 (asserted). */
int checkpoint_metric(struct checkpoint *c, const char *source, const char *name, unsigned index);
/* Add to a counter of the round in progress. */
void checkpoint_add(struct checkpoint *c, int metric, double value);
/* The n tokens of a round (0: only counters) behind those put before; with those of the claim never more than claim.wanted (asserted).
 * `round`: kept when asked for, its `sources` must outlive c; its start is set here. 0; 1: the job is lost; -1: a commit failed. */
int checkpoint_put(struct checkpoint *c, const int32_t *ids, size_t n, const struct round_row *round,
                   struct err *e);
/* What all of them took from the decode loop. For the thread that puts. */
double checkpoint_put_seconds(const struct checkpoint *c);
/* An event of the job (kind must outlive c, text is copied) that is committed with what is put next to it, in the order of the calls, within the time that
 * holds for tokens; also while nothing is put. One for which there is no room is cut, or left out (a text repeats itself once in 128 tokens at most, and
 * that fits). A job that is lost has no more of them. */
void checkpoint_note(struct checkpoint *c, const char *kind, const char *text);
/* Wait until all that was put is committed. Returns as checkpoint_put. */
int checkpoint_flush(struct checkpoint *c, struct err *e);
/* Commit all that was put and end the job's claim; nothing may be put behind it. Returns as checkpoint_put. */
int checkpoint_end(struct checkpoint *c, const struct job_end *end, struct err *e);
/* Stop the thread, without a commit, and free. NULL is fine. */
void checkpoint_close(struct checkpoint *c);

/* Tokens of the job that are committed now, those of before included. */
size_t checkpoint_committed(struct checkpoint *c);
