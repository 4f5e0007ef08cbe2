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

static int show(const struct options *o, struct store_part *p, struct err *e)
{
    struct json_writer w = { .f = stdout, .digits = 15, .style = JW_INDENTED };
    const bool list = o->json && p->jobs.n != 1;
    if (list)
        jw_open(&w, NULL, '[');
    for (size_t i = 0; i < p->jobs.n; i++)
        if (put_shown_job(o->json ? &w : NULL, p->store, &p->jobs.v[i], e))
            return -1;
    if (list)
        jw_close(&w, ']');
    if (o->json)
        putchar('\n');
    return stdout_finish(e);
}

int cmd_show(const struct options *o, struct err *e) { return with_jobs(o, STORE_READ, false, show, e); }

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
    size_t n = s && *s ? strlen(s) - 1 : 0, kept = 0;
    const struct json number = { .s = s, .end = s + n };
    uint64_t age;
    double unit = 0;
    if (!s)
        return 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (s[n] == units[i].unit)
            unit = units[i].seconds;
    if (!unit || !js_whole(&number, &age))
        return err_set(e, ERR_INPUT, "--older-than: '%s' is not a number and s, m, h or d, like 30d", s);
    for (size_t i = 0; i < jobs->n; i++)
        if (jobs->v[i].ended > 0 && wall_seconds() - jobs->v[i].ended >= (double)age * unit) {
            ids[kept] = ids[i];
            jobs->v[kept++] = jobs->v[i];
        }
    jobs->n = kept;
    return 0;
}

static const struct change { uint64_t verb; const char *done, *needed; enum change_kind kind; } changes[] = {
    { VERB_PAUSE, "paused", "queued or running", CHANGE_PAUSE },
    { VERB_RESUME, "queued again", "paused or failed", CHANGE_RESUME },
    { VERB_CANCEL, "cancelled", "queued, running, paused or failed", CHANGE_CANCEL },
    { VERB_REMOVE, "removed", "in the store", CHANGE_REMOVE_IDLE },
};

/* Makes the change. *n: the jobs that it changed. */
static int make_change(const struct change *v, const struct options *o, struct store_part *p, size_t *n,
                       struct err *e)
{
    const bool removes = v->verb == VERB_REMOVE;
    struct moved_model model;
    int rc = keep_older(o, p->ids, &p->jobs, e);
    if (rc == 0)
        rc = model_from_options(&model, o, p->store, &p->jobs, e);
    if (rc == 0 && model.given)
        rc = store_model_move(p->store, p->ids, p->jobs.n, &model.place, e);
    if (rc == 0 && p->jobs.n) {
        rc = store_change(p->store, o->force ? CHANGE_REMOVE : v->kind, 0, p->ids, p->jobs.n, n, e);
        if (rc && e->code == ERR_INPUT && removes)
            strncat(e->msg, ", or --force removes all of them", sizeof e->msg - strlen(e->msg) - 1);
    }
    return rc && e->system == ENOSPC && removes ? explain_full(p->store, p->ids, p->jobs.n, e) : rc;
}

static int change(const struct options *o, struct store_part *p, struct err *e)
{
    const struct change *v = changes;
    const struct job *first = p->jobs.v;
    size_t changed = 0;
    while (v->verb != o->verb->bit)
        v++;
    if (make_change(v, o, p, &changed, e))
        return -1;
    const size_t n = p->jobs.n;
    if (changed)
        snapshot_files_delete_unused(p->store);
    if (changed == 0 && n == 1 && !o->model)
        return err_set(e, ERR_INPUT, "job %" PRId64 " is %s, not %s%s", first->id,
                       job_state_name(first->state), v->needed,
                       first->gone ? "; its process has ended, and longhand work continues it" : "");
    if (o->model && !o->quiet)
        fprintf(stderr, "%zu %s: the model is at %s now\n", n, plural(n, "job", "jobs"), o->model);
    if (!o->quiet && (changed || !o->model))
        fprintf(stderr, "%zu %s %s%s%s\n", changed, plural(changed, "job", "jobs"), v->done,
                changed < n ? "; the others were not " : "", changed < n ? v->needed : "");
    return 0;
}

int cmd_change(const struct options *o, struct err *e)
{
    return with_jobs(o, STORE_WRITE, o->older_than != NULL, change, e);
}

static int set_priority(const struct options *o, struct store_part *p, struct err *e)
{
    size_t changed = 0;
    if (store_change(p->store, CHANGE_PRIORITY, (int)o->priority, p->ids, p->jobs.n, &changed, e))
        return -1;
    if (!changed && p->jobs.n == 1)
        return err_set(e, ERR_INPUT, "job %" PRId64 " is %s, and its priority means nothing", p->jobs.v[0].id,
                       job_state_name(p->jobs.v[0].state));
    if (!o->quiet)
        fprintf(stderr, "%zu %s priority %ld%s\n", changed, plural(changed, "job has", "jobs have"),
                o->priority, changed < p->jobs.n ? "; the others are done or cancelled" : "");
    return 0;
}

int cmd_priority(const struct options *o, struct err *e)
{
    struct options jobs_of = *o;
    jobs_of.n_args--;
    return parse_long(&jobs_of.priority, "priority: P", o->arg[o->n_args - 1], -1000000, 1000000, e) ||
           with_jobs(&jobs_of, STORE_WRITE, false, set_priority, e) ? -1 : 0;
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

static int redo(const struct options *o, struct store_part *p, struct err *e)
{
    const size_t n = p->jobs.n;
    int64_t *now = calloc(n + 1, sizeof *now);
    uint64_t *seed = calloc(n + 1, sizeof *seed);
    int rc = now && seed ? 0 : err_set(e, ERR_FAILED, "out of memory for %zu jobs", n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        seed[i] = p->jobs.v[i].line ? batch_line_seed(o->seed, p->jobs.v[i].custom_id) : o->seed;
    if (rc == 0)
        rc = store_redo(p->store, p->ids, n, options_given(o, "seed") ? seed : NULL, now, e);
    rc = rc ? rc : print_redone(o, &p->jobs, now, e);
    free(seed);
    free(now);
    return rc;
}

int cmd_redo(const struct options *o, struct err *e) { return with_jobs(o, STORE_WRITE, false, redo, e); }
