/* Owns the object under measurement: a model with caches at any depth (struct bench_target), and the memory
 * that its passes read. Start at bench_open and bench_pass. */
#include "src/lab/bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- a model and its caches ---- */

int bench_open(struct bench_target *t, struct engine *g, size_t n_kv, size_t n_max, struct err *e)
{
    const size_t nodes = config_is_hybrid(&g->config) ? BENCH_ROWS_MAX : 0;
    struct memory_plan plan = { 0 };
    struct progress none;
    *t = (struct bench_target){ .g = g, .texts = 1 };
    engine_plan_shared(&plan, g, n_max, PREFILL_ROWS, BENCH_ROWS_MAX);
    for (size_t i = 0; i < n_kv; i++)
        engine_plan_cache(&plan, g, n_max, MAX(nodes, (size_t)1), 0);
    progress_open(&none, PROGRESS_NONE, true);
    if (memory_plan_check(&plan, "--tokens N (the deepest point)", e) || engine_load(g, NULL, &none, e) ||
        round_buffers_open(&t->buffers, &g->model, PREFILL_ROWS, BENCH_ROWS_MAX, n_max, e) ||
        work_matrices(&t->read, &g->model, e))
        return -1;
    for (size_t i = 0; i < BENCH_PREFILL; i++)
        t->token[i] = (int32_t)(i * 7919 % g->config.vocab);
    const struct kv_size cache = model_text_cache(&g->model, n_max, nodes);
    for (; t->n_kv < n_kv; t->n_kv++)
        if (kv_open(&t->kv[t->n_kv], g->dev, &cache, e))
            return -1;
    return 0;
}

void bench_close(struct bench_target *t)
{
    while (t->n_kv)
        kv_close(&t->kv[--t->n_kv]);
    round_buffers_close(&t->buffers);
    free(t->read.v);
}

/* Every byte is 0x1c: numbers and scales of each type are then small, normal and finite, and those of int16
 * are within the bounds of its rows. Speed does not depend on them. Blocks are filled whole: the kernels give
 * values after n_past no weight. */
static void fill(struct kv *kv, size_t depth)
{
    const size_t first = kv->n_past / KV_BLOCK * KV_BLOCK;
    assert(depth >= kv->n_past);
    kv->n_past = depth;
    kv->n_written = MAX(kv->n_written, depth);
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n; h++)
            for (size_t pos = kv_nearest(kv, l, first); pos < depth; pos += KV_BLOCK)
                memset(kv_block(kv, l, h, pos), 0x1c, kv_head_block(kv, l));
    if (kv->state)
        state_place(kv->state, depth);
}

void bench_depth(struct bench_target *t, size_t depth)
{
    for (size_t i = 0; i < t->n_kv; i++)
        fill(&t->kv[i], depth);
}

int bench_pass(struct bench_target *t, size_t rows, struct err *e)
{
    static const uint8_t all[BENCH_ROWS_MAX] = { [0 ... BENCH_ROWS_MAX - 1] = 1 }, none[PREFILL_ROWS];
    const bool prefill = rows > BENCH_ROWS_MAX;
    const size_t depth = t->kv->n_past;
    struct pass_seq s[BENCH_TEXTS_MAX];
    int rc = 0;
    t->experts_read = 0;
    for (size_t at = 0, n; at < rows && rc == 0; at += n * t->texts) {
        n = prefill ? MIN(rows - at, (size_t)PREFILL_ROWS) : rows / t->texts;
        for (size_t i = 0; i < t->texts; i++)
            s[i] = (struct pass_seq){ .kv = &t->kv[i], .n = n, .token = t->token + at + i * n,
                                      .certain = prefill,
                                      .want = !prefill ? all : at + n < rows ? none : NULL,
                                      .logits = t->buffers.logits + i * n * t->g->config.vocab };
        rc = model_forward(&t->g->model, t->buffers.work, s, t->texts, NULL, 0, e);
        t->experts_read += t->g->dev->experts_read;
        if (prefill)
            kv_advance(t->kv, n);
    }
    t->kv->n_past = depth;
    if (prefill && t->kv->state)
        state_place(t->kv->state, depth);
    return rc;
}

/* ---- work of a pass ---- */

struct work bench_work(const struct bench_target *t, size_t depth, size_t rows)
{
    struct work w = { .bytes = (double)t->experts_read * model_bytes_an_expert(&t->g->model) };
    for (size_t at = 0; at < rows; at += PREFILL_ROWS)
        work_add_layers(&w, &t->g->model, &t->read, depth + at, MIN(rows - at, (size_t)PREFILL_ROWS),
                        t->texts);
    work_add_product(&w, &t->read.v[t->read.n - 1], rows <= BENCH_ROWS_MAX ? rows : 1);
    return w;
}

/* Adds what a row reads of the text's cache in a layer, or the states. */
static void add_cache_pieces(struct probe_pieces *s, const struct model *m, const struct kv *kv, size_t l,
                             size_t depth)
{
    const struct config *c = &m->config;
    const size_t slot = m->layers[l].slot, from = work_first_seen(c, l, depth) / KV_BLOCK,
                 to = (depth + KV_BLOCK) / KV_BLOCK;
    if (c->layer[l].mixer == MIXER_DELTA) {
        const struct delta_shape *d = &kv->state->d.shape;
        const size_t floats = d->value_heads * d->key_dim * delta_wide(d);
        s->v[s->n++] = (struct probe_piece){ (const char *)(kv->state->d.state + slot * floats),
                                           floats * sizeof(float) };
        return;
    }
    const struct device_kv view = kv_view(kv);
    const size_t bytes = kv_head_block(kv, slot);
    for (size_t h = 0; h < kv_layer(kv, slot).n; h++)    /* of a ring as many bytes, from its start on */
        s->v[s->n++] = (struct probe_piece){
            kv_is_ring(kv, slot) ? device_kv_base(&view, slot) + h * kv->ring * bytes
                                 : kv_block(kv, slot, h, from * KV_BLOCK), (to - from) * bytes };
}

int bench_pieces(struct probe_pieces *p, const struct bench_target *t, size_t depth, struct err *e)
{
    const struct model *m = &t->g->model;
    const struct config *c = &m->config;
    struct probe_pieces s = { calloc(t->read.n + c->n_layers * t->texts * c->n_kv_heads, sizeof *s.v), 0 };
    if (!s.v)
        return err_set(e, ERR_FAILED, "bench: out of memory");
    for (; s.n < t->read.n; s.n++)
        s.v[s.n] = (struct probe_piece){ t->read.v[s.n].m->w, mat_bytes(t->read.v[s.n].m) };
    for (size_t i = 0; i < t->texts * c->n_layers; i++)
        add_cache_pieces(&s, m, &t->kv[i % t->texts], i / t->texts, depth);
    const int rc = probe_cut(p, &s, pool_threads(m->pool), e);
    free(s.v);
    return rc;
}
