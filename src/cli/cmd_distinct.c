/* longhand distinct: Distinct-n of texts. Files are read in pieces; src/text/distinct.h counts. Start
 * at cmd_distinct. */
#include <stdlib.h>

#include "src/base/input.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/cli/verbs.h"
#include "src/text/distinct.h"

static int read_words(struct distinct *d, const char *path, struct err *e)
{
    enum { PIECE = 1 << 16 };
    char *piece = malloc(PIECE);
    const int fd = piece ? input_open(path, e) : err_set(e, ERR_FAILED, "out of memory");
    int rc = fd < 0 ? -1 : 0;
    ssize_t n = 0;
    while (rc == 0 && (n = input_read(fd, path, piece, PIECE, e)) > 0)
        rc = distinct_text(d, piece, (size_t)n, e) ? err_while(e, "%s", input_name(path)) : 0;
    if (rc == 0 && n == 0 && distinct_end(d, e))
        rc = err_while(e, "%s", input_name(path));
    input_close(fd);
    free(piece);
    return rc || n < 0 ? -1 : 0;
}

struct found { const char *file; size_t words; struct row rows[DISTINCT_MAX + 1]; };

/* Distinct-n of the words of a file. */
static int count_file(struct found *x, const char *file, struct err *e)
{
    static const char *const key[] = { "1", "2", "3", "4" },
                      *const label[] = { "distinct-1", "distinct-2", "distinct-3", "distinct-4" };
    struct distinct d;
    if (distinct_open(&d, e))
        return -1;
    const int rc = read_words(&d, file, e);
    x->file = file;
    x->words = d.total[0];
    for (size_t n = 0; n < DISTINCT_MAX && rc == 0; n++)
        x->rows[n] = (struct row){ key[n], label[n], V_DIGITS(distinct_ratio(&d, n + 1), 17), "@4" };
    distinct_close(&d);
    return rc;
}

static void file_row(const void *of, size_t i, struct row *cell)
{
    const struct found *x = (const struct found *)of + i;
    cell[0] = (struct row){ "file", "file", V_TEXT(x->file) };
    cell[1] = (struct row){ "n_words", "words", V_UINT(x->words) };
    cell[2] = (struct row){ "words", NULL, V_ROWS(x->rows) };
}

/* With --json one file is an object; several files are an array of objects, as in every verb. */
int cmd_distinct(const struct options *o, struct err *e)
{
    struct found *v = calloc(o->n_args + 1, sizeof *v);
    int rc = v ? 0 : err_set(e, ERR_FAILED, "out of memory");
    for (size_t i = 0; i < o->n_args && rc == 0; i++)
        rc = count_file(&v[i], o->arg[i], e);
    if (rc == 0)
        sheet_list(o->json, &(struct table){ o->n_args, file_row, v });
    rc = rc ? rc : stdout_finish(e);
    free(v);
    return rc;
}
