/* The trainer: windows of text, the hidden states of a frozen model, steps of AdamW, checkpoints, curves.
 *
 * A module is what is trained: a table of functions that knows nothing of windows, files or the optimiser.
 * Several modules may share the hidden states of one run. train_heads.h has the only kind of module,
 * drafting heads.
 *
 * Data. Every text is cut into the fewest windows of at most `window` tokens, of nearly equal length. Each
 * window begins with the prefix, the tokens that the tokenizer puts before a text, so that it looks to the
 * model like a prompt. Every pass over the data visits the windows in a new random order. A step is
 * `batch` windows; its gradient is the mean of their gradients.
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
 * other way round. */
#pragma once
#include <stdatomic.h>
#include "src/model/model.h"

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
/* How well one output of a module predicted: sums over n positions. accepted: the probability that the
 * sampling verifier accepts the draft up to this output, min(p, q) summed over the vocabulary and multiplied
 * over outputs; 0 from modules that do not measure it. */
struct train_score { size_t n, top1, top3; double loss, accepted; };

/* -log softmax(x)[target] */
double train_xent(const struct xent *x);
/* Adds the loss and the rank of one position. */
void train_score_add(struct train_score *s, const struct xent *x, double loss);
/* The next uniform number in (0, 1) of a sequence. */
double train_uniform(uint64_t *state);
/* Normal first weights: a function of the seed. */
void train_normal(float *w, size_t n, float deviation, uint64_t seed);

struct module;
struct module_kind {
    bool entering;                       /* window reads win->entering */
    /* Set the first weights. */
    void (*init)(struct module *u);
    /* Pack what the products need, after u->w has changed. */
    void (*update)(struct module *u);
    /* Add to score[u->n_outputs]. Unless weight is 0, also add to u->grad `weight` times the gradient of
     * the window's loss: the sum over outputs of the mean cross-entropy over positions. */
    void (*window)(struct module *u, const struct train_window *win, float weight, struct train_score *score);
    /* Write u->w to the file that the user gets. `note` describes the training. */
    int  (*save)(const struct module *u, const char *path, const char *note, struct err *e);

    /* A module whose weights, gradient and moments are in the memory of a GPU has the three functions
     * below. In other modules they are NULL. Their errors are those of the device. */
    /* Copy the GPU's arrays to u->w, grad, m and v. update copies them back, and sets the GPU's gradient
     * to 0. */
    int    (*fetch)(struct module *u, struct err *e);
    /* Return the sum of squares of the gradient. */
    double (*squares)(struct module *u);
    /* One step of the optimiser, in which the first n_matrix weights decay by a->keep. It also does the
     * work of update, and sets the gradient to 0. */
    void   (*adamw)(struct module *u, const struct adamw *a);
};
struct module {
    const struct module_kind *kind;
    const char *name;                    /* in reports and curves */
    const char *out;                     /* the path that it is saved to */
    void *self;                          /* private data of the kind */
    size_t n_outputs;                    /* each output is reported separately */
    size_t n_params, n_matrix;           /* the first n_matrix parameters decay */
    float *w, *grad, *m, *v;             /* [n_params] */
    double *sum;                         /* private to train.c */
};

/* Allocate the arrays of a module, then call init and update. train_run does so itself. */
int  module_open(struct module *u, struct err *e);
void module_close(struct module *u);

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
/* Train from the checkpoint or from the start, save every module, remove the checkpoint. ERR_AGAIN:
 * t->stop was set, and the checkpoint holds the last step. ERR_INPUT: the checkpoint cannot continue this
 * training. */
int train_run(struct train *t, struct err *e);

/* The learning rate of step 0, 1, .. */
double train_rate(const struct train_settings *s, size_t step);
/* One step of the optimiser, counted from 0, with u->grad. Returns the norm of the gradient. */
double train_step(struct module *u, const struct train_settings *s, size_t step, const struct model *m);
