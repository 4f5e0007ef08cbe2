/* Progress of a queue on standard error. Start at queue_progress_at. */
#include "runs/work/queue_progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/notice.h"
#include "src/base/output.h"

static const double LINE_SECONDS = 1, JSON_SECONDS = 5;

/* What is shown. */
struct queue_view {
    size_t jobs, done, failed, running;  /* `done` counts failed ones, too */
    size_t tokens, wanted;
    double rate;                         /* tokens per second; 0: not known */
};

static struct queue_view view_of(struct queue_progress *q, const struct store_counts *n)
{
    const size_t *was = q->before.jobs;
    q->rate = n->rate > 0 ? n->rate : q->rate;
    struct queue_view v = { .failed = n->jobs[JOB_FAILED] - MIN(n->jobs[JOB_FAILED], was[JOB_FAILED]),
                            .running = n->jobs[JOB_RUNNING], .rate = q->rate };
    const size_t over = n->jobs[JOB_DONE] + n->jobs[JOB_FAILED];
    v.done = over - MIN(over, was[JOB_DONE] + was[JOB_FAILED]);
    v.jobs = v.done + n->jobs[JOB_QUEUED] + n->jobs[JOB_RUNNING];
    v.tokens = n->tokens - MIN(n->tokens, q->before.tokens);
    v.wanted = v.tokens + n->open_tokens;
    return v;
}

/* "@book: 12 of 350 jobs (1 failed), 4096 of 70000 tokens (5.9 %), 850.3 tokens/s, 1:23 left" */
static void put_text(char *out, size_t size, const struct queue_progress *q, const struct queue_view *v)
{
    char name[77] = "", failed[40] = "", left[32], speed[80] = "";
    if (q->batch)
        terminal_text(name, sizeof name, q->batch);
    if (v->failed)
        snprintf(failed, sizeof failed, " (%zu failed)", v->failed);
    if (v->rate > 0) {
        duration_text(left, (double)(v->wanted - v->tokens) / v->rate);
        snprintf(speed, sizeof speed, ", %.1f tokens/s, %s left", v->rate, left);
    }
    snprintf(out, size, "%s%s%s%zu of %zu %s%s, %zu of %zu %s (%.1f %%)%s",
             q->batch ? "@" : "", name, q->batch ? ": " : "", v->done, v->jobs,
             plural(v->jobs, "job", "jobs"), failed, v->tokens, v->wanted,
             plural(v->wanted, "token", "tokens"),
             v->wanted ? 100.0 * (double)v->tokens / (double)v->wanted : 100.0, speed);
}

static void show_json(const struct queue_progress *q, const struct queue_view *v)
{
    struct json_writer w = jw_begin(stderr, JW_LINE, 0);
    jw_text(&w, "phase", "queue");
    jw_text(&w, "name", q->batch);
    jw_uint(&w, "jobs", v->jobs);
    jw_uint(&w, "done", v->done);
    jw_uint(&w, "failed", v->failed);
    jw_uint(&w, "running", v->running);
    jw_uint(&w, "tokens", v->tokens);
    jw_uint(&w, "of", v->wanted);
    jw_uint(&w, "waiting", v->jobs - v->done - v->running);
    if (q->memory)
        jw_uint(&w, "memory_bytes", q->memory);
    jw_format(&w, "tokens_per_second", "%.3f", v->rate > 0 ? v->rate : NAN);
    jw_format(&w, "eta_seconds", "%.1f", v->rate > 0 ? (double)(v->wanted - v->tokens) / v->rate : NAN);
    jw_end(&w);
}

void queue_progress_at(struct queue_progress *q)
{
    const double now = clock_seconds();
    const int how = q->show->show;
    const bool first = q->shown == 0;
    struct store_counts n;
    struct err ignored;
    char line[64 * 260 + 400];           /* with the lines of the jobs */
    if (how == SHOW_NOTHING ||
        (!first && now - q->shown < progress_pace(q->show, LINE_SECONDS, JSON_SECONDS)) ||
        store_counts(q->store, q->batch, &n, &ignored))
        return;
    if (first && !q->batch)
        q->before = n;
    const struct queue_view v = view_of(q, &n);
    q->shown = now;
    q->visible = v.jobs > 1;
    if (q->visible && how == SHOW_JSON)
        show_json(q, &v);
    if (!q->visible || first || how == SHOW_JSON)
        return;
    put_text(line, 400, q, &v);
    if (how == SHOW_LINE) {
        size_t at = strlen(line);
        at += (size_t)snprintf(line + at, 100, "; %zu running, %zu waiting", v.running,
                               v.jobs - v.done - v.running);
        if (q->memory)
            at += (size_t)snprintf(line + at, 100, ", %.0f MB", (double)q->memory / 1e6);
        if (q->jobs && progress_rows() > 2)
            q->jobs(q->ctx, line + at, sizeof line - at, progress_rows() - 2);
    }
    progress_text(q->show, line, 0);
}

/* ---- names ---- */

const char *job_name(char *out, size_t size, int64_t id, const struct job *j)
{
    char name[300] = "";
    if (j)
        job_label(name, sizeof name, j);
    snprintf(out, size, "%" PRId64 "%s%s", id, *name ? " " : "", name);
    return out;
}

enum { NAMED = 5 };

void job_names_add(struct job_names *x, const struct job *j, const char *more)
{
    char name[340];
    const size_t at = strlen(x->list);
    if (x->n++ < NAMED)
        snprintf(x->list + at, sizeof x->list - at, "%s%.300s%s", at ? ", " : "",
                 job_name(name, sizeof name, j->id, j), more);
}

void job_names_say(const struct job_names *x, bool json, bool cut)
{
    const char *what = cut ? plural(x->n, "text was cut short by the loop rule",
                                    "texts were cut short by the loop rule")
                           : plural(x->n, "chapter waits", "chapters wait");
    if (x->n)
        notice(json,
               (struct row[]){ NOTICE_TEXT("phase", cut ? "cut short" : "waiting"),
                                         NOTICE_UINT("jobs", x->n), NOTICE_TEXT("first", x->list),
                                         NOTICE_END },
               "%zu %s: job %s%s", x->n, what, x->list, x->n > NAMED ? ", .." : "");
}
