/* The device `cpu` itself, shared by its files. */
#pragma once
#include <stdatomic.h>

#include "kernels/delta.h"
#include "kernels/device.h"
#include "kernels/experts.h"

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

/* Operations of struct device. */
void cpu_rope(struct device *d, const struct device_rope *a);
void cpu_attend(struct device *d, void *out, const void *q, const struct device_heads *h, size_t layer,
                size_t window);
