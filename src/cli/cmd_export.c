/* longhand export, and run --batch: submit, work, export. Start at cmd_export and cmd_run_batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/export.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/request/batch.h"

int cmd_export(const struct options *o, struct err *e)
{
    struct store_parts p = {0};
    struct export_counts n;
    const struct export_options how = { o->export_format, o->partial, o->gzip, o->output, o->fields,
                                        .between = o->between, .headings = o->headings,
                                        .with_thinking = o->with_thinking, .force = o->force };
    if (!options_given(o, "format"))
        return err_set(e, ERR_INPUT,
                       "export: --format is missing; text, ids, jsonl, csv and openai-batch are allowed");
    if ((o->between || o->headings) && o->export_format != FORMAT_TEXT)
        return err_set(e, ERR_INPUT, "--%s is for --format text", o->between ? "between" : "headings");
    if (o->between && o->dir)
        return err_set(e, ERR_INPUT, "--between and --dir: only one of them is allowed");
    stop_signals_catch();
    int rc = parts_from_options(&p, o, false, e);
    struct export_source *v = rc ? NULL : calloc(p.n, sizeof *v);
    if (rc == 0 && !v)
        rc = err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0 && o->dir)
        rc = export_dir(o, &p, &n, e);
    for (size_t i = 0; rc == 0 && i < p.n; i++)
        v[i] = (struct export_source){ p.v[i].store, &p.v[i].jobs };
    if (rc == 0 && !o->dir)
        rc = export_jobs(&how, v, p.n, &n, e);
    if (rc == 0 && n.left_out && !o->quiet)
        fprintf(stderr, "%zu %s\n", n.left_out,
                plural(n.left_out, "job is not done and was left out; --partial exports its text so far",
                       "jobs are not done and were left out; --partial exports their texts so far"));
    if (rc == 0 && n.thinking)
        request_notice(o, "%zu %s", n.thinking,
                       plural(n.thinking,
                              "text has no answer after its thoughts; --with-thinking exports them",
                              "texts have no answer after their thoughts; --with-thinking exports them"));
    free(v);
    parts_close(&p);
    return rc;
}

/* ---- run --batch ---- */

static int check_options(const struct options *o, struct err *e)
{
    static const char *const others[] = { "resume", "from-here", "json-stats", "format" };
    struct sink out;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(o, others[i]))
            return err_set(e, ERR_INPUT, "--batch and --%s: only one of them is allowed", others[i]);
    if (sink_open(&out, o->output, e))               /* an output that fails is known before hours of work */
        return -1;
    sink_abandon(&out);
    return 0;
}

/* run --batch replaces its own earlier output: a file whose lines are all of the stored batch. */
static int check_earlier(const struct options *o, const char *batch, struct store *s, struct err *e)
{
    const struct export_options how = { .format = FORMAT_OPENAI, .output = o->output, .partial = true,
                                        .only_checks = true };
    char word[BATCH_NAME_BYTES_MAX + 2];
    struct job_list jobs = {0};
    struct export_counts n;
    if (o->force || !o->output || !sink_replaces(o->output))
        return 0;
    snprintf(word, sizeof word, "@%s", batch);
    jobs_from_word(s, word, &jobs, e);               /* of a new batch there is no job */
    const int rc = export_jobs(&how, &(struct export_source){ s, &jobs }, 1, &n, e);
    job_list_free(&jobs);
    return rc;
}

/* Exports the batch when all its jobs have ended, sets the exit code, names the texts that were cut short.
 * worked: the result of work_queue. */
static int export_batch(const struct options *o, const struct batch *b, struct store *s, int worked,
                     struct err *e)
{
    const struct export_options how = { .format = FORMAT_OPENAI, .output = o->output, .force = true };
    struct job_list jobs;
    struct export_counts n;
    size_t count[JOB_STATES] = {0};
    struct job_names cut = {0};
    struct err ignored;
    if (store_jobs(s, b->ids, b->n, &jobs, worked ? &ignored : e))
        return -1;
    for (size_t i = 0; i < jobs.n; i++) {
        count[jobs.v[i].state]++;
        if (job_is_cut_short(&jobs.v[i]))
            job_names_add(&cut, &jobs.v[i], "");
    }
    int rc = worked;
    if (jobs.n < b->n || count[JOB_QUEUED] + count[JOB_RUNNING] + count[JOB_PAUSED] > 0) {
        if (!worked)
            err_set(e, ERR_AGAIN,
                    "@%s: %zu %s paused, %zu queued, %zu running, %zu removed; longhand resume "
                    "@%s and the same command continue",
                    b->name, count[JOB_PAUSED], plural(count[JOB_PAUSED], "job is", "jobs are"),
                    count[JOB_QUEUED], count[JOB_RUNNING], b->n - jobs.n,
                    b->name);
        rc = -1;
    } else if (!worked || e->code == ERR_FAILED) {
        const struct export_source one = { s, &jobs };
        rc = check_earlier(o, b->name, s, e) || export_jobs(&how, &one, 1, &n, e) ? -1 : 0;
    }
    if (rc == 0 && count[JOB_FAILED] + count[JOB_CANCELLED])
        rc = err_set(e, ERR_FAILED,
                     "@%s: %zu of %zu %s failed, %zu cancelled; longhand resume @%s queues failed "
                     "jobs again, and the same command continues",
                     b->name, count[JOB_FAILED], jobs.n, plural(jobs.n, "job", "jobs"),
                     count[JOB_CANCELLED], b->name);
    if (!o->quiet)
        job_names_say(&cut, o->progress == PROGRESS_JSON, true);
    job_list_free(&jobs);
    return rc;
}

int cmd_run_batch(const struct options *o, struct err *e)
{
    struct batch b = {0};
    struct store *s = NULL;
    struct store_counts n;
    size_t parallel;
    int rc = check_options(o, e) || parallel_from_options(o, &parallel, e) || batch_open(&b, o, e) ||
             store_from_options(&s, o, STORE_CREATE, e) || check_earlier(o, b.name, s, e) ||
             batch_submit(&b, s, e) ? -1 : 0;
    if (rc == 0) {
        rc = work_queue(o, s, b.name, e);
        if (rc && e->code == ERR_AGAIN && stop_signal && store_counts(s, b.name, &n, e) == 0) {
            const size_t left = n.jobs[JOB_QUEUED] + n.jobs[JOB_RUNNING];
            err_set(e, ERR_AGAIN, "stopped by %s; %zu %s of @%s %s left, the same command continues",
                    stop_signal_name(), left, plural(left, "job", "jobs"), b.name,
                    plural(left, "is", "are"));
        }
        rc = export_batch(o, &b, s, rc, e);
    }
    store_close(s);
    batch_close(&b);
    return rc;
}
