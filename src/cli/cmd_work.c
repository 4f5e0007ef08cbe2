/* longhand work: takes jobs from the queue until it is empty, or waits for further jobs. struct shift is
 * one call of the worker; start at run_shift. longhand serve: answers OpenAI's API (runs/serve). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/ops.h"
#include "kernels/pool.h"
#include "runs/serve/server.h"
#include "runs/work/schedule.h"
#include "src/base/notice.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/base/version.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

struct shift {
    const struct options *o;
    struct store *store;
    const char *batch;                           /* only the jobs of this batch; NULL: all jobs */
    struct worker worker;
    size_t parallel;                             /* 0: auto */
    size_t done, failed;
    size_t refused; struct err why;              /* jobs that need more memory than there is; of the first */
    size_t stuck;                                /* chapters that wait for a failed job */
    bool late;                                   /* --max-time is over */
};

/* In a log, the beginning of a job. A terminal shows progress instead. */
static void job_begins(void *ctx, const struct job *j)
{
    const struct shift *h = ctx;
    char name[340];
    if (h->o->quiet || h->o->progress == PROGRESS_NONE || isatty(STDERR_FILENO))
        return;
    notice(h->o->progress == PROGRESS_JSON,
           (struct row[]){ NOTICE_TEXT("phase", "begins"), NOTICE_INT("job", j->id),
                                     NOTICE_TEXT("name", j->batch), NOTICE_TEXT("custom_id", j->custom_id),
                                     NOTICE_UINT("tokens", j->tokens), NOTICE_UINT("of", j->wanted),
                                     NOTICE_END },
           "job %s: begins at token %zu of %zu", job_name(name, sizeof name, j->id, j), j->tokens, j->wanted);
}

static void print_result(const struct shift *h, int64_t id, const struct job *j, const struct work_result *r,
                         size_t wanted)
{
    char name[340], line[PATH_BYTES + sizeof r->why.msg];
    const char *end = r->end == WORK_DONE     ? "done"
                       : r->end == WORK_FAILED ? "failed"
                       : r->end == WORK_LOST   ? "left"
                       : r->end == WORK_REFUSED || r->end == WORK_WAITS ? "stays queued"
                                               : "stopped";
    if (h->o->quiet)
        return;
    if (r->end == WORK_DONE)
        snprintf(line, sizeof line, "done, %zu of %zu %s, %.2f s, %.1f tokens/s", r->tokens, wanted,
                 plural(wanted, "token", "tokens"), r->seconds, work_speed(r));
    else
        snprintf(line, sizeof line, "%s after %zu of %zu %s: %s", end, r->tokens, wanted,
                 plural(wanted, "token", "tokens"), r->why.msg);
    const size_t n = strlen(line);
    if (r->end == WORK_WAITS)
        snprintf(line + n, sizeof line - n,
                 "; work --model PATH and resume %" PRId64 " --model PATH name another place", id);
    if (r->end != WORK_DONE || h->o->progress != PROGRESS_NONE)
        notice(h->o->progress == PROGRESS_JSON,
               (struct row[]){
                   NOTICE_TEXT("phase", end), NOTICE_INT("job", id), NOTICE_TEXT("name", j ? j->batch : NULL),
                   NOTICE_TEXT("custom_id", j ? j->custom_id : NULL), NOTICE_UINT("tokens", r->tokens),
                   NOTICE_UINT("of", wanted), NOTICE_REAL("seconds", r->seconds),
                   NOTICE_REAL("prefill_seconds", r->prefill_seconds),
                   NOTICE_TEXT("message", r->why.msg[0] ? r->why.msg : NULL), NOTICE_END },
               "job %s: %s", job_name(name, sizeof name, id, j), line);
}

int parallel_from_options(const struct options *o, size_t *n, struct err *e)
{
    *n = 0;
    if (strcmp(o->parallel, "auto") && parse_size(n, "", o->parallel, 1, WORKER_JOBS_MAX, e))
        return err_set(e, ERR_INPUT, "--parallel %s: auto and 1 to %d are allowed", o->parallel,
                       WORKER_JOBS_MAX);
    return 0;
}

static void job_ended(void *ctx, int64_t id, const struct job *job, size_t wanted,
                      const struct work_result *r)
{
    struct shift *h = ctx;
    progress_clear(&h->worker.progress);
    print_result(h, id, job, r, wanted);
    h->done += r->end == WORK_DONE || r->end == WORK_FAILED;
    h->failed += r->end == WORK_FAILED;
    if (r->end == WORK_REFUSED && h->refused++ == 0)
        h->why = r->why;
}

/* The first line of a shift: who works, where, on what, with what. */
static int print_start(const struct shift *h, struct err *e)
{
    const struct options *o = h->o;
    const char *numerics = h->worker.numerics[h->worker.n_numerics - 1], *why;
    const bool cpu = strncmp(numerics, "cpu", 3) == 0;
    const struct ops *ops = cpu ? ops_for_cpu(&why) : NULL;
    const size_t threads = o->threads ? o->threads : pool_default_threads();
    struct model_use_list uses;
    const struct model_use *model = NULL;
    char others[40] = "", path[300], shown[300];
    size_t models = 0;
    if (o->quiet || o->progress == PROGRESS_NONE)
        return 0;
    if (store_model_uses(h->store, &uses, e))
        return -1;
    for (size_t i = 0, k; i < uses.n; i++) {
        for (k = 0; k < i && !(uses.v[k].open && strcmp(uses.v[k].model, uses.v[i].model) == 0);)
            k++;                         /* a job that has not begun knows the path alone */
        models += uses.v[i].open && k == i;
        model = model || !uses.v[i].open ? model : &uses.v[i];
    }
    terminal_text(shown, sizeof shown, model ? model->model : "none");
    terminal_text(path, sizeof path, store_path(h->store));
    if (models > 1)
        snprintf(others, sizeof others, " and %zu more", models - 1);
    notice(o->progress == PROGRESS_JSON,
           (struct row[]){
               NOTICE_TEXT("phase", "worker"), NOTICE_TEXT("version", LONGHAND_VERSION),
               NOTICE_TEXT("store", store_path(h->store)), NOTICE_TEXT("model", model ? model->model : NULL),
               NOTICE_UINT("models", models), NOTICE_TEXT("device", o->device),
               NOTICE_TEXT("numerics", numerics), NOTICE_UINT("threads", threads), NOTICE_END },
           "longhand %s: store %s, model %s%s, device %s (%s), %zu threads", LONGHAND_VERSION, path, shown,
           others, cpu ? "cpu" : o->device, ops ? ops->name : numerics, threads);
    model_use_list_free(&uses);
    return 0;
}

static int run_shift(struct shift *h, struct err *e)
{
    const struct options *o = h->o;
    const struct schedule_options how = {
        .how = { .state_if_stopped = JOB_QUEUED, .accept_change = o->accept_change,
                 .store_rounds = o->rounds },
        .parallel = h->parallel, .batch = h->batch, .max_attempts = (int)o->max_attempts,
        .max_jobs = o->max_jobs, .watch = o->watch, .metrics = o->metrics, .begins = job_begins,
        .ended = job_ended, .ctx = h,
    };
    return schedule_queue(&h->worker, &how, e);
}

static bool has_numerics_of(const struct worker *w, const struct job *j)
{
    bool can = !j->numerics || !j->tokens;
    for (size_t i = 0; i < w->n_numerics && !can; i++)
        can = strcmp(w->numerics[i], j->numerics) == 0;
    return can;
}

static bool is_of_shift(const struct shift *h, const struct job *j)
{
    return !h->batch || (j->batch && strcmp(j->batch, h->batch) == 0);
}

/* Reports the queued jobs that this worker leaves because other arithmetic began them. */
static void report_other_numerics(const struct shift *h, const struct job_list *jobs)
{
    const struct job *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < jobs->n; i++)
        if (!has_numerics_of(&h->worker, &jobs->v[i]) && is_of_shift(h, &jobs->v[i])) {
            first = first ? first : &jobs->v[i];
            others++;
        }
    if (first && !h->o->quiet && !h->o->accept_change)
        notice(h->o->progress == PROGRESS_JSON,
               (struct row[]){
                   NOTICE_TEXT("phase", "not for this worker"), NOTICE_UINT("jobs", others),
                   NOTICE_INT("job", first->id), NOTICE_TEXT("numerics", first->numerics),
                   NOTICE_TEXT("here", h->worker.numerics[0]), NOTICE_END },
               "%zu %s queued that other arithmetic began (job %" PRId64 ": %s, here it is %s): a worker "
               "with that arithmetic continues them, or any worker with --accept-numerics-change",
               others, plural(others, "job stays", "jobs stay"), first->id, first->numerics,
               h->worker.numerics[0]);
}

/* Reports the chapters that no worker can begin now, the first ones by name. */
static void report_waiting(struct shift *h, const struct job_list *jobs)
{
    struct job_names names = {0};
    char more[300], after[220];
    for (size_t i = 0; i < jobs->n; i++) {
        const struct job *j = &jobs->v[i];
        if (!j->waits || !is_of_shift(h, j))
            continue;
        h->stuck += strcmp(j->waits, "failed") == 0;
        terminal_text(after, sizeof after, j->after_name);
        snprintf(more, sizeof more, " for %.200s (%s)", after, j->waits);
        job_names_add(&names, j, more);
    }
    if (!h->o->quiet)
        job_names_say(&names, h->o->progress == PROGRESS_JSON, false);
}

/* Reports the queued jobs that this worker leaves. */
static int report_jobs_left(struct shift *h, struct err *e)
{
    const struct selection queued = { .by_state = true, .state = JOB_QUEUED };
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t n;
    int rc = store_select(h->store, &queued, &ids, &n, e) || store_jobs(h->store, ids, n, &jobs, e) ? -1 : 0;
    report_other_numerics(h, &jobs);
    if (!h->o->max_jobs)
        report_waiting(h, &jobs);
    job_list_free(&jobs);
    free(ids);
    return rc;
}

/* The message and exit code after a shift without an error. */
static int conclude(const struct shift *h, struct err *e)
{
    const struct missing_model *missing = missing_first(&h->worker.missing);
    struct store_counts n;
    char paused[80] = "";
    if (store_counts(h->store, h->batch, &n, e))
        return -1;
    /* a worker that waits for jobs leaves nothing to others that write */
    const size_t left = n.jobs[JOB_QUEUED] + (h->o->watch && stop_signal ? 0 : n.jobs[JOB_RUNNING]);
    const int full = n.jobs[JOB_QUEUED] ? store_full(h->store, e) : 0;
    const char *continued = plural(left, "job is left, longhand work continues it",
                                   "jobs are left, longhand work continues them");
    if (stop_signal && h->o->watch && !left) {
        if (!h->o->quiet && h->o->progress != PROGRESS_JSON)
            fprintf(stderr, "%sstopped by %s; no job is waiting\n", log_time(), stop_signal_name());
        return 0;
    }
    if (stop_signal && left)
        return err_set(e, ERR_AGAIN, "stopped by %s; %zu %s", stop_signal_name(), left, continued);
    if (h->late && left)
        return err_set(e, ERR_AGAIN, "stopped at --max-time; %zu %s", left, continued);
    if (full)
        return full < 0 ? -1 : err_while(e, "%zu %s queued", n.jobs[JOB_QUEUED],
                                         plural(n.jobs[JOB_QUEUED], "job stays", "jobs stay"));
    if (n.jobs[JOB_PAUSED])
        snprintf(paused, sizeof paused, "; longhand resume queues paused ones (%zu)", n.jobs[JOB_PAUSED]);
    if (!h->done && !left && !h->batch && !h->o->quiet && h->o->progress != PROGRESS_JSON)
        fprintf(stderr, "%s%s: no job is waiting%s\n", log_time(), store_path(h->store), paused);
    if (h->failed)
        return err_set(e, ERR_FAILED, "%zu of %zu %s failed; longhand list --state failed", h->failed,
                       h->done, plural(h->done, "job", "jobs"));
    if (h->stuck)
        return err_set(e, ERR_FAILED, "%zu %s for a job that failed; longhand resume @NAME or JOB queues "
                       "that one again", h->stuck, plural(h->stuck, "chapter waits", "chapters wait"));
    if (missing)
        return err_set(e, ERR_FAILED, "jobs stay queued because their model cannot be read: %s; "
                       "longhand work --model PATH names another place", missing->why);
    if (h->refused)
        return err_set(e, h->o->max_memory ? ERR_INPUT : ERR_FAILED,
                       "%zu %s queued for want of memory%s because %.900s", h->refused,
                       plural(h->refused, "job stays", "jobs stay"),
                       plural(h->refused, "", ", the first of them"), h->why.msg);
    return 0;
}

int work_queue(const struct options *o, struct store *s, const char *batch, struct err *e)
{
    static struct shift h;
    h.o = o, h.store = s, h.batch = batch;
    worker_from_options(&h.worker, o);
    log_times(!isatty(STDERR_FILENO) && o->progress != PROGRESS_JSON);
    h.worker.deadline = options_given(o, "max-time") ? clock_seconds() + o->max_time : 0;
    int rc = parallel_from_options(o, &h.parallel, e) || worker_open(&h.worker, s, e) ? -1 : 0;
    if (rc == 0)
        rc = print_start(&h, e);
    if (rc == 0)
        rc = run_shift(&h, e);
    h.late = worker_out_of_time(&h.worker);
    if (rc == 0 && !stop_signal && !h.late)
        rc = report_jobs_left(&h, e);
    rc = rc ? rc : conclude(&h, e);
    if (batch)                                   /* run --batch names those of its earlier calls, too */
        h.worker.cut.n = 0;
    worker_close(&h.worker);
    return rc;
}

static int work_here(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    size_t parallel;
    struct metrics checked;
    stop_notice_open(o->progress == PROGRESS_JSON, o->quiet);
    int rc = parallel_from_options(o, &parallel, e) || metrics_open(&checked, o->metrics, e) ||
             store_from_options(&s, o, STORE_CREATE, e) || model_of_work(o, s, e) ||
             work_queue(o, s, NULL, e) ? -1 : 0;
    store_close(s);
    stop_notice_close();
    return rc;
}

int cmd_work(const struct options *o, struct err *e)
{
    if (o->watch && o->until_empty)
        return err_set(e, ERR_INPUT, "work: --watch and --until-empty: only one of them is allowed");
    stop_signals_catch();
    return device_choice_is_all(o->device) ? work_all(o, work_here, e) : work_here(o, e);
}

/* ---- serve ---- */

int cmd_serve(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    static struct worker w;
    struct options quiet = *o;           /* no line for every request, unless the command line wants it */
    quiet.progress = options_given(o, "progress") ? o->progress : PROGRESS_NONE;
    size_t parallel;
    if (device_choice_is_all(o->device))
        return err_set(e, ERR_INPUT, "serve: --device %s: one GPU is allowed", o->device);
    stop_signals_catch();
    stop_notice_open(o->progress == PROGRESS_JSON, o->quiet);
    worker_from_options(&w, &quiet);
    int rc = parallel_from_options(o, &parallel, e) || store_from_options(&s, o, STORE_CREATE, e) ||
             serve(o, &w, s, parallel, e) ? -1 : 0;
    store_close(s);
    stop_notice_close();
    return rc;
}
