/* Reads whole texts into memory. text_read is the entry. */
#include "src/base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/stopping.h"

int text_read(char **data, size_t *n, const char *path, struct err *e)
{
    bool std = strcmp(path, "-") == 0;
    const char *name = std ? "standard input" : path;
    size_t size = 0, room = 0;
    char *p = NULL;
    int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_INPUT, ERR_FILE ": cannot open: %s", name, strerror(errno));
    for (;;) {
        if (room - size < 2) {
            room = room ? room * 2 : 1 << 16;
            char *q = size > TEXT_BYTES_MAX ? NULL : realloc(p, room);
            if (!q) {
                if (size > TEXT_BYTES_MAX)
                    err_set(e, ERR_INPUT, ERR_FILE ": more than %d bytes", name, TEXT_BYTES_MAX);
                else
                    err_set(e, ERR_FAILED, ERR_FILE ": out of memory (%zu bytes)", name, room);
                goto fail;
            }
            p = q;
        }
        ssize_t r = read(fd, p + size, room - size - 1);
        if (r < 0 && errno == EINTR && !stop_signal)
            continue;
        if (r < 0) {
            err_set(e, stop_signal ? ERR_FAILED : ERR_INPUT, ERR_FILE ": cannot read: %s", name,
                    stop_signal ? stop_signal_name() : strerror(errno));
            goto fail;
        }
        if (r == 0)
            break;
        size += (size_t)r;
    }
    if (!std)
        close(fd);
    p[size] = 0;
    *data = p;
    *n = size;
    return 0;
fail:
    if (!std)
        close(fd);
    free(p);
    return -1;
}

int text_check_utf8(const char *what, const char *s, size_t n, struct err *e)
{
    size_t ok = utf8_valid_prefix(s, n);
    if (ok < n)
        return err_set(e, ERR_INPUT, "%s: invalid UTF-8 at offset %zu (byte 0x%02x)", what, ok,
                       (unsigned char)s[ok]);
    return 0;
}

int text_read_utf8(char **data, size_t *n, const char *path, struct err *e)
{
    if (text_read(data, n, path, e))
        return -1;
    if (text_check_utf8(strcmp(path, "-") ? path : "standard input", *data, *n, e)) {
        free(*data);
        *data = NULL;
        return -1;
    }
    return 0;
}

int text_check_nul(const char *what, const char *s, size_t n, struct err *e)
{
    const char *nul = memchr(s, 0, n);
    return nul ? err_set(e, ERR_INPUT, "%s: NUL at offset %zu; text without NUL is allowed", what,
                         (size_t)(nul - s))
               : 0;
}

int text_read_prompt(char **data, size_t *n, const char *path, struct err *e)
{
    if (text_read_utf8(data, n, path, e))
        return -1;
    if (text_check_nul(strcmp(path, "-") ? path : "standard input", *data, *n, e)) {
        free(*data);
        *data = NULL;
        return -1;
    }
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
