/* Owns the resume point, `longhand bench --points resume[,at=N]`: how long a killed job takes to its next
 * token, with and without a snapshot of its cache.
 *
 * `longhand work` writes a job of --tokens (100,000) in a process of its own, and SIGKILL ends it at token
 * N (90,000). The store is copied. Then, --repeat times in turn, a worker continues the job under
 * --kv-snapshot auto, and with the copy under off. The measured time begins with the process and ends when
 * another process can read its first new token; then that worker is killed too. At the end both jobs are
 * written to their end, and their texts are compared. Start at bench_resume. */
#include "src/base/json_write.h"
#include "src/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runs/work/snapshot_files.h"
#include "src/base/output.h"
#include "src/base/stopping.h"

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
    double seconds[2][REPEAT_MAX]; size_t n[2];      /* to the next token */
    double made, bytes, share;           /* snapshots: number, bytes, share of the time */
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

/* ---- the stores ---- */

static int open_store(struct store **s, const struct resume *r, int mode, enum store_mode how, struct err *e)
{
    return store_open(s, r->db[mode], &(struct store_options){ .mode = how }, e);
}

/* Waits until the job has `least` tokens; *n is their number. The child must not end before. */
static int wait_tokens(struct resume *r, int mode, size_t least, double pace, size_t *n, struct err *e)
{
    const int64_t id = 1;
    struct store *s;
    int rc = 0;
    if (open_store(&s, r, mode, STORE_READ, e))
        return -1;
    for (bool done = false; rc == 0 && !done; ) {
        struct job_list jobs;
        if ((rc = store_jobs(s, &id, 1, &jobs, e)))
            break;
        *n = jobs.n ? jobs.v[0].tokens : 0;
        job_list_free(&jobs);
        if (*n >= least)
            done = true;
        else if (stop_signal)
            rc = err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
        else if (waitpid(r->child, NULL, WNOHANG) == r->child) {
            r->child = 0;
            rc = err_set(e, ERR_FAILED, "bench: the worker ended at token %zu", *n);
        } else
            nanosleep(&(struct timespec){ .tv_nsec = (long)(pace * 1e9) }, NULL);
    }
    store_close(s);
    return rc;
}

static int read_figures(struct resume *r, struct err *e)
{
    double seconds = 0, cost = 0;
    const struct { const char *name; double *sum; } figures[] = {
        { "seconds", &seconds }, { "prefill_seconds", &seconds },
        { "snapshot_cpu_seconds", &cost }, { "snapshot_put_seconds", &cost },
        { "snapshots", &r->made }, { "snapshot_bytes", &r->bytes },
    };
    struct store *s;
    struct metric_list m;
    if (open_store(&s, r, WITH, STORE_READ, e))
        return -1;
    int rc = store_metrics(s, 1, &m, e);
    for (size_t i = 0; rc == 0 && i < m.n; i++)
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
            if (strcmp(m.v[i].name, figures[k].name) == 0)
                *figures[k].sum += m.v[i].value;
    if (rc == 0)
        metric_list_free(&m);
    store_close(s);
    r->share = seconds > 0 ? cost / seconds : 0;
    return rc;
}

/* No process has the store open, and opening it has completed its recovery, so copying the file is enough. */
static int copy_store(struct resume *r, struct err *e)
{
    struct store *s;
    char *data;
    size_t n;
    if (open_store(&s, r, WITH, STORE_WRITE, e))
        return -1;
    store_close(s);
    if (file_read(&data, &n, r->db[WITH], (size_t)1 << 30, e))
        return -1;
    int rc = file_write(r->db[WITHOUT], &(struct slice){ data, n }, 1, e);
    free(data);
    return rc;
}

/* ---- the measurement ---- */

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
    size_t before, now;
    if (wait_tokens(r, mode, 0, 0, &before, e))
        return -1;
    double begin = clock_seconds();
    if (work(r, mode, e) || wait_tokens(r, mode, before + 1, 0.002, &now, e))
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
        if ((rc = open_store(&s, r, mode, STORE_READ, e)) == 0) {
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

static void print_json(const struct resume *r, const double middle[2])
{
    static const char *const key[2] = { "with", "without" };
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 6);
    jw_uint(&w, "tokens", r->tokens);
    jw_uint(&w, "killed_at", r->killed_at);
    jw_real(&w, "written_seconds", r->written);
    jw_uint(&w, "repeat", r->repeat);
    jw_uint(&w, "snapshots", (uint64_t)r->made);
    jw_uint(&w, "snapshot_bytes", (uint64_t)r->bytes);
    jw_real(&w, "snapshot_share", r->share);
    for (int mode = 0; mode < 2; mode++) {
        jw_open(&w, key[mode], '{');
        jw_real(&w, "seconds", middle[mode]);
        jw_reals(&w, "range", (double[]){ r->seconds[mode][0], r->seconds[mode][r->n[mode] - 1] }, 2);
        jw_close(&w, '}');
    }
    jw_bool(&w, "identical", r->same);
    jw_end(&w);
}

static int print_result(struct resume *r, struct err *e)
{
    static const char *const label[2] = { "next token with snapshot ", "next token without       " };
    double middle[2];
    for (int mode = 0; mode < 2; mode++)
        middle[mode] = bench_median(r->seconds[mode], r->n[mode]);       /* sorts them, too */
    if (r->o->json)
        print_json(r, middle);
    else
        printf("job of %zu tokens, killed at %zu after %.0f s\n"
               "  snapshots on the way       %.0f, %.0f MB together, %.2f %% of the time\n",
               r->tokens, r->killed_at, r->written, r->made, r->bytes / 1e6, 100 * r->share);
    for (int mode = 0; mode < 2 && !r->o->json; mode++)
        printf("  %s  %.2f s (%.2f to %.2f)\n", label[mode], middle[mode], r->seconds[mode][0],
               r->seconds[mode][r->n[mode] - 1]);
    if (!r->o->json)
        printf("  both texts to the end      %s\n", r->same ? "identical" : "DIFFERENT");
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
    return bench_model_dir(r->model, o, e);
}

static void clean_up(struct resume *r)
{
    kill_child(r);
    for (int mode = 0; mode < 2; mode++) {
        struct store *s;
        struct err ignored;
        const int64_t id = 1;
        char journal[PATH_BYTES + 32];
        if (access(r->db[mode], F_OK) == 0 && open_store(&s, r, mode, STORE_WRITE, &ignored) == 0) {
            store_remove(s, &id, 1, NULL, &ignored);
            snapshot_files_delete_unused(s);
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
