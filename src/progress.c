#include "src/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/options.h"

static const double PLAIN_SECONDS = 10, LINE_SECONDS = 0.1, JSON_SECONDS = 1, MARK_SECONDS = 5;

void progress_open(struct progress *p, int mode, bool quiet)
{
    const char *term = getenv("TERM");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
    *p = (struct progress){ .phase = "start", .unit = "" };
    p->show = quiet || mode == PROGRESS_NONE ? SHOW_NOTHING : mode == PROGRESS_JSON ? SHOW_JSON
              : mode == PROGRESS_AUTO && terminal ? SHOW_LINE : SHOW_PLAIN;
}

void progress_phase(struct progress *p, const char *phase, const char *unit, size_t of)
{
    double now = clock_seconds();
    p->phase = phase;
    p->unit = unit;
    p->of = of;
    p->done = 0;
    p->start = now;
    /* The first JSON line comes at once; a terminal's line when there is a rate to show; plain lines keep their pace
     * across phases, so that a short run prints none. */
    if (p->show == SHOW_JSON)
        p->shown = 0;
    else if (p->show == SHOW_LINE || p->shown == 0)
        p->shown = now;
    p->mark_time[0] = p->mark_time[1] = now;
    p->mark_done[0] = p->mark_done[1] = 0;
}

void progress_from(struct progress *p, size_t done)
{
    p->done = p->mark_done[0] = p->mark_done[1] = done;
}

double progress_seconds(const struct progress *p)
{
    return clock_seconds() - p->start;
}

void progress_clear(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void progress_stop(struct progress *p)
{
    progress_clear(p);
    p->show = SHOW_NOTHING;
}

/* 75 -> "1:15", 4000 -> "1:06:40" */
static void clock_text(char *s, size_t n, double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 999999999ul;
    if (t >= 3600)
        snprintf(s, n, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(s, n, "%lu:%02lu", t / 60, t % 60);
}

static void show(struct progress *p, double now)
{
    double since = now - p->mark_time[0];
    double rate = since > 0 ? (double)(p->done - p->mark_done[0]) / since : 0;
    double eta = rate > 0 ? (double)(p->of - p->done) / rate : -1;
    bool bytes = strcmp(p->unit, "bytes") == 0;
    char left[32] = "-";
    if (eta >= 0)
        clock_text(left, sizeof left, eta);
    if (p->show == SHOW_JSON) {
        fputs("{", stderr);
        if (p->job)
            fprintf(stderr, "\"job\": %" PRId64 ", ", p->job);
        fprintf(stderr, "\"phase\": \"%s\", \"unit\": \"%s\", \"done\": %zu, \"of\": %zu, \"seconds\": %.3f, \"per_second\": %.3f", p->phase,
                p->unit, p->done, p->of, now - p->start, rate);
        if (eta >= 0)
            fprintf(stderr, ", \"eta_seconds\": %.1f}\n", eta);
        else
            fputs(", \"eta_seconds\": null}\n", stderr);
        return;
    }
    fputs(p->show == SHOW_LINE ? "\r\033[K" : "", stderr);
    if (p->job)
        fprintf(stderr, "job %" PRId64 ": ", p->job);
    if (bytes)
        fprintf(stderr, "%s %.0f of %.0f MB, %.0f MB/s, %s left", p->phase, (double)p->done / 1e6, (double)p->of / 1e6, rate / 1e6, left);
    else
        fprintf(stderr, "%s %zu of %zu %s (%.1f %%), %.1f %s/s, %s left", p->phase, p->done, p->of, p->unit,
                p->of ? 100.0 * (double)p->done / (double)p->of : 100.0, rate, p->unit, left);
    if (p->show == SHOW_LINE)
        p->drawn = true;
    else
        fputc('\n', stderr);
    fflush(stderr);
}

void progress_at(struct progress *p, size_t done)
{
    double pace = p->show == SHOW_PLAIN ? PLAIN_SECONDS : p->show == SHOW_JSON ? JSON_SECONDS : LINE_SECONDS;
    p->done = done;
    if (p->show == SHOW_NOTHING)
        return;
    double now = clock_seconds();
    if (now - p->mark_time[1] >= MARK_SECONDS) {
        p->mark_time[0] = p->mark_time[1];
        p->mark_done[0] = p->mark_done[1];
        p->mark_time[1] = now;
        p->mark_done[1] = done;
    }
    if (now - p->shown < pace)
        return;
    p->shown = now;
    show(p, now);
}
