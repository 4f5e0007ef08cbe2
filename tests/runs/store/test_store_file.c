/* The file of a job store: private, refused if foreign or damaged, read-only, migrations, busy databases,
 * network file systems. */
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "runs/store/store_db.h"
#include "tests/store_check.h"
#include "tests/store_rig.h"

static bool long_run;

static size_t files_in_rig(void)
{
    char cmd[128];
    size_t n = 0;
    snprintf(cmd, sizeof cmd, "ls -A '%s' | wc -l", rig_dir);
    FILE *f = popen(cmd, "r");
    CHECK(f && fscanf(f, "%zu", &n) == 1);
    pclose(f);
    return n;
}

/* ---- the file ---- */

static void a_new_store_is_private_and_describes_itself(void)
{
    struct stat st;
    char deep[128];
    struct store *s;
    struct err e;
    rig_new();
    snprintf(deep, sizeof deep, "%s/a/b/t.db", rig_dir);
    mode_t before = umask(0);
    const struct store_options o = { .mode = STORE_CREATE },
                               with_folders = { .mode = STORE_CREATE, .make_folders = true };
    CHECK(store_open(&s, deep, &o, &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, "no folder") &&
          files_in_rig() == 0, "%s", e.msg);
    CHECK(store_open(&s, deep, &with_folders, &e) == 0, "%s", e.msg);
    store_close(s);
    umask(before);
    CHECK(stat(deep, &st) == 0 && (st.st_mode & 0777) == 0600, "%o", st.st_mode);
    *strrchr(deep, '/') = 0;
    CHECK(stat(deep, &st) == 0 && (st.st_mode & 0777) == 0700, "%o", st.st_mode);
    *strrchr(deep, '/') = 0;
    CHECK(stat(deep, &st) == 0 && (st.st_mode & 0777) == 0700, "%o", st.st_mode);
    s = rig_open(STORE_CREATE);
    CHECK(store_notice(s) == NULL);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    store_close(s);
    CHECK(rig_sql("PRAGMA application_id") == 0x4c484e44);
    CHECK(rig_sql("PRAGMA user_version") == STORE_VERSION);
    CHECK(rig_sql("SELECT count(*) FROM sqlite_master WHERE sql LIKE '%-- fence: a worker writes%'") == 1,
          "comments stay in the file");
    CHECK(files_in_rig() == 2, "the store and the other folder, no journal");
}

static int refused(enum store_mode mode, const char *word)
{
    struct store *s = NULL;
    struct err e = {0};
    uint64_t before = file_hash(rig_path);
    size_t files = files_in_rig();
    int rc = store_open(&s, rig_path, &(struct store_options){ .mode = mode, .busy_seconds = 1 }, &e);
    CHECK(rc == -1 && s == NULL, "%s", word);
    CHECK(strstr(e.msg, word) && !strchr(e.msg, '\n'), "\"%s\" should say \"%s\"", e.msg, word);
    CHECK(file_hash(rig_path) == before, "%s: the file was changed", word);
    CHECK(files_in_rig() == files, "%s: a file was left", word);
    store_close(s);
    return e.code;
}

static void a_foreign_file_is_refused_and_not_changed(void)
{
    char junk[5000];
    memset(junk, 'x', sizeof junk);
    rig_new();
    CHECK(refused(STORE_WRITE, "no store here") == ERR_INPUT);
    CHECK(refused(STORE_READ, "no store here") == ERR_INPUT);
    for (int mode = STORE_READ; mode <= STORE_CREATE; mode++) {
        rig_new();
        rig_write(junk, 20);
        CHECK(refused(mode, "not a database of longhand") == ERR_INPUT);
        rig_write(junk, sizeof junk);
        CHECK(refused(mode, "not a database of longhand") == ERR_INPUT);
        rig_new();
        rig_sql("CREATE TABLE t (a); INSERT INTO t VALUES (1)");
        CHECK(refused(mode, "another program") == ERR_INPUT);
        rig_new();
        rig_sql("PRAGMA journal_mode=WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)");
        CHECK(refused(mode, "another program") == ERR_INPUT);
        rig_new();
        store_close(rig_open(STORE_CREATE));
        rig_sql("PRAGMA user_version=999");
        CHECK(refused(mode, "newer longhand") == ERR_INPUT);
    }
    rig_new();
    CHECK(mkdir(rig_path, 0700) == 0);
    CHECK(refused(STORE_CREATE, "not a regular file") == ERR_INPUT);
    rig_new();
    rig_write("", 0);         /* as a kill right after the creation leaves the file */
    CHECK(refused(STORE_READ, "nothing in this store yet") == ERR_INPUT);
    store_close(rig_open(STORE_WRITE));
    CHECK(rig_sql("SELECT count(*) FROM job") == 0);
}

static void a_damaged_store_is_refused_and_not_changed(void)
{
    /* where b-tree pages begin */
    static const size_t places[] = { 100, 4096, 4096 * 2, 4096 * 3, 4096 * 6, 4096 * 9 };
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < 200; i++)
        rig_submit(s, 100);
    store_close(s);
    char *good, noise[64];
    size_t n;
    struct err e;
    CHECK(file_read(&good, &n, rig_path, 1 << 24, &e) == 0);
    memset(noise, 0xa5, sizeof noise);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *bad = malloc(n);
        memcpy(bad, good, n);
        memcpy(bad + places[i], noise, sizeof noise);
        rig_write(bad, n);
        refused(STORE_WRITE, "damaged");
        free(bad);
    }
    rig_write(good, n / 2);
    refused(STORE_WRITE, "damaged");
    rig_write(good, n);
    s = rig_open(STORE_WRITE);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    store_close(s);
    free(good);
}

/* In a child that is not root: root may write any file. The child works in the store's folder, because it may
 * not enter that of the repository. */
static void a_read_only_store_can_be_read_but_not_written(void)
{
    struct err e = {0};
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    rig_submit(s, 100);
    store_close(s);
    chmod(rig_path, 0444);
    chmod(rig_dir, 0555);
    uint64_t before = file_hash(rig_path);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int bad = 0;
        if (chdir(rig_dir) || (getuid() == 0 && setuid(65534)) || access(rig_path, R_OK))
            _exit(77);
        if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_WRITE }, &e) == 0 ||
            !strstr(e.msg, "may not be written"))
            bad |= 1;
        if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_CREATE }, &e) == 0 ||
            !strstr(e.msg, "may not be written"))
            bad |= 2;
        struct store_counts n;
        if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_READ }, &e) || store_counts(s,
            NULL, &n, &e) || n.jobs[JOB_QUEUED] != 1)
            bad |= 4;
        _exit(bad);
    }
    int status;
    waitpid(pid, &status, 0);
    chmod(rig_dir, 0755);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("another user cannot enter the folder of the test");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    CHECK(file_hash(rig_path) == before && files_in_rig() == 1);
    chmod(rig_path, 0600);
    s = rig_open(STORE_READ);
    CHECK(sqlite3_exec(s->db, "DELETE FROM job", NULL, NULL, NULL) == SQLITE_READONLY,
          "a reading store refuses to write");
    store_close(s);
}

static void a_migration_is_all_or_nothing(void)
{
    enum { OLD = STORE_VERSION, NEW = STORE_VERSION + 2 };
    static const char *const good[NEW] = {
        [OLD] = "ALTER TABLE job ADD COLUMN extra TEXT; UPDATE job SET extra = 'x'",
        "CREATE TABLE more (a)" };
    static const char *const bad[NEW] = {
        [OLD] = "ALTER TABLE job ADD COLUMN extra TEXT; UPDATE job SET extra = 'x'", "CREATE TABLE job (a)" };
    struct err e = {0};
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    rig_submit(s, 10);
    CHECK(store_migrate(s, bad, OLD, NEW, &e) == -1 && strstr(e.msg, "already exists"), "%s", e.msg);
    CHECK(rig_sql("PRAGMA user_version") == OLD &&
          rig_sql("SELECT count(*) FROM pragma_table_info('job') WHERE name = 'extra'") == 0);
    CHECK(store_migrate(s, good, OLD, NEW, &e) == 0, "%s", e.msg);
    CHECK(rig_sql("PRAGMA user_version") == NEW &&
          rig_sql("SELECT count(*) FROM job WHERE extra = 'x'") == 1);
    CHECK(store_migrate(s, good, OLD, NEW, &e) == 0, "another process was faster: nothing to do");
    store_close(s);
}

static void a_store_of_version_2_is_migrated(void)
{
    struct err e = {0};
    struct claim c;
    struct job_list l;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 1000);
    const struct metric m[] = { { 0, "", "tokens", 0, 300 }, { 0, "", "seconds", 0, 1.5 },
                                { 0, "ngram", "tokens", 0, 7 } };
    const struct commit b = { .metrics = m, .n_metrics = 3 };
    CHECK(rig_claim(s, rig_worker(s), 0, &c) == 1 && rig_commit(s, &c, 300, NULL, &e) == 0 &&
          store_commit(s, &c, &b, &e) == 0, "%s", e.msg);
    store_close(s);
    for (int i = 0; i < 2; i++) {
        s = rig_open(STORE_WRITE);
        CHECK(rig_sql("PRAGMA user_version") == STORE_VERSION && rig_text_is(s, job, 300) &&
                  store_check(s, &e) == 0, "%s", e.msg);
        CHECK(store_jobs(s, &job, 1, &l, &e) == 0 && l.n == 1 && l.v[0].made == 300 &&
              l.v[0].seconds == 1.5 && strcmp(l.v[0].opening, "Once upon") == 0);
        job_list_free(&l);
        store_close(s);
        if (i == 0)
            rig_to_version_2();
    }
}

/* Version 1 had one snapshot file per job. The migration deletes that row and nothing else. */
static void a_store_of_version_1_is_migrated(void)
{
    struct err e = {0};
    struct claim c;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 1000);
    const struct metric m[] = { { 0, "", "tokens", 0, 300 }, { 0, "", "seconds", 0, 0.5 } };
    const struct commit b = { .metrics = m, .n_metrics = 2 };
    CHECK(rig_claim(s, rig_worker(s), 0, &c) == 1 && rig_commit(s, &c, 300, NULL, &e) == 0 &&
          store_commit(s, &c, &b, &e) == 0, "%s", e.msg);
    store_close(s);
    rig_to_version_2();
    rig_sql("DROP TABLE snapshot; CREATE TABLE snapshot (job INTEGER PRIMARY KEY REFERENCES job(id) ON "
            "DELETE CASCADE, path TEXT NOT NULL, tokens INTEGER NOT NULL, "
            "bytes INTEGER NOT NULL); INSERT INTO snapshot VALUES (1, '1-1-64.kv', 64, 9); PRAGMA "
            "user_version=1");
    uint64_t before = file_hash(rig_path);
    s = rig_open(STORE_READ);            /* a reader reads it as it is */
    struct job_list l;
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n_rows = 9;
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0 && l.n == 1 && l.v[0].made == 300 && l.v[0].seconds == 0.5 &&
          !l.v[0].has_sha && strcmp(l.v[0].opening, "Once upon") == 0, "%s", e.msg);
    job_list_free(&l);
    CHECK(store_snapshot_list(s, job, row, &n_rows, &e) == 0 && n_rows == 0 && rig_text_is(s, job, 300) &&
          store_check(s, &e) == 0 && store_migrated_from(s) == 0, "%s", e.msg);
    store_close(s);
    CHECK(file_hash(rig_path) == before && rig_sql("PRAGMA user_version") == 1);
    s = rig_open(STORE_WRITE);
    CHECK(store_migrated_from(s) == 1);
    CHECK(rig_sql("PRAGMA user_version") == STORE_VERSION && rig_sql("SELECT count(*) FROM snapshot") == 0 &&
              rig_text_is(s, job, 300) && store_check(s, &e) == 0,
          "%s", e.msg);
    CHECK(store_snapshot_set(s, &c, &(struct snapshot_row){ "1-1-128.kv", 0, 128 }, 9, &e) == 0, "%s", e.msg);
    store_close(s);
}

static void a_store_in_wal_mode_returns_to_a_rollback_journal(void)
{
    rig_new();
    store_close(rig_open(STORE_CREATE));
    rig_sql("PRAGMA journal_mode=WAL; INSERT INTO batch VALUES (1, 'n', 0)");
    refused(STORE_READ, "journal_mode");
    struct store *s = rig_open(STORE_WRITE);
    store_close(s);
    CHECK(rig_sql("SELECT count(*) FROM batch") == 1);
    CHECK(files_in_rig() == 1);
}

static void opening_waits_for_a_busy_store(void)
{
    struct err e = {0};
    sqlite3 *other;
    rig_new();
    struct store *s;
    store_close(rig_open(STORE_CREATE));
    CHECK(store_open(&s, rig_path, &(struct store_options){ .mode = STORE_WRITE, .busy_seconds = 0.3 },
                     &e) == 0);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    struct job_spec j = rig_job(10);
    int64_t id;
    double t = clock_seconds();
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == -1 && e.code == ERR_AGAIN, "%d %s", e.code,
          e.msg);
    t = clock_seconds() - t;
    CHECK(t >= 0.3, "%f", t);
    if (long_run) {                      /* ten seconds */
        struct store *told;
        static const atomic_int stop = 1;
        t = clock_seconds();
        CHECK(store_open(&told, rig_path, &(struct store_options){ .mode = STORE_WRITE, .busy_seconds = 600,
            .stop = &stop }, &e) == -1 && e.code == ERR_AGAIN, "%s", e.msg);
        CHECK(clock_seconds() - t < 300 && strstr(e.msg, "for 10 s"), "%s", e.msg);
        t = clock_seconds();             /* later waits of a stopped process are short */
        CHECK(store_open(&told, rig_path, &(struct store_options){ .mode = STORE_WRITE, .busy_seconds = 600,
            .stop = &stop }, &e) == -1 && e.code == ERR_AGAIN, "%s", e.msg);
        CHECK(clock_seconds() - t < 8, "%f", clock_seconds() - t);
    }
    sqlite3_close(other);
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "busy breaks nothing: %s", e.msg);
    store_close(s);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        sqlite3_open(rig_path, &other);
        sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL);
        usleep(400000);
        _exit(0);
    }
    usleep(100000);
    s = rig_open(STORE_WRITE);           /* waits until the child has ended without releasing its lock */
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    waitpid(pid, NULL, 0);
    store_close(s);
}

/* Stands in front of the C library and counts the calls of a thread. */
static _Thread_local int sleeps;
int nanosleep(const struct timespec *want, struct timespec *left)
{
    sleeps++;
    return (int)syscall(SYS_nanosleep, want, left);
}

static void *submit_one(void *p)
{
    struct err e = {0};
    struct job_spec j = rig_job(10);
    int64_t id;
    CHECK(store_submit(p, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    return NULL;
}

static void *count_jobs(void *p)
{
    struct err e = {0};
    struct store_counts n;
    CHECK(store_counts(p, NULL, &n, &e) == 0 && n.jobs[JOB_QUEUED] == 1, "%s", e.msg);
    CHECK(sleeps <= 1, "%d sleeps", sleeps);
    return NULL;
}

/* A foreign reader holds up a commit, and the commit holds up a reader of its own process. The reader wakes
 * with the end of the commit, and not after a time. */
static void a_reader_wakes_with_a_writer_of_its_process(void)
{
    sqlite3 *other, *third;
    pthread_t writer, reader;
    rig_new();
    struct store *w = rig_open(STORE_CREATE), *r = rig_open(STORE_WRITE);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN; SELECT * FROM job", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(pthread_create(&writer, NULL, submit_one, w) == 0);
    CHECK(sqlite3_open(rig_path, &third) == SQLITE_OK);      /* shows when the commit waits */
    for (int i = 0; i < 5000 && sqlite3_exec(third, "SELECT * FROM job", NULL, NULL, NULL) == SQLITE_OK; i++)
        usleep(1000);
    sqlite3_close(third);
    CHECK(pthread_create(&reader, NULL, count_jobs, r) == 0);
    usleep(200000);
    sqlite3_close(other);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    store_close(r);
    store_close(w);
}

static void a_network_file_system_gives_a_notice_and_allows_one_host(void)
{
    struct store *s;
    struct err e = {0};
    struct store_options o = { .mode = STORE_CREATE, .fs_type = 0x6969 };
    int64_t w;
    CHECK(strcmp(store_network_fs(0x6969), "NFS") == 0 && !store_network_fs(0xef53) &&
          strcmp(store_network_fs((long)(int32_t)0xff534d42), "CIFS") == 0);
    rig_new();
    CHECK(store_open(&s, rig_path, &o, &e) == 0, "%s", e.msg);
    CHECK(store_notice(s) && strstr(store_notice(s), "NFS"), "%s", store_notice(s));
    w = rig_worker(s);
    CHECK(store_worker_end(s, w, &e) == 0);
    rig_sql(
        "INSERT INTO worker (host, boot, spaces, pid, start, begun) VALUES ('elsewhere', 'b', 's', 7, 7, 0)");
    CHECK(store_worker_start(s, &w, &e) == -1 && strstr(e.msg, "elsewhere") && strstr(e.msg, "--shared-db"),
          "%s", e.msg);
    store_close(s);
    o.shared_db = true;
    CHECK(store_open(&s, rig_path, &o, &e) == 0);
    CHECK(store_worker_start(s, &w, &e) == 0, "%s", e.msg);
    store_close(s);
    CHECK(files_in_rig() == 1);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    RUN(a_new_store_is_private_and_describes_itself);
    RUN(a_foreign_file_is_refused_and_not_changed);
    RUN(a_damaged_store_is_refused_and_not_changed);
    RUN(a_read_only_store_can_be_read_but_not_written);
    RUN(a_migration_is_all_or_nothing);
    RUN(a_store_of_version_1_is_migrated);
    RUN(a_store_of_version_2_is_migrated);
    RUN(a_store_in_wal_mode_returns_to_a_rollback_journal);
    RUN(opening_waits_for_a_busy_store);
    RUN(a_reader_wakes_with_a_writer_of_its_process);
    RUN(a_network_file_system_gives_a_notice_and_allows_one_host);
    rig_end();
    return test_end();
}
