/* Errors, UTF-8 validation, memory, the clock, and whole files; one section each. It
 * owns no data; start reading at base.h. */
#include "src/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- UTF-8 and errors ---- */

/* The length of the code point at s[0..n) (n >= 1). 0: the bytes are wrong; n + 1: bytes are missing at
 * the end. */
static size_t utf8_step(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    size_t len = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 &&
        c <= 0xf4 ? 4 : 0;
    if (len == 0)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if (i == n)
            return n + 1;
        unsigned char lo = 0x80, hi = 0xbf;
        if (i == 1) {
            if (c == 0xe0) lo = 0xa0;
            if (c == 0xed) hi = 0x9f;
            if (c == 0xf0) lo = 0x90;
            if (c == 0xf4) hi = 0x8f;
        }
        if (s[i] < lo || s[i] > hi)
            return 0;
    }
    return len;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t len = utf8_step((const unsigned char *)s + i, n - i);
        if (len == 0 || len > n - i)
            break;
        i += len;
    }
    return i;
}

bool utf8_incomplete(const char *s, size_t n)
{
    return n > 0 && utf8_step((const unsigned char *)s, n) == n + 1;
}

/* Copies `from` to msg; bytes that are not printable UTF-8 become \xNN. */
static void escape_into(char *msg, size_t size, const char *from)
{
    size_t n = strlen(from), w = 0;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_step((const unsigned char *)from + i, n - i);
        bool ok = len > 0 && len <= n - i && (unsigned char)from[i] >= 0x20 && from[i] != 0x7f &&
                  !(len == 2 && (unsigned char)from[i] == 0xc2 && (unsigned char)from[i + 1] < 0xa0);
        if (w + 5 > size)
            break;
        if (ok) {
            memcpy(msg + w, from + i, len);
            w += len;
            i += len;
        } else {
            w += (size_t)snprintf(msg + w, 5, "\\x%02x", (unsigned char)from[i]);
            i++;
        }
    }
    msg[w] = 0;
}

static int set_error(struct err *e, int code, int system, const char *fmt, va_list ap)
{
    char raw[sizeof e->msg], path[sizeof e->msg] = "";
    const bool marked = *fmt == *ERR_PATH || *fmt == *ERR_FILE;
    va_list first;
    va_copy(first, ap);
    if (marked) {
        snprintf(raw, sizeof raw, "%s: ", va_arg(first, const char *));
        const char *slash = strrchr(raw, '/');
        if (*fmt == *ERR_FILE)
            raw[slash ? slash + 1 - raw : 0] = 0;
        escape_into(path, sizeof path, raw);
    }
    va_end(first);
    vsnprintf(raw, sizeof raw, fmt + marked, ap);
    *e = (struct err){ .code = code, .system = system, .words = (short)strlen(path) };
    escape_into(e->msg, sizeof e->msg, raw);
    return -1;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_error(e, code, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int err_set_system(struct err *e, int code, const char *fmt, ...)
{
    const int system = errno;
    va_list ap;
    va_start(ap, fmt);
    set_error(e, code, system, fmt, ap);
    va_end(ap);
    return -1;
}

int err_while(struct err *e, const char *fmt, ...)
{
    const struct err inner = *e;
    char rest[sizeof inner.msg + 2];
    va_list ap;
    va_start(ap, fmt);
    set_error(e, inner.code, inner.system, fmt, ap);
    va_end(ap);
    const size_t n = strlen(e->msg);
    snprintf(rest, sizeof rest, ": %s", inner.msg);
    escape_into(e->msg + n, sizeof e->msg - n, rest);
    if (inner.words) {
        e->path = (short)(n + 2) + inner.path;
        e->words = (short)(n + 2) + inner.words;
    }
    return -1;
}

void err_words(const struct err *e, char *out, size_t size)
{
    const char *text = err_text(e);
    snprintf(out, size, "%.*s%s", e->path, text, text + MIN((size_t)e->words, strlen(text)));
}

/* ---- memory ---- */

bool array_grow(void *array, size_t n, size_t size)
{
    void *v;
    size_t bytes;
    if (n & (n - 1))                     /* the room is a power of two, or more */
        return true;
    memcpy(&v, array, sizeof v);
    if (!mul_size(n ? 2 * n : 1, size, &bytes) || !(v = realloc(v, bytes)))
        return false;
    memcpy(array, &v, sizeof v);
    return true;
}

enum { HUGE_PAGE = 2 << 20 };

size_t mem_rounded(size_t bytes)
{
    size_t n;
    return bytes < HUGE_PAGE                    ? bytes
           : add_size(bytes, HUGE_PAGE - 1, &n) ? n / HUGE_PAGE * HUGE_PAGE
                                                : SIZE_MAX;
}

void *mem_alloc(size_t bytes)
{
    size_t n;
    if (bytes < HUGE_PAGE) {
        n = (bytes + 63) / 64 * 64;
        void *p = aligned_alloc(64, n ? n : 64);
        return p ? memset(p, 0, n) : NULL;
    }
    /* One extra huge page lets the block begin on a huge-page boundary. */
    if (!add_size(bytes, 2 * (size_t)HUGE_PAGE, &n))
        return NULL;
    n = n / HUGE_PAGE * HUGE_PAGE;
    const size_t keep = mem_rounded(bytes);
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {               /* without the extra page and the alignment, under ulimit -v */
        p = mmap(NULL, keep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (head)
        munmap(p, head);
    if (n - head > keep)
        munmap(p + head + keep, n - head - keep);
    madvise(p + head, keep, MADV_HUGEPAGE);
    return p + head;
}

void mem_free(void *p, size_t bytes)
{
    if (!p)
        return;
    if (bytes < HUGE_PAGE)
        free(p);
    else
        munmap(p, mem_rounded(bytes));
}

/* ---- files and clocks ---- */

int file_read(char **data, size_t *size, const char *path, size_t max, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    char *p = NULL;
    if (fd < 0)
        return err_set_system(e, ERR_INPUT, ERR_FILE ": cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        err_set(e, ERR_INPUT, ERR_FILE ": not a regular file", path);
        goto fail;
    }
    if ((uint64_t)st.st_size > max) {
        err_set(e, ERR_INPUT, ERR_FILE ": %lld bytes, at most %zu are allowed",
                path, (long long)st.st_size, max);
        goto fail;
    }
    size_t n = (size_t)st.st_size, done = 0;
    p = malloc(n + 1);
    if (!p) {
        err_set(e, ERR_FAILED, ERR_FILE ": out of memory (%zu bytes)", path, n);
        goto fail;
    }
    while (done < n) {
        ssize_t r = read(fd, p + done, n - done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) {
            errno = r < 0 ? errno : 0;
            err_set_system(e, ERR_INPUT, ERR_FILE ": %s at offset %zu of %zu", path,
                           r < 0 ? strerror(errno) : "ends", done, n);
            goto fail;
        }
        done += (size_t)r;
    }
    close(fd);
    p[n] = 0;
    *data = p;
    *size = n;
    return 0;
fail:
    free(p);
    close(fd);
    return -1;
}

int read_at(int fd, const char *path, void *dst, size_t at, size_t n, struct err *e)
{
    char *p = dst;
    while (n) {
        ssize_t r = pread(fd, p, n, (off_t)at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set_system(e, ERR_FAILED, "%s: cannot read at offset %zu: %s", path, at,
                                  strerror(errno));
        if (r == 0)
            return err_set(e, ERR_INPUT, "%s: the file ends at offset %zu, %zu more bytes are needed: the "
                           "file became shorter", path, at, n);
        p += r;
        at += (size_t)r;
        n -= (size_t)r;
    }
    return 0;
}

int stream_end(FILE *f)
{
    const int lost = ferror(f);
    return fclose(f) || lost;
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_seconds(void) { return seconds_of(CLOCK_MONOTONIC); }
double thread_cpu_seconds(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

uint64_t hash64(uint64_t h, const void *p, size_t n)
{
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

int write_bytes(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = fd >= 0 ? fsync(fd) : 0, why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return rc && (why == EIO || why == ENOSPC || why == EDQUOT) ? -1 : 0;
}

const char *folder_of(char to[PATH_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(to, PATH_BYTES, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    return slash ? slash + 1 : path;
}

int name_sync(const char *path)
{
    char folder[PATH_BYTES];
    folder_of(folder, path);
    return folder_sync(folder);
}

int file_create_beside(char name[PATH_BYTES], const char *path)
{
    struct { struct timespec now; pid_t pid; int attempt; } id = { .pid = getpid() };
    int fd = -1;
    for (errno = EEXIST; fd < 0 && errno == EEXIST && id.attempt < 1000; id.attempt++) {
        clock_gettime(CLOCK_REALTIME, &id.now);
        const unsigned digits = hash64(HASH64_INIT, &id, sizeof id) >> 40;
        if (snprintf(name, PATH_BYTES, "%s.part-%06x", path, digits) >= PATH_BYTES) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return fd;
}

int file_rename_new(const char *from, const char *to)
{
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (link(from, to) == 0)
        return unlink(from);
    if (errno == EEXIST)
        return -1;
    if (lstat(to, &st) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

int file_write(const char *path, const struct slice *part, size_t n_parts, struct err *e)
{
    char aside[PATH_BYTES];
    int fd = file_create_beside(aside, path), r = fd < 0 ? -1 : 0;
    for (size_t i = 0; i < n_parts && !r; i++)
        r = write_bytes(fd, part[i].p, part[i].n);
    if (r || fsync(fd) || rename(aside, path)) {
        err_set(e, ERR_FAILED, ERR_FILE ": cannot write: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(aside);
        }
        return -1;
    }
    close(fd);
    if (name_sync(path))
        return err_set(e, ERR_FAILED, ERR_FILE ": its folder cannot be written to the disk: %s", path,
                       strerror(errno));
    return 0;
}
