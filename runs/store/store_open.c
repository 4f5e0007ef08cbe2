/* Opening a store: its file, its folder, its file system, and the version of its tables.
 *
 * A file that is not longhand's, too new, or damaged is refused before SQLite sees it, and stays as it is
 * byte for byte. Start at store_open. */
#include "runs/store/store_db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runs/store/schema.h"

enum { PATH_BYTES_MAX = PATH_MAX / 2 };      /* of the absolute path: leaves room for suffixes */
enum { QUICK_CHECK_BYTES_MAX = 64 << 20 };   /* a writer checks a file up to this size first: 0.2 s */

/* ---- file systems and paths ---- */

const char *store_network_fs(long magic)
{
    static const struct { uint32_t magic; const char *name; } fs[] = {
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

static void detect_network_fs(struct store *s, const char *folder)
{
    struct statfs f;
    long magic = s->o.fs_type;
    if (!magic && statfs(folder, &f) == 0)
        magic = (long)f.f_type;
    s->fs = store_network_fs(magic);
    if (s->fs)
        snprintf(s->notice, sizeof s->notice,
                 "%.200s is on a network file system (%s): texts are safe there only if its locks and its "
                 "fsync are; --db puts the store on a local disk",
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
        return err_set(e, ERR_INPUT,
                       "no place for the store: neither XDG_STATE_HOME nor HOME is set; --db FILE names one");
    if (n >= 0 && (size_t)n < size)
        return 0;
    return err_set(e, ERR_INPUT, "the path of the store has %d bytes, fewer than %zu are allowed", n, size);
}

static int sync_folder(const char *path, const char *shown, struct err *e)
{
    return folder_sync(path) ? err_set(e, ERR_FAILED, "%s: the folder %s cannot be written to the disk: %s",
                                       shown, path, strerror(errno))
                             : 0;
}

/* Make the missing folders of `path`, mode 0700. A power cut must not lose the folder of a store, so every
 * folder on the way is synced before the store exists. Folders that another process made before it was
 * killed are synced too. */
static int make_folders(const char *path, const char *shown, struct err *e)
{
    char p[PATH_BYTES_MAX + 1];
    if (access(path, F_OK) == 0)
        return 0;
    snprintf(p, sizeof p, "%s", path);
    for (int sync = 0; sync < 2; sync++) {
        if (sync && sync_folder("/", shown, e))
            return -1;
        for (char *c = strchr(p + 1, '/'); c; c = strchr(c + 1, '/')) {
            *c = 0;
            if (!sync && mkdir(p, 0700) && errno != EEXIST)
                return err_set(e, ERR_FAILED,
                               "%s: cannot make the folder %s: %s; --db FILE or LONGHAND_DB puts the store "
                               "elsewhere",
                               shown, p, strerror(errno));
            if (sync && sync_folder(p, shown, e))
                return -1;
            *c = '/';
        }
    }
    return 0;
}

/* Find the file, or make it in STORE_CREATE, and check that it may be used. Sets s->dev and s->ino. */
static int find_file(struct store *s, struct err *e)
{
    char folder[PATH_BYTES_MAX + 1];
    struct stat st;
    if (s->o.mode == STORE_CREATE) {
        if (s->o.make_folders && make_folders(s->path, s->shown, e))
            return -1;
        /* SQLite's journal and the snapshots have the mode of this file */
        int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, s->o.group ? 0660 : 0600);
        if (fd >= 0)
            close(fd);
        else if (errno == ENOENT || errno == ENOTDIR)
            return err_set(e, ERR_INPUT, ERR_PATH "there is no folder of this name; longhand makes only the "
                           "default one", s->shown);
        else if (errno != EEXIST)
            return err_set(e, ERR_FAILED,
                           ERR_PATH "cannot make it: %s; --db FILE or LONGHAND_DB puts the store elsewhere",
                           s->shown, strerror(errno));
    }
    if (stat(s->path, &st))
        return errno == ENOENT
                   ? err_set(e, ERR_INPUT,
                             ERR_PATH "there is no store here; `longhand submit` or `longhand run` makes one",
                             s->shown)
                   : err_set(e, ERR_INPUT, ERR_PATH "%s", s->shown, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INPUT, ERR_PATH "not a regular file", s->shown);
    snprintf(folder, sizeof folder, "%s", s->path);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = 0;
    if (s->o.mode != STORE_READ && (access(s->path, W_OK) || access(folder, W_OK)))
        return err_set(e, ERR_FAILED, ERR_PATH "the file or its folder may not be written (%s)", s->shown,
                       strerror(errno));
    detect_network_fs(s, folder);
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    return 0;
}

/* ---- the file's header, before SQLite reads it ---- */

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Up to n bytes from the start of the file; fewer at its end; -1 with errno. */
static ssize_t read_start(const char *path, uint8_t *buf, size_t n)
{
    size_t done = 0;
    ssize_t r = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    while (done < n && (r = read(fd, buf + done, n - done)) != 0) {
        if (r < 0 && errno != EINTR)
            break;
        done += r > 0 ? (size_t)r : 0;
    }
    int why = errno;
    close(fd);
    errno = why;
    return r < 0 ? -1 : (ssize_t)done;
}

/* Whether a rollback journal says that the file was empty: a process was killed while it made the file,
 * and SQLite will empty it. */
static bool creation_was_interrupted(const char *path)
{
    static const uint8_t magic[8] = { 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7 };
    char journal[PATH_BYTES_MAX + 16];
    uint8_t h[28];
    snprintf(journal, sizeof journal, "%s-journal", path);
    return read_start(journal, h, sizeof h) == sizeof h && memcmp(h, magic, sizeof magic) == 0 &&
           big32(h + 16) == 0;
}

/* An SQLite header has its magic at 0, user_version at 60, application_id at 68
 * (sqlite.org/fileformat.html). */
static int check_header(struct store *s, struct err *e)
{
    uint8_t h[100];
    ssize_t n = read_start(s->path, h, sizeof h);
    if (n < 0)
        return err_set(e, errno == EIO ? ERR_FAILED : ERR_INPUT, ERR_PATH "cannot read: %s", s->shown,
                       strerror(errno));
    if (n == 0 || creation_was_interrupted(s->path))
        return 0;
    if (n < (ssize_t)sizeof h || memcmp(h, "SQLite format 3", 16))
        return err_set(e, ERR_INPUT,
                       ERR_PATH "not a database of longhand; it is left as it is, and --db FILE names "
                       "another one", s->shown);
    if (big32(h + 68) != STORE_APPLICATION_ID)
        return err_set(e, ERR_INPUT,
                       ERR_PATH "a database of another program (application_id 0x%08x, longhand's is "
                       "0x%08x); it is left as it is, and --db FILE names another one",
                       s->shown, big32(h + 68), STORE_APPLICATION_ID);
    if (big32(h + 60) > STORE_VERSION)
        return err_set(e, ERR_INPUT,
                       ERR_PATH "of a newer longhand (version %u of the tables, this program knows up to "
                       "%d); it is left as it is",
                       s->shown, big32(h + 60), STORE_VERSION);
    return 0;
}

/* ---- the version of the tables ---- */

int store_migrate(struct store *s, const char *const *steps, int have, int want, struct err *e)
{
    static const char doing[] = "bringing the tables up to date";
    char text[128];
    int64_t now = 0;
    if (db_begin(s, e) || db_read(s, e, "PRAGMA user_version", ">i", &now) < 0)
        return db_rollback(s);
    if (now != have)                     /* another process was faster */
        return db_rollback(s), 0;
    snprintf(text, sizeof text, "PRAGMA application_id=%d; PRAGMA user_version=%d", STORE_APPLICATION_ID,
             want);
    int rc = 0;
    for (int i = have; i < want && rc == 0; i++)
        rc = db_script(s, steps[i], doing, e);
    rc = db_end(s, rc ? rc : db_script(s, text, doing, e), e);
    if (rc == 0)
        s->migrated_from = have;
    return rc;
}

/* Check the tables' version; make the tables of an empty file; bring an older version up to date. `first`:
 * this process has no other connection to the file. */
static int check_version(struct store *s, bool first, struct err *e)
{
    int64_t version = 0, application = 0, tables = 0, bytes = 0;
    if (db_read(s, e, "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master), "
                "page_count * page_size FROM pragma_user_version, pragma_application_id, pragma_page_count, "
                "pragma_page_size", ">iiii", &version, &application, &tables, &bytes) < 0)
        return -1;
    bool writes = s->o.mode != STORE_READ;
    if (tables == 0 && application == 0)
        return writes ? store_migrate(s, store_steps, 0, STORE_VERSION, e)
                      : err_set(e, ERR_INPUT, ERR_PATH "there is nothing in this store yet", s->shown);
    /* check_header has passed, but the file may have changed since */
    if (application != STORE_APPLICATION_ID || version > STORE_VERSION || version < 1)
        return err_set(e, ERR_INPUT,
                       ERR_PATH "not a database of this longhand (application_id 0x%08x, version %d); it is "
                       "left as it is",
                       s->shown, (unsigned)application, (int)version);
    if (first && writes && bytes <= QUICK_CHECK_BYTES_MAX && db_check(s, "PRAGMA quick_check(1)", e))
        return -1;
    if (version == STORE_VERSION)
        return db_read(s, e, "SELECT backup FROM store", ">b", &s->is_backup) < 0 ? -1 : 0;
    if (writes)
        return store_migrate(s, store_steps, (int)version, STORE_VERSION, e);
    for (int i = (int)version - 1; i < STORE_VERSION - 1; i++)
        if (db_script(s, store_views[i], "opening", e))
            return -1;
    return 0;
}

/* ---- opening ---- */

/* Set s->path, absolute, and s->shown. */
static int set_paths(struct store *s, const char *path, struct err *e)
{
    char here[PATH_MAX] = "";
    if (path[0] && path[0] != '/' && (!getcwd(here, sizeof here) || here[0] != '/'))
        return err_set(e, ERR_INPUT,
                       "%s: the working folder has no absolute path: %s; --db /absolute/path is allowed",
                       path, strerror(errno));
    size_t n = strlen(here) + (here[0] != 0) + strlen(path);
    if (!path[0] || n > PATH_BYTES_MAX)
        return err_set(e, ERR_INPUT, "--db: a path of %zu bytes, 1 to %d are allowed", n, PATH_BYTES_MAX);
    s->shown = strdup(path);
    s->path = malloc(n + 1);
    if (!s->shown || !s->path)
        return err_set(e, ERR_FAILED, "out of memory for the store");
    sprintf(s->path, "%s%s%s", here, here[0] ? "/" : "", path);
    return 0;
}

int store_open(struct store **out, const char *path, const struct store_options *o, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    bool first;
    *out = NULL;
    if (!s)
        return err_set(e, ERR_FAILED, "out of memory for the store");
    s->o = *o;
    if (s->o.busy_seconds <= 0)
        s->o.busy_seconds = 300;
    if (s->o.lease_seconds <= 0)
        s->o.lease_seconds = 60;
    if (getrandom(&s->jitter, sizeof s->jitter, 0) != sizeof s->jitter)
        s->jitter = (uint32_t)getpid();
    if (set_paths(s, path, e) || find_file(s, e) || db_register(s, check_header, &first, e) ||
        db_connect(s, e) || check_version(s, first, e) ||
        (s->o.mode == STORE_READ && db_script(s, "PRAGMA query_only=ON", "opening", e))) {
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
        o.mode = STORE_WRITE;            /* do not make a deleted file again */
    if (store_open(out, s->path, &o, e))
        return -1;
    (*out)->self = s->self;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    db_disconnect(s);
    watch_free(&s->watch);
    free(s->path);
    free(s->shown);
    free(s);
}

const char *store_notice(const struct store *s) { return s->notice[0] ? s->notice : NULL; }
int store_migrated_from(const struct store *s) { return s->migrated_from; }
const char *store_path(const struct store *s) { return s->path; }
double store_lease_seconds(const struct store *s) { return s->o.lease_seconds; }
