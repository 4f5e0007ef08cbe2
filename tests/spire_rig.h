/* A SPIRe drafter with random weights for a model of a rig. */
#pragma once
#include "src/model/spire.h"
#include "tests/rig.h"

static inline void spire_rig_open(struct spire *s, const struct rig *r, bool int8, uint64_t seed)
{
    const struct config *c = &r->c;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn,
                 mats = d * (2 * q + 2 * kv + 3 * ff), n = mats + q + 2 * kv + 2 * d;
    struct rng rng = { seed };
    struct spire_weights w;
    struct err e = { 0 };
    float *all = must_alloc((SPIRE_LAYERS * n + d + SPIRE_LAYERS * SPIRE_MIX) * sizeof *all), *at = all;
    char path[] = "/tmp/spire-XXXXXX";
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        for (size_t k = 0; k < n; k++)
            at[k] = k < mats ? 1.2f / sqrtf((float)d) * rng_normal(&rng)
                             : (k < n - 2 * d ? 0 : 1) + 0.2f * rng_normal(&rng);
#define TAKE(field, size) (w.layer[i].field = at, at += (size))
        TAKE(q, d * q), TAKE(kv, d * 2 * kv), TAKE(o, d * q), TAKE(gate_up, 2 * d * ff), TAKE(down, d * ff);
        TAKE(q_bias, q), TAKE(kv_bias, 2 * kv), TAKE(norm_attn, d), TAKE(norm_mlp, d);
#undef TAKE
        if (!c->qkv_bias)
            w.layer[i].q_bias = w.layer[i].kv_bias = NULL;
    }
    w.norm = at, at += d;
    w.memory = at;
    for (size_t k = 0; k < d + SPIRE_LAYERS * SPIRE_MIX; k++)
        all[SPIRE_LAYERS * n + k] = (k < d) + 0.2f * rng_normal(&rng);
    close(mkstemp(path));
    if (spire_save_file(path, &r->m, &w, "", &e) || spire_open(s, path, &r->m, int8, &e))
        rig_die("spire", &e);
    unlink(path);
    free(all);
}
