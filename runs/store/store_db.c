/* The connection to the store's file: settings, statements, transactions, errors.
 *
 * A struct store is one connection of one thread. The register of open files joins the connections of a
 * process to one file: its writers take turns, and a failed write stops them all. Start at db_connect and
 * db_begin. */
#include "runs/store/store_db.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOPPED_SECONDS 10.0             /* longest first wait for a lock once told to stop */
#define LEAVING_SECONDS 0.5              /* longest further wait after a timeout */

double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- lists ---- */

void strings_free(struct strings *t)
{
    while (t) {
        struct strings *next = t->next;
        free(t);
        t = next;
    }
}

const char *column_text(sqlite3_stmt *q, int i, struct strings **t, bool *failed)
{
    if (sqlite3_column_type(q, i) == SQLITE_NULL)
        return NULL;
    const void *p = sqlite3_column_blob(q, i);
    const size_t n = (size_t)sqlite3_column_bytes(q, i);
    struct strings *s = malloc(sizeof *s + n + 1);
    if (!s) {
        *failed = true;
        return NULL;
    }
    s->next = *t;
    *t = s;
    if (n)
        memcpy(s->v, p, n);
    s->v[n] = 0;
    return s->v;
}

char *column_copy(sqlite3_stmt *q, int i, bool *failed)
{
    const void *p = sqlite3_column_blob(q, i);
    const size_t n = (size_t)sqlite3_column_bytes(q, i);
    char *s = sqlite3_column_type(q, i) == SQLITE_NULL ? NULL : malloc(n + 1);
    *failed |= !s && sqlite3_column_type(q, i) != SQLITE_NULL;
    if (s && n)
        memcpy(s, p, n);
    if (s)
        s[n] = 0;
    return s;
}

static void read_column(sqlite3_stmt *q, int i, char letter, void *at)
{
    switch (letter) {
    case 'i': *(int64_t *)at = sqlite3_column_int64(q, i); break;
    case 'z': case 'n': *(size_t *)at = (size_t)sqlite3_column_int64(q, i); break;
    case 'd': *(int *)at = sqlite3_column_int(q, i); break;
    case 'r': *(double *)at = sqlite3_column_double(q, i); break;
    case 'f': *(float *)at = (float)sqlite3_column_double(q, i); break;
    default: assert(letter == 'b'); *(bool *)at = sqlite3_column_int(q, i) != 0;
    }
}

void db_row(sqlite3_stmt *q, int first, const struct db_column *c, size_t n, void *to, struct strings **t,
            bool *failed)
{
    for (size_t k = 0; k < n; k++) {
        void *at = (char *)to + c[k].place;
        if (c[k].letter == 't')
            *(const char **)at = column_text(q, first + (int)k, t, failed);
        else if (c[k].letter == 's')
            *(char **)at = column_copy(q, first + (int)k, failed);
        else
            read_column(q, first + (int)k, c[k].letter, at);
    }
}

void db_row_free(const struct db_column *c, size_t n, void *of)
{
    for (size_t k = 0; k < n; k++)
        if (c[k].letter == 's') {
            char **at = (char **)(void *)((char *)of + c[k].place);
            free(*at);
            *at = NULL;
        }
}

void column_owner(sqlite3_stmt *q, int i, struct owner *o)
{
    *o = (struct owner){ .pid = sqlite3_column_int64(q, i + 3),
                         .start = (uint64_t)sqlite3_column_int64(q, i + 4) };
    snprintf(o->host, sizeof o->host, "%s", (const char *)sqlite3_column_text(q, i));
    snprintf(o->boot, sizeof o->boot, "%s", (const char *)sqlite3_column_text(q, i + 1));
    snprintf(o->spaces, sizeof o->spaces, "%s", (const char *)sqlite3_column_text(q, i + 2));
}

/* ---- the register of open files ---- */

/* POSIX locks belong to the process: closing any descriptor of a file drops the locks that SQLite holds on
 * it. So only the first connection of a process may read the file by other means.
 *
 * After a failed write of one connection no other connection may begin: the kernel may have dropped pages
 * that it could not write, and reports that once. So writers of one process take turns, and each turn
 * records how it ended. */
struct open_file { uint64_t dev, ino; size_t n; char broken[400]; pthread_mutex_t turn; };
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_file open_files[64];

/* The entry of a file, or a new one; NULL: all entries are in use. The caller holds the lock. */
static struct open_file *find_open_file(uint64_t dev, uint64_t ino)
{
    struct open_file *unused = NULL;
    for (size_t i = 0; i < sizeof open_files / sizeof *open_files; i++) {
        struct open_file *f = &open_files[i];
        if (f->n && f->dev == dev && f->ino == ino)
            return f;
        if (!f->n && !unused)
            unused = f;
    }
    if (unused)
        *unused = (struct open_file){ .dev = dev, .ino = ino, .turn = PTHREAD_MUTEX_INITIALIZER };
    return unused;
}

int db_register(struct store *s, int (*check)(struct store *s, struct err *e), bool *first, struct err *e)
{
    pthread_mutex_lock(&open_lock);
    struct open_file *f = find_open_file(s->dev, s->ino);
    *first = f && f->n == 0;
    int rc = !f       ? err_set(e, ERR_FAILED, ERR_PATH "too many stores are open", s->shown)
             : *first ? check(s, e)
                      : 0;
    if (rc == 0) {
        f->n++;
        s->file = f;
    }
    pthread_mutex_unlock(&open_lock);
    return rc;
}

static void break_file(struct store *s, const struct err *e)
{
    pthread_mutex_lock(&open_lock);
    if (s->file && !s->file->broken[0])
        err_words(e, s->file->broken, sizeof s->file->broken);
    pthread_mutex_unlock(&open_lock);
}

static int check_not_broken(struct store *s, struct err *e)
{
    pthread_mutex_lock(&open_lock);
    int rc = s->file && s->file->broken[0]
                 ? err_set(e, ERR_FAILED, "nothing more is written after a failure (%s)", s->file->broken)
                 : 0;
    pthread_mutex_unlock(&open_lock);
    return rc;
}

/* ---- errors ---- */

static int damaged(const struct store *s, const char *prefix, const char *why, struct err *e)
{
    return err_set(e, ERR_FAILED,
                   ERR_PATH "%sthe database is damaged (%s); it is left as it is, and `sqlite3 FILE "
                   ".recover` may save what can be read",
                   s->shown, prefix, why);
}

/* Always -1. */
static int db_fail(struct store *s, const char *doing, int rc, struct err *e)
{
    int system = s->db ? sqlite3_system_errno(s->db) : 0;
    const char *why = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);
    char prefix[64];
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ERR_AGAIN,
                       ERR_PATH "%s: another process has held the database for %.0f s; nothing was changed, "
                       "try again",
                       s->shown, doing, s->waited);
    case SQLITE_FULL:
        errno = ENOSPC;
        return err_set_system(e, ERR_FAILED, ERR_PATH "%s: the disk is full", s->shown, doing);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return err_set(e, ERR_FAILED, ERR_PATH "%s: %s%s%s (SQLite code %d)", s->shown, doing, why,
                       system ? ": " : "", system ? strerror(system) : "", rc);
    case SQLITE_READONLY:
        return err_set(e, ERR_FAILED, ERR_PATH "%s: the file or its folder may not be written (%s)", s->shown,
                       doing, why);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        snprintf(prefix, sizeof prefix, "%s: ", doing);
        return damaged(s, prefix, why, e);
    case SQLITE_NOMEM:
        return err_set(e, ERR_FAILED, ERR_PATH "%s: out of memory", s->shown, doing);
    default:
        return err_set(e, ERR_FAILED, ERR_PATH "%s: %s (SQLite code %d)", s->shown, doing, why, rc);
    }
}

/* Record a failed write. Only a new process can tell what is on the disk then. */
static void note_failed_write(struct store *s, int rc, const struct err *e)
{
    int kind = rc & 0xff;
    bool read_failed = rc == SQLITE_IOERR_READ || rc == SQLITE_IOERR_SHORT_READ || rc == SQLITE_IOERR_NOMEM;
    if ((kind == SQLITE_IOERR && !read_failed) || kind == SQLITE_FULL || kind == SQLITE_CANTOPEN ||
        kind == SQLITE_CORRUPT || kind == SQLITE_READONLY)
        break_file(s, e);
}

/* ---- statements ---- */

/* The first statement of `sql`; NULL: failed. */
static const struct statement *prepare(struct store *s, const char *sql, struct err *e)
{
    for (size_t i = 0; i < s->n_q; i++)
        if (s->q[i].sql == sql)
            return &s->q[i];
    assert(s->n_q < STATEMENTS_MAX);
    struct statement *q = &s->q[s->n_q];
    int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &q->st, &q->next);
    if (rc != SQLITE_OK) {
        db_fail(s, "reading", rc, e);
        return NULL;
    }
    q->sql = sql;
    s->n_q++;
    return q;
}

/* Binds parameters i and i + 1 to token ids. */
static int bind_ids(sqlite3_stmt *q, int i, const int32_t *ids, size_t n, struct err *e)
{
    uint8_t *data;
    size_t size;
    uint32_t crc;
    if (chunk_pack(&data, &size, &crc, ids, n, e))
        return -1;
    const int rc = sqlite3_bind_blob64(q, i + 1, data, size, free);
    return rc == SQLITE_OK ? sqlite3_bind_int64(q, i, crc) : rc;
}

/* Binds the parameters of q to the first arguments, or to all of them. */
static int bind(struct store *s, sqlite3_stmt *q, const char *fmt, va_list *ap, bool all, struct err *e)
{
    int rc = SQLITE_OK;
    const void *p;
    size_t number;
    const int n = sqlite3_bind_parameter_count(q);
    for (int i = 1; i <= n && rc == SQLITE_OK; i++)
        switch (*fmt++) {
        case 'i': rc = sqlite3_bind_int64(q, i, va_arg(*ap, int64_t)); break;
        case 'd': rc = sqlite3_bind_int(q, i, va_arg(*ap, int)); break;
        case 'z': rc = sqlite3_bind_int64(q, i, (int64_t)va_arg(*ap, size_t)); break;
        case 'n':
            number = va_arg(*ap, size_t);
            rc = number ? sqlite3_bind_int64(q, i, (int64_t)number) : sqlite3_bind_null(q, i);
            break;
        case 'f':
        case 'r': rc = sqlite3_bind_double(q, i, va_arg(*ap, double)); break;
        case 's':
        case 't':                        /* SQLite binds NULL for NULL */
            rc = sqlite3_bind_text(q, i, va_arg(*ap, const char *), -1, SQLITE_STATIC);
            break;
        case 'h': rc = sqlite3_bind_blob(q, i, va_arg(*ap, const void *), SHA256_BYTES, SQLITE_STATIC); break;
        case 'b':
            p = va_arg(*ap, const void *);
            rc = sqlite3_bind_blob64(q, i, p, va_arg(*ap, size_t), SQLITE_STATIC);
            break;
        case 'p':
            p = va_arg(*ap, const void *);
            rc = bind_ids(q, i++, p, va_arg(*ap, size_t), e);
            break;
        default: assert(!"a letter of the format for each parameter");
        }
    assert(!all || rc != SQLITE_OK || !*fmt || *fmt == '>');
    return rc == SQLITE_OK || rc < 0 ? rc : db_fail(s, "reading", rc, e);
}

void db_reset(sqlite3_stmt *q)
{
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);           /* they point into memory of the caller */
}

/* The first statement of *sql, or its only one, with its arguments; *sql becomes what follows it. */
static sqlite3_stmt *query(struct store *s, struct err *e, const char **sql, const char *fmt, va_list *ap,
                           bool only)
{
    const struct statement *q = prepare(s, *sql, e);
    if (!q)
        return NULL;
    *sql = q->next;
    assert(!only || !**sql);
    if (bind(s, q->st, fmt, ap, only, e)) {
        db_reset(q->st);
        return NULL;
    }
    return q->st;
}

sqlite3_stmt *db_query(struct store *s, struct err *e, const char *sql, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, &sql, fmt, &ap, true);
    va_end(ap);
    return q;
}

int db_step(struct store *s, sqlite3_stmt *q, struct err *e)
{
    if (!q)
        return -1;
    s->busy_since = 0;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc != SQLITE_DONE) {
        db_fail(s, s->writes || !sqlite3_stmt_readonly(q) ? "writing" : "reading", rc, e);
        note_failed_write(s, rc, e);
    }
    db_reset(q);
    return rc == SQLITE_DONE ? 0 : -1;
}

int db_run(struct store *s, struct err *e, const char *sql, const char *fmt, ...)
{
    int rc = 0;
    while (rc == 0 && *sql) {
        va_list ap;
        va_start(ap, fmt);
        sqlite3_stmt *q = query(s, e, &sql, fmt, &ap, false);
        va_end(ap);
        do
            rc = db_step(s, q, e);
        while (rc == 1);
    }
    return rc;
}

int db_script(struct store *s, const char *sql, const char *doing, struct err *e)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    db_fail(s, doing, rc, e);
    if (s->writes)
        note_failed_write(s, rc, e);
    return -1;
}

int64_t db_changes(const struct store *s) { return sqlite3_changes(s->db); }

int db_read(struct store *s, struct err *e, const char *sql, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, &sql, fmt, &ap, true);
    int rc = db_step(s, q, e);
    fmt += strcspn(fmt, ">");
    fmt += *fmt == '>';
    for (int i = 0; rc == 1 && fmt[i]; i++) {
        void *at = va_arg(ap, void *);
        const char *text = strchr("st", fmt[i]) ? (const char *)sqlite3_column_text(q, i) : NULL;
        if (fmt[i] == 't')
            snprintf(at, va_arg(ap, size_t), "%s", text ? text : "");
        else if (fmt[i] == 's' && !(*(char **)at = text ? strdup(text) : NULL) && text)
            rc = err_set(e, ERR_FAILED, "out of memory for a text of the store");
        else if (fmt[i] == 'h' && sqlite3_column_bytes(q, i) == SHA256_BYTES)
            memcpy(at, sqlite3_column_blob(q, i), SHA256_BYTES);
        else if (!strchr("sh", fmt[i]))
            read_column(q, i, fmt[i], at);
    }
    va_end(ap);
    if (q)
        db_reset(q);
    return rc;
}

int db_list(struct store *s, struct err *e, struct db_rows rows, void *v, size_t *n, struct strings **t,
            const char *sql, const char *fmt, ...)
{
    bool failed = false;
    va_list ap;
    int rc;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, &sql, fmt, &ap, true);
    va_end(ap);
    while ((rc = db_step(s, q, e)) == 1) {
        char *list;
        failed = !array_grow(v, *n, rows.size);
        memcpy(&list, v, sizeof list);
        if (!failed)
            db_row(q, 1, rows.c, rows.n, memset(list + rows.size * (*n)++, 0, rows.size), t, &failed);
        if (failed) {
            db_reset(q);
            return err_set(e, ERR_FAILED, "out of memory for a list");
        }
    }
    return rc;
}

const struct db_rows db_numbers = { &(const struct db_column){ 'i', 0 }, 1, sizeof(int64_t) };

int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* ---- transactions ---- */

static atomic_bool wait_timed_out;       /* after the process was told to stop */

/* Sleep for at most `ms` milliseconds. A reader that waits for a writer of its own process wakes when that
 * writer's turn ends. */
static void sleep_for_lock(struct store *s, long ms)
{
    pthread_mutex_t *turn = s->writes || !s->file ? NULL : &s->file->turn;
    const double end = wall_seconds() + 1e-3 * (double)ms;
    const struct timespec until = { .tv_sec = (time_t)end, .tv_nsec = (long)(1e9 * fmod(end, 1)) };
    if (turn && pthread_mutex_trylock(turn)) {
        if (pthread_mutex_timedlock(turn, &until) == 0)
            pthread_mutex_unlock(turn);
        return;
    }
    if (turn)                            /* the writer is another process */
        pthread_mutex_unlock(turn);
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* SQLite's busy handler: another connection holds the lock. Sleep for 1 or 2 ms at first, later for up to
 * 250 ms. The time is random, so that waiting workers do not move in step. Returns 0 to give up. */
static int wait_for_lock(void *ctx, int n)
{
    struct store *s = ctx;
    double now = clock_seconds(), most = s->o.busy_seconds;
    if (n == 0 || s->busy_since == 0)
        s->busy_since = now;
    const bool stopped = s->o.stop && *s->o.stop;
    if (stopped)
        most = MIN(most, atomic_load(&wait_timed_out) ? LEAVING_SECONDS : STOPPED_SECONDS);
    s->waited = now - s->busy_since;
    if (s->waited >= most) {
        if (stopped)
            atomic_store(&wait_timed_out, true);
        return 0;
    }
    s->jitter = s->jitter * 1664525 + 1013904223;
    sleep_for_lock(s, 1 + (long)(s->jitter >> 8) % (n < 5 ? 2L << n : n < 20 ? 50 : 250));
    return 1;
}

static void end_turn(struct store *s)
{
    if (s->writes)
        pthread_mutex_unlock(&s->file->turn);
    s->writes = false;
}

/* db_connect prepares this statement, so a rollback needs no memory. */
static const char rollback[] = "ROLLBACK";

int db_begin(struct store *s, struct err *e)
{
    assert(s->o.mode != STORE_READ && !s->writes && s->file);
    pthread_mutex_lock(&s->file->turn);
    s->writes = true;
    if (check_not_broken(s, e) || db_run(s, e, "BEGIN IMMEDIATE", "") ||
        (s->is_backup && db_run(s, e, "UPDATE store SET backup = 0", "")))
        return db_rollback(s);
    return 0;
}

int db_begin_read(struct store *s, struct err *e)
{
    if (s->reads)                        /* store_read_begin has begun the transaction */
        return 0;
    if (!sqlite3_get_autocommit(s->db))  /* a rollback has failed */
        return check_not_broken(s, e);
    return db_run(s, e, "BEGIN", "");
}

static int db_commit(struct store *s, struct err *e)
{
    if (s->reads)                        /* store_read_end commits */
        return 0;
    if (db_run(s, e, "COMMIT", ""))
        return db_rollback(s);
    s->is_backup = s->is_backup && !s->writes;
    end_turn(s);
    return 0;
}

int db_rollback(struct store *s)
{
    /* SQLite may have rolled back by itself. If this rollback fails, the next process rolls back from the
     * journal. */
    struct err why;
    if (!sqlite3_get_autocommit(s->db) && db_run(s, &why, rollback, "") && !sqlite3_get_autocommit(s->db))
        break_file(s, &why);
    end_turn(s);
    return -1;
}

int store_read_begin(struct store *s, struct err *e)
{
    if (db_begin_read(s, e))
        return -1;
    s->reads = true;
    return 0;
}

void store_read_end(struct store *s)
{
    struct err ignored;
    s->reads = false;
    if (!sqlite3_get_autocommit(s->db))          /* else a failed read has rolled back */
        db_commit(s, &ignored);
}

int db_end(struct store *s, int rc, struct err *e)
{
    if (rc == 0)
        return db_commit(s, e);
    db_rollback(s);
    return rc;
}

int db_parts(struct store *s, struct err *e, void *v, size_t n,
             const struct err *(*write)(struct store *s, void *v, size_t i))
{
    int rc = db_begin(s, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = db_run(s, e, "SAVEPOINT part", "");
        const struct err *why = rc ? NULL : write(s, v, i);
        if (why && sqlite3_get_autocommit(s->db)) {          /* SQLite has rolled back all parts */
            *e = *why;
            rc = -1;
        } else if (rc == 0) {
            rc = db_run(s, e, why ? "ROLLBACK TO part; RELEASE part" : "RELEASE part", "");
        }
    }
    return db_end(s, rc, e);
}

/* ---- connections ---- */

/* What a pragma gives. */
static int pragma_text(struct store *s, const char *pragma, const char *doing, char got[256], struct err *e)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(s->db, pragma, -1, &q, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        snprintf(got, 256, "%s", (const char *)sqlite3_column_text(q, 0));
    else
        db_fail(s, doing, rc, e);
    sqlite3_finalize(q);
    return rc == SQLITE_ROW ? 0 : -1;
}

/* 0: the pragma gives `want`; 1: it gives another value, and *e says so; -1: failed. */
static int pragma_differs(struct store *s, const char *pragma, const char *want, struct err *e)
{
    char got[256];
    if (pragma_text(s, pragma, "opening", got, e))
        return -1;
    if (strcmp(got, want) == 0)
        return 0;
    err_set(e, ERR_FAILED, ERR_PATH "`%s` gives \"%s\" and must give \"%s\"", s->shown, pragma, got, want);
    return 1;
}

static int apply_settings(struct store *s, struct err *e)
{
    static const char settings[] =
        "PRAGMA synchronous=EXTRA; PRAGMA foreign_keys=ON; PRAGMA cell_size_check=ON; "
        "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY; "
        "PRAGMA secure_delete=ON";       /* overwrite in the file what `remove` removes */
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_handler(s->db, wait_for_lock, s);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    if (db_script(s, settings, "opening", e) || pragma_differs(s, "PRAGMA synchronous", "3", e) ||
        pragma_differs(s, "PRAGMA foreign_keys", "1", e))
        return -1;
    /* Some versions of SQLite take a write lock to set even the current mode. A new file has this mode by
     * default. */
    int differs = pragma_differs(s, "PRAGMA journal_mode", "delete", e);
    if (differs == 1 && s->o.mode != STORE_READ)
        differs = pragma_differs(s, "PRAGMA journal_mode=DELETE", "delete", e);
    return differs ? -1 : 0;
}

int db_connect(struct store *s, struct err *e)
{
    int rc = sqlite3_open_v2(s->path, &s->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
    if (rc != SQLITE_OK)
        return db_fail(s, "opening", rc, e);
    if (apply_settings(s, e) || !prepare(s, rollback, e))
        return -1;
    if (s->o.mode != STORE_READ && sqlite3_db_readonly(s->db, "main") == 1)
        return err_set(e, ERR_FAILED, ERR_PATH "the file may not be written", s->shown);
    return 0;
}

void db_disconnect(struct store *s)
{
    end_turn(s);
    for (size_t i = 0; i < s->n_q; i++)
        sqlite3_finalize(s->q[i].st);
    int rc = sqlite3_close(s->db);
    assert(rc == SQLITE_OK);
    pthread_mutex_lock(&open_lock);
    if (s->file)
        s->file->n--;
    pthread_mutex_unlock(&open_lock);
}

int db_check(struct store *s, const char *pragma, struct err *e)
{
    char got[256];
    if (pragma_text(s, pragma, "checking", got, e))
        return -1;
    return strcmp(got, "ok") == 0 ? 0 : damaged(s, "", got, e);
}
