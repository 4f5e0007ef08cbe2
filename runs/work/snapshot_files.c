#include "runs/work/snapshot_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { FILE_NAME = sizeof(((struct snapshot_row *)0)->name), FOLDER = PATH_MAX,
       FILE_PATH = FOLDER + FILE_NAME + 16 };
static const char ENDING[] = ".kv", ASIDE[] = ".part";

static void folder_of(const struct store *s, char out[FOLDER])
{
    char path[PATH_MAX];
    const char *p = realpath(store_path(s), path) ? path : store_path(s);
    snprintf(out, FOLDER, "%.*s.snapshots", FOLDER - 16, p);
}

/* JOB-ATTEMPT-TOKENS.kv, with or without .part. */
static bool parse_name(const char *name, int64_t *job, int64_t *attempt, bool *aside)
{
    char again[FILE_NAME];
    size_t tokens;
    if (sscanf(name, "%" SCNd64 "-%" SCNd64 "-%zu", job, attempt, &tokens) != 3)
        return false;
    snprintf(again, sizeof again, "%" PRId64 "-%" PRId64 "-%zu%s", *job, *attempt, tokens, ENDING);
    size_t n = strlen(again);
    if (*job < 1 || *attempt < 1 || strncmp(name, again, n))
        return false;
    *aside = strcmp(name + n, ASIDE) == 0;
    return *aside || !name[n];
}

/* ---- writing one ---- */

struct snapshot_files {
    /* constant after open */
    const struct store *of;              /* whose file `store` is opened again from */
    struct claim claim;
    snapshot_write_fn *write;
    void *ctx;
    uint64_t max_bytes;
    char folder[FOLDER];

    /* behind the lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool busy, ended, close;
    /* the last one: then the next takes in no other, for want of room may have been the reason */
    bool failed;
    struct snapshot_row next;
    uint64_t bytes;
    struct snapshot_result result;
    atomic_bool stop;
    struct snapshot_row file[STORE_SNAPSHOTS_MAX];   /* what rows name; the thread's while it is busy */
    size_t n_files;

    /* of the thread */
    pthread_t thread;
    struct store *store;                 /* NULL: not yet */
};

static void path_of(const struct snapshot_files *x, const char *name, const char *more, char out[FILE_PATH])
{
    int n = snprintf(out, FILE_PATH, "%s/%s%s", x->folder, name, more);
    assert(n > 0 && n < FILE_PATH);
}

/* What all files of the store take, those that others are writing included: these have their length from the start. */
static int total_bytes(const struct snapshot_files *x, uint64_t *bytes, struct err *e)
{
    int64_t job, attempt;
    bool aside;
    struct stat st;
    DIR *d = opendir(x->folder);
    *bytes = 0;
    if (!d)
        return err_set(e, ERR_FAILED, "%s: %s", x->folder, strerror(errno));
    for (struct dirent *f; (f = readdir(d));)
        if (parse_name(f->d_name, &job, &attempt, &aside) &&
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            *bytes += (uint64_t)st.st_size;
    closedir(d);
    return 0;
}

/* Whether the new file may have its bytes: it is given its length first, so that of two that are begun at the same time each sees the other. */
static int check_room(const struct snapshot_files *x, int fd, struct err *e)
{
    struct statvfs f;
    uint64_t all = 0;
    if (fstatvfs(fd, &f))
        return err_set(e, ERR_FAILED, "%s: %s", x->folder, strerror(errno));
    uint64_t room = (uint64_t)f.f_bavail * f.f_frsize,
             leave = MIN(SNAPSHOT_FREE_BYTES, (uint64_t)f.f_blocks * f.f_frsize / 4);
    if (room < x->bytes || room - x->bytes < leave)
        return err_set(e, ERR_FAILED,
                       "%s: it would have %" PRIu64 " MB, %" PRIu64 " MB are free, and %" PRIu64
                       " MB are left to others",
                       x->folder, x->bytes >> 20, room >> 20, leave >> 20);
    if (!x->max_bytes)
        return 0;
    if (ftruncate(fd, (off_t)x->bytes))
        return err_set(e, ERR_FAILED, "%s: %s", x->folder, strerror(errno));
    if (total_bytes(x, &all, e))
        return -1;
    if (all > x->max_bytes)
        return err_set(e, ERR_FAILED,
                       "it would have %" PRIu64 " MB, and with the %" PRIu64
                       " MB of others that is more than --kv-snapshot-max %" PRIu64 " MB",
                       x->bytes >> 20, (all - x->bytes) >> 20, x->max_bytes >> 20);
    return 0;
}

/* The new file aside. Somebody may delete the folder because it is empty. */
static int open_aside(const struct snapshot_files *x, const char *path, struct err *e)
{
    int fd = -1;
    for (int i = 0; i < 3 && fd < 0; i++) {
        if (mkdir(x->folder, 0700) && errno != EEXIST)
            break;
        unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    return fd >= 0 ? fd : err_set(e, ERR_FAILED, "%s: %s", path, strerror(errno));
}

/* The file's name in the folder, and the folder's beside the database: it may be new, whoever made it. */
static int sync_names(const struct snapshot_files *x, struct err *e)
{
    return folder_sync(x->folder) || name_sync(x->folder)
               ? err_set(e, ERR_FAILED, "%s: cannot be written to the disk: %s", x->folder, strerror(errno))
               : 0;
}

/* Aside, synced, renamed, the folders synced. A sync that fails is not tried again. */
static int write_file(struct snapshot_files *x, const char *name, struct err *e)
{
    char aside[FILE_PATH], path[FILE_PATH];
    path_of(x, name, ASIDE, aside);
    path_of(x, name, "", path);
    int fd = open_aside(x, aside, e);
    if (fd < 0)
        return -1;
    int rc = check_room(x, fd, e);
    if (rc == 0 && x->write(x->ctx, fd, &x->stop, e))
        rc = err_while(e, "%s", aside);
    if (rc == 0 && fsync(fd))
        rc = err_set(e, ERR_FAILED, "%s: %s", aside, strerror(errno));
    if (close(fd) && rc == 0)
        rc = err_set(e, ERR_FAILED, "%s: %s", aside, strerror(errno));
    if (rc == 0 && rename(aside, path))
        rc = err_set(e, ERR_FAILED, "%s: %s", path, strerror(errno));
    if (rc)
        unlink(aside);
    else if ((rc = sync_names(x, e)) != 0)
        unlink(path);
    return rc;
}

static int write_one(struct snapshot_files *x, struct err *e)
{
    char path[FILE_PATH];
    const struct snapshot_row *r = &x->next;
    if (!x->store && store_reopen(&x->store, x->of, e))
        return -1;
    if (x->n_files && strcmp(r->name, x->file[x->n_files - 1].name) == 0)      /* it is there */
        return 0;
    if (write_file(x, r->name, e))
        return -1;
    int rc = store_snapshot_set(x->store, &x->claim, r, x->bytes, e);
    /* what the rows name is not known: the next one holds all, and a collection will see */
    if (rc < 0) {
        x->n_files = 0;
        return rc;
    }
    if (rc) {
        path_of(x, r->name, "", path);
        unlink(path);
        return rc;
    }
    for (; x->n_files && x->file[x->n_files - 1].start >= r->start; x->n_files--) {
        path_of(x, x->file[x->n_files - 1].name, "", path);
        unlink(path);
    }
    x->file[x->n_files++] = *r;
    return 0;
}

static void *snapshot_files_thread(void *p)
{
    struct snapshot_files *x = p;
    pthread_mutex_lock(&x->lock);
    for (;;) {
        while (!x->busy && !x->close)
            pthread_cond_wait(&x->work, &x->lock);
        if (x->close)
            break;
        struct snapshot_result r = { .tokens = x->next.tokens, .bytes = x->bytes };
        pthread_mutex_unlock(&x->lock);
        double start = clock_seconds(), cpu = thread_cpu_seconds();
        r.rc = write_one(x, &r.err);
        r.seconds = clock_seconds() - start;
        r.cpu_seconds = thread_cpu_seconds() - cpu;
        pthread_mutex_lock(&x->lock);
        x->result = r;
        x->failed = r.rc < 0;
        x->busy = false;
        x->ended = true;
        pthread_cond_broadcast(&x->done);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- the worker's side ---- */

int snapshot_files_open(struct snapshot_files **out, const struct store *s, const struct claim *c,
                   const struct snapshot_row *good, size_t n_good, uint64_t max_bytes,
                   snapshot_write_fn *write, void *ctx, struct err *e)
{
    struct snapshot_files *x = calloc(1, sizeof *x);
    pthread_condattr_t monotonic;
    sigset_t all, before;
    *out = NULL;
    if (!x)
        return err_set(e, ERR_FAILED, "out of memory for snapshots");
    *x = (struct snapshot_files){ .of = s, .claim = *c, .write = write, .ctx = ctx, .max_bytes = max_bytes };
    folder_of(s, x->folder);
    memcpy(x->file, good, n_good * sizeof *good);
    x->n_files = n_good;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&x->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);                    /* signals are for the thread that can stop the loop */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&x->thread, NULL, snapshot_files_thread, x);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free(x);
        return err_set(e, ERR_FAILED, "no thread for snapshots: %s", strerror(rc));
    }
    *out = x;
    return 0;
}

size_t snapshot_files_next_start(struct snapshot_files *x, size_t tokens, size_t most)
{
    pthread_mutex_lock(&x->lock);
    assert(!x->busy);
    size_t i = x->n_files, from = i ? x->file[i - 1].tokens : 0;
    while (i &&
           (i == STORE_SNAPSHOTS_MAX || (!x->failed && from - x->file[i - 1].start <= 2 * (tokens - from) &&
                                         tokens - x->file[i - 1].start <= most)))
        from = x->file[--i].start;
    pthread_mutex_unlock(&x->lock);
    return from;
}

void snapshot_files_write(struct snapshot_files *x, size_t from, size_t tokens, uint64_t bytes)
{
    pthread_mutex_lock(&x->lock);
    assert(!x->busy);
    x->next = (struct snapshot_row){ .start = from, .tokens = tokens };
    snprintf(x->next.name, sizeof x->next.name, "%" PRId64 "-%" PRId64 "-%zu%s", x->claim.job,
             x->claim.attempt, tokens, ENDING);
    x->bytes = bytes;
    x->busy = true;
    x->ended = false;
    pthread_cond_signal(&x->work);
    pthread_mutex_unlock(&x->lock);
}

bool snapshot_files_busy(struct snapshot_files *x)
{
    pthread_mutex_lock(&x->lock);
    bool busy = x->busy;
    pthread_mutex_unlock(&x->lock);
    return busy;
}

bool snapshot_files_result(struct snapshot_files *x, struct snapshot_result *r)
{
    pthread_mutex_lock(&x->lock);
    bool ended = x->ended;
    if (ended)
        *r = x->result;
    x->ended = false;
    pthread_mutex_unlock(&x->lock);
    return ended;
}

void snapshot_files_wait(struct snapshot_files *x, double seconds)
{
    double due = clock_seconds() + seconds;
    struct timespec t = { .tv_sec = (time_t)due };
    t.tv_nsec = (long)((due - (double)t.tv_sec) * 1e9);
    pthread_mutex_lock(&x->lock);
    for (int rc = 0; x->busy && rc != ETIMEDOUT;)
        rc = pthread_cond_timedwait(&x->done, &x->lock, &t);
    atomic_store(&x->stop, true);
    while (x->busy)
        pthread_cond_wait(&x->done, &x->lock);
    atomic_store(&x->stop, false);
    pthread_mutex_unlock(&x->lock);
}

void snapshot_files_close(struct snapshot_files *x)
{
    if (!x)
        return;
    snapshot_files_wait(x, 0);
    pthread_mutex_lock(&x->lock);
    x->close = true;
    pthread_cond_signal(&x->work);
    pthread_mutex_unlock(&x->lock);
    pthread_join(x->thread, NULL);
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->work);
    pthread_cond_destroy(&x->done);
    store_close(x->store);
    free(x);
}

/* ---- finding and collecting ---- */

int snapshot_files_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                   struct err *e)
{
    int64_t of, attempt;
    bool aside;
    int rc = store_snapshot_list(s, job, row, n, e);
    for (size_t i = 0; i < *n; i++)
        if (!parse_name(row[i].name, &of, &attempt, &aside) || aside || of != job) {
            *n = i;
            return err_set(e, ERR_FAILED, "the store names \"%.80s\", which is no snapshot of job %" PRId64,
                           row[i].name, job);
        }
    return rc;
}

int snapshot_files_path(const struct store *s, const struct snapshot_row *r, char *path, size_t size,
                   struct err *e)
{
    char folder[FOLDER];
    folder_of(s, folder);
    if ((size_t)snprintf(path, size, "%s/%s", folder, r->name) < size)
        return 0;
    return err_set(e, ERR_FAILED, "the path of the snapshot %s is too long", r->name);
}

void snapshot_files_collect(struct store *s)
{
    char folder[FOLDER], path[FILE_PATH + NAME_MAX];
    int64_t job, attempt;
    bool aside;
    struct err ignored;
    folder_of(s, folder);
    DIR *d = opendir(folder);
    if (!d)
        return;
    for (struct dirent *f; (f = readdir(d));) {
        if (!parse_name(f->d_name, &job, &attempt, &aside) ||
            store_snapshot_wanted(s, job, attempt, f->d_name, &ignored) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(folder);                       /* where nothing is left */
}
