/* Training of SPIRe's drafter: gradients against finite differences, equal bits for every twin and number of
 * threads, the pruned model against the model itself, the keys that a query sees, PyTorch's results, and the
 * file. */
#include "src/model/spire.h"
#include "tests/drafter_fixture.h"
#include "tests/train_bench.h"

static const struct tiny shapes[] = {
    { "spire-gqa", "llama", 48, 56, 4, 2, 16, 97, 3, 0, DT_F32, true, 0 },
    { "spire-biases-padded", "qwen2", 40, 44, 3, 3, 20, 61, 2, 0, DT_F32, false, 0 },
    { "spire-two-layers", "llama", 32, 40, 2, 1, 16, 97, 2, 0, DT_F32, true, 0 },
};

/* The sum over outputs of the mean loss. */
static double loss_of(const struct train_score *score)
{
    double loss = 0;
    for (size_t j = 0; j < SPIRE_DEPTH; j++) {
        CHECK(score[j].n == (WINDOW - 1) / SPIRE_DEPTH, "%zu positions", score[j].n);
        loss += score[j].loss / (double)score[j].n;
    }
    return loss;
}

static void gradients_equal_finite_differences(void)
{
    for (int ablation = SPIRE_WHOLE; ablation <= SPIRE_NO_ACTIVATIONS; ablation++)
        for (size_t shape = 0; shape < 2; shape++) {
            struct bench b;
            char what[64];
            snprintf(what, sizeof what, "%s, ablation %d", shapes[shape].name, ablation);
            bench_open(&b, &shapes[shape], &(struct bench_settings){ &train_spire, .threads = 2,
                       .ablation = (enum spire_ablation)ablation, .brief = shape == 1 });
            bench_differences(&b, loss_of, SPIRE_LAYERS * SPIRE_MIX, what);
            bench_close(&b);
        }
}

static void gradients_are_equal_everywhere(void)
{
    for (int k = 0; k < 4; k++)
        bench_same_everywhere(&shapes[k / 2], (struct bench_settings){ &train_spire, .bf16 = k % 2 });
}

/* Of a model of two layers, the pruned drafter is the model, up to its memories of drafted tokens. When w
 * chooses the blocks' own inputs, and the window holds all positions, the two predict the same. */
static void a_pruned_model_of_two_layers_is_the_model(void)
{
    for (size_t shape = 1; shape < 3; shape++) {
        struct bench b;
        struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
        bench_open(&b, &shapes[shape], &(struct bench_settings){ &train_spire, .still = true });
        float *w = b.u.w + b.u.n_params - SPIRE_LAYERS * SPIRE_MIX;
        b.win.n = SPIRE_WINDOW;
        for (int sure = 0; sure < 2; sure++) {
            w[0] = w[4] = sure ? 40 : 0;
            module_update(&b.u);
            memset(score, 0, sizeof score);
            b.u.kind->train(&b.u, &b.win, 0, score);
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
    b->u.kind->train(&b->u, &b->win, 0, all);
    b->win.n -= SPIRE_DEPTH;
    b->u.kind->train(&b->u, &b->win, 0, less);
    b->win.n += SPIRE_DEPTH;
    return all[j].loss - less[j].loss;
}

/* The query at 76 sees the model's residuals of position 0 and of the 64 before it. Those at 77 to 79 see
 * less of them, but the rest through drafted memories. No query sees the model's residuals of its own round,
 * or a token after its own. */
static void queries_see_their_keys(void)
{
    struct bench b;
    bench_open(&b, &shapes[0], &(struct bench_settings){ &train_spire });
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

static void losses_and_gradients_equal_pytorch(void) { drafter_equals_pytorch(&train_spire); }

static void the_file_has_the_models_names(void)
{
    static const char *const names[] = {
        "layers.0.self_attn.q_proj.weight", "layers.1.self_attn.k_proj.bias", "layers.1.mlp.up_proj.weight",
        "layers.0.input_layernorm.weight", "norm.weight", "memory.weight",
    };
    struct bench b;
    struct tensors ts;
    bench_open(&b, &shapes[1], &(struct bench_settings){ &train_spire });
    bench_file(&b, &ts, "spire", 26, names, sizeof names / sizeof *names);
    CHECK(bench_first(&ts, "layers.0.self_attn.k_proj.weight", 60, 40) == f32_to_bf16(b.u.w[60 * 40]));
    tensors_close(&ts);
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
