/* longhand export --dir: one file per job. All names are made and checked before the first file is written.
 * Start at export_dir. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runs/report/export.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/request/output_check.h"

enum { NAME_BYTES_MAX = 200 };           /* file systems allow 255, with an end and a number */

struct file {
    const struct job *job;
    struct store *store;
    char name[NAME_BYTES_MAX + 48];
};

static bool is_exported(const struct options *o, const struct job *j)
{
    return j->state == JOB_DONE || o->partial;
}

/* Names the file after custom_id, name or number, with the sample at the end. Bytes that mean something to a
 * shell or to other systems become _. */
static void make_name(struct file *f)
{
    const struct job *j = f->job;
    const char *from = j->custom_id && *j->custom_id ? j->custom_id : j->batch, *slash;
    char own[PATH_BYTES], sample[24];
    size_t n = 0;
    if (!from) {
        snprintf(f->name, sizeof f->name, "job-%" PRId64, j->id);
        return;
    }
    snprintf(sample, sizeof sample, "%" PRIu32, j->sample);
    if (j->batch && !j->line && strcmp(from, sample) == 0) {     /* run, submit --name NAME --samples N */
        snprintf(own, sizeof own, "%s/%s", j->batch, sample);
        from = own;
    }
    slash = strrchr(from, '/');
    const bool has_sample = slash && strcmp(slash + 1, sample) == 0;
    for (; from[n] && n < NAME_BYTES_MAX; n++) {
        const char c = from[n];
        const bool safe = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c & 0x80) ||
                          (c && strchr("-_=,+@", c)) || (c == '.' && n);
        f->name[n] = safe ? c : '_';
    }
    n = utf8_valid_prefix(f->name, n);
    f->name[n] = 0;
    if (j->sample && !has_sample)
        snprintf(f->name + n, sizeof f->name - n, "-%" PRIu32, j->sample);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct file *const *)a)->name, (*(struct file *const *)b)->name);
}

/* Adds the job's number to names that several jobs have. */
static int tell_apart(struct file *v, size_t n, struct err *e)
{
    struct file **order = malloc((n + 1) * sizeof *order);
    if (!order)
        return err_set(e, ERR_FAILED, "out of memory");
    for (size_t i = 0; i < n; i++)
        order[i] = &v[i];
    qsort(order, n, sizeof *order, by_name);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(order[i]->name, order[end]->name) == 0;)
            end++;
        for (size_t k = i; k < end && end - i > 1; k++) {
            const size_t at = strlen(order[k]->name);
            snprintf(order[k]->name + at, sizeof order[k]->name - at, "-job%" PRId64, order[k]->job->id);
        }
    }
    qsort(order, n, sizeof *order, by_name);
    int rc = 0;
    for (size_t i = 1; i < n && rc == 0; i++)
        if (strcmp(order[i]->name, order[i - 1]->name) == 0)
            rc = err_set(e, ERR_INPUT, "--dir: two jobs would be written to %s; export them to two folders",
                         order[i]->name);
    free(order);
    return rc;
}

static int path_of(char path[PATH_BYTES], const struct options *o, const struct file *f, struct err *e)
{
    static const char *const ends[] = { [FORMAT_TEXT] = "txt", [FORMAT_IDS] = "ids",
                                        [FORMAT_JSONL] = "jsonl", [FORMAT_CSV] = "csv" };
    int n = snprintf(path, PATH_BYTES, "%s/%s.%s%s", o->dir, f->name, ends[o->export_format],
                     o->gzip ? ".gz" : "");
    return n < PATH_BYTES - 16
               ? 0
               : err_set(e, ERR_INPUT, "--dir: %s: a path of %d bytes is too long", o->dir, n);
}

static int check_paths(const struct options *o, const struct file *v, size_t n, struct err *e)
{
    char path[PATH_BYTES];
    struct stat st;
    if (mkdir(o->dir, 0777) && errno != EEXIST)
        return err_set(e, ERR_INPUT, "--dir: %s: cannot make the folder: %s", o->dir, strerror(errno));
    for (size_t i = 0; i < n; i++) {
        if (path_of(path, o, &v[i], e))
            return -1;
        if (!o->force && lstat(path, &st) == 0)
            return err_set(e, ERR_INPUT, "--dir: %s exists, and no file is overwritten without --force; "
                           "nothing was exported", path);
        if (output_kept(o, "dir", path, e))
            return -1;
    }
    return 0;
}

/* *thinking counts the texts without an answer. */
static int write_file(const struct options *o, const struct file *f, size_t *thinking, struct err *e)
{
    char path[PATH_BYTES];
    struct job job = *f->job;
    struct job_list one = { .v = &job, .n = 1 };
    struct export_counts n = {0};
    if (path_of(path, o, f, e))
        return -1;
    const struct export_options how = { o->export_format, o->partial, o->gzip, path, o->fields, !o->force,
                                        .force = true, .headings = o->headings,
                                        .with_thinking = o->with_thinking };
    const int rc = export_jobs(&how, &(struct export_source){ f->store, &one }, 1, &n, e);
    *thinking += n.thinking;
    return rc;
}

int export_dir(const struct options *o, const struct store_parts *p, struct export_counts *n, struct err *e)
{
    size_t jobs = 0, k = 0, done = 0;
    *n = (struct export_counts){0};
    if (strcmp(o->dir, "-") == 0)
        return err_set(e, ERR_INPUT, "--dir: '-' is not the name of a folder");
    if (o->output || o->export_format == FORMAT_OPENAI)
        return err_set(e, ERR_INPUT, "--dir and --%s: only one of them is allowed",
                       o->output ? "output" : "format openai-batch");
    for (size_t i = 0; i < p->n; i++)
        jobs += p->v[i].jobs.n;
    struct file *v = calloc(jobs + 1, sizeof *v);
    if (!v)
        return err_set(e, ERR_FAILED, "out of memory for %zu names", jobs);
    for (size_t i = 0; i < p->n; i++)
        for (size_t j = 0; j < p->v[i].jobs.n; j++)
            if (is_exported(o, &p->v[i].jobs.v[j])) {
                v[k] = (struct file){ .job = &p->v[i].jobs.v[j], .store = p->v[i].store };
                make_name(&v[k++]);
            }
    int rc = tell_apart(v, k, e) || check_paths(o, v, k, e) ? -1 : 0;
    for (; done < k && rc == 0; done += rc == 0)
        rc = stop_signal ? err_set(e, ERR_AGAIN, "stopped by %s after %zu of %zu %s", stop_signal_name(),
                                   done, k, plural(k, "file", "files"))
                         : write_file(o, &v[done], &n->thinking, e);
    free(v);
    n->exported = done;
    n->left_out = jobs - k;
    return rc;
}
