/* The table of drafters with weights of their own (trained.h). */
#include "src/decode/trained.h"

#include <stddef.h>

/* Drafters whose files are those of drafter_file.h. */
static const struct { enum source source; const struct drafter_kind *kind; size_t at; } files[] = {
    { SOURCE_LONGSPEC, &longspec_kind, offsetof(struct engine, longspec.file) },
    { SOURCE_SPIRE, &spire_kind, offsetof(struct engine, spire.file) },
    { SOURCE_GUMIHO, &gumiho_kind, offsetof(struct engine, gumiho.file) },
};

/* NULL: a drafter without such a file. */
static const struct drafter_kind *kind_of(enum source s)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].source == s)
            return files[i].kind;
    return NULL;
}

static struct drafter_file *file_of(const struct engine *g, enum source s)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].source == s)
            return (struct drafter_file *)((uintptr_t)g + files[i].at);
    return NULL;
}

/* Whether the matrices of a drafter are kept in 8 bits, as those of the model for drafts are. */
static bool int8(const struct draft_settings *set, const struct model *m)
{
    return set->weights == WEIGHTS_INT8 && m->dev->host_memory;
}

bool trained_takes_file(enum source s) { return s == SOURCE_HEADS || s == SOURCE_MODEL || kind_of(s); }
bool trained_is(enum source s) { return s == SOURCE_MTP || trained_takes_file(s); }

bool trained_present(enum source s, const char *model)
{
    char path[PATH_BYTES];
    struct err ignored;
    return s == SOURCE_HEADS ? heads_present(model)
           : s == SOURCE_MTP ? mtp_present(model)
                             : kind_of(s) && drafter_find(path, model, kind_of(s)->name, &ignored) == 0;
}

int trained_check(enum source s, const char *path, const struct engine *g, struct err *e)
{
    char own[PATH_BYTES];
    size_t bytes;
    if (s == SOURCE_HEADS)
        return heads_check(path ? path : g->dir, &g->model, e);
    if (s == SOURCE_MTP)
        return mtp_check(&g->model, &g->tensors, &bytes, e);
    if (s == SOURCE_MODEL)
        return path ? small_model_check(path, &g->model, g->tokenizer, false, NULL, e)
                    : err_set(e, ERR_INPUT, "--drafter: model needs a model: model:DIR");
    if (!path && drafter_find(own, g->dir, source_names[s], e))
        return -1;
    return drafter_check(kind_of(s), path ? path : own, &g->model,
                         g->tensors.n && !g->weights ? &g->tensors : NULL, e);
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
           : s == SOURCE_MTP   ? mtp_bytes(&g->model, g->mtp_bytes, int8(set, &g->model))
                               : drafter_bytes(kind_of(s), &g->model, int8(set, &g->model));
}

int trained_open(struct engine *g, enum source s, const struct draft_settings *set, const char *path,
                 struct err *e)
{
    const bool eight = int8(set, &g->model);
    return s == SOURCE_HEADS ? heads_open(&g->heads, path, &g->model, e)
           : s == SOURCE_MTP ? mtp_open(&g->mtp, &g->model, g->dir, g->weights, eight, e)
           : kind_of(s)      ? drafter_open(file_of(g, s), kind_of(s), path, &g->model, eight, e)
           : path            ? small_model_open(&g->small, path, &g->model, g->tokenizer, eight, e)
                             : err_set(e, ERR_INPUT, "--drafter: model needs a model: model:DIR");
}

void trained_close(struct engine *g, enum source s)
{
    if (s == SOURCE_HEADS)
        heads_close(&g->heads);
    else if (s == SOURCE_MODEL)
        small_model_close(&g->small);
    else if (s == SOURCE_MTP)
        mtp_close(&g->mtp);
    else if (kind_of(s))
        drafter_close(file_of(g, s), kind_of(s));
}

bool trained_is_open(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS ? g->heads.mem != NULL
           : s == SOURCE_MTP ? g->mtp.work != NULL
           : kind_of(s)      ? file_of(g, s)->mem != NULL
                             : s == SOURCE_MODEL && g->small.logits;
}

bool trained_is_foreign(const struct engine *g, enum source s)
{
    return s == SOURCE_HEADS ? g->heads.foreign : kind_of(s) && file_of(g, s)->foreign;
}

void trained_setup(struct decode_setup *setup, struct engine *g)
{
    const unsigned drafters = setup->draft.drafters;
    setup->heads = drafters >> SOURCE_HEADS & 1 && g->heads.mem ? &g->heads : NULL;
    setup->longspec = drafters >> SOURCE_LONGSPEC & 1 && g->longspec.file.mem ? &g->longspec : NULL;
    setup->small = drafters >> SOURCE_MODEL & 1 && g->small.logits ? &g->small : NULL;
    setup->spire = drafters >> SOURCE_SPIRE & 1 && g->spire.file.mem ? &g->spire : NULL;
    setup->mtp = drafters >> SOURCE_MTP & 1 && g->mtp.work ? &g->mtp : NULL;
    setup->gumiho = drafters >> SOURCE_GUMIHO & 1 && g->gumiho.file.mem ? &g->gumiho : NULL;
}
