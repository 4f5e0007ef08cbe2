/* Definitions that all twins share. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define MIN_(a, b) ((a) < (b) ? (a) : (b))

enum { TILE_ROWS_MAX = 8 };      /* rows of the largest tile of any twin */

extern const struct ops ops_generic, ops_avx2, ops_avx512;

#if defined(__x86_64__)
#include <assert.h>
#include <cpuid.h>
/* Some compilers (clang 14) have no name for F16C in __builtin_cpu_supports. */
static inline bool cpu_has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* MXCSR: nearest even, no FTZ, no DAZ, exceptions masked; MXCSR_FLAGS are the sticky flags. A library that
 * changed MXCSR in a thread would change the bits that the thread computes, so FTZ_BEGIN asserts the
 * default. */
enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLUSH = 0x9fc0, MXCSR_FLAGS = 0x3f };
/* Between FTZ_BEGIN and FTZ_END tiny values are zeros if `on`. The compiler cannot move the computation out,
 * because it begins with loads and ends with stores. */
#define FTZ_BEGIN(on) \
    unsigned off_ = _mm_getcsr(), on_ = (on) ? MXCSR_FLUSH : off_; \
    assert((off_ & ~(unsigned)MXCSR_FLAGS) == MXCSR_DEFAULT); \
    __asm__ volatile("ldmxcsr %0" :: "m"(on_) : "memory")
#define FTZ_END __asm__ volatile("ldmxcsr %0" :: "m"(off_) : "memory")
#endif
