/* report --html: one page in one file that needs nothing else. Start at report_html; `section` writes one
 * job. Several jobs begin with report_overview.c. The pieces are in src/base/page.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runs/report/report.h"
#include "src/base/page.h"

enum { SECTIONS_MAX = 24, ROUNDS_SHOWN = 5000, SOURCES_SHOWN = 12 };

/* ---- the head of a job ---- */

static void job_title(const struct report *r, char *out, size_t size)
{
    report_name(r, out, size);
    if (!*out)
        snprintf(out, size, "Job %" PRId64, r->job->id);
}

/* Begins a tile: its name, and before <small> what it is about. */
#define TILE(name) "<div class=\"tile\"><span>" name "</span><b>"

static void speed_tile(FILE *f, const struct report *r)
{
    const struct counts *c = &r->sum;
    const double speed = figure(c, "tokens_per_second");
    if (r->plain)
        page_format(f, TILE("Speedup") "@2&times;</b><small>against job @0, one token at a time; "
                    "@1 tokens/s", c->speedup, (double)r->plain, speed);
    else
        page_format(f, TILE("Speed") "@1</b><small>tokens/s; @2 tokens per verification pass", speed,
                    figure(c, "mean_acceptance_length"));
    if (!ran_alone(c))
        page_format(f, "; other jobs in @0 % of the passes, so no speedup; all jobs @1 tokens/s",
                    100 * figure(c, "share_with_others"), figure(c, "worker_tokens_per_second"));
    fputs("</small></div>", f);
}

static void tiles(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    page_format(f, "<div class=\"tiles\">" TILE("Length") "@c</b><small>tokens", (double)j->tokens);
    if (j->tokens != j->wanted)
        page_format(f, " of @c", (double)j->wanted);
    if (r->given)
        page_format(f, ", @c of them given", (double)r->given);
    if (r->has_words)
        page_format(f, "; @c words", (double)r->n_words);
    fputs("</small></div>", f);
    page_format(f, TILE("Time") "@d</b><small>writing, after a prefill of @d", r->sum.seconds,
                r->sum.prefill_seconds);
    page_format(f, j->resumes ? "; resumed @0&times;</small></div>" : "</small></div>", (double)j->resumes);
    speed_tile(f, r);
    page_format(f, TILE("Ended by") "@t</b><small>@t</small></div>",
                j->finish_reason ? j->finish_reason : job_state_name(j->state),
                j->stop_reason     ? j->stop_reason
                : j->finish_reason ? job_state_name(j->state) : "not finished");
    if (r->n_repetitions)
        page_format(f, TILE("Repetition") "@0 found</b><small>from token @c on</small></div>",
                    (double)r->n_repetitions, (double)r->repetition[0].at.start);
    else
        fputs(TILE("Repetition") "none</b><small>found by the loop rule</small></div>", f);
    if (isfinite(r->sum.repeats))
        page_format(f, TILE("Repeats") "@1 %</b><small>of the words end eight words that stood shortly "
                    "before, too</small></div>", 100 * r->sum.repeats);
    fputs("</div>\n", f);
}

/* A table, unless it is empty, under a heading or, folded, for the reader to open. */
static void titled(FILE *f, const char *title, struct table t, bool folded)
{
    if (!t.n)
        return;
    page_format(f, folded ? "<details><summary>@t</summary>" : "<h2>@t</h2>", title);
    page_table(f, &t);
    fputs(folded ? "</details>\n" : "", f);
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

/* The lines of a plot: figures of the windows, or without any the shares of the sources. so_far: the figures
 * are of the text up to the end of a window. */
static const struct lines {
    struct page_plot plot;
    const char *figure[5], *name[4];
    bool so_far;
} speed_lines = { { "Speed", "tokens per second" }, { "tokens_per_second" }, { "tokens/s" } },
  length_lines = { { "Mean acceptance length", "tokens per verification pass; 1 without drafting", .low = 1 },
                   { "mean_acceptance_length" }, { "length" } },
  tree_lines = { { "Alpha and beta", "shares of the depth that was drafted", .shares = true },
                 { "alpha", "beta" },
                 { "alpha: accepted of the depth drafted", "beta: of these, covered by one 4-gram chain" } },
  alpha_lines = { { "Alpha", "accepted share of the depth that was drafted; beta needs a fixed tree",
                    .shares = true }, { "alpha" }, { "alpha: accepted of the depth drafted" } },
  source_lines = { { "Share by source", "tokens of the text that a drafter guessed; several drafters may "
                     "guess a token", .shares = true } },
  distinct_lines = { { "Distinct-n of each 1,000 tokens", "different n-grams of tokens / all n-grams",
                       .shares = true }, { "distinct_1", "distinct_2", "distinct_3", "distinct_4" },
                     { "Distinct-1", "Distinct-2", "Distinct-3", "Distinct-4" } },
  so_far_lines = { { "Distinct-n so far", "from the first token on", .shares = true },
                   { "distinct_1_so_far", "distinct_2_so_far", "distinct_3_so_far", "distinct_4_so_far" },
                   { "Distinct-1", "Distinct-2", "Distinct-3", "Distinct-4" }, .so_far = true };

/* The lines end with the last full window. */
static bool plot(FILE *f, const struct report *r, const struct lines *v)
{
    const size_t windows = r->n_windows, shorter = v->so_far ? 0 : windows - report_full_windows(r);
    struct series s[SOURCES_SHOWN];
    struct page_plot p = v->plot;
    size_t n = *v->figure ? 0 : MIN(r->n_sources, (size_t)SOURCES_SHOWN);
    while (*v->figure && v->figure[n])
        n++;
    double *x = calloc((n + 1) * windows, sizeof *x);
    for (size_t k = 0; x && k < n; k++) {
        double *y = x + (k + 1) * windows;
        s[k] = (struct series){ *v->figure ? v->name[k] : r->source[k].name, y, shorter };
        for (size_t i = 0; i < windows; i++) {
            const struct report_window *w = &r->window[i];
            x[i] = (double)w->start + (v->so_far ? (double)w->n : (double)w->n / 2);
            y[i] = *v->figure          ? figure(&w->sum, v->figure[k])
                   : w->sum.tokens > 0 ? r->source[k].window[i] / w->sum.tokens : NAN;
        }
    }
    p.x = x;
    p.n = windows;
    p.length = (double)r->job->tokens;
    if (x)
        page_plot(f, &p, s, n);
    free(x);
    return x != NULL;
}

static bool plots(FILE *f, const struct report *r)
{
    const bool drafted = r->sum.drafted_depth > 0;
    fputs("<h2>Over the length</h2><p class=\"note\">One point for every 1,000 tokens; "
          PAGE_HOLLOW "</p><div class=\"plots\">", f);
    const bool ok = plot(f, r, &speed_lines) && plot(f, r, &length_lines) &&
                    (!drafted || (plot(f, r, r->tree_fixed ? &tree_lines : &alpha_lines) &&
                                  plot(f, r, &source_lines))) &&
                    plot(f, r, &distinct_lines) && plot(f, r, &so_far_lines);
    fputs("</div>\n", f);
    return ok;
}

/* ---- tables ---- */

static void drafting(FILE *f, const struct report *r)
{
    const struct table sources = report_part(r, REPORT_SOURCES), depths = report_part(r, REPORT_DEPTHS);
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

/* The first rounds: a page of all of them would be too large for a browser. */
static void rounds(FILE *f, const struct report *r)
{
    struct table t = report_part(r, REPORT_ROUNDS);
    char title[80];
    snprintf(title, sizeof title, "%zu rounds%s", t.n,
             t.n > ROUNDS_SHOWN ? ", the first 5,000 (--csv has all)" : "");
    t.n = MIN(t.n, (size_t)ROUNDS_SHOWN);
    titled(f, title, t, true);
}

static bool section(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    struct report_windows windows;
    struct report_retakes retakes;
    struct report_parameters all;
    const struct table taken = report_retake_table(&retakes, &r->retakes, SIZE_MAX, &r->sum),
                       parameters = report_parameter_table(&all, r);
    char name[600], id[64];
    job_title(r, name, sizeof name);
    report_anchor(id, sizeof id, r);
    page_format(f, "<article id=\"@t\"><h1><bdi>@t</bdi></h1><p class=\"sub\">Job @0 &middot; @t &middot; @t "
                "&middot; ", id + 1, name, (double)j->id, job_state_name(j->state), j->model);
    fprintf(f, "seed %" PRIu64 "</p>\n", j->seed);
    tiles(f, r);
    if (j->error)
        page_format(f, "<div class=\"card warn\"><b>Failed:</b> <bdi>@t</bdi></div>\n", j->error);
    titled(f, retakes.title, taken, true);
    repetitions(f, r);
    if (!plots(f, r))
        return false;
    drafting(f, r);
    costs(f, r);
    titled(f, "Distinct-n of the whole text", report_part(r, REPORT_DISTINCT), false);
    if (!r->has_words && r->no_text)
        fprintf(f, "<p class=\"note\">Words and excerpts: %s.</p>", r->no_text);
    titled(f, "Most repeated phrases", report_part(r, REPORT_PHRASES), false);
    fputs("<h2>Parameters</h2><div class=\"card\">", f);
    page_pairs(f, &parameters);
    fputs("</div>\n", f);
    titled(f, "History", report_event_table(&r->events), false);
    titled(f, "The numbers of the plots", report_window_table(&windows, r, 0), true);
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
