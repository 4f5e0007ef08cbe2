/* Writes the stored parameters of a job from the command line or a batch line. Start at job_describe.
 * The members are rows of the options' table, in the order of their names: see job_params.h. */
#include "src/request/job_params_impl.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/decode/verify_published.h"
#include "src/decode/weights.h"
#include "src/request/draft_options.h"
#include "src/request/sampling_options.h"
#include "src/request/chat_options.h"
#include "src/text/emit.h"

/* As jobs have always stored it. Later steps are not in it. */
const char *const job_step_names[JOB_STEPS] = { "bias", "penalties", "dry", "temperature", "top_k", "top_p",
                                                "min_p", "eta" };

struct description {
    const struct options *o;
    const struct job_params *p;
    const struct chat_facts *chat;
};

/* ---- the members ---- */

static struct member members[2][MEMBERS_MAX];
static size_t n_members[2];

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void list_members(void)
{
    for (const struct option *opt = options_table; opt->name; opt++)
        if (opt->flags & STORED) {
            const bool drafting = opt->flags & DRAFT;
            struct member *m = &members[drafting][n_members[drafting]++];
            m->opt = opt;
            option_member(m->name, opt);
        }
    for (size_t i = 0; i < DRAFTER_ADDED; i++)
        if (drafters[i]->option != OPTION_NONE) {
            struct member *m = &members[true][n_members[true]++];
            m->drafter = i;
            snprintf(m->name, sizeof m->name, "%s_file", drafter_name(i));
        }
    for (int i = 0; i < 2; i++) {
        assert(n_members[i] <= MEMBERS_MAX);
        qsort(members[i], n_members[i], sizeof **members, by_name);
    }
}

const struct member *job_members(bool drafting, size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_members);
    *n = n_members[drafting];
    return members[drafting];
}

/* ---- values ---- */

static void write_texts(struct json_writer *w, const char *key, const struct text_list *l)
{
    jw_open(w, key, '[');
    for (size_t i = 0; i < l->n; i++)
        jw_text(w, NULL, l->v[i]);
    jw_close(w, ']');
}

struct named_bias { char id[12]; double bias; };

static int by_id_text(const void *a, const void *b)
{
    return strcmp(((const struct named_bias *)a)->id, ((const struct named_bias *)b)->id);
}

static int write_biases(struct json_writer *w, const char *key, const struct sampling *s)
{
    struct named_bias *b = calloc(s->n_bias + 1, sizeof *b);
    if (!b)
        return -1;
    for (size_t i = 0; i < s->n_bias; i++) {
        snprintf(b[i].id, sizeof b[i].id, "%d", (int)s->bias[i].id);
        b[i].bias = s->bias[i].bias;
    }
    qsort(b, s->n_bias, sizeof *b, by_id_text);
    jw_open(w, key, '{');
    for (size_t i = 0; i < s->n_bias; i++)
        if (isinf(b[i].bias))
            jw_text(w, b[i].id, "-inf");
        else
            jw_number(w, b[i].id, b[i].bias);
    jw_close(w, '}');
    free(b);
    return 0;
}

static void write_chat(struct json_writer *w, const struct options *o, const struct chat_facts *c)
{
    if (!*c->template) {
        jw_null(w, "chat");
        return;
    }
    jw_open(w, "chat", '{');
    jw_text(w, "date", *c->day ? c->day : NULL);
    if (o->thinking >= CHAT_EFFORT_LOW)
        jw_text(w, "effort", chat_efforts[o->thinking - CHAT_EFFORT_LOW]);
    if (o->chat_kwargs)
        jw_parsed(w, "kwargs", o->chat_kwargs);
    jw_text(w, "system", o->system);
    jw_text(w, "template", c->template);
    jw_bool(w, "thinking", o->thinking != CHAT_THINKING_OFF);
    jw_close(w, '}');
}

static void write_drafters(struct json_writer *w, const struct job_params *p)
{
    char text[128] = "";
    for (size_t i = 0; i < DRAFTER_ADDED; i++)
        if (p->draft.drafters >> i & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "," : "",
                     drafter_name(i));
    jw_text(w, "drafter", p->drafter_auto ? "auto" : *text ? text : "none");
}

static void write_order(struct json_writer *w)
{
    jw_open(w, "order", '[');
    for (size_t i = 0; i < JOB_STEPS; i++)
        jw_text(w, NULL, job_step_names[i]);
    jw_close(w, ']');
}

/* Whether the member is written only where it is set, and is not. */
static bool is_unset(const struct member *m, const struct job_params *p)
{
    if (!m->opt)
        return !p->file[m->drafter] && m->drafter != DRAFTER_HEADS;
    if (!(m->opt->flags & WHEN_SET))
        return false;
    struct options of_default = { 0 };
    sampling_defaults(&of_default.job.sampling);
    if (m->opt->kind == IDS)
        return ((const struct id_list *)job_place(p, m->opt))->n == 0;
    if (m->opt->kind == LIST)
        return ((const struct text_list *)job_place(p, m->opt))->n == 0;
    const size_t bytes = m->opt->kind == REAL ? sizeof(double) : m->opt->kind == CHOICE ? sizeof(int)
                         : m->opt->kind == FLAG ? sizeof(bool) : sizeof(size_t);
    struct err ignored;
    if (m->opt->value)
        option_set(&of_default, m->opt, "", m->opt->value, &ignored);
    return memcmp(job_place(p, m->opt), job_place(&of_default.job, m->opt), bytes) == 0;
}

static int write_object(struct json_writer *w, const char *key, const struct description *x, bool drafting);

static int write_member(struct json_writer *w, const struct member *m, const struct description *x)
{
    const struct option *opt = m->opt;
    const void *at = opt ? job_place(x->p, opt) : NULL;
    const struct draft_settings *d = &x->p->draft;
    const struct text_list *l = at;
    const struct id_list *ids = at;
    const char *word;
    char number[48];
    size_t n;
    if (is_unset(m, x->p))
        return 0;
    if (!opt) {
        jw_text(w, m->name, x->p->file[m->drafter]);
        return 0;
    }
    switch (opt->kind) {
    case FLAG:     jw_bool(w, m->name, *(const bool *)at); break;
    case SIZE:     jw_uint(w, m->name, *(const size_t *)at); break;
    case LONG:     jw_int(w, m->name, *(const long *)at); break;
    case REAL:     jw_number(w, m->name, *(const double *)at); break;
    case TEXT:     jw_text(w, m->name, *(const char *const *)at); break;
    case CHOICE:
        word = option_word(opt, *(const int *)at & ((1 << CHOICE_BITS) - 1), &n);
        snprintf(number, sizeof number, *(const int *)at >> CHOICE_BITS ? "%.*s:%d" : "%.*s", (int)n, word,
                 *(const int *)at >> CHOICE_BITS);
        jw_text(w, m->name, number);
        break;
    case LIST:
        if (l->n == 0 && (opt->flags & NULL_IF_EMPTY))
            jw_null(w, m->name);
        else
            write_texts(w, m->name, l);
        break;
    case BIASES:   return write_biases(w, m->name, &x->p->sampling);
    case DRAFTERS: write_drafters(w, x->p); break;
    case ORDER:    write_order(w); break;
    case WIDTHS:
        jw_open(w, m->name, '[');
        for (size_t i = 0; i < d->n_width; i++)
            jw_uint(w, NULL, d->width[i]);
        jw_close(w, ']');
        break;
    case IDS:
        jw_open(w, m->name, '[');
        for (size_t i = 0; i < ids->n; i++)
            jw_int(w, NULL, ids->v[i]);
        jw_close(w, ']');
        break;
    case CHAT_FORM:     write_chat(w, x->o, x->chat); break;
    case DRAFTING_FORM: return write_object(w, m->name, x, true);
    default: assert(!"parameters have no such values");
    }
    return 0;
}

static int write_object(struct json_writer *w, const char *key, const struct description *x, bool drafting)
{
    size_t n;
    const struct member *m = job_members(drafting, &n);
    int rc = 0;
    jw_open(w, key, '{');
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = write_member(w, &m[i], x);
    jw_close(w, '}');
    return rc;
}

/* With `old`: stored parameters that a command line changes. stops: it has stop strings or ids. */
struct changed { struct json old; const struct description *x; bool stops; };
static int changed_members(struct json_writer *w, const struct changed *x);

/* The text in which every real has the fewest digits that give it back. */
static int canonical(char **text, const struct changed *c, struct err *e)
{
    size_t n;
    FILE *f = memory_file(text, &n);
    struct json_writer w = { .f = f, .digits = 17 };
    int rc = !f ? -1 : c->old.s ? changed_members(&w, c) : write_object(&w, NULL, c->x, false);
    if ((f && stream_end(f)) || rc) {
        free(*text);
        *text = NULL;
        return err_set(e, ERR_FAILED, "out of memory for the parameters");
    }
    return 0;
}

/* ---- of a new job ---- */

int job_stop_ids(struct job_params *p, const struct tokenizer *t, size_t vocab, struct err *e)
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
    if (preset_apply(&own, e))
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
    const struct description x = { o, p, chat };
    int rc = canonical(text, &(struct changed){ .x = &x }, e);
    memset(p->file, 0, sizeof p->file);
    return rc;
}

/* ---- other parameters from some token on ---- */

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

/* Both the old members and those of the table are in the order of their names. */
static int changed_members(struct json_writer *w, const struct changed *x)
{
    const size_t stop_ids = offsetof(struct options, job.stop_ids);
    struct json key, v;
    size_t n, i = 0;
    const struct member *m = job_members(false, &n);
    int rc = 0;
    jw_open(w, NULL, '{');
    for (struct js_walk walk = js_walk(&x->old); rc == 0;) {
        const bool more = js_next(&walk, &key, &v);
        char *name = more ? js_strdup(&key) : NULL;
        if (more && !name)
            return -1;
        bool written = false;
        for (; rc == 0 && i < n && (!more || strcmp(m[i].name, name) <= 0); i++)
            if (given_row(x->x->o, m[i].name, CHANGES) || (x->stops && m[i].opt->field == stop_ids)) {
                written |= more && strcmp(m[i].name, name) == 0;
                rc = write_member(w, &m[i], x->x);
            }
        if (more && !written)
            jw_value(w, name, &v);
        free(name);
        if (!more)
            break;
    }
    jw_close(w, '}');
    return rc;
}

int job_change(char **text, const char *old, const struct options *o, const struct tokenizer *t, size_t vocab,
               struct err *e)
{
    struct job_params p = o->job;
    const struct description x = { o, &p, NULL };
    struct changed c = { .x = &x, .stops = options_given(o, "stop") || options_given(o, "stop-id") };
    bool any = false;
    *text = NULL;
    for (const struct option *opt = options_table; opt->name; opt++)
        any |= o->given[opt - options_table] && (opt->flags & CHANGES);
    if (!any)
        return 0;
    int rc = js_check(&c.old, "parameters", old, strlen(old), e) ||
                     sampling_biases(&p.sampling, o, vocab, e) || job_stop_ids(&p, t, vocab, e) ||
                     canonical(text, &c, e)
                 ? -1
                 : 0;
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
        if (!(all && !older && (m[i].opt->flags & CHANGES)) && !given_row(o, m[i].name, DECIDES))
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
