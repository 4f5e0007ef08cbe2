/* For tests: the whole file of a store. */
#pragma once
#include <inttypes.h>
#include <stdlib.h>

#include "runs/store/store_db.h"

/* Check the whole file: SQLite's integrity check, foreign keys, sums and chain of every text. Reads
 * everything. */
static inline int store_check(struct store *s, struct err *e)
{
    int64_t *ids = NULL, bad;
    size_t n = 0;
    struct selection all = {0};
    if (db_check(s, "PRAGMA integrity_check(1)", e))
        return -1;
    int rc = db_read(s, e, "SELECT count(*) FROM pragma_foreign_key_check()", ">i", &bad);
    if (rc == 1 && bad)
        return err_set(e, ERR_FAILED, "%s: %" PRId64 " rows belong to no job", s->shown, bad);
    if (rc < 0 || store_select(s, &all, &ids, &n, e))
        return -1;
    rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        int32_t *tokens = NULL;
        struct text_end end;
        rc = db_begin_read(s, e);
        if (rc == 0)
            rc = db_end(s, chunks_read(s, ids[i], &tokens, &end, e), e);
        free(tokens);
    }
    free(ids);
    return rc;
}
