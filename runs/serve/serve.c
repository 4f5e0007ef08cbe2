/* The life of a server. Start at serve. */
#include "runs/serve/http.h"
#include "runs/work/schedule.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/request/draft_options.h"
#include "src/request/model_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double STOP_SECONDS = 5;            /* that streams have for their last event */
static const double COMMIT_SECONDS = 0.2;        /* between events of a stream */

/* ---- the worker ---- */

/* A job has ended or is left. */
static void job_ended(void *ctx, int64_t id, const struct job *job, size_t wanted,
                      const struct work_result *r)
{
    struct server *sv = ctx;
    (void)job, (void)wanted;
    if (r->end != WORK_DONE && r->end != WORK_LOST && !sv->o->quiet)
        fprintf(stderr, "%sjob %" PRId64 ": %s\n", log_time(), id, r->why.msg);
    server_tell(sv, id);
}

/* A request that this worker can never hold would wait for ever. */
static bool refuse(void *ctx, int64_t id, const struct err *why)
{
    char words[sizeof why->msg];
    struct server *sv = ctx;
    struct err ignored;
    err_words(why, words, sizeof words);
    pthread_mutex_lock(&sv->writing);
    const int rc = store_request_refuse(sv->writer, id, words, &ignored);
    pthread_mutex_unlock(&sv->writing);
    return rc == 1;
}

static void take_metrics(void *ctx, char *text)
{
    struct server *sv = ctx;
    pthread_mutex_lock(&sv->news.lock);
    free(sv->metrics);
    sv->metrics = text;
    pthread_mutex_unlock(&sv->news.lock);
}

static int work(struct server *sv, size_t parallel, struct err *e)
{
    struct worker *w = sv->worker;
    const struct options *o = sv->o;
    int rc = options_open_engine(&w->engine, o, e);
    rc = rc ? rc : worker_load_model(w, e);
    if (rc)
        return rc < 0 ? -1 : 0;
    const struct schedule_options how = {
        .how = { .state_if_stopped = JOB_QUEUED, .accept_change = o->accept_change },
        .parallel = parallel, .only_model = w->engine.path, .bell = &sv->bell,
        .max_attempts = (int)o->max_attempts, .watch = true, .preempts = true,
        .take_metrics = take_metrics, .ended = job_ended, .refuse = refuse, .ctx = sv,
    };
    sv->phase = SERVE_READY;
    return schedule_queue(w, &how, e);
}

/* ---- opening and closing ---- */

/* The last component of the model's path without .gguf. */
static void name_model(struct server *sv)
{
    const char *path = batch_front_engine(&sv->front)->path, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    n -= n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? 5 : 0;
    snprintf(sv->model, sizeof sv->model, "%.*s", (int)n, name);
}

/* Requests have the options of `submit`; what only their fields say has its default. */
static void set_request_options(struct server *sv)
{
    sv->request = *sv->o;
    sv->request.verb = options_verb("submit");
    sv->request.samples = 1;
    sv->request.job.logprobs = -1;
    sv->request.priority = SERVE_PRIORITY;
    sv->request.quiet = true;
}

static int open_store(struct server *sv, struct store *s, struct err *e)
{
    struct worker *w = sv->worker;
    w->commit_seconds = COMMIT_SECONDS;
    w->committed = server_tell;
    w->ctx = sv;
    return worker_open(w, s, e) || store_requeue_dead(s, w->number, e) || store_name(s, sv->store_name, e) ||
           store_reopen(&sv->reader, s, e) || store_reopen(&sv->writer, s, e) ? -1 : 0;
}

/* No request begins any more, and those that wait get a last word. */
static void stop_requests(struct server *sv)
{
    const double until = clock_seconds() + STOP_SECONDS;
    pthread_mutex_lock(&sv->news.lock);
    sv->phase = SERVE_STOPPING;
    pthread_cond_broadcast(&sv->news.cond);
    pthread_mutex_unlock(&sv->news.lock);
    while (sv->busy && clock_seconds() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    http_stop(sv);
}

static void close_server(struct server *sv)
{
    thread_stop(&sv->checker);
    for (size_t i = 0; i < READERS; i++)
        text_reader_close(&sv->texts[i].reader);
    batch_close(&sv->front);
    free(sv->metrics);
    store_close(sv->reader);
    store_close(sv->writer);
}

/* After the work: whether jobs are left. Requests without a key are not, for nobody waits for them now. */
static int conclude(const struct options *o, struct store *s, struct err *e)
{
    struct store_counts n;
    if (store_counts(s, NULL, &n, e))
        return -1;
    const size_t left = n.jobs[JOB_QUEUED];
    if (left)
        return err_set(e, ERR_AGAIN, "stopped by %s; %zu %s", stop_signal_name(), left,
                       plural(left, "job is left, longhand serve continues it",
                              "jobs are left, longhand serve continues them"));
    if (!o->quiet && o->progress != PROGRESS_JSON)
        fprintf(stderr, "%sstopped by %s; no job is waiting\n", log_time(), stop_signal_name());
    return 0;
}

int serve(const struct options *o, struct worker *w, struct store *s, size_t parallel, struct err *e)
{
    static struct server sv = { .listener = -1, .routes = routes, .reading = PTHREAD_MUTEX_INITIALIZER,
                                .writing = PTHREAD_MUTEX_INITIALIZER, .joining = PTHREAD_MUTEX_INITIALIZER,
                                .seating = PTHREAD_MUTEX_INITIALIZER };
    sv.o = o, sv.worker = w;
    sv.last = &sv.first;
    TAILQ_INIT(&sv.seats);
    thread_open(&sv.checker);
    pthread_mutex_init(&sv.news.lock, NULL);
    cond_init(&sv.news.cond);
    char dir[PATH_BYTES];
    bell_open(&sv.bell);
    set_request_options(&sv);
    int rc = http_open(&sv, e) || model_dir(dir, o, e) || batch_open_front(&sv.front, &sv.request, e) ||
             open_store(&sv, s, e) ? -1 : 0;
    if (rc == 0) {
        name_model(&sv);
        draft_notices(o, batch_front_engine(&sv.front), "");
        sv.request.served = sv.model;
        rc = http_start(&sv, e) || batches_start(&sv, e) ? -1 : 0;
    }
    if (rc == 0)
        rc = work(&sv, parallel, e);
    stop_requests(&sv);
    close_server(&sv);
    rc = rc ? rc : conclude(o, s, e);
    worker_close(w);
    return rc;
}
