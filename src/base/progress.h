/* Progress on standard error: a redrawn line on a terminal, no wider than it, a plain line every 10 s elsewhere, or one JSON
 * object per line and second. Counts go through loading, prefill and writing; times and rates are the reader's own. The redrawn line has a
 * coloured beginning unless NO_COLOR is set and not empty. */
#pragma once
#include "src/base/base.h"

enum { PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_NONE };   /* --progress, in this order */

struct progress {
    enum { SHOW_NOTHING, SHOW_PLAIN, SHOW_LINE, SHOW_JSON } show;
    bool drawn, colour;              /* the terminal line is not empty; it may have colours */
    const char *phase, *unit;
    int64_t job;                     /* shown before the phase; 0: none */
    size_t done, of;
    /* of a text that is being written: rounds so far; tokens that are stored. The caller's, set before
     * progress_at */
    size_t passes, stored;
    double start, shown;             /* of the phase; of the last output */
    double mark_time[2]; size_t mark_done[2], mark_passes[2];   /* two marks, 5 s or more apart: the recent rate */
};

/* mode: PROGRESS_*; quiet shows nothing. */
void progress_open(struct progress *p, int mode, bool quiet);
void progress_phase(struct progress *p, const char *phase, const char *unit, size_t of);
/* the phase begins with so much done already: no part of its rate */
void progress_from(struct progress *p, size_t done);
bool progress_due(const struct progress *p);             /* whether progress_at would show something now: time to ask for what costs */
void progress_at(struct progress *p, size_t done);       /* cheap: looks at the clock, seldom prints */
void progress_clear(struct progress *p);                 /* remove the redrawn line, before other output */
/* Show nothing more (text and progress share a terminal). */
void progress_stop(struct progress *p);
