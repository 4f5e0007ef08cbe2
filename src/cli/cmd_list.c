/* longhand list: counts, and a table of jobs with the columns that the user asks for. struct column is one of
 * them; start at cmd_list. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runs/report/job_sheet.h"
#include "runs/store/figures.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/model/model_caches.h"

enum { CELL = 512, COLUMNS_MAX = 16, MEASURED_MAX = 1000 };      /* rows that decide the columns' widths */

/* ---- figures ---- */

static double job_age(const struct job *j) { return MAX(wall_seconds() - j->created, 0.0); }

/* ---- columns ---- */

/* cut: a longer value is cut, unless the column is the last one or --columns names it; 0: none is. */
static const struct column { const char *name, *head; size_t cut; } columns[] = {
    { "job", "job" }, { "state", "state" }, { "tokens", "tokens" }, { "rate", "tokens/s" },
    { "finish", "finish" }, { "age", "age" }, { "model", "model", 20 }, { "name", "name", 40 },
    { "prompt", "prompt" }, { "custom_id", "custom_id", 40 }, { "error", "error" },
    { "priority", "priority" }, { "seed", "seed" }, { "sample", "sample" },
};
enum { JOB, STATE, TOKENS, RATE, FINISH, AGE, MODEL, NAME, PROMPT, CUSTOM_ID, ERROR, PRIORITY, SEED, SAMPLE,
       N_COLUMNS };
static_assert(sizeof columns / sizeof *columns == N_COLUMNS, "the columns have the order of their numbers");

/* For JSON and to sort by. A name is its text. */
static struct value value_of(const struct column *c, const struct job *j)
{
    switch (c - columns) {
    case JOB:       return (struct value)V_INT(j->id);
    case STATE:     return (struct value)V_TEXT(job_state_name(j->state));
    case TOKENS:    return (struct value)V_UINT(j->tokens);
    case RATE:      return (struct value)V_NUMBER(job_speed(j) > 0 ? job_speed(j) : NAN);
    case FINISH:    return (struct value)V_TEXT(j->finish_reason);
    case AGE:       return (struct value)V_NUMBER(job_age(j));
    case MODEL:     return (struct value)V_TEXT(j->model);
    case PROMPT:    return (struct value)V_TEXT(j->opening);
    case CUSTOM_ID: return (struct value)V_TEXT(j->custom_id);
    case ERROR:     return (struct value)V_TEXT(j->error);
    case PRIORITY:  return (struct value)V_INT(j->priority);
    case SEED:      return (struct value)V_WIDE(j->seed);
    case SAMPLE:    return (struct value)V_UINT(j->sample);
    default:        return (struct value)V_TEXT(NULL);
    }
}

/* A number is sorted as such, and stands at the right. */
static bool is_number(const struct column *c)
{
    return value_is_number(value_of(c, &(struct job){ 0 }).kind);
}

/* "42s", "15m", "3h", "12d" */
static void put_age(char out[CELL], const struct job *j)
{
    static const struct { double below, unit; char name;
    } units[] = { { 120, 1, 's' }, { 7200, 60, 'm' }, { 172800, 3600, 'h' }, { INFINITY, 86400, 'd' } };
    const double age = job_age(j);
    size_t i = 0;
    while (age >= units[i].below)
        i++;
    snprintf(out, CELL, "%.0f%c", floor(age / units[i].unit), units[i].name);
}

static void put_error(char out[CELL], const struct job *j)
{
    char still[600];
    if (j->waits)
        snprintf(still, sizeof still, "waits for %.500s%s%s", j->after_name,
                 strcmp(j->waits, "queued") && strcmp(j->waits, "running") ? ", " : "",
                 strcmp(j->waits, "queued") && strcmp(j->waits, "running") ? j->waits : "");
    else if (j->older)
        snprintf(still, sizeof still, "older text of %.500s", j->after_name);
    else
        snprintf(still, sizeof still, "no progress for %.0f s", j->stalled);
    terminal_text(out, CELL,
                  j->gone          ? "its process has ended, longhand work continues it"
                  : j->stalled > 0 || j->waits || (j->older && !j->error) ? still
                  : j->error       ? j->error
                                   : "");
}

/* The first words of the prompt; of a job that fails, waits or stands still, why. */
static void put_prompt(char out[CELL], const struct job *j)
{
    char words[CELL];
    size_t n = 0;
    put_error(out, j);
    if (*out)
        return;
    for (const char *p = j->opening ? j->opening : ""; *p && n < sizeof words - 1; p++) {
        const bool space = strchr(" \t\r\n", *p) != NULL;
        if (!space || (n && words[n - 1] != ' '))
            words[n++] = space ? ' ' : *p;
    }
    words[n] = 0;
    terminal_text(out, CELL, words);
}

/* For people. */
static void put_column(char out[CELL], const struct column *c, const struct job *j)
{
    char name[CELL];
    *out = 0;
    switch (c - columns) {
    case TOKENS: snprintf(out, CELL, "%zu/%zu", j->tokens, j->wanted); break;
    case AGE:    put_age(out, j); break;
    case NAME:   job_label(out, CELL, j); break;
    case PROMPT: put_prompt(out, j); break;
    case ERROR:  put_error(out, j); break;
    case RATE:
        if (job_speed(j) > 0)
            snprintf(out, CELL, "%.1f%s", job_speed(j), j->shared ? SHARED_MARK : "");
        break;
    case MODEL:
        model_name(name, sizeof name, j->model);
        terminal_text(out, CELL, name);
        break;
    default: value_text(out, CELL, value_of(c, j)); break;
    }
}

static const struct column *find_column(const char *option, const char *name, size_t n, struct err *e)
{
    char all[200] = "";
    for (size_t i = 0; i < N_COLUMNS; i++) {
        if (strlen(columns[i].name) == n && memcmp(columns[i].name, name, n) == 0)
            return &columns[i];
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 i == 0 ? "" : i + 1 < N_COLUMNS ? ", " : " and ", columns[i].name);
    }
    err_set(e, ERR_INPUT, "--%s: '%.*s' is no column; %s are allowed", option, (int)MIN(n, (size_t)40), name,
            all);
    return NULL;
}

struct listing {
    const struct column *v[COLUMNS_MAX]; size_t n;
    bool marked, chosen;                 /* some speed is marked; --columns chose the columns */
    const struct store_part *part; const char *db;       /* whose jobs are listed; NULL: the only database */
    char text[COLUMNS_MAX][CELL];        /* of the job that is printed */
};

static int read_columns(struct listing *t, const char *list, struct err *e)
{
    t->n = 0;
    for (const char *p = list;; p++) {
        const size_t n = strcspn(p, ",");
        if (t->n == COLUMNS_MAX)
            return err_set(e, ERR_INPUT, "--columns: at most %d columns are allowed", COLUMNS_MAX);
        if (!(t->v[t->n++] = find_column("columns", p, n, e)))
            return -1;
        p += n;
        if (!*p)
            return 0;
    }
}

/* ---- order ---- */

static const struct column *sort_by;     /* of by_column */
static int sort_sign;

static int by_column(const void *a, const void *b)
{
    const struct job *x = a, *y = b;
    int d;
    if (is_number(sort_by)) {
        const double p = value_number(value_of(sort_by, x)), q = value_number(value_of(sort_by, y));
        d = isnan(p) || isnan(q) ? isnan(q) - isnan(p) : (p > q) - (p < q);
    } else {
        char p[CELL], q[CELL];
        put_column(p, sort_by, x);
        put_column(q, sort_by, y);
        d = strcmp(p, q);
    }
    d = d ? d : (x->id > y->id) - (x->id < y->id);
    return sort_sign * d;
}

/* Keeps the first `limit` jobs of all databases together. Each database has its jobs in order. */
static int keep_first(struct store_parts *p, size_t limit, struct err *e)
{
    size_t *kept = calloc(p->n + 1, sizeof *kept);
    if (!kept)
        return err_set(e, ERR_FAILED, "out of memory");
    for (; limit; limit--) {
        const struct job *first = NULL;
        size_t of = 0;
        for (size_t i = 0; i < p->n; i++) {
            const struct job *j = kept[i] < p->v[i].jobs.n ? &p->v[i].jobs.v[kept[i]] : NULL;
            if (j && (!first || by_column(j, first) < 0)) {
                first = j;
                of = i;
            }
        }
        if (!first)
            break;
        kept[of]++;
    }
    for (size_t i = 0; i < p->n; i++)
        p->v[i].jobs.n = kept[i];
    free(kept);
    return 0;
}

/* --sort and --reverse of each database, --limit of all together. */
static int arrange(const struct options *o, struct store_parts *p, struct err *e)
{
    const char *name = o->sort ? o->sort : "job";
    if (!(sort_by = find_column("sort", name, strlen(name), e)))
        return -1;
    sort_sign = o->reverse ? -1 : 1;
    for (size_t i = 0; i < p->n; i++) {
        struct job_list *l = &p->v[i].jobs;
        if (l->n && (o->sort || o->reverse))
            qsort(l->v, l->n, sizeof *l->v, by_column);
    }
    return options_given(o, "limit") ? keep_first(p, o->limit, e) : 0;
}

/* Finds the jobs whose speed is marked. */
static int mark_shared(struct listing *t, struct store_parts *p, struct err *e)
{
    bool rates = false;
    for (size_t i = 0; i < t->n; i++)
        rates |= t->v[i] == &columns[RATE];
    for (size_t i = 0; i < p->n && rates; i++) {
        if (store_mark_shared(p->v[i].store, &p->v[i].jobs, e))
            return -1;
        for (size_t k = 0; k < p->v[i].jobs.n; k++)
            t->marked |= p->v[i].jobs.v[k].shared;
    }
    return 0;
}

/* ---- the table ---- */

/* The cells of a job, for JSON as values and for people as texts. */
static void list_cells(const void *of, size_t i, struct row *cells)
{
    struct listing *t = (struct listing *)of;
    const struct job *j = &t->part->jobs.v[i];
    for (size_t k = 0; k < t->n; k++, cells += 2) {
        const struct column *c = t->v[k];
        const bool last = k + 1 == t->n;
        char *text = t->text[k];
        put_column(text, c, j);
        cells[0] = (struct row){ c->name, NULL, .value = value_of(c, j) };
        if (c == &columns[NAME])
            cells[0].value = (struct value)V_TEXT(*text ? text : NULL);
        if (c->cut && !last && !t->chosen)
            terminal_cut(text, c->cut);
        if (!*text && !last)
            strcpy(text, "-");
        if (c == &columns[RATE] && t->marked && !j->shared)
            strcat(text, " ");                   /* where others have the mark */
        cells[1] = is_number(c) ? (struct row){ NULL, c->head, V_UINT(0), text }
                                : (struct row){ NULL, c->head, V_TEXT(text) };
    }
    if (t->db)
        *cells = (struct row){ "db", NULL, V_TEXT(t->db) };
}

/* The table of a part: the first records decide the columns' widths. */
static struct table part_table(struct listing *t, const struct store_parts *p, size_t i, size_t most)
{
    t->part = &p->v[i];
    t->db = p->n > 1 ? store_path(t->part->store) : NULL;
    return (struct table){ MIN(t->part->jobs.n, most), list_cells, t };
}

static size_t table_width(void)
{
    struct winsize w = {0};
    if (!isatty(STDOUT_FILENO))
        return SIZE_MAX;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

/* estimate: seconds, of jobs that no process works on; NAN: not known. */
static void list_text(const struct store_counts *n, double estimate, const struct store_parts *p,
                      struct listing *t)
{
    char path[200];
    const size_t most = table_width();
    size_t wide[SHEET_COLUMNS_MAX] = { 0 };
    for (size_t i = 0; i < p->n; i++) {
        const struct table first = part_table(t, p, i, MEASURED_MAX);
        sheet_columns(NULL, &first, wide, SIZE_MAX);
    }
    put_counts(NULL, n, estimate);
    for (size_t i = 0; i < p->n; i++) {
        const struct table jobs = part_table(t, p, i, SIZE_MAX);
        if (t->db) {
            terminal_text(path, sizeof path, t->db);
            printf("%s\n", path);
        }
        sheet_columns(stdout, &jobs, wide, most);
    }
    if (t->marked)
        printf("%.*s\n", (int)MIN(most, strlen(SHARED_NOTE)), SHARED_NOTE);
}

/* With several databases each job names its database, and "databases" lists them all. t: the columns of
 * --columns, else everything. */
static void list_json(const struct store_counts *n, double estimate, const struct store_parts *p,
                      struct listing *t)
{
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 15);
    put_counts(&w, n, estimate);
    jw_open(&w, "jobs", '[');
    for (size_t i = 0; i < p->n; i++) {
        const struct table jobs = part_table(t, p, i, SIZE_MAX);
        if (t->chosen)
            sheet_records(&w, &jobs);
        else
            put_jobs_json(&w, &t->part->jobs, t->db);
    }
    jw_close(&w, ']');
    if (p->n > 1) {
        jw_open(&w, "databases", '[');
        for (size_t i = 0; i < p->n; i++)
            jw_text(&w, NULL, store_path(p->v[i].store));
        jw_close(&w, ']');
    }
    jw_end(&w);
}

int cmd_list(const struct options *o, struct err *e)
{
    struct store_parts p = {0};
    struct store_counts n = {0};
    struct listing t = { .chosen = o->columns };
    double estimate = 0, part;
    if (read_columns(&t, o->columns ? o->columns : "job,state,tokens,rate,finish,age,model,name,prompt", e))
        return -1;
    int rc = parts_from_options(&p, o, true, e);
    if (rc == 0) {
        for (size_t i = 0; i < p.n && rc == 0; i++, estimate += part) {
            count_jobs(&n, &p.v[i].jobs);        /* before --limit leaves jobs out */
            rc = store_estimate(p.v[i].store, &p.v[i].jobs, &part, e);
        }
        rc = rc || arrange(o, &p, e) || mark_shared(&t, &p, e) ? -1 : 0;
    }
    if (rc == 0) {
        if (o->json)
            list_json(&n, estimate, &p, &t);
        else
            list_text(&n, estimate, &p, &t);
        rc = stdout_finish(e);
    }
    parts_close(&p);
    return rc;
}
