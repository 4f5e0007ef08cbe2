#include "runs/work/snapshot_policy.h"
#include "src/base/stopping.h"

#include <inttypes.h>
#include <stdio.h>

enum { MADE, BYTES, SECONDS, CPU_SECONDS, PUT_SECONDS, RESTORED, RESTORE_SECONDS, SAVED_SECONDS };
static const char *const metrics[SNAPSHOT_METRICS] = { "snapshots", "snapshot_bytes", "snapshot_seconds",
    "snapshot_cpu_seconds", "snapshot_put_seconds",
                                                     "restored_tokens", "restore_seconds",
                                                         "restore_saved_seconds" };
static const double FIRST_RATE = 400e6, FIXED_SECONDS = 0.002, BESIDE_RATE = 100e9, LOOK_SECONDS = 0.25,
                    ON_SECONDS = 1;
/* tokens from which a text of unknown speed may be worth a snapshot */
enum { LONG_TEXT = 4096 };

static void note(struct snapshot_policy *k, const char *what, const struct err *why)
{
    if (!k->notice[0])
        snprintf(k->notice, sizeof k->notice, "%s: %.900s", what, why->msg);
}

/* One could not be made. */
static void failed(struct snapshot_policy *k, const struct err *why)
{
    if (!k->notice[0])
        snprintf(k->notice, sizeof k->notice, "no snapshot was made: %.900s; it is tried again later",
                 why->msg);
    k->retry = k->retry > 0 ? MIN(2 * k->retry, SNAPSHOT_RETRY_SECONDS_MAX) : SNAPSHOT_RETRY_SECONDS;
    k->retry_at = clock_seconds() + k->retry;
}

static bool on(const struct snapshot_policy *k) { return k->mode != KV_SNAPSHOT_OFF && k->image.d; }

void snapshot_policy_open(struct snapshot_policy *k, enum kv_snapshot mode, uint64_t max_bytes, struct store *s,
                 const struct claim *c, struct checkpoint *p, struct decoder *d,
                 const struct snapshot_owner *owner)
{
    struct err e;
    *k = (struct snapshot_policy){ .mode = mode, .max_bytes = max_bytes, .store = s, .claim = c, .checkpoint = p, .started = clock_seconds(), .rate = FIRST_RATE };
    for (int i = 0; i < SNAPSHOT_METRICS; i++)
        k->metric[i] = checkpoint_metric(p, "", metrics[i], 0);
    if (mode == KV_SNAPSHOT_OFF)
        return;
    if (image_open(&k->image, d, owner, &e))
        note(k, "no snapshots are made", &e);
}

void snapshot_policy_close(struct snapshot_policy *k)
{
    snapshot_files_close(k->files);
    image_close(&k->image);
    k->files = NULL;
}

/* ---- the way back ---- */

void snapshot_policy_restore(struct snapshot_policy *k)
{
    char path[4096], line[200];
    size_t n;
    struct err e;
    if (!on(k))
        return;
    double start = clock_seconds();
    int rc = snapshot_files_list(k->store, k->claim->job, k->good, &n, &e);
    for (; k->n_good < n; k->n_good++)   /* what was restored before a failure stays */
        if (snapshot_files_path(k->store, &k->good[k->n_good], path, sizeof path, &e) ||
            image_restore(&k->image, path, &e)) {
            rc = -1;
            break;
        }
    k->kept = k->image.restored;
    if (rc) {
        note(k,
             k->kept ? "the end of the snapshot is not used, the text is read again from there"
                     : "the snapshot is not used, the text is read again",
             &e);
        if (store_snapshot_drop(k->store, k->claim, k->kept, &e) == 0)
            snapshot_files_collect(k->store);
    }
    if (!k->kept)
        return;
    double seconds = clock_seconds() - start, saved = k->image.restored_seconds - seconds;
    checkpoint_add(k->checkpoint, k->metric[RESTORED], (double)k->kept);
    checkpoint_add(k->checkpoint, k->metric[RESTORE_SECONDS], seconds);
    checkpoint_add(k->checkpoint, k->metric[SAVED_SECONDS], saved);
    snprintf(line, sizeof line,
             "%zu of %zu tokens of prompt and text from a snapshot, in %.2f s; reading them would have taken "
             "about %.1f s",
             k->kept, k->image.d->n_tokens, seconds, k->image.restored_seconds);
    checkpoint_note(k->checkpoint, "restored", line);
}

/* ---- making them ---- */

static int open_files(struct snapshot_policy *k)
{
    struct err e;
    if (k->files)
        return 0;
    if (snapshot_files_open(&k->files, k->store, k->claim, k->good, k->n_good, k->max_bytes, image_write,
                       &k->image, &e)) {
        failed(k, &e);
        return -1;
    }
    return 0;
}

static double gain(const struct snapshot_policy *k, size_t rows)
{
    return image_rebuild_seconds(&k->image, rows) - image_rebuild_seconds(&k->image, k->kept);
}

/* Whether the decode loop leaves a core idle: then what a snapshot takes from it is what the copy takes from the device's memory. */
static bool beside(const struct snapshot_policy *k)
{
    return !k->image.d->model->dev->host_memory && pool_default_threads() > 1;
}

/* One up to `rows`, if it is expected to cost no more than so many seconds, or with `force`. */
static void begin(struct snapshot_policy *k, size_t rows, double seconds, bool force)
{
    const struct kv *kv = &k->image.d->kv;
    const double start = clock_seconds(), of_row = (double)(kv->n_layers * kv->n_kv_heads * kv->block_bytes) /
                                                   KV_BLOCK / (beside(k) ? BESIDE_RATE : k->rate);
    const double most = MAX(seconds - FIXED_SECONDS, 0.0) / of_row;
    const size_t from = snapshot_files_next_start(k->files, rows, most < (double)rows ? (size_t)most : rows);
    if (!force && FIXED_SECONDS + (double)(rows - from) * of_row > seconds)
        return;
    uint64_t bytes = image_take(&k->image, from, rows);
    snapshot_files_write(k->files, from, rows, bytes);
    double put = clock_seconds() - start;
    checkpoint_add(k->checkpoint, k->metric[PUT_SECONDS], put);
    k->cost += put;
}

/* One that has ended: what it cost, and whether it counts. */
static void take_result(struct snapshot_policy *k)
{
    struct snapshot_result r;
    if (!k->files || !snapshot_files_result(k->files, &r))
        return;
    k->last = clock_seconds();
    k->cost += beside(k) ? (double)r.bytes / BESIDE_RATE : r.cpu_seconds;
    checkpoint_add(k->checkpoint, k->metric[SECONDS], r.seconds);
    checkpoint_add(k->checkpoint, k->metric[CPU_SECONDS], r.cpu_seconds);
    if (r.rc == 0) {
        k->kept = r.tokens;
        k->retry = k->retry_at = 0;
        if (r.bytes > 8u << 20 && r.cpu_seconds > 0)
            k->rate = (double)r.bytes / r.cpu_seconds;
        checkpoint_add(k->checkpoint, k->metric[MADE], 1);
        checkpoint_add(k->checkpoint, k->metric[BYTES], (double)r.bytes);
    } else if (r.rc < 0 && r.err.code != ERR_AGAIN) {
        failed(k, &r.err);
    }
}

void snapshot_policy_prefilled(struct snapshot_policy *k, double seconds)
{
    if (!on(k))
        return;
    image_restore_drafters(&k->image);
    const struct decoder *d = k->image.d;
    const size_t rows = image_rows(&k->image, d->n_tokens);
    double whole = image_rebuild_seconds(&k->image, d->n_max);
    if (k->mode == KV_SNAPSHOT_AUTO && (whole > 0 ? whole <= SNAPSHOT_GAIN_SECONDS : d->n_max < LONG_TEXT))
        return;                          /* never worth one: no thread, no connection */
    if (open_files(k) || snapshot_files_busy(k->files))
        return;
    take_result(k);
    if (rows <= k->kept || clock_seconds() < k->retry_at)
        return;
    if (k->mode == KV_SNAPSHOT_ON || seconds > SNAPSHOT_GAIN_SECONDS)
        begin(k, rows, SNAPSHOT_REBUILD_SHARE * seconds - k->cost, k->mode == KV_SNAPSHOT_ON);
}

/* Between rounds and passes: one that may cost, with all of this attempt, such a share of its time. */
static void look(struct snapshot_policy *k, double share)
{
    if (!k->files && k->retry == 0)      /* not wanted */
        return;
    double now = clock_seconds();
    if (now - k->looked < LOOK_SECONDS)
        return;
    k->looked = now;
    if (k->files && snapshot_files_busy(k->files))
        return;
    take_result(k);
    if (now < k->retry_at || open_files(k))
        return;
    const size_t rows = image_rows(&k->image, k->image.d->n_prompt + checkpoint_committed(k->checkpoint));
    if (rows > k->kept &&
        (k->mode == KV_SNAPSHOT_ON ? now - k->last >= ON_SECONDS : gain(k, rows) > SNAPSHOT_GAIN_SECONDS))
        begin(k, rows, share * (now - k->started) - k->cost, false);
}

void snapshot_policy_round(struct snapshot_policy *k) { look(k, SNAPSHOT_SHARE); }

void snapshot_policy_prefill_pass(struct snapshot_policy *k)
{
    if (on(k) && !k->files && k->retry == 0 &&
        (k->mode == KV_SNAPSHOT_ON || gain(k, k->image.d->kv.n_past) > SNAPSHOT_GAIN_SECONDS) && open_files(k))
        return;
    look(k, k->claim->attempt > 1 ? SNAPSHOT_REBUILD_SHARE : SNAPSHOT_SHARE);
}

void snapshot_policy_stop(struct snapshot_policy *k)
{
    _Static_assert(SNAPSHOT_STOP_SECONDS == 60, "the words below say it");
    struct err e;
    if (!on(k))
        return;
    const size_t rows = image_rows(&k->image, k->image.d->n_tokens);
    const bool busy = k->files && snapshot_files_busy(k->files);
    if (rows <= k->kept || (k->mode == KV_SNAPSHOT_AUTO && gain(k, rows) <= SNAPSHOT_GAIN_SECONDS)) {
        if (busy)                        /* it is of less than that: what it saves is not worth the wait */
            snapshot_files_wait(k->files, 0);
        take_result(k);
        return;
    }
    if (checkpoint_flush(k->checkpoint, &e) || open_files(k))
        return;
    snapshot_files_wait(k->files, 0);
    take_result(k);
    if (rows <= k->kept)
        return;
    begin(k, rows, SNAPSHOT_GAIN_SECONDS, true);
    stop_notice_for("a snapshot of the cache, 60 s at most");
    snapshot_files_wait(k->files, SNAPSHOT_STOP_SECONDS);
    stop_notice_for(NULL);
    take_result(k);
}
