/* What a launch writes, from its arguments. */
#pragma once
#include "kernels/cuda/gpu.h"

/* whole: the kernel writes every byte, and reads none of them before. */
typedef void output_visit(void *ctx, void *p, size_t bytes, bool whole);
/* Calls visit for each range of memory that the launch writes, except for words that kernels count in (`bad`,
 * tickets, counts) and for kernels that write weights (pack, noise, adamw). The tables of the pass must be in
 * place. */
void emulated_outputs(const struct gpu_launch *l, output_visit *visit, void *ctx);
