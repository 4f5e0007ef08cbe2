/* Saving and restoring what a decoder has learned (learned.h). */
#include "src/decode/learned.h"

void learned_save(struct learned *x, const struct decoder *d)
{
    *x = (struct learned){ d->draft.planner, d->draft.calibration, d->draft.at_cache };
}

void learned_restore(struct decoder *d, const struct learned *x)
{
    d->draft.planner = x->planner;
    d->draft.calibration = x->calibration;
    d->draft.at_cache = x->at_cache;
}

void learned_catch_up(struct learned *x, const struct learned *writer)
{
    planner_catch_up(&x->planner, &writer->planner);
}
