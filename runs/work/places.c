/* How many texts run at once: trials of twice and of half as many. */
#include "runs/work/places.h"

void places_open(struct places *p, size_t most)
{
    *p = (struct places){ .n = MIN((size_t)PLACES_FIRST, most), .most = most, .wait = PLACES_RETRY };
}

/* The next rounds are those of a new window. */
static void begin_window(struct places *p)
{
    p->rounds = p->tokens = 0;
    p->seconds = 0;
}

/* Try n places. Fewer texts draft more, so their first window only lets the planner measure its drafts. */
static void try(struct places *p, size_t n)
{
    p->before = p->n;
    p->n = n;
    p->learns = n < p->before;
}

void places_idle(struct places *p)
{
    p->n = p->before ? p->before : p->n;
    p->before = 0;
    p->learns = false;
    begin_window(p);
}

void places_round(struct places *p, size_t texts, size_t tokens, double seconds, double now)
{
    if (4 * texts <= 3 * p->n)
        return;
    p->tokens += tokens;
    p->seconds += seconds;
    if (++p->rounds < PLACES_ROUNDS || p->seconds < PLACES_SECONDS)
        return;
    const double rate = (double)p->tokens / p->seconds, base = p->rate;
    begin_window(p);
    if (p->learns) {
        p->learns = false;
        return;
    }
    const size_t before = p->before, tried = p->n;
    const bool failed = before && rate < (1 + PLACES_GAIN) * base, fewer = before > tried;
    p->before = 0;
    p->n = failed ? before : tried;
    if (!failed)
        p->rate = rate;
    if (p->n > 1 && (failed ? !fewer && rate < base : fewer)) {
        try(p, p->n / 2);
    } else if (failed || fewer) {
        p->retry_at = now + p->wait;
        p->wait *= 2;
    } else if (p->n < p->most && now >= p->retry_at) {
        try(p, MIN(2 * p->n, p->most));
    }
}
