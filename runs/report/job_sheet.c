/* What list, show and the server say of a job. Start at job_rows. */
#include "runs/report/job_sheet.h"
#include "runs/report/report.h"
#include "src/base/output.h"
#include "src/request/job_params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

double job_speed(const struct job *j)
{
    if (j->state == JOB_RUNNING)
        return j->rate;
    return j->seconds > 0 ? (double)j->made / j->seconds : 0;
}

/* Times and speeds are 0 while they are unknown. */
static struct value known(double x) { return (struct value)V_REAL(x > 0 ? x : NAN); }
static struct value whole(bool is_known, double x) { return (struct value)V_NUMBER(is_known ? x : NAN); }

/* The most rows of a job, and texts that they borrow. */
enum { JOB_ROWS_MAX = 48 };
struct job_texts { char head[32], of[40], name[600]; };

/* The rows of a job. db: the path of its database, or NULL. */
static void job_rows(struct row *out, struct job_texts *t, const struct job *j, const char *db)
{
    const bool writes = j->host && !j->gone;
    snprintf(t->head, sizeof t->head, "job %" PRId64 ":", j->id);
    snprintf(t->of, sizeof t->of, "@ of %zu %s", j->wanted, plural(j->wanted, "token", "tokens"));
    job_label(t->name, sizeof t->name, j);
    const struct row rows[] = {
        { "job", NULL, V_INT(j->id) },
        { NULL, t->head, V_TEXT(job_state_name(j->state)) },
        { "name", NULL, V_TEXT(j->batch) },
        { "custom_id", NULL, V_TEXT(j->custom_id) },
        { NULL, "name", V_TEXT(*t->name ? t->name : NULL) },
        { "state", NULL, V_TEXT(job_state_name(j->state)) },
        { "tokens", t->head, V_UINT(j->tokens), t->of },
        { "given_tokens", t->head, V_UINT(j->given), "(@ given)" },
        { "of", NULL, V_UINT(j->wanted) },
        { "prompt_tokens", NULL, V_UINT(j->prompt_tokens) },
        { "model", "model", V_TEXT(j->model) },
        { "priority", "priority", V_INT(j->priority) },
        { "tokens_per_second", j->state == JOB_RUNNING && writes ? "worker" : NULL, known(job_speed(j)),
          "@1 tokens/s" },
        { "finish_reason", t->head, V_TEXT(j->finish_reason), "finish reason @" },
        { "stop_reason", "stop reason", V_TEXT(j->stop_reason) },
        { "error", "error", V_TEXT(j->error) },
        { "sample", NULL, V_UINT(j->sample) },
        { "numerics", "numerics", V_TEXT(j->numerics) },
        { "seed", "seed", V_WIDE(j->seed) },
        { NULL, "seed", V_UINT(j->sample), "sample @" },
        { "resumes", NULL, V_UINT(j->resumes) },
        { "attempt", "attempt", V_INT(j->attempt) },
        { NULL, "attempt", V_UINT(j->resumes), plural(j->resumes, "@ resume", "@ resumes") },
        { "parent", NULL, whole(j->parent, (double)j->parent) },
        { "parent_at", NULL, whole(j->parent, (double)j->parent_at) },
        { "after", "continues", V_INT(j->after), "job @", .unless = !j->after },
        { "waits_for", NULL, V_TEXT(j->waits ? j->after_name : NULL), .unless = !j->after },
        { NULL, "continues", V_TEXT(j->after_name), .unless = !j->after },
        { NULL, "continues", V_TEXT(j->waits), "which is @", .unless = !j->after },
        { "older_text", "continues", V_BOOL(j->older), "as an older text", .unless = !j->after },
        { "created", "created", known(j->created), "@T" },
        { "started", "started", known(j->started), "@T" },
        { "updated", "updated", known(j->updated), "@T" },
        { "ended", "ended", known(j->ended), "@T" },
        { "host", writes ? "worker" : NULL, V_TEXT(j->host), "on @" },
        { "pid", writes ? "worker" : NULL, whole(j->host, (double)j->pid), "process @0" },
        { "worker_ended", NULL, V_TEXT(NULL), .unless = j->state == JOB_RUNNING },
        { "worker_ended", "worker", V_BOOL(j->gone), "its process has ended; longhand work continues it",
          .unless = j->state != JOB_RUNNING },
        { "no_progress_seconds", writes ? "worker" : NULL, known(j->stalled), "no progress for @0 s" },
        { "db", NULL, V_TEXT(db), .unless = !db },
        { 0 } };
    static_assert(sizeof rows / sizeof *rows <= JOB_ROWS_MAX, "room for the rows");
    memcpy(out, rows, sizeof rows);
}

void put_jobs_json(struct json_writer *w, const struct job_list *jobs, const char *db)
{
    for (size_t i = 0; i < jobs->n; i++) {
        struct row rows[JOB_ROWS_MAX];
        struct job_texts texts;
        job_rows(rows, &texts, &jobs->v[i], db);
        sheet_object(w, NULL, (struct row[]){
            { "", NULL, V_ROWS(rows) }, { "ran_alone", NULL, V_BOOL(!jobs->v[i].shared) }, { 0 } });
    }
}

static size_t job_snapshot_tokens(struct store *s, int64_t job)
{
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n;
    struct err ignored;
    return store_snapshot_list(s, job, row, &n, &ignored) == 0 && n ? row[n - 1].tokens : 0;
}

#define KEPT_ROW(name, ...) { #name, #name, V_TEXT(p.kept[KEPT_##name]) },

static void put_shown(struct json_writer *w, const struct job *j, const struct counts *c, size_t snapshot,
                      const struct job_input *in, const struct event_list *events, const struct retakes *l)
{
    struct row its[JOB_ROWS_MAX];
    struct job_texts texts;
    const bool alone = ran_alone(c);
    char opening[200];
    struct job_params p;
    struct err ignored;                  /* of a newer version's job */
    terminal_text(opening, sizeof opening, in->prompt);
    if (job_parse(&p, in->parameters, &ignored))
        p = (struct job_params){ 0 };
    enum { SHOWN = 40 };
    struct report_retakes all, last;
    const struct table history = report_event_table(events),
                       retakes = report_retake_table(&all, l, SIZE_MAX, c),
                       shown = report_retake_table(&last, l, SHOWN, c);
    job_rows(its, &texts, j, NULL);
    const struct row rows[] = {
        { "", NULL, V_ROWS(its) },
        { "mean_tokens_per_second", "speed", V_REAL(figure(c, "tokens_per_second")), "@1 tokens/s" },
        { NULL, "speed", V_REAL(100 * figure(c, "share_with_others")), "@0 % of its passes with other jobs",
          .unless = alone },
        { "worker_tokens_per_second", alone ? NULL : "speed", V_REAL(figure(c, "worker_tokens_per_second")),
          "@1 tokens/s all together" },
        { "share_alone", NULL, V_REAL(figure(c, "share_alone")) },
        { "fingerprint", "fingerprint", V_TEXT(j->fingerprint) },
        { "parameters", "parameters", V_JSON(in->parameters) },
        KEPT_FIELDS(KEPT_ROW)
        { "metadata", "metadata", V_JSON(in->metadata) },
        { NULL, "prompt", V_UINT(j->prompt_tokens), plural(j->prompt_tokens, "@ token", "@ tokens") },
        { NULL, "prompt", V_UINT(in->prompt_bytes), plural(in->prompt_bytes, "@ byte", "@ bytes") },
        { NULL, "prompt", V_TEXT(opening) },
        { "prompt", NULL, V_BYTES(in->prompt, in->prompt_bytes) },
        { "snapshot_tokens", "snapshot of the KV cache:", whole(snapshot, (double)snapshot),
          "the first @ tokens of prompt and text" },
        { "retake_list", NULL, V_TABLE(&retakes) },
        { "events", events->n ? "history" : NULL, V_TABLE(&history) },
        { NULL, l->n ? last.title : NULL, V_TABLE(&shown) },
        { 0 } };
    if (w)
        sheet_object(w, NULL, rows);
    else
        sheet_print(false, JW_LINE, 0, rows);
    job_close(&p);
}

int put_shown_job(struct json_writer *w, struct store *s, const struct job *j, struct err *e)
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

void put_counts(struct json_writer *w, const struct store_counts *n, double estimate)
{
    const double left = n->rate > 0 ? (double)n->open_tokens / n->rate : NAN;
    const bool estimated = isnan(left) && estimate > 0;
    char unit[JOB_STATES][24], of[60], time[32] = "", last[80], eta[40];
    struct row states[JOB_STATES + 1] = { { 0 } };
    for (int i = 0; i < JOB_STATES; i++) {
        const char *name = job_state_name((enum job_state)i);
        snprintf(unit[i], sizeof unit[i], "@ %s", name);
        states[i] = (struct row){ name, "", V_UINT(n->jobs[i]), unit[i] };
    }
    if (estimated || !isnan(left))
        duration_text(time, estimated ? estimate : left);
    snprintf(of, sizeof of, "; @ of %zu %s", n->wanted, plural(n->wanted, "token", "tokens"));
    snprintf(eta, sizeof eta, "%s left", time);
    snprintf(last, sizeof last, "about %s at the speed of the last job", time);
    const struct row rows[] = {
        { "counts", NULL, V_ROWS(states) },
        { "tokens", "", V_UINT(n->tokens), of },
        { "of", NULL, V_UINT(n->wanted) },
        { "tokens_per_second", n->rate > 0 ? "" : NULL, V_REAL(n->rate), "@1 tokens/s" },
        { "eta_seconds", "", V_REAL(left), eta },
        { "estimate_seconds", estimated ? "" : NULL, V_REAL(estimate), last },
        { 0 } };
    if (w)
        sheet_members(w, rows);
    else
        sheet_text(stdout, rows);
}
