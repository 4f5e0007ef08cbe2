/* The worker: a store and a model, which stays loaded for the next job. worker_memory.c has the memory of its
 * jobs, task.c one job, schedule.c the jobs that run at once. Start at worker_open and worker_load_model. */
#include "runs/work/worker.h"
#include "src/request/model_options.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/stopping.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int worker_open(struct worker *w, struct store *s, struct err *e)
{
    w->store = s;
    if (device_choice_numerics(w->device, w->numerics, &w->n_numerics, e) ||
        store_worker_start(s, &w->number, e))
        return -1;
    int n = snprintf(w->numerics_list, sizeof w->numerics_list, "\n");
    for (size_t i = 0; i < w->n_numerics; i++)
        n += snprintf(w->numerics_list + n, sizeof w->numerics_list - (size_t)n, "%.30s\n", w->numerics[i]);
    if (heartbeat_start(&w->beat, s, w->number, e) ||
        committer_open(&w->committer, s, w->commit_seconds, w->committed, w->ctx, e)) {
        struct err ignored;
        heartbeat_stop(w->beat);
        w->beat = NULL;
        store_worker_end(s, w->number, &ignored);
        return -1;
    }
    snapshot_files_delete_unused(s);           /* files of dead workers */
    return 0;
}

void worker_close(struct worker *w)
{
    struct err ignored;
    committer_close(w->committer);
    heartbeat_stop(w->beat);
    if (w->number)
        store_worker_end(w->store, w->number, &ignored);
    round_buffers_close(&w->buffers);
    prefix_close(&w->prefixes);
    engine_close(&w->engine);
    model_files_free(&w->files);
    missing_free(&w->missing);
    if (!w->quiet)
        job_names_say(&w->cut, w->progress.show == SHOW_JSON, true);
    *w = (struct worker){0};
}

bool worker_out_of_time(const struct worker *w)
{
    return w->deadline > 0 && clock_seconds() >= w->deadline;
}

struct claim_request worker_claim_request(const struct worker *w, int64_t job)
{
    return (struct claim_request){ .worker = w->number,
                                   .job = job,
                                   .model = w->loaded ? w->engine.path : NULL,
                                   .numerics = w->numerics_list };
}

bool worker_has_model(const struct worker *w, const struct job *job, const struct job_params *p)
{
    const struct engine *g = &w->engine;
    const enum dtype kv = option_kv(p->kv_dtype);
    return g->path[0] && strcmp(g->path, job->model) == 0 && g->compute == option_compute(p->compute) &&
           g->encoding == p->weights && (g->kv == kv || g->dev->kv_type == kv) &&
           strcmp(g->scaling, p->scaling ? p->scaling : "") == 0 &&
           device_choice_matches(w->device, g->dev->numerics, job->numerics) && !*g->dev->error &&
           model_stamp(g->dir) == g->stamp;
}

int worker_open_model(struct worker *w, const struct job *job, const struct job_params *p, struct err *e)
{
    struct engine *g = &w->engine;
    if (worker_has_model(w, job, p))
        return 0;
    if (w->n_jobs) {                     /* other texts need the model as it was */
        err_set(e, ERR_INPUT, ERR_PATH "the files of the model are changing", job->model);
        e->system = ENOEXEC;
        return -1;
    }
    round_buffers_close(&w->buffers);
    prefix_close(&w->prefixes);
    engine_close(g);
    w->loaded = false;
    memset(w->trained, 0, sizeof w->trained);
    const struct engine_spec spec = { job->model, option_compute(p->compute), p->scaling, w->threads,
                                      w->device,  job->numerics, option_kv(p->kv_dtype), p->weights };
    if (engine_open(g, &spec, e) == 0)
        return 0;
    g->path[0] = 0;
    return -1;
}

int worker_load_model(struct worker *w, struct err *e)
{
    struct engine *g = &w->engine;
    if (w->loaded)
        return 0;
    stop_notice_for("the model to be read");
    model_files_free(&w->files);
    struct fingerprint f;
    int rc = fingerprint_begin(&f, &w->files, g->dir, e);
    if (rc == 0) {
        rc = engine_load(g, &f, &w->progress, e);
        w->loaded = rc == 0;
        if (rc == 0)
            fingerprint_end(&f, g->encoding, w->fingerprint);
        fingerprint_close(&f);
    }
    /* if the files changed meanwhile, configuration, weights and fingerprint may not belong together */
    if (rc == 0 && model_stamp(g->dir) != g->stamp) {
        errno = ESTALE;                      /* it is being copied, perhaps */
        rc = err_set_system(e, ERR_FAILED, "%s was changed while it was read", g->dir);
        model_close(&g->model);
        g->path[0] = 0;                      /* the next job opens it again */
        w->loaded = false;
    }
    else if (rc < 0 && !e->system && model_stamp(g->dir) != g->stamp)
        e->system = ESTALE;
    stop_notice_for(NULL);
    progress_clear(&w->progress);
    if (stop_signal) {
        err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), g->dir);
        return 1;
    }
    return rc;
}

int worker_store_model(struct worker *w, struct err *e)
{
    const struct config *c = &w->engine.config;
    struct model_files *f = &w->files;
    int rc = f->data[MODEL_TOKENIZER] ? store_model_has(w->store, w->fingerprint, e) : 1;
    if (rc == 0)
        rc = tokenizer_add_config(&f->data[MODEL_TOKENIZER], &f->n[MODEL_TOKENIZER], w->engine.dir, c->vocab,
                                  e);
    if (rc == 0) {
        const struct model_record m = { .tokenizer = f->data[MODEL_TOKENIZER],
                                        .n_tokenizer = f->n[MODEL_TOKENIZER],
                                        .vocab = c->vocab,
                                        .eos = (int32_t *)c->eos,
                                        .n_eos = c->n_eos,
                                        .config = f->data[MODEL_CONFIG],
                                        .generation = f->data[MODEL_GENERATION] };
        rc = store_model_put(w->store, w->fingerprint, &m, e);
    }
    if (rc < 0)
        return -1;
    model_files_free(f);
    return 0;
}

/* ---- models that could not be read ---- */

/* Make m->list anew. -1: no memory. */
static int write_list(struct missing *m)
{
    size_t n;
    free(m->list);
    m->list = NULL;
    FILE *f = missing_first(m) ? memory_file(&m->list, &n) : NULL;
    if (!f)
        return missing_first(m) ? -1 : 0;
    fputc('\n', f);
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].waits)
            fprintf(f, "%s\n", m->v[i].path);
    return stream_end(f) ? -1 : 0;
}

int missing_add(struct missing *m, const char *path, const struct err *why)
{
    size_t i = 0;
    while (i < m->n && strcmp(m->v[i].path, path))
        i++;
    if (i == m->n) {
        if (!array_grow(&m->v, i, sizeof *m->v) ||
            !(m->v[i] = (struct missing_model){ .path = strdup(path) }).path)
            return -1;
        m->n++;
    }
    struct missing_model *x = &m->v[i];
    const bool is_new = strncmp(why->msg, x->why, sizeof x->why - 1) != 0;
    snprintf(x->why, sizeof x->why, "%.*s", (int)sizeof x->why - 1, why->msg);
    x->stamp = model_stamp(path);
    x->at = clock_seconds();
    x->waits = true;
    return write_list(m) ? -1 : is_new;
}

void missing_look_again(struct missing *m)
{
    bool changed = false;
    for (size_t i = 0; i < m->n; i++) {
        struct missing_model *x = &m->v[i];
        const bool late = clock_seconds() - x->at > MISSING_RETRY_SECONDS;
        if (x->waits && (late || model_stamp(x->path) != x->stamp)) {
            x->waits = false;
            changed = true;
        }
    }
    if (changed)
        write_list(m);                   /* without memory no job is left alone, which is right, too */
}

const struct missing_model *missing_first(const struct missing *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].waits)
            return &m->v[i];
    return NULL;
}

void missing_free(struct missing *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->v[i].path);
    free(m->v);
    free(m->list);
    *m = (struct missing){0};
}
