/* The table of drafters with weights of their own (trained.h). */
#include "src/decode/trained.h"

#include "src/model/drafter_file.h"

/* Whether the matrices of a drafter are kept in 8 bits, as those of the model for drafts are. */
static bool int8(const struct draft_settings *set, const struct model *m)
{
    return set->weights == WEIGHTS_INT8 && m->dev->host_memory;
}

bool trained_is(enum source s) { return s == SOURCE_HEADS || s == SOURCE_LONGSPEC; }

bool trained_present(enum source s, const char *model)
{
    char path[PATH_BYTES];
    struct err ignored;
    return s == SOURCE_HEADS ? heads_present(model)
                             : trained_is(s) && drafter_find(path, model, source_names[s], &ignored) == 0;
}

int trained_check(enum source s, const char *path, const char *dir, const struct model *m, struct err *e)
{
    char own[PATH_BYTES];
    if (s == SOURCE_HEADS)
        return heads_check(path ? path : dir, m, e);
    if (!path && drafter_find(own, dir, source_names[s], e))
        return -1;
    return longspec_check(path ? path : own, m, e);
}

size_t trained_bytes(enum source s, const struct draft_settings *set, const struct model *m)
{
    enum { USUAL_HEADS = 4 };            /* before they are read */
    return s == SOURCE_HEADS ? heads_bytes(m, USUAL_HEADS) : longspec_bytes(m, int8(set, m));
}

int trained_open(struct engine *g, enum source s, const struct draft_settings *set, const char *path,
                 struct err *e)
{
    return s == SOURCE_HEADS ? heads_open(&g->heads, path, &g->model, e)
                             : longspec_open(&g->longspec, path, &g->model, int8(set, &g->model), e);
}

void trained_close(struct engine *g, enum source s)
{
    if (s == SOURCE_HEADS)
        heads_close(&g->heads);
    else if (s == SOURCE_LONGSPEC)
        longspec_close(&g->longspec);
}

bool trained_is_open(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS ? g->heads.mem != NULL : s == SOURCE_LONGSPEC && g->longspec.mem;
}

bool trained_is_foreign(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS ? g->heads.foreign : s == SOURCE_LONGSPEC && g->longspec.foreign;
}

void trained_setup(struct decode_setup *setup, struct engine *g)
{
    const unsigned drafters = setup->draft.drafters;
    setup->heads = drafters >> SOURCE_HEADS & 1 && g->heads.mem ? &g->heads : NULL;
    setup->longspec = drafters >> SOURCE_LONGSPEC & 1 && g->longspec.mem ? &g->longspec : NULL;
}
