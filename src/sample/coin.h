/* The coin (docs/architecture.md, rule R2): random bits and Gumbel noise as a pure function of (seed, sample,
 * position, id).
 *
 * The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). The logarithm is longhand's own, so the noise has the same bits on every machine.
 *
 * A block has the counter {id / 2, sample, position low, position high} and the key {seed low, seed high}.
 * An even id takes outputs 0 (low half) and 1 (high half) as its word, an odd id outputs 2 and 3. */
#pragma once
#include "src/base/base.h"

void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Ids of coins that belong to no token: whether XTC acts at a position, and a uniform choice there. */
#define COIN_ID_XTC    (UINT32_MAX - 1)
#define COIN_ID_CHOICE UINT32_MAX

/* 64 random bits, and the Gumbel noise -log(-log(u)) made of them. */
uint64_t coin_word(uint64_t seed, uint32_t sample, uint64_t position, uint32_t id);
double   coin_gumbel(uint64_t word);

/* Natural logarithm of a finite x > 0, and log(1 + x) for -0.5 <= x <= 0; errors of at most 2 and 3 ulp. */
double log_own(double x);
double log1p_own(double x);
