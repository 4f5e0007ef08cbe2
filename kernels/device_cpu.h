/* The device `cpu` itself, shared by its files. */
#pragma once
#include <stdatomic.h>

#include "kernels/delta.h"
#include "kernels/device.h"

/* ---- mixtures of experts (device_cpu_experts.c) ---- */

enum { EXPERT_LOT = 256 };               /* rows, counted once for each of their experts */

/* Buffers of the experts. */
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

/* ---- the device ---- */

struct cpu {
    struct device d;
    const struct ops *ops;
    struct pool *pool;
    struct device_limits limits;
    char *mem;                       /* holds the buffers below */
    size_t bytes, slab, work_bytes, part_bytes;
    float *cos, *sin, *part, *q_scale;       /* q_scale: [rows_max][n_heads], in the order of q */
    float *local_cos, *local_sin;    /* of local_freq */
    size_t *lo, *hi;                 /* visible committed slots [lo, hi) in the present layer */
    uint32_t *seq_of;                /* sequence of a row */
    int16_t *quantized;              /* [QUANTIZED_ROWS][quantized_row(n_in_max)] */
    char *left;                      /* [LEFT_ROWS or rows_max][left_bytes(n_in_max)], in a quantised model */
    size_t left_size;
    char *work;                      /* [threads][work_bytes] */
    struct experts_room experts;
    struct delta_room delta;
    /* the present pass */
    const struct device_rows *rows;
    _Atomic uint64_t bad;            /* the smallest place << 32 | row, or UINT64_MAX */
};

/* Calls `step` for rows 0 .. n-1, in pieces, on the threads of the pool. */
typedef void row_step(const struct cpu *c, const void *args, size_t r0, size_t r1);
void cpu_each_row(const struct cpu *c, row_step *step, const void *args, size_t n);

/* Keeps the first value that is not finite. */
void cpu_note(const struct cpu *c, size_t place, size_t row);

/* Operations of struct device. */
void cpu_rope(struct device *d, const struct device_rope *a);
void cpu_attend(struct device *d, void *out, const void *q, const struct device_heads *h, size_t layer,
                size_t window);
void cpu_experts(struct device *d, const struct device_experts *a);
