/* Options that stored jobs of a batch do not have. Start at batch_check_stored. */
#include "src/request/batch_impl.h"

#include <stdio.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/request/job_params.h"

enum { DIFFERENCES_MAX = 48 };
struct differences { size_t n; struct { const char *name; size_t jobs; } v[DIFFERENCES_MAX]; };

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
static int same_model(const struct engine *g, struct batch_moved *m, const struct stored_request *r,
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
    if (!was && measure(&m->there, r->model, weights, g->pool, &why)) {
        if (why.code == ERR_AGAIN)
            *e = why;
        return why.code == ERR_AGAIN ? -1 : same;
    }
    if (measure(&m->here, g->path, weights, g->pool, e))
        return -1;
    return strcmp(was ? was : m->there.fingerprint, m->here.fingerprint) == 0;
}

static int compare_with_stored(const struct batch *b, const struct job_spec *j,
                               const struct stored_request *r, struct batch_moved *m, struct differences *d,
                               struct err *e)
{
    const struct options *o = b->o;
    if (options_given(o, "tokens") && !r->extended && r->wanted != j->wanted)
        add_difference(d, "tokens");
    if (options_given(o, "seed") && !j->seed_drawn && r->seed != j->seed)
        add_difference(d, "seed");
    if (options_given(o, "model") && strcmp(r->model, j->model)) {
        const int same = same_model(batch_front_engine(b), m, r, e);
        if (same < 0)
            return -1;
        if (same)
            m->ids[m->n++] = r->job;
        else
            add_difference(d, "model");
    }
    return j->refusal ? 0 : job_differences(r->parameters, j->parameters, o, add_difference, d, e);
}

int batch_check_stored(const struct batch *b, struct store *s, struct batch_moved *m, struct err *e)
{
    struct differences d = {0};
    char list[600] = "";
    for (size_t i = 0; i < b->n; i++) {
        struct stored_request r;
        int rc = store_request(s, b->name, b->spec[i].custom_id, b->spec[i].sample, &r, e);
        if (rc == 1) {
            rc = compare_with_stored(b, &b->spec[i], &r, m, &d, e);
            stored_request_free(&r);
        }
        if (rc < 0)
            return -1;
    }
    for (size_t i = 0, at = 0; i < d.n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s (%zu %s)", i ? ", " : "", d.v[i].name,
                               d.v[i].jobs, plural(d.v[i].jobs, "job", "jobs"));
    return d.n ? err_set(
                     e, ERR_INPUT,
                     "@%s: jobs of this name were queued with other options: %s; --keep keeps the jobs as "
                     "they are, --name NAME queues new ones",
                     b->name, list)
               : 0;
}
