/* The sign of life of a worker: a thread with its own connection that raises the worker's beat six times a lease, during prefills and
 * long passes too, and that looks once a second whether the job in hand is still this worker's.
 *
 *     heartbeat_start(&h, store, worker, &e)
 *     heartbeat_watch(h, job, attempt)      behind a claim; heartbeat_lost(h) then costs a load
 *     heartbeat_watch(h, 0, 0)              when the job is done
 *     heartbeat_stop(h)                     before store_worker_end
 *
 * A beat that cannot be written is missed, no more: another worker takes over at the end of the lease, and the fence of this one's
 * commits keeps the text whole. */
#pragma once
#include "runs/store/store.h"

struct heartbeat;

int  heartbeat_start(struct heartbeat **h, const struct store *s, int64_t worker, struct err *e);
void heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt);
/* Whether the watched job was found to be no longer this worker's. */
bool heartbeat_lost(struct heartbeat *h);
void heartbeat_stop(struct heartbeat *h);        /* NULL is fine */
