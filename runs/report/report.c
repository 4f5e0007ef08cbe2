#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/config.h"
#include "src/text/emit.h"
#include "src/text/tokenizer.h"

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for the report"); }

/* ---- counters ---- */

#define SUM(name, field) { name, offsetof(struct report_sum, field) }
static const struct { const char *name; size_t offset; } sums[] = {
    SUM("tokens", tokens), SUM("rounds", rounds), SUM("drafted", drafted), SUM("verified_rows", rows),
        SUM("accepted", accepted),
    SUM("drafted_depth", drafted_depth), SUM("beta_accepted", beta_accepted), SUM("draft_passes",
        draft_passes), SUM("refreshes", refreshes),
    SUM("seconds", seconds), SUM("draft_seconds", draft), SUM("verify_seconds", verify),
        SUM("control_seconds", control), SUM("plain_seconds", plain),
    SUM("prefill_tokens", prefill_tokens), SUM("prefill_seconds", prefill_seconds), SUM("checkpoint_commits",
        commits),
    SUM("checkpoint_seconds", commit_seconds), SUM("checkpoint_cpu_seconds", commit_cpu),
        SUM("checkpoint_put_seconds", put),
    SUM("snapshots", snapshots), SUM("snapshot_bytes", snapshot_bytes), SUM("snapshot_seconds",
        snapshot_seconds), SUM("snapshot_cpu_seconds", snapshot_cpu),
    SUM("snapshot_put_seconds", snapshot_put), SUM("restored_tokens", restored), SUM("restore_seconds",
        restore_seconds), SUM("restore_saved_seconds", saved),
};

static void add_counter(struct report *r, struct report_window *w, const struct metric *m)
{
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (strcmp(m->name, sums[i].name) == 0) {
            *(double *)(void *)((char *)&r->sum + sums[i].offset) += m->value;
            *(double *)(void *)((char *)&w->sum + sums[i].offset) += m->value;
            return;
        }
    double *list = strcmp(m->name, "reached") == 0       ? r->reached
                   : strcmp(m->name, "accepted_at") == 0 ? r->accepted_at
                   : strcmp(m->name, "histogram") == 0   ? r->histogram
                                                         : NULL;
    if (list && m->index < REPORT_DEPTHS)
        list[m->index] += m->value;
}

static int add_source(struct report *r, size_t window, const struct metric *m, struct err *e)
{
    size_t i = 0;
    while (i < r->n_sources && strcmp(r->source[i].name, m->source))
        i++;
    if (i == r->n_sources) {
        void *p = realloc(r->source, (i + 1) * sizeof *r->source);
        if (!p)
            return no_memory(e);
        r->source = p;
        r->source[i] = (struct report_source){ .name = m->source, .window = calloc(r->n_windows,
            sizeof(double)) };
        if (!r->source[i].window)
            return no_memory(e);
        r->n_sources++;
    }
    if (strcmp(m->name, "drafted") == 0)
        r->source[i].drafted += m->value;
    else if (strcmp(m->name, "accepted") == 0) {
        r->source[i].accepted += m->value;
        r->source[i].window[window] += m->value;
    }
    return 0;
}

static int read_counters(struct report *r, struct store *s, struct err *e)
{
    if (store_metrics(s, r->job->id, &r->metrics, e))
        return -1;
    r->n_windows = (r->job->tokens ? r->job->tokens - 1 : 0) / METRIC_WINDOW + 1;
    r->window = calloc(r->n_windows, sizeof *r->window);
    if (!r->window)
        return no_memory(e);
    for (size_t i = 0; i < r->n_windows; i++) {
        struct report_window *w = &r->window[i];
        w->start = i * METRIC_WINDOW;
        w->n = w->start < r->job->tokens ? MIN(r->job->tokens - w->start, (size_t)METRIC_WINDOW) : 0;
        for (size_t k = 0; k < DISTINCT_MAX; k++)
            w->distinct[k] = w->so_far[k] = NAN;
    }
    for (size_t i = 0; i < r->metrics.n; i++) {
        const struct metric *m = &r->metrics.v[i];
        /* what came behind the last token */
        size_t w = MIN(m->window / METRIC_WINDOW, r->n_windows - 1);
        if (!m->source[0])
            add_counter(r, &r->window[w], m);
        else if (add_source(r, w, m, e))
            return -1;
    }
    return 0;
}

/* ---- the text ---- */

/* The tokenizer of the last job's model, kept for the next one of the same. */
struct shelf { const char *model; struct tokenizer *tokenizer; size_t vocab; };

struct reading {
    struct report *r;
    int32_t *ids; size_t n;
    struct span_list spans; size_t span;
    struct tokenizer *tokenizer;                 /* NULL: none; borrowed */
    struct decode_stream stream;
    char *piece, *text; size_t n_text, room;     /* of the generated tokens, given ones left out */
    struct distinct whole, window, words;
    struct loop *loop;
};

static bool is_given(struct reading *g, size_t at)
{
    while (g->span < g->spans.n && (strcmp(g->spans.v[g->span].kind, "given") ||
                                    at >= g->spans.v[g->span].start + g->spans.v[g->span].n))
        g->span++;
    return g->span < g->spans.n && at >= g->spans.v[g->span].start;
}

static int add_repetition(struct report *r, const struct repetition *at, bool open, struct err *e)
{
    struct report_repetition *p = realloc(r->repetition, (r->n_repetitions + 1) * sizeof *p);
    if (!p)
        return no_memory(e);
    r->repetition = p;
    p[r->n_repetitions++] = (struct report_repetition){ *at, open, NULL };
    return 0;
}

static int add_text(struct reading *g, size_t n, struct err *e)
{
    if (g->n_text + n + 1 > g->room) {
        size_t room = 2 * (g->n_text + n) + 4096;
        char *p = realloc(g->text, room);
        if (!p)
            return no_memory(e);
        g->text = p;
        g->room = room;
    }
    memcpy(g->text + g->n_text, g->piece, n);
    g->n_text += n;
    g->text[g->n_text] = 0;
    return 0;
}

static int flush_text(struct reading *g, struct err *e)
{
    return g->tokenizer ? add_text(g, decode_stream_flush(&g->stream, g->piece), e) : 0;
}

static void note_window(struct reading *g, size_t i)
{
    struct report_window *w = &g->r->window[i];
    for (size_t k = 0; k < DISTINCT_MAX; k++) {
        w->distinct[k] = distinct_ratio(&g->window, k + 1);
        w->so_far[k] = distinct_ratio(&g->whole, k + 1);
    }
}

/* All tokens once: Distinct-n of windows and the whole, the loop rule, the text. */
static int read_tokens(struct reading *g, struct err *e)
{
    struct report *r = g->r;
    struct repetition at;
    bool before = false;                         /* the token before was given */
    for (size_t i = 0; i < g->n; i++) {
        bool given = is_given(g, i);
        if (given) {
            loop_given(g->loop, g->ids[i]);
            if (!before && flush_text(g, e))
                return -1;
        } else {
            loop_token(g->loop, g->ids[i]);
            if (distinct_symbol(&g->whole, (uint32_t)g->ids[i], e) ||
                distinct_symbol(&g->window, (uint32_t)g->ids[i], e))
                return -1;
            if (g->tokenizer && add_text(g, decode_stream_push(&g->stream, g->ids[i], g->piece), e))
                return -1;
            r->tokens++;
        }
        before = given;
        if (loop_ended(g->loop, &at) && add_repetition(r, &at, false, e))
            return -1;
        if ((i + 1) % METRIC_WINDOW == 0 || i + 1 == g->n) {
            note_window(g, i / METRIC_WINDOW);
            distinct_close(&g->window);
            if (distinct_open(&g->window, e))
                return -1;
        }
    }
    r->given = g->n - r->tokens;
    if (loop_current(g->loop, &at) && add_repetition(r, &at, true, e))
        return -1;
    return flush_text(g, e);
}

/* A stop string is no text, though its tokens are there. */
static void cut_stop_string(struct reading *g)
{
    const char *why = g->r->job->stop_reason, *s;
    size_t i;
    json_t *one;
    if (!why || !g->text || !why[0])
        return;
    json_array_foreach(json_object_get(g->r->parameters, "stop"), i, one)
        if ((s = json_string_value(one)) && strcmp(s, why) == 0)
            for (size_t k = strlen(why), at = g->n_text; at-- > 0;)
                if (at + k <= g->n_text && memcmp(g->text + at, why, k) == 0) {
                    g->n_text = at;
                    return;
                }
}

/* What is said again: the last two periods before it was noticed, where the text is in the middle of it. */
static int add_excerpts(struct reading *g, struct err *e)
{
    enum { TOKENS_MAX = 48 };
    for (size_t i = 0; i < g->r->n_repetitions; i++) {
        struct report_repetition *p = &g->r->repetition[i];
        size_t n = MIN(MIN(MAX(2 * p->at.period, (size_t)12), (size_t)TOKENS_MAX), p->at.found + 1), bytes;
        if (tokenizer_decode(g->tokenizer, &p->excerpt, &bytes, g->ids + p->at.found + 1 - n, n, true, e))
            return -1;
    }
    return 0;
}

static int read_words(struct reading *g, struct err *e)
{
    struct report *r = g->r;
    if (!g->tokenizer)
        return 0;
    cut_stop_string(g);
    if ((g->n_text && distinct_text(&g->words, g->text, g->n_text, e)) || distinct_end(&g->words, e))
        return -1;
    r->has_words = true;
    r->n_words = g->words.total[0];
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        r->words[k] = distinct_ratio(&g->words, k + 1);
    return add_excerpts(g, e);
}

/* The tokenizer of the job's model, where it is still there and knows all the ids. */
static void find_tokenizer(struct reading *g, struct shelf *h)
{
    struct config c;
    struct err e;
    if (!h->model || strcmp(h->model, g->r->job->model)) {
        tokenizer_close(h->tokenizer);
        *h = (struct shelf){ .model = g->r->job->model };
        if (config_read(&c, h->model, &e) || tokenizer_open(&h->tokenizer, h->model, c.vocab, &e))
            h->tokenizer = NULL;
        else
            h->vocab = c.vocab;
    }
    g->tokenizer = h->tokenizer;
    g->r->no_text = h->tokenizer ? NULL : "the model's folder cannot be read any more";
    for (size_t i = 0; i < g->n && g->tokenizer; i++)
        if (g->ids[i] < 0 || (size_t)g->ids[i] >= h->vocab) {
            g->tokenizer = NULL;
            g->r->no_text = "the model in this folder is another one now";
        }
}

static int read_text(struct report *r, struct store *s, struct shelf *h, struct err *e)
{
    struct reading g = { .r = r };
    int rc = store_tokens(s, r->job->id, 0, r->job->tokens, &g.ids, &g.n, e);
    if (rc == 0)
        rc = store_spans(s, r->job->id, &g.spans, e);
    if (rc == 0) {
        find_tokenizer(&g, h);
        if (g.tokenizer)
            decode_stream_start(&g.stream, g.tokenizer, false, true);
        g.piece = malloc(g.tokenizer ? decode_stream_max(g.tokenizer) + 1 : 1);
        rc = g.piece ? 0 : no_memory(e);
    }
    if (rc == 0 && (rc = loop_open(&g.loop, e)) == 0 && (rc = distinct_open(&g.whole, e)) == 0 &&
        (rc = distinct_open(&g.window, e)) == 0 && (rc = distinct_open(&g.words, e)) == 0 &&
        (rc = read_tokens(&g, e)) == 0)
        rc = read_words(&g, e);
    for (size_t k = 0; k < DISTINCT_MAX && rc == 0; k++)
        r->distinct[k] = distinct_ratio(&g.whole, k + 1);
    distinct_close(&g.whole);
    distinct_close(&g.window);
    distinct_close(&g.words);
    loop_close(g.loop);
    span_list_free(&g.spans);
    free(g.ids);
    free(g.piece);
    free(g.text);
    return rc;
}

/* ---- one report ---- */

static int read_parameters(struct report *r, struct store *s, struct err *e)
{
    struct job_input in;
    json_error_t why;
    if (store_input(s, r->job->id, &in, e))
        return -1;
    r->parameters = json_loads(in.parameters, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(r->parameters)) {
        json_decref(r->parameters);
        r->parameters = json_object();           /* the figures are worth having all the same */
    }
    r->tree_fixed = json_array_size(json_object_get(json_object_get(r->parameters, "drafting"), "tree")) > 0;
    job_input_free(&in);
    return r->parameters ? 0 : no_memory(e);
}

static void report_close(struct report *r)
{
    for (size_t i = 0; i < r->n_sources; i++)
        free(r->source[i].window);
    for (size_t i = 0; i < r->n_repetitions; i++)
        free(r->repetition[i].excerpt);
    free(r->source);
    free(r->window);
    free(r->repetition);
    json_decref(r->parameters);
    round_list_free(&r->rounds);
    event_list_free(&r->events);
    metric_list_free(&r->metrics);
}

static int report_read(struct report *r, struct store *s, const struct job *job,
                       const struct report_options *o, struct shelf *h, struct err *e)
{
    *r = (struct report){ .job = job, .speedup = NAN, .estimate = NAN };
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        r->distinct[k] = r->words[k] = NAN;
    if (read_parameters(r, s, e) || read_counters(r, s, e) || read_text(r, s, h, e) ||
        store_events(s, job->id, &r->events, e) || (o->rounds && store_rounds(s, job->id, &r->rounds, e)))
        return -1;
    if (r->sum.drafted > 0 && !r->tree_fixed && r->sum.plain > 0 && r->sum.seconds > 0)
        r->estimate = r->sum.plain / r->sum.seconds;
    return 0;
}

/* ---- several ---- */

static bool same_text(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static void find_speedups(struct reports *l)
{
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->n; k++) {
            struct report *r = &l->v[i];
            const struct report *p = &l->v[k];
            bool plain = p->sum.rounds > 0 && p->sum.rows == p->sum.rounds && p->sum.drafted == 0;
            if (!plain || i == k || p->db != r->db || p->job->state != JOB_DONE ||
                r->job->state != JOB_DONE || (r->sum.drafted == 0 && r->sum.rows == r->sum.rounds) ||
                p->job->prompt_tokens != r->job->prompt_tokens || p->job->tokens != r->job->tokens ||
                !same_text(p->job->model, r->job->model) || !same_text(p->job->numerics, r->job->numerics))
                continue;
            r->speedup = report_speed(&r->sum) / report_speed(&p->sum);
            r->plain = p->job->id;
        }
}

const char *const report_figure_names[FIGURES] = { "tokens/s", "acceptance length", "alpha", "distinct-1",
    "distinct-2", "distinct-3", "distinct-4" };

static double figure(const struct report *r, size_t i)
{
    return i == FIGURE_SPEED    ? report_speed(&r->sum)
           : i == FIGURE_LENGTH ? report_acceptance(&r->sum)
           : i == FIGURE_ALPHA  ? report_alpha(&r->sum)
                                : r->distinct[i - FIGURE_DISTINCT];
}

/* Mean and standard deviation over the jobs whose value is `value`. */
static struct report_figure_sum figure_sum(const struct reports *l, char *const *value, const char *which,
                                           size_t f)
{
    struct report_figure_sum s = {0};
    double sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < l->n; i++) {
            double x = figure(&l->v[i], f);
            if (strcmp(value[i], which) || isnan(x) || (f >= FIGURE_DISTINCT && !l->equal_lengths))
                continue;
            if (pass == 0) {
                sum += x;
                s.n++;
            } else {
                squares += (x - s.mean) * (x - s.mean);
            }
            s.mean = sum / (double)s.n;
        }
    if (!s.n)
        s.mean = NAN;
    s.sd = s.n > 1 ? sqrt(squares / (double)(s.n - 1)) : NAN;
    return s;
}

struct lookup { const char *name; char *value; };

static void look(void *ctx, const char *name, const json_t *v)
{
    struct lookup *k = ctx;
    if (strcmp(name, k->name) == 0 && !k->value)
        k->value = report_value(v);
}

/* free it; NULL when the job has no such parameter. */
static char *parameter_of(const struct report *r, const char *name)
{
    struct lookup k = { name, NULL };
    char number[32];
    if (strcmp(name, "model") == 0)
        return strdup(r->job->model);
    if (strcmp(name, "numerics") == 0)
        return strdup(r->job->numerics ? r->job->numerics : "");
    snprintf(number, sizeof number, "%" PRIu64,
             strcmp(name, "seed") == 0            ? r->job->seed
             : strcmp(name, "prompt_tokens") == 0 ? r->job->prompt_tokens
                                                  : r->job->wanted);
    if (strcmp(name, "seed") == 0 || strcmp(name, "prompt_tokens") == 0 || strcmp(name, "tokens") == 0)
        return strdup(number);
    report_parameters(r, look, &k);
    /* a member of an inner object by its own name: drafter for drafting.drafter */
    if (!k.value) {
        json_t *v = json_object_get(json_object_get(r->parameters, "drafting"), name);
        k.value = v ? report_value(v) : NULL;
    }
    return k.value;
}

struct names { char text[800]; };

static void names_of(void *ctx, const char *name, const json_t *v)
{
    struct names *out = ctx;
    size_t n = strlen(out->text);
    (void)v;
    snprintf(out->text + n, sizeof out->text - n, "%s, ", name);
}

static int unknown_parameter(const struct reports *l, const char *by, struct err *e)
{
    struct names known = { "" };
    report_parameters(&l->v[0], names_of, &known);
    return err_set(e, ERR_INPUT,
                   "--by %s: job %" PRId64
                   " has no such parameter; it has %smodel, numerics, seed, prompt_tokens, tokens",
                   by, l->v[0].job->id, known.text);
}

static int by_value(const void *a, const void *b)
{
    const struct report_group *x = a, *y = b;
    char *end_x, *end_y;
    double p = strtod(x->value, &end_x), q = strtod(y->value, &end_y);
    return !*end_x && !*end_y && p != q ? (p > q) - (p < q) : strcmp(x->value, y->value);
}

static int make_groups(struct reports *l, struct err *e)
{
    char **value = calloc(l->n + 1, sizeof *value), *name = strdup(l->o.by);
    bool any = false;
    int rc = value && name && (l->group = calloc(l->n + 1, sizeof *l->group)) ? 0 : no_memory(e);
    for (char *p = name; p && (p = strchr(p, '-'));)       /* min-p, as the option is spelled */
        *p = '_';
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        value[i] = parameter_of(&l->v[i], name);
        any |= value[i] != NULL;
        if (!value[i] && !(value[i] = strdup("")))
            rc = no_memory(e);
    }
    if (rc == 0 && l->n && !any)
        rc = unknown_parameter(l, l->o.by, e);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        size_t k = 0;
        while (k < l->n_groups && strcmp(l->group[k].value, value[i]))
            k++;
        if (k == l->n_groups) {
            l->group[l->n_groups++] = (struct report_group){ .value = strdup(value[i]) };
            if (!l->group[k].value) {
                rc = no_memory(e);
                break;
            }
            for (size_t f = 0; f < FIGURES; f++)
                l->group[k].figure[f] = figure_sum(l, value, value[i], f);
        }
        l->group[k].n++;
    }
    if (rc == 0)
        qsort(l->group, l->n_groups, sizeof *l->group, by_value);
    for (size_t i = 0; value && i < l->n; i++)
        free(value[i]);
    free(value);
    free(name);
    return rc;
}

/* The jobs of one database; several: they have its path. */
static int read_list(struct reports *l, struct store *s, const struct job_list *jobs, bool several,
                     struct shelf *h, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < jobs->n; i++) {
        rc = report_read(&l->v[l->n], s, &jobs->v[i], &l->o, h, e);
        l->v[l->n].db = several ? store_path(s) : NULL;
        l->n++;
        l->equal_lengths &= rc == 0 && l->v[l->n - 1].tokens == l->v[0].tokens;
    }
    return rc;
}

int reports_open(struct reports *l, const struct report_from *from, size_t n, const struct report_options *o,
                 struct err *e)
{
    struct shelf h = {0};
    size_t jobs = 0;
    *l = (struct reports){ .o = *o, .equal_lengths = true, .jobs = calloc(n + 1, sizeof *l->jobs) };
    int rc = l->jobs ? 0 : no_memory(e);
    for (; rc == 0 && l->n_lists < n; l->n_lists += rc == 0) {
        rc = store_jobs(from[l->n_lists].store, from[l->n_lists].ids, from[l->n_lists].n,
                        &l->jobs[l->n_lists], e);
        jobs += rc ? 0 : l->jobs[l->n_lists].n;
    }
    if (rc == 0 && !(l->v = calloc(jobs + 1, sizeof *l->v)))
        rc = no_memory(e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_list(l, from[i].store, &l->jobs[i], n > 1, &h, e);
    tokenizer_close(h.tokenizer);
    if (rc == 0)
        find_speedups(l);
    if (rc == 0 && o->by)
        rc = make_groups(l, e);
    if (rc)
        reports_close(l);
    return rc;
}

void reports_close(struct reports *l)
{
    for (size_t i = 0; i < l->n; i++)
        report_close(&l->v[i]);
    for (size_t i = 0; i < l->n_groups; i++)
        free(l->group[i].value);
    free(l->group);
    free(l->v);
    for (size_t i = 0; i < l->n_lists; i++)
        job_list_free(&l->jobs[i]);
    free(l->jobs);
    *l = (struct reports){0};
}

/* ---- derived ---- */

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }
double report_speed(const struct report_sum *s) { return ratio(s->tokens, s->seconds); }
double report_acceptance(const struct report_sum *s) { return ratio(s->tokens, s->rounds); }
double report_alpha(const struct report_sum *s) { return ratio(s->accepted, s->drafted_depth); }
double report_beta(const struct report *r, const struct report_sum *s)
{
    return r->tree_fixed ? ratio(s->beta_accepted, s->drafted_depth) : NAN;
}
double report_snapshot_share(const struct report *r)
{
    return ratio(r->sum.snapshot_put + r->sum.snapshot_cpu, r->sum.seconds + r->sum.prefill_seconds);
}
double report_checkpoint_share(const struct report *r)
{
    return ratio(r->sum.put + r->sum.commit_cpu, r->sum.seconds + r->sum.prefill_seconds);
}

void report_name(const struct report *r, char *out, size_t size)
{
    const struct job *j = r->job;
    int n = snprintf(out, size, "%s%s%s%s", j->batch ? "@" : "", j->batch ? j->batch : "",
                     j->batch && j->custom_id ? "/" : "", j->custom_id ? j->custom_id : "");
    if (r->db && (size_t)n < size) {
        if (n == 0)
            n = snprintf(out, size, "job %" PRId64, j->id);
        snprintf(out + n, size - (size_t)n, " in %s", r->db);
    }
}

char *report_value(const json_t *v)
{
    /* by jansson's allocator: json_whole knows when there was no memory */
    if (json_is_string(v)) {
        json_malloc_t get;
        json_free_t put;
        json_get_alloc_funcs(&get, &put);
        char *s = get(json_string_length(v) + 1);
        return s ? memcpy(s, json_string_value(v), json_string_length(v) + 1) : NULL;
    }
    return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15) | JSON_SORT_KEYS);
}

void report_parameters(const struct report *r, void (*f)(void *ctx, const char *name, const json_t *v),
                       void *ctx)
{
    const char *name, *inner;
    json_t *v, *w;
    json_object_foreach(r->parameters, name, v)
        if (json_is_object(v) && strcmp(name, "logit_bias")) {
            char full[160];
            json_object_foreach(v, inner, w) {
                snprintf(full, sizeof full, "%.60s.%.80s", name, inner);
                f(ctx, full, w);
            }
        } else {
            f(ctx, name, v);
        }
}
