/* Fuzz target: blocks of quantised weights, decoded, and packed and read back. Input: a byte for the type and
 * the row of the panel, then blocks. At its end the fuzzer prints the number of inputs of each type. */
#include "kernels/quant.h"
#include "tests/quant_type.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUANT_TYPES = DT_END - DT_Q4_0, BLOCKS_MAX = 2 };
static size_t quant_inputs[QUANT_TYPES];

/* The packed form gives back the weights, whichever row of the panel they have. */
static void pack_and_read_back(const struct quant_type *q, const void *blocks, size_t k, size_t r,
                               const float *y)
{
    float back[256 * BLOCKS_MAX];
    struct mat m = { q->dtype, PANEL, k, NULL };
    m.w = malloc(mat_bytes(&m));
    if (!m.w)
        abort();
    quant_pack(&m, r, 1, blocks);
    quant_row(&m, r, back);
    if (memcmp(back, y, k * sizeof *y))
        abort();
    free(m.w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static float y[256 * BLOCKS_MAX];
    if (n < 1)
        return 0;
    const size_t t = data[0] % QUANT_TYPES, r = data[0] / QUANT_TYPES % PANEL;
    const struct quant_type *q = quant_type((enum dtype)(DT_Q4_0 + t));
    const size_t blocks = (n - 1) / q->bytes < BLOCKS_MAX ? (n - 1) / q->bytes : BLOCKS_MAX;
    const size_t k = blocks * q->block;
    uint8_t *copy = malloc(blocks * q->bytes + 1);       /* of its own size: a read beyond it is found */
    memcpy(copy, data + 1, blocks * q->bytes);
    const bool finite = quant_is_finite(q->dtype, copy, k);
    if (finite != quant_decode(y, q->dtype, copy, k))
        abort();
    for (size_t i = 0; i < k && finite; i++)
        if (!isfinite(y[i]))
            abort();
    if (finite && k)
        pack_and_read_back(q, copy, k, r, y);
    quant_inputs[t]++;
    free(copy);
    return 0;
}

#ifdef FUZZING
__attribute__((destructor)) static void print_inputs(void)
{
    for (size_t t = 0; t < QUANT_TYPES; t++)
        fprintf(stderr, "%s: %zu inputs\n", quant_type((enum dtype)(DT_Q4_0 + t))->name, quant_inputs[t]);
}
#endif
