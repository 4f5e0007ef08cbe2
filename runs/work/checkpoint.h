/* Checkpoints of the jobs in progress. The decode loop hands over tokens and counters and continues; a thread
 * with its own connection, the committer, commits those of all jobs in one transaction. checkpoint_put ends a
 * round. It and checkpoint_note never wait for the disk.
 *
 * Timing. A job's first token is committed at once. Later tokens are committed at most CHECKPOINT_SECONDS
 * after the start of the previous commit, so a kill loses less than a second of each job's work. A token
 * counts as committed (checkpoint_committed) when every other process can read it.
 *
 * Failures. A failed commit is not repeated: the next put returns the reason, and the worker stops. For a
 * job that was paused, cancelled, removed or taken over, put returns 1, and the worker drops the job. The
 * other jobs of the commit are not affected (store_commit_all).
 * Tokens that were put but not committed are lost then; the next worker generates the same tokens again.
 *
 * Counters are the rows struct metric of the store: sums by window, source, name and index. A counter belongs
 * to the window of 1,000 tokens in which the round begins; a prefill's counters belong to the window of the
 * next token. The cost of a commit is stored by the next commit.
 *
 * The calling thread allocates nothing between open and close. */
#pragma once
#include "runs/store/store.h"

#define CHECKPOINT_SECONDS 0.8
enum { CHECKPOINT_COUNTERS_MAX = 320 };
enum { WORKER_JOBS_MAX = 64 };           /* jobs that a worker runs at once */

/* The counters that every job has, under source "" (no drafter); checkpoint.c has their names. */
enum {
    /* the checkpoints count their own cost */
    COUNT_COMMITS,
    COUNT_COMMIT_SECONDS,                /* wall time of the commits, beside the decode loop */
    COUNT_COMMIT_CPU_SECONDS,            /* of the committing thread */
    COUNT_PUT_SECONDS,                   /* that puts and flushes took from the decode loop */
    COUNT_PREFILL_TOKENS,
    COUNT_PREFILL_SECONDS,
    COUNT_SHARED_TOKENS,                 /* whose cache rows are those of other jobs */
    COUNT_WORKER_TOKENS,                 /* of all jobs in the rounds of this one */
    COUNT_WORKER_SECONDS,                /* of these rounds */
    COUNT_SNAPSHOTS,                     /* files that were completed */
    COUNT_SNAPSHOT_BYTES,
    COUNT_SNAPSHOT_SECONDS,              /* wall time of writing, beside the decode loop */
    COUNT_SNAPSHOT_CPU_SECONDS,          /* of the writing thread */
    COUNT_SNAPSHOT_PUT_SECONDS,          /* taken from the decode loop */
    COUNT_RESTORED_TOKENS,               /* whose cache rows came from snapshots */
    COUNT_RESTORE_SECONDS,
    COUNT_SAVED_SECONDS,                 /* estimated prefill time of these tokens, less RESTORE_SECONDS */
    COUNT_ROUNDS_OF,                     /* rounds of 1 job, of 2 jobs and so on, up to WORKER_JOBS_MAX */
    COUNTS = COUNT_ROUNDS_OF + WORKER_JOBS_MAX
};

/* Room for the notes of an attempt that may write n tokens: CHECKPOINT_NOTE_BYTES + n bytes in
 * CHECKPOINT_NOTES + n / CHECKPOINT_NOTES notes. */
enum { CHECKPOINT_NOTE_BYTES = 16384, CHECKPOINT_NOTES = 64 };

struct committer;
/* Once per worker: start the thread, with its own connection to the database of s. seconds: between commits;
 * 0: CHECKPOINT_SECONDS. The thread calls `told` after each commit for each of its jobs, and may not wait
 * there; NULL: nobody is told. */
int committer_open(struct committer **k, const struct store *s, double seconds,
                   void (*told)(void *ctx, int64_t job), void *ctx, struct err *e);
/* After checkpoint_close of every job (asserted). NULL is allowed. */
void committer_close(struct committer *k);

struct checkpoint;
struct checkpoint_options {
    bool rounds;                         /* store the rounds that checkpoint_put passes */
    /* Keep the log-probabilities of all tokens, with the `best` likeliest ones. Then checkpoint_put_logprobs
     * comes before each checkpoint_put with tokens. */
    bool logprobs; size_t best;
    /* The text may be cut back to its first `settled` tokens. ids: its tokens in the store.
     * checkpoint_settled tells how far it is settled, which the next put commits. */
    bool retakes; const int32_t *ids; size_t settled;
};
/* After store_begin: open the queue of the job of *claim, which is copied. At most WORKER_JOBS_MAX queues
 * are open at once (asserted). */
int checkpoint_open(struct checkpoint **c, struct committer *k, const struct claim *claim,
                    const struct checkpoint_options *o, struct err *e);
/* Before the first round: register a further counter and return its number. source and name must outlive c.
 * There is room for CHECKPOINT_COUNTERS_MAX - COUNTS counters (asserted). */
int checkpoint_counter(struct checkpoint *c, const char *source, const char *name, unsigned index);
/* v: [n][1 + best]. */
void checkpoint_put_logprobs(struct checkpoint *c, const struct logprob *v, size_t n);
void checkpoint_settled(struct checkpoint *c, size_t settled);
/* Cut the text back to x->at tokens, all of which were put, and commit the retake with what follows. May wait
 * for a commit in progress. Returns as checkpoint_put. */
int  checkpoint_retake(struct checkpoint *c, const struct retake *x, struct err *e);
/* Add to a counter of the current round: a COUNT_, or one that was registered. */
void checkpoint_add(struct checkpoint *c, int counter, double value);
/* Put the n tokens of a round; n 0: only counters. The job never exceeds claim.wanted tokens (asserted).
 * `round` is stored if the options say so; its fields `start` and `tokens` are set here, and its string
 * `sources` must outlive c. 0; 1: the job is lost; -1: a commit failed. */
int checkpoint_put(struct checkpoint *c, const int32_t *ids, size_t n, const struct round_row *round,
                   struct err *e);
/* Seconds that all puts took from the decode loop. Only for the thread that puts. */
double checkpoint_put_seconds(const struct checkpoint *c);
/* Add an event of the job, with the current time. Events are committed in the order of the calls, as soon as
 * a token put at the same time. `kind` must outlive c. `text` is copied. If little room is left, the text is
 * cut; if no room is left, the event is dropped. */
void checkpoint_note(struct checkpoint *c, const char *kind, const char *text);
/* Wait until everything put so far is committed. Returns as checkpoint_put. */
int checkpoint_flush(struct checkpoint *c, struct err *e);
/* Commit everything and end the job's claim. last: the retake that ends the text, or NULL. The commit of the
 * end has it, for without the end a resumed text would go on after it. Nothing may be put afterwards. Returns
 * as checkpoint_put. */
int checkpoint_end(struct checkpoint *c, const struct job_end *end, const struct retake *last, struct err *e);
/* Drop what is not committed, and free. NULL is allowed. */
void checkpoint_close(struct checkpoint *c);

/* Tokens of the job that are committed now, including those from before this claim. */
size_t checkpoint_committed(struct checkpoint *c);
