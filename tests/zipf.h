/* Random tokens with the frequencies of texts, the same on every machine. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>

static uint64_t rng = 1;
static inline size_t below(size_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((rng >> 33) * n >> 31);
}
/* Probability about 1/rank: few tokens make most of the text. */
static inline int32_t zipf(size_t kinds)
{
    return (int32_t)(pow((double)kinds + 1, (double)below(1 << 30) / (1 << 30)) - 1);
}
