/* The thread that raises a worker's beat and watches its job. Its data is struct heartbeat, shared with the
 * worker under a lock. Start at heartbeat_thread. */
#include "runs/work/heartbeat.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "runs/work/thread.h"

struct heartbeat {
    struct store *store;
    int64_t worker;
    double interval;                     /* seconds between beats */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* under the lock */
    bool stop;
    int64_t job, attempt;                /* watched; job 0: none */
    atomic_bool lost;
};

static void *heartbeat_thread(void *p)
{
    struct heartbeat *h = p;
    struct err e;
    double beat_at = clock_seconds() + h->interval;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        double check_at = h->job ? clock_seconds() + MIN(1.0, h->interval) : beat_at;
        cond_wait_until(&h->wake, &h->lock, MIN(beat_at, check_at));
        int64_t job = h->job, attempt = h->attempt;
        bool stop = h->stop;
        pthread_mutex_unlock(&h->lock);
        if (!stop && clock_seconds() >= beat_at) {
            store_beat(h->store, h->worker, &e);
            beat_at = clock_seconds() + h->interval;
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
    *out = NULL;
    if (!h)
        return err_set(e, ERR_FAILED, "out of memory for the heartbeat");
    h->worker = worker;
    h->interval = store_lease_seconds(s) / 6;
    pthread_mutex_init(&h->lock, NULL);
    cond_init(&h->wake);
    if (store_reopen(&h->store, s, e) ||
        thread_start(&h->thread, heartbeat_thread, h, "the heartbeat", e)) {
        store_close(h->store);
        free(h);
        return -1;
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
    thread_stop(h->thread, &h->lock, &h->wake, &h->stop);
    store_close(h->store);
    free(h);
}
