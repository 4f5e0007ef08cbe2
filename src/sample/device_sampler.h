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

struct device_sampler;                      /* of one decoder */

/* Host memory it takes, and the device's where that is not the host's, with any settings but for 16 bytes a bias; rows: of a tree at most. */
size_t device_sampler_bytes(const struct model *m, size_t rows);
size_t device_sampler_device_bytes(const struct model *m, size_t rows);
int device_sampler_open(struct device_sampler **c, const struct model *m, const struct sampling *p, size_t rows,
                 struct err *e);
void device_sampler_close(struct device_sampler *c);

/* In all of the following `logits` are the device's [..][vocab], and a device that fails says so in its `error`: what comes back is then worth nothing.
 *
 * The tree whose rows will be asked for next: node i has row i of the logits, stands below node parent[i] < i (-1: none) and carries token[i];
 * the root, node 0, is the last token of `text`, which has no path. */
void device_sampler_set_tree(struct device_sampler *c, const float *logits, const struct history *text, size_t n,
                  const int32_t *parent, const int32_t *token);
/* The target's own token behind node i, which h's path leads to. Once for each node: the row may be overwritten. */
int32_t device_sampler_token(struct device_sampler *c, float *logits, size_t i, const struct history *h);
/* The same with the coins of a candidate row of the published verifier, which asks for a node again and again (sampler_sample_row). */
int32_t device_sampler_token_row(struct device_sampler *c, const float *logits, size_t i, const struct history *h,
                       uint32_t row);
/* sampler_rank of one row of logits (kept) behind each of n <= DEVICE_SAMPLER_RANKS histories, which differ in their paths: best [n][k], found [n]. */
enum { DEVICE_SAMPLER_RANKS = 16 };
void device_sampler_rank(struct device_sampler *c, const float *logits, const struct history *h, size_t n, size_t k,
                  struct candidate *best, size_t *found);

/* For what needs no logits: sampler_bans, sampler_random_below. */
struct sampler *device_sampler_host(const struct device_sampler *c);
