/* Training on a GPU. Products of every shape and orientation are compared with double precision, the steps
 * between them with the plain C twin, and the gradients of a window with the CPU's trainer and PyTorch
 * (tests/data/train_fixture.txt). The device is the emulated GPU, or with LONGHAND_TEST_DEVICE=cuda a real
 * one. */
#include "kernels/cuda/cu_args.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/device_train.h"
#include "src/model/heads.h"
#include "src/lab/train/train.h"
#include "tests/device_open.h"
#include "tests/rig.h"
#include "tests/train_fixture.h"

static struct device *dev;

static void *put(const void *src, size_t bytes)
{
    void *p = dev->alloc(dev, bytes);
    dev->upload(dev, p, src, bytes);
    return p;
}
static void *get(const void *src, size_t bytes)
{
    void *p = must_alloc(bytes + 1);
    CHECK(dev->download(dev, p, src, bytes) == 0, "%s", dev->error);
    return p;
}
static float *normals(struct rng *rng, size_t n)
{
    float *x = must_alloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(rng);
    return x;
}
static void drop(void *p) { dev->free(dev, p, 0); }

static void products_of_every_orientation(void)
{
    struct rng rng = { 71 };
    for (int round = 0; round < 64; round++) {
        const bool a_t = round & 1, b_t = round & 2, add = round & 4;
        const size_t m = 1 + rng_below(&rng, 40), n = 1 + rng_below(&rng, 40), k = 1 + rng_below(&rng, 70);
        float *af = normals(&rng, m * k), *bf = normals(&rng, k * n), *cf = normals(&rng, m * n + 8);
        uint16_t *a = must_alloc(m * k * 2 + 1), *b = must_alloc(k * n * 2 + 1);
        for (size_t i = 0; i < m * k; i++) a[i] = f32_to_bf16(af[i]);
        for (size_t i = 0; i < k * n; i++) b[i] = f32_to_bf16(bf[i]);
        void *ad = put(a, m * k * 2), *bd = put(b, k * n * 2), *cd = put(cf, (m * n + 8) * 4);
        device_gemm(dev, &(struct device_gemm){ cd, ad, bd, m, n, k, a_t, b_t, add });
        float *c = get(cd, (m * n + 8) * 4);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                double want = add ? (double)cf[i * n + j] : 0, size = 1;
                for (size_t p = 0; p < k; p++) {
                    const double x = (double)bf16_to_f32(a[a_t ? p * m + i : i * k + p]),
                                 y = (double)bf16_to_f32(b[b_t ? j * k + p : p * n + j]);
                    want += x * y, size += fabs(x * y);
                }
                CHECK(fabs((double)c[i * n + j] - want) < 1e-5 * size,
                      "%zu x %zu x %zu a_t %d b_t %d add %d: (%zu, %zu) %g, exact %g", m, n, k, a_t, b_t, add,
                      i, j, (double)c[i * n + j], want);
            }
        CHECK(!memcmp(c + m * n, cf + m * n, 32), "bytes after the end were written");
        drop(ad), drop(bd), drop(cd), free(af), free(bf), free(cf), free(a), free(b), free(c);
    }
}

static void norms_back_as_the_twin(void)
{
    struct rng rng = { 72 };
    for (int round = 0; round < 8; round++) {
        const size_t rows = 1 + rng_below(&rng, 20), dim = 2 + rng_below(&rng, round < 6 ? 80 : 700),
                     all = rows * dim;
        const bool add = round & 1;
        const float eps = 1e-5f, weight = round & 2 ? 0.125f : 1;
        float *x = normals(&rng, all), *dy = normals(&rng, all), *w = normals(&rng, dim),
              *dx = normals(&rng, all), *dw = normals(&rng, dim), *scaled = must_alloc(all * 4);
        for (size_t i = 0; i < all; i++) scaled[i] = dy[i] * weight;
        float *dxd = put(dx, all * 4), *dwd = put(dw, dim * 4), *dyd = put(dy, all * 4),
              *xd = put(x, all * 4), *wd = put(w, dim * 4), *scale = dev->alloc(dev, rows * 4);
        device_norm_back(dev, &(struct device_norm_back){ dxd, dwd, dyd, xd, wd, scale, rows, dim, eps,
            weight, add });
        ops_all[0]->rmsnorm_back(dx, dim, add, dw, scaled, dim, x, w, rows, dim, eps);
        float *got = get(dxd, all * 4), *gain = get(dwd, dim * 4);
        for (size_t i = 0; i < all; i++)
            CHECK(near((double)got[i], (double)dx[i], 2e-5, 2e-5), "dim %zu dx[%zu]: %g, twin %g", dim, i,
                  (double)got[i], (double)dx[i]);
        for (size_t i = 0; i < dim; i++)
            CHECK(near((double)gain[i], (double)dw[i], 2e-5, 2e-5), "dim %zu dw[%zu]: %g, twin %g", dim, i,
                  (double)gain[i], (double)dw[i]);
        drop(dxd), drop(dwd), drop(dyd), drop(xd), drop(wd), drop(scale);
        free(x), free(dy), free(w), free(dx), free(dw), free(scaled), free(got), free(gain);
    }
}

static void losses_as_the_twin(void)
{
    struct rng rng = { 73 };
    enum { ROWS = 3 };
    for (int round = 0; round < 10; round++) {
        const size_t vocab = 2 + rng_below(&rng, round < 8 ? 90 : 3000);
        float *x = normals(&rng, ROWS * vocab);
        /* ties */
        for (size_t i = 0; i < ROWS * vocab; i++) x[i] = round & 1 ? 5 * x[i] : floorf(2 * x[i]);
        int32_t target[ROWS] = { (int32_t)rng_below(&rng, vocab), -1, (int32_t)(vocab - 1) };
        float *xd = put(x, ROWS * vocab * 4);
        int32_t *td = put(target, sizeof target);
        uint16_t *gd = dev->alloc(dev, ROWS * vocab * 2);
        struct xent *ld = dev->alloc(dev, ROWS * sizeof *ld), *l;
        uint16_t *g, *none, *twin = must_alloc(vocab * 2);
        /* the gradient buffer holds other bytes before */
        dev->upload(dev, gd, x, ROWS * vocab * 2);
        none = get(gd, ROWS * vocab * 2);
        device_xent(dev, ld, NULL, xd, td, ROWS, vocab);
        g = get(gd, ROWS * vocab * 2);
        CHECK(!memcmp(g, none, ROWS * vocab * 2), "a gradient was written without being asked for");
        free(g);
        device_xent(dev, ld, gd, xd, td, ROWS, vocab);
        g = get(gd, ROWS * vocab * 2), l = get(ld, ROWS * sizeof *l);
        for (size_t r = 0; r < ROWS; r++) {
            struct xent want;
            if (target[r] < 0) {
                for (size_t i = 0; i < vocab; i++)
                    CHECK(g[r * vocab + i] == 0, "row without a target: %x", g[r * vocab + i]);
                continue;
            }
            ops_all[0]->xent(twin, DT_BF16, x + r * vocab, vocab, (size_t)target[r], &want);
            CHECK(l[r].top == want.top && l[r].at == want.at && l[r].above == want.above &&
                      near((double)l[r].sum, (double)want.sum, 0, 1e-5),
                  "vocab %zu row %zu: %g %g %u %g", vocab, r, (double)l[r].top, (double)l[r].at, l[r].above,
                  (double)l[r].sum);
            for (size_t i = 0; i < vocab; i++)
                CHECK(near((double)bf16_to_f32(g[r * vocab + i]), (double)bf16_to_f32(twin[i]), 1e-30, 0.005),
                      "vocab %zu (%zu, %zu): %g, twin %g", vocab, r, i, (double)bf16_to_f32(g[r * vocab + i]),
                      (double)bf16_to_f32(twin[i]));
        }
        drop(xd), drop(td), drop(gd), drop(ld), free(x), free(g), free(none), free(l), free(twin);
    }
}

static void the_optimiser_is_the_twins(void)
{
    struct rng rng = { 74 };
    const size_t n = CU_SQUARES + 777, n_matrix = 500;
    const struct adamw a = { 0.9f, 0.999f, 1e-8f, 0.5f, 0.9995f, 0.01f, 1.5f };
    struct adamw plain = a;
    float *x[4], *d[4];
    double want = 0;
    for (int i = 0; i < 4; i++) x[i] = normals(&rng, n);
    for (size_t i = 0; i < n; i++) x[2][i] = fabsf(x[2][i]), want += (double)x[3][i] * (double)x[3][i];
    for (int i = 0; i < 4; i++) d[i] = put(x[i], n * 4);
    double *part = dev->alloc(dev, device_squares_bytes(n));
    uint16_t *w16 = dev->alloc(dev, n * 2);
    const double sum = device_squares(dev, d[3], n, part);
    CHECK(near(sum, want, 0, 1e-13), "sum of squares %.17g, exact %.17g", sum, want);
    device_adamw(dev, &(struct device_weights){ d[0], d[1], d[2], d[3], w16, n, n_matrix }, &a);
    plain.keep = 1;
    ops_all[0]->adamw(x[0], x[1], x[2], x[3], n_matrix, &a);
    ops_all[0]->adamw(x[0] + n_matrix, x[1] + n_matrix, x[2] + n_matrix, x[3] + n_matrix, n - n_matrix,
                      &plain);
    memset(x[3], 0, n * 4);
    uint16_t *rounded = get(w16, n * 2);
    for (size_t i = 0; i < n; i++)
        CHECK(rounded[i] == (i < n_matrix ? f32_to_bf16(x[0][i]) : 0), "w16[%zu]", i);
    for (int i = 0; i < 4; i++) {
        float *got = get(d[i], n * 4);
        CHECK(!memcmp(got, x[i], n * 4), "array %d differs from the twin's", i);
        free(got), free(x[i]), drop(d[i]);
    }
    free(rounded), drop(part), drop(w16);
}

/* The window of the fixture through both trainers: losses, and the gradient element by element. */
static void gradients_as_on_the_cpu(void)
{
    static const char *const kinds[] = { "independent", "chained" };
    for (int round = 0; round < 4; round++) {
        const bool chained = round & 1;
        struct fixture_bench cpu, gpu;
        struct train_score score[2][TRAIN_OUTPUTS_MAX];
        char name[64];
        double worst = 0, dot = 0, aa = 0, bb = 0, pt = 0;
        struct err e = { 0 };
        memset(score, 0, sizeof score);
        fixture_bench_open(&cpu, DT_BF16, best_twin(), 1, chained, NULL),
            fixture_bench_open(&gpu, DT_BF16, best_twin(), 1, chained, dev);
        if (round & 2) gpu.u.layers.rows_max = 7;         /* in several pieces */
        snprintf(name, sizeof name, "%s_gradient", kinds[chained]);
        struct fixture torch = fixture(name);
        cpu.u.kind->train(&cpu.u, &cpu.win, 1, score[0]);
        gpu.u.kind->train(&gpu.u, &gpu.win, 1, score[1]);
        const double squares = module_squares(&gpu.u);
        CHECK(module_fetch(&gpu.u, &e) == 0, "%s", e.msg);
        CHECK(!memcmp(cpu.u.w, gpu.u.w, cpu.u.n_params * 4), "weights changed");
        for (size_t i = 0; i < cpu.u.n_params; i++) bb += (double)cpu.u.grad[i] * (double)cpu.u.grad[i];
        const double typical = sqrt(bb / (double)cpu.u.n_params);
        bb = 0;
        for (size_t i = 0; i < cpu.u.n_params; i++) {
            const double a = (double)gpu.u.grad[i], b = (double)cpu.u.grad[i];
            CHECK(near(a, b, 0.02 * typical, 0.005), "%s parameter %zu: gradient %g, CPU %g", kinds[chained],
                  i, a, b);
            worst = fmax(worst, fabs(a - b)), dot += a * b, aa += a * a, bb += b * b,
            pt += (a - torch.v[i]) * (a - torch.v[i]);
        }
        CHECK(dot / sqrt(aa * bb) > 0.99999 && sqrt(pt / aa) < 0.02 && near(squares, aa, 0, 1e-6),
              "cosine %.8f, from PyTorch's %.4f, squares %g of %g", dot / sqrt(aa * bb), sqrt(pt / aa),
              squares, aa);
        for (size_t k = 0; k < cpu.n; k++)
            CHECK(score[0][k].n == score[1][k].n && score[0][k].top1 == score[1][k].top1 &&
                      score[0][k].top3 == score[1][k].top3 &&
                      near(score[0][k].loss, score[1][k].loss, 0, 1e-4),
                  "head %zu: loss %g, CPU %g", k, score[1][k].loss, score[0][k].loss);
        printf("    %s: gradients differ by at most %.2g (typical size %.2g); PyTorch's in float by %.2g of "
               "its norm\n",
               kinds[chained], worst, typical, sqrt(pt / aa));
        /* after a step the gradient is 0, and the weights have moved as on the CPU */
        const struct train_settings s = { .steps = 10, .warmup = 2, .rate = 0.01, .decay = 0.1, .clip = 0.5 };
        const double n0 = train_step(&cpu.u, &s, 0), n1 = train_step(&gpu.u, &s, 0);
        CHECK(near(n0, n1, 0, 1e-3) && module_fetch(&gpu.u, &e) == 0, "norms %g %g", n0, n1);
        size_t far = 0;
        for (size_t i = 0; i < cpu.u.n_params; i++) {
            far += !near((double)gpu.u.w[i], (double)cpu.u.w[i], 1e-4, 1e-4);
            CHECK(gpu.u.grad[i] == 0, "a gradient is left");
        }
        CHECK(far * 100 <= cpu.u.n_params, "%zu of %zu weights moved differently", far, cpu.u.n_params);
        /* with weight 0 the gradient stays untouched */
        gpu.u.kind->train(&gpu.u, &gpu.win, 0, score[1]);
        CHECK(module_squares(&gpu.u) == 0, "scoring alone touched the gradient");
        fixture_bench_close(&cpu), fixture_bench_close(&gpu), free(torch.v);
    }
}

/* Without the library the reason is one line. With the library but without a GPU, opening fails, too. */
static void cublas_says_what_is_missing(void)
{
    struct cublas *b;
    char why[512] = "";
    if (cublas_open(&b, NULL, why, sizeof why) == 0)
        cublas_close(b);
    else
        CHECK(!b && strstr(why, "cuBLAS") && strstr(why, "--device cpu") && !strchr(why, '\n'), "%s", why);
}

int main(void)
{
    char why[512];
    if (test_device_open(&dev, why, sizeof why) || device_train_open(dev, why, sizeof why)) {
        printf("skip training_on_a_device (%s)\n", why);
        return 0;
    }
    RUN(products_of_every_orientation);
    RUN(norms_back_as_the_twin);
    RUN(losses_as_the_twin);
    RUN(the_optimiser_is_the_twins);
    RUN(gradients_as_on_the_cpu);
    if (!test_on_gpu()) RUN(cublas_says_what_is_missing);
    dev->close(dev);
    return test_end();
}
