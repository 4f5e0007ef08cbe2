/* longhand list, show, pause, resume, cancel, remove. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "runs/work/snapshot_files.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

/* A time or a speed, where there is one. */
static json_t *real_or_null(double x) { return x > 0 ? json_real(x) : json_null(); }

static const char *time_text(char out[32], double t)
{
    time_t s = (time_t)t;
    struct tm tm;
    if (t <= 0 || !localtime_r(&s, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm))
        return "-";
    return out;
}

static void duration(char out[32], double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 999999999ul;
    if (t >= 3600)
        snprintf(out, 32, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, 32, "%lu:%02lu", t / 60, t % 60);
}

/* ---- list ---- */

/* Jansson's integers are 64 bits with a sign, a seed may be 2^63 and above: it is a text that begins with this, which no text of others can have, and loses its
 * quotation marks in print_json. */
static const char *seed_mark(void)
{
    static char mark[40];
    uint64_t x[2] = { 0 };
    if (!mark[0] && getrandom(x, sizeof x, 0) == (ssize_t)sizeof x)
        snprintf(mark, sizeof mark, "%016" PRIx64 "%016" PRIx64, x[0], x[1]);
    else if (!mark[0])
        snprintf(mark, sizeof mark, "seed of a job, as a number: ");
    return mark;
}

static json_t *job_json(const struct job *j)
{
    json_t *o = json_pack(
        "{s:I, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:o}", "job",
        (json_int_t)j->id, "name", json_text(j->batch), "custom_id", json_text(j->custom_id), "state",
        job_state_name(j->state), "tokens", (json_int_t)j->tokens, "given_tokens", (json_int_t)j->given, "of",
        (json_int_t)j->wanted, "prompt_tokens", (json_int_t)j->prompt_tokens, "model", json_text(j->model),
        "priority", (json_int_t)j->priority, "tokens_per_second", real_or_null(j->rate), "finish_reason",
        json_text(j->finish_reason), "stop_reason", json_text(j->stop_reason), "error", json_text(j->error),
        "sample", (json_int_t)j->sample, "numerics", json_text(j->numerics));
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, j->seed);
    json_object_set_new(o, "seed", json_sprintf("%s%s", seed_mark(), seed));     /* a number in print_json */
    json_object_set_new(o, "seed_text", json_string(seed));
    json_object_set_new(o, "resumes", json_integer((json_int_t)j->resumes));
    json_object_set_new(o, "attempt", json_integer(j->attempt));
    json_object_set_new(o, "parent", j->parent ? json_integer(j->parent) : json_null());
    json_object_set_new(o, "parent_at", j->parent ? json_integer((json_int_t)j->parent_at) : json_null());
    json_object_set_new(o, "created", real_or_null(j->created));
    json_object_set_new(o, "started", real_or_null(j->started));
    json_object_set_new(o, "updated", real_or_null(j->updated));
    json_object_set_new(o, "ended", real_or_null(j->ended));
    json_object_set_new(o, "host", json_text(j->host));
    json_object_set_new(o, "pid", j->host ? json_integer(j->pid) : json_null());
    json_object_set_new(o, "worker_ended", j->state == JOB_RUNNING ? json_boolean(j->gone) : json_null());
    return o;
}

/* By characters: of what cannot be written some stays in the buffer, and stdout_finish finds out why. */
static void put_part(const char *s, const char *end)
{
    while (s < end)
        putchar(*s++);
}

static int print_json(json_t *v, struct err *e)
{
    char *s = v ? json_dumps(v, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL, *from = s;
    const size_t n = strlen(seed_mark());
    json_decref(v);
    if (!s)
        return err_set(e, ERR_FAILED, "out of memory for JSON");
    for (char *hit; (hit = strstr(from, seed_mark()));) {
        /* to the quotation mark, and from behind the mark to the next one */
        put_part(from, hit - 1);
        from = hit + n + strcspn(hit + n, "\"");
        put_part(hit + n, from++);
    }
    put_part(from, from + strlen(from));
    putchar('\n');
    free(s);
    return stdout_finish(e);
}

/* Counts of several databases as those of one. */
static int count_parts(const struct store_parts *p, struct store_counts *all, struct err *e)
{
    *all = (struct store_counts){0};
    for (size_t i = 0; i < p->n; i++) {
        struct store_counts n;
        if (store_counts(p->v[i].store, NULL, &n, e))
            return -1;
        for (int k = 0; k < JOB_STATES; k++)
            all->jobs[k] += n.jobs[k];
        all->tokens += n.tokens;
        all->wanted += n.wanted;
        all->open_tokens += n.open_tokens;
        all->rate += n.rate;
    }
    return 0;
}

/* With several databases each job has the path of its own, and "databases" lists them. */
static json_t *list_json(const struct store_counts *n, const struct store_parts *p)
{
    json_t *states = json_object(), *list = json_array(), *paths = json_array(), *all;
    for (int i = 0; i < JOB_STATES; i++)
        json_object_set_new(states, job_state_name((enum job_state)i), json_integer((json_int_t)n->jobs[i]));
    for (size_t i = 0; i < p->n; i++) {
        json_array_append_new(paths, json_text(store_path(p->v[i].store)));
        for (size_t k = 0; k < p->v[i].jobs.n; k++) {
            json_t *one = job_json(&p->v[i].jobs.v[k]);
            if (p->n > 1)
                json_object_set_new(one, "db", json_text(store_path(p->v[i].store)));
            json_array_append_new(list, one);
        }
    }
    all = json_pack("{s:o, s:I, s:I, s:f, s:o, s:o}", "counts", states, "tokens", (json_int_t)n->tokens, "of",
                    (json_int_t)n->wanted, "tokens_per_second", n->rate, "eta_seconds",
                    n->rate > 0 ? json_real((double)n->open_tokens / n->rate) : json_null(), "jobs", list);
    if (p->n > 1)
        json_object_set(all, "databases", paths);
    json_decref(paths);
    return all;
}

static void name_of(char *out, size_t size, const struct job *j)
{
    char name[300] = "";
    if (j->batch)
        snprintf(name, sizeof name, "@%s%s%.80s", j->batch, j->custom_id ? "/" : "",
                 j->custom_id ? j->custom_id : "");
    else if (j->parent)
        snprintf(name, sizeof name, "fork of %" PRId64 " at %zu", j->parent, j->parent_at);
    printable(out, size, name);
}

static void list_job(const struct job *j)
{
    char name[80], error[100], rate[16] = "", tokens[48];
    name_of(name, sizeof name, j);
    printable(error, sizeof error,
              j->gone    ? "its process has ended, longhand work goes on with it"
              : j->error ? j->error
                         : "");
    if (j->rate > 0)
        snprintf(rate, sizeof rate, "%.1f", j->rate);
    snprintf(tokens, sizeof tokens, "%zu/%zu", j->tokens, j->wanted);
    printf("%6" PRId64 "  %-9s  %17s  %8s  %-10s  %s%s%s\n", j->id, job_state_name(j->state), tokens, rate,
           j->finish_reason ? j->finish_reason : "", name, *name && *error ? ": " : "", error);
}

static void list_text(const struct store_counts *n, const struct store_parts *p)
{
    char left[32] = "", path[200];
    for (int i = 0; i < JOB_STATES; i++)
        printf("%s%zu %s", i ? ", " : "", n->jobs[i], job_state_name((enum job_state)i));
    printf("; %zu of %zu tokens", n->tokens, n->wanted);
    if (n->rate > 0) {
        duration(left, (double)n->open_tokens / n->rate);
        printf(", %.1f tokens/s, %s left", n->rate, left);
    }
    putchar('\n');
    for (size_t i = 0; i < p->n; i++) {
        const struct job_list *jobs = &p->v[i].jobs;
        if (p->n > 1) {
            printable(path, sizeof path, store_path(p->v[i].store));
            printf("%s\n", path);
        }
        if (jobs->n)
            printf("%6s  %-9s  %17s  %8s  %-10s  %s\n", "job", "state", "tokens", "tokens/s", "finish",
                   "name");
        for (size_t k = 0; k < jobs->n; k++)
            list_job(&jobs->v[k]);
    }
}

int cmd_list(const struct options *o, struct err *e)
{
    struct store_parts p = {0};
    struct store_counts n;
    int rc = parts_from_options(&p, o, true, e) || count_parts(&p, &n, e) ? -1 : 0;
    if (rc == 0 && o->json) {
        rc = print_json(list_json(&n, &p), e);
    } else if (rc == 0) {
        list_text(&n, &p);
        rc = stdout_finish(e);
    }
    parts_close(&p);
    return rc;
}

/* ---- show ---- */

/* Tokens of its snapshot, 0: none. */
static size_t snapshot_of(struct store *s, int64_t job)
{
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t n;
    struct err ignored;
    return store_snapshot_list(s, job, row, &n, &ignored) == 0 && n ? row[n - 1].tokens : 0;
}

static json_t *show_json(const struct job *j, size_t snapshot, const struct job_input *in,
                         const struct event_list *events)
{
    json_t *o = job_json(j), *list = json_array(),
           *meta = in->metadata ? json_loads(in->metadata, JSON_DECODE_ANY, NULL) : json_null();
    for (size_t i = 0; i < events->n; i++) {
        const struct event *v = &events->v[i];
        json_array_append_new(list,
                              json_pack("{s:f, s:I, s:s, s:o}", "at", v->at, "attempt",
                                        (json_int_t)v->attempt, "kind", v->kind, "text", json_text(v->text)));
    }
    json_object_set_new(o, "fingerprint", json_text(j->fingerprint));
    json_object_set_new(o, "parameters", json_loads(in->parameters, 0, NULL));
    /* numbers that jansson does not hold: as it stands in the line */
    json_object_set_new(o, "metadata", meta ? meta : json_string(in->metadata));
    json_object_set_new(o, "prompt", json_stringn(in->prompt, in->prompt_bytes));
    json_object_set_new(o, "snapshot_tokens", snapshot ? json_integer((json_int_t)snapshot) : json_null());
    json_object_set_new(o, "events", list);
    return o;
}

static void show_text(const struct job *j, size_t snapshot, const struct job_input *in,
                      const struct event_list *events)
{
    char text[400], when[32];
    printf("job %" PRId64 ": %s, %zu of %zu tokens (%zu given)%s%s\n", j->id, job_state_name(j->state),
           j->tokens, j->wanted, j->given, j->finish_reason ? ", finish reason " : "",
           j->finish_reason ? j->finish_reason : "");
    if (j->stop_reason) {
        printable(text, sizeof text, j->stop_reason);
        printf("  stop reason: %s\n", text);
    }
    name_of(text, sizeof text, j);
    if (*text)
        printf("  name: %s\n", text);
    if (j->error) {
        printable(text, sizeof text, j->error);
        printf("  error: %s\n", text);
    }
    printable(text, sizeof text, j->model);
    printf("  model: %s\n  fingerprint: %s\n  numerics: %s\n", text, j->fingerprint ? j->fingerprint : "-",
           j->numerics ? j->numerics : "-");
    printf("  seed: %" PRIu64 ", sample %" PRIu32 "; priority %d\n", j->seed, j->sample, j->priority);
    if (j->gone)
        printf("  worker: its process has ended; longhand work goes on with it\n");
    else if (j->host)
        printf("  worker: process %" PRId64 " on %s, %.1f tokens/s\n", j->pid, j->host, j->rate);
    printf("  created %s", time_text(when, j->created));
    printf(", started %s", time_text(when, j->started));
    printf(", last change %s", time_text(when, j->updated));
    printf(", ended %s; attempt %" PRId64 ", %zu resumes\n", time_text(when, j->ended), j->attempt,
           j->resumes);
    if (snapshot)
        printf("  snapshot of the KV cache: the first %zu tokens of prompt and text\n", snapshot);
    printable(text, 200, in->prompt);
    printf("  prompt: %zu tokens, %zu bytes: %s\n  parameters: %s\n", j->prompt_tokens, in->prompt_bytes,
           text, in->parameters);
    for (size_t i = 0; i < events->n; i++) {
        const struct event *v = &events->v[i];
        printable(text, sizeof text, v->text ? v->text : "");
        printf("  %s  %s%s%s\n", time_text(when, v->at), v->kind, *text ? ": " : "", text);
    }
}

int cmd_show(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    json_t *all = json_array();
    if (store_from_options(&s, o, STORE_READ, e))
        return -1;
    int rc = jobs_from_options(s, o, false, &ids, &jobs, e);
    for (size_t i = 0; rc == 0 && i < jobs.n; i++) {
        struct job_input in = {0};
        struct event_list events = {0};
        rc = store_input(s, jobs.v[i].id, &in, e) || store_events(s, jobs.v[i].id, &events, e) ? -1 : 0;
        if (rc == 0 && o->json)
            json_array_append_new(all, show_json(&jobs.v[i], snapshot_of(s, jobs.v[i].id), &in, &events));
        else if (rc == 0)
            show_text(&jobs.v[i], snapshot_of(s, jobs.v[i].id), &in, &events);
        event_list_free(&events);
        job_input_free(&in);
    }
    if (rc == 0 && o->json)
        rc = print_json(jobs.n == 1 ? json_incref(json_array_get(all, 0)) : json_incref(all), e);
    json_decref(all);
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc ? rc : stdout_finish(e);
}

/* ---- pause, resume, cancel, remove ---- */

int cmd_change(const struct options *o, struct err *e)
{
    static const struct { unsigned verb; const char *done, *what; int (*change)(struct store *,
        const int64_t *, size_t, size_t *, struct err *);
    } verbs[] = {
        { VERB_PAUSE, "paused", "queued or running", store_pause },
        { VERB_RESUME, "queued again", "paused or failed", store_resume },
        { VERB_CANCEL, "cancelled", "queued, running, paused or failed", store_cancel },
        { VERB_REMOVE, "removed", "there", store_remove },
    };
    struct store *s = NULL;
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t k = 0, changed = 0;
    while (verbs[k].verb != o->verb->bit)
        k++;
    if (store_from_options(&s, o, STORE_WRITE, e))
        return -1;
    int rc = jobs_from_options(s, o, false, &ids, &jobs, e);
    if (rc == 0 && jobs.n)
        rc = verbs[k].change(s, ids, jobs.n, &changed, e);
    if (rc == 0 && changed)
        snapshot_files_collect(s);
    if (rc == 0 && changed == 0 && jobs.n == 1)
        rc = err_set(e, ERR_INPUT, "job %" PRId64 " is %s, not %s%s", jobs.v[0].id,
                     job_state_name(jobs.v[0].state), verbs[k].what,
                     jobs.v[0].gone ? "; its process has ended, and longhand work goes on with it" : "");
    else if (rc == 0 && !o->quiet)
        fprintf(stderr, "%zu %s %s%s%s\n", changed, changed == 1 ? "job" : "jobs", verbs[k].done,
                changed < jobs.n ? "; the others were not " : "", changed < jobs.n ? verbs[k].what : "");
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc;
}
