/* The emulated GPU finds errors of kernels (tests/emulated/emulate.h). Each test plants one bug in the real
 * kernels or in their launches, and runs them in a process of its own: the bug stops the process or changes
 * the result. Without the bug neither happens. */
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/gpu.h"
#include "tests/device_rig.h"
#include "tests/emulated/emulate.h"

/* A trial returns whether the results are right. */
typedef bool trial(struct device *d, bool planted);
static uint64_t seed;
static enum emulate_order order;

/* Whether the trial stops or gives another result. said: what the process wrote to stderr. */
static bool found(trial *run, bool planted, char said[512])
{
    int pipes[2], status = 0;
    size_t n = 0;
    ssize_t got;
    fflush(stdout);
    if (pipe(pipes)) {
        CHECK(0, "pipe");
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        struct device *d = NULL;
        char why[256];
        dup2(pipes[1], 2);
        close(pipes[0]);
        emulate_set_order(order);
        emulate_set_seed(seed);
        _exit(device_emulated_open(&d, why, sizeof why) ? 3 : run(d, planted) ? 0 : 1);
    }
    close(pipes[1]);
    while ((got = read(pipes[0], said + n, 511 - n)) > 0)
        n += (size_t)got;
    said[n] = 0;
    close(pipes[0]);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) < 3, "the emulated GPU does not open");
    return !WIFEXITED(status) || WEXITSTATUS(status);
}

/* The bug is found, with this message or by its result (NULL); without the bug nothing is found. */
static void check_found(trial *run, const char *message)
{
    char said[512];
    CHECK(!found(run, false, said), "found without a bug: %s", said);
    CHECK(found(run, true, said), "not found");
    CHECK(!message || strstr(said, message), "\"%s\" was said, not \"%s\"", said, message);
}

static void *numbers(struct device *d, size_t n)     /* bf16 */
{
    void *p = d->alloc(d, n * 2);
    d->noise(d, p, n, 5, 1);
    return p;
}

/* ---- a launch with another grid ---- */

static int (*real_launch)(struct gpu_driver *, const struct gpu_launch *);
static int short_axis;                               /* -1: none */
static int launch_short(struct gpu_driver *d, const struct gpu_launch *l)
{
    struct gpu_launch s = *l;
    if (short_axis >= 0 && s.grid[short_axis] > 1)
        s.grid[short_axis]--;
    return real_launch(d, &s);
}

static void shorten(struct device *d, int axis)
{
    struct gpu_driver *driver = gpu_driver_of(d);
    if (driver->launch != launch_short)
        real_launch = driver->launch;
    driver->launch = launch_short;
    short_axis = axis;
}

/* ---- products ---- */

enum { ROWS = 3, N = 128, K = 512 };                 /* two pieces of four tiles share the outputs */
struct product { struct mat m; void *x; float *y; };

static struct product product_open(struct device *d)
{
    const struct device_limits l = { ROWS, 64, ROWS, N, N, { 8, 2, 64, 64 }, 0 };
    if (d->reserve(d, &l))
        abort();
    struct product p = { { DT_BF16, N, K, d->alloc(d, d->mat_size(d, DT_BF16, N, K)) }, numbers(d, ROWS * K),
                         d->alloc(d, ROWS * N * sizeof(float)) };
    d->noise(d, p.m.w, N * K, 6, 0.1f);
    return p;
}

static float *product_of(struct device *d, const struct product *p)
{
    d->product(d, &(struct device_product){ p->y, N, p->x, ROWS, &p->m, NULL, false, SIZE_MAX });
    return rig_get(d, p->y, ROWS * N * sizeof(float));
}

/* The second of two equal products lacks a block. Its output and the parts of its sums would be those of the
 * first one. */
static bool product_lacks_a_piece(struct device *d, bool planted)
{
    const struct product p = product_open(d);
    const float *first = product_of(d, &p);
    shorten(d, planted ? 1 : -1);
    return memcmp(first, product_of(d, &p), ROWS * N * sizeof(float)) == 0;
}
static void outputs_of_an_earlier_product_are_gone(void) { check_found(product_lacks_a_piece, NULL); }

static void *(*real_alloc)(struct gpu_driver *, size_t, bool);
static void *alloc_unzeroed(struct gpu_driver *d, size_t bytes, bool zeroed)
{
    (void)zeroed;
    return real_alloc(d, bytes, false);
}

/* Tickets that count up from whatever the memory held. */
static bool tickets_are_not_zeroed(struct device *d, bool planted)
{
    real_alloc = gpu_driver_of(d)->alloc;
    if (planted)
        gpu_driver_of(d)->alloc = alloc_unzeroed;
    const struct product p = product_open(d);
    float *y = product_of(d, &p);
    for (size_t i = 0; i < ROWS * N; i++)
        if (!isfinite(y[i]))
            return false;
    return true;
}
static void memory_is_not_zero(void) { check_found(tickets_are_not_zeroed, NULL); }

static unsigned barrier_left_out;
static bool product_lacks_a_barrier(struct device *d, bool planted)
{
    const struct product p = product_open(d);
    const float *first = product_of(d, &p);
    emulate_plant.no_barrier = planted ? barrier_left_out : 0;
    return memcmp(first, product_of(d, &p), ROWS * N * sizeof(float)) == 0;
}

/* Leaves out one barrier of a product after the other. Two of them stand around the ticket of a shared
 * output: without the first one a ticket counts before the other warps have written their part. That goes
 * unseen as long as a block ends before the next one begins. */
static void blocks_interleave(void)
{
    enum { BARRIERS = 6, SEEDS = 40 };
    size_t in_order = 0, interleaved = 0;
    char said[512];
    for (barrier_left_out = 1; barrier_left_out <= BARRIERS; barrier_left_out++) {
        bool any = false;
        order = EMULATE_ASCENDING;
        in_order += found(product_lacks_a_barrier, true, said);
        order = EMULATE_RANDOM;
        for (seed = 0; seed < SEEDS && !any; seed++)
            any = found(product_lacks_a_barrier, true, said);
        interleaved += any;
    }
    for (seed = 0; seed < SEEDS; seed++)
        CHECK(!found(product_lacks_a_barrier, false, said), "found without a bug: %s", said);
    seed = 0;
    CHECK(interleaved > in_order, "without one of %d barriers: found %zu times in order, %zu times "
          "interleaved", BARRIERS, in_order, interleaved);
}

/* ---- before the wait ---- */

/* A norm and a product of what it wrote, as launches of a recorded pass that is played. The product reads its
 * input too early: what the pass before left there. */
static bool product_waits_late(struct device *d, bool planted)
{
    const struct product p = product_open(d);
    float *in = d->alloc(d, ROWS * K * sizeof(float)), *gain = d->alloc(d, K * sizeof(float)), *y[3];
    struct device_kv kv = rig_cache(d, 1, 2, 64, 64, 0);
    struct rig_pass *rows = rig_pass(&kv, 0, ROWS, NULL, 32);
    struct device_bad bad;
    d->widen(d, in, p.x, ROWS * K);
    d->widen(d, gain, p.x, K);
    d->zero(d, p.x, ROWS * K * 2);
    for (int i = 0; i < 3; i++) {
        emulate_plant.late_wait = planted && i == 2;
        d->begin(d, &rows->rows);
        if (!d->graph_begin(d, 1)) {
            d->rmsnorm(d, p.x, in, gain, ROWS, K, 1e-5f, SIZE_MAX);
            d->product(d, &(struct device_product){ p.y, N, p.x, ROWS, &p.m, NULL, false, SIZE_MAX });
            d->graph_end(d);
        }
        d->end(d, &bad);
        y[i] = rig_get(d, p.y, ROWS * N * sizeof(float));
    }
    return memcmp(y[0], y[1], ROWS * N * sizeof(float)) == 0 && d->played == 2 &&
           memcmp(y[0], y[2], ROWS * N * sizeof(float)) == 0;
}
static void input_is_not_there_before_the_wait(void) { check_found(product_waits_late, NULL); }

/* The second kernel writes what the first one reads. */
static bool output_is_still_read(struct device *d, bool planted)
{
    const struct product p = product_open(d);
    float *other = d->alloc(d, ROWS * K * sizeof(float));
    emulate_plant.no_wait = planted;
    d->widen(d, other, p.x, ROWS * K);
    d->narrow(d, p.x, p.y, ROWS * N);
    float *got = rig_get(d, other, ROWS * K * sizeof(float));
    for (size_t i = 0; i < ROWS * K; i++)
        if (got[i] == 0)
            return false;
    return true;
}
static void nothing_is_written_before_the_wait(void)
{
    check_found(output_is_still_read, "a kernel wrote memory before depend_wait");
}

/* ---- attention ---- */

static const struct device_heads heads = { 8, 2, 64, 64 };
static const int32_t chain[] = { -1, 0, 1 };

static uint16_t *attention(struct device *d, struct rig_pass *p, const void *q, void *out)
{
    struct device_bad bad;
    d->begin(d, &p->rows);
    d->attend(d, out, q, &heads, 0, 0);
    d->end(d, &bad);
    return rig_get(d, out, ROWS * heads.n_heads * heads.padded * 2);
}

/* The second of two equal passes lacks the blocks of the second chunk of keys. */
static bool attention_lacks_a_chunk(struct device *d, bool planted)
{
    const size_t row = ROWS * heads.n_heads * heads.padded, n_past = KV_CHUNK + 10;
    const struct device_limits l = { ROWS, n_past + ROWS, ROWS, N, N, heads, 0 };
    if (d->reserve(d, &l))
        abort();
    struct device_kv kv = rig_cache(d, 1, heads.n_kv_heads, heads.padded, n_past + ROWS, 0);
    d->noise(d, kv.base, kv.layer_bytes / 2, 9, 1);
    void *q = numbers(d, row), *out = d->alloc(d, row * 2);
    struct rig_pass *p = rig_pass(&kv, n_past, ROWS, NULL, 32);
    const uint16_t *first = attention(d, p, q, out);
    shorten(d, planted ? 2 : -1);
    return memcmp(first, attention(d, p, q, out), row * 2) == 0;
}
static void parts_of_an_earlier_sum_are_gone(void) { check_found(attention_lacks_a_chunk, NULL); }

/* The nodes of a tree lie at a multiple of 8 bytes. */
static bool nodes_are_not_aligned(struct device *d, bool planted)
{
    const size_t row = ROWS * heads.n_heads * heads.padded;
    const struct device_limits l = { ROWS, 128, ROWS, N, N, heads, 0 };
    if (d->reserve(d, &l))
        abort();
    struct device_kv kv = rig_cache(d, 1, heads.n_kv_heads, heads.padded, 128, ROWS);
    kv.scratch = (char *)d->alloc(d, ROWS * heads.n_kv_heads * 4 * heads.padded + 16) + (planted ? 8 : 0);
    void *q = numbers(d, row), *out = d->alloc(d, row * 2);
    attention(d, rig_pass(&kv, 70, ROWS, chain, 32), q, out);
    return true;
}
static void loads_are_aligned(void)
{
    check_found(nodes_are_not_aligned, "a load of 16 bytes that is not aligned");
}

int main(void)
{
    struct device *d;
    char why[256];
    if (device_emulated_open(&d, why, sizeof why)) {
        printf("skip test_emulated (%s)\n", why);
        return 0;
    }
    d->close(d);
    RUN(loads_are_aligned);
    RUN(outputs_of_an_earlier_product_are_gone);
    RUN(parts_of_an_earlier_sum_are_gone);
    RUN(memory_is_not_zero);
    RUN(input_is_not_there_before_the_wait);
    RUN(nothing_is_written_before_the_wait);
    RUN(blocks_interleave);
    return test_end();
}
