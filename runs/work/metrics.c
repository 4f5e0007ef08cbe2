/* Writes the metrics file. Start at metrics_write; its lines are those of put_gauges and put_counters. */
#include "runs/work/schedule.h"
#include "src/base/memory_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cgroup.h"

int metrics_open(struct metrics *m, const char *path, struct err *e)
{
    struct stat st;
    *m = (struct metrics){ .path = path, .began = wall_seconds() };
    if (!path)
        return 0;
    if (strlen(path) + sizeof ".tmp" > PATH_BYTES)
        return err_set(e, ERR_INPUT, "--metrics: a path of %zu bytes is too long", strlen(path));
    if (!*path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return err_set(e, ERR_INPUT, "--metrics '%s': the name of a file is needed", path);
    return metrics_write(m, &(struct metrics_now){0}, &m->sums, e);
}

void metrics_model(struct metrics *m, const char *model)
{
    if (*m->model && strcmp(m->model, model))
        *m = (struct metrics){ .path = m->path, .take = m->take, .ctx = m->ctx, .began = m->began,
                               .written = m->written };
    snprintf(m->model, sizeof m->model, "%s", model);
}

void metrics_add(struct metrics_sums *s, const struct draft_stats *d, size_t prefill_tokens, double prefill)
{
    figures_add_stats(&s->counts, s->list, d);
    s->counts.prefill_tokens += (double)prefill_tokens;
    s->counts.prefill_seconds += prefill;
}

/* ---- lines ---- */

struct text { FILE *f; char model[3 * PATH_BYTES]; };

/* Begins a metric. Names that end in _total are counters. */
static void begin(struct text *t, const char *name, const char *help)
{
    const size_t n = strlen(name);
    fprintf(t->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
            n > 6 && strcmp(name + n - 6, "_total") == 0 ? "counter" : "gauge");
}

static void value(struct text *t, const char *name, const char *labels, double x)
{
    fprintf(t->f, "%s%s%s%s %.17g\n", name, *labels ? "{" : "", labels, *labels ? "}" : "", x);
}

static void one(struct text *t, const char *name, const char *help, double x)
{
    begin(t, name, help);
    value(t, name, strncmp(name, "vllm:", 5) == 0 ? t->model : "", x);
}

/* A metric that is a figure. */
static void put(struct text *t, const struct metrics_sums *s, const char *name)
{
    const struct figure *f = figure_find(name);
    one(t, f->metric, f->help, figure_value(f, &s->counts));
}

static void label_model(struct text *t, const char *model)
{
    char *p = t->model + sprintf(t->model, "model_name=\"");
    for (; *model && p < t->model + sizeof t->model - 4; model++) {
        if (*model == '"' || *model == '\\' || *model == '\n')
            *p++ = '\\';
        *p++ = *model;
        if (*model == '\n')
            p[-1] = 'n';
    }
    strcpy(p, "\"");
}

static void put_gauges(struct text *t, const struct metrics *m, const struct metrics_now *now)
{
    char labels[64];
    const size_t rss = read_keyed_number("/proc/self/status", "VmRSS", 1024);
    one(t, "vllm:num_requests_running", "Jobs that this worker runs.", (double)now->running);
    one(t, "vllm:num_requests_waiting", "Queued jobs of the store.", (double)now->counts.jobs[JOB_QUEUED]);
    one(t, "vllm:kv_cache_usage_perc", "Share of the reserved KV caches that holds tokens, 0 to 1.",
        now->kv_tokens ? (double)now->kv_used / (double)now->kv_tokens : 0);
    begin(t, "longhand_jobs", "Jobs of the store by state.");
    for (int i = 0; i < JOB_STATES; i++) {
        snprintf(labels, sizeof labels, "state=\"%s\"", job_state_name((enum job_state)i));
        value(t, "longhand_jobs", labels, (double)now->counts.jobs[i]);
    }
    one(t, "longhand_open_tokens", "Tokens that queued and running jobs lack.",
        (double)now->counts.open_tokens);
    one(t, "longhand_memory_reserved_bytes", "Memory of the model, the buffers and the running jobs.",
        (double)now->reserved);
    if (now->limit)
        one(t, "longhand_memory_limit_bytes", "The value of --max-memory.", (double)now->limit);
    one(t, "longhand_longest_wait_seconds", "The longest time between two rounds of jobs that write.",
        m->longest_wait);
    one(t, "process_resident_memory_bytes", "Resident memory.", rss == SIZE_MAX ? 0 : (double)rss);
    one(t, "process_start_time_seconds", "When the worker began, in seconds since 1970.", m->began);
    one(t, "longhand_written_time_seconds", "When this file was written, in seconds since 1970.",
        wall_seconds());
}

static void put_counters(struct text *t, const struct metrics *m, const struct metrics_sums *s)
{
    char labels[3 * PATH_BYTES + 64];
    put(t, s, "prefill_tokens");
    put(t, s, "round_tokens");
    begin(t, "vllm:request_success_total", "Jobs done, by the reason of their end.");
    for (int i = FINISH_NONE + 1; i <= FINISH_REPETITION; i++) {
        snprintf(labels, sizeof labels, "finished_reason=\"%s\",%s", finish_name((enum finish)i), t->model);
        value(t, "vllm:request_success_total", labels, (double)m->finished[i]);
    }
    one(t, "longhand_failed_jobs_total", "Jobs that failed.", (double)m->failed);
    put(t, s, "rounds_drafted");
    put(t, s, "verified");
    put(t, s, "accepted");
    begin(t, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted candidates by position.");
    const double *accepted = s->list[LIST_ACCEPTED];
    for (int i = 1; i <= TREE_DEPTH_MAX && (i == 1 || accepted[i] > 0); i++) {
        snprintf(labels, sizeof labels, "position=\"%d\",%s", i - 1, t->model);
        value(t, "vllm:spec_decode_num_accepted_tokens_per_pos_total", labels, accepted[i]);
    }
    begin(t, "longhand_rounds_total", "Rounds by the number of jobs in them.");
    for (size_t i = 1; i <= WORKER_JOBS_MAX; i++)
        if (m->rounds[i]) {
            snprintf(labels, sizeof labels, "jobs=\"%zu\"", i);
            value(t, "longhand_rounds_total", labels, (double)m->rounds[i]);
        }
    put(t, s, "prefill_seconds");
    put(t, s, "seconds");
    put(t, s, "draft_seconds");
    put(t, s, "verify_seconds");
}

int metrics_write(struct metrics *m, const struct metrics_now *now, struct metrics_sums *all, struct err *e)
{
    char temporary[PATH_BYTES], *data = NULL;
    size_t n;
    struct text t = { .f = memory_file(&data, &n) };
    int rc = -1;
    m->written = clock_seconds();
    figures_complete(&all->counts, all->list, false);
    label_model(&t, m->model);
    if (t.f) {
        put_gauges(&t, m, now);
        put_counters(&t, m, all);
    }
    if (!t.f || stream_end(t.f)) {
        err_set(e, ERR_FAILED, "out of memory for --metrics");
    } else if (m->take) {
        m->take(m->ctx, data);
        data = NULL;
        rc = 0;
    } else {
        const int fd = file_create_beside(temporary, m->path);
        rc = fd < 0 || write_bytes(fd, data, n) ? -1 : 0;
        if (fd >= 0 && close(fd))
            rc = -1;
        if (rc || (rc = rename(temporary, m->path))) {
            err_set(e, ERR_INPUT, "--metrics %s: cannot write: %s", m->path, strerror(errno));
            if (fd >= 0)
                unlink(temporary);
        }
    }
    free(data);
    return rc;
}
