/* Stores the requests of a batch as jobs. Start at batch_submit; check_stored compares with stored jobs. */
#include "src/request/batch_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/notice.h"
#include "src/base/stopping.h"
#include "src/model/fingerprint.h"
#include "src/request/job_params.h"
#include "src/request/model_options.h"
#include "src/request/sampling_options.h"

/* ---- a batch whose name is known: its stored jobs stay as they are ---- */

/* The last fingerprint of a folder, for the next job; {0}: none yet. */
struct measured { char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES]; enum weights weights; };
/* What the command line and the stored jobs of this name say differently. */
enum { DIFFERENCES_MAX = 48 };
struct differences {
    size_t n; struct { const char *name; size_t jobs; } v[DIFFERENCES_MAX];
    int64_t *moved; size_t n_moved;      /* jobs that have the model of --model at another place */
    struct measured here, there;         /* that model, and the one of a job */
};

static void add_difference(void *ctx, const char *name)
{
    struct differences *d = ctx;
    size_t i = 0;
    while (i < d->n && strcmp(d->v[i].name, name))
        i++;
    if (i == DIFFERENCES_MAX)
        return;
    d->n = MAX(d->n, i + 1);
    d->v[i].name = name;
    d->v[i].jobs++;
}

static int measure(struct measured *m, const char *path, enum weights weights, struct pool *pool,
                   struct err *e)
{
    if (strcmp(m->path, path) == 0 && m->weights == weights)
        return 0;
    m->path[0] = 0;
    int rc = model_fingerprint(m->fingerprint, NULL, path, weights, pool, not_stopped, NULL, e);
    if (rc > 0)
        return err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), path);
    if (rc == 0)
        snprintf(m->path, sizeof m->path, "%s", path);
    m->weights = weights;
    return rc;
}

/* Whether a stored job that has its model at another place has the very model of --model. 1: the job's
 * fingerprint is the model's. A job that has not begun has none: then the model at its place counts, and if
 * that cannot be read, the tokenizer of its prompt. 0: another model; -1: this one cannot be read, or a stop
 * signal (ERR_AGAIN). */
static int same_model(const struct engine *g, struct differences *d, const struct stored_request *r,
                      struct err *e)
{
    struct job_params p;
    struct err why;
    if (job_parse(&p, r->parameters, &why))      /* a damaged job fails when it begins */
        return 0;
    const bool known = p.tokenizer != NULL,
               same = known && strcmp(p.tokenizer, tokenizer_sha(g->tokenizer)) == 0;
    const enum weights weights = p.weights;
    const char *was = r->fingerprint;
    job_close(&p);
    if (!was && known && !same)
        return 0;
    if (!was && measure(&d->there, r->model, weights, g->pool, &why)) {
        if (why.code == ERR_AGAIN)
            *e = why;
        return why.code == ERR_AGAIN ? -1 : same;
    }
    if (measure(&d->here, g->path, weights, g->pool, e))
        return -1;
    return strcmp(was ? was : d->there.fingerprint, d->here.fingerprint) == 0;
}

static int compare_with_stored(const struct batch *b, const struct job_spec *j,
                               const struct stored_request *r, struct differences *d, struct err *e)
{
    const struct options *o = b->o;
    if (options_given(o, "tokens") && !r->extended && r->wanted != j->wanted)
        add_difference(d, "tokens");
    if (options_given(o, "seed") && !j->seed_drawn && r->seed != j->seed)
        add_difference(d, "seed");
    if (options_given(o, "model") && strcmp(r->model, j->model)) {
        const int same = same_model(&b->model->engine, d, r, e);
        if (same < 0)
            return -1;
        if (same)
            d->moved[d->n_moved++] = r->job;
        else
            add_difference(d, "model");
    }
    return j->refusal ? 0 : job_differences(r->parameters, j->parameters, o, add_difference, d, e);
}

/* Refuses options of the command line that decide texts and that stored jobs of this name do not have. */
static int check_stored(const struct batch *b, struct store *s, struct differences *d, struct err *e)
{
    char list[600] = "";
    for (size_t i = 0; i < b->n; i++) {
        struct stored_request r;
        int rc = store_request(s, b->name, b->spec[i].custom_id, b->spec[i].sample, &r, e);
        if (rc == 1) {
            rc = compare_with_stored(b, &b->spec[i], &r, d, e);
            stored_request_free(&r);
        }
        if (rc < 0)
            return -1;
    }
    for (size_t i = 0, at = 0; i < d->n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s (%zu %s)", i ? ", " : "", d->v[i].name,
                               d->v[i].jobs, plural(d->v[i].jobs, "job", "jobs"));
    return d->n ? err_set(e, ERR_INPUT, "@%s: jobs of this name were queued with other options: %s; --keep "
                          "keeps the jobs as they are, --name NAME queues new ones", b->name, list)
                : 0;
}

/* ---- storing ---- */

/* Reports how many jobs are new, and the settings of the new texts that are not in the lines. */
static void report_submitted(const struct batch *b)
{
    const bool json = b->o->progress == PROGRESS_JSON;
    const size_t there = b->n - b->n_new;
    char own[256], rest[80] = "";
    if (b->o->quiet)
        return;
    if (there)
        snprintf(rest, sizeof rest, ", %zu %s", there,
                 plural(there, "exists already and stays unchanged", "exist already and stay unchanged"));
    notice(json,
           (struct row[]){ NOTICE_TEXT("phase", "submitted"), NOTICE_TEXT("name", b->name),
                                     NOTICE_UINT("jobs", b->n), NOTICE_UINT("new", b->n_new),
                                     NOTICE_WIDE_IF(b->n_new, "seed", b->seed), NOTICE_END },
           "@%s: %zu new %s%s", b->name, b->n_new, plural(b->n_new, "job", "jobs"), rest);
    for (size_t i = 0; i < b->n_models && b->n_new; i++) {
        chat_notes_print(&b->model[i].chat_notes, b->o);
        model_notices(&b->model[i].engine, b->o);
        if (b->model[i].bos_twice)
            bos_notice(&b->model[i].engine, b->o, b->model[i].bos_twice);
        describe_generation_config(own, sizeof own, b->o, &b->model[i].engine.config);
        if (*own || json)
            notice(json,
                   (struct row[]){ NOTICE_TEXT("phase", "settings"),
                                             NOTICE_TEXT("model", b->model[i].name),
                                             NOTICE_TEXT("generation_config", own), NOTICE_END },
                   "the model's own settings (generation_config.json)%s%s: %s", b->n_models > 1 ? " of " : "",
                   b->n_models > 1 ? b->model[i].name : "", own);
    }
    if (b->n_new && !json && (b->o->seed_drawn || !options_given(b->o, "seed")))
        fprintf(stderr, "seed: %" PRIu64 "\n", b->seed);
}

int batch_submit(struct batch *b, struct store *s, struct err *e)
{
    size_t bad;
    struct batch_notes notes = {0};
    if (batch_chain(b, s, &notes, e) || batch_check_bad(b, false, e))
        return -1;
    const struct engine *g = &b->model->engine;      /* --model is the model of every line */
    struct differences d = { .moved = calloc(b->n + 1, sizeof *d.moved) };
    const struct model_place place = { g->path, d.here.fingerprint, false };
    bool *is_new = calloc(b->n + 1, sizeof *is_new);
    b->ids = calloc(b->n + 1, sizeof *b->ids);
    int rc = d.moved && is_new && b->ids ? 0 : batch_no_memory(e);
    if (rc == 0 && !b->o->keep)
        rc = check_stored(b, s, &d, e);
    if (rc == 0 && b->n && (rc = store_submit(s, b->name, b->spec, b->n, b->ids, is_new, &bad, e)) != 0 &&
        e->code == ERR_INPUT && bad < b->n)
        err_while(e, "%s: line %zu", b->file, b->spec[bad].line);
    if (rc == 0 && d.n_moved)
        rc = store_model_move(s, d.moved, d.n_moved, &place, e);
    b->n_new = 0;
    for (size_t i = 0; rc == 0 && i < b->n; i++)
        b->n_new += is_new[i];
    if (rc == 0)
        report_submitted(b);
    free(d.moved);
    free(is_new);
    return rc;
}
