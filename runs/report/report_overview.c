/* The part of a page about several jobs: groups, curves of all jobs in the same plots, and a table. Start at
 * report_overview. */
#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/page.h"

enum { LINES_MAX = 12, LABEL_BYTES = 160 };

/* ---- tables ---- */

void report_by(FILE *f, const struct reports *l)
{
    struct report_groups groups;
    const struct table t = report_group_table(&groups, l);
    fputs("<h2>By ", f);
    for (size_t k = 0; k < l->n_by; k++)
        page_format(f, k ? ", @t" : "@t", l->by[k]);
    fputs("</h2><p class=\"note\">Mean &plusmn; standard deviation over the n jobs with the same values; in "
          "brackets n where fewer jobs have the figure. Speedup: mean over pairs of a job and its baseline, "
          "with its 95 % interval by bootstrap over the pairs.", f);
    fputs(l->equal_lengths ? "" : " The texts differ in length, so Distinct-n is not compared.", f);
    fputs(groups.shared ? " " SHARED_NOTE ".</p>" : "</p>", f);
    page_table(f, &t);
}

static void jobs(FILE *f, const struct reports *l, bool linked)
{
    struct report_jobs its;
    const struct table t = report_job_table(&its, l, linked);
    fputs("<h2>Jobs</h2><p class=\"note\">Speedup: against a job of this report with --drafter none and the "
          "same text. Only jobs that ran alone are compared. " SHARED_NOTE ".</p>", f);
    page_table(f, &t);
}

/* ---- curves ---- */

/* A line of the plots: the mean of some jobs. */
struct line { char name[LABEL_BYTES]; const size_t *job; size_t n, one; };

static const struct curve { const char *figure; struct page_plot plot; } curve_plots[] = {
    { "tokens_per_second", { "Speed", "tokens per second" } },
    { "mean_acceptance_length",
      { "Mean acceptance length", "tokens per verification pass; 1 without drafting", .low = 1 } },
    { "alpha", { "Alpha", "accepted share of the depth that was drafted", .shares = true } },
    { "distinct_1",
      { "Distinct-1 of each 1,000 tokens", "different tokens / all tokens", .shares = true } },
    { "distinct_4",
      { "Distinct-4 of each 1,000 tokens", "different 4-grams of tokens / all 4-grams", .shares = true } },
};

/* The windows up to the last one that is full in some job of the line. */
static size_t full_windows(const struct reports *l, const struct line *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n = MAX(n, report_full_windows(&l->v[v->job ? v->job[i] : v->one]));
    return n;
}

/* The mean of the jobs with such a window, and half of its 95 % interval. A shorter window counts only after
 * all full ones. */
static double mean_at(const struct reports *l, const struct line *v, size_t window, const char *name,
                      size_t full, double *half)
{
    double sum = 0, squares = 0;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct report *r = &l->v[v->job ? v->job[i] : v->one];
        if (window >= r->n_windows || (window < full && r->window[window].partial))
            continue;
        const double y = figure(&r->window[window].sum, name);
        if (isfinite(y)) {
            sum += y;
            squares += y * y;
            n++;
        }
    }
    const double mean = n ? sum / (double)n : NAN, spread = squares - sum * mean;
    *half = report_interval(n, n > 1 ? sqrt(MAX(spread, 0.0) / (double)(n - 1)) : NAN);
    return mean;
}

static void find_lines(const struct reports *l, struct line *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (l->o.by) {
            v[i] = (struct line){ .job = l->group[i].job, .n = l->group[i].n };
            report_group_label(l, &l->group[i], v[i].name, sizeof v[i].name);
            continue;
        }
        char label[LABEL_BYTES];
        v[i] = (struct line){ .n = 1, .one = i };
        report_label(l, &l->v[i], label, sizeof label);
        snprintf(v[i].name, sizeof v[i].name, "job %" PRId64 "%s%.120s", l->v[i].job->id, *label ? ": " : "",
                 label);
    }
}

/* marks: those of a book, the first one at its beginning; NULL: none. False: no memory. */
static bool plot_lines(FILE *f, const struct reports *l, const struct line *v, size_t n,
                       const struct page_mark *marks, size_t n_marks)
{
    const struct report *longest = &l->v[0];
    struct series s[LINES_MAX];
    for (size_t i = 1; i < l->n; i++)
        longest = l->v[i].job->tokens > longest->job->tokens ? &l->v[i] : longest;
    const size_t windows = longest->n_windows;
    double *x = calloc((2 * n + 1) * windows, sizeof *x), *y = x + windows, *half = y + n * windows;
    for (size_t i = 0; i < windows && x; i++)
        x[i] = (double)longest->window[i].start + (double)longest->window[i].n / 2;
    for (size_t c = 0; c < sizeof curve_plots / sizeof *curve_plots && x; c++) {
        struct page_plot p = curve_plots[c].plot;
        p.x = x, p.n = windows, p.length = (double)longest->job->tokens, p.no_legend = true;
        p.mark = marks ? marks + 1 : NULL, p.n_marks = n_marks - (marks != NULL);
        for (size_t k = 0; k < n; k++) {
            const size_t full = full_windows(l, &v[k]);
            s[k] = (struct series){ v[k].name, y + k * windows, windows - full,
                                    marks ? NULL : half + k * windows };
            for (size_t i = 0; i < windows; i++)
                y[k * windows + i] = mean_at(l, &v[k], i, curve_plots[c].figure, full,
                                             &half[k * windows + i]);
        }
        page_plot(f, &p, s, n);
    }
    free(x);
    return x != NULL;
}

static const struct job *job_of(const void *report) { return (*(struct report *const *)report)->job; }

/* Whether the jobs are the chapters of one book: v[i] is chapter i. */
static bool is_book(const struct reports *l, const struct report **v)
{
    struct err ignored;
    size_t chapters = 0;
    for (size_t i = 0; i < l->n; i++) {
        v[i] = &l->v[i];
        if (l->v[i].db)                  /* numbers of several databases */
            return false;
    }
    if (l->o.by || l->n < 2 || jobs_in_chains(v, l->n, sizeof *v, job_of, &ignored))
        return false;
    for (size_t i = 1; i < l->n; i++)
        chapters += v[i]->job->after == v[i - 1]->job->id;
    return chapters == l->n - 1;
}

/* The chapters of a book, one after the other, as one text with a line. Fills window[] and mark[]. */
static bool plot_book(FILE *f, const struct report *const *v, size_t n_jobs,
                      struct report_window *window, struct page_mark *mark)
{
    struct job job = { .tokens = 0 };
    struct report book = { .job = &job, .window = window };
    for (size_t i = 0; i < n_jobs; i++) {
        const struct report *r = v[i];
        mark[i].x = (double)job.tokens;
        snprintf(mark[i].name, sizeof mark[i].name, "job %" PRId64 "%s%.120s", r->job->id,
                 r->job->custom_id ? " " : "", r->job->custom_id ? r->job->custom_id : "");
        for (size_t k = 0; k < r->n_windows; k++) {
            struct report_window *w = &window[book.n_windows++];
            *w = r->window[k];
            w->start += job.tokens;
            w->partial = false;          /* every window is a point of the line */
        }
        job.tokens += r->job->tokens;
    }
    const struct reports one = { .v = &book, .n = 1 };
    return plot_lines(f, &one, &(struct line){ "the book", .n = 1 }, 1, mark, n_jobs);
}

/* 1: the jobs are a book, and its curve is written; 0: they are none; -1: no memory. */
static int book_curve(FILE *f, const struct reports *l)
{
    size_t windows = 0;
    for (size_t i = 0; i < l->n; i++)
        windows += l->v[i].n_windows;
    const struct report **v = malloc((l->n + 1) * sizeof *v);
    struct page_mark *mark = malloc((l->n + 1) * sizeof *mark);
    struct report_window *window = malloc((windows + 1) * sizeof *window);
    int rc = !v || !mark || !window ? -1 : is_book(l, v);
    if (rc == 1) {
        fprintf(f, "<h2>Over the length</h2><p class=\"note\">The book as one curve: a point for every 1,000 "
                "tokens of a chapter and for its rest, a dashed line where a chapter begins (%zu "
                "chapters).</p><div class=\"plots more\">", l->n);
        rc = plot_book(f, v, l->n, window, mark) ? 1 : -1;
        fputs("</div>\n", f);
    }
    free(v);
    free(mark);
    free(window);
    return rc;
}

/* Returns false without memory. */
static bool curves(FILE *f, const struct reports *l)
{
    const int book = book_curve(f, l);
    if (book)
        return book > 0;
    const size_t n = l->o.by ? l->n_groups : l->n;
    struct line v[LINES_MAX];
    struct series names[LINES_MAX];
    fputs("<h2>Over the length</h2>", f);
    if (n > LINES_MAX || n == 0) {
        fprintf(f, "<p class=\"note\">%zu %s are too many curves for one plot; at most %d are shown%s.</p>\n",
                n, l->o.by ? "groups" : "jobs", LINES_MAX, l->o.by ? "" : ", and --by groups the jobs");
        return true;
    }
    find_lines(l, v, n);
    for (size_t i = 0; i < n; i++)
        names[i] = (struct series){ .name = v[i].name };
    fprintf(f, "<p class=\"note\">One point for every 1,000 tokens%s; " PAGE_HOLLOW "</p>"
            "<div class=\"card\">",
            l->o.by ? ": the mean of the jobs of a group, with its 95 % interval" : "");
    page_legend(f, names, n);
    fputs("</div><div class=\"plots more\">", f);
    const bool ok = plot_lines(f, l, v, n, NULL, 0);
    fputs("</div>\n", f);
    return ok;
}

bool report_overview(FILE *f, const struct reports *l, size_t sections_max)
{
    fprintf(f, "<h1>%zu jobs</h1>\n", l->n);
    if (l->o.by)
        report_by(f, l);
    if (!curves(f, l))
        return false;
    jobs(f, l, l->n <= sections_max);
    if (l->n > sections_max)
        fprintf(f, "<p class=\"note\">With at most %zu jobs each job has plots of its own.</p>\n",
                sections_max);
    return true;
}
