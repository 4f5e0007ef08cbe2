/* longhand distinct: Distinct-n of texts. Files are read in pieces; src/text/distinct.h counts. Start
 * at cmd_distinct. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/verbs.h"
#include "src/text/distinct.h"

static int read_words(struct distinct *d, const char *path, struct err *e)
{
    enum { PIECE = 1 << 16 };
    bool std = strcmp(path, "-") == 0;
    const char *name = std ? "standard input" : path;
    char *piece = malloc(PIECE);
    int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    ssize_t n = 0;
    if (!piece)
        rc = err_set(e, ERR_FAILED, "out of memory");
    else if (fd < 0)
        rc = err_set(e, ERR_INPUT, "%s: cannot open: %s", name, strerror(errno));
    while (rc == 0 && ((n = read(fd, piece, PIECE)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0 && distinct_text(d, piece, (size_t)n, e))
            rc = err_while(e, "%s", name);
    if (rc == 0 && n < 0)
        rc = err_set(e, ERR_INPUT, "%s: cannot read: %s", name, strerror(errno));
    if (rc == 0 && distinct_end(d, e))
        rc = err_while(e, "%s", name);
    if (fd >= 0 && !std)
        close(fd);
    free(piece);
    return rc;
}

static void put_json(struct json_writer *w, const struct distinct *d, const char *file)
{
    jw_open(w, NULL, '{');
    jw_text(w, "file", file);
    jw_uint(w, "n_words", d->total[0]);
    jw_open(w, "words", '{');
    for (size_t n = 1; n <= DISTINCT_MAX; n++)
        jw_format(w, (char[]){ (char)('0' + n), 0 }, "%.17g", distinct_ratio(d, n));
    jw_close(w, '}');
    jw_close(w, '}');
}

static void print_row(const struct distinct *d, const char *file)
{
    printf("%10zu", d->total[0]);
    for (size_t n = 1; n <= DISTINCT_MAX; n++) {
        double r = distinct_ratio(d, n);
        if (isnan(r))
            printf("%12s", "-");
        else
            printf("%12.4f", r);
    }
    printf("  %s\n", file);
}

/* With --json one file is an object; several files are an array of objects, as in every verb. */
int cmd_distinct(const struct options *o, struct err *e)
{
    const bool list = o->json && o->n_args > 1;
    struct json_writer w = { .f = stdout, .style = list ? JW_LIST : JW_LINE };
    if (list)
        jw_open(&w, NULL, '[');
    for (size_t i = 0; i < o->n_args; i++) {
        struct distinct d;
        if (distinct_open(&d, e))
            return -1;
        int rc = read_words(&d, o->arg[i], e);
        if (rc == 0 && o->json) {
            put_json(&w, &d, o->arg[i]);
        } else if (rc == 0) {
            if (i == 0)
                printf("%10s%12s%12s%12s%12s\n", "words", "distinct-1", "distinct-2", "distinct-3",
                       "distinct-4");
            print_row(&d, o->arg[i]);
        }
        distinct_close(&d);
        if (rc)
            return -1;
    }
    if (list)
        jw_close(&w, ']');
    if (o->json)
        putchar('\n');
    return stdout_finish(e);
}
