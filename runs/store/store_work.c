/* Working on jobs: workers and their beats, claims, and the writes that a claim allows.
 *
 * Owns the tables worker, metric, round and snapshot. Every write of a worker passes `fence`, which checks
 * the job's attempt in the same transaction. Start at store_claim and store_commit_all. */
#include "runs/store/store_db.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- workers ---- */

static bool lock_first_byte(int fd, short type)
{
    struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };
    return fd >= 0 && fcntl(fd, F_OFD_SETLK, &l) == 0;
}

/* Two open file descriptions of one file exclude each other (fcntl(2)). The file system handles these
 * locks with the same code as the locks that SQLite takes. */
int store_test_locks(struct store *s, struct err *e)
{
    char path[PATH_MAX];
    if (!s->self.pid)
        owner_self(&s->self);
    snprintf(path, sizeof path, "%s-locktest-%s-%ld", s->path, s->self.host, (long)getpid());
    int a = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), b = open(path, O_RDWR | O_CLOEXEC);
    bool first = lock_first_byte(a, F_WRLCK), second = lock_first_byte(b, F_WRLCK);
    bool freed = first && lock_first_byte(a, F_UNLCK) && lock_first_byte(b, F_WRLCK);
    close(a);
    close(b);
    unlink(path);
    if (first && !second && freed)
        return 0;
    return err_set(e, ERR_FAILED,
                   ERR_PATH "the locks of this %s file system do not work here (%s); a store on it cannot be "
                   "shared",
                   s->shown, s->fs ? s->fs : "local",
                   !first   ? "no lock was granted"
                   : second ? "a lock was granted twice"
                            : "a released lock stays taken");
}

/* On a network file system: refuse a second host, unless the user vouches for the locks. */
static int check_hosts(struct store *s, struct err *e)
{
    if (!s->fs)
        return 0;
    if (s->o.shared_db)
        return store_test_locks(s, e);
    struct owner o;
    const int rc = db_read(s, e, "SELECT host, pid FROM worker WHERE host <> ?1 LIMIT 1", "t>ti",
                           s->self.host, o.host, sizeof o.host, &o.pid);
    return rc != 1 ? rc : err_set(e, ERR_FAILED,
            ERR_PATH "host %s (process %" PRId64 ") works on it, and it is on a network file system (%s): "
            "--shared-db lets a second host in, where its locks are honest", s->shown, o.host, o.pid, s->fs);
}

/* Make sure that this process has a row. Another worker may have declared it dead and deleted the row.
 * `worker` 0: with a new number. */
static int put_worker(struct store *s, int64_t worker, struct err *e)
{
    return db_run(s, e, "INSERT INTO worker (id, host, boot, spaces, pid, start, begun) VALUES "
                  "(nullif(?1, 0), ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING", "itttizr", worker,
                  s->self.host, s->self.boot, s->self.spaces, s->self.pid, s->self.start, wall_seconds());
}

int store_worker_start(struct store *s, int64_t *worker, struct err *e)
{
    owner_self(&s->self);
    const int rc = db_begin(s, e) || check_hosts(s, e) || put_worker(s, 0, e) ? -1 : 0;
    if (rc == 0)
        *worker = sqlite3_last_insert_rowid(s->db);
    return db_end(s, rc, e);
}

int store_beat(struct store *s, int64_t worker, struct err *e)
{
    int rc = db_begin(s, e) || put_worker(s, worker, e) ||
             db_run(s, e, "UPDATE worker SET beat = beat + 1 WHERE id = ?1", "i", worker) ? -1 : 0;
    return db_end(s, rc, e);
}

/* Queue the jobs of a condition again. The raised attempt stops a process that still believes to work on
 * one. ?2: the time, ?3: the event, ?4: its text. */
#define REQUEUE(jobs) \
    "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?2, attempt, ?3, ?4 FROM job WHERE " jobs \
    "; UPDATE job SET state = 'queued', attempt = attempt + 1, worker = NULL, rate = 0, updated = ?2 WHERE " \
    jobs
/* A running job always names a row of `worker`. If that row is missing (lost, or deleted by hand), no
 * process can be working on the job. */
#define ORPHAN \
    "state = 'running' AND (worker IS NULL OR " \
    "NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = job.worker))"

/* Queue the jobs of this worker again and delete its row. Nobody waits any more for its requests without a
 * key. */
static int remove_worker(struct store *s, int64_t worker, const char *event, const char *text, struct err *e)
{
    return db_run(s, e, REQUEUE("worker = ?1 AND state = 'running'"), "irtt", worker, wall_seconds(), event,
                  text) ||
           requests_abandon(s, worker, e) ||
           db_run(s, e, "UPDATE job SET worker = NULL WHERE worker = ?1; DELETE FROM worker WHERE id = ?1",
                  "i", worker) ? -1 : 0;
}

int store_worker_end(struct store *s, int64_t worker, struct err *e)
{
    const int rc = db_begin(s, e) || remove_worker(s, worker, "released", "its worker ended", e) ? -1 : 0;
    return db_end(s, rc, e);
}

/* ---- dead workers ---- */

struct dead_worker { int64_t worker, beat; char text[160]; };
struct dead_list { struct dead_worker *v; size_t n; };

/* The workers other than `me` that are dead. Reads only. */
static int find_dead(struct store *s, int64_t me, struct dead_list *out, struct err *e)
{
    double now = clock_seconds();
    int rc;
    sqlite3_stmt *q = db_query(s, e, "SELECT id, beat, " OWNER_COLUMNS " FROM worker w WHERE id <> ?1", "i",
                               me);
    while ((rc = db_step(s, q, e)) == 1) {
        struct dead_worker d = { .worker = sqlite3_column_int64(q, 0), .beat = sqlite3_column_int64(q, 1) };
        struct owner o;
        column_owner(q, 2, &o);
        bool ended = owner_liveness(&o, &s->self, !s->fs) == OWNER_DEAD;
        double still = watch_beat(&s->watch, d.worker, d.beat, now, s->o.lease_seconds);
        if (!ended && still < s->o.lease_seconds)
            continue;
        if (ended)
            snprintf(d.text, sizeof d.text, "process %" PRId64 " on %.60s has ended", o.pid, o.host);
        else
            snprintf(d.text, sizeof d.text, "process %" PRId64 " on %.60s has given no sign for %.0f s",
                     o.pid, o.host, still);
        if (!array_grow(&out->v, out->n, sizeof *out->v)) {
            db_reset(q);
            return err_set(e, ERR_FAILED, "out of memory for a list of workers");
        }
        out->v[out->n++] = d;
    }
    return rc;
}

int store_requeue_dead(struct store *s, int64_t worker, struct err *e)
{
    struct dead_list dead = {0};
    assert(s->self.pid && worker);       /* otherwise every worker would look dead */
    int rc = find_dead(s, worker, &dead, e);
    if (rc == 0)                         /* most calls find none; they take no lock */
        rc = dead.n ? 1 : db_read(s, e, "SELECT 1 FROM job WHERE " ORPHAN " LIMIT 1", "");
    if (rc == 1) {
        rc = db_begin(s, e) || put_worker(s, worker, e) ? -1 : 0;
        for (const struct dead_worker *d = dead.v; d < dead.v + dead.n && rc == 0; d++) {
            rc = db_read(s, e, "SELECT 1 FROM worker WHERE id = ?1 AND beat = ?2", "ii", d->worker, d->beat);
            if (rc == 1)                 /* otherwise its beat has risen since find_dead */
                rc = remove_worker(s, d->worker, "taken over", d->text, e);
        }
        rc = db_end(s, rc ? rc : db_run(s, e, REQUEUE(ORPHAN), "irtt", INT64_C(0), wall_seconds(),
                                        "taken over", "its worker is not known"), e);
    }
    free(dead.v);
    return rc;
}

/* ---- claims ---- */

#define ELIGIBLE \
    "state = 'queued' AND (?1 IS NULL OR numerics IS NULL OR tokens = 0 OR " \
    "instr(?1, char(10) || numerics || char(10)) > 0) " \
    "AND (?2 IS NULL OR batch = (SELECT id FROM batch WHERE name = ?2)) " \
    "AND (?3 IS NULL OR instr(?3, char(10) || id || char(10)) = 0) " \
    "AND (?4 IS NULL OR instr(?4, char(10) || model || char(10)) = 0) AND (NOT ?5 OR tokens > 0) " \
    "AND (?7 IS NULL OR model = ?7) AND NOT " CHAPTER_WAITS " AND NOT EXISTS (SELECT 1 FROM request q " \
    "JOIN worker w ON w.id = q.worker WHERE q.job = job.id AND w.id <> ?6)"

int store_next(struct store *s, const struct claim_request *r, struct next_job *next, struct err *e)
{
    struct err why;
    const int full = store_full(s, &why);
    int rc = db_read(s, e, "SELECT id, idle, priority FROM job WHERE " ELIGIBLE " ORDER BY priority DESC, "
                     QUEUE_ORDER " LIMIT 1", "ttttdit>idd", r->numerics, r->batch, r->skip, r->missing, full,
                     r->worker, r->only_model, &next->job, &next->idle, &next->priority);
    if (rc != 1 || !r->model)
        return rc;
    rc = db_read(s, e, "SELECT id, idle FROM job WHERE " ELIGIBLE " AND priority = ?8 AND model = ?9 ORDER "
                 "BY " QUEUE_ORDER " LIMIT 1", "ttttditdt>id", r->numerics, r->batch, r->skip, r->missing,
                 full, r->worker, r->only_model, next->priority, r->model, &next->job, &next->idle);
    return rc < 0 ? -1 : 1;
}

/* Whether the job that a request names may be claimed: 1; -1: no, and e says why. */
static int check_claimable(struct store *s, int64_t job, struct err *e)
{
    char state[16];
    struct owner o;
    const int rc = db_read(s, e, "SELECT j.state, ifnull(w.host, '?'), w.pid FROM job j LEFT JOIN worker w "
                           "ON w.id = j.worker WHERE j.id = ?1", "i>tti", job, state, sizeof state, o.host,
                           sizeof o.host, &o.pid);
    if (rc <= 0)
        return rc ? -1 : err_set(e, ERR_INPUT, "there is no job %" PRId64, job);
    if (strcmp(state, "running") == 0)
        return err_set(e, ERR_INPUT,
                       "job %" PRId64 " is being worked on by process %" PRId64
                       " on %s; `longhand pause %" PRId64 "` stops it", job, o.pid, o.host, job);
    if (strcmp(state, "done") == 0 || strcmp(state, "cancelled") == 0)
        return err_set(e, ERR_INPUT, "job %" PRId64 " is %s; `longhand extend` goes on with its text, "
                       "`longhand fork` with a part of it", job, state);
    return chapter_check(s, job, e) ? -1 : 1;
}

/* Fail a job that has used up its attempts. 0, -1. */
static int fail_idle_job(struct store *s, int64_t job, int64_t idle, struct err *e)
{
    char text[200];
    snprintf(text, sizeof text,
             "%" PRId64 " attempts in a row ended without a token or a longer snapshot; `longhand show` "
             "lists them, `longhand resume` tries again", idle);
    return db_run(s, e,
                  "UPDATE job SET state = 'failed', attempt = attempt + 1, error = ?2, updated = ?3, "
                  "ended = ?3 WHERE id = ?1; DELETE FROM snapshot WHERE job = ?1", "itr", job, text,
                  wall_seconds()) ||
           event_add(s, e, job, ATTEMPT_NOW, "failed", "%s", text) ? -1 : 0;
}

/* Claim this job: 1; 0: it has used up its attempts and failed; -1. */
static int claim_job(struct store *s, const struct claim_request *r, int64_t job, struct claim *c,
                     struct err *e)
{
    char state[16];
    *c = (struct claim){ .job = job };
    const int rc = db_read(s, e, "SELECT idle, attempt + 1, tokens, wanted, state, started IS NULL FROM job "
                           "WHERE id = ?1", "i>dizztb", job, &c->idle, &c->attempt, &c->end.tokens,
                           &c->wanted, state, sizeof state, &c->first);
    if (rc != 1)
        return rc ? -1 : err_set(e, ERR_FAILED, "job %" PRId64 " does not exist any more", job);
    if (job_state_parse(&c->was, state, e))
        return -1;
    if (!r->job && r->max_attempts > 0 && c->idle >= r->max_attempts)
        return fail_idle_job(s, job, c->idle, e);
    if (db_run(s, e,
               "UPDATE job SET state = 'running', attempt = attempt + 1, idle = idle + 1, worker = ?2, "
               "resumes = resumes + (started IS NOT NULL AND tokens > 0), "
               "started = ifnull(started, ?3), updated = ?3, error = NULL, ended = NULL WHERE id = ?1",
               "iir", job, r->worker, wall_seconds()) ||
        event_add(s, e, job, ATTEMPT_NOW, "claimed", "by process %" PRId64 " on %.60s, at token %zu",
                  s->self.pid, s->self.host, c->end.tokens))
        return -1;
    return 1;
}

static int claim_in_transaction(struct store *s, const struct claim_request *r, struct claim *c,
                                struct err *e)
{
    struct next_job next = { .job = r->job };
    int rc = db_begin(s, e) || put_worker(s, r->worker, e) ? -1 : 0;
    while (rc == 0) {                    /* a job that claim_job fails leaves the queue */
        rc = r->job ? check_claimable(s, r->job, e) : store_next(s, r, &next, e);
        if (rc != 1)
            break;
        rc = claim_job(s, r, next.job, c, e);
    }
    return db_end(s, MIN(rc, 0), e) ? -1 : rc;
}

int store_claim(struct store *s, const struct claim_request *r, struct claim *c, struct err *e)
{
    struct next_job next;
    int rc = store_requeue_dead(s, r->worker, e);
    if (rc == 0)                         /* most calls find no work; they take no lock */
        rc = r->job ? 1 : store_next(s, r, &next, e);
    return rc == 1 ? claim_in_transaction(s, r, c, e) : rc;
}

/* ---- writing under a claim ---- */

/* The claim does not hold: say what became of the job. 1, -1. */
static int claim_lost(struct store *s, int64_t job, struct err *e)
{
    char state[16];
    const int rc = db_read(s, e, "SELECT state FROM job WHERE id = ?1", "i>t", job, state, sizeof state);
    if (rc < 0)
        return -1;
    if (rc == 0)
        err_set(e, ERR_AGAIN, "job %" PRId64 " was removed", job);
    else if (strcmp(state, "running") == 0 || strcmp(state, "queued") == 0)
        err_set(e, ERR_AGAIN, "job %" PRId64 " was given to another worker", job);
    else
        err_set(e, ERR_AGAIN, "job %" PRId64 " is %s", job, state);
    return 1;
}

/* Inside a write transaction: 0 while the claim holds; else as claim_lost. */
static int fence(struct store *s, const struct claim *c, struct err *e)
{
    if (db_run(s, e, "UPDATE job SET updated = ?3 WHERE id = ?1 AND attempt = ?2 AND state = 'running'",
               "iir", c->job, c->attempt, wall_seconds()))
        return -1;
    return db_changes(s) == 1 ? 0 : claim_lost(s, c->job, e);
}

int store_claim_holds(struct store *s, int64_t job, int64_t attempt, struct err *e)
{
    int rc = db_read(s, e, "SELECT 1 FROM job WHERE id = ?1 AND attempt = ?2 AND state = 'running'", "ii",
                     job, attempt);
    return rc < 0 ? -1 : rc == 1 ? 0 : claim_lost(s, job, e);
}

int store_check_begin(struct store *s, int64_t job, size_t tokens, const char *numerics,
                      const char *fingerprint, bool accept_change, bool record, struct err *e)
{
    char before[2][200];
    const char *now[2] = { numerics, fingerprint }, *what[2] = { "numerics id", "model" };
    int rc = db_read(s, e, "SELECT numerics, fingerprint FROM job WHERE id = ?1", "i>tt", job, before[0],
                     sizeof before[0], before[1], sizeof before[1]) == 1 ? 0 : -1;
    for (int i = tokens ? 0 : 1; i < 2 && rc == 0; i++) {    /* the fingerprint binds from submit on */
        if (!before[i][0] || strcmp(before[i], now[i]) == 0)
            continue;
        if (!accept_change)
            return err_set(e, ERR_INPUT,
                           "job %" PRId64 " has %zu tokens made with %s %.150s, here it is %.150s: the text "
                           "would not go on as it would have; --accept-numerics-change goes on all the same",
                           job, tokens, what[i], before[i], now[i]);
        if (i == 1)
            rc = model_adopt(s, job, tokens, before[1], fingerprint, record, e);
        else if (record)
            rc = event_add(s, e, job, ATTEMPT_NOW, "accepted change", CHANGE_FORMAT, what[i], now[i],
                           before[i], tokens);
    }
    return rc;
}

int store_begin(struct store *s, struct claim *c, const char *numerics, const char *fingerprint,
                bool accept_change, int32_t **ids, struct err *e)
{
    struct text_end end;
    *ids = NULL;
    int rc = db_begin(s, e) ? -1 : fence(s, c, e);
    if (rc == 0 &&
        (store_check_begin(s, c->job, c->end.tokens, numerics, fingerprint, accept_change, true, e) ||
         chunks_read(s, c->job, ids, &end, e) ||
         db_run(s, e, "UPDATE job SET numerics = ?2, fingerprint = ?3 WHERE id = ?1", "itt", c->job, numerics,
                fingerprint)))
        rc = -1;
    rc = db_end(s, rc, e);
    if (rc) {
        free(*ids);
        *ids = NULL;
        return rc;
    }
    c->begun = true;
    c->end = end;
    return 0;
}

int store_chapter_make(struct store *s, struct claim *c, const struct chapter_prompt *p, struct err *e)
{
    struct text_end end = {0};
    struct chapter row = {0};
    int rc = db_begin(s, e) ? -1 : fence(s, c, e);
    rc = rc ? rc : store_chapter(s, c->job, &row, e);
    link_start(&end.link, p->ids, p->n);
    const struct given_text given = { p->append, p->n_append, row.append,
                                      row.append ? strlen(row.append) : 0 };
    if (rc == 0 &&
        (db_run(s, e, "UPDATE chapter SET sha = ?2, given = ?3 WHERE job = ?1; "
                "UPDATE job SET prompt_tokens = ?4, opening = CASE WHEN opening = '' AND ?5 NOT NULL "
                "THEN substr(CAST(?5 AS TEXT), 1, 160) ELSE opening END WHERE id = ?1; "
                "UPDATE input SET prompt = ifnull(?5, prompt), chat = ifnull(?6, chat), crc = ?7, "
                "ids = ?8 WHERE job = ?1", "ihzzbtp", c->job, p->sha, p->n_append, p->n, p->text,
                p->bytes, p->chat, p->ids, p->n) ||
         append_given(s, c->job, &end, &given, c->wanted, e) ||
         event_add(s, e, c->job, ATTEMPT_NOW, "continues", "job %" PRId64 ", with %zu %s of its text",
                   row.after, p->carried, plural(p->carried, "token", "tokens"))))
        rc = -1;
    rc = db_end(s, rc, e);
    chapter_free(&row);
    if (rc == 0)
        c->end = end;
    return rc;
}

/* Add the counters to the stored ones. The job's row has its tokens and seconds, too. */
static int write_figures(struct store *s, int64_t job, const struct commit *b, struct err *e)
{
    double made = 0, seconds = 0;
    for (size_t i = 0; i < b->n_metrics; i++) {
        const struct metric *r = &b->metrics[i];
        if (DB_PUT(s, e, "INSERT", "metric", METRIC_FIELDS, job,
                   " ON CONFLICT (job, start, source, name, idx) DO UPDATE SET "
                   "value = value + excluded.value"))
            return -1;
        made += !r->source[0] && strcmp(r->name, "tokens") == 0 ? r->value : 0;
        seconds += !r->source[0] && strcmp(r->name, "seconds") == 0 ? r->value : 0;
    }
    for (size_t i = 0; i < b->n_rounds; i++) {
        const struct round_row *r = &b->rounds[i];
        if (DB_PUT(s, e, "INSERT OR REPLACE", "round", ROUND_FIELDS, job, ""))
            return -1;
    }
    return db_run(s, e, "UPDATE job SET rate = ?2, made = made + ?3, seconds = seconds + ?4 WHERE id = ?1",
                  "irir", job, b->rate, (int64_t)made, seconds);
}

/* Leave the job as it was before the claim. Nobody else has seen this attempt's number: the fence holds. */
static int undo_claim(struct store *s, const struct claim *c, const struct job_end *end, struct err *e)
{
    assert(!c->begun && (end->state == JOB_QUEUED || end->state == JOB_PAUSED));
    return db_run(s, e,
                  "DELETE FROM event WHERE job = ?1 AND attempt = ?2 AND kind = 'claimed'; "
                  "UPDATE job SET state = ?3, worker = NULL, attempt = attempt - 1, idle = max(idle - 1, 0), "
                  "resumes = resumes - (NOT ?4 AND tokens > 0), "
                  "started = CASE WHEN ?4 THEN NULL ELSE started END WHERE id = ?1",
                  "iitd", c->job, c->attempt, job_state_name(end->state), c->first);
}

static int write_end(struct store *s, const struct claim *c, size_t tokens, const struct job_end *end,
                     struct err *e)
{
    const char *state = job_state_name(end->state),
               *why = end->error ? end->error : end->finish_reason ? end->finish_reason : "";
    bool over = end->state == JOB_DONE || end->state == JOB_FAILED;
    assert(over || end->state == JOB_QUEUED || end->state == JOB_PAUSED);
    return db_run(s, e,
                  "UPDATE job SET state = ?2, worker = NULL, rate = 0, finish_reason = ?3, stop_reason = ?4, "
                  "error = ?5, ended = CASE WHEN ?6 THEN ?7 END, text_sha = ?8, "
                  "idle = CASE WHEN ?6 THEN idle ELSE max(idle - 1, 0) END WHERE id = ?1; "
                  "DELETE FROM snapshot WHERE job = ?1 AND ?6; "
                  "INSERT OR REPLACE INTO speed (host, model, tokens_per_second) SELECT ?9, model, "
                  "(made - " TAKEN_BACK("job") ") / seconds FROM job WHERE id = ?1 AND state = 'done' AND "
                  "made > 0 AND seconds > 0",
                  "ittttdrht", c->job, state, end->finish_reason, end->stop_reason, end->error, over,
                  wall_seconds(), end->sha, s->self.host) ||
           event_add(s, e, c->job, ATTEMPT_NOW, over ? state : "released", "at token %zu%s%.100s", tokens,
                     why[0] ? ": " : "", why) ? -1 : 0;
}

/* Cut the text and add the retakes. A round that goes across the cut ends there. */
static int cut_back(struct store *s, const struct claim *c, const struct commit *b, struct text_end *end,
                    struct err *e)
{
    if (b->cut < end->tokens &&
        (chunks_cut(s, c->job, b->cut, end, e) ||
         db_run(s, e, "DELETE FROM round WHERE job = ?1 AND start >= ?2; UPDATE round SET "
                "tokens = ?2 - start WHERE job = ?1 AND start + tokens > ?2", "iz", c->job, b->cut)))
        return -1;
    return retakes_append(s, c->job, end, b->retakes, b->n_retakes, e);
}

/* Write the part of one job, after its fence. Returns as fence; *end is where the text ends then. */
static int write_part(struct store *s, const struct claim *c, const struct commit *b, struct text_end *end,
                      struct err *e)
{
    *end = c->end;
    assert(b->n == 0 || (c->begun && b->n <= c->wanted - (b->n_retakes ? MIN(end->tokens, b->cut)
                                                                      : end->tokens)));
    int rc = fence(s, c, e);
    if (rc == 0 && b->n_retakes)
        rc = cut_back(s, c, b, end, e);
    if (rc == 0 && (b->n || b->n_retakes)) {
        rc = b->logprobs && b->n ? logprobs_append(s, c->job, end->tokens, b->logprobs, b->n, b->best, e) : 0;
        rc = rc ? rc : chunks_append(s, c->job, end, b->ids, b->n, e);
        struct chain_link link = chunks_link(end);
        if (rc == 0)
            rc = db_run(s, e, "UPDATE job SET tokens = ?2, link = ?3, settled = nullif(?4, -1), idle = 0 "
                        "WHERE id = ?1", "izhz", c->job, end->tokens, &link, b->settled);
    }
    if (rc == 0)
        rc = write_figures(s, c->job, b, e);
    for (size_t i = 0; i < b->n_notes && rc == 0; i++)
        rc = event_add_at(s, e, c->job, b->notes[i].at, ATTEMPT_NOW, b->notes[i].kind, b->notes[i].text);
    if (rc == 0 && b->end)
        rc = b->end->undo ? undo_claim(s, c, b->end, e) : write_end(s, c, end->tokens, b->end, e);
    return rc;
}

static const struct err *write_job(struct store *s, void *v, size_t i)
{
    struct job_commit *p = (struct job_commit *)v + i;
    p->rc = write_part(s, p->claim, &p->add, &p->text_end, &p->err);
    return p->rc ? &p->err : NULL;
}

int store_commit_all(struct store *s, struct job_commit *v, size_t n, struct err *e)
{
    const int rc = db_parts(s, e, v, n, write_job);
    for (size_t i = 0; i < n; i++) {
        if (rc) {
            v[i].rc = -1;
            v[i].err = *e;
        } else if (v[i].rc == 0) {
            v[i].claim->end = v[i].text_end;
        }
    }
    return rc;
}

int store_commit(struct store *s, struct claim *c, const struct commit *b, struct err *e)
{
    struct job_commit part = { .claim = c, .add = *b };
    if (store_commit_all(s, &part, 1, e) == 0 && part.rc)
        *e = part.err;
    return part.rc;
}

/* ---- rows of snapshot files ---- */

#define DROP_SNAPSHOTS "DELETE FROM snapshot WHERE job = ?1 AND start >= ?2"

int store_snapshot_set(struct store *s, const struct claim *c, const struct snapshot_row *r, uint64_t bytes,
                       struct err *e)
{
    const int rc = db_begin(s, e) ? -1 : fence(s, c, e);
    return db_end(s, rc ? rc : db_run(s, e,
                "UPDATE job SET idle = 0 WHERE id = ?1 AND ?3 > (SELECT ifnull(max(tokens), 0) FROM "
                "snapshot WHERE job = ?1); " DROP_SNAPSHOTS
                "; INSERT INTO snapshot (job, start, tokens, path, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
                "izztz", c->job, r->start, r->tokens, r->name, bytes), e);
}

int store_snapshot_drop(struct store *s, const struct claim *c, size_t start, struct err *e)
{
    const int rc = db_begin(s, e) ? -1 : fence(s, c, e);
    return db_end(s, rc ? rc : db_run(s, e, DROP_SNAPSHOTS, "iz", c->job, start), e);
}

int store_snapshot_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                        struct err *e)
{
    int rc;
    *n = 0;
    sqlite3_stmt *q =
        db_query(s, e, "SELECT path, start, tokens FROM snapshot WHERE job = ?1 ORDER BY start", "i", job);
    while ((rc = db_step(s, q, e)) == 1) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        struct snapshot_row r = { .start = (size_t)sqlite3_column_int64(q, 1),
                                  .tokens = (size_t)sqlite3_column_int64(q, 2) };
        if (!name || strlen(name) >= sizeof r.name || r.start >= r.tokens ||
            r.start != (*n ? row[*n - 1].tokens : 0) || *n == STORE_SNAPSHOTS_MAX) {
            err_set(e, ERR_FAILED, "the row of job %" PRId64 " that names the snapshot \"%.80s\" does not "
                    "follow the one before it", job, name ? name : "");
            db_reset(q);
            return -1;
        }
        strcpy(r.name, name);
        row[(*n)++] = r;
    }
    return rc;
}

int store_snapshot_wanted(struct store *s, int64_t job, int64_t attempt, const char *name, struct err *e)
{
    return db_read(s, e, "SELECT 1 WHERE EXISTS (SELECT 1 FROM snapshot WHERE job = ?1 AND path = ?3) OR "
                   "EXISTS (SELECT 1 FROM job WHERE id = ?1 AND attempt = ?2 AND state = 'running')", "iit",
                   job, attempt, name);
}
