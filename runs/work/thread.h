/* Threads beside the decode loop: how they start and how they wait. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "src/base/base.h"

/* Start a thread with all signals blocked: signals are for the thread that can stop the decode loop.
 * `purpose` is for the message. */
int  thread_start(pthread_t *t, void *(*run)(void *ctx), void *ctx, const char *purpose, struct err *e);
/* Set *stop under the lock, signal *wake, wait for the end of the thread, and destroy lock and condition. */
void thread_stop(pthread_t t, pthread_mutex_t *lock, pthread_cond_t *wake, bool *stop);
/* A condition whose waits end by the clock of clock_seconds. */
void cond_init(pthread_cond_t *c);
/* Wait until `due` (clock_seconds) at the latest. Returns whether that time has come. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double due);

/* The bell of a worker: another thread of its process has put a job into the queue. It spares the worker the
 * wait for its next look at the queue. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool rung;
    atomic_size_t held;                  /* bytes of host memory that the worker held when it last asked */
};

void bell_open(struct bell *b);
void bell_ring(struct bell *b);
/* For the worker: whether the bell has rung since the last question, or does within so many seconds. */
bool bell_wait(struct bell *b, double seconds, size_t held);
