#include "src/decode/learned.h"

#include <string.h>

void learned_save(struct learned *x, const struct decoder *d)
{
    const struct drafting *g = &d->draft;
    *x = (struct learned){ .control = d->control, .calibration = g->calibration, .at_arm = g->at_arm };
    memcpy(x->arm, g->arm, sizeof x->arm);
}

void learned_restore(struct decoder *d, const struct learned *x)
{
    d->control = x->control;
    d->draft.calibration = x->calibration;
    memcpy(d->draft.arm, x->arm, sizeof x->arm);
    d->draft.at_arm = x->at_arm;
}

void learned_catch_up(struct learned *x, const struct learned *writer)
{
    struct control *c = &x->control;
    for (size_t i = 0; i < BUDGET_ARMS; i++)
        x->arm[i].hit = MAX(x->arm[i].hit, HOPE);
    c->drafter[SOURCE_HEADS].n = 0;
    if (!c->on || !writer->control.measured[0])
        return;
    memcpy(c->cost, writer->control.cost, sizeof c->cost);
    memcpy(c->measured, writer->control.measured, sizeof c->measured);
    c->at = writer->control.at;
    c->drift = writer->control.drift;
    if (c->mode == c->better && c->rounds)
        c->to_go = 1;
}
