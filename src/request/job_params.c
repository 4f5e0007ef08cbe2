#include "src/request/job_params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/decode/decode.h"
#include "src/request/draft_options.h"
#include "src/request/model_options.h"
#include "src/request/sampling_options.h"
#include "src/sample/dry.h"
#include "src/text/emit.h"

static const char *const step_names[CHAIN_STEPS] = { "bias", "penalties", "dry", "temperature", "top_k",
    "top_p", "min_p", "eta" };
static const char *const compute_names[] = { "bf16", "f32" }, *const kv_names[] = { "auto", "int16", "bf16" },
    *const lead_names[] = { "first", "all", "root" }, *const verifier_names[] = { "exact", "paper" };
static const char *const weight_names[] = { "int8", "model" };
static const struct { const char *name; enum kv_policy v; } policies[] = { { "full", KV_FULL }, { "static",
    KV_STATIC }, { "dynamic", KV_DYNAMIC }, { "window", KV_WINDOW }, { "mean", KV_MEAN },
        { "auto", KV_AUTO } };
enum { N_POLICIES = sizeof policies / sizeof *policies };
#define N(a) (sizeof (a) / sizeof *(a))

/* ---- out ---- */

/* Whole numbers as such. */
static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *text_array(const struct text_list *l)
{
    json_t *a = json_array();
    for (size_t i = 0; i < l->n; i++)
        json_array_append_new(a, json_string(l->v[i]));
    return a;
}

static json_t *bias_object(const struct sampling *s)
{
    json_t *o = json_object();
    for (size_t i = 0; i < s->n_bias; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)s->bias[i].id);
        json_object_set_new(o, id,
                            isinf(s->bias[i].bias) ? json_string("-inf") : number((double)s->bias[i].bias));
    }
    return o;
}

static json_t *drafter_name(const struct draft_settings *d, bool is_auto)
{
    char text[128] = "";
    if (is_auto)
        return json_string("auto");
    for (size_t i = 0; i < SOURCE_ADDED; i++)
        if (d->drafters >> i & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "," : "",
                     source_names[i]);
    return json_string(*text ? text : "none");
}

static json_t *draft_object(const struct draft_settings *d, bool is_auto, const char *heads_file)
{
    json_t *tree = json_array();
    const char *policy = NULL;
    for (size_t i = 0; i < d->n_width; i++)
        json_array_append_new(tree, json_integer((json_int_t)d->width[i]));
    for (size_t i = 0; i < N_POLICIES; i++)
        if (policies[i].v == d->kv_policy)
            policy = policies[i].name;
    return json_pack("{s:o, s:o, s:o, s:I, s:s, s:I, s:I, s:s, s:I, s:I, s:b, s:s, s:I, s:s}", "drafter",
                     drafter_name(d, is_auto), "heads_file",
                     heads_file[0] ? json_string(heads_file) : json_null(), "tree", tree, "ngram_k",
                     (json_int_t)d->ngram_k, "ngram_lead", lead_names[d->ngram_lead], "ngram_delay",
                     (json_int_t)d->ngram_delay, "draft_passes", (json_int_t)d->draft_passes, "kv_policy",
                     policy, "kv_sinks", (json_int_t)d->kv_sinks, "kv_budget", (json_int_t)d->kv_budget,
                     "kv_fixed", (int)d->kv_fixed, "draft_weights", weight_names[d->weights], "rows_max",
                     (json_int_t)d->rows_max, "verifier", verifier_names[d->verifier]);
}

static json_t *chat_object(const struct options *o, const char *name)
{
    if (!name)
        return json_null();
    return json_pack("{s:s, s:o, s:b, s:o}", "template", name, "system",
                     o->system ? json_string(o->system) : json_null(), "thinking",
                     (int)(o->thinking == THINKING_ON), "date",
                     o->chat_date ? json_string(o->chat_date) : json_null());
}

/* A worker elsewhere finds it too. */
static int whole_path(char heads_file[PATH_BYTES], struct err *e)
{
    char *path = realpath(heads_file, NULL);
    if (!path)
        return err_set(e, ERR_INPUT, "--drafter: heads:%s: cannot open: %s", heads_file, strerror(errno));
    const size_t n = strlen(path);
    int rc = n < PATH_BYTES ? text_check_utf8("--drafter: the path of heads:FILE", path, n, e)
                            : err_set(e, ERR_INPUT,
                                      "--drafter: heads:%.200s: a path of %zu bytes, at most %d are allowed",
                                      heads_file, n, PATH_BYTES - 1);
    if (rc == 0)
        memcpy(heads_file, path, n + 1);
    free(path);
    return rc;
}

/* What a worker would refuse. Once for the lines of a batch. */
static int check_heads(const char *path, const struct engine *g, struct err *e)
{
    static char checked[PATH_BYTES], of[PATH_BYTES];
    if ((strcmp(checked, path) || strcmp(of, g->path)) && heads_check(path, &g->model, e))
        return -1;
    snprintf(checked, sizeof checked, "%s", path);
    snprintf(of, sizeof of, "%s", g->path);
    return 0;
}

int job_describe(json_t **out, const struct options *o, const struct sampling *s, const struct engine *g,
                 size_t n_prompt, const char *chat_template, struct err *e)
{
    struct draft_settings d;
    char heads_file[PATH_BYTES];
    if (draft_from_options(&d, heads_file, o, g->dir, n_prompt, e))
        return -1;
    if (heads_file[0] && whole_path(heads_file, e))
        return -1;
    if ((d.drafters >> SOURCE_HEADS & 1) && !heads_file[0] && !draft_model_has_heads(g->dir))
        return err_set(e, ERR_INPUT,
                       "--%s: %s has no drafting heads, neither in its checkpoint nor as heads.safetensors; "
                       "--drafter heads:FILE names some",
                       o->preset ? "preset" : "drafter", g->dir);
    if ((d.drafters >> SOURCE_HEADS & 1) && (o->preset || strcmp(o->drafter, "auto")) &&
        check_heads(heads_file[0] ? heads_file : g->dir, g, e))
        return -1;
    json_t *order = json_array();
    for (size_t i = 0; i < s->n_order; i++)
        json_array_append_new(order, json_string(step_names[s->order[i]]));
    *out = json_pack(
        "{s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:I, s:b, "
        "s:o, s:s, s:o, s:s, s:s, s:o, s:b, s:o}",
        "temperature", number(s->temperature), "top_k", (json_int_t)s->top_k, "top_p", number(s->top_p),
        "min_p", number(s->min_p), "eta", number(s->eta), "min_keep", (json_int_t)s->min_keep, "penalty",
        number(s->penalty), "penalty_window", (json_int_t)s->penalty_window, "presence_penalty",
        number(s->presence), "frequency_penalty", number(s->frequency), "dry_multiplier",
        number(s->dry_multiplier), "dry_base", number(s->dry_base), "dry_allowed_length",
        (json_int_t)s->dry_allowed, "dry_penalty_last_n", (json_int_t)s->dry_last_n, "dry_sequence_breakers",
        o->dry_breakers.n ? text_array(&o->dry_breakers) : json_null(), "logit_bias", bias_object(s), "order",
        order, "min_tokens", (json_int_t)s->min_tokens, "ignore_eos", (int)s->ignore_eos, "stop",
        text_array(&o->stop), "on_loop", on_loop_names[o->on_loop], "chat", chat_object(o, chat_template),
        "compute", compute_names[g->compute == DT_F32], "kv_dtype", kv_names[o->kv_dtype], "context_scaling",
        g->scaling[0] ? json_string(g->scaling) : json_null(), "allow_beyond_context",
        (int)o->allow_beyond_context, "drafting",
        draft_object(&d, strcmp(o->drafter, "auto") == 0 && !o->preset, heads_file));
    if (*out && json_whole(e) == 0)
        return 0;
    json_decref(*out);
    *out = NULL;
    return err_set(e, ERR_FAILED, "out of memory for the parameters");
}

char *job_text(const json_t *params)
{
    for (size_t digits = 6;; digits++) {
        char *text = json_dumps(params, JSON_SORT_KEYS | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, 0, NULL) : NULL;
        bool same = back && json_equal(back, params);
        json_decref(back);
        if (!text || same || digits == 17)
            return text;
        free(text);
    }
}

/* ---- in ---- */

struct reader { const json_t *o; size_t n_read; struct err *e; bool failed; };

static const json_t *member(struct reader *r, const char *key)
{
    const json_t *v = json_object_get(r->o, key);
    if (!v && !r->failed) {
        r->failed = true;
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is missing", key);
    }
    r->n_read++;
    return v;
}

static void bad(struct reader *r, const char *key, const char *allowed)
{
    if (!r->failed)
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is not %s", key, allowed);
    r->failed = true;
}

static double real_of(struct reader *r, const char *key)
{
    const json_t *v = member(r, key);
    if (v && !json_is_number(v))
        bad(r, key, "a number");
    return json_number_value(v);
}

static long long_of(struct reader *r, const char *key)
{
    const json_t *v = member(r, key);
    if (v && !json_is_integer(v))
        bad(r, key, "a whole number");
    return (long)json_integer_value(v);
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
    const json_t *v = member(r, key);
    if (v && !json_is_boolean(v))
        bad(r, key, "true or false");
    return json_is_true(v);
}

/* null is NULL. */
static const char *text_of(struct reader *r, const char *key)
{
    const json_t *v = member(r, key);
    if (v && !json_is_string(v) && !json_is_null(v))
        bad(r, key, "a text or null");
    return json_string_value(v);
}

static int word_of(struct reader *r, const char *key, const char *const *words, size_t n)
{
    const char *s = text_of(r, key);
    for (size_t i = 0; s && i < n; i++)
        if (strcmp(s, words[i]) == 0)
            return (int)i;
    bad(r, key, "one of the words that are allowed");
    return 0;
}

/* An array of texts; null: none. */
static void texts_of(struct reader *r, const char *key, struct text_list *l)
{
    const json_t *a = member(r, key), *v;
    size_t i;
    if (!a || json_is_null(a))
        return;
    if (!json_is_array(a)) {
        bad(r, key, "an array of texts");
        return;
    }
    l->v = calloc(json_array_size(a) + 1, sizeof *l->v);
    if (!l->v) {
        r->failed = true;
        err_set(r->e, ERR_FAILED, "out of memory");
        return;
    }
    json_array_foreach(a, i, v) {
        if (!json_is_string(v))
            bad(r, key, "an array of texts");
        else
            l->v[l->n++] = json_string_value(v);
    }
}

static void bias_of(struct reader *r, struct sampling *s)
{
    const json_t *o = member(r, "logit_bias");
    json_t *v;
    const char *key;
    if (!o || !json_is_object(o)) {
        bad(r, "logit_bias", "an object");
        return;
    }
    s->bias = calloc(json_object_size(o) + 1, sizeof *s->bias);
    if (!s->bias) {
        r->failed = true;
        err_set(r->e, ERR_FAILED, "out of memory");
        return;
    }
    json_object_foreach((json_t *)o, key, v) {
        size_t id;
        struct err ignored;
        if (parse_size(&id, "logit_bias", key, 0, INT32_MAX, &ignored) ||
            !(json_is_number(v) || (json_is_string(v) && !strcmp(json_string_value(v), "-inf"))))
            bad(r, "logit_bias", "an object of token ids and numbers or \"-inf\"");
        else {
            s->bias[s->n_bias].id = (int32_t)id;
            s->bias[s->n_bias++].bias = json_is_string(v) ? -INFINITY : (float)json_number_value(v);
        }
    }
}

static void order_of(struct reader *r, struct sampling *s)
{
    struct text_list l = {0};
    texts_of(r, "order", &l);
    s->n_order = 0;
    for (size_t i = 0; i < l.n; i++) {
        size_t k = 0;
        while (k < CHAIN_STEPS && strcmp(l.v[i], step_names[k]))
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

static void drafter_of(struct reader *r, struct job_params *p)
{
    const char *s = text_of(r, "drafter");
    p->drafter_auto = s && strcmp(s, "auto") == 0;
    p->draft.drafters = p->drafter_auto ? 1u << SOURCE_PARTIAL | 1u << SOURCE_NGRAM | 1u << SOURCE_SUFFIX : 0;
    for (const char *w = s; w && !p->drafter_auto && strcmp(s, "none");) {
        size_t n = strcspn(w, ","), k = 0;
        while (k < SOURCE_ADDED && !(strlen(source_names[k]) == n && memcmp(source_names[k], w, n) == 0))
            k++;
        if (k == SOURCE_ADDED) {
            bad(r, "drafter", "auto, none or a list of drafters");
            return;
        }
        p->draft.drafters |= 1u << k;
        w = w[n] ? w + n + 1 : NULL;
    }
}

static void draft_of(struct reader *r, struct job_params *p)
{
    struct draft_settings *d = &p->draft;
    const char *names[N_POLICIES];
    const json_t *tree, *v;
    size_t i;
    draft_defaults(d);
    drafter_of(r, p);
    p->heads_file = text_of(r, "heads_file");
    tree = member(r, "tree");
    if (tree && !json_is_array(tree))
        bad(r, "tree", "an array of whole numbers");
    d->n_width = 0;
    json_array_foreach(tree, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 1 || d->n_width == TREE_WIDTHS_MAX)
            bad(r, "tree", "an array of whole numbers, at most 16");
        else
            d->width[d->n_width++] = (size_t)json_integer_value(v);
    }
    d->ngram_k = size_of(r, "ngram_k");
    d->ngram_lead = (enum ngram_lead)word_of(r, "ngram_lead", lead_names, N(lead_names));
    d->ngram_delay = long_of(r, "ngram_delay");
    d->draft_passes = long_of(r, "draft_passes");
    if (d->draft_passes == 0)
        d->drafters &= ~(1u << SOURCE_PARTIAL);
    for (i = 0; i < N_POLICIES; i++)
        names[i] = policies[i].name;
    d->kv_policy = policies[word_of(r, "kv_policy", names, N_POLICIES)].v;
    d->kv_sinks = size_of(r, "kv_sinks");
    d->kv_budget = size_of(r, "kv_budget");
    d->kv_fixed = bool_of(r, "kv_fixed");
    /* jobs from before there was a choice take the default: the text does not depend on it */
    if (json_object_get(r->o, "draft_weights"))
        d->weights = (enum draft_weights)word_of(r, "draft_weights", weight_names, N(weight_names));
    d->rows_max = size_of(r, "rows_max");
    d->verifier = (enum verifier)word_of(r, "verifier", verifier_names, N(verifier_names));
}

static void no_others(struct reader *r)
{
    if (!r->failed && json_object_size(r->o) != r->n_read) {
        r->failed = true;
        err_set(r->e, ERR_INPUT,
                "parameters: of %zu members this version knows %zu; a newer version of longhand made them",
                json_object_size(r->o), r->n_read);
    }
}

int job_parse(struct job_params *p, const char *text, struct err *e)
{
    json_error_t je;
    *p = (struct job_params){ .json = json_loads(text, JSON_REJECT_DUPLICATES, &je) };
    struct reader r = { .o = p->json, .e = e };
    if (!json_is_object(p->json)) {
        job_close(p);
        return err_set(e, ERR_INPUT, "parameters: no JSON object");
    }
    sampling_of(&r, p);
    p->on_loop = (enum on_loop)word_of(&r, "on_loop", on_loop_names, N(on_loop_names));
    const json_t *chat = member(&r, "chat");
    p->chat = chat && !json_is_null(chat);
    p->compute = word_of(&r, "compute", compute_names, N(compute_names)) ? DT_F32 : DT_BF16;
    p->kv = p->compute == DT_F32 ? DT_OTHER : DT_BF16;     /* what jobs have from before there was a choice */
    if (json_object_get(p->json, "kv_dtype"))
        p->kv = kv_of(word_of(&r, "kv_dtype", kv_names, N(kv_names)));
    p->scaling = text_of(&r, "context_scaling");
    p->allow_beyond_context = bool_of(&r, "allow_beyond_context");
    struct reader d = { .o = member(&r, "drafting"), .e = e, .failed = r.failed };
    if (!r.failed && !json_is_object(d.o))
        bad(&r, "drafting", "an object");
    d.failed = r.failed;
    draft_of(&d, p);
    no_others(&d);
    r.failed |= d.failed;
    no_others(&r);
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
    json_decref(p->json);
    *p = (struct job_params){0};
}

int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             uint64_t seed, uint32_t sample, size_t text_max, struct err *e)
{
    struct sampling *s = &p->sampling;
    s->seed = seed;
    s->sample = sample;
    s->text_max = text_max;
    s->eos = c->eos;
    s->n_eos = c->n_eos;
    if (p->drafter_auto && heads_present(model_dir))
        p->draft.drafters |= 1u << SOURCE_HEADS;
    if (s->dry_multiplier != 0 && sampling_breakers(s, &p->breakers, t, e))
        return -1;
    return sampling_check(s, c->vocab, e);
}

/* ---- checks ---- */

int job_check_length(const struct config *c, size_t n_prompt, size_t tokens, bool allow_beyond, struct err *e)
{
    if (tokens <= c->context && n_prompt <= c->context - tokens)
        return 0;
    if (c->rope.type == ROPE_DYNAMIC)
        return err_set(e, ERR_INPUT,
                       "%zu prompt tokens + --tokens %zu are beyond the %zu of this model's dynamic NTK "
                       "scaling: past its original length "
                       "all earlier keys would have to turn again; --context-scaling yarn:F helps",
                       n_prompt, tokens, c->context);
    if (allow_beyond)
        return 0;
    return err_set(e, ERR_INPUT,
                   "%zu prompt tokens + --tokens %zu are beyond this model's context of %zu; fewer tokens, "
                   "--context-scaling yarn:F "
                   "or --allow-beyond-context help",
                   n_prompt, tokens, c->context);
}

static void job_plan(struct memory_plan *plan, const struct job_params *p, const struct engine *g,
                     size_t n_max, size_t held)
{
    const struct heads usual = { .n = 4 };       /* before they are read */
    struct decode_setup setup = { .draft = p->draft };
    setup.heads = setup.draft.drafters >> SOURCE_HEADS & 1 ? &usual : NULL;
    engine_plan(plan, g, n_max, decode_work_rows(&setup, n_max), decode_verify_rows(&setup));
    decode_plan(plan, &setup, &g->model, n_max);
    if (setup.heads && !g->heads.mem)
        memory_plan_add_on(plan, g->dev, "heads", heads_bytes(&g->model, usual.n));
    memory_plan_add(plan, "DRY", dry_bytes(&p->sampling, g->config.vocab));
    if (held)                            /* the weights are in memory: only the rest has to fit */
        memory_plan_deduct(plan, 0, held);
}

bool job_has_room(const struct job_params *p, const struct engine *g, size_t n_max, size_t bytes)
{
    struct memory_plan plan = {0};
    struct err ignored;
    const char *limit;
    const size_t spare = MAX(memory_available(&limit) / 8, (size_t)32 << 20);
    job_plan(&plan, p, g, n_max, g->weight_bytes);
    memory_plan_add(&plan, "more", bytes);
    memory_plan_add(&plan, "spare", spare);
    return memory_plan_check(&plan, "", &ignored) == 0;
}

int job_check_memory(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     struct err *e)
{
    struct memory_plan plan = {0};
    if (draft_check_device(&p->draft, g->dev, e))
        return -1;
    job_plan(&plan, p, g, n_max, held);
    return memory_plan_check(&plan, "fewer --tokens need less", e);
}

int job_encode_inside(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                      struct err *e)
{
    int32_t *line = NULL, *both = NULL;
    size_t n_line = 0, n_both = 0;
    char *behind = malloc(n + 2);
    if (!behind)
        return err_set(e, ERR_FAILED, "out of memory for %zu bytes of text", n);
    behind[0] = '\n';                    /* many tokenizers put a space before the first word of a text */
    memcpy(behind + 1, text, n);
    int rc = tokenizer_encode(t, &line, &n_line, behind, 1, false, e) || tokenizer_encode(t, &both, &n_both,
        behind, n + 1, false, e) ? -1 : 0;
    free(behind);
    if (rc == 0 && n_line <= n_both && memcmp(line, both, n_line * sizeof *line) == 0) {
        memmove(both, both + n_line, (n_both - n_line) * sizeof *both);
        *ids = both;
        *n_ids = n_both - n_line;
    } else {
        free(both);
        /* a token goes over the border */
        rc = rc ? rc : tokenizer_encode(t, ids, n_ids, text, n, false, e);
    }
    free(line);
    return rc;
}
