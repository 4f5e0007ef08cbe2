/* The routes of a server, and those that need no job. Start at the table at the end. */
#include "runs/serve/http.h"

#include <stdio.h>
#include <string.h>

static int answer_health(struct call *c, struct err *e)
{
    const int phase = c->sv->phase;
    if (phase != SERVE_READY)
        return call_fail(c, e, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", phase == SERVE_LOADING
                         ? "the model is being read" : "the server is stopping");
    sheet_object(&c->w, NULL, (struct row[]){ { "status", NULL, V_TEXT("ok") }, { 0 } });
    return 0;
}

static bool put_model(struct call *c, const char *id)
{
    if (strcmp(id, c->sv->model))
        return false;
    sheet_object(&c->w, NULL, (struct row[]){
        { "id", NULL, V_TEXT(c->sv->model) },
        { "object", NULL, V_TEXT("model") },
        { "created", NULL, V_INT(0) },
        { "owned_by", NULL, V_TEXT("longhand") },
        { "max_model_len", NULL, V_UINT(batch_front_engine(&c->sv->front)->config.context) },
        { 0 } });
    return true;
}

static int answer_models(struct call *c, struct err *e)
{
    (void)e;
    jw_open(&c->w, NULL, '{');
    jw_text(&c->w, "object", "list");
    jw_open(&c->w, "data", '[');
    put_model(c, c->sv->model);
    jw_close(&c->w, ']');
    jw_close(&c->w, '}');
    return 0;
}

static int answer_metrics(struct call *c, struct err *e)
{
    (void)e;
    pthread_mutex_lock(&c->sv->news.lock);
    if (c->sv->metrics)
        fputs(c->sv->metrics, c->w.f);
    pthread_mutex_unlock(&c->sv->news.lock);
    c->type = "text/plain; version=0.0.4";
    return 0;
}

const struct route routes[] = {
    { "GET", "/health", answer_health, .open = true },
    { "GET", "/v1/models", answer_models },
    { "GET", "/v1/models/*", answer_one, .what = "model", .one = put_model },
    { "POST", "/v1/completions", answer_request, .drop = drop_waiting },
    { "POST", "/v1/chat/completions", answer_request, .drop = drop_waiting },
    { "POST", "/tokenize", answer_tokenize },
    { "POST", "/detokenize", answer_detokenize },
    { "GET", "/metrics", answer_metrics },
    { "GET", "/v1/jobs", answer_jobs },
    { "GET", "/v1/jobs/*", answer_about, .put = put_job },
    { "DELETE", "/v1/jobs/*", answer_change, .change = CHANGE_REMOVE_IDLE },
    { "GET", "/v1/jobs/*/text", answer_job_text, .drop = drop_following },
    { "GET", "/v1/jobs/*/report", answer_about, .put = put_report },
    { "POST", "/v1/jobs/*/pause", answer_change, CHANGE_PAUSE, put_job, put_failed_page },
    { "POST", "/v1/jobs/*/resume", answer_change, CHANGE_RESUME, put_job, put_failed_page },
    { "POST", "/v1/jobs/*/cancel", answer_change, CHANGE_CANCEL, put_job, put_failed_page },
    { "POST", "/v1/jobs/*/extend", answer_edit, .put = put_job },
    { "POST", "/v1/jobs/*/fork", answer_edit, .put = put_job },
    { "POST", "/v1/jobs/*/priority", answer_job_priority, .put = put_job },
    { "POST", "/v1/files", answer_upload, .take = take_upload, .drop = drop_upload, .what = "file",
      .one = put_file },
    { "GET", "/v1/files", answer_ids, .what = "file", .one = put_wanted_file },
    { "GET", "/v1/files/*", answer_one, .what = "file", .one = put_file },
    { "GET", "/v1/files/*/content", answer_content },
    { "DELETE", "/v1/files/*", answer_delete_file },
    { "POST", "/v1/batches", answer_new_batch, .what = "batch", .one = put_batch },
    { "GET", "/v1/batches", answer_ids, .what = "batch", .one = put_batch },
    { "GET", "/v1/batches/*", answer_one, .what = "batch", .one = put_batch },
    { "POST", "/v1/batches/*/cancel", answer_cancel_batch, .what = "batch", .one = put_batch },
    { "GET", "/", answer_page, .failed = put_failed_page },
    { "POST", "/jobs", answer_form, .failed = put_failed_page },
    { "GET", "/jobs/*", answer_about, .put = put_job_page, .failed = put_failed_page },
    { "GET", "/jobs/*/report", answer_about, .put = put_report_page, .failed = put_failed_page },
    { NULL },
};
