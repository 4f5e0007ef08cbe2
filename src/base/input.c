/* Reads inputs, in pieces or as whole texts in memory. Start at text_read. */
#include "src/base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/stopping.h"

const char *input_name(const char *path) { return strcmp(path, "-") ? path : "standard input"; }

int input_open(const char *path, struct err *e)
{
    const int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0)
        err_set(e, ERR_INPUT, ERR_FILE ": cannot open: %s", path, strerror(errno));
    return fd;
}

ssize_t input_read(int fd, const char *path, void *p, size_t n, struct err *e)
{
    ssize_t r;
    while ((r = read(fd, p, n)) < 0 && errno == EINTR && !stop_signal)
        ;
    if (r < 0)
        err_set(e, stop_signal ? ERR_FAILED : ERR_INPUT, ERR_FILE ": cannot read: %s", input_name(path),
                stop_signal ? stop_signal_name() : strerror(errno));
    return r;
}

void input_close(int fd)
{
    if (fd > STDIN_FILENO)
        close(fd);
}

int text_read(char **data, size_t *n, const char *path, struct err *e)
{
    size_t size = 0, room = 0;
    ssize_t r = 1;
    char *p = NULL;
    const int fd = input_open(path, e);
    while (fd >= 0 && r > 0) {
        if (room - size < 2) {
            room = room ? room * 2 : 1 << 16;
            char *q = size > TEXT_BYTES_MAX ? NULL : realloc(p, room);
            r = q ? r : size > TEXT_BYTES_MAX
                    ? err_set(e, ERR_INPUT, ERR_FILE ": more than %d bytes", input_name(path), TEXT_BYTES_MAX)
                    : err_set(e, ERR_FAILED, ERR_FILE ": out of memory (%zu bytes)", input_name(path), room);
            p = q ? q : p;
        }
        if (r > 0 && (r = input_read(fd, path, p + size, room - size - 1, e)) > 0)
            size += (size_t)r;
    }
    input_close(fd);
    if (fd < 0 || r < 0) {
        free(p);
        return -1;
    }
    p[size] = 0;
    *data = p;
    *n = size;
    return 0;
}

int text_check_utf8(const char *what, const char *s, size_t n, struct err *e)
{
    size_t ok = utf8_valid_prefix(s, n);
    if (ok < n)
        return err_set(e, ERR_INPUT, "%s: invalid UTF-8 at offset %zu (byte 0x%02x)", what, ok,
                       (unsigned char)s[ok]);
    return 0;
}

int text_check_nul(const char *what, const char *s, size_t n, struct err *e)
{
    const char *nul = memchr(s, 0, n);
    return nul ? err_set(e, ERR_INPUT, "%s: NUL at offset %zu; text without NUL is allowed", what,
                         (size_t)(nul - s))
               : 0;
}

/* Frees the text unless it has passed a check. Returns rc. */
static int checked(int rc, char **data)
{
    if (rc) {
        free(*data);
        *data = NULL;
    }
    return rc;
}

int text_read_utf8(char **data, size_t *n, const char *path, struct err *e)
{
    return text_read(data, n, path, e) ? -1 : checked(text_check_utf8(input_name(path), *data, *n, e), data);
}

int text_read_prompt(char **data, size_t *n, const char *path, struct err *e)
{
    if (text_read_utf8(data, n, path, e) || checked(text_check_nul(input_name(path), *data, *n, e), data))
        return -1;
    /* the byte order mark belongs to the file, not to the text */
    if (*n >= 3 && memcmp(*data, "\xef\xbb\xbf", 3) == 0)
        memmove(*data, *data + 3, (*n -= 3) + 1);
    return 0;
}

bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
