/* Chapters: jobs that continue the text of another job. Owns the table chapter and the columns chain and
 * depth of job. A chapter waits while its row has no sha; store_chapter_make (store_work.c) sets it. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHAPTER_COLUMNS ", carry, prompted, own, most, given, append"

/* ---- submitting ---- */

/* The place of a chapter in the queue. The walk ends at a job that has its place. */
#define PLACE(job) \
    "WITH RECURSIVE up(job, d) AS (SELECT " job ", 0 UNION ALL SELECT c.after, d + 1 FROM up JOIN chapter " \
    "c ON c.job = up.job JOIN job j ON j.id = up.job WHERE j.chain IS NULL) " \
    "UPDATE job SET (chain, depth) = (SELECT ifnull(j.chain, up.job), ifnull(j.depth, 0) + up.d FROM up " \
    "LEFT JOIN job j ON j.id = up.job ORDER BY up.d DESC LIMIT 1) WHERE id = " job

int chapters_add(struct store *s, int64_t batch, const struct job_spec *v, size_t n, const int64_t *ids,
                 const bool *is_new, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct chapter_spec *c = &v[i].chapter;
        if (!spec_is_chapter(&v[i]))
            continue;
        int64_t after = c->after;
        const int rc = after ? 1 : db_read(s, e, "SELECT id FROM job WHERE batch = ?1 AND custom_id = "
                                           "?2 ORDER BY sample LIMIT 1", "it>i", batch, c->after_id, &after);
        if (rc <= 0)
            return rc ? -1 : err_set(e, ERR_INPUT, "after: there is no job \"%s\"", c->after_id);
        const bool old = is_new && !is_new[i];
        if (old ? db_run(s, e, "UPDATE chapter SET after = ?2 WHERE job = ?1 AND sha IS NULL AND NOT EXISTS "
                         "(SELECT 1 FROM job WHERE id = after)", "ii", ids[i], after)
                : db_run(s, e, "INSERT INTO chapter (job, after" CHAPTER_COLUMNS ") SELECT ?1, ?2, CASE WHEN "
                         "?3 >= 0 THEN ?3 END, ?4, prompt_tokens, ?5, ?6, ?7 FROM job WHERE id = ?1",
                         "iiidzzb", ids[i], after, c->carry, c->prompted, c->most, c->n_append, c->append,
                         c->append ? strlen(c->append) : 0))
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (spec_is_chapter(&v[i]) && (!is_new || is_new[i]) && db_run(s, e, PLACE("?1"), "i", ids[i]))
            return -1;
    return 0;
}

/* ---- reading ---- */

int store_chapter(struct store *s, int64_t job, struct chapter *out, struct err *e)
{
    *out = (struct chapter){0};
    const int rc = db_read(s, e, "SELECT after, ifnull(carry, -1), own, prompted, sha NOT NULL, "
                           "append FROM chapter WHERE job = ?1", "i>iizbbs", job, &out->after, &out->carry,
                           &out->own, &out->prompted, &out->made, &out->append);
    return MIN(rc, 0);
}

void chapter_free(struct chapter *c)
{
    free(c->append);
    *c = (struct chapter){0};
}

int store_lengths(struct store *s, int64_t job, struct job_lengths *out, struct err *e)
{
    const int rc = db_read(s, e,
                           "SELECT CASE WHEN c.most NOT NULL AND c.sha IS NULL THEN c.most ELSE "
                           "j.prompt_tokens END, CASE WHEN j.state = 'done' THEN j.tokens ELSE j.wanted END, "
                           "j.wanted - CASE WHEN c.given NOT NULL AND c.sha IS NULL THEN c.given ELSE "
                           "j.given END FROM job j LEFT JOIN chapter c ON c.job = j.id WHERE j.id = ?1",
                           "i>zzz", job, &out->prompt, &out->text, &out->sampled);
    return rc == 0 ? err_set(e, ERR_INPUT, "there is no job %" PRId64, job) : MIN(rc, 0);
}

/* The numbers of the jobs and their places, ascending. For each place: the chapters that continue its job,
 * the last one, and from each the one before it; whether its job continues another one; a part of a stack. */
struct node { int64_t id; size_t at, last, before, stack; bool continues; };

int jobs_in_chains(void *records, size_t n, size_t size, const struct job *(*job_of)(const void *record),
                   struct err *e)
{
    char *from = malloc((n + 1) * size), *to = records;
    struct node *node = malloc((n + 1) * sizeof *node);
    const int rc = from && node ? 0 : err_set(e, ERR_FAILED, "out of memory for %zu jobs", n);
    if (rc)
        n = 0;
    else
        memcpy(from, records, n * size);
    for (size_t i = 0; i < n; i++)
        node[i] = (struct node){ job_of(from + i * size)->id, i, SIZE_MAX, SIZE_MAX, 0, false };
    if (n)
        qsort(node, n, sizeof *node, by_number);
    for (size_t i = 0; i < n; i++) {
        const int64_t *after = &job_of(from + i * size)->after;
        const struct node *p = *after ? bsearch(after, node, n, sizeof *node, by_number) : NULL;
        if (!p)
            continue;
        node[i].continues = true;
        node[i].before = node[p->at].last;
        node[p->at].last = i;
    }
    for (size_t i = 0; i < n; i++) {
        size_t top = 0;
        if (!node[i].continues)
            node[top++].stack = i;
        for (; top; to += size) {
            const size_t at = node[--top].stack;
            memcpy(to, from + at * size, size);
            for (size_t k = node[at].last; k != SIZE_MAX; k = node[k].before)
                node[top++].stack = k;
        }
    }
    free(from);
    free(node);
    return rc;
}

int store_chapters_wait(struct store *s, const char *batch, struct err *e)
{
    return db_read(s, e,
                  "SELECT 1 FROM job p CROSS JOIN chapter c ON c.after = p.id CROSS JOIN job j ON "
                  "j.id = c.job WHERE c.sha IS NULL AND j.state = 'queued' AND p.state = 'running' AND "
                  "(?1 IS NULL OR j.batch = (SELECT id FROM batch WHERE name = ?1)) LIMIT 1", "t", batch);
}

int chapter_check(struct store *s, int64_t job, struct err *e)
{
    int64_t after;
    char state[16];
    const int rc = db_read(s, e, "SELECT c.after, ifnull(p.state, 'removed') FROM job JOIN chapter c ON "
                           "c.job = job.id LEFT JOIN job p ON p.id = c.after WHERE job.id = ?1 AND "
                           CHAPTER_WAITS, "i>it", job, &after, state, sizeof state);
    return rc <= 0 ? rc : err_set(e, ERR_INPUT, "job %" PRId64 " continues job %" PRId64 ", which is %s: it "
                                  "begins when that job is done", job, after, state);
}

/* ---- changing ---- */

int chapters_refuse(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    size_t waiting = 0;
    int64_t first = 0, of = 0;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        int64_t *job = NULL;
        size_t n_jobs = 0;
        rc = db_ids(s, e, &job, &n_jobs, "SELECT 0, c.job FROM chapter c JOIN job j ON j.id = c.job WHERE "
                    "c.after = ?1 AND c.sha IS NULL AND j.state <> 'cancelled'", "i", ids[i]);
        for (size_t k = 0; k < n_jobs; k++) {
            if (bsearch(&job[k], ids, n, sizeof *ids, by_number))
                continue;
            first = waiting ? first : job[k];
            of = waiting++ ? of : ids[i];
        }
        free(job);
    }
    if (rc || !waiting)
        return rc;
    return err_set(e, ERR_INPUT,
                   "%zu %s for these jobs (job %" PRId64 " for job %" PRId64 "); nothing was removed. "
                   "Cancel %s first", waiting, plural(waiting, "chapter waits", "chapters wait"), first, of,
                   plural(waiting, "it", "them"));
}

/* ---- chapters that are written again ---- */

/* A copy of the row of a chapter, after another job (0: the same one), and its place. */
static int copy_row(struct store *s, int64_t old, int64_t job, int64_t after, struct err *e)
{
    return db_run(s, e, "INSERT INTO chapter (job, after, sha" CHAPTER_COLUMNS ") SELECT ?2, CASE WHEN ?3 "
                  "THEN ?3 ELSE after END, sha" CHAPTER_COLUMNS " FROM chapter WHERE job = ?1; "
                  PLACE("?2"), "iii", old, job, after);
}

int chapter_renew(struct store *s, int64_t old, int64_t job, int64_t after, struct err *e)
{
    int32_t *ids;
    struct chain_link start;
    size_t n, all;
    int rc = db_read(s, e, "SELECT CASE WHEN c.sha IS NULL THEN j.prompt_tokens ELSE min(c.own, "
                     "j.prompt_tokens) END FROM job j JOIN chapter c ON c.job = j.id WHERE j.id = ?1", "i>z",
                     old, &n);
    if (rc != 1 || prompt_read(s, old, &ids, &all, e))
        return rc == 1 ? -1 : rc;
    link_start(&start, ids, n);
    rc = copy_row(s, old, job, after, e) ||
         db_run(s, e, "UPDATE chapter SET own = ?3, sha = NULL WHERE job = ?2; "
                "UPDATE job SET prompt_tokens = ?3, link = ?4, wanted = (SELECT CASE WHEN c.sha IS NULL THEN "
                "j.wanted ELSE c.given + max(j.wanted - j.given, 1) END FROM job j JOIN chapter c ON "
                "c.job = j.id WHERE j.id = ?1) WHERE id = ?2; "
                "UPDATE input SET crc = ?5, ids = ?6, prompt = CASE WHEN chat IS NULL AND NOT (SELECT "
                "prompted FROM chapter WHERE job = ?2) THEN x'' ELSE prompt END WHERE job = ?2", "iizhp", old,
                job, n, &start, ids, n) ? -1 : 0;
    free(ids);
    return rc;
}

/* The job ?2 gets the line of the job ?1 in the book ?3, and its name: with the number of ?1 if another job
 * of the book has the name. */
#define PUT_IN_BOOK \
    "UPDATE job SET (batch, line, custom_id) = (SELECT ?3, line, CASE WHEN EXISTS (SELECT 1 FROM job o " \
    "WHERE o.batch = ?3 AND o.custom_id = x.name) THEN x.name || '-' || ?1 ELSE x.name END FROM (SELECT " \
    "line, CAST(ifnull(custom_id, depth + 1) AS TEXT) AS name FROM job WHERE id = ?1) x) WHERE id = ?2"

/* A done job of the book with its text; all of it is shared. */
static int copy_done(struct store *s, int64_t old, int64_t batch, int64_t *id, struct err *e)
{
#define DONE_COLUMNS \
    "numerics, tokens, given, state, finish_reason, stop_reason, started, text_sha, settled"
    bool done = false;
    if (db_read(s, e, "SELECT state = 'done' FROM job WHERE id = ?1", "i>b", old, &done) < 0)
        return -1;
    if (!done)
        return err_set(e, ERR_INPUT, "job %" PRId64 " is not done, and the new book has a copy of it", old);
    return job_copy(s, old, id, e) ||
           db_run(s, e, PUT_IN_BOOK "; UPDATE job SET parent = ?1, ended = created, (parent_at, "
                  DONE_COLUMNS ") = (SELECT tokens, " DONE_COLUMNS " FROM job WHERE id = ?1) WHERE id = ?2; "
                  COPY_ROWS("chunk", CHUNK_COLUMNS) "; " COPY_ROWS("part", PART_COLUMNS) "; "
                  COPY_ROWS("logprob", LOGPROB_COLUMNS) "; "
                  COPY_ROWS("retake", ", number" RETAKE_COLUMNS) "; "
                  COPY_ROWS("span", SPAN_COLUMNS) " AND kind = 'given'; "
                  "INSERT INTO span (job, start, n, kind, parent) SELECT ?2, 0, tokens, 'shared', ?1 FROM "
                  "job WHERE id = ?1 AND tokens > 0", "iii", old, *id, batch) ||
           event_add(s, e, *id, 0, "copied", "of job %" PRId64, old) ? -1 : 0;
}

enum { BOOK_MAX = 10000 };
struct copied { int64_t old, now; };

static int64_t now_of(const struct copied *v, size_t n, int64_t old)
{
    size_t i = 0;
    while (i < n && v[i].old != old)
        i++;
    return i < n ? v[i].now : old;
}

/* The jobs that `sql` gives, at most `most`: number, and the one before it. */
static int read_pairs(struct store *s, const char *sql, int64_t job, size_t most, struct copied **v,
                      size_t *n, struct err *e)
{
    static const struct db_column c[] = { { 'i', offsetof(struct copied, old) },
                                          { 'i', offsetof(struct copied, now) } };
    const int rc = db_list(s, e, DB_ROWS(c, *v), v, n, NULL, sql, "iz", job, most);
    return rc || *n <= most ? rc
                            : err_set(e, ERR_INPUT, "--follow: a book has at most %d chapters", BOOK_MAX);
}

static const char before_job[] =
    "WITH RECURSIVE up(job, after, d) AS (SELECT job, after, 0 FROM chapter WHERE job = ?1 UNION ALL "
    "SELECT j.id, c.after, d + 1 FROM up JOIN job j ON j.id = up.after LEFT JOIN chapter c ON c.job = j.id) "
    "SELECT 0, job, ifnull(after, 0) FROM up WHERE d > 0 ORDER BY d DESC LIMIT ?2 + 1";
/* The first one is the job itself. */
static const char after_job[] =
    "WITH RECURSIVE down(job, after, d) AS (SELECT ?1, 0, 0 UNION ALL SELECT c.job, c.after, d + 1 FROM down "
    "JOIN chapter c ON c.after = down.job JOIN job j ON j.id = c.job JOIN job r ON r.id = ?1 WHERE j.batch "
    "IS r.batch AND j.state <> 'cancelled') SELECT 0, job, after FROM down ORDER BY d, job LIMIT ?2 + 1";

int book_copy(struct store *s, int64_t old, const char *name, struct new_book *b, struct err *e)
{
    struct copied *v = NULL;
    size_t n = 0;
    *b = (struct new_book){0};
    int rc = db_read(s, e, "SELECT id FROM batch WHERE name = ?1", "t>i", name, &b->batch);
    if (rc)
        return rc < 0 ? -1 : err_set(e, ERR_INPUT, "the name \"%s\" is in use; --follow makes a new book",
                                     name);
    if (db_run(s, e, "INSERT INTO batch (name, created) VALUES (?1, ?2)", "tr", name, wall_seconds()))
        return -1;
    b->batch = sqlite3_last_insert_rowid(s->db);
    rc = read_pairs(s, before_job, old, BOOK_MAX, &v, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const int64_t after = now_of(v, i, v[i].now);
        rc = copy_done(s, v[i].old, b->batch, &v[i].now, e) ||
             copy_row(s, v[i].old, v[i].now, after, e) ? -1 : 0;
        b->last = v[i].now;
    }
    free(v);
    return rc;
}

int book_follow(struct store *s, int64_t old, int64_t now, const struct new_book *b, struct err *e)
{
    struct copied *v = NULL;
    size_t n = 0;
    int rc = db_run(s, e, PUT_IN_BOOK, "iii", old, now, b->batch) || copy_row(s, old, now, b->last, e) ||
             read_pairs(s, after_job, old, BOOK_MAX + 1, &v, &n, e) ? -1 : 0;
    if (rc == 0)
        v[0].now = now;
    for (size_t i = 1; i < n && rc == 0; i++) {
        const int64_t after = now_of(v, i, v[i].now);
        rc = job_copy(s, v[i].old, &v[i].now, e) ||
             db_run(s, e, PUT_IN_BOOK, "iii", v[i].old, v[i].now, b->batch) ||
             chapter_renew(s, v[i].old, v[i].now, after, e) ||
             event_add(s, e, v[i].now, 0, "submitted", "of job %" PRId64, v[i].old) ? -1 : 0;
    }
    free(v);
    return rc;
}
