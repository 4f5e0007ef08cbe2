/* The models that a worker could not read. Their jobs stay in the queue: a disk that is not mounted, or a
 * folder that is being copied, must not fail them. Waiting is no attempt. */
#pragma once
#include "src/base/base.h"

#define MISSING_RETRY_SECONDS 60.0       /* then a model whose files look the same is tried again */

struct missing_model {
    char *path;
    char why[512];                       /* why it could not be read, the last time */
    uint64_t stamp;                      /* model_stamp then */
    double at;                           /* clock_seconds then */
    bool waits;                          /* not readable as far as known */
};
struct missing {                         /* {0} is empty */
    struct missing_model *v; size_t n;
    char *list;                          /* "\npath\npath\n" of those that wait; NULL: none */
};

/* 1: the reason is new and should be shown; 0; -1: no memory. */
int    missing_add(struct missing *m, const char *path, const struct err *why);
/* Now and then: forgets the models that may be readable again. */
void   missing_look_again(struct missing *m);
/* The first model that waits; NULL: none does. */
const struct missing_model *missing_first(const struct missing *m);
void   missing_free(struct missing *m);
