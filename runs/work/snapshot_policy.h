/* When snapshots of a job are made, and what becomes of one when the job is gone on with.
 *
 *     snapshot_policy_open(&k, ...)          behind checkpoint_open and decode_open
 *     snapshot_policy_restore(&k)            behind decode_append: the rows of the snapshot that there is, if it is good
 *     snapshot_policy_prefill_pass(&k)            between passes of decode_prefill
 *     snapshot_policy_prefilled(&k, seconds)   behind decode_prefill, which read the rest
 *     loop: snapshot_policy_round(&k)
 *     snapshot_policy_stop(&k)               at a clean interruption; the job is still this worker's
 *     snapshot_policy_close(&k)              before the claim ends
 *
 * `auto`: one is made when reading what came since the last one again would take more than SNAPSHOT_GAIN_SECONDS, as far as the cost of all of this
 * attempt (CPU time of the thread that writes, and what the decode loop waited) stays below SNAPSHOT_SHARE of its time. With the cache on a GPU and
 * more than one core here, that thread is in nobody's way: the cost is the copy's share of the GPU's memory, at 100 GB/s. So it is while a prompt is
 * read for the first time, too. An attempt that is not the job's first reads what was read before, and what has happened once may happen again: while it
 * reads, and at once behind a rebuild that took longer than SNAPSHOT_GAIN_SECONDS, the share is SNAPSHOT_REBUILD_SHARE. So who is killed again and again gets through
 * any text, as far as an attempt lives some multiple of SNAPSHOT_GAIN_SECONDS. Earlier files are taken into the next as far as the share allows it. And one is made at
 * a clean interruption, which waits SNAPSHOT_STOP_SECONDS for it at most: who stops a process soon kills it.
 * `on`: of any text, at most one a second as far as the shares allow it; behind a rebuild and at interruptions always. `off`: none is made and none is used.
 *
 * Nothing here can fail: what goes wrong is one notice of the attempt, and the text is read again. One that could not be made is tried again when
 * SNAPSHOT_RETRY_SECONDS are over, then twice as many, and so on to SNAPSHOT_RETRY_SECONDS_MAX: a disk that was full may have room by then. Counters (source ""): snapshots, snapshot_bytes, snapshot_seconds
 * (wall time beside the decode loop), snapshot_cpu_seconds, snapshot_put_seconds (taken from the decode loop); restored_tokens, restore_seconds,
 * restore_saved_seconds (what reading them would have taken, as estimated, less restore_seconds). */
#pragma once
#include "runs/work/checkpoint.h"
#include "runs/work/snapshot_files.h"
#include "src/decode/decoder_image.h"

#define SNAPSHOT_GAIN_SECONDS 5.0
#define SNAPSHOT_SHARE 0.004
#define SNAPSHOT_REBUILD_SHARE 0.1
#define SNAPSHOT_STOP_SECONDS 60
#define SNAPSHOT_RETRY_SECONDS 2.0
#define SNAPSHOT_RETRY_SECONDS_MAX 600.0

enum kv_snapshot { KV_SNAPSHOT_AUTO, KV_SNAPSHOT_ON, KV_SNAPSHOT_OFF };      /* --kv-snapshot */
enum { SNAPSHOT_METRICS = 8 };

struct snapshot_policy {                      /* {0} is closed */
    enum kv_snapshot mode;
    uint64_t max_bytes;
    struct store *store;             /* borrowed, as the next two */
    const struct claim *claim;
    struct checkpoint *checkpoint;
    struct image image;
    struct snapshot_row good[STORE_SNAPSHOTS_MAX]; size_t n_good;    /* files that rows were restored from */
    struct snapshot_files *files;         /* NULL: not opened yet, or never */
    double retry, retry_at;          /* after failures: seconds to the next try, and when (but at an interruption) that is; 0: behind a success */
    char notice[1100];               /* "": none; the first one of the attempt */
    size_t kept;                     /* rows of the last one that counts, or 0 */
    double started, looked, last;    /* on clock_seconds */
    double cost, rate;               /* seconds so far; bytes per second of CPU time */
    int metric[SNAPSHOT_METRICS];
};

void snapshot_policy_open(struct snapshot_policy *k, enum kv_snapshot mode, uint64_t max_bytes, struct store *s,
                 const struct claim *c, struct checkpoint *p, struct decoder *d,
                 const struct snapshot_owner *owner);
void snapshot_policy_restore(struct snapshot_policy *k);
void snapshot_policy_prefill_pass(struct snapshot_policy *k);
void snapshot_policy_prefilled(struct snapshot_policy *k, double seconds);
void snapshot_policy_round(struct snapshot_policy *k);
void snapshot_policy_stop(struct snapshot_policy *k);
void snapshot_policy_close(struct snapshot_policy *k);
