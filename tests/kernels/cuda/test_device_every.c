/* Every kernel once, with few rows and small shapes, so that tools which make a kernel a hundred times slower
 * (compute-sanitizer) can watch all of them. Other tests check the results; this one checks that they are
 * finite, and the same when everything runs again. */
#include "kernels/cuda/device_train.h"
#include "kernels/cuda/gpu.h"
#include "tests/device_rig.h"

enum { HIDDEN = 192, FFN = 160, VOCAB = 300, HEADS = 4, KV_HEADS = 2, PAST = 70, ROWS_MAX = 70 };

static struct device *dev;
static size_t launched[CU_N_KERNELS];
static int (*real_launch)(struct gpu_driver *, const struct gpu_launch *);
static int counting_launch(struct gpu_driver *d, const struct gpu_launch *l)
{
    launched[l->kernel]++;
    return real_launch(d, l);
}

static void open_for(const struct device_heads *h)
{
    char why[256] = "";
    if (dev)
        dev->close(dev);
    dev = NULL;
    CHECK(test_device_open(&dev, why, sizeof why) == 0, "%s", why);
    real_launch = gpu_driver_of(dev)->launch;
    gpu_driver_of(dev)->launch = counting_launch;
    const struct device_limits l = { ROWS_MAX, PAST + ROWS_MAX, ROWS_MAX, (HEADS + 2 * KV_HEADS) * 128, VOCAB,
                                     *h, (size_t)HEADS * 128 };
    CHECK(dev->reserve(dev, &l) == 0, "%s", dev->error);
}

/* The memory of a test, freed at once. */
static void *mine[64];
static size_t n_mine;
static void *room(size_t bytes) { return mine[n_mine++] = dev->alloc(dev, bytes); }
static void *noise(size_t n, uint64_t seed)
{
    void *p = room(n * 2);
    dev->noise(dev, p, n, seed, 0.3f);
    return p;
}
static float *floats(size_t n, uint64_t seed)
{
    float *p = room(n * sizeof *p);
    dev->widen(dev, p, noise(n, seed), n);
    return p;
}
static struct mat matrix(size_t n, size_t k, uint64_t seed)
{
    struct mat m = { DT_BF16, n, k, room(dev->mat_size(dev, DT_BF16, n, k)) };
    uint16_t *host = rig_get(dev, noise(n * k, seed), n * k * 2);
    dev->mat_put(dev, &m, 0, n, host, DT_BF16);
    free(host);
    return m;
}
static void free_all(void)
{
    while (n_mine)
        dev->free(dev, mine[--n_mine], 0);
}

/* Adds what the device holds to the results of a run, and checks that numbers are finite. */
static uint64_t results;
static void take(const void *from, size_t n, size_t size)
{
    uint8_t *host = rig_get(dev, from, n * size);
    for (size_t i = 0; i < n * size; i++)
        results = (results ^ host[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < n && size == sizeof(float); i++)
        CHECK(isfinite(((float *)(void *)host)[i]), "number %zu of %zu", i, n);
    free(host);
}

static void product(float *y, const struct mat *w, const void *x, size_t n, const float *bias, bool add)
{
    dev->product(dev, &(struct device_product){ y, w->n, x, n, w, bias, add, 0 });
}

/* A layer and its logits. */
static void one_pass(const struct device_heads *h, const struct device_kv *kv, size_t n,
                     const int32_t *parent, size_t window)
{
    const size_t q_row = HEADS * h->padded, qkv_row = (HEADS + 2 * KV_HEADS) * h->padded;
    struct mat embed = matrix(VOCAB, HIDDEN, 1), qkv = matrix(qkv_row, HIDDEN, 2),
               o = matrix(HIDDEN, q_row, 3), gate_up = matrix(2 * FFN, HIDDEN, 4),
               down = matrix(HIDDEN, FFN, 5);
    float *x = room(ROWS_MAX * HIDDEN * 4), *gain = floats(HIDDEN, 6), *y = room(n * qkv_row * 4),
          *ff = room(n * 2 * FFN * 4), *logits = room(n * VOCAB * 4), *tap = room(n * q_row * 4);
    char *xn = room(n * HIDDEN * 2), *picked = room(n * HIDDEN * 2), *q = room(n * q_row * 2),
         *out = room(n * q_row * 2), *hidden = room(n * FFN * 2);
    struct rig_pass *p = rig_pass(kv, PAST, n, parent, h->head_dim / 2);
    struct device_bad bad;
    for (size_t i = 0; i < n; i++)
        p->token[i] = (int32_t)(i * 7 % VOCAB);
    if (!parent)
        p->seq.importance = room(KV_HEADS * (PAST + ROWS_MAX) * 4), p->seq.importance_step = PAST + ROWS_MAX;
    dev->begin(dev, &p->rows);
    dev->embed(dev, x, &embed, true);
    dev->rmsnorm(dev, xn, x, gain, n, HIDDEN, 1e-5f, 0);
    product(y, &qkv, xn, n, floats(qkv_row, 7), false);
    dev->rope(dev, &(struct device_rope){ q, y, h, 0, gain, gain, 1e-5f, .q_tap = tap });
    dev->attend(dev, out, q, h, 0, window);
    product(x, &o, out, n, NULL, true);
    dev->rmsnorm(dev, xn, x, gain, n, HIDDEN, 1e-5f, 0);
    product(ff, &gate_up, xn, n, NULL, false);
    dev->swiglu(dev, hidden, ff, n, FFN);
    product(x, &down, hidden, n, NULL, true);
    dev->gather(dev, picked, xn, HIDDEN * 2);
    product(logits, &embed, picked, n, NULL, false);
    CHECK(dev->end(dev, &bad) == 0 && !bad.any, "%s", dev->error);
    take(logits, n * VOCAB, 4);
    take(tap, n * q_row, 4);
    take(kv->base, kv->layer_bytes, 1);
    if (parent)
        dev->kv_commit(dev, kv, PAST, p->want, 3);
    rig_pass_free(p);
}

/* Passes of few and of many rows, chains and trees, with and without a window; then what happens to
 * caches. */
static void passes(size_t head_dim)
{
    const struct device_heads h = { HEADS, KV_HEADS, head_dim, head_dim };
    int32_t parent[ROWS_MAX];
    for (int32_t i = 0; i < ROWS_MAX; i++)
        parent[i] = i ? (i - 1) / 2 : -1;
    open_for(&h);
    struct device_kv kv = rig_cache(dev, 1, KV_HEADS, h.padded, PAST + ROWS_MAX, ROWS_MAX),
                     part = rig_cache(dev, 1, KV_HEADS, h.padded, 64, 0);
    dev->noise(dev, kv.base, kv.layer_bytes / 2, 8, 1);
    one_pass(&h, &kv, 3, parent, 0);
    free_all();
    one_pass(&h, &kv, ROWS_MAX, parent, 30);
    free_all();
    one_pass(&h, &kv, 3, NULL, 30);
    free_all();
    one_pass(&h, &kv, 15, NULL, 0);
    free_all();
    one_pass(&h, &kv, ROWS_MAX, NULL, 0);
    free_all();
    static const uint32_t from[1], move[] = { 3, 9 };
    const size_t budget = 40;
    uint32_t *row = room(KV_HEADS * budget * 4);
    void *work = room(dev->select_bytes(dev, 1, KV_HEADS, budget));
    dev->kv_select(dev, &(struct device_selection){ floats(KV_HEADS * PAST, 9), PAST, from, 1, KV_HEADS, PAST,
                                                    4, budget, row, budget, work });
    dev->kv_gather(dev, &part, &kv, row, budget, budget);
    dev->kv_copy(dev, &part, &kv, move, move + 1, 1);
    dev->kv_zero(dev, &part, 50, 60);
    take(row, KV_HEADS * budget, 4);
    take(part.base, part.layer_bytes, 1);
    free_all();
    rig_cache_free(dev, &kv), rig_cache_free(dev, &part);
}

/* A token from each of two rows, with every step of the chain. */
static void tokens(void)
{
    enum { N = 2 };
    struct device_candidate best[N];
    const struct device_edit edit[] = { { 3, 5 }, { 7, -1 } };
    const struct device_count count[] = { { 5, 1, 1 }, { 9, 1, 2 } };
    struct device_pick pick[N] = { { .position = 1, .n_edit = 1, .dry = 1, .n_dry = 1, .n_count = 2 },
                                   { .position = 2, .row = 1 } };
    uint32_t *counts = room(2 * VOCAB * 4);
    const struct device_chain chain = { .temperature = 0.9,
                                        .top_k = 40,
                                        .min_keep = 2,
                                        .top_p = 0.9,
                                        .min_p = 0.01,
                                        .eta = 1e-4,
                                        .penalty = 1.1,
                                        .presence = 0.1,
                                        .frequency = 0.1,
                                        .order = { DEVICE_PENALTIES, DEVICE_BIAS, DEVICE_DRY,
                                                   DEVICE_TEMPERATURE, DEVICE_TOP_K, DEVICE_TOP_P,
                                                   DEVICE_MIN_P, DEVICE_ETA },
                                        .n_order = 8,
                                        .seed = 5,
                                        .counts = counts };
    dev->count(dev, counts, VOCAB, count, 2);
    CHECK(dev->sample(dev, best, 1, floats(N * VOCAB, 10), VOCAB, &chain,
                      &(struct device_picks){ pick, N, edit, 2, count, 2,
                                              room(dev->sample_bytes(dev, N, 2, 2, VOCAB)) }) == 0, "%s",
          dev->error);
    for (size_t i = 0; i < N; i++)
        results = (results ^ (uint64_t)best[i].id) * 31;
    CHECK(best[0].id >= 0 && best[1].id >= 0);
    free_all();
}

/* The steps of training between its products. */
static void training(void)
{
    enum { ROWS = 5 };
    const size_t n = ROWS * HIDDEN;
    float *x = floats(n, 11), *w = floats(HIDDEN, 12), *dx = floats(n, 13), *dw = floats(HIDDEN, 14);
    const int32_t target[ROWS] = { 1, -1, 5, 8, 2 };
    int32_t *at = rig_put(dev, target, sizeof target);
    struct xent *loss = room(ROWS * sizeof *loss);
    void *g = room(ROWS * VOCAB * 2), *w16 = room(n * 2);
    device_norm_back(dev, &(struct device_norm_back){ dx, dw, floats(n, 15), x, w, room(ROWS * 4), ROWS,
                                                      HIDDEN, 1e-5f, 0.5f, true });
    device_xent(dev, loss, g, floats(ROWS * VOCAB, 16), at, ROWS, VOCAB);
    const double squares = device_squares(dev, dx, n, room(device_squares_bytes(n)));
    device_adamw(dev, &(struct device_weights){ x, room(n * 4), room(n * 4), dx, w16, n, n / 2 },
                 &(struct adamw){ 0.9f, 0.99f, 1e-8f, 1, 1, 1e-3f, 1 });
    dev->narrow(dev, w16, x, n);
    take(x, n, 4);
    take(dw, HIDDEN, 4);
    take(g, ROWS * VOCAB, 2);
    CHECK(isfinite(squares) && squares > 0, "%g", squares);
    dev->free(dev, at, 0);
    free_all();
}

static void every_kernel_runs_and_repeats_itself(void)
{
#define X(name, args) #name,
    static const char *const name[] = { CU_KERNELS(X) };
#undef X
    uint64_t first = 0;
    for (int again = 0; again < 2; again++) {
        results = 0;
        passes(64);
        passes(128);
        tokens();
        training();
        CHECK(!again || results == first, "another result the second time");
        first = results;
        if (test_on_gpu())                       /* tools that watch it are slow */
            break;
    }
    for (size_t i = 0; i < CU_N_KERNELS; i++)
        CHECK(launched[i], "%s was not launched", name[i]);
}

int main(void)
{
    char why[256];
    if (test_device_open(&dev, why, sizeof why)) {
        printf("skip test_device_every (%s)\n", why);
        return 0;
    }
    RUN(every_kernel_runs_and_repeats_itself);
    if (dev)
        dev->close(dev);
    return test_end();
}
