/* report without a format: rows and tables for a terminal. Start at report_table. */
#include <inttypes.h>
#include <math.h>

#include "runs/report/report.h"

static void one(FILE *f, const struct report *r)
{
    enum { TAKEN = 40, LINES = 20 };
    const struct job *j = r->job;
    struct row speed[REPORT_ROWS_MAX], times[REPORT_ROWS_MAX];
    struct report_texts texts;
    struct report_retakes retakes;
    struct report_windows windows;
    struct report_parameters all;
    char name[600], head[660], of[40], prompt[40], repeats[120];
    report_name(r, name, sizeof name);
    snprintf(head, sizeof head, "job %" PRId64 "%s%.600s:", j->id, *name ? " " : "", name);
    snprintf(of, sizeof of, "@ of %zu %s", j->wanted, plural(j->wanted, "token", "tokens"));
    snprintf(prompt, sizeof prompt, "prompt @ %s", plural(j->prompt_tokens, "token", "tokens"));
    snprintf(repeats, sizeof repeats,
             "@1 %% of the words end %d words that stood within %d words before, too", REPEAT_GRAM,
             REPEAT_REACH);
    report_speed_rows(speed, &texts, r);
    report_time_rows(times, r);
    const struct table sources = report_part(r, REPORT_SOURCES), depths = report_part(r, REPORT_DEPTHS),
                       distinct = report_part(r, REPORT_DISTINCT), phrases = report_part(r, REPORT_PHRASES),
                       loops = report_part(r, REPORT_REPETITIONS),
                       parameters = report_parameter_table(&all, r),
                       taken = report_retake_table(&retakes, &r->retakes, TAKEN, &r->sum),
                       length = report_window_table(&windows, r, LINES);
    sheet_text(f, (struct row[]){
        { NULL, head, V_TEXT(job_state_name(j->state)) },
        { NULL, head, V_UINT(j->tokens), of },
        { NULL, head, V_UINT(r->given), "(@ of them given)", .unless = !r->given },
        { NULL, head, V_TEXT(j->finish_reason), "ended by @" },
        { NULL, head, V_TEXT(j->stop_reason), "(@)" },
        { NULL, "error", V_TEXT(j->error) },
        { NULL, "model", V_TEXT(j->model) },
        { NULL, "seed", V_UINT(j->seed) },
        { NULL, "seed", V_UINT(j->prompt_tokens), prompt },
        { NULL, "seed", V_TEXT(j->numerics), "numerics @" },
        { "speed", NULL, V_ROWS(speed) },
        { "times", NULL, V_ROWS(times) },
        { NULL, "repetition", V_TEXT("none found"), .unless = r->n_repetitions },
        { NULL, "repeats", V_REAL(r->has_words ? r->sum.repeats : NAN), repeats },
        { NULL, "words", V_TEXT(r->has_words ? NULL : r->no_text ? r->no_text : "no text"), "unknown: @" },
        { NULL, "what drafters guessed", V_TABLE(&sources), .unless = !r->n_sources },
        { NULL, "rounds by depth", V_TABLE(&depths), .unless = !depths.n },
        { NULL, "diversity", V_TABLE(&distinct) },
        { NULL, retakes.title, V_TABLE(&taken), .unless = !taken.n },
        { NULL, "repetitions", V_TABLE(&loops), .unless = !loops.n },
        { NULL, "most repeated phrases", V_TABLE(&phrases), .unless = !phrases.n },
        { NULL, "over the length, with the share of the tokens that each source guessed", V_TABLE(&length),
          .unless = !j->tokens },
        { NULL, "parameters", V_TABLE(&parameters) },
        { 0 } });
}

static void rounds(FILE *f, const struct reports *l, const struct report *r)
{
    const struct table t = report_part(r, REPORT_ROUNDS);
    char title[40];
    snprintf(title, sizeof title, l->n > 1 ? "job %" PRId64 ": rounds" : "rounds", r->job->id);
    sheet_text(f, (struct row[]){
        { NULL, title, V_TABLE(&t), .unless = !t.n },
        { NULL, title, V_TEXT("none are stored; run and work store them with --rounds"), .unless = t.n },
        { 0 } });
}

static void many(FILE *f, const struct reports *l)
{
    struct report_jobs jobs;
    const struct table t = report_job_table(&jobs, l, false);
    double tokens = 0, seconds = 0, prefill = 0;
    char all[40];
    for (size_t i = 0; i < l->n; i++) {
        tokens += (double)l->v[i].job->tokens;
        seconds += l->v[i].sum.seconds;
        prefill += l->v[i].sum.prefill_seconds;
    }
    snprintf(all, sizeof all, "all %zu jobs:", l->n);
    sheet_text(f, (struct row[]){
        { NULL, "", V_TABLE(&t) },
        { NULL, all, V_REAL(tokens), "@, tokens" },
        { NULL, all, V_REAL(seconds), "@D of rounds" },
        { NULL, all, V_REAL(prefill), "@D of prefill" },
        { 0 } });
    if (jobs.shares)
        fputs(SHARED_NOTE ".\n  It has no speedup: only jobs that ran alone are compared.\n", f);
}

static void groups(FILE *f, const struct reports *l)
{
    struct report_groups groups;
    const struct table t = report_group_table(&groups, l);
    sheet_text(f, (struct row[]){ { NULL, "", V_TABLE(&t) }, { 0 } });
    fputs("mean \xc2\xb1 standard deviation (n where fewer jobs have the figure); speedup: mean over pairs "
          "of job and baseline [95 % interval by bootstrap]", f);
    fputs(l->equal_lengths ? "\n" : "; the texts differ in length, so Distinct-n is not compared\n", f);
    fputs(groups.shared ? SHARED_NOTE "\n" : "", f);
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
    for (size_t i = 0; i < l->n && l->o.rounds && !l->o.by; i++)
        rounds(f, l, &l->v[i]);
    return 0;
}
