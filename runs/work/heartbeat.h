/* A worker's sign of life: a thread with its own connection. It raises the worker's beat, a counter in the
 * store, six times per lease, also during prefills and long passes. The lease (store_lease_seconds) is the
 * time after which other workers take a worker whose beat does not change for dead. Once a second the thread
 * checks whether the watched job still belongs to this worker.
 *
 *     heartbeat_start(&h, store, worker, &e)
 *     heartbeat_watch(h, job, attempt)      after a claim; then heartbeat_lost(h) costs one load
 *     heartbeat_watch(h, 0, 0)              after the job
 *     heartbeat_stop(h)                     before store_worker_end
 *
 * A beat that cannot be written is skipped. At worst another worker takes over at the end of the lease. Then
 * store_commit refuses this worker's commits, because its claim no longer holds, and the text stays
 * consistent. */
#pragma once
#include "runs/store/store.h"

struct heartbeat;

int  heartbeat_start(struct heartbeat **h, const struct store *s, int64_t worker, struct err *e);
void heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt);
/* Whether the watched job no longer belongs to this worker. */
bool heartbeat_lost(struct heartbeat *h);
void heartbeat_stop(struct heartbeat *h);        /* NULL is allowed */
