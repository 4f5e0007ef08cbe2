/* /v1/batches. Start at answer_new_batch and check_files. */
#include "runs/serve/batches.h"
#include "runs/report/export.h"
#include "runs/serve/folder.h"
#include "runs/work/thread.h"
#include "src/base/memory_file.h"
#include "src/base/stopping.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- records ---- */

static const char *const state_names[] = { "validating", "in_progress", "failed", "cancelled" };
enum batch_state { VALIDATING, QUEUED, FAILED, CANCELLED, BATCH_STATES };
static const double CHECK_AGAIN_SECONDS = 30;    /* after a busy store or a full disk */
static const double FORGET_AGAIN_SECONDS = 2;    /* between looks for requests to remove */

/* What ID.json has. `text` owns metadata. */
struct record {
    char id[FILE_ID_BYTES], input[FILE_ID_BYTES], endpoint[40], window[16], error[600];
    double created;
    enum batch_state state;
    struct json metadata; char *text;    /* metadata.s NULL: none */
};

static void text_of(char *out, size_t size, const struct json *root, const char *key)
{
    struct json v;
    struct err ignored;
    *out = 0;
    char *s = js_get(root, key, &v, &ignored) == 1 && js_kind(&v) == JS_STRING ? js_strdup(&v) : NULL;
    snprintf(out, size, "%s", s ? s : "");
    free(s);
}

static bool read_record(const struct server *sv, struct record *b, const char *id)
{
    char path[PATH_BYTES], state[20];
    struct err ignored;
    struct json root, v;
    size_t n;
    *b = (struct record){0};
    if (!id_is(id, BATCH_PREFIX, "") || file_path(path, sv, id, ".json", &ignored) ||
        file_read(&b->text, &n, path, 1 << 20, &ignored) || js_check(&root, "batch", b->text, n, &ignored)) {
        free(b->text);
        b->text = NULL;
        return false;
    }
    text_of(b->id, sizeof b->id, &root, "id");
    text_of(b->input, sizeof b->input, &root, "input_file_id");
    text_of(b->endpoint, sizeof b->endpoint, &root, "endpoint");
    text_of(b->window, sizeof b->window, &root, "completion_window");
    text_of(b->error, sizeof b->error, &root, "error");
    text_of(state, sizeof state, &root, "status");
    while (b->state < CANCELLED && strcmp(state, state_names[b->state]))
        b->state++;
    if (js_get(&root, "created_at", &v, &ignored) == 1)
        js_double(&v, &b->created);
    if (js_get(&root, "metadata", &v, &ignored) == 1 && js_kind(&v) == JS_OBJECT)
        b->metadata = v;
    return true;
}

static void put_facts(struct json_writer *w, const struct record *b, const char *state)
{
    jw_text(w, "id", b->id);
    jw_text(w, "input_file_id", b->input);
    jw_text(w, "endpoint", b->endpoint);
    jw_text(w, "completion_window", b->window);
    jw_int(w, "created_at", (int64_t)b->created);
    jw_text(w, "status", state);
    if (b->metadata.s)
        jw_value(w, "metadata", &b->metadata);
    else
        jw_null(w, "metadata");
}

static int write_record(const struct server *sv, const struct record *b, struct err *e)
{
    char path[PATH_BYTES], *json = NULL;
    size_t n;
    if (file_path(path, sv, b->id, ".json", e))
        return -1;
    FILE *f = memory_file(&json, &n);
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory");
    struct json_writer w = { .f = f, .digits = 15 };
    jw_open(&w, NULL, '{');
    put_facts(&w, b, state_names[b->state]);
    jw_text(&w, "error", *b->error ? b->error : NULL);
    jw_close(&w, '}');
    const int rc = stream_end(f) ? err_set(e, ERR_FAILED, "out of memory")
                                 : file_write(path, &(struct slice){ json, n }, 1, e);
    free(json);
    return rc;
}

/* ---- its jobs ---- */

/* The jobs that the batch has by now. */
static int cancel_jobs(struct server *sv, const char *id, struct err *e)
{
    struct job_list jobs;
    int64_t *ids;
    int rc = 0;
    pthread_mutex_lock(&sv->writing);
    if (server_book(sv->writer, id, SIZE_MAX, &jobs, &ids, e) == 0) {
        rc = store_cancel(sv->writer, ids, jobs.n, NULL, e);
        job_list_free(&jobs);
    }
    pthread_mutex_unlock(&sv->writing);
    free(ids);
    bell_ring(&sv->bell);
    return rc;
}

/* ---- the check ---- */

/* The jobs of the file. ERR_INPUT: the file is wrong. */
static int submit_file(struct server *sv, const struct record *b, struct err *e)
{
    struct options o = sv->request;
    struct batch batch = {0};
    struct store *s = NULL;
    char path[PATH_BYTES], *text = NULL;
    size_t n, lines = 1;
    if (file_path(path, sv, b->input, "", e) || file_read(&text, &n, path, o.max_upload, e))
        return -1;
    for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + n - p))); p++)
        lines += p + 1 < text + n;
    free(text);
    if (lines > BATCH_LINES_MAX)
        return err_set(e, ERR_INPUT, "%zu lines, at most %d are allowed", lines, BATCH_LINES_MAX);
    o.batch = path;
    o.name = b->id;
    o.keep = true;                       /* its jobs, if a server ended before it wrote the record */
    o.priority = 0;
    o.held = bell_held(&sv->bell);
    int rc = server_connect(sv, &s, e) || batch_open(&batch, &o, e) || batch_submit(&batch, s, e) ? -1 : 0;
    batch_close(&batch);
    store_close(s);
    return rc;
}

/* Checks the files of all batches that wait for it. first: the server has begun, and an earlier one may have
 * ended between a cancelled record and its jobs. Whether a batch still waits, for a busy store or a full
 * disk. */
static bool check_files(struct server *sv, bool first)
{
    bool waits = false;
    char (*ids)[FILE_ID_BYTES];
    struct err e = {0};
    struct record b;
    size_t n;
    if (list_ids(sv, BATCH_PREFIX, &ids, &n, &e))
        return true;
    while (n-- > 0 && !stop_signal) {
        if (!read_record(sv, &b, ids[n]))
            continue;
        bool cancelled = first && b.state == CANCELLED;
        if (b.state == VALIDATING) {
            e = (struct err){0};
            const int bad = submit_file(sv, &b, &e);
            pthread_mutex_lock(&sv->checking);
            struct record now;           /* it may have been cancelled meanwhile */
            cancelled = read_record(sv, &now, b.id) && now.state == CANCELLED;
            free(now.text);
            b.state = cancelled ? CANCELLED : bad ? FAILED : QUEUED;
            if (bad)
                err_words(&e, b.error, sizeof b.error);
            waits |= (bad && e.code != ERR_INPUT) || write_record(sv, &b, &e);
            pthread_mutex_unlock(&sv->checking);
            bell_ring(&sv->bell);
        }
        if (cancelled)
            cancel_jobs(sv, b.id, &e);
        free(b.text);
    }
    free(ids);
    return waits;
}

static void *check_thread(void *ctx)
{
    struct server *sv = ctx;
    const double turn = sv->o->forget ? FORGET_AGAIN_SECONDS : CHECK_AGAIN_SECONDS;
    bool first = true, waits = false;
    double again = 0;                    /* when batches that wait are checked again */
    pthread_mutex_lock(&sv->checking);
    while (!sv->check_stops) {
        const bool wanted = sv->check_wanted || (waits && clock_seconds() >= again);
        sv->check_wanted = false;
        pthread_mutex_unlock(&sv->checking);
        if (wanted) {
            waits = check_files(sv, first);
            again = clock_seconds() + CHECK_AGAIN_SECONDS;
            first = false;
        }
        if (sv->o->forget)
            server_forget(sv);
        pthread_mutex_lock(&sv->checking);
        if (sv->check_stops || sv->check_wanted)
            continue;
        if (waits || sv->o->forget)
            cond_wait_until(&sv->check, &sv->checking, clock_seconds() + turn);
        else
            pthread_cond_wait(&sv->check, &sv->checking);
    }
    pthread_mutex_unlock(&sv->checking);
    return NULL;
}

static void want_check(struct server *sv)
{
    pthread_mutex_lock(&sv->checking);
    sv->check_wanted = true;
    pthread_cond_signal(&sv->check);
    pthread_mutex_unlock(&sv->checking);
}

int batches_start(struct server *sv, struct err *e)
{
    sv->check_wanted = true;
    folder_clean(sv);
    sv->checks = thread_start(&sv->checker, check_thread, sv, "batches", e) == 0;
    return sv->checks ? 0 : -1;
}

void batches_stop(struct server *sv)
{
    if (sv->checks)
        thread_stop(sv->checker, &sv->checking, &sv->check, &sv->check_stops);
    sv->checks = false;
}

/* ---- routes ---- */

static void put_counts(struct json_writer *w, const struct store_counts *n)
{
    size_t all = 0;
    for (int i = 0; i < JOB_STATES; i++)
        all += n->jobs[i];
    jw_open(w, "request_counts", '{');
    jw_uint(w, "total", all);
    jw_uint(w, "completed", n->jobs[JOB_DONE]);
    jw_uint(w, "failed", n->jobs[JOB_FAILED] + n->jobs[JOB_CANCELLED]);
    jw_close(w, '}');
}

static void put_result(struct json_writer *w, const char *key, const struct record *b, const char *end,
                       bool has)
{
    char id[FILE_ID_BYTES];
    snprintf(id, sizeof id, FILE_PREFIX "%.16s%.8s", b->id + strlen(BATCH_PREFIX), end);
    jw_text(w, key, has ? id : NULL);
}

/* Whether a batch will have no other results; *n counts its jobs. */
static bool is_over(struct server *sv, const struct record *b, struct store_counts *n)
{
    struct err ignored;
    *n = (struct store_counts){0};
    pthread_mutex_lock(&sv->reading);
    const bool known = store_counts(sv->reader, b->id, n, &ignored) == 0;
    pthread_mutex_unlock(&sv->reading);
    return b->state == CANCELLED ||
           (known && b->state == QUEUED && !n->jobs[JOB_QUEUED] && !n->jobs[JOB_RUNNING] &&
            !n->jobs[JOB_PAUSED]);
}

static bool has(const struct store_counts *n, bool errors)
{
    return errors ? n->jobs[JOB_FAILED] || n->jobs[JOB_CANCELLED] : n->jobs[JOB_DONE];
}

static bool put_batch(struct call *c, const char *id)
{
    struct json_writer *w = &c->w;
    struct record b;
    struct store_counts n;
    if (!read_record(c->sv, &b, id))
        return false;
    const bool over = is_over(c->sv, &b, &n);
    jw_open(w, NULL, '{');
    put_facts(w, &b, over && b.state == QUEUED ? "completed" : state_names[b.state]);
    jw_text(w, "object", "batch");
    if (*b.error) {
        jw_open(w, "errors", '{');
        jw_text(w, "object", "list");
        jw_open(w, "data", '[');
        jw_open(w, NULL, '{');
        jw_text(w, "code", "invalid_request_error");
        jw_text(w, "message", b.error);
        jw_close(w, '}');
        jw_close(w, ']');
        jw_close(w, '}');
    } else {
        jw_null(w, "errors");
    }
    put_result(w, "output_file_id", &b, OUTPUT_END, over && has(&n, false));
    put_result(w, "error_file_id", &b, ERRORS_END, over && has(&n, true));
    put_counts(w, &n);
    jw_close(w, '}');
    free(b.text);
    return true;
}

int answer_batch(struct call *c, struct err *e) { return answer_one(c, "batch", put_batch, e); }

int answer_batches(struct call *c, struct err *e)
{
    char (*ids)[FILE_ID_BYTES];
    size_t n;
    if (list_ids(c->sv, BATCH_PREFIX, &ids, &n, e))
        return -1;
    const int rc = answer_ids(c, ids, n, put_batch, e);
    free(ids);
    return rc;
}

int answer_new_batch(struct call *c, struct err *e)
{
    struct record b = { .created = wall_seconds() };
    struct json root, v;
    struct err ignored;
    char path[PATH_BYTES];
    if (call_object(c, &root, e))
        return -1;
    text_of(b.input, sizeof b.input, &root, "input_file_id");
    text_of(b.endpoint, sizeof b.endpoint, &root, "endpoint");
    text_of(b.window, sizeof b.window, &root, "completion_window");
    if (js_get(&root, "metadata", &v, &ignored) == 1 && js_kind(&v) == JS_OBJECT)
        b.metadata = v;
    if (c->n_body > BATCH_BYTES_MAX)
        return err_set(e, ERR_INPUT, "body: %zu bytes, at most %d are allowed", c->n_body, BATCH_BYTES_MAX);
    if (strcmp(b.endpoint, "/v1/completions") && strcmp(b.endpoint, "/v1/chat/completions"))
        return err_set(e, ERR_INPUT, "body.endpoint: /v1/completions and /v1/chat/completions are allowed");
    if (!id_is(b.input, FILE_PREFIX, "") || file_path(path, c->sv, b.input, "", &ignored) ||
        access(path, R_OK))
        return call_fail(c, e, MHD_HTTP_NOT_FOUND, "body.input_file_id: there is no file %s", b.input);
    if (new_id(b.id, BATCH_PREFIX) || write_record(c->sv, &b, e))
        return -1;
    want_check(c->sv);
    snprintf(c->id, sizeof c->id, "%s", b.id);
    return answer_batch(c, e);
}

int answer_cancel_batch(struct call *c, struct err *e)
{
    struct server *sv = c->sv;
    struct record b;
    struct store_counts n;
    pthread_mutex_lock(&sv->checking);
    const bool found = read_record(sv, &b, c->id),
               open = found && b.state != FAILED && !is_over(sv, &b, &n);
    b.state = CANCELLED;
    int rc = open ? write_record(sv, &b, e) : 0;
    pthread_mutex_unlock(&sv->checking);
    free(b.text);
    if (found && !open)
        return call_fail(c, e, MHD_HTTP_CONFLICT, "%s is over", c->id);
    if (open && rc == 0)
        rc = cancel_jobs(sv, c->id, e);
    return rc ? -1 : answer_batch(c, e);
}

/* ---- results ---- */

/* The batch of a file of results. */
static void batch_of(char id[FILE_ID_BYTES], const char *file)
{
    snprintf(id, FILE_ID_BYTES, BATCH_PREFIX "%.16s", file + strlen(FILE_PREFIX));
}

double batch_created(struct call *c, const char *file)
{
    char id[FILE_ID_BYTES];
    struct record b;
    batch_of(id, file);
    if (!read_record(c->sv, &b, id))
        return 0;
    free(b.text);
    return b.created;
}

bool batch_has(struct call *c, const char *file)
{
    char id[FILE_ID_BYTES];
    struct record b;
    struct store_counts n;
    batch_of(id, file);
    if (!read_record(c->sv, &b, id))
        return false;
    free(b.text);
    return is_over(c->sv, &b, &n) && has(&n, id_is(file, FILE_PREFIX, ERRORS_END));
}

/* Keeps the jobs of requests with, or without, a sample that failed or was cancelled. */
static void keep_results(struct job_list *jobs, bool errors)
{
    size_t kept = 0;
    for (size_t i = 0, k; i < jobs->n; i = k) {
        bool bad = false;
        for (k = i; k < jobs->n && strcmp(jobs->v[k].custom_id, jobs->v[i].custom_id) == 0; k++)
            bad |= jobs->v[k].state == JOB_FAILED || jobs->v[k].state == JOB_CANCELLED;
        for (size_t at = i; at < k && bad == errors; at++)
            jobs->v[kept++] = jobs->v[at];
    }
    jobs->n = kept;
}

int batch_write_results(struct call *c, const char *file, struct err *e)
{
    struct server *sv = c->sv;
    char id[FILE_ID_BYTES], own[FILE_ID_BYTES], path[PATH_BYTES];
    struct job_list jobs = {0};
    struct export_counts counts;
    struct store *s = NULL;
    int fd = -1;
    batch_of(id, file);
    if (batch_created(c, file) == 0)
        return -1;
    if (new_id(own, RESULTS_PREFIX) || file_path(path, sv, own, "", e))
        return -1;
    int rc = server_connect(sv, &s, e) || server_book(s, id, SIZE_MAX, &jobs, NULL, e) ? -1 : 0;
    if (rc == 0) {
        keep_results(&jobs, id_is(file, FILE_PREFIX, ERRORS_END));
        const struct export_options o = { .format = FORMAT_OPENAI, .output = path, .force = true,
                                          .model = sv->model };
        rc = export_jobs(&o, &(struct export_source){ s, &jobs }, 1, &counts, e);
    }
    if (rc == 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    job_list_free(&jobs);
    store_close(s);
    return fd;
}
