/* What whole answers and streams have in common. */
#include "runs/serve/waiting.h"
#include "runs/report/export.h"
#include "src/base/memory_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void put_head(struct json_writer *w, const struct waiting *x, const char *object, double created)
{
    jw_open(w, NULL, '{');
    jw_text(w, "id", x->id);
    jw_text(w, "object", object);
    jw_number(w, "created", floor(created));
    jw_text(w, "model", x->sv->model);
}

void put_usage(struct json_writer *w, const struct job_list *jobs)
{
    size_t made = 0;
    for (size_t i = 0; i < jobs->n; i++)
        made += jobs->v[i].tokens - jobs->v[i].given;
    jw_open(w, "usage", '{');
    jw_uint(w, "prompt_tokens", jobs->v->prompt_tokens);
    jw_uint(w, "completion_tokens", made);
    jw_uint(w, "total_tokens", jobs->v->prompt_tokens + made);
    jw_close(w, '}');
}

void put_finish(struct json_writer *w, const struct job *j, const struct growing *g)
{
    const bool repeats = j->finish_reason && strcmp(j->finish_reason, "repetition") == 0;
    jw_text(w, "finish_reason", repeats ? "stop" : j->finish_reason);
    export_put_stop_reason(w, j, job_parts_last(&g->parts), true);
}

void drop_waiting(struct call *c)
{
    struct waiting *w = c->state;
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        growing_close(w->sv, &w->text[i]);
    if (w->n && !w->keyed && (!w->settled || w->sv->o->forget))
        server_cancel(w->sv, w->ids, w->n);
    w->sv->busy--;
    free(w->flow.out);
    free(w);
}

int waiting_text(struct waiting *w, size_t i, const struct job *job, char **text, size_t *n, struct err *e)
{
    *text = NULL;
    *n = 0;
    FILE *f = memory_file(text, n);
    int rc = f ? growing_more(w->sv, &w->text[i], job, f, e) : -1;
    if (!f || (stream_end(f) && rc == 0))
        rc = err_set(e, ERR_FAILED, "out of memory for a text");
    return rc;
}

unsigned waiting_failed(struct waiting *w, const struct job_list *jobs, char *message, size_t size)
{
    char why[600];
    if (jobs->n < w->n)
        return snprintf(message, size, "%s was removed", w->id), MHD_HTTP_NOT_FOUND;
    for (size_t i = 0; i < jobs->n; i++) {
        const struct job *j = &jobs->v[i];
        if (j->state == JOB_FAILED || j->state == JOB_CANCELLED)
            return snprintf(message, size, "%s: %s", w->id, j->error ? j->error : "it was cancelled"),
                   MHD_HTTP_INTERNAL_SERVER_ERROR;
        if (j->state == JOB_QUEUED && server_refuses(w->sv, j->id, why, sizeof why))
            return server_cancel(w->sv, w->ids, w->n),           /* it would wait for ever, with a key too */
                   snprintf(message, size, "%s: %s", w->id, why), MHD_HTTP_BAD_REQUEST;
    }
    w->settled = w->sv->phase == SERVE_STOPPING;
    if (w->settled)
        return snprintf(message, size, "%s: the server is stopping; with an Idempotency-Key the job goes on "
                        "at its next start", w->id), MHD_HTTP_SERVICE_UNAVAILABLE;
    return 0;
}
