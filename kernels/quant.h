/* Quantised types of weights, as ggml and GGUF files define them: blocks of 32 or 256 weights with factors in 16-bit
 * floats. This is the reference: every weight is decoded to fp32 by single fp32 operations, each rounded to nearest, in
 * the order that the comments of quant.c give. */
#pragma once
#include "kernels/ops.h"

struct quant_type { enum dtype dtype; const char *name; size_t block, bytes; };   /* weights and bytes of a block */

/* NULL: t is no quantised type. */
const struct quant_type *quant_type(enum dtype t);
static inline bool dtype_is_quantised(enum dtype t) { return t >= DT_Q4_0; }

/* Decodes n weights, a multiple of the block. False: the factor of a block is infinite or NaN; y is undefined then. */
bool quant_decode(float *y, enum dtype t, const void *blocks, size_t n);
