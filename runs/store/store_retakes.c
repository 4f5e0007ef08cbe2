/* Retakes of texts: the table retake. The chain over the rows of a job is part of the link in the job's row,
 * so a missing row shows. Start at retakes_append. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char OF_PHRASE[] = "phrase: ";      /* the beginning of such a reason */

/* The chain after one more retake. */
static void chain_next(struct text_end *end, const struct retake *x)
{
    int32_t row[4 + sizeof x->phrase / sizeof(int32_t) + 1] = { (int32_t)x->at, x->token, (int32_t)x->length,
                                                                (int32_t)x->since };
    const size_t bytes = strlen(x->phrase);
    memcpy(row + 4, x->phrase, bytes);
    link_next(&end->retakes, &end->retakes, row, 4 + (bytes + 3) / sizeof *row);
    end->n_retakes++;
}

int retakes_append(struct store *s, int64_t job, struct text_end *end, const struct retake *v, size_t n,
                   struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (db_run(s, e, "INSERT INTO retake (job, number" RETAKE_COLUMNS ") SELECT ?1, "
                   "ifnull(max(number) + 1, 0), ?2, ?3, ?4, ?5, ?6 || ?7 FROM retake WHERE job = ?1",
                   "izdzztt", job, v[i].at, v[i].token, v[i].length, v[i].since,
                   *v[i].phrase ? OF_PHRASE : "loop", v[i].phrase))
            return -1;
        chain_next(end, &v[i]);
    }
    return 0;
}

static int read_rows(struct store *s, int64_t job, struct retakes *out, struct err *e)
{
    int rc, bad = 0;
    *out = (struct retakes){0};
    sqlite3_stmt *q = db_query(s, e, "SELECT job" RETAKE_COLUMNS " FROM retake WHERE job = ?1 ORDER BY "
                               "number", "i", job);
    while ((rc = db_step(s, q, e)) == 1) {
        struct retake x = { (size_t)sqlite3_column_int64(q, 1), sqlite3_column_int(q, 2),
                            (size_t)sqlite3_column_int64(q, 3), (size_t)sqlite3_column_int64(q, 4) };
        const char *reason = (const char *)sqlite3_column_text(q, 5);
        if (reason && strncmp(reason, OF_PHRASE, strlen(OF_PHRASE)) == 0)
            snprintf(x.phrase, sizeof x.phrase, "%s", reason + strlen(OF_PHRASE));
        bad |= x.at >= x.length || x.length > INT32_MAX || x.since > x.length || x.token < 0;
        if (bad || retakes_add(out, &x, e)) {
            db_reset(q);
            rc = !bad ? -1 : err_set(e, ERR_FAILED, ERR_PATH "job %" PRId64 ": retake %zu is damaged",
                                     s->shown, job, out->n);
            break;
        }
    }
    if (rc)
        retakes_free(out);
    return rc;
}

int store_retakes(struct store *s, int64_t job, struct retakes *out, size_t *settled, struct err *e)
{
    size_t at = SIZE_MAX;
    int rc = db_begin_read(s, e);
    if (rc)
        return rc;
    rc = read_rows(s, job, out, e) ||
         db_read(s, e, "SELECT ifnull(settled, -1) FROM job WHERE id = ?1", "i>z", job, &at) < 0 ? -1 : 0;
    if (settled)
        *settled = at;
    rc = db_end(s, rc, e);
    if (rc)
        retakes_free(out);
    return rc;
}

int retakes_chain(struct store *s, int64_t job, struct text_end *end, struct err *e)
{
    struct retakes l;
    end->n_retakes = 0;
    memset(&end->retakes, 0, sizeof end->retakes);
    if (read_rows(s, job, &l, e))
        return -1;
    for (size_t i = 0; i < l.n; i++)
        chain_next(end, &l.v[i]);
    retakes_free(&l);
    return 0;
}

int retakes_cut(struct store *s, int64_t job, size_t keep, struct text_end *end, struct err *e)
{
    return db_run(s, e, "DELETE FROM retake WHERE job = ?1 AND at >= ?2", "iz", job, keep) ||
           retakes_chain(s, job, end, e) ? -1 : 0;
}

/* The numbers of the copies have no gaps. */
int retakes_copy(struct store *s, int64_t from, int64_t to, size_t before, struct text_end *end,
                 struct err *e)
{
    return db_run(s, e,
                  "INSERT INTO retake (job, number" RETAKE_COLUMNS ") SELECT ?2, "
                  "row_number() OVER (ORDER BY number) - 1" RETAKE_COLUMNS " FROM retake "
                  "WHERE job = ?1 AND at < ?3", "iiz", from, to, before) ||
           retakes_chain(s, to, end, e) ? -1 : 0;
}

int store_retake_cost(struct store *s, int64_t job, size_t *n, size_t *cut, struct err *e)
{
    return db_read(s, e, "SELECT count(*), ifnull(sum(length - at), 0) FROM retake WHERE job = ?1 AND "
                   "at >= (SELECT ifnull(parent_at, 0) FROM job WHERE id = ?1)", "i>zz", job, n, cut) == 1
               ? 0 : -1;
}
