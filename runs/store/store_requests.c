/* Requests to a server: their samples are jobs, and a request with an Idempotency-Key is stored once.
 *
 * Owns the table request. Start at store_submit_requests. */
#include "runs/store/store_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The jobs of the earlier request with this key, in the order of their samples: 1; 0: the key is new, or some
 * of its jobs were removed; SUBMIT_OTHER; -1. */
static int find_key(struct store *s, const struct request_spec *r, size_t n, int64_t *ids, struct err *e)
{
    size_t found = 0;
    bool same = true;
    int rc;
    sqlite3_stmt *q = db_query(s, e, "SELECT job, sha FROM request WHERE key = ?1 AND chat = ?2 ORDER BY job",
                               "bd", (const void *)r->key, strlen(r->key), (int)r->chat);
    while ((rc = db_step(s, q, e)) == 1) {
        same &= sqlite3_column_bytes(q, 1) == SHA256_BYTES &&
                memcmp(sqlite3_column_blob(q, 1), r->sha, SHA256_BYTES) == 0;
        if (found < n)
            ids[found] = sqlite3_column_int64(q, 0);
        found++;
    }
    if (rc < 0)
        return -1;
    if (!same) {
        err_set(e, ERR_INPUT, "the Idempotency-Key is that of an earlier request with another body");
        return SUBMIT_OTHER;
    }
    return found == n;
}

/* The jobs go on for this server. */
static int take_over(struct store *s, const struct request_spec *r, const int64_t *ids, size_t n,
                     struct err *e)
{
#define ENDED "WHERE id = ?1 AND state IN ('failed', 'cancelled')"
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = db_run(s, e, "UPDATE request SET worker = ?2 WHERE job = ?1; "
                    "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?3, 0, 'resumed', "
                    "'its request was repeated' FROM job " ENDED "; "
                    "UPDATE job SET state = 'queued', attempt = attempt + 1, idle = 0, error = NULL, "
                    "ended = NULL, updated = ?3 " ENDED, "iir", ids[i], r->worker, wall_seconds());
    return rc;
}

static int add_rows(struct store *s, const struct request_spec *r, const int64_t *ids, size_t n,
                    struct err *e)
{
    if (r->key && db_run(s, e, "UPDATE request SET key = NULL WHERE key = ?1 AND chat = ?2", "bd",
                         (const void *)r->key, strlen(r->key), (int)r->chat))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (db_run(s, e,
                   "INSERT INTO request (job, first, worker, chat, key, sha) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                   "iiidbb", ids[i], ids[0], r->worker, (int)r->chat, (const void *)r->key,
                   r->key ? strlen(r->key) : 0, (const void *)r->sha, (size_t)SHA256_BYTES))
            return -1;
    return 0;
}

static int submit_request(struct store *s, struct request_submit *q, struct err *e)
{
    size_t bad;
    const int rc = q->r.key ? find_key(s, &q->r, q->n, q->ids, e) : 0;
    if (rc == 1)
        return take_over(s, &q->r, q->ids, q->n, e) ? -1 : 1;
    if (rc)
        return rc;
    return jobs_submit(s, NULL, q->v, q->n, q->ids, NULL, &bad, e) || add_rows(s, &q->r, q->ids, q->n, e)
               ? -1
               : 0;
}

/* The savepoints of store_submit_requests, inside its transaction. */
static int submit_parts(struct store *s, struct request_submit *const *v, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (db_part_begin(s, e))
            return -1;
        v[i]->rc = submit_request(s, v[i], &v[i]->err);
        if (db_part_end(s, v[i]->rc < 0, &v[i]->err, e))
            return -1;
    }
    return 0;
}

int store_submit_requests(struct store *s, struct request_submit *const *v, size_t n, struct err *e)
{
    const int rc = db_begin(s, e) ? -1 : db_end(s, submit_parts(s, v, n, e), e);
    for (size_t i = 0; i < n && rc; i++) {
        v[i]->rc = -1;
        v[i]->err = *e;
    }
    return rc;
}

int store_name(struct store *s, char name[9], struct err *e)
{
    sqlite3_stmt *q = db_query(s, e, "SELECT substr(lower(hex(id)), 1, 8) FROM store", "");
    const int rc = db_step(s, q, e);
    if (rc != 1)
        return rc ? -1 : err_set(e, ERR_FAILED, ERR_PATH "the store has no id", s->shown);
    snprintf(name, 9, "%s", (const char *)sqlite3_column_text(q, 0));
    db_reset(q);
    return 0;
}

int requests_abandon(struct store *s, int64_t worker, struct err *e)
{
#define ABANDONED \
    "IN (SELECT r.job FROM request r JOIN job j ON j.id = r.job WHERE r.worker = ?1 AND r.key IS NULL AND " \
    "j.state IN ('queued', 'running', 'paused'))"
    const double now = wall_seconds();
    return db_run(s, e, "DELETE FROM snapshot WHERE job " ABANDONED, "i", worker) ||
                   db_run(s, e,
                          "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?2, attempt + 1, "
                          "'cancelled', 'its server ended' FROM job WHERE id " ABANDONED,
                          "ir", worker, now) ||
                   db_run(s, e,
                          "UPDATE job SET state = 'cancelled', attempt = attempt + 1, worker = NULL, "
                          "rate = 0, updated = ?2, ended = ?2 WHERE id " ABANDONED, "ir", worker, now)
               ? -1
               : 0;
}

/* Of request r: a chapter still waits for its text. */
#define CONTINUED \
    "EXISTS (SELECT 1 FROM chapter c JOIN job w ON w.id = c.job WHERE c.after = r.job AND c.sha IS NULL " \
    "AND w.state <> 'cancelled')"

int store_requests_end(struct store *s, const int64_t *ids, size_t n, bool removes, struct err *e)
{
    if (db_begin(s, e))
        return -1;
    int rc = requests_cancel(s, ids, n, e);
    for (size_t i = 0; i < n && removes && rc == 0; i++)
        rc = db_run(s, e, "DELETE FROM job WHERE id IN (SELECT r.job FROM request r WHERE r.job = ?1 AND NOT "
                    CONTINUED ")", "i", ids[i]);
    return db_end(s, rc, e);
}

int store_request_refuse(struct store *s, int64_t job, const char *why, struct err *e)
{
    if (db_begin(s, e))
        return -1;
    int rc = requests_cancel(s, &job, 1, e) ||
                     db_run(s, e, "UPDATE job SET error = ?2 WHERE id IN (SELECT job FROM request WHERE "
                            "job = ?1) AND state = 'cancelled'", "it", job, why)
                 ? -1
                 : 0;
    const bool refused = db_changes(s) == 1;
    rc = db_end(s, rc, e);
    return rc ? rc : refused;
}

#define OVER \
    "SELECT r.job FROM request r JOIN job j ON j.id = r.job WHERE (j.state = 'cancelled' OR (j.state IN " \
    "('done', 'failed') AND CASE WHEN r.key IS NULL THEN NOT EXISTS (SELECT 1 FROM worker v WHERE " \
    "v.id = r.worker) ELSE j.ended <= ?1 END)) AND NOT " CONTINUED

int store_requests_forget(struct store *s, double keep, size_t *removed, struct err *e)
{
    const double before = wall_seconds() - keep;
    int64_t one;
    *removed = 0;
    const int any = db_get(s, e, &one, OVER " LIMIT 1", "r", before);    /* without the lock of a writer */
    if (any != 1)
        return any;
    if (db_begin(s, e))
        return -1;
    const int rc = db_run(s, e, "DELETE FROM job WHERE id IN (" OVER ")", "r", before);
    *removed = rc ? 0 : (size_t)db_changes(s);
    return db_end(s, rc, e);
}
