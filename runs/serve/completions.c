/* Requests for texts. A body becomes jobs (submit). The answer waits for their texts (answer_whole), or sends
 * them as they grow (put_events): texts are those of the store, so an event never has to be taken back. Start
 * at answer_request. */
#include "runs/serve/http.h"
#include "runs/report/export.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 64 };

/* The state of a request for texts, from its jobs to the last byte of its answer. */
struct waiting {
    struct flow flow;                    /* the first member; of a stream, but for flow.c */
    int64_t ids[SAMPLES_MAX]; size_t n;
    bool chat, keyed;                    /* keyed: the jobs go on without the client */
    bool stream, usage;
    bool settled;                        /* the jobs are done, or go on after this server */
    char id[48];                         /* cmpl-STORE-JOB */
    struct growing text[SAMPLES_MAX];
    /* of a stream: which choices have sent their finish_reason, and whether the first events were sent */
    bool finished[SAMPLES_MAX], begun;
};

enum { KEY_BYTES_MAX = 255 };
static const double LOOK_SECONDS = 1;            /* between looks whether the client is there */

/* ---- the body ---- */

/* Whether the object has the member, and not null. *rc: -1 after this or an earlier mistake. */
static bool has(int *rc, const struct json *object, const char *key, struct json *v, struct err *e)
{
    const int found = *rc ? 0 : js_get(object, key, v, e);
    *rc = found < 0 ? -1 : *rc;
    return found == 1 && js_kind(v) != JS_NULL;
}

/* What the body says to the server, not about the text. */
static int read_for_server(struct waiting *w, struct call *c, struct err *e)
{
    static const char *const refused[] = { "logprobs", "top_logprobs" };
    struct json body, v, usage;
    size_t n;
    int rc = call_object(c, &body, e);
    if (has(&rc, &body, "model", &v, e) && !js_is(&v, c->sv->model))
        return call_fail(c, e, MHD_HTTP_NOT_FOUND, "this server has no such model; it has %s", c->sv->model);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (has(&rc, &body, refused[i], &v, e) && js_kind(&v) != JS_FALSE)
            rc = js_bad(&v, e, "a server does not return log-probabilities; run --logprobs keeps them");
    if (has(&rc, &body, "n", &v, e))
        rc = js_whole_size(&v, 1, SAMPLES_MAX, &n, e);
    if (has(&rc, &body, "stream", &v, e))
        rc = js_bool(&v, &w->stream, e);
    if (has(&rc, &body, "stream_options", &v, e)) {
        rc = js_kind(&v) == JS_OBJECT ? 0 : js_bad(&v, e, "allowed is an object");
        if (has(&rc, &v, "include_usage", &usage, e))
            rc = js_bool(&usage, &w->usage, e);
    }
    return rc;
}

/* Opens the jobs of a body; close_body, also after a failure. No lock is held: a body may take seconds. */
static int open_body(struct server *sv, struct batch *b, struct options *o, const char *text, size_t n,
                     bool chat, struct err *e)
{
    *o = sv->request;
    o->held = sv->bell.held;
    o->held += !o->held;                 /* never 0: that check would write to the front */
    return batch_open_body(b, &sv->front, o, chat, text, n, e);
}

static void close_body(struct server *sv, struct batch *b)
{
    batch_close(b);
    bell_ring(&sv->bell);
}

int queue_body(struct server *sv, const char *text, size_t n, bool chat, const char *name, int64_t *id,
               struct err *e)
{
    struct options o;
    struct batch b;
    int rc = open_body(sv, &b, &o, text, n, chat, e);
    if (rc == 0) {
        b.spec->priority = 0;            /* a form has no `n` */
        pthread_mutex_lock(&sv->writing);
        rc = store_submit(sv->writer, name, b.spec, b.n, id, NULL, NULL, e);
        pthread_mutex_unlock(&sv->writing);
    }
    close_body(sv, &b);
    return rc;
}

void put_tokens(struct call *c, const int32_t *ids, size_t n)
{
    jw_open(&c->w, NULL, '{');
    jw_uint(&c->w, "count", n);
    jw_uint(&c->w, "max_model_len", batch_front_engine(&c->sv->front)->config.context);
    jw_open(&c->w, "tokens", '[');
    for (size_t i = 0; i < n; i++)
        jw_int(&c->w, NULL, ids[i]);
    jw_close(&c->w, ']');
    jw_close(&c->w, '}');
}

int put_body_tokens(struct call *c, struct err *e)
{
    struct options o;
    struct batch b;
    const int rc = open_body(c->sv, &b, &o, c->body, c->n_body, true, e);
    if (rc == 0)
        put_tokens(c, b.spec->prompt_ids, b.spec->prompt_tokens);
    close_body(c->sv, &b);
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
    struct server *sv = c->sv;
    struct submission s = { .r = { .r = { sv->worker->number, w->chat, key }, .ids = w->ids } };
    struct options o;
    struct batch b;
    int rc = open_body(sv, &b, &o, c->body, c->n_body, w->chat, e);
    if (rc == 0) {
        sha256_of(s.r.r.sha, b.spec->identity, b.spec->identity_bytes);
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

/* What is wrong with the jobs, so that no answer will come: -1; 0: nothing. */
static int waiting_failed(struct waiting *w, const struct job_list *jobs, struct err *e)
{
    struct call *c = w->flow.c;
    if (jobs->n < w->n)
        return call_fail(c, e, MHD_HTTP_NOT_FOUND, "%s was removed", w->id);
    for (size_t i = 0; i < jobs->n; i++) {
        const struct job *j = &jobs->v[i];
        const bool refused = j->state == JOB_CANCELLED && j->error;      /* by the worker */
        if (j->state == JOB_FAILED || j->state == JOB_CANCELLED)
            return call_fail(c, e, refused ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_INTERNAL_SERVER_ERROR, "%s: %s",
                             w->id, j->error ? j->error : "it was cancelled");
    }
    w->settled = c->sv->phase == SERVE_STOPPING;
    return !w->settled ? 0 : call_fail(c, e, MHD_HTTP_SERVICE_UNAVAILABLE, "%s: the server is stopping; with "
                                       "an Idempotency-Key the job goes on at its next start", w->id);
}

/* Begins an answer or an event: the list of its choices stays open. */
static void open_choices(struct json_writer *w, const struct waiting *x, double created)
{
    jw_open(w, NULL, '{');
    sheet_members(w, (struct row[]){
        { "id", NULL, V_TEXT(x->id) },
        { "object", NULL, V_TEXT(!x->chat    ? "text_completion"
                                 : x->stream ? "chat.completion.chunk" : "chat.completion") },
        { "created", NULL, V_NUMBER(floor(created)) },
        { "model", NULL, V_TEXT(x->flow.c->sv->model) },
        { 0 } });
    jw_open(w, "choices", '[');
}

/* Ends the list and the answer. jobs: of which it has the usage; NULL: none. */
static void close_choices(struct json_writer *w, const struct waiting *x, const struct job_list *jobs)
{
    size_t made = 0;
    for (size_t i = 0; jobs && i < jobs->n; i++)
        made += jobs->v[i].tokens - jobs->v[i].given;
    jw_close(w, ']');
    if (jobs)
        export_put_usage(w, jobs->v->prompt_tokens, made);
    else if (x->usage)
        jw_null(w, "usage");
    jw_close(w, '}');
}

/* A choice, or a part of it. ends: it is the last part. */
static void put_choice(struct json_writer *w, const struct waiting *x, const struct job *j, size_t index,
                       const struct said *said, bool ends)
{
    jw_open(w, NULL, '{');
    jw_uint(w, "index", index);
    export_put_said(w, said);
    jw_null(w, "logprobs");
    if (ends) {
        export_put_end(w, j, job_parts_last(&x->text[index].text.parts));
    } else {
        jw_null(w, "finish_reason");
        jw_null(w, "stop_reason");
    }
    jw_close(w, '}');
}

void drop_waiting(struct call *c)
{
    struct waiting *w = c->state;
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        growing_close(c->sv, &w->text[i]);
    if (w->n && !w->keyed && (!w->settled || c->sv->o->forget))
        server_cancel(c->sv, w->ids, w->n);
    c->sv->busy--;
    free(w->flow.out);
    free(w);
}

/* ---- events ---- */

static struct json_writer begin_event(FILE *f)
{
    fputs("data: ", f);
    return (struct json_writer){ .f = f, .digits = 10, .style = JW_COMPACT };
}

/* An event of one choice. text: without one it is the last event of the choice; thought: the text is one. */
static void put_event(FILE *f, const struct waiting *s, const struct job *j, size_t index, const char *text,
                      size_t n, bool thought)
{
    struct said said = { .chat = s->chat, .delta = true, .begins = !s->begun };
    struct json_writer w = begin_event(f);
    if (thought)
        said.thought = text, said.n_thought = n;
    else
        said.text = text, said.n = n;
    open_choices(&w, s, j->created);
    put_choice(&w, s, j, index, &said, !text);
    close_choices(&w, s, NULL);
    fputs("\n\n", f);
}

/* What one choice has that was not sent yet. */
static int put_more(FILE *f, struct waiting *s, const struct job *j, size_t i, struct err *e)
{
    struct grown_answer x;
    const int rc = growing_text(s->flow.c->sv, &s->text[i], j, &x, e);
    if (rc == 0 && x.n_thought)
        put_event(f, s, j, i, x.thought, x.n_thought, true);
    if (rc == 0 && x.n)
        put_event(f, s, j, i, x.text, x.n, false);
    if (rc == 0 && s->text[i].over && !s->finished[i]) {
        put_event(f, s, j, i, NULL, 0, false);
        s->finished[i] = true;
    }
    grown_answer_free(&x);
    return rc;
}

/* The event after those of the choices: the usage of the jobs or, with jobs NULL, what is wrong. */
static void put_last(FILE *f, const struct waiting *s, const struct job_list *jobs, const struct err *why)
{
    struct json_writer w = begin_event(f);
    const unsigned status = s->flow.c->status;
    char message[sizeof why->msg];
    if (jobs) {
        open_choices(&w, s, jobs->v->created);
        close_choices(&w, s, jobs);
    } else {
        err_for_client(why, message, sizeof message);
        put_error(&w, status ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, message);
    }
    fputs("\n\n", f);
}

/* Everything that can be sent now: as flow.more. */
static int put_events(struct flow *flow, FILE *f)
{
    struct waiting *s = (struct waiting *)flow;
    struct job_list jobs = {0};
    struct err e = {0};
    size_t finished = 0;
    int rc = server_jobs(flow->c->sv, s->ids, s->n, &jobs, &e);
    const size_t n = rc == 0 && jobs.n == s->n ? s->n : 0;
    for (size_t i = 0; i < n && s->chat && !s->begun; i++)
        put_event(f, s, &jobs.v[i], i, "", 0, false);
    s->begun |= n > 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = put_more(f, s, &jobs.v[i], i, &e);
        finished += s->finished[i];
    }
    const bool done = rc == 0 && finished == s->n;
    if (rc || (!done && waiting_failed(s, &jobs, &e)))
        rc = -1;
    if (rc || (done && s->usage))
        put_last(f, s, rc ? NULL : &jobs, &e);
    if (done)
        fputs("data: [DONE]\n\n", f);
    s->settled |= done;
    job_list_free(&jobs);
    return rc == 0 && !done;
}

/* ---- whole answers ---- */

static int put_answer(struct json_writer *r, struct waiting *w, const struct job_list *jobs, struct err *e)
{
    int rc = 0;
    open_choices(r, w, jobs->v->created);
    for (size_t i = 0; i < jobs->n && rc == 0; i++) {
        struct grown_answer a;
        rc = growing_text(w->flow.c->sv, &w->text[i], &jobs->v[i], &a, e);
        if (rc == 0)
            put_choice(r, w, &jobs->v[i], i, &(struct said){ .chat = w->chat, .text = a.text, .n = a.n,
                                                             .thought = a.thought, .n_thought = a.n_thought },
                       true);
        grown_answer_free(&a);
    }
    close_choices(r, w, jobs);
    return rc;
}

/* Waits until all texts are written, and answers. */
static int answer_whole(struct call *c, struct waiting *w, struct err *e)
{
    for (;;) {
        const uint64_t seen = news_count(c->sv, w->ids, w->n);
        struct job_list jobs = {0};
        size_t finished = 0;
        int rc = server_jobs(c->sv, w->ids, w->n, &jobs, e);
        for (size_t i = 0; i < jobs.n; i++)
            finished += jobs.v[i].state == JOB_DONE;
        const bool done = rc == 0 && finished == w->n;
        rc = rc ? rc : done ? put_answer(&c->w, w, &jobs, e) : waiting_failed(w, &jobs, e);
        const bool gone = !done && call_is_gone(c);
        w->settled |= done;
        job_list_free(&jobs);
        if (gone || rc || done)
            return gone ? CALL_CUT : rc;
        news_wait(c->sv, w->ids, w->n, seen, LOOK_SECONDS);
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

int answer_request(struct call *c, struct err *e)
{
    struct server *sv = c->sv;
    struct waiting *w = calloc(1, sizeof *w);
    const char *key;
    if (!w)
        return CALL_CUT;
    *w = (struct waiting){ .flow = { .c = c, .ids = w->ids, .more = put_events,
                                     .silence = ": the text is being written\n\n" },
                            .chat = strcmp(c->route->path, "/v1/chat/completions") == 0 };
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
    w->flow.n = w->n;
    if (w->stream)
        return answer_flow(&w->flow, "text/event-stream");
    /* libmicrohttpd would take the wait for an idle connection */
    MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    const int rc = answer_whole(c, w, e);
    MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)HTTP_IDLE_SECONDS);
    return rc;
}
