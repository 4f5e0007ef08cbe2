/* Gumiho's drafter (arXiv:2503.10135): the tensors of its serial and parallel parts, and files that hold
 * them. The equations are in src/train/train_gumiho.h.
 *
 * A file is a safetensors file with the names of the published checkpoints; q = n_heads * head_dim and kv =
 * n_kv_heads * head_dim:
 *     fc.weight [hidden][2 hidden], fc.bias
 *     layers.{0,1}.self_attn.{q,k,v,o}_proj.weight, layers.{0,1}.mlp.{gate,up,down}_proj.weight
 *     layers.1.input_layernorm.weight, layers.{0,1}.post_attention_layernorm.weight
 *     mlp.{0..4}.{0..5}.linear.{weight,bias}      [hidden][2 hidden] for the first of a head, else
 *                                                 [hidden][hidden]
 * The published embed_tokens.weight is a copy of the model's embedding, and longhand does not write it. In
 * __metadata__: kind "gumiho", hidden_size, vocab_size, and model, the heads_fingerprint of the model. */
#pragma once
#include "src/model/model.h"

enum { GUMIHO_LAYERS = 2, GUMIHO_HEADS = 5, GUMIHO_LINEARS = 6 };

struct gumiho_weights {                  /* floats of the host */
    const float *fc, *fc_bias;
    struct {
        const float *q, *kv, *o, *gate_up, *down;        /* as in struct spire_weights */
        const float *norm_attn, *norm_mlp;               /* norm_attn of layer 0: NULL */
    } layer[GUMIHO_LAYERS];
    const float *head[GUMIHO_HEADS][GUMIHO_LINEARS], *head_bias[GUMIHO_HEADS][GUMIHO_LINEARS];
};
/* Matrices are written in BF16, the rest in F32. */
int gumiho_save_file(const char *path, const struct model *m, const struct gumiho_weights *w,
                     const char *note, struct err *e);
