/* The trainer: windows of text, the hidden states of a frozen model, steps of AdamW, checkpoints, curves.
 *
 * A module is what is trained: a table of functions that knows nothing of windows, files or the optimiser.
 * Several modules may share the hidden states of one run.
 *
 * Data. Every text is cut into the fewest windows of at most `window` tokens, of nearly equal length. Each
 * window begins with the prefix, the tokens that the tokenizer puts before a text, so that it looks to the
 * model like a prompt. Every pass over the data visits the windows in a new random order. A step is
 * `batch` windows; its gradient is the mean of their gradients. Hidden states of windows that come again are
 * kept, as far as half of the free memory holds them, if no kind moves positions (skip_max).
 *
 * Optimiser. Gradients are scaled down to a norm of at most `clip`. AdamW (Loshchilov and Hutter,
 * arXiv:1711.05101) has betas 0.9 and 0.999 and epsilon 1e-8; only matrices decay. The learning rate rises
 * linearly over `warmup` steps (to 1/warmup of the full rate in the first step), then falls along a half
 * cosine to 0 after the last step.
 *
 * Determinism. The result is a function of the settings, the data, the model, --compute, --kv-dtype and
 * the numerics id of the device; on a GPU also of the version of cuBLAS. It depends neither on the number
 * of threads nor on interruptions.
 *
 * Checkpoints. A checkpoint file beside the output holds weights and moments. train_run continues from it
 * if it exists, and removes it at the end. A checkpoint of the CPU does not continue on a GPU, nor the
 * other way round.
 *
 * A new training is a file, train_NAME.c: the forward and backward pass of its drafter, written with layers.h
 * and block.h, its loss and its file. Its kind has a row in the table of cmd_train.c. */
#pragma once
#include <stdatomic.h>
#include "src/lab/train/layers.h"

enum { TRAIN_SKIP_TOKENS = 1200, TRAIN_OUTPUTS_MAX = 16, TRAIN_MODULES_MAX = 4, TRAIN_PREFIX_MAX = 16 };

/* A window as a module sees it: its tokens, the residual before the final norm, [n][hidden], in the memory of
 * the model's device, and the cache that the model has filled. Token i is at position i, from `skip_at` on at
 * position i + skip (struct train_settings, skip_max). key: a number for random choices of this window in
 * this step; 0: none. done: the share of steps that came before. */
struct train_window {
    const int32_t *token; size_t n;
    const float *hidden;
    const float *entering[2];            /* the residual entering the last two layers, [n][hidden], the
                                          * host's; NULL unless a module's kind reads it */
    const struct kv *kv;
    size_t skip_at, skip;
    uint64_t key;
    double done;
};
/* How well one output of a module predicted: sums over n positions. outside: those of them whose token is not
 * in the short vocabulary: a wrong guess without a loss. accepted: the probability that the sampling verifier
 * accepts the draft up to this output, min(p, q) summed over the vocabulary and multiplied over outputs; 0
 * from modules that do not measure it. */
struct train_score { size_t n, outside, top1, top3; double loss, accepted; };

/* The mean loss of the positions that have one; NaN: none has. */
double train_loss(const struct train_score *s);
/* -log softmax(x)[target] */
double train_xent(const struct xent *x);
/* Adds the loss and the rank of one position. */
void train_score_add(struct train_score *s, const struct xent *x, double loss);
/* The next uniform number in (0, 1) of a sequence. */
double train_uniform(uint64_t *state);
/* Normal first weights: a function of the seed. */
void train_normal(float *w, size_t n, float deviation, uint64_t seed);

struct module;
/* A kind of drafter: one file, train_NAME.c, and one row of cmd_train.c's table. */
struct module_kind {
    const char *name;                    /* of the command line */
    /* Defaults of struct train_settings; rate 0: cmd_train.c chooses one by the model. */
    double rate; size_t window, skip_max;
    bool entering;                       /* `train` reads win->entering */
    bool gpu;                            /* it can be trained on a GPU */
    size_t self_bytes;                   /* of u->self, which begins as zeros */
    /* NULL, or say why the model has no such drafter: ERR_INPUT. */
    int  (*check)(const struct module *u, const struct model *m, struct err *e);
    /* Take parameters, matrices first, and memory; set n_outputs, n_matrix, and what the layers need
     * (layers.h). A layout is made twice: the first one only counts. */
    void (*layout)(struct module *u, struct arena *a);
    /* Set the first weights, u->w, which begin as zeros. */
    int  (*init)(struct module *u, struct err *e);
    /* Add to score[u->n_outputs]. Unless weight is 0, also add to the gradient `weight` times that of the
     * window's loss: the sum over outputs of the mean loss over positions. */
    void (*train)(struct module *u, const struct train_window *win, float weight, struct train_score *score);
    /* Write u->w to the file that the user gets. `note` describes the training. */
    int  (*save)(const struct module *u, const char *path, const char *note, struct err *e);
};
extern const struct module_kind train_heads, train_longspec, train_gumiho, train_spire;

/* SPIRe's ablations. SPIRE_NO_ACTIVATIONS is without feedback memories, too: keys and values of all positions
 * come from the drafter's own x^{i-1}, and a window is one pass. */
enum spire_ablation {
    SPIRE_WHOLE, SPIRE_RANDOM,           /* random first weights */
    SPIRE_DISTILL, SPIRE_HARD,           /* omega 1; cross-entropy of the text's token */
    SPIRE_NO_FEEDBACK, SPIRE_NO_ACTIVATIONS,
};
/* Where the time of the heads' windows went. */
enum { HEADS_FORWARD, HEADS_LM, HEADS_LOSS, HEADS_LM_BACK, HEADS_BACK, HEADS_TIMES };

struct heads;
struct module {
    /* The caller sets these. */
    const struct module_kind *kind;
    const char *name;                    /* in reports and curves */
    const char *out;                     /* the path that it is saved to */
    size_t window; uint64_t seed;
    size_t draft_vocab;                  /* tokens of the short vocabulary of `back`; 0: none */
    size_t heads; bool chained;          /* of train_heads */
    const struct heads *first;           /* heads of this kind and number to start from, or NULL; borrowed */
    enum spire_ablation ablation;        /* of train_spire */

    /* module_plan sets these. */
    void *self;                          /* private data of the kind */
    size_t n_outputs;                    /* each output is reported separately */
    size_t n_params, n_matrix;           /* the first n_matrix parameters decay */
    size_t bytes;                        /* of the device, without the LM head */

    /* module_open sets these. */
    struct layers layers;
    float *w, *grad, *m, *v;             /* [n_params], the host's; on a GPU copies, see module_fetch */
    char *mem;
    double seconds[HEADS_TIMES];         /* of train_heads */
    double *sum;                         /* private to module.c */
};

/* Compute sizes, for a model whose weights may not be read yet. */
int  module_plan(struct module *u, const struct model *m, struct err *e);
/* Allocate memory and set the first weights. `back` is borrowed, and u must not move until module_close.
 * ERR_INPUT: the model has no such drafter, or its GPU has no cuBLAS. After a failure module_close is
 * allowed, and needed. */
int  module_open(struct module *u, const struct model *m, const struct lm_back *back, struct err *e);
void module_close(struct module *u);
/* Pack what the products need, after u->w has changed. */
void module_update(struct module *u);
/* Copy the GPU's arrays to u->w, grad, m and v; on the CPU nothing. */
int  module_fetch(struct module *u, struct err *e);
/* The sum of squares of the gradient; on a GPU it waits. */
double module_squares(const struct module *u);

/* For modules. Add the rows with a target, or with one outside the vocabulary, to s. */
void train_score_rows(struct train_score *s, const struct xent *loss, const int32_t *target, size_t n);
/* The angles of the first n positions of a window, [n][head_dim / 2]. */
void train_angles(const struct model *m, const struct train_window *win, size_t n, float *cos, float *sin);

struct train_text { int32_t *ids; size_t *begin, n; };   /* text i is ids[begin[i]..begin[i + 1]) */

struct train_settings {
    size_t window, batch, steps, warmup;
    /* Held-out text is scored every valid_every steps and at the end, in valid_windows windows spread over
     * it. */
    size_t valid_every, valid_windows;
    double rate, decay, clip;
    uint64_t seed;
    double checkpoint_seconds;           /* the longest time between checkpoints; 0: one after every step */
    /* Anchor-offset positions (LongSpec): of a window of at most TRAIN_SKIP_TOKENS tokens the first 0 to 4
     * keep their positions, and the others move by up to skip_max. 0: none. */
    size_t skip_max;
};

enum { TRAIN_FORWARD, TRAIN_MODULES, TRAIN_OPTIMISER, TRAIN_VALID, TRAIN_STORE, TRAIN_TIMES };

struct train {
    const struct model *model;
    struct train_settings s;
    struct module *module; size_t n_modules;
    struct train_text data, valid;       /* valid.n == 0: no held-out text */
    int32_t prefix[TRAIN_PREFIX_MAX]; size_t n_prefix;
    const char *checkpoint;              /* path */
    const char *curves;                  /* path of a CSV file, or NULL */
    const atomic_int *stop;              /* not 0: write a checkpoint and return; NULL: never */
    /* Called after each step, and after each scoring of held-out text (valid).
     * score[module][TRAIN_OUTPUTS_MAX]. */
    void (*report)(void *ctx, const struct train *t, size_t step, bool valid,
                   const struct train_score *score);
    void *ctx;

    /* train_run sets these. */
    size_t resumed, step;                /* steps of earlier runs; steps in all */
    size_t tokens;                       /* tokens seen in all runs */
    size_t run_tokens; double seconds[TRAIN_TIMES];   /* of this run */
};

/* Number of windows of a text. One pass over it takes windows / batch steps, rounded up. train_run needs
 * at least one window in the data; a text of fewer than 18 tokens has no window. */
size_t train_windows(const struct train *t, const struct train_text *text);
/* Bytes that train_run allocates: cache, workspace and hidden states on the device; weights and moments on
 * the host. */
size_t train_device_bytes(const struct train *t);
size_t train_host_bytes(const struct train *t);
/* Train the modules, which are open, from the checkpoint or from the start, save every module, remove the
 * checkpoint. ERR_AGAIN: t->stop was set, and the checkpoint holds the last step. ERR_INPUT: the checkpoint
 * cannot continue this training. */
int train_run(struct train *t, struct err *e);

/* The learning rate of step 0, 1, .. */
double train_rate(const struct train_settings *s, size_t step);
/* One step of the optimiser, counted from 0, with u->grad, which becomes 0. Returns the gradient's norm. */
double train_step(struct module *u, const struct train_settings *s, size_t step);
