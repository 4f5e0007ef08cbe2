/* The operations of Gated DeltaNet and of gated attention, for twin_impl.h: a step of a recurrent state, its
 * convolution, and the gate. Each column, channel or element is computed alone, so strips may have any width.
 * Start reading at OP(delta). */

/* `panels` times 16 columns from column j on. before, now: whether the step has them. */
INLINE void delta_strip(const struct delta_step *s, size_t j, const bool before, const bool now,
                        const int panels)
{
    v16 r[4], p[4], add[4];
    UNROLL for (int w = 0; w < panels; w++) {
        r[w] = p[w] = v16_zero();
        add[w] = before ? v16_load(s->before->delta + j + 16 * (size_t)w) : v16_zero();
    }
    const v16 decay = v16_set1(before ? s->before->decay : 1.0f);
    for (size_t i = 0; i < s->dim; i++) {
        const size_t at = i * s->n + j;
        const v16 k0 = v16_set1(before ? s->before->k[i] : 0.0f), k = v16_set1(now ? s->now->k[i] : 0.0f),
                  q = v16_set1(now ? s->now->q[i] : 0.0f);
        UNROLL for (int w = 0; w < panels; w++) {
            v16 x = v16_load(s->from + at + 16 * (size_t)w);
            if (before) {
                x = v16_fma(k0, add[w], v16_mul(decay, x));
                v16_store(s->to + at + 16 * (size_t)w, x);
            }
            if (now) {
                r[w] = v16_fma(k, x, r[w]);
                p[w] = v16_fma(q, x, p[w]);
            }
        }
    }
    UNROLL for (int w = 0; w < panels && now; w++) {
        const struct delta_row *a = s->now;
        const size_t c = j + 16 * (size_t)w;
        const v16 mine = v16_set1(a->decay),
                  d = v16_mul(v16_set1(a->beta), v16_sub(v16_load(a->v + c), v16_mul(mine, r[w])));
        v16_store(a->delta + c, d);
        v16_store(a->o + c, v16_fma(v16_set1(a->qk), d, v16_mul(mine, p[w])));
    }
}

#define DELTA_STRIPS(BEFORE, NOW) \
    for (; j + 16 * DELTA_PANELS <= s->n; j += 16 * DELTA_PANELS) \
        delta_strip(s, j, BEFORE, NOW, DELTA_PANELS); \
    for (; j < s->n; j += 16) \
        delta_strip(s, j, BEFORE, NOW, 1);

static void OP(delta)(const struct delta_step *s)
{
    size_t j = 0;
    assert(s->n % 16 == 0 && (s->before || s->now));
    if (s->before && s->now) {
        DELTA_STRIPS(true, true)
    } else if (s->before) {
        DELTA_STRIPS(true, false)
    } else {
        DELTA_STRIPS(false, true)
    }
}

static void OP(convolve)(float *y, const float *const *x, const float *w, size_t taps, size_t n)
{
    enum { STRIP = 256 };
    float sum[STRIP];
    for (size_t c = 0; c < n; c += STRIP) {
        const size_t some = MIN_(n - c, (size_t)STRIP);
        memset(sum, 0, sizeof sum);
        for (size_t t = 0; t < taps; t++)
            for (size_t i = 0; i < some; i++)
                sum[i] = sum[i] + w[t * n + c + i] * x[t][c + i];
        for (size_t i = 0; i < some; i++)
            y[c + i] = swiglu1(sum[i], 1.0f);
    }
}

INLINE float gate1(float x, float g) { return x * (1.0f / (1.0f + exp2_f(g * -0x1.715476p0f))); }

static void OP(gate)(void *y, enum dtype act, const float *g, size_t n)
{
    uint16_t *half = y;
    float *x = y;
    if (act == DT_BF16)
        for (size_t i = 0; i < n; i++)
            half[i] = f32_to_bf16(gate1(from_bits((uint32_t)half[i] << 16), g[i]));
    else
        for (size_t i = 0; i < n; i++)
            x[i] = gate1(x[i], g[i]);
}
