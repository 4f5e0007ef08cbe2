/* A worker with several jobs, as the real program: kill -9 at random moments; failing writes; jobs that are
 * paused, cancelled and removed while two workers run four jobs each. Every token that another process could
 * read still exists, each text equals that of the job run alone, and every job is done once. Short: 40 kills,
 * a part of the writes, one storm; --long: 500 kills, every write, ten storms. */
#include "tests/store_check.h"
#include "tests/program.h"

static bool long_run, can_run;

enum { JOBS = 8, FAULTY = 4 };
static struct text alone[JOBS];          /* the texts of the jobs, each run alone */

static void sleep_ms(double ms)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6) }, NULL);
}

static size_t length_of(size_t job) { return 300 + 170 * (job * 5 % JOBS); }

/* Queue n jobs of different lengths, seeds, prompts and drafters. */
static void submit_jobs(size_t n)
{
    static const char *const more[] = { "--drafter none", "--temperature 0.7 --top-p 0.9",
                                        "--drafter ngram,suffix", "--penalty 1.2 --min-p 0.02" };
    char words[300];
    for (size_t i = 0; i < n; i++) {
        snprintf(words, sizeof words, "submit -m " TINY " -p %s -n %zu -s %zu --ignore-eos --threads 1 %s",
                 i % 2 ? "the" : "one,two,three,four,five,six,seven,eight", length_of(i), 7 + i, more[i % 4]);
        if (!exited(program(words), 0)) {
            printf("    %s\n", program_err());
            abort();
        }
    }
}

/* The texts that the jobs have when one runs after the other. */
static void write_alone(void)
{
    rig_new();
    faults_none();
    submit_jobs(JOBS);
    CHECK(exited(program(WORK " --parallel 1"), 0), "%s", program_err());
    struct store *s = rig_open(STORE_READ);
    for (size_t i = 0; i < JOBS; i++) {
        alone[i] = stored_text(s, (int64_t)i + 1);
        CHECK(alone[i].n == length_of(i), "job %zu: %zu tokens", i + 1, alone[i].n);
    }
    store_close(s);
}

static size_t tokens_of(struct store *s, int64_t job)
{
    struct job_list l;
    struct err e = {0};
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
    const size_t n = l.n ? l.v[0].tokens : 0;
    job_list_free(&l);
    return n;
}

/* The store is whole, and every text begins like that of the job alone. acked[i]: tokens that job i + 1 had
 * at least. */
static void check_texts(size_t n, const size_t *acked, const char *when, int64_t at)
{
    struct err e = {0};
    struct store *s = rig_open(STORE_READ);
    CHECK(store_check(s, &e) == 0, "%s %" PRId64 ": %s", when, at, e.msg);
    for (size_t i = 0; i < n; i++) {
        const int64_t job = (int64_t)i + 1;
        if (rig_state(s, job) == JOB_STATES)
            continue;                    /* removed */
        struct text t = stored_text(s, job);
        const size_t least = acked ? acked[i] : 0;
        CHECK(begins_with(&alone[i], &t, least),
              "%s %" PRId64 ", job %" PRId64 ": %zu tokens, %zu acknowledged", when, at, job, t.n, least);
        free(t.ids);
    }
    store_close(s);
}

/* All jobs are done, each once, with the text of the job alone. */
static void check_all_done(size_t n, const char *when, int64_t at)
{
    size_t all[JOBS];
    for (size_t i = 0; i < n; i++)
        all[i] = alone[i].n;
    check_texts(n, all, when, at);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state <> 'done'") == 0, "%s %" PRId64, when, at);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE kind = 'done'") == (int64_t)n, "%s %" PRId64, when, at);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE tokens <> (SELECT sum(value) FROM metric WHERE job = "
                  "job.id AND source = '' AND name = 'tokens')") == 0,
          "%s %" PRId64 ": tokens counted twice", when, at);
}

/* ---- kills ---- */

/* Jobs that run and have stored nothing since they were claimed. After two such attempts a job runs alone. */
static int64_t running_without_gain(void)
{
    return rig_sql("SELECT count(*) FROM job WHERE state = 'running' AND idle > 0");
}

static void kills_lose_nothing(void)
{
    const int want = long_run ? 500 : 40;
    int kills = 0, stores = 0, together = 0;
    bool early = false;                  /* perhaps before a job has stored anything: never twice in a row */
    if (!can_run)
        SKIP(NO_PROGRAM);
    srand(28);
    while (kills < want && !test_failed_) {
        size_t acked[JOBS] = {0};
        bool done = false;
        rig_new();
        faults_none();
        submit_jobs(JOBS);
        faults_none();
        faults->speed = 100;             /* a checkpoint every 8 ms */
        stores++;
        while (!done && kills < want && !test_failed_) {
            siginfo_t info = {0};
            faults->classes = CALL_CHANGES;
            faults->at = INT64_MAX;
            faults->n = 0;
            pid_t pid = program_start(WORK " --parallel 8");
            /* counted in calls, so that the moments do not depend on the load of the machine */
            early = !early && rand() % 4 == 0;
            const int64_t until = early ? rand() % 200 : 100 + rand() % 400;
            for (double t = clock_seconds();
                 (faults->n < until || (!early && running_without_gain())) && clock_seconds() - t < 5 &&
                 waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid;)
                sleep_ms(faults->n < until ? 0.2 : 2);
            sleep_ms(rand() % 300 / 100.0);
            struct store *s = rig_open(STORE_READ);
            for (size_t i = 0; i < JOBS; i++)
                acked[i] = MAX(acked[i], tokens_of(s, (int64_t)i + 1));
            store_close(s);
            together += rig_sql("SELECT count(*) FROM job WHERE state = 'running'") > 1;
            kill(pid, SIGKILL);
            const int status = program_wait(pid);
            CHECK(was_killed(status) || exited(status, 0), "%x %s", status, program_err());
            kills += was_killed(status);
            check_texts(JOBS, acked, "after kill", kills);
            done = rig_sql("SELECT count(*) FROM job WHERE state <> 'done'") == 0;
        }
        faults_none();
        CHECK(exited(program(WORK " --parallel 3"), 0), "%s", program_err());
        check_all_done(JOBS, "after kills", kills);
    }
    CHECK(together > want / 4, "%d kills while several jobs ran", together);
    printf("    %d kills over %d stores of %d jobs, %d while several jobs ran\n", kills, stores, JOBS,
           together);
}

/* ---- failing writes ---- */

struct failure { const char *name; unsigned classes; int error; int64_t times, step; };

static void failing_writes_lose_nothing(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, EIO, 1, 131 },
        { "EIO for ever", CALL_CHANGES, EIO, INT64_MAX, 173 },
        { "ENOSPC once", CALL_WRITE | CALL_NAME, ENOSPC, 1, 149 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, ENOSPC, INT64_MAX, 191 },
        { "EIO from a sync", CALL_SYNC, EIO, 1, 53 },
    };
    char path[160];
    int64_t job;
    struct err e = {0};
    if (!can_run)
        SKIP(NO_PROGRAM);
    rig_new();
    faults_none();
    submit_jobs(FAULTY);
    snprintf(path, sizeof path, "%s.queued", program_page);
    copy_file(path, rig_path);
    for (size_t k = 0; k < sizeof v / sizeof *v && !test_failed_; k++) {
        int failed = 0;
        bool missed = false;
        for (int64_t at = 1; !missed && !test_failed_; at += long_run ? 1 : v[k].step) {
            rig_new();
            copy_file(rig_path, path);
            faults_none();
            faults->speed = 1000;
            faults->classes = v[k].classes;
            faults->what = FAULT_ERROR;
            faults->error = v[k].error;
            faults->times = v[k].times;
            faults->at = at;
            int status = program(WORK " --parallel 4");
            missed = faults->fired == 0;
            failed += !missed;
            CHECK(exited(status, 0) || (!missed && (exited(status, 1) || exited(status, 75)) &&
                                        strlen(program_err()) > 10),
                  "%s, call %" PRId64 ": %x %s", v[k].name, at, status, program_err());
            faults_none();
            check_texts(FAULTY, NULL, v[k].name, at);
            struct store *s = rig_open(STORE_WRITE);
            for (job = 1; job <= FAULTY; job++)
                if (rig_state(s, job) == JOB_FAILED)
                    CHECK(store_change(s, CHANGE_RESUME, 0, &job, 1, NULL, &e) == 0, "%s", e.msg);
            store_close(s);
            status = program(WORK);
            CHECK(exited(status, 0), "%s, call %" PRId64 ": %x %s", v[k].name, at, status, program_err());
            check_all_done(FAULTY, v[k].name, at);
        }
        CHECK(failed > 3, "%s: %d calls", v[k].name, failed);
        printf("    %s: %d calls failed\n", v[k].name, failed);
        fflush(stdout);
    }
    unlink(path);
}

/* ---- storms ---- */

/* Two workers with four jobs each share the queue while jobs are taken from them. */
static void one_storm(unsigned seed, int *changed)
{
    struct err e = {0};
    pid_t pid[2];
    char file[4200];
    size_t n, left = 2;
    srand(seed);
    rig_new();
    faults_none();
    submit_jobs(JOBS);
    faults_none();
    faults->speed = 100;
    snprintf(file, sizeof file, "%s/longhand", program_dir);
    for (size_t i = 0; i < 2; i++)
        pid[i] = program_start_as(file, WORK " --parallel 4");
    struct store *s = rig_open(STORE_WRITE);
    for (size_t step = 0; left && step < 3000 && !test_failed_; step++) {
        int64_t job = 1 + rand() % JOBS;
        sleep_ms(1 + rand() % 8);
        const int what = rand() % 12;
        if (what < 9 && *changed < 1000)
            CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, &n, &e) == 0 &&
                  (n == 0 || store_change(s, CHANGE_RESUME, 0, &job, 1, NULL, &e) == 0), "%s", e.msg);
        else if (what == 9)
            CHECK(store_change(s, CHANGE_CANCEL, 0, &job, 1, &n, &e) == 0, "%s", e.msg);
        else if (what == 10 && step > 20)
            CHECK(store_change(s, CHANGE_REMOVE, 0, &job, 1, &n, &e) == 0, "%s", e.msg);
        else
            n = 0;
        *changed += (int)n;
        left = 0;
        for (size_t i = 0; i < 2; i++) {
            int status;
            if (pid[i] && waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                CHECK(exited(status, 0), "worker %zu: %x %s", i, status, program_err());
                pid[i] = 0;
            }
            left += pid[i] != 0;
        }
    }
    for (size_t i = 0; i < 2; i++)
        if (pid[i]) {
            kill(pid[i], SIGKILL);
            program_wait(pid[i]);
        }
    store_close(s);
    faults_none();
    CHECK(exited(program(WORK), 0), "%s", program_err());
    check_texts(JOBS, NULL, "storm", seed);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state NOT IN ('done', 'cancelled')") == 0);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND tokens <> wanted") == 0);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done' AND (SELECT count(*) FROM event WHERE job = "
                  "job.id AND kind = 'done') <> 1") == 0);
}

static void storms_change_no_text(void)
{
    int changed = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    for (unsigned i = 0; i < (long_run ? 10u : 1u) && !test_failed_; i++)
        one_storm(100 + i, &changed);
    CHECK(changed > (long_run ? 20 : 0), "%d changes", changed);
    printf("    %d changes of running and waiting jobs\n", changed);
}

/* ---- several models ---- */

static void submit_for(const char *model, size_t n, size_t tokens)
{
    char words[300];
    snprintf(words, sizeof words, "submit -m %s -p the -n %zu --samples %zu --drafter none --ignore-eos",
             model, tokens, n);
    CHECK(exited(program(words), 0), "%s", program_err());
}

/* Times at which a job began whose model is not that of the job that began before. */
static int64_t changes_of_model(void)
{
    return rig_sql("SELECT count(*) FROM (SELECT model, lag(model) OVER (ORDER BY started, id) AS last "
                   "FROM job) WHERE model <> last");
}

/* Jobs of the loaded model pass jobs of another model. After half an hour the other model has its turn, and
 * keeps it. The clocks run so fast that half an hour passes while the first jobs are written. Jobs of a
 * higher priority, here every second one, do not begin the half hour anew. */
static void another_model_has_its_turn(void)
{
    static const char other[] = "build/data/models/qwen3-bf16";
    if (!can_run)
        SKIP(NO_PROGRAM);
    for (int late = 0; late < 3; late++) {
        rig_new();
        faults_none();
        for (int i = 0; i < 3; i++) {
            submit_for(TINY, 8, 400);
            submit_for(other, 2, 20);
        }
        if (late == 2)
            rig_sql("CREATE TRIGGER urgent AFTER UPDATE OF state ON job WHEN NEW.state = 'done' AND "
                    "NEW.priority = 0 BEGIN UPDATE job SET priority = 1 WHERE id = (SELECT min(id) FROM job "
                    "WHERE state = 'queued' AND model LIKE '%llama2%'); END");
        faults_none();
        faults->speed = late ? 20000 : 1;
        CHECK(exited(program(WORK " --parallel 1"), 0), "%s", program_err());
        const int64_t changes = changes_of_model(),
                      waited = rig_sql("SELECT (SELECT min(started) FROM job WHERE model LIKE '%qwen3%') > "
                                       "(SELECT max(started) FROM job WHERE model LIKE '%llama2%')");
        CHECK((late == 2 || changes == 1 + late) && waited == !late, "%d: %" PRId64 " changes, %" PRId64,
              late, changes, waited);
    }
}

/* ---- a dead worker ---- */

/* A worker that writes a job and has a free place takes over the job of a dead worker, though the next job
 * of the queue needs another model and may not join. */
static void a_busy_worker_takes_over(void)
{
    static const char other[] = "build/data/models/qwen3-bf16";
    struct claim c;
    if (!can_run)
        SKIP(NO_PROGRAM);
    rig_new();
    faults_none();
    submit_for(TINY, 1, 8000);
    submit_for(TINY, 1, 20);
    submit_for(other, 1, 20);
    faults_none();
    faults->speed = 100;
    struct store *s = rig_open(STORE_WRITE);
    struct claim_request wish = { .worker = rig_worker(s), .job = 2 };
    struct err e = {0};
    CHECK(store_claim(s, &wish, &c, &e) == 1, "%s", e.msg);
    const pid_t pid = program_start(WORK);
    for (int i = 0; i < 5000 && tokens_of(s, 1) == 0; i++)
        sleep_ms(2);
    rig_sql("DELETE FROM worker WHERE id = (SELECT worker FROM job WHERE id = 2)");
    const int status = program_wait(pid);
    CHECK(exited(status, 0), "%x %s", status, program_err());
    store_close(s);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done'") == 3);
    CHECK(rig_sql("SELECT (SELECT ended FROM job WHERE id = 2) < (SELECT ended FROM job WHERE id = 1)") == 1);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    can_run = program_open();
    if (can_run)
        write_alone();
    RUN(kills_lose_nothing);
    RUN(failing_writes_lose_nothing);
    RUN(storms_change_no_text);
    RUN(another_model_has_its_turn);
    RUN(a_busy_worker_takes_over);
    for (size_t i = 0; i < JOBS; i++)
        free(alone[i].ids);
    rig_end();
    program_close();
    return test_end();
}
