/* Shared by the tests of the store: a folder of their own, small jobs, and raw SQL beside the store. */
#pragma once
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runs/store/store.h"
#include "tests/test.h"

/* in /dev/shm if it exists: fsync is free there */
static char rig_dir[64], rig_path[96];

static inline void rig_end(void)
{
    char cmd[128], journal[128];
    snprintf(journal, sizeof journal, "%s-journal", rig_path);
    unlink(rig_path);
    unlink(journal);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", rig_dir);
    if (rig_dir[0] && rmdir(rig_dir) && system(cmd))
        perror(cmd);
    rig_dir[0] = 0;
}

/* Make an empty folder; rig_path is a missing file in it. Removes the previous folder. */
static inline void rig_new(void)
{
    rig_end();
    strcpy(rig_dir,
           access("/dev/shm", W_OK) ? "/tmp/longhand-store-XXXXXX" : "/dev/shm/longhand-store-XXXXXX");
    if (!mkdtemp(rig_dir))
        abort();
    snprintf(rig_path, sizeof rig_path, "%s/t.db", rig_dir);
}

/* Write these bytes to the store's file. */
static inline void rig_write(const void *p, size_t n)
{
    FILE *f = fopen(rig_path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && fclose(f) == 0, "%s", rig_path);
}

/* The hash of a file; 0: it cannot be read. */
static inline uint64_t file_hash(const char *path)
{
    char *data;
    size_t n;
    struct err e;
    if (file_read(&data, &n, path, 1 << 28, &e))
        return 0;
    uint64_t h = hash64(HASH64_INIT, data, n);
    free(data);
    return h;
}

static inline struct store *rig_open(enum store_mode mode)
{
    struct store_options o = { .mode = mode, .busy_seconds = 60 };
    struct store *s;
    struct err e = {0};
    if (store_open(&s, rig_path, &o, &e)) {
        printf("    %s\n", e.msg);
        abort();
    }
    return s;
}

/* Run raw SQL on the file, through its own connection. Returns the first column of the last row. */
static inline int64_t rig_sql(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *q;
    const char *tail = sql;
    int64_t v = -1;
    if (sqlite3_open(rig_path, &db))
        abort();
    sqlite3_busy_timeout(db, 60000);
    while (*tail) {
        int rc = sqlite3_prepare_v2(db, tail, -1, &q, &tail);
        while (rc == SQLITE_OK && q && (rc = sqlite3_step(q)) == SQLITE_ROW) {
            v = sqlite3_column_int64(q, 0);
            rc = SQLITE_OK;
        }
        sqlite3_finalize(q);
        if (rc != SQLITE_OK && rc != SQLITE_DONE) {
            printf("    %s: %s\n", sql, sqlite3_errmsg(db));
            abort();
        }
        while (*tail == ' ' || *tail == '\n')
            tail++;
    }
    sqlite3_close(db);
    return v;
}

/* Take from a closed store what version 2 did not have. */
static inline void rig_to_version_2(void)
{
    rig_sql("ALTER TABLE job DROP COLUMN text_sha; ALTER TABLE job DROP COLUMN made; "
            "ALTER TABLE job DROP COLUMN seconds; ALTER TABLE job DROP COLUMN opening; "
            "DROP TABLE model; DROP TABLE tokenizer; DROP TABLE part; DROP TABLE store; "
            "DROP TABLE logprob; DROP TABLE speed; DROP TABLE retake; DROP TABLE request; "
            "ALTER TABLE job DROP COLUMN settled; DROP TABLE chapter; ALTER TABLE input DROP COLUMN chat; "
            "DROP INDEX job_queue; DROP INDEX job_model; ALTER TABLE job DROP COLUMN chain; "
            "ALTER TABLE job DROP COLUMN depth; CREATE INDEX job_queue ON job (state, priority DESC, id); "
            "CREATE INDEX job_model ON job (state, priority, model, id); PRAGMA user_version=2");
}

static int32_t rig_prompt[5] = { 1, 2, 3, 300, 70000 };

static inline struct job_spec rig_job(size_t wanted)
{
    return (struct job_spec){ .parameters = "{\"temperature\":1}", .model = "/m/one", .prompt = "Once upon",
                              .prompt_bytes = 9, .prompt_ids = rig_prompt, .prompt_tokens = 5,
                              .seed = UINT64_MAX - 3, .wanted = wanted };
}

static inline int64_t rig_submit(struct store *s, size_t wanted)
{
    struct job_spec j = rig_job(wanted);
    int64_t id = 0;
    struct err e = {0};
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    return id;
}

/* The token at position i of a text that is the same in every run. */
static inline int32_t rig_token(int64_t job, size_t i)
{
    uint64_t h = hash64(hash64(HASH64_INIT, &job, sizeof job), &i, sizeof i);
    return (int32_t)((h >> 20) % 30000);
}

static inline int32_t *rig_tokens(int64_t job, size_t from, size_t n)
{
    int32_t *v = malloc((n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = rig_token(job, from + i);
    return v;
}

static inline int64_t rig_worker(struct store *s)
{
    int64_t w = 0;
    struct err e = {0};
    CHECK(store_worker_start(s, &w, &e) == 0, "%s", e.msg);
    return w;
}

/* Claim and begin: 1, else what store_claim or store_begin answered. */
static inline int rig_claim(struct store *s, int64_t worker, int64_t job, struct claim *c)
{
    struct claim_request w = { .worker = worker, .job = job, .max_attempts = 10 };
    struct err e = {0};
    int32_t *ids = NULL;
    int rc = store_claim(s, &w, c, &e);
    if (rc == 1) {
        rc = store_begin(s, c, "cpu-1", "fp", false, &ids, &e);
        rc = rc ? rc : 1;
    }
    if (rc < 0)
        printf("    %s\n", e.msg);
    free(ids);
    return rc;
}

/* Commit the next n tokens of the job's own text. */
static inline int rig_commit(struct store *s, struct claim *c, size_t n, const struct job_end *end,
                             struct err *e)
{
    int32_t *v = rig_tokens(c->job, c->end.tokens, n);
    struct commit b = { .ids = v, .n = n, .end = end };
    int rc = store_commit(s, c, &b, e);
    free(v);
    return rc;
}

/* Whether the stored text of the job is the first n of its own text. */
static inline bool rig_text_is(struct store *s, int64_t job, size_t n)
{
    int32_t *ids, *want = rig_tokens(job, 0, n);
    size_t got;
    struct err e = {0};
    bool ok = store_tokens(s, job, 0, SIZE_MAX, &ids, &got, &e) == 0;
    if (!ok)
        printf("    %s\n", e.msg);
    ok = ok && got == n && memcmp(ids, want, n * sizeof *ids) == 0;
    free(ids);
    free(want);
    return ok;
}

static inline enum job_state rig_state(struct store *s, int64_t job)
{
    struct job_list l;
    struct err e = {0};
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
    enum job_state st = l.n ? l.v[0].state : JOB_STATES;
    job_list_free(&l);
    return st;
}
