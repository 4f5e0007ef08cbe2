/* Threads beside the decode loop: how they start and how they wait. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "src/base/base.h"

/* A thread, the lock of what it shares, and what wakes it. stop: under the lock, the thread shall end. */
struct thread { pthread_t id; bool runs; pthread_mutex_t lock; pthread_cond_t wake; bool stop; };
/* Makes lock and condition, before thread_start. */
void thread_open(struct thread *t);
/* Start it with all signals blocked: signals are for the thread that can stop the decode loop. `purpose` is
 * for the message. */
int  thread_start(struct thread *t, void *(*run)(void *ctx), void *ctx, const char *purpose, struct err *e);
/* Tell it to stop, wait for its end, and destroy lock and condition; nothing if it was not started. */
void thread_stop(struct thread *t);
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
