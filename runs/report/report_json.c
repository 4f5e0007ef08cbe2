/* report --json and --csv. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/report.h"
#include "src/base/json_write.h"
#include "src/request/job_params.h"

/* ---- JSON ---- */

/* Numbers of a report: the shortest that says what was measured; counts are whole. */
static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }
static json_t *count(double x) { return json_integer((json_int_t)llround(x)); }
static json_t *text(const char *s) { return json_text(s); }

static json_t *list_of(const double *v, size_t from)
{
    json_t *a = json_array();
    size_t n = REPORT_DEPTHS;
    while (n > from && v[n - 1] == 0)
        n--;
    for (size_t i = from; i < n; i++)
        json_array_append_new(a, count(v[i]));
    return a;
}

static json_t *distinct_of(const double v[DISTINCT_MAX])
{
    return json_pack("{s:o, s:o, s:o, s:o}", "1", real(v[0]), "2", real(v[1]), "3", real(v[2]), "4",
                     real(v[3]));
}

static json_t *sources_of(const struct report *r)
{
    json_t *o = json_object();
    for (size_t i = 0; i < r->n_sources; i++)
        json_object_set_new(o, r->source[i].name,
                            json_pack("{s:o, s:o}", "drafted", count(r->source[i].drafted), "accepted",
                                      count(r->source[i].accepted)));
    return o;
}

static json_t *windows_of(const struct report *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_windows; i++) {
        const struct report_window *w = &r->window[i];
        json_t *sources = json_object();
        for (size_t k = 0; k < r->n_sources; k++)
            json_object_set_new(
                sources, r->source[k].name,
                json_pack("{s:o, s:o}", "accepted", count(r->source[k].window[i]), "share",
                          real(w->sum.tokens > 0 ? r->source[k].window[i] / w->sum.tokens : NAN)));
        if (w->n)
            json_array_append_new(
                a,
                json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "start", (json_int_t)w->start,
                          "tokens", (json_int_t)w->n, "seconds", real(w->sum.seconds), "tokens_per_second",
                          real(report_speed(&w->sum)), "mean_acceptance_length",
                          real(report_acceptance(&w->sum)), "alpha", real(report_alpha(&w->sum)), "beta",
                          real(report_beta(r, &w->sum)), "distinct", distinct_of(w->distinct),
                          "distinct_so_far", distinct_of(w->so_far), "sources", sources));
        else
            json_decref(sources);
    }
    return a;
}

static json_t *repetitions_of(const struct report *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_repetitions; i++) {
        const struct report_repetition *p = &r->repetition[i];
        json_array_append_new(a, json_pack("{s:I, s:I, s:I, s:I, s:b, s:o}", "start", (json_int_t)p->at.start,
                                           "found", (json_int_t)p->at.found, "end", (json_int_t)p->at.end,
                                           "period", (json_int_t)p->at.period, "to_the_end", (int)p->open,
                                           "excerpt", text(p->excerpt)));
    }
    return a;
}

static json_t *rounds_of(const struct report *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->rounds.n; i++) {
        const struct round_row *q = &r->rounds.v[i];
        json_array_append_new(a, json_pack("{s:I, s:I, s:o, s:i, s:i, s:i, s:i, s:o, s:o}", "start",
                                           (json_int_t)q->start, "tokens", (json_int_t)q->tokens, "sources",
                                           text(q->sources), "depth", (int)q->depth, "drafted",
                                           (int)q->drafted, "rows", (int)q->rows, "accepted",
                                           (int)q->accepted, "draft_seconds", real((double)q->draft_seconds),
                                           "verify_seconds", real((double)q->verify_seconds)));
    }
    return a;
}

static json_t *events_of(const struct report *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->events.n; i++)
        json_array_append_new(a, json_pack("{s:o, s:I, s:o, s:o}", "at", real(r->events.v[i].at), "attempt",
                                           (json_int_t)r->events.v[i].attempt, "kind",
                                           text(r->events.v[i].kind), "text", text(r->events.v[i].text)));
    return a;
}

static json_t *object_of(const struct report *r, bool rounds)
{
    const struct job *j = r->job;
    const struct report_sum *s = &r->sum;
    json_t *o = json_object();
    double other = s->seconds - s->draft - s->verify - s->control;
#define PUT(name, value) json_object_set_new(o, name, value)
    PUT("job", json_integer(j->id));
    PUT("name", text(j->batch));
    PUT("custom_id", text(j->custom_id));
    if (r->db)
        PUT("db", text(r->db));
    PUT("state", text(job_state_name(j->state)));
    PUT("finish_reason", text(j->finish_reason));
    PUT("stop_reason", text(j->stop_reason));
    PUT("error", text(j->error));
    PUT("model", text(j->model));
    /* beyond what JSON libraries agree on (2^63) it is still the number */
    PUT("seed", j->seed <= INT64_MAX ? json_integer((json_int_t)j->seed) : json_null());
    PUT("sample", json_integer(j->sample));
    json_object_set(o, "parameters", r->parameters);
    PUT("numerics", text(j->numerics));
    PUT("fingerprint", text(j->fingerprint));
    PUT("prompt_tokens", json_integer((json_int_t)j->prompt_tokens));
    PUT("tokens", json_integer((json_int_t)r->tokens));
    PUT("given_tokens", json_integer((json_int_t)r->given));
    PUT("wanted_tokens", json_integer((json_int_t)j->wanted));
    PUT("seconds", real(s->seconds));
    PUT("prefill_seconds", real(s->prefill_seconds));
    PUT("prefill_tokens", count(s->prefill_tokens));
    PUT("tokens_per_second", real(report_speed(s)));
    PUT("speedup", real(r->speedup));
    PUT("speedup_estimate", real(r->estimate));
    PUT("plain_job", isnan(r->speedup) ? json_null() : json_integer(r->plain));
    PUT("rounds", count(s->rounds));
    PUT("mean_acceptance_length", real(report_acceptance(s)));
    PUT("alpha", real(report_alpha(s)));
    PUT("beta", real(report_beta(r, s)));
    PUT("drafted", count(s->drafted));
    PUT("verified_rows", count(s->rows));
    PUT("accepted", count(s->accepted));
    PUT("draft_passes", count(s->draft_passes));
    PUT("reached_per_depth", list_of(r->reached, 1));
    PUT("accepted_per_depth", list_of(r->accepted_at, 1));
    PUT("acceptance_histogram", list_of(r->histogram, 1));
    PUT("sources", sources_of(r));
    PUT("time", json_pack("{s:o, s:o, s:o, s:o, s:o}", "draft", real(s->draft), "verify", real(s->verify),
                          "checkpoint", real(s->put), "controller", real(s->control), "other",
                          real(other > 0 ? other : 0)));
    PUT("checkpoints", json_pack("{s:o, s:o, s:o, s:o, s:o}", "commits", count(s->commits), "seconds",
                                 real(s->commit_seconds), "cpu_seconds", real(s->commit_cpu), "put_seconds",
                                 real(s->put), "share", real(report_checkpoint_share(r))));
    PUT("snapshots", json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "made", count(s->snapshots),
                               "bytes", count(s->snapshot_bytes), "seconds", real(s->snapshot_seconds),
                               "cpu_seconds", real(s->snapshot_cpu), "put_seconds", real(s->snapshot_put),
                               "share", real(report_snapshot_share(r)), "restored_tokens", count(s->restored),
                               "restore_seconds", real(s->restore_seconds), "saved_seconds", real(s->saved)));
    PUT("refreshes", count(s->refreshes));
    PUT("resumes", json_integer((json_int_t)j->resumes));
    PUT("distinct", json_pack("{s:o, s:o}", "tokens", distinct_of(r->distinct), "words",
                              r->has_words ? distinct_of(r->words) : json_null()));
    PUT("words", r->has_words ? json_integer((json_int_t)r->n_words) : json_null());
    if (!r->has_words && r->no_text)
        PUT("words_unknown", text(r->no_text));
    PUT("repetition", repetitions_of(r));
    PUT("windows", windows_of(r));
    PUT("events", events_of(r));
    if (rounds)
        PUT("round_list", rounds_of(r));
#undef PUT
    return o;
}

/* Jansson's integers are 64 bits with a sign: a seed of 2^63 and above is put in by hand. */
static void write_object(FILE *f, const struct report *r, bool rounds)
{
    json_t *o = object_of(r, rounds);
    char *s = o ? json_dumps(o, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10)) : NULL, *at;
    if (s && r->job->seed > INT64_MAX && (at = strstr(s, "\"seed\": null"))) {
        size_t head = (size_t)(at - s) + strlen("\"seed\": ");
        fwrite(s, 1, head, f);
        fprintf(f, "%" PRIu64 "%s", r->job->seed, s + head + strlen("null"));
    } else if (s) {
        fputs(s, f);
    }
    free(s);
    json_decref(o);
}

static void write_groups(FILE *f, const struct reports *l)
{
    json_t *a = json_array();
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        json_t *o = json_pack("{s:o, s:I}", l->o.by, text(g->value), "n", (json_int_t)g->n);
        for (size_t k = 0; k < FIGURES; k++)
            json_object_set_new(
                o, report_figure_names[k],
                json_pack("{s:o, s:o}", "mean", real(g->figure[k].mean), "sd", real(g->figure[k].sd)));
        json_array_append_new(a, o);
    }
    json_dumpf(a, f, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10));
    json_decref(a);
    fputc('\n', f);
}

int report_json(FILE *f, const struct reports *l, struct err *e)
{
    (void)e;
    if (l->o.by) {
        write_groups(f, l);
        return 0;
    }
    if (l->n != 1)
        fputc('[', f);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            fputs(",\n ", f);
        write_object(f, &l->v[i], l->o.rounds);
    }
    fputs(l->n != 1 ? "]\n" : "\n", f);
    return 0;
}

/* ---- CSV ---- */

/* A cell with text of others: quoted, and with an apostrophe in front of what a spreadsheet would compute. */
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

/* Columns of parameters: all that any of the jobs has. */
struct columns { char (*name)[160]; size_t n; bool failed; };

static void add_column(void *ctx, const char *name, const json_t *v)
{
    struct columns *c = ctx;
    (void)v;
    for (size_t i = 0; i < c->n; i++)
        if (strncmp(c->name[i], name, sizeof c->name[i] - 1) == 0)
            return;
    void *p = realloc(c->name, (c->n + 1) * sizeof *c->name);
    if (!p) {
        c->failed = true;
        return;
    }
    c->name = p;
    snprintf(c->name[c->n++], sizeof *c->name, "%s", name);
}

struct wanted_cell { FILE *f; const char *name; };

static void put_if(void *ctx, const char *name, const json_t *v)
{
    const struct wanted_cell *w = ctx;
    if (strcmp(name, w->name))
        return;
    char *s = json_is_null(v) ? NULL : report_value(v);
    if (json_is_number(v))
        fputs(s, w->f);                          /* a number: -1 is no formula */
    else
        cell(w->f, s);
    free(s);
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
    const double numbers[] = { (double)j->prompt_tokens, (double)r->tokens, (double)r->given,
                               (double)j->wanted, s->seconds, s->prefill_seconds, report_speed(s), r->speedup,
        s->rounds, report_acceptance(s), report_alpha(s), report_beta(r, s), s->drafted, s->rows, s->accepted,
            s->draft, s->verify, s->control, s->put, s->commits,
        report_checkpoint_share(r), s->snapshots, report_snapshot_share(r), s->restored, s->saved,
            s->refreshes, (double)j->resumes, r->distinct[0], r->distinct[1], r->distinct[2], r->distinct[3],
                r->words[0], r->words[1], r->words[2], r->words[3],
        (double)r->n_repetitions };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        number(f, numbers[i]);
    for (size_t i = 0; i < c->n; i++) {
        struct wanted_cell w = { f, c->name[i] };
        fputc(',', f);
        report_parameters(r, put_if, &w);
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
    if (l->o.by)
        csv_groups(f, l);
    else if (l->o.rounds)
        csv_rounds(f, l);
    if (l->o.by || l->o.rounds)
        return 0;
    for (size_t i = 0; i < l->n; i++)
        report_parameters(&l->v[i], add_column, &c);
    fputs("job,name,custom_id,state,finish_reason,stop_reason,error,model,numerics,seed,sample,prompt_tokens,tokens,given_tokens,wanted_tokens,seconds,prefill_seconds,"
          "tokens_per_second,speedup,rounds,mean_acceptance_length,alpha,beta,drafted,verified_rows,accepted,draft_seconds,verify_seconds,controller_seconds,checkpoint_seconds,"
          "checkpoints,checkpoint_share,snapshots,snapshot_share,restored_tokens,restore_saved_seconds,refreshes,resumes,distinct_1,distinct_2,distinct_3,distinct_4,word_distinct_1,word_distinct_2,word_distinct_3,word_distinct_4,repetitions", f);
    for (size_t i = 0; i < c.n; i++) {
        fputc(',', f);
        cell(f, c.name[i]);
    }
    fputs(l->n && l->v[0].db ? ",db\r\n" : "\r\n", f);
    for (size_t i = 0; i < l->n; i++)
        csv_job(f, &l->v[i], &c);
    free(c.name);
    return c.failed ? err_set(e, ERR_FAILED, "out of memory for the report") : 0;
}
