/* Who works on a job, and whether that process still lives.
 *
 * A process is named by the boot of its machine, its namespaces of pids and of clocks, its pid and its start time, so that a pid
 * used again is never taken for the old process. On the same boot and in the same namespaces the kernel says at once
 * whether it lives. Of every other process (another host, another container) only its beat is seen: a number in the store
 * that it raises; it counts as dead when the beat has stood still for a lease. No clock of another machine and no wall
 * clock is ever read: the lease runs on the observer's own monotonic clock, and a gap between two looks counts at most a
 * quarter of the lease, so that an observer that was itself stopped looks again before it judges. A process that is
 * judged wrongly does no harm: its writes are fenced (runs/store/store.h). */
#pragma once
#include "src/base/base.h"

struct owner {
    char host[65];                   /* host name, for people */
    char boot[37];                   /* /proc/sys/kernel/random/boot_id: one per boot of a machine, the same in its containers */
    char spaces[64];                 /* "pid:[4026531836] time:[4026531834]" */
    int64_t pid;
    uint64_t start;                  /* clock ticks between boot and the start of the process */
};

enum liveness { OWNER_DEAD, OWNER_ALIVE, OWNER_UNSEEN };

/* This process. Fails where /proc is missing. */
int owner_self(struct owner *o, struct err *e);

/* Whether *o lives, as seen by *self. `one_host`: the store is on a file system of this machine alone, so that another boot is one
 * that is over. OWNER_UNSEEN: it cannot be told from here; a lease must. A zombie is dead. */
enum liveness owner_liveness(const struct owner *o, const struct owner *self, bool one_host);

/* Beats as one observer has seen them. {0} is empty. */
struct beat_seen { int64_t worker, beat; double at, still; };
struct watch { struct beat_seen *v; size_t n, room; };

/* Note that the beat of `worker` is now `beat`, at `now` (clock_seconds()). Returns for how many seconds it has stood still: 0 at
 * the first look. -1 without memory (the worker then just counts as not seen). `lease` > 0. */
double watch_beat(struct watch *w, int64_t worker, int64_t beat, double now, double lease);
void   watch_free(struct watch *w);
