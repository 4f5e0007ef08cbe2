/* Training of SPIRe's drafter: gradients against finite differences, equal bits for every twin and number of
 * threads, the pruned model against the model itself, the keys that a query sees, PyTorch's results, and the
 * file. */
#include "src/model/safetensors.h"
#include "src/train/train_spire.h"
#include "tests/drafter_fixture.h"
#include "tests/rig.h"
#include "tests/tiny_model.h"

enum { WINDOW = 83, SKIP_AT = 3, SKIP = 900 };

static const struct tiny shapes[] = {
    { "spire-gqa", "llama", 48, 56, 4, 2, 16, 97, 3, 0, DT_F32, true, 0 },
    { "spire-biases-padded", "qwen2", 40, 44, 3, 3, 20, 61, 2, 0, DT_F32, false, 0 },
    { "spire-two-layers", "llama", 32, 40, 2, 1, 16, 97, 2, 0, DT_F32, true, 0 },
};

/* A window, what the model computes of it, and a module. */
struct bench {
    struct rig rig; struct kv kv; struct lm_back back; struct module u; struct train_window win;
    int32_t token[WINDOW];
    float *hidden, *entering[2];
};

/* noise: added to all parameters. */
static void bench_open(struct bench *b, const struct tiny *shape, enum dtype compute, const struct ops *o,
                       size_t threads, enum spire_ablation ablation, float noise)
{
    struct err e = { 0 };
    char dir[4096];
    struct rng rng = { 7 };
    *b = (struct bench){ 0 };
    tiny_write(shape, dir);
    rig_open(&b->rig, dir, compute, o, threads, WINDOW, 4096);
    tiny_remove(dir);
    rig_kv(&b->rig, &b->kv, WINDOW + 3, 0);
    rig_tokens(b->token, WINDOW, b->rig.c.vocab, 3);
    const size_t d = b->rig.c.hidden, bytes = WINDOW * d * sizeof(float);
    b->hidden = must_alloc(bytes), b->entering[0] = must_alloc(bytes), b->entering[1] = must_alloc(bytes);
    for (size_t i = 0, to; i < WINDOW; i = to) {
        to = i < SKIP_AT ? SKIP_AT : WINDOW;
        struct pass_seq seq = { .kv = &b->kv, .n = to - i, .token = b->token + i, .shift = i ? SKIP : 0 };
        const struct tap taps[] = { { TAP_RESIDUAL, b->rig.c.n_layers - 2, b->entering[0] + i * d },
                                    { TAP_RESIDUAL, b->rig.c.n_layers - 1, b->entering[1] + i * d },
                                    { TAP_RESIDUAL, b->rig.c.n_layers, b->hidden + i * d } };
        if (model_forward(&b->rig.m, b->rig.w, &seq, 1, taps, 3, &e)) rig_die("forward", &e);
        kv_advance(&b->kv, to - i);
    }
    if (lm_back_open(&b->back, &b->rig.m, &e) ||
        train_spire_open(&b->u, &b->rig.m, &b->back, WINDOW, ablation, 9, &e))
        rig_die("open", &e);
    b->u.name = "spire";
    if (module_open(&b->u, &e)) rig_die("module", &e);
    for (size_t i = 0; i < b->u.n_params; i++)
        b->u.w[i] += noise * rng_normal(&rng);
    b->u.kind->update(&b->u);
    b->win = (struct train_window){ .token = b->token, .n = WINDOW, .hidden = b->hidden, .kv = &b->kv,
                                    .entering = { b->entering[0], b->entering[1] }, .skip_at = SKIP_AT,
                                    .skip = SKIP };
}

static void bench_close(struct bench *b)
{
    module_close(&b->u);
    train_spire_close(&b->u);
    lm_back_close(&b->back);
    kv_close(&b->kv);
    rig_close(&b->rig);
    free(b->hidden), free(b->entering[0]), free(b->entering[1]);
}

/* The sum over outputs of the mean loss, and its gradient if asked. */
static double loss_of(struct bench *b, bool gradient)
{
    struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
    double loss = 0;
    memset(b->u.grad, 0, gradient ? b->u.n_params * sizeof(float) : 0);
    b->u.kind->window(&b->u, &b->win, gradient ? 1 : 0, score);
    for (size_t j = 0; j < SPIRE_DEPTH; j++) {
        CHECK(score[j].n == (b->win.n - 1) / SPIRE_DEPTH, "%zu positions", score[j].n);
        loss += score[j].loss / (double)score[j].n;
    }
    return loss;
}

/* Along the gradient, in random directions, and along each part of the parameters alone:
 * (loss(w + a d) - loss(w - a d)) / 2a = d . gradient. */
static void gradients_equal_finite_differences(void)
{
    struct rng rng = { 65 };
    double worst = 0;
    for (int ablation = SPIRE_WHOLE; ablation <= SPIRE_NO_ACTIVATIONS; ablation++)
        for (size_t shape = 0; shape < 2; shape++) {
            struct bench b;
            bench_open(&b, &shapes[shape], DT_F32, best_twin(), 2, (enum spire_ablation)ablation, 0.1f);
            const size_t n = b.u.n_params;
            float *w = must_alloc(n * 4), *g = must_alloc(n * 4), *dir = must_alloc(n * 4);
            loss_of(&b, true);
            memcpy(w, b.u.w, n * 4), memcpy(g, b.u.grad, n * 4);
            for (size_t k = 0; k < 25; k++) {
                /* 0: the gradient; 1..3: random; then random within a twentieth; 24: the memories' w alone */
                size_t from = k < 4 ? 0 : (k - 4) * n / 20, to = k < 4 ? n : (k - 3) * n / 20;
                double dot = 0, len = 0, side[2];
                if (k == 24) from = n - 6, to = n;
                for (size_t i = 0; i < n; i++)
                    dir[i] = i < from || i >= to ? 0 : k == 0 ? g[i] : rng_normal(&rng);
                for (size_t i = 0; i < n; i++) len += (double)dir[i] * (double)dir[i];
                for (size_t i = 0; i < n; i++) dot += (double)dir[i] / sqrt(len) * (double)g[i];
                for (int j = 0; j < 2; j++) {
                    for (size_t i = 0; i < n; i++)
                        b.u.w[i] = w[i] + (float)((j ? 0.001 : -0.001) / sqrt(len) * (double)dir[i]);
                    b.u.kind->update(&b.u);
                    side[j] = loss_of(&b, false);
                }
                const double got = (side[1] - side[0]) / 0.002;
                CHECK(near(got, dot, 1e-3, 1e-3), "%s, ablation %d, direction %zu: differences %g, "
                      "gradient %g", shapes[shape].name, ablation, k, got, dot);
                worst = fmax(worst, fabs(got - dot));
            }
            free(w), free(g), free(dir);
            bench_close(&b);
        }
    printf("    largest difference %.2g\n", worst);
}

static void gradients_are_equal_everywhere(void)
{
    for (int k = 0; k < 4; k++) {
        float *first = NULL;
        FOR_TWINS(o)
            for (size_t threads = 1; threads <= 3; threads += 2) {
                struct bench b;
                bench_open(&b, &shapes[k / 2], k % 2 ? DT_BF16 : DT_F32, o, threads, SPIRE_WHOLE, 0.1f);
                loss_of(&b, true);
                if (first)
                    CHECK(!memcmp(first, b.u.grad, b.u.n_params * 4), "%s, %zu threads", o->name, threads);
                else
                    first = must_alloc(b.u.n_params * 4), memcpy(first, b.u.grad, b.u.n_params * 4);
                bench_close(&b);
            }
        free(first);
    }
}

/* Of a model of two layers, the pruned drafter is the model, up to its memories of drafted tokens. When w
 * chooses the blocks' own inputs, and the window holds all positions, the two predict the same. */
static void a_pruned_model_of_two_layers_is_the_model(void)
{
    for (size_t shape = 1; shape < 3; shape++) {
        struct bench b;
        struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
        bench_open(&b, &shapes[shape], DT_F32, best_twin(), 1, SPIRE_WHOLE, 0);
        float *w = b.u.w + b.u.n_params - SPIRE_LAYERS * SPIRE_MIX;
        b.win.n = SPIRE_WINDOW;
        for (int sure = 0; sure < 2; sure++) {
            w[0] = w[4] = sure ? 40 : 0;
            b.u.kind->update(&b.u);
            memset(score, 0, sizeof score);
            b.u.kind->window(&b.u, &b.win, 0, score);
            const double n = (double)score[0].n, a = score[0].accepted / n, z = score[3].accepted / n;
            CHECK(a > 0.9999 && a < 1.0001 && (sure ? z > 0.9999 && z < 1.0001 : z < 0.99),
                  "%s: accepted %g, %g", shapes[shape].name, a, z);
        }
        bench_close(&b);
    }
}

/* The loss of output j in the last round of a window. */
static double last_round(struct bench *b, size_t j)
{
    struct train_score all[TRAIN_OUTPUTS_MAX] = { 0 }, less[TRAIN_OUTPUTS_MAX] = { 0 };
    b->u.kind->window(&b->u, &b->win, 0, all);
    b->win.n -= SPIRE_DEPTH;
    b->u.kind->window(&b->u, &b->win, 0, less);
    b->win.n += SPIRE_DEPTH;
    return all[j].loss - less[j].loss;
}

/* The query at 76 sees the model's residuals of position 0 and of the 64 before it. Those at 77 to 79 see
 * less of them, but the rest through drafted memories. No query sees the model's residuals of its own round, or a
 * token after its own. */
static void queries_see_their_keys(void)
{
    struct bench b;
    bench_open(&b, &shapes[0], DT_F32, best_twin(), 1, SPIRE_WHOLE, 0.1f);
    b.win.n = 81;
    const size_t d = b.rig.c.hidden;
    for (size_t j = 0; j < SPIRE_DEPTH; j++) {
        const double before = last_round(&b, j);
        for (size_t pos = 0; pos < 80; pos++) {
            const bool seen = pos == 0 || (pos >= 76 - SPIRE_WINDOW && pos < 76);
            float *y = b.entering[0] + pos * d, was[64];
            memcpy(was, y, d * 4);
            for (size_t i = 0; i < d; i++) y[i] = 3 * y[d - 1 - i];
            const double change = fabs(last_round(&b, j) - before);
            CHECK(seen ? change > 1e-6 : change < 1e-9, "output %zu, position %zu: %g", j, pos, change);
            memcpy(y, was, d * 4);
        }
        for (size_t k = 0; k < SPIRE_DEPTH; k++) {
            const int32_t was = b.token[76 + k];
            b.token[76 + k] = (was + 1) % 97;
            const double change = fabs(last_round(&b, j) - before);
            CHECK(k <= j ? change > 1e-6 : change < 1e-9, "output %zu, token %zu: %g", j, k, change);
            b.token[76 + k] = was;
        }
    }
    bench_close(&b);
}

static void losses_and_gradients_equal_pytorch(void)
{
    struct drafter_bench b;
    struct err e = { 0 };
    drafter_bench_open(&b);
    if (train_spire_open(&b.u, &b.m, &b.back, b.win.n, SPIRE_RANDOM, 1, &e)) rig_die("open", &e);
    drafter_bench_compare(&b, "spire");
    train_spire_close(&b.u);
    drafter_bench_close(&b);
}

static void the_file_has_the_models_names(void)
{
    static const char *const names[] = {
        "layers.0.self_attn.q_proj.weight", "layers.1.self_attn.k_proj.bias", "layers.1.mlp.up_proj.weight",
        "layers.0.input_layernorm.weight", "norm.weight", "memory.weight",
    };
    struct bench b;
    struct err e = { 0 };
    struct tensors ts = { 0 };
    char path[] = "/tmp/spire-XXXXXX", kind[32];
    bench_open(&b, &shapes[1], DT_F32, best_twin(), 1, SPIRE_WHOLE, 0.1f);
    close(mkstemp(path));
    CHECK(b.u.kind->save(&b.u, path, "a note", &e) == 0, "%s", e.msg);
    CHECK(tensors_open_file(&ts, path, &e) == 0 && ts.n == 26, "%s, %zu tensors", e.msg, ts.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(tensors_find(&ts, names[i]), "%s", names[i]);
    CHECK(tensors_metadata(&ts, "kind", kind, sizeof kind, &e) == 1 && !strcmp(kind, "spire"));
    const struct tensor *t = tensors_find(&ts, "layers.0.self_attn.k_proj.weight");
    uint16_t first;
    CHECK(t && t->dim[0] == 60 && t->dim[1] == 40 && tensors_read(&ts, t, &first, 0, 2, &e) == 0 &&
          first == f32_to_bf16(b.u.w[60 * 40]));
    tensors_close(&ts);
    unlink(path);
    bench_close(&b);
}

int main(void)
{
    RUN(gradients_equal_finite_differences);
    RUN(gradients_are_equal_everywhere);
    RUN(a_pruned_model_of_two_layers_is_the_model);
    RUN(queries_see_their_keys);
    RUN(losses_and_gradients_equal_pytorch);
    RUN(the_file_has_the_models_names);
    return test_end();
}
