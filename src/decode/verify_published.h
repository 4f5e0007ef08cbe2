/* The verifier as TokenSwift published it: Algorithm 1, lines 12 and 13. Every candidate row of the tree
 * draws its own samples, and the longest match wins. Its text differs from that of plain decoding, so it
 * exists only for comparison (--verifier paper). Elsewhere are only the flag in the option table and in a
 * job, the field in the settings, the call in the decoder's accept(), and the coins of a candidate row in
 * the sampler. */
#pragma once
#include "src/decode/draft_settings.h"
#include "src/decode/tree.h"
#include "src/sample/device_sampler.h"

static inline bool verify_published(const struct draft_settings *s) { return s->verifier == VERIFY_PAPER; }

/* Settings that the published verifier supports: a fixed tree, of which every candidate is verified. */
int verify_published_check(const struct draft_settings *s, struct err *e);
/* An error for a job whose text has to be the model's own. */
int verify_published_refuse(const struct draft_settings *s, long long job, struct err *e);
/* What users of the published verifier are told. */
extern const char verify_published_warning[];

/* Independent samples in every candidate row; the longest match wins, at random among equals. path: kept
 * nodes, the root first; *bonus: the sample after them. Returns the length of path. Every candidate row is
 * kept (asserted). */
size_t verify_published_accept(const struct tree *t, const struct history *text,
                               struct device_sampler *sampler, const float *logits, uint32_t *path,
                               int32_t *bonus);
