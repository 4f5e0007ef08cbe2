/* The figures of a report: one table that says for each of them its names, its unit, and how it follows from
 * what the store has counted. All formats read this table: `report` in its four formats, `show`, `export`,
 * --json-stats and the Prometheus file of `work --metrics`.
 *
 *     figures_read(&counts, lists, store, job, &e)          the counters of a job, or:
 *     figures_count(&counts, lists, &metric)                each counter of the store (store_metrics)
 *     figures_add_stats(&counts, lists, &stats)             those of a text that is being written
 *     figures_complete(&counts, lists, fixed)               after the last one
 *     figure(&counts, "alpha")                              NAN: undefined
 *
 * To add a figure, add its counter to struct counts, if it needs one, and a row to the table in figures.c.
 * JSON and CSV have the figure then. Text and pages choose the figures that they show, by name. */
#pragma once
#include "runs/store/store.h"
#include "src/base/json_write.h"
#include "src/decode/stats.h"
#include "src/text/distinct.h"

/* What is counted of a job, or of a window of its text. Times are in seconds, and of all attempts. */
struct counts {
    double tokens, rounds, drafted, rows, accepted, drafted_depth, beta_accepted, draft_passes, refreshes;
    double seconds, draft, verify, control;
    double plain;                        /* estimate for the same text written one token at a time */
    /* rounds whose time the planner foresaw: what it foresaw, and what they took */
    double predicted_rounds, predicted, measured;
    double prefill_tokens, prefill_seconds;
    double commits, commit_seconds, commit_cpu;          /* checkpoints, by the thread that writes them */
    double put;                                          /* time that checkpoints took from the decode loop */
    double snapshots, snapshot_bytes, snapshot_seconds, snapshot_cpu, snapshot_put;      /* likewise */
    double restored, restore_seconds;                    /* tokens that came from snapshots */
    double saved;                        /* estimate of what they saved (runs/work/snapshot_policy.h) */
    /* of the rounds that the job shared or could have shared: tokens of all jobs in them, and seconds */
    double worker_tokens, worker_seconds;
    /* figures_complete: drafted_depth if the tree has a fixed shape; rounds with candidates; rounds that the
     * job could have shared, and those of them that it did not share */
    double beta_depth, drafts, shareable, alone;
    /* figures_add sums the fields above. Of a report, not of the store: tokens of the text, generated and
     * given; speedups; Distinct-n */
    double prompt, generated, given, wanted, resumes, repetitions;
    double retakes, cut;                 /* of the job's own tokens; tokens that they took back */
    double speedup, estimate;            /* measured; estimated */
    double distinct[DISTINCT_MAX], so_far[DISTINCT_MAX], words[DISTINCT_MAX];
    double repeats;                      /* share of the words that repeat (src/text/repeats.h) */
};

/* Counts by depth, from 1; of LIST_HISTOGRAM: rounds by their tokens; of LIST_JOBS: rounds by the number of
 * jobs in them. */
enum figure_list { LIST_JOBS, LIST_REACHED, LIST_ACCEPTED, LIST_HISTOGRAM, LISTS };
enum { FIGURE_DEPTHS = 65 };
typedef double figure_lists[LISTS][FIGURE_DEPTHS];
/* The end of list v: the index after the last one that is not 0, at least 1. */
size_t figure_list_end(const double v[FIGURE_DEPTHS]);

/* Where a figure is shown: a column of CSV; a member of --json-stats; of the windows of report; of the
 * windows of --json-stats. report --json has ranges of rows (runs/report/report_json.c): a figure with a JSON
 * name within a range is a member. */
enum { IN_CSV = 1, IN_STATS = 2, IN_WINDOWS = 4, IN_STATS_WINDOWS = 8 };
enum figure_unit {
    UNIT_COUNT, UNIT_SECONDS, UNIT_ROUND /* seconds of a round */, UNIT_RATE, UNIT_RATIO, UNIT_SHARE,
    UNIT_TRUTH,
};

struct figure {
    const char *name;                    /* also of the column of CSV */
    const char *json;                    /* "time.draft": member `draft` of the object `time`; NULL: none */
    const char *counter;                 /* the counter of the store that it is; NULL: it follows from some */
    enum figure_unit unit;
    struct figure_how {
        size_t part, of;                 /* a field of struct counts; of SIZE_MAX: it is the figure itself */
        double (*by)(const struct counts *c);        /* NULL: part / of */
    } how;
    unsigned where;
    const char *metric, *help;           /* a metric of `work --metrics`, and what it says; NULL: none */
};
extern const struct figure figures[];    /* ends with a row without a name */

/* Adds a counter of the job; list NULL: of a window. Counters of single drafters are left out. */
void figures_count(struct counts *c, figure_lists list, const struct metric *m);
void figures_add_stats(struct counts *c, figure_lists list, const struct draft_stats *s);
/* Adds the counters of another window or job; the lists may be NULL. The figures of a report stay. */
void figures_add(struct counts *c, figure_lists list, const struct counts *more, figure_lists more_list);
void figures_complete(struct counts *c, figure_lists list, bool tree_fixed);
/* Counts and completes a job of the store, as of a tree without a fixed shape: beta is undefined. */
int  figures_read(struct counts *c, figure_lists list, struct store *s, int64_t job, struct err *e);

/* A name that the table does not have is a bug, and fails an assertion. */
const struct figure *figure_find(const char *name);
double figure_value(const struct figure *f, const struct counts *c);
double figure(const struct counts *c, const char *name);
/* Whether no other job was in any of the job's rounds. The speed of another job is its share of the passes
 * by rows: tables show SHARED_MARK after it and SHARED_NOTE below, JSON and CSV have `ran_alone`. */
bool   ran_alone(const struct counts *c);
#define SHARED_MARK "*"
#define SHARED_NOTE "* speed of a job that shared passes with other jobs: its share of them by rows"

/* Writes the members `from` to `to` of the table. where: only of rows with this flag, with the digits of
 * --json-stats for the two that are its; 0: of all rows. */
void figures_json(struct json_writer *w, const struct counts *c, const char *from, const char *to,
                  unsigned where);
/* The lists `from` to LIST_HISTOGRAM, as arrays that begin with depth 1. */
void figures_json_lists(struct json_writer *w, figure_lists list, enum figure_list from);

/* A column of a table for people: a figure, its head, and its digits after the point. */
struct figure_column { const char *figure, *head; int digits; };
