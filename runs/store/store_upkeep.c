/* Keeping a store for months: its size, compacting, a copy of it, and what is wrong with it.
 *
 * Nothing here changes a job. Start at store_compact, store_backup and store_examine. */
#include "runs/store/store_db.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- sizes ---- */

int store_size(struct store *s, struct store_size *out, struct err *e)
{
    return db_read(s, e, "SELECT page_size * page_count, page_size * freelist_count, "
                   "ifnull((SELECT sum(length(data)) FROM tokenizer), 0) + "
                   "ifnull((SELECT sum(length(config) + ifnull(length(generation), 0)) FROM model), 0) "
                   "FROM pragma_page_size, pragma_page_count, pragma_freelist_count", ">zzz", &out->file,
                   &out->unused, &out->models) == 1 ? 0 : -1;
}

int store_bytes(struct store *s, const int64_t *ids, size_t n, struct job_bytes *out, struct err *e)
{
    int rc = db_begin_read(s, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = db_read(
            s, e,
            "SELECT ifnull((SELECT sum(length(data) + length(link)) FROM chunk WHERE job = ?1), 0) + "
            "ifnull((SELECT sum(length(data) + 16) FROM logprob WHERE job = ?1), 0), "
            "(SELECT length(prompt) + length(ids) + length(CAST(parameters AS BLOB)) + "
            "ifnull(length(CAST(metadata AS BLOB)), 0) FROM input WHERE job = ?1), "
            "ifnull((SELECT sum(length(source) + length(name) + 16) FROM metric WHERE job = ?1), 0) + "
            "ifnull((SELECT sum(length(sources) + 32) FROM round WHERE job = ?1), 0) + "
            "ifnull((SELECT sum(length(kind) + length(text) + 16) FROM event WHERE job = ?1), 0), "
            "(SELECT sum(bytes) FROM snapshot WHERE job = ?1)", "i>zzzz", ids[i], &out[i].text,
            &out[i].input, &out[i].figures, &out[i].snapshots) == 1 ? 0 : -1;
    return db_end(s, rc, e);
}

/* ---- compacting ---- */

/* SQLite writes the new database to a temporary file and then back, under its rollback journal, so a kill at
 * any point leaves the old database. After a rename, workers that have the file open would write to the old
 * one. */
int store_compact(struct store *s, struct store_size *before, struct store_size *after, struct err *e)
{
    char folder[PATH_BYTES];
    if (store_size(s, before, e))
        return -1;
    snprintf(folder, sizeof folder, "%s", s->path);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = 0;
    if (!getenv("SQLITE_TMPDIR"))        /* beside the store; the system's folder may be memory */
        setenv("SQLITE_TMPDIR", folder, 1);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 1);
    int rc = db_script(s, "PRAGMA temp_store=FILE; VACUUM; PRAGMA temp_store=MEMORY", "compacting", e)
                 ? -1 : store_size(s, after, e);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    return rc;
}

/* ---- a copy ---- */

struct store_row { char id[33]; bool backup; };      /* of the table `store`, the id in hex */

/* Read the row of any file; {0}: the file has none. */
static void read_row(sqlite3 *db, struct store_row *r)
{
    sqlite3_stmt *q = NULL;
    *r = (struct store_row){0};
    if (sqlite3_prepare_v2(db, "SELECT hex(id), backup FROM store", -1, &q, NULL) == SQLITE_OK &&
        sqlite3_step(q) == SQLITE_ROW) {
        snprintf(r->id, sizeof r->id, "%s", (const char *)sqlite3_column_text(q, 0));
        r->backup = sqlite3_column_int(q, 1) != 0;
    }
    sqlite3_finalize(q);
}

/* Refuse a target that is something else than an earlier backup of this store. *is_new: there is no file. */
static int check_target(const struct store_row *own, const char *path, bool force, bool *is_new,
                        struct err *e)
{
    static const char allowed[] = "a new file or an earlier backup of this store is allowed, and --force "
                                  "replaces any file";
    struct store_row there = {0};
    sqlite3 *db = NULL;
    struct stat st;
    *is_new = false;
    if (stat(path, &st)) {
        *is_new = errno == ENOENT;
        return *is_new ? 0 : err_set(e, ERR_FAILED, "%s: cannot write: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INPUT, "%s: not a regular file; it is left as it is", path);
    if (force)
        return 0;
    if (!own->id[0])
        return err_set(e, ERR_INPUT,
                       "%s exists, and a store of an older longhand does not know its backups; a new file is "
                       "allowed, and --force replaces any file", path);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK)
        read_row(db, &there);
    sqlite3_close(db);
    if (strcmp(there.id, own->id))
        return err_set(e, ERR_INPUT, "%s exists and is no backup of this store; %s", path, allowed);
    if (!there.backup)
        return err_set(e, ERR_INPUT, "%s has the id of this store, but is no backup or was written to since; "
                       "%s", path, allowed);
    return 0;
}

/* Copy all pages at one moment. Writers wait meanwhile, because the copy holds a read lock. `mark`: the copy
 * says that it is a backup. */
static int copy_pages(struct store *s, const char *path, bool mark, struct err *e)
{
    sqlite3 *to = NULL;
    int rc = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(to, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF", NULL, NULL, NULL);
    sqlite3_backup *b = rc == SQLITE_OK ? sqlite3_backup_init(to, "main", s->db, "main") : NULL;
    if (b) {
        const double give_up = clock_seconds() + s->o.busy_seconds;
        do
            rc = sqlite3_backup_step(b, -1);
        while ((rc == SQLITE_BUSY || rc == SQLITE_LOCKED) && clock_seconds() < give_up && sqlite3_sleep(50));
        sqlite3_backup_finish(b);
        rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    if (rc == SQLITE_OK && mark)
        rc = sqlite3_exec(to, "UPDATE store SET backup = 1", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        err_set(e, rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? ERR_AGAIN : ERR_FAILED, "%s: %s", path,
                to ? sqlite3_errmsg(to) : sqlite3_errstr(rc));
    sqlite3_close(to);
    return rc == SQLITE_OK ? 0 : -1;
}

int store_backup(struct store *s, const char *path, bool force, struct err *e)
{
    char aside[PATH_BYTES], journal[PATH_BYTES + 16];
    struct store_row own;
    bool is_new;
    snprintf(journal, sizeof journal, "%s-journal", path);
    read_row(s->db, &own);               /* a store of an older longhand has none */
    if (access(journal, F_OK) == 0)
        return err_set(e, ERR_INPUT, "%s exists: %s is a database that a process works on, or was killed on",
                       journal, path);
    if (check_target(&own, path, force, &is_new, e))
        return -1;
    int fd = file_create_beside(aside, path);
    if (fd < 0)
        return err_set(e, ERR_FAILED, "%s: cannot write: %s", path, strerror(errno));
    close(fd);
    int rc = chmod(aside, 0600) ? err_set(e, ERR_FAILED, "%s: %s", aside, strerror(errno))
                                : copy_pages(s, aside, own.id[0] != 0, e);
    fd = rc ? -1 : open(aside, O_RDONLY | O_CLOEXEC);
    if (rc == 0 && (fd < 0 || fsync(fd) || (is_new ? file_rename_new : rename)(aside, path) ||
                    name_sync(path)))
        rc = err_set(e, ERR_FAILED, "%s: cannot write: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (rc)
        unlink(aside);
    return rc;
}

/* ---- what is wrong ---- */

/* The rows of SQLite's integrity check. */
static int examine_file(struct store *s, store_finding *found, void *ctx, struct err *e)
{
    char line[400];
    int rc;
    int64_t bad = 0;
    sqlite3_stmt *q = db_query(s, e, "PRAGMA integrity_check(100)", "");
    while ((rc = db_step(s, q, e)) == 1) {
        const char *text = (const char *)sqlite3_column_text(q, 0);
        if (text && strcmp(text, "ok")) {
            snprintf(line, sizeof line, "the database is damaged: %s", text);
            found(ctx, line);
        }
    }
    if (rc || db_read(s, e, "SELECT count(*) FROM pragma_foreign_key_check()", ">i", &bad) < 0)
        return -1;
    if (bad) {
        snprintf(line, sizeof line, "%" PRId64 " rows belong to no job", bad);
        found(ctx, line);
    }
    return 0;
}

int store_examine(struct store *s, store_finding *found, void *ctx, struct err *e)
{
    const struct selection all = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    if (examine_file(s, found, ctx, e) || store_select(s, &all, &ids, &n, e))
        return -1;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        int32_t *tokens = NULL;
        struct text_end end;
        struct err why;
        rc = db_begin_read(s, e);
        if (rc == 0 && chunks_read(s, ids[i], &tokens, &end, &why)) {
            found(ctx, why.msg);
            db_rollback(s);
        } else {
            rc = db_end(s, rc, e);
        }
        free(tokens);
    }
    free(ids);
    return rc;
}

#define MODEL_USE_FIELDS(X) \
    X('t', model, "j.model") X('t', fingerprint, "j.fingerprint") X('z', jobs, "count(*)") \
    X('z', open, "sum(j.state NOT IN ('done', 'cancelled'))") X('z', begun, "sum(j.tokens > 0)") \
    X('i', first, "min(j.id)") X('b', stored, "m.fingerprint IS NOT NULL")

DB_LIST(store_model_uses, (struct store *s, struct model_use_list *out, struct err *e), model_use_list,
        model_use, MODEL_USE_FIELDS, "job j LEFT JOIN model m ON m.fingerprint = j.fingerprint "
        "GROUP BY j.model, j.fingerprint", "")
