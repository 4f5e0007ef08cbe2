/* Gemma 3, beside its logits (test_logits): the factor on embeddings, and that rows of windowed layers do not
 * depend on what lies before their window. */
#include "tests/rig.h"

/* The factor on Gemma's embeddings is rounded to the type of the file: sqrt(72) = 8.485. */
static void embeddings_of_gemma_are_scaled(void)
{
    static const struct { enum dtype dtype; float scale; } of[] = { { DT_BF16, 8.5f }, { DT_F16, 8.484375f },
                                                                    { DT_F32, 8.485281374f } };
    struct tiny t = tiny_models[N_TINY - 2];
    CHECK(tiny_is_gemma(&t) && t.hidden == 72);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char dir[4096];
        struct rig r;
        struct kv kv;
        struct err e;
        float x[72], plain[72];
        const int32_t token = 7;
        t.dtype = of[i].dtype;
        tiny_write(&t, dir);
        rig_open(&r, dir, DT_F32, best_twin(), 1, 1, 64);
        rig_kv(&r, &kv, 64, 0);
        struct pass_seq s = { .kv = &kv, .n = 1, .token = &token };
        const struct tap tap = { TAP_RESIDUAL, 0, x };
        if (model_forward(&r.m, r.w, &s, 1, &tap, 1, &e)) rig_die("forward", &e);
        model_embedding(&r.m, token, plain);
        for (size_t k = 0; k < 72; k++)
            CHECK(x[k] == plain[k] * of[i].scale, "%g is not %g * %g", (double)x[k], (double)plain[k],
                  (double)of[i].scale);
        kv_close(&kv), rig_close(&r), tiny_remove(dir);
    }
}

/* With one layer, which has a window of 70, rows depend on 70 tokens: one before them changes no bit. */
static void rows_see_their_window_alone(void)
{
    enum { N = 200, WINDOW = 70 };
    const struct tiny t = { "gemma3", "gemma3_text", 64, 80, 4, 2, 16, 150, 1, WINDOW, DT_BF16, true };
    int32_t token[N];
    float x[2][N][64];
    char dir[4096];
    struct rig r;
    struct err e;
    struct rng rng = { 5 };
    tiny_write(&t, dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, N, N);
    for (size_t i = 0; i < N; i++)
        token[i] = (int32_t)rng_below(&rng, 150);
    for (size_t k = 0; k < 2; k++) {
        struct kv kv;
        rig_kv(&r, &kv, N, 0);
        struct pass_seq s = { .kv = &kv, .n = N, .token = token };
        const struct tap tap = { TAP_RESIDUAL, 1, x[k][0] };
        if (model_forward(&r.m, r.w, &s, 1, &tap, 1, &e)) rig_die("forward", &e);
        kv_close(&kv);
        token[100] = (token[100] + 1) % 150;
    }
    for (size_t i = 0; i < N; i++)
        CHECK((memcmp(x[0][i], x[1][i], sizeof x[0][i]) == 0) == (i < 100 || i >= 100 + WINDOW),
              "row %zu", i);
    rig_close(&r), tiny_remove(dir);
}

int main(void)
{
    RUN(embeddings_of_gemma_are_scaled);
    RUN(rows_see_their_window_alone);
    return test_end();
}
