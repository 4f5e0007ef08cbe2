/* A worker's sign of life: a thread with its own connection. It raises the worker's beat six times per
 * lease, also during prefills and long passes. Once a second it checks whether the watched job still
 * belongs to this worker.
 *
 *     heartbeat_start(&h, store, worker, &e)
 *     heartbeat_watch(h, job, attempt)      after a claim; then heartbeat_lost(h) costs one load
 *     heartbeat_watch(h, 0, 0)              after the job
 *     heartbeat_stop(h)                     before store_worker_end
 *
 * A beat that cannot be written is skipped. At worst another worker takes over at the end of the lease;
 * the fence of this worker's commits keeps the text consistent. */
#pragma once
#include "runs/store/store.h"

struct heartbeat;

int  heartbeat_start(struct heartbeat **h, const struct store *s, int64_t worker, struct err *e);
void heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt);
/* Whether the watched job no longer belongs to this worker. */
bool heartbeat_lost(struct heartbeat *h);
void heartbeat_stop(struct heartbeat *h);        /* NULL is allowed */
