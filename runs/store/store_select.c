/* Jobs that a selection takes (selection.h): their ids, from the tables job and batch, and from the texts for
 * --distinct-below. Start at store_select. */
#include "runs/store/store_db.h"
#include "src/text/distinct.h"

#include <inttypes.h>
#include <stdlib.h>

#define OF_BATCH "SELECT 0, id FROM job WHERE batch = (SELECT id FROM batch WHERE name = ?1) AND "

static int select_term(struct store *s, const struct selection_term *t, int64_t **ids, size_t *n,
                       struct err *e)
{
    const size_t before = *n;
    int rc;
    if (!t->name[0])
        rc = db_ids(s, e, ids, n, "SELECT 0, id FROM job WHERE id BETWEEN ?1 AND ?2", "ii", t->first,
                    t->last);
    else
        rc = db_ids(s, e, ids, n, OF_BATCH "(?2 IS NULL OR custom_id = ?2)", "tt", t->name, t->custom_id);
    if (rc == 0 && *n == before && t->custom_id)     /* @NAME/custom_id/sample */
        rc = db_ids(s, e, ids, n, OF_BATCH "line NOT NULL AND custom_id || '/' || sample = ?2", "tt", t->name,
                    t->custom_id);
    if (rc || *n > before)
        return rc;
    if (!t->name[0] && t->first == t->last)
        return err_set(e, ERR_INPUT, "there is no job %" PRId64, t->first);
    return err_set(e, ERR_INPUT, "no job is selected by \"%s\"", t->word);
}

/* Whether the selection takes the job, whatever its number. */
#define TAKEN \
    "(?1 IS NULL OR j.state = ?1) AND (?2 IS NULL OR j.finish_reason = ?2) AND (?3 = 0 OR j.tokens < ?3) " \
    "AND (?4 = 0 OR j.tokens > ?4)"
#define TAKEN_VALUES(sel) \
    sel->by_state ? job_state_name(sel->state) : NULL, sel->finish, sel->shorter, sel->longer

/* Keep ids[0..*n), ascending and once each, that the selection takes. */
static int filter_ids(struct store *s, const struct selection *sel, int64_t *ids, size_t *n, struct err *e)
{
    const bool narrow = sel->n && (sel->by_state || sel->finish || sel->shorter || sel->longer);
    size_t kept = 0;
    if (*n)
        qsort(ids, *n, sizeof *ids, by_number);
    for (size_t i = 0; i < *n; i++) {
        int keep = i == 0 || ids[i] != ids[i - 1];
        if (keep && narrow)
            keep = db_read(s, e, "SELECT 1 FROM job j WHERE j.id = ?5 AND " TAKEN, "ttzzi",
                           TAKEN_VALUES(sel), ids[i]);
        if (keep < 0)
            return -1;
        if (keep)
            ids[kept++] = ids[i];
    }
    *n = kept;
    return 0;
}

/* Keep ids[0..*n) whose texts --loops and --distinct-below take. Given tokens count for neither. A text that
 * is too short to have the figure is not taken. */
static int filter_texts(struct store *s, const struct selection *sel, int64_t *ids, size_t *n,
                           struct err *e)
{
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < *n && rc == 0; i++) {
        struct distinct d = {0};
        struct repetition found;
        struct span_list spans = {0};
        int32_t *token = NULL;
        size_t n_tokens = 0;
        const int loops = sel->loops ? store_repetition(s, ids[i], &found, e) : 1;
        if (loops < 0 || (sel->distinct && (store_tokens(s, ids[i], 0, SIZE_MAX, &token, &n_tokens, e) ||
                                            store_spans(s, ids[i], &spans, e) || distinct_open(&d, e))))
            rc = -1;
        for (size_t k = 0; k < n_tokens && rc == 0; k++)
            rc = token_is_given(&spans, k) ? 0 : distinct_symbol(&d, (uint32_t)token[k], e);
        if (rc == 0 && loops && (!sel->distinct || distinct_ratio(&d, sel->distinct) < sel->distinct_below))
            ids[kept++] = ids[i];
        distinct_close(&d);
        span_list_free(&spans);
        free(token);
    }
    *n = kept;
    return rc;
}

int store_select(struct store *s, const struct selection *sel, int64_t **ids, size_t *n, struct err *e)
{
    *ids = NULL;
    *n = 0;
    int rc = db_begin_read(s, e);
    for (size_t i = 0; i < sel->n && rc == 0; i++)
        rc = select_term(s, &sel->v[i], ids, n, e);
    if (rc == 0 && sel->n == 0)
        rc = db_ids(s, e, ids, n, "SELECT 0, j.id FROM job j WHERE " TAKEN " AND (NOT ?5 OR NOT EXISTS "
                    "(SELECT 1 FROM request q WHERE q.job = j.id))", "ttzzd", TAKEN_VALUES(sel),
                    sel->no_requests);
    rc = db_end(s, rc ? rc : filter_ids(s, sel, *ids, n, e), e);
    if (rc == 0 && (sel->distinct || sel->loops))
        rc = filter_texts(s, sel, *ids, n, e);
    if (rc) {
        free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return rc;
}
