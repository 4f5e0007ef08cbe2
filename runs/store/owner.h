/* Which process works on a job, and whether it still lives.
 *
 * A process is named by the boot of its machine, its pid and time namespaces, its pid and its start time.
 * So a reused pid is never mistaken for the old process.
 *
 * For a process of the same boot and namespaces the kernel says whether it lives. For any other process
 * (another host, another container) an observer sees only its beat: a number in the store that the process
 * raises. The process counts as dead when the beat has stood still for a lease. No wall clock and no clock
 * of another machine is read: the lease runs on the observer's monotonic clock. The time between two
 * observations counts at most a quarter of the lease, so an observer that was itself stopped observes
 * again before it judges. A wrong judgement does no harm, because the writes of the process are fenced
 * (runs/store/store.h). */
#pragma once
#include "src/base/base.h"

struct owner {
    char host[65];                   /* host name, for people */
    char boot[37];                   /* /proc/sys/kernel/random/boot_id: per boot; containers share it. */
                                     /* "": /proc does not show it, and other processes see only the beat */
    char spaces[64];                 /* "pid:[4026531836] time:[4026531834]" */
    int64_t pid;
    uint64_t start;                  /* clock ticks between boot and the start of the process */
};

enum liveness { OWNER_DEAD, OWNER_ALIVE, OWNER_UNSEEN };

/* This process. */
void owner_self(struct owner *o);

/* Whether *o lives, as *self sees it. `one_host`: the store is on a local file system, so another boot is
 * a past boot. OWNER_UNSEEN: the kernel cannot tell; use a lease. A zombie is dead. */
enum liveness owner_liveness(const struct owner *o, const struct owner *self, bool one_host);

/* Whether the kernel has stopped the process (SIGSTOP, Ctrl-Z, a debugger). False where that is not known. */
bool owner_is_stopped(const struct owner *o, const struct owner *self);

/* The beats that one observer has seen. {0} is empty. */
struct beat_seen { int64_t worker, beat; double at, still; };
struct watch { struct beat_seen *v; size_t n; };

/* Record that the beat of `worker` is `beat` at `now` (clock_seconds()). Returns for how many seconds the
 * beat has stood still; 0 at the first observation; -1 without memory (the worker then counts as not
 * observed). `lease` > 0. */
double watch_beat(struct watch *w, int64_t worker, int64_t beat, double now, double lease);
void   watch_free(struct watch *w);
