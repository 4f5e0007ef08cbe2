/* Jobs in the store: submitting, listing, and the verbs that change a job's state.
 *
 * Owns the tables batch and job, but for what a worker writes (store_work.c). Start at store_submit and
 * store_change. */
#include "runs/store/store_db.h"
#include "src/base/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The column of a field with the short name of its table. */
#define OF_JOB(letter, member, ...) ", j." #member

/* ---- submitting ---- */

int store_full(struct store *s, struct err *e)
{
    int64_t bytes = 0;
    if (!s->o.max_bytes)
        return 0;
    if (db_read(s, e, "SELECT (p.page_count - f.freelist_count) * z.page_size + "
                "ifnull((SELECT sum(bytes) FROM snapshot), 0) FROM pragma_page_count() p, "
                "pragma_freelist_count() f, pragma_page_size() z", ">i", &bytes) < 0)
        return -1;
    if ((uint64_t)bytes < s->o.max_bytes)
        return 0;
    err_set(e, ERR_FAILED, ERR_PATH "texts and snapshots have %.1f MB, --max-store is %.1f MB, and no new "
            "job begins; longhand du shows what has the space, longhand remove makes room", s->shown,
            (double)bytes / 1e6, (double)s->o.max_bytes / 1e6);
    return 1;
}

/* Where jobs are submitted to. name NULL: no batch; last_job: before this submission; full, why: of
 * store_full. */
struct batch { const char *name; int64_t id, last_job; int full; struct err why; };

static int open_batch(struct store *s, struct batch *b, struct err *e)
{
    if (!b->name)
        return 0;
    return db_run(s, e, "INSERT INTO batch (name, created) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
                  "tr", b->name, wall_seconds()) ||
           db_read(s, e, "SELECT id FROM batch WHERE name = ?1", "t>i", b->name, &b->id) != 1 ||
           db_read(s, e, "SELECT coalesce(max(id), 0) FROM job", ">i", &b->last_job) != 1 ? -1 : 0;
}

static int insert_job(struct store *s, int64_t batch, const struct job_spec *r,
                      const uint8_t identity[SHA256_BYTES], int64_t *id, struct err *e)
{
    const void *prompt = r->prompt ? r->prompt : "";
    struct chain_link start;
    link_start(&start, r->prompt_ids, r->prompt_tokens);
    int rc = db_run(s, e,
                    "INSERT INTO job (batch, identity, link, state, created, updated, opening"
                    JOB_FIELDS(FIELD_COLUMN) ") VALUES (nullif(?1, 0), ?2, ?3, ?4, ?5, ?5, "
                    "substr(CAST(?6 AS TEXT), 1, 160)" JOB_FIELDS(DB_PARAMETER) ")",
                    (const char[]){ 'i', 'h', 'b', 't', 'r', 'b', JOB_FIELDS(DB_LETTER) 0 }, batch, identity,
                    (const void *)start.v, sizeof start.v, r->paused ? "paused" : "queued", wall_seconds(),
                    prompt, r->prompt_bytes JOB_FIELDS(DB_VALUE));
    *id = sqlite3_last_insert_rowid(s->db);
    if (rc == 0)
        rc = db_run(s, e,
                    "INSERT INTO input (job, prompt, crc, ids" INPUT_FIELDS(FIELD_COLUMN)
                    ") VALUES (?1, ?2, ?3, ?4" INPUT_FIELDS(DB_PARAMETER) ")",
                    (const char[]){ 'i', 'b', 'p', INPUT_FIELDS(DB_LETTER) 0 }, *id, prompt, r->prompt_bytes,
                    (const void *)r->prompt_ids, r->prompt_tokens INPUT_FIELDS(DB_VALUE));
    return rc ? rc : event_add(s, e, *id, 0, "submitted", "%s", "");
}

void job_spec_free(struct job_spec *j)
{
    const void *const owned[] = { j->custom_id, j->identity, j->parameters, j->metadata, j->chat, j->prompt,
                                  j->prompt_ids, j->refusal, j->chapter.after_id, j->chapter.append };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free((void *)(uintptr_t)owned[i]);
    *j = (struct job_spec){0};
}

/* Refuse a further sample of a custom_id from an earlier submission. It would have another seed than the
 * other samples, and perhaps other parameters. */
static int check_all_new(struct store *s, const struct batch *b, const struct job_spec *j, struct err *e)
{
    int64_t other;
    const int rc = db_read(s, e, "SELECT id FROM job WHERE batch = ?1 AND custom_id = ?2 AND id <= ?3 "
                           "LIMIT 1", "iti>i", b->id, j->custom_id, b->last_job, &other);
    if (rc != 1)
        return rc;
    return err_set(e, ERR_INPUT,
                   "custom_id \"%s\" is in @%s already (job %" PRId64 ") without sample %" PRIu32
                   "; the number of samples (n, --samples) stays, or longhand remove @%s/%s "
                   "and submit it again",
                   j->custom_id, b->name, other, j->sample, b->name, j->custom_id);
}

/* 1: the batch has this job; 0: it does not; -1: failed, with ERR_INPUT if it has a different request
 * under this name. */
static int find_same(struct store *s, const struct batch *b, const struct job_spec *j,
                     const uint8_t identity[SHA256_BYTES], int64_t *id, struct err *e)
{
    uint8_t other[SHA256_BYTES] = {0};
    size_t line = 0;
    const int rc = db_read(s, e, "SELECT id, identity, line FROM job WHERE batch = ?1 AND custom_id = ?2 AND "
                           "sample = ?3", "iti>ihz", b->id, j->custom_id, (int64_t)j->sample, id, other,
                           &line);
    if (rc != 1)
        return rc ? rc : check_all_new(s, b, j, e);
    if (memcmp(other, identity, SHA256_BYTES))
        return err_set(e, ERR_INPUT,
                       "custom_id \"%s\" is in @%s already (job %" PRId64
                       ") with another body; give this one another custom_id or the batch another name",
                       j->custom_id, b->name, *id);
    if (line != j->line &&
        db_run(s, e, "UPDATE job SET line = nullif(?2, 0) WHERE id = ?1", "iz", *id, j->line))
        return -1;
    return 1;
}

/* Refuse a name of a single job that is in use, and a batch under the name of a single job. `replace`: the
 * single jobs that have the name lose it. `job` may have it already. */
static int check_name(struct store *s, const struct batch *b, bool alone, bool replace, int64_t job,
                      struct err *e)
{
    int64_t other;
    int rc = db_read(s, e, "SELECT id FROM job WHERE batch = ?1 AND (?2 OR custom_id IS NULL) AND id <> ?3 "
                     "ORDER BY line IS NULL, id LIMIT 1", "idi>i", b->id, (int)alone, job, &other);
    if (rc != 1)
        return rc;
    if (!replace)
        return err_set(e, ERR_INPUT,
                       "the name \"%s\" is in use: job %" PRId64 " has it; longhand run --resume @%s goes on "
                       "with it, and --replace gives the name to another text (that of job %" PRId64
                       " stays under its number)",
                       b->name, other, b->name, other);
    rc = db_read(s, e, "SELECT count(*) FROM job WHERE batch = ?1 AND (line IS NOT NULL OR "
                 "custom_id GLOB '*[^0-9]*')", "i>i", b->id, &other);
    if (rc == 1 && other)
        return err_set(e, ERR_INPUT,
                       "--replace: @%s is a batch of %" PRId64 " %s, whose custom_ids need the name", b->name,
                       other, plural((size_t)other, "job", "jobs"));
    return rc != 1 || db_run(s, e,
                  "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?3, attempt, 'renamed', ?4 "
                  "FROM job WHERE batch = ?1 AND id <> ?2", "iirt", b->id, job, wall_seconds(),
                  "another text has its name") ||
                   db_run(s, e, "UPDATE job SET batch = NULL, custom_id = NULL WHERE batch = ?1 AND id <> ?2",
                          "ii", b->id, job) ? -1 : 0;
}

int job_rename(struct store *s, int64_t job, const char *name, bool replace, struct err *e)
{
    struct batch b = { .name = name };
    bool of_batch;
    if (!name)
        return 0;
    if (batch_name_check("--name", name, e) || open_batch(s, &b, e) ||
        db_read(s, e, "SELECT custom_id IS NOT NULL FROM job WHERE id = ?1", "i>b", job, &of_batch) < 0)
        return -1;
    if (of_batch)
        return err_set(e, ERR_INPUT, "--name: job %" PRId64 " has a custom_id of a batch, and keeps it", job);
    return check_name(s, &b, true, replace, job, e) ||
           db_run(s, e, "UPDATE job SET batch = ?2 WHERE id = ?1", "ii", job, b.id) ? -1 : 0;
}

static int submit_one(struct store *s, const struct batch *b, const struct job_spec *j, int64_t *id,
                      bool *is_new, struct err *e)
{
    uint8_t identity[SHA256_BYTES];
    sha256_of(identity, j->identity ? j->identity : "", j->identity_bytes);
    int rc = b->name ? find_same(s, b, j, identity, id, e) : 0;
    if (rc < 0)
        return -1;
    if (is_new)
        *is_new = rc == 0;
    if (rc == 0 && j->refusal)
        return err_set(e, ERR_INPUT, "%s", j->refusal);
    if (rc == 0 && b->full) {
        *e = b->why;
        return -1;
    }
    return rc == 1 ? 0 : insert_job(s, b->id, j, identity, id, e);
}

int jobs_submit(struct store *s, const char *batch, const struct job_spec *v, size_t n, int64_t *ids,
                bool *is_new, size_t *bad, struct err *e)
{
    struct batch b = { .name = batch };
    size_t i = 0;
    for (size_t k = 0; k < n; k++)
        assert((batch || !v[k].custom_id) && v[k].model && v[k].parameters && v[k].wanted <= INT64_MAX);
    b.full = store_full(s, &b.why);
    if (open_batch(s, &b, e) || (batch && n && check_name(s, &b, v[0].alone, v[0].replace, 0, e)))
        return -1;
    while (i < n && submit_one(s, &b, &v[i], &ids[i], is_new ? &is_new[i] : NULL, e) == 0)
        i++;
    if (i < n && e->code == ERR_INPUT)
        *bad = i;
    return i < n || chapters_add(s, b.id, v, n, ids, is_new, e) ? -1 : 0;
}

int store_submit(struct store *s, const char *batch, const struct job_spec *v, size_t n, int64_t *ids,
                 bool *is_new, size_t *bad, struct err *e)
{
    size_t ignored;
    bad = bad ? bad : &ignored;
    *bad = n;
    if ((batch && batch_name_check("the name of the batch", batch, e)) || db_begin(s, e))
        return -1;
    return db_end(s, jobs_submit(s, batch, v, n, ids, is_new, bad, e), e);
}

int store_request(struct store *s, const char *batch, const char *custom_id, uint32_t sample,
                  struct stored_request *r, struct err *e)
{
    *r = (struct stored_request){0};
    const int rc = db_read(s, e,
        "SELECT j.wanted, j.seed, j.model, j.fingerprint, i.parameters, j.id, "
        "EXISTS (SELECT 1 FROM event v WHERE v.job = j.id AND v.kind = 'extended') "
        "FROM job j JOIN input i ON i.job = j.id "
        "WHERE j.batch = (SELECT id FROM batch WHERE name = ?1) AND j.custom_id = ?2 AND j.sample = ?3",
        "tti>zzsssib", batch, custom_id, (int64_t)sample, &r->wanted, &r->seed, &r->model, &r->fingerprint,
        &r->parameters, &r->job, &r->extended);
    if (rc < 0)
        stored_request_free(r);
    return rc;
}

void stored_request_free(struct stored_request *r)
{
    free(r->model);
    free(r->fingerprint);
    free(r->parameters);
    *r = (struct stored_request){0};
}

void job_sample(char out[JOB_SAMPLE_BYTES], const struct job *j)
{
    const char *id = j->custom_id ? j->custom_id : "", *slash = strrchr(id, '/');
    snprintf(out, JOB_SAMPLE_BYTES, "/%" PRIu32, j->sample);
    if (!*id || !j->sample || strcmp(id, out + 1) == 0 || (slash && strcmp(slash, out) == 0))
        *out = 0;
}

void job_label(char *out, size_t size, const struct job *j)
{
    char name[300] = "", sample[JOB_SAMPLE_BYTES];
    job_sample(sample, j);
    if (j->batch)
        snprintf(name, sizeof name, "@%s%s%.80s%s", j->batch, j->custom_id ? "/" : "",
                 j->custom_id ? j->custom_id : "", sample);
    else if (j->parent)
        snprintf(name, sizeof name, "fork of %" PRId64 " at %zu", j->parent, j->parent_at);
    terminal_text(out, size, name);
}

/* ---- listing ---- */

/* Whether the worker in columns i .. i + 4 (column_owner) has ended, as far as the kernel knows. A worker
 * without a row has ended, as in store_claim. */
static bool worker_has_ended(struct store *s, sqlite3_stmt *q, int i)
{
    struct owner o;
    if (sqlite3_column_type(q, i) == SQLITE_NULL)
        return true;
    if (!s->self.pid)
        owner_self(&s->self);
    column_owner(q, i, &o);
    return owner_liveness(&o, &s->self, !s->fs) == OWNER_DEAD;
}

/* A job that stores nothing for so long, and for the time of so many tokens, makes no progress. */
enum { STALLED_SECONDS = 10, STALLED_TOKENS = 10 };

/* For how many seconds the running job in q makes no progress; 0: it makes some. Before its first token, and
 * while its prompt is read, only the kernel knows. */
static double stalled_seconds(struct store *s, const struct job *j, sqlite3_stmt *q, int i)
{
    struct owner o;
    const double still = wall_seconds() - j->updated;
    if (still < STALLED_SECONDS || (j->rate > 0 && still * j->rate < STALLED_TOKENS))
        return 0;
    column_owner(q, i, &o);
    return j->rate > 0 || owner_is_stopped(&o, &s->self) ? still : 0;
}

/* What a job has beside JOB_FIELDS. */
#define STATE_FIELDS(X) \
    X('i', id, "j.id") X('t', batch, "b.name") X('t', numerics, "j.numerics") X('i', attempt, "j.attempt") \
    X('z', tokens, "j.tokens") X('z', given, "j.given") X('z', resumes, "j.resumes") X('r', rate, "j.rate") \
    X('t', finish_reason, "j.finish_reason") X('t', stop_reason, "j.stop_reason") X('t', error, "j.error") \
    X('i', parent, "j.parent") X('z', parent_at, "j.parent_at") X('r', created, "j.created") \
    X('r', started, "j.started") X('r', updated, "j.updated") X('r', ended, "j.ended") \
    X('t', host, "w.host") X('i', pid, "w.pid") X('z', made, "j.made - " TAKEN_BACK("j")) \
    X('r', seconds, "j.seconds") \
    X('t', opening, "j.opening") X('z', settled, "ifnull(j.settled, -1)") X('i', after, "c.after") \
    X('t', after_name, "CASE WHEN p.batch IS NULL THEN 'job ' || c.after WHEN p.batch = j.batch THEN " \
                       "ifnull(p.custom_id, 'job ' || p.id) ELSE '@' || pb.name || " \
                       "ifnull('/' || p.custom_id, '') END") \
    X('t', waits, "CASE WHEN j.state = 'queued' AND c.sha IS NULL AND c.after NOT NULL AND " \
                  "p.state IS NOT 'done' THEN ifnull(p.state, 'removed') END") \
    X('b', older, "c.sha NOT NULL AND p.state = 'done' AND p.text_sha <> c.sha")
/* Before the fields: the state, the worker's five columns, and the checksum. */
#define JOB_COLUMNS "j.state, w.host, w.boot, w.spaces, w.pid, w.start, j.text_sha" \
                    JOB_FIELDS(OF_JOB) STATE_FIELDS(DB_SQL)
enum { JOB_STATE, JOB_WORKER, JOB_SHA = JOB_WORKER + 5, JOB_FIRST };
#define JOB_TABLES \
    "job j LEFT JOIN batch b ON b.id = j.batch LEFT JOIN worker w ON w.id = j.worker LEFT JOIN chapter c " \
    "ON c.job = j.id LEFT JOIN job p ON p.id = c.after LEFT JOIN batch pb ON pb.id = p.batch"

static bool read_job(struct store *s, struct job *j, sqlite3_stmt *q, struct strings **t)
{
    typedef struct job row;
    static const struct db_column c[] = { JOB_FIELDS(DB_PLACE) STATE_FIELDS(DB_PLACE) };
    bool failed = false;
    struct err ignored;
    const char *state = column_text(q, JOB_STATE, t, &failed);
    *j = (struct job){ .has_sha = sqlite3_column_bytes(q, JOB_SHA) == SHA256_BYTES };
    db_row(q, JOB_FIRST, c, sizeof c / sizeof *c, j, t, &failed);
    if (j->has_sha)
        memcpy(j->sha, sqlite3_column_blob(q, JOB_SHA), SHA256_BYTES);
    if (failed || job_state_parse(&j->state, state ? state : "", &ignored))
        return false;
    j->gone = j->state == JOB_RUNNING && worker_has_ended(s, q, JOB_WORKER);
    j->stalled = j->state == JOB_RUNNING && !j->gone ? stalled_seconds(s, j, q, JOB_WORKER) : 0;
    j->rate = j->gone || j->stalled > 0 ? 0 : j->rate;
    return true;
}

size_t job_final(const struct job *j)
{
    return j->state == JOB_DONE ? j->tokens : MIN(j->settled, j->tokens);
}

int store_jobs(struct store *s, const int64_t *ids, size_t n, struct job_list *out, struct err *e)
{
    *out = (struct job_list){ .v = calloc(n + 1, sizeof *out->v) };
    if (!out->v)
        return err_set(e, ERR_FAILED, "out of memory for a list of %zu jobs", n);
    int rc = db_begin_read(s, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        sqlite3_stmt *q = db_query(s, e,
                                   "SELECT " JOB_COLUMNS " FROM " JOB_TABLES " WHERE j.id = ?1",
                                   "i", ids[i]);
        rc = db_step(s, q, e);
        if (rc != 1)
            continue;
        rc = read_job(s, &out->v[out->n++], q, &out->text)
                 ? 0
                 : err_set(e, ERR_FAILED, ERR_PATH "the row of job %" PRId64 " cannot be read",
                           s->shown, ids[i]);
        db_reset(q);
    }
    rc = db_end(s, rc, e);
    if (rc)
        job_list_free(out);
    return rc;
}

DB_LIST_FREE(job_list)

int store_estimate(struct store *s, const struct job_list *l, double *seconds, struct err *e)
{
    const char *model = NULL;
    double speed = NAN;                  /* of `model` */
    *seconds = 0;
    if (!s->self.pid)
        owner_self(&s->self);
    for (size_t i = 0; i < l->n && !isnan(*seconds); i++) {
        const struct job *j = &l->v[i];
        if ((j->state != JOB_QUEUED && j->state != JOB_RUNNING) || j->tokens >= j->wanted)
            continue;
        if (!model || strcmp(model, j->model) != 0) {
            speed = NAN;
            if (db_read(s, e, "SELECT tokens_per_second FROM speed WHERE host = ?1 AND model = ?2", "tt>r",
                        s->self.host, j->model, &speed) < 0)
                return -1;
            model = j->model;
        }
        *seconds += (double)(j->wanted - j->tokens) / speed;
    }
    return 0;
}

int store_counts(struct store *s, const char *batch, struct store_counts *out, struct err *e)
{
    int rc;
    *out = (struct store_counts){0};
    sqlite3_stmt *q =
        db_query(s, e,
                 "SELECT state, count(*), sum(tokens), sum(wanted), sum(max(wanted - tokens, 0)) FROM job "
                 "WHERE ?1 IS NULL OR batch = (SELECT id FROM batch WHERE name = ?1) GROUP BY state",
                 "t", batch);
    while ((rc = db_step(s, q, e)) == 1) {
        enum job_state state;
        if (job_state_parse(&state, (const char *)sqlite3_column_text(q, 0), e)) {
            db_reset(q);
            return -1;
        }
        out->jobs[state] = (size_t)sqlite3_column_int64(q, 1);
        if (state <= JOB_DONE) {
            out->tokens += (size_t)sqlite3_column_int64(q, 2);
            out->wanted += (size_t)sqlite3_column_int64(q, 3);
        }
        if (state == JOB_QUEUED || state == JOB_RUNNING)
            out->open_tokens += (size_t)sqlite3_column_int64(q, 4);
    }
    if (rc || !out->jobs[JOB_RUNNING])
        return rc;
    q = db_query(s, e,                   /* as stalled_seconds */
                 "SELECT sum(CASE WHEN ?2 - j.updated < max(?3, ?4 / max(j.rate, 1e-9)) THEN j.rate ELSE 0 "
                 "END), " OWNER_COLUMNS " "
                 "FROM job j LEFT JOIN worker w ON w.id = j.worker WHERE j.state = 'running' AND "
                 "(?1 IS NULL OR j.batch = (SELECT id FROM batch WHERE name = ?1)) GROUP BY j.worker",
                 "trdd", batch, wall_seconds(), STALLED_SECONDS, STALLED_TOKENS);
    while ((rc = db_step(s, q, e)) == 1)
        out->rate += worker_has_ended(s, q, 1) ? 0 : sqlite3_column_double(q, 0);
    return rc;
}

/* ---- changing ---- */

/* ERR_INPUT if a live worker is writing one of these jobs. */
static int refuse_running(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    size_t running = 0;
    int64_t first = 0;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        sqlite3_stmt *q = db_query(s, e,
                                   "SELECT " OWNER_COLUMNS " FROM job j "
                                   "LEFT JOIN worker w ON w.id = j.worker WHERE j.id = ?1 AND "
                                   "j.state = 'running'",
                                   "i", ids[i]);
        if ((rc = db_step(s, q, e)) != 1)
            continue;
        rc = 0;
        if (!worker_has_ended(s, q, 0)) {
            first = first ? first : ids[i];
            running++;
        }
        db_reset(q);
    }
    if (rc || !running)
        return rc;
    return err_set(e, ERR_INPUT,
                   "%zu of %zu %s (the first is job %" PRId64 ") %s being written; nothing was removed. "
                   "Pause or cancel %s first",
                   running, n, plural(n, "job", "jobs"), first, plural(running, "is", "are"),
                   plural(running, "it", "them"));
}

#define CANCEL \
    "UPDATE job SET state = 'cancelled', attempt = attempt + 1, worker = NULL, rate = 0, updated = ?2, " \
    "ended = ?2 WHERE id = ?1 AND state NOT IN ('done', 'cancelled')"

/* Each changes the job ?1, at the time ?2, if it is in the right state; ?3: its new priority. `event` names
 * what happened; NULL: the job no longer exists. */
static const struct change { const char *sql, *event; } changes[] = {
    [CHANGE_PRIORITY] = { "UPDATE job SET priority = ?3 WHERE id = ?1 AND state NOT IN ('done', 'cancelled')",
                          "priority" },
    [CHANGE_PAUSE] = { "UPDATE job SET state = 'paused', attempt = attempt + 1, worker = NULL, rate = 0, "
                       "updated = ?2 WHERE id = ?1 AND state IN ('queued', 'running')", "paused" },
    [CHANGE_RESUME] = { "UPDATE job SET state = 'queued', attempt = attempt + 1, idle = 0, error = NULL, "
                        "ended = NULL, updated = ?2 WHERE id = ?1 AND state IN ('paused', 'failed')",
                        "resumed" },
    [CHANGE_CANCEL] = { CANCEL, "cancelled" },
    [CHANGE_REMOVE] = { "DELETE FROM job WHERE id = ?1", NULL },
    [CHANGE_REMOVE_IDLE] = { "DELETE FROM job WHERE id = ?1", NULL },
};

/* A part of the caller's transaction. */
static int change_each(struct store *s, const struct change *c, int priority, const int64_t *ids, size_t n,
                       size_t *changed, struct err *e)
{
    char text[16] = "";
    int rc = 0;
    if (c == &changes[CHANGE_PRIORITY])
        snprintf(text, sizeof text, "%d", priority);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = db_run(s, e, c->sql, "ird", ids[i], wall_seconds(), priority);
        if (rc || db_changes(s) == 0)
            continue;
        ++*changed;
        if (c->event && strcmp(c->event, "cancelled") == 0)
            rc = db_run(s, e, "DELETE FROM snapshot WHERE job = ?1", "i", ids[i]);
        rc = rc || !c->event ? rc : event_add(s, e, ids[i], ATTEMPT_NOW, c->event, "%s", text);
    }
    return rc || c->event ? rc : db_run(s, e, "DELETE FROM batch WHERE NOT EXISTS (SELECT 1 FROM job WHERE "
                                        "job.batch = batch.id)", "");
}

int requests_cancel(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    static const struct change c = { CANCEL " AND id IN (SELECT job FROM request)", "cancelled" };
    return change_each(s, &c, 0, ids, n, &(size_t){ 0 }, e);
}

int store_change(struct store *s, enum change_kind kind, int priority, const int64_t *ids, size_t n,
                 size_t *changed, struct err *e)
{
    size_t ignored;
    changed = changed ? changed : &ignored;
    *changed = 0;
    if (db_begin(s, e))
        return -1;
    int rc = kind == CHANGE_REMOVE_IDLE && (refuse_running(s, ids, n, e) || chapters_refuse(s, ids, n, e))
                 ? -1 : 0;
    return db_end(s, rc ? rc : change_each(s, &changes[kind], priority, ids, n, changed, e), e);
}
