/* For tests of whole models: a model opened with a twin and a number of threads, and passes over it. */
#pragma once
#include "tests/kv_get.h"
#include "tests/quant_rig.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

struct rig { struct config c; struct model m; struct pool *pool; struct device *dev; struct workspace *w;
             size_t rows_max, n_max; };

static inline _Noreturn void rig_die(const char *what, const struct err *e)
{
    printf("FAIL cannot go on: %s: %s\n", what, e->msg);
    exit(1);
}
/* dir: of a model, or the name of a quant_body. */
static inline void rig_open_kv(struct rig *r, const char *dir, enum dtype compute, enum dtype kv,
                               const struct ops *o, size_t threads, size_t rows_max, size_t n_max)
{
    struct err e = { 0 };
    memset(r, 0, sizeof *r);
    r->pool = pool_open(threads), r->rows_max = rows_max, r->n_max = n_max;
    if (device_cpu_open(&r->dev, o, r->pool, kv, e.msg, sizeof e.msg)) rig_die("device", &e);
    const struct quant_body *b = quant_body(dir);
    if (b ? quant_config(&r->c, &e) : config_read(&r->c, dir, &e)) rig_die("config", &e);
    struct model_setup s = { &r->c, compute, r->dev, o, r->pool };
    if (b)
        s.random = b->type, s.random_mix = b->mix;
    if (b ? model_random(&r->m, &s, 7, &e) : model_open(&r->m, dir, &s, &e)) rig_die("model", &e);
    if (workspace_open(&r->w, &r->m, rows_max, n_max, &e)) rig_die("workspace", &e);
}
/* With the cache type of --kv-dtype auto. */
static inline void rig_open(struct rig *r, const char *dir, enum dtype compute, const struct ops *o,
                            size_t threads, size_t rows_max, size_t n_max)
{
    rig_open_kv(r, dir, compute, compute == DT_F32 ? DT_F32 : DT_I16, o, threads, rows_max, n_max);
}
static inline void rig_close(struct rig *r)
{
    workspace_close(r->w), model_close(&r->m), r->dev->close(r->dev), pool_close(r->pool);
}
/* A cache of the host outlives the rig that opened it. */
static inline void rig_kv(const struct rig *r, struct kv *kv, size_t n_max, size_t node_max)
{
    struct err e = { 0 };
    const struct kv_size size = model_cache(&r->m, n_max, node_max);
    if (kv_open(kv, r->dev->host_memory ? NULL : r->dev, &size, &e))
        rig_die("cache", &e);
}
/* Random bytes of stored K and V: numbers of up to about 2 in both halves of each word, for any type. */
static inline void rig_random_words(uint32_t *w, size_t words, struct rng *rng)
{
    for (size_t i = 0; i < words; i++)
        w[i] = ((uint32_t)rng_next(rng) & 0x83ff83ff) | 0x3c003c00;       /* exponents 2^-7 .. 2^0 */
}
/* A stored row of such numbers. */
static inline void rig_random_row(void *row, enum dtype type, size_t head_dim, struct rng *rng)
{
    float x[2 * HEAD_DIM_MAX];
    if (kv_form(type).q != DT_I16) {
        rig_random_words(row, kv_row_bytes(type, head_dim) / 4, rng);
        return;
    }
    for (size_t i = 0; i < 2 * head_dim; i += 2) {
        uint32_t w;
        rig_random_words(&w, 1, rng);
        x[i] = ref_bf16(w & 0xffff), x[i + 1] = ref_bf16(w >> 16);
    }
    kv_store(row, type, x, x + head_dim, head_dim);
}
/* Element i of a stored row, K then V. */
static inline double rig_row_at(const void *row, enum dtype type, size_t head_dim, size_t i)
{
    return ref_row_at(row, type, head_dim, i);
}
/* Fills the first n positions of the cache with random numbers, equal for equal seeds. Up to 10,000 positions
 * are filled row by row, independently of the layout; longer caches byte by byte, in the order of the
 * blocks. */
static inline void rig_inject(struct kv *kv, size_t n, uint64_t seed)
{
    struct rng rng = { seed };
    uint32_t row[2 * HEAD_DIM_MAX];
    size_t blocks = (n + KV_BLOCK - 1) / KV_BLOCK;
    const bool by_row = n <= 10000 || kv_form(kv->type).q == DT_I16;
    if (!n)
        return;
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n; h++) {
            const size_t dim = kv_layer(kv, l).dim;
            if (!by_row) {
                rig_random_words(kv_block(kv, l, h, 0), blocks * kv_head_block(kv, l) / 4, &rng);
                continue;
            }
            for (size_t pos = 0; pos < n; pos++) {
                rig_random_row(row, kv->type, dim, &rng);
                kv_put(kv_block(kv, l, h, pos), kv->type, dim, pos % KV_BLOCK, row);
            }
        }
    kv->n_past = kv->n_written = !by_row ? MIN(blocks * KV_BLOCK, kv->n_max) : n;
    kv_truncate(kv, n);
}
/* A pass over rows of one sequence, with all logits or (want_all false) only those of the last row. Exits
 * when the pass fails. */
static inline void rig_pass(const struct rig *r, struct kv *kv, const int32_t *token, const int32_t *parent,
                            size_t n, float *logits, bool want_all)
{
    static uint8_t all[4096];
    struct err e = { 0 };
    memset(all, 1, sizeof all);
    struct pass_seq s = { kv, n, token, parent, want_all ? all : NULL, logits };
    if (model_forward(&r->m, r->w, &s, 1, NULL, 0, &e)) rig_die("pass", &e);
}
/* n tokens in passes of m rows. Logits [n][vocab]; NULL: only those of the last row of each pass, written to
 * `last`. */
static inline void rig_run(const struct rig *r, struct kv *kv, const int32_t *token, size_t n, size_t m,
                           float *logits, float *last)
{
    for (size_t i = 0; i < n; i += m) {
        size_t rows = MIN(m, n - i);
        rig_pass(r, kv, token + i, NULL, rows, logits ? logits + i * r->c.vocab : last, logits != NULL);
        kv_advance(kv, rows);
    }
}
static inline void rig_tokens(int32_t *token, size_t n, size_t vocab, uint64_t seed)
{
    struct rng rng = { seed };
    for (size_t i = 0; i < n; i++) token[i] = (int32_t)rng_below(&rng, vocab);
}
/* Whether rows [from, to) of two caches have equal bytes, in every layer and head. */
static inline bool rig_same_rows(const struct kv *a, const struct kv *b, size_t from, size_t to)
{
    float x[2 * HEAD_DIM_MAX], y[2 * HEAD_DIM_MAX];
    for (size_t l = 0; l < a->n_layers; l++)
        for (size_t h = 0; h < kv_layer(a, l).n; h++)
            for (size_t pos = from, dim = kv_layer(a, l).dim; pos < to; pos++) {
                kv_get(x, a->type, dim, pos % KV_BLOCK, kv_block(a, l, h, pos));
                kv_get(y, b->type, dim, pos % KV_BLOCK, kv_block(b, l, h, pos));
                if (memcmp(x, y, kv_row_bytes(a->type, dim))) return false;
            }
    return true;
}
static inline const struct ops *best_twin(void)
{
    const struct ops *best = ops_all[0];
    FOR_TWINS(o) best = o;
    return best;
}
#define SLOW_BUILD SANITIZED
