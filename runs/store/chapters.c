/* Chapters: jobs that continue the text of another job. Owns the table chapter and the columns chain and
 * depth of job. A chapter waits while its row has no sha; store_chapter_make (store_work.c) sets it. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- submitting ---- */

/* The job whose text a chapter continues: 1, 0, -1. */
static int find_after(struct store *s, int64_t batch, const struct chapter_spec *c, int64_t *after,
                      struct err *e)
{
    *after = c->after;
    return c->after ? 1
                    : db_get(s, e, after, "SELECT id FROM job WHERE batch = ?1 AND custom_id = ?2 ORDER BY "
                             "sample LIMIT 1", "it", batch, c->after_id);
}

static int add_row(struct store *s, int64_t job, int64_t after, const struct chapter_spec *c, struct err *e)
{
    return db_run(s, e,
                  "INSERT INTO chapter (job, after, carry, prompted, own, most, given, append) "
                  "SELECT ?1, ?2, CASE WHEN ?3 >= 0 THEN ?3 END, ?4, prompt_tokens, ?5, ?6, ?7 "
                  "FROM job WHERE id = ?1",
                  "iiidzzb", job, after, c->carry, (int)c->prompted, c->most, c->n_append,
                  (const void *)c->append, c->append ? strlen(c->append) : 0);
}

/* The place of a chapter in the queue. The walk ends at a job that has its place. */
static const char place[] =
    "WITH RECURSIVE up(job, d) AS (SELECT ?1, 0 UNION ALL SELECT c.after, d + 1 FROM up JOIN chapter c ON "
    "c.job = up.job JOIN job j ON j.id = up.job WHERE j.chain IS NULL) "
    "UPDATE job SET (chain, depth) = (SELECT ifnull(j.chain, up.job), ifnull(j.depth, 0) + up.d FROM up "
    "LEFT JOIN job j ON j.id = up.job ORDER BY up.d DESC LIMIT 1) WHERE id = ?1";

int chapters_add(struct store *s, int64_t batch, const struct job_spec *v, size_t n, const int64_t *ids,
                 const bool *is_new, struct err *e)
{
    int64_t after;
    for (size_t i = 0; i < n; i++) {
        if (!v[i].chapter)
            continue;
        const int rc = find_after(s, batch, v[i].chapter, &after, e);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return err_set(e, ERR_INPUT, "after: there is no job \"%s\"", v[i].chapter->after_id);
        const bool old = is_new && !is_new[i];
        if (old ? db_run(s, e, "UPDATE chapter SET after = ?2 WHERE job = ?1 AND sha IS NULL AND NOT EXISTS "
                         "(SELECT 1 FROM job WHERE id = after)", "ii", ids[i], after)
                : add_row(s, ids[i], after, v[i].chapter, e))
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (v[i].chapter && (!is_new || is_new[i]) && db_run(s, e, place, "i", ids[i]))
            return -1;
    return 0;
}

/* ---- reading ---- */

int store_chapter(struct store *s, int64_t job, struct chapter *out, struct err *e)
{
    *out = (struct chapter){0};
    sqlite3_stmt *q = db_query(s, e,
                               "SELECT after, ifnull(carry, -1), prompted, sha NOT NULL, append FROM chapter "
                               "WHERE job = ?1", "i", job);
    const int rc = db_step(s, q, e);
    if (rc != 1)
        return rc;
    *out = (struct chapter){ sqlite3_column_int64(q, 0), sqlite3_column_int64(q, 1),
                             sqlite3_column_int(q, 2) != 0, sqlite3_column_int(q, 3) != 0, NULL };
    const char *append = (const char *)sqlite3_column_blob(q, 4);
    if (append)
        out->append = strndup(append, (size_t)sqlite3_column_bytes(q, 4));
    const bool failed = append && !out->append;
    db_reset(q);
    return failed ? err_set(e, ERR_FAILED, "out of memory for a chapter") : 0;
}

void chapter_free(struct chapter *c)
{
    free(c->append);
    *c = (struct chapter){0};
}

int store_lengths(struct store *s, int64_t job, struct job_lengths *out, struct err *e)
{
    sqlite3_stmt *q = db_query(s, e,
                               "SELECT CASE WHEN c.most NOT NULL AND c.sha IS NULL THEN c.most ELSE "
                               "j.prompt_tokens END, j.wanted, j.wanted - CASE WHEN c.given NOT NULL AND "
                               "c.sha IS NULL THEN c.given ELSE j.given END "
                               "FROM job j LEFT JOIN chapter c ON c.job = j.id WHERE j.id = ?1", "i", job);
    const int rc = db_step(s, q, e);
    if (rc != 1)
        return rc < 0 ? -1 : err_set(e, ERR_INPUT, "there is no job %" PRId64, job);
    *out = (struct job_lengths){ (size_t)sqlite3_column_int64(q, 0), (size_t)sqlite3_column_int64(q, 1),
                                 (size_t)sqlite3_column_int64(q, 2) };
    db_reset(q);
    return 0;
}

struct numbered { int64_t id; size_t at; };

static int by_id(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The chapters that continue a job: the last one, and from each the one before it. */
struct node { size_t last, before; bool continues; };

static void link_chapters(const struct job *const *v, size_t n, const struct numbered *ids, struct node *node)
{
    for (size_t i = 0; i < n; i++)
        node[i] = (struct node){ SIZE_MAX, SIZE_MAX, false };
    for (size_t i = 0; i < n; i++) {
        const struct numbered key = { v[i]->after, 0 };
        const struct numbered *p = v[i]->after ? bsearch(&key, ids, n, sizeof key, by_id) : NULL;
        if (!p)
            continue;
        node[i].continues = true;
        node[i].before = node[p->at].last;
        node[p->at].last = i;
    }
}

int jobs_in_chains(const struct job *const *v, size_t n, size_t *order, struct err *e)
{
    size_t chapters = 0, done = 0;
    for (size_t i = 0; i < n; i++) {
        order[i] = i;
        chapters += v[i]->after != 0;
    }
    if (!chapters)
        return 0;
    struct numbered *ids = malloc(n * sizeof *ids);
    struct node *node = malloc(n * sizeof *node);
    size_t *stack = malloc(n * sizeof *stack);
    const bool memory = ids && node && stack;
    for (size_t i = 0; memory && i < n; i++)
        ids[i] = (struct numbered){ v[i]->id, i };
    if (memory) {
        qsort(ids, n, sizeof *ids, by_id);
        link_chapters(v, n, ids, node);
    }
    for (size_t i = 0; memory && i < n; i++)
        for (size_t top = node[i].continues ? 0 : (stack[0] = i, 1); top;) {
            const size_t at = order[done++] = stack[--top];
            for (size_t k = node[at].last; k != SIZE_MAX; k = node[k].before)
                stack[top++] = k;
        }
    free(ids);
    free(node);
    free(stack);
    return memory ? 0 : err_set(e, ERR_FAILED, "out of memory for the order of %zu jobs", n);
}

int store_chapters_wait(struct store *s, const char *batch, struct err *e)
{
    int64_t ignored;
    return db_get(s, e, &ignored,
                  "SELECT 1 FROM chapter c JOIN job j ON j.id = c.job JOIN job p ON p.id = c.after "
                  "WHERE c.sha IS NULL AND j.state = 'queued' AND p.state = 'running' AND "
                  "(?1 IS NULL OR j.batch = (SELECT id FROM batch WHERE name = ?1)) LIMIT 1", "t", batch);
}

int chapter_check(struct store *s, int64_t job, struct err *e)
{
    sqlite3_stmt *q = db_query(s, e,
                               "SELECT c.after, p.state FROM job JOIN chapter c ON c.job = job.id LEFT JOIN "
                               "job p ON p.id = c.after WHERE job.id = ?1 AND " CHAPTER_WAITS, "i", job);
    const int rc = db_step(s, q, e);
    if (rc <= 0)
        return rc;
    const char *state = (const char *)sqlite3_column_text(q, 1);
    err_set(e, ERR_INPUT,
            "job %" PRId64 " continues job %" PRId64 ", which is %s: it begins when that job is done",
            job, (int64_t)sqlite3_column_int64(q, 0), state ? state : "removed");
    db_reset(q);
    return -1;
}

/* ---- changing ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int chapters_refuse(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    size_t waiting = 0;
    int64_t first = 0, of = 0;
    for (size_t i = 0; i < n; i++) {
        int rc;
        sqlite3_stmt *q = db_query(s, e,
                                   "SELECT c.job FROM chapter c JOIN job j ON j.id = c.job WHERE "
                                   "c.after = ?1 AND c.sha IS NULL AND j.state <> 'cancelled'", "i", ids[i]);
        while ((rc = db_step(s, q, e)) == 1) {
            const int64_t job = sqlite3_column_int64(q, 0);
            if (bsearch(&job, ids, n, sizeof job, by_number))
                continue;
            first = first ? first : job;
            of = of ? of : ids[i];
            waiting++;
        }
        if (rc < 0)
            return -1;
    }
    if (!waiting)
        return 0;
    return err_set(e, ERR_INPUT,
                   "%zu %s for these jobs (job %" PRId64 " for job %" PRId64 "); nothing was removed. "
                   "--force removes them all the same, and the waiting ones never begin", waiting,
                   plural(waiting, "chapter waits", "chapters wait"), first, of);
}
