/* work --metrics: the figures of a worker as a Prometheus text file, for the textfile collector of a node
 * exporter or any other reader. No port is opened.
 *
 * A metric that vLLM has carries vLLM's name, and the label model_name; the others begin with longhand_.
 * Counters count since the worker began to use the model that it has now. A file is written beside the old
 * one and renamed into its place, so a reader sees a whole file. It is not synced to the disk: after a power
 * cut it may be old or empty. */
#pragma once
#include "runs/store/figures.h"
#include "runs/work/checkpoint.h"
#include "src/text/emit.h"

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
