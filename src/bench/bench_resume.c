/* Owns the resume point: a store in a temporary folder (struct resume), worker processes that it starts and
 * kills, and the comparison of both texts. Start at bench_resume. */
#include "src/base/json_write.h"
#include "src/bench/bench_resume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runs/work/snapshot_files.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/bench/bench.h"
#include "src/request/model_options.h"

enum { WITH, WITHOUT, REPEAT_MAX = 32 };
static const char *const mode_names[2] = { "auto", "off" };
static const char PROMPT[] =
    "Chapter I\n\nIt was late in the evening when the two travellers came to the inn.";

struct resume {
    const struct options *o;
    size_t tokens, at, repeat;
    char dir[PATH_BYTES], model[PATH_BYTES], db[2][PATH_BYTES + 16];
    pid_t child;
    double written;                      /* seconds up to the kill */
    double seconds[2][REPEAT_MAX]; size_t n[2];
    double made, bytes, share, restored, restore_seconds;
    size_t killed_at;
    bool same;
};

bool bench_resume_wanted(const char *points)
{
    return points && strncmp(points, "resume", 6) == 0 && (!points[6] || points[6] == ',');
}

/* ---- the worker process ---- */

static int start(struct resume *r, char *const argv[], struct err *e)
{
    r->child = fork();
    if (r->child < 0)
        return err_set(e, ERR_FAILED, "bench: cannot start a process: %s", strerror(errno));
    if (r->child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    return 0;
}

static void kill_child(struct resume *r)
{
    if (r->child <= 0)
        return;
    kill(r->child, SIGKILL);
    waitpid(r->child, NULL, 0);
    r->child = 0;
}

/* Waits for the child to exit with status 0. */
static int wait_child(struct resume *r, const char *verb, struct err *e)
{
    int status = 0;
    while (waitpid(r->child, &status, 0) < 0)
        if (errno != EINTR || stop_signal) {
            kill_child(r);
            return err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
        }
    r->child = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : err_set(e, ERR_FAILED, "bench: `longhand %s` ended with status 0x%x", verb,
                         (unsigned)status);
}

static int work(struct resume *r, int mode, struct err *e)
{
    char threads[24];
    char *argv[] = { "longhand", "work", "--db", r->db[mode], "--kv-snapshot", (char *)mode_names[mode],
                     "--quiet", r->o->threads ? "--threads" : NULL, threads, NULL };
    snprintf(threads, sizeof threads, "%zu", r->o->threads);
    return start(r, argv, e);
}

/* ---- reading the store ---- */

static int tokens_of(struct store *s, size_t *n, struct err *e)
{
    const int64_t id = 1;
    struct job_list jobs;
    if (store_jobs(s, &id, 1, &jobs, e))
        return -1;
    *n = jobs.n ? jobs.v[0].tokens : 0;
    job_list_free(&jobs);
    return 0;
}

/* Waits until the job has `least` tokens. The child must not end before. */
static int wait_tokens(struct resume *r, int mode, size_t least, double pace, size_t *n, struct err *e)
{
    struct store *s;
    if (store_open(&s, r->db[mode], &(struct store_options){ .mode = STORE_READ }, e))
        return -1;
    int rc = tokens_of(s, n, e);
    while (rc == 0 && *n < least) {
        if (stop_signal)
            rc = err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
        else if (waitpid(r->child, NULL, WNOHANG) == r->child) {
            r->child = 0;
            rc = err_set(e, ERR_FAILED, "bench: the worker ended at token %zu", *n);
        } else {
            nanosleep(&(struct timespec){ .tv_nsec = (long)(pace * 1e9) }, NULL);
            rc = tokens_of(s, n, e);
        }
    }
    store_close(s);
    return rc;
}

static int read_figures(struct resume *r, struct err *e)
{
    struct store *s;
    struct metric_list m;
    double seconds = 0, cost = 0;
    if (store_open(&s, r->db[WITH], &(struct store_options){ .mode = STORE_READ }, e))
        return -1;
    int rc = store_metrics(s, 1, &m, e);
    for (size_t i = 0; rc == 0 && i < m.n; i++) {
        const char *name = m.v[i].name;
        double v = m.v[i].value;
        if (strcmp(name, "seconds") == 0 || strcmp(name, "prefill_seconds") == 0)
            seconds += v;
        else if (strcmp(name, "snapshot_cpu_seconds") == 0 || strcmp(name, "snapshot_put_seconds") == 0)
            cost += v;
        else if (strcmp(name, "snapshots") == 0)
            r->made += v;
        else if (strcmp(name, "snapshot_bytes") == 0)
            r->bytes += v;
        else if (strcmp(name, "restored_tokens") == 0)
            r->restored += v;
        else if (strcmp(name, "restore_seconds") == 0)
            r->restore_seconds += v;
    }
    if (rc == 0)
        metric_list_free(&m);
    store_close(s);
    r->share = seconds > 0 ? cost / seconds : 0;
    return rc;
}

/* ---- the measurement ---- */

/* No process has the store open, and opening it has completed its recovery, so copying the file is enough. */
static int copy_store(struct resume *r, struct err *e)
{
    struct store *s;
    char *data;
    size_t n;
    if (store_open(&s, r->db[WITH], &(struct store_options){ .mode = STORE_WRITE }, e))
        return -1;
    store_close(s);
    if (file_read(&data, &n, r->db[WITH], (size_t)1 << 30, e))
        return -1;
    int rc = file_write(r->db[WITHOUT], &(struct slice){ data, n }, 1, e);
    free(data);
    return rc;
}

static int write_and_kill(struct resume *r, struct err *e)
{
    char tokens[24], seed[24];
    char *argv[] = { "longhand", "submit", "--db", r->db[WITH], "--model", r->model, "--prompt",
                     (char *)PROMPT, "--ignore-eos", "--tokens", tokens, "--seed", seed, NULL };
    snprintf(tokens, sizeof tokens, "%zu", r->tokens);
    snprintf(seed, sizeof seed, "%" PRIu64, options_given(r->o, "seed") ? r->o->seed : 1);
    if (start(r, argv, e) || wait_child(r, "submit", e))
        return -1;
    double begin = clock_seconds();
    if (work(r, WITH, e) || wait_tokens(r, WITH, r->at, 0.05, &r->killed_at, e))
        return -1;
    kill_child(r);
    r->written = clock_seconds() - begin;
    return read_figures(r, e) || copy_store(r, e) ? -1 : 0;
}

static int measure(struct resume *r, int mode, struct err *e)
{
    struct store *s;
    size_t before = 0, now;
    if (store_open(&s, r->db[mode], &(struct store_options){ .mode = STORE_READ }, e))
        return -1;
    int rc = tokens_of(s, &before, e);
    store_close(s);
    double begin = clock_seconds();
    if (rc || work(r, mode, e) || wait_tokens(r, mode, before + 1, 0.002, &now, e))
        return -1;
    r->seconds[mode][r->n[mode]++] = clock_seconds() - begin;
    kill_child(r);
    if (!r->o->quiet && !r->o->json)
        fprintf(stderr, "bench: --kv-snapshot %s: %.2f s to the next token\n", mode_names[mode],
                r->seconds[mode][r->n[mode] - 1]);
    return 0;
}

static int compare(struct resume *r, struct err *e)
{
    int32_t *ids[2] = { NULL, NULL };
    size_t n[2] = { 0, 0 };
    int rc = 0;
    for (int mode = 0; mode < 2 && rc == 0; mode++) {
        struct store *s;
        if (store_open(&s, r->db[mode], &(struct store_options){ .mode = STORE_READ }, e))
            rc = -1;
        else {
            rc = store_tokens(s, 1, 0, SIZE_MAX, &ids[mode], &n[mode], e);
            store_close(s);
        }
    }
    r->same =
        rc == 0 && n[0] == r->tokens && n[1] == n[0] && memcmp(ids[0], ids[1], n[0] * sizeof *ids[0]) == 0;
    free(ids[0]);
    free(ids[1]);
    return rc;
}

static int run_all(struct resume *r, struct err *e)
{
    if (!r->o->quiet)
        fprintf(stderr, "bench: writing a job of %zu tokens, which is killed at %zu\n", r->tokens, r->at);
    if (write_and_kill(r, e))
        return -1;
    for (size_t i = 0; i < r->repeat; i++)
        for (int k = 0; k < 2; k++)
            if (measure(r, (int)(i + (size_t)k) % 2, e))
                return -1;
    if (!r->o->quiet)
        fprintf(stderr, "bench: writing both to their end\n");
    for (int mode = 0; mode < 2; mode++)
        if (work(r, mode, e) || wait_child(r, "work", e))
            return -1;
    return compare(r, e);
}

/* ---- output ---- */

static void json_times(struct json_writer *w, const char *key, const double *seconds, size_t n, double middle)
{
    jw_open(w, key, '{');
    jw_real(w, "seconds", middle);
    jw_open(w, "range", '[');
    jw_real(w, NULL, seconds[0]);
    jw_real(w, NULL, seconds[n - 1]);
    jw_close(w, ']');
    jw_close(w, '}');
}

static void print_json(const struct resume *r, double with, double without)
{
    struct json_writer w = { .f = stdout, .digits = 6, .style = JW_INDENTED };
    jw_open(&w, NULL, '{');
    jw_uint(&w, "tokens", r->tokens);
    jw_uint(&w, "killed_at", r->killed_at);
    jw_real(&w, "written_seconds", r->written);
    jw_uint(&w, "repeat", r->repeat);
    jw_uint(&w, "snapshots", (uint64_t)r->made);
    jw_uint(&w, "snapshot_bytes", (uint64_t)r->bytes);
    jw_real(&w, "snapshot_share", r->share);
    json_times(&w, "with", r->seconds[WITH], r->n[WITH], with);
    json_times(&w, "without", r->seconds[WITHOUT], r->n[WITHOUT], without);
    jw_bool(&w, "identical", r->same);
    jw_close(&w, '}');
    putchar('\n');
}

static int print_result(struct resume *r, struct err *e)
{
    const double with = bench_median(r->seconds[WITH], r->n[WITH]),
                 without = bench_median(r->seconds[WITHOUT], r->n[WITHOUT]);
    if (r->o->json)
        print_json(r, with, without);
    else
        printf("job of %zu tokens, killed at %zu after %.0f s\n"
               "  snapshots on the way       %.0f, %.0f MB together, %.2f %% of the time\n"
               "  next token with snapshot   %.2f s (%.2f to %.2f)\n"
               "  next token without         %.2f s (%.2f to %.2f)\n"
               "  both texts to the end      %s\n",
               r->tokens, r->killed_at, r->written, r->made, r->bytes / 1e6, 100 * r->share, with,
               r->seconds[WITH][0], r->seconds[WITH][r->n[WITH] - 1], without, r->seconds[WITHOUT][0],
               r->seconds[WITHOUT][r->n[WITHOUT] - 1], r->same ? "identical" : "DIFFERENT");
    if (stdout_finish(e))
        return -1;
    return r->same ? 0 : err_set(e, ERR_FAILED, "bench: the texts with and without snapshots differ");
}

static int parse_points(struct resume *r, struct err *e)
{
    const struct options *o = r->o;
    const char *at = strchr(o->bench_points, ',');
    r->tokens = o->tokens ? o->tokens : 100000;
    r->at = r->tokens / 10 * 9;
    r->repeat = o->repeat ? MIN(o->repeat, (size_t)REPEAT_MAX) : 3;
    if (at && strncmp(at, ",at=", 4))
        return err_set(e, ERR_INPUT, "--points: \"%s\"; allowed: resume[,at=N]", o->bench_points);
    if (at && parse_size(&r->at, "--points resume,at", at + 4, 1, r->tokens, e))
        return -1;
    if (r->at < 1 || r->at + 2 * r->repeat + 2 > r->tokens)
        return err_set(e, ERR_INPUT,
                       "--points resume: killed at token %zu of %zu, the job has no tokens left", r->at,
                       r->tokens);
    if (o->model)
        return model_dir(r->model, o, e);
    if (bench_find_demo(r->model))
        return 0;
    return err_set(e, ERR_INPUT, "bench: models/demo was not found; --model DIR names another model");
}

static void clean_up(struct resume *r)
{
    kill_child(r);
    for (int mode = 0; mode < 2; mode++) {
        struct store *s;
        struct err ignored;
        const int64_t id = 1;
        char journal[PATH_BYTES + 32];
        if (access(r->db[mode], F_OK) == 0 && store_open(&s, r->db[mode],
            &(struct store_options){ .mode = STORE_WRITE }, &ignored) == 0) {
            store_remove(s, &id, 1, NULL, &ignored);
            snapshot_files_collect(s);
            store_close(s);
        }
        snprintf(journal, sizeof journal, "%s-journal", r->db[mode]);
        unlink(r->db[mode]);
        unlink(journal);
    }
    rmdir(r->dir);
}

int bench_resume(const struct options *o, struct err *e)
{
    static struct resume r;
    const char *tmp = getenv("TMPDIR");
    r = (struct resume){ .o = o };
    if (parse_points(&r, e))
        return -1;
    snprintf(r.dir, sizeof r.dir, "%s/longhand-resume-XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(r.dir))
        return err_set(e, ERR_FAILED, "%s: cannot make a directory: %s (TMPDIR chooses another place)", r.dir,
                       strerror(errno));
    for (int mode = 0; mode < 2; mode++)
        snprintf(r.db[mode], sizeof r.db[mode], "%s/%s.db", r.dir, mode_names[mode]);
    stop_signals_catch();
    int rc = run_all(&r, e);
    clean_up(&r);
    return rc ? rc : print_result(&r, e);
}
