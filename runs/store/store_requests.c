/* Requests to a server: their samples are jobs, and a request with an Idempotency-Key is stored once.
 *
 * Owns the table request. Start at store_submit_requests. */
#include "runs/store/store_db.h"

#include <stdlib.h>
#include <string.h>

/* The jobs of the earlier request with this key, in the order of their samples: 1; 0: the key is new, or some
 * of its jobs were removed; SUBMIT_OTHER; -1. */
static int find_key(struct store *s, const struct request_spec *r, size_t n, int64_t *ids, struct err *e)
{
    int64_t *v = NULL, other;
    size_t found = 0;
    if (db_read(s, e, "SELECT count(*) FROM request WHERE key = ?1 AND chat = ?2 AND sha <> ?3",
                "bdh>i", r->key, strlen(r->key), r->chat, r->sha, &other) < 0)
        return -1;
    if (other) {
        err_set(e, ERR_INPUT, "the Idempotency-Key is that of an earlier request with another body");
        return SUBMIT_OTHER;
    }
    const int rc = db_ids(s, e, &v, &found, "SELECT 0, job FROM request WHERE key = ?1 AND chat = ?2 "
                          "ORDER BY job", "bd", r->key, strlen(r->key), r->chat);
    if (found == n)
        memcpy(ids, v, n * sizeof *ids);
    free(v);
    return rc ? rc : found == n;
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
    const size_t bytes = r->key ? strlen(r->key) : 0;
    int rc = db_run(s, e, "UPDATE request SET key = NULL WHERE key = ?1 AND chat = ?2", "bd", r->key, bytes,
                    r->chat);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = db_run(s, e, "INSERT INTO request (job, first, worker, chat, key, sha) VALUES (?1, ?2, ?3, ?4, "
                    "?5, ?6)", "iiidbh", ids[i], ids[0], r->worker, r->chat, r->key, bytes, r->sha);
    return rc;
}

static const struct err *submit_request(struct store *s, void *v, size_t i)
{
    struct request_submit *q = ((struct request_submit *const *)v)[i];
    struct err *e = &q->err;
    size_t bad;
    q->rc = q->r.key ? find_key(s, &q->r, q->n, q->ids, e) : 0;
    if (q->rc == 1 && take_over(s, &q->r, q->ids, q->n, e))
        q->rc = -1;
    else if (q->rc == 0 && (jobs_submit(s, NULL, q->v, q->n, q->ids, NULL, &bad, e) ||
                            add_rows(s, &q->r, q->ids, q->n, e)))
        q->rc = -1;
    return q->rc < 0 ? e : NULL;
}

int store_submit_requests(struct store *s, struct request_submit *const *v, size_t n, struct err *e)
{
    const int rc = db_parts(s, e, (void *)v, n, submit_request);
    for (size_t i = 0; i < n && rc; i++) {
        v[i]->rc = -1;
        v[i]->err = *e;
    }
    return rc;
}

int store_name(struct store *s, char name[9], struct err *e)
{
    const int rc = db_read(s, e, "SELECT lower(hex(id)) FROM store", ">t", name, (size_t)9);
    return rc == 0 ? err_set(e, ERR_FAILED, ERR_PATH "the store has no id", s->shown) : MIN(rc, 0);
}

int requests_abandon(struct store *s, int64_t worker, struct err *e)
{
#define ABANDONED \
    "IN (SELECT r.job FROM request r JOIN job j ON j.id = r.job WHERE r.worker = ?1 AND r.key IS NULL AND " \
    "j.state IN ('queued', 'running', 'paused'))"
    return db_run(s, e, "DELETE FROM snapshot WHERE job " ABANDONED "; "
                  "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?2, attempt + 1, 'cancelled', "
                  "'its server ended' FROM job WHERE id " ABANDONED "; "
                  "UPDATE job SET state = 'cancelled', attempt = attempt + 1, worker = NULL, rate = 0, "
                  "updated = ?2, ended = ?2 WHERE id " ABANDONED, "ir", worker, wall_seconds());
}

/* Of request r: a chapter still waits for its text. */
#define CONTINUED \
    "EXISTS (SELECT 1 FROM chapter c JOIN job w ON w.id = c.job WHERE c.after = r.job AND c.sha IS NULL " \
    "AND w.state <> 'cancelled')"

int store_requests_end(struct store *s, const int64_t *ids, size_t n, bool removes, struct err *e)
{
    int rc = db_begin(s, e) || requests_cancel(s, ids, n, e) ? -1 : 0;
    for (size_t i = 0; i < n && removes && rc == 0; i++)
        rc = db_run(s, e, "DELETE FROM job WHERE id IN (SELECT r.job FROM request r WHERE r.job = ?1 AND NOT "
                    CONTINUED ")", "i", ids[i]);
    return db_end(s, rc, e);
}

int store_request_refuse(struct store *s, int64_t job, const char *why, struct err *e)
{
    int rc = db_begin(s, e) || requests_cancel(s, &job, 1, e) ||
             db_run(s, e, "UPDATE job SET error = ?2 WHERE id IN (SELECT job FROM request WHERE job = ?1) "
                    "AND state = 'cancelled'", "it", job, why) ? -1 : 0;
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
    int rc = db_read(s, e, OVER " LIMIT 1", "r>i", before, &one);     /* without the lock of a writer */
    if (rc != 1)
        return rc;
    rc = db_begin(s, e) || db_run(s, e, "DELETE FROM job WHERE id IN (" OVER ")", "r", before) ? -1 : 0;
    *removed = rc ? 0 : (size_t)db_changes(s);
    return db_end(s, rc, e);
}
