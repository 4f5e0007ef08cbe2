/* Opening the weights of drafters by the table (weights.h). */
#include "src/decode/weights.h"

#include <stdio.h>

/* Whether the matrices of a drafter are kept in 8 bits, as those of the model for drafts are. */
static bool int8(const struct draft_settings *set, const struct model *m)
{
    return set->weights == WEIGHTS_INT8 && m->dev->host_memory;
}

bool weights_present(enum drafter d, const char *model)
{
    return weights_has(d) && drafters[d]->weights->present(drafters[d], model);
}

unsigned weights_of_auto(unsigned present, bool fixed_tree)
{
    for (enum drafter d = 0; d < N_DRAFTERS && fixed_tree; d++)
        if (drafters[d] && drafters[d]->reads)
            present &= ~(1u << d);
    return present;
}

int weights_check(enum drafter d, const char *path, const struct engine *g, struct err *e)
{
    return drafters[d]->weights->check(drafters[d], path, g, e);
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
    return drafters[d]->weights->bytes(drafters[d], path, g, int8(set, &g->model));
}

int weights_open(struct engine *g, enum drafter d, const struct draft_settings *set, const char *path,
                 struct err *e)
{
    g->weights[d] = drafters[d]->weights->open(drafters[d], path, g, int8(set, &g->model), e);
    return g->weights[d] ? 0 : -1;
}

void weights_close(struct engine *g, enum drafter d)
{
    if (g->weights[d])
        drafters[d]->weights->close(drafters[d], g->weights[d]);
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
