/* A worker's sign of life: a thread with its own connection. It raises the worker's beat six times per lease
 * (runs/store/owner.h), also during prefills and long passes. Once a second it checks whether the watched
 * jobs still belong to this worker. A beat that cannot be written is skipped: at worst another worker takes
 * over at the end of the lease, and the store refuses this worker's commits. Start at heartbeat_thread. */
#include "runs/work/worker.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "runs/work/thread.h"

struct heartbeat {
    struct store *store;
    int64_t worker;
    double interval;                     /* seconds between beats */
    struct thread thread;
    /* under its lock */
    struct { int64_t job, attempt; atomic_bool lost; } place[WORKER_JOBS_MAX];    /* job 0: free */
};

/* Checks all watched jobs. The caller holds the lock, which is released during each check. */
static void check_jobs(struct heartbeat *h)
{
    struct err e;
    for (size_t i = 0; i < WORKER_JOBS_MAX && !h->thread.stop; i++) {
        const int64_t job = h->place[i].job, attempt = h->place[i].attempt;
        if (!job)
            continue;
        pthread_mutex_unlock(&h->thread.lock);
        const bool lost = store_claim_holds(h->store, job, attempt, &e) == 1;
        pthread_mutex_lock(&h->thread.lock);
        if (lost && h->place[i].job == job && h->place[i].attempt == attempt)
            atomic_store(&h->place[i].lost, true);
    }
}

static void *heartbeat_thread(void *p)
{
    struct heartbeat *h = p;
    struct err e;
    double beat_at = clock_seconds() + h->interval, check_at = 0;
    pthread_mutex_lock(&h->thread.lock);
    while (!h->thread.stop) {
        cond_wait_until(&h->thread.wake, &h->thread.lock, MIN(beat_at, check_at));
        if (!h->thread.stop && clock_seconds() >= beat_at) {
            pthread_mutex_unlock(&h->thread.lock);
            store_beat(h->store, h->worker, &e);
            beat_at = clock_seconds() + h->interval;
            pthread_mutex_lock(&h->thread.lock);
        }
        if (clock_seconds() >= check_at) {
            check_jobs(h);
            check_at = clock_seconds() + MIN(1.0, h->interval);
        }
    }
    pthread_mutex_unlock(&h->thread.lock);
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
    thread_open(&h->thread);
    if (store_reopen(&h->store, s, e) ||
        thread_start(&h->thread, heartbeat_thread, h, "the heartbeat", e)) {
        store_close(h->store);
        free(h);
        return -1;
    }
    *out = h;
    return 0;
}

size_t heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt)
{
    size_t i = 0;
    pthread_mutex_lock(&h->thread.lock);
    while (i < WORKER_JOBS_MAX && h->place[i].job)
        i++;
    assert(i < WORKER_JOBS_MAX);
    h->place[i].job = job;
    h->place[i].attempt = attempt;
    atomic_store(&h->place[i].lost, false);
    pthread_mutex_unlock(&h->thread.lock);
    return i;
}

void heartbeat_forget(struct heartbeat *h, size_t place)
{
    pthread_mutex_lock(&h->thread.lock);
    h->place[place].job = 0;
    atomic_store(&h->place[place].lost, false);
    pthread_mutex_unlock(&h->thread.lock);
}

bool heartbeat_lost(struct heartbeat *h, size_t place)
{
    return atomic_load_explicit(&h->place[place].lost, memory_order_relaxed);
}

void heartbeat_stop(struct heartbeat *h)
{
    if (!h)
        return;
    thread_stop(&h->thread);
    store_close(h->store);
    free(h);
}
