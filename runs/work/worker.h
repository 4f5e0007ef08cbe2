/* The worker: claims jobs of the store and writes their texts.
 *
 *     worker_open(&w, store, &e)                         registers the worker and starts its heartbeat
 *     request = worker_claim_request(&w, 0)              describes what this process can do
 *     store_claim(w.store, &request, &claim, &e)
 *     worker_run(&w, &claim, &options, &out, &result, &e)    writes the text to its end; ends the claim
 *     worker_close(&w)
 *
 * A run reads parameters and tokens from the store and loads the model, which stays loaded for the next
 * job of the same model. It replays the stored tokens through the emission (src/text/emit.h), so stop
 * strings and code points that span an interruption are found. It fills the cache from a snapshot or by
 * prefill. Then it decodes rounds, and hands the tokens and counters of each round to the checkpoint thread
 * (runs/work/checkpoint.h). The next token depends only on the tokens so far, so the text equals the text of
 * an uninterrupted run.
 *
 * Counters. Every field of struct draft_stats is a counter of the store (`counters` in worker.c), so a
 * report shows the same figures as `run`. */
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
    int64_t number;                      /* the store's number of this worker */
    struct heartbeat *beat;
    struct committer *committer;
    struct engine engine;                /* the caller may open it; a job with another model replaces it */
    bool loaded;                         /* weights and fingerprint are loaded */
    char fingerprint[FINGERPRINT_BYTES];
    char heads_path[PATH_BYTES]; uint64_t heads_stamp;   /* the files of engine.heads; "": no heads */
    struct progress progress;
    size_t threads;
    const char *device;                  /* --device; borrowed */
    const char *numerics[DEVICE_CHOICE_IDS]; size_t n_numerics;  /* names of the arithmetics of the device */
    double deadline;                     /* when to stop, by clock_seconds; 0: none */
    enum kv_snapshot snapshot; uint64_t snapshot_max;    /* runs/work/snapshot_policy.h */
    bool quiet;                          /* no notices on standard error */
};

int  worker_open(struct worker *w, struct store *s, struct err *e);
void worker_close(struct worker *w);
/* What this process can claim; job 0: the next job. Valid while w lives. */
struct claim_request worker_claim_request(const struct worker *w, int64_t job);
/* Open the model of a job, unless the worker has it and its files have not changed. */
int  worker_open_model(struct worker *w, const struct job *job, const struct job_params *p, struct err *e);
/* Load the weights and the fingerprint of the open model, unless they are loaded. 0; 1: interrupted by a
 * signal; -1. */
int  worker_load_model(struct worker *w, struct err *e);

struct work_options {
    enum job_state state_if_stopped;     /* what a job becomes if a signal or the deadline stops it: queued or
                                          * paused */
    bool accept_change;                  /* continue although arithmetic or model differ (store_begin) */
    bool store_rounds;                   /* store a row for every round */
    bool release_if_refused;             /* a job that cannot run here returns to its state before the claim;
                                          * otherwise it fails */
};

/* Where a text goes while it is written. Every function may be NULL. `new_text` is false for text that was
 * stored before this run. */
struct work_output {
    int (*text)(void *ctx, const char *bytes, size_t n, bool new_text, struct err *e);
    int (*id)(void *ctx, int32_t id, bool new_text, struct err *e);
    void (*repeats)(void *ctx, const struct repetition *p);  /* the loop rule found a repetition */
    /* called once, before the first text, when all checks of the job have passed */
    void (*begins)(void *ctx, const struct decoder *d, const struct job_params *p);
    void *ctx;
};

enum work_end {
    WORK_DONE,                           /* the text is complete; the job is done */
    WORK_FAILED,                         /* the job failed */
    WORK_LOST,                           /* the claim no longer holds; the job is left alone */
    /* the job has state_if_stopped: */
    WORK_STOPPED,                        /* a signal or the deadline stopped the work */
    WORK_OUTPUT_FAILED,                  /* a function of struct work_output failed */
    WORK_DEVICE_FAILED,                  /* the device failed, and the worker should end */
    /* the job has its state before the claim (release_if_refused): */
    WORK_REFUSED,                        /* the job cannot run here */
};
struct work_result {
    enum work_end end;
    struct err why;                      /* the reason, unless WORK_DONE */
    size_t tokens_before, tokens;        /* length of the text before and after this run, all its tokens */
    enum finish finish;
    char stop_reason[STOP_STRING_BYTES_MAX + 1]; bool stopped_by_string;     /* else: by a token id */
    double seconds, prefill_seconds;     /* of this run */
    struct draft_stats stats;            /* of this run; the caller closes it (stats_close) */
};

/* Run a claimed job. 0: the claim has ended as *r says. -1: the store failed, or another process holds it
 * (ERR_AGAIN); the worker must stop. */
int worker_run(struct worker *w, struct claim *c, const struct work_options *options,
               const struct work_output *out, struct work_result *r, struct err *e);
