/* /v1/jobs/JOB/extend and fork. Start at answer_edit. */
#include "runs/serve/edits.h"
#include "runs/serve/jobs.h"
#include "runs/work/edit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
static int add_word(struct words *w, const char *name, const struct json *v, struct err *e)
{
    const enum js_kind kind = js_kind(v);
    if (kind == JS_NULL || kind == JS_FALSE)
        return 0;
    if (kind == JS_OBJECT && strcmp(name, "logit_bias"))
        return js_bad(v, e, "allowed is a text, a number, true, or an array of them");
    char *text = kind == JS_STRING ? js_strdup(v) : strndup(v->s, (size_t)(v->end - v->s));
    char **word = &w->v[w->n];
    const int n = !text           ? -1
                  : kind == JS_TRUE ? asprintf(word, "--%s", name)
                                    : asprintf(word, "--%s=%s%s", name,
                                               strcmp(name, "tokens") == 0 && strcmp(w->v[1], "extend") == 0
                                                   ? "+" : "", text);
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
        const bool known = k && strlen(k) < sizeof name && options_edit_takes(options_verb(verb), name);
        free(k);
        if (!known)
            return err_set(e, ERR_INPUT, "body: field \"%s\" is unknown; longhand help %s names the options "
                           "that are fields here, but for files and the machine", name, verb);
        if (js_kind(&v) != JS_ARRAY && add_word(w, name, &v, e))
            return -1;
        if (js_kind(&v) == JS_ARRAY)
            for (struct js_walk x = js_walk(&v); js_next(&x, NULL, &one);)
                if (add_word(w, name, &one, e))
                    return -1;
    }
    return options_parse(o, (int)w->n, w->v, e);
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
    if (bad)
        return answer_err(c, &e);
    server_tell(c->sv, id);
    bell_ring(&c->sv->bell);
    snprintf(c->id, sizeof c->id, "%" PRId64, id);
    return answer_job(c);
}

enum MHD_Result answer_job_extend(struct call *c) { return answer_edit(c, "extend"); }
enum MHD_Result answer_job_fork(struct call *c) { return answer_edit(c, "fork"); }
