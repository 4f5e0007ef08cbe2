/* Training of Gumiho's drafter: gradients against finite differences and PyTorch, equal bits for every twin
 * and number of threads, the two stages, and the file. */
#include "src/model/gumiho.h"
#include "tests/drafter_fixture.h"
#include "tests/train_bench.h"

enum { GUMIHO_OUTPUTS = 1 + GUMIHO_HEADS };

static const struct tiny shapes[] = {
    { "gumiho-gqa", "llama", 48, 56, 4, 2, 16, 97, 2, 0, DT_F32, true, 0 },
    { "gumiho-padded", "llama", 42, 44, 3, 3, 20, 61, 2, 0, DT_F32, false, 0 },
};

static double loss_of(const struct train_score *score)
{
    double loss = 0;
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++) {
        CHECK(score[k].n == WINDOW - 1 - (k ? 2 + k : 1), "output %zu: %zu positions", k, score[k].n);
        loss += score[k].loss / (double)score[k].n * (k ? pow(0.8, (double)k) / 9 : 1);
    }
    return loss;
}

static void gradients_equal_finite_differences(void)
{
    for (int stage = 0; stage < 3; stage++)              /* the last one with a short vocabulary */
        for (size_t shape = 0; shape < 2; shape++) {
            struct bench b;
            char what[64];
            snprintf(what, sizeof what, "%s, stage %d", shapes[shape].name, stage);
            bench_open(&b, &shapes[shape], &(struct bench_settings){ &train_gumiho, .threads = 2,
                       .brief = stage == 2, .key = 5, .done = stage ? 0.1 : 0.099 });
            bench_differences(&b, loss_of, 48, what);
            bench_close(&b);
        }
}

static void gradients_are_equal_everywhere(void)
{
    for (int k = 0; k < 4; k++)
        bench_same_everywhere(&shapes[k / 2], (struct bench_settings){ &train_gumiho, .bf16 = k % 2,
                              .brief = k == 1, .key = 5, .done = 1 });
}

/* The classes count in the heads' loss from a tenth of the steps on, in the serial part's always; noise
 * changes what a window trains, but not its score. */
static void the_stages_and_the_noise(void)
{
    struct train_score first[TRAIN_OUTPUTS_MAX], second[TRAIN_OUTPUTS_MAX], plain[TRAIN_OUTPUTS_MAX] = { 0 },
        again[TRAIN_OUTPUTS_MAX] = { 0 };
    struct bench b;
    bench_open(&b, &shapes[0], &(struct bench_settings){ &train_gumiho, .key = 5 });
    bench_window(&b, first);
    b.win.done = 0.5;
    bench_window(&b, second);
    b.u.kind->train(&b.u, &b.win, 0, plain);
    b.win.key = 6;
    b.u.kind->train(&b.u, &b.win, 0, again);
    for (size_t k = 0; k < GUMIHO_OUTPUTS; k++)
        CHECK((k == 0) == (first[k].loss == second[k].loss) && second[k].loss != plain[k].loss &&
              plain[k].loss == again[k].loss, "output %zu: %g, %g, %g", k, first[k].loss, second[k].loss,
              plain[k].loss);
    bench_close(&b);
}

static void losses_and_gradients_equal_pytorch(void) { drafter_equals_pytorch(&train_gumiho); }

static void the_file_has_the_published_names(void)
{
    static const char *const names[] = {
        "fc.weight", "fc.bias", "layers.0.self_attn.q_proj.weight", "layers.1.mlp.down_proj.weight",
        "layers.1.input_layernorm.weight", "layers.0.post_attention_layernorm.weight",
        "mlp.0.0.linear.weight", "mlp.4.5.linear.bias",
    };
    struct bench b;
    struct tensors ts;
    bench_open(&b, &shapes[0], &(struct bench_settings){ &train_gumiho, .key = 5, .done = 1 });
    bench_file(&b, &ts, "gumiho", 2 + 17 + 60, names, sizeof names / sizeof *names);
    CHECK(!tensors_find(&ts, "layers.0.input_layernorm.weight"));
    CHECK(bench_first(&ts, "mlp.0.0.linear.weight", 48, 96) == f32_to_bf16(
              b.u.w[2 * 48 * 48 + 2 * (48 * (2 * 64 + 2 * 32) + 3 * 48 * 56)]));
    tensors_close(&ts);
    bench_close(&b);
}

int main(void)
{
    RUN(gradients_equal_finite_differences);
    RUN(gradients_are_equal_everywhere);
    RUN(the_stages_and_the_noise);
    RUN(losses_and_gradients_equal_pytorch);
    RUN(the_file_has_the_published_names);
    return test_end();
}
