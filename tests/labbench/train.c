/* Owns the training point: heads trained on the device as `train heads` does it,
 * on windows of random tokens. Start at lab_train. */
#include <stdlib.h>

#include "kernels/cuda/device_train.h"
#include "src/lab/train/train.h"
#include "tests/labbench/lab.h"

enum { N_HEADS = 3, CHUNK = 256 };
struct training {
    const struct model *m;
    struct kv kv;
    struct workspace *work;
    struct lm_back back;
    struct module u;
    int32_t *token;
    float *hidden;                   /* the device's [n][hidden] */
    size_t n;                        /* tokens of a window */
};

/* One window and one step. Adds to seconds: of the model, the heads, the optimiser. */
static int one_step(struct training *t, size_t step, double seconds[3], struct err *e)
{
    const struct train_settings s = { .steps = 100, .rate = 0.001, .clip = 1 };
    struct device *dev = t->m->dev;
    struct train_score score[TRAIN_OUTPUTS_MAX] = { { 0 } };
    const size_t d = t->m->config.hidden;
    const double start = clock_seconds();
    kv_truncate(&t->kv, 0);
    for (size_t i = 0; i < t->n; i += CHUNK) {
        struct pass_seq seq = { .kv = &t->kv, .n = MIN((size_t)CHUNK, t->n - i), .token = t->token + i };
        if (model_forward(t->m, t->work, &seq, 1, NULL, 0, e))
            return -1;
        kv_advance(&t->kv, seq.n);
        dev->copy(dev, t->hidden + i * d, workspace_residual(t->work), seq.n * d * sizeof *t->hidden);
    }
    const double mid = clock_seconds();
    t->u.kind->train(&t->u, &(struct train_window){ t->token, t->n, t->hidden }, 1, score);
    const double late = clock_seconds();
    /* This call waits for the device. */
    const double norm = train_step(&t->u, &s, step), squares = module_squares(&t->u);
    seconds[0] += mid - start, seconds[1] += late - mid, seconds[2] += clock_seconds() - late;
    if (*dev->error)
        return err_set(e, ERR_FAILED, "%s: %s", dev->name, dev->error);
    return norm > 0 && squares == 0
               ? 0
               : err_set(e, ERR_FAILED, "bench: training of heads: a gradient of norm %g, %g after the step",
                         norm, squares);
}

static int measure(struct lab *b, struct training *t, struct err *e)
{
    struct device *dev = t->m->dev;
    const struct config *c = &t->m->config;
    double seconds[3] = { 0 }, all;
    const size_t steps = b->tiny ? 1 : 2;
    t->token = malloc(t->n * sizeof *t->token);
    t->hidden = dev->alloc(dev, t->n * c->hidden * sizeof *t->hidden);
    if (!t->token || !t->hidden)
        return err_set(e, ERR_FAILED, "bench: %s: out of memory for training", dev->name);
    for (size_t i = 0; i < t->n; i++)
        t->token[i] = (int32_t)(i * 2654435761u % c->vocab);
    if (kv_open(&t->kv, dev, &(struct kv_size){ dev->kv_type, c->n_layers, c->n_kv_heads, t->m->head_dim,
                                                t->n, 0 }, e) ||
        workspace_open(&t->work, t->m, CHUNK, t->n, e) || lm_back_open(&t->back, t->m, NULL, e) ||
        module_open(&t->u, t->m, &t->back, e))
        return -1;
    /* Not counted: libraries choose and load their kernels. */
    if (!b->tiny && one_step(t, 0, (double[3]){ 0 }, e))
        return -1;
    for (size_t i = 0; i < steps; i++)
        if (one_step(t, i + 1, seconds, e))
            return -1;
    all = seconds[0] + seconds[1] + seconds[2];
    b->train = (double)(steps * t->n) / all;
    if (!b->json)
        printf("%-16s %-9s %6zu tokens a window, %d heads: %.1f tokens/s; of the time model %.0f%%, heads "
               "%.0f%%, optimiser %.0f%%\n",
               b->tiny ? "tiny random" : "8B random", "train", t->n, N_HEADS, b->train,
               100 * seconds[0] / all, 100 * seconds[1] / all, 100 * seconds[2] / all);
    fflush(stdout);
    return 0;
}

int lab_train(struct lab *b, const struct model *m, struct err *e)
{
    char why[512];
    struct training t = { .m = m, .n = b->tiny ? 40 : 8192,
                          .u = { .kind = &train_heads, .name = "heads", .heads = N_HEADS, .chained = true,
                                 .seed = 1 } };
    const size_t vocab = m->config.vocab, d = m->config.hidden,
                 window = t.n * (d * 4 + 4 * m->config.n_layers * m->config.n_kv_heads * m->head_dim);
    if (module_plan(&t.u, m, e))
        return -1;
    const size_t needed =
        t.u.bytes + vocab * d * 2 + window + workspace_bytes(m, CHUNK, t.n);
    if (device_train_open(m->dev, why, sizeof why)) {
        module_close(&t.u);
        lab_skip(b, "training of heads: %s", why);
        return 0;
    }
    if (needed > m->dev->bytes_free(m->dev)) {
        module_close(&t.u);
        lab_skip(b, "training of heads: %.1f GB are needed, %.1f GB are free", (double)needed / 1e9,
                          (double)m->dev->bytes_free(m->dev) / 1e9);
        return 0;
    }
    const int rc = measure(b, &t, e);
    module_close(&t.u);
    lm_back_close(&t.back);
    workspace_close(t.work);
    if (t.kv.base)
        kv_close(&t.kv);
    m->dev->free(m->dev, t.hidden, t.n * d * sizeof(float));
    free(t.token);
    return rc;
}
