/* The other operations of the table: rows, selection, conversions, packing, angles, and the choice of a twin.
 * Every twin equals plain C bit for bit (NaN equals NaN). Plain C is near a double-precision reference; each
 * test states its bound. The program ends with the names of the twins that this machine cannot run. */
#include "tests/kv_get.h"
#include "tests/reference.h"
#include "tests/test.h"

static const enum dtype acts[] = { DT_BF16, DT_F32 };

/* ---- rows ---- */

/* sum: dim/16 + 4 roundings of positive terms. Division, + eps, sqrt, 1/x and two products add 8 roundings,
 * of which those under the root count half. So |y - want| <= (dim/32 + 8) * 2^-24 |want|, then the rounding
 * to act. */
static void rmsnorm_twins_and_reference(void)
{
    struct rng rng = { 41 };
    for (int k = 0; k < 400; k++) {
        size_t dim = k < 80 ? 1 + (size_t)k : 1 + rng_below(&rng, 700), m = 1 + rng_below(&rng, 4),
               ldx = dim + rng_below(&rng, 5), ldy = dim + rng_below(&rng, 5);
        enum dtype act = acts[k & 1];
        bool plain = k % 4 < 2;
        float *x = must_alloc(m * ldx * 4), *w = must_alloc(dim * 4), eps = k % 3 ? 1e-6f : 1e-5f;
        for (size_t i = 0; i < m * ldx; i++)
            x[i] = i % ldx >= dim ? NAN : plain ? rng_normal(&rng) * (k % 5 ? 1 : 1e-4f) : rng_awkward(&rng);
        for (size_t i = 0; i < dim; i++) w[i] = plain ? 1 + rng_normal(&rng) : rng_awkward(&rng);
        size_t count = (m - 1) * ldy + dim, bytes = count * dtype_size(act);
        char *want = NULL;
        FOR_TWINS(o) {
            char *y = guard_alloc(bytes);
            o->rmsnorm(y, ldy, act, x, ldx, w, m, dim, eps);
            CHECK(guard_intact(y, bytes), "%s", o->name);
            for (size_t r = 0; r + 1 < m; r++)
                for (size_t i = (r * ldy + dim) * dtype_size(act); i < (r + 1) * ldy * dtype_size(act); i++)
                    CHECK((unsigned char)y[i] == 0xa5, "%s: gap written", o->name);
            if (want) {
                CHECK(act_differ(act, want, y, count) == count, "%s dim %zu", o->name, dim);
                guard_free(y);
            } else
                want = y;
        }
        for (size_t r = 0; r < m && plain; r++) {
            double sum = 0;
            for (size_t i = 0; i < dim; i++) sum += (double)x[r * ldx + i] * (double)x[r * ldx + i];
            for (size_t i = 0; i < dim; i++) {
                double v = (double)x[r * ldx + i] / sqrt(sum / (double)dim + (double)eps) * (double)w[i];
                float got = act_get(act, want, r * ldy + i);
                CHECK(act_near(act, got, v, ((double)dim / 32 + 8) * 0x1p-24 * fabs(v) + 1e-37),
                      "dim %zu: %g, reference %g", dim, (double)got, v);
            }
        }
        guard_free(want), free(x), free(w);
    }
}

/* y may be x: heads are normalised in place. */
static void rmsnorm_in_place(void)
{
    struct rng rng = { 54 };
    for (size_t dim = 1; dim < 150; dim++) {
        float x[150], y[150], w[150];
        for (size_t i = 0; i < dim; i++) x[i] = rng_awkward(&rng), w[i] = rng_normal(&rng);
        FOR_TWINS(o) {
            o->rmsnorm(y, dim, DT_F32, x, dim, w, 1, dim, 1e-6f);
            float z[150];
            memcpy(z, x, sizeof z);
            o->rmsnorm(z, dim, DT_F32, z, dim, w, 1, dim, 1e-6f);
            CHECK(act_differ(DT_F32, y, z, dim) == dim, "%s dim %zu", o->name, dim);
        }
    }
}

/* Values of g and u for which silu is ordinary, saturated, overflowing, or not finite. */
static float swiglu_input(struct rng *rng)
{
    switch (rng_next(rng) & 3) {
    case 0: return rng_normal(rng) * 40;
    case 1: return rng_awkward(rng);
    default: return rng_normal(rng) * 4;
    }
}
/* exp2 has 1.6e-7; the product before it |g| log2e 2^-24 absolute (gelu: four roundings of its argument);
 * + 1, quotient and product add 3 roundings. */
static void gates_in_twins_and_reference(bool gelu, uint64_t seed)
{
    struct rng rng = { seed };
    for (int k = 0; k < 300; k++) {
        size_t n = 1 + rng_below(&rng, k < 200 ? 70 : 3000);
        enum dtype act = acts[k & 1];
        float *g = must_alloc(n * 4), *u = must_alloc(n * 4);
        for (size_t i = 0; i < n; i++) g[i] = swiglu_input(&rng), u[i] = swiglu_input(&rng);
        void *want = NULL;
        FOR_TWINS(o) {
            void *y = guard_alloc(n * dtype_size(act));
            (gelu ? o->geglu : o->swiglu)(y, act, g, u, n);
            CHECK(guard_intact(y, n * dtype_size(act)), "%s", o->name);
            if (want) {
                size_t at = act_differ(act, want, y, n);
                CHECK(at == n, "%s: g %a u %a", o->name, (double)g[at], (double)u[at]);
                guard_free(y);
            } else
                want = y;
        }
        for (size_t i = 0; i < n; i++) {
            double x = g[i], z = gelu ? 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x) : x,
                   v = x / (1 + exp(-z)) * (double)u[i];
            if (!isfinite(g[i]) || !isfinite(u[i]) || !(fabs(v) < 1e38))
                continue;
            float got = act_get(act, want, i);
            double e = (fabs(z) * (gelu ? 4 : 1.5) + 8) * 0x1p-24 * fabs(v) +
                       (fabs(z) > 85 ? 1e-35 * (1 + fabs((double)u[i])) : 0) + 2e-38;
            CHECK(act_near(act, got, v, e), "%s(%g) * %g = %g, reference %g", gelu ? "gelu" : "silu", x,
                  (double)u[i], (double)got, v);
        }
        guard_free(want), free(g), free(u);
    }
}

static void swiglu_twins_and_reference(void) { gates_in_twins_and_reference(false, 42); }
static void geglu_twins_and_reference(void) { gates_in_twins_and_reference(true, 44); }

/* Two products and one sum, each rounded: the definition itself is the reference. */
static void rope_is_as_written(void)
{
    struct rng rng = { 43 };
    for (size_t dim = 2; dim <= 256; dim += 2) {
        float *c = must_alloc(dim * 2), *s = must_alloc(dim * 2), *x = must_alloc(dim * 4),
              *want = must_alloc(dim * 4);
        size_t half = dim / 2;
        for (size_t i = 0; i < half; i++) {
            double a = (double)rng_normal(&rng) * 100;
            c[i] = (float)cos(a), s[i] = (float)sin(a);
        }
        for (size_t i = 0; i < dim; i++) x[i] = rng_awkward(&rng);
        for (size_t i = 0; i < half; i++) {
            volatile float a = x[i] * c[i], b = x[i + half] * s[i], d = x[i + half] * c[i], e = x[i] * s[i];
            want[i] = a - b, want[i + half] = d + e;
        }
        FOR_TWINS(o) {
            float *y = guard_alloc(dim * 4);
            memcpy(y, x, dim * 4);
            o->rope(y, c, s, dim);
            CHECK(guard_intact(y, dim * 4) && act_differ(DT_F32, want, y, dim) == dim, "%s dim %zu", o->name,
                  dim);
            guard_free(y);
        }
        free(c), free(s), free(x), free(want);
    }
}
static void round_is_as_written(void)
{
    struct rng rng = { 44 };
    for (int k = 0; k < 200; k++) {
        size_t n = rng_below(&rng, 200) + (k < 4 ? 0 : 1);
        enum dtype act = acts[k & 1];
        float *x = must_alloc(n * 4), scale = k % 3 ? 0.18033688f : 1;
        void *want = must_alloc(n * 4);
        for (size_t i = 0; i < n; i++) {
            x[i] = rng_awkward(&rng);
            volatile float v = x[i] * scale;
            act_put(act, want, i, v);
        }
        FOR_TWINS(o) {
            void *y = guard_alloc(n * dtype_size(act));
            o->round(y, act, x, scale, n);
            CHECK(guard_intact(y, n * dtype_size(act)) && act_differ(act, want, y, n) == n, "%s n %zu",
                  o->name, n);
            guard_free(y);
        }
        free(x), free(want);
    }
}
static void finite_finds_every_place(void)
{
    static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff };
    struct rng rng = { 45 };
    float x[300];
    for (size_t i = 0; i < 300; i++) x[i] = rng_finite(&rng);
    x[7] = FLT_MAX, x[9] = -FLT_MAX, x[11] = -0.0f;
    FOR_TWINS(o) {
        CHECK(o->finite(x, 0));
        for (size_t n = 1; n <= 300; n += n < 70 ? 1 : 23) {
            CHECK(o->finite(x, n), "%s n %zu", o->name, n);
            for (size_t at = 0; at < n; at++) {
                float kept = x[at];
                x[at] = ref_float(bad[at % 5]);
                CHECK(!o->finite(x, n), "%s n %zu at %zu", o->name, n, at);
                CHECK(o->finite(x, at), "%s reads past the end", o->name);
                x[at] = kept;
            }
        }
    }
}

/* ---- selection ---- */

/* A row of logits: floats and -inf, with ties. */
static void logits(float *x, size_t n, struct rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t u = rng_next(rng);
        x[i] = u % 17 == 0 ? -INFINITY : u % 5 == 0 ? (float)(int)(u >> 60) - 8 : rng_normal(rng) * 4;
    }
    x[rng_below(rng, n)] = 7.5f;                                   /* never all -inf */
}
static void argmax_is_the_first_largest(void)
{
    struct rng rng = { 46 };
    for (int k = 0; k < 600; k++) {
        size_t n = k < 200 ? 1 + (size_t)k : 1 + rng_below(&rng, 5000), want = 0;
        float *x = must_alloc(n * 4);
        logits(x, n, &rng);
        /* the largest value occurs several times; zeros of both signs are equal */
        if (k % 3 == 0)
            for (int j = 0; j < 4; j++) x[rng_below(&rng, n)] = 9;
        if (k % 7 == 0)
            for (size_t i = 0; i < n; i++) x[i] = x[i] > 0 ? (i & 1 ? -0.0f : 0.0f) : x[i];
        for (size_t i = 1; i < n; i++)
            if (x[i] > x[want]) want = i;
        FOR_TWINS(o)
            CHECK(o->argmax(x, n) == want, "%s n %zu: %zu, want %zu", o->name, n, o->argmax(x, n), want);
        free(x);
    }
}
static void logits_are_processed_as_written(void)
{
    struct rng rng = { 47 };
    for (int k = 0; k < 200; k++) {
        size_t n = 1 + rng_below(&rng, 1500);
        float *x = must_alloc(n * 4), *want = must_alloc(n * 4), t = k % 4 == 0 ? 1e-30f : k % 4 == 1 ? 0.7f
            : k % 4 == 2 ? 1e-42f : 1.3f;
        logits(x, n, &rng);
        float cut = x[rng_below(&rng, n)];
        FOR_TWINS(o)
            for (int op = 0; op < 3; op++) {
                float *y = guard_alloc(n * 4);
                memcpy(y, x, n * 4);
                for (size_t i = 0; i < n; i++) {
                    float v = x[i] / t;
                    v = v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : v;
                    want[i] = op == 0 ? (x[i] < -FLT_MAX ? x[i] : v) : op == 1 ? (x[i] >= cut ? x[i]
                        : -INFINITY) : x[i] == cut ? -INFINITY : x[i];
                }
                if (op == 0) o->temper(y, n, t);
                else if (op == 1) o->cut_below(y, n, cut);
                else o->cut_equal(y, n, cut);
                CHECK(guard_intact(y, n * 4) && act_differ(DT_F32, want, y, n) == n, "%s op %d n %zu",
                      o->name, op, n);
                guard_free(y);
            }
        free(x), free(want);
    }
}
static void between_lists_and_counts(void)
{
    struct rng rng = { 48 };
    for (int k = 0; k < 200; k++) {
        size_t n = 1 + rng_below(&rng, 3000), count = 0;
        float *x = must_alloc(n * 4);
        logits(x, n, &rng);
        float lo = k % 3 ? x[rng_below(&rng, n)] : 6, hi = k % 2 ? INFINITY : lo + 1;
        for (size_t i = 0; i < n; i++) count += x[i] >= lo && x[i] <= hi;
        FOR_TWINS(o) {
            uint32_t *at = guard_alloc(count * 4);
            size_t got = o->between(at, count, x, n, lo, hi), j = 0;
            CHECK(got == count && guard_intact(at, count * 4), "%s", o->name);
            for (size_t i = 0; i < n && got == count; i++)
                if (x[i] >= lo && x[i] <= hi)
                    CHECK(at[j++] == i, "%s", o->name);
            if (count)
                CHECK(o->between(at, count - 1, x, n, lo, hi) == SIZE_MAX && guard_intact(at, count * 4),
                      "%s: full", o->name);
            guard_free(at);
        }
        free(x);
    }
}
/* Weights are whole numbers: exp(x - top) * 2^43 rounded. The bound is one unit for each weight. */
static void tally_and_moments_weigh(void)
{
    struct rng rng = { 49 };
    for (int k = 0; k < 60; k++) {
        size_t n = 1 + rng_below(&rng, 4000);
        float *x = must_alloc(n * 4), top = -INFINITY, per_unit = k % 2 ? 100 : 16;
        logits(x, n, &rng);
        for (size_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
        float cut = k % 3 ? -INFINITY : top - 3;
        uint64_t want[2][SELECT_BUCKETS], hist[SELECT_BUCKETS], sum0[2], count[SELECT_BUCKETS] = { 0 };
        double weight[SELECT_BUCKETS] = { 0 }, s[2] = { 0 };
        for (size_t i = 0; i < n; i++)
            if (x[i] >= cut) {
                float b = (top - x[i]) * per_unit;
                size_t at = b < SELECT_BUCKETS - 1 ? (size_t)b : SELECT_BUCKETS - 1;
                double w = exp((double)x[i] - (double)top);
                count[at]++, weight[at] += w, s[0] += w;
                if (w > 0) s[1] += w * ((double)top - (double)x[i]);
            }
        FOR_TWINS(o) {
            for (int weighted = 0; weighted < 2; weighted++) {
                memset(hist, 0, sizeof hist);
                o->tally(hist, x, n, top, cut, per_unit, weighted);
                if (o == ops_all[0]) memcpy(want[weighted], hist, sizeof hist);
                CHECK(!memcmp(want[weighted], hist, sizeof hist), "%s weighted %d", o->name, weighted);
                for (size_t b = 0; b < SELECT_BUCKETS && o == ops_all[0]; b++)
                    CHECK(weighted ? fabs((double)hist[b] - weight[b] * (double)WEIGHT_ONE) <=
                                         (double)count[b] * 1.01 + weight[b] * (double)WEIGHT_ONE * 1e-14
                                   : hist[b] == count[b],
                          "bucket %zu", b);
            }
            uint64_t *w = guard_alloc(n * 8);
            o->weigh(w, x, n, top);
            CHECK(guard_intact(w, n * 8), "%s", o->name);
            for (size_t i = 0; i < n; i++)
                CHECK(fabs((double)w[i] - exp((double)x[i] - (double)top) * (double)WEIGHT_ONE) <=
                          0.51 + 1e-14 * (double)w[i],
                      "%s weight %zu", o->name, i);
            guard_free(w);
            uint64_t sum[2] = { 5, 7 };                        /* the operation adds to these */
            o->moments(sum, x, n, top, cut);
            if (o == ops_all[0]) memcpy(sum0, sum, sizeof sum);
            CHECK(!memcmp(sum0, sum, sizeof sum), "%s moments", o->name);
            for (int j = 0; j < 2; j++)
                CHECK(fabs((double)(sum[j] - (j ? 7 : 5)) - s[j] * (double)WEIGHT_ONE) <=
                          (double)n * 1.01 + s[j] * (double)WEIGHT_ONE * 1e-12,
                      "%s moment %d", o->name, j);
        }
        free(x);
    }
}
static void coin_bounds_twins_agree(void)
{
    struct rng rng = { 50 };
    for (int k = 0; k < 300; k++) {
        size_t n = k % 3 ? 1 + rng_below(&rng, COIN_BLOCK) : COIN_BLOCK;
        float x[COIN_BLOCK], want[COIN_BLOCK], best = 0;
        uint32_t ids[COIN_BLOCK], first = 2 * (uint32_t)rng_below(&rng, 80000);
        struct coin_key key = { rng_next(&rng), rng_next(&rng) >> (k % 40), (uint32_t)k };
        logits(x, n, &rng);
        for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)rng_below(&rng, 200000);
        FOR_TWINS(o) {
            float *u = guard_alloc(n * 4), b = o->coin_bounds(u, x, k & 1 ? ids : NULL, first, n, &key, 8),
                  most = -INFINITY;
            if (o == ops_all[0]) memcpy(want, u, n * 4), best = b;
            for (size_t i = 0; i < n; i++) most = u[i] > most ? u[i] : most;
            CHECK(guard_intact(u, n * 4) && act_differ(DT_F32, want, u, n) == n &&
                      ref_bits(b) == ref_bits(best) && b == most,
                  "%s n %zu", o->name, n);
            guard_free(u);
        }
        if (!(k & 1)) {                                    /* a block of ids equals a list of the same ids */
            float u[COIN_BLOCK];
            for (size_t i = 0; i < n; i++) ids[i] = first + (uint32_t)i;
            ops_all[0]->coin_bounds(u, x, ids, 0, n, &key, 8);
            CHECK(act_differ(DT_F32, want, u, n) == n);
            key.position ^= 1;                             /* control */
            ops_all[0]->coin_bounds(u, x, ids, 0, n, &key, 8);
            CHECK(act_differ(DT_F32, want, u, n) < n || n < 3);
        }
    }
}

/* ---- conversions, all 2^16 of them, and the classes of float ---- */

static void sixteen_bits_to_float_exhaustive(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float b = bf16_to_f32((uint16_t)h), f = f16_to_f32((uint16_t)h), r = ref_f16((uint16_t)h);
        CHECK(ref_bits(b) == h << 16, "bf16 %04x", h);
        CHECK(isnan(r) ? isnan(f) : ref_bits(f) == ref_bits(r), "f16 %04x: %a", h, (double)f);
        uint16_t back = f32_to_bf16(b);
        bool denormal = !(h & 0x7f80), nan = (h & 0x7fff) > 0x7f80;
        CHECK(nan ? ref_nan_bits((uint32_t)back << 16) : back == (denormal ? (h & 0x8000) : h),
              "bf16 %04x -> %04x", h, back);
    }
}
static void float_to_bf16_rounds_to_nearest_even(void)
{
    /* every upper half, with the lower halves at the borders */
    static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1234, 0xabcd };
    for (uint32_t h = 0; h < 65536; h++)
        for (size_t i = 0; i < 8; i++) {
            uint32_t u = h << 16 | low[i];
            float x = ref_float(u);
            uint16_t got = f32_to_bf16(x);
            if (isnan(x)) {
                CHECK(ref_nan_bits((uint32_t)got << 16), "%08x -> %04x", u, got);
                continue;
            }
            if (!(u & 0x7f800000)) {
                CHECK(got == (h & 0x8000), "denormal %08x -> %04x", u, got);
                continue;
            }
            /* The result is the nearer of the two neighbours, with distances in double; a tie goes to the
             * even neighbour. */
            double v = x, a = (double)ref_float(u & 0xffff0000),
                   b = (u & 0x7fff0000) == 0x7f7f0000 ? copysign(0x1p128, v)
                                                      : (double)ref_float((u & 0xffff0000) + 0x10000);
            bool up = isinf(v) ? false : fabs(b - v) < fabs(v - a) || (fabs(b - v) == fabs(v - a) && (h & 1));
            CHECK(got == (uint16_t)(h + up), "%08x -> %04x", u, got);
        }
}

/* ---- packing ---- */

static void mat_layout_is_as_documented(void)
{
    struct rng rng = { 51 };
    static const enum dtype pairs[][2] = { { DT_BF16, DT_BF16 }, { DT_BF16, DT_F16 }, { DT_BF16, DT_F32 },
                                           { DT_F16, DT_F16 },
                                           { DT_F32, DT_F32 }, { DT_F32, DT_BF16 }, { DT_F32, DT_F16 } };
    for (size_t t = 0; t < 7; t++)
        for (int k = 0; k < 40; k++) {
            struct mat m = { pairs[t][0], 1 + rng_below(&rng, 70), 1 + rng_below(&rng, 40), NULL };
            enum dtype from = pairs[t][1];
            size_t bytes = mat_bytes(&m), es = dtype_size(m.type), cells = bytes / es;
            char *src = must_alloc(m.n * m.k * 4), *seen = must_alloc(cells);
            m.w = guard_alloc(bytes);
            memset(m.w, 0, bytes);
            for (size_t i = 0; i < m.n * m.k; i++) {
                /* every 16-bit pattern, NaN and denormals too */
                uint16_t h = (uint16_t)rng_next(&rng);
                float x = rng_awkward(&rng);
                memcpy(src + i * dtype_size(from), from == DT_F32 ? (void *)&x : (void *)&h,
                       dtype_size(from));
            }
            for (size_t r = 0, step; r < m.n; r += step) {     /* in pieces */
                step = 1 + rng_below(&rng, m.n - r);
                mat_pack(&m, r, step, src + r * m.k * dtype_size(from), from);
            }
            CHECK(guard_intact(m.w, bytes));
            for (size_t r = 0; r < m.n; r++) {
                float *row = guard_alloc(m.k * 4);
                mat_row(&m, r, row);
                CHECK(guard_intact(row, m.k * 4));
                for (size_t j = 0; j < m.k; j++) {
                    const char *s = src + (r * m.k + j) * dtype_size(from);
                    uint16_t h, stored16;
                    float x, stored;
                    memcpy(&h, s, 2);
                    if (from == DT_F32) memcpy(&x, s, 4);
                    else x = from == DT_F16 ? ref_f16(h) : ref_bf16(h);
                    size_t at = r / 16 * ((m.k + 1) / 2 * 2 * 16) +
                                (m.type == DT_BF16 ? j / 2 * 32 + r % 16 * 2 + j % 2 : j * 16 + r % 16);
                    seen[at] = 1;
                    memcpy(&stored16, (char *)m.w + at * es, 2);
                    memcpy(&stored, (char *)m.w + at * es, es == 4 ? 4 : 2);
                    float want = m.type == DT_BF16 && from != DT_BF16 ? ref_bf16(ref_to_bf16(x)) : x;
                    float is = m.type == DT_F32   ? stored
                               : m.type == DT_F16 ? ref_f16(stored16)
                                                  : ref_bf16(stored16);
                    CHECK(act_differ(DT_F32, &is, &want, 1) == 1, "types %d from %d: (%zu, %zu)", m.type,
                          from, r, j);
                    CHECK(act_differ(DT_F32, &row[j], &want, 1) == 1, "mat_row: types %d from %d: (%zu, %zu)",
                          m.type, from, r, j);
                    if (m.type == from && es == 2)
                        CHECK(stored16 == h, "bits change");
                }
                guard_free(row);
            }
            for (size_t i = 0; i < cells; i++)                 /* padding is +0 */
                for (size_t b = 0; b < es && !seen[i]; b++)
                    CHECK(((char *)m.w)[i * es + b] == 0);
            guard_free(m.w), free(src), free(seen);
        }
}
static void kv_layout_is_as_documented(void)
{
    struct rng rng = { 52 };
    for (size_t t = 0; t < 2; t++)
        for (size_t d = 16; d <= 128; d += 16) {
            enum dtype type = acts[t];
            size_t es = dtype_size(type), bytes = kv_block_bytes(type, d), row = 2 * d * es;
            CHECK(bytes == 64 * row);
            char *block = guard_alloc(bytes), *stored = must_alloc(64 * row), *back = guard_alloc(row);
            float *k = must_alloc(d * 4), *v = must_alloc(d * 4);
            memset(block, 0, bytes);
            for (size_t i = 0; i < 64; i++) {
                size_t slot = i * 37 % 64;
                for (size_t j = 0; j < d; j++) k[j] = rng_awkward(&rng), v[j] = rng_awkward(&rng);
                char *one = guard_alloc(row);
                kv_store(one, type, k, v, d);
                CHECK(guard_intact(one, row));
                for (size_t j = 0; j < d; j++) {
                    float a = act_get(type, one, j), b = act_get(type, one, d + j),
                          wa = act_round(type, k[j]), wb = act_round(type, v[j]);
                    CHECK(act_differ(DT_F32, &a, &wa, 1) && act_differ(DT_F32, &b, &wb, 1),
                          "slot %zu dim %zu", slot, j);
                }
                memcpy(stored + slot * row, one, row);
                kv_put(block, type, d, slot, one);
                guard_free(one);
            }
            CHECK(guard_intact(block, bytes));
            for (size_t slot = 0; slot < 64; slot++) {
                kv_get(back, type, d, slot, block);
                CHECK(guard_intact(back, row) && !memcmp(back, stored + slot * row, row),
                      "type %d dim %zu slot %zu", type, d, slot);
                for (size_t j = 0; j < d; j++) {
                    size_t ka = type == DT_BF16 ? (j / 2 * 64 + slot) * 2 + j % 2 : j * 64 + slot;
                    size_t va = 64 * d + (type == DT_BF16 ? (slot / 2 * d + j) * 2 + slot % 2 : slot * d + j);
                    CHECK(!memcmp(block + ka * es, stored + slot * row + j * es, es) &&
                              !memcmp(block + va * es, stored + slot * row + (d + j) * es, es),
                          "type %d dim %zu slot %zu element %zu", type, d, slot, j);
                }
            }
            guard_free(block), free(stored), guard_free(back), free(k), free(v);
        }
}

/* Forms of 8 and 4 bits: a stored row is near the row, comes back from its slot, and its sums are exact. */
static void kv_rows_of_few_bits(void)
{
    struct rng rng = { 58 };
    for (size_t t = 0; t < 2; t++)
        for (size_t d = 16; d <= 272; d += 64) {
            const enum dtype type = t ? DT_I4 : DT_I8;
            const size_t row = kv_row_bytes(type, d);
            char *block = calloc(1, kv_block_bytes(type, d)), *one = guard_alloc(row),
                 *back = guard_alloc(row);
            float x[2 * 272], k[272] = { 0 }, v[272] = { 0 }, top[2] = { 0 };
            for (size_t i = 0; i < 2 * d; i++)
                x[i] = rng_normal(&rng) * 3, top[i >= d] = fmaxf(top[i >= d], fabsf(x[i]));
            kv_store(one, type, x, x + d, d);
            kv_put(block, type, d, 37, one);
            kv_get(back, type, d, 37, block);
            CHECK(guard_intact(one, row) && guard_intact(back, row) && !memcmp(one, back, row), "dim %zu", d);
            kv_sum(k, v, type, d, block, 37, 38);
            double error = 0, all = 0;
            for (size_t i = 0; i < 2 * d; i++) {
                const double got = ref_row_at(one, type, d, i), most = i >= d && t ? 7 : 127;
                CHECK((float)got == (i < d ? k[i] : v[i - d]), "dim %zu element %zu", d, i);
                CHECK(most == 7 || fabs(got - (double)x[i]) <= 0.501 * (double)top[i >= d] / most,
                      "%s dim %zu element %zu: %g, not %g", kv_type_name(type), d, i, got, (double)x[i]);
                error += i < d ? 0 : (got - (double)x[i]) * (got - (double)x[i]);
                all += i < d ? 0 : (double)x[i] * (double)x[i];
            }
            CHECK(error < all * (t ? 0.02 : 1e-4), "%s dim %zu: error %g", kv_type_name(type), d,
                  error / all);
            free(block), guard_free(one), guard_free(back);
        }
}
/* `rotate` is the matrix whose element is -1 to the power of the common bits of its indices, and 1/n times it
 * is its inverse. All twins have the same bits. */
static void rotation_is_hadamards(void)
{
    struct rng rng = { 59 };
    for (size_t d = 16; d <= 512; d += d < 128 ? 16 : 128) {
        const size_t n = kv_rotation(d);
        float x[512], want[512], y[512];
        for (size_t i = 0; i < d; i++) x[i] = want[i] = rng_normal(&rng);
        ops_all[0]->rotate(want, d, 1);
        for (size_t i = 0; i < d; i++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += (double)x[i / n * n + k] * (__builtin_parityl(k & i % n) ? -1 : 1);
            CHECK(fabs(sum - (double)want[i]) < 1e-6 * (double)n, "dim %zu element %zu", d, i);
        }
        FOR_TWINS(o) {
            memcpy(y, x, sizeof y);
            o->rotate(y, d, 1);
            CHECK(!memcmp(y, want, d * sizeof *y), "%s dim %zu", o->name, d);
            o->rotate(y, d, 1 / (float)n);
            for (size_t i = 0; i < d; i++)
                CHECK(fabsf(y[i] - x[i]) < 1e-5f, "%s dim %zu: not the inverse", o->name, d);
        }
    }
}

/* Rows of one block go to slots of another block; nothing else of it changes. */
static void kv_rows_are_copied(void)
{
    struct rng rng = { 57 };
    const enum dtype types[] = { DT_F32, DT_BF16, DT_I16, DT_I8, DT_I4 };
    for (size_t i = 0; i < 5; i++)
        for (size_t d = 16; d <= 144; d += 32) {
            const size_t bytes = kv_block_bytes(types[i], d), row = kv_row_bytes(types[i], d);
            char *from = guard_alloc(bytes), *to = guard_alloc(bytes), *want = malloc(bytes),
                 *one = malloc(row);
            for (size_t round = 0; round < 300; round++) {
                const size_t n = 1 + rng_below(&rng, round % 2 ? 64 : 5), at = rng_below(&rng, 65 - n),
                             slot = rng_below(&rng, 65 - n);
                for (size_t b = 0; b < bytes; b++)
                    from[b] = (char)rng_below(&rng, 256), to[b] = (char)rng_below(&rng, 256);
                memcpy(want, to, bytes);
                for (size_t r = 0; r < n; r++) {
                    kv_get(one, types[i], d, at + r, from);
                    kv_put(want, types[i], d, slot + r, one);
                }
                kv_copy(to, slot, from, at, n, types[i], d);
                CHECK(!memcmp(to, want, bytes), "type %d dim %zu: %zu rows from %zu to %zu", types[i], d, n,
                      at, slot);
            }
            CHECK(guard_intact(from, bytes) && guard_intact(to, bytes));
            guard_free(from), guard_free(to), free(want), free(one);
        }
}

/* ---- angles ---- */

/* The angle is the float product. Its sine and cosine are rounded to float once (2^-24 relative), and again
 * after the factor. Double arithmetic adds 1e-13 absolute up to 2^20, whose last place the reduction
 * keeps. */
static void rope_angles_are_near_long_double(void)
{
    struct rng rng = { 53 };
    float c[64], s[64], f[64];
    double worst = 0;
    for (int k = 0; k < 40000; k++) {
        size_t pos = k < 300   ? (size_t)k
                     : k < 400 ? 131072u * 8 - (size_t)(k - 300)
                               : rng_below(&rng, 131072 * 8 + 1);
        float factor = k % 3 ? 1 : 1.2772589f;
        for (size_t i = 0; i < 64; i++)
            f[i] = i == 0 ? 1 : (float)exp2(-20.0 * (double)(rng_next(&rng) >> 11) * 0x1p-53);
        rope_angles(c, s, pos, f, 64, factor);
        for (size_t i = 0; i < 64; i++) {
            volatile float angle = (float)pos * f[i];
            double wc = (double)(cosl((long double)angle) * (long double)factor),
                   ws = (double)(sinl((long double)angle) * (long double)factor);
            CHECK(near((double)c[i], wc, 1e-13, 0x1.01p-23) && near((double)s[i], ws, 1e-13, 0x1.01p-23),
                  "position %zu angle %a: %a %a, want %a %a", pos, (double)angle, (double)c[i], (double)s[i],
                  wc, ws);
            worst = fmax(worst, fmax(fabs((double)c[i] - wc), fabs((double)s[i] - ws)));
        }
    }
    printf("    worst absolute error %.3g\n", worst);
    rope_angles(c, s, 0, f, 64, 1);
    CHECK(c[5] == 1 && s[5] == 0);
}

/* ---- choice of a twin ---- */

static void isa_is_selected_by_name(void)
{
    const char *why = NULL;
    FOR_TWINS(o) {
        setenv("LONGHAND_ISA", o->name, 1);
        CHECK(ops_for_cpu(&why) == o, "%s", o->name);
    }
    for (const struct ops *const *t = ops_all; *t; t++)
        if (!(*t)->supported()) {
            setenv("LONGHAND_ISA", (*t)->name, 1);
            CHECK(!ops_for_cpu(&why) && why && *why, "%s", (*t)->name);
        }
    setenv("LONGHAND_ISA", "sse9", 1);
    why = NULL;
    CHECK(!ops_for_cpu(&why) && why && *why);
    unsetenv("LONGHAND_ISA");
    const struct ops *o = ops_for_cpu(&why);
    CHECK(o && o->supported());
    CHECK(!strcmp(ops_all[0]->name, "generic"), "%s", ops_all[0]->name);
}
/* Every table has every entry. */
static void tables_are_complete(void)
{
    for (const struct ops *const *t = ops_all; *t; t++) {
        const char *p = (const char *)*t;
        for (size_t i = 0; i < sizeof(struct ops); i += sizeof(void *)) {
            void *entry;
            memcpy(&entry, p + i, sizeof entry);
            CHECK(entry, "%s: entry %zu is NULL", (*t)->name, i / sizeof(void *));
        }
    }
}

int main(void)
{
    RUN(tables_are_complete);
    RUN(isa_is_selected_by_name);
    RUN(rmsnorm_twins_and_reference);
    RUN(rmsnorm_in_place);
    RUN(swiglu_twins_and_reference);
    RUN(geglu_twins_and_reference);
    RUN(rope_is_as_written);
    RUN(round_is_as_written);
    RUN(finite_finds_every_place);
    RUN(argmax_is_the_first_largest);
    RUN(logits_are_processed_as_written);
    RUN(between_lists_and_counts);
    RUN(tally_and_moments_weigh);
    RUN(coin_bounds_twins_agree);
    RUN(sixteen_bits_to_float_exhaustive);
    RUN(float_to_bf16_rounds_to_nearest_even);
    RUN(mat_layout_is_as_documented);
    RUN(kv_layout_is_as_documented);
    RUN(kv_rows_of_few_bits);
    RUN(rotation_is_hadamards);
    RUN(kv_rows_are_copied);
    RUN(rope_angles_are_near_long_double);
    for (const struct ops *const *t = ops_all; *t; t++)
        if (!(*t)->supported())
            printf("twin not run: %s\n", (*t)->name);
    return test_end();
}
