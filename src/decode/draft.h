/* Drafting: what a decoder proposes before a pass verifies it. Drafting decides how many tokens a pass yields
 * and never changes the text (docs/architecture.md, rules R1 and R2).
 *
 * A drafter is one file in drafters/: a struct drafter_ops over its own state. It adds scored candidates to
 * the tree of the round and observes the committed tokens. drafters.h lists all of them.
 *
 * Draft logits pass through the target's chain of penalties and filters with the window of the node's own
 * path. Candidates are ranked with the coin of their position. So at any temperature the likeliest guess is
 * the token that the target would sample if its logits were those of the draft. */
#pragma once
#include "src/decode/decoder.h"
#include "src/model/memory_plan.h"

struct drafter_kind;

/* The residual of committed row i. */
static inline const float *committed_hidden(const struct decoder *d, size_t i)
{
    return d->committed.hidden + (d->committed.row ? d->committed.row[i] : i) * d->model->config.hidden;
}

/* The text, and after it the tokens of a path through the tree; path may be NULL. */
static inline struct history decoder_history(const struct decoder *d, const int32_t *path, size_t n_path)
{
    return (struct history){ d->tokens, d->n_tokens, d->n_prompt, path, n_path, .known = d->n_tokens };
}

/* When a drafter is asked; those of one turn in the order of drafters.h. */
enum drafter_turn {
    TURN_TEXT,                       /* from the text alone */
    TURN_PASSES,                     /* by draft passes */
    TURN_MODEL,                      /* from the model's last pass */
    TURN_LAST,                       /* continues the candidates of the others */
    N_TURNS
};
enum drafter_option { OPTION_NONE, OPTION_FILE, OPTION_DIR };  /* NAME, NAME[:FILE] or NAME:DIR */

/* What one text adds to a draft pass. */
enum { PASS_NODES = 16 };
struct pass_part {
    size_t rows;                     /* of the pass */
    size_t n; uint32_t node[PASS_NODES];     /* the nodes of the tree that the pass continues */
    int32_t token[PASS_NODES];       /* of these nodes, of a beam */
    size_t width;                    /* children of each node; 0: draft_width */
    size_t heads;                    /* of each node; 0: the pass itself guesses the next token */
    float *logits;                   /* [n][heads, or 1][vocab], where `forward` writes them */
    const float *hidden;             /* of the rows, where `forward` leaves hidden states for `keep` */
};

/* The memory that the state of a drafter has: a cache, with which its struct begins (no layers: none), and
 * floats of the host. name: in a plan, which adds `others`; NULL: it is planned elsewhere. */
struct drafter_memory { const char *name; struct kv_size kv; size_t floats, others; };

/* The passes of a drafter that makes some (draft_pass.c). keep, learn and score may be NULL. */
struct drafter_passes {
    size_t most, rows;               /* passes of a round; rows of a pass */
    bool chain;                      /* a pass continues the likeliest child of the node before */
    bool per_depth;                  /* with a fixed tree: one pass for each depth; else one pass */
    bool by_depth;                   /* how sure its guesses are depends on their depth */
    bool ranks;                      /* `forward` leaves the ranked guesses in d->round.ranking */
    /* the highest acceptance rate of its first guess that exploration assumes: 0.9 for whole models and for a
     * layer trained together with the model, 0.8 for a layer or two trained afterwards */
    double acceptance_max;
    /* they leave the model's hidden state in pass_hidden, for heads, which follow them */
    bool leaves_hidden;
    /* The bytes that a pass over cache[i] reads: weights, key and keys. The plan names one of the caches
     * (draft_add_cache), and says how many passes there are at most. */
    struct pass_cost (*reads)(const struct decoder *d, size_t i);
    /* Before the first pass of a round: brings the drafter's state up to date. False: it cannot be asked
     * now. */
    bool (*prepare)(struct decoder *d);
    /* Chooses rows and nodes of the next pass of a text. part is zero. False: there is none. */
    bool (*choose)(struct decoder *d, struct pass_part *part);
    /* One pass for n texts with the same draft_model and number of heads. It may set *end to the time at
     * which the pass ended. -1: a value is not finite; guesses are lost, and the drafter is reset. */
    int  (*forward)(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end);
    /* The guesses of a pass are in the tree; d->round.passes counts it. */
    void (*keep)(struct decoder *d, const struct pass_part *part);
    /* A pass for this text alone has taken so long. */
    void (*learn)(struct decoder *d, const struct pass_part *part, double seconds);
    /* In a round whose plan has these passes: asks the verification pass for scores of keys, to select
     * some. */
    void (*score)(struct decoder *d, struct pass_seq *seq);
};

struct drafter_ops {
    enum drafter id;
    const char *name;                /* in --drafter, reports and snapshots */
    enum drafter_turn turn;
    enum drafter_option option;
    bool by_default;                 /* --drafter auto asks it for every model */
    bool int8;                       /* it uses the 8-bit copy of the model */
    bool every_layer;                /* it needs a cache of every layer: not for hybrids */
    /* with a fixed tree it proposes all widths of the tree, and its candidates are their product */
    bool whole_tree;
    const struct drafter_weights *weights;       /* weights.h; NULL: it has none */
    const struct drafter_kind *kind;             /* of its file (drafter_file.h), or NULL */
    /* The rows of a verification pass that it needs with a fixed tree, never NULL: the most candidates that
     * it adds. n_text: the other drafters that read the text alone. */
    size_t (*rows)(const struct draft_settings *s, size_t n_text);
    /* The chance of a guess in calibration cell i of its kind, before any was seen. NULL: one half. */
    double (*prior)(size_t i);

    /* it observes the rows of every chunk of a prefill, as they are read */
    bool reads_prompt;
    /* Its own state for a text of n_max tokens: the size of its struct, d->own, which begins as zeros, or 0;
     * its memory, and what else it adds to a plan, when weights may not be open; opening and closing the
     * rest, and emptying it for another text. Each may be NULL. */
    size_t state;
    struct drafter_memory (*memory)(const struct decode_setup *set, const struct model *m, size_t n_max);
    void (*plan)(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                 size_t n_max);
    int  (*open)(struct decoder *d, struct err *e);
    void (*close)(struct decoder *d);
    void (*reset)(struct decoder *d);
    /* The text was cut to d->n_tokens, its cache to the rows before the last token. NULL: `reset`. */
    void (*cut)(struct decoder *d);
    /* The draft passes that it makes, or NULL; then `expand` proposes candidates. */
    const struct drafter_passes *passes;
    void (*expand)(struct decoder *d);
    /* Of heads: the number of weights that asking them reads; asking them on the hidden state of the last
     * draft pass, below the guesses of the pass, as TokenSwift does. False: there is no guess to continue. */
    double (*weights_read)(const struct decoder *d);
    bool (*ahead)(struct decoder *d);
    /* Tokens were committed: by a round, or all at once (a prompt, a resumed text). d->committed are the rows
     * of a round; without rows the text was rebuilt from tokens. May be NULL. */
    void (*observe)(struct decoder *d);
    /* For snapshots of state that is dear to rebuild from tokens: the room that it needs; writing it (returns
     * the bytes, 0: nothing); reading it again after observe(), for the same text. load returns false and
     * changes nothing where the state does not fit. May be NULL. */
    struct {
        size_t (*bytes)(const struct decoder *d);
        size_t (*save)(const struct decoder *d, void *out);
        bool (*load)(struct decoder *d, const void *state, size_t n);
    } snapshot;
};

/* By number; NULL: none. A test program puts its own into the place of DRAFTER_ADDED, which the product
 * leaves empty (tests/oracle.h), or of others. */
extern const struct drafter_ops *drafters[N_DRAFTERS];
#define DRAFTER_OPS(number, file) extern const struct drafter_ops drafter_##file;
DRAFTERS(DRAFTER_OPS)
#undef DRAFTER_OPS
/* The drafters of a set of bits in the order in which they are asked: the one after `last`, NULL: the first.
 * NULL after the last one. */
const struct drafter_ops *drafter_next(unsigned set, const struct drafter_ops *last);
/* Writes "heads[:FILE], partial, .." into list: the drafters of a set as --drafter takes them. */
const char *drafter_list(char list[256], unsigned set);
enum { ALL_DRAFTERS = (1 << N_DRAFTERS) - 1 };

/* Bytes of drafting without the state of each drafter. */
size_t draft_bytes(const struct draft_settings *s);
/* Adds the states of drafters for a text of n_max tokens. */
void draft_plan_states(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                       size_t n_max);
/* Opens the drafters and the planner of a decoder that is open but for them. The caller calls draft_close,
 * also after a failure. */
int draft_open(struct decoder *d, struct err *e);
void draft_close(struct decoder *d);
/* Between rounds: from now on draft passes and heads use m, another form of the same model. */
void draft_with(struct decoder *d, const struct model *m);
/* Forgets everything derived from the text: another text follows, or the same text from an earlier
 * token on. */
void draft_reset(struct decoder *d);

/* The text was cut: drafters forget the tokens that are gone. */
void draft_cut(struct decoder *d);

/* For drafters that make passes, in `open`: a setting of its cache that the plan may choose. The settings of
 * a drafter follow each other. A drafter that adds none has a cache without a budget. */
static inline void draft_add_cache(struct decoder *d, const struct drafter_ops *ops, enum kv_policy policy,
                                   size_t budget)
{
    assert(d->n_caches < CACHES_MAX && ops->passes);
    d->cache[d->n_caches].ops = ops;
    d->cache[d->n_caches].policy = policy;
    d->cache[d->n_caches++].budget = budget;
}
/* The drafter whose passes the plan of this round makes, or NULL. */
const struct drafter_ops *draft_pass_maker(const struct decoder *d);
/* For drafters: adds the k best tokens of the device's `logits` (one row) as children of each of n nodes of
 * one depth. `kind` and `ahead`, the tokens between the hidden state and the guess, choose the calibration
 * cell. Returns the number of added nodes. */
size_t draft_propose(struct decoder *d, const uint32_t *node, size_t n, const float *logits, size_t k,
                     enum drafter source, size_t kind, size_t ahead);
/* The two halves of draft_propose, for at most DEVICE_SAMPLER_RANKS nodes. Between them, where the pass may
 * end, the candidates lie in d->round.ranking. */
void draft_rank(struct decoder *d, const uint32_t *node, size_t n, const float *logits, size_t k);
size_t draft_add(struct decoder *d, const uint32_t *node, size_t n, size_t k, enum drafter source,
                 size_t kind, size_t ahead);
/* The target sampled `sample` after a node: calibration and planner learn from it. */
void draft_learn(struct decoder *d, uint32_t node, int32_t sample);
/* A round of n <= BATCH_MAX texts of one model. draft_plan plans it; the caller has called tree_start(). Then
 * draft_round asks the drafters of the plan, each for all texts that want it, and keeps the candidates that
 * pay. */
void draft_plan(struct decoder *const *d, size_t n);
void draft_round(struct decoder *const *d, size_t n);
/* One draft pass of `ops` for n texts, or as many as have room for all of them. next_reach of each is then
 * the reach of the likeliest node that a further pass would continue, 0 if none is of use. */
void draft_pass(const struct drafter_ops *ops, struct decoder *const *d, size_t n);
/* Seconds of a drafter's passes, fading means: of those of one row, and of each further row. */
struct row_seconds { double one, more; };
void row_seconds_learn(struct row_seconds *s, size_t rows, double seconds);
/* Chooses the next pass of a beam: the likeliest children of the rows of the last pass, or of the root, the
 * likeliest first, at most `most`, and adds them to round.beam. With the planner only those whose children
 * are worth a row of `seconds`; in a fixed tree only those that `source` proposed (draft_rows counts
 * them). */
bool draft_beam(struct decoder *d, enum drafter source, size_t most, double seconds, struct pass_part *part);
/* The node that the next pass of a chain continues, as the one row of a part. False: the chain has ended. */
bool draft_chain(const struct decoder *d, struct pass_part *part);
/* How many children a node gets: as --tree says, or as many as may pay. */
size_t draft_width(const struct decoder *d, uint32_t node);
/* Adds a tree of the guesses of heads 0..n-1 below `node`. logits: [n][vocab]; head 0 guesses the children,
 * `ahead` tokens after what it knows. */
void draft_propose_heads(struct decoder *d, uint32_t node, const float *logits, size_t n,
                         enum drafter source, size_t kind, size_t ahead);
/* Whether a candidate of this reach would be trimmed anyway, in a round that is no probe. */
bool draft_trims(const struct decoder *d, float reach);
/* For drafters that read the text alone: proposes a chain of n tokens below a node, up to the first one that
 * the sampler can never give. Returns the last node. */
uint32_t draft_propose_chain(struct decoder *d, uint32_t node, const int32_t *token, size_t n,
                             enum drafter source, const uint16_t *cell);
/* Tables of the text take it in when they are asked, with the planner so many tokens at once: their memory
 * has left the caches since the last time, and one visit is faster than many. The longest match is found all
 * the same (suffix.h). 4-grams enter that much later, unless --ngram-delay fixes the delay. */
enum { DRAFT_TOGETHER = 16 };
/* Raises next_reach to the reach of the likeliest child of a node that a further pass may continue. */
void draft_reach(struct decoder *d, uint32_t node);
