/* The part of a page about several jobs: groups, curves of all jobs in the same plots, and a table. Start at
 * report_overview. */
#include "runs/report/report_overview.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/report_page.h"

enum { LINES_MAX = 12, LABEL_BYTES = 160 };

void report_anchor(FILE *f, const struct report *r)
{
    fprintf(f, "job-%" PRId64, r->job->id);
    if (r->db)
        fprintf(f, "-%08" PRIx64, hash64(HASH64_INIT, r->db, strlen(r->db)) & 0xffffffff);
}

/* ---- groups ---- */

static void group_cell(FILE *f, const struct report_group *g, size_t k)
{
    const struct report_figure_sum *s = &g->figure[k];
    const int digits = report_group_columns[k].digits;
    fputs(k == GROUP_SPEEDUP && g->estimated && s->n ? "<td>~" : "<td>", f);
    page_real(f, s->mean, digits);
    fputs(k == GROUP_SPEED && g->shared ? SHARED_MARK : "", f);
    if (isfinite(s->sd)) {
        fputs("<br><small>&plusmn; ", f);
        page_real(f, s->sd, digits);
        fputs("</small>", f);
    }
    if (s->n && s->n != g->n)
        fprintf(f, "<small> (%zu)</small>", s->n);
    fputs("</td>", f);
}

void report_groups(FILE *f, const struct reports *l)
{
    fputs("<h2>By ", f);
    for (size_t k = 0; k < l->n_by; k++)
        page_format(f, k ? ", @t" : "@t", l->by[k]);
    fputs("</h2><p class=\"note\">Mean &plusmn; standard deviation over the n jobs with the same values; in "
          "brackets n where fewer jobs have the figure.",
          f);
    fputs(l->equal_lengths ? "" : " The texts differ in length, so Distinct-n is not compared.", f);
    for (size_t i = 0, shared = 0; i < l->n_groups; i++)
        if (l->group[i].shared && !shared++)
            fputs(" " SHARED_NOTE ".", f);
    fputs("</p><div class=\"card scroll\"><table><tr>", f);
    for (size_t k = 0; k < l->n_by; k++)
        page_format(f, "<th class=\"l\">@t</th>", l->by[k]);
    fputs("<th>n</th>", f);
    for (size_t k = 0; k < report_group_figures(l); k++)
        fprintf(f, "<th class=\"w\">%s</th>", report_group_columns[k].head);
    fputs("</tr>", f);
    for (size_t i = 0; i < l->n_groups; i++) {
        const struct report_group *g = &l->group[i];
        fputs("<tr>", f);
        for (size_t k = 0; k < l->n_by; k++)
            page_format(f, "<td class=\"name\"><bdi>@t</bdi></td>", report_value_text(&g->value[k]));
        fprintf(f, "<td>%zu</td>", g->n);
        for (size_t k = 0; k < report_group_figures(l); k++)
            group_cell(f, g, k);
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
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

/* room: [2 n + 1][windows of the longest job] */
static void plot_lines(FILE *f, const struct reports *l, const struct line *v, size_t n, double *room)
{
    const struct report *longest = &l->v[0];
    struct series s[LINES_MAX];
    for (size_t i = 1; i < l->n; i++)
        longest = l->v[i].job->tokens > longest->job->tokens ? &l->v[i] : longest;
    const size_t windows = longest->n_windows;
    double *x = room, *y = x + windows, *half = y + n * windows;
    for (size_t i = 0; i < windows; i++)
        x[i] = (double)longest->window[i].start + (double)longest->window[i].n / 2;
    for (size_t c = 0; c < sizeof curve_plots / sizeof *curve_plots; c++) {
        struct page_plot p = curve_plots[c].plot;
        p.x = x;
        p.n = windows;
        p.length = (double)longest->job->tokens;
        p.no_legend = true;
        for (size_t k = 0; k < n; k++) {
            s[k] = (struct series){ v[k].name, y + k * windows, full_windows(l, &v[k]), half + k * windows };
            for (size_t i = 0; i < windows; i++)
                y[k * windows + i] = mean_at(l, &v[k], i, curve_plots[c].figure, s[k].full,
                                             &half[k * windows + i]);
        }
        page_plot(f, &p, s, n);
    }
}

/* Whether the jobs are the chapters of one book: order[i] is the place of chapter i. */
static bool is_book(const struct reports *l, const struct job **jobs, size_t *order)
{
    struct err ignored;
    size_t chapters = 0;
    for (size_t i = 0; i < l->n; i++) {
        jobs[i] = l->v[i].job;
        if (l->v[i].db)                  /* numbers of several databases */
            return false;
    }
    if (l->o.by || l->n < 2 || jobs_in_chains(jobs, l->n, order, &ignored))
        return false;
    for (size_t i = 1; i < l->n; i++)
        chapters += jobs[order[i]]->after == jobs[order[i - 1]]->id;
    return chapters == l->n - 1;
}

/* The chapters of a book, one after the other, as one curve. room: [2 windows of all jobs] */
static void plot_book(FILE *f, const struct reports *l, const size_t *order, double *room, size_t windows,
                      struct page_mark *mark)
{
    double *x = room, *y = room + windows, at = 0;
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct report *r = &l->v[order[i]];
        mark[i].x = at;
        snprintf(mark[i].name, sizeof mark[i].name, "job %" PRId64 "%s%.120s", r->job->id,
                 r->job->custom_id ? " " : "", r->job->custom_id ? r->job->custom_id : "");
        for (size_t k = 0; k < r->n_windows; k++)
            x[n++] = at + (double)r->window[k].start + (double)r->window[k].n / 2;
        at += (double)r->job->tokens;
    }
    for (size_t c = 0; c < sizeof curve_plots / sizeof *curve_plots; c++) {
        struct page_plot p = curve_plots[c].plot;
        p.x = x;
        p.n = n;
        p.length = at;
        p.no_legend = true;
        p.mark = mark + 1;
        p.n_marks = l->n - 1;
        for (size_t i = 0, m = 0; i < l->n; i++)
            for (size_t k = 0; k < l->v[order[i]].n_windows; k++)
                y[m++] = figure(&l->v[order[i]].window[k].sum, curve_plots[c].figure);
        page_plot(f, &p, &(struct series){ "the book", y, n, NULL }, 1);
    }
}

/* 1: the jobs are a book, and its curve is written; 0: they are none; -1: no memory. */
static int book_curve(FILE *f, const struct reports *l)
{
    size_t windows = 0;
    for (size_t i = 0; i < l->n; i++)
        windows += l->v[i].n_windows;
    const struct job **jobs = malloc((l->n + 1) * sizeof *jobs);
    size_t *order = malloc((l->n + 1) * sizeof *order);
    struct page_mark *mark = malloc((l->n + 1) * sizeof *mark);
    double *room = calloc(2 * windows + 1, sizeof *room);
    int rc = !jobs || !order || !mark || !room ? -1 : is_book(l, jobs, order);
    if (rc == 1) {
        fprintf(f, "<h2>Over the length</h2><p class=\"note\">The book as one curve: a point for every 1,000 "
                "tokens of a chapter and for its rest, a dashed line where a chapter begins (%zu "
                "chapters).</p><div class=\"plots more\">", l->n);
        plot_book(f, l, order, room, windows, mark);
        fputs("</div>\n", f);
    }
    free(jobs);
    free(order);
    free(mark);
    free(room);
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
    size_t windows = 0;
    for (size_t i = 0; i < l->n; i++)
        windows = MAX(windows, l->v[i].n_windows);
    fputs("<h2>Over the length</h2>", f);
    if (n > LINES_MAX || n == 0) {
        fprintf(f, "<p class=\"note\">%zu %s are too many curves for one plot; at most %d are shown%s.</p>\n",
                n, l->o.by ? "groups" : "jobs", LINES_MAX, l->o.by ? "" : ", and --by groups the jobs");
        return true;
    }
    double *room = calloc((2 * n + 1) * windows, sizeof *room);
    if (!room)
        return false;
    find_lines(l, v, n);
    for (size_t i = 0; i < n; i++)
        names[i] = (struct series){ .name = v[i].name };
    fprintf(f, "<p class=\"note\">One point for every 1,000 tokens%s; " PAGE_HOLLOW "</p>"
            "<div class=\"card\">",
            l->o.by ? ": the mean of the jobs of a group, with its 95 % interval" : "");
    page_legend(f, names, n);
    fputs("</div><div class=\"plots more\">", f);
    plot_lines(f, l, v, n, room);
    fputs("</div>\n", f);
    free(room);
    return true;
}

/* ---- the table ---- */

static void job_row(FILE *f, const struct reports *l, const struct report *r, bool sections)
{
    const struct counts *c = &r->sum;
    char name[600], label[300];
    report_name(r, name, sizeof name);
    report_label(l, r, label, sizeof label);
    fputs(sections ? "<tr><td><a href=\"#" : "<tr><td>", f);
    if (sections)
        report_anchor(f, r);
    fprintf(f, sections ? "\">%" PRId64 "</a></td>" : "%" PRId64 "</td>", r->job->id);
    page_format(f, "<td class=\"name\"><bdi>@t</bdi>", name);
    if (*label)
        page_format(f, *name ? "<br><small><bdi>@t</bdi></small>" : "<bdi>@t</bdi>", label);
    page_format(f, "</td><td class=\"l\">@t</td><td class=\"l\">@t</td><td>@c</td>",
                job_state_name(r->job->state), r->job->finish_reason, (double)r->job->tokens);
    page_format(f, ran_alone(c) ? "<td>@1</td>" : "<td>@1" SHARED_MARK "</td>",
                figure(c, "tokens_per_second"));
    page_format(f, report_is_estimate(r) ? "<td>~@2</td>" : "<td>@2</td>", figure(c, "best_speedup"));
    page_format(f, "<td>@2</td><td>@3</td><td>@4</td><td>@4</td><td>@c</td></tr>\n",
                figure(c, "mean_acceptance_length"), figure(c, "alpha"), c->distinct[0], c->distinct[3],
                c->repetitions);
}

bool report_overview(FILE *f, const struct reports *l, size_t sections_max)
{
    const bool sections = l->n <= sections_max;
    fprintf(f, "<h1>%zu jobs</h1>\n", l->n);
    if (l->o.by)
        report_groups(f, l);
    if (!curves(f, l))
        return false;
    fputs("<h2>Jobs</h2><p class=\"note\">Speedup: against a job of this report that wrote one token at a "
          "time; "
          "~ estimated from the one-row passes of the same text. Only jobs that ran alone are compared. "
          SHARED_NOTE ".</p>"
          "<div class=\"card scroll\"><table><tr><th>job</th><th class=\"l\">name</th><th "
          "class=\"l\">state</th><th class=\"l\">ended "
          "by</th><th>tokens</th><th>tokens/s</th><th>speedup</th><th>length</th><th>alpha</th>"
          "<th>D-1</th><th>D-4</th><th>loops</th></tr>",
          f);
    for (size_t i = 0; i < l->n; i++)
        job_row(f, l, &l->v[i], sections);
    fputs("</table></div>\n", f);
    if (!sections)
        fprintf(f, "<p class=\"note\">With at most %zu jobs each job has plots of its own.</p>\n",
                sections_max);
    return true;
}
