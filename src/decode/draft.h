/* Drafting: what a decoder proposes before a pass verifies it. Nothing here can change the text (DESIGN R1,
 * R2); it only decides how many tokens a pass yields.
 *
 * A drafter is a table of functions (struct drafter_ops) over its own state. It sees the tree of the round,
 * adds scored candidates to it, and observes what was committed. Four come with longhand:
 *
 *     heads     the model's drafting heads on the hidden state of the last verified row: no pass of their own
 *     partial   draft passes of the full model over the partial cache; its own next token, and the heads behind it (TokenSwift)
 *     ngram     the table of 4-grams of prompt and text (TokenSwift's token reutilization)
 *     suffix    the continuation of the longest earlier match of the end of the text
 *
 * Draft logits go through the target's chain of penalties and filters with the window of the node's own path,
 * and candidates are ranked with the coin of the position that they are for, so that at any temperature the
 * likeliest guess is what the target would sample if its logits were the draft's. */
#pragma once
#include "kvmgr/partial.h"
#include "ngram/ngram.h"
#include "ngram/suffix.h"
#include "src/decode/calibrate.h"
#include "src/decode/planner.h"
#include "src/decode/tree.h"
#include "src/model/heads.h"
#include "src/sample/device_sampler.h"

enum { TREE_WIDTHS_MAX = 16, NGRAM_K_MAX = 32, DRAFT_PASSES_MAX = PARTIAL_ROWS_MAX };
/* the first choice at depth 1 (the root when there is none), every candidate at depth 1, the root */
enum ngram_lead { LEAD_FIRST, LEAD_ALL, LEAD_ROOT };
enum verifier { VERIFY_EXACT, VERIFY_PAPER };
/* the model in 8 bits, where it can be had (draft_wants_int8); the model itself */
enum draft_weights { WEIGHTS_INT8, WEIGHTS_MODEL };

struct draft_settings {              /* recorded with a job; all zero: plain decoding */
    unsigned drafters;               /* bit per enum source */
    /* --tree: candidates at each depth; n_width > 0 turns the controller off: every candidate is verified */
    size_t width[TREE_WIDTHS_MAX], n_width;
    size_t ngram_k;                  /* continuations of a leading token */
    enum ngram_lead ngram_lead;
    /* tokens that a 4-gram waits before it enters; -1: until it has left the penalty window, if a penalty is
     * on */
    long ngram_delay;
    long draft_passes;               /* of a round; -1: the controller's choice (1 where it is off) */
    enum kv_policy kv_policy;
    /* not fixed: the controller may take less than kv_budget, and under KV_AUTO dynamic or what selects
     * nothing: mean, on a device window */
    size_t kv_sinks, kv_budget; bool kv_fixed;
    enum draft_weights weights;      /* what draft passes and heads ask */
    /* nodes of a verification pass at most; 0: as the tree needs, or ROWS_AUTO */
    size_t rows_max;
    enum verifier verifier;
    /* SOURCE_ADDED: most rows of its proposals, and its settings */
    size_t added_rows;
    const void *added;
};
enum { ROWS_AUTO = 48 };

/* auto: every drafter but `heads` and an added one, controller on */
void draft_defaults(struct draft_settings *s);
/* Ranges, as the flags name them. */
int  draft_check(const struct draft_settings *s, struct err *e);
int  draft_check_device(const struct draft_settings *s, const struct device *dev, struct err *e);
/* Whether the model is worth having in 8 bits: there are drafts that ask it, on a device that has such
 * products. Not under VERIFY_PAPER, whose text is drawn towards the candidates: it may not depend on how much
 * memory there is. */
bool draft_wants_int8(const struct draft_settings *s, const struct device *dev);
/* Rows of the largest verification pass. */
size_t draft_rows(const struct draft_settings *s);

/* What drafters share. Owned by a decoder; everything it needs is taken when it opens. */
struct drafting {
    struct draft_settings set;
    const struct model *model;       /* borrowed, as the next five */
    const struct model *small;       /* what draft passes and heads ask: the model in 8 bits, or itself */
    const struct heads *heads;       /* or NULL */
    struct kv *kv;
    struct workspace *work;
    struct device_sampler *sampler;
    const int32_t *tokens; size_t n_tokens, n_prompt;      /* the text of this round */
    struct tree *tree;
    struct calibration calibration;
    float min_reach;                 /* candidates less likely than this would be trimmed anyway */
    /* this round those that the text itself proposes are looked at, however unlikely: so one learns how
     * likely they are */
    bool looks;
    bool have_hidden;
    /* the device's [hidden]: residual of the last committed row, before the final norm */
    float *hidden;
    float *logits;                   /* the device's [(1 + HEADS_MAX)][vocab] of a draft */
    void *heads_scratch;             /* the device's */
    struct partial partial;
    struct planner planner;
    double (*clock)(void);           /* seconds: clock_seconds, or simulated in tests */
    /* what the planner may choose, by budget */
    struct { enum kv_policy policy; size_t budget; } cache[CACHES_MAX];
    size_t n_caches, at_cache;       /* at_cache: what the partial cache is now */
    size_t passes;                   /* draft passes of this round */
    double planning;                 /* seconds of it in the planner */
    uint32_t pass_node;              /* the node that the last one stood at */
    float *pass_hidden;              /* the device's [hidden], of the last draft pass */
    struct ngram *ngram; size_t ngram_delay;
    struct suffix *suffix;
    size_t bytes, hidden_bytes, logits_bytes, heads_bytes;
};

/* Rows that were committed, with what the pass left of them. */
struct observed {
    size_t n_tokens;                 /* of g->tokens, the bonus token included */
    /* the device's [hidden] of the last committed row, or NULL (rebuilt from tokens alone) */
    const float *hidden;
    /* accepted nodes of the tree, for drafters that keep state per node */
    const uint32_t *path; size_t n_path;
};

struct drafter_ops {
    enum source source;
    const char *item;                /* what its memory is called */
    /* State of its own for a text of n_max tokens, where it has some: what it takes, made once, given back,
     * emptied (another text). */
    size_t (*bytes)(const struct draft_settings *s, const struct model *m, size_t n_max);
    int  (*open)(struct drafting *g, size_t n_max, struct err *e);
    void (*close)(struct drafting *g);
    void (*reset)(struct drafting *g);
    /* Before the drafter is first asked in a round: brings its state up to date. False: it cannot be asked
     * now. May be NULL. */
    bool (*prepare)(struct drafting *g);
    /* One pass of proposals. *more: whether it is worth asking again this round. Returns -1 on failure. */
    int  (*expand)(struct drafting *g, bool *more, struct err *e);
    /* Tokens were committed, by a round or all at once (a prompt, a resumed text). */
    void (*observe)(struct drafting *g, const struct observed *o);
    /* For snapshots, where a drafter has something that the tokens alone do not give back cheaply: room for
     * it; what there is now (0: nothing); taken over again, of the same text, behind observe. False, and
     * nothing is changed, where it does not fit. */
    size_t (*state_bytes)(const struct drafting *g);
    size_t (*save)(const struct drafting *g, void *out);
    bool (*load)(struct drafting *g, const void *state, size_t n);
};
extern const struct drafter_ops draft_heads, draft_partial, draft_ngram, draft_suffix;
/* The drafters in the order in which they are asked; NULL ends the list. A program may point drafters_all to
 * a longer list with a drafter of SOURCE_ADDED. The product adds none; tests add one that knows the text
 * (tests/oracle.h). */
extern const struct drafter_ops *const *drafters_all;

/* Bytes that drafters share; those of each are its own `bytes`. */
size_t draft_bytes(const struct draft_settings *s, const struct model *m, const struct heads *heads);
int draft_open(struct drafting *g, const struct draft_settings *s, const struct model *m,
               const struct model *small, const struct heads *heads, struct kv *kv, struct workspace *work,
               struct device_sampler *sampler, double penalty, long penalty_window, size_t n_max,
               struct err *e);
void draft_close(struct drafting *g);
/* Another text, or the same from an earlier token on: everything derived is forgotten. */
void draft_reset(struct drafting *g, struct device_sampler *sampler);

/* For drafters: the `k` best of the device's `logits` (one row, kept) as children of each of n nodes, all of
 * one depth; `kind` and `ahead` (tokens between the hidden state and the guess) choose the calibration.
 * Returns how many were added. */
size_t draft_propose(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                     enum source source, enum guess kind, size_t ahead);
/* Its two halves, for at most DEVICE_SAMPLER_RANKS nodes: a pass is looked at between them. */
struct ranking {
    struct candidate best[DEVICE_SAMPLER_RANKS * RANK_MAX];
    size_t found[DEVICE_SAMPLER_RANKS], each;
};
void draft_rank(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                struct ranking *r);
size_t draft_add(struct drafting *g, const uint32_t *node, size_t n, const struct ranking *r, size_t k,
                 enum source source, enum guess kind, size_t ahead);
/* The heads on the hidden state of the last draft pass (TokenSwift's way), below its guesses. false: there is
 * nothing to ask. */
bool draft_ahead(struct drafting *g);
/* The target's sample behind a node is known. */
void draft_learn(struct drafting *g, uint32_t node, int32_t sample);
/* One round: plans it at `length` tokens of the cache, asks the drafters of the plan, and keeps the
 * candidates that pay. tree_start() comes first. -1: a drafter failed. */
int draft_round(struct drafting *g, const struct drafter_ops *const *drafters, size_t length, struct err *e);
/* Candidates at the depth of the children of `node`: --tree's, or as many as may pay. */
size_t draft_width(const struct drafting *g, uint32_t node);
/* A tree of heads 0..n-1 below `node`: logits [n][vocab]; head 0 is for its children. */
void draft_propose_heads(struct drafting *g, uint32_t node, const float *logits, size_t n, enum guess kind);
