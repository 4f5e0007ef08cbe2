/* Helpers for tests of devices: buffers of random numbers, one sequence over one cache. */
#pragma once
#include "kernels/device.h"
#include "tests/device_open.h"
#include "tests/test.h"

static uint64_t rig_state = 88172645463325252u;
static inline uint32_t rig_random(void)
{
    rig_state ^= rig_state << 13, rig_state ^= rig_state >> 7, rig_state ^= rig_state << 17;
    return (uint32_t)(rig_state >> 16);
}
/* -1 .. 1 */
static inline float rig_float(void) { return ((float)(rig_random() & 0xffff) / 32768.0f - 1.0f); }
static inline uint16_t rig_bf16(void) { return f32_to_bf16(rig_float()); }

static inline void *rig_put(struct device *d, const void *src, size_t bytes)
{
    void *p = d->alloc(d, bytes);
    d->upload(d, p, src, bytes);
    return p;
}

static inline void *rig_get(struct device *d, const void *src, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    CHECK(p && d->download(d, p, src, bytes) == 0, "%s", d->error);
    return p;
}

static inline struct device_kv rig_cache(struct device *d, size_t layers, size_t kv_heads, size_t dim,
                                         size_t n_max, size_t node_max)
{
    struct device_kv kv = { .type = DT_BF16, .n_layers = layers, .n_kv_heads = kv_heads, .head_dim = dim,
                            .node_max = node_max };
    kv.block_bytes = kv_block_bytes(DT_BF16, dim);
    kv.head_bytes = (n_max + KV_BLOCK - 1) / KV_BLOCK * kv.block_bytes;
    kv.layer_bytes = kv_heads * kv.head_bytes;
    kv.base = d->alloc(d, layers * kv.layer_bytes);
    kv.scratch = node_max ? d->alloc(d, layers * node_max * kv_heads * 2 * dim * 2) : NULL;
    return kv;
}

static inline void rig_cache_free(struct device *d, struct device_kv *kv)
{
    d->free(d, kv->base, 0);
    d->free(d, kv->scratch, 0);
}

/* The rows of a pass over one cache. parent NULL: a chain; else a tree (parent -1: the text). */
enum { RIG_ROWS = 1024 };
struct rig_pass {
    struct device_rows rows;
    struct device_seq seq;
    int32_t token[RIG_ROWS];
    uint32_t pos[RIG_ROWS], hi[RIG_ROWS], angle[RIG_ROWS], n_node[RIG_ROWS], want[RIG_ROWS], *node;
    float inv_freq[64];
};

static inline struct rig_pass *rig_pass(const struct device_kv *kv, size_t n_past, size_t n,
                                        const int32_t *parent, size_t n_freq)
{
    struct rig_pass *p = calloc(1, sizeof *p);
    p->node = calloc(n * n, sizeof *p->node);
    for (size_t i = 0; i < n; i++) {
        uint32_t *path = p->node + i * n, m = 0;
        if (parent && parent[i] >= 0) {
            m = p->n_node[parent[i]];
            memcpy(path, p->node + (size_t)parent[i] * n, m * sizeof *path);
        }
        path[m++] = (uint32_t)i;
        p->n_node[i] = m;
        p->pos[i] = p->angle[i] = (uint32_t)(n_past + (parent ? m - 1 : i));
        p->hi[i] = parent ? (uint32_t)n_past : p->pos[i] + 1;
        p->want[i] = (uint32_t)i;
    }
    for (size_t i = 0; i < n_freq; i++)
        p->inv_freq[i] = powf(10000.0f, -(float)i / (float)n_freq);
    p->seq = (struct device_seq){ .kv = kv, .n = n, .n_past = n_past, .tree = parent };
    p->rows = (struct device_rows){ .n = n, .n_seqs = 1, .seq = &p->seq, .token = p->token, .pos = p->pos,
                                    .hi = p->hi, .angle = p->angle, .n_node = p->n_node,
        .node = p->node, .node_step = n, .n_want = n, .want = p->want, .inv_freq = p->inv_freq,
        .n_freq = n_freq, .rope_factor = 1 };
    return p;
}

static inline void rig_pass_free(struct rig_pass *p)
{
    free(p->node);
    free(p);
}
