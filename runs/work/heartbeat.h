/* A worker's sign of life: a thread with its own connection. It raises the worker's beat, a counter in the
 * store, six times per lease, also during prefills and long passes. The lease (store_lease_seconds) is the
 * time after which other workers take a worker whose beat does not change for dead. Once a second the thread
 * checks whether the watched jobs still belong to this worker.
 *
 * A beat that cannot be written is skipped. At worst another worker takes over at the end of the lease. Then
 * store_commit refuses this worker's commits, because its claim no longer holds, and the text stays
 * consistent. */
#pragma once
#include "runs/work/checkpoint.h"

struct heartbeat;

int  heartbeat_start(struct heartbeat **h, const struct store *s, int64_t worker, struct err *e);
/* Watches one more job, of at most WORKER_JOBS_MAX (asserted), after its claim. Returns its place. */
size_t heartbeat_watch(struct heartbeat *h, int64_t job, int64_t attempt);
void heartbeat_forget(struct heartbeat *h, size_t place);
/* Whether the job at `place` no longer belongs to this worker. Costs one load. */
bool heartbeat_lost(struct heartbeat *h, size_t place);
void heartbeat_stop(struct heartbeat *h);        /* before store_worker_end; NULL is allowed */
