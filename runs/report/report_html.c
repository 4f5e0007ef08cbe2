/* report --html: one page in one file that needs nothing else. Start at report_html; `section` writes one
 * job. Several jobs begin with report_overview.c. The pieces are in report_page.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runs/report/report.h"
#include "runs/report/report_overview.h"
#include "runs/report/report_page.h"

enum { SECTIONS_MAX = 24, ROUNDS_SHOWN = 5000, SOURCES_SHOWN = 12 };

/* ---- the head of a job ---- */

static void job_title(const struct report *r, char *out, size_t size)
{
    report_name(r, out, size);
    if (!*out)
        snprintf(out, size, "Job %" PRId64, r->job->id);
}

static void tile(FILE *f, const char *name) { fprintf(f, "<div class=\"tile\"><span>%s</span><b>", name); }

static void length_tile(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    tile(f, "Length");
    page_format(f, "@c</b><small>tokens", (double)j->tokens);
    if (j->tokens != j->wanted)
        page_format(f, " of @c", (double)j->wanted);
    if (r->given)
        page_format(f, ", @c of them given", (double)r->given);
    if (r->has_words)
        page_format(f, "; @c words", (double)r->n_words);
    fputs("</small></div>", f);
}

static void speed_tile(FILE *f, const struct report *r)
{
    const struct counts *c = &r->sum;
    const double speed = figure(c, "tokens_per_second"), speedup = figure(c, "best_speedup");
    if (!isfinite(speedup)) {
        tile(f, "Speed");
        page_format(f, "@1</b><small>tokens/s; @2 tokens per verification pass", speed,
                    figure(c, "mean_acceptance_length"));
        if (!ran_alone(c))
            page_format(f, "; other jobs in @0 % of the passes, so no speedup; all jobs @1 tokens/s",
                        100 * figure(c, "share_with_others"), figure(c, "worker_tokens_per_second"));
        fputs("</small></div>", f);
        return;
    }
    tile(f, "Speedup");
    page_format(f, "@2&times;</b><small>", speedup);
    if (!report_is_estimate(r))
        fprintf(f, "against job %" PRId64 ", one token at a time; ", r->plain);
    else
        fputs("estimated, against one token at a time; ", f);
    page_format(f, "@1 tokens/s</small></div>", speed);
}

static void tiles(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    fputs("<div class=\"tiles\">", f);
    length_tile(f, r);
    tile(f, "Time");
    page_format(f, "@d</b><small>writing, after a prefill of @d", r->sum.seconds, r->sum.prefill_seconds);
    if (j->resumes)
        fprintf(f, "; resumed %zu&times;", j->resumes);
    fputs("</small></div>", f);
    speed_tile(f, r);
    tile(f, "Ended by");
    page_format(f, "@t</b><small>@t</small></div>",
                j->finish_reason ? j->finish_reason : job_state_name(j->state),
                j->stop_reason     ? j->stop_reason
                : j->finish_reason ? job_state_name(j->state)
                                   : "not finished");
    tile(f, "Repetition");
    if (r->n_repetitions)
        fprintf(f, "%zu found</b><small>from token %zu on</small></div>", r->n_repetitions,
                r->repetition[0].at.start);
    else
        fputs("none</b><small>found by the loop rule</small></div>", f);
    if (isfinite(r->sum.repeats)) {
        tile(f, "Repeats");
        page_format(f, "@1 %</b><small>of the words end eight words that stood shortly before, too"
                       "</small></div>", 100 * r->sum.repeats);
    }
    fputs("</div>\n", f);
}

/* A table under a heading, unless it is empty. */
static void titled(FILE *f, const char *title, struct table t)
{
    if (!t.n)
        return;
    page_format(f, "<h2>@t</h2>", title);
    page_table(f, &t);
}

/* A table that the reader opens. */
static void folded(FILE *f, const char *title, struct table t)
{
    if (!t.n)
        return;
    page_format(f, "<details><summary>@t</summary>", title);
    page_table(f, &t);
    fputs("</details>\n", f);
}

static void retakes(FILE *f, const struct report *r)
{
    struct report_retakes t;
    const struct table taken = report_retake_table(&t, &r->retakes, SIZE_MAX, &r->sum);
    folded(f, t.title, taken);
}

static void repetitions(FILE *f, const struct report *r)
{
    for (size_t i = 0; i < r->n_repetitions; i++) {
        const struct report_repetition *p = &r->repetition[i];
        page_format(f, "<div class=\"card warn\"><b>Repetition</b> from token @c", (double)p->at.start);
        page_format(f, p->open ? " to the end (@c), about every @c tokens" : " to @c, about every @c tokens",
                    (double)p->at.end, (double)p->at.period);
        page_format(f, "; noticed at token @c.", (double)p->at.found);
        if (p->excerpt)
            page_format(f, "<blockquote><bdi>@t</bdi></blockquote>", p->excerpt + strspn(p->excerpt, " \n"));
        fputs("</div>\n", f);
    }
}

/* ---- plots ---- */

/* The figures of the lines, by window. */
static const char *const line_figures[] = {
    "tokens_per_second", "mean_acceptance_length", "alpha", "beta",
    "distinct_1", "distinct_2", "distinct_3", "distinct_4",
    "distinct_1_so_far", "distinct_2_so_far", "distinct_3_so_far", "distinct_4_so_far",
};
enum { LINES = sizeof line_figures / sizeof *line_figures, DISTINCT_LINE = 4, SO_FAR_LINE = 8 };

/* x: the middle of a window; end: the first token after it. The lines end with the last full window. */
struct lines { size_t n, shorter; double *x, *end, *y[LINES]; };

static bool lines_open(struct lines *v, const struct report *r)
{
    *v = (struct lines){ .n = r->n_windows, .shorter = r->n_windows - report_full_windows(r) };
    double *all = calloc((LINES + 2) * r->n_windows, sizeof *all);
    v->x = all;
    for (size_t k = 0; all && k < LINES; k++)
        v->y[k] = all + (k + 2) * r->n_windows;
    v->end = all ? all + r->n_windows : NULL;
    for (size_t i = 0; all && i < r->n_windows; i++) {
        const struct report_window *w = &r->window[i];
        v->x[i] = (double)w->start + (double)w->n / 2;
        v->end[i] = (double)(w->start + w->n);
        for (size_t k = 0; k < LINES; k++)
            v->y[k][i] = figure(&w->sum, line_figures[k]);
    }
    return all != NULL;
}

static void source_plot(FILE *f, const struct report *r, struct lines *v)
{
    struct series s[SOURCES_SHOWN];
    size_t n = MIN(r->n_sources, (size_t)SOURCES_SHOWN), any = 0;
    double *y = calloc(n * v->n + 1, sizeof *y);
    for (size_t k = 0; y && k < n; k++) {
        for (size_t i = 0; i < v->n; i++)
            y[k * v->n + i] =
                r->window[i].sum.tokens > 0 ? r->source[k].window[i] / r->window[i].sum.tokens : NAN;
        any += r->source[k].drafted > 0;
        s[k] = (struct series){ r->source[k].name, y + k * v->n, v->shorter };
    }
    if (any)
        page_plot(f, &(struct page_plot){
                         "Share by source",
                         "tokens of the text that a drafter guessed; several drafters may guess a token",
                         v->x, v->n, (double)r->job->tokens, .shares = true }, s, n);
    free(y);
}

static bool plots(FILE *f, const struct report *r)
{
    static const char *const grams[] = { "Distinct-1", "Distinct-2", "Distinct-3", "Distinct-4" };
    struct lines v;
    struct series d[4], far[4];
    bool drafted = r->sum.drafted_depth > 0;
    if (!lines_open(&v, r))
        return false;
    for (size_t k = 0; k < 4; k++) {
        d[k] = (struct series){ grams[k], v.y[DISTINCT_LINE + k], v.shorter };
        far[k] = (struct series){ grams[k], v.y[SO_FAR_LINE + k] };
    }
    fputs("<h2>Over the length</h2><p class=\"note\">One point for every 1,000 tokens; "
          PAGE_HOLLOW "</p><div class=\"plots\">", f);
    struct page_plot p = { "Speed", "tokens per second", v.x, v.n, (double)r->job->tokens };
    page_plot(f, &p, &(struct series){ "tokens/s", v.y[0], v.shorter }, 1);
    p.title = "Mean acceptance length";
    p.note = "tokens per verification pass; 1 without drafting";
    p.low = 1;
    page_plot(f, &p, &(struct series){ "length", v.y[1], v.shorter }, 1);
    p.low = 0;
    p.shares = true;
    if (drafted) {
        struct series s[2] = { { "alpha: accepted of the depth drafted", v.y[2], v.shorter },
                               { "beta: of these, covered by one 4-gram chain", v.y[3], v.shorter } };
        p.title = r->tree_fixed ? "Alpha and beta" : "Alpha";
        p.note = r->tree_fixed ? "shares of the depth that was drafted"
                               : "accepted share of the depth that was drafted; beta needs a fixed tree";
        page_plot(f, &p, s, r->tree_fixed ? 2 : 1);
        source_plot(f, r, &v);
    }
    p.title = "Distinct-n of each 1,000 tokens";
    p.note = "different n-grams of tokens / all n-grams";
    page_plot(f, &p, d, 4);
    p.title = "Distinct-n so far";
    p.note = "from the first token on";
    p.x = v.end;
    page_plot(f, &p, far, 4);
    fputs("</div>\n", f);
    free(v.x);
    return true;
}

/* ---- tables ---- */

static void drafting(FILE *f, const struct report *r)
{
    const struct table sources = report_source_table(r), depths = report_depth_table(r);
    if (r->sum.drafted <= 0)
        return;
    fputs("<h2>Drafting</h2><div class=\"two\">", f);
    page_table(f, &sources);
    page_bars(f, "Tokens per round", "share of the rounds", r->list[LIST_HISTOGRAM] + 1,
              figure_list_end(r->list[LIST_HISTOGRAM]) - 1, 1);
    page_table(f, &depths);
    fputs("</div>\n", f);
}

static void costs(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    const struct part parts[] = { { "model", s->verify },           { "drafts", s->draft },
                                  { "controller", s->control },     { "prefill", s->prefill_seconds },
                                  { "checkpoints", s->put },        { "other", figure(s, "other_seconds") } };
    struct row speed[REPORT_ROWS_MAX], times[REPORT_ROWS_MAX];
    struct report_texts texts;
    report_speed_rows(speed, &texts, r);
    report_time_rows(times, r);
    fputs("<h2>Where the time went</h2><div class=\"card\">", f);
    page_parts(f, parts, sizeof parts / sizeof *parts);
    page_rows(f, (struct row[]){ { "speed", NULL, V_ROWS(speed) }, { "times", NULL, V_ROWS(times) }, { 0 } });
    fputs("</div>\n", f);
}

static void parameters(FILE *f, const struct report *r)
{
    struct report_parameters all;
    const struct table t = report_parameter_table(&all, r);
    fputs("<h2>Parameters</h2><div class=\"card\">", f);
    page_pairs(f, &t);
    fputs("</div>\n", f);
}

/* The first rounds: a page of all of them would be too large for a browser. */
static void rounds(FILE *f, const struct report *r)
{
    struct table t = report_round_table(r);
    char title[80];
    snprintf(title, sizeof title, "%zu rounds%s", t.n,
             t.n > ROUNDS_SHOWN ? ", the first 5,000 (--csv has all)" : "");
    t.n = MIN(t.n, (size_t)ROUNDS_SHOWN);
    folded(f, title, t);
}

static bool section(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    struct report_windows windows;
    char name[600], id[64];
    job_title(r, name, sizeof name);
    report_anchor(id, sizeof id, r);
    page_format(f, "<article id=\"@t\"><h1><bdi>@t</bdi></h1><p class=\"sub\">Job @0 &middot; @t &middot; @t "
                "&middot; ", id + 1, name, (double)j->id, job_state_name(j->state), j->model);
    fprintf(f, "seed %" PRIu64 "</p>\n", j->seed);
    tiles(f, r);
    if (j->error)
        page_format(f, "<div class=\"card warn\"><b>Failed:</b> <bdi>@t</bdi></div>\n", j->error);
    retakes(f, r);
    repetitions(f, r);
    if (!plots(f, r))
        return false;
    drafting(f, r);
    costs(f, r);
    titled(f, "Distinct-n of the whole text", report_distinct_table(r));
    if (!r->has_words && r->no_text)
        fprintf(f, "<p class=\"note\">Words and excerpts: %s.</p>", r->no_text);
    titled(f, "Most repeated phrases", report_phrase_table(r));
    parameters(f, r);
    titled(f, "History", report_event_table(&r->events));
    folded(f, "The numbers of the plots", report_window_table(&windows, r, 0));
    rounds(f, r);
    fputs("</article>\n", f);
    return true;
}

int report_html(FILE *f, const struct reports *l, struct err *e)
{
    bool ok = true;
    char name[600] = "";
    if (l->n == 1)
        job_title(&l->v[0], name, sizeof name);
    else
        snprintf(name, sizeof name, "%zu jobs", l->n);
    page_begin(f, name, NULL);
    if (l->n != 1)
        ok = report_overview(f, l, SECTIONS_MAX);
    else if (l->o.by)
        report_by(f, l);
    for (size_t i = 0; i < l->n && l->n <= SECTIONS_MAX && ok; i++)
        ok = section(f, &l->v[i]);
    number_text(name, sizeof name, (double)time(NULL), 'T');
    fprintf(f, "<footer>Written by longhand, %s. Acceptance length: tokens per verification pass, including "
            "the bonus token. Alpha: accepted tokens / drafted depth. Distinct-n: different n-grams / all "
            "n-grams of the generated token ids, without given tokens. Repetition: a passage that occurs for "
            "the fifth time, at least 128 tokens in all.</footer>", name);
    page_end(f, NULL, NULL);
    return ok ? 0 : err_set(e, ERR_FAILED, "out of memory for the report");
}
