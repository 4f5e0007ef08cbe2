/* Drafting: what a decoder proposes before a pass verifies it. Drafting decides how many tokens a pass yields
 * and never changes the text (docs/architecture.md, rules R1 and R2).
 *
 * A drafter is a table of functions (struct drafter_ops) over its own state. It adds scored candidates to the
 * tree of the round and observes the committed tokens. These come with longhand:
 *
 *     heads     the model's drafting heads on the hidden state of the last verified row: needs no pass
 *     partial   draft passes of the full model over the partial cache, and the heads after them (TokenSwift)
 *     ngram     the table of 4-grams of prompt and text (TokenSwift's token reutilization)
 *     suffix    the continuation of the longest earlier match of the end of the text
 *     gumiho    two draft passes of two trained layers, then five trained heads at once (Gumiho)
 *     spire     draft passes of two trained blocks over the model's last residuals (SPIRe)
 *     longspec  draft passes of one trained layer that reads the model's own cache (LongSpec)
 *     model     draft passes of a smaller model of the same tokenizer
 *     mtp       draft passes of the model's own draft layer (MTP)
 *
 * Draft logits pass through the target's chain of penalties and filters with the window of the node's own
 * path. Candidates are ranked with the coin of their position. So at any temperature the likeliest guess is
 * the token that the target would sample if its logits were those of the draft. */
#pragma once
#include "kvmgr/partial.h"
#include "ngram/ngram.h"
#include "ngram/suffix.h"
#include "src/decode/buffers.h"
#include "src/decode/calibrate.h"
#include "src/decode/tree.h"
#include "src/model/gumiho.h"
#include "src/model/heads.h"
#include "src/model/longspec.h"
#include "src/model/mtp.h"
#include "src/model/spire.h"
#include "src/sample/device_sampler.h"

struct small_model;

enum { TREE_WIDTHS_MAX = 16, NGRAM_K_MAX = 32, DRAFT_PASSES_MAX = PARTIAL_ROWS_MAX };
enum ngram_lead {                    /* the nodes that 4-grams continue */
    LEAD_FIRST,                      /* the first choice at depth 1; without candidates, the root */
    LEAD_ALL,                        /* every candidate at depth 1 */
    LEAD_ROOT,
};
enum verifier { VERIFY_EXACT, VERIFY_PAPER };
/* the weights of drafts: 8-bit weights where draft_wants_int8 says so; those of the model */
enum draft_weights { WEIGHTS_INT8, WEIGHTS_MODEL };

struct draft_settings {              /* recorded with a job; all zero: plain decoding */
    unsigned drafters;               /* bit per enum source */
    /* --tree: candidates at each depth; n_width > 0 turns the planner off, and every candidate is verified */
    size_t width[TREE_WIDTHS_MAX], n_width;
    size_t ngram_k;                  /* continuations of a leading token */
    enum ngram_lead ngram_lead;
    /* tokens that a 4-gram waits before it enters the table; -1: until it has left the penalty window */
    long ngram_delay;
    long draft_passes;               /* of a round; -1: as planned (1 without the planner) */
    enum kv_policy kv_policy;
    /* not fixed: the planner may use smaller budgets, and under KV_AUTO the policies dynamic and mean (where
     * means are not possible: window) */
    size_t kv_sinks, kv_budget; bool kv_fixed;
    enum draft_weights weights;      /* of draft passes, and of heads' LM head */
    /* the most nodes of a verification pass; 0: what the tree needs, or ROWS_AUTO */
    size_t rows_max;
    enum verifier verifier;
    /* SOURCE_ADDED: the most rows that it proposes, and its settings */
    size_t added_rows;
    const void *added;
};
enum { ROWS_AUTO = 48 };

/* Every drafter that needs no weights of its own, with the planner. */
void draft_defaults(struct draft_settings *s);
/* Checks the ranges of the settings; messages name the flags. */
int  draft_check(const struct draft_settings *s, struct err *e);
/* Whether the device and the model support the drafters. A hybrid, whose cache grows in few layers, supports
 * those that need no cache of the model's: draft_of_config. */
int  draft_check_model(const struct draft_settings *s, const struct device *dev, const struct config *c,
                       struct err *e);
/* The drafters, by bits, that a model supports. */
unsigned draft_of_config(const struct config *c);
/* Whether an 8-bit copy of the model is of use: drafts ask it, and the device multiplies 8-bit weights. Never
 * with the published verifier, whose text depends on the candidates and must not depend on free memory. */
bool draft_wants_int8(const struct draft_settings *s, const struct device *dev);
/* Rows of the largest verification pass. */
size_t draft_rows(const struct draft_settings *s);

struct ranking {                     /* of at most DEVICE_SAMPLER_RANKS nodes, `each` candidates of each */
    struct candidate best[DEVICE_SAMPLER_RANKS * RANK_MAX];
    size_t found[DEVICE_SAMPLER_RANKS], each;
};

/* What the drafters of one text share. A decoder owns it; draft_open takes all memory. */
struct drafting {
    struct draft_settings set;
    const struct model *model;       /* borrowed, as the next ten */
    const struct model *draft_model; /* used by draft passes and heads: the model in 8 bits, or itself */
    const struct heads *heads;       /* or NULL */
    struct longspec *longspec;       /* or NULL */
    struct small_model *small;       /* or NULL */
    struct spire *spire;             /* or NULL */
    struct gumiho *gumiho;           /* or NULL */
    struct mtp *mtp;                 /* or NULL */
    struct kv *kv;
    struct round_buffers *buffers;
    struct device_sampler *sampler;
    const int32_t *tokens; size_t n_tokens, n_prompt;      /* the text of this round */
    struct tree *tree;
    struct calibration calibration;
    float min_reach;                 /* candidates less likely than this would be trimmed anyway */
    /* in this round text drafters propose unlikely candidates too, so that their chances are learned */
    bool look;
    bool have_hidden;
    /* the device's [hidden]: residual of the last committed row, before the final norm */
    float *hidden;
    float *logits;                   /* the device's [heads->n][vocab]; NULL without heads */
    void *heads_scratch;             /* the device's */
    struct partial partial;
    void *own[N_SOURCES];            /* what a drafter keeps for the text */
    struct planner planner;
    double (*clock)(void);           /* seconds: clock_seconds, or simulated in tests */
    /* what the planner may choose: a drafter that makes passes, and a setting of its cache */
    struct { const struct drafter_ops *ops; enum kv_policy policy; size_t budget; } cache[CACHES_MAX];
    size_t n_caches, current_cache;  /* current_cache: index of the partial cache's present settings */
    /* this round: seconds in the planner; draft passes so far; the node that the last pass continued; the
     * reach of the likeliest node that a further pass would continue, 0: none */
    double planner_seconds;
    size_t passes;
    uint32_t pass_node;
    float next_reach;
    float *pass_hidden;              /* the device's [hidden], of the last draft pass */
    struct ranking ranking;          /* of the last draft pass */
    struct ngram *ngram; size_t ngram_delay;
    struct suffix *suffix;
    size_t bytes, hidden_bytes, logits_bytes, heads_bytes;
};

/* Committed rows, and what the pass left of them. */
struct observed {
    size_t n_tokens;                 /* length of g->tokens, the bonus token included */
    /* Of each row first .. first + n_rows - 1 of the text: the residual before the final norm, the device's
     * hidden + row[i] * [hidden], or row i where `row` is NULL. n_rows 0: the text was rebuilt from tokens
     * alone. */
    const float *hidden; const uint32_t *row; size_t first, n_rows;
    /* accepted nodes of the tree, for drafters that keep state per node */
    const uint32_t *path; size_t n_path;
};
/* The residual of row i. */
static inline const float *observed_hidden(const struct observed *o, size_t i, size_t hidden)
{
    return o->hidden + (o->row ? o->row[i] : i) * hidden;
}

struct drafter_ops {
    enum source source;
    const char *item;                /* the name of its memory in the memory plan */
    bool on_device;                  /* its memory is the device's */
    /* it observes the rows of every chunk of a prefill, as they are read */
    bool reads_prompt;
    /* with a fixed tree it makes one pass for each depth; without this, one pass and the heads after it */
    bool pass_per_depth;
    /* Its own state for a text of n_max tokens: its size, opening, closing, and emptying it for another text.
     * Each may be NULL. */
    size_t (*bytes)(const struct draft_settings *s, const struct model *m, size_t n_max);
    int  (*open)(struct drafting *g, size_t n_max, struct err *e);
    void (*close)(struct drafting *g);
    void (*reset)(struct drafting *g);
    /* Before the drafter is first asked in a round: brings its state up to date. False: it cannot be asked
     * now. May be NULL. */
    bool (*prepare)(struct drafting *g);
    /* Of a drafter that makes passes, else NULL: the bytes that a pass over cache[i] reads. Its `open` has
     * added the caches (draft_add_cache). The plan names one of them, and says how many passes it makes at
     * most. */
    struct pass_bytes (*reads)(const struct drafting *g, size_t i);
    /* Makes one pass of proposals for each of n <= BATCH_MAX texts of a round. more[i]: a further pass for
     * text i may be of use; a drafter that makes passes then sets next_reach, too. Returns -1 on failure. */
    int  (*expand)(struct drafting *const *g, size_t n, bool *more, struct err *e);
    /* Optional, of a drafter that makes passes: asks the heads on the hidden state of its last pass and adds
     * their guesses below those of the pass, as TokenSwift does. False: no heads, or no guess to continue. */
    bool (*ahead)(struct drafting *g);
    /* Optional, of the drafter of the plan: asks the verification pass for scores of keys. */
    void (*score)(struct drafting *g, struct pass_seq *seq);
    /* Tokens were committed: by a round, or all at once (a prompt, a resumed text). May be NULL. */
    void (*observe)(struct drafting *g, const struct observed *o);
    /* For snapshots of state that is dear to rebuild from tokens: the room that it needs; writing it (returns
     * the bytes, 0: nothing); reading it again after observe(), for the same text. load returns false and
     * changes nothing where the state does not fit. May be NULL. */
    size_t (*state_bytes)(const struct drafting *g);
    size_t (*save)(const struct drafting *g, void *out);
    bool (*load)(struct drafting *g, const void *state, size_t n);
};
extern const struct drafter_ops draft_heads, draft_partial, draft_ngram, draft_suffix, draft_longspec,
    draft_spire, draft_gumiho, draft_small, draft_mtp;
/* The drafters in the order in which they are asked; NULL ends the list. A program may point drafters_all to
 * a longer list with a drafter of SOURCE_ADDED. The product adds none; tests add one that knows the text
 * (tests/oracle.h). */
extern const struct drafter_ops *const *drafters_all;

/* Bytes of struct drafting without the state of each drafter. */
size_t draft_bytes(const struct draft_settings *s, const struct model *m, const struct heads *heads);
/* Opens g for a text of n_max tokens sampled with p. The caller has set g->set and the borrowed pointers, all
 * else is zero; a NULL g->draft_model means that drafts ask g->model. On failure g is closed. */
int draft_open(struct drafting *g, const struct sampling *p, size_t n_max, struct err *e);
void draft_close(struct drafting *g);
/* Between rounds: from now on draft passes and heads use m, another form of the same model. */
void draft_with(struct drafting *g, const struct model *m);
/* Forgets everything derived from the text: another text follows, or the same text from an earlier
 * token on. */
void draft_reset(struct drafting *g, struct device_sampler *sampler);

/* For drafters that make passes, in `open`: a setting of its cache that the plan may choose. The settings of
 * a drafter follow each other. */
static inline void draft_add_cache(struct drafting *g, const struct drafter_ops *ops, enum kv_policy policy,
                                   size_t budget)
{
    assert(g->n_caches < CACHES_MAX && ops->reads);
    g->cache[g->n_caches].ops = ops;
    g->cache[g->n_caches].policy = policy;
    g->cache[g->n_caches++].budget = budget;
}
/* The drafter whose passes the plan of this round makes, or NULL. */
const struct drafter_ops *draft_pass_maker(const struct drafting *g);
/* For drafters: adds the k best tokens of the device's `logits` (one row) as children of each of n nodes of
 * one depth. `kind` and `ahead`, the tokens between the hidden state and the guess, choose the calibration
 * cell. Returns the number of added nodes. */
size_t draft_propose(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                     enum source source, enum guess kind, size_t ahead);
/* The two halves of draft_propose, for at most DEVICE_SAMPLER_RANKS nodes: the pass ends between them. */
void draft_rank(struct drafting *g, const uint32_t *node, size_t n, const float *logits, size_t k,
                struct ranking *r);
size_t draft_add(struct drafting *g, const uint32_t *node, size_t n, const struct ranking *r, size_t k,
                 enum source source, enum guess kind, size_t ahead);
/* The target sampled `sample` after a node: calibration and planner learn from it. */
void draft_learn(struct drafting *g, uint32_t node, int32_t sample);
/* One round of n texts of one model: plans it, asks the drafters of the plan, each for all texts that want
 * it, and keeps the candidates that pay. The caller has set tokens, n_tokens and n_prompt and called
 * tree_start(). -1: a drafter failed. */
int draft_round(struct drafting *const *g, size_t n, const struct drafter_ops *const *drafters,
                struct err *e);
/* How many children a node gets: as --tree says, or as many as may pay. */
size_t draft_width(const struct drafting *g, uint32_t node);
/* Adds a tree of the guesses of heads 0..n-1 below `node`. logits: [n][vocab]; head 0 guesses the children,
 * `ahead` tokens after what it knows. */
void draft_propose_heads(struct drafting *g, uint32_t node, const float *logits, size_t n, enum source source,
                         enum guess kind, size_t ahead);
/* Rows of the next pass: the likeliest children of parent[0..n), the likeliest first, at most `most`. With a
 * planner only those whose children are worth a row of `seconds`; in a fixed tree only those that `source`
 * proposed (draft_rows counts them). row[i]: the index of child[i]'s parent. Returns their number. */
size_t draft_children(const struct drafting *g, enum source source, const uint32_t *parent, size_t n,
                      size_t most, double seconds, uint32_t *child, int32_t *row);
/* Raises next_reach to the reach of the likeliest child of a node that a further pass may continue. */
void draft_reach(struct drafting *g, uint32_t node);
/* n texts have made a pass that began at `start`: their planners learn its seconds, which it returns. */
double draft_passed(struct drafting *const *g, size_t n, double start);
/* Seconds of a drafter's passes, fading means: of those of one row, and of each further row. */
struct row_seconds { double one, more; };
void row_seconds_learn(struct row_seconds *s, size_t rows, double seconds);
