/* What whole answers and streams have in common. */
#include "runs/serve/waiting.h"
#include "runs/report/export.h"

#include <math.h>
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

void waiting_end(struct waiting *w, bool gone)
{
    if (gone && !w->keyed)
        server_cancel(w->sv, w->ids, w->n);
    w->sv->busy--;
}

unsigned waiting_failed(const struct waiting *w, const struct job_list *jobs, char *message, size_t size)
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
    if (w->sv->phase == SERVE_STOPPING)
        return snprintf(message, size, "%s: the server is stopping; with an Idempotency-Key the job goes on "
                        "at its next start", w->id), MHD_HTTP_SERVICE_UNAVAILABLE;
    return 0;
}
