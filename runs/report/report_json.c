/* report --json and --csv. Start at report_json and report_csv. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/csv.h"
#include "runs/report/report.h"
#include "src/request/options.h"

#define LENGTH(v) (sizeof(v) / sizeof *(v))

/* ---- JSON ---- */

/* Reals have 10 digits, more than the clock gives; counts are whole numbers. */
enum { DIGITS = 10 };

static void put_distinct(struct json_writer *w, const char *key, const struct counts *c, const char *from,
                         const char *to)
{
    jw_open(w, key, '{');
    figures_json(w, c, from, to, 0);
    jw_close(w, '}');
}

static void begin_window(struct json_writer *w, const struct report_window *x, unsigned where)
{
    jw_open(w, NULL, '{');
    sheet_members(w, (struct row[]){ { "start", NULL, V_UINT(x->start) }, { "tokens", NULL, V_UINT(x->n) },
                                     { "partial", NULL, V_BOOL(x->partial) }, { 0 } });
    figures_json(w, &x->sum, "seconds", "beta", where);
}

struct in_window { const struct report *r; size_t i; };

static void window_source(const void *of, size_t k, struct row *cell)
{
    const struct in_window *x = of;
    const double n = x->r->source[k].window[x->i], tokens = x->r->window[x->i].sum.tokens;
    cell[0] = (struct row){ NULL, "", V_TEXT(x->r->source[k].name) };
    cell[1] = (struct row){ "accepted", NULL, V_INT(llround(n)) };
    cell[2] = (struct row){ "share", NULL, V_REAL(tokens > 0 ? n / tokens : NAN) };
}

static void put_window(struct json_writer *w, const struct report *r, size_t i)
{
    const struct report_window *x = &r->window[i];
    begin_window(w, x, IN_WINDOWS);
    put_distinct(w, "distinct", &x->sum, "distinct_1", "distinct_4");
    put_distinct(w, "distinct_so_far", &x->sum, "distinct_1_so_far", "distinct_4_so_far");
    figures_json(w, &x->sum, "repeats", "repeats", IN_WINDOWS);
    const struct in_window in = { r, i };
    sheet_table(w, "sources", (struct table){ r->n_sources, window_source, &in, .named = true });
    jw_close(w, '}');
}

static void put_identity(struct json_writer *w, const struct report *r)
{
    const struct job *j = r->job;
    sheet_members(w, (struct row[]){
        { "job", NULL, V_INT(j->id) },
        { "name", NULL, V_TEXT(j->batch) },
        { "custom_id", NULL, V_TEXT(j->custom_id) },
        { "db", NULL, V_TEXT(r->db), .unless = !r->db },
        { "state", NULL, V_TEXT(job_state_name(j->state)) },
        { "finish_reason", NULL, V_TEXT(j->finish_reason) },
        { "stop_reason", NULL, V_TEXT(j->stop_reason) },
        { "error", NULL, V_TEXT(j->error) },
        { "model", NULL, V_TEXT(j->model) },
        { "seed", NULL, V_WIDE(j->seed) },
        { "sample", NULL, V_UINT(j->sample) },
        { "parameters", NULL, V_JSON(r->json) },
        { "numerics", NULL, V_TEXT(j->numerics) },
        { "fingerprint", NULL, V_TEXT(j->fingerprint) },
        { 0 } });
    figures_json(w, &r->sum, "prompt_tokens", "cut_tokens", 0);
}

void report_put_stats(struct json_writer *w, const struct draft_stats *s, size_t tokens,
                      double prefill_seconds, bool tree_fixed)
{
    struct report_source source[N_DRAFTERS];
    struct report r = { .sum.prefill_seconds = prefill_seconds, .source = source };
    figures_add_stats(&r.sum, r.list, s);
    figures_complete(&r.sum, r.list, tree_fixed);
    r.sum.cut = r.sum.tokens - (double)tokens;
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (s->source_drafted[i])
            source[r.n_sources++] = (struct report_source){
                drafter_name(i), (double)s->source_drafted[i], (double)s->source_accepted[i], NULL };
    figures_json(w, &r.sum, "seconds", "draft_passes", IN_STATS);
    figures_json_lists(w, r.list, LIST_REACHED);
    sheet_table(w, "sources", report_part(&r, REPORT_SOURCES));
    figures_json(w, &r.sum, "draft_seconds", "refreshes", IN_STATS);
    jw_open(w, "windows", '[');
    for (size_t i = s->from / STATS_WINDOW; i < s->n_windows && s->window[i].tokens; i++) {
        const struct window_stats *x = &s->window[i];
        begin_window(w, &(struct report_window){
                            MAX(i * STATS_WINDOW, s->from), x->tokens, x->tokens < STATS_WINDOW,
                            { .tokens = (double)x->tokens, .rounds = x->rounds, .seconds = x->seconds } },
                     IN_STATS_WINDOWS);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void put_text(struct json_writer *w, const struct report *r)
{
    jw_open(w, "distinct", '{');
    put_distinct(w, "tokens", &r->sum, "distinct_1", "distinct_4");
    if (r->has_words)
        put_distinct(w, "words", &r->sum, "word_distinct_1", "word_distinct_4");
    else
        jw_null(w, "words");
    jw_close(w, '}');
    jw_number(w, "words", r->has_words ? (double)r->n_words : NAN);
    if (!r->has_words && r->no_text)
        jw_text(w, "words_unknown", r->no_text);
    figures_json(w, &r->sum, "repeats", "repeats", 0);
    sheet_table(w, "phrases", report_part(r, REPORT_PHRASES));
    sheet_table(w, "repetition", report_part(r, REPORT_REPETITIONS));
}

static void put_report(struct json_writer *w, struct report *r, bool rounds)
{
    struct report_retakes retakes;
    char command[REPORT_COMMAND];
    jw_open(w, NULL, '{');
    put_identity(w, r);
    figures_json(w, &r->sum, "seconds", "speedup_estimate", 0);
    jw_number(w, "plain_job", r->plain ? (double)r->plain : NAN);
    jw_text(w, "baseline_command", report_baseline_command(command, r));
    figures_json(w, &r->sum, "ran_alone", "draft_passes", 0);
    figures_json(w, &r->sum, "rounds_drafted", "rounds_drafted", 0);
    figures_json_lists(w, r->list, LIST_JOBS);
    sheet_table(w, "sources", report_part(r, REPORT_SOURCES));
    figures_json(w, &r->sum, "draft_seconds", "resumes", 0);
    put_text(w, r);
    jw_open(w, "windows", '[');
    for (size_t i = 0; i < r->n_windows; i++)
        if (r->window[i].n)
            put_window(w, r, i);
    jw_close(w, ']');
    sheet_table(w, "retake_list", report_retake_table(&retakes, &r->retakes, SIZE_MAX, &r->sum));
    sheet_table(w, "events", report_event_table(&r->events));
    if (rounds)
        sheet_table(w, "round_list", report_part(r, REPORT_ROUNDS));
    jw_close(w, '}');
}

int report_json(FILE *f, const struct reports *l, struct err *e)
{
    (void)e;
    const bool list = !l->o.by && l->n != 1;
    struct json_writer w = { .f = f, .digits = DIGITS, .style = list ? JW_LIST : JW_LINE };
    struct report_groups groups;
    if (l->o.by)
        sheet_table(&w, NULL, report_group_table(&groups, l));
    if (list)
        jw_open(&w, NULL, '[');
    for (size_t i = 0; i < l->n && !l->o.by; i++)
        put_report(&w, &l->v[i], l->o.rounds);
    if (list)
        jw_close(&w, ']');
    fputc('\n', f);
    return 0;
}

/* ---- CSV ---- */

/* The names of all parameters or sources that any job has, each once. False: no memory. */
static bool add_names(struct text_list *c, const struct reports *l, bool sources)
{
    bool ok = true;
    for (size_t i = 0; i < l->n; i++) {
        const struct report *r = &l->v[i];
        for (size_t k = 0; k < (sources ? r->n_sources : r->n_parameters) && ok; k++) {
            const char *name = sources ? r->source[k].name : r->parameter[k].name;
            size_t at = 0;
            while (at < c->n && strcmp(c->v[at], name))
                at++;
            ok = at < c->n || text_list_add(c, name);
        }
    }
    return ok;
}

/* One cell; key: of the first line. */
static void put_cell(struct csv *c, const char *key, struct value v)
{
    csv_rows(c, (struct row[]){ { key, NULL, v }, { 0 } });
}

static void put_figures(struct csv *c, const struct counts *s, unsigned where)
{
    for (const struct figure *x = figures; x->name; x++)
        if (x->where & where && x->unit == UNIT_TRUTH)
            put_cell(c, x->name, (struct value)V_BOOL(figure_value(x, s) != 0));
        else if (x->where & where)
            put_cell(c, x->name, (struct value)V_REAL(figure_value(x, s)));
}

static void put_db(struct csv *c, const struct report *r)
{
    if (r->db)
        put_cell(c, "db", (struct value)V_TEXT(r->db));
    csv_end(c);
}

/* A parameter of a job, or none. Only a number is no text. */
static struct value parameter_of(const struct report *r, const char *name)
{
    struct value v = V_TEXT(NULL);
    for (size_t i = 0; i < r->n_parameters; i++) {
        const struct report_parameter *p = &r->parameter[i];
        if (strcmp(p->name, name) == 0)
            v = p->is_number ? (struct value)V_JSON(p->value) : (struct value)V_TEXT(p->value);
    }
    return v;
}

/* depths: the columns of the lists of rounds by depth, from 1. */
static void csv_job(struct csv *c, const struct report *r, const struct text_list *parameters, size_t depths)
{
    static const struct { const char *name; enum figure_list list;
    } by_depth[] = { { "reached_at", LIST_REACHED }, { "accepted_at", LIST_ACCEPTED } };
    const struct job *j = r->job;
    char command[REPORT_COMMAND];
    csv_rows(c, (struct row[]){
        { "job", NULL, V_INT(j->id) },
        { "name", NULL, V_TEXT(j->batch) },
        { "custom_id", NULL, V_TEXT(j->custom_id) },
        { "state", NULL, V_TEXT(job_state_name(j->state)) },
        { "finish_reason", NULL, V_TEXT(j->finish_reason) },
        { "stop_reason", NULL, V_TEXT(j->stop_reason) },
        { "error", NULL, V_TEXT(j->error) },
        { "model", NULL, V_TEXT(j->model) },
        { "numerics", NULL, V_TEXT(j->numerics) },
        { "seed", NULL, V_UINT(j->seed) },
        { "sample", NULL, V_UINT(j->sample) },
        { 0 } });
    put_figures(c, &r->sum, IN_CSV);
    put_cell(c, "plain_job", (struct value)V_NUMBER(r->plain ? (double)r->plain : NAN));
    put_cell(c, "baseline_command", (struct value)V_TEXT(report_baseline_command(command, r)));
    for (size_t k = 0; k < LENGTH(by_depth); k++)
        for (size_t d = 1; d < depths; d++) {
            char name[40];
            snprintf(name, sizeof name, "%s_%zu", by_depth[k].name, d);
            put_cell(c, name, (struct value)V_REAL(r->list[by_depth[k].list][d]));
        }
    for (size_t i = 0; i < parameters->n; i++)
        put_cell(c, parameters->v[i], parameter_of(r, parameters->v[i]));
    put_db(c, r);
}

/* The records of a table; job: whose number is the first cell, or NULL. */
static void csv_table(struct csv *c, struct table t, const struct job *job)
{
    for (size_t i = 0; i < t.n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        if (job)
            put_cell(c, "job", (struct value)V_INT(job->id));
        t.cells(t.ctx, i, cells);
        csv_rows(c, cells);
        csv_end(c);
    }
}

/* by: the values of --by of the job; sources: of all jobs. */
static void csv_windows(struct csv *c, const struct reports *l, const struct report *r,
                        const struct report_value *by, const struct text_list *sources)
{
    for (size_t i = 0; i < r->n_windows; i++) {
        const struct report_window *x = &r->window[i];
        if (!x->n && !c->head)
            continue;
        csv_rows(c, (struct row[]){ { "job", NULL, V_INT(r->job->id) },
                                    { "name", NULL, V_TEXT(r->job->batch) },
                                    { "custom_id", NULL, V_TEXT(r->job->custom_id) },
                                    { "sample", NULL, V_UINT(r->job->sample) }, { 0 } });
        for (size_t k = 0; k < l->n_by; k++)
            put_cell(c, l->by[k], report_value(&by[k]));
        csv_rows(c, (struct row[]){ { "start", NULL, V_UINT(x->start) }, { "tokens", NULL, V_UINT(x->n) },
                                    { "partial", NULL, V_BOOL(x->partial) }, { 0 } });
        put_figures(c, &x->sum, IN_WINDOWS);
        for (size_t k = 0; k < sources->n; k++) {
            char name[100];
            double share = NAN;
            snprintf(name, sizeof name, "share_%.90s", sources->v[k]);
            for (size_t q = 0; q < r->n_sources; q++)
                if (strcmp(r->source[q].name, sources->v[k]) == 0 && x->sum.tokens > 0)
                    share = r->source[q].window[i] / x->sum.tokens;
            put_cell(c, name, (struct value)V_REAL(share));
        }
        put_db(c, r);
    }
}

/* The first line comes from a job, a round, a window and a group of nothing. */
int report_csv(FILE *f, const struct reports *l, struct err *e)
{
    const struct report_options *o = &l->o;
    const struct report_value values[REPORT_BY_MAX] = { { 0 } };
    struct report none = { .job = &(struct job){ 0 }, .db = l->n ? l->v[0].db : NULL, .n_windows = 1,
                           .window = &(struct report_window){ 0 },
                           .rounds = { &(struct round_row){ 0 }, 1 } };
    struct reports first = *l;
    struct report_groups groups;
    struct csv c = { f, .head = true };
    struct text_list names = { 0 };
    size_t depths = 1;
    if (!add_names(&names, l, o->windows)) {
        free(names.v);
        return err_set(e, ERR_FAILED, "out of memory for the report");
    }
    for (size_t i = 0; i < l->n; i++)
        depths = MAX(depths, figure_list_end(l->v[i].list[LIST_REACHED]));
    first.group = &(struct report_group){ .value = values };
    first.n_groups = 1;
    if (o->by && !o->windows) {
        csv_table(&c, report_group_table(&groups, &first), NULL);
        csv_table(&c, report_group_table(&groups, l), NULL);
    }
    for (size_t i = 0; i <= l->n && (!o->by || o->windows); i++) {
        const struct report *r = i ? &l->v[i - 1] : &none;
        if (o->windows)
            csv_windows(&c, l, r, i && l->n_by ? l->value + (i - 1) * l->n_by : values, &names);
        else if (o->rounds)
            csv_table(&c, report_part(r, REPORT_ROUNDS), r->job);
        else
            csv_job(&c, r, &names, depths);
    }
    free(names.v);
    return 0;
}
