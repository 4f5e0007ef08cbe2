/* Progress of a queue: jobs and tokens that are done, of all; tokens per second of all workers together; the
 * time that is left. Each job shows its own progress beside this (src/base/progress.h).
 *
 * Of a batch all jobs count, also those that an earlier process has written. Of a whole store those count
 * that were open at the first call, and later ones. A queue of one job shows nothing: the job's own progress
 * says it. On a terminal the running jobs have a line each below the line of the queue, as far as the window
 * has lines. */
#pragma once
#include "runs/store/store.h"
#include "src/base/progress.h"

struct queue_progress {
    struct store *store;                 /* borrowed, as are the others */
    const char *batch;                   /* only the jobs of this batch; NULL: all jobs */
    struct progress *show;               /* how to show it, and the terminal's line */
    double shown;                        /* when the last output appeared; 0: never */
    bool visible;                        /* the queue has more than one job */
    /* On a terminal: adds a line for each job that runs, each after a newline, at most `most` lines. NULL: no
     * such lines. */
    void (*jobs)(void *ctx, char *out, size_t size, size_t most);
    void *ctx;
    size_t memory;                       /* bytes that the worker has reserved; 0: not known */
    struct store_counts before;          /* at the first call; a batch: 0 */
    double rate;                         /* the last one that was known, which holds between two jobs */
};

/* "7 @book/ch1", as messages name a job; `out`. j may be NULL. */
const char *job_name(char *out, size_t size, int64_t id, const struct job *j);
/* Jobs that a message names: how many, and the first ones. */
struct job_names { size_t n; char list[1600]; };
void job_names_add(struct job_names *x, const struct job *j, const char *more);
/* "2 chapters wait: job 7 @book/ch1, 9". cut: texts that the loop rule cut short. Without jobs: nothing. */
void job_names_say(const struct job_names *x, bool json, bool cut);

/* Shows the progress if it is due and if the queue is visible. Called as often as the caller likes. */
void queue_progress_at(struct queue_progress *q);
