/* The steps of the sampling chain on one row of logits. A filter keeps a prefix of the candidates in the
 * order (logit descending, id ascending). The survivors are therefore all logits >= `cut`, and only the few
 * candidates around a cut are ever sorted. Typical and XTC keep other sets: the logits of the tokens that
 * they remove become -inf. Weights are whole numbers (kernels/ops.h), so their sums do not depend on an
 * order.
 *
 * Banned candidates are -inf, filtered ones are below the cut. A candidate of logit -inf is never kept. If no
 * candidate is left, filters do nothing. */
#pragma once
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "src/sample/token_counts.h"
#include "src/sample/dry.h"

struct chain {
    const struct ops *ops;
    struct pool *pool;                 /* may be NULL */
    size_t vocab, few_max;             /* few_max: capacity of a short row */
    float *all;                        /* the caller's row, [vocab] */
    float *x; const uint32_t *ids; size_t n;   /* the row: `all` with ids NULL, or a short row of the few
                                                * survivors, ids ascending */
    float cut;                         /* candidates are x >= cut; -FLT_MAX: all but -inf */
    bool known; size_t top_at; float top;      /* the largest logit of the row and its index */
    float centre;                      /* selections order by distance from this logit; NAN: by logit */
    struct coin_key key;               /* the coins of this row's position */
    float *few_x; uint32_t *few_ids;   /* [few_max] */
    uint32_t *at;                      /* [vocab] work space of selections */
    uint64_t *hist;                    /* [SELECT_BUCKETS] */
};

size_t chain_bytes(size_t vocab);
/* memory[chain_bytes(vocab)] is 64-byte aligned and stays the caller's. */
void chain_open(struct chain *c, size_t vocab, const struct ops *ops, struct pool *pool, void *memory);
/* Begins with logits[vocab] of the position whose coins `key` names. The steps change the logits. */
void chain_start(struct chain *c, float *logits, const struct coin_key *key);

/* These steps change logits. Candidates that earlier filters removed stay removed. chain_bias also bans the
 * first n_banned ids of p->eos. */
void chain_bias(struct chain *c, const struct sampling *p, size_t n_banned);
void chain_penalties(struct chain *c, const struct sampling *p, const struct token_counts *counts);
void chain_dry(struct chain *c, const struct dry *dry);

/* A step that temperature 0 skips: whether the settings use it, and what it does then. */
struct chain_step {
    const char *name;                /* of its option */
    bool (*on)(const struct sampling *p);
    void (*apply)(struct chain *c, const struct sampling *p);
    bool on_gpu;                     /* kernels/cuda/cu_sample.cu has it, too */
};
/* In the order in which they run; ends with a step without a name. */
extern const struct chain_step chain_steps[];

/* The best candidate, lowest id on ties; -1 if none is left. */
int32_t chain_best(struct chain *c);
/* Ranks the at most k (1..RANK_MAX) best candidates by (logit - top) + noise of the row's coins, or by logit
 * without coins; lowest id first on ties. Returns their number. */
size_t chain_rank(struct chain *c, bool coins, size_t k, struct candidate *out);
