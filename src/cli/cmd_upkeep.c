/* longhand du, compact, backup: the size of a store, its free pages, and a copy of it. Start at cmd_du. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/input.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

static double megabytes(uint64_t n) { return (double)n / 1e6; }

static uint64_t sum_of(const struct job_bytes *b) { return b->text + b->input + b->figures + b->snapshots; }

/* ---- du ---- */

struct row_of_job { const struct job *job; struct job_bytes bytes; };

static int larger_first(const void *a, const void *b)
{
    const struct row_of_job *x = a, *y = b;
    const uint64_t m = sum_of(&x->bytes), n = sum_of(&y->bytes);
    return m != n ? (m < n) - (m > n) : (x->job->id > y->job->id) - (x->job->id < y->job->id);
}

static void du_row(const void *of, size_t i, struct row *cell)
{
    const struct row_of_job *v = (const struct row_of_job *)of + i;
    const struct job_bytes *b = &v->bytes;
    cell[0] = (struct row){ "job", "job", V_INT(v->job->id) };
    cell[1] = (struct row){ "state", "state", V_TEXT(job_state_name(v->job->state)) };
    cell[2] = (struct row){ "tokens", "tokens", V_UINT(v->job->tokens) };
    cell[3] = (struct row){ "text_bytes", "text", V_UINT(b->text) };
    cell[4] = (struct row){ "prompt_bytes", "prompt", V_UINT(b->input) };
    cell[5] = (struct row){ "figure_bytes", "figures", V_UINT(b->figures) };
    cell[6] = (struct row){ "snapshot_bytes", "snapshots", V_UINT(b->snapshots) };
}

static void du_print(bool json, const struct store *s, const struct row_of_job *v, size_t n,
                     const struct store_size *size)
{
    const struct table jobs = { n, du_row, v };
    uint64_t snapshots = 0;
    char label[200];
    for (size_t i = 0; i < n; i++)
        snapshots += v[i].bytes.snapshots;
    terminal_text(label, sizeof label - 1, store_path(s));
    strcat(label, ":");
    const struct row rows[] = {
        { "bytes", label, V_UINT(size->file), "@B" },
        { "unused_bytes", label, V_UINT(size->unused),
          size->unused ? "@B unused (longhand compact gives them back)" : "@B unused" },
        { "model_bytes", label, V_UINT(size->models), "@B of models" },
        { NULL, label, V_UINT(snapshots), "@B of snapshots beside it" },
        { "jobs", "", V_TABLE(&jobs) },
        { 0 } };
    sheet_print(json, JW_INDENTED, 15, rows);
}

static int du(const struct options *o, struct store_part *p, struct err *e)
{
    struct store_size size;
    const size_t n = p->jobs.n;
    struct job_bytes *bytes = calloc(n + 1, sizeof *bytes);
    struct row_of_job *v = calloc(n + 1, sizeof *v);
    int rc = !bytes || !v ? err_set(e, ERR_FAILED, "out of memory for %zu jobs", n)
                          : store_size(p->store, &size, e) || store_bytes(p->store, p->ids, n, bytes, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        v[i] = (struct row_of_job){ &p->jobs.v[i], bytes[i] };
    if (rc == 0) {
        qsort(v, n, sizeof *v, larger_first);
        du_print(o->json, p->store, v, n, &size);
    }
    free(v);
    free(bytes);
    return rc ? -1 : stdout_finish(e);
}

int cmd_du(const struct options *o, struct err *e) { return with_jobs(o, STORE_READ, true, du, e); }

/* ---- compact, backup ---- */

int cmd_compact(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct store_size before, after;
    if (store_from_options(&s, o, STORE_WRITE, e))
        return -1;
    int rc = store_compact(s, &before, &after, e);
    if (rc)
        err_while(e, "the store stays as it is (compact needs %.0f MB of free space beside it)",
                  megabytes(before.file) + 1);
    else if (!o->quiet)
        fprintf(stderr, "%s: %.2f MB, before %.2f MB\n", store_path(s), megabytes(after.file),
                megabytes(before.file));
    store_close(s);
    return rc;
}

int cmd_backup(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct store_size size;
    const char *path = o->arg[0];
    char files[PATH_BYTES];
    if (strcmp(path, "-") == 0)
        return err_set(e, ERR_INPUT, "backup: '-' is not the name of a file; SQLite writes to files only");
    if (store_from_options(&s, o, STORE_READ, e))
        return -1;
    int rc = same_file(path, store_path(s))
                 ? err_set(e, ERR_INPUT, "%s: this is the store itself; any other file is allowed", path)
                 : store_backup(s, path, o->force, e);
    if (rc == 0 && !o->quiet && store_size(s, &size, e) == 0)
        fprintf(stderr, "%s: %.2f MB\n", path, megabytes(size.file));
    snprintf(files, sizeof files, "%.4000s.files", store_path(s));
    if (rc == 0 && !o->quiet && access(files, F_OK) == 0)
        fprintf(stderr, "the files and batches of longhand serve in %s are not in it\n", files);
    store_close(s);
    return rc;
}
