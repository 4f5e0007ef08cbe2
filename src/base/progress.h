/* Progress on standard error. On a terminal one line is redrawn, never wider than the terminal; its
 * beginning is coloured unless NO_COLOR is set. Elsewhere a plain line appears every 10 s, and the first one
 * of a phase that counts bytes, such as loading, after 0.5 s. With --progress json one object per line
 * appears every second.
 *
 *     progress_open(&p, mode, quiet)
 *     progress_phase(&p, "loading", "bytes", total)     one phase after the other
 *     progress_at(&p, done)                             as often as the caller likes
 *     progress_clear(&p)                                before other output */
#pragma once
#include "src/base/base.h"

enum { PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_NONE };   /* --progress, in this order */

struct progress {
    /* SHOW_ELSEWHERE: keeps the figures, and the caller shows them with progress_line */
    enum { SHOW_NOTHING, SHOW_PLAIN, SHOW_LINE, SHOW_JSON, SHOW_ELSEWHERE } show;
    bool drawn, colour;              /* the terminal's line is not empty; colours are allowed */
    size_t below;                    /* further lines of the terminal that were drawn below it */
    const char *phase, *unit;
    int64_t job;                     /* shown before the phase; 0: none */
    const char *custom_id, *name;    /* of the job, or NULL; borrowed. Lines show `name`, JSON custom_id */
    size_t done, of;
    /* While a text is written, the caller sets these before progress_at: rounds so far; tokens that are
     * stored. */
    size_t passes, stored;
    double start, shown;             /* when the phase began; when the last output appeared */
    /* Two marks, at least 5 s apart, from which the recent rate is computed. */
    double mark_time[2]; size_t mark_done[2], mark_passes[2];
};

/* Lines of a log. While they are on, plain lines on standard error begin with date and time. */
void log_times(bool on);
/* The beginning of a line: "2026-11-24 21:30:05 ", or "". Valid until the thread's next call. */
const char *log_time(void);

/* mode: PROGRESS_*; quiet: show nothing. */
void progress_open(struct progress *p, int mode, bool quiet);
void progress_phase(struct progress *p, const char *phase, const char *unit, size_t of);
/* The phase resumes with `done` units, which do not count for its rate. */
void progress_from(struct progress *p, size_t done);
/* Seconds from one output to the next: 10 for plain lines, `line` for a terminal's line, `json` for JSON. */
double progress_pace(const struct progress *p, double line, double json);
/* Whether progress_at would print now, so the caller computes costly figures only then. */
bool progress_due(const struct progress *p);
void progress_at(struct progress *p, size_t done);       /* cheap: reads the clock, rarely prints */
void progress_clear(struct progress *p);                 /* removes the redrawn line, or lines */
/* The line of a phase whose `show` is SHOW_ELSEWHERE. */
void progress_line(const struct progress *p, char *out, size_t size);
size_t progress_rows(void);                              /* lines of the terminal's window */
/* Shows a line of its own in place of the phase's: redrawn on a terminal, where its first `head` bytes are
 * coloured; printed elsewhere. Not for SHOW_JSON. On a terminal `line` may have several lines, separated by
 * newlines; those that do not fit the window's height are left out. */
void progress_text(struct progress *p, const char *line, size_t head);
