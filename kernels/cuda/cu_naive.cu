/* References in double precision for tests at the shapes of real models: a thread for each output, plain
 * loops, no tiles, no shared memory. Nothing else calls them. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

/* y[row][i] = x[row] . w[i] and the sum of the terms' magnitudes, from row-major matrices. */
KERNEL(naive_product, naive_product, 256, 1)
{
    const size_t at = (size_t)block_x() * threads() + tid();
    depend_wait();
    if (at >= (size_t)a.rows * a.n)
        return;
    const uint16_t *x = a.x + at / a.n * a.k, *w = a.w + at % a.n * a.k;
    double sum = 0, size = 0;
    for (size_t i = 0; i < a.k; i++) {
        const double t = (double)bf16_float(x[i]) * (double)bf16_float(w[i]);
        sum += t;
        size += t < 0 ? -t : t;
    }
    a.y[at] = sum;
    a.size[at] = size;
}

/* Element i of the key (value: of the value) at a position, for the KV head of query head h. */
FN double naive_kv(const struct cu_naive_attend *a, size_t h, size_t pos, size_t i, bool value)
{
    const uint16_t *block = (const uint16_t *)(a->layer + h / (a->n_heads / a->n_kv_heads) * a->head_bytes) +
                            pos / CU_BLOCK * CU_BLOCK * 2 * a->dp;
    return (double)bf16_float(block[(value ? CU_BLOCK * a->dp : 0) + pos % CU_BLOCK * a->dp + i]);
}

/* score[row][head][pos] = q . key, a thread for each; row r sees the positions 0 .. n_past + r. */
KERNEL(naive_scores, naive_attend, 256, 1)
{
    const size_t pos = (size_t)block_x() * threads() + tid(), h = block_y(), r = block_z();
    depend_wait();
    if (pos > a.n_past + r)
        return;
    const uint16_t *q = a.q + (r * a.n_heads + h) * a.dp;
    double sum = 0;
    for (size_t i = 0; i < a.dp; i++)
        sum += (double)bf16_float(q[i]) * naive_kv(&a, h, pos, i, false);
    a.score[(r * a.n_heads + h) * a.step + pos] = sum;
}

/* out[row][head][i]: softmax with powers of two over the scores, a thread for each i. */
KERNEL(naive_attend, naive_attend, 128, 1)
{
    const size_t i = tid(), h = block_x(), r = block_y();
    depend_wait();
    if (i >= a.dp)
        return;
    const double *score = a.score + (r * a.n_heads + h) * a.step;
    double top = score[0], sum = 0, out = 0;
    for (size_t pos = 0; pos <= a.n_past + r; pos++)
        top = score[pos] > top ? score[pos] : top;
    for (size_t pos = 0; pos <= a.n_past + r; pos++) {
        const double p = exp2(score[pos] - top);
        sum += p;
        out += p * naive_kv(&a, h, pos, i, true);
    }
    a.out[(r * a.n_heads + h) * a.dp + i] = out / sum;
}
