/* LongSpec's drafter (Yang et al., arXiv:2502.17421): one decoder layer that reads the cache of the model's
 * last layer, of those without a window if there are any. Its tensors, files that hold them, and its pass.
 * The equations are in src/lab/train/train_longspec.c.
 *
 * A file is a safetensors file with the names of the published checkpoints; q = n_heads * head_dim and kv =
 * n_kv_heads * head_dim:
 *     self_attn.{q,k,v}_proj.{weight,bias}, self_attn.o_proj.weight
 *     cross_attn.q_proj.{weight,bias}, cross_attn.o_proj.weight
 *     mlp.{gate,up,down}_proj.weight
 *     input_layernorm.weight, post_self_attention_layernorm.weight, post_cross_attention_layernorm.weight
 * The published cross_attn.{k,v}_proj have no influence on the result: longhand neither writes nor reads
 * them.
 *
 * The published drafter reads the last 512 keys from the end of its cache, wherever a node of the tree stands
 * (drafters.md, B5). Here a row sees the 512 positions before its own, as in training. */
#pragma once
#include "src/model/drafter_block.h"

/* keys of the self-attention, the row's own among them; rows of a pass; nodes of a path, with the root */
enum { LONGSPEC_WINDOW = 513, LONGSPEC_ROWS = 64, LONGSPEC_DEPTH_MAX = 16 };

struct longspec {                        /* {0} is closed */
    struct drafter_file file;
    struct drafter_block block;          /* norm_mlp: post_cross_attention_layernorm */
    struct mat cross_q, cross_o;         /* heads padded as in struct layer */
    float *cross_q_bias, *norm_cross;
    struct longspec_buffers *buffers;    /* of a pass of LONGSPEC_ROWS rows */
};
extern const struct drafter_kind longspec_kind;

/* The rows of one text in a pass. The drafter has a cache of its own, of one layer, whose slot s holds
 * position first + s. */
struct longspec_seq {
    const struct kv *target;             /* of the model: its n_past rows are seen, at least one */
    struct kv *own;
    size_t first;
    /* A tree below the committed rows of `own`: rows are nodes node0 .. node0 + n - 1 of its scratch. parent
     * [node0 + n]: a node before it, or -1 for the root, which continues the committed rows. */
    size_t node0, n;
    const int32_t *token;                /* [n] */
    const int32_t *parent;
};
/* One pass of at most LONGSPEC_ROWS rows in all. logits [rows][vocab], by `head`, an LM head of the model.
 * -1: a logit is not finite. */
int longspec_forward(struct longspec *l, const struct mat *head, const struct longspec_seq *seqs,
                     size_t n_seqs, float *logits);
/* Commits n tokens to the drafter's own cache, in slots own->n_past .. */
void longspec_read(struct longspec *l, struct kv *own, size_t first, const int32_t *token, size_t n);
