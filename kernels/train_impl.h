/* The operations of training, written once for every twin and included by twin_impl.h. The arithmetic is
 * plain IEEE in a fixed order. A row's result depends on that row alone; sums over rows add them in ascending
 * order. */

static void OP(rmsnorm_back)(float *dx, size_t ldx, bool add, float *dw, const float *dy, size_t ldy,
                             const float *x, const float *w, size_t m, size_t dim, float eps)
{
    for (size_t r = 0; r < m; r++, x += ldx, dy += ldy, dx += ldx) {
        float s[16] = { 0 }, c[16] = { 0 };
        size_t i = 0;
        for (; i + 16 <= dim; i += 16)
            for (size_t j = 0; j < 16; j++) {
                s[j] = fmaf(x[i + j], x[i + j], s[j]);
                c[j] = fmaf(dy[i + j] * w[i + j], x[i + j], c[j]);
            }
        for (; i < dim; i++) {
            s[i % 16] = fmaf(x[i], x[i], s[i % 16]);
            c[i % 16] = fmaf(dy[i] * w[i], x[i], c[i % 16]);
        }
        const float scale = 1.0f / sqrtf(tree_sum(s) / (float)dim + eps);
        const float back = tree_sum(c) * scale * scale * scale / (float)dim;
        for (i = 0; i < dim; i++)
            dw[i] = fmaf(dy[i], x[i] * scale, dw[i]);
        if (add)
            for (i = 0; i < dim; i++)
                dx[i] = dx[i] + fmaf(-x[i], back, dy[i] * w[i] * scale);
        else
            for (i = 0; i < dim; i++)
                dx[i] = fmaf(-x[i], back, dy[i] * w[i] * scale);
    }
}

/* x = exp((x - top) times / log2(e)) for the largest x, *top. Returns "sums" of them. */
INLINE float exp_row(float *x, size_t n, float times, float *top)
{
    const size_t whole = n / 16 * 16;
    v16 most = v16_set1(-INFINITY), sum = v16_zero();
    float s[16];
    for (size_t i = 0; i < whole; i += 16)
        most = v16_max(v16_load(x + i), most);
    *top = v16_top(most);
    for (size_t i = whole; i < n; i++)
        *top = x[i] > *top ? x[i] : *top;
    const float largest = *top;
    for (size_t i = 0; i < whole; i += 16) {
        const v16 e = v16_exp2(v16_mul(v16_sub(v16_load(x + i), v16_set1(largest)), v16_set1(times)));
        v16_store(x + i, e);
        sum = v16_add(sum, e);
    }
    v16_store(s, sum);
    for (size_t i = whole; i < n; i++) {
        x[i] = exp2_f((x[i] - largest) * times);
        s[i % 16] += x[i];
    }
    return tree_sum(s);
}

static void OP(xent)(void *g, enum dtype act, float *x, size_t n, size_t target, struct xent *out)
{
    const float at = x[target];
    float top;
    uint32_t above = 0;
    for (size_t i = 0; i < target; i++)
        above += x[i] >= at;
    for (size_t i = target + 1; i < n; i++)
        above += x[i] > at;
    const float sum = exp_row(x, n, 0x1.715476p0f, &top);
    *out = (struct xent){ .top = top, .at = at, .sum = sum, .above = above };
    if (!g)
        return;
    const float inv = 1.0f / sum, own = x[target] * inv - 1.0f;
    if (act == DT_BF16) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)g)[i] = f32_to_bf16(x[i] * inv);
        ((uint16_t *)g)[target] = f32_to_bf16(own);
    } else {
        for (size_t i = 0; i < n; i++)
            ((float *)g)[i] = x[i] * inv;
        ((float *)g)[target] = own;
    }
}

static void OP(adamw)(float *w, float *m, float *v, const float *g, size_t n, const struct adamw *a)
{
    const float beta1 = a->beta1, beta2 = a->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2,
                scale = a->scale, keep = a->keep;
    const float rate = a->rate, root = a->root, eps = a->eps;
    for (size_t i = 0; i < n; i++) {
        const float x = g[i] * scale;
        m[i] = fmaf(beta1, m[i], rest1 * x);
        v[i] = fmaf(beta2, v[i], rest2 * x * x);
        w[i] = fmaf(keep, w[i], -(rate * m[i] / (sqrtf(v[i]) * root + eps)));
    }
}

static void OP(softmax)(void *y, enum dtype act, float *s, size_t lo, size_t hi, size_t n, float scale)
{
    float top;
    const float sum = exp_row(s + lo, hi - lo, scale * 0x1.715476p0f, &top), inv = lo < hi ? 1.0f / sum : 0;
    for (size_t i = 0; i < lo; i++)
        s[i] = 0;
    for (size_t i = lo; i < hi; i++)
        s[i] *= inv;
    for (size_t i = hi; i < n; i++)
        s[i] = 0;
    OP(round)(y, act, s, 1, n);
}

static void OP(softmax_back)(void *ds, enum dtype act, const float *p, float *dp, size_t lo, size_t hi,
                             size_t n, float scale)
{
    const float mean = sum_products(p + lo, dp + lo, hi - lo);
    for (size_t i = 0; i < lo; i++)
        dp[i] = 0;
    for (size_t i = lo; i < hi; i++)
        dp[i] = p[i] * (dp[i] - mean) * scale;
    for (size_t i = hi; i < n; i++)
        dp[i] = 0;
    OP(round)(ds, act, dp, 1, n);
}

static void OP(swiglu_back)(float *dg, float *du, const float *g, const float *u, const float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float share = 1.0f / (1.0f + exp2_f(g[i] * -0x1.715476p0f)), silu = g[i] * share,
                    slope = fmaf(silu, 1.0f - share, share), d = dy[i], up = u[i];
        du[i] = d * silu;
        dg[i] = d * up * slope;
    }
}

static void OP(mixed)(void *g, enum dtype act, float *x, const float *p, size_t n, size_t target, float omega,
                      struct mixed *out)
{
    float cross[16] = { 0 }, mass[16] = { 0 }, overlap[16] = { 0 }, below[16] = { 0 }, top = x[0];
    const size_t whole = n / 16 * 16;
    for (size_t i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (size_t i = 0; i < whole; i += 16)
        for (size_t j = 0; j < 16; j++) {
            cross[j] = fmaf(p[i + j], top - x[i + j], cross[j]);
            mass[j] += p[i + j];
        }
    for (size_t i = whole; i < n; i++) {
        cross[i % 16] = fmaf(p[i], top - x[i], cross[i % 16]);
        mass[i % 16] += p[i];
    }
    OP(xent)(NULL, act, x, n, target, &out->xent);
    out->cross = tree_sum(cross), out->mass = tree_sum(mass);
    const float inv = 1.0f / out->xent.sum, total = out->mass, rest = 1.0f - omega;
    for (size_t i = 0; i < whole; i += 16)
        for (size_t j = 0; j < 16; j++) {
            const float q = x[i + j] * inv, w = p[i + j];
            x[i + j] = q;
            overlap[j] += q < w ? q : w;
            below[j] += q < w ? q : 0;
        }
    for (size_t i = whole; i < n; i++) {
        x[i] *= inv;
        overlap[i % 16] += x[i] < p[i] ? x[i] : p[i];
        below[i % 16] += x[i] < p[i] ? x[i] : 0;
    }
    out->overlap = tree_sum(overlap);
    if (!g)
        return;
    const float a = tree_sum(below);
    for (size_t i = 0; i < n; i++) {
        const float q = x[i], w = p[i], d = omega * (total * q - w) - rest * (q * ((q < w ? 1.0f : 0) - a));
        if (act == DT_BF16)
            ((uint16_t *)g)[i] = f32_to_bf16(d);
        else
            ((float *)g)[i] = d;
    }
}

static void OP(rows_dot)(float *s, const float *x, const float *const *row, size_t n, size_t dim)
{
    for (size_t r = 0; r < n; r++)
        s[r] = sum_products(x, row[r], dim);
}

static void OP(rows_sum)(float *y, const float *w, const float *const *row, size_t n, size_t dim)
{
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < dim; i++)
            y[i] = fmaf(w[r], row[r][i], y[i]);
}

static void OP(rows_add)(float *const *row, const float *w, const float *x, size_t n, size_t dim)
{
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < dim; i++)
            row[r][i] = fmaf(w[r], x[i], row[r][i]);
}

#define TRAIN_OPS .rmsnorm_back = OP(rmsnorm_back), .xent = OP(xent), .adamw = OP(adamw), \
    .softmax = OP(softmax), .softmax_back = OP(softmax_back), .swiglu_back = OP(swiglu_back), \
    .mixed = OP(mixed), .rows_dot = OP(rows_dot), .rows_sum = OP(rows_sum), .rows_add = OP(rows_add)
