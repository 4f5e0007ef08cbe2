/* What training of heads does in the same way on the CPU (train_heads.c) and on a GPU (train_heads_gpu.c):
 * random weights, scores, and the file. train_heads_impl.h declares it; start there. */
#include "src/train/train_heads_impl.h"

#include <stdio.h>

#include "src/model/heads.h"

/* ---- weights ---- */

void train_heads_random(struct module *u)
{
    const struct trainer *t = u->self;
    train_normal(u->w, u->n_matrix, 0.02f, t->seed);
    for (size_t i = u->n_matrix; i < u->n_params; i++)
        u->w[i] = 1;
}

/* ---- scores ---- */

void train_heads_score(const struct trainer *t, const struct train_window *win, size_t r0, size_t rows,
                       const struct xent *loss, struct train_score *score)
{
    for (size_t j = 0; j < t->n * rows; j++) {
        const size_t k = j / rows;
        const struct xent *x = &loss[j];
        if (r0 + j % rows >= positions(win, k))
            continue;
        train_score_add(&score[k], x, train_xent(x));
    }
}

/* ---- saving ---- */

int train_heads_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    static const char *const names[] = { "input_layernorm", "post_layernorm" };
    const struct trainer *t = u->self;
    struct tensor_out out[3 * HEADS_MAX];
    for (size_t k = 0; k < t->n; k++) {
        out[k] = (struct tensor_out){ "", DT_BF16, t->d, t->d, matrix_of(t, u->w, k) };
        snprintf(out[k].name, sizeof out[k].name, "heads.%zu.linear.weight", k);
    }
    for (size_t k = 0; k < 2 * t->n; k++) {
        struct tensor_out *norm = &out[t->n + k];
        *norm = (struct tensor_out){ "", DT_F32, t->d, 0, gain_of(t, u->w, k / 2, k % 2) };
        snprintf(norm->name, sizeof norm->name, "heads.%zu.%s.weight", k / 2, names[k % 2]);
    }
    return drafter_save(path, t->m, t->chained ? "chained" : "independent", note, out, 3 * t->n, e);
}
