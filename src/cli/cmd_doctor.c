/* longhand doctor: looks for everything that may be wrong with a store, and changes nothing unless --repair
 * is given. struct visit is one call; start at cmd_doctor. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runs/work/snapshot_files.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

enum { FREE_MB_MIN = 64 };

struct visit {
    const struct options *o;
    struct store *s;
    size_t findings, repaired;
};

static void finding(void *ctx, const char *line)
{
    struct visit *v = ctx;
    char shown[900];
    terminal_text(shown, sizeof shown, line);
    printf("%s\n", shown);
    v->findings++;
}

static void repaired(struct visit *v, const char *line)
{
    char shown[900];
    terminal_text(shown, sizeof shown, line);
    printf("repaired: %s\n", shown);
    v->repaired++;
}

/* ---- the disk ---- */

static void found_orphan(void *ctx, const char *path)
{
    struct visit *v = ctx;
    char line[PATH_BYTES + 100];
    snprintf(line, sizeof line, "%s: a snapshot that no job needs", path);
    if (v->o->repair && unlink(path) == 0)
        repaired(v, line);
    else
        finding(v, line);
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
                 "%zu jobs (the first is job %" PRId64 ") wait for a model that cannot be read: %s; longhand "
                 "resume --model names a new place",
                 u->open, u->first, why.msg);
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
        line, sizeof line, "%zu jobs (the first is job %" PRId64 ") are without their model's tokenizer%s%s",
        u->jobs, u->first, rc ? ": " : "",
        rc == 0        ? ""
        : v->o->repair ? why.msg
                       : "their texts are lost if its folder changes; longhand doctor --repair keeps it");
    if (rc)
        finding(v, line);
    else
        repaired(v, line);
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

/* Reads the text of every job that has a checksum. The chains are checked already, so what differs is the
 * stored tokenizer or the job's parameters. */
static int check_texts(struct visit *v, size_t *n_jobs, struct err *e)
{
    const struct selection done = { .by_state = true, .state = JOB_DONE };
    struct text_reader reader = {0};
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    int rc = store_select(v->s, &done, &ids, &n, e) || store_jobs(v->s, ids, n, &jobs, e) ? -1 : 0;
    for (size_t i = 0; rc == 0 && i < jobs.n; i++) {
        char *text = NULL;
        size_t bytes;
        struct err why = {0};
        if (jobs.v[i].has_sha && job_read_text(&reader, v->s, &jobs.v[i], &text, &bytes, &why))
            finding(v, why.msg);
        free(text);
        if (stop_signal)
            rc = err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
    }
    *n_jobs = n;
    text_reader_close(&reader);
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
    int rc = store_examine(v.s, finding, &v, e);
    if (rc == 0) {
        check_disk(&v);
        rc = check_models(&v, e) || check_texts(&v, &n, e) ? -1 : 0;
    }
    if (rc == 0 && v.findings == 0)
        printf("%s: nothing is wrong; %zu finished texts\n", store_path(v.s), n);
    store_close(v.s);
    if (rc == 0)
        rc = stdout_finish(e);
    return rc ? rc
           : v.findings
               ? err_set(e, ERR_FAILED, "doctor: %zu finding%s", v.findings, v.findings == 1 ? "" : "s")
               : 0;
}
