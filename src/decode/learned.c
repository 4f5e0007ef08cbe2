/* Saves and restores what a decoder has learned: copies between struct learned and struct drafting. Start at
 * learned.h. */
#include "src/decode/learned.h"

void learned_save(struct learned *x, const struct decoder *d)
{
    *x = (struct learned){ d->draft.planner, d->buffers->costs, d->draft.calibration,
                           d->draft.current_cache };
}

void learned_restore(struct decoder *d, const struct learned *x)
{
    d->draft.planner = x->planner;
    d->draft.planner.model = &d->buffers->costs;
    d->buffers->costs = x->costs;
    d->draft.calibration = x->calibration;
    d->draft.current_cache = x->current_cache;
}

void learned_catch_up(struct learned *x, const struct learned *writer)
{
    if (x->planner.on && writer->costs.seen[0] > 0) {
        const struct cost_model own = x->costs;
        x->costs = writer->costs;
        x->costs.seconds = own.seconds, x->costs.next_timing = own.next_timing;
    }
    planner_catch_up(&x->planner);
}
