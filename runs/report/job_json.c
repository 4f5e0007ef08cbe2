/* Jobs as JSON. Start at put_job_json. */
#include "runs/report/job_json.h"
#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

double job_speed(const struct job *j)
{
    if (j->state == JOB_RUNNING)
        return j->rate;
    return j->seconds > 0 ? (double)j->made / j->seconds : 0;
}

/* Times and speeds are 0 while they are unknown. */
static void real_or_null(struct json_writer *w, const char *key, double x)
{
    jw_real(w, key, x > 0 ? x : NAN);
}

static void put_job_json(struct json_writer *w, const struct job *j, const char *db)
{
    jw_open(w, NULL, '{');
    report_put_names(w, j);
    jw_text(w, "state", job_state_name(j->state));
    jw_uint(w, "tokens", j->tokens);
    jw_uint(w, "given_tokens", j->given);
    jw_uint(w, "of", j->wanted);
    jw_uint(w, "prompt_tokens", j->prompt_tokens);
    jw_text(w, "model", j->model);
    jw_int(w, "priority", j->priority);
    real_or_null(w, "tokens_per_second", job_speed(j));
    report_put_end(w, j);
    jw_uint(w, "sample", j->sample);
    jw_text(w, "numerics", j->numerics);
    jw_wide(w, "seed", j->seed);
    jw_uint(w, "resumes", j->resumes);
    jw_int(w, "attempt", j->attempt);
    jw_number(w, "parent", j->parent ? (double)j->parent : NAN);
    jw_number(w, "parent_at", j->parent ? (double)j->parent_at : NAN);
    if (j->after) {
        jw_int(w, "after", j->after);
        jw_text(w, "waits_for", j->waits ? j->after_name : NULL);
        jw_bool(w, "older_text", j->older);
    }
    real_or_null(w, "created", j->created);
    real_or_null(w, "started", j->started);
    real_or_null(w, "updated", j->updated);
    real_or_null(w, "ended", j->ended);
    jw_text(w, "host", j->host);
    jw_number(w, "pid", j->host ? (double)j->pid : NAN);
    if (j->state == JOB_RUNNING)
        jw_bool(w, "worker_ended", j->gone);
    else
        jw_null(w, "worker_ended");
    real_or_null(w, "no_progress_seconds", j->stalled);
    if (db)
        jw_text(w, "db", db);
}

void put_jobs_json(struct json_writer *w, const struct job_list *jobs, const char *db)
{
    for (size_t i = 0; i < jobs->n; i++) {
        put_job_json(w, &jobs->v[i], db);
        jw_bool(w, "ran_alone", !jobs->v[i].shared);
        jw_close(w, '}');
    }
}

size_t job_snapshot_tokens(struct store *s, int64_t job)
{
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n;
    struct err ignored;
    return store_snapshot_list(s, job, row, &n, &ignored) == 0 && n ? row[n - 1].tokens : 0;
}

static void put_shown(struct json_writer *w, const struct job *j, const struct counts *c, size_t snapshot,
                      const struct job_input *in, const struct event_list *events, const struct retakes *l)
{
    put_job_json(w, j, NULL);
    jw_real(w, "mean_tokens_per_second", figure(c, "tokens_per_second"));
    jw_real(w, "worker_tokens_per_second", figure(c, "worker_tokens_per_second"));
    jw_real(w, "share_alone", figure(c, "share_alone"));
    jw_text(w, "fingerprint", j->fingerprint);
    jw_parsed(w, "parameters", in->parameters);
    jw_parsed(w, "metadata", in->metadata);
    jw_bytes(w, "prompt", in->prompt, in->prompt_bytes);
    jw_number(w, "snapshot_tokens", snapshot ? (double)snapshot : NAN);
    report_put_retakes(w, l);
    report_put_events(w, events);
    jw_close(w, '}');
}

int put_shown_json(struct json_writer *w, struct store *s, const struct job *j, struct err *e)
{
    struct job_input in = {0};
    struct event_list events = {0};
    struct retakes retakes = {0};
    struct counts c;
    figure_lists lists;
    const int rc = store_input(s, j->id, &in, e) || store_events(s, j->id, &events, e) ||
                   store_retakes(s, j->id, &retakes, NULL, e) || figures_read(&c, lists, s, j->id, e)
                       ? -1 : 0;
    if (rc == 0)
        put_shown(w, j, &c, job_snapshot_tokens(s, j->id), &in, &events, &retakes);
    event_list_free(&events);
    retakes_free(&retakes);
    job_input_free(&in);
    return rc;
}

void count_jobs(struct store_counts *n, const struct job_list *jobs)
{
    for (size_t k = 0; k < jobs->n; k++) {
        const struct job *j = &jobs->v[k];
        n->jobs[j->state]++;
        if (j->state <= JOB_DONE) {
            n->tokens += j->tokens;
            n->wanted += j->wanted;
        }
        if ((j->state == JOB_QUEUED || j->state == JOB_RUNNING) && j->wanted > j->tokens)
            n->open_tokens += j->wanted - j->tokens;
        n->rate += j->rate;
    }
}

void put_counts_json(struct json_writer *w, const struct store_counts *n, double estimate)
{
    jw_open(w, "counts", '{');
    for (int i = 0; i < JOB_STATES; i++)
        jw_uint(w, job_state_name((enum job_state)i), n->jobs[i]);
    jw_close(w, '}');
    jw_uint(w, "tokens", n->tokens);
    jw_uint(w, "of", n->wanted);
    jw_real(w, "tokens_per_second", n->rate);
    jw_real(w, "eta_seconds", n->rate > 0 ? (double)n->open_tokens / n->rate : NAN);
    jw_real(w, "estimate_seconds", estimate);
}
