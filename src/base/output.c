/* Writes results whole or not at all. struct sink is one output; start at sink_open. */
#include "src/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory_file.h"
#include "src/base/unicode.h"

static bool is_device(const char *path)
{
    return (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0) ||
           strncmp(path, "/proc/", 6) == 0;
}

bool sink_replaces(const char *path)
{
    struct stat st;
    return !is_device(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

int sink_open(struct sink *s, const char *path, struct err *e)
{
    struct stat st;
    *s = (struct sink){ .fd = STDOUT_FILENO };
    int open_fd;
    if (!path || strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)
        return 0;
    if (!*path)
        return err_set(e, ERR_INPUT,
                       "--output: '' is not the name of a file; FILE, or - for standard output, is allowed");
    char *real = realpath(path, NULL);           /* the target of a link is replaced, not the link */
    int n = snprintf(s->path, PATH_BYTES, "%s", real ? real : path);
    free(real);
    if (n >= PATH_BYTES - 16)
        return err_set(e, ERR_INPUT, "--output: a path of %d bytes is too long", n);
    const bool there = stat(s->path, &st) == 0;
    /* /dev/fd/N is written directly: resolving it would replace the file that is open there. */
    if (sscanf(path, "/dev/fd/%d", &open_fd) == 1) {
        s->fd = fcntl(open_fd, F_DUPFD_CLOEXEC, 3);
        s->path[0] = 0;
    } else if (is_device(path) || (there && !S_ISREG(st.st_mode))) {
        s->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        s->path[0] = 0;
    } else {
        s->fd = file_create_beside(s->temporary, s->path);
        if (s->fd >= 0 && there)
            fchmod(s->fd, st.st_mode & 0777);    /* a file that others may not read stays unreadable */
    }
    if (s->fd < 0)
        return err_set(e, ERR_INPUT, "--output: %s: cannot write: %s", path, strerror(errno));
    return 0;
}

int sink_open_new(struct sink *s, const char *path, struct err *e)
{
    *s = (struct sink){ .is_new = true };
    const int n = snprintf(s->path, PATH_BYTES, "%s", path);
    if (n >= PATH_BYTES - 16)
        return err_set(e, ERR_INPUT, "%.60s...: a path of %d bytes is too long", path, n);
    s->fd = file_create_beside(s->temporary, s->path);
    return s->fd < 0 ? err_set(e, ERR_INPUT, "%s: cannot write: %s", path, strerror(errno)) : 0;
}

/* A closed pipe is an interruption: the reader has had enough. */
static int cannot_write(const char *name, int why, struct err *e)
{
    errno = why;
    return why == EPIPE ? err_set_system(e, ERR_AGAIN, "%s was closed", name)
                        : err_set(e, ERR_FAILED, "%s: cannot write: %s", name, strerror(why));
}

int sink_write(struct sink *s, const void *data, size_t n, struct err *e)
{
    const char *name = s->temporary[0] ? s->temporary : "standard output";
    return write_bytes(s->fd, data, n) ? cannot_write(name, errno, e) : 0;
}

/* Whether two lines begin with the same word, or are the first ones of longhand's pages. */
static bool same_kind(const char *a, const char *b)
{
    static const char ends[] = " ,:\"\n", brackets[] = "[{\"";
    a += strspn(a, brackets);
    b += strspn(b, brackets);
    const size_t n = strcspn(a, ends);
    return *a == '<' ? strcmp(a, b) == 0 : n && n == strcspn(b, ends) && strncmp(a, b, n) == 0;
}

/* Whether line b may take the place of line a: it is the same, or continues the last line of a text. Of a
 * text that was not done or had failed, the beginning counts. */
static bool is_earlier(const char *a, ssize_t n, const char *b, ssize_t m, enum sink_earlier earlier)
{
    const bool open = strstr(a, "\"finish_reason\": null") || strstr(a, "\"response\": null");
    const ssize_t key = earlier == EARLIER_LINES && open ? MIN(n, SINK_HEAD) : n;
    return m >= key && (key < n || earlier == EARLIER_TEXT || m == n) && memcmp(a, b, (size_t)key) == 0;
}

int sink_check(const struct sink *s, struct err *e)
{
    char *a = NULL, *b = NULL;
    size_t room_a = 0, room_b = 0;
    ssize_t n, m;
    if (s->earlier == EARLIER_ANY || !s->temporary[0] || !sink_replaces(s->path))
        return 0;
    FILE *old = fopen(s->path, "rb"), *new = fopen(s->temporary, "rb");
    bool same = old && new;
    while (same && (n = getline(&a, &room_a, old)) > 0) {
        do {
            m = getline(&b, &room_b, new);
            same = m > 0 && (s->earlier == EARLIER_KIND ? same_kind(a, b)
                                                        : is_earlier(a, n, b, m, s->earlier));
        } while (!same && m > 0 && s->earlier == EARLIER_LINES);
        if (s->earlier == EARLIER_KIND)
            break;
    }
    same = same && (s->earlier == EARLIER_KIND || feof(old));
    free(a);
    free(b);
    if (old)
        fclose(old);
    if (new)
        fclose(new);
    return same ? 0 : err_set(e, ERR_INPUT, "--output: %s is not an earlier form of this output; any other "
                              "file is allowed, and --force replaces it", s->path);
}

int sink_finish(struct sink *s, struct err *e)
{
    if (!s->temporary[0])
        return 0;
    if (sink_check(s, e)) {
        sink_discard(s);
        return -1;
    }
    const int rc = fsync(s->fd) ? -1 : s->is_new ? file_rename_new(s->temporary, s->path)
                                                 : rename(s->temporary, s->path);
    if (rc && s->is_new && errno == EEXIST) {
        sink_discard(s);
        return err_set(e, ERR_INPUT, "%s exists, and no file is overwritten", s->path);
    }
    if (rc)
        return err_set(e, ERR_FAILED, "%s: cannot write: %s; the text is in %s", s->path, strerror(errno),
                       s->temporary);
    close(s->fd);
    s->temporary[0] = 0;
    s->fd = STDOUT_FILENO;
    if (name_sync(s->path))
        return err_set(e, ERR_FAILED, "%s: its folder cannot be written to the disk: %s", s->path,
                       strerror(errno));
    return 0;
}

void sink_abandon(struct sink *s)
{
    struct stat st;
    if (!s->temporary[0])
        return;
    if (fstat(s->fd, &st) == 0 && st.st_size == 0) {
        unlink(s->temporary);
        s->temporary[0] = 0;
    }
    close(s->fd);
    s->fd = STDOUT_FILENO;
}

void sink_discard(struct sink *s)
{
    if (s->temporary[0])
        unlink(s->temporary);
    sink_abandon(s);
    s->temporary[0] = 0;
}

FILE *whole_begin(struct whole *w, struct err *e)
{
    *w = (struct whole){0};
    if (!(w->f = memory_file(&w->text, &w->n)))
        err_set(e, ERR_FAILED, "out of memory for the output");
    return w->f;
}

int whole_end(struct whole *w, int rc, const char *path, enum sink_earlier earlier, struct err *e)
{
    struct sink s;
    if (stream_end(w->f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "out of memory for the output");
    rc = rc ? rc : sink_open(&s, path, e);
    s.earlier = earlier;
    if (rc == 0 && (sink_write(&s, w->text, w->n, e) || sink_finish(&s, e))) {
        sink_discard(&s);
        rc = -1;
    }
    free(w->text);
    return rc;
}

int stdout_finish(struct err *e)
{
    struct pollfd p = { .fd = STDOUT_FILENO };
    errno = 0;
    if (fflush(stdout) || ferror(stdout)) {
        int why = errno ? errno : poll(&p, 1, 0) == 1 && p.revents & POLLERR ? EPIPE : 0;
        if (!why)                                /* one more byte shows the cause of an earlier failure */
            why = write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;
        return cannot_write("standard output", why, e);
    }
    return 0;
}

void terminal_text(char *out, size_t size, const char *s)
{
    enum { PIECE = 200 };                /* bytes that fit into a message, whatever becomes of them */
    size_t used = 0, n;
    struct err e;
    for (*out = 0; *s; s += n) {
        n = utf8_valid_prefix(s, strnlen(s, PIECE));
        n = n ? n : 1;
        err_set(&e, 0, "%.*s", (int)n, s);
        const size_t more = strlen(e.msg);
        memcpy(out + used, e.msg, MIN(more, size - 1 - used));
        used = MIN(used + more, size - 1);
        out[used] = 0;
        if (used == size - 1) {
            memcpy(out + utf8_valid_prefix(out, size - 4), "...", 4);
            return;
        }
    }
}

void duration_text(char out[32], double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 999999999ul;
    if (t >= 3600)
        snprintf(out, 32, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, 32, "%lu:%02lu", t / 60, t % 60);
}

/* The columns that a code point takes on a terminal: 2 for East Asian and pictures. */
static size_t point_width(uint32_t c)
{
    return c >= 0x1100 && (c <= 0x115f || (c >= 0x2e80 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
                           (c >= 0xfe30 && c <= 0xff60) || c >= 0x1f300)
               ? 2
               : 1;
}

size_t terminal_cut(char *s, size_t wide)
{
    size_t used = 0;
    uint32_t c;
    for (char *p = s; *p;) {
        const size_t n = utf8_get(p, &c);
        if (used + point_width(c) > wide) {
            *p = 0;
            break;
        }
        used += point_width(c);
        p += n;
    }
    return used;
}
