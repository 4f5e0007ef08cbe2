/* A pool of threads that runs one indexed job at a time. Results never depend on its size.
 *
 *     pool_run(p, n, fn, ctx)     calls fn(ctx, i, thread) once for each i in 0..n-1, and returns after
 *                                 the last call
 *
 * The caller is thread 0. Each thread starts with a contiguous share of its own, so that it reads the same
 * weights in every pass, and then runs items of other threads' shares. Idle threads spin briefly, then
 * sleep. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { POOL_THREADS_MAX = 512 };
struct pool;

/* n_threads >= 1. Returns NULL when a thread cannot be created. */
struct pool *pool_open(size_t n_threads);
void pool_close(struct pool *p);
size_t pool_threads(const struct pool *p);
void pool_run(struct pool *p, size_t n, void (*fn)(void *ctx, size_t i, size_t thread), void *ctx);

/* For profiles: while `on`, the pool adds up the seconds in which its threads ran items (of all threads
 * together), and those that its caller spent in pool_run. pool_timing starts both at 0. */
struct pool_times { double busy, inside; };
void pool_timing(struct pool *p, bool on);
struct pool_times pool_times(const struct pool *p);

/* The number of threads for this process: the physical cores of its affinity mask, at most the CPUs that its
 * control groups allow, at least 1. */
size_t pool_default_threads(void);
/* The same from its parts: `cores` and the CPUs of cgroup_cpus, of which a fraction is rounded down. */
size_t pool_threads_for(size_t cores, double cpus);
