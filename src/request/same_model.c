#include "src/request/same_model.h"

#include <stdio.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/request/job_params.h"

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

int same_model(struct same_model *m, const struct stored_request *r, struct err *e)
{
    struct job_params p;
    struct err why;
    if (job_parse(&p, r->parameters, &why))      /* a damaged job fails when it begins */
        return 0;
    const bool known = p.tokenizer != NULL, same = known && strcmp(p.tokenizer, m->tokenizer) == 0;
    const enum weights weights = p.weights;
    const char *was = r->fingerprint;
    job_close(&p);
    if (!was && known && !same)
        return 0;
    if (!was && measure(&m->there, r->model, weights, m->pool, &why)) {
        if (why.code == ERR_AGAIN)
            *e = why;
        return why.code == ERR_AGAIN ? -1 : same;
    }
    if (measure(&m->here, m->path, weights, m->pool, e))
        return -1;
    return strcmp(was ? was : m->there.fingerprint, m->here.fingerprint) == 0;
}
