/* Threads beside the decode loop: how they start and how they wait. */
#pragma once
#include <pthread.h>

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
