/* Encoding of 16-bit and 32-bit weights in the types of GGUF files: BF16, Q8_0 and Q4_0. The bytes equal
 * those that llama.cpp and gguf-py write. A matrix keeps its names and shape; vectors become F32.
 *
 * tensors_encode changes a list of tensors: afterwards tensors_read gives encoded rows. So a converted file
 * and a directory that is read with the same choice have the same weights. */
#pragma once
#include "src/model/gguf.h"
#include "src/model/tensors.h"

/* Encodes n weights (a multiple of the type's block) of type `from`: BF16, F16 or F32. False: a weight is not
 * finite, or its block needs a scale beyond the largest 16-bit float. */
bool encode_row(void *to, const struct gguf_type *type, const void *src, enum dtype from, size_t n);
/* To the nearest 16-bit float; of two, to the even one. */
uint16_t f32_to_f16(float x);
/* The type that a matrix of that name and row length gets. A row that is no multiple of the block stays in
 * BF16. Routers, gates of shared experts and convolutions are F32, because their products are those of
 * floats. In q4_0 the logits' matrix is Q8_0: its errors reach the text directly. */
const struct gguf_type *encode_type(enum weights w, const char *name, bool tied, size_t n_dims, size_t cols);
/* Makes ts a list of encoded tensors. ERR_INPUT: a tensor is quantised already. */
int tensors_encode(struct tensors *ts, enum weights w, bool tied, struct err *e);
