/* What the twins of the table share before they differ. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define MIN_(a, b) ((a) < (b) ? (a) : (b))

enum { TILE_ROWS_MAX = 8 };      /* rows of the largest tile of any twin */

extern const struct ops ops_generic, ops_avx2, ops_avx512;

#if defined(__x86_64__)
#include <cpuid.h>
/* clang 14 knows no name for it. */
static inline bool cpu_has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif
