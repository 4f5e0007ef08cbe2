/* Training of LongSpec's drafter: gradients against finite differences, equal bits for every twin and number
 * of threads, the keys that each offset sees, and the file. */
#include "src/model/longspec.h"
#include "src/model/safetensors.h"
#include "src/train/train_longspec.h"
#include "tests/rig.h"
#include "tests/tiny_model.h"

enum { WINDOW = 37, SKIP_AT = 3, SKIP = 900 };

static const struct tiny shapes[] = {
    { "longspec-gqa", "llama", 48, 56, 4, 2, 16, 97, 2, 0, DT_F32, true, 0 },
    { "longspec-untied", "llama", 32, 40, 2, 2, 16, 61, 1, 0, DT_F32, false, 0 },
};

/* A window, its cache, and a module with random parameters. */
struct bench {
    struct rig rig; struct kv kv; struct lm_back back; struct module u; struct train_window win;
    int32_t token[WINDOW];
};

static void bench_open(struct bench *b, const struct tiny *shape, enum dtype compute, const struct ops *o,
                       size_t threads)
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
    for (size_t i = 0, to; i < WINDOW; i = to) {
        to = i < SKIP_AT ? SKIP_AT : WINDOW;
        struct pass_seq seq = { .kv = &b->kv, .n = to - i, .token = b->token + i, .shift = i ? SKIP : 0 };
        if (model_forward(&b->rig.m, b->rig.w, &seq, 1, NULL, 0, &e)) rig_die("forward", &e);
        kv_advance(&b->kv, to - i);
    }
    if (lm_back_open(&b->back, &b->rig.m, &e) ||
        train_longspec_open(&b->u, &b->rig.m, &b->back, WINDOW, 9, &e))
        rig_die("open", &e);
    b->u.name = "longspec";
    if (module_open(&b->u, &e)) rig_die("module", &e);
    /* large enough that every part matters; biases and gains too */
    for (size_t i = 0; i < b->u.n_params; i++)
        b->u.w[i] = (i < b->u.n_matrix ? 8 * b->u.w[i] : b->u.w[i]) + 0.1f * rng_normal(&rng);
    b->u.kind->update(&b->u);
    b->win = (struct train_window){ .token = b->token, .n = WINDOW, .kv = &b->kv, .skip_at = SKIP_AT,
                                    .skip = SKIP };
}

static void bench_close(struct bench *b)
{
    module_close(&b->u);
    train_longspec_close(&b->u);
    lm_back_close(&b->back);
    kv_close(&b->kv);
    rig_close(&b->rig);
}

/* The mean loss with offset key % 5 + 1, and its gradient if asked. */
static double loss_of(struct bench *b, uint64_t key, bool gradient)
{
    struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
    b->win.key = key;
    memset(b->u.grad, 0, gradient ? b->u.n_params * sizeof(float) : 0);
    b->u.kind->window(&b->u, &b->win, gradient ? 1 : 0, score);
    const struct train_score *s = &score[key % LONGSPEC_OFFSETS];
    CHECK(s->n == WINDOW - 1, "%zu positions", s->n);
    return s->loss / (double)s->n;
}

/* Along the gradient, in random directions, and along each part of the parameters alone:
 * (loss(w + a d) - loss(w - a d)) / 2a = d . gradient. */
static void gradients_equal_finite_differences(void)
{
    struct rng rng = { 65 };
    double worst = 0;
    for (size_t shape = 0; shape < 2; shape++)
        for (uint64_t key = 0; key < 5; key += 2) {
            struct bench b;
            bench_open(&b, &shapes[shape], DT_F32, best_twin(), 2);
            const size_t n = b.u.n_params;
            float *w = must_alloc(n * 4), *g = must_alloc(n * 4), *dir = must_alloc(n * 4);
            loss_of(&b, key, true);
            memcpy(w, b.u.w, n * 4), memcpy(g, b.u.grad, n * 4);
            for (size_t k = 0; k < 24; k++) {
                /* 0: the gradient; 1..3: random; then random within a twentieth of the parameters */
                const size_t from = k < 4 ? 0 : (k - 4) * n / 20, to = k < 4 ? n : (k - 3) * n / 20;
                double dot = 0, len = 0, side[2];
                for (size_t i = 0; i < n; i++)
                    dir[i] = i < from || i >= to ? 0 : k == 0 ? g[i] : rng_normal(&rng);
                for (size_t i = 0; i < n; i++) len += (double)dir[i] * (double)dir[i];
                for (size_t i = 0; i < n; i++) dot += (double)dir[i] / sqrt(len) * (double)g[i];
                for (int j = 0; j < 2; j++) {
                    for (size_t i = 0; i < n; i++)
                        b.u.w[i] = w[i] + (float)((j ? 0.01 : -0.01) / sqrt(len) * (double)dir[i]);
                    b.u.kind->update(&b.u);
                    side[j] = loss_of(&b, key, false);
                }
                const double got = (side[1] - side[0]) / 0.02;
                CHECK(near(got, dot, 1e-3, 1e-3), "%s, offset %d, direction %zu: differences %g, gradient %g",
                      shapes[shape].name, (int)key + 1, k, got, dot);
                worst = fmax(worst, fabs(got - dot));
            }
            free(w), free(g), free(dir);
            bench_close(&b);
        }
    printf("    largest difference %.2g\n", worst);
}

static void gradients_are_equal_everywhere(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        float *first = NULL;
        FOR_TWINS(o)
            for (size_t threads = 1; threads <= 3; threads += 2) {
                struct bench b;
                bench_open(&b, &shapes[0], bf16 ? DT_BF16 : DT_F32, o, threads);
                loss_of(&b, 3, true);
                if (first)
                    CHECK(!memcmp(first, b.u.grad, b.u.n_params * 4), "%s, %zu threads", o->name, threads);
                else
                    first = must_alloc(b.u.n_params * 4), memcpy(first, b.u.grad, b.u.n_params * 4);
                bench_close(&b);
            }
        free(first);
    }
}

/* With offset j the loss at token t must not depend on the model's keys after t - j. */
static void offsets_hide_keys(void)
{
    for (size_t j = 1; j <= LONGSPEC_OFFSETS; j++) {
        struct bench b;
        double before, after[2];
        bench_open(&b, &shapes[0], DT_F32, best_twin(), 1);
        b.win.n = 20;
        struct train_score score[TRAIN_OUTPUTS_MAX] = { 0 };
        b.u.kind->window(&b.u, &b.win, 0, score);
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
            b.u.kind->window(&b.u, &b.win, 0, score);
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
    struct err e = { 0 };
    struct tensors ts = { 0 };
    char path[] = "/tmp/longspec-XXXXXX", kind[32];
    bench_open(&b, &shapes[0], DT_F32, best_twin(), 1);
    close(mkstemp(path));
    CHECK(b.u.kind->save(&b.u, path, "a note", &e) == 0, "%s", e.msg);
    CHECK(tensors_open_file(&ts, path, &e) == 0 && ts.n == 16, "%s, %zu tensors", e.msg, ts.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(tensors_find(&ts, names[i]), "%s", names[i]);
    CHECK(tensors_metadata(&ts, "kind", kind, sizeof kind, &e) == 1 && !strcmp(kind, "longspec"));
    const struct tensor *t = tensors_find(&ts, "self_attn.k_proj.weight");
    uint16_t first;
    CHECK(t && t->dim[0] == 32 && t->dim[1] == 48 && tensors_read(&ts, t, &first, 0, 2, &e) == 0 &&
          first == f32_to_bf16(b.u.w[64 * 48]));
    tensors_close(&ts);
    unlink(path);
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
