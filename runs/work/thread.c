/* Starts and stops the threads beside the decode loop, waits by the monotonic clock, and rings the bell of a
 * worker. Start at runs/work/thread.h. */
#include "runs/work/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

void thread_open(struct thread *t)
{
    *t = (struct thread){ .runs = false };
    pthread_mutex_init(&t->lock, NULL);
    cond_init(&t->wake);
}

int thread_start(struct thread *t, void *(*run)(void *ctx), void *ctx, const char *purpose, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&t->id, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->runs = rc == 0;
    return rc ? err_set(e, ERR_FAILED, "no thread for %s: %s", purpose, strerror(rc)) : 0;
}

void thread_stop(struct thread *t)
{
    if (!t->runs)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->id, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    t->runs = false;
}

void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double due)
{
    struct timespec t = { .tv_sec = (time_t)due };
    t.tv_nsec = (long)((due - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(c, lock, &t) == ETIMEDOUT;
}

/* ---- the bell ---- */

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

bool bell_wait(struct bell *b, double seconds, size_t held)
{
    const double due = clock_seconds() + seconds;
    b->held = held;
    pthread_mutex_lock(&b->lock);
    while (!b->rung && seconds > 0 && !cond_wait_until(&b->cond, &b->lock, due))
        ;
    const bool rung = b->rung;
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
    return rung;
}
