/* Runs a kernel that was compiled as C: fibers for the threads of a block, barriers, and the operations that
 * the lanes of a warp execute together. One launch at a time, from one thread. Start reading at
 * emulate_launch. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/emulated/emulate.h"

enum { THREADS_MAX = 1024, LANES = 32, STACK = 64 << 10, PENDING_MAX = 128 };

struct emulate_place emulate_at;

/* ---- fibers ---- */

#if defined __x86_64__
typedef void *context;
void emulate_switch(context *from, context to) __attribute__((visibility("hidden")));
__asm__(
    ".text\n.globl emulate_switch\n.hidden emulate_switch\n.type emulate_switch,@function\nemulate_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size "
    "emulate_switch,.-emulate_switch\n");
static void context_make(context *c, char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + STACK);
    *--top = NULL;  /* the place of a return address: the stack is aligned as after a call */
    *--top = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    *c = top;
}
#define SWITCH(from, to) emulate_switch(&(from), to)
#else
#include <ucontext.h>
typedef ucontext_t context;
static void context_make(context *c, char *stack, void (*entry)(void))
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = STACK;
    makecontext(c, entry, 0);
}
#define SWITCH(from, to) swapcontext(&(from), &(to))
#endif

enum state { RUNS, AT_BARRIER, ENDED };
struct pending { void *dst; const void *src; bool valid; unsigned group; };
struct fiber { context at; enum state state; unsigned n_pending,
               group; struct pending pending[PENDING_MAX]; };
/* arguments of one lane in a common step, and its result */
union lane_data {
    struct { float x; int from; } shfl;
    struct { const void *p; uint32_t r[4]; bool trans; } matrix;
    struct { float c[4]; uint32_t a[4], b[2]; } mma;
};
struct warp { unsigned arrived; uint64_t steps; union lane_data lane[LANES], out[LANES]; };

static struct fiber *fiber_;
static struct warp warp_[THREADS_MAX / LANES];
static char *stacks_, *shared_;
static size_t shared_size_;
static context main_;
static enum emulate_order order_;
static void (*kernel_)(const void *);
static const void *args_;

void emulate_set_order(enum emulate_order order) { order_ = order; }

/* Switches to the next thread of this warp that is not at the barrier, or else back to emulate_launch. */
static void next_thread(void)
{
    const unsigned me = emulate_at.tid, base = me / LANES * LANES;
    for (unsigned i = 1; i < LANES; i++) {
        unsigned t = base + (order_ == EMULATE_ASCENDING ? me + i : me + LANES - i) % LANES;
        if (fiber_[t].state == RUNS) {
            emulate_at.tid = t;
            SWITCH(fiber_[me].at, fiber_[t].at);
            return;
        }
    }
    assert(fiber_[me].state != RUNS && "a thread waits for others of its warp that have gone on");
    SWITCH(fiber_[me].at, main_);
}

static void entry(void)
{
    kernel_(args_);
    assert(warp_[emulate_at.tid / LANES].arrived == 0 && "a thread ended while its warp waits for it");
    fiber_[emulate_at.tid].state = ENDED;
    next_thread();
    abort();
}

void emulate_barrier(void)
{
    assert(warp_[emulate_at.tid / LANES].arrived == 0 &&
           "a thread is at the barrier while its warp waits for it");
    fiber_[emulate_at.tid].state = AT_BARRIER;
    next_thread();
}

static void run_block(unsigned block)
{
    unsigned ended = 0;
    for (unsigned t = 0; t < block; t++) {
        context_make(&fiber_[t].at, stacks_ + (size_t)t * STACK, entry);
        fiber_[t].state = RUNS;
        fiber_[t].n_pending = fiber_[t].group = 0;
    }
    memset(warp_, 0, block / LANES * sizeof *warp_);
    while (ended < block) {
        for (unsigned i = 0; i < block / LANES; i++) {
            unsigned w = order_ == EMULATE_ASCENDING ? i : block / LANES - 1 - i,
                     t = w * LANES + (order_ == EMULATE_ASCENDING ? 0 : LANES - 1);
            if (fiber_[t].state == RUNS) {
                emulate_at.tid = t;
                SWITCH(main_, fiber_[t].at);
            }
        }
        ended = 0;
        for (unsigned t = 0; t < block; t++)
            ended += fiber_[t].state == ENDED;
        assert((ended == 0 || ended == block) && "some threads ended while others are at the barrier");
        for (unsigned t = 0; t < block && !ended; t++)
            fiber_[t].state = RUNS;
    }
}

void emulate_launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                    unsigned block, size_t shared_bytes)
{
    assert(block % LANES == 0 && block >= LANES && block <= THREADS_MAX);
    if (!stacks_) {
        fiber_ = calloc(THREADS_MAX, sizeof *fiber_);
        stacks_ = mmap(NULL, (size_t)THREADS_MAX * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(fiber_ && stacks_ != MAP_FAILED);
    }
    if (shared_bytes > shared_size_) {
        free(shared_);
        shared_size_ = (shared_bytes + 127) / 128 * 128;
        shared_ = aligned_alloc(128, shared_size_);
        assert(shared_);
    }
    kernel_ = kernel;
    args_ = args;
    emulate_at.threads = block;
    emulate_at.shared = shared_;
    const size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    for (size_t i = 0; i < blocks; i++) {
        const size_t at = order_ == EMULATE_ASCENDING ? i : blocks - 1 - i;
        emulate_at.block[0] = (unsigned)(at % grid[0]),
        emulate_at.block[1] = (unsigned)(at / grid[0] % grid[1]),
        emulate_at.block[2] = (unsigned)(at / grid[0] / grid[1]);
        if (shared_bytes)
            memset(shared_, 0xff, shared_bytes);
        run_block(block);
    }
}

/* ---- steps of a whole warp ---- */

/* Adds the arguments `mine`. The last lane to arrive executes the step for all lanes. Returns this lane's
 * result. */
static const union lane_data *warp_step(const union lane_data *mine, void (*step)(struct warp *))
{
    struct warp *w = &warp_[emulate_at.tid / LANES];
    const unsigned me = emulate_at.tid % LANES;
    if (mine)
        w->lane[me] = *mine;
    if (++w->arrived == LANES) {
        if (step)
            step(w);
        w->arrived = 0;
        w->steps++;
    } else {
        for (uint64_t now = w->steps; w->steps == now; ) {
            next_thread();
            assert(fiber_[emulate_at.tid].state == RUNS);
        }
    }
    return &w->out[me];
}

void emulate_warp_sync(void) { warp_step(NULL, NULL); }

static void step_shfl(struct warp *w)
{
    for (int i = 0; i < LANES; i++) {
        assert(w->lane[i].shfl.from >= 0 && w->lane[i].shfl.from < LANES);
        w->out[i].shfl.x = w->lane[w->lane[i].shfl.from].shfl.x;
    }
}

float emulate_shfl(float x, int from)
{
    const union lane_data g = { .shfl = { x, from } };
    return warp_step(&g, step_shfl)->shfl.x;
}

static void step_matrix(struct warp *w)
{
    uint16_t m[4][8][8];
    for (int i = 0; i < LANES; i++) {
        assert((uintptr_t)w->lane[i].matrix.p % 16 == 0 && (const char *)w->lane[i].matrix.p >= shared_ &&
               (const char *)w->lane[i].matrix.p + 16 <= shared_ + shared_size_);
        memcpy(m[i / 8][i % 8], w->lane[i].matrix.p, 16);
    }
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++) {
            int r = i / 4, q = i % 4 * 2;
            w->out[i].matrix.r[j] = w->lane[0].matrix.trans ? m[j][q][r] | (uint32_t)m[j][q + 1][r] << 16
                                                            : m[j][r][q] | (uint32_t)m[j][r][q + 1] << 16;
        }
}

void emulate_ldmatrix4(uint32_t r[4], const void *p, bool trans)
{
    const union lane_data g = { .matrix = { .p = p, .trans = trans } };
    memcpy(r, warp_step(&g, step_matrix)->matrix.r, 16);
}

static void step_mma(struct warp *w)
{
    float a[16][16], b[16][8], c[16][8];
    for (int i = 0; i < LANES; i++) {
        const int r = i / 4, q = i % 4 * 2;
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 2; e++)
                a[r + j % 2 * 8][q + j / 2 * 8 + e] =
                    bf16_to_f32((uint16_t)(w->lane[i].mma.a[j] >> (16 * e)));
        for (int j = 0; j < 2; j++)
            for (int e = 0; e < 2; e++)
                b[q + j * 8 + e][r] = bf16_to_f32((uint16_t)(w->lane[i].mma.b[j] >> (16 * e)));
        for (int j = 0; j < 4; j++)
            c[r + j / 2 * 8][q + j % 2] = w->lane[i].mma.c[j];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                c[m][n] += a[m][k] * b[k][n];
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++)
            w->out[i].mma.c[j] = c[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
}

void emulate_mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    union lane_data g;
    memcpy(g.mma.c, c, 16);
    memcpy(g.mma.a, a, 16);
    g.mma.b[0] = b0, g.mma.b[1] = b1;
    memcpy(c, warp_step(&g, step_mma)->mma.c, 16);
}

/* ---- cp.async ---- */

void emulate_cp_async16(void *dst, const void *src, bool valid)
{
    struct fiber *f = &fiber_[emulate_at.tid];
    assert((uintptr_t)dst % 16 == 0 && (!valid || (uintptr_t)src % 16 == 0) && f->n_pending < PENDING_MAX);
    assert((char *)dst >= shared_ && (char *)dst + 16 <= shared_ + shared_size_);
    memset(dst, 0xff, 16);                   /* NaN until the copy arrives */
    f->pending[f->n_pending++] = (struct pending){ dst, src, valid, f->group };
}

void emulate_cp_commit(void) { fiber_[emulate_at.tid].group++; }

void emulate_cp_wait(unsigned n)
{
    struct fiber *f = &fiber_[emulate_at.tid];
    unsigned left = 0;
    for (unsigned i = 0; i < f->n_pending; i++) {
        struct pending *p = &f->pending[i];
        if (p->group + n >= f->group)
            f->pending[left++] = *p;
        else if (p->valid)
            memcpy(p->dst, p->src, 16);
        else
            memset(p->dst, 0, 16);
    }
    f->n_pending = left;
}
