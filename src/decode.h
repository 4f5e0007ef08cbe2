/* A decoder: one text in progress.
 *
 *     decode_open(&d, &model, &sampling, prompt, n_prompt, n_max, rows, &e)
 *     decode_prefill(&d, ...)               the cache follows the tokens but for the last one
 *     while (...) decode_step(&d, &e)       one round: 1 or more tokens behind tokens[n_tokens - 1]
 *     decode_close(&d)
 *
 * The token list is the run: everything else here (cache, sampler's tables) follows from it and the
 * parameters. Between steps kv.n_past == n_tokens - 1: the last token is the root of the next round, whose
 * row is written by the pass that also gives its logits. Nothing is allocated after decode_open.
 *
 * Words. root: the last token, not yet in the cache. node: a candidate behind it. path: the nodes that the
 * target's own samples agree with. bonus: the sample behind the path. committed: in `tokens`. */
#pragma once
#include "src/model.h"
#include "src/sample.h"

enum { PREFILL_ROWS = 256 };

struct decode_counters {             /* of this process; cut at the end of the text by whoever reports */
    size_t rounds, prefill_tokens;
    double prefill_seconds, step_seconds;
};

struct decoder {                     /* {0} is closed */
    const struct model *model;       /* borrowed, shared */
    struct kv kv;
    struct workspace *work;
    struct sampler *sampler;
    int32_t *tokens;                 /* [n_max]: prompt, then text */
    size_t n_tokens, n_prompt, n_max;
    float *logits;                   /* [vocab] */
    size_t logits_bytes;
    struct decode_counters count;
};

/* Bytes besides weights, KV cache, workspace and logits: tokens and sampler. */
size_t decode_bytes(size_t n_max, size_t vocab);

/* A text that begins with prompt[0..n_prompt) (copied, n_prompt >= 1) and will have at most n_max tokens. */
int  decode_open(struct decoder *d, const struct model *m, const struct sampling *p, const int32_t *prompt, size_t n_prompt,
                 size_t n_max, struct err *e);
void decode_close(struct decoder *d);

/* Called after every chunk with the tokens done; false stops. */
typedef bool decode_progress(void *ctx, size_t done, size_t of);
/* Bring the cache up to the token before the last. 1 when `progress` stopped it: calling again goes on. */
int decode_prefill(struct decoder *d, decode_progress *progress, void *ctx, struct err *e);

/* One round: appends 1 or more tokens. n_tokens < n_max (asserted). On failure nothing is appended. */
int decode_step(struct decoder *d, struct err *e);

/* Go back to the first n tokens, to write on with other parameters (another sample number, say). */
int decode_restart(struct decoder *d, size_t n, const struct sampling *p, struct err *e);
