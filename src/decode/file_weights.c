/* Weights in files of the folder drafters/, or of NAME:FILE (file_weights.h): a struct drafter_file, the
 * first member of the drafter's own struct. */
#include "src/decode/file_weights.h"

#include <stdlib.h>

static bool present(const struct drafter_ops *o, const char *model)
{
    char path[PATH_BYTES];
    struct err ignored;
    return drafter_find(path, model, o->kind->name, &ignored) == 0;
}

static int check(const struct drafter_ops *o, const char *path, const struct engine *g, struct err *e)
{
    char own[PATH_BYTES];
    if (!path && drafter_find(own, g->dir, o->kind->name, e))
        return -1;
    return drafter_check(o->kind, path ? path : own, &g->model,
                         g->tensors.n && !g->encoding ? &g->tensors : NULL, e);
}

static size_t bytes(const struct drafter_ops *o, const char *path, const struct engine *g, bool int8)
{
    char own[PATH_BYTES];
    struct err ignored;
    if (!path && drafter_find(own, g->dir, o->kind->name, &ignored) == 0)
        path = own;
    return drafter_bytes(o->kind, &g->model, int8) + (path ? draft_vocab_bytes(path, &g->model, int8) : 0);
}

static void *open_file(const struct drafter_ops *o, const char *path, const struct engine *g, bool int8,
                       struct err *e)
{
    struct drafter_file *f = calloc(1, o->kind->size);
    if (!f)
        err_set(e, ERR_FAILED, "%s: out of memory", o->name);
    else if (drafter_open(f, o->kind, path, &g->model, int8, e))
        free(f), f = NULL;
    return f;
}

static void close_file(const struct drafter_ops *o, void *weights)
{
    drafter_close(weights, o->kind);
    free(weights);
}

double file_weights_head(const struct decoder *d, const struct drafter_file *f)
{
    const struct mat *all = &d->model->lm_head, *own = draft_vocab_head(&f->vocab, all);
    return planner_bytes(own == all ? (double)mat_bytes(all) : 2 * (double)(own->n * own->k),
                         (double)mat_bytes(draft_vocab_head(&f->vocab, &d->set.draft_model->lm_head)));
}

static bool is_foreign(const void *weights) { return ((const struct drafter_file *)weights)->foreign; }

const struct drafter_weights file_weights = { .present = present, .check = check, .bytes = bytes,
                                              .open = open_file, .close = close_file,
                                              .is_foreign = is_foreign };
