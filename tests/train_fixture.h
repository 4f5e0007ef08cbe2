/* The window of tests/data/train_fixture.txt, for which that file has PyTorch's results: a model that has
 * only the parts that heads need, and a module that trains heads on it. */
#pragma once
#include "src/lab/train/train.h"
#include "tests/rig.h"

/* Opens n modules and the LM head that they train with. v: the vocabulary of drafts; NULL: the model's. */
static inline void modules_open(struct lm_back *back, struct module *u, size_t n, const struct model *m,
                                struct draft_vocab *v)
{
    struct err e = { 0 };
    if (lm_back_open(back, m, v, &e)) rig_die("LM head", &e);
    for (size_t i = 0; i < n; i++)
        if (module_open(&u[i], m, back, &e)) rig_die("module", &e);
}

/* The n numbers of one entry of the file; free(v). */
struct fixture { double *v; size_t n; };

static inline struct fixture fixture_of(const char *path, const char *name)
{
    FILE *f = fopen(path, "r");
    struct fixture x = { 0 };
    char word[64];
    if (!f) abort();
    while (fscanf(f, "%63s %zu", word, &x.n) == 2) {
        x.v = must_alloc(x.n * sizeof *x.v);
        for (size_t i = 0; i < x.n; i++)
            if (fscanf(f, "%lf", &x.v[i]) != 1) abort();
        if (!strcmp(word, name)) break;
        free(x.v), x.v = NULL;
    }
    fclose(f);
    if (!x.v) abort();
    return x;
}

static inline struct fixture fixture(const char *name)
{
    return fixture_of("tests/data/train_fixture.txt", name);
}

struct fixture_bench {
    struct model m; struct lm_back back; struct module u; struct train_window win;
    float *hidden, *hidden_dev; int32_t *token;      /* the window: on the host, and on the device */
    size_t n, steps, warmup;
};

/* dev: the device that the model is on; NULL: the host. */
static inline void fixture_bench_open(struct fixture_bench *b, enum dtype compute, const struct ops *o,
                                      size_t threads, bool chained, struct device *dev)
{
    struct fixture sizes = fixture("sizes"), set = fixture("settings"), lm = fixture("lm_head"),
                   h = fixture("hidden"), tok = fixture("token"), first = fixture("first");
    const size_t d = (size_t)sizes.v[0], vocab = (size_t)sizes.v[1], len = (size_t)sizes.v[3];
    memset(b, 0, sizeof *b);
    b->n = (size_t)sizes.v[2], b->steps = (size_t)sizes.v[4], b->warmup = (size_t)sizes.v[5];
    b->m = (struct model){ .compute = compute, .ops = o, .pool = pool_open(threads), .dev = dev,
                           .head_dim = 64 };
    b->m.config = (struct config){ .hidden = d, .vocab = vocab, .rms_eps = set.v[3], .n_layers = 1,
                                   .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .rotary = 64,
                                   .ffn = d };
    b->m.lm_head = (struct mat){ compute, vocab, d, NULL };
    float *rows = must_alloc(lm.n * 4);
    for (size_t i = 0; i < lm.n; i++) rows[i] = (float)lm.v[i];
    if (dev) {
        b->m.lm_head.w = dev->alloc(dev, dev->mat_size(dev, DT_BF16, vocab, d));
        dev->mat_put(dev, &b->m.lm_head, 0, vocab, rows, DT_F32);
    } else {
        b->m.lm_head.w = must_alloc(mat_bytes(&b->m.lm_head));
        mat_pack(&b->m.lm_head, 0, vocab, rows, DT_F32);
    }
    b->hidden = must_alloc(h.n * 4), b->token = must_alloc(len * 4);
    for (size_t i = 0; i < h.n; i++) b->hidden[i] = (float)h.v[i];
    for (size_t i = 0; i < len; i++) b->token[i] = (int32_t)tok.v[i];
    if (dev) {
        b->hidden_dev = dev->alloc(dev, h.n * 4);
        dev->upload(dev, b->hidden_dev, b->hidden, h.n * 4);
    }
    b->win = (struct train_window){ b->token, len, dev ? b->hidden_dev : b->hidden };
    b->u = (struct module){ .kind = &train_heads, .name = "test", .heads = b->n, .chained = chained,
                            .seed = 42 };
    modules_open(&b->back, &b->u, 1, &b->m, NULL);
    for (size_t i = 0; i < first.n; i++) b->u.w[i] = (float)first.v[i];
    CHECK(first.n == b->u.n_params);
    module_update(&b->u);
    free(rows), free(sizes.v), free(set.v), free(lm.v), free(h.v), free(tok.v), free(first.v);
}
static inline void fixture_bench_close(struct fixture_bench *b)
{
    module_close(&b->u), lm_back_close(&b->back), pool_close(b->m.pool);
    if (b->m.dev)
        b->m.dev->free(b->m.dev, b->m.lm_head.w, 0), b->m.dev->free(b->m.dev, b->hidden_dev, 0);
    else
        free(b->m.lm_head.w);
    free(b->hidden), free(b->token);
}
