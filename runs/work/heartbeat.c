#include "runs/work/heartbeat.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct heartbeat {
    struct store *store;
    int64_t worker;
    double every;                        /* seconds between beats */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                           /* behind the lock, as job and attempt */
    int64_t job, attempt;
    atomic_bool lost;
};

static void *heartbeat_thread(void *p)
{
    struct heartbeat *h = p;
    struct err e;
    double beat_at = clock_seconds() + h->every;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        double now = clock_seconds(), until = MIN(beat_at, h->job ? now + MIN(1.0, h->every) : beat_at);
        struct timespec t = { .tv_sec = (time_t)until };
        t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
        pthread_cond_timedwait(&h->wake, &h->lock, &t);
        int64_t job = h->job, attempt = h->attempt;
        bool stop = h->stop;
        pthread_mutex_unlock(&h->lock);
        if (!stop && clock_seconds() >= beat_at) {
            store_beat(h->store, h->worker, &e);
            beat_at = clock_seconds() + h->every;
        }
        bool lost = !stop && job && store_claim_holds(h->store, job, attempt, &e) == 1;
        pthread_mutex_lock(&h->lock);
        if (lost && h->job == job && h->attempt == attempt)
            atomic_store(&h->lost, true);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

int heartbeat_start(struct heartbeat **out, const struct store *s, int64_t worker, struct err *e)
{
    struct heartbeat *h = calloc(1, sizeof *h);
    pthread_condattr_t monotonic;
    sigset_t all, before;
    *out = NULL;
    if (!h)
        return err_set(e, ERR_FAILED, "out of memory for the heartbeat");
    h->worker = worker;
    h->every = store_lease_seconds(s) / 6;
    if (store_reopen(&h->store, s, e)) {
        free(h);
        return -1;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, heartbeat_thread, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        store_close(h->store);
        free(h);
        return err_set(e, ERR_FAILED, "no thread for the heartbeat: %s", strerror(rc));
    }
    *out = h;
    return 0;
}

void heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt)
{
    pthread_mutex_lock(&h->lock);
    h->job = job;
    h->attempt = attempt;
    atomic_store(&h->lost, false);
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

bool heartbeat_lost(struct heartbeat *h) { return atomic_load_explicit(&h->lost, memory_order_relaxed); }

void heartbeat_stop(struct heartbeat *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->wake);
    store_close(h->store);
    free(h);
}
