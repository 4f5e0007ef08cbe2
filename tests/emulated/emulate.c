/* Runs a kernel that was compiled as C: fibers for the threads of its blocks, barriers, the operations that
 * the lanes of a warp execute together, and the wait of programmatic dependent launch. One thread of the
 * program uses it. Start reading at emulate_finish. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/emulated/emulate.h"

/* SLOTS: blocks in memory; AT_ONCE: of a kernel that runs; EARLY: of the next kernel, before their wait;
 * YIELD: a warp lets others go on after one of so many steps. */
enum { THREADS_MAX = 1024, LANES = 32, STACK = 128 << 10, STACK_LEAST = 64 << 10, PENDING_MAX = 128,
       SLOTS = 6, AT_ONCE = 3, EARLY = 2, YIELD = 64 };

struct emulate_place emulate_at;
struct emulate_plant emulate_plant;

/* ---- fibers ---- */

#if defined __x86_64__
typedef void *context;
void emulate_switch(context *from, context to) __attribute__((visibility("hidden")));
__asm__(
    ".text\n.globl emulate_switch\n.hidden emulate_switch\n.type emulate_switch,@function\nemulate_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size "
    "emulate_switch,.-emulate_switch\n");
static void context_make(context *c, char *stack, size_t size, void (*entry)(void))
{
    void **top = (void **)(stack + size);
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
static void context_make(context *c, char *stack, size_t size, void (*entry)(void))
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    makecontext(c, entry, 0);
}
#define SWITCH(from, to) swapcontext(&(from), &(to))
#endif

enum state { RUNS, AT_BARRIER, AT_WAIT, ENDED };
/* A copy in flight holds what its source was when it was issued. */
struct pending { void *dst; const void *src; bool valid; unsigned group; uint32_t data[4]; };
struct fiber { context at; enum state state; bool waited; unsigned barriers, n_pending, group; };
/* arguments of one lane in a common step, and its result */
union lane_data {
    struct { float x; int from; } shfl;
    struct { const void *p; uint32_t r[4]; bool trans; } matrix;
    struct { float c[4]; uint32_t a[4], b[2]; } mma;
};
/* running: threads that are not at a barrier, at the wait or ended; resume: the one to go on with. In the
 * random order the warp with the highest priority goes on, so that some warps come late by far. */
struct warp {
    unsigned arrived, running, resume, priority;
    uint64_t steps;
    union lane_data lane[LANES], out[LANES];
};
/* A place for a block; run: NULL, or the kernel it belongs to. early: its threads stop at their wait. */
struct block {
    struct emulate_run *run;
    unsigned threads, running, ended, waiting, at[3];
    bool early;
    struct fiber *fiber;
    struct pending (*pending)[PENDING_MAX];
    char *stacks, *shared; size_t shared_room, shared_bytes;
    struct warp warp[THREADS_MAX / LANES];
};

static struct block slot_[SLOTS], *now_;
static context main_;
static enum emulate_order wanted_ = EMULATE_RANDOM, order_;      /* order_: of the kernel that runs */
static unsigned stride_ = 1;                     /* from a thread of a warp to the next; odd */
static uint64_t random_ = 88172645463325252u;

void emulate_set_order(enum emulate_order order) { wanted_ = order; }
void emulate_set_seed(uint64_t seed) { random_ = (seed + 1) * 0x9e3779b97f4a7c15u | 1; }

static unsigned any(size_t n)                    /* 0 .. n - 1 */
{
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return (unsigned)((random_ >> 32) % n);
}

static struct fiber *me(void) { return &now_->fiber[emulate_at.tid]; }
static struct warp *my_warp(void) { return &now_->warp[emulate_at.tid / LANES]; }

/* Switches to the next thread of this warp that runs, or else back to the scheduler. */
static void next_thread(void)
{
    struct block *b = now_;
    const unsigned mine = emulate_at.tid, base = mine / LANES * LANES;
    for (unsigned i = 1; i < LANES; i++) {
        const unsigned t = base + (mine + i * stride_) % LANES;
        if (b->fiber[t].state == RUNS) {
            emulate_at.tid = t;
            SWITCH(b->fiber[mine].at, b->fiber[t].at);
            return;
        }
    }
    assert(b->fiber[mine].state != RUNS && "a thread waits for others of its warp that have gone on");
    SWITCH(b->fiber[mine].at, main_);
}

static unsigned any_priority(void) { return any((size_t)1 << 31); }

/* Gives the warp another priority, now and then. */
static void yield(unsigned one_of)
{
    if (order_ != EMULATE_RANDOM || any(one_of))
        return;
    my_warp()->resume = emulate_at.tid;
    my_warp()->priority = any_priority();
    SWITCH(me()->at, main_);
}
void emulate_yield(void) { yield(4); }

static void stop_as(enum state state)
{
    me()->state = state;
    my_warp()->running--;
    now_->running--;
    next_thread();
}

static void entry(void)
{
    now_->run->kernel(now_->run->args);
    assert(my_warp()->arrived == 0 && "a thread ended while its warp waits for it");
    assert(me()->waited && "a thread ended without depend_wait");
    now_->ended++;
    stop_as(ENDED);
    abort();
}

static void stop_until_finish(void)
{
    now_->waiting++;
    stop_as(AT_WAIT);
}

void emulate_barrier(void)
{
    if (emulate_plant.late_wait && now_->early && me()->waited)
        stop_until_finish();
    assert(my_warp()->arrived == 0 && "a thread is at the barrier while its warp waits for it");
    if (++me()->barriers != emulate_plant.no_barrier)
        stop_as(AT_BARRIER);
}

void emulate_depend_wait(void)
{
    me()->waited = true;
    if (now_->early && !emulate_plant.no_wait && !emulate_plant.late_wait)
        stop_until_finish();
}

/* ---- blocks ---- */

static void wake(struct block *b, enum state from)
{
    for (unsigned t = 0; t < b->threads; t++)
        if (b->fiber[t].state == from) {
            struct warp *w = &b->warp[t / LANES];
            b->fiber[t].state = RUNS;
            b->running++;
            if (w->running++ == 0 || order_ == EMULATE_DESCENDING || (order_ == EMULATE_RANDOM && any(2)))
                w->resume = t;
        }
}

static void slot_open(struct block *b)
{
    const size_t pending = THREADS_MAX * sizeof *b->pending;
    b->fiber = calloc(THREADS_MAX, sizeof *b->fiber);
    char *p = mmap(NULL, (size_t)THREADS_MAX * STACK + pending, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(b->fiber && p != MAP_FAILED);
    b->stacks = p;
    b->pending = (void *)(p + (size_t)THREADS_MAX * STACK);
}

/* Starts the next block of the kernel in a free slot. */
static void block_start(struct block *b, struct emulate_run *r)
{
    const size_t i = (r->first + r->started++ * r->step) % r->blocks;
    if (!b->fiber)
        slot_open(b);
    b->run = r;
    b->at[0] = (unsigned)(i % r->grid[0]), b->at[1] = (unsigned)(i / r->grid[0] % r->grid[1]),
    b->at[2] = (unsigned)(i / r->grid[0] / r->grid[1]);
    b->threads = r->block;
    b->running = b->ended = b->waiting = 0;
    b->early = false;
    if (r->shared_bytes > b->shared_room) {
        free(b->shared);
        b->shared_room = (r->shared_bytes + 127) / 128 * 128;
        b->shared = aligned_alloc(128, b->shared_room);
        assert(b->shared);
    }
    b->shared_bytes = r->shared_bytes;
    if (r->shared_bytes)
        memset(b->shared, 0xff, r->shared_bytes);
    for (unsigned w = 0; w < r->block / LANES; w++)
        b->warp[w] = (struct warp){ .priority = any_priority() };
    for (unsigned t = 0; t < r->block; t++) {
        b->fiber[t] = (struct fiber){ .state = AT_BARRIER };
        /* stacks begin at other cache lines, so that they do not push each other out */
        context_make(&b->fiber[t].at, b->stacks + (size_t)t * STACK,
                     STACK - t * 1088 % (STACK - STACK_LEAST), entry);
    }
    wake(b, AT_BARRIER);
    r->live++;
}

static struct block *free_slot(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (!slot_[i].run)
            return &slot_[i];
    return NULL;
}

/* The warp that goes on, of the blocks of a kernel of which some thread runs: *w of the block returned. */
static struct block *next_warp(const struct emulate_run *r, unsigned *w)
{
    struct block *found = NULL;
    for (struct block *b = slot_; b < slot_ + SLOTS; b++)
        for (unsigned i = 0; b->run == r && i < b->threads / LANES; i++)
            if (b->warp[i].running &&
                (!found || order_ == EMULATE_DESCENDING ||
                 (order_ == EMULATE_RANDOM && b->warp[i].priority > found->warp[*w].priority)))
                found = b, *w = i;
    return found;
}

/* Runs one warp until it waits for others; then releases a barrier that is complete. */
static void run_warp(const struct emulate_run *r)
{
    unsigned w = 0;
    struct block *b = next_warp(r, &w);
    now_ = b;
    emulate_at = (struct emulate_place){ b->warp[w].resume, b->threads, { b->at[0], b->at[1], b->at[2] },
                                         b->shared };
    SWITCH(main_, b->fiber[emulate_at.tid].at);
    if (b->running || b->waiting)
        return;
    assert((b->ended == 0 || b->ended == b->threads) && "some threads ended while others are at the barrier");
    if (b->ended) {
        b->run->live--;
        b->run = NULL;
    } else {
        wake(b, AT_BARRIER);
    }
}

static size_t divisor(size_t a, size_t b) { return b ? divisor(b, a % b) : a; }

struct emulate_run emulate_run(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                               unsigned block, size_t shared_bytes)
{
    struct emulate_run r = { kernel, args, { grid[0], grid[1], grid[2] }, block, shared_bytes, wanted_,
                             (size_t)grid[0] * grid[1] * grid[2], 0, 0, 1, 0 };
    assert(block % LANES == 0 && block >= LANES && block <= THREADS_MAX);
    if (r.order == EMULATE_DESCENDING) {
        r.first = r.step = r.blocks - 1;
    } else if (r.order == EMULATE_RANDOM) {
        r.first = any(r.blocks);
        for (r.step = any(r.blocks) + 1; divisor(r.step, r.blocks) != 1; )
            r.step++;
    }
    return r;
}

static void begin(const struct emulate_run *r)
{
    order_ = r->order;
    stride_ = order_ == EMULATE_RANDOM ? any(LANES / 2) * 2 + 1 : order_ == EMULATE_ASCENDING ? 1 : LANES - 1;
}

void emulate_early(struct emulate_run *r)
{
    unsigned vacant = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        vacant += !slot_[i].run;
    begin(r);
    for (unsigned i = 0, w; i < EARLY && r->started < r->blocks && i + AT_ONCE < vacant; i++) {
        struct block *b = free_slot();
        block_start(b, r);
        b->early = true;
        while (next_warp(r, &w))
            run_warp(r);
    }
}

void emulate_finish(struct emulate_run *r)
{
    const unsigned most = r->order == EMULATE_RANDOM ? AT_ONCE : 1;
    begin(r);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slot_[i].run == r) {
            slot_[i].early = false;
            slot_[i].waiting = 0;
            wake(&slot_[i], AT_WAIT);
        }
    while (r->live || r->started < r->blocks) {
        for (struct block *b; r->live < most && r->started < r->blocks && (b = free_slot()); )
            block_start(b, r);
        run_warp(r);
    }
}

/* ---- steps of a whole warp ---- */

/* Adds the arguments `mine`. The last lane to arrive executes the step for all lanes. Returns this lane's
 * result. */
static const union lane_data *warp_step(const union lane_data *mine, void (*step)(struct warp *))
{
    struct warp *w = my_warp();
    const unsigned i = emulate_at.tid % LANES;
    if (mine)
        w->lane[i] = *mine;
    if (++w->arrived == LANES) {
        if (step)
            step(w);
        w->arrived = 0;
        w->steps++;
        yield(YIELD);
    } else {
        for (uint64_t now = w->steps; w->steps == now; )
            next_thread();
    }
    return &w->out[i];
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

/* Whether 16 bytes at p are shared memory of the block. */
static bool is_shared(const void *p)
{
    return (const char *)p >= now_->shared && (const char *)p + 16 <= now_->shared + now_->shared_bytes;
}

static void step_matrix(struct warp *w)
{
    uint16_t m[4][8][8];
    for (int i = 0; i < LANES; i++) {
        assert((uintptr_t)w->lane[i].matrix.p % 16 == 0 && is_shared(w->lane[i].matrix.p));
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
    struct fiber *f = me();
    assert((uintptr_t)dst % 16 == 0 && (!valid || (uintptr_t)src % 16 == 0) && is_shared(dst) &&
           f->n_pending < PENDING_MAX);
    struct pending *p = &now_->pending[emulate_at.tid][f->n_pending++];
    *p = (struct pending){ dst, src, valid, f->group, { 0, 0, 0, 0 } };
    if (valid)
        memcpy(p->data, src, 16);
    memset(dst, 0xff, 16);                   /* NaN until the copy arrives */
}

void emulate_cp_commit(void) { me()->group++; }

void emulate_cp_wait(unsigned n)
{
    struct fiber *f = me();
    unsigned left = 0;
    for (unsigned i = 0; i < f->n_pending; i++) {
        struct pending *all = now_->pending[emulate_at.tid], *p = &all[i];
        if (p->group + n >= f->group) {
            all[left++] = *p;
            continue;
        }
        assert((!p->valid || memcmp(p->data, p->src, 16) == 0) && "the source of a copy changed in flight");
        memcpy(p->dst, p->data, 16);
    }
    f->n_pending = left;
}
