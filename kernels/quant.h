/* Quantised types of weights, as ggml and GGUF files define them: blocks of 32 to 256 weights with factors in
 * 16-bit floats, in MXFP4 a power of two in 8 bits, in NVFP4 floats of 8 bits. This is the reference: every
 * weight is decoded to fp32 by single fp32 operations, each rounded to nearest, in the order that the
 * comments of quant.c give. */
#pragma once
#include "kernels/ops.h"

/* Decodes n weights, a multiple of the block. False: the factor of a block is infinite or NaN, or (MXFP4)
 * makes the largest weight infinite; y is undefined then. */
bool quant_decode(float *y, enum dtype t, const void *blocks, size_t n);
/* Whether the factors of n weights are finite. */
bool quant_is_finite(enum dtype t, const void *blocks, size_t n);

/* Row r of a table whose rows are stored as in the file, one after the other (embeddings of an untied model).
 * The factors must be finite. */
void quant_table_row(const struct mat *m, size_t r, float *y);

/* mat_pack and mat_row for quantised weights: n rows of blocks to rows r0 .. of a matrix; row r as floats,
 * times the scale of a matrix that has one. */
void quant_pack(struct mat *m, size_t r0, size_t n, const void *rows);
void quant_row(const struct mat *m, size_t r, float *y);
/* Random weights in panels [p0, p1) of a matrix: all bits random, factors such that products of unit inputs
 * are about 1. For measurements. */
void quant_random(struct mat *m, size_t p0, size_t p1, uint64_t seed);
