/* How many texts run at once: trials of twice as many. */
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

void places_idle(struct places *p)
{
    p->n = p->before ? p->before : p->n;
    p->before = 0;
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
    const double rate = (double)p->tokens / p->seconds;
    begin_window(p);
    if (p->before && rate < (1 + PLACES_GAIN) * p->rate) {
        p->n = p->before;
        p->before = 0;
        p->retry_at = now + p->wait;
        p->wait *= 2;
        return;
    }
    p->before = 0;
    if (p->n < p->most && now >= p->retry_at) {
        p->before = p->n;
        p->rate = rate;
        p->n = MIN(2 * p->n, p->most);
    }
}
