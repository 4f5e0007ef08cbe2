/* The sampler from within: for src/sample/sample.c, and for src/sample/device_sampler.c, which has the same chain run on a device. */
#pragma once
#include "src/sample/chain.h"
#include "src/sample/sample.h"
#include "src/sample/token_counts.h"
#include "src/sample/dry.h"

struct sampler {
    struct sampling p;
    struct history_digest past;
    struct token_counts counts;
    struct dry dry;
    struct chain chain;
    size_t bytes;
};

/* Whether EOS ids are banned behind h. */
bool sampler_bans_eos(const struct sampling *p, const struct history *h);
/* The lowest id that no parameter bans behind h: for a row where no candidate is left. */
int32_t sampler_lowest_allowed(struct sampler *s, const struct history *h);
/* The coin's position of a row of candidates behind h. */
uint64_t sampler_position(const struct history *h, uint32_t row);
