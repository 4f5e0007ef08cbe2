/* Tokens from logits that lie on a device: one interface for every device. Where the host can read the device's memory the sampler chooses there,
 * row by row when asked. Elsewhere the device chooses, for all rows in one launch, and ids and scores alone cross to the host; the
 * sampler's tables say what stands before each row (what its path changes in the counts of the penalties, what DRY found, bans). The
 * tokens are the same: the device's operation equals the sampler for equal logits (tests/test_device_choose.c).
 *
 * Every setting of the sampler goes this way, the published verifier's coins too: logits never cross. Ids of biases must be distinct on a device
 * that is not the host's (the command line sees to it). */
#pragma once
#include "src/model/model.h"
#include "src/sample/sample.h"

struct chooser;                      /* of one decoder */

/* Host memory it takes, and the device's where that is not the host's, with any settings but for 16 bytes a bias; rows: of a tree at most. */
size_t chooser_bytes(const struct model *m, size_t rows);
size_t chooser_device_bytes(const struct model *m, size_t rows);
int chooser_open(struct chooser **c, const struct model *m, const struct sampling *p, size_t rows,
                 struct err *e);
void chooser_close(struct chooser *c);

/* In all of the following `logits` are the device's [..][vocab], and a device that fails says so in its `error`: what comes back is then worth nothing.
 *
 * The tree whose rows will be asked for next: node i has row i of the logits, stands below node parent[i] < i (-1: none) and carries token[i];
 * the root, node 0, is the last token of `text`, which has no path. */
void chooser_tree(struct chooser *c, const float *logits, const struct history *text, size_t n,
                  const int32_t *parent, const int32_t *token);
/* The target's own token behind node i, which h's path leads to. Once for each node: the row may be overwritten. */
int32_t chooser_at(struct chooser *c, float *logits, size_t i, const struct history *h);
/* The same with the coins of a candidate row of the published verifier, which asks for a node again and again (sampler_choose_row). */
int32_t chooser_at_row(struct chooser *c, const float *logits, size_t i, const struct history *h,
                       uint32_t row);
/* sampler_rank of one row of logits (kept) behind each of n <= CHOOSER_RANKS histories, which differ in their paths: best [n][k], found [n]. */
enum { CHOOSER_RANKS = 16 };
void chooser_rank(struct chooser *c, const float *logits, const struct history *h, size_t n, size_t k,
                  struct candidate *best, size_t *found);

/* For what needs no logits: sampler_bans, sampler_pick. */
struct sampler *chooser_sampler(const struct chooser *c);
