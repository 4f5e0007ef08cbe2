/* For tests of trained drafters: a window of a tiny model, what the model computes of it, and a module; its
 * gradient against finite differences. */
#pragma once
#include "src/model/safetensors.h"
#include "src/lab/train/train.h"
#include "tests/rig.h"
#include "tests/tiny_model.h"
#include "tests/train_fixture.h"

enum { WINDOW = 83, SKIP_AT = 3, SKIP_BY = 900 };

struct bench {
    struct rig rig; struct kv kv; struct draft_vocab vocab; struct lm_back back; struct module u;
    struct train_window win;
    int32_t token[WINDOW];
    float *hidden, *entering[2];
};

struct bench_settings {
    const struct module_kind *kind;
    const struct ops *ops; size_t threads;           /* NULL, 0: the best twin, one thread */
    enum spire_ablation ablation;
    bool bf16, brief, still;                         /* DT_BF16; a short vocabulary; no noise on parameters */
    uint64_t key; double done;                       /* of the window */
};

/* What the model computes of the window. */
static inline void bench_model(struct bench *b)
{
    const size_t d = b->rig.c.hidden, bytes = WINDOW * d * sizeof(float);
    struct err e = { 0 };
    rig_kv(&b->rig, &b->kv, WINDOW + 3, 0);
    rig_tokens(b->token, WINDOW, b->rig.c.vocab, 3);
    b->hidden = must_alloc(bytes), b->entering[0] = must_alloc(bytes), b->entering[1] = must_alloc(bytes);
    for (size_t i = 0, to; i < WINDOW; i = to) {
        to = i < SKIP_AT ? SKIP_AT : WINDOW;
        struct pass_seq seq = { .kv = &b->kv, .n = to - i, .token = b->token + i, .shift = i ? SKIP_BY : 0 };
        const struct tap taps[] = { { TAP_RESIDUAL, b->rig.c.n_layers - 2, b->entering[0] + i * d },
                                    { TAP_RESIDUAL, b->rig.c.n_layers - 1, b->entering[1] + i * d },
                                    { TAP_RESIDUAL, b->rig.c.n_layers, b->hidden + i * d } };
        if (model_forward(&b->rig.m, b->rig.w, &seq, 1, taps, 3, &e)) rig_die("forward", &e);
        kv_advance(&b->kv, to - i);
    }
}
static inline void bench_open(struct bench *b, const struct tiny *shape, const struct bench_settings *s)
{
    struct err e = { 0 };
    struct rng rng = { 7 };
    char dir[4096];
    *b = (struct bench){ 0 };
    tiny_write(shape, dir);
    rig_open(&b->rig, dir, s->bf16 ? DT_BF16 : DT_F32, s->ops ? s->ops : best_twin(),
             s->threads ? s->threads : 1, WINDOW, 4096);
    tiny_remove(dir);
    bench_model(b);
    b->win = (struct train_window){ .token = b->token, .n = WINDOW, .hidden = b->hidden, .kv = &b->kv,
                                    .entering = { b->entering[0], b->entering[1] }, .skip_at = SKIP_AT,
                                    .skip = SKIP_BY, .key = s->key, .done = s->done };
    const size_t all = b->rig.c.vocab;
    if (s->brief && draft_vocab_count(&b->vocab, all / 2, all, b->token, WINDOW, &e))
        rig_die("vocabulary", &e);
    b->u = (struct module){ .kind = s->kind, .name = s->kind->name, .window = WINDOW, .seed = 9,
                            .ablation = s->ablation, .draft_vocab = b->vocab.n };
    modules_open(&b->back, &b->u, 1, &b->rig.m, s->brief ? &b->vocab : NULL);
    for (size_t i = 0; i < b->u.n_params && !s->still; i++)
        b->u.w[i] += 0.1f * rng_normal(&rng);
    module_update(&b->u);
}
static inline void bench_close(struct bench *b)
{
    module_close(&b->u);
    lm_back_close(&b->back);
    draft_vocab_close(&b->vocab);
    kv_close(&b->kv);
    rig_close(&b->rig);
    free(b->hidden), free(b->entering[0]), free(b->entering[1]);
}

/* The scores of the window, and the gradient. */
static inline void bench_window(struct bench *b, struct train_score score[TRAIN_OUTPUTS_MAX])
{
    memset(score, 0, TRAIN_OUTPUTS_MAX * sizeof *score);
    memset(b->u.grad, 0, b->u.n_params * sizeof(float));
    b->u.kind->train(&b->u, &b->win, 1, score);
}
/* Every twin and number of threads computes the same gradient. */
static inline void bench_same_everywhere(const struct tiny *shape, struct bench_settings s)
{
    struct train_score score[TRAIN_OUTPUTS_MAX];
    float *first = NULL;
    FOR_TWINS(o)
        for (s.ops = o, s.threads = 1; s.threads <= 3; s.threads += 2) {
            struct bench b;
            bench_open(&b, shape, &s);
            const size_t bytes = b.u.n_params * sizeof(float);
            bench_window(&b, score);
            if (first)
                CHECK(!memcmp(first, b.u.grad, bytes), "%s, %zu threads", o->name, s.threads);
            else
                first = must_alloc(bytes), memcpy(first, b.u.grad, bytes);
            bench_close(&b);
        }
    free(first);
}

/* Along the gradient, in random directions, and along each twentieth of the parameters and the last `tail` of
 * them alone: (loss(w + a d) - loss(w - a d)) / 2a = d . gradient. */
static inline void bench_differences(struct bench *b, double (*loss)(const struct train_score *), size_t tail,
                                     const char *what)
{
    struct rng rng = { 65 };
    struct train_score score[TRAIN_OUTPUTS_MAX];
    const size_t n = b->u.n_params;
    float *w = must_alloc(n * 4), *g = must_alloc(n * 4), *dir = must_alloc(n * 4);
    double worst = 0;
    bench_window(b, score);
    memcpy(w, b->u.w, n * 4), memcpy(g, b->u.grad, n * 4);
    for (size_t k = 0; k < 25; k++) {
        size_t from = k < 4 ? 0 : (k - 4) * n / 20, to = k < 4 ? n : (k - 3) * n / 20;
        double dot = 0, len = 0, side[2];
        if (k == 24) from = n - tail, to = n;
        for (size_t i = 0; i < n; i++)
            dir[i] = i < from || i >= to ? 0 : k == 0 ? g[i] : rng_normal(&rng);
        for (size_t i = 0; i < n; i++) len += (double)dir[i] * (double)dir[i];
        for (size_t i = 0; i < n; i++) dot += (double)dir[i] / sqrt(len) * (double)g[i];
        for (int j = 0; j < 2; j++) {
            for (size_t i = 0; i < n; i++)
                b->u.w[i] = w[i] + (float)((j ? 0.001 : -0.001) / sqrt(len) * (double)dir[i]);
            module_update(&b->u);
            bench_window(b, score);
            side[j] = loss(score);
        }
        const double got = (side[1] - side[0]) / 0.002;
        CHECK(near(got, dot, 1e-3, 1e-3), "%s, direction %zu: differences %g, gradient %g", what, k, got,
              dot);
        worst = fmax(worst, fabs(got - dot) / fmax(1, fabs(dot)));
    }
    printf("    %s: largest difference %.2g\n", what, worst);
    free(w), free(g), free(dir);
}

/* Saves the module's file, opens it, and checks its kind, the number of its tensors and some of their names.
 * The caller closes ts. */
static inline void bench_file(struct bench *b, struct tensors *ts, const char *kind, size_t n_tensors,
                              const char *const *names, size_t n_names)
{
    struct err e = { 0 };
    char path[] = "/tmp/drafter-XXXXXX", got[32];
    *ts = (struct tensors){ 0 };
    close(mkstemp(path));
    CHECK(b->u.kind->save(&b->u, path, "a note", &e) == 0, "%s", e.msg);
    CHECK(tensors_open_file(ts, path, &e) == 0 && ts->n == n_tensors, "%s, %zu tensors", e.msg, ts->n);
    for (size_t i = 0; i < n_names; i++)
        CHECK(tensors_find(ts, names[i]), "%s", names[i]);
    CHECK(tensors_metadata(ts, "kind", got, sizeof got, &e) == 1 && !strcmp(got, kind));
    unlink(path);
}
/* The first element of a BF16 tensor. */
static inline uint16_t bench_first(const struct tensors *ts, const char *name, size_t rows, size_t cols)
{
    struct err e = { 0 };
    const struct tensor *t = tensors_find(ts, name);
    uint16_t first = 0;
    CHECK(t && t->dim[0] == rows && t->dim[1] == cols && tensors_read(ts, t, &first, 0, 2, &e) == 0);
    return first;
}
