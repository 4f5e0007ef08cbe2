/* kill -9 of the real program: at random moments of long jobs; and in place of, after, and in the middle
 * of every call that changes a file, while the program works, recovers from an earlier kill, creates its
 * store, migrates an old store, compacts it, and copies it. After each kill: everything that another process
 * could read exists, the database is undamaged, and the text ends like that of an undisturbed run. Short: 60
 * random kills; every call once. --long: 10,000 random kills; every call in three ways, and under strace
 * where tracing is allowed. */
#include "runs/store/store_db.h"
#include "tests/store_check.h"
#include "tests/replay.h"

static bool long_run, can_run;

static void sleep_ms(double ms)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6) }, NULL);
}

static struct job_list job_row(struct store *s, int64_t job)
{
    struct job_list l;
    struct err e = {0};
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
    return l;
}

/* Check the store after a kill: it is undamaged, and job 1 is a prefix of the undisturbed text with at
 * least `acked` tokens. Returns its tokens. */
static size_t check_store(const struct text *whole, size_t acked, const char *when, int64_t at)
{
    struct err e = {0};
    struct store *s = rig_open(STORE_READ);
    CHECK(store_check(s, &e) == 0, "%s, call %" PRId64 ": %s", when, at, e.msg);
    struct text t = stored_text(s, 1);
    CHECK(begins_with(whole, &t, acked), "%s, call %" PRId64 ": %zu tokens, %zu acknowledged", when, at, t.n,
          acked);
    free(t.ids);
    store_close(s);
    return t.n;
}

/* Let another worker complete the text, and check it. */
static void complete_text(const struct text *whole, const char *when, int64_t at)
{
    faults_none();
    int status = program(WORK);
    CHECK(exited(status, 0), "%s, call %" PRId64 ": %x %s", when, at, status, program_err());
    CHECK(check_store(whole, whole->n, when, at) == whole->n);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state <> 'done'") == 0 &&
              rig_sql("SELECT count(*) FROM event WHERE kind = 'done' AND job = 1") == 1,
          "%s, call %" PRId64, when, at);
}

static bool hot_journal(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s-journal", rig_path);
    return access(path, F_OK) == 0;
}

/* ---- kills at random moments ---- */

static void random_kills_lose_nothing(void)
{
    enum { TOKENS = 2000 };
    const int want = long_run ? 10000 : 60;
    int kills = 0, jobs = 0, hot = 0, resumed = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    struct text whole = undisturbed(TOKENS);
    srand(5);
    while (kills < want && !test_failed_) {
        size_t seen = 0;
        rig_new();
        faults_none();
        faults->speed = 100;             /* a checkpoint every 8 ms */
        submit_tiny(TOKENS, 1);
        jobs++;
        bool done = false;
        siginfo_t info = {0};
        while (!done && kills < want && !test_failed_) {
            /* counted in tokens, so that the moments do not depend on the load of the machine */
            faults->classes = CALL_CHANGES;
            faults->at = INT64_MAX;
            faults->n = 0;
            pid_t pid = program_start(WORK);
            int64_t until = rand() % 4 ? 60 + rand() % 90 : rand() % 400;
            for (double t = clock_seconds();
                 faults->n < until && clock_seconds() - t < 5 &&
                 waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid;)
                sleep_ms(0.2);
            sleep_ms(rand() % 200 / 100.0);
            struct store *s = rig_open(STORE_READ);
            struct job_list l = job_row(s, 1);
            size_t acked = l.n ? l.v[0].tokens : 0;
            job_list_free(&l);
            store_close(s);
            /* every other kill hits the middle of a commit; the sleep lets the program go on where both have
             * one CPU */
            if (rand() % 2)
                for (double t = clock_seconds(); !hot_journal() && clock_seconds() - t < 0.02;)
                    sleep_ms(0.02);
            kill(pid, SIGKILL);
            int status = program_wait(pid);
            CHECK(was_killed(status) || exited(status, 0), "%x %s", status, program_err());
            kills += was_killed(status);
            hot += hot_journal();
            size_t now = check_store(&whole, MAX(acked, seen), "at random", kills);
            resumed += now > seen && seen > 0;
            seen = now;
            s = rig_open(STORE_READ);
            done = rig_state(s, 1) == JOB_DONE;
            store_close(s);
        }
        complete_text(&whole, "at random", kills);
    }
    free(whole.ids);
    CHECK(hot > 0 && resumed > want / 20, "%d in the middle of a commit, %d went on", hot, resumed);
    printf("    %d kills over %d jobs of %d tokens, %d in the middle of a commit\n", kills, jobs, TOKENS,
           hot);
}

/* ---- kills at every call ---- */

/* The tokens of job 1 that another process could read before the kill, from the log. `before` is the
 * earlier database. */
static size_t acknowledged(const char *before)
{
    char path[128], now[128];
    struct log l;
    size_t tokens = 0, last = SIZE_MAX;
    log_end(&l);
    strcpy(path, rig_path);
    snprintf(now, sizeof now, "%s.now", program_page);
    disk_reset();
    if (before) {                        /* under its name in the log */
        int k = disk_take(before);
        disk.name[disk.n_names - 1].n_states = 1;
        strcpy(disk_name(before)->path, path);
        assert(k >= 0);
    }
    for (size_t i = 0; i < l.n; i++) {   /* up to the last released lock */
        play(&l, i, BELIEVE_ALL);
        if (strcmp(l.v[i].path, path) == 0 && readable_at(&l, i))
            last = i;
    }
    disk_reset();
    if (last < l.n) {
        if (before) {
            disk_take(before);
            strcpy(disk_name(before)->path, path);
        }
        for (size_t i = 0; i <= last; i++)
            play(&l, i, BELIEVE_ALL);
        size_t n;
        uint8_t *v = inode_image(&disk.inode[disk_now(disk_name(path))], true, &n);
        FILE *f = fopen(now, "wb");
        assert(f && fwrite(v, 1, n, f) == n);
        fclose(f);
        free(v);
        char rig[96];
        strcpy(rig, rig_path);
        strcpy(rig_path, now);
        if (n > 4096 && rig_sql("PRAGMA user_version"))
            tokens = (size_t)rig_sql("SELECT ifnull(max(tokens), 0) FROM job WHERE id = 1");
        strcpy(rig_path, rig);
        unlink(now);
    }
    disk_reset();
    log_free(&l);
    return tokens;
}

static const struct { enum fault_what what; const char *name; } ways[] = {
    { FAULT_KILL, "in place of" }, { FAULT_KILL_AFTER, "after" }, { FAULT_KILL_HALF, "in the middle of" },
};

static void kill_at(enum fault_what what, int64_t at)
{
    double speed = faults->speed;
    faults_none();
    faults->speed = speed;
    faults->classes = CALL_CHANGES;
    faults->what = what;
    faults->at = at;
    faults->times = 1;
}

/* Make a store with one queued job of 200 tokens and copy it to `to`. */
static void queued_job(char to[128])
{
    rig_new();
    faults_none();
    submit_tiny(200, 1);
    snprintf(to, 128, "%s.queued", program_page);
    copy_file(to, rig_path);
}

static void restore_store(const char *queued)
{
    char journal[128];
    snprintf(journal, sizeof journal, "%s-journal", rig_path);
    unlink(journal);
    copy_file(rig_path, queued);
}

static void kills_at_every_writing_call_lose_nothing(void)
{
    char queued[128];
    int points = 0, hot = 0, second = 0;
    size_t most = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    struct text whole = undisturbed(200);
    queued_job(queued);
    for (int way = 0; way < 3; way++) {
        bool fired = true;
        for (int64_t at = 1 + (long_run ? 0 : way * 3); fired && !test_failed_;
             at += way == 0 || long_run ? 1 : 11)
            for (int64_t again = 0;
                 again == 0 || (fired && again < 40 && (long_run ? at % 5 == 0 : way == 0 && at % 59 == 0));
                 again++) {
                restore_store(queued);
                faults_none();
                faults->speed = 1000;    /* a checkpoint every 0.8 ms */
                kill_at(ways[way].what, at);
                log_begin();
                int status = program(WORK);
                fired = was_killed(status);
                CHECK(fired || exited(status, 0), "%x %s", status, program_err());
                size_t acked = acknowledged(queued);
                most = MAX(most, acked);
                /* a second kill, while the next process recovers and continues */
                if (again) {
                    if (!hot_journal())
                        break;
                    kill_at(ways[way].what, again);
                    if (!was_killed(program(WORK)))
                        break;
                    second++;
                } else {
                    points += fired;
                    hot += fired && hot_journal();
                }
                size_t now = check_store(&whole, acked, ways[way].name, at);
                if (fired && (long_run || at % 4 == 0 || now == 0))
                    complete_text(&whole, ways[way].name, at);
            }
    }
    unlink(queued);
    free(whole.ids);
    CHECK(points > 100 && hot > 30 && second > 10 && most > 0 && most < 200 + 1,
          "%d points, %d hot, %d second, %zu acknowledged", points, hot, second, most);
    printf("    %d calls, %d in the middle of a commit, %d more during recovery\n", points, hot, second);
}

/* strace kills at the entry of the n-th system call of a thread, whichever function of the C library makes
 * it. Long: for every n of every kind of call. The kinds are tested one after the other, because a
 * frequent kind would hide the others. */
static void kills_under_strace_lose_nothing(void)
{
    static const char strace[] = "/usr/bin/strace",
        *const all[] = { "write,pwrite64,writev,fsync,fdatasync,ftruncate,unlink,rename,mkdir,fchown,fchmod",
                         NULL },
        *const each[] = { "write", "pwrite64", "openat", "fsync", "fdatasync", "ftruncate", "unlink",
                          "writev,pwritev,rename,mkdir,fchown,fchmod", NULL };
    const char *const *kinds = long_run ? each : all;
    char queued[128], words[4800];
    int points = 0, kills = 0;
    size_t most = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    faults_none();
    rig_new();
    if (access(strace, X_OK) || !exited(program_wait(program_start_as(strace, "-qq -o /dev/null true")), 0))
        SKIP("no strace, or it may not trace here");
    struct text whole = undisturbed(200);
    queued_job(queued);
    for (size_t k = 0; kinds[k]; k++, points += kills) {
        bool fired = true;
        kills = 0;
        for (int64_t at = 1; fired && !test_failed_; at += long_run ? 1 : 31) {
            restore_store(queued);
            faults_none();
            faults->speed = 1000;
            log_begin();
            snprintf(words, sizeof words,
                     "-f -qq -o /dev/null -e inject=%s:signal=SIGKILL:when=%" PRId64 " %s/longhand " WORK,
                     kinds[k], at, program_dir);
            int status = program_wait(program_start_as(strace, words));
            fired = was_killed(status);
            kills += fired;
            CHECK(fired || exited(status, 0), "%s %" PRId64 ": %x %s", kinds[k], at, status, program_err());
            size_t acked = acknowledged(queued);
            most = MAX(most, acked);
            check_store(&whole, acked, kinds[k], at);
            if (fired)
                complete_text(&whole, kinds[k], at);
        }
        if (long_run)
            printf("    %s: %d points\n", kinds[k], kills);
    }
    unlink(queued);
    free(whole.ids);
    CHECK(points > (long_run ? 200 : 5) && (most > 0 || !long_run), "%d points, %zu acknowledged", points,
          most);
    printf("    %d points\n", points);
}

/* The first command creates folders and store. Whenever it is killed, the next command finds a store or
 * creates it. */
static void the_store_survives_kills_of_a_first_start(void)
{
    int points = 0, there = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    struct text whole = undisturbed(20);
    char state[72];
    program_uses_default_store = true;       /* The program makes no folders of another store. */
    for (int way = 0; way < 3; way++) {
        bool fired = true;
        for (int64_t at = 1; fired && !test_failed_; at += way == 0 || long_run ? 1 : 3) {
            struct err e = {0};
            rig_new();
            snprintf(state, sizeof state, "%.60s/d/e", rig_dir);
            CHECK(setenv("XDG_STATE_HOME", state, 1) == 0);
            snprintf(rig_path, sizeof rig_path, "%s/longhand/longhand.db", state);
            kill_at(ways[way].what, at);
            int status = program("submit -m " TINY " -p the -n 20 -s 7 --ignore-eos --threads 1");
            fired = was_killed(status);
            points += fired;
            bool said = file_start(program_out)[0] == '1';
            CHECK(fired || (exited(status, 0) && said), "%x %s", status, program_err());
            faults_none();
            submit_tiny(20, 1);
            struct store *s = rig_open(STORE_WRITE);
            CHECK(store_check(s, &e) == 0, "%s", e.msg);
            store_close(s);
            int64_t jobs = rig_sql("SELECT count(*) FROM job");
            CHECK(jobs == 2 || (jobs == 1 && !said), "call %" PRId64 ": %" PRId64 " jobs, said %d", at, jobs,
                  said);
            there += jobs == 2 && fired;
            if (at % 4 == 0)
                complete_text(&whole, "first start", at);
        }
    }
    program_uses_default_store = false;
    free(whole.ids);
    CHECK(points > 25 && there > 0, "%d %d", points, there);
    printf("    %d calls, %d times the job was there\n", points, there);
}

/* ---- kills of a migration: this test program itself, with the library of faults ---- */

enum { OLD = STORE_VERSION, NEW = STORE_VERSION + 2 };
static const char *const steps[NEW] = {
    [OLD] = "ALTER TABLE job ADD COLUMN extra TEXT; UPDATE job SET extra = 'x' || id",
    "CREATE TABLE more (a); INSERT INTO more SELECT id FROM job; CREATE INDEX more_a ON more (a)",
};

static int migrate(void)
{
    struct store *s;
    struct err e = {0};
    const char *path = getenv("LONGHAND_DB");
    int rc = store_open(&s, path, &(struct store_options){ .mode = STORE_WRITE }, &e) || store_migrate(s,
        steps, OLD, NEW, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.msg);
    store_close(s);
    return rc ? 1 : 0;
}

/* Open the store, which migrates it. */
static int upgrade(void)
{
    struct store *s;
    struct err e = {0};
    int rc = store_open(&s, getenv("LONGHAND_DB"), &(struct store_options){ .mode = STORE_WRITE }, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.msg);
    store_close(rc ? NULL : s);
    return rc ? 1 : 0;
}

static void kills_of_a_migration_leave_the_old_or_the_new_version(void)
{
    enum { JOBS = 60 };
    char queued[128], self[4096];
    int points = 0, old = 0, again = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = 0;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < JOBS; i++)
        rig_submit(s, 10);
    store_close(s);
    snprintf(queued, sizeof queued, "%s.queued", program_page);
    copy_file(queued, rig_path);
    for (int way = 0; way < 3; way++) {
        bool fired = true;
        for (int64_t at = 1; fired && !test_failed_; at += way == 0 || long_run ? 1 : 3)
            for (int64_t second = 0; second == 0 || (fired && second < 60 && at % (long_run ? 3 : 20) == 0);
                 second++) {
                restore_store(queued);
                kill_at(ways[way].what, at);
                int status = program_wait(program_start_as(self, "--migrate"));
                fired = was_killed(status);
                CHECK(fired || exited(status, 0), "%x %s", status, program_err());
                if (second) {
                    kill_at(ways[way].what, second);
                    if (!was_killed(program_wait(program_start_as(self, "--migrate"))))
                        break;
                    again++;
                }
                points += fired && !second;
                int64_t version = rig_sql("PRAGMA user_version"),
                        columns =
                            rig_sql("SELECT count(*) FROM pragma_table_info('job') WHERE name = 'extra'");
                CHECK((version == OLD && columns == 0) || (version == NEW && columns == 1),
                      "call %" PRId64 ": version %" PRId64, at, version);
                CHECK(rig_sql("SELECT count(*) FROM pragma_integrity_check() WHERE integrity_check = 'ok'") ==
                          1 &&
                      rig_sql("SELECT count(*) FROM job") == JOBS);
                old += version == OLD;
                faults_none();
                if (version == OLD)
                    CHECK(exited(program_wait(program_start_as(self, "--migrate")), 0), "%s", program_err());
                CHECK(rig_sql("SELECT count(*) FROM job j JOIN more ON more.a = j.id WHERE j.extra = 'x' || "
                              "j.id") == JOBS,
                      "call %" PRId64, at);
            }
    }
    unlink(queued);
    CHECK(points > 30 && old > 20 && again > 10, "%d %d %d", points, old, again);
    printf("    %d calls, %d left the old version, %d more during recovery\n", points, old, again);
}

/* ---- kills of what changes or copies the whole file ---- */

enum { MANY = 90, MANY_LONG = 1000, TEXT = 40 };

/* Make a store with finished jobs of three models and copy it to `to`. */
static int many_jobs(char to[128])
{
    const int n = long_run ? MANY_LONG : MANY;
    struct err e = {0};
    rig_new();
    faults_none();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t worker = rig_worker(s);
    for (int i = 0; i < n; i++) {
        struct claim c;
        const struct job_end end = { .state = JOB_DONE, .finish_reason = "length" };
        const struct metric m[] = { { 0, "", "tokens", 0, TEXT }, { 0, "", "seconds", 0, 0.5 } };
        const int64_t job = rig_submit(s, TEXT);
        CHECK(rig_claim(s, worker, job, &c) == 1, "job %d", i);
        int32_t *v = rig_tokens(job, 0, TEXT);
        const struct commit b = { .ids = v, .n = TEXT, .end = &end, .metrics = m, .n_metrics = 2 };
        CHECK(store_commit(s, &c, &b, &e) == 0, "%s", e.msg);
        free(v);
    }
    store_worker_end(s, worker, &e);
    store_close(s);
    rig_sql("UPDATE job SET model = '/m/' || (id % 3)");
    snprintf(to, 128, "%s.queued", program_page);
    return n;
}

/* Check jobs first .. n, with their texts. */
static void check_many(const char *path, int first, int n, const char *when, int64_t at)
{
    char own[sizeof rig_path];
    struct err e = {0};
    memcpy(own, rig_path, sizeof own);
    if (path != rig_path)
        snprintf(rig_path, sizeof rig_path, "%s", path);
    struct store *s = rig_open(STORE_WRITE);
    CHECK(store_check(s, &e) == 0, "%s, call %" PRId64 ": %s", when, at, e.msg);
    for (int64_t job = first; job <= n && !test_failed_; job += job == first ? 6 : 7) {
        struct job_list l = job_row(s, job);
        CHECK(l.n == 1 && l.v[0].state == JOB_DONE && l.v[0].made == TEXT && l.v[0].seconds == 0.5 &&
                  strcmp(l.v[0].opening, "Once upon") == 0 && rig_text_is(s, job, TEXT),
              "%s, call %" PRId64 ": job %" PRId64, when, at, job);
        job_list_free(&l);
    }
    store_close(s);
    CHECK(rig_sql("SELECT count(*) FROM job") == n - first + 1, "%s, call %" PRId64, when, at);
    memcpy(rig_path, own, sizeof own);
}

static void kills_of_the_migration_from_version_2_lose_nothing(void)
{
    char queued[128], self[4096];
    int points = 0, old = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = 0;
    const int jobs = many_jobs(queued);
    rig_to_version_2();
    copy_file(queued, rig_path);
    for (int way = 0; way < 3; way++) {
        bool fired = true;
        for (int64_t at = 1; fired && !test_failed_; at += way == 0 || long_run ? 1 : 3) {
            restore_store(queued);
            kill_at(ways[way].what, at);
            int status = program_wait(program_start_as(self, "--upgrade"));
            fired = was_killed(status);
            CHECK(fired || exited(status, 0), "%x %s", status, program_err());
            faults_none();
            points += fired;
            const int64_t version = rig_sql("PRAGMA user_version");
            CHECK(version == 2 || version == STORE_VERSION, "version %" PRId64, version);
            old += version == 2;
            check_many(rig_path, 1, jobs, ways[way].name, at);   /* opens it, which migrates */
            CHECK(rig_sql("PRAGMA user_version") == STORE_VERSION);
        }
    }
    unlink(queued);
    CHECK(points > 20 && old > 10 && old < points, "%d %d", points, old);
    printf("    %d calls over %d jobs, %d left version 2\n", points, jobs, old);
}

static void kills_of_compact_and_backup_lose_nothing(void)
{
    char queued[128], copy[128], words[256];
    int points = 0, hot = 0, copies = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    const int jobs = many_jobs(queued), first = jobs / 3;
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA foreign_keys=ON; DELETE FROM job WHERE id < %d", first);
    rig_sql(sql);
    copy_file(queued, rig_path);
    snprintf(copy, sizeof copy, "%s.copy", rig_path);
    snprintf(words, sizeof words, "backup -q --force %s", copy);
    for (int what = 0; what < 2; what++)
        for (int way = 0; way < 3; way++) {
            bool fired = true;
            for (int64_t at = 1; fired && !test_failed_; at += long_run || way == 0 ? 1 : 7) {
                restore_store(queued);
                copy_file(copy, queued);
                kill_at(ways[way].what, at);
                int status = program(what ? words : "compact -q");
                fired = was_killed(status);
                CHECK(fired || exited(status, 0), "%x %s", status, program_err());
                faults_none();
                points += fired;
                hot += fired && hot_journal();
                copies += fired && what;
                check_many(rig_path, first, jobs, ways[way].name, at);
                if (what)
                    check_many(copy, first, jobs, ways[way].name, at);
                if (!what)
                    CHECK(exited(program("compact -q"), 0) && rig_sql("PRAGMA freelist_count") == 0, "%s",
                          program_err());
            }
        }
    unlink(queued);
    unlink(copy);
    CHECK(points > 20 && hot > 5 && copies > 5, "%d %d %d", points, hot, copies);
    printf("    %d calls, %d in the middle of a commit, %d of a backup\n", points, hot, copies);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--migrate") == 0)
        return migrate();
    if (argc > 1 && strcmp(argv[1], "--upgrade") == 0)
        return upgrade();
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    can_run = program_open();
    RUN(random_kills_lose_nothing);
    RUN(kills_at_every_writing_call_lose_nothing);
    RUN(kills_under_strace_lose_nothing);
    RUN(the_store_survives_kills_of_a_first_start);
    RUN(kills_of_a_migration_leave_the_old_or_the_new_version);
    RUN(kills_of_the_migration_from_version_2_lose_nothing);
    RUN(kills_of_compact_and_backup_lose_nothing);
    rig_end();
    program_close();
    return test_end();
}
