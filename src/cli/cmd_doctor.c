/* longhand doctor: looks for everything that may be wrong with a store, and changes nothing unless --repair
 * is given. struct visit is one call; start at cmd_doctor. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runs/work/snapshot_files.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

enum { FREE_MB_MIN = 64 };

struct visit {
    const struct options *o;
    struct store *s;
    struct json_writer *json;            /* --json: the open list of findings; NULL: plain lines */
    size_t findings;
};

static void show_line(struct visit *v, const char *line, bool is_repaired)
{
    const struct row rows[] = { { "message", is_repaired ? "repaired:" : "", V_TEXT(line) },
                                { "repaired", NULL, V_BOOL(is_repaired) }, { 0 } };
    if (v->json)
        sheet_object(v->json, NULL, rows);
    else
        sheet_text(stdout, rows);
    v->findings += !is_repaired;
}

static void finding(void *ctx, const char *line) { show_line(ctx, line, false); }

/* ---- the disk ---- */

static void found_orphan(void *ctx, const char *path)
{
    struct visit *v = ctx;
    char line[PATH_BYTES + 100];
    snprintf(line, sizeof line, "%s: a snapshot that no job needs", path);
    show_line(v, line, v->o->repair && unlink(path) == 0);
}

static void check_disk(struct visit *v)
{
    char folder[PATH_BYTES], line[PATH_BYTES + 100];
    struct statvfs f;
    struct err e;
    snprintf(folder, sizeof folder, "%s", store_path(v->s));
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = 0;
    if (statvfs(folder, &f) == 0) {
        const uint64_t mb = ((uint64_t)f.f_bavail * f.f_frsize) >> 20;
        snprintf(line, sizeof line, "%s: only %" PRIu64 " MB are free", folder, mb);
        if (mb < FREE_MB_MIN)
            finding(v, line);
    }
    if (access(folder, W_OK) == 0 && store_test_locks(v->s, &e))
        finding(v, e.msg);
    snapshot_files_unused(v->s, found_orphan, v);
}

/* ---- models ---- */

static int check_model(struct visit *v, const struct model_use *u, struct err *e)
{
    char line[PATH_BYTES + 600];
    struct config c;
    struct err why = {0};
    const bool readable = config_read(&c, u->model, &why) == 0;
    if (u->open && !readable) {
        snprintf(line, sizeof line,
                 "%zu %s for a model that cannot be read (the first is job %" PRId64 "): %s; longhand "
                 "resume --model names a new place",
                 u->open, plural(u->open, "job waits", "jobs wait"), u->first, why.msg);
        finding(v, line);
    }
    if (u->stored || !u->begun || !u->fingerprint)
        return 0;
    int rc = v->o->repair ? model_keep(v->s, u->model, v->o->threads, u->fingerprint, &why) : -1;
    if (rc && v->o->repair && why.code == ERR_AGAIN) {
        *e = why;
        return -1;
    }
    snprintf(
        line, sizeof line, "%zu %s without the tokenizer of %s model (the first is job %" PRId64 ")%s%s",
        u->jobs, plural(u->jobs, "job is", "jobs are"), plural(u->jobs, "its", "their"), u->first,
        rc ? ": " : "",
        rc == 0        ? ""
        : v->o->repair ? why.msg
                       : "their texts are lost if its folder changes; longhand doctor --repair keeps it");
    show_line(v, line, rc == 0);
    return 0;
}

static int check_models(struct visit *v, struct err *e)
{
    struct model_use_list l;
    if (store_model_uses(v->s, &l, e))
        return -1;
    int rc = 0;
    for (size_t i = 0; i < l.n && rc == 0; i++)
        rc = check_model(v, &l.v[i], e);
    model_use_list_free(&l);
    return rc;
}

/* ---- texts ---- */

struct texts {
    struct text_reader reader;
    struct text_sha *add; size_t n_add;      /* found by --repair */
    size_t without; int64_t first;           /* texts without a SHA-256, and the first of their jobs */
};

/* Reads the text of a job. The chains are checked already, so what differs from its SHA-256 is the stored
 * tokenizer or the job's parameters. A text of an older longhand has none; --repair adds it if the store has
 * the tokenizer, for that of a folder may have changed. */
static int check_text(struct visit *v, struct texts *t, const struct job *j, struct err *e)
{
    struct placed_text text;
    struct err why = {0};
    const int stored =
        j->has_sha || !v->o->repair || !j->fingerprint ? 0 : store_model_has(v->s, j->fingerprint, e);
    const bool adds = stored > 0;
    if (stored < 0)
        return -1;
    if (!j->has_sha && !adds) {
        t->first = t->without++ ? t->first : j->id;
        return 0;
    }
    if (job_read_text(&t->reader, v->s, j, &text, &why)) {
        finding(v, why.msg);
    } else if (adds) {
        struct text_sha *a = &t->add[t->n_add++];
        *a = (struct text_sha){ .job = j->id, .attempt = j->attempt };
        sha256_of(a->sha, text.text, text.n);
    }
    placed_text_free(&text);
    return 0;
}

static void put_without(struct visit *v, size_t n, int64_t first, const char *how, bool is_repaired)
{
    char line[300];
    snprintf(line, sizeof line,
             "finished texts without a SHA-256 to check them by: %zu (the first is job %" PRId64 ")%s", n,
             first, how);
    if (n)
        show_line(v, line, is_repaired);
}

static int check_texts(struct visit *v, size_t *n_jobs, struct err *e)
{
    const struct selection done = { .by_state = true, .state = JOB_DONE };
    struct texts t = {0};
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    int rc = store_select(v->s, &done, &ids, &n, e) || store_jobs(v->s, ids, n, &jobs, e) ? -1 : 0;
    if (rc == 0 && !(t.add = calloc(n + 1, sizeof *t.add)))
        rc = err_set(e, ERR_FAILED, "out of memory for %zu checksums", n);
    for (size_t i = 0; rc == 0 && i < jobs.n && !stop_signal; i++)
        rc = check_text(v, &t, &jobs.v[i], e);
    if (rc == 0)
        rc = store_add_sha(v->s, t.add, t.n_add, e);
    if (rc == 0) {
        put_without(v, t.n_add, t.add->job, "", true);
        put_without(v, stop_signal ? 0 : t.without, t.first,
                    v->o->repair ? "; the store does not have their tokenizer"
                                 : "; longhand doctor --repair adds it", false);
    }
    if (rc == 0 && stop_signal)
        rc = err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
    *n_jobs = n;
    free(t.add);
    text_reader_close(&t.reader);
    job_list_free(&jobs);
    free(ids);
    return rc;
}

int cmd_doctor(const struct options *o, struct err *e)
{
    struct visit v = { .o = o };
    size_t n = 0;
    stop_signals_catch();
    if (store_from_options(&v.s, o, o->repair ? STORE_WRITE : STORE_READ, e))
        return -1;
    struct json_writer w;
    if (o->json) {
        w = jw_begin(stdout, JW_INDENTED, 15);
        jw_text(&w, "store", store_path(v.s));
        jw_open(&w, "findings", '[');
        v.json = &w;
    }
    int rc = store_examine(v.s, finding, &v, e);
    if (rc == 0) {
        check_disk(&v);
        rc = check_models(&v, e) || check_texts(&v, &n, e) ? -1 : 0;
    }
    if (o->json) {
        jw_close(&w, ']');
        jw_number(&w, "finished_texts", rc ? NAN : (double)n);
        jw_end(&w);
    } else if (rc == 0 && v.findings == 0)
        printf("%s: nothing is wrong; %zu finished %s\n", store_path(v.s), n,
               plural(n, "text", "texts"));
    store_close(v.s);
    if (rc == 0)
        rc = stdout_finish(e);
    return rc ? rc
           : v.findings
               ? err_set(e, ERR_FAILED, "doctor: %zu %s", v.findings,
                         plural(v.findings, "finding", "findings"))
               : 0;
}
