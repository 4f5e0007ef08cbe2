/* Requests for texts. A body becomes jobs (submit). The answer waits for their texts (answer_whole), or sends
 * them as they grow (put_events): texts are those of the store, so an event never has to be taken back. Start
 * at answer_request. */
#include "runs/serve/completions.h"
#include "runs/report/export.h"
#include "runs/serve/texts.h"
#include "src/base/memory_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 64 };

/* The state of a request for texts, from its jobs to the last byte of its answer. */
struct waiting {
    struct flow flow;                    /* of a stream */
    struct server *sv;
    int64_t ids[SAMPLES_MAX]; size_t n;
    bool chat, keyed;                    /* keyed: the jobs go on without the client */
    bool stream, usage;
    bool settled;                        /* the jobs are done, or go on after this server */
    char id[48];                         /* cmpl-STORE-JOB */
    struct growing text[SAMPLES_MAX];
    /* of a stream: which choices have sent their finish_reason, whether the first events were sent, and
     * whether the last one was */
    bool finished[SAMPLES_MAX], begun, ended;
};

enum { KEY_BYTES_MAX = 255 };
static const double LOOK_SECONDS = 1;            /* between looks whether the client is there */

/* ---- the body ---- */

/* What the body says to the server, not about the text. */
static int read_for_server(struct waiting *w, struct call *c, struct err *e)
{
    static const char *const refused[] = { "logprobs", "top_logprobs" };
    struct json body, v, usage;
    size_t n = 1;
    if (call_object(c, &body, e))
        return -1;
    int found = js_get(&body, "model", &v, e);
    if (found == 1 && js_kind(&v) != JS_NULL && !js_is(&v, w->sv->model))
        return call_fail(c, e, MHD_HTTP_NOT_FOUND, "this server has no such model; it has %s", w->sv->model);
    for (size_t i = 0; i < sizeof refused / sizeof *refused && found >= 0; i++)
        if ((found = js_get(&body, refused[i], &v, e)) == 1 && js_kind(&v) != JS_NULL &&
            js_kind(&v) != JS_FALSE)
            found = js_bad(&v, e, "a server does not return log-probabilities; run --logprobs keeps them");
    if (found >= 0 && (found = js_get(&body, "n", &v, e)) == 1 && js_kind(&v) != JS_NULL)
        found = js_whole_size(&v, 1, SAMPLES_MAX, &n, e);
    if (found >= 0 && (found = js_get(&body, "stream", &v, e)) == 1 && js_kind(&v) != JS_NULL)
        found = js_bool(&v, &w->stream, e);
    if (found >= 0 && (found = js_get(&body, "stream_options", &v, e)) == 1 && js_kind(&v) != JS_NULL &&
        (found = js_kind(&v) == JS_OBJECT ? js_get(&v, "include_usage", &usage, e)
                                          : js_bad(&v, e, "allowed is an object")) == 1 &&
        js_kind(&usage) != JS_NULL)
        found = js_bool(&usage, &w->usage, e);
    return found < 0 ? -1 : 0;
}

/* Opens the jobs of a body; close_body, also after a failure. No lock is held: a body may take seconds. */
static int open_body(struct server *sv, struct batch *b, struct options *o, const struct body *body,
                     struct err *e)
{
    o->held = MAX(bell_held(&sv->bell), (size_t)1);     /* never 0: that check would write to the front */
    return batch_open_body(b, &sv->front, o, body->chat, body->text, body->n, e);
}

static void close_body(struct server *sv, struct batch *b)
{
    batch_close(b);
    bell_ring(&sv->bell);
}

int queue_body(struct server *sv, const struct body *body, const char *name, int64_t *id, struct err *e)
{
    struct options o = sv->request;
    struct batch b;
    o.priority = 0;
    int rc = open_body(sv, &b, &o, body, e);
    if (rc == 0) {
        pthread_mutex_lock(&sv->writing);
        rc = store_submit(sv->writer, name, b.spec, b.n, id, NULL, NULL, e);
        pthread_mutex_unlock(&sv->writing);
    }
    close_body(sv, &b);
    return rc;
}

int body_tokens(struct server *sv, const struct body *body, int32_t **ids, size_t *n, struct err *e)
{
    struct options o = sv->request;
    struct batch b;
    int rc = open_body(sv, &b, &o, body, e);
    if (rc == 0) {
        *n = b.spec->prompt_tokens;
        *ids = malloc((*n + 1) * sizeof **ids);
        rc = *ids ? 0 : err_set(e, ERR_FAILED, "out of memory");
    }
    if (rc == 0 && *n)
        memcpy(*ids, b.spec->prompt_ids, *n * sizeof **ids);
    close_body(sv, &b);
    return rc;
}

/* A request that waits to be stored. `next` is under `joining`, `done` under `writing`. */
struct submission { struct request_submit r; struct submission *next; bool done; };

/* Stores the requests that wait, up to `mine`: the thread that gets the lock works for the others. */
static void submit_together(struct server *sv, struct submission *mine)
{
    enum { TOGETHER = 64 };
    struct submission *all[TOGETHER];
    struct request_submit *v[TOGETHER];
    struct err ignored;                  /* each request has it */
    pthread_mutex_lock(&sv->joining);
    *sv->last = mine;
    sv->last = &mine->next;
    pthread_mutex_unlock(&sv->joining);
    pthread_mutex_lock(&sv->writing);
    while (!mine->done) {
        size_t n = 0;
        pthread_mutex_lock(&sv->joining);
        for (; sv->first && n < TOGETHER; sv->first = sv->first->next) {
            all[n] = sv->first;
            v[n++] = &sv->first->r;
        }
        sv->last = sv->first ? sv->last : &sv->first;
        pthread_mutex_unlock(&sv->joining);
        store_submit_requests(sv->writer, v, n, &ignored);
        for (size_t i = 0; i < n; i++)
            all[i]->done = true;
    }
    pthread_mutex_unlock(&sv->writing);
}

/* Stores the jobs of the body: as struct request_submit's rc. */
static int submit(struct waiting *w, const struct call *c, const char *key, struct err *e)
{
    struct server *sv = w->sv;
    struct submission s = { .r = { .r = { sv->worker->number, w->chat, key }, .ids = w->ids } };
    struct options o = sv->request;
    struct batch b;
    struct sha256 h;
    int rc = open_body(sv, &b, &o, &(struct body){ c->body, c->n_body, w->chat }, e);
    if (rc == 0) {
        sha256_start(&h);
        sha256_add(&h, b.spec->identity, b.spec->identity_bytes);
        sha256_end(&h, s.r.r.sha);
        s.r.v = b.spec;
        s.r.n = b.n;
        submit_together(sv, &s);
        rc = s.r.rc;
        *e = s.r.err;
        w->n = rc >= 0 && rc != SUBMIT_OTHER ? b.n : 0;
    }
    close_body(sv, &b);
    if (w->n)
        snprintf(w->id, sizeof w->id, "%s-%s-%" PRId64, w->chat ? "chatcmpl" : "cmpl", sv->store_name,
                 w->ids[0]);
    return rc;
}

/* ---- parts of answers ---- */

/* id, object, created and model of an answer; the object stays open. */
static void put_head(struct json_writer *w, const struct waiting *x, const char *object, double created)
{
    jw_open(w, NULL, '{');
    jw_text(w, "id", x->id);
    jw_text(w, "object", object);
    jw_number(w, "created", floor(created));
    jw_text(w, "model", x->sv->model);
}

static void put_usage(struct json_writer *w, const struct job_list *jobs)
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

/* finish_reason and stop_reason of a job that is done, whose text *g was read. */
static void put_finish(struct json_writer *w, const struct job *j, const struct growing *g)
{
    const bool repeats = job_is_cut_short(j);
    jw_text(w, "finish_reason", repeats ? "stop" : j->finish_reason);
    export_put_stop_reason(w, j, job_parts_last(&g->text.parts), true);
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

/* What is wrong with the jobs, so that no answer will come: an HTTP status and a message; 0: nothing. */
static unsigned waiting_failed(struct waiting *w, const struct job_list *jobs, char *message,
                               size_t size)
{
    if (jobs->n < w->n)
        return snprintf(message, size, "%s was removed", w->id), MHD_HTTP_NOT_FOUND;
    for (size_t i = 0; i < jobs->n; i++) {
        const struct job *j = &jobs->v[i];
        if (j->state != JOB_FAILED && j->state != JOB_CANCELLED)
            continue;
        snprintf(message, size, "%s: %s", w->id, j->error ? j->error : "it was cancelled");
        return j->state == JOB_CANCELLED && j->error ? MHD_HTTP_BAD_REQUEST       /* the worker refused it */
                                                     : MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    w->settled = w->sv->phase == SERVE_STOPPING;
    if (w->settled)
        return snprintf(message, size, "%s: the server is stopping; with an Idempotency-Key the job goes on "
                        "at its next start", w->id), MHD_HTTP_SERVICE_UNAVAILABLE;
    return 0;
}

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

/* An event of one choice: with a text under a name, or the last one of the choice (text NULL). */
static void put_choice_event(FILE *f, const struct waiting *s, const struct job *j, size_t index,
                             const char *name, const char *text, size_t n)
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
        jw_bytes(&w, name, text ? text : "", n);
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
    const char *name = s->chat ? "content" : "text";
    struct grown_answer x;
    const int rc = growing_text(s->sv, &s->text[i], j, &x, e);
    if (rc == 0 && x.n_thought)
        put_choice_event(f, s, j, i, "reasoning_content", x.thought, x.n_thought);
    if (rc == 0 && x.n)
        put_choice_event(f, s, j, i, name, x.text, x.n);
    if (rc == 0 && s->text[i].over && !s->finished[i]) {
        put_choice_event(f, s, j, i, name, NULL, 0);
        s->finished[i] = true;
    }
    grown_answer_free(&x);
    return rc;
}

/* Everything that can be sent now: as flow.more. */
static int put_events(void *ctx, FILE *f)
{
    struct waiting *s = ctx;
    struct job_list jobs = {0};
    struct err e = {0};
    char message[sizeof e.msg];
    size_t finished = 0;
    int rc = server_jobs(s->sv, s->ids, s->n, &jobs, &e);
    if (rc == 0 && jobs.n == s->n && s->chat && !s->begun)
        for (size_t i = 0; i < jobs.n; i++)
            put_choice_event(f, s, &jobs.v[i], i, "content", "", 0);
    s->begun |= rc == 0 && jobs.n == s->n;
    for (size_t i = 0; rc == 0 && jobs.n == s->n && i < jobs.n; i++) {
        rc = put_more(f, s, &jobs.v[i], i, &e);
        finished += s->finished[i];
    }
    const unsigned status = rc                      ? MHD_HTTP_INTERNAL_SERVER_ERROR
                            : finished == s->n    ? 0
                                                    : waiting_failed(s, &jobs, message, sizeof message);
    if (rc)
        err_for_client(&e, message, sizeof message);
    if (status) {
        put_error_event(f, s, status, message);
    } else if (finished == s->n) {
        if (s->usage)
            put_usage_event(f, s, &jobs);
        fputs("data: [DONE]\n\n", f);
        s->ended = s->settled = true;
    }
    job_list_free(&jobs);
    return !s->ended;
}

static int answer_stream(struct call *c, struct waiting *s)
{
    enum { BLOCK = 16384 };
    s->flow = (struct flow){ .c = c, .ids = s->ids, .n = s->n, .more = put_events, .ctx = s,
                             .silence = ": the text is being written\n\n", .sent = clock_seconds() };
    return call_respond(c, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, flow_read, &s->flow,
                                                             NULL), "text/event-stream");
}

/* ---- whole answers ---- */

static int put_choice(struct json_writer *w, struct waiting *x, const struct job *j, size_t index,
                      struct err *e)
{
    struct grown_answer a;
    const int rc = growing_text(x->sv, &x->text[index], j, &a, e);
    if (rc == 0) {
        jw_open(w, NULL, '{');
        jw_uint(w, "index", index);
        if (x->chat) {
            jw_open(w, "message", '{');
            jw_text(w, "role", "assistant");
            jw_bytes(w, "content", a.text, a.n);
            if (a.n_thought)
                jw_bytes(w, "reasoning_content", a.thought, a.n_thought);
            jw_null(w, "refusal");
            jw_close(w, '}');
        } else {
            jw_bytes(w, "text", a.text, a.n);
        }
        jw_null(w, "logprobs");
        put_finish(w, j, &x->text[index]);
        jw_close(w, '}');
    }
    grown_answer_free(&a);
    return rc;
}

static int put_answer(struct json_writer *r, struct waiting *w, const struct job_list *jobs, struct err *e)
{
    put_head(r, w, w->chat ? "chat.completion" : "text_completion", jobs->v->created);
    jw_open(r, "choices", '[');
    for (size_t i = 0; i < jobs->n; i++)
        if (put_choice(r, w, &jobs->v[i], i, e))
            return -1;
    jw_close(r, ']');
    put_usage(r, jobs);
    jw_close(r, '}');
    return 0;
}

/* ---- waiting ---- */

static bool all_done(const struct job_list *jobs)
{
    bool all = true;
    for (size_t i = 0; i < jobs->n; i++)
        all &= jobs->v[i].state == JOB_DONE;
    return all;
}

/* Waits until all texts are written, and answers. */
static int answer_whole(struct call *c, struct waiting *w, struct err *e)
{
    for (;;) {
        char message[800];
        const uint64_t seen = news_count(w->sv, w->ids, w->n);
        struct job_list jobs = {0};
        int rc = server_jobs(w->sv, w->ids, w->n, &jobs, e);
        const bool done = rc == 0 && jobs.n == w->n && all_done(&jobs);
        const unsigned status = rc == 0 && !done ? waiting_failed(w, &jobs, message, sizeof message) : 0;
        const bool gone = !done && call_is_gone(c);
        if (done)
            rc = put_answer(&c->w, w, &jobs, e);
        else if (status)
            rc = call_fail(c, e, status, "%s", message);
        w->settled |= done;
        job_list_free(&jobs);
        if (gone || rc || done)
            return gone ? CALL_CUT : rc;
        news_wait(w->sv, w->ids, w->n, seen, LOOK_SECONDS);
    }
}

/* Idempotency-Key. *key NULL: none. */
static int read_idempotency(struct call *c, const char **key, struct err *e)
{
    *key = MHD_lookup_connection_value(c->c, MHD_HEADER_KIND, "Idempotency-Key");
    const size_t n = *key ? strlen(*key) : 1;
    return n && n <= KEY_BYTES_MAX ? 0 : err_set(e, ERR_INPUT, "Idempotency-Key: %zu bytes, allowed are 1 to "
                                                 "%d", n, KEY_BYTES_MAX);
}

static int answer_request(struct call *c, bool chat, struct err *e)
{
    struct server *sv = c->sv;
    struct waiting *w = calloc(1, sizeof *w);
    const char *key;
    if (!w)
        return CALL_CUT;
    *w = (struct waiting){ .sv = sv, .chat = chat };
    sv->busy++;
    c->state = w;                        /* for drop_waiting */
    if (read_for_server(w, c, e) || read_idempotency(c, &key, e))
        return -1;
    if (sv->phase == SERVE_STOPPING)
        return call_fail(c, e, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping");
    if (sv->busy > sv->o->max_connections)
        return call_fail(c, e, MHD_HTTP_TOO_MANY_REQUESTS, "%zu requests wait already (--max-connections)",
                         sv->o->max_connections);
    w->keyed = key != NULL;
    const int known = submit(w, c, key, e);
    c->status = known == SUBMIT_OTHER ? MHD_HTTP_CONFLICT : 0;
    if (known < 0 || known == SUBMIT_OTHER)
        return -1;
    if (w->stream)
        return answer_stream(c, w);
    /* libmicrohttpd would take the wait for an idle connection */
    MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    const int rc = answer_whole(c, w, e);
    MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)HTTP_IDLE_SECONDS);
    return rc;
}

int answer_completions(struct call *c, struct err *e) { return answer_request(c, false, e); }
int answer_chat(struct call *c, struct err *e) { return answer_request(c, true, e); }
