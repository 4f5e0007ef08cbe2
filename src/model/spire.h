/* SPIRe's drafter (arXiv:2504.06419): the tensors of its two blocks, and files that hold them. The equations
 * are in src/train/train_spire.h.
 *
 * No checkpoint is published. A file of `train spire` is a safetensors file with the names of the model's own
 * layers, counted from 0; q = n_heads * head_dim and kv = n_kv_heads * head_dim:
 *     layers.{i}.self_attn.{q,k,v}_proj.weight, and .bias if the model's have biases
 *     layers.{i}.self_attn.o_proj.weight
 *     layers.{i}.mlp.{gate,up,down}_proj.weight
 *     layers.{i}.input_layernorm.weight, layers.{i}.post_attention_layernorm.weight
 *     norm.weight                     before the LM head
 *     memory.weight [2][3]            w of the memory vectors, before the softmax
 * Embedding and LM head are the model's. In __metadata__: kind "spire", hidden_size, vocab_size, and model,
 * the heads_fingerprint of the model. */
#pragma once
#include "src/model/model.h"

enum { SPIRE_LAYERS = 2, SPIRE_DEPTH = 4, SPIRE_WINDOW = 64, SPIRE_MIX = SPIRE_LAYERS + 1 };

struct spire_weights {                   /* floats of the host */
    struct {
        const float *q, *kv;             /* [q][hidden]; [2 kv][hidden]: rows of k, then of v */
        const float *q_bias, *kv_bias;   /* or NULL */
        const float *o, *gate_up, *down; /* [hidden][q]; [2 ffn][hidden]; [hidden][ffn] */
        const float *norm_attn, *norm_mlp;
    } layer[SPIRE_LAYERS];
    const float *norm, *memory;          /* [hidden]; [SPIRE_LAYERS][SPIRE_MIX] */
};
/* Matrices are written in BF16, the rest in F32. */
int spire_save_file(const char *path, const struct model *m, const struct spire_weights *w, const char *note,
                    struct err *e);
