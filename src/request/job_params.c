/* Reads the stored parameters of a job and binds them to its model. Start at job_parse; the members
 * are rows of the options' table. */
#include "src/request/job_params_impl.h"
#include "src/decode/verify_published.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json.h"
#include "src/base/unicode.h"
#include "src/decode/weights.h"
#include "src/request/model_options.h"
#include "src/request/sampling_options.h"
#include "src/text/emit.h"

/* A reader keeps the first error and goes on with zeros, so that reading needs no check after each member. */
struct reader {
    struct job_params *p;
    char **room;                     /* where the next string goes; advances through job_params.strings */
    struct err *e; bool failed;
};

static void bad(struct reader *r, const char *key, const char *allowed)
{
    if (!r->failed)
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is not %s", key, allowed);
    r->failed = true;
}

static void no_memory(struct reader *r)
{
    if (!r->failed)
        err_set(r->e, ERR_FAILED, "out of memory");
    r->failed = true;
}

/* ---- values ---- */

static const char *copy_string(struct reader *r, const struct json *v)
{
    char *s = *r->room;
    *r->room += js_unescape(v, s) + 1;
    (*r->room)[-1] = 0;
    return s;
}

static void read_real(struct reader *r, const char *key, const struct json *v, double *x)
{
    if (!js_double(v, x))
        bad(r, key, "a number");
}

static void read_long(struct reader *r, const char *key, const struct json *v, int64_t least, int64_t *x)
{
    if (js_kind(v) != JS_NUMBER || !js_i64(v, x))
        bad(r, key, "a whole number");
    else if (*x < least)
        bad(r, key, "a whole number from 0");
}

static void read_flag(struct reader *r, const char *key, const struct json *v, bool *x)
{
    const enum js_kind kind = js_kind(v);
    if (kind != JS_TRUE && kind != JS_FALSE)
        bad(r, key, "true or false");
    *x = kind == JS_TRUE;
}

static void read_text(struct reader *r, const char *key, const struct json *v, const char **x)
{
    if (js_kind(v) == JS_STRING)
        *x = copy_string(r, v);
    else if (js_kind(v) != JS_NULL)
        bad(r, key, "a text or null");
}

static void read_word(struct reader *r, const char *key, const struct json *v, const struct option *opt,
                      int *x)
{
    char *text = js_kind(v) == JS_STRING ? js_strdup(v) : NULL;
    if (!text || !option_choice(opt, text, x))
        bad(r, key, "one of the words that are allowed");
    free(text);
}

/* An array of texts, or null for an empty list. */
static void read_texts(struct reader *r, const char *key, const struct json *a, struct text_list *l)
{
    struct json v;
    if (js_kind(a) == JS_NULL)
        return;
    if (js_kind(a) != JS_ARRAY) {
        bad(r, key, "an array of texts");
        return;
    }
    if (!(l->v = calloc(js_count(a) + 1, sizeof *l->v))) {
        no_memory(r);
        return;
    }
    for (struct js_walk w = js_walk(a); js_next(&w, NULL, &v);)
        if (js_kind(&v) == JS_STRING)
            l->v[l->n++] = copy_string(r, &v);
        else
            bad(r, key, "an array of texts");
}

static void read_ids(struct reader *r, const char *key, const struct json *a, struct id_list *l)
{
    struct json v;
    size_t id;
    struct err ignored;
    if (js_kind(a) != JS_ARRAY)
        bad(r, key, "an array of token ids");
    for (struct js_walk w = js_walk(a); !r->failed && js_next(&w, NULL, &v);)
        if (js_size(&v, 0, INT32_MAX, &id, &ignored) || id_list_add(l, (int32_t)id, key, &ignored))
            bad(r, key, "an array of at most 64 token ids");
}

/* Ids ascend as texts, so that none comes twice. */
static void read_biases(struct reader *r, const char *key, const struct json *o, struct sampling *s)
{
    struct json id_text, v;
    const char *before = "";
    if (js_kind(o) != JS_OBJECT) {
        bad(r, key, "an object");
        return;
    }
    if (!(s->bias = calloc(js_count(o) + 1, sizeof *s->bias))) {
        no_memory(r);
        return;
    }
    for (struct js_walk w = js_walk(o); js_next(&w, &id_text, &v);) {
        const char *name = copy_string(r, &id_text);
        const bool banned = js_is(&v, "-inf");
        struct err ignored;
        double bias = -INFINITY;
        size_t id;
        if (strcmp(before, name) >= 0 || parse_size(&id, key, name, 0, INT32_MAX, &ignored) ||
            !(banned || js_double(&v, &bias))) {
            bad(r, key, "an object of token ids, in order, and numbers or \"-inf\"");
        } else {
            s->bias[s->n_bias].id = (int32_t)id;
            s->bias[s->n_bias++].bias = bias;
        }
        before = name;
    }
}

/* The steps run in one order. No option ever set another. */
static void read_order(struct reader *r, const char *key, const struct json *a)
{
    struct json v;
    size_t n = 0;
    bool fixed = js_kind(a) == JS_ARRAY && js_count(a) == JOB_STEPS;
    for (struct js_walk w = js_walk(a); fixed && js_next(&w, NULL, &v);)
        fixed = js_is(&v, job_step_names[n++]);
    if (!fixed)
        bad(r, key, "the order of the steps of sampling: bias, penalties, dry, temperature, top_k, top_p, "
                    "min_p, eta");
}

static void read_drafters(struct reader *r, const char *key, const struct json *v)
{
    struct job_params *p = r->p;
    const char *s = NULL;
    read_text(r, key, v, &s);
    p->drafter_auto = s && strcmp(s, "auto") == 0;
    if (!p->drafter_auto)
        p->draft.drafters = 0;
    for (const char *w = s; w && !p->drafter_auto && strcmp(s, "none");) {
        size_t n = strcspn(w, ","), k = 0;
        while (k < DRAFTER_ADDED && !(strlen(drafter_name(k)) == n && memcmp(drafter_name(k), w, n) == 0))
            k++;
        if (k == DRAFTER_ADDED) {
            bad(r, key, "auto, none or a list of drafters");
            return;
        }
        p->draft.drafters |= 1u << k;
        w = w[n] ? w + n + 1 : NULL;
    }
}

static void read_widths(struct reader *r, const char *key, const struct json *tree, struct draft_settings *d)
{
    struct json v;
    int64_t width = 0;
    d->n_width = 0;
    if (js_kind(tree) != JS_ARRAY) {
        bad(r, key, "an array of whole numbers");
        return;
    }
    for (struct js_walk w = js_walk(tree); js_next(&w, NULL, &v);)
        if (js_kind(&v) != JS_NUMBER || !js_i64(&v, &width) || width < 1 || d->n_width == TREE_WIDTHS_MAX)
            bad(r, key, "an array of whole numbers, at most 16");
        else
            d->width[d->n_width++] = (size_t)width;
}

/* ---- objects ---- */

static void read_object(struct reader *r, const struct json *object, bool drafting);

static void read_member(struct reader *r, const struct member *m, const struct json *v)
{
    const struct option *opt = m->opt;
    const char *key = m->name;
    void *at = opt ? job_place(r->p, opt) : NULL;
    int64_t x = 0;
    if (!opt) {
        read_text(r, key, v, &r->p->file[m->drafter]);
        return;
    }
    double number;
    if ((opt->flags & DECIDES) && js_double(v, &number) && !option_in_range(opt, number)) {
        char range[96];
        bad(r, key, option_range(range, opt));
        return;
    }
    switch (opt->kind) {
    case FLAG:     read_flag(r, key, v, at); break;
    case SIZE:     read_long(r, key, v, 0, &x); *(size_t *)at = (size_t)MAX(x, 0); break;
    case LONG:     read_long(r, key, v, INT64_MIN, &x); *(long *)at = (long)x; break;
    case REAL:     read_real(r, key, v, at); break;
    case TEXT:     read_text(r, key, v, at); break;
    case CHOICE:   read_word(r, key, v, opt, at); break;
    case LIST:     read_texts(r, key, v, at); break;
    case BIASES:   read_biases(r, key, v, &r->p->sampling); break;
    case DRAFTERS: read_drafters(r, key, v); break;
    case WIDTHS:   read_widths(r, key, v, at); break;
    case IDS:      read_ids(r, key, v, at); break;
    case ORDER:    read_order(r, key, v); break;
    case CHAT_FORM: r->p->chat = js_kind(v) != JS_NULL; break;
    case DRAFTING_FORM:
        if (js_kind(v) == JS_OBJECT)
            read_object(r, v, true);
        else
            bad(r, key, "an object");
        break;
    default: assert(!"parameters have no such values");
    }
}

/* Reads the members in any order; those of the canonical text come in the order of the table. A member that
 * is missing is an error, unless older versions wrote none and did what its default says. */
static void read_object(struct reader *r, const struct json *object, bool drafting)
{
    struct json key, v;
    size_t n, next = 0;
    const struct member *m = job_members(drafting, &n);
    bool seen[MEMBERS_MAX] = { false };
    for (struct js_walk w = js_walk(object); !r->failed && js_next(&w, &key, &v);) {
        size_t i = next, tried = 0;
        for (; tried < n && !js_is(&key, m[i].name); tried++)
            i = (i + 1) % n;
        if (tried == n || seen[i]) {
            const size_t shown = utf8_valid_prefix(key.s, MIN((size_t)(key.end - key.s), (size_t)40));
            r->failed = true;
            err_set(r->e, ERR_INPUT, "parameters: member \"%.*s\" is %s", (int)shown, key.s,
                    tried == n ? "unknown; a newer version of longhand made it" : "given twice");
            return;
        }
        seen[i] = true;
        next = (i + 1) % n;
        read_member(r, &m[i], &v);
    }
    for (size_t i = 0; i < n && !r->failed; i++) {
        const struct option *opt = m[i].opt;
        const bool may_lack = opt ? opt->flags & (LATER | WHEN_SET) : m[i].drafter != DRAFTER_HEADS;
        if (!seen[i] && !may_lack) {
            r->failed = true;
            err_set(r->e, ERR_INPUT, "parameters: \"%s\" is missing", m[i].name);
        }
    }
}

int job_parse(struct job_params *p, const char *text, struct err *e)
{
    struct json root;
    struct err why;
    const size_t n = strlen(text);
    *p = (struct job_params){ .kv_dtype = -1, .logprobs = -1 };
    if (js_check(&root, "parameters", text, n, &why) || js_kind(&root) != JS_OBJECT)
        return err_set(e, ERR_INPUT, "parameters: no JSON object");
    /* enough, because a decoded string and its NUL are shorter than the string with its quotes */
    if (!(p->strings = malloc(n + 1)))
        return err_set(e, ERR_FAILED, "out of memory for the parameters");
    sampling_defaults(&p->sampling);
    draft_defaults(&p->draft);
    char *room = p->strings;
    struct reader r = { .p = p, .room = &room, .e = e };
    read_object(&r, &root, false);
    if (p->kv_dtype < 0)                 /* older versions had bf16 alone */
        p->kv_dtype = p->compute == COMPUTE_F32 ? KV_DTYPE_AUTO : KV_DTYPE_BF16;
    if (p->draft.draft_passes == 0)
        p->draft.drafters &= ~(1u << DRAFTER_PARTIAL);
    if (r.failed || (p->draft.drafters && draft_check(&p->draft, e))) {
        job_close(p);
        return -1;
    }
    return 0;
}

void job_close(struct job_params *p)
{
    sampling_free(&p->sampling);
    free(p->stop.v);
    free(p->breakers.v);
    free(p->banned.v);
    free(p->strings);
    *p = (struct job_params){0};
}

void job_bind_drafters(struct job_params *p, const struct config *c, const char *model_dir)
{
    for (size_t i = 0; p->drafter_auto && i < N_DRAFTERS; i++)
        p->draft.drafters |= weights_of_auto((unsigned)weights_present((enum drafter)i, model_dir) << i,
                                             p->draft.n_width > 0);
    if (p->drafter_auto)
        p->draft.drafters &= draft_of_config(c);
}

/* Adds the ids that are not there, and returns their number. */
static size_t add_ends(struct text_ends *x, const int32_t *ids, size_t n)
{
    const size_t there = x->n_eos + x->n_stop;
    size_t at = there;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < at && x->id[k] != ids[i])
            k++;
        x->id[k] = ids[i];
        at = MAX(at, k + 1);
    }
    return at - there;
}

void job_ends(struct text_ends *x, const struct job_params *p, const struct config *c)
{
    *x = (struct text_ends){0};
    x->n_eos = add_ends(x, c->eos, c->n_eos);
    x->n_eos += add_ends(x, p->eos_ids.v, p->eos_ids.n);
    x->n_stop = add_ends(x, p->stop_ids.v, p->stop_ids.n);
}

static int bind_mark(struct mark *m, const char *text, const struct tokenizer *t, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    m->n = 0;
    if (!text)
        return 0;
    int rc = text_check_utf8("--thinking-end", text, strlen(text), e) ||
             tokenizer_encode(t, &ids, &n, text, strlen(text), false, e) ? -1 : 0;
    if (rc == 0 && (n == 0 || n > MARK_MAX))
        rc = err_set(e, ERR_INPUT, "--thinking-end: a mark of %zu tokens, allowed are 1 to %d", n, MARK_MAX);
    if (rc == 0) {
        memcpy(m->ids, ids, n * sizeof *ids);
        m->n = (uint32_t)n;
    }
    free(ids);
    return rc;
}

int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             const struct job_binding *b, struct err *e)
{
    struct sampling *s = &p->sampling;
    s->seed = b->seed;
    s->sample = b->sample;
    s->text_max = b->text_max;
    job_ends(&p->ends, p, c);
    s->eos = p->ends.id;
    s->n_eos = p->ends.n_eos;
    s->n_stop = p->ends.n_stop;
    job_bind_drafters(p, c, model_dir);
    if (s->dry_multiplier != 0 && sampling_breakers(s, &p->breakers, t, e))
        return -1;
    if (s->thought_budget >= 0 &&
        (bind_mark(&s->thought_start, p->thinking_start, t, e) ||
         bind_mark(&s->thought_end, p->thinking_end, t, e)))
        return -1;
    if (params_retake_option(p) && verify_published(&p->draft))
        return err_set(e, ERR_INPUT, "%s: --verifier paper cannot take a text back", params_retake_option(p));
    return sampling_check(s, c->vocab, e);
}
