/* The driver of the emulated GPU (kernels/cuda/gpu.h): it runs the kernels compiled as C, counts calls, and
 * records and plays passes. The last launch waits for the next one, whose first blocks run up to their wait
 * before it (put). Start reading at device_emulated_open. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/graphs.h"
#include "tests/emulated/emulate.h"
#include "tests/emulated/emulated.h"
#include "tests/emulated/outputs.h"
#include "kernels/cuda/cu_attend.cu"
#include "kernels/cuda/cu_cache.cu"
#include "kernels/cuda/cu_sample.cu"
#include "kernels/cuda/cu_product.cu"
#include "kernels/cuda/cu_row.cu"
#include "kernels/cuda/cu_train.cu"

#define X(name, args) static void run_##name(const void *a) { struct cu_##args args_; \
    memcpy(&args_, a, sizeof args_); kernel_##name(args_); }
CU_KERNELS(X)
#undef X
#define X(name, args) run_##name,
static void (*const run_[])(const void *) = { CU_KERNELS(X) };
#undef X

#define X(name, args) struct cu_##args name;
union any_args { CU_KERNELS(X) };
#undef X
#define X(name, args) sizeof(struct cu_##args),
static const size_t args_bytes[] = { CU_KERNELS(X) };
#undef X

#define X(name, args) #name,
static const char *const kernel_name[] = { CU_KERNELS(X) };
#undef X

/* A recorded pass: its launches with their arguments. While a pass is recorded, only launches may be
 * called. */
struct queued { struct gpu_launch l; union any_args args; struct emulate_run run; };
struct recorded { size_t n, room; struct queued *launch; };
/* Contents of memory that holds NaN meanwhile, one saved range after the other. */
struct saved { char *data; size_t n, room; };
enum { QUEUE = 4 };

/* Settings for tests of errors. LONGHAND_EMULATED_FAIL=N: the N-th call of a device fails (counted from 1,
 * without allocations), and so do all later calls, as after an error of CUDA. LONGHAND_EMULATED_STOP=N: the
 * process stops itself (SIGSTOP) at the N-th call, so that a test can kill it there.
 * LONGHAND_EMULATED_MEMORY=BYTES: size of its memory. LONGHAND_EMULATED_GRAPHS=N: memory for so many recorded
 * passes. LONGHAND_EMULATED_SEED=N: another order of threads and blocks. LONGHAND_EMULATED_AUTO=1: --device
 * auto takes it as the first GPU; LONGHAND_EMULATED_DRIVER: the version of its driver.
 * LONGHAND_EMULATED_WRONG=KERNEL:BIT: after each launch of this kernel a bit of the first word that it writes
 * is wrong. */
struct emulated {
    struct gpu_driver d;
    double time[2];
    size_t calls, fails_at, stops_at, memory, used, graphs_left;
    struct graphs graphs;                        /* of struct recorded */
    struct recorded *recording; uint64_t key;
    bool graphs_off;
    /* launches number first .. n - 1 since the last call of another kind; the last of them has not run yet */
    struct queued queue[QUEUE]; size_t first, n;
    struct saved poisoned, own;
    const char *wrong;
};
enum { HEAD = 256 };                             /* precedes each allocation and holds its size */

static size_t number_from(const char *name, size_t otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 10) : otherwise;
}

static int call_as(struct gpu_driver *d, const char *what, bool is_kernel)
{
    struct emulated *m = (struct emulated *)d;
    assert((!m->recording || is_kernel) && "nothing but launches while a pass is recorded");
    if (++m->calls == m->stops_at)
        raise(SIGSTOP);
    if (m->calls < m->fails_at)
        return 0;
    if (!*d->error)
        snprintf(d->error, sizeof d->error, "%s: LONGHAND_EMULATED_FAIL, call %zu", what, m->calls);
    return -1;
}
/* ---- launches ---- */

/* Appends the contents of a range to *to. */
static void save(struct saved *to, void *p, size_t bytes)
{
    const size_t more = sizeof p + bytes + sizeof bytes;
    if (to->n + more > to->room) {
        to->room = 2 * (to->n + more);
        to->data = realloc(to->data, to->room);
        assert(to->data);
    }
    char *at = to->data + to->n;
    memcpy(at, p, bytes);
    memcpy(at + bytes, &p, sizeof p);
    memcpy(at + bytes + sizeof p, &bytes, sizeof bytes);
    to->n += more;
}

/* The range that was saved last, and its contents; removes it. */
static void *last_saved(struct saved *from, const void **data, size_t *bytes)
{
    void *p;
    memcpy(bytes, from->data + from->n - sizeof *bytes, sizeof *bytes);
    from->n -= sizeof p + *bytes + sizeof *bytes;
    memcpy(&p, from->data + from->n + *bytes, sizeof p);
    *data = from->data + from->n;
    return p;
}

static void save_output(void *ctx, void *p, size_t bytes, bool whole)
{
    (void)whole;
    save(ctx, p, bytes);
}

static void save_and_poison(void *ctx, void *p, size_t bytes, bool whole)
{
    (void)whole;
    save(ctx, p, bytes);
    memset(p, 0xff, bytes);
}

static void poison_whole(void *ctx, void *p, size_t bytes, bool whole)
{
    (void)ctx;
    if (whole)
        memset(p, 0xff, bytes);
}

/* Runs the first blocks of a launch up to their wait. What earlier launches write is NaN meanwhile, and what
 * this launch writes must not change. */
static void start_early(struct emulated *m, struct queued *x)
{
    const void *data;
    size_t bytes;
    for (size_t i = m->n - m->first < QUEUE ? m->first : m->n - QUEUE + 1; i < m->n; i++)
        emulated_outputs(&m->queue[i % QUEUE].l, save_and_poison, &m->poisoned);
    emulated_outputs(&x->l, save_output, &m->own);
    emulate_early(&x->run);
    while (m->own.n) {
        const void *p = last_saved(&m->own, &data, &bytes);
        assert(memcmp(p, data, bytes) == 0 && "a kernel wrote memory before depend_wait");
    }
    while (m->poisoned.n) {
        void *p = last_saved(&m->poisoned, &data, &bytes);
        memcpy(p, data, bytes);
    }
}

struct flip { uint32_t bits; bool done; };
static void flip_first(void *ctx, void *p, size_t bytes, bool whole)
{
    struct flip *f = ctx;
    uint32_t w;
    (void)whole;
    if (f->done || bytes < sizeof w)
        return;
    memcpy(&w, p, sizeof w);
    w ^= f->bits;
    memcpy(p, &w, sizeof w);
    f->done = true;
}

static void finish(struct emulated *m, struct queued *x)
{
    const char *name = kernel_name[x->l.kernel];
    const size_t n = strlen(name);
    emulated_outputs(&x->l, poison_whole, NULL);
    emulate_finish(&x->run);
    if (m->wrong && strncmp(m->wrong, name, n) == 0 && m->wrong[n] == ':')
        emulated_outputs(&x->l, flip_first, &(struct flip){ 1u << atoi(m->wrong + n + 1), false });
}

/* Runs the last launch. Other calls than launches begin with it: on a GPU they wait for the launches before
 * them. */
static void drain(struct emulated *m)
{
    if (m->n > m->first)
        finish(m, &m->queue[(m->n - 1) % QUEUE]);
    m->first = m->n;
}

static void put(struct emulated *m, const struct gpu_launch *l)
{
    struct queued *x = &m->queue[m->n % QUEUE];
    memcpy(&x->args, l->args, args_bytes[l->kernel]);
    x->l = *l;
    x->l.args = &x->args;
    x->run = emulate_run(run_[l->kernel], &x->args, l->grid, l->block, l->shared_bytes);
    if (m->n > m->first) {
        start_early(m, x);
        finish(m, &m->queue[(m->n - 1) % QUEUE]);
    }
    m->n++;
    /* as in cuda.c: the next kernel does not begin early */
    if (l->kernel == CU_pack || l->kernel == CU_noise)
        drain(m);
}

static int call(struct gpu_driver *d, const char *what)
{
    drain((struct emulated *)d);
    return call_as(d, what, false);
}

/* ---- memory ---- */

static void recorded_free(struct recorded *r)
{
    if (r)
        free(r->launch);
    free(r);
}

static void destroy_graphs(struct emulated *m)
{
    for (size_t i = 0; i < m->graphs.n; i++)
        recorded_free(m->graphs.at[i].graph);
    m->graphs.n = m->graphs.bytes = 0;
}

static void emulated_close(struct gpu_driver *d)
{
    struct emulated *m = (struct emulated *)d;
    drain(m);
    recorded_free(m->recording);
    destroy_graphs(m);
    free(m->poisoned.data);
    free(m->own.data);
    free(d);
}
static void *emulated_alloc(struct gpu_driver *d, size_t bytes, bool zeroed)
{
    struct emulated *m = (struct emulated *)d;
    const size_t all = (bytes + 255) / 256 * 256;
    if (all < bytes || all > m->memory - m->used)
        return NULL;
    char *p = aligned_alloc(256, all + HEAD);
    if (!p)
        return NULL;
    m->used += all;
    memcpy(p, &all, sizeof all);
    return memset(p + HEAD, zeroed ? 0 : 0xff, all);
}
static void emulated_free(struct gpu_driver *d, void *p)
{
    struct emulated *m = (struct emulated *)d;
    size_t all;
    drain(m);
    destroy_graphs(m);                            /* they may hold this address */
    memcpy(&all, (char *)p - HEAD, sizeof all);
    m->used -= all;
    free((char *)p - HEAD);
}
static size_t emulated_bytes_free(struct gpu_driver *d)
{
    return ((struct emulated *)d)->memory - ((struct emulated *)d)->used;
}
static int copy(void *dst, const void *src, size_t bytes)
{
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}
static int emulated_upload(struct gpu_driver *d, void *dst, const void *src, size_t bytes)
{
    return call(d, "upload") || copy(dst, src, bytes);
}
static int emulated_download(struct gpu_driver *d, const struct gpu_piece *p, size_t n)
{
    if (call(d, "download"))
        return -1;
    for (size_t i = 0; i < n; i++)
        copy(p[i].dst, p[i].src, p[i].bytes);
    return 0;
}
static int emulated_copy(struct gpu_driver *d, void *dst, const void *src, size_t bytes)
{
    return call(d, "copy") || copy(dst, src, bytes);
}
static int emulated_zero(struct gpu_driver *d, void *dst, size_t bytes)
{
    if (call(d, "zero"))
        return -1;
    memset(dst, 0, bytes);
    return 0;
}
static int emulated_fetch_mark(struct gpu_driver *d) { drain((struct emulated *)d); return 0; }
static int emulated_fetch(struct gpu_driver *d, void *dst, const void *src, size_t bytes, char *why,
                          size_t why_size)
{
    (void)d, (void)why, (void)why_size;
    return copy(dst, src, bytes);
}
static int record(struct recorded *r, const struct gpu_launch *l)
{
    if (r->n == r->room) {
        void *more = realloc(r->launch, 2 * (r->room + 16) * sizeof *r->launch);
        if (!more)
            return -1;
        r->launch = more;
        r->room = 2 * (r->room + 16);
    }
    r->launch[r->n].l = *l;
    memcpy(&r->launch[r->n++].args, l->args, args_bytes[l->kernel]);
    return 0;
}

static int emulated_launch(struct gpu_driver *d, const struct gpu_launch *l)
{
    struct emulated *m = (struct emulated *)d;
    if (call_as(d, kernel_name[l->kernel], true))
        return -1;
    if (m->recording)
        return record(m->recording, l);
    put(m, l);
    return 0;
}
static int emulated_gemm_open(struct gpu_driver *d, char *why, size_t why_size) { (void)d, (void)why,
    (void)why_size; return 0; }

/* The product of cuBLAS, computed from the meaning of column-major, transposed and leading dimension, term by
 * term. */
static int emulated_gemm(struct gpu_driver *d, const struct gpu_gemm *g)
{
    const uint16_t *a = g->a, *b = g->b;
    /* op(a), column by column */
    float *left = call(d, "gemm") ? NULL : malloc((g->m * g->k + 1) * sizeof *left);
    if (!left) {
        if (!*d->error)
            snprintf(d->error, sizeof d->error, "out of memory for a product");
        return -1;
    }
    for (size_t p = 0; p < g->k; p++)
        for (size_t i = 0; i < g->m; i++)
            left[p * g->m + i] = bf16_to_f32(g->a_t ? a[p + i * g->lda] : a[i + p * g->lda]);
    for (size_t j = 0; j < g->n; j++) {
        float *c = g->c + j * g->ldc;
        for (size_t i = 0; i < g->m && !g->add; i++)
            c[i] = 0;
        for (size_t p = 0; p < g->k; p++) {
            const float x = bf16_to_f32(g->b_t ? b[j + p * g->ldb] : b[p + j * g->ldb]);
            for (size_t i = 0; i < g->m; i++)
                c[i] += left[p * g->m + i] * x;
        }
    }
    free(left);
    return 0;
}

static void play(struct emulated *m, struct recorded *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct gpu_launch l = r->launch[i].l;
        l.args = &r->launch[i].args;
        put(m, &l);
    }
}

static bool emulated_graph_begin(struct gpu_driver *d, uint64_t key)
{
    struct emulated *m = (struct emulated *)d;
    void *known, *old;
    if (m->graphs_off)
        return false;
    if ((known = graphs_find(&m->graphs, key))) {
        if (!call(d, "graph"))
            play(m, known);
        return true;
    }
    const bool room = graphs_room(&m->graphs, &old);
    recorded_free(old);
    if (!room)
        return false;
    m->key = key;
    m->recording = calloc(1, sizeof *m->recording);
    return false;
}

static int emulated_graph_end(struct gpu_driver *d)
{
    struct emulated *m = (struct emulated *)d;
    struct recorded *r = m->recording;
    m->recording = NULL;
    if (!r)
        return 0;
    if (*d->error || m->graphs_left == 0) {
        recorded_free(r);
        destroy_graphs(m);
        m->graphs_off = true;
        return *d->error ? -1 : 1;
    }
    m->graphs_left--;
    graphs_keep(&m->graphs, m->key, r, r->n * GRAPH_NODE_BYTES);
    play(m, r);
    return 0;
}

int device_emulated_open(struct device **out, char *why, size_t why_size)
{
#ifdef __SANITIZE_THREAD__
    (void)out;
    snprintf(why, why_size, "the thread sanitizer does not know the fibers of the emulation");
    return -1;
#else
    struct emulated *m = calloc(1, sizeof *m);
    if (!m) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    if (getenv("LONGHAND_EMULATED_SEED"))
        emulate_set_seed(number_from("LONGHAND_EMULATED_SEED", 0));
    m->fails_at = number_from("LONGHAND_EMULATED_FAIL", SIZE_MAX);
    m->stops_at = number_from("LONGHAND_EMULATED_STOP", SIZE_MAX);
    m->memory = number_from("LONGHAND_EMULATED_MEMORY", SIZE_MAX / 2);
    m->graphs_left = number_from("LONGHAND_EMULATED_GRAPHS", SIZE_MAX);
    m->wrong = getenv("LONGHAND_EMULATED_WRONG");
    m->d = (struct gpu_driver){ .kind = "emulated", .graph_bytes = GRAPHS_BYTES, .name = "emulated GPU",
                                .numerics = "emulated-2", .close = emulated_close,
        .alloc = emulated_alloc, .free = emulated_free, .bytes_free = emulated_bytes_free,
        .upload = emulated_upload, .download = emulated_download,
        .copy = emulated_copy, .zero = emulated_zero, .fetch_mark = emulated_fetch_mark,
        .fetch = emulated_fetch, .launch = emulated_launch,
        .gemm_open = emulated_gemm_open, .gemm = emulated_gemm, .graph_begin = emulated_graph_begin,
        .graph_end = emulated_graph_end };
    snprintf(m->d.id, sizeof m->d.id, "GPU 0123, driver %zu", number_from("LONGHAND_EMULATED_DRIVER", 1));
    return gpu_open(out, &m->d, why, why_size);
#endif
}

static struct device_kind emulated_kind = { "emulated", EMULATED_GPUS, false, device_emulated_open };

__attribute__((constructor)) static void add_emulated_kind(void)
{
    emulated_kind.automatic = getenv("LONGHAND_EMULATED_AUTO");
    device_added = &emulated_kind;
}
