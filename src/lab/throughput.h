/* The throughput model of SPIRe (Neelam et al. 2025, section "Cost analysis" and appendix): the seconds of a
 * round on a machine that two numbers describe. It serves machines and models that the user does not have.
 * For a model on this machine measured seconds take the place of the two numbers (struct measured_rounds).
 *
 *     pass       max(operations / operations a second, bytes / bytes a second)
 *     round      draft passes * draft pass + verification pass
 *     speedup    tokens of a round * pass of one row / round
 *
 * The decision is the planner's: throughput_best() fills struct plan_input with modelled or measured
 * numbers and calls plan_round(), as the live planner does.
 *
 * A pass reads the weights once for all texts, and the cache of every text. Attention costs 4 operations for
 * each key, query head and head dimension. The paper's grids leave out attention and the LM head. */
#pragma once
#include "src/decode/draft.h"
#include "src/lab/forecast.h"

struct machine { double flops, bandwidth; };     /* a second: operations of products, bytes */

/* Seconds of a pass of `rows` rows for each of `texts` texts. n rows read the part 1 - (1 - share)^n of the
 * experts. */
double throughput_pass(const struct machine *m, const struct pass_cost *p, double texts, double rows);

/* What a drafter does in a round. */
struct drafting {
    const struct forecast *of;
    struct pass_cost pass;           /* of the mean draft pass */
    double tokens[PASSES_MAX + 1];   /* of a round with so many draft passes, from 0 on */
};

/* The chance c with 1 + c + c^2 + .. + c^passes = tokens; 1 <= tokens <= passes + 1. */
double throughput_chance(double tokens, size_t passes);
/* Fills d->tokens where only the tokens of a round with `passes` passes are known: the next token of the
 * drafted path is accepted with the same chance at each depth. */
void throughput_tokens(struct drafting *d, double tokens, size_t passes);

/* The seconds of a round of all texts: a round without drafts; with k draft passes, the draft passes together
 * and the verification pass with everything else. */
struct round_seconds { double plain, draft[PASSES_MAX + 1], pass[PASSES_MAX + 1]; };

struct throughput {
    size_t passes, rows;             /* draft passes; rows of the verification pass, for each text */
    double tokens, seconds, rate;    /* of a round, for each text; rate: tokens a second of all texts */
    double speedup;                  /* over passes of one row */
};
/* The best round of `texts` texts with this drafter: with at least one draft pass, and no more than pay. */
struct throughput throughput_best(const struct round_seconds *s, const struct drafting *draft, double texts);
/* The same on a machine of two numbers. */
struct throughput throughput_round(const struct machine *m, const struct pass_cost *target,
                                   const struct drafting *draft, double texts);

/* ---- measured costs ---- */

/* What passes and rounds of one model took on this machine, at two lengths of a text; length[0] < length[1].
 * src/lab/rounds.h measures them. The cost model of the live planner holds the passes, and its functions
 * price them: between the two lengths seconds are interpolated, beyond them they scale with the bytes that
 * are read. */
struct measured_rounds {
    size_t length[2];
    struct cost_model pass[2];
    double rest[2];                  /* of a round without drafts, beside its pass */
    /* Of each drafter: what a draft pass reads, and the seconds that a round with k draft passes takes beyond
     * the verification pass and `rest`. most: the largest k; 0: not measured. */
    struct { struct pass_cost reads; size_t most; double seconds[2][PASSES_MAX + 1]; } draft[N_DRAFTERS];
};
/* The seconds of rounds of `texts` texts of `length` tokens, with this drafting; w->of NULL: without
 * drafts. Draft passes that were not measured take as long for each byte as a pass of one row. */
void throughput_measured(struct round_seconds *s, const struct measured_rounds *m, enum drafter d,
                         const struct drafting *w, size_t length, size_t texts);

/* ---- the paper's grids ---- */

enum { SPIRE_GRIDS = 2, SPIRE_DRAFTS = 3, SPIRE_BATCHES = 8, SPIRE_LENGTHS = 9 };
extern const char *const spire_drafts[SPIRE_DRAFTS];         /* vanilla, magicdec, spire */
/* The modelled speedup of a cell: grid 0 is Figure 4 (67M, lengths 32 to 8,192), grid 1 is Figure 6 (Llama 3
 * 70B, lengths 4,096 to 1,048,576); batch 1 << b, length 32 << l or 4096 << l. */
double spire_speedup(size_t grid, size_t draft, size_t b, size_t l);
/* The published speedup, times 10,000. */
extern const uint16_t spire_golden[SPIRE_GRIDS][SPIRE_DRAFTS][SPIRE_BATCHES][SPIRE_LENGTHS];
