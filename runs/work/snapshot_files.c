/* Writing, finding and deleting snapshot files.
 *
 * struct snapshot_files is the thread that writes the files of one job, and the list of the job's records
 * (see snapshot_files.h). Start at write_and_record. */
#include "runs/work/snapshot_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runs/work/thread.h"

enum { NAME_BYTES = sizeof(((struct snapshot_row *)0)->name), FOLDER_BYTES = PATH_MAX,
       FILE_BYTES = FOLDER_BYTES + NAME_BYTES + 16 };
static const char ENDING[] = ".kv", TEMPORARY[] = ".part";

/* ---- names ---- */

static void folder_path(const struct store *s, char out[FOLDER_BYTES])
{
    char path[PATH_MAX];
    const char *p = realpath(store_path(s), path) ? path : store_path(s);
    snprintf(out, FOLDER_BYTES, "%.*s.snapshots", FOLDER_BYTES - 16, p);
}

static void make_name(char out[NAME_BYTES], int64_t job, int64_t attempt, size_t tokens)
{
    snprintf(out, NAME_BYTES, "%" PRId64 "-%" PRId64 "-%zu%s", job, attempt, tokens, ENDING);
}

/* Parse JOB-ATTEMPT-TOKENS.kv, with or without .part: its length without .part; 0: another name. */
static size_t parse_name(const char *name, int64_t *job, int64_t *attempt)
{
    char expected[NAME_BYTES];
    size_t tokens;
    if (sscanf(name, "%" SCNd64 "-%" SCNd64 "-%zu", job, attempt, &tokens) != 3)
        return 0;
    make_name(expected, *job, *attempt, tokens);
    const size_t n = strlen(expected);
    const bool known = *job > 0 && *attempt > 0 && strncmp(name, expected, n) == 0;
    return known && (!name[n] || strcmp(name + n, TEMPORARY) == 0) ? n : 0;
}

/* ---- writing one file ---- */

struct snapshot_files {
    /* constant after open */
    const struct store *caller_store;    /* `store` is another connection to its file */
    struct claim claim;
    struct snapshot_options o;
    char folder[FOLDER_BYTES];

    struct thread thread;
    pthread_cond_t done;

    /* under the thread's lock */
    bool ended;
    atomic_bool busy;                    /* written under the lock */
    struct snapshot_row next;            /* record of the file in progress */
    uint64_t bytes;                      /* length of the file in progress */
    struct snapshot_result result;
    atomic_bool stop;
    struct snapshot_row file[STORE_SNAPSHOTS_MAX];   /* the job's records; only the thread's while busy */
    size_t n_files;

    /* of the thread */
    struct store *store;                 /* NULL: not opened yet */
};

static void file_path(const struct snapshot_files *x, const char *name, const char *suffix,
                      char out[FILE_BYTES])
{
    int n = snprintf(out, FILE_BYTES, "%s/%s%s", x->folder, name, suffix);
    assert(n > 0 && n < FILE_BYTES);
}

static void delete_file(const struct snapshot_files *x, const char *name)
{
    char path[FILE_BYTES];
    file_path(x, name, "", path);
    unlink(path);
}

/* Bytes of all snapshot files of the store. Files that are being written count with their final length. */
static int total_bytes(const struct snapshot_files *x, uint64_t *bytes, struct err *e)
{
    int64_t job, attempt;
    struct stat st;
    DIR *d = opendir(x->folder);
    *bytes = 0;
    if (!d)
        return err_set(e, ERR_FAILED, ERR_PATH "%s", x->folder, strerror(errno));
    for (struct dirent *f; (f = readdir(d));)
        if (parse_name(f->d_name, &job, &attempt) &&
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            *bytes += (uint64_t)st.st_size;
    closedir(d);
    return 0;
}

/* Check that there is room for the new file. It receives its final length first, so that two files begun
 * at the same time see each other. */
static int check_room(const struct snapshot_files *x, int fd, struct err *e)
{
    struct statvfs f;
    uint64_t all = 0;
    if (fstatvfs(fd, &f))
        return err_set(e, ERR_FAILED, ERR_PATH "%s", x->folder, strerror(errno));
    uint64_t room = (uint64_t)f.f_bavail * f.f_frsize,
             leave = MIN(SNAPSHOT_FREE_BYTES, (uint64_t)f.f_blocks * f.f_frsize / 4);
    if (room < x->bytes || room - x->bytes < leave)
        return err_set(e, ERR_FAILED,
                       ERR_PATH "it would have %" PRIu64 " MB, %" PRIu64 " MB are free, and %" PRIu64
                       " MB must stay free",
                       x->folder, x->bytes >> 20, room >> 20, leave >> 20);
    if (!x->o.max_bytes)
        return 0;
    if (ftruncate(fd, (off_t)x->bytes))
        return err_set(e, ERR_FAILED, ERR_PATH "%s", x->folder, strerror(errno));
    if (total_bytes(x, &all, e))
        return -1;
    if (all > x->o.max_bytes)
        return err_set(e, ERR_FAILED,
                       "it would have %" PRIu64 " MB, and with the %" PRIu64
                       " MB of others that is more than --kv-snapshot-max %" PRIu64 " MB",
                       x->bytes >> 20, (all - x->bytes) >> 20, x->o.max_bytes >> 20);
    return 0;
}

/* Make the folder, if it is missing. umask may have taken rights of the group, and the folder may have its
 * group from the folder above (set-group-ID). */
static int make_folder(const char *path, mode_t mode)
{
    struct stat st;
    if (mkdir(path, mode))
        return errno == EEXIST ? 0 : -1;
    return stat(path, &st) || (st.st_mode & mode) == mode ? 0 : chmod(path, (st.st_mode & 07777) | mode);
}

/* Open the new file under its temporary name. Another process may delete the folder while it is empty. Folder
 * and file get the group's rights of the database, whatever umask is. */
static int open_temporary(const struct snapshot_files *x, const char *path, struct err *e)
{
    struct stat st;
    const mode_t group = stat(store_path(x->caller_store), &st) == 0 ? st.st_mode & 060 : 0;
    int fd = -1;
    for (int i = 0; i < 3 && fd < 0; i++) {
        if (make_folder(x->folder, 0700 | group | (group ? 010 : 0)))
            break;
        unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 && group && fchmod(fd, 0600 | group)) {
            close(fd);
            fd = -1;
            break;
        }
    }
    return fd >= 0 ? fd : err_set(e, ERR_FAILED, ERR_PATH "%s", path, strerror(errno));
}

/* Sync the file's name in the folder, and the folder's name, which may be new, beside the database. */
static int sync_names(const struct snapshot_files *x, struct err *e)
{
    return folder_sync(x->folder) || name_sync(x->folder)
               ? err_set(e, ERR_FAILED, ERR_PATH "cannot be written to the disk: %s", x->folder,
                         strerror(errno))
               : 0;
}

/* Write the file under its temporary name, sync it, rename it, sync the folders. A failed sync is not
 * repeated. */
static int write_file(struct snapshot_files *x, const char *name, struct err *e)
{
    char temporary[FILE_BYTES], path[FILE_BYTES];
    file_path(x, name, TEMPORARY, temporary);
    file_path(x, name, "", path);
    int fd = open_temporary(x, temporary, e);
    if (fd < 0)
        return -1;
    int rc = check_room(x, fd, e);
    if (rc == 0 && x->o.write(x->o.ctx, fd, &x->stop, e))
        rc = err_while(e, ERR_FILE, temporary);
    if (rc == 0 && fsync(fd))
        rc = err_set(e, ERR_FAILED, ERR_PATH "%s", temporary, strerror(errno));
    if (close(fd) && rc == 0)
        rc = err_set(e, ERR_FAILED, ERR_PATH "%s", temporary, strerror(errno));
    if (rc == 0 && rename(temporary, path))
        rc = err_set(e, ERR_FAILED, ERR_PATH "%s", path, strerror(errno));
    if (rc)
        unlink(temporary);
    else if ((rc = sync_names(x, e)) != 0)
        unlink(path);
    return rc;
}

/* Write the next file, record its row, and delete the files that it absorbed. */
static int write_and_record(struct snapshot_files *x, struct err *e)
{
    const struct snapshot_row *r = &x->next;
    if (!x->store && store_reopen(&x->store, x->caller_store, e))
        return -1;
    if (x->n_files && strcmp(r->name, x->file[x->n_files - 1].name) == 0)      /* the file exists already */
        return 0;
    if (write_file(x, r->name, e))
        return -1;
    int rc = store_snapshot_set(x->store, &x->claim, r, x->bytes, e);
    if (rc < 0)
        x->n_files = 0;                  /* the records are unknown now: the next file holds all cache rows */
    else if (rc)
        delete_file(x, r->name);
    if (rc)
        return rc;
    for (; x->n_files && x->file[x->n_files - 1].start >= r->start; x->n_files--)
        delete_file(x, x->file[x->n_files - 1].name);
    x->file[x->n_files++] = *r;
    return 0;
}

static void *snapshot_files_thread(void *p)
{
    struct snapshot_files *x = p;
    pthread_mutex_lock(&x->thread.lock);
    for (;;) {
        while (!x->busy && !x->thread.stop)
            pthread_cond_wait(&x->thread.wake, &x->thread.lock);
        if (x->thread.stop)
            break;
        struct snapshot_result r = { .tokens = x->next.tokens, .bytes = x->bytes };
        pthread_mutex_unlock(&x->thread.lock);
        double start = clock_seconds(), cpu = thread_cpu_seconds();
        r.rc = write_and_record(x, &r.err);
        r.seconds = clock_seconds() - start;
        r.cpu_seconds = thread_cpu_seconds() - cpu;
        pthread_mutex_lock(&x->thread.lock);
        x->result = r;
        x->busy = false;
        x->ended = true;
        pthread_cond_broadcast(&x->done);
    }
    pthread_mutex_unlock(&x->thread.lock);
    return NULL;
}

/* ---- the worker's side ---- */

int snapshot_files_open(struct snapshot_files **out, const struct store *s, const struct claim *c,
                        const struct snapshot_options *o, struct err *e)
{
    struct snapshot_files *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x)
        return err_set(e, ERR_FAILED, "out of memory for snapshots");
    x->caller_store = s;
    x->claim = *c;
    x->o = *o;
    folder_path(s, x->folder);
    if (o->n_good)
        memcpy(x->file, o->good, o->n_good * sizeof *o->good);
    x->n_files = o->n_good;
    thread_open(&x->thread);
    cond_init(&x->done);
    if (thread_start(&x->thread, snapshot_files_thread, x, "snapshots", e)) {
        free(x);
        return -1;
    }
    *out = x;
    return 0;
}

size_t snapshot_files_next_start(struct snapshot_files *x, size_t tokens, size_t rows_max)
{
    pthread_mutex_lock(&x->thread.lock);
    assert(!x->busy);
    size_t i = x->n_files, from = i ? x->file[i - 1].tokens : 0;
    const bool failed = x->result.rc < 0;        /* the last file: the next one absorbs none and is short */
    while (i &&
           (i == STORE_SNAPSHOTS_MAX || (!failed && from - x->file[i - 1].start <= 2 * (tokens - from) &&
                                         tokens - x->file[i - 1].start <= rows_max)))
        from = x->file[--i].start;
    pthread_mutex_unlock(&x->thread.lock);
    return from;
}

void snapshot_files_write(struct snapshot_files *x, size_t from, size_t tokens, uint64_t bytes)
{
    pthread_mutex_lock(&x->thread.lock);
    assert(!x->busy);
    x->next = (struct snapshot_row){ .start = from, .tokens = tokens };
    make_name(x->next.name, x->claim.job, x->claim.attempt, tokens);
    x->bytes = bytes;
    x->busy = true;
    x->ended = false;
    pthread_cond_signal(&x->thread.wake);
    pthread_mutex_unlock(&x->thread.lock);
}

bool snapshot_files_busy(struct snapshot_files *x) { return x->busy; }

bool snapshot_files_result(struct snapshot_files *x, struct snapshot_result *r)
{
    pthread_mutex_lock(&x->thread.lock);
    bool ended = x->ended;
    if (ended)
        *r = x->result;
    x->ended = false;
    pthread_mutex_unlock(&x->thread.lock);
    return ended;
}

void snapshot_files_wait(struct snapshot_files *x, double seconds)
{
    double due = clock_seconds() + seconds;
    pthread_mutex_lock(&x->thread.lock);
    while (x->busy && !cond_wait_until(&x->done, &x->thread.lock, due))
        ;
    atomic_store(&x->stop, true);
    while (x->busy)
        pthread_cond_wait(&x->done, &x->thread.lock);
    atomic_store(&x->stop, false);
    pthread_mutex_unlock(&x->thread.lock);
}

void snapshot_files_close(struct snapshot_files *x)
{
    if (!x)
        return;
    snapshot_files_wait(x, 0);
    thread_stop(&x->thread);
    pthread_cond_destroy(&x->done);
    store_close(x->store);
    free(x);
}

/* ---- finding and deleting files ---- */

int snapshot_files_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                   struct err *e)
{
    int64_t of, attempt;
    int rc = store_snapshot_list(s, job, row, n, e);
    for (size_t i = 0, k; i < *n; i++)
        if (!(k = parse_name(row[i].name, &of, &attempt)) || row[i].name[k] || of != job) {
            *n = i;
            return err_set(e, ERR_FAILED, "the store names \"%.80s\", which is no snapshot of job %" PRId64,
                           row[i].name, job);
        }
    return rc;
}

int snapshot_files_path(const struct store *s, const struct snapshot_row *r, char *path, size_t size,
                   struct err *e)
{
    char folder[FOLDER_BYTES];
    folder_path(s, folder);
    if ((size_t)snprintf(path, size, "%s/%s", folder, r->name) < size)
        return 0;
    return err_set(e, ERR_FAILED, "the path of the snapshot %s is too long", r->name);
}

void snapshot_files_unused(struct store *s, void (*found)(void *ctx, const char *path), void *ctx)
{
    char folder[FOLDER_BYTES], path[FILE_BYTES + NAME_MAX];
    int64_t job, attempt;
    struct err ignored;
    folder_path(s, folder);
    DIR *d = opendir(folder);
    if (!d)
        return;
    for (struct dirent *f; (f = readdir(d));) {
        if (!parse_name(f->d_name, &job, &attempt) ||
            store_snapshot_wanted(s, job, attempt, f->d_name, &ignored) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        found(ctx, path);
    }
    closedir(d);
}

static void delete_path(void *ctx, const char *path)
{
    (void)ctx;
    unlink(path);
}

void snapshot_files_delete_unused(struct store *s)
{
    char folder[FOLDER_BYTES];
    snapshot_files_unused(s, delete_path, NULL);
    folder_path(s, folder);
    rmdir(folder);                       /* succeeds if it is empty */
}
