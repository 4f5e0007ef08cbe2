/* Products with quantised weights: every twin equals the definition of kernels/ops.h bit for bit, for every
 * type, number of rows, panel range, bias and add; under f32 it equals dot products with the decoded weights.
 * The packed form gives back the weights. */
#include "kernels/quant.h"
#include "tests/reference.h"
#include "tests/test.h"
#include "tests/quant_type.h"

enum { M_MAX = 70, GROUP = 256 };

static const enum dtype types[] = { DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0,   DT_Q2_K,
                                    DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL, DT_IQ4_XS,
                                    DT_MXFP4, DT_TQ1_0, DT_TQ2_0, DT_IQ2_XXS, DT_IQ2_XS,
                                    DT_IQ2_S, DT_IQ3_XXS, DT_IQ3_S, DT_IQ1_S, DT_IQ1_M,
                                    DT_Q1_0,  DT_Q2_0,  DT_NVFP4 };
enum { TYPES = sizeof types / sizeof *types };

/* ---- the definition ---- */

/* The parts of a block: numbers, scales and -minima of its sub-blocks. */
struct parts { int q[256], subs; float scale[16], minimum[16]; bool minima; };

static float half_at(const uint8_t *b, int at)
{
    uint16_t h;
    memcpy(&h, b + at, 2);
    return ref_f16(h);
}
static int nib(const uint8_t *b, int at, int e) { return b[at + e % 16] >> 4 * (e / 16) & 15; }
static int bit(const uint8_t *b, int at, int e) { return b[at + e / 8] >> e % 8 & 1; }
static const int iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

static const int fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static void parts_of_32(struct parts *p, enum dtype t, const uint8_t *b)
{
    p->subs = 1, p->minima = t == DT_Q4_1 || t == DT_Q5_1;
    p->scale[0] = t == DT_MXFP4 ? ldexpf(1, b[0] - 128) : half_at(b, 0);
    p->minimum[0] = p->minima ? half_at(b, 2) : 0;
    for (int e = 0; e < 32; e++)
        p->q[e] = t == DT_Q4_0   ? nib(b, 2, e) - 8
                  : t == DT_Q4_1 ? nib(b, 4, e)
                  : t == DT_Q5_0 ? (nib(b, 6, e) | bit(b, 2, e) << 4) - 16
                  : t == DT_Q5_1 ? nib(b, 8, e) | bit(b, 4, e) << 4
                  : t == DT_Q8_0 ? (int8_t)b[2 + e]
                  : t == DT_MXFP4 ? fp4[nib(b, 1, e)]
                                 : iq4[nib(b, 2, e)];
}

static void parts_of_256(struct parts *p, enum dtype t, const uint8_t *b)
{
    const int sub = t == DT_Q2_K || t == DT_Q3_K || t == DT_Q6_K ? 16 : 32;
    p->subs = 256 / sub, p->minima = t == DT_Q2_K || t == DT_Q4_K || t == DT_Q5_K;
    for (int s = 0; s < p->subs; s++) {
        const uint8_t *sc = b + (t == DT_Q3_K ? 96 : 4);
        if (t == DT_Q2_K) {
            p->scale[s] = half_at(b, 80) * (float)(b[s] & 15),
            p->minimum[s] = -half_at(b, 82) * (float)(b[s] >> 4);
        } else if (t == DT_Q3_K) {
            const int low = s < 8 ? sc[s] & 15 : sc[s - 8] >> 4, high = sc[8 + s % 4] >> 2 * (s / 4) & 3;
            p->scale[s] = half_at(b, 108) * (float)((low | high << 4) - 32);
        } else if (t == DT_Q6_K) {
            p->scale[s] = half_at(b, 208) * (float)(int8_t)b[192 + s];
        } else if (t == DT_IQ4_XS) {
            const int low = b[4 + s / 2] >> 4 * (s % 2) & 15, high = (b[2] | b[3] << 8) >> 2 * s & 3;
            p->scale[s] = half_at(b, 0) * (float)((low | high << 4) - 32);
        } else {
            const int a = s < 4 ? sc[s] & 63 : (sc[s + 4] & 15) | sc[s - 4] >> 6 << 4,
                      m = s < 4 ? sc[s + 4] & 63 : sc[s + 4] >> 4 | sc[s] >> 6 << 4;
            p->scale[s] = half_at(b, 0) * (float)a, p->minimum[s] = -half_at(b, 2) * (float)m;
        }
    }
    for (int e = 0; e < 256; e++) {
        const int h = e / 128, k = e % 128 / 32, l = e % 32, s = e / 32;
        const uint8_t *qs = b + (t == DT_Q5_K ? 48 : 16);
        p->q[e] = t == DT_Q2_K     ? b[16 + 32 * h + l] >> 2 * k & 3
                  : t == DT_Q3_K   ? (b[32 + 32 * h + l] >> 2 * k & 3) - (b[l] >> (4 * h + k) & 1 ? 0 : 4)
                  : t == DT_Q6_K   ? ((b[64 * h + 32 * (k % 2) + l] >> 4 * (k / 2) & 15) |
                                      (b[128 + 32 * h + l] >> 2 * k & 3) << 4) - 32
                  : t == DT_IQ4_XS ? iq4[nib(b, 8 + 16 * s, l)]
                                   : (qs[32 * (e / 64) + l] >> 4 * (s % 2) & 15) +
                                         (t == DT_Q5_K ? (b[16 + l] >> s & 1) * 16 : 0);
    }
}

/* Types whose weights are whole numbers times a scale, both exact: the numbers are quotients. */
static void parts_of_others(struct parts *p, enum dtype t, const uint8_t *b)
{
    float y[256];
    const int n = (int)dtype_block(t),
              sub = t == DT_IQ2_XS || t == DT_IQ2_S || t == DT_IQ1_M || t == DT_NVFP4 ? 16 : 32;
    const uint8_t m[2] = { b[49] >> 4 | (b[51] & 0xf0), b[53] >> 4 | (b[55] & 0xf0) };   /* IQ1_M */
    p->subs = n / sub;
    CHECK(quant_decode(y, t, b, (size_t)n));
    for (int s = 0; s < p->subs; s++)
        switch (t) {
        case DT_TQ1_0:   p->scale[s] = half_at(b, 52); break;
        case DT_TQ2_0:   p->scale[s] = half_at(b, 64); break;
        case DT_IQ2_XXS: p->scale[s] = half_at(b, 0) * (0.5f + (float)(b[9 + 8 * s] >> 4)) * 0.25f; break;
        case DT_IQ2_XS:
            p->scale[s] = half_at(b, 0) * (0.5f + (float)(b[66 + s / 2] >> 4 * (s % 2) & 15)) * 0.25f;
            break;
        case DT_IQ2_S:
            p->scale[s] = half_at(b, 0) * (0.5f + (float)(b[74 + s / 2] >> 4 * (s % 2) & 15)) * 0.25f;
            break;
        case DT_IQ3_XXS: p->scale[s] = half_at(b, 0) * (0.5f + (float)(b[69 + 4 * s] >> 4)) * 0.5f; break;
        case DT_IQ3_S:
            p->scale[s] = half_at(b, 0) * (float)(1 + 2 * (b[106 + s / 2] >> 4 * (s % 2) & 15));
            break;
        case DT_Q1_0: case DT_Q2_0: p->scale[s] = half_at(b, 0); break;
        case DT_NVFP4: {
            const int exponent = b[s] >> 3 & 15, part = b[s] & 7;
            p->scale[s] = b[s] == 0x7f ? 0
                          : exponent   ? ldexpf((float)(8 + part), exponent - 11)
                                       : ldexpf((float)part, -10);
            break;
        }
        case DT_IQ1_S:
            p->scale[s] = half_at(b, 0) * (float)(2 * (b[35 + 2 * s] >> 4 & 7) + 1) * 0.125f;
            break;
        default:
            p->scale[s] = half_at(m, 0) * 0.125f *
                          (float)(2 * ((b[48 + s / 4 * 2] | b[49 + s / 4 * 2] << 8) >> 3 * (s % 4) & 7) + 1);
        }
    for (int e = 0; e < n; e++) {
        const float q = p->scale[e / sub] ? y[e] / p->scale[e / sub] : 0;
        p->q[e] = (int)q;
        CHECK((float)p->q[e] == q);
    }
}

/* x as int16, with one scale for each group. */
static void quantised_x(int16_t *q, float *scale, const float *x, size_t k)
{
    for (size_t g = 0; g < k; g += GROUP) {
        const size_t end = g + GROUP < k ? g + GROUP : k;
        float top = 0, u;
        bool finite = true;
        for (size_t i = g; i < end; i++) {
            finite &= isfinite(x[i]) != 0;
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        }
        u = fmaxf(top / 32767, 0x1p-100f);
        scale[g / GROUP] = finite ? u : NAN;
        for (size_t i = g; i < end; i++)
            q[i] = finite ? (int16_t)nearbyintf(x[i] * (1.0f / u)) : 0;
    }
}

static float dot(enum dtype t, const uint8_t *row, const int16_t *x, const float *scale, size_t k)
{
    const size_t block = quant_type(t)->block, bytes = quant_type(t)->bytes;
    float acc = 0, c = 0;
    for (size_t at = 0; at < k; at += block, row += bytes) {
        struct parts p = { 0 };
        if (at % GROUP == 0)
            c = 0;
        (t > DT_MXFP4 ? parts_of_others : block == 32 ? parts_of_32 : parts_of_256)(&p, t, row);
        const int sub = (int)block / p.subs;
        for (int s = 0; s < p.subs; s++) {
            int64_t sum = 0, total = 0;
            for (int i = 0; i < sub; i++) {
                sum += p.q[s * sub + i] * x[at + (size_t)(s * sub + i)];
                total += x[at + (size_t)(s * sub + i)];
            }
            CHECK(sum == (int32_t)sum);
            c = fmaf((float)sum, p.scale[s], c);
            if (p.minima)
                c = fmaf((float)total, p.minimum[s], c);
        }
        if ((at + block) % GROUP == 0 || at + block == k)
            acc = fmaf(c, scale[at / GROUP], acc);
    }
    return acc;
}

/* ---- problems ---- */

struct problem { enum dtype type; struct mat w; uint8_t *rows; float *x; size_t n, k, row_bytes; };

static void open_problem(struct problem *p, enum dtype t, size_t n, size_t k, struct rng *rng)
{
    const struct quant_type *q = quant_type(t);
    *p = (struct problem){
        .type = t, .w = { t, n, k, NULL }, .n = n, .k = k, .row_bytes = k / q->block * q->bytes
    };
    p->rows = must_alloc(n * p->row_bytes);
    p->x = must_alloc(M_MAX * k * sizeof *p->x);
    p->w.w = must_alloc(mat_bytes(&p->w));
    memset(p->w.w, 0, mat_bytes(&p->w));
    for (size_t i = 0; i < n * p->row_bytes; i++)
        p->rows[i] = (uint8_t)rng_next(rng);
    /* factors of about 2^-9: wherever a factor may lie, no 16-bit float is infinite */
    for (size_t b = 0; b < n * p->row_bytes / q->bytes; b++) {
        static const int at[] = { 0, 2, 52, 54, 64, 80, 82, 108, 208 };
        for (size_t i = 0; i < sizeof at / sizeof *at; i++)
            if ((size_t)at[i] + 1 < q->bytes)
                p->rows[b * q->bytes + (size_t)at[i] + 1] &= 0x9b;
        if (t == DT_MXFP4)                   /* subnormal ones, too */
            p->rows[b * q->bytes] = (uint8_t)(b % 7 ? 110 + rng_below(rng, 16) : b % 3);
        if (t == DT_NVFP4 && b % 7 == 0)     /* bytes that have no number elsewhere */
            p->rows[b * q->bytes] = 0x7f, p->rows[b * q->bytes + 1] = 0xff;
    }
    for (size_t i = 0; i < M_MAX * k; i++)
        p->x[i] = rng_normal(rng) * (i % 97 == 0 ? 30.0f : 1.0f);
    size_t half = n / 2;                     /* in two parts, as a fused matrix is loaded */
    CHECK(quant_is_finite(t, p->rows, n * k));
    mat_pack(&p->w, 0, half, p->rows, t);
    mat_pack(&p->w, half, n - half, p->rows + half * p->row_bytes, t);
}
static void close_problem(struct problem *p) { free(p->rows), free(p->x), free(p->w.w); }

static void weights_come_back(void)
{
    struct rng rng = { 31 };
    for (size_t t = 0; t < TYPES; t++) {
        struct problem p;
        const size_t block = quant_type(types[t])->block,
                     k = block == 32 ? 608 : block < 256 ? 640 : 768;
        open_problem(&p, types[t], 37, k, &rng);
        CHECK(mat_bytes(&p.w) == p.row_bytes * 48, "%s: more bytes than the file has",
              quant_type(types[t])->name);
        for (size_t r = 0; r < p.n; r++) {
            float want[768], got[768];
            CHECK(quant_decode(want, p.type, p.rows + r * p.row_bytes, k));
            mat_row(&p.w, r, got);
            CHECK(!memcmp(want, got, k * sizeof *got), "%s: row %zu", quant_type(types[t])->name, r);
            p.w.scaled = true, p.w.scale = -3;
            mat_row(&p.w, r, got);
            for (size_t i = 0; i < k; i++)
                CHECK(got[i] == -3 * want[i], "%s: row %zu times a scale", quant_type(types[t])->name, r);
            p.w.scaled = false;
        }
        close_problem(&p);
    }
}

struct call { size_t m, p0, p1, ldy; bool bias, add; };

/* One call: y as defined in its panels, and nothing else written. */
static bool call_is_exact(const struct ops *o, const struct problem *p, const char *x, size_t row,
                          const float *d, const float *bias, const float *before, const struct call *c)
{
    const size_t count = (c->m - 1) * c->ldy + p->n;
    float *y = guard_alloc(count * sizeof *y);
    memcpy(y, before, count * sizeof *y);
    if (x)
        o->matmul_quantized(y, c->ldy, x, row, c->m, &p->w, c->bias ? bias : NULL, c->add, c->p0, c->p1);
    else
        o->matmul(y, c->ldy, DT_F32, p->x, p->k, c->m, &p->w, c->bias ? bias : NULL, c->add, c->p0, c->p1);
    bool good = guard_intact(y, count * sizeof *y);
    CHECK(good, "%s: bytes around the output written", o->name);
    for (size_t i = 0; i < count && good; i++) {
        const size_t r = i / c->ldy, j = i % c->ldy;
        float want = before[i];
        if (j < p->n && j >= c->p0 * PANEL && j < c->p1 * PANEL) {
            const float product = p->w.scaled ? d[r * p->n + j] * p->w.scale : d[r * p->n + j],
                        sum = c->bias ? product + bias[j] : product;
            want = c->add ? before[i] + sum : sum;
        }
        good = !memcmp(&want, &y[i], sizeof want);
        CHECK(
            good,
            "%s %s %s: n %zu k %zu m %zu panels %zu-%zu bias %d add %d: row %zu column %zu is %a, defined %a",
            o->name, quant_type(p->type)->name, x ? "int16" : "f32", p->n, p->k, c->m, c->p0, c->p1, c->bias,
            c->add, r, j, (double)y[i], (double)want);
    }
    guard_free(y);
    return good;
}

/* The products by definition, [M_MAX][n]: with int16, or f32 with decoded weights. */
static float *defined(const struct problem *p, bool f32)
{
    float *d = must_alloc(M_MAX * p->n * sizeof *d), *scale = must_alloc((p->k / GROUP + 1) * sizeof *scale),
          *w = must_alloc(p->k * sizeof *w);
    int16_t *q = must_alloc(p->k * sizeof *q);
    for (size_t r = 0; r < M_MAX; r++) {
        quantised_x(q, scale, p->x + r * p->k, p->k);
        for (size_t j = 0; j < p->n; j++) {
            const uint8_t *row = p->rows + j * p->row_bytes;
            if (f32)
                quant_decode(w, p->type, row, p->k);
            d[r * p->n + j] = f32 ? ref_dot_f32(p->x + r * p->k, w, p->k) : dot(p->type, row, q, scale, p->k);
        }
    }
    free(scale), free(w), free(q);
    return d;
}

static void shape(enum dtype t, size_t n, size_t k, struct rng *rng, bool every_m)
{
    struct problem p;
    open_problem(&p, t, n, k, rng);
    const size_t row = quantized_groups_bytes(k) + 64 * rng_below(rng, 2), ldy = n + rng_below(rng, 3),
                 panels = mat_panels(&p.w);
    float *d[2] = { defined(&p, false), defined(&p, true) }, *bias = must_alloc(n * sizeof *bias),
          *before = must_alloc(M_MAX * ldy * sizeof *before);
    char *x = must_alloc(M_MAX * row), *first = NULL;
    for (size_t i = 0; i < n; i++) bias[i] = rng_normal(rng);
    for (size_t i = 0; i < M_MAX * ldy; i++) before[i] = rng_normal(rng);
    bool good = true;
    FOR_TWINS(o) {
        memset(x, 0xa5, M_MAX * row);
        for (size_t r = 0; r < M_MAX; r++)
            o->quantize_groups(x + r * row, p.x + r * k, k);
        if (!first) {
            first = must_alloc(M_MAX * row);
            memcpy(first, x, M_MAX * row);
        }
        CHECK(!memcmp(first, x, M_MAX * row), "%s: quantised rows", o->name);
        for (size_t m = 1; m <= M_MAX && good; m += every_m && m < 20 ? 1 : 1 + rng_below(rng, 12)) {
            struct call c = { m, 0, panels, ldy, rng_next(rng) & 1, rng_next(rng) & 1 };
            if (m % 3 == 0) {
                c.p0 = rng_below(rng, panels + 1);
                c.p1 = c.p0 + rng_below(rng, panels - c.p0 + 1);
            }
            p.w.scaled = m % 4 == 2, p.w.scale = 0.7f;
            good = call_is_exact(o, &p, x, row, d[0], bias, before, &c) &&
                   call_is_exact(o, &p, NULL, 0, d[1], bias, before, &c);
        }
    }
    free(d[0]), free(d[1]), free(bias), free(before), free(x), free(first);
    close_problem(&p);
}

static void products_are_exact(void)
{
    struct rng rng = { 32 };
    for (size_t t = 0; t < TYPES; t++) {
        const size_t block = quant_type(types[t])->block;
        const bool small = block < 256;
        shape(types[t], 40, small ? block * 11 : 512, &rng, true);
        shape(types[t], 17, block, &rng, false);
        shape(types[t], 1, small ? block * 8 : 768, &rng, false);
        shape(types[t], 100, small ? 896 : 1280, &rng, false);
    }
    shape(DT_Q1_0, 1100, 128, &rng, false);  /* more panels than share the sums of one row */
}

/* Activations and weights as large as they get: sums of a sub-block stay within int32. Values that are not
 * finite make their group, and so the result, NaN. */
static void extremes(void)
{
    struct rng rng = { 33 };
    for (size_t t = 0; t < TYPES; t++) {
        struct problem p;
        const size_t k = 512, row = quantized_groups_bytes(k);
        open_problem(&p, types[t], 16, k, &rng);
        char *x = must_alloc(4 * row);
        for (size_t i = 0; i < M_MAX * k; i++)
            p.x[i] = i < k ? 3e38f : i < 2 * k ? -1e-42f : i < 3 * k ? 0 : i == 3 * k + 300 ? INFINITY : 1;
        float *d = defined(&p, false), y[4 * 16];
        FOR_TWINS(o) {
            for (size_t r = 0; r < 4; r++)
                o->quantize_groups(x + r * row, p.x + r * k, k);
            o->matmul_quantized(y, 16, x, row, 4, &p.w, NULL, false, 0, 1);
            CHECK(!memcmp(y, d, 3 * 16 * sizeof *y), "%s %s", o->name, quant_type(types[t])->name);
            for (size_t j = 0; j < 16; j++)
                CHECK(isnan(y[3 * 16 + j]), "%s %s: %g", o->name, quant_type(types[t])->name,
                      (double)y[3 * 16 + j]);
        }
        free(x), free(d);
        close_problem(&p);
    }
}

int main(void)
{
    RUN(weights_come_back);
    RUN(products_are_exact);
    RUN(extremes);
    return test_end();
}
