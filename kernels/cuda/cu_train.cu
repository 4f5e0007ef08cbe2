/* Training of drafting heads, except products. The arithmetic is that of kernels/train_impl.h except for the
 * order of sums, which here depends on the sizes alone. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

/* Backward pass of rmsnorm, a block for each row. scale[row] is kept for gain_back. */
KERNEL(norm_back, norm_back, CU_NORM_THREADS, 1)
{
    const size_t at = block_x() * (size_t)a.dim;
    const float *x = a.x + at, *dy = a.dy + at;
    float *dx = a.dx + at, s = 0, c = 0;
    depend_wait();
    for (unsigned i = tid(); i < a.dim; i += threads()) {
        s = fmaf(x[i], x[i], s);
        c = fmaf(dy[i] * a.weight * a.w[i], x[i], c);
    }
    s = block_sum(s, (float *)shared());
    c = block_sum(c, (float *)shared());
    const float scale = 1.0f / sqrtf(s / (float)a.dim + a.eps),
                back = c * scale * scale * scale / (float)a.dim;
    for (unsigned i = tid(); i < a.dim; i += threads()) {
        const float d = fmaf(-x[i], back, dy[i] * a.weight * a.w[i] * scale);
        dx[i] = a.add ? dx[i] + d : d;
    }
    if (tid() == 0)
        a.scale[block_x()] = scale;
}

/* dw += sum over rows of dy x scale: a block for 32 columns, a warp for every eighth row. */
KERNEL(gain_back, gain_back, 256, 1)
{
    float *part = (float *)shared(), sum = 0;
    const size_t i = block_x() * (size_t)WARP + lane();
    depend_wait();
    for (size_t r = warp(); i < a.dim && r < a.rows; r += threads() / WARP)
        sum = fmaf(a.dy[r * a.dim + i] * a.weight, a.x[r * a.dim + i] * a.scale[r], sum);
    part[tid()] = sum;
    barrier();
    if (warp() == 0 && i < a.dim) {
        sum = a.dw[i];
        for (unsigned k = 0; k < threads() / WARP; k++)
            sum = sum + part[k * WARP + lane()];
        a.dw[i] = sum;
    }
}

FN float block_max(float x, float *work)
{
    UNROLL_ALL
    for (int i = 16; i; i /= 2)
        x = max_of(x, shfl_xor(x, i));
    barrier();
    if (lane() == 0)
        work[warp()] = x;
    barrier();
    float top = work[0];
    for (unsigned i = 1; i < threads() / WARP; i++)
        top = max_of(top, work[i]);
    return top;
}

/* Cross-entropy of a row of logits and its gradient, a block for each row. A row with target -1 has
 * neither. */
KERNEL(xent, xent, CU_NORM_THREADS, 1)
{
    const size_t row = block_x();
    const float *x = a.logits + row * a.vocab, log2e = 0x1.715476p0f;
    uint16_t *g = a.g ? a.g + row * a.vocab : NULL;
    float *work = (float *)shared(), top = -FLT_MAX, sum = 0, above = 0;
    depend_wait();
    const int32_t target = a.target[row];
    if (target < 0) {
        for (unsigned i = tid(); g && i < a.vocab; i += threads())
            g[i] = 0;
        return;
    }
    const float at = x[target];
    for (unsigned i = tid(); i < a.vocab; i += threads()) {
        top = max_of(x[i], top);
        /* whole numbers: exact up to 2^24 */
        above += x[i] > at || (x[i] == at && i < (unsigned)target) ? 1.0f : 0.0f;
    }
    top = block_max(top, work);
    for (unsigned i = tid(); i < a.vocab; i += threads())
        sum = sum + exp2_fast((x[i] - top) * log2e);
    sum = block_sum(sum, work);
    above = block_sum(above, work);
    const float inv = 1.0f / sum;
    for (unsigned i = tid(); g && i < a.vocab; i += threads()) {
        const float p = exp2_fast((x[i] - top) * log2e) * inv;
        g[i] = to_bf16(i == (unsigned)target ? p - 1.0f : p);
    }
    if (tid() == 0) {
        struct cu_loss *out = a.loss + row;
        out->top = top, out->at = at, out->sum = sum, out->above = (uint32_t)above;
    }
}

/* Sum of squares of CU_SQUARES numbers, in double, for each block. */
KERNEL(squares, squares, 256, 1)
{
    double *part = (double *)shared(), s = 0;
    const size_t from = block_x() * (size_t)CU_SQUARES, to = min_size(from + CU_SQUARES, a.n);
    depend_wait();
    for (size_t i = from + tid(); i < to; i += threads())
        s = s + (double)a.g[i] * (double)a.g[i];
    part[tid()] = s;
    for (unsigned step = threads() / 2; step; step /= 2) {
        barrier();
        if (tid() < step)
            part[tid()] = part[tid()] + part[tid() + step];
    }
    if (tid() == 0)
        a.part[block_x()] = part[0];
}

/* One step of AdamW; updates the products' copy of the weights (the first n_matrix, which decay) and zeroes
 * the gradient. */
KERNEL(adamw, adamw, 256, 1)
{
    const size_t i = (size_t)block_x() * threads() + tid();
    depend_wait();
    if (i >= a.n)
        return;
    const float x = a.g[i] * a.scale, m = fmaf(a.beta1, a.m[i], (1.0f - a.beta1) * x),
                v = fmaf(a.beta2, a.v[i], (1.0f - a.beta2) * x * x);
    const float w = fmaf(i < a.n_matrix ? a.keep : 1.0f, a.w[i], -(a.rate * m / (sqrtf(v) * a.root + a.eps)));
    a.m[i] = m, a.v[i] = v, a.w[i] = w, a.g[i] = 0;
    if (i < a.n_matrix)
        a.w16[i] = to_bf16(w);
}
