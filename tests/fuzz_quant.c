/* Fuzz target: blocks of quantised weights. Input: a byte for the type, then blocks. */
#include "kernels/quant.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { TYPES = DT_IQ4_XS - DT_Q4_0 + 1, BLOCKS_MAX = 8 };
    static float y[256 * BLOCKS_MAX];
    if (n < 1)
        return 0;
    const struct quant_type *q = quant_type((enum dtype)(DT_Q4_0 + data[0] % TYPES));
    const size_t blocks = (n - 1) / q->bytes < BLOCKS_MAX ? (n - 1) / q->bytes : BLOCKS_MAX;
    uint8_t *copy = malloc(blocks * q->bytes + 1);       /* of its own size: a read beyond it is found */
    memcpy(copy, data + 1, blocks * q->bytes);
    if (quant_decode(y, q->dtype, copy, blocks * q->block))
        for (size_t i = 0; i < blocks * q->block; i++)
            if (!isfinite(y[i]))
                abort();
    free(copy);
    return 0;
}
