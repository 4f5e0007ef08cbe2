/* The schedule: which jobs a worker runs at once, and in what order it serves them.
 *
 *     schedule_job(&w, &claim, &options, &out, &result, &e)      one claimed job, to its end
 *     schedule_queue(&w, &options, &e)                           jobs of the queue until it is empty
 *
 * The loop. A job that joins reserves the memory of its whole length (worker_reserve), and its prompt is read
 * in slices of SLICE_SECONDS between rounds (decode_prefill: a slice has fewer rows where those of a usual
 * pass take longer). One round (decode_round) drafts and verifies for all jobs that write. Each job accepts,
 * commits and ends alone, and a text equals the text of the job run alone (docs/architecture.md, R1 and R2).
 *
 * Order. Jobs join by priority, then by number. Only jobs of the loaded model run together; if the next job
 * of the queue needs another model, other heads or must run alone, no job joins until those that run have
 * ended. Jobs of the loaded model may pass jobs of another model with the same priority for at most
 * OTHER_MODEL_SECONDS. A job that does not fit beside those that run waits, and only jobs of a higher
 * priority pass it. A job that this worker can never hold stays in the queue. It is named once, when its turn
 * comes, and later jobs pass it. (Where a device has memory of its own, that turn comes when no job runs.)
 *
 * Places. As many jobs run as there are places: N of --parallel N; with auto, runs/work/places.h finds their
 * number. Jobs that wait for a place stay with this worker.
 *
 * Shared beginnings (kvmgr/prefix.h). A job whose text begins as that of a running or an ended job uses the
 * blocks of that job's cache. If a task is still reading that beginning, the job waits for it, and no later
 * job passes. The caches of ended jobs stay until a job needs their memory, or until they hold more than the
 * memory that is left.
 *
 * On a signal or at the deadline, all jobs are stored together, with their snapshots. */
#pragma once
#include "runs/store/figures.h"
#include "runs/work/task.h"
#include "runs/work/thread.h"

#define SLICE_SECONDS 0.5
#define OTHER_MODEL_SECONDS 1800.0

/* work --metrics: the figures of a worker as a Prometheus text file, for the textfile collector of a node
 * exporter or any other reader. No port is opened.
 *
 * A metric that vLLM has carries vLLM's name, and the label model_name; the others begin with longhand_.
 * Counters count since the worker began to use the model that it has now. A file is written beside the old
 * one and renamed into its place, so a reader sees a whole file. It is not synced to the disk: after a power
 * cut it may be old or empty. */
#define METRICS_SECONDS 5.0

struct metrics_sums { struct counts counts; figure_lists list; };     /* of one job, or of many */
struct metrics_now {                     /* gauges */
    struct store_counts counts;
    size_t running;                      /* jobs of this worker */
    size_t kv_used, kv_tokens;           /* tokens in the caches; that have room */
    size_t reserved, limit;              /* bytes; limit 0: none */
};

struct metrics {
    const char *path;                    /* borrowed; NULL: no file is written */
    /* gets the text instead of a file, and frees it; NULL: nobody does */
    void (*take)(void *ctx, char *text); void *ctx;
    double written;                      /* by clock_seconds */
    double began;                        /* seconds since 1970 */
    char model[PATH_BYTES];              /* "": none yet */
    /* since this model is in use; sums are of jobs that have ended */
    struct metrics_sums sums;
    size_t finished[FINISH_REPETITION + 1], failed;
    size_t rounds[WORKER_JOBS_MAX + 1];         /* by the number of jobs in them */
    double longest_wait;                 /* seconds between two rounds of running jobs */
};

/* ERR_INPUT: the file cannot be written. path NULL: *m writes nothing. */
int  metrics_open(struct metrics *m, const char *path, struct err *e);
/* A job of this model begins. */
void metrics_model(struct metrics *m, const char *model);
/* The counters of a decoder's statistics. */
void metrics_add(struct metrics_sums *s, const struct draft_stats *d, size_t prefill_tokens, double prefill);
/* Every METRICS_SECONDS. all: m->sums and those of the running jobs. */
int  metrics_write(struct metrics *m, const struct metrics_now *now, struct metrics_sums *all, struct err *e);

struct schedule_options {
    struct work_options how;             /* state_if_stopped: JOB_QUEUED */
    size_t parallel;                     /* the most jobs at once, 1 to WORKER_JOBS_MAX; 0: auto (places.h) */
    const char *batch;                   /* only jobs of this batch; NULL: all */
    const char *only_model;              /* only jobs of the model at this path; NULL: all */
    struct bell *bell;                   /* says that the queue has a new job; NULL: nobody does */
    int max_attempts;                    /* struct claim_request */
    size_t max_jobs;                     /* jobs that may end as done or failed; 0: no limit */
    bool watch;                          /* wait for further jobs when the queue is empty */
    const char *metrics;                 /* file of the worker's figures; NULL: none */
    void (*take_metrics)(void *ctx, char *text);     /* struct metrics; NULL: nobody does */
    bool preempts;                       /* a job releases the place of one of a lower priority */
    /* Called when a job has been opened, and when it has ended; the statistics are closed afterwards. `job`
     * is its row before; NULL: the row could not be read. `wanted`: the length that the text was to have. */
    void (*begins)(void *ctx, const struct job *job);
    void (*ended)(void *ctx, int64_t id, const struct job *job, size_t wanted, const struct work_result *r);
    /* Called before `ended` for a job that this worker can never hold, which is queued again. true: it is not
     * queued any more. false, or NULL: it stays, and this worker skips it from now on. */
    bool (*refuse)(void *ctx, int64_t id, const struct err *why);
    void *ctx;
};

/* Work on a claimed job. 0: the claim has ended as *r says. -1: the store failed, or another process holds it
 * (ERR_AGAIN); the worker must stop. */
int schedule_job(struct worker *w, const struct claim *c, const struct work_options *options,
                 const struct work_output *out, struct work_result *r, struct err *e);
/* Work on the queue until it is empty, a signal comes, or the deadline or max_jobs is reached. -1: the store,
 * or the device, failed. */
int schedule_queue(struct worker *w, const struct schedule_options *o, struct err *e);
