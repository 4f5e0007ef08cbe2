/* The table of drafters (drafters.h), and the order in which they are asked. */
#include <stdio.h>
#include <string.h>

#include "src/decode/draft.h"

#define DRAFTER_ENTRY(number, file) [DRAFTER_##number] = &drafter_##file,
const struct drafter_ops *drafters[N_DRAFTERS] = { DRAFTERS(DRAFTER_ENTRY) };

const char *drafter_name(enum drafter d) { return drafters[d] ? drafters[d]->name : "added"; }

const struct drafter_ops *drafter_next(unsigned set, const struct drafter_ops *last)
{
    enum drafter d = last ? last->id + 1 : 0;
    for (enum drafter_turn turn = last ? last->turn : 0; turn < N_TURNS; turn++, d = 0)
        for (; d < N_DRAFTERS; d++)
            if (set >> d & 1 && drafters[d] && drafters[d]->turn == turn)
                return drafters[d];
    return NULL;
}

const char *drafter_list(char list[256], unsigned set)
{
    static const char *const option[] = { "", "[:FILE]", ":DIR" };
    *list = 0;
    for (enum drafter d = 0; d < DRAFTER_ADDED; d++)
        if (set >> d & 1)
            snprintf(list + strlen(list), 256 - strlen(list), "%s%s%s", *list ? ", " : "", drafters[d]->name,
                     option[drafters[d]->option]);
    return list;
}
