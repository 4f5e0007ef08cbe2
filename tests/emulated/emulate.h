/* The C half of kernels/cuda/cu.h, and the emulator that runs such kernels. Threads of a block are fibers;
 * they switch at barriers and at common steps of a warp. It finds these errors of kernels:
 *
 *   - results that depend on the order of threads, warps or blocks. In the random order three blocks run at
 *     once, and warps let others go on at steps chosen by chance, also before an atomic operation;
 *   - reads of shared memory that nobody wrote (it is NaN), or before a cp.async has arrived. A copy takes
 *     its source when it is issued and arrives at the wait. A source that changes in between stops the
 *     program;
 *   - 16-byte accesses that are not aligned;
 *   - memory that is read or written before depend_wait, although an earlier kernel writes or reads it:
 *     emulate_early runs blocks of the next kernel up to their wait, and emulated.c holds NaN meanwhile where
 *     earlier kernels write;
 *   - a thread that ends without depend_wait;
 *   - results that nobody wrote, such as the parts of a split sum: emulated.c fills what a kernel should
 *     write with NaN before the kernel runs, and memory that the driver need not clear, too. */
#pragma once
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define KERNEL(name, args, threads, blocks) static void kernel_##name(const struct cu_##args a)
#define FN static inline __attribute__((always_inline, unused))
#define UNROLL_ALL
#define UNROLL_NONE

/* The order of the threads of a block between barriers, and of the blocks of a grid. Results must not depend
 * on it. Random (the default): several blocks at once. */
enum emulate_order { EMULATE_RANDOM, EMULATE_ASCENDING, EMULATE_DESCENDING };
void emulate_set_order(enum emulate_order order);
void emulate_set_seed(uint64_t seed);                /* of the random order */

/* A launch of `kernel(args)` in the order that is set now. args stays until the end. Shared memory is filled
 * with NaN before each block. */
struct emulate_run {
    void (*kernel)(const void *args); const void *args; unsigned grid[3], block; size_t shared_bytes;
    enum emulate_order order;
    size_t blocks, started, first, step; unsigned live;
};
struct emulate_run emulate_run(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                               unsigned block, size_t shared_bytes);
/* Starts some blocks and runs them up to their depend_wait. finish: runs everything that is left. */
void emulate_early(struct emulate_run *r);
void emulate_finish(struct emulate_run *r);

/* Bugs that a test plants in every kernel: depend_wait does not wait, or only at the next barrier; the n-th
 * barrier of a thread (from 1) is missing. */
struct emulate_plant { bool no_wait, late_wait; unsigned no_barrier; };
extern struct emulate_plant emulate_plant;

struct emulate_place { unsigned tid, threads, block[3]; void *shared; };
extern struct emulate_place emulate_at;              /* of the fiber that runs */

void emulate_barrier(void);
void emulate_warp_sync(void);
void emulate_depend_wait(void);
void emulate_yield(void);                            /* before an operation that other blocks see */
float emulate_shfl(float x, int from);               /* from: lane of the warp */
void emulate_cp_async16(void *dst, const void *src, bool valid);
void emulate_cp_commit(void);
void emulate_cp_wait(unsigned n);
void emulate_ldmatrix4(uint32_t r[4], const void *p, bool trans);
void emulate_mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);

FN unsigned tid(void) { return emulate_at.tid; }
FN unsigned threads(void) { return emulate_at.threads; }
FN unsigned block_x(void) { return emulate_at.block[0]; }
FN unsigned block_y(void) { return emulate_at.block[1]; }
FN unsigned block_z(void) { return emulate_at.block[2]; }
FN void *shared(void) { return emulate_at.shared; }
FN void barrier(void) { emulate_barrier(); }
FN void warp_sync(void) { emulate_warp_sync(); }
FN float shfl_xor(float x, int mask) { return emulate_shfl(x, (int)(emulate_at.tid % 32) ^ mask); }
FN float shfl(float x, int from) { return emulate_shfl(x, from); }

FN uint64_t shfl_xor64(uint64_t x, int mask)
{
    float half[2];
    memcpy(half, &x, 8);
    half[0] = shfl_xor(half[0], mask), half[1] = shfl_xor(half[1], mask);
    memcpy(&x, half, 8);
    return x;
}
FN float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
FN uint32_t as_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
FN unsigned low_bit(unsigned u) { return (unsigned)__builtin_ctz(u); }
FN double as_double(uint64_t u) { double f; memcpy(&f, &u, 8); return f; }
FN uint64_t as_bits64(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
FN float exp2_fast(float x) { return exp2f(x); }
FN uint32_t pack_bf16(float lo, float hi) { return f32_to_bf16(lo) | (uint32_t)f32_to_bf16(hi) << 16; }
FN float half_to_float(uint16_t h) { return f16_to_f32(h); }
FN void load16(uint32_t r[4], const void *p)
{
    assert((uintptr_t)p % 16 == 0 && "a load of 16 bytes that is not aligned");
    memcpy(r, p, 16);
}
FN void store16(void *p, const uint32_t r[4])
{
    assert((uintptr_t)p % 16 == 0 && "a store of 16 bytes that is not aligned");
    memcpy(p, r, 16);
}
FN float load_fresh(const float *p) { return *p; }
FN void cp_async16(void *dst, const void *src, bool valid) { emulate_cp_async16(dst, src, valid); }
FN void cp_commit(void) { emulate_cp_commit(); }
FN void cp_wait(unsigned n) { emulate_cp_wait(n); }
FN void ldmatrix4(uint32_t r[4], const void *p) { emulate_ldmatrix4(r, p, false); }
FN void ldmatrix4_trans(uint32_t r[4], const void *p) { emulate_ldmatrix4(r, p, true); }
FN void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    emulate_mma_bf16(c, a, b0, b1);
}
FN uint32_t atomic_add(uint32_t *p, uint32_t v)
{
    emulate_yield();
    const uint32_t old = *p;
    *p = old + v;
    return old;
}
FN void atomic_add64(uint64_t *p, uint64_t v) { emulate_yield(); *p += v; }
FN void atomic_min64(uint64_t *p, uint64_t v) { emulate_yield(); *p = v < *p ? v : *p; }
FN void fence(void) { emulate_yield(); }
FN void depend_wait(void) { emulate_depend_wait(); }
FN void depend_launch(void) { }
