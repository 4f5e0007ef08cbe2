/* How texts were made and how they read: what the store has about jobs, put together and shown as a table for people, JSON, CSV or a page.
 *
 *     reports_open(&l, sources, n, &options, &e)              jobs of one database or several; then each is told with its path
 *     report_table | report_json | report_csv | report_html (f, &l)      or the same by a parameter, where options.by is set
 *     reports_close(&l)
 *
 * Only committed tokens count. Counters come from the store, which keeps them by window of 1,000 tokens; a round belongs to the window that it
 * begins in. Distinct-n and repetitions are computed from the token ids here, given tokens left out; words and excerpts need the tokenizer of the
 * job's model, and are null when its folder is gone. Definitions: INTERFACES.
 *
 * Speedup is told where it was measured: against a job of the same model, arithmetic, prompt length and text length among those that are reported which
 * was written one token at a time. Otherwise it is estimated, and called so, from the passes of one row that the controller measured on the way.
 *
 * Texts, names and messages come from outside. In tables what is not printable is shown as \xNN or \u{...}; CSV cells that a spreadsheet would
 * take for a formula get an apostrophe in front; pages are escaped, load nothing and run nothing (a policy in the page says so too). */
#pragma once
#include <jansson.h>
#include <stdio.h>

#include "runs/store/store.h"
#include "src/text/distinct.h"
#include "src/text/loop.h"

enum { REPORT_DEPTHS = 64 };

struct report_sum {                      /* of a window, or of a job */
    double tokens, rounds, drafted, rows, accepted, drafted_depth, beta_accepted, draft_passes, refreshes;
    /* plain: of the same text one token at a time, as estimated on the way */
    double seconds, draft, verify, control, plain;
    double prefill_tokens, prefill_seconds;              /* of every attempt */
    double commits, commit_seconds, commit_cpu, put;     /* checkpoints: wall and CPU time beside the decode loop; taken from it */
    double snapshots, snapshot_bytes, snapshot_seconds, snapshot_cpu, snapshot_put;      /* of the KV cache: the same */
    double restored, restore_seconds, saved;             /* tokens that came from snapshots, in which time; what that saved, as estimated (runs/work/snapshot_policy.h) */
};

/* window [n_windows]: accepted */
struct report_source { const char *name; double drafted, accepted; double *window; };
struct report_window { size_t start, n; struct report_sum sum; double distinct[DISTINCT_MAX], so_far[DISTINCT_MAX]; };   /* n: tokens of the text; NAN: none */
struct report_repetition { struct repetition at; bool open; char *excerpt; };      /* open: the text ends in it; excerpt NULL: no tokenizer */

struct report {
    const struct job *job;
    const char *db;                      /* path of its database where there are several; else NULL */
    json_t *parameters;                  /* an object */
    size_t tokens, given;                /* generated; put in by extend and fork */
    struct report_sum sum;
    /* by depth from 1; by tokens of a round from 1 */
    double reached[REPORT_DEPTHS], accepted_at[REPORT_DEPTHS], histogram[REPORT_DEPTHS];
    struct report_source *source; size_t n_sources;
    struct report_window *window; size_t n_windows;
    bool tree_fixed, has_words;
    double distinct[DISTINCT_MAX], words[DISTINCT_MAX]; size_t n_words;    /* NAN: none */
    struct report_repetition *repetition; size_t n_repetitions;
    struct round_list rounds;            /* where asked for */
    struct event_list events;
    double speedup; int64_t plain;       /* NAN; the job that it was measured against */
    double estimate;                     /* of the speedup, from passes that were measured on the way; NAN: nothing was drafted, or with a fixed tree */
    struct metric_list metrics;          /* owns the sources' names */
    const char *no_text;                 /* why there are no words; NULL: there are */
};

/* by: a parameter's name as in "parameters", "drafting.drafter", "model", "prompt_tokens", ...; NULL */
struct report_options { bool rounds; const char *by; };

struct report_from { struct store *store; const int64_t *ids; size_t n; };  /* jobs of one database */

struct reports {
    struct job_list *jobs; size_t n_lists;           /* by database */
    struct report *v; size_t n;
    struct report_options o;
    struct report_group *group; size_t n_groups;     /* with by */
    bool equal_lengths;
};

int reports_open(struct reports *l, const struct report_from *from, size_t n, const struct report_options *o,
                 struct err *e);
void reports_close(struct reports *l);

/* Means over the jobs with one value of the parameter; n of a figure counts the jobs that have it. Distinct-n only where all jobs have the same length. */
enum report_figure { FIGURE_SPEED, FIGURE_LENGTH, FIGURE_ALPHA, FIGURE_DISTINCT,
                     FIGURES = FIGURE_DISTINCT + DISTINCT_MAX };
extern const char *const report_figure_names[FIGURES];
struct report_figure_sum { size_t n; double mean, sd; };  /* sd: of a sample, NAN for n < 2 */
struct report_group { char *value; size_t n; struct report_figure_sum figure[FIGURES]; };

/* Derived figures; NAN where they are not defined. */
double report_speed(const struct report_sum *s);         /* tokens per second of decoding */
double report_acceptance(const struct report_sum *s);    /* tokens per verification pass */
double report_alpha(const struct report_sum *s);
double report_beta(const struct report *r, const struct report_sum *s);
/* What a checkpoint costs: its share of the time, the thread beside included as if the decode loop had done its work. */
double report_checkpoint_share(const struct report *r);
double report_snapshot_share(const struct report *r);    /* likewise */
/* name, or @batch/custom_id; "" when the job has none. With several databases also its path. */
void   report_name(const struct report *r, char *out, size_t size);
/* The JSON value as people read it: strings without quotes. free it. */
char  *report_value(const json_t *v);
/* The parameters one level deep: "temperature", "drafting.drafter". Calls f for each. */
void report_parameters(const struct report *r, void (*f)(void *ctx, const char *name, const json_t *v),
                       void *ctx);

/* Renderers. They write to f, whose errors are the caller's to look at; -1 only without memory. */
int report_table(FILE *f, const struct reports *l, struct err *e);
int report_json(FILE *f, const struct reports *l, struct err *e);
int report_csv(FILE *f, const struct reports *l, struct err *e);
int report_html(FILE *f, const struct reports *l, struct err *e);
