/* The 8-bit model for drafts: layout and accuracy of its weights, quantised rows, products that are equal in
 * every twin and for every number of rows, and the distance of its logits from the model's logits. */
#include "src/text/tokenizer.h"
#include "tests/reference.h"
#include "tests/rig.h"
#include "tests/test.h"

/* A matrix of random weights, with rows of very different size, and its 8-bit copy with guards around it. */
static struct mat packed(enum dtype type, size_t n, size_t k, struct rng *rng)
{
    struct mat m = { type, n, k, NULL };
    float *src = must_alloc(n * k * sizeof *src);
    m.w = must_alloc(mat_bytes(&m));
    for (size_t r = 0; r < n; r++) {
        const float size = r % 7 == 3 ? 0 : ldexpf(1, (int)rng_below(rng, 9) - 6);
        for (size_t i = 0; i < k; i++) src[r * k + i] = rng_normal(rng) * size;
    }
    if (type == DT_F16) {
        uint16_t *half = must_alloc(n * k * sizeof *half);
        for (size_t i = 0; i < n * k; i++) half[i] = tiny_f16(src[i]);
        mat_pack(&m, 0, n, half, DT_F16), free(half);
    } else {
        mat_pack(&m, 0, n, src, DT_F32);
    }
    free(src);
    return m;
}
static struct mat in_8_bits(const struct mat *from)
{
    struct mat m = { DT_I8, from->n, from->k, NULL };
    m.w = guard_alloc(mat_bytes(&m));
    memset(m.w, 0x55, mat_bytes(&m));
    const size_t half = mat_panels(&m) / 2;
    mat_quantize(&m, from, 0, half), mat_quantize(&m, from, half, mat_panels(&m));
    CHECK(guard_intact(m.w, mat_bytes(&m)));
    return m;
}

static void weights_are_whole_numbers_times_a_scale(void)
{
    struct rng rng = { 5 };
    static const enum dtype types[] = { DT_BF16, DT_F16, DT_F32 };
    for (int t = 0; t < 24; t++) {
        struct mat from = packed(types[t % 3], 1 + rng_below(&rng, 90), 1 + rng_below(&rng, 60), &rng),
                   m = in_8_bits(&from);
        float *x = must_alloc(m.k * sizeof *x), *y = must_alloc(m.k * sizeof *y);
        CHECK(mat_bytes(&m) == mat_panels(&m) * ((m.k + 1) / 2 * 32 + 64));
        for (size_t r = 0; r < m.n; r++) {
            const float scale = mat_scales(&m)[r];
            float most = 0;
            mat_row(&from, r, x), mat_row(&m, r, y);
            for (size_t i = 0; i < m.k; i++) {
                const int8_t w =
                    ((const int8_t *)m.w)[r / 16 * ((m.k + 1) / 2 * 32) + i / 2 * 32 + r % 16 * 2 + i % 2];
                most = MAX(most, fabsf(x[i]));
                CHECK(w >= -127 && y[i] == (float)w * scale, "row %zu of %zu: %d, %g", r, m.n, w,
                      (double)y[i]);
                CHECK(fabsf(x[i] - y[i]) <= 0.501f * scale, "row %zu: %g became %g, scale %g", r,
                      (double)x[i], (double)y[i], (double)scale);
            }
            CHECK(scale == most / 127, "row %zu: scale %g of %g", r, (double)scale, (double)most);
            if (m.k % 2)
                CHECK(((const int8_t *)m.w)[r / 16 * ((m.k + 1) / 2 * 32) + m.k / 2 * 32 + r % 16 * 2 + 1] ==
                          0,
                      "padding of row %zu", r);
        }
        free(x), free(y), free(from.w), guard_free(m.w);
    }
}

static double act_at(enum dtype act, const void *x, size_t i) { return (double)act_get(act, x, i); }

static void rows_are_whole_numbers_times_a_scale(void)
{
    static const size_t sizes[] = { 1, 2, 15, 16, 17, 63, 256, 704, 5001, 40000 };
    struct rng rng = { 6 };
    FOR_TWINS(o)
        for (int t = 0; t < 80; t++) {
            const enum dtype act = t & 1 ? DT_BF16 : DT_F32;
            const size_t k = sizes[t / 2 % 10], bytes = quantized_row(k) * sizeof(int16_t);
            /* random values, equal values (the sum decides), one large value, zeros */
            const int kind = t / 20;
            void *x = must_alloc(k * dtype_size(act));
            int16_t *y = guard_alloc(bytes);
            float u;
            double sum = 0, top = 0, whole = 0;
            for (size_t i = 0; i < k; i++) act_put(act, x, i, kind == 1 ? 3.0f : kind == 3 ? 0 : kind == 2 &&
                i == k / 2 ? 1e4f : rng_normal(&rng));
            for (size_t i = 0; i < k; i++)
                sum += fabs(act_at(act, x, i)), top = MAX(top, fabs(act_at(act, x, i)));
            o->quantize(y, act, x, k);
            memcpy(&u, y + quantized_row(k) - 2, sizeof u);
            const double want = MAX(MAX(sum / 0x1p24, top / 32767), 0x1p-100);
            CHECK(guard_intact(y, bytes) && fabs(u - want) <= 1e-5 * want,
                  "%s, %zu inputs: scale %g, expected %g", o->name, k, (double)u, want);
            for (size_t i = 0; i < k; i++) {
                whole += abs(y[i]);
                CHECK(fabs(act_at(act, x, i) - y[i] * (double)u) <= (0.5 + 1e-2) * (double)u,
                      "%s: %g became %d times %g", o->name, act_at(act, x, i), y[i], (double)u);
            }
            CHECK(whole * 127 < 0x1p31 && (k % 2 == 0 || y[k] == 0), "%s: a sum of %g", o->name, whole);
            if (t % 4 < 2) {                 /* a value that is not finite does not become a number */
                act_put(act, x, k - 1, t / 20 % 2 ? NAN : -INFINITY);
                o->quantize(y, act, x, k);
                memcpy(&u, y + quantized_row(k) - 2, sizeof u);
                CHECK(isnan(u), "%s: scale %g", o->name, (double)u);
            }
            free(x), guard_free(y);
        }
}

/* One product, from the definition: the sum is exact. */
static float product_at(const struct mat *m, const int16_t *x, size_t column)
{
    const int8_t *w = (const int8_t *)m->w + column / 16 * mat_panel_bytes(m) + column % 16 * 2;
    int64_t sum = 0;
    float u;
    for (size_t i = 0; i < m->k; i++) sum += (int64_t)x[i] * w[i / 2 * 32 + i % 2];
    CHECK(sum > -(INT64_C(1) << 31) && sum < INT64_C(1) << 31, "a sum of %lld", (long long)sum);
    memcpy(&u, x + quantized_row(m->k) - 2, sizeof u);
    return (float)sum * mat_scales(m)[column] * u;
}

static void products_are_exact_in_every_twin(void)
{
    struct rng rng = { 7 };
    for (int t = 0; t < 40; t++) {
        const size_t n = t == 39 ? 4096 : 1 + rng_below(&rng, 200), k = t < 3 ? 1 + (size_t)t : t == 38
            ? 20001 : 1 + rng_below(&rng, 300), rows = 1 + rng_below(&rng, 19);
        const size_t row = quantized_row(k) + 2 * rng_below(&rng, 3), ldy = n + rng_below(&rng, 3);
        struct mat from = packed(DT_F32, n, k, &rng), m = in_8_bits(&from);
        float *x = must_alloc(rows * k * sizeof *x), *bias = must_alloc(n * sizeof *bias),
              *want = must_alloc(rows * n * sizeof *want);
        int16_t *q = must_alloc(rows * row * sizeof *q);
        for (size_t i = 0; i < rows * k; i++) x[i] = rng_normal(&rng);
        for (size_t i = 0; i < n; i++) bias[i] = rng_normal(&rng);
        for (size_t r = 0; r < rows; r++) ops_all[0]->quantize(q + r * row, DT_F32, x + r * k, k);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < n; j++) want[r * n + j] = product_at(&m, q + r * row, j);
        FOR_TWINS(o) {
            const bool with_bias = rng_next(&rng) & 1, add = rng_next(&rng) & 1;
            const size_t p0 = rng_below(&rng, mat_panels(&m) + 1),
                         p1 = t % 2 ? mat_panels(&m) : p0 + rng_below(&rng, mat_panels(&m) - p0 + 1),
                         first = t % 2 ? 0 : p0;
            float *y = guard_alloc(rows * ldy * sizeof *y);
            for (size_t i = 0; i < rows * ldy; i++) y[i] = 0.5f;
            o->matmul(y, ldy, DT_I16, q, row, rows, &m, with_bias ? bias : NULL, add, first, p1);
            CHECK(guard_intact(y, rows * ldy * sizeof *y));
            for (size_t i = 0; i < rows * ldy; i++) {
                const size_t r = i / ldy, j = i % ldy;
                float is = 0.5f;
                if (j < n && j >= first * PANEL && j < p1 * PANEL) {
                    is = want[r * n + j];
                    if (with_bias) is = is + bias[j];
                    if (add) is = 0.5f + is;
                }
                CHECK(memcmp(&is, &y[i], sizeof is) == 0,
                      "%s: %zu x %zu, row %zu of %zu, column %zu: %a, defined %a", o->name, n, k, r, rows, j,
                      (double)y[i], (double)is);
            }
            guard_free(y);
        }
        free(x), free(bias), free(want), free(q), free(from.w), guard_free(m.w);
    }
}

/* Compares the logits of both models after the same tokens: their distance relative to their size, and how
 * often both rank the same token first. */
static void compare(const char *dir, enum dtype compute, const int32_t *token, size_t n, double most,
                    double *agree)
{
    struct rig r;
    struct model small;
    struct err e = { 0 };
    rig_open(&r, dir, compute, best_twin(), 2, 64, n);
    if (model_quantize(&small, &r.m, NULL, NULL, NULL, &e)) rig_die("8 bits", &e);
    CHECK(small.mem_bytes == model_quantized_bytes(&r.c, r.dev));
    float *x = must_alloc(n * r.c.vocab * sizeof *x), *y = must_alloc(n * r.c.vocab * sizeof *y),
          *one = must_alloc(n * r.c.vocab * sizeof *one);
    struct rig q = r;
    struct kv a, b, c;
    q.m = small;
    rig_kv(&r, &a, n, 0), rig_kv(&r, &b, n, 0), rig_kv(&r, &c, n, 0);
    rig_run(&r, &a, token, n, 64, x, NULL), rig_run(&q, &b, token, n, 64, y, NULL),
        rig_run(&q, &c, token, n, 1, one, NULL);
    double sum = 0, diff = 0, same = 0;
    for (size_t i = 0; i < n; i++) {
        const float *p = x + i * r.c.vocab, *s = y + i * r.c.vocab;
        double mean = 0;
        for (size_t j = 0; j < r.c.vocab; j++) mean += (double)p[j] / (double)r.c.vocab;
        for (size_t j = 0; j < r.c.vocab; j++)
            sum += ((double)p[j] - mean) * ((double)p[j] - mean),
                diff += ((double)p[j] - s[j]) * ((double)p[j] - s[j]);
        same += r.m.ops->argmax(p, r.c.vocab) == r.m.ops->argmax(s, r.c.vocab);
    }
    CHECK(sqrt(diff / sum) <= most, "%s: logits differ by %.4f of their size, the limit is %.4f", dir,
          sqrt(diff / sum), most);
    CHECK(diff > 0, "%s: the same logits: not 8 bits", dir);
    CHECK(memcmp(one, y, n * r.c.vocab * sizeof *y) == 0, "%s: one row at a time gives other logits", dir);
    *agree = same / (double)n;
    kv_close(&a), kv_close(&b), kv_close(&c);
    free(x), free(y), free(one);
    model_close(&small);
    rig_close(&r);
}

static void small_models_are_near(void)
{
    for (size_t i = 0; i < N_TINY; i++) {
        char dir[4096];
        int32_t token[70];
        double agree;
        tiny_write(&tiny_models[i], dir);
        rig_tokens(token, 70, tiny_models[i].vocab, 3);
        compare(dir, DT_BF16, token, 70, 0.05, &agree), compare(dir, DT_F32, token, 70, 0.05, &agree);
        tiny_remove(dir);
    }
}

struct patience { size_t n, left, last; };

static bool impatient(void *ctx, size_t done, size_t total)
{
    struct patience *p = ctx;
    CHECK(done > p->last && done <= total);
    p->last = done, p->n++;
    return p->left == 0 || --p->left > 0;
}

/* Loading a model can be interrupted at every progress report: with an error of its own kind, and without
 * leaving anything open. With one thread the reports are the same in every run. */
static void loading_can_be_interrupted(void)
{
    struct rig r;
    struct model m;
    struct err e = { 0 };
    struct patience whole = { 0 };
    char dir[4096];
    tiny_write(&tiny_models[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, 8, 64);
    for (size_t at = 0; at == 0 || at <= whole.n; at++) {
        struct patience p = { .left = at };
        const struct model_setup setup = { &r.c, DT_BF16, r.dev, best_twin(), r.pool, impatient, &p };
        const int rc = model_open(&m, dir, &setup, &e);
        if (at == 0) {
            CHECK(rc == 0 && p.n > 1);
            whole = p;
            model_close(&m);
        } else
            CHECK(rc == -1 && e.code == ERR_AGAIN && p.n == at && strstr(e.msg, "stopped after") &&
                      !m.mem && !m.layers,
                  "report %zu of %zu: %d %s", at, whole.n, rc, e.msg);
    }
    rig_close(&r);
    tiny_remove(dir);
}

/* A copy that was made in slices of one layer equals a copy that was made at once. */
static void quantising_goes_on(void)
{
    struct rig r;
    struct model once, m;
    struct model_quantized done = { 0 };
    struct err e = { 0 };
    char dir[4096];
    size_t calls = 0;
    int rc = 1;
    tiny_write(&tiny_models[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
    if (model_quantize(&once, &r.m, NULL, NULL, NULL, &e)) rig_die("8 bits", &e);
    for (; rc == 1; calls++) {
        CHECK(!done.whole && done.layers == calls);
        struct patience p = { .left = 1, .last = done.bytes };
        rc = model_quantize(&m, &r.m, &done, impatient, &p, &e);
    }
    CHECK(rc == 0 && done.whole && calls == r.c.n_layers + 1, "%d after %zu calls", rc, calls);
    CHECK(model_quantize(&m, &r.m, &done, NULL, NULL, &e) == 0 && m.mem_bytes == once.mem_bytes &&
          memcmp(m.mem, once.mem, m.mem_bytes) == 0);
    model_close(&once), model_close(&m);
    rig_close(&r);
    tiny_remove(dir);
}

static void the_demonstration_model_proposes_the_same(void)
{
    struct tokenizer *k;
    struct err e = { 0 };
    char *bytes;
    size_t size, n;
    int32_t *ids;
    double agree;
    if (tokenizer_open(&k, "models/demo", 4096, &e) ||
        file_read(&bytes, &size, "models/demo/openings/portrait.txt", 1 << 20, &e) ||
        tokenizer_encode(k, &ids, &n, bytes, size, true, &e))
        rig_die("text", &e);
    n = MIN(n, (size_t)(SLOW_BUILD ? 100 : 1000));
    compare("models/demo", DT_BF16, ids, n, 0.05, &agree);
    printf("    the same likeliest token after %.1f %% of %zu tokens\n", 100 * agree, n);
    CHECK(agree >= 0.95, "%.3f", agree);
    free(ids), free(bytes), tokenizer_close(k);
}

int main(void)
{
    RUN(weights_are_whole_numbers_times_a_scale);
    RUN(rows_are_whole_numbers_times_a_scale);
    RUN(products_are_exact_in_every_twin);
    RUN(small_models_are_near);
    RUN(loading_can_be_interrupted);
    RUN(quantising_goes_on);
    RUN(the_demonstration_model_proposes_the_same);
    return test_end();
}
