/* A decoder block of a trained drafter, and the buffers of its passes: what such drafters have in
 * common. Its operations are those of the model's own layers (forward.c).
 *
 * Names in files, after a prefix; q = n_heads * head_dim and kv = n_kv_heads * head_dim:
 *     self_attn.{q,k,v}_proj.weight, and .bias in a block with biases; self_attn.o_proj.weight
 *     mlp.{gate,up,down}_proj.weight
 *     input_layernorm.weight, unless the block has none; the norm before the MLP has a name of its own */
#pragma once
#include "src/model/drafter_file.h"

struct drafter_block_kind { bool bias, norm_attn; const char *norm_mlp; };

struct drafter_block {
    struct mat qkv, o, gate_up, down;        /* heads padded as in struct layer */
    float *qkv_bias, *norm_attn, *norm_mlp;  /* NULL: the block has none */
};
/* Buffers of the device, for passes of n rows. */
struct drafter_buffers { float *x, *qkv, *gate_up; void *xn, *q, *attn, *h; };

/* For lists. */
void drafter_block_list(struct drafter_file *f, struct drafter_block *b, const struct drafter_block_kind *k,
                        const char *prefix);
void drafter_buffers_list(struct drafter_file *f, struct drafter_buffers *b, size_t n);
void drafter_rows_list(struct drafter_file *f, struct pass_rows *r, size_t n, size_t step);

struct device_heads drafter_block_heads(const struct model *m);
/* y [n][w->n] = (add ? y : 0) + x w + bias. A result that is not finite is reported only by
 * drafter_lm_head. */
void drafter_product(const struct model *m, float *y, const struct mat *w, const void *x, const float *bias,
                     size_t n, bool add);
/* logits [n][vocab] of x act [n][hidden] by `head`, an LM head of the model, or its rows of f->vocab. */
int  drafter_lm_head(const struct drafter_file *f, const struct mat *head, const void *x, size_t n,
                     float *logits);
/* The embeddings of the rows of the pass into b->x. */
void drafter_embed(const struct model *m, const struct drafter_buffers *b);
/* Queries, keys and values of x; keys and values go to layer `layer` of the rows' caches. */
void drafter_project(const struct model *m, const struct drafter_block *k, const struct drafter_buffers *b,
                     size_t layer, const float *x, size_t n);
/* b->x += attention of the projected rows over the cache; window: as in device.attend. */
void drafter_attend(const struct model *m, const struct drafter_block *k, const struct drafter_buffers *b,
                    size_t layer, size_t window, size_t n);
/* b->x += MLP(b->x) */
void drafter_feed_forward(const struct model *m, const struct drafter_block *k,
                          const struct drafter_buffers *b, size_t n);
