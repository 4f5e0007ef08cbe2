/* The job store: which worker gets a job and when. A worker that lost a job writes nothing. */
#include <sched.h>
#include <signal.h>

#include "tests/store_check.h"
#include "tests/store_rig.h"

static void the_queue_goes_by_priority_model_and_number(void)
{
    struct { int priority; const char *model; } jobs[] = { { 0, "/m/a" }, { 0, "/m/b" }, { 5, "/m/a" },
        { 5, "/m/b" }, { 0, "/m/b" }, { -1, "/m/b" } };
    static const int64_t order[] = { 4, 3, 2, 5, 1, 6 };     /* with /m/b loaded */
    struct err e = {0};
    struct claim c;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < 6; i++) {
        struct job_spec j = rig_job(10);
        int64_t id;
        j.priority = jobs[i].priority;
        j.model = jobs[i].model;
        CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0);
    }
    int64_t w = rig_worker(s);
    for (int i = 0; i < 6; i++) {
        struct claim_request wish = { .worker = w, .model = "/m/b" };
        CHECK(store_claim(s, &wish, &c, &e) == 1 && c.job == order[i], "%d: %" PRId64, i, c.job);
    }
    CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 0);
    CHECK(
        rig_sql("SELECT count(*) FROM job WHERE state = 'running' AND attempt = 1 AND worker IS NOT NULL") ==
        6);
    CHECK(store_worker_end(s, w, &e) == 0);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'queued' AND attempt = 2 AND worker IS NULL") == 6);
    CHECK(rig_sql("SELECT count(*) FROM worker") == 0);
    store_close(s);
}

static void a_begun_job_needs_its_numerics(void)
{
    struct err e = {0};
    struct claim c;
    int32_t *ids;
    const char *a = "\ncpu-1\n", *ab = "\ncpu-2\ncpu-1\n", *b = "\ncpu-2\n";
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 100), w = rig_worker(s);
    CHECK(rig_claim(s, w, 0, &c) == 1);
    CHECK(rig_commit(s, &c, 0, &(struct job_end){ .state = JOB_QUEUED }, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .numerics = b }, &c, &e) == 1,
          "claimed before, but without a token: anybody's");
    CHECK(store_begin(s, &c, "cpu-2", "fp", false, &ids, &e) == 0, "%s", e.msg);
    free(ids);
    CHECK(rig_commit(s, &c, 3, &(struct job_end){ .state = JOB_QUEUED }, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .numerics = a }, &c,
                      &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .numerics = ab }, &c,
                      &e) == 1 &&
          c.end.tokens == 3);
    CHECK(store_begin(s, &c, "cpu-1", "fp", false, &ids, &e) == -1 && e.code == ERR_INPUT &&
              strstr(e.msg, "cpu-2") && strstr(e.msg, "cpu-1"),
          "%s", e.msg);
    CHECK(c.was == JOB_QUEUED && rig_commit(s, &c, 0, &(struct job_end){ .state = c.was }, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .job = job }, &c, &e) == 1);
    CHECK(store_begin(s, &c, "cpu-2", "another", false, &ids, &e) == -1 && strstr(e.msg, "model"), "%s",
          e.msg);
    CHECK(store_begin(s, &c, "cpu-1", "fp", true, &ids, &e) == 0 && c.end.tokens == 3, "%s", e.msg);
    free(ids);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'accepted change'") == 1);
    CHECK(rig_commit(s, &c, 0, &(struct job_end){ .state = JOB_PAUSED }, &e) == 0);
    struct event_list ev;
    CHECK(store_events(s, job, &ev, &e) == 0 && ev.n == 10, "%zu", ev.n);
    CHECK(strcmp(ev.v[0].kind, "submitted") == 0 && strcmp(ev.v[ev.n - 1].kind, "released") == 0);
    event_list_free(&ev);
    store_close(s);
}

static void a_job_without_progress_fails(void)
{
    struct err e = {0};
    struct claim c;
    struct job_list l;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 100), w;
    for (int i = 0; i < 3; i++) {                /* three workers that disappear */
        w = rig_worker(s);
        CHECK(store_claim(s, &(struct claim_request){ .worker = w, .max_attempts = 3 }, &c, &e) == 1, "%d",
              i);
        rig_sql("UPDATE worker SET start = start - 1");
    }
    w = rig_worker(s);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .max_attempts = 3 }, &c, &e) == 0, "%s",
          e.msg);
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0 && l.v[0].state == JOB_FAILED &&
              strstr(l.v[0].error, "3 attempts in a row"),
          "%s", l.v[0].error);
    job_list_free(&l);
    size_t changed;
    CHECK(store_change(s, CHANGE_RESUME, 0, &job, 1, &changed, &e) == 0 && changed == 1);
    /* a release without a token is no failed attempt; a token resets the count */
    for (int i = 0; i < 8; i++) {
        CHECK(rig_claim(s, w, 0, &c) == 1, "%d", i);
        CHECK(rig_commit(s, &c, i % 4 == 3, &(struct job_end){ .state = JOB_QUEUED }, &e) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(store_claim(s, &(struct claim_request){ .worker = w, .max_attempts = 3 }, &c, &e) == 1);
        rig_sql("UPDATE worker SET start = start - 1");
        w = rig_worker(s);
    }
    /* a longer snapshot resets the count; a snapshot of the same length does not */
    for (int i = 0; i < 6; i++) {
        const struct snapshot_row row = { "x", 0, (size_t)(i < 5 ? 64 + 64 * i : 64 * 5) };
        CHECK(store_claim(s, &(struct claim_request){ .worker = w, .max_attempts = 3 }, &c, &e) == 1 &&
              store_snapshot_set(s, &c, &row, 1, &e) == 0, "%d: %s", i, e.msg);
        rig_sql("UPDATE worker SET start = start - 1");
        w = rig_worker(s);
    }
    CHECK(rig_sql("SELECT idle FROM job") == 1);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .max_attempts = 0 }, &c, &e) == 1);
    store_close(s);
}

static void a_job_can_be_claimed_by_number_or_the_error_says_why_not(void)
{
    struct err e = {0};
    struct claim c, d;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 100), w = rig_worker(s), w2 = rig_worker(s);
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 0, "a paused job is in no queue");
    CHECK(rig_claim(s, w, job, &c) == 1 && c.was == JOB_PAUSED);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w2, .job = job }, &d, &e) == -1 && strstr(e.msg,
        "worked on by process"), "%s", e.msg);
    CHECK(rig_commit(s, &c, 1, &(struct job_end){ .state = JOB_FAILED, .error = "no luck" }, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w2, .job = job }, &d, &e) == 1);
    CHECK(rig_commit(s, &d, 0, &(struct job_end){ .state = JOB_DONE, .finish_reason = "length" }, &e) == 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w2, .job = job }, &d, &e) == -1 && strstr(e.msg,
        "is done"), "%s", e.msg);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w2, .job = 77 }, &d, &e) == -1 && strstr(e.msg,
        "no job 77"), "%s", e.msg);
    store_close(s);
}

/* Start a child that claims the next job, reports that, and sleeps. */
static pid_t sleeping_worker(void)
{
    int fd[2];
    char ok = 0;
    CHECK(pipe(fd) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s = rig_open(STORE_WRITE);
        struct claim c;
        ok = rig_claim(s, rig_worker(s), 0, &c) == 1;
        if (write(fd[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK(read(fd[0], &ok, 1) == 1 && ok);
    close(fd[0]);
    close(fd[1]);
    return pid;
}

static void jobs_of_a_dead_worker_return_at_once(void)
{
    struct err e = {0};
    struct claim c;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 100);
    pid_t pid = sleeping_worker();
    int64_t w = rig_worker(s);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 0, "it lives");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 1 && c.job == job &&
          c.attempt == 3,
          "%" PRId64, c.attempt);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over' AND text LIKE '%has ended%'") == 1);
    CHECK(rig_sql("SELECT count(*) FROM worker") == 1);
    store_close(s);
}

/* A process that still works on such a job loses it, and only one worker gets it. */
static void a_running_job_without_a_worker_returns_at_once(void)
{
    static const char *const ways[] = { "UPDATE job SET worker = NULL", "DELETE FROM worker" };
    struct err e = {0};
    for (size_t i = 0; i < 4; i++) {
        struct claim before, c, other;
        rig_new();
        struct store *s = rig_open(STORE_CREATE);
        int64_t job = rig_submit(s, 100), w = rig_worker(s), others[2];
        CHECK(rig_claim(s, w, 0, &before) == 1 && rig_commit(s, &before, 10, NULL, &e) == 0);
        rig_sql(ways[i % 2]);
        for (size_t k = 0; k < 2; k++)
            others[k] = rig_worker(s);
        CHECK(store_claim(s, &(struct claim_request){ .worker = others[0], .job = i < 2 ? 0 : job }, &c,
                          &e) == 1 &&
              c.job == job && c.end.tokens == 10 && c.attempt == before.attempt + 2, "%s", e.msg);
        CHECK(store_claim(s, &(struct claim_request){ .worker = others[1] }, &other, &e) == 0,
              "it has an owner now");
        CHECK(rig_commit(s, &before, 1, NULL, &e) == 1 && strstr(e.msg, "another worker"), "%s", e.msg);
        CHECK(store_beat(s, w, &e) == 0 && store_claim(s, &(struct claim_request){ .worker = w }, &other,
            &e) == 0);
        CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over' AND text LIKE '%not known%'") ==
              1);
        CHECK(store_check(s, &e) == 0, "%s", e.msg);
        store_close(s);
    }
}

/* A new store whose leases last half a second. */
static struct store *open_with_a_short_lease(void)
{
    const struct store_options o = { .mode = STORE_WRITE, .lease_seconds = 0.5 };
    struct store *s;
    struct err e = {0};
    rig_new();
    store_close(rig_open(STORE_CREATE));
    CHECK(store_open(&s, rig_path, &o, &e) == 0, "%s", e.msg);
    return s;
}

static void jobs_of_a_silent_worker_return_after_the_lease(void)
{
    struct err e = {0};
    struct claim c;
    struct store *s = open_with_a_short_lease();
    int64_t job = rig_submit(s, 100);
    pid_t pid = sleeping_worker();
    kill(pid, SIGSTOP);
    int64_t w = rig_worker(s);
    double start = clock_seconds();
    int rc = 0;
    for (int i = 0; i < 100 && rc == 0; i++) {
        rc = store_claim(s, &(struct claim_request){ .worker = w }, &c, &e);
        if (i == 3)                      /* a beat restarts the lease */
            rig_sql("UPDATE worker SET beat = beat + 1");
        usleep(50000);
    }
    double t = clock_seconds() - start;
    CHECK(rc == 1 && c.job == job && t >= 0.6, "%d after %f", rc, t);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over' AND text LIKE '%no sign%'") == 1);
    CHECK(store_beat(s, w, &e) == 0 && rig_sql("SELECT beat FROM worker") == 2);
    rig_sql("UPDATE job SET worker = NULL; DELETE FROM worker");
    CHECK(store_beat(s, w, &e) == 0 && rig_sql("SELECT count(*) FROM worker WHERE beat = 1") == 1,
          "one that was taken for dead comes back");
    store_close(s);
}

static void a_dead_worker_without_a_boot_loses_its_job_after_the_lease(void)
{
    struct err e = {0};
    struct claim c;
    struct store *s = open_with_a_short_lease();
    int64_t job = rig_submit(s, 100), w;
    pid_t pid = sleeping_worker();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    rig_sql("UPDATE worker SET boot = ''");
    w = rig_worker(s);
    const double start = clock_seconds();
    CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 0, "its end cannot be seen");
    int rc = 0;
    for (; rc == 0 && clock_seconds() - start < 10; usleep(50000))
        rc = store_claim(s, &(struct claim_request){ .worker = w }, &c, &e);
    CHECK(rc == 1 && c.job == job && clock_seconds() - start > 0.4, "%d", rc);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over' AND text LIKE '%no sign%'") == 1);
    store_close(s);
}

static void a_worker_of_another_pid_namespace_keeps_its_job_for_the_lease(void)
{
    struct err e = {0};
    struct claim c;
    struct store *s;
    int fd[2];
    char ok = 0;
    rig_new();
    store_close(rig_open(STORE_CREATE));
    CHECK(store_open(&s, rig_path, &(struct store_options){ .mode = STORE_WRITE, .lease_seconds = 0.5 },
                     &e) == 0);
    rig_submit(s, 100);
    CHECK(pipe(fd) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        if (unshare(CLONE_NEWPID))
            _exit(1);
        pid_t inner = fork();            /* pid 1 in its namespace; here pid 1 is another living process */
        if (inner == 0) {
            struct store *t = rig_open(STORE_WRITE);
            ok = rig_claim(t, rig_worker(t), 0, &c) == 1;
            _exit(write(fd[1], &ok, 1) != 1);
        }
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    close(fd[1]);
    bool made = read(fd[0], &ok, 1) == 1 && ok;
    close(fd[0]);
    int64_t w = rig_worker(s);
    int rc = 0;
    if (made)
        CHECK(store_claim(s, &(struct claim_request){ .worker = w }, &c, &e) == 0,
              "whether it lives cannot be seen");
    double start = clock_seconds();
    while (made && rc == 0 && clock_seconds() - start < 10) {
        usleep(50000);
        rc = store_claim(s, &(struct claim_request){ .worker = w }, &c, &e);
    }
    CHECK(!made || (rc == 1 && clock_seconds() - start > 0.4), "%d", rc);
    store_close(s);
    if (!made)
        SKIP("a pid namespace may not be made here");
}

static void a_stale_worker_never_writes(void)
{
    struct err e = {0};
    struct claim c;
    static const struct { const char *what, *says;
    } cases[] = { { "pause", "is paused" },      { "cancel", "is cancelled" }, { "remove", "was removed" },
                  { "again", "another worker" }, { "over", "another worker" }, { "done", "is done" } };
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t w = rig_worker(s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *what = cases[i].what;
        struct claim other;
        int64_t job = rig_submit(s, 5000);
        CHECK(rig_claim(s, w, job, &c) == 1);
        CHECK(rig_commit(s, &c, 1500, NULL, &e) == 0, "%s", e.msg);
        if (what[0] == 'p') CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
        if (what[0] == 'c') CHECK(store_change(s, CHANGE_CANCEL, 0, &job, 1, NULL, &e) == 0);
        if (what[0] == 'r') CHECK(store_change(s, CHANGE_REMOVE, 0, &job, 1, NULL, &e) == 0);
        if (what[0] == 'a')
            CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
                  store_change(s, CHANGE_RESUME, 0, &job, 1, NULL, &e) == 0);
        if (what[0] == 'o')
            CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
                  rig_claim(s, w, job, &other) == 1);
        other = c;
        if (what[0] == 'd') CHECK(rig_commit(s, &other, 10, &(struct job_end){ .state = JOB_DONE,
            .finish_reason = "stop" }, &e) == 0);
        uint64_t before = file_hash(rig_path);
        struct metric m = { .source = "", .name = "rounds", .value = 1 };
        int32_t *v = rig_tokens(job, c.end.tokens, 700);
        struct commit b = { .ids = v, .n = 700, .metrics = &m, .n_metrics = 1 };
        CHECK(store_commit(s, &c, &b, &e) == 1 && strstr(e.msg, cases[i].says), "%s: %s", what, e.msg);
        CHECK(store_claim_holds(s, c.job, c.attempt, &e) == 1 && strstr(e.msg, cases[i].says), "%s: %s", what,
              e.msg);
        CHECK(store_snapshot_set(s, &c, &(struct snapshot_row){ "/x", 0, 1 }, 1, &e) == 1);
        int32_t *ids;
        CHECK(store_begin(s, &c, "cpu-1", "fp", false, &ids, &e) == 1);
        CHECK(rig_commit(s, &c, 1, &(struct job_end){ .state = JOB_DONE }, &e) == 1);
        CHECK(file_hash(rig_path) == before, "%s: the file was changed", what);
        free(v);
    }
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    store_close(s);
}

/* One transaction for four jobs: the second is lost, the third has a damaged chunk, the others are
 * written. */
static void a_lost_part_does_not_hold_up_the_others(void)
{
    enum { JOBS = 4, MORE = 700 };
    static const int want[JOBS] = { 0, 1, -1, 0 };
    struct err e = {0};
    struct claim c[JOBS];
    struct job_commit part[JOBS];
    int64_t job[JOBS];
    int32_t *text[JOBS];
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t w = rig_worker(s);
    for (size_t i = 0; i < JOBS; i++) {
        job[i] = rig_submit(s, 5000);
        CHECK(rig_claim(s, w, job[i], &c[i]) == 1);
        CHECK(rig_commit(s, &c[i], 300, NULL, &e) == 0, "%s", e.msg);
        text[i] = rig_tokens(job[i], 300, MORE);
        part[i] = (struct job_commit){ .claim = &c[i], .add = { .ids = text[i], .n = MORE } };
    }
    char damage[160];
    snprintf(damage, sizeof damage,
             "CREATE TRIGGER damage BEFORE UPDATE OF tokens ON job WHEN new.id = %" PRId64
             " BEGIN SELECT raise(ABORT, 'damaged'); END",
             job[2]);
    rig_sql(damage);
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job[1], 1, NULL, &e) == 0);
    CHECK(store_commit_all(s, part, JOBS, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < JOBS; i++) {
        CHECK(part[i].rc == want[i], "job %zu: %d: %s", i, part[i].rc, part[i].err.msg);
        CHECK(c[i].end.tokens == (want[i] ? 300 : 300 + MORE) && rig_text_is(s, job[i], c[i].end.tokens));
        free(text[i]);
    }
    CHECK(strstr(part[1].err.msg, "is paused") && strstr(part[2].err.msg, "damaged"));
    store_close(s);
}

static void workers_share_a_queue_without_sharing_a_job(void)
{
    enum { WORKERS = 4, JOBS = 120 };
    struct err e = {0};
    pid_t pid[WORKERS];
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < JOBS; i++)
        rig_submit(s, 3);
    store_close(s);
    fflush(stdout);
    for (int k = 0; k < WORKERS; k++)
        if ((pid[k] = fork()) == 0) {
            struct claim c;
            s = rig_open(STORE_WRITE);
            int64_t w = rig_worker(s);
            int rc;
            while ((rc = rig_claim(s, w, 0, &c)) == 1)
                if (rig_commit(s, &c, 1, NULL, &e) || rig_commit(s, &c, 2,
                    &(struct job_end){ .state = JOB_DONE, .finish_reason = "length" }, &e))
                    _exit(2);
            if (rc == 0)
                rc = store_worker_end(s, w, &e);
            store_close(s);
            _exit(rc ? 1 : 0);
        }
    for (int k = 0; k < WORKERS; k++) {
        int status;
        waitpid(pid[k], &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
    }
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND tokens = 3 AND attempt = 1") == JOBS);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'done'") == JOBS &&
          rig_sql("SELECT count(*) FROM event WHERE kind = 'claimed'") == JOBS);
    s = rig_open(STORE_READ);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    store_close(s);
}

/* The number of transactions that have changed the file: SQLite counts them in its header. */
static uint32_t transactions(void)
{
    uint8_t b[4] = {0};
    const int fd = open(rig_path, O_RDONLY);
    CHECK(pread(fd, b, sizeof b, 24) == sizeof b);
    close(fd);
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void requests_that_wait_are_stored_together(void)
{
    enum { N = 5 };
    static const char *const key[N] = { NULL, "a", "a", "a", "b" };
    static const int want[N] = { 0, 0, 1, SUBMIT_OTHER, -1 };
    struct err e = {0};
    struct job_spec job[N][2];
    struct request_submit q[N] = {0}, *v[N];
    int64_t ids[N][2];
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t w = rig_worker(s);
    rig_sql("CREATE TRIGGER damage BEFORE INSERT ON job WHEN new.wanted = 77 "
            "BEGIN SELECT raise(ABORT, 'damaged'); END");
    for (size_t i = 0; i < N; i++) {
        job[i][0] = rig_job(10);
        job[i][1] = rig_job(i == 4 ? 77 : 10);
        job[i][1].sample = 1;
        q[i] = (struct request_submit){ .r = { .worker = w, .key = key[i], .sha = { i == 3 } },
                                        .v = job[i], .n = 2, .ids = ids[i] };
        v[i] = &q[i];
    }
    const uint32_t before = transactions();
    CHECK(store_submit_requests(s, v, N, &e) == 0, "%s", e.msg);
    CHECK(transactions() == before + 1, "%u", transactions() - before);
    for (size_t i = 0; i < N; i++)
        CHECK(q[i].rc == want[i], "request %zu: %d: %s", i, q[i].rc, q[i].err.msg);
    CHECK(strstr(q[3].err.msg, "another body") && strstr(q[4].err.msg, "damaged"));
    CHECK(ids[2][0] == ids[1][0] && ids[2][1] == ids[1][1]);
    CHECK(rig_sql("SELECT count(*) FROM job") == 4 && rig_sql("SELECT count(*) FROM request") == 4);
    store_close(s);
}

/* A worker that was declared dead may be a server: nobody waits for its requests without a key. */
static void requests_end_with_their_server(void)
{
    struct err e = {0};
    struct job_spec job = rig_job(10);
    int64_t ids[2];
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t w = rig_worker(s);
    for (int i = 0; i < 2; i++) {
        struct request_submit q = { .r = { .worker = w, .key = i ? "a" : NULL }, .v = &job, .n = 1,
                                    .ids = &ids[i] }, *v = &q;
        CHECK(store_submit_requests(s, &v, 1, &e) == 0 && q.rc == 0, "%s", e.msg);
    }
    CHECK(store_worker_end(s, w, &e) == 0, "%s", e.msg);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'cancelled' AND ended > 0") == 1 &&
          rig_sql("SELECT id FROM job WHERE state = 'queued'") == ids[1]);
    store_close(s);
}

static void requests_that_are_over_are_forgotten(void)
{
    enum { LEFT, CONTINUED, KEYED, TAKEN, N };   /* TAKEN: `extend` made it a job of its own */
    struct err e = {0};
    struct job_spec job = rig_job(10);
    int64_t ids[N], chapter;
    size_t removed;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t w = rig_worker(s);
    for (int i = 0; i < N; i++) {
        struct request_submit q = { .r = { .worker = w, .key = i == KEYED ? "a" : NULL }, .v = &job, .n = 1,
                                    .ids = &ids[i] }, *v = &q;
        CHECK(store_submit_requests(s, &v, 1, &e) == 0 && q.rc == 0, "%s", e.msg);
    }
    CHECK(store_submit(s, NULL, &job, 1, &chapter, NULL, NULL, &e) == 0, "%s", e.msg);
    rig_sql("INSERT INTO chapter (job, after, prompted, own, most, given) "
            "SELECT max(id), 2, 0, 0, 9, 0 FROM job");
    rig_sql("DELETE FROM request WHERE job = 4");
    CHECK(ids[CONTINUED] == 2 && ids[TAKEN] == 4);
    CHECK(store_requests_forget(s, 0, &removed, &e) == 0 && removed == 0, "%zu", removed);
    CHECK(store_requests_end(s, ids, N, false, &e) == 0, "%s", e.msg);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'cancelled'") == 3 &&
          rig_sql("SELECT min(id) FROM job WHERE state = 'queued'") == ids[TAKEN]);
    CHECK(store_requests_forget(s, 0, &removed, &e) == 0 && removed == 2, "%zu", removed);
    CHECK(store_requests_end(s, ids, N, true, &e) == 0, "%s", e.msg);
    CHECK(rig_sql("SELECT count(*) FROM job") == 3 &&
          rig_sql("SELECT min(id) FROM job") == ids[CONTINUED]);
    rig_sql("UPDATE chapter SET sha = x'00'");   /* the chapter has its prompt */
    CHECK(store_requests_forget(s, 0, &removed, &e) == 0 && removed == 1, "%zu", removed);
    CHECK(rig_sql("SELECT min(id) FROM job") == ids[TAKEN]);
    store_close(s);
}

int main(void)
{
    RUN(the_queue_goes_by_priority_model_and_number);
    RUN(a_begun_job_needs_its_numerics);
    RUN(a_job_without_progress_fails);
    RUN(a_job_can_be_claimed_by_number_or_the_error_says_why_not);
    RUN(jobs_of_a_dead_worker_return_at_once);
    RUN(a_running_job_without_a_worker_returns_at_once);
    RUN(jobs_of_a_silent_worker_return_after_the_lease);
    RUN(a_dead_worker_without_a_boot_loses_its_job_after_the_lease);
    RUN(a_worker_of_another_pid_namespace_keeps_its_job_for_the_lease);
    RUN(a_stale_worker_never_writes);
    RUN(a_lost_part_does_not_hold_up_the_others);
    RUN(workers_share_a_queue_without_sharing_a_job);
    RUN(requests_that_wait_are_stored_together);
    RUN(requests_end_with_their_server);
    RUN(requests_that_are_over_are_forgotten);
    rig_end();
    return test_end();
}
