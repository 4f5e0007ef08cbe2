/* The inside of the sampler: for src/sample/sample.c, and for src/sample/device_sampler.c, which runs the
 * same chain on a device. */
#pragma once
#include "src/sample/chain.h"
#include "src/sample/sample.h"
#include "src/sample/token_counts.h"
#include "src/sample/dry.h"

struct sampler {
    struct sampling p;
    struct history_digest seen;
    struct token_counts counts;
    struct dry dry;
    struct chain chain;
    size_t bytes;
};

/* How many of the ids that end a text are banned after h: of eos, then stop ids. */
size_t sampler_banned_ends(const struct sampling *p, const struct history *h);
/* The lowest id that no parameter bans after h: the token of a row without a candidate. */
int32_t sampler_lowest_allowed(struct sampler *s, const struct history *h);
/* The coin's position of a candidate row after h. */
uint64_t sampler_position(const struct history *h, uint32_t row);
