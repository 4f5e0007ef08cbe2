/* One source, two compilations. The kernels (cu_*.cu) use the common subset of C11 and CUDA C++ and the
 * functions and macros of this file. nvcc compiles them for the GPU. Tests compile them as C for an emulated
 * GPU (tests/emulated), where every thread is a fiber and warps and barriers work as on the GPU. Index
 * arithmetic, tile loops and the order of sums are thus tested without a GPU.
 *
 *   KERNEL(name, args, threads, blocks)
 *                         a kernel; its only argument `a` is struct cu_<args> (cu_args.h), passed by value;
 *                         threads of a block, and blocks that must fit a multiprocessor (bounds registers)
 *   FN                    a function that kernels call; always inlined, so that constant arguments are
 *                         constants inside
 *   tid() threads()       thread of the block, number of threads (a multiple of 32); blocks have one
 *                         dimension
 *   block_x() .. block_z()
 *   shared()              the dynamic shared memory of the block, 128-byte aligned
 *   barrier() warp_sync()
 *   cp_async16            copies 16 bytes (or 16 zero bytes) to shared memory; they arrive at the cp_wait
 *                         that lets at most n groups stay in flight
 *   ldmatrix4[_trans]     four 8x8 matrices of 16-bit values: lane i gives the address of row i % 8 of matrix
 *                         i / 8 (16 bytes) and receives of each matrix the values (row i / 4, columns 2 (i %
 *                         4) and + 1); trans: of the transposed matrix
 *   mma_bf16              c[16][8] += a[16][16] b[16][8]. Lane i, r = i / 4, q = 2 (i % 4):
 *                         c = (r, q) (r, q+1) (r+8, q) (r+8, q+1);
 *                         a, words of two: (r, q) (r+8, q) (r, q+8) (r+8, q+8); b: (q, r) (q+8, r), pairs
 *                         along k
 *   depend_wait/launch    programmatic dependent launch: before depend_wait a kernel must not read what an
 *                         earlier kernel of the pass wrote, nor write what one reads or writes. It may read
 *                         weights, the tables of the pass, and keys and values from before the pass. Every
 *                         thread of every kernel calls it.
 *
 * Sums never use atomics. Atomics on whole numbers (tickets, histograms, minima) give the same result in any
 * order. */
#pragma once
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define KERNEL(name, args, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, \
    blocks) kernel_##name(const struct cu_##args a)
#define FN static __device__ __forceinline__
#define UNROLL_ALL _Pragma("unroll")
#define UNROLL_NONE _Pragma("unroll 1")
extern __shared__ __align__(128) unsigned char cu_shared_memory[];

FN unsigned tid(void) { return threadIdx.x; }
FN unsigned threads(void) { return blockDim.x; }
FN unsigned block_x(void) { return blockIdx.x; }
FN unsigned block_y(void) { return blockIdx.y; }
FN unsigned block_z(void) { return blockIdx.z; }
FN void *shared(void) { return cu_shared_memory; }
FN void barrier(void) { __syncthreads(); }
FN void warp_sync(void) { __syncwarp(); }
FN float shfl_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN float shfl(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
FN uint64_t shfl_xor64(uint64_t x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, (unsigned long long)x, mask);
}

FN float as_float(uint32_t u) { return __uint_as_float(u); }
FN uint32_t as_bits(float x) { return __float_as_uint(x); }
FN unsigned low_bit(unsigned u) { return (unsigned)__ffs((int)u) - 1; }        /* u is not 0 */
FN double as_double(uint64_t u) { return __longlong_as_double((long long)u); }
FN uint64_t as_bits64(double x) { return (uint64_t)__double_as_longlong(x); }
FN float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN uint32_t pack_bf16(float lo, float hi) { uint32_t u; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u)
    : "f"(hi), "f"(lo)); return u; }
FN float half_to_float(uint16_t h) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h)); return y; }

FN void load16(uint32_t r[4], const void *p) { uint4 v = *(const uint4 *)p; r[0] = v.x, r[1] = v.y,
                                               r[2] = v.z, r[3] = v.w; }
FN void store16(void *p, const uint32_t r[4]) { *(uint4 *)p = make_uint4(r[0], r[1], r[2], r[3]); }
/* bypasses the L1 cache: another block wrote the value */
FN float load_fresh(const float *p) { return __ldcg(p); }
FN void cp_async16(void *dst, const void *src, bool valid)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(dst)),
        "l"(src), "r"(valid ? 16 : 0)
        : "memory");
}
FN void cp_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define cp_wait(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#define LDMATRIX4(NAME, TRANS)                                                                               \
    FN void NAME(uint32_t r[4], const void *p)                                                               \
    {                                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0,%1,%2,%3}, [%4];"                \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                        \
                     : "r"((uint32_t)__cvta_generic_to_shared(p))                                            \
                     : "memory");                                                                            \
    }
LDMATRIX4(ldmatrix4, "")
LDMATRIX4(ldmatrix4_trans, ".trans")
FN void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN uint32_t atomic_add(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
FN void atomic_add64(uint64_t *p, uint64_t v) { atomicAdd((unsigned long long *)p, (unsigned long long)v); }
FN void atomic_min64(uint64_t *p, uint64_t v) { atomicMin((unsigned long long *)p, (unsigned long long)v); }
/* Orders this thread's earlier accesses, and what it observed of other threads (through a barrier), before
 * its later accesses, for the whole GPU. Release and acquire suffice; sequential consistency (__threadfence)
 * waits longer. */
FN void fence(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Variant EARLY: the next kernel may begin as soon as all blocks of this one have, and not only where this
 * kernel says so. The next kernel waits for the end of this one in any case. */
FN void depend_wait(void)
{
#if __CUDA_ARCH__ >= 900
#ifdef LH_VARIANT_EARLY
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
FN void depend_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#elif !defined KERNEL
#error "To compile a kernel as C, include tests/emulated/emulate.h first."
#endif

enum { WARP = 32 };
FN unsigned lane(void) { return tid() % WARP; }
FN unsigned warp(void) { return tid() / WARP; }
FN float bf16_float(uint16_t x) { return as_float((uint32_t)x << 16); }
FN uint16_t to_bf16(float x) { return (uint16_t)pack_bf16(x, 0.0f); }
FN bool is_finite(float x) { return (as_bits(x) & 0x7f800000u) != 0x7f800000u; }
FN float max_of(float x, float y) { return fmaxf(x, y); }
FN size_t min_size(size_t x, size_t y) { return x < y ? x : y; }
FN size_t max_size(size_t x, size_t y) { return x > y ? x : y; }

/* Block b of a layer and head of a cache: b < n_shared is in the table, the others follow each other at
 * `base` (struct device_kv). A block is K, then V, of 64 rows of dp bf16. */
FN char *cache_block(char *base, char *const *shared, size_t n_shared, size_t b, size_t dp)
{
    return b < n_shared ? shared[b] : base + (b - n_shared) * 2 * 64 * dp * 2;
}

/* The order of x, then of `last`, as that of whole numbers; -0 is 0. */
FN uint64_t ordered_key(float x, uint32_t last)
{
    const uint32_t u = as_bits(x + 0.0f);
    return (uint64_t)(u >> 31 ? ~u : u | 0x80000000u) << 32 | last;
}

/* The sum over the warp, in every lane. */
FN float warp_sum(float x)
{
    UNROLL_ALL
    for (int i = 16; i; i /= 2)
        x = x + shfl_xor(x, i);
    return x;
}

/* The sum over the block, equal in every thread. The number of threads alone fixes its order. work: one float
 * for each warp, free again after the next barrier. */
FN float block_sum(float x, float *work)
{
    x = warp_sum(x);
    barrier();
    if (lane() == 0)
        work[warp()] = x;
    barrier();
    float sum = work[0];
    for (unsigned i = 1; i < threads() / WARP; i++)
        sum = sum + work[i];
    return sum;
}

/* The same of whole numbers: the order of the sum does not matter. */
FN uint64_t warp_sum64(uint64_t x)
{
    UNROLL_ALL
    for (int i = 16; i; i /= 2)
        x += shfl_xor64(x, i);
    return x;
}

/* Sorts keys[0..n) in descending order (bitonic); n is a power of two. */
FN void sort_keys(uint64_t *keys, size_t n)
{
    for (size_t size = 2; size <= n; size *= 2)
        for (size_t step = size / 2; step; step /= 2) {
            barrier();
            for (size_t i = tid(); i < n; i += threads()) {
                const size_t j = i ^ step;
                if (j > i && (keys[i] < keys[j]) == ((i & size) == 0)) {
                    const uint64_t t = keys[i];
                    keys[i] = keys[j];
                    keys[j] = t;
                }
            }
        }
    barrier();
}
