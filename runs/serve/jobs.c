/* /v1/jobs. The bodies of answers are those of `list --json`, `show --json` and `report --json`. Start at
 * call_job, which finds the job of a path, and at change. */
#include "runs/serve/jobs.h"
#include "runs/report/job_json.h"
#include "runs/report/report.h"
#include "runs/serve/texts.h"
#include "runs/work/edit.h"
#include "runs/work/snapshot_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

int call_job(struct call *c, struct job_list *jobs, enum MHD_Result *rc)
{
    struct err e = {0};
    long id;
    *jobs = (struct job_list){0};
    if (parse_long(&id, "job", c->id, 1, LONG_MAX, &e) == 0) {
        const int64_t one = id;
        if (server_jobs(c->sv, &one, 1, jobs, &e)) {
            *rc = answer_err(c, &e);
            return -1;
        }
    }
    if (jobs->n == 1)
        return 0;
    job_list_free(jobs);
    *rc = answer_error(c, MHD_HTTP_NOT_FOUND, "there is no job %s", c->id);
    return -1;
}

enum MHD_Result answer_jobs(struct call *c)
{
    const struct selection every = {
        .no_requests = !MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, "requests")
    };
    struct server *sv = c->sv;
    struct err e = {0};
    struct store_counts n = {0};
    struct job_list jobs = {0};
    struct reply r;
    int64_t *ids = NULL;
    size_t n_ids = 0, most = SIZE_MAX;
    double estimate = 0;
    const char *limit = MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, "limit");
    if (limit && parse_size(&most, "limit", limit, 1, SIZE_MAX / 2, &e))
        return answer_err(c, &e);
    if (reply_open(&r))
        return MHD_NO;
    struct store *s = NULL;
    int rc = server_connect(sv, &s, &e) || store_select(s, &every, &ids, &n_ids, &e);
    const size_t skip = n_ids - MIN(n_ids, most);        /* the newest ones are wanted */
    rc = rc || store_jobs(s, ids + skip, n_ids - skip, &jobs, &e) ||
         store_mark_shared(s, &jobs, &e) || store_estimate(s, &jobs, &estimate, &e);
    store_close(s);
    if (rc == 0) {
        count_jobs(&n, &jobs);
        jw_open(&r.w, NULL, '{');
        put_counts_json(&r.w, &n, estimate);
        jw_open(&r.w, "jobs", '[');
        for (size_t i = 0; i < jobs.n; i++) {
            put_job_json(&r.w, &jobs.v[i], NULL);
            jw_bool(&r.w, "ran_alone", !jobs.v[i].shared);
            jw_close(&r.w, '}');
        }
        jw_close(&r.w, ']');
        jw_close(&r.w, '}');
    }
    job_list_free(&jobs);
    free(ids);
    return rc ? reply_drop(c, &r, &e) : reply_send(c, &r, MHD_HTTP_OK);
}

/* Answers with what `put` writes about the job. */
typedef int put_job_fn(struct json_writer *w, struct store *s, const struct job *job, struct err *e);
static enum MHD_Result answer_about(struct call *c, put_job_fn *put)
{
    struct job_list jobs;
    struct err e = {0};
    struct reply r;
    enum MHD_Result rc;
    if (call_job(c, &jobs, &rc))
        return rc;
    if (reply_open(&r)) {
        job_list_free(&jobs);
        return MHD_NO;
    }
    struct store *s = NULL;
    const int bad = server_connect(c->sv, &s, &e) || put(&r.w, s, jobs.v, &e);
    store_close(s);
    job_list_free(&jobs);
    return bad ? reply_drop(c, &r, &e) : reply_send(c, &r, MHD_HTTP_OK);
}

static int put_report(struct json_writer *w, struct store *s, const struct job *job, struct err *e)
{
    const struct report_options o = {0};
    const struct report_from from = { s, &job->id, 1 };
    struct reports l = {0};
    const int bad = reports_open(&l, &from, 1, &o, e) || report_json(w->f, &l, e);
    reports_close(&l);
    return bad ? -1 : 0;
}

enum MHD_Result answer_job(struct call *c) { return answer_about(c, put_shown_json); }
enum MHD_Result answer_job_report(struct call *c) { return answer_about(c, put_report); }

/* ---- texts ---- */

/* A text as an answer that grows. */
struct following {
    struct flow flow;                    /* the first member */
    struct server *sv;
    int64_t job;
    bool follow;
    struct growing text;
};

/* More of the text: as flow.more. */
static int put_text(void *ctx, FILE *f)
{
    struct following *x = ctx;
    struct job_list jobs = {0};
    struct err e = {0};
    int rc = server_jobs(x->sv, &x->job, 1, &jobs, &e);
    const bool removed = rc == 0 && !jobs.n;
    const enum job_state s = rc == 0 && jobs.n ? jobs.v->state : JOB_CANCELLED;
    if (rc == 0 && jobs.n)
        rc = growing_more(x->sv, &x->text, jobs.v, f, &e);
    job_list_free(&jobs);
    const bool more = x->follow && (s == JOB_QUEUED || s == JOB_RUNNING || s == JOB_PAUSED);
    /* an answer that ends says that the text is whole */
    return rc || removed || (more && x->sv->phase == SERVE_STOPPING) ? -1 : more;
}

static void free_following(void *ctx)
{
    struct following *x = ctx;
    growing_close(x->sv, &x->text);
    free(x->flow.out);
    free(x);
}

enum MHD_Result answer_job_text(struct call *c)
{
    const char *from = MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, "from"),
               *follow = MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, "follow");
    struct job_list jobs;
    struct err e = {0};
    enum MHD_Result rc;
    size_t token = 0;
    if (from && parse_size(&token, "from", from, 0, SIZE_MAX / 2, &e))
        return answer_err(c, &e);
    if (call_job(c, &jobs, &rc))
        return rc;
    const int64_t job = jobs.v->id;
    job_list_free(&jobs);
    struct following *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    *x = (struct following){ .sv = c->sv, .job = job, .text.from = token,
                             .follow = follow && strcmp(follow, "1") == 0 };
    x->flow = (struct flow){ .c = c, .ids = &x->job, .n = 1, .more = put_text, .ctx = x };
    if (x->follow)                       /* the text may pause for long */
        MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return answer(c, MHD_HTTP_OK, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, flow_read, x,
                                                                    free_following),
                  "text/plain; charset=utf-8");
}

/* ---- changing ---- */

typedef int change_fn(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);

/* A form of the page wants the page again, other clients the job. */
static enum MHD_Result changed_answer(struct call *c, bool removed)
{
    const char *page = MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, "page");
    char path[96];
    snprintf(path, sizeof path, "/jobs/%s", c->id);
    if (page)
        return answer_see(c, strcmp(page, "job") ? "/" : path);
    if (!removed)
        return answer_job(c);
    struct reply r;
    if (reply_open(&r))
        return MHD_NO;
    jw_open(&r.w, NULL, '{');
    jw_text(&r.w, "id", c->id);
    jw_bool(&r.w, "deleted", true);
    jw_close(&r.w, '}');
    return reply_send(c, &r, MHD_HTTP_OK);
}

/* fn NULL: set the priority. */
static enum MHD_Result change(struct call *c, change_fn *fn, bool removes, int priority)
{
    struct job_list jobs;
    struct err e = {0};
    enum MHD_Result rc;
    size_t changed;
    if (call_job(c, &jobs, &rc))
        return rc;
    const int64_t job = jobs.v->id;
    const enum job_state state = jobs.v->state;
    job_list_free(&jobs);
    pthread_mutex_lock(&c->sv->writing);
    const int bad = fn ? fn(c->sv->writer, &job, 1, &changed, &e)
                       : store_priority(c->sv->writer, &job, 1, priority, &changed, &e);
    if (!bad && changed)
        snapshot_files_delete_unused(c->sv->writer);
    pthread_mutex_unlock(&c->sv->writing);
    server_tell(c->sv, job);
    bell_ring(&c->sv->bell);
    if (bad)
        return e.code == ERR_INPUT ? answer_error(c, MHD_HTTP_CONFLICT, "%s", e.msg) : answer_err(c, &e);
    if (!changed)
        return answer_error(c, MHD_HTTP_CONFLICT, "job %s is %s", c->id, job_state_name(state));
    return changed_answer(c, removes);
}

enum MHD_Result answer_job_pause(struct call *c) { return change(c, store_pause, false, 0); }
enum MHD_Result answer_job_resume(struct call *c) { return change(c, store_resume, false, 0); }
enum MHD_Result answer_job_cancel(struct call *c) { return change(c, store_cancel, false, 0); }
enum MHD_Result answer_job_remove(struct call *c)
{
    return change(c, store_remove_unless_running, true, 0);
}

/* The member `key` of the body. */
static int body_member(struct call *c, const char *key, struct json *v, struct err *e)
{
    struct json body;
    if (call_object(c, &body, e))
        return -1;
    const int found = js_get(&body, key, v, e);
    return found == 0 ? err_set(e, ERR_INPUT, "body.%s is missing", key) : found < 0 ? -1 : 0;
}

enum MHD_Result answer_job_priority(struct call *c)
{
    struct err e = {0};
    struct json v;
    int64_t priority;
    if (body_member(c, "priority", &v, &e))
        return answer_err(c, &e);
    if (!js_i64(&v, &priority) || priority < -1000000 || priority > 1000000) {
        js_bad(&v, &e, "a whole number from -1000000 to 1000000 is allowed");
        return answer_err(c, &e);
    }
    return change(c, NULL, false, (int)priority);
}

/* ---- extend, fork ---- */

enum { EDIT_BYTES_MAX = 1 << 20 };

/* The words of a command line, which options borrow. */
struct words { char **v; size_t n; };

static void words_free(struct words *w)
{
    for (size_t i = 3; i < w->n; i++)
        free(w->v[i]);
    free(w->v);
}

/* Adds --name=value, or --name for true; false and null are as good as a missing member. */
static int add_word(struct words *w, const char *name, enum edit_field takes, const struct json *v,
                    struct err *e)
{
    const enum js_kind kind = js_kind(v);
    if (kind == JS_NULL || kind == JS_FALSE)
        return 0;
    if ((kind == JS_TRUE) != (takes == FIELD_FLAG))
        return js_bad(v, e, takes == FIELD_FLAG ? "allowed is true or false" : "true is for options that "
                      "have no value");
    if (kind == JS_ARRAY || (kind == JS_OBJECT && strcmp(name, "logit_bias")))
        return js_bad(v, e, "allowed is a text, a number, or an array of them");
    char *text = kind == JS_STRING ? js_strdup(v) : strndup(v->s, (size_t)(v->end - v->s));
    char **word = &w->v[w->n];
    const int n = !text           ? -1
                  : kind == JS_TRUE ? asprintf(word, "--%s", name)
                                    : asprintf(word, "--%s=%s%s", name, takes == FIELD_ADDED ? "+" : "",
                                               text);
    free(text);
    if (n < 0)
        return err_set(e, ERR_FAILED, "out of memory");
    w->n++;
    return 0;
}

/* The command line that the body stands for: *o borrows from w. */
static int read_options(struct options *o, struct words *w, struct call *c, const char *verb, struct err *e)
{
    struct json body, key, v, one;
    char name[40];
    if (c->n_body > EDIT_BYTES_MAX)
        return err_set(e, ERR_INPUT, "body: %zu bytes, at most %d are allowed", c->n_body, EDIT_BYTES_MAX);
    if (call_object(c, &body, e))
        return -1;
    if (!(w->v = calloc(c->n_body / 2 + 4, sizeof *w->v)))
        return err_set(e, ERR_FAILED, "out of memory");
    w->v[w->n++] = "longhand";
    w->v[w->n++] = (char *)verb;
    w->v[w->n++] = c->id;
    for (struct js_walk m = js_walk(&body); js_next(&m, &key, &v);) {
        char *k = js_strdup(&key);
        snprintf(name, sizeof name, "%s", k ? k : "");
        const enum edit_field takes = k && strlen(k) < sizeof name
                                          ? options_edit_takes(options_verb(verb), name)
                                          : FIELD_REFUSED;
        free(k);
        if (takes == FIELD_REFUSED)
            return err_set(e, ERR_INPUT, "body: field \"%s\" is unknown; longhand help %s names the options "
                           "that are fields here, but for files and the machine", name, verb);
        if (js_kind(&v) != JS_ARRAY && add_word(w, name, takes, &v, e))
            return -1;
        if (js_kind(&v) == JS_ARRAY)
            for (struct js_walk x = js_walk(&v); js_next(&x, NULL, &one);)
                if (add_word(w, name, takes, &one, e))
                    return -1;
    }
    return options_parse(o, (int)w->n, w->v, e);
}

/* The command line's words for a mistake name options; a body has fields. */
static void name_fields(char *message, const char *verb)
{
    char name[40];
    for (char *at = message; (at = strstr(at, "--"));) {
        const size_t n = MIN(strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-"), sizeof name - 1);
        snprintf(name, sizeof name, "%.*s", (int)n, at + 2);
        if (options_edit_takes(options_verb(verb), name) == FIELD_REFUSED) {
            at += 2 + n;
            continue;
        }
        memmove(at, at + 2, strlen(at + 2) + 1);
        for (char *end = at + n; at < end; at++)
            *at = *at == '-' ? '_' : *at;
    }
}

static int edit(struct call *c, const struct options *o, struct job *job, int64_t *id, struct err *e)
{
    struct edit d = { .o = o, .job = job };
    const int rc = server_connect(c->sv, &d.s, e) || edit_open(&d, e) || edit_plan(&d, e) ||
                           edit_make(&d, id, e)
                       ? -1
                       : 0;
    edit_close(&d);
    store_close(d.s);
    return rc;
}

static enum MHD_Result answer_edit(struct call *c, const char *verb)
{
    struct options o = {0};
    struct words w = {0};
    struct job_list jobs;
    struct err e = {0};
    enum MHD_Result rc;
    int64_t id = 0;
    if (call_job(c, &jobs, &rc))
        return rc;
    int bad = read_options(&o, &w, c, verb, &e);
    o.quiet = true;
    if (bad == 0) {
        bad = edit(c, &o, jobs.v, &id, &e);
        options_free(&o);
    }
    words_free(&w);
    job_list_free(&jobs);
    if (bad) {
        name_fields(e.msg, verb);
        return answer_err(c, &e);
    }
    server_tell(c->sv, id);
    bell_ring(&c->sv->bell);
    snprintf(c->id, sizeof c->id, "%" PRId64, id);
    return answer_job(c);
}

enum MHD_Result answer_job_extend(struct call *c) { return answer_edit(c, "extend"); }
enum MHD_Result answer_job_fork(struct call *c) { return answer_edit(c, "fork"); }

/* ---- tokens, figures ---- */

enum MHD_Result answer_tokenize(struct call *c)
{
    const struct engine *g = batch_front_engine(&c->sv->front);
    struct err e = {0};
    struct json v, special;
    struct reply r;
    int32_t *ids = NULL;
    size_t n = 0;
    bool add = true;
    int rc = body_member(c, "prompt", &v, &e);
    if (rc == 0 && js_kind(&v) != JS_STRING)
        rc = js_bad(&v, &e, "allowed is a text");
    struct err ignored;
    if (rc == 0 && body_member(c, "add_special_tokens", &special, &ignored) == 0)
        rc = js_bool(&special, &add, &e);
    char *text = rc == 0 ? js_strdup(&v) : NULL;
    if (rc == 0)
        rc = text ? tokenizer_encode(g->tokenizer, &ids, &n, text, strlen(text), add, &e)
                  : err_set(&e, ERR_FAILED, "out of memory");
    free(text);
    if (rc || reply_open(&r)) {
        free(ids);
        return rc ? answer_err(c, &e) : MHD_NO;
    }
    jw_open(&r.w, NULL, '{');
    jw_uint(&r.w, "count", n);
    jw_uint(&r.w, "max_model_len", g->config.context);
    jw_open(&r.w, "tokens", '[');
    for (size_t i = 0; i < n; i++)
        jw_int(&r.w, NULL, ids[i]);
    jw_close(&r.w, ']');
    jw_close(&r.w, '}');
    free(ids);
    return reply_send(c, &r, MHD_HTTP_OK);
}

enum MHD_Result answer_detokenize(struct call *c)
{
    const struct engine *g = batch_front_engine(&c->sv->front);
    struct err e = {0};
    struct json v, one;
    struct reply r;
    char *text = NULL;
    size_t n = 0, n_text = 0, id;
    int rc = body_member(c, "tokens", &v, &e);
    if (rc == 0 && js_kind(&v) != JS_ARRAY)
        rc = js_bad(&v, &e, "allowed is an array of token ids");
    int32_t *ids = rc == 0 ? malloc((js_count(&v) + 1) * sizeof *ids) : NULL;
    if (rc == 0 && !ids)
        rc = err_set(&e, ERR_FAILED, "out of memory");
    if (rc == 0)                         /* v is an array */
        for (struct js_walk w = js_walk(&v); rc == 0 && js_next(&w, NULL, &one);)
            if ((rc = js_size(&one, 0, g->config.vocab - 1, &id, &e)) == 0)
                ids[n++] = (int32_t)id;
    rc = rc ? rc : tokenizer_decode(g->tokenizer, &text, &n_text, ids, n, true, &e);
    free(ids);
    if (rc || reply_open(&r)) {
        free(text);
        return rc ? answer_err(c, &e) : MHD_NO;
    }
    jw_open(&r.w, NULL, '{');
    jw_bytes(&r.w, "prompt", text, n_text);
    jw_close(&r.w, '}');
    free(text);
    return reply_send(c, &r, MHD_HTTP_OK);
}

enum MHD_Result answer_metrics(struct call *c)
{
    struct server *sv = c->sv;
    pthread_mutex_lock(&sv->news.lock);
    char *text = strdup(sv->metrics ? sv->metrics : "");
    pthread_mutex_unlock(&sv->news.lock);
    if (!text)
        return MHD_NO;
    return answer(c, MHD_HTTP_OK, MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE),
                  "text/plain; version=0.0.4");
}
