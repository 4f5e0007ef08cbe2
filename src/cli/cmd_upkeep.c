/* longhand du, compact, backup: the size of a store, its free pages, and a copy of it. Start at cmd_du. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

static double megabytes(uint64_t n) { return (double)n / 1e6; }

static uint64_t sum_of(const struct job_bytes *b) { return b->text + b->input + b->figures + b->snapshots; }

/* ---- du ---- */

struct row { const struct job *job; struct job_bytes bytes; };

static int larger_first(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    const uint64_t m = sum_of(&x->bytes), n = sum_of(&y->bytes);
    return m != n ? (m < n) - (m > n) : (x->job->id > y->job->id) - (x->job->id < y->job->id);
}

static void du_json(const struct row *v, size_t n, const struct store_size *size)
{
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 15);
    jw_uint(&w, "bytes", size->file);
    jw_uint(&w, "unused_bytes", size->unused);
    jw_uint(&w, "model_bytes", size->models);
    jw_open(&w, "jobs", '[');
    for (size_t i = 0; i < n; i++) {
        jw_open(&w, NULL, '{');
        jw_int(&w, "job", v[i].job->id);
        jw_text(&w, "state", job_state_name(v[i].job->state));
        jw_uint(&w, "tokens", v[i].job->tokens);
        jw_uint(&w, "text_bytes", v[i].bytes.text);
        jw_uint(&w, "prompt_bytes", v[i].bytes.input);
        jw_uint(&w, "figure_bytes", v[i].bytes.figures);
        jw_uint(&w, "snapshot_bytes", v[i].bytes.snapshots);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_end(&w);
}

static void du_text(const struct store *s, const struct row *v, size_t n, const struct store_size *size)
{
    uint64_t snapshots = 0;
    char path[200];
    printf("%6s  %-9s  %12s  %12s  %12s  %14s\n", "job", "state", "text", "prompt", "figures", "snapshots");
    for (size_t i = 0; i < n; i++) {
        const struct job_bytes *b = &v[i].bytes;
        snapshots += b->snapshots;
        printf("%6" PRId64 "  %-9s  %12" PRIu64 "  %12" PRIu64 "  %12" PRIu64 "  %14" PRIu64 "\n",
               v[i].job->id, job_state_name(v[i].job->state), b->text, b->input, b->figures, b->snapshots);
    }
    terminal_text(path, sizeof path, store_path(s));
    printf("%s: %.2f MB, of which %.2f MB are unused%s and %.2f MB are models; snapshots beside it: "
           "%.2f MB\n",
           path, megabytes(size->file), megabytes(size->unused),
           size->unused ? " (longhand compact gives them back)" : "", megabytes(size->models),
           megabytes(snapshots));
}

int cmd_du(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct job_list jobs = {0};
    struct store_size size;
    int64_t *ids = NULL;
    if (store_from_options(&s, o, STORE_READ, e))
        return -1;
    int rc = jobs_from_options(s, o, true, &ids, &jobs, e);
    struct job_bytes *bytes = calloc(jobs.n + 1, sizeof *bytes);
    struct row *v = calloc(jobs.n + 1, sizeof *v);
    if (rc == 0 && (!bytes || !v))
        rc = err_set(e, ERR_FAILED, "out of memory for %zu jobs", jobs.n);
    if (rc == 0)
        rc = store_size(s, &size, e) || store_bytes(s, ids, jobs.n, bytes, e) ? -1 : 0;
    if (rc == 0) {
        for (size_t i = 0; i < jobs.n; i++)
            v[i] = (struct row){ &jobs.v[i], bytes[i] };
        qsort(v, jobs.n, sizeof *v, larger_first);
        if (o->json)
            du_json(v, jobs.n, &size);
        else
            du_text(s, v, jobs.n, &size);
        rc = stdout_finish(e);
    }
    free(v);
    free(bytes);
    free(ids);
    job_list_free(&jobs);
    store_close(s);
    return rc;
}

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
