/* The policy of snapshots: weighs the prefill time that a snapshot would save against its cost. Its data is
 * struct snapshot_policy. snapshot_files.c writes the files; src/decode/decoder_image.c makes their content.
 * Start at consider_snapshot. */
#include "runs/work/snapshot_policy.h"
#include "src/base/stopping.h"

#include <stdio.h>

static const double FIRST_RATE = 400e6;      /* bytes per second of CPU time, before the first measurement */
static const double FIXED_SECONDS = 0.002;   /* cost of any snapshot */
static const double GPU_COPY_RATE = 100e9;   /* bytes per second of the GPU's memory */
static const double CHECK_SECONDS = 0.25;    /* between checks */
static const double ON_SECONDS = 1;          /* between snapshots in mode `on` */
enum { LONG_TEXT = 4096 };                   /* tokens: a text of unknown speed may be worth a snapshot */

static void note(struct snapshot_policy *k, const char *what, const struct err *why, const char *then)
{
    char words[sizeof why->msg];
    err_words(why, words, sizeof words);         /* clients of a server read what the store has */
    if (!k->notice[0])
        snprintf(k->notice, sizeof k->notice, "%s: %.900s%s", what, words, then);
}

static void postpone_after_failure(struct snapshot_policy *k, const struct err *why)
{
    note(k, "no snapshot was made", why, "; it is tried again later");
    k->retry = k->retry > 0 ? MIN(2 * k->retry, SNAPSHOT_RETRY_SECONDS_MAX) : SNAPSHOT_RETRY_SECONDS;
    k->retry_at = clock_seconds() + k->retry;
}

static bool enabled(const struct snapshot_policy *k) { return k->mode != KV_SNAPSHOT_OFF && k->image.d; }

void snapshot_policy_open(struct snapshot_policy *k, enum kv_snapshot mode, uint64_t max_bytes,
                          struct store *s, const struct claim *c, struct checkpoint *p, struct decoder *d,
                          const struct snapshot_owner *owner)
{
    struct err e;
    *k = (struct snapshot_policy){ .mode = mode,
                                   .max_bytes = max_bytes,
                                   .store = s,
                                   .claim = c,
                                   .checkpoint = p,
                                   .started = clock_seconds(),
                                   .rate = FIRST_RATE };
    if (mode != KV_SNAPSHOT_OFF && image_open(&k->image, d, owner, &e))
        note(k, "no snapshots are made", &e, "");
}

void snapshot_policy_close(struct snapshot_policy *k)
{
    snapshot_files_close(k->files);
    image_close(&k->image);
    k->files = NULL;
}

/* ---- restoring ---- */

void snapshot_policy_restore(struct snapshot_policy *k)
{
    char path[4096], line[200];
    size_t n;
    struct err e;
    if (!enabled(k))
        return;
    double start = clock_seconds();
    int rc = snapshot_files_list(k->store, k->claim->job, k->good, &n, &e);
    for (; k->n_good < n; k->n_good++)   /* a failure keeps the rows restored before it */
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
             &e, "");
        if (store_snapshot_drop(k->store, k->claim, k->kept, &e) == 0)
            snapshot_files_delete_unused(k->store);
    }
    if (!k->kept)
        return;
    double seconds = clock_seconds() - start, saved = k->image.restored_seconds - seconds;
    checkpoint_add(k->checkpoint, COUNT_RESTORED_TOKENS, (double)k->kept);
    checkpoint_add(k->checkpoint, COUNT_RESTORE_SECONDS, seconds);
    checkpoint_add(k->checkpoint, COUNT_SAVED_SECONDS, saved);
    snprintf(line, sizeof line,
             "%zu of %zu tokens of prompt and text from a snapshot, in %.2f s; reading them would have taken "
             "about %.1f s",
             k->kept, k->image.d->n_tokens, seconds, k->image.restored_seconds);
    checkpoint_note(k->checkpoint, "restored", line);
}

/* ---- making snapshots ---- */

static int open_files(struct snapshot_policy *k)
{
    struct err e;
    if (k->files)
        return 0;
    const struct snapshot_options o = { k->good, k->n_good, k->max_bytes, image_write, &k->image };
    if (snapshot_files_open(&k->files, k->store, k->claim, &o, &e)) {
        postpone_after_failure(k, &e);
        return -1;
    }
    return 0;
}

/* Whether a snapshot of `rows` rows would save enough seconds of prefill. */
static bool pays(const struct snapshot_policy *k, size_t rows)
{
    const double gain = image_rebuild_seconds(&k->image, rows) - image_rebuild_seconds(&k->image, k->kept);
    return k->mode == KV_SNAPSHOT_ON || gain > SNAPSHOT_GAIN_SECONDS;
}

/* Whether the decode loop leaves a CPU core idle. Then a snapshot costs it only GPU memory bandwidth. */
static bool has_idle_core(const struct snapshot_policy *k)
{
    return !k->image.d->model->dev->host_memory && pool_default_threads() > 1;
}

/* Begin a snapshot of the first `rows` cache rows if it will cost at most `seconds`, or in any case with
 * `force`. */
static void begin_snapshot(struct snapshot_policy *k, size_t rows, double seconds, bool force)
{
    const struct kv *kv = &k->image.d->kv;
    const double start = clock_seconds();
    const double rate = has_idle_core(k) ? GPU_COPY_RATE : k->rate,
                 fixed = FIXED_SECONDS + (double)k->image.exact_bytes / rate;
    const struct kv_heads all = kv_layer(kv, kv->n_layers);
    const size_t rings = kv->ring ? kv_rows_of(kv->type, all.ring_first, all.ring_dims) : 0;
    const double row_seconds = (double)(kv_rows_bytes(kv, 1) - rings) / rate;
    const double rows_max = MAX(seconds - fixed, 0.0) / row_seconds;
    const size_t from =
        snapshot_files_next_start(k->files, rows, rows_max < (double)rows ? (size_t)rows_max : rows);
    if (!force && fixed + (double)(rows - from) * row_seconds > seconds)
        return;
    struct err e;
    if (kv->state && checkpoint_flush(k->checkpoint, &e)) {
        postpone_after_failure(k, &e);
        return;
    }
    uint64_t bytes = image_capture(&k->image, from, rows);
    snapshot_files_write(k->files, from, rows, bytes);
    double put = clock_seconds() - start;
    checkpoint_add(k->checkpoint, COUNT_SNAPSHOT_PUT_SECONDS, put);
    k->cost += put;
}

/* Account for a snapshot that has ended. */
static void collect_result(struct snapshot_policy *k)
{
    struct snapshot_result r;
    if (!k->files || !snapshot_files_result(k->files, &r))
        return;
    k->result_at = clock_seconds();
    k->cost += has_idle_core(k) ? (double)r.bytes / GPU_COPY_RATE : r.cpu_seconds;
    checkpoint_add(k->checkpoint, COUNT_SNAPSHOT_SECONDS, r.seconds);
    checkpoint_add(k->checkpoint, COUNT_SNAPSHOT_CPU_SECONDS, r.cpu_seconds);
    if (r.rc == 0) {
        k->kept = r.tokens;
        k->retry = k->retry_at = 0;
        if (r.bytes > 8u << 20 && r.cpu_seconds > 0)
            k->rate = (double)r.bytes / r.cpu_seconds;
        checkpoint_add(k->checkpoint, COUNT_SNAPSHOTS, 1);
        checkpoint_add(k->checkpoint, COUNT_SNAPSHOT_BYTES, (double)r.bytes);
    } else if (r.rc < 0 && r.err.code != ERR_AGAIN) {
        postpone_after_failure(k, &r.err);
    }
}

void snapshot_policy_prefilled(struct snapshot_policy *k, double seconds)
{
    if (!enabled(k))
        return;
    image_restore_drafters(&k->image);
    const struct decoder *d = k->image.d;
    const size_t rows = image_rows(&k->image, d->n_tokens);
    double whole = image_rebuild_seconds(&k->image, d->n_max);
    if (k->mode == KV_SNAPSHOT_AUTO && (whole > 0 ? whole <= SNAPSHOT_GAIN_SECONDS : d->n_max < LONG_TEXT))
        return;                          /* never worth a snapshot: needs no thread and no connection */
    if (open_files(k) || snapshot_files_busy(k->files))
        return;
    collect_result(k);
    if (rows <= k->kept || clock_seconds() < k->retry_at)
        return;
    if (k->mode == KV_SNAPSHOT_ON || seconds > SNAPSHOT_GAIN_SECONDS)
        begin_snapshot(k, rows, SNAPSHOT_REBUILD_SHARE * seconds - k->cost, k->mode == KV_SNAPSHOT_ON);
}

/* Between rounds and passes: begin a snapshot if it is worth its cost, and the cost of all snapshots stays
 * below `share` of the attempt's time. */
static void consider_snapshot(struct snapshot_policy *k, double share)
{
    if (!k->files && k->retry == 0)      /* no snapshot of this text is worth its cost, or mode `off` */
        return;
    double now = clock_seconds();
    if (now - k->checked_at < CHECK_SECONDS)
        return;
    k->checked_at = now;
    if (k->files && snapshot_files_busy(k->files))
        return;
    collect_result(k);
    if (now < k->retry_at || open_files(k))
        return;
    const size_t rows = image_rows(&k->image, k->image.d->n_prompt + checkpoint_committed(k->checkpoint));
    if (rows > k->kept && pays(k, rows) && (k->mode == KV_SNAPSHOT_AUTO || now - k->result_at >= ON_SECONDS))
        begin_snapshot(k, rows, share * (now - k->started) - k->cost, false);
}

void snapshot_policy_round(struct snapshot_policy *k) { consider_snapshot(k, SNAPSHOT_SHARE); }

void snapshot_policy_prefill_pass(struct snapshot_policy *k)
{
    if (enabled(k) && !k->files && k->retry == 0 && pays(k, k->image.d->kv.n_past) && open_files(k))
        return;
    consider_snapshot(k, k->claim->attempt > 1 ? SNAPSHOT_REBUILD_SHARE : SNAPSHOT_SHARE);
}

void snapshot_policy_stop(struct snapshot_policy *k)
{
    struct err e;
    if (!enabled(k))
        return;
    size_t rows = image_rows(&k->image, k->image.d->n_tokens);
    const bool busy = k->files && snapshot_files_busy(k->files);
    if (rows <= k->kept || !pays(k, rows)) {
        if (busy)                        /* the file in progress saves too little to wait for it */
            snapshot_files_wait(k->files, 0);
        collect_result(k);
        return;
    }
    if (checkpoint_flush(k->checkpoint, &e) || open_files(k))
        return;
    snapshot_files_wait(k->files, 0);
    collect_result(k);
    /* a reader that went away within a round leaves tokens that are not stored */
    const size_t stored = k->image.d->n_prompt + checkpoint_committed(k->checkpoint);
    rows = image_rows(&k->image, stored);
    if (rows <= k->kept || rows >= stored)
        return;
    begin_snapshot(k, rows, SNAPSHOT_GAIN_SECONDS, true);
}

void snapshot_policy_stopped(struct snapshot_policy *k, double deadline)
{
    _Static_assert(SNAPSHOT_STOP_SECONDS == 20, "the message below names it");
    if (!k->files || !snapshot_files_busy(k->files))
        return;
    stop_notice_for("snapshots of the caches, 20 s at most");
    snapshot_files_wait(k->files, MAX(deadline - clock_seconds(), 0.0));
    stop_notice_for(NULL);
    collect_result(k);
}
