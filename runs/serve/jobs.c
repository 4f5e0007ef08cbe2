/* /v1/jobs. The bodies of answers are those of `list --json`, `show --json` and `report --json`. Start at
 * call_job, which finds the job of a path, and at change. */
#include "runs/serve/http.h"
#include "runs/report/job_sheet.h"
#include "runs/report/report.h"
#include "runs/work/edit.h"
#include "runs/work/snapshot_files.h"
#include "src/request/options_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* The row of the job in the path, for job_list_free. */
static int call_job(struct call *c, struct job_list *jobs, struct err *e)
{
    struct err ignored;
    long id;
    *jobs = (struct job_list){0};
    if (parse_long(&id, "job", c->id, 1, LONG_MAX, &ignored) == 0 &&
        server_jobs(c->sv, &(int64_t){ id }, 1, jobs, e))
        return -1;
    if (jobs->n == 1)
        return 0;
    job_list_free(jobs);
    return call_fail(c, e, MHD_HTTP_NOT_FOUND, "there is no job %s", c->id);
}

int answer_jobs(struct call *c, struct err *e)
{
    const struct selection every = { .no_requests = !call_argument(c, "requests") };
    const char *limit = call_argument(c, "limit");
    struct store_counts n = {0};
    struct job_list jobs = {0};
    struct store *s = NULL;
    size_t most = SIZE_MAX;
    double estimate = 0;
    if (limit && parse_size(&most, "limit", limit, 1, SIZE_MAX / 2, e))
        return -1;
    const int rc = server_connect(c->sv, &s, e) || server_select(s, &every, most, &jobs, e) ||
                   store_mark_shared(s, &jobs, e) || store_estimate(s, &jobs, &estimate, e);
    store_close(s);
    count_jobs(&n, &jobs);
    jw_open(&c->w, NULL, '{');
    put_counts(&c->w, &n, estimate);
    jw_open(&c->w, "jobs", '[');
    put_jobs_json(&c->w, &jobs, NULL);
    jw_close(&c->w, ']');
    jw_close(&c->w, '}');
    job_list_free(&jobs);
    return rc ? -1 : 0;
}

int answer_about(struct call *c, struct err *e)
{
    struct job_list jobs;
    struct store *s = NULL;
    if (call_job(c, &jobs, e))
        return -1;
    const int rc = server_connect(c->sv, &s, e) || c->route->put(c, s, jobs.v, e);
    store_close(s);
    job_list_free(&jobs);
    return rc ? -1 : 0;
}

int put_job(struct call *c, struct store *s, const struct job *job, struct err *e)
{
    return put_shown_job(&c->w, s, job, e);
}

int put_report(struct call *c, struct store *s, const struct job *job, struct err *e)
{
    const struct report_options o = {0};
    struct reports l = {0};
    const int rc = reports_open(&l, &(struct report_from){ s, &job->id, 1 }, 1, &o, e) ||
                   (c->type ? report_html : report_json)(c->w.f, &l, e);
    reports_close(&l);
    return rc ? -1 : 0;
}

/* It has its own policy. */
int put_report_page(struct call *c, struct store *s, const struct job *job, struct err *e)
{
    c->type = HTML_TYPE;
    return put_report(c, s, job, e);
}

/* ---- texts ---- */

/* A text as an answer that grows. */
struct following {
    struct flow flow;                    /* the first member */
    int64_t job;
    bool follow;
    struct growing text;
};

/* More of the text: as flow.more. */
static int put_text(struct flow *flow, FILE *f)
{
    struct following *x = (struct following *)flow;
    struct server *sv = flow->c->sv;
    struct job_list jobs = {0};
    struct err e = {0};
    int rc = server_jobs(sv, &x->job, 1, &jobs, &e);
    const bool removed = rc == 0 && !jobs.n;
    const enum job_state s = rc == 0 && jobs.n ? jobs.v->state : JOB_CANCELLED;
    if (rc == 0 && jobs.n)
        rc = growing_more(sv, &x->text, jobs.v, f, f, &e);
    job_list_free(&jobs);
    const bool more = x->follow && (s == JOB_QUEUED || s == JOB_RUNNING || s == JOB_PAUSED);
    /* an answer that ends says that the text is whole */
    return rc || removed || (more && sv->phase == SERVE_STOPPING) ? -1 : more;
}

void drop_following(struct call *c)
{
    struct following *x = c->state;
    if (!x)
        return;
    growing_close(c->sv, &x->text);
    free(x->flow.out);
    free(x);
}

int answer_job_text(struct call *c, struct err *e)
{
    const char *from = call_argument(c, "from"), *follow = call_argument(c, "follow");
    struct job_list jobs;
    size_t token = 0;
    if ((from && parse_size(&token, "from", from, 0, SIZE_MAX / 2, e)) || call_job(c, &jobs, e))
        return -1;
    struct following *x = c->state = calloc(1, sizeof *x);
    if (x)
        *x = (struct following){ { .c = c, .ids = &x->job, .n = 1, .more = put_text }, jobs.v->id,
                                 follow && strcmp(follow, "1") == 0, { .from = token } };
    job_list_free(&jobs);
    if (!x)
        return CALL_CUT;
    if (x->follow)                       /* the text may pause for long */
        MHD_set_connection_option(c->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return answer_flow(&x->flow, "text/plain; charset=utf-8");
}

/* ---- changing ---- */

/* The last word of the route. */
static const char *verb_of(const struct call *c) { return strrchr(c->route->path, '/') + 1; }

/* A button of a page wants its page again. It says what was not changed (page.c). */
static int see_page(struct call *c, const char *page, bool changed)
{
    char path[200] = "/";
    const int n = strcmp(page, "job") ? 1 : snprintf(path, sizeof path, "/jobs/%s", c->id);
    if (!changed)
        snprintf(path + n, sizeof path - (size_t)n, "?not=%s&job=%s", verb_of(c), c->id);
    return call_see(c, path);
}

/* route.change. */
static int change(struct call *c, int priority, struct err *e)
{
    const char *page = call_argument(c, "page");
    struct job_list jobs;
    size_t changed;
    if (call_job(c, &jobs, e))
        return page && c->status == MHD_HTTP_NOT_FOUND ? see_page(c, "", false) : -1;
    const int64_t job = jobs.v->id;
    const enum job_state state = jobs.v->state;
    job_list_free(&jobs);
    pthread_mutex_lock(&c->sv->writing);
    const int bad = store_change(c->sv->writer, c->route->change, priority, &job, 1, &changed, e);
    if (!bad && changed)
        snapshot_files_delete_unused(c->sv->writer);
    pthread_mutex_unlock(&c->sv->writing);
    server_tell(c->sv, job);
    bell_ring(&c->sv->bell);
    if (bad) {
        c->status = e->code == ERR_INPUT ? MHD_HTTP_CONFLICT : 0;
        return -1;
    }
    if (page)
        return see_page(c, page, changed);
    if (!changed)
        return call_fail(c, e, MHD_HTTP_CONFLICT, "job %s is %s", c->id, job_state_name(state));
    return c->route->change == CHANGE_REMOVE_IDLE ? call_deleted(c, "job") : answer_about(c, e);
}

int answer_change(struct call *c, struct err *e) { return change(c, 0, e); }

/* The member `key` of the body. */
static int body_member(struct call *c, const char *key, struct json *v, struct err *e)
{
    struct json body;
    if (call_object(c, &body, e))
        return -1;
    const int found = js_get(&body, key, v, e);
    return found == 0 ? err_set(e, ERR_INPUT, "body.%s is missing", key) : found < 0 ? -1 : 0;
}

int answer_job_priority(struct call *c, struct err *e)
{
    struct json v;
    int64_t priority;
    if (body_member(c, "priority", &v, e))
        return -1;
    if (!js_i64(&v, &priority) || priority < -1000000 || priority > 1000000)
        return js_bad(&v, e, "a whole number from -1000000 to 1000000 is allowed");
    return change(c, (int)priority, e);
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
static int add_word(struct words *w, const char *name, const struct option *opt, const struct json *v,
                    struct err *e)
{
    const enum js_kind kind = js_kind(v);
    if (kind == JS_NULL || kind == JS_FALSE)
        return 0;
    if ((kind == JS_TRUE) == (opt->arg != NULL))
        return js_bad(v, e, opt->arg ? "true is for options that have no value" : "allowed is true or false");
    if (kind == JS_ARRAY || (kind == JS_OBJECT && strcmp(name, "logit_bias")))
        return js_bad(v, e, "allowed is a text, a number, or an array of them");
    char *text = kind == JS_STRING ? js_strdup(v) : strndup(v->s, (size_t)(v->end - v->s));
    char **word = &w->v[w->n];
    const int n = !text           ? -1
                  : kind == JS_TRUE ? asprintf(word, "--%s", name)
                                    : asprintf(word, "--%s=%s%s", name, *opt->arg == '+' ? "+" : "", text);
    free(text);
    if (n < 0)
        return err_set(e, ERR_FAILED, "out of memory");
    w->n++;
    return 0;
}

/* The command line that the body stands for: *o borrows from w. */
static int read_options(struct options *o, struct words *w, struct call *c, struct err *e)
{
    const char *verb = verb_of(c);
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
        const struct option *opt = k && strlen(k) < sizeof name ? option_of_edit(options_verb(verb), name)
                                                                : NULL;
        free(k);
        if (!opt)
            return err_set(e, ERR_INPUT, "body: field \"%s\" is unknown; longhand help %s names the options "
                           "that are fields here, but for files and the machine", name, verb);
        if (js_kind(&v) != JS_ARRAY && add_word(w, name, opt, &v, e))
            return -1;
        if (js_kind(&v) == JS_ARRAY)
            for (struct js_walk x = js_walk(&v); js_next(&x, NULL, &one);)
                if (add_word(w, name, opt, &one, e))
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
        if (!option_of_edit(options_verb(verb), name)) {
            at += 2 + n;
            continue;
        }
        memmove(at, at + 2, strlen(at + 2) + 1);
        for (char *end = at + n; at < end; at++)
            *at = *at == '-' ? '_' : *at;
    }
}

int answer_edit(struct call *c, struct err *e)
{
    struct options o = {0};
    struct words w = {0};
    struct job_list jobs;
    int64_t id = 0;
    if (call_job(c, &jobs, e))
        return -1;
    struct edit d = { .o = &o, .job = jobs.v };
    int rc = read_options(&o, &w, c, e);
    if (rc == 0) {
        o.quiet = true;
        rc = server_connect(c->sv, &d.s, e) || edit_open(&d, e) || edit_plan(&d, e) || edit_make(&d, &id, e);
        options_free(&o);
    }
    edit_close(&d);
    store_close(d.s);
    words_free(&w);
    job_list_free(&jobs);
    if (rc) {
        name_fields(e->msg, verb_of(c));
        return -1;
    }
    server_tell(c->sv, id);
    bell_ring(&c->sv->bell);
    snprintf(c->id, sizeof c->id, "%" PRId64, id);
    return answer_about(c, e);
}

/* ---- tokens ---- */

/* The tokens of the text "prompt". */
static int put_prompt_tokens(struct call *c, struct err *e)
{
    struct json v, special;
    struct err ignored;
    bool add = true;
    int32_t *ids = NULL;
    size_t n;
    if (body_member(c, "prompt", &v, e))
        return -1;
    if (js_kind(&v) != JS_STRING)
        return js_bad(&v, e, "allowed is a text");
    if (body_member(c, "add_special_tokens", &special, &ignored) == 0 && js_bool(&special, &add, e))
        return -1;
    char *text = js_strdup(&v);
    const int rc = text ? tokenizer_encode(batch_front_engine(&c->sv->front)->tokenizer, &ids, &n, text,
                                           strlen(text), add, e)
                        : err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0)
        put_tokens(c, ids, n);
    free(text);
    free(ids);
    return rc;
}

int answer_tokenize(struct call *c, struct err *e)
{
    struct json chat;
    struct err ignored;
    return body_member(c, "messages", &chat, &ignored) == 0 ? put_body_tokens(c, e) : put_prompt_tokens(c, e);
}

int answer_detokenize(struct call *c, struct err *e)
{
    const struct engine *g = batch_front_engine(&c->sv->front);
    struct json v, one;
    char *text = NULL;
    size_t n = 0, n_text = 0, id;
    if (body_member(c, "tokens", &v, e))
        return -1;
    if (js_kind(&v) != JS_ARRAY)
        return js_bad(&v, e, "allowed is an array of token ids");
    int32_t *ids = malloc((js_count(&v) + 1) * sizeof *ids);
    int rc = ids ? 0 : err_set(e, ERR_FAILED, "out of memory");
    for (struct js_walk w = js_walk(&v); rc == 0 && js_next(&w, NULL, &one);)
        if ((rc = js_whole_size(&one, 0, g->config.vocab - 1, &id, e)) == 0)
            ids[n++] = (int32_t)id;
    rc = rc ? rc : tokenizer_decode(g->tokenizer, &text, &n_text, ids, n, true, e);
    jw_open(&c->w, NULL, '{');
    jw_bytes(&c->w, "prompt", rc ? "" : text, n_text);
    jw_close(&c->w, '}');
    free(ids);
    free(text);
    return rc;
}
