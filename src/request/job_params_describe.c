/* Writes the stored parameters of a job from the command line or a batch line. Start at job_describe.
 * The members are rows of the options' table, in the order of their names: see job_params.h. */
#include "src/request/job_params.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/memory_file.h"
#include "src/decode/verify_published.h"
#include "src/decode/weights.h"
#include "src/request/draft_options.h"
#include "src/request/kinds.h"
#include "src/request/sampling_options.h"

/* ---- members ---- */

/* Whether the member is written only where it is set, and is not. */
static bool is_unset(const struct member *m, const void *at)
{
    struct options of_default = { 0 };
    struct err ignored;
    if (!m->when_set)
        return false;
    sampling_defaults(&of_default.job.sampling);
    if (m->opt && m->opt->value)
        option_set(&of_default, m->opt, "", m->opt->value, &ignored);
    return kind_equal(m->kind, at, (const char *)&of_default.job + m->at);
}

/* The row of an option that was given, has one of the flags, and makes this member; else NULL. */
static const struct option *given_row(const struct options *o, const char *member, unsigned flags)
{
    char name[40];
    for (const struct option *opt = options_table; opt->name; opt++)
        if (o->given[opt - options_table] && (opt->flags & flags) &&
            strcmp(option_member(name, opt), member) == 0)
            return opt;
    return NULL;
}

/* Stored parameters that a command line changes; job_parse took them. stops: it has stop strings or ids. */
struct changed { struct json old; bool stops; };
static void write_object(struct writer *x, const char *key, const struct changed *c);

static void write_member(struct writer *x, const struct member *m)
{
    const void *at = (const char *)x->p + m->at;
    if (is_unset(m, at))
        return;
    x->name = m->name;
    x->opt = m->opt;
    x->at = at;
    if (m->kind == DRAFTING_FORM)
        write_object(x, m->name, NULL);
    else
        kinds[m->kind].write(x);
}

/* The members of "drafting", or all of them (key NULL). c: NULL for a new job. */
static void write_object(struct writer *x, const char *key, const struct changed *c)
{
    struct json v;
    struct err ignored;
    size_t n;
    const struct member *m = job_members(key != NULL, &n);
    jw_open(x->w, key, '{');
    for (size_t i = 0; i < n; i++)
        if (c && m[i].kind == DRAFTING_FORM && js_get(&c->old, m[i].name, &v, &ignored) > 0)
            write_object(x, m[i].name, &(struct changed){ .old = v });
        else if (!c || given_row(x->o, m[i].name, CHANGES) ||
                 (c->stops && m[i].at == offsetof(struct job_params, stop_ids)))
            write_member(x, &m[i]);
        else if (js_get(&c->old, m[i].name, &v, &ignored) > 0)
            jw_value(x->w, m[i].name, &v);
    jw_close(x->w, '}');
}

/* The text in which every real has the fewest digits that give it back. c: NULL for a new job. */
static int canonical(char **text, struct writer *x, const struct changed *c, struct err *e)
{
    size_t n;
    FILE *f = memory_file(text, &n);
    struct json_writer w = { .f = f, .digits = 17 };
    x->w = &w;
    x->failed = !f;
    if (f)
        write_object(x, NULL, c);
    if ((f && stream_end(f)) || x->failed) {
        free(*text);
        *text = NULL;
        return err_set(e, ERR_FAILED, "out of memory for the parameters");
    }
    return 0;
}

/* ---- of a new job ---- */

/* Adds the control tokens that stop strings spell, such as <|im_end|>, to p->stop_ids: they are no bytes of a
 * text, so a string never meets them. ERR_INPUT for a stop id that is not below vocab. */
static int job_stop_ids(struct job_params *p, const struct tokenizer *t, size_t vocab, struct err *e)
{
    for (size_t i = 0; i < p->stop_ids.n; i++)
        if ((size_t)p->stop_ids.v[i] >= vocab)
            return err_set(e, ERR_INPUT, "--stop-id, stop_token_ids: %d is no token of this model, allowed "
                                         "are 0 to %zu", (int)p->stop_ids.v[i], vocab - 1);
    for (size_t i = 0; i < p->stop.n; i++) {
        const int32_t id = tokenizer_special(t, p->stop.v[i], strlen(p->stop.v[i]));
        if (id >= 0 && id_list_add(&p->stop_ids, id, "--stop, --stop-id", e))
            return -1;
    }
    return 0;
}

/* Makes the path absolute, so that a worker in another folder finds the file too. */
static int make_absolute(char file[PATH_BYTES], const char *name, struct err *e)
{
    char *path = realpath(file, NULL), what[64];
    if (!path)
        return err_set(e, ERR_INPUT, "--drafter: %s:%s: cannot open: %s", name, file, strerror(errno));
    const size_t n = strlen(path);
    snprintf(what, sizeof what, "--drafter: the path of %s:FILE", name);
    int rc = n < PATH_BYTES ? text_check_utf8(what, path, n, e)
                            : err_set(e, ERR_INPUT,
                                      "--drafter: %s:%.200s: a path of %zu bytes, at most %d are allowed",
                                      name, file, n, PATH_BYTES - 1);
    if (rc == 0)
        memcpy(file, path, n + 1);
    free(path);
    return rc;
}

/* Refuses a trained drafter that a worker would refuse. The lines of a batch share one check. file "": the
 * model's own. */
static int check_trained(enum drafter s, const char *file, const struct options *o, const struct engine *g,
                         struct err *e)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct { char file[PATH_BYTES], model[PATH_BYTES]; } checked[N_DRAFTERS];
    int rc = 0;
    if (!*file && drafters[s]->option != OPTION_DIR && !(draft_of_model(g->dir) >> s & 1))
        return weights_missing(s, strcmp(o->job.drafter, "auto") ? "drafter" : "preset", g->dir, e);
    pthread_mutex_lock(&lock);
    if (strcmp(checked[s].file, file) || strcmp(checked[s].model, g->path))
        rc = weights_check(s, *file ? file : NULL, g, e);
    if (rc == 0) {
        snprintf(checked[s].file, sizeof checked[s].file, "%s", file);
        snprintf(checked[s].model, sizeof checked[s].model, "%s", g->path);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int job_describe(char **text, struct job_params *p, const struct options *o, const struct engine *g,
                 size_t n_prompt, const struct chat_facts *chat, struct err *e)
{
    struct drafter_files files;
    struct options own = *o;
    if (preset_apply(&own, false, e))
        return -1;
    p->drafter_auto = strcmp(own.job.drafter, "auto") == 0;
    p->on_loop = own.job.on_loop;
    if (draft_from_options(&p->draft, &files, o, g->dir, n_prompt, e))
        return -1;
    if (p->drafter_auto)
        p->draft.drafters &= draft_of_config(&g->config);
    if (p->logprobs >= 0 && verify_published(&p->draft))
        return err_set(e, ERR_INPUT, "--logprobs and --verifier paper: its text is not the model's own");
    if (draft_check_model(&p->draft, g->dev, &g->config, e))
        return -1;
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        char *file = files.path[i];
        if (*file && make_absolute(file, drafter_name(i), e))
            return -1;
        if (weights_has((enum drafter)i) && p->draft.drafters >> i & 1 && !p->drafter_auto &&
            check_trained((enum drafter)i, file, o, g, e))
            return -1;
        p->file[i] = *file ? file : NULL;
    }
    if (job_stop_ids(p, g->tokenizer, g->config.vocab, e))
        return -1;
    if (g->own_eos >= 0)
        id_list_add(&p->eos_ids, g->own_eos, "", e);
    p->scaling = g->scaling[0] ? g->scaling : NULL;
    p->weights = g->encoding;
    p->tokenizer = tokenizer_sha(g->tokenizer);
    struct writer x = { .o = o, .p = p, .chat = chat };
    int rc = canonical(text, &x, NULL, e);
    memset(p->file, 0, sizeof p->file);
    return rc;
}

/* ---- other parameters from some token on ---- */

int job_change(char **text, const char *old, const struct options *o, const struct tokenizer *t, size_t vocab,
               struct err *e)
{
    struct job_params p = o->job;
    struct writer x = { .o = o, .p = &p };
    struct changed c = { .stops = options_given(o, "stop") || options_given(o, "stop-id") };
    bool any = false;
    *text = NULL;
    for (const struct option *opt = options_table; opt->name; opt++)
        any |= o->given[opt - options_table] && (opt->flags & CHANGES);
    if (!any)
        return 0;
    p.drafter_auto = strcmp(p.drafter, "auto") == 0;
    p.draft.drafters = 0;
    if (options_given(o, "drafter") && !p.drafter_auto && strcmp(p.drafter, "none"))
        return err_set(e, ERR_INPUT, "--drafter %s: %s takes auto and none", p.drafter, o->verb->name);
    int rc = js_check(&c.old, "parameters", old, strlen(old), e) ||
             sampling_biases(&p.sampling, o, vocab, e) || job_stop_ids(&p, t, vocab, e) ||
             canonical(text, &x, &c, e) ? -1 : 0;
    sampling_free(&p.sampling);
    return rc;
}

/* ---- comparing ---- */

/* Texts with other numbers of digits may have the same number. Older versions stored biases as floats. */
static bool same_value(const struct json *a, const struct json *b, bool inside)
{
    const size_t n = (size_t)(a->end - a->s);
    struct json key, x, other, y;
    if ((size_t)(b->end - b->s) == n && memcmp(a->s, b->s, n) == 0)
        return true;
    if (js_kind(a) == JS_OBJECT && js_kind(b) == JS_OBJECT) {
        bool same = js_count(a) == js_count(b);
        struct js_walk at = js_walk(b);
        for (struct js_walk w = js_walk(a); same && js_next(&w, &key, &x) && js_next(&at, &other, &y);)
            same = same_value(&key, &other, true) && same_value(&x, &y, true);
        return same;
    }
    if (js_kind(a) != JS_NUMBER || js_kind(b) != JS_NUMBER)
        return false;
    const double p = strtod(a->s, NULL), q = strtod(b->s, NULL);
    return fabs(q) < 0x1p53 && (p == q || (inside && p == (double)(float)q));
}

/* Whether the form of the prompt differs in what the command line gives. A built-in template that is gone
 * counts as equal: the job keeps its prompt. */
static bool chat_differs(const struct options *o, const struct json *old, const struct json *now)
{
    static const char *const pairs[][2] = { { "chat-template", "template" }, { "thinking", "thinking" },
                                              { "thinking", "effort" }, { "chat-date", "date" },
                                              { "chat-template-kwargs", "kwargs" } };
    struct json a, b;
    struct err ignored;
    if (js_kind(old) != JS_OBJECT || js_kind(now) != JS_OBJECT)
        return !same_value(old, now, false);
    char *name = js_get(old, "template", &a, &ignored) > 0 ? js_strdup(&a) : NULL;
    const bool gone = name && chat_name_is_gone(name);
    bool differs = false;
    free(name);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !gone; i++) {
        const int has = js_get(old, pairs[i][1], &a, &ignored),
                  wants = js_get(now, pairs[i][1], &b, &ignored);
        if (options_given(o, pairs[i][0]))
            differs |= has != wants || (has > 0 && !same_value(&a, &b, false));
    }
    return differs;
}

bool job_same_text(const char *a, const char *b)
{
    struct json x, y, v, w;
    struct err ignored;
    size_t n;
    const struct member *m = job_members(false, &n);
    bool same = js_check(&x, "parameters", a, strlen(a), &ignored) == 0 &&
                js_check(&y, "parameters", b, strlen(b), &ignored) == 0;
    for (size_t i = 0; i < n && same; i++) {
        if (!m[i].opt || !(m[i].opt->flags & (DECIDES | HIDDEN)) || m[i].kind == DRAFTING_FORM)
            continue;
        const int has = js_get(&x, m[i].name, &v, &ignored);
        same = has == js_get(&y, m[i].name, &w, &ignored) && (has == 0 || same_value(&v, &w, false));
    }
    return same;
}

int job_differences(const char *stored, const char *now, const struct options *o, job_difference *found,
                    void *ctx, struct err *e)
{
    char sets[200];
    const bool all = options_given(o, "generation-config") || options_given(o, "preset"),
               story = preset_story(sets, sizeof sets, o, false);
    struct json a, b, v, w;
    size_t n;
    const struct member *m = job_members(false, &n);
    if (js_check(&a, "parameters", stored, strlen(stored), e) ||
        js_check(&b, "parameters", now, strlen(now), e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        /* older programs queued jobs of the preset story without a penalty */
        const bool older = story && strncmp(m[i].name, "penalty", 7) == 0;
        if (!(all && !older && m[i].opt && (m[i].opt->flags & CHANGES)) && !given_row(o, m[i].name, DECIDES))
            continue;
        const int before = js_get(&a, m[i].name, &v, e), after = js_get(&b, m[i].name, &w, e);
        if (before < 0 || after < 0)
            return -1;
        const bool differs = before != after || (before && !same_value(&v, &w, false));
        if (differs && (before != after || strcmp(m[i].name, "chat") || chat_differs(o, &v, &w)))
            found(ctx, m[i].name);
    }
    return 0;
}
