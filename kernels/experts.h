/* The feed-forward part of a layer with a mixture of experts, on the CPU: device->experts of `cpu`. Every row
 * goes through a few of the experts, which the router chooses.
 *
 * A pass reads the weights of an expert once: the rows that it has are grouped, experts ascending, rows
 * ascending, and go through its matrices together, in lots of whole experts. The result of a row depends on
 * that row alone (R1): products do not depend on the number of their rows, and a row receives its experts in
 * ascending order. */
#pragma once
#include "kernels/device.h"
#include "kernels/pool.h"

enum { EXPERT_LOT = 256 };               /* rows, counted once for each of their experts */

/* Buffers for passes within the limits. The device places them. */
struct experts_room {
    float *norm;                         /* [rows_max][hidden] normalised rows */
    float *product, *chance;             /* [rows_max][n]: of the router; their softmax */
    uint32_t *chosen;                    /* [rows_max][used], ascending */
    float *share;                        /* [rows_max][used]: weights of the chosen experts */
    /* The rows of expert e are entries start[e] .. start[e + 1] - 1 of row and weight. */
    size_t *start;                       /* [n + 1] */
    uint32_t *row; float *weight;        /* [rows_max * used] */
    /* a lot: left operands of a product, results of the products, and between them silu(gate) * up */
    char *left;                          /* [EXPERT_LOT][experts_left_bytes] */
    float *y;                            /* [EXPERT_LOT][2 ffn or hidden] */
    float *h;                            /* [EXPERT_LOT][ffn] */
    struct expert_part *part;            /* [EXPERT_LOT] */
};
/* One expert in a lot: a product of `n` rows, from entry `slot` of the lot on, with w. */
struct expert_part {
    const struct device_expert *expert; const struct mat *w; size_t slot, n;
    const float *bias;                   /* [w->n], or NULL */
};

/* Bytes of a left operand of k inputs in any form. */
size_t experts_left_bytes(size_t k);

struct experts_run {
    const struct ops *ops;
    struct pool *pool;
    const struct experts_room *room;
    bool compute_f32;                    /* left operands are floats */
    /* A product of the router is not finite in this row. */
    void (*bad)(void *ctx, size_t row);
    void *ctx;
};
/* Returns the number of experts that the rows have, the shared one not counted: those whose weights were
 * read. */
size_t experts_run(const struct experts_run *r, const struct device_experts *a);
