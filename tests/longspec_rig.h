/* A LongSpec drafter with random weights for a model of a rig: its file, and the drafter read from it. */
#pragma once
#include "src/model/longspec.h"
#include "tests/rig.h"

/* The values that the file holds: matrices rounded to bf16. */
struct longspec_values { struct longspec_weights w; float *all; };

static inline void longspec_random(struct longspec_values *v, const struct config *c, uint64_t seed)
{
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn,
                 mats = d * (4 * q + 2 * kv + 3 * ff), n = mats + 2 * q + 2 * kv + 3 * d;
    struct rng rng = { seed };
    float *at = v->all = must_alloc(n * sizeof *at);
    for (size_t i = 0; i < n; i++)
        at[i] = i < mats ? ref_bf16(ref_to_bf16(1.2f / sqrtf((float)d) * rng_normal(&rng)))
                         : (i < n - 3 * d ? 0 : 1) + 0.2f * rng_normal(&rng);
#define TAKE(field, size) (v->w.field = at, at += (size))
    TAKE(qkv, d * (q + 2 * kv)), TAKE(o, d * q), TAKE(cross_q, d * q), TAKE(cross_o, d * q);
    TAKE(gate_up, 2 * d * ff), TAKE(down, d * ff), TAKE(qkv_bias, q + 2 * kv), TAKE(cross_q_bias, q);
    for (size_t i = 0; i < 3; i++) TAKE(norm[i], d);
#undef TAKE
}

/* Opens a drafter of random weights; its values go to v unless it is NULL. */
static inline void longspec_rig_open(struct longspec *l, const struct rig *r, bool int8, uint64_t seed,
                                     struct longspec_values *v)
{
    struct longspec_values own;
    struct err e = { 0 };
    char path[] = "/tmp/longspec-XXXXXX";
    longspec_random(&own, &r->c, seed);
    close(mkstemp(path));
    if (longspec_save_file(path, &r->m, &own.w, "", &e) || longspec_open(l, path, &r->m, int8, &e))
        rig_die("longspec", &e);
    unlink(path);
    if (v)
        *v = own;
    else
        free(own.all);
}
