/* Writes the stored parameters of a job from the command line or a batch line. Start at job_describe.
 * Members must be written in the order of their names: see job_params.h. */
#include "src/request/job_params_impl.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/decode/weights.h"
#include "src/request/draft_options.h"
#include "src/request/sampling_options.h"
#include "src/text/chat.h"
#include "src/text/emit.h"

struct description {
    const struct options *o;
    const struct sampling *s;
    const struct engine *g;
    const struct draft_settings *d;
    const struct drafter_files *files;
    const char *chat_template;
};

static void texts(struct json_writer *w, const char *key, const struct text_list *l)
{
    jw_open(w, key, '[');
    for (size_t i = 0; i < l->n; i++)
        jw_text(w, NULL, l->v[i]);
    jw_close(w, ']');
}

struct named_bias { char id[12]; float bias; };

static int by_id_text(const void *a, const void *b)
{
    return strcmp(((const struct named_bias *)a)->id, ((const struct named_bias *)b)->id);
}

static int biases(struct json_writer *w, const struct sampling *s)
{
    struct named_bias *b = calloc(s->n_bias + 1, sizeof *b);
    if (!b)
        return -1;
    for (size_t i = 0; i < s->n_bias; i++) {
        snprintf(b[i].id, sizeof b[i].id, "%d", (int)s->bias[i].id);
        b[i].bias = s->bias[i].bias;
    }
    qsort(b, s->n_bias, sizeof *b, by_id_text);
    jw_open(w, "logit_bias", '{');
    for (size_t i = 0; i < s->n_bias; i++)
        if (isinf(b[i].bias))
            jw_text(w, b[i].id, "-inf");
        else
            jw_number(w, b[i].id, (double)b[i].bias);
    jw_close(w, '}');
    free(b);
    return 0;
}

static void chat(struct json_writer *w, const struct options *o, const char *template)
{
    if (!*template) {
        jw_null(w, "chat");
        return;
    }
    jw_open(w, "chat", '{');
    jw_text(w, "date", o->chat_date);
    jw_text(w, "system", o->system);
    jw_text(w, "template", template);
    jw_bool(w, "thinking", o->thinking == CHAT_THINKING_OWN ? chat_thinks(template)
                                                            : o->thinking == CHAT_THINKING_ON);
    jw_close(w, '}');
}

static void drafter(struct json_writer *w, const struct draft_settings *d, bool is_auto)
{
    char text[128] = "";
    for (size_t i = 0; i < DRAFTER_ADDED; i++)
        if (d->drafters >> i & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "," : "",
                     drafter_name(i));
    jw_text(w, "drafter", is_auto ? "auto" : *text ? text : "none");
}

/* Writes the members NAME_file whose names lie after `from` and before `to`, sorted, for files that are
 * given. The member of heads is always there. Returns `to`. */
static const char *drafter_files_up_to(struct json_writer *w, const struct drafter_files *files,
                                       const char *from, const char *to)
{
    char last[64], name[64];
    snprintf(last, sizeof last, "%s", from);
    for (enum drafter next = 0; next < N_DRAFTERS;) {
        char first[64];
        next = N_DRAFTERS;
        snprintf(first, sizeof first, "%s", to);
        for (enum drafter d = 0; d < DRAFTER_ADDED; d++) {
            snprintf(name, sizeof name, "%s_file", drafters[d]->name);
            if (drafters[d]->option != OPTION_NONE && strcmp(name, last) > 0 && strcmp(name, first) < 0) {
                next = d;
                snprintf(first, sizeof first, "%s", name);
            }
        }
        if (next < N_DRAFTERS && (files->path[next][0] || next == DRAFTER_HEADS))
            jw_text(w, first, files->path[next][0] ? files->path[next] : NULL);
        snprintf(last, sizeof last, "%s", first);
    }
    return to;
}

static void drafting(struct json_writer *w, const struct description *x)
{
    const struct draft_settings *d = x->d;
    size_t policy = 0;
    while (job_policies[policy].policy != d->kv_policy)
        policy++;
    jw_open(w, "drafting", '{');
    jw_int(w, "draft_passes", d->draft_passes);
    jw_text(w, "draft_weights", job_weight_names[d->weights]);
    drafter(w, d, strcmp(x->o->drafter, "auto") == 0 && !x->o->preset);
    const char *at = drafter_files_up_to(w, x->files, "", "kv_budget");
    jw_uint(w, "kv_budget", d->kv_budget);
    jw_bool(w, "kv_fixed", d->kv_fixed);
    jw_text(w, "kv_policy", job_policies[policy].name);
    jw_uint(w, "kv_sinks", d->kv_sinks);
    at = drafter_files_up_to(w, x->files, at, "ngram_delay");
    jw_int(w, "ngram_delay", d->ngram_delay);
    jw_uint(w, "ngram_k", d->ngram_k);
    jw_text(w, "ngram_lead", job_lead_names[d->ngram_lead]);
    jw_uint(w, "rows_max", d->rows_max);
    drafter_files_up_to(w, x->files, at, "tree");
    jw_open(w, "tree", '[');
    for (size_t i = 0; i < d->n_width; i++)
        jw_uint(w, NULL, d->width[i]);
    jw_close(w, ']');
    jw_text(w, "verifier", job_verifier_names[d->verifier]);
    jw_close(w, '}');
}

static int described_members(struct json_writer *w, const void *of)
{
    const struct description *x = of;
    const struct options *o = x->o;
    const struct sampling *s = x->s;
    jw_open(w, NULL, '{');
    jw_bool(w, "allow_beyond_context", o->allow_beyond_context);
    chat(w, o, x->chat_template);
    jw_text(w, "compute", job_compute_names[x->g->compute == DT_F32]);
    jw_text(w, "context_scaling", x->g->scaling[0] ? x->g->scaling : NULL);
    drafting(w, x);
    jw_uint(w, "dry_allowed_length", s->dry_allowed);
    jw_number(w, "dry_base", s->dry_base);
    jw_number(w, "dry_multiplier", s->dry_multiplier);
    jw_int(w, "dry_penalty_last_n", s->dry_last_n);
    if (o->dry_breakers.n)
        texts(w, "dry_sequence_breakers", &o->dry_breakers);
    else
        jw_null(w, "dry_sequence_breakers");
    jw_number(w, "eta", s->eta);
    jw_number(w, "frequency_penalty", s->frequency);
    jw_bool(w, "ignore_eos", s->ignore_eos);
    jw_text(w, "kv_dtype", job_kv_names[o->kv_dtype]);
    if (biases(w, s))
        return -1;
    jw_uint(w, "min_keep", s->min_keep);
    jw_number(w, "min_p", s->min_p);
    jw_uint(w, "min_tokens", s->min_tokens);
    jw_text(w, "on_loop", on_loop_names[o->on_loop]);
    jw_open(w, "order", '[');
    for (size_t i = 0; i < s->n_order; i++)
        jw_text(w, NULL, job_step_names[s->order[i]]);
    jw_close(w, ']');
    jw_number(w, "penalty", s->penalty);
    jw_int(w, "penalty_window", s->penalty_window);
    jw_number(w, "presence_penalty", s->presence);
    texts(w, "stop", &o->stop);
    jw_number(w, "temperature", s->temperature);
    jw_text(w, "tokenizer", tokenizer_sha(x->g->tokenizer));
    jw_int(w, "top_k", s->top_k);
    jw_number(w, "top_p", s->top_p);
    if (x->g->encoding != WEIGHTS_AS_IS)
        jw_text(w, "weights", weights_names[x->g->encoding]);
    jw_close(w, '}');
    return 0;
}

typedef int write_members(struct json_writer *w, const void *x);

/* The text with the smallest number of digits that keeps every real. */
static int canonical(char **text, write_members *members, const void *x, struct err *e)
{
    for (int digits = 6;; digits++) {
        size_t n;
        FILE *f = memory_file(text, &n);
        struct json_writer w = { .f = f, .digits = digits };
        int rc = f ? members(&w, x) : -1;
        if (f && stream_end(f))
            rc = -1;
        if (rc == 0 && (!w.rounded || digits == 17))
            return 0;
        free(*text);
        *text = NULL;
        if (rc)
            return err_set(e, ERR_FAILED, "out of memory for the parameters");
    }
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
    static struct { char file[PATH_BYTES], model[PATH_BYTES]; } checked[N_DRAFTERS];
    if (!*file && drafters[s]->option != OPTION_DIR && !(draft_of_model(g->dir) >> s & 1))
        return weights_missing(s, o->preset ? "preset" : "drafter", g->dir, e);
    if ((strcmp(checked[s].file, file) || strcmp(checked[s].model, g->path)) &&
        weights_check(s, *file ? file : NULL, g, e))
        return -1;
    snprintf(checked[s].file, sizeof checked[s].file, "%s", file);
    snprintf(checked[s].model, sizeof checked[s].model, "%s", g->path);
    return 0;
}

int job_describe(char **text, const struct options *o, const struct sampling *sampling,
                 const struct engine *g, size_t n_prompt, const char *chat_template, struct err *e)
{
    struct draft_settings d;
    struct drafter_files files;
    if (draft_from_options(&d, &files, o, g->dir, n_prompt, e))
        return -1;
    if (!o->preset && strcmp(o->drafter, "auto") == 0)
        d.drafters &= draft_of_config(&g->config);
    if (draft_check_model(&d, g->dev, &g->config, e))
        return -1;
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        char *file = files.path[i];
        if (*file && make_absolute(file, drafter_name(i), e))
            return -1;
        if (weights_has((enum drafter)i) && d.drafters >> i & 1 &&
            (o->preset || strcmp(o->drafter, "auto")) && check_trained((enum drafter)i, file, o, g, e))
            return -1;
    }
    const struct description x = { o, sampling, g, &d, &files, chat_template };
    return canonical(text, described_members, &x, e);
}

/* ---- other parameters from some token on ---- */

enum change_kind {
    CHANGE_REAL,
    CHANGE_LONG,
    CHANGE_SIZE,
    CHANGE_TRUE,
    CHANGE_TEXTS,
    CHANGE_LOOP,
    CHANGE_BIAS
};
#define CHANGE(member, option, kind, field) { member, option, kind, offsetof(struct options, field) }
struct change { const char *member, *option; enum change_kind kind; size_t field; };
static const struct change changes[] = {
    CHANGE("dry_allowed_length", "dry-allowed-length", CHANGE_SIZE, dry_allowed_length),
    CHANGE("dry_base", "dry-base", CHANGE_REAL, dry_base),
    CHANGE("dry_multiplier", "dry-multiplier", CHANGE_REAL, dry_multiplier),
    CHANGE("dry_penalty_last_n", "dry-penalty-last-n", CHANGE_LONG, dry_penalty_last_n),
    CHANGE("dry_sequence_breakers", "dry-sequence-breaker", CHANGE_TEXTS, dry_breakers),
    CHANGE("eta", "eta", CHANGE_REAL, eta),
    CHANGE("frequency_penalty", "frequency-penalty", CHANGE_REAL, frequency),
    CHANGE("ignore_eos", "ignore-eos", CHANGE_TRUE, ignore_eos),
    CHANGE("logit_bias", "logit-bias", CHANGE_BIAS, logit_bias),
    CHANGE("min_keep", "min-keep", CHANGE_SIZE, min_keep),
    CHANGE("min_p", "min-p", CHANGE_REAL, min_p),
    CHANGE("min_tokens", "min-tokens", CHANGE_SIZE, min_tokens),
    CHANGE("on_loop", "on-loop", CHANGE_LOOP, on_loop),
    CHANGE("penalty", "penalty", CHANGE_REAL, penalty),
    CHANGE("penalty_window", "penalty-window", CHANGE_LONG, penalty_window),
    CHANGE("presence_penalty", "presence-penalty", CHANGE_REAL, presence),
    CHANGE("stop", "stop", CHANGE_TEXTS, stop),
    CHANGE("temperature", "temperature", CHANGE_REAL, temperature),
    CHANGE("top_k", "top-k", CHANGE_LONG, top_k),
    CHANGE("top_p", "top-p", CHANGE_REAL, top_p),
};
enum { N_CHANGES = sizeof changes / sizeof *changes };

struct changed { struct json old; const struct options *o; const struct sampling *s; };

static int write_change(struct json_writer *w, const struct change *c, const struct changed *x)
{
    const char *at = (const char *)x->o + c->field;
    switch (c->kind) {
    case CHANGE_REAL:  jw_number(w, c->member, *(const double *)(const void *)at); break;
    case CHANGE_LONG:  jw_int(w, c->member, *(const long *)(const void *)at); break;
    case CHANGE_SIZE:  jw_uint(w, c->member, *(const size_t *)(const void *)at); break;
    case CHANGE_TRUE:  jw_bool(w, c->member, true); break;
    case CHANGE_TEXTS: texts(w, c->member, (const struct text_list *)(const void *)at); break;
    case CHANGE_LOOP:  jw_text(w, c->member, on_loop_names[x->o->on_loop]); break;
    case CHANGE_BIAS:  return biases(w, x->s);
    }
    return 0;
}

static int changed_members(struct json_writer *w, const void *of)
{
    const struct changed *x = of;
    struct json key, v;
    jw_open(w, NULL, '{');
    for (struct js_walk walk = js_walk(&x->old); js_next(&walk, &key, &v);) {
        size_t i = 0;
        while (i < N_CHANGES && !(js_is(&key, changes[i].member) && options_given(x->o, changes[i].option)))
            i++;
        char *name = i < N_CHANGES ? NULL : js_strdup(&key);
        if (i < N_CHANGES ? write_change(w, &changes[i], x) : !name)
            return -1;
        if (name)
            jw_value(w, name, &v);
        free(name);
    }
    jw_close(w, '}');
    return 0;
}

int job_change(char **text, const char *old, const struct options *o, size_t vocab, struct err *e)
{
    struct changed x = { .o = o };
    struct sampling s = {0};
    bool any = false;
    *text = NULL;
    for (size_t i = 0; i < N_CHANGES; i++)
        any = any || options_given(o, changes[i].option);
    if (!any)
        return 0;
    x.s = &s;
    int rc = js_check(&x.old, "parameters", old, strlen(old), e) || sampling_biases(&s, o, vocab, e) ||
                     canonical(text, changed_members, &x, e)
                 ? -1
                 : 0;
    sampling_free(&s);
    return rc;
}

/* ---- comparing ---- */

/* The name of a member that comes from an option that was given; else NULL. */
static const char *member_given(const struct options *o, const struct json *member)
{
    static const struct { const char *member, *option;
    } others[] = {
        { "chat", "chat-template" }, { "chat", "thinking" }, { "chat", "chat-date" },
        { "compute", "compute" },
        { "context_scaling", "context-scaling" }, { "kv_dtype", "kv-dtype" }, { "weights", "weights" },
    };
    const bool all = options_given(o, "generation-config") || options_given(o, "preset");
    for (size_t i = 0; i < N_CHANGES; i++)
        if (js_is(member, changes[i].member) && (all || options_given(o, changes[i].option)))
            return changes[i].member;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (js_is(member, others[i].member) && options_given(o, others[i].option))
            return others[i].member;
    return NULL;
}

/* Texts with other numbers of digits may have the same number. */
static bool same_value(const struct json *a, const struct json *b)
{
    const size_t n = (size_t)(a->end - a->s);
    if (js_kind(a) == JS_NUMBER && js_kind(b) == JS_NUMBER)
        return strtod(a->s, NULL) == strtod(b->s, NULL);
    return (size_t)(b->end - b->s) == n && memcmp(a->s, b->s, n) == 0;
}

int job_differences(const char *stored, const char *now, const struct options *o, job_difference *found,
                    void *ctx, struct err *e)
{
    struct json a, b, key, v, w;
    if (js_check(&a, "parameters", stored, strlen(stored), e) ||
        js_check(&b, "parameters", now, strlen(now), e))
        return -1;
    for (struct js_walk walk = js_walk(&b); js_next(&walk, &key, &v);) {
        const char *name = member_given(o, &key);
        struct json old_key;
        bool differs = true;
        if (!name)
            continue;
        for (struct js_walk old = js_walk(&a); js_next(&old, &old_key, &w);)
            if ((size_t)(old_key.end - old_key.s) == (size_t)(key.end - key.s) &&
                memcmp(old_key.s, key.s, (size_t)(key.end - key.s)) == 0)
                differs = !same_value(&w, &v);
        if (differs)
            found(ctx, name);
    }
    return 0;
}
