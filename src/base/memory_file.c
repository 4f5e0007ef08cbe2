/* A stdio stream into memory, on fopencookie. Its data is struct memory; start at memory_file. */
#include "src/base/memory_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"

struct memory { char **text; size_t *n, room; };

static ssize_t append(void *cookie, const char *p, size_t n)
{
    struct memory *m = cookie;
    if (n >= m->room - *m->n) {
        const size_t room = MAX(2 * m->room, *m->n + n + 1);
        char *text = realloc(*m->text, room);
        if (!text) {
            errno = ENOMEM;
            return 0;                    /* fopencookie: 0 means that the write failed */
        }
        *m->text = text;
        m->room = room;
    }
    memcpy(*m->text + *m->n, p, n);
    *m->n += n;
    (*m->text)[*m->n] = 0;
    return (ssize_t)n;
}

static int close_memory(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *memory_file(char **text, size_t *n)
{
    enum { ROOM = 256 };
    struct memory *m = malloc(sizeof *m);
    FILE *f = NULL;
    *n = 0;
    if ((*text = malloc(ROOM)) && m) {
        *m = (struct memory){ text, n, ROOM };
        **text = 0;
        f = fopencookie(m, "w", (cookie_io_functions_t){ .write = append, .close = close_memory });
    }
    if (!f) {
        free(*text);
        free(m);
        *text = NULL;
    }
    return f;
}
