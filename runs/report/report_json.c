/* report --json and --csv. Start at report_json and report_csv. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/csv.h"
#include "runs/report/report.h"
#include "src/base/json_write.h"

/* ---- JSON ---- */

/* Reals have 10 digits, more than the clock gives; counts are whole numbers. */
enum { DIGITS = 10 };

static void count(struct json_writer *w, const char *key, double x) { jw_int(w, key, llround(x)); }

struct figure { const char *name; double x; enum { REAL, COUNT } kind; };

static void put_figures(struct json_writer *w, const struct figure *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (v[i].kind == COUNT ? count : jw_real)(w, v[i].name, v[i].x);
}

static void put_object(struct json_writer *w, const char *key, const struct figure *v, size_t n)
{
    jw_open(w, key, '{');
    put_figures(w, v, n);
    jw_close(w, '}');
}

#define LENGTH(v) (sizeof(v) / sizeof *(v))

static void put_counts(struct json_writer *w, const char *key, const double *v, size_t from)
{
    size_t n = REPORT_DEPTHS;
    while (n > from && v[n - 1] == 0)
        n--;
    jw_open(w, key, '[');
    for (size_t i = from; i < n; i++)
        count(w, NULL, v[i]);
    jw_close(w, ']');
}

static void put_distinct(struct json_writer *w, const char *key, const double v[DISTINCT_MAX])
{
    static const char *const names[DISTINCT_MAX] = { "1", "2", "3", "4" };
    jw_open(w, key, '{');
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        jw_real(w, names[k], v[k]);
    jw_close(w, '}');
}

static void put_sources(struct json_writer *w, const struct report *r)
{
    jw_open(w, "sources", '{');
    for (size_t i = 0; i < r->n_sources; i++) {
        const struct figure v[] = { { "drafted", r->source[i].drafted, COUNT },
                                    { "accepted", r->source[i].accepted, COUNT } };
        put_object(w, r->source[i].name, v, LENGTH(v));
    }
    jw_close(w, '}');
}

static void put_window(struct json_writer *w, const struct report *r, size_t i)
{
    const struct report_window *x = &r->window[i];
    const struct figure v[] = {
        { "start", (double)x->start, COUNT }, { "tokens", (double)x->n, COUNT },
        { "seconds", x->sum.seconds }, { "tokens_per_second", report_speed(&x->sum) },
        { "mean_acceptance_length", report_acceptance(&x->sum) },
        { "alpha", report_alpha(&x->sum) }, { "beta", report_beta(r, &x->sum) },
    };
    jw_open(w, NULL, '{');
    put_figures(w, v, LENGTH(v));
    put_distinct(w, "distinct", x->distinct);
    put_distinct(w, "distinct_so_far", x->so_far);
    jw_open(w, "sources", '{');
    for (size_t k = 0; k < r->n_sources; k++) {
        const double n = r->source[k].window[i];
        const struct figure of[] = { { "accepted", n, COUNT },
                                     { "share", x->sum.tokens > 0 ? n / x->sum.tokens : NAN } };
        put_object(w, r->source[k].name, of, LENGTH(of));
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

void report_put_events(struct json_writer *w, const struct event_list *events)
{
    jw_open(w, "events", '[');
    for (size_t i = 0; i < events->n; i++) {
        const struct event *v = &events->v[i];
        jw_open(w, NULL, '{');
        jw_real(w, "at", v->at);
        jw_int(w, "attempt", v->attempt);
        jw_text(w, "kind", v->kind);
        jw_text(w, "text", v->text);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void put_identity(struct json_writer *w, const struct report *r)
{
    const struct job *j = r->job;
    jw_int(w, "job", j->id);
    jw_text(w, "name", j->batch);
    jw_text(w, "custom_id", j->custom_id);
    if (r->db)
        jw_text(w, "db", r->db);
    jw_text(w, "state", job_state_name(j->state));
    jw_text(w, "finish_reason", j->finish_reason);
    jw_text(w, "stop_reason", j->stop_reason);
    jw_text(w, "error", j->error);
    jw_text(w, "model", j->model);
    jw_uint(w, "seed", j->seed);
    jw_uint(w, "sample", j->sample);
    jw_parsed(w, "parameters", r->json);
    jw_text(w, "numerics", j->numerics);
    jw_text(w, "fingerprint", j->fingerprint);
    jw_uint(w, "prompt_tokens", j->prompt_tokens);
    jw_uint(w, "tokens", r->tokens);
    jw_uint(w, "given_tokens", r->given);
    jw_uint(w, "wanted_tokens", j->wanted);
}

static void put_drafting(struct json_writer *w, const struct report *r)
{
    const struct report_sum *s = &r->sum;
    const struct figure speed[] = {
        { "seconds", s->seconds }, { "prefill_seconds", s->prefill_seconds },
        { "prefill_tokens", s->prefill_tokens, COUNT }, { "tokens_per_second", report_speed(s) },
        { "worker_tokens_per_second", report_worker_speed(s) }, { "speedup", r->speedup },
        { "speedup_estimate", r->estimate },
    }, rounds[] = {
        { "rounds", s->rounds, COUNT }, { "mean_acceptance_length", report_acceptance(s) },
        { "alpha", report_alpha(s) }, { "beta", report_beta(r, s) }, { "drafted", s->drafted, COUNT },
        { "verified_rows", s->rows, COUNT }, { "accepted", s->accepted, COUNT },
        { "draft_passes", s->draft_passes, COUNT },
    };
    put_figures(w, speed, LENGTH(speed));
    jw_number(w, "plain_job", isnan(r->speedup) ? NAN : (double)r->plain);
    jw_bool(w, "ran_alone", report_ran_alone(r));
    put_figures(w, rounds, LENGTH(rounds));
    put_counts(w, "rounds_by_jobs", r->with, 1);
    put_counts(w, "reached_per_depth", r->reached, 1);
    put_counts(w, "accepted_per_depth", r->accepted_at, 1);
    put_counts(w, "acceptance_histogram", r->histogram, 1);
    put_sources(w, r);
}

static void put_times(struct json_writer *w, const struct report *r)
{
    const struct report_sum *s = &r->sum;
    const double other = s->seconds - s->draft - s->verify - s->control;
    const struct figure time[] = {
        { "draft", s->draft }, { "verify", s->verify }, { "checkpoint", s->put },
        { "controller", s->control }, { "other", other > 0 ? other : 0 },
    }, checkpoints[] = {
        { "commits", s->commits, COUNT }, { "seconds", s->commit_seconds }, { "cpu_seconds", s->commit_cpu },
        { "put_seconds", s->put }, { "share", report_checkpoint_share(r) },
    }, round[] = {
        { "predicted", report_round_predicted(s) }, { "measured", report_round_measured(s) },
        { "rounds", s->predicted_rounds, COUNT },
    }, snapshots[] = {
        { "made", s->snapshots, COUNT }, { "bytes", s->snapshot_bytes, COUNT },
        { "seconds", s->snapshot_seconds }, { "cpu_seconds", s->snapshot_cpu },
        { "put_seconds", s->snapshot_put }, { "share", report_snapshot_share(r) },
        { "restored_tokens", s->restored, COUNT }, { "restore_seconds", s->restore_seconds },
        { "saved_seconds", s->saved },
    };
    put_object(w, "time", time, LENGTH(time));
    put_object(w, "seconds_per_round", round, LENGTH(round));
    put_object(w, "checkpoints", checkpoints, LENGTH(checkpoints));
    put_object(w, "snapshots", snapshots, LENGTH(snapshots));
    count(w, "refreshes", s->refreshes);
    jw_uint(w, "resumes", r->job->resumes);
}

static void put_text(struct json_writer *w, const struct report *r)
{
    jw_open(w, "distinct", '{');
    put_distinct(w, "tokens", r->distinct);
    if (r->has_words)
        put_distinct(w, "words", r->words);
    else
        jw_null(w, "words");
    jw_close(w, '}');
    jw_number(w, "words", r->has_words ? (double)r->n_words : NAN);
    if (!r->has_words && r->no_text)
        jw_text(w, "words_unknown", r->no_text);
    put_repetitions(w, r);
}

static void put_report(struct json_writer *w, const struct report *r, bool rounds)
{
    jw_open(w, NULL, '{');
    put_identity(w, r);
    put_drafting(w, r);
    put_times(w, r);
    put_text(w, r);
    jw_open(w, "windows", '[');
    for (size_t i = 0; i < r->n_windows; i++)
        if (r->window[i].n)
            put_window(w, r, i);
    jw_close(w, ']');
    report_put_events(w, &r->events);
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
        for (size_t k = 0; k < FIGURES; k++) {
            jw_open(w, report_figure_names[k], '{');
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

/* The numbers of one job or, for the first line, their names. */
static void csv_numbers(FILE *f, const struct report *r, bool names)
{
    const struct job *j = r->job;
    const struct report_sum *s = &r->sum;
    const struct figure v[] = {
        { "prompt_tokens", (double)j->prompt_tokens }, { "tokens", (double)r->tokens },
        { "given_tokens", (double)r->given }, { "wanted_tokens", (double)j->wanted },
        { "seconds", s->seconds }, { "prefill_seconds", s->prefill_seconds },
        { "tokens_per_second", report_speed(s) }, { "worker_tokens_per_second", report_worker_speed(s) },
        { "share_alone", report_with(r, 1) }, { "speedup", r->speedup },
        { "speedup_estimate", r->estimate }, { "rounds", s->rounds },
        { "mean_acceptance_length", report_acceptance(s) }, { "alpha", report_alpha(s) },
        { "beta", report_beta(r, s) }, { "drafted", s->drafted }, { "verified_rows", s->rows },
        { "accepted", s->accepted }, { "draft_seconds", s->draft }, { "verify_seconds", s->verify },
        { "controller_seconds", s->control },
        { "round_seconds_predicted", report_round_predicted(s) },
        { "round_seconds_measured", report_round_measured(s) }, { "checkpoint_seconds", s->put },
        { "checkpoints", s->commits }, { "checkpoint_share", report_checkpoint_share(r) },
        { "snapshots", s->snapshots }, { "snapshot_share", report_snapshot_share(r) },
        { "restored_tokens", s->restored }, { "restore_saved_seconds", s->saved },
        { "refreshes", s->refreshes }, { "resumes", (double)j->resumes },
        { "distinct_1", r->distinct[0] }, { "distinct_2", r->distinct[1] },
        { "distinct_3", r->distinct[2] }, { "distinct_4", r->distinct[3] },
        { "word_distinct_1", r->words[0] }, { "word_distinct_2", r->words[1] },
        { "word_distinct_3", r->words[2] }, { "word_distinct_4", r->words[3] },
        { "repetitions", (double)r->n_repetitions },
    };
    for (size_t i = 0; i < LENGTH(v); i++)
        if (names)
            fprintf(f, ",%s", v[i].name);
        else
            number(f, v[i].x);
}

static void csv_job(FILE *f, const struct report *r, const struct columns *c)
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
    csv_numbers(f, r, false);
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
    fputs("n,estimated_speedups", f);
    for (size_t k = 0; k < FIGURES; k++)
        fprintf(f, ",%s n,%s mean,%s sd", report_figure_names[k], report_figure_names[k],
                report_figure_names[k]);
    fputs("\r\n", f);
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        for (size_t k = 0; k < l->n_by; k++) {
            value_cell(f, &g->value[k]);
            fputc(',', f);
        }
        fprintf(f, "%zu,%zu", g->n, g->estimated);
        for (size_t k = 0; k < FIGURES; k++) {
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
    const double v[] = {
        (double)x->start, (double)x->n, x->sum.seconds, report_speed(&x->sum), report_acceptance(&x->sum),
        report_alpha(&x->sum), report_beta(r, &x->sum), x->distinct[0], x->distinct[1], x->distinct[2],
        x->distinct[3], x->so_far[0], x->so_far[1], x->so_far[2], x->so_far[3],
    };
    fprintf(f, "%" PRId64 ",", r->job->id);
    cell(f, r->job->batch);
    fputc(',', f);
    cell(f, r->job->custom_id);
    fprintf(f, ",%" PRIu32, r->job->sample);
    for (size_t k = 0; k < l->n_by; k++) {
        fputc(',', f);
        value_cell(f, &l->value[job * l->n_by + k]);
    }
    for (size_t k = 0; k < LENGTH(v); k++)
        number(f, v[k]);
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
    fputs(",start,tokens,seconds,tokens_per_second,mean_acceptance_length,alpha,beta", f);
    for (int k = 1; k <= DISTINCT_MAX; k++)
        fprintf(f, ",distinct_%d", k);
    for (int k = 1; k <= DISTINCT_MAX; k++)
        fprintf(f, ",distinct_%d_so_far", k);
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
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = add_columns(&c, &l->v[i]);
    fputs("job,name,custom_id,state,finish_reason,stop_reason,error,model,numerics,seed,sample", f);
    csv_numbers(f, &(struct report){ .job = &(struct job){ 0 } }, true);
    for (size_t i = 0; i < c.n; i++) {
        fputc(',', f);
        cell(f, c.name[i]);
    }
    fputs(l->n && l->v[0].db ? ",db\r\n" : "\r\n", f);
    for (size_t i = 0; i < l->n; i++)
        csv_job(f, &l->v[i], &c);
    free(c.name);
    return rc ? err_set(e, ERR_FAILED, "out of memory for the report") : 0;
}
