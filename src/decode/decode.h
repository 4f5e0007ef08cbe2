/* A decoder: one text in progress.
 *
 *     decode_open(&d, &model, &sampling, &setup, prompt, n_prompt, n_max, &e)
 *     decode_prefill(&d, ...)               reads the text: the cache holds every token but the last
 *     while (...) decode_step(&d, &e)       one round: appends one or more tokens
 *     decode_close(&d)
 *
 * The token list is the whole state of a text: the cache, the sampler's tables and the state of the drafters
 * follow from the tokens and the parameters. Between rounds kv.n_past == n_tokens - 1: the last token is the
 * root of the next round, and the pass that computes its logits also writes its row of the cache. Only
 * decode_open allocates memory.
 *
 * Words. Target: the model that verifies, as opposed to drafts of it. Root: the last token, which is not yet
 * in the cache. Node: the root, or a candidate. Path: the root and the candidates that the target's own
 * samples agree with. Bonus: the sample after the path. Committed: in `tokens`.
 *
 * With the exact verifier the tokens do not depend on drafting (docs/architecture.md, rules R1 and R2). With
 * the published verifier (verify_published.h) they do. */
#pragma once
#include "src/decode/draft.h"

enum { PREFILL_ROWS = 256, SLICE_ROWS = 32 };

/* Adds the memory of a decoder to the plan, item by item, without weights, KV cache, workspace and logits. */
void decode_plan(struct memory_plan *plan, const struct decode_setup *setup, const struct model *m,
                 size_t n_max);
/* The most rows of any pass; draft_rows: of a verification pass, whose nodes and logits take memory. */
size_t decode_work_rows(const struct draft_settings *s, size_t n_max);

/* Opens a text that begins with prompt[0..n_prompt) (copied, n_prompt >= 1) and will have at most n_max
 * tokens. setup NULL: plain decoding. */
int decode_open(struct decoder *d, const struct model *m, const struct sampling *p,
                const struct decode_setup *setup, const int32_t *prompt, size_t n_prompt, size_t n_max,
                struct err *e);
void decode_close(struct decoder *d);
/* Closes the decoder except its cache and its tokens, which the caller closes (kv_close, free). */
void decode_close_but(struct decoder *d, struct kv *kv, int32_t **tokens);

/* Appends n tokens that the text already has (resumed jobs); before decode_prefill. Asserts that they fit
 * n_max. */
void decode_append(struct decoder *d, const int32_t *ids, size_t n);

/* Called after every chunk with the number of tokens read. Returning false stops the prefill. */
typedef bool decode_progress(void *ctx, size_t done, size_t of);
/* Reads the text up to the token before the last one. Returns 1 when `progress` stopped it, or before a pass
 * that would end later than `seconds` from now; a further call continues. seconds 0: no limit. A call with a
 * limit makes at least one pass. Its passes have at least SLICE_ROWS rows, and as many as the last one over
 * these buffers allows, of this text or of another. */
int decode_prefill(struct decoder *d, double seconds, decode_progress *progress, void *ctx, struct err *e);

/* One round: appends one or more tokens. Asserts n_tokens < n_max. A failure appends nothing. */
int decode_step(struct decoder *d, struct err *e);
/* One round of n <= BATCH_MAX decoders of one model that share their buffers (asserted). One pass verifies
 * all of them, or several passes if the buffers have no room for all rows. Returns 0 if every decoder
 * appended tokens. -1: *e is the error of one decoder; every decoder with round.failed set appended nothing,
 * and the others appended their tokens. A failure of the device fails all decoders. */
int decode_round(struct decoder *const *d, size_t n, struct err *e);
/* Adds the last round to d->stats. `tokens` is how many of the round's tokens belong to the text: all of
 * them, except in the round in which the text ends. */
void decode_add_stats(struct decoder *d, size_t tokens);

/* Cuts the text back to its first n tokens, n may be n_tokens, and forbids tokens there: none of them is the
 * next one. Caches and indexes stand as if the cut tokens had never been; calibration, planner and statistics
 * stay. The device has host_memory (asserted), and the cache shares no row from n - 1 on. The cache of a
 * model with states may lose more rows than that (kv_truncate): decode_prefill reads them before the next
 * round. */
void decode_cut(struct decoder *d, size_t n, const int32_t *forbidden, size_t n_forbidden);
/* Goes back to the first n tokens, to continue with other parameters such as another sample number. Clears
 * the statistics. */
int decode_restart(struct decoder *d, size_t n, const struct sampling *p, struct err *e);
