/* The thread pool. Each job has an epoch. A thread's share is one 64-bit ticket, (epoch, next index), and a
 * claim is a compare-and-swap on it. A thread that wakes late holds an old epoch and can therefore claim
 * nothing of a later job. The caller never waits for a thread that holds no item. Start reading at
 * pool_run. */
#include "kernels/pool.h"
#include "src/base/cgroup.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 4000 };               /* about 50 microseconds before an idle thread sleeps */

struct share {
    _Alignas(64) _Atomic uint64_t ticket;
    _Atomic uint32_t end;
};

struct pool {
    size_t n_threads;
    _Alignas(64) _Atomic uint32_t epoch;
    _Atomic(void (*)(void *, size_t, size_t)) fn;
    _Atomic(void *) ctx;
    _Atomic uint32_t sleepers;
    _Atomic bool quit;
    bool running;
    _Atomic bool timing;
    uint64_t inside;                     /* nanoseconds, of the caller */
    _Alignas(64) _Atomic size_t done;
    _Atomic uint64_t busy;               /* nanoseconds, of all threads */
    struct share share[POOL_THREADS_MAX];
    struct worker { struct pool *p; size_t index; pthread_t thread; } worker[POOL_THREADS_MAX];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Runs items of this epoch until none is left, its own share first. Returns the number of items it ran. */
static size_t work(struct pool *p, uint32_t epoch, size_t thread)
{
    void (*fn)(void *, size_t, size_t) = atomic_load_explicit(&p->fn, memory_order_relaxed);
    void *ctx = atomic_load_explicit(&p->ctx, memory_order_relaxed);
    const bool timing = atomic_load_explicit(&p->timing, memory_order_relaxed);
    const uint64_t since = timing ? nanoseconds() : 0;
    size_t done = 0;
    for (size_t k = 0; k < p->n_threads; k++) {
        struct share *s = &p->share[(thread + k) % p->n_threads];
        uint64_t t = atomic_load_explicit(&s->ticket, memory_order_acquire);
        while (t >> 32 == epoch) {
            uint32_t i = (uint32_t)t;
            if (i >= atomic_load_explicit(&s->end, memory_order_acquire))
                break;
            if (atomic_compare_exchange_weak_explicit(&s->ticket, &t, t + 1, memory_order_acq_rel,
                                                      memory_order_acquire)) {
                fn(ctx, i, thread);
                done++;
                t = atomic_load_explicit(&s->ticket, memory_order_acquire);
            }
        }
    }
    if (timing && done)
        atomic_fetch_add_explicit(&p->busy, nanoseconds() - since, memory_order_relaxed);
    return done;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->p;
    uint32_t seen = 0;
    for (;;) {
        uint32_t epoch;
        int spins = 0;
        while ((epoch = atomic_load_explicit(&p->epoch, memory_order_acquire)) == seen) {
            if (++spins < SPINS) {
                relax();
                continue;
            }
            atomic_fetch_add(&p->sleepers, 1);
            if (atomic_load(&p->epoch) == seen)
                syscall(SYS_futex, &p->epoch, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
            atomic_fetch_sub(&p->sleepers, 1);
        }
        seen = epoch;
        if (atomic_load_explicit(&p->quit, memory_order_relaxed))
            return NULL;
        size_t done = work(p, epoch, w->index);
        if (done)
            atomic_fetch_add_explicit(&p->done, done, memory_order_release);
    }
}

struct pool *pool_open(size_t n_threads)
{
    assert(n_threads >= 1);
    if (n_threads > POOL_THREADS_MAX)
        n_threads = POOL_THREADS_MAX;
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p)
        return NULL;
    *p = (struct pool){ .n_threads = 1 };
    for (size_t i = 1; i < n_threads; i++) {
        p->worker[i] = (struct worker){ p, i, 0 };
        if (pthread_create(&p->worker[i].thread, NULL, worker_main, &p->worker[i])) {
            pool_close(p);
            return NULL;
        }
        p->n_threads = i + 1;
    }
    return p;
}

static void publish(struct pool *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers))
        syscall(SYS_futex, &p->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    publish(p);
    for (size_t i = 1; i < p->n_threads; i++)
        pthread_join(p->worker[i].thread, NULL);
    free(p);
}

size_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

void pool_timing(struct pool *p, bool on)
{
    p->inside = 0;
    atomic_store(&p->busy, 0);
    atomic_store(&p->timing, on);
}

struct pool_times pool_times(const struct pool *p)
{
    return (struct pool_times){ 1e-9 * (double)atomic_load(&p->busy), 1e-9 * (double)p->inside };
}

void pool_run(struct pool *p, size_t n, void (*fn)(void *ctx, size_t i, size_t thread), void *ctx)
{
    assert(!p->running && n < UINT32_MAX);
    if (p->n_threads == 1 || n <= 1) {
        for (size_t i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    const uint64_t since = atomic_load_explicit(&p->timing, memory_order_relaxed) ? nanoseconds() : 0;
    p->running = true;
    const uint32_t epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (size_t t = 0; t < p->n_threads; t++) {
        /* Invalidate the last job's ticket first, so that a late thread that sees the new end cannot claim
         * with the old ticket. */
        atomic_store_explicit(&p->share[t].ticket, (uint64_t)epoch << 32 | UINT32_MAX, memory_order_relaxed);
        atomic_store_explicit(&p->share[t].end, (uint32_t)((t + 1) * n / p->n_threads), memory_order_release);
        atomic_store_explicit(&p->share[t].ticket, (uint64_t)epoch << 32 | (uint32_t)(t * n / p->n_threads),
                              memory_order_release);
    }
    publish(p);
    size_t done = work(p, epoch, 0);
    for (int spins = 0; atomic_load_explicit(&p->done, memory_order_acquire) != n - done;)
        if (++spins < SPINS)
            relax();
        else
            sched_yield();
    p->running = false;
    p->inside += since ? nanoseconds() - since : 0;
}

/* Threads of one core share a line in topology/thread_siblings_list; the first allowed thread counts. */
static bool first_of_core(int cpu, const cpu_set_t *allowed)
{
    char path[96], list[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    bool first = true;
    if (fgets(list, sizeof list, f))
        for (char *s = list; *s && *s != '\n';) {
            char *end;
            long a = strtol(s, &end, 10), b = *end == '-' ? strtol(end + 1, &end, 10) : a;
            if (end == s)
                break;
            for (; a <= b; a++)
                first = first && !(a < cpu && a >= 0 && a < CPU_SETSIZE && CPU_ISSET((int)a, allowed));
            s = *end ? end + 1 : end;
        }
    fclose(f);
    return first;
}

size_t pool_default_threads(void)
{
    cpu_set_t set;
    size_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    for (int c = 0; c < CPU_SETSIZE; c++)
        n += CPU_ISSET(c, &set) && first_of_core(c, &set);
    return pool_threads_for(n, cgroup_cpus(NULL));
}

size_t pool_threads_for(size_t cores, double cpus)
{
    const size_t n = cpus < (double)cores ? (size_t)cpus : cores;
    return n < 1 ? 1 : n > POOL_THREADS_MAX ? POOL_THREADS_MAX : n;
}
