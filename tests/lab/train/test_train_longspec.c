/* Training of LongSpec's drafter: gradients against finite differences, equal bits for every twin and number
 * of threads, the keys that each offset sees, and the file. */
#include "tests/train_bench.h"

enum { OFFSETS = 5 };

static const struct tiny shapes[] = {
    { "longspec-gqa", "llama", 48, 56, 4, 2, 16, 97, 2, 0, DT_F32, true, 0 },
    { "longspec-untied", "llama", 32, 40, 2, 2, 16, 61, 2, 0, DT_F32, false, 0 },
};

/* The mean loss with the offset of the window's key. */
static double loss_of(const struct train_score *score)
{
    size_t n = 0;
    double loss = 0;
    for (size_t j = 0; j < OFFSETS; j++)
        n += score[j].n, loss += score[j].loss;
    CHECK(n == WINDOW - 1, "%zu positions", n);
    return loss / (double)n;
}

static void gradients_equal_finite_differences(void)
{
    for (size_t shape = 0; shape < 2; shape++)
        for (uint64_t key = 0; key < 5; key += 2) {
            struct bench b;
            char what[64];
            snprintf(what, sizeof what, "%s, offset %d", shapes[shape].name, (int)key + 1);
            bench_open(&b, &shapes[shape], &(struct bench_settings){ &train_longspec, .threads = 2,
                       .brief = key == 4, .key = key });
            bench_differences(&b, loss_of, 3 * b.rig.c.hidden, what);
            bench_close(&b);
        }
}

static void gradients_are_equal_everywhere(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        bench_same_everywhere(&shapes[0], (struct bench_settings){ &train_longspec, .bf16 = bf16, .key = 3 });
}

/* With offset j the loss at token t must not depend on the model's keys after t - j. */
static void offsets_hide_keys(void)
{
    for (size_t j = 1; j <= OFFSETS; j++) {
        struct bench b;
        double before, after[2];
        bench_open(&b, &shapes[0], &(struct bench_settings){ &train_longspec });
        b.win.n = 20;
        struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
        b.u.kind->train(&b.u, &b.win, 0, score);
        before = score[j - 1].loss;
        for (int seen = 0; seen < 2; seen++) {
            /* the last query is token 18; the newest key that it sees is 18 - j */
            char *block = kv_block(&b.kv, b.kv.n_layers - 1, 0, 0);
            const size_t slot = 18 - j + !seen;
            float k[64] = { 0 }, v[64] = { 0 }, stored[256];
            kv_sum(k, v, b.kv.type, b.kv.head_dim, block, slot, slot + 1);
            for (size_t i = 0; i < b.kv.head_dim; i++) v[i] += 3;
            kv_store(stored, b.kv.type, k, v, b.kv.head_dim);
            kv_put(block, b.kv.type, b.kv.head_dim, slot, stored);
            memset(score, 0, sizeof score);
            b.u.kind->train(&b.u, &b.win, 0, score);
            after[seen] = score[j - 1].loss;
        }
        CHECK(after[0] == before && after[1] != before, "offset %zu: %g, %g, %g", j, before, after[0],
              after[1]);
        bench_close(&b);
    }
}

static void the_file_has_the_published_names(void)
{
    static const char *const names[] = {
        "self_attn.q_proj.weight", "self_attn.k_proj.bias", "cross_attn.q_proj.bias",
        "cross_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight",
        "post_self_attention_layernorm.weight", "post_cross_attention_layernorm.weight",
    };
    struct bench b;
    struct tensors ts;
    bench_open(&b, &shapes[0], &(struct bench_settings){ &train_longspec });
    bench_file(&b, &ts, "longspec", 16, names, sizeof names / sizeof *names);
    CHECK(bench_first(&ts, "self_attn.k_proj.weight", 32, 48) == f32_to_bf16(b.u.w[64 * 48]));
    tensors_close(&ts);
    bench_close(&b);
}

int main(void)
{
    RUN(gradients_equal_finite_differences);
    RUN(gradients_are_equal_everywhere);
    RUN(offsets_hide_keys);
    RUN(the_file_has_the_published_names);
    return test_end();
}
