/* Reads the figures of jobs from the store and derives the rest: counters by window, Distinct-n and
 * repetitions of the text. Start at reports_open; read_job is the part that talks to the store.
 * Groups, baselines and labels are in report_group.c. */
#include "runs/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "runs/work/read_text.h"
#include "src/text/tokenizer.h"

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for the report"); }

/* Whether a text of the store is an object of JSON. */
static bool is_object(struct json *root, const char *text)
{
    struct err ignored;
    return text && js_check(root, "store", text, strlen(text), &ignored) == 0 && js_kind(root) == JS_OBJECT;
}

/* ---- counters ---- */

/* What a report knows before it has read anything. */
static struct counts no_counts(void)
{
    struct counts c = { .speedup = NAN, .estimate = NAN, .repeats = NAN };
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        c.distinct[k] = c.so_far[k] = c.words[k] = NAN;
    return c;
}

static int add_source(struct report *r, size_t window, const struct metric *m, struct err *e)
{
    size_t i = 0;
    while (i < r->n_sources && strcmp(r->source[i].name, m->source))
        i++;
    if (i == r->n_sources) {
        if (!array_grow(&r->source, i, sizeof *r->source))
            return no_memory(e);
        r->source[i] = (struct report_source){ .name = m->source };
        r->source[i].window = calloc(r->n_windows, sizeof(double));
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

static int add_counters(struct report *r, struct err *e)
{
    r->n_windows = (r->job->tokens ? r->job->tokens - 1 : 0) / METRIC_WINDOW + 1;
    r->window = calloc(r->n_windows, sizeof *r->window);
    if (!r->window)
        return no_memory(e);
    for (size_t i = 0; i < r->n_windows; i++) {
        struct report_window *w = &r->window[i];
        w->start = i * METRIC_WINDOW;
        w->n = w->start < r->job->tokens ? MIN(r->job->tokens - w->start, (size_t)METRIC_WINDOW) : 0;
        w->partial = w->n < METRIC_WINDOW;
        w->sum = no_counts();
    }
    for (size_t i = 0; i < r->metrics.n; i++) {
        const struct metric *m = &r->metrics.v[i];
        /* counters that came after the last token belong to the last window */
        size_t w = MIN(m->window / METRIC_WINDOW, r->n_windows - 1);
        figures_count(&r->sum, r->list, m);
        figures_count(&r->window[w].sum, NULL, m);
        if (m->source[0] && add_source(r, w, m, e))
            return -1;
    }
    for (size_t i = 0; i < r->retakes.n; i++) {
        const struct retake *x = &r->retakes.v[i];
        if (x->at < r->job->parent_at)
            continue;
        r->sum.retakes++;
        r->sum.cut += (double)(x->length - x->at);
        for (size_t at = x->at, end; at < x->length; at = end) {
            const size_t w = at / METRIC_WINDOW;
            end = MIN(x->length, (w + 1) * METRIC_WINDOW);
            r->window[MIN(w, r->n_windows - 1)].sum.cut += (double)(end - at);
        }
    }
    for (size_t i = 0; i < r->n_windows; i++)
        figures_complete(&r->window[i].sum, NULL, r->tree_fixed);
    figures_complete(&r->sum, r->list, r->tree_fixed);
    return 0;
}

/* ---- the text ---- */

/* What the store knows of a text, read in one transaction. prompt: of a chat, else NULL. */
struct stored { int32_t *ids, *prompt; size_t n, n_prompt; struct span_list spans; };

struct text_pass {                               /* one pass over the tokens of a job */
    struct report *r;
    const int32_t *ids; size_t n;
    const struct span_list *spans;
    struct tokenizer *tokenizer;                 /* borrowed; NULL: none */
    struct decode_stream stream;
    char *piece;                                 /* of a token */
    FILE *f; char *text; size_t n_text, n_file;  /* of the generated tokens, without given ones; by f */
    struct thoughts thoughts;                    /* they count for no Distinct-n */
    struct distinct whole, window, words;
    struct loop *loop;
};

static int add_repetition(struct report *r, const struct repetition *at, bool open, struct err *e)
{
    if (!array_grow(&r->repetition, r->n_repetitions, sizeof *r->repetition))
        return no_memory(e);
    r->repetition[r->n_repetitions++] = (struct report_repetition){ *at, open, NULL };
    return 0;
}

static void add_text(struct text_pass *g, size_t n) { g->n_text += fwrite(g->piece, 1, n, g->f); }

static void flush_text(struct text_pass *g)
{
    if (g->tokenizer)
        add_text(g, decode_stream_flush(&g->stream, g->piece));
}

static void end_window(struct text_pass *g, size_t i)
{
    struct report_window *w = &g->r->window[i];
    for (size_t k = 0; k < DISTINCT_MAX; k++) {
        w->sum.distinct[k] = distinct_ratio(&g->window, k + 1);
        w->sum.so_far[k] = distinct_ratio(&g->whole, k + 1);
    }
    w->text_end = g->n_text;
}

/* Adds a token that is not given to the text, and to Distinct-n if it is no part of a thought. */
static int add_token(struct text_pass *g, int32_t id, struct err *e)
{
    const bool open = g->thoughts.state == THOUGHTS_OPEN;
    if (g->tokenizer)
        add_text(g, decode_stream_push(&g->stream, id, g->piece));
    thoughts_token(&g->thoughts, id, g->n_text + g->stream.n_held);
    if (open || g->thoughts.state == THOUGHTS_OPEN)
        return 0;
    return distinct_symbol(&g->whole, (uint32_t)id, e) || distinct_symbol(&g->window, (uint32_t)id, e) ? -1
                                                                                                       : 0;
}

static int pass_over_tokens(struct text_pass *g, struct err *e)
{
    struct report *r = g->r;
    struct repetition at;
    bool before = false;                         /* the previous token was given */
    for (size_t i = 0; i < g->n; i++) {
        const bool given = token_is_given(g->spans, i);
        if (given) {
            loop_given(g->loop, g->ids[i]);
            if (!before)
                flush_text(g);
            const size_t begins = g->thoughts.begins;
            thoughts_token(&g->thoughts, g->ids[i], g->n_text);
            if (g->thoughts.begins != begins)
                g->thoughts.begins = g->n_text;          /* given tokens are not in this text */
        } else {
            loop_token(g->loop, g->ids[i]);
            if (add_token(g, g->ids[i], e))
                return -1;
            r->tokens++;
        }
        before = given;
        if (loop_ended(g->loop, &at) && add_repetition(r, &at, false, e))
            return -1;
        if ((i + 1) % METRIC_WINDOW == 0 || i + 1 == g->n) {
            end_window(g, i / METRIC_WINDOW);
            distinct_close(&g->window);
            if (distinct_open(&g->window, e))
                return -1;
        }
    }
    r->given = g->n - r->tokens;
    if (loop_current(g->loop, &at) && add_repetition(r, &at, true, e))
        return -1;
    flush_text(g);
    return fflush(g->f) ? no_memory(e) : 0;
}

/* Removes a stop string that ended the text: its tokens are stored, but it is no part of the text. */
static void cut_stop_string(struct text_pass *g)
{
    const char *why = g->r->job->stop_reason;
    struct json root, stop, one;
    struct err ignored;
    if (!why || !g->text || !why[0] || !is_object(&root, g->r->json) ||
        js_get(&root, "stop", &stop, &ignored) != 1 || js_kind(&stop) != JS_ARRAY)
        return;
    for (struct js_walk w = js_walk(&stop); js_next(&w, NULL, &one);)
        if (js_is(&one, why))
            for (size_t k = strlen(why), at = g->n_text; at-- > 0;)
                if (at + k <= g->n_text && memcmp(g->text + at, why, k) == 0) {
                    g->n_text = at;
                    return;
                }
}

/* Excerpts show the last two periods before the rule spoke, from the middle of the repetition. */
static int add_excerpts(struct text_pass *g, struct err *e)
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

/* Reads the words window by window, so that each window knows its own. A word belongs to the window in which
 * it ends. */
static int read_words(struct text_pass *g, struct err *e)
{
    struct report *r = g->r;
    const struct thoughts *x = &g->thoughts;
    size_t *ends = calloc(r->n_windows + 1, sizeof *ends);
    size_t at = x->state == THOUGHTS_OPEN ? g->n_text : MIN(x->begins, g->n_text);
    int rc = ends ? 0 : no_memory(e);
    for (size_t i = 0; rc == 0 && i < r->n_windows; i++) {
        const size_t to = i + 1 < r->n_windows ? MIN(MAX(r->window[i].text_end, at), g->n_text) : g->n_text;
        rc = to > at ? distinct_text(&g->words, g->text + at, to - at, e) : 0;
        if (rc == 0 && i + 1 == r->n_windows)
            rc = distinct_end(&g->words, e);
        ends[i + 1] = g->words.total[0];
        at = to;
    }
    if (rc == 0)
        rc = repeats_find(&r->repeats, &g->words, e);
    for (size_t i = 0; rc == 0 && i < r->n_windows; i++)
        r->window[i].sum.repeats = repeats_share(&r->repeats, ends[i], ends[i + 1]);
    if (rc == 0)
        r->sum.repeats = repeats_share(&r->repeats, 0, r->repeats.n);
    free(ends);
    return rc;
}

static int finish_words(struct text_pass *g, struct err *e)
{
    struct report *r = g->r;
    if (!g->tokenizer)
        return 0;
    cut_stop_string(g);
    if (read_words(g, e))
        return -1;
    r->has_words = true;
    r->n_words = g->words.total[0];
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        r->sum.words[k] = distinct_ratio(&g->words, k + 1);
    return add_excerpts(g, e);
}

/* Finds the tokenizer of the job's model: the stored one, or that of its folder if its vocabulary contains
 * all ids. */
static void find_tokenizer(struct text_pass *g, struct store *s, struct text_reader *h)
{
    struct err ignored;
    const struct job_params none = {0};
    if (text_reader_open(h, s, g->r->job, &none, &ignored)) {
        g->r->no_text = "the model's folder cannot be read any more";
        return;
    }
    g->tokenizer = h->tokenizer;
    for (size_t i = 0; i < g->n && g->tokenizer; i++)
        if (g->ids[i] < 0 || (size_t)g->ids[i] >= h->config.vocab) {
            g->tokenizer = NULL;
            g->r->no_text = "this folder contains another model now";
        }
}

static int add_text_figures(struct report *r, const struct stored *t, struct store *s, struct text_reader *h,
                            struct err *e)
{
    struct text_pass g = { .r = r, .ids = t->ids, .n = t->n, .spans = &t->spans };
    find_tokenizer(&g, s, h);
    if (g.tokenizer)
        decode_stream_start(&g.stream, g.tokenizer, false, true);
    int rc = 0;
    if (g.tokenizer && t->prompt)
        rc = thoughts_begin(&g.thoughts, g.tokenizer, t->prompt, t->n_prompt, e);
    g.piece = malloc(g.tokenizer ? decode_stream_max(g.tokenizer) + 1 : 1);
    g.f = memory_file(&g.text, &g.n_file);
    rc = rc || (g.piece && g.f) ? rc : no_memory(e);
    if (rc == 0 && (rc = loop_open(&g.loop, e)) == 0 && (rc = distinct_open(&g.whole, e)) == 0 &&
        (rc = distinct_open(&g.window, e)) == 0 && (rc = distinct_open(&g.words, e)) == 0 &&
        (rc = pass_over_tokens(&g, e)) == 0)
        rc = finish_words(&g, e);
    for (size_t k = 0; k < DISTINCT_MAX && rc == 0; k++)
        r->sum.distinct[k] = distinct_ratio(&g.whole, k + 1);
    thoughts_end(&g.thoughts);
    distinct_close(&g.whole);
    distinct_close(&g.window);
    distinct_close(&g.words);
    loop_close(g.loop);
    free(g.piece);
    if (g.f)
        stream_end(g.f);
    free(g.text);
    return rc;
}

/* ---- parameters ---- */

static int add_parameter(struct report *r, const char *prefix, const struct json *key, const struct json *v,
                         struct err *e)
{
    char *name = js_strdup(key);
    size_t n = 0;
    if (!name || !array_grow(&r->parameter, r->n_parameters, sizeof *r->parameter)) {
        free(name);
        return no_memory(e);
    }
    struct report_parameter *p = &r->parameter[r->n_parameters++];
    *p = (struct report_parameter){ .is_number = js_kind(v) == JS_NUMBER,
                                    .is_text = js_kind(v) == JS_STRING };
    if (asprintf(&p->name, "%s%s%s", prefix, *prefix ? "." : "", name) < 0)
        p->name = NULL;
    free(name);
    FILE *f = p->is_text || js_kind(v) == JS_NULL ? NULL : memory_file(&p->value, &n);
    if (f)
        jw_value(&(struct json_writer){ .f = f, .digits = 15, .style = JW_COMPACT }, NULL, v);
    const bool lost = f && stream_end(f);
    if (p->is_text)
        p->value = js_strdup(v);
    return p->name && !lost && (p->value || js_kind(v) == JS_NULL) ? 0 : no_memory(e);
}

static int add_members(struct report *r, const char *prefix, const struct json *object, struct err *e)
{
    struct json key, v;
    int rc = 0;
    for (struct js_walk w = js_walk(object); rc == 0 && js_next(&w, &key, &v);)
        rc = add_parameter(r, prefix, &key, &v, e);
    return rc;
}

/* Lists the parameters; the members of an object inside get its name as a prefix. The members of the metadata
 * count as parameters, too. */
static int add_parameters(struct report *r, struct err *e)
{
    struct json root, drafting, key, v;
    struct err ignored;
    if (!is_object(&root, r->json)) {
        free(r->json);
        r->json = strdup("{}");                  /* the other figures are still worth having */
        return r->json ? 0 : no_memory(e);
    }
    for (struct js_walk w = js_walk(&root); js_next(&w, &key, &v);) {
        if (js_kind(&v) != JS_OBJECT || js_is(&key, "logit_bias")) {
            if (add_parameter(r, "", &key, &v, e))
                return -1;
            continue;
        }
        char *name = js_strdup(&key);
        int rc = name ? add_members(r, name, &v, e) : no_memory(e);
        free(name);
        if (rc)
            return -1;
    }
    if (js_get(&root, "drafting", &drafting, &ignored) == 1 && js_kind(&drafting) == JS_OBJECT) {
        r->tree_fixed = js_get(&drafting, "tree", &v, &ignored) == 1 && js_count(&v) > 0;
        r->unique |= js_get(&drafting, "verifier", &v, &ignored) == 1 && js_is(&v, "paper");
        r->undrafted = js_get(&drafting, "drafter", &v, &ignored) == 1 && js_is(&v, "none");
    }
    return is_object(&root, r->metadata) ? add_members(r, "metadata", &root, e) : 0;
}

/* ---- one report ---- */

static void report_close(struct report *r)
{
    for (size_t i = 0; i < r->n_sources; i++)
        free(r->source[i].window);
    for (size_t i = 0; i < r->n_repetitions; i++)
        free(r->repetition[i].excerpt);
    free(r->source);
    free(r->window);
    free(r->repetition);
    repeats_close(&r->repeats);
    for (size_t i = 0; i < r->n_parameters; i++) {
        free(r->parameter[i].name);
        free(r->parameter[i].value);
    }
    free(r->parameter);
    free(r->json);
    free(r->metadata);
    job_list_free(&r->row);
    round_list_free(&r->rounds);
    event_list_free(&r->events);
    retakes_free(&r->retakes);
    metric_list_free(&r->metrics);
}

static bool is_chat(const char *parameters)
{
    struct json root, chat;
    struct err ignored;
    return is_object(&root, parameters) && js_get(&root, "chat", &chat, &ignored) == 1 &&
           js_kind(&chat) != JS_NULL;
}

/* 1: read; 0: there is no such job any more; -1 */
static int read_job(struct report *r, struct stored *t, struct store *s, int64_t id, bool rounds,
                    struct err *e)
{
    struct job_input in = {0};
    struct part_list parts = {0};
    if (store_read_begin(s, e))
        return -1;
    int rc = store_jobs(s, &id, 1, &r->row, e);
    r->job = r->row.v;
    bool found = rc == 0 && r->row.n == 1;
    if (found)
        rc = store_input(s, id, &in, e) || store_metrics(s, id, &r->metrics, e) ||
             store_tokens(s, id, 0, r->job->tokens, &t->ids, &t->n, e) || store_spans(s, id, &t->spans, e) ||
             store_events(s, id, &r->events, e) || store_retakes(s, id, &r->retakes, NULL, e) ||
             store_parts(s, id, &parts, e) ||
             (rounds && store_rounds(s, id, &r->rounds, e)) ? -1 : 0;
    store_read_end(s);
    r->unique = parts.n > 0;
    part_list_free(&parts);
    sha256_of(r->prompt, in.prompt_ids, in.n_prompt * sizeof *in.prompt_ids);
    r->json = in.parameters;
    r->metadata = in.metadata;
    in.parameters = in.metadata = NULL;
    if (found && is_chat(r->json)) {
        t->prompt = in.prompt_ids;
        t->n_prompt = in.n_prompt;
        in.prompt_ids = NULL;
    }
    job_input_free(&in);
    return rc ? -1 : found;
}

/* The figures that follow from the job's row and from its text. */
static void add_job_figures(struct report *r)
{
    struct counts *c = &r->sum;
    c->prompt = (double)r->job->prompt_tokens;
    c->generated = (double)r->tokens;
    c->given = (double)r->given;
    c->wanted = (double)r->job->wanted;
    c->resumes = (double)r->job->resumes;
    c->repetitions = (double)r->n_repetitions;
    if (ran_alone(c) && c->drafted > 0 && !r->tree_fixed && c->plain > 0 && c->seconds > 0)
        c->estimate = c->plain / c->seconds;
}

/* The report of a job; as read_job. */
static int read_report(struct report *r, struct store *s, int64_t id, const struct report_options *o,
                       struct text_reader *h, struct err *e)
{
    struct stored t = {0};
    *r = (struct report){ .sum = no_counts() };
    int rc = read_job(r, &t, s, id, o->rounds, e);
    if (rc == 1 && (add_parameters(r, e) || add_counters(r, e) ||
                    add_text_figures(r, &t, s, h, e)))
        rc = -1;
    if (rc == 1)
        add_job_figures(r);
    span_list_free(&t.spans);
    free(t.ids);
    free(t.prompt);
    return rc;
}

/* ---- several reports ---- */

int reports_open(struct reports *l, const struct report_from *from, size_t n, const struct report_options *o,
                 struct err *e)
{
    struct text_reader h = {0};
    size_t jobs = 0;
    for (size_t i = 0; i < n; i++)
        jobs += from[i].n;
    *l = (struct reports){ .o = *o, .equal_lengths = true, .v = calloc(jobs + 1, sizeof *l->v) };
    int rc = l->v ? 0 : no_memory(e);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < from[i].n && rc >= 0; k++) {
            struct report *r = &l->v[l->n];
            rc = read_report(r, from[i].store, from[i].ids[k], o, &h, e);
            r->db = n > 1 ? store_path(from[i].store) : NULL;
            if (rc == 0)
                report_close(r);
            l->n += rc != 0;
            l->equal_lengths &= rc != 1 || r->tokens == l->v[0].tokens;
        }
    text_reader_close(&h);
    if (rc >= 0)
        rc = reports_find_speedups(l, e) || (o->by && reports_group(l, e)) ? -1 : 0;
    if (rc == 0)
        reports_find_differences(l);
    if (rc)
        reports_close(l);
    return rc;
}

void reports_close(struct reports *l)
{
    for (size_t i = 0; i < l->n; i++)
        report_close(&l->v[i]);
    free(l->group);
    free(l->order);
    free(l->value);
    free(l->by_text);
    free(l->v);
    *l = (struct reports){0};
}
