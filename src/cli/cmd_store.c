/* Opens the stores that --db names and selects jobs in them, for all verbs. Start at store_from_options and
 * parts_from_options. */
#include "src/cli/cmd_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/text/repeats.h"
#include "runs/work/read_text.h"
#include "src/request/output_check.h"

/* given: a path, or NULL for LONGHAND_DB or the default path. */
static int open_store(struct store **s, const char *given, const struct options *o, enum store_mode mode,
                      struct err *e)
{
    char path[PATH_BYTES];
    const char *env = getenv("LONGHAND_DB"), *db = given ? given : env && *env ? env : NULL;
    const struct store_options so = { .mode = mode, .make_folders = !db,
                                      .shared_db = o->shared_db, .group = o->shared_group,
                                      .max_bytes = o->max_store, .stop = &stop_signal };
    if (db && strcmp(db, "-") == 0)
        return err_set(e, ERR_INPUT, "%s: '-' is not the name of a file", given ? "--db" : "LONGHAND_DB");
    if (!db && store_default_path(path, sizeof path, e))
        return -1;
    if (store_open(s, db ? db : path, &so, e))
        return -1;
    if (output_check_store(o, store_path(*s), e)) {
        store_close(*s);
        *s = NULL;
        return -1;
    }
    if (store_notice(*s) && !o->quiet)
        fprintf(stderr, "%s%s\n", log_time(), store_notice(*s));
    if (store_migrated_from(*s) && !o->quiet)
        fprintf(stderr, "%s%s: brought up to date, from version %d of the tables to %d; an older longhand "
                "cannot read it any more\n", log_time(), db ? db : path, store_migrated_from(*s),
                STORE_VERSION);
    return 0;
}

int store_from_options(struct store **s, const struct options *o, enum store_mode mode, struct err *e)
{
    if (o->db.n > 1)
        return err_set(
            e, ERR_INPUT,
            "%s: --db is given %zu times, one database is allowed; list, report and export read several",
            o->verb->name, o->db.n);
    return open_store(s, o->db.n ? o->db.v[0] : NULL, o, mode, e);
}

/* ---- several stores ---- */

static int open_parts(struct store_parts *p, const struct options *o, struct err *e)
{
    const size_t n = MAX(o->db.n, (size_t)1);
    p->v = calloc(n, sizeof *p->v);
    if (!p->v)
        return err_set(e, ERR_FAILED, "out of memory for %zu databases", n);
    for (size_t i = 0; i < n; i++) {
        if (open_store(&p->v[p->n].store, o->db.n ? o->db.v[i] : NULL, o, STORE_READ, e))
            return -1;
        for (size_t k = 0; k < p->n; k++)
            if (same_file(store_path(p->v[k].store), store_path(p->v[p->n].store))) {
                store_close(p->v[p->n].store);
                return err_set(e, ERR_INPUT, "--db: %s is given twice", o->db.v[i]);
            }
        p->n++;
    }
    return 0;
}

static int id_order(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The words and options that select jobs. every: without words, all jobs. */
static struct selection_words words_of(const struct options *o, bool every)
{
    return (struct selection_words){ o->arg, o->n_args, o->state, o->finish, o->loops,
                                     o->all || (every && !o->n_args && !o->state), o->shorter, o->longer,
                                     o->distinct_below, o->repeats_above,
                                     o->verb->bit == VERB_LIST && !o->requests };
}

/* Keeps ids[0..*n) in whose texts more than `share` of the words repeat. */
static int filter_repeats(struct store *s, double share, int64_t *ids, size_t *n, struct err *e)
{
    struct text_reader reader = {0};
    struct job_list jobs = {0};
    int rc = store_jobs(s, ids, *n, &jobs, e);
    *n = 0;
    for (size_t i = 0; i < jobs.n && rc == 0; i++) {
        struct distinct d = {0};
        struct repeats r = {0};
        struct placed_text t;
        rc = job_read_text(&reader, s, &jobs.v[i], &t, e);
        if (rc == 0 && (rc = distinct_open(&d, e)) == 0 &&
            (t.n == t.answer || (rc = distinct_text(&d, t.text + t.answer, t.n - t.answer, e)) == 0) &&
            (rc = distinct_end(&d, e)) == 0 &&
            (rc = repeats_find(&r, &d, e)) == 0 && repeats_share(&r, 0, r.n) > share)
            ids[(*n)++] = jobs.v[i].id;
        repeats_close(&r);
        distinct_close(&d);
        placed_text_free(&t);
    }
    text_reader_close(&reader);
    job_list_free(&jobs);
    return rc;
}

/* Adds the jobs that the words select to those of a part: store_select, with the part of a selection that
 * needs the tokenizers of texts. */
static int add_selected(struct store_part *t, const struct selection *sel, struct err *e)
{
    int64_t *ids = NULL;
    size_t n = 0;
    int rc = store_select(t->store, sel, &ids, &n, e);
    if (rc == 0 && sel->by_repeats)
        rc = filter_repeats(t->store, sel->repeats_above, ids, &n, e);
    int64_t *all = rc ? NULL : realloc(t->ids, (t->n_ids + n + 1) * sizeof *all);
    if (all && n)
        memcpy(all + t->n_ids, ids, n * sizeof *ids);
    if (all) {
        t->n_ids += n;
        t->ids = all;
    } else if (rc == 0) {
        rc = err_set(e, ERR_FAILED, "out of memory for a list of %zu jobs", n);
    }
    free(ids);
    return rc;
}

/* Adds them to all parts. One part that has the job is enough. */
static int select_words(struct store_parts *p, const struct selection_words *w, struct err *e)
{
    struct selection sel;
    struct err first = {0};
    size_t found = 0;
    int rc = selection_parse(&sel, w, e);
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        rc = add_selected(&p->v[i], &sel, e);
        found += rc == 0;
        if (rc && !first.code)
            first = *e;
        if (rc && e->code == ERR_INPUT)
            rc = 0;
    }
    selection_free(&sel);
    if (rc == 0 && !found) {
        *e = first;
        rc = -1;
    }
    return rc;
}

/* Reads the rows of the selected jobs, each job once; afterwards the ids are those of the rows. */
static int read_part(struct store_part *t, struct err *e)
{
    size_t kept = 0;
    if (t->n_ids)
        qsort(t->ids, t->n_ids, sizeof *t->ids, id_order);
    for (size_t i = 0; i < t->n_ids; i++)
        if (i == 0 || t->ids[i] != t->ids[i - 1])
            t->ids[kept++] = t->ids[i];
    if (store_jobs(t->store, t->ids, kept, &t->jobs, e))
        return -1;
    for (size_t i = 0; i < t->jobs.n; i++)           /* a job may have been removed since */
        t->ids[i] = t->jobs.v[i].id;
    return 0;
}

int parts_from_options(struct store_parts *p, const struct options *o, bool every, struct err *e)
{
    struct selection_words w = words_of(o, every);
    const size_t turns = w.all ? 1 : MAX(w.n, (size_t)1);    /* selection_parse rejects --all with words */
    *p = (struct store_parts){0};
    int rc = open_parts(p, o, e);
    for (size_t i = 0; rc == 0 && i < turns; i++) {
        if (!w.all && o->n_args) {
            w.v = &o->arg[i];
            w.n = 1;
        }
        rc = select_words(p, &w, e);
    }
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = read_part(&p->v[i], e);
    return rc;
}

static void part_close(struct store_part *t)
{
    job_list_free(&t->jobs);
    free(t->ids);
    store_close(t->store);
}

void parts_close(struct store_parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        part_close(&p->v[i]);
    free(p->v);
    *p = (struct store_parts){0};
}

/* ---- jobs ---- */

static int part_from_words(struct store_part *t, const struct selection_words *w, struct err *e)
{
    return select_words(&(struct store_parts){ t, 1 }, w, e) || read_part(t, e) ? -1 : 0;
}

int with_jobs(const struct options *o, enum store_mode mode, bool every,
              int (*what)(const struct options *o, struct store_part *p, struct err *e), struct err *e)
{
    const struct selection_words w = words_of(o, every);
    struct store_part p = {0};
    const int rc = store_from_options(&p.store, o, mode, e) || part_from_words(&p, &w, e) || what(o, &p, e)
                       ? -1 : 0;
    part_close(&p);
    return rc;
}

int jobs_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e)
{
    struct store_part t = { .store = s };
    const int rc = part_from_words(&t, &(struct selection_words){ &word, 1 }, e);
    free(t.ids);
    *jobs = t.jobs;
    return rc;
}

int job_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e)
{
    int rc = jobs_from_word(s, word, jobs, e);
    if (rc == 0 && jobs->n != 1) {
        rc = jobs->n ? err_set(e, ERR_INPUT, "%s: %zu jobs, one is needed", word, jobs->n)
                     : err_set(e, ERR_INPUT, "there is no job %s", word);
        job_list_free(jobs);
    }
    return rc;
}

void worker_from_options(struct worker *w, const struct options *o)
{
    w->threads = o->threads;
    w->device = o->device;
    w->snapshot = (enum kv_snapshot)o->kv_snapshot;
    w->snapshot_max = o->kv_snapshot_max;
    w->quiet = o->quiet;
    w->max_memory = o->max_memory;
    progress_open(&w->progress, o->progress, o->quiet);
}
