/* The two steps of config_rope, apart for its tests. rope_powers computes theta^(2i/head_dim), which
 * libraries round differently. rope_frequencies computes everything after the powers and is exact. Both
 * arrays are [head_dim/2]. */
#pragma once
#include "src/model/config.h"

void rope_powers(const struct config *c, float *power);
void rope_frequencies(const struct config *c, const float *power, float *inv_freq, float *attention_factor);
