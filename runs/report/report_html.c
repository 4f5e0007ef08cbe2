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

static void when(FILE *f, double t)
{
    time_t whole = (time_t)t;
    struct tm tm;
    char s[32];
    strftime(s, sizeof s, "%Y-%m-%d %H:%M:%S", localtime_r(&whole, &tm));
    fputs(s, f);
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

static void retakes(FILE *f, const struct report *r)
{
    if (!r->retakes.n)
        return;
    page_format(f, "<details class=\"card\"><summary><b>Retakes:</b> @c, which took back @c of @c "
                   "tokens</summary><ul>", r->sum.retakes, r->sum.cut, r->sum.tokens);
    for (size_t i = 0; i < r->retakes.n; i++) {
        const struct retake *x = &r->retakes.v[i];
        page_format(f, "<li>at token @c: @c tokens, @t@t@t since token @c</li>", (double)x->at,
                    (double)(x->length - x->at), *x->phrase ? "the phrase '" : "a repetition", x->phrase,
                    *x->phrase ? "'" : "", (double)x->since);
    }
    fputs("</ul></details>\n", f);
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
struct lines { size_t n, full; double *x, *end, *y[LINES]; };

static bool lines_open(struct lines *v, const struct report *r)
{
    *v = (struct lines){ .n = r->n_windows, .full = report_full_windows(r) };
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
        s[k] = (struct series){ r->source[k].name, y + k * v->n, v->full };
    }
    if (any)
        page_plot(f,
                  &(struct page_plot){ "Share by source",
                                       "tokens of the text that a drafter guessed; several drafters may "
                                       "guess "
                                       "a token",
                                       v->x, v->n, (double)r->job->tokens, .shares = true },
                  s, n);
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
        d[k] = (struct series){ grams[k], v.y[DISTINCT_LINE + k], v.full };
        far[k] = (struct series){ grams[k], v.y[SO_FAR_LINE + k], v.n };
    }
    fputs("<h2>Over the length</h2><p class=\"note\">One point for every 1,000 tokens; "
          PAGE_HOLLOW "</p><div class=\"plots\">", f);
    struct page_plot p = { "Speed", "tokens per second", v.x, v.n, (double)r->job->tokens };
    page_plot(f, &p, &(struct series){ "tokens/s", v.y[0], v.full }, 1);
    p.title = "Mean acceptance length";
    p.note = "tokens per verification pass; 1 without drafting";
    p.low = 1;
    page_plot(f, &p, &(struct series){ "length", v.y[1], v.full }, 1);
    p.low = 0;
    p.shares = true;
    if (drafted) {
        struct series s[2] = { { "alpha: accepted of the depth drafted", v.y[2], v.full },
                               { "beta: of these, covered by one 4-gram chain", v.y[3], v.full } };
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

static void td_count(FILE *f, double x)
{
    page_format(f, "<td>@c</td>", x);
}

static void td_real(FILE *f, double x, int digits)
{
    fputs("<td>", f);
    page_real(f, x, digits);
    fputs("</td>", f);
}

static void drafting(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    if (s->drafted <= 0)
        return;
    page_format(f,
                "<h2>Drafting</h2><p>@c rounds made @c tokens, of which drafters guessed @c. @c candidates "
                "were "
                "proposed, and @c rows verified, with @c draft passes and @c refreshes of the partial "
                "cache.</p>",
                s->rounds, s->tokens, s->accepted, s->drafted, s->rows, s->draft_passes, s->refreshes);
    fputs("<div class=\"two\"><div class=\"card scroll\"><table><tr><th>source</th><th>proposed</th>"
          "<th>accepted</th><th>share</th></tr>",
          f);
    for (size_t i = 0; i < r->n_sources; i++)
        if (r->source[i].drafted > 0) {
            page_format(f, "<tr><td>@t</td><td>@c</td><td>@c</td><td>@1 %</td></tr>", r->source[i].name,
                        r->source[i].drafted, r->source[i].accepted,
                        100 * r->source[i].accepted / r->source[i].drafted);
        }
    fputs("</table></div>", f);
    const double *reached = r->list[LIST_REACHED], *accepted = r->list[LIST_ACCEPTED];
    page_bars(f, "Tokens per round", "share of the rounds", r->list[LIST_HISTOGRAM] + 1,
              figure_list_end(r->list[LIST_HISTOGRAM]) - 1, 1);
    fputs("<div class=\"card "
          "scroll\"><table><tr><th>depth</th><th>reached</th><th>accepted</th><th>share</th></tr>",
          f);
    for (size_t d = 1; d < figure_list_end(reached); d++)
        page_format(f, "<tr><td>@0</td><td>@c</td><td>@c</td><td>@1 %</td></tr>", (double)d, reached[d],
                    accepted[d], reached[d] > 0 ? 100 * accepted[d] / reached[d] : NAN);
    fputs("</table></div></div>\n", f);
}

static void costs(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    const struct part parts[] = { { "model", s->verify },           { "drafts", s->draft },
                                  { "controller", s->control },     { "prefill", s->prefill_seconds },
                                  { "checkpoints", s->put },        { "other", figure(s, "other_seconds") } };
    fputs("<h2>Where the time went</h2><div class=\"card\">", f);
    page_parts(f, parts, sizeof parts / sizeof *parts);
    page_format(f,
                "<p><b>Checkpoints:</b> @c commits. The decode loop waited @d, and the writing thread "
                "computed @d "
                "(of @d on the disk): @2 % of the time.</p>",
                s->commits, s->put, s->commit_cpu, s->commit_seconds, 100 * figure(s, "checkpoint_share"));
    page_format(f,
                "<p><b>Controller:</b> @2 % of the writing. <b>Resumes:</b> @0; the prefill of all attempts "
                "processed @c tokens of prompt and text in @d.</p>",
                s->seconds > 0 ? 100 * s->control / s->seconds : NAN, (double)r->job->resumes,
                s->prefill_tokens, s->prefill_seconds);
    if (s->predicted_rounds > 0)
        page_format(f,
                    "<p><b>A round:</b> predicted @2 ms, measured @2 ms "
                    "(@c rounds that the planner priced).</p>",
                    1000 * figure(s, "round_seconds_predicted"), 1000 * figure(s, "round_seconds_measured"),
                    s->predicted_rounds);
    if (s->snapshots > 0 || s->restored > 0)
        page_format(f,
                    "<p><b>Snapshots of the KV cache:</b> @c made, @2 % of the time. @c tokens came from "
                    "snapshots, "
                    "in @d, which saved about @d of prefill.</p>",
                    s->snapshots, 100 * figure(s, "snapshot_share"), s->restored, s->restore_seconds,
                    MAX(s->saved, 0));
    fputs("</div>\n", f);
}

static void diversity(FILE *f, const struct report *r)
{
    const struct counts *s = &r->sum;
    fputs("<h2>Distinct-n of the whole text</h2><div class=\"card scroll\"><table><tr><th>of</th><th>n = "
          "1</th><th>2</th><th>3</th><th>4</th></tr><tr><td>tokens</td>",
          f);
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        td_real(f, s->distinct[k], 4);
    fputs("</tr>", f);
    if (r->has_words) {
        fputs("<tr><td>words</td>", f);
        for (size_t k = 0; k < DISTINCT_MAX; k++)
            td_real(f, s->words[k], 4);
        fputs("</tr>", f);
    }
    fputs("</table>", f);
    if (!r->has_words && r->no_text)
        fprintf(f, "<p class=\"note\">Words and excerpts: %s.</p>", r->no_text);
    fputs("</div>\n", f);
}

static void phrases(FILE *f, const struct report *r)
{
    if (!r->repeats.n_phrases)
        return;
    fputs("<h2>Most repeated phrases</h2><div class=\"card scroll\"><table><tr><th>times</th>"
          "<th class=\"l\">phrase</th></tr>", f);
    for (size_t i = 0; i < r->repeats.n_phrases; i++)
        page_format(f, "<tr><td>@c</td><td class=\"wrap\"><bdi>@t</bdi></td></tr>",
                    (double)r->repeats.phrase[i].count, r->repeats.phrase[i].text);
    fputs("</table></div>\n", f);
}

static void pair(FILE *f, const char *name, const char *value)
{
    page_format(f, "<div><span>@t</span><b><bdi>@t</bdi></b></div>", name, value);
}

static void parameters(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    char s[32];
    fputs("<h2>Parameters</h2><div class=\"card\"><div class=\"par\">", f);
    pair(f, "model", j->model);
    if (j->fingerprint)
        pair(f, "fingerprint", j->fingerprint);
    if (j->numerics)
        pair(f, "numerics", j->numerics);
    snprintf(s, sizeof s, "%" PRIu64, j->seed);
    pair(f, "seed", s);
    snprintf(s, sizeof s, "%" PRIu32, j->sample);
    pair(f, "sample", s);
    snprintf(s, sizeof s, "%zu", j->prompt_tokens);
    pair(f, "prompt_tokens", s);
    snprintf(s, sizeof s, "%zu", j->wanted);
    pair(f, "tokens", s);
    for (size_t i = 0; i < r->n_parameters; i++)
        pair(f, r->parameter[i].name, r->parameter[i].value ? r->parameter[i].value : "\xe2\x80\x93");
    fputs("</div></div>\n", f);
}

static void history(FILE *f, const struct report *r)
{
    if (!r->events.n)
        return;
    fputs("<h2>History</h2><div class=\"card scroll\"><table>", f);
    for (size_t i = 0; i < r->events.n; i++) {
        fputs("<tr><td>", f);
        when(f, r->events.v[i].at);
        page_format(f, "</td><td class=\"l\">@t</td><td class=\"wrap\"><bdi>@t</bdi></td></tr>",
                    r->events.v[i].kind, r->events.v[i].text);
    }
    fputs("</table></div>\n", f);
}

static void numbers(FILE *f, const struct report *r)
{
    static const struct figure_column columns[] = {
        { "seconds", "seconds", 0, 3 }, { "tokens_per_second", "tokens/s", 0, 1 },
        { "mean_acceptance_length", "length", 0, 3 }, { "alpha", "alpha", 0, 3 }, { "beta", "beta", 0, 3 },
        { "distinct_1", "D-1", 0, 4 }, { "distinct_2", "D-2", 0, 4 }, { "distinct_3", "D-3", 0, 4 },
        { "distinct_4", "D-4", 0, 4 }, { "repeats", "repeats", 0, 3 },
    };
    fputs("<details><summary>The numbers of the plots</summary><div class=\"card scroll\"><table>"
          "<tr><th>from token</th><th>tokens</th>", f);
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
        fprintf(f, "<th>%s</th>", columns[k].head);
    for (size_t k = 0; k < r->n_sources; k++)
        page_format(f, "<th>@t</th>", r->source[k].name);
    fputs("</tr>", f);
    for (size_t i = 0; i < r->n_windows; i++) {
        const struct report_window *w = &r->window[i];
        fprintf(f, "<tr><td>%zu</td><td>%zu%s</td>", w->start, w->n, w->partial ? " (shorter)" : "");
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
            td_real(f, figure(&w->sum, columns[k].figure), columns[k].digits);
        for (size_t k = 0; k < r->n_sources; k++)
            td_count(f, r->source[k].window[i]);
        fputs("</tr>", f);
    }
    fputs("</table></div></details>\n", f);
}

static void rounds(FILE *f, const struct report *r)
{
    if (!r->rounds.n)
        return;
    fprintf(f,
            "<details><summary>%zu rounds%s</summary><div class=\"card "
            "scroll\"><table><tr><th>token</th><th>made</th><th>depth</th><th>drafted</th><th>rows</"
            "th><th>draft ms</th><th>model ms</th><th class=\"l\">from</th></tr>",
            r->rounds.n, r->rounds.n > ROUNDS_SHOWN ? ", the first 5,000 (--csv has all)" : "");
    for (size_t i = 0; i < MIN(r->rounds.n, (size_t)ROUNDS_SHOWN); i++) {
        const struct round_row *q = &r->rounds.v[i];
        fprintf(f,
                "<tr><td>%zu</td><td>%zu</td><td>%u</td><td>%u</td><td>%u</td><td>%.3f</td><td>%.3f</td><td "
                "class=\"l\">",
                q->start, q->tokens, q->depth, q->drafted, q->rows, 1e3 * (double)q->draft_seconds,
                1e3 * (double)q->verify_seconds);
        page_text(f, q->sources);
        fputs("</td></tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
}

static bool section(FILE *f, const struct report *r)
{
    const struct job *j = r->job;
    char name[600];
    fputs("<article id=\"", f);
    report_anchor(f, r);
    fputs("\"><h1><bdi>", f);
    job_title(r, name, sizeof name);
    page_text(f, name);
    fprintf(f, "</bdi></h1><p class=\"sub\">Job %" PRId64 " &middot; %s &middot; ", j->id,
            job_state_name(j->state));
    page_text(f, j->model);
    fprintf(f, " &middot; seed %" PRIu64 "</p>\n", j->seed);
    tiles(f, r);
    if (j->error)
        page_format(f, "<div class=\"card warn\"><b>Failed:</b> <bdi>@t</bdi></div>\n", j->error);
    retakes(f, r);
    repetitions(f, r);
    if (!plots(f, r))
        return false;
    drafting(f, r);
    costs(f, r);
    diversity(f, r);
    phrases(f, r);
    parameters(f, r);
    history(f, r);
    numbers(f, r);
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
    page_begin(f, name);
    if (l->n != 1)
        ok = report_overview(f, l, SECTIONS_MAX);
    else if (l->o.by)
        report_groups(f, l);
    for (size_t i = 0; i < l->n && l->n <= SECTIONS_MAX && ok; i++)
        ok = section(f, &l->v[i]);
    fputs("<footer>Written by longhand, ", f);
    when(f, (double)time(NULL));
    fputs(". Acceptance length: tokens per verification pass, including the bonus token. Alpha: accepted "
          "tokens / drafted depth. Distinct-n: different n-grams / all n-grams of the generated token ids, "
          "without given tokens. Repetition: a passage that occurs for the fifth time, at least 128 tokens "
          "in "
          "all.</footer></main></body></html>\n",
          f);
    return ok ? 0 : err_set(e, ERR_FAILED, "out of memory for the report");
}
