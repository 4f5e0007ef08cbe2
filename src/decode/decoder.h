/* A decoder: one text in progress. The members of struct decoder are grouped by how long they live: settings,
 * which are known before the text is opened (the memory plan needs them); the state, which follows from the
 * tokens; and the round. Drafters read the decoder and keep nothing of it. decode.h opens one, draft.h is for
 * drafters. */
#pragma once
#include "src/decode/buffers.h"
#include "src/decode/calibrate.h"
#include "src/decode/draft_settings.h"
#include "src/decode/stats.h"
#include "src/sample/logprob.h"
#include "src/text/retake.h"

struct decode_setup {                /* how tokens are found, not which tokens */
    struct draft_settings draft;     /* all zero: plain decoding */
    void *weights[N_DRAFTERS];       /* of drafters; NULL: not open; borrowed, shared */
    const struct model *draft_model; /* the model in 8 bits; NULL: drafts use the model; borrowed, shared */
    /* Buffers that several decoders of the model share; borrowed. NULL: the decoder opens its own. */
    struct round_buffers *buffers;
    /* A cache of the model whose first `rows` rows are those of the text's first tokens: the decoder begins
     * with them (kv_open_from). total: where its cache is counted, and then others may share it; split: rows
     * that it has in common with another text (kvmgr/prefix.h). {0}: none. */
    struct { const struct kv *from; size_t rows; struct kv_total *total; size_t split; } start;
    bool cuts;                       /* the text may be cut back by more than a round (decode_cut) */
    size_t back;                     /* rows of rings that a cut takes back without reading; 0: RING_BACK */
    bool logprobs; size_t best;      /* compute log-probabilities of the tokens, and of the likeliest ones */
};

struct decoder {                     /* {0} is closed */
    /* ---- settings: as opened, with the drafters whose weights are open; no pointer in them is NULL ---- */
    struct decode_setup set;
    const struct model *model;       /* borrowed, shared */
    size_t n_prompt, n_max;          /* tokens: of the prompt; the most */
    size_t rows_max;                 /* of a verification pass */
    unsigned ask_model;              /* the drafters whose guesses come from a model; a bit each */
    /* what the planner may choose: a drafter that makes passes, and a setting of its cache */
    struct { const struct drafter_ops *ops; enum kv_policy policy; size_t budget; } cache[CACHES_MAX];
    size_t n_caches;
    double (*clock)(void);           /* seconds of drafting: clock_seconds, or simulated in tests */
    struct round_buffers own_buffers;        /* set.buffers, unless they are borrowed */

    /* ---- the state ---- */
    int32_t *tokens;                 /* [n_max]: prompt, then text */
    size_t n_tokens;
    struct kv kv;
    struct device_sampler *sampler;  /* samples tokens where the logits are */
    /* what a drafter keeps for the text (struct drafter_ops, state and memory) */
    void *own[N_DRAFTERS]; float *floats[N_DRAFTERS];
    size_t current_cache;            /* index of the partial cache's present settings */
    /* the device's [hidden]: the model's residual in the last draft pass, where heads want it; or NULL */
    float *pass_hidden;
    /* The rows first .. first + n_rows - 1 of the text, committed last, and what their pass left of them, the
     * residual before the final norm: of row i the device's hidden + row[i] * [hidden], or row i where `row`
     * is NULL. n_rows 0: the text was rebuilt from tokens alone. */
    struct { size_t first, n_rows; const float *hidden; const uint32_t *row; } committed;
    struct calibration calibration;
    struct planner planner;
    /* The tokens that cannot follow the text while it has `at` tokens (src/text/retake.h). n 0: none. */
    struct { size_t at, n; int32_t id[FORBIDDEN_MAX]; } forbidden;
    struct draft_stats stats;        /* of the rounds that decode_add_stats has added */
    /* prefills: rows that the cache had from the start; what was read since */
    struct { size_t begun, prefill_tokens; double prefill_seconds; } count;

    /* ---- the round in hand, or the last one ---- */
    struct round round;
    struct logprob *logprobs;        /* of its tokens: [round.tokens][1 + set.best]; NULL: none wanted */
    float *row;                      /* [vocab]: logits before sampling, which overwrites them */
};
