/* A library that a program under test preloads before the C library: see tests/faults.h. Start at
 * count_call. */
#include "tests/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { FDS = 1024 };

static struct faults *F;
static double base;                      /* the monotonic clock when the program began */
static atomic_bool sync_failed;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;    /* makes an operation and its record atomic */
static int log_fd = -1;
static char *path_of[FDS];

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static double real_clock(clockid_t id)
{
    struct timespec t;
    syscall(SYS_clock_gettime, id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("LONGHAND_FAULTS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *p = mmap(NULL, sizeof *F, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (p == MAP_FAILED)
        abort();
    struct faults *f = p;
    base = real_clock(CLOCK_MONOTONIC);
    if (f->log[0] && (log_fd = (int)syscall(SYS_openat, AT_FDCWD, f->log,
                                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0)
        abort();
    F = f;
}

/* ---- faults ---- */

static void die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Count a call. Returns the fault that it gets, or -1. */
static int count_call(unsigned class)
{
    if (!F || !(F->classes & class) || !F->at)
        return -1;
    int64_t n = atomic_fetch_add(&F->n, 1) + 1;
    if (n < F->at || n - F->at >= F->times)
        return -1;
    atomic_fetch_add(&F->fired, 1);
    if (F->what == FAULT_KILL)
        die();
    return (int)F->what;
}

#define BEHIND(h) do { if ((h) == FAULT_KILL_AFTER || (h) == FAULT_KILL_HALF) die(); } while (0)

static size_t some(int h, size_t n)
{
    return (h == FAULT_KILL_HALF || h == FAULT_SHORT) && n > 1 ? n / 2 : n;
}

static bool fails(int h)
{
    if (h != FAULT_ERROR)
        return false;
    errno = F->error;
    return true;
}

/* ---- the log ---- */

static bool watched(const char *path)
{
    return log_fd >= 0 && path && strncmp(path, F->root, strlen(F->root)) == 0;
}
static const char *name_of(int fd) { return fd >= 0 && fd < FDS ? path_of[fd] : NULL; }

static void put(const void *p, size_t n)
{
    while (n) {
        long w = syscall(SYS_write, log_fd, p, n);
        if (w <= 0)
            abort();
        p = (const char *)p + w;
        n -= (size_t)w;
    }
}

static void record(enum record_kind kind, const char *path, int64_t at, const void *p, size_t n)
{
    struct record r = { .kind = kind, .n_path = (uint32_t)strlen(path), .at = at, .n = n };
    put(&r, sizeof r);
    put(path, r.n_path);
    put(p, n);
}

static void opened(int fd, const char *path, bool made)
{
    if (fd < 0 || fd >= FDS)
        return;
    free(path_of[fd]);
    path_of[fd] = NULL;
    if (!watched(path))
        return;
    path_of[fd] = strdup(path);
    if (made)
        record(REC_CREATE, path, 0, "", 0);
}

/* ---- files ---- */

static int opens(const char *path, int flags, mode_t mode)
{
    struct stat st;
    bool makes = (flags & O_CREAT) && stat(path, &st) != 0;
    int h = makes ? count_call(CALL_NAME) : -1;
    if (fails(h))
        return -1;
    if (makes && atomic_load(&sync_failed) && strstr(path, "-journal"))
        atomic_fetch_add(&F->journals_after, 1);
    pthread_mutex_lock(&order);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    opened(fd, path, makes);
    pthread_mutex_unlock(&order);
    BEHIND(h);
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return opens(path, flags, mode);
}
EXPORT int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return opens(path, flags, mode);
}
EXPORT int close(int fd)
{
    pthread_mutex_lock(&order);
    opened(fd, NULL, false);
    pthread_mutex_unlock(&order);
    return (int)syscall(SYS_close, fd);
}

static ssize_t writes(int fd, const void *p, size_t n, off_t at, bool positioned)
{
    int h = count_call(CALL_WRITE);
    if (fails(h))
        return -1;
    n = some(h, n);
    pthread_mutex_lock(&order);
    if (!positioned && name_of(fd))
        at = lseek(fd, 0, SEEK_CUR);
    ssize_t w = positioned ? syscall(SYS_pwrite64, fd, p, n, at) : syscall(SYS_write, fd, p, n);
    if (w > 0 && name_of(fd))
        record(REC_WRITE, name_of(fd), at, p, (size_t)w);
    pthread_mutex_unlock(&order);
    BEHIND(h);
    return w;
}
EXPORT ssize_t write(int fd, const void *p, size_t n) { return writes(fd, p, n, 0, false); }
EXPORT ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return writes(fd, p, n, at, true); }
EXPORT ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return writes(fd, p, n, at, true); }

EXPORT int ftruncate(int fd, off_t n)
{
    int h = count_call(CALL_WRITE);
    if (fails(h))
        return -1;
    pthread_mutex_lock(&order);
    int rc = (int)syscall(SYS_ftruncate, fd, n);
    if (rc == 0 && name_of(fd))
        record(REC_TRUNCATE, name_of(fd), n, "", 0);
    pthread_mutex_unlock(&order);
    BEHIND(h);
    return rc;
}
EXPORT int ftruncate64(int fd, off_t n) { return ftruncate(fd, n); }

static int syncs(int fd, long number)
{
    int h = count_call(CALL_SYNC);
    struct stat st;
    if (F && atomic_load(&sync_failed))
        atomic_fetch_add(&F->syncs_behind, 1);
    if (fails(h)) {
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            atomic_store(&sync_failed, true);
        return -1;
    }
    pthread_mutex_lock(&order);
    int rc = (int)syscall(number, fd);
    if (rc == 0 && name_of(fd))
        record(REC_SYNC, name_of(fd), 0, "", 0);
    pthread_mutex_unlock(&order);
    BEHIND(h);
    return rc;
}
EXPORT int fsync(int fd) { return syncs(fd, SYS_fsync); }
EXPORT int fdatasync(int fd) { return syncs(fd, SYS_fdatasync); }

#define NAMED(call, kind, path, p, n_bytes) do { \
    int h = count_call(CALL_NAME); \
    if (fails(h)) \
        return -1; \
    pthread_mutex_lock(&order); \
    int rc = (int)(call); \
    if (rc == 0 && watched(path)) \
        record(kind, path, 0, p, n_bytes); \
    pthread_mutex_unlock(&order); \
    BEHIND(h); \
    return rc; } while (0)

EXPORT int unlink(const char *path) { NAMED(syscall(SYS_unlink, path), REC_UNLINK, path, "", 0); }
EXPORT int rename(const char *from, const char *to)
{
    NAMED(syscall(SYS_rename, from, to), REC_RENAME, from, to, strlen(to));
}
EXPORT int mkdir(const char *path, mode_t mode)
{
    NAMED(syscall(SYS_mkdir, path, mode), REC_MKDIR, path, "", 0);
}
EXPORT int link(const char *from, const char *to)
{
    NAMED(syscall(SYS_link, from, to), REC_MKDIR, (const char *)NULL, "", 0);
}
EXPORT int fchmod(int fd, mode_t mode)
{
    NAMED(syscall(SYS_fchmod, fd, mode), REC_MKDIR, (const char *)NULL, "", 0);
}
EXPORT int fchown(int fd, uid_t u, gid_t g)
{
    NAMED(syscall(SYS_fchown, fd, u, g), REC_MKDIR, (const char *)NULL, "", 0);
}

/* A released lock of the database: others may read its current content. */
static int fcntls(int fd, int command, void *p)
{
    const struct flock *l = p;
    pthread_mutex_lock(&order);
    int rc = (int)syscall(SYS_fcntl, fd, command, p);
    if (rc == 0 && command == F_SETLK && l->l_type == F_UNLCK && name_of(fd))
        record(REC_UNLOCK, name_of(fd), 0, "", 0);
    pthread_mutex_unlock(&order);
    return rc;
}
EXPORT int fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *p = va_arg(ap, void *);
    va_end(ap);
    return fcntls(fd, command, p);
}
EXPORT int fcntl64(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *p = va_arg(ap, void *);
    va_end(ap);
    return fcntls(fd, command, p);
}

static ssize_t reads(int fd, void *p, size_t n, off_t at, bool positioned)
{
    int h = count_call(CALL_READ);
    if (fails(h))
        return -1;
    n = some(h, n);
    return positioned ? syscall(SYS_pread64, fd, p, n, at) : syscall(SYS_read, fd, p, n);
}
EXPORT ssize_t read(int fd, void *p, size_t n) { return reads(fd, p, n, 0, false); }
EXPORT ssize_t pread(int fd, void *p, size_t n, off_t at) { return reads(fd, p, n, at, true); }
EXPORT ssize_t pread64(int fd, void *p, size_t n, off_t at) { return reads(fd, p, n, at, true); }

/* ---- memory ---- */

static bool no_memory(void)
{
    if (count_call(CALL_MEMORY) < 0)
        return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t n) { return no_memory() ? NULL : __libc_malloc(n); }
EXPORT void *calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
EXPORT void *realloc(void *p, size_t n) { return no_memory() ? NULL : __libc_realloc(p, n); }
EXPORT void *aligned_alloc(size_t align, size_t n) { return no_memory() ? NULL : __libc_memalign(align, n); }
EXPORT void *mmap(void *p, size_t n, int protection, int flags, int fd, off_t at)
{
    if ((flags & MAP_ANONYMOUS) && no_memory())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, p, n, protection, flags, fd, at);
}
EXPORT void *mmap64(void *p, size_t n, int protection, int flags, int fd, off_t at)
{
    return mmap(p, n, protection, flags, fd, at);
}

/* ---- clocks ---- */

static void set(struct timespec *t, double s)
{
    t->tv_sec = (time_t)s;
    t->tv_nsec = (long)((s - (double)t->tv_sec) * 1e9);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
    bool forwards = id == CLOCK_MONOTONIC || id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC_RAW;
    if (F && F->speed > 0 && forwards)
        set(t, base + (real_clock(CLOCK_MONOTONIC) - base) * F->speed);
    else if (F && id == CLOCK_REALTIME)
        set(t, real_clock(id) + atomic_load(&F->wall));
    else
        return (int)syscall(SYS_clock_gettime, id, t);
    return 0;
}
EXPORT int gettimeofday(struct timeval *restrict v, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *v = (struct timeval){ .tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000 };
    return 0;
}
EXPORT time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}
EXPORT int nanosleep(const struct timespec *want, struct timespec *left)
{
    struct timespec t = *want;
    if (F && F->speed > 0)
        set(&t, ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / F->speed);
    return (int)syscall(SYS_nanosleep, &t, left);
}
EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                                  const struct timespec *restrict until)
{
    static int (*_Atomic next)(pthread_cond_t *restrict, pthread_mutex_t *restrict,
                               const struct timespec *restrict);
    struct timespec t = *until;
    if (!next)
        next = (int (*)(pthread_cond_t *restrict, pthread_mutex_t *restrict,
                        const struct timespec *restrict))dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (F && F->speed > 0)
        set(&t, base + ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec - base) / F->speed);
    return next(c, m, &t);
}
