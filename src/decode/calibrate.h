/* How often guesses come true: counts in cells, one for each kind of guess and each class of its rank, score
 * or frequency. The cells of a drafter are DRAFTER_NAME * CELLS_PER_GUESS + i. The estimate of a cell is
 * (hits + prior) / (trials + prior weight). Old counts fade, so estimates follow the text. */
#pragma once
#include "src/decode/tree.h"

enum {
    GUESS_AHEAD = N_DRAFTERS,        /* heads on a draft pass; other kinds are the drafters' numbers */
    N_GUESSES,
    NGRAM_CELLS = 32,                /* cells of one place in a 4-gram, over all ranks and frequencies */
    CELLS_PER_GUESS = 128, CELLS = N_GUESSES * CELLS_PER_GUESS
};

struct calibration { struct { float trials, hits; } cell[CELLS]; };

/* The cells of a kind of guess have seen none. prior: the chance of a guess in cell i of the kind; NULL: one
 * half. */
void calibrate_start(struct calibration *c, size_t kind, double (*prior)(size_t i));
/* The prior of a ranked guess: of the cell's lead alone, times `fade` for each token between what the guess
 * knows of the model and the guess, and once more. */
double calibrate_ranked(size_t i, double fade);
/* The cell of a guess. Ranked: the tokens between what the guess knows of the model and the guess, and its
 * lead: how far the score of rank 0 is above the next score, or how far that of another rank is below the
 * best (negative). 4-gram: its rank among the continuations, its frequency, and the place 0..2. Match: its
 * length, and the place. */
uint16_t cell_ranked(size_t kind, size_t ahead, double lead);
uint16_t cell_ngram(size_t rank, uint32_t frequency, size_t i);
uint16_t cell_suffix(size_t match, size_t i);
/* Whether the cell of a ranked candidate belongs to rank 0. */
bool cell_is_first(uint16_t cell);
float calibrate_p(const struct calibration *c, uint16_t cell);
/* The largest estimate of n cells, `cell` being the first. */
float calibrate_most(const struct calibration *c, uint16_t cell, size_t n);
/* The target sampled `sample` after a node: counts the hits and misses of the candidates there. */
void calibrate_learn(struct calibration *c, const struct tree *t, uint32_t node, int32_t sample);
