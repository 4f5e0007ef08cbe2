/* /v1/batches, and the folder that they and uploads lie in. Start at answer_new_batch, check_files and
 * file_path. */
#include "runs/serve/http.h"
#include "runs/report/export.h"
#include "src/base/memory_file.h"
#include "src/base/stopping.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the folder ---- */

int new_id(char id[FILE_ID_BYTES], const char *prefix)
{
    struct timespec now;
    uint32_t random;
    if (clock_gettime(CLOCK_REALTIME, &now) || getrandom(&random, sizeof random, 0) != sizeof random)
        return -1;
    /* the order of ids is that of time */
    snprintf(id, FILE_ID_BYTES, "%s%08" PRIx32 "%08" PRIx32, prefix, (uint32_t)now.tv_sec,
             (uint32_t)(now.tv_nsec / 1000) << 12 | (random & 0xfff));
    return 0;
}

bool id_is(const char *id, const char *prefix, const char *end)
{
    const size_t n = strlen(prefix);
    return strncmp(id, prefix, n) == 0 && strspn(id + n, "0123456789abcdef") == 16 &&
           strcmp(id + n + 16, end) == 0;
}

int file_path(char path[PATH_BYTES], const struct server *sv, const char *id, const char *end, struct err *e)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s.files", store_path(sv->reader));
    if (mkdir(folder, 0700) ? errno != EEXIST : name_sync(folder) != 0)
        return err_set(e, ERR_FAILED, ERR_PATH "cannot be made: %s", folder, strerror(errno));
    snprintf(path, PATH_BYTES, "%.4006s/%.31s%.16s", folder, id, end);
    return 0;
}

bool facts_read(const struct server *sv, const char *id, char **text, struct json *facts)
{
    char path[PATH_BYTES];
    struct err ignored;
    size_t n;
    *text = NULL;
    if (file_path(path, sv, id, ".json", &ignored) == 0 &&
        file_read(text, &n, path, 1 << 20, &ignored) == 0 &&
        js_check(facts, "facts", *text, n, &ignored) == 0)
        return true;
    free(*text);
    return false;
}

int facts_write(const struct server *sv, const char *id, const struct row *rows, struct err *e)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n;
    FILE *f = memory_file(&text, &n);
    if (f)
        sheet_object(&(struct json_writer){ .f = f, .digits = 15 }, NULL, rows);
    int rc = !f || stream_end(f) ? err_set(e, ERR_FAILED, "out of memory") : 0;
    rc = rc || file_path(path, sv, id, ".json", e) || file_write(path, &(struct slice){ text, n }, 1, e) ? -1
                                                                                                         : 0;
    free(text);
    return rc;
}

static int newest_first(const void *a, const void *b) { return -strcmp(a, b); }

/* Adds the ids of the files PREFIX*.json or, of batches, those of their results; free(l->v). The newest one
 * is the first. */
struct file_ids { char (*v)[FILE_ID_BYTES]; size_t n; };
static int list_ids(struct file_ids *l, const struct server *sv, const char *prefix, bool results,
                    struct err *e)
{
    char folder[PATH_BYTES];
    struct dirent *x;
    DIR *d = NULL;
    int rc = file_path(folder, sv, "", "", e);
    if (rc == 0 && !(d = opendir(folder)))
        rc = err_set(e, ERR_FAILED, ERR_PATH "%s", folder, strerror(errno));
    while (rc == 0 && (x = readdir(d))) {
        const char *digits = x->d_name + strlen(prefix);
        if (!id_is(x->d_name, prefix, ".json"))
            continue;
        for (int k = 0; k < 1 + results && rc == 0; k++)
            if (!array_grow(&l->v, l->n, sizeof *l->v))
                rc = err_set(e, ERR_FAILED, "out of memory for a list of files");
            else
                snprintf(l->v[l->n++], FILE_ID_BYTES, "%s%.16s%s", results ? FILE_PREFIX : prefix, digits,
                         !results ? "" : k ? ERRORS_END : OUTPUT_END);
    }
    if (d)
        closedir(d);
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, newest_first);
    return rc;
}

/* Deletes the pieces of files that a killed server left: those that nobody has written to for a while. */
static void folder_clean(const struct server *sv)
{
    enum { DEAD_SECONDS = 600 };         /* another server of this store may live */
    char path[PATH_BYTES];
    struct err ignored;
    struct dirent *x;
    struct stat st;
    DIR *d = file_path(path, sv, "", "", &ignored) ? NULL : opendir(path);
    while (d && (x = readdir(d)))
        if ((id_is(x->d_name, FILE_PREFIX, PIECE_END) || id_is(x->d_name, RESULTS_PREFIX, "")) &&
            fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            wall_seconds() - (double)st.st_mtime > DEAD_SECONDS)
            unlinkat(dirfd(d), x->d_name, 0);
    if (d)
        closedir(d);
}

int answer_one(struct call *c, struct err *e)
{
    return c->route->one(c, c->id) ? 0 : call_fail(c, e, MHD_HTTP_NOT_FOUND, "there is no %s %s",
                                                   c->route->what, c->id);
}

int answer_ids(struct call *c, struct err *e)
{
    const bool files = strcmp(c->route->what, "file") == 0;
    const char *limit = call_argument(c, "limit"), *after = call_argument(c, "after"), *last = NULL;
    struct file_ids l = {0};
    size_t most = 10000, i = 0;
    const int rc = (files && list_ids(&l, c->sv, FILE_PREFIX, false, e)) ||
                   list_ids(&l, c->sv, BATCH_PREFIX, files, e) ||
                   (limit && parse_size(&most, "limit", limit, 1, 10000, e)) ? -1 : 0;
    jw_open(&c->w, NULL, '{');
    jw_text(&c->w, "object", "list");
    jw_open(&c->w, "data", '[');
    while (after && i < l.n && strcmp(l.v[i], after) >= 0)
        i++;
    for (; rc == 0 && i < l.n && most; i++)
        if (c->route->one(c, l.v[i])) {
            most--;
            last = l.v[i];
        }
    jw_close(&c->w, ']');
    jw_text(&c->w, "last_id", last);
    jw_bool(&c->w, "has_more", i < l.n);
    jw_close(&c->w, '}');
    free(l.v);
    return rc;
}

/* ---- records ---- */

static const char *const state_names[] = { "validating", "in_progress", "failed", "cancelled" };
enum batch_state { VALIDATING, QUEUED, FAILED, CANCELLED };
static const double CHECK_AGAIN_SECONDS = 30;    /* after a busy store or a full disk */
static const double FORGET_AGAIN_SECONDS = 2;    /* between looks for requests to remove */

/* What ID.json has. */
struct record {
    char id[FILE_ID_BYTES], input[FILE_ID_BYTES], endpoint[40], window[16], error[600];
    double created;
    enum batch_state state;
    char *metadata;                      /* JSON; NULL: none; free */
};

static void text_of(char *out, size_t size, const struct json *root, const char *key)
{
    struct json v;
    struct err ignored;
    char *s = js_get(root, key, &v, &ignored) == 1 && js_kind(&v) == JS_STRING ? js_strdup(&v) : NULL;
    snprintf(out, size, "%s", s ? s : "");
    free(s);
}

/* What the body of a request for a batch has, too. */
static void read_facts(struct record *b, const struct json *root)
{
    struct json v;
    struct err ignored;
    text_of(b->input, sizeof b->input, root, "input_file_id");
    text_of(b->endpoint, sizeof b->endpoint, root, "endpoint");
    text_of(b->window, sizeof b->window, root, "completion_window");
    if (js_get(root, "metadata", &v, &ignored) == 1 && js_kind(&v) == JS_OBJECT)
        b->metadata = strndup(v.s, (size_t)(v.end - v.s));
}

static bool read_record(const struct server *sv, struct record *b, const char *id)
{
    char *text, state[20];
    struct err ignored;
    struct json root, v;
    *b = (struct record){0};
    if (!id_is(id, BATCH_PREFIX, "") || !facts_read(sv, id, &text, &root))
        return false;
    read_facts(b, &root);
    text_of(b->id, sizeof b->id, &root, "id");
    text_of(b->error, sizeof b->error, &root, "error");
    text_of(state, sizeof state, &root, "status");
    while (b->state < CANCELLED && strcmp(state, state_names[b->state]))
        b->state++;
    if (js_get(&root, "created_at", &v, &ignored) == 1)
        js_double(&v, &b->created);
    free(text);
    return true;
}

/* What a record and a batch have in common. */
struct facts { struct row rows[8]; };
static struct facts facts_of(const struct record *b, const char *state)
{
    return (struct facts){ {
        { "id", NULL, V_TEXT(b->id) },
        { "input_file_id", NULL, V_TEXT(b->input) },
        { "endpoint", NULL, V_TEXT(b->endpoint) },
        { "completion_window", NULL, V_TEXT(b->window) },
        { "created_at", NULL, V_INT((int64_t)b->created) },
        { "status", NULL, V_TEXT(state) },
        { "metadata", NULL, V_JSON(b->metadata) } } };
}

static int write_record(const struct server *sv, const struct record *b, struct err *e)
{
    const struct facts f = facts_of(b, state_names[b->state]);
    return facts_write(sv, b->id, (struct row[]){
        { "", NULL, V_ROWS(f.rows) }, { "error", NULL, V_TEXT(*b->error ? b->error : NULL) }, { 0 } }, e);
}

/* ---- its jobs ---- */

/* The jobs that the batch has by now. */
static int cancel_jobs(struct server *sv, const char *id, struct err *e)
{
    struct selection_term term;
    const struct selection sel = server_book(&term, id);
    int64_t *ids = NULL;
    size_t n;
    pthread_mutex_lock(&sv->writing);
    const bool any = store_select(sv->writer, &sel, &ids, &n, e) == 0;
    const int rc = any ? store_change(sv->writer, CHANGE_CANCEL, 0, ids, n, NULL, e) : 0;
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
    o.held = sv->bell.held;
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
    struct file_ids l = {0};
    struct err e = {0};
    struct record b;
    bool waits = list_ids(&l, sv, BATCH_PREFIX, false, &e) != 0;
    while (l.n-- > 0 && !stop_signal) {
        if (!read_record(sv, &b, l.v[l.n]))
            continue;
        bool cancelled = first && b.state == CANCELLED;
        if (b.state == VALIDATING) {
            e = (struct err){0};
            const int bad = submit_file(sv, &b, &e);
            pthread_mutex_lock(&sv->checker.lock);
            struct record now;           /* it may have been cancelled meanwhile */
            cancelled = read_record(sv, &now, b.id) && now.state == CANCELLED;
            free(now.metadata);
            b.state = cancelled ? CANCELLED : bad ? FAILED : QUEUED;
            if (bad)
                err_words(&e, b.error, sizeof b.error);
            waits |= (bad && e.code != ERR_INPUT) || write_record(sv, &b, &e);
            pthread_mutex_unlock(&sv->checker.lock);
            bell_ring(&sv->bell);
        }
        if (cancelled)
            cancel_jobs(sv, b.id, &e);
        free(b.metadata);
    }
    free(l.v);
    return waits;
}

static void *check_thread(void *ctx)
{
    struct server *sv = ctx;
    bool first = true, waits = false;
    double again = 0;                    /* when batches that wait are checked again */
    pthread_mutex_lock(&sv->checker.lock);
    while (!sv->checker.stop) {
        const bool wanted = sv->check_wanted || (waits && clock_seconds() >= again);
        sv->check_wanted = false;
        pthread_mutex_unlock(&sv->checker.lock);
        if (wanted) {
            waits = check_files(sv, first);
            again = clock_seconds() + CHECK_AGAIN_SECONDS;
            first = false;
        }
        if (sv->o->forget)
            server_forget(sv);
        pthread_mutex_lock(&sv->checker.lock);
        if (!sv->checker.stop && !sv->check_wanted)
            cond_wait_until(&sv->checker.wake, &sv->checker.lock, clock_seconds() +
                            (sv->o->forget ? FORGET_AGAIN_SECONDS : CHECK_AGAIN_SECONDS));
    }
    pthread_mutex_unlock(&sv->checker.lock);
    return NULL;
}

int batches_start(struct server *sv, struct err *e)
{
    sv->check_wanted = true;
    folder_clean(sv);
    return thread_start(&sv->checker, check_thread, sv, "batches", e);
}

/* ---- routes ---- */

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

/* The id of results; NULL: there are none. */
static const char *result_id(char id[FILE_ID_BYTES], const struct record *b, const char *end, bool there)
{
    snprintf(id, FILE_ID_BYTES, FILE_PREFIX "%.16s%.8s", b->id + strlen(BATCH_PREFIX), end);
    return there ? id : NULL;
}

static void error_row(const void *of, size_t i, struct row *cell)
{
    (void)i;
    cell[0] = (struct row){ "code", NULL, V_TEXT("invalid_request_error") };
    cell[1] = (struct row){ "message", NULL, V_TEXT(of) };
}

bool put_batch(struct call *c, const char *id)
{
    struct record b;
    struct store_counts n;
    char output[FILE_ID_BYTES], errors[FILE_ID_BYTES];
    size_t all = 0;
    if (!read_record(c->sv, &b, id))
        return false;
    const bool over = is_over(c->sv, &b, &n);
    for (int i = 0; i < JOB_STATES; i++)
        all += n.jobs[i];
    const struct table wrong = { 1, error_row, b.error };
    const struct row list[] = { { "object", NULL, V_TEXT("list") }, { "data", NULL, V_TABLE(&wrong) },
                                { 0 } };
    const struct row counts[] = { { "total", NULL, V_UINT(all) },
                                  { "completed", NULL, V_UINT(n.jobs[JOB_DONE]) },
                                  { "failed", NULL, V_UINT(n.jobs[JOB_FAILED] + n.jobs[JOB_CANCELLED]) },
                                  { 0 } };
    const struct facts f = facts_of(&b, over && b.state == QUEUED ? "completed" : state_names[b.state]);
    sheet_object(&c->w, NULL, (struct row[]){
        { "", NULL, V_ROWS(f.rows) },
        { "object", NULL, V_TEXT("batch") },
        { "errors", NULL, .value = *b.error ? (struct value)V_ROWS(list) : (struct value)V_TEXT(NULL) },
        { "output_file_id", NULL, V_TEXT(result_id(output, &b, OUTPUT_END, over && has(&n, false))) },
        { "error_file_id", NULL, V_TEXT(result_id(errors, &b, ERRORS_END, over && has(&n, true))) },
        { "request_counts", NULL, V_ROWS(counts) },
        { 0 } });
    free(b.metadata);
    return true;
}

/* Checks what the body says, and writes the record. */
static int make_batch(struct call *c, struct record *b, struct err *e)
{
    struct json root;
    struct err ignored;
    char path[PATH_BYTES];
    if (call_object(c, &root, e))
        return -1;
    read_facts(b, &root);
    if (c->n_body > BATCH_BYTES_MAX)
        return err_set(e, ERR_INPUT, "body: %zu bytes, at most %d are allowed", c->n_body, BATCH_BYTES_MAX);
    if (strcmp(b->endpoint, "/v1/completions") && strcmp(b->endpoint, "/v1/chat/completions"))
        return err_set(e, ERR_INPUT, "body.endpoint: /v1/completions and /v1/chat/completions are allowed");
    if (!id_is(b->input, FILE_PREFIX, "") || file_path(path, c->sv, b->input, "", &ignored) ||
        access(path, R_OK))
        return call_fail(c, e, MHD_HTTP_NOT_FOUND, "body.input_file_id: there is no file %s", b->input);
    return new_id(b->id, BATCH_PREFIX) || write_record(c->sv, b, e) ? -1 : 0;
}

int answer_new_batch(struct call *c, struct err *e)
{
    struct record b = { .created = wall_seconds() };
    const int rc = make_batch(c, &b, e);
    free(b.metadata);
    if (rc)
        return -1;
    pthread_mutex_lock(&c->sv->checker.lock);
    c->sv->check_wanted = true;
    pthread_cond_signal(&c->sv->checker.wake);
    pthread_mutex_unlock(&c->sv->checker.lock);
    snprintf(c->id, sizeof c->id, "%s", b.id);
    return answer_one(c, e);
}

int answer_cancel_batch(struct call *c, struct err *e)
{
    struct server *sv = c->sv;
    struct record b;
    struct store_counts n;
    pthread_mutex_lock(&sv->checker.lock);
    const bool found = read_record(sv, &b, c->id),
               open = found && b.state != FAILED && !is_over(sv, &b, &n);
    b.state = CANCELLED;
    int rc = open ? write_record(sv, &b, e) : 0;
    pthread_mutex_unlock(&sv->checker.lock);
    free(b.metadata);
    if (found && !open)
        return call_fail(c, e, MHD_HTTP_CONFLICT, "%s is over", c->id);
    if (open && rc == 0)
        rc = cancel_jobs(sv, c->id, e);
    return rc ? -1 : answer_one(c, e);
}

/* ---- results ---- */

/* The batch of a file of results. */
static void batch_of(char id[FILE_ID_BYTES], const char *file)
{
    snprintf(id, FILE_ID_BYTES, BATCH_PREFIX "%.16s", file + strlen(FILE_PREFIX));
}

double batch_created(struct call *c, const char *file, bool ended)
{
    char id[FILE_ID_BYTES];
    struct record b;
    struct store_counts n;
    batch_of(id, file);
    if (!read_record(c->sv, &b, id))
        return 0;
    free(b.metadata);
    const bool there = !ended || (is_over(c->sv, &b, &n) && has(&n, id_is(file, FILE_PREFIX, ERRORS_END)));
    return there ? b.created : 0;
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
    struct selection_term term;
    struct export_counts counts;
    struct store *s = NULL;
    int fd = -1;
    batch_of(id, file);
    if (batch_created(c, file, false) == 0 || new_id(own, RESULTS_PREFIX) || file_path(path, sv, own, "", e))
        return -1;
    const struct selection sel = server_book(&term, id);
    int rc = server_connect(sv, &s, e) || server_select(s, &sel, SIZE_MAX, &jobs, e) ? -1 : 0;
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
