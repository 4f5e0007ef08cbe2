/* The worker: takes jobs of the store and writes their texts.
 *
 *     worker_open(&w, store, &e)                 known to the store, its heart beats
 *     store_claim(w.store, &wish, &claim, &e)    worker_claim_request says what this process can do
 *     worker_run(&w, &claim, &how, &out, &e)     from where the text is to its end
 *     worker_close(&w)
 *
 * A run is: parameters and tokens from the store; the model, kept for the next job when it is the same;
 * what was written already goes through the same emission again (which is how stop strings and unfinished
 * code points across an interruption are seen); the cache is read from a snapshot or rebuilt at prefill
 * speed; then rounds, each handed to the store's thread with its counters. The token list alone decides
 * what comes next, so the text is that of a run that was never interrupted.
 *
 * Counters. Every field of struct draft_stats is a counter of the store (counters in runs/work/worker.c):
 * what a report reads is what `run` adds up. */
#pragma once
#include "runs/work/checkpoint.h"
#include "runs/work/heartbeat.h"
#include "runs/work/read_text.h"
#include "runs/work/snapshot_policy.h"
#include "src/base/progress.h"
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/model/device_choice.h"
#include "src/model/fingerprint.h"

struct worker {
    struct store *store;                 /* borrowed */
    int64_t number;
    struct heartbeat *beat;
    /* may be opened by the user; the worker changes it when a job needs another model */
    struct engine engine;
    bool loaded;                         /* weights and fingerprint are there */
    char fingerprint[FINGERPRINT_BYTES];
    char heads_path[PATH_BYTES]; uint64_t heads_stamp;   /* of engine.heads */
    struct progress progress;
    size_t threads;
    const char *device;                  /* --device: borrowed */
    const char *numerics[DEVICE_CHOICE_IDS]; size_t n_numerics;      /* that it can compute with there */
    double deadline;                     /* on clock_seconds; 0: none */
    enum kv_snapshot snapshot; uint64_t snapshot_max;    /* see runs/work/snapshot_policy.h, runs/work/snapshot_files.h */
    bool quiet;                          /* no notices on standard error */
};

int  worker_open(struct worker *w, struct store *s, struct err *e);
void worker_close(struct worker *w);
/* What this process takes; job 0: the next one. Valid while w lives. */
struct claim_request worker_claim_request(const struct worker *w, int64_t job);
/* The model of a job: opened unless it is what the worker has, and its files are the same still. Then its
 * weights and fingerprint, where they are not there yet (1: a signal). */
int  worker_model(struct worker *w, const struct job *job, const struct job_params *p, struct err *e);
int  worker_load(struct worker *w, struct err *e);

struct work_options {
    /* JOB_QUEUED, or JOB_PAUSED: what becomes of a job that a signal or the deadline stops */
    enum job_state stopped;
    bool accept_change, rounds;
    /* a job that cannot be done here (another model, no memory) is left as it was, and is not failed */
    bool restore;
};

/* Where a text goes while it is written; NULL functions are skipped. `new_text` is false for what the
 * store had. */
struct work_output {
    int (*text)(void *ctx, const char *bytes, size_t n, bool new_text, struct err *e);
    int (*id)(void *ctx, int32_t id, bool new_text, struct err *e);
    void (*repeats)(void *ctx, const struct repetition *p);  /* the loop rule has spoken */
    void (*begins)(void *ctx, const struct decoder *d, const struct job_params *p);      /* behind everything that may refuse the job */
    void *ctx;
};

enum work_end { WORK_DONE, WORK_FAILED, WORK_LOST, WORK_STOPPED, WORK_REFUSED, WORK_OUTPUT, WORK_BROKEN };
struct work_result {
    enum work_end end;                   /* REFUSED: only with restore. OUTPUT: work_out failed, BROKEN: the device did (the worker should
                                          * end); the job is as `stopped` says */
    struct err why;                      /* but for DONE */
    size_t tokens, was;                  /* of the text now (given ones included); at the start */
    enum finish finish; char stop_reason[STOP_STRING_BYTES_MAX + 1]; bool by_string;
    double seconds, prefill_seconds;     /* of this run */
    struct draft_stats stats;            /* of this run; stats_close it */
};

/* 0: the claim has ended as r says; -1: the store failed, and the worker must stop. */
int worker_run(struct worker *w, struct claim *c, const struct work_options *how, const struct work_output *out,
               struct work_result *r, struct err *e);
