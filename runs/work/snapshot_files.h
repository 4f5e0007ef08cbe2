/* Snapshot files: where they lie, when a file counts, and when it is deleted.
 *
 * Place. The files lie beside the database in a folder DATABASE.snapshots (0700), as
 * JOB-ATTEMPT-TOKENS.kv. A file is written under a temporary name (.part), synced and renamed; then its
 * folder and the folder's own name are synced. Only then a row of the table `snapshot`, fenced by the
 * attempt, names it. So a row always names a complete file. A file that no row names is worthless:
 * snapshot_files_collect deletes it, unless the attempt in its name is running. A job's rows are deleted
 * when it is done, failed, cancelled or removed.
 *
 * Sizes. Committed rows of a cache never change, so a new file holds only the rows since the last file. A
 * job has several files, each starts where the previous one ends. A new file also absorbs those previous
 * files that are at most twice as large as the new file at that point. So each file is more than twice as
 * large as the next, there are few files, and a row is rewritten only a logarithmic number of times. A
 * caller without time for that limits the rows of the new file; then one more file exists until a later
 * file absorbs it.
 *
 * Writing happens on a thread with its own connection:
 *
 *     snapshot_files_open(&x, store, &claim, &options, &e)
 *     from = snapshot_files_next_start(x, tokens, most)    where the next file starts
 *     snapshot_files_write(x, from, tokens, bytes)         never waits; the thread uses ctx until it ends
 *     if (snapshot_files_result(x, &result)) ...           in every round
 *     snapshot_files_close(x)                              abandons the file in progress
 *
 * `write` decides the content. A failure costs nothing but the snapshot. */
#pragma once
#include <stdatomic.h>

#include "runs/store/store.h"

/* Write the content to fd from offset 0. fd is a new file and may already have its final length, filled
 * with zeros. Runs on the thread. If *stop becomes true, give up with ERR_AGAIN. */
typedef int snapshot_write_fn(void *ctx, int fd, const atomic_bool *stop, struct err *e);

struct snapshot_result {
    int rc;                              /* 0: the file counts; 1: the job is lost; -1: failed */
    struct err err;                      /* with -1; ERR_AGAIN: it was abandoned */
    size_t tokens; uint64_t bytes;
    double seconds, cpu_seconds;         /* from start to end; of the thread */
};

/* This many bytes of the file system stay free for the store, or a quarter of a small file system. */
#define SNAPSHOT_FREE_BYTES ((uint64_t)256 << 20)

struct snapshot_options {
    const struct snapshot_row *good; size_t n_good;  /* files found good; other rows are replaced */
    uint64_t max_bytes;                  /* limit for all snapshots of the store, finished or not; 0: none */
    snapshot_write_fn *write; void *ctx;
};

struct snapshot_files;
/* Start the thread. It opens its connection with the first file, so s must outlive x. */
int snapshot_files_open(struct snapshot_files **x, const struct store *s, const struct claim *c,
                        const struct snapshot_options *o, struct err *e);
/* Where a file that ends at `tokens` (more than exist) should start. It absorbs no previous file that
 * would give it more than `most` rows, unless the table has no room for another row. No file may be in
 * progress, also in the next call (asserted). */
size_t snapshot_files_next_start(struct snapshot_files *x, size_t tokens, size_t most);
/* Begin a file of `bytes` bytes with rows from .. tokens-1. */
void snapshot_files_write(struct snapshot_files *x, size_t from, size_t tokens, uint64_t bytes);
bool snapshot_files_busy(struct snapshot_files *x);
/* Whether a file has ended since the last call; then *r. */
bool snapshot_files_result(struct snapshot_files *x, struct snapshot_result *r);
/* Wait for the file in progress. After `seconds` (0: at once) it is told to give up. */
void snapshot_files_wait(struct snapshot_files *x, double seconds);
void snapshot_files_close(struct snapshot_files *x);     /* NULL is allowed */

/* The files that the job's rows name, in order. The reader finds out whether they exist and are good. -1:
 * whatever follows these n files is unusable. */
int snapshot_files_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                        struct err *e);
int snapshot_files_path(const struct store *s, const struct snapshot_row *r, char *path, size_t size,
                        struct err *e);
/* Delete the files that no row names and no running attempt writes, and the folder if it is empty. Other
 * files stay. */
void snapshot_files_collect(struct store *s);
