/* The window of tests/data/drafter_fixture.txt, for which that file has PyTorch's results: a model that has
 * only the parts that training of drafters reads. */
#pragma once
#include "src/lab/train/train.h"
#include "tests/rig.h"
#include "tests/train_fixture.h"

struct drafter_bench {
    struct model m; struct device *dev; struct lm_back back; struct module u; struct train_window win;
    struct layer layers[2];
    float *embedding, *hidden, *entering, *norm, freq[2]; int32_t *token;
};

static inline struct fixture drafter_fixture(const char *drafter, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", drafter, name);
    return fixture_of("tests/data/drafter_fixture.txt", full);
}
static inline float *drafter_floats(const char *name)
{
    struct fixture f = drafter_fixture("", name);
    float *v = must_alloc(f.n * sizeof *v);
    for (size_t i = 0; i < f.n; i++) v[i] = (float)f.v[i];
    free(f.v);
    return v;
}

static inline void drafter_bench_open(struct drafter_bench *b)
{
    struct fixture z = drafter_fixture("", "sizes");
    const size_t d = (size_t)z.v[0], vocab = (size_t)z.v[5], n = (size_t)z.v[6];
    struct err e = { 0 };
    memset(b, 0, sizeof *b);
    struct pool *pool = pool_open(1);
    if (device_cpu_open(&b->dev, best_twin(), pool, DT_F32, e.msg, sizeof e.msg)) rig_die("device", &e);
    b->freq[0] = 1, b->freq[1] = 0.1f;
    b->norm = drafter_floats("norm_final");
    b->m = (struct model){ .compute = DT_F32, .ops = best_twin(), .pool = pool, .dev = b->dev,
                           .head_dim = 16, .layers = b->layers, .norm_final = b->norm, .inv_freq = b->freq,
                           .rope_factor = 1 };
    b->m.config = (struct config){ .hidden = d, .vocab = vocab, .rms_eps = 1e-5, .n_layers = 2,
                                   .n_heads = (size_t)z.v[1], .n_kv_heads = (size_t)z.v[2],
                                   .head_dim = (size_t)z.v[3], .rotary = (size_t)z.v[3],
                                   .ffn = (size_t)z.v[4], .qkv_bias = true };
    b->m.lm_head = (struct mat){ DT_F32, vocab, d, NULL };
    b->m.lm_head.w = must_alloc(mat_bytes(&b->m.lm_head));
    float *lm = drafter_floats("lm_head"), *token = drafter_floats("token");
    mat_pack(&b->m.lm_head, 0, vocab, lm, DT_F32);
    b->embedding = drafter_floats("embedding");
    b->m.embed = (struct mat){ DT_F32, vocab, d, b->embedding };
    b->hidden = drafter_floats("hidden"), b->entering = drafter_floats("entering");
    b->token = must_alloc(n * sizeof *b->token);
    for (size_t i = 0; i < n; i++) b->token[i] = (int32_t)token[i];
    b->win = (struct train_window){ .token = b->token, .n = n, .hidden = b->hidden,
                                    .entering = { b->entering, b->entering + n * d },
                                    .skip_at = (size_t)z.v[7], .skip = (size_t)z.v[8], .done = 1 };
    free(lm), free(token), free(z.v);
}
static inline void drafter_bench_close(struct drafter_bench *b)
{
    module_close(&b->u);
    lm_back_close(&b->back);
    b->dev->close(b->dev);
    pool_close(b->m.pool);
    free(b->m.lm_head.w), free(b->embedding), free(b->hidden), free(b->entering), free(b->norm);
    free(b->token);
}

/* Opens b->u with the parameters of the file and compares the losses, the acceptance, and the gradient. */
static inline void drafter_bench_compare(struct drafter_bench *b, const struct module_kind *kind)
{
    const char *const drafter = kind->name;
    struct fixture first = drafter_fixture(drafter, "_first"), loss = drafter_fixture(drafter, "_losses"),
                   accepted = drafter_fixture(drafter, "_accepted"),
                   gradient = drafter_fixture(drafter, "_gradient");
    struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
    double worst = 0, scale = 0;
    b->u = (struct module){ .kind = kind, .name = drafter, .window = b->win.n, .seed = 1,
                            .ablation = SPIRE_RANDOM };
    modules_open(&b->back, &b->u, 1, &b->m, NULL);
    CHECK(b->u.n_params == first.n, "%zu parameters, PyTorch %zu", b->u.n_params, first.n);
    for (size_t i = 0; i < first.n; i++) b->u.w[i] = (float)first.v[i];
    module_update(&b->u);
    b->u.kind->train(&b->u, &b->win, 1, score);
    for (size_t j = 0; j < b->u.n_outputs; j++) {
        const double n = (double)score[j].n;
        CHECK(near(score[j].loss / n, loss.v[j], 1e-5, 1e-5) &&
              near(score[j].accepted / n, accepted.v[j], 1e-5, 1e-5),
              "output %zu: loss %.9g, PyTorch %.9g, accepted %.9g, PyTorch %.9g", j, score[j].loss / n,
              loss.v[j], score[j].accepted / n, accepted.v[j]);
    }
    for (size_t i = 0; i < gradient.n; i++) scale = fmax(scale, fabs(gradient.v[i]));
    for (size_t i = 0; i < gradient.n; i++) {
        CHECK(near((double)b->u.grad[i], gradient.v[i], 1e-5 * scale, 1e-4),
              "gradient of parameter %zu: %.9g, PyTorch %.9g", i, (double)b->u.grad[i], gradient.v[i]);
        worst = fmax(worst, fabs((double)b->u.grad[i] - gradient.v[i]) / scale);
    }
    printf("    largest difference of the gradient %.2g of its largest part\n", worst);
    free(first.v), free(loss.v), free(accepted.v), free(gradient.v);
}

static inline void drafter_equals_pytorch(const struct module_kind *kind)
{
    struct drafter_bench b;
    drafter_bench_open(&b);
    drafter_bench_compare(&b, kind);
    drafter_bench_close(&b);
}
