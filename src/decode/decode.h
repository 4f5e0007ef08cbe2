/* A decoder: one text in progress.
 *
 *     decode_open(&d, &model, &sampling, &setup, prompt, n_prompt, n_max, &e)
 *     decode_prefill(&d, ...)               the cache follows the tokens but for the last one
 *     while (...) decode_step(&d, &e)       one round: 1 or more tokens behind tokens[n_tokens - 1]
 *     decode_close(&d)
 *
 * The token list is the run: everything else here (cache, sampler's tables, what drafters know) follows from
 * it and the parameters. Between steps kv.n_past == n_tokens - 1: the last token is the root of the next
 * round, whose row is written by the pass that also gives its logits. Nothing is allocated after decode_open.
 *
 * Words. root: the last token, not yet in the cache. node: a candidate behind it. path: the nodes that the
 * target's own samples agree with. bonus: the sample behind the path. committed: in `tokens`.
 *
 * With the exact verifier the tokens do not depend on drafting at all (DESIGN R1, R2). VERIFY_PAPER is
 * Algorithm 1, lines 12 and 13, as published: every candidate row draws its own samples, the longest match
 * wins; its text is not plain decoding's. */
#pragma once
#include "src/decode/draft.h"
#include "src/decode/stats.h"
#include "src/model/memory_plan.h"
#include "src/model/model.h"
#include "src/sample/device_sampler.h"
#include "src/sample/sample.h"

enum { PREFILL_ROWS = 256, BATCH_MAX = 16 };

struct decode_setup {                /* how tokens are found; not which */
    struct draft_settings draft;     /* all zero: plain decoding */
    const struct heads *heads;       /* or NULL; borrowed, shared */
    const struct model *small;       /* or NULL: drafts ask the model itself; borrowed, shared */
};

struct decode_counters {             /* of this process */
    size_t prefill_tokens;
    double prefill_seconds;
};

struct decoder {                     /* {0} is closed */
    const struct model *model;       /* borrowed, shared */
    struct kv kv;
    struct workspace *work;
    struct device_sampler *sampler;         /* which token comes next: the sampler, where the logits are */
    int32_t *tokens;                 /* [n_max]: prompt, then text */
    size_t n_tokens, n_prompt, n_max;
    size_t rows_max;                 /* of a verification pass */
    float *logits;                   /* the device's [rows_max][vocab] */
    size_t logits_bytes;
    struct drafting draft;
    /* the last one; its user adds it to the statistics with the tokens that count */
    struct round_stats round;
    struct draft_stats stats;
    struct decode_counters count;
};

/* What a decoder takes besides weights, KV cache, workspace and logits, item by item. */
void decode_plan(struct memory_plan *plan, const struct decode_setup *setup, const struct model *m,
                 size_t n_max);
/* Rows of a workspace; of a verification pass, whose nodes and logits take memory. */
size_t decode_work_rows(const struct decode_setup *setup, size_t n_max);
size_t decode_verify_rows(const struct decode_setup *setup);

/* A text that begins with prompt[0..n_prompt) (copied, n_prompt >= 1) and will have at most n_max tokens.
 * setup NULL: plain. */
int decode_open(struct decoder *d, const struct model *m, const struct sampling *p,
                const struct decode_setup *setup, const int32_t *prompt, size_t n_prompt, size_t n_max,
                struct err *e);
void decode_close(struct decoder *d);

/* The n tokens (in the vocabulary) that a text already has, behind those that are there; before
 * decode_prefill. They fit n_max (asserted). */
void decode_append(struct decoder *d, const int32_t *ids, size_t n);

/* Called after every chunk with the tokens done; false stops. */
typedef bool decode_progress(void *ctx, size_t done, size_t of);
/* Bring the cache up to the token before the last. 1 when `progress` stopped it: calling again goes on. */
int decode_prefill(struct decoder *d, decode_progress *progress, void *ctx, struct err *e);

/* One round: appends 1 or more tokens. n_tokens < n_max (asserted). On failure nothing is appended. */
int decode_step(struct decoder *d, struct err *e);
/* The same for several decoders of one model, in one pass: their rows together and the longest of them fit
 * the first one's workspace (asserted). */
int decode_round(struct decoder *const *d, size_t n, struct err *e);
/* Of the last round's tokens the first `tokens` are part of the text (all but in the last round): into the
 * statistics. */
void decode_count(struct decoder *d, size_t tokens);

/* Go back to the first n tokens, to write on with other parameters (another sample number, say). Statistics
 * begin again. */
int decode_restart(struct decoder *d, size_t n, const struct sampling *p, struct err *e);
