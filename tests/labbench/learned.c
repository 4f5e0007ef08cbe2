/* Saves and restores what a decoder has learned: copies between struct learned and struct decoder. Start at
 * learned.h. */
#include "tests/labbench/learned.h"

void learned_save(struct learned *x, const struct decoder *d)
{
    *x = (struct learned){ d->planner, d->set.buffers->costs, d->calibration,
                           d->current_cache };
}

void learned_restore(struct decoder *d, const struct learned *x)
{
    d->planner = x->planner;
    d->planner.model = &d->set.buffers->costs;
    d->set.buffers->costs = x->costs;
    d->calibration = x->calibration;
    d->current_cache = x->current_cache;
}

/* Another decoder wrote a stretch of the text: p forgets its own acceptance rates. */
static void planner_catch_up(struct planner *p)
{
    if (!p->on || p->model->seen[0] == 0)
        return;
    p->price = 0;                    /* the budget grows */
    for (size_t i = 0; i < p->in.n_caches; i++)
        p->cache[i].accepted = p->cache[i].guesses = 0;
    memset(p->gain, 0, sizeof p->gain);
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
