/* Weights in files of the folder drafters/, or of NAME:FILE (file_weights.h): a struct drafter_file, the
 * first member of the drafter's own struct. */
#include "src/decode/file_weights.h"

static int find(const struct drafter_ops *o, char path[PATH_BYTES], const char *model, struct err *e)
{
    return drafter_find(path, model, o->kind->name, e);
}

static int check(const struct weights_at *at, struct err *e)
{
    const struct engine *g = at->g;
    return drafter_check(at->drafter->kind, at->path, &g->model,
                         g->tensors.n && !g->encoding ? &g->tensors : NULL, e);
}

static size_t bytes(const struct weights_at *at)
{
    const struct model *m = &at->g->model;
    return drafter_bytes(at->drafter->kind, m, at->int8) +
           (at->path ? draft_vocab_bytes(at->path, m, at->int8) : 0);
}

static int open_file(void *weights, const struct weights_at *at, struct err *e)
{
    return drafter_open(weights, at->drafter->kind, at->path, &at->g->model, at->int8, e);
}

static void close_file(void *weights) { drafter_close(weights, ((struct drafter_file *)weights)->kind); }

double file_weights_head(const struct decoder *d, const struct drafter_file *f)
{
    const struct mat *all = &d->model->lm_head, *own = draft_vocab_head(&f->vocab, all);
    return planner_bytes(own == all ? (double)mat_bytes(all) : 2 * (double)(own->n * own->k),
                         (double)mat_bytes(draft_vocab_head(&f->vocab, &d->set.draft_model->lm_head)));
}

static bool is_foreign(const void *weights) { return ((const struct drafter_file *)weights)->foreign; }

const struct drafter_weights file_weights = { .find = find, .check = check, .bytes = bytes,
                                              .open = open_file, .close = close_file,
                                              .is_foreign = is_foreign };
