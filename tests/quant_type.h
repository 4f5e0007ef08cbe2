/* Names and sizes of the quantised types. */
#pragma once
#include "kernels/quant.h"

struct quant_type { enum dtype dtype; const char *name; size_t block, bytes; };

/* NULL: t is no quantised type. The result is good until the next call. */
static inline const struct quant_type *quant_type(enum dtype t)
{
    static const char *const name[DT_END] = {
        [DT_Q4_0] = "Q4_0", [DT_Q4_1] = "Q4_1", [DT_Q5_0] = "Q5_0", [DT_Q5_1] = "Q5_1", [DT_Q8_0] = "Q8_0",
        [DT_Q2_K] = "Q2_K", [DT_Q3_K] = "Q3_K", [DT_Q4_K] = "Q4_K", [DT_Q5_K] = "Q5_K", [DT_Q6_K] = "Q6_K",
        [DT_IQ4_NL] = "IQ4_NL", [DT_IQ4_XS] = "IQ4_XS", [DT_MXFP4] = "MXFP4", [DT_TQ1_0] = "TQ1_0",
        [DT_TQ2_0] = "TQ2_0", [DT_IQ2_XXS] = "IQ2_XXS", [DT_IQ2_XS] = "IQ2_XS", [DT_IQ2_S] = "IQ2_S",
        [DT_IQ3_XXS] = "IQ3_XXS", [DT_IQ3_S] = "IQ3_S", [DT_IQ1_S] = "IQ1_S", [DT_IQ1_M] = "IQ1_M",
        [DT_Q1_0] = "Q1_0", [DT_Q2_0] = "Q2_0", [DT_NVFP4] = "NVFP4",
    };
    static struct quant_type all[DT_END];
    all[t] = (struct quant_type){ t, name[t], dtype_block(t), dtype_block_bytes(t) };
    return dtype_is_quantised(t) ? &all[t] : NULL;
}
