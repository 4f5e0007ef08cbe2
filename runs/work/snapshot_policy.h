/* When a job's snapshots are made, and how a resumed job uses them.
 *
 * Mode `auto` makes a snapshot when the snapshot would save a resumed job more than SNAPSHOT_GAIN_SECONDS of
 * prefill. The cost of all snapshots of this attempt stays below a share of the attempt's time:
 *
 *     - Normally the share is SNAPSHOT_SHARE, also while a prompt is read for the first time.
 *     - A second or later attempt reads tokens that an earlier attempt read, and may be killed again. While
 *       it reads, and right after a prefill that took longer than SNAPSHOT_GAIN_SECONDS, the share is
 *       SNAPSHOT_REBUILD_SHARE. So a job that is killed again and again still completes any text, if each
 *       attempt lives for a few times SNAPSHOT_GAIN_SECONDS.
 *
 * The cost is the CPU time of the writing thread and the time that the decode loop waited. With the cache
 * on a GPU and more than one CPU core that thread disturbs nobody; then the cost is the copy's share of
 * the GPU's memory bandwidth, at 100 GB/s. A new file absorbs earlier files as far as the share allows. A
 * clean interruption makes a snapshot, whatever it costs, if the snapshot saves more than
 * SNAPSHOT_GAIN_SECONDS. The process waits at most SNAPSHOT_STOP_SECONDS for those of all its jobs, because
 * whoever stops a process soon kills it.
 *
 * Mode `on` makes snapshots of any text, however short: at most one a second while their cost stays below the
 * same shares, and one after every prefill and at every clean interruption. Mode `off` neither makes nor uses
 * snapshots.
 *
 * Nothing here can fail. A problem becomes one notice of the attempt, and the text is read again. A
 * snapshot that could not be made is retried after SNAPSHOT_RETRY_SECONDS, then after twice that time, up
 * to SNAPSHOT_RETRY_SECONDS_MAX: a full disk may have room by then. */
#pragma once
#include "runs/work/checkpoint.h"
#include "runs/work/snapshot_files.h"
#include "src/decode/decoder_image.h"

#define SNAPSHOT_GAIN_SECONDS 5.0
#define SNAPSHOT_SHARE 0.004
#define SNAPSHOT_REBUILD_SHARE 0.1
#define SNAPSHOT_STOP_SECONDS 20
#define SNAPSHOT_RETRY_SECONDS 2.0
#define SNAPSHOT_RETRY_SECONDS_MAX 600.0

enum kv_snapshot { KV_SNAPSHOT_AUTO, KV_SNAPSHOT_ON, KV_SNAPSHOT_OFF };      /* --kv-snapshot */

struct snapshot_policy {             /* {0} is closed */
    enum kv_snapshot mode;
    uint64_t max_bytes;
    struct store *store;             /* store, claim and checkpoint are borrowed */
    const struct claim *claim;
    struct checkpoint *checkpoint;
    struct image image;
    struct snapshot_row good[STORE_SNAPSHOTS_MAX]; size_t n_good;    /* records of the restored files */
    struct snapshot_files *files;    /* NULL: not opened yet, or never */
    double retry, retry_at;          /* after a failure: seconds until the next try, and its time; else 0 */
    char notice[1100];               /* the first notice of the attempt; "": none */
    size_t kept;                     /* cache rows in the last valid snapshot; 0: no snapshot */
    double started;                  /* when the policy was opened, by clock_seconds */
    double checked_at, result_at;    /* when consider_snapshot last checked; when the last file ended */
    double cost;                     /* seconds that snapshots have cost so far */
    double rate;                     /* bytes written per second of CPU time */
};

/* After checkpoint_open and decode_open; then in this order: */
void snapshot_policy_open(struct snapshot_policy *k, enum kv_snapshot mode, uint64_t max_bytes,
                          struct store *s, const struct claim *c, struct checkpoint *p, struct decoder *d,
                          const struct snapshot_owner *owner);
void snapshot_policy_restore(struct snapshot_policy *k);         /* fills the cache, after decode_append */
void snapshot_policy_prefill_pass(struct snapshot_policy *k);    /* between passes of decode_prefill */
void snapshot_policy_prefilled(struct snapshot_policy *k, double seconds);   /* after decode_prefill */
void snapshot_policy_round(struct snapshot_policy *k);           /* after each round */
void snapshot_policy_stop(struct snapshot_policy *k);    /* at a clean interruption, while the claim holds */
/* Waits for the snapshot that stop may have begun, until `deadline` (clock_seconds). */
void snapshot_policy_stopped(struct snapshot_policy *k, double deadline);
void snapshot_policy_close(struct snapshot_policy *k);           /* before the claim ends */
