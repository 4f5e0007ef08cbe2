/* The bell of a worker: another thread of its process has put a job into the queue. It spares the worker the
 * wait for its next look at the queue. */
#pragma once
#include <pthread.h>

#include "src/base/base.h"

struct bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool rung;
    size_t held;                         /* bytes of host memory that the worker holds */
};

void bell_open(struct bell *b);
void bell_ring(struct bell *b);
/* The bytes that the worker held when it last asked. */
size_t bell_held(struct bell *b);
/* For the worker: whether the bell has rung since the last question, or does within so many seconds. */
bool bell_wait(struct bell *b, double seconds, size_t held);
