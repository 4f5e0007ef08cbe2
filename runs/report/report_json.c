/* report --json and --csv. Start at report_json and report_csv. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/csv.h"
#include "runs/report/report.h"

#define LENGTH(v) (sizeof(v) / sizeof *(v))

/* ---- JSON ---- */

/* Reals have 10 digits, more than the clock gives; counts are whole numbers. */
enum { DIGITS = 10 };

static void put_sources(struct json_writer *w, const struct report *r)
{
    jw_open(w, "sources", '{');
    for (size_t i = 0; i < r->n_sources; i++) {
        const struct report_source *x = &r->source[i];
        jw_open(w, x->name, '{');
        jw_int(w, "drafted", llround(x->drafted));
        jw_int(w, "accepted", llround(x->accepted));
        jw_close(w, '}');
    }
    jw_close(w, '}');
}

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
    jw_uint(w, "start", x->start);
    jw_uint(w, "tokens", x->n);
    jw_bool(w, "partial", x->partial);
    figures_json(w, &x->sum, "seconds", "beta", where);
}

static void put_window(struct json_writer *w, const struct report *r, size_t i)
{
    const struct report_window *x = &r->window[i];
    begin_window(w, x, IN_WINDOWS);
    put_distinct(w, "distinct", &x->sum, "distinct_1", "distinct_4");
    put_distinct(w, "distinct_so_far", &x->sum, "distinct_1_so_far", "distinct_4_so_far");
    figures_json(w, &x->sum, "repeats", "repeats", IN_WINDOWS);
    jw_open(w, "sources", '{');
    for (size_t k = 0; k < r->n_sources; k++) {
        const double n = r->source[k].window[i];
        jw_open(w, r->source[k].name, '{');
        jw_int(w, "accepted", llround(n));
        jw_real(w, "share", x->sum.tokens > 0 ? n / x->sum.tokens : NAN);
        jw_close(w, '}');
    }
    jw_close(w, '}');
    jw_close(w, '}');
}

static void put_repetitions(struct json_writer *w, const struct report *r)
{
    jw_open(w, "repetition", '[');
    for (size_t i = 0; i < r->n_repetitions; i++) {
        const struct report_repetition *p = &r->repetition[i];
        jw_open(w, NULL, '{');
        jw_uint(w, "start", p->at.start);
        jw_uint(w, "found", p->at.found);
        jw_uint(w, "end", p->at.end);
        jw_uint(w, "period", p->at.period);
        jw_bool(w, "to_the_end", p->open);
        jw_text(w, "excerpt", p->excerpt);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void put_rounds(struct json_writer *w, const struct report *r)
{
    jw_open(w, "round_list", '[');
    for (size_t i = 0; i < r->rounds.n; i++) {
        const struct round_row *q = &r->rounds.v[i];
        jw_open(w, NULL, '{');
        jw_uint(w, "start", q->start);
        jw_uint(w, "tokens", q->tokens);
        jw_text(w, "sources", q->sources);
        jw_uint(w, "depth", q->depth);
        jw_uint(w, "drafted", q->drafted);
        jw_uint(w, "rows", q->rows);
        jw_uint(w, "accepted", q->accepted);
        jw_real(w, "draft_seconds", (double)q->draft_seconds);
        jw_real(w, "verify_seconds", (double)q->verify_seconds);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

void report_put_names(struct json_writer *w, const struct job *j)
{
    jw_int(w, "job", j->id);
    jw_text(w, "name", j->batch);
    jw_text(w, "custom_id", j->custom_id);
}

void report_put_end(struct json_writer *w, const struct job *j)
{
    jw_text(w, "finish_reason", j->finish_reason);
    jw_text(w, "stop_reason", j->stop_reason);
    jw_text(w, "error", j->error);
}

static void event_row(const void *of, size_t i, struct row *cell)
{
    const struct event *v = &((const struct event_list *)of)->v[i];
    const bool said = v->text && *v->text;
    cell[0] = (struct row){ "at", "", V_REAL(v->at), "@T" };
    cell[1] = (struct row){ "attempt", NULL, V_INT(v->attempt) };
    cell[2] = (struct row){ "kind", "", V_TEXT(v->kind), said ? "@:" : "@" };
    cell[3] = (struct row){ "text", said ? "" : NULL, V_TEXT(v->text) };
}

struct table report_event_table(const struct event_list *events)
{
    return (struct table){ events->n, event_row, events };
}

static void retake_row(const void *of, size_t i, struct row *cell)
{
    const struct retake *x = &((const struct retakes *)of)->v[i];
    cell[0] = (struct row){ "at", NULL, V_UINT(x->at) };
    cell[1] = (struct row){ "token", NULL, V_INT(x->token) };
    cell[2] = (struct row){ "length", NULL, V_UINT(x->length) };
    cell[3] = (struct row){ "since", NULL, V_UINT(x->since) };
    cell[4] = (struct row){ "reason", NULL, V_TEXT(*x->phrase ? "phrase" : "loop") };
    cell[5] = (struct row){ "phrase", NULL, V_TEXT(*x->phrase ? x->phrase : NULL) };
}

struct table report_retake_table(const struct retakes *l) { return (struct table){ l->n, retake_row, l }; }

static void put_identity(struct json_writer *w, const struct report *r)
{
    const struct job *j = r->job;
    report_put_names(w, j);
    if (r->db)
        jw_text(w, "db", r->db);
    jw_text(w, "state", job_state_name(j->state));
    report_put_end(w, j);
    jw_text(w, "model", j->model);
    jw_uint(w, "seed", j->seed);
    jw_uint(w, "sample", j->sample);
    jw_parsed(w, "parameters", r->json);
    jw_text(w, "numerics", j->numerics);
    jw_text(w, "fingerprint", j->fingerprint);
    figures_json(w, &r->sum, "prompt_tokens", "cut_tokens", 0);
}

static void put_drafting(struct json_writer *w, struct report *r)
{
    figures_json(w, &r->sum, "seconds", "speedup_estimate", 0);
    jw_number(w, "plain_job", isnan(r->sum.speedup) ? NAN : (double)r->plain);
    figures_json(w, &r->sum, "ran_alone", "draft_passes", 0);
    figures_json_lists(w, r->list, LIST_JOBS);
    put_sources(w, r);
    figures_json(w, &r->sum, "draft_seconds", "resumes", 0);
}

void report_put_stats(struct json_writer *w, const struct draft_stats *s, double prefill_seconds,
                      bool tree_fixed)
{
    struct report_source drafters[N_DRAFTERS];
    struct report r = { .sum.prefill_seconds = prefill_seconds, .source = drafters };
    figures_add_stats(&r.sum, r.list, s);
    figures_complete(&r.sum, r.list, tree_fixed);
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (s->source_drafted[i])
            drafters[r.n_sources++] = (struct report_source){
                drafter_name(i), (double)s->source_drafted[i], (double)s->source_accepted[i], NULL };
    figures_json(w, &r.sum, "seconds", "draft_passes", IN_STATS);
    figures_json_lists(w, r.list, LIST_REACHED);
    put_sources(w, &r);
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
    jw_open(w, "phrases", '[');
    for (size_t i = 0; i < r->repeats.n_phrases; i++) {
        jw_open(w, NULL, '{');
        jw_text(w, "text", r->repeats.phrase[i].text);
        jw_uint(w, "count", r->repeats.phrase[i].count);
        jw_close(w, '}');
    }
    jw_close(w, ']');
    put_repetitions(w, r);
}

static void put_report(struct json_writer *w, struct report *r, bool rounds)
{
    jw_open(w, NULL, '{');
    put_identity(w, r);
    put_drafting(w, r);
    put_text(w, r);
    jw_open(w, "windows", '[');
    for (size_t i = 0; i < r->n_windows; i++)
        if (r->window[i].n)
            put_window(w, r, i);
    jw_close(w, ']');
    const struct table retakes = report_retake_table(&r->retakes), events = report_event_table(&r->events);
    sheet_members(w, (struct row[]){ { "retake_list", NULL, V_TABLE(&retakes) },
                                     { "events", NULL, V_TABLE(&events) },
                                     { 0 } });
    if (rounds)
        put_rounds(w, r);
    jw_close(w, '}');
}

/* Numbers are numbers. */
static void put_value(struct json_writer *w, const char *name, const struct report_value *v)
{
    const char *s = report_value_text(v);
    if (!*s && !v->text)
        jw_null(w, name);
    else if (v->is_text)
        jw_text(w, name, s);
    else
        jw_parsed(w, name, s);
}

static void put_groups(struct json_writer *w, const struct reports *l)
{
    jw_open(w, NULL, '[');
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        jw_open(w, NULL, '{');
        for (size_t k = 0; k < l->n_by; k++)
            put_value(w, l->by[k], &g->value[k]);
        jw_uint(w, "n", g->n);
        jw_uint(w, "estimated_speedups", g->estimated);
        jw_uint(w, "shared_speeds", g->shared);
        for (size_t k = 0; k < GROUP_FIGURES; k++) {
            jw_open(w, report_group_columns[k].head, '{');
            jw_uint(w, "n", g->figure[k].n);
            jw_real(w, "mean", g->figure[k].mean);
            jw_real(w, "sd", g->figure[k].sd);
            jw_close(w, '}');
        }
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

int report_json(FILE *f, const struct reports *l, struct err *e)
{
    (void)e;
    const bool list = !l->o.by && l->n != 1;
    struct json_writer w = { .f = f, .digits = DIGITS, .style = list ? JW_LIST : JW_LINE };
    if (l->o.by)
        put_groups(&w, l);
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

static void cell(FILE *f, const char *s)
{
    csv_cell(f, s ? s : "", s ? strlen(s) : 0);
}

static void number(FILE *f, double x)
{
    fputc(',', f);
    if (isfinite(x))
        fprintf(f, "%.10g", x);
}

/* The names of all parameters that any job has. */
struct columns { const char **name; size_t n; };

static int add_column(struct columns *c, const char *name)
{
    size_t k = 0;
    while (k < c->n && strcmp(c->name[k], name))
        k++;
    if (k < c->n)
        return 0;
    void *p = realloc(c->name, (c->n + 1) * sizeof *c->name);
    if (!p)
        return -1;
    c->name = p;
    c->name[c->n++] = name;
    return 0;
}

static int add_columns(struct columns *c, const struct report *r)
{
    for (size_t i = 0; i < r->n_parameters; i++)
        if (add_column(c, r->parameter[i].name))
            return -1;
    return 0;
}

static void parameter_cell(FILE *f, const struct report *r, const char *name)
{
    for (size_t i = 0; i < r->n_parameters; i++) {
        const struct report_parameter *p = &r->parameter[i];
        if (strcmp(p->name, name))
            continue;
        if (p->is_number)
            fputs(p->value, f);          /* not through cell: -1 is no formula */
        else
            cell(f, p->value);
    }
}

/* A value of a figure as a cell. */
static void figure_cell(FILE *f, const struct figure *x, const struct counts *c)
{
    const double value = figure_value(x, c);
    if (x->unit == UNIT_TRUTH)
        fprintf(f, ",%s", value != 0 ? "true" : "false");
    else
        number(f, value);
}

/* Depth 1 to `depths` of the lists of rounds by depth. */
static const struct { const char *name; enum figure_list list; } by_depth[] = {
    { "reached_at", LIST_REACHED }, { "accepted_at", LIST_ACCEPTED },
};

/* The numbers of one job or, with r NULL, their names. */
static void csv_numbers(FILE *f, const struct report *r, size_t depths)
{
    for (const struct figure *x = figures; x->name; x++)
        if (x->where & IN_CSV && r)
            figure_cell(f, x, &r->sum);
        else if (x->where & IN_CSV)
            fprintf(f, ",%s", x->name);
    for (size_t k = 0; k < LENGTH(by_depth); k++)
        for (size_t d = 1; d < depths; d++)
            if (r)
                number(f, r->list[by_depth[k].list][d]);
            else
                fprintf(f, ",%s_%zu", by_depth[k].name, d);
}

static void csv_job(FILE *f, const struct report *r, const struct columns *c, size_t depths)
{
    const struct job *j = r->job;
    fprintf(f, "%" PRId64 ",", j->id);
    const char *const texts[] = { j->batch, j->custom_id, job_state_name(j->state), j->finish_reason,
                                  j->stop_reason, j->error, j->model, j->numerics };
    for (size_t i = 0; i < LENGTH(texts); i++) {
        cell(f, texts[i]);
        fputc(',', f);
    }
    fprintf(f, "%" PRIu64 ",%" PRIu32, j->seed, j->sample);
    csv_numbers(f, r, depths);
    for (size_t i = 0; i < c->n; i++) {
        fputc(',', f);
        parameter_cell(f, r, c->name[i]);
    }
    if (r->db) {
        fputc(',', f);
        cell(f, r->db);
    }
    fputs("\r\n", f);
}

static void csv_rounds(FILE *f, const struct reports *l)
{
    fputs("job,start,tokens,sources,depth,drafted,rows,accepted,draft_seconds,verify_seconds\r\n", f);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < l->v[i].rounds.n; k++) {
            const struct round_row *q = &l->v[i].rounds.v[k];
            fprintf(f, "%" PRId64 ",%zu,%zu,", l->v[i].job->id, q->start, q->tokens);
            cell(f, q->sources);
            fprintf(f, ",%u,%u,%u,%u,%.6g,%.6g\r\n", q->depth, q->drafted, q->rows, q->accepted,
                    (double)q->draft_seconds, (double)q->verify_seconds);
        }
}

static void value_cell(FILE *f, const struct report_value *v)
{
    if (v->is_text)
        cell(f, report_value_text(v));
    else
        fputs(report_value_text(v), f);          /* not through cell: -1 is no formula */
}

static void csv_groups(FILE *f, const struct reports *l)
{
    for (size_t k = 0; k < l->n_by; k++) {
        cell(f, l->by[k]);
        fputc(',', f);
    }
    fputs("n,estimated_speedups,shared_speeds", f);
    for (size_t k = 0; k < GROUP_FIGURES; k++) {
        const char *name = report_group_columns[k].head;
        fprintf(f, ",%s n,%s mean,%s sd", name, name, name);
    }
    fputs("\r\n", f);
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        for (size_t k = 0; k < l->n_by; k++) {
            value_cell(f, &g->value[k]);
            fputc(',', f);
        }
        fprintf(f, "%zu,%zu,%zu", g->n, g->estimated, g->shared);
        for (size_t k = 0; k < GROUP_FIGURES; k++) {
            fprintf(f, ",%zu", g->figure[k].n);
            number(f, g->figure[k].mean);
            number(f, g->figure[k].sd);
        }
        fputs("\r\n", f);
    }
}

/* ---- CSV of windows ---- */

/* The names of all sources that any job has. */
static int add_sources(struct columns *c, const struct report *r)
{
    for (size_t i = 0; i < r->n_sources; i++)
        if (add_column(c, r->source[i].name))
            return -1;
    return 0;
}

static void csv_window(FILE *f, const struct reports *l, size_t job, size_t i, const struct columns *sources)
{
    const struct report *r = &l->v[job];
    const struct report_window *x = &r->window[i];
    fprintf(f, "%" PRId64 ",", r->job->id);
    cell(f, r->job->batch);
    fputc(',', f);
    cell(f, r->job->custom_id);
    fprintf(f, ",%" PRIu32, r->job->sample);
    for (size_t k = 0; k < l->n_by; k++) {
        fputc(',', f);
        value_cell(f, &l->value[job * l->n_by + k]);
    }
    fprintf(f, ",%zu,%zu,%s", x->start, x->n, x->partial ? "true" : "false");
    for (const struct figure *c = figures; c->name; c++)
        if (c->where & IN_WINDOWS)
            figure_cell(f, c, &x->sum);
    for (size_t k = 0; k < sources->n; k++) {
        double share = NAN;
        for (size_t q = 0; q < r->n_sources; q++)
            if (strcmp(r->source[q].name, sources->name[k]) == 0 && x->sum.tokens > 0)
                share = r->source[q].window[i] / x->sum.tokens;
        number(f, share);
    }
    if (r->db) {
        fputc(',', f);
        cell(f, r->db);
    }
    fputs("\r\n", f);
}

static int csv_windows(FILE *f, const struct reports *l)
{
    struct columns sources = {0};
    int rc = 0;
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = add_sources(&sources, &l->v[i]);
    fputs("job,name,custom_id,sample", f);
    for (size_t k = 0; k < l->n_by; k++) {
        fputc(',', f);
        cell(f, l->by[k]);
    }
    fputs(",start,tokens,partial", f);
    for (const struct figure *c = figures; c->name; c++)
        if (c->where & IN_WINDOWS)
            fprintf(f, ",%s", c->name);
    for (size_t k = 0; k < sources.n; k++) {
        fputs(",share_", f);
        cell(f, sources.name[k]);
    }
    fputs(l->n && l->v[0].db ? ",db\r\n" : "\r\n", f);
    for (size_t i = 0; i < l->n && rc == 0; i++)
        for (size_t k = 0; k < l->v[i].n_windows; k++)
            if (l->v[i].window[k].n)
                csv_window(f, l, i, k, &sources);
    free(sources.name);
    return rc;
}

int report_csv(FILE *f, const struct reports *l, struct err *e)
{
    struct columns c = {0};
    int rc = 0;
    if (l->o.windows)
        rc = csv_windows(f, l);
    else if (l->o.by)
        csv_groups(f, l);
    else if (l->o.rounds)
        csv_rounds(f, l);
    if (l->o.windows || l->o.by || l->o.rounds)
        return rc ? err_set(e, ERR_FAILED, "out of memory for the report") : 0;
    size_t depths = 1;
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        rc = add_columns(&c, &l->v[i]);
        depths = MAX(depths, figure_list_end(l->v[i].list[LIST_REACHED]));
    }
    fputs("job,name,custom_id,state,finish_reason,stop_reason,error,model,numerics,seed,sample", f);
    csv_numbers(f, NULL, depths);
    for (size_t i = 0; i < c.n; i++) {
        fputc(',', f);
        cell(f, c.name[i]);
    }
    fputs(l->n && l->v[0].db ? ",db\r\n" : "\r\n", f);
    for (size_t i = 0; i < l->n; i++)
        csv_job(f, &l->v[i], &c, depths);
    free(c.name);
    return rc ? err_set(e, ERR_FAILED, "out of memory for the report") : 0;
}
