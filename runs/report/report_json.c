/* report --json and --csv. Start at report_json and report_csv. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/report.h"
#include "src/base/json_write.h"

/* ---- JSON ---- */

/* Reals have 10 digits, more than the clock gives; counts are whole numbers. */
enum { DIGITS = 10 };

static void count(struct json_writer *w, const char *key, double x) { jw_int(w, key, llround(x)); }

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
        jw_open(w, r->source[i].name, '{');
        count(w, "drafted", r->source[i].drafted);
        count(w, "accepted", r->source[i].accepted);
        jw_close(w, '}');
    }
    jw_close(w, '}');
}

static void put_window(struct json_writer *w, const struct report *r, size_t i)
{
    const struct report_window *x = &r->window[i];
    jw_open(w, NULL, '{');
    jw_uint(w, "start", x->start);
    jw_uint(w, "tokens", x->n);
    jw_real(w, "seconds", x->sum.seconds);
    jw_real(w, "tokens_per_second", report_speed(&x->sum));
    jw_real(w, "mean_acceptance_length", report_acceptance(&x->sum));
    jw_real(w, "alpha", report_alpha(&x->sum));
    jw_real(w, "beta", report_beta(r, &x->sum));
    put_distinct(w, "distinct", x->distinct);
    put_distinct(w, "distinct_so_far", x->so_far);
    jw_open(w, "sources", '{');
    for (size_t k = 0; k < r->n_sources; k++) {
        jw_open(w, r->source[k].name, '{');
        count(w, "accepted", r->source[k].window[i]);
        jw_real(w, "share", x->sum.tokens > 0 ? r->source[k].window[i] / x->sum.tokens : NAN);
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

static void put_events(struct json_writer *w, const struct report *r)
{
    jw_open(w, "events", '[');
    for (size_t i = 0; i < r->events.n; i++) {
        const struct event *v = &r->events.v[i];
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
    struct json parameters;
    struct err ignored;
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
    if (js_check(&parameters, "parameters", r->json, strlen(r->json), &ignored) == 0)
        jw_value(w, "parameters", &parameters);
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
    jw_real(w, "seconds", s->seconds);
    jw_real(w, "prefill_seconds", s->prefill_seconds);
    count(w, "prefill_tokens", s->prefill_tokens);
    jw_real(w, "tokens_per_second", report_speed(s));
    jw_real(w, "speedup", r->speedup);
    jw_real(w, "speedup_estimate", r->estimate);
    if (isnan(r->speedup))
        jw_null(w, "plain_job");
    else
        jw_int(w, "plain_job", r->plain);
    count(w, "rounds", s->rounds);
    jw_real(w, "mean_acceptance_length", report_acceptance(s));
    jw_real(w, "alpha", report_alpha(s));
    jw_real(w, "beta", report_beta(r, s));
    count(w, "drafted", s->drafted);
    count(w, "verified_rows", s->rows);
    count(w, "accepted", s->accepted);
    count(w, "draft_passes", s->draft_passes);
    put_counts(w, "reached_per_depth", r->reached, 1);
    put_counts(w, "accepted_per_depth", r->accepted_at, 1);
    put_counts(w, "acceptance_histogram", r->histogram, 1);
    put_sources(w, r);
}

static void put_times(struct json_writer *w, const struct report *r)
{
    const struct report_sum *s = &r->sum;
    const double other = s->seconds - s->draft - s->verify - s->control;
    jw_open(w, "time", '{');
    jw_real(w, "draft", s->draft);
    jw_real(w, "verify", s->verify);
    jw_real(w, "checkpoint", s->put);
    jw_real(w, "controller", s->control);
    jw_real(w, "other", other > 0 ? other : 0);
    jw_close(w, '}');
    jw_open(w, "checkpoints", '{');
    count(w, "commits", s->commits);
    jw_real(w, "seconds", s->commit_seconds);
    jw_real(w, "cpu_seconds", s->commit_cpu);
    jw_real(w, "put_seconds", s->put);
    jw_real(w, "share", report_checkpoint_share(r));
    jw_close(w, '}');
    jw_open(w, "snapshots", '{');
    count(w, "made", s->snapshots);
    count(w, "bytes", s->snapshot_bytes);
    jw_real(w, "seconds", s->snapshot_seconds);
    jw_real(w, "cpu_seconds", s->snapshot_cpu);
    jw_real(w, "put_seconds", s->snapshot_put);
    jw_real(w, "share", report_snapshot_share(r));
    count(w, "restored_tokens", s->restored);
    jw_real(w, "restore_seconds", s->restore_seconds);
    jw_real(w, "saved_seconds", s->saved);
    jw_close(w, '}');
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
    if (r->has_words)
        jw_uint(w, "words", r->n_words);
    else
        jw_null(w, "words");
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
    put_events(w, r);
    if (rounds)
        put_rounds(w, r);
    jw_close(w, '}');
}

static void put_groups(struct json_writer *w, const struct reports *l)
{
    jw_open(w, NULL, '[');
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        jw_open(w, NULL, '{');
        jw_text(w, l->o.by, g->value);
        jw_uint(w, "n", g->n);
        for (size_t k = 0; k < FIGURES; k++) {
            jw_open(w, report_figure_names[k], '{');
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
    if (l->o.by) {
        put_groups(&(struct json_writer){ .f = f, .digits = DIGITS }, l);
        fputc('\n', f);
        return 0;
    }
    if (l->n != 1)
        fputc('[', f);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            fputs(",\n ", f);
        put_report(&(struct json_writer){ .f = f, .digits = DIGITS }, &l->v[i], l->o.rounds);
    }
    fputs(l->n != 1 ? "]\n" : "\n", f);
    return 0;
}

/* ---- CSV ---- */

/* A cell with a text from outside: quoted where needed; an apostrophe stands before what a spreadsheet
 * would compute. */
static void cell(FILE *f, const char *s)
{
    bool formula = s && *s && strchr("=+-@\t\r", *s);
    if (!s || !*s)
        return;
    if (!formula && !strpbrk(s, ",\"\r\n;'")) {
        fputs(s, f);
        return;
    }
    fputs(formula ? "\"'" : "\"", f);
    for (; *s; s++)
        fputs(*s == '"' ? "\"\"" : (char[]){ *s, 0 }, f);
    fputc('"', f);
}

static void number(FILE *f, double x)
{
    fputc(',', f);
    if (isfinite(x))
        fprintf(f, "%.10g", x);
}

/* The names of all parameters that any job has. */
struct columns { const char **name; size_t n; };

static int add_columns(struct columns *c, const struct report *r)
{
    for (size_t i = 0; i < r->n_parameters; i++) {
        size_t k = 0;
        while (k < c->n && strcmp(c->name[k], r->parameter[i].name))
            k++;
        void *p = k == c->n ? realloc(c->name, (c->n + 1) * sizeof *c->name) : c->name;
        if (!p)
            return -1;
        c->name = p;
        c->name[k] = r->parameter[i].name;
        c->n = MAX(c->n, k + 1);
    }
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

static void csv_job(FILE *f, const struct report *r, const struct columns *c)
{
    const struct job *j = r->job;
    const struct report_sum *s = &r->sum;
    fprintf(f, "%" PRId64 ",", j->id);
    const char *const texts[] = { j->batch, j->custom_id, job_state_name(j->state), j->finish_reason,
                                  j->stop_reason, j->error, j->model, j->numerics };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cell(f, texts[i]);
        fputc(',', f);
    }
    fprintf(f, "%" PRIu64 ",%" PRIu32, j->seed, j->sample);
    const double numbers[] = { (double)j->prompt_tokens,
                               (double)r->tokens,
                               (double)r->given,
                               (double)j->wanted,
                               s->seconds,
                               s->prefill_seconds,
                               report_speed(s),
                               r->speedup,
                               s->rounds,
                               report_acceptance(s),
                               report_alpha(s),
                               report_beta(r, s),
                               s->drafted,
                               s->rows,
                               s->accepted,
                               s->draft,
                               s->verify,
                               s->control,
                               s->put,
                               s->commits,
                               report_checkpoint_share(r),
                               s->snapshots,
                               report_snapshot_share(r),
                               s->restored,
                               s->saved,
                               s->refreshes,
                               (double)j->resumes,
                               r->distinct[0],
                               r->distinct[1],
                               r->distinct[2],
                               r->distinct[3],
                               r->words[0],
                               r->words[1],
                               r->words[2],
                               r->words[3],
                               (double)r->n_repetitions };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        number(f, numbers[i]);
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

static void csv_groups(FILE *f, const struct reports *l)
{
    cell(f, l->o.by);
    fputs(",n", f);
    for (size_t k = 0; k < FIGURES; k++)
        fprintf(f, ",%s mean,%s sd", report_figure_names[k], report_figure_names[k]);
    fputs("\r\n", f);
    for (size_t i = 0; i < l->n_groups; i++) {
        char *end;
        strtod(l->group[i].value, &end);
        if (*end)
            cell(f, l->group[i].value);
        else
            fputs(l->group[i].value, f);
        fprintf(f, ",%zu", l->group[i].n);
        for (size_t k = 0; k < FIGURES; k++) {
            number(f, l->group[i].figure[k].mean);
            number(f, l->group[i].figure[k].sd);
        }
        fputs("\r\n", f);
    }
}

int report_csv(FILE *f, const struct reports *l, struct err *e)
{
    struct columns c = {0};
    int rc = 0;
    if (l->o.by)
        csv_groups(f, l);
    else if (l->o.rounds)
        csv_rounds(f, l);
    if (l->o.by || l->o.rounds)
        return 0;
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = add_columns(&c, &l->v[i]);
    fputs("job,name,custom_id,state,finish_reason,stop_reason,error,model,numerics,seed,sample,prompt_tokens,"
          "tokens,"
          "given_tokens,wanted_tokens,seconds,prefill_seconds,tokens_per_second,speedup,rounds,"
          "mean_acceptance_length,alpha,beta,drafted,verified_rows,accepted,draft_seconds,verify_seconds,"
          "controller_seconds,checkpoint_seconds,checkpoints,checkpoint_share,snapshots,snapshot_share,"
          "restored_tokens,restore_saved_seconds,refreshes,resumes,distinct_1,distinct_2,distinct_3,distinct_"
          "4,"
          "word_distinct_1,word_distinct_2,word_distinct_3,word_distinct_4,repetitions",
          f);
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
