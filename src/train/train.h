/* The trainer: windows of text, the frozen model's hidden states, steps of AdamW, checkpoints, curves. What is trained is a
 * module, a table of functions that knows nothing of these; several modules may share the hidden states of one run.
 *
 * Data. Every text is cut into the fewest windows of at most `window` tokens, of nearly equal length; each begins with the prefix
 * (what the tokenizer puts before a text), so that a window looks to the model as a prompt does. Windows are visited in an order
 * drawn anew for every pass over the data. A step is `batch` windows; its gradient is the mean of theirs.
 *
 * Optimiser. Gradients are scaled down to a norm of `clip`; AdamW with betas 0.9 and 0.999, epsilon 1e-8, decay for matrices only;
 * the rate rises linearly over `warmup` steps (1/warmup in the first), then falls along a half cosine to 0 after the last step.
 *
 * Results are a function of the settings, the data, the model, --compute, --kv-dtype and the device's numerics id (on a GPU of cuBLAS's version, too): neither of the
 * number of threads nor of interruptions. A checkpoint goes on where it began: the CPU's is not one of a GPU's, nor the other way round. A checkpoint beside the output holds weights and moments; `train_run` goes on from it and removes it at the end. */
#pragma once
#include <stdatomic.h>
#include "src/model/model.h"

enum { TRAIN_OUTPUTS_MAX = 16, TRAIN_MODULES_MAX = 4, TRAIN_PREFIX_MAX = 16 };

/* A window as a module sees it: tokens and the residual before the final norm, [n][hidden]. */
struct train_window { const int32_t *token; size_t n; const float *hidden; };      /* hidden: the memory of the model's device */
/* What one output of a module guessed: sums over positions. */
struct train_score { size_t n, top1, top3; double loss; };

struct module;
struct module_kind {
    /* First weights. */
    void (*init)(struct module *u);
    /* u->w has changed: pack what the products need. */
    void (*update)(struct module *u);
    /* Adds to score[u->n_outputs]; unless weight is 0 also adds `weight` times the gradient of the window's loss, the sum over
     * outputs of the mean cross-entropy over positions, to u->grad. */
    void (*window)(struct module *u, const struct train_window *win, float weight, struct train_score *score);
    /* Write u->w as what the user gets. `note` says how it was trained. */
    int  (*save)(const struct module *u, const char *path, const char *note, struct err *e);
    /* Where weights, gradient and moments live elsewhere (a GPU), else NULL: bring them to u->w, grad, m and v (update is the way back; the gradient is
     * then 0); the sum of squares of the gradient; a step of the optimiser, in which the first n_matrix decay by a->keep, with the work of update,
     * behind which the gradient is 0. Their errors are the device's. */
    int    (*fetch)(struct module *u, struct err *e);
    double (*squares)(struct module *u);
    void   (*adamw)(struct module *u, const struct adamw *a);
};
struct module {
    const struct module_kind *kind;
    const char *name;                    /* in reports and curves */
    const char *out;                     /* path that it is saved to */
    void *self;                          /* the kind's own */
    size_t n_outputs;                    /* each is reported apart */
    size_t n_params, n_matrix;           /* the first n_matrix decay */
    float *w, *grad, *m, *v;             /* [n_params] */
    double *sum;                         /* private */
};

/* Take memory, init and update; train_run does it itself. */
int  module_open(struct module *u, struct err *e);
void module_close(struct module *u);

struct train_text { int32_t *ids; size_t *begin, n; };   /* text i is ids[begin[i]..begin[i + 1]) */

struct train_settings {
    size_t window, batch, steps, warmup;
    /* held-out text: every so many steps and at the end, so many windows spread over it */
    size_t valid_every, valid_windows;
    double rate, decay, clip;
    uint64_t seed;
    double checkpoint_seconds;           /* at most so long apart; 0: after every step */
};

enum { TRAIN_FORWARD, TRAIN_MODULES, TRAIN_OPTIMISER, TRAIN_VALID, TRAIN_STORE, TRAIN_TIMES };

struct train {
    const struct model *model;
    struct train_settings s;
    struct module *module; size_t n_modules;
    struct train_text data, valid;       /* valid.n == 0: none */
    int32_t prefix[TRAIN_PREFIX_MAX]; size_t n_prefix;
    const char *checkpoint;              /* path */
    const char *curves;                  /* path of a CSV file, or NULL */
    const atomic_int *stop;              /* a signal's number: save and give up */
    /* After each step, and after each look at held-out text (valid). score[module][TRAIN_OUTPUTS_MAX]. */
    void (*report)(void *ctx, const struct train *t, size_t step, bool valid,
                   const struct train_score *score);
    void *ctx;

    /* set by train_run */
    size_t resumed, step;                /* steps done before; in all */
    size_t tokens;                       /* seen in all */
    size_t run_tokens; double seconds[TRAIN_TIMES];   /* of this run */
};

/* Windows of a text: the number of steps that one pass over it takes is this / batch, rounded up. train_run needs at least one in
 * the data; a text of fewer than 18 tokens has none. */
size_t train_windows(const struct train *t, const struct train_text *text);
/* Bytes that train_run takes: cache, workspace, hidden states (of the device); weights and moments (of the host). */
size_t train_device_bytes(const struct train *t);
size_t train_host_bytes(const struct train *t);
/* Train from the checkpoint or from the start, save every module, remove the checkpoint. ERR_FAILED when stopped. */
int train_run(struct train *t, struct err *e);

/* The rate of step 0, 1, .. and one step of the optimiser (counted from 0) with u->grad; returns the norm of the gradient. */
double train_rate(const struct train_settings *s, size_t step);
double train_step(struct module *u, const struct train_settings *s, size_t step, const struct model *m);
