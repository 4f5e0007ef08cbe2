/* Answers as server-sent events. Texts are those of the store, so an event never has to be taken back. Start
 * at put_events. */
#include "runs/serve/stream.h"

#include <stdlib.h>

/* ---- events ---- */

static struct json_writer begin_event(FILE *f)
{
    fputs("data: ", f);
    return (struct json_writer){ .f = f, .digits = 10, .style = JW_COMPACT };
}

static void end_event(struct json_writer *w)
{
    jw_close(w, '}');
    fputs("\n\n", w->f);
}

/* An event of one choice: with a text, or the last one of the choice (text NULL). */
static void put_choice(FILE *f, const struct waiting *s, const struct job *j, size_t index, const char *text,
                       size_t n)
{
    const bool chat = s->chat;
    struct json_writer w = begin_event(f);
    put_head(&w, s, chat ? "chat.completion.chunk" : "text_completion", j->created);
    jw_open(&w, "choices", '[');
    jw_open(&w, NULL, '{');
    jw_uint(&w, "index", index);
    if (chat)
        jw_open(&w, "delta", '{');
    if (chat && !s->begun)
        jw_text(&w, "role", "assistant");
    if (text || !chat)
        jw_bytes(&w, chat ? "content" : "text", text ? text : "", n);
    if (chat)
        jw_close(&w, '}');
    jw_null(&w, "logprobs");
    if (text) {
        jw_null(&w, "finish_reason");
        jw_null(&w, "stop_reason");
    } else {
        put_finish(&w, j, &s->text[index]);
    }
    jw_close(&w, '}');
    jw_close(&w, ']');
    if (s->usage)
        jw_null(&w, "usage");
    end_event(&w);
}

static void put_usage_event(FILE *f, const struct waiting *s, const struct job_list *jobs)
{
    struct json_writer w = begin_event(f);
    put_head(&w, s, s->chat ? "chat.completion.chunk" : "text_completion", jobs->v->created);
    jw_open(&w, "choices", '[');
    jw_close(&w, ']');
    put_usage(&w, jobs);
    end_event(&w);
}

static void put_error_event(FILE *f, struct waiting *s, unsigned status, const char *message)
{
    struct json_writer w = begin_event(f);
    put_error(&w, status, message);
    fputs("\n\n", f);
    s->ended = true;
}

/* What one choice has that was not sent yet. */
static int put_more(FILE *f, struct waiting *s, const struct job *j, size_t i, struct err *e)
{
    char *text;
    size_t n;
    const int rc = waiting_text(s, i, j, &text, &n, e);
    if (rc == 0 && n)
        put_choice(f, s, j, i, text, n);
    if (rc == 0 && s->text[i].over && !s->finished[i]) {
        put_choice(f, s, j, i, NULL, 0);
        s->finished[i] = true;
    }
    free(text);
    return rc;
}

/* Everything that can be sent now: as flow.more. */
static int put_events(void *ctx, FILE *f)
{
    struct waiting *s = ctx;
    struct job_list jobs = {0};
    struct err e = {0};
    char message[800];
    size_t finished = 0;
    int rc = server_jobs(s->sv, s->ids, s->n, &jobs, &e);
    if (rc == 0 && jobs.n == s->n && s->chat && !s->begun)
        for (size_t i = 0; i < jobs.n; i++)
            put_choice(f, s, &jobs.v[i], i, "", 0);
    s->begun |= rc == 0 && jobs.n == s->n;
    for (size_t i = 0; rc == 0 && jobs.n == s->n && i < jobs.n; i++) {
        rc = put_more(f, s, &jobs.v[i], i, &e);
        finished += s->finished[i];
    }
    const unsigned status = rc                      ? MHD_HTTP_INTERNAL_SERVER_ERROR
                            : finished == s->n    ? 0
                                                    : waiting_failed(s, &jobs, message, sizeof message);
    if (status) {
        put_error_event(f, s, status, rc ? err_text(&e) : message);
    } else if (finished == s->n) {
        if (s->usage)
            put_usage_event(f, s, &jobs);
        fputs("data: [DONE]\n\n", f);
        s->ended = s->settled = true;
    }
    job_list_free(&jobs);
    return !s->ended;
}

/* ---- the response ---- */

enum MHD_Result answer_stream(struct call *c, struct waiting *s)
{
    enum { BLOCK = 16384 };
    s->flow = (struct flow){ .c = c, .ids = s->ids, .n = s->n, .more = put_events, .ctx = s,
                             .silence = ": the text is being written\n\n", .sent = clock_seconds() };
    return answer(c, MHD_HTTP_OK, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, flow_read,
                                                                    &s->flow, NULL), "text/event-stream");
}
