/* The coin of R2, below src/sample/sample.h: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011) and a logarithm of our own, so that the noise has the same bits on every machine.
 *
 * A block has the counter {id / 2, sample, position low, position high} and the key {seed low, seed high}. An even id
 * takes outputs 0 (low half) and 1 (high half) as its word, an odd id outputs 2 and 3. */
#pragma once
#include "src/base/base.h"

void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Natural logarithm of a finite x > 0, and log(1 + x) for -0.5 <= x <= 0; within 2 and 3 ulp. */
double log_own(double x);
double log1p_own(double x);
