/* How jobs were written and how their texts read: figures from the store, as a table, JSON, CSV or a page.
 *
 *     reports_open(&l, sources, n, &options, &e)      jobs of one database or of several
 *     report_table | report_json | report_csv | report_html (f, &l)      grouped by options.by if it is set
 *     reports_close(&l)
 *
 * Only committed tokens count, and all figures of one job are from one moment. The store keeps counters by
 * window of 1,000 tokens; a round belongs to the window in which it begins. Distinct-n and repetitions are
 * computed here from the token ids, without given tokens. Words and excerpts need the tokenizer of the
 * job's model. The store has it; of a job of an older longhand they are null when the model's folder is gone.
 *
 * Speedup is measured where the report includes a plain job, written one token at a time, of the same
 * model, arithmetic, prompt length and text length. Otherwise it is estimated, and called an estimate,
 * from the one-row passes that the planner measured while it wrote the text. A job that shared its passes
 * with other jobs is charged its share of each pass by rows (`seconds`), which says little about the time
 * that it would take alone: such a job has no speedup, neither measured nor estimated.
 *
 * Texts, names and messages come from outside. Tables show what is not printable as \xNN or \u{...}. CSV
 * cells that a spreadsheet would take for a formula begin with an apostrophe. Pages are escaped, load
 * nothing and run nothing, and a policy in the page forbids both. */
#pragma once
#include <stdio.h>

#include "runs/store/store.h"
#include "src/base/json_write.h"
#include "src/text/distinct.h"
#include "src/text/loop.h"

/* REPORT_DEPTHS: also of the numbers of jobs in a round */
enum { REPORT_DEPTHS = 65, REPORT_BY_MAX = 8, REPORT_DIFFERING_MAX = 8 };

struct report_sum {                      /* of a window, or of a job; times in seconds */
    double tokens, rounds, drafted, rows, accepted, drafted_depth, beta_accepted, draft_passes, refreshes;
    double seconds, draft, verify, control;
    double plain;                        /* estimate for the same text written one token at a time */
    /* rounds whose time the planner foresaw: what it foresaw, and what they took */
    double predicted_rounds, predicted, measured;
    double prefill_tokens, prefill_seconds;              /* of all attempts */
    double commits, commit_seconds, commit_cpu;          /* checkpoints, by the thread that writes them */
    double put;                                          /* time that checkpoints took from the decode loop */
    double snapshots, snapshot_bytes, snapshot_seconds, snapshot_cpu, snapshot_put;      /* likewise */
    double restored, restore_seconds;                    /* tokens that came from snapshots */
    double saved;                        /* estimate of what they saved (runs/work/snapshot_policy.h) */
    /* of the rounds that the job shared or could have shared: tokens of all jobs in them, and seconds */
    double worker_tokens, worker_seconds;
};

struct report_parameter {
    char *name;                          /* "temperature", "drafting.drafter", "metadata.book" */
    char *value;                         /* as people read it: a text without quotes, else JSON; NULL: null */
    bool is_number, is_text;
};

struct report_source {
    const char *name;
    double drafted, accepted;
    double *window;
}; /* window [n_windows] */
struct report_window {
    size_t start, n;                     /* tokens of the text */
    struct report_sum sum;
    double distinct[DISTINCT_MAX], so_far[DISTINCT_MAX];                   /* NAN: undefined */
};
struct report_repetition {
    struct repetition at;
    bool open;                           /* the text ends in the repetition */
    char *excerpt;                       /* NULL: no tokenizer */
};

struct report {
    struct job_list row;                 /* the job, as the figures were read */
    const struct job *job;               /* in `row` */
    const char *db;                      /* the path of its database when there are several, else NULL */
    char *json, *metadata;               /* the stored parameters, an object; the metadata, or NULL */
    struct report_parameter *parameter; size_t n_parameters;
    size_t tokens, given;                /* generated tokens; tokens that extend and fork added */
    struct report_sum sum;
    double reached[REPORT_DEPTHS], accepted_at[REPORT_DEPTHS];             /* by depth, from 1 */
    double histogram[REPORT_DEPTHS]; /* rounds by their tokens, from 1 */
    double with[REPORT_DEPTHS];            /* rounds by the number of jobs in them, from 1 */
    struct report_source *source; size_t n_sources;
    struct report_window *window; size_t n_windows;
    bool tree_fixed, has_words;
    double distinct[DISTINCT_MAX], words[DISTINCT_MAX]; size_t n_words;    /* NAN: undefined */
    struct report_repetition *repetition; size_t n_repetitions;
    struct round_list rounds;            /* with report_options.rounds */
    struct event_list events;
    double speedup; int64_t plain;       /* NAN or the measured speedup, and the plain job */
    double estimate; /* estimated speedup; NAN: nothing was drafted, or with a fixed tree */
    struct metric_list metrics;          /* owns the names of the sources */
    const char *no_text;                 /* why no words are known, or NULL */
};

struct report_options {
    bool rounds;                         /* read every stored round */
    bool windows;                        /* report_csv writes the windows of every job, one line each */
    const char *by; /* parameters to group by: "temperature,drafter", "model", ..; or NULL */
};

struct report_from { struct store *store; const int64_t *ids; size_t n; };  /* jobs of one database */

/* The value of a parameter of a job. */
struct report_value {
    const char *text;                    /* NULL: see number */
    bool is_text;                        /* else JSON: a number, true, .. */
    char number[24];                     /* ""; of a job without the parameter */
};

/* Means over the jobs with the same values of the parameters that they are grouped by. n counts the jobs for
 * which the figure is defined. Distinct-n is compared only when all jobs have the same length. */
enum report_figure { FIGURE_SPEED, FIGURE_SPEEDUP, FIGURE_LENGTH, FIGURE_ALPHA, FIGURE_LOOPS, FIGURE_DISTINCT,
                     FIGURES = FIGURE_DISTINCT + DISTINCT_MAX };
extern const char *const report_figure_names[FIGURES];
struct report_figure_sum { size_t n; double mean, sd; };  /* sd: sample standard deviation, NAN for n < 2 */
struct report_group {
    const struct report_value *value;    /* [n_by] */
    const size_t *job; size_t n;         /* places in reports.v, ascending */
    size_t estimated;                    /* jobs whose speedup is an estimate */
    struct report_figure_sum figure[FIGURES];
};

struct reports {
    struct report *v; size_t n;
    struct report_options o;
    char *by_text; const char *by[REPORT_BY_MAX]; size_t n_by;           /* the names of options.by */
    struct report_value *value;          /* [n][n_by] */
    size_t *order;                       /* of the jobs, by their values */
    struct report_group *group; size_t n_groups;                         /* in the order of their values */
    const char *differing[REPORT_DIFFERING_MAX];
    size_t n_differing; /* parameters that differ between jobs */
    bool equal_lengths;
};

/* A job that was removed since its id was selected is left out. */
int reports_open(struct reports *l, const struct report_from *from, size_t n, const struct report_options *o,
                 struct err *e);
void reports_close(struct reports *l);

/* The two steps of reports_open after the jobs are read (report_group.c). */
int  reports_group(struct reports *l, struct err *e);
void reports_find_differences(struct reports *l);
const char *report_value_text(const struct report_value *v);
/* "temperature=0.6, drafter=none": the values of a group, or what tells a job from the others. "" if nothing
 * does. */
void report_group_label(const struct reports *l, const struct report_group *g, char *out, size_t size);
void report_label(const struct reports *l, const struct report *r, char *out, size_t size);
/* The measured speedup, else the estimate. Renderers mark an estimate with ~. */
double report_best_speedup(const struct report *r);

/* Derived figures; NAN where they are undefined. */
double report_speed(const struct report_sum *s);         /* tokens per second of decoding */
double report_acceptance(const struct report_sum *s);    /* tokens per verification pass */
double report_alpha(const struct report_sum *s);
/* Seconds of a round: as the planner foresaw them, and as measured. */
double report_round_predicted(const struct report_sum *s);
double report_round_measured(const struct report_sum *s);
/* Of all jobs of the worker together, while this one was written. */
double report_worker_speed(const struct report_sum *s);
/* The share of the job's rounds that had n jobs; n 0: more than one. NAN: not known. */
double report_with(const struct report *r, size_t n);
bool   report_ran_alone(const struct report *r);         /* no other job was in any of its rounds */
double report_beta(const struct report *r, const struct report_sum *s);
/* The cost of checkpoints and of snapshots as a share of the time. The CPU time of the writing thread counts
 * as if the decode loop had spent it. */
double report_checkpoint_share(const struct report *r);
double report_snapshot_share(const struct report *r);
/* The job's name or @batch/custom_id, "" when it has none; with several databases also the database's
 * path. */
void   report_name(const struct report *r, char *out, size_t size);

/* Writes the member "events": the history of a job. */
void report_put_events(struct json_writer *w, const struct event_list *events);

/* Renderers. The caller checks f for write errors; -1 only when memory runs out. */
int report_table(FILE *f, const struct reports *l, struct err *e);
int report_json(FILE *f, const struct reports *l, struct err *e);
int report_csv(FILE *f, const struct reports *l, struct err *e);
int report_html(FILE *f, const struct reports *l, struct err *e);
