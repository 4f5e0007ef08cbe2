/* The life of snapshot files: where they lie, when one counts, when it goes.
 *
 * They lie beside the database in a folder of its name and ".snapshots" (0700), as JOB-ATTEMPT-TOKENS.kv. One is written aside (.part), synced,
 * renamed, the folder and its own name synced, and only then named by a row of the table `snapshot`, fenced by the attempt.
 * So a row names a file that is complete, at any moment, and a file that no row names is worth nothing: snapshot_files_collect deletes it unless
 * the attempt in its name is at work now. Rows go when a job is done, failed, cancelled or removed.
 *
 * Committed rows of a cache never change, so a file holds those that came since the last one, and a job has several: each begins where the one
 * before it ends. A new one takes in those before it that are at most twice as large as what it has by then, and they are deleted: each is
 * more than twice as large as the next, so there are few of them, and a row is written a number of times that is logarithmic in the text. Who has
 * not the time for that says how many rows the file may have: then there is one file more, until a later one takes it in.
 *
 * Writing is done by a thread with a connection of its own, of whoever works on the job:
 *
 *     snapshot_files_open(&x, store, &claim, good, n, max_bytes, write, ctx, &e)
 *     from = snapshot_files_next_start(x, tokens, most)    where the next file begins
 *     snapshot_files_write(x, from, tokens, bytes)   never waits; ctx is the thread's until it has ended
 *     if (snapshot_files_result(x, &result)) ...      in every round
 *     snapshot_files_close(x)                        gives up what is being written
 *
 * What is in the file is the business of `write`. A failure costs nothing but the snapshot. */
#pragma once
#include <stdatomic.h>

#include "runs/store/store.h"

/* Write it to fd, a new file, from offset 0, over what it has (zeros); *stop: give up (ERR_AGAIN). On the snapshots' thread. */
typedef int snapshot_write_fn(void *ctx, int fd, const atomic_bool *stop, struct err *e);

struct snapshot_result {
    /* 0: it counts; 1: the job is lost; -1: err says why not (ERR_AGAIN: it was given up) */
    int rc;
    struct err err;
    size_t tokens; uint64_t bytes;
    double seconds, cpu_seconds;         /* from start to end; of the thread */
};

struct snapshot_files;
/* good: files that snapshot_files_list gave and that were found good; what rows name beyond them is replaced. max_bytes: that all snapshots of this store may
 * take together, one that is being replaced and those that others write included; 0: any. Independent of it SNAPSHOT_FREE_BYTES bytes of the file system stay free (a quarter of a small one), for the store. */
#define SNAPSHOT_FREE_BYTES ((uint64_t)256 << 20)
/* The connection is opened by the thread, with the first one that is begun: s must outlive x. */
int snapshot_files_open(struct snapshot_files **x, const struct store *s, const struct claim *c,
                   const struct snapshot_row *good, size_t n_good, uint64_t max_bytes,
                   snapshot_write_fn *write, void *ctx, struct err *e);
/* Where a file begins that is to end at `tokens`, more than there are: no file is taken in with which it had more than `most` rows, but the last where
 * there is no room for another row of the table. None may be in progress here and in the next (asserted). */
size_t snapshot_files_next_start(struct snapshot_files *x, size_t tokens, size_t most);
/* `bytes`: what the file will have. */
void snapshot_files_write(struct snapshot_files *x, size_t from, size_t tokens, uint64_t bytes);
bool snapshot_files_busy(struct snapshot_files *x);
/* Whether one has ended since the last call: then *r. */
bool snapshot_files_result(struct snapshot_files *x, struct snapshot_result *r);
/* Wait for the one in progress; behind so many seconds (0: at once) it is told to give up. */
void snapshot_files_wait(struct snapshot_files *x, double seconds);
void snapshot_files_close(struct snapshot_files *x);       /* NULL is fine */

/* The files that the job's rows name, in their order; whether they are there and good is for the reader to find out. -1: what follows these n is
 * nothing that can be used. */
int snapshot_files_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                   struct err *e);
int snapshot_files_path(const struct store *s, const struct snapshot_row *r, char *path, size_t size,
                   struct err *e);
/* Delete what no row names and no attempt is working on, and the folder when it is empty. Other files are left alone. */
void snapshot_files_collect(struct store *s);
