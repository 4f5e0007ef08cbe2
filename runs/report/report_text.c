/* report without a format: tables for a terminal. Start at report_table. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/report.h"
#include "src/base/output.h"

#define LENGTH(v) (sizeof(v) / sizeof *(v))

/* A text from outside as one line of at most `size` bytes. */
static const char *plain(struct err *buffer, const char *s, size_t size)
{
    terminal_text(buffer->msg, size + 1, s ? s : "");
    return buffer->msg;
}

static void duration(FILE *f, double s)
{
    if (s < 60)
        fprintf(f, "%.2f s", s);
    else if (s < 3600)
        fprintf(f, "%d min %02d s", (int)s / 60, (int)s % 60);
    else
        fprintf(f, "%d h %02d min", (int)(s / 3600), (int)s / 60 % 60);
}

static void share(FILE *f, const char *name, double part, double of)
{
    fprintf(f, "%s", name);
    duration(f, part);
    if (of > 0)
        fprintf(f, " (%.1f %%)", 100 * part / of);
}

static void value(FILE *f, int width, int digits, double x)
{
    if (isnan(x))
        fprintf(f, "%*s", width, "-");
    else
        fprintf(f, "%*.*f", width, digits, x);
}

static void four(FILE *f, const double v[DISTINCT_MAX])
{
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        value(f, 9, 4, v[k]);
    fputc('\n', f);
}

static void heads(FILE *f, const struct figure_column *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%*s", v[i].width, v[i].head);
}

static void columns(FILE *f, const struct counts *c, const struct figure_column *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        value(f, v[i].width, v[i].digits, figure(c, v[i].figure));
}

static const struct figure_column window_columns[] = {
    { "tokens_per_second", "tokens/s", 10, 1 }, { "mean_acceptance_length", "length", 9, 2 },
    { "alpha", "alpha", 8, 3 }, { "distinct_1", "distinct-1", 11, 4 }, { "distinct_4", "distinct-4", 11, 4 },
    { "repeats", "repeats", 9, 3 },
};

static void windows(FILE *f, const struct report *r)
{
    /* about twenty lines for a text of any length */
    size_t each = r->n_windows / 20 + 1;
    fprintf(f, "\n  %8s", "token");
    heads(f, window_columns, LENGTH(window_columns));
    for (size_t k = 0; k < r->n_sources; k++)
        fprintf(f, " %8.8s", r->source[k].name);
    fputc('\n', f);
    for (size_t i = 0; i < r->n_windows; i += each) {
        struct counts s = r->window[i].sum;      /* Distinct-n is that of the first window */
        size_t n = r->window[i].n;
        for (size_t k = i + 1; k < MIN(i + each, r->n_windows); k++) {
            figures_add(&s, NULL, &r->window[k].sum, NULL);
            n += r->window[k].n;
        }
        fprintf(f, "  %8zu", r->window[i].start);
        columns(f, &s, window_columns, LENGTH(window_columns));
        for (size_t k = 0; k < r->n_sources; k++) {
            double a = 0;
            for (size_t w = i; w < MIN(i + each, r->n_windows); w++)
                a += r->source[k].window[w];
            if (s.tokens > 0)
                fprintf(f, " %6.1f %%", 100 * a / s.tokens);
            else
                fprintf(f, " %8s", "-");
        }
        if (n < each * METRIC_WINDOW)
            fprintf(f, "  (only %zu %s)", n, plural(n, "token", "tokens"));
        fputc('\n', f);
    }
    fputs("  (sources: share of tokens that each drafter guessed; several drafters may guess a token)\n", f);
}

static void head(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    struct err b;
    char name[600];
    report_name(r, name, sizeof name);
    fprintf(f, "job %" PRId64 "%s%s: %s", j->id, *name ? " " : "", plain(&b, name, 120),
            job_state_name(j->state));
    fprintf(f, ", %zu of %zu %s", j->tokens, j->wanted, plural(j->wanted, "token", "tokens"));
    if (r->given)
        fprintf(f, " (%zu of them given)", r->given);
    if (j->finish_reason)
        fprintf(f, ", ended by %s", j->finish_reason);
    if (j->stop_reason)
        fprintf(f, " (%s)", plain(&b, j->stop_reason, 80));
    fputc('\n', f);
    if (j->error)
        fprintf(f, "  error       %s\n", plain(&b, j->error, 500));
    fprintf(f, "  model       %s\n", plain(&b, j->model, 200));
    fprintf(f, "  seed        %" PRIu64 ", prompt %zu %s%s%s\n", j->seed, j->prompt_tokens,
            plural(j->prompt_tokens, "token", "tokens"),
            j->numerics ? ", numerics " : "", plain(&b, j->numerics, 60));
}

/* Of a job that had company in its passes. */
static void shared(FILE *f, const struct report *r)
{
    const size_t most = figure_list_end(r->list[LIST_JOBS]) - 1;
    fputs(" (its share of the passes by rows)\n", f);
    fprintf(f, "  worker      %.1f tokens/s of all jobs meanwhile; passes",
            figure(&r->sum, "worker_tokens_per_second"));
    for (size_t i = 1; i <= most; i++)
        if (r->list[LIST_JOBS][i] > 0)
            fprintf(f, " %.1f %% with %zu %s%s", 100 * report_with(r, i), i, i > 1 ? "jobs" : "job",
                    i < most ? "," : "");
    fputs("\n  speedup     not compared: only jobs that ran alone are", f);
}

/* How often a round reached each depth of the tree, and how often a candidate was accepted there. */
static void depths(FILE *f, const struct report *r)
{
    enum { EACH = 10 };
    const double *reached = r->list[LIST_REACHED], *accepted = r->list[LIST_ACCEPTED];
    const size_t end = figure_list_end(reached);
    for (size_t from = 1; from < end; from += EACH) {
        const size_t to = MIN(from + EACH, end);
        fputs("    depth     ", f);
        for (size_t d = from; d < to; d++)
            fprintf(f, "%9zu", d);
        fputs("\n    reached   ", f);
        for (size_t d = from; d < to; d++)
            value(f, 9, 0, reached[d]);
        fputs("\n    accepted  ", f);
        for (size_t d = from; d < to; d++)
            value(f, 9, 0, accepted[d]);
        fputs("\n    share     ", f);
        for (size_t d = from; d < to; d++)
            value(f, 9, 3, reached[d] > 0 ? accepted[d] / reached[d] : NAN);
        fputc('\n', f);
    }
}

static void drafting(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    struct err b;
    fputs("  speed       ", f);
    value(f, 0, 1, figure(s, "tokens_per_second"));
    fputs(" tokens/s, ", f);
    duration(f, s->seconds);
    if (isfinite(s->speedup))
        fprintf(f, "; %.2f times job %" PRId64 ", one token at a time", s->speedup, r->plain);
    else if (isfinite(s->estimate))
        fprintf(f, "; about %.2f times one token at a time (estimated from one-row passes)",
                s->estimate);
    if (!ran_alone(s))
        shared(f, r);
    fprintf(f, "\n  drafting    %.0f rounds, acceptance length ", s->rounds);
    value(f, 0, 2, figure(s, "mean_acceptance_length"));
    fputs(", alpha ", f);
    value(f, 0, 3, figure(s, "alpha"));
    if (r->tree_fixed) {
        fputs(", beta ", f);
        value(f, 0, 3, figure(s, "beta"));
        fputs("\n              (alpha: accepted share of the depth that was drafted; beta: the part of it "
              "that one 4-gram chain covers)", f);
    }
    fprintf(f,
            "\n              %.0f candidates, %.0f rows verified, %.0f accepted, %.0f draft passes, %.0f "
            "refreshes\n",
            s->drafted, s->rows, s->accepted, s->draft_passes, s->refreshes);
    for (size_t i = 0; i < r->n_sources; i++)
        fprintf(f, "              %-8s %.0f of %.0f candidates accepted\n", plain(&b, r->source[i].name, 40),
                r->source[i].accepted, r->source[i].drafted);
    depths(f, r);
}

static void times(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    share(f, "  time        model ", s->verify, s->seconds);
    share(f, ", drafts ", s->draft, s->seconds);
    share(f, ", controller ", s->control, s->seconds);
    if (s->predicted_rounds > 0)
        fprintf(f, "\n  a round     predicted %.3f ms, measured %.3f ms (%.0f rounds)",
                1000 * figure(s, "round_seconds_predicted"), 1000 * figure(s, "round_seconds_measured"),
                s->predicted_rounds);
    fprintf(f, "\n  checkpoints %.0f", s->commits);
    share(f, ": the decode loop waited ", s->put, s->seconds);
    share(f, ", the writing thread computed ", s->commit_cpu, s->seconds);
    fprintf(f, "\n  prefill     %.0f tokens of prompt and text, ", s->prefill_tokens);
    duration(f, s->prefill_seconds);
    fprintf(f, "; resumed %zu times\n", r->job->resumes);
    if (s->snapshots > 0) {
        fprintf(f, "  snapshots   %.0f of the KV cache, %.0f MB", s->snapshots, s->snapshot_bytes / 1e6);
        share(f, ": the decode loop waited ", s->snapshot_put, s->seconds);
        share(f, ", the writing thread computed ", s->snapshot_cpu, s->seconds);
        fputc('\n', f);
    }
    if (s->restored > 0) {
        fprintf(f, "  restored    %.0f tokens from snapshots in ", s->restored);
        duration(f, s->restore_seconds);
        fputs(", which saved about ", f);
        duration(f, MAX(s->saved, 0));
        fputs(" of prefill\n", f);
    }
}

void report_retakes(FILE *f, const struct retakes *l, const struct counts *c)
{
    enum { SHOWN = 40 };
    struct err b;
    if (!l->n)
        return;
    fprintf(f, "  retakes     %.0f, which took back %.0f of %.0f tokens%s\n", c->retakes, c->cut, c->tokens,
            l->n > SHOWN ? "; the last ones (--json has all):" : "");
    for (size_t i = l->n - MIN(l->n, (size_t)SHOWN); i < l->n; i++)
        fprintf(f, "    at token %zu, not %" PRId32 ": %zu %s taken back, %s%s%s since token %zu\n",
                l->v[i].at, l->v[i].token, l->v[i].length - l->v[i].at,
                plural(l->v[i].length - l->v[i].at, "token", "tokens"),
                *l->v[i].phrase ? "the phrase '" : "a repetition", plain(&b, l->v[i].phrase, 160),
                *l->v[i].phrase ? "'" : "", l->v[i].since);
}

static void repeats(FILE *f, const struct report *r)
{
    struct err b;
    if (!r->has_words || isnan(r->sum.repeats))
        return;
    fprintf(f, "  repeats     %.1f %% of the words end %d words that stood within %d words before, too\n",
            100 * r->sum.repeats, REPEAT_GRAM, REPEAT_REACH);
    for (size_t i = 0; i < r->repeats.n_phrases; i++)
        fprintf(f, "              %zu times: %s\n", r->repeats.phrase[i].count,
                plain(&b, r->repeats.phrase[i].text, 160));
}

static void one(FILE *f, const struct report *r)
{
    struct err b;
    head(f, r);
    drafting(f, r);
    times(f, r);
    fprintf(f, "  distinct-n  %9s%9s%9s%9s\n    tokens    ", "1", "2", "3", "4");
    four(f, r->sum.distinct);
    fputs("    words     ", f);
    if (r->has_words)
        four(f, r->sum.words);
    else
        fprintf(f, "unknown: %s\n", r->no_text ? r->no_text : "no text");
    report_retakes(f, &r->retakes, &r->sum);
    if (!r->n_repetitions)
        fputs("  repetition  none found\n", f);
    for (size_t i = 0; i < r->n_repetitions; i++) {
        const struct report_repetition *p = &r->repetition[i];
        fprintf(f, "  repetition  tokens %zu to %zu%s, every %zu %s", p->at.start, p->at.end,
                p->open ? " (the end)" : "", p->at.period, plural(p->at.period, "token", "tokens"));
        if (p->excerpt)
            fprintf(f, ": %s", plain(&b, p->excerpt, 160));
        fputc('\n', f);
    }
    repeats(f, r);
    if (r->job->tokens)
        windows(f, r);
    fputs("\n  parameters\n", f);
    for (size_t i = 0; i < r->n_parameters; i++) {
        const struct report_parameter *p = &r->parameter[i];
        fprintf(f, "  %-24s ", plain(&b, p->name, 60));
        fprintf(f, "%s\n", plain(&b, p->value ? p->value : "null", 100));
    }
}

static void rounds(FILE *f, const struct report *r)
{
    struct err b;
    fprintf(f, "\n  %8s %6s %6s %8s %6s %9s %9s  %s\n", "token", "made", "depth", "drafted", "rows",
            "draft ms", "model ms", "from");
    for (size_t i = 0; i < r->rounds.n; i++) {
        const struct round_row *q = &r->rounds.v[i];
        fprintf(f, "  %8zu %6zu %6u %8u %6u %9.3f %9.3f  %s\n", q->start, q->tokens, q->depth, q->drafted,
                q->rows, 1e3 * (double)q->draft_seconds, 1e3 * (double)q->verify_seconds,
                plain(&b, q->sources, 60));
    }
    if (!r->rounds.n)
        fputs("  no rounds are stored; run and work store them with --rounds\n", f);
}

/* job_columns has the speedup between its first column and the others. */
static const struct figure_column job_columns[] = {
    { "tokens_per_second", "tokens/s", 10, 1 }, { "best_speedup", "speedup", 8, 2 },
    { "mean_acceptance_length", "length", 8, 2 }, { "alpha", "alpha", 8, 3 },
    { "distinct_1", "dist.-1", 9, 4 }, { "distinct_4", "dist.-4", 9, 4 }, { "repetitions", "loops", 7, 0 },
};

/* The marks stand before an estimated speedup, and after a speed that is a share of passes. */
static void job_figures(FILE *f, const struct report *r)
{
    char s[40];
    columns(f, &r->sum, job_columns, 1);
    snprintf(s, sizeof s, "%s%.2f", report_is_estimate(r) ? "~" : "", figure(&r->sum, "best_speedup"));
    fprintf(f, "%s%*s", ran_alone(&r->sum) ? " " : SHARED_MARK, job_columns[1].width - 1,
            isnan(figure(&r->sum, "best_speedup")) ? "-" : s);
    columns(f, &r->sum, job_columns + 2, LENGTH(job_columns) - 2);
}

static void many(FILE *f, const struct reports *l)
{
    struct err b, c;
    char name[600], label[300];
    size_t estimates = 0, shares = 0, tokens = 0;
    double seconds = 0, prefill = 0;
    fprintf(f, "%6s  %-9s %-10s %9s", "job", "state", "ended by", "tokens");
    heads(f, job_columns, LENGTH(job_columns));
    fputs("  name\n", f);
    for (size_t i = 0; i < l->n; i++) {
        const struct report *r = &l->v[i];
        report_name(r, name, sizeof name);
        report_label(l, r, label, sizeof label);
        estimates += report_is_estimate(r);
        shares += !ran_alone(&r->sum);
        tokens += r->job->tokens;
        seconds += r->sum.seconds;
        prefill += r->sum.prefill_seconds;
        fprintf(f, "%6" PRId64 "  %-9s %-10s %9zu", r->job->id, job_state_name(r->job->state),
                r->job->finish_reason ? r->job->finish_reason : "-", r->job->tokens);
        job_figures(f, r);
        fprintf(f, "  %s%s%s\n", plain(&b, name, r->db ? 200 : 80), *name && *label ? "  " : "",
                plain(&c, label, 120));
    }
    fprintf(f, "all %zu jobs: %zu tokens, ", l->n, tokens);
    duration(f, seconds);
    fputs(" of rounds, ", f);
    duration(f, prefill);
    fputs(" of prefill\n", f);
    if (estimates)
        fputs("~ estimated from the one-row passes of the same text\n", f);
    if (shares)
        fputs(SHARED_NOTE ".\n  It has no speedup: only jobs that ran alone are compared.\n", f);
}

/* ---- groups ---- */

enum { CELL_BYTES = 64 };

/* The cell of a column: the values of --by, n, the figures. False: the table has no such column. */
static bool group_cell(char out[CELL_BYTES], const struct reports *l, const struct report_group *g,
                       size_t column)
{
    struct err b;
    if (column < l->n_by) {
        snprintf(out, CELL_BYTES, "%.40s",
                 plain(&b, g ? report_value_text(&g->value[column]) : l->by[column], 40));
        return true;
    }
    if (column == l->n_by) {
        snprintf(out, CELL_BYTES, "n");
        if (g)
            snprintf(out, CELL_BYTES, "%zu", g->n);
        return true;
    }
    const size_t f = column - l->n_by - 1;
    if (f >= report_group_figures(l))
        return false;
    const struct figure_column *c = &report_group_columns[f];
    if (!g) {
        snprintf(out, CELL_BYTES, "%s", c->head);
        return true;
    }
    const struct report_figure_sum *s = &g->figure[f];
    size_t n = (size_t)snprintf(out, CELL_BYTES, s->n ? "%s%.*f%s" : "-",
                                f == GROUP_SPEEDUP && g->estimated ? "~" : "",
                                c->digits, s->mean, f == GROUP_SPEED && g->shared ? SHARED_MARK : "");
    if (isfinite(s->sd))
        n += (size_t)snprintf(out + n, CELL_BYTES - n, " +-%.*f", c->digits, s->sd);
    if (s->n && s->n != g->n)
        snprintf(out + n, CELL_BYTES - n, " (%zu)", s->n);
    return true;
}

static void groups(FILE *f, const struct reports *l)
{
    char cell[CELL_BYTES];
    size_t wide[REPORT_BY_MAX + 1 + GROUP_FIGURES] = {0}, fewer = 0, estimated = 0, shared = 0;
    for (size_t i = 0; i <= l->n_groups; i++) {
        const struct report_group *g = i ? &l->group[i - 1] : NULL;
        for (size_t c = 0; group_cell(cell, l, g, c); c++)
            wide[c] = MAX(wide[c], strlen(cell));
        for (size_t k = 0; g && k < GROUP_FIGURES; k++)
            fewer += g->figure[k].n && g->figure[k].n != g->n;
        estimated += g ? g->estimated : 0;
        shared += g ? g->shared : 0;
    }
    for (size_t i = 0; i <= l->n_groups; i++) {
        for (size_t c = 0; group_cell(cell, l, i ? &l->group[i - 1] : NULL, c); c++)
            fprintf(f, "%s%*s", c ? "  " : "", c < l->n_by ? -(int)wide[c] : (int)wide[c], cell);
        fputc('\n', f);
    }
    fputs("mean +- standard deviation", f);
    fputs(fewer ? " (n where fewer jobs have the figure)" : "", f);
    fputs(estimated ? "; ~ estimated from the one-row passes of the same texts" : "", f);
    fputs(l->equal_lengths ? "\n" : "; the texts differ in length, so Distinct-n is not compared\n", f);
    fputs(shared ? SHARED_NOTE "\n" : "", f);
}

int report_table(FILE *f, const struct reports *l, struct err *e)
{
    (void)e;
    if (l->o.by)
        groups(f, l);
    else if (l->n == 1)
        one(f, &l->v[0]);
    else
        many(f, l);
    for (size_t i = 0; i < l->n && l->o.rounds && !l->o.by; i++) {
        if (l->n > 1)
            fprintf(f, "\njob %" PRId64 "\n", l->v[i].job->id);
        rounds(f, &l->v[i]);
    }
    return 0;
}
