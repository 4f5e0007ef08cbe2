/* Progress on standard error. struct progress holds the phase and the marks; start at progress_at. */
#include "src/base/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/output.h"

static const double PLAIN_SECONDS = 10, FIRST_SECONDS = 0.5, LINE_SECONDS = 0.1, JSON_SECONDS = 1,
                    MARK_SECONDS = 5;

static atomic_bool times;

void log_times(bool on) { atomic_store(&times, on); }

const char *log_time(void)
{
    static _Thread_local char text[32];
    const time_t now = time(NULL);
    struct tm tm;
    if (!atomic_load(&times) || !localtime_r(&now, &tm) || !strftime(text, sizeof text, "%F %T ", &tm))
        return "";
    return text;
}

void progress_open(struct progress *p, int mode, bool quiet)
{
    const char *term = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
    *p = (struct progress){ .phase = "start", .unit = "", .colour = !no_color || !*no_color };
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
    /* The first JSON line appears at once, a terminal's line when a rate is known. Plain lines keep their
     * pace across phases, so a short run prints none. */
    if (p->show == SHOW_JSON)
        p->shown = 0;
    else if (p->show == SHOW_LINE || p->shown == 0)
        p->shown = now;
    p->mark_time[0] = p->mark_time[1] = now;
    p->mark_done[0] = p->mark_done[1] = 0;
    p->passes = p->stored = p->mark_passes[0] = p->mark_passes[1] = 0;
}

void progress_from(struct progress *p, size_t done)
{
    p->done = p->mark_done[0] = p->mark_done[1] = done;
}

void progress_clear(struct progress *p)
{
    if (p->drawn && p->below)
        fprintf(stderr, "\033[%zuA\r\033[J", p->below);
    else if (p->drawn)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    p->drawn = false;
    p->below = 0;
}

/* The figures since the older mark. */
struct view { double rate, eta, acceptance; };      /* eta < 0, acceptance 0: not known */

static struct view recent_view(const struct progress *p, double now)
{
    double since = now - p->mark_time[0], done = (double)(p->done - p->mark_done[0]);
    struct view v = { .rate = since > 0 ? done / since : 0 };
    v.eta = v.rate > 0 && p->of >= p->done ? (double)(p->of - p->done) / v.rate : -1;
    v.acceptance = p->passes > p->mark_passes[0] ? done / (double)(p->passes - p->mark_passes[0]) : 0;
    return v;
}

static void show_json(const struct progress *p, double now)
{
    const struct view v = recent_view(p, now);
    struct json_writer w = jw_begin(stderr, JW_LINE, 0);
    if (p->job)
        jw_int(&w, "job", p->job);
    if (p->custom_id)
        jw_text(&w, "custom_id", p->custom_id);
    jw_text(&w, "phase", p->phase);
    jw_text(&w, "unit", p->unit);
    jw_uint(&w, "done", p->done);
    jw_uint(&w, "of", p->of);
    jw_format(&w, "seconds", "%.3f", now - p->start);
    jw_format(&w, "per_second", "%.3f", v.rate);
    if (p->passes) {
        jw_format(&w, "mean_acceptance_length", "%.3f", v.acceptance);
        jw_uint(&w, "stored", p->stored);
    }
    jw_format(&w, "eta_seconds", "%.1f", v.eta >= 0 ? v.eta : NAN);
    jw_end(&w);
}

/* Writes the line. *head: the bytes that name the job and the phase. narrow: a shorter form for small
 * terminals. */
static void format_line(char *s, size_t size, size_t *head, bool narrow, const struct progress *p,
                    const struct view *v)
{
    char left[32] = "-";
    size_t n = 0;
#define ADD(...) (n += (size_t)snprintf(s + n, size - n, __VA_ARGS__), n = MIN(n, size - 1))
    if (v->eta >= 0)
        duration_text(left, v->eta);
    if (p->job)
        ADD("job %" PRId64, p->job);
    if (p->name && *p->name) {
        char name[64];
        terminal_text(name, sizeof name, p->name);
        ADD("%s%s", p->job ? " " : "", name);
    }
    if (p->job || p->name)
        ADD(": ");
    ADD("%s", p->phase);
    *head = n;
    if (strcmp(p->unit, "bytes") == 0) {
        ADD(" %.0f of %.0f MB, %.0f MB/s, %s left", (double)p->done / 1e6, (double)p->of / 1e6, v->rate / 1e6,
            left);
        return;
    }
    if (narrow)
        ADD(" %zu/%zu, %.1f %s/s", p->done, p->of, v->rate, p->unit);
    else
        ADD(" %zu of %zu %s (%.1f %%), %.1f %s/s", p->done, p->of, p->unit,
            p->of ? 100.0 * (double)p->done / (double)p->of : 100.0, v->rate, p->unit);
    if (v->acceptance > 0)
        ADD(", %.2f a pass", v->acceptance);
    ADD(", %s left", left);
    if (p->passes)
        ADD(narrow ? ", stored %zu" : ", checkpoint at %zu", p->stored);
#undef ADD
}

/* A wrapped line could not be redrawn. */
static size_t line_width(void)
{
    struct winsize w = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

size_t progress_rows(void)
{
    struct winsize w = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 ? w.ws_row : 24;
}

/* Draws one line, cut to the width: a wrapped line could not be redrawn. */
static void draw(const struct progress *p, const char *line, size_t n, size_t head)
{
    n = utf8_valid_prefix(line, MIN(n, line_width()));
    head = MIN(head, n);
    const bool colour = p->colour && head > 0;
    fprintf(stderr, "\r\033[K%s%.*s%s%.*s", colour ? "\033[36m" : "", (int)head, line,
            colour ? "\033[0m" : "", (int)(n - head), line + head);
}

void progress_text(struct progress *p, const char *line, size_t head)
{
    if (p->show == SHOW_LINE) {
        const size_t rows = progress_rows();
        if (p->below)
            progress_clear(p);
        draw(p, line, strcspn(line, "\n"), head);
        for (const char *next = strchr(line, '\n'); next && p->below + 1 < rows; next = strchr(next, '\n')) {
            fputc('\n', stderr);
            next++;
            draw(p, next, strcspn(next, "\n"), 0);
            p->below++;
        }
        p->drawn = true;
    } else if (p->show == SHOW_PLAIN) {
        fprintf(stderr, "%s%s\n", log_time(), line);
    }
    fflush(stderr);
}

/* The line of the phase, in its short form if it is cut and the terminal is small. */
static void phase_line(const struct progress *p, char *out, size_t size, size_t *head, bool cut)
{
    const struct view v = recent_view(p, clock_seconds());
    format_line(out, size, head, false, p, &v);
    if (cut && strlen(out) > line_width())
        format_line(out, size, head, true, p, &v);
}

void progress_line(const struct progress *p, char *out, size_t size)
{
    size_t head;
    phase_line(p, out, size, &head, true);
}

static void show(struct progress *p, double now)
{
    char line[256];
    size_t head;
    if (p->show == SHOW_JSON) {
        show_json(p, now);
        return;
    }
    phase_line(p, line, sizeof line, &head, p->show == SHOW_LINE);
    progress_text(p, line, head);
}

double progress_pace(const struct progress *p, double line, double json)
{
    return p->show == SHOW_PLAIN ? PLAIN_SECONDS : p->show == SHOW_JSON ? json : line;
}

/* A phase that reads or writes a whole model says so early, because nothing else is seen meanwhile. */
static bool is_due(const struct progress *p, double now)
{
    const bool first = p->show == SHOW_PLAIN && p->shown <= p->start && strcmp(p->unit, "bytes") == 0;
    return now - p->shown >= progress_pace(p, LINE_SECONDS, JSON_SECONDS) ||
           (first && now - p->start >= FIRST_SECONDS);
}

bool progress_due(const struct progress *p)
{
    return p->show != SHOW_NOTHING && is_due(p, clock_seconds());
}

void progress_at(struct progress *p, size_t done)
{
    p->done = done;
    if (p->show == SHOW_NOTHING)
        return;
    double now = clock_seconds();
    if (now - p->mark_time[1] >= MARK_SECONDS) {
        p->mark_time[0] = p->mark_time[1];
        p->mark_done[0] = p->mark_done[1];
        p->mark_passes[0] = p->mark_passes[1];
        p->mark_time[1] = now;
        p->mark_done[1] = done;
        p->mark_passes[1] = p->passes;
    }
    if (!is_due(p, now))
        return;
    p->shown = now;
    if (p->show != SHOW_ELSEWHERE)
        show(p, now);
}
