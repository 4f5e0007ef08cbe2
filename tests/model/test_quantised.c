/* Models with quantised weights: rule R1 and equal twins for every type and for a mix of types, under bf16
 * and f32; drafts of such a model; bf16 and F32 matrices beside quantised ones. Weights are random bits. */
#include "src/text/tokenizer.h"
#include "kernels/quant.h"
#include "tests/rig.h"
#include "tests/quant_type.h"

enum { ROWS = 40, PAST = 70 };

/* Rows of passes of several sizes, by each twin with several threads, equal rows one by one. */
static void rows_are_rows(const struct quant_body *b, enum dtype compute)
{
    struct rig r;
    struct kv kv, truth;
    int32_t token[ROWS];
    static const size_t sizes[] = { 1, 2, 3, 5, 8, 13, ROWS };
    rig_open(&r, b->name, compute, best_twin(), 1, 64, 2100);
    const size_t bytes = ROWS * r.c.vocab * sizeof(float);
    float *want = must_alloc(bytes), *got = must_alloc(bytes);
    rig_tokens(token, ROWS, r.c.vocab, 5);
    rig_kv(&r, &truth, PAST + ROWS, 0);
    rig_inject(&truth, PAST, 6);
    rig_run(&r, &truth, token, ROWS, 1, want, NULL);
    for (size_t i = 0; i < ROWS * r.c.vocab; i++)
        if (!isfinite(want[i])) { CHECK(false, "%s: logit %zu is %g", b->name, i, (double)want[i]); break; }
    CHECK(memcmp(want, want + r.c.vocab, r.c.vocab * sizeof *want), "%s: two rows are the same", b->name);
    rig_close(&r);
    FOR_TWINS(o) {
        const bool plain = o == ops_all[0];
        rig_open(&r, b->name, compute, o, plain ? 2 : 3, 64, 2100);
        rig_kv(&r, &kv, PAST + ROWS, 0);
        rig_inject(&kv, PAST, 6);
        for (size_t i = plain ? 6 : 0; i < sizeof sizes / sizeof *sizes; i++) {
            memset(got, 0, bytes);
            kv_truncate(&kv, PAST);
            rig_run(&r, &kv, token, ROWS, sizes[i], got, NULL);
            CHECK(!memcmp(want, got, bytes) && rig_same_rows(&truth, &kv, PAST, PAST + ROWS),
                  "%s %s %s: passes of %zu rows", b->name, compute == DT_F32 ? "f32" : "bf16", o->name,
                  sizes[i]);
        }
        kv_close(&kv), rig_close(&r);
    }
    kv_close(&truth), free(want), free(got);
}

static void every_type_obeys_r1(void)
{
    for (size_t i = 0; i < QUANT_BODIES; i++)
        rows_are_rows(&quant_bodies[i], DT_BF16);
}
static void under_f32_too(void)
{
    for (size_t i = 0; i < QUANT_BODIES; i++)
        rows_are_rows(&quant_bodies[i], DT_F32);
}

/* int16 activations are close to f32 ones: the logits differ little, but they differ. */
static void arithmetic_is_close_to_f32(void)
{
    for (size_t i = 0; i < QUANT_BODIES; i++) {
        float *logits[2];
        size_t n = 0;
        for (int f32 = 0; f32 < 2; f32++) {
            struct rig r;
            struct kv kv;
            int32_t token[ROWS];
            rig_open(&r, quant_bodies[i].name, f32 ? DT_F32 : DT_BF16, best_twin(), 2, 64, 2100);
            n = ROWS * r.c.vocab;
            logits[f32] = must_alloc(n * sizeof(float));
            rig_tokens(token, ROWS, r.c.vocab, 8);
            rig_kv(&r, &kv, ROWS, 0);
            rig_run(&r, &kv, token, ROWS, ROWS, logits[f32], NULL);
            kv_close(&kv), rig_close(&r);
        }
        double error = 0, size = 0;
        for (size_t j = 0; j < n; j++) {
            const double d = (double)logits[0][j] - (double)logits[1][j];
            error += d * d;
            size += (double)logits[1][j] * (double)logits[1][j];
        }
        const double relative = sqrt(error / size);
        printf("    %s: relative error %.2g\n", quant_bodies[i].name, relative);
        CHECK(relative > 1e-7 && relative < 2e-3, "%s: %g", quant_bodies[i].name, relative);
        free(logits[0]), free(logits[1]);
    }
}

/* The mix has lists of matrices; a model of one type has one matrix for each product. Weights take the bytes
 * of the file, and the numerics id says how they are multiplied. */
static void matrices_and_bytes(void)
{
    for (size_t i = 0; i < QUANT_BODIES; i++) {
        struct rig r;
        size_t lists = 0;
        rig_open(&r, quant_bodies[i].name, DT_BF16, best_twin(), 1, 64, 2100);
        for (size_t l = 0; l < r.c.n_layers; l++) {
            lists += r.m.layers[l].qkv.n > 1;
            CHECK(mats_n(&r.m.layers[l].qkv) == (r.c.n_heads + 2 * r.c.n_kv_heads) * r.c.head_dim);
        }
        CHECK((lists > 0) == quant_bodies[i].mix && lists < r.c.n_layers, "%s: %zu", quant_bodies[i].name,
              lists);
        CHECK(!strcmp(r.dev->numerics, "cpu-1-int16-q1"), "%s", r.dev->numerics);
        rig_close(&r);
        rig_open_kv(&r, quant_bodies[i].name, DT_BF16, DT_BF16, best_twin(), 1, 64, 2100);
        CHECK(!strcmp(r.dev->numerics, "cpu-1-bf16-q1"), "%s", r.dev->numerics);
        rig_close(&r);
        rig_open(&r, quant_bodies[i].name, DT_F32, best_twin(), 1, 64, 2100);
        CHECK(!strcmp(r.dev->numerics, "cpu-1-f32-q1"), "%s", r.dev->numerics);
        rig_close(&r);
    }
}

/* A bf16 matrix in a model with quantised weights multiplies x rounded to bf16, an F32 one under f32 x
 * itself. */
static void other_matrices_beside(void)
{
    enum { N = 40, K = 51, M = 20 };
    struct rng rng = { 9 };
    float x[M * K], w[N * K], y[2][M * N];
    uint16_t rounded[M * (K + 1)] = { 0 };
    for (size_t i = 0; i < M * K; i++) x[i] = rng_normal(&rng);
    for (size_t i = 0; i < N * K; i++) w[i] = rng_normal(&rng);
    for (size_t r = 0; r < M; r++)
        for (size_t i = 0; i < K; i++) rounded[r * (K + 1) + i] = f32_to_bf16(x[r * K + i]);
    struct rig r;
    rig_open(&r, quant_bodies[0].name, DT_BF16, best_twin(), 2, 64, 2100);
    struct mat m = { DT_BF16, N, K, NULL };
    m.w = must_alloc(mat_bytes(&m));
    memset(m.w, 0, mat_bytes(&m));
    mat_pack(&m, 0, N, w, DT_F32);
    r.dev->product(r.dev, &(struct device_product){ y[0], N, x, M, &m, NULL, false, SIZE_MAX });
    r.m.ops->matmul(y[1], N, DT_BF16, rounded, K + 1, M, &m, NULL, false, 0, mat_panels(&m));
    CHECK(!memcmp(y[0], y[1], sizeof *y));
    free(m.w);
    rig_close(&r);
}

/* ---- accuracy ---- */

/* Mean over the rows of KL(p || q), p and q the softmax of logits. */
static double divergence(const float *p, const float *q, size_t rows, size_t vocab)
{
    double all = 0;
    for (size_t r = 0; r < rows; r++, p += vocab, q += vocab) {
        double top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 }, kl = 0;
        for (size_t i = 0; i < vocab; i++)
            top[0] = fmax(top[0], (double)p[i]), top[1] = fmax(top[1], (double)q[i]);
        for (size_t i = 0; i < vocab; i++)
            sum[0] += exp((double)p[i] - top[0]), sum[1] += exp((double)q[i] - top[1]);
        for (size_t i = 0; i < vocab; i++) {
            const double a = (double)p[i] - top[0] - log(sum[0]), b = (double)q[i] - top[1] - log(sum[1]);
            kl += exp(a) * (a - b);
        }
        all += kl;
    }
    return all / (double)rows;
}

/* Logits of n tokens of models/demo with weights of that kind. */
static float *demo_logits(enum weights weights, bool f32, const int32_t *token, size_t n)
{
    struct rig r = { 0 };
    struct kv kv;
    struct err e = { 0 };
    static const char demo[] = "models/demo";
    r.pool = pool_open(2);
    const struct model_setup s = { .config = &r.c,
                                   .compute = f32 ? DT_F32 : DT_BF16,
                                   .ops = best_twin(),
                                   .pool = r.pool,
                                   .weights = weights };
    struct model_setup with = s;
    if (device_cpu_open(&r.dev, s.ops, r.pool, f32 ? DT_F32 : DT_I16, e.msg, sizeof e.msg))
        rig_die("device", &e);
    with.dev = r.dev;
    if (config_read(&r.c, demo, &e) || model_open(&r.m, demo, &with, &e) ||
        workspace_open(&r.w, &r.m, 64, n, &e)) rig_die("demo", &e);
    float *logits = must_alloc(n * r.c.vocab * sizeof *logits);
    rig_kv(&r, &kv, n, 0);
    rig_run(&r, &kv, token, n, 64, logits, NULL);
    kv_close(&kv), rig_close(&r);
    return logits;
}

/* The demonstration model on the first n tokens of a text. */
static void demo_on(const char *file, size_t n)
{
    struct config c;
    struct tokenizer *t;
    struct err e = { 0 };
    int32_t *token;
    size_t n_token, bytes = 0;
    char *text = must_alloc(1 << 20);
    FILE *f = fopen(file, "r");
    CHECK(f, "%s", file);
    if (!f) { free(text); return; }
    bytes = fread(text, 1, 1 << 20, f);
    fclose(f);
    if (config_read(&c, "models/demo", &e) || tokenizer_open(&t, "models/demo", c.vocab, &e) ||
        tokenizer_encode(t, &token, &n_token, text, bytes, false, &e)) rig_die("text", &e);
    n = MIN(n, n_token);
    for (enum weights w = WEIGHTS_Q8_0; w <= WEIGHTS_Q4_0; w++) {
        float *exact = demo_logits(w, true, token, n), *fast = demo_logits(w, false, token, n);
        const double kl = divergence(exact, fast, n, c.vocab);
        printf("    models/demo %s, %zu tokens: mean KL %.2g\n", weights_names[w], n, kl);
        CHECK(kl > 0 && kl <= 1e-4, "%s: %g", weights_names[w], kl);
        free(exact), free(fast);
    }
    tokenizer_close(t), free(token), free(text);
}
static void divergence_from_f32_is_small(void) { demo_on("README.md", 256); }

static void body_open(struct rig *r, enum dtype type, bool f32, size_t rows)
{
    static const char json[] =
        "{\"model_type\":\"qwen2\",\"hidden_size\":896,\"intermediate_size\":4864,\"num_hidden_layers\":24,"
        "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"vocab_size\":151936,\"hidden_act\":\"silu\","
        "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,"
        "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";
    struct err e = { 0 };
    *r = (struct rig){ .pool = pool_open(2), .rows_max = rows, .n_max = 4096 };
    if (device_cpu_open(&r->dev, best_twin(), r->pool, f32 ? DT_F32 : DT_I16, e.msg, sizeof e.msg) ||
        config_parse(&r->c, "body", json, strlen(json), NULL, NULL, 0, &e)) rig_die("body", &e);
    const struct model_setup s = { .config = &r->c,
                                   .compute = f32 ? DT_F32 : DT_BF16,
                                   .dev = r->dev,
                                   .ops = best_twin(),
                                   .pool = r->pool,
                                   .random = type };
    if (model_random(&r->m, &s, 7, &e) || workspace_open(&r->w, &r->m, rows, r->n_max, &e))
        rig_die("body", &e);
}

/* The body of Qwen2.5-0.5B with random weights, on n random tokens. */
static void body_on(size_t n)
{
    enum { STEP = 256 };
    static const enum dtype kinds[] = { DT_Q4_0, DT_Q8_0 };
    int32_t token[4096];
    for (size_t t = 0; t < 2; t++) {
        struct rig r[2];
        struct kv kv[2];
        float *logits[2];
        double kl = 0;
        for (int f32 = 0; f32 < 2; f32++) {
            body_open(&r[f32], kinds[t], f32, STEP);
            rig_kv(&r[f32], &kv[f32], n, 0);
            logits[f32] = must_alloc(STEP * r[f32].c.vocab * sizeof(float));
        }
        rig_tokens(token, n, r[0].c.vocab, 11);
        for (size_t at = 0, some; at < n; at += some) {
            some = MIN(n - at, (size_t)STEP);
            for (int f32 = 0; f32 < 2; f32++)
                rig_run(&r[f32], &kv[f32], token + at, some, some, logits[f32], NULL);
            kl += divergence(logits[1], logits[0], some, r[0].c.vocab) * (double)some;
        }
        printf("    0.5B body %s, %zu tokens: mean KL %.2g\n", quant_type(kinds[t])->name, n, kl / (double)n);
        CHECK(kl > 0 && kl / (double)n <= 1e-4);
        for (int f32 = 0; f32 < 2; f32++) {
            kv_close(&kv[f32]), rig_close(&r[f32]);
            free(logits[f32]);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {                          /* FILE: 4,096 tokens of a text; --body: of the 0.5B body */
        strcmp(argv[1], "--body") ? demo_on(argv[1], 4096) : body_on(4096);
        return test_end();
    }
    RUN(divergence_from_f32_is_small);
    RUN(every_type_obeys_r1);
    RUN(under_f32_too);
    RUN(arithmetic_is_close_to_f32);
    RUN(matrices_and_bytes);
    RUN(other_matrices_beside);
    return test_end();
}
