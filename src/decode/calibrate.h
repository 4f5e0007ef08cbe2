/* How often guesses of a kind come true: online counts, one cell per kind of guess and what is known of it. A
 * cell's estimate is (hits + prior) / (trials + prior weight); old counts fade, so that it follows the text.
 * */
#pragma once
#include "src/decode/tree.h"

enum guess {                         /* what a guess was made of */
    GUESS_VERIFIED,                  /* heads on the hidden state of the verified row */
    GUESS_PASS,                      /* the model itself over the partial cache */
    GUESS_AHEAD,                     /* heads on the hidden state of a draft pass */
    GUESS_NGRAM, GUESS_SUFFIX, GUESS_ADDED, N_GUESSES,
};
enum { NGRAM_CELLS = 32 };           /* of one place in a 4-gram, whatever its rank and frequency */
enum { CELLS_PER_GUESS = 128, CELLS = N_GUESSES * CELLS_PER_GUESS };

struct calibration { struct { float trials, hits; } cell[CELLS]; };

void calibrate_start(struct calibration *c);
/* Cells. Of a ranked candidate: tokens between the hidden state and the guess, and how far its score is above
 * the next one (rank 0) or below the best (others: negative). Of a 4-gram: its place among the continuations,
 * its frequency, and 0..2. Of a match: its length and 0.. . */
uint16_t cell_ranked(enum guess kind, size_t ahead, double lead);
uint16_t cell_ngram(size_t rank, uint32_t frequency, size_t i);
uint16_t cell_suffix(size_t match, size_t i);
/* Whether a ranked candidate's cell is that of a first choice. */
bool cell_is_first(uint16_t cell);
float calibrate_p(const struct calibration *c, uint16_t cell);
/* The largest of n cells from this one on. */
float calibrate_most(const struct calibration *c, uint16_t cell, size_t n);
/* The target's sample behind a node is known: every candidate behind it was right or wrong. */
void calibrate_learn(struct calibration *c, const struct tree *t, uint32_t node, int32_t sample);
