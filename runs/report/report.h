/* How jobs were written and how their texts read: figures from the store, as a table, JSON, CSV or a page.
 *
 *     reports_open(&l, sources, n, &options, &e)      jobs of one database or of several
 *     report_table | report_json | report_csv | report_html (f, &l)      grouped by options.by if it is set
 *     reports_close(&l)
 *
 * Only committed tokens count, and all figures of one job are from one moment. The store keeps counters by
 * window of 1,000 tokens; a round belongs to the window in which it begins. Distinct-n and repetitions are
 * computed here from the token ids, without given tokens. Words, repeats and excerpts need the tokenizer of
 * the job's model. The store has it; of a job of an older longhand they are null when the model's folder is
 * gone.
 *
 * Speedup is measured against a baseline: a job of the report with --drafter none that wrote the same text,
 * from the same prompt, with the same seed, sample, model, arithmetic and parameters. A job without one has
 * no speedup, but a command that makes one. What its one-row passes tell is called an estimate. A job that
 * shared its passes with other jobs is charged its share of each pass by rows (`seconds`), which says
 * little about the time that it would take alone: such a job has no speedup, neither measured nor estimated,
 * and its speed is marked (ran_alone).
 *
 * Texts, names and messages come from outside. Tables show what is not printable as \xNN or \u{...}. CSV
 * cells that a spreadsheet would take for a formula begin with an apostrophe. Pages are escaped, load
 * nothing and run nothing, and a policy in the page forbids both. */
#pragma once
#include <stdio.h>

#include "runs/store/figures.h"
#include "src/base/sheet.h"
#include "src/text/loop.h"
#include "src/text/repeats.h"

enum { REPORT_BY_MAX = 8, REPORT_DIFFERING_MAX = 8 };

struct report_parameter {
    char *name;                          /* "temperature", "drafting.drafter", "metadata.book" */
    char *value;                         /* as people read it: a text without quotes, else JSON; NULL: null */
    bool is_number, is_text;
};

struct report_source { const char *name; double drafted, accepted, *window; };   /* window [n_windows] */
struct report_window {
    size_t start, n;                     /* tokens of the text */
    bool partial;                        /* shorter than METRIC_WINDOW: its figures say less */
    struct counts sum;
    size_t text_end;                     /* bytes of the text up to the end of the window */
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
    uint8_t prompt[SHA256_BYTES];        /* of its token ids */
    bool unique;         /* with --verifier paper, or parameters that changed: no plain job writes the text */
    struct report_parameter *parameter; size_t n_parameters;
    size_t tokens, given;                /* generated tokens; tokens that extend and fork added */
    struct counts sum;
    figure_lists list;
    struct report_source *source; size_t n_sources;
    struct report_window *window; size_t n_windows;
    bool tree_fixed, undrafted;          /* --tree; --drafter none */
    bool has_words;
    size_t n_words;
    struct report_repetition *repetition; size_t n_repetitions;
    struct repeats repeats;              /* of the words; the phrases that the text repeats */
    struct round_list rounds;            /* with report_options.rounds */
    struct event_list events;
    struct retakes retakes;
    int64_t plain;                       /* the baseline; 0: none */
    struct metric_list metrics;          /* owns the names of the sources */
    const char *no_text;                 /* why no words are known, or NULL */
};

struct report_options {
    bool rounds;                         /* read every stored round */
    bool windows;                        /* report_csv writes the windows of every job, one line each */
    const char *by;                      /* parameters to group by: "temperature,drafter", ..; or NULL */
};

struct report_from { struct store *store; const int64_t *ids; size_t n; };  /* jobs of one database */

/* The value of a parameter of a job. */
struct report_value {
    const char *text;                    /* NULL: see number */
    bool is_text;                        /* else JSON: a number, true, .. */
    char number[24];                     /* ""; of a job without the parameter */
};
/* Those that a job has apart from its parameters: the first ones are shown, --by takes all but fingerprint.
 * NULL: there are no more. */
enum { REPORT_OWN_SHOWN = 7 };
const char *report_own(struct report_value *v, const struct job *j, size_t i);

/* Means over the jobs with the same values of the parameters that they are grouped by. n counts the jobs for
 * which the figure is defined. Distinct-n is compared only when all jobs have the same length: the last
 * DISTINCT_MAX figures are left out otherwise. */
enum { GROUP_SPEED, GROUP_SPEEDUP, GROUP_FIGURES = 5 + DISTINCT_MAX };
struct reports;
extern const struct figure_column report_group_columns[GROUP_FIGURES];
size_t report_group_figures(const struct reports *l);
/* Half of the 95 % confidence interval of the mean of n values with this sample standard deviation, by
 * Student's t. NAN for n < 2. */
double report_interval(size_t n, double sd);
/* sd: sample standard deviation; low, high: 95 % interval of the mean, of speedups. NAN for n < 2. */
struct report_figure_sum { size_t n; double mean, sd, low, high; };
struct report_group {
    const struct report_value *value;    /* [n_by] */
    const size_t *job; size_t n;         /* places in reports.v, ascending */
    size_t shared;                       /* jobs that shared passes with other jobs */
    struct report_figure_sum figure[GROUP_FIGURES];
};

struct reports {
    struct report *v; size_t n;
    struct report_options o;
    char *by_text; const char *by[REPORT_BY_MAX]; size_t n_by;           /* the names of options.by */
    struct report_value *value;          /* [n][n_by] */
    size_t *order;                       /* of the jobs, by their values */
    struct report_group *group; size_t n_groups;                         /* in the order of their values */
    const char *differing[REPORT_DIFFERING_MAX]; size_t n_differing;     /* parameters that differ */
    bool equal_lengths;
};

/* A job that was removed since its id was selected is left out. */
int reports_open(struct reports *l, const struct report_from *from, size_t n, const struct report_options *o,
                 struct err *e);
void reports_close(struct reports *l);

/* The steps of reports_open after the jobs are read (report_group.c). */
int  reports_find_speedups(struct reports *l, struct err *e);
int  reports_group(struct reports *l, struct err *e);
void reports_find_differences(struct reports *l);
const char *report_value_text(const struct report_value *v);
struct value report_value(const struct report_value *v);     /* for a sheet */
/* "temperature=0.6, drafter=none": the values of a group, or what tells a job from the others. "" if nothing
 * does. */
void report_group_label(const struct reports *l, const struct report_group *g, char *out, size_t size);
void report_label(const struct reports *l, const struct report *r, char *out, size_t size);
/* The command that makes the baseline of a job, in `out`; NULL: it has one, or can have none. */
enum { REPORT_COMMAND = 300 };
const char *report_baseline_command(char out[REPORT_COMMAND], const struct report *r);
/* The share of the job's rounds that had n jobs. NAN: not known. */
double report_with(const struct report *r, size_t n);
/* The windows without a last one that is shorter. */
size_t report_full_windows(const struct report *r);
/* The job's name or @batch/custom_id, "" when it has none; with several databases also the database's
 * path. */
void   report_name(const struct report *r, char *out, size_t size);

/* Writes the members of --json-stats that follow from the statistics of a run, "seconds" to "windows".
 * tokens: by how many the text grew. */
void report_put_stats(struct json_writer *w, const struct draft_stats *s, size_t tokens,
                      double prefill_seconds, bool tree_fixed);

/* ---- rows and tables of sheets (report_sheet.c), which all formats have from here ---- */

enum { REPORT_ROWS_MAX = 32 };
/* Texts that rows borrow, and what the tables with such a struct need while they are printed. */
struct report_texts { char company[600], plain[64], drafts[100], command[REPORT_COMMAND]; };
struct report_retakes { const struct retakes *l; size_t from; char title[120], line[SHEET_TEXT]; };
struct report_parameters { const struct report *r; struct report_value own; };
struct report_windows { const struct report *r; size_t each; bool all; };
struct report_jobs {
    const struct reports *l;
    bool linked, named, lacking;         /* lacking: some job needs a baseline */
    size_t shares;                       /* of the mark SHARED_MARK */
    char name[600], label[300], link[64], drafts[100], command[REPORT_COMMAND];
};
enum { GROUP_DEPTHS = 16 };
struct report_groups {
    const struct reports *l;
    struct row sum[GROUP_FIGURES][6];
    char unit[GROUP_FIGURES][64], depth[GROUP_DEPTHS][24], drafts[100];
    char more[40], command[REPORT_COMMAND];
    size_t depths;                       /* that some job reached, at most GROUP_DEPTHS */
    size_t shared, lacking;              /* jobs */
};

void report_speed_rows(struct row out[REPORT_ROWS_MAX], struct report_texts *t, const struct report *r);
void report_time_rows(struct row out[REPORT_ROWS_MAX], const struct report *r);
enum report_part { REPORT_SOURCES, REPORT_DEPTHS, REPORT_DISTINCT, REPORT_PHRASES, REPORT_REPETITIONS,
                   REPORT_ROUNDS };
struct table report_part(const struct report *r, enum report_part part);
/* What the job has apart from its parameters comes first. */
struct table report_parameter_table(struct report_parameters *t, const struct report *r);
struct table report_event_table(const struct event_list *events);
/* The last retakes; c: the counts of t->title. */
struct table report_retake_table(struct report_retakes *t, const struct retakes *l, size_t last,
                                 const struct counts *c);
/* At most `lines` windows and one more, joined from several; 0: all of them, with more columns. */
struct table report_window_table(struct report_windows *t, const struct report *r, size_t lines);
/* linked: a page has a section for each job, under report_anchor. */
struct table report_job_table(struct report_jobs *t, const struct reports *l, bool linked);
struct table report_group_table(struct report_groups *t, const struct reports *l);
/* "#job-7". With several databases job numbers repeat, so the path is part of it. */
void report_anchor(char *out, size_t size, const struct report *r);

/* Renderers. The caller checks f for write errors; -1 only when memory runs out. */
int report_table(FILE *f, const struct reports *l, struct err *e);
int report_json(FILE *f, const struct reports *l, struct err *e);
int report_csv(FILE *f, const struct reports *l, struct err *e);
int report_html(FILE *f, const struct reports *l, struct err *e);
/* Parts of the page: the table of the groups of --by; what several jobs have before their sections, which are
 * links when there are at most sections_max. False: no memory. */
void report_by(FILE *f, const struct reports *l);
bool report_overview(FILE *f, const struct reports *l, size_t sections_max);
