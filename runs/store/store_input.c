/* What a text is made from: the prompt and the parameters of a job, and the copies that forks and books make
 * of them; and the history of a job. Owns the tables input and event. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int event_add_at(struct store *s, struct err *e, int64_t job, double at, int64_t attempt, const char *kind,
                 const char *text)
{
    return db_run(s, e, "INSERT INTO event (job, at, attempt, kind, text) SELECT id, ?2, "
                  "CASE WHEN ?3 < 0 THEN attempt ELSE ?3 END, ?4, ?5 FROM job WHERE id = ?1",
                  "iritt", job, at, attempt, kind, text);
}

int event_add(struct store *s, struct err *e, int64_t job, int64_t attempt, const char *kind, const char *fmt,
              ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return event_add_at(s, e, job, wall_seconds(), attempt, kind, text);
}

/* The prompt's ids from columns `ids` and `ids` + 1 (crc) of a row of `input`: *out [n], malloc'ed. */
static int prompt_unpack(struct store *s, int64_t job, sqlite3_stmt *q, int ids, int64_t n, int32_t **out,
                  struct err *e)
{
    *out = NULL;
    if (n < 0 || n > INT32_MAX)
        return err_set(e, ERR_FAILED, ERR_PATH "the row of job %" PRId64 " is damaged", s->shown, job);
    *out = malloc(((size_t)n + 1) * sizeof **out);
    if (!*out)
        return err_set(e, ERR_FAILED, "out of memory for a prompt of %" PRId64 " tokens", n);
    if (chunk_unpack(*out, (size_t)n, sqlite3_column_blob(q, ids), (size_t)sqlite3_column_bytes(q, ids),
                     (uint32_t)sqlite3_column_int64(q, ids + 1), e) == 0)
        return 0;
    free(*out);
    *out = NULL;
    return err_while(e, ERR_PATH "the prompt of job %" PRId64 " is damaged", s->shown, job);
}

#define OF_INPUT(letter, member, ...) ", i." #member
#define row struct job_input
static const struct db_column input_columns[] = { INPUT_FIELDS(DB_PLACE) };
#undef row
enum { N_OF_INPUT = sizeof input_columns / sizeof *input_columns };

int store_input(struct store *s, int64_t job, struct job_input *out, struct err *e)
{
    bool failed = false;
    *out = (struct job_input){0};
    sqlite3_stmt *q = db_query(s, e,
                               "SELECT j.prompt_tokens, i.ids, i.crc, i.prompt" INPUT_FIELDS(OF_INPUT)
                               " FROM input i JOIN job j ON j.id = i.job WHERE i.job = ?1", "i", job);
    int rc = db_step(s, q, e);
    if (rc != 1)
        return rc ? -1 : err_set(e, ERR_INPUT, "there is no job %" PRId64, job);
    const int64_t n = sqlite3_column_int64(q, 0);
    out->prompt = column_copy(q, 3, &failed);
    out->prompt_bytes = (size_t)sqlite3_column_bytes(q, 3);
    db_row(q, 4, input_columns, N_OF_INPUT, out, NULL, &failed);
    rc = prompt_unpack(s, job, q, 1, n, &out->prompt_ids, e);
    out->n_prompt = (size_t)n;
    if (rc == 0 && failed)
        rc = err_set(e, ERR_FAILED, "out of memory for the prompt of job %" PRId64, job);
    db_reset(q);
    if (rc)
        job_input_free(out);
    return rc;
}

void job_input_free(struct job_input *in)
{
    db_row_free(input_columns, N_OF_INPUT, in);
    free(in->prompt);
    free(in->prompt_ids);
    *in = (struct job_input){0};
}

int prompt_read(struct store *s, int64_t job, int32_t **ids, size_t *n, struct err *e)
{
    sqlite3_stmt *q = db_query(s, e, "SELECT i.ids, i.crc, j.prompt_tokens FROM job j JOIN input i ON "
                               "i.job = j.id WHERE j.id = ?1", "i", job);
    int rc = db_step(s, q, e);
    if (rc <= 0)
        return rc ? -1 : err_set(e, ERR_INPUT, "there is no job %" PRId64, job);
    *n = (size_t)sqlite3_column_int64(q, 2);
    rc = prompt_unpack(s, job, q, 0, (int64_t)*n, ids, e);
    db_reset(q);
    return rc;
}

#define REQUEST_COLUMNS \
    "identity, model, fingerprint, seed, wanted, prompt_tokens, link, priority, opening"

int job_copy(struct store *s, int64_t old, int64_t *id, struct err *e)
{
    if (db_run(s, e, "INSERT INTO job (state, created, updated, " REQUEST_COLUMNS ") SELECT 'queued', ?2, "
               "?2, " REQUEST_COLUMNS " FROM job WHERE id = ?1", "ir", old, wall_seconds()))
        return -1;
    *id = sqlite3_last_insert_rowid(s->db);
    return db_run(s, e, COPY_ROWS("input", INPUT_COLUMNS), "ii", old, *id);
}
