/* Reads the stored parameters of a job and binds them to its model. Start at job_parse. A reader keeps the
 * first error and goes on with zeros, so that parsing needs no check after each member. */
#include "src/request/job_params_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/decode/weights.h"
#include "src/request/model_options.h"
#include "src/request/sampling_options.h"
#include "src/text/emit.h"

const char *const job_step_names[CHAIN_STEPS] = { "bias", "penalties", "dry", "temperature", "top_k", "top_p",
                                                  "min_p", "eta" };
const char *const job_compute_names[2] = { "bf16", "f32" },
                  *const job_kv_names[3] = { "auto", "int16", "bf16" },
                  *const job_lead_names[3] = { "first", "all", "root" },
                  *const job_verifier_names[2] = { "exact", "paper" },
                  *const job_weight_names[2] = { "int8", "model" },
                  *const job_encoded_names[2] = { "q8_0", "q4_0" };
const struct job_policy job_policies[JOB_POLICIES] = { { "full", KV_FULL }, { "static", KV_STATIC },
    { "dynamic", KV_DYNAMIC }, { "window", KV_WINDOW }, { "mean", KV_MEAN }, { "auto", KV_AUTO } };

/* ---- members of an object ---- */

enum { MEMBERS_MAX = 128 };          /* more than any version has; further ones are found by js_get */
struct reader {
    struct json object;
    struct member { struct json key, value; } *v; size_t n, next;   /* all members, in order */
    size_t n_read;
    char **room;                     /* where the next string goes; advances through job_params.strings */
    struct err *e; bool failed;
};

static void bad(struct reader *r, const char *key, const char *allowed)
{
    if (!r->failed)
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is not %s", key, allowed);
    r->failed = true;
}

static void *no_memory(struct reader *r)
{
    if (!r->failed)
        err_set(r->e, ERR_FAILED, "out of memory");
    r->failed = true;
    return NULL;
}

/* Lists the members of the reader's object in v[MEMBERS_MAX]. */
static void list_members(struct reader *r, struct member v[MEMBERS_MAX])
{
    r->v = v;
    r->n = r->next = 0;
    if (js_kind(&r->object) != JS_OBJECT || js_count(&r->object) > MEMBERS_MAX)
        return;
    for (struct js_walk w = js_walk(&r->object); js_next(&w, &v[r->n].key, &v[r->n].value);)
        r->n++;
}

/* js_get. Members are read in the order in which they were written, so the search goes on after the last
 * member. A key that is given twice is one member that nobody reads: check_no_others finds it. */
static int look_up(struct reader *r, const char *key, struct json *v)
{
    for (size_t i = 0; i < r->n; i++) {
        const size_t at = (r->next + i) % r->n;
        if (!js_is(&r->v[at].key, key))
            continue;
        *v = r->v[at].value;
        v->key[r->object.key[0] != NULL] = key;
        r->next = at + 1;
        return 1;
    }
    return r->n ? 0 : js_get(&r->object, key, v, r->e);
}

/* Whether the object has the member; a duplicate fails. */
static bool find(struct reader *r, const char *key, struct json *v)
{
    const int found = r->failed ? 0 : look_up(r, key, v);
    r->failed |= found < 0;
    r->n_read += found > 0;
    return found > 0;
}

/* Whether the object has an optional member. */
static bool has(struct reader *r, const char *key)
{
    struct json v;
    const size_t next = r->next;
    const bool found = !r->failed && look_up(r, key, &v) != 0;
    r->next = next;
    return found;
}

/* The member, which must exist. After a failure it is null. */
static struct json member(struct reader *r, const char *key)
{
    static const char null[] = "null";
    struct json v = { .text = null, .s = null, .end = null + 4 };
    if (!find(r, key, &v) && !r->failed) {
        r->failed = true;
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is missing", key);
    }
    return v;
}

static double real_of(struct reader *r, const char *key)
{
    struct json v = member(r, key);
    double x = 0;
    if (!js_double(&v, &x))
        bad(r, key, "a number");
    return x;
}

static long long_of(struct reader *r, const char *key)
{
    struct json v = member(r, key);
    int64_t x = 0;
    if (js_kind(&v) != JS_NUMBER || !js_i64(&v, &x))
        bad(r, key, "a whole number");
    return (long)x;
}

static size_t size_of(struct reader *r, const char *key)
{
    long v = long_of(r, key);
    if (v < 0)
        bad(r, key, "a whole number from 0");
    return v < 0 ? 0 : (size_t)v;
}

static bool bool_of(struct reader *r, const char *key)
{
    struct json v = member(r, key);
    enum js_kind kind = js_kind(&v);
    if (kind != JS_TRUE && kind != JS_FALSE)
        bad(r, key, "true or false");
    return kind == JS_TRUE;
}

static const char *copy_string(struct reader *r, const struct json *v)
{
    char *s = *r->room;
    *r->room += js_unescape(v, s) + 1;
    (*r->room)[-1] = 0;
    return s;
}

/* NULL for null. */
static const char *text_of(struct reader *r, const char *key)
{
    struct json v = member(r, key);
    if (js_kind(&v) == JS_STRING)
        return copy_string(r, &v);
    if (js_kind(&v) != JS_NULL)
        bad(r, key, "a text or null");
    return NULL;
}

static int word_of(struct reader *r, const char *key, const char *const *words, size_t n)
{
    struct json v = member(r, key);
    for (size_t i = 0; i < n; i++)
        if (js_is(&v, words[i]))
            return (int)i;
    bad(r, key, "one of the words that are allowed");
    return 0;
}
#define WORD_OF(r, key, words) word_of(r, key, words, sizeof (words) / sizeof *(words))

/* An array of texts, or null for an empty list. */
static void texts_of(struct reader *r, const char *key, struct text_list *l)
{
    struct json a = member(r, key), v;
    if (js_kind(&a) == JS_NULL)
        return;
    if (js_kind(&a) != JS_ARRAY) {
        bad(r, key, "an array of texts");
        return;
    }
    if (!(l->v = calloc(js_count(&a) + 1, sizeof *l->v))) {
        no_memory(r);
        return;
    }
    for (struct js_walk w = js_walk(&a); js_next(&w, NULL, &v);)
        if (js_kind(&v) == JS_STRING)
            l->v[l->n++] = copy_string(r, &v);
        else
            bad(r, key, "an array of texts");
}

static void check_no_others(struct reader *r)
{
    const size_t n = js_count(&r->object);
    if (!r->failed && n != r->n_read) {
        r->failed = true;
        err_set(r->e, ERR_INPUT,
                "parameters: of %zu members this version knows %zu; a newer version of longhand made them", n,
                r->n_read);
    }
}

/* ---- sampling ---- */

/* Ids ascend as texts, so that none comes twice. */
static void bias_of(struct reader *r, struct sampling *s)
{
    struct json o = member(r, "logit_bias"), key, v;
    const char *before = "";
    if (js_kind(&o) != JS_OBJECT) {
        bad(r, "logit_bias", "an object");
        return;
    }
    if (!(s->bias = calloc(js_count(&o) + 1, sizeof *s->bias))) {
        no_memory(r);
        return;
    }
    for (struct js_walk w = js_walk(&o); js_next(&w, &key, &v);) {
        const char *name = copy_string(r, &key);
        const bool banned = js_is(&v, "-inf");
        struct err ignored;
        double bias = -INFINITY;
        size_t id;
        if (strcmp(before, name) >= 0 || parse_size(&id, "logit_bias", name, 0, INT32_MAX, &ignored) ||
            !(banned || js_double(&v, &bias))) {
            bad(r, "logit_bias", "an object of token ids, in order, and numbers or \"-inf\"");
        } else {
            s->bias[s->n_bias].id = (int32_t)id;
            s->bias[s->n_bias++].bias = (float)bias;
        }
        before = name;
    }
}

static void order_of(struct reader *r, struct sampling *s)
{
    struct text_list l = {0};
    texts_of(r, "order", &l);
    s->n_order = 0;
    for (size_t i = 0; i < l.n; i++) {
        size_t k = 0;
        while (k < CHAIN_STEPS && strcmp(l.v[i], job_step_names[k]))
            k++;
        if (k == CHAIN_STEPS || s->n_order == CHAIN_STEPS)
            bad(r, "order", "a list of the steps of sampling");
        else
            s->order[s->n_order++] = (enum chain_step)k;
    }
    free(l.v);
}

static void sampling_of(struct reader *r, struct job_params *p)
{
    struct sampling *s = &p->sampling;
    sampling_defaults(s);
    s->temperature = real_of(r, "temperature");
    s->top_k = long_of(r, "top_k");
    s->top_p = real_of(r, "top_p");
    s->min_p = real_of(r, "min_p");
    s->eta = real_of(r, "eta");
    s->min_keep = size_of(r, "min_keep");
    s->penalty = real_of(r, "penalty");
    s->penalty_window = long_of(r, "penalty_window");
    s->presence = real_of(r, "presence_penalty");
    s->frequency = real_of(r, "frequency_penalty");
    s->dry_multiplier = real_of(r, "dry_multiplier");
    s->dry_base = real_of(r, "dry_base");
    s->dry_allowed = size_of(r, "dry_allowed_length");
    s->dry_last_n = long_of(r, "dry_penalty_last_n");
    texts_of(r, "dry_sequence_breakers", &p->breakers);
    bias_of(r, s);
    order_of(r, s);
    s->min_tokens = size_of(r, "min_tokens");
    s->ignore_eos = bool_of(r, "ignore_eos");
    texts_of(r, "stop", &p->stop);
}

/* ---- drafting ---- */

static void drafter_of(struct reader *r, struct job_params *p)
{
    const char *s = text_of(r, "drafter");
    p->drafter_auto = s && strcmp(s, "auto") == 0;
    p->draft.drafters = p->drafter_auto ? draft_default_set() : 0;
    for (const char *w = s; w && !p->drafter_auto && strcmp(s, "none");) {
        size_t n = strcspn(w, ","), k = 0;
        while (k < DRAFTER_ADDED && !(strlen(drafter_name(k)) == n && memcmp(drafter_name(k), w, n) == 0))
            k++;
        if (k == DRAFTER_ADDED) {
            bad(r, "drafter", "auto, none or a list of drafters");
            return;
        }
        p->draft.drafters |= 1u << k;
        w = w[n] ? w + n + 1 : NULL;
    }
}

static void tree_of(struct reader *r, struct draft_settings *d)
{
    struct json tree = member(r, "tree"), v;
    int64_t width = 0;
    d->n_width = 0;
    if (js_kind(&tree) != JS_ARRAY) {
        bad(r, "tree", "an array of whole numbers");
        return;
    }
    for (struct js_walk w = js_walk(&tree); js_next(&w, NULL, &v);)
        if (js_kind(&v) != JS_NUMBER || !js_i64(&v, &width) || width < 1 || d->n_width == TREE_WIDTHS_MAX)
            bad(r, "tree", "an array of whole numbers, at most 16");
        else
            d->width[d->n_width++] = (size_t)width;
}

static void drafting_of(struct reader *r, struct job_params *p)
{
    struct draft_settings *d = &p->draft;
    const char *policies[JOB_POLICIES];
    draft_defaults(d);
    drafter_of(r, p);
    for (enum drafter i = 0; i < DRAFTER_ADDED; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_file", drafters[i]->name);
        if (drafters[i]->option != OPTION_NONE && (i == DRAFTER_HEADS || has(r, name)))
            p->file[i] = text_of(r, name);
    }
    tree_of(r, d);
    d->ngram_k = size_of(r, "ngram_k");
    d->ngram_lead = (enum ngram_lead)WORD_OF(r, "ngram_lead", job_lead_names);
    d->ngram_delay = long_of(r, "ngram_delay");
    d->draft_passes = long_of(r, "draft_passes");
    if (d->draft_passes == 0)
        d->drafters &= ~(1u << DRAFTER_PARTIAL);
    for (size_t i = 0; i < JOB_POLICIES; i++)
        policies[i] = job_policies[i].name;
    d->kv_policy = job_policies[WORD_OF(r, "kv_policy", policies)].policy;
    d->kv_sinks = size_of(r, "kv_sinks");
    d->kv_budget = size_of(r, "kv_budget");
    d->kv_fixed = bool_of(r, "kv_fixed");
    /* older versions did not store it; the default is as good, because the text does not depend on it */
    if (has(r, "draft_weights"))
        d->weights = (enum draft_weights)WORD_OF(r, "draft_weights", job_weight_names);
    d->rows_max = size_of(r, "rows_max");
    d->verifier = (enum verifier)WORD_OF(r, "verifier", job_verifier_names);
}

/* ---- the whole ---- */

static void members_of(struct reader *r, struct job_params *p)
{
    struct json chat;
    sampling_of(r, p);
    p->on_loop = (enum on_loop)WORD_OF(r, "on_loop", on_loop_names);
    chat = member(r, "chat");
    p->chat = js_kind(&chat) != JS_NULL;
    p->compute = WORD_OF(r, "compute", job_compute_names) ? DT_F32 : DT_BF16;
    p->kv = p->compute == DT_F32 ? DT_OTHER : DT_BF16;       /* of a job that an older version stored */
    if (has(r, "kv_dtype"))
        p->kv = option_kv(WORD_OF(r, "kv_dtype", job_kv_names));
    if (has(r, "tokenizer"))                                 /* older versions did not store it */
        p->tokenizer = text_of(r, "tokenizer");
    if (has(r, "weights"))
        p->weights = (enum weights)WORD_OF(r, "weights", job_encoded_names) + 1;
    p->scaling = text_of(r, "context_scaling");
    p->allow_beyond_context = bool_of(r, "allow_beyond_context");
    struct reader d = *r;
    struct member members[MEMBERS_MAX];
    d.object = member(r, "drafting");
    d.n_read = 0;
    list_members(&d, members);
    if (js_kind(&d.object) != JS_OBJECT)
        bad(r, "drafting", "an object");
    d.failed = r->failed;
    drafting_of(&d, p);
    check_no_others(&d);
    r->failed = d.failed;
    check_no_others(r);
}

int job_parse(struct job_params *p, const char *text, struct err *e)
{
    struct json root;
    struct err why;
    const size_t n = strlen(text);
    *p = (struct job_params){0};
    if (js_check(&root, "parameters", text, n, &why) || js_kind(&root) != JS_OBJECT)
        return err_set(e, ERR_INPUT, "parameters: no JSON object");
    /* enough, because a decoded string and its NUL are shorter than the string with its quotes */
    if (!(p->strings = malloc(n + 1)))
        return err_set(e, ERR_FAILED, "out of memory for the parameters");
    char *room = p->strings;
    struct member members[MEMBERS_MAX];
    struct reader r = { .object = root, .room = &room, .e = e };
    list_members(&r, members);
    members_of(&r, p);
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

int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             const struct job_binding *b, struct err *e)
{
    struct sampling *s = &p->sampling;
    s->seed = b->seed;
    s->sample = b->sample;
    s->text_max = b->text_max;
    s->eos = c->eos;
    s->n_eos = c->n_eos;
    job_bind_drafters(p, c, model_dir);
    if (s->dry_multiplier != 0 && sampling_breakers(s, &p->breakers, t, e))
        return -1;
    return sampling_check(s, c->vocab, e);
}
