/* The number of places of a worker with --parallel auto: how many texts may run at once.
 *
 *     places_open(&p, most)
 *     loop: let texts join while there are fewer than p.n
 *           a round of at most p.n texts, those that have joined first
 *           places_round(&p, texts, tokens, seconds, clock_seconds())
 *
 * More texts share the reading of the weights, and their caches push each other out of the CPU's caches. So
 * the rate, the tokens of all texts per second of rounds, rises with their number up to some number. There
 * are PLACES_FIRST places at first. They are doubled on trial. A trial that has raised the rate by
 * PLACES_GAIN is followed by the next one. After a trial that has not, there are as many places as before it.
 * If it has lowered the rate, half as many are tried, and half of those, as long as each trial raises the
 * rate by PLACES_GAIN. The texts that joined last keep their memory and wait for places, by priority. Only a
 * text of a higher priority joins then. The next trial comes after PLACES_RETRY seconds, later ones each
 * after twice the time of the one before. Another model begins with PLACES_FIRST again.
 *
 * A rate is that of a window: at least PLACES_ROUNDS rounds and PLACES_SECONDS seconds in which more than
 * three quarters of the places are taken. The slices of prompts between rounds are no part of it. A trial is
 * judged against the last window of the number before it, because rates fall as texts grow. A trial of fewer
 * texts is judged by its second window. */
#pragma once
#include "src/base/base.h"

#define PLACES_SECONDS 0.2
#define PLACES_GAIN 0.08
#define PLACES_RETRY 20.0
enum { PLACES_FIRST = 4, PLACES_ROUNDS = 10 };

struct places {
    size_t n, most;                      /* places now, and the most that there may be */
    size_t before; double rate;          /* on trial: places before it, and their rate; before 0: no trial */
    bool learns;                         /* a trial of fewer is in its first window, which does not count */
    double retry_at, wait;               /* when the next trial may begin; seconds from a failed one to it */
    /* the window so far */
    size_t rounds, tokens;
    double seconds;
};

void places_open(struct places *p, size_t most);
/* No text runs, and none may join. A trial that no window has judged ends: the texts of its rate are over. */
void places_idle(struct places *p);
/* A round of so many texts has made `tokens` tokens in `seconds`; it ended at `now`. */
void places_round(struct places *p, size_t texts, size_t tokens, double seconds, double now);
