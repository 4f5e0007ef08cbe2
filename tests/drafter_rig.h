/* Trained drafters with random weights for a model of a rig: their files, and the drafters read from them. */
#pragma once
#include "src/model/gumiho.h"
#include "src/model/longspec.h"
#include "src/model/spire.h"
#include "tests/rig.h"

/* Random numbers that weights are cut from. Matrices are rounded to bf16, as in files. */
struct random_weights { float *all, *at; struct rng rng; size_t d; };

static inline struct random_weights random_weights(const struct config *c, size_t blocks, size_t more,
                                                   uint64_t seed)
{
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    struct random_weights p = { .rng = { seed }, .d = d };
    p.at = p.all = must_alloc((blocks * (d * (2 * q + 2 * kv + 3 * c->ffn) + q + 2 * kv + 2 * d) + more) *
                              sizeof *p.all);
    return p;
}
static inline float *random_mat(struct random_weights *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p->at[i] = ref_bf16(ref_to_bf16(1.2f / sqrtf((float)p->d) * rng_normal(&p->rng)));
    return (p->at += n) - n;
}
static inline float *random_vector(struct random_weights *p, size_t n, float mean)
{
    for (size_t i = 0; i < n; i++) p->at[i] = mean + 0.2f * rng_normal(&p->rng);
    return (p->at += n) - n;
}
static inline struct drafter_block random_block(struct random_weights *p, const struct config *c, bool bias,
                                                bool norm_attn)
{
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    struct drafter_block w = { 0 };
    w.qkv.w = random_mat(p, d * q), random_mat(p, d * 2 * kv), w.o.w = random_mat(p, d * q);
    w.gate_up.w = random_mat(p, 2 * d * ff), w.down.w = random_mat(p, d * ff);
    w.qkv_bias = bias ? random_vector(p, q, 0) : NULL;
    if (bias)
        random_vector(p, 2 * kv, 0);
    w.norm_attn = norm_attn ? random_vector(p, d, 1) : NULL;
    w.norm_mlp = random_vector(p, d, 1);
    return w;
}
static inline void drafter_temporary(char path[32])
{
    snprintf(path, 32, "/tmp/drafter-XXXXXX");
    close(mkstemp(path));
}

/* Makes the vocabulary of a drafter of the rig's model short: n tokens, those below 3 and others. */
static inline void rig_shorten(struct draft_vocab *v, const struct rig *r, bool int8, size_t n)
{
    struct err e = { 0 };
    int32_t *some = must_alloc(n * sizeof *some);
    for (size_t i = 0; i < n; i++) some[i] = (int32_t)(i < 3 ? i : r->c.vocab - 1 - i * 2 % (r->c.vocab - 4));
    draft_vocab_close(v);
    if (draft_vocab_count(v, n, r->c.vocab, some, n, &e) || draft_vocab_gather(v, &r->m, int8, &e))
        rig_die("vocabulary", &e);
    free(some);
}

/* v: NULL, or receives the values; the caller frees v->p.all. */
struct longspec_values { struct longspec w; struct random_weights p; };
static inline void longspec_rig_open(struct longspec *l, const struct rig *r, bool int8, uint64_t seed,
                                     struct longspec_values *v)
{
    const size_t d = r->c.hidden, q = r->c.n_heads * r->c.head_dim;
    struct longspec_values x = { .p = random_weights(&r->c, 1, 2 * d * q + q + d, seed) };
    struct err e = { 0 };
    char path[32];
    x.w.block = random_block(&x.p, &r->c, true, true);
    x.w.cross_q.w = random_mat(&x.p, d * q), x.w.cross_o.w = random_mat(&x.p, d * q);
    x.w.cross_q_bias = random_vector(&x.p, q, 0), x.w.norm_cross = random_vector(&x.p, d, 1);
    drafter_temporary(path);
    if (drafter_write(&x.w.file, &longspec_kind, path, &r->m, NULL, "", &e) ||
        drafter_open(&l->file, &longspec_kind, path, &r->m, int8, &e))
        rig_die("longspec", &e);
    unlink(path);
    if (v)
        *v = x;
    else
        free(x.p.all);
}

static inline void spire_rig_open(struct spire *s, const struct rig *r, bool int8, uint64_t seed)
{
    const size_t d = r->c.hidden;
    struct random_weights p = random_weights(&r->c, SPIRE_LAYERS, d + SPIRE_LAYERS * SPIRE_MIX, seed);
    struct spire w = { 0 };
    struct err e = { 0 };
    char path[32];
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        w.layer[i] = random_block(&p, &r->c, r->c.qkv_bias, true);
    w.norm = random_vector(&p, d, 1), w.memory = random_vector(&p, SPIRE_LAYERS * SPIRE_MIX, 0);
    drafter_temporary(path);
    if (drafter_write(&w.file, &spire_kind, path, &r->m, NULL, "", &e) ||
        drafter_open(&s->file, &spire_kind, path, &r->m, int8, &e))
        rig_die("spire", &e);
    unlink(path);
    free(p.all);
}

static inline void gumiho_rig_open(struct gumiho *g, const struct rig *r, bool int8, uint64_t seed)
{
    const size_t d = r->c.hidden, linears = GUMIHO_HEADS * GUMIHO_LINEARS;
    struct random_weights p = random_weights(&r->c, GUMIHO_LAYERS,
                                         2 * d * d + d + linears * (d * d + d) + GUMIHO_HEADS * d * d, seed);
    struct gumiho w = { 0 };
    struct err e = { 0 };
    char path[32];
    w.fc.w = random_mat(&p, 2 * d * d), w.fc_bias = random_vector(&p, d, 0);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) w.layer[i] = random_block(&p, &r->c, false, i > 0);
    for (size_t i = 0; i < linears; i++) {
        const size_t k = i % GUMIHO_LINEARS;
        w.head[i / GUMIHO_LINEARS][k].w.w = random_mat(&p, d * d * (k ? 1 : 2));
        w.head[i / GUMIHO_LINEARS][k].bias = random_vector(&p, d, 0);
    }
    drafter_temporary(path);
    if (drafter_write(&w.file, &gumiho_kind, path, &r->m, NULL, "", &e) ||
        drafter_open(&g->file, &gumiho_kind, path, &r->m, int8, &e))
        rig_die("gumiho", &e);
    unlink(path);
    free(p.all);
}
