/* Checkpoints and heartbeats: when tokens become readable, what a lost job returns, and kills that lose
 * nothing acknowledged. Short: 120 kills of a writer, 60 of a first start, 150 jobs with killed and
 * stopped workers; --long: 10,000, 1,000, 10,000. */
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "runs/work/checkpoint.h"
#include "runs/work/worker.h"
#include "tests/store_check.h"
#include "tests/store_rig.h"

static bool long_run;

static struct committer *committer;      /* of `opened` */

static struct checkpoint *opened(struct store *s, const struct claim *claim, double seconds, bool rounds)
{
    struct checkpoint *c = NULL;
    struct err e = {0};
    CHECK(committer_open(&committer, s, seconds, NULL, NULL, &e) == 0 &&
          checkpoint_open(&c, committer, claim, &(struct checkpoint_options){ .rounds = rounds }, &e) == 0,
          "%s", e.msg);
    return c;
}

static void closed(struct checkpoint *c)
{
    checkpoint_close(c);
    committer_close(committer);
}

/* Put tokens [from, from + n) of the job's text. */
static int put_tokens(struct checkpoint *c, int64_t job, size_t from, size_t n, struct err *e)
{
    int32_t ids[64];
    assert(n <= 64);
    for (size_t i = 0; i < n; i++)
        ids[i] = rig_token(job, from + i);
    return checkpoint_put(c, ids, n, NULL, e);
}

static size_t stored_tokens(struct store *s, int64_t job)
{
    struct job_list l;
    struct err e = {0};
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
    size_t n = l.n ? l.v[0].tokens : 0;
    job_list_free(&l);
    return n;
}

static void sleep_ms(double ms)
{
    struct timespec t = { .tv_sec = (time_t)(ms / 1000),
                          .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6) };
    while (nanosleep(&t, &t))
        ;
}

static void the_first_token_is_committed_at_once(void)
{
    struct err e = {0};
    struct claim claim;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 100);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct checkpoint *c = opened(s, &claim, 30, false);
    double t = clock_seconds();
    CHECK(put_tokens(c, job, 0, 1, &e) == 0);
    while (stored_tokens(s, job) == 0 && clock_seconds() - t < 25)
        sleep_ms(1);
    CHECK(clock_seconds() - t < 25, "%f", clock_seconds() - t);
    CHECK(put_tokens(c, job, 1, 1, &e) == 0);
    sleep_ms(300);
    CHECK(stored_tokens(s, job) == 1 || clock_seconds() - t > 25, "the next one waits for its time");
    CHECK(checkpoint_flush(c, &e) == 0 && stored_tokens(s, job) == 2 && checkpoint_committed(c) == 2);
    CHECK(checkpoint_flush(c, &e) == 0, "nothing to do");
    CHECK(put_tokens(c, job, 2, 5, &e) == 0);
    CHECK(checkpoint_end(c, &(struct job_end){ .state = JOB_DONE, .finish_reason = "length" }, NULL, &e) == 0,
          "%s", e.msg);
    CHECK(rig_text_is(s, job, 7) && rig_state(s, job) == JOB_DONE);
    closed(c);
    store_close(s);
}

static void later_tokens_are_committed_in_time(void)
{
    enum { N = 400 };
    const double seconds = 0.2;
    double at[N + 1], worst = 0, stall = 0, last = clock_seconds();
    struct err e = {0};
    struct claim claim;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, N);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct checkpoint *c = opened(s, &claim, seconds, false);
    double start = clock_seconds();
    size_t seen = 0;
    for (size_t i = 0; i < N; i++) {
        at[i] = clock_seconds();
        CHECK(put_tokens(c, job, i, 1, &e) == 0);
        sleep_ms(2.5);
        size_t now = checkpoint_committed(c);
        double t = clock_seconds();
        stall = MAX(stall, t - last);
        last = t;
        for (; seen < now; seen++)
            worst = MAX(worst, t - at[seen]);
    }
    double all = clock_seconds() - start;
    CHECK(worst < seconds + 0.3 + 2 * stall, "a token waited %.3f s; the machine stalled for %.3f", worst,
          stall);
    CHECK(checkpoint_flush(c, &e) == 0 && rig_text_is(s, job, N));
    const int64_t commits = rig_sql("SELECT sum(value) FROM metric WHERE name = 'checkpoint_commits'"),
                  cpu_ms =
                      rig_sql("SELECT 1000 * sum(value) FROM metric WHERE name = 'checkpoint_cpu_seconds'");
    CHECK((double)commits <= all / seconds + 2 && commits >= 2, "%" PRId64 " in %.2f s", commits, all);
    CHECK(cpu_ms > 0 && (double)cpu_ms < 500 * SLOWER, "%" PRId64 " ms", cpu_ms);
    closed(c);
    store_close(s);
}

static void a_busy_database_does_not_block_the_loop(void)
{
    struct err e = {0};
    struct claim claim;
    sqlite3 *other;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 3000);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct checkpoint *c = opened(s, &claim, 0.01, false);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    for (size_t i = 0; i < 3000; i += 30)        /* a call that waits would wait for ever */
        CHECK(put_tokens(c, job, i, 30, &e) == 0);
    CHECK(checkpoint_committed(c) == 0);
    sleep_ms(300);
    sqlite3_close(other);
    CHECK(checkpoint_flush(c, &e) == 0 && rig_text_is(s, job, 3000), "%s", e.msg);
    closed(c);
    store_close(s);
}

/* The events of a job after `submitted` and `claimed`, as "kind text, kind text". */
static void events_of(struct store *s, int64_t job, char *out, size_t size)
{
    struct event_list l;
    struct err e = {0};
    size_t at = 0;
    out[0] = 0;
    CHECK(store_events(s, job, &l, &e) == 0, "%s", e.msg);
    for (size_t i = 2; i < l.n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s %s", i > 2 ? ", " : "", l.v[i].kind, l.v[i].text);
    event_list_free(&l);
}

static void notes_are_committed_in_order_and_block_nothing(void)
{
    struct err e = {0};
    struct claim claim;
    char got[4096];
    sqlite3 *other;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct checkpoint *c = opened(s, &claim, 30, false);
    double t = clock_seconds();
    checkpoint_note(c, "restored", "before the first token");        /* committed alone and at once */
    for (got[0] = 0; !got[0] && clock_seconds() - t < 25; sleep_ms(1))
        events_of(s, job, got, sizeof got);
    CHECK(strcmp(got, "restored before the first token") == 0 && clock_seconds() - t < 25, "%s", got);
    /* and the first token does not wait after it */
    CHECK(put_tokens(c, job, 0, 1, &e) == 0);
    while (stored_tokens(s, job) == 0 && clock_seconds() - t < 25)
        sleep_ms(1);
    CHECK(stored_tokens(s, job) == 1 && clock_seconds() - t < 25, "%f", clock_seconds() - t);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    t = clock_seconds();
    checkpoint_note(c, "notice", "one");         /* a call that waits would wait for ever */
    CHECK(put_tokens(c, job, 1, 5, &e) == 0);
    checkpoint_note(c, "repetition", "two");
    CHECK(clock_seconds() - t < 20);
    sqlite3_close(other);
    checkpoint_note(c, "notice", "three");
    CHECK(checkpoint_end(c, &(struct job_end){ .state = JOB_DONE, .finish_reason = "length" }, NULL, &e) == 0,
          "%s", e.msg);
    events_of(s, job, got, sizeof got);
    CHECK(strcmp(got, "restored before the first token, notice one, repetition two, notice three, done at "
                      "token 6: length") == 0,
          "%s", got);
    CHECK(rig_text_is(s, job, 6));
    closed(c);

    /* notes during a commit go with the next commit */
    job = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), job, &claim) == 1);
    c = opened(s, &claim, 0.01, false);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    checkpoint_note(c, "notice", "one");
    sleep_ms(200);
    checkpoint_note(c, "notice", "two");
    CHECK(put_tokens(c, job, 0, 3, &e) == 0);
    sqlite3_close(other);
    CHECK(checkpoint_flush(c, &e) == 0 && checkpoint_end(c, &(struct job_end){ .state = JOB_PAUSED },
        NULL, &e) == 0, "%s", e.msg);
    events_of(s, job, got, sizeof got);
    CHECK(strcmp(got, "notice one, notice two, released at token 3") == 0 && rig_text_is(s, job, 3), "%s",
          got);
    closed(c);

    /* as many notes as repetitions are possible, and a long one */
    job = rig_submit(s, 3000);
    CHECK(rig_claim(s, rig_worker(s), job, &claim) == 1);
    c = opened(s, &claim, 30, false);
    CHECK(put_tokens(c, job, 0, 1, &e) == 0);
    char text[128 + 1];
    memset(text, 'x', 128);
    text[128] = 0;
    for (size_t i = 0; i < 3000 / 128; i++)
        checkpoint_note(c, "repetition", text);
    CHECK(checkpoint_flush(c, &e) == 0 &&
          rig_sql("SELECT count(*) FROM event WHERE kind = 'repetition' AND length(text) = 128") ==
              3000 / 128);
    for (int i = 0; i < 2000; i++)
        checkpoint_note(c, "notice", text);
    CHECK(checkpoint_flush(c, &e) == 0 && rig_sql("SELECT count(*) FROM event WHERE kind = 'notice'") > 20,
          "too many are left out");
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    checkpoint_note(c, "notice", "of a job that is lost");
    CHECK(put_tokens(c, job, 1, 1, &e) >= 0 && checkpoint_flush(c, &e) == 1 &&
          rig_sql("SELECT count(*) FROM event WHERE text LIKE 'of a job%'") == 0);
    closed(c);
    store_close(s);
}

static void a_lost_job_is_reported_and_not_written(void)
{
    struct err e = {0};
    struct claim claim;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct checkpoint *c = opened(s, &claim, 0.01, false);
    CHECK(put_tokens(c, job, 0, 10, &e) == 0 && checkpoint_flush(c, &e) == 0);
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    int rc = 0;
    size_t n = 10;
    for (double t = clock_seconds(); rc == 0 && clock_seconds() - t < 30 && n < 990; n++) {
        rc = put_tokens(c, job, n, 1, &e);
        sleep_ms(20);
    }
    CHECK(rc == 1 && strstr(e.msg, "is paused"), "%d %s", rc, e.msg);
    CHECK(checkpoint_flush(c, &e) == 1 &&
          checkpoint_end(c, &(struct job_end){ .state = JOB_DONE }, NULL, &e) == 1);
    closed(c);
    CHECK(rig_text_is(s, job, 10) && rig_state(s, job) == JOB_PAUSED);
    store_close(s);
}

static double total(struct store *s, int64_t job, const char *source, const char *name, size_t window)
{
    struct metric_list m;
    struct err e;
    double sum = 0;
    CHECK(store_metrics(s, job, &m, &e) == 0);
    for (size_t i = 0; i < m.n; i++)
        if (strcmp(m.v[i].source, source) == 0 && strcmp(m.v[i].name, name) == 0 &&
            (window == SIZE_MAX || m.v[i].window == window))
            sum += m.v[i].value;
    metric_list_free(&m);
    return sum;
}

static void counters_and_rounds_are_committed_with_their_tokens(void)
{
    struct err e = {0};
    struct claim claim;
    struct round_list r;
    int64_t w;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 2600);
    w = rig_worker(s);
    size_t n = 0, rounds = 0;
    /* the second attempt adds to the window in which the first attempt stopped */
    for (int part = 0; part < 2; part++) {
        CHECK(rig_claim(s, w, 0, &claim) == 1 && claim.end.tokens == n);
        struct checkpoint *c = opened(s, &claim, 0.002, true);
        int drafted = checkpoint_counter(c, "heads", "drafted", 0),
            count = checkpoint_counter(c, "", "rounds", 0), depth = checkpoint_counter(c, "", "depth", 2);
        while (n < (part ? 2600u : 1300u)) {
            int32_t ids[4];
            size_t k = MIN(1 + rounds % 4, (part ? 2600 : 1300) - n);
            for (size_t i = 0; i < k; i++)
                ids[i] = rig_token(job, n + i);
            checkpoint_add(c, drafted, 10);
            checkpoint_add(c, count, 1);
            checkpoint_add(c, depth, 0.5);
            CHECK(checkpoint_put(c, ids, k, &(struct round_row){ .sources = "heads", .rows = 12 }, &e) == 0);
            n += k;
            rounds++;
            /* so that a busy machine commits in between, too */
            if (rounds % 200 == 0)
                CHECK(checkpoint_flush(c, &e) == 0);
            else if (rounds % 100 == 0)
                sleep_ms(3);
        }
        checkpoint_add(c, drafted, 7);               /* after the last round */
        CHECK(checkpoint_end(c, &(struct job_end){ .state = JOB_QUEUED }, NULL, &e) == 0);
        closed(c);
    }
    CHECK(total(s, job, "heads", "drafted", SIZE_MAX) == 10.0 * (double)rounds + 14);
    CHECK(total(s, job, "", "rounds", SIZE_MAX) == (double)rounds &&
          total(s, job, "", "depth", SIZE_MAX) == 0.5 * (double)rounds);
    CHECK(total(s, job, "", "checkpoint_commits", SIZE_MAX) >= 4 &&
          total(s, job, "", "checkpoint_seconds", SIZE_MAX) > 0);
    CHECK(total(s, job, "", "checkpoint_put_seconds", SIZE_MAX) > 0 &&
          total(s, job, "", "checkpoint_cpu_seconds", SIZE_MAX) > 0);
    CHECK(store_rounds(s, job, &r, &e) == 0 && r.n == rounds, "%zu of %zu", r.n, rounds);
    size_t at = 0, in_window[3] = {0};
    for (size_t i = 0; i < r.n; i++) {
        CHECK(r.v[i].start == at && r.v[i].rows == 12 && strcmp(r.v[i].sources, "heads") == 0);
        in_window[at / METRIC_WINDOW]++;
        at += r.v[i].tokens;
    }
    CHECK(at == 2600);
    for (size_t k = 0; k < 3; k++)
        CHECK(total(s, job, "", "rounds", k * METRIC_WINDOW) == (double)in_window[k], "window %zu", k);
    round_list_free(&r);
    CHECK(rig_text_is(s, job, 2600));
    store_close(s);
}

static void the_heartbeat_beats_and_detects_a_lost_job(void)
{
    struct err e = {0};
    struct claim claim;
    struct heartbeat *h;
    struct store *s;
    rig_new();
    store_close(rig_open(STORE_CREATE));
    CHECK(store_open(&s, rig_path, &(struct store_options){ .mode = STORE_WRITE, .lease_seconds = 0.6 },
                     &e) == 0);
    int64_t job = rig_submit(s, 10), w = rig_worker(s);
    CHECK(rig_claim(s, w, 0, &claim) == 1);
    CHECK(heartbeat_start(&h, s, w, &e) == 0, "%s", e.msg);
    const size_t place = heartbeat_watch(h, claim.job, claim.attempt);
    double t = clock_seconds();
    int64_t beats = 0;
    while (beats < 3 && clock_seconds() - t < 30) {
        sleep_ms(100);
        beats = rig_sql("SELECT beat FROM worker");
    }
    double all = clock_seconds() - t;
    CHECK(beats >= 3 && (double)beats <= all / 0.1 + 1, "%" PRId64 " in %.2f s", beats, all);
    CHECK(!heartbeat_lost(h, place));
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0);
    t = clock_seconds();
    while (!heartbeat_lost(h, place) && clock_seconds() - t < 30)
        sleep_ms(5);
    CHECK(heartbeat_lost(h, place));
    heartbeat_forget(h, place);
    CHECK(!heartbeat_lost(h, place));
    heartbeat_stop(h);
    store_close(s);
}

/* ---- kills ---- */

struct shared { volatile size_t acked; volatile int64_t job; };

static struct shared *shared_memory(void)
{
    struct shared *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(m != MAP_FAILED);
    return m;
}

/* Complete jobs, a few tokens at a time, and record what is acknowledged. Exits with 0 when the queue is
 * empty. */
static void write_until_killed(struct shared *m, double seconds, double pause_ms, double lease)
{
    struct err e = {0};
    struct claim claim;
    struct store *s;
    int rc = store_open(&s, rig_path, &(struct store_options){ .mode = STORE_WRITE, .busy_seconds = 60,
        .lease_seconds = lease }, &e);
    int64_t w;
    if (rc || store_worker_start(s, &w, &e)) {
        printf("    %s\n", e.msg);
        _exit(3);
    }
    for (;;) {
        int32_t *ids;
        struct checkpoint *c;
        rc = store_claim(s, &(struct claim_request){ .worker = w }, &claim, &e);
        if (rc == 0) {
            struct store_counts n;
            if (store_counts(s, NULL, &n, &e) == 0 && n.jobs[JOB_RUNNING] == 0 && n.jobs[JOB_QUEUED] == 0)
                break;
            sleep_ms(5);
            continue;
        }
        rc = rc < 0 ? -1 : store_begin(s, &claim, "cpu-1", "fp", false, &ids, &e);
        if (rc == 1)
            continue;
        if (rc || committer_open(&committer, s, seconds, NULL, NULL, &e) ||
            checkpoint_open(&c, committer, &claim, &(struct checkpoint_options){0}, &e)) {
            printf("    %s\n", e.msg);
            _exit(4);
        }
        free(ids);
        m->acked = 0;
        m->job = claim.job;
        m->acked = claim.end.tokens;
        size_t n = claim.end.tokens;
        while (n < claim.wanted && rc == 0) {
            size_t k = MIN(1 + n % 3, claim.wanted - n);
            rc = put_tokens(c, claim.job, n, k, &e);
            n += k;
            m->acked = checkpoint_committed(c);
            if (pause_ms > 0)
                sleep_ms(pause_ms);
        }
        if (rc == 0)
            rc = checkpoint_end(c, &(struct job_end){ .state = JOB_DONE, .finish_reason = "length" }, NULL,
                                &e);
        if (rc == 0)
            m->acked = n;
        closed(c);
        if (rc < 0) {
            printf("    %s\n", e.msg);
            _exit(5);
        }
    }
    store_worker_end(s, w, &e);
    store_close(s);
    _exit(0);
}

static void kills_lose_nothing_acknowledged(void)
{
    enum { TOKENS = 2000 };
    const int want = long_run ? 10000 : 120;
    struct shared *m = shared_memory();
    struct err e = {0};
    size_t resumed = 0, hot = 0, jobs = 0;
    int kills = 0;
    rig_new();
    store_close(rig_open(STORE_CREATE));
    srand(7);
    for (int rounds = 0; kills < want && rounds < 100 * want; rounds++) {
        char journal[128];
        struct store *s = rig_open(STORE_WRITE);
        struct store_counts n;
        CHECK(store_counts(s, NULL, &n, &e) == 0);
        if (n.jobs[JOB_QUEUED] + n.jobs[JOB_RUNNING] == 0) {
            rig_submit(s, TOKENS);
            jobs++;
        }
        store_close(s);
        m->job = 0;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            write_until_killed(m, 0.001, 0.02, 60);
        if (rounds % 4)                  /* while it writes; otherwise at any time from its start on */
            for (double t = clock_seconds(); !m->job && clock_seconds() - t < 5;)
                sleep_ms(0.2);
        sleep_ms(rand() % 3000 / 100.0);
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%x", status);
        kills += WIFSIGNALED(status);
        size_t acked = m->acked;
        int64_t job = m->job;
        snprintf(journal, sizeof journal, "%s-journal", rig_path);
        hot += access(journal, F_OK) == 0;
        s = rig_open(STORE_READ);
        if (job) {
            size_t have = stored_tokens(s, job);
            CHECK(have >= acked && have <= TOKENS, "job %" PRId64 ": %zu acknowledged, %zu there", job, acked,
                  have);
            CHECK(rig_text_is(s, job, have));
            resumed += have > 0;
        }
        if (rounds % 10 == 0)
            CHECK(store_check(s, &e) == 0, "%s", e.msg);
        store_close(s);
        if (test_failed_)
            break;
    }
    struct store *s = rig_open(STORE_READ);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    for (int64_t job = 1; job < (int64_t)jobs; job++)
        CHECK(rig_state(s, job) == JOB_DONE && rig_text_is(s, job, TOKENS), "job %" PRId64, job);
    CHECK(kills == want && resumed > (size_t)want / 3 && hot > 0,
          "%d kills, %zu with text, %zu in the middle of a commit", kills, resumed, hot);
    printf("    %d kills over %zu jobs, %zu of them in the middle of a commit\n", kills, jobs, hot);
    store_close(s);
    munmap(m, sizeof *m);
}

static void kills_of_a_first_start_leave_a_store_or_nothing(void)
{
    const int want = long_run ? 1000 : 60;
    int hot = 0, empty = 0;
    struct err e = {0};
    srand(11);
    for (int i = 0; i < want; i++) {
        char journal[128];
        struct stat st;
        rig_new();
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *s = rig_open(STORE_CREATE);
            rig_submit(s, 10);
            store_close(s);
            _exit(0);
        }
        sleep_ms(0.05 + rand() % 300 / 100.0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        snprintf(journal, sizeof journal, "%s-journal", rig_path);
        hot += access(journal, F_OK) == 0;
        empty += stat(rig_path, &st) == 0 && st.st_size == 0;
        struct store *s = rig_open(STORE_CREATE);
        CHECK(store_check(s, &e) == 0, "%s", e.msg);
        int64_t n = rig_sql("SELECT count(*) FROM job");
        CHECK(n == 0 || n == 1);
        int64_t id = rig_submit(s, 10);
        CHECK(id == n + 1);
        store_close(s);
    }
    printf("    %d kills, %d with a journal, %d with an empty file\n", want, hot, empty);
}

/* Workers are killed, or stopped for longer than the lease and continued: every job is done once, with the
 * right text. */
static void a_queue_survives_killed_and_stopped_workers(void)
{
    enum { WORKERS = 4, TOKENS = 60 };
    const int jobs = long_run ? 10000 : 250;
    struct shared *m = shared_memory();
    struct err e = {0};
    pid_t pid[WORKERS] = {0}, stopped = 0;
    int kills = 0, stops = 0, left = WORKERS;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < jobs; i++)
        rig_submit(s, TOKENS);
    store_close(s);
    fflush(stdout);
    srand(13);
    for (int k = 0; k < WORKERS; k++)
        if ((pid[k] = fork()) == 0)
            write_until_killed(m, 0.002, 0.3, 0.4);
    double start = clock_seconds(), stopped_at = 0;
    while (left > 0 && clock_seconds() - start < (long_run ? 3000 : 90 * SLOWER)) {
        sleep_ms(20 + rand() % 20);
        int k = rand() % WORKERS, status;
        if (stopped && clock_seconds() - stopped_at > 0.6) {
            kill(stopped, SIGCONT);
            stopped = 0;
        }
        for (int i = 0; i < WORKERS; i++)
            if (pid[i] && waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
                pid[i] = 0;
                left--;
            }
        if (!pid[k])
            continue;
        if (!stopped && rand() % 2) {
            stopped = pid[k];
            stopped_at = clock_seconds();
            kill(stopped, SIGSTOP);
            stops++;
        } else if (pid[k] != stopped && rand() % 2) {
            kill(pid[k], SIGKILL);
            waitpid(pid[k], NULL, 0);
            kills++;
            fflush(stdout);
            if ((pid[k] = fork()) == 0)
                write_until_killed(m, 0.002, 0.3, 0.4);
        }
    }
    for (int k = 0; k < WORKERS; k++)
        if (pid[k]) {
            kill(pid[k], SIGKILL);
            waitpid(pid[k], NULL, 0);
        }
    CHECK(left == 0, "%d workers did not end", left);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND tokens = 60") == jobs);
    CHECK(rig_sql("SELECT count(*) FROM (SELECT job FROM event WHERE kind = 'done' GROUP BY job HAVING "
                  "count(*) = 1)") == jobs);
    s = rig_open(STORE_READ);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    for (int64_t job = 1; job <= jobs; job++)
        CHECK(rig_text_is(s, job, TOKENS), "job %" PRId64, job);
    store_close(s);
    CHECK(kills > 5 && stops > 1);
    printf("    %d jobs, %d workers killed, %d stopped beyond their lease, %" PRId64 " take-overs\n", jobs,
           kills, stops, rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over'"));
    munmap(m, sizeof *m);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    RUN(the_first_token_is_committed_at_once);
    RUN(later_tokens_are_committed_in_time);
    RUN(a_busy_database_does_not_block_the_loop);
    RUN(notes_are_committed_in_order_and_block_nothing);
    RUN(a_lost_job_is_reported_and_not_written);
    RUN(counters_and_rounds_are_committed_with_their_tokens);
    RUN(the_heartbeat_beats_and_detects_a_lost_job);
    RUN(kills_lose_nothing_acknowledged);
    RUN(kills_of_a_first_start_leave_a_store_or_nothing);
    RUN(a_queue_survives_killed_and_stopped_workers);
    rig_end();
    return test_end();
}
