/* Opening the weights of drafters by the table (weights.h). */
#include "src/decode/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/model/drafter_file.h"

/* The weights at `path`, or where those of the model lie, whose name is written to `own`. path stays NULL
 * where they lie nowhere, and *e says why, or in the model's own files. Matrices are kept in 8 bits as those
 * of the model for drafts are. */
static struct weights_at at(char own[PATH_BYTES], enum drafter d, const struct draft_settings *set,
                            const char *path, const struct engine *g, struct err *e)
{
    const struct drafter_ops *o = drafters[d];
    if (!path && o->weights->find && o->weights->find(o, own, g->dir, e) == 0)
        path = own;
    return (struct weights_at){ o, path, g,
                                set && set->weights == WEIGHTS_INT8 && g->model.dev->host_memory };
}

bool weights_present(enum drafter d, const char *model)
{
    char path[PATH_BYTES];
    struct err ignored;
    return weights_has(d) && (drafters[d]->weights->find
                                  ? drafters[d]->weights->find(drafters[d], path, model, &ignored) == 0
                                  : drafters[d]->weights->present(model));
}

unsigned weights_of_auto(unsigned present, bool fixed_tree)
{
    for (enum drafter d = 0; d < N_DRAFTERS && fixed_tree; d++)
        if (drafters[d] && drafters[d]->passes)
            present &= ~(1u << d);
    return present;
}

int weights_check(enum drafter d, const char *path, const struct engine *g, struct err *e)
{
    char own[PATH_BYTES];
    const struct weights_at w = at(own, d, NULL, path, g, e);
    return !w.path && drafters[d]->weights->find ? -1 : drafters[d]->weights->check(&w, e);
}

int weights_missing(enum drafter d, const char *option, const char *model, struct err *e)
{
    const char *why = drafters[d]->weights->missing;
    return why ? err_set(e, ERR_INPUT, "--%s: %s %s", option, model, why)
               : err_set(e, ERR_INPUT,
                         "--%s: %s has no drafter of this kind in drafters/; --drafter %s:FILE names one",
                         option, model, drafters[d]->name);
}

size_t weights_bytes(enum drafter d, const struct draft_settings *set, const char *path,
                     const struct engine *g)
{
    char own[PATH_BYTES];
    struct err ignored;
    const struct weights_at w = at(own, d, set, path, g, &ignored);
    return drafters[d]->weights->bytes(&w);
}

int weights_open(struct engine *g, enum drafter d, const struct draft_settings *set, const char *path,
                 struct err *e)
{
    const struct drafter_weights *own = drafters[d]->weights;
    char found[PATH_BYTES];
    const struct weights_at w = at(found, d, set, path, g, e);
    if (!w.path && own->find)
        return -1;
    g->weights[d] = calloc(1, own->size ? own->size : drafters[d]->kind->size);
    if (!g->weights[d])
        return err_set(e, ERR_FAILED, "%s: out of memory", drafters[d]->name);
    if (own->open(g->weights[d], &w, e) == 0)
        return 0;
    free(g->weights[d]);
    g->weights[d] = NULL;
    return -1;
}

void weights_close(struct engine *g, enum drafter d)
{
    if (g->weights[d])
        drafters[d]->weights->close(g->weights[d]);
    free(g->weights[d]);
    g->weights[d] = NULL;
}

bool weights_are_foreign(const struct engine *g, enum drafter d)
{
    return g->weights[d] && drafters[d]->weights->is_foreign &&
           drafters[d]->weights->is_foreign(g->weights[d]);
}

void weights_foreign_line(char *line, size_t n, enum drafter d, const char *path)
{
    const char *why = drafters[d]->weights->foreign;
    if (why)
        snprintf(line, n, "%s: %s", path, why);
    else
        snprintf(line, n, "%s: the drafter %s was trained for another form of this model: fewer of its "
                          "guesses may come true, and the text is the same", path, drafters[d]->name);
}

void weights_setup(struct decode_setup *setup, struct engine *g)
{
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        setup->weights[d] = setup->draft.drafters >> d & 1 ? g->weights[d] : NULL;
}
