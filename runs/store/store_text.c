/* Texts in the store: appending chunks, reading and checking them, extend and fork, and the lists of a
 * job.
 *
 * Owns the tables chunk and span. A text is written as chunks of CHUNK_TOKENS ids (runs/store/chunk.h);
 * struct text_end says where it ends. Start at chunks_append and chunks_read. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- appending ---- */

/* The link of the last chunk, full or not. */
static struct chain_link last_link(const struct text_end *end)
{
    struct chain_link l = end->link;
    if (end->n_part)
        link_next(&l, &end->link, end->part, end->n_part);
    return l;
}

struct chain_link chunks_link(const struct text_end *end)
{
    struct chain_link l = last_link(end);
    int32_t retakes[sizeof l / sizeof(int32_t)];
    memcpy(retakes, end->retakes.v, sizeof retakes);
    if (end->n_retakes)
        link_next(&l, &l, retakes, sizeof retakes / sizeof *retakes);
    return l;
}

/* Write the last chunk as a row: a new row, or the replacement of its shorter version. */
static int write_part(struct store *s, int64_t job, struct text_end *end, struct err *e)
{
    struct chain_link link = last_link(end);
    int rc = db_run(s, e, "INSERT INTO chunk (job" CHUNK_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                    "ON CONFLICT (job, start) DO UPDATE SET n = ?3, link = ?4, crc = ?5, data = ?6", "izzhp",
                    job, end->tokens - end->n_part, end->n_part, &link, end->part, end->n_part);
    if (rc == 0 && end->n_part == CHUNK_TOKENS) {
        end->link = link;
        end->n_part = 0;
    }
    return rc;
}

int chunks_append(struct store *s, int64_t job, struct text_end *end, const int32_t *ids, size_t n,
                  struct err *e)
{
    while (n > 0) {
        size_t some = MIN(n, CHUNK_TOKENS - end->n_part);
        memcpy(end->part + end->n_part, ids, some * sizeof *ids);
        end->n_part += some;
        end->tokens += some;
        ids += some;
        n -= some;
        if (write_part(s, job, end, e))
            return -1;
    }
    return 0;
}

/* ---- reading ---- */

struct text_facts { size_t tokens; struct chain_link link, start; };

/* Read the length and the links of a text. Part of the caller's transaction. */
static int read_facts(struct store *s, int64_t job, struct text_facts *f, struct err *e)
{
    int32_t *prompt = NULL;
    bool good;
    size_t n;
    int rc = db_read(s, e, "SELECT tokens, link, tokens BETWEEN 0 AND 2147483647 AND length(link) = 32 FROM "
                     "job WHERE id = ?1", "i>zhb", job, &f->tokens, &f->link, &good);
    if (rc == 1 && !good)
        return err_set(e, ERR_FAILED, ERR_PATH "the row of job %" PRId64 " is damaged", s->shown, job);
    rc = rc < 0 || prompt_read(s, job, &prompt, &n, e) ? -1 : 0;
    if (rc == 0)
        link_start(&f->start, prompt, n);
    free(prompt);
    return rc;
}

/* The link before the chunk that begins at token `start`. 0; -1: failed. A missing row gives a link that
 * no chunk follows from. */
static int read_link_before(struct store *s, int64_t job, size_t start, const struct text_facts *f,
                            struct chain_link *link, struct err *e)
{
    *link = f->start;
    return start && db_read(s, e, "SELECT link FROM chunk WHERE job = ?1 AND start = ?2", "iz>h", job,
                            start - CHUNK_TOKENS, link) < 0 ? -1 : 0;
}

/* Unpack the chunk of a row (job, CHUNK_COLUMNS) and check it. It must have the n tokens from `start` on and
 * follow *link, which becomes its own link. */
static int unpack_row(sqlite3_stmt *q, size_t start, size_t n, struct chain_link *link, int32_t *ids,
                      struct err *e)
{
    if (sqlite3_column_int64(q, 1) != (int64_t)start)
        return err_set(e, ERR_FAILED, "tokens from %zu on were expected, a chunk is missing", start);
    if (sqlite3_column_int64(q, 2) != (int64_t)n)
        return err_set(e, ERR_FAILED, "it has %" PRId64 " tokens, %zu were expected",
                       (int64_t)sqlite3_column_int64(q, 2), n);
    if (chunk_unpack(ids, n, sqlite3_column_blob(q, 5), (size_t)sqlite3_column_bytes(q, 5),
                     (uint32_t)sqlite3_column_int64(q, 4), e))
        return -1;
    link_next(link, link, ids, n);
    const void *stored = sqlite3_column_blob(q, 3);
    if (sqlite3_column_bytes(q, 3) != sizeof *link || memcmp(link, stored, sizeof *link))
        return err_set(e, ERR_FAILED, "its hash does not follow from the one before and its tokens");
    return 0;
}

/* Read tokens [from, to), limited to those that exist, into *ids [*n]; free(*ids). Checks every chunk that
 * it touches. With `end`, from is 0 and to is SIZE_MAX; *end becomes the end of the text. Part of the
 * caller's transaction. */
static int read_range(struct store *s, int64_t job, size_t from, size_t to, struct text_end *end,
                      int32_t **ids, size_t *n, struct err *e)
{
    struct text_facts f;
    struct chain_link link, full;
    *ids = NULL;
    if (read_facts(s, job, &f, e))
        return -1;
    to = MIN(to, f.tokens);
    from = MIN(from, to);
    *n = to - from;
    if (*n == 0 && !end)
        return (*ids = malloc(1)) ? 0 : err_set(e, ERR_FAILED, "out of memory for a text of 0 tokens");
    /* whole chunks: tokens [first, until) */
    const size_t first = from / CHUNK_TOKENS * CHUNK_TOKENS,
                 until = MIN((to + CHUNK_TOKENS - 1) / CHUNK_TOKENS * CHUNK_TOKENS, f.tokens);
    size_t at = first;
    int32_t *v = malloc((until - first + 1) * sizeof *v);
    if (!v)
        return err_set(e, ERR_FAILED, "out of memory for a text of %zu tokens", until - first);
    int rc = read_link_before(s, job, first, &f, &link, e);
    full = link;
    sqlite3_stmt *q = rc ? NULL : db_query(s, e, "SELECT job" CHUNK_COLUMNS " FROM chunk WHERE job = ?1 "
                                           "AND start >= ?2 AND start < ?3 ORDER BY start", "izz", job,
                                           first, end ? SIZE_MAX / 4 : until);
    while ((rc = db_step(s, q, e)) == 1) {
        size_t some = MIN(until - at, (size_t)CHUNK_TOKENS);
        if (unpack_row(q, at, some, &link, v + (at - first), e)) {
            rc = err_while(e, ERR_PATH "job %" PRId64 ": chunk %zu (tokens from %zu on) is damaged",
                           s->shown, job, at / CHUNK_TOKENS, at);
            db_reset(q);
            break;
        }
        at += some;
        if (some == CHUNK_TOKENS)
            full = link;
    }
    if (rc == 0 && at < until)
        rc = err_set(e, ERR_FAILED, ERR_PATH "job %" PRId64 ": tokens %zu to %zu are missing",
                     s->shown, job, at, until);
    struct text_end found = { .tokens = f.tokens, .link = full, .n_part = f.tokens % CHUNK_TOKENS };
    if (rc == 0 && at == f.tokens) {
        memcpy(found.part, v + (f.tokens - found.n_part - first), found.n_part * sizeof *v);
        rc = retakes_chain(s, job, &found, e);
        link = chunks_link(&found);
        if (rc == 0 && memcmp(&link, &f.link, sizeof link))
            rc = err_set(e, ERR_FAILED, ERR_PATH "job %" PRId64 ": the hash of its %zu tokens and its "
                         "retakes differs from the hash in its row", s->shown, job, f.tokens);
    }
    if (rc) {
        free(v);
        return rc;
    }
    if (end)
        *end = found;
    memmove(v, v + (from - first), *n * sizeof *v);
    *ids = v;
    return 0;
}

int chunks_read(struct store *s, int64_t job, int32_t **ids, struct text_end *end, struct err *e)
{
    size_t n;
    return read_range(s, job, 0, SIZE_MAX, end, ids, &n, e);
}

int store_tokens(struct store *s, int64_t job, size_t from, size_t to, int32_t **ids, size_t *n,
                 struct err *e)
{
    *ids = NULL;
    *n = 0;
    int rc = db_begin_read(s, e);
    rc = db_end(s, rc ? rc : read_range(s, job, from, to, NULL, ids, n, e), e);
    if (rc) {
        free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return rc;
}

/* ---- extend and fork ---- */

int append_given(struct store *s, int64_t job, struct text_end *end, const struct given_text *g,
                 size_t wanted, struct err *e)
{
    if (g->n &&
        (db_run(s, e, "INSERT INTO span (job, start, n, kind, text) VALUES (?1, ?2, ?3, 'given', ?4)", "izzb",
                job, end->tokens, g->n, g->text ? g->text : "", g->bytes) ||
         chunks_append(s, job, end, g->ids, g->n, e)))
        return -1;
    const struct chain_link link = chunks_link(end);
    return db_run(s, e, "UPDATE job SET tokens = ?2, link = ?3, wanted = ?4, updated = ?5, given = "
                  "(SELECT ifnull(sum(n), 0) FROM span WHERE job = ?1 AND kind = 'given') WHERE id = ?1",
                  "izhzr", job, end->tokens, &link, wanted, wall_seconds());
}

int chunks_cut(struct store *s, int64_t job, size_t keep, struct text_end *end, struct err *e)
{
    struct text_facts f;
    const size_t full = keep / CHUNK_TOKENS * CHUNK_TOKENS;
    int32_t *ids;
    size_t n;
    if (keep == end->tokens)
        return 0;
    if (read_range(s, job, full, keep, NULL, &ids, &n, e))
        return -1;
    end->tokens = full;
    end->n_part = 0;
    int rc = db_run(s, e, "DELETE FROM chunk WHERE job = ?1 AND start >= ?3; "
                    "DELETE FROM span WHERE job = ?1 AND start >= ?2; "
                    "UPDATE span SET n = ?2 - start, text = NULL WHERE job = ?1 AND start + n > ?2; "
                    "DELETE FROM snapshot WHERE job = ?1 AND tokens >= ?2 + (SELECT prompt_tokens FROM job "
                    "WHERE id = ?1)", "izz", job, keep, full) ||
             logprobs_cut(s, job, keep, e) || read_facts(s, job, &f, e) ||
             read_link_before(s, job, full, &f, &end->link, e) ||
             chunks_append(s, job, end, ids, keep - full, e) ? -1 : 0;
    free(ids);
    return rc;
}

static int check_wanted(const struct edit_spec *x, struct err *e)
{
    const size_t n = x->at + x->add.n;
    return x->wanted >= n ? 0 : err_set(e, ERR_INPUT, "%zu tokens are wanted, but the text would have %zu "
                                        "already", x->wanted, n);
}

/* Let the last part begin at `keep` or before, and begin a part there if there are new parameters. */
static int settle_parts(struct store *s, int64_t job, size_t keep, const char *parameters, struct err *e)
{
    return db_run(s, e,
                  "INSERT INTO part (job" PART_COLUMNS ") SELECT ?1, ?2, "
                  "(SELECT parameters FROM part WHERE job = ?1 AND parameters NOT NULL ORDER BY start "
                  "DESC), (SELECT fingerprint FROM part WHERE job = ?1 AND fingerprint NOT NULL ORDER BY "
                  "start DESC) WHERE EXISTS (SELECT 1 FROM part WHERE job = ?1 AND start > ?2)" MERGE_PARTS
                  "; DELETE FROM part WHERE job = ?1 AND start > ?2; "
                  "INSERT INTO part (job, start, parameters) SELECT ?1, ?2, ?3 WHERE ?3 NOT NULL"
                  MERGE_PARTS, "izt", job, keep, parameters);
}

static int check_has_prompt(struct store *s, int64_t job, struct err *e)
{
    int64_t after;
    const int rc = db_read(s, e, "SELECT after FROM chapter WHERE job = ?1 AND sha IS NULL", "i>i", job,
                           &after);
    return rc == 1 ? err_set(e, ERR_INPUT, "job %" PRId64 " has no prompt yet: it continues job %" PRId64,
                             job, after)
                   : rc;
}

int store_extend(struct store *s, int64_t job, const struct edit_spec *x, struct err *e)
{
    const size_t keep = x->at;
    int32_t *ids = NULL;
    struct text_end end = {0};
    bool busy = false;
    int rc = db_begin(s, e) || store_full(s, e) || chunks_read(s, job, &ids, &end, e) ||
             db_read(s, e, "SELECT state IN ('queued', 'running') FROM job WHERE id = ?1", "i>b", job,
                     &busy) < 0 ? -1 : 0;
    if (rc == 0 && busy)
        rc = err_set(e, ERR_INPUT,
                     "job %" PRId64 " is queued or running; pause it or let it end before it is extended",
                     job);
    rc = rc ? rc : check_has_prompt(s, job, e);
    if (rc == 0 && keep > end.tokens)
        rc = err_set(e, ERR_INPUT, "job %" PRId64 " has %zu tokens, %zu cannot be kept", job, end.tokens,
                     keep);
    const bool cuts = keep < end.tokens || x->parameters;
    if (rc == 0 &&
        (check_wanted(x, e) || chunks_cut(s, job, keep, &end, e) ||
         (cuts && retakes_cut(s, job, keep, &end, e)) || settle_parts(s, job, keep, x->parameters, e) ||
         append_given(s, job, &end, &x->add, x->wanted, e) ||
         db_run(s, e,
                "UPDATE job SET state = ?2, attempt = attempt + 1, idle = 0, finish_reason = NULL, "
                "stop_reason = NULL, error = NULL, ended = NULL, text_sha = NULL WHERE id = ?1; "
                "DELETE FROM request WHERE job = ?1",        /* its answer was another text */
                "it", job, x->paused ? "paused" : "queued") ||
         event_add(s, e, job, ATTEMPT_NOW, "extended", "from token %zu on, %zu given, to %zu", keep,
                   x->add.n, x->wanted) ||
         (x->model && model_move(s, job, x->model, e)) ||
         job_rename(s, job, x->name, x->replace, e)))
        rc = -1;
    free(ids);
    return db_end(s, rc, e);
}

/* Give the fork what belongs to the tokens before token `at`: parts, log-probabilities, and the spans, with
 * one more for the tokens after them that the parent made. The parameters of a fork that shares no token are
 * its own from the start. */
static int share(struct store *s, int64_t parent, int64_t job, const struct edit_spec *f, struct err *e)
{
    if (db_run(s, e, COPY_ROWS("logprob", LOGPROB_COLUMNS) " AND start < ?3; "
               "INSERT INTO span (job" SPAN_COLUMNS ") SELECT ?2, start, min(n, ?3 - start), kind, parent, "
               "CASE WHEN start + n <= ?3 THEN text END FROM span WHERE job = ?1 AND start < ?3; "
               "INSERT INTO span (job, start, n, kind, parent) SELECT ?2, x, ?3 - x, 'shared', ?1 FROM "
               "(SELECT ifnull(max(start + n), 0) AS x FROM span WHERE job = ?2 AND kind = 'shared') WHERE "
               "x < ?3",
               "iiz", parent, job, f->at) ||
        logprobs_cut(s, job, f->at, e))
        return -1;
    if (f->at == 0)
        return db_run(s, e, "UPDATE input SET parameters = coalesce(?3, (SELECT parameters FROM part WHERE "
                      "job = ?1 AND start = 0), parameters) WHERE job = ?2", "iit", parent, job,
                      f->parameters);
    return db_run(s, e, COPY_ROWS("part", PART_COLUMNS) " AND start <= ?3", "iiz", parent, job, f->at) ||
           settle_parts(s, job, f->at, f->parameters, e) ||
           db_run(s, e,                  /* the model has changed after token `at` */
                  "INSERT INTO part (job, start, fingerprint) SELECT ?1, ?2, j.fingerprint "
                  "FROM job j WHERE j.id = ?1 AND j.fingerprint <> (SELECT fingerprint FROM part "
                  "WHERE job = ?1 AND fingerprint NOT NULL ORDER BY start DESC LIMIT 1)" MERGE_PARTS,
                  "iz", job, f->at) ? -1 : 0;
}

int store_fork(struct store *s, int64_t job, const struct edit_spec *f, int64_t *id, struct err *e)
{
    int32_t *ids = NULL;
    struct text_end parent, end = {0};
    struct text_facts facts;
    struct new_book book;
    int rc = db_begin(s, e) || store_full(s, e) || read_facts(s, job, &facts, e) ||
             chunks_read(s, job, &ids, &parent, e) || check_has_prompt(s, job, e) ||
             (f->follow && book_copy(s, job, f->name, &book, e)) ? -1 : 0;
    if (rc == 0 && f->at > parent.tokens)
        rc = err_set(e, ERR_INPUT, "job %" PRId64 " has %zu tokens, there is no token %zu to fork at", job,
                     parent.tokens, f->at);
    if (rc == 0)
        rc = check_wanted(f, e) || job_copy(s, job, id, e) ? -1 : 0;
    if (rc == 0) {
        end.link = facts.start;
        rc = db_run(s, e, "UPDATE job SET identity = NULL, seed = ?3, state = ?4, parent = ?1, parent_at "
                    "= ?5, sample = ?6, numerics = (SELECT numerics FROM job WHERE id = ?1 AND ?5 > 0) "
                    "WHERE id = ?2",
                    "iiztzd", job, *id, f->seed, f->paused ? "paused" : "queued", f->at, f->sample) ||
             share(s, job, *id, f, e) || chunks_append(s, *id, &end, ids, f->at, e) ||
             retakes_copy(s, job, *id, f->at, &end, e) ||
             append_given(s, *id, &end, &f->add, f->wanted, e) ||
             event_add(s, e, *id, 0, "forked", "of job %" PRId64 " at token %zu", job, f->at) ||
             (f->model && model_move(s, *id, f->model, e)) ||
             (f->follow ? book_follow(s, job, *id, &book, e)
                        : job_rename(s, *id, f->name, f->replace, e)) ? -1 : 0;
    }
    free(ids);
    return db_end(s, rc, e);
}

/* ---- redo ---- */

/* 1: the job can be redone; 0: it is in another state, or was redone; -1. */
static int can_redo(struct store *s, int64_t job, struct err *e)
{
    bool yes = false, changed = false;
    if (db_read(s, e, "SELECT state IN ('done', 'failed', 'cancelled') AND NOT EXISTS (SELECT 1 FROM event "
                "v WHERE v.job = j.id AND v.kind = 'redone'), EXISTS (SELECT 1 FROM span s WHERE job = ?1 "
                "AND NOT (start = 0 AND n = (SELECT given FROM chapter c WHERE c.job = s.job))) OR EXISTS "
                "(SELECT 1 FROM part WHERE job = ?1) FROM job j WHERE j.id = ?1", "i>bb", job, &yes,
                &changed) < 0)
        return -1;
    if (yes && changed)
        return err_set(e, ERR_INPUT,
                       "job %" PRId64 " goes on with given text or other parameters; longhand fork --at "
                       "writes another version of it", job);
    return yes;
}

/* Jobs with one seed and one prompt have different sample numbers, so that their texts differ. A single job
 * that has a name gets a custom_id, as the jobs of --samples have: its sample number. */
static int redo_one(struct store *s, int64_t job, const uint64_t *seed, int64_t *now, struct err *e)
{
    struct text_facts facts;
    int rc = can_redo(s, job, e);
    if (rc != 1)
        return rc;
    return read_facts(s, job, &facts, e) || job_copy(s, job, now, e) ||
           db_run(s, e,
                  "UPDATE job SET link = ?3, seed = CASE WHEN ?4 THEN ?5 ELSE seed END, "
                  "(batch, line, custom_id, sample) = (SELECT j.batch, j.line, CASE WHEN j.batch NOT NULL "
                  "AND j.line IS NULL THEN x.next ELSE j.custom_id END, x.next FROM job j, "
                  "(SELECT max(o.sample) + 1 AS next FROM job o, job me WHERE me.id = ?1 AND o.id <> ?2 AND "
                  "o.batch IS me.batch AND (o.custom_id = me.custom_id OR (o.seed = me.seed AND "
                  "o.prompt_tokens = me.prompt_tokens AND o.opening = me.opening))) x WHERE j.id = ?1) "
                  "WHERE id = ?2", "iihdz", job, *now, &facts.start, seed != NULL, seed ? *seed : 0) ||
           chapter_renew(s, job, *now, 0, e) ||
           event_add(s, e, job, 0, "redone", "as job %" PRId64, *now) ||
           event_add(s, e, *now, 0, "submitted", "in place of job %" PRId64, job) ? -1 : 0;
}

int store_redo(struct store *s, const int64_t *ids, size_t n, const uint64_t *seed, int64_t *now,
               struct err *e)
{
    int rc = db_begin(s, e) || store_full(s, e) ? -1 : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        now[i] = 0;
        rc = redo_one(s, ids[i], seed ? &seed[i] : NULL, &now[i], e);
    }
    return db_end(s, rc, e);
}

/* ---- lists ---- */

#define SPAN_FIELDS(X) \
    X('z', start, "start") X('z', n, "n") X('t', kind, "kind") X('i', parent, "parent") X('t', text, "text") \
    X('z', bytes, "length(CAST(text AS BLOB))")
#define PART_FIELDS(X) \
    X('z', start, "start") X('t', parameters, "parameters") X('t', fingerprint, "fingerprint")
#define EVENT_FIELDS(X) \
    X('r', at, "at") X('i', job, "job") X('i', attempt, "attempt") X('t', kind, "kind") X('t', text, "text")

#define LIST(function, list, element, fields, from) \
    DB_LIST(function, (struct store *s, int64_t job, struct list *out, struct err *e), list, element, \
            fields, from, "i", job)
LIST(store_spans, span_list, text_span, SPAN_FIELDS, "span WHERE job = ?1 ORDER BY start")
LIST(store_parts, part_list, text_part, PART_FIELDS, "part WHERE job = ?1 ORDER BY start")
LIST(store_metrics, metric_list, metric, METRIC_FIELDS,
     "metric WHERE job = ?1 ORDER BY start, source, name, idx")
LIST(store_rounds, round_list, round_row, ROUND_FIELDS, "round WHERE job = ?1 ORDER BY start")
LIST(store_events, event_list, event, EVENT_FIELDS, "event WHERE job = ?1 ORDER BY id")

/* The query jumps from window to window: a scan of the job would read a hundred counters of each. */
int store_mark_shared(struct store *s, struct job_list *l, struct err *e)
{
    int rc = db_begin_read(s, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < l->n && rc >= 0; i++) {
        struct job *j = &l->v[i];
        j->shared = false;
        if (j->tokens)
            rc = db_read(s, e, "WITH RECURSIVE windows(start) AS ("
                         "  SELECT min(start) FROM metric WHERE job = ?1 AND start >= ?2"
                         "  UNION ALL"
                         "  SELECT (SELECT min(start) FROM metric WHERE job = ?1 AND start > windows.start)"
                         "  FROM windows WHERE start IS NOT NULL) "
                         "SELECT EXISTS (SELECT 1 FROM windows CROSS JOIN metric USING (start) "
                         "WHERE job = ?1 AND source = '' AND name = 'jobs' AND idx > 1)", "iz>b", j->id,
                         j->parent_at - j->parent_at % METRIC_WINDOW, &j->shared);
    }
    return db_end(s, MIN(rc, 0), e);
}

bool token_is_given(const struct span_list *l, size_t token)
{
    bool given = false;
    for (size_t i = 0; i < l->n && !given; i++) {
        const struct text_span *g = &l->v[i];
        given = strcmp(g->kind, "given") == 0 && token >= g->start && token - g->start < g->n;
    }
    return given;
}

int store_repetition(struct store *s, int64_t job, struct repetition *out, struct err *e)
{
    struct span_list spans = {0};
    struct loop *rule = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = store_tokens(s, job, 0, SIZE_MAX, &ids, &n, e) || store_spans(s, job, &spans, e) ||
             loop_open(&rule, e) ? -1 : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (token_is_given(&spans, i))
            loop_given(rule, ids[i]);
        else if (loop_token(rule, ids[i]))
            rc = loop_current(rule, out);
    loop_close(rule);
    span_list_free(&spans);
    free(ids);
    return rc;
}
