/* The table of drafters with weights of their own (trained.h). */
#include "src/decode/trained.h"

#include "src/model/drafter_file.h"

/* Whether the matrices of a drafter are kept in 8 bits, as those of the model for drafts are. */
static bool int8(const struct draft_settings *set, const struct model *m)
{
    return set->weights == WEIGHTS_INT8 && m->dev->host_memory;
}

bool trained_is(enum source s)
{
    return s == SOURCE_HEADS || s == SOURCE_LONGSPEC || s == SOURCE_SPIRE || s == SOURCE_MODEL;
}

bool trained_present(enum source s, const char *model)
{
    char path[PATH_BYTES];
    struct err ignored;
    return s == SOURCE_HEADS ? heads_present(model)
                             : (s == SOURCE_LONGSPEC || s == SOURCE_SPIRE) &&
                                   drafter_find(path, model, source_names[s], &ignored) == 0;
}

int trained_check(enum source s, const char *path, const struct engine *g, struct err *e)
{
    char own[PATH_BYTES];
    if (s == SOURCE_HEADS)
        return heads_check(path ? path : g->dir, &g->model, e);
    if (s == SOURCE_MODEL)
        return path ? small_model_check(path, &g->model, g->tokenizer, false, NULL, e)
                    : err_set(e, ERR_INPUT, "--drafter: model needs a model: model:DIR");
    if (!path && drafter_find(own, g->dir, source_names[s], e))
        return -1;
    return (s == SOURCE_SPIRE ? spire_check : longspec_check)(path ? path : own, &g->model, e);
}

size_t trained_bytes(enum source s, const struct draft_settings *set, const char *path,
                     const struct engine *g)
{
    enum { USUAL_HEADS = 4 };            /* before they are read */
    struct err ignored;
    size_t bytes = 0;
    if (s == SOURCE_MODEL && path)
        small_model_check(path, &g->model, g->tokenizer, int8(set, &g->model), &bytes, &ignored);
    return s == SOURCE_MODEL   ? bytes
           : s == SOURCE_HEADS ? heads_bytes(&g->model, USUAL_HEADS)
           : s == SOURCE_SPIRE ? spire_bytes(&g->model, int8(set, &g->model))
                               : longspec_bytes(&g->model, int8(set, &g->model));
}

int trained_open(struct engine *g, enum source s, const struct draft_settings *set, const char *path,
                 struct err *e)
{
    const bool eight = int8(set, &g->model);
    return s == SOURCE_HEADS      ? heads_open(&g->heads, path, &g->model, e)
           : s == SOURCE_LONGSPEC ? longspec_open(&g->longspec, path, &g->model, eight, e)
           : s == SOURCE_SPIRE    ? spire_open(&g->spire, path, &g->model, eight, e)
           : path                 ? small_model_open(&g->small, path, &g->model, g->tokenizer, eight, e)
                                  : err_set(e, ERR_INPUT, "--drafter: model needs a model: model:DIR");
}

void trained_close(struct engine *g, enum source s)
{
    if (s == SOURCE_HEADS)
        heads_close(&g->heads);
    else if (s == SOURCE_LONGSPEC)
        longspec_close(&g->longspec);
    else if (s == SOURCE_MODEL)
        small_model_close(&g->small);
    else if (s == SOURCE_SPIRE)
        spire_close(&g->spire);
}

bool trained_is_open(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS      ? g->heads.mem != NULL
           : s == SOURCE_LONGSPEC ? g->longspec.mem != NULL
           : s == SOURCE_SPIRE    ? g->spire.mem != NULL
                                  : s == SOURCE_MODEL && g->small.logits;
}

bool trained_is_foreign(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS   ? g->heads.foreign
           : s == SOURCE_SPIRE ? g->spire.foreign
                               : s == SOURCE_LONGSPEC && g->longspec.foreign;
}

void trained_setup(struct decode_setup *setup, struct engine *g)
{
    const unsigned drafters = setup->draft.drafters;
    setup->heads = drafters >> SOURCE_HEADS & 1 && g->heads.mem ? &g->heads : NULL;
    setup->longspec = drafters >> SOURCE_LONGSPEC & 1 && g->longspec.mem ? &g->longspec : NULL;
    setup->small = drafters >> SOURCE_MODEL & 1 && g->small.logits ? &g->small : NULL;
    setup->spire = drafters >> SOURCE_SPIRE & 1 && g->spire.mem ? &g->spire : NULL;
}
