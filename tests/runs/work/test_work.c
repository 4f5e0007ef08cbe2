/* A worker while another program holds the database. */
#include <pthread.h>

#include "runs/work/schedule.h"
#include "tests/store_rig.h"

enum { BUSY = 2 };                       /* seconds that the worker waits for the database */

static void *release_later(void *db)
{
    sleep(BUSY + 1);
    sqlite3_close(db);
    return NULL;
}

/* A worker that cannot read its job, because another program holds the database, leaves the job in the
 * queue. */
static void a_held_database_fails_no_job(void)
{
    const struct work_options how = { .state_if_stopped = JOB_QUEUED };
    struct worker w = { .device = "cpu", .quiet = true };
    struct work_result r;
    struct claim c;
    struct store *s;
    struct err e = {0};
    sqlite3 *other;
    pthread_t t;
    rig_new();
    if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_CREATE, .busy_seconds = BUSY }, &e))
        abort();
    int64_t job = rig_submit(s, 100);
    CHECK(worker_open(&w, s, &e) == 0, "%s", e.msg);
    struct claim_request wish = worker_claim_request(&w, 0);
    CHECK(store_claim(s, &wish, &c, &e) == 1 && c.job == job, "%s", e.msg);
    CHECK(sqlite3_open(rig_path, &other) == SQLITE_OK && sqlite3_busy_timeout(other, 60000) == SQLITE_OK &&
          sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    pthread_create(&t, NULL, release_later, other);
    CHECK(schedule_job(&w, &c, &how, NULL, &r, &e) == -1 && e.code == ERR_AGAIN &&
              strstr(e.msg, "held the database"),
          "%d %s", e.code, e.msg);
    pthread_join(t, NULL);
    stats_close(&r.stats);
    CHECK(rig_sql("SELECT state = 'queued' AND error IS NULL AND worker IS NULL AND idle = 0 FROM job") == 1);
    CHECK(store_claim(s, &wish, &c, &e) == 1 && c.job == job, "the job can be claimed again: %s", e.msg);
    worker_close(&w);
    store_close(s);
}

int main(void)
{
    RUN(a_held_database_fails_no_job);
    rig_end();
    return test_end();
}
