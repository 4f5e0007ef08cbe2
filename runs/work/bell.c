/* The bell of a worker. Start at bell_wait. */
#include "runs/work/bell.h"
#include "runs/work/thread.h"

void bell_open(struct bell *b)
{
    *b = (struct bell){ .rung = false };
    pthread_mutex_init(&b->lock, NULL);
    cond_init(&b->cond);
}

void bell_ring(struct bell *b)
{
    pthread_mutex_lock(&b->lock);
    b->rung = true;
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->lock);
}

size_t bell_held(struct bell *b)
{
    pthread_mutex_lock(&b->lock);
    const size_t held = b->held;
    pthread_mutex_unlock(&b->lock);
    return held;
}

bool bell_wait(struct bell *b, double seconds, size_t held)
{
    const double due = clock_seconds() + seconds;
    pthread_mutex_lock(&b->lock);
    b->held = held;
    while (!b->rung && seconds > 0 && !cond_wait_until(&b->cond, &b->lock, due))
        ;
    const bool rung = b->rung;
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
    return rung;
}
