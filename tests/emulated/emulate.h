/* The C half of kernels/cu.h. Threads of a block are fibers; they switch at barriers and at common steps of a
 * warp. Blocks run one after the other, in either order. cp.async copies arrive at the wait, not earlier. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define KERNEL(name, args, threads, blocks) static void kernel_##name(const struct cu_##args a)
#define FN static inline __attribute__((always_inline, unused))
#define UNROLL_ALL
#define UNROLL_NONE

/* The order of the threads of a block between barriers, and of the blocks of a grid. Results must not depend
 * on it. */
enum emulate_order { EMULATE_ASCENDING, EMULATE_DESCENDING };
void emulate_set_order(enum emulate_order order);
/* Runs `kernel(args)` in every thread of a grid. Shared memory (shared_bytes) is filled with NaN before each
 * block. */
void emulate_launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                    unsigned block, size_t shared_bytes);

struct emulate_place { unsigned tid, threads, block[3]; void *shared; };
extern struct emulate_place emulate_at;              /* of the fiber that runs */

void emulate_barrier(void);
void emulate_warp_sync(void);
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
FN void load16(uint32_t r[4], const void *p) { memcpy(r, p, 16); }
FN void store16(void *p, const uint32_t r[4]) { memcpy(p, r, 16); }
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
FN uint32_t atomic_add(uint32_t *p, uint32_t v) { uint32_t old = *p; *p = old + v; return old; }
FN void atomic_add64(uint64_t *p, uint64_t v) { *p += v; }
FN void atomic_min64(uint64_t *p, uint64_t v) { *p = v < *p ? v : *p; }
FN void fence(void) { }
FN void depend_wait(void) { }
FN void depend_launch(void) { }
