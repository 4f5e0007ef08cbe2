/* The jobs that a worker runs at once. Its data is struct schedule: the tasks in the order in which they
 * joined. Start at schedule_queue: admit, serve_prompts, serve_round. */
#include "runs/work/schedule.h"
#include "runs/work/places.h"
#include "src/base/notice.h"
#include "src/base/stopping.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double POLL_SECONDS = 0.5;          /* between reads of a queue without a job that may join */

struct schedule {
    struct worker *w;
    const struct schedule_options *o;
    struct task *task[WORKER_JOBS_MAX]; size_t n;
    struct places places;                /* with --parallel auto */
    bool one_alone;                      /* the running task must run alone */
    size_t ended;                        /* jobs done and failed */
    struct queue_progress progress;
    double poll_at;                      /* when to read the queue again */
    double round_ended;                  /* the last round, while a task writes; 0: none writes */
    double waiting_since;                /* for jobs that other workers hold; 0: not waiting */
    /* when a job of another model was first passed since jobs of this model run; 0: none was */
    double passed_since;
    char *skip;                          /* jobs that this worker can never hold: struct claim_request */
    struct metrics metrics;
    bool metrics_failed;                 /* a notice says so */
    bool full;                           /* the store is; a notice says so */
    bool no_memory;                      /* may_join refused the last job for want of memory */
};

/* ---- metrics ---- */

/* Write the file of --metrics, if it is due or `now`. A failure is no reason to stop the work. */
static void write_metrics(struct schedule *h, bool now)
{
    struct metrics *m = &h->metrics;
    struct worker *w = h->w;
    struct metrics_now g = { .running = h->n, .reserved = h->n ? worker_held(w) : 0,
                             .limit = w->max_memory };
    struct metrics_sums all = m->sums;
    struct err e = {0};
    if ((!m->path && !m->take) || !(now || clock_seconds() - m->written >= METRICS_SECONDS))
        return;
    for (size_t i = 0; i < h->n; i++) {
        const struct task *t = h->task[i];
        g.kv_used += t->decoder.kv.n_past;
        g.kv_tokens += t->decoder.n_max;
        metrics_add(&all, &t->decoder.stats, t->decoder.count.prefill_tokens, t->result.prefill_seconds);
    }
    const bool failed = store_counts(w->store, h->o->batch, &g.counts, &e) || metrics_write(m, &g, &all, &e);
    if (failed && !h->metrics_failed && !w->quiet)
        fprintf(stderr, "longhand: %s\n", e.msg);
    h->metrics_failed = failed;
}

/* ---- the end of a task ---- */

/* End task i, whose last call returned rc. 0; -1: the worker must stop. */
static int end_task(struct schedule *h, size_t i, int rc, struct err *e)
{
    struct task *t = h->task[i];
    const struct work_result *r = &t->result;
    const struct claim *c = &t->claim;
    struct job_list row = t->jobs;       /* for `ended`; task_close frees the rest */
    bool shown = true;
    const size_t prefilled = t->decoder.count.prefill_tokens;
    t->jobs = (struct job_list){0};
    const int closed = task_close(t, rc, e);
    metrics_add(&h->metrics.sums, &r->stats, prefilled, r->prefill_seconds);
    memmove(h->task + i, h->task + i + 1, (--h->n - i) * sizeof *h->task);
    h->one_alone = h->one_alone && h->n;
    h->poll_at = 0;
    if (closed == 0 && r->end == WORK_DEVICE_FAILED) {    /* the next job would fail, too */
        err_set(e, ERR_FAILED,
                "job %" PRId64 ": %.700s, after %zu of %zu %s; it is queued again, and longhand work "
                "continues it",
                c->job, r->why.msg, r->tokens, c->wanted, plural(c->wanted, "token", "tokens"));
    } else if (closed == 0) {
        h->ended += r->end == WORK_DONE || r->end == WORK_FAILED;
        h->metrics.finished[r->end == WORK_DONE ? r->finish : FINISH_NONE]++;
        h->metrics.failed += r->end == WORK_FAILED;
        if (r->end == WORK_REFUSED && !(h->o->refuse && h->o->refuse(h->o->ctx, c->job, &r->why))) {
            char *more;
            if (asprintf(&more, "%s%" PRId64 "\n", h->skip ? h->skip : "\n", c->job) > 0) {
                free(h->skip);
                h->skip = more;
            }
        }
        if (r->end == WORK_WAITS)
            shown = missing_add(&h->w->missing, row.v->model, &r->why) != 0;
        if (h->o->ended && shown)
            h->o->ended(h->o->ctx, c->job, row.n ? row.v : NULL, c->wanted, r);
    }
    const int failed = closed || r->end == WORK_DEVICE_FAILED ? -1 : 0;
    job_list_free(&row);
    stats_close(&t->result.stats);
    free(t);
    snapshot_files_delete_unused(h->w->store);
    return failed;
}

/* End all tasks, because the work stops: store every text and every snapshot. */
static int stop_all(struct schedule *h, struct err *e)
{
    const double deadline = clock_seconds() + SNAPSHOT_STOP_SECONDS;
    int rc = 0;
    for (size_t i = 0; i < h->n; i++)
        snapshot_policy_stop(&h->task[i]->snapshots);
    for (size_t i = 0; i < h->n; i++)
        task_stopped(h->task[i], deadline);
    while (h->n) {
        struct err later;
        task_check(h->task[0]);          /* sets the reason */
        if (end_task(h, 0, TASK_ENDS, rc ? &later : e))
            rc = -1;
    }
    return rc;
}

/* The store or the device failed: give up all tasks. What can be stored is stored. */
static void abandon_all(struct schedule *h)
{
    while (h->n) {
        struct err ignored = { .code = ERR_FAILED };
        h->task[0]->result.end = WORK_STOPPED;
        end_task(h, 0, TASK_ENDS, &ignored);
    }
}

/* ---- joining ---- */

static struct task *task_new(struct worker *w, const struct work_options *how, struct err *e)
{
    struct task *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(e, ERR_FAILED, "out of memory for a job");
        return NULL;
    }
    t->w = w;
    t->options = *how;
    t->own_progress = w->progress;
    t->progress = &t->own_progress;
    return t;
}

static struct claim_request request_of(const struct schedule *h)
{
    struct claim_request r = worker_claim_request(h->w, 0);
    r.max_attempts = h->o->max_attempts;
    r.batch = h->o->batch;
    r.only_model = h->o->only_model;
    r.skip = h->skip;
    r.missing = h->w->missing.list;
    if (h->o->how.accept_change)
        r.numerics = NULL;
    if (h->passed_since > 0 && clock_seconds() - h->passed_since > OTHER_MODEL_SECONDS)
        r.model = NULL;
    return r;
}

/* Note since when a job of another model waits that has the same priority and a lower number than `job`. */
static int note_passed(struct schedule *h, const struct claim_request *r, int64_t job, struct err *e)
{
    struct claim_request any = *r;
    struct next_job first;
    any.model = NULL;
    if (store_next(h->w->store, &any, &first, e) < 0)
        return -1;
    if (first.job != job && h->passed_since == 0)
        h->passed_since = clock_seconds();
    return 0;
}

/* How many tasks have no place since a trial of more places failed (places.h). They stand last. */
static size_t waiting(const struct schedule *h)
{
    return h->o->parallel || h->one_alone || h->n < h->places.n ? 0 : h->n - h->places.n;
}

/* The next free place is for the highest priority, and there for the task that joined first. */
static void order_waiting(struct schedule *h)
{
    const size_t first = h->n - waiting(h);
    for (size_t k = first; k < h->n; k++) {
        struct task *t = h->task[k];
        size_t i = k;
        for (; i > first && h->task[i - 1]->job->priority < t->job->priority; i--)
            h->task[i] = h->task[i - 1];
        h->task[i] = t;
    }
}

/* Whether the job may join the tasks that run: it has their model and room, and no task is reading what it
 * begins with. A job that cannot be read now waits for them: if the worker still cannot read the job then,
 * the job fails alone. */
static bool may_join(struct schedule *h, struct task *t, int64_t job, int idle)
{
    struct worker *w = h->w;
    struct err why;
    size_t bytes;
    if (task_read(t, job, &why)) {
        task_forget(t);
        return false;
    }
    if (waiting(h) && t->job->priority <= h->task[h->n - 1]->job->priority)
        return false;
    if (!worker_has_model(w, t->job, t->params) || !worker_has_trained(w, t->params) ||
        task_runs_alone(t, idle))
        return false;
    const int made = task_make_prompt(t, &why);
    if (made)
        return made < 0;                 /* task_open names the reason */
    job_bind_drafters(t->params, &w->engine.config, w->engine.dir);
    const struct job_need need = task_need(t, t->job->wanted, t->job->tokens);
    struct prefix_match m = prefix_find(&w->prefixes, need.start, need.n_start);
    if (need.n_max == 0)
        return true;                     /* task_open names the reason */
    if (m.n_coming / KV_BLOCK > m.n_rows / KV_BLOCK)
        return false;
    if (worker_reserve(w, &need, &bytes, &m, &why)) {
        h->no_memory = worker_check_alone(w, &need, &why) == 0;
        return !h->no_memory;            /* task_open names the reason */
    }
    worker_release(w, bytes);            /* task_open reserves it again */
    return true;
}

/* Take a claimed job in. */
static int join(struct schedule *h, struct task *t, struct err *e)
{
    h->task[h->n++] = t;
    h->waiting_since = 0;
    t->progress->job = t->claim.job;
    const int rc = task_open(t, e);
    if (rc)
        return end_task(h, h->n - 1, rc, e);
    h->one_alone = task_runs_alone(t, t->claim.idle);
    job_label(t->name, sizeof t->name, t->job);
    t->progress->custom_id = t->job->custom_id;
    t->progress->name = t->name;
    order_waiting(h);
    if (strcmp(h->metrics.model, h->w->engine.path)) {
        h->passed_since = 0;
        places_open(&h->places, WORKER_JOBS_MAX);
    }
    metrics_model(&h->metrics, h->w->engine.path);
    if (h->o->begins)
        h->o->begins(h->o->ctx, t->job);
    return 0;
}

/* Release the task of the lowest priority that joined last, if that is lower than `priority`. The job returns
 * to the queue, and its cache stays while memory allows. 1; 0: there is none; -1. */
static int release_lower(struct schedule *h, int priority, struct err *e)
{
    size_t low = 0;
    if (!h->o->preempts || !h->n)
        return 0;
    for (size_t i = 1; i < h->n; i++)
        if (h->task[i]->job->priority <= h->task[low]->job->priority)
            low = i;
    struct task *t = h->task[low];
    if (t->job->priority >= priority)
        return 0;
    t->result.end = WORK_STOPPED;
    err_set(&t->result.why, ERR_AGAIN, "released for a job of a higher priority");
    return end_task(h, low, TASK_ENDS, e) ? -1 : 1;
}

/* Claim the next job, if it may join. 1: it has joined, or failed, or another job made room; 0: no job joins
 * now; -1. */
static int admit_one(struct schedule *h, struct err *e)
{
    const struct claim_request r = request_of(h);
    struct store *s = h->w->store;
    struct next_job next;
    int rc, released = 0;
    struct task *t = task_new(h->w, &h->o->how, e);
    if (!t)
        return -1;
    rc = store_requeue_dead(s, r.worker, e) ? -1 : store_next(s, &r, &next, e);
    if (rc == 1 && r.model && note_passed(h, &r, next.job, e))
        rc = -1;
    h->no_memory = false;
    if (rc == 1 && h->n && !may_join(h, t, next.job, next.idle)) {
        released = h->no_memory ? release_lower(h, t->job->priority, e) : 0;
        rc = MIN(released, 0);
        goto no;
    }
    if (rc == 1)
        rc = store_claim(s, &r, &t->claim, e);
    if (rc != 1)
        goto no;
    if (h->n && (!t->job || t->job->id != t->claim.job)) {       /* another job than expected */
        task_forget(t);
        if (!may_join(h, t, t->claim.job, t->claim.idle)) {
            const struct job_end back = { .state = JOB_QUEUED, .undo = true };
            rc = store_commit(s, &t->claim, &(struct commit){ .end = &back }, e) < 0 ? -1 : 0;
            goto no;
        }
    }
    return join(h, t, e) ? -1 : 1;
no:
    task_forget(t);
    free(t);
    return released == 1 ? 1 : MIN(rc, 0);
}

/* All places are taken: whether the next job of the queue gets one, of a lower priority. 1; 0; -1. */
static int make_place(struct schedule *h, struct err *e)
{
    const struct claim_request r = request_of(h);
    struct next_job next;
    const int rc = store_next(h->w->store, &r, &next, e);
    return rc == 1 ? release_lower(h, next.priority, e) : rc;
}

/* The most tasks that there may be now. While some wait, one more, of a higher priority, may join them. */
static size_t places(const struct schedule *h)
{
    const size_t n = h->one_alone     ? 1
                     : h->o->parallel ? h->o->parallel
                     : waiting(h)     ? MIN(h->n + 1, (size_t)WORKER_JOBS_MAX)
                                      : h->places.n;
    return h->o->max_jobs ? MIN(n, h->o->max_jobs - MIN(h->o->max_jobs, h->ended)) : n;
}

/* Let jobs join while there are places. A task that must run alone is checked here, too: it may have company
 * after its first checkpoint. */
static int admit(struct schedule *h, struct err *e)
{
    if (h->one_alone && h->n == 1 && !task_stays_alone(h->task[0]))
        h->one_alone = false;
    if (h->n && clock_seconds() < h->poll_at)
        return 0;
    missing_look_again(&h->w->missing);
    while (!stop_signal) {
        if (h->n >= places(h) && h->o->preempts && make_place(h, e) < 0)
            return -1;
        if (h->n >= places(h))
            break;
        const int rc = admit_one(h, e);
        if (rc < 0)
            return -1;
        if (rc == 0) {
            h->poll_at = clock_seconds() + POLL_SECONDS;
            break;
        }
    }
    return 0;
}

/* Say once that the store is full, while a worker waits for room in it. */
static void full_notice(struct schedule *h)
{
    struct err why;
    const bool was = h->full;
    h->full = store_full(h->w->store, &why) == 1;
    if (h->full && !was && !h->w->quiet)
        notice(h->w->progress.show == SHOW_JSON,
               (struct row[]){ NOTICE_TEXT("phase", "full"), NOTICE_TEXT("message", why.msg),
                                         NOTICE_END }, "%s", why.msg);
}

/* The queue is empty and no task runs. 1: read it again later; 0; -1. With `watch` it is always read again.
 * Otherwise the worker waits while chapters wait for jobs that other workers write, and for the length of a
 * lease while those hold other jobs, because the job of a dead worker returns to the queue. */
static int poll_again(struct schedule *h, struct err *e)
{
    struct store_counts n;
    if (h->o->watch) {
        full_notice(h);
        return 1;
    }
    if (store_counts(h->w->store, h->o->batch, &n, e))
        return -1;
    double now = clock_seconds();
    const int chapters = store_chapters_wait(h->w->store, h->o->batch, e);
    if (chapters || n.jobs[JOB_RUNNING] == 0)
        return chapters;
    h->waiting_since = h->waiting_since > 0 ? h->waiting_since : now;
    return now - h->waiting_since < store_lease_seconds(h->w->store) + 2;
}

/* ---- serving ---- */

/* Read a slice of the prompt of the task that has waited longest, or make a slice of the model in 8 bits. */
static int serve_prompts(struct schedule *h, struct err *e)
{
    size_t i = 0, writing = 0;
    for (size_t k = 0; k < h->n; k++)
        writing += task_writes(h->task[k]);
    for (size_t k = 0; k < h->n; k++)
        if (task_make_int8(h->task[k], writing ? SLICE_SECONDS : 0))
            return 0;
    while (i < h->n && task_writes(h->task[i]))
        i++;
    if (i == h->n)
        return 0;
    struct task *t = h->task[i];
    int rc = task_prefill(t, writing ? SLICE_SECONDS : 0, e);
    if (rc == TASK_AGAIN)
        return 0;
    if (rc == TASK_ENDS && t->result.end == WORK_STOPPED)
        return 0;                        /* stop_all ends it */
    h->poll_at = 0;                      /* jobs may wait for this beginning */
    if (rc || task_is_complete(t))
        return end_task(h, i, rc, e);
    task_begins_writing(t);
    return 0;
}

/* One round of all tasks that write. */
static int serve_round(struct schedule *h, struct err *e)
{
    struct decoder *d[WORKER_JOBS_MAX];
    struct task *t[WORKER_JOBS_MAX];
    size_t n = 0;
    struct err why;
    for (size_t i = h->n; i-- > 0;) {
        const bool lost = task_check(h->task[i]) && h->task[i]->result.end == WORK_LOST;
        if (lost && end_task(h, i, TASK_ENDS, e))
            return -1;
    }
    const size_t most = h->o->parallel ? h->n : h->places.n;     /* after a trial the last ones wait */
    for (size_t i = 0; i < h->n; i++) {
        if (!task_writes(h->task[i]))
            continue;
        h->task[i]->progress->phase = n < most ? "writing" : "waiting";
        if (n < most) {
            t[n] = h->task[i];
            d[n++] = &h->task[i]->decoder;
        }
    }
    if (n && h->round_ended > 0)
        h->metrics.longest_wait = MAX(h->metrics.longest_wait, clock_seconds() - h->round_ended);
    h->round_ended = 0;
    if (n == 0)
        return 0;
    stop_notice_for("this round");
    decode_round(d, n, &why);            /* every decoder has its own result */
    stop_notice_for(NULL);
    h->round_ended = clock_seconds();
    h->metrics.rounds[n]++;
    struct round_total total = { .tasks = n };
    for (size_t k = 0; k < n; k++) {
        total.tokens += d[k]->round.failed ? 0 : d[k]->round.tokens;
        total.seconds += d[k]->round.failed ? 0 : d[k]->round.seconds;
    }
    places_round(&h->places, n, total.tokens, total.seconds, h->round_ended);
    order_waiting(h);
    size_t left = n;
    for (size_t k = 0; k < n; k++) {
        size_t i = 0;
        int rc = TASK_FAILED;
        if (d[k]->round.failed)
            *e = d[k]->round.why;
        else
            rc = task_take_round(t[k], &total, e);
        while (h->task[i] != t[k])
            i++;
        if (rc == 0 && !task_is_complete(t[k]))
            continue;
        left--;
        if (end_task(h, i, rc, e))
            return -1;
    }
    if (left == 0)
        h->round_ended = 0;
    return 0;
}

/* The lines of the running jobs, below that of the queue. */
static void job_lines(void *ctx, char *out, size_t size, size_t most)
{
    const struct schedule *h = ctx;
    for (size_t i = 0; i < MIN(h->n, most) && size > 260; i++) {
        struct task *t = h->task[i];
        if (t->writing_since > 0)        /* a text that waits has no rounds that note it */
            t->progress->stored = checkpoint_committed(t->checkpoint);
        out[0] = '\n';
        progress_line(t->progress, out + 1, 256);
        size -= strlen(out);
        out += strlen(out);
    }
}

/* Show the progress of the queue. On a terminal the jobs' lines stand below it. */
static void show_progress(struct schedule *h)
{
    h->progress.memory = h->n ? worker_held(h->w) : 0;
    queue_progress_at(&h->progress);
    const struct progress *p = &h->w->progress;
    for (size_t i = 0; i < h->n && p->show == SHOW_LINE; i++)
        h->task[i]->own_progress.show = h->progress.visible ? SHOW_ELSEWHERE : p->show;
}

/* Serve the tasks. 1: the work must stop, and all have ended. */
static int serve(struct schedule *h, struct err *e)
{
    if (stop_signal || worker_out_of_time(h->w))
        return stop_all(h, e) ? -1 : 1;
    return serve_prompts(h, e) || serve_round(h, e) ? -1 : 0;
}

/* Wait for the bell, or so many seconds. */
static void wait_for_jobs(struct schedule *h, double seconds)
{
    if (h->o->bell && bell_wait(h->o->bell, seconds, worker_held(h->w)))
        h->poll_at = 0;
    if (!h->o->bell && seconds > 0)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(seconds * 1e9) }, NULL);
}

int schedule_queue(struct worker *w, const struct schedule_options *o, struct err *e)
{
    struct schedule h = { .w = w, .o = o, .progress = { w->store, o->batch, &w->progress } };
    h.progress.jobs = job_lines;
    h.progress.ctx = &h;
    int rc = 0, again = 1;
    w->parallel = o->parallel ? o->parallel : WORKER_JOBS_MAX;
    places_open(&h.places, WORKER_JOBS_MAX);
    if (metrics_open(&h.metrics, o->metrics, e))
        return -1;
    h.metrics.take = o->take_metrics;
    h.metrics.ctx = o->ctx;
    metrics_model(&h.metrics, w->engine.path);
    while (again > 0 && rc == 0) {
        if (h.n == 0 && (stop_signal || worker_out_of_time(w) || (o->max_jobs && h.ended >= o->max_jobs)))
            break;
        show_progress(&h);
        write_metrics(&h, false);
        wait_for_jobs(&h, 0);
        rc = admit(&h, e);
        if (rc == 0 && h.n) {
            rc = serve(&h, e);
            continue;
        }
        if (rc == 0 && !stop_signal && !worker_out_of_time(w) && clock_seconds() < h.poll_at)
            again = poll_again(&h, e);
        if (rc == 0 && again > 0 && clock_seconds() < h.poll_at) {
            places_idle(&h.places);
            wait_for_jobs(&h, POLL_SECONDS);
        }
    }
    if (rc < 0)
        abandon_all(&h);
    write_metrics(&h, true);
    free(h.skip);
    return rc < 0 || again < 0 ? -1 : 0;
}

int schedule_job(struct worker *w, const struct claim *c, const struct work_options *options,
                 const struct work_output *out, struct work_result *r, struct err *e)
{
    struct task *t = task_new(w, options, e);
    *r = (struct work_result){ .tokens_before = c->end.tokens, .tokens = c->end.tokens };
    if (!t)
        return -1;
    t->claim = *c;
    t->out = out;
    t->progress = &w->progress;
    w->progress.job = 0;                 /* progress in the foreground needs no job number */
    int rc = task_open(t, e);
    while (rc == 0 && !task_is_complete(t)) {
        if (!task_writes(t)) {
            rc = task_prefill(t, 0, e);
            if (rc == 0)
                task_begins_writing(t);
            rc = rc == TASK_AGAIN ? 0 : rc;
            continue;
        }
        rc = task_check(t);
        if (rc == 0)
            task_make_int8(t, 0);
        stop_notice_for("this round");
        if (rc == 0)
            rc = decode_step(&t->decoder, e) ? TASK_FAILED : task_take_round(t, NULL, e);
    }
    stop_notice_for(NULL);
    if (rc == TASK_ENDS && (t->result.end == WORK_STOPPED || t->result.end == WORK_OUTPUT_FAILED)) {
        snapshot_policy_stop(&t->snapshots);
        task_stopped(t, clock_seconds() + SNAPSHOT_STOP_SECONDS);
    }
    rc = task_close(t, rc, e);
    *r = t->result;
    free(t);
    snapshot_files_delete_unused(w->store);
    return rc;
}
