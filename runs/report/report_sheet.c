/* What a report says, described once: rows and tables of sheets, which the text, JSON, CSV and the pages have
 * from here. Start at report_speed_rows and at the table that is wanted. */
#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LENGTH(v) (sizeof(v) / sizeof *(v))

/* ---- rows ---- */

static double percent(double part, double of) { return of > 0 ? 100 * part / of : NAN; }

/* "25.0 % with 1 job, 75.0 % with 8 jobs" */
static void put_company(char *out, size_t size, const struct report *r)
{
    *out = 0;
    for (size_t i = 1, n = 0; i < figure_list_end(r->list[LIST_JOBS]) && n < size; i++)
        if (r->list[LIST_JOBS][i] > 0)
            n += (size_t)snprintf(out + n, size - n, "%s %.1f %% with %zu %s", n ? "," : "passes",
                                  100 * report_with(r, i), i, plural(i, "job", "jobs"));
}

/* "@0 of 412 rounds: no draft pays yet". planned: the planner decides whether a round drafts. */
static double drafts_of(const struct counts *c) { return c->rounds > 0 ? c->drafts : NAN; }
static void put_drafts(char out[100], const char *before, const struct counts *c, bool planned)
{
    snprintf(out, 100, "%s@0 of %.0f rounds%s", before, c->rounds,
             planned && drafts_of(c) <= 0 ? ": no draft pays yet" : "");
}

void report_speed_rows(struct row out[REPORT_ROWS_MAX], struct report_texts *t, const struct report *r)
{
    const struct counts *s = &r->sum;
    const bool alone = ran_alone(s), plain = s->drafted <= 0;
    const char *command = report_baseline_command(t->command, r);
    put_drafts(t->drafts, "drafted in ", s, !r->undrafted && !r->tree_fixed);
    put_company(t->company, sizeof t->company, r);
    snprintf(t->plain, sizeof t->plain, "@2 times job %" PRId64 ", one token at a time", r->plain);
    const struct row rows[] = {
        { NULL, "speed", V_REAL(figure(s, "tokens_per_second")), "@1 tokens/s" },
        { NULL, "speed", V_BOOL(!alone), "(its share of the passes by rows)" },
        { NULL, "speed", V_REAL(s->seconds), "@D" },
        { NULL, "speed", V_REAL(s->speedup), t->plain },
        { NULL, "baseline", V_TEXT(command),
          "none among these jobs (the same text with --drafter none); @ makes one" },
        { NULL, "worker", V_REAL(figure(s, "worker_tokens_per_second")), "@1 tokens/s of all jobs meanwhile",
          .unless = alone },
        { NULL, "worker", V_TEXT(t->company), "; @", .unless = alone },
        { NULL, "speedup", V_TEXT("not compared: only jobs that ran alone are"), .unless = alone },
        { NULL, "rounds", V_REAL(s->rounds), "@," },
        { NULL, "rounds", V_REAL(figure(s, "mean_acceptance_length")), "acceptance length @2" },
        { NULL, "rounds", V_REAL(figure(s, "alpha")),
          "alpha @3 (accepted share of the depth that was drafted)" },
        { NULL, "rounds", V_REAL(r->tree_fixed ? figure(s, "beta") : NAN),
          "beta @3 (the part of it that one 4-gram chain covers)" },
        { NULL, "drafting", V_NUMBER(r->undrafted ? NAN : drafts_of(s)), t->drafts },
        { NULL, "drafting", V_REAL(s->drafted), "@, candidates", .unless = plain },
        { NULL, "drafting", V_REAL(s->rows), "@, rows verified", .unless = plain },
        { NULL, "drafting", V_REAL(s->accepted), "@, accepted", .unless = plain },
        { NULL, "drafting", V_REAL(s->draft_passes), "@, draft passes", .unless = plain },
        { NULL, "drafting", V_REAL(s->refreshes), "@, refreshes of the partial cache", .unless = plain },
        { 0 } };
    static_assert(LENGTH(rows) <= REPORT_ROWS_MAX, "room for the rows");
    memcpy(out, rows, sizeof rows);
}

void report_time_rows(struct row out[REPORT_ROWS_MAX], const struct report *r)
{
    const struct counts *s = &r->sum;
    const bool foreseen = s->predicted_rounds > 0, snapshots = s->snapshots > 0, restored = s->restored > 0;
    const struct row rows[] = {
        { NULL, "time", V_REAL(s->verify), "model @D" },
        { NULL, "time", V_REAL(percent(s->verify, s->seconds)), "(@1 %)" },
        { NULL, "time", V_REAL(s->draft), "drafts @D" },
        { NULL, "time", V_REAL(percent(s->draft, s->seconds)), "(@1 %)" },
        { NULL, "time", V_REAL(s->control), "controller @D" },
        { NULL, "time", V_REAL(percent(s->control, s->seconds)), "(@2 %)" },
        { NULL, "a round", V_REAL(1000 * figure(s, "round_seconds_predicted")), "predicted @3 ms",
          .unless = !foreseen },
        { NULL, "a round", V_REAL(1000 * figure(s, "round_seconds_measured")), "measured @3 ms",
          .unless = !foreseen },
        { NULL, "a round", V_REAL(s->predicted_rounds), "(@, rounds)", .unless = !foreseen },
        { NULL, "checkpoints", V_REAL(s->commits), "@," },
        { NULL, "checkpoints", V_REAL(s->put), "the decode loop waited @D" },
        { NULL, "checkpoints", V_REAL(s->commit_cpu), "the writing thread computed @D" },
        { NULL, "checkpoints", V_REAL(s->commit_seconds), "(of @D on the disk)" },
        { NULL, "checkpoints", V_REAL(100 * figure(s, "checkpoint_share")), "; @2 % of the time" },
        { NULL, "prefill", V_REAL(s->prefill_tokens), "@, tokens of prompt and text" },
        { NULL, "prefill", V_REAL(s->prefill_seconds), "@D" },
        { NULL, "resumes", V_UINT(r->job->resumes) },
        { NULL, "snapshots", V_REAL(s->snapshots), "@, of the KV cache", .unless = !snapshots },
        { NULL, "snapshots", V_REAL(s->snapshot_bytes), "@B", .unless = !snapshots },
        { NULL, "snapshots", V_REAL(s->snapshot_put), "the decode loop waited @D", .unless = !snapshots },
        { NULL, "snapshots", V_REAL(s->snapshot_cpu), "the writing thread computed @D",
          .unless = !snapshots },
        { NULL, "snapshots", V_REAL(100 * figure(s, "snapshot_share")), "; @2 % of the time",
          .unless = !snapshots },
        { NULL, "restored", V_REAL(s->restored), "@0 tokens from snapshots", .unless = !restored },
        { NULL, "restored", V_REAL(s->restore_seconds), "in @D", .unless = !restored },
        { NULL, "restored", V_REAL(MAX(s->saved, 0)), "which saved about @D of prefill",
          .unless = !restored },
        { 0 } };
    static_assert(LENGTH(rows) <= REPORT_ROWS_MAX, "room for the rows");
    memcpy(out, rows, sizeof rows);
}

/* ---- tables of one job ---- */

static void source_row(const void *of, size_t i, struct row *cell)
{
    const struct report_source *x = &((const struct report *)of)->source[i];
    cell[0] = (struct row){ NULL, "source", V_TEXT(x->name) };
    cell[1] = (struct row){ "drafted", NULL, V_INT(llround(x->drafted)) };
    cell[2] = (struct row){ NULL, "candidates", V_REAL(x->drafted), "@," };
    cell[3] = (struct row){ "accepted", "accepted", V_INT(llround(x->accepted)), "@," };
    cell[4] = (struct row){ NULL, "share", V_REAL(percent(x->accepted, x->drafted)), "@1 %" };
}

/* How often a round reached each depth of the tree, and how often a candidate was accepted there. */
static void depth_row(const void *of, size_t i, struct row *cell)
{
    const struct report *r = of;
    const double reached = r->list[LIST_REACHED][i + 1], accepted = r->list[LIST_ACCEPTED][i + 1];
    cell[0] = (struct row){ NULL, "depth", V_UINT(i + 1) };
    cell[1] = (struct row){ NULL, "reached", V_REAL(reached), "@," };
    cell[2] = (struct row){ NULL, "accepted", V_REAL(accepted), "@," };
    cell[3] = (struct row){ NULL, "share", V_REAL(percent(accepted, reached)), "@1 %" };
}

/* Distinct-n of the tokens and, if they are known, of the words. */
static void distinct_row(const void *of, size_t i, struct row *cell)
{
    static const char *const head[] = { "n = 1", "2", "3", "4" };
    const struct counts *c = &((const struct report *)of)->sum;
    cell[0] = (struct row){ NULL, "distinct-n", V_TEXT(i ? "words" : "tokens") };
    for (size_t k = 0; k < DISTINCT_MAX; k++)
        cell[1 + k] = (struct row){ NULL, head[k], V_REAL(i ? c->words[k] : c->distinct[k]), "@4" };
}

static void phrase_row(const void *of, size_t i, struct row *cell)
{
    const struct report *r = of;
    cell[0] = (struct row){ "text", NULL, V_TEXT(r->repeats.phrase[i].text) };
    cell[1] = (struct row){ "count", "times", V_UINT(r->repeats.phrase[i].count) };
    cell[2] = (struct row){ NULL, "phrase", V_TEXT(r->repeats.phrase[i].text) };
}

static void repetition_row(const void *of, size_t i, struct row *cell)
{
    const struct report_repetition *p = &((const struct report *)of)->repetition[i];
    cell[0] = (struct row){ "start", "from token", V_UINT(p->at.start) };
    cell[1] = (struct row){ "found", "noticed at", V_UINT(p->at.found) };
    cell[2] = (struct row){ "end", "to", V_UINT(p->at.end), p->open ? "@ (the end)" : "@" };
    cell[3] = (struct row){ "period", "tokens", V_UINT(p->at.period), "every @" };
    cell[4] = (struct row){ "to_the_end", NULL, V_BOOL(p->open) };
    cell[5] = (struct row){ "excerpt", "passage", V_TEXT(p->excerpt) };
}

#define V_SECONDS(v) { VALUE_REAL, { .x = (v) }, 6 }         /* with 6 digits in CSV */

static void round_row(const void *of, size_t i, struct row *cell)
{
    const struct round_row *q = &((const struct report *)of)->rounds.v[i];
    const double draft = (double)q->draft_seconds, verify = (double)q->verify_seconds;
    cell[0] = (struct row){ "start", "token", V_UINT(q->start) };
    cell[1] = (struct row){ "tokens", "made", V_UINT(q->tokens) };
    cell[2] = (struct row){ "sources", NULL, V_TEXT(q->sources) };
    cell[3] = (struct row){ "depth", "depth", V_UINT(q->depth) };
    cell[4] = (struct row){ "drafted", "drafted", V_UINT(q->drafted) };
    cell[5] = (struct row){ "rows", "rows", V_UINT(q->rows) };
    cell[6] = (struct row){ "accepted", "accepted", V_UINT(q->accepted) };
    cell[7] = (struct row){ "draft_seconds", NULL, V_SECONDS(draft) };
    cell[8] = (struct row){ NULL, "draft ms", V_REAL(1e3 * draft), "@3" };
    cell[9] = (struct row){ "verify_seconds", NULL, V_SECONDS(verify) };
    cell[10] = (struct row){ NULL, "model ms", V_REAL(1e3 * verify), "@3" };
    cell[11] = (struct row){ NULL, "from", V_TEXT(q->sources) };
}

struct table report_part(const struct report *r, enum report_part part)
{
    const struct table all[] = {
        [REPORT_SOURCES] = { r->n_sources, source_row, r, .named = true },
        [REPORT_DEPTHS] = { figure_list_end(r->list[LIST_REACHED]) - 1, depth_row, r },
        [REPORT_DISTINCT] = { 1 + r->has_words, distinct_row, r },
        [REPORT_PHRASES] = { r->repeats.n_phrases, phrase_row, r },
        [REPORT_REPETITIONS] = { r->n_repetitions, repetition_row, r },
        [REPORT_ROUNDS] = { r->rounds.n, round_row, r },
    };
    return all[part];
}

static void parameter_row(const void *of, size_t i, struct row *cell)
{
    struct report_parameters *t = (struct report_parameters *)of;
    const char *own = i < REPORT_OWN_SHOWN ? report_own(&t->own, t->r->job, i) : NULL;
    const struct report_parameter *p = own ? NULL : &t->r->parameter[i - REPORT_OWN_SHOWN];
    const char *text = !own ? p->value ? p->value : "null" : t->own.is_text ? t->own.text : t->own.number;
    cell[0] = (struct row){ NULL, "", V_TEXT(own ? own : p->name) };
    cell[1] = (struct row){ NULL, "", V_TEXT(text) };
}

struct table report_parameter_table(struct report_parameters *t, const struct report *r)
{
    *t = (struct report_parameters){ .r = r };
    return (struct table){ REPORT_OWN_SHOWN + r->n_parameters, parameter_row, t };
}

static void event_row(const void *of, size_t i, struct row *cell)
{
    const struct event *v = &((const struct event_list *)of)->v[i];
    const bool said = v->text && *v->text;
    cell[0] = (struct row){ "at", "", V_REAL(v->at), "@T" };
    cell[1] = (struct row){ "attempt", NULL, V_INT(v->attempt) };
    cell[2] = (struct row){ "kind", "", V_TEXT(v->kind), said ? "@:" : "@" };
    cell[3] = (struct row){ "text", said ? "" : NULL, V_TEXT(v->text) };
}

struct table report_event_table(const struct event_list *events)
{
    return (struct table){ events->n, event_row, events };
}

static void retake_row(const void *of, size_t i, struct row *cell)
{
    struct report_retakes *t = (struct report_retakes *)of;
    const struct retake *x = &t->l->v[i + t->from];
    const char *quote = *x->phrase ? "'" : "";
    snprintf(t->line, sizeof t->line,
             "at token %zu, not %" PRId32 ": %zu %s taken back, %s%s%s since token %zu", x->at, x->token,
             x->length - x->at, plural(x->length - x->at, "token", "tokens"),
             *x->phrase ? "the phrase '" : "a repetition", x->phrase, quote, x->since);
    cell[0] = (struct row){ "at", NULL, V_UINT(x->at) };
    cell[1] = (struct row){ "token", NULL, V_INT(x->token) };
    cell[2] = (struct row){ "length", NULL, V_UINT(x->length) };
    cell[3] = (struct row){ "since", NULL, V_UINT(x->since) };
    cell[4] = (struct row){ "reason", NULL, V_TEXT(*x->phrase ? "phrase" : "loop") };
    cell[5] = (struct row){ "phrase", NULL, V_TEXT(*x->phrase ? x->phrase : NULL) };
    cell[6] = (struct row){ NULL, "", V_TEXT(t->line) };
}

struct table report_retake_table(struct report_retakes *t, const struct retakes *l, size_t last,
                                 const struct counts *c)
{
    *t = (struct report_retakes){ l, l->n - MIN(l->n, last) };
    snprintf(t->title, sizeof t->title, "retakes: %.0f, which took back %.0f of %.0f tokens%s", c->retakes,
             c->cut, c->tokens, t->from ? "; the last ones (--json has all)" : "");
    return (struct table){ l->n - t->from, retake_row, t };
}

/* ---- windows ---- */

static const struct { struct figure_column of; bool few; } window_columns[] = {
    { { "seconds", "seconds", 3 }, false }, { { "tokens_per_second", "tokens/s", 1 }, true },
    { { "mean_acceptance_length", "length", 3 }, true }, { { "alpha", "alpha", 3 }, true },
    { { "beta", "beta", 3 }, false }, { { "distinct_1", "D-1", 4 }, true },
    { { "distinct_2", "D-2", 4 }, false }, { { "distinct_3", "distinct-3", 4 }, false },
    { { "distinct_4", "D-4", 4 }, true }, { { "repeats", "repeats", 3 }, true },
};

static void window_row(const void *of, size_t i, struct row *cell)
{
    static const char *const places[] = { "@0", "@1", "@2", "@3", "@4" };
    const struct report_windows *t = of;
    const struct report_window *w = &t->r->window[i * t->each];
    const size_t end = MIN((i + 1) * t->each, t->r->n_windows);
    struct counts s = w->sum;                    /* Distinct-n is that of the first window */
    size_t tokens = w->n, n = 2;
    for (size_t k = i * t->each + 1; k < end; k++) {
        figures_add(&s, NULL, &t->r->window[k].sum, NULL);
        tokens += t->r->window[k].n;
    }
    cell[0] = (struct row){ NULL, "token", V_REAL((double)w->start), "@," };
    cell[1] = (struct row){ NULL, "tokens", V_UINT(tokens), "@," };
    for (size_t k = 0; k < LENGTH(window_columns); k++) {
        const struct figure_column *c = &window_columns[k].of;
        if (t->all || window_columns[k].few)
            cell[n++] = (struct row){ NULL, c->head, V_REAL(figure(&s, c->figure)), places[c->digits] };
    }
    for (size_t k = 0; k < t->r->n_sources && n < SHEET_COLUMNS_MAX; k++) {
        double accepted = 0;
        for (size_t q = i * t->each; q < end; q++)
            accepted += t->r->source[k].window[q];
        cell[n++] = (struct row){ NULL, t->r->source[k].name, V_REAL(percent(accepted, s.tokens)), "@1 %" };
    }
}

struct table report_window_table(struct report_windows *t, const struct report *r, size_t lines)
{
    *t = (struct report_windows){ r, lines ? r->n_windows / lines + 1 : 1, !lines };
    return (struct table){ (r->n_windows + t->each - 1) / t->each, window_row, t };
}

/* ---- tables of several jobs ---- */

void report_anchor(char *out, size_t size, const struct report *r)
{
    const int n = snprintf(out, size, "#job-%" PRId64, r->job->id);
    if (r->db)
        snprintf(out + n, size - (size_t)n, "-%08" PRIx64,
                 hash64(HASH64_INIT, r->db, strlen(r->db)) & 0xffffffff);
}

/* The head of the commands that make baselines which jobs lack. */
#define REPORT_LACKS "a baseline is made by"

/* A mark stands after a speed that is a share of passes. */
static void job_row(const void *of, size_t i, struct row *cell)
{
    struct report_jobs *t = (struct report_jobs *)of;
    const struct report *r = &t->l->v[i];
    const struct counts *c = &r->sum;
    report_name(r, t->name, sizeof t->name);
    report_label(t->l, r, t->label, sizeof t->label);
    report_anchor(t->link, sizeof t->link, r);
    put_drafts(t->drafts, "", c, !r->undrafted && !r->tree_fixed);
    const struct row rows[] = {
        { NULL, "job", V_INT(r->job->id), .link = t->linked ? t->link : NULL },
        { NULL, "state", V_TEXT(job_state_name(r->job->state)) },
        { NULL, "ended by", V_TEXT(r->job->finish_reason) },
        { NULL, "tokens", V_UINT(r->job->tokens), "@," },
        { NULL, "tokens/s", V_REAL(figure(c, "tokens_per_second")),
          ran_alone(c) ? t->shares ? "@1 " : "@1" : "@1" SHARED_MARK },
        { NULL, "speedup", V_REAL(c->speedup), "@2" },
        { NULL, "length", V_REAL(figure(c, "mean_acceptance_length")), "@2" },
        { NULL, "alpha", V_REAL(figure(c, "alpha")), "@3" },
        { NULL, "drafted", V_NUMBER(drafts_of(c)), t->drafts },
        { NULL, "D-1", V_REAL(c->distinct[0]), "@4" },
        { NULL, "D-4", V_REAL(c->distinct[3]), "@4" },
        { NULL, "loops", V_REAL(c->repetitions), "@0" },
        { NULL, "name", V_TEXT(*t->name ? t->name : NULL), .unless = !t->named },
        { NULL, REPORT_LACKS, V_TEXT(report_baseline_command(t->command, r)), .unless = !t->lacking },
        { NULL, "differs in", V_TEXT(t->label), .unless = !t->l->n_differing } };
    memcpy(cell, rows, sizeof rows);
}

struct table report_job_table(struct report_jobs *t, const struct reports *l, bool linked)
{
    *t = (struct report_jobs){ .l = l, .linked = linked };
    for (size_t i = 0; i < l->n; i++) {
        const struct report *r = &l->v[i];
        report_name(r, t->name, sizeof t->name);
        t->named |= *t->name != 0;
        t->lacking |= report_baseline_command(t->command, r) != NULL;
        t->shares += !ran_alone(&r->sum);
    }
    return (struct table){ l->n, job_row, t };
}

/* The mean of a figure, its standard deviation or interval, and the number of jobs if fewer than all have
 * it. */
static void put_sum(char *unit, size_t size, const struct report_group *g, size_t k)
{
    const struct report_figure_sum *s = &g->figure[k];
    const int digits = report_group_columns[k].digits;
    int n = snprintf(unit, size, "@%d%s", digits, k == GROUP_SPEED && g->shared ? SHARED_MARK : "");
    if (isfinite(s->low))
        n += snprintf(unit + n, size - (size_t)n, " [%.*f, %.*f]", digits, s->low, digits, s->high);
    else if (isfinite(s->sd) && k != GROUP_SPEEDUP)
        n += snprintf(unit + n, size - (size_t)n, " \xc2\xb1%.*f", digits, s->sd);
    if (s->n && s->n != g->n)
        snprintf(unit + n, size - (size_t)n, " (%zu)", s->n);
}

static void group_row(const void *of, size_t i, struct row *cell)
{
    struct report_groups *t = (struct report_groups *)of;
    const struct report_group *g = &t->l->group[i];
    struct counts all = { 0 };
    figure_lists lists = { { 0 } };
    const char *command = NULL;
    int64_t plain = 0;
    size_t n = 0;
    bool planned = true;
    for (size_t k = 0; k < g->n; k++) {
        struct report *r = &t->l->v[g->job[k]];
        planned &= !r->undrafted && !r->tree_fixed;
        figures_add(&all, lists, &r->sum, r->list);
        command = command ? command : report_baseline_command(t->command, r);
        plain = plain ? plain : r->plain;
    }
    put_drafts(t->drafts, "", &all, planned);
    snprintf(t->more, sizeof t->more, g->figure[GROUP_SPEEDUP].n > 1 ? "job @ and %zu more" : "job @",
             g->figure[GROUP_SPEEDUP].n - 1);
    for (size_t k = 0; k < t->l->n_by; k++) {
        const char *name = t->l->by[k];
        cell[n++] = (struct row){ name, name, .value = report_value(&g->value[k]) };
        if (strcmp(name, "seed") == 0)
            cell[n++] = (struct row){ "seed_text", NULL, V_TEXT(report_value_text(&g->value[k])) };
    }
    cell[n++] = (struct row){ "n", "n", V_UINT(g->n) };
    cell[n++] = (struct row){ "shared_speeds", NULL, V_UINT(g->shared) };
    for (size_t k = 0; k < GROUP_FIGURES; k++) {
        const struct report_figure_sum *s = &g->figure[k];
        const char *name = report_group_columns[k].head;
        const struct row sums[] = { { "n", NULL, V_UINT(s->n) }, { "mean", NULL, V_REAL(s->mean) },
                                    { "sd", NULL, V_REAL(s->sd), .unless = k == GROUP_SPEEDUP },
                                    { "low", NULL, V_REAL(s->low), .unless = k != GROUP_SPEEDUP },
                                    { "high", NULL, V_REAL(s->high), .unless = k != GROUP_SPEEDUP }, { 0 } };
        memcpy(t->sum[k], sums, sizeof sums);
        put_sum(t->unit[k], sizeof t->unit[k], g, k);
        cell[n++] = (struct row){ name, NULL, V_ROWS(t->sum[k]) };
        if (k < report_group_figures(t->l))
            cell[n++] = (struct row){ NULL, name, V_REAL(s->mean), t->unit[k] };
        if (k != GROUP_SPEEDUP)
            continue;
        cell[n++] = (struct row){ "baseline", "baseline", V_NUMBER(plain ? (double)plain : NAN), t->more };
        cell[n++] = (struct row){ "baseline_command", t->lacking ? REPORT_LACKS : NULL, V_TEXT(command) };
    }
    cell[n++] = (struct row){ "rounds", NULL, V_INT(llround(all.rounds)) };
    cell[n++] = (struct row){ "rounds_drafted", "drafted", V_NUMBER(drafts_of(&all)), t->drafts };
    for (size_t k = 0; k < t->depths; k++) {
        snprintf(t->depth[k], sizeof t->depth[k], "acceptance_at_%zu", k + 1);
        cell[n++] = (struct row){ t->depth[k], k ? strrchr(t->depth[k], '_') + 1 : "accepted at 1",
                                  V_REAL(lists[LIST_ACCEPTED][k + 1] / lists[LIST_REACHED][k + 1]), "@2" };
    }
}

struct table report_group_table(struct report_groups *t, const struct reports *l)
{
    *t = (struct report_groups){ .l = l };
    for (size_t i = 0; i < l->n; i++) {
        t->depths = MAX(t->depths, figure_list_end(l->v[i].list[LIST_REACHED]) - 1);
        t->lacking += report_baseline_command(t->command, &l->v[i]) != NULL;
    }
    t->depths = MIN(t->depths, (size_t)GROUP_DEPTHS);
    for (size_t i = 0; i < l->n_groups; i++)
        t->shared += l->group[i].shared;
    return (struct table){ l->n_groups, group_row, t };
}
