/* Sampling from logits that lie on a device, with the same interface for every device. If the host can read
 * the device's memory, the host's sampler samples row by row, on demand. Otherwise the device samples all
 * rows in one launch, and only ids and scores come to the host. The sampler's tables then tell the device
 * what precedes each row: the path's changes to the penalty counts, the tokens that DRY found, the bans. Both
 * ways give the same tokens: for equal logits the device's operation equals the sampler
 * (tests/kernels/cuda/test_device_sample.c).
 *
 * Every setting of the sampler works this way, the published verifier's coins too. Logits are never copied
 * to the host. On a device with its own memory the ids of biases must be distinct; the command line
 * ensures that. */
#pragma once
#include "src/model/model.h"
#include "src/sample/sample.h"

struct device_sampler;               /* of one decoder */

/* The host memory, and the device memory (0 if that is the host's), of a sampler with any settings,
 * without 16 bytes for each bias. rows: the most rows of a tree. */
size_t device_sampler_bytes(const struct model *m, size_t rows);
size_t device_sampler_device_bytes(const struct model *m, size_t rows);
int device_sampler_open(struct device_sampler **c, const struct model *m, const struct sampling *p,
                        size_t rows, struct err *e);
void device_sampler_close(struct device_sampler *c);

/* In all functions below `logits` are the device's [..][vocab]. A failure shows in the device's `error`; the
 * results are then undefined. */

/* Announces the tree whose rows will be sampled next. Node i has row i of the logits, is a child of node
 * parent[i] < i (-1: none) and carries token[i]. The root, node 0, is the last token of `text`, which has no
 * path. */
void device_sampler_set_tree(struct device_sampler *c, const float *logits, const struct history *text,
                             size_t n, const int32_t *parent, const int32_t *token);
/* The target's own token after node i; the path of h leads to that node. Only once for each node: the row
 * may be overwritten. */
int32_t device_sampler_token(struct device_sampler *c, float *logits, size_t i, const struct history *h);
/* The token with the coins of a candidate row of the published verifier (sampler_sample_row). May be
 * called for a node again and again. */
int32_t device_sampler_token_row(struct device_sampler *c, const float *logits, size_t i,
                                 const struct history *h, uint32_t row);
/* sampler_rank of one row of logits (kept) after each of n <= DEVICE_SAMPLER_RANKS histories that differ
 * in their paths: best [n][k], found [n]. */
enum { DEVICE_SAMPLER_RANKS = 16 };
void device_sampler_rank(struct device_sampler *c, const float *logits, const struct history *h, size_t n,
                         size_t k, struct candidate *best, size_t *found);

/* The host's sampler, for questions that need no logits: sampler_bans, sampler_random_below. */
struct sampler *device_sampler_host(const struct device_sampler *c);
