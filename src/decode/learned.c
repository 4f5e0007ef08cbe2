/* Saves and restores what a decoder has learned: copies between struct learned and struct drafting. Start at
 * learned.h. */
#include "src/decode/learned.h"

void learned_save(struct learned *x, const struct decoder *d)
{
    *x = (struct learned){ d->draft.planner, d->draft.calibration, d->draft.current_cache };
}

void learned_restore(struct decoder *d, const struct learned *x)
{
    d->draft.planner = x->planner;
    d->draft.calibration = x->calibration;
    d->draft.current_cache = x->current_cache;
}

void learned_catch_up(struct learned *x, const struct learned *writer)
{
    planner_catch_up(&x->planner, &writer->planner);
}
