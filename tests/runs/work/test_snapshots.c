/* Snapshot files: a row always names a complete file, whatever fails and whenever the process is killed,
 * and unneeded files are deleted. The calls of the snapshot thread that change the disk are numbered. Each
 * count_call fails once (EIO, ENOSPC), and each is the last count_call before a kill. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "kvmgr/snapshot.h"
#include "runs/work/snapshot_files.h"
#include "tests/store_check.h"
#include "tests/store_rig.h"

/* ---- the calls ---- */

static struct { bool on, folder_goes; pthread_t main; int n, fail_at, kill_at, how; char log[512]; } calls;

/* Count a count_call: 0, or the errno of its failure. Calls of the main thread do not count. */
static int count_call(const char *name)
{
    if (!calls.on || pthread_equal(pthread_self(), calls.main))
        return 0;
    size_t used = strlen(calls.log);
    snprintf(calls.log + used, sizeof calls.log - used, "%s ", name);
    int k = ++calls.n;
    if (k == calls.kill_at)
        kill(getpid(), SIGKILL);
    return k == calls.fail_at ? calls.how : 0;
}
#define CALL(name, real) \
    do { \
        int why_ = count_call(name); \
        if (why_) { \
            errno = why_; \
            return -1; \
        } \
        return real; \
    } while (0)

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    CALL("pwrite", syscall(SYS_pwrite64, fd, p, n, at));
}
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at)
{
    CALL("pwrite", syscall(SYS_pwrite64, fd, p, n, at));
}
int fsync(int fd) { CALL("fsync", (int)syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { CALL("fdatasync", (int)syscall(SYS_fdatasync, fd)); }
int rename(const char *a, const char *b)
{
    CALL("rename", (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0));
}
int unlink(const char *a) { CALL("unlink", (int)syscall(SYS_unlinkat, AT_FDCWD, a, 0)); }
int mkdir(const char *a, mode_t m)
{
    bool goes = calls.folder_goes;       /* another process deletes the empty folder */
    calls.folder_goes = false;
    if (goes && syscall(SYS_mkdirat, AT_FDCWD, a, m) == 0)
        return rmdir(a);
    CALL("mkdir", (int)syscall(SYS_mkdirat, AT_FDCWD, a, m));
}

/* ---- the work ---- */

enum { CONTENT = 3 << 20, FOREVER = 1000 };
static char content[CONTENT];

static int write_content(void *ctx, int fd, const atomic_bool *stop, struct err *e)
{
    struct snapshot_owner o;
    memset(&o, 0, sizeof o);
    o.job = *(const int64_t *)ctx;
    const struct snapshot_part part = { content, CONTENT };
    return snapshot_write(fd, &o, &(struct snapshot_section){ "test", "bytes", &part, 1 }, 1, stop, e);
}

static int write_too_little(void *ctx, int fd, const atomic_bool *stop, struct err *e)
{
    struct snapshot_owner o;
    memset(&o, 0, sizeof o);
    o.job = *(const int64_t *)ctx;
    const struct snapshot_part part = { content, 100 };
    return snapshot_write(fd, &o, &(struct snapshot_section){ "test", "bytes", &part, 1 }, 1, stop, e);
}

static uint64_t content_bytes(void)
{
    const struct snapshot_part part = { content, CONTENT };
    return snapshot_bytes(&(struct snapshot_section){ "test", "bytes", &part, 1 }, 1);
}

/* Open with the existing files of up to `good` tokens. */
static int open_with(struct snapshot_files **x, struct store *s, const struct claim *c, size_t good,
                     uint64_t max_bytes, snapshot_write_fn *write, void *ctx, struct err *e)
{
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n;
    if (snapshot_files_list(s, c->job, row, &n, e))
        return -1;
    while (n && row[n - 1].tokens > good)
        n--;
    return snapshot_files_open(x, s, c, &(struct snapshot_options){ row, n, max_bytes, write, ctx }, e);
}

/* The tokens of the job's snapshot, whose files must be complete. 0: it has none; SIZE_MAX: a row names a
 * missing file. */
static size_t snapshot_tokens(struct store *s, int64_t job)
{
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    char path[4096];
    struct snapshot *f;
    struct err e;
    size_t n;
    CHECK(snapshot_files_list(s, job, row, &n, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < n; i++) {
        if (snapshot_files_path(s, &row[i], path, sizeof path, &e) || snapshot_open(&f, path, &e) ||
            snapshot_check(f, NULL, &e)) {
            printf("    %s\n", e.msg);
            return SIZE_MAX;
        }
        snapshot_close(f);
    }
    return n ? row[n - 1].tokens : 0;
}

/* The number of files in the snapshot folder; -1: no folder. */
static int count_files(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s.snapshots", rig_path);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *f; d && (f = readdir(d));)
        n += f->d_name[0] != '.';
    if (!d)
        return -1;
    closedir(d);
    return n;
}

static struct snapshot_result make(struct snapshot_files *x, size_t tokens)
{
    struct snapshot_result r = { .rc = -2 };
    snapshot_files_write(x, snapshot_files_next_start(x, tokens, SIZE_MAX), tokens, content_bytes());
    snapshot_files_wait(x, FOREVER);
    CHECK(snapshot_files_result(x, &r) && !snapshot_files_result(x, &r));
    return r;
}

static struct store *begin(int64_t *job, struct claim *c)
{
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    *job = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), 0, c) == 1);
    return s;
}

static void the_row_comes_last_and_the_old_file_is_deleted(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
    CHECK(snapshot_tokens(s, job) == 0 && count_files() == -1);
    struct snapshot_result r = make(x, 64);
    CHECK(r.rc == 0 && r.tokens == 64 && r.bytes == content_bytes() && r.seconds > 0 && r.cpu_seconds > 0,
          "%d %s", r.rc, r.err.msg);
    CHECK(snapshot_tokens(s, job) == 64 && count_files() == 1);
    calls.on = true;
    calls.n = 0;
    calls.log[0] = 0;
    CHECK(make(x, 128).rc == 0 && snapshot_tokens(s, job) == 128 && count_files() == 1);
    calls.on = false;
    /* the file, its name, the folder, the folder's name; then calls of the store; then the old file */
    const char *renamed = strstr(calls.log, "fsync rename fsync fsync ");
    CHECK(renamed && strstr(renamed + 25, "pwrite") &&
              strcmp(calls.log + strlen(calls.log) - 7, "unlink ") == 0,
          "%s", calls.log);
    CHECK(make(x, 128).rc == 0 && snapshot_tokens(s, job) == 128 && count_files() == 1, "the same again");
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n;
    CHECK(store_snapshot_set(s, &c, &(struct snapshot_row){ "../x", 128, 129 }, 1, &e) == 0);
    CHECK(snapshot_files_list(s, job, row, &n, &e) == -1 && n == 1 && strstr(e.msg, "no snapshot of job"),
          "%s", e.msg);
    CHECK(store_snapshot_set(s, &c, &(struct snapshot_row){ "1-1-300.kv", 129, 300 }, 1, &e) == 0);
    CHECK(store_snapshot_set(s, &c, &(struct snapshot_row){ "1-1-500.kv", 301, 500 }, 1, &e) == 0);
    CHECK(store_snapshot_list(s, job, row, &n, &e) == -1 && n == 3 &&
              strstr(e.msg, "\"1-1-500.kv\" does not follow"),
          "%s", e.msg);
    CHECK(store_snapshot_drop(s, &c, 128, &e) == 0 && snapshot_tokens(s, job) == 128);
    snapshot_files_close(x);
    store_close(s);
}

/* The files have no gaps, each is more than twice as large as the next, and no row is written often. */
static void a_new_file_holds_the_rows_since_the_last_file(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    size_t tokens = 0, written = 0, most = 0, n;
    uint32_t draw = 1;
    for (int i = 0; i < 300; i++) {
        struct snapshot_row row[STORE_SNAPSHOTS_MAX];
        if (i % 50 == 0) {                       /* the next attempt */
            if (i)
                snapshot_files_close(x);
            CHECK(open_with(&x, s, &c, tokens, 0, write_too_little, &job, &e) == 0, "%s", e.msg);
        }
        draw = draw * 1664525 + 1013904223;
        tokens += KV_BLOCK * (1 + (draw >> 24) % 7);
        const size_t from = snapshot_files_next_start(x, tokens, SIZE_MAX);
        written += tokens - from;
        CHECK(make(x, tokens).rc == 0 && snapshot_files_list(s, job, row, &n, &e) == 0 &&
                  count_files() == (int)n,
              "%d files, %zu rows", count_files(), n);
        CHECK(row[n - 1].start == from && row[n - 1].tokens == tokens);
        for (size_t k = 1; k < n; k++)
            CHECK(row[k - 1].tokens - row[k - 1].start > 2 * (row[k].tokens - row[k].start), "%zu of %zu", k,
                  n);
        most = MAX(most, n);
    }
    snapshot_files_close(x);
    CHECK(most > 3 && most <= 10 && written < 10 * tokens, "%zu files, rows written %.1f times", most,
          (double)written / (double)tokens);
    printf("    %zu files at most, a row was written %.1f times\n", most, (double)written / (double)tokens);
    /* only the first file of the last attempt is good: the others are replaced */
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    CHECK(snapshot_files_list(s, job, row, &n, &e) == 0 && n > 1);
    CHECK(open_with(&x, s, &c, row[0].tokens, 0, write_too_little, &job, &e) == 0 &&
          snapshot_files_next_start(x, row[0].tokens + KV_BLOCK, SIZE_MAX) == row[0].tokens);
    CHECK(make(x, row[0].tokens + KV_BLOCK).rc == 0 && snapshot_tokens(s, job) == row[0].tokens + KV_BLOCK &&
          rig_sql("SELECT count(*) FROM snapshot") == 2);
    /* with a limit of rows there is one file more */
    tokens = row[0].tokens + 2 * KV_BLOCK;
    CHECK(snapshot_files_next_start(x, tokens, 0) == tokens - KV_BLOCK &&
          snapshot_files_next_start(x, tokens, 2 * KV_BLOCK - 1) == tokens - KV_BLOCK &&
          snapshot_files_next_start(x, tokens, 2 * KV_BLOCK) == row[0].tokens);
    snapshot_files_close(x);
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    snapshot_files_delete_unused(s);
    CHECK(count_files() == 2, "%d files", count_files());
    store_close(s);
}

static void rows_and_files_are_deleted_with_the_job(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    for (int how = 0; how < 4; how++) {
        struct store *s = begin(&job, &c);
        CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
        CHECK(make(x, 64).rc == 0);
        snapshot_files_close(x);
        snapshot_files_delete_unused(s);
        CHECK(snapshot_tokens(s, job) == 64 && count_files() == 1, "a job at work keeps its own");
        struct job_end end = { .state = how == 0 ? JOB_DONE : JOB_FAILED, .error = how ? "no" : NULL };
        if (how < 2)
            CHECK(rig_commit(s, &c, 1, &end, &e) == 0);
        else
            CHECK(store_change(s, how == 2 ? CHANGE_CANCEL : CHANGE_REMOVE, 0, &job, 1, NULL, &e) == 0);
        CHECK(rig_sql("SELECT count(*) FROM snapshot") == 0, "%d", how);
        snapshot_files_delete_unused(s);
        CHECK(count_files() == -1, "%d: the folder is gone too", how);
        store_close(s);
    }
    struct store *s = begin(&job, &c);           /* released: the file stays for the next worker */
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0 && make(x, 64).rc == 0);
    CHECK(rig_commit(s, &c, 1, &(struct job_end){ .state = JOB_PAUSED }, &e) == 0);
    CHECK(make(x, 128).rc == 1 && snapshot_tokens(s, job) == 64 && count_files() == 1,
          "who has lost the job names nothing");
    snapshot_files_close(x);
    snapshot_files_delete_unused(s);
    CHECK(snapshot_tokens(s, job) == 64 && count_files() == 1);
    store_close(s);
}

static void a_snapshot_over_the_limit_is_not_begun(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    CHECK(open_with(&x, s, &c, SIZE_MAX, content_bytes() * 3 / 2, write_content, &job, &e) == 0, "%s", e.msg);
    CHECK(make(x, 64).rc == 0);
    struct snapshot_result r = make(x, 128);     /* together with the file that it would replace */
    CHECK(r.rc == -1 && r.err.code != ERR_AGAIN && strstr(r.err.msg, "--kv-snapshot-max") &&
              snapshot_tokens(s, job) == 64 && count_files() == 1,
          "%d %s", r.rc, r.err.msg);
    snapshot_files_close(x);
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
    snapshot_files_write(x, 0, 192, (uint64_t)1 << 60);
    snapshot_files_wait(x, FOREVER);
    CHECK(snapshot_files_result(x, &r) && r.rc == -1 && strstr(r.err.msg, "are free") &&
              snapshot_tokens(s, job) == 64 && count_files() == 1,
          "%d %s", r.rc, r.err.msg);
    CHECK(snapshot_files_next_start(x, 192, SIZE_MAX) == 64, "the next one is as small as can be");
    snapshot_files_close(x);

    /* the disk becomes full in the middle, for this process */
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1 << 20, before.rlim_max }) == 0);
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
    r = make(x, 256);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(r.rc == -1 && snapshot_tokens(s, job) == 64 && count_files() == 1, "%d %s", r.rc, r.err.msg);
    CHECK(make(x, 256).rc == 0 && snapshot_tokens(s, job) == 256 && count_files() == 2 &&
              snapshot_files_next_start(x, 512, SIZE_MAX) == 0,
          "and later again; then they may be one");
    snapshot_files_close(x);
    store_close(s);
}

/* Files of other workers, also unfinished ones, count against the limit. */
static void the_limit_covers_all_workers(void)
{
    struct claim c[2];
    struct snapshot_files *x[2];
    struct err e;
    int64_t job[2];
    char other[160];
    struct store *s = begin(&job[0], &c[0]);
    job[1] = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), job[1], &c[1]) == 1);
    for (size_t i = 0; i < 2; i++)
        CHECK(open_with(&x[i], s, &c[i], SIZE_MAX, content_bytes() * 3 / 2, write_content, &job[i], &e) == 0,
              "%s", e.msg);
    snprintf(other, sizeof other, "%s.snapshots", rig_path);
    mkdir(other, 0700);
    snprintf(other, sizeof other, "%s.snapshots/%d-%d-64.kv.part", rig_path, (int)job[1], (int)c[1].attempt);
    fclose(fopen(other, "w"));
    CHECK(truncate(other, (off_t)content_bytes()) == 0);
    struct snapshot_result r = make(x[0], 64);
    CHECK(r.rc == -1 && strstr(r.err.msg, "with the 3 MB of others") && snapshot_tokens(s, job[0]) == 0 &&
              count_files() == 1,
          "%d %s", r.rc, r.err.msg);
    unlink(other);
    CHECK(make(x[0], 64).rc == 0 && make(x[1], 64).rc == -1 && snapshot_tokens(s, job[0]) == 64 &&
          snapshot_tokens(s, job[1]) == 0 && count_files() == 1);
    for (size_t i = 0; i < 2; i++)
        snapshot_files_close(x[i]);
    store_close(s);
}

static void the_folder_may_disappear_before_the_file_exists(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
    calls.folder_goes = true;
    struct snapshot_result r = make(x, 64);
    CHECK(r.rc == 0 && !calls.folder_goes && snapshot_tokens(s, job) == 64, "%d %s", r.rc, r.err.msg);
    snapshot_files_close(x);
    store_close(s);
}

/* Rows are deleted when a job has used up its attempts, and from the point where its text is truncated. */
static void rows_are_deleted_after_the_last_attempt_and_a_truncation(void)
{
    struct claim c;
    struct snapshot_files *x = NULL;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    CHECK(rig_commit(s, &c, 100, NULL, &e) == 0 &&
          open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0 && make(x, 64).rc == 0);
    snapshot_files_close(x);
    for (int i = 0; i < 12 && rig_state(s, job) != JOB_FAILED; i++) {
        struct claim_request w = { .worker = rig_worker(s), .max_attempts = 10 };
        struct claim next;
        CHECK(store_worker_end(s, i ? w.worker - 1 : 1, &e) == 0 && store_claim(s, &w, &next, &e) >= 0, "%s",
              e.msg);
    }
    CHECK(rig_state(s, job) == JOB_FAILED && rig_sql("SELECT count(*) FROM snapshot") == 0);
    snapshot_files_delete_unused(s);
    CHECK(count_files() == -1);
    store_close(s);
    for (int keep = 58; keep <= 60; keep++) {        /* after a prompt of 5 tokens */
        s = begin(&job, &c);
        CHECK(rig_commit(s, &c, 100, NULL, &e) == 0 &&
              open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0 && make(x, 64).rc == 0);
        snapshot_files_close(x);
        const struct edit_spec spec = { .at = (size_t)keep, .wanted = 1000 };
        CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
                  store_extend(s, job, &spec, &e) == 0, "%s", e.msg);
        CHECK(snapshot_tokens(s, job) == (keep == 60 ? 64 : 0), "%d kept", keep);
        store_close(s);
    }
    s = begin(&job, &c);                         /* of several files those before the truncation stay */
    CHECK(rig_commit(s, &c, 300, NULL, &e) == 0 &&
          open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0 && make(x, 192).rc == 0 &&
          make(x, 256).rc == 0);
    snapshot_files_close(x);
    CHECK(count_files() == 2 && store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
              store_extend(s, job, &(struct edit_spec){ .at = 200, .wanted = 1000 }, &e) == 0,
          "%s", e.msg);
    snapshot_files_delete_unused(s);
    CHECK(snapshot_tokens(s, job) == 192 && count_files() == 1, "%d files", count_files());
    store_close(s);
}

static void the_folder_may_be_a_file(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct err e;
    int64_t job;
    char path[128];
    struct store *s = begin(&job, &c);
    snprintf(path, sizeof path, "%s.snapshots", rig_path);
    fclose(fopen(path, "w"));
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
    struct snapshot_result r = make(x, 64);
    CHECK(r.rc == -1 && snapshot_tokens(s, job) == 0, "%s", r.err.msg);
    CHECK(rig_commit(s, &c, 5, NULL, &e) == 0 && rig_text_is(s, job, 5), "the job goes on");
    snapshot_files_delete_unused(s);
    CHECK(access(path, F_OK) == 0, "what is not ours stays");
    snapshot_files_close(x);
    store_close(s);
}

static void foreign_files_stay_and_stale_files_are_deleted(void)
{
    static const char *const names[] = { "1-1-64.kv", "1-1-128.kv.part", "7-2-64.kv", "1-99-64.kv",
                                         "01-1-64.kv", "1-1-64.kv.old", "notes", "1-1-64", "-1-1-64.kv",
                                             "1-1--64.kv" };
    /* attempt 1 of job 1 is running */
    static const bool goes[] = { false, false, true, true, false, false, false, false, false, false };
    struct claim c;
    int64_t job;
    char path[256];
    struct store *s = begin(&job, &c);
    CHECK(job == 1 && c.attempt == 1);
    snprintf(path, sizeof path, "%s.snapshots", rig_path);
    mkdir(path, 0700);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(path, sizeof path, "%s.snapshots/%s", rig_path, names[i]);
            fclose(fopen(path, "w"));
        }
        snapshot_files_delete_unused(s);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(path, sizeof path, "%s.snapshots/%s", rig_path, names[i]);
            CHECK((access(path, F_OK) != 0) == (goes[i] || (round && i < 2)), "%s in round %d", names[i],
                  round);
        }
        struct err e;
        CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    }
    store_close(s);
}

/* The second snapshot absorbs the first one, or follows it. */
static const struct { size_t first, second; int files; } shapes[] = { { 64, 128, 1 }, { 192, 256, 2 } };

static void a_failed_call_costs_at_most_one_snapshot(void)
{
    static const int errors[] = { EIO, ENOSPC };
    int points = 0, failed = 0, stopped = 0;
    for (size_t h = 0; h < 4; h++)
        for (int k = 1; k < 200; k++) {
            const size_t first = shapes[h / 2].first, second = shapes[h / 2].second;
            struct claim c;
            struct snapshot_files *x;
            struct err e;
            int64_t job;
            struct store *s = begin(&job, &c);
            CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
            CHECK(make(x, first).rc == 0);
            calls.n = 0, calls.log[0] = 0, calls.fail_at = k, calls.how = errors[h % 2], calls.on = true;
            struct snapshot_result r = make(x, second);
            calls.on = false;
            int n = calls.n;
            calls.fail_at = 0;
            size_t got = snapshot_tokens(s, job);
            CHECK(got == second || (got == first && r.rc == -1), "count_call %d of %s: %d, %zu tokens", k,
                  calls.log, r.rc, got);
            CHECK(r.rc == 0 || r.err.msg[0], "count_call %d", k);
            /* unless it was a count_call of the store: then the worker stops */
            bool stores = rig_commit(s, &c, 5, NULL, &e) == 0;
            CHECK(stores ? rig_text_is(s, job, 5) : strstr(e.msg, "nothing more is written") != NULL,
                  "count_call %d: %s", k, e.msg);
            stopped += !stores;
            snapshot_files_close(x);
            store_close(s);
            struct claim next;
            s = rig_open(STORE_WRITE);
            CHECK(store_worker_end(s, 1, &e) == 0 && rig_claim(s, rig_worker(s), 0, &next) == 1,
                  "count_call %d: %s", k, e.msg);
            got = snapshot_tokens(s, job);
            snapshot_files_delete_unused(s);
            CHECK((got == first || got == second) && snapshot_tokens(s, job) == got &&
                      count_files() == (got == first ? 1 : shapes[h / 2].files),
                  "count_call %d of %s: %zu, %d files", k, calls.log, got, count_files());
            store_close(s);
            points += n >= k;
            failed += r.rc == -1;
            if (n < k)
                break;
        }
    CHECK(points >= 20 && failed >= 8 && points - stopped >= 10,
          "%d calls failed, %d snapshots with them, %d times the worker stopped", points, failed, stopped);
    printf("    %d calls failed, and %d snapshots with them; %d were the store's own\n", points, failed,
           stopped);
}

static void a_kill_at_any_call_leaves_a_good_snapshot(void)
{
    int points = 0, older = 0;
    for (int i = 0, k = 1; i < 2 && k < 200; k++) {
        const size_t first = shapes[i].first, second = shapes[i].second;
        struct err e;
        int64_t job;
        int status;
        rig_new();
        struct store *s = rig_open(STORE_CREATE);
        job = rig_submit(s, 1000);
        store_close(s);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            struct claim c;
            struct snapshot_files *x;
            s = rig_open(STORE_WRITE);
            if (rig_claim(s, rig_worker(s), 0, &c) != 1 || rig_commit(s, &c, 300, NULL, &e) ||
                open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) || make(x, first).rc)
                _exit(9);
            calls.n = 0, calls.kill_at = k, calls.on = true;
            make(x, second);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        bool killed = WIFSIGNALED(status);
        CHECK(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%x", status);
        s = rig_open(STORE_WRITE);
        size_t got = snapshot_tokens(s, job);
        CHECK(got == first || got == second, "killed at count_call %d: %zu", k, got);
        older += got == first;
        struct claim c;
        CHECK(rig_claim(s, rig_worker(s), 0, &c) == 1 && rig_text_is(s, job, 300) && store_check(s, &e) == 0,
              "%s", e.msg);
        snapshot_files_delete_unused(s);
        CHECK(snapshot_tokens(s, job) == got && count_files() == (got == first ? 1 : shapes[i].files),
              "killed at count_call %d: %d files", k, count_files());
        store_close(s);
        points += killed;
        if (!killed)
            i++, k = 0;
    }
    CHECK(points >= 10 && older >= 5 && older < points, "%d kills, %d left the older one", points, older);
    printf("    %d kills, %d left the older one\n", points, older);
}

static int write_slowly(void *ctx, int fd, const atomic_bool *stop, struct err *e)
{
    (void)ctx, (void)fd;
    double start = clock_seconds();
    while (!atomic_load(stop) && clock_seconds() < start + 20)
        usleep(1000);
    return err_set(e, atomic_load(stop) ? ERR_AGAIN : ERR_FAILED, "slow");
}

static void waiting_for_a_slow_snapshot_is_limited(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct snapshot_result r;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_slowly, &job, &e) == 0, "%s", e.msg);
    snapshot_files_write(x, 0, 64, content_bytes());
    double start = clock_seconds();
    snapshot_files_wait(x, 0.2);
    CHECK(snapshot_files_result(x, &r) && r.rc == -1 && r.err.code == ERR_AGAIN &&
          clock_seconds() - start >= 0.2 && clock_seconds() - start < 15);
    snapshot_files_close(x);
    store_close(s);
}

static void an_abandoned_snapshot_leaves_nothing(void)
{
    struct claim c;
    struct snapshot_files *x;
    struct snapshot_result r;
    struct err e;
    int64_t job;
    struct store *s = begin(&job, &c);
    int given_up = 0;
    for (size_t i = 0; i < 20; i++) {
        CHECK(open_with(&x, s, &c, SIZE_MAX, 0, write_content, &job, &e) == 0, "%s", e.msg);
        snapshot_files_write(x, snapshot_files_next_start(x, 64 + 64 * i, SIZE_MAX), 64 + 64 * i,
                             content_bytes());
        snapshot_files_wait(x, 0);
        CHECK(snapshot_files_result(x, &r) && (r.rc == 0 || r.err.code == ERR_AGAIN), "%d %s", r.rc,
              r.err.msg);
        given_up += r.rc != 0;
        snapshot_files_write(x, snapshot_files_next_start(x, 64 + 64 * i, SIZE_MAX), 64 + 64 * i,
                             content_bytes());
        snapshot_files_close(x);                      /* before, during or after the write */
        CHECK(snapshot_tokens(s, job) != SIZE_MAX &&
                  MAX(count_files(), 0) == (int)rig_sql("SELECT count(*) FROM snapshot"),
              "%d files", count_files());
    }
    CHECK(given_up > 0);
    store_close(s);
}

int main(void)
{
    calls.main = pthread_self();
    for (size_t i = 0; i < CONTENT; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    RUN(the_row_comes_last_and_the_old_file_is_deleted);
    RUN(a_new_file_holds_the_rows_since_the_last_file);
    RUN(rows_and_files_are_deleted_with_the_job);
    RUN(a_snapshot_over_the_limit_is_not_begun);
    RUN(the_limit_covers_all_workers);
    RUN(rows_are_deleted_after_the_last_attempt_and_a_truncation);
    RUN(the_folder_may_be_a_file);
    RUN(the_folder_may_disappear_before_the_file_exists);
    RUN(foreign_files_stay_and_stale_files_are_deleted);
    RUN(a_failed_call_costs_at_most_one_snapshot);
    RUN(a_kill_at_any_call_leaves_a_good_snapshot);
    RUN(waiting_for_a_slow_snapshot_is_limited);
    RUN(an_abandoned_snapshot_leaves_nothing);
    rig_end();
    return test_end();
}
