/* Calibration cells (calibrate.h): their priors, their estimates, and counting. Start reading at
 * calibrate_learn(). */
#include "src/decode/calibrate.h"

#include <math.h>

enum { PRIOR_WEIGHT = 6, FADE_AT = 400 };

double calibrate_ranked(size_t i, double fade)
{
    /* buckets 8..15: rank 0, ahead of the next score by (lead - 8) / 2 */
    const size_t ahead = i / 16, lead = i % 16;
    const double p =
        lead >= 8 ? 0.95 - 0.6 * exp(-0.35 * (double)(lead - 8)) : 0.3 * exp(-0.6 * (double)(7 - lead));
    return p * pow(fade, (double)ahead + 1);
}

void calibrate_start(struct calibration *c, size_t kind, double (*prior)(size_t i))
{
    for (size_t i = 0; i < CELLS_PER_GUESS; i++) {
        const double p = prior ? prior(i) : 0.5;
        c->cell[kind * CELLS_PER_GUESS + i].trials = PRIOR_WEIGHT;
        c->cell[kind * CELLS_PER_GUESS + i].hits = PRIOR_WEIGHT * (float)(p > 0.95 ? 0.95 : p);
    }
}

uint16_t cell_ranked(size_t kind, size_t ahead, double lead)
{
    double halves = lead * 2;
    int bucket = halves >= 0 ? 8 + (int)MIN(halves, 7) : 7 - (int)MIN(-halves, 7);
    return (uint16_t)(kind * CELLS_PER_GUESS + MIN(ahead, (size_t)7) * 16 + (size_t)bucket);
}

bool cell_is_first(uint16_t cell) { return cell % 16 >= 8; }

static size_t log2_up_to(size_t x, size_t most)
{
    size_t n = 0;
    while (x >>= 1)
        n++;
    return MIN(n, most);
}

uint16_t cell_ngram(size_t rank, uint32_t frequency, size_t i)
{
    size_t r = rank < 2 ? rank : rank < 4 ? 2 : 3;
    return (uint16_t)(DRAFTER_NGRAM * CELLS_PER_GUESS + i * NGRAM_CELLS + r * 8 + log2_up_to(frequency, 7));
}

uint16_t cell_suffix(size_t match, size_t i)
{
    size_t m = match <= 4 ? match : match <= 6 ? 5 : match <= 9 ? 6 : match <= 12 ? 7 : match <= 15 ? 8 : 9;
    return (uint16_t)(DRAFTER_SUFFIX * CELLS_PER_GUESS + m * 8 + MIN(i, (size_t)7));
}

float calibrate_p(const struct calibration *c, uint16_t cell)
{
    assert(cell < CELLS);
    return c->cell[cell].hits / c->cell[cell].trials;
}

float calibrate_most(const struct calibration *c, uint16_t cell, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = MAX(most, calibrate_p(c, (uint16_t)(cell + i)));
    return most;
}

static void learn(struct calibration *c, uint16_t cell, bool hit)
{
    c->cell[cell].trials += 1;
    c->cell[cell].hits += hit;
    if (c->cell[cell].trials >= FADE_AT) {
        c->cell[cell].trials /= 2;
        c->cell[cell].hits /= 2;
    }
}

void calibrate_learn(struct calibration *c, const struct tree *t, uint32_t node, int32_t sample)
{
    for (uint32_t i = t->node[node].first; i; i = t->node[i].next)
        for (size_t s = 0; s < N_DRAFTERS; s++)
            if (t->node[i].sources >> s & 1)
                learn(c, t->node[i].cell[s], t->node[i].token == sample);
}
