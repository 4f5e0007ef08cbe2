/* Four workers of the real program share a queue of small jobs. Two of them run in pid namespaces of their
 * own, where the system allows it. Meanwhile workers are killed and stopped for longer than their lease,
 * the wall clock jumps, and running jobs are paused, cancelled and removed. Each job must be done once,
 * with the text of an undisturbed run. No job may be lost, and a stale owner must write nothing. Short:
 * 300 jobs; --long: 10,000. */
#include "tests/store_check.h"
#include "tests/program.h"

static bool long_run, can_run;

enum { SEEDS = 8, TOKENS = 30, WORKERS = 4 };
static const double SPEED = 100;         /* of the monotonic clocks: a lease of 60 s takes 0.6 s */

static void sleep_ms(double ms)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6) }, NULL);
}

/* Queue n jobs with alternating seeds, as the program would. */
static void queue_jobs(size_t n)
{
    struct err e = {0};
    struct job_input in;
    struct job_list l;
    int64_t one = 1, *ids = calloc(n, sizeof *ids);
    struct job_spec *v = calloc(n, sizeof *v);
    rig_new();
    faults_none();
    submit_tiny(TOKENS, 1);
    struct store *s = rig_open(STORE_WRITE);
    CHECK(store_input(s, 1, &in, &e) == 0 && store_jobs(s, &one, 1, &l, &e) == 0 && l.n == 1, "%s", e.msg);
    for (size_t i = 0; i < n; i++)
        v[i] = (struct job_spec){ .parameters = in.parameters, .model = l.v[0].model, .prompt = in.prompt,
                                  .prompt_bytes = in.prompt_bytes, .prompt_ids = in.prompt_ids,
                                  .prompt_tokens = in.n_prompt, .seed = i % SEEDS, .wanted = TOKENS };
    CHECK(store_change(s, CHANGE_REMOVE, 0, &one, 1, NULL, &e) == 0 &&
              store_submit(s, NULL, v, n, ids, NULL, NULL, &e) == 0,
          "%s", e.msg);
    CHECK(ids[0] == 2 && ids[n - 1] == (int64_t)n + 1);
    store_close(s);
    job_input_free(&in);
    job_list_free(&l);
    free(ids);
    free(v);
}

static pid_t start_worker(bool own_space)
{
    char file[4200];
    snprintf(file, sizeof file, "%s/longhand", program_dir);
    if (!own_space)
        return program_start_as(file, WORK);
    program_new_space = true;
    pid_t pid = program_start_as(file, WORK);
    program_new_space = false;
    return pid;
}

/* The texts of undisturbed jobs, by seed. */
static bool expected(struct text want[SEEDS])
{
    queue_jobs(SEEDS);
    int status = program(WORK);
    CHECK(exited(status, 0), "%s", program_err());
    struct store *s = rig_open(STORE_READ);
    for (int64_t i = 0; i < SEEDS; i++)
        want[i] = stored_text(s, 2 + i);
    store_close(s);
    return want[0].n == TOKENS && want[1].n == TOKENS &&
           memcmp(want[0].ids, want[1].ids, TOKENS * sizeof *want->ids) != 0;
}

/* The process `waker` continues a stopped worker, because this process may be waiting for a lock that the
 * worker holds. */
struct chaos { pid_t pid[WORKERS], stopped, waker; int kills, stops, steps, changed; size_t jobs, n; };

/* Take a job from its worker, for a while or for good. */
static void interfere(struct chaos *c, struct store *s)
{
    struct err e = {0};
    int64_t job;
    size_t n = 0;
    job = rig_sql("SELECT ifnull((SELECT id FROM job WHERE state = 'running' ORDER BY random() LIMIT 1), 0)");
    if (!job)
        return;
    switch (rand() % 8) {
    case 0:  CHECK(store_change(s, CHANGE_CANCEL, 0, &job, 1, &n, &e) == 0, "%s", e.msg); break;
    case 1:  CHECK(store_change(s, CHANGE_REMOVE, 0, &job, 1, &n, &e) == 0, "%s", e.msg); break;
    default: CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, &n, &e) == 0, "%s", e.msg);
             sleep_ms(rand() % 3);
             CHECK(n == 0 || store_change(s, CHANGE_RESUME, 0, &job, 1, NULL, &e) == 0, "%s", e.msg);
    }
    c->changed += (int)n;
}

static void disturb(struct chaos *c, struct store *s, bool spaces)
{
    /* a minimum of each disturbance, however soon the jobs are done */
    static const int first[] = { 0, 5, 6, 9, 0, 9, 0, 8, 0, 0, 0, 0 };
    int k = rand() % WORKERS, what = c->n < sizeof first / sizeof *first ? first[c->n] : rand() % 10;
    c->n++;
    if (c->waker && waitpid(c->waker, NULL, WNOHANG) == c->waker)
        c->waker = c->stopped = 0;
    if (what < 5 && c->pid[k] && c->pid[k] != c->stopped) {
        kill(c->pid[k], SIGKILL);
        c->kills += was_killed(program_wait(c->pid[k]));
        c->pid[k] = start_worker(spaces && k >= WORKERS / 2);
    } else if (what == 5 && c->pid[k] && !c->stopped) {
        c->stopped = c->pid[k];
        kill(c->stopped, SIGSTOP);
        c->stops++;
        if ((c->waker = fork()) == 0) {
            sleep_ms(1000 * 90 / SPEED);
            kill(c->stopped, SIGCONT);
            _exit(0);
        }
    } else if (what == 6) {
        faults->wall = rand() % 7200 - 3600;
        c->steps++;
    } else if (what > 6) {
        interfere(c, s);
    }
}

static void check_results(const struct chaos *c, const struct text want[SEEDS])
{
    struct err e = {0};
    struct store *s = rig_open(STORE_READ);
    int wrong = 0;
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state NOT IN ('done', 'cancelled')") == 0,
          "%" PRId64 " jobs are lost",
          rig_sql("SELECT count(*) FROM job WHERE state NOT IN ('done', 'cancelled')"));
    CHECK(rig_sql("SELECT count(*) FROM job") + c->changed >= (int64_t)c->jobs);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND (SELECT count(*) FROM event WHERE job = "
                  "job.id AND kind = 'done') <> 1") == 0,
          "done twice");
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND tokens <> (SELECT sum(value) FROM "
                  "metric WHERE job = job.id AND source = '' AND name = 'tokens')") == 0,
          "tokens that two owners have counted");
    CHECK(rig_sql("SELECT count(*) FROM event d JOIN event l ON l.job = d.job AND l.id > d.id AND l.kind IN "
                  "('claimed', 'done') WHERE d.kind = 'done'") == 0,
          "claimed when it was done");
    CHECK(rig_sql("SELECT count(*) FROM worker") == 0 ||
          rig_sql("SELECT count(*) FROM job WHERE worker IS NOT NULL") == 0);
    for (int64_t job = 2; job < (int64_t)c->jobs + 2; job++) {
        struct job_list l;
        CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
        if (l.n) {
            const struct text *w = &want[(job - 2) % SEEDS];
            struct text t = stored_text(s, job);
            wrong += !begins_with(w, &t, l.v[0].state == JOB_DONE ? w->n : 0);
            free(t.ids);
        }
        job_list_free(&l);
    }
    CHECK(wrong == 0, "%d texts are wrong", wrong);
    store_close(s);
}

static void a_queue_under_chaos_does_each_job_once(void)
{
    struct text want[SEEDS] = {{0}};
    struct chaos c = { .jobs = long_run ? 10000 : 1000 };
    if (!can_run)
        SKIP(NO_PROGRAM);
    CHECK(expected(want));
    program_new_space = true;
    pid_t pid = program_start("--version");
    program_new_space = false;
    bool spaces = pid > 0 && exited(program_wait(pid), 0);
    queue_jobs(c.jobs);
    faults->speed = SPEED;
    srand(29);
    for (int k = 0; k < WORKERS; k++)
        c.pid[k] = start_worker(spaces && k >= WORKERS / 2);
    struct store *s = rig_open(STORE_WRITE);
    double start = clock_seconds();
    while (clock_seconds() - start < (long_run ? 7200 : 300) && !test_failed_) {
        int status, left = 0;
        sleep_ms(10 + rand() % 30);
        for (int k = 0; k < WORKERS; k++)
            if (c.pid[k] && waitpid(c.pid[k], &status, WNOHANG) == c.pid[k]) {
                /* 75: the database was held for five minutes of its own clock */
                CHECK(exited(status, 0) || exited(status, 75), "%x %s", status, program_err());
                c.pid[k] = exited(status, 0) ? 0 : start_worker(spaces && k >= WORKERS / 2);
            } else {
                left += c.pid[k] != 0;
            }
        if (!left && rig_sql("SELECT count(*) FROM job WHERE state IN ('queued', 'running')") == 0)
            break;
        if (!left)                       /* a job returned to the queue after the last worker ended */
            c.pid[0] = start_worker(false);
        disturb(&c, s, spaces);
    }
    store_close(s);
    double seconds = clock_seconds() - start;
    if (c.waker)
        program_wait(c.waker);
    for (int k = 0; k < WORKERS; k++)
        if (c.pid[k]) {
            CHECK(false, "worker %d has not ended", k);
            kill(c.pid[k], SIGKILL);
            program_wait(c.pid[k]);
        }
    check_results(&c, want);
    CHECK(c.kills > 2 && c.stops > 0 && c.steps > 0 && c.changed > 0);
    printf("    %zu jobs in %.0f s: %d workers killed, %d stopped beyond their lease, %d jumps of the clock, "
           "%d jobs taken away, %" PRId64 " take-overs; pid namespaces: %s\n",
           c.jobs, seconds, c.kills, c.stops, c.steps, c.changed,
           rig_sql("SELECT count(*) FROM event WHERE kind = 'taken over'"), spaces ? "three" : "one");
    for (int i = 0; i < SEEDS; i++)
        free(want[i].ids);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    can_run = program_open();
    RUN(a_queue_under_chaos_does_each_job_once);
    rig_end();
    program_close();
    return test_end();
}
