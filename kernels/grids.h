/* The grids of the IQ types: an index selects the magnitudes of four or eight weights.
 *
 * A word has the numbers of eight inputs (IQ3_XXS and IQ3_S: of four, in the low bytes of its halves), 4 bits
 * each: the even inputs in the low half, the odd ones in the high half, the first input lowest. A number and
 * bit 3, which is set where the weight is not negative, select the weight in grid_values. For IQ1_S and
 * IQ1_M the bit is set where an eighth is added to -1, 0 or 1, and clear where it is subtracted. */
#pragma once
#include "kernels/ops.h"

/* Where the grid of a type begins in grid_words. */
enum { GRID_IQ2_XXS, GRID_IQ2_XS = 256, GRID_IQ2_S = GRID_IQ2_XS + 512, GRID_IQ3_XXS = GRID_IQ2_S + 1024,
       GRID_IQ3_S = GRID_IQ3_XXS + 256, GRID_IQ1 = GRID_IQ3_S + 512, GRID_WORDS = GRID_IQ1 + 2048 };
extern uint32_t grid_words[GRID_WORDS];

/* Types whose weights are given by grids. */
static inline bool dtype_has_grid(enum dtype t) { return t >= DT_IQ2_XXS && t <= DT_IQ1_M; }
static inline size_t grid_of(enum dtype t)
{
    return t == DT_IQ2_XXS  ? GRID_IQ2_XXS
           : t == DT_IQ2_XS  ? GRID_IQ2_XS
           : t == DT_IQ2_S   ? GRID_IQ2_S
           : t == DT_IQ3_XXS ? GRID_IQ3_XXS
           : t == DT_IQ3_S   ? GRID_IQ3_S
                             : GRID_IQ1;
}

/* What a factor is multiplied by, besides 2 scale + 1. */
static inline float grid_unit(enum dtype t) { return t == DT_IQ3_S ? 1 : t == DT_IQ3_XXS ? 0.25f : 0.125f; }
/* Weights in units of their scale, plus quant_offset: 8, 25, 43; 4, 12 .. 52, 62; 1, 3 .. 15; 8 g +- 1. */
static const uint8_t grid_values_2[16] = { 0, 18, 35, 0, 0, 0, 0, 0, 86, 68, 51 },
                     grid_values_3_xxs[16] = { 0,   10,  18,  26,  34, 42, 50, 58,
                                               124, 114, 106, 98,  90, 82, 74, 66 },
                     grid_values_3_s[16] = { 0, 2, 4, 6, 8, 10, 12, 14, 30, 28, 26, 24, 22, 20, 18, 16 },
                     grid_values_1[16] = { 0, 8, 16, 0, 0, 0, 0, 0, 2, 10, 18 };
static inline const uint8_t *grid_values(enum dtype t)
{
    return t == DT_IQ3_XXS ? grid_values_3_xxs
           : t == DT_IQ3_S ? grid_values_3_s
           : t >= DT_IQ1_S ? grid_values_1
                           : grid_values_2;
}
