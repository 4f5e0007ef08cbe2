/* Products and attention at the shapes of Llama-3.1-8B, every output against references in double precision:
 * plain loops on the host, over the threads of a pool. The emulated GPU takes small shapes, to test the
 * references and this program. */
#include "kernels/cuda/gpu.h"
#include "kernels/pool.h"
#include "tests/device_rig.h"

static struct device *dev;
static struct pool *pool;

static void open_for(size_t rows_max, size_t n_max, size_t n_out_max, const struct device_heads *heads)
{
    char why[256] = "";
    if (dev)
        dev->close(dev);
    dev = NULL;
    CHECK(test_device_open(&dev, why, sizeof why) == 0, "%s", why);
    const struct device_limits l = { rows_max, n_max, rows_max, n_out_max, n_out_max, *heads };
    CHECK(dev->reserve(dev, &l) == 0, "%s", dev->error);
}

static void *noise(size_t n, uint64_t seed, float deviation)
{
    void *p = dev->alloc(dev, n * 2);
    CHECK(p, "no memory for %zu numbers", n);
    dev->noise(dev, p, n, seed, deviation);
    return p;
}

/* ---- products ---- */

/* y[row][i] = x[row] . w[i] for item i, and the sum of the terms' magnitudes. */
struct reference { double *y, *size; const uint16_t *x, *w; size_t rows, n, k; };

static void product_reference(void *ctx, size_t i, size_t thread)
{
    const struct reference *a = ctx;
    (void)thread;
    for (size_t r = 0; r < a->rows; r++) {
        double sum = 0, size = 0;
        for (size_t j = 0; j < a->k; j++) {
            const double t =
                (double)bf16_to_f32(a->x[r * a->k + j]) * (double)bf16_to_f32(a->w[i * a->k + j]);
            sum += t;
            size += fabs(t);
        }
        a->y[r * a->n + i] = sum;
        a->size[r * a->n + i] = size;
    }
}

/* The matrix goes to the host and comes back through mat_put, so its layout is tested too. */
static void product_case(size_t n, size_t k)
{
    enum { ROWS = 64 };
    static const size_t rows[] = { 4, ROWS };
    open_for(ROWS, 64, n, &(struct device_heads){ 8, 2, 64, 64 });
    void *plain = noise(n * k, 7, 1 / sqrtf((float)k)), *x = noise(ROWS * k, 8, 1),
         *host = rig_get(dev, plain, n * k * 2);
    struct mat m = { dev->mat_type(dev, DT_BF16, DT_BF16), n, k, dev->alloc(dev, dev->mat_size(dev, DT_BF16,
        n, k)) };
    dev->mat_put(dev, &m, 0, n, host, DT_BF16);
    float *got = dev->alloc(dev, ROWS * n * sizeof *got);
    double *want = malloc(ROWS * n * sizeof *want), *sum = malloc(ROWS * n * sizeof *sum);
    uint16_t *left = rig_get(dev, x, ROWS * k * 2);
    CHECK(got && want && sum, "out of memory");
    pool_run(pool, n, product_reference, &(struct reference){ want, sum, left, host, ROWS, n, k });
    free(host), free(left);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dev->product(dev, &(struct device_product){ got, n, x, rows[i], &m, NULL, false, SIZE_MAX });
        float *f = rig_get(dev, got, rows[i] * n * sizeof *f);
        double worst = 0;
        size_t at = 0;
        for (size_t j = 0; j < rows[i] * n; j++) {
            const double d = fabs(f[j] - want[j]) / (sum[j] + 1e-3);
            if (!(d <= worst))                     /* true for NaN too */
                worst = d, at = j;
        }
        CHECK(worst < 1e-6, "%zu x %zu, row %zu of %zu, output %zu: %.9g, want %.9g", n, k, at / n, rows[i],
              at % n, f[at], want[at]);
        free(f);
    }
    free(want), free(sum);
    void *const mine[] = { plain, x, m.w, got };
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        dev->free(dev, mine[i], 0);
}

static void products_equal_double_precision(void)
{
    static const size_t real[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 }, { 4096, 14336 },
                                      { 128256, 4096 } },
                        tiny[][2] = { { 300, 192 }, { 130, 1100 } };
    if (test_on_gpu())
        for (size_t i = 0; i < sizeof real / sizeof *real; i++)
            product_case(real[i][0], real[i][1]);
    else
        for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
            product_case(tiny[i][0], tiny[i][1]);
}

/* ---- attention ---- */

/* Of row `item / n_heads` and head `item % n_heads`: softmax with powers of two over the positions 0 ..
 * n_past + row. cache: a block is K, then V, of 64 rows of dp. */
struct attended { double *out; const uint16_t *q, *cache; size_t n_heads, group, dp, n_past, head_step; };

static void attention_reference(void *ctx, size_t item, size_t thread)
{
    const struct attended *a = ctx;
    const size_t seen = a->n_past + item / a->n_heads + 1, dp = a->dp;
    const uint16_t *kv = a->cache + item % a->n_heads / a->group * a->head_step, *q = a->q + item * dp;
    double *p = malloc(seen * sizeof *p), top = -INFINITY, sum = 0, *out = a->out + item * dp;
    (void)thread;
    for (size_t pos = 0; pos < seen; pos++) {
        const uint16_t *key = kv + (pos / 64 * 128 + pos % 64) * dp;
        p[pos] = 0;
        for (size_t i = 0; i < dp; i++)
            p[pos] += (double)bf16_to_f32(q[i]) * (double)bf16_to_f32(key[i]);
        top = fmax(top, p[pos]);
    }
    memset(out, 0, dp * sizeof *out);
    for (size_t pos = 0; pos < seen; pos++) {
        const uint16_t *value = kv + (pos / 64 * 128 + 64 + pos % 64) * dp;
        p[pos] = exp2(p[pos] - top);
        sum += p[pos];
        for (size_t i = 0; i < dp; i++)
            out[i] += p[pos] * (double)bf16_to_f32(value[i]);
    }
    for (size_t i = 0; i < dp; i++)
        out[i] /= sum;
    free(p);
}

/* The last of n rows has `depth` positions before it. */
static void attention_case(const struct device_heads *h, size_t depth, size_t n)
{
    const size_t n_past = depth + 1 - n, dp = h->padded, row = h->n_heads * dp, step = depth + 1;
    open_for(n, step, 256, h);
    struct device_kv kv = rig_cache(dev, 1, h->n_kv_heads, dp, step, 0);
    dev->noise(dev, kv.base, kv.layer_bytes / 2, 9, 1);
    /* queries that make a few of the keys count: scores with a deviation of 3 */
    void *q = noise(n * row, 10, 3 / sqrtf((float)dp)), *out = dev->alloc(dev, n * row * 2);
    CHECK(kv.base && out, "out of memory");
    struct rig_pass *p = rig_pass(&kv, n_past, n, NULL, dp / 2);
    struct device_bad bad;
    dev->begin(dev, &p->rows);
    dev->attend(dev, out, q, h, 0, 0);
    CHECK(dev->end(dev, &bad) == 0 && !bad.any, "%s", dev->error);
    double *want = malloc(n * row * sizeof *want), worst = 0;
    uint16_t *cache = rig_get(dev, kv.base, kv.layer_bytes), *queries = rig_get(dev, q, n * row * 2);
    pool_run(pool, n * h->n_heads, attention_reference,
             &(struct attended){ want, queries, cache, h->n_heads, h->n_heads / h->n_kv_heads, dp, n_past,
                                 kv.head_bytes / 2 });
    free(cache), free(queries);
    uint16_t *got = rig_get(dev, out, n * row * 2);
    size_t at = 0;
    /* probabilities and outputs are bf16: 2^-8 of a value, and as much of the typical size of one */
    for (size_t i = 0; i < n * row; i++) {
        const double d = fabs(bf16_to_f32(got[i]) - want[i]) / (fabs(want[i]) + 0.25);
        if (!(d <= worst))
            worst = d, at = i;
    }
    CHECK(worst < 8e-3, "%zu positions, row %zu of %zu, head %zu, dimension %zu: %g, want %g", step, at / row,
          n, at % row / dp, at % dp, bf16_to_f32(got[at]), want[at]);
    free(want), free(got);
    rig_pass_free(p);
    rig_cache_free(dev, &kv);
    void *const mine[] = { q, out };
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        dev->free(dev, mine[i], 0);
}

static void attention_equals_double_precision(void)
{
    static const struct device_heads real = { 32, 8, 128, 128 }, tiny = { 8, 2, 64, 64 };
    static const size_t rows[] = { 1, 4, 40 }, depth[] = { 4096, 100000 };
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 2 && test_on_gpu(); j++)
            attention_case(&real, depth[j], rows[i] == 40 && j ? 8 : rows[i]);
    for (size_t i = 0; i < 3 && !test_on_gpu(); i++)
        attention_case(&tiny, 150 + 2000 * (i == 1), rows[i]);
}

int main(void)
{
    char why[256];
    if (test_device_open(&dev, why, sizeof why)) {
        printf("skip test_device_shapes (%s)\n", why);
        return 0;
    }
    pool = pool_open(pool_default_threads());
    RUN(products_equal_double_precision);
    RUN(attention_equals_double_precision);
    dev->close(dev);
    pool_close(pool);
    return test_end();
}
