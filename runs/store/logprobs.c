/* The log-probabilities of texts: the table logprob. A row has those of up to CHUNK_TOKENS tokens, as whole
 * numbers that chunk_pack packs: 1 + 2 n for each token, with the n best tokens. The first one is the place
 * of the token among the best, or n + its value; then follow id and value of each best token, from the second
 * one on the difference to the value before. A value is -log p in units of LOGPROB_UNIT.
 *
 * Start at logprobs_append and store_logprobs. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOGPROB_UNIT 1e-4
enum { VALUE_MAX = 1 << 28 };            /* stands for -inf, too */

static size_t numbers_of(size_t best) { return 1 + 2 * best; }

static int32_t to_number(float value)
{
    const double x = -(double)value / LOGPROB_UNIT;
    return x < VALUE_MAX ? (int32_t)lround(MAX(x, 0.0)) : VALUE_MAX;
}

static float to_value(int64_t number)
{
    return number >= VALUE_MAX ? -INFINITY : (float)(-(double)number * LOGPROB_UNIT);
}

/* v[1 + best] -> to[1 + 2 best] */
static void to_numbers(int32_t *to, const struct logprob *v, size_t best)
{
    int32_t before = 0;
    size_t place = 0;
    while (place < best && v[1 + place].id != v[0].id)
        place++;
    *to++ = (int32_t)place + (place == best ? to_number(v[0].value) : 0);
    for (size_t i = 1; i <= best; i++) {
        const int32_t x = to_number(v[i].value);
        *to++ = v[i].id;
        *to++ = MAX(x - before, 0);
        before = x;
    }
}

static void from_numbers(struct logprob *v, const int32_t *from, size_t best, int32_t token)
{
    int64_t x = 0;
    for (size_t i = 0; i < best; i++) {
        x += from[2 + 2 * i];
        v[1 + i] = (struct logprob){ from[1 + 2 * i], to_value(x) };
    }
    v[0] = (struct logprob){ token, (size_t)from[0] < best ? v[1 + from[0]].value
                                                           : to_value(from[0] - (int64_t)best) };
}

static int damaged(struct store *s, int64_t job, struct err *e)
{
    return err_set(e, ERR_FAILED, ERR_PATH "the log-probabilities of job %" PRId64 " are damaged",
                   s->shown, job);
}

/* A row of the table, unpacked. */
struct row { size_t start, n, best; int32_t *number; };          /* [n][1 + 2 best], malloc'ed */

#define SELECT_LOGPROBS "SELECT job" LOGPROB_COLUMNS " FROM logprob WHERE job = ?1"

/* The row of q, of SELECT_LOGPROBS. Room for `more` further tokens. */
static int read_row(struct store *s, int64_t job, sqlite3_stmt *q, size_t more, struct row *r, struct err *e)
{
    *r = (struct row){ (size_t)sqlite3_column_int64(q, 1), (size_t)sqlite3_column_int64(q, 2),
                       (size_t)sqlite3_column_int64(q, 3), NULL };
    if (r->n > CHUNK_TOKENS || r->best > LOGPROBS_BEST_MAX)
        return damaged(s, job, e);
    const size_t each = numbers_of(r->best);
    r->number = malloc((r->n + more + 1) * each * sizeof *r->number);
    if (!r->number)
        return err_set(e, ERR_FAILED, "out of memory for log-probabilities");
    if (chunk_unpack(r->number, r->n * each, sqlite3_column_blob(q, 5), (size_t)sqlite3_column_bytes(q, 5),
                     (uint32_t)sqlite3_column_int64(q, 4), e) == 0)
        return 0;
    free(r->number);
    r->number = NULL;
    return damaged(s, job, e);
}

static int write_row(struct store *s, int64_t job, const struct row *r, struct err *e)
{
    return db_run(s, e, "INSERT INTO logprob (job" LOGPROB_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                  "ON CONFLICT (job, start) DO UPDATE SET n = ?3, crc = ?5, data = ?6", "izzzp", job,
                  r->start, r->n, r->best, r->number, r->n * numbers_of(r->best));
}

/* Up to CHUNK_TOKENS tokens: they join the last row if it has room and ends at `start`. */
static int append_some(struct store *s, int64_t job, size_t start, const struct logprob *v, size_t n,
                       size_t best, struct err *e)
{
    struct row r = {0};
    sqlite3_stmt *q = db_query(s, e, SELECT_LOGPROBS " AND start < ?2 AND start >= ?2 - ?4 AND "
                               "start + n = ?2 AND n + ?3 <= ?4 AND best = ?5 LIMIT 1",
                               "izzzz", job, start, n, (size_t)CHUNK_TOKENS, best);
    int rc = db_step(s, q, e);
    if (rc == 1) {
        rc = read_row(s, job, q, n, &r, e);
        db_reset(q);
    } else if (rc == 0) {
        r = (struct row){ start, 0, best, malloc((n + 1) * numbers_of(best) * sizeof *r.number) };
        rc = r.number ? 0 : err_set(e, ERR_FAILED, "out of memory for log-probabilities");
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        to_numbers(r.number + r.n++ * numbers_of(best), v + i * (1 + best), best);
    rc = rc ? rc : write_row(s, job, &r, e);
    free(r.number);
    return rc;
}

int logprobs_append(struct store *s, int64_t job, size_t start, const struct logprob *v, size_t n,
                    size_t best, struct err *e)
{
    for (size_t i = 0, some; i < n; i += some) {
        some = MIN(n - i, (size_t)CHUNK_TOKENS);
        if (append_some(s, job, start + i, v + i * (1 + best), some, best, e))
            return -1;
    }
    return 0;
}

int logprobs_cut(struct store *s, int64_t job, size_t keep, struct err *e)
{
    struct row r = {0};
    if (db_run(s, e, "DELETE FROM logprob WHERE job = ?1 AND start >= ?2", "iz", job, keep))
        return -1;
    sqlite3_stmt *q = db_query(s, e, SELECT_LOGPROBS " AND start + n > ?2", "iz", job, keep);
    int rc = db_step(s, q, e);
    if (rc != 1)
        return rc;
    rc = read_row(s, job, q, 0, &r, e);
    db_reset(q);
    r.n = keep - r.start;
    rc = rc ? rc : write_row(s, job, &r, e);
    free(r.number);
    return rc;
}

int store_logprobs(struct store *s, int64_t job, const int32_t *ids, size_t n, size_t best,
                   struct logprob **out, struct err *e)
{
    int rc;
    struct logprob *v = *out = calloc(n * (1 + best) + 1, sizeof *v);
    if (!v)
        return err_set(e, ERR_FAILED, "out of memory for log-probabilities of %zu tokens", n);
    for (size_t i = 0; i < n * (1 + best); i++)
        v[i] = (struct logprob){ -1, -INFINITY };
    sqlite3_stmt *q = db_query(s, e, SELECT_LOGPROBS " ORDER BY start", "i", job);
    while ((rc = db_step(s, q, e)) == 1) {
        struct row r;
        struct logprob one[1 + LOGPROBS_BEST_MAX];
        if (read_row(s, job, q, 0, &r, e)) {
            db_reset(q);
            rc = -1;
            break;
        }
        for (size_t i = 0; i < r.n && r.start + i < n; i++) {
            from_numbers(one, r.number + i * numbers_of(r.best), r.best, ids[r.start + i]);
            memcpy(v + (r.start + i) * (1 + best), one, (1 + MIN(best, r.best)) * sizeof *one);
        }
        free(r.number);
    }
    if (rc) {
        free(v);
        *out = NULL;
    }
    return rc;
}
