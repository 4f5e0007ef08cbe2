/* The worker: a store, a model, and the memory for the jobs that it runs.
 *
 *     worker_open(&w, store, &e)                 registers the worker and starts its heartbeat
 *     request = worker_claim_request(&w, 0)      describes what this process can do
 *     store_claim(w.store, &request, &claim, &e)
 *     schedule_job(..) or schedule_queue(..)     schedule.h: work on this job, or on the queue
 *     worker_close(&w)
 *
 * A run loads the model, which stays loaded for the next job, replays the stored tokens (read_text.h), and
 * fills the cache from a snapshot or by prefill. Then it decodes rounds, and hands the tokens and counters of
 * each to the checkpoint thread (checkpoint.h). The next token depends only on the tokens so far, so the text
 * equals the text of an uninterrupted run.
 *
 * Counters. Every field of struct draft_stats is a counter of the store (`counters` in stats.c), so a
 * report shows the same figures as `run`. */
#pragma once
#include "runs/work/checkpoint.h"
#include "runs/work/queue_progress.h"
#include "runs/work/read_text.h"
#include "runs/work/snapshot_policy.h"
#include "kvmgr/prefix.h"
#include "src/base/progress.h"
#include "src/decode/buffers.h"
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/decode/weights.h"
#include "src/model/device_choice.h"
#include "src/model/fingerprint.h"

/* The models that a worker could not read. Their jobs stay in the queue: a disk that is not mounted, or a
 * folder that is being copied, must not fail them. Waiting is no attempt. */
#define MISSING_RETRY_SECONDS 60.0       /* then a model whose files look the same is tried again */

struct missing_model {
    char *path;
    char why[512];                       /* why it could not be read, the last time */
    uint64_t stamp;                      /* model_stamp then */
    double at;                           /* clock_seconds then */
    bool waits;                          /* not readable as far as known */
};
struct missing {                         /* {0} is empty */
    struct missing_model *v; size_t n;
    char *list;                          /* "\npath\npath\n" of those that wait; NULL: none */
};

struct heartbeat;
struct worker {
    struct store *store;                 /* borrowed */
    int64_t number;                      /* the store's number of this worker */
    struct heartbeat *beat;
    struct committer *committer;
    struct engine engine;                /* the caller may open it; a job with another model replaces it */
    bool loaded;                         /* weights and fingerprint are loaded */
    char fingerprint[FINGERPRINT_BYTES];
    struct model_files files;            /* the model's small files, until the store has them */
    /* the files of the trained drafters that are open in the engine; "": closed */
    struct { char path[PATH_BYTES]; uint64_t stamp; size_t bytes; } trained[N_DRAFTERS];
    struct missing missing;              /* models that could not be read */
    struct progress progress;
    struct job_names cut;                /* texts that the loop rule ended; worker_close names them */
    size_t threads;
    const char *device;                  /* --device; borrowed */
    const char *numerics[DEVICE_CHOICE_IDS]; size_t n_numerics;  /* names of the arithmetics of the device */
    char numerics_list[DEVICE_CHOICE_IDS * 32];          /* the same for struct claim_request */
    double deadline;                     /* when to stop, by clock_seconds; 0: none */
    size_t parallel;                     /* the most jobs at once; 1 if `parallel` is 0 */
    size_t max_memory;                   /* --max-memory: bytes in all; 0: what the machine has */
    /* what the running jobs share, and the ledger of host memory */
    struct round_buffers buffers;
    size_t n_jobs;                       /* that hold memory (worker_reserve) */
    size_t reserved;                     /* bytes of these jobs, touched or not; no caches */
    struct prefixes prefixes;            /* caches of the running jobs, and of others that have ended */
    enum kv_snapshot snapshot; uint64_t snapshot_max;    /* runs/work/snapshot_policy.h */
    bool quiet;                          /* no notices on standard error */
    double commit_seconds;               /* between commits; 0: CHECKPOINT_SECONDS */
    /* called by a thread of the worker when a commit has changed a job; NULL: nobody waits */
    void (*committed)(void *ctx, int64_t job); void *ctx;
};

int  worker_open(struct worker *w, struct store *s, struct err *e);
void worker_close(struct worker *w);
/* Whether the deadline has passed. */
bool worker_out_of_time(const struct worker *w);
/* What this process can claim; job 0: the next job. Valid while w lives. */
struct claim_request worker_claim_request(const struct worker *w, int64_t job);
/* Open the model of a job, unless the worker has it and its files have not changed. */
int  worker_open_model(struct worker *w, const struct job *job, const struct job_params *p, struct err *e);
/* Load the weights and the fingerprint of the open model, unless they are loaded. 0; 1: interrupted by a
 * signal; -1. */
int  worker_load_model(struct worker *w, struct err *e);
/* Keep in the store what reading the texts of the loaded model needs, unless the store has it. */
int  worker_store_model(struct worker *w, struct err *e);

/* Whether the model that is open is the one that a job wants. */
bool worker_has_model(const struct worker *w, const struct job *job, const struct job_params *p);

/* Reserve the memory of a job of the open model: its whole length, n_max tokens, less the blocks that it
 * shares. The first job takes the place of everything that earlier jobs left; a further one must fit beside
 * those that run. Caches of ended jobs are closed, the one used longest ago first, until it fits. `start`:
 * the n_start tokens that the text has. *bytes: for worker_release. *m: the cache that the text begins with,
 * for a decoder that is opened at once. -1: it does not fit; the message has the items. */
struct job_need { const struct job_params *params; size_t n_max; const int32_t *start; size_t n_start; };
int  worker_reserve(struct worker *w, const struct job_need *need, size_t *bytes, struct prefix_match *m,
                    struct err *e);
void worker_release(struct worker *w, size_t bytes);
/* Whether a job of the open model may fit in the host's memory if no other job runs; -1: it surely does not,
 * by --max-memory or by far. */
int  worker_check_alone(const struct worker *w, const struct job_need *need, struct err *e);
/* Bytes of host memory that the worker holds: weights, buffers, drafters, caches and jobs. */
size_t worker_held(const struct worker *w);
/* Whether so many bytes more fit, with an eighth of what is left to spare, at least 32 MiB. */
bool worker_has_room(const struct worker *w, size_t bytes);
/* Keep the cache of a job that has ended, and its tokens, while memory allows. */
void worker_keep(struct worker *w, struct kv *kv, int32_t *tokens);
/* Open the buffers of passes, or larger ones, for a decoder of these settings. Between rounds only. */
int  worker_open_buffers(struct worker *w, const struct draft_settings *draft, size_t n_max, struct err *e);
/* Open a trained drafter that a job drafts with, or keep the one that is open. 0; -1. */
int  worker_open_trained(struct worker *w, enum drafter s, const struct job_params *p, struct err *e);
/* Whether the trained drafters that a job wants are open, or may be opened. */
bool worker_has_trained(const struct worker *w, const struct job_params *p);

/* 1: the reason is new and should be shown; 0; -1: no memory. */
int    missing_add(struct missing *m, const char *path, const struct err *why);
/* Now and then: forgets the models that may be readable again. */
void   missing_look_again(struct missing *m);
/* The first model that waits; NULL: none does. */
const struct missing_model *missing_first(const struct missing *m);
void   missing_free(struct missing *m);

/* ---- heartbeat.c: a worker's sign of life ---- */

int  heartbeat_start(struct heartbeat **h, const struct store *s, int64_t worker, struct err *e);
/* Watches one more job, of at most WORKER_JOBS_MAX (asserted), after its claim. Returns its place. */
size_t heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt);
void heartbeat_forget(struct heartbeat *h, size_t place);
/* Whether the job at `place` no longer belongs to this worker. Costs one load. */
bool heartbeat_lost(struct heartbeat *h, size_t place);
void heartbeat_stop(struct heartbeat *h);        /* before store_worker_end; NULL is allowed */
