/* The routes of a server, and those that need no job. Start at the table at the end. */
#include "runs/serve/batches.h"
#include "runs/serve/completions.h"
#include "runs/serve/files.h"
#include "runs/serve/jobs.h"
#include "runs/serve/page.h"

#include <string.h>

static enum MHD_Result answer_health(struct call *c)
{
    const int phase = c->sv->phase;
    struct reply r;
    if (phase != SERVE_READY)
        return answer_error(c, MHD_HTTP_SERVICE_UNAVAILABLE, phase == SERVE_LOADING
                            ? "the model is being read" : "the server is stopping");
    if (reply_open(&r))
        return MHD_NO;
    jw_open(&r.w, NULL, '{');
    jw_text(&r.w, "status", "ok");
    jw_close(&r.w, '}');
    return reply_send(c, &r, MHD_HTTP_OK);
}

static void put_model(struct json_writer *w, const struct server *sv)
{
    jw_open(w, NULL, '{');
    jw_text(w, "id", sv->model);
    jw_text(w, "object", "model");
    jw_int(w, "created", 0);
    jw_text(w, "owned_by", "longhand");
    jw_uint(w, "max_model_len", batch_front_engine(&sv->front)->config.context);
    jw_close(w, '}');
}

static enum MHD_Result answer_models(struct call *c)
{
    struct reply r;
    if (reply_open(&r))
        return MHD_NO;
    jw_open(&r.w, NULL, '{');
    jw_text(&r.w, "object", "list");
    jw_open(&r.w, "data", '[');
    put_model(&r.w, c->sv);
    jw_close(&r.w, ']');
    jw_close(&r.w, '}');
    return reply_send(c, &r, MHD_HTTP_OK);
}

static enum MHD_Result answer_model(struct call *c)
{
    struct reply r;
    if (strcmp(c->id, c->sv->model))
        return answer_error(c, MHD_HTTP_NOT_FOUND, "this server has no such model; it has %s", c->sv->model);
    if (reply_open(&r))
        return MHD_NO;
    put_model(&r.w, c->sv);
    return reply_send(c, &r, MHD_HTTP_OK);
}

const struct route routes[] = {
    { "GET", "/health", answer_health, true },
    { "GET", "/v1/models", answer_models, false },
    { "GET", "/v1/models/*", answer_model, false },
    { "POST", "/v1/completions", answer_completions, false, NULL, drop_waiting },
    { "POST", "/v1/chat/completions", answer_chat, false, NULL, drop_waiting },
    { "POST", "/tokenize", answer_tokenize, false },
    { "POST", "/detokenize", answer_detokenize, false },
    { "GET", "/metrics", answer_metrics, false },
    { "GET", "/v1/jobs", answer_jobs, false },
    { "GET", "/v1/jobs/*", answer_job, false },
    { "DELETE", "/v1/jobs/*", answer_job_remove, false },
    { "GET", "/v1/jobs/*/text", answer_job_text, false },
    { "GET", "/v1/jobs/*/report", answer_job_report, false },
    { "POST", "/v1/jobs/*/pause", answer_job_pause, false },
    { "POST", "/v1/jobs/*/resume", answer_job_resume, false },
    { "POST", "/v1/jobs/*/cancel", answer_job_cancel, false },
    { "POST", "/v1/jobs/*/extend", answer_job_extend, false },
    { "POST", "/v1/jobs/*/fork", answer_job_fork, false },
    { "POST", "/v1/jobs/*/priority", answer_job_priority, false },
    { "POST", "/v1/files", answer_upload, false, take_upload, drop_upload },
    { "GET", "/v1/files", answer_files, false },
    { "GET", "/v1/files/*", answer_file, false },
    { "GET", "/v1/files/*/content", answer_content, false },
    { "DELETE", "/v1/files/*", answer_delete_file, false },
    { "POST", "/v1/batches", answer_new_batch, false },
    { "GET", "/v1/batches", answer_batches, false },
    { "GET", "/v1/batches/*", answer_batch, false },
    { "POST", "/v1/batches/*/cancel", answer_cancel_batch, false },
    { "GET", "/", answer_page, false },
    { "POST", "/jobs", answer_form, false },
    { "GET", "/jobs/*", answer_job_page, false },
    { "GET", "/jobs/*/report", answer_report_page, false },
    { NULL },
};
