/* Expands the grids of IQ types from their tables (grids.h), once. */
#include "kernels/grids.h"
#include "kernels/grid_tables.h"

uint32_t grid_words[GRID_WORDS];

/* A grid of n entries of `inputs` digits of base `levels`; a number is the digit x, or top - x. */
static void expand(uint32_t *to, size_t n, const uint8_t *gaps, int inputs, unsigned levels, int top)
{
    unsigned code = 0;
    for (size_t i = 0; i < n; i++) {
        do
            code += *gaps;
        while (*gaps++ == 255);
        unsigned rest = code;
        for (int e = 0; e < inputs; e++, rest /= levels) {
            const unsigned x = rest % levels;
            to[i] |= (top ? (unsigned)top - x : x) << (16 * (e % 2) + 4 * (e / 2));
        }
    }
}

/* Before main, so that every thread finds the words. */
static void __attribute__((constructor)) expand_all(void)
{
    expand(grid_words + GRID_IQ2_XXS, 256, gaps_iq2_xxs, 8, 3, 2);
    expand(grid_words + GRID_IQ2_XS, 512, gaps_iq2_xs, 8, 3, 2);
    expand(grid_words + GRID_IQ2_S, 1024, gaps_iq2_s, 8, 3, 2);
    expand(grid_words + GRID_IQ3_XXS, 256, gaps_iq3_xxs, 4, 8, 7);
    expand(grid_words + GRID_IQ3_S, 512, gaps_iq3_s, 4, 8, 7);
    expand(grid_words + GRID_IQ1, 2048, gaps_iq1_s, 8, 3, 0);
}
