/* Snapshot files: where they lie, when a file is valid, and when it is deleted.
 *
 * Two kinds of rows appear here. A cache row is the keys and values of one token. A record is a row of the
 * table `snapshot` in the database (struct snapshot_row); it names one file.
 *
 * Place. The files lie beside the database in a folder DATABASE.snapshots, as JOB-ATTEMPT-TOKENS.kv. Owner
 * and group have the rights there that they have on the database; others have none. A file is written under a
 * temporary name (.part), synced and renamed; then its folder and the folder's own name are synced. Only then
 * a record, fenced by the attempt, names the file. So a record always names a complete file. A file without a
 * record is worthless: snapshot_files_delete_unused deletes it, unless the attempt in its name is running. A
 * job's records are deleted when the job is done, failed, cancelled or removed.
 *
 * Sizes. Committed rows of a cache never change, so a new file holds only the cache rows since the last
 * file. A job has several files, and each starts where the previous one ends. A new file may absorb the last
 * file: it then starts where that file starts and replaces it. It absorbs the last file while that is at most
 * twice as large as the new file, and repeats this with the file before. So each file is more than twice as
 * large as the next, there are few files, and a cache row is rewritten only a logarithmic number of times. A
 * caller that lacks the time to rewrite so many rows limits the length of the new file; a later file absorbs
 * the files that this one does not.
 *
 * A thread with its own connection writes them. A failure costs nothing but the snapshot. */
#pragma once
#include <stdatomic.h>

#include "runs/store/store.h"

/* Write the content to fd from offset 0. fd is a new file and may already have its final length, filled
 * with zeros. Runs on the thread. If *stop becomes true, give up with ERR_AGAIN. */
typedef int snapshot_write_fn(void *ctx, int fd, const atomic_bool *stop, struct err *e);

struct snapshot_result {
    int rc;                              /* 0: the file is valid; 1: the job is lost; -1: failed */
    struct err err;                      /* with -1; ERR_AGAIN: the file was abandoned */
    size_t tokens; uint64_t bytes;
    double seconds, cpu_seconds;         /* from start to end; of the thread */
};

/* No snapshot leaves fewer free bytes in its file system: the store needs them. On a small file system a
 * quarter of its size must stay free instead. */
#define SNAPSHOT_FREE_BYTES ((uint64_t)256 << 20)

struct snapshot_options {
    /* records whose files were restored; new records replace all others */
    const struct snapshot_row *good; size_t n_good;
    uint64_t max_bytes;                  /* limit for all snapshots of the store, finished or not; 0: none */
    snapshot_write_fn *write; void *ctx;
};

struct snapshot_files;
/* Start the thread. It opens its connection with the first file, so s must outlive x. */
int snapshot_files_open(struct snapshot_files **x, const struct store *s, const struct claim *c,
                        const struct snapshot_options *o, struct err *e);
/* Where a file that ends at `tokens`, after the end of the last file, should start. The file absorbs previous
 * files only up to a length of rows_max cache rows, unless the table has no room for another record. No file
 * may be in progress (asserted). */
size_t snapshot_files_next_start(struct snapshot_files *x, size_t tokens, size_t rows_max);
/* Begin a file of `bytes` bytes with cache rows from .. tokens-1. Never waits; the thread uses ctx until the
 * file has ended. No file may be in progress (asserted). */
void snapshot_files_write(struct snapshot_files *x, size_t from, size_t tokens, uint64_t bytes);
bool snapshot_files_busy(struct snapshot_files *x);
/* Whether the file in progress has ended since the last call. If so, *r is its result. */
bool snapshot_files_result(struct snapshot_files *x, struct snapshot_result *r);
/* Wait for the file in progress. After `seconds` (0: at once) the thread is told to give it up. */
void snapshot_files_wait(struct snapshot_files *x, double seconds);
/* Abandons the file in progress. NULL is allowed. */
void snapshot_files_close(struct snapshot_files *x);

/* The job's records, in the order of their rows. Whether the files exist and are valid shows when they are
 * read. -1: the n records of row[] are usable, later ones are not. */
int snapshot_files_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                        struct err *e);
int snapshot_files_path(const struct store *s, const struct snapshot_row *r, char *path, size_t size,
                        struct err *e);
/* Call `found` for each file that no record names and no running attempt writes. */
void snapshot_files_unused(struct store *s, void (*found)(void *ctx, const char *path), void *ctx);
/* Delete the files that no record names and no running attempt writes, and the folder if it is empty. Files
 * with other names stay. */
void snapshot_files_delete_unused(struct store *s);
