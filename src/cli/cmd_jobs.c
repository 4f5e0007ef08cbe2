/* longhand show, pause, resume, cancel, remove, priority, redo: all about single jobs, and changes of their
 * state. Start at cmd_show and cmd_change. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/job_sheet.h"
#include "runs/report/report.h"
#include "runs/work/snapshot_files.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/request/batch.h"

/* ---- show ---- */

int cmd_show(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    struct json_writer w = { .f = stdout, .digits = 15, .style = JW_INDENTED };
    if (store_from_options(&s, o, STORE_READ, e))
        return -1;
    int rc = jobs_from_options(s, o, false, &ids, &jobs, e);
    const bool list = rc == 0 && o->json && jobs.n != 1;
    if (list)
        jw_open(&w, NULL, '[');
    for (size_t i = 0; rc == 0 && i < jobs.n; i++)
        rc = put_shown_job(o->json ? &w : NULL, s, &jobs.v[i], e);
    if (list)
        jw_close(&w, ']');
    if (rc == 0 && o->json)
        putchar('\n');
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc ? rc : stdout_finish(e);
}

/* ---- pause, resume, cancel, remove ---- */

/* How to remove jobs from a store on a full disk: SQLite's journal holds the pages that change until they
 * have changed. Always -1. */
static int explain_full(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    struct err ignored;
    uint64_t bytes = 1 << 16, snapshots = 0;
    struct job_bytes *v = calloc(n + 1, sizeof *v);
    if (v && store_bytes(s, ids, n, v, &ignored) == 0)
        for (size_t i = 0; i < n; i++) {
            bytes += v[i].text + v[i].input + v[i].figures;
            snapshots += v[i].snapshots;
        }
    free(v);
    const struct err why = *e;
    return err_set(
        e, ERR_FAILED,
        "%.500s; nothing was removed. Removing these jobs takes about %.1f MB of free space until it "
        "is done, and fewer jobs take less; the files in %.300s.snapshots (%.1f MB of these jobs) "
        "are never needed and can be deleted first",
        why.msg, (double)bytes * 1.5 / 1e6, store_path(s), (double)snapshots / 1e6);
}

/* --older-than: leaves the jobs that ended at least that long ago. */
static int keep_older(const struct options *o, int64_t *ids, struct job_list *jobs, struct err *e)
{
    static const struct { char unit; double seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    const char *s = o->older_than;
    char digits[16];
    size_t n = s ? strspn(s, "0123456789") : 0, age = 0, kept = 0;
    double unit = 0;
    if (!s)
        return 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (s[n] == units[i].unit && !s[n + 1])
            unit = units[i].seconds;
    snprintf(digits, sizeof digits, "%.*s", (int)MIN(n, sizeof digits - 1), s);
    if (!n || n >= sizeof digits || !unit)
        return err_set(e, ERR_INPUT, "--older-than: '%s' is not a number and s, m, h or d, like 30d", s);
    if (parse_size(&age, "--older-than", digits, 0, 1000000000, e))
        return -1;
    for (size_t i = 0; i < jobs->n; i++)
        if (jobs->v[i].ended > 0 && wall_seconds() - jobs->v[i].ended >= (double)age * unit) {
            ids[kept] = ids[i];
            jobs->v[kept++] = jobs->v[i];
        }
    jobs->n = kept;
    return 0;
}

int cmd_change(const struct options *o, struct err *e)
{
    static const struct { uint64_t verb; const char *done, *needed; int (*change)(struct store *,
        const int64_t *, size_t, size_t *, struct err *);
    } verbs[] = {
        { VERB_PAUSE, "paused", "queued or running", store_pause },
        { VERB_RESUME, "queued again", "paused or failed", store_resume },
        { VERB_CANCEL, "cancelled", "queued, running, paused or failed", store_cancel },
        { VERB_REMOVE, "removed", "in the store", store_remove_unless_running },
    };
    struct store *s = NULL;
    struct job_list jobs = {0};
    struct moved_model model;
    int64_t *ids = NULL;
    size_t k = 0, changed = 0;
    while (verbs[k].verb != o->verb->bit)
        k++;
    if (store_from_options(&s, o, STORE_WRITE, e))
        return -1;
    int rc = jobs_from_options(s, o, o->older_than != NULL, &ids, &jobs, e);
    if (rc == 0)
        rc = keep_older(o, ids, &jobs, e);
    if (rc == 0)
        rc = model_from_options(&model, o, s, &jobs, e);
    if (rc == 0 && model.given)
        rc = store_model_move(s, ids, jobs.n, &model.place, e);
    if (rc == 0 && jobs.n) {
        rc = (o->force ? store_remove : verbs[k].change)(s, ids, jobs.n, &changed, e);
        if (rc && e->code == ERR_INPUT && verbs[k].verb == VERB_REMOVE)
            strncat(e->msg, ", or --force removes all of them", sizeof e->msg - strlen(e->msg) - 1);
    }
    if (rc && e->system == ENOSPC && verbs[k].verb == VERB_REMOVE)
        rc = explain_full(s, ids, jobs.n, e);
    if (rc == 0 && changed)
        snapshot_files_delete_unused(s);
    if (rc == 0 && changed == 0 && jobs.n == 1 && !o->model)
        rc = err_set(e, ERR_INPUT, "job %" PRId64 " is %s, not %s%s", jobs.v[0].id,
                     job_state_name(jobs.v[0].state), verbs[k].needed,
                     jobs.v[0].gone ? "; its process has ended, and longhand work continues it" : "");
    if (rc == 0 && o->model && !o->quiet)
        fprintf(stderr, "%zu %s: the model is at %s now\n", jobs.n, plural(jobs.n, "job", "jobs"), o->model);
    if (rc == 0 && !o->quiet && (changed || !o->model))
        fprintf(stderr, "%zu %s %s%s%s\n", changed, plural(changed, "job", "jobs"), verbs[k].done,
                changed < jobs.n ? "; the others were not " : "", changed < jobs.n ? verbs[k].needed : "");
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc;
}

int cmd_priority(const struct options *o, struct err *e)
{
    struct options jobs_of = *o;
    struct store *s = NULL;
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t changed = 0;
    long p;
    jobs_of.n_args--;
    if (parse_long(&p, "priority: P", o->arg[o->n_args - 1], -1000000, 1000000, e) ||
        store_from_options(&s, o, STORE_WRITE, e))
        return -1;
    int rc = jobs_from_options(s, &jobs_of, false, &ids, &jobs, e);
    if (rc == 0)
        rc = store_priority(s, ids, jobs.n, (int)p, &changed, e);
    if (rc == 0 && !changed && jobs.n == 1)
        rc = err_set(e, ERR_INPUT, "job %" PRId64 " is %s, and its priority means nothing", jobs.v[0].id,
                     job_state_name(jobs.v[0].state));
    else if (rc == 0 && !o->quiet)
        fprintf(stderr, "%zu %s priority %ld%s\n", changed, plural(changed, "job has", "jobs have"), p,
                changed < jobs.n ? "; the others are done or cancelled" : "");
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc;
}

/* ---- redo ---- */

/* Prints the numbers of the new jobs, one a line. */
static int print_redone(const struct options *o, const struct job_list *jobs, const int64_t *now,
                        struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++)
        n += now[i] != 0;
    if (!n && jobs->n == 1)
        return err_set(e, ERR_INPUT, "job %" PRId64 " is %s%s", jobs->v[0].id,
                       job_state_name(jobs->v[0].state),
                       jobs->v[0].state < JOB_DONE
                           ? ", not done, failed or cancelled"
                           : " and was redone before; longhand show names its successor");
    if (!o->quiet)
        fprintf(stderr, "%zu %s queued again under another sample number%s\n", n, plural(n, "text", "texts"),
                n < jobs->n ? "; the others have not ended, or were redone before" : "");
    for (size_t i = 0; i < jobs->n; i++)
        if (now[i])
            printf("%" PRId64 "\n", now[i]);
    return stdout_finish(e);
}

int cmd_redo(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct job_list jobs = {0};
    int64_t *ids = NULL, *now = NULL;
    uint64_t *seed = NULL;
    if (store_from_options(&s, o, STORE_WRITE, e))
        return -1;
    int rc = jobs_from_options(s, o, false, &ids, &jobs, e);
    if (rc == 0 && (!(now = calloc(jobs.n + 1, sizeof *now)) || !(seed = calloc(jobs.n + 1, sizeof *seed))))
        rc = err_set(e, ERR_FAILED, "out of memory for %zu jobs", jobs.n);
    for (size_t i = 0; rc == 0 && i < jobs.n; i++)
        seed[i] = jobs.v[i].line ? batch_line_seed(o->seed, jobs.v[i].custom_id) : o->seed;
    if (rc == 0)
        rc = store_redo(s, ids, jobs.n, options_given(o, "seed") ? seed : NULL, now, e);
    rc = rc ? rc : print_redone(o, &jobs, now, e);
    free(seed);
    free(now);
    free(ids);
    job_list_free(&jobs);
    store_close(s);
    return rc;
}
