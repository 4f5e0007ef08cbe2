/* --model of the verbs about jobs: the new place of a model. It is read once, for its fingerprint, and the
 * store keeps what reading its texts needs. Start at model_keep and model_from_options. */
#include <errno.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/model/find_model.h"
#include "src/model/model_files.h"

static bool not_stopped(void *ctx, size_t done, size_t of)
{
    (void)ctx, (void)done, (void)of;
    return !stop_signal;
}

int model_keep(struct store *s, const char *dir, size_t threads, enum weights weights, const char *want,
               char fingerprint[FINGERPRINT_BYTES], struct err *e)
{
    struct config c;
    struct model_files f = {0};
    const uint64_t stamp = model_stamp(dir);
    if (config_read(&c, dir, e))
        return -1;
    struct pool *pool = pool_open(threads ? threads : pool_default_threads());
    if (!pool)
        return err_set(e, ERR_FAILED, "--threads: cannot start %zu threads", threads);
    int rc = model_fingerprint(fingerprint, &f, dir, weights, pool, not_stopped, NULL, e);
    /* the fingerprint that is wanted may be one of --weights */
    for (enum weights w = WEIGHTS_Q8_0; want && w <= WEIGHTS_Q4_0 && rc == 0 && strcmp(want, fingerprint);
         w++) {
        model_files_free(&f);
        rc = model_fingerprint(fingerprint, &f, dir, w, pool, not_stopped, NULL, e);
    }
    pool_close(pool);
    if (rc > 0)
        return err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), dir);
    if (rc == 0 && model_stamp(dir) != stamp)
        rc = err_set(e, ERR_FAILED, "%s was changed while it was read", dir);
    if (rc == 0 && want && strcmp(want, fingerprint))
        rc = err_set(e, ERR_INPUT, "%s holds another model now: its fingerprint is %s, not %s", dir,
                     fingerprint, want);
    const struct model_record m = { .tokenizer = f.data[MODEL_TOKENIZER], .n_tokenizer = f.n[MODEL_TOKENIZER],
                                    .vocab = c.vocab, .eos = c.eos, .n_eos = c.n_eos,
                                    .config = f.data[MODEL_CONFIG], .generation = f.data[MODEL_GENERATION] };
    if (rc == 0 && !m.tokenizer)
        rc = err_set(e, ERR_INPUT, "%s/tokenizer.json: the file is missing", dir);
    if (rc == 0)
        rc = store_model_has(s, fingerprint, e);
    rc = rc ? (rc > 0 ? 0 : -1) : store_model_put(s, fingerprint, &m, e);
    model_files_free(&f);
    return rc;
}

/* The model of --model: its absolute path and fingerprint. */
static int find_moved(const struct options *o, struct store *s, char path[PATH_BYTES],
                      char fingerprint[FINGERPRINT_BYTES], struct err *e)
{
    char dir[PATH_BYTES];
    if (find_model_dir(dir, o->model, "--model", e))
        return -1;
    if (model_absolute_path(path, dir))
        return err_set(e, ERR_INPUT, "--model: %s: %s", dir, strerror(errno));
    return model_keep(s, path, o->threads, (enum weights)o->weights, NULL, fingerprint, e);
}

int model_from_options(const struct options *o, struct store *s, const int64_t *ids, size_t n, struct err *e)
{
    char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES];
    if (!o->model)
        return 0;
    int rc = find_moved(o, s, path, fingerprint, e);
    if (rc == 0)
        rc = store_model_move(s, ids, n, path, fingerprint, o->accept_change, e);
    return rc;
}

int model_of_work(const struct options *o, struct store *s, struct err *e)
{
    char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES];
    if (!o->model || o->verb->bit != VERB_WORK)
        return 0;
    int rc = find_moved(o, s, path, fingerprint, e);
    if (rc == 0)
        rc = store_model_move_all(s, path, fingerprint, e);
    return rc;
}
