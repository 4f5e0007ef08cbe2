/* The store's file and connection: opening, refusing, bringing up to date; statements; transactions; errors. */
#include "runs/store/store_db.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "runs/store/schema.h"

#define STOPPED_SECONDS 10.0             /* what a process that was told to stop still waits for; once, */
#define LEAVING_SECONDS 0.5              /* and then, on its way out, so long each time */
enum { QUICK_CHECK_BYTES_MAX = 64 << 20 };   /* a file up to this size is checked before it is written: 0.2 s */

double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- strings of lists ---- */

/* Room for n bytes and a NUL behind them, NULL without memory. */
static char *string_add(struct strings **t, const void *p, size_t n)
{
    struct strings *b = *t;
    if (!b || b->size - b->used < n + 1) {
        size_t size = MAX(n + 1, (size_t)32768);
        b = malloc(sizeof *b + size);
        if (!b)
            return NULL;
        *b = (struct strings){ .next = *t, .size = size };
        *t = b;
    }
    char *s = b->v + b->used;
    if (n)
        memcpy(s, p, n);
    s[n] = 0;
    b->used += n + 1;
    return s;
}

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
    char *s = string_add(t, p, (size_t)sqlite3_column_bytes(q, i));
    *failed = *failed || !s;
    return s;
}

/* ---- the files this process has open as stores ---- */

/* Looking into a file means to close it again, which would drop the locks that SQLite holds on it in this process (POSIX locks
 * belong to the process): a file in this list is not looked at. And behind a failed write of one connection no other one begins: the kernel may
 * have dropped pages that it could not put on the disk, and says so only once. So writers of one process take turns here,
 * and none has its turn before the one before has noted how it ended. */
struct open_file { uint64_t dev, ino; size_t n; char broken[400]; pthread_mutex_t turn; };
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_file open_files[64];

/* With the lock held; NULL: no room. */
static struct open_file *open_file(uint64_t dev, uint64_t ino)
{
    struct open_file *none = NULL;
    for (size_t i = 0; i < sizeof open_files / sizeof *open_files; i++) {
        struct open_file *f = &open_files[i];
        if (f->n && f->dev == dev && f->ino == ino)
            return f;
        if (!f->n && !none)
            none = f;
    }
    if (none)
        *none = (struct open_file){ .dev = dev, .ino = ino, .turn = PTHREAD_MUTEX_INITIALIZER };
    return none;
}

static void break_file(struct store *s, const struct err *e)
{
    pthread_mutex_lock(&open_lock);
    if (s->file && !s->file->broken[0])
        snprintf(s->file->broken, sizeof s->file->broken, "%.*s", (int)sizeof s->file->broken - 1, e->msg);
    pthread_mutex_unlock(&open_lock);
}

static int check_whole(struct store *s, struct err *e)
{
    pthread_mutex_lock(&open_lock);
    int rc = s->file && s->file->broken[0]
                 ? err_set(e, ERR_FAILED, "nothing more is written after a failure (%s)", s->file->broken)
                 : 0;
    pthread_mutex_unlock(&open_lock);
    return rc;
}

/* ---- errors ---- */

/* Always -1. */
static int db_fail(struct store *s, const char *doing, int rc, struct err *e)
{
    int system = s->db ? sqlite3_system_errno(s->db) : 0;
    const char *why = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(
            e, ERR_AGAIN,
            "%s: %s: another process has held the database for %.0f s; nothing was changed, try again",
            s->shown, doing, s->waited);
    case SQLITE_FULL:
        return err_set(e, ERR_FAILED, "%s: %s: the disk is full", s->shown, doing);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return err_set(e, ERR_FAILED, "%s: %s: %s%s%s (SQLite code %d)", s->shown, doing, why,
                       system ? ": " : "", system ? strerror(system) : "", rc);
    case SQLITE_READONLY:
        return err_set(e, ERR_FAILED, "%s: %s: the file or its folder may not be written (%s)", s->shown,
                       doing, why);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, ERR_FAILED,
                       "%s: %s: the database is damaged (%s); it is left as it is, and `sqlite3 FILE "
                       ".recover` may save what can be read",
                       s->shown, doing, why);
    case SQLITE_NOMEM:
        return err_set(e, ERR_FAILED, "%s: %s: out of memory", s->shown, doing);
    default:
        return err_set(e, ERR_FAILED, "%s: %s: %s (SQLite code %d)", s->shown, doing, why, rc);
    }
}

/* ---- statements ---- */

static int prepare(struct store *s, sqlite3_stmt **q, const char *sql, struct err *e)
{
    for (size_t i = 0; i < s->n_q; i++)
        if (s->q[i].sql == sql) {
            *q = s->q[i].st;
            return 0;
        }
    assert(s->n_q < STATEMENTS_MAX);
    int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, q, NULL);
    if (rc != SQLITE_OK)
        return db_fail(s, "reading", rc, e);
    s->q[s->n_q].sql = sql;
    s->q[s->n_q++].st = *q;
    return 0;
}

static int bind(struct store *s, sqlite3_stmt *q, const char *fmt, va_list ap, struct err *e)
{
    int rc = SQLITE_OK;
    const void *p;
    const char *t;
    assert(sqlite3_bind_parameter_count(q) == (int)strlen(fmt));
    for (int i = 1; fmt[i - 1] && rc == SQLITE_OK; i++)
        switch (fmt[i - 1]) {
        case 'i': rc = sqlite3_bind_int64(q, i, va_arg(ap, int64_t)); break;
        case 'd': rc = sqlite3_bind_int(q, i, va_arg(ap, int)); break;
        case 'z': rc = sqlite3_bind_int64(q, i, (int64_t)va_arg(ap, size_t)); break;
        case 'r': rc = sqlite3_bind_double(q, i, va_arg(ap, double)); break;
        case 't':
            t = va_arg(ap, const char *);
            rc = t ? sqlite3_bind_text64(q, i, t, strlen(t), SQLITE_STATIC, SQLITE_UTF8)
                   : sqlite3_bind_null(q, i);
            break;
        case 'b':
            p = va_arg(ap, const void *);
            rc = p ? sqlite3_bind_blob64(q, i, p, va_arg(ap, size_t), SQLITE_STATIC)
                   : (va_arg(ap, size_t), sqlite3_bind_null(q, i));
            break;
        default: assert(!"a letter of the format");
        }
    return rc == SQLITE_OK ? 0 : db_fail(s, "reading", rc, e);
}

void db_reset(sqlite3_stmt *q)
{
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);           /* they point into memory of the caller */
}

static sqlite3_stmt *query(struct store *s, struct err *e, const char *sql, const char *fmt, va_list ap)
{
    sqlite3_stmt *q;
    if (prepare(s, &q, sql, e))
        return NULL;
    if (bind(s, q, fmt, ap, e)) {
        db_reset(q);
        return NULL;
    }
    return q;
}

sqlite3_stmt *db_query(struct store *s, struct err *e, const char *sql, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, sql, fmt, ap);
    va_end(ap);
    return q;
}

/* Remember a failed write: what is on disk now only another connection can tell. */
static void note_broken(struct store *s, int rc, const struct err *e)
{
    int kind = rc & 0xff;
    bool reads_only = rc == SQLITE_IOERR_READ || rc == SQLITE_IOERR_SHORT_READ || rc == SQLITE_IOERR_NOMEM;
    if ((kind == SQLITE_IOERR && !reads_only) || kind == SQLITE_FULL || kind == SQLITE_CANTOPEN ||
        kind == SQLITE_CORRUPT || kind == SQLITE_READONLY)
        break_file(s, e);
}

int db_step(struct store *s, sqlite3_stmt *q, struct err *e)
{
    s->busy_since = 0;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE) {
        db_reset(q);
        return 0;
    }
    db_fail(s, sqlite3_stmt_readonly(q) ? "reading" : "writing", rc, e);
    note_broken(s, rc, e);
    db_reset(q);
    return -1;
}

int db_run(struct store *s, struct err *e, const char *sql, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, sql, fmt, ap);
    va_end(ap);
    int rc = q ? 1 : -1;
    while (rc == 1)
        rc = db_step(s, q, e);
    return rc;
}

int64_t db_changes(const struct store *s) { return sqlite3_changes(s->db); }

int db_get(struct store *s, struct err *e, int64_t *out, const char *sql, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_stmt *q = query(s, e, sql, fmt, ap);
    va_end(ap);
    int rc = q ? db_step(s, q, e) : -1;
    if (rc == 1) {
        *out = sqlite3_column_int64(q, 0);
        db_reset(q);
    }
    return rc;
}

/* ---- transactions ---- */

static atomic_bool waited_in_vain;       /* after the process was told to stop */

/* Called while a lock is held by others: sleep 1 to 50 ms, later up to 250 ms, at random so that waiting workers do not march in step. */
static int busy(void *ctx, int n)
{
    struct store *s = ctx;
    double now = clock_seconds();
    if (n == 0 || s->busy_since == 0)
        s->busy_since = now;
    const bool stopped = s->o.stop && *s->o.stop;
    double most =
        stopped ? MIN(s->o.busy_seconds, atomic_load(&waited_in_vain) ? LEAVING_SECONDS : STOPPED_SECONDS)
                : s->o.busy_seconds;
    s->waited = now - s->busy_since;
    if (s->waited >= most) {
        if (stopped)
            atomic_store(&waited_in_vain, true);
        return 0;
    }
    s->jitter = s->jitter * 1664525 + 1013904223;
    long ms = 1 + (long)(s->jitter >> 8) % (n < 20 ? 50 : 250);
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
    return 1;
}

static void end_turn(struct store *s)
{
    if (s->writes)
        pthread_mutex_unlock(&s->file->turn);
    s->writes = false;
}

/* prepared when the store is opened: it needs no memory then */
static const char rollback[] = "ROLLBACK";

int db_begin(struct store *s, struct err *e)
{
    assert(s->o.mode != STORE_READ && !s->writes && s->file);
    pthread_mutex_lock(&s->file->turn);
    s->writes = true;
    if (check_whole(s, e) || db_run(s, e, "BEGIN IMMEDIATE", ""))
        return db_rollback(s);
    return 0;
}

int db_begin_read(struct store *s, struct err *e)
{
    if (!sqlite3_get_autocommit(s->db))  /* a rollback has failed */
        return check_whole(s, e);
    return db_run(s, e, "BEGIN", "");
}

int db_commit(struct store *s, struct err *e)
{
    if (db_run(s, e, "COMMIT", ""))
        return db_rollback(s);
    end_turn(s);
    return 0;
}

int db_rollback(struct store *s)
{
    /* SQLite may have rolled back by itself. What a rollback cannot undo now, the next connection does from the journal. */
    struct err why;
    if (!sqlite3_get_autocommit(s->db) && db_run(s, &why, rollback, "") && !sqlite3_get_autocommit(s->db))
        break_file(s, &why);
    end_turn(s);
    return -1;
}

/* ---- file systems ---- */

const char *store_network_fs(long magic)
{
    static const struct { uint32_t magic; const char *name;
    } fs[] = {
        { 0x6969, "NFS" },          { 0x517b, "SMB" },        { 0xff534d42, "CIFS" },
        { 0xfe534d42, "SMB2" },     { 0x0bd00bd0, "Lustre" }, { 0x47504653, "GPFS" },
        { 0x65735546, "FUSE" },     { 0x01021997, "9p" },     { 0x00c36400, "Ceph" },
        { 0x5346414f, "AFS" },      { 0x6b414653, "AFS" },    { 0x19830326, "BeeGFS" },
        { 0x20030528, "OrangeFS" }, { 0x73757245, "Coda" },   { 0x7461636f, "OCFS2" },
        { 0x01161970, "GFS2" },     { 0x786f4256, "vboxsf" }, { 0xaad7aaea, "PanFS" },
        { 0xbacbacbc, "vmhgfs" },
    };
    for (size_t i = 0; i < sizeof fs / sizeof *fs; i++)
        if (fs[i].magic == (uint32_t)magic)
            return fs[i].name;
    return NULL;
}

static void look_at_fs(struct store *s, const char *folder)
{
    struct statfs f;
    long magic = s->o.fs_type;
    if (!magic && statfs(folder, &f) == 0)
        magic = (long)f.f_type;
    s->fs = store_network_fs(magic);
    if (s->fs)
        snprintf(s->notice, sizeof s->notice,
                 "%.200s is on a network file system (%s): texts are safe there only if its locks and its "
                 "fsync are; "
                 "--db puts the store on a local disk",
                 s->shown, s->fs);
}

int store_default_path(char *path, size_t size, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;
    if (state && state[0] == '/')
        n = snprintf(path, size, "%s/longhand/longhand.db", state);
    else if (home && home[0] == '/')
        n = snprintf(path, size, "%s/.local/state/longhand/longhand.db", home);
    else
        return err_set(
            e, ERR_INPUT,
            "no place for the store: neither XDG_STATE_HOME nor HOME is set; --db FILE says where");
    return n >= 0 && (size_t)n < size
               ? 0
               : err_set(e, ERR_INPUT, "the path of the store has %d bytes, fewer than %zu are allowed", n,
                         size);
}

/* ---- what the file is, before SQLite sees it ---- */

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static ssize_t read_start(int fd, uint8_t *buf, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t r = read(fd, buf + done, n - done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -1;
        if (r == 0)
            break;
        done += (size_t)r;
    }
    return (ssize_t)done;
}

/* A journal that says "the file was empty before": its writer was stopped while it made the file, and SQLite will empty it. */
static bool made_and_interrupted(const char *path)
{
    static const uint8_t magic[8] = { 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7 };
    char journal[PATH_MAX + 16];
    uint8_t h[28];
    snprintf(journal, sizeof journal, "%s-journal", path);
    int fd = open(journal, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t n = read_start(fd, h, sizeof h);
    close(fd);
    return n == sizeof h && memcmp(h, magic, sizeof magic) == 0 && big32(h + 16) == 0;
}

/* Format of an SQLite header: magic at 0, user_version at 60, application_id at 68 (sqlite.org/fileformat.html). */
static int look_inside(struct store *s, struct err *e)
{
    uint8_t h[100];
    int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, ERR_INPUT, "%s: cannot open: %s", s->shown, strerror(errno));
    ssize_t n = read_start(fd, h, sizeof h);
    int why = errno;
    close(fd);
    if (n < 0)
        return err_set(e, ERR_FAILED, "%s: cannot read: %s", s->shown, strerror(why));
    if (n == 0 || made_and_interrupted(s->path))
        return 0;
    if (n < (ssize_t)sizeof h || memcmp(h, "SQLite format 3", 16))
        return err_set(e, ERR_INPUT,
                       "%s: not a database of longhand; it is left as it is, and --db FILE names another one",
                       s->shown);
    if (big32(h + 68) != STORE_APPLICATION_ID)
        return err_set(e, ERR_INPUT,
                       "%s: a database of another program (application_id 0x%08x, longhand's is 0x%08x); it "
                       "is left as it is, and --db FILE names "
                       "another one",
                       s->shown, big32(h + 68), STORE_APPLICATION_ID);
    if (big32(h + 60) > STORE_VERSION)
        return err_set(e, ERR_INPUT,
                       "%s: of a newer longhand (version %u of the tables, this one knows up to %d); it is "
                       "left as it is",
                       s->shown, big32(h + 60), STORE_VERSION);
    return 0;
}

static int sync_folder(const char *path, const char *shown, struct err *e)
{
    return folder_sync(path) ? err_set(e, ERR_FAILED, "%s: the folder %s cannot be written to the disk: %s",
                                       shown, path, strerror(errno))
                             : 0;
}

/* Missing folders of `path`, 0700 each. A power cut must not take the folder of a store away: all the way down is synced before there is a
 * store, also what another process made that was killed on the way. */
static int make_folders(const char *path, const char *shown, struct err *e)
{
    char p[PATH_MAX];
    if (access(path, F_OK) == 0)
        return 0;
    if (sync_folder("/", shown, e))
        return -1;
    snprintf(p, sizeof p, "%s", path);
    for (char *c = strchr(p + 1, '/'); c; c = strchr(c + 1, '/')) {
        *c = 0;
        if (mkdir(p, 0700) && errno != EEXIST)
            return err_set(
                e, ERR_FAILED,
                "%s: cannot make the folder %s: %s; --db FILE or LONGHAND_DB puts the store elsewhere", shown,
                p, strerror(errno));
        *c = '/';
    }
    for (char *c = strchr(p + 1, '/'); c; c = strchr(c + 1, '/')) {
        *c = 0;
        if (sync_folder(p, shown, e))
            return -1;
        *c = '/';
    }
    return 0;
}

static int find_file(struct store *s, struct err *e)
{
    char folder[PATH_MAX];
    struct stat st;
    bool create = s->o.mode == STORE_CREATE;
    if (create && make_folders(s->path, s->shown, e))
        return -1;
    if (create) {
        int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
        else if (errno != EEXIST)
            return err_set(e, ERR_FAILED,
                           "%s: cannot make it: %s; --db FILE or LONGHAND_DB puts the store elsewhere",
                           s->shown, strerror(errno));
    }
    if (stat(s->path, &st))
        return errno == ENOENT
                   ? err_set(e, ERR_INPUT,
                             "%s: there is no store here; `longhand submit` or `longhand run` makes one",
                             s->shown)
                   : err_set(e, ERR_INPUT, "%s: %s", s->shown, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INPUT, "%s: not a regular file", s->shown);
    snprintf(folder, sizeof folder, "%s", s->path);
    *strrchr(folder, '/') = 0;
    if (!folder[0])
        strcpy(folder, "/");
    if (s->o.mode != STORE_READ && (access(s->path, W_OK) || access(folder, W_OK)))
        return err_set(e, ERR_FAILED, "%s: the file or its folder may not be written (%s)", s->shown,
                       strerror(errno));
    look_at_fs(s, folder);
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    return 0;
}

/* ---- opening ---- */

/* 0: `set` answers `want`; 1: it answers something else, -1: it fails. */
static int pragma_is(struct store *s, const char *set, const char *want, struct err *e)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(s->db, set, -1, &q, NULL);
    if (rc != SQLITE_OK)
        return db_fail(s, "opening", rc, e);
    rc = sqlite3_step(q);
    char got[64] = "";
    if (rc == SQLITE_ROW)
        snprintf(got, sizeof got, "%s", (const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    if (rc != SQLITE_ROW)
        return db_fail(s, "opening", rc, e);
    return strcmp(got, want) == 0 ? 0
                                  : -err_set(e, ERR_FAILED, "%s: `%s` gives \"%s\" and must give \"%s\"",
                                             s->shown, set, got, want);
}

static int set_up(struct store *s, struct err *e)
{
    static const char *const set[] = {
        "PRAGMA synchronous=EXTRA", "PRAGMA foreign_keys=ON", "PRAGMA cell_size_check=ON",
            "PRAGMA trusted_schema=OFF", "PRAGMA temp_store=MEMORY",
        "PRAGMA secure_delete=ON",       /* what `remove` removes is overwritten in the file */
    };
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_handler(s->db, busy, s);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        int rc = sqlite3_exec(s->db, set[i], NULL, NULL, NULL);
        if (rc != SQLITE_OK)
            return db_fail(s, "opening", rc, e);
    }
    if (pragma_is(s, "PRAGMA synchronous", "3", e) || pragma_is(s, "PRAGMA foreign_keys", "1", e))
        return -1;
    /* Asking for the mode it has would still take a write lock on some versions; a fresh file has it anyway. */
    int other = pragma_is(s, "PRAGMA journal_mode", "delete", e);
    if (other == 1 && s->o.mode != STORE_READ)
        other = pragma_is(s, "PRAGMA journal_mode=DELETE", "delete", e);
    return other ? -1 : 0;
}

int store_migrate(struct store *s, const char *const *steps, int have, int want, struct err *e)
{
    char text[64];
    int64_t now = 0;
    int rc = SQLITE_OK;
    if (db_begin(s, e))
        return -1;
    if (db_get(s, e, &now, "PRAGMA user_version", "") < 0)
        return db_rollback(s);
    if (now != have)                     /* another process was faster */
        return db_rollback(s), 0;
    for (int i = have; i < want && rc == SQLITE_OK; i++)
        rc = sqlite3_exec(s->db, steps[i], NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        snprintf(text, sizeof text, "PRAGMA application_id=%d", STORE_APPLICATION_ID);
        rc = sqlite3_exec(s->db, text, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        snprintf(text, sizeof text, "PRAGMA user_version=%d", want);
        rc = sqlite3_exec(s->db, text, NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK) {
        db_fail(s, "bringing the tables up to date", rc, e);
        note_broken(s, rc, e);
        return db_rollback(s);
    }
    return db_commit(s, e);
}

int db_check(struct store *s, const char *pragma, struct err *e)
{
    sqlite3_stmt *q;
    int rc = sqlite3_prepare_v2(s->db, pragma, -1, &q, NULL);
    char got[256] = "";
    if (rc == SQLITE_OK)
        rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        snprintf(got, sizeof got, "%s", (const char *)sqlite3_column_text(q, 0));
    bool ok = rc == SQLITE_ROW && strcmp(got, "ok") == 0;
    if (!ok && rc != SQLITE_ROW)
        db_fail(s, "checking", rc, e);
    else if (!ok)
        err_set(e, ERR_FAILED,
                "%s: the database is damaged (%s); it is left as it is, and `sqlite3 FILE .recover` may save "
                "what can be read",
                s->shown, got);
    sqlite3_finalize(q);
    return ok ? 0 : -1;
}

static int versions(struct store *s, bool first, struct err *e)
{
    int64_t version = 0, application = 0, tables = 0, bytes = 0;
    if (db_begin_read(s, e))
        return -1;
    if (db_get(s, e, &version, "PRAGMA user_version", "") < 0 ||
        db_get(s, e, &application, "PRAGMA application_id", "") < 0 ||
        db_get(s, e, &tables, "SELECT count(*) FROM sqlite_master", "") < 0 ||
        db_get(s, e, &bytes, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
               "") < 0)
        return db_rollback(s);
    if (db_commit(s, e))
        return -1;
    if (tables == 0 && application == 0 && s->o.mode == STORE_READ)
        return err_set(e, ERR_INPUT, "%s: there is nothing in this store yet", s->shown);
    if (tables == 0 && application == 0)
        return store_migrate(s, store_steps, 0, STORE_VERSION, e);
    /* changed since it was looked at */
    if (application != STORE_APPLICATION_ID || version > STORE_VERSION || version < 1)
        return err_set(
            e, ERR_INPUT,
            "%s: not a database of this longhand (application_id 0x%08x, version %d); it is left as it is",
            s->shown, (unsigned)application, (int)version);
    if (first && s->o.mode != STORE_READ && bytes <= QUICK_CHECK_BYTES_MAX &&
        db_check(s, "PRAGMA quick_check(1)", e))
        return -1;
    if (version < STORE_VERSION && s->o.mode == STORE_READ)
        return err_set(e, ERR_INPUT,
                       "%s: of an older longhand (version %d of the tables, this one has %d); a verb that "
                       "writes brings it up to date",
                       s->shown, (int)version, STORE_VERSION);
    return version < STORE_VERSION ? store_migrate(s, store_steps, (int)version, STORE_VERSION, e) : 0;
}

static struct store *store_new(const char *path, const struct store_options *o, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    char here[PATH_MAX] = "";
    size_t n = strlen(path);
    if (!s)
        goto memory;
    s->o = *o;
    if (s->o.busy_seconds <= 0)
        s->o.busy_seconds = 300;
    if (s->o.lease_seconds <= 0)
        s->o.lease_seconds = 60;
    if (path[0] != '/' && !getcwd(here, sizeof here)) {
        store_close(s);
        err_set(e, ERR_INPUT, "%s: the working folder has no absolute path: %s; --db /absolute/path is allowed",
                path, strerror(errno));
        return NULL;
    }
    s->shown = strdup(path);
    s->path = malloc(strlen(here) + n + 2);
    if (!s->shown || !s->path)
        goto memory;
    sprintf(s->path, "%s%s%s", here, here[0] ? "/" : "", path);
    if (getrandom(&s->jitter, sizeof s->jitter, 0) != sizeof s->jitter)
        s->jitter = (uint32_t)getpid();
    return s;
memory:
    store_close(s);
    err_set(e, ERR_FAILED, "out of memory for the store");
    return NULL;
}

/* Open s->path, which was looked at if it is the first of this process. */
static int connect(struct store *s, bool first, struct err *e)
{
    int rc = sqlite3_open_v2(s->path, &s->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
    if (rc != SQLITE_OK)
        return db_fail(s, "opening", rc, e);
    sqlite3_stmt *q;
    if (set_up(s, e) || prepare(s, &q, rollback, e))
        return -1;
    if (s->o.mode != STORE_READ && sqlite3_db_readonly(s->db, "main") == 1)
        return err_set(e, ERR_FAILED, "%s: the file may not be written", s->shown);
    if (s->o.mode == STORE_READ &&
        (rc = sqlite3_exec(s->db, "PRAGMA query_only=ON", NULL, NULL, NULL)) != SQLITE_OK)
        return db_fail(s, "opening", rc, e);
    return versions(s, first, e);
}

int store_open(struct store **out, const char *path, const struct store_options *o, struct err *e)
{
    *out = NULL;
    if (!path[0] || strlen(path) > PATH_MAX / 2)
        return err_set(e, ERR_INPUT, "--db: a path of %zu bytes, 1 to %d are allowed", strlen(path),
                       PATH_MAX / 2);
    struct store *s = store_new(path, o, e);
    if (!s)
        return -1;
    if (find_file(s, e)) {
        store_close(s);
        return -1;
    }
    pthread_mutex_lock(&open_lock);
    struct open_file *f = open_file(s->dev, s->ino);
    bool first = f && f->n == 0;
    int rc = !f      ? err_set(e, ERR_FAILED, "%s: too many stores are open", s->shown)
             : first ? look_inside(s, e)
                     : 0;
    if (rc == 0) {
        f->n++;
        s->file = f;
    }
    pthread_mutex_unlock(&open_lock);
    if (rc == 0)
        rc = connect(s, first, e);
    if (rc) {
        store_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

int store_reopen(struct store **out, const struct store *s, struct err *e)
{
    struct store_options o = s->o;
    if (o.mode == STORE_CREATE)
        o.mode = STORE_WRITE;            /* a file that is gone is not made again */
    if (store_open(out, s->path, &o, e))
        return -1;
    (*out)->self = s->self;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    end_turn(s);
    for (size_t i = 0; i < s->n_q; i++)
        sqlite3_finalize(s->q[i].st);
    int rc = sqlite3_close(s->db);
    assert(rc == SQLITE_OK);
    pthread_mutex_lock(&open_lock);
    if (s->file)
        s->file->n--;
    pthread_mutex_unlock(&open_lock);
    watch_free(&s->watch);
    free(s->path);
    free(s->shown);
    free(s);
}

const char *store_notice(const struct store *s) { return s->notice[0] ? s->notice : NULL; }
const char *store_path(const struct store *s) { return s->path; }
double store_lease_seconds(const struct store *s) { return s->o.lease_seconds; }
