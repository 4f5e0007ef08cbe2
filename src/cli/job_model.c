/* --model of the verbs about jobs: the new place of a model. It is read once, for its fingerprint, and the
 * store keeps what reading its texts needs. Start at model_keep, model_from_options and model_of_work. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/model/find_model.h"
#include "src/model/model_files.h"

/* A model as it is on the disk. */
struct model_here {
    char dir[PATH_BYTES];
    struct config config;
    struct model_files files;
    char fingerprint[FINGERPRINT_BYTES];
};

/* `want`: ERR_INPUT if the fingerprint is another one; NULL: any. */
static int model_read(struct model_here *m, const char *dir, size_t threads, enum weights weights,
                      const char *want, struct err *e)
{
    const uint64_t stamp = model_stamp(dir);
    *m = (struct model_here){0};
    snprintf(m->dir, sizeof m->dir, "%s", dir);
    if (config_read(&m->config, dir, e))
        return -1;
    struct pool *pool = pool_open(threads ? threads : pool_default_threads());
    if (!pool)
        return err_set(e, ERR_FAILED, "--threads: cannot start %zu threads", threads);
    int rc = model_fingerprint(m->fingerprint, &m->files, dir, weights, pool, not_stopped, NULL, e);
    /* the fingerprint that is wanted may be one of --weights */
    for (enum weights w = WEIGHTS_Q8_0; want && w <= WEIGHTS_Q4_0 && rc == 0 && strcmp(want, m->fingerprint);
         w++) {
        model_files_free(&m->files);
        rc = model_fingerprint(m->fingerprint, &m->files, dir, w, pool, not_stopped, NULL, e);
    }
    pool_close(pool);
    if (rc > 0)
        rc = err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), dir);
    else if (rc == 0 && model_stamp(dir) != stamp)
        rc = err_set(e, ERR_FAILED, "%s was changed while it was read", dir);
    else if (rc == 0 && want && strcmp(want, m->fingerprint))
        rc = err_set(e, ERR_INPUT, "%s holds another model now: its fingerprint is %s, not %s", dir,
                     m->fingerprint, want);
    else if (rc == 0 && !m->files.data[MODEL_TOKENIZER])
        rc = err_set(e, ERR_INPUT, "%s/tokenizer.json: the file is missing", dir);
    if (rc)
        model_files_free(&m->files);
    return rc;
}

static int model_put(struct store *s, struct model_here *m, struct err *e)
{
    char **data = m->files.data;
    const int rc = store_model_has(s, m->fingerprint, e);
    if (rc)
        return rc > 0 ? 0 : -1;
    if (tokenizer_add_config(&data[MODEL_TOKENIZER], &m->files.n[MODEL_TOKENIZER], m->dir, m->config.vocab,
                             e))
        return -1;
    const struct model_record r = { .tokenizer = data[MODEL_TOKENIZER],
                                    .n_tokenizer = m->files.n[MODEL_TOKENIZER], .vocab = m->config.vocab,
                                    .eos = m->config.eos, .n_eos = m->config.n_eos,
                                    .config = data[MODEL_CONFIG], .generation = data[MODEL_GENERATION] };
    return store_model_put(s, m->fingerprint, &r, e);
}

int model_keep(struct store *s, const char *dir, size_t threads, const char *want, struct err *e)
{
    struct model_here m;
    if (model_read(&m, dir, threads, WEIGHTS_AS_IS, want, e))
        return -1;
    const int rc = model_put(s, &m, e);
    model_files_free(&m.files);
    return rc;
}

/* ---- --model ---- */

static int find_moved(struct model_here *m, char path[PATH_BYTES], const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    if (find_model_dir(dir, o->model, "--model", e))
        return -1;
    if (model_absolute_path(path, dir))
        return err_set(e, ERR_INPUT, "--model: %s: %s", dir, strerror(errno));
    return model_read(m, path, o->threads, (enum weights)o->job.weights, NULL, e);
}

/* Whether the prompt's ids of a job come from this model's tokenizer, as far as the job tells: 1, 0, -1. */
static int has_tokenizer(struct store *s, int64_t job, const struct model_here *m, struct err *e)
{
    char sha[SHA256_HEX];
    struct job_input in = {0};
    struct job_params p = {0};
    sha256_text(sha, m->files.data[MODEL_TOKENIZER], m->files.n[MODEL_TOKENIZER]);
    int rc = store_input(s, job, &in, e) || job_parse(&p, in.parameters, e) ? -1 : 0;
    if (rc == 0)
        rc = !p.tokenizer || strcmp(p.tokenizer, sha) == 0;
    job_close(&p);
    job_input_free(&in);
    return rc;
}

static int other_tokenizer(const char *path, int64_t job, struct err *e)
{
    return err_set(e, ERR_INPUT,
                   "--model %s: job %" PRId64 " was submitted with another tokenizer, and the ids of its "
                   "prompt would mean another text; --accept-numerics-change goes on all the same",
                   path, job);
}

int model_from_options(struct moved_model *moved, const struct options *o, struct store *s,
                       const struct job_list *jobs, struct err *e)
{
    struct model_here m;
    bool keeps = o->accept_change;
    int rc = 0;
    *moved = (struct moved_model){0};
    if (!o->model)
        return 0;
    if (find_moved(&m, moved->path, o, e))
        return -1;
    memcpy(moved->fingerprint, m.fingerprint, sizeof moved->fingerprint);
    moved->place = (struct model_place){ moved->path, moved->fingerprint, o->accept_change };
    for (size_t i = 0; i < jobs->n && rc == 0; i++) {
        const struct job *j = &jobs->v[i];
        const int same = j->fingerprint || o->accept_change ? 1 : has_tokenizer(s, j->id, &m, e);
        rc = same == 0 ? other_tokenizer(moved->path, j->id, e) : MIN(same, 0);
        keeps = keeps || (j->fingerprint && strcmp(j->fingerprint, m.fingerprint) == 0);
    }
    if (rc == 0 && keeps)                /* else a worker keeps it when it begins */
        rc = model_put(s, &m, e);
    model_files_free(&m.files);
    moved->given = rc == 0;
    return rc;
}

/* ---- --model of work ---- */

static bool is_fingerprint(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

/* Whether `work --model` is meant for jobs that have not begun and whose model was at this place. Begun jobs
 * of the place tell it. Without any, the place cannot be read, or is the only one of jobs that have not
 * begun. */
static bool is_meant(const struct model_use_list *l, const char *place, const char *fingerprint)
{
    struct config c;
    struct err ignored;
    size_t others = 0, differ = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct model_use *u = &l->v[i];
        const bool here = strcmp(u->model, place) == 0;
        if (here && is_fingerprint(u->fingerprint, fingerprint))
            return true;
        differ += here && u->fingerprint;
        others += !here && !u->fingerprint && u->open;
    }
    if (differ)
        return false;
    return !others || config_read(&c, place, &ignored) != 0;
}

struct move {
    const struct options *o;
    struct store *s;
    const char *path;
    const struct model_here *m;
    struct model_use_list uses;
    int64_t *ids; size_t n;              /* the jobs whose model moves */
    size_t here;                         /* jobs that have it there already */
    int64_t refused;                     /* a job with another tokenizer; 0: none */
};

/* Note what becomes of a job. *place: the last place of jobs that have not begun, *meant: is_meant of it. */
static int take_job(struct move *v, const struct job *j, const char **place, bool *meant, struct err *e)
{
    const bool there = strcmp(j->model, v->path) == 0;
    if (j->fingerprint) {
        if (!is_fingerprint(j->fingerprint, v->m->fingerprint))
            return 0;
    } else {
        if (j->state == JOB_DONE || j->state == JOB_CANCELLED)
            return 0;
        if (!*place || strcmp(*place, j->model)) {
            *meant = there || is_meant(&v->uses, j->model, v->m->fingerprint);
            *place = j->model;
        }
        const int same = !*meant ? 0 : v->o->accept_change ? 1 : has_tokenizer(v->s, j->id, v->m, e);
        if (same < 0 && e->code != ERR_INPUT)    /* a job that cannot be read fails when it begins */
            return -1;
        if (*meant && !same && !v->refused)
            v->refused = j->id;
        if (same <= 0)
            return 0;
    }
    v->here += there;
    if (!there)
        v->ids[v->n++] = j->id;
    return 0;
}

static int move_all(struct move *v, const struct job_list *jobs, struct err *e)
{
    const char *place = NULL;
    bool meant = false;
    int rc = store_model_uses(v->s, &v->uses, e);
    for (size_t i = 0; i < jobs->n && rc == 0; i++)
        rc = take_job(v, &jobs->v[i], &place, &meant, e);
    if (rc == 0 && !v->n && !v->here)
        rc = v->refused ? other_tokenizer(v->path, v->refused, e)
                        : err_set(e, ERR_INPUT,
                                  "--model %s: no job of this store has its fingerprint, %.150s, and none "
                                  "that has not begun is without its model",
                                  v->path, v->m->fingerprint);
    const struct model_place p = { v->path, v->m->fingerprint, false };
    if (rc == 0)
        rc = store_model_move(v->s, v->ids, v->n, &p, e);
    model_use_list_free(&v->uses);
    return rc;
}

int model_of_work(const struct options *o, struct store *s, struct err *e)
{
    const struct selection every = {0};
    char path[PATH_BYTES];
    static struct model_here m;
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    if (!o->model || o->verb->bit != VERB_WORK)
        return 0;
    if (find_moved(&m, path, o, e))
        return -1;
    struct move v = { .o = o, .s = s, .path = path, .m = &m };
    int rc = store_select(s, &every, &ids, &n, e) || store_jobs(s, ids, n, &jobs, e) ? -1 : 0;
    if (rc == 0 && !(v.ids = calloc(n + 1, sizeof *v.ids)))
        rc = err_set(e, ERR_FAILED, "out of memory for a list of %zu jobs", n);
    if (rc == 0)
        rc = move_all(&v, &jobs, e);
    if (rc == 0)
        rc = model_put(s, &m, e);
    free(v.ids);
    free(ids);
    job_list_free(&jobs);
    model_files_free(&m.files);
    return rc;
}
