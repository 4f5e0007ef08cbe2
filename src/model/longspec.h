/* LongSpec's drafter (Yang et al., arXiv:2502.17421): the tensors of its one layer, and files that hold them.
 * The equations are in src/train/train_longspec.h.
 *
 * A file is a safetensors file with the names of the published checkpoints; q = n_heads * head_dim and kv =
 * n_kv_heads * head_dim:
 *     self_attn.{q,k,v}_proj.{weight,bias}, self_attn.o_proj.weight
 *     cross_attn.q_proj.{weight,bias}, cross_attn.o_proj.weight
 *     mlp.{gate,up,down}_proj.weight
 *     input_layernorm.weight, post_self_attention_layernorm.weight, post_cross_attention_layernorm.weight
 * The published cross_attn.{k,v}_proj have no influence on the result, and longhand does not write them. A
 * file of `train longspec` has in __metadata__: kind "longspec", hidden_size, vocab_size, and model, the
 * heads_fingerprint of the model. */
#pragma once
#include "src/model/model.h"

struct longspec_weights {                /* floats of the host */
    const float *qkv, *qkv_bias;         /* [q + 2 kv][hidden]: rows of q, k, v; [q + 2 kv] */
    const float *o;                      /* [hidden][q] */
    const float *cross_q, *cross_q_bias, *cross_o;
    const float *gate_up, *down;         /* [2 ffn][hidden]: rows of gate, then of up; [hidden][ffn] */
    const float *norm[3];                /* before the attentions and before the feed-forward part */
};
/* Matrices are written in BF16, biases and norms in F32. */
int longspec_save_file(const char *path, const struct model *m, const struct longspec_weights *w,
                       const char *note, struct err *e);
