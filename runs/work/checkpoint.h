/* Checkpoints of a job in progress. The decode loop hands over tokens and counters and continues; a thread
 * with its own connection commits them to the store.
 *
 *     checkpoint_open(&c, store, &claim, &options, &e)           after store_begin
 *     int drafted = checkpoint_metric(c, "heads", "drafted", 0)  once per counter, before the loop
 *     loop:  checkpoint_add(c, drafted, 4);                      any number of times
 *            rc = checkpoint_put(c, ids, n, NULL, &e)            ends a round; never waits for the disk
 *            checkpoint_note(c, "notice", "..");                 an event of the job; never waits either
 *     checkpoint_end(c, &end, &e)                                the rest and the job's end at once
 *     checkpoint_close(c)
 *
 * Timing. The first token is committed at once. Later tokens are committed at most CHECKPOINT_SECONDS
 * after the start of the previous commit, so a kill loses less than a second of work. A token counts as
 * committed (checkpoint_committed) when every other process can read it.
 *
 * Failures. A failed commit is not repeated: the next put returns the reason, and the worker stops. For a
 * job that was paused, cancelled, removed or taken over, put returns 1, and the worker drops the job.
 * Tokens that were put but not committed are lost then; the next worker generates the same tokens again.
 *
 * Counters belong to the window of 1,000 tokens in which the round begins; a prefill's counters belong to
 * the window of the next token. The checkpoints count their own cost, source "": checkpoint_commits;
 * checkpoint_seconds, the wall time of commits beside the decode loop; checkpoint_cpu_seconds, of the
 * thread; checkpoint_put_seconds, taken from the decode loop. The figures of one commit are written by the
 * next one.
 *
 * The calling thread allocates nothing between open and close. */
#pragma once
#include "runs/store/store.h"

#define CHECKPOINT_SECONDS 0.8
enum { CHECKPOINT_METRICS_MAX = 256 };

/* Room for notes: this many bytes, and one more per token of the job; this many notes, and one more per
 * this many tokens. */
enum { CHECKPOINT_NOTE_BYTES = 16384, CHECKPOINT_NOTES = 64 };

struct checkpoint;

struct checkpoint_options {
    double seconds;                  /* between commits; 0: CHECKPOINT_SECONDS */
    bool rounds;                     /* store the rounds that checkpoint_put passes */
};

/* Start the thread, with a connection like s, for the job of *claim. Copies the claim. */
int checkpoint_open(struct checkpoint **c, const struct store *s, const struct claim *claim,
                    const struct checkpoint_options *o, struct err *e);
/* Register a counter and return its number. source and name must outlive c. At most CHECKPOINT_METRICS_MAX
 * - 4 (asserted). */
int checkpoint_metric(struct checkpoint *c, const char *source, const char *name, unsigned index);
/* Add to a counter of the current round. */
void checkpoint_add(struct checkpoint *c, int metric, double value);
/* Put the n tokens of a round; n 0: only counters. The job never exceeds claim.wanted tokens (asserted).
 * `round` is stored if the options say so: `start` is set here, `sources` must outlive c. 0; 1: the job is
 * lost; -1: a commit failed. */
int checkpoint_put(struct checkpoint *c, const int32_t *ids, size_t n, const struct round_row *round,
                   struct err *e);
/* Seconds that all puts took from the decode loop. Only for the thread that puts. */
double checkpoint_put_seconds(const struct checkpoint *c);
/* Add an event of the job, with the current time. It is committed as soon as tokens would be, in the order
 * of the calls. `kind` must outlive c; `text` is copied, cut if little room is left, and dropped without
 * room. */
void checkpoint_note(struct checkpoint *c, const char *kind, const char *text);
/* Wait until everything put so far is committed. Returns as checkpoint_put. */
int checkpoint_flush(struct checkpoint *c, struct err *e);
/* Commit everything and end the job's claim. Nothing may be put afterwards. Returns as checkpoint_put. */
int checkpoint_end(struct checkpoint *c, const struct job_end *end, struct err *e);
/* Stop the thread without a commit, and free. NULL is allowed. */
void checkpoint_close(struct checkpoint *c);

/* Tokens of the job that are committed now, including those from before this claim. */
size_t checkpoint_committed(struct checkpoint *c);
