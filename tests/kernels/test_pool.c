/* The pool runs every index exactly once, on any number of threads, job after job, and the caller sees the
 * items' writes. Also run it under SAN=thread. */
#include "kernels/pool.h"
#include "tests/reference.h"
#include "tests/test.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const size_t sizes[] = { 1, 2, 3, 5, 16, 33 };
enum { N_SIZES = 6, ITEMS_MAX = 5000 };

/* Plain memory, not atomic: ThreadSanitizer must find that the pool orders the accesses. */
struct job { unsigned char hits[ITEMS_MAX]; size_t n, threads; atomic_int wrong; unsigned spin; };

static void item(void *ctx, size_t i, size_t thread)
{
    struct job *j = ctx;
    if (i >= j->n || thread >= j->threads)
        atomic_fetch_add(&j->wrong, 1);
    else
        j->hits[i]++;
    for (volatile unsigned k = 0; k < j->spin; k++) { }
}
static void every_index_exactly_once(void)
{
    struct rng rng = { 61 };
    for (int s = 0; s < N_SIZES; s++) {
        struct pool *p = pool_open(sizes[s]);
        CHECK(p && pool_threads(p) == sizes[s]);
        for (int k = 0; k < 300; k++) {
            struct job *j = must_alloc(sizeof *j);
            j->n = k < 40 ? (size_t)k : rng_below(&rng, k % 10 ? 200 : ITEMS_MAX), j->threads = sizes[s],
            j->spin = k % 3 ? 0 : 200;
            pool_run(p, j->n, item, j);
            for (size_t i = 0; i < ITEMS_MAX; i++)
                CHECK(j->hits[i] == (i < j->n), "threads %zu items %zu: item %zu ran %d times", sizes[s],
                      j->n, i, j->hits[i]);
            CHECK(j->wrong == 0, "%d calls with a wrong index or thread", j->wrong);
            free(j);
        }
        pool_close(p);
    }
}

/* Short consecutive jobs whose context dies when pool_run returns, small and large in turn. A thread that is
 * late for one job must not run items of the next job with old values. */
struct small { size_t n; uint32_t number; uint32_t got[64]; };
static atomic_uint strays;
static void stamp(void *ctx, size_t i, size_t thread)
{
    struct small *s = ctx;
    (void)thread;
    if (i >= s->n || s->got[i])
        atomic_fetch_add(&strays, 1);
    else
        s->got[i] = s->number;
}
static void other_stamp(void *ctx, size_t i, size_t thread)
{
    stamp(ctx, i, thread);
    ((struct small *)ctx)->got[i] ^= 0x80000000;
}
static void short_jobs(size_t threads, uint32_t count)
{
    struct pool *p = pool_open(threads);
    uint64_t bad = 0;
    for (uint32_t k = 1; k <= count; k++) {
        struct small s = { k % 2 ? 2 + k % 5 : 20 + k % 44, k, { 0 } };
        pool_run(p, s.n, k % 3 ? stamp : other_stamp, &s);
        for (size_t i = 0; i < 64; i++)
            bad += s.got[i] != (i >= s.n ? 0 : k % 3 ? k : k ^ 0x80000000);
        s.n = 0;                                               /* any later hit is an error */
    }
    pool_close(p);
    CHECK(bad == 0 && strays == 0, "threads %zu: %llu wrong, %u strays", threads, (unsigned long long)bad,
          strays);
}
static void many_short_jobs(void)
{
    short_jobs(2, 60000);
    short_jobs(3, 20000);
    short_jobs(8, 5000);
}

/* Sleeping threads wake up, and a job after a pause runs completely. */
static void sleepers_wake(void)
{
    struct pool *p = pool_open(4);
    for (int k = 0; k < 30; k++) {
        struct job *j = must_alloc(sizeof *j);
        j->n = 100, j->threads = 4, j->spin = 1000;
        nanosleep(&(struct timespec){ 0, k % 3 ? 3000000 : 200000 }, NULL);
        pool_run(p, j->n, item, j);
        size_t done = 0;
        for (size_t i = 0; i < ITEMS_MAX; i++) done += j->hits[i] == 1;
        CHECK(done == 100, "%zu", done);
        free(j);
    }
    /* idle threads use no CPU time while the pool sleeps */
    nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    clock_t before = clock();
    nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
    double used = (double)(clock() - before) / CLOCKS_PER_SEC;
    CHECK(used < 0.1, "%.3f s of CPU time in 0.2 s of nothing", used);
    pool_close(p);
}

/* A sum in a fixed order does not depend on the thread that computes it. */
struct sums { const float *x; float y[257]; };
static void sum_item(void *ctx, size_t i, size_t thread)
{
    struct sums *s = ctx;
    (void)thread;
    for (size_t k = 0; k < 100; k++) s->y[i] += s->x[i * 31 + k];
}
static void results_do_not_depend_on_its_size(void)
{
    struct rng rng = { 62 };
    float x[257 * 31 + 100];
    struct sums want = { x, { 0 } };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = rng_normal(&rng);
    for (size_t i = 0; i < 257; i++) sum_item(&want, i, 0);
    for (int s = 0; s < N_SIZES; s++) {
        struct sums got = { x, { 0 } };
        struct pool *p = pool_open(sizes[s]);
        pool_run(p, 257, sum_item, &got);
        CHECK(!memcmp(want.y, got.y, sizeof want.y), "threads %zu", sizes[s]);
        pool_close(p);
    }
}

/* With more than one thread the items run side by side: two items that wait for each other both complete. */
static void meet(void *ctx, size_t i, size_t thread)
{
    atomic_int *here = ctx;
    (void)i, (void)thread;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 2)
        sched_yield();
}
static void items_run_side_by_side(void)
{
    atomic_int here = 0;
    struct pool *p = pool_open(2);
    alarm(60);                                                 /* end the test instead of waiting for ever */
    pool_run(p, 2, meet, &here);
    alarm(0);
    CHECK(here == 2);
    pool_close(p);
}

static struct pool *nested_pool;
static void nothing(void *ctx, size_t i, size_t thread) { (void)ctx, (void)i, (void)thread; }
static void nest(void *ctx, size_t i, size_t thread)
{
    (void)i, (void)thread;
    pool_run(nested_pool, 4, nothing, ctx);
}
static void nested_use_is_an_assertion(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        nested_pool = pool_open(2);
        pool_run(nested_pool, 4, nest, NULL);
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", (unsigned)status);
}
static void defaults_are_sane(void)
{
    size_t n = pool_default_threads();
    CHECK(n >= 1 && n <= (size_t)sysconf(_SC_NPROCESSORS_CONF), "%zu", n);
    pool_close(NULL);
}

int main(void)
{
    RUN(defaults_are_sane);
    RUN(every_index_exactly_once);
    RUN(many_short_jobs);
    RUN(sleepers_wake);
    RUN(results_do_not_depend_on_its_size);
    RUN(items_run_side_by_side);
    RUN(nested_use_is_an_assertion);
    return test_end();
}
