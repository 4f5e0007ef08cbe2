/* Matrix products: every twin equals the definition of kernels/ops.h bit for bit, for every number of rows,
 * strides, panel ranges, bias and add. The definition is near the exact product.
 *
 * Bound: k fused steps, each rounded once: |y - exact| <= k * 2^-24 * sum|a b| + flushes (2 k * 2^-126). */
#include "tests/reference.h"
#include "tests/test.h"

enum { M_MAX = 70 };

/* A matrix and the values that it was packed from. */
struct weights { struct mat mat; void *src; enum dtype type; };

static void weights_open(struct weights *w, enum dtype type, size_t n, size_t k, struct rng *rng, bool finite)
{
    w->type = type;
    w->mat = (struct mat){ type, n, k, NULL };
    w->mat.w = must_alloc(mat_bytes(&w->mat) + 64);
    w->src = must_alloc(n * k * dtype_size(type));
    for (size_t i = 0; i < n * k; i++) {
        float x = finite ? rng_normal(rng) : rng_awkward(rng);
        uint16_t f16 = (uint16_t)rng_next(rng);
        if (finite && (f16 & 0x7c00) >= 0x4c00)
            f16 &= 0x83ff;
        if (type == DT_F16) memcpy((char *)w->src + 2 * i, &f16, 2);
        /* keeps denormals */
        else if (type == DT_BF16) ((uint16_t *)w->src)[i] = (uint16_t)(ref_bits(x) >> 16);
        else act_put(type, w->src, i, x);
    }
    size_t half = n / 2;                       /* packed in two parts, as a fused matrix is loaded */
    mat_pack(&w->mat, 0, half, w->src, type);
    mat_pack(&w->mat, half, n - half, (char *)w->src + half * k * dtype_size(type), type);
}
static void weights_close(struct weights *w) { free(w->mat.w), free(w->src); }
static float weight(const struct weights *w, size_t i)
{
    uint16_t h;
    if (w->type == DT_F32) return ((float *)w->src)[i];
    memcpy(&h, (char *)w->src + 2 * i, 2);
    return w->type == DT_F16 ? ref_f16(h) : ref_bf16(h);
}

/* x act [m][ldx]. Between k and ldx the first element is +0 (odd k) and the rest is NaN. */
static void *inputs(enum dtype act, size_t m, size_t k, size_t ldx, struct rng *rng, bool finite)
{
    char *x = must_alloc(m * ldx * dtype_size(act));
    for (size_t r = 0; r < m; r++)
        for (size_t i = 0; i < ldx; i++)
            act_put(act, x, r * ldx + i, i < k ? (finite ? rng_normal(rng) : rng_awkward(rng)) : i == k &&
                    k % 2 ? 0 : NAN);
    return x;
}
/* dots [m][n] by definition. */
static float *dots(enum dtype act, const void *x, size_t ldx, size_t m, const struct weights *w)
{
    size_t n = w->mat.n, k = w->mat.k;
    float *d = must_alloc(m * n * sizeof *d), *row = must_alloc(k * sizeof *row);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < k; i++)
            row[i] = weight(w, j * k + i);
        for (size_t r = 0; r < m; r++)
            d[r * n + j] = act == DT_BF16 ? ref_dot_bf16((const uint16_t *)x + r * ldx,
                                                         (const uint16_t *)w->src + j * k, k)
                                          : ref_dot_f32((const float *)x + r * ldx, row, k);
    }
    free(row);
    return d;
}

struct call { size_t m, p0, p1, ldy; bool bias, add; };

/* One call of one twin: the columns of its panels equal the definition, and nothing else changes. */
static bool call_is_exact(const struct ops *o, enum dtype act, const void *x, size_t ldx,
                          const struct weights *w, const float *d, const float *bias, const float *before,
                          const struct call *c)
{
    size_t n = w->mat.n, count = c->m ? (c->m - 1) * c->ldy + n : 0;
    float *y = guard_alloc(count * sizeof *y);
    for (size_t i = 0; i < count; i++)
        y[i] = before[i];
    o->matmul(y, c->ldy, act, x, ldx, c->m, &w->mat, c->bias ? bias : NULL, c->add, c->p0, c->p1);
    bool good = guard_intact(y, count * sizeof *y);
    CHECK(good, "%s: bytes around the output written", o->name);
    for (size_t i = 0; i < count && good; i++) {
        size_t r = i / c->ldy, j = i % c->ldy;
        float want = before[i];
        if (j < n && j >= c->p0 * PANEL && j < c->p1 * PANEL) {
            float sum = d[r * n + j];
            if (c->bias) sum = sum + bias[j];
            want = c->add ? before[i] + sum : sum;
        }
        if (act_differ(DT_F32, &want, &y[i], 1) == 0) {
            good = false;
            CHECK(good,
                  "%s: act %d weights %d n %zu k %zu m %zu panels %zu-%zu bias %d add %d: row %zu column %zu "
                  "is %a, defined %a",
                  o->name, act, w->type, n, w->mat.k, c->m, c->p0, c->p1, c->bias, c->add, r, j, (double)y[i],
                  (double)want);
        }
    }
    guard_free(y);
    return good;
}

static const struct { enum dtype act, weights; } kinds[] = {
    { DT_BF16, DT_BF16 }, { DT_F32, DT_BF16 }, { DT_F32, DT_F16 }, { DT_F32, DT_F32 } };
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void shape(size_t n, size_t k, struct rng *rng, bool every_m)
{
    for (size_t t = 0; t < N_KINDS; t++) {
        struct weights w;
        weights_open(&w, kinds[t].weights, n, k, rng, rng_next(rng) & 1);
        size_t ldx = k + k % 2 + rng_below(rng, 4), ldy = n + rng_below(rng, 3), panels = mat_panels(&w.mat);
        void *x = inputs(kinds[t].act, M_MAX, k, ldx, rng, rng_next(rng) & 1);
        float *d = dots(kinds[t].act, x, ldx, M_MAX, &w), *bias = must_alloc(n * sizeof *bias);
        float *before = must_alloc(M_MAX * ldy * sizeof *before);
        for (size_t i = 0; i < n; i++) bias[i] = rng_awkward(rng);
        for (size_t i = 0; i < M_MAX * ldy; i++) before[i] = rng_awkward(rng);
        bool good = true;
        FOR_TWINS(o)
            for (size_t m = 1; m <= M_MAX && good; m += every_m ? 1 : 1 + rng_below(rng, 9)) {
                struct call c = { m, 0, panels, ldy, rng_next(rng) & 1, rng_next(rng) & 1 };
                if (m % 3 == 0) {              /* some panels only, or none */
                    c.p0 = rng_below(rng, panels + 1);
                    c.p1 = c.p0 + rng_below(rng, panels - c.p0 + 1);
                }
                good = call_is_exact(o, kinds[t].act, x, ldx, &w, d, bias, before, &c);
            }
        free(x), free(d), free(bias), free(before);
        weights_close(&w);
    }
}
static void matmul_every_row_count_is_exact(void)
{
    struct rng rng = { 11 };
    static const size_t n[] = { 1, 15, 16, 17, 40, 161 }, k[] = { 1, 2, 3, 33, 64, 131 };
    for (size_t i = 0; i < 6; i++)
        shape(n[i], k[(i * 5 + 3) % 6], &rng, true);
}
static void matmul_shapes_are_exact(void)
{
    struct rng rng = { 12 };
    for (int i = 0; i < 24; i++)
        shape(1 + rng_below(&rng, 300), 1 + rng_below(&rng, 200), &rng, false);
    shape(4096 / 16, 704, &rng, false);
    shape(33, 5000, &rng, false);
    shape(17, 6001, &rng, false);        /* rows too long to be widened */
}

/* bias and add in all four combinations, also where they decide the sign of a zero. */
static void matmul_bias_and_add(void)
{
    struct rng rng = { 13 };
    for (size_t t = 0; t < N_KINDS; t++) {
        struct weights w;
        weights_open(&w, kinds[t].weights, 37, 9, &rng, false);
        void *x = inputs(kinds[t].act, 5, 9, 10, &rng, false);
        float *d = dots(kinds[t].act, x, 10, 5, &w), bias[37], before[5 * 41];
        for (size_t i = 0; i < 37; i++) bias[i] = i % 5 ? rng_awkward(&rng) : -0.0f;
        for (size_t i = 0; i < 5 * 41; i++) before[i] = i % 7 ? rng_awkward(&rng) : -0.0f;
        FOR_TWINS(o)
            for (int k = 0; k < 4; k++) {
                struct call c = { 5, 0, 3, 41, k & 1, k & 2 };
                call_is_exact(o, kinds[t].act, x, 10, &w, d, bias, before, &c);
            }
        free(x), free(d);
        weights_close(&w);
    }
}

/* 16-bit weights and activations whose products are denormal: bf16 flushes, f32 does not. */
static void matmul_flushes_bf16_only(void)
{
    struct rng rng = { 14 };
    size_t nonzero[2] = { 0, 0 };
    for (int bf = 0; bf < 2; bf++) {
        enum dtype act = bf ? DT_BF16 : DT_F32;
        struct weights w;
        weights_open(&w, bf ? DT_BF16 : DT_F32, 48, 6, &rng, true);
        for (size_t i = 0; i < 48 * 6; i++)
            act_put(w.type, w.src, i, rng_normal(&rng) * 0x1p-66f);
        mat_pack(&w.mat, 0, 48, w.src, w.type);
        void *x = must_alloc(7 * 6 * 4);
        for (size_t i = 0; i < 42; i++)
            act_put(act, x, i, rng_normal(&rng) * 0x1p-64f);
        float *d = dots(act, x, 6, 7, &w), before[7 * 48] = { 0 };
        for (size_t i = 0; i < 7 * 48; i++)
            nonzero[bf] += d[i] != 0;
        FOR_TWINS(o)
            call_is_exact(o, act, x, 6, &w, d, NULL, before, &(struct call){ 7, 0, 3, 48, false, false });
        free(x), free(d);
        weights_close(&w);
    }
    CHECK(nonzero[0] > 300 && nonzero[1] == 0, "%zu, %zu not zero", nonzero[0], nonzero[1]);
}

static void matmul_is_near_the_exact_product(void)
{
    struct rng rng = { 15 };
    for (size_t t = 0; t < N_KINDS; t++) {
        size_t n = 100, k = 777, m = 9, ldx = 778;
        struct weights w;
        weights_open(&w, kinds[t].weights, n, k, &rng, true);
        void *x = inputs(kinds[t].act, m, k, ldx, &rng, true);
        float *y = must_alloc(m * n * sizeof *y), *bias = must_alloc(n * sizeof *bias);
        double worst = 0;
        for (size_t j = 0; j < n; j++) bias[j] = rng_normal(&rng);
        ops_all[0]->matmul(y, n, kinds[t].act, x, ldx, m, &w.mat, bias, false, 0, mat_panels(&w.mat));
        for (size_t r = 0; r < m; r++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0, mass = 0;
                for (size_t i = 0; i < k; i++) {
                    double p = (double)act_get(kinds[t].act, x, r * ldx + i) * (double)weight(&w, j * k + i);
                    sum += p, mass += fabs(p);
                }
                double bound = (double)k * 0x1p-24 * mass + 2 * (double)k * 0x1p-126 +
                               0x1p-24 * fabs(sum + (double)bias[j]);
                CHECK(near((double)y[r * n + j], sum + (double)bias[j], bound, 0),
                      "kind %zu row %zu column %zu: %g, exact %g, bound %g", t, r, j, (double)y[r * n + j],
                      sum, bound);
                worst = fmax(worst, fabs((double)y[r * n + j] - sum - (double)bias[j]) / bound);
            }
        printf("    act %d weights %d: worst error %.3f of the bound\n", kinds[t].act, kinds[t].weights,
               worst);
        free(x), free(y), free(bias);
        weights_close(&w);
    }
}

/* Another order of summation gives another number, so the comparisons of these tests can fail. */
static void matmul_order_matters(void)
{
    struct rng rng = { 16 };
    size_t n = 64, k = 256, changed = 0;
    struct weights w;
    weights_open(&w, DT_BF16, n, k, &rng, true);
    void *x = inputs(DT_BF16, 1, k, k, &rng, true);
    float y[64], z[64];
    ops_all[0]->matmul(y, n, DT_BF16, x, k, 1, &w.mat, NULL, false, 0, 4);
    for (size_t i = 0; i < k / 2; i++) {  /* k in reverse order on both sides: mathematically the same sum */
        uint16_t *p = x, t = p[i];
        p[i] = p[k - 1 - i], p[k - 1 - i] = t;
        for (size_t j = 0; j < n; j++) {
            p = (uint16_t *)w.src + j * k, t = p[i];
            p[i] = p[k - 1 - i], p[k - 1 - i] = t;
        }
    }
    mat_pack(&w.mat, 0, n, w.src, DT_BF16);
    ops_all[0]->matmul(z, n, DT_BF16, x, k, 1, &w.mat, NULL, false, 0, 4);
    for (size_t j = 0; j < n; j++) {
        changed += ref_bits(y[j]) != ref_bits(z[j]);
        CHECK(near((double)z[j], (double)y[j], 1e-3, 1e-3));
    }
    CHECK(changed > n / 4, "%zu of %zu", changed, n);
    free(x);
    weights_close(&w);
}

int main(void)
{
    RUN(matmul_every_row_count_is_exact);
    RUN(matmul_shapes_are_exact);
    RUN(matmul_bias_and_add);
    RUN(matmul_flushes_bf16_only);
    RUN(matmul_is_near_the_exact_product);
    RUN(matmul_order_matters);
    return test_end();
}
