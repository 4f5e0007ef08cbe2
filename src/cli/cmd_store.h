/* Stores and jobs from the command line: what the verbs about jobs have in common. */
#pragma once
#include "runs/store/store.h"
#include "runs/work/read_text.h"
#include "runs/work/task.h"
#include "runs/work/worker.h"
#include "src/request/options.h"

/* Opens the store of --db, LONGHAND_DB or the default path. A notice about its file system goes to stderr. */
int store_from_options(struct store **s, const struct options *o, enum store_mode mode, struct err *e);
struct store_part {
    struct store *store;
    int64_t *ids; size_t n_ids;      /* [jobs.n], ascending; n_ids: while jobs are selected */
    struct job_list jobs;            /* the selected jobs */
};
/* Opens the store and does `what` with the jobs that the words of the command line, --state and --all select.
 * `every`: without a selection, all jobs. */
int with_jobs(const struct options *o, enum store_mode mode, bool every,
              int (*what)(const struct options *o, struct store_part *p, struct err *e), struct err *e);
/* The stores of list, report and export, for which --db may be given several times. {0} is closed. */
struct store_parts { struct store_part *v; size_t n; };
/* Opens the stores for reading and selects jobs in each. A number, range or name must exist in at least
 * one store. */
int  parts_from_options(struct store_parts *p, const struct options *o, bool every, struct err *e);
void parts_close(struct store_parts *p);
/* The jobs that `word` selects, and the one job that it names; job_list_free. */
int jobs_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e);
int job_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e);

/* Gives a worker that is zero, not yet open, the settings and the progress of the command line. A worker is
 * large: it is never copied. */
void worker_from_options(struct worker *w, const struct options *o);
/* --model of resume, extend and fork: the new place of the model of these jobs. Reads the model, refuses it
 * if the ids of a prompt come from another tokenizer, and changes no job: `place` is for store_model_move,
 * store_extend or store_fork. Without --model `given` is false. */
struct moved_model {
    bool given;
    char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES];
    struct model_place place;            /* points into this struct */
};
int model_from_options(struct moved_model *m, const struct options *o, struct store *s,
                       const struct job_list *jobs, struct err *e);
/* --model of work: moves all jobs of this model. */
int model_of_work(const struct options *o, struct store *s, struct err *e);
/* extend --run, fork --run: checks that the job can go on here after the change, then makes it, and writes
 * the text of the paused job *id as `run --resume` with these options does (src/cli/cmd_run.c). */
struct run_change {
    struct job_change job;
    int (*make)(void *ctx, int64_t *id, struct err *e); void *ctx;
    size_t skip;                         /* bytes of the text that are not printed */
};
int run_changed(const struct options *run, struct store *s, const struct run_change *c, struct err *e);
/* Keep in the store what reading the texts of the model in `dir` needs. ERR_INPUT, and nothing is kept, if
 * its fingerprint is not `want`. */
int model_keep(struct store *s, const char *dir, size_t threads, const char *want, struct err *e);
/* export --dir: one file per job (src/cli/export_dir.c). *n counts the jobs that were exported, and those
 * that are not done. */
struct export_counts;
int export_dir(const struct options *o, const struct store_parts *p, struct export_counts *n, struct err *e);
/* --parallel: *n is 0 for auto. */
int parallel_from_options(const struct options *o, size_t *n, struct err *e);
/* `work` on the jobs of one batch, or of the whole store (NULL). 0 when no job is left to take; else -1
 * with the message and exit code of `work`, which is ERR_FAILED when jobs failed. */
int work_queue(const struct options *o, struct store *s, const char *batch, struct err *e);
/* --device cuda:all: runs `work` in one process for each GPU (src/cli/work_all.c). No store may be open
 * and no thread running. */
typedef int work_fn(const struct options *o, struct err *e);
int work_all(const struct options *o, work_fn *work, struct err *e);
